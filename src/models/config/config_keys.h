/* config_keys.h - table of known config.json keys per family: read, required to have one value, or ignored. The same
 * of adapter_config.json is in peft_folder.c.
 */
#ifndef CLEAVE_MODELS_CONFIG_CONFIG_KEYS_H
#define CLEAVE_MODELS_CONFIG_CONFIG_KEYS_H

#include "io/json/json.h"
#include "models/config/model_config.h"

typedef enum clv_config_key_policy {
    CLV_CONFIG_KEY_READ,
    CLV_CONFIG_KEY_MUST_BE_TRUE,
    CLV_CONFIG_KEY_MUST_BE_FALSE,
    CLV_CONFIG_KEY_MUST_BE_UNSET, /* null, false, an empty list or object */
    CLV_CONFIG_KEY_IGNORED
} clv_config_key_policy;

typedef struct clv_config_key {
    const char *key;
    clv_config_key_policy use;
    const char *families; /* of these alone, "llama mistral"; NULL: of every family */
    bool null_is_refused; /* transformers takes none either; else null is as if the key were absent */
} clv_config_key;

/* Verifies the keys of an object against rows: of a key the first row of this family counts. */
clv_status clv_config_keys_check(const clv_config_key *rows, size_t n, const char *family, const json_t *object,
                                 const char *where, clv_error *err);
/* The row of a key; NULL: it is not known. */
const clv_config_key *clv_config_keys_find(const clv_config_key *rows, size_t n, const char *family, const char *key);

/* Of config.json. */
clv_status clv_config_check_keys(const clv_model_family *family, const json_t *object, const char *where,
                                 clv_error *err);
bool clv_config_knows_key(const clv_model_family *family, const char *key);

#endif
