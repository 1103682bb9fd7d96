/* graph_eval.c - graphs op by op on one rank; rules and gradients tried by running them. */
#include "graph_eval.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph_call.h"
#include "runtime/guard.h"

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

/* Where the guard behind so many bytes begins: at a whole word. */
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
    clv_guard_fill(data + end, GUARD);
    return data;
}

/* Fails where an op wrote behind what graph_take gave. */
static void check_behind(const clv_op *op, const char *what, const void *data, size_t bytes)
{
    int64_t broken = GUARD > 0 ? clv_guard_first_broken((const char *)data + guarded_from(bytes), GUARD) : -1;
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

static clv_type local_type(const clv_view *view)
{
    clv_type type = {.dtype = view->dtype, .rank = view->rank};
    memcpy(type.shape, view->shape, sizeof type.shape);
    return type;
}

static int64_t elems_of(const clv_view *view)
{
    clv_type type = local_type(view);
    return clv_type_elems(&type);
}

static size_t bytes_of(const clv_view *view)
{
    return (size_t)elems_of(view) * clv_dtype_size(view->dtype);
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
        memcpy(c->out[0].data, c->in[0].data, bytes_of(&c->in[0]));
        return CLV_OK;
    }
    clv_call call = {.op = c->op, .in = c->in, .out = c->out};
    size_t bytes = def->workspace ? def->workspace(c->op, c->in, c->out) : 0;
    char *room = graph_take(GUARD + bytes);
    clv_guard_fill(room, GUARD);
    call.workspace = room + GUARD;
    clv_status status = def->run(&call, err);
    for (int o = 0; o < c->op->n_out; o++)
        check_behind(c->op, "result", c->out[o].data, bytes_of(&c->out[o]));
    check_behind(c->op, "workspace", room, GUARD + bytes);
    if (GUARD > 0 && clv_guard_first_broken(room, GUARD) >= 0)
        fail_msg("%s: wrote before its workspace", c->op->name);
    free(room);
    return status;
}

