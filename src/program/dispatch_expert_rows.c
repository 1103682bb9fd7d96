/* dispatch_expert_rows.c - sends rows of a mixture to the ranks of their experts alone, where that is faster than
 * gathering all of them.
 *
 * In: rows [..., M] that an op gathers over axes of which some split its experts, and results that it reduce-scatters
 * over them. Out: the gathers are `dispatch_rows` and the sums `combine_rows`, all-to-alls whose sizes follow from the
 * choices of experts, which are gathered before; the op gets packed rows. A row goes once to each rank with experts of
 * it (as by DeepEP), and what comes back is already summed there. Nothing is dropped and no order is lost: both ends go
 * through the same choices in the order of rows, and a row's sum is in the order of ranks.
 *
 * Room: without a factor, for all rows that might come, as many as the gather has; with one, for factor * K rows for
 * each row of a rank and of those with the same experts, K the experts that a row chooses (Megatron's
 * --moe-expert-rank-capacity-factor). More than that is an error of the run (runtime/session/expert_rows.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "program/program.h"

enum { MOST_STEPS = 4 };

/* What is known of each buffer and op. */
typedef struct dispatcher {
    clv_program *program;
    const clv_cost_model *cost;
    const clv_compile_options *options;
    clv_buffer_uses uses;
    bool *converts;      /* [n_instructions] ops whose rows are dispatched */
    int *dispatch_after; /* [n_instructions] of a new dispatch: the instruction that it comes after; -1: it stays */
    bool *drops;         /* [n_instructions] steps that are left out */
    int n_buffers;       /* before the pass */
} dispatcher;

static const clv_expert_rows *rows_of(const dispatcher *d, int i)
{
    const clv_op *op = d->program->instructions[i].op;
    return op ? clv_op_traits_of(op)->expert_rows : NULL;
}

/* ---- which can be ---- */

/* Whether an axis is part of one of these. */
static bool is_within(const clv_subaxis *axes, int n, clv_subaxis part)
{
    bool within = false;
    for (int a = 0; a < n; a++)
        within = within || clv_subaxis_contains(axes[a], part);
    return within;
}

static int64_t ranks_over(const clv_subaxis *axes, int n)
{
    int64_t ranks = 1;
    for (int a = 0; a < n; a++)
        ranks *= axes[a].size;
    return ranks;
}

/* Blocks of rows [..., M]. */
static int64_t row_blocks(const clv_layout *layout)
{
    int64_t blocks = 1;
    for (int d = 0; d + 1 < layout->rank; d++)
        blocks *= clv_layout_block_count(layout, d);
    return blocks;
}

/* The axes that split the experts. */
static int expert_axes(const clv_subaxis **out, const dispatcher *d, int i)
{
    const clv_instruction *op = &d->program->instructions[i];
    return clv_layout_axes(out, &d->program->buffers[op->in[rows_of(d, i)->experts]].layout, 0);
}

/* One or several steps, as between hosts, that gather rows for an op, or that sum and scatter its results. */
typedef struct chain {
    int near, far; /* the step beside the op, and the last one away from it; near -1: there is none */
    int n;
    int step[MOST_STEPS]; /* from near to far */
    int n_axes;
    clv_subaxis axes[CLV_MAX_SUBAXES];
} chain;

static int by_axis(const void *a, const void *b)
{
    const clv_subaxis *x = a, *y = b;
    return x->axis != y->axis ? x->axis - y->axis : (x->pre > y->pre) - (x->pre < y->pre);
}

/* Adds step i; false: it is none of a chain, or there is no room. */
static bool add_step(chain *c, const dispatcher *d, int i, bool gathers)
{
    if (i < 0 || d->program->instructions[i].op || c->n == MOST_STEPS)
        return false;
    const clv_reshard_step *step = d->program->instructions[i].step;
    const bool fits = gathers ? step->kind == CLV_STEP_ALL_GATHER || step->kind == CLV_STEP_EXCHANGE
                              : step->kind == CLV_STEP_REDUCE_SCATTER;
    if (!fits || c->n_axes + step->n_axes > CLV_MAX_SUBAXES)
        return false;
    memcpy(c->axes + c->n_axes, step->axes, (size_t)step->n_axes * sizeof *step->axes);
    c->n_axes += step->n_axes;
    qsort(c->axes, (size_t)c->n_axes, sizeof *c->axes, by_axis);
    c->n_axes = clv_subaxes_normalize(c->axes, c->n_axes);
    c->near = c->n == 0 ? i : c->near;
    c->far = c->step[c->n++] = i;
    return true;
}

