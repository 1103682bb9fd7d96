/* op.h - what an op is: the one contract between the graph, the ops, the partitioner and the runtime.
 *
 * An op file (src/ops) defines one or more clv_op_def, declared in src/ops/ops.h and listed in src/ops/table.c. An op is described whole:
 * result types, sharding rule by factors, gradient on the graph, cost, and its kernel on each device.
 */
#ifndef CLEAVE_GRAPH_OP_H
#define CLEAVE_GRAPH_OP_H

#include "cleave/graph.h"

enum {
    CLV_MAX_IN = 8,      /* operands an op */
    CLV_MAX_OUT = 4,     /* results an op */
    CLV_MAX_FACTORS = 16 /* factors a rule */
};

typedef struct clv_op_def clv_op_def;

/* What state is for: how plans of memory sort it. */
typedef enum clv_state_role { CLV_ROLE_OTHER, CLV_ROLE_PARAMETER, CLV_ROLE_OPTIMIZER, CLV_ROLE_CACHE } clv_state_role;

/* An op of a graph. in[i] == 0: an optional operand that is absent. */
typedef struct clv_op {
    int id;
    const clv_op_def *def;
    const void *attrs; /* def->attrs_size bytes */
    const char *name;  /* scope and op name: "layers.3.mlp.einsum" */
    bool backward;     /* made by clv_gradients */
    int gradient_of;   /* the op whose gradient it is part of; -1 */
    int n_in, n_out;
    int in[CLV_MAX_IN];   /* value ids */
    int out[CLV_MAX_OUT]; /* value ids */
} clv_op;

/* ---- sharding rule ---- */

/* A factor: an index that dimensions of operands and results share. Splitting it over an axis splits every dimension
 * that holds it; a result that does not hold it becomes partial (`reduction`), which must then not be NONE. */
