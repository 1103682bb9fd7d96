/* parallel_experts.c - mixture of experts: router, experts split over the axes of `expert` and of `mlp`, shared expert.
 *
 * The router works on the rows that a rank has between layers. Rows, choices and weights are then gathered over the
 * axes of `expert` and of `mlp` alone; each rank adds what its part of the experts contributes, and the partial sums go
 * back to the layout between layers: all-gather and reduce-scatter where these axes split rows, else an all-reduce.
 *
 * With a capacity factor each expert has a number of places for the rows of a sequence (ops/expert_dispatch.c). The
 * places are stated as split over `expert`; how rows get there, and back, is chosen by price: an all-to-all, or as
 * above.
 */
#include <math.h>

#include "graph/graph.h"
#include "nn/layer_layouts.h"
#include "nn/router_losses.h"
#include "nn/stored_weight.h"
#include "ops/builtin_ops.h"
#include "tensor/quant_block.h"

/* x times a small weight [M, n] that no axis of tensor parallelism splits; rows as between layers. */
static clv_value small_product(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_value weight,
                               const char *what)
{
    const clv_logical_axis features = CLV_UNNAMED;
    const clv_layout rows = clv_nn_activation_layout(graph, rules, clv_graph_type(graph, x).rank - 1, 1, &features);
    return clv_nn_constrain(graph, clv_nn_product(graph, x, weight, "m", "me", "e"), &rows, rules, what, 1, &features);
}

/* The bias that balances experts. */
static clv_value balance_bias(clv_graph *graph, const clv_axis_rules *rules, const clv_experts_options *o,
                              clv_dtype dtype)
{
    const clv_logical_axis names[] = {CLV_UNNAMED};
    const clv_value bias = clv_nn_parameter(graph, rules, "router.bias", clv_statistics_dtype(dtype), 1, &o->experts,
                                            names, NULL, (clv_init){CLV_INIT_ZEROS, 0});
    if (clv_valid(bias))
        graph->values[bias.id].untrained = true;
    return bias;
}

/* Chooses the experts of each row: *weights and *ids [..., top_k]. */
static void route(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_experts_options *o,
                  clv_value *weights, clv_value *ids)
{
    static const clv_logical_axis names[] = {CLV_EMBED_KERNEL, CLV_UNNAMED};
    const clv_type type = clv_graph_type(graph, x);
    const int64_t shape[] = {type.shape[type.rank - 1], o->experts};
    clv_value weight = clv_nn_parameter(graph, rules, "router.weight", type.dtype, 2, shape, names, NULL, o->init);
    const clv_value bias = o->balance_bias ? balance_bias(graph, rules, o, type.dtype) : CLV_NONE;
    const clv_router_options how = {.size = sizeof how,
                                    .top_k = o->top_k,
                                    .sigmoid = o->sigmoid,
                                    .normalised = o->normalised,
                                    .scale = o->weight_scale,
                                    .bias = bias,
                                    .groups = o->groups,
                                    .top_groups = o->top_groups};
    if (o->sigmoid) {
        x = clv_cast(graph, x, clv_statistics_dtype(type.dtype));
        weight = clv_cast(graph, weight, clv_statistics_dtype(type.dtype));
    }
    const clv_value logits = small_product(graph, x, rules, weight, "the router's logits");
    clv_router(graph, logits, &how, weights, ids);
    clv_nn_record_router(graph, logits, *ids, bias, o->mask);
}

/* The chosen experts, -1 for rows that the mask leaves out. */
static clv_value choices_of_rows(clv_graph *graph, clv_value ids, clv_value mask)
{
    if (!clv_valid(mask))
        return ids;
    clv_type type = clv_graph_type(graph, ids);
    type.shape[type.rank - 1] = 1;
    const clv_value counts = clv_reshape(graph, clv_cast(graph, mask, CLV_BOOL), type.rank, type.shape);
    return clv_where(graph, counts, ids, clv_fill(graph, CLV_I32, 0, NULL, -1));
}

/* Experts work on all their places, filled or not. */
static clv_value at_places(clv_graph *graph, clv_value x, clv_value ids, clv_value weights, clv_value up,
                           clv_value down, const clv_axis_rules *rules, const clv_experts_options *o)
{
    static const char *const up_product[] = {"ecm,emtf->ectf", "becm,emtf->bectf"};
    static const char *const down_product[] = {"ecf,efm->ecm", "becf,efm->becm"};
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_EXPERT, CLV_UNNAMED, CLV_UNNAMED};
    const clv_type type = clv_graph_type(graph, x);
    if (type.rank != 2 && type.rank != 3)
        return clv_graph_fail(graph, CLV_ESHAPE, "%sexperts with a capacity: x has %d dimensions; valid: 2 or 3",
                              graph->scope, type.rank);
    const int batched = type.rank - 2;
    const int64_t rows = type.shape[batched];
    const double places = ceil(o->capacity_factor * (double)o->top_k * (double)rows / (double)o->experts);
    const int64_t capacity = places < 1 ? 1 : places < (double)rows ? (int64_t)places : rows > 0 ? rows : 1;
    ids = choices_of_rows(graph, ids, o->mask);
    clv_value place = clv_expert_places(graph, ids, o->experts, capacity);
    clv_nn_record_places(graph, ids, place, o->experts * capacity);
    clv_value placed = clv_expert_dispatch(graph, x, place, o->experts, capacity);
    const clv_layout split = clv_named_layout(graph, rules, type.rank + 1, names + 1 - batched);
    placed = clv_constrain(graph, placed, &split);
    clv_nn_annotate(graph, placed, rules, "the tokens at their experts", names + 1 - batched);
    clv_value hidden = clv_gated(graph, clv_einsum(graph, up_product[batched], placed, up), o->activation);
    return clv_expert_combine(graph, clv_einsum(graph, down_product[batched], hidden, down), place, weights);
}

