/** @file model.h - a transformer as a folder of Hugging Face's hub holds it: config.json, weights in safetensors,
 *  tokenizer.
 *
 * A model is opened once, for a mesh and the rules by which it is split, and is what the rest is made from: generators
 * (generate.h), vectors (embed.h), likelihoods (score.h), and graphs of your own. Families: llama, mistral, qwen2,
 * gpt2, esm (ESM-2), bert; docs/models.md has what of each is supported.
 *
 * Opening reads config.json and the headers of the weights, and verifies that every tensor is there in its shape;
 * elements are read when something runs, by each rank those of its own shards alone, straight into place. A model is
 * immutable: threads may share it, and it must outlive what was made from it. (clv_model_new makes one without a
 * folder.)
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

/** A model that is open. */
typedef struct clv_model clv_model;

/** Low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) beside a model's weights: to each product x W of their
 *  targets (alpha / rank) (x A) B is added, with A [in,R] and B [R,out]. A begins uniform within 1 / sqrt(in), as
 *  PEFT's does, B with zeros. Of such a model training changes the adapters alone: its weights have no gradients and
 *  no optimizer's state. */
typedef struct clv_lora_options {
    size_t size;         /**< sizeof the struct; 0: as its first version had it */
    int64_t rank;        /**< R, at least 1 and at most the narrowest side of a target */
    double alpha;        /**< 0: the rank */
    const char *targets; /**< modules as the checkpoint's names have them, parted by commas, "q_proj,v_proj": each whose
                              name is that or ends so behind a dot, as in PEFT's target_modules. NULL or "all-linear":
                              all linear layers but the output's */
    const char *folder;  /**< they are read from here, in PEFT's form (adapter_config.json, adapter_model.safetensors),
                              which says the rest: rank, alpha and dropout 0, targets NULL; or NULL: they begin anew */
    double dropout;      /**< 0 <= p < 1: in training steps A takes clv_dropout of x, each A by masks of its own, which
                              are those of clv_model_graph_options's dropout_seed and the input "step" */
} clv_lora_options;

