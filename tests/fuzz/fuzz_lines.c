#include "fuzz_lines.h"

#include <stdlib.h>
#include <string.h>

int fuzz_lines(char **copy, char **line, int room, const uint8_t *data, size_t size)
{
    char *rest = *copy = malloc(size + 1);
    int n = 0;
    if (!*copy)
        return 0;
    memcpy(*copy, data, size);
    (*copy)[size] = '\0';
    for (char *next; n < room && (next = strsep(&rest, "\n"));)
        line[n++] = next;
    for (int i = n; i < room; i++)
        line[i] = *copy + strlen(*copy);
    return n;
}
