/* program.c - accessors of a compiled program: buffers, chunks, shards, collectives, named tensors. */
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tensor/parse_print.h"

void clv_program_free(clv_program *program)
{
    if (!program)
        return;
    clv_arena_free(program->arena);
    free(program);
}

clv_status clv_program_find_or_add_group(int *out, clv_program *program, const clv_reshard_step *step, clv_error *err)
{
    size_t bytes = (size_t)step->n_axes * sizeof *step->axes;
    const bool sends = step->kind == CLV_STEP_SEND;
    const uint32_t from = sends ? clv_layout_stage_bits(&step->from) : 0,
                   to = sends ? clv_layout_stage_bits(&step->to) : 0;
    *out = -1;
    if (!clv_step_moves(step->kind))
        return CLV_OK;
    for (int g = 0; g < program->n_groups; g++)
        if (program->groups[g].n == step->n_axes && program->groups[g].from == from && program->groups[g].to == to &&
            memcmp(program->groups[g].axes, step->axes, bytes) == 0) {
            *out = g;
            return CLV_OK;
        }
    if (clv_arena_grow(program->arena, &program->groups, &program->group_capacity, program->n_groups,
                       sizeof *program->groups) != 0)
        return clv_fail_memory(err, "a group", sizeof *program->groups);
    *out = program->n_groups++;
    program->groups[*out] = (clv_group_axes){.n = step->n_axes, .from = from, .to = to};
    memcpy(program->groups[*out].axes, step->axes, bytes);
    return CLV_OK;
}

clv_status clv_program_add_buffer(int *out, clv_program *program, const clv_buffer *buffer, clv_error *err)
{
    if (clv_arena_grow(program->arena, &program->buffers, &program->buffer_capacity, program->n_buffers,
                       sizeof *buffer) != 0)
        return clv_fail_memory(err, "a buffer", sizeof *buffer);
    if (out)
        *out = program->n_buffers;
    program->buffers[program->n_buffers++] = *buffer;
    return CLV_OK;
}

clv_status clv_program_add_instruction(clv_program *program, const clv_instruction *instruction, clv_error *err)
{
    if (clv_arena_grow(program->arena, &program->instructions, &program->instruction_capacity, program->n_instructions,
                       sizeof *instruction) != 0)
        return clv_fail_memory(err, "an instruction", sizeof *instruction);
    if (!instruction->op) {
        if (clv_arena_grow(program->arena, &program->steps, &program->step_capacity, program->n_steps,
                           sizeof *program->steps) != 0)
            return clv_fail_memory(err, "a step", sizeof *program->steps);
        program->steps[program->n_steps++] = program->n_instructions;
    }
    program->instructions[program->n_instructions++] = *instruction;
    return CLV_OK;
}

clv_status clv_program_find_buffer_uses(clv_buffer_uses *out, const clv_program *program, clv_arena *arena,
                                        clv_error *err)
{
    const size_t n = (size_t)program->n_buffers + 1;
    const clv_buffer_uses u = {.writer = clv_arena_alloc(arena, n, sizeof *u.writer),
                               .reader = clv_arena_alloc(arena, n, sizeof *u.reader),
                               .readers = clv_arena_alloc(arena, n, sizeof *u.readers),
                               .fixed = clv_arena_alloc(arena, n, sizeof *u.fixed)};
    if (!u.writer || !u.reader || !u.readers || !u.fixed)
        return clv_fail_memory(err, "uses of buffers", n * sizeof *u.writer);
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        u.writer[b] = u.reader[b] = -1;
        u.fixed[b] = u.fixed[b] || buffer->kind != CLV_BUFFER_TEMP || buffer->shares_with >= 0;
        if (buffer->shares_with >= 0)
            u.fixed[buffer->shares_with] = true;
    }
    for (int o = 0; o < program->n_outputs; o++)
        u.fixed[program->outputs[o].buffer] = true;
    for (int i = program->n_instructions - 1; i >= 0; i--) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++)
            if (instruction->in[k] >= 0) {
                u.reader[instruction->in[k]] = i;
                u.readers[instruction->in[k]]++;
            }
        for (int k = 0; k < instruction->n_out; k++) {
            u.fixed[instruction->out[k]] = u.fixed[instruction->out[k]] || u.writer[instruction->out[k]] >= 0;
            u.writer[instruction->out[k]] = i;
        }
    }
    *out = u;
    return CLV_OK;
}

int clv_program_stage_of(const clv_program *program, int64_t rank)
{
    if (program->stage_axis == 0)
        return 0;
    return (int)clv_mesh_coordinate(&program->mesh, clv_mesh_whole_axis(&program->mesh, program->stage_axis - 1), rank);
}

