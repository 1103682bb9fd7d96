/* guard_bytes.h - guard bytes around buffers and the poison pattern (NaN) of memory that holds no value. */
#ifndef CLEAVE_RUNTIME_CHECKS_GUARD_BYTES_H
#define CLEAVE_RUNTIME_CHECKS_GUARD_BYTES_H

#include <stdint.h>

#include "cleave/dtype.h"

enum { CLV_GUARD_BYTES = 128 }; /* before and behind a buffer; keeps the alignment of buffers */

/* Fills bytes with 0x7ffd, 16 bits at a time: NaN in every float dtype, an index out of every range in integers. */
void clv_guard_bytes_fill(void *at, int64_t bytes);

/* The first byte that is not so any more; -1: all are. */
int64_t clv_guard_bytes_first_overwritten(const void *at, int64_t bytes);

/* The first element that is the pattern alone, so was never written; -1: none. Bools are 0 or 1, so any byte of the
 * pattern is such; of u8, where it may be a value, 16 in a row. */
int64_t clv_guard_bytes_first_unwritten(clv_dtype dtype, const void *at, int64_t elems);

/* A sum that changes with any one word; no signature. */
uint64_t clv_guard_bytes_checksum(const void *at, int64_t bytes);

#endif
