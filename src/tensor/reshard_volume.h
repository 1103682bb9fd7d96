/* reshard_volume.h - reshard volume: the most elements any rank must receive to go from one layout to another. */
#ifndef CLEAVE_TENSOR_RESHARD_VOLUME_H
#define CLEAVE_TENSOR_RESHARD_VOLUME_H

#include "cleave/layout.h"

/* clv_layout_max_received_elems, unchecked. */
int64_t clv_max_received_elems(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh,
                               const int64_t *shape);

/* The same, and how many steps its search took: the measure of its time. */
int64_t clv_max_received_elems_counted(int64_t *steps, const clv_layout *to, const clv_layout *from,
                                       const clv_mesh *mesh, const int64_t *shape);

/* The same where all blocks of a dimension are equal under each layout; -1: they are not, or cuts of an axis cross. */
int64_t clv_max_received_elems_even(const clv_layout *to, const clv_layout *from, const int64_t *shape);

#endif
