/* pipeline.h - computes pipeline schedules: layers of each stage, microbatches whose activations a stage keeps, the
 * bubble. */
#ifndef CLEAVE_MODELS_PLAN_AXES_PIPELINE_H
#define CLEAVE_MODELS_PLAN_AXES_PIPELINE_H

#include "cleave/plan_estimate.h"

typedef struct clv_pipeline {
    clv_plan_schedule schedule;
    int64_t stages, virtual_stages, microbatches, layers;
} clv_pipeline;

/* Layers of a stage, from 0: equally many in each virtual stage and, of what remains, one more in some of them: last in
 * the first and the last one, which have the embedding and the head. */
int64_t clv_pipeline_layers(const clv_pipeline *pipeline, int64_t stage);

/* Microbatches whose activations of all its layers a stage keeps at once, at most: clv_pipeline_most_held, before the
 * stage begins a backward pass, of v runs a v-th each. */
double clv_pipeline_in_flight(const clv_pipeline *pipeline, int64_t stage);
/* The same once it has begun a backward pass: with those whose gradients of weights wait. */
double clv_pipeline_begun(const clv_pipeline *pipeline, int64_t stage);

/* Time of a stage's microbatch: forward, backward, and of the backward pass the gradients of weights alone. */
typedef struct clv_stage_time {
    double forward, backward, weights;
} clv_stage_time;

/* Seconds that the slowest stage waits, of a step: it starts after the stages before it, and ends before they do.
 * Each other stage adds, with t = forward + backward of a run of its layers, of which it has v:
 *   gpipe, 1f1b  t
 *   interleaved  t, of v > 1 (Narayanan et al. 2021, arXiv:2104.04473)
 *   zero-bubble  t - 2 weights (ZB-H1; Qi et al. 2023, arXiv:2401.10241: 1f1b's less what fills it) */
double clv_pipeline_bubble(const clv_pipeline *pipeline, const clv_stage_time *stage);

#endif
