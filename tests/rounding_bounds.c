/* rounding_bounds.c - rounding, put off: what other rounding may do to a result is seen by doing it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_call.h"

/* ---- values ---- */

/* The lowest bits of a float by a hash of the others: the same value is always put off alike, and no further when it is
 * put off again (when an op passes it on). */
void graph_nudge_value(graph_eval *eval, int value)
{
    static const struct {
        uint64_t low, exponent;
    } layout[CLV_DTYPE_COUNT] = {[CLV_F64] = {3, 0x7ff0000000000000u},
                                 [CLV_F32] = {3, 0x7f800000},
                                 [CLV_BF16] = {1, 0x7f80},
                                 [CLV_F16] = {1, 0x7c00}};
    const clv_type *type = &eval->graph->values[value].type;
    size_t size = clv_dtype_size(type->dtype);
    uint64_t low = layout[type->dtype].low, exponent = layout[type->dtype].exponent;
    int64_t elems = eval->nudge ? clv_type_elems(type) : 0;
    for (int64_t i = 0; exponent && i < elems; i++) {
        char *at = (char *)eval->data[value] + (size_t)i * size;
        uint64_t bits = 0;
        memcpy(&bits, at, size);
        uint64_t hash = eval->nudge + (bits & ~low);
        bool is_inf = bits << (64 - 8 * size + 1) == exponent << (64 - 8 * size + 1);
        if (is_inf && eval->inf_is_nan)
            bits = exponent | exponent >> 1;
        else if ((bits & exponent) == exponent || bits << (64 - 8 * size + 1) == 0)
            continue;
        else
            bits = (bits & ~low) | (graph_next(&hash) & low);
        memcpy(at, &bits, size);
    }
}

void graph_eval_nudge(graph_eval *eval, uint64_t seed, bool inf_is_nan)
{
    eval->nudge = seed;
    eval->inf_is_nan = inf_is_nan;
    for (int v = 1; v < eval->graph->n_values; v++)
        if (eval->graph->values[v].source != CLV_FROM_OP)
            graph_nudge_value(eval, v);
}

/* ---- sums ---- */

/* Ops that take dimensions whole, or "reduce" them, and yet add no floats up: what they pass on stays what it was. (Of
 * floats random graphs fold minima and maxima alone.) */
static bool only_moves(const clv_op *op)
{
    static const char *const names[] = {"reshape", "slice",         "pad",
                                        "concat",  "embedding",     "cache_update",
                                        "fold",    "dynamic_slice", "dynamic_update_slice",
                                        "gather"};
    bool any = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        any = any || strcmp(op->def->name, names[i]) == 0;
    return any;
}

/* Elements of operand i that one element of a result may be a sum over: the extents of all factors but those that every
 * result holds, and of dimensions without factors. */
static double addends_of(const graph_eval *eval, const clv_op *op, const clv_rule *rule, int i)
{
    const clv_value_info *values = eval->graph->values;
    const clv_type *in = &values[op->in[i]].type;
    double n = (double)clv_type_elems(in);
    for (int f = 0; f < rule->n_factors && n > 0; f++) {
        bool kept = graph_holds(rule->in[i], in->rank, f);
        for (int o = 0; o < op->n_out; o++)
            kept = kept && graph_holds(rule->out[o], values[op->out[o]].type.rank, f);
        n /= kept ? (double)rule->factor[f].size : 1;
    }
    return n;
}

/* How many addends the op's sums have, at most; 1: it makes none. Maxima are exact. */
static double addends(const graph_eval *eval, const clv_op *op)
{
    double most = 1;
    if (clv_op_constraint_of(op) || only_moves(op))
        return 1;
    clv_rule rule = graph_rule(eval, op);
    for (int f = 0; f < rule.n_factors; f++)
        if (rule.factor[f].reduction == CLV_REDUCTION_MAX)
            return 1;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            most = fmax(most, addends_of(eval, op, &rule, i));
    return most;
}

