/* trace_gather.c - starts and ends traces: gathers the events of all processes, aligns clocks, writes the file. */
#include "cleave/trace.h"

#include <ctype.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/memory/grow.h"
#include "base/threads/wait.h"
#include "program/program.h"
#include "runtime/diagnostics/trace_recorder.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/session_internal.h"

static const char gathering[] = "a trace";

/* ---- starting ---- */

/* Frees the recorder; it leaks if a rank that has not returned may still write to it. */
static void drop_tracer(clv_session *session)
{
    bool returned = true;
    for (int r = 0; r < session->n_local_ranks; r++)
        returned = returned && clv_rank_threads_has_returned(session->team, r);
    if (returned)
        clv_trace_recorder_free(session->tracer);
    session->tracer = NULL;
}

clv_status clv_trace_begin(clv_session *session, clv_error *err)
{
    clv_trace_recorder *tracer;
    CLV_TRY(clv_require(session != NULL, __func__, "a session", err));
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    clv_status status = clv_trace_recorder_new(&tracer, session->first_local_rank, session->n_local_ranks, err);
    if (status == CLV_OK) {
        drop_tracer(session);
        session->tracer = tracer;
    }
    clv_session_unlock(session);
    return status;
}

clv_status clv_trace_step(clv_session *session, int64_t step, clv_error *err)
{
    CLV_TRY(clv_require(session != NULL, __func__, "a session", err));
    if (step > INT32_MAX)
        return clv_fail(err, CLV_EINVAL, "%s: step %lld; valid: up to %d", __func__, (long long)step, INT32_MAX);
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    if (session->tracer) {
        session->tracer->steps_are_numbered = true;
        session->tracer->step = step < 0 ? -1 : step;
    }
    clv_session_unlock(session);
    return CLV_OK;
}

/* ---- instructions ---- */

static clv_trace_place place_of(clv_model_part part)
{
    static const clv_trace_place places[CLV_PART_COUNT] = {[CLV_PART_ATTENTION] = CLV_TRACE_ATTENTION,
                                                           [CLV_PART_FEED_FORWARD] = CLV_TRACE_FEED_FORWARD,
                                                           [CLV_PART_REST] = CLV_TRACE_REST,
                                                           [CLV_PART_OPTIMIZER] = CLV_TRACE_REST};
    return places[part];
}

static int64_t layer_of(const char *name)
{
    const char *after = clv_name_after_segment(name, "layers");
    return after && after[0] == '.' && isdigit((unsigned char)after[1]) ? strtol(after + 1, NULL, 10) : -1;
}

static void describe(clv_trace_op *out, const clv_program *program, int i)
{
    clv_instruction_info info = {.size = sizeof info};
    (void)clv_program_instruction(program, i, &info, NULL);
    bool moves = info.moves != 0;
    *out = (clv_trace_op){.name = info.name,
                          .kind = info.kind,
                          .layer = layer_of(info.name),
                          .place = place_of(info.part),
                          .moves = moves,
                          .flies = program->instructions[i].n_overlapped > 0,
                          .backward = info.backward != 0,
                          .flops = info.flops,
                          .bytes = info.bytes};
    size_t used = 0;
    for (int a = 0; moves && a < info.n_axes && used + 1 < sizeof out->axes; a++) {
        if (a > 0)
            out->axes[used++] = ',';
        used += (size_t)clv_subaxis_print(out->axes + used, sizeof out->axes - used, info.axes[a], &program->mesh);
    }
    if (used >= sizeof out->axes)
        out->axes[0] = '\0';
}

static clv_status describe_program(clv_trace_program *out, const clv_program *program, clv_error *err)
{
    out->ops = calloc((size_t)program->n_instructions + 1, sizeof *out->ops);
    if (!out->ops)
        return clv_fail_memory(err, gathering, (size_t)program->n_instructions * sizeof *out->ops);
    out->n = program->n_instructions;
    for (int i = 0; i < out->n; i++)
        describe(&out->ops[i], program, i);
    return CLV_OK;
}

