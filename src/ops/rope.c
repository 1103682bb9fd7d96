/* rope.c - rotary position embedding op, with linear, llama3 and yarn frequency scaling.
 *
 *   angle(s, i) = (offset + s) * f(i), f(i) = theta^(-2i / dims), i < dims / 2, scaled as options say, or inv_freq[i]
 *   (a, b) -> (a cos - b sin, b cos + a sin) for the pairs (x[i], x[i + dims/2]), or (x[2i], x[2i+1]) if interleaved
 *
 *   x [B,S,H,D]; or packed keys and values [B,S,2,K,D], of which only the keys, [:,:,0], are rotated
 *   offset: i32 [] or [B]
 *   factors: b, s, heads pass (s from the shard's first global row on); the 2 and D whole; linear in x
 *
 * The gradient is the inverse rotation of d_out: the same op with the angles negated.
 * Sources: Su et al. 2021, arXiv:2104.09864; scaling as transformers' modeling_rope_utils, "linear", "llama3" and
 * "yarn".
 */
#include <math.h>

#include "kernels/cpu/rope_kernel.h"
#include "ops/builtin_ops.h"
#include "tensor/zigzag.h"

typedef struct rope_attrs {
    clv_rope_options how; /* theta 0: by inv_freq */
    bool inverse;
    int64_t zigzag;                          /* ranks in whose zig-zag order rows lie (tensor/zigzag.h); 0: in order */
    float inv_freq[CLV_ROPE_MAX_ROTARY / 2]; /* too large for the table of attributes */
} rope_attrs;

static const clv_attr rope_attr_table[] = {
    {"theta", CLV_ATTR_DOUBLE, offsetof(rope_attrs, how.theta), 1},
    {"dims", CLV_ATTR_INT64, offsetof(rope_attrs, how.dims), 1},
    {"interleaved", CLV_ATTR_BOOL, offsetof(rope_attrs, how.interleaved), 1},
    {"factor", CLV_ATTR_DOUBLE, offsetof(rope_attrs, how.factor), 1},
    {"low_frequency", CLV_ATTR_DOUBLE, offsetof(rope_attrs, how.low_frequency), 1},
    {"high_frequency", CLV_ATTR_DOUBLE, offsetof(rope_attrs, how.high_frequency), 1},
    {"original_positions", CLV_ATTR_INT64, offsetof(rope_attrs, how.original_positions), 1},
    {"yarn", CLV_ATTR_BOOL, offsetof(rope_attrs, how.yarn), 1},
    {"yarn_exact", CLV_ATTR_BOOL, offsetof(rope_attrs, how.yarn_exact), 1},
    {"inverse", CLV_ATTR_BOOL, offsetof(rope_attrs, inverse), 1},
    {"zigzag", CLV_ATTR_INT64, offsetof(rope_attrs, zigzag), 1},
    {0},
};

enum { PACKED_RANK = 5 };

static clv_status rope_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const clv_rope_options *how = &((const rope_attrs *)op->attrs)->how;
    CLV_TRY(clv_check_float("x", &in[0], err));
    if (in[0].rank != 4 && !(in[0].rank == PACKED_RANK && in[0].shape[2] == 2))
        return clv_fail(err, CLV_ESHAPE, "x is %s; [B,S,H,D] or [B,S,2,K,D] is needed", clv_type_string(&in[0]).text);
    int64_t head_dim = in[0].shape[in[0].rank - 1];
    if (how->dims < 0 || how->dims % 2 != 0 || how->dims > head_dim || how->dims > CLV_ROPE_MAX_ROTARY)
        return clv_fail(err, CLV_EINVAL,
                        "%lld rotated dims of a head_dim of %lld; an even number up to it and %d is needed",
                        (long long)how->dims, (long long)head_dim, CLV_ROPE_MAX_ROTARY);
    if (clv_valid(clv_op_operand(op, 1)))
        CLV_TRY(clv_check_offset(&in[1], in[0].shape[0], err));
    if (clv_valid(clv_op_operand(op, 1)) && ((const rope_attrs *)op->attrs)->zigzag)
        return clv_fail(err, CLV_EUNSUPPORTED, "rows in zig-zag order with an offset; valid: one of both");
    out[0] = in[0];
    return CLV_OK;
}

static void rope_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    int heads_dim = in[0].rank - 2, dims[3] = {0, 1, heads_dim};
    for (int i = 0; i < 3; i++) {
        int factor = clv_rule_add_factor(rule, in[0].shape[dims[i]], CLV_REDUCTION_NONE);
        clv_rule_operand_dim(rule, 0, dims[i], factor);
        clv_rule_result_dim(rule, 0, dims[i], factor);
    }
    if (clv_valid(clv_op_operand(op, 1)) && in[1].rank == 1)
        clv_rule_operand_dim(rule, 1, 0, 0);
    clv_rule_multilinear(rule, 1u << 0);
}

