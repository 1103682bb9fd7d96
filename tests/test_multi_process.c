/* test_multi_process.c - sessions whose ranks are in several processes, connected by sockets, or in an MPI job if a
 * launcher started the test: programs, state, outputs and manual SPMD functions give, bit for bit, the results of one
 * process with all ranks; a failure ends all of them.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cleave/checkpoint.h"
#include "cleave/nn.h"
#include "cleave/spmd.h"
#include "forked_ranks.h"
#include "mpi_test_job.h"
#include "must.h"
#include "unit_test.h"

enum { LATE = 4 /* seconds of a rank */ };

/* ---- a block that is trained ---- */

enum { B = 2, S = 6, M = 24, HEADS = 6, STEPS = 3, PARAMETERS = 16, VALUES = 40000 };

static clv_program *trainer(const char *mesh)
{
    clv_error err = {0};
    clv_graph *graph = must_graph(mesh);
    clv_program *program;
    clv_axis_rules rules = clv_graph_axis_rules(graph, "megatron-sp");
    clv_block_options options = clv_block_defaults(CLV_BLOCK_LLAMA, HEADS, HEADS, 40);
    clv_value parameters[PARAMETERS], gradients[PARAMETERS];
    const int64_t shape[] = {B, S, M};
    clv_value x = clv_input(graph, "x", CLV_F32, 3, shape, NULL), lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL),
              step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);
    clv_value y = clv_transformer_block(graph, x, &rules, &options);
    clv_value loss = clv_reduce(graph, CLV_MEAN, clv_mul(graph, y, y), (int[]){0, 1, 2}, 3, false);
    int n = clv_graph_parameters(graph, parameters, PARAMETERS);
    clv_gradients(graph, loss, CLV_NONE, parameters, n, gradients);
    for (int i = 0; i < n; i++)
        clv_adamw(graph, parameters[i], gradients[i], lr, step, NULL);
    clv_output(graph, "loss", loss, NULL);
    clv_output(graph, "y", y, NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

typedef struct trained {
    const clv_program *program;
    float loss[STEPS], y[B * S * M], state[VALUES];
    int64_t values;
} trained;

static int64_t elems_of(const clv_type *type)
{
    int64_t elems = 1;
    for (int d = 0; d < type->rank; d++)
        elems *= type->shape[d];
    return elems;
}

static clv_status train(trained *out, clv_session *session, clv_error *err)
{
    float x[B * S * M], lr = 0.01f;
    clv_random_normal(x, clv_key_seed(1), 0, B * S * M);
    for (int32_t step = 1; step <= STEPS; step++) {
        clv_input_binding inputs[] = {{"x", x}, {"lr", &lr}, {"step", &step}};
        clv_output_binding outputs[] = {{"loss", &out->loss[step - 1]}, {"y", out->y}};
        CLV_TRY(clv_session_run(session, out->program, inputs, 3, outputs, 2, err));
    }
    clv_state_info info = {.size = sizeof info};
    for (int i = 0;; i++) {
        CLV_TRY(clv_session_state(session, i, &info, err));
        if (!info.name)
            return CLV_OK;
        CLV_TRY(clv_session_read(session, info.name, NULL, out->state + out->values, err));
        out->values += elems_of(&info.type);
    }
}

static void train_here(const clv_process_links *links, void *arg)
{
    const trained *want = arg;
    static trained got;
    clv_error err = {0};
    got.program = want->program;
    for (int checked = 0; checked < 2; checked++) {
        if (checked && links->processes > 1 && !links->job)
            break; /* a socket serves one session */
        clv_session *session = new_session(clv_program_mesh(want->program), links, 0, links->me == 0);
        got.values = 0;
        check(train(&got, session, &err) == CLV_OK, links, "training", &err);
        check(memcmp(got.loss, want->loss, sizeof got.loss) == 0, links, "another loss", NULL);
        check(memcmp(got.y, want->y, sizeof got.y) == 0, links, "another result", NULL);
        check(got.values == want->values && memcmp(got.state, want->state, (size_t)got.values * sizeof(float)) == 0,
              links, "another state", NULL);
        clv_session_free(session);
    }
}

static void test_training(void **state)
{
    static const char *const meshes[] = {"model=6", "data=2,model=3"};
    static trained want;
    for (int m = 0; m < 2; m++)
        for (int s = 0; s < SPLITS; s++) {
            clv_error err = {0};
            clv_program *program = trainer(meshes[m]);
            want = (trained){.program = program};
            clv_session *session = new_session(clv_program_mesh(program), NULL, 0, 0);
            must(train(&want, session, &err), &err);
            clv_session_free(session); /* its threads end before the processes part */
            assert_true(want.loss[STEPS - 1] < want.loss[0] && want.values > 12000 && want.values <= VALUES);
            in_processes(splits[s], counts[s], train_here, &want, -1);
            clv_program_free(program);
        }
}

/* ---- state: between layouts, read and written by boxes, from a checkpoint; inputs and outputs in parts ---- */

enum { N = 13 };

/* w := w + x, w kept in `layout`. */
static clv_program *adder(const char *layout_text)
{
    clv_error err = {0};
    clv_graph *graph = must_graph("x=2,y=3");
    clv_program *program;
    clv_layout layout = clv_graph_layout(graph, 1, layout_text), cut = clv_graph_layout(graph, 1, "(x,y)");
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){N}, &cut);
    clv_value w = clv_state(graph, "w", CLV_F32, 1, (int64_t[]){N}, &layout, (clv_init){CLV_INIT_ONES, 0});
    clv_value next = clv_add(graph, w, x);
    clv_assign(graph, w, next);
    clv_output(graph, "next", next, &cut);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