typedef struct clv_factor {
    const char *name; /* what the op calls it: "query groups"; NULL: as its dimensions are called */
    int64_t size;
    clv_reduction reduction; /* how results without the factor combine; NONE: every result holds it */
    bool whole;              /* must not be split */
    int spill; /* -1, or the factor that takes the blocks beyond `size` (query groups behind KV heads): with
                                T blocks > size and spill's size > 1, gcd(T, size) blocks cut this factor and the rest
                                cuts the spill factor, as the remainder of the dimensions that hold both */
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

typedef struct clv_rule {
    int n_factors;
    clv_factor factor[CLV_MAX_FACTORS];
    clv_dim_factors in[CLV_MAX_IN][CLV_MAX_RANK];
    clv_dim_factors out[CLV_MAX_OUT][CLV_MAX_RANK];
    clv_linearity linearity;
    uint32_t linear; /* bit i: operand i */
    bool passes_max; /* max-partial operands (all of them, over the same axes) give max-partial results */
} clv_rule;

/* Building a rule (which arrives zeroed): adds a factor, returns its index. */
int clv_rule_add(clv_rule *rule, int64_t size, clv_reduction reduction);
/* Says that dimension d of operand / result i is (also, more minor than what it has) the factor. */
void clv_rule_in(clv_rule *rule, int i, int d, int factor);
void clv_rule_out(clv_rule *rule, int i, int d, int factor);
/* The rule of an elementwise op with NumPy broadcasting: one factor a result dimension; operands align to the right,
 * their dimensions of size 1 against larger ones hold no factor. Serves every result of result 0's shape. */
void clv_rule_elementwise(clv_rule *rule, const clv_op *op, const clv_type *in, const clv_type *out);

/* ---- running ---- */

typedef enum clv_device { CLV_CPU, CLV_DEVICE_COUNT } clv_device;

/* A rank's part of a tensor: contiguous, row-major, `shape` elements from global index lo on. data == NULL: an absent
 * optional operand. Any extent of shape may be 0. */
typedef struct clv_view {
    void *data;
    clv_dtype dtype;
    int rank;
    int64_t shape[CLV_MAX_RANK];  /* local */
    int64_t lo[CLV_MAX_RANK];     /* first global index */
    int64_t global[CLV_MAX_RANK]; /* whole shape */
} clv_view;

typedef struct clv_call {
    const clv_op *op;
    const clv_view *in;  /* [op->n_in] */
    const clv_view *out; /* [op->n_out]; may share a buffer with an operand as in_place says */
    void *workspace;     /* def->workspace bytes, 64-byte aligned; of no use to an op that asks for none */
} clv_call;

int64_t clv_view_elems(const clv_view *view);
size_t clv_view_bytes(const clv_view *view);

/* What an op costs on one rank, given local shapes. */
typedef struct clv_op_cost {
    double flops;
    double bytes; /* memory traffic */
} clv_op_cost;

/* An attribute, for the text form, comparison and memo keys. Attrs structs are zeroed before they are filled. */
typedef enum clv_attr_kind {
    CLV_ATTR_INT,    /* int */
    CLV_ATTR_INT64,  /* int64_t */
    CLV_ATTR_DOUBLE, /* double */
    CLV_ATTR_BOOL,   /* bool */
    CLV_ATTR_TEXT,   /* char[count] */
    CLV_ATTR_KEY,    /* clv_key */
    CLV_ATTR_DTYPE,  /* clv_dtype */
    CLV_ATTR_LAYOUT  /* clv_layout */
} clv_attr_kind;

typedef struct clv_attr {
    const char *name;
    clv_attr_kind kind;
    size_t offset;
    int count; /* array length, 0 and 1: one; TEXT: bytes of the char array */
} clv_attr;

struct clv_op_def {
    const char *name;
    int min_in, max_in, n_out;
    size_t attrs_size;
    const clv_attr *attrs; /* ended by a NULL name; NULL: none */
    /* Types of the results; refuses operands that do not fit, naming shapes. in[i] is zeroed where op->in[i] == 0. */
    clv_status (*shape)(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err);
    void (*rule)(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule);
    /* Cotangents of the operands from those of the results (CLV_NONE: none flows). d_in arrives as CLV_NONE; left so
     * where the op does not depend differentiably on an operand. NULL: not differentiable: a cotangent that reaches
     * such an op is an error. Operands' and results' values: clv_op_in, clv_op_out. */
    void (*gradient)(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in);
    /* NULL: no flops, every operand and result moved once. */
    clv_op_cost (*cost)(const clv_op *op, const clv_type *in, const clv_type *out);
    /* Bytes of workspace for views of these shapes (data is NULL); NULL: none. Planned once, for the largest shards, and
     * used by every rank: it must not fall when a local extent grows, from 0 on. So whether something is needed at all is
     * decided from whole shapes (`global`) and attributes, and only how much of it from local ones. */
    size_t (*workspace)(const clv_op *op, const clv_view *in, const clv_view *out);
    int8_t in_place[CLV_MAX_OUT]; /* 1 + the operand whose buffer result i may take over; 0: none */
    clv_status (*run[CLV_DEVICE_COUNT])(const clv_call *call, clv_error *err);
    uint32_t may_be_lowest; /* bit i: result i is minus infinity where there is nothing (a row that sees no key) */
    /* The layout a constraint states, from its attrs. Such an op is emitted as a reshard and never run; NULL: none. */
    const clv_layout *(*constraint)(const clv_op *op);
    /* Whether the op is the sum of its two operands; NULL: never. */
    bool (*is_sum)(const clv_op *op);
    /* The gradient of a constraint: brings a cotangent to its primal's layout, where partial and replicated are dual. So
     * the conjugate of an all_gather is a reduce_scatter, of an all_reduce the identity (Megatron's f, f*, g, g*). */
    bool follows_primal;
};

/* The op table (src/ops/table.c): all defs, ended by NULL; and one by name (NULL: none). */
extern const clv_op_def *const clv_op_table[];
const clv_op_def *clv_op_find(const char *name);

#endif
