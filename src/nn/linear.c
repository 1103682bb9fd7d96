/* linear.c - column- and row-parallel linear layers (Shoeybi et al. 2019, arXiv:1909.08053). */
#include <stdio.h>

#include "graph/graph.h"
#include "nn/layouts.h"

static clv_value parameter(clv_graph *graph, const char *name, const char *part, clv_dtype dtype, int rank,
                           const int64_t *shape, const clv_layout *layout, clv_init init)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", name ? name : "linear", part);
    return clv_state(graph, full, dtype, rank, shape, layout, init);
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
    clv_value weight = parameter(graph, options->name, "weight", type.dtype, 2, shape, &columns, options->init);
    clv_value y = clv_nn_product(graph, clv_nn_enter(graph, x, parallel), weight, "m", "mf", "f");
    y = clv_constrain(graph, y, &split);
    if (options->bias) {
        clv_init zeros = {CLV_INIT_ZEROS, 0};
        y = clv_add(graph, y,
                    parameter(graph, options->name, "bias", type.dtype, 1, &features, &part, zeros));
    }
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
    clv_value weight = parameter(graph, options->name, "weight", type.dtype, 2, shape, &rows, options->init);
    if (!options->input_is_parallel)
        x = clv_constrain(graph, x, &split);
    clv_value y = clv_nn_leave(graph, clv_nn_product(graph, x, weight, "f", "fm", "m"), parallel);
    if (options->bias) {
        clv_init zeros = {CLV_INIT_ZEROS, 0};
        y = clv_add(graph, y,
                    parameter(graph, options->name, "bias", type.dtype, 1, &features, &whole, zeros));
    }
    return y;
}
