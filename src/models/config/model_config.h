/* model_config.h - struct clv_model_config (a config.json, parsed) and the options and entry points of model graphs.
 *
 * One struct serves every family. A family has a file of its own (llama.c, gpt2.c, esm.c), which reads config.json,
 * builds the graph and maps parameters to tensors, and a row in family_registry.c.
 *
 * config.json is read as transformers 4 and 5 write it. config_keys.c has a table of its keys: unsupported keys that
 * change results are rejected by name. Ignored are auto_map (no such file is opened), dropout rates (see
 * clv_model_graph_options) and unknown keys.
 */
#pragma once

#include "cleave/family.h"

typedef struct clv_model_family clv_model_family;

/* Limits far above any model. */
enum { CLV_MAX_LAYERS = 10000, CLV_CONFIG_EOS = 512, CLV_MAX_EXPERTS = 2048 };

typedef struct clv_model_config {
    const clv_model_family *family;
    int64_t hidden;        /* M */
    int64_t layers;        /* L */
    int64_t heads;         /* H, query heads */
    int64_t kv_heads;      /* K, divides H */
    int64_t head_dim;      /* D, even with rotary embeddings */
    int64_t ffn;           /* F */
    int64_t vocab;         /* V */
    int64_t max_positions; /* P, maximum sequence length */
    double norm_eps;
    clv_rope_options rope; /* theta 0: no rotary embeddings */
    struct {
        double mscale, mscale_all_dim, attention_factor; /* keys of that name in the rope scaling; 0: not stated */
    } yarn;
    int64_t kv_rank;    /* latent attention: width of the latent of keys and values; 0: another attention */
    int64_t q_rank;     /* of queries; 0: none */
    int64_t plain_dim;  /* elements of a query head that are not rotated, */
    int64_t rotary_dim; /* and that are */
    int64_t value_dim;  /* elements of a value */
    int64_t mtp_layers; /* behind `layers` in checkpoints, and not built: they predict tokens further ahead */
    int64_t window;     /* attention window of windowed layers; 0: none */
    uint8_t
        windowed[(CLV_MAX_LAYERS + 7) / 8]; /* bit i % 8 of byte i / 8: layer i is windowed (clv_model_config_window) */
    clv_unary_kind activation;              /* of the MLP */
    bool qkv_bias, output_bias, mlp_bias;
    bool bidirectional;                      /* an encoder: attention is not causal */
    bool headless;                           /* no head: hidden states, no logits */
    bool qk_norm;                            /* RMSNorm of each head of queries and keys */
    int64_t experts;                         /* E, in the place of the MLP of all layers but the dense ones; 0: none */
    uint8_t dense[(CLV_MAX_LAYERS + 7) / 8]; /* bits as in `windowed` (clv_model_config_has_experts) */
    int64_t top_k;                           /* experts that a row chooses */
    int64_t expert_ffn;                      /* X, width of one */
    int64_t shared_ffn;                      /* S, width of the one that every row has; 0: none */
    bool normalised_choice;                  /* weights of the chosen experts add up to 1 */
    bool adds_router_loss;                   /* training adds router_loss_factor times the load-balancing loss */
    double router_loss_factor;
    bool sigmoid_router;         /* scores of experts are sigmoids, and a bias that balances is added to choose */
    int64_t groups, top_groups;  /* of experts, and how many of them a row may choose from; 0: one */
    double weight_scale;         /* factor of the weights of chosen experts; 0: 1 */
    double capacity_factor;      /* of training: clv_experts_options; 0: no row is dropped */
    int64_t token_types;         /* BERT: rows of the table of token types */
    bool tie_word_embeddings;    /* the output projection is the embedding */
    bool embedding_norm;         /* LayerNorm after the embedding */
    bool token_dropout;          /* ESM: mask tokens are embedded as zeros, the rest is rescaled */
    int64_t bos, pad, mask;      /* token ids; -1 for none */
    int64_t eos[CLV_CONFIG_EOS]; /* end a text, unless a generation_config.json says which ids do */
    int n_eos;
    int64_t adapter_rank;                    /* R, in the config of adapters (lora_parameters.h) */
    int64_t number[CLV_FAMILY_EXTRA_FIELDS]; /* of registered families (cleave/family.h) */
    double real[CLV_FAMILY_EXTRA_FIELDS];
} clv_model_config;

extern const clv_model_family clv_family_llama, clv_family_mistral, clv_family_qwen2, clv_family_gpt2, clv_family_esm,
    clv_family_bert, clv_family_mixtral, clv_family_qwen2_moe, clv_family_qwen3_moe, clv_family_deepseek_v3;

/* The model_type: "llama". */
const char *clv_model_config_model_type(const clv_model_config *model);

/* Attention window of a layer: how many keys, its own included, a query sees; 0: all. */
static inline int64_t clv_model_config_window(const clv_model_config *model, int64_t layer)
{
    return model->windowed[layer / 8] >> layer % 8 & 1 ? model->window : 0;
}

