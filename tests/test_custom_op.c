/* test_custom_op.c - ops that the library does not know (cleave/op.h): run, split, differentiated, checked and named
 * like others; defs and rules that do not hold, which get errors; the registry. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/cleave.h"
#include "elementwise_op.h"
#include "graph_interpreter.h"
#include "must.h"
#include "unit_test.h"

/* ---- mix: y = s * x * w, or s * x without w; elementwise, in place, with a workspace that it goes through ---- */

typedef struct mix_attrs {
    double s;
    char tag[8];
} mix_attrs;

static const clv_attr mix_fields[] = {
    {"s", CLV_ATTR_DOUBLE, offsetof(mix_attrs, s), 1}, {"tag", CLV_ATTR_TEXT, offsetof(mix_attrs, tag), 8}, {0}};

static clv_status mix_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    if (!clv_dtype_is_float(in[0].dtype))
        return clv_fail(err, CLV_EDTYPE, "x is %s; a float is needed", clv_dtype_name(in[0].dtype));
    if (clv_valid(clv_op_operand(op, 1)) && !clv_type_equal(&in[0], &in[1]))
        return clv_fail(err, CLV_ESHAPE, "x and w differ");
    out[0] = in[0];
    return CLV_OK;
}

static size_t mix_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return (size_t)clv_view_elems(&in[0]) * sizeof(double);
}

static clv_op_cost mix_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    double n = (double)clv_type_elems(&out[0]);
    return (clv_op_cost){.flops = 2 * n, .bytes = 3 * n * (double)clv_dtype_size(out[0].dtype)};
}

static clv_status mix_run(const clv_call *call, clv_error *err)
{
    const mix_attrs *a = clv_op_attrs(call->op);
    const clv_view *x = &call->in[0], *y = &call->out[0];
    double *scaled = call->workspace;
    int64_t n = clv_view_elems(y);
    for (int64_t i = 0; i < n; i++)
        scaled[i] = a->s * clv_dtype_load(x->dtype, x->data, i);
    for (int64_t i = 0; i < n; i++) {
        double w = clv_valid(clv_op_operand(call->op, 1)) ? clv_dtype_load(x->dtype, call->in[1].data, i) : 1;
        clv_dtype_store(y->dtype, y->data, i, scaled[i] * w);
    }
    return CLV_OK;
}

static void mix_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in);

/* Addends of x give addends of y. */
static void mix_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
    clv_rule_multilinear(rule, 1);
    for (int d = 0; d < out[0].rank; d++)
        clv_rule_name_factor(rule, d, d == 0 ? "rows of mix" : NULL);
}

static const clv_op_def mix = {.size = sizeof(clv_op_def),
                               .name = "test.mix",
                               .min_in = 1,
                               .max_in = 2,
                               .n_out = 1,
                               .in_place = {1},
                               .attrs_size = sizeof(mix_attrs),
                               .attrs = mix_fields,
                               .shape = mix_shape,
                               .rule = mix_rule,
                               .gradient = mix_gradient,
                               .cost = mix_cost,
                               .workspace = mix_workspace,
                               .run = mix_run};

static clv_value mixed(clv_graph *graph, clv_value x, clv_value w, double s)
{
    mix_attrs a;
    clv_value in[2] = {x, w}, y;
    memset(&a, 0, sizeof a);
    a.s = s;
    memcpy(a.tag, "a tag", 6);
    clv_emit(graph, &mix, &a, in, 2, &y);
    return y;
}

/* Of itself: it is linear in both. */
static void mix_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    double s = ((const mix_attrs *)clv_op_attrs(op))->s;
    d_in[0] = mixed(graph, d_out[0], clv_op_operand(op, 1), s);
    if (clv_valid(clv_op_operand(op, 1)))
        d_in[1] = mixed(graph, d_out[0], clv_op_operand(op, 0), s);
}

/* ---- dot: y[n] = sum over f of x[n,f]: its split gives partial sums; two results, the other their maximum ---- */

static clv_status rows_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    if (in[0].rank != 2)
        return clv_fail(err, CLV_ESHAPE, "x[N,F] is needed");
    out[0] = (clv_type){.dtype = in[0].dtype, .rank = 1, .shape = {in[0].shape[0]}};
    return CLV_OK;
}

static void rows_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    int n = clv_rule_add_factor(rule, in[0].shape[0], CLV_REDUCTION_NONE),
        f = clv_rule_add_factor(rule, in[0].shape[1], CLV_REDUCTION_SUM);
    clv_rule_operand_dim(rule, 0, 0, n);
    clv_rule_operand_dim(rule, 0, 1, f);
    clv_rule_result_dim(rule, 0, 0, n);
    clv_rule_multilinear(rule, 1);
}

static clv_status rows_run(const clv_call *call, clv_error *err)
{
    int64_t columns = call->in[0].shape[1];
    for (int64_t n = 0; n < call->out[0].shape[0]; n++) {
        double sum = 0;
        for (int64_t f = 0; f < columns; f++)
            sum += clv_dtype_load(call->in[0].dtype, call->in[0].data, n * columns + f);
        clv_dtype_store(call->out[0].dtype, call->out[0].data, n, sum);
    }
    return CLV_OK;
}

static void rows_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_type x = clv_graph_type(graph, clv_op_operand(op, 0));
    clv_value ones = clv_fill(graph, x.dtype, 1, &x.shape[1], 1);
    d_in[0] = clv_einsum(graph, "n,f->nf", d_out[0], ones);
}

static const clv_op_def rows = {.name = "test.rows",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 1,
                                .shape = rows_shape,
                                .rule = rows_rule,
                                .gradient = rows_gradient,
                                .run = rows_run};

static clv_value summed(clv_graph *graph, clv_value x)
{
    clv_value y;
    clv_emit(graph, &rows, NULL, &x, 1, &y);
    return y;
}

/* ---- helpers ---- */

enum { N = 6, F = 10 };
static const int64_t wide[2] = {N, F};

static void must_be_ok(clv_graph *graph)
{
    clv_error err = {0};
    if (clv_graph_status(graph, &err) != CLV_OK)
        fail_msg("%s", err.message);
}

