/* test_op_template.c - a complete small op, leaky_relu, and its test: copy it to add an op (docs/contributing/op.md).
 *
 * The first part is what src/ops/<name>.c contains, the second what tests/test_ops_*.c contains. In src/ops the two
 * definitions are not static, are called clv_op_<name>, and are listed in src/ops/builtin_ops.h.
 *
 *   leaky_relu:           y = x > 0 ? x : slope * x                      factors: all pass; not linear
 *   leaky_relu_gradient:  d_x = x > 0 ? d_y : slope * d_y                factors: all pass; linear in d_y
 */
#include <string.h>

#include "graph/graph.h"
#include "graph_interpreter.h"
#include "must.h"
#include "ops/operand_checks.h"
#include "unit_test.h"

/* ======== part 1, src/ops: the op ======== */

typedef struct leaky_relu_attrs {
    double slope;
} leaky_relu_attrs;

static const clv_attr attr_table[] = {CLV_FIELD(DOUBLE, leaky_relu_attrs, slope), {0}};

static double slope_of(const clv_op *op)
{
    return ((const leaky_relu_attrs *)op->attrs)->slope;
}

/* ---- leaky_relu_gradient: d_y, x -> d_x ---- */

static clv_status gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_float("d_y", &in[0], err));
    CLV_TRY(clv_check_same_shape("d_y", &in[0], "x", &in[1], err));
    out[0] = in[0];
    return CLV_OK;
}

static void gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
    clv_rule_multilinear(rule, 1u << 0); /* a partial d_y gives a partial d_x: no reduction in between */
}

static clv_status gradient_run(const clv_call *call, clv_error *err)
{
    const clv_view *d_y = &call->in[0], *x = &call->in[1], *d_x = &call->out[0];
    for (int64_t i = 0; i < clv_view_elems(d_x); i++) {
        double d = clv_dtype_load(d_y->dtype, d_y->data, i);
        bool positive = clv_dtype_load(x->dtype, x->data, i) > 0;
        clv_dtype_store(d_x->dtype, d_x->data, i, positive ? d : slope_of(call->op) * d);
    }
    return CLV_OK;
}

static const clv_op_def op_leaky_relu_gradient = {
    .name = "template.leaky_relu_gradient",
    .display_name = "the gradient of leaky relu",
    CLV_ARITY(2, 2, 1),
    CLV_ATTRS(leaky_relu_attrs, attr_table),
    .shape = gradient_shape,
    .rule = gradient_rule,
    .in_place = {1 + 0}, /* d_x may overwrite d_y */
    .run = gradient_run,
};

/* ---- leaky_relu: x -> y ---- */

static clv_status leaky_relu_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = in[0];
    return clv_check_float("x", &in[0], err);
}

static clv_status leaky_relu_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *y = &call->out[0];
    for (int64_t i = 0; i < clv_view_elems(y); i++) {
        double value = clv_dtype_load(x->dtype, x->data, i);
        clv_dtype_store(y->dtype, y->data, i, value > 0 ? value : slope_of(call->op) * value);
    }
    return CLV_OK;
}

static void leaky_relu_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    leaky_relu_attrs attrs = *(const leaky_relu_attrs *)op->attrs; /* a copy: emitting moves graph->ops */
    clv_value in[] = {d_out[0], clv_op_operand(op, 0)};
    d_in[0] = clv_graph_emit_one(graph, &op_leaky_relu_gradient, &attrs, in, 2);
}

static clv_op_cost leaky_relu_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.flops = (double)clv_type_elems(&in[0]), .bytes = clv_op_traffic_bytes(op, in, out)};
}

static const clv_op_def op_leaky_relu = {
    .name = "template.leaky_relu",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(leaky_relu_attrs, attr_table),
    .shape = leaky_relu_shape,
    .rule = clv_op_rule_elementwise,
    .gradient = leaky_relu_gradient,
    .cost = leaky_relu_cost,
    .in_place = {1 + 0},
    .run = leaky_relu_run,
};

/* The builder, which cleave/graph.h declares. */
static clv_value leaky_relu(clv_graph *graph, clv_value x, double slope)
{
    leaky_relu_attrs attrs;
    memset(&attrs, 0, sizeof attrs); /* padding too: attributes are compared by bytes */
    attrs.slope = slope;
    if (!(slope >= 0 && slope < 1))
        return clv_graph_fail(graph, CLV_EINVAL, "leaky_relu: slope is %g; 0 <= slope < 1 is needed", slope);
    return clv_graph_emit_one(graph, &op_leaky_relu, &attrs, &x, 1);
}

/* ======== part 2, tests: the test ======== */

/* Values against a plain loop. */
static void test_values(void **state)
{
    static const double x[] = {-2, -0.5, 0, 1, 3}, expected[] = {-0.5, -0.125, 0, 1, 3};
    clv_graph *graph = must_graph("model=1");
    clv_value in = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){5}, NULL), y = leaky_relu(graph, in, 0.25);
    graph_eval *eval = graph_eval_new(graph, 1);
    graph_eval_fill(eval, in, x);
    graph_eval_must_run(eval, -1);
    for (int i = 0; i < 5; i++)
        assert_true(graph_eval_get(eval, y, i) == expected[i]);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

/* The gradient against central differences, and the rules of all ops, gradients among them, against runs on parts. */
static void test_gradient(void **state)
{
    clv_graph *graph = must_graph("model=1");
    clv_value x = clv_input(graph, "x", CLV_F64, 2, (int64_t[]){3, 5}, NULL);
    assert_true(check_gradient(graph, leaky_relu(graph, x, 0.25), &x, 1, NULL, NULL) > 0);
    clv_graph_free(graph);
}

/* What the definition states: results on shards, partial operands, in place, for each dtype. */
static void test_definition(void **state)
{
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16, CLV_F16};
    const leaky_relu_attrs attrs = {.slope = 0.25};
    for (int i = 0; i < 4; i++) {
        const clv_type in[] = {{dtypes[i], 2, {3, 5}}, {dtypes[i], 2, {3, 5}}};
        clv_error err = {0};
        if (clv_op_check(&op_leaky_relu, &attrs, in, 1, NULL, NULL, &err) != CLV_OK ||
            clv_op_check(&op_leaky_relu_gradient, &attrs, in, 2, NULL, NULL, &err) != CLV_OK)
            fail_msg("%s: %s", clv_dtype_name(dtypes[i]), err.message);
    }
}

static void test_refused(void **state)
{
    clv_error err = {0};
    clv_graph *graph = must_graph("model=1");
    assert_false(clv_valid(leaky_relu(graph, clv_input(graph, "x", CLV_F32, 0, NULL, NULL), 2)));
    assert_int_equal(clv_graph_status(graph, &err), CLV_EINVAL);
    clv_graph_free(graph);
    graph = must_graph("model=1");
    assert_false(clv_valid(leaky_relu(graph, clv_input(graph, "x", CLV_I32, 0, NULL, NULL), 0.25)));
    assert_int_equal(clv_graph_status(graph, &err), CLV_EDTYPE);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_gradient),
                                       cmocka_unit_test(test_definition), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
