/* test_multi_process_bindings.c - inputs and outputs of runs over several processes: read-only inputs, whole and in
 * parts; outputs that are sharded, replicated, of few elements or of none; state that is read and written by boxes, in
 * layouts of all kinds. Everything is, bit for bit, what one process with all ranks gives.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "forked_ranks.h"
#include "must.h"
#include "tensor/box_copy.h"
#include "unit_test.h"

enum { N = 13, ROWS = 5, COLUMNS = 4, FEW = 2 /* fewer than ranks */, RUNS = 3, STATES = 3, OUTPUTS = 7 };

static const char *const state_names[STATES] = {"cut", "replicated", "halves"};

typedef struct inputs {
    float a[N], table[ROWS * COLUMNS], few[FEW];
    int32_t ids[N];
    uint16_t half[N]; /* bf16 */
} inputs;

/* What the runs left, everything. */
typedef struct results {
    float sum[RUNS][N], table[RUNS][COLUMNS * ROWS], few[RUNS][FEW], mean[RUNS], none[1];
    int32_t many[RUNS][N];
    uint16_t half[RUNS][N];
    float cut[N], replicated[N];
    uint16_t half_state[N];
} results;

typedef struct running {
    clv_program *program, *moved; /* `moved`: with state in other layouts */
    const inputs *in;             /* must not be written */
    const results *want;
} running;

