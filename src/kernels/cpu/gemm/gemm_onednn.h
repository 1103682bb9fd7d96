/* gemm_onednn.h - oneDNN's sgemm behind our types; gemm_onednn.c alone includes dnnl.h. */
#ifndef CLEAVE_KERNELS_CPU_GEMM_GEMM_ONEDNN_H
#define CLEAVE_KERNELS_CPU_GEMM_GEMM_ONEDNN_H

#include "kernels/cpu/gemm/gemm.h"

/* Has the calling thread make what sgemm makes once, on its first products. See clv_gemm_prepare. */
clv_status clv_onednn_prepare(clv_error *err);

/* One product of f32 (a, b, c, extents, leading dimensions, transposes and accumulate of args; no extent is 0). */
clv_status clv_onednn_sgemm(const clv_gemm_args *args, clv_error *err);

#endif