/* Whether the steps go over the axes of the experts of op, between rows that all ranks of a group have and rows of
 * which each has its own. */
static bool is_over_experts(const chain *c, const dispatcher *d, bool gathers, int op)
{
    const clv_subaxis *axes;
    const int n = expert_axes(&axes, d, op);
    const clv_reshard_step *near = d->program->instructions[c->near].step, *far = d->program->instructions[c->far].step;
    const clv_layout *apart = gathers ? &far->from : &far->to, *together = gathers ? &near->to : &near->from;
    bool fits = apart->rank > 1 && row_blocks(apart) == row_blocks(together) * ranks_over(c->axes, c->n_axes);
    for (int a = 0; a < n; a++)
        fits = fits && is_within(c->axes, c->n_axes, axes[a]);
    return fits;
}

/* The steps that make operand k of op i; near -1: none that dispatch could replace. */
static chain steps_into(const dispatcher *d, int i, int k)
{
    chain c = {.near = -1};
    int step = d->uses.writer[d->program->instructions[i].in[k]];
    while (add_step(&c, d, step, true)) {
        if (is_over_experts(&c, d, true, i))
            return c;
        step = d->uses.writer[d->program->instructions[step].in[0]];
    }
    return (chain){.near = -1};
}

/* The steps that read result k of op i. */
static chain steps_from(const dispatcher *d, int i, int k)
{
    chain c = {.near = -1};
    int b = d->program->instructions[i].out[k];
    while (!d->uses.fixed[b] && d->uses.readers[b] == 1 && add_step(&c, d, d->uses.reader[b], false)) {
        if (is_over_experts(&c, d, false, i))
            return c;
        b = d->program->instructions[c.far].out[0];
    }
    return (chain){.near = -1};
}

/* Whether all that read buffer b are ops whose rows are dispatched by the same choices. */
static bool all_readers_convert(const dispatcher *d, int b, int ids)
{
    for (int i = d->uses.reader[b], left = d->uses.readers[b]; left > 0; i++) {
        const clv_instruction *instruction = &d->program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++) {
            if (instruction->in[k] != b)
                continue;
            if (!d->converts[i] || !(rows_of(d, i)->in >> k & 1) || instruction->in[rows_of(d, i)->ids] != ids)
                return false;
            left--;
        }
    }
    return true;
}

static bool can_convert(const dispatcher *d, int i, bool readers)
{
    const clv_expert_rows *rows = rows_of(d, i);
    const clv_instruction *op = &d->program->instructions[i];
    const clv_subaxis *axes;
    bool can = expert_axes(&axes, d, i) > 0 && d->program->buffers[op->in[rows->ids]].type.rank > 1;
    for (int k = 0; can && k < op->n_in; k++)
        if (rows->in >> k & 1)
            can = !d->uses.fixed[op->in[k]] && steps_into(d, i, k).near >= 0 &&
                  (!readers || all_readers_convert(d, op->in[k], op->in[rows->ids]));
    for (int k = 0; can && k < op->n_out; k++)
        if (rows->out >> k & 1)
            can = steps_from(d, i, k).near >= 0;
    return can;
}

/* ---- which should be ---- */

/* How many rows a rank has, at most. */
static int64_t most_rows(const clv_type *type, const clv_layout *layout)
{
    const int64_t width = type->shape[type->rank - 1];
    return width > 0 ? clv_layout_max_elems(layout, type->shape) / width : 0;
}

/* The chance that a row chooses one of `here` of E experts, if its K choices are even: 1 - C(E - here, K) / C(E, K). */
static double chance(int64_t experts, int64_t here, int64_t top_k)
{
    double none = 1;
    for (int64_t j = 0; j < top_k; j++)
        none *= fmax(0, (double)(experts - here - j) / (double)(experts - j));
    return 1 - none;
}

static double chance_of(const dispatcher *d, int i)
{
    const clv_instruction *op = &d->program->instructions[i];
    const clv_buffer *experts = &d->program->buffers[op->in[rows_of(d, i)->experts]],
                     *ids = &d->program->buffers[op->in[rows_of(d, i)->ids]];
    return chance(experts->type.shape[0], clv_largest_shard_type(&experts->type, &experts->layout).shape[0],
                  ids->type.shape[ids->type.rank - 1]);
}

