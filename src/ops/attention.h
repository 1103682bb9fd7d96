/* attention.h - what the ops of attention share: attributes, arguments of the kernel, cost. */
#pragma once

#include "kernels/cpu/attention_kernel.h"
#include "ops/builtin_ops.h"

typedef struct clv_attention_attrs {
    bool causal;
    double scale;
    int64_t window;
    int64_t value_dim; /* Dv, of kv [B,Sk,K,C]; 0: kv is [B,Sk,2,K,D] */
    int64_t zigzag;    /* ranks in whose zig-zag order rows of q and kv lie (tensor/zigzag.h); 0: in order */
    double dropout;
    clv_key dropout_key;
} clv_attention_attrs;

/* The dimension of kv that has the heads. */
int clv_attention_heads_dim(const clv_op *op);
clv_attention_view clv_attention_view_of_q(const clv_view *q);
/* which: 0 keys, 1 values */
clv_attention_view clv_attention_view_of_kv(const clv_op *op, const clv_view *kv, int which);
/* Sizes from local shapes, for workspaces. */
clv_attention_args clv_attention_sizes_of(const clv_op *op, const int64_t *q, const int64_t *kv, clv_dtype dtype);
/* What the kernel takes of operands. mask: index of the operand mask, which offset and step follow. */
clv_attention_args clv_attention_args_of(const clv_call *call, const clv_view *q, const clv_view *kv, int mask);
/* Flops of the forward pass. offset: index of that operand; -1: there is none. */
double clv_attention_forward_flops(const clv_op *op, const clv_type *q, const clv_type *kv, int offset);

/* Products of the gradient where forward has two: one of them recomputes the scores. */
enum { CLV_ATTENTION_GRADIENT_PRODUCTS = 5, CLV_ATTENTION_FORWARD_PRODUCTS = 2 };

/* ---- ring_attention.c: only programs have these (program/ring_attention.c) ---- */

/* Attention to one block of keys, that of some rank, added to what other blocks gave. */
typedef struct clv_ring_attention_attrs {
    clv_attention_attrs of; /* first: its functions read it */
    int64_t rows;           /* of the whole sequence */
    int64_t blocks;
} clv_ring_attention_attrs;

/* q, kv, mask?, -, step?, sum?, lse? -> sum, lse: sum is out so far, f64 for f64, else f32, and so is lse. */
extern const clv_op_def clv_op_ring_attention;
/* d_out, q, kv, out, lse, mask?, step?, dq? -> dq, dkv: dq is the sum so far, dkv that of this rank's queries. */
extern const clv_op_def clv_op_ring_attention_gradient;
enum {
    CLV_RING_Q,
    CLV_RING_KV,
    CLV_RING_MASK,
    CLV_RING_OFFSET, /* absent */
    CLV_RING_STEP,
    CLV_RING_SUM,
    CLV_RING_LSE,
    CLV_RING_IN
};
enum {
    CLV_RING_D_OUT,
    CLV_RING_GQ,
    CLV_RING_GKV,
    CLV_RING_GOUT,
    CLV_RING_GLSE,
    CLV_RING_GMASK,
    CLV_RING_GSTEP,
    CLV_RING_DQ,
    CLV_RING_GRADIENT_IN
};