/* Copies the values of packed keys and values, which are not rotated. */
static void copy_values(const clv_view *out, const clv_view *x)
{
    int64_t rows = x->shape[0] * x->shape[1];
    size_t half = (size_t)(x->shape[3] * x->shape[4]) * clv_dtype_size(x->dtype);
    if (out->data == x->data || half == 0)
        return;
    for (int64_t row = 0; row < rows; row++)
        memcpy((char *)out->data + ((size_t)row * 2 + 1) * half, (const char *)x->data + ((size_t)row * 2 + 1) * half,
               half);
}

/* The pair, a fraction, that makes so many turns in the original context. */
static double pair_of_turns(const clv_rope_options *how, double turns)
{
    const double pi = acos(-1.0);
    return (double)how->dims * log((double)how->original_positions / (turns * 2 * pi)) / (2 * log(how->theta));
}

/* Of YaRN: how much of its own frequency pair i keeps. */
static double yarn_share(const clv_rope_options *how, int64_t i)
{
    double first = pair_of_turns(how, how->high_frequency), last = pair_of_turns(how, how->low_frequency);
    first = fmax(how->yarn_exact ? first : floor(first), 0);
    last = fmin(how->yarn_exact ? last : ceil(last), (double)how->dims - 1);
    last = last == first ? last + 0.001 : last;
    return 1 - ((double)i - first) / (last - first);
}

double clv_rope_inv_freq(const clv_rope_options *how, int64_t i)
{
    double plain = pow(how->theta, -2.0 * (double)i / (double)how->dims);
    double scaled = how->factor > 0 ? plain / how->factor : plain;
    if (how->high_frequency <= 0)
        return scaled;
    double turns = (double)how->original_positions * plain / (2 * acos(-1.0)); /* in the original context */
    double share =
        how->yarn ? yarn_share(how, i) : (turns - how->low_frequency) / (how->high_frequency - how->low_frequency);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return (1 - share) * scaled + share * plain;
}

double clv_rope_frequency_of(const clv_op *op, int64_t i)
{
    const rope_attrs *attrs = op->attrs;
    return attrs->how.theta > 0 ? clv_rope_inv_freq(&attrs->how, i) : (double)attrs->inv_freq[i];
}

typedef struct rope_precomputed {
    double inv_freq[CLV_ROPE_MAX_ROTARY / 2];
} rope_precomputed;

static void precompute_rope(void *precomputed, const clv_op *op, const clv_view *in, const clv_view *out)
{
    rope_precomputed *p = precomputed;
    const clv_rope_options *how = &((const rope_attrs *)op->attrs)->how;
    for (int64_t i = 0; i < how->dims / 2; i++)
        p->inv_freq[i] = clv_rope_frequency_of(op, i);
}

/* Rows in zig-zag order. */
static void rotate_runs(clv_rope_args args, int64_t zigzag, const clv_view *out, const clv_view *x)
{
    const int64_t rows = x->shape[1], n = x->global[1];
    args.batch = 1;
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t row = 0; row < rows; row += args.seq) {
            const size_t at = (size_t)((b * rows + row) * args.x_stride) * clv_dtype_size(x->dtype);
            args.seq = clv_zigzag_run(n, zigzag, x->lo[1] + row, rows - row);
            args.position_offset = clv_zigzag_position(n, zigzag, x->lo[1] + row);
            clv_rope_rotate(&args, (char *)out->data + at, (const char *)x->data + at);
        }
}

static clv_status rope_run_precomputed(const void *precomputed, const clv_call *call, clv_error *err)
{
    const rope_attrs *attrs = call->op->attrs;
    const clv_rope_options *how = &attrs->how;
    const clv_view *x = &call->in[0], *out = &call->out[0];
    const int32_t *offset = call->op->n_in > 1 ? call->in[1].data : NULL;
    bool packed = x->rank == PACKED_RANK;
    int64_t heads = x->shape[x->rank - 2], head_dim = x->shape[x->rank - 1];
    int64_t stride = (packed ? 2 : 1) * heads * head_dim;
    bool by_row = offset && call->in[1].rank == 1;
    clv_rope_args args = {.dtype = x->dtype,
                          .interleaved = how->interleaved,
                          .inverse = attrs->inverse,
                          .batch = x->shape[0],
                          .seq = x->shape[1],
                          .heads = heads,
                          .head_dim = head_dim,
                          .rotary = how->dims,
                          .x_stride = stride,
                          .out_stride = stride,
                          .inv_freq = ((const rope_precomputed *)precomputed)->inv_freq,
                          .position_offset = x->lo[1] + (offset && !by_row ? *offset : 0),
                          .offsets = by_row ? offset : NULL};
    if (packed)
        copy_values(out, x);
    if (attrs->zigzag)
        rotate_runs(args, attrs->zigzag, out, x);
    else
        clv_rope_rotate(&args, out->data, x->data);
    return CLV_OK;
}

