/* table_print.c - prints a finished result table as JSON, CSV or text, and frees it. */
#include "cleave/text.h"
#include "cli/command.h"
#include "cli/output/table_internal.h"
#include "cli/output/terminal.h"

/* Quoted where it has what would end a field. */
static void print_csv_text(const char *text)
{
    char *printable = clv_printable_copy(text);
    bool quoted = strpbrk(text, ",\"") != NULL;

    printf(quoted ? "\"" : "");
    for (const char *at = printable; at != NULL && *at != '\0'; at++)
        printf(*at == '"' ? "\"\"" : "%c", *at);
    printf(quoted ? "\"" : "");
    free(printable);
}

static void print_csv_cell(const json_t *value)
{
    if (json_is_integer(value))
        printf("%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        printf("%.10g", json_real_value(value));
    else if (json_is_string(value))
        print_csv_text(json_string_value(value));
}

static void print_csv(const clv_table *t)
{
    const char *keys[CLV_TABLE_COLUMNS];
    int n = clv_table_keys(keys, t, 0);

    if (n == 0) /* no row has said what they are */
        return;
    for (int c = 0; c < n; c++)
        printf("%s%s", c > 0 ? "," : "", keys[c]);
    printf("\n");
    for (size_t r = 0; r < json_array_size(t->list[0]); r++) {
        for (int c = 0; c < n; c++) {
            printf(c > 0 ? "," : "");
            print_csv_cell(json_object_get(json_array_get(t->list[0], r), keys[c]));
        }
        printf("\n");
    }
}

/* Whether there is something to print; what there is not is freed. */
static bool is_complete(clv_table *t)
{
    if (t != NULL && !t->failed)
        return true;
    fprintf(stderr, "cleave: a table could not be printed: out of memory\n");
    clv_table_free(t);
    return false;
}

int clv_table_finish(clv_table *t, const clv_table_format *format)
{
    if (!is_complete(t))
        return CLV_EXIT_FAILED;
    if (format->csv && t->n_lists > 0) {
        print_csv(t);
    } else if (format->json) {
        json_dumpf(t->root, stdout, JSON_REAL_PRECISION(15));
        printf("\n");
    } else if (!format->csv) {
        clv_table_print_text(t, format->wide ? 0 : clv_terminal_width(stdout));
    }
    clv_table_free(t);
    return CLV_EXIT_OK;
}
