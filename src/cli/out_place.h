/* out_place.h - whether a file or folder can be made where it is to be, before there is something to put into it. */
#ifndef CLEAVE_CLI_OUT_PLACE_H
#define CLEAVE_CLI_OUT_PLACE_H

#include <stdbool.h>

#include "cleave/status.h"

/* As clv_checkpoint_create. A folder that is there is for those to judge who would fill it. */
clv_status clv_out_place_check(const char *path, bool is_folder, clv_error *err);

#endif
