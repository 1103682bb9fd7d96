/** @file op.h - ops of one's own: what an op is, and how one that the library does not know gets into a graph.
 *
 * An op is described whole by a clv_op_def: the types of its results, how it may be split (its rule), its gradient,
 * what it costs, and its kernel. clv_emit puts it into a graph; from there on it is an op like any other: the
 * partitioner splits it as its rule allows, sessions run and check it, gradients pass through it, programs, reports
 * and messages call it by its name.
 *
 * **A sketch**: y = max(x, 0)^2 * s, with s one number.
 *
 *     typedef struct scale_attrs { double s; } scale_attrs;
 *     static const clv_attr attrs[] = {{"s", CLV_ATTR_DOUBLE, offsetof(scale_attrs, s), 1}, {0}};
 *
 *     static clv_status shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
 *     {
 *         if (in[0].dtype != CLV_F32)
 *             return clv_fail(err, CLV_EDTYPE, "x is %s; f32 is needed", clv_dtype_name(in[0].dtype));
 *         out[0] = in[0];
 *         return CLV_OK;
 *     }
 *     static void rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *r)
 *     {
 *         for (int d = 0; d < in[0].rank; d++) {
 *             int factor = clv_rule_add_factor(r, in[0].shape[d], CLV_REDUCTION_NONE); // an index that x and y share,
 *             clv_rule_operand_dim(r, 0, d, factor);                                  // so both are split alike
 *             clv_rule_result_dim(r, 0, d, factor);
 *         } // nothing is said of addends: max(x, 0)^2 of a sum is another, so x is summed first
 *     }
 *     static clv_status run(const clv_call *call, clv_error *err)
 *     {
 *         const scale_attrs *a = clv_op_attrs(call->op);
 *         const float *x = call->in[0].data;
 *         float *y = call->out[0].data;
 *         for (int64_t i = 0; i < clv_view_elems(&call->out[0]); i++) // this rank's part alone
 *             y[i] = x[i] > 0 ? (float)(a->s * x[i] * x[i]) : 0;
 *         return CLV_OK;
 *     }
 *     static void gradient(clv_graph *g, const clv_op *op, const clv_value *d_out, clv_value *d_in)
 *     {
 *         const scale_attrs *a = clv_op_attrs(op);
 *         clv_value slope = clv_scale(g, clv_unary(g, CLV_RELU, clv_op_operand(op, 0)), 2 * a->s);
 *         d_in[0] = clv_mul(g, d_out[0], slope); // of the library's ops, or of another op of one's own
 *     }
 *     static const clv_op_def squared_relu = {
 *         .size = sizeof(clv_op_def), .name = "squared_relu", .min_in = 1, .max_in = 1, .n_out = 1,
 *         .attrs_size = sizeof(scale_attrs), .attrs = attrs,
 *         .shape = shape, .rule = rule, .gradient = gradient, .run = run};
 *
 *     clv_value y;
 *     clv_emit(graph, &squared_relu, &(scale_attrs){.s = 0.5}, &x, 1, &y);
 *
 * **Versions.** A program built against this header runs with later versions of the library. clv_op_def begins with
 * its size and may grow at its end: what an older program does not have reads as zero. clv_call may grow at its end:
 * only the library makes one. clv_op and clv_rule are opaque. clv_view, clv_attr, clv_op_cost, clv_type and clv_value
 * never change.
 *
 * **Threads.** The registry may be used by any thread at any time. The functions of a def are called on the thread
 * that builds or compiles the graph, but `run`: on each rank's own thread, on several at once. They must not keep
 * anything between calls.
 */
#ifndef CLEAVE_OP_H
#define CLEAVE_OP_H

#include "cleave/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CLV_MAX_IN = 8,       /**< operands an op */
    CLV_MAX_OUT = 4,      /**< results an op */
    CLV_MAX_FACTORS = 16, /**< factors a rule */
    CLV_OP_NAME = 64      /**< bytes that hold any op's name */
};

