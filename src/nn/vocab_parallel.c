/* vocab_parallel.c - vocabulary-parallel embedding, tied logits and cross-entropy. */
#include "graph/graph.h"
#include "nn/layer_layouts.h"

clv_value clv_vocab_parallel_embedding(clv_graph *graph, clv_value ids, int64_t vocabulary, int64_t width,
                                       clv_dtype dtype, const clv_axis_rules *rules, const char *name, clv_init init)
{
    if (!clv_graph_require(graph, true, __func__, ""))
        return CLV_NONE;
    const char *full = clv_nn_parameter_name(graph, name ? name : "embedding", "weight");
    int64_t shape[] = {vocabulary, width};
    static const clv_logical_axis names[] = {CLV_VOCAB, CLV_EMBED_KERNEL};
    clv_value table = clv_nn_weight(graph, rules, full, dtype, 2, shape, names, NULL, init);
    return clv_nn_leave_parallel_region(graph, clv_embedding(graph, table, ids), rules);
}

clv_value clv_vocab_parallel_logits(clv_graph *graph, clv_value x, clv_value table, const clv_axis_rules *rules)
{
    if (!clv_graph_require(graph, true, __func__, ""))
        return CLV_NONE;
    return clv_nn_product(graph, clv_nn_enter_parallel_region(graph, x, rules, CLV_VOCAB), table, "m", "vm", "v");
}

clv_value clv_vocab_parallel_cross_entropy(clv_graph *graph, clv_value logits, clv_value labels, int64_t ignored)
{
    if (!clv_graph_require(graph, true, __func__, ""))
        return CLV_NONE;
    clv_value rows = clv_cross_entropy(graph, logits, labels, ignored);
    clv_type type = clv_graph_type(graph, rows);
    int dims[CLV_MAX_RANK];
    for (int d = 0; d < type.rank; d++)
        dims[d] = d;
    clv_value sum = clv_reduce(graph, CLV_SUM, rows, dims, type.rank, false);
    return clv_div(graph, sum, clv_count_labels(graph, labels, ignored, type.dtype));
}
