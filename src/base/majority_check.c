/* majority_check.c - majority check: which of n reported values differ from the most common one. */
#include "base/majority_check.h"

#include <stdio.h>

static int find_majority(const int64_t *values, int n)
{
    int most = 0, best = 0;
    for (int i = 0; i < n; i++) {
        int same = 0;
        for (int k = 0; k < n; k++)
            same += values[k] == values[i];
        if (same > most) {
            most = same;
            best = i;
        }
    }
    return best;
}

clv_mismatch clv_mismatch_find(const int64_t *values, int n)
{
    clv_mismatch out = {.first = -1, .majority = find_majority(values, n)};
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        if (values[i] == values[out.majority])
            continue;
        if (used < sizeof out.members - 1)
            used += (size_t)snprintf(out.members + used, sizeof out.members - used, "%s%d", out.n ? ", " : "", i);
        out.first = out.n++ ? out.first : i;
    }
    return out;
}
