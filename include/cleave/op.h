/** @file op.h - custom ops: defines an op (types, sharding rule, gradient, cost, kernel) and adds it to a graph.
 *
 * A clv_op_def describes an op completely: the types of its results, its sharding rule, its gradient, its cost and its
 * kernel. clv_emit adds it to a graph. From there on it is an op like any other: the partitioner shards it by its rule,
 * sessions run and check it, gradients pass through it, and programs, reports and messages name it.
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
 *             clv_rule_operand_dim(r, 0, d, factor);                                  // so both are sharded alike
 *             clv_rule_result_dim(r, 0, d, factor);
 *         } // not linear: a partial sum x is reduced first
 *     }
 *     static clv_status run(const clv_call *call, clv_error *err)
 *     {
 *         const scale_attrs *a = clv_op_attrs(call->op);
 *         const float *x = call->in[0].data;
 *         float *y = call->out[0].data;
 *         for (int64_t i = 0; i < clv_view_elems(&call->out[0]); i++) // this rank's shard only
 *             y[i] = x[i] > 0 ? (float)(a->s * x[i] * x[i]) : 0;
 *         return CLV_OK;
 *     }
 *     static void gradient(clv_graph *g, const clv_op *op, const clv_value *d_out, clv_value *d_in)
 *     {
 *         const scale_attrs *a = clv_op_attrs(op);
 *         clv_value slope = clv_scale(g, clv_unary(g, CLV_RELU, clv_op_operand(op, 0)), 2 * a->s);
 *         d_in[0] = clv_mul(g, d_out[0], slope); // built of the library's ops, or of other custom ops
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
 * its size and may grow at its end: fields that an older program lacks read as zero. clv_call, which only the library
 * makes, may grow at its end. clv_op and clv_rule are opaque. clv_view, clv_attr, clv_op_cost, clv_type and clv_value
 * never change.
 *
 * **Threads.** Any thread may use the registry at any time. The functions of a def are called on the thread that builds
 * or compiles the graph, except `run`, which is called on the ranks' threads, several at once. They must not keep state
 * between calls.
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

/** Name of the op with its scope: "layers.3.mlp.squared_relu". */
CLV_EXPERIMENTAL const char *clv_op_scoped_name(const clv_op *op);
/** Attributes of the op: attrs_size bytes, as given to clv_emit; NULL if it has none. */
CLV_EXPERIMENTAL const void *clv_op_attrs(const clv_op *op);
/** Prints the attributes as snprintf does, by the def's table: "s=0.5 tag=gate"; control characters are escaped.
 *  mesh: for attributes that are layouts; NULL leaves these out. */
CLV_EXPERIMENTAL int clv_op_print_attrs(char *out, size_t size, const clv_op *op, const clv_mesh *mesh);
/** Number of operands that the op was given, including absent ones (CLV_NONE). */
CLV_EXPERIMENTAL int clv_op_operand_count(const clv_op *op);
/** Operand i; CLV_NONE if it is absent or out of range. */
CLV_EXPERIMENTAL clv_value clv_op_operand(const clv_op *op, int i);
/** Result i; CLV_NONE if out of range. */
CLV_EXPERIMENTAL clv_value clv_op_result(const clv_op *op, int i);

/* ---- sharding rule ---- */

/** Sharding rule of an op, written in **factors** (as in Shardy): indices that dimensions of operands and results
 *  share, like the letters of an einsum. Splitting a factor over a mesh axis shards every dimension that contains it;
 *  a result without the factor becomes partial, a sum or maximum over the ranks. A dimension of several factors (heads
 *  in [H*D]) lists them major to minor, and its size is their product. A dimension without factors is never sharded;
 *  each rank sees all of it.
 *
 *  A rule states the legal shardings for all meshes; the partitioner chooses among them. It must depend on the op's
 *  attributes and types only. clv_emit refuses an invalid rule (an index, a size, a limit) with a message. */
typedef struct clv_rule clv_rule;

/** Adds a factor of `size` elements. reduction: how results without the factor combine over the ranks;
 *  CLV_REDUCTION_NONE: every result has it, or it cannot be split. @return its index; -1 beyond CLV_MAX_FACTORS */
