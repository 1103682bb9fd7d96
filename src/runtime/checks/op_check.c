/* op_check.c - clv_op_check: self-test of an op definition (kernel, sharding rule, gradient, cost, workspace). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "runtime/checks/op_harness.h"

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

/* Arguments of clv_op_check. */
typedef struct tried {
    const clv_op_def *def;
    const void *attrs;
    const clv_type *in;
    int n_in;
    clv_op_check_options o;
} tried;

static clv_status emit(clv_graph *graph, const tried *t, clv_error *err)
{
    clv_value value[CLV_MAX_IN], out[CLV_MAX_OUT];
    for (int i = 0; i < t->n_in; i++) {
        const clv_type *type = &t->in[i];
        char name[32];
        snprintf(name, sizeof name, "operand %d", i);
        value[i] = t->o.absent >> i & 1 ? CLV_NONE : clv_input(graph, name, type->dtype, type->rank, type->shape, NULL);
    }
    clv_emit_custom_or_builtin(graph, t->def, t->attrs, value, t->n_in, out);
    CLV_TRY(clv_graph_status(graph, err));
    if (clv_op_constraint_of(&graph->ops[0]))
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: '%s' states a layout, and is never run", call,
                        graph->ops[0].def->name);
    return CLV_OK;
}

static clv_status graph_new(clv_graph **out, const tried *t, clv_error *err)
{
    clv_mesh mesh;
    clv_graph *graph;
    CLV_TRY(clv_mesh_parse(&mesh, "rank=1", err));
    CLV_TRY(clv_graph_new(&graph, &mesh, err));
    clv_status status = emit(graph, t, err);
    if (status == CLV_OK)
        *out = graph;
    else
        clv_graph_free(graph);
    return status;
}

/* ---- the unsharded op ---- */

/* Random floats are in [-1, 1) + offset. */
static clv_status take_operand(clv_view *view, const clv_op_check_options *o, int i, double offset, clv_error *err)
{
    const void *given = o->data ? o->data[i] : NULL;
    CLV_TRY(clv_op_harness_alloc(view, given, err));
    int64_t elems = given ? 0 : clv_view_elems(view);
    for (int64_t e = 0; e < elems; e++) {
        float x = 0;
        if (clv_dtype_is_float(view->dtype))
            clv_random_uniform(&x, clv_key_fold_in(clv_key_seed(o->seed), (uint32_t)i), (uint64_t)e, 1, -1, 1);
        clv_dtype_store(view->dtype, view->data, e, clv_dtype_is_float(view->dtype) ? (double)x + offset : 0);
    }
    return CLV_OK;
}

/* NaN would hide differences between shards. */
static clv_status check_numbers(const clv_op_harness *whole, clv_error *err)
{
    for (int r = 0; r < whole->op->n_out; r++) {
        const clv_view *view = &whole->out[r];
        char index[CLV_OP_HARNESS_INDEX_TEXT];
        for (int64_t i = 0; i < clv_view_elems(view); i++)
            if (isnan(clv_dtype_load(view->dtype, view->data, i)))
                return clv_fail_at(err, CLV_ENONFINITE, -1, whole->op->name,
                                   "whole: element %s of result %d is NaN; valid: operands for which it is a number "
                                   "(clv_op_check_options.data)",
                                   clv_op_harness_print_index(index, view, i), r);
    }
    return CLV_OK;
}

static clv_status run_whole(clv_op_harness *whole, const clv_graph *graph, const clv_op_check_options *o, double offset,
                            clv_error *err)
{
    const clv_op *op = whole->op;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0) {
            whole->in[i] = clv_op_harness_view(&graph->values[op->in[i]].type);
            CLV_TRY(take_operand(&whole->in[i], o, i, offset, err));
        }
    for (int r = 0; r < op->n_out; r++) {
        whole->out[r] = clv_op_harness_view(&graph->values[op->out[r]].type);
        CLV_TRY(clv_op_harness_alloc(&whole->out[r], NULL, err));
    }
    CLV_TRY(clv_op_harness_run(whole, "whole", err));
    return check_numbers(whole, err);
}