/* The graph has failed so; then it is freed. */
static void must_have_failed(clv_graph *graph, clv_status code, const char *text)
{
    clv_error err = {0};
    clv_graph_status(graph, &err);
    if (err.code != code || !strstr(err.message, text))
        fail_msg("%s: '%s'; expected %s: '%s'", clv_status_name(err.code), err.message, clv_status_name(code), text);
    clv_graph_free(graph);
}

/* ---- they work ---- */

static void test_rules_and_gradients(void **state)
{
    clv_graph *graph = must_graph("x=1");
    clv_value in[] = {clv_input(graph, "x", CLV_F64, 2, wide, NULL), clv_input(graph, "w", CLV_F64, 2, wide, NULL)};
    clv_value y = summed(graph, mixed(graph, mixed(graph, in[0], in[1], 0.5), CLV_NONE, 3));
    must_be_ok(graph);
    assert_true(check_gradient(graph, y, in, 2, NULL, NULL) > 20);
    clv_graph_free(graph);
}

/* The ops by themselves and the same of the library's, with all gradients: what they differ by. */
static double differ_on(const char *mesh_text, const char *x_layout, const char *w_layout, clv_dtype dtype)
{
    clv_graph *graph = must_graph(mesh_text);
    clv_error err = {0};
    clv_layout xl = clv_graph_layout(graph, 2, x_layout), wl = clv_graph_layout(graph, 2, w_layout);
    clv_value in[] = {clv_state(graph, "x", dtype, 2, wide, &xl, (clv_init){CLV_INIT_NORMAL, 1}),
                      clv_state(graph, "w", dtype, 2, wide, &wl, (clv_init){CLV_INIT_NORMAL, 1})};
    clv_value y[2], d[2][2], worst = CLV_NONE;
    y[0] = summed(graph, mixed(graph, mixed(graph, in[0], in[1], 0.5), CLV_NONE, 4));
    y[1] = clv_reduce(graph, CLV_SUM, clv_scale(graph, clv_mul(graph, in[0], in[1]), 2), (int[]){1}, 1, false);
    for (int k = 0; k < 2; k++)
        clv_gradients(graph, y[k], y[1], in, 2, d[k]);
    for (int i = 0; i < 2; i++) {
        clv_value off = clv_sub(graph, d[0][i], d[1][i]);
        off = clv_reduce(graph, CLV_MAX, clv_mul(graph, off, off), (int[]){0, 1}, 2, false);
        worst = worst.id ? clv_binary(graph, CLV_MAXIMUM, worst, off) : off;
    }
    clv_value off = clv_sub(graph, y[0], y[1]);
    off = clv_reduce(graph, CLV_MAX, clv_mul(graph, off, off), (int[]){0}, 1, false);
    clv_output(graph, "worst", clv_cast(graph, clv_binary(graph, CLV_MAXIMUM, worst, off), CLV_F64), NULL);

    clv_program *program = NULL;
    clv_session *session = NULL;
    double result = -1;
    clv_session_options options = {.check = 1};
    if (clv_compile(&program, graph, NULL, &err) != CLV_OK ||
        clv_session_new(&session, clv_graph_mesh(graph), &options, &err) != CLV_OK ||
        clv_session_run(session, program, NULL, 0, &(clv_output_binding){"worst", &result}, 1, &err) != CLV_OK)
        fail_msg("%s, x %s, w %s: %s", mesh_text, x_layout, w_layout, err.message);
    clv_graph_free(graph); /* a program needs none */
    if (clv_session_run(session, program, NULL, 0, &(clv_output_binding){"worst", &result}, 1, &err) != CLV_OK)
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
    return result;
}

static void test_same_as_the_librarys(void **state)
{
    static const struct {
        const char *mesh, *x, *w;
    } cases[] = {
        {"m=1", "_,_", "_,_"},  {"m=2", "_,m", "_,m"},         {"m=3", "_,m", "_,m"},
        {"m=4", "_,m", "_,_"},  {"m=5", "m,_", "_,m"},         {"m=7", "_,_", "m,_"},
        {"m=11", "_,m", "_,m"}, {"d=2,m=2", "d,m", "_,(d,m)"}, {"d=3,m=2", "m,d", "d,m"},
    };
    static const struct {
        clv_dtype dtype;
        double tolerance;
    } dtypes[] = {{CLV_F64, 1e-24}, {CLV_F32, 1e-8}, {CLV_BF16, 0.3}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
            double worst = differ_on(cases[c].mesh, cases[c].x, cases[c].w, dtypes[t].dtype);
            if (!(worst >= 0 && worst <= dtypes[t].tolerance))
                fail_msg("%s, x %s, w %s, %s: %g", cases[c].mesh, cases[c].x, cases[c].w,
                         clv_dtype_name(dtypes[t].dtype), worst);
        }
}

/* A loss may be its own seed, and two values each other's: the search for a cotangent's primal ends. */
static void test_seeds_that_are_losses(void **state)
{
    clv_graph *graph = must_graph("m=2");
    clv_error err = {0};
    clv_program *program;
    clv_layout cut = clv_graph_layout(graph, 2, "_,m");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, wide, &cut), d[3];
    clv_value a = summed(graph, mixed(graph, x, CLV_NONE, 2)), b = summed(graph, mixed(graph, x, CLV_NONE, 3));
    clv_gradients(graph, a, a, &x, 1, &d[0]);
    clv_gradients(graph, a, b, &x, 1, &d[1]);
    clv_gradients(graph, b, a, &x, 1, &d[2]);
    for (int i = 0; i < 3; i++)
        clv_output(graph, (const char *[]){"0", "1", "2"}[i], d[i], NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* A sum over a split dimension costs one reduction, reported with the op's name; explain prints its factor's. */
static void test_named_by_reports(void **state)
{
    clv_graph *graph = must_graph("m=2");
    clv_error err = {0};
    clv_program *program;
    clv_layout cut = clv_graph_layout(graph, 2, "_,m");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, wide, &cut);
    clv_graph_push_scope(graph, "layers.3");
    clv_value y = summed(graph, mixed(graph, x, CLV_NONE, 2));
    clv_graph_pop_scope(graph);
    clv_output(graph, "y", y, NULL);
    assert_int_equal(clv_compile(&program, graph, &(clv_compile_options){.explain = "test.mix"}, &err), CLV_OK);
    static char text[1 << 14];
    assert_true(clv_program_print(text, sizeof text, program) < sizeof text);
    assert_non_null(strstr(text, " = layers.3.test.mix(%0, _) "));
    assert_non_null(strstr(text, " = layers.3.test.rows(%1) "));
    assert_int_equal(clv_program_collective_count(program), 1);
    clv_collective collective = {.size = sizeof collective};
    must(clv_program_collective(program, 0, &collective, &err), &err);
    assert_string_equal(collective.kind, "all_reduce");
    assert_string_equal(collective.tensor, "layers.3.test.rows");
    clv_program_free(program);
    clv_graph_free(graph);
}

