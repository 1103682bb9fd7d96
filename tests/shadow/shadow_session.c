/* shadow_session.c - every session of a test by another transport, or on another device: where CLV_TEST_TRANSPORT or
 * CLV_TEST_DEVICE names one, each session that a test or the library makes is of it. One that checks (so that no memory
 * is left to chance) has a shadow by the usual ones, which does the same; outputs of each run, of programs, whole and
 * in parts, and of functions by hand, and state at the end, must be equal bit for bit. Under a launcher, by "mpi", each
 * session that has a rank for every process of the job is spread over it, and its shadow in one process, which follows
 * no parts: a process has but its own. A device whose memory is not the host's is not checked itself. The calls are
 * wrapped at link time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/session.h"
#include "cleave/spmd.h"
#include "mock_device.h"
#include "mpi_test_job.h"
#include "program/program.h"
#include "unit_test.h"

clv_status __real_clv_session_new(clv_session **out, const clv_mesh *mesh, const clv_session_options *options,
                                  clv_error *err);
void __real_clv_session_free(clv_session *session);
clv_status __real_clv_session_load(clv_session *session, const clv_program *program, clv_error *err);
void __real_clv_session_unload(clv_session *session, const clv_program *program);
clv_status __real_clv_session_run(clv_session *session, const clv_program *program, const clv_input_binding *inputs,
                                  int n_inputs, const clv_output_binding *outputs, int n_outputs, clv_error *err);
clv_status __real_clv_session_write(clv_session *session, const char *name, const clv_shard *box, const void *in,
                                    clv_error *err);
clv_status __real_clv_session_run_boxes(clv_session *session, const clv_program *program, const clv_run *run,
                                        clv_error *err);
clv_status __real_clv_spmd_run(clv_session *session, clv_spmd_function *function, void *arg,
                               const clv_spmd_input *inputs, int n_inputs, const clv_spmd_output *outputs,
                               int n_outputs, const clv_spmd_options *options, clv_error *err);
clv_status __wrap_clv_session_run_boxes(clv_session *session, const clv_program *program, const clv_run *run,
                                        clv_error *err);
clv_status __wrap_clv_spmd_run(clv_session *session, clv_spmd_function *function, void *arg,
                               const clv_spmd_input *inputs, int n_inputs, const clv_spmd_output *outputs,
                               int n_outputs, const clv_spmd_options *options, clv_error *err);
clv_status __wrap_clv_session_new(clv_session **out, const clv_mesh *mesh, const clv_session_options *options,
                                  clv_error *err);
void __wrap_clv_session_free(clv_session *session);
clv_status __wrap_clv_session_load(clv_session *session, const clv_program *program, clv_error *err);
void __wrap_clv_session_unload(clv_session *session, const clv_program *program);
clv_status __wrap_clv_session_run(clv_session *session, const clv_program *program, const clv_input_binding *inputs,
                                  int n_inputs, const clv_output_binding *outputs, int n_outputs, clv_error *err);
clv_status __wrap_clv_session_write(clv_session *session, const char *name, const clv_shard *box, const void *in,
                                    clv_error *err);

enum { MOST = 64 };

/* Tests make sessions on one thread. */
typedef struct pair {
    clv_session *session, *shadow;
    bool failed;
} pair;

static pair pairs[MOST];
static int64_t compared; /* runs */

static int64_t bytes_of(const clv_type *type)
{
    int64_t bytes = (int64_t)clv_dtype_size(type->dtype);
    for (int d = 0; d < type->rank; d++)
        bytes *= type->shape[d];
    return bytes;
}

static clv_status differ(const char *what, const char *name, int64_t byte, clv_error *err)
{
    if (err && err->code == CLV_OK) {
        err->code = CLV_EPEER;
        snprintf(err->message, sizeof err->message, "%s '%.200s' differs from the usual session's at byte %lld", what,
                 name, (long long)byte);
    }
    return CLV_EPEER;
}

/* The first byte that differs; -1: none. */
static int64_t first_difference(const unsigned char *a, const unsigned char *b, int64_t bytes)
{
    if (bytes == 0 || memcmp(a, b, (size_t)bytes) == 0)
        return -1;
    int64_t at = 0;
    while (a[at] == b[at])
        at++;
    return at;
}

