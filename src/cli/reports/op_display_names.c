/* op_display_names.c - replaces op kinds in a sentence by their display names. */
#include "cli/reports/op_display_names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/op.h"

static int is_part_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* The op whose name stands at `at`, alone; NULL: none. */
static const clv_op_def *op_at(const char *sentence, const char *at)
{
    const clv_op_def *op = NULL;
    if (at > sentence && is_part_of_name(at[-1]))
        return NULL;
    while ((op = clv_op_next(op)) != NULL) {
        size_t n = strlen(op->name);
        if (strncmp(at, op->name, n) == 0 && !is_part_of_name(at[n]))
            return op;
    }
    return NULL;
}

char *clv_replace_op_names(const char *sentence)
{
    char *out = NULL;
    size_t size;
    FILE *to = open_memstream(&out, &size);
    if (!to)
        return NULL;
    for (const char *at = sentence; *at;) {
        const clv_op_def *op = op_at(sentence, at);
        fputs(op ? clv_op_display_name(op) : (char[]){*at, '\0'}, to);
        at += op ? strlen(op->name) : 1;
    }
    if (fclose(to) == 0)
        return out;
    free(out);
    return NULL;
}
