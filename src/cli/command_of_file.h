/* command_of_file.h - which command a file is for, told by how it begins: a trace, the metrics of a run, what a flight
 * recorder left. */
#ifndef CLEAVE_CLI_COMMAND_OF_FILE_H
#define CLEAVE_CLI_COMMAND_OF_FILE_H

#include "cleave/status.h"

/* CLV_EINVAL, with what it is and the command that takes it, where the file is known to be for another command than
 * `command` ("cleave trace"). */
clv_status clv_command_of_file_check(const char *path, const char *command, clv_error *err);

#endif
