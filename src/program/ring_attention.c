/* ring_attention.c - passes blocks of keys and values around a ring of ranks, where gathering them for attention costs
 * more.
 *
 * In: attention whose queries are split by positions, with the gather of its keys and values; and its gradient, with
 * the reduce-scatter of theirs. Out, over P ranks:
 *
 *   forward   for t < P: a `permute` brings the block of the rank t + 1 places on, and a `ring_attention` adds the
 *             attention to the block that is there; a cast of the sum to the tensor's dtype
 *   backward  likewise a `ring_attention_gradient`; the sum of a block's gradients goes around behind the block, and
 *             after P places it is where the block belongs
 *
 * So a rank holds two blocks instead of all, and keeps its own for the backward pass. Each permute reads what the op
 * beside it reads: the scheduler lets both run at once. Bytes are those of the gather; gradients go around in f32.
 * Not in a ring: windows (most blocks are out of sight), causal attention to positions in order (the first rank would
 * wait for the last), and gathers or reduce-scatters in several steps, as between hosts.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "ops/attention.h"
#include "program/program.h"

typedef struct ring_pass {
    clv_program *program;
    const clv_cost_model *cost;
    bool overlaps;
    clv_arena *scratch;
    clv_buffer_uses uses;
    bool *converts;                             /* [n_instructions] attention and its gradients */
    bool *drops;                                /* [n_instructions] gathers and reduce-scatters */
    const clv_instruction *was;                 /* [n_was] the program before */
    const clv_partition_decision **decision_of; /* [n_was] what is said of it; NULL: nothing */
    int n_was;
} ring_pass;

static bool is_forward(const clv_instruction *i)
{
    return i->op && i->op->def == &clv_op_attention;
}

static bool is_gradient(const clv_instruction *i)
{
    return i->op && i->op->def == &clv_op_attention_gradient;
}

/* Operands of the ops that rings replace (ops/attention.c). */
enum { Q, KV, MASK, OFFSET, STEP };
enum { D_OUT, GQ, GKV, GOUT, GLSE, GMASK, GOFFSET, GSTEP };

static int operand(const clv_instruction *i, int k)
{
    return k < i->n_in ? i->in[k] : -1;
}

/* ---- which can be ---- */

/* Whether a step goes over the axes that split dimension 1 of the layout, and changes nothing else. */
static bool is_along_rows(const clv_reshard_step *step, const clv_layout *split, const clv_layout *whole,
                          const clv_mesh *mesh)
{
    const clv_subaxis *axes;
    clv_layout same = *split;
    const int n = clv_layout_axes(&axes, split, 1);
    return n > 0 && n == step->n_axes && memcmp(axes, step->axes, (size_t)n * sizeof *axes) == 0 &&
           clv_layout_set_dim(&same, mesh, 1, NULL, 0, 1, NULL) == CLV_OK && clv_layout_equal(&same, whole);
}

/* The gather of keys and values; -1: there is none that a ring could replace. */
static int gather_of(const ring_pass *r, const clv_instruction *i)
{
    const clv_program *p = r->program;
    const int kv = operand(i, is_forward(i) ? KV : GKV), q = operand(i, is_forward(i) ? Q : GQ);
    const int made = kv < 0 || r->uses.fixed[kv] ? -1 : r->uses.writer[kv];
    const clv_subaxis *axes, *of_q;
    if (made < 0 || p->instructions[made].op || p->instructions[made].step->kind != CLV_STEP_ALL_GATHER)
        return -1;
    const clv_reshard_step *step = p->instructions[made].step;
    const int n = clv_layout_axes(&axes, &step->from, 1);
    const bool alike =
        clv_layout_axes(&of_q, &p->buffers[q].layout, 1) == n && memcmp(axes, of_q, (size_t)n * sizeof *axes) == 0;
    return alike && is_along_rows(step, &step->from, &step->to, &p->mesh) ? made : -1;
}

