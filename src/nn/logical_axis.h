/* logical_axis.h - logical axis names (batch, heads, ...): comparison, built-in names, adding a rule by mesh axes. */
#ifndef CLEAVE_NN_LOGICAL_AXIS_H
#define CLEAVE_NN_LOGICAL_AXIS_H

#include <stdbool.h>
#include <string.h>

#include "cleave/rules.h"

/* Two unnamed ones are no one axis. */
static inline bool clv_logical_axis_equal(clv_logical_axis a, clv_logical_axis b)
{
    return a && b && strcmp(a, b) == 0;
}

/* Whether the name is of the table in cleave/rules.h. */
bool clv_logical_axis_is_builtin(clv_logical_axis name);

/* Appends a rule for these axes of a mesh. CLV_EINVAL, CLV_ELIMIT, CLV_EUNSUPPORTED. */
clv_status clv_axis_rules_append(clv_axis_rules *rules, clv_logical_axis name, const int *axis, int n, clv_error *err);

#endif
