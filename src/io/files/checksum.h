/* checksum.h - checksum: 128-bit XXH3 as 32 hex digits, detects damage, not tampering. */
#pragma once

#include "cleave/status.h"

enum { CLV_CHECKSUM_SIZE = 33 }; /* including the NUL */

typedef struct clv_checksum clv_checksum;

/* Returns an incremental checksum; NULL when out of memory. */
clv_checksum *clv_checksum_new(void);
void clv_checksum_free(clv_checksum *sum);
void clv_checksum_reset(clv_checksum *sum);
void clv_checksum_add(clv_checksum *sum, const void *bytes, size_t size);
/* Writes the checksum of the bytes added since the last reset. */
void clv_checksum_text(char out[CLV_CHECKSUM_SIZE], const clv_checksum *sum);

/* Writes the checksum of a buffer. */
void clv_checksum_of(char out[CLV_CHECKSUM_SIZE], const void *bytes, size_t size);
