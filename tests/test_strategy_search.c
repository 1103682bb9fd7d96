/* test_strategy_search.c - branch and bound against the plain search that prices every assignment in order: every op
 * and its gradient, on random shapes, meshes, layouts at hand, targets and weights that stay in place. CLV_SEED runs
 * one case, CLV_CASES that many. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpt_block.h"
#include "partition/passes/passes.h"
#include "partition/sharding/sharding_projection.h"
#include "unit_test.h"

enum { CASES = 40, OPS_A_CASE = 6, MOST_ASSIGNMENTS = 500 };

typedef struct maker {
    uint64_t state;
    clv_mesh mesh;
    clv_graph *graph;
} maker;

static int pick(maker *m, int n)
{
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((m->state >> 33) % (uint64_t)n);
}

/* ---- a graph of every kind of op ---- */

static void random_mesh(maker *m)
{
    static const int64_t sizes[] = {2, 2, 2, 3, 4, 6};
    m->mesh.n_axes = 1 + pick(m, 3);
    for (int a = 0; a < m->mesh.n_axes; a++) {
        m->mesh.axis[a].name[0] = (char)('x' + a);
        m->mesh.axis[a].size = sizes[pick(m, 6)];
    }
}

static clv_value weight(maker *m, const char *name, int rank, const int64_t *shape)
{
    return clv_state(m->graph, name, CLV_F32, rank, shape, NULL, (clv_init){CLV_INIT_NORMAL, 1});
}

/* Dimensions of a few elements or of many, even or not. */
static int64_t size(maker *m)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 6, 8, 16, 64, 7, 5};
    return sizes[pick(m, 10)] * (pick(m, 3) ? 1 : 64);
}

static void build(maker *m)
{
    clv_graph *g = m->graph;
    int64_t b = size(m), s = size(m), k = 1 + pick(m, 4), h = k * (1 + pick(m, 4)), d = 2 * (1 + pick(m, 4)),
            w = size(m), v = size(m);
    clv_value ids = clv_input(g, "ids", CLV_I64, 2, (int64_t[]){b, s}, NULL);
    clv_value x = clv_embedding(g, weight(m, "table", 2, (int64_t[]){v, w}), ids);
    clv_value n = pick(m, 2) ? clv_rms_norm(g, x, weight(m, "gain", 1, &w), 1e-5) : clv_unary(g, CLV_TANH, x);
    clv_value q = clv_einsum(g, "bsm,mhd->bshd", n, weight(m, "q", 3, (int64_t[]){w, h, d}));
    clv_value kv = clv_einsum(g, "bsm,mjkd->bsjkd", n, weight(m, "kv", 4, (int64_t[]){w, 2, k, d}));
    clv_value a = clv_attention(g, q, kv, NULL);
    clv_value o = clv_einsum(g, "bshd,hdm->bsm", a, weight(m, "o", 3, (int64_t[]){h, d, w}));
    x = clv_add(g, x, clv_add(g, o, weight(m, "bias", 1, &w)));
    clv_value flat = clv_reshape(g, x, 2, (int64_t[]){b * s, w});
    flat = clv_concat(g, (clv_value[]){flat, clv_transpose(g, clv_transpose(g, flat, (int[]){1, 0}), (int[]){1, 0})}, 2,
                      1);
    flat = clv_slice(g, flat, (int64_t[]){0, w}, (int64_t[]){b * s, 2 * w});
    clv_value most = clv_reduce(g, CLV_MAX, flat, (int[]){1}, 1, true);
    flat = clv_softmax(g, clv_sub(g, flat, most));
    clv_value logits = clv_einsum(g, "sm,vm->sv", flat, weight(m, "head", 2, (int64_t[]){v, w}));
    clv_value labels = clv_reshape(g, ids, 1, (int64_t[]){b * s});
    clv_value loss = clv_reduce(g, CLV_SUM, clv_cross_entropy(g, logits, labels, -100), (int[]){0}, 1, false);
    clv_value wrt[8], grads[8];
    int n_wrt = clv_graph_parameters(g, wrt, 8);
    clv_gradients(g, loss, CLV_NONE, wrt, n_wrt, grads);
}

/* ---- random machines ---- */

/* Measured rates of steps and ops by growing work: faster and slower as it grows, so that no bound may lean on either.
 */
