/* peak_flops.h - measured peak FLOP/s of a rank (512 x 512 matmuls), the denominator of MFU. */
#ifndef CLEAVE_CLI_TIMING_PEAK_FLOPS_H
#define CLEAVE_CLI_TIMING_PEAK_FLOPS_H

#include "cleave/session.h"

/* Flops a second of a rank of the session, all at work: products of 512 x 512 matrices are timed for some hundredths of
 * a second. All processes call alike. */
clv_status clv_peak_flops_measure(double *flops_per_s, clv_session *session, const clv_mesh *mesh, clv_dtype dtype,
                                  clv_error *err);

#endif