const clv_mesh *clv_program_mesh(const clv_program *program)
{
    return program ? &program->mesh : NULL;
}

int64_t clv_program_region_bytes(const clv_program *program)
{
    return program ? program->region_bytes : 0;
}

int clv_program_instruction_count(const clv_program *program)
{
    return program ? program->n_instructions : 0;
}

static clv_status check_index(int i, int n, const char *call, clv_error *err)
{
    return i >= 0 && i < n ? CLV_OK : clv_fail(err, CLV_EINVAL, "%s: index %d; valid: below %d", call, i, n);
}

const char *clv_candidate_verdict_name(clv_candidate_verdict verdict)
{
    static const char *const names[] = {"chosen", "costlier", "moves_stationary", "illegal"};
    return (unsigned)verdict < sizeof names / sizeof *names ? names[verdict] : "unknown";
}

int clv_program_candidate_count(const clv_program *program)
{
    return program ? program->n_candidates : 0;
}

clv_status clv_program_candidate(const clv_program *program, int i, clv_strategy_candidate *out, clv_error *err)
{
    CLV_TRY(clv_require(program && out, __func__, "a program and out", err));
    CLV_TRY(check_index(i, program->n_candidates, __func__, err));
    return clv_struct_copy_out(out, sizeof *program->candidates, sizeof *program->candidates, &program->candidates[i],
                               __func__, err);
}

int clv_program_decision_count(const clv_program *program)
{
    return program ? program->n_decisions : 0;
}

clv_status clv_program_decision(const clv_program *program, int i, clv_partition_decision *out, clv_error *err)
{
    CLV_TRY(clv_require(program && out, __func__, "a program and out", err));
    CLV_TRY(check_index(i, program->n_decisions, __func__, err));
    return clv_struct_copy_out(out, sizeof *program->decisions, sizeof *program->decisions, &program->decisions[i],
                               __func__, err);
}

const char *clv_collective_purpose_name(clv_collective_purpose purpose)
{
    static const char *const names[CLV_PURPOSE_COUNT] = {
        [CLV_PURPOSE_RESHARDING] = "resharding",
        [CLV_PURPOSE_WEIGHT_GATHER] = "weight_gather",
        [CLV_PURPOSE_GRADIENT_REDUCTION] = "gradient_reduction",
        [CLV_PURPOSE_SEQUENCE_PARALLEL] = "sequence_parallel",
        [CLV_PURPOSE_CONTEXT_PARALLEL] = "context_parallel",
        [CLV_PURPOSE_SPLIT_CACHE] = "split_cache",
        [CLV_PURPOSE_TP_REDUCTION] = "tp_reduction",
        [CLV_PURPOSE_TP_GATHER] = "tp_gather",
        [CLV_PURPOSE_EXPERT_PARALLEL] = "expert_parallel",
        [CLV_PURPOSE_VOCABULARY] = "vocabulary",
        [CLV_PURPOSE_SCALAR] = "scalar",
    };
    return (unsigned)purpose < CLV_PURPOSE_COUNT ? names[purpose] : "unknown";
}

int clv_program_collective_count(const clv_program *program)
{
    return program ? program->n_steps : 0;
}

/* The name of the first matmul, else the first op, that runs on its ranks while collective i moves; NULL: none does. */
static const char *runs_beside(const clv_program *program, int i)
{
    const char *name = NULL;
    const clv_reshard_step *step = program->instructions[i].step;
    const uint32_t stages = clv_layout_stage_bits(&step->from) | clv_layout_stage_bits(&step->to);
    for (int k = i + 1; k <= clv_program_completes_at(program, i); k++) {
        const clv_instruction *instruction = &program->instructions[k];
        if (instruction->stages != 0 && (instruction->stages & stages) == 0)
            continue;
        if (instruction->op && instruction->op->def->counts_flops)
            return instruction->name;
        if (instruction->op && !name)
            name = instruction->name;
    }
    return name;
}