/* Whether a layer has experts in the place of an MLP. */
static inline bool clv_model_config_has_experts(const clv_model_config *model, int64_t layer)
{
    return model->experts > 0 && !(model->dense[layer / 8] >> layer % 8 & 1);
}

/* False for NULL. */
bool clv_is_folder(const char *path);
/* @return CLV_EFORMAT, saying so, for a file that is a program, not a model; else CLV_OK */
clv_status clv_fail_if_program(const char *path, clv_error *err);

/* Reads a config.json, or the one in a folder.
 * @return CLV_EFORMAT, CLV_EUNSUPPORTED, both naming the key; CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
clv_status clv_model_config_read(clv_model_config *out, const char *path, clv_error *err);

/* The unknown keys of a config.json, or of the one in a folder: clv_model_unknown_keys. */
clv_status clv_model_config_unknown_keys(char *out, size_t size, const clv_model_family *family, const char *path,
                                         clv_error *err);

/* The config.json of a model with weights of this dtype, CLV_F32 or CLV_BF16; the caller frees it. NULL when out of
 * memory. */
char *clv_model_config_to_json(const clv_model_config *model, clv_dtype dtype);
/* Writes a config.json that transformers loads in this dtype. */
clv_status clv_model_config_write(const clv_model_config *model, clv_dtype dtype, const char *path, clv_error *err);

/* Checks the sizes (each >= 1, heads divide, parity): CLV_EINVAL; messages begin with `where`. */
clv_status clv_model_config_check(const clv_model_config *model, const char *where, clv_error *err);

/* CLV_EINVAL, naming the first, for an id of ids [batch, seq] outside the vocabulary. */
clv_status clv_model_config_check_ids(const clv_model_config *model, const int32_t *ids, int64_t batch, int64_t seq,
                                      clv_error *err);

/* CLV_EINVAL, naming the first, for a label of [batch, seq] that is neither in the vocabulary nor CLV_IGNORE_INDEX.
 * *counted: the number of labels not ignored; NULL: it must not be 0. */
clv_status clv_model_config_check_labels(const clv_model_config *model, const int32_t *labels, int64_t batch,
                                         int64_t seq, int64_t *counted, clv_error *err);

/* ---- graphs ---- */

typedef struct clv_model_build_options {
    int64_t batch, seq; /* of ids [B,S] */
    clv_axis_rules rules;
    clv_dtype dtype;                /* weights and activations */
    bool padding_mask, token_types; /* these and the next ones as in clv_model_graph_options */
    int64_t context;
    bool last_logits, last_input, split_logits;
    int64_t micro, n_microbatches; /* index of the microbatch being built, and their number, each [B,S]; 0: no split */
    double dropout, attention_dropout;
    uint64_t dropout_seed;
    bool f32_gradients;                  /* as in clv_model_options */
    clv_value step;                      /* input of that name, in training steps */
    bool balances_routers;               /* clv_update_options.router_bias_update_rate */
    const struct clv_adapters *adapters; /* NULL: none */
    clv_quant quant;                     /* how weights of linear layers are stored (weight_storage.h) */
    bool packs;                          /* they are prepacked (prepacked_weights.h) */
} clv_model_build_options;

/* clv_model_forward. */
clv_value clv_build_forward(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                            clv_value *hidden);

/* The trainable parameters of a model: all, or those of its adapters. */
typedef struct clv_trainable {
    int n;
    clv_value *parameters, *gradients;
    const clv_layout *moments;       /* [n] layouts of moments, and of gradients in the update */
    const clv_layout *const *shards; /* [n] moments of gradients that are reduce-scattered over ranks with different
                                        rows; NULL: of others */
    bool has_gradients;              /* gradients are computed already */
} clv_trainable;
/* For the model that was added to the graph; lives with the graph. (optimizer_updates.c) */
clv_trainable clv_build_trainable(clv_graph *graph, const clv_model_build_options *build);
/* Adds the input "lr" and the update of every parameter by its gradient of the loss, unless *trained has it.
 * output_grad_norm: adds the output "grad_norm", and returns the factor of gradients, NaN if they or the loss are not
 * finite; else CLV_NONE. The options of how->optimizer must not be NULL. */
clv_value clv_build_updates(clv_graph *graph, const clv_model_build_options *build, const clv_trainable *trained,
                            clv_value loss, const clv_update_options *how, bool output_grad_norm);
/* Adds a training step: clv_model_train_step. how: as for clv_build_updates; output_grad_norm is ignored with
 * accumulate. */
void clv_build_train_step(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                          const clv_update_options *how, bool output_grad_norm);

/* Adds the output "loss": the mean cross-entropy of the inputs "ids" and "labels". */
void clv_build_loss(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build);

/* clv_model_inference. */
void clv_build_inference(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build);
