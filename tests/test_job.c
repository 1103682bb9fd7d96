/* test_job.c - joining an MPI job, what is refused without one, and sessions of it; under a launcher (ctest -L mpi) all
 * processes run the second part.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/threads/wait.h"
#include "cleave/evaluate.h"
#include "cleave/forward.h"
#include "cleave/generate.h"
#include "cleave/machine.h"
#include "cleave/train.h"
#include "comm/job/mpi_job.h"
#include "cli_run.h"
#include "mpi_test_job.h"
#include "must.h"
#include "unit_test.h"

/* ---- without a launcher ---- */

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_FD"};

static void forget_launchers(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
}

static void test_launcher(void **state)
{
    forget_launchers();
    assert_null(clv_job_launcher());
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        setenv(variables[i], "0", 1);
        assert_string_equal(clv_job_launcher(), i < 2 ? "openmpi" : "mpich");
        forget_launchers();
    }
}

/* What a process reckons with: its cores, but of those that others of the job have as well a share, whatever hosts they
 * say they are (containers of one machine have names of their own). */
static void test_cores_are_shared(void **state)
{
    enum { N = 4 };
    static const struct {
        uint64_t machine[N];
        unsigned cores[N]; /* bit c: core c */
        double share[N];
    } cases[] = {
        {{1, 2, 3, 4}, {0xff, 0xff, 0xff, 0xff}, {8, 8, 8, 8}},
        {{1, 1, 2, 2}, {0xff, 0xff, 0xff, 0xff}, {4, 4, 4, 4}},
        {{1, 1, 1, 1}, {0xff, 0xff, 0xff, 0xff}, {2, 2, 2, 2}},
        {{1, 1, 1, 2}, {0x03, 0x03, 0x03, 0x03}, {2. / 3, 2. / 3, 2. / 3, 2}},
        {{1, 1, 1, 1}, {0x03, 0x0c, 0x30, 0xc0}, {2, 2, 2, 2}}, /* each has its own */
        {{1, 1, 2, 2}, {0x0f, 0xff, 0x01, 0x03}, {2, 6, 0.5, 1.5}},
        {{1, 1, 1, 2}, {0x07, 0x07, 0x07, 0x07}, {1, 1, 1, 3}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        clv_job_member members[N] = {0};
        for (int p = 0; p < N; p++) {
            members[p].machine = cases[k].machine[p];
            for (int c = 0; c < 8; c++)
                if (cases[k].cores[p] >> c & 1)
                    CPU_SET(c, &members[p].cores);
        }
        for (int p = 0; p < N; p++) {
            clv_job job = {.members = members, .info = {.process = p, .processes = N}};
            assert_float_equal(clv_job_core_share(&job), cases[k].share[p], 1e-5);
        }
    }
}

static void expect_refused(clv_status status, const char *says, const clv_job_options *options)
{
    clv_job *job = NULL;
    clv_error err = {0};
    assert_int_equal(clv_job_join(&job, options, &err), status);
    if (!strstr(err.message, says))
        fail_msg("'%s' is not in: %s", says, err.message);
    assert_null(job);
}

static void test_refusals(void **state)
{
    clv_job_options options = {.size = sizeof options, .modules = "/nowhere"};
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session = NULL;
    forget_launchers();
    assert_int_equal(clv_job_join(NULL, NULL, NULL), CLV_EINVAL);
    expect_refused(CLV_ENOTFOUND, "mpirun", NULL);
    options.mpi = "pigeons";
    expect_refused(CLV_EINVAL, "valid: openmpi, mpich", &options);
    options.mpi = "openmpi";
    expect_refused(CLV_ENOTFOUND, "/nowhere/cleave_mpi_openmpi.so", &options);
    expect_refused(CLV_ENOTFOUND, "valid: its folder as clv_job_options.modules", &options);
    setenv("PMI_RANK", "0", 1);
    options.mpi = NULL;
    expect_refused(CLV_ENOTFOUND, "/nowhere/cleave_mpi_mpich.so", &options);
    forget_launchers();
    options.timeout_ms = -1;
    expect_refused(CLV_EINVAL, "timeout_ms is -1", &options);
    options.timeout_ms = 0;
    options.heartbeat_timeout_ms = -5;
    expect_refused(CLV_EINVAL, "heartbeat_timeout_ms is -5", &options);
    options.heartbeat_timeout_ms = 0;
    static const char *const controls[] = {"eth0:", ":x",  ":0",    ":70000",
                                           ":7-5",  ":7-", ":7-9x", "averyveryverylongname"};
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++) {
        options.control = controls[i];
        expect_refused(CLV_EINVAL, "valid: off, or INTERFACE:PORT-PORT", &options);
    }
    options.control = ":7000-7100,eth0:7000-7100,eth1:7000-7100,eth2:7000-7100,eth3:7000";
    expect_refused(CLV_EINVAL, "control (CLEAVE_CONTROL) is", &options);
    options.control = NULL;
    setenv("CLEAVE_CONTROL", "eth0:7-5", 1);
    expect_refused(CLV_EINVAL, "control (CLEAVE_CONTROL) is 'eth0:7-5'", &options);
    unsetenv("CLEAVE_CONTROL");
    setenv("CLEAVE_SHARED_MEMORY", "some", 1);
    expect_refused(CLV_EINVAL, "CLEAVE_SHARED_MEMORY is 'some'; valid: on, off", &options);
    unsetenv("CLEAVE_SHARED_MEMORY");
    assert_int_equal(clv_job_leave(NULL, NULL), CLV_OK);
    assert_int_equal(clv_job_agree(NULL, CLV_OK, NULL), CLV_OK);
    assert_int_equal(clv_job_agree(NULL, CLV_EIO, NULL), CLV_EIO);
    assert_int_equal(clv_job_process_index(NULL), -1);
    assert_int_equal(clv_job_process_count(NULL), 0);

    must(clv_mesh_parse(&mesh, "x=2", &err), &err);
    const clv_session_options alone = {.size = sizeof alone, .transport = "mpi"};
    assert_int_equal(clv_session_new(&session, &mesh, &alone, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "clv_session_options.job"));
}

