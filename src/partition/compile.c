/* compile.c - clv_compile: checks the options and runs the passes from graph to program.
 *
 *   propagate_layouts       graph -> target layouts of values
 *   search_layouts          -> strategies that cost less over the whole graph, where that is asked for
 *   choose_strategies       -> sharding table: a strategy for every op, reshards between them
 *   recompute_activations   repeats rows of the forward pass in the backward pass
 *   reduce_gradients_early  moves reductions of gradients to where these are made
 *   place_stages            pipeline stages of rows, and the sends between them
 *   compress_collectives    marks steps that have a narrower wire dtype
 *   lower_to_program        table -> program: instructions over buffers
 *   dispatch_expert_rows    sends rows of experts to their ranks alone, where that is faster (program/)
 *   ring_attention          passes keys and values around a ring, where that is faster (program/)
 *   latency_hiding_scheduler  reorders instructions to overlap collectives, in parts (program/, with chunk_collectives)
 *   pipeline_scheduler      of pipeline stages: the order of microbatches (program/), instead of the pass before
 *   memory_planner          offsets of buffers (program/)
 *
 * A pass that changes decisions belongs between choose_strategies and lower_to_program and edits the table. Until
 * place_stages the axis of pipeline stages has one rank: all stages are sharded alike.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/error.h"
#include "partition/passes/passes.h"
#include "program/program.h"

/* Layouts may not use the axis of stages, which the passes do not see. */
static clv_status check_stage_axis(const clv_graph *graph, const clv_layout *layout, const char *what, clv_error *err)
{
    bool uses = layout->stage_axis > 0;
    for (int i = 0; i < layout->begin[layout->rank + 1]; i++)
        uses = uses || layout->axes[i].axis + 1 == graph->stage_axis;
    return uses ? clv_fail(err, CLV_EAXIS,
                           "%s: a layout may not name the axis of pipeline stages; valid: clv_graph_set_stage", what)
                : CLV_OK;
}

static clv_status check_stated_layouts(const clv_graph *graph, clv_error *err)
{
    for (int v = 1; v < graph->n_values; v++)
        if (graph->values[v].stated)
            CLV_TRY(check_stage_axis(graph, &graph->values[v].layout, clv_graph_name_of(graph, v), err));
    for (int o = 0; o < graph->n_ops; o++)
        if (clv_op_constraint_of(&graph->ops[o]))
            CLV_TRY(check_stage_axis(graph, clv_op_constraint_of(&graph->ops[o]), graph->ops[o].name, err));
    for (int o = 0; o < graph->n_outputs; o++)
        if (graph->outputs[o].stated)
            CLV_TRY(check_stage_axis(graph, &graph->outputs[o].layout, graph->outputs[o].name, err));
    return CLV_OK;
}

static clv_status run_passes(clv_program *program, clv_partitioner *p, clv_error *err)
{
    const clv_compile_options *o = p->options;
    const clv_graph *graph = p->graph;
    clv_graph of_stage = *graph;
    CLV_TRY(check_stated_layouts(graph, err));
    if (graph->stage_axis > 0) {
        of_stage.mesh.axis[graph->stage_axis - 1].size = 1;
        p->graph = &of_stage;
        p->reshards = NULL; /* those are of the whole mesh */
    }
    CLV_TRY(clv_partitioner_init(p, err));
    CLV_TRY(clv_partition_propagate_layouts(p, err));
    CLV_TRY(clv_partition_search_layouts(p, err));
    CLV_TRY(clv_partition_choose_strategies(p, err));
    CLV_TRY(clv_recompute_activations(&p->table, o->recompute, o->reshard_after_forward != CLV_RESHARD_NONE, err));
    CLV_TRY(clv_reduce_gradients_early(&p->table, err));
    p->table.graph = graph;
    CLV_TRY(clv_place_stages(&p->table, err));
    CLV_TRY(clv_compress_collectives(&p->table, o->comm_dtype, o->grad_reduce_dtype, err));
    CLV_TRY(clv_lower_to_program(program, &p->table, err));
    CLV_TRY(clv_program_dispatch_expert_rows(program, o, p->cost, err));
    CLV_TRY(clv_program_ring_attention(program, o->overlap, p->cost, err));
    program->greedy_by_size_limit = o->greedy_by_size_limit;
    program->recompute = o->recompute;
    if (program->stage_axis > 0)
        CLV_TRY(clv_program_schedule_pipeline(program, o->schedule, o->machine, err));
    else if (o->overlap)
        CLV_TRY(clv_program_schedule_overlap(program, o->machine, err));
    return clv_program_plan_memory(program, err);
}