/* shift: state is kept in another layout than without. */
static clv_program *make(bool shift)
{
    clv_error err = {0};
    clv_graph *graph = must_graph("x=2,y=3");
    clv_program *program;
    clv_layout cut = clv_graph_layout(graph, 1, shift ? "y" : "(x,y)"), whole = clv_graph_layout(graph, 1, "_"),
               other = clv_graph_layout(graph, 1, shift ? "(y,x)" : "_"), rows = clv_graph_layout(graph, 2, "y,x"),
               columns = clv_graph_layout(graph, 2, "x,y"), split = clv_graph_layout(graph, 1, "(x,y)");
    clv_value a = clv_input(graph, "a", CLV_F32, 1, (int64_t[]){N}, &split);
    clv_value table = clv_input(graph, "table", CLV_F32, 2, (int64_t[]){ROWS, COLUMNS}, &rows);
    clv_value few = clv_input(graph, "few", CLV_F32, 1, (int64_t[]){FEW}, &split);
    clv_value ids = clv_input(graph, "ids", CLV_I32, 1, (int64_t[]){N}, &whole);
    clv_value half = clv_input(graph, "half", CLV_BF16, 1, (int64_t[]){N}, &split);
    clv_value none = clv_input(graph, "none", CLV_F32, 1, (int64_t[]){0}, &split);
    clv_init normal = {CLV_INIT_NORMAL, 1};
    clv_value w = clv_state(graph, "cut", CLV_F32, 1, (int64_t[]){N}, &cut, normal);
    clv_value r = clv_state(graph, "replicated", CLV_F32, 1, (int64_t[]){N}, &other, normal);
    clv_value h = clv_state(graph, "halves", CLV_BF16, 1, (int64_t[]){N}, &cut, normal);
    clv_value sum = clv_add(graph, clv_add(graph, a, w), r), halves = clv_add(graph, h, half);
    clv_assign(graph, w, sum);
    clv_assign(graph, r, clv_scale(graph, sum, 0.5));
    clv_assign(graph, h, halves);
    clv_output(graph, "sum", sum, &split);
    clv_output(graph, "table", clv_transpose(graph, table, (int[]){1, 0}), &columns);
    clv_output(graph, "few", clv_scale(graph, few, 3), &split);
    clv_output(graph, "mean", clv_reduce(graph, CLV_MEAN, sum, (int[]){0}, 1, false), NULL);
    clv_output(graph, "many", clv_add(graph, ids, ids), &whole);
    clv_output(graph, "none", clv_scale(graph, none, 2), &split);
    clv_output(graph, "half", halves, &whole);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

static clv_status run_all(results *out, clv_session *session, const running *r, clv_error *err)
{
    const inputs *in = r->in;
    clv_input_binding bound[] = {{"a", in->a},     {"table", in->table}, {"few", in->few},
                                 {"ids", in->ids}, {"half", in->half},   {"none", in->a}};
    for (int run = 0; run < RUNS; run++) {
        clv_output_binding asked[OUTPUTS] = {
            {"sum", out->sum[run]},   {"table", out->table[run]}, {"few", out->few[run]},  {"mean", &out->mean[run]},
            {"many", out->many[run]}, {"none", out->none},        {"half", out->half[run]}};
        CLV_TRY(clv_session_run(session, run == 1 ? r->moved : r->program, bound, 6, asked, OUTPUTS, err));
        /* Part of each state is written anew; of an empty box nothing. */
        float values[N];
        uint16_t halves[N];
        const clv_shard box = {.rank = 1, .lo = {run}, .hi = {run + 7}}, empty = {.rank = 1, .lo = {4}, .hi = {4}};
        for (int i = 0; i < N; i++)
            values[i] = (float)(run * 100 + i);
        CLV_TRY(clv_session_write(session, "cut", &box, values, err));
        CLV_TRY(clv_session_write(session, "replicated", &box, values, err));
        CLV_TRY(clv_session_read(session, "halves", &box, halves, err));
        CLV_TRY(clv_session_write(session, "halves", &(clv_shard){.rank = 1, .lo = {0}, .hi = {7}}, halves, err));
        CLV_TRY(clv_session_read(session, "cut", &empty, values, err));
        CLV_TRY(clv_session_write(session, "cut", &empty, values, err));
        if (run == 1)
            clv_session_unload(session, r->moved);
    }
    CLV_TRY(clv_session_read(session, "cut", NULL, out->cut, err));
    CLV_TRY(clv_session_read(session, "replicated", NULL, out->replicated, err));
    return clv_session_read(session, "halves", NULL, out->half_state, err);
}

static void run_here(const clv_process_links *links, void *arg)
{
    static results got;
    const running *r = arg;
    clv_error err = {0};
    clv_session *session = new_session(clv_program_mesh(r->program), links, 0, links->me % 2);
    check(run_all(&got, session, r, &err) == CLV_OK, links, "runs", &err);
    check(memcmp(&got, r->want, sizeof got) == 0, links, "other results", NULL);
    clv_state_info info = {.size = sizeof info};
    for (int i = 0; i < STATES; i++)
        check(clv_session_state(session, i, &info, &err) == CLV_OK && strcmp(info.name, state_names[i]) == 0, links,
              "another state", &err);
    clv_session_stats stats = {.size = sizeof stats};
    check(clv_session_take_stats(session, &stats, &err) == CLV_OK && stats.runs == RUNS && stats.seconds > 0, links,
          "stats", &err);
    check(clv_session_take_stats(session, &stats, &err) == CLV_OK && stats.runs == 0, links, "stats begin anew", &err);
    clv_session_free(session);
}

static results *run_alone(const running *r)
{
    clv_error err = {0};
    results *out = calloc(1, sizeof *out);
    assert_non_null(out);
    clv_session *session = new_session(clv_program_mesh(r->program), NULL, 0, 0);
    must(run_all(out, session, r, &err), &err);
    clv_session_free(session);
    return out;
}

static void test_runs(void **state)
{
    running *r = *state;
    for (int s = 0; s < SPLITS; s++)
        in_processes(splits[s], counts[s], run_here, r, -1);
}

/* ---- in parts ---- */

enum { MOST_PARTS = 100, PART_BYTES = 128 };

/* The whole tensor: what goes in, or what the first run is to give; NULL for state. */
static const void *whole_of(const clv_program_tensor *t, const running *r)
{
    const inputs *in = r->in;
    const results *want = r->want;
    const struct {
        const char *name;
        const void *in, *out;
    } all[] = {{"a", in->a, NULL},          {"table", in->table, want->table[0]}, {"few", in->few, want->few[0]},
               {"ids", in->ids, NULL},      {"half", in->half, want->half[0]},    {"none", in->a, want->none},
               {"sum", NULL, want->sum[0]}, {"mean", NULL, want->mean},           {"many", NULL, want->many[0]}};
    for (size_t i = 0; t->kind != CLV_NAMED_STATE && i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, t->name) == 0)
            return t->kind == CLV_NAMED_INPUT ? all[i].in : all[i].out;
    return NULL;
}

