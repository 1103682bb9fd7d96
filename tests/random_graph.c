/* random_graph.c - a case from its seed: mesh, layouts, leaves, ops, loss, gradients, updates. */
#include "random_graph.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random_source.h"
#include "slow_link_machine.h"

/* ---- specs ---- */

void random_spec_print(char out[RANDOM_SPEC_TEXT], const random_spec *spec)
{
    int n = snprintf(out, RANDOM_SPEC_TEXT, "%" PRIu64, spec->seed);
    if (spec->dropped || spec->plain || spec->without)
        snprintf(out + n, RANDOM_SPEC_TEXT - (size_t)n, "/%x/%x/%x", spec->dropped, spec->plain, spec->without);
}

bool random_spec_parse(random_spec *out, const char *text)
{
    *out = (random_spec){0};
    int n = sscanf(text, "%" SCNu64 "/%x/%x/%x", &out->seed, &out->dropped, &out->plain, &out->without);
    return n == 1 || n == 4;
}

/* ---- numbers ---- */

static uint64_t mix(uint64_t z) /* splitmix64 */
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t draw(uint64_t *stream, int64_t n)
{
    *stream = mix(*stream);
    return (int64_t)(*stream % (uint64_t)n);
}

int64_t random_pick(random_maker *m, int64_t n)
{
    return draw(&m->stream, n);
}

bool random_chance(random_maker *m, int n)
{
    return random_pick(m, n) == 0;
}

void random_shuffle(random_maker *m, int *items, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)random_pick(m, i + 1), kept = items[i];
        items[i] = items[j];
        items[j] = kept;
    }
}

/* What follows is drawn from streams of its own. */
static void begin(random_maker *m, int part)
{
    m->stream = mix(m->spec->seed * 64 + (uint64_t)part);
    m->layouts = mix(m->stream ^ m->layouts_seed);
}

/* ---- types ---- */

clv_type random_type(const random_maker *m, clv_value value)
{
    return clv_graph_type(m->graph, value);
}

int64_t random_size(random_maker *m)
{
    static const int64_t often[] = {1, 2, 3, 4, 5, 6, 7, 8}, seldom[] = {0, 9, 11, 12, 13, 16};
    return random_chance(m, 8) ? seldom[random_pick(m, 6)] : often[random_pick(m, 8)];
}

int64_t random_divisor(random_maker *m, int64_t n)
{
    int64_t d = 1 + random_pick(m, n);
    while (n % d != 0)
        d--;
    return d;
}

clv_dtype random_float(random_maker *m)
{
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F64, CLV_F32, CLV_F32, CLV_BF16, CLV_F16};
    return dtypes[random_pick(m, 6)];
}

/* ---- meshes and layouts ---- */

static clv_mesh mesh_of(random_maker *m)
{
    static const int64_t most[] = {2, 4, 6, 6, 8, 12, 16}, sizes[] = {1, 2, 2, 3, 4, 5, 6, 6, 7, 8, 12, 16};
    clv_mesh mesh = {.n_axes = 1 + (int)random_pick(m, 4)};
    int64_t room = most[random_pick(m, 7)];
    for (int a = 0; a < mesh.n_axes; a++) {
        int64_t size = sizes[random_pick(m, 12)];
        mesh.axis[a].name[0] = (char)('w' + a);
        mesh.axis[a].size = size <= room ? size : 1;
        room /= mesh.axis[a].size;
    }
    return mesh;
}

/* A third of the meshes have stages, on the first axis or the last, which layouts do not use. */
static void add_stages(random_maker *m, clv_mesh *mesh)
{
    const uint64_t how = mix(m->spec->seed ^ 0x5741);
    const int at = how / 4 % 2 ? mesh->n_axes : 0;
    m->n_axes = mesh->n_axes;
    m->stage_axis = -1;
    if (how % 3 != 0 || (m->spec->without & RANDOM_STAGES))
        return;
    for (int a = mesh->n_axes; a > at; a--)
        mesh->axis[a] = mesh->axis[a - 1];
    mesh->axis[at] = (clv_axis){.name = "pipe", .size = clv_mesh_rank_count(mesh) > 8 ? 2 : 2 + (int64_t)(how / 8 % 3)};
    mesh->n_axes++;
    m->first_axis = at == 0;
    m->stage_axis = at;
}

