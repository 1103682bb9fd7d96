/* reorder_instructions.c - which instructions depend on which, and a new order for them: for the schedulers. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "program/program.h"

/* ---- dependences ---- */

/* The last uses of a buffer's memory (clv_program_buffer_range). */
typedef struct user {
    int writer;     /* -1: none */
    int first_read; /* index into reads; -1: none since it was written */
} user;

typedef struct read {
    int instruction, next;
} read;

static void add_edge(clv_instruction_edges *e, int from, int to)
{
    if (from < 0 || from == to)
        return;
    e->from[e->n] = from;
    e->to[e->n++] = to;
}

/* An instruction depends on the last writer of the memory that it reads, and on all readers of memory that it writes.
 * */
static void find_edges(clv_instruction_edges *e, const clv_program *program, user *users, read *reads)
{
    int n_reads = 0;
    for (int b = 0; b < program->n_buffers; b++)
        users[b] = (user){-1, -1};
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++) {
            clv_buffer_range cells =
                instruction->in[k] < 0 ? (clv_buffer_range){0} : clv_program_buffer_range(program, instruction->in[k]);
            for (int c = 0; c < cells.n; c++) {
                user *u = &users[clv_buffer_range_at(&cells, c)];
                add_edge(e, u->writer, i);
                reads[n_reads] = (read){i, u->first_read};
                u->first_read = n_reads++;
            }
        }
        for (int o = 0; o < instruction->n_out; o++) {
            clv_buffer_range cells = clv_program_buffer_range(program, instruction->out[o]);
            for (int c = 0; c < cells.n; c++) {
                user *u = &users[clv_buffer_range_at(&cells, c)];
                add_edge(e, u->writer, i);
                for (int r = u->first_read; r >= 0; r = reads[r].next)
                    add_edge(e, reads[r].instruction, i);
                *u = (user){i, -1};
            }
        }
    }
}

/* Upper bound of the number of edges: two for each memory range that is read, one for each that is written. */
static int most_edges(const clv_program *program)
{
    int n = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++)
            n += instruction->in[k] < 0 ? 0 : 2 * clv_program_buffer_range(program, instruction->in[k]).n;
        for (int o = 0; o < instruction->n_out; o++)
            n += clv_program_buffer_range(program, instruction->out[o]).n;
    }
    return n;
}

clv_status clv_program_find_edges(clv_instruction_edges *out, const clv_program *program, clv_arena *arena,
                                  clv_error *err)
{
    size_t n = (size_t)most_edges(program) + 1;
    clv_instruction_edges e = {.from = clv_arena_alloc(arena, n, sizeof *e.from),
                               .to = clv_arena_alloc(arena, n, sizeof *e.to)};
    user *users = clv_arena_alloc(arena, (size_t)program->n_buffers + 1, sizeof *users);
    read *reads = clv_arena_alloc(arena, n, sizeof *reads);
    if (!e.from || !e.to || !users || !reads)
        return clv_fail_memory(err, "the dependences of instructions", n * sizeof *e.from);
    find_edges(&e, program, users, reads);
    *out = e;
    return CLV_OK;
}

/* ---- the new order ---- */

static int by_instruction(const void *a, const void *b)
{
    const clv_partition_decision *x = a, *y = b;
    return x->instruction < y->instruction ? -1 : x->instruction > y->instruction;
}

clv_status clv_program_reorder(clv_program *program, const int *order, const int *completes_at, clv_arena *arena,
                               clv_error *err)
{
    const int n = program->n_instructions;
    clv_instruction *was = clv_arena_copy(arena, program->instructions, (size_t)n * sizeof *was);
    int *index_of = clv_arena_alloc(arena, (size_t)n + 1, sizeof *index_of);
    if (!was || !index_of)
        return clv_fail_memory(err, "a schedule", (size_t)n * sizeof *was);
    program->n_steps = 0;
    for (int at = 0; at < n; at++) {
        int i = order[at];
        program->instructions[at] = was[i];
        program->instructions[at].n_overlapped = was[i].group >= 0 ? completes_at[i] - at : 0;
        if (!was[i].op)
            program->steps[program->n_steps++] = at;
        index_of[i] = at;
    }
    for (int r = 0; r < program->n_decisions; r++)
        program->decisions[r].instruction = index_of[program->decisions[r].instruction];
    if (program->n_decisions > 0)
        qsort(program->decisions, (size_t)program->n_decisions, sizeof *program->decisions, by_instruction);
    return CLV_OK;
}
