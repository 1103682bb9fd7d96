/* text_data.h - text files as training data, a byte a token (vocabulary 256).
 *
 * Files are joined in the order given, with one zero byte after each but the last: the boundary, which a model learns
 * as the end of a text. Batches are a function of (seed, step, row) alone: each rank makes the rows that it needs,
 * a run that is resumed at a step continues as it would have, and the mesh does not matter.
 */
#ifndef CLEAVE_IO_TEXT_DATA_H
#define CLEAVE_IO_TEXT_DATA_H

#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_text_data {
    uint8_t *bytes;
    int64_t size;
} clv_text_data;

/* Reads all files into memory. The caller closes *out.
 * @return CLV_EINVAL for no file, an empty one (named), or less text than one sequence of seq + 1 bytes; CLV_ELIMIT
 *         beyond 16 GiB; CLV_ENOTFOUND, CLV_EIO; CLV_ENOMEM */
clv_status clv_text_data_open(clv_text_data *out, const char *const *paths, int n, int64_t seq, clv_error *err);
void clv_text_data_close(clv_text_data *data);

/* Fills rows [first, first + rows) of the batch of `step`: inputs[r][0..seq) and labels[r][0..seq), the byte that
 * follows each. A row is a run of seq + 1 bytes that starts anywhere, each start equally likely. */
void clv_text_data_batch(const clv_text_data *data, uint64_t seed, int64_t step, int64_t first, int64_t rows,
                         int64_t seq, int64_t *inputs, int64_t *labels);

#endif
