/* test_graph_errors.c - what the builder of graphs refuses: the first failure is recorded, later builders pass it on,
 * and clv_compile returns it. */
#include "must.h"
#include "op_cases.h"

#include "cleave/nn.h"
#include "cleave/program.h"

static clv_value vector(clv_graph *graph, const char *name, int64_t n)
{
    return input(graph, name, CLV_F32, DIMS(n));
}

static clv_value state_of(clv_graph *graph, const char *name, int64_t n)
{
    return clv_state(graph, name, CLV_F32, DIMS(n), NULL, (clv_init){CLV_INIT_ZEROS, 0});
}

static void test_first_failure_is_kept(void **state)
{
    clv_error err = {0};
    clv_program *program = NULL;
    clv_graph *graph = new_graph();
    clv_value a = vector(graph, "a", 2);
    assert_true(clv_valid(a));
    clv_value bad = clv_add(graph, a, vector(graph, "b", 3));
    assert_int_equal(bad.id, 0);
    assert_false(clv_valid(bad));
    clv_value later = clv_unary(graph, CLV_TANH, bad);
    assert_false(clv_valid(later));
    assert_false(clv_valid(CLV_NONE));
    assert_true(clv_reduce(graph, CLV_SUM, vector(graph, "c", 2), (int[]){9}, 1, false).id == 0);
    clv_output(graph, "y", later, NULL);
    assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_ESHAPE);
    assert_non_null(strstr(err.message, "do not broadcast"));
    assert_null(program);
    clv_graph_free(graph);
    clv_graph_free(NULL);
}

/* The graph is freed, and failed as told. */
static clv_graph *refused(clv_graph *graph, const char *text)
{
    assert_refused(graph, CLV_EINVAL, text);
    return new_graph();
}

static void test_arguments(void **state)
{
    const clv_value junk = {2000000000};
    clv_value d;
    clv_graph *graph = new_graph();
    clv_reduce(graph, CLV_SUM, vector(graph, "x", 2), NULL, -2, false);
    graph = refused(graph, "reduce: -2 dimensions; valid: 0 and above");
    state_of(graph, "", 2);
    graph = refused(graph, "needs a name and a shape");
    vector(graph, "", 2);
    graph = refused(graph, "needs a name and a shape");
    clv_output(graph, "", vector(graph, "x", 2), NULL);
    graph = refused(graph, "an output needs a name");
    state_of(graph, "a\x1b[31m", 2);
    graph = refused(graph, "state is named 'a\\x1b[31m'; valid: UTF-8 without control characters");
    vector(graph, "a\nb", 2);
    graph = refused(graph, "an input is named 'a\\nb'");
    clv_output(graph, "\xff", vector(graph, "x", 2), NULL);
    graph = refused(graph, "an output is named '\\xff'");
    clv_graph_push_scope(graph, "%s\t", "layer");
    graph = refused(graph, "a scope is named 'layer\\t'");
    clv_name_dims(graph, vector(graph, "x", 2), (const char *const[]){"\x7f"});
    graph = refused(graph, "a dimension is named '\\x7f'");
    vector(graph, "\u00fc \u00b5", 2); /* other names are the caller's */
    clv_state(graph, "w", CLV_F32, DIMS(2), NULL, (clv_init){CLV_INIT_NORMAL, NAN});
    graph = refused(graph, "w: an init of scale nan; valid: finite");
    clv_state(graph, "w", CLV_F32, DIMS(2), NULL, (clv_init){CLV_INIT_NORMAL, INFINITY});
    graph = refused(graph, "w: an init of scale inf; valid: finite");
    clv_add(graph, vector(graph, "x", 2), junk);
    graph = refused(graph, "operand 1 is not a value of this graph");
    clv_value x = vector(graph, "x", 1);
    clv_gradients(graph, junk, CLV_NONE, &x, 1, &d);
    graph = refused(graph, "clv_gradients: the loss is not a value of this graph");
    x = vector(graph, "x", 1);
    clv_gradients(graph, x, CLV_NONE, &junk, 1, &d);
    graph = refused(graph, "clv_gradients: wrt[0] is not a value of this graph");
    clv_graph_free(graph);
    assert_true(clv_type_elems(&(clv_type){.rank = 2, .shape = {INT64_MAX, INT64_MAX}}) == INT64_MAX);
    assert_true(clv_type_elems(&(clv_type){.rank = 3, .shape = {INT64_MAX, INT64_MAX, 0}}) == 0);
    assert_true(clv_type_elems(&(clv_type){.rank = 99}) == 0 && clv_type_elems(&(clv_type){.rank = 0}) == 1);
    assert_true(clv_type_elems(&(clv_type){.rank = 2, .shape = {3, 5}}) == 15);
}

