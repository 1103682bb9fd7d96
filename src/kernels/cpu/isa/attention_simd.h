/* attention_simd.h - interface of the per-instruction-set attention kernels: forward, decode, backward, bf16. */
#pragma once

#include <float.h>

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/cpu_tuning.h"
#include "kernels/cpu/isa_dispatch.h"

enum {
    CLV_ATTENTION_HEADS = 16,  /* most query heads that are decoded together */
    CLV_ATTENTION_CHUNK = 256, /* keys of a chunk when decoding */
    CLV_ATTENTION_PARTS = 4,   /* parts of the keys, which threads may share when decoding */
    CLV_ATTENTION_PAD = 16,    /* D is padded to a multiple of it; >= lanes of any instruction set */
    CLV_ATTENTION_TILE = 32,   /* the same for bf16 products (isa/attention_bf16.c) */
    CLV_ATTENTION_BLOCKS = 4,  /* most blocks of query rows that share a copy of k and v */
    CLV_ATTENTION_TILED_ROWS = 4 * CLV_ATTENTION_ROWS /* query rows that share k and v of bf16 products */
};

static inline int64_t clv_attention_pad_to_vector(int64_t n)
{
    return (n + CLV_ATTENTION_PAD - 1) / CLV_ATTENTION_PAD * CLV_ATTENTION_PAD;
}

/* D padded for bf16 products. */
static inline int64_t clv_attention_pad_to_tile(int64_t n)
{
    return (n + CLV_ATTENTION_TILE - 1) / CLV_ATTENTION_TILE * CLV_ATTENTION_TILE;
}

/* The larger of D and Dv: buffers have room for either. */
static inline int64_t clv_attention_widest(const clv_attention_args *a)
{
    return a->head_dim > clv_attention_value_dim(a) ? a->head_dim : clv_attention_value_dim(a);
}