/* One of the axes is `context` or `expert`: on a machine whose ops hide rings, as often as not. */
static void name_axis(random_maker *m)
{
    random_graph *g = m->out;
    const uint64_t how = mix(m->spec->seed ^ 0xc0e7);
    m->named_axis = -1;
    for (int i = 0; i < m->n_axes && m->named_axis < 0 && !(m->spec->without & RANDOM_NAMED); i++) {
        const int a = m->first_axis + (int)((how / 4 + (uint64_t)i) % (uint64_t)m->n_axes);
        m->named_axis = g->mesh.axis[a].size > 1 ? a : -1;
    }
    if (m->named_axis < 0)
        return;
    clv_axis *axis = &g->mesh.axis[m->named_axis];
    *axis = (clv_axis){.size = axis->size};
    strcpy(axis->name, how % 2 ? "context" : "expert");
    if (how % 4 == 1) {
        g->options.machine = g->machine = must_slow_ops();
        g->options.overlap = true;
    }
}

/* Of the ops of a slot: any stage, or none. */
static void set_stage(random_maker *m)
{
    const clv_mesh *mesh = &m->out->mesh;
    if (m->stage_axis < 0)
        return;
    const uint64_t stages = (uint64_t)mesh->axis[m->stage_axis].size;
    const uint64_t drawn = mix(m->spec->seed * 64 + (uint64_t)m->slot + m->layouts_seed * 977) % (stages + 1);
    clv_graph_set_stage(m->graph, "pipe", (int)drawn - 1);
}

/* An axis as sub-axes that make it up, major to minor. */
static int pieces_of(random_maker *m, int axis, clv_subaxis *out)
{
    int64_t left = m->out->mesh.axis[axis].size;
    int32_t pre = 1;
    int n = 0;
    while (left > 1) {
        int64_t size = draw(&m->layouts, 3) ? left : 2 + draw(&m->layouts, left - 1);
        while (left % size != 0)
            size--;
        size = size == 1 ? left : size;
        out[n++] = (clv_subaxis){axis, pre, (int32_t)size};
        pre *= (int32_t)size;
        left /= size;
    }
    return n;
}

static void align_cuts(random_maker *m, clv_layout *layout, const clv_type *type)
{
    for (int d = 0; d < type->rank; d++) {
        if (clv_layout_block_count(layout, d) == 1 || type->shape[d] == 0 || draw(&m->layouts, 4) != 0)
            continue;
        int64_t alignment = 1 + draw(&m->layouts, type->shape[d]);
        while (type->shape[d] % alignment != 0)
            alignment--;
        layout->alignment[d] = alignment;
    }
}

clv_layout random_layout(random_maker *m, const clv_type *type)
{
    clv_layout layout = clv_layout_replicated(type->rank);
    int n_axes = m->n_axes, first = (int)draw(&m->layouts, n_axes);
    for (int i = 0; i < n_axes; i++) {
        clv_subaxis piece[8];
        int n = pieces_of(m, m->first_axis + (i + first) % n_axes, piece);
        for (int p = 0; p < n; p++) {
            int d = (int)draw(&m->layouts, type->rank + 1);
            if (d < type->rank && !(m->spec->plain >> m->slot & 1))
                clv_layout_shard_dim(&layout, &m->out->mesh, d, piece[p], NULL);
        }
    }
    align_cuts(m, &layout, type);
    return layout;
}

clv_layout random_cut(random_maker *m, const clv_type *type, int d)
{
    clv_layout layout = clv_layout_replicated(type->rank);
    for (int a = m->first_axis; a < m->first_axis + m->n_axes; a++)
        if (draw(&m->layouts, 2) == 0 && !(m->spec->plain >> m->slot & 1))
            clv_layout_shard_dim(&layout, &m->out->mesh, d, clv_mesh_whole_axis(&m->out->mesh, a), NULL);
    return layout;
}

