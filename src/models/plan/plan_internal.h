/* plan_internal.h - parsing and compiling of clv_plan_options, shared by the files of models/plan. Private to
 * src/models.
 */
#pragma once

#include "cleave/plan.h"
#include "models/model.h"
#include "partition/reshard/reshard_planner.h"

/* clv_options_copy_in, for the options of a plan. */
clv_status clv_plan_parse_options(clv_plan_options *out, const clv_plan_options *given, const char *call,
                                  clv_error *err);

/* A part of a model; zeros: all of it. */
typedef struct clv_plan_part {
    int64_t layers; /* its first ones */
    int64_t vocab;  /* rows of the embedding and columns of the head */
} clv_plan_part;

/* clv_model_fit_stages of the model that is planned, whose mesh and rules are set. */
clv_status clv_plan_fit_stages(clv_axis_rules *out, const clv_plan_options *options, clv_try_stages *attempt, void *arg,
                               clv_error *err);
/* clv_plan_compile of a part of the model, whose program is priced and freed: as clv_compile_to_price. */
clv_status clv_plan_compile_to_price(clv_program **out, const clv_plan_options *options, clv_plan_part part,
                                     clv_reshard_cache *reshards, clv_error *err);
