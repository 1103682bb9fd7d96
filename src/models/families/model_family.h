/* model_family.h - struct clv_model_family: how a family reads config.json, builds its graph and names its
 * parameters.
 */
#ifndef CLEAVE_MODELS_FAMILIES_MODEL_FAMILY_H
#define CLEAVE_MODELS_FAMILIES_MODEL_FAMILY_H

#include "io/json/json.h"
#include "models/config/model_config.h"
#include "models/weights/parameter_map.h"

/* Inputs of a graph; CLV_NONE where the build has none. */
typedef struct clv_model_inputs {
    clv_value ids;         /* i32 [B,S] */
    clv_value mask;        /* u8 [B,S] */
    clv_value offset;      /* i32 [B], or [] for one sequence */
    clv_value token_types; /* i32 [B,S] */
} clv_model_inputs;

struct clv_model_family {
    const char *model_type;   /* config.json's */
    const char *architecture; /* the class of its checkpoints ... */
    const char *like;         /* ... and another with the same head, or NULL */
    const char *bare;         /* the class of those without a head */
    const char *base;         /* of names in checkpoints of the bare model, without a head, this is missing: "model." */
    /* The keys of config.json that are the family's own; the model arrives with tokens -1 and all else zero. */
    clv_status (*read)(clv_model_config *model, const json_t *object, const char *where, clv_error *err);
    /* The same keys, a new reference; NULL when out of memory. */
    json_t *(*write)(const clv_model_config *model);
    /* From ids to [B,S,M] after the final norm. The embedding's table is the first parameter. */
    clv_value (*hidden)(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                        const clv_model_inputs *in);
    /* From there to logits [B,S,V]; table: the embedding's. Not called for a model without a head. */
    clv_value (*head)(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                      clv_value hidden, clv_value table);
    const clv_parameter_row *parameters; /* ended by a row without a name */
    /* Tensors [D/2] that rotary positions turn by where checkpoints have them, with % for the layer, and one for all
     * layers; NULL: positions are by config.json. */
    const char *frequencies, *shared_frequencies;
    bool pads_beyond; /* pad_token_id may be an id that the embedding has no row for */
    bool stated;      /* by a program (custom_family.c) */
};

/* ---- what the families' graphs have in common (model_graph.c) ---- */

/* The embedding "embed.weight" of ids. */
clv_value clv_model_embedding(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                              clv_value ids);
/* The model's blocks under "layers.<i>". All but their form is the model's. */
clv_value clv_model_blocks(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                           const clv_model_inputs *in, clv_value x, clv_block_form form);
/* x by the embedding's table or, where untied, by "lm_head.weight": split over the vocabulary. */
clv_value clv_model_logits(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                           clv_value x, clv_value table);

/* The head of masked language models, state under "lm_head": dense, activation, LayerNorm, the embedding's table, a
 * bias a token. */
clv_value clv_model_masked_lm_head(clv_graph *graph, const clv_model_config *model,
                                   const clv_model_build_options *build, clv_value x, clv_value table);

#endif