static clv_status rope_run(const clv_call *call, clv_error *err)
{
    rope_precomputed precomputed;
    precompute_rope(&precomputed, call->op, call->in, call->out);
    return rope_run_precomputed(&precomputed, call, err);
}

static void rope_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    rope_attrs attrs = *(const rope_attrs *)op->attrs;
    attrs.inverse = !attrs.inverse;
    clv_value in[] = {d_out[0], clv_op_operand(op, 1)};
    d_in[0] = clv_graph_emit_one(graph, op->def, &attrs, in, op->n_in);
}

static clv_op_cost rope_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.flops = 3 * (double)clv_type_elems(&in[0]),
                         .bytes = clv_type_bytes(&in[0]) + clv_type_bytes(&out[0])};
}

const clv_op_def clv_op_rope = {
    .name = "rope",
    CLV_ARITY(1, 2, 1),
    CLV_ATTRS(rope_attrs, rope_attr_table),
    .shape = rope_shape,
    .rule = rope_rule,
    .gradient = rope_gradient,
    .cost = rope_cost,
    .in_place = {1 + 0},
    .run = rope_run,
    .traits = &(const clv_op_traits){.precomputed_bytes = sizeof(rope_precomputed),
                                     .precompute = precompute_rope,
                                     .run_precomputed = rope_run_precomputed},
};

/* What is wrong with the options; NULL: nothing. */
static const char *fault_of(const clv_rope_options *how)
{
    if (how->inv_freq)
        return how->factor != 0 || how->high_frequency != 0
                   ? "inv_freq cannot be combined with factor or high_frequency"
                   : NULL;
    if (!(how->theta > 0) || !isfinite(how->theta))
        return "theta must be above 0 and finite";
    if (!(how->factor >= 0) || !isfinite(how->factor))
        return "factor must be above 0 and finite, or 0 for none";
    if (!(how->high_frequency >= 0) || !isfinite(how->high_frequency))
        return "high_frequency must be above 0 and finite, or 0 for none";
    if (how->high_frequency > 0 && !(how->low_frequency > 0 && how->low_frequency < how->high_frequency))
        return "low_frequency must be above 0 and below high_frequency";
    if (how->yarn && (how->high_frequency == 0 || how->theta == 1))
        return "yarn needs high_frequency, and a theta other than 1";
    if (how->high_frequency > 0 && how->original_positions < 1)
        return "original_positions must be above 0";
    return NULL;
}

clv_value clv_rope(clv_graph *graph, clv_value x, clv_value offset, const clv_rope_options *options)
{
    if (!clv_graph_require(graph, options != NULL, __func__, "options") ||
        !clv_graph_require_zeros(graph, options->reserved, sizeof options->reserved / sizeof *options->reserved,
                                 __func__))
        return CLV_NONE;
    const char *fault = fault_of(options);
    if (fault)
        return clv_graph_fail(graph, CLV_EINVAL, "clv_rope: %s", fault);
    clv_type type = clv_graph_type(graph, x);
    rope_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.how.theta = options->inv_freq ? 0 : options->theta; /* by field, so that padding stays 0 */
    attrs.how.dims = options->dims == 0 && type.rank > 0 ? type.shape[type.rank - 1] : options->dims;
    attrs.how.interleaved = options->interleaved;
    attrs.how.yarn = options->yarn;
    attrs.zigzag = graph->zigzag;
    attrs.how.yarn_exact = options->yarn_exact;
    attrs.how.factor = options->factor;
    attrs.how.low_frequency = options->low_frequency;
    attrs.how.high_frequency = options->high_frequency;
    attrs.how.original_positions = options->original_positions;
    if (options->inv_freq && attrs.how.dims > 0 && attrs.how.dims <= CLV_ROPE_MAX_ROTARY)
        memcpy(attrs.inv_freq, options->inv_freq, (size_t)attrs.how.dims / 2 * sizeof *attrs.inv_freq);
    if (clv_dtype_first_nonfinite(CLV_F32, attrs.inv_freq, CLV_ROPE_MAX_ROTARY / 2) >= 0)
        return clv_graph_fail(graph, CLV_EINVAL, "clv_rope: inv_freq must be finite");
    clv_value in[] = {x, offset};
    return clv_graph_emit_one(graph, &clv_op_rope, &attrs, in, clv_valid(offset) ? 2 : 1);
}