int64_t random_ranks(const random_maker *m, const char *axis)
{
    const bool splits = m->named_axis >= 0 && mix(m->spec->seed * 64 + (uint64_t)m->slot) % 4 != 0;
    return splits && strcmp(m->out->mesh.axis[m->named_axis].name, axis) == 0 ? m->out->mesh.axis[m->named_axis].size
                                                                              : 1;
}

clv_value random_over(random_maker *m, clv_value x, int d, const char *axis)
{
    clv_layout layout = clv_layout_replicated(random_type(m, x).rank);
    if (random_ranks(m, axis) == 1 || !clv_valid(x) || (m->spec->plain >> m->slot & 1))
        return x;
    clv_layout_shard_dim(&layout, &m->out->mesh, d, clv_mesh_whole_axis(&m->out->mesh, m->named_axis), NULL);
    return clv_constrain(m->graph, x, &layout);
}

/* ---- values ---- */

clv_value random_any(random_maker *m)
{
    for (int try = 0; try < 3; try++) {
        int at = (int)random_pick(m, m->slot);
        while (at > 0 && m->value[at].id == 0)
            at--;
        clv_type type = random_type(m, m->value[at]);
        if (clv_type_elems(&type) > 0)
            return m->value[at];
    }
    return m->value[0];
}

clv_value random_new(random_maker *m, clv_dtype dtype, int rank, const int64_t *shape, random_fill fill, int64_t bound)
{
    char name[16];
    clv_type type = {.dtype = dtype, .rank = rank};
    for (int d = 0; d < rank; d++)
        type.shape[d] = shape[d];
    clv_layout layout = random_layout(m, &type);
    bool is_state = fill == RANDOM_REAL && random_chance(m, 2), stated = !random_chance(m, 4);
    if (m->out->n_leaves == RANDOM_LEAVES)
        return clv_fill(m->graph, dtype, rank, shape, 0);
    snprintf(name, sizeof name, "v%d_%d", m->slot, m->n_made++);
    clv_value made = is_state ? clv_state(m->graph, name, dtype, rank, shape, &layout, (clv_init){CLV_INIT_NORMAL, 1})
                              : clv_input(m->graph, name, dtype, rank, shape, stated ? &layout : NULL);
    if (random_chance(m, 6) && m->n_axes > 0)
        clv_keep_stationary(m->graph, made, m->out->mesh.axis[m->first_axis + random_pick(m, m->n_axes)].name);
    m->out->leaf[m->out->n_leaves++] = (random_leaf){made, fill, bound};
    return made;
}

/* The first dimensions of a tensor folded into one, or ones put before them. */
static clv_value with_rank(random_maker *m, clv_value a, int rank)
{
    clv_type type = random_type(m, a);
    int64_t shape[CLV_MAX_RANK] = {0};
    int folded = type.rank - rank + 1, dims[CLV_MAX_RANK];
    if (type.rank == rank)
        return a;
    for (int d = 0; d < type.rank; d++)
        dims[d] = d;
    if (rank == 0)
        return clv_reduce(m->graph, CLV_SUM, a, dims, type.rank, false);
    for (int d = 0; d < rank; d++)
        shape[d] = type.rank > rank       ? type.shape[d + folded - 1]
                   : d < rank - type.rank ? 1
                                          : type.shape[d - rank + type.rank];
    for (int d = 0; d < folded - 1; d++)
        shape[0] *= type.shape[d];
    return clv_reshape(m->graph, a, rank, shape);
}

clv_value random_fit(random_maker *m, clv_value a, const clv_type *type)
{
    a = with_rank(m, a, type->rank);
    clv_type from = random_type(m, a);
    int64_t low[CLV_MAX_RANK], high[CLV_MAX_RANK], before[CLV_MAX_RANK], after[CLV_MAX_RANK];
    bool cuts = false, pads = false, repeats = false;
    for (int d = 0; d < type->rank; d++) {
        int64_t have = from.shape[d], want = type->shape[d];
        bool repeat = have == 1 && want > 1;
        low[d] = have > want ? random_pick(m, have - want + 1) : 0;
        high[d] = low[d] + (have > want ? want : have);
        before[d] = have < want && !repeat ? random_pick(m, want - have + 1) : 0;
        after[d] = have < want && !repeat ? want - have - before[d] : 0;
        cuts = cuts || have > want;
        pads = pads || (have < want && !repeat);
        repeats = repeats || repeat;
    }
    a = cuts ? clv_slice(m->graph, a, low, high) : a;
    a = pads ? clv_pad(m->graph, a, before, after) : a;
    if (repeats)
        a = clv_add(m->graph, clv_fill(m->graph, from.dtype, type->rank, type->shape, 0.25), a);
    return from.dtype == type->dtype ? a : clv_cast(m->graph, a, type->dtype);
}

