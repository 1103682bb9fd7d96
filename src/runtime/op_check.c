/* op_check.c - what an op says of itself (cleave/op.h), held against what it does. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "runtime/again_check.h"
#include "runtime/gradient_check.h"
#include "runtime/rule_check.h"

static const char call[] = "clv_op_check";

/* ---- the op in a graph of its own ---- */

static clv_status check_given(const clv_op_def *def, const clv_type *in, int n_in, const clv_op_check_options *o,
                              clv_error *err)
{
    CLV_TRY(clv_require(def != NULL, call, "an op's definition", err));
    if (n_in < 0 || n_in > CLV_MAX_IN || (n_in > 0 && !in))
        return clv_fail(err, CLV_EINVAL, "%s: %d operands%s; valid: 0 to %d, with their types", call, n_in,
                        in ? "" : ", and no types", CLV_MAX_IN);
    if (!(o->tolerance >= 0 && o->tolerance < 1 && o->gradient_tolerance >= 0 && o->gradient_tolerance < 1))
        return clv_fail(err, CLV_EINVAL, "%s: tolerances of %g and %g; valid: from 0 to below 1", call, o->tolerance,
                        o->gradient_tolerance);
    return CLV_OK;
}

static clv_status emit(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_type *in, int n_in,
                       uint32_t absent, clv_error *err)
{
    clv_value value[CLV_MAX_IN], out[CLV_MAX_OUT];
    for (int i = 0; i < n_in; i++) {
        char name[32];
        snprintf(name, sizeof name, "operand %d", i);
        value[i] = absent >> i & 1 ? CLV_NONE : clv_input(graph, name, in[i].dtype, in[i].rank, in[i].shape, NULL);
    }
    clv_emit_known(graph, def, attrs, value, n_in, out);
    CLV_TRY(clv_graph_status(graph, err));
    if (clv_op_constraint_of(&graph->ops[0]))
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: '%s' states a layout, and is never run", call,
                        graph->ops[0].def->name);
    return CLV_OK;
}

/* ---- whole ---- */

static clv_status take_operand(clv_view *view, const clv_op_check_options *o, int i, clv_error *err)
{
    const void *given = o->data ? o->data[i] : NULL;
    CLV_TRY(clv_trial_take(view, given, err));
    int64_t elems = given ? 0 : clv_view_elems(view);
    for (int64_t e = 0; e < elems; e++) {
        float x = 0;
        if (clv_dtype_is_float(view->dtype))
            clv_random_uniform(&x, clv_key_fold_in(clv_key_seed(o->seed), (uint32_t)i), (uint64_t)e, 1, -1, 1);
        clv_dtype_store(view->dtype, view->data, e, (double)x);
    }
    return CLV_OK;
}

/* What NaN comes to on parts says nothing. */
static clv_status check_numbers(const clv_trial *whole, clv_error *err)
{
    for (int r = 0; r < whole->op->n_out; r++) {
        const clv_view *view = &whole->out[r];
        char index[CLV_TRIAL_INDEX];
        for (int64_t i = 0; i < clv_view_elems(view); i++)
            if (isnan(clv_dtype_load(view->dtype, view->data, i)))
                return clv_fail_at(err, CLV_ENONFINITE, -1, whole->op->name,
                                   "whole: element %s of result %d is NaN; valid: operands for which it is a number "
                                   "(clv_op_check_options.data)",
                                   clv_trial_index(index, view, i), r);
    }
    return CLV_OK;
}

static clv_status run_whole(clv_trial *whole, const clv_graph *graph, const clv_op_check_options *o, clv_error *err)
{
    const clv_op *op = whole->op;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0) {
            whole->in[i] = clv_trial_view(&graph->values[op->in[i]].type);
            CLV_TRY(take_operand(&whole->in[i], o, i, err));
        }
    for (int r = 0; r < op->n_out; r++) {
        whole->out[r] = clv_trial_view(&graph->values[op->out[r]].type);
        CLV_TRY(clv_trial_take(&whole->out[r], NULL, err));
    }
    CLV_TRY(clv_trial_run(whole, "whole", err));
    return check_numbers(whole, err);
}

static void rule_of(clv_rule *rule, const clv_graph *graph, const clv_op *op)
{
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in; i++)
        in[i] = clv_graph_type(graph, clv_op_in(op, i));
    for (int r = 0; r < op->n_out; r++)
        out[r] = clv_graph_type(graph, clv_op_out(op, r));
    memset(rule, 0, sizeof *rule);
    op->def->rule(op, in, out, rule);
}

/* ---- all of it ---- */

/* Copies of the op are used: building its gradient moves the graph's. */
static clv_status try_op(clv_graph *graph, const clv_op_check_options *o, clv_op_checks *done, clv_error *err)
{
    enum { OF_RULE, OF_GRADIENT };
    const clv_op op = graph->ops[0];
    const clv_key key = clv_key_split(clv_key_seed(o->seed), 1);
    clv_trial whole = {.op = &op};
    clv_rule rule;
    rule_of(&rule, graph, &op);
    clv_op_trials trials = {
        .whole = &whole, .rule = &rule, .key = clv_key_fold_in(key, OF_RULE), .tolerance = o->tolerance};
    const clv_gradient_trial gradient = {.operands = whole.in,
                                         .no_in = o->no_gradient_in,
                                         .no_out = o->no_gradient_out,
                                         .tolerance = o->gradient_tolerance,
                                         .key = clv_key_fold_in(key, OF_GRADIENT)};
    clv_status status = run_whole(&whole, graph, o, err);
    if (status == CLV_OK)
        status = clv_again_try(&whole, err);
    if (status == CLV_OK)
        status = clv_rule_try(&trials, err);
    if (status == CLV_OK)
        status = clv_gradient_try(graph, 0, &gradient, &done->gradients, err);
    for (int i = 0; i < op.n_in; i++)
        clv_trial_release(&whole.in[i]);
    for (int r = 0; r < op.n_out; r++)
        clv_trial_release(&whole.out[r]);
    done->cuts = trials.cuts;
    done->partials = trials.partials;
    done->in_place = trials.in_place;
    return status;
}

clv_status clv_op_check(const clv_op_def *def, const void *attrs, const clv_type *in, int n_in,
                        const clv_op_check_options *options, clv_op_checks *out, clv_error *err)
{
    clv_op_check_options o;
    clv_op_checks done = {0};
    clv_graph *graph;
    clv_mesh mesh;
    CLV_TRY(clv_take_options(&o, sizeof o, sizeof o, options, call, err));
    CLV_TRY(check_given(def, in, n_in, &o, err));
    CLV_TRY(clv_mesh_parse(&mesh, "rank=1", err));
    CLV_TRY(clv_graph_new(&graph, &mesh, err));
    clv_status status = emit(graph, def, attrs, in, n_in, o.absent, err);
    if (status == CLV_OK)
        status = try_op(graph, &o, &done, err);
    clv_graph_free(graph);
    if (status != CLV_OK || !out)
        return status;
    return clv_give_struct(out, sizeof done, sizeof done, &done, call, err);
}