static clv_status compare_states(clv_session *session, clv_session *shadow, clv_error *err)
{
    clv_status status = CLV_OK;
    clv_state_info info = {.size = sizeof info};
    for (int i = 0; status == CLV_OK && clv_session_state(session, i, &info, err) == CLV_OK && info.name; i++) {
        int64_t bytes = bytes_of(&info.type);
        unsigned char *a = malloc((size_t)bytes + 1), *b = malloc((size_t)bytes + 1);
        status = clv_session_read(session, info.name, NULL, a, err);
        if (status == CLV_OK)
            status = clv_session_read(shadow, info.name, NULL, b, err);
        int64_t at = status == CLV_OK ? first_difference(a, b, bytes) : -1;
        if (at >= 0)
            status = differ("state", info.name, at, err);
        free(a);
        free(b);
    }
    return status;
}

static pair *pair_of(const clv_session *session)
{
    for (int i = 0; session && i < MOST; i++)
        if (pairs[i].session == session)
            return &pairs[i];
    return NULL;
}

static void drop_shadow(const clv_session *session)
{
    pair *p = pair_of(session);
    if (!p)
        return;
    __real_clv_session_free(p->shadow);
    *p = (pair){0};
}

/* A program that CLV_TEST_COMPARES is set for has compared some run, or its test fails. */
static void tell_compared(void)
{
    printf("%lld runs equal to those of the usual session\n", (long long)compared);
    fflush(stdout);
    if (compared == 0 && getenv("CLV_TEST_COMPARES"))
        _exit(1);
}

__attribute__((constructor)) static void tell_at_end(void)
{
    if (getenv("CLV_TEST_TRANSPORT") || getenv("CLV_TEST_DEVICE"))
        atexit(tell_compared);
}

clv_status __wrap_clv_session_new(clv_session **out, const clv_mesh *mesh, const clv_session_options *options,
                                  clv_error *err)
{
    const char *transport = getenv("CLV_TEST_TRANSPORT"), *device = getenv("CLV_TEST_DEVICE");
    clv_session_options o = options ? *options : (clv_session_options){0}, usual = o;
    if (!transport && !device)
        return __real_clv_session_new(out, mesh, options, err);
    *(device ? &o.check : &usual.check) = 0; /* once is enough */
    if (device) {
        mock_device_add();
        o.size = sizeof o;
        o.find_nonfinite = 0;
        o.device = device;
    }
    if (launched_job() && clv_mesh_rank_count(mesh) < clv_job_process_count(launched_job()))
        return __real_clv_session_new(out, mesh, options, err);
    o.transport = transport ? transport : o.transport;
    o.job = launched_job();
    clv_status status = __real_clv_session_new(out, mesh, &o, err);
    if (status != CLV_OK || !(o.check || usual.check))
        return status;
    for (int i = 0; i < MOST; i++)
        if (!pairs[i].session) {
            if (__real_clv_session_new(&pairs[i].shadow, mesh, &usual, NULL) == CLV_OK)
                pairs[i].session = *out;
            break;
        }
    return CLV_OK;
}

void __wrap_clv_session_free(clv_session *session)
{
    clv_error err = {0};
    pair *p = pair_of(session);
    clv_status status = p && !p->failed ? compare_states(session, p->shadow, &err) : CLV_OK;
    drop_shadow(session);
    __real_clv_session_free(session);
    if (status != CLV_OK)
        fail_msg("%s", err.message);
}

clv_status __wrap_clv_session_load(clv_session *session, const clv_program *program, clv_error *err)
{
    clv_status status = __real_clv_session_load(session, program, err);
    pair *p = pair_of(session);
    if (p && (status != CLV_OK || __real_clv_session_load(p->shadow, program, NULL) != CLV_OK))
        drop_shadow(session);
    return status;
}

void __wrap_clv_session_unload(clv_session *session, const clv_program *program)
{
    pair *p = pair_of(session);
    if (p)
        __real_clv_session_unload(p->shadow, program);
    __real_clv_session_unload(session, program);
}

clv_status __wrap_clv_session_write(clv_session *session, const char *name, const clv_shard *box, const void *in,
                                    clv_error *err)
{
    clv_status status = __real_clv_session_write(session, name, box, in, err);
    pair *p = pair_of(session);
    if (p && status == CLV_OK)
        status = __real_clv_session_write(p->shadow, name, box, in, err);
    return status;
}

static const clv_type *type_of(const clv_program *program, const char *output)
{
    for (int o = 0; o < program->n_outputs; o++)
        if (strcmp(program->outputs[o].name, output) == 0)
            return &program->buffers[program->outputs[o].buffer].type;
    return NULL;
}

/* Two results of so many bytes; frees the second. */
static clv_status compare(clv_status status, const char *name, const void *a, void *b, int64_t bytes, clv_error *err)
{
    int64_t at = status == CLV_OK ? first_difference(a, b, bytes) : -1;
    free(b);
    return at >= 0 ? differ("output", name, at, err) : status;
}

