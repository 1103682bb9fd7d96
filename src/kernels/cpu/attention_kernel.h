/* attention_kernel.h - flash attention (GQA, causal, sliding window, dropout), forward and backward.
 *
 *   s[i,j] = scale * sum_d q[b,i,h,d] * k[b,j,c,d]      d < D, c = (head_offset + h) / group - kv_offset
 *   s[i,j] = -inf where key j is not visible to query i
 *   lse[b,h,i] = log(sum_j exp(s[i,j]));   p[i,j] = exp(s[i,j] - lse);   out[b,i,h,:] = sum_j p[i,j] * v[b,j,c,:]
 *   v, out and their gradients have heads of Dv elements.
 *
 * With dropout, out[i] = sum_j z[i,j] * p[i,j] * v[j], where z is 1 / (1 - dropout), or 0 for the pairs whose uniform
 * random number is not below 1 - dropout. The number is that of dropout_key and the flat index of [b,h,i,j] in the
 * whole [B,H,Sq,Sk], as in dropout_kernel.h, so that backward, and other ranks, compute the same mask. lse has no
 * dropout. d_s = p * (z * (d_out . v) - rowsum(d_out * out)), d_v = sum z * p * d_out. A dropped pair multiplies v and
 * d_out by 0, and 0 * NaN is NaN.
 *
 * Key j is visible to query i if all of these hold:
 *   causal:      j <= q_offset + offsets[b] + i   (the global index of query row i; key rows are always whole)
 *   window:      j > q_offset + offsets[b] + i - window
 *   key_mask:    key_mask[b,j] != 0
 * With `zigzag`, rows of q and k lie in zig-zag order (tensor/zigzag.h): i and j in these conditions, in the mask and
 * in the indices of dropout are positions.
 * A query that sees no key has out = 0, lse = -inf, and no gradient. Hidden pairs are in no sum: NaN and infinity in
 * their q, k, v or d_out have no effect. In visible pairs they give what the formula gives (NaN for the row, if a score
 * is NaN or +inf or all are -inf; 0 * NaN and 0 * inf are NaN).
 *
 * Sources:  Dao et al. 2022, arXiv:2205.14135; Dao 2023, arXiv:2307.08691 (backward from lse and rowsum(d_out * out)).
 * dtypes:   f32; bf16 and f16 computed in f32 and rounded once at the end; f64 by the plain kernel. On CPUs that
 *           multiply bf16 faster than f32 (cpu_tuning.h), bf16 products are used for bf16: p and d_s are rounded to
 *           bf16, p of the forward pass to two bf16 numbers, and denormals count as zeros.
 * Numerics: sums of a query run over keys in blocks with fixed bounds; dk and dv are summed over heads, then query
 *           rows, in order. So bits do not depend on the number of threads, or on the other heads and batch rows (only
 *           which NaN a NaN is). They may depend on whether the call has one query row or several, and, with bf16
 *           products, on whether all visible keys are finite: if not, f32 products are used.
 * Sharding: batch, heads and query rows may be split; key rows and D may not. dk and dv are then partial sums.
 * Threads:  OpenMP over batch x heads x query blocks (forward); batch x heads, and parts of the keys if these are few
 *           (decoding); batch x KV heads (backward). A single thread shares these tasks with idle ranks, unless one
 *           takes long.
 * Traffic:  k and v are read once for each head and every four blocks of CLV_ATTENTION_ROWS queries (every block if D
 *           is over 128 or threads would be idle). Decoding (q_rows = 1) reads them once for each KV head, or twice if
 *           more than CLV_ATTENTION_HEADS heads share it.
 */
#pragma once

#include <stdbool.h>

#include "base/threads/work_stealing.h"
#include "cleave/dtype.h"
#include "cleave/rng.h"
#include "tensor/zigzag.h"

enum {
    CLV_ATTENTION_ROWS = 64,     /* query rows a block */
    CLV_ATTENTION_KEYS = 64,     /* key rows a block */
    CLV_ATTENTION_MAX_DIM = 1024 /* largest D and Dv */
};

/* Element (b, s, h, d) lies at data[b * batch_stride + s * row_stride + h * head_stride + d]; strides in elements.
 * {p, S*H*D, H*D, D} is a dense [B,S,H,D]; k inside a fused [B,S,2,K,D] is {kv, S*2*K*D, 2*K*D, D}, v is the same at
 * kv + K*D. */
typedef struct clv_attention_view {
    void *data; /* not written if it is an input */
    int64_t batch_stride, row_stride, head_stride;
} clv_attention_view;

