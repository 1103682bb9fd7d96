/* config_keys.h - table of known config.json keys per family: read, required to have one value, or ignored.
 * peft_config.c has one for adapter_config.json.
 */
#pragma once

#include "io/json/json.h"
#include "models/config/model_config.h"

typedef enum clv_config_key_policy {
    CLV_CONFIG_KEY_READ,
    CLV_CONFIG_KEY_MUST_BE_TRUE,
    CLV_CONFIG_KEY_MUST_BE_FALSE,
    CLV_CONFIG_KEY_MUST_BE_UNSET, /* null, false, an empty list or object */
    CLV_CONFIG_KEY_IGNORED
} clv_config_key_policy;

/* Keys with one policy. */
typedef struct clv_config_keys {
    clv_config_key_policy policy;
    const char *families; /* "llama mistral": only of these; NULL: of every family */
    bool rejects_null;    /* as transformers does; else null counts as absent */
    const char *keys;     /* separated by spaces */
} clv_config_keys;

/* Checks the keys of an object against rows. The first row that has the key for this family counts. */
clv_status clv_config_keys_check(const clv_config_keys *rows, size_t n, const char *family, const json_t *object,
                                 const char *where, clv_error *err);
/* The row of a key; NULL: unknown. */
const clv_config_keys *clv_config_keys_find(const clv_config_keys *rows, size_t n, const char *family, const char *key);

/* The same for config.json. */
clv_status clv_config_json_check_keys(const clv_model_family *family, const json_t *object, const char *where,
                                      clv_error *err);
bool clv_config_json_knows_key(const clv_model_family *family, const char *key);
