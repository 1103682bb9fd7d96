/* flight_dump.h - when a session writes its flight recorder dump: on failure and at its end. */
#ifndef CLEAVE_RUNTIME_DIAGNOSTICS_FLIGHT_DUMP_H
#define CLEAVE_RUNTIME_DIAGNOSTICS_FLIGHT_DUMP_H

#include "cleave/flight.h"
#include "runtime/session/session_internal.h"

/* A call of the session has failed, as *why says. */
void clv_flight_dump_on_failure(const clv_session *session, const clv_error *why);
/* It is about to be freed. */
void clv_flight_dump_on_end(const clv_session *session);

#endif
