/* hardware_option.h - `--hardware PROFILE`: a file, or the name of a machine that the library knows. */
#ifndef CLEAVE_CLI_HARDWARE_OPTION_H
#define CLEAVE_CLI_HARDWARE_OPTION_H

#include "cleave/machine.h"

#define CLV_HARDWARE_OPTION(out_, beside)                                                                              \
    {                                                                                                                  \
        .names = "--hardware", .kind = CLV_OPTION_STRING, .out = (out_), .value = "PROFILE", .not_beside = (beside),   \
        .help = "what predicts times: a file of bench profile, tpu-v2-8 or h100-nvlink-ib"                             \
    }

/* text NULL: *out is NULL, the default machine. Free with clv_machine_free. */
clv_status clv_hardware_option_open(clv_machine **out, const char *text, clv_error *err);

#endif
