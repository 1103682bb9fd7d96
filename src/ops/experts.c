/* experts.c - the experts of a mixture: each row's gated feed-forward networks, weighted and summed; and the gradient.
 *
 *   y[r,n] = sum over j of weights[r,j] * sum over f of act(x[r] gate[e])[f] * (x[r] up[e])[f] * down[e,f,n],
 *            e = ids[r,j];  gate_up [E, M, 2, F] holds gate and up
 *
 *   factors: rows pass; experts and ffn reduce(sum); M and top_k whole; linear in weights, and in down
 *
 * A rank with some of the experts adds what these contribute to its rows, so that a split of the experts gives a
 * partial sum: rows are gathered over the axis before, and results are reduce-scattered. Uneven loads cost time, not
 * memory (experts_kernel.h), and no row is dropped. An id outside of [0, E) adds nothing. A program may instead give
 * each rank the rows of its experts alone, packed (program/dispatch_expert_rows.c).
 *
 * gradient: one op, which recomputes gate and up; linear in d_y.        factors: rows reduce(sum) in d_gate_up and
 *   d_down, experts and ffn in d_x and d_weights; M and top_k whole
 *
 * quant_experts: the same by weights in blocks of 32, without a gradient: integers u8 gate_up [E, 2, F, M/32, B] and
 *   down [E, M, F/32, B], B = 32 (q8) or 16 (q4), scales f16 without the last dimension. ffn is split by whole blocks;
 *   linear in weights alone, for the kernel rounds x when there are few rows (kernels/cpu/gemm/gemm_quantized.h)
 */
#include "kernels/cpu/experts_kernel.h"
#include "ops/builtin_ops.h"

/* Operands; the gradient has d_y after them. Quantized weights are integers and scales. */
enum { X, IDS, WEIGHTS, GATE_UP, DOWN, D_Y };
enum { UP_INTS = GATE_UP, UP_SCALES, DOWN_INTS, DOWN_SCALES, QUANTIZED_IN };
enum { FORWARD_IN = D_Y, BACKWARD_IN };
enum { D_X, D_WEIGHTS, D_GATE_UP, D_DOWN, BACKWARD_OUT };

typedef struct experts_attrs {
    int activation; /* clv_unary_kind */
    int64_t experts;
    bool packed; /* of programs: x, y and their gradients are [1, room, M] on a rank */
    int quant;   /* clv_quant of quant_experts */
} experts_attrs;

static const clv_attr fields[] = {CLV_FIELD(INT, experts_attrs, activation),
                                  CLV_FIELD(INT64, experts_attrs, experts),
                                  CLV_FIELD(BOOL, experts_attrs, packed),
                                  {0}};
static const clv_attr quant_fields[] = {CLV_FIELD(INT, experts_attrs, activation),
                                        CLV_FIELD(INT64, experts_attrs, experts),
                                        CLV_FIELD(BOOL, experts_attrs, packed),
                                        CLV_FIELD(INT, experts_attrs, quant),
                                        {0}};

static void pack(void *attrs)
{
    ((experts_attrs *)attrs)->packed = true;
}

/* ---- shape ---- */

static clv_status check_rows(const clv_op *op, const clv_type *in, clv_error *err)
{
    if (((const experts_attrs *)op->attrs)->packed)
        return clv_fail(err, CLV_EINVAL, "rows of experts are packed by the compiler alone");
    const clv_dtype wide = clv_statistics_dtype(in[X].dtype);
    clv_type ids = in[X];
    CLV_TRY(clv_check_float("x", &in[X], err));
    CLV_TRY(clv_check_min_rank("x", &in[X], 1, "[...,M]", err));
    CLV_TRY(clv_check_same_shape("weights", &in[WEIGHTS], "ids", &in[IDS], err));
    ids.dtype = CLV_I32;
    ids.shape[ids.rank - 1] = in[IDS].rank > 0 ? in[IDS].shape[in[IDS].rank - 1] : 0;
    if (!clv_type_equal(&ids, &in[IDS]) || in[WEIGHTS].dtype != wide)
        return clv_fail(err, CLV_ESHAPE,
                        "x is %s, ids are %s, weights are %s; valid: i32 and %s [...,top_k] for x [...,M]",
                        clv_type_string(&in[X]).text, clv_type_string(&in[IDS]).text,
                        clv_type_string(&in[WEIGHTS]).text, clv_dtype_name(wide));
    return CLV_OK;
}

