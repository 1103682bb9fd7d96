/* config_readers.h - parsers for config.json fields that families share: sizes, activation, RoPE scaling, special
 * tokens. Every message names the file and the key.
 */
#pragma once

#include "io/json/json.h"
#include "models/config/model_config.h"

/* Limits far above any model; products of two fit int64_t. */
enum { CLV_MAX_HEADS = 1 << 16, CLV_MAX_WIDTH = 1 << 24, CLV_MAX_VOCAB = 1 << 24, CLV_MAX_POSITIONS = 1 << 26 };

/* "FILE: "KEY": VALUE is not supported yet (supported: VALID)". */
clv_status clv_config_fail_unsupported(const char *where, const char *key, const char *value, const char *valid,
                                       clv_error *err);

/* A size from 1 to max. */
typedef struct clv_config_size {
    const char *key;
    int64_t *out;
    int64_t max;
    clv_json_need need;
} clv_config_size;
clv_status clv_config_read_sizes(const clv_config_size *sizes, size_t n, const json_t *object, const char *where,
                                 clv_error *err);

/* Sets head_dim to hidden / heads, which must divide; messages name the keys. */
clv_status clv_config_set_head_dim(clv_model_config *model, const char *hidden, const char *heads, const char *where,
                                   clv_error *err);

/* Checks an optional string against a NULL-terminated list of words. */
clv_status clv_config_check_choice(const json_t *object, const char *key, const char *const *words, const char *where,
                                   clv_error *err);
/* Reads an optional activation by Hugging Face's name; if absent, *out keeps its value. */
clv_status clv_config_read_activation(clv_unary_kind *out, const json_t *object, const char *key, const char *where,
                                      clv_error *err);
/* The name of an activation; NULL: none. */
const char *clv_config_activation_name(clv_unary_kind kind);
/* Reads rotary embeddings in all spellings: rope_theta, and rope_scaling or, if that is empty, rope_parameters. scaled:
 * the family supports linear and llama3 scaling (with latent attention yarn, too); else any scaling is rejected. */
clv_status clv_config_read_rope(clv_model_config *model, const json_t *object, bool scaled, const char *where,
                                clv_error *err);
/* Of latent attention: factors of the rotated part of scores, and of scores (transformers' yarn_apply_mscale). */
double clv_config_rotary_scale(const clv_model_config *model);
double clv_config_score_scale(const clv_model_config *model);
/* A "rope_parameters" object; NULL when out of memory. */
json_t *clv_config_rope_to_json(const clv_model_config *model);
/* Reads bos_token_id, pad_token_id and eos_token_id (or a list). Ids outside the vocabulary become -1; for pad they are
 * an error, except for GPT-2. */
clv_status clv_config_read_special_tokens(clv_model_config *model, const json_t *object, const char *where,
                                          clv_error *err);

/* An eos_token_id: a number, a list or null. */
json_t *clv_config_eos_to_json(const clv_model_config *model);
/* A token id, or null. */
json_t *clv_config_token_to_json(int64_t token);
