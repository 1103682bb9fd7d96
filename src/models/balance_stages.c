/* balance_stages.c - finds the time of a model's head in layers, by which pipeline stages are balanced: from the
 * predicted times of a forward pass of two layers on two stages. */
#include "models/model.h"
#include "nn/axis_rules.h"

enum { SEQ = 512 };

static clv_status compile_two_layers(clv_program **out, const clv_model *m, int axis, clv_error *err)
{
    clv_model_config config = m->config;
    clv_mesh mesh = m->mesh;
    clv_graph *graph;
    clv_model_build_options build = {.batch = clv_mesh_rank_count(&mesh) / mesh.axis[axis].size,
                                     .seq = config.max_positions < SEQ ? config.max_positions : SEQ,
                                     .rules = m->rules,
                                     .dtype = m->dtype,
                                     .quant = m->quant};
    build.rules.virtual_stages = build.rules.n_stage_layers = 0;
    config.layers = mesh.axis[axis].size = 2;
    CLV_TRY(clv_graph_new(&graph, &mesh, err));
    clv_output(graph, "logits", clv_build_forward(graph, &config, &build, NULL), NULL);
    const clv_status status = clv_compile(out, graph, &(clv_compile_options){.machine = m->machine}, err);
    clv_graph_free(graph);
    return status;
}

void clv_model_balance_stages(clv_model *m)
{
    const int axis = clv_axis_rules_stage_axis(&m->rules);
    clv_stage_info first = {.size = sizeof first}, last = first;
    clv_program *program = NULL;
    if (axis < 0 || m->mesh.axis[axis].size < 2 || m->config.headless || m->rules.n_stage_layers > 0 ||
        compile_two_layers(&program, m, axis, NULL) != CLV_OK) /* the model's own graphs say what fails */
        return;
    if (clv_program_stage(program, m->machine, 0, &first, NULL) == CLV_OK &&
        clv_program_stage(program, m->machine, 1, &last, NULL) == CLV_OK && first.busy_seconds > 0 &&
        last.busy_seconds > first.busy_seconds)
        m->rules.head_layers = last.busy_seconds / first.busy_seconds - 1;
    clv_program_free(program);
}
