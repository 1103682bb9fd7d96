#include "random_graph_run.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleave/session.h"
#include "graph_interpreter.h"
#include "kernels/cpu/openmp.h"
#include "ops/attention.h"
#include "program/program.h"

enum {
    NUDGES = 16, /* of a single number 3 are at times all next to nothing; of 16 the largest is less than half the
                    typical one once in 10^7 */
    SIDES = 2,   /* the mesh and one rank both round */
    MAX_PROGRAMS = 2
};

typedef struct trial {
    const random_spec *spec;
    random_graph graph[MAX_PROGRAMS];
    clv_program *program[MAX_PROGRAMS];
    int n_programs, step;
    clv_session *session;
    graph_eval *eval;
    graph_eval *nudged[NUDGES]; /* the same run, rounded otherwise; made when first needed */
    void *out[RANDOM_OUTPUTS];
    random_result result;
} trial;

static bool fails(trial *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Records the failure; false. */
static bool fails(trial *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = snprintf(t->result.message, sizeof t->result.message, "run %d: ", t->step + 1);
    vsnprintf(t->result.message + n, sizeof t->result.message - (size_t)n, format, args);
    va_end(args);
    t->result.failed = true;
    return false;
}

static clv_graph *graph_of(const trial *t)
{
    return t->graph[0].graph;
}

static int64_t elems_of(const trial *t, clv_value value)
{
    return clv_type_elems(&graph_of(t)->values[value.id].type);
}

static size_t bytes_of(const trial *t, clv_value value)
{
    return (size_t)elems_of(t, value) * clv_dtype_size(graph_of(t)->values[value.id].type.dtype);
}

static bool is_state(const trial *t, int v)
{
    return graph_of(t)->values[v].source == CLV_FROM_STATE;
}

/* ---- making ---- */

static bool reads(const clv_instruction *i, int buffer)
{
    bool any = false;
    for (int k = 0; k < i->n_in; k++)
        any = any || i->in[k] == buffer;
    return any;
}

/* How attention reads what a step over `context` brings; 0: it does not. */
static uint32_t way_of_context(const clv_program *p, const clv_instruction *step)
{
    bool over = false;
    for (int a = 0; a < step->step->n_axes; a++)
        over = over || strcmp(p->mesh.axis[step->step->axes[a].axis].name, "context") == 0;
    for (int i = 0; over && i < p->n_instructions; i++) {
        const clv_op *op = p->instructions[i].op;
        if (!op || !reads(&p->instructions[i], step->out[0]))
            continue;
        if (op->def == &clv_op_ring_attention || op->def == &clv_op_ring_attention_gradient)
            return step->step->kind == CLV_STEP_PERMUTE ? RANDOM_RING : 0;
        if (op->def == &clv_op_attention)
            return step->step->kind == CLV_STEP_ALL_TO_ALL   ? RANDOM_ALL_TO_ALL
                   : step->step->kind == CLV_STEP_ALL_GATHER ? RANDOM_GATHER
                                                             : 0;
    }
    return 0;
}

static uint32_t ways_of(const clv_program *p)
{
    uint32_t ways = 0;
    for (int i = 0; i < p->n_instructions; i++)
        if (!p->instructions[i].op) {
            const clv_step_kind kind = p->instructions[i].step->kind;
            ways |= kind == CLV_STEP_SEND       ? RANDOM_SEND
                    : kind == CLV_STEP_DISPATCH ? RANDOM_DISPATCH
                                                : way_of_context(p, &p->instructions[i]);
        }
    return ways;
}

static bool make_program(trial *t, int p)
{
    clv_error err = {0};
    random_graph_build(&t->graph[p], t->spec, (uint64_t)p);
    clv_status status = clv_compile(&t->program[p], t->graph[p].graph, &t->graph[p].options, &err);
    if (status != CLV_OK || clv_program_verify(t->program[p], &err) != CLV_OK ||
        clv_session_load(t->session, t->program[p], &err) != CLV_OK)
        return fails(t, "%s: %s", err.op, err.message);
    t->result.ways |= ways_of(t->program[p]);
    return true;
}

static bool make(trial *t)
{
    clv_error err = {0};
    random_graph_build(&t->graph[0], t->spec, 0);
    t->n_programs = t->graph[0].relayout ? MAX_PROGRAMS : 1;
    if (clv_session_new(&t->session, &t->graph[0].mesh, &(clv_session_options){.check = 1}, &err) != CLV_OK)
        return fails(t, "the session: %s", err.message);
    random_graph_free(&t->graph[0]);
    for (int p = 0; p < t->n_programs; p++)
        if (!make_program(t, p))
            return false;
    t->eval = graph_eval_new(graph_of(t), t->spec->seed);
    for (int i = 0; i < t->graph[0].n_outputs; i++)
        t->out[i] = malloc(bytes_of(t, t->graph[0].output[i].value) + 1);
    return true;
}

static void drop_nudged(trial *t)
{
    for (int i = 0; i < NUDGES; i++)
        if (t->nudged[i])
            graph_eval_free(t->nudged[i]);
    memset(t->nudged, 0, sizeof t->nudged);
}

static void drop(trial *t)
{
    drop_nudged(t);
    for (int i = 0; i < RANDOM_OUTPUTS; i++)
        free(t->out[i]);
    if (t->eval)
        graph_eval_free(t->eval);
    clv_session_free(t->session);
    for (int p = 0; p < t->n_programs; p++) {
        clv_program_free(t->program[p]);
        random_graph_free(&t->graph[p]);
    }
}

/* ---- values ---- */

static bool read_state(trial *t, int v, void *out)
{
    clv_error err = {0};
    if (clv_session_read(t->session, graph_of(t)->values[v].name, NULL, out, &err) != CLV_OK)
        return fails(t, "%s", err.message);
    return true;
}

/* State as the session made it, or with NaN and Inf written into it: one rank begins with the same. */
static bool begin_state(trial *t)
{
    clv_error err = {0};
    const random_graph *g = &t->graph[0];
    for (int i = 0; g->special != RANDOM_ALL_FINITE && i < g->n_leaves; i++) {
        clv_value value = g->leaf[i].value;
        void *data = graph_eval_data(t->eval, value);
        if (!is_state(t, value.id))
            continue;
        random_leaf_fill(g, &g->leaf[i], t->spec, 0, data);
        if (clv_session_write(t->session, clv_value_name(g->graph, value), NULL, data, &err) != CLV_OK)
            return fails(t, "%s", err.message);
    }
    for (int v = 1; v < graph_of(t)->n_values; v++)
        if (is_state(t, v) && !read_state(t, v, graph_eval_data(t->eval, (clv_value){v})))
            return false;
    return true;
}

static bool run(trial *t)
{
    clv_error err = {0};
    const random_graph *g = &t->graph[0];
    clv_input_binding in[RANDOM_LEAVES];
    clv_output_binding out[RANDOM_OUTPUTS];
    int n_in = 0;
    for (int i = 0; i < g->n_leaves; i++) {
        clv_value value = g->leaf[i].value;
        if (is_state(t, value.id))
            continue;
        random_leaf_fill(g, &g->leaf[i], t->spec, t->step + 1, graph_eval_data(t->eval, value));
        in[n_in++] = (clv_input_binding){clv_value_name(g->graph, value), graph_eval_data(t->eval, value)};
    }
    for (int i = 0; i < g->n_outputs; i++)
        out[i] = (clv_output_binding){g->output[i].name, t->out[i]};
    if (graph_eval_run(t->eval, -1, &err) != CLV_OK)
        return fails(t, "one rank: %s", err.message);
    if (clv_session_run(t->session, t->program[t->step % t->n_programs], in, n_in, out, g->n_outputs, &err) != CLV_OK)
        return fails(t, "%s: %s", err.op, err.message);
    return true;
}

/* ---- comparing ---- */

/* One rank with the same inputs and state, to be run. */
static graph_eval *eval_again(trial *t)
{
    const clv_graph *graph = graph_of(t);
    graph_eval *eval = graph_eval_new(graph, 1);
    for (int v = 1; v < graph->n_values; v++)
        if (graph->values[v].source != CLV_FROM_OP)
            memcpy(graph_eval_data(eval, (clv_value){v}), graph_eval_data(t->eval, (clv_value){v}),
                   bytes_of(t, (clv_value){v}));
    return eval;
}

static graph_eval *nudged(trial *t, int i)
{
    if (t->nudged[i])
        return t->nudged[i];
    t->nudged[i] = eval_again(t);
    graph_eval_nudge(t->nudged[i], (uint64_t)i + 1, i == 0 && t->graph[0].special == RANDOM_WITH_INF);
    graph_eval_run(t->nudged[i], -1, NULL);
    return t->nudged[i];
}

/* The unit of rounding of the coarsest dtype that the value went through. */
static double unit_of(const trial *t, int v)
{
    static const double units[CLV_DTYPE_COUNT] = {
        [CLV_F64] = 1e-10, [CLV_F32] = 0x1p-24, [CLV_F16] = 0x1p-11, [CLV_BF16] = 0x1p-8};
    const clv_graph *graph = graph_of(t);
    double *unit = malloc((size_t)graph->n_values * sizeof *unit), most;
    for (int i = 1; i < graph->n_values; i++)
        unit[i] = units[graph->values[i].type.dtype];
    for (int o = 0; o < graph->n_ops; o++)
        for (int r = 0; r < graph->ops[o].n_out; r++)
            for (int i = 0; i < graph->ops[o].n_in; i++)
                if (graph->ops[o].in[i] > 0)
                    unit[graph->ops[o].out[r]] = fmax(unit[graph->ops[o].out[r]], unit[graph->ops[o].in[i]]);
    most = unit[v];
    free(unit);
    return most;
}

/* What rounding does to a value; INFINITY where it decides what is finite. */
static double rounding(trial *t, clv_value value)
{
    double most = 0;
    for (int n = 0; n < NUDGES; n++)
        for (int64_t i = elems_of(t, value) - 1; i >= 0; i--) {
            double a = graph_eval_get(t->eval, value, i), b = graph_eval_get(nudged(t, n), value, i);
            double d = isfinite(a) && isfinite(b) ? fabs(a - b) : isfinite(a) == isfinite(b) ? 0 : INFINITY;
            most = fmax(most, d);
        }
    return most;
}

static bool within(double got, double want, double tolerance)
{
    return isfinite(want) ? fabs(got - want) <= tolerance : !isfinite(got);
}

static bool same(trial *t, const char *what, clv_value value, const void *data)
{
    const clv_value_info *info = &graph_of(t)->values[value.id];
    int64_t n = elems_of(t, value);
    double tolerance = -1, unit = 8 * unit_of(t, value.id);
    for (int64_t i = 0; i < n; i++) {
        double got = clv_dtype_load(info->type.dtype, data, i), want = graph_eval_get(t->eval, value, i);
        if (within(got, want, unit * fmax(1, fabs(want))))
            continue;
        if (tolerance < 0)
            tolerance = SIDES * rounding(t, value);
        if (tolerance < INFINITY && !within(got, want, tolerance))
            return fails(t, "%s (%%%d, %s), element %lld: %.17g, one rank makes %.17g (tolerance %.2g)", what, value.id,
                         info->op >= 0 ? graph_of(t)->ops[info->op].name : info->name, (long long)i, got, want,
                         tolerance);
    }
    return true;
}

/* What was assigned, or what was there; one rank goes on from the mesh's, so that rounding does not pile up. */
static bool same_state(trial *t)
{
    const clv_graph *graph = graph_of(t);
    void **after = calloc((size_t)graph->n_values, sizeof *after);
    bool ok = true;
    for (int v = 1; ok && v < graph->n_values; v++) {
        int assigned = graph->values[v].assigned;
        if (!is_state(t, v))
            continue;
        after[v] = malloc(bytes_of(t, (clv_value){v}) + 1);
        ok = read_state(t, v, after[v]) &&
             same(t, graph->values[v].name, (clv_value){assigned > 0 ? assigned : v}, after[v]);
    }
    for (int v = 1; v < graph->n_values; v++) {
        if (ok && after[v])
            memcpy(graph_eval_data(t->eval, (clv_value){v}), after[v], bytes_of(t, (clv_value){v}));
        free(after[v]);
    }
    free(after);
    return ok;
}

static bool step(trial *t)
{
    const random_graph *g = &t->graph[0];
    if (!run(t))
        return false;
    for (int i = 0; i < g->n_outputs; i++)
        if (!same(t, g->output[i].name, g->output[i].value, t->out[i]))
            return false;
    bool ok = same_state(t);
    drop_nudged(t);
    return ok;
}

random_result random_run(const random_spec *spec)
{
    trial t = {.spec = spec};
    clv_threads_set(1);
    bool ok = make(&t) && begin_state(&t);
    for (t.step = 0; ok && t.step < t.graph[0].steps; t.step++)
        ok = step(&t);
    drop(&t);
    return t.result;
}

/* ---- how keen the comparison is ---- */

static void try_spoilt(trial *t, uint64_t seed, random_keenness *keen)
{
    const random_graph *g = &t->graph[0];
    graph_eval *spoilt = eval_again(t);
    bool other = false, noticed = false;
    graph_eval_spoil(spoilt, seed, seed % 2 ? 0 : 2);
    graph_eval_run(spoilt, -1, NULL);
    for (int i = 0; i < g->n_outputs; i++) {
        clv_value value = g->output[i].value;
        const void *data = graph_eval_data(spoilt, value);
        if (unit_of(t, value.id) > 0x1p-24)
            continue;
        other = other || memcmp(data, graph_eval_data(t->eval, value), bytes_of(t, value)) != 0;
        noticed = noticed || !same(t, g->output[i].name, value, data);
    }
    keen->other += other;
    keen->noticed += noticed;
    graph_eval_free(spoilt);
}

random_keenness random_keen(const random_spec *spec, int tries)
{
    trial t = {.spec = spec};
    random_keenness keen = {0};
    clv_threads_set(1);
    if (make(&t) && begin_state(&t) && run(&t))
        for (int i = 0; i < tries; i++)
            try_spoilt(&t, spec->seed * (uint64_t)tries + (uint64_t)i, &keen);
    drop(&t);
    return keen;
}

/* ---- apart ---- */

static void child(const random_spec *spec, int to, int seconds)
{
    alarm((unsigned)seconds);
    random_result result = random_run(spec);
    ssize_t written = write(to, result.message, strlen(result.message));
    _exit(result.failed || written < 0);
}

static random_result result_of(int status, random_result result)
{
    result.failed = status != 0;
    size_t n = strlen(result.message);
    if (WIFSIGNALED(status))
        snprintf(result.message + n, sizeof result.message - n, "%sended by signal %d (%s)", n ? ": " : "",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (result.failed && n == 0)
        snprintf(result.message, sizeof result.message, "exit %d", WEXITSTATUS(status));
    return result;
}

random_result random_run_apart(const random_spec *spec, int seconds)
{
    random_result result = {.failed = true, .message = "no process could be made"};
    int ends[2], status = 0;
    if (pipe(ends) != 0)
        return result;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        child(spec, ends[1], seconds);
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; pid > 0 && n < sizeof result.message - 1 &&
                      (got = read(ends[0], result.message + n, sizeof result.message - 1 - n)) > 0;)
        n += (size_t)got;
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return result;
    result.message[n] = '\0';
    return result_of(status, result);
}

/* ---- shrinking ---- */

/* Takes the bit into the mask where the case still fails. */
static void try_without(random_spec *spec, uint32_t *mask, uint32_t bit, random_result *result, int seconds)
{
    if (*mask & bit)
        return;
    *mask |= bit;
    random_result now = random_run_apart(spec, seconds);
    if (now.failed)
        *result = now;
    else
        *mask &= ~bit;
}

random_spec random_shrink(const random_spec *spec, random_result *result, int seconds)
{
    random_spec small = *spec;
    for (uint32_t part = 1; part <= RANDOM_NAMED; part <<= 1)
        try_without(&small, &small.without, part, result, seconds);
    for (int k = RANDOM_SLOTS - 1; k >= 2; k--)
        try_without(&small, &small.dropped, 1u << k, result, seconds);
    for (int k = RANDOM_SLOTS; k >= 0; k--)
        try_without(&small, &small.plain, 1u << k, result, seconds);
    return small;
}

void random_report(FILE *out, const random_spec *spec, const random_result *result)
{
    char text[RANDOM_SPEC_TEXT];
    random_graph graph;
    random_spec_print(text, spec);
    random_graph_build(&graph, spec, 0);
    fprintf(out, "CLV_SEED=%s %s\n", text, result->message);
    random_graph_print(out, &graph);
    random_graph_free(&graph);
}
