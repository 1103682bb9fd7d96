/* mesh_parts.c - splits a mesh into its axes pipe, context and expert, and the mesh that a stage's program is compiled
 * for. */
#include "models/plan/axes/mesh_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "nn/axis_rules.h"
#include "tensor/parse_print.h"

static const char *const names[] = {"pipe", "data", "context", "expert", "model"};
enum { PIPE, DATA, CONTEXT, EXPERT, MODEL, NAMES };

static int find(const char *name)
{
    for (int i = 0; i < NAMES; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

bool clv_mesh_is_split_over(const clv_mesh *mesh, const char *name)
{
    for (int a = 0; mesh && a < mesh->n_axes; a++)
        if (strcmp(mesh->axis[a].name, name) == 0)
            return mesh->axis[a].size > 1;
    return false;
}

clv_mesh clv_mesh_without_axes_of_one_rank(const clv_mesh *mesh)
{
    clv_mesh kept = {0};
    for (int a = 0; a < mesh->n_axes; a++) {
        int which = find(mesh->axis[a].name);
        if (mesh->axis[a].size > 1 || (which != PIPE && which != CONTEXT && which != EXPERT))
            kept.axis[kept.n_axes++] = mesh->axis[a];
    }
    return kept;
}

/* Appends to the mesh of a stage; an axis that is one already grows. */
static void append(clv_mesh *mesh, const char *name, int64_t size)
{
    clv_axis *last = mesh->n_axes > 0 ? &mesh->axis[mesh->n_axes - 1] : NULL;
    if (last && strcmp(last->name, name) == 0) {
        last->size *= size;
        return;
    }
    clv_axis *axis = &mesh->axis[mesh->n_axes++];
    *axis = (clv_axis){.size = size};
    snprintf(axis->name, sizeof axis->name, "%s", name);
}

clv_status clv_mesh_parts_split(clv_mesh_parts *out, const clv_mesh *mesh, int64_t layers, clv_error *err)
{
    int64_t *const sizes[] = {&out->pipe, &out->data, &out->context, &out->expert, &out->model};
    char text[CLV_MESH_TEXT];
    CLV_TRY(clv_mesh_check(mesh, err));
    clv_mesh_print(text, sizeof text, mesh);
    for (int a = 0; a < mesh->n_axes; a++)
        if (find(mesh->axis[a].name) == PIPE && mesh->axis[a].size > layers)
            return clv_nn_fail_stages(mesh->axis[a].name, mesh->axis[a].size, 1, layers, 0, err);
    *out = (clv_mesh_parts){1, 1, 1, 1, 1, {0}};
    for (int a = 0; a < mesh->n_axes; a++) {
        int which = find(mesh->axis[a].name);
        int64_t size = mesh->axis[a].size;
        if (which < 0)
            return clv_fail(err, CLV_EAXIS,
                            "mesh '%s': no axis '%s' is planned beside stages, context and experts; "
                            "valid: pipe, data, context, expert, model",
                            text, mesh->axis[a].name);
        *sizes[which] = size;
        if (size == 1)
            continue;
        if (which == PIPE && out->stage.n_axes > 0)
            return clv_fail(err, CLV_EAXIS, "mesh '%s': stages are runs of consecutive ranks; valid: pipe first", text);
        if (which != PIPE)
            append(&out->stage, which == MODEL ? "model" : "data", size);
    }
    for (int a = 0; a + 2 < out->stage.n_axes; a++)
        return clv_fail(err, CLV_EAXIS,
                        "mesh '%s': data, context and expert are neighbours; valid: "
                        "pipe=P,data=D,context=C,expert=E,model=M",
                        text);
    return CLV_OK;
}
