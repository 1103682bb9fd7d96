#include "nn/layouts.h"

#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

/* The whole of a named axis; n = 0 when there is none or it has one rank. */
static int axis_of(clv_graph *graph, const char *name, clv_subaxis *out)
{
    int index;
    if (!name || !clv_graph_ok(graph) || clv_mesh_find(&index, &graph->mesh, name, &graph->error) != CLV_OK)
        return 0;
    *out = clv_mesh_whole(&graph->mesh, index);
    return out->size > 1;
}

void clv_nn_cut(clv_graph *graph, clv_layout *layout, int d, const clv_subaxis *axes, int n, int64_t granule)
{
    if (n > 0 && clv_graph_ok(graph))
        clv_layout_set_dim(layout, &graph->mesh, d, axes, n, granule, &graph->error);
}

clv_layout clv_nn_weight(clv_graph *graph, const clv_parallel *parallel, int rank, int split, int64_t granule)
{
    clv_layout layout = clv_layout_replicated(rank);
    clv_subaxis axis;
    if (split >= 0)
        clv_nn_cut(graph, &layout, split, &axis, axis_of(graph, parallel->axis, &axis), granule);
    return layout;
}

clv_layout clv_nn_activation(clv_graph *graph, const clv_parallel *parallel, int rank, int split, int64_t granule)
{
    clv_layout layout = clv_nn_weight(graph, parallel, rank, split, granule);
    clv_subaxis batch;
    if (rank >= 2)
        clv_nn_cut(graph, &layout, 0, &batch, axis_of(graph, parallel->batch_axis, &batch), 1);
    return layout;
}

clv_layout clv_residual_layout(clv_graph *graph, const clv_parallel *parallel, int rank)
{
    bool split = parallel->sequence_parallel && rank >= 2;
    clv_layout layout = clv_nn_activation(graph, parallel, rank, split && rank > 2 ? rank - 2 : -1, 1);
    clv_subaxis axes[2];
    if (split && rank == 2) { /* [N,M]: rows are split by both */
        int n = axis_of(graph, parallel->batch_axis, axes);
        n += axis_of(graph, parallel->axis, axes + n);
        clv_nn_cut(graph, &layout, 0, axes, n, 1);
    }
    return layout;
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

clv_head_cut clv_nn_head_cut(clv_graph *graph, const clv_parallel *parallel, int64_t heads, int64_t kv_heads)
{
    clv_head_cut cut = {.query_granule = 1};
    clv_subaxis axis;
    cut.n = cut.n_kv = axis_of(graph, parallel->axis, &axis);
    if (cut.n == 0)
        return cut;
    cut.query = cut.kv = axis;
    if (heads == kv_heads)
        return cut;
    if (axis.size <= kv_heads) {
        cut.query_granule = heads / kv_heads;
        return cut;
    }
    cut.kv.size = (int32_t)gcd(axis.size, kv_heads);
    cut.n_kv = cut.kv.size > 1;
    return cut;
}

clv_value clv_nn_weight_state(clv_graph *graph, const clv_parallel *parallel, const char *name, clv_dtype dtype,
                              int rank, const int64_t *shape, const clv_layout *layout, clv_init init)
{
    clv_value weight = clv_state(graph, name, dtype, rank, shape, layout, init);
    if (parallel->axis)
        clv_keep_in_place(graph, weight, parallel->axis);
    return weight;
}

clv_value clv_nn_enter(clv_graph *graph, clv_value x, const clv_parallel *parallel)
{
    clv_layout layout = clv_nn_activation(graph, parallel, clv_graph_type(graph, x).rank, -1, 1);
    return clv_constrain(graph, x, &layout);
}

clv_value clv_nn_leave(clv_graph *graph, clv_value x, const clv_parallel *parallel)
{
    clv_layout layout = clv_residual_layout(graph, parallel, clv_graph_type(graph, x).rank);
    return clv_constrain(graph, x, &layout);
}

clv_value clv_nn_product(clv_graph *graph, clv_value x, clv_value weight, const char *in, const char *kernel,
                         const char *out)
{
    int rows = clv_graph_type(graph, x).rank - (int)strlen(in);
    char leading[CLV_MAX_RANK + 1] = "", subscripts[64];
    if (rows < 0)
        return clv_graph_fail(graph, CLV_ESHAPE, "%slinear: the input has fewer dimensions than its weight needs",
                              graph->scope);
    for (int d = 0; d < rows; d++)
        leading[d] = (char)('A' + d);
    snprintf(subscripts, sizeof subscripts, "%s%s,%s->%s%s", leading, in, kernel, leading, out);
    return clv_einsum(graph, subscripts, x, weight);
}