/* Bytes that a rank receives at most, if all rows move. */
static double bytes_of_all(const dispatcher *d, const chain *c, clv_step_kind kind)
{
    const clv_instruction *far = &d->program->instructions[c->far], *near = &d->program->instructions[c->near];
    const clv_buffer *own = &d->program->buffers[kind == CLV_STEP_DISPATCH ? far->in[0] : far->out[0]];
    const double size = (double)clv_dtype_size(own->type.dtype);
    if (kind == CLV_STEP_DISPATCH)
        return size * (double)clv_layout_max_received_elems(&near->step->to, &far->step->from, &d->program->mesh,
                                                            own->type.shape);
    return size * (double)clv_layout_max_elems(&own->layout, own->type.shape) *
           (double)(ranks_over(c->axes, c->n_axes) - 1);
}

/* What the steps would gain. Rows are copied into messages, or out of them. */
static double gain(const dispatcher *d, chain c, clv_step_kind kind, double part)
{
    const clv_dtype dtype = d->program->buffers[d->program->instructions[c.near].in[0]].type.dtype;
    const double bytes = bytes_of_all(d, &c, kind) * part;
    double now = 0;
    for (int k = 0; k < c.n; k++) {
        const clv_reshard_step *step = d->program->instructions[c.step[k]].step;
        now += clv_cost_step(d->cost, step->kind, dtype, step->bytes,
                             clv_cost_route(d->cost, step->kind, step->axes, step->n_axes))
                   .seconds;
    }
    return now - clv_cost_copy_seconds(d->cost, bytes) -
           clv_cost_step(d->cost, kind, dtype, bytes, clv_cost_route(d->cost, kind, c.axes, c.n_axes)).seconds;
}

static bool should_convert(const dispatcher *d, int i)
{
    const clv_expert_rows *rows = rows_of(d, i);
    const clv_instruction *op = &d->program->instructions[i];
    const double part = chance_of(d, i);
    double gained = 0;
    for (int k = 0; k < op->n_in; k++)
        if (rows->in >> k & 1)
            gained += gain(d, steps_into(d, i, k), CLV_STEP_DISPATCH, part);
    for (int k = 0; k < op->n_out; k++)
        if (rows->out >> k & 1)
            gained += gain(d, steps_from(d, i, k), CLV_STEP_COMBINE, part);
    return d->options->expert_rank_capacity_factor > 0 || (d->options->by_bytes ? part < 1 : gained > 0);
}

/* ---- conversion ---- */

/* Rows that a rank has room for. sharing: ranks with its experts. */
static int64_t room_for(const dispatcher *d, const clv_type *type, const clv_layout *apart, const clv_layout *together,
                        int64_t top_k, int64_t sharing)
{
    const int64_t all = most_rows(type, together);
    const double factor = d->options->expert_rank_capacity_factor;
    const double room = ceil(factor * (double)(top_k * sharing) * (double)most_rows(type, apart));
    const int64_t rows = factor > 0 && room < (double)all ? (int64_t)room : all;
    return rows > 0 ? rows : 1;
}

/* Packed rows: a rank has [1, room, M], different ones wherever rows or experts are split. */
static clv_status pack_buffer(const dispatcher *d, clv_buffer *buffer, const clv_subaxis *experts, int n_experts,
                              int64_t room, clv_error *err)
{
    const clv_mesh *mesh = &d->program->mesh;
    const clv_layout was = buffer->layout;
    const int width = was.rank - 1;
    clv_layout layout = clv_layout_replicated(3);
    const clv_subaxis *axes;
    for (int dim = 0; dim < width; dim++)
        for (int a = 0, n = clv_layout_axes(&axes, &was, dim); a < n; a++)
            CLV_TRY(clv_layout_shard_dim(&layout, mesh, 0, axes[a], err));
    for (int a = 0; a < n_experts; a++)
        CLV_TRY(clv_layout_shard_dim(&layout, mesh, 0, experts[a], err));
    for (int a = 0, n = clv_layout_axes(&axes, &was, was.rank); a < n; a++)
        if (!is_within(experts, n_experts, axes[a]))
            CLV_TRY(clv_layout_add_partial(&layout, mesh, was.reduction, axes[a], err));
    layout.stage_axis = was.stage_axis;
    layout.stages = was.stages;
    buffer->type = (clv_type){.dtype = buffer->type.dtype,
                              .rank = 3,
                              .shape = {clv_layout_block_count(&layout, 0), room, buffer->type.shape[width]}};
    buffer->layout = layout;
    return CLV_OK;
}

