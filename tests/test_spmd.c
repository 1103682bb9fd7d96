/* test_spmd.c - functions by hand on every rank: collectives on random meshes, layouts and dtypes keep the whole tensor
 * what it was, move what plans of layouts say, and add as programs do; and what happens when ranks do not agree. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cleave/program.h"
#include "cleave/reshard.h"
#include "cleave/rng.h"
#include "cleave/spmd.h"
#include "must.h"
#include "random_layout.h"
#include "unit_test.h"

enum { CASES = 120, STEPS = 6, RANKS = 12, MOST = 4096 };

/* One that checks has a shadow where the transport is another (shadow/shadow_session.c): functions run twice. */
static clv_session *new_session(const clv_mesh *mesh, int64_t timeout_ms, int check)
{
    clv_error err = {0};
    clv_session *session;
    clv_session_options options = {.size = sizeof options, .timeout_ms = timeout_ms, .check = check};
    must(clv_session_new(&session, mesh, &options, &err), &err);
    return session;
}

static clv_session *session_on(const char *mesh_text, int64_t timeout_ms)
{
    clv_error err = {0};
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    return new_session(&mesh, timeout_ms, 1);
}

static clv_collective by_hand_at(const clv_session *session, int i)
{
    clv_error err = {0};
    clv_collective made = {.size = sizeof made};
    must(clv_spmd_collective(session, i, &made, &err), &err);
    return made;
}

static void expect(clv_status got, clv_status want, clv_error *err, const char *part)
{
    if (got != want || !strstr(err->message, part))
        fail_msg("expected %s with '%s', got %s: '%s'", clv_status_name(want), part, clv_status_name(got),
                 err->message);
    *err = (clv_error){0};
}

/* ---- a walk of collectives, after which a tensor is what it was ---- */

/* Where each axis of the mesh is: it cuts a dimension, or the tensor is partial over it, or neither. */
typedef struct place {
    int n[CLV_MAX_RANK];
    int cut[CLV_MAX_RANK][CLV_MAX_AXES]; /* major to minor */
    bool partial[CLV_MAX_AXES];
} place;

typedef enum walk_kind { GATHER, TO_ALL, SCATTER, REDUCE, SHIFT_AND_BACK, WALK_KINDS } walk_kind;

typedef struct walk_step {
    walk_kind kind;
    int dim;
    char axes[64];
    int64_t by;
    place after;
} walk_step;

typedef struct walk {
    clv_mesh mesh;
    clv_type type;
    place from;
    clv_reduction reduction;
    int n;
    walk_step steps[STEPS];
    uint64_t seed;
} walk;

static void place_text(char *out, const walk *w, const place *p)
{
    int used = 0, n = 0;
    out[0] = '\0';
    for (int d = 0; d < w->type.rank; d++) {
        used += sprintf(out + used, "%s%s", d > 0 ? "," : "", p->n[d] == 0 ? "_" : "(");
        for (int i = 0; i < p->n[d]; i++)
            used += sprintf(out + used, "%s%s", i > 0 ? "," : "", w->mesh.axis[p->cut[d][i]].name);
        used += sprintf(out + used, "%s", p->n[d] == 0 ? "" : ")");
    }
    for (int a = 0; a < w->mesh.n_axes; a++)
        if (p->partial[a])
            used += sprintf(out + used, "%s%s",
                            n++ > 0                             ? ","
                            : w->reduction == CLV_REDUCTION_SUM ? " + sum{"
                                                                : " + max{",
                            w->mesh.axis[a].name);
    if (n > 0)
        sprintf(out + used, "}");
}

/* Takes some axes from the minor ends of dimensions, in the mesh's order. */
static int take_minor(int *axes, place *p, const walk *w)
{
    bool taken[CLV_MAX_AXES] = {false};
    int n = 0;
    for (int d = 0; d < w->type.rank; d++)
        while (p->n[d] > 0 && any_pick(2))
            taken[p->cut[d][--p->n[d]]] = true;
    for (int a = 0; a < w->mesh.n_axes; a++)
        if (taken[a])
            axes[n++] = a;
    return n;
}

static int take_partial(int *axes, place *p, const walk *w)
{
    int n = 0;
    for (int a = 0; a < w->mesh.n_axes; a++)
        if (p->partial[a] && any_pick(2)) {
            p->partial[a] = false;
            axes[n++] = a;
        }
    return n;
}

static void make_walk(walk *w, uint64_t seed)
{
    any_seed(seed);
    *w = (walk){.mesh = any_mesh(RANKS), .seed = seed};
    w->type = (clv_type){.dtype = (clv_dtype)any_pick(CLV_DTYPE_COUNT), .rank = 1 + (int)any_pick(3)};
    w->reduction = w->type.dtype == CLV_BOOL || any_pick(2) ? CLV_REDUCTION_MAX : CLV_REDUCTION_SUM;
    for (int d = 0; d < w->type.rank; d++)
        w->type.shape[d] = any_pick(8) == 0 ? 0 : 1 + any_pick(13);
    for (int a = 0; a < w->mesh.n_axes; a++) {
        int where = (int)any_pick(w->type.rank + 2);
        if (where < w->type.rank)
            w->from.cut[where][w->from.n[where]++] = a;
        else
            w->from.partial[a] = where == w->type.rank;
    }
    place at = w->from;
    for (w->n = 0; w->n < STEPS; w->n++) {
        walk_step *s = &w->steps[w->n];
        int axes[CLV_MAX_AXES], n = 0;
        s->kind = (walk_kind)any_pick(WALK_KINDS);
        s->dim = (int)any_pick(w->type.rank);
        s->by = any_pick(9) - 4;
        if (s->kind == SCATTER || s->kind == REDUCE)
            n = take_partial(axes, &at, w);
        else if (s->kind != SHIFT_AND_BACK)
            n = take_minor(axes, &at, w);
        else
            for (int a = 0; a < w->mesh.n_axes; a++)
                if (any_pick(2))
                    axes[n++] = a;
        for (int i = 0; i < n; i++) {
            strcat(strcat(s->axes, i > 0 ? "," : ""), w->mesh.axis[axes[i]].name);
            if (s->kind == TO_ALL || s->kind == SCATTER)
                at.cut[s->dim][at.n[s->dim]++] = axes[i];
        }
        s->after = at;
    }
}