static clv_shard whole_box(const clv_type *type)
{
    clv_shard box = {.rank = type->rank};
    memcpy(box.hi, type->shape, sizeof box.hi);
    return box;
}

/* Each rank here is given its shard of each input and gives its shard of each output, whoever else holds it. */
static void parts_here(const clv_process_links *links, void *arg)
{
    static unsigned char data[MOST_PARTS][PART_BYTES], want[MOST_PARTS][PART_BYTES];
    const running *r = arg;
    const clv_mesh *mesh = clv_program_mesh(r->program);
    clv_error err = {0};
    clv_session *session = new_session(mesh, links, 0, 1);
    clv_input_box in[MOST_PARTS];
    clv_output_box out[MOST_PARTS];
    int64_t bytes[MOST_PARTS];
    int n = 0, n_in = 0, n_out = 0, of_output[MOST_PARTS];
    clv_program_tensor t = {.size = sizeof t};
    for (int i = 0; clv_program_tensor_at(r->program, i, &t, &err) == CLV_OK && t.name; i++)
        for (int rank = links->first[links->me]; whole_of(&t, r) && rank < links->first[links->me + 1]; rank++) {
            clv_shard all = whole_box(&t.type), box = clv_layout_shard(&t.layout, mesh, t.type.shape, rank);
            bool goes_in = t.kind == CLV_NAMED_INPUT;
            check(n < MOST_PARTS, links, "too many parts", NULL);
            bytes[n] = clv_shard_elems(&box) * (int64_t)clv_dtype_size(t.type.dtype);
            clv_box_copy(goes_in ? data[n] : want[n], &box, whole_of(&t, r), &all, &box, clv_dtype_size(t.type.dtype));
            if (goes_in)
                in[n_in++] = (clv_input_box){t.name, box, data[n]};
            else {
                of_output[n_out] = n;
                out[n_out++] = (clv_output_box){t.name, box, data[n]};
            }
            n++;
        }
    clv_run run = {
        .size = sizeof run, .n_input_boxes = n_in, .input_boxes = in, .n_output_boxes = n_out, .output_boxes = out};
    check(clv_session_run_boxes(session, r->program, &run, &err) == CLV_OK, links, "a run of parts", &err);
    for (int i = 0; i < n_out; i++)
        check(memcmp(data[of_output[i]], want[of_output[i]], (size_t)bytes[of_output[i]]) == 0, links, out[i].name,
              NULL);
    check(n_out == OUTPUTS * (links->first[links->me + 1] - links->first[links->me]), links, "no parts", NULL);
    clv_session_free(session);
}

static void test_parts(void **state)
{
    running *r = *state;
    for (int s = 0; s < SPLITS; s++)
        in_processes(splits[s], counts[s], parts_here, r, -1);
}

static int set_up(void **state)
{
    static running r;
    inputs *in = mmap(NULL, sizeof *in, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (in == MAP_FAILED)
        return -1;
    clv_random_normal(in->a, clv_key_seed(1), 0, N);
    clv_random_normal(in->table, clv_key_seed(2), 0, ROWS * COLUMNS);
    clv_random_normal(in->few, clv_key_seed(3), 0, FEW);
    clv_dtype_convert(CLV_BF16, in->half, CLV_F32, in->a, N);
    for (int i = 0; i < N; i++)
        in->ids[i] = i * i;
    if (mprotect(in, sizeof *in, PROT_READ) != 0)
        return -1;
    r = (running){.program = make(false), .moved = make(true), .in = in};
    r.want = run_alone(&r);
    *state = &r;
    return 0;
}

static int tear_down(void **state)
{
    running *r = *state;
    clv_program_free(r->program);
    clv_program_free(r->moved);
    free((void *)r->want);
    return munmap((void *)r->in, sizeof *r->in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