/* Whether the rows of a rank are not neighbours among those of its group: more than the first dimension is gathered. */
static bool are_scattered(const clv_layout *apart, const clv_layout *together)
{
    bool scattered = false;
    for (int dim = 1; dim + 1 < apart->rank; dim++)
        scattered = scattered || clv_layout_block_count(apart, dim) != clv_layout_block_count(together, dim);
    return scattered;
}

/* Room for messages: in a dispatch for what a rank sends, in a combine for what it receives; and the other way unless
 * that is in the packed rows. others: ranks that a row goes to. */
static clv_status add_messages(int *out, clv_program *program, const clv_buffer *apart, int64_t others,
                               int64_t packed_rows, clv_error *err)
{
    const int64_t size = (int64_t)clv_dtype_size(apart->type.dtype), width = apart->type.shape[apart->type.rank - 1];
    const int64_t bytes =
        size * (clv_layout_max_elems(&apart->layout, apart->type.shape) * others + packed_rows * width);
    clv_buffer buffer = {.kind = CLV_BUFFER_TEMP,
                         .type = {.dtype = CLV_U8, .rank = 1, .shape = {bytes > 0 ? bytes : 1}},
                         .layout = clv_layout_replicated(1),
                         .is_messages = true,
                         .shares_with = -1};
    buffer.layout.stage_axis = apart->layout.stage_axis;
    buffer.layout.stages = apart->layout.stages;
    return clv_program_add_buffer(out, program, &buffer, err);
}

/* Makes one step of a chain, and leaves out the others unless something else reads what they make. */
static clv_status convert_steps(dispatcher *d, chain c, clv_step_kind kind, int op, clv_error *err)
{
    clv_program *program = d->program;
    const bool dispatches = kind == CLV_STEP_DISPATCH;
    if (c.near < 0) /* made already, of rows that another op reads, too */
        return CLV_OK;
    const clv_instruction *user = &program->instructions[op], *far = &program->instructions[c.far],
                          *near = &program->instructions[c.near];
    const int stays = dispatches ? c.near : c.far, ids = user->in[rows_of(d, op)->ids];
    clv_instruction made = program->instructions[stays];
    made.in[0] = dispatches ? far->in[0] : near->in[0];
    const int packed = dispatches ? made.out[0] : made.in[0], apart = dispatches ? made.in[0] : made.out[0];
    clv_reshard_step *step = clv_arena_copy(program->arena, made.step, sizeof *step);
    if (!step)
        return clv_fail_memory(err, "a step", sizeof *step);
    const clv_buffer own = program->buffers[apart]; /* buffers move as they grow */
    const clv_layout together = clv_layout_without_partial(&program->buffers[packed].layout);
    const int64_t top_k = program->buffers[ids].type.shape[program->buffers[ids].type.rank - 1];
    const clv_subaxis *axes;
    const int n_axes = expert_axes(&axes, d, op);
    const int64_t ranks = ranks_over(c.axes, c.n_axes), sharing = ranks / ranks_over(axes, n_axes);
    const int64_t room = room_for(d, &own.type, &own.layout, &together, top_k, sharing);
    const int64_t others = ranks - 1 < top_k * sharing ? ranks - 1 : top_k * sharing;
    *step = (clv_reshard_step){.kind = kind, .n_axes = c.n_axes, .bytes = bytes_of_all(d, &c, kind) * chance_of(d, op)};
    memcpy(step->axes, c.axes, sizeof step->axes);
    for (int k = 0; k < c.n; k++)
        d->drops[c.step[k]] = c.step[k] != stays;
    CLV_TRY(pack_buffer(d, &program->buffers[packed], axes, n_axes, room, err));
    step->from = program->buffers[made.in[0]].layout;
    step->to = program->buffers[made.out[0]].layout;
    CLV_TRY(clv_program_find_or_add_group(&made.group, program, step, err));
    made.step = step;
    made.name = user->name;
    made.experts = 1 + user->in[rows_of(d, op)->experts];
    made.in[made.n_in++] = ids;
    made.n_out++;
    d->dispatch_after[stays] = dispatches && d->uses.writer[ids] > stays ? d->uses.writer[ids] : -1;
    CLV_TRY(add_messages(&made.out[1], program, &own, others, are_scattered(&own.layout, &together) ? room : 0, err));
    program->instructions[stays] = made;
    return CLV_OK;
}

