/* axis_division.h - divides mesh axes into sub-axes of which all sub-axes of some layouts are made. */
#pragma once

#include "cleave/layout.h"

/* Where an axis is divided: values of `pre` from 1 to the axis's size, each of which divides the next. */
typedef struct clv_axis_division {
    int n;
    int64_t at[CLV_MAX_SUBAXES + 2];
} clv_axis_division;

/* Every axis as one piece; divisions: [mesh->n_axes]. */
void clv_axis_divisions_init(clv_axis_division *divisions, const clv_mesh *mesh);
/* Divides an axis at `at`; false, without a change, if that does not nest in the other divisions. */
bool clv_axis_division_add(clv_axis_division *division, int64_t at);
/* Divides the axes where sub-axes of the layout begin or end; false if some of these do not nest. */
bool clv_axis_divisions_add_layout(clv_axis_division *divisions, const clv_layout *layout);

/* Sub-axis i < n - 1 of the division of an axis. */
static inline clv_subaxis clv_axis_division_subaxis(const clv_axis_division *division, int axis, int i)
{
    return (clv_subaxis){axis, (int32_t)division->at[i], (int32_t)(division->at[i + 1] / division->at[i])};
}
