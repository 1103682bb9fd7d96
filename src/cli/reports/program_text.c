/* program_text.c - prints a compiled program; replaces names in texts: display names of ops, one name for repeated
 * layers. */
#include "cli/reports/program_text.h"

#include <ctype.h>

#include "cleave/op.h"
#include "cli/command.h"

char *clv_replace_layer_numbers(const char *text)
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

static int is_part_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* The op that is named at `at`; NULL: none. */
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

int clv_print_program(const clv_program *program, size_t (*print)(char *, size_t, const clv_program *))
{
    size_t n = print(NULL, 0, program);
    char *text = malloc(n + 1);
    if (!text)
        return CLV_EXIT_FAILED;
    print(text, n + 1, program);
    fputs(text, stdout);
    free(text);
    return CLV_EXIT_OK;
}
