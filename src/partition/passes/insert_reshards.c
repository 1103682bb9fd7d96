/* insert_reshards.c - tracks in which layouts a value is available, and inserts reshards to reach another one.
 *
 * In: a value and the layout that a reader needs. Out: rows of the table for the steps of the cheapest plan from any
 * available layout; every layout on the way becomes available.
 */
#include "base/error.h"
#include "cleave/text.h"
#include "partition/explain/explain.h"

const char *clv_reshard_after_forward_name(clv_reshard_after_forward reshard)
{
    static const char *const names[] = {
        [CLV_RESHARD_WEIGHTS] = "weights", [CLV_RESHARD_ALL] = "all", [CLV_RESHARD_NONE] = "none"};
    return (unsigned)reshard < sizeof names / sizeof *names ? names[reshard] : "unknown";
}

clv_status clv_partition_add_available(clv_partitioner *p, int value, int sharded, clv_error *err)
{
    clv_available_layouts *at = &p->available[value];
    for (int k = 0; k < at->n; k++)
        if (at->sharded[k] == sharded)
            return CLV_OK;
    if (clv_arena_grow(p->table.arena, &at->sharded, &at->capacity, at->n, sizeof *at->sharded) != 0)
        return clv_fail_memory(err, "available layouts", sizeof *at->sharded);
    if (at->phase != p->phase)
        at->n_earlier = at->n;
    at->phase = p->phase;
    at->sharded[at->n++] = sharded;
    int primal = p->graph->values[value].primal;
    p->table.sharded[sharded].is_gradient |= primal > 0 && p->graph->values[primal].source == CLV_FROM_STATE &&
                                             p->graph->values[primal].role == CLV_ROLE_PARAMETER;
    return CLV_OK;
}

/* If the value is a constraint that gathers, the value before it; -1: it is not. */
static int layout_before_gather(const clv_partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    if (info->source != CLV_FROM_OP || !clv_op_constraint_of(&p->graph->ops[info->op]))
        return -1;
    int before = p->graph->ops[info->op].in[0];
    const clv_layout *from = clv_partition_layout_of(p, p->available[before].sharded[0]);
    const clv_layout *to = clv_partition_layout_of(p, p->available[value].sharded[0]);
    bool more = clv_layout_max_elems(to, info->type.shape) > clv_layout_max_elems(from, info->type.shape);
    return more && !clv_layout_is_partial(from) ? before : -1;
}

/* The first sharded value that is not partial, from which all later readers are served; if there is none, 0. A partial
 * value is reduced once: a second reduction might add in another order, and would not equal the first bit for bit. */
static int first_copy(const clv_partitioner *p, const clv_available_layouts *at)
{
    for (int k = 0; k < at->n; k++)
        if (!clv_layout_is_partial(clv_partition_layout_of(p, at->sharded[k])))
            return k;
    return 0;
}

/* The number of layouts that earlier phases made and, but for the first one, did not keep. */
static int count_freed(const clv_partitioner *p, const clv_available_layouts *at)
{
    const clv_reshard_after_forward how = p->options->reshard_after_forward;
    bool frees = at->is_weight ? how != CLV_RESHARD_NONE : how == CLV_RESHARD_ALL && p->backward;
    return !frees ? 0 : at->phase == p->phase ? at->n_earlier : at->n;
}

/* Whether layout k of a weight is a part of the weight as it was made: by default only what is gathered is freed. */
static bool is_kept_slice(const clv_partitioner *p, const clv_available_layouts *at, int k)
{
    const clv_layout *made = clv_partition_layout_of(p, at->sharded[0]),
                     *copy = clv_partition_layout_of(p, at->sharded[k]);
    const int64_t *shape = p->graph->values[p->table.sharded[at->sharded[0]].value].type.shape;
    return p->options->reshard_after_forward == CLV_RESHARD_WEIGHTS &&
           clv_layout_max_elems(copy, shape) < clv_layout_max_elems(made, shape);
}

