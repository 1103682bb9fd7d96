/* The reshard planner: the oracle table, properties over all pairs of layouts, and contents: every rank's buffers are
 * simulated step by step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "partition/reshard/reshard_planner.h"
#include "unit_test.h"

static clv_mesh mesh_of(const char *text)
{
    clv_mesh mesh;
    assert_int_equal(clv_mesh_parse(&mesh, text, NULL), CLV_OK);
    return mesh;
}

static clv_layout layout_of(const char *text, const clv_mesh *mesh, int rank)
{
    clv_layout layout;
    clv_error err = {0};
    if (clv_layout_parse(&layout, text, mesh, rank, &err) != CLV_OK)
        fail_msg("%s", err.message);
    return layout;
}

/* By a machine's seconds, or by bytes, with its price all the same. */
static clv_reshard_plan plan_for(clv_arena *arena, const clv_mesh *mesh, const clv_layout *from, const clv_layout *to,
                                 const int64_t *shape, const clv_machine *machine, bool by_bytes)
{
    clv_cost_model model;
    clv_reshard_plan plan;
    clv_error err = {0};
    clv_cost_model_make(&model, mesh, machine);
    if (clv_reshard_plan_make(&plan, arena, mesh, from, to, shape, CLV_F32, &model, by_bytes, &err) != CLV_OK)
        fail_msg("%s", err.message);
    return plan;
}

static clv_reshard_plan plan_of(clv_arena *arena, const clv_mesh *mesh, const clv_layout *from, const clv_layout *to,
                                const int64_t *shape)
{
    return plan_for(arena, mesh, from, to, shape, NULL, true);
}

/* "slice y, reduce_scatter x": names of steps, with the axes that they are about. */
static void describe(char *out, size_t size, const clv_reshard_plan *plan, const clv_mesh *mesh)
{
    int n = 0;
    out[0] = '\0';
    for (int i = 0; i < plan->n_steps; i++) {
        const clv_reshard_step *step = &plan->steps[i];
        n += snprintf(out + n, size - (size_t)n, "%s%s ", i > 0 ? ", " : "", clv_step_name(step->kind));
        for (int a = 0; a < step->n_axes; a++) {
            clv_subaxis sub = step->axes[a];
            n += snprintf(out + n, size - (size_t)n, "%s", mesh->axis[sub.axis].name);
            if (sub.size != mesh->axis[sub.axis].size)
                n += snprintf(out + n, size - (size_t)n, ":(%d)%d", (int)sub.pre, (int)sub.size);
        }
    }
}

#define P "x=2,y=4"
#define C "x=2,y=2,z=2"
#define J "x=4,y=2"
#define Q "x=2,y=4,z=2"

/* The table of the design, row by row; bytes of f32[64,64], row 14 of f32[16,16,16]. */
static void oracle_table(void **state)
{
    static const struct {
        const char *mesh, *from, *to, *steps;
        double bytes, bound;
    } rows[] = {
        {P, "_,_", "x,y", "slice xy", 0, 0},
        {P, "x,_", "_,_", "all_gather x", 8192, 8192},
        {P, "x,y", "_,_", "all_gather x, all_gather y", 14336, 14336},
        {P, "(x,y),_", "x,_", "all_gather y", 6144, 6144},
        {P, "(y,x),_", "x,_", "permute yx, all_gather y", 8192, 8192},
        {P, "x,_", "_,x", "all_to_all x", 4096, 4096},
        {P, "(x,y),_", "_,(x,y)", "all_to_all xy", 1792, 1792},
        {P, "(x,y),_", "x,y", "all_to_all y", 1536, 1536},
        {P, "x,y", "y,x", "exchange xy", 2048, 2048},
        {C, "x,z", "z,x", "permute xz", 4096, 4096},
        {C, "x,_", "z,_", "permute xz", 8192, 8192},
        {C, "x,_", "_,z", "slice z, all_gather x", 4096, 4096},
        {C, "_,x", "(x,z),_", "exchange xz", 2048, 2048},
        {J, "y,_,x", "_,(x,y),_", "all_to_all yx", 1792, 1792},
        {P, "x,_ + sum{y}", "x,_", "all_reduce y", 12288, -1},
        {P, "x,_ + sum{y}", "(x,y),_", "reduce_scatter y", 6144, -1},
        {P, "_,_ + sum{x,y}", "_,_", "all_reduce xy", 28672, -1},
        {P, "_,_ + sum{x,y}", "x,_", "reduce_scatter x, all_reduce y", 20480, -1},
        {P, "_,_ + sum{x}", "(y,x),_", "slice y, reduce_scatter x", 2048, -1},
        {Q, "x,_ + sum{y}", "x,_", "slice z, reduce_scatter y, all_gather zy", 10240, -1},
    };
    clv_arena *arena = clv_arena_new();
    int wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rank = strcmp(rows[i].mesh, J) == 0 ? 3 : 2;
        const int64_t *shape = rank == 3 ? (int64_t[]){16, 16, 16} : (int64_t[]){64, 64};
        clv_mesh mesh = mesh_of(rows[i].mesh);
        clv_layout from = layout_of(rows[i].from, &mesh, rank), to = layout_of(rows[i].to, &mesh, rank);
        clv_reshard_plan plan = plan_of(arena, &mesh, &from, &to, shape);
        char steps[256];
        describe(steps, sizeof steps, &plan, &mesh);
        if (strcmp(steps, rows[i].steps) != 0 || plan.bytes != rows[i].bytes) {
            print_error("row %zu: %s -> %s: %s, %g bytes; expected %s, %g\n", i + 1, rows[i].from, rows[i].to, steps,
                        plan.bytes, rows[i].steps, rows[i].bytes);
            wrong++;
        }
        assert_true(clv_reshard_lower_bound(&mesh, &from, &to, shape, CLV_F32) == (int64_t)rows[i].bound);
    }
    clv_arena_free(arena);
    assert_int_equal(wrong, 0);
}