/* The reduce-scatter, over the axes of the gather, of the gradient of keys and values; -1: none. */
static int scatter_of(const ring_pass *r, const clv_instruction *i)
{
    const clv_program *p = r->program;
    const int dkv = i->out[1], by = r->uses.fixed[dkv] || r->uses.readers[dkv] != 1 ? -1 : r->uses.reader[dkv],
              gather = gather_of(r, i);
    if (by < 0 || gather < 0 || p->instructions[by].op || p->instructions[by].step->kind != CLV_STEP_REDUCE_SCATTER ||
        p->instructions[by].stages != i->stages)
        return -1;
    const clv_reshard_step *step = p->instructions[by].step, *other = p->instructions[gather].step;
    clv_layout whole = step->to;
    if (step->n_axes != other->n_axes ||
        memcmp(step->axes, other->axes, (size_t)step->n_axes * sizeof *step->axes) != 0)
        return -1;
    for (int a = 0; a < step->n_axes; a++)
        if (clv_layout_set_dim(&whole, &p->mesh, 1, NULL, 0, 1, NULL) != CLV_OK ||
            clv_layout_add_partial(&whole, &p->mesh, CLV_REDUCTION_SUM, step->axes[a], NULL) != CLV_OK)
            return -1;
    const clv_layout from_rows = clv_layout_without_partial(&step->from),
                     to_rows = clv_layout_without_partial(&step->to);
    return clv_layout_equal(&whole, &step->from) && is_along_rows(step, &to_rows, &from_rows, &p->mesh) ? by : -1;
}

static bool can_convert(const ring_pass *r, int i)
{
    const clv_instruction *op = &r->program->instructions[i];
    if (!is_forward(op) && !is_gradient(op))
        return false;
    const clv_attention_attrs *attrs = op->op->attrs;
    return (!attrs->causal || attrs->zigzag) && attrs->window == 0 &&
           operand(op, is_forward(op) ? OFFSET : GOFFSET) < 0 && gather_of(r, op) >= 0 &&
           (is_forward(op) || scatter_of(r, op) >= 0);
}

/* Whether all that read a buffer convert. */
static bool readers_convert(const ring_pass *r, int b)
{
    for (int i = r->uses.reader[b], left = r->uses.readers[b]; left > 0; i++)
        for (int k = 0; k < r->program->instructions[i].n_in; k++)
            if (r->program->instructions[i].in[k] == b) {
                left--;
                if (!r->converts[i])
                    return false;
            }
    return true;
}

/* Gathers must have no other reader, and forward and backward pass the same form of lse. */
static bool still_converts(const ring_pass *r, int i)
{
    const clv_instruction *op = &r->program->instructions[i];
    const int lse = is_forward(op) ? op->out[1] : op->in[GLSE];
    return !r->uses.fixed[lse] && r->uses.writer[lse] >= 0 && r->converts[r->uses.writer[lse]] &&
           readers_convert(r, lse) && readers_convert(r, operand(op, is_forward(op) ? KV : GKV));
}

/* ---- which should be ---- */

static int blocks_of(const ring_pass *r, const clv_instruction *i)
{
    return (int)clv_layout_block_count(&r->program->instructions[gather_of(r, i)].step->from, 1);
}

/* Seconds of a permute of a block in a dtype. */
static double permute_seconds(const ring_pass *r, const clv_reshard_step *gather, const clv_type *type, clv_dtype dtype)
{
    const double bytes = (double)clv_layout_max_elems(&gather->from, type->shape) * (double)clv_dtype_size(dtype);
    return clv_cost_step(r->cost, CLV_STEP_PERMUTE, dtype, bytes,
                         clv_cost_route(r->cost, CLV_STEP_PERMUTE, gather->axes, gather->n_axes))
        .seconds;
}

static double now_seconds(const ring_pass *r, int i, bool *counted)
{
    const clv_instruction *op = &r->program->instructions[i];
    const int gather = gather_of(r, op);
    double seconds = clv_instruction_seconds(r->program, r->cost, i);
    if (!counted[gather])
        seconds += clv_instruction_seconds(r->program, r->cost, gather);
    counted[gather] = true;
    return is_gradient(op) ? seconds + clv_instruction_seconds(r->program, r->cost, scatter_of(r, op)) : seconds;
}