/* Equal ops are solved once, whatever lies between the fields of their defs; others by their attributes. */
static void test_attributes_differ(void **state)
{
    clv_graph *graph = must_graph("m=2");
    clv_error err = {0};
    clv_program *program;
    clv_session *session;
    double x[N * F], y[2][N * F];
    for (int i = 0; i < N * F; i++)
        x[i] = i;
    clv_value in = clv_input(graph, "x", CLV_F64, 2, wide, NULL);
    clv_output(graph, "y0", mixed(graph, in, CLV_NONE, 2), NULL);
    clv_output(graph, "y1", mixed(graph, in, CLV_NONE, 3), NULL);
    assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_OK);
    assert_int_equal(clv_session_new(&session, clv_graph_mesh(graph), NULL, &err), CLV_OK);
    clv_output_binding out[] = {{"y0", y[0]}, {"y1", y[1]}};
    assert_int_equal(clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, out, 2, &err), CLV_OK);
    for (int i = 0; i < N * F; i++)
        assert_true(y[0][i] == 2 * i && y[1][i] == 3 * i);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* The example's op against the same by the library's, on 1 to 4 ranks. */
static void test_example(void **state)
{
    const char *build = getenv("CLV_BUILD_DIR");
    char line[4200];
    for (int ranks = 1; ranks <= 4; ranks++) {
        snprintf(line, sizeof line, "'%s/examples/custom_op' model=%d threads | grep -qx 'the same'",
                 build ? build : "build", ranks);
        assert_int_equal(system(line), 0);
    }
    snprintf(line, sizeof line, "'%s/examples/custom_op' model=2 none | grep -q transport", build ? build : "build");
    assert_int_equal(system(line), 0);
}

/* ---- defs that do not hold ---- */

static clv_status says_nothing(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    return CLV_ESHAPE;
}
static clv_status too_large(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = (clv_type){.dtype = CLV_F32, .rank = 99};
    return CLV_OK;
}
static void nothing_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
}
static clv_status left_with;
static clv_status leave(const clv_call *call, clv_error *err)
{
    return left_with; /* without a message */
}
static clv_op_cost told = {.flops = -1};
static clv_op_cost as_told(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return told;
}

#define GOOD                                                                                                           \
    .size = sizeof(clv_op_def), .name = "test.hostile", .min_in = 1, .max_in = 1, .n_out = 1, .shape = same_shape,     \
    .rule = nothing_rule, .run = leave

static const clv_attr outside[] = {{"a", CLV_ATTR_INT64, 4, 1}, {0}},
                      kindless[] = {{"a", (clv_attr_kind)99, 0, 1}, {0}},
                      many[] = {{"a", CLV_ATTR_INT, 0, INT32_MAX}, {0}}, negative[] = {{"a", CLV_ATTR_INT, 0, -9}, {0}},
                      unnamed[] = {{"a", CLV_ATTR_INT, 0, 1}, {"", CLV_ATTR_INT, 4, 1}, {0}},
                      escapes[] = {{"a\x1b[31m", CLV_ATTR_INT, 0, 1}, {0}},
                      twice[] = {{"a", CLV_ATTR_INT, 0, 1}, {"a", CLV_ATTR_INT, 4, 1}, {0}};

static void test_bad_definitions(void **state)
{
#define ALMOST(...)                                                                                                    \
    (clv_op_def)                                                                                                       \
    {                                                                                                                  \
        GOOD, __VA_ARGS__                                                                                              \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
    const struct {
        clv_op_def def;
        clv_status code;
        const char *text;
    } cases[] = {
        {ALMOST(.name = NULL), CLV_EINVAL, "NULL is not a valid op name"},
        {ALMOST(.name = ""), CLV_EINVAL, "is not a valid op name"},
        {ALMOST(.name = "two display_name"), CLV_EINVAL, "'two display_name' is not a valid op name"},
        {ALMOST(.name = "a234567890123456789012345678901234567890123456789012345678901234"), CLV_EINVAL, "1 to 63"},
        {ALMOST(.name = "softmax"), CLV_EEXIST, "a built-in op"},
        {ALMOST(.shape = NULL), CLV_EINVAL, "'test.hostile' has no shape"},
        {ALMOST(.rule = NULL), CLV_EINVAL, "has no rule"},
        {ALMOST(.run = NULL), CLV_EINVAL, "has no run, its kernel"},
        {ALMOST(.min_in = -1), CLV_EINVAL, "takes -1 to 1 operands"},
        {ALMOST(.min_in = 2), CLV_EINVAL, "takes 2 to 1 operands"},
        {ALMOST(.max_in = 9), CLV_EINVAL, "max_in <= 8"},
        {ALMOST(.n_out = 0), CLV_EINVAL, "has 0 results; valid: n_out from 1 to 4"},
        {ALMOST(.n_out = 5), CLV_EINVAL, "has 5 results"},
        {ALMOST(.in_place = {2}), CLV_EINVAL, "in_place[0] is 2"},
        {ALMOST(.in_place = {-1}), CLV_EINVAL, "in_place[0] is -1"},
        {ALMOST(.in_place = {0, 1}), CLV_EINVAL, "in_place[1] is 1"},
        {ALMOST(.counts_flops = true), CLV_EINVAL, "counts_flops, but has no cost function"},
        {ALMOST(.n_out = 3, .in_place = {1, 0, 1}), CLV_EINVAL, "in_place gives operand 0 to two results"},
        {ALMOST(.attrs_size = SIZE_MAX), CLV_ELIMIT, "attributes of"},
        {ALMOST(.attrs_size = 8, .attrs = outside), CLV_EINVAL, "'a' lies outside attrs_size, 8 bytes"},
        {ALMOST(.attrs_size = 8, .attrs = kindless), CLV_EINVAL, "'a' has an unknown kind (99)"},
        {ALMOST(.attrs_size = 8, .attrs = many), CLV_EINVAL, "'a' lies outside"},
        {ALMOST(.attrs_size = 8, .attrs = negative), CLV_EINVAL, "'a' counts -9; valid: 0 and above"},
        {ALMOST(.attrs_size = 8, .attrs = unnamed), CLV_EINVAL, "attribute 1 has no valid name"},
        {ALMOST(.attrs_size = 8, .attrs = escapes), CLV_EINVAL, "attribute 0 has no valid name"},
        {ALMOST(.attrs_size = 8, .attrs = twice), CLV_EINVAL, "two attributes are called 'a'"},
        {ALMOST(.traits = (const struct clv_op_traits *)&kindless), CLV_EINVAL, "`traits` is for built-in ops"},
        {ALMOST(.size = 8), CLV_EINVAL, "a struct whose size is 8"},
    };
#pragma GCC diagnostic pop
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        clv_error err = {0};
        clv_graph *graph = must_graph("m=2");
        clv_value x = clv_input(graph, "x", CLV_F32, 2, wide, NULL), out[5] = {{7}};
        if (clv_op_register(&cases[c].def, &err) != cases[c].code || !strstr(err.message, cases[c].text))
            fail_msg("%s: '%s'; expected '%s'", clv_status_name(err.code), err.message, cases[c].text);
        clv_emit(graph, &cases[c].def, NULL, &x, 1, out);
        must_have_failed(graph, cases[c].code, cases[c].text);
    }
    assert_null(clv_op_find("test.hostile"));
}