static int64_t workspace_of(const clv_program *program, const clv_instruction *instruction)
{
    clv_view in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int k = 0; k < instruction->n_in; k++)
        in[k] = clv_largest_shard_view(&program->buffers[instruction->in[k]].type,
                                       &program->buffers[instruction->in[k]].layout);
    for (int o = 0; o < instruction->n_out; o++)
        out[o] = clv_largest_shard_view(&program->buffers[instruction->out[o]].type,
                                        &program->buffers[instruction->out[o]].layout);
    return (int64_t)instruction->op->def->workspace(instruction->op, in, out);
}

static clv_status pack_op(clv_program *program, clv_instruction *instruction, const clv_expert_rows *rows,
                          clv_error *err)
{
    clv_op *op = clv_arena_copy(program->arena, instruction->op, sizeof *op);
    void *attrs = clv_arena_copy(program->arena, instruction->op->attrs, instruction->op->def->attrs_size);
    if (!op || !attrs)
        return clv_fail_memory(err, "an op", sizeof *op);
    rows->pack(attrs);
    op->attrs = attrs;
    instruction->op = op;
    instruction->workspace_bytes = workspace_of(program, instruction);
    return CLV_OK;
}

static clv_status convert(dispatcher *d, int i, clv_error *err)
{
    clv_program *program = d->program;
    const clv_expert_rows *rows = rows_of(d, i);
    for (int k = 0; k < program->instructions[i].n_in; k++)
        if (rows->in >> k & 1)
            CLV_TRY(convert_steps(d, steps_into(d, i, k), CLV_STEP_DISPATCH, i, err));
    for (int k = 0; k < program->instructions[i].n_out; k++)
        if (rows->out >> k & 1)
            CLV_TRY(convert_steps(d, steps_from(d, i, k), CLV_STEP_COMBINE, i, err));
    return pack_op(program, &program->instructions[i], rows, err);
}

/* A step whose result something reads is kept. */
static void keep_what_is_read(const dispatcher *d)
{
    for (int i = 0; i < d->program->n_instructions; i++)
        for (int k = 0; k < d->program->instructions[i].n_in; k++) {
            const int b = d->program->instructions[i].in[k], made = b < 0 || b >= d->n_buffers ? -1 : d->uses.writer[b];
            if (made >= 0 && !d->drops[i])
                d->drops[made] = false;
        }
}

/* Puts dispatches behind the choices that they need, and what is left out at the end, which is cut off. */
static clv_status put_behind_choices(const dispatcher *d, clv_arena *scratch, clv_error *err)
{
    clv_program *program = d->program;
    const size_t n = (size_t)program->n_instructions;
    int *order = clv_arena_alloc(scratch, n, sizeof *order), *completes_at = clv_arena_alloc(scratch, n, sizeof *order);
    int *first = clv_arena_alloc(scratch, n, sizeof *order), *next = clv_arena_alloc(scratch, n, sizeof *order);
    int at = 0, kept;
    if (!order || !completes_at || !first || !next)
        return clv_fail_memory(err, "an order of instructions", n * sizeof *order);
    memset(first, -1, n * sizeof *first);
    for (int k = program->n_instructions - 1; k >= 0; k--) /* lists of what comes after an instruction */
        if (d->dispatch_after[k] >= 0) {
            next[k] = first[d->dispatch_after[k]];
            first[d->dispatch_after[k]] = k;
        }
    for (int i = 0; i < program->n_instructions; i++) {
        if (d->dispatch_after[i] < 0 && !d->drops[i])
            order[at++] = i;
        for (int k = first[i]; k >= 0; k = next[k])
            order[at++] = k;
    }
    kept = at;
    for (int i = 0; i < program->n_instructions; i++)
        if (d->drops[i])
            order[at++] = i;
    for (int k = 0; k < at; k++)
        completes_at[order[k]] = k;
    CLV_TRY(clv_program_reorder(program, order, completes_at, scratch, err));
    program->n_steps -= program->n_instructions - kept;
    program->n_instructions = kept;
    while (program->n_decisions > 0 && program->decisions[program->n_decisions - 1].instruction >= kept)
        program->n_decisions--;
    return CLV_OK;
}