static void test_types(void **state)
{
    clv_graph *graph = new_graph();
    clv_input(graph, "x", CLV_F32, 9, (int64_t[9]){1, 1, 1, 1, 1, 1, 1, 1, 1}, NULL);
    assert_refused(graph, CLV_ELIMIT, "9 dimensions; valid: 0 to 8");
    graph = new_graph();
    input(graph, "x", CLV_F32, DIMS(2, -1));
    assert_refused(graph, CLV_ESHAPE, "dimension 1 has size -1");
    graph = new_graph();
    clv_layout other = clv_layout_replicated(3);
    clv_input(graph, "x", CLV_F32, DIMS(2), &other);
    assert_refused(graph, CLV_ESHAPE, "its layout is for 3 dimensions");
    graph = new_graph();
    clv_layout partial = clv_graph_layout(graph, 1, "_ + sum{x}");
    clv_input(graph, "x", CLV_F32, DIMS(2), &partial);
    assert_refused(graph, CLV_EINVAL, "cannot be stated partial");
    graph = new_graph();
    clv_layout aligned = clv_graph_layout(graph, 1, "x*2");
    clv_input(graph, "x", CLV_F32, DIMS(3), &aligned);
    clv_error err = {0};
    assert_int_not_equal(clv_graph_status(graph, &err), CLV_OK);
    clv_graph_free(graph);
    graph = new_graph();
    clv_layout bad = clv_graph_layout(graph, 1, "q");
    (void)bad;
    assert_refused(graph, CLV_EAXIS, "no axis 'q'");
}

static void test_state_and_outputs(void **state)
{
    clv_graph *graph = new_graph();
    clv_assign(graph, vector(graph, "x", 2), vector(graph, "y", 2));
    assert_refused(graph, CLV_EINVAL, "the target is not state");
    graph = new_graph();
    clv_value w = state_of(graph, "w", 2), v = vector(graph, "v", 2);
    clv_assign(graph, w, v);
    clv_assign(graph, w, v);
    assert_refused(graph, CLV_EINVAL, "'w' is assigned twice");
    graph = new_graph();
    clv_assign(graph, state_of(graph, "w", 2), vector(graph, "v", 3));
    assert_refused(graph, CLV_ESHAPE, "another shape");
    graph = new_graph();
    clv_output(graph, "y", vector(graph, "a", 2), NULL);
    clv_output(graph, "y", vector(graph, "b", 2), NULL);
    assert_refused(graph, CLV_EEXIST, "output named 'y'");
    graph = new_graph();
    clv_layout wrong = clv_layout_replicated(2);
    clv_output(graph, "y", vector(graph, "a", 2), &wrong);
    assert_refused(graph, CLV_ESHAPE, "output 'y'");
}

/* Scopes of any depth, names of any length. */
static void test_scopes(void **state)
{
    enum { DEEP = 100, LONG = 5000 };
    char name[LONG + 1], whole[2 * DEEP + LONG + 16] = "";
    memset(name, 'a', LONG);
    name[LONG] = '\0';
    clv_graph *graph = new_graph();
    for (int i = 0; i < DEEP; i++) {
        clv_graph_push_scope(graph, "%d", i % 10);
        snprintf(whole + strlen(whole), 3, "%d.", i % 10);
    }
    strcat(whole, name);
    clv_value deep = clv_state(graph, name, CLV_F32, DIMS(2), NULL, (clv_init){CLV_INIT_ZEROS, 0});
    assert_string_equal(clv_value_name(graph, deep), whole);
    clv_graph_push_scope(graph, "%s", name);
    clv_graph_pop_scope(graph);
    for (int i = 0; i < DEEP; i++)
        clv_graph_pop_scope(graph);
    clv_value plain = clv_state(graph, "plain", CLV_F32, DIMS(2), NULL, (clv_init){CLV_INIT_ZEROS, 0});
    assert_string_equal(clv_value_name(graph, plain), "plain");
    clv_linear_options options = {.name = name, .bias = true};
    clv_column_parallel_linear(graph, clv_fill(graph, CLV_F32, DIMS(2, 4), 1), 6, NULL, &options);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_OK);
    clv_value parameters[8];
    assert_int_equal(clv_graph_parameters(graph, parameters, 8), 4);
    assert_int_equal(strlen(clv_value_name(graph, parameters[2])), LONG + strlen(".weight"));
    assert_int_equal(strlen(clv_value_name(graph, parameters[3])), LONG + strlen(".bias"));
    clv_graph_pop_scope(graph);
    assert_refused(graph, CLV_EINVAL, "without a push");
}

