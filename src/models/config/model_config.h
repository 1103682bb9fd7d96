/* model_config.h - struct clv_model_config (a config.json, parsed) and the options and entry points of model graphs.
 *
 * One struct serves every family; what a family does with it is a row of the table in family_registry.c and a file of
 * its own (llama.c, gpt2.c, esm.c): reading config.json, the graph, and the map between its parameters and the
 * checkpoint's.
 *
 * config.json is read as transformers 4 and 5 write it. What is made of each key is a row of config_keys.c: what would
 * change the result and is not supported is refused by name. Ignored are auto_map, no file of which is opened, dropout
 * rates (clv_model_graph_options says one), and keys that are not known.
 */
#ifndef CLEAVE_MODELS_CONFIG_MODEL_CONFIG_H
#define CLEAVE_MODELS_CONFIG_MODEL_CONFIG_H

#include "cleave/family.h"

typedef struct clv_model_family clv_model_family;

/* Far beyond any model. */
enum { CLV_MAX_LAYERS = 10000, CLV_CONFIG_EOS = 512 };

typedef struct clv_model_config {
    const clv_model_family *family;
    int64_t hidden;        /* M */
    int64_t layers;        /* L */
    int64_t heads;         /* H, of queries */
    int64_t kv_heads;      /* K, divides H */
    int64_t head_dim;      /* D, even where rotary */
    int64_t ffn;           /* F */
    int64_t vocab;         /* V */
    int64_t max_positions; /* P, the longest sequence */
    double norm_eps;
    clv_rope_options rope; /* theta 0: positions are learned, [P,M] */
    int64_t window;        /* of attention in windowed layers; 0 where there are none */
    uint8_t windowed[(CLV_MAX_LAYERS + 7) /
                     8];       /* bit i % 8 of byte i / 8: whether layer i is one (clv_model_config_window) */
    clv_unary_kind activation; /* of the MLP */
    bool qkv_bias, output_bias, mlp_bias;
    bool bidirectional;          /* attention sees what follows, too: no text is generated */
    bool headless;               /* a bare model: hidden states, no logits */
    int64_t token_types;         /* BERT: rows of the table of token types */
    bool tie_word_embeddings;    /* the output projection is the embedding */
    bool embedding_norm;         /* LayerNorm after the embedding */
    bool token_dropout;          /* ESM: mask tokens are embedded as zeros, the rest is rescaled */
    int64_t bos, pad, mask;      /* token ids; -1 for none */
    int64_t eos[CLV_CONFIG_EOS]; /* any of them ends a text, where no generation_config.json says which do */
    int n_eos;
    int64_t adapter_rank; /* R, of adapters as a family of their own (models/adapters/lora_parameters.h) */
    int64_t number[CLV_FAMILY_EXTRA_FIELDS]; /* what a family has of its own (cleave/family.h) */
    double real[CLV_FAMILY_EXTRA_FIELDS];
} clv_model_config;

extern const clv_model_family clv_family_llama, clv_family_mistral, clv_family_qwen2, clv_family_gpt2, clv_family_esm,
    clv_family_bert;

/* config.json's name of the family: "llama". */
const char *clv_model_config_model_type(const clv_model_config *model);

/* How many keys up to its own place a query of this layer sees; 0: all. */
static inline int64_t clv_model_config_window(const clv_model_config *model, int64_t layer)
{
    return model->windowed[layer / 8] >> layer % 8 & 1 ? model->window : 0;
}

/* A config.json, or the folder that holds one.
 * @return CLV_EFORMAT, CLV_EUNSUPPORTED, both naming the key; CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
clv_status clv_model_config_read(clv_model_config *out, const char *path, clv_error *err);

/* The keys of a config.json, or of a folder's, that are not known: clv_model_unknown_keys. */
clv_status clv_model_config_unknown_keys(char *out, size_t size, const clv_model_family *family, const char *path,
                                         clv_error *err);

/* The config.json of a model as it was understood, of weights in this dtype, CLV_F32 or CLV_BF16; the caller frees it.
 * NULL when out of memory. */
