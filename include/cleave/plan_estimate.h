/** @file plan_estimate.h - prices a training step on a mesh with pipeline stages, context or experts.
 *
 * A step that runs is priced by the program that clv_plan_compile makes, or by two of it with fewer microbatches where
 * the whole takes more than a second or two to compile. Others are estimated: long steps by the interleaved schedule;
 * stages, context and experts as other software runs them (clv_machine_open); and what does not run: offloaded layers,
 * and other families with experts. Of these the layers of a stage are priced by programs for the ranks of a stage, and
 * the schedule, the messages between stages and between ranks that share a sequence, and experts beside them.
 *
 * Axes of the mesh where it is estimated, in this order: pipe (stages of consecutive ranks), data, context (the
 * sequence is split), expert (data ranks that share the experts among them), model.
 *
 *   clv_plan_options plan = {.size = sizeof plan, .model = "llama-405b", .mesh = &mesh, .batch = 256, .seq = 8192};
 *   clv_plan_estimate_options how = {.size = sizeof how, .plan = &plan, .rules = "fsdp+megatron-sp"};
 *   clv_plan_estimate estimate = {.size = sizeof estimate};
 *   clv_plan_estimate_step(&estimate, &how, &err);
 *
 * Thread-safe.
 */
#ifndef CLEAVE_PLAN_ESTIMATE_H
#define CLEAVE_PLAN_ESTIMATE_H

#include "cleave/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How ranks that share a sequence exchange what attention needs. */
typedef enum clv_context_exchange {
    CLV_CONTEXT_NONE,       /**< no rank shares one */
    CLV_CONTEXT_RING,       /**< keys and values go round, block by block, beside the attention to the block before */
    CLV_CONTEXT_ALL_GATHER, /**< keys and values are gathered */
    CLV_CONTEXT_ALL_TO_ALL  /**< heads are split instead of the sequence (Ulysses) */
} clv_context_exchange;

/** "none", "ring", "all-gather", "all-to-all"; "unknown" for a value outside the enum. */
CLV_EXPERIMENTAL const char *clv_context_exchange_name(clv_context_exchange exchange);

/** What is priced. Zero-initialised = defaults; set `plan`. */
typedef struct clv_plan_estimate_options {
    size_t size; /**< sizeof the struct, or 0 */
    const clv_plan_options
        *plan;         /**< a model's training step; borrowed. Its `rules` and `sp` must not be set. Of stages
                                       that do not run, `accumulate` 0 is a microbatch of one sequence a data rank, and
                                       gradients are reduced once a step */
    const char *rules; /**< a preset, for the axes data and model; NULL: clv_axis_rules_preset's default */
    clv_plan_schedule schedule;
    int64_t virtual_stages; /**< runs of layers a stage; 0: 1 */
    int64_t offload_layers; /**< layers whose activations are in the host's memory from the forward to the backward
                                 pass: "offload_bytes_per_s" of machine.h. Without stages */
} clv_plan_estimate_options;

/** The price: that of the slowest stage, and the memory of the largest one. */
typedef struct clv_plan_estimate {
    size_t size;               /**< set by the caller: sizeof the struct, or 0 */
    bool can_run;              /**< clv_plan_compile makes its program */
    bool compiled;             /**< the figures are those of this program */
    clv_model_info model;      /**< what is planned; of experts: `ffn` is the width of one, tokens are 0 */
    int64_t active_parameters; /**< that a token passes through: with its experts alone */
    int64_t experts;           /**< of a layer; 0: none */
    int64_t stages;            /**< 1: none */
    int64_t virtual_stages;
    int64_t microbatches;
    clv_plan_schedule schedule;
    clv_context_exchange exchange; /**< the fastest */
    int64_t layers;                /**< of the slowest stage; compiled: 0 */
    int64_t time_stage;            /**< the slowest stage, from 0 */
    double in_flight;              /**< microbatches whose activations the largest stage keeps */
    int64_t memory_stage;          /**< the largest stage, from 0 */
    double bubble;              /**< seconds that the slowest stage waits for others, in `predicted.seconds`; compiled:
                                        with the messages that no op hides */
    double send;                /**< seconds of messages between stages that no op hides, likewise; compiled: 0 */
    double context;             /**< seconds of exchanges along the sequence that no op hides, likewise */
    double expert;              /**< seconds of all-to-alls between experts that no op hides, likewise */
    double offload;             /**< seconds of copies to the host's memory and back that no op hides, likewise */
    clv_prediction predicted;   /**< `communication` has send, context, expert and offload, not the bubble */
    clv_prediction_parts parts; /**< they add up to the seconds less these; `waits` is the bubble */
    clv_memory memory;          /**< of the largest stage; peak is NULL */
    int runs;                   /**< compiled: runs of layers of all stages; 0: no stages */
    int run_layers[CLV_MAX_VIRTUAL_STAGES]; /**< the layers of each */
    bool extrapolated; /**< compiled: from that program with fewer microbatches, as the whole takes long to compile */
} clv_plan_estimate;

/** Whether clv_plan_estimate_step is to be asked what a step costs: the mesh has an axis pipe of more than one rank; or
 *  the model (a config.json, or its folder) is of a family with experts that clv_plan_compile refuses; or it is planned
 *  for other software, and the mesh has such an axis context, or the model has experts, to which that software sends
 *  tokens by all-to-all. Mesh and model may be NULL. */
CLV_EXPERIMENTAL bool clv_plan_needs_estimate(const clv_mesh *mesh, const char *model, bool other_software);

/** Fills *out; set out->size first.
 *  @return CLV_EINVAL for a block, or a mode other than train; rules or sp in the plan; more stages than layers;
 *          virtual stages without stages or with a schedule that has none; offloaded layers
 *          with stages, or on a machine that has no rate for them; a batch that microbatches or ranks do not
 *          divide; a sequence that the context does not divide; experts of a model that has none; CLV_EAXIS for other
 *          axes, or in another order; errors of clv_plan_compile */
CLV_EXPERIMENTAL clv_status clv_plan_estimate_step(clv_plan_estimate *out, const clv_plan_estimate_options *options,
                                                   clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
