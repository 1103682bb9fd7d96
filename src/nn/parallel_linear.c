/* parallel_linear.c - ColumnParallelLinear and RowParallelLinear (Shoeybi et al. 2019, arXiv:1909.08053). */
#include "graph/graph.h"
#include "nn/layer_layouts.h"
#include "nn/stored_weight.h"

static const char *part_name(clv_graph *graph, const clv_linear_options *options, const char *part)
{
    return clv_nn_parameter_name(graph, options->name ? options->name : "linear", part);
}

static clv_stored_weight weight_of(clv_graph *graph, const clv_axis_rules *rules, const clv_linear_options *options,
                                   clv_dtype dtype, const int64_t *shape, const clv_logical_axis *names)
{
    const clv_weight_spec spec = {.name = part_name(graph, options, "weight"),
                                  .dtype = dtype,
                                  .rank = 2,
                                  .n_in = 1,
                                  .shape = shape,
                                  .names = names,
                                  .init = options->init};
    return clv_nn_stored_weight(graph, rules, &spec);
}

/* The logical axis of the features that ranks split. */
static clv_logical_axis features_of(const clv_linear_options *options)
{
    return options->features ? options->features : CLV_MLP;
}

static clv_value add_bias(clv_graph *graph, clv_value y, const clv_linear_options *options, int64_t features,
                          const clv_axis_rules *rules, clv_logical_axis axis)
{
    if (!options->bias)
        return y;
    return clv_nn_add_bias(graph, y, rules, part_name(graph, options, "bias"), 1, &features, &axis, NULL);
}

/* Copies the caller's options. */
static bool copy_options(clv_linear_options *out, clv_graph *graph, const clv_linear_options *options, const char *call)
{
    return clv_graph_require(graph, options != NULL, call, "options") &&
           clv_graph_take_options(graph, out, sizeof *out, sizeof *out, options, call);
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
    clv_linear_options o;
    if (!copy_options(&o, graph, options, "clv_column_parallel_linear"))
        return CLV_NONE;
    clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || type.rank < 1)
        return CLV_NONE;
    clv_logical_axis names[] = {CLV_EMBED_KERNEL, features_of(&o)};
    int64_t shape[] = {type.shape[type.rank - 1], features};
    clv_layout split = clv_nn_activation(graph, rules, type.rank - 1, 1, &names[1]);
    clv_stored_weight weight = weight_of(graph, rules, &o, type.dtype, shape, names);
    x = clv_nn_enter_parallel_region(graph, x, rules, names[1]);
    clv_value y = clv_nn_stored_weight_product(graph, x, rules, &weight, NULL, "m", "mf", "f");
    y = clv_nn_constrain(graph, y, &split, rules, output_name(names[1]), 1, &names[1]);
    y = add_bias(graph, y, &o, features, rules, names[1]);
    if (!o.gather_output)
        return y;
    clv_layout whole = split;
    clv_layout_set_dim(&whole, &graph->mesh, type.rank - 1, NULL, 0, 1, NULL);
    return clv_nn_constrain(graph, y, &whole, rules, "the gathered output", 1, &names[1]);
}

clv_value clv_row_parallel_linear(clv_graph *graph, clv_value x, int64_t features, const clv_axis_rules *rules,
                                  const clv_linear_options *options)
{
    clv_linear_options o;
    if (!copy_options(&o, graph, options, "clv_row_parallel_linear"))
        return CLV_NONE;
    clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || type.rank < 1)
        return CLV_NONE;
    clv_logical_axis names[] = {features_of(&o), CLV_EMBED_KERNEL};
    int64_t shape[] = {type.shape[type.rank - 1], features};
    clv_layout split = clv_nn_activation(graph, rules, type.rank - 1, 1, &names[0]);
    clv_stored_weight weight = weight_of(graph, rules, &o, type.dtype, shape, names);
    if (!o.input_is_parallel)
        x = clv_nn_constrain(graph, x, &split, rules, "the input of the product", 1, &names[0]);
    clv_value y = clv_nn_stored_weight_product(graph, x, rules, &weight, NULL, "f", "fm", "m");
    y = clv_nn_leave_parallel_region(graph, y, rules);
    return add_bias(graph, y, &o, features, rules, CLV_EMBED);
}
