#include "cli/hardware_option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/status.h"
#include "cli/command.h"

static const char *const folders[] = {CLV_DATA_INSTALLED, CLV_DATA_SOURCE};

clv_status clv_hardware_option_read(clv_profile *out, const char *text, clv_error *err)
{
    if (!text) {
        clv_profile_default(out);
        return CLV_OK;
    }
    if (access(text, F_OK) == 0)
        return clv_command_as_usage(clv_profile_read(out, text, err), err);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/profiles/%s.json", folders[i], text) < 0)
            return clv_fail_memory(err, text, strlen(text));
        bool there = access(path, F_OK) == 0;
        clv_status status = there ? clv_command_as_usage(clv_profile_read(out, path, err), err) : CLV_OK;
        free(path);
        if (there)
            return status;
    }
    return clv_fail(
        err, CLV_EINVAL,
        "--hardware %s: no such file; valid: a file that `cleave bench profile` wrote, tpu-v2-8, h100-nvlink-ib", text);
}
