/* op.h - internals of ops: struct clv_op, sharding rules (factors) and traits of the library's own ops.
 *
 * A file of src/ops defines one or more clv_op_def (result types, sharding rule, gradient, cost, kernel), declared in
 * src/ops/builtin_ops.h and listed in src/ops/op_registry.c.
 */
#pragma once

#include "base/threads/work_stealing.h"
#include "cleave/op.h"
#include "tensor/parse_print.h"

struct clv_op {
    int id;
    const clv_op_def *def;
    const void *attrs; /* def->attrs_size bytes */
    const char *name;  /* scope and op name: "layers.3.mlp.einsum" */
    bool backward;     /* made by clv_gradients */
    bool update;       /* part of the update of parameters, or of the norm of gradients */
    int gradient_of;   /* the op whose gradient it is part of; -1: none */
    int block;         /* number of its block (clv_begin_block), from 1; 0: none */
    int microbatch;    /* of gradient accumulation, from 1; 0: none */
    int stage;         /* 1 + its pipeline stage (clv_graph_set_stage); 0: none is stated */
    int n_in, n_out;
    int in[CLV_MAX_IN];   /* value ids; 0: an absent optional operand */
    int out[CLV_MAX_OUT]; /* value ids */
};

/* ---- sharding rule ---- */

typedef struct clv_factor {
    const char *name;  /* "query groups"; NULL: the name of its dimensions */
    const char *order; /* of its indices, for explanations: "zig-zag"; NULL: ascending */
    int64_t size;
    clv_reduction reduction; /* how results without the factor combine; NONE: every result has it */
    bool whole;              /* must not be split */
    bool or_single; /* of a whole one: but into single elements, which ranks exchange (clv_op_traits.permutes) */
    int overflow;   /* the factor that takes the remainder of the blocks (clv_rule_replicate_remainder); -1 */
} clv_factor;

/* The factors of one dimension, major to minor; n = 0: never sharded. */
typedef struct clv_dim_factors {
    int8_t n;
    int8_t factor[CLV_MAX_RANK];
} clv_dim_factors;

/* Partial sums as operands, over an axis that splits no factor of the op. */
typedef enum clv_linearity {
    CLV_NOT_LINEAR,  /* partial operands are reduced first */
    CLV_MULTILINEAR, /* one operand of `linear` is partial, the others whole: results are partial */
    CLV_ADDITIVE     /* all operands of `linear` are partial, or masked to coordinate 0: results are partial */
} clv_linearity;

struct clv_rule {
    int n_factors;
    clv_factor factor[CLV_MAX_FACTORS];
    clv_dim_factors in[CLV_MAX_IN][CLV_MAX_RANK];
    clv_dim_factors out[CLV_MAX_OUT][CLV_MAX_RANK];
    clv_linearity linearity;
    uint32_t linear;  /* bit i: operand i */
    bool passes_max;  /* partial maxima (of all operands, over the same axes) give partial maxima */
    clv_error *fault; /* out: the first invalid call that built it; may be NULL */
};

/* Builds the op's rule and verifies it: arguments in range, sizes of dimensions are products of their factors', each
 * factor at most once in a tensor. */
clv_status clv_rule_check(const clv_op *op, const clv_type *in, const clv_type *out, clv_error *err);
/* Verifies the op's cost on tensors or shards of these types; *cost: the cost; may be NULL. */
clv_status clv_op_cost_check(clv_op_cost *cost, const clv_op *op, const clv_type *in, const clv_type *out,
                             clv_error *err);

/* ---- attributes ---- */

/* Bytes of one value of a kind; 0 for an invalid kind. */
size_t clv_attr_size(clv_attr_kind kind);

/* Parses what clv_op_print_attrs prints into def->attrs_size zeroed bytes; layouts are those of tensors of `rank`. */
clv_status clv_op_parse_attrs(void *attrs, const clv_op_def *def, clv_scanner *scan, const clv_mesh *mesh, int rank,
                              clv_error *err);

/* A layout in braces, as graphs and programs are printed. */
clv_status clv_scan_layout(clv_layout *out, clv_scanner *scan, const clv_mesh *mesh, int rank, clv_error *err);

/* ---- running ---- */

