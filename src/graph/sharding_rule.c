/* sharding_rule.c - sharding rules of ops (factors, as an einsum's letters): construction and validation. An invalid
 * call has no effect; the first one is recorded.
 */
#include "base/error.h"
#include "graph/graph.h"

#include <string.h>

int clv_rule_add_factor(clv_rule *rule, int64_t size, clv_reduction reduction)
{
    if (!rule)
        return -1;
    if (rule->n_factors == CLV_MAX_FACTORS || size < 0 || (unsigned)reduction > CLV_REDUCTION_MAX) {
        clv_fail(rule->fault, rule->n_factors == CLV_MAX_FACTORS ? CLV_ELIMIT : CLV_EINVAL,
                 "its rule: factor %d of size %lld, reduction %d; valid: at most %d factors, of size 0 or more, "
                 "CLV_REDUCTION_NONE, _SUM or _MAX",
                 rule->n_factors, (long long)size, (int)reduction, CLV_MAX_FACTORS);
        return -1;
    }
    rule->factor[rule->n_factors] = (clv_factor){.size = size, .reduction = reduction, .overflow = -1};
    return rule->n_factors++;
}

static clv_factor *factor_of(clv_rule *rule, int factor)
{
    if (!rule)
        return NULL;
    if (factor >= 0 && factor < rule->n_factors)
        return &rule->factor[factor];
    clv_fail(rule->fault, CLV_EINVAL, "its rule: there is no factor %d; it has %d", factor, rule->n_factors);
    return NULL;
}

/* Appends the factor to dimension d of tensor i of n. */
static void append(clv_rule *rule, clv_dim_factors (*dims)[CLV_MAX_RANK], int n, const char *what, int i, int d,
                   int factor)
{
    if (!factor_of(rule, factor))
        return;
    if (i < 0 || i >= n || d < 0 || d >= CLV_MAX_RANK || dims[i][d].n == CLV_MAX_RANK) {
        clv_fail(rule->fault, CLV_EINVAL, "its rule: dimension %d of %s %d; valid: %ss below %d, of %d dimensions", d,
                 what, i, what, n, CLV_MAX_RANK);
        return;
    }
    dims[i][d].factor[dims[i][d].n++] = (int8_t)factor;
}

void clv_rule_operand_dim(clv_rule *rule, int i, int d, int factor)
{
    append(rule, rule ? rule->in : NULL, CLV_MAX_IN, "operand", i, d, factor);
}

void clv_rule_result_dim(clv_rule *rule, int i, int d, int factor)
{
    append(rule, rule ? rule->out : NULL, CLV_MAX_OUT, "result", i, d, factor);
}

void clv_rule_name_factor(clv_rule *rule, int factor, const char *name)
{
    clv_factor *f = factor_of(rule, factor);
    if (f)
        f->name = name;
}

void clv_rule_forbid_split(clv_rule *rule, int factor)
{
    clv_factor *f = factor_of(rule, factor);
    if (f)
        f->whole = true;
}

void clv_rule_replicate_remainder(clv_rule *rule, int factor, int into)
{
    clv_factor *f = factor_of(rule, factor), *g = factor_of(rule, into);
    if (f && g)
        f->overflow = into;
}

void clv_rule_multilinear(clv_rule *rule, uint32_t operands)
{
    if (rule) {
        rule->linearity = CLV_MULTILINEAR;
        rule->linear = operands;
    }
}

void clv_rule_additive(clv_rule *rule, uint32_t operands)
{
    if (rule) {
        rule->linearity = CLV_ADDITIVE;
        rule->linear = operands;
    }
}

void clv_rule_keeps_partial_max(clv_rule *rule)
{
    if (rule)
        rule->passes_max = true;
}

void clv_op_rule_reduce_all(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    for (int d = 0; d < in[0].rank; d++)
        clv_rule_operand_dim(rule, 0, d, clv_rule_add_factor(rule, in[0].shape[d], CLV_REDUCTION_SUM));
}

