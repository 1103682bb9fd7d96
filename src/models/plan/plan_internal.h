/* plan_internal.h - parsing and compiling of clv_plan_options, shared by the files of models/plan. Private to
 * src/models.
 */
#pragma once

#include "cleave/plan.h"
#include "partition/reshard/reshard_planner.h"

/* clv_options_copy_in, for the options of a plan. */
clv_status clv_plan_parse_options(clv_plan_options *out, const clv_plan_options *given, const char *call,
                                  clv_error *err);

/* clv_plan_compile of a model with only its first `layers` layers; 0: all. reshards: as in clv_compile_with_plans. */
clv_status clv_plan_compile_layers(clv_program **out, const clv_plan_options *options, int64_t layers,
                                   clv_reshard_cache *reshards, clv_error *err);