/* -- simulation of all ranks -- */

enum { RANKS = 16, ELEMS = 512 };

typedef struct world {
    const clv_mesh *mesh;
    const int64_t *shape;
    clv_reduction reduction;
    int ranks;
    double value[RANKS][ELEMS]; /* a rank's value of each element of the whole tensor; NaN where it has none */
} world;

static double truth(int64_t element)
{
    return (double)(element * 7 % 1009 + 5);
}

/* Whether a shard holds the element with this row-major index. */
static bool holds(const clv_shard *shard, const int64_t *shape, int64_t element)
{
    for (int d = shard->rank - 1; d >= 0; element /= shape[d--])
        if (element % shape[d] < shard->lo[d] || element % shape[d] >= shard->hi[d])
            return false;
    return true;
}

static int64_t count_elems(const int64_t *shape, int rank)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= shape[d];
    return n;
}

static int64_t position(const clv_mesh *mesh, const clv_subaxis *subs, int n, int64_t rank)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++)
        at = at * subs[i].size + clv_mesh_coordinate(mesh, subs[i], rank);
    return at;
}

/* Fills the world with a layout's values: those of a partial group add up to (or have as maximum) the truth. */
static void fill(world *w, const clv_layout *layout)
{
    const clv_subaxis *subs;
    int n = clv_layout_axes(&subs, layout, layout->rank);
    int64_t elems = count_elems(w->shape, layout->rank), members = clv_layout_block_count(layout, layout->rank);
    for (int r = 0; r < w->ranks; r++) {
        clv_shard shard = clv_layout_shard(layout, w->mesh, w->shape, r);
        int64_t at = position(w->mesh, subs, n, r);
        for (int64_t e = 0; e < elems; e++) {
            double noise = (double)((e * 31 + at * 17) % 101) - 50, value = truth(e);
            if (layout->reduction == CLV_REDUCTION_SUM && at > 0)
                value = noise;
            else if (layout->reduction == CLV_REDUCTION_SUM)
                for (int64_t m = 1; m < members; m++)
                    value -= (double)((e * 31 + m * 17) % 101) - 50;
            else if (layout->reduction == CLV_REDUCTION_MAX && at != e % members)
                value -= 51 + noise;
            w->value[r][e] = holds(&shard, w->shape, e) ? value : NAN;
        }
    }
}

static double combine(clv_reduction reduction, double a, double b)
{
    return reduction == CLV_REDUCTION_SUM ? a + b : a > b ? a : b;
}

/* Runs a step on all ranks as a runtime may; checks that a group over step->axes has all that is needed. Returns the
 * bytes that the neediest rank receives, by the definition for its kind. */
static double run_step(world *w, const clv_reshard_step *step)
{
    static double before[RANKS][ELEMS];
    int64_t elems = count_elems(w->shape, step->from.rank), most = 0, group[RANKS], in_most = 0, out_most = 0;
    bool reduces = clv_step_reduces(step->kind);
    memcpy(before, w->value, sizeof before);
    for (int r = 0; r < w->ranks; r++) {
        clv_shard from = clv_layout_shard(&step->from, w->mesh, w->shape, r);
        clv_shard to = clv_layout_shard(&step->to, w->mesh, w->shape, r);
        int64_t members = clv_mesh_group(group, w->mesh, step->axes, step->n_axes, r), received = 0;
        in_most = clv_shard_elems(&from) > in_most ? clv_shard_elems(&from) : in_most;
        out_most = clv_shard_elems(&to) > out_most ? clv_shard_elems(&to) : out_most;
        for (int64_t e = 0; e < elems; e++) {
            double value = NAN;
            if (!holds(&to, w->shape, e)) {
                w->value[r][e] = NAN;
                continue;
            }
            if (reduces)
                for (int64_t m = 0; m < members; m++)
                    value = m == 0 ? before[group[0]][e] : combine(w->reduction, value, before[group[m]][e]);
            else if (step->kind == CLV_STEP_MASK && position(w->mesh, step->axes, step->n_axes, r) != 0)
                value = step->to.reduction == CLV_REDUCTION_SUM ? 0 : -INFINITY;
            else if (holds(&from, w->shape, e))
                value = before[r][e];
            else {
                received++;
                for (int64_t m = 0; m < members && clv_step_moves(step->kind); m++)
                    value = isnan(value) ? before[group[m]][e] : value;
            }
            assert_false(isnan(value));
            w->value[r][e] = value;
        }
        most = received > most ? received : most;
    }
    double n = 1;
    for (int i = 0; i < step->n_axes; i++)
        n *= step->axes[i].size;
    if (step->kind == CLV_STEP_REDUCE_SCATTER)
        return (n - 1) * (double)out_most * 4;
    return step->kind == CLV_STEP_ALL_REDUCE ? 2 * (double)in_most * 4 * (n - 1) / n : (double)most * 4;
}

