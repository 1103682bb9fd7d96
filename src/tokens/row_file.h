/* row_file.h - rows of ids in a safetensors file: `ids` [N,S], and `labels` of the same shape or none. */
#ifndef CLEAVE_TOKENS_ROW_FILE_H
#define CLEAVE_TOKENS_ROW_FILE_H

#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_row_file {
    int64_t rows, seq;
    int64_t vocab;         /* every id and label is below */
    int32_t *ids, *labels; /* [rows,seq] */
} clv_row_file;

/* Reads it into memory. vocab 0: one more than the largest id or label. @return as clv_data_open */
clv_status clv_row_file_open(clv_row_file *out, const char *path, int64_t vocab, clv_error *err);
/* One of zeros is none. */
void clv_row_file_close(clv_row_file *file);

#endif
