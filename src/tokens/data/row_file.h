/* row_file.h - safetensors file of training rows: `ids` [N,S], optional `labels` and `mask` of the same shape. */
#ifndef CLEAVE_TOKENS_DATA_ROW_FILE_H
#define CLEAVE_TOKENS_DATA_ROW_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_row_file {
    int64_t rows, seq;
    int64_t vocab;         /* every id and label is below */
    bool labelled;         /* labels are the file's; else made of ids */
    int32_t *ids, *labels; /* [rows,seq] */
    int32_t *mask;         /* [rows,seq] 1 = a token, 0 = padding; NULL: all are tokens */
} clv_row_file;

/* Reads it into memory. vocab 0: one more than the largest id or label. ahead: how much further the id stands that is a
 * label, where the file has none: 1 or 0. @return as clv_data_open */
clv_status clv_row_file_open(clv_row_file *out, const char *path, int64_t vocab, int64_t ahead, clv_error *err);
/* One of zeros is none. */
void clv_row_file_close(clv_row_file *file);

#endif
