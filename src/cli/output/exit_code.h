/* exit_code.h - exit codes: prints a command's error and maps its status to 0, 1 or 2.
 *
 * Exit codes: 0 done; 1 the work failed (I/O, memory, a peer, a check that found a difference); 2 the request was
 * wrong (unknown flag, bad value, shapes that do not fit).
 */
#ifndef CLEAVE_CLI_OUTPUT_EXIT_CODE_H
#define CLEAVE_CLI_OUTPUT_EXIT_CODE_H

#include "cleave/status.h"

enum { CLV_EXIT_OK = 0, CLV_EXIT_FAILED = 1, CLV_EXIT_USAGE = 2 };

/* A file that says what to do (rules, a machine's profile) is part of the usage: what is wrong with it (that it is not
 * there, or no file, its form, what it asks for, the names in it) is CLV_EINVAL, naming the option. Files that are
 * worked on (models, texts, ids) are not: what is wrong with them fails the work. `status` and `why` as the call that
 * read it left them. */
clv_status clv_as_usage_error(const char *option, clv_status status, const clv_error *why, clv_error *err);

/* Prints "cleave train: message" on stderr; returns the exit code that the status calls for. */
/* Keeps what a command ends by for processes that wait for this one; it is printed already. */
void clv_command_set_failure(clv_status status, const char *what);
int clv_command_print_error(const char *command, const clv_error *err);
/* What it was told last; its code is CLV_OK where it was told nothing. */
const clv_error *clv_command_last_failure(void);

#endif
