/* memory_check.c - memory sanitizer: finds out-of-bounds writes, unwritten results, use after free. */
#include "runtime/checks/memory_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory/aligned_memory.h"
#include "base/text/c_locale.h"
#include "runtime/checks/guard_bytes.h"

enum {
    /* Values of at most so many bytes are checksummed after every instruction; after a larger one, as many bytes of the
       memory after it are checked. */
    SMALL_BYTES = 2048,
    /* The whole region is checked when the bytes that instructions touched since the last time reach its size. An
       instruction counts at least this: smaller regions are checked after each one. */
    SWEEP_BYTES = 16 << 10,
    /* Bytes that are checked after every instruction around what it wrote. */
    NEAR_BYTES = 4 << 10,
    /* Fills 1-byte results that are computed out of place: neither byte of the guard pattern, which fills them in
     * place. */
    OTHER_BYTE = 0x82
};

/* State of a cell (clv_program_buffer_range) on a rank. */
typedef struct record {
    bool live;           /* holds a value, or is being written */
    bool being_written;  /* by a collective in flight */
    bool held;           /* while being written: it held a value before */
    int steps_in_flight; /* collectives in flight that read or write it */
    int holds;           /* the buffer whose value it holds, one of those that share the memory */
    int64_t bytes;
    uint64_t sum;
} record;

/* What a rank has done since its whole region was checked. */
typedef struct sweep {
    int from;      /* the instruction after which it was checked; -1: before the first */
    int64_t bytes; /* touched since */
} sweep;

/* State of a rank. */
typedef struct rank_state {
    record *records; /* [n_buffers] of cells */
    int *live;       /* [n_live] live cells, unordered; room for n_buffers */
    int n_live;
    char *out_of_place; /* results of the current instruction, computed out of place; NULL: none */
    sweep sweep;
} rank_state;

struct clv_memory_check {
    clv_arena *arena;
    clv_region_plan plan;
    int n_local_ranks;
    rank_state *ranks; /* [n_local_ranks] */
};

/* A check by one rank at one place of the program. */
typedef struct look {
    const clv_loaded_program *loaded;
    const clv_program *program;
    int rank;
    int instruction;     /* -1: none */
    const char *culprit; /* subject of messages: "it", "an op before it" */
    rank_state *mine;
} look;

static look make_context(const clv_loaded_program *loaded, int rank, int instruction, const char *culprit)
{
    return (look){.loaded = loaded,
                  .program = loaded->program,
                  .rank = rank,
                  .instruction = instruction,
                  .culprit = culprit,
                  .mine = &loaded->check->ranks[rank - loaded->first_local_rank]};
}

/* ---- making ---- */

void clv_memory_check_free(clv_memory_check *check)
{
    if (!check)
        return;
    clv_region_plan_free(&check->plan);
    for (int r = 0; check->ranks && r < check->n_local_ranks; r++)
        free(check->ranks[r].out_of_place);
    clv_arena_free(check->arena);
    free(check);
}

static clv_status allocate(clv_memory_check *c, const clv_program *program, clv_error *err)
{
    size_t n = (size_t)program->n_buffers;
    c->arena = clv_arena_new();
    if (c->arena)
        c->ranks = clv_arena_alloc(c->arena, (size_t)c->n_local_ranks, sizeof *c->ranks);
    bool all = c->ranks != NULL;
    for (int r = 0; all && r < c->n_local_ranks; r++) {
        c->ranks[r].records = clv_arena_alloc(c->arena, n, sizeof(record));
        c->ranks[r].live = clv_arena_alloc(c->arena, n, sizeof(int));
        all = c->ranks[r].records && c->ranks[r].live;
    }
    if (!all)
        return clv_fail_memory(err, "a memory check", n * sizeof(record));
    CLV_TRY(clv_program_plan_region(&c->plan, program, CLV_GUARD_BYTES, err));
    for (int i = 0; i < program->n_instructions; i++) /* without a workspace: the guard bytes */
        c->plan.workspace[i] = program->instructions[i].workspace_bytes ? CLV_GUARD_BYTES + c->plan.workspace[i] : 0;
    for (int b = 0; b < program->n_buffers; b++)
        c->plan.buffer[b] += CLV_GUARD_BYTES;
    c->plan.bytes += CLV_REGION_ALIGN;
    return CLV_OK;
}

