/** @file model.h - opens a transformer from a Hugging Face folder: config.json, safetensors weights, tokenizer.
 *
 * Open a model once, for a mesh and its sharding rules. Then make generators (generate.h), embeddings (embed.h) and
 * likelihood scores (score.h) from it, or add it to graphs of your own. Families: llama, mistral, qwen2, gpt2, esm
 * (ESM-2), bert; docs/models.md lists what is supported of each.
 *
 * clv_model_open reads config.json and the headers of the weights, and checks that every tensor exists in its shape.
 * Weights are read when something runs: each rank reads only its own shards, directly into place. A model is immutable
 * and thread-safe. Close it after everything that was made from it. (clv_model_new makes a model without a folder.)
 */
#ifndef CLEAVE_MODEL_H
#define CLEAVE_MODEL_H

#include "cleave/data.h"
#include "cleave/nn.h"
#include "cleave/session.h"
#include "cleave/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An open model. */
typedef struct clv_model clv_model;

/** Low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685). Each product x W of a target becomes
 *  x W + (alpha / rank) (x A) B, with A [in,R] and B [R,out]. A is initialized uniformly within 1 / sqrt(in), as in
 *  PEFT, and B with zeros. Training a model with adapters changes only the adapters: its weights have neither gradients
 *  nor optimizer state. */
typedef struct clv_lora_options {
    size_t size;         /**< sizeof the struct, or 0 */
    int64_t rank;        /**< R: at least 1, at most the smaller side of every target */
    double alpha;        /**< 0: the rank */
    const char *targets; /**< comma-separated module names of the checkpoint, "q_proj,v_proj". A name matches modules
                              that equal it or end in it after a dot, as in PEFT's target_modules. NULL or
                              "all-linear": all linear layers except the output projection */
    const char *folder;  /**< reads adapters from this PEFT folder (adapter_config.json, adapter_model.safetensors). The
                              folder sets rank, alpha, dropout and targets; leave them 0 and NULL. NULL: new adapters */
    double dropout;      /**< 0 <= p < 1: dropout of x before A, in training steps. Every A has its own mask, derived
                              from clv_model_graph_options.dropout_seed and the input "step" */
} clv_lora_options;

/** Zero-initialised = defaults. */
typedef struct clv_model_options {
    size_t size;                 /**< sizeof the struct, or 0 */
    const clv_mesh *mesh;        /**< copied; NULL: one rank */
    const clv_axis_rules *rules; /**< copied; NULL: clv_axis_rules_preset's default for the mesh */
    clv_dtype dtype;             /**< of weights and activations: CLV_F32, CLV_BF16, CLV_F16 or CLV_F64 */
    clv_quant quant;    /**< quantise the weights of linear layers whose rows are a multiple of 32 while reading them
                              (docs/precision.md); NONE: keep the format of the folder (docs/checkpoints.md). Inference
                              only; adapters stay floats; not for families that a program registered */
    bool config_only;   /**< do not look for weights; `path` may be a config.json. State begins as the family
                              initializes it */
    bool map;           /**< read files through mmap, which is faster. The program should then handle SIGBUS
                              (clv_handle_sigbus) */
    bool f32_gradients; /**< gradients of 16-bit parameters are f32 from the products that compute them: ranks sum, and
                              updates read, f32. They take twice the memory and bytes */
    const clv_lora_options *lora; /**< low-rank adapters; copied; NULL: none */
    clv_compile_options compile;  /**< passed to clv_compile for every program of the model. Its `size` is ignored;
                                       `machine` is copied, `explain` borrowed until the model is closed */
    int threads_per_rank;         /**< 0: 1 */
    bool check;                   /**< check every run, as clv_session_options does; slow */
    int64_t timeout_ms;           /**< deadline of one wait for other ranks; 0: 60000 */
    const clv_cancel *cancel;     /**< cancels every run; borrowed until the model is closed; NULL: none */
    clv_job *job;       /**< the processes that share the mesh's ranks (job.h: which calls are collective); borrowed
                             until the model is closed; NULL: this process has all ranks */
    clv_flight *flight; /**< flight recorder of every run (flight.h); borrowed until the model is closed; NULL: none */
} clv_model_options;

/** Opens a model's folder. A PEFT adapter folder opens its base model, which adapter_config.json names, with the
 *  adapters. options may be NULL. Free with clv_model_close.
 *  @return CLV_EFORMAT, CLV_EUNSUPPORTED (naming the key or tensor); CLV_EAXIS when the rules do not fit the mesh;
 *          CLV_EDTYPE; CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_API clv_status clv_model_open(clv_model **out, const char *path, const clv_model_options *options, clv_error *err);
/** Frees a model. First free everything that was made from it. NULL is a no-op. */
CLV_API void clv_model_close(clv_model *model);