static clv_status walk_step_on(clv_local_tensor *x, clv_spmd *spmd, const walk *w, const walk_step *s, clv_error *err)
{
    char text[512];
    clv_layout want;
    switch (s->kind) {
    case GATHER:
        CLV_TRY(clv_spmd_all_gather(x, spmd, x, s->axes, err));
        break;
    case TO_ALL:
        CLV_TRY(clv_spmd_all_to_all(x, spmd, x, s->dim, s->axes, err));
        break;
    case SCATTER:
        CLV_TRY(clv_spmd_reduce_scatter(x, spmd, x, w->reduction, s->dim, s->axes, err));
        break;
    case REDUCE:
        CLV_TRY(clv_spmd_all_reduce(x, spmd, x, w->reduction, s->axes, err));
        break;
    default: /* what came around is cut, gathered and moved like any other */
        CLV_TRY(clv_spmd_shift(x, spmd, x, s->by, s->axes, err));
        CLV_TRY(clv_spmd_barrier(spmd, s->axes, err));
        CLV_TRY(clv_spmd_shift(x, spmd, x, 1, s->axes, err));
        CLV_TRY(clv_spmd_shift(x, spmd, x, -s->by - 1, s->axes, err));
    }
    place_text(text, w, &s->after);
    CLV_TRY(clv_layout_parse(&want, text, &w->mesh, w->type.rank, err));
    if (!clv_layout_same_shards(&want, &x->layout, &w->mesh, w->type.shape))
        return clv_fail(err, CLV_ECHECK, "step %d over %s ends in another layout than '%s'", (int)s->kind, s->axes,
                        text);
    return CLV_OK;
}

static clv_status walk_on_rank(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                               clv_error *err)
{
    const walk *w = arg;
    clv_local_tensor x = in[0];
    for (int i = 0; i < w->n; i++)
        CLV_TRY(walk_step_on(&x, spmd, w, &w->steps[i], err));
    clv_spmd_free(spmd, NULL);
    out[0] = x;
    return CLV_OK;
}

/* Whatever moves elements and does not add costs the least that any plan may; what is one step of a plan costs as much.
 */
static void check_bytes(const clv_session *session, const walk *w)
{
    clv_error err = {0};
    for (int i = 0; i < clv_spmd_collective_count(session); i++) {
        clv_collective made = by_hand_at(session, i);
        clv_reshard_step_info step = {.size = sizeof step};
        clv_reshard *plan;
        assert_true(!made.cause && !made.reason && !made.statement && !made.rules); /* there is nothing to explain */
        if (strcmp(made.kind, "permute") == 0)
            continue;
        must(clv_reshard_new(&plan, &w->mesh, &made.from, &made.to, w->type.shape, w->type.dtype, &err), &err);
        int64_t least = clv_reshard_lower_bound_bytes(plan);
        if (least >= 0 && (int64_t)made.bytes != least)
            fail_msg("case %llu: %s moves %g bytes, not %lld", (unsigned long long)w->seed, made.kind, made.bytes,
                     (long long)least);
        if (clv_reshard_step_count(plan) == 1) {
            must(clv_reshard_get_step(plan, 0, &step, &err), &err);
            if (strcmp(step.kind, made.kind) == 0 && step.bytes != made.bytes)
                fail_msg("case %llu: %s moves %g bytes, a plan's %g", (unsigned long long)w->seed, made.kind,
                         made.bytes, step.bytes);
        }
        clv_reshard_free(plan);
    }
    assert_int_equal(clv_spmd_collective(session, -1, &(clv_collective){0}, NULL), CLV_EINVAL);
}

static void test_walks(void **state)
{
    static walk w;
    static unsigned char x[8 * MOST], y[8 * MOST];
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        clv_error err = {0};
        char from[512], to[512];
        make_walk(&w, seed);
        clv_session *session = new_session(&w.mesh, 20000, 1);
        place_text(from, &w, &w.from);
        place_text(to, &w, &w.steps[w.n - 1].after);
        size_t size = clv_dtype_size(w.type.dtype);
        int64_t elems = 1;
        for (int d = 0; d < w.type.rank; d++)
            elems *= w.type.shape[d];
        for (int64_t i = 0; i < elems; i++)
            clv_dtype_store(w.type.dtype, x, i, w.type.dtype == CLV_BOOL ? (double)(i % 2) : (double)(i % 100));
        memset(y, 0xaa, sizeof y);
        clv_spmd_input in = {w.type, from, x};
        clv_spmd_output out = {w.type, to, y};
        for (int run = 0; run < 2; run++) { /* the second by the plans of the first */
            clv_status status = clv_spmd_run(session, walk_on_rank, &w, &in, 1, &out, 1, NULL, &err);
            if (status != CLV_OK || memcmp(x, y, size * (size_t)elems) != 0)
                fail_msg("case %llu, %s to %s: %s", (unsigned long long)seed, from, to,
                         status == CLV_OK ? "other values" : err.message);
            assert_int_equal(y[size * (size_t)elems], 0xaa);
        }
        check_bytes(session, &w);
        clv_session_free(session);
    }
}

/* ---- reductions ---- */

typedef struct reduction_case {
    clv_reduction reduction;
    clv_dtype dtype;
} reduction_case;

/* Products of six fit into a byte. */
static double value_of(int rank, int64_t i, clv_dtype dtype)
{
    return dtype == CLV_BOOL ? (double)((rank + i) % 3 > 0) : (double)(1 + (rank * 5 + i * 3) % 3 % 2);
}

static double combine(double a, double b, const reduction_case *c)
{
    switch (c->reduction) {
    case CLV_REDUCTION_SUM:
        return c->dtype == CLV_BOOL ? (a + b > 0) : a + b;
    case CLV_REDUCTION_MAX:
        return a > b ? a : b;
    case CLV_REDUCTION_MIN:
        return a < b ? a : b;
    default:
        return a * b;
    }
}

