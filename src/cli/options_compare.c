/* options_compare.c - see options_compare.h. */
#include "cli/options_compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/job.h"
#include "cli/processes.h"

/* An option's value as text; the caller frees it; NULL: no memory. */
static char *text_of(const clv_option *o)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    switch (o->kind) {
    case CLV_OPTION_FLAG:
        fputs(*(const bool *)o->out ? "yes" : "no", out);
        break;
    case CLV_OPTION_INT:
    case CLV_OPTION_SIZE:
        fprintf(out, "%lld", (long long)*(const int64_t *)o->out);
        break;
    case CLV_OPTION_REAL:
        fprintf(out, "%.9g", *(const double *)o->out);
        break;
    case CLV_OPTION_STRING:
    case CLV_OPTION_CHOICE: {
        const char *value = *(const char *const *)o->out;
        fputs(value ? value : "none", out);
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

clv_status clv_options_compare(const clv_option *options, int n, clv_error *err)
{
    clv_job_alike *mine = calloc((size_t)n + 1, sizeof *mine);
    bool there = mine != NULL;
    int found = 0;
    for (int i = 0; i < n && there; i++) {
        if (options[i].use != CLV_OPTION_NO_FILE || options[i].kind == CLV_OPTION_FILES || options[i].of_host)
            continue;
        mine[found] = (clv_job_alike){name_of(&options[i]), text_of(&options[i])};
        there = mine[found].what && mine[found].value;
        found++;
    }
    clv_status status = CLV_OK;
    if (!there)
        status = clv_fail(err, CLV_ENOMEM, "no memory for what processes compare");
    else if (found > 0)
        status = clv_processes_compare(mine, found, err);
    for (int i = 0; i < found; i++) {
        free((char *)mine[i].what);
        free((char *)mine[i].value);
    }
    free(mine);
    return status;
}