enum { CLV_MAX_EOS = 8 };

/** The configuration of a model, from config.json. The letters are those of shapes in this documentation. */
typedef struct clv_model_info {
    size_t size;                /**< set by the caller: sizeof the struct, or 0 */
    const char *family;         /**< model_type of config.json: "llama"; lives with the library */
    int64_t hidden;             /**< M, hidden size */
    int64_t layers;             /**< L */
    int64_t heads;              /**< H, query heads */
    int64_t kv_heads;           /**< K, key and value heads */
    int64_t head_dim;           /**< D, head size */
    int64_t ffn;                /**< F, feed-forward size */
    int64_t vocab;              /**< V, vocabulary size */
    int64_t max_positions;      /**< maximum sequence length, in tokens */
    int64_t parameters;         /**< number of elements of all parameters */
    int64_t token_types;        /**< number of token types (BERT); 0: none */
    int rotary;                 /**< nonzero: rotary position embeddings; 0: learned ones */
    int bidirectional;          /**< nonzero: an encoder; attention is not causal, and the model generates no text */
    int headless;               /**< nonzero: the model has hidden states but no logits */
    int tied_embeddings;        /**< nonzero: the output projection is the embedding table */
    int64_t bos, pad, mask;     /**< token ids; -1: none */
    int n_eos;                  /**< number of ids in eos; ids after the first CLV_MAX_EOS are dropped */
    int64_t eos[CLV_MAX_EOS];   /**< ids that end a text. (Generation uses clv_generation_config, generate.h.) */
    int64_t adapter_rank;       /**< rank of its adapters; 0: no adapters */
    int64_t adapter_parameters; /**< number of elements of its adapters, not counted in `parameters` */
    int64_t experts;            /**< E, experts of a layer, in the place of an MLP; 0: none */
    int64_t top_k;              /**< experts that a row chooses */
    int64_t expert_ffn;         /**< feed-forward size of an expert */
    int64_t shared_ffn;         /**< feed-forward size of the expert that every row has; 0: none */
} clv_model_info;

/** Makes a model without a folder, of family "llama" (or NULL), with newly initialized weights. hidden, layers, heads,
 *  ffn and vocab are required. Zeros have defaults: kv_heads is heads; head_dim is hidden / heads, which must divide;
 *  max_positions is 2048. It has no experts. Positions are rotary. Set unused token ids to -1. Ignores
 *  options.config_only and map. Free with clv_model_close.
 *  @return CLV_EINVAL naming the invalid size or token id; CLV_EUNSUPPORTED for another family; errors of
 *          clv_model_open */
CLV_API clv_status clv_model_new(clv_model **out, const clv_model_info *sizes, const clv_model_options *options,
                                 clv_error *err);

/** Fills *out; the caller has set `size`. @return CLV_EINVAL for a size that no version had */
CLV_API clv_status clv_model_get_info(const clv_model *model, clv_model_info *out, clv_error *err);

/** Numbers of parameter elements: embeddings of tokens and positions; layers; head, with the final norm. */
typedef struct clv_model_part_sizes {
    size_t size; /**< set by the caller: sizeof the struct, or 0 */
    int64_t embedding, layers, head;
} clv_model_part_sizes;
/** Fills *out; the caller has set `size`. @return CLV_EINVAL for a size that no version had */
CLV_API clv_status clv_model_get_part_sizes(const clv_model *model, clv_model_part_sizes *out, clv_error *err);

/** Number of parameter elements on the rank that holds the most, on `mesh` under its default rules; mesh NULL: on the
 *  model's own mesh, under its own rules.
 *  @return errors of building the model's graph; CLV_ENOMEM */
CLV_API clv_status clv_model_max_rank_elems(int64_t *out, const clv_model *model, const clv_mesh *mesh, clv_error *err);

/** The mesh that the model was opened for. Borrowed; NULL for NULL. */
CLV_API const clv_mesh *clv_model_mesh(const clv_model *model);
/** The sharding rules that the model was opened with. Borrowed; NULL for NULL. */
CLV_API const clv_axis_rules *clv_model_rules(const clv_model *model);
/** The dtype that the model was opened with; CLV_F32 for NULL. */
CLV_API clv_dtype clv_model_dtype(const clv_model *model);
/** The model's folder; with adapters, the folder of their base; "" for a model without a folder. Borrowed; NULL for
 *  NULL. */
CLV_API const char *clv_model_folder(const clv_model *model);

/** The folder's tokenizer; without one, a byte tokenizer if the vocabulary has 256 tokens. The first call opens it.
 *  Borrowed: it lives with the model. It may produce ids outside the model's vocabulary; a text with such an id is an
 *  error where it is used. Thread-safe.
 *  @return CLV_ENOTFOUND when there is none; errors of clv_tokenizer_open */
