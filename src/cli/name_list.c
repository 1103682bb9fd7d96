#include "cli/name_list.h"

#include <stdbool.h>
#include <string.h>

#include "cli/options.h"

enum { REMEMBERED = 64 }; /* names that a new one is compared with: what is named again is named soon */

clv_name_list clv_name_list_make(void)
{
    return (clv_name_list){.arena = clv_arena_new()};
}

void clv_name_list_free(clv_name_list *list)
{
    clv_arena_free(list->arena);
    *list = (clv_name_list){0};
}

void clv_name_list_add(clv_name_list *list, const char *name, size_t size)
{
    char *copy = list->arena ? clv_arena_alloc(list->arena, size + 1, 1) : NULL;
    if (!copy || clv_arena_grow(list->arena, &list->item, &list->capacity, list->n, sizeof *list->item) != 0)
        return; /* one suggestion less */
    memcpy(copy, name, size);
    for (int i = list->n - 1; i >= 0 && i >= list->n - REMEMBERED; i--)
        if (strcmp(list->item[i], copy) == 0)
            return;
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
    return clv_nearest(wanted, list->item, list->n);
}
