/* program_digest.c - 64-bit hash of what a program does, by which processes check that they run the same one. It covers
 * everything that determines results and messages, but no offsets in memory and no texts.
 */
#include <string.h>

#include "base/hash.h"
#include "program/program.h"

static void mix(uint64_t *digest, const void *bytes, size_t size)
{
    const uint64_t words[] = {*digest, size, clv_hash_bytes(bytes, size)};
    *digest = clv_hash_bytes(words, sizeof words);
}

static void mix_number(uint64_t *digest, int64_t number)
{
    mix(digest, &number, sizeof number);
}

static void mix_text(uint64_t *digest, const char *text)
{
    mix_number(digest, text != NULL);
    if (text)
        mix(digest, text, strlen(text));
}

/* Structs are mixed field by field, without their padding. */
static void mix_axes(uint64_t *digest, const clv_subaxis *axes, int n)
{
    mix_number(digest, n);
    for (int i = 0; i < n; i++) {
        mix_number(digest, axes[i].axis);
        mix_number(digest, axes[i].pre);
        mix_number(digest, axes[i].size);
    }
}

static void mix_layout(uint64_t *digest, const clv_layout *layout)
{
    mix_number(digest, layout->rank);
    mix_number(digest, layout->reduction);
    if (layout->stage_axis > 0)
        mix_number(digest, layout->stages);
    for (int d = 0; d <= layout->rank; d++) {
        const clv_subaxis *axes;
        int n = clv_layout_axes(&axes, layout, d);
        mix_axes(digest, axes, n);
    }
    mix(digest, layout->alignment, (size_t)layout->rank * sizeof *layout->alignment);
}

static void mix_mesh(uint64_t *digest, const clv_mesh *mesh)
{
    mix_number(digest, mesh->n_axes);
    for (int a = 0; a < mesh->n_axes; a++) {
        mix_text(digest, mesh->axis[a].name);
        mix_number(digest, mesh->axis[a].size);
    }
}

static void mix_buffer(uint64_t *digest, const clv_buffer *buffer)
{
    mix_number(digest, buffer->kind);
    mix_number(digest, buffer->type.dtype);
    mix_number(digest, buffer->type.rank);
    mix(digest, buffer->type.shape, (size_t)buffer->type.rank * sizeof *buffer->type.shape);
    mix_layout(digest, &buffer->layout);
    mix_text(digest, buffer->name);
    mix_text(digest, buffer->init_name);
    mix_number(digest, buffer->init.kind);
    mix(digest, &buffer->init.scale, sizeof buffer->init.scale);
    if (buffer->ring_shift > 0)
        mix_number(digest, buffer->ring_shift);
    mix_number(digest, buffer->n_chunks);
    mix_number(digest, buffer->n_chunks > 0 ? buffer->first_chunk : 0);
    mix_number(digest, buffer->n_chunks > 0 ? buffer->n_blocks : 0);
}

/* ---- ops ---- */

/* The fields in the def's table, which hold no pointers; without a table all bytes. */
static void mix_attrs(uint64_t *digest, const clv_op *op, const clv_mesh *mesh)
{
    const clv_op_def *def = op->def;
    if (!op->attrs || !def->attrs) {
        mix(digest, op->attrs, op->attrs ? def->attrs_size : 0);
        return;
    }
    for (const clv_attr *attr = def->attrs; attr->name; attr++) {
        const char *at = (const char *)op->attrs + attr->offset;
        int count = attr->count > 0 ? attr->count : 1;
        size_t size = clv_attr_size(attr->kind);
        if (attr->kind == CLV_ATTR_TEXT)
            mix(digest, at, strnlen(at, (size_t)count));
        else if (attr->kind != CLV_ATTR_LAYOUT)
            mix(digest, at, (size_t)count * size);
        for (int i = 0; attr->kind == CLV_ATTR_LAYOUT && i < count; i++) {
            const clv_layout *layout = (const clv_layout *)(const void *)at + i;
            if (clv_layout_check(layout, mesh, NULL, NULL) == CLV_OK)
                mix_layout(digest, layout);
        }
    }
}

static void mix_step(uint64_t *digest, const clv_reshard_step *step, const clv_buffer *out)
{
    mix_number(digest, step->kind);
    mix_layout(digest, &step->from);
    mix_layout(digest, &step->to);
    mix_axes(digest, step->axes, step->n_axes);
    if (step->sources)
        mix(digest, step->sources, (size_t)out->type.shape[step->permuted_dim] * sizeof *step->sources);
}

static void mix_instruction(uint64_t *digest, const clv_program *program, const clv_instruction *instruction)
{
    mix_text(digest, instruction->op ? instruction->op->def->name : NULL);
    if (instruction->op)
        mix_attrs(digest, instruction->op, &program->mesh);
    else
        mix_step(digest, instruction->step, &program->buffers[instruction->out[0]]);
    mix_number(digest, instruction->group);
    mix_number(digest, instruction->n_overlapped);
    if (instruction->stages > 0)
        mix_number(digest, instruction->stages);
    mix_number(digest, instruction->n_in);
    mix_number(digest, instruction->n_out);
    mix(digest, instruction->in, (size_t)instruction->n_in * sizeof *instruction->in);
    mix(digest, instruction->out, (size_t)instruction->n_out * sizeof *instruction->out);
}

uint64_t clv_program_digest(const clv_program *program)
{
    uint64_t digest = 0;
    mix_mesh(&digest, &program->mesh);
    mix_number(&digest, program->n_buffers);
    for (int b = 0; b < program->n_buffers; b++)
        mix_buffer(&digest, &program->buffers[b]);
    mix_number(&digest, program->n_groups);
    for (int g = 0; g < program->n_groups; g++) {
        mix_axes(&digest, program->groups[g].axes, program->groups[g].n);
        if (program->groups[g].from > 0)
            mix_number(&digest, (int64_t)program->groups[g].from << 32 | program->groups[g].to);
    }
    mix_number(&digest, program->n_instructions);
    for (int i = 0; i < program->n_instructions; i++)
        mix_instruction(&digest, program, &program->instructions[i]);
    mix_number(&digest, program->n_outputs);
    for (int o = 0; o < program->n_outputs; o++) {
        mix_text(&digest, program->outputs[o].name);
        mix_number(&digest, program->outputs[o].buffer);
    }
    return digest;
}