static clv_status check_operands(const clv_op *op, const clv_type *in, clv_error *err)
{
    CLV_TRY(check_rows(op, in, err));
    const int64_t experts = ((const experts_attrs *)op->attrs)->experts, width = in[X].shape[in[X].rank - 1];
    const int64_t ffn = in[DOWN].rank == 3 ? in[DOWN].shape[1] : 0;
    const clv_type gate_up = {.dtype = in[X].dtype, .rank = 4, .shape = {experts, width, 2, ffn}};
    const clv_type down = {.dtype = in[X].dtype, .rank = 3, .shape = {experts, ffn, width}};
    if (!clv_type_equal(&in[GATE_UP], &gate_up) || !clv_type_equal(&in[DOWN], &down))
        return clv_fail(
            err, CLV_ESHAPE, "gate_up is %s and down is %s; valid: [E,M,2,F] and [E,F,M], of the dtype of x %s",
            clv_type_string(&in[GATE_UP]).text, clv_type_string(&in[DOWN]).text, clv_type_string(&in[X]).text);
    return CLV_OK;
}

/* ---- rule ---- */

typedef void map_dim(clv_rule *rule, int i, int d, int factor);

/* The factors after the row dimensions, 0 to rows - 1. */
typedef struct expert_factors {
    int rows, experts, ffn;
} expert_factors;

static void map_rows(map_dim *map, clv_rule *rule, int i, const expert_factors *f)
{
    for (int d = 0; d < f->rows; d++)
        map(rule, i, d, d);
}

static void map_gate_up(map_dim *map, clv_rule *rule, int i, const expert_factors *f)
{
    map(rule, i, 0, f->experts);
    map(rule, i, 3, f->ffn);
}

static void map_down(map_dim *map, clv_rule *rule, int i, const expert_factors *f)
{
    map(rule, i, 0, f->experts);
    map(rule, i, 1, f->ffn);
}

static expert_factors map_operands(clv_rule *rule, const clv_type *in, clv_reduction rows)
{
    expert_factors f = {.rows = in[X].rank - 1};
    for (int d = 0; d < f.rows; d++)
        clv_rule_add_factor(rule, in[X].shape[d], rows);
    f.experts = clv_rule_add_factor(rule, in[DOWN].shape[0], CLV_REDUCTION_SUM);
    f.ffn = clv_rule_add_factor(rule, in[DOWN].shape[1], CLV_REDUCTION_SUM);
    clv_rule_name_factor(rule, f.experts, "experts");
    clv_rule_name_factor(rule, f.ffn, "ffn");
    map_rows(clv_rule_operand_dim, rule, X, &f);
    map_rows(clv_rule_operand_dim, rule, IDS, &f);
    map_rows(clv_rule_operand_dim, rule, WEIGHTS, &f);
    map_gate_up(clv_rule_operand_dim, rule, GATE_UP, &f);
    map_down(clv_rule_operand_dim, rule, DOWN, &f);
    return f;
}

/* ---- cost ---- */

/* Products of a row and one of its experts: gate, up and down; backward gate and up again, and two for each. */
enum { FORWARD_PRODUCTS = 3, RECOMPUTED_PRODUCTS = 2, GRADIENT_PRODUCTS = 2 * FORWARD_PRODUCTS + RECOMPUTED_PRODUCTS };

/* If rows choose experts evenly. Weights, n of them with F elements of a hidden row, of experts that no row chooses are
 * not read. */
static clv_op_cost cost_by(const clv_op *op, const clv_type *in, const clv_type *out, int products, int n, int64_t ffn)
{
    const double experts = (double)((const experts_attrs *)op->attrs)->experts, here = (double)in[GATE_UP].shape[0];
    const double choices = (double)clv_type_elems(&in[IDS]) * (experts > 0 ? here / experts : 0);
    const double read = here > 0 && choices < here ? choices / here : 1;
    const double size = (double)in[X].shape[in[X].rank - 1] * (double)ffn;
    double weights = 0;
    for (int i = 0; i < n; i++)
        weights += clv_type_bytes(&in[GATE_UP + i]);
    return (clv_op_cost){.flops = 2 * products * choices * size,
                         .bytes = clv_op_traffic_bytes(op, in, out) - weights * (1 - read)};
}

static clv_op_cost cost_of(const clv_op *op, const clv_type *in, const clv_type *out, int products)
{
    return cost_by(op, in, out, products, 2, in[DOWN].shape[1]);
}

