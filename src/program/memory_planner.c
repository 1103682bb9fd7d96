/* memory_planner.c - assigns offsets to buffers: lifetimes, in-place reuse, greedy-by-size packing.
 *
 * In: a program in its final order. Out: lifetimes, memory sharing and offsets of its buffers and workspaces, equal for
 * all ranks; the allocator uses exactly this plan. Offsets are found first-fit in order of decreasing size (Pisarchyk &
 * Lee 2020, arXiv:2001.03288, "greedy by size"), in time quadratic in the number of buffers; above a limit in order of
 * time, best-fit.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "program/program.h"

static int64_t exact_bytes(const clv_type *type, const clv_layout *layout)
{
    return clv_layout_max_elems(layout, type->shape) * (int64_t)clv_dtype_size(type->dtype);
}

int64_t clv_largest_shard_bytes(const clv_type *type, const clv_layout *layout)
{
    return clv_buffer_aligned_bytes(exact_bytes(type, layout));
}

/* Instruction i reads or writes the buffer. */
static void use(clv_buffer *buffer, const clv_program *program, int i)
{
    int ends = clv_program_completes_at(program, i);
    buffer->last = buffer->last > ends ? buffer->last : ends;
    if (ends > i)
        buffer->in_flight_until = buffer->in_flight_until > ends + 1 ? buffer->in_flight_until : ends + 1;
}

/* Passes leave buffers that no instruction has any more. */
static bool is_live(const clv_buffer *buffer)
{
    return buffer->first <= buffer->last || buffer->shares_with >= 0;
}

static void find_lifetimes(clv_program *program)
{
    for (int b = 0; b < program->n_buffers; b++) {
        clv_buffer *buffer = &program->buffers[b];
        bool lasting = buffer->kind != CLV_BUFFER_TEMP;
        buffer->first = lasting ? -1 : program->n_instructions;
        buffer->last = buffer->kind == CLV_BUFFER_STATE ? program->n_instructions : -1;
        buffer->bytes = clv_largest_shard_bytes(&buffer->type, &buffer->layout);
        buffer->in_flight_until = 0;
    }
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++)
            if (instruction->in[k] >= 0)
                use(&program->buffers[instruction->in[k]], program, i);
        for (int k = 0; k < instruction->n_out; k++) {
            clv_buffer *out = &program->buffers[instruction->out[k]];
            out->first = out->first < i ? out->first : i;
            use(out, program, i);
        }
    }
    for (int o = 0; o < program->n_outputs; o++)
        program->buffers[program->outputs[o].buffer].last = program->n_instructions;
    for (int b = 0; b < program->n_buffers; b++) { /* memory lives as long as any view of it */
        clv_buffer *root = &program->buffers[clv_program_owning_buffer(program, b)];
        root->first = program->buffers[b].first < root->first ? program->buffers[b].first : root->first;
        root->last = program->buffers[b].last > root->last ? program->buffers[b].last : root->last;
        root->in_flight_until = program->buffers[b].in_flight_until > root->in_flight_until
                                    ? program->buffers[b].in_flight_until
                                    : root->in_flight_until;
    }
    for (int b = 0; b < program->n_buffers; b++)
        if (!is_live(&program->buffers[b]))
            program->buffers[b].bytes = 0;
}

/* Whether two buffers, if both are split into chunks, have the same chunks. */
static bool may_share_chunks(const clv_program *program, const clv_buffer *had, const clv_buffer *takes)
{
    bool alike = had->n_chunks == takes->n_chunks;
    for (int k = 0; alike && k < takes->n_chunks; k++) {
        const clv_buffer *a = &program->buffers[had->first_chunk + k], *b = &program->buffers[takes->first_chunk + k];
        alike = clv_type_equal(&a->type, &b->type) && clv_layout_equal(&a->layout, &b->layout);
    }
    return alike || had->n_chunks == 0 || takes->n_chunks == 0;
}

/* Whether operand k of instruction i has no later use, and its memory fits result r. State is reused only by the result
 * that is assigned to it, which lowering has marked. */
static bool may_reuse_in_place(const clv_program *program, int i, int k, int r)
{
    const clv_instruction *instruction = &program->instructions[i];
    int from = instruction->in[k], to = instruction->out[r];
    if (from < 0 || program->buffers[to].shares_with >= 0 || program->buffers[to].kind != CLV_BUFFER_TEMP)
        return false;
    const clv_buffer *root = &program->buffers[clv_program_owning_buffer(program, from)];
    int64_t to_bytes = exact_bytes(&program->buffers[to].type, &program->buffers[to].layout);
    if (root->kind != CLV_BUFFER_TEMP || to_bytes > root->bytes || root->last > i || root->in_flight_until > i ||
        exact_bytes(&program->buffers[from].type, &program->buffers[from].layout) != to_bytes ||
        !may_share_chunks(program, root, &program->buffers[to]))
        return false;
    return clv_program_is_sole_operand(program, instruction, k);
}

