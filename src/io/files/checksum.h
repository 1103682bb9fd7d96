/* checksum.h - checksum: 128-bit XXH3 as 32 hex digits, detects damage, not tampering. */
#ifndef CLEAVE_IO_FILES_CHECKSUM_H
#define CLEAVE_IO_FILES_CHECKSUM_H

#include <stddef.h>

#include "cleave/status.h"

enum { CLV_CHECKSUM_SIZE = 33 }; /* with the zero byte at its end */

typedef struct clv_checksum clv_checksum;

/* NULL when out of memory. Free by clv_checksum_free. */
clv_checksum *clv_checksum_new(void);
void clv_checksum_free(clv_checksum *sum);
void clv_checksum_reset(clv_checksum *sum);
void clv_checksum_add(clv_checksum *sum, const void *bytes, size_t size);
/* The sum of what was added since the last reset. */
void clv_checksum_text(char out[CLV_CHECKSUM_SIZE], const clv_checksum *sum);

/* Of bytes at once. */
void clv_checksum_of(char out[CLV_CHECKSUM_SIZE], const void *bytes, size_t size);

#endif
