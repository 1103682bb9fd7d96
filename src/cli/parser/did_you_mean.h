/* did_you_mean.h - closest known name to a misspelled one, by edit distance. */
#ifndef CLEAVE_CLI_PARSER_DID_YOU_MEAN_H
#define CLEAVE_CLI_PARSER_DID_YOU_MEAN_H

/* Levenshtein's distance; names of over 64 bytes are far from everything. */
int clv_edit_distance(const char *a, const char *b);
/* The one of n names that `name` was probably meant to be, by edit distance; NULL when none is near. Dashes before it
 * are no letters of it. */
const char *clv_did_you_mean(const char *name, const char *const *names, int n);

#endif