static int64_t part_bytes(const clv_program *program, const clv_output_box *part)
{
    return clv_shard_elems(&part->box) * (int64_t)clv_dtype_size(type_of(program, part->name)->dtype);
}

/* Runs the shadow on the same inputs, and compares its outputs. */
static clv_status follow(clv_session *shadow, const clv_program *program, const clv_run *run, clv_error *err)
{
    clv_output_binding *own = calloc((size_t)run->n_outputs + 1, sizeof *own);
    clv_output_box *parts = calloc((size_t)run->n_output_boxes + 1, sizeof *parts);
    clv_run ours = *run;
    for (int o = 0; o < run->n_outputs; o++)
        own[o] = (clv_output_binding){run->outputs[o].name,
                                      malloc((size_t)bytes_of(type_of(program, run->outputs[o].name)) + 1)};
    for (int o = 0; o < run->n_output_boxes; o++) {
        parts[o] = run->output_boxes[o];
        parts[o].data = malloc((size_t)part_bytes(program, &parts[o]) + 1);
    }
    ours.outputs = own;
    ours.output_boxes = parts;
    clv_status status = __real_clv_session_run_boxes(shadow, program, &ours, err);
    for (int o = 0; o < run->n_outputs; o++)
        status = compare(status, own[o].name, run->outputs[o].data, own[o].data,
                         bytes_of(type_of(program, own[o].name)), err);
    for (int o = 0; o < run->n_output_boxes; o++)
        status = compare(status, parts[o].name, run->output_boxes[o].data, parts[o].data,
                         part_bytes(program, &parts[o]), err);
    free(own);
    free(parts);
    compared++;
    return status;
}

/* A run of a session has ended so; its shadow follows where it went well. */
static clv_status end_run(clv_session *session, clv_status status, const clv_program *program, const clv_run *run,
                          clv_error *err)
{
    pair *p = pair_of(session);
    if (p && status == CLV_OK)
        status = follow(p->shadow, program, run, err);
    if (p)
        p->failed |= status != CLV_OK; /* refused, or for good: what is where is not followed any more */
    return status;
}

clv_status __wrap_clv_session_run(clv_session *session, const clv_program *program, const clv_input_binding *inputs,
                                  int n_inputs, const clv_output_binding *outputs, int n_outputs, clv_error *err)
{
    clv_run run = {
        .size = sizeof run, .n_inputs = n_inputs, .n_outputs = n_outputs, .inputs = inputs, .outputs = outputs};
    clv_status status = __real_clv_session_run(session, program, inputs, n_inputs, outputs, n_outputs, err);
    return end_run(session, status, program, &run, err);
}

clv_status __wrap_clv_session_run_boxes(clv_session *session, const clv_program *program, const clv_run *run,
                                        clv_error *err)
{
    if (launched_job())
        drop_shadow(session);
    return end_run(session, __real_clv_session_run_boxes(session, program, run, err), program, run, err);
}

/* The function runs once more: what it does to `arg` it does again. */
static clv_status follow_function(clv_session *shadow, clv_spmd_function *function, void *arg,
                                  const clv_spmd_input *inputs, int n_inputs, const clv_spmd_output *outputs,
                                  int n_outputs, const clv_spmd_options *options, clv_error *err)
{
    clv_spmd_output *own = calloc((size_t)n_outputs + 1, sizeof *own);
    for (int o = 0; o < n_outputs; o++) {
        own[o] = outputs[o];
        own[o].data = malloc((size_t)bytes_of(&outputs[o].type) + 1);
    }
    clv_status status = __real_clv_spmd_run(shadow, function, arg, inputs, n_inputs, own, n_outputs, options, err);
    for (int o = 0; o < n_outputs; o++)
        status = compare(status, "of a function", outputs[o].data, own[o].data, bytes_of(&own[o].type), err);
    free(own);
    compared++;
    return status;
}

clv_status __wrap_clv_spmd_run(clv_session *session, clv_spmd_function *function, void *arg,
                               const clv_spmd_input *inputs, int n_inputs, const clv_spmd_output *outputs,
                               int n_outputs, const clv_spmd_options *options, clv_error *err)
{
    pair *p = pair_of(session);
    clv_status status = __real_clv_spmd_run(session, function, arg, inputs, n_inputs, outputs, n_outputs, options, err);
    if (p && status == CLV_OK)
        status = follow_function(p->shadow, function, arg, inputs, n_inputs, outputs, n_outputs, options, err);
    if (p)
        p->failed |= status != CLV_OK;
    return status;
}
