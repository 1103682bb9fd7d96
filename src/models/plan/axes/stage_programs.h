/* stage_programs.h - prices a training step by the program that runs it, or by two with fewer microbatches.
 *
 * The whole program is compiled where that takes about a second. Else seconds, and the bytes of each stage, are
 * extrapolated in the number of microbatches, from two more than there are stages on, of zero-bubble twice as many:
 * there each adds the same, by every schedule (tests/test_plan_stages.c).
 */
#ifndef CLEAVE_MODELS_PLAN_AXES_STAGE_PROGRAMS_H
#define CLEAVE_MODELS_PLAN_AXES_STAGE_PROGRAMS_H

#include "models/plan/plan_internal.h"

typedef struct clv_program_price {
    clv_prediction predicted;
    clv_prediction_parts parts;
    clv_memory memory; /* of the largest stage; peak is NULL */
    double in_flight;  /* microbatches that it holds at most */
    clv_plan_schedule schedule;
    int runs, layers[CLV_MAX_VIRTUAL_STAGES]; /* of each run of all stages; 0: there are none */
    bool whole;                               /* of the program itself */
} clv_program_price;

/* Whether so many runs of layers on each stage are priced by their program: whole alone, as their microbatches come in
 * groups. */
bool clv_virtual_stages_are_compiled(int64_t virtual_stages, int64_t stages, int64_t microbatches, int64_t layers);
/* Of a model's training step on a mesh that programs run on, of `layers` layers on `stages` stages (1: none).
 * @return errors of clv_plan_compile */
clv_status clv_program_price_compute(clv_program_price *out, const clv_plan_options *options, int64_t stages,
                                     int64_t layers, clv_error *err);

#endif
