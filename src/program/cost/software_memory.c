/* software_memory.c - clv_program_memory_on: a rank's memory with what the machine's software holds beside the program:
 * copies of the logits in f32, and the allocator's rounding and fragmentation.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "program/cost/machine.h"
#include "program/program.h"

/* Elements of a rank's logits: of the largest operand of a loss. */
static double logits(const clv_program *program)
{
    double most = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        if (!instruction->op || strcmp(instruction->op->def->name, "xent_sums") != 0)
            continue;
        const clv_buffer *operand = &program->buffers[instruction->in[0]];
        clv_type local = clv_local_type(&operand->type, &operand->layout);
        most = fmax(most, (double)clv_type_elems(&local));
    }
    return most;
}

clv_status clv_program_memory_on(const clv_program *program, const clv_machine *machine, clv_memory *out,
                                 clv_error *err)
{
    const clv_machine *m = clv_machine_or_default(machine);
    clv_memory memory = {.size = sizeof memory};
    CLV_TRY(clv_require(program && out, __func__, "a program and out", err));
    CLV_TRY(clv_program_memory(program, &memory, err));
    memory.software = (int64_t)(m->logit_bytes * logits(program) + m->fragmentation * (double)memory.region);
    memory.total += memory.software;
    return clv_struct_copy_out(out, sizeof memory, sizeof memory, &memory, __func__, err);
}
