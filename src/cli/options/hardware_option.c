/* hardware_option.c - --hardware PROFILE: a hardware profile file or the name of a built-in one. */
#include "cli/options/hardware_option.h"

#include "cli/command.h"

clv_status clv_hardware_option_open(clv_machine **out, const char *text, clv_error *err)
{
    *out = NULL;
    if (!text)
        return CLV_OK;
    clv_error why = {0};
    clv_status status = clv_machine_open(out, text, &why);
    return clv_as_usage_error("--hardware", status, &why, err);
}
