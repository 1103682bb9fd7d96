/* man_page.c - writes the man page of one command. */
#include <string.h>

#include "cli/manual/manual.h"

/* Writes text for troff: characters with a meaning there, and those that it would make typographic, are escaped. */
static void put(FILE *to, const char *text, size_t n)
{
    static const struct {
        char c;
        const char *as;
    } special[] = {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}, {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
    for (size_t i = 0; i < n; i++) {
        const char *as = NULL;
        for (size_t k = 0; k < sizeof special / sizeof special[0]; k++)
            as = special[k].c == text[i] ? special[k].as : as;
        if (text[i] == '.' && (i == 0 || text[i - 1] == '\n'))
            as = "\\&.";
        as ? fputs(as, to) : fputc(text[i], to);
    }
}

static void put_text(FILE *to, const char *text)
{
    put(to, text, strlen(text));
}

/* Paragraphs are filled; those with "Example" are shown as they are. */
static void put_help(FILE *to, const char *help)
{
    const char *examples = strstr(help, "Example");
    size_t n = examples ? (size_t)(examples - help) : strlen(help);
    while (n > 0 && help[n - 1] == '\n')
        n--;
    fprintf(to, ".SH DESCRIPTION\n");
    put(to, help, n);
    if (!examples)
        return;
    const char *lines = examples + strcspn(examples, ":") + 1;
    lines += strspn(lines, " \n");
    fprintf(to, "\n.SH EXAMPLES\n.nf\n");
    for (; *lines; lines += strspn(lines, " \n")) {
        size_t line = strcspn(lines, "\n");
        put(to, lines, line);
        fputc('\n', to);
        lines += line;
    }
    fprintf(to, ".fi");
}

/* "\fB\-n\fR, \fB\-\-n\-predict\fR \fIN\fR" */
static void put_option(FILE *to, const clv_option *o)
{
    const char *cursor = o->names;
    char name[CLV_OPTION_NAME_SIZE];
    const char *between = "";
    fprintf(to, ".TP\n");
    while (clv_option_next_name(&cursor, name)) {
        fprintf(to, "%s\\fB", between);
        put_text(to, name);
        fprintf(to, "\\fR");
        between = ", ";
    }
    if (o->value) {
        fprintf(to, " \\fI");
        put_text(to, o->value);
        fprintf(to, "\\fR");
    }
    fputc('\n', to);
    put_text(to, o->help);
    fprintf(to, "%s%s\n", o->required ? " (required)" : "",
            o->positional == CLV_POSITIONAL_ACCEPTED ? "; the name may be omitted" : "");
}

static void put_synopsis(FILE *to, const clv_manual_page *page)
{
    fprintf(to, ".SH SYNOPSIS\n\\fBcleave");
    if (page->path[0])
        fprintf(to, " %s", page->path);
    fprintf(to, "\\fR");
    for (int i = 0; i < page->n; i++)
        if (page->option[i].names[0] != '-')
            fprintf(to, " \\fI%s\\fR", page->option[i].names);
    fprintf(to, page->has_commands ? " \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n" : " [\\fIOPTION\\fR...]\n");
}

static void put_commands(FILE *to, const clv_manual *manual, const clv_manual_page *page)
{
    fprintf(to, ".SH COMMANDS\n");
    for (int i = clv_manual_next_subcommand_or_negative(manual, page, 0); i >= 0;
         i = clv_manual_next_subcommand_or_negative(manual, page, i + 1)) {
        fprintf(to, ".TP\n\\fB%s\\fR\n", clv_manual_page_name(&manual->page[i]));
        put_text(to, manual->page[i].summary);
        fputc('\n', to);
    }
}

/* "cleave-bench-gemm" */
static void put_title(FILE *to, const clv_manual_page *page)
{
    fprintf(to, page->path[0] ? "cleave\\-" : "cleave");
    for (const char *c = page->path; *c; c++)
        fprintf(to, *c == ' ' ? "\\-" : "%c", *c);
}

/* cleave lists its commands; a command lists those above it. */
static void put_see_also(FILE *to, const clv_manual *manual, const clv_manual_page *page)
{
    const char *between = "";
    fprintf(to, ".SH SEE ALSO\n");
    for (int i = 0; i < manual->n; i++) {
        const clv_manual_page *other = &manual->page[i];
        size_t n = strlen(other->path);
        bool above = n < strlen(page->path) && strncmp(page->path, other->path, n) == 0;
        if (above ||
            (other != page && page->has_commands && strncmp(other->path, page->path, strlen(page->path)) == 0)) {
            fprintf(to, "%s\\fB", between);
            put_title(to, other);
            fprintf(to, "\\fR(1)");
            between = ",\n";
        }
    }
    fputc('\n', to);
}

void clv_write_man_page(FILE *to, const clv_manual *manual, const clv_manual_page *page)
{
    fprintf(to, ".TH ");
    put_title(to, page);
    fprintf(to, " 1 \"\" \"cleave " CLV_VERSION "\" \"cleave\"\n.SH NAME\n");
    put_title(to, page);
    fprintf(to, " \\- ");
    put_text(to, page->summary);
    fputc('\n', to);
    put_synopsis(to, page);
    if (page->help) {
        put_help(to, page->help);
        fputc('\n', to);
    }
    if (page->has_commands)
        put_commands(to, manual, page);
    if (page->n > 0) {
        fprintf(to, ".SH OPTIONS\nA value follows its option after a blank or \\(lq=\\(rq, or at once "
                    "where that has one dash: \\fB\\-n5\\fR. Behind \\fB\\-\\-\\fR there are no options.\n");
        for (int i = 0; i < page->n; i++)
            put_option(to, &page->option[i]);
        fprintf(to, ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprint what is above\n");
    }
    fprintf(to,
            ".SH EXIT STATUS\n0: done. 1: the work failed, or a check found a difference. 2: the request was wrong.\n");
    put_see_also(to, manual, page);
}