clv_status clv_memory_check_new(clv_memory_check **out, const clv_program *program, int n_local_ranks, clv_error *err)
{
    CLV_TRY(clv_program_verify(program, err));
    clv_memory_check *c = calloc(1, sizeof *c);
    if (!c)
        return clv_fail_memory(err, "a memory check", sizeof *c);
    c->n_local_ranks = n_local_ranks;
    clv_status status = allocate(c, program, err);
    if (status == CLV_OK)
        *out = c;
    else
        clv_memory_check_free(c);
    return status;
}

const clv_region_plan *clv_memory_check_plan(const clv_memory_check *check)
{
    return &check->plan;
}

/* ---- failing ---- */

static clv_status fail(const look *l, clv_error *err, const char *format, ...) __attribute__((format(printf, 3, 4)));

static clv_status fail(const look *l, clv_error *err, const char *format, ...)
{
    const char *where = l->instruction < 0 ? "outside of any op" : l->program->instructions[l->instruction].name;
    char text[400];
    va_list args;
    va_start(args, format);
    clv_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return clv_fail_at(err, CLV_ECHECK, l->rank, where, "rank %d, %s: %s", l->rank, where, text);
}

typedef struct description {
    char text[256];
} description;

static description describe(const look *l, int buffer)
{
    description d;
    clv_buffer_describe(d.text, sizeof d.text, l->program, buffer);
    return d;
}

/* ---- memory ---- */

static char *at(const look *l, int cell)
{
    return clv_loaded_program_view(l->loaded, l->rank, cell)->data;
}

/* Whether there is a buffer b, and this rank's pipeline stage holds it. */
static bool is_here(const look *l, int b)
{
    return b >= 0 && clv_layout_has_rank(&l->program->buffers[b].layout, &l->program->mesh, l->rank);
}

static bool is_state(const look *l, int cell)
{
    return l->program->buffers[cell].kind == CLV_BUFFER_STATE;
}

/* Bytes of memory of a cell: its rows, if it is a chunk that another follows; else all to the end of its guard bytes.
 * */
static int64_t room_of(const look *l, int cell)
{
    const clv_buffer *buffers = l->program->buffers;
    if (!buffers[cell].is_chunk)
        return buffers[cell].bytes + CLV_GUARD_BYTES;
    const clv_buffer *whole = &buffers[buffers[cell].shares_with];
    if (cell + 1 < whole->first_chunk + whole->n_chunks)
        return clv_view_byte_size(clv_loaded_program_view(l->loaded, l->rank, cell));
    return whole->bytes + CLV_GUARD_BYTES - (at(l, cell) - at(l, buffers[cell].shares_with));
}

/* How many bytes of buffer b's value lie in a cell. */
static int64_t bytes_in(const look *l, int cell, int b)
{
    if (clv_program_is_strided_chunk(l->program, b))
        return clv_view_byte_size(clv_loaded_program_view(l->loaded, l->rank, cell));
    const clv_view *view = clv_loaded_program_view(l->loaded, l->rank, b);
    int64_t rest = (int64_t)clv_view_byte_size(view) - (at(l, cell) - (char *)view->data), room = room_of(l, cell);
    return rest < 0 ? 0 : rest < room ? rest : room;
}

/* The memory after the value of a cell, of `bytes`, is poison: all of it, or the first SMALL_BYTES. */
static clv_status check_behind(const look *l, int cell, int64_t bytes, bool all, clv_error *err)
{
    int64_t rest = room_of(l, cell) - bytes;
    int64_t broken =
        clv_guard_bytes_first_overwritten(at(l, cell) + bytes, all || rest < SMALL_BYTES ? rest : SMALL_BYTES);
    if (broken < 0)
        return CLV_OK;
    return fail(l, err, "%s wrote behind the end of %s: byte %lld after its %lld", l->culprit,
                describe(l, l->mine->records[cell].live ? l->mine->records[cell].holds : cell).text, (long long)broken,
                (long long)bytes);
}

