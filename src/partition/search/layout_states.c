/* layout_states.c - keeps the states of the search for layouts: interns values, merges equal states, loads one. */
#include "partition/search/layout_states.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int clv_search_state_compare(const clv_search_state *a, const clv_search_state *b, bool by_bytes)
{
    int seconds = clv_cost_compare(a->seconds, b->seconds), bytes = clv_cost_compare(a->bytes, b->bytes);
    return by_bytes ? (bytes ? bytes : seconds) : (seconds ? seconds : bytes);
}

/* Phases matter to what an earlier one does not keep: of weights, and with reshard_after_forward all of everything. */
static bool has_phases(const clv_partitioner *p, int value)
{
    return p->available[value].is_weight || p->options->reshard_after_forward == CLV_RESHARD_ALL;
}

static bool is_held(const clv_partitioner *p, const int *last_use, int at, int value)
{
    return p->available[value].n > 0 && last_use[value] > at;
}

/* Copies what the partitioner holds into *out. */
static clv_status copy_held(clv_search_state *out, clv_arena *arena, const clv_partitioner *p, const int *last_use,
                            int at, clv_error *err)
{
    int n = 0, n_sharded = 0;
    for (int v = 1; v < p->graph->n_values; v++)
        if (is_held(p, last_use, at, v)) {
            n++;
            n_sharded += p->available[v].n;
        }
    clv_held_value *held = clv_arena_alloc(arena, (size_t)n + 1, sizeof *held);
    int *sharded = clv_arena_alloc(arena, (size_t)n_sharded + 1, sizeof *sharded);
    if (!held || !sharded)
        return clv_fail_memory(err, "a search for layouts", (size_t)n * sizeof *held);
    out->held = held;
    out->n_held = n;
    for (int v = 1; v < p->graph->n_values; v++) {
        if (!is_held(p, last_use, at, v))
            continue;
        const clv_available_layouts *from = &p->available[v];
        *held++ = (clv_held_value){v, from->n, has_phases(p, v) ? from->phase : 0,
                                   has_phases(p, v) ? from->n_earlier : 0, sharded};
        memcpy(sharded, from->sharded, (size_t)from->n * sizeof *sharded);
        sharded += from->n;
    }
    return CLV_OK;
}

static void build_key(clv_key_cache *index, const clv_partitioner *p, const int *last_use, int at)
{
    clv_key_begin(index);
    for (int v = 1; v < p->graph->n_values; v++) {
        const clv_available_layouts *from = &p->available[v];
        if (!is_held(p, last_use, at, v))
            continue;
        const int head[] = {v, from->n, has_phases(p, v) ? from->phase : 0, has_phases(p, v) ? from->n_earlier : 0};
        clv_key_add(index, head, sizeof head);
        clv_key_add(index, from->sharded, (size_t)from->n * sizeof *from->sharded);
    }
}

clv_status clv_search_states_add(clv_search_states *states, clv_arena *arena, const clv_partitioner *p,
                                 const int *last_use, int at, const clv_search_state *made, clv_error *err)
{
    build_key(&states->index, p, last_use, at);
    clv_search_state **found = clv_key_find(&states->index);
    if (found && clv_search_state_compare(made, *found, p->options->by_bytes) >= 0)
        return CLV_OK;
    clv_search_state *state = found ? *found : clv_arena_alloc(arena, 1, sizeof *state);
    if (state) {
        const clv_held_value *held = state->held;
        const int n_held = state->n_held;
        *state = *made;
        state->held = held;
        state->n_held = n_held;
        if (made->decision.strategy)
            state->decision.strategy = clv_arena_copy(arena, made->decision.strategy, sizeof *made->decision.strategy);
    }
    if (!state || (made->decision.strategy && !state->decision.strategy))
        return clv_fail_memory(err, "a search for layouts", sizeof *state);
    if (found)
        return CLV_OK;
    if (!clv_key_insert(&states->index, &state, sizeof state) ||
        clv_arena_grow(arena, &states->item, &states->capacity, states->n, sizeof *states->item) != 0)
        return clv_fail_memory(err, "a search for layouts", sizeof *state);
    states->item[states->n++] = state;
    return copy_held(state, arena, p, last_use, at, err);
}

static int by_seconds(const void *a, const void *b)
{
    return clv_search_state_compare(*(clv_search_state *const *)a, *(clv_search_state *const *)b, false);
}

static int by_bytes_first(const void *a, const void *b)
{
    return clv_search_state_compare(*(clv_search_state *const *)a, *(clv_search_state *const *)b, true);
}

void clv_search_states_keep(clv_search_states *states, int most, bool by_bytes, bool *dropped)
{
    if (states->n <= most)
        return;
    *dropped = true;
    qsort(states->item, (size_t)states->n, sizeof *states->item, by_bytes ? by_bytes_first : by_seconds);
    states->n = most;
}

clv_status clv_search_state_load(clv_partitioner *p, const clv_search_state *state, clv_error *err)
{
    for (int v = 1; v < p->graph->n_values; v++)
        p->available[v].n = 0;
    for (int i = 0; i < state->n_held; i++) {
        const clv_held_value *from = &state->held[i];
        clv_available_layouts *to = &p->available[from->value];
        while (to->capacity < from->n)
            if (clv_arena_grow(p->table.arena, &to->sharded, &to->capacity, to->capacity, sizeof *to->sharded) != 0)
                return clv_fail_memory(err, "available layouts", sizeof *to->sharded);
        memcpy(to->sharded, from->sharded, (size_t)from->n * sizeof *to->sharded);
        to->n = from->n;
        to->phase = from->phase;
        to->n_earlier = from->n_earlier;
    }
    return CLV_OK;
}

clv_status clv_search_intern(int *out, clv_partitioner *p, clv_key_cache *interned, int value, const clv_layout *layout,
                             clv_error *err)
{
    clv_key_begin(interned);
    clv_key_add(interned, &value, sizeof value);
    clv_key_add_layout(interned, layout);
    const int *found = clv_key_find(interned);
    if (found) {
        *out = *found;
        return CLV_OK;
    }
    clv_sharded_value made = {
        .value = value, .layout = clv_arena_copy(p->table.arena, layout, sizeof *layout), .alias_of = -1};
    if (!made.layout)
        return clv_fail_memory(err, "a layout", sizeof *layout);
    CLV_TRY(clv_sharding_table_add_value(out, &p->table, &made, err));
    return clv_key_insert(interned, out, sizeof *out) ? CLV_OK : clv_fail_memory(err, "a layout", sizeof *layout);
}
