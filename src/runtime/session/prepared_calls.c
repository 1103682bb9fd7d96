/* prepared_calls.c - binds views, workspace and op plan of each instruction once, before runs. */
#include "runtime/session/prepared_calls.h"

#include <stdlib.h>

#include "runtime/checks/memory_check.h"

enum { PLAN_ALIGN = 16 };

/* NULL for an op that asks for none; where runs are checked, memory in which it shows. */
static char *workspace_of(const clv_loaded_program *loaded, const clv_loaded_rank *mine, int i)
{
    const clv_instruction *instruction = &loaded->program->instructions[i];
    if (!instruction->op->def->workspace && !loaded->check)
        return NULL;
    return (char *)mine->region +
           (loaded->check ? clv_memory_check_workspace_offset(loaded->check, i) : instruction->workspace_offset);
}

/* What the host's kernel of an instruction plans; 0 where the device has one. */
static size_t plan_bytes(const clv_loaded_program *loaded, int i)
{
    const clv_op *op = loaded->program->instructions[i].op;
    size_t bytes = op && loaded->kernels[i].run == op->def->run ? clv_op_traits_of(op)->plan_bytes : 0;
    return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

static void release(clv_loaded_rank *mine)
{
    free(mine->prepared_calls);
    free(mine->operands);
    free(mine->op_plans);
    mine->prepared_calls = NULL;
    mine->operands = NULL;
    mine->op_plans = NULL;
}

static clv_status allocate(const clv_loaded_program *loaded, clv_loaded_rank *mine, clv_error *err)
{
    const clv_program *program = loaded->program;
    size_t operands = 1, bytes = 1;
    for (int i = 0; i < program->n_instructions; i++) {
        operands += (size_t)(program->instructions[i].n_in + program->instructions[i].n_out);
        bytes += plan_bytes(loaded, i);
    }
    mine->prepared_calls = calloc((size_t)program->n_instructions + 1, sizeof *mine->prepared_calls);
    mine->operands = malloc(operands * sizeof *mine->operands);
    mine->op_plans = malloc(bytes);
    if (mine->prepared_calls && mine->operands && mine->op_plans)
        return CLV_OK;
    release(mine); /* all or none: the next run tries again */
    return clv_fail_memory(err, "the calls of a program", operands * sizeof *mine->operands);
}

static void make(const clv_loaded_program *loaded, int rank)
{
    const clv_program *program = loaded->program;
    clv_loaded_rank *mine = clv_loaded_program_on_rank(loaded, rank);
    clv_view *operands = mine->operands;
    char *plan = mine->op_plans;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        clv_view *in = operands, *out = in + instruction->n_in;
        if (!instruction->op)
            continue;
        clv_loaded_program_operands(in, out, loaded, rank, instruction);
        mine->prepared_calls[i].call = (clv_call){.op = instruction->op,
                                                  .in = in,
                                                  .out = out,
                                                  .workspace = workspace_of(loaded, mine, i),
                                                  .context = &mine->context};
        if (plan_bytes(loaded, i) > 0) {
            mine->prepared_calls[i].plan = plan;
            instruction->op->def->traits->plan(plan, instruction->op, in, out);
        }
        operands = out + instruction->n_out;
        plan += plan_bytes(loaded, i);
    }
}

clv_status clv_prepared_calls_make(clv_loaded_program *loaded, clv_error *err)
{
    for (int r = 0; r < loaded->n_local_ranks; r++) {
        if (!loaded->ranks[r].op_plans)
            CLV_TRY(allocate(loaded, &loaded->ranks[r], err));
        make(loaded, loaded->first_local_rank + r);
    }
    return CLV_OK;
}

void clv_prepared_calls_free(clv_loaded_program *loaded)
{
    for (int r = 0; loaded->ranks && r < loaded->n_local_ranks; r++)
        release(&loaded->ranks[r]);
}