static void must_run(const op_call *call, const char *how)
{
    clv_error err = {0};
    if (run_call(call, &err) != CLV_OK)
        fail_msg("%s (%s): %s", call->op->name, how, err.message);
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

static int position_of(const clv_dim_factors *dim, int factor)
{
    int at = -1;
    for (int j = 0; j < dim->n; j++)
        at = dim->factor[j] == factor ? j : at;
    return at;
}

bool graph_holds(const clv_dim_factors *dims, int rank, int factor)
{
    bool any = false;
    for (int d = 0; d < rank; d++)
        any = any || position_of(&dims[d], factor) >= 0;
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

/* ---- boxes ---- */

/* The element of the whole tensor that element i of the view is. */
static int64_t global_index(const clv_view *view, int64_t i)
{
    int64_t index = 0, stride = 1;
    for (int d = view->rank - 1; d >= 0; d--) {
        index += (view->lo[d] + i % view->shape[d]) * stride;
        i /= view->shape[d];
        stride *= view->global[d];
    }
    return index;
}

/* A buffer of its own with the view's part of `whole` (NULL: poison). */
static void own(clv_view *view, const void *whole)
{
    int64_t elems = elems_of(view);
    size_t size = clv_dtype_size(view->dtype);
    view->data = graph_take(bytes_of(view));
    for (int64_t i = 0; whole && i < elems; i++)
        memcpy((char *)view->data + (size_t)i * size, (const char *)whole + (size_t)global_index(view, i) * size, size);
}

static void free_call(op_call *call)
{
    for (int i = 0; i < call->op->n_in; i++)
        free(call->in[i].data);
    for (int o = 0; o < call->op->n_out; o++)
        free(call->out[o].data);
}

/* A call on buffers of its own. */
static op_call own_call(graph_eval *eval, const op_call *parts)
{
    op_call call = *parts;
    for (int i = 0; i < call.op->n_in; i++)
        if (call.op->in[i] > 0)
            own(&call.in[i], eval->data[call.op->in[i]]);
    for (int o = 0; o < call.op->n_out; o++)
        own(&call.out[o], NULL);
    return call;
}

/* ---- results, combined ---- */

typedef struct results {
    double *sum[CLV_MAX_OUT];
} results;

static results results_new(graph_eval *eval, const clv_op *op, clv_reduction how)
{
    results r = {{0}};
    for (int o = 0; o < op->n_out; o++) {
        int64_t elems = clv_type_elems(type_of(eval, op->out[o]));
        r.sum[o] = graph_take((size_t)elems * sizeof(double));
        for (int64_t i = 0; i < elems; i++)
            r.sum[o][i] = how == CLV_REDUCE_MAX ? -INFINITY : 0;
    }
    return r;
}

/* Blocks that do not overlap add up to the whole; those that do are partial sums (or maxima). */
static void results_add(results *r, const op_call *call, clv_reduction how)
{
    for (int o = 0; o < call->op->n_out; o++) {
        int64_t elems = elems_of(&call->out[o]);
        for (int64_t i = 0; i < elems; i++) {
            double x = clv_dtype_load(call->out[o].dtype, call->out[o].data, i);
            double *to = &r->sum[o][global_index(&call->out[o], i)];
            *to = how == CLV_REDUCE_MAX ? (x > *to || isnan(x) ? x : *to) : *to + x;
        }
    }
}

/* How far results may be apart, relative to the largest: operands below f64 are computed in f32. */
static double unit_of(const graph_eval *eval, const clv_op *op, clv_dtype result)
{
    double unit = result == CLV_F64 ? 1e-12 : result == CLV_F32 ? 2e-6 : 3e-2;
    for (int i = 0; i < op->n_in; i++) {
        clv_dtype dtype = op->in[i] > 0 ? type_of(eval, op->in[i])->dtype : CLV_F64;
        if (clv_dtype_is_float(dtype) && dtype != CLV_F64)
            unit = fmax(unit, 2e-6);
    }
    return unit;
}

static void results_check(results *r, graph_eval *eval, const clv_op *op, const char *how)
{
    for (int o = 0; o < op->n_out; o++) {
        const clv_type *type = type_of(eval, op->out[o]);
        int64_t elems = clv_type_elems(type);
        double largest = 1, unit = unit_of(eval, op, type->dtype);
        for (int64_t i = 0; i < elems; i++) {
            double x = fabs(clv_dtype_load(type->dtype, eval->data[op->out[o]], i));
            largest = isfinite(x) && x > largest ? x : largest;
        }
        for (int64_t i = 0; i < elems; i++) {
            double want = clv_dtype_load(type->dtype, eval->data[op->out[o]], i), got = r->sum[o][i];
            if (got != want && !(fabs(got - want) <= unit * largest))
                fail_msg("%s: result %d, %s: element %lld is %.12g, whole it is %.12g", op->name, o, how, (long long)i,
                         got, want);
        }
        free(r->sum[o]);
    }
}

/* ---- factors cut ---- */

typedef struct factor_cut {
    const clv_rule *rule;
    int factor;
    int64_t blocks, kept; /* kept < blocks: the factor is cut into `kept`, and the rest cuts the factor it spills to */
} factor_cut;

static int64_t gcd(int64_t a, int64_t b)
{
    return b == 0 ? a : gcd(b, a % b);
}

/* Narrows a view to its part for `block`; false where that is not a contiguous cut (a minor factor of several). */
static bool narrow(clv_view *view, const clv_dim_factors *dims, const factor_cut *cut, int64_t block)
{
    for (int d = 0; d < view->rank; d++) {
        int at = position_of(&dims[d], cut->factor);
        int64_t granule = 1, blocks = cut->blocks, index = block;
        if (at < 0)
            continue;
        for (int j = 0; j < at; j++)
            if (cut->rule->factor[dims[d].factor[j]].size != 1)
                return false;
        for (int j = at + 1; j < dims[d].n; j++)
            granule *= cut->rule->factor[dims[d].factor[j]].size;
        if (cut->kept < cut->blocks) {
            bool both = position_of(&dims[d], cut->rule->factor[cut->factor].spill) >= 0;
            granule = both ? 1 : granule;
            blocks = both ? cut->blocks : cut->kept;
            index = both ? block : block / (cut->blocks / cut->kept);
        }
        int64_t n = granule > 0 ? view->global[d] / granule : 0;
        view->lo[d] = n * index / blocks * granule;
        view->shape[d] = n * (index + 1) / blocks * granule - view->lo[d];
    }
    return true;
}

/* A result without the factor must say how it combines. */
static clv_reduction reduction_of(const clv_op *op, const op_call *whole, const factor_cut *cut)
{
    clv_reduction how = cut->rule->factor[cut->factor].reduction;
    for (int o = 0; o < op->n_out; o++)
        if (!graph_holds(cut->rule->out[o], whole->out[o].rank, cut->factor) && how == CLV_REDUCE_NONE)
            fail_msg("%s: result %d does not hold factor %d, which has no reduction", op->name, o, cut->factor);
    return how;
}

static int check_cut(graph_eval *eval, const clv_op *op, const factor_cut *cut)
{
    op_call whole = whole_call(eval, op);
    clv_reduction how = reduction_of(op, &whole, cut);
    results sum = results_new(eval, op, how);
    char text[96];
    bool contiguous = true;
    for (int64_t block = 0; block < cut->blocks; block++) {
        op_call parts = whole;
        for (int i = 0; i < op->n_in; i++)
            contiguous = contiguous && (op->in[i] == 0 || narrow(&parts.in[i], cut->rule->in[i], cut, block));
        for (int o = 0; o < op->n_out; o++)
            contiguous = contiguous && narrow(&parts.out[o], cut->rule->out[o], cut, block);
        if (!contiguous)
            break;
        snprintf(text, sizeof text, "factor %d in %lld blocks", cut->factor, (long long)cut->blocks);
        op_call call = own_call(eval, &parts);
        must_run(&call, text);
        results_add(&sum, &call, how);
        free_call(&call);
    }
    if (contiguous) {
        results_check(&sum, eval, op, text);
        return 1;
    }
    for (int o = 0; o < op->n_out; o++)
        free(sum.sum[o]);
    return 0;
}

static int check_factor(graph_eval *eval, const clv_op *op, const clv_rule *rule, int f)
{
    const clv_factor *factor = &rule->factor[f];
    int checks = 0;
    for (int64_t blocks = 2; blocks <= 3 && !factor->whole; blocks++)
        checks += check_cut(eval, op, &(factor_cut){rule, f, blocks, blocks});
    if (factor->spill < 0 || rule->factor[factor->spill].size <= 1 || factor->size < 1)
        return checks;
    for (int64_t blocks = factor->size + 1; blocks <= 8; blocks++)
        checks += check_cut(eval, op, &(factor_cut){rule, f, blocks, gcd(blocks, factor->size)});
    return checks;
}

/* ---- partial operands, and results in place ---- */

enum { TERMS = 2 };

/* call.in[i] becomes term `t` of operand i: shares of either sign that vary over elements and are exact in every dtype;
 * or, masked, all or nothing. */
static void make_term(graph_eval *eval, op_call *call, int i, int t, uint64_t seed, bool masked)
{
    static const double shares[] = {2, -1, 0.5, 0, 1};
    uint64_t random = seed;
    int64_t elems = elems_of(&call->in[i]);
    clv_dtype dtype = call->in[i].dtype;
    const void *whole = eval->data[call->op->in[i]];
    for (int64_t e = 0; e < elems; e++) {
        double share = masked ? 1 : shares[graph_next(&random) % 5];
        clv_dtype_store(dtype, call->in[i].data, e, clv_dtype_load(dtype, whole, e) * (t == 0 ? share : 1 - share));
    }
}

/* Operands of `partial` as sums of terms, those of `masked` on the first rank only. */
static int check_terms(graph_eval *eval, const clv_op *op, uint32_t partial, uint32_t masked)
{
    op_call whole = whole_call(eval, op);
    results sum = results_new(eval, op, CLV_REDUCE_SUM);
    uint64_t seed = graph_next(&eval->random);
    char text[96];
    snprintf(text, sizeof text, "operands %#x partial, %#x masked", partial, masked);
    for (int t = 0; t < TERMS; t++) {
        op_call call = own_call(eval, &whole);
        for (int i = 0; i < op->n_in; i++)
            if ((partial | masked) >> i & 1)
                make_term(eval, &call, i, t, seed + (uint64_t)i, masked >> i & 1);
        must_run(&call, text);
        results_add(&sum, &call, CLV_REDUCE_SUM);
        free_call(&call);
    }
    results_check(&sum, eval, op, text);
    return 1;
}

/* call.in[i] becomes a rank's part `t` of maxima: an element is whole on one rank, and less on the other, or nothing.
 */
static void make_part(graph_eval *eval, op_call *call, int i, int t, uint64_t seed)
{
    uint64_t random = seed;
    int64_t elems = elems_of(&call->in[i]);
    clv_dtype dtype = call->in[i].dtype;
    const void *whole = eval->data[call->op->in[i]];
    for (int64_t e = 0; e < elems; e++) {
        uint64_t holder = graph_next(&random) % TERMS, less = graph_next(&random) % 4;
        double x = clv_dtype_load(dtype, whole, e);
        x -= holder == (uint64_t)t ? 0 : less == 0 ? INFINITY : (double)less;
        clv_dtype_store(dtype, call->in[i].data, e, x);
    }
}

/* All operands as maxima over ranks. */
static int check_maxima(graph_eval *eval, const clv_op *op, const clv_rule *rule)
{
    if (!rule->passes_max)
        return 0;
    op_call whole = whole_call(eval, op);
    results most = results_new(eval, op, CLV_REDUCE_MAX);
    uint64_t seed = graph_next(&eval->random);
    for (int t = 0; t < TERMS; t++) {
        op_call call = own_call(eval, &whole);
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] > 0)
                make_part(eval, &call, i, t, seed + (uint64_t)i);
        must_run(&call, "operands partial maxima");
        results_add(&most, &call, CLV_REDUCE_MAX);
        free_call(&call);
    }
    results_check(&most, eval, op, "operands partial maxima");
    return 1;
}

