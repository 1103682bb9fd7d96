/* standard_input.c - reads all of standard input as one text. */
#include "cli/input/standard_input.h"

#include <unistd.h>

#include "cleave/sequences.h"
#include "cli/job/job_processes.h"
#include "cli/output/messages.h"

clv_status clv_standard_input_read(char **out, size_t *size, int zeros, const char *command, clv_error *err)
{
    if (clv_processes_have_job())
        return clv_fail(err, CLV_EINVAL,
                        "standard input is that of the first process alone; valid with several: text as an option, or "
                        "a file that each can read");
    if (isatty(STDIN_FILENO) == 1)
        clv_log("%s: waiting for text on standard input; Ctrl-D at the begin of a line ends it", command);
    return clv_text_read(out, size, "-", zeros, err);
}
