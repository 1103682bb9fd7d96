/* allreduce_program.c - makes the all-reduce benchmark program, shared by `cleave bench allreduce` and
 * bench/allreduce_mpi.c. */
#include "cli/bench/allreduce_program.h"

#include <string.h>

clv_status clv_allreduce_program(clv_program **out, int ranks, int64_t count, clv_error *err)
{
    clv_mesh mesh = {.n_axes = 1, .axis = {{.name = "ranks", .size = ranks}}};
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, &mesh, err));
    clv_layout rows = clv_graph_layout(graph, 2, "ranks,_"), whole = clv_graph_layout(graph, 1, "_");
    clv_init one = {CLV_INIT_ONES, 0};
    clv_value ones = clv_state(graph, "table", CLV_F32, 2, (int64_t[]){ranks, count}, &rows, one);
    clv_value here = clv_state(graph, "here", CLV_F32, 2, (int64_t[]){ranks, 1}, &rows, one);
    clv_value table = ones, met = here, sum = {0}, all = {0};

    for (int k = 0; k < CLV_ALLREDUCE_ROUNDS; k++) {
        clv_keep_stationary(graph, table, "ranks"); /* else slices of the addends may be exchanged, and then gathered */
        clv_keep_stationary(graph, met, "ranks");
        clv_value mine = clv_reduce(graph, CLV_SUM, table, (int[]){0}, 1, false);
        all = clv_constrain(graph, clv_reduce(graph, CLV_SUM, met, (int[]){0}, 1, false), &whole);
        sum = clv_constrain(graph, mine, &whole);
        table = clv_constrain(graph, clv_mul(graph, ones, sum), &rows);
        met = clv_constrain(graph, clv_mul(graph, here, all), &rows);
    }
    clv_output(graph, "sum", sum, &whole);
    clv_output(graph, "met", all, &whole);
    clv_status status = clv_compile(out, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}

bool clv_allreduce_take_seconds(double took[CLV_ALLREDUCE_ROUNDS], clv_session *session, const clv_program *program)
{
    int steps = 0;
    bool sums = true;
    clv_instruction_info info = {.size = sizeof info};
    for (int i = 0; clv_program_instruction(program, i, &info, NULL) == CLV_OK; i++) {
        if (!info.moves)
            continue;
        sums = sums && strcmp(info.kind, "all_reduce") == 0 && steps < 2 * CLV_ALLREDUCE_ROUNDS;
        if (sums && steps % 2 == 1)
            took[steps / 2] = clv_session_instruction_seconds(session, program, i);
        steps++;
    }
    clv_session_take_stats(session, NULL, NULL);
    return sums && steps == 2 * CLV_ALLREDUCE_ROUNDS;
}