typedef struct adders {
    clv_program *program[3];
    char path[64]; /* of a checkpoint with w */
} adders;

typedef struct source {
    const clv_checkpoint *checkpoint;
    const clv_process_links *links;
    _Atomic int calls;
} source;

static clv_status read_shard(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                             int *known, clv_error *err)
{
    source *s = arg;
    s->calls++;
    *known = 1;
    if (strcmp(name, "w") != 0)
        return clv_fail(err, CLV_ENOTFOUND, "no '%s'", name);
    return clv_checkpoint_read(s->checkpoint, 0, box, type->dtype, out, err);
}

static void add_here(const clv_process_links *links, void *arg)
{
    const adders *a = arg;
    clv_error err = {0};
    clv_session *session;
    clv_checkpoint *checkpoint;
    float x[N], next[N], w[N], part[4];
    int here = links->first[links->me + 1] - links->first[links->me];
    check(clv_checkpoint_open(&checkpoint, a->path, NULL, &err) == CLV_OK, links, "opening", &err);
    source from = {.checkpoint = checkpoint, .links = links};
    clv_session_options options = {.size = sizeof options,
                                   .check = 1,
                                   .find_nonfinite = 1,
                                   .source = read_shard,
                                   .source_arg = &from,
                                   .transport = transport_of(links)};
    check(clv_session_new_with_links(&session, clv_program_mesh(a->program[0]), &options, links, &err) == CLV_OK, links,
          "a session", &err);
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    for (int run = 0; run < 6; run++) {
        clv_input_binding in = {"x", x};
        clv_output_binding out = {"next", next};
        check(clv_session_run(session, a->program[run % 3], &in, 1, &out, 1, &err) == CLV_OK, links, "a run", &err);
        for (int i = 0; i < N; i++)
            check(next[i] == 100 + (float)((run + 2) * i), links, "another sum", NULL);
    }
    check(from.calls == here, links, "values of other processes' ranks were read", NULL);
    clv_shard box = {.rank = 1, .lo = {5}, .hi = {9}};
    check(clv_session_write(session, "w", &box, (float[]){-1, -2, -3, -4}, &err) == CLV_OK, links, "writing", &err);
    check(clv_session_read(session, "w", &box, part, &err) == CLV_OK && part[0] == -1 && part[3] == -4, links,
          "reading what was written", &err);
    check(clv_session_read(session, "w", NULL, w, &err) == CLV_OK && w[4] == 100 + 7 * 4 && w[8] == -4 &&
              w[9] == 100 + 7 * 9,
          links, "reading", &err);

    /* Its own shards alone: what other ranks need is not given, what they make not asked for. */
    clv_input_box in[6];
    clv_output_box out[6];
    float mine[6][N];
    const clv_mesh *mesh = clv_program_mesh(a->program[0]);
    clv_layout cut;
    check(clv_layout_parse(&cut, "(x,y)", mesh, 1, &err) == CLV_OK, links, "a layout", &err);
    for (int i = 0; i < here; i++) {
        clv_shard shard = clv_layout_shard(&cut, mesh, (int64_t[]){N}, links->first[links->me] + i);
        in[i] = (clv_input_box){"x", shard, x + shard.lo[0]};
        out[i] = (clv_output_box){"next", shard, mine[i]};
    }
    clv_run run = {
        .size = sizeof run, .n_input_boxes = here, .input_boxes = in, .n_output_boxes = here, .output_boxes = out};
    check(clv_session_run_boxes(session, a->program[0], &run, &err) == CLV_OK, links, "a run of parts", &err);
    for (int i = 0; i < here; i++)
        for (int64_t e = out[i].box.lo[0]; e < out[i].box.hi[0]; e++)
            check(mine[i][e - out[i].box.lo[0]] == w[e] + (float)e, links, "another part", NULL);
    out[0].box = (clv_shard){.rank = 1, .hi = {N}};
    run.n_output_boxes = 1;
    clv_status status = clv_session_read(session, "w", NULL, w, &err); /* all are done with the run before */
    if (status == CLV_OK)
        status = clv_session_run_boxes(session, a->program[0], &run, &err);
    check(links->processes == 1 ? status == CLV_OK : status == CLV_EPEER && strstr(err.message, "other processes"),
          links, "a part that is elsewhere", &err);
    /* It was refused before anything ran: what this process holds is as it was. */
    clv_shard mine_of_w = in[0].box;
    status = clv_session_read(session, "w", &mine_of_w, part, &err);
    for (int64_t e = mine_of_w.lo[0]; links->processes > 1 && e < mine_of_w.hi[0]; e++)
        check(status == CLV_OK && part[e - mine_of_w.lo[0]] == mine[0][e - mine_of_w.lo[0]], links,
              "a refused run changed state", &err);
    clv_session_free(session);
    clv_checkpoint_close(checkpoint);
}

