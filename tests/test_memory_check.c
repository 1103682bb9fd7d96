/* test_memory_check.c - what a session that checks finds: ops of this test do wrong on purpose, on one rank. */
#include <string.h>

#include "cleave/session.h"
#include "graph/graph.h"
#include "elementwise_op.h"
#include "must.h"
#include "program/program.h"
#include "runtime/checks/memory_check.h"
#include "runtime/checks/guard_bytes.h"
#include "runtime/session/session_internal.h"
#include "unit_test.h"

/* shards of 2, 3, 2 and 3 elements; of 2000 and 2001; and so large that the region is not looked at after each op */
enum { N = 10, LARGE = 8002, VAST = 80002, RANKS = 4, WORK = 256 };

/* ---- an op that copies, and then does one thing wrong ---- */

typedef void misdeed(const clv_call *call, float *out, int64_t n);

static misdeed *wrong; /* what the op does on the last rank */
static bool on_first;  /* or on the first */
static float *noted;   /* by a misdeed, for a later one */
static int length = N; /* of the vectors */

static size_t work_bytes(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return WORK;
}

static bool is_guilty(const clv_call *call)
{
    const clv_view *in = &call->in[0];
    return on_first ? in->lo[0] == 0 : in->lo[0] + in->shape[0] == in->global[0];
}

static clv_status copy_run(const clv_call *call, clv_error *err)
{
    int64_t n = clv_view_elems(&call->out[0]);
    for (int64_t i = 0; i < n; i++)
        ((float *)call->out[0].data)[i] = ((const float *)call->in[0].data)[i];
    if (wrong && is_guilty(call))
        wrong(call, call->out[0].data, n);
    return CLV_OK;
}

/* What every op here is: one result, cut as its one operand is. */
#define ONE_TO_ONE .min_in = 1, .max_in = 1, .n_out = 1, .shape = same_shape, .rule = by_elements

static const clv_op_def copies = {.name = "copies", ONE_TO_ONE, .workspace = work_bytes, .run = copy_run};

/* Bytes of the shard, as ops that ask for what they need do. */
static size_t shard_bytes(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return (size_t)clv_view_elems(&in[0]) * sizeof(float);
}

static const clv_op_def asks_little = {.name = "asks", ONE_TO_ONE, .workspace = shard_bytes, .run = copy_run};

static const clv_op_def asks_nothing = {.name = "asks", ONE_TO_ONE, .run = copy_run};

/* ---- ops with results in place of operands, or of bytes ---- */

/* All elements but the last one of the rank at fault. */
static clv_status copy_most(const clv_call *call, clv_error *err)
{
    size_t n = (size_t)clv_view_elems(&call->out[0]) - is_guilty(call), size = clv_dtype_size(call->out[0].dtype);
    if (call->out[0].data != call->in[0].data)
        memcpy(call->out[0].data, call->in[0].data, n * size);
    return CLV_OK;
}

/* Backwards, which needs its operand to the end. */
static clv_status turn(const clv_call *call, clv_error *err)
{
    int64_t n = clv_view_elems(&call->out[0]);
    for (int64_t i = 0; i < n; i++)
        ((float *)call->out[0].data)[i] = ((const float *)call->in[0].data)[n - 1 - i];
    return CLV_OK;
}

static const clv_op_def copies_most = {.name = "most", ONE_TO_ONE, .run = copy_most};
static const clv_op_def copies_most_in_place = {.name = "most", ONE_TO_ONE, .in_place = {1}, .run = copy_most};
static const clv_op_def turns_in_place = {.name = "turns", ONE_TO_ONE, .in_place = {1}, .run = turn};
static const clv_op_def copies_in_place = {
    .name = "copies", ONE_TO_ONE, .workspace = work_bytes, .in_place = {1}, .run = copy_run};

/* ---- misdeeds ---- */

static void write_behind(const clv_call *call, float *out, int64_t n)
{
    out[n] = 7;
}

static void write_far_behind(const clv_call *call, float *out, int64_t n)
{
    out[CLV_BUFFER_ALIGN / (int)sizeof *out + 1] = 7;
}

static void write_in_front(const clv_call *call, float *out, int64_t n)
{
    out[-1] = 7;
}

static void write_operand(const clv_call *call, float *out, int64_t n)
{
    ((float *)call->in[0].data)[0] += 1;
}

static void write_behind_workspace(const clv_call *call, float *out, int64_t n)
{
    ((char *)call->workspace)[WORK] = 7;
}

static void write_behind_its_own_workspace(const clv_call *call, float *out, int64_t n)
{
    ((float *)call->workspace)[n] = 7;
}

static void write_into_workspace(const clv_call *call, float *out, int64_t n)
{
    ((float *)call->workspace)[0] = 7;
}

static void leave_unwritten(const clv_call *call, float *out, int64_t n)
{
    clv_guard_bytes_fill(&out[n - 1], sizeof *out);
}

/* The first of the chain of ops notes where its operand lies, a later one writes there. */
static void write_noted(const clv_call *call, float *out, int64_t n)
{
    if (strstr(call->op->name, "layers.0"))
        noted = call->in[0].data;
    if (strstr(call->op->name, "layers.2"))
        *noted = 7;
}

