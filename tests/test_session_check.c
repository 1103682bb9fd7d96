/* test_session_check.c - what a session that checks finds: ops of this test do wrong on purpose, on one rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "cleave/session.h"
#include "graph/graph.h"
#include "must.h"
#include "program/program.h"
#include "runtime/guard.h"
#include "runtime/session.h"

enum { N = 10, LARGE = 8002, RANKS = 4, WORK = 256 }; /* shards of 2, 3, 2 and 3 elements, or 2000 and 2001 */

/* ---- an op that copies, and then does one thing wrong ---- */

typedef void misdeed(const clv_call *call, float *out, int64_t n);

static misdeed *wrong; /* what the op does on the last rank */
static float *noted;   /* by a misdeed, for a later one */
static int length = N; /* of the vectors */

static clv_status same_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    (void)op;
    (void)err;
    out[0] = in[0];
    return CLV_OK;
}

static void pass_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
}

static size_t work_bytes(const clv_op *op, const clv_view *in, const clv_view *out)
{
    (void)op;
    (void)in;
    (void)out;
    return WORK;
}

static clv_status copy_run(const clv_call *call, clv_error *err)
{
    (void)err;
    int64_t n = clv_view_elems(&call->out[0]);
    for (int64_t i = 0; i < n; i++)
        ((float *)call->out[0].data)[i] = ((const float *)call->in[0].data)[i];
    bool last = call->in[0].lo[0] + call->in[0].shape[0] == call->in[0].global[0];
    if (wrong && last)
        wrong(call, call->out[0].data, n);
    return CLV_OK;
}

static const clv_op_def copies = {.name = "copies",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .n_out = 1,
                                  .shape = same_shape,
                                  .rule = pass_rule,
                                  .workspace = work_bytes,
                                  .run = {[CLV_CPU] = copy_run}};

/* ---- misdeeds ---- */

static void write_behind(const clv_call *call, float *out, int64_t n)
{
    (void)call;
    out[n] = 7;
}

static void write_far_behind(const clv_call *call, float *out, int64_t n)
{
    (void)call;
    (void)n;
    out[CLV_BUFFER_ALIGN / (int)sizeof *out + 1] = 7;
}

static void write_in_front(const clv_call *call, float *out, int64_t n)
{
    (void)call;
    (void)n;
    out[-1] = 7;
}

static void write_operand(const clv_call *call, float *out, int64_t n)
{
    (void)out;
    (void)n;
    ((float *)call->in[0].data)[0] += 1;
}

static void write_behind_workspace(const clv_call *call, float *out, int64_t n)
{
    (void)out;
    (void)n;
    ((char *)call->workspace)[WORK] = 7;
}

static void leave_unwritten(const clv_call *call, float *out, int64_t n)
{
    clv_guard_fill(&out[n - 1], sizeof *out);
    (void)call;
}

/* The first of the chain of ops notes where its operand lies, a later one writes there. */
static void write_noted(const clv_call *call, float *out, int64_t n)
{
    (void)out;
    (void)n;
    if (strstr(call->op->name, "layers.0"))
        noted = call->in[0].data;
    if (strstr(call->op->name, "layers.2"))
        *noted = 7;
}

/* Behind all that is planned, inside the region. */
static void write_nowhere(const clv_call *call, float *out, int64_t n)
{
    (void)call;
    (void)n;
    out[CLV_REGION_ALIGN / (int)sizeof *out] = 7;
}

/* ---- a program of a few such ops ---- */

