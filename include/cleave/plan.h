/** @file plan.h - compiles a model, or one transformer block, for a mesh without weights or ranks, to predict its cost.
 *
 * The result is the program that would run. Read its memory (clv_program_memory), collectives and their causes
 * (clv_program_collective), decisions (clv_program_decision) and predicted time (clv_program_predict). Planning reads
 * no weights, allocates no rank's memory and starts no rank.
 *
 *   clv_plan_options how = {.size = sizeof how, .model = "folder", .mesh = &mesh, .mode = CLV_PLAN_MODE_DECODE};
 *   clv_plan_compile(&program, &how, &err);
 *
 * Thread-safe.
 */
#ifndef CLEAVE_PLAN_H
#define CLEAVE_PLAN_H

#include "cleave/model.h"
#include "cleave/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A transformer block, to plan without a model. Its input is x [B,S,M]. */
typedef enum clv_plan_block {
    CLV_PLAN_BLOCK_NONE,      /**< no block: plan a model */
    CLV_PLAN_BLOCK_FFN,       /**< feed-forward: up, GELU, down */
    CLV_PLAN_BLOCK_ATTENTION, /**< causal self-attention */
    CLV_PLAN_BLOCK_GPT,       /**< attention and ffn with LayerNorms (no biases) and the residual stream */
    CLV_PLAN_BLOCK_LLAMA      /**< the same with RMSNorms and a SiLU-gated MLP */
} clv_plan_block;

/** "ffn", "attention", "gpt", "llama" or "none"; "unknown" for a value outside the enum. */
CLV_API const char *clv_plan_block_name(clv_plan_block block);
/** "gpt" -> CLV_PLAN_BLOCK_GPT. @return CLV_EINVAL with the valid names, of which "none" is not one */
CLV_API clv_status clv_plan_block_parse(clv_plan_block *out, const char *name, clv_error *err);

/** Which computation is planned. */
typedef enum clv_plan_mode {
    CLV_PLAN_MODE_DEFAULT, /**< FORWARD for a block, TRAIN for a model */
    CLV_PLAN_MODE_FORWARD, /**< block: the forward pass */
    CLV_PLAN_MODE_GRAD,    /**< block: forward and backward: gradients of its weights and of x, from an input "dy" */
    CLV_PLAN_MODE_TRAIN,   /**< model: a training step: forward, backward, AdamW */
    CLV_PLAN_MODE_PREFILL, /**< model: S tokens into the KV cache, and the logits of the last; encoder: the forward
                                pass */
    CLV_PLAN_MODE_DECODE   /**< model: one token, with S - 1 tokens in the KV cache */
} clv_plan_mode;

/** Default sizes, and the largest number of ranks. */
enum { CLV_PLAN_BATCH = 8, CLV_PLAN_SEQ = 128, CLV_PLAN_HIDDEN = 256, CLV_PLAN_HEADS = 8, CLV_PLAN_MAX_RANKS = 100000 };

/** What is planned: a model or a block. Zero-initialised = defaults; set `model` or `block`. Pointers are borrowed
 *  during the call. */
typedef struct clv_plan_options {
    size_t size;          /**< sizeof the struct, or 0 */
    const char *model;    /**< a config.json, or the folder that holds it; NULL: `block` */
    clv_plan_block block; /**< a block, where `model` is NULL */
    clv_plan_mode mode;
    int64_t batch;               /**< B, sequences; 0: CLV_PLAN_BATCH */
    int64_t seq;                 /**< S, tokens a sequence, at most the model's max_positions; 0: CLV_PLAN_SEQ */
    int64_t hidden;              /**< M, width of a block; 0: CLV_PLAN_HIDDEN */
    int64_t heads;               /**< query heads of a block other than ffn; 0: CLV_PLAN_HEADS */
    int64_t kv_heads;            /**< key and value heads of a block other than ffn; 0: as many as query heads */
    int64_t head_dim;            /**< width of a head of a block other than ffn; 0: hidden / heads, which must divide */
    int64_t ffn;                 /**< feed-forward width of a block other than attention; 0: 4M */
    bool bias;                   /**< the linear layers of a block have biases */
    bool sp;                     /**< sequence parallelism: the rules megatron-sp. Not where a model generates tokens */
    clv_dtype dtype;             /**< of weights and activations: CLV_F32, CLV_BF16, CLV_F16 or CLV_F64 */
    const clv_mesh *mesh;        /**< NULL: one rank */
    const clv_axis_rules *rules; /**< NULL: clv_axis_rules_preset's default for the mesh */
    clv_compile_options compile; /**< passed to clv_compile; its `size` is ignored. reshard_after_forward and recompute
                                       need a mode with a backward pass */
    const clv_lora_options *lora; /**< adapters of a model: they alone are trained; NULL: none */
    int64_t accumulate;           /**< microbatches of a model's training step, a divisor of batch; 0: 1
                                       (clv_update_options) */
    bool no_sync;                 /**< as in clv_update_options */
    double dropout;               /**< of a model's training step, as in clv_model_graph_options */
    double attention_dropout;     /**< likewise */
    bool f32_gradients;           /**< as in clv_model_options; also of a block */
    clv_quant quant;              /**< weights in prefill and decode, as in clv_model_options */
} clv_plan_options;

/** Compiles the model or block. Free with clv_program_free.
 *  @return CLV_EINVAL unless exactly one of model and block is set; for a mode of the other one; a size that the block
 *          does not have or that is out of range; reshard_after_forward or recompute without a backward pass; sp
 *          combined with rules or with token generation; more tokens than the model takes; CLV_PLAN_MODE_DECODE of an
 *          encoder. The message begins with the field or the mode. CLV_EDTYPE; CLV_ELIMIT for more than
 *          CLV_PLAN_MAX_RANKS ranks; errors of clv_axis_rules_preset, clv_model_open and clv_compile */
