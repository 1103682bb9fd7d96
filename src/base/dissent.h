/* dissent.h - who of many says otherwise than most. */
#ifndef CLEAVE_BASE_DISSENT_H
#define CLEAVE_BASE_DISSENT_H

#include <stdint.h>

typedef struct clv_dissent {
    int n;         /* who say otherwise; 0: all say the same */
    int first;     /* the lowest of them */
    int common;    /* the lowest who says what most say */
    char who[160]; /* "1, 4", cut when it is longer */
} clv_dissent;

/* Of what n say, at least one. Where as many say one thing as another, most say what the lowest of all these says. */
clv_dissent clv_dissent_find(const int64_t *says, int n);

#endif