static int check_linearity(graph_eval *eval, const clv_op *op, const clv_rule *rule)
{
    int checks = 0;
    if (rule->linearity == CLV_NOT_LINEAR)
        return 0;
    for (int i = 0; i < op->n_in; i++)
        if (rule->linear >> i & 1)
            checks += check_terms(eval, op, 1u << i, rule->linearity == CLV_ADDITIVE ? rule->linear & ~(1u << i) : 0);
    if (rule->linearity == CLV_ADDITIVE)
        checks += check_terms(eval, op, rule->linear, 0);
    return checks;
}

static int check_in_place(graph_eval *eval, const clv_op *op)
{
    op_call whole = whole_call(eval, op), call = own_call(eval, &whole);
    bool any = false;
    for (int o = 0; o < op->n_out; o++) {
        int i = op->def->in_place[o] - 1;
        if (i < 0 || bytes_of(&call.in[i]) != bytes_of(&call.out[o]))
            continue;
        any = true;
        free(call.out[o].data);
        call.out[o].data = call.in[i].data;
    }
    if (any) {
        must_run(&call, "in place");
        results sum = results_new(eval, op, CLV_REDUCE_SUM);
        results_add(&sum, &call, CLV_REDUCE_SUM);
        results_check(&sum, eval, op, "in place");
    }
    for (int o = 0; o < op->n_out; o++)
        for (int i = 0; i < op->n_in; i++)
            if (call.out[o].data == call.in[i].data)
                call.out[o].data = NULL;
    free_call(&call);
    return any;
}

