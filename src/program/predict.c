#include "program/predict.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "ops/check.h"

bool clv_op_counts_flops(const clv_op_def *def)
{
    return strcmp(def->name, "dot_general") == 0 || strncmp(def->name, "attention", 9) == 0;
}

clv_dtype clv_instruction_dtype(const clv_program *program, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    int b = instruction->n_in > 0 ? instruction->in[0] : instruction->out[0];
    return program->buffers[b].type.dtype;
}

clv_op_cost clv_instruction_cost(const clv_program *program, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    clv_op_cost cost = {0};
    if (!instruction->op)
        return cost;
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0) {
            const clv_buffer *buffer = &program->buffers[instruction->in[k]];
            in[k] = clv_local_type(&buffer->type, &buffer->layout);
            cost.bytes += clv_type_bytes(&in[k]);
        }
    for (int k = 0; k < instruction->n_out; k++) {
        const clv_buffer *buffer = &program->buffers[instruction->out[k]];
        out[k] = clv_local_type(&buffer->type, &buffer->layout);
        cost.bytes += clv_type_bytes(&out[k]);
    }
    return instruction->op->def->cost ? instruction->op->def->cost(instruction->op, in, out) : cost;
}

/* Ranks share a place when there are more of them. */
static double crowding(const clv_program *program, const clv_machine *p)
{
    double places = (double)p->hosts * (double)p->ranks_per_host, ranks = (double)clv_mesh_ranks(&program->mesh);
    return p->hosts > 0 && ranks > places ? ranks / places : 1;
}

/* Whether some group over the step's axes holds ranks of several hosts. Ranks are row-major, so aligned runs of ranks,
 * as long as the most major axis reaches, hold whole groups, and together these cross every place within a run: from
 * one group's first rank to the next is less than from its first to its last. */
static bool crosses_hosts(const clv_mesh *mesh, const clv_reshard_step *step, const clv_machine *p)
{
    int64_t run = 1;
    if (p->hosts == 1 || clv_mesh_ranks(mesh) <= p->ranks_per_host)
        return false;
    for (int a = 0; a < step->n_axes; a++) {
        clv_subaxis axis = step->axes[a];
        int64_t reach = mesh->axis[axis.axis].size / axis.pre;
        for (int after = axis.axis + 1; after < mesh->n_axes; after++)
            reach *= mesh->axis[after].size;
        run = reach > run ? reach : run;
    }
    return p->ranks_per_host % run != 0;
}

static double predict_step(const clv_program *program, const clv_machine *p, const clv_instruction *instruction)
{
    const clv_reshard_step *step = instruction->step;
    const clv_buffer *out = &program->buffers[instruction->out[0]];
    if (!clv_step_moves(step->kind))
        return p->instruction_s + 2 * (double)out->bytes / p->memory_bytes_per_s;
    bool far = crosses_hosts(&program->mesh, step, p);
    const clv_machine_link *link = far ? &p->network : &p->host;
    double rate = far ? 0 : clv_rate_at(&p->busy, clv_step_name(step->kind), out->type.dtype, step->bytes);
    return rate > 0 ? step->bytes / rate : link->alpha_s + step->bytes / link->bytes_per_s;
}

static double predict_op(const clv_program *program, const clv_machine *p, int i)
{
    const clv_op_def *def = program->instructions[i].op->def;
    clv_dtype dtype = clv_instruction_dtype(program, i);
    clv_op_cost cost = clv_instruction_cost(program, i);
    double work = clv_op_counts_flops(def) ? cost.flops : cost.bytes, rate = 0;
    if (clv_mesh_ranks(&program->mesh) == 1)
        rate = clv_rate_at(&p->alone, def->name, dtype, work);
    if (rate == 0)
        rate = clv_rate_at(&p->busy, def->name, dtype, work);
    if (rate > 0)
        return p->instruction_s + work / rate;
    double compute = cost.flops / (p->flops_per_s[dtype] * p->efficiency), traffic = cost.bytes / p->memory_bytes_per_s;
    return p->instruction_s + (compute > traffic ? compute : traffic);
}

static double predict(const clv_program *program, const clv_machine *p, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    double seconds = instruction->op ? predict_op(program, p, i) : predict_step(program, p, instruction);
    return seconds * crowding(program, p);
}

double clv_program_predict_instruction(const clv_program *program, const clv_machine *machine, int i)
{
    if (!program || i < 0 || i >= program->n_instructions)
        return 0;
    return predict(program, clv_machine_or_default(machine), i);
}

clv_status clv_program_predict(const clv_program *program, const clv_machine *machine, clv_prediction *out,
                               clv_error *err)
{
    CLV_TRY(clv_require(program && out, "clv_program_predict", "the program and out", err));
    const clv_machine *p = clv_machine_or_default(machine);
    clv_prediction all = {0};
    double at_peak = 0; /* seconds that the products would take at the peak rate */
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        double seconds = predict(program, p, i);
        all.seconds += seconds;
        if (!instruction->op) {
            all.communication += clv_step_moves(instruction->step->kind) ? seconds : 0;
        } else if (clv_op_counts_flops(instruction->op->def)) {
            double flops = clv_instruction_cost(program, i).flops;
            all.flops += flops;
            at_peak += flops / p->flops_per_s[clv_instruction_dtype(program, i)];
        }
    }
    all.utilisation = all.seconds > 0 ? at_peak / all.seconds : 0;
    all.memory_bytes = floor(p->memory_bytes / crowding(program, p));
    return clv_give_struct(out, sizeof all, sizeof all, &all, "clv_program_predict", err);
}
