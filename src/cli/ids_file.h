/* ids_file.h - what a model is run on, from a file: safetensors with ids [B,S] and, optionally, mask [B,S] (1, and 0 =
 * padding) and token_types [B,S], integers. */
#ifndef CLEAVE_CLI_IDS_FILE_H
#define CLEAVE_CLI_IDS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/model.h"

/* All [B,S]. */
typedef struct clv_ids {
    int64_t rows, columns; /* B, S */
    int32_t *ids;
    int32_t *labels; /* each token's is the next one; none behind the last, and none that is padding or follows it */
    int32_t *token_types; /* NULL: none were given */
    uint8_t *mask;        /* NULL: none was given */
} clv_ids;

/* Reads them for a model. CLV_EINVAL names an id, token type or mask that the model does not have, and where; and,
 * unless among_others, a tensor that nothing reads. Free with clv_ids_free. */
clv_status clv_ids_read(clv_ids *out, const char *path, const clv_model_info *model, bool among_others, clv_error *err);
void clv_ids_free(clv_ids *ids);

#endif
