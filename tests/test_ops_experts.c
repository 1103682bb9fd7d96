/* Router and experts: values against plain loops, gradients against central differences, definitions on shards. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/nn.h"
#include "cleave/op.h"
#include "graph/graph.h"
#include "graph_interpreter.h"
#include "must.h"
#include "unit_test.h"

/* ---- router ---- */

enum { MOST_EXPERTS = 12 };

static double score_of(const double *logits, int n, int e, bool sigmoid)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(logits[i]);
    return sigmoid ? 1 / (1 + exp(-logits[e])) : exp(logits[e]) / sum;
}

/* Whether the expert's group is among the best by the sum of its two best. */
static bool group_chosen(const double *choice, int n, const clv_router_options *o, int e)
{
    const int groups = o->groups ? (int)o->groups : 1, each = n / groups;
    double sum[MOST_EXPERTS];
    int better = 0;
    for (int g = 0; g < groups; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (int i = g * each; i < (g + 1) * each; i++) {
            second = choice[i] > first ? first : fmax(second, choice[i]);
            first = fmax(first, choice[i]);
        }
        sum[g] = first + (each > 1 ? second : 0);
    }
    for (int g = 0; g < groups; g++)
        better += sum[g] > sum[e / each];
    return !o->top_groups || better < o->top_groups;
}

static void check_router(const clv_router_options *given, int rows, int n)
{
    clv_router_options o = *given;
    clv_graph *graph = must_graph("model=1");
    clv_value logits = clv_input(graph, "logits", CLV_F64, 2, (int64_t[]){rows, n}, NULL), weights, ids;
    clv_value bias = clv_input(graph, "bias", CLV_F64, 1, (int64_t[]){n}, NULL);
    o.bias = o.sigmoid ? bias : CLV_NONE;
    clv_router(graph, logits, &o, &weights, &ids);
    graph_eval *eval = graph_eval_new(graph, 11);
    graph_eval_must_run(eval, -1);
    for (int r = 0; r < rows; r++) {
        double l[MOST_EXPERTS], s[MOST_EXPERTS], choice[MOST_EXPERTS], chosen = 0;
        for (int e = 0; e < n; e++)
            l[e] = graph_eval_get(eval, logits, r * n + e);
        for (int e = 0; e < n; e++) {
            s[e] = score_of(l, n, e, o.sigmoid);
            choice[e] = s[e] + (o.sigmoid ? graph_eval_get(eval, bias, e) : 0);
        }
        for (int j = 0; j < o.top_k; j++)
            chosen += s[(int)graph_eval_get(eval, ids, r * o.top_k + j)];
        for (int j = 0; j < o.top_k; j++) {
            int e = (int)graph_eval_get(eval, ids, r * o.top_k + j), better = 0;
            for (int i = 0; i < n; i++)
                better += group_chosen(choice, n, &o, i) && choice[i] > choice[e];
            assert_int_equal(better, j);
            assert_true(group_chosen(choice, n, &o, e));
            double want = (o.scale != 0 ? o.scale : 1) * s[e] / (o.normalised ? chosen : 1);
            double got = graph_eval_get(eval, weights, r * o.top_k + j);
            if (!(fabs(got - want) <= 1e-12))
                fail_msg("row %d, choice %d: %.17g, expected %.17g", r, j, got, want);
        }
    }
    graph_eval_free(eval);
    clv_graph_free(graph);
}

static const clv_router_options routers[] = {
    {.top_k = 1},
    {.top_k = 2, .normalised = true},
    {.top_k = 3},
    {.top_k = 12, .normalised = true},
    {.top_k = 2, .sigmoid = true},
    {.top_k = 4, .sigmoid = true, .normalised = true, .scale = 2.5, .groups = 4, .top_groups = 2},
    {.top_k = 2, .sigmoid = true, .normalised = true, .groups = 6, .top_groups = 1},
    {.top_k = 5, .groups = 12, .top_groups = 5},
};
enum { N_ROUTERS = sizeof routers / sizeof *routers };

static void test_router_values(void **state)
{
    for (int i = 0; i < N_ROUTERS; i++)
        check_router(&routers[i], 9, 12);
}