clv_value random_operand(random_maker *m, clv_dtype dtype, int rank, const int64_t *shape)
{
    clv_type type = {.dtype = dtype, .rank = rank};
    for (int d = 0; d < rank; d++)
        type.shape[d] = shape[d];
    int64_t how = random_pick(m, 5), from = random_pick(m, m->slot > 0 ? m->slot : 1);
    if (how < 2 || m->slot == 0)
        return random_new(m, dtype, rank, shape, RANDOM_REAL, 0);
    for (int i = 0; how < 4 && i < m->slot; i++) {
        clv_value value = m->value[(i + from) % m->slot];
        clv_type other = clv_valid(value) ? random_type(m, value) : (clv_type){.rank = -1};
        if (clv_type_equal(&type, &other))
            return value;
    }
    return random_fit(m, random_any(m), &type);
}

clv_value random_trim(random_maker *m, clv_value value)
{
    for (clv_type type = random_type(m, value); clv_valid(value) && clv_type_elems(&type) > RANDOM_ELEMS;
         type = random_type(m, value)) {
        int largest = 0;
        for (int d = 1; d < type.rank; d++)
            largest = type.shape[d] > type.shape[largest] ? d : largest;
        value = clv_scale(m->graph, clv_reduce(m->graph, CLV_SUM, value, &largest, 1, false), 0.25);
    }
    return value;
}

/* ---- loss, gradients, updates ---- */

static clv_value sum_all(random_maker *m, clv_value x)
{
    int dims[CLV_MAX_RANK], rank = random_type(m, x).rank;
    for (int d = 0; d < rank; d++)
        dims[d] = d;
    return rank ? clv_reduce(m->graph, CLV_SUM, x, dims, rank, false) : x;
}

/* sum over all values of sum(tanh(value)). */
static clv_value loss_of(random_maker *m)
{
    clv_value loss = CLV_NONE;
    for (int i = 0; i < RANDOM_SLOTS; i++) {
        if (m->value[i].id == 0)
            continue;
        clv_value part = sum_all(m, clv_unary(m->graph, CLV_TANH, clv_cast(m->graph, m->value[i], CLV_F64)));
        loss = loss.id == 0 ? part : clv_add(m->graph, loss, part);
    }
    return loss;
}

static void add_output(random_maker *m, clv_value value)
{
    random_graph *g = m->out;
    random_output *o = &g->output[g->n_outputs];
    clv_type type = random_type(m, value);
    clv_layout layout = random_layout(m, &type);
    bool stated = random_chance(m, 3) && !(m->spec->without & RANDOM_OUT_LAYOUTS);
    if (value.id == 0)
        return;
    snprintf(o->name, sizeof o->name, "o%d", g->n_outputs++);
    o->value = value;
    clv_output(m->graph, o->name, value, stated ? &layout : NULL);
}

static bool is_state(const random_maker *m, clv_value value)
{
    return m->graph->values[value.id].source == CLV_FROM_STATE;
}

/* By the seed alone, so that known seeds' graphs are what they were but for this; CLV_NONE: nothing. A norm is f32,
 * which rounds more than f64 may. */
static clv_value clip(random_maker *m, clv_value state, clv_value gradient)
{
    clv_value both[] = {gradient, state};
    if (m->spec->seed % 3 != 0 || random_type(m, state).dtype == CLV_F64)
        return CLV_NONE;
    return clv_clip_scale(m->graph, clv_global_norm(m->graph, both, 2), 0.5);
}