static clv_status check_before_it(const look *l, int cell, clv_error *err)
{
    int64_t broken = clv_guard_bytes_first_overwritten(at(l, cell) - CLV_GUARD_BYTES, CLV_GUARD_BYTES);
    if (broken < 0)
        return CLV_OK;
    return fail(l, err, "%s wrote before the beginning of %s", l->culprit, describe(l, cell).text);
}

/* A live cell holds its value, with poison after it; a large one is checksummed only if `whole`. */
static clv_status check_cell(const look *l, int cell, bool whole, clv_error *err)
{
    const record *r = &l->mine->records[cell];
    if (r->being_written)
        return CLV_OK;
    if ((whole || r->bytes <= SMALL_BYTES) && clv_guard_bytes_checksum(at(l, cell), r->bytes) != r->sum)
        return fail(l, err, "%s changed %s, which it does not write", l->culprit, describe(l, r->holds).text);
    if (is_state(l, cell))
        CLV_TRY(check_before_it(l, cell, err));
    return check_behind(l, cell, r->bytes, whole, err);
}

/* Records that a cell now holds the value of buffer b, or a part of it. */
static void hold(const look *l, int cell, int b)
{
    record *r = &l->mine->records[cell];
    int64_t bytes = bytes_in(l, cell, b);
    if (!r->live)
        l->mine->live[l->mine->n_live++] = cell;
    *r = (record){.live = true,
                  .steps_in_flight = r->steps_in_flight,
                  .holds = b,
                  .bytes = bytes,
                  .sum = clv_guard_bytes_checksum(at(l, cell), bytes)};
}

/* Records that a collective in flight writes buffer b. */
static void begin_write(const look *l, int b)
{
    clv_buffer_range cells = clv_program_buffer_range(l->program, b);
    for (int k = 0; k < cells.n; k++) {
        int cell = clv_buffer_range_at(&cells, k);
        record *r = &l->mine->records[cell];
        int64_t bytes = bytes_in(l, cell, b);
        if (!r->live)
            l->mine->live[l->mine->n_live++] = cell;
        r->held = r->live;
        r->live = r->being_written = true;
        r->steps_in_flight++;
        r->holds = r->held ? r->holds : b;
        r->bytes = r->held && r->bytes > bytes ? r->bytes : bytes;
    }
}

/* Removes cell k from the list of live ones (the last takes its place) and poisons it, unless it is state. */
static void drop(const look *l, int k)
{
    record *r = &l->mine->records[l->mine->live[k]];
    if (!is_state(l, l->mine->live[k]))
        clv_guard_bytes_fill(at(l, l->mine->live[k]), r->bytes);
    r->live = false;
    l->mine->live[k] = l->mine->live[--l->mine->n_live];
}

/* Drops cells that no instruction after `last_run` reads and no collective in flight uses. */
static void drop_unread(const look *l, int last_run)
{
    for (int k = l->mine->n_live - 1; k >= 0; k--) {
        int last = l->program->buffers[l->mine->live[k]].last;
        if (last >= 0 && last <= last_run && l->mine->records[l->mine->live[k]].steps_in_flight == 0)
            drop(l, k);
    }
}

static char *workspace(const look *l)
{
    return (char *)clv_loaded_program_on_rank(l->loaded, l->rank)->region +
           l->loaded->check->plan.workspace[l->instruction];
}

/* ---- the run ---- */

static clv_status check_all(const look *l, clv_error *err)
{
    for (int k = 0; k < l->mine->n_live; k++)
        CLV_TRY(check_cell(l, l->mine->live[k], true, err));
    return CLV_OK;
}