static void reuse_in_place(clv_program *program)
{
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int r = 0; instruction->op && r < instruction->n_out; r++) {
            int k = instruction->op->def->in_place[r] - 1;
            if (k < 0 || k >= instruction->n_in || !may_reuse_in_place(program, i, k, r))
                continue;
            clv_buffer *out = &program->buffers[instruction->out[r]];
            clv_buffer *root = &program->buffers[clv_program_owning_buffer(program, instruction->in[k])];
            out->shares_with = (int)(root - program->buffers);
            root->last = out->last > root->last ? out->last : root->last;
            root->in_flight_until =
                out->in_flight_until > root->in_flight_until ? out->in_flight_until : root->in_flight_until;
        }
    }
}

/* A buffer, or an instruction's workspace. */
typedef struct piece {
    int64_t bytes, offset;
    int first, last;
    uint32_t stages; /* bits of the pipeline stages that have it */
    int order;       /* among equals */
    int64_t *result;
} piece;

static int by_falling_size(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Offsets and lifetime of a placed piece. */
typedef struct placed {
    int64_t offset, end;
    int first, last;
    uint32_t stages;
} placed;

/* The lowest offset at which the piece overlaps no other that is live at the same time. others: [n] by offset. */
static int64_t lowest_gap(const placed *others, int n, const piece *want)
{
    int64_t offset = 0;
    for (int i = 0; i < n; i++) {
        if (others[i].first > want->last || want->first > others[i].last || !(others[i].stages & want->stages))
            continue;
        if (others[i].offset - offset >= want->bytes)
            break;
        offset = others[i].end > offset ? others[i].end : offset;
    }
    return offset;
}

/* Keeps the n others in order of offset. */
static void insert_placed(placed *others, int n, const piece *p)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (others[middle].offset < p->offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(others + low + 1, others + low, (size_t)(n - low) * sizeof *others);
    others[low] = (placed){p->offset, p->offset + p->bytes, p->first, p->last, p->stages};
}

/* Places pieces in order of decreasing size, each into the lowest gap. */
static clv_status place_by_size(piece *pieces, int n, clv_error *err)
{
    placed *others = calloc((size_t)n + 1, sizeof *others);
    if (!others)
        return clv_fail_memory(err, "the memory plan", (size_t)n * sizeof *others);
    qsort(pieces, (size_t)n, sizeof *pieces, by_falling_size);
    for (int i = 0; i < n; i++) {
        pieces[i].offset = lowest_gap(others, i, &pieces[i]);
        insert_placed(others, i, &pieces[i]);
    }
    free(others);
    return CLV_OK;
}

/* ---- by time ---- */

typedef struct gap {
    int64_t offset, bytes;
} gap;

/* Free space below `end`, by offset; no two gaps are adjacent. */
typedef struct free_list {
    int n;
    gap *gap; /* [pieces + 1] */
    int64_t end;
} free_list;

static void insert_gap(free_list *list, int at, gap g)
{
    memmove(list->gap + at + 1, list->gap + at, (size_t)(list->n - at) * sizeof g);
    list->gap[at] = g;
    list->n++;
}

static void remove_gap(free_list *list, int at)
{
    list->n--;
    memmove(list->gap + at, list->gap + at + 1, (size_t)(list->n - at) * sizeof *list->gap);
}

/* Allocates from the smallest gap that is large enough, else at the end (and from an adjacent gap). */
static int64_t take(free_list *list, int64_t bytes)
{
    int best = -1;
    for (int i = 0; i < list->n; i++)
        if (list->gap[i].bytes >= bytes && (best < 0 || list->gap[i].bytes < list->gap[best].bytes))
            best = i;
    if (best < 0) {
        int last = list->n - 1;
        bool touches = last >= 0 && list->gap[last].offset + list->gap[last].bytes == list->end;
        int64_t offset = touches ? list->gap[last].offset : list->end;
        if (touches)
            remove_gap(list, last);
        list->end = offset + bytes;
        return offset;
    }
    int64_t offset = list->gap[best].offset;
    list->gap[best] = (gap){offset + bytes, list->gap[best].bytes - bytes};
    if (list->gap[best].bytes == 0)
        remove_gap(list, best);
    return offset;
}

static void give(free_list *list, int64_t offset, int64_t bytes)
{
    int low = 0, high = list->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list->gap[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    insert_gap(list, low, (gap){offset, bytes});
    if (low + 1 < list->n && offset + bytes == list->gap[low + 1].offset) {
        list->gap[low].bytes += list->gap[low + 1].bytes;
        remove_gap(list, low + 1);
    }
    if (low > 0 && list->gap[low - 1].offset + list->gap[low - 1].bytes == offset) {
        list->gap[low - 1].bytes += list->gap[low].bytes;
        remove_gap(list, low);
    }
}

static int by_first(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return by_falling_size(a, b);
}

static int by_last(const void *a, const void *b)
{
    const piece *x = *(const piece *const *)a, *y = *(const piece *const *)b;
    if (x->last != y->last)
        return x->last < y->last ? -1 : 1;
    return by_first(x, y);
}

static clv_status place_by_time(piece *pieces, int n, clv_error *err)
{
    free_list list = {.gap = calloc((size_t)n + 2, sizeof *list.gap)};
    const piece **ending = calloc((size_t)n + 1, sizeof *ending);
    if (!list.gap || !ending) {
        free(list.gap);
        free(ending);
        return clv_fail_memory(err, "the memory plan", (size_t)n * sizeof *list.gap);
    }
    qsort(pieces, (size_t)n, sizeof *pieces, by_first);
    for (int i = 0; i < n; i++)
        ending[i] = &pieces[i];
    qsort(ending, (size_t)n, sizeof *ending, by_last);
    for (int i = 0, ended = 0; i < n; i++) {
        for (; ended < n && ending[ended]->last < pieces[i].first; ended++)
            give(&list, ending[ended]->offset, ending[ended]->bytes);
        pieces[i].offset = take(&list, pieces[i].bytes);
    }
    free(list.gap);
    free(ending);
    return CLV_OK;
}

/* By time each stage is placed alone, above what several stages have. */
static clv_status place_stages_by_time(piece *pieces, int n, int stages, clv_error *err)
{
    piece *part = calloc((size_t)n + 1, sizeof *part);
    int64_t shared = 0;
    clv_status status = part ? CLV_OK : clv_fail_memory(err, "the memory plan", (size_t)n * sizeof *part);
    for (int s = -1; status == CLV_OK && s < stages; s++) {
        int count = 0;
        for (int i = 0; i < n; i++) {
            const bool several = (pieces[i].stages & (pieces[i].stages - 1)) != 0;
            if (s < 0 ? several : !several && (pieces[i].stages >> s & 1))
                part[count++] = pieces[i];
        }
        status = place_by_time(part, count, err);
        for (int k = 0; status == CLV_OK && k < count; k++) {
            const int64_t offset = part[k].offset + (s < 0 ? 0 : shared);
            *part[k].result = offset;
            pieces[part[k].order].offset = offset;
        }
        for (int k = 0; s < 0 && k < count; k++)
            shared = part[k].offset + part[k].bytes > shared ? part[k].offset + part[k].bytes : shared;
    }
    free(part);
    return status;
}

static bool grow(int64_t *total, int64_t bytes)
{
    bool fits = bytes <= CLV_MAX_RANK_BYTES - CLV_REGION_ALIGN - *total;
    *total += fits ? bytes : 0;
    return fits;
}

/* Limits the sum of all buffers and workspaces, so that no sum of some of them overflows. */
static clv_status check_total(const clv_program *program, clv_error *err)
{
    int64_t total = 0;
    bool fits = true;
    for (int b = 0; b < program->n_buffers; b++)
        fits = fits && (program->buffers[b].shares_with >= 0 || grow(&total, program->buffers[b].bytes));
    for (int i = 0; i < program->n_instructions; i++)
        fits = fits && grow(&total, program->instructions[i].workspace_bytes);
    return fits ? CLV_OK : clv_fail(err, CLV_ELIMIT, "the tensors of a program come to more than 2^62 bytes a rank");
}

static void add_piece(piece *pieces, int *n, int64_t bytes, int first, int last, uint32_t stages, int64_t *result)
{
    pieces[*n] = (piece){.bytes = bytes,
                         .first = first,
                         .last = last,
                         .stages = stages ? stages : UINT32_MAX,
                         .order = *n,
                         .result = result};
    ++*n;
}

static int collect_pieces(const clv_region_plan *plan, const clv_program *program, int64_t guard, piece *pieces)
{
    int n = 0;
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        if (buffer->kind != CLV_BUFFER_STATE && buffer->shares_with < 0 && is_live(buffer) && buffer->bytes + guard > 0)
            add_piece(pieces, &n, buffer->bytes + guard, buffer->first, buffer->last, buffer->layout.stages,
                      &plan->buffer[b]);
    }
    for (int i = 0; i < program->n_instructions; i++) {
        int64_t bytes = program->instructions[i].workspace_bytes;
        if (bytes > 0)
            add_piece(pieces, &n, bytes + guard, i, i, program->instructions[i].stages, &plan->workspace[i]);
    }
    return n;
}

static int64_t round_region(int64_t bytes)
{
    return (bytes + CLV_REGION_ALIGN - 1) / CLV_REGION_ALIGN * CLV_REGION_ALIGN;
}

static clv_status place_pieces(clv_region_plan *plan, const clv_program *program, int64_t guard, clv_error *err)
{
    enum { MANY = 4096 };
    int most = program->greedy_by_size_limit == 0 ? MANY : program->greedy_by_size_limit;
    size_t room = (size_t)program->n_buffers + (size_t)program->n_instructions + 1;
    piece *pieces = calloc(room, sizeof *pieces);
    if (!pieces)
        return clv_fail_memory(err, "the memory plan", room * sizeof *pieces);
    int n = collect_pieces(plan, program, guard, pieces);
    const int stages = clv_program_stage_count(program);
    clv_status status = n <= most     ? place_by_size(pieces, n, err)
                        : stages == 1 ? place_by_time(pieces, n, err)
                                      : place_stages_by_time(pieces, n, stages, err);
    plan->bytes = 0;
    for (int i = 0; i < n; i++) {
        *pieces[i].result = pieces[i].offset;
        int64_t end = pieces[i].offset + pieces[i].bytes;
        plan->bytes = end > plan->bytes ? end : plan->bytes;
    }
    free(pieces);
    plan->bytes = round_region(plan->bytes);
    return status;
}

int64_t clv_program_stage_region_bytes(const clv_program *program, int stage)
{
    int64_t end = 0;
    if (program->stage_axis == 0)
        return program->region_bytes;
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        if (buffer->kind != CLV_BUFFER_STATE && buffer->shares_with < 0 &&
            clv_stages_have(buffer->layout.stages, stage))
            end = buffer->offset + buffer->bytes > end ? buffer->offset + buffer->bytes : end;
    }
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        const int64_t workspace = instruction->workspace_offset + instruction->workspace_bytes;
        if (instruction->workspace_bytes > 0 && clv_stages_have(instruction->stages, stage))
            end = workspace > end ? workspace : end;
    }
    return round_region(end);
}