/** An op of a graph or program. */
typedef struct clv_op clv_op;

/** The op with its scope, "layers.3.mlp.squared_relu", as messages call it. */
CLV_API const char *clv_op_name(const clv_op *op);
/** Its attributes: attrs_size bytes as they were given to clv_emit; NULL when it has none. */
CLV_API const void *clv_op_attrs(const clv_op *op);
/** Writes them as snprintf does, "s=0.5 tag=gate", by the def's table of attributes; what cannot be
 *  printed of a TEXT as escapes. mesh: for layouts; NULL: these are left out. */
CLV_API int clv_op_print_attrs(char *out, size_t size, const clv_op *op, const clv_mesh *mesh);
/** How many operands it was given, absent ones (CLV_NONE) among them, also behind the last that is there. */
CLV_API int clv_op_operand_count(const clv_op *op);
/** Operand i, for gradients. CLV_NONE: an optional one that is absent; or there is no i. */
CLV_API clv_value clv_op_operand(const clv_op *op, int i);
/** Result i, for gradients; CLV_NONE: there is no i. */
CLV_API clv_value clv_op_result(const clv_op *op, int i);

/* ---- sharding rule ---- */

/** How an op may be split, in **factors**: indices that dimensions of operands and results share, as the letters of an
 *  einsum. Splitting a factor over a mesh axis splits every dimension that holds it. A result that does not hold it
 *  becomes partial: its value is the sum, or the maximum, of what the ranks have. A dimension of several factors (that
 *  of [H*D] for heads) holds them major to minor, and its size is the product of theirs. A dimension without factors
 *  is never split, nor an operand of whose dimensions none has any: each rank sees it whole.
 *
 *  A rule says what is possible, for all meshes; the partitioner chooses. It must follow from the op's attributes and
 *  types alone. What does not fit (an index, a size, a limit) is refused by clv_emit, with a message. */
typedef struct clv_rule clv_rule;

/** Adds a factor of `size` elements. reduction: how parts of results that do not hold it combine; CLV_REDUCTION_NONE:
 *  all results hold it, or it cannot be split. @return its number; -1 when there are CLV_MAX_FACTORS already */
CLV_API int clv_rule_add_factor(clv_rule *rule, int64_t size, clv_reduction reduction);
/** Says that dimension d of operand i is (also, more minor than what it has) the factor. */
CLV_API void clv_rule_operand_dim(clv_rule *rule, int i, int d, int factor);
/** The same of dimension d of result i. */
CLV_API void clv_rule_result_dim(clv_rule *rule, int i, int d, int factor);
/** What explanations call the factor ("heads"); without: as its dimensions are called. Borrowed: a constant. */
CLV_API void clv_rule_name_factor(clv_rule *rule, int factor, const char *name);
/** The factor must not be split. */
CLV_API void clv_rule_forbid_split(clv_rule *rule, int factor);
/** Where `factor` is split into more blocks T than it has elements, gcd(T, size) cut it and the rest cuts the factor
 *  `into`, which comes next after it in each dimension that holds both (query groups behind KV heads). `into` is not
 *  split by itself. */
CLV_API void clv_rule_replicate_remainder(clv_rule *rule, int factor, int into);
/** Operands that are partial sums pass without being summed first, each by itself (a*b of a's addends): one of them is
 *  partial, the others are whole, and so the results are partial sums. `operands`: bit i is operand i. */
CLV_API void clv_rule_multilinear(clv_rule *rule, uint32_t operands);
/** They pass all at once (a+b of both's addends); those that are whole count on one rank alone. */
CLV_API void clv_rule_additive(clv_rule *rule, uint32_t operands);
/** Partial maxima of all operands give partial maxima (a move of elements, a maximum, what grows with its operands). */
CLV_API void clv_rule_keeps_partial_max(clv_rule *rule);
/** The rule of an elementwise op with NumPy broadcasting: one factor a dimension of the result; operands align to the
 *  right, their dimensions of size 1 against larger ones hold no factor. Serves every result of result 0's shape. */
