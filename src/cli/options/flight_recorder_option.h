/* flight_recorder_option.h - --flight-recorder FILE: opens the flight recorder of a command, and writes it at the end
 * or when ranks are stuck. Where it is not given, a command that is stuck writes to the folder for temporary files.
 */
#ifndef CLEAVE_CLI_OPTIONS_FLIGHT_RECORDER_OPTION_H
#define CLEAVE_CLI_OPTIONS_FLIGHT_RECORDER_OPTION_H

#include "cleave/flight.h"

/* A row of a command's option table. */
#define CLV_FLIGHT_OPTION(out_)                                                                                        \
    {                                                                                                                  \
        .names = "--flight-recorder", .kind = CLV_OPTION_STRING, .out = (out_), .value = "FILE",                       \
        .use = CLV_OPTION_OUTPUT_FILE, .advanced = true,                                                               \
        .help = "write the last 256 instructions of each rank at the end, for cleave flight; several processes write " \
                "FILE.0, FILE.1, ... (when ranks are stuck, to a temporary file)"                                      \
    }

/* The command's, for the options of its sessions and models; made by the first call. path: as it was given, or NULL. */
clv_status clv_flight_option_open(clv_flight **out, const char *path, clv_error *err);
/* At the end of a command, all of its sessions being freed: says what was written where it failed. Returns the exit
 * code, a failure where it could not be written. */
int clv_flight_option_end(int code);

#endif
