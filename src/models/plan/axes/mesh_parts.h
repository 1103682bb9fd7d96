/* mesh_parts.h - splits a mesh into its axes pipe, context and expert, and the mesh that a stage's program is compiled
 * for.
 *
 * Stages are outermost: a stage is a run of consecutive ranks. Ranks over context are like ranks over data to all ops
 * but attention, and become part of the data axis. Ranks over expert are data ranks that share the experts among them.
 */
#ifndef CLEAVE_MODELS_PLAN_AXES_MESH_PARTS_H
#define CLEAVE_MODELS_PLAN_AXES_MESH_PARTS_H

#include <stdbool.h>

#include "cleave/mesh.h"
#include "cleave/status.h"

typedef struct clv_mesh_parts {
    int64_t pipe, data, context, expert, model; /* sizes; 1: not there */
    clv_mesh stage;                             /* data (with context and expert in it) and model, in their order */
} clv_mesh_parts;

/* Whether it has an axis of that name of more than one rank; NULL: no mesh. */
bool clv_mesh_is_split_over(const clv_mesh *mesh, const char *name);
/* The mesh without its axes pipe, context and expert of one rank, which change nothing. */
clv_mesh clv_mesh_without_axes_of_one_rank(const clv_mesh *mesh);

/* Of a model of so many layers. @return CLV_EINVAL for more stages than these; CLV_EAXIS for axes of other names, or in
 * an order that is not planned */
clv_status clv_mesh_parts_split(clv_mesh_parts *out, const clv_mesh *mesh, int64_t layers, clv_error *err);

#endif