/* Of equal scores the first expert; NaN fills the weights of its row, and its ids stay distinct. */
static void test_router_extremes(void **state)
{
    const double x[] = {1, 1, 1, 1, 0, 3, 3, 0, 1, NAN, 1, 1};
    clv_graph *graph = must_graph("model=1");
    clv_value logits = clv_input(graph, "logits", CLV_F32, 2, (int64_t[]){3, 4}, NULL), weights, ids;
    clv_router(graph, logits, &(clv_router_options){.top_k = 2, .normalised = true}, &weights, &ids);
    graph_eval *eval = graph_eval_new(graph, 1);
    graph_eval_fill(eval, logits, x);
    graph_eval_must_run(eval, -1);
    assert_true(graph_eval_get(eval, ids, 0) == 0 && graph_eval_get(eval, ids, 1) == 1);
    assert_true(graph_eval_get(eval, ids, 2) == 1 && graph_eval_get(eval, ids, 3) == 2);
    assert_true(graph_eval_get(eval, weights, 0) == 0.5 && graph_eval_get(eval, weights, 2) == 0.5);
    assert_true(isnan(graph_eval_get(eval, weights, 4)) && isnan(graph_eval_get(eval, weights, 5)));
    assert_true(graph_eval_get(eval, ids, 4) != graph_eval_get(eval, ids, 5));
    graph_eval_free(eval);
    clv_graph_free(graph);
}

static void test_router_gradient(void **state)
{
    for (int i = 0; i < N_ROUTERS; i++) {
        clv_router_options o = routers[i];
        clv_graph *graph = must_graph("model=1");
        clv_value logits = clv_input(graph, "logits", CLV_F64, 3, (int64_t[]){2, 3, 12}, NULL), weights, ids;
        o.bias = o.sigmoid ? clv_input(graph, "bias", CLV_F64, 1, (int64_t[]){12}, NULL) : CLV_NONE;
        clv_router(graph, logits, &o, &weights, &ids);
        assert_true(check_gradient(graph, weights, &logits, 1, NULL, NULL) > 0);
        clv_graph_free(graph);
    }
}

/* ---- experts ---- */

enum { ROWS = 7, WIDTH = 5, EXPERTS = 4, TOP = 2, FFN = 3 };

/* Expert 3 is not chosen, one row chooses expert 1 twice, one id is out of range. */
static const double some_ids[ROWS * TOP] = {0, 1, 1, 0, 2, 1, 1, 1, 2, 0, 1, 9, 1, 2};

typedef struct mixture {
    clv_graph *graph;
    clv_value x, ids, weights, gate_up, down, y;
} mixture;

static mixture new_mixture(clv_dtype dtype, clv_unary_kind activation)
{
    mixture m = {.graph = must_graph("model=1")};
    m.x = clv_input(m.graph, "x", dtype, 2, (int64_t[]){ROWS, WIDTH}, NULL);
    m.ids = clv_input(m.graph, "ids", CLV_I32, 2, (int64_t[]){ROWS, TOP}, NULL);
    m.weights = clv_input(m.graph, "weights", dtype == CLV_F64 ? CLV_F64 : CLV_F32, 2, (int64_t[]){ROWS, TOP}, NULL);
    m.gate_up = clv_input(m.graph, "gate_up", dtype, 4, (int64_t[]){EXPERTS, WIDTH, 2, FFN}, NULL);
    m.down = clv_input(m.graph, "down", dtype, 3, (int64_t[]){EXPERTS, FFN, WIDTH}, NULL);
    m.y = clv_experts(m.graph, m.x, m.ids, m.weights, m.gate_up, m.down, activation);
    return m;
}

static double expert_of(graph_eval *eval, const mixture *m, int row, int e, int n)
{
    double y = 0;
    for (int f = 0; f < FFN; f++) {
        double gate = 0, up = 0;
        for (int k = 0; k < WIDTH; k++) {
            double x = graph_eval_get(eval, m->x, row * WIDTH + k);
            gate += x * graph_eval_get(eval, m->gate_up, ((e * WIDTH + k) * 2 + 0) * FFN + f);
            up += x * graph_eval_get(eval, m->gate_up, ((e * WIDTH + k) * 2 + 1) * FFN + f);
        }
        y += gate / (1 + exp(-gate)) * up * graph_eval_get(eval, m->down, (e * FFN + f) * WIDTH + n);
    }
    return y;
}

