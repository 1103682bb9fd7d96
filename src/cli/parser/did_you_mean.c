/* did_you_mean.c - closest known name to a misspelled one, by edit distance. */
#include "cli/parser/did_you_mean.h"

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
