/* router_losses.c - builds what training adds for routers of experts: load-balancing loss, z-loss, balancing biases. */
#include "graph/graph.h"
#include "nn/router_losses.h"
#include "ops/operand_checks.h"

/* x [rows..., E] summed over rows, each times its weight [rows...]; CLV_NONE: 1. */
static clv_value sum_rows(clv_graph *graph, clv_value x, clv_value row_weights)
{
    const clv_type type = clv_graph_type(graph, x);
    int dims[CLV_MAX_RANK];
    for (int d = 0; d < type.rank; d++)
        dims[d] = d;
    if (clv_valid(row_weights)) {
        clv_type rows = type;
        const int own = clv_graph_type(graph, row_weights).rank;
        for (int d = own; d < rows.rank; d++)
            rows.shape[d] = 1;
        x = clv_mul(graph, x, clv_reshape(graph, row_weights, rows.rank, rows.shape));
    }
    return type.rank > 1 ? clv_reduce(graph, CLV_SUM, x, dims, type.rank - 1, false) : x;
}

/* How many rows chose each expert: [E]. */
static clv_value count_choices(clv_graph *graph, clv_value ids, int64_t experts, clv_value row_weights, clv_dtype dtype)
{
    clv_type type = clv_graph_type(graph, ids), all = {.rank = type.rank + 1};
    for (int d = 0; d < all.rank; d++)
        all.shape[d] = 1;
    all.shape[type.rank] = experts;
    const clv_value zeros = clv_fill(graph, CLV_I32, all.rank, all.shape, 0);
    const clv_value each = clv_reshape(graph, clv_iota(graph, experts, CLV_NONE), all.rank, all.shape);
    type.shape[type.rank++] = 1;
    const clv_value chosen = clv_add(graph, clv_reshape(graph, ids, type.rank, type.shape), zeros);
    return sum_rows(graph, clv_cast(graph, clv_equal(graph, chosen, each), dtype), row_weights);
}

static clv_value add_to(clv_graph *graph, clv_value sum, clv_value x)
{
    return clv_valid(sum) ? clv_add(graph, sum, x) : x;
}

clv_value clv_load_balancing_loss(clv_graph *graph, const clv_value *logits, const clv_value *ids, int n,
                                  clv_value mask)
{
    clv_value chosen = CLV_NONE, scores = CLV_NONE, rows = CLV_NONE;
    if (!clv_graph_require(graph, logits && ids && n > 0, __func__, "logits and ids of at least one router"))
        return CLV_NONE;
    const clv_type type = clv_graph_type(graph, logits[0]);
    const clv_dtype wide = clv_statistics_dtype(type.dtype);
    const int64_t experts = type.rank > 0 ? type.shape[type.rank - 1] : 0;
    double all = n;
    for (int d = 0; d + 1 < type.rank; d++)
        all *= (double)type.shape[d];
    const clv_value row_weights = clv_valid(mask) ? clv_cast(graph, mask, wide) : CLV_NONE;
    for (int i = 0; i < n && clv_graph_ok(graph); i++) {
        const clv_value score = clv_softmax(graph, clv_cast(graph, logits[i], wide));
        chosen = add_to(graph, chosen, count_choices(graph, ids[i], experts, row_weights, wide));
        scores = add_to(graph, scores, sum_rows(graph, score, row_weights));
    }
    const clv_value product = clv_reduce(graph, CLV_SUM, clv_mul(graph, chosen, scores), (int[]){0}, 1, false);
    if (!clv_valid(mask))
        return clv_scale(graph, product, (double)experts / (all * all));
    int dims[CLV_MAX_RANK];
    for (int d = 0; d + 1 < type.rank; d++)
        dims[d] = d;
    rows = clv_reduce(graph, CLV_SUM, row_weights, dims, type.rank - 1, false);
    const double routers = n;
    return clv_scale(graph, clv_div(graph, product, clv_mul(graph, rows, rows)), (double)experts / (routers * routers));
}

clv_value clv_router_z_loss(clv_graph *graph, clv_value logits)
{
    const clv_type type = clv_graph_type(graph, logits);
    int dims[CLV_MAX_RANK], last = type.rank - 1;
    if (!clv_graph_require(graph, type.rank > 0, __func__, "logits [...,E]"))
        return CLV_NONE;
    for (int d = 0; d < type.rank; d++)
        dims[d] = d;
    logits = clv_cast(graph, logits, clv_statistics_dtype(type.dtype));
    const clv_value most = clv_reduce(graph, CLV_MAX, logits, &last, 1, true);
    const clv_value sum =
        clv_reduce(graph, CLV_SUM, clv_unary(graph, CLV_EXP, clv_sub(graph, logits, most)), &last, 1, true);
    const clv_value z = clv_add(graph, clv_unary(graph, CLV_LOG, sum), most);
    return clv_reduce(graph, CLV_MEAN, clv_mul(graph, z, z), dims, type.rank, false);
}

void clv_nn_record_router(clv_graph *graph, clv_value logits, clv_value ids, clv_value bias, clv_value mask)
{
    clv_graph_routers *r = graph->routers;
    if (!r || !clv_graph_ok(graph) || r->n == r->room)
        return;
    if (r->balances) {
        const clv_type type = clv_graph_type(graph, bias);
        r->bias[r->n] = bias;
        r->load[r->n] = count_choices(graph, ids, type.shape[0],
                                      clv_valid(mask) ? clv_cast(graph, mask, type.dtype) : CLV_NONE, type.dtype);
    }
    r->logits[r->n] = logits;
    r->ids[r->n++] = ids;
}

void clv_nn_balance_router(clv_graph *graph, clv_value bias, clv_value load, double rate, clv_value finite)
{
    const clv_layout whole = clv_layout_replicated(1);
    load = clv_constrain(graph, load, &whole);
    const clv_value mean = clv_reduce(graph, CLV_MEAN, load, (int[]){0}, 1, true);
    const clv_value sign = clv_pointwise(graph, CLV_SIGN, clv_sub(graph, mean, load), CLV_NONE);
    clv_value changed = clv_add(graph, bias, clv_scale(graph, sign, rate));
    if (clv_valid(finite))
        changed = clv_where(graph, clv_cast(graph, clv_equal(graph, finite, finite), CLV_BOOL), changed, bias);
    clv_assign(graph, bias, changed);
}

/* How many elements are `number`: an f64 scalar. */
static clv_value count_equal(clv_graph *graph, clv_value x, int64_t number)
{
    const clv_type type = clv_graph_type(graph, x);
    int dims[CLV_MAX_RANK];
    for (int d = 0; d < type.rank; d++)
        dims[d] = d;
    const clv_value all = clv_fill(graph, type.dtype, type.rank, type.shape, (double)number);
    return clv_reduce(graph, CLV_SUM, clv_cast(graph, clv_equal(graph, x, all), CLV_F64), dims, type.rank, false);
}

void clv_nn_record_places(clv_graph *graph, clv_value ids, clv_value places, int64_t none)
{
    clv_graph_routers *r = graph->routers;
    if (!r || !clv_graph_ok(graph))
        return;
    const clv_value sum = clv_sub(graph, count_equal(graph, places, none), count_equal(graph, ids, -1));
    r->dropped = clv_valid(r->dropped) ? clv_add(graph, r->dropped, sum) : sum;
}