/* Of commands without ranks the first process does all, and it alone speaks. */
static void test_commands(void **state)
{
    char out[CLI_OUTPUT];
    forget_launchers();
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "2", 1);
    cli_expect(0, "cleave", "version");
    cli_expect(2, "unknown option", "version --bogus");
    setenv("PMI_RANK", "1", 1);
    assert_int_equal(cli_run(out, "version"), 0);
    assert_string_equal(out, "");
    assert_int_equal(cli_run(out, "version --bogus"), 0);
    assert_string_equal(out, "");
    setenv("PMI_SIZE", "1", 1);
    cli_expect(0, "cleave", "version");
    unsetenv("PMI_SIZE");
    forget_launchers();
}

/* ---- in a job ---- */

enum { N = 11 };

static clv_mesh ranks_of(int ranks)
{
    char text[32];
    clv_error err = {0};
    clv_mesh mesh;
    snprintf(text, sizeof text, "x=%d", ranks);
    must(clv_mesh_parse(&mesh, text, &err), &err);
    return mesh;
}

static clv_status new_session(clv_session **out, int ranks, int64_t timeout_ms, clv_error *err)
{
    const clv_mesh mesh = ranks_of(ranks);
    const clv_session_options options = {
        .size = sizeof options, .timeout_ms = timeout_ms, .check = 1, .job = launched_job()};
    return clv_session_new(out, &mesh, &options, err);
}

