/* standard_input.h - reads all of standard input as one text. */
#ifndef CLEAVE_CLI_INPUT_STANDARD_INPUT_H
#define CLEAVE_CLI_INPUT_STANDARD_INPUT_H

#include <stddef.h>

#include "cleave/status.h"

/* Reads to its end, as clv_text_read does; the caller frees. On a terminal the command says that it waits.
 * @return CLV_EINVAL where several processes run the command, of which the first alone has one; CLV_EIO; CLV_ENOMEM */
clv_status clv_standard_input_read(char **out, size_t *size, int zeros, const char *command, clv_error *err);

#endif
