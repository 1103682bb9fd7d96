/* two_layers.c - a net of two layers made from ops, trained on a mesh of data and model: the batch is split over one
 * axis, the hidden features over the other. The last lines list the collectives that this takes. */
#include <math.h>
#include <stdio.h>
#include "cleave/cleave.h"

enum { N = 64, IN = 2, HIDDEN = 32, STEPS = 300 };

static clv_value weight(clv_graph *graph, const char *name, int64_t rows, int64_t columns, const char *layout)
{
    clv_layout stated = clv_graph_layout(graph, 2, layout);
    return clv_state(graph, name, CLV_F32, 2, (int64_t[]){rows, columns}, &stated, (clv_init){CLV_INIT_NORMAL, 0.5});
}

/* tanh(x W1) W2, its mean squared distance from y, and AdamW. */
static void build(clv_graph *graph)
{
    clv_layout rows = clv_graph_layout(graph, 2, "data,_");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){N, IN}, &rows);
    clv_value y = clv_input(graph, "y", CLV_F32, 2, (int64_t[]){N, 1}, &rows);
    clv_value lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL),
              step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);
    clv_value w[2] = {weight(graph, "w1", IN, HIDDEN, "_,model"), weight(graph, "w2", HIDDEN, 1, "model,_")}, d[2];
    clv_value hidden = clv_unary(graph, CLV_TANH, clv_einsum(graph, "ni,ih->nh", x, w[0]));
    clv_value error = clv_sub(graph, clv_einsum(graph, "nh,ho->no", hidden, w[1]), y);
    clv_value loss = clv_reduce(graph, CLV_MEAN, clv_mul(graph, error, error), (int[]){0, 1}, 2, false);
    clv_gradients(graph, loss, CLV_NONE, w, 2, d);
    for (int i = 0; i < 2; i++)
        clv_adamw(graph, w[i], d[i], lr, step, NULL);
    clv_output(graph, "loss", loss, NULL);
}

static clv_status train(clv_session *session, const clv_program *program, clv_error *err)
{
    float x[N * IN], y[N], lr = 0.01f, loss;
    clv_random_uniform(x, clv_key_seed(1), 0, N * IN, -1, 1);
    for (int i = 0; i < N; i++)
        y[i] = sinf(2 * x[IN * i] - x[IN * i + 1]);
    for (int32_t step = 1; step <= STEPS; step++) {
        clv_input_binding inputs[] = {{"x", x}, {"y", y}, {"lr", &lr}, {"step", &step}};
        CLV_TRY(clv_session_run(session, program, inputs, 4, &(clv_output_binding){"loss", &loss}, 1, err));
        if (step == 1 || step % 100 == 0)
            printf("step %3d  loss %.4f\n", (int)step, (double)loss);
    }
    return CLV_OK;
}

static clv_status run(const char *mesh_text, clv_error *err)
{
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program = NULL;
    clv_session *session = NULL;
    CLV_TRY(clv_mesh_parse(&mesh, mesh_text, err));
    CLV_TRY(clv_graph_new(&graph, &mesh, err));
    build(graph);
    clv_status status = clv_compile(&program, graph, NULL, err); /* or what went wrong while it was built */
    if (status == CLV_OK)
        status = clv_session_new(&session, &mesh, NULL, err);
    if (status == CLV_OK)
        status = train(session, program, err);
    for (int i = 0; status == CLV_OK && i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        status = clv_program_collective(program, i, &c, err);
        printf("%s of %s\n", c.kind, c.tensor);
    }
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
    return status;
}

int main(int argc, char **argv)
{
    clv_error err = {0};
    if (run(argc > 1 ? argv[1] : "data=2,model=2", &err) != CLV_OK)
        fprintf(stderr, "%s: %s\n", argv[0], err.message);
    return err.code != CLV_OK;
}
