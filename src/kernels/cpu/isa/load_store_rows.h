/* load_store_rows.h - loads and stores of f32, bf16 and f16 elements as vectors of f32, and block copies. */
#pragma once

#include "kernels/cpu/isa/simd.h"

/* Bytes of an element; a constant, where dtype is one. */
CLV_INLINE size_t vf_element_size(clv_dtype dtype)
{
    return dtype == CLV_F32 ? 4 : 2;
}

CLV_INLINE vf vf_load_dtype(clv_dtype dtype, const void *p)
{
    if (dtype == CLV_F32)
        return vf_load(p);
    return dtype == CLV_BF16 ? vf_load_bf16(p) : vf_load_f16(p);
}

CLV_INLINE void vf_store_dtype(clv_dtype dtype, void *p, vf x)
{
    if (dtype == CLV_F32)
        vf_store(p, x);
    else if (dtype == CLV_BF16)
        vf_store_bf16(p, x);
    else
        vf_store_f16(p, x);
}

/* n < VF_LANES elements; the other lanes are 0. */
CLV_INLINE vf vf_load_part(clv_dtype dtype, const void *p, int64_t n)
{
#if defined(__AVX512F__)
    __mmask16 mask = (__mmask16)((1u << n) - 1);
    if (dtype == CLV_F32)
        return _mm512_maskz_loadu_ps(mask, p);
    __m256i half = _mm256_maskz_loadu_epi16(mask, p);
    return dtype == CLV_BF16 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))
                             : _mm512_cvtph_ps(half);
#else
    float whole[VF_LANES] = {0};
    memcpy(whole, p, (size_t)n * vf_element_size(dtype));
    return vf_load_dtype(dtype, whole);
#endif
}

CLV_INLINE void vf_store_part(clv_dtype dtype, void *p, vf x, int64_t n)
{
#if defined(__AVX512F__)
    if (dtype == CLV_F32) {
        _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
        return;
    }
#endif
    float whole[VF_LANES];
    vf_store_dtype(dtype, whole, x);
    memcpy(p, whole, (size_t)n * vf_element_size(dtype));
}

CLV_INLINE void rows_load_as(clv_dtype dtype, float *out, int64_t ldo, const void *in, int64_t ldi, int64_t rows,
                             int64_t cols, float scale)
{
    size_t size = vf_element_size(dtype);
    vf by = vf_set1(scale);
    for (int64_t i = 0; i < rows; i++) {
        const char *row = (const char *)in + (size_t)(i * ldi) * size;
        int64_t j = 0;
        for (; cols - j >= VF_LANES; j += VF_LANES)
            vf_store(out + i * ldo + j, vf_mul(by, vf_load_dtype(dtype, row + (size_t)j * size)));
        if (j < cols)
            vf_store_part(CLV_F32, out + i * ldo + j, vf_mul(by, vf_load_part(dtype, row + (size_t)j * size, cols - j)),
                          cols - j);
    }
}

CLV_INLINE void rows_store_as(clv_dtype dtype, void *out, int64_t ldo, const float *in, int64_t ldi, int64_t rows,
                              int64_t cols, float scale)
{
    size_t size = vf_element_size(dtype);
    vf by = vf_set1(scale);
    for (int64_t i = 0; i < rows; i++) {
        char *row = (char *)out + (size_t)(i * ldo) * size;
        int64_t j = 0;
        for (; dtype == CLV_BF16 && cols - j >= 2 * VF_LANES; j += 2 * VF_LANES)
            vf_store_bf16_two((uint16_t *)(void *)row + j, vf_mul(by, vf_load(in + i * ldi + j)),
                              vf_mul(by, vf_load(in + i * ldi + j + VF_LANES)));
        for (; cols - j >= VF_LANES; j += VF_LANES)
            vf_store_dtype(dtype, row + (size_t)j * size, vf_mul(by, vf_load(in + i * ldi + j)));
        if (j < cols) {
            vf tail = vf_load_part(CLV_F32, in + i * ldi + j, cols - j);
            vf_store_part(dtype, row + (size_t)j * size, vf_mul(by, tail), cols - j);
        }
    }
}

/* out[i,j] = scale * in[i,j], f32 [rows, cols], from elements of f32, bf16 or f16. ldo, ldi: elements between rows. */
static inline __attribute__((unused)) void rows_load(clv_dtype dtype, float *out, int64_t ldo, const void *in,
                                                     int64_t ldi, int64_t rows, int64_t cols, float scale)
{
    if (dtype == CLV_F32)
        rows_load_as(CLV_F32, out, ldo, in, ldi, rows, cols, scale);
    else if (dtype == CLV_BF16)
        rows_load_as(CLV_BF16, out, ldo, in, ldi, rows, cols, scale);
    else
        rows_load_as(CLV_F16, out, ldo, in, ldi, rows, cols, scale);
}

/* The other way, rounded to nearest even. */
static inline __attribute__((unused)) void rows_store(clv_dtype dtype, void *out, int64_t ldo, const float *in,
                                                      int64_t ldi, int64_t rows, int64_t cols, float scale)
{
    if (dtype == CLV_F32)
        rows_store_as(CLV_F32, out, ldo, in, ldi, rows, cols, scale);
    else if (dtype == CLV_BF16)
        rows_store_as(CLV_BF16, out, ldo, in, ldi, rows, cols, scale);
    else
        rows_store_as(CLV_F16, out, ldo, in, ldi, rows, cols, scale);
}

/* out [cols, rows] = in [rows, cols] transposed; rows are a multiple of VF_LANES, columns of 4. */
static inline __attribute__((unused)) void rows_transpose(float *out, int64_t ldo, const float *in, int64_t ldi,
                                                          int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i += VF_LANES) {
        const float *line[VF_LANES];
        for (int l = 0; l < VF_LANES; l++)
            line[l] = in + (i + l) * ldi;
        for (int64_t j = 0; j < cols; j += 4) {
            vf x[4];
            CLV_UNROLL for (int q = 0; q < 4; q++) x[q] = vf_load_quads(line + q, j);
            vf_transpose_quads(x);
            CLV_UNROLL for (int q = 0; q < 4; q++) vf_store(out + (j + q) * ldo + i, x[q]);
        }
    }
}