static void test_operands(void **state)
{
    clv_graph *graph = new_graph();
    clv_value many[20];
    for (int i = 0; i < 20; i++)
        many[i] = clv_fill(graph, CLV_F32, DIMS(1 + i), i);
    clv_type type = clv_graph_type(graph, clv_concat(graph, many, 20, 0));
    assert_int_equal(type.shape[0], 210);
    type = clv_graph_type(graph, clv_concat(graph, many, 9, 0)); /* a run of one is what it joins */
    assert_int_equal(type.shape[0], 45);
    clv_graph_emit_one(graph, clv_op_find("softmax"), NULL, many, 2);
    assert_refused(graph, CLV_EINVAL, "at most 1 operands, 2 given");
    graph = new_graph();
    clv_concat(graph, NULL, 0, 0);
    assert_refused(graph, CLV_EINVAL, "at least 1 operand");
    graph = new_graph();
    clv_unary(graph, CLV_TANH, (clv_value){1000});
    assert_int_not_equal(clv_graph_status(graph, NULL), CLV_OK);
    clv_graph_free(graph);
}

/* After a mistake that is forgiven building goes on, and what was made before is as it was. */
static void test_forgiven(void **state)
{
    clv_graph *graph = new_graph();
    clv_error err = {0};
    clv_program *program;
    clv_value x = vector(graph, "x", 3), d;
    assert_int_equal(clv_add(graph, x, vector(graph, "y", 2)).id, 0);
    assert_int_equal(clv_add(graph, x, x).id, 0);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_ESHAPE);
    assert_int_equal(clv_graph_clear_error(graph), CLV_OK);
    clv_gradients(graph, x, vector(graph, "seed", 2), &x, 1, &d);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_ESHAPE);
    assert_int_equal(clv_graph_clear_error(graph), CLV_OK);
    clv_output(graph, "twice", clv_add(graph, x, x), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_program_free(program);
    clv_graph_fail(graph, CLV_ENOMEM, "on purpose");
    assert_int_equal(clv_graph_clear_error(graph), CLV_ENOMEM);
    clv_graph_free(graph);
}

static void test_gradients(void **state)
{
    clv_graph *graph = new_graph();
    clv_value x = vector(graph, "x", 3), d;
    clv_value nearest = clv_cast(graph, clv_cast(graph, x, CLV_I32), CLV_F32);
    clv_gradients(graph, clv_reduce(graph, CLV_SUM, nearest, (int[]){0}, 1, false), CLV_NONE, &x, 1, &d);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_OK); /* a cast to integers has the gradient zero */
    assert_int_equal(clv_graph_type(graph, d).rank, 1);
    clv_graph_free(graph);
    graph = new_graph();
    x = vector(graph, "x", 3);
    clv_gradients(graph, x, vector(graph, "seed", 2), &x, 1, &d);
    assert_refused(graph, CLV_ESHAPE, "the seed must have");
    graph = new_graph();
    x = vector(graph, "x", 3);
    clv_value twice = clv_unary(graph, CLV_GELU, x), first, second;
    clv_value one = clv_reduce(graph, CLV_SUM, twice, (int[]){0}, 1, false);
    clv_gradients(graph, one, CLV_NONE, &x, 1, &first);
    clv_gradients(graph, clv_reduce(graph, CLV_SUM, first, (int[]){0}, 1, false), CLV_NONE, &x, 1, &second);
    assert_refused(graph, CLV_EUNSUPPORTED, "has no gradient");
}

static void test_parameters(void **state)
{
    clv_value two[2];
    clv_graph *graph = new_graph();
    for (int i = 0; i < 3; i++)
        state_of(graph, (const char *[]){"a", "b", "c"}[i], 2);
    const clv_init zeros = {CLV_INIT_ZEROS, 0};
    clv_value count = clv_state_with_role(graph, CLV_ROLE_BUFFER, "count", CLV_I32, 0, NULL, NULL, zeros);
    clv_state_with_role(graph, CLV_ROLE_BUFFER, "mean", CLV_F32, 0, NULL, NULL, zeros);
    clv_state_with_role(graph, CLV_ROLE_CACHE, "cache", CLV_F32, 0, NULL, NULL, zeros);
    assert_int_equal(clv_graph_parameters(graph, two, 2), 3);
    assert_string_equal(clv_value_name(graph, two[1]), "b");
    assert_null(clv_value_name(graph, clv_scale(graph, two[0], 2)));
    assert_null(clv_value_name(graph, CLV_NONE));
    assert_int_equal(clv_value_layout(graph, count).rank, 0);
    clv_keep_stationary(graph, two[0], "nowhere");
    assert_refused(graph, CLV_EAXIS, "nowhere");
}

