/* config_keys.h - the keys of config.json, and what is made of each: read, refused unless it says what holds here
 * anyway, or ignored as it changes no forward pass. The same of adapter_config.json is in adapters_folder.c. */
#ifndef CLEAVE_MODELS_CONFIG_KEYS_H
#define CLEAVE_MODELS_CONFIG_KEYS_H

#include "io/json.h"
#include "models/config.h"

typedef enum clv_key_use {
    CLV_IS_READ,
    CLV_MUST_BE_TRUE,
    CLV_MUST_BE_FALSE,
    CLV_MUST_BE_UNSET, /* null, false, an empty list or object */
    CLV_IS_IGNORED
} clv_key_use;

typedef struct clv_config_key {
    const char *key;
    clv_key_use use;
    const char *families; /* of these alone, "llama mistral"; NULL: of every family */
    bool null_is_refused; /* transformers takes none either; else null is as if the key were absent */
} clv_config_key;

/* Verifies the keys of an object against rows: of a key the first row of this family counts. */
clv_status clv_keys_check(const clv_config_key *rows, size_t n, const char *family, const json_t *object,
                          const char *where, clv_error *err);
/* The row of a key; NULL: it is not known. */
const clv_config_key *clv_keys_find(const clv_config_key *rows, size_t n, const char *family, const char *key);

/* Of config.json. */
clv_status clv_config_check_keys(const clv_model_family *family, const json_t *object, const char *where,
                                 clv_error *err);
bool clv_config_knows(const clv_model_family *family, const char *key);

#endif
