/* eval_loss.c - computes the evaluation loss of a batch by a forward-only program; nothing is updated. */
#include <math.h>

#include "train/trainer.h"

/* Compiles and loads the program, once. */
static clv_status load(clv_trainer *t, clv_error *err)
{
    clv_graph *graph;
    clv_program *program;
    if (t->eval_program)
        return CLV_OK;
    CLV_TRY(clv_graph_new(&graph, &t->model->mesh, err));
    const clv_model_graph_options how = clv_trainer_graph_options(t);
    clv_model_loss(graph, t->model, &how);
    clv_status status = clv_model_compile(&program, t->model, graph, err);
    clv_graph_free(graph);
    CLV_TRY(status);
    t->eval_program = program;
    return clv_session_load(t->session, program, err);
}

clv_status clv_trainer_loss(clv_trainer *t, const int32_t *ids, const int32_t *labels, const uint8_t *mask,
                            double *loss, clv_error *err)
{
    clv_input_binding inputs[CLV_TRAINER_INPUTS];
    int n;
    if (!t || !ids || !labels || !loss)
        return clv_require(0, __func__, "a trainer, ids, labels, and where the loss goes", err);
    CLV_TRY(clv_trainer_bind_inputs(inputs, &n, NULL, t, ids, labels, mask, err));
    CLV_TRY(load(t, err));
    float mean = NAN;
    clv_session_stats none = {.size = sizeof none}; /* keeps this run out of the next step's times */
    CLV_TRY(clv_session_run(t->session, t->eval_program, inputs, n, (clv_output_binding[]){{"loss", &mean}}, 1, err));
    CLV_TRY(clv_session_take_stats(t->session, &none, err));
    *loss = mean;
    return CLV_OK;
}
