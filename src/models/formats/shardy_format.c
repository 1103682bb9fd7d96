/* shardy_format.c - layouts as text of Shardy: sdy.mesh, and an sdy.sharding for each tensor. */
#include <stdio.h>

#include "graph/graph.h"
#include "models/formats/formats.h"
#include "interop/export/exporter.h"

static void put_tensor(FILE *to, const char *name, int rank, const int64_t *shape, const clv_layout *layout,
                       const clv_mesh *mesh)
{
    fprintf(to, "\"%s\" %s #sdy.sharding", name, export_ints(shape, rank).text);
    export_sharding(to, layout, mesh);
    fputs("\n", to);
}

static clv_status finish(char **out, FILE *to, char **text, clv_error *err)
{
    if (!to || fclose(to) != 0)
        return clv_fail_memory(err, "a layout's text", 0);
    *out = *text;
    return CLV_OK;
}

clv_status clv_shardy_write(char **out, const clv_format_input *in, clv_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to)
        export_mesh(to, in->plan->mesh);
    for (int i = 0; to && i < in->model->n; i++) {
        const clv_format_tensor *t = &in->model->tensors[i];
        put_tensor(to, t->name, t->rank, t->shape, &t->layout, in->plan->mesh);
    }
    return finish(out, to, &text, err);
}

clv_status clv_shardy_write_tensors(char **out, const clv_graph *graph, clv_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to)
        export_mesh(to, &graph->mesh);
    for (int v = 1; to && v < graph->n_values; v++) {
        const clv_value_info *info = &graph->values[v];
        if (info->source != CLV_FROM_OP && info->stated)
            put_tensor(to, info->name, info->type.rank, info->type.shape, &info->layout, &graph->mesh);
    }
    return finish(out, to, &text, err);
}
