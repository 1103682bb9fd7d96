/* option_consistency.h - checks that all processes of a job were given the same command, options and input files. */
#pragma once

#include <stdio.h>

#include "cleave/status.h"
#include "cli/parser/option_parser.h"

/* Compares the command, then its options with their defaults, but for outputs and host_local options. Input files are
 * compared by content. @return CLV_EINVAL naming the first difference; CLV_OK without a job */
clv_status clv_options_check_consistent(const char *command, const clv_option *options, int n, clv_error *err);

/* Writes the value of an option as text: "bf16", "3.5", "given" or "not given" of a flag. */
void clv_option_write_value(FILE *to, const clv_option *option);