CLV_EXPERIMENTAL int clv_rule_add_factor(clv_rule *rule, int64_t size, clv_reduction reduction);
/** Appends `factor` to dimension d of operand i, as its innermost factor. */
CLV_EXPERIMENTAL void clv_rule_operand_dim(clv_rule *rule, int i, int d, int factor);
/** Appends `factor` to dimension d of result i, as its innermost factor. */
CLV_EXPERIMENTAL void clv_rule_result_dim(clv_rule *rule, int i, int d, int factor);
/** Names the factor for explanations ("heads"); default: the name of its dimensions. The name is borrowed. */
CLV_EXPERIMENTAL void clv_rule_name_factor(clv_rule *rule, int factor, const char *name);
/** Forbids splitting the factor. */
CLV_EXPERIMENTAL void clv_rule_forbid_split(clv_rule *rule, int factor);
/** Lets `factor` be split into more blocks T than it has elements (KV-head replication): gcd(T, size) blocks split it,
 *  and the remainder splits the factor `into` (query groups), which must follow it in every dimension that has both.
 *  `into` is not split otherwise. */
CLV_EXPERIMENTAL void clv_rule_replicate_remainder(clv_rule *rule, int factor, int into);
/** The op is linear in each of `operands` (bit i: operand i) by itself, as a*b: if one of them is a partial sum and the
 *  others are whole, the results are partial sums. */
CLV_EXPERIMENTAL void clv_rule_multilinear(clv_rule *rule, uint32_t operands);
/** The op is linear in `operands` together, as a+b: if all are partial sums, the results are; a whole one is counted on
 *  one rank only. */
CLV_EXPERIMENTAL void clv_rule_additive(clv_rule *rule, uint32_t operands);
/** Partial maxima of all operands give partial maxima: the op moves elements, or is monotonic. */
CLV_EXPERIMENTAL void clv_rule_keeps_partial_max(clv_rule *rule);
/** Makes the rule of an elementwise op with NumPy broadcasting: one factor per dimension of the result. Operands align
 *  to the right; a broadcast dimension of size 1 has no factor. Covers all results of result 0's shape. */
CLV_EXPERIMENTAL void clv_rule_elementwise(clv_rule *rule, const clv_op *op, const clv_type *in, const clv_type *out);

/* ---- running ---- */

/** A rank's shard of a tensor: contiguous, row-major, aligned to 64 bytes. Extents may be 0. */
typedef struct clv_view {
    void *data; /**< NULL: an absent optional operand */
    clv_dtype dtype;
    int rank;                     /**< number of dimensions */
    int64_t shape[CLV_MAX_RANK];  /**< local shape */
    int64_t lo[CLV_MAX_RANK];     /**< global index of the first element */
    int64_t global[CLV_MAX_RANK]; /**< global shape */
} clv_view;

/** Number of elements of the view: 0 if an extent is 0, 1 for a scalar. */
CLV_EXPERIMENTAL int64_t clv_view_elems(const clv_view *view);

/** The rank that runs a kernel. */
typedef struct clv_context clv_context;

/** Arguments of a kernel. */
typedef struct clv_call {
    const clv_op *op;
    const clv_view *in;         /**< [clv_op_operand_count] operands */
    const clv_view *out;        /**< [n_out] results; may share memory with an operand as in_place allows */
    void *workspace;            /**< as many bytes as the def's workspace() returned, aligned to 64 bytes */
    const clv_context *context; /**< for the functions below; NULL outside a session */
} clv_call;

/** The rank that runs the kernel, as clv_mesh numbers ranks; 0 outside a session. */
CLV_EXPERIMENTAL int clv_call_rank(const clv_call *call);
/** Number of threads that the kernel may use (clv_session_options.threads_per_rank); 1 outside a session. */
CLV_EXPERIMENTAL int clv_call_threads(const clv_call *call);
/** Nonzero if the run was cancelled (cancel.h) or a rank has failed. A long kernel may poll it and return
 *  CLV_ECANCELLED. */
CLV_EXPERIMENTAL int clv_call_cancelled(const clv_call *call);

/** Cost of an op on one rank. */
typedef struct clv_op_cost {
    double flops;
    double bytes; /**< memory traffic */
} clv_op_cost;

/* ---- the def ---- */

/** C type of an attribute. */
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

/** One attribute: a row of clv_op_def.attrs. */
typedef struct clv_attr {
    const char *name; /**< letters, digits and "_.-", fewer than CLV_OP_NAME bytes, unique in the table */
    clv_attr_kind kind;
    size_t offset; /**< of the field in the attributes' struct */
    int count;     /**< array length, 0 means 1; TEXT: bytes of the char array */
} clv_attr;