/* What people call ops: what each says of itself, else its name; of the library, all that no user of it states. */
static void test_words(void **state)
{
    clv_op_def named = {GOOD};
    named.name = "test.named";
    named.display_name = "the square";
    assert_int_equal(clv_op_register(&named, NULL), CLV_OK);
    assert_string_equal(clv_op_display_name(clv_op_find("test.named")), "the square");
    assert_string_equal(clv_op_display_name(NULL), "");
    for (const clv_op_def *op = clv_op_next(NULL); op; op = clv_op_next(op))
        if (strncmp(op->name, "test.", 5) != 0 && strstr(op->name, "_gradient") &&
            !strchr(clv_op_display_name(op), ' '))
            fail_msg("%s has no display_name", op->name);
}

/* A program of a later version: what this one does not know may be zero, and only then. */
static void test_versions(void **state)
{
    struct {
        clv_op_def def;
        void *later;
    } newer = {.def = {GOOD}};
    clv_error err = {0};
    newer.def.size = sizeof newer;
    newer.def.name = "test.newer";
    newer.later = &newer;
    assert_int_equal(clv_op_register(&newer.def, &err), CLV_EUNSUPPORTED);
    assert_null(clv_op_find("test.newer"));
    newer.later = NULL;
    assert_int_equal(clv_op_register(&newer.def, NULL), CLV_OK);
    assert_int_equal(clv_op_find("test.newer")->size, sizeof(clv_op_def));
}

static void emit_hostile(clv_graph *graph, const clv_op_def *def, const void *attrs, int n_in, bool list)
{
    clv_value x = clv_input(graph, "x", CLV_F32, 2, wide, NULL), in[2] = {x, x}, out[CLV_MAX_OUT] = {{7}, {7}};
    must_be_ok(graph);
    clv_emit(graph, def, attrs, list ? in : NULL, n_in, out);
    assert_int_equal(out[0].id, 0);
}

