/* artifact_kind.h - recognizes cleave's own output files (trace, metrics, flight recorder dump) and names the command
 * that reads each.
 */
#pragma once

#include "cleave/status.h"

/* CLV_EINVAL, with what it is and the command that takes it, where the file is known to be for another command than
 * `command` ("cleave trace"). */
clv_status clv_artifact_kind_check(const char *path, const char *command, clv_error *err);