static void test_state(void **state)
{
    clv_error err = {0};
    adders a = {.program = {adder("(x,y)"), adder("_"), adder("y")}, .path = "/tmp/cleave_processes_XXXXXX"};
    clv_checkpoint_writer *writer;
    float w[N];
    int fd = mkstemp(a.path);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < N; i++)
        w[i] = 100 + (float)i;
    must(clv_checkpoint_create(&writer, a.path, &err), &err);
    must(clv_checkpoint_add_tensor(writer, "w", CLV_F32, 1, (int64_t[]){N}, &err), &err);
    must(clv_checkpoint_write(writer, 0, NULL, w, &err), &err);
    must(clv_checkpoint_commit(writer, &err), &err);
    for (int s = 0; s < SPLITS; s++)
        in_processes(splits[s], counts[s], add_here, &a, -1);
    for (int p = 0; p < 3; p++)
        clv_program_free(a.program[p]);
    unlink(a.path);
}

/* ---- functions by hand, and what fails ---- */

typedef enum act { GATHERS, FAILS, DIES, DISAGREES, OTHER_ROOTS, IS_LATE } act;

/* Rank 4 does as `how` says; the others gather, sum and pass on. Or no rank agrees with another. */
static clv_status by_hand(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *err)
{
    act a = *(act *)arg;
    bool told = clv_spmd_rank(spmd) == 4;
    clv_local_tensor x, whole, sum;
    if (told && a == FAILS)
        return clv_fail(err, CLV_ELIMIT, "on purpose");
    if (told && a == DIES)
        _exit(9);
    if (told && a == IS_LATE)
        nanosleep(&(struct timespec){.tv_sec = LATE}, NULL);
    if (told && a == DISAGREES)
        return clv_spmd_all_gather(&x, spmd, &in[0], "x,y", err);
    if (a == OTHER_ROOTS) /* each sends to all, and waits for no elements */
        return clv_spmd_broadcast(&x, spmd, &in[0], clv_spmd_rank(spmd), "x,y", err);
    CLV_TRY(clv_spmd_shift(&x, spmd, &in[0], 2, "x,y", err));
    CLV_TRY(clv_spmd_all_gather(&whole, spmd, &x, "x,y", err));
    CLV_TRY(clv_spmd_all_reduce(&sum, spmd, &whole, CLV_REDUCTION_SUM, "y", err));
    CLV_TRY(clv_spmd_barrier(spmd, "x,y", err));
    out[0] = sum;
    return CLV_OK;
}