static void test_experts_values(void **state)
{
    mixture m = new_mixture(CLV_F64, CLV_SILU);
    graph_eval *eval = graph_eval_new(m.graph, 5);
    graph_eval_fill(eval, m.ids, some_ids);
    graph_eval_must_run(eval, -1);
    for (int r = 0; r < ROWS; r++)
        for (int n = 0; n < WIDTH; n++) {
            double want = 0, got = graph_eval_get(eval, m.y, r * WIDTH + n);
            for (int j = 0; j < TOP; j++)
                if (some_ids[r * TOP + j] < EXPERTS)
                    want += graph_eval_get(eval, m.weights, r * TOP + j) *
                            expert_of(eval, &m, r, (int)some_ids[r * TOP + j], n);
            if (!(fabs(got - want) <= 1e-12))
                fail_msg("row %d, column %d: %.17g, expected %.17g", r, n, got, want);
        }
    graph_eval_free(eval);
    clv_graph_free(m.graph);
}

static void set_ids(graph_eval *eval, void *context)
{
    graph_eval_fill(eval, ((mixture *)context)->ids, some_ids);
}

static void test_experts_gradient(void **state)
{
    const clv_unary_kind kinds[] = {CLV_SILU, CLV_GELU, CLV_GELU_TANH};
    for (int i = 0; i < 3; i++) {
        mixture m = new_mixture(CLV_F64, kinds[i]);
        const clv_value wrt[] = {m.x, m.weights, m.gate_up, m.down};
        assert_true(check_gradient(m.graph, m.y, wrt, 4, set_ids, &m) > 0);
        clv_graph_free(m.graph);
    }
}

/* Several tiles of an expert, uneven: all rows choose expert 0, some expert 2. */
static void test_definition(void **state)
{
    enum { MANY = 300 };
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16, CLV_F16};
    static int32_t ids[MANY * TOP];
    for (int i = 0; i < MANY * TOP; i++)
        ids[i] = i % TOP == 0 ? 0 : i % 7 == 0 ? 2 : 4 - i % 3;
    for (int rows = 6; rows <= MANY; rows *= 50)
        for (int i = 0; i < 4; i++) {
            const clv_dtype dtype = dtypes[i], wide = dtype == CLV_F64 ? CLV_F64 : CLV_F32;
            clv_graph *graph = must_graph("model=1");
            clv_error err = {0};
            clv_value in[] = {clv_input(graph, "x", dtype, 3, (int64_t[]){2, rows / 2, WIDTH}, NULL),
                              clv_input(graph, "ids", CLV_I32, 3, (int64_t[]){2, rows / 2, TOP}, NULL),
                              clv_input(graph, "weights", wide, 3, (int64_t[]){2, rows / 2, TOP}, NULL),
                              clv_input(graph, "gate_up", dtype, 4, (int64_t[]){5, WIDTH, 2, FFN}, NULL),
                              clv_input(graph, "down", dtype, 3, (int64_t[]){5, FFN, WIDTH}, NULL)};
            clv_value y = clv_experts(graph, in[0], in[1], in[2], in[3], in[4], CLV_SILU), d[4];
            const clv_value wrt[] = {in[0], in[2], in[3], in[4]};
            clv_gradients(graph, y, clv_input(graph, "d_y", dtype, 3, (int64_t[]){2, rows / 2, WIDTH}, NULL), wrt, 4,
                          d);
            must(clv_graph_status(graph, &err), &err);
            graph_eval *eval = graph_eval_new(graph, 3);
            memcpy(graph_eval_data(eval, in[1]), ids, (size_t)(rows * TOP) * sizeof *ids);
            graph_eval_must_run(eval, -1);
            assert_true(graph_eval_check_rules(eval) > 0);
            graph_eval_free(eval);
            clv_graph_free(graph);
        }
}

