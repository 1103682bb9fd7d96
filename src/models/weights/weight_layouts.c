/* weight_layouts.c - computes the layout of each parameter and checkpoint tensor on a mesh under its rules, before
 * anything is compiled. */
#include "models/weights/weight_layouts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/graph.h"
#include "models/checkpoint/checkpoint_inventory.h"
#include "models/weights/weight_storage.h"

typedef struct entry {
    const char *name; /* the graph's */
    clv_layout layout;
} entry;

struct clv_weight_layouts {
    clv_model_config model;
    clv_quant quant;
    clv_mesh mesh;
    clv_graph *graph; /* owns the names */
    int n;
    entry *entries; /* by name */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

/* The stages of the ops that read a parameter. */
static clv_status set_stages(clv_layout *layout, const clv_graph *graph, clv_value parameter, clv_error *err)
{
    uint32_t stages = 0;
    for (int o = 0; o < graph->n_ops; o++)
        for (int i = 0; i < graph->ops[o].n_in; i++)
            if (graph->ops[o].in[i] == parameter.id && graph->ops[o].stage > 0)
                stages |= 1u << (graph->ops[o].stage - 1);
    return stages ? clv_layout_set_stages(layout, &graph->mesh, graph->stage_axis - 1, stages, err) : CLV_OK;
}

static clv_status collect(clv_weight_layouts *p, const clv_axis_rules *rules, clv_error *err)
{
    clv_model_build_options build = {.batch = 1, .seq = 1, .rules = *rules, .dtype = CLV_F32, .quant = p->quant};
    clv_build_forward(p->graph, &p->model, &build, NULL);
    CLV_TRY(clv_graph_status(p->graph, err));
    CLV_TRY(clv_graph_check_rules(p->graph, err));
    p->n = clv_graph_parameters(p->graph, NULL, 0);
    p->entries = calloc((size_t)p->n + 1, sizeof *p->entries);
    clv_value *values = calloc((size_t)p->n + 1, sizeof *values);
    if (!p->entries || !values) {
        free(values);
        return clv_fail_memory(err, "the model's layouts", (size_t)p->n * sizeof *p->entries);
    }
    clv_graph_parameters(p->graph, values, p->n);
    clv_status status = CLV_OK;
    for (int i = 0; status == CLV_OK && i < p->n; i++) {
        p->entries[i] = (entry){clv_value_name(p->graph, values[i]), clv_value_layout(p->graph, values[i])};
        status = set_stages(&p->entries[i].layout, p->graph, values[i], err);
    }
    free(values);
    qsort(p->entries, (size_t)p->n, sizeof *p->entries, by_name);
    return status;
}

clv_status clv_weight_layouts_new(clv_weight_layouts **out, const clv_model_config *model, const clv_mesh *mesh,
                                  const clv_axis_rules *rules, clv_quant quant, clv_error *err)
{
    clv_weight_layouts *p = calloc(1, sizeof *p);
    if (!p)
        return clv_fail_memory(err, "the model's layouts", sizeof *p);
    p->model = *model;
    p->quant = quant;
    p->mesh = *mesh;
    clv_status status = clv_graph_new(&p->graph, mesh, err);
    if (status == CLV_OK)
        status = collect(p, rules, err);
    if (status == CLV_OK)
        *out = p;
    else
        clv_weight_layouts_free(p);
    return status;
}

void clv_weight_layouts_free(clv_weight_layouts *p)
{
    if (!p)
        return;
    clv_graph_free(p->graph);
    free(p->entries);
    free(p);
}

/* The layout of our parameter `name`; CLV_ENOTFOUND. */
static clv_status lay_out_parameter(clv_layout *out, const clv_weight_layouts *p, const char *name, clv_error *err)
{
    entry wanted = {.name = name};
    const entry *found = bsearch(&wanted, p->entries, (size_t)p->n, sizeof *p->entries, by_name);
    if (!found)
        return clv_fail(err, CLV_ENOTFOUND, "the model's graph has no parameter \"%.64s\"", name);
    *out = found->layout;
    return CLV_OK;
}

/* The ranks among which experts are split store a part of each expert: a layout cannot say that a rank has it whole. */
static clv_status split_expert(clv_layout *out, const clv_weight_layouts *p, const clv_layout *parameter,
                               clv_error *err)
{
    const clv_subaxis *axes;
    const int n = clv_layout_axes(&axes, parameter, 0);
    for (int i = 0; i < n; i++)
        CLV_TRY(clv_layout_shard_dim(out, &p->mesh, 0, axes[i], err));
    return CLV_OK;
}

clv_status clv_weight_layouts_of_tensor(clv_tensor_placement *out, const clv_weight_layouts *p,
                                        const clv_model_tensor *tensor, clv_error *err)
{
    clv_tensor_placement t = {0};
    clv_layout layout;
    int ours[CLV_MAX_RANK];
    if (tensor->quant != CLV_QUANT_NONE) {
        char ints[CLV_PARAMETER_NAME_SIZE + sizeof CLV_QUANT_INTS];
        snprintf(ints, sizeof ints, "%s%s", tensor->parameter.name, CLV_QUANT_INTS);
        out->rank = tensor->rank;
        memcpy(out->view, tensor->shape, sizeof out->view);
        return lay_out_parameter(&out->layout, p, ints, err);
    }
    CLV_TRY(lay_out_parameter(&layout, p, tensor->parameter.name, err));
    t.rank = clv_model_tensor_view(t.view, ours, &p->model, tensor);
    t.layout = clv_layout_replicated(t.rank);
    t.layout.stage_axis = layout.stage_axis;
    t.layout.stages = layout.stages;
    for (int d = 0; d < t.rank; d++) {
        const clv_subaxis *axes;
        int n = ours[d] < 0 ? 0 : clv_layout_axes(&axes, &layout, ours[d]);
        if (n > 0)
            CLV_TRY(clv_layout_set_dim(&t.layout, &p->mesh, d, axes, n, layout.alignment[ours[d]], err));
    }
    if (tensor->parameter.row->by_expert)
        CLV_TRY(split_expert(&t.layout, p, &layout, err));
    *out = t;
    return CLV_OK;
}

/* ---- a checkpoint ---- */

static clv_status place_parameter(clv_tensor_placement *all, const clv_weight_layouts *p, const clv_weights *w,
                                  const clv_parameter *parameter, clv_error *err)
{
    for (int k = 0; k < clv_stored_tensor_count(&p->model, parameter, p->quant); k++) {
        const clv_model_tensor tensor = clv_stored_tensor(&p->model, parameter, p->quant, k);
        const clv_safetensor *found;
        CLV_TRY(clv_stored_tensor_find(&found, w, &p->model, &tensor, err));
        CLV_TRY(clv_weight_layouts_of_tensor(&all[clv_weights_index_of(w, found)], p, &tensor, err));
    }
    return CLV_OK;
}

clv_status clv_weight_layouts_of_checkpoint(clv_tensor_placement **out, const clv_weight_layouts *p,
                                            const clv_weights *w, clv_error *err)
{
    int64_t n = clv_weights_count(w), parameters = clv_model_parameter_count(&p->model);
    CLV_TRY(clv_model_check_weights(w, &p->model, err));
    clv_tensor_placement *all = calloc((size_t)n + 1, sizeof *all);
    if (!all)
        return clv_fail_memory(err, "the tensors' layouts", (size_t)n * sizeof *all);
    for (int64_t i = 0; i < n; i++)
        all[i] = clv_placement_on_first_rank(clv_weights_at(w, i));
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < parameters; i++) {
        clv_parameter parameter = clv_model_parameter_at(&p->model, i);
        status = place_parameter(all, p, w, &parameter, err);
    }
    if (status == CLV_OK)
        *out = all;
    else
        free(all);
    return status;
}

clv_status clv_weight_layouts_max_rank_elems(int64_t *out, const clv_weight_layouts *p, clv_error *err)
{
    int64_t ranks = clv_mesh_rank_count(&p->mesh), n = clv_model_parameter_count(&p->model);
    CLV_FREED int64_t *held = calloc((size_t)ranks, sizeof *held);
    if (!held)
        return clv_fail_memory(err, "the ranks' sizes", (size_t)ranks * sizeof *held);
    for (int64_t i = 0; i < n; i++) {
        clv_parameter parameter = clv_model_parameter_at(&p->model, i);
        clv_layout layout;
        CLV_TRY(lay_out_parameter(&layout, p, parameter.name, err));
        for (int64_t rank = 0; rank < ranks; rank++) {
            clv_shard shard = clv_layout_shard(&layout, &p->mesh, parameter.shape, rank);
            held[rank] += clv_shard_elems(&shard);
        }
    }
    for (int64_t rank = 0; rank < ranks; rank++)
        *out = rank == 0 || held[rank] > *out ? held[rank] : *out;
    return CLV_OK;
}