/* How many blocks of query rows share a copy of a block of keys: as many as fit in 1 MiB of cache. */
static inline int64_t clv_attention_blocks_per_key_pass(const clv_attention_args *a)
{
    int64_t blocks = (a->q_rows + CLV_ATTENTION_ROWS - 1) / CLV_ATTENTION_ROWS;
    int64_t most = clv_attention_widest(a) <= 128 ? CLV_ATTENTION_BLOCKS : 1;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

/* The index of a local query row in the whole tensor, in the order of positions. */
static inline int64_t clv_attention_global_row(const clv_attention_args *a, int64_t row)
{
    return a->zigzag ? clv_zigzag_position(a->k_rows, a->zigzag, a->row_offset + row) : a->row_offset + row;
}

/* The row of k and v with the key of a position, and how many of the next `most` lie behind it, itself included. */
static inline int64_t clv_attention_key_row(const clv_attention_args *a, int64_t key, int64_t most, int64_t *n)
{
    const int64_t row = a->zigzag ? clv_zigzag_row(a->k_rows, a->zigzag, key) : key;
    *n = a->zigzag ? clv_zigzag_run(a->k_rows, a->zigzag, row, most) : most;
    return row;
}

static inline int64_t clv_attention_lse_index(const clv_attention_args *a, int64_t b, int64_t h, int64_t row)
{
    return (b * a->heads + h) * (a->lse_rows ? a->lse_rows : a->q_rows) + row;
}

/* The query rows from `row` on whose positions follow each other, as a call of their own; false: there is no row. */
static inline bool clv_attention_next_run(clv_attention_args *run, const clv_attention_args *a, int64_t row)
{
    const int64_t left = a->q_rows - row;
    if (left <= 0)
        return false;
    *run = *a;
    if (!a->zigzag)
        return true;
    run->q_rows = clv_zigzag_run(a->k_rows, a->zigzag, a->row_offset + row, left);
    run->lse_rows = a->lse_rows ? a->lse_rows : a->q_rows;
    run->lse = a->lse ? a->lse + row : NULL;
    run->q = clv_attention_view_from(a, a->q, row);
    run->out = clv_attention_view_from(a, a->out, row);
    run->d_out = clv_attention_view_from(a, a->d_out, row);
    run->dq = clv_attention_view_from(a, a->dq, row);
    run->row_offset += row;
    return true;
}

/* The mask from local key `key` on. */
static inline const uint8_t *clv_attention_mask_at(const clv_attention_args *a, int64_t b, int64_t key)
{
    const int64_t keys = a->global_keys ? a->global_keys : a->k_rows;
    return a->key_mask ? a->key_mask + b * keys + a->key_offset + key : NULL;
}

/* Flat index of key 0 of a query row in the whole tensor [B,H,Sq,Sk]. */
static inline uint64_t clv_attention_dropout_index(const clv_attention_args *a, int64_t b, int64_t h, int64_t row)
{
    uint64_t head = (uint64_t)(a->batch_offset + b) * (uint64_t)a->global_heads + (uint64_t)(a->head_offset + h);
    return (head * (uint64_t)a->global_rows + (uint64_t)clv_attention_global_row(a, row)) *
               (uint64_t)(a->global_keys ? a->global_keys : a->k_rows) +
           (uint64_t)a->key_offset;
}

/* The position of query row `row` of batch row b. */
static inline int64_t clv_attention_query_position(const clv_attention_args *a, int64_t b, int64_t row)
{
    return a->zigzag ? clv_attention_global_row(a, row) : a->q_offset + (a->offsets ? a->offsets[b] : 0) + row;
}

/* The first key that query rows from `row` on can see, rounded down to the start of its block. */
static inline int64_t clv_attention_first_key(const clv_attention_args *a, int64_t b, int64_t row)
{
    int64_t first = a->window ? clv_attention_query_position(a, b, row) - a->window + 1 : 0;
    return first > 0 ? first / CLV_ATTENTION_KEYS * CLV_ATTENTION_KEYS : 0;
}

/* Upper bound of the keys that local query rows before `row`, in order, of batch row b can see. */
static inline int64_t clv_attention_visible_keys(const clv_attention_args *a, int64_t b, int64_t row)
{
    const int64_t n = a->k_rows, end = a->causal ? clv_attention_query_position(a, b, row - 1) + 1 : n;
    return end < 0 ? 0 : end < n ? end : n;
}

/* The keys [result, *end) of part `part` of CLV_ATTENTION_PARTS that the query row of batch row b may see: whole
 * chunks, except the last. The last part has the most. */
static inline int64_t clv_attention_decode_split(const clv_attention_args *a, int64_t b, int64_t part, int64_t *end)
{
    int64_t first = clv_attention_first_key(a, b, 0), keys = clv_attention_visible_keys(a, b, 1);
    int64_t chunks = keys > first ? (keys - first + CLV_ATTENTION_CHUNK - 1) / CLV_ATTENTION_CHUNK : 0;
    int64_t to = first + chunks * (part + 1) / CLV_ATTENTION_PARTS * CLV_ATTENTION_CHUNK;
    *end = to < keys ? to : keys;
    return first + chunks * part / CLV_ATTENTION_PARTS * CLV_ATTENTION_CHUNK;
}

/* Floats of the intermediate result of one part, for CLV_ATTENTION_HEADS heads. */
static inline int64_t clv_attention_decode_split_floats(int64_t head_dim)
{
    return CLV_ATTENTION_HEADS * (clv_attention_pad_to_vector(head_dim) + 2);
}

/* Computes out and lse of query rows [row, end) of head h; row is a multiple of CLV_ATTENTION_ROWS. */
CLV_ISA_DECLARE(void, clv_attention_forward_rows,
                (const clv_attention_args *a, float *workspace, int64_t b, int64_t h, int64_t row, int64_t end))
/* Computes the sums of one part of the keys for heads [h, h + n), n <= CLV_ATTENTION_HEADS; q_rows is 1. */
CLV_ISA_DECLARE(void, clv_attention_decode_part,
                (const clv_attention_args *a, float *workspace, float *parts, int64_t part, int64_t b, int64_t h,
                 int64_t n))
/* Combines the parts of these heads to out and lse. */
CLV_ISA_DECLARE(void, clv_attention_decode_combine,
                (const clv_attention_args *a, float *parts, int64_t b, int64_t h, int64_t n))
/* Computes dk and dv of KV head c, and dq of the heads [h, h + n) that share it. */
CLV_ISA_DECLARE(void, clv_attention_backward_head,
                (const clv_attention_args *a, float *workspace, int64_t b, int64_t c, int64_t h, int64_t n))

#if defined(__x86_64__)
/* The same with bf16 products, if clv_attention_uses_bf16. Return false, with only the workspace written, if k or v
 * (for gradients, of a block) contain NaN or infinity that a zero would not keep out: then the functions above are
 * called. */
bool clv_attention_try_forward_bf16(const clv_attention_args *a, float *workspace, int64_t b, int64_t h, int64_t row,
                                    int64_t end);
bool clv_attention_try_backward_bf16(const clv_attention_args *a, float *workspace, int64_t b, int64_t c, int64_t h,
                                     int64_t n);

/* Scores are compared before they are scaled. */
static inline bool clv_attention_uses_bf16(const clv_attention_args *a)
{
    return clv_cpu_tuning()->attention_in_bf16 && a->dtype == CLV_BF16 && a->scale >= FLT_MIN;
}
#endif
