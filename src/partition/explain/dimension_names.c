/* dimension_names.c - propagates dimension names (batch, heads) through ops, for explanations.
 *
 * A statement may name dimensions (clv_value_annotation). Names pass through ops by their rules: a factor is called as
 * the dimension of an operand that it makes up alone, else as the op itself calls it; a result's dimension as its
 * factor, or as the operand's dimension that has the same factors. A gradient's dimensions are called as those of what
 * it is the gradient of: not all ops have factors for all of them, so that names do not come through every op of the
 * backward pass.
 */
#include <string.h>

#include "partition/explain/explain.h"

/* What a dimension is called in the value that this one, or the sum that it is an addend of, is the gradient of. */
static const char *name_in_primal(const clv_partitioner *p, int value, int d)
{
    const clv_value_info *values = p->graph->values;
    int primal = values[p->available[value].outermost_sum].primal;
    bool alike = values[primal].type.rank == values[value].type.rank; /* an addend may be broadcast */
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

/* The name of an operand's dimension that has these factors. */
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