CLV_API clv_status clv_plan_compile(clv_program **out, const clv_plan_options *options, clv_error *err);

/** Builds the graph that clv_plan_compile compiles. Free with clv_graph_free.
 *  @return as clv_plan_compile, but for errors of clv_compile */
CLV_EXPERIMENTAL clv_status clv_plan_graph(clv_graph **out, const clv_plan_options *options, clv_error *err);

/** @name Suggestions that reduce memory
 *  The plan is compiled again with one option changed: a mesh axis of twice the size, the rules of each preset, half
 *  the batch, bf16, reshard_after_forward, recompute. @{ */

/** The changes that reduce the memory of a rank, the smallest memory first. Immutable, and independent of the options'
 *  pointers. */
typedef struct clv_plan_suggestions clv_plan_suggestions;

/** One changed option. Its pointers live as long as the clv_plan_suggestions. */
typedef struct clv_plan_suggestion {
    size_t size;              /**< set by the caller: sizeof the struct, or 0 */
    const char *option;       /**< "mesh", "rules", "batch" or "dtype" of clv_plan_options; "reshard_after_forward" or
                                   "recompute" of its compile options */
    const char *value;        /**< "data=4,model=4", "fsdp", "4", "bf16", "full"; "" for reshard_after_forward */
    const clv_memory *memory; /**< memory of the changed plan; peak is NULL */
    double seconds;           /**< predicted for a run of the changed plan */
} clv_plan_suggestion;

/** Finds them. Free with clv_plan_suggestions_free.
 *  @return errors of clv_plan_compile of the options as given; a change that does not compile is left out */
CLV_API clv_status clv_plan_find_suggestions(clv_plan_suggestions **out, const clv_plan_options *options,
                                             clv_error *err);
/** Does nothing for NULL. */
CLV_API void clv_plan_suggestions_free(clv_plan_suggestions *suggestions);
/** Number of suggestions; 0 for NULL. */
CLV_API int clv_plan_suggestion_count(const clv_plan_suggestions *suggestions);
/** Fills *out; set out->size first. CLV_EINVAL for an index out of range. */
CLV_API clv_status clv_plan_suggestion_at(const clv_plan_suggestions *suggestions, int i, clv_plan_suggestion *out,
                                          clv_error *err);
/** @} */

/** Finds the order of the mesh's axes with the lowest predicted time. Ranks are row-major over the mesh, so groups of
 *  the last axes stay inside hosts; axes that move the most bytes should be last. Tries every order of up to four axes;
 *  of more axes, each one last. *mesh receives the axes in the best order: the given order unless another one is at
 *  least 1 % faster, or where all ranks share a host. *seconds receives the predicted time.
 *  @return errors of clv_plan_compile of the options as given; an order that does not compile, or needs more than the
 *          machine's memory, is left out */
CLV_API clv_status clv_plan_find_axis_order(clv_mesh *mesh, double *seconds, const clv_plan_options *options,
                                            clv_error *err);

/** @name Rules by search
 *  What `--rules auto` does: finds the rules (rules.h) by which a model or block is predicted to be fastest on its
 *  mesh, whatever the mesh's axes are called. Each name, and the optimizer, may be split by any of the axes.
 *  Candidates are priced by the programs that would run, of two and three layers where layers repeat. The search starts
 *  at each preset that fits, and at pairs of uses of an axis; it changes the use of one axis, and one axis of one name,
 *  as long as that pays. So the rules found are predicted to be as fast as every preset that fits the mesh; it is
 *  deterministic, and not exhaustive. @{ */

enum { CLV_FOUND_RULES_TEXT = 256, CLV_FOUND_RULES_NAMES = 9 };

/** A name, and what splits it. Axes are text: "data,model", or "" for none. */
typedef struct clv_found_rule {
    char name[CLV_LOGICAL_AXIS_SIZE];   /**< of rules.h, or "optimizer" */
    char axes[CLV_FOUND_RULES_TEXT];    /**< as found */
    char instead[CLV_FOUND_RULES_TEXT]; /**< the best of the other axes that were tried for this name alone */
    double instead_seconds;             /**< with these; infinity: none was tried, or none fits */
} clv_found_rule;

/** What clv_plan_find_rules found. */
typedef struct clv_found_rules {
    size_t size;            /**< set by the caller: sizeof the struct, or 0 */
    clv_axis_rules rules;   /**< called "auto" */
    double seconds, memory; /**< of a step; bytes of a rank */
    bool fits;              /**< memory is within the limit; otherwise these need the least of what was tried */
    char like[CLV_FOUND_RULES_TEXT]; /**< in the presets' words: "data as fsdp; model as megatron-sp without vocab" */
    char next[CLV_FOUND_RULES_TEXT]; /**< the second best, likewise; "": none fits */
    double next_seconds;
    char preset[CLV_LOGICAL_AXIS_SIZE]; /**< the best preset that fits the mesh and the memory; "": none */
    double preset_seconds;
    int priced; /**< number of candidates that were priced */
    int n_rules;
    clv_found_rule rule[CLV_FOUND_RULES_NAMES];
} clv_found_rules;

/** Finds the rules for a plan, whose `rules` are NULL; set out->size first. Prices are by compile.machine.
 *  @param memory_limit  bytes of a rank; 0: the machine's memory, no limit if that is unknown
 *  @return CLV_EINVAL for options with rules or sp, or a negative limit; errors of clv_plan_compile of the rules that
 *          split nothing */
CLV_EXPERIMENTAL clv_status clv_plan_find_rules(clv_found_rules *out, const clv_plan_options *options,
                                                int64_t memory_limit, clv_error *err);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