/* Logits of a row lie far apart: differences do not change the choice. */
static void test_router_definition(void **state)
{
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16, CLV_F16};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < N_ROUTERS; k++) {
            clv_graph *graph = must_graph("model=1");
            clv_router_options o = routers[k];
            clv_value logits = clv_input(graph, "logits", dtypes[i], 3, (int64_t[]){2, 5, 12}, NULL), weights, ids;
            clv_router(graph, logits, &o, &weights, &ids);
            graph_eval *eval = graph_eval_new(graph, 3);
            for (int e = 0; e < 2 * 5 * 12; e++)
                graph_eval_set(eval, logits, e, (e * 7 % 12 - 6) * 0.25);
            graph_eval_must_run(eval, -1);
            assert_true(graph_eval_check_rules(eval) > 0);
            graph_eval_free(eval);
            clv_graph_free(graph);
        }
}

/* ---- places ---- */

enum { GROUPS = 2, PLACES = 3, CHOSEN = GROUPS * ROWS * TOP };

/* Expert 1 is full after three copies of a group; 9 and -1 are no experts. */
static int32_t chosen_id(int i)
{
    return i == CHOSEN - 1 ? -1 : (int32_t)some_ids[i % (ROWS * TOP)];
}

/* By hand: the copy's position among those before it in its group that chose the same expert. */
static int place_of(int i)
{
    const int first = i / (ROWS * TOP) * ROWS * TOP;
    int before = 0;
    for (int k = first; k < i; k++)
        before += chosen_id(k) == chosen_id(i);
    return chosen_id(i) < 0 || chosen_id(i) >= EXPERTS || before >= PLACES ? EXPERTS * PLACES
                                                                           : chosen_id(i) * PLACES + before;
}

typedef struct dispatch_graph {
    clv_graph *graph;
    clv_value x, ids, weights, places, placed, y;
} dispatch_graph;

static dispatch_graph new_dispatch(clv_dtype dtype)
{
    dispatch_graph g = {.graph = must_graph("model=1")};
    g.x = clv_input(g.graph, "x", dtype, 3, (int64_t[]){GROUPS, ROWS, WIDTH}, NULL);
    g.ids = clv_input(g.graph, "ids", CLV_I32, 3, (int64_t[]){GROUPS, ROWS, TOP}, NULL);
    g.weights =
        clv_input(g.graph, "weights", dtype == CLV_F64 ? CLV_F64 : CLV_F32, 3, (int64_t[]){GROUPS, ROWS, TOP}, NULL);
    g.places = clv_expert_places(g.graph, g.ids, EXPERTS, PLACES);
    g.placed = clv_expert_dispatch(g.graph, g.x, g.places, EXPERTS, PLACES);
    g.y = clv_expert_combine(g.graph, clv_mul(g.graph, g.placed, g.placed), g.places, g.weights);
    return g;
}

static void set_chosen(graph_eval *eval, void *context)
{
    for (int i = 0; i < CHOSEN; i++)
        ((int32_t *)graph_eval_data(eval, ((dispatch_graph *)context)->ids))[i] = chosen_id(i);
}

