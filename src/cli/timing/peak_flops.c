/* peak_flops.c - measured peak FLOP/s of a rank (512 x 512 matmuls), the denominator of MFU. */
#include "cli/timing/peak_flops.h"

enum { SIDE = 512, PRODUCTS = 4, RUNS = 4 };

/* "(data,model),_": rows over all axes. */
static clv_status rows_layout(clv_layout *out, const clv_mesh *mesh, clv_error *err)
{
    *out = clv_layout_replicated(2);
    for (int a = 0; a < mesh->n_axes; a++)
        if (mesh->axis[a].size > 1)
            CLV_TRY(clv_layout_shard_dim(out, mesh, 0, clv_mesh_whole_axis(mesh, a), err));
    return CLV_OK;
}

/* Each rank multiplies rows of its own by one matrix, again and again. */
static clv_status compile(clv_program **out, const clv_mesh *mesh, clv_dtype dtype, clv_error *err)
{
    clv_graph *graph;
    clv_layout layout;
    CLV_TRY(rows_layout(&layout, mesh, err));
    CLV_TRY(clv_graph_new(&graph, mesh, err));
    clv_value matrix = clv_fill(graph, dtype, 2, (int64_t[]){SIDE, SIDE}, 1.0 / SIDE);
    clv_value rows = clv_fill(graph, dtype, 2, (int64_t[]){SIDE * clv_mesh_rank_count(mesh), SIDE}, 1);
    rows = clv_constrain(graph, rows, &layout);
    for (int i = 0; i < PRODUCTS; i++)
        rows = clv_constrain(graph, clv_einsum(graph, "rk,kn->rn", rows, matrix), &layout);
    clv_output(graph, "rows", rows, &layout);
    clv_status status = clv_compile(out, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}

clv_status clv_peak_flops_measure(double *flops_per_s, clv_session *session, const clv_mesh *mesh, clv_dtype dtype,
                                  clv_error *err)
{
    clv_program *program;
    clv_prediction work = {.size = sizeof work};
    double best = 0;
    CLV_TRY(compile(&program, mesh, dtype, err));
    clv_status status = clv_program_predict(program, NULL, &work, err);
    for (int i = 0; status == CLV_OK && i < RUNS; i++) {
        clv_session_stats took = {.size = sizeof took};
        status = clv_session_run(session, program, NULL, 0, NULL, 0, err);
        if (status == CLV_OK)
            status = clv_session_take_stats(session, &took, err);
        double seconds = took.seconds - took.comm_seconds;
        if (i > 0 && seconds > 0 && (best == 0 || seconds < best)) /* the first makes ready what products need */
            best = seconds;
    }
    clv_session_unload(session, program);
    clv_program_free(program);
    *flops_per_s = best > 0 ? work.flops / best : 0;
    return status;
}
