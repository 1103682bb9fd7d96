/* test_expert_rows.c - rows of a mixture that go to the ranks of their experts alone: results and gradients bit for bit
 * those of gathered rows, and those of one rank, for any loads; bytes by hand; when it is chosen; what has no room.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/session.h"
#include "graph/graph.h"
#include "must.h"
#include "program/cost/machine.h"
#include "program/program.h"
#include "unit_test.h"

enum {
    BATCH = 7,
    SEQ = 6,
    ROWS = BATCH * SEQ,
    NARROW = 5,
    WIDE = 600,
    FFN = 6,
    TOP = 3,
    MOST_EXPERTS = 8,
    OUTPUTS = 5
};

static const struct {
    const char *mesh, *apart, *together, *experts, *ffn;
} splits[] = {
    {"data=1", "_,_,_", "_,_,_", "_", "_"}, /* the others are compared with it */
    {"expert=2", "expert,_,_", "_,_,_", "expert", "_"},
    {"expert=3", "expert,_,_", "_,_,_", "expert", "_"},
    {"expert=4", "_,expert,_", "_,_,_", "expert", "_"},
    {"data=2,expert=2", "(data,expert),_,_", "data,_,_", "expert", "_"},
    {"expert=2,model=2", "expert,model,_", "_,_,_", "expert", "model"},
    {"data=2,expert=2,model=2", "(data,expert),model,_", "data,_,_", "expert", "model"},
    {"expert=2,model=3", "expert,model,_", "_,_,_", "expert", "model"},
};
enum { SPLITS = sizeof splits / sizeof *splits };

static int64_t width = NARROW, batch = BATCH, seq = SEQ; /* of x [batch,seq,width] */

typedef enum load { EVEN, ALL_TO_ONE, NONE, TWICE, LOADS } load;

/* The choices of rows: even; all choose the last expert alone; none; each its first choice twice. */
static void choose(int32_t *ids, load how, int experts)
{
    for (int i = 0; i < batch * seq * TOP; i++) {
        const int row = i / TOP, choice = i % TOP;
        ids[i] = (int32_t)((row * 5 + choice * (1 + row % 2)) % experts);
        if (how == ALL_TO_ONE)
            ids[i] = choice == 0 ? experts - 1 : -1;
        if (how == NONE)
            ids[i] = choice == 0 ? -1 : experts;
        if (how == TWICE && choice == 1)
            ids[i] = ids[i - 1];
    }
}

typedef struct mixture {
    clv_graph *graph;
    clv_value value[6]; /* x, ids, weights, gate_up, down, d_y */
} mixture;

enum { GATE_UP = 3, DOWN, D_Y }; /* the first two are state */
static const char *const inputs[] = {"x", "ids", "weights", "gate_up", "down", "d_y"};
static const char *const outputs[OUTPUTS] = {"y", "d_x", "d_weights", "d_gate_up", "d_down"};

static clv_layout layout_of(const clv_graph *graph, int rank, const char *text)
{
    clv_error err = {0};
    clv_layout layout;
    must(clv_layout_parse(&layout, text, clv_graph_mesh(graph), rank, &err), &err);
    return layout;
}

