/* config_fields.h - parsers for config.json fields that families share: sizes, activation, RoPE scaling, special
 * tokens. Every message names the file and the key.
 */
#ifndef CLEAVE_MODELS_CONFIG_CONFIG_FIELDS_H
#define CLEAVE_MODELS_CONFIG_CONFIG_FIELDS_H

#include "io/json/json.h"
#include "models/config/model_config.h"

/* Far beyond any model, small enough that products of two stay within int64_t. */
enum { CLV_MAX_HEADS = 1 << 16, CLV_MAX_WIDTH = 1 << 24, CLV_MAX_VOCAB = 1 << 24, CLV_MAX_POSITIONS = 1 << 26 };

/* "FILE: "KEY": VALUE is not supported yet (supported: VALID)". */
clv_status clv_config_unsupported(const char *where, const char *key, const char *value, const char *valid,
                                  clv_error *err);

/* A size from 1 to max. */
typedef struct clv_config_size {
    const char *key;
    int64_t *out;
    int64_t max;
    clv_json_need need;
} clv_config_size;
clv_status clv_config_sizes(const clv_config_size *sizes, size_t n, const json_t *object, const char *where,
                            clv_error *err);

/* head_dim = hidden / heads, which must divide; the keys are the family's names for them. */
clv_status clv_config_head_dim(clv_model_config *model, const char *hidden, const char *heads, const char *where,
                               clv_error *err);

/* An optional string that must be one of the words, which end in NULL. */
clv_status clv_config_choice(const json_t *object, const char *key, const char *const *words, const char *where,
                             clv_error *err);
/* An optional activation under Hugging Face's names; *out keeps its default. */
clv_status clv_config_activation(clv_unary_kind *out, const json_t *object, const char *key, const char *where,
                                 clv_error *err);
/* The name that is read as `kind`. */
const char *clv_config_activation_name(clv_unary_kind kind);
/* Rotary embedding, in any spelling: rope_theta, and rope_scaling or, where that says nothing, rope_parameters. Scaling
 * is refused unless the family has it, and then any but linear and llama3. */
clv_status clv_config_rope(clv_model_config *model, const json_t *object, bool scaled, const char *where,
                           clv_error *err);
/* "rope_parameters", as it is read; NULL when out of memory. */
json_t *clv_config_rope_json(const clv_model_config *model);
/* bos_token_id, pad_token_id, and eos_token_id, which may be a list. What is not in the vocabulary begins and ends no
 * text, and is none; padding must be in it, but for GPT-2's. */
clv_status clv_config_tokens(clv_model_config *model, const json_t *object, const char *where, clv_error *err);

/* eos_token_id as it is read: a number, a list or null. */
json_t *clv_config_eos_json(const clv_model_config *model);
/* A token id, or null. */
json_t *clv_config_token_json(int64_t token);

#endif