/* y = the op, `depth` times over, of x or of w, kept as state; w gets y in the end. */
static clv_program *chain(int depth, bool of_state)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    must(clv_mesh_parse(&mesh, "x=4", &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_layout layout = clv_graph_layout(graph, 1, "x");
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){length}, &layout);
    clv_value w = clv_state(graph, "w", CLV_F32, 1, (int64_t[]){length}, &layout, (clv_init){CLV_INIT_ONES, 0});
    clv_value y = of_state ? w : x;
    for (int d = 0; d < depth; d++) {
        clv_graph_push(graph, "layers.%d", d);
        y = clv_graph_emit1(graph, &copies, NULL, &y, 1);
        clv_graph_pop(graph);
    }
    clv_assign(graph, w, clv_add(graph, clv_add(graph, y, w), x));
    clv_output(graph, "sum", clv_reduce(graph, CLV_SUM, y, (int[]){0}, 1, false), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

static clv_session *new_session(const clv_program *program, bool check)
{
    clv_error err = {0};
    clv_session *session;
    must(clv_session_new(&session, clv_program_mesh(program), &(clv_session_options){.check = check}, &err), &err);
    return session;
}

static clv_status run(clv_session *session, const clv_program *program, float *sum, clv_error *err)
{
    static float x[LARGE];
    for (int i = 0; i < length; i++)
        x[i] = (float)i;
    clv_binding in = {"x", x}, out = {"sum", sum};
    return clv_session_run(session, program, &in, 1, &out, 1, err);
}

/* The first run of the program fails on rank 3 with a message that holds both parts; without a check it does not. */
static void expect(clv_program *program, misdeed *does, const char *op, const char *part)
{
    float sum;
    clv_error err = {0};
    wrong = does;
    clv_session *session = new_session(program, true);
    clv_status status = run(session, program, &sum, &err);
    if (status != CLV_ECHECK || err.rank != RANKS - 1 || strcmp(err.op, op) != 0 || !strstr(err.message, part))
        fail_msg("%s of rank %d, op '%s': '%s'; expected op '%s' and '%s'", clv_status_name(status), err.rank, err.op,
                 err.message, op, part);
    wrong = NULL;
    clv_session_free(session);
    clv_program_free(program);
}

static void test_writes_that_are_not_its_own(void **state)
{
    (void)state;
    expect(chain(1, false), write_behind, "layers.0.copies",
           "rank 3, layers.0.copies: it wrote behind the end of the result of layers.0.copies: byte 0 after its 12");
    expect(chain(1, false), write_far_behind, "layers.0.copies", "it wrote behind the end of the result of layers.0");
    expect(chain(1, false), write_in_front, "layers.0.copies", "it wrote b"); /* behind what lies before, or nothing */
    expect(chain(1, false), write_operand, "layers.0.copies", "it changed input 'x', which it does not write");
    expect(chain(2, true), write_operand, "layers.0.copies", "it changed state 'w', which it does not write");
    expect(chain(1, false), write_behind_workspace, "layers.0.copies",
           "it wrote behind the end of its workspace of 256 bytes");
    expect(chain(3, true), write_noted, "layers.2.copies", "it changed state 'w', which it does not write");
}

/* Of large values the bytes behind are looked at after every op, the values when they are read. */
static void test_large_values(void **state)
{
    (void)state;
    length = LARGE;
    expect(chain(1, false), write_behind, "layers.0.copies",
           "it wrote behind the end of the result of layers.0.copies");
    expect(chain(3, true), write_noted, "combine", "an op before it changed state 'w', which it does not write");
    expect(chain(2, false), write_operand, "layers.1.copies", "it changed the result of layers.0.copies");
    length = N;
}

static void test_parts_left_unwritten(void **state)
{
    (void)state;
    expect(chain(1, false), leave_unwritten, "layers.0.copies",
           "it left element 2 of the result of layers.0.copies unwritten");
}

static void test_memory_that_holds_nothing(void **state)
{
    (void)state;
    expect(chain(3, false), write_nowhere, "outside of any op", "an op wrote into memory that held no value");
}

/* ---- a plan that is wrong ---- */

static int find(const clv_program *program, const char *name)
{
    for (int i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].op && strcmp(program->instructions[i].name, name) == 0)
            return i;
    fail_msg("there is no %s", name);
    return -1;
}