static mixture build(int split, clv_dtype dtype, int experts)
{
    clv_error err = {0};
    mixture m = {.graph = must_graph(splits[split].mesh)};
    clv_graph *g = m.graph;
    const clv_dtype wide = dtype == CLV_F64 ? CLV_F64 : CLV_F32;
    const int64_t x[] = {batch, seq, width}, k[] = {batch, seq, TOP}, up[] = {experts, width, 2, FFN},
                  down[] = {experts, FFN, width};
    const clv_layout apart = layout_of(g, 3, splits[split].apart), together = layout_of(g, 3, splits[split].together);
    char text[64];
    snprintf(text, sizeof text, "%s,_,_,%s", splits[split].experts, splits[split].ffn);
    const clv_layout of_up = layout_of(g, 4, text);
    snprintf(text, sizeof text, "%s,%s,_", splits[split].experts, splits[split].ffn);
    const clv_layout of_down = layout_of(g, 3, text);
    m.value[0] = clv_input(g, inputs[0], dtype, 3, x, &apart);
    m.value[1] = clv_input(g, inputs[1], CLV_I32, 3, k, &apart);
    m.value[2] = clv_input(g, inputs[2], wide, 3, k, &apart);
    const clv_init zeros = {CLV_INIT_ZEROS, 0};
    m.value[GATE_UP] = clv_state(g, inputs[GATE_UP], dtype, 4, up, &of_up, zeros);
    m.value[DOWN] = clv_state(g, inputs[DOWN], dtype, 3, down, &of_down, zeros);
    for (int a = 0; a < clv_graph_mesh(g)->n_axes; a++)
        for (int i = GATE_UP; i <= DOWN; i++)
            clv_keep_stationary(g, m.value[i], clv_graph_mesh(g)->axis[a].name);
    m.value[5] = clv_input(g, inputs[5], dtype, 3, x, &apart);
    clv_graph_push_scope(g, "layers.1");
    clv_value y = clv_experts(g, clv_constrain(g, m.value[0], &together), clv_constrain(g, m.value[1], &together),
                              clv_constrain(g, m.value[2], &together), m.value[3], m.value[4], CLV_SILU);
    y = clv_constrain(g, y, &apart);
    clv_graph_pop_scope(g);
    clv_value d[4];
    const clv_value wrt[] = {m.value[0], m.value[2], m.value[3], m.value[4]};
    clv_gradients(g, y, m.value[5], wrt, 4, d);
    clv_output(g, outputs[0], y, &apart);
    for (int o = 1; o < OUTPUTS; o++)
        clv_output(g, outputs[o], d[o - 1], NULL);
    must(clv_graph_status(g, &err), &err);
    return m;
}

static int count_of(const clv_program *program, clv_step_kind kind)
{
    int n = 0;
    for (int i = 0; i < program->n_instructions; i++)
        n += !program->instructions[i].op && program->instructions[i].step->kind == kind;
    return n;
}

static int64_t elems_of(const mixture *m, int input)
{
    const clv_type type = clv_graph_type(m->graph, m->value[input]);
    return clv_type_elems(&type);
}

/* One run: all outputs, one after the other, as f64. Returns what the run did. */
static clv_status run(double *out, const mixture *m, const clv_compile_options *options, load how, int dispatches,
                      clv_error *err)
{
    clv_program *program;
    clv_session *session;
    clv_input_binding in[6];
    int n_in = 0;
    clv_output_binding results[OUTPUTS];
    void *data[6], *made[OUTPUTS];
    const int of_output[OUTPUTS] = {0, 0, 2, 3, 4}, experts = (int)clv_graph_type(m->graph, m->value[4]).shape[0];
    must(clv_compile(&program, m->graph, options, err), err);
    must(clv_program_verify(program, err), err);
    if (dispatches >= 0) {
        assert_int_equal(count_of(program, CLV_STEP_DISPATCH), dispatches);
        assert_int_equal(count_of(program, CLV_STEP_COMBINE), dispatches);
    }
    for (int i = 0; i < 6; i++) {
        const clv_dtype dtype = clv_graph_type(m->graph, m->value[i]).dtype;
        data[i] = calloc((size_t)elems_of(m, i), clv_dtype_size(dtype));
        if (i == 1)
            choose(data[i], how, experts);
        for (int64_t e = 0; i != 1 && e < elems_of(m, i); e++)
            clv_dtype_store(dtype, data[i], e, sin((double)(e * 7 + i) + 0.3));
        if (i != GATE_UP && i != DOWN)
            in[n_in++] = (clv_input_binding){.name = inputs[i], .data = data[i]};
    }
    for (int o = 0; o < OUTPUTS; o++) {
        made[o] = calloc((size_t)elems_of(m, of_output[o]), sizeof(double));
        results[o] = (clv_output_binding){.name = outputs[o], .data = made[o]};
    }
    must(clv_session_new(&session, clv_graph_mesh(m->graph), &(clv_session_options){.check = 1}, err), err);
    must(clv_session_load(session, program, err), err);
    for (int i = GATE_UP; i <= DOWN; i++)
        must(clv_session_write(session, inputs[i], NULL, data[i], err), err);
    clv_status status = clv_session_run(session, program, in, n_in, results, OUTPUTS, err);
    for (int o = 0; o < OUTPUTS; o++) {
        const clv_dtype dtype = clv_graph_type(m->graph, m->value[of_output[o]]).dtype;
        for (int64_t e = 0; e < elems_of(m, of_output[o]); e++)
            *out++ = clv_dtype_load(dtype, made[o], e);
        free(made[o]);
    }
    clv_session_free(session);
    clv_program_free(program);
    for (int i = 0; i < 6; i++)
        free(data[i]);
    return status;
}