/* Predicts one run. Each collective is predicted by itself; their overlap with ops is predicted for all together and
 * spread evenly over them. */
static clv_status predict(clv_trace_seconds out[CLV_TRACE_PLACE_COUNT], const clv_program *program,
                          const clv_trace_program *ops, const clv_machine *machine, clv_error *err)
{
    clv_prediction all = {.size = sizeof all};
    double sum = 0;
    CLV_TRY(clv_program_predict(program, machine, &all, err));
    memset(out, 0, CLV_TRACE_PLACE_COUNT * sizeof *out);
    for (int i = 0; i < ops->n; i++) {
        double seconds = clv_program_predict_instruction(program, machine, i);
        clv_trace_seconds *of = &out[ops->ops[i].place];
        *(ops->ops[i].moves ? &of->communication : &of->seconds) += seconds;
        sum += ops->ops[i].moves ? seconds : 0;
    }
    for (int p = 0; p < CLV_TRACE_PLACE_COUNT; p++) {
        out[p].communication *= sum > 0 ? all.communication / sum : 0;
        out[p].seconds += out[p].communication;
    }
    return CLV_OK;
}

/* ---- clocks ---- */

static int64_t hash_of_host_name(void)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return (int64_t)clv_hash_bytes(name, strlen(name));
}

