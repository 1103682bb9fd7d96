/* name_list.h - growable list of known names from which error messages suggest the closest. */
#ifndef CLEAVE_CLI_PARSER_NAME_LIST_H
#define CLEAVE_CLI_PARSER_NAME_LIST_H

#include <stddef.h>

/* Zero-initialise it. What there was no memory for is not suggested. */
typedef struct clv_name_list {
    int n, capacity;
    char **item;
} clv_name_list;

void clv_name_list_free(clv_name_list *list);

/* Adds the first `size` bytes of a name. */
void clv_name_list_add(clv_name_list *list, const char *name, size_t size);
/* Adds a name, and the scopes that it lies in: "mlp.down.weight", "mlp.down", "mlp". */
void clv_name_list_add_scopes(clv_name_list *list, const char *name);

/* A name that ends in what is wanted ("mlp.down", of "down"), else one nearly the same; NULL: none. */
const char *clv_name_list_suggest(const clv_name_list *list, const char *wanted);

#endif