enum { MOST = 4 * ROWS * WIDE + ROWS * TOP + 4 * MOST_EXPERTS * WIDE * FFN };

/* A machine on which copying rows into messages costs more than gathering all. */
static clv_machine slow_memory(void)
{
    clv_machine machine = *clv_machine_or_default(NULL);
    machine.memory_bytes_per_s /= 100;
    return machine;
}

/* Against one rank in f64; and, unless the machine's slow memory leads to other strategies, bit for bit against rows
 * that are gathered. */
static void check(int split, clv_dtype dtype, int experts, load how, const double *want, bool gathers)
{
    static double gathered[MOST], sent[MOST];
    const clv_machine slow = slow_memory(), *machine = gathers ? &slow : NULL;
    clv_error err = {0};
    mixture m = build(split, dtype, experts);
    memset(gathered, 0, sizeof gathered);
    memset(sent, 0, sizeof sent);
    if (gathers)
        must(run(gathered, &m, &(clv_compile_options){.machine = machine}, how, 0, &err), &err);
    const clv_compile_options sends = {.machine = machine, .expert_rank_capacity_factor = 1e3, .overlap = how == TWICE};
    must(run(sent, &m, &sends, how, 2, &err), &err);
    for (int i = 0; i < MOST; i++) {
        if (gathers && sent[i] != gathered[i])
            fail_msg(
                "%s, %s, %d experts, load %d: value %d is %.17g where rows are sent, %.17g where they are gathered",
                splits[split].mesh, clv_dtype_name(dtype), experts, how, i, sent[i], gathered[i]);
        if (dtype == CLV_F64 && !(fabs(sent[i] - want[i]) <= 1e-12))
            fail_msg("%s, %d experts, load %d: value %d is %.17g, on one rank %.17g", splits[split].mesh, experts, how,
                     i, sent[i], want[i]);
    }
    clv_graph_free(m.graph);
}

static void test_values(void **state)
{
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16};
    static const int experts[] = {8, 5, 3};
    static double want[MOST];
    for (int e = 0; e < 3; e++)
        for (load how = EVEN; how < LOADS; how++) {
            clv_error err = {0};
            mixture one = build(0, CLV_F64, experts[e]);
            memset(want, 0, sizeof want);
            must(run(want, &one, NULL, how, 0, &err), &err);
            clv_graph_free(one.graph);
            for (int s = 1; s < SPLITS; s++)
                check(s, dtypes[(e + (int)how + s) % 3], experts[e], how, want, true);
            for (int s = 1; s < SPLITS; s += 2)
                check(s, CLV_F64, experts[e], how, want, true);
        }
}

/* Ranks without rows, and others with two spans of them: as many spans as ranks. */
static void test_few_rows(void **state)
{
    static double want[MOST];
    clv_error err = {0};
    batch = 3;
    seq = 2;
    mixture one = build(0, CLV_F64, 5);
    memset(want, 0, sizeof want);
    must(run(want, &one, NULL, EVEN, 0, &err), &err);
    clv_graph_free(one.graph);
    check(SPLITS - 1, CLV_F64, 5, EVEN, want, true);
    batch = BATCH;
    seq = SEQ;
}