/* w := w + x, and y, the sums of its rows. x and w are cut in two ways, so each rank needs parts of all others. */
static clv_program *adder(int ranks)
{
    char text[32];
    clv_error err = {0};
    clv_program *program;
    snprintf(text, sizeof text, "x=%d", ranks);
    clv_graph *graph = must_graph(text);
    clv_layout rows = clv_graph_layout(graph, 2, "x,_"), columns = clv_graph_layout(graph, 2, "_,x");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){N, N}, &rows);
    clv_value w = clv_state(graph, "w", CLV_F32, 2, (int64_t[]){N, N}, &columns, (clv_init){CLV_INIT_ONES, 0});
    clv_value sum = clv_add(graph, w, x);
    clv_assign(graph, w, sum);
    clv_output(graph, "y", clv_reduce(graph, CLV_SUM, sum, (int[]){1}, 1, false), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

static void run_adder(int ranks)
{
    clv_error err = {0};
    clv_session *session;
    clv_program *program = adder(ranks);
    float x[N * N], y[N], w[N * N];
    for (int i = 0; i < N * N; i++)
        x[i] = (float)(i % 7);
    must(new_session(&session, ranks, 20000, &err), &err);
    assert_int_equal(clv_job_leave(launched_job(), &err), CLV_EINVAL); /* a session is there */
    assert_non_null(strstr(err.message, "free them"));
    err = (clv_error){0};
    for (int run = 1; run <= 3; run++) {
        must(clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"y", y}, 1, &err),
             &err);
        for (int r = 0; r < N; r++) {
            float want = N;
            for (int c = 0; c < N; c++)
                want += (float)run * x[r * N + c];
            assert_true(y[r] == want);
        }
    }
    must(clv_session_read(session, "w", NULL, w, &err), &err);
    for (int i = 0; i < N * N; i++)
        assert_true(w[i] == 1 + 3 * x[i]);
    clv_session_free(session);
    clv_program_free(program);
}

static void test_sessions(void **state)
{
    int n = clv_job_process_count(launched_job());
    assert_true(clv_job_process_index(launched_job()) >= 0 && clv_job_process_index(launched_job()) < n);
    for (int ranks = n; ranks <= n + 2; ranks++)
        run_adder(ranks);
    run_adder(2 * n);
}

/* Two sessions at a time keep their messages apart. */
static void test_two_sessions(void **state)
{
    int n = clv_job_process_count(launched_job());
    clv_error err = {0};
    clv_session *other;
    must(new_session(&other, n, 20000, &err), &err);
    run_adder(n);
    clv_session_free(other);
}

static void test_refused_in_a_job(void **state)
{
    int n = clv_job_process_count(launched_job());
    clv_error err = {0};
    clv_job *again = NULL;
    clv_session *session = NULL;
    const clv_mesh mesh = ranks_of(n);
    const clv_job_options here = {.size = sizeof here, .modules = getenv("CLV_BUILD_DIR")};
    clv_session_options options = {.size = sizeof options, .job = launched_job(), .transport = "threads"};
    assert_int_equal(clv_job_join(&again, &here, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "already"));
    err = (clv_error){0};
    assert_int_equal(clv_session_new(&session, &mesh, &options, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "valid: 'mpi'"));
    err = (clv_error){0};
    if (n > 1) {
        assert_int_equal(new_session(&session, n - 1, 20000, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "a rank for each"));
    }
    assert_null(session);
}

/* Process 0 makes another session than the others, or one that they come too late for; then all go on. */
static void test_out_of_step(void **state)
{
    int n = clv_job_process_count(launched_job()), me = clv_job_process_index(launched_job());
    clv_error err = {0};
    clv_session *session = NULL;
    if (n == 1)
        skip();
    assert_int_equal(new_session(&session, me == 0 ? 2 * n : n, 20000, &err), CLV_EPEER);
    assert_non_null(strstr(err.message, "all processes must make the same sessions"));
    err = (clv_error){0};
    if (me != 0)
        nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
    assert_int_equal(new_session(&session, n, 300, &err), CLV_ETIMEOUT);
    assert_non_null(strstr(err.message, me == 0 ? "missing: process 1" : "missing: process 0"));
    assert_null(session);
    run_adder(n);
}

/* What fails in one process alone fails in all at once, in its words. */
static void expect_failure(clv_status status, const clv_error *err, const char *message)
{
    int n = clv_job_process_count(launched_job()), me = clv_job_process_index(launched_job());
    char theirs[64];
    snprintf(theirs, sizeof theirs, "process 1 of %d: ", n);
    assert_int_equal(status, err->code);
    assert_true((strncmp(err->message, theirs, strlen(theirs)) == 0) == (me != 1));
    if (!strstr(err->message, message))
        fail_msg("'%s', expected '%s'", err->message, message);
}

