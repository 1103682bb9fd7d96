/* majority_check.h - majority check: which of n reported values differ from the most common one. */
#ifndef CLEAVE_BASE_MAJORITY_CHECK_H
#define CLEAVE_BASE_MAJORITY_CHECK_H

#include <stdint.h>

typedef struct clv_mismatch {
    int n;         /* who say otherwise; 0: all say the same */
    int first;     /* the lowest of them */
    int majority;  /* the lowest who says what most say */
    char who[160]; /* "1, 4", cut when it is longer */
} clv_mismatch;

/* Of what n say, at least one. Where as many say one thing as another, most say what the lowest of all these says. */
clv_mismatch clv_mismatch_find(const int64_t *says, int n);

#endif
