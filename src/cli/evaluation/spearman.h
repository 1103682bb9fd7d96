/* spearman.h - Spearman's rank correlation of two lists. */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

/* Spearman's: the correlation of ranks, equal values having the mean of theirs. *defined is false where one of the
 * lists does not order anything, and *out untouched. CLV_ENOMEM */
clv_status clv_spearman(double *out, bool *defined, const double *x, const double *y, int64_t n, clv_error *err);
