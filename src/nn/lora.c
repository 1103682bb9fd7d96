/* lora.c - LoRA: adds scale * (x A) B to a layer's product, with A and B sharded as the weight is. */
#include "nn/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "graph/graph.h"
#include "nn/layer_layouts.h"

enum { SUBSCRIPTS = 4 * CLV_MAX_RANK + 4 };

/* A weight and its adapter. */
typedef struct adapted {
    const clv_lora_target *weight;
    const clv_lora_adapter *adapter;
    const clv_axis_rules *rules;
    int n_out, first_out; /* number of `out` dimensions of the weight, and the first of them */
} adapted;

/* Appends n dimensions of the weight, from its dimension d on. */
static void append_dims(clv_graph *graph, clv_nn_shape *s, const adapted *w, int d, int n)
{
    for (int i = d; i < d + n; i++)
        clv_nn_append_dim(graph, s, w->weight->type.shape[i], w->weight->names[i], &w->weight->layout, i, 1);
}

/* Appends a dimension that is not split. */
static void append_whole(clv_graph *graph, clv_nn_shape *s, int64_t extent)
{
    clv_nn_append_dim(graph, s, extent, CLV_UNNAMED, NULL, 0, 1);
}

/* The state with this name; the first weight that uses it adds it. */
static clv_value find_or_add_state(clv_graph *graph, const char *name, const adapted *w, const clv_nn_shape *s,
                                   clv_init init)
{
    clv_value state = clv_graph_find_input_or_state(graph, name);
    if (clv_valid(state))
        return state;
    const char *outer = graph->scope; /* the name is full */
    graph->scope = "";
    state = clv_nn_weight(graph, w->rules, name, w->weight->type.dtype, s->rank, s->shape, s->names, &s->layout, init);
    graph->scope = outer;
    return state;
}

/* A is initialised as in PEFT: kaiming_uniform_ with a = sqrt(5) is uniform in +-1 / sqrt(in). */
static clv_value make_a(clv_graph *graph, const adapted *w)
{
    clv_nn_shape f = {.layout = clv_layout_replicated(w->weight->n_in + w->adapter->a_has_parts + 1)};
    double in = 1;
    append_dims(graph, &f, w, 0, w->weight->n_in);
    for (int d = 0; d < w->weight->n_in; d++)
        in *= (double)f.shape[d];
    if (w->adapter->a_has_parts)
        append_whole(graph, &f, w->adapter->parts);
    append_whole(graph, &f, w->adapter->rank);
    return find_or_add_state(graph, w->adapter->a, w, &f, (clv_init){CLV_INIT_UNIFORM, 1 / sqrt(in)});
}

/* B is [R, out] or [R, parts, out]; if only one part is adapted, the others are padded with zeros. */
static clv_value make_b(clv_graph *graph, const adapted *w)
{
    const clv_lora_adapter *its = w->adapter;
    bool one_part = its->part >= 0, has_parts = its->parts > 0 && !one_part;
    clv_nn_shape f = {.layout = clv_layout_replicated(1 + has_parts + w->n_out)};
    append_whole(graph, &f, its->rank);
    if (has_parts)
        append_whole(graph, &f, its->parts);
    append_dims(graph, &f, w, w->first_out, w->n_out);
    clv_value b = find_or_add_state(graph, its->b, w, &f, (clv_init){CLV_INIT_ZEROS, 0});
    if (!one_part)
        return b;
    int64_t shape[CLV_MAX_RANK] = {its->rank, 1}, before[CLV_MAX_RANK] = {0, its->part};
    int64_t after[CLV_MAX_RANK] = {0, its->parts - 1 - its->part};
    memcpy(shape + 2, f.shape + 1, (size_t)w->n_out * sizeof *shape);
    return clv_pad(graph, clv_reshape(graph, b, 2 + w->n_out, shape), before, after);
}

/* Writes n consecutive letters, one for each dimension. */
static const char *letters(char *out, char first, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = (char)(first + i);
    out[n] = '\0';
    return out;
}

/* Pins a LoRA product over the axes that split what the weight contracts: like the weight's own product it stays a
 * partial sum, and both are reduced together. */
static clv_value keep_partial_sums(clv_graph *graph, clv_value y, const adapted *w)
{
    for (int d = 0; d < w->weight->n_in; d++) {
        const clv_subaxis *axes;
        int n = clv_nn_is_tensor_parallel_axis(w->weight->names[d]) ? clv_layout_axes(&axes, &w->weight->layout, d) : 0;
        for (int i = 0; i < n; i++)
            clv_keep_stationary(graph, y, graph->mesh.axis[axes[i].axis].name);
    }
    return y;
}

/* (x A) (scale * B) */
static clv_value lora_product(clv_graph *graph, clv_value x, const adapted *w)
{
    char row[CLV_MAX_RANK + 1], in[CLV_MAX_RANK + 1], out[CLV_MAX_RANK + 1], down[SUBSCRIPTS], up[SUBSCRIPTS];
    int rows = clv_graph_type(graph, x).rank - w->weight->n_in;
    const char *part_of_a = w->adapter->a_has_parts ? "j" : "", *part_of_b = w->adapter->parts > 0 ? "j" : "";
    letters(row, 'A', rows);
    letters(in, 'k', w->weight->n_in);
    letters(out, 's', w->n_out);
    snprintf(down, sizeof down, "%s%s,%s%sr->%s%sr", row, in, in, part_of_a, row, part_of_a);
    snprintf(up, sizeof up, "%s%sr,r%s%s->%s%s%s", row, part_of_a, part_of_b, out, row, part_of_b, out);
    clv_value a = make_a(graph, w);
    clv_graph_lora *last = graph->adapters;
    if (last->x.id != x.id || last->a.id != a.id) {
        clv_key key = clv_key_fold_in(last->dropout_key, clv_hash_text(w->adapter->a));
        clv_value dropped = clv_dropout(graph, x, last->dropout, key, last->dropout_step);
        last->x = x;
        last->a = a;
        last->x_times_a = keep_partial_sums(graph, clv_einsum(graph, down, dropped, a), w);
    }
    clv_value b = clv_scale(graph, make_b(graph, w), w->adapter->scale);
    return keep_partial_sums(graph, clv_einsum(graph, up, last->x_times_a, b), w);
}

clv_value clv_nn_add_lora(clv_graph *graph, clv_value y, clv_value x, const clv_axis_rules *rules,
                          const clv_lora_target *weight)
{
    clv_lora_adapter adapter;
    if (!clv_valid(y) || !clv_valid(x) || !weight->name || !graph->adapters ||
        !graph->adapters->find(&adapter, graph, weight->name, graph->adapters->arg))
        return y;
    adapted w = {
        .weight = weight, .adapter = &adapter, .rules = rules, .first_out = weight->n_in + (adapter.parts > 0)};
    w.n_out = weight->type.rank - w.first_out;
    return clv_add(graph, y, lora_product(graph, x, &w));
}