static void rule_of(clv_rule *rule, const clv_graph *graph, const clv_op *op)
{
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in; i++)
        in[i] = clv_graph_type(graph, clv_op_operand(op, i));
    for (int r = 0; r < op->n_out; r++)
        out[r] = clv_graph_type(graph, clv_op_result(op, r));
    memset(rule, 0, sizeof *rule);
    op->def->rule(op, in, out, rule);
}

/* ---- repeatability ---- */

static clv_status compare_bits(const clv_op_harness *whole, const clv_op_harness *again, const char *how,
                               clv_error *err)
{
    for (int o = 0; o < whole->op->n_out; o++) {
        const clv_view *before = &whole->out[o], *now = &again->out[o];
        size_t size = clv_dtype_size(before->dtype);
        char index[CLV_OP_HARNESS_INDEX_TEXT];
        for (int64_t i = 0; i < clv_view_elems(before); i++)
            if (memcmp((const char *)before->data + (size_t)i * size, (const char *)now->data + (size_t)i * size,
                       size) != 0)
                return clv_fail_at(err, CLV_ECHECK, -1, whole->op->name,
                                   "%s: element %s of result %d is %.9g; it was %.9g; valid: the same bits, of the "
                                   "same operands",
                                   how, clv_op_harness_print_index(index, before, i), o,
                                   clv_dtype_load(now->dtype, now->data, i),
                                   clv_dtype_load(before->dtype, before->data, i));
    }
    return CLV_OK;
}

static clv_status run_again(const clv_op_harness *whole, int threads, const char *how, clv_error *err)
{
    CLV_CLEANUP(clv_op_harness_free_all) clv_op_harness again = *whole;
    CLV_TRY(clv_op_harness_alloc_all(&again, whole, err));
    CLV_TRY(clv_op_harness_run_poisoned(&again, threads, how, err));
    return compare_bits(whole, &again, how, err);
}

/* Reruns the kernel with other bytes in all memory but its operands, then with three threads: all bits must be equal.
 * */
static clv_status check_repeatability(const clv_op_harness *whole, clv_error *err)
{
    CLV_TRY(run_again(whole, 1, "again, where memory around its operands holds other bytes", err));
    return run_again(whole, 3, "again, by three threads", err);
}

/* ---- maxima ---- */

static bool has_maxima(const clv_rule *rule)
{
    bool any = false;
    for (int f = 0; f < rule->n_factors; f++)
        any = any || (rule->factor[f].reduction == CLV_REDUCTION_MAX && !rule->factor[f].whole);
    return any;
}

/* Checks the rule again with negative numbers: a shard without elements whose maximum is 0 is then detected. Skipped if
 * the op gives NaN there. */
static clv_status try_below_zero(const clv_sharding_rule_trials *trials, const clv_graph *graph,
                                 const clv_op_check_options *o, clv_error *err)
{
    const clv_op op = *trials->whole->op;
    clv_op_harness whole = {.op = &op};
    clv_sharding_rule_trials below = *trials;
    below.whole = &whole;
    clv_status status = run_whole(&whole, graph, o, -2, err);
    bool is_number = status == CLV_OK;
    if (status == CLV_OK)
        status = clv_sharding_rule_check(&below, err);
    clv_op_harness_free_all(&whole);
    return is_number || status != CLV_ENONFINITE ? status : CLV_OK;
}

/* ---- gradients ---- */

/* Builds the gradient in a graph of the op alone. Failures of the op's gradient() get a prefix that says so. */
static clv_status try_gradient(clv_graph *graph, const clv_gradient_check_options *gradient, int *compared,
                               clv_error *err)
{
    clv_error why = {0};
    const char *name = graph->ops[0].name;
    clv_status status = clv_gradient_check(graph, 0, gradient, compared, &why);
    if (status == CLV_OK)
        return CLV_OK;
    bool has_prefix = gradient->of[0] == '\0' || strstr(why.message, gradient->of);
    return clv_fail_at(err, status, -1, why.op[0] ? why.op : name, "%s%s%s%s", has_prefix ? "" : "the gradient",
                       has_prefix ? "" : gradient->of, has_prefix ? "" : ": ", why.message);
}

