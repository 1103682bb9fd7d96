/** @file plan.h - the program of a model, or of one block, on a mesh: what there is to look at before anything runs.
 *
 * The program is the very one that would run: its memory (clv_program_memory), collectives and their causes
 * (clv_program_collective), decisions (clv_program_decision) and time on a machine (clv_program_predict) are read off
 * it. No weights are read, no memory of a rank is taken, and none of the mesh's ranks need be at hand.
 *
 *   clv_plan_options how = {.size = sizeof how, .model = "folder", .mesh = &mesh, .mode = CLV_PLAN_MODE_DECODE};
 *   clv_plan_compile(&program, &how, &err);
 *
 * Any number of threads may plan at once.
 */
#ifndef CLEAVE_PLAN_H
#define CLEAVE_PLAN_H

#include "cleave/model.h"
#include "cleave/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A block alone, instead of a model; its input is x [B,S,M]. */
typedef enum clv_plan_block {
    CLV_PLAN_BLOCK_NONE,      /**< a model */
    CLV_PLAN_BLOCK_FFN,       /**< feed-forward: up, GELU, down */
    CLV_PLAN_BLOCK_ATTENTION, /**< causal self-attention */
    CLV_PLAN_BLOCK_GPT,       /**< both, with norms and the residual stream; LayerNorms without biases */
    CLV_PLAN_BLOCK_LLAMA      /**< the same with RMSNorms, and a gated MLP with SiLU */
} clv_plan_block;

/** "ffn", "attention", "gpt", "llama"; "none"; "unknown" for what is none. */
CLV_API const char *clv_plan_block_name(clv_plan_block block);
/** "gpt" -> CLV_PLAN_BLOCK_GPT; CLV_EINVAL with the valid names. */
CLV_API clv_status clv_plan_block_parse(clv_plan_block *out, const char *name, clv_error *err);

/** What of it is planned. */
typedef enum clv_plan_mode {
    CLV_PLAN_MODE_DEFAULT, /**< forward of a block, train of a model */
    CLV_PLAN_MODE_FORWARD, /**< of a block: its forward pass */
    CLV_PLAN_MODE_GRAD,    /**< of a block: that, and the gradients of its weights and of x for an input "dy" */
    CLV_PLAN_MODE_TRAIN,   /**< of a model: a training step: forward, backward, AdamW */
    CLV_PLAN_MODE_PREFILL, /**< of a model: S tokens into its KV cache, and the last one's logits; of an encoder, which
                                has no cache: its forward pass */
    CLV_PLAN_MODE_DECODE   /**< of a model: one token after S - 1 others in its KV cache */
} clv_plan_mode;

/** What sizes are unless they are given, and the most ranks that are planned for. */
enum { CLV_PLAN_BATCH = 8, CLV_PLAN_SEQ = 128, CLV_PLAN_HIDDEN = 256, CLV_PLAN_HEADS = 8, CLV_PLAN_MAX_RANKS = 100000 };

/** What is planned: a model or a block. Zero-initialised = defaults, but for that choice. All that it points to is
 *  borrowed meanwhile. */
typedef struct clv_plan_options {
    size_t size;          /**< sizeof the struct; 0: as its first version had it */
    const char *model;    /**< a config.json, or the folder that holds it; NULL: a block */
    clv_plan_block block; /**< where no model is given */
    clv_plan_mode mode;
    int64_t batch;        /**< B, sequences; 0: CLV_PLAN_BATCH */
    int64_t seq;          /**< S, tokens a sequence, at most the model's max_positions; 0: CLV_PLAN_SEQ */
    int64_t hidden;       /**< M, width of a block; 0: CLV_PLAN_HIDDEN */
    int64_t heads;        /**< of a block but ffn: query heads; 0: CLV_PLAN_HEADS */
    int64_t kv_heads;     /**< of a block but ffn: key and value heads; 0: as many as query heads */
    int64_t ffn;          /**< of a block but attention: feed-forward width; 0: 4M */
    bool bias;            /**< the linear layers of a block have biases */
    bool sp;              /**< the same as the preset megatron-sp for rules; of a model that generates: to train */
    clv_dtype dtype;      /**< of weights and activations: CLV_F32, CLV_BF16, CLV_F16 or CLV_F64 */
    const clv_mesh *mesh; /**< NULL: one rank */
    const clv_axis_rules *rules;  /**< NULL: clv_axis_rules_preset's default for the mesh */
    const clv_machine *machine;   /**< what layouts are priced by; NULL: the default (machine.h) */
    bool regather;                /**< as in clv_compile_options; of what has a backward pass */
    bool keep_decisions;          /**< as in clv_compile_options */
    int64_t max_implicit_bytes;   /**< as in clv_compile_options; 0: any */
    const char *explain;          /**< as in clv_compile_options; NULL: nothing */
    int64_t head_dim;             /**< of a block but ffn: width of a head; 0: hidden / heads, which must divide */
    bool overlap;                 /**< as in clv_compile_options */
    clv_comm_dtype comm_dtype;    /**< as in clv_compile_options */
    int64_t recompute;            /**< a clv_recompute, as in clv_compile_options; of what has a backward pass */
    const clv_lora_options *lora; /**< adapters that a model gets, which then are all that is trained; NULL: none */
    int64_t accumulate;           /**< as in clv_update_options, of a model's training step: a divisor of batch; 0: 1 */
    int64_t grad_reduce_dtype;    /**< a clv_comm_dtype, as in clv_compile_options */
    double dropout;               /**< as in clv_model_graph_options, of a model's training step */
    double attention_dropout;     /**< likewise */
    int64_t f32_gradients;        /**< as in clv_model_options; of a block, too */
    int64_t quant;                /**< a clv_quant, as in clv_model_options, of prefill and decode */
} clv_plan_options;

