/* test_multi_process_mismatch.c - processes of one session that do different things: other programs, other calls, one
 * that fails by itself. All end with an error that names the culprit, none hangs, and none gets another's numbers.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cleave/op.h"
#include "cleave/spmd.h"
#include "base/error.h"
#include "elementwise_op.h"
#include "must.h"
#include "forked_ranks.h"
#include "unit_test.h"

enum { N = 13, ODD = 4 /* the rank whose process does otherwise */, SOON = 10 /* seconds */ };

/* ---- an op of one's own ---- */

typedef struct plus_attrs {
    double by;
    char tag[8];
    const void *nothing; /* a pointer, which the table does not tell of */
} plus_attrs;

static const clv_attr plus_fields[] = {
    {"by", CLV_ATTR_DOUBLE, offsetof(plus_attrs, by), 1}, {"tag", CLV_ATTR_TEXT, offsetof(plus_attrs, tag), 8}, {0}};

static clv_cancel cancel; /* of the session of this process */

/* "fails", "cancels", "is inf": on one rank. */
static clv_status plus_run(const clv_call *call, clv_error *err)
{
    const plus_attrs *a = clv_op_attrs(call->op);
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    bool odd = clv_call_rank(call) == ODD;
    if (odd && strcmp(a->tag, "fails") == 0)
        return clv_fail(err, CLV_ELIMIT, "on purpose");
    if (odd && strcmp(a->tag, "cancels") == 0)
        clv_cancel_request(&cancel);
    for (int64_t i = 0; i < clv_view_elems(&call->out[0]); i++)
        y[i] = x[i] + (odd && strcmp(a->tag, "is inf") == 0 ? INFINITY : (float)a->by);
    return CLV_OK;
}

static const clv_op_def plus = {.size = sizeof(clv_op_def),
                                .name = "test_multi_process.plus",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 1,
                                .attrs_size = sizeof(plus_attrs),
                                .attrs = plus_fields,
                                .shape = same_shape,
                                .rule = by_elements,
                                .run = plus_run};

/* ---- programs ---- */

typedef struct making {
    double by, own_by, init;
    const char *own_tag, *mesh, *layout, *state, *output;
    clv_dtype dtype;
    bool exchanged; /* the operands of a difference */
} making;

static const making usual = {.by = 2,
                             .own_by = 1,
                             .init = 1,
                             .own_tag = "",
                             .mesh = "x=2,y=3",
                             .layout = "(x,y)",
                             .state = "w",
                             .output = "v",
                             .dtype = CLV_F32};

/* w := by * (w - x + own_by), and u = w - x of before, both whole. */
static clv_program *make(const making *m)
{
    clv_error err = {0};
    clv_graph *graph = must_graph(m->mesh);
    clv_program *program;
    clv_layout cut = clv_graph_layout(graph, 1, m->layout), whole = clv_graph_layout(graph, 1, "_");
    clv_value x = clv_input(graph, "x", m->dtype, 1, (int64_t[]){N}, &whole);
    clv_value w = clv_state(graph, m->state, m->dtype, 1, (int64_t[]){N}, &cut, (clv_init){CLV_INIT_NORMAL, m->init});
    clv_value u = m->exchanged ? clv_sub(graph, x, w) : clv_sub(graph, w, x), v = u;
    plus_attrs attrs = {.by = m->own_by, .nothing = m};
    snprintf(attrs.tag, sizeof attrs.tag, "%s", m->own_tag);
    if (m->dtype == CLV_F32)
        clv_emit(graph, &plus, &attrs, &u, 1, &v);
    v = clv_scale(graph, v, m->by);
    clv_assign(graph, w, v);
    clv_output(graph, m->output, v, &whole);
    clv_output(graph, "u", u, &whole);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

typedef struct pair {
    const clv_program *program, *other;
    const char *is; /* what the two differ by */
} pair;

/* What the ranks of the lesser party are called by: the first one. */
static int first_of_few(const clv_process_links *links)
{
    int p = 0;
    while (links->first[p + 1] <= ODD)
        p++;
    int odd = links->first[p + 1] - links->first[p], rest = links->first[links->processes] - odd;
    return odd > rest || (odd == rest && links->first[p] == 0) ? p == 0 ? links->first[1] : 0 : links->first[p];
}

static void load_here(const clv_process_links *links, void *arg)
{
    const pair *p = arg;
    clv_error err = {0};
    const clv_program *mine = is_here(links, ODD) ? p->other : p->program;
    clv_session *session = new_session(clv_program_mesh(p->program), links, 30000, 0);
    double began = seconds_now();
    clv_status status = clv_session_load(session, mine, &err);
    check(status == CLV_EPEER && strstr(err.message, "another program") && err.rank == first_of_few(links), links,
          p->is, &err);
    float x[N] = {0}, v[N];
    status = clv_session_run(session, mine, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"u", v}, 1, &err);
    check(status == CLV_EPEER, links, "it runs", &err);
    check(strstr(err.message, "another program") && !strstr(err.message, "alone"), links, "other words", &err);
    check(seconds_now() - began < SOON, links, "it took long", &err);
    clv_session_free(session);
}