/* Every group over `to`'s partial axes combines to the truth. */
static void check_truth(const world *w, const clv_layout *to)
{
    const clv_subaxis *subs;
    int n = clv_layout_axes(&subs, to, to->rank);
    int64_t group[RANKS], elems = count_elems(w->shape, to->rank);
    for (int r = 0; r < w->ranks; r++) {
        clv_shard shard = clv_layout_shard(to, w->mesh, w->shape, r);
        int64_t members = clv_mesh_group(group, w->mesh, subs, n, r);
        for (int64_t e = 0; e < elems; e++) {
            if (!holds(&shard, w->shape, e))
                continue;
            double value = w->value[group[0]][e];
            for (int64_t m = 1; m < members; m++)
                value = combine(to->reduction, value, w->value[group[m]][e]);
            assert_true(value == truth(e));
        }
    }
}

static void simulate(const clv_reshard_plan *plan, const clv_mesh *mesh, const clv_layout *from, const clv_layout *to,
                     const int64_t *shape)
{
    static world w;
    double bytes = 0;
    w.mesh = mesh;
    w.shape = shape;
    w.reduction = from->reduction;
    w.ranks = (int)clv_mesh_rank_count(mesh);
    assert_true(w.ranks <= RANKS && count_elems(shape, from->rank) <= ELEMS);
    fill(&w, from);
    for (int i = 0; i < plan->n_steps; i++) {
        const clv_reshard_step *step = &plan->steps[i];
        assert_int_equal(clv_layout_check(&step->from, mesh, shape, NULL), CLV_OK);
        assert_int_equal(clv_layout_check(&step->to, mesh, shape, NULL), CLV_OK);
        assert_true(clv_layout_equal(&step->from, i == 0 ? from : &plan->steps[i - 1].to));
        assert_true(fabs(run_step(&w, step) - step->bytes) <= 1e-9 * step->bytes);
        bytes += step->bytes;
    }
    if (plan->n_steps > 0)
        assert_true(clv_layout_equal(&plan->steps[plan->n_steps - 1].to, to));
    assert_true(bytes == plan->bytes);
    check_truth(&w, to);
}

/* -- all pairs of layouts -- */

enum { MANY = 512 };

static clv_layout pool[MANY];
static int n_pool;
static double cost[MANY][MANY];

/* All layouts of `rank` dimensions that use each axis once at most: in a dimension, as the most minor so far, or
 * partial. Dimensions are filled in order, so that each layout is made once. */
static void place_axes(const clv_mesh *mesh, uint32_t left, int slot, clv_layout layout, clv_reduction reduction)
{
    if (slot > layout.rank) {
        assert_true(n_pool < MANY);
        pool[n_pool++] = layout;
        return;
    }
    place_axes(mesh, left, slot + 1, layout, reduction);
    for (int a = 0; a < mesh->n_axes; a++) {
        clv_layout next = layout;
        clv_subaxis sub = clv_mesh_whole_axis(mesh, a);
        if ((left >> a & 1u) == 0)
            continue;
        if (slot < layout.rank)
            assert_int_equal(clv_layout_shard_dim(&next, mesh, slot, sub, NULL), CLV_OK);
        else
            assert_int_equal(clv_layout_add_partial(&next, mesh, reduction, sub, NULL), CLV_OK);
        uint32_t rest = slot < layout.rank ? left & ~(1u << a) : left & ~((2u << a) - 1); /* partial: ascending */
        place_axes(mesh, rest, slot, next, reduction);
    }
}

static double simple_way(const clv_mesh *mesh, const clv_layout *from, const clv_layout *to, const int64_t *shape)
{
    double n = (double)clv_layout_block_count(from, from->rank);
    return 2 * 4 * (double)clv_layout_max_elems(from, shape) * (n - 1) / n +
           4 * (double)clv_layout_max_received_elems(to, from, mesh, shape);
}

static bool is_even(const clv_layout *layout, const int64_t *shape)
{
    for (int d = 0; d < layout->rank; d++)
        if (shape[d] / layout->alignment[d] % clv_layout_block_count(layout, d) != 0)
            return false;
    return true;
}

/* Within in + out; but a gather over several dimensions makes up to half of its result on the way, and uneven shards
 * may be reduced in stages that hold up to twice the input. */
static void check_peak(const clv_reshard_plan *plan, int64_t in, int64_t out, bool even)
{
    int gathers = 0;
    for (int i = 0; i < plan->n_steps; i++)
        gathers += plan->steps[i].kind == CLV_STEP_ALL_GATHER;
    if (plan->peak_bytes > in + out && !(!even && plan->peak_bytes <= 2 * in)) {
        assert_true(gathers >= 2);
        assert_true(plan->peak_bytes <= out + (even ? out / 2 : (out + 4) / 2));
    }
}

static void check_pair(clv_arena *arena, const clv_mesh *mesh, int i, int j, const int64_t *shape)
{
    const clv_layout *from = &pool[i], *to = &pool[j];
    clv_reshard_plan plan = plan_of(arena, mesh, from, to, shape), again;
    int64_t bound = clv_reshard_lower_bound(mesh, from, to, shape, CLV_F32);
    int64_t in = 4 * clv_layout_max_elems(from, shape), out = 4 * clv_layout_max_elems(to, shape);
    cost[i][j] = plan.bytes;
    simulate(&plan, mesh, from, to, shape);
    if (!clv_layout_is_partial(from))
        assert_true(plan.bytes == (double)bound);
    assert_true(plan.bytes <= simple_way(mesh, from, to, shape) * (1 + 1e-9));
    check_peak(&plan, in, out, is_even(from, shape) && is_even(to, shape));
    again = plan_of(arena, mesh, from, to, shape);
    assert_int_equal(plan.n_steps, again.n_steps);
    assert_memory_equal(plan.steps, again.steps, (size_t)plan.n_steps * sizeof *plan.steps);
}

