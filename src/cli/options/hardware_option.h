/* hardware_option.h - --hardware PROFILE: a hardware profile file or the name of a built-in one. */
#ifndef CLEAVE_CLI_OPTIONS_HARDWARE_OPTION_H
#define CLEAVE_CLI_OPTIONS_HARDWARE_OPTION_H

#include "cleave/machine.h"

#define CLV_HARDWARE_PROFILES "a file of bench profile, tpu-v2-8 or h100-nvlink-ib"
#define CLV_HARDWARE_ROW(out_, beside, help_)                                                                          \
    {                                                                                                                  \
        .names = "--hardware", .kind = CLV_OPTION_STRING, .out = (out_), .value = "PROFILE",                           \
        .conflicts_with = (beside), .help = (help_)                                                                    \
    }
/* Of commands that predict times, */
#define CLV_HARDWARE_OPTION(out_, beside)                                                                              \
    CLV_HARDWARE_ROW(out_, beside, "what layouts are priced by, and times predicted for: " CLV_HARDWARE_PROFILES)
/* and of those that only run what they compile. */
#define CLV_COST_MODEL_OPTION(out_) CLV_HARDWARE_ROW(out_, NULL, "what layouts are priced by: " CLV_HARDWARE_PROFILES)

/* text NULL: *out is NULL, the default machine. Free with clv_machine_free. */
clv_status clv_hardware_option_open(clv_machine **out, const char *text, clv_error *err);

#endif