static void seed_here(const clv_process_links *links, void *arg)
{
    const clv_program *program = arg;
    clv_error err = {0};
    clv_session *session;
    const clv_session_options options = {
        .size = sizeof options, .seed = is_here(links, ODD), .no_pinning = 1, .transport = transport_of(links)};
    check(clv_session_new_with_links(&session, clv_program_mesh(program), &options, links, &err) == CLV_OK, links,
          "a session", &err);
    check(clv_session_load(session, program, &err) == CLV_EPEER && strstr(err.message, "another seed") &&
              err.rank == first_of_few(links),
          links, "another seed", &err);
    clv_session_free(session);
}

/* Replicas of first values would not be alike. */
static void test_other_seed(void **state)
{
    clv_program *program = make(&usual);
    for (int s = 1; s < SPLITS; s++)
        in_processes(splits[s], counts[s], seed_here, program, -1);
    clv_program_free(program);
}

static void test_other_program(void **state)
{
    making m[8];
    static const char *const is[] = {"a number",          "a number of an op of one's own",
                                     "its text",          "first values",
                                     "a name of a state", "a name of an output",
                                     "a layout",          "order of operands"};
    for (int i = 0; i < 8; i++)
        m[i] = usual;
    m[0].by = 3;
    m[1].own_by = 1 + 1e-12; /* more digits than messages print */
    m[2].own_tag = "b";
    m[3].init = 2;
    m[4].state = "w2";
    m[5].output = "v2";
    m[6].layout = "(y,x)";
    m[7].exchanged = true;
    clv_program *program = make(&usual);
    for (int i = 0; i < 8; i++) {
        clv_program *other = make(&m[i]);
        assert_int_equal(clv_program_instruction_count(other), clv_program_instruction_count(program));
        assert_int_equal(clv_program_collective_count(other), clv_program_collective_count(program));
        for (int s = i == 0 ? 1 : 3; s < (i == 0 ? SPLITS : 4); s++)
            in_processes(splits[s], counts[s], load_here, &(pair){program, other, is[i]}, -1);
        clv_program_free(other);
    }
    clv_program_free(program);
}

/* The same graph, built twice, in other memory: one program. */
static void run_twin(const clv_process_links *links, void *arg)
{
    const pair *p = arg;
    clv_error err = {0};
    float x[N] = {0}, v[N], u[N];
    const clv_program *mine = is_here(links, ODD) ? p->other : p->program;
    clv_session *session = new_session(clv_program_mesh(p->program), links, 0, 0);
    clv_output_binding out[] = {{"v", v}, {"u", u}};
    check(clv_session_run(session, mine, &(clv_input_binding){"x", x}, 1, out, 2, &err) == CLV_OK, links, "a run",
          &err);
    for (int i = 0; i < N; i++)
        check(v[i] == 2 * (u[i] + 1), links, "another value", NULL);
    clv_session_free(session);
}