static void test_failed_alone(void **state)
{
    int n = clv_job_process_count(launched_job()), me = clv_job_process_index(launched_job());
    clv_job *job = launched_job();
    clv_error err = {0};
    clv_session *session = NULL;
    const clv_mesh mesh = ranks_of(n);
    must(clv_job_agree(job, CLV_OK, &err), &err);
    if (n == 1)
        skip();
    clv_status status = me == 1 ? clv_fail(&err, CLV_ENOTFOUND, "no such file") : CLV_OK;
    expect_failure(clv_job_agree(job, status, &err), &err, "no such file");
    assert_int_equal(err.code, CLV_ENOTFOUND);

    int64_t began = clv_now_ns();
    err = (clv_error){0};
    const clv_session_options options = {.size = sizeof options, .job = job, .device = me == 1 ? "nothing" : NULL};
    expect_failure(clv_session_new(&session, &mesh, &options, &err), &err, "there is no device 'nothing'");

    err = (clv_error){0}; /* before it could make one */
    if (me == 1)
        status = clv_job_agree(job, clv_fail(&err, CLV_EIO, "a file ends early"), &err);
    else
        status = clv_session_new(&session, &mesh, &(clv_session_options){.size = sizeof options, .job = job}, &err);
    expect_failure(status, &err, "a file ends early");
    assert_true(clv_now_ns() - began < INT64_C(10000000000)); /* nobody waited for a deadline */

    err = (clv_error){0};
    if (me == 1)
        status = clv_job_agree(job, CLV_OK, &err);
    else
        status = clv_session_new(&session, &mesh, &(clv_session_options){.size = sizeof options, .job = job}, &err);
    assert_int_equal(status, CLV_EPEER);
    assert_non_null(strstr(err.message, "is in clv_job_agree (rendezvous"));
    assert_non_null(strstr(err.message, "all processes must make the same"));
    assert_null(session);
    run_adder(n);
}

/* What differs is named, with who has what, in the same words by all. */
static void test_compared(void **state)
{
    int n = clv_job_process_count(launched_job()), me = clv_job_process_index(launched_job());
    clv_job *job = launched_job();
    clv_error err = {0};
    char seed[80], other[80];
    snprintf(seed, sizeof seed, "%d", me == 1 ? 4 : 3);
    snprintf(other, sizeof other, "%070d", me == 0 ? 7 : me); /* alike in what messages have of it */
    const clv_job_value alike[] = {{"--text", "9 bytes"}, {"--steps", "12"}},
                        odd[] = {{"--text", "9 bytes"}, {"--seed", seed}, {"--name", other}}, late[] = {{"it", other}};
    must(clv_job_compare(job, alike, 2, &err), &err);
    if (n != 4)
        skip();
    assert_int_equal(clv_job_compare(job, odd, 3, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "do not agree on --seed: 3 in process 0, 4 in process 1"));
    err = (clv_error){0};
    assert_int_equal(clv_job_compare(job, late, 1, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "do not agree on it: 000"));
    assert_non_null(strstr(err.message, "(not what process 0 has: 1, 2, 3)"));
    err = (clv_error){0};
    must(clv_job_compare(job, alike, 2, &err), &err); /* nothing has failed by it */
    assert_int_equal(clv_job_compare(job, alike, me == 1 ? 1 : 2, &err), CLV_EPEER);
    assert_non_null(strstr(err.message, "compares 1 things"));
    run_adder(n);
}

static void test_not_compared(void **state)
{
    const clv_job_value one = {"--seed", "3"}, none = {"--seed", NULL};
    assert_int_equal(clv_job_compare(NULL, &one, 1, NULL), CLV_OK);
    assert_int_equal(clv_job_compare(NULL, &one, 0, NULL), CLV_EINVAL);
    assert_int_equal(clv_job_compare(NULL, NULL, 1, NULL), CLV_EINVAL);
    assert_int_equal(clv_job_compare(NULL, &none, 1, NULL), CLV_EINVAL);
}

/* ---- models of a job, beside the same in one process ---- */

