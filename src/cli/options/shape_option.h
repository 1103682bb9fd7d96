/* shape_option.h - parser of --shape: 64x64 or i=512,k=256. */
#pragma once

#include "cleave/layout.h"

/* "64x64" -> {64, 64}; "" is a scalar. CLV_ESYNTAX says what is valid. */
clv_status clv_shape_option_parse(int64_t *shape, int *rank, const char *option, const char *text, clv_error *err);

/* "i=512,k=256,j=1024" -> size[letter]; letters not named keep what they have. CLV_ESYNTAX, also for a letter named
 * twice. */
clv_status clv_letter_sizes_option_parse(int64_t size[128], const char *option, const char *text, clv_error *err);
