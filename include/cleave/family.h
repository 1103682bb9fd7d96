/** @file family.h - registers a model family of your own: its config.json keys, its graph, and how its parameters map
 *  to checkpoint tensors.
 *
 *   static const clv_family mine = {.size = sizeof mine, .model_type = "mine", .keys = keys, ...};
 *   clv_model_register_family(&mine, &err);          once, before its models are opened
 *   clv_model_open(&model, "folder", NULL, &err);    a folder whose config.json says "model_type": "mine"
 *
 * Registered models work everywhere: they run, train, score, plan, shard and save like any other, on every mesh.
 * Letters in shapes: V vocabulary, M hidden size, H heads, K KV heads, D head size, F feed-forward size, P positions.
 * tests/test_custom_family.c registers a complete family.
 */
#ifndef CLEAVE_FAMILY_H
#define CLEAVE_FAMILY_H

#include "cleave/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CLV_FAMILY_EXTRA_FIELDS = 8 /**< size of clv_family_model.number and of .real */ };

/** The configuration of a model. A plain value. Fields that no key sets are zero. */
typedef struct clv_family_model {
    int64_t hidden;            /**< M */
    int64_t layers;            /**< L */
    int64_t heads;             /**< H; 0: 1 */
    int64_t kv_heads;          /**< K, divides H; 0: H */
    int64_t head_dim;          /**< D; 0: M / H, which must divide */
    int64_t ffn;               /**< F; 0: 4 M */
    int64_t vocab;             /**< V */
    int64_t max_positions;     /**< P, the maximum sequence length; 0: 2048 */
    double norm_eps;           /**< epsilon of norms */
    double rope_theta;         /**< base of rotary embeddings, which need an even D; 0: no rotary embeddings */
    clv_unary_kind activation; /**< 0: CLV_SILU */
    int bidirectional;         /**< nonzero: an encoder; attention is not causal, and the model generates no text */
    int headless;              /**< nonzero: config.json names the class without a head. Set by the library */
    int tied_embeddings;       /**< nonzero: the output projection is the embedding table */
    int64_t number[CLV_FAMILY_EXTRA_FIELDS]; /**< integers of the family's own keys */
    double real[CLV_FAMILY_EXTRA_FIELDS];    /**< reals of the family's own keys */
    int64_t reserved[8];                     /**< must be zero */
} clv_family_model;

/** The type of a config.json key. */
typedef enum clv_family_key_type {
    CLV_KEY_INT,       /**< int64_t; sizes must be 0 to 2^26, clv_family_model.number within 2^53 */
    CLV_KEY_REAL,      /**< double, finite */
    CLV_KEY_FLAG,      /**< int: true or false */
    CLV_KEY_ACTIVATION /**< clv_unary_kind, by Hugging Face's names: "silu", "gelu_new" */
} clv_family_key_type;

/** A config.json key, for reading and writing. (vocab_size, tie_word_embeddings and token ids are written for every
 *  family.) A plain value. */
typedef struct clv_family_key {
    const char *key; /**< "n_embd" */
    clv_family_key_type type;
    size_t offset;        /**< the field that it sets: offsetof(clv_family_model, hidden) */
    int required;         /**< nonzero: a config.json without it is CLV_EFORMAT */
    double default_value; /**< value if the key is absent or null */
} clv_family_key;

/** How a parameter is stored in a checkpoint. */
typedef enum clv_parameter_form {
    CLV_PARAMETER_AS_IS,  /**< in the parameter's own shape */
    CLV_PARAMETER_LINEAR, /**< transposed (torch.nn.Linear): a weight [in, out] as [out, in], a bias (in is "") as
                               [out]. A weight [in, 2, out] is stored as two tensors */
    CLV_PARAMETER_CONV1D  /**< not transposed (GPT-2's Conv1D): [in, out], each flattened to one dimension. A weight
                               [in, take, out] is stored as columns of a fused tensor: parts first to first + take - 1
                               of `of` equal parts. If take is 1, the weight is [in, out] */
} clv_parameter_form;

/** A parameter. A plain value. */
typedef struct clv_family_parameter {
    const char *name;          /**< name of the graph's state, with % for the layer: "layers.%.mlp.up.weight" */
    const char *tensor;        /**< name of the checkpoint's tensor, with % for the layer */
    clv_parameter_form form;   /**< how it is stored */
    const char *in, *out;      /**< letters of its input and output dimensions; "" for none */
    const char *second_tensor; /**< NULL, unless the parameter is stored as two tensors */
    int first, of, take;       /**< CLV_PARAMETER_CONV1D: its parts of a fused tensor; zeros: not fused */
    int (*when)(const clv_family_model *model); /**< returns 0 if a model lacks the parameter; NULL: all have it */
} clv_family_parameter;

/** Options of the graph to build. The library fills it; a later version may have more fields than `size` covers. */
typedef struct clv_family_graph_options {
    size_t size;                 /**< sizeof the library's struct */
    int64_t batch, seq;          /**< B and S */
    const clv_axis_rules *rules; /**< how layers are sharded */
    clv_dtype dtype;             /**< dtype of weights and activations */
    int64_t context;             /**< > 0: positions of a KV cache, for clv_self_attention_options.context */
    clv_value ids;               /**< i32 [B,S] */
    clv_value mask;              /**< u8 [B,S], 1 = token; CLV_NONE: no padding */
    clv_value offset;            /**< with context: i32 [B], or [] for one sequence; else CLV_NONE */
} clv_family_graph_options;

/** A family. */
typedef struct clv_family {
    size_t size;              /**< sizeof the struct, or 0 */
    const char *model_type;   /**< model_type of its config.json */
    const char *architecture; /**< Hugging Face class with a head: "MineForCausalLM" */
    const char *bare;         /**< Hugging Face class without a head: "MineModel" */
    const char *base;         /**< prefix of tensor names that checkpoints of the bare class lack: "model."; NULL: none
                                 */
    const clv_family_key *keys;
    int n_keys;
    const clv_family_parameter *parameters; /**< the embedding table [V,M] first; parameters of layers side by side */
    int n_parameters;
    /** Checks the configuration and computes derived fields. NULL: nothing to do. */
    clv_status (*complete)(clv_family_model *model, clv_error *err);
    /** Builds the graph from ids to hidden states [B,S,M] of build->dtype after the final norm, with ops and layers
     *  (graph.h, nn.h). Every parameter of the table must become a state of its name and shape, here or in `head`; all
     *  other states must have a role other than parameter. The graph records failures: of ops, of a result of another
     *  type (CLV_ESHAPE, CLV_EDTYPE), and of a parameter without a state or a row (CLV_ENOTFOUND). */
    clv_value (*hidden)(clv_graph *graph, const clv_family_model *model, const clv_family_graph_options *build);
    /** Builds the graph from hidden states to logits [B,S,V] of build->dtype, which are checked like hidden states. If
     *  only the last token's logits are needed, hidden is [B,1,M] and the logits are [B,1,V]. table: the embedding
     *  table. NULL: a product with the table or, if it is not tied, with "lm_head.weight" [M,V]. Not called for a model
     *  without a head. */
    clv_value (*head)(clv_graph *graph, const clv_family_model *model, const clv_family_graph_options *build,
                      clv_value hidden, clv_value table);
} clv_family;

/** Registers a family for the rest of the process. The struct is copied; what it points to must stay valid.
 *  Thread-safe, also while models are opened. The family's functions are called on the thread that opens or builds a
 *  model, and may run on several threads at once.
 *  @return CLV_EEXIST when the model_type is built in or registered already; CLV_EINVAL naming the invalid field;
 *          CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_model_register_family(const clv_family *family, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