/* By SGD or Lion, by the seed alone as clip. Lion steps by signs, which rounding may turn: its step is 0. */
static bool by_one_moment(random_maker *m, clv_value state, clv_value gradient, const clv_adamw_options *o)
{
    const clv_sgd_options sgd = {.weight_decay = 0.01, .grad_scale = o->grad_scale, .state_layout = o->state_layout};
    const clv_lion_options lion = {.grad_scale = o->grad_scale, .state_layout = o->state_layout};
    uint64_t which = m->spec->seed % 5;
    if (which == 1)
        clv_sgd(m->graph, state, gradient, clv_fill(m->graph, CLV_F32, 0, NULL, 0.05), &sgd);
    else if (which == 2)
        clv_lion(m->graph, state, gradient, clv_fill(m->graph, CLV_F32, 0, NULL, 0), &lion);
    return which == 1 || which == 2;
}

static void update(random_maker *m, clv_value state, clv_value gradient)
{
    clv_dtype dtype = random_type(m, state).dtype;
    if (random_chance(m, 2)) {
        clv_assign(m->graph, state, clv_sub(m->graph, state, clv_scale(m->graph, gradient, 0.1)));
        return;
    }
    clv_type type = random_type(m, state);
    clv_layout layout = random_layout(m, &type);
    clv_adamw_options options = {.eps = dtype == CLV_F64 ? 1e-3 : 1e-1,
                                 .weight_decay = 0.01,
                                 .grad_scale = clip(m, state, gradient),
                                 .state_layout = random_chance(m, 2) ? &layout : NULL};
    if (by_one_moment(m, state, gradient, &options))
        return;
    clv_value lr = clv_fill(m->graph, CLV_F32, 0, NULL, 0.05), step;
    step = random_new(m, CLV_I32, 0, NULL, RANDOM_STEP, 0);
    clv_adamw(m->graph, state, gradient, lr, step, &options);
}

/* Two states of one type that trade places. */
static void swap(random_maker *m, bool *assigned, int i)
{
    clv_type type = random_type(m, m->out->leaf[i].value);
    for (int j = 0; j < i; j++) {
        clv_type other = random_type(m, m->out->leaf[j].value);
        if (assigned[j] || !is_state(m, m->out->leaf[j].value) || !clv_type_equal(&type, &other))
            continue;
        clv_assign(m->graph, m->out->leaf[i].value, m->out->leaf[j].value);
        clv_assign(m->graph, m->out->leaf[j].value, m->out->leaf[i].value);
        assigned[i] = assigned[j] = true;
        return;
    }
}

/* By the gradient where there is one, by something of the same type, or by one another. */
static void update_all(random_maker *m, const clv_value *gradient, int n)
{
    bool assigned[RANDOM_LEAVES] = {false};
    for (int i = n - 1; i >= 0; i--) {
        clv_value leaf = m->out->leaf[i].value;
        begin(m, RANDOM_SLOTS + 1 + i);
        if (assigned[i] || !is_state(m, leaf) || random_chance(m, 6))
            continue;
        if (random_chance(m, 2))
            swap(m, assigned, i);
        if (assigned[i])
            continue;
        clv_type type = random_type(m, leaf);
        if (clv_valid(gradient[i]))
            update(m, leaf, gradient[i]);
        else
            clv_assign(m->graph, leaf, random_fit(m, random_any(m), &type));
        assigned[i] = true;
    }
}

static void add_gradients(random_maker *m, clv_value *gradient)
{
    clv_value wrt[RANDOM_LEAVES + 1], d[RANDOM_LEAVES + 1], loss = loss_of(m);
    int at[RANDOM_LEAVES + 1], n = 0;
    for (int i = 0; i < m->out->n_leaves; i++)
        if (m->out->leaf[i].fill == RANDOM_REAL) {
            at[n] = i;
            wrt[n++] = m->out->leaf[i].value;
        }
    wrt[n] = random_any(m); /* of what ops made, too */
    clv_gradients(m->graph, loss, CLV_NONE, wrt, n + 1, d);
    add_output(m, loss);
    for (int i = 0; i <= n; i++)
        add_output(m, d[i]);
    for (int i = 0; i < n; i++)
        gradient[at[i]] = d[i];
}

