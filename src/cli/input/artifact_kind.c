/* artifact_kind.c - recognizes cleave's own output files (trace, metrics, flight recorder dump) and names the command
 * that reads each.
 */
#include "cli/input/artifact_kind.h"

#include <stdio.h>
#include <string.h>

/* Text in the first line of each kind of file. */
static const struct {
    const char *mark, *what, *command;
} kinds[] = {{"\"cleave_flight\":", "what a flight recorder left", "cleave flight"},
             {"\"cleave_trace\":", "a trace", "cleave trace"},
             {"\"traceEvents\":", "a trace", "cleave trace"},
             {"{\"step\":", "the metrics of a run", "cleave plot"}};

clv_status clv_artifact_kind_check(const char *path, const char *command, clv_error *err)
{
    char begin[1024] = "";
    FILE *file = fopen(path, "re");

    if (!file) /* which the command finds out */
        return CLV_OK;
    begin[fread(begin, 1, sizeof begin - 1, file)] = '\0';
    fclose(file);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strstr(begin, kinds[i].mark))
            return strcmp(kinds[i].command, command) == 0 ? CLV_OK
                                                          : clv_fail(err, CLV_EINVAL, "%s: is %s; '%s %s' takes it",
                                                                     path, kinds[i].what, kinds[i].command, path);
    return CLV_OK;
}