/* They stay parameters when an optimizer updates them; its own state is none. Only floats are. */
static void test_roles(void **state)
{
    clv_value all[4];
    clv_graph *graph = new_graph();
    clv_value w = clv_state(graph, "w", CLV_BF16, DIMS(4), NULL, (clv_init){CLV_INIT_ONES, 0});
    clv_adamw(graph, w, w, clv_input(graph, "lr", CLV_F32, 0, NULL, NULL),
              clv_input(graph, "step", CLV_I32, 0, NULL, NULL), NULL);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_OK);
    assert_int_equal(clv_graph_parameters(graph, all, 4), 1);
    assert_string_equal(clv_value_name(graph, all[0]), "w");
    clv_state(graph, "n", CLV_I64, DIMS(4), NULL, (clv_init){CLV_INIT_ZEROS, 0});
    assert_refused(graph, CLV_EDTYPE, "n: a parameter of i64; valid: f32, bf16, f64, f16, or another role");
}

/* A zeroed value, or one in a zeroed struct, names no tensor: not even the first one that was made. */
static void test_zero_is_no_value(void **state)
{
    clv_graph *graph = new_graph();
    clv_value first = input(graph, "mask", CLV_U8, DIMS(1, 4));
    assert_int_not_equal(first.id, CLV_NONE.id);
    clv_value q = input(graph, "q", CLV_F32, DIMS(1, 4, 2, 8)), kv = input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8));
    clv_value y = clv_attention(graph, q, kv, &(clv_attention_options){0});
    assert_int_equal(clv_graph_status(graph, NULL), CLV_OK);
    const clv_op *op = &graph->ops[graph->values[y.id].op];
    for (int i = 2; i < op->n_in; i++)
        assert_int_equal(op->in[i], CLV_NONE.id);
    assert_int_equal(clv_graph_type(graph, (clv_value){0}).rank, 0);
    assert_null(clv_value_name(graph, (clv_value){0}));
    clv_add(graph, q, (clv_value){0});
    assert_refused(graph, CLV_EINVAL, "operand 1 is missing");
}