static void test_places(void **state)
{
    dispatch_graph g = new_dispatch(CLV_F64);
    graph_eval *eval = graph_eval_new(g.graph, 17);
    bool filled[GROUPS * EXPERTS * PLACES] = {false};
    int dropped = 0;
    set_chosen(eval, &g);
    graph_eval_must_run(eval, -1);
    for (int i = 0; i < CHOSEN; i++) {
        const int at = place_of(i), row = i / TOP, slot = row / ROWS * EXPERTS * PLACES + at;
        assert_int_equal((int)graph_eval_get(eval, g.places, i), at);
        dropped += at == EXPERTS * PLACES;
        for (int m = 0; at < EXPERTS * PLACES && m < WIDTH; m++)
            assert_true(graph_eval_get(eval, g.placed, slot * WIDTH + m) == graph_eval_get(eval, g.x, row * WIDTH + m));
        if (at < EXPERTS * PLACES)
            filled[slot] = true;
    }
    assert_true(dropped > 4 && dropped < CHOSEN / 2);
    for (int i = 0; i < GROUPS * EXPERTS * PLACES * WIDTH; i++)
        assert_true(filled[i / WIDTH] || graph_eval_get(eval, g.placed, i) == 0);
    for (int i = 0; i < GROUPS * ROWS * WIDTH; i++) {
        const double x = graph_eval_get(eval, g.x, i);
        double want = 0;
        for (int j = i / WIDTH * TOP; j < (i / WIDTH + 1) * TOP; j++)
            want += place_of(j) < EXPERTS * PLACES ? graph_eval_get(eval, g.weights, j) * x * x : 0;
        assert_true(fabs(graph_eval_get(eval, g.y, i) - want) <= 1e-14);
    }
    graph_eval_free(eval);
    const clv_value wrt[] = {g.x, g.weights};
    assert_true(check_gradient(g.graph, g.y, wrt, 2, set_chosen, &g) > 0);
    clv_graph_free(g.graph);
}

/* Also of weights that a dispatch has: in the gradient of combine. */
static void test_dispatch_definition(void **state)
{
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16, CLV_F16};
    for (int i = 0; i < 4; i++) {
        dispatch_graph g = new_dispatch(dtypes[i]);
        clv_error err = {0};
        clv_value d[2];
        const clv_value wrt[] = {g.x, g.weights};
        clv_gradients(g.graph, g.y, clv_input(g.graph, "d_y", dtypes[i], 3, (int64_t[]){GROUPS, ROWS, WIDTH}, NULL),
                      wrt, 2, d);
        must(clv_graph_status(g.graph, &err), &err);
        graph_eval *eval = graph_eval_new(g.graph, 3);
        set_chosen(eval, &g);
        graph_eval_must_run(eval, -1);
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(g.graph);
    }
}

/* What rows hold that the mask leaves out changes no other row: they take no place. */
static void test_masked_rows_take_no_place(void **state)
{
    enum { LEFT_OUT = 4 };
    clv_graph *graph = must_graph("model=1");
    const clv_axis_rules rules = clv_graph_axis_rules(graph, NULL);
    const clv_value x = clv_input(graph, "x", CLV_F64, 3, (int64_t[]){1, ROWS, WIDTH}, NULL);
    const clv_value mask = clv_input(graph, "mask", CLV_U8, 2, (int64_t[]){1, ROWS}, NULL);
    const clv_experts_options how = {.experts = 2,
                                     .top_k = 1,
                                     .ffn = FFN,
                                     .activation = CLV_SILU,
                                     .init = {CLV_INIT_NORMAL, 1},
                                     .output_init = {CLV_INIT_NORMAL, 1},
                                     .mask = mask,
                                     .capacity_factor = 0.5};
    const clv_value y = clv_parallel_experts(graph, x, &rules, &how);
    double first[ROWS * WIDTH];
    bool kept = false;
    for (int turn = 0; turn < 8; turn++) {
        graph_eval *eval = graph_eval_new(graph, 3);
        for (int r = 0; r < ROWS; r++)
            graph_eval_set(eval, mask, r, r >= LEFT_OUT);
        for (int i = 0; turn > 0 && i < LEFT_OUT * WIDTH; i++)
            graph_eval_set(eval, x, i, sin(turn * 100 + i));
        graph_eval_must_run(eval, -1);
        for (int i = LEFT_OUT * WIDTH; i < ROWS * WIDTH; i++) {
            const double got = graph_eval_get(eval, y, i);
            first[i] = turn == 0 ? got : first[i];
            kept = kept || got != 0;
            assert_true(got == first[i]);
        }
        graph_eval_free(eval);
    }
    assert_true(kept);
    clv_graph_free(graph);
}

static void fails(clv_graph *graph, clv_status status, const char *part)
{
    clv_error err = {0};
    assert_int_equal(clv_graph_status(graph, &err), status);
    if (!strstr(err.message, part))
        fail_msg("'%s' is not in '%s'", part, err.message);
    clv_graph_free(graph);
}

