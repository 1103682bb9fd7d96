/* nearest.h - what a word that is not known was probably meant to be. */
#ifndef CLEAVE_CLI_NEAREST_H
#define CLEAVE_CLI_NEAREST_H

/* Levenshtein's distance; names of over 64 bytes are far from everything. */
int clv_edit_distance(const char *a, const char *b);
/* The one of n names that `name` was probably meant to be, by edit distance; NULL when none is near. Dashes before it
 * are no letters of it. */
const char *clv_nearest(const char *name, const char *const *names, int n);

#endif