/* What clv_program_decision says of the new steps. */
static void correct_decisions(const dispatcher *d)
{
    const clv_program *program = d->program;
    for (int r = 0; r < program->n_decisions; r++) {
        clv_partition_decision *decision = &program->decisions[r];
        const clv_instruction *made = &program->instructions[decision->instruction];
        if (made->experts == 0)
            continue;
        decision->op = made->name;
        decision->kind = clv_step_name(made->step->kind);
        decision->bytes = made->step->bytes;
        decision->seconds = clv_instruction_seconds(program, d->cost, decision->instruction);
    }
}

/* ---- the pass ---- */

/* An op is left as it is if one that shares its rows must be. */
static bool choose(const dispatcher *d)
{
    bool any = false, changed = true;
    for (int i = 0; i < d->program->n_instructions; i++)
        d->converts[i] = rows_of(d, i) && can_convert(d, i, false) && should_convert(d, i);
    while (changed) {
        any = changed = false;
        for (int i = 0; i < d->program->n_instructions; i++)
            if (d->converts[i]) {
                d->converts[i] = can_convert(d, i, true);
                changed = changed || !d->converts[i];
                any = any || d->converts[i];
            }
    }
    return any;
}

static bool has_expert_rows(const dispatcher *d)
{
    bool any = false;
    for (int i = 0; i < d->program->n_instructions; i++)
        any = any || rows_of(d, i);
    return any;
}

static clv_status run(dispatcher *d, clv_arena *scratch, clv_error *err)
{
    const size_t instructions = (size_t)d->program->n_instructions + 1;
    d->converts = clv_arena_alloc(scratch, instructions, sizeof *d->converts);
    d->dispatch_after = clv_arena_alloc(scratch, instructions, sizeof *d->dispatch_after);
    d->drops = clv_arena_alloc(scratch, instructions, sizeof *d->drops);
    d->n_buffers = d->program->n_buffers;
    if (!d->converts || !d->dispatch_after || !d->drops)
        return clv_fail_memory(err, "rows of experts", instructions * sizeof *d->converts);
    memset(d->dispatch_after, -1, instructions * sizeof *d->dispatch_after);
    CLV_TRY(clv_program_find_buffer_uses(&d->uses, d->program, scratch, err));
    d->program->sends_rows = choose(d);
    if (!d->program->sends_rows)
        return CLV_OK;
    for (int i = 0; i < d->program->n_instructions; i++)
        if (d->converts[i])
            CLV_TRY(convert(d, i, err));
    keep_what_is_read(d);
    CLV_TRY(put_behind_choices(d, scratch, err));
    correct_decisions(d);
    return CLV_OK;
}

clv_status clv_program_dispatch_expert_rows(clv_program *program, const clv_compile_options *options,
                                            const clv_cost_model *cost, clv_error *err)
{
    dispatcher d = {.program = program, .cost = cost, .options = options};
    program->has_experts = has_expert_rows(&d);
    if (!program->has_experts)
        return CLV_OK;
    clv_arena *scratch = clv_arena_new();
    clv_status status = scratch ? run(&d, scratch, err) : clv_fail_memory(err, "rows of experts", sizeof d);
    clv_arena_free(scratch);
    return status;
}

clv_status clv_program_check_expert_capacity(const clv_program *program, double factor, clv_error *err)
{
    if (factor > 0 && !program->has_experts)
        return clv_fail(err, CLV_EINVAL,
                        "expert_rank_capacity_factor is %g, and no rows are sent to experts: the model has none, or "
                        "places for their rows (moe_expert_capacity_factor); valid: 0",
                        factor);
    if (factor > 0 && !program->sends_rows)
        return clv_fail(err, CLV_EINVAL,
                        "expert_rank_capacity_factor is %g, and all rows are gathered, however many experts need; "
                        "valid: 0, or experts split over an axis (expert); with sequence parallelism where another "
                        "axis (model) splits them, too; without comm_dtype; of more rows than a few",
                        factor);
    return CLV_OK;
}