static void test_bad_calls(void **state)
{
    static const clv_op_def silent = {.name = "test.silent",
                                      .min_in = 1,
                                      .max_in = 1,
                                      .n_out = 1,
                                      .shape = says_nothing,
                                      .rule = nothing_rule,
                                      .run = leave},
                            large = {.name = "test.large",
                                     .min_in = 1,
                                     .max_in = 1,
                                     .n_out = 1,
                                     .shape = too_large,
                                     .rule = nothing_rule,
                                     .run = leave},
                            costly = {.name = "test.costly",
                                      .min_in = 1,
                                      .max_in = 1,
                                      .n_out = 1,
                                      .shape = same_shape,
                                      .rule = nothing_rule,
                                      .cost = as_told,
                                      .run = leave};
    const struct {
        const clv_op_def *def;
        const void *attrs;
        int n_in;
        bool list;
        clv_status code;
        const char *text;
    } cases[] = {
        {NULL, NULL, 1, true, CLV_EINVAL, "clv_emit: an op's definition, and room for its results must not be NULL"},
        {&mix, NULL, 1, true, CLV_EINVAL, "'test.mix' has 16 bytes of attributes; none are given"},
        {&rows, &mix, 1, true, CLV_EINVAL, "'test.rows' has 0 bytes of attributes; some are given"},
        {&rows, NULL, -1, true, CLV_EINVAL, "-1 operands"},
        {&rows, NULL, 1, false, CLV_EINVAL, "1 operands, and no list"},
        {&rows, NULL, 0, false, CLV_EINVAL, "takes at least 1 operands, 0 given"},
        {&rows, NULL, 2, true, CLV_EINVAL, "takes at most 1 operands, 2 given"},
        {clv_op_find("softmax"), NULL, 1, true, CLV_EINVAL, "'softmax' is built in: call its builder"},
        {clv_op_find("reduce"), NULL, 1, true, CLV_EINVAL, "'reduce' is built in"},
        {&silent, NULL, 1, true, CLV_ESHAPE, "test.silent: shapes do not fit together"},
        {&large, NULL, 1, true, CLV_ELIMIT, "test.large: a tensor of 99 dimensions"},
        {&costly, NULL, 1, true, CLV_EINVAL, "test.costly: it costs -1 flops"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        clv_graph *graph = must_graph("m=2");
        if (cases[c].def) {
            emit_hostile(graph, cases[c].def, cases[c].attrs, cases[c].n_in, cases[c].list);
        } else {
            clv_value x = clv_input(graph, "x", CLV_F32, 2, wide, NULL);
            clv_emit(graph, NULL, NULL, &x, 1, &x);
        }
        must_have_failed(graph, cases[c].code, cases[c].text);
    }
    static const clv_op_cost no_costs[] = {{-1, 0}, {0, -1}, {INFINITY, 0}, {0, INFINITY}, {NAN, 0}, {0, NAN}};
    for (size_t c = 0; c < sizeof no_costs / sizeof *no_costs; c++) {
        clv_graph *graph = must_graph("m=2");
        told = no_costs[c];
        emit_hostile(graph, &costly, NULL, 1, true);
        must_have_failed(graph, CLV_EINVAL, "test.costly: it costs ");
    }
    clv_graph *graph = must_graph("m=2");
    emit_hostile(graph, &costly, NULL, 1, true);
    assert_int_equal(clv_graph_clear_error(graph), CLV_OK);
    clv_value x = clv_input(graph, "next", CLV_F32, 2, wide, NULL);
    assert_int_equal(x.id, 2); /* right after "x": a failed call makes no value */
    clv_emit(graph, &rows, NULL, &x, 1, NULL);
    must_have_failed(graph, CLV_EINVAL, "room for its results");
    clv_emit(NULL, &rows, NULL, &x, 1, &x);
}

/* ---- rules that do not hold ---- */

/* x is f32[6,10]; the attribute says what is wrong. */
static void bad_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *r)
{
    const char *wrong = clv_op_attrs(op);
    int n = clv_rule_add_factor(r, N, CLV_REDUCTION_NONE), f = clv_rule_add_factor(r, F, CLV_REDUCTION_NONE);
    int huge = clv_rule_add_factor(r, INT64_MAX, CLV_REDUCTION_NONE),
        one = clv_rule_add_factor(r, 1, CLV_REDUCTION_NONE);
    for (const char *c = wrong; *c; c++) {
        int last = 0;
        if (*c == 'a') /* a factor of another size */
            clv_rule_operand_dim(r, 0, 0, f);
        else if (*c == 'b') /* no such factor */
            clv_rule_operand_dim(r, 0, 0, 4);
        else if (*c == 'c')
            clv_rule_operand_dim(r, 0, 0, -1);
        else if (*c == 'd') /* no such operand, dimension or result */
            clv_rule_operand_dim(r, 8, 0, n);
        else if (*c == 'e')
            clv_rule_operand_dim(r, -1, 0, n);
        else if (*c == 'f')
            clv_rule_result_dim(r, 0, 8, n);
        else if (*c == 'g')
            clv_rule_result_dim(r, 4, 0, n);
        else if (*c == 'h')
            clv_rule_operand_dim(r, 0, 2, n);
        else if (*c == 'i')
            clv_rule_result_dim(r, 1, 0, n);
        else if (*c == 'j')
            clv_rule_operand_dim(r, 1, 0, n);
        else if (*c == 'k')
            clv_rule_add_factor(r, -1, CLV_REDUCTION_NONE);
        else if (*c == 'l')
            clv_rule_add_factor(r, 1, (clv_reduction)9);
        else if (*c == 'm')
            for (int i = 0; i < 100; i++)
                last = clv_rule_add_factor(r, 1, CLV_REDUCTION_NONE);
        else if (*c == 'n') /* twice in a tensor */
            clv_rule_operand_dim(r, 0, 0, n), clv_rule_operand_dim(r, 0, 0, one), clv_rule_operand_dim(r, 0, 1, f),
                clv_rule_operand_dim(r, 0, 1, one);
        else if (*c == 'o')
            for (int i = 0; i < 100; i++)
                clv_rule_operand_dim(r, 0, 0, one);
        else if (*c == 'p') /* more than fits 64 bits */
            clv_rule_operand_dim(r, 0, 0, huge), clv_rule_operand_dim(r, 0, 0, f);
        else if (*c == 'q')
            clv_rule_replicate_remainder(r, n, n);
        else if (*c == 'r')
            clv_rule_replicate_remainder(r, n, f), clv_rule_replicate_remainder(r, f, one);
        else if (*c == 's')
            clv_rule_replicate_remainder(r, n, one), clv_rule_operand_dim(r, 0, 0, one),
                clv_rule_operand_dim(r, 0, 0, n);
        else if (*c == 't')
            clv_rule_additive(r, 3);
        else if (*c == 'u')
            clv_rule_name_factor(r, 99, "none");
        else if (*c == 'v')
            clv_rule_forbid_split(r, -99);
        else if (*c == 'w')
            clv_rule_replicate_remainder(r, n, 99);
        assert_true(*c != 'm' || last == -1);
    }
}

