/* output_path.h - checks early that an output file or folder can be created. */
#ifndef CLEAVE_CLI_PARSER_OUTPUT_PATH_H
#define CLEAVE_CLI_PARSER_OUTPUT_PATH_H

#include <stdbool.h>

#include "cleave/status.h"

/* As clv_checkpoint_create. A folder that is there is for those to judge who would fill it. */
clv_status clv_output_path_check(const char *path, bool is_folder, clv_error *err);

#endif
