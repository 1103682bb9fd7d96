/* output_path.h - checks early that an output can be created, and is not also an input. */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

/* Tries to create the file, and removes it; errors of clv_checkpoint_create. An existing folder is accepted. */
clv_status clv_output_path_check(const char *path, bool is_folder, clv_error *err);

/* Whether the regular file `out` is `in`, or a file directly in the folder `in`, through any links. */
bool clv_is_same_file(const char *out, const char *in);
