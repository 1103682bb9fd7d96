#include "cli/mesh_option.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

clv_status clv_mesh_option_resolve(clv_mesh *out, const clv_mesh_option *option, const char *command, clv_error *err)
{
    char text[64];
    snprintf(text, sizeof text, "model=%lld", (long long)option->tp);
    if (option->text && option->tp > 1)
        return clv_fail(err, CLV_EINVAL, "-tp %lld is the mesh '%s'; give either it or --mesh", (long long)option->tp,
                        text);
    CLV_TRY(clv_mesh_parse(out, option->text ? option->text : text, err));
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (clv_mesh_ranks(out) > processors)
        fprintf(stderr, "%s: warning: %lld ranks share %ld processors; they will run slowly\n", command,
                (long long)clv_mesh_ranks(out), processors);
    return CLV_OK;
}

bool clv_mesh_has_axis(const clv_mesh *mesh, const char *name)
{
    for (int a = 0; a < mesh->n_axes; a++)
        if (strcmp(mesh->axis[a].name, name) == 0)
            return true;
    return false;
}
