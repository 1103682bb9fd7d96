/* estimate.h - clv_plan_estimate_step in two parts, for searches: what layers and the head cost is found once, and
 * priced with any schedule.
 */
#ifndef CLEAVE_MODELS_PLAN_AXES_ESTIMATE_H
#define CLEAVE_MODELS_PLAN_AXES_ESTIMATE_H

#include "cleave/plan_estimate.h"
#include "models/plan/axes/context.h"
#include "models/plan/axes/moe_config.h"
#include "models/plan/plan_price.h"

/* Whether clv_plan_compile makes the step of a model of so many layers on the mesh (moe of no family: a dense one):
 * then clv_plan_estimate_step prices that program. Stages, context and experts of other software are not ours. */
bool clv_mesh_of_model_runs(const clv_mesh *mesh, const clv_moe_config *moe, int64_t layers,
                            const clv_machine *machine);

/* A model's training step on the ranks of a stage; immutable. */
typedef struct clv_estimate clv_estimate;

/* Whatever the mesh's axes. The schedule of the options is not read. Free with clv_estimate_free.
 * @return as clv_plan_estimate_step */
clv_status clv_estimate_new(clv_estimate **out, const clv_plan_estimate_options *options, clv_error *err);
void clv_estimate_free(clv_estimate *estimate);

/* The step by a schedule; sizes in *out are set. virtual_stages 0: 1.
 * @return CLV_EINVAL as clv_plan_estimate_step */
clv_status clv_estimate_price(clv_plan_estimate *out, const clv_estimate *estimate, clv_plan_schedule schedule,
                              int64_t virtual_stages, clv_error *err);
/* The same figures by the parts of other prices, all communication exposed. */
void clv_estimate_parts(clv_price *out, const clv_estimate *estimate, const clv_plan_estimate *priced);
/* What a microbatch takes of the ranks of a stage: no update, no bubble. Seconds, and bytes of a rank. */
typedef struct clv_estimate_micro {
    double layer, head, rest;       /* of a layer, of the head, of what each stage has besides */
    double layer_fixed, head_fixed; /* of these: all but the backward pass's half that ZB-H1 puts off, twice */
    double message;                 /* bytes to the next stage */
    double kept;                    /* bytes of activations that a layer keeps */
    double weights, gradients;      /* bytes of a layer's */
    clv_context_layer attention;    /* of a layer */
} clv_estimate_micro;

clv_estimate_micro clv_estimate_microbatch(const clv_estimate *estimate);

/* The link of messages along an axis of the mesh. */
clv_machine_link clv_estimate_link(const clv_cost_model *model, const char *axis);

#endif