clv_status clv_program_collective(const clv_program *program, int i, clv_collective *out, clv_error *err)
{
    CLV_TRY(clv_require(program && out, __func__, "a program and out", err));
    CLV_TRY(check_index(i, program->n_steps, __func__, err));
    const clv_instruction *instruction = &program->instructions[program->steps[i]];
    const clv_reshard_step *step = instruction->step;
    clv_collective collective = {.kind = clv_step_name(step->kind),
                                 .op = instruction->name,
                                 .tensor = instruction->tensor,
                                 .cause = instruction->cause,
                                 .reason = instruction->reason,
                                 .statement = instruction->statement,
                                 .rules = instruction->rules,
                                 .implicit = instruction->implicit,
                                 .purpose = instruction->purpose,
                                 .backward = instruction->backward,
                                 .n_axes = step->n_axes,
                                 .bytes = step->bytes,
                                 .from = step->from,
                                 .to = step->to,
                                 .type = program->buffers[instruction->in[0]].type,
                                 .instruction = program->steps[i],
                                 .completes_at = clv_program_completes_at(program, program->steps[i]),
                                 .chunk = instruction->chunk,
                                 .n_chunks = instruction->n_chunks,
                                 .beside = runs_beside(program, program->steps[i]),
                                 .pass = instruction->backward ? "backward"
                                         : instruction->update ? "update"
                                                               : "forward"};
    memcpy(collective.axes, step->axes, sizeof collective.axes);
    return clv_struct_copy_out(out, sizeof collective, sizeof collective, &collective, __func__, err);
}

clv_type clv_largest_shard_type(const clv_type *type, const clv_layout *layout)
{
    clv_type local = *type;
    for (int d = 0; d < type->rank; d++) {
        int64_t blocks = clv_layout_block_count(layout, d), units = type->shape[d] / layout->alignment[d];
        local.shape[d] = (units + blocks - 1) / blocks * layout->alignment[d];
    }
    return local;
}

clv_view clv_largest_shard_view(const clv_type *type, const clv_layout *layout)
{
    clv_view view = {.dtype = type->dtype, .rank = type->rank};
    clv_type local = clv_largest_shard_type(type, layout);
    memcpy(view.shape, local.shape, sizeof view.shape);
    memcpy(view.global, type->shape, sizeof view.global);
    return view;
}

int clv_program_owning_buffer(const clv_program *program, int b)
{
    while (program->buffers[b].shares_with >= 0)
        b = program->buffers[b].shares_with;
    return b;
}

/* Index of b among the chunks, and strided chunks, of its whole. */
static int chunk_index(const clv_program *program, int b)
{
    return b - program->buffers[program->buffers[b].shares_with].first_chunk;
}

bool clv_program_is_strided_chunk(const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b];
    return buffer->is_chunk && chunk_index(program, b) >= program->buffers[buffer->shares_with].n_chunks;
}

clv_buffer_range clv_program_chunk_strips(const clv_program *program, int b)
{
    if (!clv_program_is_strided_chunk(program, b))
        return (clv_buffer_range){b, 1, 1};
    const clv_buffer *whole = &program->buffers[program->buffers[b].shares_with];
    return (clv_buffer_range){b - whole->n_chunks, whole->n_blocks, whole->n_chunks / whole->n_blocks};
}

clv_buffer_range clv_program_buffer_range(const clv_program *program, int b)
{
    int root = clv_program_owning_buffer(program, b);
    const clv_buffer *holds = &program->buffers[root];
    if (holds->n_chunks == 0)
        return (clv_buffer_range){root, 1, 1};
    if (!program->buffers[b].is_chunk)
        return (clv_buffer_range){holds->first_chunk, holds->n_chunks, 1};
    clv_buffer_range range = clv_program_chunk_strips(program, b); /* the root is split alike */
    range.first += holds->first_chunk - program->buffers[program->buffers[b].shares_with].first_chunk;
    return range;
}

static clv_shard shard_on(const clv_buffer *buffer, const clv_mesh *mesh, int64_t rank)
{
    const clv_layout *layout = &buffer->layout;
    clv_shard shard = clv_layout_shard(layout, mesh, buffer->type.shape, rank);
    if (buffer->ring_shift > 0) {
        const int64_t blocks = clv_layout_block_count(layout, 1);
        const int64_t block = (clv_layout_block_index(layout, mesh, 1, rank) + buffer->ring_shift) % blocks;
        clv_block_range(buffer->type.shape[1], layout->alignment[1], blocks, block, &shard.lo[1], &shard.hi[1]);
    }
    return shard;
}

static clv_shard shard_of(const clv_program *program, const clv_buffer *buffer, int64_t rank)
{
    return shard_on(buffer, &program->mesh, rank);
}

clv_shard clv_program_shard(const clv_program *program, int b, int64_t rank)
{
    const clv_buffer *buffer = &program->buffers[b], *whole = &program->buffers[clv_program_unchunked(program, b)];
    clv_shard shard = shard_of(program, whole, rank);
    if (buffer->is_chunk && !clv_program_is_strided_chunk(program, b)) {
        clv_shard rows = shard_of(program, buffer, rank);
        int d = whole->chunk_dim;
        shard.lo[d] += buffer->first_row;
        shard.hi[d] = shard.lo[d] + rows.hi[d] - rows.lo[d];
    }
    return shard;
}

