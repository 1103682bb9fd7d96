/* convert_rows.c - converts rows of bf16 and f16 to f32 and back. */
#include "kernels/cpu/isa/convert_rows.h"

#include "kernels/cpu/isa/load_store_rows.h"

void CLV_ISA_NAME(clv_gemm_widen)(clv_dtype dtype, float *out, int64_t ldo, const void *in, int64_t ldi, int64_t rows,
                                  int64_t cols)
{
    rows_load(dtype, out, ldo, in, ldi, rows, cols, 1.0f);
}

void CLV_ISA_NAME(clv_gemm_narrow)(clv_dtype dtype, void *out, int64_t ldo, const float *in, int64_t ldi, int64_t rows,
                                   int64_t cols)
{
    rows_store(dtype, out, ldo, in, ldi, rows, cols, 1.0f);
}