static void test_same_program(void **state)
{
    clv_program *program = make(&usual), *twin = make(&usual);
    for (int s = 0; s < SPLITS; s++)
        in_processes(splits[s], counts[s], run_twin, &(pair){program, twin, NULL}, -1);
    clv_program_free(program);
    clv_program_free(twin);
}

/* ---- other calls ---- */

typedef enum act {
    LOADS_ANOTHER,  /* which the others do not, who run */
    RUNS_OTHER,     /* both programs are loaded everywhere */
    ASKS_OTHER,     /* for an output of the same shape */
    WRITES_OTHER,   /* box of a state */
    WRITES_VALUES,  /* that the others do not */
    READS_OTHER,    /* box of a state */
    WRITES_OUTSIDE, /* of a state */
    NAMES_NONE,     /* an input that there is not */
    BINDS_LESS,     /* inputs */
    LACKS_PART,     /* of an input */
    READS_NONE,     /* state */
    BY_HAND,        /* a function, with a layout that there is not */
    CANCELS,        /* before it runs */
    HAS_NO_VALUES,  /* first ones */
    FAILS,          /* in an op, as the next */
    CANCELS_MIDWAY, /* and those after it */
    IS_NOT_FINITE,
    ACTS
} act;

static const struct {
    clv_status by_itself; /* the others': CLV_EPEER */
    const char *says, *tag;
} ends[ACTS] = {
    [LOADS_ANOTHER] = {CLV_EPEER, "do not match", ""},  [BY_HAND] = {CLV_EAXIS, "'z'", ""},
    [RUNS_OTHER] = {CLV_EPEER, "do not match", ""},     [ASKS_OTHER] = {CLV_EPEER, "do not match", ""},
    [READS_OTHER] = {CLV_EPEER, "do not match", ""},    [WRITES_OUTSIDE] = {CLV_ESHAPE, "is not inside the state", ""},
    [WRITES_OTHER] = {CLV_EPEER, "another box", ""},    [WRITES_VALUES] = {CLV_EPEER, "another value", ""},
    [NAMES_NONE] = {CLV_ENOTFOUND, "no input 'z'", ""}, [BINDS_LESS] = {CLV_ENOTFOUND, "'x' is not bound", ""},
    [LACKS_PART] = {CLV_ESHAPE, "no box contains", ""}, [READS_NONE] = {CLV_ENOTFOUND, "no state named 'z'", ""},
    [CANCELS] = {CLV_ECANCELLED, "cancelled", ""},      [HAS_NO_VALUES] = {CLV_ELIMIT, "no values here", ""},
    [FAILS] = {CLV_ELIMIT, "on purpose", "fails"},      [CANCELS_MIDWAY] = {CLV_ECANCELLED, "cancelled", "cancels"},
    [IS_NOT_FINITE] = {CLV_ENONFINITE, "inf", "is inf"}};

typedef struct acting {
    const clv_program *program, *other, *another;
    act act;
} acting;

static clv_status does_nothing(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                               clv_error *err)
{
    return clv_spmd_barrier(spmd, "x,y", err);
}

static clv_status no_values(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                            int *known, clv_error *err)
{
    return clv_fail(err, CLV_ELIMIT, "no values here");
}

