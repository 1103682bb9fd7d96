/* visualize_sharding.h - draws a tensor's blocks and the ranks that hold each (as
 * jax.debug.visualize_array_sharding). */
#pragma once

#include "cleave/program.h"

/* Draws the parameter or input of this name (or whose name with ".weight" it is) on stdout: a cell a block, with the
 * ranks that hold it; coloured by the first of them on a terminal. CLV_ENOTFOUND names some that exist. */
clv_status clv_visualize_sharding(const clv_program *program, const char *name, clv_error *err);
