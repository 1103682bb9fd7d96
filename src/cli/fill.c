/* fill.c - see fill.h. */
#include "cli/fill.h"

#include <string.h>

void clv_print_filled(FILE *to, const char *text, size_t n, int at, int indent)
{
    static const char blanks[] = " \n";
    const char *end = text + n;

    for (const char *word = text + strspn(text, blanks); word < end; word += strspn(word, blanks)) {
        size_t most = (size_t)(end - word), length = strcspn(word, blanks);
        length = length < most ? length : most;
        if (at > 0 && at + 1 + (int)length > CLV_FILL_COLUMNS) {
            fputc('\n', to);
            at = 0;
        }
        at += at == 0 ? fprintf(to, "%*s%.*s", indent, "", (int)length, word) : fprintf(to, " %.*s", (int)length, word);
        word += length;
    }
    fputc('\n', to);
}

void clv_print_help(FILE *to, const char *help)
{
    while (*help != '\0' && strncmp(help, "Example", 7) != 0) {
        const char *end = strstr(help, "\n\n");
        size_t n = end != NULL ? (size_t)(end - help) : strlen(help);
        clv_print_filled(to, help, n, 0, 0);
        help += n + strspn(help + n, "\n");
        fputs(*help != '\0' ? "\n" : "", to);
    }
    fputs(help, to);
}