typedef struct clv_attention_args {
    clv_attention_view q;      /* [B, Sq, H, D]                                                          */
    clv_attention_view k, v;   /* [B, Sk, K, D], [B, Sk, K, Dv]                                          */
    clv_attention_view out;    /* [B, Sq, H, Dv] forward: written; backward: read                        */
    float *lse;                /* [B, H, Sq] dense; forward: written (NULL to discard); backward: read   */
    clv_attention_view d_out;  /* [B, Sq, H, Dv] backward only: read                                     */
    clv_attention_view dq;     /* [B, Sq, H, D] backward only: written                                   */
    clv_attention_view dk, dv; /* like k, v: backward only: written, zero for heads that no query reads  */
    const uint8_t *key_mask;   /* [B, Sk] 1 = attend; NULL: all                                          */
    int64_t batch;             /* B  >= 0                                                                */
    int64_t q_rows, k_rows;    /* Sq, Sk >= 0                                                            */
    int64_t heads, kv_heads;   /* H, K >= 0: local heads                                            */
    int64_t head_dim;          /* D  1..CLV_ATTENTION_MAX_DIM                                            */
    int64_t value_dim;         /* Dv 1..CLV_ATTENTION_MAX_DIM; 0: D                                      */
    int64_t group;             /* query heads a KV head, >= 1                                            */
    int64_t head_offset;       /* global index of local query head 0 */
    int64_t kv_offset;         /* global index of local KV head 0 */
    int64_t q_offset;          /* global index of query row 0; used when causal, and with a window       */
    const int32_t *offsets;    /* [B] added to q_offset; NULL: zeros                                     */
    int64_t window;            /* >= 0: keys that a query sees, up to its own position; 0: all */
    bool causal;
    double dropout;       /* dropout probability, in [0, 1); 0: the fields up to global_rows are not used */
    clv_key dropout_key;  /* random key of the training step */
    int64_t batch_offset; /* global index of batch row 0                                             */
    int64_t row_offset;   /* global index of query row 0 in q (q_offset is its position among the keys) */
    int64_t global_heads, global_rows; /* H and Sq of the whole tensor */
    int64_t zigzag;      /* ranks in whose zig-zag order the Sk rows of k lie, and those of q, of which row 0 is
                         row_offset; q_offset and offsets are not used; 0: rows lie in order */
    int64_t lse_rows;    /* Sq of the tensor that lse points into; 0: q_rows */
    int64_t global_keys; /* Sk of the sequence, of whose keys k has those from key_offset on, of key_mask and of the
                            indices of dropout; q_offset is then from key_offset on; 0: k_rows */
    int64_t key_offset;
    double *exact_lse; /* of the reference: like lse, in f64; backward, with `out`, instead of what it computes from
                          all keys; NULL: none */
    double scale;      /* usually 1/sqrt(D); f32 where the dtype is computed in f32               */
    clv_dtype dtype;   /* of everything but lse                                                  */
    int threads;       /* OpenMP threads to use, >= 1; 0 is 1                                    */
    clv_task_pool_member work; /* lets idle ranks take part, if there is one thread */
    int workspace_slots;       /* threads, or ranks, that share the workspace; 0: as many as threads */
    void *workspace;           /* bytes as below, aligned to 64                                          */
} clv_attention_args;

/* Dv. */
static inline int64_t clv_attention_value_dim(const clv_attention_args *a)
{
    return a->value_dim ? a->value_dim : a->head_dim;
}

/* The view from a row on; of no data that. */
static inline clv_attention_view clv_attention_view_from(const clv_attention_args *a, clv_attention_view view,
                                                         int64_t row)
{
    if (view.data)
        view.data = (char *)view.data + (size_t)(row * view.row_stride) * clv_dtype_size(a->dtype);
    return view;
}

/* Bytes of workspace, from sizes, dtype, threads and workspace_slots alone. Per slot about 2 * Sk * D floats backward;
 * for bf16 Sk * D floats forward and 3.5 * Sk * D backward; for f64 2 * B * H * Sq doubles in all. */
size_t clv_attention_forward_workspace(const clv_attention_args *args);
size_t clv_attention_backward_workspace(const clv_attention_args *args);

/* @return CLV_OK; CLV_EUNSUPPORTED for integer dtypes; CLV_EINVAL for sizes out of range, heads whose KV head is not
 *         local, or a missing workspace. */
clv_status clv_attention_forward(const clv_attention_args *args, clv_error *err);
clv_status clv_attention_backward(const clv_attention_args *args, clv_error *err);

/* The same in plain loops and f64 arithmetic for every float dtype: computes f64, and is the oracle of tests. No
 * checks. Backward needs the workspace, but neither out nor lse. */
void clv_attention_forward_reference(const clv_attention_args *args);
void clv_attention_backward_reference(const clv_attention_args *args);
size_t clv_attention_reference_workspace(const clv_attention_args *args);