CLV_API void clv_rule_elementwise(clv_rule *rule, const clv_op *op, const clv_type *in, const clv_type *out);

/* ---- running ---- */

/** A rank's part of a tensor: contiguous, row-major, `shape` elements from global index lo on. data == NULL: an absent
 *  optional operand. Any extent of shape may be 0. Aligned to 64 bytes. */
typedef struct clv_view {
    void *data;
    clv_dtype dtype;
    int rank;                     /**< dimensions */
    int64_t shape[CLV_MAX_RANK];  /**< local */
    int64_t lo[CLV_MAX_RANK];     /**< first global index */
    int64_t global[CLV_MAX_RANK]; /**< whole shape */
} clv_view;

/** The elements that the view holds: 0 where an extent is, 1 of a scalar. */
CLV_API int64_t clv_view_elems(const clv_view *view);

/** The rank on which a kernel runs. */
typedef struct clv_context clv_context;

/** What a kernel is given. */
typedef struct clv_call {
    const clv_op *op;
    const clv_view *in;  /**< [clv_op_operand_count] */
    const clv_view *out; /**< [n_out]; may share memory with an operand as in_place says */
    void *workspace;     /**< the bytes that the def's workspace asks for, 64-byte aligned; NULL or of no use without */
    const clv_context *context; /**< for the functions below; NULL: outside of a session */
} clv_call;

/** The rank, as clv_mesh numbers them; 0 outside of a session. */
CLV_API int clv_call_rank(const clv_call *call);
/** How many threads a rank is to use (clv_session_options.threads_per_rank); 1 outside of a session. */
CLV_API int clv_call_threads(const clv_call *call);
/** Nonzero once nobody wants the results any more: the run was cancelled (cancel.h), or a rank has failed. A kernel
 *  that takes long may look now and then, and return CLV_ECANCELLED. */
CLV_API int clv_call_cancelled(const clv_call *call);

/** What an op costs on one rank. */
typedef struct clv_op_cost {
    double flops;
    double bytes; /**< memory traffic */
} clv_op_cost;

/* ---- the def ---- */

/** What a field of the attributes holds. */
typedef enum clv_attr_kind {
    CLV_ATTR_INT,    /**< int */
    CLV_ATTR_INT64,  /**< int64_t */
    CLV_ATTR_DOUBLE, /**< double */
    CLV_ATTR_BOOL,   /**< bool */
    CLV_ATTR_TEXT,   /**< char[count] */
    CLV_ATTR_KEY,    /**< clv_key */
    CLV_ATTR_DTYPE,  /**< clv_dtype */
    CLV_ATTR_LAYOUT  /**< clv_layout */
} clv_attr_kind;

/** A field of the attributes, for clv_op_print_attrs. */
typedef struct clv_attr {
    const char *name; /**< letters, digits and "_.-", below CLV_OP_NAME bytes; each once */
    clv_attr_kind kind;
    size_t offset;
    int count; /**< array length, 0 and 1: one; TEXT: bytes of the char array. Not negative */
} clv_attr;

/** An op. A plain value that is copied when it is used; its name and table of attributes are borrowed for as long as
 *  the process lives, as its functions are: constants of a library that stays loaded. */
