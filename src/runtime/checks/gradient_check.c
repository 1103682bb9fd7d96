/* gradient_check.c - numerical gradient check (gradcheck): compares an op's gradient with central finite differences.
 */
#include "runtime/checks/op_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

/* ---- differences ---- */

typedef struct step {
    double h; /* a power of two: x + h loses little */
    double tolerance;
    double bend; /* relative: one-sided differences that differ by more are at a kink */
    double unit; /* of rounding */
} step;

/* Large steps in f32, whose results are rounded to 2^-24. */
static step step_of(const clv_numeric_gradient *g)
{
    step s = g->coarsest == CLV_F64 ? (step){0x1p-17, 2e-8, 1e-3, 0x1p-52} : (step){0x1p-6, 2e-3, 5e-2, 0x1p-23};
    if (g->tolerance > 0)
        s.tolerance = g->tolerance;
    return s;
}

static clv_status at(const clv_numeric_gradient *g, int64_t i, double x, double *f, double *size, clv_error *err)
{
    const clv_view *view = g->x;
    double before = clv_dtype_load(view->dtype, view->data, i);
    clv_dtype_store(view->dtype, view->data, i, x);
    clv_status status = g->objective(g->context, f, size, err);
    clv_dtype_store(view->dtype, view->data, i, before);
    return status;
}

static double largest_of(const clv_view *view)
{
    double largest = 0;
    for (int64_t i = 0; i < clv_view_elems(view); i++) {
        double x = fabs(clv_dtype_load(view->dtype, view->data, i));
        largest = isfinite(x) && x > largest ? x : largest;
    }
    return largest;
}

/* *compared: whether the differences were finite, and so compared. */
static clv_status check_element(const clv_numeric_gradient *g, int64_t i, double largest, bool *compared,
                                clv_error *err)
{
    const step s = step_of(g);
    double x = clv_dtype_load(g->x->dtype, g->x->data, i);
    double got = clv_dtype_load(g->gradient->dtype, g->gradient->data, i);
    double up, down, middle, size;
    *compared = isfinite(x);
    if (!*compared)
        return CLV_OK;
    CLV_TRY(at(g, i, x + s.h, &up, &size, err));
    CLV_TRY(at(g, i, x - s.h, &down, &size, err));
    double want = (up - down) / (2 * s.h), allowed = s.tolerance * fmax(largest, fmin(1, size)) + s.unit * size / s.h;
    if (fabs(got - want) <= allowed)
        return CLV_OK;
    CLV_TRY(at(g, i, x, &middle, &size, err));
    *compared = isfinite(want) || !isfinite(middle);
    if (!*compared)
        return CLV_OK;
    double right = (up - middle) / s.h, left = (middle - down) / s.h;
    if (fabs(right - left) > s.bend * (fabs(right) + fabs(left)) && got >= fmin(left, right) - allowed &&
        got <= fmax(left, right) + allowed)
        return CLV_OK;
    char index[CLV_OP_HARNESS_INDEX_TEXT];
    return clv_fail(err, CLV_ECHECK, "%s: element %s is %.9g; differences give %.9g", g->what,
                    clv_op_harness_print_index(index, g->x, i), got, want);
}

clv_status clv_numeric_gradient_check(const clv_numeric_gradient *g, int *compared, clv_error *err)
{
    int64_t elems = clv_view_elems(g->x), n = elems < g->max_elems ? elems : g->max_elems;
    double largest = largest_of(g->gradient);
    for (int64_t k = 0; k < n; k++) {
        bool counts;
        uint32_t drawn;
        clv_random_bits(&drawn, g->key, (uint64_t)k, 1);
        CLV_TRY(check_element(g, n < elems ? (int64_t)drawn % elems : k, largest, &counts, err));
        if (compared)
            *compared += counts;
    }
    return CLV_OK;
}

/* ---- an op's gradient ---- */

/* The values of a graph, unsharded. */
typedef struct values {
    clv_graph *graph;
    clv_view *view;
    int n;
    clv_op op; /* a copy: building moves graph->ops */
    clv_value seed[CLV_MAX_OUT];
} values;

static clv_status run_op(const values *v, const clv_op *op, clv_error *err)
{
    clv_op_harness harness = {.op = op};
    char how[CLV_OP_NAME + 64];
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            harness.in[i] = v->view[op->in[i]];
    for (int o = 0; o < op->n_out; o++) {
        harness.out[o] = v->view[op->out[o]];
        harness.aliases[o] = 1 + CLV_MAX_IN; /* holds an earlier result: not checked for unwritten elements */
    }
    snprintf(how, sizeof how, "%s", op->id == v->op.id ? "for differences" : "in the gradient");
    return clv_op_harness_run(&harness, how, err);
}

/* <seed, results> */
static clv_status objective(void *context, double *out, double *size, clv_error *err)
{
    const values *v = context;
    CLV_TRY(run_op(v, &v->op, err));
    *out = *size = 0;
    for (int o = 0; o < v->op.n_out; o++) {
        const clv_view *y = &v->view[v->op.out[o]], *s = &v->view[v->seed[o].id];
        int64_t elems = clv_valid(v->seed[o]) ? clv_view_elems(y) : 0;
        for (int64_t i = 0; i < elems; i++) {
            double term = clv_dtype_load(y->dtype, y->data, i) * clv_dtype_load(s->dtype, s->data, i);
            *out += term;
            *size += fabs(term);
        }
    }
    return CLV_OK;
}