/* One rank's addend is not the value: a result cannot be stated partial. */
static void test_partial_outputs_are_refused(void **state)
{
    clv_mesh mesh;
    clv_graph *graph = NULL;
    assert_int_equal(clv_mesh_parse(&mesh, "x=2", NULL), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
    clv_layout partial = clv_graph_layout(graph, 1, "_ + sum{x}"), most = clv_graph_layout(graph, 1, "_ + max{x}");
    clv_value a = vector(graph, "a", 4);
    clv_output(graph, "y", a, &partial);
    assert_refused(graph, CLV_EINVAL, "output 'y' cannot be stated partial");
    assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
    clv_output(graph, "z", vector(graph, "a", 4), &most);
    assert_refused(graph, CLV_EINVAL, "output 'z' cannot be stated partial");
}

/* ---- kinds ---- */

static void make_map(clv_graph *graph, int kind)
{
    clv_unary(graph, (clv_unary_kind)kind, vector(graph, "x", 4));
}
static void make_combine(clv_graph *graph, int kind)
{
    clv_binary(graph, (clv_binary_kind)kind, vector(graph, "x", 4), vector(graph, "y", 4));
}
static void make_reduce(clv_graph *graph, int kind)
{
    clv_reduce(graph, (clv_reduce_kind)kind, vector(graph, "x", 4), (int[]){0}, 1, true);
}
static void make_bias_gelu(clv_graph *graph, int kind)
{
    clv_bias_gelu(graph, vector(graph, "x", 4), vector(graph, "y", 4), (clv_unary_kind)kind);
}
static void make_gated(clv_graph *graph, int kind)
{
    clv_gated(graph, input(graph, "x", CLV_F32, DIMS(2, 4)), (clv_unary_kind)kind);
}
static void make_cast(clv_graph *graph, int kind)
{
    clv_cast(graph, vector(graph, "x", 4), (clv_dtype)kind);
}
static void make_fill(clv_graph *graph, int kind)
{
    clv_fill(graph, (clv_dtype)kind, DIMS(4), 1);
}
static void make_input(clv_graph *graph, int kind)
{
    input(graph, "x", (clv_dtype)kind, DIMS(4));
}
static void make_state(clv_graph *graph, int kind)
{
    clv_state_with_role(graph, CLV_ROLE_BUFFER, "w", (clv_dtype)kind, DIMS(4), NULL, (clv_init){CLV_INIT_ONES, 1});
}
static void make_role(clv_graph *graph, int kind)
{
    clv_state_with_role(graph, (clv_state_role)kind, "w", CLV_F32, DIMS(4), NULL, (clv_init){CLV_INIT_ONES, 1});
}
static void make_first_values(clv_graph *graph, int kind)
{
    clv_state(graph, "w", CLV_F32, DIMS(4), NULL, (clv_init){(clv_init_kind)kind, 1});
}
static void make_count(clv_graph *graph, int kind)
{
    clv_count_labels(graph, input(graph, "labels", CLV_I32, DIMS(4)), 0, (clv_dtype)kind);
}
static const clv_axis_rules kind_rules = {.n = 2, .rule = {{CLV_MLP, 1, {0}}, {CLV_HEADS, 1, {0}}}};

static void make_block(clv_graph *graph, int kind)
{
    clv_block_options options = clv_block_defaults(CLV_BLOCK_GPT, 2, 2, 8);
    options.form = (clv_block_form)kind;
    clv_transformer_block(graph, input(graph, "x", CLV_F32, DIMS(2, 2, 4)), &kind_rules, &options);
}

/* Every number from below none of a kind to above all: those of the enum are taken, all others refused with its op and
 * what is valid. So no kind of another enum passes for one of this. */
static void test_kinds(void **state)
{
    enum { BELOW = -4, ABOVE = 400 };
    static const struct {
        const char *what;
        void (*make)(clv_graph *graph, int kind);
        clv_status code;
        int kinds;
        const char *refusal;
    } rows[] = {
        {"map", make_map, CLV_EINVAL, 11, "layer.map: there is no kind"},
        {"combine", make_combine, CLV_EINVAL, 6, "valid: CLV_ADD, CLV_SUB, CLV_MUL, CLV_DIV, CLV_MAXIMUM, CLV_MINIMUM"},
        {"reduce", make_reduce, CLV_EINVAL, 3, "valid: CLV_SUM, CLV_MAX, CLV_MEAN"},
        {"bias_gelu", make_bias_gelu, CLV_EINVAL, 2, "valid: CLV_GELU, CLV_GELU_TANH"},
        {"gated", make_gated, CLV_EINVAL, 4, "layer.gated: there is no kind"},
        {"cast", make_cast, CLV_EDTYPE, CLV_DTYPE_COUNT, "layer.cast: there is no dtype"},
        {"fill", make_fill, CLV_EDTYPE, CLV_DTYPE_COUNT, "valid: f32 bf16"},
        {"input", make_input, CLV_EDTYPE, CLV_DTYPE_COUNT, "x: there is no dtype"},
        {"state", make_state, CLV_EDTYPE, CLV_DTYPE_COUNT, "layer.w: there is no dtype"},
        {"role", make_role, CLV_EINVAL, 4, "layer.w: there is no kind"},
        {"init", make_first_values, CLV_EINVAL, 5, "layer.w: there is no kind"},
        {"count", make_count, CLV_EDTYPE, 4, "layer.count_labels: the count is"},
        {"block", make_block, CLV_EINVAL, 3, "valid: CLV_BLOCK_LLAMA, CLV_BLOCK_GPT, CLV_BLOCK_BERT"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        int taken = 0;
        for (int kind = BELOW; kind < ABOVE; kind++) {
            clv_graph *graph = new_graph();
            clv_graph_push_scope(graph, "layer");
            rows[r].make(graph, kind);
            clv_error err = {0};
            clv_status status = clv_graph_status(graph, &err);
            taken += status == CLV_OK;
            if (status != CLV_OK && (status != rows[r].code || !strstr(err.message, rows[r].refusal)))
                fail_msg("%s of kind %d: %s", rows[r].what, kind, err.message);
            clv_graph_free(graph);
        }
        if (taken != rows[r].kinds)
            fail_msg("%s takes %d kinds of %d", rows[r].what, taken, rows[r].kinds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_failure_is_kept),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_state_and_outputs),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_operands),
        cmocka_unit_test(test_forgiven),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_zero_is_no_value),
        cmocka_unit_test(test_partial_outputs_are_refused),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
