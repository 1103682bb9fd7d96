/* op.h - internals of ops: struct clv_op, sharding rules (factors) and traits of the library's own ops.
 *
 * An op file (src/ops) defines one or more clv_op_def, declared in src/ops/builtin_ops.h and listed in
 * src/ops/op_registry.c. An op is described whole: result types, sharding rule by factors, gradient on the graph, cost,
 * and its kernel.
 */
#ifndef CLEAVE_GRAPH_OP_H
#define CLEAVE_GRAPH_OP_H

#include "base/threads/work_stealing.h"
#include "cleave/op.h"
#include "tensor/parse_print.h"

/* in[i] == 0: an optional operand that is absent. */
struct clv_op {
    int id;
    const clv_op_def *def;
    const void *attrs; /* def->attrs_size bytes */
    const char *name;  /* scope and op name: "layers.3.mlp.einsum" */
    bool backward;     /* made by clv_gradients */
    bool update;       /* of what becomes of gradients: their norm, the update of parameters */
    int gradient_of;   /* the op whose gradient it is part of; -1 */
    int block;         /* from 1 on, in the order that they were begun; 0: of none */
    int n_in, n_out;
    int in[CLV_MAX_IN];   /* value ids */
    int out[CLV_MAX_OUT]; /* value ids */
};

/* ---- sharding rule ---- */

typedef struct clv_factor {
    const char *name; /* what the op calls it: "query groups"; NULL: as its dimensions are called */
    int64_t size;
    clv_reduction reduction; /* how results without the factor combine; NONE: every result holds it */
    bool whole;              /* must not be split */
    int overflow; /* -1, or the factor that takes the blocks beyond `size` (query groups behind KV heads): with
                                T blocks > size and overflow's size > 1, gcd(T, size) blocks cut this factor and the
                                rest cuts the overflow factor, as the remainder of the dimensions that hold both */
} clv_factor;

/* The factors of one dimension, major to minor; n = 0: never split (size 1, or must be whole). */
typedef struct clv_dim_factors {
    int8_t n;
    int8_t factor[CLV_MAX_RANK];
} clv_dim_factors;

/* How partial operands pass: over an axis that splits no factor of the op. */
typedef enum clv_linearity {
    CLV_NOT_LINEAR,  /* partial operands are reduced first */
    CLV_MULTILINEAR, /* one operand of `linear` may be sum-partial, the others whole over that axis: results partial */
    CLV_ADDITIVE     /* all operands of `linear` are sum-partial, or masked to coordinate 0: results are partial */
} clv_linearity;

struct clv_rule {
    int n_factors;
    clv_factor factor[CLV_MAX_FACTORS];
    clv_dim_factors in[CLV_MAX_IN][CLV_MAX_RANK];
    clv_dim_factors out[CLV_MAX_OUT][CLV_MAX_RANK];
    clv_linearity linearity;
    uint32_t linear;  /* bit i: operand i */
    bool passes_max;  /* max-partial operands (all of them, over the same axes) give max-partial results */
    clv_error *fault; /* what was wrong with the calls that built it; NULL: nobody asks */
};

/* Builds the op's rule and verifies it: calls within their ranges, sizes of dimensions the products of their factors',
 * each factor once a tensor. */
clv_status clv_rule_check(const clv_op *op, const clv_type *in, const clv_type *out, clv_error *err);
/* Verifies what the op says that it costs on tensors, or shards, of these types; *cost, if given, is that. */
clv_status clv_op_cost_check(clv_op_cost *cost, const clv_op *op, const clv_type *in, const clv_type *out,
                             clv_error *err);

/* ---- attributes ---- */

/* Bytes of one value of a kind; 0: there is no such kind. */
size_t clv_attr_size(clv_attr_kind kind);

/* Parses what clv_op_print_attrs prints into def->attrs_size zeroed bytes; layouts are those of tensors of `rank`. */
clv_status clv_op_parse_attrs(void *attrs, const clv_op_def *def, clv_scanner *scan, const clv_mesh *mesh, int rank,
                              clv_error *err);

/* A layout in braces, as graphs and programs are printed. */
clv_status clv_scan_layout(clv_layout *out, clv_scanner *scan, const clv_mesh *mesh, int rank, clv_error *err);

/* ---- running ---- */

size_t clv_view_byte_size(const clv_view *view);

/* ---- what only ops of the library are ---- */

typedef struct clv_op_traits {
    /* The layout a constraint states, from its attrs. Such an op is emitted as a reshard and never run; NULL: none. */
    const clv_layout *(*constraint)(const clv_op *op);
    /* Whether the op is the sum of its two operands; NULL: never. */
    bool (*is_sum)(const clv_op *op);
    /* The gradient of a constraint: brings a cotangent to its primal's layout, where partial and replicated are dual.
     * So the conjugate of an all_gather is a reduce_scatter, of an all_reduce the identity (Megatron's f, f*, g, g*).
     */
    bool follows_primal;
    /* Each row of a result is made of the operands' rows alone, by the same operations wherever it lies and however
     * many there are: the kernel looks at no clv_view.lo, and takes views that are aligned as elements are. Then rows
     * may be made in parts. */
    bool is_rowwise;
    /* Of its flops, the share that makes again what another op made and did not keep. */
    double recomputed_flops;
    /* The product of its first two operands, [m, k] by [k, n], once or batch times over. */
    bool is_product;
    /* The op by whose measured rates it is priced; NULL: its own. */
    const char *rates_of;
    /* Its results may be f32 where operands are of 16 bits: the kernel goes by the dtypes of the views. */
    bool accepts_f32_results;
    /* What the kernel derives from attributes and shapes alone: plan_bytes that `plan` fills for a rank's shards, once,
     * and with which run_plan runs calls of such shards, in place of run. plan_bytes is 0: nothing. */
    size_t plan_bytes;
    void (*plan)(void *plan, const clv_op *op, const clv_view *in, const clv_view *out);
    clv_status (*run_plan)(const void *plan, const clv_call *call, clv_error *err);
    /* Where it is linear in its first operand, the gradient of that is made of the cotangent, in whatever dtype that
     * comes. */
    bool passes_cotangent;
    /* 1 + the optional operand to which its only result is added, where that is given: so a sum needs no pass of its
     * own. 0: none. */
    int accumulate_operand;
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

/* Where the rank that runs the call shares work; no pool where nobody takes part. */
clv_task_pool_member clv_call_thread_pool(const clv_call *call);

/* A clv_op_def.rule of ops that make one number of a tensor: every dimension is summed. */
void clv_rule_reduce_all(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule);

#endif
