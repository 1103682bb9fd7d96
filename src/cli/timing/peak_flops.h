/* peak_flops.h - measured peak FLOP/s of a rank (512 x 512 matmuls), the denominator of MFU. */
#pragma once

#include "cleave/session.h"

/* *flops_per_s: the rate of a rank while all ranks work, timed on 512 x 512 matrix products for some hundredths of a
 * second. Collective: all processes of the job must call it. */
clv_status clv_peak_flops_measure(double *flops_per_s, clv_session *session, const clv_mesh *mesh, clv_dtype dtype,
                                  clv_error *err);