/* Behind all that is planned, inside the region. */
static void write_nowhere(const clv_call *call, float *out, int64_t n)
{
    out[CLV_REGION_ALIGN / (int)sizeof *out] = 7;
}

/* Beyond the guard bytes of the result, where no result is yet. */
static void write_beyond(const clv_call *call, float *out, int64_t n)
{
    if (strstr(call->op->name, "layers.0"))
        out[n + 1000] = 7;
}

/* Wherever the test said. */
static void write_there(const clv_call *call, float *out, int64_t n)
{
    if (strstr(call->op->name, "layers.0"))
        *noted = 7;
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
        clv_graph_push_scope(graph, "layers.%d", d);
        y = clv_graph_emit_one(graph, &copies, NULL, &y, 1);
        clv_graph_pop_scope(graph);
    }
    clv_assign(graph, w, clv_add(graph, clv_add(graph, y, w), x));
    clv_output(graph, "sum", clv_reduce(graph, CLV_SUM, y, (int[]){0}, 1, false), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

/* y = def, applied twice, to a value without other readers. */
static clv_program *pair(const clv_op_def *def, clv_dtype dtype)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    must(clv_mesh_parse(&mesh, "x=4", &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_layout layout = clv_graph_layout(graph, 1, "x");
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){length}, &layout);
    clv_value y = clv_cast(graph, clv_scale(graph, x, 2), dtype);
    y = clv_graph_emit_one(graph, def, NULL, &y, 1);
    y = clv_cast(graph, clv_graph_emit_one(graph, def, NULL, &y, 1), CLV_F32);
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
    static float x[VAST];
    for (int i = 0; i < length; i++)
        x[i] = (float)i;
    clv_input_binding in = {"x", x};
    clv_output_binding out = {"sum", sum};
    return clv_session_run(session, program, &in, 1, &out, 1, err);
}

/* The first run of the program fails on the last rank, or another, with a message that holds the part. */
static void expect_on(int rank, clv_program *program, misdeed *does, const char *op, const char *part)
{
    float sum;
    clv_error err = {0};
    wrong = does;
    clv_session *session = new_session(program, true);
    clv_status status = run(session, program, &sum, &err);
    if (status != CLV_ECHECK || (rank >= 0 && err.rank != rank) || strcmp(err.op, op) != 0 ||
        !strstr(err.message, part))
        fail_msg("%s of rank %d, op '%s': '%s'; expected op '%s' and '%s'", clv_status_name(status), err.rank, err.op,
                 err.message, op, part);
    wrong = NULL;
    clv_session_free(session);
    clv_program_free(program);
}

static void expect(clv_program *program, misdeed *does, const char *op, const char *part)
{
    expect_on(RANKS - 1, program, does, op, part);
}