typedef struct clv_op_def {
    size_t size; /**< sizeof the struct; 0: as its first version had it */
    /** Letters, digits and "_.-", below CLV_OP_NAME bytes; one def a name in a process. Give your ops a prefix: later
     *  versions of the library have more of their own. */
    const char *name;
    int min_in, max_in; /**< operands; those from min_in on are optional */
    int n_out;          /**< results, 1 or more */
    /** 1 + the operand whose memory result i may take over, when nobody reads it later and their sizes are equal;
     *  0: none. One operand goes to one result. */
    int in_place[CLV_MAX_OUT];
    /** Bit i: result i is minus infinity where there is nothing, which is no fault
     *  (clv_session_options.find_nonfinite). */
    uint32_t may_be_lowest;
    /** Bytes of the attributes, a plain struct that is copied; 0: none. Zero it before it is filled: ops of equal
     *  bytes are equal. */
    size_t attrs_size;
    /** Their fields, ended by a NULL name; NULL: not told. Processes that share a session compare these, or, where none
     *  are told, all bytes: so let a table leave pointers out. */
    const clv_attr *attrs;
    /** Types of the results; refuses operands that do not fit, naming shapes. Required. in[i] is zeroed where operand
     *  i is absent. */
    clv_status (*shape)(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err);
    /** How it may be split. Required. The rule arrives empty, which is: not at all. */
    void (*rule)(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule);
    /** Cotangents of the operands, of their types, from those of the results (CLV_NONE: none flows).
     *  d_in[clv_op_operand_count] arrives as CLV_NONE; left so where the op does not depend differentiably on an
     *  operand. NULL: not differentiable: a cotangent that reaches such an op is an error. */
    void (*gradient)(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in);
    /** What it costs for these local types; finite, not negative, and no more on a part than on the whole. NULL: no
     *  flops, every operand and result moved once. */
    clv_op_cost (*cost)(const clv_op *op, const clv_type *in, const clv_type *out);
    /** Bytes of workspace for views of these shapes (data is NULL); NULL: none. Planned once, for the largest shards,
     *  and used by every rank: it must not fall when a local extent grows, from 0 on. So whether something is needed
     *  at all is decided from whole shapes (`global`) and attributes, and only how much of it from local ones. */
    size_t (*workspace)(const clv_op *op, const clv_view *in, const clv_view *out);
    /** The kernel, on a rank's own part of each tensor, in host memory. Required. Writes every element of its results
     *  and nothing else. */
    clv_status (*run)(const clv_call *call, clv_error *err);
    /** Whether its work is counted in flops, which cost() then says, as that of products: hardware profiles (`cleave
     *  bench profile`) rate it in flops a second, other ops in bytes of memory traffic a second. */
    bool counts_flops;
    const struct clv_op_traits *traits; /**< NULL: what only ops of the library have */
    /** What people call it, "the gradient of softmax", where they are told why it is split so; NULL: its name. */
    const char *display_name;
    /** Bit i: result i is a statistic, of which others are measured: a maximum, a sum, a softmax's denominator. Whoever
     *  carries tensors rounded (clv_compile_options.comm_dtype) leaves it as it is. */
    uint32_t statistics;
} clv_op_def;

/** Appends an op to the graph: checks the operands, infers the types of the results, tries the rule.
 *
 *  @param def    one's own; it is registered (clv_op_register) when it is first used
 *  @param attrs  def->attrs_size bytes, copied; NULL where that is 0
 *  @param in     n_in operands; CLV_NONE for an optional one that is absent
 *  @param out    def->n_out results; CLV_NONE on failure, which is recorded in the graph (graph.h); the first alone
 *                where def itself is refused */
CLV_API void clv_emit(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in,
                      clv_value *out);

/* ---- whether an op does what it says ---- */

/** How clv_op_check goes about it; zeros: as each field says. */
typedef struct clv_op_check_options {
    size_t size;   /**< sizeof the struct; 0: as its first version had it */
    uint64_t seed; /**< of random values: equal seeds try the same */
    /** [n_in] the elements of operand i, row-major, borrowed for the call. NULL, of all or one: random, floats in
     *  [-1, 1) and 0 for others: give indices, and what else random values do not suit. */
    const void *const *data;
    uint32_t absent; /**< bit i: operand i, an optional one, is not given; its type is not read */
    /** How far a result may be off, relative to its largest element, at least 1; below 1. 0: 1e-12 of f64, 2e-6 of
     *  what is computed in f32, 3e-2 of bf16 and f16; of sums over more than 2^13 elements as many times that. */
    double tolerance;
    /** The same of gradients, relative to their largest element or, where the sum that they are of is larger, to that,
     *  up to 1; beside what rounding does to differences. 0: 2e-8 of f64, 2e-3 of f32. */
    double gradient_tolerance;
    /** Bit i: the gradient by operand i is not compared, as where it counts on how that operand is made. */
    uint32_t no_gradient_in;
    /** Bit i: nothing flows back from result i, as from statistics that only gradients read. */
    uint32_t no_gradient_out;
} clv_op_check_options;