/* No detour is cheaper than the way straight on. */
static void check_triangles(const clv_mesh *mesh)
{
    for (int i = 0; i < n_pool; i++)
        for (int j = 0; j < n_pool; j++)
            for (int k = 0; k < n_pool; k++)
                if (!(cost[i][k] <= (cost[i][j] + cost[j][k]) * (1 + 1e-9))) {
                    char a[CLV_LAYOUT_TEXT], b[CLV_LAYOUT_TEXT], c[CLV_LAYOUT_TEXT];
                    clv_layout_print(a, sizeof a, &pool[i], mesh);
                    clv_layout_print(b, sizeof b, &pool[j], mesh);
                    clv_layout_print(c, sizeof c, &pool[k], mesh);
                    fail_msg("%s -> %s: %g; by %s: %g + %g", a, c, cost[i][k], b, cost[i][j], cost[j][k]);
                }
}

static void check_all_pairs(const char *mesh_text, int rank, const int64_t *shape, int64_t alignment,
                            clv_reduction reduction)
{
    clv_mesh mesh = mesh_of(mesh_text);
    clv_arena *arena = clv_arena_new();
    n_pool = 0;
    place_axes(&mesh, (1u << mesh.n_axes) - 1, 0, clv_layout_replicated(rank), reduction);
    for (int i = 0; i < n_pool; i++)
        for (int d = 0; d < rank; d++)
            if (i % 2 == 1 && pool[i].begin[d + 1] > pool[i].begin[d] && shape[d] % alignment == 0)
                pool[i].alignment[d] = alignment;
    for (int i = 0; i < n_pool; i++) {
        for (int j = 0; j < n_pool; j++)
            check_pair(arena, &mesh, i, j, shape);
        if (i % 16 == 15) {
            clv_arena_free(arena);
            arena = clv_arena_new();
        }
    }
    check_triangles(&mesh);
    clv_arena_free(arena);
}

static void pairs_of_even_shapes(void **state)
{
    check_all_pairs("x=2,y=3", 2, (int64_t[]){12, 18}, 1, CLV_REDUCTION_SUM);
    check_all_pairs("x=2,y=4", 2, (int64_t[]){16, 16}, 2, CLV_REDUCTION_MAX);
    check_all_pairs("x=2,y=2,z=2", 2, (int64_t[]){8, 8}, 1, CLV_REDUCTION_SUM);
    check_all_pairs("x=4,y=2", 3, (int64_t[]){8, 8, 8}, 1, CLV_REDUCTION_SUM);
}

static void pairs_of_uneven_shapes(void **state)
{
    check_all_pairs("x=2,y=3", 2, (int64_t[]){7, 5}, 1, CLV_REDUCTION_SUM);
    check_all_pairs("x=2,y=4", 2, (int64_t[]){10, 3}, 5, CLV_REDUCTION_MAX);
    check_all_pairs("x=2,y=3", 2, (int64_t[]){1, 2}, 1, CLV_REDUCTION_SUM);
    check_all_pairs("x=2,y=3", 2, (int64_t[]){0, 4}, 1, CLV_REDUCTION_SUM);
    check_all_pairs("x=2,y=2,z=2", 2, (int64_t[]){7, 6}, 3, CLV_REDUCTION_SUM);
    check_all_pairs("x=2,y=2", 0, NULL, 1, CLV_REDUCTION_SUM);
}

/* -- random layouts: sub-axes, alignments, uneven sizes -- */

static uint64_t seed = 20261120;

static int64_t below(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* Every prime factor of every axis goes to a dimension, to the partial axes or nowhere. */
/* `nest`: sub-axes of 2 first, so that those of any two layouts nest; else those of 6 and 12 may not. */
static clv_layout random_layout(const clv_mesh *mesh, int rank, const int64_t *shape, clv_reduction reduction,
                                bool nest)
{
    clv_layout layout = clv_layout_replicated(rank);
    for (int a = 0; a < mesh->n_axes; a++)
        for (int32_t pre = 1; pre < mesh->axis[a].size;) {
            int32_t left = (int32_t)mesh->axis[a].size / pre, size = left % 2 == 0 ? 2 : left;
            if (!nest && left % 3 == 0 && below(2))
                size = below(2) ? 3 : left;
            int64_t slot = below(rank + 2);
            if (slot < rank)
                assert_int_equal(clv_layout_shard_dim(&layout, mesh, (int)slot, (clv_subaxis){a, pre, size}, NULL),
                                 CLV_OK);
            else if (slot == rank)
                assert_int_equal(clv_layout_add_partial(&layout, mesh, reduction, (clv_subaxis){a, pre, size}, NULL),
                                 CLV_OK);
            pre *= size;
        }
    for (int d = 0; d < rank; d++)
        if (layout.begin[d + 1] > layout.begin[d] && shape[d] % 2 == 0 && below(3) == 0)
            layout.alignment[d] = 2;
    return layout;
}

static void random_changes(void **state)
{
    static const char *const meshes[] = {"x=4,y=3", "x=8", "x=2,y=2,z=4", "x=6,y=2", "x=1,y=5", "x=12"};
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 1500; round++) {
        clv_arena *arena = clv_arena_new();
        clv_mesh mesh = mesh_of(meshes[below(6)]);
        int rank = 1 + (int)below(3);
        const int64_t shape[3] = {below(9), below(8) + 1, below(7) + 1};
        clv_layout from = random_layout(&mesh, rank, shape, below(2) ? CLV_REDUCTION_SUM : CLV_REDUCTION_MAX, false);
        clv_layout to = random_layout(&mesh, rank, shape, below(2) ? CLV_REDUCTION_SUM : CLV_REDUCTION_MAX, false);
        clv_reshard_plan plan = plan_of(arena, &mesh, &from, &to, shape), timed;
        int64_t bound = clv_reshard_lower_bound(&mesh, &from, &to, shape, CLV_F32);
        simulate(&plan, &mesh, &from, &to, shape);
        assert_true(bound < 0 || plan.bytes == (double)bound);
        assert_true(plan.bytes <= simple_way(&mesh, &from, &to, shape) * (1 + 1e-9));
        timed = plan_for(arena, &mesh, &from, &to, shape, NULL, false);
        simulate(&timed, &mesh, &from, &to, shape);
        assert_true(timed.seconds <= plan.seconds * (1 + 1e-9));
        clv_arena_free(arena);
    }
}

