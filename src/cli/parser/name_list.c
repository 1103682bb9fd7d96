/* name_list.c - growable list of known names from which error messages suggest the closest. */
#include "cli/parser/name_list.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/parser/did_you_mean.h"

enum { REMEMBERED = 64 }; /* names that a new one is compared with: what is named again is named soon */

void clv_name_list_free(clv_name_list *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->item[i]);
    free(list->item);
    *list = (clv_name_list){0};
}

static bool make_room(clv_name_list *list)
{
    if (list->n < list->capacity)
        return true;
    int capacity = list->capacity ? 2 * list->capacity : 64;
    char **grown = realloc(list->item, (size_t)capacity * sizeof *grown);
    if (!grown)
        return false;
    list->item = grown;
    list->capacity = capacity;
    return true;
}

void clv_name_list_add(clv_name_list *list, const char *name, size_t size)
{
    for (int i = list->n - 1; i >= 0 && i >= list->n - REMEMBERED; i--)
        if (strlen(list->item[i]) == size && memcmp(list->item[i], name, size) == 0)
            return;
    char *copy = make_room(list) ? strndup(name, size) : NULL;
    if (copy)
        list->item[list->n++] = copy;
}

void clv_name_list_add_scopes(clv_name_list *list, const char *name)
{
    for (const char *at = name; at && *at; at += *at == '.') {
        at += strcspn(at, ".");
        clv_name_list_add(list, name, (size_t)(at - name));
    }
}

static bool ends_in(const char *name, const char *wanted)
{
    size_t n = strlen(name), m = strlen(wanted);
    return n > m && name[n - m - 1] == '.' && strcmp(name + n - m, wanted) == 0;
}

const char *clv_name_list_suggest(const clv_name_list *list, const char *wanted)
{
    for (int i = 0; i < list->n; i++)
        if (ends_in(list->item[i], wanted))
            return list->item[i];
    return clv_did_you_mean(wanted, (const char *const *)list->item, list->n);
}
