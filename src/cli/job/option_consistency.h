/* option_consistency.h - checks that all processes of a job were given the same command, options and input files. */
#ifndef CLEAVE_CLI_JOB_OPTION_CONSISTENCY_H
#define CLEAVE_CLI_JOB_OPTION_CONSISTENCY_H

#include "cleave/status.h"
#include "cli/parser/option_parser.h"

/* First of all which command it is, then of options as they were parsed, defaults, too, but for those that each host
 * may have its own of. Of files that are read what they hold, wherever hosts have them; what is written is not
 * compared. CLV_EINVAL naming the first that differs; CLV_OK where no job was joined. */
clv_status clv_options_check_consistent(const char *command, const clv_option *options, int n, clv_error *err);

#endif