static void test_bad_places(void **state)
{
    dispatch_graph g = new_dispatch(CLV_F32);
    clv_expert_places(g.graph, g.ids, EXPERTS, 0);
    fails(g.graph, CLV_EINVAL, "4 experts of 0 places; valid: 1 and above, together less than 2^31");
    g = new_dispatch(CLV_F32);
    clv_expert_places(g.graph, g.x, EXPERTS, 1);
    fails(g.graph, CLV_EDTYPE, "ids are f32; valid: i32");
    g = new_dispatch(CLV_F32);
    clv_expert_dispatch(g.graph, clv_reshape(g.graph, g.x, 2, (int64_t[]){GROUPS * ROWS, WIDTH}), g.places, EXPERTS, 1);
    fails(g.graph, CLV_ESHAPE, "valid: i32 [...,top_k] for rows");
    g = new_dispatch(CLV_F32);
    clv_expert_combine(g.graph, g.x, g.places, g.weights);
    fails(g.graph, CLV_ESHAPE, "at places");
    g = new_dispatch(CLV_F32);
    clv_expert_combine(g.graph, g.placed, g.places, g.ids);
    fails(g.graph, CLV_ESHAPE, "weights are");
    clv_graph *graph = must_graph("model=1");
    const clv_axis_rules rules = clv_graph_axis_rules(graph, NULL);
    clv_parallel_experts(graph, clv_input(graph, "x", CLV_F32, 2, (int64_t[]){ROWS, WIDTH}, NULL), &rules,
                         &(clv_experts_options){.experts = EXPERTS, .top_k = TOP, .ffn = FFN, .capacity_factor = -1});
    fails(graph, CLV_EINVAL, "the capacity factor is -1; valid: 0 to 1000");
}

/* ---- losses ---- */

enum { ROUTERS = 2, BATCH = 2, SEQ = 3, CHOICES = 5 };

static const double a_mask[BATCH * SEQ] = {1, 1, 0, 1, 0, 1};

static void set_mask(graph_eval *eval, void *context)
{
    if (clv_valid(*(clv_value *)context))
        graph_eval_fill(eval, *(clv_value *)context, a_mask);
}

/* Of two routers, with and without a mask: against the formula, and its gradient. */
static void check_balance(bool masked)
{
    clv_graph *graph = must_graph("model=1");
    clv_value logits[ROUTERS], ids[ROUTERS], weights,
        mask = masked ? clv_input(graph, "mask", CLV_U8, 2, (int64_t[]){BATCH, SEQ}, NULL) : CLV_NONE;
    double loss = 0, rows = 0;
    for (int i = 0; i < ROUTERS; i++) {
        logits[i] = clv_input(graph, i ? "b" : "a", CLV_F64, 3, (int64_t[]){BATCH, SEQ, CHOICES}, NULL);
        clv_router(graph, logits[i], &(clv_router_options){.top_k = 2}, &weights, &ids[i]);
    }
    clv_value value = clv_load_balancing_loss(graph, logits, ids, ROUTERS, mask);
    graph_eval *eval = graph_eval_new(graph, 7);
    set_mask(eval, &mask);
    graph_eval_must_run(eval, -1);
    for (int r = 0; r < BATCH * SEQ; r++)
        rows += ROUTERS * (masked ? a_mask[r] : 1);
    for (int e = 0; e < CHOICES; e++) {
        double chosen = 0, score = 0;
        for (int i = 0; i < ROUTERS; i++)
            for (int r = 0; r < BATCH * SEQ; r++) {
                double l[CHOICES], counts = masked ? a_mask[r] : 1;
                for (int k = 0; k < CHOICES; k++)
                    l[k] = graph_eval_get(eval, logits[i], r * CHOICES + k);
                for (int j = 0; j < 2; j++)
                    chosen += counts * (graph_eval_get(eval, ids[i], r * 2 + j) == e);
                score += counts * score_of(l, CHOICES, e, false);
            }
        loss += CHOICES * chosen / rows * score / rows;
    }
    assert_true(fabs(graph_eval_get(eval, value, 0) - loss) <= 1e-12);
    graph_eval_free(eval);
    assert_true(check_gradient(graph, value, logits, ROUTERS, set_mask, &mask) > 0);
    clv_graph_free(graph);
}

