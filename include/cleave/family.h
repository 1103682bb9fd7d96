/** @file family.h - families of models that the library does not know: how config.json is read, what the graph is, and
 *  how parameters stand in checkpoints.
 *
 *   static const clv_family mine = {.size = sizeof mine, .model_type = "mine", .keys = keys, ...};
 *   clv_model_register_family(&mine, &err);          once, before models of it are opened
 *   clv_model_open(&model, "folder", NULL, &err);    a folder whose config.json says "model_type": "mine"
 *
 * From then on everything that takes a model takes those of the family: they are run, trained, scored, planned, sharded
 * and saved as any other, on every mesh. Letters in shapes: V vocabulary, M width, H heads, K KV heads, D head_dim, F
 * feed-forward width, P positions. tests/test_custom_family.c states a whole family.
 */
#ifndef CLEAVE_FAMILY_H
#define CLEAVE_FAMILY_H

#include "cleave/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CLV_FAMILY_EXTRA_FIELDS = 8 /**< numbers, and reals, that a family has of its own */ };

/** What config.json says of a model. A plain value, all zeros but for what keys say. */
typedef struct clv_family_model {
    int64_t hidden;            /**< M */
    int64_t layers;            /**< L */
    int64_t heads;             /**< H; 0: 1 */
    int64_t kv_heads;          /**< K, divides H; 0: H */
    int64_t head_dim;          /**< D; 0: M / H, which must divide */
    int64_t ffn;               /**< F; 0: 4 M */
    int64_t vocab;             /**< V */
    int64_t max_positions;     /**< P, the longest sequence; 0: 2048 */
    double norm_eps;           /**< of norms */
    double rope_theta;         /**< of rotary positions, which need an even D; 0: positions are learned, or none */
    clv_unary_kind activation; /**< 0: CLV_SILU */
    int bidirectional;         /**< nonzero: attention sees what follows, so that nothing is generated */
    int headless;              /**< nonzero, by the library alone: config.json names the class without a head */
    int tied_embeddings;       /**< nonzero: the output projection is the embedding's table */
    int64_t number[CLV_FAMILY_EXTRA_FIELDS]; /**< the family's own */
    double real[CLV_FAMILY_EXTRA_FIELDS];    /**< the family's own */
    int64_t reserved[8];                     /**< zeros: the struct keeps its size */
} clv_family_model;

/** What stands behind a key of config.json. */
typedef enum clv_family_key_type {
    CLV_KEY_INT,       /**< int64_t; sizes are 0 to 2^26, the family's own within 2^53 */
    CLV_KEY_REAL,      /**< double, finite */
    CLV_KEY_FLAG,      /**< int: true or false */
    CLV_KEY_ACTIVATION /**< clv_unary_kind, by Hugging Face's names: "silu", "gelu_new" */
} clv_family_key_type;

/** A key of config.json, read and written. (vocab_size, tie_word_embeddings and tokens are written for every family.) A
 *  plain value. */
typedef struct clv_family_key {
    const char *key;          /**< "n_embd" */
    clv_family_key_type kind; /**< what it is */
    size_t offset;            /**< where it goes: offsetof(clv_family_model, hidden) */
    int required;             /**< nonzero: CLV_EFORMAT without it */
    double default_value;     /**< what it is when it is absent, or null */
} clv_family_key;

/** How a parameter of ours is made of tensors of a checkpoint. */
typedef enum clv_parameter_form {
    CLV_PARAMETER_AS_IS,  /**< the same dimensions */
    CLV_PARAMETER_LINEAR, /**< ours [in, out], theirs [out, in], one dimension each; a bias, without in: [out]. With two
                     of theirs ours is [in, 2, out] */
    CLV_PARAMETER_CONV1D  /**< theirs [in, out], one dimension each, and ours columns of it where it is fused of `of`
                     parts: [in, take, out], parts [first, first + take); take 1 is no dimension */
} clv_parameter_form;

/** A parameter. A plain value. */
typedef struct clv_family_parameter {
    const char *name;        /**< the state's in the graph; % stands for the layer: "layers.%.mlp.up.weight" */
    const char *theirs[2];   /**< the tensor's in a checkpoint, % likewise; the second where two are packed, or NULL */
    clv_parameter_form form; /**< how they differ */
    const char *in, *out;    /**< letters of the dimensions, "" for none */
    int first, of, take;     /**< CLV_PARAMETER_CONV1D: parts of a fused tensor; zeros: it is not fused */
    int (*when)(const clv_family_model *model); /**< 0: this model has no such parameter; NULL: all have */
} clv_family_parameter;

/** The graph that is wanted. Made by the library; a later one may know more than `size` says. */
typedef struct clv_family_graph_options {
    size_t size;                 /**< sizeof the struct as the library has it */
    int64_t batch, seq;          /**< B and S */
    const clv_axis_rules *rules; /**< how layers are split */
    clv_dtype dtype;             /**< of weights and activations */
    int64_t context;             /**< > 0: positions of a KV cache, for clv_self_attention_options.context */
    clv_value ids;               /**< i32 [B,S] */
    clv_value mask;              /**< u8 [B,S], 1 = a token; CLV_NONE: all are */
    clv_value offset;            /**< with context: i32 [B], [] for one sequence; else CLV_NONE */
} clv_family_graph_options;

/** A family. */
typedef struct clv_family {
    size_t size;              /**< sizeof the struct; 0: as its first version had it */
    const char *model_type;   /**< config.json's */
    const char *architecture; /**< the class of its checkpoints: "MineForCausalLM" */
    const char *bare;         /**< the class of those without a head: "MineModel" */
    const char *base;         /**< that names in checkpoints of the bare model lack: "model."; NULL: nothing */
    const clv_family_key *keys;
    int n_keys;
    const clv_family_parameter *parameters; /**< the embedding's table [V,M] first; those of layers together */
    int n_parameters;
    /** Verifies what was read, and derives what follows from it. NULL: nothing to do. */
    clv_status (*complete)(clv_family_model *model, clv_error *err);
    /** From ids to [B,S,M] of build->dtype after the final norm, by ops and layers (graph.h, nn.h). Every parameter of
     *  the table becomes state of its shape by its name, here or in head; other state is of another role. Failures are
     *  recorded in the graph; so is another result (CLV_ESHAPE, CLV_EDTYPE), and a parameter that has become no state,
     *  or stands in no row (CLV_ENOTFOUND). */
    clv_value (*hidden)(clv_graph *graph, const clv_family_model *model, const clv_family_graph_options *build);
    /** From there to logits [B,S,V] of build->dtype, which are checked likewise; where only those of the last token
     *  are wanted hidden is [B,1,M], and they are [B,1,V]. table: the embedding's. NULL: a product with that or, where
     *  it is not tied, with "lm_head.weight" [M,V]. Not called for a model without a head. */
    clv_value (*head)(clv_graph *graph, const clv_family_model *model, const clv_family_graph_options *build,
                      clv_value hidden, clv_value table);
} clv_family;

/** Makes a family known to this process, for good. The struct is copied, what it points to is borrowed for as long as
 *  the process lives. Safe from several threads, also while models are opened; its functions are called on whichever
 *  thread opens or builds a model, on several at once.
 *  @return CLV_EEXIST when the model_type is known already, the library's own or registered; CLV_EINVAL naming what
 *          does not fit; CLV_ENOMEM */
CLV_API clv_status clv_model_register_family(const clv_family *family, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
