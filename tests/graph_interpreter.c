/* graph_interpreter.c - graphs op by op on one rank; rules and gradients tried by running them. */
#include "graph_interpreter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_call.h"
#include "runtime/checks/op_harness.h"
#include "runtime/checks/guard_bytes.h"
#include "unit_test.h"

#ifdef __SANITIZE_ADDRESS__
enum { GUARD = 0 }; /* it sees every overrun by itself */
#else
enum { GUARD = CLV_GUARD_BYTES };
#endif

uint64_t graph_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double graph_uniform(uint64_t *state)
{
    return (double)(graph_next(state) >> 11) * 0x1p-52 - 1;
}

/* Offset of the guard after so many bytes: at a whole word. */
static size_t guarded_from(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

void *graph_take(size_t bytes)
{
    char *data = NULL;
    size_t end = GUARD > 0 ? guarded_from(bytes) : bytes, all = end + GUARD > 0 ? end + GUARD : 1;
    if (posix_memalign((void **)&data, 64, all) != 0)
        fail_msg("out of memory");
    memset(data, 0xff, all);
    clv_guard_bytes_fill(data + end, GUARD);
    return data;
}

/* Fails if an op wrote past the memory that graph_take returned. */
static void check_behind(const clv_op *op, const char *what, const void *data, size_t bytes)
{
    int64_t broken =
        GUARD > 0 ? clv_guard_bytes_first_overwritten((const char *)data + guarded_from(bytes), GUARD) : -1;
    if (broken >= 0)
        fail_msg("%s: wrote behind the end of its %s of %zu bytes, at byte %zu", op->name, what, bytes,
                 guarded_from(bytes) + (size_t)broken);
}

static const clv_type *type_of(const graph_eval *eval, int value)
{
    return &eval->graph->values[value].type;
}

graph_eval *graph_eval_new(const clv_graph *graph, uint64_t seed)
{
    clv_error err = {0};
    if (clv_graph_status(graph, &err) != CLV_OK)
        fail_msg("the graph: %s", err.message);
    graph_eval *eval = graph_take(sizeof *eval);
    *eval = (graph_eval){.graph = graph, .data = graph_take((size_t)graph->n_values * sizeof(void *)), .random = seed};
    for (int v = 1; v < graph->n_values; v++) {
        const clv_type *type = type_of(eval, v);
        int64_t elems = clv_type_elems(type);
        eval->data[v] = graph_take((size_t)elems * clv_dtype_size(type->dtype));
        for (int64_t i = 0; graph->values[v].source != CLV_FROM_OP && i < elems; i++)
            clv_dtype_store(type->dtype, eval->data[v], i,
                            clv_dtype_is_float(type->dtype) ? graph_uniform(&eval->random) : 0);
    }
    return eval;
}

void graph_eval_free(graph_eval *eval)
{
    for (int v = 1; v < eval->graph->n_values; v++)
        free(eval->data[v]);
    free(eval->data);
    free(eval);
}

void *graph_eval_data(graph_eval *eval, clv_value value)
{
    return eval->data[value.id];
}

double graph_eval_get(graph_eval *eval, clv_value value, int64_t i)
{
    return clv_dtype_load(type_of(eval, value.id)->dtype, eval->data[value.id], i);
}

void graph_eval_set(graph_eval *eval, clv_value value, int64_t i, double x)
{
    clv_dtype_store(type_of(eval, value.id)->dtype, eval->data[value.id], i, x);
}

void graph_eval_fill(graph_eval *eval, clv_value value, const double *x)
{
    int64_t elems = clv_type_elems(type_of(eval, value.id));
    for (int64_t i = 0; i < elems; i++)
        graph_eval_set(eval, value, i, x[i]);
}

/* ---- one op ---- */

static clv_view whole_view(const clv_type *type, void *data)
{
    clv_view view = {.data = data, .dtype = type->dtype, .rank = type->rank};
    memcpy(view.shape, type->shape, sizeof view.shape);
    memcpy(view.global, type->shape, sizeof view.global);
    return view;
}

static op_call whole_call(graph_eval *eval, const clv_op *op)
{
    op_call call = {.op = op};
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            call.in[i] = whole_view(type_of(eval, op->in[i]), eval->data[op->in[i]]);
    for (int o = 0; o < op->n_out; o++)
        call.out[o] = whole_view(type_of(eval, op->out[o]), eval->data[op->out[o]]);
    return call;
}

static clv_status run_call(const op_call *c, clv_error *err)
{
    const clv_op_def *def = c->op->def;
    if (clv_op_constraint_of(c->op)) {
        memcpy(c->out[0].data, c->in[0].data, clv_view_byte_size(&c->in[0]));
        return CLV_OK;
    }
    clv_call call = {.op = c->op, .in = c->in, .out = c->out};
    size_t bytes = def->workspace ? def->workspace(c->op, c->in, c->out) : 0;
    char *room = graph_take(GUARD + bytes);
    clv_guard_bytes_fill(room, GUARD);
    call.workspace = room + GUARD;
    clv_status status = def->run(&call, err);
    for (int o = 0; o < c->op->n_out; o++)
        check_behind(c->op, "result", c->out[o].data, clv_view_byte_size(&c->out[o]));
    check_behind(c->op, "workspace", room, GUARD + bytes);
    if (GUARD > 0 && clv_guard_bytes_first_overwritten(room, GUARD) >= 0)
        fail_msg("%s: wrote before its workspace", c->op->name);
    free(room);
    return status;
}

/* ---- rules ---- */

static void types_of(const graph_eval *eval, const clv_op *op, clv_type *in, clv_type *out)
{
    memset(in, 0, CLV_MAX_IN * sizeof *in);
    memset(out, 0, CLV_MAX_OUT * sizeof *out);
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            in[i] = *type_of(eval, op->in[i]);
    for (int r = 0; r < op->n_out; r++)
        out[r] = *type_of(eval, op->out[r]);
}

clv_rule graph_rule(const graph_eval *eval, const clv_op *op)
{
    clv_type in[CLV_MAX_IN], out[CLV_MAX_OUT];
    clv_rule rule;
    memset(&rule, 0, sizeof rule);
    types_of(eval, op, in, out);
    op->def->rule(op, in, out, &rule);
    return rule;
}

bool graph_holds(const clv_dim_factors *dims, int rank, int factor)
{
    bool any = false;
    for (int d = 0; d < rank; d++)
        for (int j = 0; j < dims[d].n; j++)
            any = any || dims[d].factor[j] == factor;
    return any;
}

/* ---- all ops ---- */

clv_status graph_eval_run(graph_eval *eval, int n_ops, clv_error *err)
{
    clv_status status = CLV_OK;
    for (int o = 0; o < (n_ops < 0 ? eval->graph->n_ops : n_ops) && status == CLV_OK; o++) {
        op_call call = whole_call(eval, &eval->graph->ops[o]);
        void *copies[CLV_MAX_IN] = {NULL};
        graph_nudge_operands(eval, &call, copies);
        status = run_call(&call, err);
        for (int i = 0; i < call.op->n_in; i++)
            free(copies[i]);
        for (int r = 0; r < call.op->n_out; r++)
            graph_nudge_value(eval, call.op->out[r]);
    }
    return status;
}

void graph_eval_must_run(graph_eval *eval, int n_ops)
{
    clv_error err = {0};
    if (graph_eval_run(eval, n_ops, &err) != CLV_OK)
        fail_msg("%s", err.message);
}

/* ---- what ops say of themselves ---- */

/* Gradients that an op by itself does not show: they count on how operands are made (statistics are differentiated
 * with what they are the statistics of), or a result is for other gradients alone. */
static void leave_out(const clv_op *op, clv_op_check_options *options)
{
    static const struct {
        const char *name;
        uint32_t in, out;
    } rows[] = {{"normalize", ~0u, 0}, {"xent_sums", ~0u, 0}, {"xent_loss", ~0u, 0}, {"attention", 0, 1u << 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(op->def->name, rows[i].name) == 0) {
            options->no_gradient_in = rows[i].in;
            options->no_gradient_out = rows[i].out;
        }
}

int graph_eval_check_op(graph_eval *eval, const clv_op *op)
{
    clv_op_check_options options = {.seed = graph_next(&eval->random)};
    clv_op_check_report done = {0};
    clv_error err = {0};
    clv_type in[CLV_MAX_IN];
    const void *data[CLV_MAX_IN];
    for (int i = 0; i < op->n_in; i++) {
        options.absent |= op->in[i] > 0 ? 0 : 1u << i;
        in[i] = *type_of(eval, op->in[i]);
        data[i] = eval->data[op->in[i]];
    }
    options.data = data;
    leave_out(op, &options);
    if (clv_op_check(op->def, op->attrs, in, op->n_in, &options, &done, &err) != CLV_OK)
        fail_msg("%s: %s", op->name, err.message);
    return done.cuts + done.partials + done.in_place;
}

int graph_eval_check_rules(graph_eval *eval)
{
    int checks = 0;
    for (int o = 0; o < eval->graph->n_ops; o++)
        if (!clv_op_constraint_of(&eval->graph->ops[o]))
            checks += graph_eval_check_op(eval, &eval->graph->ops[o]);
    return checks;
}

/* ---- gradients ---- */

typedef struct function {
    graph_eval *eval;
    clv_value f, seed;
    int n_ops;
} function;

/* <seed, f> */
static clv_status objective(void *context, double *out, double *size, clv_error *err)
{
    const function *of = context;
    int64_t elems = clv_type_elems(type_of(of->eval, of->f.id));
    clv_status status = graph_eval_run(of->eval, of->n_ops, err);
    *out = *size = 0;
    for (int64_t i = 0; i < elems; i++)
        *out += graph_eval_get(of->eval, of->f, i) * graph_eval_get(of->eval, of->seed, i);
    return status;
}

static void compare_with_differences(function *of, clv_value wrt, clv_value d)
{
    const clv_view x = whole_view(type_of(of->eval, wrt.id), of->eval->data[wrt.id]),
                   slopes = whole_view(type_of(of->eval, d.id), of->eval->data[d.id]);
    char what[32];
    clv_error err = {0};
    snprintf(what, sizeof what, "the gradient by value %d", wrt.id);
    if (clv_numeric_gradient_check(&(clv_numeric_gradient){.objective = objective,
                                                           .context = of,
                                                           .x = &x,
                                                           .gradient = &slopes,
                                                           .coarsest = CLV_F64,
                                                           .max_elems = INT64_MAX,
                                                           .what = what},
                                   NULL, &err) != CLV_OK)
        fail_msg("%s", err.message);
}

/* Inputs and state, which lie in [-1, 1), reach further: functions bend, saturate and turn elsewhere. */
static void widen(graph_eval *eval, double times)
{
    for (int v = 1; v < eval->graph->n_values; v++) {
        const clv_type *type = type_of(eval, v);
        bool is_leaf = eval->graph->values[v].source != CLV_FROM_OP && clv_dtype_is_float(type->dtype);
        for (int64_t i = 0; is_leaf && i < clv_type_elems(type); i++)
            graph_eval_set(eval, (clv_value){v}, i, times * graph_eval_get(eval, (clv_value){v}, i));
    }
}

int check_gradient(clv_graph *graph, clv_value f, const clv_value *wrt, int n,
                   void (*prepare)(graph_eval *eval, void *context), void *context)
{
    enum { SEED = 20240607 };
    clv_value d[CLV_MAX_IN];
    clv_type type = clv_graph_type(graph, f);
    clv_value seed = clv_input(graph, "cotangent", type.dtype, type.rank, type.shape, NULL);
    int n_ops = graph->n_ops;
    clv_gradients(graph, f, seed, wrt, n, d);
    int checks = 0;
    for (int wide = 1; wide >= 0; wide--) {
        graph_eval *eval = graph_eval_new(graph, SEED);
        if (wide)
            widen(eval, 4);
        if (prepare)
            prepare(eval, context);
        graph_eval_must_run(eval, -1);
        for (int i = 0; i < n; i++) {
            clv_type got = clv_graph_type(graph, d[i]), want = clv_graph_type(graph, wrt[i]);
            assert_true(clv_type_equal(&got, &want));
            compare_with_differences(&(function){eval, f, seed, n_ops}, wrt[i], d[i]);
        }
        graph_eval_must_run(eval, -1);
        checks += wide ? 0 : graph_eval_check_rules(eval);
        graph_eval_free(eval);
    }
    return checks;
}