clv_status clv_compile_options_check(const clv_compile_options *o, const char *what, clv_error *err)
{
    if ((unsigned)o->comm_dtype >= CLV_COMM_DTYPE_COUNT)
        return clv_fail(err, CLV_EDTYPE, "%s: comm_dtype is %d; valid: a clv_comm_dtype", what, (int)o->comm_dtype);
    if ((unsigned)o->grad_reduce_dtype >= CLV_COMM_DTYPE_COUNT)
        return clv_fail(err, CLV_EDTYPE, "%s: grad_reduce_dtype is %d; valid: a clv_comm_dtype", what,
                        (int)o->grad_reduce_dtype);
    if ((unsigned)o->recompute > CLV_RECOMPUTE_FULL)
        return clv_fail(err, CLV_EINVAL, "%s: recompute is %d; valid: %d to %d", what, (int)o->recompute,
                        CLV_RECOMPUTE_NONE, CLV_RECOMPUTE_FULL);
    if (!(o->expert_rank_capacity_factor >= 0 && isfinite(o->expert_rank_capacity_factor)))
        return clv_fail(err, CLV_EINVAL, "%s: expert_rank_capacity_factor is %g; valid: 0 and above", what,
                        o->expert_rank_capacity_factor);
    if (o->memory_limit < 0)
        return clv_fail(err, CLV_EINVAL, "%s: memory_limit is %lld; valid: 0 (the machine's) and above", what,
                        (long long)o->memory_limit);
    if ((unsigned)o->schedule >= CLV_SCHEDULE_COUNT)
        return clv_fail(err, CLV_EINVAL, "%s: schedule is %d; valid: those of clv_plan_schedule", what,
                        (int)o->schedule);
    if ((unsigned)o->reshard_after_forward > CLV_RESHARD_NONE)
        return clv_fail(err, CLV_EINVAL, "%s: reshard_after_forward is %d; valid: %d to %d", what,
                        (int)o->reshard_after_forward, CLV_RESHARD_WEIGHTS, CLV_RESHARD_NONE);
    return CLV_OK;
}

/* What is compiled. */
typedef struct request {
    const clv_graph *graph;
    clv_compile_options options;
    bool is_priced;              /* clv_compile_to_price */
    clv_reshard_cache *reshards; /* likewise */
} request;

static clv_status compile(clv_program **out, const request *of, clv_error *err)
{
    clv_program *program = calloc(1, sizeof *program);
    clv_arena *scratch = clv_arena_new();
    if (program)
        program->arena = clv_arena_new();
    clv_status status = CLV_OK;
    if (!program || !program->arena || !scratch)
        status = clv_fail_memory(err, "a program", sizeof *program);
    if (status == CLV_OK) {
        clv_cost_model cost;
        clv_cost_model_make(&cost, &of->graph->mesh, of->options.machine);
        clv_partitioner p = {.graph = of->graph,
                             .scratch = scratch,
                             .options = &of->options,
                             .cost = &cost,
                             .reshards = of->reshards,
                             .is_priced = of->is_priced};
        status = run_passes(program, &p, err);
    }
    clv_arena_free(scratch);
    if (status == CLV_OK)
        *out = program;
    else
        clv_program_free(program);
    return status;
}

const clv_plan_schedule clv_schedules_of_auto[CLV_SCHEDULES_OF_AUTO] = {CLV_SCHEDULE_DEFAULT, CLV_SCHEDULE_ZERO_BUBBLE,
                                                                        CLV_SCHEDULE_GPIPE};

