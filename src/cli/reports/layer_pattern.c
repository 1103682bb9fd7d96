/* layer_pattern.c - "layers.17.mlp" to "layers.*.mlp": one name for all repeated layers. */
#include "cli/reports/layer_pattern.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

char *clv_layer_pattern(const char *text)
{
    size_t n = 0;
    char *out = malloc(strlen(text) + 1);
    for (const char *p = text; out && *p; p++) {
        out[n++] = *p;
        if (isdigit((unsigned char)*p) && p > text && p[-1] == '.') {
            out[n - 1] = '*';
            while (isdigit((unsigned char)p[1]))
                p++;
        }
    }
    if (out)
        out[n] = '\0';
    return out;
}