/* ---- blocks: by the seed and the slot alone, so that graphs are what they were but for these ---- */

static bool has_blocks(const random_maker *m)
{
    return m->out->options.recompute != CLV_RECOMPUTE_NONE;
}

static bool begins_block(const random_maker *m, int slot)
{
    return has_blocks(m) && mix(m->spec->seed * RANDOM_SLOTS + (uint64_t)slot) % 4 == 0;
}

/* Before the op of a slot is made. What a block makes is its own, but for what its last op makes. */
static void bound_block(random_maker *m, bool *within)
{
    if (!begins_block(m, m->slot))
        return;
    if (*within)
        clv_end_block(m->graph);
    clv_begin_block(m->graph);
    *within = true;
}

/* Hides values of blocks from later ops; the first leaves belong to no block. */
static void hide_inner(random_maker *m, int n)
{
    bool within = false;
    for (int i = 2; i < n; i++) {
        within = within || begins_block(m, i);
        if (within && i + 1 < n && !begins_block(m, i + 1))
            m->value[i] = CLV_NONE;
    }
}

/* ---- a case ---- */

static void draw_case(random_maker *m)
{
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F64, CLV_F64, CLV_F64, CLV_F64, CLV_F32, CLV_F32, CLV_BF16};
    random_graph *g = m->out;
    uint32_t without = m->spec->without;
    g->mesh = mesh_of(m);
    add_stages(m, &g->mesh);
    m->dtype = dtypes[random_pick(m, 8)];
    g->steps = 1 + (int)(random_chance(m, 2) ? random_pick(m, 3) : 0);
    g->relayout = random_chance(m, 4) && !(without & RANDOM_RELAYOUT);
    g->special = random_chance(m, 6) ? RANDOM_WITH_NAN : random_chance(m, 8) ? RANDOM_WITH_INF : RANDOM_ALL_FINITE;
    g->options =
        (clv_compile_options){.by_bytes = random_chance(m, 2),
                              .use_idle_axes = random_chance(m, 2),
                              .reshard_after_forward = random_chance(m, 3) ? CLV_RESHARD_ALL : CLV_RESHARD_WEIGHTS};
    g->options.greedy_by_size_limit = m->spec->seed % 2 ? -1 : 0;
    g->options.size = sizeof g->options;
    if (g->options.reshard_after_forward == CLV_RESHARD_WEIGHTS && m->spec->seed / 4 % 2)
        g->options.reshard_after_forward = CLV_RESHARD_NONE;
    g->options.overlap = m->spec->seed / 2 % 2;
    g->options.search_layouts = m->spec->seed / 8 % 8 == 0;
    g->options.recompute =
        without & RANDOM_BLOCKS ? CLV_RECOMPUTE_NONE : (int64_t[]){0, 1, 2, 2}[mix(~m->spec->seed) % 4];
    g->options.expert_rank_capacity_factor = m->spec->seed / 16 % 2 ? 1e3 : 0; /* rows are dispatched, or as is best */
    if (without & RANDOM_STEPS)
        g->steps = 1;
    if (without & RANDOM_NONFINITE)
        g->special = RANDOM_ALL_FINITE;
    if (without & RANDOM_OPTIONS)
        g->options = (clv_compile_options){0};
    name_axis(m);
}

static void first_leaves(random_maker *m)
{
    int64_t shape[3] = {1 + random_pick(m, 7), 1 + random_pick(m, 7), 2 * (1 + random_pick(m, 4))};
    m->value[0] = random_new(m, m->dtype, 3, shape, RANDOM_REAL, 0);
    m->slot = 1;
    m->value[1] = random_new(m, m->dtype, 2, shape + 1, RANDOM_REAL, 0);
}

/* The last op of a mesh with `context` is attention, with `expert` a mixture. Whether an op is of maxima comes from a
 * stream of its own: without them the others stay as they are. */