CLV_API clv_status clv_model_tokenizer(const clv_tokenizer **out, const clv_model *model, clv_error *err);

/** Fills *out with the mask token and special tokens for training a masked language model (data.h); the caller has set
 *  `size`. The mask token is mask_token_id of config.json, else the tokenizer's [MASK], else -1. Special tokens are the
 *  tokenizer's, and bos, eos and pad of config.json. tokenizer: the one that encoded the texts, borrowed while *out is
 *  used; NULL: the folder's, if it has one.
 *  @return errors of opening the folder's tokenizer */
CLV_API clv_status clv_model_mlm_masking(clv_mlm_masking *out, const clv_model *model, const clv_tokenizer *tokenizer,
                                         clv_error *err);

/** Checks that all processes of options.job have opened the same model: compares config, tokenizer file, and of the
 *  weights all names, dtypes, shapes and a sample of each tensor's bytes. Every process must call it. CLV_OK for a
 *  model without a job.
 *  @return errors of clv_job_compare, naming what differs in which processes; errors of reading files, in all */
CLV_API clv_status clv_model_verify_across_processes(const clv_model *model, clv_error *err);

/** Warning i about the model's files and options: unused tensors, by kind and with the reason ("2 tensors
 *  bert.pooler.dense.* are not used: ..."); differences between files and config.json or the index; weights that
 *  options.quant does not quantize. NULL past the last. Borrowed. */
CLV_API const char *clv_model_warning(const clv_model *model, int i);

/** Writes the unknown keys of the model's config.json, which are ignored: "logit_scale, mup_base"; truncated if `out`
 *  is too small; "" if there are none, and for a registered family. Reads the file again.
 *  @return errors of reading the file */
CLV_API clv_status clv_model_unknown_keys(char *out, size_t size, const clv_model *model, clv_error *err);

/** How the model's weights are stored in memory: options.quant, else as the folder stores them. CLV_QUANT_NONE for
 *  NULL. */
CLV_API clv_quant clv_model_quant(const clv_model *model);
/** How the folder's files store weights. If the model was opened with options.config_only, opens them now.
 *  CLV_QUANT_NONE for floats, and without files.
 *  @return CLV_EFORMAT, CLV_EIO, CLV_ENOMEM of files that cannot be opened */
CLV_API clv_status clv_model_checkpoint_quant(clv_quant *out, const clv_model *model, clv_error *err);

/** Bytes of all weights as stored in memory, each counted once, without adapters. A quantized model with tied
 *  embeddings stores its table twice: as floats and quantized. 0 for NULL. */
CLV_API int64_t clv_model_weights_memory_bytes(const clv_model *model);

/** Bytes of weights that all ranks together have read so far. */
CLV_API uint64_t clv_model_bytes_read(const clv_model *model);

/** Call this in a SIGBUS handler, installed with SA_NODEFER, if models are opened with options.map. When a page of a
 *  mapped file is gone (the file was truncated, or its disk failed), the read of this thread fails with CLV_EIO and the
 *  call does not return. It returns if the fault was elsewhere; the program must then end. */
CLV_API void clv_handle_sigbus(void);

/* ---- graphs ---- */

/** Shape and inputs of a model's graph. */
typedef struct clv_model_graph_options {
    size_t size;              /**< sizeof the struct, or 0 */
    int64_t batch, seq;       /**< B and S of the ids; each at least 1, S at most max_positions */
    int padding_mask;         /**< nonzero: adds an input "mask" u8 [B,S], 1 = token, 0 = padding; no token attends to
                                   padding */
    int token_types;          /**< nonzero: adds an input "token_types" i32 [B,S]; else all are 0. For families with
                                   token types */
    int64_t context;          /**< > 0: adds a KV cache of this many positions, and an input "offset" i32 [B] ([] if B
                                   is 1), the position of each sequence's first row. Rules for the sequence dimension
                                   are dropped */
    int last_logits;          /**< nonzero: computes logits only for the last row of each sequence, [B,1,V] */
    int64_t split_logits;     /**< nonzero: the output of clv_model_inference stays sharded over batch and vocabulary as
                                   the rules say, and is not gathered */
    double dropout;           /**< 0 <= p < 1: dropout of the embedding and of every residual branch, in training steps
                                   (clv_dropout). Masks depend on the input "step" and an element's position in the
                                   whole tensor, so they are the same on every mesh. With clv_update_options.accumulate
                                   every part has its own masks */
    uint64_t dropout_seed;    /**< seed of all dropout masks */
    double attention_dropout; /**< 0 <= p < 1: dropout of attention weights, in training steps
                                   (clv_attention_options.dropout) */
    int last_input;           /**< nonzero, with last_logits and a batch of 1: adds an input "last" i32 [1], the row, 0
                                   to S - 1, whose logits are returned; zeros for another row. Rows after it are
                                   computed too; with causal attention they change no earlier row */
    int packed;               /**< nonzero, not in training steps: prepacks weights into column panels for the CPU's
                                   kernels, where that is faster. They become states "<name>.packed" [(parts,) out...,
                                   out / 16, in..., 16], which clv_model_state_source reads. Only for built-in families
                                   opened from a folder, without quant and comm_dtype, and in jobs of equal CPUs; and
                                   only weights of at least 64 Ki elements whose last dimension is a multiple of 16
                                   times the number of ranks. Results of up to 16 rows have the same bits */
} clv_model_graph_options;