/* With the cotangent of one result only, as in graphs that do not use the others. */
static clv_status try_gradient_of(int result, const tried *t, const clv_gradient_check_options *all, int *compared,
                                  clv_error *err)
{
    clv_graph *graph;
    clv_gradient_check_options alone = *all;
    char of[32];
    snprintf(of, sizeof of, " of result %d alone", result);
    alone.of = of;
    alone.no_out = ~(1u << result);
    CLV_TRY(graph_new(&graph, t, err));
    clv_status status = try_gradient(graph, &alone, compared, err);
    clv_graph_free(graph);
    return status;
}

static clv_status try_gradients(clv_graph *graph, const tried *t, const clv_op_harness *whole, clv_key key,
                                int *compared, clv_error *err)
{
    const clv_gradient_check_options all = {.operands = whole->in,
                                            .no_in = t->o.no_gradient_in,
                                            .no_out = t->o.no_gradient_out,
                                            .of = "",
                                            .tolerance = t->o.gradient_tolerance,
                                            .key = key};
    int n = 0;
    uint32_t flows = 0;
    for (int r = 0; r < whole->op->n_out; r++)
        if (clv_dtype_is_float(whole->out[r].dtype) && !(all.no_out >> r & 1)) {
            flows |= 1u << r;
            n++;
        }
    CLV_TRY(try_gradient(graph, &all, compared, err));
    for (int r = 0; n > 1 && r < whole->op->n_out; r++)
        if (flows >> r & 1)
            CLV_TRY(try_gradient_of(r, t, &all, compared, err));
    return CLV_OK;
}

/* ---- all checks ---- */

/* Uses a copy of the op, as building its gradient moves the graph's. */
static clv_status try_op(clv_graph *graph, const tried *t, clv_op_check_report *done, clv_error *err)
{
    enum { OF_RULE, OF_GRADIENT };
    const clv_op op = graph->ops[0];
    const clv_key key = clv_key_split(clv_key_seed(t->o.seed), 1);
    clv_op_harness whole = {.op = &op};
    clv_rule rule;
    rule_of(&rule, graph, &op);
    clv_sharding_rule_trials trials = {
        .whole = &whole, .rule = &rule, .key = clv_key_fold_in(key, OF_RULE), .tolerance = t->o.tolerance};
    clv_status status = run_whole(&whole, graph, &t->o, 0, err);
    if (status == CLV_OK)
        status = check_repeatability(&whole, err);
    if (status == CLV_OK)
        status = clv_sharding_rule_check(&trials, err);
    if (status == CLV_OK && has_maxima(&rule))
        status = try_below_zero(&trials, graph, &t->o, err);
    if (status == CLV_OK)
        status = try_gradients(graph, t, &whole, clv_key_fold_in(key, OF_GRADIENT), &done->gradients, err);
    clv_op_harness_free_all(&whole);
    done->cuts = trials.cuts;
    done->partials = trials.partials;
    done->in_place = trials.in_place;
    return status;
}

clv_status clv_op_check(const clv_op_def *def, const void *attrs, const clv_type *in, int n_in,
                        const clv_op_check_options *options, clv_op_check_report *out, clv_error *err)
{
    tried t = {.def = def, .attrs = attrs, .in = in, .n_in = n_in};
    clv_op_check_report done = {0};
    clv_graph *graph;
    CLV_TRY(clv_options_copy_in(&t.o, sizeof t.o, sizeof t.o, options, __func__, err));
    CLV_TRY(check_given(def, in, n_in, &t.o, err));
    CLV_TRY(graph_new(&graph, &t, err));
    clv_status status = try_op(graph, &t, &done, err);
    clv_graph_free(graph);
    if (status != CLV_OK || !out)
        return status;
    return clv_struct_copy_out(out, sizeof done, sizeof done, &done, __func__, err);
}
