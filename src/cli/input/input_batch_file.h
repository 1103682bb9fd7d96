/* input_batch_file.h - reads a command's input batch from safetensors (ids [B,S], optional mask and token_types),
 * checks it against the model, and makes the next-token labels.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cleave/model.h"

/* All [B,S]. */
typedef struct clv_input_batch {
    int64_t rows, columns; /* B, S */
    int32_t *ids;
    int32_t *labels; /* each token's is the next one; none behind the last, and none that is padding or follows it */
    int32_t *token_types; /* NULL: none were given */
    uint8_t *mask;        /* NULL: none was given */
} clv_input_batch;

/* Reads them for a model. CLV_EINVAL names an id, token type or mask that the model does not have, and where; and,
 * unless allow_other_tensors, a tensor that nothing reads. Free with clv_input_batch_free. */
clv_status clv_input_batch_read(clv_input_batch *out, const char *path, const clv_model_info *model,
                                bool allow_other_tensors, clv_error *err);
void clv_input_batch_free(clv_input_batch *ids);