static clv_stored_weight experts_weight(clv_graph *graph, const clv_axis_rules *rules, bool quantized,
                                        const clv_weight_spec *spec)
{
    if (quantized)
        return clv_nn_stored_weight(graph, rules, spec);
    return (clv_stored_weight){.weight = clv_nn_weight(graph, rules, spec->name, spec->dtype, spec->rank, spec->shape,
                                                       spec->names, spec->layout, spec->init)};
}

static clv_value routed(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_experts_options *o)
{
    static const clv_logical_axis up_names[] = {CLV_EXPERT, CLV_EMBED_KERNEL, CLV_UNNAMED, CLV_MLP};
    static const clv_logical_axis down_names[] = {CLV_EXPERT, CLV_MLP, CLV_EMBED_KERNEL};
    const clv_type type = clv_graph_type(graph, x);
    const int64_t width = type.shape[type.rank - 1];
    const int64_t up_shape[] = {o->experts, width, 2, o->ffn}, down_shape[] = {o->experts, o->ffn, width};
    clv_value weights = CLV_NONE, ids = CLV_NONE;
    route(graph, x, rules, o, &weights, &ids);
    /* both weights in blocks, which split alike, or none */
    const bool quantized = clv_nn_is_weight_quantized(graph, width) && clv_nn_is_weight_quantized(graph, o->ffn);
    clv_layout up_layout = clv_named_layout(graph, rules, 4, up_names);
    if (quantized)
        clv_nn_align_dim(graph, &up_layout, 3, CLV_QUANT_BLOCK);
    const clv_stored_weight up = experts_weight(
        graph, rules, quantized,
        &(clv_weight_spec){"experts.gate_up.weight", type.dtype, 4, 1, up_shape, up_names, &up_layout, o->init, 1});
    const clv_stored_weight down = experts_weight(
        graph, rules, quantized,
        &(clv_weight_spec){"experts.down.weight", type.dtype, 3, 1, down_shape, down_names, NULL, o->output_init, 1});
    if (o->capacity_factor > 0)
        return clv_nn_leave_parallel_region(graph, at_places(graph, x, ids, weights, up.weight, down.weight, rules, o),
                                            rules);
    x = clv_nn_enter_experts(graph, x, rules, "the input of the experts");
    ids = clv_nn_enter_experts(graph, ids, rules, "the choice of experts");
    weights = clv_nn_enter_experts(graph, weights, rules, "the weights of the choice");
    const clv_value y =
        quantized ? clv_quantized_experts(graph, graph->quant->how, x, ids, weights, (clv_value[]){up.ints, up.scales},
                                          (clv_value[]){down.ints, down.scales}, o->activation)
                  : clv_experts(graph, x, ids, weights, up.weight, down.weight, o->activation);
    return clv_nn_leave_parallel_region(graph, y, rules);
}

/* An MLP of every row, which a sigmoid may scale. */
static clv_value shared(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_experts_options *o)
{
    static const clv_logical_axis names[] = {CLV_EMBED_KERNEL, CLV_UNNAMED};
    const clv_type type = clv_graph_type(graph, x);
    const int64_t shape[] = {type.shape[type.rank - 1], 1};
    const clv_mlp_options mlp = {.ffn = o->shared_ffn,
                                 .activation = o->activation,
                                 .gated = true,
                                 .init = o->init,
                                 .output_init = o->output_init};
    clv_graph_push_scope(graph, "shared");
    clv_value y = clv_parallel_mlp(graph, x, rules, &mlp);
    clv_graph_pop_scope(graph);
    if (!o->shared_gate)
        return y;
    clv_value weight = clv_nn_parameter(graph, rules, "shared_gate.weight", type.dtype, 2, shape, names, NULL, o->init);
    clv_value gate = small_product(graph, x, rules, weight, "the gate of the shared expert");
    return clv_mul(graph, y, clv_unary(graph, CLV_SIGMOID, gate));
}

clv_value clv_parallel_experts(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                               const clv_experts_options *given)
{
    clv_experts_options o;
    if (!clv_graph_require(graph, given != NULL, __func__, "options") ||
        !clv_graph_options_copy_in(graph, &o, sizeof o, sizeof o, given, __func__))
        return CLV_NONE;
    if (!clv_valid(x) || clv_graph_type(graph, x).rank < 1)
        return CLV_NONE;
    if (o.experts < 1 || o.ffn < 1 || o.shared_ffn < 0)
        return clv_graph_fail(graph, CLV_EINVAL,
                              "%sexperts: %lld experts of width %lld, a shared one of %lld; valid: 1 and above, 0 and "
                              "above",
                              graph->scope, (long long)o.experts, (long long)o.ffn, (long long)o.shared_ffn);
    if (!(o.capacity_factor >= 0 && o.capacity_factor <= CLV_MAX_CAPACITY_FACTOR))
        return clv_graph_fail(graph, CLV_EINVAL, "%sexperts: the capacity factor is %g; valid: 0 to %d", graph->scope,
                              o.capacity_factor, CLV_MAX_CAPACITY_FACTOR);
    clv_value y = routed(graph, x, rules, &o);
    return o.shared_ffn > 0 ? clv_add(graph, y, shared(graph, x, rules, &o)) : y;
}
