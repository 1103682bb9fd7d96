/* band.h - masks of attention that depend on positions alone. */
#pragma once

#include "interop/patterns/rewriter.h"

/* A query sees the keys for which low <= query - key <= high. */
typedef struct band {
    double low, high;
} band;

/* Whether the condition is that band, of queries and keys along these dimensions from behind. */
bool band_read(band *out, const rewriter *rw, int condition, int queries, int keys);