static void sort_by_address(const look *l)
{
    for (int i = 1; i < l->mine->n_live; i++)
        for (int k = i; k > 0 && at(l, l->mine->live[k]) < at(l, l->mine->live[k - 1]); k--) {
            int swap = l->mine->live[k];
            l->mine->live[k] = l->mine->live[k - 1];
            l->mine->live[k - 1] = swap;
        }
}

/* All of [from, end) of the region between live cells is poison. State is not in the region. */
static clv_status check_gaps(const look *l, char *from, char *end, clv_error *err)
{
    sort_by_address(l);
    for (int k = 0; k <= l->mine->n_live && from < end; k++) {
        if (k < l->mine->n_live && is_state(l, l->mine->live[k]))
            continue;
        char *to = k < l->mine->n_live && at(l, l->mine->live[k]) < end ? at(l, l->mine->live[k]) : end;
        if (to > from && clv_guard_bytes_first_overwritten(from, to - from) >= 0)
            return fail(l, err, "%s wrote into memory that held no value", l->culprit);
        char *after = k < l->mine->n_live ? at(l, l->mine->live[k]) + l->mine->records[l->mine->live[k]].bytes : end;
        from = after > from ? after : from;
    }
    return CLV_OK;
}

static clv_status check_region(const look *l, clv_error *err)
{
    char *region = clv_loaded_program_on_rank(l->loaded, l->rank)->region;
    return check_gaps(l, region, region + l->loaded->check->plan.bytes, err);
}

/* Checks the memory around what an instruction wrote, where most stray writes end. */
static clv_status check_near(const look *l, char *memory, int64_t bytes, clv_error *err)
{
    char *region = clv_loaded_program_on_rank(l->loaded, l->rank)->region, *end = region + l->loaded->check->plan.bytes;
    char *from = memory - region < NEAR_BYTES ? region : memory - NEAR_BYTES;
    char *to = end - (memory + bytes) < NEAR_BYTES ? end : memory + bytes + NEAR_BYTES;
    for (int k = 0; k < l->mine->n_live; k++) {
        char *value = at(l, l->mine->live[k]);
        int64_t room = l->mine->records[l->mine->live[k]].bytes;
        if (room <= NEAR_BYTES && value < to && value + room > from)
            CLV_TRY(check_cell(l, l->mine->live[k], true, err));
    }
    return check_gaps(l, from, to, err);
}

/* Checks the whole region and all state after the look's instruction. Any instruction since the last sweep may be the
 * culprit. */
static clv_status sweep_all(const look *l, clv_error *err)
{
    sweep *s = &l->mine->sweep;
    look since = *l;
    char culprit[160];
    if (s->from < l->instruction - 1) {
        snprintf(culprit, sizeof culprit, "it, or an op since %s,",
                 s->from < 0 ? "the beginning" : l->program->instructions[s->from].name);
        since.culprit = culprit;
    }
    *s = (sweep){.from = l->instruction};
    CLV_TRY(check_all(&since, err));
    return check_region(&since, err);
}

static int64_t bytes_touched(const look *l, const clv_instruction *instruction)
{
    int64_t bytes = instruction->workspace_bytes;
    for (int k = 0; k < instruction->n_in; k++)
        bytes += instruction->in[k] < 0
                     ? 0
                     : clv_view_byte_size(clv_loaded_program_view(l->loaded, l->rank, instruction->in[k]));
    for (int o = 0; o < instruction->n_out; o++)
        bytes += clv_view_byte_size(clv_loaded_program_view(l->loaded, l->rank, instruction->out[o]));
    return bytes > SWEEP_BYTES ? bytes : SWEEP_BYTES;
}

static clv_status sweep_when_due(const look *l, clv_error *err)
{
    sweep *s = &l->mine->sweep;
    const clv_instruction *instruction = &l->program->instructions[l->instruction];
    s->bytes += bytes_touched(l, instruction);
    if (s->bytes >= l->loaded->check->plan.bytes)
        return sweep_all(l, err);
    if (instruction->workspace_bytes > 0)
        CLV_TRY(check_near(l, workspace(l), instruction->workspace_bytes, err));
    for (int o = 0; o < instruction->n_out; o++) {
        int out = instruction->out[o];
        clv_buffer_range cells = clv_program_buffer_range(l->program, out);
        for (int k = 0; is_here(l, out) && !is_state(l, clv_program_owning_buffer(l->program, out)) && k < cells.n; k++)
            CLV_TRY(check_near(l, at(l, clv_buffer_range_at(&cells, k)),
                               bytes_in(l, clv_buffer_range_at(&cells, k), out), err));
    }
    return CLV_OK;
}

