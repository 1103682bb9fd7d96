/* flight_recorder_option.h - --flight-recorder FILE: opens the flight recorder of a command, and writes it at the end
 * or when ranks are stuck. Where it is not given, a command that is stuck writes to the folder for temporary files.
 */
#pragma once

#include "cleave/flight.h"

/* A row of a command's option table. */
#define CLV_FLIGHT_OPTION(out_)                                                                                        \
    CLV_OPT_STRING("--flight-recorder", out_, "FILE",                                                                  \
                   "write the last 256 instructions of each rank at the end, for cleave flight; several processes "    \
                   "write FILE.0, FILE.1, ... (only when ranks are stuck, to a temporary file)",                       \
                   .use = CLV_OPTION_OUTPUT_FILE, .advanced = true)

/* *out: the flight recorder of the command, created by the first call. path: of --flight-recorder; NULL: not given. */
clv_status clv_flight_option_open(clv_flight **out, const char *path, clv_error *err);
/* Called at the end of a command, after its sessions are freed: prints the path of the recording when the command
 * failed. Returns the exit code, a failure when the recording could not be written. */
int clv_flight_option_end(int code);
