/* option_consistency.c - checks that all processes of a job were given the same command, options and input files. */
#include "cli/job/option_consistency.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleave/job.h"
#include "cli/job/job_processes.h"

/* ---- files ---- */

enum { WHOLE = 64 << 20 /* of a larger file, only so many bytes at its ends are read */ };

/* FNV-1a of a file's bytes from here on, at most so many. */
static uint64_t add_bytes(uint64_t sum, FILE *file, int64_t most)
{
    for (int c; most > 0 && (c = getc(file)) != EOF; most--)
        sum = (sum ^ (uint64_t)c) * UINT64_C(1099511628211);
    return sum;
}

/* Writes a file's size and checksum. Anything but a regular file (a folder, a pipe, the name of a preset) has neither:
 * folders of models are compared elsewhere. */
static void put_file(FILE *out, const char *path)
{
    struct stat is;
    FILE *file = path && stat(path, &is) == 0 && S_ISREG(is.st_mode) ? fopen(path, "rb") : NULL;
    if (!file) {
        fputs("no file", out);
        return;
    }
    uint64_t sum = add_bytes(UINT64_C(14695981039346656037), file, WHOLE / 2);
    if (is.st_size > WHOLE)
        (void)fseeko(file, is.st_size - WHOLE / 2, SEEK_SET);
    sum = add_bytes(sum, file, WHOLE / 2);
    fprintf(out, "%lld bytes, checksum %016llx", (long long)is.st_size, (unsigned long long)sum);
    (void)fclose(file);
}

static void put_files(FILE *out, const clv_option *o)
{
    bool several = o->kind == CLV_OPTION_STRINGS || o->kind == CLV_OPTION_FILES;
    const clv_strings *all = several ? o->out : NULL;
    for (int i = 0; all && i < all->n; i++) {
        fputs(i > 0 ? ", " : "", out);
        put_file(out, all->item[i]);
    }
    if (!several)
        put_file(out, *(const char *const *)o->out);
}

/* ---- values ---- */

/* Writes a number in the fewest digits that read back as the same number. */
static void write_real(FILE *out, double value)
{
    char text[40];
    int digits = 6;
    do
        snprintf(text, sizeof text, "%.*g", digits++, value);
    while (digits <= 17 && strtod(text, NULL) != value);
    fputs(text, out);
}

static void write_enum(FILE *out, const clv_option *o, unsigned value)
{
    const char *word = o->value;
    for (unsigned i = 0; !o->name_of && i < value; i++)
        word += strcspn(word, "|") + 1;
    if (o->name_of)
        fputs(o->name_of(value), out);
    else
        fprintf(out, "%.*s", (int)strcspn(word, "|"), word);
}

void clv_option_write_value(FILE *out, const clv_option *o)
{
    switch (o->kind) {
    case CLV_OPTION_FLAG:
        fputs(*(const bool *)o->out ? "given" : "not given", out);
        break;
    case CLV_OPTION_SET:
        fputs(*(const unsigned *)o->out == (unsigned)o->min ? "given" : "not given", out);
        break;
    case CLV_OPTION_ENUM:
        write_enum(out, o, *(const unsigned *)o->out);
        break;
    case CLV_OPTION_INT:
    case CLV_OPTION_SIZE:
        fprintf(out, "%lld", (long long)*(const int64_t *)o->out);
        break;
    case CLV_OPTION_REAL:
        write_real(out, *(const double *)o->out);
        break;
    case CLV_OPTION_STRING:
    case CLV_OPTION_CHOICE: {
        const char *value = *(const char *const *)o->out;
        fputs(value ? value : "not given", out);
        break;
    }
    case CLV_OPTION_STRINGS:
    case CLV_OPTION_FILES:
        for (int i = 0; i < ((const clv_strings *)o->out)->n; i++)
            fprintf(out, "%s%s", i > 0 ? ", " : "", ((const clv_strings *)o->out)->item[i]);
        break;
    case CLV_OPTION_SIZES:
    case CLV_OPTION_INTS:
        for (int i = 0; i < ((const clv_sizes *)o->out)->n; i++)
            fprintf(out, "%s%lld", i > 0 ? "," : "", (long long)((const clv_sizes *)o->out)->item[i]);
        break;
    }
}

/* An option's value as text; the caller frees it; NULL: no memory. */
static char *text_of(const clv_option *o)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    if (o->use == CLV_OPTION_INPUT || o->use == CLV_OPTION_INPUT_OR_NAME) {
        put_files(out, o);
        return fclose(out) == 0 ? text : NULL;
    }
    clv_option_write_value(out, o);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* The first of its names with two dashes, else the first; the caller frees it. */
static char *name_of(const clv_option *o)
{
    const char *first = strstr(o->names, "--");
    first = first ? first : o->names;
    return strndup(first, strcspn(first, ","));
}

clv_status clv_options_check_consistent(const char *command, const clv_option *options, int n, clv_error *err)
{
    const clv_job_value runs = {"the command", command};
    if (!clv_processes_have_joined_job()) /* nothing to compare: files need not be read */
        return CLV_OK;
    CLV_TRY(clv_processes_check_equal(&runs, 1, err)); /* first: other commands have other options */
    clv_job_value *mine = calloc((size_t)n + 1, sizeof *mine);
    bool there = mine != NULL;
    int found = 0;
    for (int i = 0; i < n && there; i++) {
        if (options[i].use == CLV_OPTION_OUTPUT_FILE || options[i].use == CLV_OPTION_OUTPUT_FOLDER ||
            options[i].host_local)
            continue;
        mine[found] = (clv_job_value){name_of(&options[i]), text_of(&options[i])};
        there = mine[found].what && mine[found].value;
        found++;
    }
    clv_status status = CLV_OK;
    if (!there)
        status = clv_fail(err, CLV_ENOMEM, "no memory for what processes compare");
    else if (found > 0)
        status = clv_processes_check_equal(mine, found, err);
    for (int i = 0; i < found; i++) {
        free((char *)mine[i].what);
        free((char *)mine[i].value);
    }
    free(mine);
    return status;
}