/* Each rank has values of its own in a tensor that no axis cuts. */
static clv_status reduce_own(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                             clv_error *err)
{
    static const char *const over[] = {"a", "b", "a,b", ""};
    const reduction_case *c = arg;
    int64_t members[6];
    for (int o = 0; o < 4; o++) {
        clv_local_tensor x, all, part;
        int n, me;
        CLV_TRY(clv_spmd_zeros(&x, spmd, c->dtype, 1, (int64_t[]){7}, "_", err));
        for (int64_t i = 0; i < 7; i++)
            clv_dtype_store(c->dtype, x.data, i, value_of(clv_spmd_rank(spmd), i, c->dtype));
        CLV_TRY(clv_spmd_all_reduce(&all, spmd, &x, c->reduction, over[o], err));
        CLV_TRY(clv_spmd_reduce_scatter(&part, spmd, &x, c->reduction, 0, over[o], err));
        CLV_TRY(clv_spmd_group(&n, &me, spmd, over[o], err));
        clv_subaxis axes[2] = {clv_mesh_whole_axis(clv_spmd_mesh(spmd), o == 1),
                               clv_mesh_whole_axis(clv_spmd_mesh(spmd), 1)};
        if (clv_mesh_group(members, clv_spmd_mesh(spmd), axes, o == 3 ? 0 : 1 + (o == 2), clv_spmd_rank(spmd)) != n ||
            members[me] != clv_spmd_rank(spmd))
            return clv_fail(err, CLV_ECHECK, "the group over '%s' is another", over[o]);
        for (int64_t i = 0; i < 7; i++) {
            double want = value_of((int)members[0], i, c->dtype);
            for (int m = 1; m < n; m++)
                want = combine(want, value_of((int)members[m], i, c->dtype), c);
            bool mine = i >= part.shard.lo[0] && i < part.shard.hi[0];
            if (clv_dtype_load(c->dtype, all.data, i) != want ||
                (mine && clv_dtype_load(c->dtype, part.data, i - part.shard.lo[0]) != want))
                return clv_fail(err, CLV_ECHECK, "%s of %s over '%s': element %lld is not %g", "a reduction",
                                clv_dtype_name(c->dtype), over[o], (long long)i, want);
        }
        clv_spmd_free(spmd, &all);
        if (all.data)
            return clv_fail(err, CLV_ECHECK, "memory that was given back");
    }
    return CLV_OK;
}

static void test_reductions(void **state)
{
    clv_session *session = session_on("a=2,b=3", 0);
    for (int r = CLV_REDUCTION_SUM; r <= CLV_REDUCTION_PRODUCT; r++)
        for (int t = 0; t < CLV_DTYPE_COUNT; t++) {
            clv_error err = {0};
            reduction_case c = {(clv_reduction)r, (clv_dtype)t};
            must(clv_spmd_run(session, reduce_own, &c, NULL, 0, NULL, 0, NULL, &err), &err);
        }
    clv_session_free(session);
}

/* Row i of a rank's addend is row i of its block of b. */
static clv_status add_blocks(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                             clv_error *err)
{
    clv_local_tensor addend;
    const int64_t *n = &out[0].type.shape[0];
    CLV_TRY(clv_spmd_zeros(&addend, spmd, in[0].type.dtype, 2, n, "_,_ + sum{x}", err));
    memcpy(addend.data, in[0].data, (size_t)(n[0] * n[1]) * clv_dtype_size(in[0].type.dtype));
    CLV_TRY(clv_spmd_all_reduce(&out[0], spmd, &addend, CLV_REDUCTION_SUM, "x", err));
    out[1] = addend; /* reduced after the function */
    return CLV_OK;
}

/* The same bits as a program's sum: of a b, where a takes one row out of each rank's block of b. Small results are
 * summed by each rank, large ones in slices. */
static void test_bits_of_programs(void **state)
{
    enum { SHARES = 5, MOST_ROWS = 110, INNER = 4 * MOST_ROWS };
    static const clv_dtype dtypes[] = {CLV_F32, CLV_BF16, CLV_F16, CLV_F64};
    static float random[SHARES * INNER * MOST_ROWS], picks[MOST_ROWS * SHARES * INNER];
    static double a[MOST_ROWS * SHARES * INNER], b[SHARES * INNER * MOST_ROWS];
    static double by_hand[2][MOST_ROWS * MOST_ROWS], by_program[MOST_ROWS * MOST_ROWS];
    clv_random_normal(random, clv_key_seed(3), 0, SHARES * INNER * MOST_ROWS);
    for (int t = 0; t < 4; t++)
        for (int64_t n = 16; n <= MOST_ROWS; n += MOST_ROWS - 16) {
            clv_error err = {0};
            clv_dtype dtype = dtypes[t];
            int64_t inner = 4 * n, k = SHARES * inner;
            clv_graph *graph = must_graph("x=5");
            clv_program *program;
            clv_layout columns = clv_graph_layout(graph, 2, "_,x"), rows = clv_graph_layout(graph, 2, "x,_"),
                       whole = clv_layout_replicated(2);
            clv_value va = clv_input(graph, "a", dtype, 2, (int64_t[]){n, k}, &columns),
                      vb = clv_input(graph, "b", dtype, 2, (int64_t[]){k, n}, &rows);
            clv_output(graph, "c", clv_einsum(graph, "ik,kj->ij", va, vb), &whole);
            must(clv_compile(&program, graph, NULL, &err), &err);
            for (int64_t i = 0; i < n * k; i++)
                picks[i] = i % k % inner == i / k;
            clv_dtype_convert(dtype, a, CLV_F32, picks, n * k);
            clv_dtype_convert(dtype, b, CLV_F32, random, k * n);
            clv_session *session = new_session(clv_program_mesh(program), 0, 1);
            clv_input_binding in[] = {{"a", a}, {"b", b}};
            clv_output_binding out = {"c", by_program};
            must(clv_session_run(session, program, in, 2, &out, 1, &err), &err);
            const clv_type type = {dtype, 2, {n, n}};
            clv_spmd_input input = {{dtype, 2, {k, n}}, "x,_", b};
            clv_spmd_output outputs[] = {{type, "_,_", by_hand[0]}, {type, "_,_ + sum{x}", by_hand[1]}};
            must(clv_spmd_run(session, add_blocks, NULL, &input, 1, outputs, 2, NULL, &err), &err);
            assert_memory_equal(by_hand[0], by_program, (size_t)(n * n) * clv_dtype_size(dtype));
            assert_memory_equal(by_hand[1], by_program, (size_t)(n * n) * clv_dtype_size(dtype));
            assert_int_equal(clv_spmd_collective_count(session), 2);
            must(clv_spmd_run(session, add_blocks, NULL, &input, 1, outputs, 2, NULL, &err), &err);
            assert_int_equal(clv_spmd_collective_count(session), 2); /* of the last run */
            clv_collective made = {.size = sizeof made}, hand = by_hand_at(session, 0);
            must(clv_program_collective(program, 0, &made, &err), &err);
            assert_string_equal(made.kind, "all_reduce");
            assert_string_equal(hand.kind, "all_reduce");
            assert_true(hand.bytes == made.bytes);
            clv_session_free(session);
            clv_program_free(program);
            clv_graph_free(graph);
        }
}

