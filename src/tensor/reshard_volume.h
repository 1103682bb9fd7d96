/* reshard_volume.h - reshard volume: the most elements any rank must receive to go from one layout to another. */
#pragma once

#include "cleave/layout.h"

/* clv_layout_max_received_elems without checks of its arguments. */
int64_t clv_max_received_elems(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh,
                               const int64_t *shape);

/* The same in closed form, where all blocks of each dimension are equal under each layout and sub-axes nest; else -1.
 * */
int64_t clv_max_received_elems_even(const clv_layout *to, const clv_layout *from, const int64_t *shape);