enum { BATCH = 2, SEQ = 6, TOKENS = 12, STEPS = 3, VOCAB = 4096, VALUES = 400000 };

typedef struct results {
    float logits[BATCH * SEQ * VOCAB];
    float values[VALUES]; /* of an evaluation: all results, and gradients */
    int64_t n_values;
    int64_t tokens[TOKENS];
    double losses[STEPS];
    unsigned char saved[VALUES]; /* the file of weights after training */
    size_t saved_bytes;
} results;

static clv_model *open_model(const clv_mesh *mesh, clv_job *job)
{
    char path[512];
    clv_error err = {0};
    clv_model *model;
    const clv_model_options options = {.size = sizeof options, .mesh = mesh, .check = 1, .job = job};
    snprintf(path, sizeof path, "%s/tests/golden/llama", getenv("CLV_SOURCE_DIR"));
    must(clv_model_open(&model, path, &options, &err), &err);
    return model;
}

/* Flips a bit of every byte of the tensors: no sample of them is as it was. */
static void damage(const char *folder)
{
    char path[96];
    uint64_t header;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fread(&header, sizeof header, 1, file), 1);
    long at = (long)(sizeof header + header);
    for (int c; fseek(file, at, SEEK_SET) == 0 && (c = fgetc(file)) != EOF; at++) {
        fseek(file, at, SEEK_SET);
        fputc(c ^ 1, file);
    }
    fclose(file);
}

/* Each process has a folder of its own; one of them another model in some respect. */
static void test_models_are_compared(void **state)
{
    static const struct {
        const char *change, *named; /* NULL: of the weights */
    } cases[] = {{"true", NULL},
                 {"sed -i 's/\"rms_norm_eps\": [^,]*,/\"rms_norm_eps\": 0.25,/' %s/config.json", "the model's config"},
                 {"echo >>%s/tokenizer.json", "the tokenizer's file"},
                 {NULL, "the weights"}};
    int n = clv_job_process_count(launched_job()), me = clv_job_process_index(launched_job());
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char folder[] = "/tmp/clv_job_XXXXXX", command[512], change[256];
        clv_error err = {0};
        clv_model *model;
        const clv_model_options options = {.size = sizeof options, .job = launched_job()};
        assert_non_null(mkdtemp(folder));
        snprintf(command, sizeof command, "cp %s/tests/golden/llama/* %s", getenv("CLV_SOURCE_DIR"), folder);
        assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
        snprintf(change, sizeof change, cases[k].change ? cases[k].change : "true", folder);
        if (me == n - 1)
            assert_int_equal(system(change), 0); /* NOLINT(cert-env33-c) */
        if (me == n - 1 && !cases[k].change)
            damage(folder);
        must(clv_model_open(&model, folder, &options, &err), &err);
        clv_status status = clv_model_verify_across_processes(model, &err);
        assert_int_equal(status, cases[k].named && n > 1 ? CLV_EINVAL : CLV_OK);
        if (status != CLV_OK && !strstr(err.message, cases[k].named))
            fail_msg("'%s' is not in: %s", cases[k].named, err.message);
        clv_model_close(model);
        snprintf(command, sizeof command, "rm -r %s", folder);
        assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
    }
}

static void evaluate(results *out, const clv_model *model, const int32_t *ids)
{
    const clv_evaluate_options what = {
        .size = sizeof what, .batch = BATCH, .seq = SEQ, .ids = ids, .labels = ids, .gradients = 1};
    clv_error err = {0};
    clv_evaluation *e;
    must(clv_evaluate(&e, model, &what, &err), &err);
    for (int i = 0; i < clv_evaluation_count(e); i++) {
        clv_evaluation_tensor t = {.size = sizeof t};
        int64_t elems = 1;
        must(clv_evaluation_at(e, i, &t, &err), &err);
        for (int d = 0; d < t.rank; d++)
            elems *= t.shape[d];
        assert_true(out->n_values + elems <= VALUES);
        memcpy(out->values + out->n_values, t.data, (size_t)elems * sizeof *t.data);
        out->n_values += elems;
    }
    clv_evaluation_free(e);
}

