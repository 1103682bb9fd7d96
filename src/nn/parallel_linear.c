/* parallel_linear.c - ColumnParallelLinear and RowParallelLinear (Shoeybi et al. 2019, arXiv:1909.08053). */
#include "graph/graph.h"
#include "nn/layer_layouts.h"
#include "nn/stored_weight.h"

static const char *part_name(clv_graph *graph, const clv_linear_options *options, const char *part)
{
    return clv_nn_parameter_name(graph, options->name ? options->name : "linear", part);
}

static clv_value add_bias(clv_graph *graph, clv_value y, const clv_linear_options *options, int64_t features,
                          const clv_axis_rules *rules, clv_logical_axis axis)
{
    if (!options->bias)
        return y;
    return clv_nn_add_bias(graph, y, rules, part_name(graph, options, "bias"), 1, &features, &axis, NULL);
}

/* What both layers begin with. */
typedef struct linear {
    clv_linear_options o;
    clv_stored_weight weight; /* refers to names */
    clv_logical_axis names[2];
    clv_logical_axis features; /* the split features */
    clv_layout split;          /* of activations with the split features */
    int rank;                  /* of x */
} linear;

/* by_rows: the split features are x's, else the result's. False: an error is recorded. */
static bool begin(linear *l, clv_graph *graph, clv_value x, int64_t features, const clv_axis_rules *rules,
                  const clv_linear_options *options, bool by_rows, const char *call)
{
    const clv_type type = clv_graph_type(graph, x);
    if (!clv_graph_require(graph, options != NULL, call, "options") ||
        !clv_graph_options_copy_in(graph, &l->o, sizeof l->o, sizeof l->o, options, call) || !clv_valid(x) ||
        type.rank < 1)
        return false;
    l->rank = type.rank;
    l->features = l->o.features ? l->o.features : CLV_MLP;
    l->names[!by_rows] = l->features;
    l->names[by_rows] = CLV_EMBED_KERNEL;
    const int64_t shape[] = {type.shape[type.rank - 1], features};
    l->split = clv_nn_activation_layout(graph, rules, type.rank - 1, 1, &l->features);
    const clv_weight_spec spec = {
        part_name(graph, &l->o, "weight"), type.dtype, 2, 1, shape, l->names, NULL, l->o.init, 0};
    l->weight = clv_nn_stored_weight(graph, rules, &spec);
    return true;
}

static const char *output_name(clv_logical_axis features)
{
    return clv_logical_axis_equal(features, CLV_MLP)     ? "the MLP activation"
           : clv_logical_axis_equal(features, CLV_VOCAB) ? "the logits tensor"
                                                         : "the output of the product";
}

clv_value clv_column_parallel_linear(clv_graph *graph, clv_value x, int64_t features, const clv_axis_rules *rules,
                                     const clv_linear_options *options)
{
    linear l;
    if (!begin(&l, graph, x, features, rules, options, false, __func__))
        return CLV_NONE;
    x = clv_nn_enter_parallel_region(graph, x, rules, l.features);
    clv_value y = clv_nn_stored_weight_product(graph, x, rules, &l.weight, NULL, "m", "mf", "f");
    y = clv_nn_constrain(graph, y, &l.split, rules, output_name(l.features), 1, &l.features);
    y = add_bias(graph, y, &l.o, features, rules, l.features);
    if (!l.o.gather_output)
        return y;
    clv_layout whole = l.split;
    clv_layout_set_dim(&whole, &graph->mesh, l.rank - 1, NULL, 0, 1, NULL);
    return clv_nn_constrain(graph, y, &whole, rules, "the gathered output", 1, &l.features);
}

clv_value clv_row_parallel_linear(clv_graph *graph, clv_value x, int64_t features, const clv_axis_rules *rules,
                                  const clv_linear_options *options)
{
    linear l;
    if (!begin(&l, graph, x, features, rules, options, true, __func__))
        return CLV_NONE;
    if (!l.o.input_is_parallel)
        x = clv_nn_constrain(graph, x, &l.split, rules, "the input of the product", 1, &l.features);
    clv_value y = clv_nn_stored_weight_product(graph, x, rules, &l.weight, NULL, "f", "fm", "m");
    y = clv_nn_leave_parallel_region(graph, y, rules);
    return add_bias(graph, y, &l.o, features, rules, CLV_EMBED);
}