static void test_plans_that_are_too_small(void **state)
{
    (void)state;
    clv_program *program = chain(1, false);
    float sum;
    clv_error err = {0};
    int copy = find(program, "layers.0.copies");
    program->instructions[copy].workspace_bytes -= CLV_BUFFER_ALIGN;
    clv_session *session = new_session(program, true);
    assert_int_equal(run(session, program, &sum, &err), CLV_ECHECK);
    if (!strstr(err.message, "layers.0.copies: it wants a workspace of 256 bytes on this rank, 192 are planned"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    program->instructions[copy].workspace_bytes += CLV_BUFFER_ALIGN;
    program->buffers[program->instructions[copy].out[0]].bytes = 8;
    err = (clv_error){0};
    session = new_session(program, true);
    assert_int_equal(run(session, program, &sum, &err), CLV_ECHECK); /* ranks 1 and 3 hold three elements */
    if (err.rank % 2 != 1 || !strstr(err.message, "the result of layers.0.copies has 12 bytes on this rank, 8 are"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
}

static void test_plans_that_give_back_too_early(void **state)
{
    (void)state;
    float sum;
    clv_error err = {0};
    clv_program *program = chain(2, false);
    int first = find(program, "layers.0.copies"), result = program->instructions[first].out[0];
    program->buffers[result].last = first;
    clv_session *session = new_session(program, true);
    assert_int_equal(run(session, program, &sum, &err), CLV_ECHECK);
    if (!strstr(err.message, "layers.1.copies: it reads the result of layers.0.copies, whose memory was given back"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
}

/* A buffer is read after its memory was taken over. */
static void test_plans_that_take_over_too_early(void **state)
{
    (void)state;
    float sum;
    clv_error err = {0};
    clv_program *program = chain(2, false);
    int x = program->instructions[find(program, "layers.0.copies")].in[0];
    int second = program->instructions[find(program, "layers.1.copies")].out[0];
    int last = program->n_instructions - 1;
    program->buffers[second].shares = x;
    program->buffers[x].last = last;
    program->instructions[last].in[0] = x;
    clv_session *session = new_session(program, true);
    assert_int_equal(run(session, program, &sum, &err), CLV_EINVAL);
    if (!strstr(err.message, "took over"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
}

static void test_plans_that_overlap(void **state)
{
    (void)state;
    float sum;
    clv_error err = {0};
    clv_program *program = chain(2, false);
    clv_instruction *first = &program->instructions[find(program, "layers.0.copies")];
    first->workspace_offset = program->buffers[first->in[0]].offset;
    clv_session *session = new_session(program, true);
    assert_int_equal(run(session, program, &sum, &err), CLV_EINVAL);
    if (!strstr(err.message, "the workspace of instruction"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
}

/* ---- nothing wrong ---- */

static void test_the_same_results(void **state)
{
    (void)state;
    clv_error err = {0};
    clv_program *program = chain(3, true);
    clv_session *checked = new_session(program, true), *plain = new_session(program, false);
    float w[2][N];
    for (int i = 0; i < 3; i++) {
        float sum[2];
        must(run(checked, program, &sum[0], &err), &err);
        must(run(plain, program, &sum[1], &err), &err);
        assert_true(sum[0] == sum[1]);
        if (i == 1) {
            must(clv_session_write(checked, "w", NULL, (float[N]){1, 2, 3}, &err), &err);
            must(clv_session_write(plain, "w", NULL, (float[N]){1, 2, 3}, &err), &err);
        }
    }
    must(clv_session_read(checked, "w", NULL, w[0], &err), &err);
    must(clv_session_read(plain, "w", NULL, w[1], &err), &err);
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    assert_int_equal(clv_session_rank_bytes(checked), clv_session_rank_bytes(plain));
    assert_int_equal(clv_session_rank_bytes(plain), clv_program_memory(program).total);
    clv_session_free(checked);
    clv_session_free(plain);
    clv_program_free(program);
}

/* State is the caller's between runs, all else is not. */
/* Kernels count on it, with guard bytes and without. */
static void test_alignment(void **state)
{
    (void)state;
    for (int check = 0; check < 2; check++) {
        float sum;
        clv_error err = {0};
        clv_program *program = chain(2, true);
        clv_session *session = new_session(program, check);
        must(run(session, program, &sum, &err), &err);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal((uintptr_t)session->states[0].data[r] % CLV_BUFFER_ALIGN, 0);
            assert_int_equal((uintptr_t)session->loaded[0]->ranks[r].region % CLV_BUFFER_ALIGN, 0);
        }
        clv_session_free(session);
        clv_program_free(program);
    }
}

static void test_between_runs(void **state)
{
    (void)state;
    float sum;
    clv_error err = {0};
    clv_program *program = chain(1, false);
    clv_session *session = new_session(program, true);
    must(run(session, program, &sum, &err), &err);
    ((char *)session->loaded[0]->ranks[2].region)[CLV_REGION_ALIGN / 2] ^= 1;
    assert_int_equal(run(session, program, &sum, &err), CLV_ECHECK);
    if (err.rank != 2 || !strstr(err.message, "something outside of the run wrote into memory that held no value"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    session = new_session(program, true);
    err = (clv_error){0};
    must(run(session, program, &sum, &err), &err);
    ((float *)session->states[0].data[1])[-1] = 7;
    assert_int_equal(run(session, program, &sum, &err), CLV_ECHECK);
    if (err.rank != 1 || !strstr(err.message, "before the beginning of state 'w'"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes_that_are_not_its_own),
        cmocka_unit_test(test_large_values),
        cmocka_unit_test(test_parts_left_unwritten),
        cmocka_unit_test(test_memory_that_holds_nothing),
        cmocka_unit_test(test_plans_that_are_too_small),
        cmocka_unit_test(test_plans_that_give_back_too_early),
        cmocka_unit_test(test_plans_that_take_over_too_early),
        cmocka_unit_test(test_plans_that_overlap),
        cmocka_unit_test(test_the_same_results),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_between_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