static int compare_words(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

enum { SAMPLES = 9, CLOCK_WORDS = SAMPLES + 1 };

/* *add: the offset from this process's clock to that of rank 0's, the median over several allgathers, which end at
 * nearly the same time in all processes. */
static clv_status align(int64_t *add, bool *aligned, const clv_session *session, clv_error *err)
{
    int64_t mine[CLOCK_WORDS] = {0}, offset[SAMPLES];
    CLV_FREED int64_t *all = calloc((size_t)session->n_ranks * CLOCK_WORDS, sizeof *all);
    *add = 0;
    *aligned = false;
    if (!all)
        return clv_fail_memory(err, gathering, (size_t)session->n_ranks * sizeof mine);
    mine[SAMPLES] = hash_of_host_name();
    for (int k = 0; k < SAMPLES; k++) {
        CLV_TRY(clv_session_allgather(session, gathering, mine, 1, all, err));
        mine[k] = clv_now_ns();
    }
    CLV_TRY(clv_session_allgather(session, gathering, mine, CLOCK_WORDS, all, err));
    for (int r = 0; r < session->n_ranks; r++)
        *aligned |= all[r * CLOCK_WORDS + SAMPLES] != all[SAMPLES];
    for (int k = 0; k < SAMPLES; k++)
        offset[k] = all[k] - mine[k];
    qsort(offset, SAMPLES, sizeof *offset, compare_words);
    if (mine[SAMPLES] != all[SAMPLES])
        *add = offset[SAMPLES / 2];
    return CLV_OK;
}

/* ---- gathering ---- */

enum { EVENT_WORDS = sizeof(clv_trace_event) / sizeof(int64_t), CHUNK = 2048 /* events per process and allgather */ };
_Static_assert(sizeof(clv_trace_event) == 40, "whole words");

/* Growing array of events. */
typedef struct recorded {
    clv_trace_event *events; /* [n] */
    int64_t n, capacity;
} recorded;

static clv_status append(recorded *out, const clv_trace_event *events, int64_t n, clv_error *err)
{
    if (n == 0)
        return CLV_OK;
    CLV_TRY(clv_grow(&out->events, &out->capacity, out->n + n, sizeof *events, gathering, err));
    memcpy(out->events + out->n, events, (size_t)n * sizeof *events);
    out->n += n;
    return CLV_OK;
}

/* Events of the local ranks and of programs that are still loaded, by the clock of rank 0. */
static clv_status collect(recorded *out, const clv_session *session, int64_t add_ns, clv_error *err)
{
    const clv_trace_recorder *tracer = session->tracer;
    for (int r = 0; r < tracer->n_local_ranks; r++) {
        const clv_rank_trace *t = &tracer->ranks[r];
        for (int64_t i = 0; clv_rank_threads_has_returned(session->team, r) && i < t->n; i++) {
            clv_trace_event event = t->events[i];
            event.begun_ns += add_ns;
            event.ended_ns += add_ns;
            if (tracer->programs[event.program])
                CLV_TRY(append(out, &event, 1, err));
        }
    }
    return CLV_OK;
}

/* Appends CHUNK events of every process, from event `at` on, in the process of rank 0. counts: [n_ranks] events of each
 * rank's process; words: scratch for a chunk of this process, then of each rank. */
static clv_status allgather_chunk(recorded *out, const clv_session *session, const recorded *mine, int64_t at,
                                  const int64_t *counts, int64_t *words, clv_error *err)
{
    enum { WORDS = CHUNK * EVENT_WORDS };
    int64_t n = mine->n - at < CHUNK ? mine->n - at : CHUNK, *all = words + WORDS;
    memset(words, 0, WORDS * sizeof *words);
    if (n > 0)
        memcpy(words, mine->events + at, (size_t)n * sizeof *mine->events);
    CLV_TRY(clv_session_allgather(session, gathering, words, WORDS, all, err));
    for (int r = 0; clv_session_is_root(session) && r < session->n_ranks; r++) {
        n = counts[r] - at < CHUNK ? counts[r] - at : CHUNK;
        if (clv_session_rank_is_process_leader(session, r) && n > 0)
            CLV_TRY(append(out, (const clv_trace_event *)(const void *)(all + (int64_t)r * WORDS), n, err));
    }
    return CLV_OK;
}

/* Events of all ranks, in the process of rank 0. */
static clv_status gather(recorded *out, const clv_session *session, bool together, const recorded *mine, clv_error *err)
{
    if (!together)
        return append(out, mine->events, mine->n, err);
    size_t ranks = (size_t)session->n_ranks, words = (ranks + 1) * CHUNK * EVENT_WORDS;
    int64_t most = 0;
    CLV_FREED int64_t *scratch = malloc((words + ranks) * sizeof *scratch);
    if (!scratch)
        return clv_fail_memory(err, gathering, (words + ranks) * sizeof *scratch);
    int64_t *counts = scratch + words;
    CLV_TRY(clv_session_allgather(session, gathering, &mine->n, 1, counts, err));
    for (size_t r = 0; r < ranks; r++)
        most = counts[r] > most ? counts[r] : most;
    for (int64_t at = 0; at < most; at += CHUNK)
        CLV_TRY(allgather_chunk(out, session, mine, at, counts, scratch, err));
    return CLV_OK;
}

/* ---- the file ---- */

static void find_processes(int *process_of, const clv_session *session)
{
    int process = -1;
    for (int r = 0; r < session->n_ranks; r++) {
        process += clv_session_rank_is_process_leader(session, r);
        process_of[r] = process;
    }
}

/* Number of steps of a rank, whose numbers grow, and runs of each program on it. */
static int64_t count_steps(int64_t *runs, const clv_trace_content *c, int rank)
{
    int64_t steps = 0, last = -1;
    for (int64_t i = 0; i < c->n; i++) {
        const clv_trace_event *e = &c->events[i];
        if (e->kind != CLV_TRACE_RUN || e->rank != rank)
            continue;
        runs[e->program]++;
        steps += e->step != last;
        last = e->step;
    }
    return steps;
}

static clv_status fill(clv_trace_content *c, const clv_trace_recorder *tracer, int64_t *runs,
                       const clv_machine *machine, clv_error *err)
{
    c->steps = count_steps(runs, c, 0);
    for (int p = 0; p < c->n_programs; p++) {
        clv_trace_seconds of[CLV_TRACE_PLACE_COUNT];
        if (!tracer->programs[p])
            continue;
        CLV_TRY(describe_program(&c->programs[p], tracer->programs[p], err));
        CLV_TRY(predict(of, tracer->programs[p], &c->programs[p], machine, err));
        for (int k = 0; c->steps > 0 && k < CLV_TRACE_PLACE_COUNT; k++) {
            c->predicted[k].seconds += of[k].seconds * (double)runs[p] / (double)c->steps;
            c->predicted[k].communication += of[k].communication * (double)runs[p] / (double)c->steps;
        }
    }
    return CLV_OK;
}

static clv_status write_events(const clv_session *session, const clv_trace_options *o, const recorded *all,
                               int64_t dropped, bool aligned, clv_error *err)
{
    const clv_trace_recorder *tracer = session->tracer;
    char mesh[CLV_MESH_TEXT];
    clv_machine_info machine = {.size = sizeof machine};
    clv_trace_content c = {.mesh = mesh,
                           .ranks = session->n_ranks,
                           .seen = o->this_process_only ? session->n_local_ranks : session->n_ranks,
                           .aligned = aligned,
                           .dropped_events = dropped,
                           .n_programs = tracer->n_programs,
                           .n = all->n,
                           .events = all->events};
    clv_mesh_print(mesh, sizeof mesh, &session->mesh);
    CLV_TRY(clv_machine_get_info(o->machine, &machine, err));
    c.machine = machine.name;
    int *process_of = calloc((size_t)session->n_ranks, sizeof *process_of);
    int64_t *runs = calloc((size_t)c.n_programs + 1, sizeof *runs);
    c.programs = calloc((size_t)c.n_programs + 1, sizeof *c.programs);
    clv_status status = process_of && runs && c.programs
                            ? CLV_OK
                            : clv_fail_memory(err, gathering, (size_t)session->n_ranks * sizeof *process_of);
    if (status == CLV_OK) {
        find_processes(process_of, session);
        c.process_of = process_of;
        c.processes = process_of[session->n_ranks - 1] + 1;
        status = fill(&c, tracer, runs, o->machine, err);
    }
    if (status == CLV_OK)
        status = clv_trace_file_write(&c, o->path, err);
    for (int p = 0; c.programs && p < c.n_programs; p++)
        free(c.programs[p].ops);
    free(c.programs);
    free(runs);
    free(process_of);
    return status;
}

static clv_status write_all(const clv_session *session, const clv_trace_options *o, clv_error *err)
{
    recorded mine = {0}, all = {0};
    int64_t add_ns = 0, dropped = 0;
    bool aligned = false, together = clv_session_is_multi_process(session) && !o->this_process_only;
    if (together)
        CLV_TRY(align(&add_ns, &aligned, session, err));
    for (int r = 0; r < session->n_local_ranks; r++)
        dropped += session->tracer->ranks[r].dropped;
    clv_status status = collect(&mine, session, add_ns, err);
    if (together)
        status = clv_session_agree(session, gathering, status, dropped, &dropped, err);
    if (status == CLV_OK)
        status = gather(&all, session, together, &mine, err);
    if (status == CLV_OK && clv_session_is_root(session))
        status = write_events(session, o, &all, dropped, aligned, err);
    free(mine.events);
    free(all.events);
    return status;
}

clv_status clv_trace_end(clv_session *session, const clv_trace_options *options, clv_error *err)
{
    clv_trace_options o;
    CLV_TRY(clv_require(session != NULL, __func__, "a session", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    CLV_TRY(clv_require(session->tracer != NULL, __func__, "clv_trace_begin before it", err));
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    clv_session_unlock(session);
    clv_status status = o.path ? write_all(session, &o, err) : CLV_OK;
    drop_tracer(session);
    return status;
}

clv_status clv_trace_end_after(clv_session *session, const clv_trace_options *options, clv_status status,
                               clv_error *err)
{
    clv_trace_options alone;
    if (status == CLV_OK)
        return clv_trace_end(session, options, err);
    if (clv_options_copy_in(&alone, sizeof alone, sizeof alone, options, "a trace", NULL) == CLV_OK) {
        alone.size = sizeof alone;
        alone.this_process_only = 1;
        (void)clv_trace_end(session, &alone, NULL);
    }
    return status;
}
