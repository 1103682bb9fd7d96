/** @file text_data.h - text files as training data, a byte a token (vocabulary 256).
 *
 * Files are joined in the order given, with one zero byte after each but the last: the boundary, which a model learns
 * as the end of a text. Batches are a function of (seed, step, row) alone: each rank makes the rows that it needs, a
 * run that is resumed at a step continues as it would have, and the mesh does not matter. Immutable once open: threads
 * may share it.
 */
#ifndef CLEAVE_TEXT_DATA_H
#define CLEAVE_TEXT_DATA_H

#include <stdint.h>

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Text as tokens. */
typedef struct clv_text_data clv_text_data;

/** Reads n files into memory. Free with clv_text_data_close.
 *  @return CLV_EINVAL for no file, an empty one (named), a seq below 1, or less text than one sequence of
 *          seq + 1 bytes; CLV_ELIMIT beyond 16 GiB; CLV_EFORMAT for what is no regular file; CLV_ENOTFOUND,
 *          CLV_EIO; CLV_ENOMEM */
CLV_API clv_status clv_text_data_open(clv_text_data **out, const char *const *paths, int n, int64_t seq,
                                      clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_text_data_close(clv_text_data *data);
/** Bytes of all files, boundaries among them. */
CLV_API int64_t clv_text_data_size(const clv_text_data *data);
/** A number that other text would hardly have (XXH3 of all bytes, boundaries among them), the same everywhere: by which
 *  a run that is resumed is known to be of the same text. 0 for NULL. */
CLV_API uint64_t clv_text_data_checksum(const clv_text_data *data);

/** Fills rows [first, first + rows) of the batch of `step`: ids[r][0..seq) and labels[r][0..seq), the byte that follows
 *  each. A row is a run of seq + 1 bytes that starts anywhere, each start equally likely.
 *  @return CLV_EINVAL for rows or a seq below 1, or more than the text has */
CLV_API clv_status clv_text_data_batch(const clv_text_data *data, uint64_t seed, int64_t step, int64_t first,
                                       int64_t rows, int64_t seq, int32_t *ids, int32_t *labels, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
