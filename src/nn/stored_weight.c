/* stored_weight.c - creates a layer's weight as dense, prepacked or quantized state, and multiplies by it. */
#include "nn/stored_weight.h"

#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "nn/layer_layouts.h"
#include "ops/builtin_ops.h"
#include "tensor/quant_block.h"

enum { MIN_PREPACKED_ELEMS = 64 * 1024 /* elements: what is smaller is in a cache, in whatever order */ };

bool clv_nn_is_quantized(const clv_graph *graph, int64_t in)
{
    return graph->quant && in % CLV_QUANT_BLOCK == 0;
}

/* Dimensions of a weight in another order, with blocks of one of them last. */
typedef struct blocked {
    int rank;
    int64_t shape[CLV_MAX_RANK];
    clv_logical_axis names[CLV_MAX_RANK];
    clv_layout layout, of_scales; /* with the blocks' elements, and without */
} blocked;

/* The weight's dimension d, in runs of `by` elements. */
static void append(clv_graph *graph, blocked *b, const clv_weight_spec *spec, const clv_layout *floats, int d,
                   int64_t by)
{
    const clv_subaxis *axes;
    int n = clv_layout_axes(&axes, floats, d);
    int64_t alignment = n > 0 && floats->alignment[d] % by == 0 ? floats->alignment[d] / by : 1;
    b->shape[b->rank] = spec->shape[d] / by;
    b->names[b->rank] = spec->names[d];
    if (clv_graph_ok(graph))
        clv_layout_set_dim(&b->layout, &graph->mesh, b->rank, axes, n, alignment, &graph->error);
    if (clv_graph_ok(graph))
        clv_layout_set_dim(&b->of_scales, &graph->mesh, b->rank, axes, n, alignment, &graph->error);
    b->rank++;
}

/* [out..., in..., last], with dimension `cut` in runs of `by`. */
static blocked in_blocks(clv_graph *graph, const clv_weight_spec *spec, const clv_layout *floats, int cut, int64_t by,
                         int64_t last)
{
    blocked b = {.layout = clv_layout_replicated(spec->rank + 1), .of_scales = clv_layout_replicated(spec->rank)};
    for (int i = 0; i < spec->rank; i++) {
        int d = (spec->n_in + i) % spec->rank;
        append(graph, &b, spec, floats, d, d == cut ? by : 1);
    }
    b.names[b.rank] = CLV_UNNAMED;
    b.shape[b.rank++] = last;
    return b;
}

/* Reports count it among the parameters, which a program cannot state of integers: nothing is trained through them, nor
 * through what is packed. */
static clv_value state_of(clv_graph *graph, const clv_axis_rules *rules, const char *name, const char *ending,
                          clv_dtype dtype, const blocked *b, int rank, clv_init init)
{
    const char *full = clv_arena_format(graph->arena, "%s%s", name, ending);
    const clv_layout *layout = rank == b->rank ? &b->layout : &b->of_scales;
    if (!full)
        return clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name '%s'", name);
    clv_layout by_name = clv_named_layout(graph, rules, rank, b->names);
    clv_value made = clv_state_with_role(graph, CLV_ROLE_BUFFER, full, dtype, rank, b->shape, layout, init);
    if (!clv_valid(made))
        return CLV_NONE;
    graph->values[made.id].role = CLV_ROLE_PARAMETER;
    clv_nn_annotate(graph, made, rules, NULL, b->names);
    clv_nn_pin(graph, made, &by_name, b->names);
    return made;
}

/* Whether ranks have whole panels of the weight's last dimension however it, or the product's result, is cut: else that
 * would be split otherwise than it is best, for the panels' sake. */
static bool can_prepack(const clv_graph *graph, const clv_weight_spec *spec, const clv_layout *floats)
{
    const int last = spec->rank - 1;
    int64_t elems = 1;
    for (int d = 0; d < spec->rank; d++)
        elems *= spec->shape[d];
    return graph->packs && spec->rank < CLV_MAX_RANK && spec->n_in < spec->rank && spec->dtype != CLV_F64 &&
           elems >= MIN_PREPACKED_ELEMS &&
           spec->shape[last] % (clv_mesh_rank_count(&graph->mesh) * CLV_PANEL_COLUMNS) == 0 &&
           (floats->alignment[last] == 1 || floats->alignment[last] % CLV_PANEL_COLUMNS == 0);
}

static clv_lora_target floats_of(clv_graph *graph, const clv_weight_spec *spec, const clv_layout *layout)
{
    clv_lora_target floats = {.type = {.dtype = spec->dtype, .rank = spec->rank},
                              .layout = *layout,
                              .n_in = spec->n_in,
                              .names = spec->names};
    memcpy(floats.type.shape, spec->shape, (size_t)spec->rank * sizeof *spec->shape);
    if (!graph->adapters)
        return floats;
    floats.name = clv_arena_format(graph->arena, "%s%s", graph->scope, spec->name);
    if (!floats.name)
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name '%s'", spec->name);
    return floats;
}

clv_stored_weight clv_nn_stored_weight(clv_graph *graph, const clv_axis_rules *rules, const clv_weight_spec *spec)
{
    const clv_init zeros = {CLV_INIT_ZEROS, 0};
    clv_layout by_name = clv_named_layout(graph, rules, spec->rank, spec->names);
    const clv_layout *floats = spec->layout ? spec->layout : &by_name;
    clv_stored_weight held = {.floats = floats_of(graph, spec, floats)};
    if (clv_nn_is_quantized(graph, spec->shape[spec->n_in - 1])) {
        blocked b =
            in_blocks(graph, spec, floats, spec->n_in - 1, CLV_QUANT_BLOCK, clv_quant_block_bytes(graph->quant->how));
        held.ints = state_of(graph, rules, spec->name, CLV_QUANT_INTS, CLV_U8, &b, b.rank, zeros);
        held.scales = state_of(graph, rules, spec->name, CLV_QUANT_SCALES, CLV_F16, &b, b.rank - 1, zeros);
    } else if (can_prepack(graph, spec, floats)) {
        blocked b = in_blocks(graph, spec, floats, spec->rank - 1, CLV_PANEL_COLUMNS, CLV_PANEL_COLUMNS);
        held.packed = state_of(graph, rules, spec->name, CLV_PACKED, spec->dtype, &b, b.rank, spec->init);
    } else {
        held.weight = clv_nn_weight(graph, rules, spec->name, spec->dtype, spec->rank, spec->shape, spec->names,
                                    spec->layout, spec->init);
    }
    return held;
}

/* Without an adapter's. */
static clv_value product(clv_graph *graph, clv_value x, const clv_stored_weight *w, const char *rows, const char *in,
                         const char *kernel, const char *out)
{
    char subscripts[64];
    if (clv_valid(w->ints))
        return clv_quantized_dot(graph, graph->quant->how, x, w->ints, w->scales, w->floats.n_in);
    if (clv_valid(w->packed))
        return clv_prepacked_dot(graph, x, w->packed, w->floats.n_in);
    if (!rows)
        return clv_nn_product(graph, x, w->weight, in, kernel, out);
    snprintf(subscripts, sizeof subscripts, "%s%s,%s->%s%s", rows, in, kernel, rows, out);
    return clv_einsum(graph, subscripts, x, w->weight);
}

clv_value clv_nn_stored_weight_product(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                       const clv_stored_weight *w, const char *rows, const char *in, const char *kernel,
                                       const char *out)
{
    return clv_nn_add_lora(graph, product(graph, x, w, rows, in, kernel, out), x, rules, &w->floats);
}