char *clv_model_config_to_json(const clv_model_config *model, clv_dtype dtype);
/* Replaces a config.json; transformers loads the result, in this dtype. */
clv_status clv_model_config_write(const clv_model_config *model, clv_dtype dtype, const char *path, clv_error *err);

/* Verifies the constraints between the sizes (each >= 1, heads, parity), CLV_EINVAL; `where` begins messages. */
clv_status clv_model_config_check(const clv_model_config *model, const char *where, clv_error *err);

/* CLV_EINVAL, naming the first, for an id of ids [batch, seq] that is not in the vocabulary. */
clv_status clv_model_config_check_ids(const clv_model_config *model, const int32_t *ids, int64_t batch, int64_t seq,
                                      clv_error *err);

/* CLV_EINVAL, naming the first, for a label of [batch, seq] that is neither in the vocabulary nor CLV_IGNORE_INDEX.
 * *counted: how many count; NULL: a mean over them is wanted, and it is CLV_EINVAL, too, when none does. */
clv_status clv_model_config_check_labels(const clv_model_config *model, const int32_t *labels, int64_t batch,
                                         int64_t seq, int64_t *counted, clv_error *err);

/* ---- graphs ---- */

typedef struct clv_model_build_options {
    int64_t batch, seq; /* of this graph's ids [B,S] */
    clv_axis_rules rules;
    clv_dtype dtype;   /* of weights and activations */
    bool padding_mask; /* the graph gets an input "mask" u8 [B,S], 1 = a token, 0 = padding, which no row attends to */
    bool token_types; /* the graph gets an input "token_types" i32 [B,S]; else all are 0. For families that have them */
    /* > 0: with a KV cache of this many positions; the graph gets an input "offset", i32 [B] ([] for one sequence):
     * where each stands. */
    int64_t context;
    bool last_logits;              /* only of the last row: [B,1,V] */
    bool last_input;               /* the graph gets an input "last", i32 [1]: which row that is, of one sequence */
    bool split_logits;             /* the output stays split, as the rules say */
    int64_t micro, n_microbatches; /* of a step in so many parts, the one in hand; each is of [B,S]. 0: it is one */
    double dropout;                /* of training steps: of the embedding, and of what each block adds to it */
    double attention_dropout;      /* of these: of attention's weights */
    uint64_t dropout_seed;
    bool f32_gradients;                  /* of training steps: as in clv_model_options */
    clv_value step;                      /* of training steps: the input of that name */
    const struct clv_adapters *adapters; /* of its weights, which then are not trained, but these are; NULL: none */
    clv_quant quant; /* how weights of linear layers are held (models/weights/quantized_weights.h) */
    bool packs;      /* they are held packed (models/weights/prepacked_weights.h) */
} clv_model_build_options;

/* Adds the model to a graph without parameters: input "ids" i32 [B,S] -> logits [B,S,V], split over the vocabulary.
 * hidden, unless NULL, receives what the head is given: [B,S,M] after the final norm. CLV_NONE for a model without a
 * head. Failures are recorded in the graph. */
clv_value clv_build_forward(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                            clv_value *hidden);

/* What is trained of a model, and room for its gradients. */
typedef struct clv_trainable {
    int n;
    clv_value *parameters, *gradients;
    bool given; /* the gradients are there */
} clv_trainable;
/* Of the model that was added to the graph; lives with it. (optimizer_updates.c) */
clv_trainable clv_build_trainable(clv_graph *graph, const clv_model_build_options *build);
/* Inputs "lr" and "step", and the update of every parameter by its gradient: that of the loss, or as *trained has it;
 * with_norm: output "grad_norm". Of `how` the options of the optimizer that it says are given.
 */
void clv_build_updates(clv_graph *graph, const clv_model_build_options *build, const clv_trainable *trained,
                       clv_value loss, const clv_update_options *how, bool with_norm);
/* Adds a training step: clv_model_train_step. how: as for clv_build_updates; with_norm is ignored with accumulate. */
void clv_build_train_step(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                          const clv_update_options *how, bool with_norm);

/* Adds inference: output "logits" [B,S,V] (or [B,1,V]), whole unless split; of a model without a head "hidden.last"
 * [B,S,M] (or [B,1,M]). */
void clv_build_inference(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build);

#endif