double clv_compile_memory_limit(const clv_compile_options *options, const clv_mesh *mesh)
{
    clv_cost_model model;
    if (options->memory_limit > 0)
        return (double)options->memory_limit;
    clv_cost_model_make(&model, mesh, options->machine);
    return floor(model.machine->memory_bytes / model.oversubscription);
}

bool clv_step_is_better(double seconds, double bytes, double other_seconds, double other_bytes, double limit)
{
    const bool fits = bytes <= limit, other_fits = other_bytes <= limit;
    return fits != other_fits ? fits : fits ? seconds < other_seconds : bytes < other_bytes;
}

static clv_status is_better(bool *better, const clv_program *a, const clv_program *b,
                            const clv_compile_options *options, clv_error *err)
{
    const clv_program *both[] = {a, b};
    clv_prediction predicted[2];
    clv_memory memory[2];
    for (int i = 0; i < 2; i++) {
        predicted[i].size = sizeof predicted[i];
        memory[i].size = sizeof memory[i];
        CLV_TRY(clv_program_predict(both[i], options->machine, &predicted[i], err));
        CLV_TRY(clv_program_memory(both[i], &memory[i], err));
    }
    *better = clv_step_is_better(predicted[0].seconds, (double)memory[0].total, predicted[1].seconds,
                                 (double)memory[1].total, clv_compile_memory_limit(options, &a->mesh));
    return CLV_OK;
}

/* CLV_SCHEDULE_AUTO. */
static clv_status compile_by_best_schedule(clv_program **out, request *of, clv_error *err)
{
    clv_program *best = NULL, *program;
    clv_status status = CLV_OK;
    for (int i = 0; status == CLV_OK && i < CLV_SCHEDULES_OF_AUTO; i++) {
        bool better = true;
        of->options.schedule = clv_schedules_of_auto[i];
        status = compile(&program, of, err);
        if (status == CLV_OK && best)
            status = is_better(&better, program, best, &of->options, err);
        if (status == CLV_OK) {
            clv_program_free(better ? best : program);
            best = better ? program : best;
        }
    }
    if (status == CLV_OK)
        *out = best;
    else
        clv_program_free(best);
    return status;
}

clv_status clv_fail_interleaved(clv_error *err)
{
    return clv_fail(err, CLV_EINVAL,
                    "the schedule interleaved of stages with one run of layers each; valid: 2 or more runs "
                    "(--virtual-stages), or another schedule");
}

static clv_status check_and_compile(clv_program **out, request *of, const clv_compile_options *options, clv_error *err)
{
    static const char call[] = "clv_compile";
    clv_compile_options *taken = &of->options;
    CLV_TRY(clv_require(out && of->graph, call, "out and a graph", err));
    CLV_TRY(clv_graph_status(of->graph, err));
    CLV_TRY(clv_graph_check_rules(of->graph, err));
    CLV_TRY(clv_options_copy_in(taken, sizeof *taken, sizeof *taken, options, call, err));
    CLV_TRY(clv_compile_options_check(taken, call, err));
    if (taken->schedule != CLV_SCHEDULE_DEFAULT && of->graph->stage_axis == 0)
        return clv_fail(err, CLV_EINVAL,
                        "schedule %s of a graph without pipeline stages; valid: layers over an axis pipe of the mesh",
                        clv_plan_schedule_name(taken->schedule));
    if (taken->schedule == CLV_SCHEDULE_INTERLEAVED && !of->graph->returns_to_stage)
        return clv_fail_interleaved(err);
    return taken->schedule == CLV_SCHEDULE_AUTO ? compile_by_best_schedule(out, of, err) : compile(out, of, err);
}

clv_status clv_compile(clv_program **out, const clv_graph *graph, const clv_compile_options *options, clv_error *err)
{
    request of = {.graph = graph};
    return check_and_compile(out, &of, options, err);
}

clv_status clv_compile_to_price(clv_program **out, const clv_graph *graph, const clv_compile_options *options,
                                clv_reshard_cache *reshards, clv_error *err)
{
    request of = {.graph = graph, .is_priced = true, .reshards = reshards};
    return check_and_compile(out, &of, options, err);
}