static void test_bad_rules(void **state)
{
    static const clv_op_def def = {.name = "test.bad_rule",
                                   .min_in = 1,
                                   .max_in = 2,
                                   .n_out = 1,
                                   .attrs_size = 2,
                                   .shape = same_shape,
                                   .rule = bad_rule,
                                   .run = leave};
    static const struct {
        const char *wrong;
        clv_status code;
        const char *text;
    } cases[] = {
        {"a", CLV_ESHAPE, "test.bad_rule: its rule: dimension 0 of operand 0 has 6 elements; its factors make 10"},
        {"b", CLV_EINVAL, "there is no factor 4; it has 4"},
        {"c", CLV_EINVAL, "there is no factor -1"},
        {"d", CLV_EINVAL, "dimension 0 of operand 8; valid: operands below 8, of 8 dimensions"},
        {"e", CLV_EINVAL, "operand -1"},
        {"f", CLV_EINVAL, "dimension 8 of result 0"},
        {"g", CLV_EINVAL, "result 4; valid: results below 4"},
        {"h", CLV_EINVAL, "operand 0 has no dimension 2"},
        {"i", CLV_EINVAL, "result 1 has no dimension 0"},
        {"j", CLV_EINVAL, "operand 1 has no dimension 0"},
        {"k", CLV_EINVAL, "factor 4 of size -1"},
        {"l", CLV_EINVAL, "reduction 9"},
        {"m", CLV_ELIMIT, "at most 16 factors"},
        {"n", CLV_EINVAL, "operand 0 holds factor 3 twice"},
        {"o", CLV_EINVAL, "dimension 0 of operand 0"},
        {"p", CLV_ESHAPE, "too many"},
        {"q", CLV_EINVAL, "the remainder of factor 0 goes to 0, which is itself"},
        {"r", CLV_EINVAL, "the remainder of factor 0 goes to 1, which is a factor with a remainder, too"},
        {"s", CLV_EINVAL, "a factor must come right after the one whose remainder it takes"},
        {"t", CLV_EINVAL, "linear in operand 1, which does not exist"},
        {"u", CLV_EINVAL, "there is no factor 99"},
        {"v", CLV_EINVAL, "there is no factor -99"},
        {"w", CLV_EINVAL, "there is no factor 99"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        clv_graph *graph = must_graph("m=2");
        emit_hostile(graph, &def, cases[c].wrong, 1, true);
        must_have_failed(graph, cases[c].code, cases[c].text);
    }
}

/* ---- gradients and kernels that do not hold ---- */

static void wrong_type(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    d_in[0] = clv_cast(graph, d_out[0], CLV_F64);
}
static void other_graph(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    d_in[0] = (clv_value){1 << 20};
}

static void test_bad_gradients(void **state)
{
    static const clv_op_def defs[] = {{GOOD},
                                      {.name = "test.wrong_type",
                                       .min_in = 1,
                                       .max_in = 1,
                                       .n_out = 1,
                                       .shape = same_shape,
                                       .rule = nothing_rule,
                                       .gradient = wrong_type,
                                       .run = leave},
                                      {.name = "test.other_graph",
                                       .min_in = 1,
                                       .max_in = 1,
                                       .n_out = 1,
                                       .shape = same_shape,
                                       .rule = nothing_rule,
                                       .gradient = other_graph,
                                       .run = leave}};
    static const char *const texts[] = {
        "test.hostile has no gradient",
        "the gradient of test.wrong_type: the cotangent of operand 0 is f64[]; f32[] is needed",
        "test.other_graph: the cotangent of operand 0 is not a value of this graph"};
    for (int i = 0; i < 3; i++) {
        clv_graph *graph = must_graph("m=2");
        clv_value x = clv_input(graph, "x", CLV_F32, 0, NULL, NULL), y, d;
        clv_emit(graph, &defs[i], NULL, &x, 1, &y);
        clv_gradients(graph, y, y, &x, 1, &d);
        must_have_failed(graph, i == 0 ? CLV_EUNSUPPORTED : CLV_ESHAPE, texts[i]);
    }
}

static clv_status no_status(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = in[0];
    return (clv_status)-3;
}

static clv_status no_type(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    return CLV_OK;
}

static void expect_shape_refused(const clv_op_def *def, const char *message)
{
    clv_graph *graph = must_graph("m=2");
    clv_value x = clv_fill(graph, CLV_F32, 2, wide, 1), y;
    clv_emit(graph, def, NULL, &x, 1, &y);
    must_have_failed(graph, CLV_EINVAL, message);
}

static void test_shape_without_a_type(void **state)
{
    static const clv_op_def def = {.name = "test.no_type",
                                   .min_in = 1,
                                   .max_in = 1,
                                   .n_out = 1,
                                   .shape = no_type,
                                   .rule = nothing_rule,
                                   .run = leave};
    expect_shape_refused(&def, "test.no_type: its shape() states no type of result 0");
}

static void test_shape_without_a_status(void **state)
{
    static const clv_op_def def = {.name = "test.no_status",
                                   .min_in = 1,
                                   .max_in = 1,
                                   .n_out = 1,
                                   .shape = no_status,
                                   .rule = nothing_rule,
                                   .run = leave};
    expect_shape_refused(&def, "test.no_status: its shape() returned -3, which is no status");
}

static void test_kernel_without_a_message(void **state)
{
    clv_graph *graph = must_graph("m=2");
    clv_program *program;
    static const clv_op_def def = {GOOD};
    clv_value x = clv_fill(graph, CLV_F32, 2, wide, 1), y;
    clv_emit(graph, &def, NULL, &x, 1, &y);
    clv_output(graph, "y", y, NULL);
    assert_int_equal(clv_compile(&program, graph, NULL, NULL), CLV_OK);
    for (int unknown = 0; unknown < 2; unknown++) {
        clv_session *session;
        clv_error err = {0};
        float out[N * F];
        left_with = unknown ? (clv_status)77 : CLV_EIO;
        assert_int_equal(clv_session_new(&session, clv_graph_mesh(graph), NULL, &err), CLV_OK);
        assert_int_equal(clv_session_run(session, program, NULL, 0, &(clv_output_binding){"y", out}, 1, &err),
                         unknown ? CLV_EINVAL : CLV_EIO);
        assert_non_null(strstr(err.message, unknown ? "test.hostile: the kernel returned 77, which is no status"
                                                    : "test.hostile: a file could not be read or written"));
        clv_session_free(session);
    }
    clv_program_free(program);
    clv_graph_free(graph);
}

/* A workspace that falls as shards grow, so that what is planned for the largest shard is too little for others. */
static size_t falling_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return 4096 - 512 * (size_t)in[0].shape[0];
}

static clv_status use_workspace(const clv_call *call, clv_error *err)
{
    memset(call->workspace, 1, falling_workspace(call->op, call->in, call->out));
    memcpy(call->out[0].data, call->in[0].data, (size_t)clv_view_elems(&call->in[0]) * sizeof(float));
    return CLV_OK;
}