/* ---- permutes, broadcasts, state ---- */

/* Uneven blocks of 11 over 4 ranks: the holder of each afterwards, zeros on ranks without a sender. */
static clv_status move_blocks(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                              clv_error *err)
{
    static const clv_spmd_pair pairs[] = {{0, 3}, {3, 1}, {0, 0}};
    static const int from[4] = {0, 3, -1, 0};
    int me = clv_spmd_rank(spmd);
    clv_local_tensor x, y, whole;
    CLV_TRY(clv_spmd_permute(&x, spmd, &in[0], pairs, 3, "x", err));
    clv_shard want =
        clv_layout_shard(&in[0].layout, clv_spmd_mesh(spmd), in[0].type.shape, from[me] < 0 ? me : from[me]);
    if (x.shard.lo[0] != want.lo[0] || x.shard.hi[0] != want.hi[0])
        return clv_fail(err, CLV_ECHECK, "rank %d holds [%lld, %lld)", me, (long long)x.shard.lo[0],
                        (long long)x.shard.hi[0]);
    for (int64_t i = x.shard.lo[0]; i < x.shard.hi[0]; i++)
        if (((int32_t *)x.data)[i - x.shard.lo[0]] != (from[me] < 0 ? 0 : i + 1))
            return clv_fail(err, CLV_ECHECK, "element %lld of rank %d is another", (long long)i, me);
    if (clv_spmd_all_gather(&whole, spmd, &x, "x", NULL) != CLV_EINVAL) /* block 1 is lost */
        return clv_fail(err, CLV_ECHECK, "what nobody holds was gathered");
    CLV_TRY(clv_spmd_broadcast(&y, spmd, &in[0], 2, "x", err));
    for (int64_t i = 5; i < 8; i++)
        if (y.shard.lo[0] != 5 || y.shard.hi[0] != 8 || ((int32_t *)y.data)[i - 5] != i + 1)
            return clv_fail(err, CLV_ECHECK, "rank %d did not get what rank 2 holds", me);
    /* a ring: after each turn the block of one rank further back */
    y = in[0];
    for (int turn = 1; turn <= 8; turn++) {
        clv_local_tensor next;
        CLV_TRY(clv_spmd_shift(&next, spmd, &y, 1, "x", err));
        if (turn > 1)
            clv_spmd_free(spmd, &y);
        y = next;
        want = clv_layout_shard(&in[0].layout, clv_spmd_mesh(spmd), in[0].type.shape, ((me - turn) % 4 + 4) % 4);
        for (int64_t i = want.lo[0]; i < want.hi[0]; i++)
            if (y.shard.lo[0] != want.lo[0] || ((int32_t *)y.data)[i - want.lo[0]] != i + 1)
                return clv_fail(err, CLV_ECHECK, "turn %d: rank %d has another block", turn, me);
        CLV_TRY(clv_spmd_all_gather(&whole, spmd, &y, "x", err));
        for (int64_t i = 0; i < 11; i++)
            if (((int32_t *)whole.data)[i] != i + 1)
                return clv_fail(err, CLV_ECHECK, "turn %d: element %lld is lost", turn, (long long)i);
    }
    return CLV_OK;
}

static void test_permutes(void **state)
{
    clv_error err = {0};
    clv_session *session = session_on("x=4", 0);
    int32_t x[11];
    for (int i = 0; i < 11; i++)
        x[i] = i + 1;
    clv_spmd_input in = {{CLV_I32, 1, {11}}, "x", x};
    must(clv_spmd_run(session, move_blocks, NULL, &in, 1, NULL, 0, NULL, &err), &err);
    assert_string_equal(by_hand_at(session, 0).kind, "permute");
    assert_true(by_hand_at(session, 0).bytes == 12); /* rank 1 gets three elements */
    clv_session_free(session);
}

/* Parts of an axis, when they are named before. */
static clv_status gather_part(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                              clv_error *err)
{
    return clv_spmd_all_gather(&out[0], spmd, &in[0], "x:(2)3", err);
}

static void test_parts_of_axes(void **state)
{
    static const char *const groups[] = {"x:(2)3"};
    clv_error err = {0};
    clv_session *session = session_on("x=6", 0);
    clv_spmd_options options = {.n_groups = 1, .groups = groups};
    float x[13], y[13];
    for (int i = 0; i < 13; i++)
        x[i] = (float)i;
    clv_spmd_input in = {{CLV_F32, 1, {13}}, "x", x};
    clv_spmd_output out = {{CLV_F32, 1, {13}}, "x:(1)2", y};
    must(clv_spmd_run(session, gather_part, NULL, &in, 1, &out, 1, &options, &err), &err);
    assert_memory_equal(x, y, sizeof x);
    clv_session_free(session);
    session = session_on("x=6", 0);
    expect(clv_spmd_run(session, gather_part, NULL, &in, 1, &out, 1, NULL, &err), CLV_EINVAL, &err,
           "clv_spmd_options.groups");
    clv_session_free(session);
}

static clv_status double_state(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                               clv_error *err)
{
    clv_local_tensor w;
    if (clv_spmd_state(&w, spmd, "v", NULL) != CLV_ENOTFOUND)
        return clv_fail(err, CLV_ECHECK, "there is no such state");
    CLV_TRY(clv_spmd_state(&w, spmd, "w", err));
    for (int64_t i = 0; i < clv_shard_elems(&w.shard); i++)
        ((float *)w.data)[i] *= 2;
    return CLV_OK;
}