static void forward(results *out, const clv_model *model)
{
    int32_t ids[BATCH * SEQ];
    uint8_t mask[BATCH * SEQ];
    clv_error err = {0};
    clv_forwarder *f;
    const clv_forwarder_options options = {.size = sizeof options, .result = CLV_FORWARD_LOGITS};
    const clv_forward_batch batch = {.size = sizeof batch, .batch = BATCH, .seq = SEQ, .ids = ids, .mask = mask};
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = 3 + i % 11;
        mask[i] = 1;
    }
    must(clv_forwarder_new(&f, model, &options, &err), &err);
    must(clv_forwarder_run(f, &batch, out->logits, &err), &err);
    clv_forwarder_free(f);
    evaluate(out, model, ids);
}

static void generate(results *out, const clv_model *model)
{
    const clv_sampling sampling = {.size = sizeof sampling, .temperature = 1, .seed = 5};
    clv_error err = {0};
    clv_generator *g;
    must(clv_generator_new(&g, model, &(clv_generator_options){.context = TOKENS + 2}, &err), &err);
    must(clv_generator_feed(g, 0, (int64_t[]){3}, 1, &err), &err);
    for (int i = 0; i < TOKENS; i++) {
        must(clv_generator_run(g, &err), &err);
        must(clv_generator_sample(g, 0, i % 2 ? &sampling : NULL, &out->tokens[i], &err), &err);
        must(clv_generator_feed(g, 0, &out->tokens[i], 1, &err), &err);
    }
    clv_generator_free(g);
}

/* Into a folder that all processes have, or one's own. */
static void save(results *out, const clv_trainer *t, bool all)
{
    char folder[64], path[96], command[80];
    clv_error err = {0};
    snprintf(folder, sizeof folder, "/tmp/cleave_job_%s_%d", all ? "all" : "own", all ? (int)getppid() : (int)getpid());
    must(clv_trainer_save(t, folder, &err), &err);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    out->saved_bytes = fread(out->saved, 1, sizeof out->saved, f);
    assert_true(feof(f));
    fclose(f);
    clv_state_info info = {.size = sizeof info};
    clv_session *session = clv_trainer_session(t);
    must(clv_session_state(session, 0, &info, &err), &err);
    must(clv_session_read(session, info.name, NULL, out->logits, &err), &err); /* all have read the file */
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (!all || clv_job_process_index(launched_job()) == 0)
        assert_int_equal(system(command), 0);
}

static void train(results *out, const clv_model *model, const clv_job *job)
{
    const clv_lr_schedule schedule = {.peak = 0.01, .floor = 0.001, .steps = STEPS};
    const clv_trainer_options options = {.size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule};
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    clv_error err = {0};
    clv_trainer *t;
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = 3 + i % 7;
        labels[i] = 3 + (i + 1) % 7;
    }
    must(clv_trainer_new(&t, model, &options, &err), &err);
    for (int i = 0; i < STEPS; i++) {
        clv_train_step step = {.size = sizeof step};
        must(clv_trainer_step(t, ids, labels, NULL, &step, &err), &err);
        out->losses[i] = step.loss;
    }
    int64_t mine = job ? 10 - clv_job_process_index(job) : 4, most = -1; /* the first process has the most */
    must(clv_trainer_max_over_processes(t, mine, &most, &err), &err);
    assert_int_equal(most, job ? 10 : 4);
    save(out, t, job != NULL);
    clv_trainer_free(t);
}

static void run_model(results *out, const clv_mesh *mesh, clv_job *job)
{
    clv_model *model = open_model(mesh, job);
    clv_model_info info = {.size = sizeof info};
    clv_error err = {0};
    must(clv_model_get_info(model, &info, &err), &err);
    assert_true(info.vocab <= VOCAB);
    train(out, model, job);
    forward(out, model);
    generate(out, model);
    clv_model_close(model);
}