static void measure(maker *m, clv_rates *rates)
{
    static const char *const names[] = {"all_gather", "reduce_scatter", "all_reduce", "dot_general",
                                        "map",        "normalize"};
    for (int i = 0; i < 6; i++) {
        clv_rate *rate = pick(m, 2) ? clv_rates_add(rates) : NULL;
        if (!rate)
            continue;
        snprintf(rate->op, sizeof rate->op, "%s", names[i]);
        rate->dtype = CLV_F32;
        rate->n = 1 + pick(m, 4);
        for (int k = 0; k < rate->n; k++) {
            rate->work[k] = (k > 0 ? rate->work[k - 1] : 50) * (2 + pick(m, 30));
            rate->rate[k] = 1e9 * (1 + pick(m, 40));
        }
    }
}

/* The default, or hosts of a few ranks with a network between them that is slower, or as fast; some with measured
 * rates. */
static clv_machine random_machine(maker *m)
{
    static const int64_t places[] = {1, 2, 2, 3, 4, 6, 8, 1 << 20};
    clv_machine machine = {.ranks_per_host = places[pick(m, 8)],
                           .hosts = pick(m, 4) ? 0 : 2,
                           .memory_bytes_per_s = 20e9,
                           .efficiency = 0.5,
                           .traffic_factor = 1,
                           .instruction_s = pick(m, 2) * 1e-6,
                           .host = {1e-6, 1e10},
                           .network = {pick(m, 2) ? 1e-5 : 1e-6, pick(m, 3) ? 1e8 : 1e10}};
    for (int d = 0; d < CLV_DTYPE_COUNT; d++)
        machine.flops_per_s[d] = 1e11;
    if (pick(m, 3) == 0)
        measure(m, &machine.rates_shared);
    return machine;
}

/* ---- random problems ---- */

static clv_layout random_layout(maker *m, const clv_type *type, bool partial)
{
    clv_layout layout = clv_layout_replicated(type->rank);
    clv_reduction how = pick(m, 4) ? CLV_REDUCTION_SUM : CLV_REDUCTION_MAX;
    for (int a = 0; a < m->mesh.n_axes; a++) {
        clv_subaxis sub = clv_mesh_whole_axis(&m->mesh, a);
        int d = pick(m, type->rank + 2);
        if (sub.size > 3 && pick(m, 2))
            sub.size = pick(m, 2) ? 2 : sub.size / 2;
        if (sub.size < m->mesh.axis[a].size && pick(m, 2))
            sub.pre = (int32_t)(m->mesh.axis[a].size / sub.size);
        if (d < type->rank)
            clv_layout_shard_dim(&layout, &m->mesh, d, sub, NULL);
        else if (d == type->rank && partial)
            clv_layout_add_partial(&layout, &m->mesh, how, sub, NULL);
    }
    for (int d = 0; d < type->rank; d++)
        if (clv_layout_block_count(&layout, d) > 1 && type->shape[d] % 2 == 0 && pick(m, 5) == 0)
            layout.alignment[d] = 2;
    return layout;
}

enum { MOST_AT_HAND = 2 };

typedef struct layouts {
    clv_layout layout[CLV_MAX_IN][MOST_AT_HAND];
    const clv_layout *list[CLV_MAX_IN][MOST_AT_HAND];
} layouts;

static void random_problem(clv_strategy_problem *p, layouts *l, maker *m)
{
    for (int i = 0; i < p->op->n_in; i++) {
        p->available[i] = l->list[i];
        p->n_available[i] = p->op->in[i] > 0 ? 1 + (pick(m, 3) == 0) : 0;
        for (int k = 0; k < p->n_available[i]; k++) {
            l->layout[i][k] = random_layout(m, &p->in[i], pick(m, 3) == 0);
            l->list[i][k] = &l->layout[i][k];
        }
        p->stationary_axes[i] = p->op->in[i] > 0 && pick(m, 4) == 0 ? (uint32_t)pick(m, 8) : 0;
    }
    for (int o = 0; o < p->op->n_out; o++) {
        p->accumulation_count[o] = 1 + pick(m, 3);
        p->has_target[o] = pick(m, 2);
        p->target[o] = random_layout(m, &p->out[o], pick(m, 8) == 0);
    }
    p->by_bytes = pick(m, 3) == 0;
    p->idle_axes = pick(m, 3) == 0;
}

/* ---- the plain search ---- */

typedef struct plain {
    const clv_strategy_problem *problem;
    clv_projection_context context;
    clv_strategy best, trial;
    int n_choices;
    int8_t choices[CLV_MAX_FACTORS + 2];
    bool keep, found;
} plain;