/** Zero-initialised = defaults. */
typedef struct clv_model_options {
    size_t size;                 /**< sizeof the struct, or 0 for the same */
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

/** Opens a model's folder; options may be NULL. Free with clv_model_close. The folder of adapters in PEFT's form is
 *  that of their base, with them: adapter_config.json names it.
 *  @return CLV_EFORMAT, CLV_EUNSUPPORTED (naming the key or tensor); CLV_EAXIS when the rules do not fit the mesh;
 *          CLV_EDTYPE; CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_API clv_status clv_model_open(clv_model **out, const char *path, const clv_model_options *options, clv_error *err);
/** NULL is a no-op. What was made from the model is freed before. */
CLV_API void clv_model_close(clv_model *model);

enum { CLV_MAX_EOS = 8 };

/** What config.json says. Letters as in the shapes of this library's documentation. */
typedef struct clv_model_info {
    size_t size;            /**< the caller's: sizeof the struct, or 0 */
    const char *family;     /**< config.json's model_type: "llama"; lives with the library */
    int64_t hidden;         /**< M */
    int64_t layers;         /**< L */
    int64_t heads;          /**< H, of queries */
    int64_t kv_heads;       /**< K */
    int64_t head_dim;       /**< D */
    int64_t ffn;            /**< F */
    int64_t vocab;          /**< V */
    int64_t max_positions;  /**< the longest sequence, in tokens */
    int64_t parameters;     /**< elements of all of them */
    int64_t token_types;    /**< BERT: kinds of tokens; 0: none */
    int rotary;             /**< positions are rotary; else learned */
    int bidirectional;      /**< attention sees what follows, too: an encoder, which generates nothing */
    int headless;           /**< hidden states only, no logits */
    int tied_embeddings;    /**< the output projection is the embedding's table */
    int64_t bos, pad, mask; /**< token ids; -1: none */
    int n_eos;              /**< any of these ends a text; of a longer list the first. What ends those that are made is
                                 clv_generation_config's (generate.h) */
    int64_t eos[CLV_MAX_EOS];
    int64_t adapter_rank;       /**< of its adapters; 0: it has none */
    int64_t adapter_parameters; /**< elements of these, beside `parameters` */
} clv_model_info;

/** A model that no folder holds, of a Llama's form (family "llama", or NULL), as train.h makes one: hidden, layers,
 *  heads, ffn and vocab are needed; kv_heads 0 is heads, head_dim 0 is hidden / heads (heads must divide it then),
 *  max_positions 0 is 2048; positions are rotary. Of token ids that it has none of, say -1. Its weights are the
 *  initializers'; options.config_only and map say nothing here. Free with clv_model_close.
 *  @return CLV_EINVAL naming the size, or the token id, that does not fit; CLV_EUNSUPPORTED for another family;
 *          clv_model_open's */
CLV_API clv_status clv_model_new(clv_model **out, const clv_model_info *sizes, const clv_model_options *options,
                                 clv_error *err);

/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a size that no version had */
CLV_API clv_status clv_model_get_info(const clv_model *model, clv_model_info *out, clv_error *err);

/** Elements of its parameters by part: the embeddings of tokens and positions, the layers, the head and what stands
 *  before it. */
typedef struct clv_model_part_sizes {
    size_t size; /**< the caller's: sizeof the struct, or 0 */
    int64_t embedding, layers, head;
} clv_model_part_sizes;
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a size that no version had */
CLV_API clv_status clv_model_get_part_sizes(const clv_model *model, clv_model_part_sizes *out, clv_error *err);

/** Elements of all parameters on the rank that holds the most: of another mesh than the model's, under the rules that
 *  such a mesh has where none are given; or (NULL) of its own, under its own.
 *  @return what its graph, built for a token of one sequence, fails by; CLV_ENOMEM */
CLV_API clv_status clv_model_max_rank_elems(int64_t *out, const clv_model *model, const clv_mesh *mesh, clv_error *err);

/** The mesh and rules that the model was opened for, and the dtype. Borrowed; NULL (CLV_F32) for no model. */
CLV_API const clv_mesh *clv_model_mesh(const clv_model *model);
/** The folder that it was opened from: of adapters, that of their base; "" for a model that no folder holds. Borrowed;
 *  NULL for no model. */
CLV_API const char *clv_model_folder(const clv_model *model);
/** See clv_model_mesh. */
CLV_API const clv_axis_rules *clv_model_rules(const clv_model *model);
/** See clv_model_mesh. */
CLV_API clv_dtype clv_model_dtype(const clv_model *model);

/** The folder's tokenizer; or that of bytes where there is none and the vocabulary is the 256 of them. Read by the
 *  first call that needs it; borrowed, lives with the model. It may have ids that the model has no row for, vocab and
 *  above: a text with one of them is refused where it is used. Safe from several threads.
 *  @return CLV_ENOTFOUND when there is none; clv_tokenizer_open's */
CLV_API clv_status clv_model_tokenizer(const clv_tokenizer **out, const clv_model *model, clv_error *err);

/** What training of a masked language model masks, and by what (data.h): the mask token is config.json's
 *  (mask_token_id), else the tokenizer's [MASK], -1 where neither has one; special are the tokens that the tokenizer
 *  calls so, and config.json's bos, eos and pad. tokenizer, borrowed as long as *out is used: by which texts became
 *  ids; NULL: the folder's, if it has one. Fills *out, whose `size` the caller has set.
 *  @return what opening the folder's tokenizer returns, where there is one */
CLV_API clv_status clv_model_masking(clv_mlm_masking *out, const clv_model *model, const clv_tokenizer *tokenizer,
                                     clv_error *err);

/** Whether all processes of options.job have opened the same model, each by its path: config, the tokenizer's file, and
 *  of the weights all names, dtypes, shapes and some bytes of each tensor. Ranks that mixed two models would compute
 *  nonsense in silence. Each process calls it. A model without a job: CLV_OK.
 *  @return clv_job_compare's, naming what differs and in which processes; what reading the files returns, in all */
CLV_API clv_status clv_model_verify_across_processes(const clv_model *model, clv_error *err);

/** Tensors of the folder that the model has no use for, and leaves unread: how many, and the name of the first (NULL:
 *  none; borrowed). `first` may be NULL. */
CLV_API int64_t clv_model_unused_tensor_count(const clv_model *model, const char **first);
/** What is to be said of the folder's files: tensors that are left unread, by kind and with the reason ("2 tensors
 *  bert.pooler.dense.* are not used: ..."), and what is not as config.json or the index has it. From i = 0 on; NULL
 *  beyond the last. Borrowed. */
CLV_API const char *clv_model_warning(const clv_model *model, int i);

/** Keys of its config.json that this library does not know, and ignores: "logit_scale, mup_base", cut where `out` is
 *  too small; "" where it knows them all, and for a family that a program stated. The file is read again.
 *  @return what reading it returns */
CLV_API clv_status clv_model_unknown_keys(char *out, size_t size, const clv_model *model, clv_error *err);

enum { CLV_MODEL_NAME_SIZE = 64 };
/** How its weights are held: by options.quant, or by the folder; CLV_QUANT_NONE for no model. */
CLV_API clv_quant clv_model_quant(const clv_model *model);
/** How the files in its folder hold weights, also of a model with options.config_only, for which they are opened now;
 *  CLV_QUANT_NONE where they are floats, or there are none.
 *  @return CLV_EFORMAT, CLV_EIO, CLV_ENOMEM of files that cannot be opened */
CLV_API clv_status clv_model_checkpoint_quant(clv_quant *out, const clv_model *model, clv_error *err);
/** Weights of linear layers that stay floats though options.quant is given, as their rows are no multiple of 32: how
 *  many, and the name of the first ("": there is none). `first` may be NULL. */
CLV_API int64_t clv_model_unquantized_count(const clv_model *model, char first[CLV_MODEL_NAME_SIZE]);

/** Bytes of its weights as they are held, each once: floats of its dtype, or blocks; of quantised models with tied
 *  embeddings the table and its blocks. Without adapters; 0 for no model. */
CLV_API int64_t clv_model_weights_memory_bytes(const clv_model *model);

/** Bytes of weights that ranks have asked for so far, all ranks together. */
CLV_API uint64_t clv_model_bytes_read(const clv_model *model);

/** For a program's handler of SIGBUS, set with SA_NODEFER, where models are opened with options.map: a page of a mapped
 *  file that is gone (the file was cut meanwhile, its disk fails) becomes CLV_EIO of the read that this thread is in,
 *  and this does not return then. Elsewhere it returns, and nothing can go on. */
CLV_API void clv_handle_sigbus(void);

/* ---- graphs of it ---- */

/** The shape of a graph of a model, and its inputs. */
typedef struct clv_model_graph_options {
    size_t size;        /**< sizeof the struct; 0: as its first version had it */
    int64_t batch, seq; /**< B and S of the ids; each at least 1, S at most max_positions */
    int padding_mask;   /**< nonzero: the graph gets an input "mask" u8 [B,S], 1 = a token, 0 = padding, which no row
                           attends to */
    int token_types;    /**< nonzero: an input "token_types" i32 [B,S]; else all are 0. For families that have them */
    int64_t
        context; /**< > 0: with a KV cache of this many positions; the graph gets an input "offset", i32 [B] ([] for one
                             sequence): where the first of its rows stands. Rules for the sequence are left out then */
    int last_logits;      /**< nonzero: logits only of each sequence's last row, [B,1,V] */
    int64_t split_logits; /**< nonzero: the output of clv_model_inference stays split over batch and vocabulary as the
                             rules say, so that ranks need not send it to each other */
    double dropout; /**< 0 <= p < 1, of training steps: the share of elements that are 0 of the embedding, and of what
                       attention and MLP of each layer add to it (clv_dropout). By the
                       input "step" and an element's place in the whole tensor, so that every mesh has the same; of a
                       step in parts (clv_update_options.accumulate) each part has masks of its own */
    uint64_t dropout_seed;    /**< of these */
    double attention_dropout; /**< 0 <= p < 1, of training steps: the share of attention's weights that are 0
                                 (clv_attention_options.dropout), by the same seed and input */
    int last_input; /**< nonzero, with last_logits and a batch of 1: the graph gets an input "last", i32 [1]: which row
                       is taken for the last, 0 to S - 1; for another, zeros are. Those behind it are computed, too:
                       where attention is causal they change nothing before */
    int packed; /**< nonzero, not in training steps: where this CPU is faster so, weights are held in panels of columns,
                   as its kernels read them: states "<name>.packed" [(parts,) out..., out / 16, in..., 16], which no
                   graph without this has. Of models of the library's families that were opened from a folder, without
                   quant or comm_dtype, and of no job whose CPUs are not all alike; each weight of 64 Ki
                   elements or more whose last dimension is a multiple of 16 times the mesh's ranks.
                   clv_model_state_source reads them. Bits of up to 16 rows are the same */
} clv_model_graph_options;

/** Adds the model to a graph on its mesh, which has no parameters yet: input "ids" i32 [B,S] -> logits [B,S,V], split
 *  over the vocabulary as the rules say; CLV_NONE for a model without a head. *hidden, unless NULL, receives what the
 *  head is given: [B,S,M] after the final norm. Failures are recorded in the graph. */
CLV_API clv_value clv_model_forward(clv_graph *graph, const clv_model *model, const clv_model_graph_options *how,
                                    clv_value *hidden);

/** Adds inference: output "logits" [B,S,V] (or [B,1,V]), whole on every rank unless how->split_logits; of a model
 *  without a head "hidden.last" [B,S,M]. */
CLV_API void clv_model_inference(clv_graph *graph, const clv_model *model, const clv_model_graph_options *how);

/** Adds a whole training step: inputs "ids", "labels" i32 [B,S] (-100: ignored), "lr" f32, "step" i32 (1 at first);
 *  output "loss" f32 scalar, the mean over labels. Gains and biases are not decayed. adamw NULL: its defaults. */
CLV_API void clv_model_train_step(clv_graph *graph, const clv_model *model, const clv_model_graph_options *how,
                                  const clv_adamw_options *adamw);

/** What updates parameters: clv_adamw, clv_sgd, clv_lion. */
typedef enum clv_optimizer { CLV_OPTIMIZER_ADAMW, CLV_OPTIMIZER_SGD, CLV_OPTIMIZER_LION } clv_optimizer;
/** "adamw", "sgd", "lion"; "?" for another. */
CLV_API const char *clv_optimizer_name(clv_optimizer optimizer);
/** One by its name. @return CLV_EINVAL with those that there are */
CLV_API clv_status clv_optimizer_parse(clv_optimizer *out, const char *name, clv_error *err);

/** How a training step updates parameters. Zero-initialised = AdamW's defaults, nothing clipped. */
typedef struct clv_update_options {
    size_t size;                    /**< sizeof the struct; 0: as its first version had it */
    const clv_adamw_options *adamw; /**< NULL: its defaults */
    double clip;       /**< > 0: the gradients together are scaled to a norm of at most this; 0: they are not */
    int64_t decay_all; /**< nonzero: gains and biases are decayed, too */
    int64_t optimizer; /**< a clv_optimizer; of the options that follow, as of adamw, its own alone count */
    const clv_sgd_options *sgd;   /**< NULL: its defaults */
    const clv_lion_options *lion; /**< NULL: its defaults */
    int64_t accumulate; /**< > 1: the batch goes through the model in so many parts, one after the other, of which each
                             has as many rows: those of the first come first. Gradients are added up, in f32 those of 16
                             bits, and reduced once, as those of the mean over all labels that count. Inputs of [B,S]
                             are then of [accumulate,B/accumulate,S]: the same elements */
} clv_update_options;

/** The same, updated as said (NULL: by the defaults), with one more output: "grad_norm" f32 scalar, the norm of the
 *  gradients together before they are clipped (clv_global_norm). Where it, or the loss, is not finite, the update
 *  leaves all state as it was. */
CLV_API void clv_model_optimizer_step(clv_graph *graph, const clv_model *model, const clv_model_graph_options *how,
                                      const clv_update_options *update);

/** For clv_session_options.source, with the model as source_arg: state begins as the folder's weights, of which each
 *  rank reads its own boxes; what is no parameter (a KV cache) keeps its initializer. */
CLV_API clv_state_source clv_model_state_source;

#ifdef __cplusplus
}
#endif
#endif