/* Where shapes divide, no detour over a third layout is cheaper. */
static void random_detours(void **state)
{
    static const char *const meshes[] = {"x=4,y=3", "x=8", "x=2,y=2,z=4", "x=6,y=2", "x=3,y=2,z=2"};
    const int64_t shape[3] = {48, 48, 96};
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 2000; round++) {
        clv_arena *arena = clv_arena_new();
        clv_mesh mesh = mesh_of(meshes[below(5)]);
        int rank = 1 + (int)below(3);
        clv_reduction reduction = below(2) ? CLV_REDUCTION_SUM : CLV_REDUCTION_MAX;
        clv_layout a = random_layout(&mesh, rank, shape, reduction, true),
                   b = random_layout(&mesh, rank, shape, reduction, true);
        clv_layout c = random_layout(&mesh, rank, shape, reduction, true);
        double detour = plan_of(arena, &mesh, &a, &b, shape).bytes + plan_of(arena, &mesh, &b, &c, shape).bytes;
        assert_true(plan_of(arena, &mesh, &a, &c, shape).bytes <= detour * (1 + 1e-9));
        clv_arena_free(arena);
    }
}

/* Cuts of one axis that do not nest have no atoms in common: all_reduce, exchange, mask. */
static void crossing_cuts(void **state)
{
    static const struct {
        const char *from, *to, *steps;
    } cases[] = {
        {"x:(1)2,_", "x:(1)3,_", "exchange x:(1)2"},
        {"x:(1)2,_ + sum{y}", "x:(1)3,_", "all_reduce y, exchange x:(1)2"},
        {"_,_ + sum{x:(1)2}", "_,x:(1)3 + sum{y}", "all_reduce x:(1)2, slice x:(1)3, mask y"},
        {"_,_ + sum{x:(1)2}", "_,_ + sum{x:(1)3}", "all_reduce x:(1)2, mask x:(1)3"},
    };
    clv_mesh mesh = mesh_of("x=6,y=2");
    clv_arena *arena = clv_arena_new();
    const int64_t shape[2] = {12, 7};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char steps[256];
        clv_layout from = layout_of(cases[i].from, &mesh, 2), to = layout_of(cases[i].to, &mesh, 2);
        clv_reshard_plan plan = plan_of(arena, &mesh, &from, &to, shape);
        describe(steps, sizeof steps, &plan, &mesh);
        assert_string_equal(steps, cases[i].steps);
        simulate(&plan, &mesh, &from, &to, shape);
    }
    clv_arena_free(arena);
}

/* Where starting a step costs more than its bytes, one exchange takes the place of several collectives. */
static void time_decides(void **state)
{
    const clv_machine slow_start = {.hosts = 1, .ranks_per_host = 8, .host = {.alpha_s = 1, .bytes_per_s = 1e9}},
                      slow_wire = {.hosts = 1, .ranks_per_host = 8, .host = {.alpha_s = 0, .bytes_per_s = 1}};
    const int64_t shape[2] = {64, 64};
    clv_mesh mesh = mesh_of(P);
    clv_arena *arena = clv_arena_new();
    clv_layout from = layout_of("(y,x),_", &mesh, 2), to = layout_of("x,_", &mesh, 2);
    char steps[256];
    clv_reshard_plan plan = plan_for(arena, &mesh, &from, &to, shape, &slow_start, false);
    describe(steps, sizeof steps, &plan, &mesh);
    assert_string_equal(steps, "exchange yx");
    plan = plan_for(arena, &mesh, &from, &to, shape, &slow_wire, false);
    assert_int_equal(plan.n_steps, 2);
    from = layout_of("_,_ + sum{x,y}", &mesh, 2);
    plan = plan_for(arena, &mesh, &from, &to, shape, &slow_start, false);
    describe(steps, sizeof steps, &plan, &mesh);
    assert_string_equal(steps, "all_reduce xy, slice x");
    clv_arena_free(arena);
}

/* ---- axes that cross hosts ---- */

/* Two links: 1 ms and 1 MB/s inside a host of so many ranks, 1 ms and 0.1 MB/s between hosts. */
static clv_machine two_links(int64_t ranks_per_host)
{
    return (clv_machine){
        .ranks_per_host = ranks_per_host, .memory_bytes_per_s = INFINITY, .host = {1e-3, 1e6}, .network = {1e-3, 1e5}};
}

/* What a plan takes on a machine that it was not made for. */
static double seconds_on(const clv_reshard_plan *plan, const clv_mesh *mesh, const clv_machine *machine)
{
    clv_cost_model model;
    double seconds = 0;
    clv_cost_model_make(&model, mesh, machine);
    for (int i = 0; i < plan->n_steps; i++) {
        const clv_reshard_step *step = &plan->steps[i];
        clv_step_route route = clv_cost_route(&model, step->kind, step->axes, step->n_axes);
        seconds += clv_cost_step(&model, step->kind, CLV_F32, step->bytes, route).seconds;
    }
    return seconds;
}