/** Definition of an op. The struct is copied; its name, table of attributes and functions are borrowed and must stay
 *  valid until the process ends. */
typedef struct clv_op_def {
    size_t size; /**< sizeof the struct, or 0 */
    /** Letters, digits and "_.-", fewer than CLV_OP_NAME bytes, unique in the process. Prefix the names of your ops:
     *  later versions of the library add ops. */
    const char *name;
    int min_in, max_in; /**< number of operands; operand min_in and later ones are optional */
    int n_out;          /**< number of results, at least 1 */
    /** Result i may reuse the memory of operand in_place[i] - 1 if that has the same size and no later reader; 0: no
     *  reuse. An operand may be listed once. */
    int in_place[CLV_MAX_OUT];
    /** Bit i: minus infinity in result i is valid, and clv_session_options.find_nonfinite ignores it. */
    uint32_t may_be_lowest;
    /** Bytes of the attributes, a plain struct that is copied; 0: none. Zero the struct before you fill it: attributes
     *  are compared byte by byte. */
    size_t attrs_size;
    /** Fields of the attributes, ended by a NULL name; optional. Processes that share a session compare these fields,
     *  or without a table all bytes; leave pointers out of the table. */
    const clv_attr *attrs;
    /** Infers the types of the results, and refuses invalid operands with a message that names shapes. Required. in[i]
     *  is zeroed if operand i is absent. */
    clv_status (*shape)(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err);
    /** Fills the sharding rule. Required. An empty rule forbids all sharding. */
    void (*rule)(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule);
    /** Builds the cotangents d_in of the operands from those of the results (CLV_NONE: zero). d_in arrives as CLV_NONE;
     *  leave that for operands without a gradient. NULL: the op is not differentiable, and a cotangent that reaches it
     *  is an error. */
    void (*gradient)(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in);
    /** Cost for these local types: finite, not negative, and at most as much on a shard as on the whole. NULL: no
     *  flops, and each operand and result is read or written once. */
    clv_op_cost (*cost)(const clv_op *op, const clv_type *in, const clv_type *out);
    /** Bytes of workspace for views of these shapes (data is NULL); NULL: none. It is called once, for the largest
     *  shards, and serves all ranks, so it must not decrease when a local extent grows, from 0 on. Decide from global
     *  shapes and attributes whether a workspace is needed, and from local shapes only how large it is. */
    size_t (*workspace)(const clv_op *op, const clv_view *in, const clv_view *out);
    /** The kernel: computes this rank's shards, in host memory. Required. It must write every element of its results
     *  and nothing else. */
    clv_status (*run)(const clv_call *call, clv_error *err);
    /** Work is counted in flops (as of products), not in bytes of memory traffic: hardware profiles (`cleave bench
     *  profile`) measure its rate in flops/s. */
    bool counts_flops;
    const struct clv_op_traits *traits; /**< private to ops of the library; NULL */
    /** Name in explanations, "the gradient of softmax"; NULL: `name`. */
    const char *display_name;
    /** Bit i: result i is a statistic (a maximum, a sum, a softmax's denominator), which
     *  clv_compile_options.comm_dtype never rounds. */
    uint32_t statistics;
} clv_op_def;

/** Appends an op to the graph: checks the operands, infers the types of the results, checks the rule.
 *
 *  @param def    a custom op; its first use registers it (clv_op_register)
 *  @param attrs  def->attrs_size bytes, copied; NULL if that is 0
 *  @param in     n_in operands; CLV_NONE for an absent optional one
 *  @param out    def->n_out results; all CLV_NONE on failure (recorded in the graph, graph.h), only the first if the
 *                def itself is refused */
CLV_EXPERIMENTAL void clv_emit(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in,
                               int n_in, clv_value *out);

/* ---- testing an op ---- */