/* Messages of several pieces over MPI. */
static void test_wide(void **state)
{
    static double want[MOST];
    clv_error err = {0};
    width = WIDE;
    mixture one = build(0, CLV_F64, 5);
    memset(want, 0, sizeof want);
    must(run(want, &one, NULL, EVEN, 0, &err), &err);
    clv_graph_free(one.graph);
    for (int s = 1; s < SPLITS; s++)
        check(s, CLV_F64, 5, EVEN, want, false);
    width = NARROW;
}

/* Bytes of a step by hand: rows of others that choose one of `here` of the experts, if choices are even. */
static void test_bytes(void **state)
{
    clv_error err = {0};
    clv_program *program;
    mixture m = build(1, CLV_F32, 8);
    const double others = (4 * SEQ) * NARROW * 4, chance = 1 - 4.0 * 3 * 2 / (8 * 7 * 6); /* 3 and 4 of 7 sequences */
    must(clv_compile(&program, m.graph, &(clv_compile_options){.by_bytes = true}, &err), &err);
    assert_int_equal(count_of(program, CLV_STEP_DISPATCH), 2);
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_reshard_step *step = program->instructions[i].step;
        if (step && (step->kind == CLV_STEP_DISPATCH || step->kind == CLV_STEP_COMBINE))
            assert_true(fabs(step->bytes - others * chance) < 1e-9);
    }
    clv_program_free(program);
    clv_graph_free(m.graph);
}

/* Where every row goes everywhere there is nothing to gain. */
static void test_not_chosen(void **state)
{
    clv_error err = {0};
    clv_program *program;
    mixture m = build(1, CLV_F32, 3);
    must(clv_compile(&program, m.graph, &(clv_compile_options){.by_bytes = true}, &err), &err);
    assert_int_equal(count_of(program, CLV_STEP_DISPATCH), 0);
    clv_program_free(program);
    clv_graph_free(m.graph);
}

/* All rows choose the last expert: it needs room for ROWS rows; a rank has 24 or 18 of its own. */
static void test_no_room(void **state)
{
    static double made[MOST];
    clv_error err = {0};
    mixture m = build(1, CLV_F32, 8);
    const double enough = (double)ROWS / (4 * SEQ * TOP);
    must(run(made, &m, &(clv_compile_options){.expert_rank_capacity_factor = enough}, ALL_TO_ONE, 2, &err), &err);
    const clv_compile_options less = {.expert_rank_capacity_factor = enough - 1.0 / (4 * SEQ * TOP)};
    const clv_status status = run(made, &m, &less, ALL_TO_ONE, 2, &err);
    assert_true(status == CLV_ELIMIT || status == CLV_EPEER); /* the failure of a process that found it first */
    if (!strstr(err.message, "42 rows are for the experts of rank 1, which has room for 41; an "
                             "expert_rank_capacity_factor of 0.59 would do") ||
        strcmp(err.op, "layers.1.experts") != 0)
        fail_msg("%s (op %s)", err.message, err.op);
    clv_graph_free(m.graph);
    m = build(1, CLV_F64, 8);
    clv_program *program, *whole;
    clv_memory small = {.size = sizeof small}, large = {.size = sizeof large};
    must(clv_compile(&program, m.graph, &(clv_compile_options){.expert_rank_capacity_factor = 0.05}, &err), &err);
    must(clv_compile(&whole, m.graph, &(clv_compile_options){.expert_rank_capacity_factor = 1e3}, &err), &err);
    must(clv_program_memory(program, &small, &err), &err);
    must(clv_program_memory(whole, &large, &err), &err);
    if (small.region >= large.region)
        fail_msg("%lld bytes with a factor, %lld without", (long long)small.region, (long long)large.region);
    clv_program_free(program);
    clv_program_free(whole);
    assert_int_equal(clv_compile(&program, m.graph, &(clv_compile_options){.expert_rank_capacity_factor = -1}, &err),
                     CLV_EINVAL);
    clv_graph_free(m.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),     cmocka_unit_test(test_few_rows),
                                       cmocka_unit_test(test_wide),       cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_not_chosen), cmocka_unit_test(test_no_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
