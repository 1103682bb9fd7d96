/* train_block.c - a transformer block split over two ranks, trained on a toy regression. Nothing here says where a
 * collective goes: they follow from the layouts that the block states. */
#include <cleave/nn.h>
#include <cleave/program.h>
#include <cleave/session.h>
#include <stdio.h>

enum { B = 2, S = 16, M = 32, HEADS = 4, FFN = 64, STEPS = 50, MAX_PARAMETERS = 16 };

/* One training step as a graph: block, mean squared error, gradients, AdamW. */
static void build(clv_graph *graph)
{
    clv_axis_rules rules = clv_graph_axis_rules(graph, "megatron-sp");
    clv_block_options options = clv_block_defaults(CLV_BLOCK_LLAMA, HEADS, HEADS, FFN);
    clv_value parameters[MAX_PARAMETERS], gradients[MAX_PARAMETERS];
    int64_t shape[] = {B, S, M};
    int all[] = {0, 1, 2};

    clv_value x = clv_input(graph, "x", CLV_F32, 3, shape, NULL);
    clv_value target = clv_input(graph, "target", CLV_F32, 3, shape, NULL);
    clv_value lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL);
    clv_value step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);

    clv_value y = clv_transformer_block(graph, x, &rules, &options);
    clv_value error = clv_sub(graph, y, target);
    clv_value loss = clv_reduce(graph, CLV_MEAN, clv_mul(graph, error, error), all, 3, false);

    int n = clv_graph_parameters(graph, parameters, MAX_PARAMETERS);
    clv_gradients(graph, loss, CLV_NONE, parameters, n, gradients);
    for (int i = 0; i < n; i++)
        clv_adamw(graph, parameters[i], gradients[i], lr, step, NULL);
    clv_output(graph, "loss", loss, NULL);
}

static clv_status train(clv_error *err)
{
    static float x[B * S * M], target[B * S * M];
    clv_mesh mesh;
    clv_graph *graph = NULL;
    clv_program *program = NULL;
    clv_session *session = NULL;

    clv_random_normal(x, clv_key_seed(1), 0, B * S * M);
    for (int i = 0; i < B * S * M; i++)
        target[i] = x[(i + M) % (B * S * M)]; /* the row after */

    clv_status status = clv_mesh_parse(&mesh, "model=2", err);
    if (status == CLV_OK)
        status = clv_graph_new(&graph, &mesh, err);
    if (status == CLV_OK) {
        build(graph);
        status = clv_compile(&program, graph, NULL, err);
    }
    if (status == CLV_OK)
        status = clv_session_new(&session, &mesh, NULL, err);
    for (int32_t step = 1; status == CLV_OK && step <= STEPS; step++) {
        float lr = 0.01f, loss;
        clv_input_binding inputs[] = {{"x", x}, {"target", target}, {"lr", &lr}, {"step", &step}};
        clv_output_binding outputs[] = {{"loss", &loss}};
        status = clv_session_run(session, program, inputs, 4, outputs, 1, err);
        if (status == CLV_OK && (step == 1 || step % 10 == 0))
            printf("step %2d  loss %.4f\n", (int)step, loss);
    }
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
    return status;
}

int main(void)
{
    clv_error err = {0};
    if (train(&err) != CLV_OK)
        fprintf(stderr, "train_block: %s\n", err.message);
    return err.code != CLV_OK;
}