/* ---- kernel ---- */

static clv_experts_args args_of(const clv_op *op, const clv_view *in)
{
    const experts_attrs *a = op->attrs;
    return (clv_experts_args){.act = clv_unary_op_of_kind((clv_unary_kind)a->activation),
                              .dtype = in[X].dtype,
                              .rows = clv_view_row_count(&in[IDS], 1),
                              .width = in[X].shape[in[X].rank - 1],
                              .top_k = in[IDS].shape[in[IDS].rank - 1],
                              .first = in[DOWN].lo[0],
                              .experts = in[DOWN].shape[0],
                              .ffn = in[DOWN].shape[1],
                              .packed = a->packed,
                              .room = clv_view_row_count(&in[X], 1),
                              .x = in[X].data,
                              .ids = in[IDS].data,
                              .weights = in[WEIGHTS].data,
                              .gate_up = in[GATE_UP].data,
                              .down = in[DOWN].data};
}

static clv_experts_args args_of_call(const clv_call *call)
{
    clv_experts_args args = args_of(call->op, call->in);
    args.workspace = call->workspace;
    args.work = clv_call_task_pool_member(call);
    return args;
}

/* ---- experts_gradient: the operands, d_y -> d_x, d_weights, d_gate_up, d_down ---- */

/* Gradients of 16-bit weights are f32, because they are summed tile by tile. */
static clv_status gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_operands(op, in, err));
    if (!clv_type_equal(&in[D_Y], &in[X]))
        return clv_fail(err, CLV_ESHAPE, "d_y is %s, x is %s; they must be equal", clv_type_string(&in[D_Y]).text,
                        clv_type_string(&in[X]).text);
    out[D_X] = in[X];
    out[D_WEIGHTS] = in[WEIGHTS];
    out[D_GATE_UP] = in[GATE_UP];
    out[D_DOWN] = in[DOWN];
    out[D_GATE_UP].dtype = out[D_DOWN].dtype = in[WEIGHTS].dtype;
    return CLV_OK;
}

static void gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const expert_factors f = map_operands(rule, in, CLV_REDUCTION_SUM);
    map_rows(clv_rule_operand_dim, rule, D_Y, &f);
    map_rows(clv_rule_result_dim, rule, D_X, &f);
    map_rows(clv_rule_result_dim, rule, D_WEIGHTS, &f);
    map_gate_up(clv_rule_result_dim, rule, D_GATE_UP, &f);
    map_down(clv_rule_result_dim, rule, D_DOWN, &f);
    clv_rule_multilinear(rule, 1u << D_Y);
}

static clv_op_cost gradient_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return cost_of(op, in, out, GRADIENT_PRODUCTS);
}

static size_t gradient_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    clv_experts_args args = args_of(op, in);
    return clv_experts_workspace(&args, true);
}

static clv_status gradient_run(const clv_call *call, clv_error *err)
{
    clv_experts_args args = args_of_call(call);
    const clv_experts_gradients gradients = {.d_y = call->in[D_Y].data,
                                             .d_x = call->out[D_X].data,
                                             .d_weights = call->out[D_WEIGHTS].data,
                                             .d_gate_up = call->out[D_GATE_UP].data,
                                             .d_down = call->out[D_DOWN].data};
    return clv_experts_backward(&args, &gradients, err);
}

static const clv_expert_rows gradient_rows = {
    .ids = IDS, .experts = DOWN, .in = 1u << X | 1u << D_Y, .out = 1u << D_X, .pack = pack};

const clv_op_def clv_op_experts_gradient = {
    .name = "experts_gradient",
    .display_name = "the gradient of the experts",
    CLV_ARITY(BACKWARD_IN, BACKWARD_IN, BACKWARD_OUT),
    CLV_ATTRS(experts_attrs, fields),
    .shape = gradient_shape,
    .rule = gradient_rule,
    .cost = gradient_cost,
    .workspace = gradient_workspace,
    .run = gradient_run,
    .counts_flops = true,
    .traits = &(const clv_op_traits){.recomputed_flops = (double)RECOMPUTED_PRODUCTS / GRADIENT_PRODUCTS,
                                     .rates_of = "dot_general",
                                     .rounds_inside = true,
                                     .expert_rows = &gradient_rows},
};

/* ---- experts ---- */

static clv_status experts_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_operands(op, in, err));
    out[0] = in[X];
    return CLV_OK;
}