static void test_writes_that_are_not_its_own(void **state)
{
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

/* What an op asks for on its own rank bounds it, not what is planned for the largest shard, nor what that was rounded
 * up to. */
static void test_workspaces_of_a_rank(void **state)
{
    expect(pair(&asks_little, CLV_F32), write_behind_its_own_workspace, "asks",
           "it wrote behind the end of its workspace of 12 bytes");
    on_first = true; /* 12 are planned */
    expect_on(0, pair(&asks_little, CLV_F32), write_behind_its_own_workspace, "asks",
              "it wrote behind the end of its workspace of 8 bytes");
    on_first = false;
    expect(pair(&asks_nothing, CLV_F32), write_into_workspace, "asks", "it wrote into a workspace, and asks for none");
}

/* For large values, the bytes after them are checked after every op, the values when they are read. */
static void test_large_values(void **state)
{
    length = LARGE;
    expect(chain(1, false), write_behind, "layers.0.copies",
           "it wrote behind the end of the result of layers.0.copies");
    expect(chain(3, true), write_noted, "combine", "an op before it changed state 'w', which it does not write");
    expect(chain(2, false), write_operand, "layers.1.copies", "it changed the result of layers.0.copies");
    length = N;
}

/* What moves bytes is not run apart: what it leaves out shows by what its memory was filled with. */
static void test_bytes_left_unwritten(void **state)
{
    _Alignas(8) unsigned char bytes[64];
    clv_guard_bytes_fill(bytes, 64);
    assert_int_equal(clv_guard_bytes_first_unwritten(CLV_U8, bytes, 64), 0);
    assert_int_equal(clv_guard_bytes_first_unwritten(CLV_U8, bytes, 15), -1); /* may be values */
    memset(bytes, 1, 64);
    assert_int_equal(clv_guard_bytes_first_unwritten(CLV_BOOL, bytes, 64), -1);
    clv_guard_bytes_fill(bytes + 33, 1);
    assert_int_equal(clv_guard_bytes_first_unwritten(CLV_BOOL, bytes, 64), 33);
    assert_int_equal(clv_guard_bytes_first_unwritten(CLV_U8, bytes, 64), -1);
    clv_guard_bytes_fill(bytes + 33, 16);
    assert_int_equal(clv_guard_bytes_first_unwritten(CLV_U8, bytes, 64), 33);
}

static void test_parts_left_unwritten(void **state)
{
    expect(chain(1, false), leave_unwritten, "layers.0.copies",
           "it left element 2 of the result of layers.0.copies unwritten");
}

/* Also where the memory holds what an operand left, and where any byte may be a value. */
static void test_parts_that_hold_something_else(void **state)
{
    expect(pair(&copies_most, CLV_F32), NULL, "most", "it left element 2 of the result of most unwritten");
    expect(pair(&copies_most_in_place, CLV_F32), NULL, "most", "it left element 2 of the result of most unwritten");
    expect(pair(&copies_most, CLV_U8), NULL, "most", "it left element 2 of the result of most unwritten");
    expect(pair(&copies_most, CLV_BOOL), NULL, "most", "it left element 2 of the result of most unwritten");
    expect(pair(&copies_most_in_place, CLV_U8), NULL, "most", "it left element 2 of the result of most unwritten");
    expect(pair(&copies_in_place, CLV_F32), write_behind, "copies", "it wrote behind the end of the result of copies");
    expect(pair(&copies_in_place, CLV_F32), write_operand, "copies", "it changed ");
    expect_on(-1, pair(&turns_in_place, CLV_F32), NULL, "turns", "or computes another value in place than");
}

static void test_memory_that_holds_nothing(void **state)
{
    expect(chain(3, false), write_nowhere, "layers.0.copies", "it wrote into memory that held no value");
    length = VAST;
    expect(chain(3, false), write_beyond, "layers.0.copies", "it wrote into memory that held no value");
    length = N;
}

/* Far from all that an op has in hand, in a large region, the ops are named among which the one at fault is. */
static void test_memory_far_away(void **state)
{
    float sum;
    clv_error err = {0};
    length = VAST;
    clv_program *program = chain(3, false);
    clv_session *session = new_session(program, true);
    must(run(session, program, &sum, &err), &err);
    const clv_loaded_program *loaded = session->loaded[0];
    noted = (float *)((char *)loaded->ranks[RANKS - 1].region + clv_memory_check_plan(loaded->check)->bytes) - 1;
    wrong = write_there;
    assert_int_equal(run(session, program, &sum, &err), CLV_ECHECK);
    if (!strstr(err.message, "or an op since the beginning, wrote into memory that held no value"))
        fail_msg("%s", err.message);
    wrong = NULL;
    length = N;
    clv_session_free(session);
    clv_program_free(program);
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
    clv_program *program = chain(1, false);
    float sum;
    clv_error err = {0};
    int copy = find(program, "layers.0.copies");
    program->instructions[copy].workspace_bytes -= CLV_BUFFER_ALIGN;
    clv_session *session = new_session(program, true);
    assert_int_equal(run(session, program, &sum, &err), CLV_ECHECK);
    if (!strstr(err.message, "layers.0.copies: it needs a workspace of 256 bytes on this rank, 192 are planned"))
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
    float sum;
    clv_error err = {0};
    clv_program *program = chain(2, false);
    int first = find(program, "layers.0.copies"), result = program->instructions[first].out[0];
    program->buffers[result].last = first;
    clv_session *session = new_session(program, true);
    assert_int_equal(run(session, program, &sum, &err), CLV_ECHECK);
    if (!strstr(err.message, "layers.1.copies: it reads the result of layers.0.copies, whose memory was freed"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
}

/* A buffer is read after its memory was taken over. */
static void test_plans_that_take_over_too_early(void **state)
{
    float sum;
    clv_error err = {0};
    clv_program *program = chain(2, false);
    int x = program->instructions[find(program, "layers.0.copies")].in[0];
    int second = program->instructions[find(program, "layers.1.copies")].out[0];
    int last = program->n_instructions - 1;
    program->buffers[second].shares_with = x;
    program->buffers[x].last = last;
    program->instructions[last].in[0] = x;
    clv_session *session = new_session(program, true);
    assert_int_equal(run(session, program, &sum, &err), CLV_EINVAL);
    if (!strstr(err.message, "reuses"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
}

static void test_plans_that_overlap(void **state)
{
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
    clv_memory memory = {.size = sizeof memory};
    must(clv_program_memory(program, &memory, &err), &err);
    assert_int_equal(clv_session_rank_bytes(plain), memory.total);
    clv_session_free(checked);
    clv_session_free(plain);
    clv_program_free(program);
}

/* State is the caller's between runs, all else is not. */
/* Kernels count on it, with guard bytes and without. */
static void test_alignment(void **state)
{
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
        cmocka_unit_test(test_workspaces_of_a_rank),
        cmocka_unit_test(test_large_values),
        cmocka_unit_test(test_parts_left_unwritten),
        cmocka_unit_test(test_bytes_left_unwritten),
        cmocka_unit_test(test_parts_that_hold_something_else),
        cmocka_unit_test(test_memory_that_holds_nothing),
        cmocka_unit_test(test_memory_far_away),
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
