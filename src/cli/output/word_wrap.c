/* word_wrap.c - word-wrapping of help text. */
#include "cli/output/word_wrap.h"

#include <string.h>

#include "cli/output/terminal.h"

enum { WORD = 8192 };

static int columns_of(const char *word, size_t n)
{
    char text[WORD];

    snprintf(text, sizeof text, "%.*s", (int)n, word);
    return clv_text_width(text);
}

/* The bytes of a word that go on a line of `room` columns: all that fit up to a comma or its end; all where none do. */
static size_t part_of_word(const char *word, size_t n, int room)
{
    for (size_t end = n; end > 0; end--)
        if ((end == n || word[end - 1] == ',') && columns_of(word, end) <= room)
            return end;
    return n;
}

void clv_print_wrapped(FILE *to, const char *text, size_t n, int at, int indent, int width)
{
    static const char blanks[] = " \n";
    const char *end = text + n;

    for (const char *word = text + strspn(text, blanks); word < end; word += strspn(word, blanks)) {
        size_t most = (size_t)(end - word), length = strcspn(word, blanks);
        length = part_of_word(word, length < most ? length : most, width - indent);
        int columns = columns_of(word, length);
        if (at > 0 && at >= indent && at + 1 + columns > width) {
            fputc('\n', to);
            at = 0;
        }
        at += fprintf(to, "%*s", at == 0 ? indent : 1, "") + columns;
        fprintf(to, "%.*s", (int)length, word);
        word += length;
    }
    fputc('\n', to);
}

/* Where a line of a shell that takes more than `width` columns is best broken: before the last option, else the last
 * blank outside of quotes, from which its beginning fits with " \\" behind it; 0: nowhere. */
static size_t break_of(const char *line, size_t n, int width)
{
    size_t at = 0, option = 0;
    char quote = '\0';

    for (size_t i = 0; i < n && (int)i + 2 <= width; i++) {
        if (line[i] == '\'' || line[i] == '"')
            quote = quote == '\0' ? line[i] : quote == line[i] ? '\0' : quote;
        if (line[i] == ' ' && quote == '\0' && i > 0 && line[i - 1] != ' ')
            at = i;
        if (at == i && line[i + 1] == '-')
            option = i;
    }
    return option > 0 ? option : at;
}

/* Lines as they stand; what is too long goes on below, as a shell takes it. */
static void print_example(FILE *to, const char *text)
{
    static const char further[] = "      ";

    while (*text != '\0') {
        size_t n = strcspn(text, "\n"), part;
        int room = CLV_TERMINAL_WIDTH;
        while ((int)n > room && (part = break_of(text, n, room)) > 0) {
            fprintf(to, "%.*s \\\n%s", (int)part, text, further);
            text += part + 1;
            n -= part + 1;
            room = CLV_TERMINAL_WIDTH - (int)strlen(further);
        }
        fprintf(to, "%.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

void clv_print_help(FILE *to, const char *help)
{
    while (*help != '\0' && strncmp(help, "Example", 7) != 0) {
        const char *end = strstr(help, "\n\n");
        size_t n = end != NULL ? (size_t)(end - help) : strlen(help);
        clv_print_wrapped(to, help, n, 0, 0, CLV_TERMINAL_WIDTH);
        help += n + strspn(help + n, "\n");
        fputs(*help != '\0' ? "\n" : "", to);
    }
    print_example(to, help);
}