static void test_state(void **state)
{
    clv_error err = {0};
    clv_graph *graph = must_graph("x=3");
    clv_program *program;
    clv_layout cut = clv_graph_layout(graph, 1, "x");
    clv_value w = clv_state(graph, "w", CLV_F32, 1, (int64_t[]){7}, &cut, (clv_init){CLV_INIT_ONES, 0});
    float sum = 0;
    clv_output(graph, "sum", clv_reduce(graph, CLV_SUM, w, (int[]){0}, 1, false), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_session *session = new_session(clv_program_mesh(program), 0, 1);
    clv_output_binding out = {"sum", &sum};
    must(clv_session_load(session, program, &err), &err);
    must(clv_spmd_run(session, double_state, NULL, NULL, 0, NULL, 0, NULL, &err), &err);
    must(clv_session_run(session, program, NULL, 0, &out, 1, &err), &err);
    assert_true(sum == 14);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* ---- ranks that do not agree ---- */

typedef enum fault {
    OTHER_KIND,
    OTHER_SHAPE,
    OTHER_AXES,
    FAILS,
    STAYS_AWAY,
    OTHER_REDUCTION,
    OTHER_PAIRS,
    BARRIER
} fault;

static clv_status with_fault(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                             clv_error *err)
{
    fault f = *(fault *)arg;
    bool other = clv_spmd_rank(spmd) == 1;
    clv_local_tensor x, y;
    int64_t n = other && f == OTHER_SHAPE ? 9 : 8;
    CLV_TRY(clv_spmd_zeros(&x, spmd, CLV_F32, 1, &n, "_ + sum{x}", err));
    if (other && f == FAILS)
        return clv_fail(err, CLV_ELIMIT, "on purpose");
    if (other && f == STAYS_AWAY)
        return CLV_OK;
    if (other && f == BARRIER)
        return clv_spmd_barrier(spmd, "x", err);
    if (other && f == OTHER_KIND)
        return clv_spmd_reduce_scatter(&y, spmd, &x, CLV_REDUCTION_SUM, 0, "x", err);
    if (f == OTHER_REDUCTION) {
        CLV_TRY(clv_spmd_zeros(&x, spmd, CLV_F32, 1, &n, "_", err));
        return clv_spmd_all_reduce(&y, spmd, &x, other ? CLV_REDUCTION_MIN : CLV_REDUCTION_MAX, "x", err);
    }
    if (f == OTHER_PAIRS)
        return clv_spmd_shift(&y, spmd, &x, other ? 1 : -1, "x", err);
    return clv_spmd_all_reduce(&y, spmd, &x, CLV_REDUCTION_SUM, other && f == OTHER_AXES ? "y" : "x", err);
}

/* Rank 1 asks for the end; all end at their next collective. */
static clv_status cancel_it(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                            clv_error *err)
{
    if (clv_spmd_rank(spmd) == 1)
        clv_cancel_request(arg);
    for (int i = 0; i < 1000; i++)
        CLV_TRY(clv_spmd_barrier(spmd, "x", err));
    return CLV_OK;
}

static void test_cancel(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session;
    clv_cancel cancel = {0};
    must(clv_mesh_parse(&mesh, "x=2", &err), &err);
    must(clv_session_new(&session, &mesh,
                         &(clv_session_options){.size = sizeof(clv_session_options), .cancel = &cancel}, &err),
         &err);
    clv_cancel_request(&cancel);
    expect(clv_spmd_run(session, cancel_it, &cancel, NULL, 0, NULL, 0, NULL, &err), CLV_ECANCELLED, &err, "began");
    clv_cancel_reset(&cancel);
    expect(clv_spmd_run(session, cancel_it, &cancel, NULL, 0, NULL, 0, NULL, &err), CLV_ECANCELLED, &err, "barrier");
    clv_session_free(session);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All return, soon, with an error that names the rank and what it called; and again when asked again. */
static void expect_fault(fault f, clv_status want, const char *part, const char *other, double within)
{
    clv_error err = {0};
    clv_session *session = session_on("x=3,y=2", 300);
    double start = now();
    clv_status status = clv_spmd_run(session, with_fault, &f, NULL, 0, NULL, 0, NULL, &err);
    if (status != want || !strstr(err.message, part) || !strstr(err.message, other))
        fail_msg("fault %d: %s: '%s'", (int)f, clv_status_name(status), err.message);
    bool by_function = strncmp(err.message, "rank ", 5) == 0 && err.message[6] == ':';
    if (err.rank < 0 || by_function != (f == FAILS)) /* the failure of the world is reported as it was found */
        fail_msg("fault %d, rank %d: %s", (int)f, err.rank, err.message);
    if (!(now() - start < within))
        fail_msg("fault %d took %g s", (int)f, now() - start);
    err = (clv_error){0};
    assert_int_equal(clv_spmd_run(session, with_fault, &f, NULL, 0, NULL, 0, NULL, &err), want);
    clv_session_free(session);
}

static void test_faults(void **state)
{
    expect_fault(FAILS, CLV_ELIMIT, "rank 1", "on purpose", 5);
    expect_fault(OTHER_KIND, CLV_EPEER, "reduce_scatter", "all_reduce", 5);
    expect_fault(OTHER_SHAPE, CLV_EPEER, "f32[9]", "f32[8]", 5);
    expect_fault(OTHER_REDUCTION, CLV_EPEER, "by min", "by max", 5);
    expect_fault(OTHER_PAIRS, CLV_EPEER, "permute 2>0,0>1,1>2", "permute 1>0,2>1,0>2", 5);
    expect_fault(BARRIER, CLV_EPEER, "rank 1 is in barrier over 'x',",
                 "all_reduce of f32[8] '_ + sum{x}' by sum over 'x'", 5);
    expect_fault(STAYS_AWAY, CLV_ETIMEOUT, "missing", "rank 1", 10);
    expect_fault(OTHER_AXES, CLV_ETIMEOUT, "missing", "rank 1", 10);
}

/* Where elements come from, as each rank says it: no two say the same, and there is a rank that takes nothing. */
typedef enum source { OWN_ROOT, NEXT_ROOT, OWN_PAIR, PAIR_OR_NONE, SOURCES } source;

static clv_status from_another(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                               clv_error *err)
{
    source s = *(source *)arg;
    int me = clv_spmd_rank(spmd);
    clv_spmd_pair pair = {.from = 0, .to = me};
    clv_local_tensor y;
    if (s == OWN_ROOT || s == NEXT_ROOT)
        return clv_spmd_broadcast(&y, spmd, &in[0], (me + (s == NEXT_ROOT)) % 3, "x", err);
    return clv_spmd_permute(&y, spmd, &in[0], &pair, s == OWN_PAIR || me == 1, "x", err);
}

/* Pairs of a permute that differ after those that a message shows. */
static clv_status with_late_pairs(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                                  clv_error *err)
{
    enum { N = 24 };
    clv_spmd_pair pairs[N];
    clv_local_tensor y;
    for (int i = 0; i < N; i++)
        pairs[i] = (clv_spmd_pair){i, (i + 1) % N};
    if (clv_spmd_rank(spmd) == 1) {
        pairs[N - 2].to = 0;
        pairs[N - 1].to = N - 1;
    }
    return clv_spmd_permute(&y, spmd, &in[0], pairs, N, "x", err);
}

static void test_late_pairs(void **state)
{
    static const char *const transports[] = {"threads", "mailbox"};
    float x[24] = {0};
    clv_spmd_input in = {{CLV_F32, 1, {24}}, "x", x};
    for (int t = 0; t < 2; t++) {
        clv_error err = {0};
        clv_mesh mesh;
        clv_session *session;
        clv_session_options options = {.size = sizeof options, .no_pinning = 1, .transport = transports[t]};
        must(clv_mesh_parse(&mesh, "x=24", &err), &err);
        must(clv_session_new(&session, &mesh, &options, &err), &err);
        clv_status status = clv_spmd_run(session, with_late_pairs, NULL, &in, 1, NULL, 0, NULL, &err);
        if (status != CLV_EPEER || !strstr(err.message, "do not match: rank "))
            fail_msg("%s: %s: '%s'", transports[t], clv_status_name(status), err.message);
        clv_session_free(session);
    }
}

static void test_other_sources(void **state)
{
    static const char *const transports[] = {"threads", "mailbox"};
    float x[] = {1, 2, 3};
    clv_spmd_input in = {{CLV_F32, 1, {3}}, "x", x};
    for (int t = 0; t < 2; t++)
        for (source s = 0; s < SOURCES; s++)
            for (int k = 0; k < 15; k++) {
                clv_error err = {0};
                clv_mesh mesh;
                clv_session *session;
                clv_session_options options = {.size = sizeof options,
                                               .timeout_ms = 20000,
                                               .no_pinning = 1,
                                               .seed = (uint64_t)k,
                                               .transport = transports[t]};
                must(clv_mesh_parse(&mesh, "x=3", &err), &err);
                must(clv_session_new(&session, &mesh, &options, &err), &err);
                double start = now();
                clv_status status = clv_spmd_run(session, from_another, &s, &in, 1, NULL, 0, NULL, &err);
                bool names = s == OWN_PAIR || s == PAIR_OR_NONE ? strstr(err.message, "permute 0>") != NULL
                                                                : strstr(err.message, "broadcast from member ") != NULL;
                if (status != CLV_EPEER || !names || !strstr(err.message, "do not match: rank ") ||
                    !strstr(err.message, ", rank "))
                    fail_msg("%s, source %d: %s: '%s'", transports[t], (int)s, clv_status_name(status), err.message);
                assert_true(now() - start < 10);
                clv_session_free(session);
            }
}

/* ---- functions that go on, and sessions that are in use ---- */

typedef enum way { ONE_GOES_ON, ALL_GO_ON, ALL_COMPUTE, OTHERS_TALK } way;

/* Rank 0 may return, or ask for the end, while the others go on. */
typedef struct going_on {
    way way;
    clv_cancel cancel;
    _Atomic int end;
} going_on;

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static clv_status go_on(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *err)
{
    going_on *g = arg;
    bool first = clv_spmd_rank(spmd) == 0;
    if (g->way == ALL_COMPUTE)
        sleep_ms(1000);
    if (g->way == ALL_GO_ON && first)
        clv_cancel_request(&g->cancel);
    for (int i = 0; g->way == OTHERS_TALK && clv_spmd_rank(spmd) >= 2 && i < 12; i++) {
        sleep_ms(100);
        CLV_TRY(clv_spmd_barrier(spmd, "y", err));
    }
    while ((g->way == ONE_GOES_ON && clv_spmd_rank(spmd) == 2) || g->way == ALL_GO_ON) {
        sleep_ms(5);
        if (atomic_load(&g->end)) {
            ((float *)out[0].data)[0] = 7; /* late: the memory is no longer used */
            break;
        }
    }
    return CLV_OK;
}

static void test_going_on(void **state)
{
    static const char *const transports[] = {"threads", "mailbox"};
    for (int t = 0; t < 2; t++)
        for (way w = ONE_GOES_ON; w <= OTHERS_TALK; w++) {
            clv_error err = {0};
            clv_mesh mesh;
            clv_session *session;
            going_on g = {.way = w};
            float y[4] = {0};
            clv_spmd_output out = {{CLV_F32, 1, {4}}, "(x,y)", y};
            clv_session_options options = {
                .size = sizeof options, .timeout_ms = 300, .cancel = &g.cancel, .transport = transports[t]};
            must(clv_mesh_parse(&mesh, "x=2,y=2", &err), &err);
            must(clv_session_new(&session, &mesh, &options, &err), &err);
            double start = now();
            clv_status status = clv_spmd_run(session, go_on, &g, NULL, 0, &out, 1, NULL, &err);
            if (w == ALL_COMPUTE || w == OTHERS_TALK)
                must(status, &err);
            else
                expect(status, CLV_ETIMEOUT, &err,
                       w == ONE_GOES_ON ? "rank 2 neither returned nor called a collective for 600 ms, though others"
                                        : "rank 0, 1, 2, 3 neither returned nor called a collective for 600 ms, though "
                                          "the run was cancelled");
            assert_true(now() - start < 10);
            atomic_store(&g.end, 1);
            sleep_ms(50); /* so that the late threads are back and nothing need be leaked */
            clv_session_free(session);
            assert_true(y[0] == 0 && y[2] == 0);
        }
}

typedef struct busy {
    clv_session *session;
    const clv_program *program;
    clv_status status[7];
    clv_error error;
} busy;

static clv_status nothing(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *err)
{
    return CLV_OK;
}

static void *call_all(void *arg)
{
    busy *b = arg;
    float x[7];
    b->status[0] = clv_spmd_run(b->session, nothing, NULL, NULL, 0, NULL, 0, NULL, &b->error);
    b->status[1] = clv_session_run(b->session, b->program, NULL, 0, NULL, 0, NULL);
    b->status[2] = clv_session_load(b->session, b->program, NULL);
    b->status[3] = clv_session_read(b->session, "w", NULL, x, NULL);
    b->status[4] = clv_session_write(b->session, "w", NULL, x, NULL);
    b->status[5] = clv_session_take_stats(b->session, NULL, NULL);
    clv_session_unload(b->session, b->program);
    return NULL;
}

/* By the function itself, and by a thread of its own. */
static clv_status call_inside(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                              clv_error *err)
{
    pthread_t thread;
    if (clv_spmd_rank(spmd) == 0)
        call_all(arg);
    if (clv_spmd_rank(spmd) == 1) {
        busy *other = (busy *)arg + 1;
        if (pthread_create(&thread, NULL, call_all, other) != 0)
            return clv_fail(err, CLV_ELIMIT, "no thread");
        pthread_join(thread, NULL);
    }
    return CLV_OK;
}

static void test_in_use(void **state)
{
    clv_error err = {0};
    clv_graph *graph = must_graph("x=2");
    clv_program *program;
    clv_value w = clv_state(graph, "w", CLV_F32, 1, (int64_t[]){7}, NULL, (clv_init){CLV_INIT_ONES, 0});
    clv_output(graph, "w2", w, NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_session *session = new_session(clv_program_mesh(program), 5000, 0); /* the calls inside are of this one */
    must(clv_session_load(session, program, &err), &err);
    busy calls[2] = {{.session = session, .program = program}, {.session = session, .program = program}};
    must(clv_spmd_run(session, call_inside, calls, NULL, 0, NULL, 0, NULL, &err), &err);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 6; k++)
            assert_int_equal(calls[i].status[k], CLV_EINVAL);
        expect(CLV_EINVAL, CLV_EINVAL, &calls[i].error, "clv_spmd_run: another call uses this session");
        calls[i].error = (clv_error){0};
        call_all(&calls[i]); /* and now no rank does */
        for (int k = 0; k < 6; k++)
            assert_int_equal(calls[i].status[k], CLV_OK);
    }
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* What a function returns that is no status; and a status that its message is not of. */
static clv_status return_it(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                            clv_error *err)
{
    if (clv_spmd_rank(spmd) != 1)
        return CLV_OK;
    clv_fail(err, CLV_EIO, "went on from this");
    return (clv_status) * (int *)arg;
}

static void test_statuses(void **state)
{
    for (int k = 0; k < 4; k++) {
        int code = (int[]){-5, 12345, 18, CLV_ESHAPE}[k];
        clv_error err = {0};
        clv_session *session = session_on("x=2", 0);
        clv_status status = clv_spmd_run(session, return_it, &code, NULL, 0, NULL, 0, NULL, &err);
        assert_int_equal(err.code, status);
        assert_int_equal(err.rank, 1);
        assert_null(strstr(err.message, "went on"));
        char says[64];
        snprintf(says, sizeof says, "the function returned %d, which is no status", code);
        expect(status, k < 3 ? CLV_EINVAL : CLV_ESHAPE, &err, k < 3 ? says : clv_status_text(CLV_ESHAPE));
        clv_session_free(session);
    }
}

/* ---- what is refused ---- */

/* On a rank's thread. */
static clv_status refused(clv_status got, clv_status want, clv_error *e, const char *part, clv_error *err)
{
    if (got != want || !strstr(e->message, part))
        return clv_fail(err, CLV_ECHECK, "expected %s with '%s', got %s: '%s'", clv_status_name(want), part,
                        clv_status_name(got), e->message);
    *e = (clv_error){0};
    return CLV_OK;
}

/* A local is a struct that the function may have written into. */
static clv_status refuse_spoilt(clv_spmd *spmd, const clv_local_tensor *in, clv_error *err)
{
    enum { DAMAGES = 9 };
    static const clv_status want[DAMAGES] = {CLV_EDTYPE, CLV_ELIMIT, CLV_ESHAPE, CLV_EINVAL, CLV_EAXIS,
                                             CLV_EINVAL, CLV_ESHAPE, CLV_ESHAPE, CLV_EINVAL};
    for (int damage = 0; damage < DAMAGES; damage++) {
        clv_error e = {0};
        clv_local_tensor spoilt[DAMAGES], y;
        for (int i = 0; i < DAMAGES; i++)
            spoilt[i] = *in;
        spoilt[0].type.dtype = (clv_dtype)55;
        spoilt[1].type.rank = 99;
        spoilt[2].layout.rank = -3;
        spoilt[3].layout.begin[1] = 200;
        spoilt[4].layout.axes[0].axis = 77;
        spoilt[5].layout.alignment[0] = 0;
        spoilt[6].type.shape[0] = -1;
        spoilt[7].shard.rank = 99;
        spoilt[8].shard.lo[0] = -100;
        const clv_local_tensor *x = &spoilt[damage];
        CLV_TRY(refused(clv_spmd_all_gather(&y, spmd, x, "x", &e), want[damage], &e, "local", err));
        CLV_TRY(refused(clv_spmd_shift(&y, spmd, x, 1, "x", &e), want[damage], &e, "local", err));
    }
    return CLV_OK;
}

static clv_status refuse(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *err)
{
    clv_error e = {0};
    clv_local_tensor y, partial;
    const clv_local_tensor *x = &in[0]; /* f32[6,4] 'x,_' */
    CLV_TRY(clv_spmd_zeros(&partial, spmd, CLV_F32, 1, (int64_t[]){6}, "_ + max{x}", err));
    CLV_TRY(refused(clv_spmd_all_reduce(&y, spmd, x, CLV_REDUCTION_SUM, "x", &e), CLV_EINVAL, &e, "different elements",
                    err));
    CLV_TRY(refused(clv_spmd_all_reduce(&y, spmd, x, CLV_REDUCTION_SUM, "z", &e), CLV_EAXIS, &e,
                    "axes 'z': no axis 'z'; the mesh's axes: x, y", err));
    CLV_TRY(refused(clv_spmd_barrier(spmd, "x} + max{y", &e), CLV_ESYNTAX, &e, "axes 'x} + max{y': ", err));
    CLV_TRY(refused(clv_spmd_all_reduce(&y, spmd, x, CLV_REDUCTION_NONE, "y", &e), CLV_EINVAL, &e, "CLV_REDUCTION_SUM",
                    err));
    CLV_TRY(refused(clv_spmd_all_reduce(&y, spmd, &partial, CLV_REDUCTION_SUM, "x", &e), CLV_EINVAL, &e,
                    "by another reduction", err));
    CLV_TRY(refused(clv_spmd_all_gather(&y, spmd, x, "y", &e), CLV_EINVAL, &e,
                    "it is not sharded over all of these axes", err));
    CLV_TRY(refused(clv_spmd_all_gather(&y, spmd, x, NULL, &e), CLV_EINVAL, &e, "axes", err));
    CLV_TRY(refused(clv_spmd_all_gather(&y, spmd, NULL, "x", &e), CLV_EINVAL, &e, "a local", err));
    CLV_TRY(refused(clv_spmd_all_gather(NULL, spmd, x, "x", &e), CLV_EINVAL, &e, "out", err));
    CLV_TRY(refused(clv_spmd_reduce_scatter(&y, spmd, x, CLV_REDUCTION_SUM, 2, "y", &e), CLV_EINVAL, &e, "dimension 2",
                    err));
    CLV_TRY(refused(clv_spmd_all_to_all(&y, spmd, x, -1, "x", &e), CLV_EINVAL, &e, "dimension -1", err));
    CLV_TRY(refused(clv_spmd_permute(&y, spmd, x, NULL, 1, "x", &e), CLV_EINVAL, &e, "pairs", err));
    CLV_TRY(refused(clv_spmd_permute(&y, spmd, x, &(clv_spmd_pair){0, 3}, 1, "x", &e), CLV_EINVAL, &e, "0 to 2", err));
    CLV_TRY(refused(clv_spmd_permute(&y, spmd, x, (clv_spmd_pair[]){{0, 1}, {2, 1}}, 2, "x", &e), CLV_EINVAL, &e,
                    "sent to twice", err));
    CLV_TRY(refused(clv_spmd_broadcast(&y, spmd, x, 3, "x", &e), CLV_EINVAL, &e, "0 to 2", err));
    CLV_TRY(refused(clv_spmd_shift(&y, NULL, x, 1, "x", &e), CLV_EINVAL, &e, "a communicator", err));
    CLV_TRY(refused(clv_spmd_barrier(spmd, NULL, &e), CLV_EINVAL, &e, "axes", err));
    CLV_TRY(
        refused(clv_spmd_group(NULL, NULL, spmd, "x,x", &e), CLV_EAXIS, &e, "axes 'x,x': axis x is used twice", err));
    CLV_TRY(refused(clv_spmd_zeros(&y, spmd, CLV_F32, 1, NULL, "_", &e), CLV_EINVAL, &e, "a shape", err));
    CLV_TRY(refused(clv_spmd_zeros(&y, spmd, CLV_F32, 1, (int64_t[]){-1}, "_", &e), CLV_ESHAPE, &e, "-1", err));
    CLV_TRY(refused(clv_spmd_state(&y, spmd, NULL, &e), CLV_EINVAL, &e, "a name", err));
    return refuse_spoilt(spmd, x, err);
}

static clv_status leave_as_it_is(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                                 clv_error *err)
{
    out[0] = in[0];
    return CLV_OK;
}

static clv_status leave_nothing(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                                clv_error *err)
{
    clv_spmd_free(spmd, &out[0]);
    return CLV_OK;
}

static void test_refusals(void **state)
{
    clv_error err = {0};
    clv_session *session = session_on("x=3,y=2", 0);
    float x[24] = {0}, y[24];
    const clv_type type = {CLV_F32, 2, {6, 4}};
    clv_spmd_input in = {type, "x,_", x}, bad = {type, "z,_", x}, open = {type, "(x,_", x};
    clv_spmd_output out = {type, "_,x", y}, nowhere = {type, "x,_", NULL}, other_axis = {type, "_,_ + sum{y}", y};
    clv_spmd_input addends = {type, "_,_ + sum{x}", x};
    clv_spmd_options groups = {.n_groups = 1}, fewer = {.n_groups = -1};
    must(clv_spmd_run(session, refuse, NULL, &in, 1, NULL, 0, NULL, &err), &err);
    assert_int_equal(clv_spmd_run(NULL, refuse, NULL, NULL, 0, NULL, 0, NULL, NULL), CLV_EINVAL);
    expect(clv_spmd_run(session, NULL, NULL, NULL, 0, NULL, 0, NULL, &err), CLV_EINVAL, &err, "a function");
    expect(clv_spmd_run(session, refuse, NULL, NULL, 1, NULL, 0, NULL, &err), CLV_EINVAL, &err, "all of its");
    expect(clv_spmd_run(session, refuse, NULL, NULL, -1, NULL, 0, NULL, &err), CLV_EINVAL, &err, "0 or more");
    expect(clv_spmd_run(session, refuse, NULL, &bad, 1, NULL, 0, NULL, &err), CLV_EAXIS, &err, "input 0");
    expect(clv_spmd_run(session, refuse, NULL, &open, 1, NULL, 0, NULL, &err), CLV_ESYNTAX, &err, "input 0");
    expect(clv_spmd_run(session, refuse, NULL, &in, 1, &nowhere, 1, NULL, &err), CLV_EINVAL, &err, "output 0");
    expect(clv_spmd_run(session, refuse, NULL, &in, 1, NULL, 0, &groups, &err), CLV_EINVAL, &err, "groups");
    expect(clv_spmd_run(session, refuse, NULL, &in, 1, NULL, 0, &fewer, &err), CLV_EINVAL, &err, "-1 groups; valid: 0");
    assert_int_equal(clv_spmd_collective_count(NULL), 0);
    assert_null(clv_spmd_mesh(NULL));
    assert_int_equal(clv_spmd_rank(NULL), 0);
    clv_spmd_free(NULL, NULL);
    expect(clv_spmd_run(session, leave_as_it_is, NULL, &in, 1, &out, 1, NULL, &err), CLV_ESHAPE, &err,
           "output 0 is left as f32[6,4] 'x,_'");
    clv_session_free(session);
    session = session_on("x=2,y=2", 0); /* of which each is partial over as many ranks */
    expect(clv_spmd_run(session, leave_as_it_is, NULL, &addends, 1, &other_axis, 1, NULL, &err), CLV_ESHAPE, &err,
           "output 0 is left as f32[6,4] '_,_ + sum{x}'");
    clv_session_free(session);
    session = session_on("x=2,y=2", 0);
    expect(clv_spmd_run(session, leave_nothing, NULL, &in, 1, &out, 1, NULL, &err), CLV_EINVAL, &err,
           "output 0 is left without memory on rank ");
    clv_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),         cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_permutes),      cmocka_unit_test(test_bits_of_programs),
        cmocka_unit_test(test_state),         cmocka_unit_test(test_parts_of_axes),
        cmocka_unit_test(test_faults),        cmocka_unit_test(test_late_pairs),
        cmocka_unit_test(test_other_sources), cmocka_unit_test(test_going_on),
        cmocka_unit_test(test_in_use),        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