static void test_falling_workspace(void **state)
{
    static const clv_op_def def = {.name = "test.falling",
                                   .min_in = 1,
                                   .max_in = 1,
                                   .n_out = 1,
                                   .shape = same_shape,
                                   .rule = by_elements,
                                   .workspace = falling_workspace,
                                   .run = use_workspace};
    static const struct {
        const char *mesh;
        int rank; /* the first that wants more; -1: none */
        const char *text;
    } cases[] = {{"m=5", 0, "rank 0, test.falling: it needs a workspace of 3584 bytes on this rank, 3072 are planned"},
                 {"m=4", 0, "rank 0, test.falling: it needs a workspace of 3584 bytes on this rank, 3072 are planned"},
                 {"m=2", -1, ""}};
    for (int check = 0; check < 2; check++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            clv_graph *graph = must_graph(cases[c].mesh);
            clv_layout cut = clv_graph_layout(graph, 1, "m");
            clv_program *program;
            clv_session *session;
            clv_error err = {0};
            float sixes[6] = {6, 6, 6, 6, 6, 6}, out[6] = {0};
            clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){6}, &cut), y;
            clv_emit(graph, &def, NULL, &x, 1, &y);
            clv_output(graph, "y", y, &cut);
            must(clv_compile(&program, graph, NULL, &err), &err);
            const clv_session_options options = {.size = sizeof options, .check = check};
            must(clv_session_new(&session, clv_graph_mesh(graph), &options, &err), &err);
            clv_status status = clv_session_run(session, program, &(clv_input_binding){"x", sixes}, 1,
                                                &(clv_output_binding){"y", out}, 1, &err);
            assert_int_equal(status, cases[c].rank < 0 ? CLV_OK : CLV_ECHECK);
            assert_true(cases[c].rank < 0 || err.rank == cases[c].rank);
            if (!strstr(err.message, cases[c].text))
                fail_msg("'%s' has no '%s'", err.message, cases[c].text);
            clv_session_free(session);
            clv_program_free(program);
            clv_graph_free(graph);
        }
}

/* Largest where there are more rows than columns, so on neither the first rank nor that of the largest shard. */
static size_t ridge_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return in[0].shape[0] > in[0].shape[1] ? 4096 : 64;
}

static void test_workspace_of_a_later_rank(void **state)
{
    static const clv_op_def def = {.name = "test.ridge",
                                   .min_in = 1,
                                   .max_in = 1,
                                   .n_out = 1,
                                   .shape = same_shape,
                                   .rule = by_elements,
                                   .workspace = ridge_workspace,
                                   .run = leave};
    clv_graph *graph = must_graph("d=2,m=2");
    clv_layout cut = clv_graph_layout(graph, 2, "d,m");
    clv_program *program;
    clv_session *session;
    clv_error err = {0};
    float x[9] = {0}, out[9];
    clv_value in = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){3, 3}, &cut), y;
    clv_emit(graph, &def, NULL, &in, 1, &y);
    clv_output(graph, "y", y, &cut);
    must(clv_compile(&program, graph, NULL, &err), &err);
    must(clv_session_new(&session, clv_graph_mesh(graph), NULL, &err), &err);
    assert_int_equal(
        clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"y", out}, 1, &err),
        CLV_ECHECK);
    assert_int_equal(err.rank, 2);
    assert_non_null(strstr(err.message, "test.ridge: it needs a workspace of 4096 bytes on this rank, 64 are planned"));
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* ---- the registry ---- */

enum { THREADS = 8, OPS = 40 };
static char names[OPS][16];

static void *register_all(void *arg)
{
    clv_op_def def = {GOOD};
    for (int i = 0; i < OPS; i++) {
        def.name = names[(i + 5 * *(int *)arg) % OPS];
        if (clv_op_register(&def, NULL) != CLV_OK)
            return arg;
    }
    return NULL;
}

static void test_registry(void **state)
{
    pthread_t threads[THREADS];
    int number[THREADS], before = 0, after = 0;
    void *failed;
    for (const clv_op_def *def = clv_op_next(NULL); def; def = clv_op_next(def)) {
        before++;
        assert_ptr_equal(clv_op_find(def->name), def); /* a name is there once */
        assert_int_equal(clv_op_register(def, NULL), CLV_OK);
    }
    assert_true(before > 40);
    for (int i = 0; i < OPS; i++)
        snprintf(names[i], sizeof names[i], "test.n%d", i);
    for (int t = 0; t < THREADS; t++) {
        number[t] = t;
        assert_int_equal(pthread_create(&threads[t], NULL, register_all, &number[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], &failed);
        assert_null(failed);
    }
    for (const clv_op_def *def = clv_op_next(NULL); def; def = clv_op_next(def))
        after++;
    assert_int_equal(after, before + OPS);
    assert_null(clv_op_find("test.n40"));
    assert_null(clv_op_next(&mix)); /* the caller's is not the registered one */
}

/* An op of a name that is known is that one only if nothing about it is another. */
static clv_op_cost nothing_costs(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){0};
}

static void test_another_of_the_name(void **state)
{
    static const clv_attr a[] = {{"a", CLV_ATTR_INT, 0, 1}, {0}}, b[] = {{"b", CLV_ATTR_INT, 0, 1}, {0}};
    const clv_op_def first = {.size = sizeof first,
                              .name = "test.first",
                              .min_in = 1,
                              .max_in = 2,
                              .n_out = 2,
                              .in_place = {1},
                              .attrs_size = 8,
                              .attrs = a,
                              .shape = same_shape,
                              .cost = nothing_costs,
                              .rule = nothing_rule,
                              .run = leave};
    enum { FIELDS = 15 };
    clv_op_def other[FIELDS];
    for (int i = 0; i < FIELDS; i++)
        other[i] = first;
    other[0].min_in = 0;
    other[1].max_in = 3;
    other[2].n_out = 1;
    other[3].in_place[0] = 2;
    other[4].may_be_lowest = 1;
    other[5].attrs_size = 16;
    other[6].attrs = b;
    other[7].shape = too_large;
    other[8].rule = by_elements;
    other[9].gradient = other_graph;
    other[10].cost = as_told;
    other[11].workspace = falling_workspace;
    other[12].run = use_workspace;
    other[13].counts_flops = true;
    other[14].display_name = "the other one";
    assert_int_equal(clv_op_register(&first, NULL), CLV_OK);
    assert_int_equal(clv_op_register(&first, NULL), CLV_OK);
    for (int i = 0; i < FIELDS; i++) {
        clv_error err = {0};
        if (clv_op_register(&other[i], &err) != CLV_EEXIST || !strstr(err.message, "another op is called 'test.first'"))
            fail_msg("field %d: %s '%s'", i, clv_status_name(err.code), err.message);
    }
}