static void try_each(plain *s, int subaxis)
{
    clv_error err = {0};
    bool legal;
    for (int c = 0; subaxis < s->trial.n_subaxes && c < s->n_choices; c++) {
        s->trial.choice[subaxis] = s->choices[c];
        try_each(s, subaxis + 1);
    }
    if (subaxis < s->trial.n_subaxes)
        return;
    assert_int_equal(clv_strategy_fill_cost(&s->trial, &legal, s->problem, &s->context, s->keep, &err), CLV_OK);
    clv_strategy_cost price = clv_strategy_cost_of(&s->trial), best = clv_strategy_cost_of(&s->best);
    if (!legal || (s->found && clv_strategy_cost_compare(&price, &best, s->problem->by_bytes) >= 0))
        return;
    s->best = s->trial;
    s->found = true;
}

/* False when there are too many assignments to try. */
static bool choose_plainly(plain *s, const clv_strategy_problem *problem)
{
    double all = 0;
    *s = (plain){.problem = problem};
    s->n_choices = clv_strategy_list_choices(s->choices, problem);
    for (int d = 0; (s->trial.n_subaxes = clv_strategy_list_subaxes(s->trial.subaxis, problem, d)) >= 0; d++)
        all += pow(s->n_choices, s->trial.n_subaxes);
    if (all > MOST_ASSIGNMENTS)
        return false;
    for (int keep = 1; keep >= 0 && !s->found; keep--)
        for (int d = 0; (s->trial.n_subaxes = clv_strategy_list_subaxes(s->trial.subaxis, problem, d)) >= 0; d++) {
            clv_projection_context_make(&s->context, problem, s->trial.subaxis, s->trial.n_subaxes);
            s->keep = keep;
            try_each(s, 0);
        }
    return true;
}

static int compare(uint64_t seed, const clv_strategy_problem *problem)
{
    clv_error err = {0};
    clv_strategy got;
    plain s;
    if (!choose_plainly(&s, problem))
        return 0;
    clv_status status = clv_strategy_choose(&got, problem, &err);
    if (!s.found) {
        assert_int_equal(status, CLV_EUNSUPPORTED);
        return 1;
    }
    if (status != CLV_OK)
        fail_msg("seed %llu, %s: %s", (unsigned long long)seed, problem->op->name, err.message);
    char want_text[512], got_text[512];
    clv_strategy_print(want_text, sizeof want_text, &s.best, problem->mesh);
    clv_strategy_print(got_text, sizeof got_text, &got, problem->mesh);
    if (memcmp(got.choice, s.best.choice, (size_t)got.n_subaxes) != 0 || got.n_subaxes != s.best.n_subaxes ||
        got.bytes != s.best.bytes || got.moves != s.best.moves)
        fail_msg("seed %llu, %s: %s (%.17g s, %.17g bytes, %d moves); priced one by one: %s (%.17g s, %.17g bytes, %d "
                 "moves)",
                 (unsigned long long)seed, problem->op->name, got_text, got.seconds, got.bytes, got.moves, want_text,
                 s.best.seconds, s.best.bytes, s.best.moves);
    for (int i = 0; i < problem->op->n_in; i++)
        if (problem->op->in[i] > 0) {
            assert_int_equal(got.source[i], s.best.source[i]);
            assert_true(clv_layout_equal(&got.in[i], &s.best.in[i]));
        }
    for (int o = 0; o < problem->op->n_out; o++)
        assert_true(clv_layout_equal(&got.out[o], &s.best.out[o]));
    return 1;
}