clv_status clv_memory_check_between_runs(const clv_loaded_program *loaded, int rank, clv_error *err)
{
    look l = make_context(loaded, rank, -1, "something outside of the run");
    CLV_TRY(check_all(&l, err));
    while (l.mine->n_live > 0)
        drop(&l, l.mine->n_live - 1);
    return check_region(&l, err);
}

clv_status clv_memory_check_begin_run(const clv_loaded_program *loaded, int rank, clv_error *err)
{
    look l = make_context(loaded, rank, -1, "binding the inputs");
    l.mine->sweep = (sweep){.from = -1};
    for (int b = 0; b < l.program->n_buffers; b++)
        if (l.program->buffers[b].kind != CLV_BUFFER_TEMP && is_here(&l, b)) {
            hold(&l, b, b);
            CLV_TRY(check_cell(&l, b, true, err));
        }
    for (int k = l.mine->n_live - 1; k >= 0; k--) /* unused inputs */
        if (l.program->buffers[l.mine->live[k]].last < 0)
            drop(&l, k);
    return CLV_OK;
}

/* Bytes of workspace that the op needs on this rank; planned are those of the largest shard, rounded up. */
static int64_t workspace_needed(const look *l, const clv_instruction *instruction)
{
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    if (!instruction->op || !instruction->op->def->workspace)
        return 0;
    clv_loaded_program_operands(in, out, l->loaded, l->rank, instruction);
    return (int64_t)instruction->op->def->workspace(instruction->op, in, out);
}

/* No rank needs more than was planned for the largest shard. */
static clv_status check_needs(const look *l, const clv_instruction *instruction, clv_error *err)
{
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    clv_loaded_program_operands(in, out, l->loaded, l->rank, instruction);
    for (int k = 0; k < instruction->n_in + instruction->n_out; k++) {
        bool is_in = k < instruction->n_in;
        int b = is_in ? instruction->in[k] : instruction->out[k - instruction->n_in];
        int64_t bytes = clv_view_byte_size(is_in ? &in[k] : &out[k - instruction->n_in]);
        if (b >= 0 && bytes > l->program->buffers[clv_program_owning_buffer(l->program, b)].bytes)
            return fail(l, err, "%s has %lld bytes on this rank, %lld are planned", describe(l, b).text,
                        (long long)bytes,
                        (long long)l->program->buffers[clv_program_owning_buffer(l->program, b)].bytes);
    }
    return CLV_OK;
}

static clv_status check_operand(const look *l, int b, clv_error *err)
{
    clv_buffer_range cells = clv_program_buffer_range(l->program, b);
    for (int k = 0; k < cells.n; k++) {
        if (!l->mine->records[clv_buffer_range_at(&cells, k)].live)
            return fail(l, err, "it reads %s, whose memory was freed", describe(l, b).text);
        CLV_TRY(check_cell(l, clv_buffer_range_at(&cells, k), true, err));
    }
    return CLV_OK;
}

/* Nothing around the workspace was written. Poisons it again. */
static clv_status check_workspace(const look *l, const clv_instruction *instruction, clv_error *err)
{
    int64_t needed = workspace_needed(l, instruction), room = instruction->workspace_bytes;
    if (clv_guard_bytes_first_overwritten(clv_loaded_program_on_rank(l->loaded, l->rank)->region, CLV_GUARD_BYTES) >= 0)
        return fail(l, err,
                    room > 0 ? "it wrote before the beginning of the region"
                             : "it wrote into a workspace, and asks for none");
    if (room == 0)
        return CLV_OK;
    if (clv_guard_bytes_first_overwritten(workspace(l) + needed, room + CLV_GUARD_BYTES - needed) >= 0)
        return fail(l, err, "it wrote behind the end of its workspace of %lld bytes", (long long)needed);
    clv_guard_bytes_fill(workspace(l), room);
    return CLV_OK;
}