static double ring_seconds(const ring_pass *r, int i)
{
    const clv_program *p = r->program;
    const clv_instruction *op = &p->instructions[i];
    const clv_reshard_step *gather = p->instructions[gather_of(r, op)].step;
    const clv_buffer *kv = &p->buffers[operand(op, is_forward(op) ? KV : GKV)], *sum = &p->buffers[op->out[0]];
    const int blocks = blocks_of(r, op);
    const clv_dtype wide = clv_statistics_dtype(kv->type.dtype);
    const double size = (double)clv_dtype_size(wide),
                 elems = (double)clv_layout_max_elems(&sum->layout, sum->type.shape);
    const double block =
        clv_instruction_seconds(p, r->cost, i) / blocks + clv_cost_copy_seconds(r->cost, 2 * size * elems);
    double moved = permute_seconds(r, gather, &kv->type, kv->type.dtype);
    if (is_gradient(op))
        moved += permute_seconds(r, gather, &kv->type, wide);
    const bool beside = r->overlaps && clv_instruction_may_overlap(r->cost, &p->instructions[gather_of(r, op)]);
    const double last = is_gradient(op) ? permute_seconds(r, gather, &kv->type, wide) : 0;
    return block + last + (blocks - 1) * (beside ? fmax(block, moved) : block + moved);
}

static clv_status choose(const ring_pass *r, bool *any, clv_error *err)
{
    const int n = r->program->n_instructions;
    bool changed = true, *counted = clv_arena_alloc(r->scratch, (size_t)n + 1, sizeof *counted);
    double gained = 0;
    if (!counted)
        return clv_fail_memory(err, "a ring", (size_t)n);
    for (int i = 0; i < n; i++)
        r->converts[i] = can_convert(r, i);
    while (changed) {
        changed = false;
        for (int i = 0; i < n; i++)
            if (r->converts[i] && !still_converts(r, i)) {
                r->converts[i] = false;
                changed = true;
            }
    }
    *any = false;
    for (int i = 0; i < n; i++)
        if (r->converts[i]) {
            gained += now_seconds(r, i, counted) - ring_seconds(r, i);
            *any = true;
        }
    *any = *any && gained > 0;
    return CLV_OK;
}

/* ---- conversion ---- */

static clv_status add_buffer(int *out, clv_program *p, const clv_type *type, const clv_layout *layout, int shift,
                             clv_error *err)
{
    const clv_buffer buffer = {
        .kind = CLV_BUFFER_TEMP, .type = *type, .layout = *layout, .ring_shift = shift, .shares_with = -1};
    return clv_program_add_buffer(out, p, &buffer, err);
}

/* An instruction that replaces part of another: its op has so many operands and results. */
static clv_status add_op(clv_program *p, const clv_instruction *of, const clv_op_def *def, const void *attrs,
                         const char *ending, const int *in, int n_in, const int *out, int n_out, clv_error *err)
{
    clv_op *op = clv_arena_copy(p->arena, of->op, sizeof *op);
    const char *name = ending ? clv_arena_format(p->arena, "%s.%s", of->name, ending) : of->name;
    clv_instruction made = *of;
    if (!op || !name)
        return clv_fail_memory(err, "an op", sizeof *op);
    op->def = def;
    op->attrs = attrs;
    op->name = made.name = name;
    op->n_in = made.n_in = n_in;
    op->n_out = made.n_out = n_out;
    made.op = op;
    for (int k = 0; k < n_in; k++) {
        made.in[k] = in[k];
        op->in[k] = in[k] >= 0 ? of->op->in[0] : 0; /* whether it is there */
    }
    memcpy(made.out, out, (size_t)n_out * sizeof *out);
    made.workspace_bytes = 0;
    if (def->workspace) {
        clv_view views[CLV_MAX_IN + CLV_MAX_OUT] = {0};
        for (int k = 0; k < n_in; k++)
            if (in[k] >= 0)
                views[k] = clv_largest_shard_view(&p->buffers[in[k]].type, &p->buffers[in[k]].layout);
        for (int o = 0; o < n_out; o++)
            views[CLV_MAX_IN + o] = clv_largest_shard_view(&p->buffers[out[o]].type, &p->buffers[out[o]].layout);
        made.workspace_bytes = (int64_t)def->workspace(op, views, views + CLV_MAX_IN);
    }
    return clv_program_add_instruction(p, &made, err);
}

