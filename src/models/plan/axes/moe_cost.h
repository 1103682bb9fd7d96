/* moe_cost.h - what a layer with experts, and the head, add to the step of a pipeline stage: as stage_cost.h, of a
 * model that no program of clv_plan_compile has. Ops and activations are those of moe_layer.h's programs of one rank;
 * state and what goes between ranks are counted.
 */
#ifndef CLEAVE_MODELS_PLAN_AXES_MOE_COST_H
#define CLEAVE_MODELS_PLAN_AXES_MOE_COST_H

#include "models/plan/axes/mesh_parts.h"
#include "models/plan/axes/moe_config.h"
#include "models/plan/axes/stage_cost.h"

typedef struct clv_moe_cost {
    clv_stage_cost stage;   /* of the average layer */
    double exposed, hidden; /* seconds of a layer's all-to-alls in a microbatch */
} clv_moe_cost;

/* options: of a stage, as for clv_stage_cost_compute. */
clv_status clv_moe_cost_compute(clv_moe_cost *out, const clv_moe_config *config, const clv_mesh_parts *mesh,
                                const clv_plan_options *options, clv_error *err);

#endif
