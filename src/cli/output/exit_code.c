/* exit_code.c - prints a command's error and returns its exit code, 1 or 2 (command.c has the last word). */
#include "cli/output/exit_code.h"

#include <stdio.h>

#include "cli/job/crash_report.h"
#include "cli/output/messages.h"

clv_status clv_as_usage_error(const char *option, clv_status status, const clv_error *why, clv_error *err)
{
    if (status == CLV_EFORMAT || status == CLV_EUNSUPPORTED || status == CLV_ENOTFOUND)
        return clv_fail(err, CLV_EINVAL, "%s %s", option, why->message);
    if (status != CLV_OK && err != NULL)
        *err = *why;
    return status;
}

static clv_error reported;

const clv_error *clv_command_last_failure(void)
{
    return &reported;
}

void clv_command_record_failure(clv_status status, const char *what)
{
    (void)clv_fail(&reported, status, "%s", what);
}

int clv_command_print_error(const char *command, const clv_error *err)
{
    static const clv_status usage[] = {CLV_EINVAL, CLV_ESHAPE, CLV_EDTYPE, CLV_ESYNTAX,
                                       CLV_EAXIS,  CLV_ELIMIT, CLV_EEXIST};

    char rank[32] = "", line[CLV_FAILURE_LINE];
    reported = *err;
    if (clv_crash_report_is_duplicate(err))
        return CLV_EXIT_FAILED;
    if (err->rank >= 0)
        snprintf(rank, sizeof rank, " (rank %d)", err->rank);
    clv_format_failure(line, command, err);
    clv_log("%s%s", line, rank);
    for (size_t i = 0; i < sizeof usage / sizeof usage[0]; i++)
        if (err->code == usage[i])
            return CLV_EXIT_USAGE;
    return CLV_EXIT_FAILED;
}
