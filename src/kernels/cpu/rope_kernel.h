/* rope_kernel.h - rotary position embedding of queries or keys, forward and inverse.
 *
 *   angle(p, i) = p * inv_freq[i],   i < R/2
 *   (a, b) -> (a cos - b sin, b cos + a sin)
 *   half-split (GPT-NeoX, Llama):  a = x[i], b = x[i + R/2];   interleaved (GPT-J):  a = x[2i], b = x[2i + 1]
 *
 * Elements R..D of a head are copied. The backward pass is the inverse rotation of d_out.
 * Source: Su et al. 2021, arXiv:2104.09864. Numerics: angles are f64, so they are exact at far positions too
 * (f32 angles are off by 5e-4 at position 8192). Sharding: batch, rows (position_offset), heads.
 */
#pragma once

#include <stdbool.h>

#include "cleave/dtype.h"

enum { CLV_ROPE_MAX_ROTARY = 1024 };

typedef struct clv_rope_args {
    clv_dtype dtype;
    bool interleaved;        /* false: half-split                                                         */
    bool inverse;            /* true: rotates by -angle (the gradient)                                    */
    int64_t batch, seq;      /* rows: batch * seq                                                         */
    int64_t heads, head_dim; /* H, D                                                                      */
    int64_t rotary;          /* R: even, 0 <= R <= D, <= CLV_ROPE_MAX_ROTARY                              */
    int64_t x_stride;        /* elements from a row of x to the next; 0: heads * head_dim. Packed keys    */
    int64_t out_stride;      /*   and values [B,S,2,K,D]: 2 * K * D. out_stride likewise                  */
    const double *inv_freq;  /* [R/2]                                                                     */
    int64_t position_offset; /* position of row s of batch row b is position_offset + offsets[b] + s      */
    const int32_t *offsets;  /* [batch]; NULL: zeros                                                      */
} clv_rope_args;

/* x, out [batch, seq, heads, head_dim] with the given row strides; out may be x (same stride). */
void clv_rope_rotate(const clv_rope_args *rope, void *out, const void *x);

/* The same by given cosines and sines: rows of x, out [rows, 2 * pairs]; row r takes those of row `table(r)`.
 *
 *   out[a] = x[a] cos[a] - x[b] sin[a],   out[b] = x[b] cos[b] + x[a] sin[b]
 *
 * transposed, the gradient: sin[a] and sin[b] change places, and the signs. of_pairs: tables have one element a pair,
 * that of a and of b; else one for each element of x. */
typedef struct clv_rotate_args {
    clv_dtype dtype;
    bool interleaved, transposed, of_pairs;
    int rank;                   /* of x and tables                                            */
    const int64_t *shape;       /* of x                                                       */
    const int64_t *table_shape; /* a dimension but the last one is that of x, or 1: repeated  */
} clv_rotate_args;

/* cos, sin: f32, or f64 if x is f64. out may be x. */
void clv_rope_rotate_by(const clv_rotate_args *rotate, void *out, const void *x, const void *cos, const void *sin);