/* ---- out of place ---- */

/* Whether the op is to run out of place, too. In place, unwritten elements are not always detected: memory that a
 * result takes over from an operand holds values, and in a 1-byte result any content may be a value. */
static bool runs_out_of_place(const clv_program *program, const clv_instruction *instruction)
{
    bool does = false;
    for (int o = 0; instruction->op && o < instruction->n_out; o++) {
        does = does || clv_dtype_size(program->buffers[instruction->out[o]].type.dtype) == 1;
        for (int i = 0; i < instruction->n_in; i++)
            does = does || (instruction->in[i] >= 0 && clv_program_owning_buffer(program, instruction->in[i]) ==
                                                           clv_program_owning_buffer(program, instruction->out[o]));
    }
    return does;
}

/* Points views of results into memory of their own, with guard bytes around each. Returns the bytes of all. */
static int64_t place_results(clv_view *out, int n_out, char *memory)
{
    int64_t at = CLV_GUARD_BYTES;
    for (int o = 0; o < n_out; o++) {
        out[o].data = memory ? memory + at : NULL;
        at += clv_buffer_aligned_bytes(clv_view_byte_size(&out[o])) + CLV_GUARD_BYTES;
    }
    return at;
}

static clv_status check_result_out_of_place(const look *l, const clv_view *out, int b, clv_error *err)
{
    char *data = out->data;
    int64_t unwritten = clv_guard_bytes_first_unwritten(out->dtype, data, clv_view_elems(out));
    if (clv_guard_bytes_first_overwritten(data - CLV_GUARD_BYTES, CLV_GUARD_BYTES) >= 0)
        return fail(l, err, "it wrote before the beginning of %s", describe(l, b).text);
    if (clv_guard_bytes_first_overwritten(data + clv_view_byte_size(out), CLV_GUARD_BYTES) >= 0)
        return fail(l, err, "it wrote behind the end of %s", describe(l, b).text);
    if (unwritten >= 0)
        return fail(l, err, "it left element %lld of %s unwritten", (long long)unwritten, describe(l, b).text);
    return CLV_OK;
}

/* Computes the results out of place, before the op runs in place. */
static clv_status run_out_of_place(const look *l, const clv_instruction *instruction, clv_error *err)
{
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    clv_loaded_program_operands(in, out, l->loaded, l->rank, instruction);
    int64_t bytes = place_results(out, instruction->n_out, NULL);
    char *memory = clv_huge_pages_alloc(CLV_BUFFER_ALIGN, (size_t)clv_buffer_aligned_bytes(bytes));
    if (!memory)
        return clv_fail_memory(err, "results out of place", (size_t)bytes);
    l->mine->out_of_place = memory;
    (void)place_results(out, instruction->n_out, memory);
    clv_guard_bytes_fill(memory, bytes);
    for (int o = 0; o < instruction->n_out; o++)
        if (clv_dtype_size(out[o].dtype) == 1)
            memset(out[o].data, OTHER_BYTE, (size_t)clv_view_byte_size(&out[o]));
    clv_call call = {.op = instruction->op,
                     .in = in,
                     .out = out,
                     .workspace = workspace(l),
                     .context = &clv_loaded_program_on_rank(l->loaded, l->rank)->context};
    clv_error why = {0};
    clv_status status = clv_check_callback_status(&why, instruction->op->def->run(&call, &why), "the kernel");
    if (status != CLV_OK)
        return clv_fail_at(err, status, l->rank, instruction->name, "rank %d, %s: %s", l->rank, instruction->name,
                           why.message);
    CLV_TRY(check_workspace(l, instruction, err));
    for (int o = 0; o < instruction->n_out; o++)
        CLV_TRY(check_result_out_of_place(l, &out[o], instruction->out[o], err));
    return CLV_OK;
}