void clv_region_plan_free(clv_region_plan *plan)
{
    free(plan->buffer);
    free(plan->workspace);
    *plan = (clv_region_plan){0};
}

clv_status clv_program_plan_region(clv_region_plan *out, const clv_program *program, int64_t guard, clv_error *err)
{
    clv_region_plan plan = {.buffer = calloc((size_t)program->n_buffers + 1, sizeof *plan.buffer),
                            .workspace = calloc((size_t)program->n_instructions + 1, sizeof *plan.workspace)};
    clv_status status = plan.buffer && plan.workspace
                            ? place_pieces(&plan, program, guard, err)
                            : clv_fail_memory(err, "the memory plan", (size_t)program->n_buffers * sizeof *plan.buffer);
    for (int b = 0; status == CLV_OK && b < program->n_buffers; b++)
        plan.buffer[b] = plan.buffer[clv_program_owning_buffer(program, b)];
    if (status != CLV_OK) {
        clv_region_plan_free(&plan);
        return status;
    }
    *out = plan;
    return CLV_OK;
}

clv_status clv_program_plan_memory(clv_program *program, clv_error *err)
{
    clv_region_plan plan;
    find_lifetimes(program);
    reuse_in_place(program);
    for (int b = 0; b < program->n_buffers; b++) /* a chunk lives as long as the whole */
        if (program->buffers[b].is_chunk)
            program->buffers[b].last = program->buffers[clv_program_owning_buffer(program, b)].last;
    for (int i = 0; i < program->n_instructions; i++)
        program->instructions[i].workspace_bytes = clv_buffer_aligned_bytes(program->instructions[i].workspace_bytes);
    CLV_TRY(check_total(program, err));
    CLV_TRY(clv_program_plan_region(&plan, program, 0, err));
    program->region_bytes = plan.bytes;
    for (int b = 0; b < program->n_buffers; b++)
        program->buffers[b].offset = plan.buffer[b];
    for (int i = 0; i < program->n_instructions; i++)
        program->instructions[i].workspace_offset = plan.workspace[i];
    clv_region_plan_free(&plan);
    return CLV_OK;
}
