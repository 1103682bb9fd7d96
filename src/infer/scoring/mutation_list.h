/* mutation_list.h - parses protein mutations such as "A24G,K30R:L31V": "," separates mutations, ":" joins the
 * substitutions of one. */
#pragma once

#include "cleave/status.h"

typedef struct clv_substitution {
    char from, to;
    int64_t at;   /* position in the protein, from 0 */
    int mutation; /* index of its mutation */
} clv_substitution;

typedef struct clv_mutations {
    int64_t n_substitutions;
    clv_substitution *substitution; /* [n_substitutions] */
    int n;
    const char **name; /* [n] as given; point into `list` */
    char *list;
} clv_mutations;

/* Parses mutations of a protein. CLV_EINVAL names an invalid mutation, a position beyond the protein, or a residue that
 * is not the protein's. Free with clv_mutations_free. */
clv_status clv_mutations_parse(clv_mutations *out, const char *text, const char *protein, clv_error *err);
void clv_mutations_free(clv_mutations *mutations);
