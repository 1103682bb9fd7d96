/* did_you_mean.h - closest known name to a misspelled one, by edit distance; lists of known names. */
#pragma once

#include <stddef.h>

/* Levenshtein distance; 64 for names of more than 64 bytes. */
int clv_edit_distance(const char *a, const char *b);
/* The closest of n names by edit distance; NULL when none is close. Leading dashes are ignored. */
const char *clv_did_you_mean(const char *name, const char *const *names, int n);

/* Zero-initialise. Names are dropped when memory is short. */
typedef struct clv_name_list {
    int n, capacity;
    char **item;
} clv_name_list;

void clv_name_list_free(clv_name_list *list);

/* Adds the first `size` bytes of a name. */
void clv_name_list_add(clv_name_list *list, const char *name, size_t size);
/* Adds a name and its scopes: "mlp.down.weight", "mlp.down", "mlp". */
void clv_name_list_add_scopes(clv_name_list *list, const char *name);

/* A name that ends in `wanted` ("mlp.down" for "down"), else the closest; NULL: none. */
const char *clv_name_list_suggest(const clv_name_list *list, const char *wanted);