clv_status clv_partition_available_layouts(const int **sharded, const clv_layout *const **layouts, int *n,
                                           clv_partitioner *p, int value, clv_error *err)
{
    const clv_available_layouts *at = &p->available[value];
    const int first = first_copy(p, at), n_freed = count_freed(p, at);
    const int before = first < n_freed ? layout_before_gather(p, value) : -1;
    int count = 0;
    int *found = clv_arena_alloc(p->scratch, (size_t)at->n + 1, sizeof *found);
    const clv_layout **in = clv_arena_alloc(p->scratch, (size_t)at->n + 1, sizeof *in);
    if (!found || !in)
        return clv_fail_memory(err, "available layouts", (size_t)at->n * sizeof *in);
    for (int k = first; k < at->n; k++)
        if (k >= n_freed || (k == first ? before < 0 : is_kept_slice(p, at, k)))
            found[count++] = at->sharded[k];
    if (before >= 0)
        found[count++] = p->available[before].sharded[0];
    for (int k = 0; k < count; k++)
        in[k] = clv_partition_layout_of(p, found[k]);
    *sharded = found;
    *layouts = in;
    *n = count;
    return CLV_OK;
}

/* Checks clv_compile_options.max_implicit_bytes. */
static clv_status check_implicit_bytes(const clv_partitioner *p, const clv_sharding_row *row, clv_error *err)
{
    char bytes[CLV_QUANTITY_TEXT];
    int64_t most = p->options->max_implicit_bytes;
    if (!row->explanation.implicit || most <= 0 || row->step->bytes <= (double)most)
        return CLV_OK;
    const char *tensor = clv_graph_name_of(p->graph, row->value);
    clv_print_bytes_exactly(bytes, sizeof bytes, row->step->bytes);
    return clv_fail(err, CLV_ELIMIT,
                    "%s: implicit %s of %s moves %s (max_implicit_bytes: %lld): %s; state one of the two layouts like "
                    "the other, or constrain %s where it is cheap",
                    row->explanation.by, clv_step_name(row->step->kind), tensor, bytes, (long long)most,
                    row->explanation.text, tensor);
}

clv_status clv_partition_insert_step(int *sharded, clv_partitioner *p, const clv_reshard_step *step, int value,
                                     const clv_reshard_reason *why, clv_error *err)
{
    const clv_type *type = &p->graph->values[value].type;
    clv_sharded_value made = {.value = value, .layout = &step->to, .alias_of = -1};
    clv_sharding_row row = {.step = step,
                            .value = value,
                            .from = *sharded,
                            .backward = p->backward,
                            .update = p->update,
                            .block = p->block};
    CLV_TRY(clv_explain_step(&row.explanation, p, why, step, value, err));
    CLV_TRY(check_implicit_bytes(p, &row, err));
    if (p->table.keeps_decisions)
        row.decision.seconds = clv_reshard_step_cost(p->cost, step, type->shape, type->dtype).seconds;
    CLV_TRY(clv_sharding_table_add_value(&row.to, &p->table, &made, err));
    *sharded = row.to;
    return clv_sharding_table_add_row(&p->table, &row, err);
}

/* Adds an alias: every rank holds the same elements under both layouts (only empty shards have other shapes). */
static clv_status add_alias(int *sharded, clv_partitioner *p, const clv_layout *to, clv_error *err)
{
    const clv_sharded_value *from = &p->table.sharded[*sharded];
    clv_sharded_value seen = {.value = from->value,
                              .layout = clv_arena_copy(p->scratch, to, sizeof *to),
                              .alias_of = from->alias_of >= 0 ? from->alias_of : *sharded};
    if (!seen.layout)
        return clv_fail_memory(err, "a layout", sizeof *to);
    return clv_sharding_table_add_value(sharded, &p->table, &seen, err);
}

clv_status clv_partition_insert_reshard(int *out, clv_partitioner *p, int value, const clv_layout *to,
                                        const clv_reshard_reason *why, clv_error *err)
{
    const clv_type *type = &p->graph->values[value].type;
    const clv_reshard_plan *best;
    const clv_layout *const *at;
    const int *sharded;
    int source, n;
    CLV_TRY(clv_partition_available_layouts(&sharded, &at, &n, p, value, err));
    CLV_TRY(clv_reshard_cache_cheapest(&best, &source, p->reshards, at, n, to, type->shape, type->dtype, err));
    *out = sharded[source];
    for (int i = 0; i < best->n_steps; i++) {
        CLV_TRY(clv_partition_insert_step(out, p, &best->steps[i], value, why, err));
        CLV_TRY(clv_partition_add_available(p, value, *out, err));
    }
    if (!clv_layout_equal(clv_partition_layout_of(p, *out), to)) {
        CLV_TRY(add_alias(out, p, to, err));
        CLV_TRY(clv_partition_add_available(p, value, *out, err));
    }
    return CLV_OK;
}
