#include "cli/failure.h"

#include <stdio.h>

#include "cli/last_words.h"
#include "cli/say.h"

clv_status clv_command_as_usage(const char *option, clv_status status, const clv_error *why, clv_error *err)
{
    if (status == CLV_EFORMAT || status == CLV_EUNSUPPORTED || status == CLV_ENOTFOUND)
        return clv_fail(err, CLV_EINVAL, "%s %s", option, why->message);
    if (status != CLV_OK && err != NULL)
        *err = *why;
    return status;
}

static clv_error reported;

const clv_error *clv_command_failure(void)
{
    return &reported;
}

void clv_command_note_failure(clv_status status, const char *what)
{
    (void)clv_fail(&reported, status, "%s", what);
}

int clv_command_report(const char *command, const clv_error *err)
{
    static const clv_status usage[] = {CLV_EINVAL, CLV_ESHAPE, CLV_EDTYPE, CLV_ESYNTAX,
                                       CLV_EAXIS,  CLV_ELIMIT, CLV_EEXIST};

    char rank[32] = "", line[CLV_FAILURE_LINE];
    reported = *err;
    if (clv_last_words_repeat(err))
        return CLV_EXIT_FAILED;
    if (err->rank >= 0)
        snprintf(rank, sizeof rank, " (rank %d)", err->rank);
    clv_failure_line(line, command, err);
    clv_say("%s%s", line, rank);
    for (size_t i = 0; i < sizeof usage / sizeof usage[0]; i++)
        if (err->code == usage[i])
            return CLV_EXIT_USAGE;
    return CLV_EXIT_FAILED;
}