static int run_case(uint64_t seed)
{
    clv_error err = {0};
    maker m = {.state = seed * 7919 + 1};
    int compared = 0;
    random_mesh(&m);
    assert_int_equal(clv_graph_new(&m.graph, &m.mesh, &err), CLV_OK);
    build(&m);
    if (clv_graph_status(m.graph, &err) != CLV_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    clv_arena *arena = clv_arena_new();
    clv_compile_options options = {0};
    clv_cost_model cost;
    clv_machine machine = random_machine(&m);
    clv_cost_model_make(&cost, &m.mesh, pick(&m, 3) ? &machine : NULL);
    clv_partitioner p = {.graph = m.graph, .options = &options, .cost = &cost};
    p.reshards = clv_reshard_cache_new(arena, &m.mesh, &cost, pick(&m, 3) == 0);
    for (int i = 0; i < OPS_A_CASE; i++) {
        clv_strategy_problem problem;
        layouts at_hand;
        clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
        const clv_op *op = &m.graph->ops[pick(&m, m.graph->n_ops)];
        if (!op->def->rule)
            continue;
        clv_partition_init_problem(&problem, types, &p, op);
        random_problem(&problem, &at_hand, &m);
        compared += compare(seed, &problem);
    }
    free(machine.rates_shared.item);
    clv_arena_free(arena);
    clv_graph_free(m.graph);
    return compared;
}

static void test_chooses_as_one_by_one(void **state)
{
    const char *seed = getenv("CLV_SEED"), *cases = getenv("CLV_CASES");
    int compared = 0;
    if (seed) {
        run_case(strtoull(seed, NULL, 10));
        return;
    }
    uint64_t n = cases ? strtoull(cases, NULL, 10) : CASES;
    for (uint64_t i = 0; i < n; i++)
        compared += run_case(i);
    assert_true((uint64_t)compared > 2 * n);
}

/* A block with gradients on eight axes of two, which pricing every assignment takes minutes for. */
static void compile_block(const char *axes, const char *rules_text, const int64_t x_shape[3], int heads, int ffn,
                          const clv_machine *machine)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_program *program;
    clv_axis_rules rules;
    must(clv_mesh_parse(&mesh, axes, &err), &err);
    must(clv_axis_rules_parse(&rules, rules_text, strlen(rules_text), &mesh, "rules", &err), &err);
    clv_graph *graph = must_block_with_gradients(&mesh, &rules, x_shape, heads, ffn);
    clv_compile_options options = {.size = sizeof options, .machine = machine};
    if (clv_compile(&program, graph, &options, &err) != CLV_OK)
        fail_msg("%s, rules %s: %s", axes, rules_text, err.message);
    clv_program_free(program);
    clv_graph_free(graph);
}

#define FOUR  "[\"e\", \"f\", \"g\", \"h\"]"
#define SIX   "[\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]"
#define EIGHT "[\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\"]"
#define ALL(axes)                                                                                                      \
    "{\"rules\": [[\"batch\", " axes "], [\"seq\", " axes "], [\"embed\", " axes "], [\"heads\", " axes                \
    "], [\"kv_heads\", " axes "], [\"mlp\", " axes "], [\"embed_kernel\", " axes "]]}"

static void test_many_axes(void **state)
{
    static const struct {
        const char *axes, *rules;
        int64_t x[3];
        int heads, ffn;
    } cases[] = {
        {"a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2",
         "{\"rules\": [[\"batch\", [\"a\", \"b\", \"c\", \"d\"]], [\"embed_kernel\", [\"a\", \"b\", \"c\", \"d\"]],"
         " [\"heads\", " FOUR "], [\"kv_heads\", " FOUR "], [\"mlp\", " FOUR "], [\"seq\", " FOUR "]]}",
         {256, 512, 1024},
         16,
         4096},
        {"a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2",
         "{\"rules\": [[\"batch\", [\"a\", \"b\"]], [\"seq\", [\"c\", \"d\"]], [\"heads\", " FOUR
         "], [\"kv_heads\", " FOUR "], [\"mlp\", [\"c\", \"d\"]], [\"embed_kernel\", [\"a\", \"b\"]]]}",
         {256, 512, 1024},
         16,
         4096},
        {"a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2",
         "{\"rules\": [[\"batch\", " EIGHT "], [\"embed_kernel\", " EIGHT "]]}",
         {256, 512, 1024},
         16,
         4096},
        {"a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2",
         "{\"rules\": [[\"batch\", " EIGHT "], [\"embed_kernel\", " EIGHT "]]}",
         {1, 2, 8},
         2,
         4},
        {"a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2", ALL(EIGHT), {8, 128, 256}, 8, 1024},
        {"a=2,b=2,c=2,d=2,e=2,f=2", ALL(SIX), {7, 31, 35}, 5, 37},
    };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    enum { SECONDS = 200 };
#else
    enum { SECONDS = 8 };
#endif
    clv_machine hosts = {.ranks_per_host = 8,
                         .memory_bytes_per_s = 2e12,
                         .efficiency = 1,
                         .traffic_factor = 1,
                         .host = {5e-6, 3e11},
                         .network = {2e-5, 2e10}};
    for (int d = 0; d < CLV_DTYPE_COUNT; d++)
        hosts.flops_per_s[d] = 1e14;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int links = 1; links <= 2; links++) {
            clock_t start = clock();
            compile_block(cases[c].axes, cases[c].rules, cases[c].x, cases[c].heads, cases[c].ffn,
                          links == 2 ? &hosts : NULL);
            assert_true(clock() - start < SECONDS * CLOCKS_PER_SEC); /* of this process: others do not count */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chooses_as_one_by_one), cmocka_unit_test(test_many_axes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
