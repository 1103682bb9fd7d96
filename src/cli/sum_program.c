#include "cli/sum_program.h"

clv_status clv_sum_program(clv_program **out, int ranks, int64_t count, clv_error *err)
{
    clv_mesh mesh = {.n_axes = 1, .axis = {{.name = "ranks", .size = ranks}}};
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, &mesh, err));
    clv_layout rows = clv_graph_layout(graph, 2, "ranks,_"), whole = clv_graph_layout(graph, 1, "_");
    clv_value ones =
        clv_state(graph, "table", CLV_F32, 2, (int64_t[]){ranks, count}, &rows, (clv_init){CLV_INIT_ONES, 0});
    clv_value table = ones, sum = {0};

    for (int k = 0; k < CLV_SUM_ROUNDS; k++) {
        sum = clv_constrain(graph, clv_reduce(graph, CLV_SUM, table, (int[]){0}, 1, false), &whole);
        table = clv_mul(graph, ones, sum);
    }
    clv_output(graph, "sum", sum, &whole);
    clv_status status = clv_compile(out, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}