static void test_load_balancing_loss(void **state)
{
    check_balance(false);
    check_balance(true);
}

static void test_z_loss(void **state)
{
    clv_graph *graph = must_graph("model=1");
    clv_value logits = clv_input(graph, "logits", CLV_F64, 3, (int64_t[]){BATCH, SEQ, CHOICES}, NULL);
    clv_value value = clv_router_z_loss(graph, logits);
    graph_eval *eval = graph_eval_new(graph, 9);
    double want = 0;
    graph_eval_must_run(eval, -1);
    for (int r = 0; r < BATCH * SEQ; r++) {
        double sum = 0;
        for (int e = 0; e < CHOICES; e++)
            sum += exp(graph_eval_get(eval, logits, r * CHOICES + e));
        want += log(sum) * log(sum) / (BATCH * SEQ);
    }
    assert_true(fabs(graph_eval_get(eval, value, 0) - want) <= 1e-12);
    graph_eval_free(eval);
    assert_true(check_gradient(graph, value, &logits, 1, NULL, NULL) > 0);
    clv_graph_free(graph);
}

/* ---- refused ---- */

static clv_status status_of(clv_graph *graph)
{
    clv_error err = {0};
    clv_status status = clv_graph_status(graph, &err);
    clv_graph_free(graph);
    return status;
}

static clv_status route(clv_dtype dtype, int64_t experts, clv_router_options o)
{
    clv_graph *graph = must_graph("model=1");
    clv_value weights, ids, logits = clv_input(graph, "logits", dtype, 2, (int64_t[]){3, experts}, NULL);
    clv_router(graph, logits, &o, &weights, &ids);
    assert_false(clv_graph_ok(graph) && !clv_valid(weights));
    return status_of(graph);
}

static void test_refused(void **state)
{
    assert_int_equal(route(CLV_F32, 4, (clv_router_options){.top_k = 4}), CLV_OK);
    assert_int_equal(route(CLV_F32, 4, (clv_router_options){.top_k = 5}), CLV_EINVAL);
    assert_int_equal(route(CLV_F32, 4, (clv_router_options){0}), CLV_EINVAL);
    assert_int_equal(route(CLV_F32, 4, (clv_router_options){.top_k = 1, .groups = 3}), CLV_EINVAL);
    assert_int_equal(route(CLV_F32, 4, (clv_router_options){.top_k = 3, .groups = 2, .top_groups = 1}), CLV_EINVAL);
    assert_int_equal(route(CLV_F32, 4, (clv_router_options){.top_k = 1, .groups = 2, .top_groups = 3}), CLV_EINVAL);
    assert_int_equal(route(CLV_F32, 2049, (clv_router_options){.top_k = 1}), CLV_ELIMIT);
    assert_int_equal(route(CLV_I32, 4, (clv_router_options){.top_k = 1}), CLV_EDTYPE);
    mixture m = new_mixture(CLV_F32, CLV_TANH);
    assert_int_equal(status_of(m.graph), CLV_EINVAL);
    m = new_mixture(CLV_F32, CLV_SILU);
    clv_experts(m.graph, m.x, m.ids, m.weights, m.down, m.down, CLV_SILU);
    assert_int_equal(status_of(m.graph), CLV_ESHAPE);
    m = new_mixture(CLV_F32, CLV_SILU);
    clv_experts(m.graph, m.x, m.ids, m.x, m.gate_up, m.down, CLV_SILU);
    assert_int_equal(status_of(m.graph), CLV_ESHAPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_values),
        cmocka_unit_test(test_router_extremes),
        cmocka_unit_test(test_router_gradient),
        cmocka_unit_test(test_experts_values),
        cmocka_unit_test(test_experts_gradient),
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_load_balancing_loss),
        cmocka_unit_test(test_z_loss),
        cmocka_unit_test(test_router_definition),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_dispatch_definition),
        cmocka_unit_test(test_bad_places),
        cmocka_unit_test(test_masked_rows_take_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
