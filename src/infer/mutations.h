/* mutations.h - mutations of a protein as text: "A24G,K30R:L31V", a residue, its place from 1, what takes its place;
 * colons join the places of one mutation. */
#ifndef CLEAVE_INFER_MUTATIONS_H
#define CLEAVE_INFER_MUTATIONS_H

#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_mutation_place {
    char from, to;
    int64_t at;   /* from 0 */
    int mutation; /* which one it belongs to */
} clv_mutation_place;

typedef struct clv_mutations {
    int64_t n_places;
    clv_mutation_place *place;
    int n;
    const char **name; /* [n] as they were given; parts of `list` */
    char *list;
} clv_mutations;

/* Reads a list for a protein of these residues. CLV_EINVAL says which is none, beyond the protein, or of another
 * residue than the protein has there. Free with clv_mutations_free. */
clv_status clv_mutations_parse(clv_mutations *out, const char *text, const char *protein, clv_error *err);
void clv_mutations_free(clv_mutations *mutations);

#endif