/** What clv_op_check compared, so that one sees that it was something. */
typedef struct clv_op_check_report {
    size_t size;   /**< the caller's: sizeof the struct, or 0 */
    int cuts;      /**< factors times ways that each was split in, and pairs of factors */
    int partials;  /**< splits of operands into addends, or of all into maxima */
    int in_place;  /**< runs with results in operands' memory */
    int gradients; /**< elements compared with differences */
} clv_op_check_report;

/** Tries whether an op keeps what its def says, on host memory, outside of any session. Its kernel runs on whole
 *  tensors; then
 *  - once more, where other bytes lie about in memory, and by three threads (clv_call_threads): with the same bits;
 *  - on parts: each factor that may be split is cut into 2 and 3 blocks, and where both divide it also into a number
 *    that does not (what spills: into up to 8), and so that a block is empty; two factors at once, each into 2; and
 *    the results are put together as their reductions say: blocks side by side, or their sum or maximum. A factor
 *    that is a minor one of its dimension, behind others of more than one element, is not cut: give a shape in which
 *    they are 1;
 *  - on partial operands: as addends, or maxima, where the rule says that these pass;
 *  - in place, where in_place lets it.
 *
 *  Each must come to what the whole came to. No run may write beside its results or its workspace, into operands, or
 *  leave an element of a result unwritten; the workspace of no part may be above that of the largest, nor its cost
 *  above that of the whole. Where all floats are f64 or f32, the gradient of a random sum of all results, and of each
 *  alone, built of the ops that `gradient` makes, is compared with differences of two runs, in up to 64 elements of
 *  each operand; of other floats it is built and run.
 *
 *  Call it in a test, for shapes with small and odd extents, for each dtype, for attributes that matter. What it does
 *  not see: three factors split at once, and values that random ones do not meet.
 *
 *  @param def      as for clv_emit: it is registered
 *  @param attrs    def->attrs_size bytes; NULL where that is 0
 *  @param in       [n_in] types of operands
 *  @param options  NULL: all zero
 *  @param out      what was compared; untouched on failure; may be NULL
 *  @return CLV_ECHECK when it does not, and the message names the factor and block, or the operand; the result; the
 *          element, by its index in the whole tensor; and both values. err->op is the op. What clv_op_register and
 *          clv_emit return; what the kernel returns; CLV_ENONFINITE where a result is NaN, which says nothing;
 *          CLV_EINVAL for options out of range; CLV_ENOMEM */
CLV_API clv_status clv_op_check(const clv_op_def *def, const void *attrs, const clv_type *in, int n_in,
                                const clv_op_check_options *options, clv_op_check_report *out, clv_error *err);

/* ---- the registry: all ops, the library's and others', by name ---- */

/** Makes an op known. Known already, with the same fields: nothing is done.
 *  @return CLV_EINVAL naming the field that is missing or out of its range; CLV_EEXIST for the name of another op;
 *          CLV_EUNSUPPORTED for a field that this version does not have; CLV_ENOMEM */
CLV_API clv_status clv_op_register(const clv_op_def *def, clv_error *err);
/** The op of that name; NULL: none. Read its first `size` bytes. Ops of the library are for their builders (graph.h):
 *  clv_emit refuses them. */
CLV_API const clv_op_def *clv_op_find(const char *name);
/** The op after another; NULL: the first one, and after the last one. Those of the library come first. */
CLV_API const clv_op_def *clv_op_next(const clv_op_def *after);
/** What people call an op of the registry: its display_name, or its name. */
CLV_API const char *clv_op_display_name(const clv_op_def *def);

#ifdef __cplusplus
}
#endif
#endif
