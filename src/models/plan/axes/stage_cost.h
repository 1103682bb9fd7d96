/* stage_cost.h - what a layer, and what the head, add to the step of a pipeline stage: seconds by part, and memory.
 *
 * From programs of two and three layers and two and three microbatches, with a vocabulary of a few tokens and with the
 * whole one: layers are identical, and so are microbatches, so that all figures are affine in the number of both.
 */
#ifndef CLEAVE_MODELS_PLAN_AXES_STAGE_COST_H
#define CLEAVE_MODELS_PLAN_AXES_STAGE_COST_H

#include "cleave/program.h"
#include "models/plan/plan_internal.h"

/* Figures of a stage, all of them linear. Seconds and counts, then bytes of memory. */
typedef enum clv_stage_figure {
    CLV_FIGURE_SECONDS,
    CLV_FIGURE_COMMUNICATION, /* of them: collectives, or waiting for them */
    CLV_FIGURE_OVERLAPPED,
    CLV_FIGURE_FORWARD,           /* of them: the forward pass */
    CLV_FIGURE_RECOMPUTED,        /* ops that the backward pass repeats */
    CLV_FIGURE_ELEMENTWISE,       /* ops that are no products */
    CLV_FIGURE_ATTENTION,         /* attention alone, without its projections */
    CLV_FIGURE_ATTENTION_FORWARD, /* of it: the forward pass */
    CLV_FIGURE_FLOPS,
    CLV_FIGURE_MODEL_FLOPS,     /* of all ranks of the stage, without recomputation */
    CLV_FIGURE_ATTENTION_FLOPS, /* of these: attention */
    CLV_FIGURE_OPS,
    CLV_FIGURE_EXPOSED = CLV_FIGURE_OPS + CLV_PART_COUNT,
    CLV_FIGURE_HIDDEN = CLV_FIGURE_EXPOSED + CLV_PURPOSE_COUNT,
    CLV_FIGURE_BYTES = CLV_FIGURE_HIDDEN + CLV_PURPOSE_COUNT,
    CLV_FIGURE_COLLECTIVES = CLV_FIGURE_BYTES + CLV_PURPOSE_COUNT,
    CLV_FIGURE_PARAMETERS = CLV_FIGURE_COLLECTIVES + CLV_PURPOSE_COUNT,
    CLV_FIGURE_OPTIMIZER,
    CLV_FIGURE_GRADIENTS,
    CLV_FIGURE_ACTIVATIONS, /* of a microbatch */
    CLV_FIGURE_GATHERED,    /* by collectives for the backward pass */
    CLV_FIGURE_PUT_OFF,     /* of a microbatch: what gradients of weights need, if they are made later */
    CLV_FIGURE_REGION,      /* all but state, these three included */
    CLV_FIGURE_LOGITS,      /* that the machine's software holds beside the program */
    CLV_FIGURE_COUNT
} clv_stage_figure;

typedef struct clv_figures {
    double at[CLV_FIGURE_COUNT];
} clv_figures;

/* x a + y b */
clv_figures clv_figures_combine(const clv_figures *a, double x, const clv_figures *b, double y);

/* Those of a program: all in one step. */
clv_status clv_figures_measure(clv_figures *out, const clv_program *program, const clv_machine *machine,
                               clv_error *err);

/* Each in a microbatch, and in a step beside its microbatches (update, reduction of gradients). Memory is in `_step`.
 */
typedef struct clv_stage_cost {
    clv_figures layer_micro, layer_step;
    clv_figures rest_micro, rest_step; /* what a stage without layers, embedding and head has */
    clv_figures head_micro, head_step; /* embedding, head and loss */
} clv_stage_cost;

/* Of a model's training step; `accumulate` microbatches, at least 1. */
clv_status clv_stage_cost_compute(clv_stage_cost *out, const clv_plan_options *options, clv_error *err);

#endif
