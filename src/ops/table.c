/* table.c - every op, one row a definition. */
#include <string.h>

#include "ops/ops.h"

const clv_op_def *const clv_op_table[] = {
    &clv_op_constraint,
    &clv_op_cotangent_constraint,
    &clv_op_dot_general,
    &clv_op_reduce,
    &clv_op_broadcast,
    &clv_op_equal,
    &clv_op_reshape,
    &clv_op_transpose,
    &clv_op_slice,
    &clv_op_pad,
    &clv_op_concat,
    NULL,
};

const clv_op_def *clv_op_find(const char *name)
{
    for (int i = 0; clv_op_table[i]; i++)
        if (strcmp(clv_op_table[i]->name, name) == 0)
            return clv_op_table[i];
    return NULL;
}