static clv_value make_op(random_maker *m, bool differentiable, bool last)
{
    begin(m, m->slot);
    uint64_t stream = m->stream;
    m->n_made = 0;
    m->stream = mix(~stream);
    if (random_chance(m, 6) && !(m->spec->without & RANDOM_MAXIMA))
        return random_op_of_maxima(m, differentiable);
    m->stream = stream;
    if (last && m->named_axis >= 0)
        return (m->out->mesh.axis[m->named_axis].name[0] == 'c' ? random_attention : random_experts)(m, random_any(m));
    return random_op(m, differentiable);
}

void random_graph_build(random_graph *out, const random_spec *spec, uint64_t layouts)
{
    random_maker m = {.spec = spec, .out = out, .layouts_seed = layouts};
    clv_value gradient[RANDOM_LEAVES];
    *out = (random_graph){0};
    begin(&m, 0);
    draw_case(&m);
    bool trains = !random_chance(&m, 4) && !(spec->without & RANDOM_GRADIENTS);
    int n = 6 + (int)random_pick(&m, RANDOM_SLOTS - 8);
    if (clv_graph_new(&out->graph, &out->mesh, NULL) != CLV_OK)
        abort();
    m.graph = out->graph;
    for (int i = 0; i < RANDOM_SLOTS; i++)
        m.value[i] = CLV_NONE;
    first_leaves(&m);
    bool within = false;
    for (m.slot = 2; m.slot < n; m.slot++) {
        bound_block(&m, &within);
        set_stage(&m);
        if (!(spec->dropped >> m.slot & 1))
            m.value[m.slot] = random_trim(&m, make_op(&m, trains, m.slot + 1 == n));
    }
    if (within)
        clv_end_block(m.graph);
    clv_graph_set_stage(m.graph, NULL, -1);
    hide_inner(&m, n);
    begin(&m, RANDOM_SLOTS);
    for (int i = 2; i < n; i++) /* in the order of ops: the first that differs is nearest to a fault */
        if (clv_valid(m.value[i]))
            add_output(&m, m.value[i]);
    for (int i = 0; i < RANDOM_LEAVES; i++)
        gradient[i] = CLV_NONE;
    if (trains)
        add_gradients(&m, gradient);
    if (!(spec->without & RANDOM_UPDATES))
        update_all(&m, gradient, out->n_leaves);
}

void random_graph_free(random_graph *g)
{
    clv_graph_free(g->graph);
    clv_machine_free(g->machine);
}

/* ---- values of leaves ---- */

static double value_of(const random_leaf *leaf, uint64_t *stream, int step)
{
    switch (leaf->fill) {
    case RANDOM_INDEX:
        return (double)(draw(stream, leaf->bound + 2) - 1);
    case RANDOM_LABEL:
        return draw(stream, 5) == 0 || leaf->bound == 0 ? RANDOM_IGNORED : (double)draw(stream, leaf->bound);
    case RANDOM_BIT:
        return (double)draw(stream, 2);
    case RANDOM_OFFSET:
        return (double)draw(stream, leaf->bound + 1);
    case RANDOM_STEP:
        return step;
    default:
        return (double)draw(stream, 1 << 30) * 0x1p-29 - 1;
    }
}

void random_leaf_fill(const random_graph *g, const random_leaf *leaf, const random_spec *spec, int step, void *out)
{
    static const double nans[] = {NAN, NAN}, infs[] = {INFINITY, -INFINITY};
    clv_type type = clv_graph_type(g->graph, leaf->value);
    int64_t n = clv_type_elems(&type);
    uint64_t stream = spec->seed ^ (uint64_t)step << 40;
    for (const char *p = clv_value_name(g->graph, leaf->value); *p; p++)
        stream = mix(stream + (uint64_t)*p);
    for (int64_t i = 0; i < n; i++)
        clv_dtype_store(type.dtype, out, i, value_of(leaf, &stream, step));
    if (leaf->fill != RANDOM_REAL || g->special == RANDOM_ALL_FINITE || n == 0 || draw(&stream, 2))
        return;
    for (int64_t i = 1 + draw(&stream, 2); i > 0; i--)
        clv_dtype_store(type.dtype, out, draw(&stream, n),
                        (g->special == RANDOM_WITH_NAN ? nans : infs)[draw(&stream, 2)]);
}
