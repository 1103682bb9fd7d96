#include "cli/hardware_option.h"

#include "cli/command.h"

clv_status clv_hardware_option_open(clv_machine **out, const char *text, clv_error *err)
{
    *out = NULL;
    if (!text)
        return CLV_OK;
    clv_error why = {0};
    clv_status status = clv_machine_open(out, text, &why);
    return clv_command_as_usage("--hardware", status, &why, err);
}
