/* flight.h - when sessions write what their ranks did last. */
#ifndef CLEAVE_RUNTIME_FLIGHT_H
#define CLEAVE_RUNTIME_FLIGHT_H

#include "cleave/flight.h"
#include "runtime/session.h"

/* A call of the session has failed, as *why says. */
void clv_flight_note_failure(const clv_session *session, const clv_error *why);
/* It is about to be freed. */
void clv_flight_note_end(const clv_session *session);

#endif