/* Compares the results in place with those out of place, bit for bit. */
static clv_status compare_out_of_place(const look *l, const clv_instruction *instruction, clv_error *err)
{
    char **memory = &l->mine->out_of_place;
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT], other[CLV_MAX_OUT];
    clv_loaded_program_operands(in, out, l->loaded, l->rank, instruction);
    memcpy(other, out, sizeof other);
    (void)place_results(other, instruction->n_out, *memory);
    for (int o = 0; o < instruction->n_out; o++) {
        const char *a = out[o].data, *b = other[o].data;
        int64_t bytes = clv_view_byte_size(&out[o]), i = 0;
        if (bytes == 0 || memcmp(a, b, (size_t)bytes) == 0)
            continue;
        while (a[i] == b[i])
            i++;
        return fail(l, err,
                    "it left element %lld of %s unwritten, or computes another value in place than out of place",
                    (long long)(i / (int64_t)clv_dtype_size(out[o].dtype)), describe(l, instruction->out[o]).text);
    }
    free(*memory);
    *memory = NULL;
    return CLV_OK;
}

/* ---- instructions ---- */

clv_status clv_memory_check_before(const clv_loaded_program *loaded, int rank, int i, clv_error *err)
{
    look l = make_context(loaded, rank, i, "an op before it");
    const clv_instruction *instruction = &l.program->instructions[i];
    CLV_TRY(check_needs(&l, instruction, err));
    for (int k = 0; k < instruction->n_in; k++)
        if (is_here(&l, instruction->in[k]))
            CLV_TRY(check_operand(&l, instruction->in[k], err));
    for (int o = 0; o < instruction->n_out; o++) {
        clv_buffer_range cells = clv_program_buffer_range(l.program, instruction->out[o]);
        for (int k = 0; k < cells.n; k++) {
            int cell = clv_buffer_range_at(&cells, k);
            if (is_here(&l, instruction->out[o]) && !l.mine->records[cell].live &&
                clv_guard_bytes_first_overwritten(at(&l, cell), room_of(&l, cell)) >= 0)
                return fail(&l, err, "the memory that %s takes is in use, or an op before wrote into it",
                            describe(&l, instruction->out[o]).text);
        }
    }
    if (instruction->workspace_bytes > 0 &&
        clv_guard_bytes_first_overwritten(workspace(&l), instruction->workspace_bytes + CLV_GUARD_BYTES) >= 0)
        return fail(&l, err, "the memory of its workspace is in use, or an op before wrote into it");
    if (!runs_out_of_place(l.program, instruction))
        return CLV_OK;
    l.culprit = "it";
    CLV_TRY(run_out_of_place(&l, instruction, err));
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            CLV_TRY(check_operand(&l, instruction->in[k], err));
    return CLV_OK;
}

/* An instruction wrote buffer b's part in a cell completely. */
static clv_status check_written_cell(const look *l, int cell, int b, clv_error *err)
{
    record before = l->mine->records[cell];
    before.live = before.being_written ? before.held : before.live;
    clv_dtype dtype = clv_loaded_program_view(l->loaded, l->rank, b)->dtype;
    int64_t bytes = bytes_in(l, cell, b), old = before.live ? before.bytes : 0;
    CLV_TRY(check_behind(l, cell, bytes > old ? bytes : old, true, err));
    int64_t elems = bytes / (int64_t)clv_dtype_size(dtype);
    bool may_be_unwritten = before.live || l->program->buffers[b].is_messages;
    int64_t unwritten = may_be_unwritten ? -1 : clv_guard_bytes_first_unwritten(dtype, at(l, cell), elems);
    if (unwritten >= 0)
        return fail(l, err, "it left element %lld of %s unwritten", (long long)unwritten, describe(l, b).text);
    if (old > bytes)
        clv_guard_bytes_fill(at(l, cell) + bytes, old - bytes);
    hold(l, cell, b);
    return CLV_OK;
}