int64_t clv_program_shard_offset(const clv_program *program, int b, int64_t rank)
{
    const clv_buffer *buffer = &program->buffers[b];
    if (!buffer->is_chunk)
        return 0;
    clv_shard before = shard_of(program, &program->buffers[buffer->shares_with], rank);
    int d = program->buffers[buffer->shares_with].chunk_dim;
    before.hi[d] = before.lo[d] + buffer->first_row;
    return clv_shard_elems(&before) * (int64_t)clv_dtype_size(buffer->type.dtype);
}

bool clv_program_is_sole_operand(const clv_program *program, const clv_instruction *instruction, int k)
{
    int root = clv_program_owning_buffer(program, instruction->in[k]);
    for (int other = 0; other < instruction->n_in; other++)
        if (other != k && instruction->in[other] >= 0 &&
            clv_program_owning_buffer(program, instruction->in[other]) == root)
            return false;
    return true;
}

/* "the all_gather of x", "result 1 of layers.0.attention.attention". */
static void describe_result(clv_text *t, const clv_instruction *made, int result)
{
    if (!made->op)
        clv_text_add(t, "the %s of %s", clv_step_name(made->step->kind), made->tensor);
    else if (made->n_out > 1)
        clv_text_add(t, "result %d of %s", result, made->name);
    else
        clv_text_add(t, "the result of %s", made->name);
}

void clv_buffer_describe(char *out, size_t size, const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b], *root = &program->buffers[clv_program_owning_buffer(program, b)];
    clv_text t = {.out = out, .size = size};
    if (buffer->kind != CLV_BUFFER_TEMP)
        clv_text_add(&t, "%s '%s'", buffer->kind == CLV_BUFFER_STATE ? "state" : "input", buffer->name);
    for (int i = 0; buffer->kind == CLV_BUFFER_TEMP && i < program->n_instructions; i++)
        for (int o = 0; o < program->instructions[i].n_out; o++)
            if (program->instructions[i].chunk == 0 &&
                clv_program_unchunked(program, program->instructions[i].out[o]) == clv_program_unchunked(program, b))
                describe_result(&t, &program->instructions[i], o);
    if (root != buffer && root->kind == CLV_BUFFER_STATE)
        clv_text_add(&t, " (kept as state '%s')", root->name);
    for (int o = 0; o < program->n_outputs; o++)
        if (program->outputs[o].buffer == b)
            clv_text_add(&t, " (output '%s')", program->outputs[o].name);
    clv_text_finish(&t);
}

clv_view clv_buffer_view(const clv_buffer *buffer, const clv_mesh *mesh, int64_t rank, void *base)
{
    clv_view view = {.data = base, .dtype = buffer->type.dtype, .rank = buffer->type.rank};
    clv_shard shard = shard_on(buffer, mesh, rank);
    if (!clv_layout_has_rank(&buffer->layout, mesh, rank) && view.rank == 0)
        view.rank = 1; /* of no elements: another stage's scalar */
    for (int d = 0; d < buffer->type.rank; d++) {
        view.shape[d] = shard.hi[d] - shard.lo[d];
        view.lo[d] = shard.lo[d];
        view.global[d] = buffer->type.shape[d];
    }
    return view;
}

static clv_program_tensor describe_named(const clv_buffer *buffer, const char *name, clv_program_tensor_kind kind)
{
    return (clv_program_tensor){.name = name, .type = buffer->type, .layout = buffer->layout, .kind = kind};
}

clv_status clv_program_tensor_at(const clv_program *p, int i, clv_program_tensor *out, clv_error *err)
{
    CLV_TRY(clv_require(p && out, __func__, "a program and out", err));
    CLV_TRY(clv_require_count(i, 0, __func__, "as the number of a tensor", err));
    clv_program_tensor named = {0};
    for (int b = 0; b < p->n_buffers && i >= 0; b++)
        if (p->buffers[b].name && i-- == 0)
            named = describe_named(&p->buffers[b], p->buffers[b].name,
                                   p->buffers[b].kind == CLV_BUFFER_INPUT ? CLV_NAMED_INPUT : CLV_NAMED_STATE);
    if (i >= 0 && i < p->n_outputs)
        named = describe_named(&p->buffers[p->outputs[i].buffer], p->outputs[i].name, CLV_NAMED_OUTPUT);
    return clv_struct_copy_out(out, sizeof named, sizeof named, &named, __func__, err);
}