static void test_models(void **state)
{
    static results here, job;
    int n = clv_job_process_count(launched_job());
    for (int more = 0; more < 2; more++) {
        clv_error err = {0};
        clv_mesh mesh;
        char text[64];
        snprintf(text, sizeof text, more ? "data=2,model=%d" : "model=%d", n);
        must(clv_mesh_parse(&mesh, text, &err), &err);
        memset(&here, 0, sizeof here);
        memset(&job, 0, sizeof job);
        run_model(&here, &mesh, NULL);
        run_model(&job, &mesh, launched_job());
        assert_memory_equal(job.logits, here.logits, sizeof here.logits);
        assert_true(here.n_values > 1000 && job.n_values == here.n_values);
        assert_memory_equal(job.values, here.values, sizeof here.values);
        assert_true(here.saved_bytes > 1000 && job.saved_bytes == here.saved_bytes);
        assert_memory_equal(job.saved, here.saved, here.saved_bytes);
        assert_memory_equal(job.tokens, here.tokens, sizeof here.tokens);
        assert_memory_equal(job.losses, here.losses, sizeof here.losses);
        assert_true(here.logits[0] != 0 && here.losses[STEPS - 1] < here.losses[0]);
    }
}

/* All processes get what the first one measured, to the bit: else they would compile other programs. */
static void test_one_machine(void **state)
{
    clv_error err = {0};
    clv_machine *machine;
    clv_machine_info info = {.size = sizeof info};
    char text[4][64];
    const clv_measure_options options = {.size = sizeof options, .blocks = 1, .job = launched_job()};
    must(clv_machine_measure(&machine, &options, &err), &err);
    must(clv_machine_get_info(machine, &info, &err), &err);
    assert_true(clv_machine_rate(machine, "dot_general", CLV_F32, 1e6, true) > 0);
    snprintf(text[0], sizeof text[0], "%a", clv_machine_rate(machine, "dot_general", CLV_F32, 1e6, false));
    snprintf(text[1], sizeof text[1], "%a", clv_machine_rate(machine, "all_reduce", CLV_F32, 1e4, false));
    snprintf(text[2], sizeof text[2], "%a", clv_machine_rate(machine, "dot_general", CLV_F32, 1e6, true));
    snprintf(text[3], sizeof text[3], "%a %a", info.instruction_s, info.host.bytes_per_s);
    const clv_job_value mine[] = {
        {"matmuls", text[0]}, {"collectives", text[1]}, {"matmuls alone", text[2]}, {"machine", text[3]}};
    must(clv_job_compare(launched_job(), mine, 4, &err), &err);
    clv_machine_free(machine);
}

/* The last test: processes that all leave end MPI, even if one says that it failed by a deadline. */
static void test_leaving(void **state)
{
    int n = clv_job_process_count(launched_job()), me = clv_job_process_index(launched_job()), ended = 0;
    clv_error err = {0};
    int (*finalized)(int *) = NULL;
    *(void **)&finalized = dlsym(RTLD_DEFAULT, "MPI_Finalized");
    assert_non_null(finalized);
    if (me == n - 1)
        (void)clv_fail(&err, CLV_ETIMEOUT, "nobody came");
    assert_int_equal(clv_job_leave(launched_job(), &err), CLV_ETIMEOUT);
    launched_left();
    assert_non_null(strstr(err.message, "nobody came"));
    assert_int_equal(finalized(&ended), 0);
    assert_true(ended);
}

int main(void)
{
    const struct CMUnitTest alone[] = {cmocka_unit_test(test_launcher), cmocka_unit_test(test_cores_are_shared),
                                       cmocka_unit_test(test_refusals), cmocka_unit_test(test_not_compared),
                                       cmocka_unit_test(test_commands)};
    const struct CMUnitTest launched[] = {
        cmocka_unit_test(test_refused_in_a_job),    cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_two_sessions),        cmocka_unit_test(test_out_of_step),
        cmocka_unit_test(test_failed_alone),        cmocka_unit_test(test_compared),
        cmocka_unit_test(test_models_are_compared), cmocka_unit_test(test_models),
        cmocka_unit_test(test_one_machine),         cmocka_unit_test(test_leaving)};
    if (launched_job())
        return cmocka_run_group_tests_name("in a job", launched, NULL, NULL);
    return cmocka_run_group_tests_name("alone", alone, NULL, cli_remove_folder);
}