/** Compiles it. Free with clv_program_free.
 *  @return CLV_EINVAL where neither a model nor a block is given, or both; for a mode of the other, a size that the
 *          block has no use for or that is out of its range, regather or recompute without a backward pass, sp beside
 *          rules or where tokens are generated, more tokens than the model takes, CLV_PLAN_MODE_DECODE of a model that
 *          attends both ways: the message begins with the field or the mode; CLV_EDTYPE; CLV_ELIMIT for more than
 *          CLV_PLAN_MAX_RANKS ranks; clv_axis_rules_preset's, clv_model_open's and clv_compile's */
CLV_API clv_status clv_plan_compile(clv_program **out, const clv_plan_options *options, clv_error *err);

/** @name What would make a plan smaller
 *  One option changed at a time, and the plan made again: an axis of the mesh twice as long, the rules of each preset,
 *  half the batch, bf16, regather, recompute. @{ */

/** The changes with which a rank needs less memory, the one that needs least first. A plain value: it outlives what the
 *  options point to, and any number of threads may read it. */
typedef struct clv_plan_suggestions clv_plan_suggestions;

/** A change. What it points to lives with the clv_plan_suggestions. */
typedef struct clv_plan_suggestion {
    size_t size;              /**< the caller's: sizeof the struct, or 0 */
    const char *option;       /**< the field of clv_plan_options: "mesh", "rules", "batch", "dtype", "regather" or
                                   "recompute" */
    const char *value;        /**< "data=4,model=4", "fsdp", "4", "bf16", "full"; "" of regather */
    const clv_memory *memory; /**< of the plan with it; peak is NULL */
} clv_plan_suggestion;

/** Finds them. Free with clv_plan_suggestions_free.
 *  @return clv_plan_compile's, of the options as they are; a change that cannot be planned is left out */
CLV_API clv_status clv_plan_find_suggestions(clv_plan_suggestions **out, const clv_plan_options *options,
                                             clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_plan_suggestions_free(clv_plan_suggestions *remedies);
/** How many there are; 0 for NULL. */
CLV_API int clv_plan_suggestions_count(const clv_plan_suggestions *remedies);
/** Fills *out, whose `size` the caller has set. CLV_EINVAL for an index that there is not. */
CLV_API clv_status clv_plan_suggestion_at(const clv_plan_suggestions *remedies, int i, clv_plan_suggestion *out,
                                          clv_error *err);
/** @} */

/** The order of the mesh's axes in which the plan takes the least time on its machine. Ranks are row-major over the
 *  mesh, so the last axes stay inside hosts: those that move most should be last. Up to four axes are planned in every
 *  order, more with each of them last. *mesh: the axes in the best order, with the same names and sizes; as they are
 *  where no other is faster by a hundredth, or all ranks share a host. *seconds: what that plan is predicted to take.
 *  Which rank has which part of a tensor changes with the order, not what any layout costs but for where its groups
 *  are.
 *  @return clv_plan_compile's, of the options as they are; an order that cannot be planned is left out */
CLV_API clv_status clv_plan_find_axis_order(clv_mesh *mesh, double *seconds, const clv_plan_options *options,
                                            clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