/* Puts each of a sum's n addends off, at random, so that the sum comes to what it may by other rounding.
 *
 * Each of the n additions rounds a partial sum, whatever the order, by at most u |partial sum| <= u sum|x|. So large
 * are n errors of n u |x|, one an addend: n (u sum|x|)^2 <= sum (n u x)^2 (Cauchy and Schwarz). Neither comes to more
 * than n u sum|x|, the bound for every order (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Nothing of
 * this asks what the sum comes to: it holds where the sum cancels, and within an op that shows no result of it (the
 * rows of attention's and softmax's gradients, where dP - sum P dP is 0 when there is one key).
 *
 * u is that of the accumulator: f32, or f64 where the result is. Addends that differ by less than n u |x| are put off
 * alike, for they round alike: their errors add up (672 of them, to 50 units in the last place of the sum).
 * Addends to a narrow result may be partial on ranks, each rounded to its dtype once. That comes to u sum|x|, of the
 * narrow u, at most; so do errors of sqrt(n) u |x|: (u sum|x|)^2 <= sum (sqrt(n) u x)^2. */
static void put_off(clv_view *view, double n, clv_dtype result, uint64_t seed)
{
    static const double narrow[CLV_DTYPE_COUNT] = {[CLV_F16] = 0x1p-11, [CLV_BF16] = 0x1p-8};
    double wide = n * (result == CLV_F64 ? 0x1p-53 : 0x1p-24), unit = wide + sqrt(n) * narrow[result];
    uint64_t alike = ((uint64_t)1 << (53 + ilogb(wide))) - 1;
    int64_t elems = clv_view_elems(view);
    for (int64_t e = 0; e < elems; e++) {
        double x = clv_dtype_load(view->dtype, view->data, e);
        uint64_t bits;
        memcpy(&bits, &x, sizeof bits);
        uint64_t hash = seed ^ (bits & ~alike);
        clv_dtype_store(view->dtype, view->data, e, x + x * unit * graph_uniform(&hash));
    }
}

static void copy(clv_view *view, void **copy)
{
    size_t bytes = (size_t)clv_view_elems(view) * clv_dtype_size(view->dtype);
    view->data = *copy = memcpy(graph_take(bytes), view->data, bytes);
}

/* ---- one addend too few, or too many ---- */

void graph_eval_spoil(graph_eval *eval, uint64_t seed, double times)
{
    int sums = 0;
    eval->spoilt = 0;
    eval->spoilt_times = times;
    for (int o = 0; o < eval->graph->n_ops; o++)
        if (addends(eval, &eval->graph->ops[o]) > 1 && graph_next(&seed) % (uint64_t)++sums == 0)
            eval->spoilt = 1 + o;
    eval->spoilt_seed = seed;
}

static void spoil(const graph_eval *eval, op_call *call, void *copies[CLV_MAX_IN])
{
    uint64_t random = eval->spoilt_seed;
    int i = (int)(graph_next(&random) % (uint64_t)call->op->n_in);
    clv_view *in = &call->in[i];
    int64_t elems = call->op->in[i] > 0 && clv_dtype_is_float(in->dtype) ? clv_view_elems(in) : 0;
    if (elems == 0)
        return;
    copy(in, &copies[i]);
    int64_t e = (int64_t)(graph_next(&random) % (uint64_t)elems);
    clv_dtype_store(in->dtype, in->data, e, clv_dtype_load(in->dtype, in->data, e) * eval->spoilt_times);
}

/* ---- both ---- */

/* Equal values of two operands are not put off alike: what they were summed up to was not summed alike. */
void graph_nudge_operands(const graph_eval *eval, op_call *call, void *copies[CLV_MAX_IN])
{
    double n = eval->nudge ? addends(eval, call->op) : 1;
    if (eval->spoilt == 1 + call->op->id)
        spoil(eval, call, copies);
    for (int i = 0; n > 1 && i < call->op->n_in; i++) {
        clv_view *in = &call->in[i];
        if (call->op->in[i] == 0 || !clv_dtype_is_float(in->dtype))
            continue;
        uint64_t seed = eval->nudge + ((uint64_t)call->op->id << 8) + (uint64_t)i;
        copy(in, &copies[i]);
        put_off(in, n, call->out[0].dtype, graph_next(&seed));
    }
}
