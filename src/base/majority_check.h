/* majority_check.h - majority check: which of n reported values differ from the most common one. */
#pragma once

#include <stdint.h>

/* The outcome of comparing one value per member. */
typedef struct clv_mismatch {
    int n;             /* members whose value differs from the majority's; 0: all are equal */
    int first;         /* the lowest of them; -1: none */
    int majority;      /* the lowest member with the most common value */
    char members[160]; /* those that differ, "1, 4"; cut if longer */
} clv_mismatch;

/* Compares the values of n >= 1 members. Of equally common values the majority is that of the lowest member. */
clv_mismatch clv_mismatch_find(const int64_t *values, int n);
