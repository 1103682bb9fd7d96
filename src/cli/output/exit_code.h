/* exit_code.h - prints a command's error and returns its exit code, 1 or 2 (command.c has the last word).
 *
 * Exit codes: 0 done; 1 the work failed (I/O, memory, a peer, a check that found a difference); 2 the request was
 * wrong (unknown flag, bad value, shapes that do not fit).
 */
#pragma once

#include "cleave/status.h"

enum { CLV_EXIT_OK = 0, CLV_EXIT_FAILED = 1, CLV_EXIT_USAGE = 2 };

/* Errors of a file that configures the command (rules, a hardware profile) are usage errors: CLV_EINVAL, naming the
 * option. Errors of data files (models, text, ids) are not. `status`, `why`: of the call that read the file. */
clv_status clv_as_usage_error(const char *option, clv_status status, const clv_error *why, clv_error *err);

/* Records a failure that is printed already, for the processes that wait for this one. */
void clv_command_record_failure(clv_status status, const char *what);
/* Prints "cleave train: message" on stderr; returns the exit code of the status. */
int clv_command_print_error(const char *command, const clv_error *err);
/* The last failure; its code is CLV_OK without one. */
const clv_error *clv_command_last_failure(void);
