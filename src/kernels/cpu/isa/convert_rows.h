/* convert_rows.h - converts rows of bf16 and f16 to f32 and back, one set an instruction set. */
#ifndef CLEAVE_KERNELS_CPU_ISA_CONVERT_ROWS_H
#define CLEAVE_KERNELS_CPU_ISA_CONVERT_ROWS_H

#include <stdint.h>

#include "cleave/dtype.h"
#include "kernels/cpu/isa_dispatch.h"

/* out [rows, cols] f32, from bf16, f16 or f32, and back with rounding. ldo, ldi: elements between rows. */
CLV_ISA_DECLARE(void, clv_gemm_widen,
                (clv_dtype dtype, float *out, int64_t ldo, const void *in, int64_t ldi, int64_t rows, int64_t cols))
CLV_ISA_DECLARE(void, clv_gemm_narrow,
                (clv_dtype dtype, void *out, int64_t ldo, const float *in, int64_t ldi, int64_t rows, int64_t cols))

#endif
