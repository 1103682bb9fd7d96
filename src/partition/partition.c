/* partition.c - graph and layouts to a program: clv_compile, in passes, each in a file of its own.
 *
 *   assign   graph to a table of strategies and changes of layout (assign.c, assignment.h)
 *   carry    which of the table's steps carry their tensors rounded, where that is asked for (carry.h)
 *   recompute what of blocks the backward pass makes again (recompute.h)
 *   early    gradients are reduced where they are made (early.h)
 *   lower    the table to instructions over buffers (lower.h)
 *   schedule what runs beside what (program/schedule.c)
 *   memory   where the buffers lie (program/memory.c)
 *
 * What changes decisions that were made (pipeline stages) goes between assign and lower, and works on the table; what
 * looks further ahead than one op goes before assign, as wanted.c does.
 */
#include <stddef.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/options.h"
#include "partition/carry.h"
#include "partition/early.h"
#include "partition/lower.h"
#include "partition/partitioner.h"
#include "partition/recompute.h"
#include "program/schedule.h"

/* clv_compile_options as its first version had it. */
enum { FIRST_SIZE = offsetof(clv_compile_options, keep_assignment) };

clv_status clv_partition_begin(clv_partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    p->placements = clv_arena_alloc(p->scratch, (size_t)graph->n_values + 1, sizeof *p->placements);
    p->live_op = clv_arena_alloc(p->scratch, (size_t)graph->n_ops + 1, sizeof *p->live_op);
    p->row_of = clv_arena_alloc(p->scratch, (size_t)graph->n_ops + 1, sizeof *p->row_of);
    p->reshards = clv_reshard_cache_new(p->scratch, &graph->mesh, p->cost, p->options->by_bytes);
    p->memo = clv_memo_new(p->scratch);
    if (!p->placements || !p->live_op || !p->row_of || !p->reshards || !p->memo)
        return clv_fail_memory(err, "the partitioner", (size_t)graph->n_values * sizeof *p->placements);
    for (int o = 0; o < graph->n_ops; o++)
        p->row_of[o] = -1;
    CLV_TRY(clv_assignment_make(&p->table, p->scratch, graph, err));
    p->table.tells = p->options->keep_assignment;
    p->table.cost = p->cost;
    CLV_TRY(clv_partition_mark_live(p, err));
    clv_partition_find_wanted(p);
    CLV_TRY(clv_partition_find_readers(p, err));
    clv_partition_find_fan_in(p);
    return CLV_OK;
}

static clv_status run_passes(clv_program *program, clv_partitioner *p, clv_error *err)
{
    CLV_TRY(clv_partition_begin(p, err));
    CLV_TRY(clv_partition_assign(p, err));
    CLV_TRY(
        clv_assignment_carry(&p->table, p->options->comm_dtype, (clv_comm_dtype)p->options->grad_reduce_dtype, err));
    CLV_TRY(clv_assignment_recompute(&p->table, (clv_recompute)p->options->recompute, p->options->regather, err));
    CLV_TRY(clv_assignment_reduce_early(&p->table, err));
    CLV_TRY(clv_assignment_lower(program, &p->table, err));
    program->most_by_size = p->options->most_by_size;
    if (p->options->overlap)
        CLV_TRY(clv_program_schedule(program, p->options->machine, err));
    return clv_program_plan_memory(program, err);
}

clv_status clv_compile(clv_program **out, const clv_graph *graph, const clv_compile_options *options, clv_error *err)
{
    clv_compile_options taken;
    CLV_TRY(clv_require(out && graph, "clv_compile", "out and a graph", err));
    CLV_TRY(clv_graph_status(graph, err));
    CLV_TRY(clv_graph_check_rules(graph, err));
    CLV_TRY(clv_take_options(&taken, sizeof taken, FIRST_SIZE, options, "clv_compile", err));
    if ((unsigned)taken.comm_dtype >= CLV_COMM_DTYPE_COUNT)
        return clv_fail(err, CLV_EDTYPE, "clv_compile: comm_dtype is %d, which is none", (int)taken.comm_dtype);
    if (taken.grad_reduce_dtype < 0 || taken.grad_reduce_dtype >= CLV_COMM_DTYPE_COUNT)
        return clv_fail(err, CLV_EDTYPE, "clv_compile: grad_reduce_dtype is %lld, which is none",
                        (long long)taken.grad_reduce_dtype);
    if (taken.recompute < CLV_RECOMPUTE_NONE || taken.recompute > CLV_RECOMPUTE_FULL)
        return clv_fail(err, CLV_EINVAL, "clv_compile: recompute is %lld; valid: %d to %d", (long long)taken.recompute,
                        CLV_RECOMPUTE_NONE, CLV_RECOMPUTE_FULL);
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