/* Builds the objective as a loss; CLV_NONE: no result is differentiable. */
static clv_value build_loss(values *v, uint32_t no_out)
{
    clv_value loss = CLV_NONE;
    for (int o = 0; o < v->op.n_out; o++) {
        clv_value y = {v->op.out[o]};
        clv_type type = clv_graph_type(v->graph, y);
        int dims[CLV_MAX_RANK];
        char name[32];
        if (!clv_dtype_is_float(type.dtype) || (no_out >> o & 1))
            continue;
        for (int d = 0; d < type.rank; d++)
            dims[d] = d;
        snprintf(name, sizeof name, "cotangent %d", o);
        v->seed[o] = clv_input(v->graph, name, type.dtype, type.rank, type.shape, NULL);
        clv_value term = clv_mul(v->graph, y, v->seed[o]);
        if (type.rank > 0)
            term = clv_reduce(v->graph, CLV_SUM, term, dims, type.rank, false);
        term = clv_cast(v->graph, term, CLV_F64);
        loss = clv_valid(loss) ? clv_add(v->graph, loss, term) : term;
    }
    return loss;
}

static clv_status alloc_values(values *v, const clv_view *operands, clv_key key, clv_error *err)
{
    v->n = v->graph->n_values;
    v->view = calloc((size_t)v->n, sizeof *v->view);
    if (!v->view)
        return clv_fail_memory(err, "the values of a gradient", (size_t)v->n * sizeof *v->view);
    for (int i = 1; i < v->n; i++) {
        const void *data = NULL;
        for (int k = 0; k < v->op.n_in; k++)
            data = v->op.in[k] == i ? operands[k].data : data;
        v->view[i] = clv_op_harness_view(&v->graph->values[i].type);
        CLV_TRY(clv_op_harness_alloc(&v->view[i], data, err));
    }
    for (int o = 0; o < v->op.n_out; o++) {
        const clv_view *seed = &v->view[v->seed[o].id];
        int64_t elems = clv_valid(v->seed[o]) ? clv_view_elems(seed) : 0;
        for (int64_t i = 0; i < elems; i++) {
            float x;
            clv_random_uniform(&x, clv_key_fold_in(key, (uint32_t)o), (uint64_t)i, 1, -1, 1);
            clv_dtype_store(seed->dtype, seed->data, i, (double)x);
        }
    }
    return CLV_OK;
}

static clv_status compare(values *v, int i, clv_value d, clv_dtype coarsest, const clv_gradient_check_options *options,
                          int *compared, clv_error *err)
{
    enum { MOST = 64 /* elements of an operand, each two runs of the kernel */ };
    char what[64];
    snprintf(what, sizeof what, "the gradient%s by operand %d", options->of, i);
    clv_error why = {0};
    clv_status status =
        clv_numeric_gradient_check(&(clv_numeric_gradient){.objective = objective,
                                                           .context = v,
                                                           .x = &v->view[v->op.in[i]],
                                                           .gradient = &v->view[d.id],
                                                           .coarsest = coarsest,
                                                           .tolerance = options->tolerance,
                                                           .key = clv_key_fold_in(options->key, (uint32_t)i),
                                                           .max_elems = MOST,
                                                           .what = what},
                                   compared, &why);
    return status == CLV_OK ? CLV_OK : clv_fail_at(err, status, -1, v->op.name, "%s", why.message);
}

/* f64; f32; or another float dtype, with which no differences are taken. */
static clv_dtype coarsest_of(const clv_graph *graph, const clv_op *op)
{
    clv_dtype coarsest = CLV_F64;
    for (int k = 0; k < op->n_in + op->n_out; k++) {
        int value = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
        clv_dtype dtype = value > 0 ? graph->values[value].type.dtype : CLV_F64;
        if (dtype != CLV_F64 && clv_dtype_is_float(dtype) && (coarsest == CLV_F64 || dtype != CLV_F32))
            coarsest = dtype;
    }
    return coarsest;
}

static clv_status try_gradient(values *v, const clv_gradient_check_options *options, clv_dtype coarsest, int *compared,
                               clv_error *err)
{
    clv_value wrt[CLV_MAX_IN], d[CLV_MAX_IN];
    int operand[CLV_MAX_IN], n = 0;
    for (int i = 0; i < v->op.n_in; i++)
        if (v->op.in[i] > 0 && !(options->no_in >> i & 1) && clv_dtype_is_float(options->operands[i].dtype)) {
            operand[n] = i;
            wrt[n++] = (clv_value){v->op.in[i]};
        }
    clv_value loss = build_loss(v, options->no_out);
    if (n == 0 || !clv_valid(loss))
        return clv_graph_status(v->graph, err);
    clv_gradients(v->graph, loss, CLV_NONE, wrt, n, d);
    CLV_TRY(clv_graph_status(v->graph, err));
    CLV_TRY(alloc_values(v, options->operands, options->key, err));
    for (int o = 0; o < v->graph->n_ops; o++)
        CLV_TRY(run_op(v, &v->graph->ops[o], err));
    for (int k = 0; k < n && (coarsest == CLV_F64 || coarsest == CLV_F32); k++)
        CLV_TRY(compare(v, operand[k], d[k], coarsest, options, compared, err));
    return CLV_OK;
}

clv_status clv_gradient_check(clv_graph *graph, int op, const clv_gradient_check_options *options, int *compared,
                              clv_error *err)
{
    values v = {.graph = graph, .op = graph->ops[op]};
    clv_dtype coarsest = coarsest_of(graph, &v.op);
    if (!v.op.def->gradient)
        return CLV_OK;
    clv_status status = try_gradient(&v, options, coarsest, compared, err);
    for (int i = 1; v.view && i < v.n; i++)
        clv_op_harness_free(&v.view[i]);
    free(v.view);
    return status;
}
