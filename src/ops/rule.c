/* rule.c - building sharding rules. */
#include <assert.h>

#include "graph/op.h"

int clv_rule_add(clv_rule *rule, int64_t size, clv_reduction reduction)
{
    assert(rule->n_factors < CLV_MAX_FACTORS);
    rule->factor[rule->n_factors] = (clv_factor){.size = size, .reduction = reduction, .spill = -1};
    return rule->n_factors++;
}

static void append(clv_dim_factors *dim, int factor)
{
    assert(dim->n < (int)(sizeof dim->factor));
    dim->factor[dim->n++] = (int8_t)factor;
}

void clv_rule_in(clv_rule *rule, int i, int d, int factor)
{
    append(&rule->in[i][d], factor);
}

void clv_rule_out(clv_rule *rule, int i, int d, int factor)
{
    append(&rule->out[i][d], factor);
}

void clv_rule_elementwise(clv_rule *rule, const clv_op *op, const clv_type *in, const clv_type *out)
{
    for (int d = 0; d < out[0].rank; d++) {
        int factor = clv_rule_add(rule, out[0].shape[d], CLV_REDUCE_NONE);
        for (int o = 0; o < op->n_out; o++)
            clv_rule_out(rule, o, d, factor);
        for (int i = 0; i < op->n_in; i++) {
            int at = d - (out[0].rank - in[i].rank);
            if (op->in[i] > 0 && at >= 0 && in[i].shape[at] == out[0].shape[d])
                clv_rule_in(rule, i, at, factor);
        }
    }
}
