/* session_state.h - compares the state of two sessions. */
#pragma once

#include "cleave/session.h"

/* Expects parameters and moments of the same names, in the same order, each within `most` of the largest element of
 * `want`, or with most 0 the same bits. f32 and f64. Returns their number. */
int expect_session_state(const clv_session *want, const clv_session *got, double most, const char *where);