/* What goes over the network goes while shards are small: sums are scattered inside hosts first, copies gathered there
 * last, for which the part of an axis inside hosts may have to move to another dimension. An axis that goes beyond a
 * host is parted where that ends. What is small takes the fewest steps. */
static void hosts_first(void **state)
{
    static const struct {
        const char *mesh;
        int64_t rows; /* of [rows,16] f32 */
        const char *from, *to, *steps;
    } cases[] = {
        {"x=2,y=4", 16, "_,_ + sum{x,y}", "_,_", "reduce_scatter y, all_reduce x, all_gather y"},
        {"x=8", 16, "_,_ + sum{x}", "_,_", "reduce_scatter x:(2)4, all_reduce x:(1)2, all_gather x:(2)4"},
        {"x=2,y=4", 1, "_,_ + sum{x,y}", "_,_", "all_reduce xy"},
        {"y=4", 16, "_,_ + sum{y}", "_,_", "all_reduce y"},
        {"x=2,y=4", 16, "x,y", "_,_", "all_gather x, all_gather y"},
        {"x=2,y=4", 16, "(x,y),_", "_,_", "all_to_all y, all_gather x, all_gather y"},
        {"x=8", 16, "x,_", "_,_", "all_to_all x:(2)4, all_gather x:(1)2, all_gather x:(2)4"},
        {"x=8", 16, "_,x", "_,_", "all_to_all x:(2)4, all_gather x:(1)2, all_gather x:(2)4"},
        {"x=8", 13, "x,_", "_,_", "all_to_all x:(2)4, all_gather x:(1)2, all_gather x:(2)4"},
        {"x=8", 1, "_,x", "_,_", "all_gather x"},
        {"x=2,y=4", 16, "_,_ + sum{x,y}", "(x,y),_", "reduce_scatter y, reduce_scatter x, all_to_all y"},
        {"x=2,y=4", 16, "(y,x),_", "x,_", "permute yx, all_gather y"},
    };
    clv_machine machine = two_links(4);
    clv_arena *arena = clv_arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char steps[256];
        const int64_t shape[2] = {cases[i].rows, 16};
        clv_mesh mesh = mesh_of(cases[i].mesh);
        clv_layout from = layout_of(cases[i].from, &mesh, 2), to = layout_of(cases[i].to, &mesh, 2);
        clv_reshard_plan plan = plan_for(arena, &mesh, &from, &to, shape, &machine, false);
        clv_reshard_plan blind = plan_for(arena, &mesh, &from, &to, shape, NULL, false);
        describe(steps, sizeof steps, &plan, &mesh);
        assert_string_equal(steps, cases[i].steps);
        assert_true(plan.seconds <= seconds_on(&blind, &mesh, &machine) * (1 + 1e-9));
        simulate(&plan, &mesh, &from, &to, shape);
    }
    clv_arena_free(arena);
}

/* Each rank receives as much from each other: in an all_to_all of 8 ranks on two hosts 4 of 7 parts come from the other
 * host. Of other collectives all is priced as if it did. */
static void all_to_all_takes_both_links(void **state)
{
    static const struct {
        const char *mesh, *axes;
        clv_step_kind kind;
        double far, near; /* in sevenths of the bytes */
    } cases[] = {{"x=8", "x", CLV_STEP_ALL_TO_ALL, 4, 3},      {"x=2,y=4", "xy", CLV_STEP_ALL_TO_ALL, 4, 3},
                 {"x=2,y=4", "x", CLV_STEP_ALL_TO_ALL, 7, 0},  {"x=2,y=4", "y", CLV_STEP_ALL_TO_ALL, 0, 7},
                 {"x=8", "x", CLV_STEP_PERMUTE, 7, 0},         {"x=8", "x", CLV_STEP_ALL_GATHER, 7, 0},
                 {"x=2,y=4", "xy", CLV_STEP_ALL_REDUCE, 7, 0}, {"x=2,y=4", "y", CLV_STEP_ALL_REDUCE, 0, 7}};
    clv_machine machine = two_links(4);
    const double bytes = 7e5;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_mesh mesh = mesh_of(cases[i].mesh);
        clv_cost_model model;
        clv_subaxis axes[2];
        int n = 0;
        for (const char *name = cases[i].axes; *name; name++)
            axes[n++] = clv_mesh_whole_axis(&mesh, *name - 'x');
        clv_cost_model_make(&model, &mesh, &machine);
        clv_step_route route = clv_cost_route(&model, cases[i].kind, axes, n);
        double seconds = clv_cost_step(&model, cases[i].kind, CLV_F32, bytes, route).seconds;
        double expected = 1e-3 + cases[i].far / 7 * bytes / 1e5 + cases[i].near / 7 * bytes / 1e6;
        if (fabs(seconds - expected) > 1e-9 * expected)
            fail_msg("%s, %s over %s: %g s, expected %g", cases[i].mesh, clv_step_name(cases[i].kind), cases[i].axes,
                     seconds, expected);
    }
}

/* Bytes that the rank that receives most receives in steps across hosts. */
static double network_bytes(const clv_reshard_plan *plan, const clv_cost_model *model)
{
    double bytes = 0;
    for (int i = 0; i < plan->n_steps; i++)
        if (clv_cost_crosses_hosts(model, plan->steps[i].axes, plan->steps[i].n_axes))
            bytes += plan->steps[i].bytes;
    return bytes;
}

/* Of B bytes that n ranks gather, or sum and scatter, P hosts lack (P-1)/P each, and each of its ranks receives an
 * equal part of that: B (P-1)/n. Without another dimension a permute across hosts comes first or last: B P/n. (12 ranks
 * on hosts of 8 are as on 3 of 4.) */