static void act_here(const clv_process_links *links, void *arg)
{
    act a = *(act *)arg;
    clv_error err = {0};
    clv_mesh mesh;
    float x[N], y[N];
    bool is_told = is_here(links, 4);
    check(clv_mesh_parse(&mesh, "x=2,y=3", &err) == CLV_OK, links, "a mesh", &err);
    clv_session *session = new_session(&mesh, links, a == IS_LATE ? 1500 : 20000, 0);
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    clv_spmd_input in = {{CLV_F32, 1, {N}}, "(x,y)", x};
    clv_spmd_output out = {{CLV_F32, 1, {N}}, "_", y};
    double began = seconds_now();
    clv_status status = clv_spmd_run(session, by_hand, &a, &in, 1, &out, 1, NULL, &err);
    check(seconds_now() - began < 10, links, "it took long", &err);
    if (a == GATHERS) {
        check(status == CLV_OK, links, "a function", &err);
        for (int i = 0; i < N; i++)
            check(y[i] == 3 * (float)i, links, "another sum", NULL);
    } else {
        static const clv_status here[] = {CLV_OK, CLV_ELIMIT, CLV_OK, CLV_EPEER, CLV_EPEER, CLV_ETIMEOUT};
        static const clv_status elsewhere[] = {CLV_OK, CLV_EPEER, CLV_EPEER, CLV_EPEER, CLV_EPEER, CLV_ETIMEOUT};
        check(status == (is_told ? here[a] : elsewhere[a]), links, clv_status_name(status), &err);
        check(strstr(err.message, a == FAILS         ? "on purpose"
                                  : a == DIES        ? "has ended"
                                  : a == OTHER_ROOTS ? "rank " /* or one that was notified sooner has ended */
                                                     : "rank 4") != NULL,
              links, "the message", &err);
        check(err.op[0] != '\0', links, "no op", &err);
        check(clv_spmd_run(session, by_hand, &a, &in, 1, &out, 1, NULL, NULL) != CLV_OK, links, "it goes on", NULL);
        if (a == IS_LATE && is_told) /* so that the late thread is back and nothing need be leaked */
            nanosleep(&(struct timespec){.tv_sec = LATE}, NULL);
    }
    clv_session_free(session);
}

static void test_by_hand(void **state)
{
    act a = GATHERS;
    for (int s = 0; s < SPLITS; s++)
        in_processes(splits[s], counts[s], act_here, &a, -1);
}

static void test_failures(void **state)
{
    for (int s = 1; s < SPLITS; s++) {
        int told = 0;
        while (splits[s][told + 1] <= 4)
            told++;
        for (act a = FAILS; a <= (s == 2 && !launched_job() ? IS_LATE : OTHER_ROOTS); a++)
            if (a != DIES || !launched_job()) /* a launcher ends all */
                in_processes(splits[s], counts[s], act_here, &a, a == DIES ? told : -1);
    }
}

static void test_refusals(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session;
    const int first[] = {0, 1, 2}, other[] = {0, 1, 3}, none[] = {0, 0, 2}, sockets[] = {-1, -1};
    clv_session_options options = {.size = sizeof options};
    must(clv_mesh_parse(&mesh, "x=2", &err), &err);
    clv_process_links links = {.processes = 2, .me = 0, .first = first, .sockets = sockets};
    assert_int_equal(clv_session_new_with_links(&session, &mesh, &options, &links, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "threads"));
    options.transport = "mpi"; /* by sockets it does not go */
    assert_int_equal(clv_session_new_with_links(&session, &mesh, &options, &links, NULL), CLV_EINVAL);
    options.transport = "mailbox";
    links.first = other;
    assert_int_equal(clv_session_new_with_links(&session, &mesh, &options, &links, NULL), CLV_EINVAL);
    links.first = none;
    assert_int_equal(clv_session_new_with_links(&session, &mesh, &options, &links, NULL), CLV_EINVAL);
}

/* Else collectives between hosts take twice as long (comm/mpi/mpi_module.c). */
static void test_messages_go_both_ways_at_once(void **state)
{
    const char *launcher = launched_job() ? clv_job_launcher() : NULL;
    if (launcher && strcmp(launcher, "openmpi") == 0)
        assert_string_equal(getenv("OMPI_MCA_btl_tcp_flags"), "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training), cmocka_unit_test(test_state),
        cmocka_unit_test(test_by_hand),  cmocka_unit_test(test_failures),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_messages_go_both_ways_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