void clv_rule_elementwise(clv_rule *rule, const clv_op *op, const clv_type *in, const clv_type *out)
{
    if (!rule || !op || !in || !out)
        return;
    for (int d = 0; d < out[0].rank; d++) {
        int factor = clv_rule_add_factor(rule, out[0].shape[d], CLV_REDUCTION_NONE);
        for (int o = 0; o < op->n_out; o++)
            clv_rule_result_dim(rule, o, d, factor);
        for (int i = 0; i < op->n_in; i++) {
            int at = d - (out[0].rank - in[i].rank);
            if (op->in[i] > 0 && at >= 0 && in[i].shape[at] == out[0].shape[d])
                clv_rule_operand_dim(rule, i, at, factor);
        }
    }
}

/* ---- verifying ---- */

/* Whether the overflow factor of each factor of a dimension, if it is there, comes next. */
static bool overflow_is_next(const clv_rule *rule, const clv_dim_factors *dim)
{
    for (int j = 0; j < dim->n; j++)
        for (int k = 0; k < dim->n; k++)
            if (rule->factor[dim->factor[j]].overflow == dim->factor[k] && k != j + 1)
                return false;
    return true;
}

static clv_status check_dim(const clv_rule *rule, const clv_dim_factors *dim, int64_t size, const char *what, int i,
                            int d, uint32_t *seen, clv_error *err)
{
    int64_t product = 1;
    for (int j = 0; j < dim->n; j++) {
        int f = dim->factor[j];
        if (*seen >> f & 1)
            return clv_fail(err, CLV_EINVAL, "its rule: %s %d holds factor %d twice", what, i, f);
        *seen |= 1u << f;
        if (__builtin_mul_overflow(product, rule->factor[f].size, &product))
            product = -1;
        if (product < 0)
            break;
    }
    if (dim->n > 0 && product != size)
        return clv_fail(err, CLV_ESHAPE, "its rule: dimension %d of %s %d has %lld elements; its factors make %lld%s",
                        d, what, i, (long long)size, (long long)product, product < 0 ? " (too many)" : "");
    if (!overflow_is_next(rule, dim))
        return clv_fail(err, CLV_EINVAL,
                        "its rule: dimension %d of %s %d: a factor must come right after the one whose remainder it "
                        "takes",
                        d, what, i);
    return CLV_OK;
}

/* absent: an optional operand that is not given holds nothing. */
static clv_status check_tensor(const clv_rule *rule, const clv_dim_factors *dims, const clv_type *type, bool absent,
                               const char *what, int i, clv_error *err)
{
    uint32_t seen = 0;
    for (int d = 0; d < CLV_MAX_RANK; d++) {
        if (dims[d].n > 0 && (absent || d >= type->rank))
            return clv_fail(err, CLV_EINVAL, "its rule: %s %d has no dimension %d", what, i, d);
        if (!absent && d < type->rank)
            CLV_TRY(check_dim(rule, &dims[d], type->shape[d], what, i, d, &seen, err));
    }
    return CLV_OK;
}

static clv_status check_factors(const clv_rule *rule, const clv_op *op, clv_error *err)
{
    for (int f = 0; f < rule->n_factors; f++) {
        int into = rule->factor[f].overflow;
        if (into == f || (into >= 0 && rule->factor[into].overflow >= 0))
            return clv_fail(err, CLV_EINVAL, "its rule: the remainder of factor %d goes to %d, which is %s", f, into,
                            into == f ? "itself" : "a factor with a remainder, too");
    }
    for (int i = 0; i < 32; i++)
        if ((rule->linear >> i & 1) && (i >= op->n_in || op->in[i] == 0))
            return clv_fail(err, CLV_EINVAL, "its rule: it is linear in operand %d, which does not exist", i);
    return CLV_OK;
}

clv_status clv_rule_check(const clv_op *op, const clv_type *in, const clv_type *out, clv_error *err)
{
    clv_error fault = {0};
    clv_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.fault = &fault;
    op->def->rule(op, in, out, &rule);
    if (fault.code != CLV_OK)
        return clv_fail(err, fault.code, "%s", fault.message);
    CLV_TRY(check_factors(&rule, op, err));
    for (int i = 0; i < CLV_MAX_IN; i++)
        CLV_TRY(check_tensor(&rule, rule.in[i], i < op->n_in ? &in[i] : NULL, i >= op->n_in || op->in[i] == 0,
                             "operand", i, err));
    for (int o = 0; o < CLV_MAX_OUT; o++)
        CLV_TRY(check_tensor(&rule, rule.out[o], o < op->n_out ? &out[o] : NULL, o >= op->n_out, "result", o, err));
    return CLV_OK;
}
