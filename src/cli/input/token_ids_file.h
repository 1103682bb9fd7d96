/* token_ids_file.h - input file of a model: safetensors with ids, mask and token_types, checked against the model. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cleave/model.h"

/* All [B,S]. */
typedef struct clv_token_ids {
    int64_t rows, columns; /* B, S */
    int32_t *ids;
    int32_t *labels; /* each token's is the next one; none behind the last, and none that is padding or follows it */
    int32_t *token_types; /* NULL: none were given */
    uint8_t *mask;        /* NULL: none was given */
} clv_token_ids;

/* Reads them for a model. CLV_EINVAL names an id, token type or mask that the model does not have, and where; and,
 * unless allow_other_tensors, a tensor that nothing reads. Free with clv_token_ids_free. */
clv_status clv_token_ids_read(clv_token_ids *out, const char *path, const clv_model_info *model,
                              bool allow_other_tensors, clv_error *err);
void clv_token_ids_free(clv_token_ids *ids);
