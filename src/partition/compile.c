/* compile.c - clv_compile: runs the passes from graph to program, in order.
 *
 *   assign   graph to a table of strategies and changes of layout (choose_strategies.c, sharding_table.h)
 *   carry    which of the table's steps carry their tensors rounded, where that is asked for (compress_collectives.h)
 *   recompute what of blocks the backward pass makes again (recompute_activations.h)
 *   early    gradients are reduced where they are made (reduce_gradients_early.h)
 *   lower    the table to instructions over buffers (lower_to_program.h)
 *   schedule what runs beside what (program/latency_hiding_scheduler.c)
 *   memory   where the buffers lie (program/memory_planner.c)
 *
 * What changes decisions that were made (pipeline stages) goes between assign and lower, and works on the table; what
 * looks further ahead than one op goes before assign, as propagate_layouts.c does.
 */
#include <stddef.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/versioned_structs.h"
#include "partition/lowering/lower_to_program.h"
#include "partition/partitioner.h"
#include "partition/passes/compress_collectives.h"
#include "partition/passes/recompute_activations.h"
#include "partition/passes/reduce_gradients_early.h"
#include "program/latency_hiding_scheduler.h"

clv_status clv_partitioner_init(clv_partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    p->placements = clv_arena_alloc(p->scratch, (size_t)graph->n_values + 1, sizeof *p->placements);
    p->live_op = clv_arena_alloc(p->scratch, (size_t)graph->n_ops + 1, sizeof *p->live_op);
    p->row_of = clv_arena_alloc(p->scratch, (size_t)graph->n_ops + 1, sizeof *p->row_of);
    p->reshards = clv_reshard_cache_new(p->scratch, &graph->mesh, p->cost, p->options->by_bytes);
    p->memo = clv_strategy_cache_new(p->scratch);
    if (!p->placements || !p->live_op || !p->row_of || !p->reshards || !p->memo)
        return clv_fail_memory(err, "the partitioner", (size_t)graph->n_values * sizeof *p->placements);
    for (int o = 0; o < graph->n_ops; o++)
        p->row_of[o] = -1;
    CLV_TRY(clv_sharding_table_init(&p->table, p->scratch, graph, err));
    p->table.tells = p->options->keep_decisions;
    p->table.cost = p->cost;
    CLV_TRY(clv_partition_mark_live_ops(p, err));
    clv_partition_propagate_layouts(p);
    CLV_TRY(clv_partition_find_readers(p, err));
    clv_partition_count_accumulations(p);
    return CLV_OK;
}

static clv_status run_passes(clv_program *program, clv_partitioner *p, clv_error *err)
{
    CLV_TRY(clv_partitioner_init(p, err));
    CLV_TRY(clv_partition_choose_strategies(p, err));
    CLV_TRY(clv_compress_collectives(&p->table, p->options->comm_dtype, p->options->grad_reduce_dtype, err));
    CLV_TRY(clv_recompute_activations(&p->table, p->options->recompute, p->options->reshard_after_forward, err));
    CLV_TRY(clv_reduce_gradients_early(&p->table, err));
    CLV_TRY(clv_lower_to_program(program, &p->table, err));
    program->greedy_by_size_limit = p->options->greedy_by_size_limit;
    if (p->options->overlap)
        CLV_TRY(clv_program_schedule_overlap(program, p->options->machine, err));
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
    return CLV_OK;
}

clv_status clv_compile(clv_program **out, const clv_graph *graph, const clv_compile_options *options, clv_error *err)
{
    clv_compile_options taken;
    CLV_TRY(clv_require(out && graph, "clv_compile", "out and a graph", err));
    CLV_TRY(clv_graph_status(graph, err));
    CLV_TRY(clv_graph_check_rules(graph, err));
    CLV_TRY(clv_options_copy_in(&taken, sizeof taken, sizeof taken, options, "clv_compile", err));
    CLV_TRY(clv_compile_options_check(&taken, "clv_compile", err));
    clv_program *program = calloc(1, sizeof *program);
    clv_arena *scratch = clv_arena_new();
    if (program)
        program->arena = clv_arena_new();
    clv_status status = CLV_OK;
    if (!program || !program->arena || !scratch)
        status = clv_fail_memory(err, "a program", sizeof *program);
    if (status == CLV_OK) {
        clv_cost_model cost;
        clv_cost_model_make(&cost, &graph->mesh, taken.machine);
        clv_partitioner p = {.graph = graph, .scratch = scratch, .options = &taken, .cost = &cost};
        status = run_passes(program, &p, err);
    }
    clv_arena_free(scratch);
    if (status != CLV_OK) {
        clv_program_free(program);
        return status;
    }
    *out = program;
    return CLV_OK;
}