static void test_nothing_given(void **state)
{
    clv_error err = {0};
    clv_type type = {0};
    assert_int_equal(clv_op_register(NULL, &err), CLV_EINVAL);
    assert_null(clv_op_find(NULL));
    assert_null(clv_op_scoped_name(NULL));
    assert_null(clv_op_attrs(NULL));
    assert_int_equal(clv_op_operand_count(NULL), 0);
    assert_int_equal(clv_op_operand(NULL, 0).id, 0);
    assert_int_equal(clv_op_result(NULL, 0).id, 0);
    assert_int_equal(clv_view_elems(NULL), 0);
    assert_int_equal(clv_type_elems(NULL), 0);
    assert_false(clv_type_equal(NULL, &type));
    assert_int_equal(clv_rule_add_factor(NULL, 1, CLV_REDUCTION_NONE), -1);
    clv_rule_operand_dim(NULL, 0, 0, 0);
    clv_rule_result_dim(NULL, 0, 0, 0);
    clv_rule_name_factor(NULL, 0, "x");
    clv_rule_forbid_split(NULL, 0);
    clv_rule_replicate_remainder(NULL, 0, 0);
    clv_rule_multilinear(NULL, 1);
    clv_rule_additive(NULL, 1);
    clv_rule_keeps_partial_max(NULL);
    clv_rule_elementwise(NULL, NULL, NULL, NULL);
}

/* Of an op with a field of each kind. */
typedef struct all_attrs {
    int i[2];
    int64_t n;
    double x;
    bool b;
    char text[8];
    clv_key key;
    clv_dtype dtype;
    clv_layout layout;
} all_attrs;

static char printed[4096];

static clv_status print_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    clv_mesh mesh;
    char part[6];
    int n;
    must(clv_mesh_parse(&mesh, "m=2", NULL), &(clv_error){0});
    n = clv_op_print_attrs(printed, sizeof printed, op, &mesh);
    assert_int_equal(n, strlen(printed));
    assert_int_equal(clv_op_print_attrs(part, sizeof part, op, &mesh), n);
    assert_string_equal(part, "i=1,2");
    assert_int_equal(clv_op_print_attrs(NULL, 0, op, &mesh), n);
    assert_true(clv_op_print_attrs(part, sizeof part, op, NULL) < n);
    out[0] = in[0];
    return CLV_OK;
}

static void test_attributes_as_text(void **state)
{
    static const clv_attr fields[] = {{"i", CLV_ATTR_INT, offsetof(all_attrs, i), 2},
                                      {"n", CLV_ATTR_INT64, offsetof(all_attrs, n), 0},
                                      {"x", CLV_ATTR_DOUBLE, offsetof(all_attrs, x), 1},
                                      {"b", CLV_ATTR_BOOL, offsetof(all_attrs, b), 1},
                                      {"text", CLV_ATTR_TEXT, offsetof(all_attrs, text), 8},
                                      {"key", CLV_ATTR_KEY, offsetof(all_attrs, key), 1},
                                      {"dtype", CLV_ATTR_DTYPE, offsetof(all_attrs, dtype), 1},
                                      {"layout", CLV_ATTR_LAYOUT, offsetof(all_attrs, layout), 1},
                                      {0}};
    static const clv_op_def def = {.name = "test.print",
                                   .min_in = 1,
                                   .max_in = 1,
                                   .n_out = 1,
                                   .attrs_size = sizeof(all_attrs),
                                   .attrs = fields,
                                   .shape = print_shape,
                                   .rule = nothing_rule,
                                   .run = leave};
    clv_graph *graph = must_graph("m=2");
    all_attrs a;
    memset(&a, 0, sizeof a);
    a = (all_attrs){{1, 2}, 3, 0.5, true, "fo\x1b[\xffur", {{5, 6}}, CLV_BF16, clv_graph_layout(graph, 2, "_,m")};
    clv_value x = clv_input(graph, "x", CLV_F32, 2, wide, NULL), y;
    clv_emit(graph, &def, &a, &x, 1, &y);
    must_be_ok(graph);
    assert_string_equal(printed, "i=1,2 n=3 x=0.5 b=1 text=fo\\x1b[\\xffur key=5:6 dtype=bf16 layout={_,m}");
    clv_graph_free(graph);
    assert_int_equal(clv_op_print_attrs(printed, sizeof printed, NULL, NULL), 0);
    assert_string_equal(printed, "");
}

/* What accessors say of an op that is there. */
static void see(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    assert_string_equal(clv_op_scoped_name(op), "here.test.seen");
    assert_int_equal(clv_op_operand_count(op), 2);
    assert_true(clv_valid(clv_op_operand(op, 0)) && clv_op_operand(op, 1).id == 0 && clv_op_operand(op, 2).id == 0 &&
                clv_op_operand(op, -1).id == 0);
    assert_true(clv_valid(clv_op_result(op, 0)) && clv_op_result(op, 1).id == 0 && clv_op_result(op, -1).id == 0);
    assert_null(clv_op_attrs(op));
}

static void test_accessors(void **state)
{
    static const clv_op_def def = {.name = "test.seen",
                                   .min_in = 1,
                                   .max_in = 2,
                                   .n_out = 1,
                                   .shape = same_shape,
                                   .rule = nothing_rule,
                                   .gradient = see,
                                   .run = leave};
    clv_graph *graph = must_graph("m=2");
    clv_value in[2] = {clv_input(graph, "x", CLV_F32, 2, wide, NULL), CLV_NONE}, y, d;
    clv_graph_push_scope(graph, "here");
    clv_emit(graph, &def, NULL, in, 2, &y);
    clv_graph_pop_scope(graph);
    clv_gradients(graph, y, y, in, 1, &d);
    must_be_ok(graph);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_and_gradients),
        cmocka_unit_test(test_same_as_the_librarys),
        cmocka_unit_test(test_named_by_reports),
        cmocka_unit_test(test_attributes_differ),
        cmocka_unit_test(test_seeds_that_are_losses),
        cmocka_unit_test(test_bad_definitions),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_bad_calls),
        cmocka_unit_test(test_bad_rules),
        cmocka_unit_test(test_bad_gradients),
        cmocka_unit_test(test_shape_without_a_type),
        cmocka_unit_test(test_shape_without_a_status),
        cmocka_unit_test(test_kernel_without_a_message),
        cmocka_unit_test(test_falling_workspace),
        cmocka_unit_test(test_workspace_of_a_later_rank),
        cmocka_unit_test(test_accessors),
        cmocka_unit_test(test_example),
        cmocka_unit_test(test_attributes_as_text),
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_another_of_the_name),
        cmocka_unit_test(test_nothing_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