static void ranks_of_a_host_share_the_network(void **state)
{
    static const struct {
        const char *mesh, *sharded, *partial;
        double hosts, n;
    } meshes[] = {{"data=64", "data", "data", 8, 64},
                  {"data=16", "data", "data", 2, 16},
                  {"data=12", "data", "data", 3, 12},
                  {"data=8,model=4", "(data,model)", "data,model", 4, 32}};
    const int64_t shape[2] = {5760, 1536}, length[1] = {3 << 20};
    clv_machine machine = two_links(8);
    (void)state;
    machine.host.bytes_per_s = 1e8;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int i = 0; i < 5; i++) {
            bool is_vector = i >= 3, sums = i == 2 || i == 4;
            int rank = is_vector ? 1 : 2;
            char sharded[64], other[64], steps[256];
            snprintf(sharded, sizeof sharded, i == 1 ? "_,%s" : is_vector ? "%s" : "%s,_", meshes[m].sharded);
            snprintf(other, sizeof other, "%s%s%s%s", is_vector ? "_" : "_,_", sums ? " + sum{" : "",
                     sums ? meshes[m].partial : "", sums ? "}" : "");
            clv_arena *arena = clv_arena_new();
            clv_mesh mesh = mesh_of(meshes[m].mesh);
            clv_layout from = layout_of(sums ? other : sharded, &mesh, rank),
                       to = layout_of(sums ? sharded : other, &mesh, rank);
            clv_reshard_plan plan = plan_for(arena, &mesh, &from, &to, is_vector ? length : shape, &machine, false);
            clv_cost_model model;
            clv_cost_model_make(&model, &mesh, &machine);
            double all = 4 * (is_vector ? (double)length[0] : (double)(shape[0] * shape[1]));
            double expected = all * (meshes[m].hosts - !is_vector) / meshes[m].n;
            describe(steps, sizeof steps, &plan, &mesh);
            if (network_bytes(&plan, &model) != expected)
                fail_msg("%s: {%s} %s {%s}: %s: %g bytes over the network, expected %g", meshes[m].mesh, sharded,
                         sums ? "<-" : "->", other, steps, network_bytes(&plan, &model), expected);
            clv_arena_free(arena);
        }
}

/* On random machines of hosts with two links: contents are right, and no plan is slower there than what bytes alone, or
 * one link for all axes, would choose. */
static void machines_in_random_order(void **state)
{
    static const char *const meshes[] = {"x=4,y=3", "x=8", "x=2,y=2,z=2", "x=6,y=2", "x=2,y=4", "x=12"};
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 1500; round++) {
        clv_arena *arena = clv_arena_new();
        clv_mesh mesh = mesh_of(meshes[below(6)]);
        int rank = 1 + (int)below(3);
        const int64_t shape[3] = {below(9), below(8) + 1, below(7) + 1};
        clv_machine machine = two_links(1 + below(6));
        machine.host.alpha_s = below(2) ? 1e-6 : 1e-4;
        clv_layout from = random_layout(&mesh, rank, shape, below(2) ? CLV_REDUCTION_SUM : CLV_REDUCTION_MAX, false);
        clv_layout to = random_layout(&mesh, rank, shape, below(2) ? CLV_REDUCTION_SUM : CLV_REDUCTION_MAX, false);
        clv_reshard_plan plan = plan_for(arena, &mesh, &from, &to, shape, &machine, false);
        clv_reshard_plan blind = plan_for(arena, &mesh, &from, &to, shape, NULL, false);
        simulate(&plan, &mesh, &from, &to, shape);
        if (plan.seconds > seconds_on(&blind, &mesh, &machine) * (1 + 1e-9)) {
            char had[CLV_LAYOUT_TEXT], wanted[CLV_LAYOUT_TEXT], made[256], other[256];
            clv_layout_print(had, sizeof had, &from, &mesh);
            clv_layout_print(wanted, sizeof wanted, &to, &mesh);
            describe(made, sizeof made, &plan, &mesh);
            describe(other, sizeof other, &blind, &mesh);
            fail_msg("round %d, hosts of %d: {%s} -> {%s} of %d, %d, %d: %s in %g s; for one link %s in %g s", round,
                     (int)machine.ranks_per_host, had, wanted, (int)shape[0], (int)shape[1], (int)shape[2], made,
                     plan.seconds, other, seconds_on(&blind, &mesh, &machine));
        }
        clv_arena_free(arena);
    }
}

/* Alignments that divide evenly change nothing; the ends of a plan are the layouts as given. */
static void even_alignments_match(void **state)
{
    const int64_t shape[2] = {16, 64};
    clv_mesh mesh = mesh_of(P);
    clv_arena *arena = clv_arena_new();
    clv_layout from = layout_of("x,y*16", &mesh, 2), to = layout_of("_,y*8", &mesh, 2),
               same = layout_of("x,y", &mesh, 2);
    clv_reshard_plan plan = plan_of(arena, &mesh, &from, &to, shape);
    assert_int_equal(plan.n_steps, 1);
    assert_int_equal(plan.steps[0].kind, CLV_STEP_ALL_GATHER);
    assert_true(clv_layout_equal(&plan.steps[0].from, &from) && clv_layout_equal(&plan.steps[0].to, &to));
    clv_layout fine = layout_of("(x,y),_", &mesh, 2), coarse = layout_of("x*8,_", &mesh, 2);
    plan = plan_of(arena, &mesh, &fine, &coarse, shape);
    assert_int_equal(plan.n_steps, 1);
    assert_int_equal(plan.steps[0].kind, CLV_STEP_ALL_GATHER);
    plan = plan_of(arena, &mesh, &from, &same, shape);
    assert_true(plan.n_steps == 0 && plan.bytes == 0);
    clv_arena_free(arena);
}