static void experts_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const expert_factors f = map_operands(rule, in, CLV_REDUCTION_NONE);
    map_rows(clv_rule_result_dim, rule, 0, &f);
    clv_rule_multilinear(rule, 1u << WEIGHTS | 1u << DOWN);
}

static clv_op_cost experts_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return cost_of(op, in, out, FORWARD_PRODUCTS);
}

static size_t workspace_of(const clv_op *op, const clv_view *in, const clv_view *out)
{
    clv_experts_args args = args_of(op, in);
    return clv_experts_workspace(&args, false);
}

static clv_status experts_run(const clv_call *call, clv_error *err)
{
    clv_experts_args args = args_of_call(call);
    return clv_experts_forward(&args, call->out[0].data, err);
}

static void experts_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    experts_attrs attrs = *(const experts_attrs *)op->attrs;
    clv_value in[BACKWARD_IN], out[BACKWARD_OUT];
    for (int i = 0; i < FORWARD_IN; i++)
        in[i] = clv_op_operand(op, i);
    in[D_Y] = d_out[0];
    const clv_dtype dtype = clv_graph_type(graph, in[X]).dtype;
    clv_graph_emit(graph, &clv_op_experts_gradient, &attrs, in, BACKWARD_IN, out);
    d_in[X] = out[D_X];
    d_in[WEIGHTS] = out[D_WEIGHTS];
    d_in[GATE_UP] = clv_cast(graph, out[D_GATE_UP], dtype);
    d_in[DOWN] = clv_cast(graph, out[D_DOWN], dtype);
}

static const clv_expert_rows forward_rows = {.ids = IDS, .experts = DOWN, .in = 1u << X, .out = 1u << 0, .pack = pack};

const clv_op_def clv_op_experts = {
    .name = "experts",
    CLV_ARITY(FORWARD_IN, FORWARD_IN, 1),
    CLV_ATTRS(experts_attrs, fields),
    .shape = experts_shape,
    .rule = experts_rule,
    .gradient = experts_gradient,
    .cost = experts_cost,
    .workspace = workspace_of,
    .run = experts_run,
    .counts_flops = true,
    .traits = &(const clv_op_traits){.rates_of = "dot_general", .expert_rows = &forward_rows},
};

/* ---- quant_experts ---- */

/* Integers of these dimensions, with their scales. */
static bool are_blocks(const clv_type *ints, const clv_type *scales, const clv_type *want)
{
    clv_type of_scales = *want;
    of_scales.dtype = CLV_F16;
    of_scales.rank--;
    return clv_type_equal(ints, want) && clv_type_equal(scales, &of_scales);
}

static clv_status quant_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const experts_attrs *a = op->attrs;
    if (a->quant != CLV_QUANT_Q8 && a->quant != CLV_QUANT_Q4)
        return clv_fail(err, CLV_EINVAL, "blocks of kind %d; valid: q8 or q4", a->quant);
    CLV_TRY(check_rows(op, in, err));
    const int64_t bytes = clv_quant_block_bytes((clv_quant)a->quant), width = in[X].shape[in[X].rank - 1];
    const int64_t blocks = in[DOWN_INTS].rank == 4 ? in[DOWN_INTS].shape[2] : 0;
    const clv_type up = {
        .dtype = CLV_U8, .rank = 5, .shape = {a->experts, 2, blocks * CLV_QUANT_BLOCK, width / CLV_QUANT_BLOCK, bytes}};
    const clv_type down = {.dtype = CLV_U8, .rank = 4, .shape = {a->experts, width, blocks, bytes}};
    if (width % CLV_QUANT_BLOCK != 0 || !are_blocks(&in[UP_INTS], &in[UP_SCALES], &up) ||
        !are_blocks(&in[DOWN_INTS], &in[DOWN_SCALES], &down))
        return clv_fail(err, CLV_ESHAPE,
                        "gate_up is %s, down is %s, x is %s; valid: u8 [E,2,F,M/32,%lld] and [E,M,F/32,%lld], scales "
                        "f16 without the last dimension",
                        clv_type_string(&in[UP_INTS]).text, clv_type_string(&in[DOWN_INTS]).text,
                        clv_type_string(&in[X]).text, (long long)bytes, (long long)bytes);
    out[0] = in[X];
    return CLV_OK;
}

