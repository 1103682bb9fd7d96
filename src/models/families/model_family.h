/* model_family.h - struct clv_model_family: how a family reads config.json, builds its graph and names its
 * parameters.
 */
#pragma once

#include "base/error.h"
#include "io/json/json.h"
#include "models/config/config_readers.h"
#include "models/weights/parameter_map.h"

/* Inputs of a graph; CLV_NONE: not in this graph. */
typedef struct clv_model_inputs {
    clv_value ids;         /* i32 [B,S] */
    clv_value mask;        /* u8 [B,S] in the order of positions, */
    clv_value row_mask;    /* and of rows, as ids and token_types */
    clv_value offset;      /* i32 [B], or [] for one sequence */
    clv_value token_types; /* i32 [B,S] */
} clv_model_inputs;

struct clv_model_family {
    const char *model_type;   /* of config.json */
    const char *architecture; /* Hugging Face class with a head, */
    const char *like;         /* another one with the same head (NULL: none), */
    const char *bare;         /* and the one without a head */
    const char *base;         /* prefix of tensor names that checkpoints of the bare class lack: "model." */
    /* Reads the family's keys of config.json. The model's tokens are -1, other fields zero. */
    clv_status (*read)(clv_model_config *model, const json_t *object, const char *where, clv_error *err);
    /* Writes the same keys; a new reference; NULL when out of memory. */
    json_t *(*write)(const clv_model_config *model);
    /* Builds the graph from ids to [B,S,M] after the final norm. */
    clv_value (*hidden)(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                        const clv_model_inputs *in);
    /* Builds the graph from there to logits [B,S,V]; table: the embedding table. Not called for a model without a head.
     * */
    clv_value (*head)(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                      clv_value hidden, clv_value table);
    const clv_parameter_row *parameters; /* the embedding table first; ends with a row without a name */
    /* Names of stored rotary frequencies [D/2], with % for the layer, and of one for all layers; NULL: config.json's
     * count. */
    const char *frequencies, *shared_frequencies;
    bool allows_pad_outside_vocab;
    bool is_custom; /* registered by a program (custom_family.c) */
};

/* ---- parts of graphs that families share (model_graph.c) ---- */

/* The embedding "embed.weight" of ids. */
clv_value clv_model_embedding(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                              clv_value ids);
/* The model's blocks, in scopes "layers.<i>". */
clv_value clv_model_blocks(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                           const clv_model_inputs *in, clv_value x, clv_block_form form);
/* x times the embedding table or, if untied, "lm_head.weight"; sharded over the vocabulary. */
clv_value clv_model_logits(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                           clv_value x, clv_value table);

/* The head of masked language models, in the scope "lm_head": dense, activation, LayerNorm, embedding table, bias. */
clv_value clv_model_masked_lm_head(clv_graph *graph, const clv_model_config *model,
                                   const clv_model_build_options *build, clv_value x, clv_value table);