int graph_eval_check_rules(graph_eval *eval)
{
    int checks = 0;
    for (int o = 0; o < eval->graph->n_ops; o++) {
        const clv_op *op = &eval->graph->ops[o];
        if (clv_op_constraint_of(op))
            continue;
        clv_type in[CLV_MAX_IN], out[CLV_MAX_OUT];
        types_of(eval, op, in, out);
        clv_rule rule = graph_rule(eval, op);
        clv_op_cost cost = op->def->cost ? op->def->cost(op, in, out) : (clv_op_cost){0};
        if (!(cost.flops >= 0 && cost.bytes >= 0 && isfinite(cost.flops + cost.bytes)))
            fail_msg("%s costs %g flops and %g bytes", op->name, cost.flops, cost.bytes);
        for (int f = 0; f < rule.n_factors; f++)
            checks += check_factor(eval, op, &rule, f);
        checks += check_linearity(eval, op, &rule) + check_maxima(eval, op, &rule) + check_in_place(eval, op);
    }
    return checks;
}

/* ---- gradients ---- */

/* <seed, f> */
static double objective(graph_eval *eval, clv_value f, clv_value seed, int n_ops)
{
    int64_t elems = clv_type_elems(type_of(eval, f.id));
    double sum = 0;
    graph_eval_must_run(eval, n_ops);
    for (int64_t i = 0; i < elems; i++)
        sum += graph_eval_get(eval, f, i) * graph_eval_get(eval, seed, i);
    return sum;
}

static void compare_with_differences(graph_eval *eval, clv_value f, clv_value seed, int n_ops, clv_value wrt,
                                     clv_value d)
{
    const double h = 1e-5;
    int64_t elems = clv_type_elems(type_of(eval, wrt.id));
    double largest = 1;
    for (int64_t i = 0; i < elems; i++)
        largest = fmax(largest, fabs(graph_eval_get(eval, d, i)));
    for (int64_t i = 0; i < elems; i++) {
        double x = graph_eval_get(eval, wrt, i), got = graph_eval_get(eval, d, i);
        graph_eval_set(eval, wrt, i, x + h);
        double up = objective(eval, f, seed, n_ops);
        graph_eval_set(eval, wrt, i, x - h);
        double down = objective(eval, f, seed, n_ops);
        graph_eval_set(eval, wrt, i, x);
        double want = (up - down) / (2 * h);
        if (!(fabs(got - want) <= 2e-8 * largest))
            fail_msg("gradient by value %d, element %lld: %.12g, differences give %.12g", wrt.id, (long long)i, got,
                     want);
    }
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
            compare_with_differences(eval, f, seed, n_ops, wrt[i], d[i]);
        }
        graph_eval_must_run(eval, -1);
        checks += wide ? 0 : graph_eval_check_rules(eval);
        graph_eval_free(eval);
    }
    return checks;
}