/** Adds the model to a graph on its mesh. Input: "ids" i32 [B,S]. Returns
 *  logits [B,S,V], sharded over the vocabulary as the rules say; CLV_NONE for a model without a head. *hidden, unless
 *  NULL, receives the hidden states [B,S,M] after the final norm. The graph records failures. */
CLV_API clv_value clv_model_forward(clv_graph *graph, const clv_model *model, const clv_model_graph_options *how,
                                    clv_value *hidden);

/** Adds inference. Output: "logits" [B,S,V] (or [B,1,V]), replicated on all ranks unless how->split_logits; for a model
 *  without a head, "hidden.last" [B,S,M]. */
CLV_API void clv_model_inference(clv_graph *graph, const clv_model *model, const clv_model_graph_options *how);

/** An optimizer: clv_adamw, clv_sgd, clv_lion. */
typedef enum clv_optimizer { CLV_OPTIMIZER_ADAMW, CLV_OPTIMIZER_SGD, CLV_OPTIMIZER_LION } clv_optimizer;
/** "adamw", "sgd", "lion"; "unknown" for a value outside the enum. */
CLV_API const char *clv_optimizer_name(clv_optimizer optimizer);
/** Finds an optimizer by name. @return CLV_EINVAL with the valid names */
CLV_API clv_status clv_optimizer_parse(clv_optimizer *out, const char *name, clv_error *err);

/** How a training step updates parameters. Zero-initialised = AdamW with its defaults, without clipping. */
typedef struct clv_update_options {
    size_t size;                    /**< sizeof the struct, or 0 */
    const clv_adamw_options *adamw; /**< NULL: its defaults */
    double clip;                    /**< > 0: largest global norm of all gradients; 0: no clipping */
    int64_t decay_all;              /**< nonzero: weight decay also for gains and biases */
    clv_optimizer optimizer;        /**< only the options of this optimizer are used */
    const clv_sgd_options *sgd;     /**< NULL: its defaults */
    const clv_lion_options *lion;   /**< NULL: its defaults */
    int64_t accumulate;             /**< > 1: gradient accumulation over this many microbatches of equal size, the first
                                         rows first. Gradients are summed (16-bit ones in f32) and equal those of the
                                         mean over all labels. Where ranks update shards (fsdp, zero1), each
                                         microbatch's gradients are reduce-scattered, and shards are summed; other
                                         gradients are reduced once. Inputs [B,S] become [accumulate,B/accumulate,S] */
    bool no_sync;                   /**< with accumulate > 1: all gradients are summed whole, and reduced once, after
                                         the last microbatch, as with PyTorch's no_sync() */
    double router_bias_update_rate; /**< > 0: after the update each router's bias ("router.bias", deepseek_v3) gains
                                         this for experts that fewer rows of the batch than the mean have chosen, and
                                         loses it for those that more have (Megatron's
                                         --moe-router-bias-update-rate; Wang et al. 2024, arXiv:2408.15664). 0: it is
                                         left as it is */
} clv_update_options;

/** Adds a training step: forward, backward and update (update NULL: its defaults). Inputs: "ids", "labels" i32 [B,S]
 *  (-100: ignored), "lr" f32, "step" i32 (from 1). Outputs: "loss" f32, the mean over labels; "grad_norm" f32, the
 *  global norm of the gradients before clipping (clv_global_norm). If either is not finite, no state changes. A model
 *  of experts with a capacity has the output "dropped" f64, too (clv_train_step.dropped).
 *  All parameters of the graph are updated. */
CLV_API void clv_model_train_step(clv_graph *graph, const clv_model *model, const clv_model_graph_options *how,
                                  const clv_update_options *update);

/** A clv_session_options.source that reads the model's weights; source_arg is the model. Each rank reads its own
 *  shards. State that is not a parameter (a KV cache) keeps its initializer. */
CLV_API clv_state_source clv_model_state_source;

#ifdef __cplusplus
}
#endif
#endif
