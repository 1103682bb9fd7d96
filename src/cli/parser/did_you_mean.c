/* did_you_mean.c - closest known name to a misspelled one, by edit distance; lists of known names. */
#include "cli/parser/did_you_mean.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 64 /* bytes of a name */ };

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Two rows; names longer than these are far from everything. */
int clv_edit_distance(const char *a, const char *b)
{
    int row[LONGEST + 1];
    int la, lb;

    if (strlen(a) > LONGEST || strlen(b) > LONGEST)
        return LONGEST;
    la = (int)strlen(a);
    lb = (int)strlen(b);
    for (int j = 0; j <= lb; j++)
        row[j] = j;
    for (int i = 1; i <= la; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= lb; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[lb];
}

const char *clv_did_you_mean(const char *name, const char *const *names, int n)
{
    size_t letters = strlen(name + strspn(name, "-"));
    int best = strlen(name) < LONGEST ? 1 + (int)letters / 3 : 0;
    const char *nearest = NULL;

    if (letters < 4) /* one letter of three may be wrong, and none of one */
        best = letters == 3;
    for (int i = 0; i < n; i++) {
        int d = clv_edit_distance(name, names[i]);
        if (d <= best && (nearest == NULL || d < best)) {
            best = d;
            nearest = names[i];
        }
    }
    return nearest;
}

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