static clv_status check_result(const look *l, int b, clv_error *err)
{
    clv_buffer_range cells = clv_program_buffer_range(l->program, b);
    for (int k = 0; is_here(l, b) && k < cells.n; k++)
        CLV_TRY(check_written_cell(l, clv_buffer_range_at(&cells, k), b, err));
    return CLV_OK;
}

static bool writes(const look *l, const clv_instruction *instruction, int cell)
{
    bool does = false;
    for (int o = 0; o < instruction->n_out; o++) {
        clv_buffer_range cells = clv_program_buffer_range(l->program, instruction->out[o]);
        for (int k = 0; k < cells.n; k++)
            does = does || clv_buffer_range_at(&cells, k) == cell;
    }
    return does;
}

/* Adds `more` collectives in flight that read or write buffer b. */
static void count_in_flight(const look *l, int b, int more)
{
    clv_buffer_range cells = clv_program_buffer_range(l->program, b);
    for (int k = 0; is_here(l, b) && k < cells.n; k++)
        l->mine->records[clv_buffer_range_at(&cells, k)].steps_in_flight += more;
}

clv_status clv_memory_check_after(const clv_loaded_program *loaded, int rank, int i, clv_error *err)
{
    look l = make_context(loaded, rank, i, "it");
    const clv_instruction *instruction = &l.program->instructions[i];
    CLV_TRY(check_workspace(&l, instruction, err));
    if (runs_out_of_place(l.program, instruction))
        CLV_TRY(compare_out_of_place(&l, instruction, err));
    for (int k = 0; k < l.mine->n_live; k++)
        if (!writes(&l, instruction, l.mine->live[k]))
            CLV_TRY(check_cell(&l, l.mine->live[k], l.program->buffers[l.mine->live[k]].last == i, err));
    bool overlaps = instruction->n_overlapped > 0;
    for (int k = 0; overlaps && k < instruction->n_in; k++)
        count_in_flight(&l, instruction->in[k], 1);
    for (int o = 0; overlaps && o < instruction->n_out; o++)
        if (is_here(&l, instruction->out[o]))
            begin_write(&l, instruction->out[o]);
    for (int o = 0; !overlaps && o < instruction->n_out; o++)
        CLV_TRY(check_result(&l, instruction->out[o], err));
    drop_unread(&l, i);
    return sweep_when_due(&l, err);
}

void clv_memory_check_skipped(const clv_loaded_program *loaded, int rank, int i)
{
    look l = make_context(loaded, rank, i, "it");
    drop_unread(&l, i);
}

clv_status clv_memory_check_after_overlapped(const clv_loaded_program *loaded, int rank, int step, int last_run,
                                             clv_error *err)
{
    look l = make_context(loaded, rank, step, "it, or an op that it overlaps with,");
    const clv_instruction *instruction = &l.program->instructions[step];
    for (int k = 0; k < instruction->n_in; k++)
        if (is_here(&l, instruction->in[k]))
            CLV_TRY(check_operand(&l, instruction->in[k], err));
    for (int o = 0; o < instruction->n_out; o++)
        CLV_TRY(check_result(&l, instruction->out[o], err));
    for (int k = 0; k < instruction->n_in; k++)
        count_in_flight(&l, instruction->in[k], -1);
    for (int o = 0; o < instruction->n_out; o++)
        count_in_flight(&l, instruction->out[o], -1);
    drop_unread(&l, last_run);
    return CLV_OK;
}

clv_status clv_memory_check_end_run(const clv_loaded_program *loaded, int rank, clv_error *err)
{
    const int last = loaded->program->n_instructions - 1;
    bool swept = loaded->check->ranks[rank - loaded->first_local_rank].sweep.from == last;
    look l = make_context(loaded, rank, swept ? -1 : last, swept ? "something outside of the run" : "it");
    CLV_TRY(sweep_all(&l, err));
    for (int k = l.mine->n_live - 1; k >= 0; k--)
        if (is_state(&l, l.mine->live[k]))
            drop(&l, k);
    return CLV_OK;
}
