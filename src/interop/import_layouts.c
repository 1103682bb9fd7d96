/* import_layouts.c - layouts that a caller states of a program's tensors by name: of a file, and on a graph's mesh. */
#include <string.h>

#include "base/text/c_locale.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "interop/importer.h"

enum { FILE_LIMIT = 1 << 26 /* bytes */ };

/* Whether a name fits a pattern, in which '*' stands for any characters. */
static bool fits(const char *pattern, const char *name)
{
    const char *star = NULL, *again = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            again = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++again;
        } else
            return false;
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

clv_status clv_import_layout(clv_import *p, const char *names, const char *layout, clv_error *err)
{
    int n = 0;
    CLV_TRY(clv_require(p && names && layout, __func__, "a program, names or a layout", err));
    const char *copy = clv_arena_string(p->module->arena, layout);
    if (!copy)
        return clv_fail_memory(err, "a layout", strlen(layout));
    for (int i = 0; i < p->n_ports; i++) {
        const mlir_port *of = p->ports[i].of;
        import_port *port = of->same ? &p->ports[of->same - 1] : &p->ports[i]; /* tied weights have one layout */
        if (of->assigns || !fits(names, p->ports[i].name))
            continue;
        port->layout = port->layout ? port->layout : copy;
        n++;
    }
    if (n == 0)
        return clv_fail(err, CLV_EINVAL,
                        "%s has no argument, parameter or result of the name %.200s; `cleave import` lists them",
                        p->module->file, names);
    return CLV_OK;
}

clv_status clv_import_layouts(clv_import *p, const char *path, clv_error *err)
{
    json_auto_t *document = NULL;
    CLV_FREED char *text = NULL;
    size_t size;
    json_t *value;
    const char *mesh = NULL, *key;
    clv_error why = {0};
    CLV_TRY(clv_require(p && path, __func__, "a program or path", err));
    CLV_TRY(clv_file_read(&text, &size, path, FILE_LIMIT, err));
    CLV_TRY(clv_json_parse(&document, text, size, CLV_JSON_KEYS_UNIQUE, path, err));
    CLV_TRY(clv_json_check_object(document, path, err));
    json_object_foreach(document, key,
                        value) if (strcmp(key, "mesh") != 0 &&
                                   strcmp(key, "layouts") !=
                                       0) return clv_fail(err, CLV_EFORMAT,
                                                          "%s: there is no \"%.60s\"; valid: mesh, layouts", path, key);
    CLV_TRY(clv_json_get_string(&mesh, document, "mesh", CLV_JSON_OPTIONAL, path, err));
    if (mesh && clv_mesh_parse(&p->layout_mesh, mesh, &why) != CLV_OK)
        return clv_fail(err, CLV_EFORMAT, "%s: mesh: %s", path, why.message);
    json_t *layouts = json_object_get(document, "layouts");
    if (!json_is_object(layouts))
        return clv_fail(err, CLV_EFORMAT,
                        "%s: \"layouts\" is needed, an object of layouts by name: "
                        "{\"layouts\": {\"ids\": \"data,_\"}}",
                        path);
    json_object_foreach(layouts, key, value)
    {
        if (!json_is_string(value))
            return clv_fail(err, CLV_EFORMAT, "%s: %.200s: a layout is a text, such as \"_,model\"", path, key);
        clv_status status = clv_import_layout(p, key, json_string_value(value), &why);
        if (status != CLV_OK)
            return clv_fail(err, status, "%s: %s", path, why.message);
    }
    return CLV_OK;
}

/* ---- on a graph ---- */

static bool has_axis(const clv_mesh *mesh, const char *name)
{
    for (int i = 0; i < mesh->n_axes; i++)
        if (strcmp(mesh->axis[i].name, name) == 0)
            return true;
    return false;
}

/* The graph's mesh, and behind its axes those of the program's mesh that it lacks, of one rank: a layout has no part of
 * these. */
static clv_mesh whole_mesh(const importer *im)
{
    clv_mesh mesh = *clv_graph_mesh(im->graph), own = {0};
    clv_import_mesh(im->program, &own);
    for (int i = 0; i < own.n_axes && mesh.n_axes < CLV_MAX_AXES; i++)
        if (!has_axis(&mesh, own.axis[i].name)) {
            mesh.axis[mesh.n_axes] = own.axis[i];
            mesh.axis[mesh.n_axes++].size = 1;
        }
    return mesh;
}

clv_status import_stated_layout(clv_layout *out, bool *stated, const importer *im, int i, int rank, clv_error *err)
{
    const import_port *port = &im->program->ports[i];
    clv_error why = {0};
    *stated = port->layout != NULL;
    *out = clv_layout_replicated(rank);
    if (!*stated || clv_mesh_rank_count(clv_graph_mesh(im->graph)) == 1) /* where any axis has one rank */
        return CLV_OK;
    const clv_mesh mesh = whole_mesh(im);
    if (clv_layout_parse(out, port->layout, &mesh, rank, &why) != CLV_OK)
        return clv_fail(err, CLV_EINVAL, "the layout \"%.200s\" of %.200s: %s", port->layout, port->name, why.message);
    return CLV_OK;
}