/* What was said of instruction `was` is said of the last one added; NULL: nothing. */
static clv_partition_decision *keep_decision(const ring_pass *r, int was)
{
    clv_program *p = r->program;
    if (!r->decision_of[was])
        return NULL;
    p->decisions[p->n_decisions] = *r->decision_of[was];
    p->decisions[p->n_decisions].instruction = p->n_instructions - 1;
    return &p->decisions[p->n_decisions++];
}

static void write_layouts(clv_text *t, const void *arg)
{
    const clv_program *p = arg;
    char layout[CLV_LAYOUT_TEXT];
    clv_layout_print(layout, sizeof layout, &p->instructions[p->n_instructions - 1].step->to, &p->mesh);
    clv_text_add(t, "{%s} -> {%s}", layout, layout);
}

/* Says of the last instruction, a permute, what it is instead of. */
static clv_status describe_permute(const ring_pass *r, int instead, clv_error *err)
{
    clv_program *p = r->program;
    const clv_instruction *made = &p->instructions[p->n_instructions - 1];
    clv_partition_decision *decision = keep_decision(r, instead);
    if (!decision)
        return CLV_OK;
    decision->kind = clv_step_name(CLV_STEP_PERMUTE);
    decision->layouts = clv_text_to_arena(p->arena, write_layouts, p);
    decision->why = made->cause;
    decision->bytes = made->step->bytes;
    decision->seconds = clv_instruction_seconds(p, r->cost, p->n_instructions - 1);
    return decision->layouts ? CLV_OK : clv_fail_memory(err, "a decision", sizeof *decision);
}

/* A permute of `from` to the next place, to a new buffer, or to *to if it is not -1, instead of a gather or
 * reduce-scatter. */
static clv_status add_permute(int *to, const ring_pass *r, int from, int shift, int instead, const clv_instruction *of,
                              clv_error *err)
{
    clv_program *p = r->program;
    const clv_buffer was = p->buffers[from];
    clv_layout layout = was.layout;
    clv_instruction made = r->was[instead];
    clv_reshard_step *step = clv_arena_copy(p->arena, made.step, sizeof *step);
    made.cause = clv_arena_format(p->arena, "%s is computed by blocks, which go around a ring", of->name);
    if (!step || !made.cause)
        return clv_fail_memory(err, "a step", sizeof *step);
    layout.stages = of->stages; /* the stages of attention alone pass blocks on, though others may hold them */
    if (*to < 0)
        CLV_TRY(add_buffer(to, p, &was.type, &layout, shift, err));
    step->kind = CLV_STEP_PERMUTE;
    step->from = was.layout;
    step->to = p->buffers[*to].layout;
    step->bytes = (double)clv_layout_max_elems(&was.layout, was.type.shape) * (double)clv_dtype_size(was.type.dtype);
    made.step = step;
    made.in[0] = from;
    made.out[0] = *to;
    made.backward = of->backward;
    made.microbatch = of->microbatch;
    made.stages = of->stages;
    made.recomputed = of->recomputed;
    CLV_TRY(clv_program_find_or_add_group(&made.group, p, step, err));
    CLV_TRY(clv_program_add_instruction(p, &made, err));
    return describe_permute(r, instead, err);
}

/* Casts a sum to the buffer that it is for; they may be one. */
static clv_status add_cast(clv_program *p, const clv_instruction *of, int from, int to, clv_error *err)
{
    clv_cast_attrs *attrs = clv_arena_alloc(p->arena, 1, sizeof *attrs);
    if (!attrs)
        return clv_fail_memory(err, "a cast", sizeof *attrs);
    attrs->dtype = p->buffers[to].type.dtype;
    return from == to ? CLV_OK : add_op(p, of, &clv_op_cast, attrs, "cast", &from, 1, &to, 1, err);
}

static clv_status make_attrs(const clv_ring_attention_attrs **out, const ring_pass *r, const clv_instruction *of,
                             int kv, int blocks, clv_error *err)
{
    clv_ring_attention_attrs *attrs = clv_arena_alloc(r->program->arena, 1, sizeof *attrs);
    if (!attrs)
        return clv_fail_memory(err, "an op", sizeof *attrs);
    memcpy(&attrs->of, of->op->attrs, sizeof attrs->of);
    attrs->rows = r->program->buffers[kv].type.shape[1];
    attrs->blocks = blocks;
    *out = attrs;
    return CLV_OK;
}

