/* linear.c - column- and row-parallel linear layers (Shoeybi et al. 2019, arXiv:1909.08053). */
#include <stdio.h>

#include "graph/graph.h"
#include "nn/layouts.h"

static const char *part_name(char *out, size_t size, const clv_linear_options *options, const char *part)
{
    snprintf(out, size, "%s.%s", options->name ? options->name : "linear", part);
    return out;
}

static clv_value weight_of(clv_graph *graph, const clv_parallel *parallel, const clv_linear_options *options,
                           clv_dtype dtype, const int64_t *shape, const clv_layout *layout)
{
    char name[128];
    return clv_nn_weight_state(graph, parallel, part_name(name, sizeof name, options, "weight"), dtype, 2, shape,
                               layout, options->init);
}

static clv_value add_bias(clv_graph *graph, clv_value y, const clv_linear_options *options, int64_t features,
                          const clv_layout *layout)
{
    char name[128];
    clv_init zeros = {CLV_INIT_ZEROS, 0};
    if (!options->bias)
        return y;
    return clv_add(graph, y,
                   clv_state(graph, part_name(name, sizeof name, options, "bias"), clv_graph_type(graph, y).dtype, 1,
                             &features, layout, zeros));
}

clv_value clv_column_parallel_linear(clv_graph *graph, clv_value x, int64_t features, const clv_parallel *parallel,
                                     const clv_linear_options *options)
{
    clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || type.rank < 1)
        return CLV_NONE;
    int64_t shape[] = {type.shape[type.rank - 1], features};
    clv_layout columns = clv_nn_weight(graph, parallel, 2, 1, 1), part = clv_nn_weight(graph, parallel, 1, 0, 1);
    clv_layout split = clv_nn_activation(graph, parallel, type.rank, type.rank - 1, 1);
    clv_value weight = weight_of(graph, parallel, options, type.dtype, shape, &columns);
    clv_value y = clv_nn_product(graph, clv_nn_enter(graph, x, parallel), weight, "m", "mf", "f");
    y = clv_constrain(graph, y, &split);
    y = add_bias(graph, y, options, features, &part);
    return options->gather_output ? clv_nn_enter(graph, y, parallel) : y;
}

clv_value clv_row_parallel_linear(clv_graph *graph, clv_value x, int64_t features, const clv_parallel *parallel,
                                  const clv_linear_options *options)
{
    clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || type.rank < 1)
        return CLV_NONE;
    int64_t shape[] = {type.shape[type.rank - 1], features};
    clv_layout rows = clv_nn_weight(graph, parallel, 2, 0, 1), whole = clv_layout_replicated(1);
    clv_layout split = clv_nn_activation(graph, parallel, type.rank, type.rank - 1, 1);
    clv_value weight = weight_of(graph, parallel, options, type.dtype, shape, &rows);
    if (!options->input_is_parallel)
        x = clv_constrain(graph, x, &split);
    clv_value y = clv_nn_leave(graph, clv_nn_product(graph, x, weight, "f", "fm", "m"), parallel);
    return add_bias(graph, y, options, features, &whole);
}