size_t clv_view_byte_size(const clv_view *view);

/* ---- traits: properties of built-in ops that the compiler uses ---- */

/* Rows of which an op needs, on a rank, only those that chose one of the rank's experts: operand `ids` i32 [..., K] has
 * the choices, dimension 0 of operand `experts` is that of the experts. */
typedef struct clv_expert_rows {
    int ids, experts;
    uint32_t in, out;          /* bits of the operands and results [..., M] that have the rows */
    void (*pack)(void *attrs); /* sets that they are packed, [1, room, M] on a rank: the needed rows alone, in order */
} clv_expert_rows;

typedef struct clv_op_traits {
    /* The layout that a constraint states. Such an op is lowered to a reshard and never run; NULL: no constraint. */
    const clv_layout *(*constraint)(const clv_op *op);
    /* Whether the op is the sum of its two operands; NULL: never. */
    bool (*is_sum)(const clv_op *op);
    /* The gradient of a constraint: reshards a cotangent to its primal's layout, where partial and replicated are dual.
     * So the conjugate of an all_gather is a reduce_scatter, of an all_reduce the identity (Megatron's f, f*, g, g*).
     */
    bool follows_primal;
    /* Each row of a result depends only on the same rows of the operands, by the same operations at any position and
     * for any number of rows: the kernel ignores clv_view.lo and needs no alignment. Then rows may be split into
     * chunks. */
    bool is_rowwise;
    /* Fraction of its flops that recomputes results of another op. */
    double recomputed_flops;
    /* The matmul of its first two operands, [m, k] by [k, n], with or without a batch. */
    bool is_product;
    /* The op whose measured rates it has; NULL: its own. */
    const char *rates_of;
    /* Results may be f32 for operands of 16 bits: the kernel goes by the dtypes of the views. */
    bool accepts_f32_results;
    /* f32 results for operands of 16 bits are no more exact than these: sums inside are rounded to the operands' dtype.
     * */
    bool rounds_inside;
    /* Precomputation from attributes and shapes: `precompute` fills precomputed_bytes once for a rank's shards, and
     * run_precomputed replaces `run` for calls with these shards. 0: none. */
    size_t precomputed_bytes;
    void (*precompute)(void *precomputed, const clv_op *op, const clv_view *in, const clv_view *out);
    clv_status (*run_precomputed)(const void *precomputed, const clv_call *call, clv_error *err);
    /* It is linear in its first operand, whose gradient accepts a cotangent of any dtype. */
    bool passes_cotangent;
    /* 1 + the optional operand to which its only result is added (as beta = 1 in a GEMM); 0: none. */
    int accumulate_operand;
    const clv_expert_rows *expert_rows; /* NULL: it has none */
    /* It has clv_permute_attrs, and is lowered to a permute between ranks where these have single elements. */
    bool permutes;
} clv_op_traits;

/* The traits of an op; all zeros for a custom op. */
static inline const clv_op_traits *clv_op_traits_of(const clv_op *op)
{
    static const clv_op_traits none = {0};
    return op->def->traits ? op->def->traits : &none;
}
static inline const clv_layout *clv_op_constraint_of(const clv_op *op)
{
    return clv_op_traits_of(op)->constraint ? clv_op_traits_of(op)->constraint(op) : NULL;
}
/* A constraint or the gradient of one: its result is its operand in another layout. */
static inline bool clv_op_is_constraint(const clv_op *op)
{
    return clv_op_constraint_of(op) || clv_op_traits_of(op)->follows_primal;
}
static inline bool clv_op_is_sum(const clv_op *op)
{
    return clv_op_traits_of(op)->is_sum && clv_op_traits_of(op)->is_sum(op);
}
/* The absent operand that the result could be added to; -1: none. */
static inline int clv_op_accumulate_operand(const clv_op *op)
{
    int to = clv_op_traits_of(op)->accumulate_operand - 1;
    return to >= 0 && op->n_in <= to ? to : -1;
}

/* The work-stealing pool of the rank that runs the call; without one, no pool. */
clv_task_pool_member clv_call_task_pool_member(const clv_call *call);

/* A clv_op_def.rule of ops that sum a tensor to a scalar. */
void clv_op_rule_reduce_all(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule);
