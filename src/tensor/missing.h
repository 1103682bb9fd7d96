/* missing.h - what ranks lack, for planners, which ask very often: of layouts that clv_layout_check accepts, of one
 * number of dimensions. */
#ifndef CLEAVE_TENSOR_MISSING_H
#define CLEAVE_TENSOR_MISSING_H

#include "cleave/layout.h"

/* clv_layout_missing_elems, unchecked. */
int64_t clv_missing_elems(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh, const int64_t *shape);

/* The same, and how many steps its search took: the measure of its time. */
int64_t clv_missing_counted(int64_t *steps, const clv_layout *to, const clv_layout *from, const clv_mesh *mesh,
                            const int64_t *shape);

/* The same where all blocks of a dimension are equal under each layout; -1: they are not, or cuts of an axis cross. */
int64_t clv_missing_elems_even(const clv_layout *to, const clv_layout *from, const int64_t *shape);

#endif
