/* mutation_list.h - parses protein mutations such as "A24G,K30R:L31V". */
#ifndef CLEAVE_INFER_SCORING_MUTATION_LIST_H
#define CLEAVE_INFER_SCORING_MUTATION_LIST_H

#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_substitution {
    char from, to;
    int64_t at;   /* from 0 */
    int mutation; /* which one it belongs to */
} clv_substitution;

typedef struct clv_mutations {
    int64_t n_places;
    clv_substitution *place;
    int n;
    const char **name; /* [n] as they were given; parts of `list` */
    char *list;
} clv_mutations;

/* Reads a list for a protein of these residues. CLV_EINVAL says which is none, beyond the protein, or of another
 * residue than the protein has there. Free with clv_mutations_free. */
clv_status clv_mutations_parse(clv_mutations *out, const char *text, const char *protein, clv_error *err);
void clv_mutations_free(clv_mutations *mutations);

#endif
