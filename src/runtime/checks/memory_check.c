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
#include "runtime/checks/out_of_place_check.h"
#include "runtime/session/kernel_dispatch.h"

enum {
    /* Values up to this are summed again after every instruction; of larger ones, as many of the bytes behind them are
       looked at. */
    SMALL_BYTES = 2048,
    /* All of a region is looked at whenever instructions since the last time come to its size, each counting for as
     * much at least: after each one, where it is no larger. */
    SWEEP_BYTES = 16 << 10,
    /* Around what an instruction wrote this is looked at after each one. */
    NEAR_BYTES = 4 << 10
};

/* What a cell (clv_program_buffer_range) holds on a rank. */
typedef struct record {
    bool live;
    bool being_written;  /* a step that flies writes it; live, then, whether it held a value before or not */
    bool held;           /* it did */
    int steps_in_flight; /* steps that fly and read or write it */
    int holds;           /* the buffer, one of those that share the memory */
    int64_t bytes;
    uint64_t sum;
} record;

/* What a rank has done since all of its region was looked at. */
typedef struct sweep {
    int from; /* the instruction after which it was; -1: before the first */
    int64_t bytes;
} sweep;

struct clv_memory_check {
    clv_region_plan plan;
    int n_local_ranks, n_buffers;
    record *records; /* [n_local_ranks * n_buffers] of cells */
    int *live;       /* [n_local_ranks * n_buffers] the live cells of each rank, in no order */
    int *n_live;     /* [n_local_ranks] */
    char **apart;    /* [n_local_ranks] memory of results that are made apart (out_of_place_check.h) */
    sweep *sweeps;   /* [n_local_ranks] */
};

/* One rank's look at one place of the program. */
typedef struct look {
    const clv_loaded_program *loaded;
    const clv_program *program;
    int rank;
    int instruction; /* -1: none */
    const char *who; /* may be at fault, as the messages say it */
    record *records; /* the rank's */
    int *live, *n_live;
} look;

static look make_context(const clv_loaded_program *loaded, int rank, int instruction, const char *who)
{
    const clv_memory_check *c = loaded->check;
    int mine = rank - loaded->first_local_rank;
    return (look){.loaded = loaded,
                  .program = loaded->program,
                  .rank = rank,
                  .instruction = instruction,
                  .who = who,
                  .records = c->records + (int64_t)mine * c->n_buffers,
                  .live = c->live + (int64_t)mine * c->n_buffers,
                  .n_live = &c->n_live[mine]};
}

/* ---- making ---- */

void clv_memory_check_free(clv_memory_check *check)
{
    if (!check)
        return;
    clv_region_plan_free(&check->plan);
    free(check->records);
    free(check->live);
    free(check->n_live);
    for (int r = 0; check->apart && r < check->n_local_ranks; r++)
        free(check->apart[r]);
    free(check->apart);
    free(check->sweeps);
    free(check);
}

static clv_status allocate_out_of_place(clv_memory_check *c, const clv_program *program, clv_error *err)
{
    int64_t bytes = clv_out_of_place_bytes(program);
    for (int r = 0; bytes > 0 && r < c->n_local_ranks; r++) {
        c->apart[r] = clv_huge_pages_alloc(CLV_BUFFER_ALIGN, (size_t)bytes);
        if (!c->apart[r])
            return clv_fail_memory(err, "results that are made apart", (size_t)bytes);
    }
    return CLV_OK;
}

clv_status clv_memory_check_new(clv_memory_check **out, const clv_program *program, int here, clv_error *err)
{
    CLV_TRY(clv_program_verify(program, err));
    clv_memory_check *c = calloc(1, sizeof *c);
    if (!c)
        return clv_fail_memory(err, "a check", sizeof *c);
    size_t n = (size_t)here * (size_t)program->n_buffers + 1;
    *c = (clv_memory_check){.n_local_ranks = here,
                            .n_buffers = program->n_buffers,
                            .records = calloc(n, sizeof *c->records),
                            .live = calloc(n, sizeof *c->live),
                            .n_live = calloc((size_t)here, sizeof *c->n_live),
                            .apart = calloc((size_t)here, sizeof *c->apart),
                            .sweeps = calloc((size_t)here, sizeof *c->sweeps)};
    clv_status status = c->records && c->live && c->n_live && c->apart && c->sweeps
                            ? clv_program_plan_region(&c->plan, program, CLV_GUARD_BYTES, err)
                            : clv_fail_memory(err, "a check", n * sizeof *c->records);
    for (int i = 0; status == CLV_OK && i < program->n_instructions; i++)
        if (program->instructions[i].workspace_bytes == 0)
            c->plan.workspace[i] = -CLV_GUARD_BYTES; /* what is written there shows */
    if (status == CLV_OK)
        status = allocate_out_of_place(c, program, err);
    if (status != CLV_OK) {
        clv_memory_check_free(c);
        return status;
    }
    *out = c;
    return CLV_OK;
}