/** Options of clv_op_check. Zero-initialised = defaults. */
typedef struct clv_op_check_options {
    size_t size;   /**< sizeof the struct, or 0 */
    uint64_t seed; /**< seed of the random values */
    /** [n_in] elements of operand i, row-major, borrowed for the call. NULL (for one or all operands): random floats in
     *  [-1, 1), zeros for other dtypes. Give data where random values do not fit, such as indices. */
    const void *const *data;
    uint32_t absent; /**< bit i: the optional operand i is absent; its type is not read */
    /** Largest error of a result, relative to its largest element (at least 1). 0: 1e-12 for f64, 2e-6 for f32
     *  arithmetic, 3e-2 for bf16 and f16; sums over more than 2^13 elements get proportionally more. */
    double tolerance;
    /** Largest error of a gradient, relative to its largest element, or to the differentiated sum if that is larger, at
     *  most 1; the rounding of finite differences is added. 0: 2e-8 for f64, 2e-3 for f32. */
    double gradient_tolerance;
    /** Bit i: the gradient by operand i is not compared. */
    uint32_t no_gradient_in;
    /** Bit i: result i has no cotangent, such as a statistic that only gradients read. */
    uint32_t no_gradient_out;
} clv_op_check_options;

/** Numbers of comparisons that clv_op_check made. */
typedef struct clv_op_check_report {
    size_t size;   /**< set by the caller: sizeof the struct, or 0 */
    int cuts;      /**< shardings: factors times block counts, and pairs of factors */
    int partials;  /**< partial operands: splits into partial sums or maxima */
    int in_place;  /**< runs with results in operands' memory */
    int gradients; /**< elements compared with finite differences */
} clv_op_check_report;

/** Tests an op against its def, on host memory, without a session. The kernel runs on whole tensors; then
 *  - again with other garbage in memory, and with three threads (clv_call_threads): the bits must be equal;
 *  - on shards: each factor is split into 2 and 3 blocks, into a number that does not divide it (a factor with a
 *    replicated remainder: into up to 8), and so that a block is empty; also two factors at once, into 2 blocks each.
 *    The results are combined: blocks concatenated, or summed, or their maximum taken. A factor that is inner to
 *    another factor of more than one element is not split: choose a shape in which the outer one is 1;
 *  - on partial operands, sums or maxima, where the rule allows them;
 *  - in place, where in_place allows it.
 *
 *  Each must agree with the first run. No run may write outside its results and workspace or leave an element
 *  unwritten. The workspace of a shard may not exceed that of the largest, nor its cost that of the whole. If all
 *  floats are f64 or f32, gradients (of a random sum of all results, and of each alone) are compared with finite
 *  differences, in up to 64 elements of each operand; for other floats they are built and run only.
 *
 *  Call it in a test, for shapes with small and odd extents, each dtype, and the attributes that matter. It does not
 *  cover three factors split at once, or values that random data does not reach.
 *
 *  @param def      as for clv_emit; it is registered
 *  @param attrs    def->attrs_size bytes; NULL if that is 0
 *  @param in       [n_in] types of operands
 *  @param options  NULL: defaults
 *  @param out      the numbers of comparisons, unchanged on failure; may be NULL
 *  @return CLV_ECHECK if a comparison fails; the message names the factor and block, or the operand, the result, the
 *          element (by global index) and both values; err->op is the op. Errors of clv_op_register, clv_emit and the
 *          kernel; CLV_ENONFINITE if a result is NaN, which cannot be compared; CLV_EINVAL for options out of range;
 *          CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_op_check(const clv_op_def *def, const void *attrs, const clv_type *in, int n_in,
                                         const clv_op_check_options *options, clv_op_check_report *out, clv_error *err);

/* ---- the registry: all ops by name, built-in and custom ---- */

/** Registers an op. Does nothing if it is registered with the same fields.
 *  @return CLV_EINVAL naming a field that is missing or out of range; CLV_EEXIST if another op has the name;
 *          CLV_EUNSUPPORTED for a field of a later version; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_op_register(const clv_op_def *def, clv_error *err);
/** The op of that name; NULL if there is none. Read only its first `size` bytes. Built-in ops have builders (graph.h);
 *  clv_emit refuses them. */
CLV_EXPERIMENTAL const clv_op_def *clv_op_find(const char *name);
/** Iterates over the registry, built-in ops first: the op after another (NULL: the first one); NULL at the end. */
CLV_EXPERIMENTAL const clv_op_def *clv_op_next(const clv_op_def *after);
/** Display name of a registered op: its display_name, or its name. */
CLV_EXPERIMENTAL const char *clv_op_display_name(const clv_op_def *def);

#ifdef __cplusplus
}
#endif
#endif