static clv_type in_dtype(clv_type type, clv_dtype dtype)
{
    type.dtype = dtype;
    return type;
}

/* The buffer of a sum after block t: the last one is `to`, if it has the dtype of sums. */
static clv_status sum_buffer(int *out, clv_program *p, int to, clv_dtype wide, bool last, clv_error *err)
{
    const clv_buffer like = p->buffers[to];
    const clv_type type = in_dtype(like.type, wide);
    *out = to;
    return last && like.type.dtype == wide ? CLV_OK : add_buffer(out, p, &type, &like.layout, 0, err);
}

static clv_status convert_forward(const ring_pass *r, int i, clv_error *err)
{
    clv_program *p = r->program;
    const clv_instruction *of = &r->was[i];
    const clv_ring_attention_attrs *attrs;
    const int gather = r->uses.writer[of->in[KV]], blocks = (int)clv_layout_block_count(&r->was[gather].step->from, 1);
    const clv_dtype wide = clv_statistics_dtype(p->buffers[of->in[Q]].type.dtype);
    int kv = r->was[gather].in[0], sum = -1, lse = -1;
    CLV_TRY(make_attrs(&attrs, r, of, kv, blocks, err));
    p->buffers[of->out[1]].type.dtype = wide;
    for (int t = 0; t < blocks; t++) {
        int next = -1, out[2];
        if (t + 1 < blocks)
            CLV_TRY(add_permute(&next, r, kv, t + 1, gather, of, err));
        CLV_TRY(sum_buffer(&out[0], p, of->out[0], wide, t + 1 == blocks, err));
        CLV_TRY(sum_buffer(&out[1], p, of->out[1], wide, t + 1 == blocks, err));
        const int in[] = {of->in[Q], kv, operand(of, MASK), -1, operand(of, STEP), sum, lse};
        CLV_TRY(add_op(p, of, &clv_op_ring_attention, attrs, NULL, in, CLV_RING_IN, out, 2, err));
        if (t == 0)
            keep_decision(r, i);
        kv = next;
        sum = out[0];
        lse = out[1];
    }
    return add_cast(p, of, sum, of->out[0], err);
}

static clv_status convert_backward(const ring_pass *r, int i, clv_error *err)
{
    clv_program *p = r->program;
    const clv_instruction *of = &r->was[i];
    const clv_ring_attention_attrs *attrs;
    const int gather = r->uses.writer[of->in[GKV]], scatter = r->uses.reader[of->out[1]], made = r->was[scatter].out[0],
              blocks = (int)clv_layout_block_count(&r->was[gather].step->from, 1);
    const clv_dtype wide = clv_statistics_dtype(p->buffers[of->in[GQ]].type.dtype);
    const clv_type type = in_dtype(p->buffers[made].type, wide);
    const clv_layout layout = p->buffers[made].layout;
    int *add = clv_arena_alloc(p->arena, 1, sizeof *add); /* attributes of the op that adds */
    int kv = r->was[gather].in[0], dq = -1, arrived = -1;
    CLV_TRY(make_attrs(&attrs, r, of, kv, blocks, err));
    if (!add)
        return clv_fail_memory(err, "an op", sizeof *add);
    *add = CLV_BINARY_ADD;
    for (int t = 0; t < blocks; t++) {
        const bool last = t + 1 == blocks;
        int next = -1, out[2], sum, home = last && type.dtype == p->buffers[made].type.dtype ? made : -1;
        if (!last)
            CLV_TRY(add_permute(&next, r, kv, t + 1, gather, of, err));
        CLV_TRY(sum_buffer(&out[0], p, of->out[0], wide, last, err));
        CLV_TRY(add_buffer(&out[1], p, &type, &layout, t, err));
        const int in[] = {of->in[D_OUT],      of->in[GQ],         kv, of->in[GOUT], of->in[GLSE],
                          operand(of, GMASK), operand(of, GSTEP), dq};
        CLV_TRY(add_op(p, of, &clv_op_ring_attention_gradient, attrs, NULL, in, CLV_RING_GRADIENT_IN, out, 2, err));
        if (t == 0)
            keep_decision(r, i);
        sum = out[1];
        if (arrived >= 0) {
            CLV_TRY(add_buffer(&sum, p, &type, &layout, t, err));
            CLV_TRY(add_op(p, of, &clv_op_combine, add, "add", (int[]){arrived, out[1]}, 2, &sum, 1, err));
        }
        CLV_TRY(add_permute(&home, r, sum, last ? 0 : t + 1, scatter, of, err));
        arrived = home;
        kv = next;
        dq = out[0];
    }
    CLV_TRY(add_cast(p, of, arrived, made, err));
    return add_cast(p, of, dq, of->out[0], err);
}

