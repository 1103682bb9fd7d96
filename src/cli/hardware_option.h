/* hardware_option.h - `--hardware PROFILE`: a file, or the name of a profile that is shipped (data/profiles). */
#ifndef CLEAVE_CLI_HARDWARE_OPTION_H
#define CLEAVE_CLI_HARDWARE_OPTION_H

#include "program/profile.h"

#define CLV_HARDWARE_OPTION(out_, beside)                                                                              \
    {                                                                                                                  \
        .names = "--hardware", .kind = CLV_OPTION_STRING, .out = (out_), .value = "PROFILE", .not_beside = (beside),   \
        .help = "what predicts times: a file of bench profile, tpu-v2-8 or h100-nvlink-ib"                             \
    }

/* NULL: the default profile. Profiles that are shipped are looked for where they were installed, then in the source tree. */
clv_status clv_hardware_option_read(clv_profile *out, const char *text, clv_error *err);

#endif
