/* table.c - every op, one row a definition. */
#include <string.h>

#include "ops/ops.h"

const clv_op_def *const clv_op_table[] = {
    &clv_op_constraint,
    &clv_op_cotangent_constraint,
    &clv_op_dot_general,
    &clv_op_map,
    &clv_op_map_gradient,
    &clv_op_combine,
    &clv_op_choice_gradient,
    &clv_op_where,
    &clv_op_cast,
    &clv_op_fill,
    &clv_op_iota,
    &clv_op_bias_gelu,
    &clv_op_bias_gelu_gradient,
    &clv_op_gated,
    &clv_op_gated_gradient,
    &clv_op_reduce,
    &clv_op_broadcast,
    &clv_op_equal,
    &clv_op_reshape,
    &clv_op_transpose,
    &clv_op_slice,
    &clv_op_pad,
    &clv_op_concat,
    &clv_op_moments,
    &clv_op_normalize,
    &clv_op_normalize_sums,
    &clv_op_normalize_dx,
    &clv_op_normalize_dgain,
    &clv_op_normalize_dweights,
    &clv_op_embedding,
    &clv_op_embedding_gradient,
    &clv_op_attention,
    &clv_op_attention_gradient,
    &clv_op_rope,
    &clv_op_cache_update,
    &clv_op_softmax,
    &clv_op_softmax_gradient,
    &clv_op_xent_max,
    &clv_op_xent_sums,
    &clv_op_xent_loss,
    &clv_op_xent_loss_gradient,
    &clv_op_xent_gradient,
    &clv_op_count_labels,
    &clv_op_dropout,
    &clv_op_adamw,
    NULL,
};

const clv_op_def *clv_op_find(const char *name)
{
    for (int i = 0; clv_op_table[i]; i++)
        if (strcmp(clv_op_table[i]->name, name) == 0)
            return clv_op_table[i];
    return NULL;
}
