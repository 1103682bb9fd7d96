/* guard_bytes.h - guard bytes around buffers and the poison pattern (NaN) of memory that holds no value. */
#pragma once

#include "cleave/dtype.h"

enum { CLV_GUARD_BYTES = 128 }; /* before and after a buffer; keeps the alignment of buffers */

/* Fills bytes with 0x7ffd, 16 bits at a time: NaN in every float dtype, an index out of every range in integers. */
void clv_guard_bytes_fill(void *at, int64_t bytes);

/* The first byte that differs from the pattern; -1: none. */
int64_t clv_guard_bytes_first_overwritten(const void *at, int64_t bytes);

/* The first element that still has the pattern, so was never written; -1: none. For bools, which are 0 or 1, one byte
 * of the pattern is enough; for u8, where it may be a value, it takes 16 in a row. */
int64_t clv_guard_bytes_first_unwritten(clv_dtype dtype, const void *at, int64_t elems);

/* A checksum that changes when any one word changes; not cryptographic. */
uint64_t clv_guard_bytes_checksum(const void *at, int64_t bytes);
