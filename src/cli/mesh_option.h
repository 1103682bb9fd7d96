/* mesh_option.h - `-tp N` and `--mesh data=2,model=4`, as every command that runs ranks takes them. */
#ifndef CLEAVE_CLI_MESH_OPTION_H
#define CLEAVE_CLI_MESH_OPTION_H

#include <stdbool.h>

#include "cleave/mesh.h"

typedef struct clv_mesh_option {
    int64_t tp;       /* -tp; 1: not given */
    const char *text; /* --mesh; NULL: not given */
} clv_mesh_option;

/* -tp N is the mesh model=N. Refuses both together, and warns on stderr when there are more ranks than processors. */
clv_status clv_mesh_option_resolve(clv_mesh *out, const clv_mesh_option *option, const char *command, clv_error *err);

bool clv_mesh_has_axis(const clv_mesh *mesh, const char *name);

#endif