static void quant_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    expert_factors f = {.rows = in[X].rank - 1};
    for (int d = 0; d < f.rows; d++)
        clv_rule_add_factor(rule, in[X].shape[d], CLV_REDUCTION_NONE);
    f.experts = clv_rule_add_factor(rule, in[DOWN_INTS].shape[0], CLV_REDUCTION_SUM);
    f.ffn = clv_rule_add_factor(rule, in[DOWN_INTS].shape[2], CLV_REDUCTION_SUM);
    const int block = clv_rule_add_factor(rule, CLV_QUANT_BLOCK, CLV_REDUCTION_NONE);
    clv_rule_name_factor(rule, f.experts, "experts");
    clv_rule_name_factor(rule, f.ffn, "ffn");
    clv_rule_forbid_split(rule, block);
    for (int i = X; i <= WEIGHTS; i++)
        map_rows(clv_rule_operand_dim, rule, i, &f);
    for (int i = UP_INTS; i <= DOWN_SCALES; i++) {
        clv_rule_operand_dim(rule, i, 0, f.experts);
        clv_rule_operand_dim(rule, i, 2, f.ffn);
        if (i <= UP_SCALES)
            clv_rule_operand_dim(rule, i, 2, block);
    }
    map_rows(clv_rule_result_dim, rule, 0, &f);
    clv_rule_multilinear(rule, 1u << WEIGHTS);
}

static clv_op_cost quant_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return cost_by(op, in, out, FORWARD_PRODUCTS, DOWN_SCALES - UP_INTS + 1, in[UP_INTS].shape[2]);
}

static clv_experts_args quant_args(const clv_op *op, const clv_view *in)
{
    clv_experts_args args = args_of(op, in);
    args.quant = (clv_quant)((const experts_attrs *)op->attrs)->quant;
    args.global_rows = clv_shape_product(in[IDS].global, 0, in[IDS].rank - 1);
    args.first = in[DOWN_INTS].lo[0];
    args.experts = in[DOWN_INTS].shape[0];
    args.ffn = in[UP_INTS].shape[2];
    args.gate_up = in[UP_INTS].data;
    args.gate_up_scales = in[UP_SCALES].data;
    args.down = in[DOWN_INTS].data;
    args.down_scales = in[DOWN_SCALES].data;
    return args;
}

static size_t quant_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    clv_experts_args args = quant_args(op, in);
    return clv_experts_workspace(&args, false);
}

static clv_status quant_run(const clv_call *call, clv_error *err)
{
    clv_experts_args args = quant_args(call->op, call->in);
    args.workspace = call->workspace;
    args.work = clv_call_task_pool_member(call);
    return clv_experts_forward(&args, call->out[0].data, err);
}

static const clv_expert_rows quant_rows = {
    .ids = IDS, .experts = DOWN_INTS, .in = 1u << X, .out = 1u << 0, .pack = pack};

const clv_op_def clv_op_quant_experts = {
    .name = "quant_experts",
    .display_name = "the experts, of quantised weights",
    CLV_ARITY(QUANTIZED_IN, QUANTIZED_IN, 1),
    CLV_ATTRS(experts_attrs, quant_fields),
    .shape = quant_shape,
    .rule = quant_rule,
    .cost = quant_cost,
    .workspace = quant_workspace,
    .run = quant_run,
    .counts_flops = true,
    .traits = &(const clv_op_traits){.rates_of = "dot_general", .expert_rows = &quant_rows},
};

clv_value clv_quantized_experts(clv_graph *graph, clv_quant quant, clv_value x, clv_value ids, clv_value weights,
                                const clv_value gate_up[2], const clv_value down[2], clv_unary_kind activation)
{
    experts_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.activation = (int)activation;
    attrs.experts = clv_graph_type(graph, down[0]).shape[0];
    attrs.quant = (int)quant;
    clv_value in[] = {x, ids, weights, gate_up[0], gate_up[1], down[0], down[1]};
    return clv_graph_emit_one(graph, &clv_op_quant_experts, &attrs, in, QUANTIZED_IN);
}

/* ---- builders ---- */

clv_value clv_experts(clv_graph *graph, clv_value x, clv_value ids, clv_value weights, clv_value gate_up,
                      clv_value down, clv_unary_kind activation)
{
    if (!clv_graph_require_gated_activation(graph, "experts", (int)activation))
        return CLV_NONE;
    experts_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.activation = (int)activation;
    attrs.experts = clv_graph_type(graph, down).shape[0];
    clv_value in[] = {x, ids, weights, gate_up, down};
    return clv_graph_emit_one(graph, &clv_op_experts, &attrs, in, FORWARD_IN);
}
