/* dimension_names.c - propagates dimension names (batch, heads) through ops, for explanations.
 *
 * In: annotations of values (clv_value_annotation) and rules of ops. Out: dim_names of values and factor_names of the
 * current op. A factor is named after an operand dimension that consists of this factor alone, else by the rule. A
 * result dimension is named after its factor; if it has several, after an operand dimension with the same ones. The
 * dimensions of a gradient are named as in its primal: ops of the backward pass do not have factors for all of them.
 */
#include <string.h>

#include "partition/explain/explain.h"

/* The name of a dimension in the primal of the value, or of the sum that it is a term of. */
static const char *name_in_primal(const clv_partitioner *p, int value, int d)
{
    const clv_value_info *values = p->graph->values;
    int primal = values[p->available[value].outermost_sum].primal;
    bool alike = values[primal].type.rank == values[value].type.rank; /* a term may be broadcast */
    return primal > 0 && alike ? p->available[primal].dim_names[d] : NULL;
}

static void name_factors_as_primals(clv_partitioner *p, const clv_op *op, const clv_rule *rule)
{
    for (int o = 0; o < op->n_out; o++)
        for (int d = 0; d < CLV_MAX_RANK; d++) {
            const clv_dim_factors *dim = &rule->out[o][d];
            if (dim->n == 1 && !p->factor_names[dim->factor[0]])
                p->factor_names[dim->factor[0]] = name_in_primal(p, op->out[o], d);
        }
}

void clv_explain_name_factors(clv_partitioner *p, const clv_op *op, const clv_rule *rule)
{
    for (int f = 0; f < CLV_MAX_FACTORS; f++)
        p->factor_names[f] = NULL;
    name_factors_as_primals(p, op, rule);
    for (int i = 0; i < op->n_in; i++)
        for (int d = 0; op->in[i] > 0 && d < CLV_MAX_RANK; d++) {
            const clv_dim_factors *dim = &rule->in[i][d];
            if (dim->n == 1 && !p->factor_names[dim->factor[0]])
                p->factor_names[dim->factor[0]] = p->available[op->in[i]].dim_names[d];
        }
    for (int f = 0; f < rule->n_factors; f++)
        if (!p->factor_names[f])
            p->factor_names[f] = rule->factor[f].name;
}

/* The name of an operand's dimension with these factors. */
static const char *name_of_dim(const clv_partitioner *p, const clv_op *op, const clv_rule *rule,
                               const clv_dim_factors *factors)
{
    if (factors->n == 1)
        return p->factor_names[factors->factor[0]];
    for (int i = 0; i < op->n_in; i++)
        for (int d = 0; op->in[i] > 0 && factors->n > 0 && d < CLV_MAX_RANK; d++)
            if (rule->in[i][d].n == factors->n &&
                memcmp(rule->in[i][d].factor, factors->factor, (size_t)factors->n) == 0)
                return p->available[op->in[i]].dim_names[d];
    return NULL;
}

void clv_explain_name_results(clv_partitioner *p, const clv_op *op, const clv_rule *rule)
{
    for (int o = 0; o < op->n_out; o++)
        for (int d = 0; d < p->graph->values[op->out[o]].type.rank; d++) {
            const char *name = name_in_primal(p, op->out[o], d);
            p->available[op->out[o]].dim_names[d] = name ? name : name_of_dim(p, op, rule, &rule->out[o][d]);
        }
}

void clv_explain_name_dims(clv_partitioner *p, int value, int like)
{
    const clv_value_annotation *origin = p->graph->values[value].annotation;
    for (int d = 0; d < p->graph->values[value].type.rank; d++) {
        const char *name = origin && origin->dim[d] ? origin->dim[d] : name_in_primal(p, value, d);
        p->available[value].dim_names[d] = name ? name : like > 0 ? p->available[like].dim_names[d] : NULL;
    }
}
