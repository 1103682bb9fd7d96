/* peak.h - what a rank can do at most. */
#ifndef CLEAVE_CLI_PEAK_H
#define CLEAVE_CLI_PEAK_H

#include "cleave/session.h"

/* Flops a second of a rank of the session, all at work: products of 512 x 512 matrices are timed for some hundredths of
 * a second. All processes call alike. */
clv_status clv_peak_measure(double *flops_per_s, clv_session *session, const clv_mesh *mesh, clv_dtype dtype,
                            clv_error *err);

#endif
