/* row_file.h - safetensors file of training rows: `ids` [N,S], optional `labels` and `mask` of the same shape. */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

typedef struct clv_row_file {
    int64_t rows, seq;
    int64_t vocab;         /* every id and label is below */
    bool labelled;         /* the file has labels; else they are the next ids */
    int32_t *ids, *labels; /* [rows,seq] */
    int32_t *mask;         /* [rows,seq] 1 = token, 0 = padding; NULL: all are tokens */
} clv_row_file;

/* Reads the file into memory. vocab 0: one more than the largest id or label. label_offset: 1 or 0, from an id to its
 * label in a file without labels. @return clv_data_open's */
clv_status clv_row_file_open(clv_row_file *out, const char *path, int64_t vocab, int64_t label_offset, clv_error *err);
/* Does nothing for a zeroed object. */
void clv_row_file_close(clv_row_file *file);