static clv_status act_of(const acting *a, clv_session *session, bool odd, clv_error *err)
{
    CLV_TRY(clv_session_load(session, a->program, err));
    CLV_TRY(clv_session_load(session, a->other, err));
    float x[N] = {0}, out[N];
    const clv_shard low = {.rank = 1, .lo = {0}, .hi = {4}}, high = {.rank = 1, .lo = {4}, .hi = {8}};
    const clv_shard outside = {.rank = 1, .lo = {4}, .hi = {N + 1}};
    const clv_input_box parts[] = {{"x", low, x}, {"x", {.rank = 1, .lo = {4}, .hi = {N}}, x + 4}};
    clv_input_binding in = {odd && a->act == NAMES_NONE ? "z" : "x", x};
    clv_output_binding asked = {odd && a->act == ASKS_OTHER ? "u" : "v", out};
    if (odd && a->act == CANCELS)
        clv_cancel_request(&cancel);
    if (a->act == READS_OTHER)
        return clv_session_read(session, "w", odd ? &low : &high, out, err);
    if (a->act == READS_NONE)
        return clv_session_read(session, odd ? "z" : "w", NULL, out, err);
    if (odd && a->act == LOADS_ANOTHER)
        return clv_session_load(session, a->another, err);
    if (a->act == BY_HAND)
        return clv_spmd_run(session, does_nothing, NULL, &(clv_spmd_input){{CLV_F32, 1, {N}}, odd ? "z" : "(x,y)", x},
                            1, NULL, 0, NULL, err);
    if (a->act == WRITES_OUTSIDE)
        return clv_session_write(session, "w", odd ? &outside : NULL, x, err);
    if (a->act == WRITES_OTHER)
        return clv_session_write(session, "w", odd ? &low : &high, x, err);
    if (a->act == WRITES_VALUES) {
        x[N - 1] = odd;
        return clv_session_write(session, "w", NULL, x, err);
    }
    if (a->act == LACKS_PART)
        return clv_session_run_boxes(
            session, a->program,
            &(clv_run){.size = sizeof(clv_run), .n_input_boxes = odd ? 1 : 2, .input_boxes = parts}, err);
    return clv_session_run(session, odd && a->act == RUNS_OTHER ? a->other : a->program, &in,
                           odd && a->act == BINDS_LESS ? 0 : 1, &asked, a->act == RUNS_OTHER ? 0 : 1, err);
}

static void act_here(const clv_process_links *links, void *arg)
{
    const acting *a = arg;
    const acting usually = {a->program, a->other, NULL, ACTS};
    clv_error err = {0};
    clv_session *session;
    bool odd = is_here(links, ODD);
    cancel = (clv_cancel){0}; /* a process of a job goes through all acts */
    clv_session_options options = {.size = sizeof options,
                                   .no_pinning = 1,
                                   .timeout_ms = 30000,
                                   .transport = transport_of(links),
                                   .find_nonfinite = 1,
                                   .source = odd && a->act == HAS_NO_VALUES ? no_values : NULL,
                                   .cancel = &cancel};
    check(clv_session_new_with_links(&session, clv_program_mesh(a->program), &options, links, &err) == CLV_OK, links,
          "a session", &err);
    double began = seconds_now();
    clv_status status = act_of(a, session, odd, &err);
    if (status == CLV_OK) /* the others may be done, and hear of it in the next call */
        status = act_of(&usually, session, false, &err);
    check(seconds_now() - began < SOON, links, "it took long", &err);
    check(status == (odd ? ends[a->act].by_itself : CLV_EPEER), links, clv_status_name(status), &err);
    check(strstr(err.message, ends[a->act].says) != NULL, links, "the message", &err);
    if (a->act > READS_OTHER && !odd)
        check(err.rank >= 0 && err.rank <= ODD + 1 && strstr(err.message, "rank "), links, "no rank", &err);
    if (a->act >= FAILS && a->act != CANCELS_MIDWAY)
        check(err.rank == ODD, links, "another rank", &err);
    check(act_of(&usually, session, false, &err) != CLV_OK, links, "it goes on", NULL);
    clv_session_free(session);
}

static void test_other_calls(void **state)
{
    making other = usual;
    other.by = 3;
    acting a = {NULL, make(&other), make(&other), 0};
    for (a.act = 0; a.act < ACTS; a.act++) {
        making m = usual;
        m.own_tag = ends[a.act].tag;
        clv_program *program = make(&m);
        a.program = program;
        for (int s = 1; s < SPLITS; s++)
            in_processes(splits[s], counts[s], act_here, &a, -1);
        clv_program_free(program);
    }
    clv_program_free((clv_program *)a.other);
    clv_program_free((clv_program *)a.another);
}

/* What a process does once, each child has then. */
static int warm_up(void **state)
{
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "x=2", NULL), &(clv_error){0});
    clv_session_free(new_session(&mesh, NULL, 0, 0));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_program),
        cmocka_unit_test(test_other_program),
        cmocka_unit_test(test_other_seed),
        cmocka_unit_test(test_other_calls),
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