int64_t clv_memory_check_region_bytes(const clv_memory_check *check)
{
    return CLV_REGION_ALIGN + check->plan.bytes;
}

int64_t clv_memory_check_buffer_offset(const clv_memory_check *check, int b)
{
    return CLV_GUARD_BYTES + check->plan.buffer[b];
}

int64_t clv_memory_check_workspace_offset(const clv_memory_check *check, int instruction)
{
    return CLV_GUARD_BYTES + check->plan.workspace[instruction];
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

static bool is_state(const look *l, int cell)
{
    return l->program->buffers[cell].kind == CLV_BUFFER_STATE;
}

/* The bytes that are a cell's own: of a part that another follows its rows, else all to the end of what guards it. */
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

/* What lies behind the value of a cell, if it has `bytes`, is poison: all of it, or the first SMALL_BYTES. */
static clv_status check_behind(const look *l, int cell, int64_t bytes, bool all, clv_error *err)
{
    int64_t rest = room_of(l, cell) - bytes;
    int64_t broken =
        clv_guard_bytes_first_overwritten(at(l, cell) + bytes, all || rest < SMALL_BYTES ? rest : SMALL_BYTES);
    if (broken < 0)
        return CLV_OK;
    return fail(l, err, "%s wrote behind the end of %s: byte %lld after its %lld", l->who,
                describe(l, l->records[cell].live ? l->records[cell].holds : cell).text, (long long)broken,
                (long long)bytes);
}

static clv_status check_before_it(const look *l, int cell, clv_error *err)
{
    int64_t broken = clv_guard_bytes_first_overwritten(at(l, cell) - CLV_GUARD_BYTES, CLV_GUARD_BYTES);
    if (broken < 0)
        return CLV_OK;
    return fail(l, err, "%s wrote before the beginning of %s", l->who, describe(l, cell).text);
}

/* A live cell holds what was written and nothing behind it; a large one is summed only if `whole`. */
static clv_status check_cell(const look *l, int cell, bool whole, clv_error *err)
{
    const record *r = &l->records[cell];
    if (r->being_written)
        return CLV_OK;
    if ((whole || r->bytes <= SMALL_BYTES) && clv_guard_bytes_checksum(at(l, cell), r->bytes) != r->sum)
        return fail(l, err, "%s changed %s, which it does not write", l->who, describe(l, r->holds).text);
    if (is_state(l, cell))
        CLV_TRY(check_before_it(l, cell, err));
    return check_behind(l, cell, r->bytes, whole, err);
}

/* Notes that a cell now holds the value of buffer b, or a part of it. */
static void hold(const look *l, int cell, int b)
{
    record *r = &l->records[cell];
    int64_t bytes = bytes_in(l, cell, b);
    if (!r->live)
        l->live[(*l->n_live)++] = cell;
    *r = (record){.live = true,
                  .steps_in_flight = r->steps_in_flight,
                  .holds = b,
                  .bytes = bytes,
                  .sum = clv_guard_bytes_checksum(at(l, cell), bytes)};
}

/* Notes that a step that flies writes buffer b. */
static void await(const look *l, int b)
{
    clv_buffer_range cells = clv_program_buffer_range(l->program, b);
    for (int k = 0; k < cells.n; k++) {
        int cell = clv_buffer_range_at(&cells, k);
        record *r = &l->records[cell];
        int64_t bytes = bytes_in(l, cell, b);
        if (!r->live)
            l->live[(*l->n_live)++] = cell;
        r->held = r->live;
        r->live = r->being_written = true;
        r->steps_in_flight++;
        r->holds = r->held ? r->holds : b;
        r->bytes = r->held && r->bytes > bytes ? r->bytes : bytes;
    }
}

/* Poisons the cell in place k of the list of live ones; the last takes its place. State stays as it is. */
static void drop(const look *l, int k)
{
    record *r = &l->records[l->live[k]];
    if (!is_state(l, l->live[k]))
        clv_guard_bytes_fill(at(l, l->live[k]), r->bytes);
    r->live = false;
    l->live[k] = l->live[--*l->n_live];
}

/* What nobody reads behind an instruction, and no step that flies uses. */
static void drop_unread(const look *l, int behind)
{
    for (int k = *l->n_live - 1; k >= 0; k--) {
        int last = l->program->buffers[l->live[k]].last;
        if (last >= 0 && last <= behind && l->records[l->live[k]].steps_in_flight == 0)
            drop(l, k);
    }
}

static char *workspace(const look *l)
{
    return (char *)clv_loaded_program_on_rank(l->loaded, l->rank)->region +
           clv_memory_check_workspace_offset(l->loaded->check, l->instruction);
}

/* ---- the run ---- */

static clv_status check_all(const look *l, clv_error *err)
{
    for (int k = 0; k < *l->n_live; k++)
        CLV_TRY(check_cell(l, l->live[k], true, err));
    return CLV_OK;
}

static void sort_by_address(const look *l)
{
    for (int i = 1; i < *l->n_live; i++)
        for (int k = i; k > 0 && at(l, l->live[k]) < at(l, l->live[k - 1]); k--) {
            int swap = l->live[k];
            l->live[k] = l->live[k - 1];
            l->live[k - 1] = swap;
        }
}

/* All of [from, end) of the region that lies between live cells is poison. State lies elsewhere. */
static clv_status check_gaps(const look *l, char *from, char *end, clv_error *err)
{
    sort_by_address(l);
    for (int k = 0; k <= *l->n_live && from < end; k++) {
        if (k < *l->n_live && is_state(l, l->live[k]))
            continue;
        char *to = k < *l->n_live && at(l, l->live[k]) < end ? at(l, l->live[k]) : end;
        if (to > from && clv_guard_bytes_first_overwritten(from, to - from) >= 0)
            return fail(l, err, "%s wrote into memory that held no value", l->who);
        char *behind = k < *l->n_live ? at(l, l->live[k]) + l->records[l->live[k]].bytes : end;
        from = behind > from ? behind : from;
    }
    return CLV_OK;
}

static clv_status check_region(const look *l, clv_error *err)
{
    char *region = clv_loaded_program_on_rank(l->loaded, l->rank)->region;
    return check_gaps(l, region, region + clv_memory_check_region_bytes(l->loaded->check), err);
}

/* What lies around memory that an instruction wrote: most writes that miss it end there. */
static clv_status check_near(const look *l, char *memory, int64_t bytes, clv_error *err)
{
    char *region = clv_loaded_program_on_rank(l->loaded, l->rank)->region,
         *end = region + clv_memory_check_region_bytes(l->loaded->check);
    char *from = memory - region < NEAR_BYTES ? region : memory - NEAR_BYTES;
    char *to = end - (memory + bytes) < NEAR_BYTES ? end : memory + bytes + NEAR_BYTES;
    for (int k = 0; k < *l->n_live; k++) {
        char *value = at(l, l->live[k]);
        int64_t room = l->records[l->live[k]].bytes;
        if (room <= NEAR_BYTES && value < to && value + room > from)
            CLV_TRY(check_cell(l, l->live[k], true, err));
    }
    return check_gaps(l, from, to, err);
}

/* All of the region, and what is kept, after the look's instruction; the instructions since the last such look are
 * those that may be at fault. */
static clv_status sweep_all(const look *l, clv_error *err)
{
    sweep *s = &l->loaded->check->sweeps[l->rank - l->loaded->first_local_rank];
    look since = *l;
    char who[160];
    if (s->from < l->instruction - 1) {
        snprintf(who, sizeof who, "it, or an op since %s,",
                 s->from < 0 ? "the beginning" : l->program->instructions[s->from].name);
        since.who = who;
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
    sweep *s = &l->loaded->check->sweeps[l->rank - l->loaded->first_local_rank];
    const clv_instruction *instruction = &l->program->instructions[l->instruction];
    s->bytes += bytes_touched(l, instruction);
    if (s->bytes >= clv_memory_check_region_bytes(l->loaded->check))
        return sweep_all(l, err);
    if (instruction->workspace_bytes > 0)
        CLV_TRY(check_near(l, workspace(l), instruction->workspace_bytes, err));
    for (int o = 0; o < instruction->n_out; o++) {
        int out = instruction->out[o];
        clv_buffer_range cells = clv_program_buffer_range(l->program, out);
        for (int k = 0; !is_state(l, clv_program_root(l->program, out)) && k < cells.n; k++)
            CLV_TRY(check_near(l, at(l, clv_buffer_range_at(&cells, k)),
                               bytes_in(l, clv_buffer_range_at(&cells, k), out), err));
    }
    return CLV_OK;
}

clv_status clv_memory_check_between_runs(const clv_loaded_program *loaded, int rank, clv_error *err)
{
    look l = make_context(loaded, rank, -1, "something outside of the run");
    CLV_TRY(check_all(&l, err));
    while (*l.n_live > 0)
        drop(&l, *l.n_live - 1);
    return check_region(&l, err);
}

clv_status clv_memory_check_begin_run(const clv_loaded_program *loaded, int rank, clv_error *err)
{
    look l = make_context(loaded, rank, -1, "binding the inputs");
    loaded->check->sweeps[rank - loaded->first_local_rank] = (sweep){.from = -1};
    for (int b = 0; b < l.program->n_buffers; b++)
        if (l.program->buffers[b].kind != CLV_BUFFER_TEMP) {
            hold(&l, b, b);
            CLV_TRY(check_cell(&l, b, true, err));
        }
    for (int k = *l.n_live - 1; k >= 0; k--) /* inputs that nobody reads */
        if (l.program->buffers[l.live[k]].last < 0)
            drop(&l, k);
    return CLV_OK;
}

/* What the op asks for on this rank; it was planned for the largest shard, and rounded up. */
static int64_t workspace_wanted(const look *l, const clv_instruction *instruction)
{
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    if (!instruction->op || !instruction->op->def->workspace)
        return 0;
    clv_loaded_program_operands(in, out, l->loaded, l->rank, instruction);
    return (int64_t)instruction->op->def->workspace(instruction->op, in, out);
}

/* Every rank uses what was planned for the largest shard. */
static clv_status check_wants(const look *l, const clv_instruction *instruction, clv_error *err)
{
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    clv_loaded_program_operands(in, out, l->loaded, l->rank, instruction);
    for (int k = 0; k < instruction->n_in + instruction->n_out; k++) {
        bool is_in = k < instruction->n_in;
        int b = is_in ? instruction->in[k] : instruction->out[k - instruction->n_in];
        int64_t bytes = clv_view_byte_size(is_in ? &in[k] : &out[k - instruction->n_in]);
        if (b >= 0 && bytes > l->program->buffers[clv_program_root(l->program, b)].bytes)
            return fail(l, err, "%s has %lld bytes on this rank, %lld are planned", describe(l, b).text,
                        (long long)bytes, (long long)l->program->buffers[clv_program_root(l->program, b)].bytes);
    }
    int64_t wanted = workspace_wanted(l, instruction);
    if (wanted > instruction->workspace_bytes)
        return fail(l, err, "it wants a workspace of %lld bytes on this rank, %lld are planned", (long long)wanted,
                    (long long)instruction->workspace_bytes);
    return CLV_OK;
}

static clv_status check_operand(const look *l, int b, clv_error *err)
{
    clv_buffer_range cells = clv_program_buffer_range(l->program, b);
    for (int k = 0; k < cells.n; k++) {
        if (!l->records[clv_buffer_range_at(&cells, k)].live)
            return fail(l, err, "it reads %s, whose memory was given back", describe(l, b).text);
        CLV_TRY(check_cell(l, clv_buffer_range_at(&cells, k), true, err));
    }
    return CLV_OK;
}

/* Nothing around a workspace was written; it is as it was before. */
static clv_status check_workspace(const look *l, const clv_instruction *instruction, clv_error *err)
{
    int64_t wanted = workspace_wanted(l, instruction), room = instruction->workspace_bytes;
    if (clv_guard_bytes_first_overwritten(clv_loaded_program_on_rank(l->loaded, l->rank)->region, CLV_GUARD_BYTES) >= 0)
        return fail(l, err,
                    room > 0 ? "it wrote before the beginning of the region"
                             : "it wrote into a workspace, and asks for none");
    if (room == 0)
        return CLV_OK;
    if (clv_guard_bytes_first_overwritten(workspace(l) + wanted, room + CLV_GUARD_BYTES - wanted) >= 0)
        return fail(l, err, "it wrote behind the end of its workspace of %lld bytes", (long long)wanted);
    clv_guard_bytes_fill(workspace(l), room);
    return CLV_OK;
}

/* Lets the op make its results apart, of the operands as they are before its turn. */
static clv_status run_out_of_place(const look *l, const clv_instruction *instruction, clv_error *err)
{
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    clv_loaded_program_operands(in, out, l->loaded, l->rank, instruction);
    clv_out_of_place_lay_out(out, instruction->n_out, l->loaded->check->apart[l->rank - l->loaded->first_local_rank]);
    clv_out_of_place_poison(out, instruction->n_out);
    clv_call call = {.op = instruction->op,
                     .in = in,
                     .out = out,
                     .workspace = workspace(l),
                     .context = &clv_loaded_program_on_rank(l->loaded, l->rank)->context};
    CLV_TRY(clv_kernel_run(l->loaded, l->rank, l->instruction, &call, err));
    CLV_TRY(check_workspace(l, instruction, err));
    for (int o = 0; o < instruction->n_out; o++) {
        int64_t unwritten = clv_out_of_place_first_unwritten(&out[o]);
        if (clv_guard_bytes_first_overwritten((char *)out[o].data - CLV_GUARD_BYTES, CLV_GUARD_BYTES) >= 0)
            return fail(l, err, "it wrote before the beginning of %s", describe(l, instruction->out[o]).text);
        if (clv_guard_bytes_first_overwritten((char *)out[o].data + clv_view_byte_size(&out[o]), CLV_GUARD_BYTES) >= 0)
            return fail(l, err, "it wrote behind the end of %s", describe(l, instruction->out[o]).text);
        if (unwritten >= 0)
            return fail(l, err, "it left element %lld of %s unwritten", (long long)unwritten,
                        describe(l, instruction->out[o]).text);
    }
    return CLV_OK;
}

/* The op made the same in its place as apart. */
static clv_status check_out_of_place(const look *l, const clv_instruction *instruction, clv_error *err)
{
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT], apart[CLV_MAX_OUT];
    clv_loaded_program_operands(in, out, l->loaded, l->rank, instruction);
    memcpy(apart, out, sizeof apart);
    clv_out_of_place_lay_out(apart, instruction->n_out, l->loaded->check->apart[l->rank - l->loaded->first_local_rank]);
    for (int o = 0; o < instruction->n_out; o++) {
        int64_t other = clv_out_of_place_first_difference(&out[o], &apart[o]);
        if (other >= 0)
            return fail(
                l, err,
                "it left element %lld of %s unwritten, or makes another of it where it lies than in memory of its own",
                (long long)other, describe(l, instruction->out[o]).text);
    }
    return CLV_OK;
}

clv_status clv_memory_check_before(const clv_loaded_program *loaded, int rank, int i, clv_error *err)
{
    look l = make_context(loaded, rank, i, "an op before it");
    const clv_instruction *instruction = &l.program->instructions[i];
    CLV_TRY(check_wants(&l, instruction, err));
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            CLV_TRY(check_operand(&l, instruction->in[k], err));
    for (int o = 0; o < instruction->n_out; o++) {
        clv_buffer_range cells = clv_program_buffer_range(l.program, instruction->out[o]);
        for (int k = 0; k < cells.n; k++) {
            int cell = clv_buffer_range_at(&cells, k);
            if (!l.records[cell].live && clv_guard_bytes_first_overwritten(at(&l, cell), room_of(&l, cell)) >= 0)
                return fail(&l, err, "the memory that %s takes is in use, or an op before wrote into it",
                            describe(&l, instruction->out[o]).text);
        }
    }
    if (instruction->workspace_bytes > 0 &&
        clv_guard_bytes_first_overwritten(workspace(&l), instruction->workspace_bytes + CLV_GUARD_BYTES) >= 0)
        return fail(&l, err, "the memory of its workspace is in use, or an op before wrote into it");
    if (!clv_out_of_place_needed(l.program, instruction))
        return CLV_OK;
    l.who = "it";
    CLV_TRY(run_out_of_place(&l, instruction, err));
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            CLV_TRY(check_operand(&l, instruction->in[k], err));
    return CLV_OK;
}

/* What an instruction made of buffer b in one of its cells. */
static clv_status check_made(const look *l, int cell, int b, clv_error *err)
{
    record before = l->records[cell];
    before.live = before.being_written ? before.held : before.live;
    clv_dtype dtype = clv_loaded_program_view(l->loaded, l->rank, b)->dtype;
    int64_t bytes = bytes_in(l, cell, b), old = before.live ? before.bytes : 0;
    CLV_TRY(check_behind(l, cell, bytes > old ? bytes : old, true, err));
    int64_t elems = bytes / (int64_t)clv_dtype_size(dtype);
    int64_t unwritten = before.live ? -1 : clv_guard_bytes_first_unwritten(dtype, at(l, cell), elems);
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
    for (int k = 0; k < cells.n; k++)
        CLV_TRY(check_made(l, clv_buffer_range_at(&cells, k), b, err));
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

/* Counts a flight that reads or writes buffer b: one more, or one less. */
static void count_in_flight(const look *l, int b, int more)
{
    clv_buffer_range cells = clv_program_buffer_range(l->program, b);
    for (int k = 0; k < cells.n; k++)
        l->records[clv_buffer_range_at(&cells, k)].steps_in_flight += more;
}

clv_status clv_memory_check_after(const clv_loaded_program *loaded, int rank, int i, clv_error *err)
{
    look l = make_context(loaded, rank, i, "it");
    const clv_instruction *instruction = &l.program->instructions[i];
    CLV_TRY(check_workspace(&l, instruction, err));
    if (clv_out_of_place_needed(l.program, instruction))
        CLV_TRY(check_out_of_place(&l, instruction, err));
    for (int k = 0; k < *l.n_live; k++)
        if (!writes(&l, instruction, l.live[k]))
            CLV_TRY(check_cell(&l, l.live[k], l.program->buffers[l.live[k]].last == i, err));
    bool flies = instruction->n_overlapped > 0;
    if (flies) {
        count_in_flight(&l, instruction->in[0], 1);
        await(&l, instruction->out[0]);
    }
    for (int o = 0; !flies && o < instruction->n_out; o++)
        CLV_TRY(check_result(&l, instruction->out[o], err));
    drop_unread(&l, i);
    return sweep_when_due(&l, err);
}

clv_status clv_memory_check_completed(const clv_loaded_program *loaded, int rank, int step, int behind, clv_error *err)
{
    look l = make_context(loaded, rank, step, "it, or an op beside it");
    const clv_instruction *instruction = &l.program->instructions[step];
    CLV_TRY(check_operand(&l, instruction->in[0], err));
    CLV_TRY(check_result(&l, instruction->out[0], err));
    count_in_flight(&l, instruction->in[0], -1);
    count_in_flight(&l, instruction->out[0], -1);
    drop_unread(&l, behind);
    return CLV_OK;
}

clv_status clv_memory_check_end_run(const clv_loaded_program *loaded, int rank, clv_error *err)
{
    const int last = loaded->program->n_instructions - 1;
    bool swept = loaded->check->sweeps[rank - loaded->first_local_rank].from == last;
    look l = make_context(loaded, rank, swept ? -1 : last, swept ? "something outside of the run" : "it");
    CLV_TRY(sweep_all(&l, err));
    for (int k = *l.n_live - 1; k >= 0; k--)
        if (is_state(&l, l.live[k]))
            drop(&l, k);
    return CLV_OK;
}
