/* stored_weight.c - creates a layer's weight as dense, prepacked or quantized state, and multiplies by it. Where the
 * graph quantizes, a weight whose contracted dimension is no multiple of 32 stays in floats. */
#include "nn/stored_weight.h"

#include <stdio.h>

#include "nn/layer_layouts.h"
#include "ops/builtin_ops.h"
#include "tensor/quant_block.h"

enum { MIN_PREPACKED_ELEMS = 64 * 1024 /* smaller weights stay in cache, in any order */ };

bool clv_nn_is_weight_quantized(const clv_graph *graph, int64_t contracted_size)
{
    return graph->quant && contracted_size % CLV_QUANT_BLOCK == 0;
}

/* Reorders a weight's dimensions to [(E,) out..., in..., last], with dimension d in blocks of `block` elements. */
static clv_nn_shape block_shape(clv_graph *graph, const clv_weight_spec *spec, const clv_layout *dense, int d,
                                int64_t block, int64_t last)
{
    clv_nn_shape s = {.layout = clv_layout_replicated(spec->rank + 1)};
    for (int i = 0; i < spec->rank; i++) {
        int from = clv_quant_stored_dim(i, spec->stacked, spec->n_in, spec->rank);
        int64_t by = from == d ? block : 1;
        clv_nn_append_dim(graph, &s, spec->shape[from] / by, spec->names[from], dense, from, by);
    }
    clv_nn_append_dim(graph, &s, last, CLV_UNNAMED, NULL, 0, 1);
    return s;
}

/* Adds the state "<name><suffix>" of the first `rank` dimensions. It is built as a buffer, because programs refuse
 * parameters of integers, and counted as a parameter: stored weights are never trained. */
static clv_value add_state(clv_graph *graph, const clv_axis_rules *rules, const char *name, const char *suffix,
                           clv_dtype dtype, const clv_nn_shape *s, int rank, clv_init init)
{
    const char *full = clv_arena_format(graph->arena, "%s%s", name, suffix);
    clv_layout layout = s->layout;
    if (!full)
        return clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name '%s'", name);
    layout.rank = rank; /* the last dimension is not split */
    clv_layout by_name = clv_named_layout(graph, rules, rank, s->names);
    clv_value state = clv_state_with_role(graph, CLV_ROLE_BUFFER, full, dtype, rank, s->shape, &layout, init);
    if (!clv_valid(state))
        return CLV_NONE;
    graph->values[state.id].role = CLV_ROLE_PARAMETER;
    clv_nn_annotate(graph, state, rules, NULL, s->names);
    clv_nn_keep_stationary(graph, state, &by_name, s->names);
    return state;
}

/* Whether ranks get whole panels of the last dimension, however it or the product's result is split. Otherwise panels
 * would force a split that is not the best one. */
static bool can_prepack(const clv_graph *graph, const clv_weight_spec *spec, const clv_layout *dense)
{
    const int last = spec->rank - 1;
    int64_t elems = 1;
    for (int d = 0; d < spec->rank; d++)
        elems *= spec->shape[d];
    return graph->prepacks_weights && spec->rank < CLV_MAX_RANK && spec->n_in < spec->rank && spec->dtype != CLV_F64 &&
           elems >= MIN_PREPACKED_ELEMS &&
           spec->shape[last] % (clv_mesh_rank_count(&graph->mesh) * CLV_PANEL_COLUMNS) == 0 &&
           (dense->alignment[last] == 1 || dense->alignment[last] % CLV_PANEL_COLUMNS == 0);
}

static clv_lora_target lora_target(clv_graph *graph, const clv_weight_spec *spec, const clv_layout *layout)
{
    clv_lora_target target = {.type = {.dtype = spec->dtype, .rank = spec->rank},
                              .layout = *layout,
                              .n_in = spec->n_in,
                              .names = spec->names};
    memcpy(target.type.shape, spec->shape, (size_t)spec->rank * sizeof *spec->shape);
    if (!graph->adapters)
        return target;
    target.name = clv_arena_format(graph->arena, "%s%s", graph->scope, spec->name);
    if (!target.name)
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name '%s'", spec->name);
    return target;
}

clv_stored_weight clv_nn_stored_weight(clv_graph *graph, const clv_axis_rules *rules, const clv_weight_spec *spec)
{
    const clv_init zeros = {CLV_INIT_ZEROS, 0};
    clv_layout by_name = clv_named_layout(graph, rules, spec->rank, spec->names);
    const clv_layout *layout = spec->layout ? spec->layout : &by_name;
    clv_stored_weight stored = {.dense = lora_target(graph, spec, layout)};
    const int last = spec->stacked + spec->n_in - 1;
    if (clv_nn_is_weight_quantized(graph, spec->shape[last])) {
        clv_nn_shape s =
            block_shape(graph, spec, layout, last, CLV_QUANT_BLOCK, clv_quant_block_bytes(graph->quant->how));
        stored.ints = add_state(graph, rules, spec->name, CLV_QUANT_INTS, CLV_U8, &s, s.rank, zeros);
        stored.scales = add_state(graph, rules, spec->name, CLV_QUANT_SCALES, CLV_F16, &s, s.rank - 1, zeros);
    } else if (can_prepack(graph, spec, layout)) {
        clv_nn_shape s = block_shape(graph, spec, layout, spec->rank - 1, CLV_PANEL_COLUMNS, CLV_PANEL_COLUMNS);
        stored.packed = add_state(graph, rules, spec->name, CLV_PACKED, spec->dtype, &s, s.rank, spec->init);
    } else {
        stored.weight = clv_nn_weight(graph, rules, spec->name, spec->dtype, spec->rank, spec->shape, spec->names,
                                      spec->layout, spec->init);
    }
    return stored;
}

/* The product without LoRA. */
static clv_value base_product(clv_graph *graph, clv_value x, const clv_stored_weight *w, const char *rows,
                              const char *in, const char *kernel, const char *out)
{
    char subscripts[64];
    if (clv_valid(w->ints))
        return clv_quantized_dot(graph, graph->quant->how, x, w->ints, w->scales, w->dense.n_in);
    if (clv_valid(w->packed))
        return clv_prepacked_dot(graph, x, w->packed, w->dense.n_in);
    if (!rows)
        return clv_nn_product(graph, x, w->weight, in, kernel, out);
    snprintf(subscripts, sizeof subscripts, "%s%s,%s->%s%s", rows, in, kernel, rows, out);
    return clv_einsum(graph, subscripts, x, w->weight);
}

clv_value clv_nn_stored_weight_product(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                       const clv_stored_weight *w, const char *rows, const char *in, const char *kernel,
                                       const char *out)
{
    return clv_nn_add_lora(graph, base_product(graph, x, w, rows, in, kernel, out), x, rules, &w->dense);
}