/* Prepares to say of the new instructions what was said of those before, of a permute what was of its collective. */
static clv_status begin_decisions(ring_pass *r, clv_error *err)
{
    clv_program *p = r->program;
    size_t n = (size_t)p->n_decisions;
    for (int d = 0; d < p->n_decisions; d++)
        r->decision_of[p->decisions[d].instruction] = &p->decisions[d];
    for (int i = 0; i < r->n_was; i++)
        if (r->converts[i])
            n += 2 * (size_t)blocks_of(r, &r->was[i]);
    if (p->n_decisions == 0)
        return CLV_OK;
    p->n_decisions = 0;
    p->decisions = clv_arena_alloc(p->arena, n, sizeof *p->decisions);
    return p->decisions ? CLV_OK : clv_fail_memory(err, "decisions", n * sizeof *p->decisions);
}

static clv_status rewrite(ring_pass *r, clv_error *err)
{
    clv_program *p = r->program;
    r->was = clv_arena_copy(r->scratch, p->instructions, (size_t)r->n_was * sizeof *r->was);
    if (!r->was)
        return clv_fail_memory(err, "a ring", (size_t)r->n_was * sizeof *r->was);
    for (int i = 0; i < r->n_was; i++)
        if (r->converts[i]) {
            r->drops[gather_of(r, &r->was[i])] = true;
            if (is_gradient(&r->was[i]))
                r->drops[scatter_of(r, &r->was[i])] = true;
        }
    CLV_TRY(begin_decisions(r, err));
    p->n_instructions = p->n_steps = 0;
    for (int i = 0; i < r->n_was; i++)
        if (r->converts[i]) {
            CLV_TRY((is_forward(&r->was[i]) ? convert_forward : convert_backward)(r, i, err));
        } else if (!r->drops[i]) {
            CLV_TRY(clv_program_add_instruction(p, &r->was[i], err));
            keep_decision(r, i);
        }
    return CLV_OK;
}

/* ---- the pass ---- */

static clv_status run(ring_pass *r, clv_error *err)
{
    const size_t instructions = (size_t)r->program->n_instructions + 1;
    bool any;
    r->n_was = r->program->n_instructions;
    r->converts = clv_arena_alloc(r->scratch, instructions, sizeof *r->converts);
    r->drops = clv_arena_alloc(r->scratch, instructions, sizeof *r->drops);
    r->decision_of = clv_arena_alloc(r->scratch, instructions, sizeof *r->decision_of);
    if (!r->converts || !r->drops || !r->decision_of)
        return clv_fail_memory(err, "a ring", instructions * sizeof *r->converts);
    CLV_TRY(clv_program_find_buffer_uses(&r->uses, r->program, r->scratch, err));
    CLV_TRY(choose(r, &any, err));
    return any ? rewrite(r, err) : CLV_OK;
}

clv_status clv_program_ring_attention(clv_program *program, bool overlaps, const clv_cost_model *cost, clv_error *err)
{
    bool any = false;
    for (int i = 0; i < program->n_instructions; i++)
        any = any || is_forward(&program->instructions[i]);
    if (!any)
        return CLV_OK;
    ring_pass r = {.program = program, .cost = cost, .overlaps = overlaps, .scratch = clv_arena_new()};
    clv_status status = r.scratch ? run(&r, err) : clv_fail_memory(err, "a ring", sizeof r);
    clv_arena_free(r.scratch);
    return status;
}