static void cache_returns_the_same_plan(void **state)
{
    const int64_t shape[2] = {64, 64}, other[2] = {64, 65};
    clv_mesh mesh = mesh_of(P);
    clv_arena *arena = clv_arena_new();
    clv_reshard_cache *cache = clv_reshard_cache_new(arena, &mesh, NULL, true);
    const clv_reshard_plan *first, *again, *many[600];
    clv_error err = {0};
    clv_layout from = layout_of("(y,x),_", &mesh, 2), to = layout_of("x,_", &mesh, 2);
    assert_int_equal(clv_reshard_cache_plan(&first, cache, &from, &to, shape, CLV_F32, NULL), CLV_OK);
    assert_true(first->bytes == 8192);
    assert_int_equal(clv_reshard_cache_plan(&again, cache, &from, &to, other, CLV_F32, NULL), CLV_OK);
    assert_ptr_not_equal(first, again);
    assert_int_equal(clv_reshard_cache_plan(&again, cache, &from, &to, shape, CLV_BF16, NULL), CLV_OK);
    assert_true(again->bytes == 4096);
    memset(from.axes + 4, 0x55, sizeof from.axes - 4 * sizeof from.axes[0]); /* beyond the lists: not looked at */
    for (int i = 0; i < 600; i++)
        assert_int_equal(clv_reshard_cache_plan(&many[i], cache, &from, &to, (int64_t[]){64, i}, CLV_F32, NULL),
                         CLV_OK);
    assert_int_equal(clv_reshard_cache_plan(&again, cache, &from, &to, shape, CLV_F32, NULL), CLV_OK);
    assert_ptr_equal(first, again);
    assert_ptr_equal(first, many[64]);
    to = layout_of("x,_,_", &mesh, 3);
    assert_int_equal(clv_reshard_cache_plan(&again, cache, &from, &to, shape, CLV_F32, &err), CLV_ESHAPE);
    from.begin[3] = 99;
    assert_int_equal(clv_reshard_cache_plan(&again, cache, &from, &from, shape, CLV_F32, NULL), CLV_EINVAL);
    clv_arena_free(arena);
}

static void refuses_what_does_not_fit(void **state)
{
    const int64_t shape[2] = {7, 8};
    clv_mesh mesh = mesh_of(P);
    clv_arena *arena = clv_arena_new();
    clv_reshard_plan plan = {.n_steps = -9};
    clv_error err = {0};
    clv_layout from = layout_of("x,_", &mesh, 2), to = layout_of("x*2,_", &mesh, 2), flat = layout_of("x", &mesh, 1);
    assert_int_equal(clv_reshard_plan_make(&plan, arena, &mesh, &from, &to, shape, CLV_F32, NULL, true, &err),
                     CLV_ESHAPE);
    assert_string_equal(err.message, "layout: alignment 2 does not divide dimension 0 of size 7");
    err = (clv_error){0};
    assert_int_equal(clv_reshard_plan_make(&plan, arena, &mesh, &from, &flat, shape, CLV_F32, NULL, true, &err),
                     CLV_ESHAPE);
    assert_string_equal(err.message, "reshard: from a tensor of 2 dimensions to one of 1");
    to = from;
    to.axes[0].axis = 5;
    assert_int_equal(clv_reshard_plan_make(&plan, arena, &mesh, &from, &to, shape, CLV_F32, NULL, true, NULL),
                     CLV_EAXIS);
    assert_int_equal(plan.n_steps, -9);
    clv_arena_free(arena);
}

/* Searches are capped: on 16 axes a plan still comes at once, and is no worse than an all_reduce and an exchange. */
static void many_axes(void **state)
{
    const int64_t shape[4] = {64, 48, 80, 96};
    clv_mesh mesh = mesh_of("a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2,i=2,j=2,k=2,l=2,m=2,n=2,o=2,p=2");
    clv_arena *arena = clv_arena_new();
    clv_layout from = layout_of("(a,b),(c,d),_,e + sum{f,g,h,i}", &mesh, 4),
               to = layout_of("(f,a),c,(p,g),b", &mesh, 4);
    clv_reshard_plan plan = plan_of(arena, &mesh, &from, &to, shape);
    assert_true(plan.bytes <= simple_way(&mesh, &from, &to, shape));
    from = layout_of("(a,b,c),(d,e,f),(g,h,i),(j,k,l)", &mesh, 4);
    to = layout_of("(l,a,p),(k,b),(c,d,g),(j,e,o)", &mesh, 4);
    plan = plan_of(arena, &mesh, &from, &to, shape);
    assert_true(plan.bytes == (double)clv_reshard_lower_bound(&mesh, &from, &to, shape, CLV_F32));
    clv_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_table),
        cmocka_unit_test(pairs_of_even_shapes),
        cmocka_unit_test(pairs_of_uneven_shapes),
        cmocka_unit_test(random_changes),
        cmocka_unit_test(random_detours),
        cmocka_unit_test(crossing_cuts),
        cmocka_unit_test(time_decides),
        cmocka_unit_test(hosts_first),
        cmocka_unit_test(all_to_all_takes_both_links),
        cmocka_unit_test(ranks_of_a_host_share_the_network),
        cmocka_unit_test(machines_in_random_order),
        cmocka_unit_test(even_alignments_match),
        cmocka_unit_test(cache_returns_the_same_plan),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(many_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
