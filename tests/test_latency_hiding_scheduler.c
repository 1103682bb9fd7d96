/* test_latency_hiding_scheduler.c - collectives that run beside ops: the same bits and the same collectives as one
 * after another, which of them hide behind what, and what programs and sessions notice when something touches what a
 * step moves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpt_block.h"
#include "cleave/session.h"
#include "graph/graph.h"
#include "program/program.h"
#include "runtime/session/session_internal.h"
#include "elementwise_op.h"
#include "comm/world/world.h"
#include "mpi_test_job.h"
#include "batch_invariance.h"
#include "slow_link_machine.h"
#include "sweep.h"
#include "unit_test.h"

enum { B = 12, S = 7, M = 24, HEADS = 6, OUTPUTS = 32, ROOM = 12288 };

static const struct layout_case {
    const char *mesh, *rules;
} cases[] = {{"model=2", "megatron-sp"}, {"model=3", "megatron"},
             {"data=3", "dp"},           {"data=2,model=2", "fsdp+megatron-sp"},
             {"X=2,Y=2", "gspmd-2d"},    {"data=2", "fsdp"}};
enum { CASES = sizeof cases / sizeof *cases };

/* Compiles and frees the graph. */
static clv_program *compile(clv_graph *graph, const clv_machine *machine, bool overlap)
{
    clv_error err = {0};
    clv_program *program;
    const clv_compile_options options = {.size = sizeof options, .overlap = overlap, .machine = machine};
    must(clv_compile(&program, graph, &options, &err), &err);
    must(clv_program_verify(program, &err), &err);
    clv_graph_free(graph);
    return program;
}

static clv_program *compile_block_for(const clv_machine *machine, const struct layout_case *c, const int64_t shape[3],
                                      bool overlap)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    must(clv_mesh_parse(&mesh, c->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, c->rules, &mesh, &err), &err);
    return compile(must_block_with_gradients(&mesh, &rules, shape, HEADS, shape[2] / HEADS * 10), machine, overlap);
}

/* The forward pass alone, where nothing else hides a step. scaled: of what the program makes, as inputs stay whole. */
static clv_program *compile_pass(const clv_machine *machine, const struct layout_case *c, const int64_t shape[3],
                                 bool overlap, bool scaled)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_graph *graph;
    clv_block_options o = clv_block_defaults(CLV_BLOCK_GPT, HEADS, HEADS, shape[2] / HEADS * 10);
    must(clv_mesh_parse(&mesh, c->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, c->rules, &mesh, &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_value x = clv_input(graph, "x", CLV_F32, 3, shape, NULL);
    clv_output(graph, "d0", clv_transformer_block(graph, scaled ? clv_scale(graph, x, 1.5) : x, &rules, &o), NULL);
    return compile(graph, machine, overlap);
}

static clv_program *compile_forward(const clv_machine *machine, const struct layout_case *c, const int64_t shape[3],
                                    bool overlap)
{
    return compile_pass(machine, c, shape, overlap, false);
}

static clv_program *compile_block(const struct layout_case *c, const int64_t shape[3], bool overlap)
{
    return compile_block_for(NULL, c, shape, overlap);
}

static clv_program *small(const struct layout_case *c, bool overlap)
{
    return compile_block(c, (int64_t[]){B, S, M}, overlap);
}

/* Steps of a kind, the parts of one as one. */
static int wholes_of_kind(const clv_program *program, const char *kind, bool backward)
{
    int n = 0;
    for (int s = 0; s < program->n_steps; s++) {
        const clv_instruction *instruction = &program->instructions[program->steps[s]];
        n += instruction->chunk == 0 && instruction->backward == backward &&
             strcmp(clv_step_name(instruction->step->kind), kind) == 0;
    }
    return n;
}

/* Whether step i overlaps with a product. */
static bool hides_behind_product(const clv_program *program, int i)
{
    for (int k = i + 1; k <= clv_program_completes_at(program, i); k++)
        if (program->instructions[k].op && program->instructions[k].op->def->counts_flops)
            return true;
    return false;
}

/* Counts the steps of a kind in the backward pass (or both), and those that overlap with products. */
static int hidden_of(int *all, const clv_program *program, const char *kind, bool backward)
{
    int hidden = 0;
    *all = 0;
    for (int s = 0; s < program->n_steps; s++) {
        const clv_instruction *instruction = &program->instructions[program->steps[s]];
        if (instruction->backward != backward || strcmp(clv_step_name(instruction->step->kind), kind) != 0)
            continue;
        ++*all;
        hidden += hides_behind_product(program, program->steps[s]);
    }
    return hidden;
}

/* ---- bits ---- */

typedef struct results {
    int n;
    float tensor[OUTPUTS][ROOM];
} results;

/* The same bits; where a part of a product may differ from the whole in the last bits, these apart. */
static bool are_the_same(const results *a, const results *b)
{
    bool same = memcmp(a, b, sizeof *a) == 0;
    for (int t = 0; t < OUTPUTS && !rows_are_alike(); t++) {
        float most = 0, off = 0;
        for (int i = 0; i < ROOM; i++) {
            most = fmaxf(most, fabsf(a->tensor[t][i]));
            float apart = fabsf(a->tensor[t][i] - b->tensor[t][i]);
            off = isnan(apart) ? INFINITY : fmaxf(off, apart);
        }
        same = (t == 0 || same) && off <= 1e-5F * most;
    }
    return same;
}

static clv_status try_to_run(results *out, clv_session *session, const clv_program *program, clv_error *err)
{
    static char names[OUTPUTS][16];
    static float x[ROOM];
    clv_output_binding outputs[OUTPUTS];
    clv_input_binding input = {"x", x};
    memset(out, 0, sizeof *out);
    clv_random_normal(x, clv_key_seed(3), 0, ROOM);
    out->n = program->n_outputs;
    for (int i = 0; i < out->n; i++) {
        snprintf(names[i], sizeof names[i], "d%d", i);
        outputs[i] = (clv_output_binding){names[i], out->tensor[i]};
    }
    return clv_session_run(session, program, &input, 1, outputs, out->n, err);
}

static void run(results *out, clv_session *session, const clv_program *program)
{
    clv_error err = {0};
    for (int again = 0; again < 2; again++)
        must(try_to_run(out, session, program, &err), &err);
}

static clv_session *new_session(const clv_program *program, const char *transport)
{
    clv_error err = {0};
    clv_session *session;
    const clv_session_options options = {.size = sizeof options,
                                         .seed = 7,
                                         .check = 1,
                                         .find_nonfinite = 1,
                                         .transport = transport,
                                         .job = launched_job()};
    must(clv_session_new(&session, clv_program_mesh(program), &options, &err), &err);
    return session;
}

/* Runs a program one by one and one that overlaps, and frees them: whether their results are the same. */
static bool agree(clv_program *const programs[2], const char *transport)
{
    static results one_by_one, beside;
    for (int o = 0; o < 2; o++) {
        clv_session *session = new_session(programs[o], transport);
        run(o ? &beside : &one_by_one, session, programs[o]);
        clv_session_free(session);
        clv_program_free(programs[o]);
    }
    return are_the_same(&one_by_one, &beside);
}

/* Instructions, the parts of one as one. */
static int wholes_of(const clv_program *program)
{
    int n = 0;
    for (int i = 0; i < program->n_instructions; i++)
        n += program->instructions[i].chunk == 0;
    return n;
}

static bool is_cut(const clv_program *program)
{
    return wholes_of(program) < program->n_instructions;
}

/* Whether steps move strips: parts of several blocks of rows. */
static bool has_strips(const clv_program *program)
{
    bool any = false;
    for (int b = 0; b < program->n_buffers; b++)
        any = any || program->buffers[b].n_blocks > 1;
    return any;
}

/* Some of a program is in parts, if it was to be cut, else nothing. */
static void must_be_cut(const clv_program *program, const struct layout_case *c, bool cut)
{
    if (is_cut(program) != cut)
        fail_msg("%s %s: of %d instructions %d are whole", c->mesh, c->rules, program->n_instructions,
                 wholes_of(program));
}

/* Whether steps of the forward pass are chunked if links are slow: those with products of the same rows. */
static const bool are_cut[CASES] = {true, true, false, true, true, false};

static void test_the_same_bits(void **state)
{
    static const char *const transports[] = {"threads", "mailbox"};
    const int64_t shape[3] = {B, S, M};
    clv_machine *slow = must_slow_links();
    for (int k = 0; k < 3 * 2 * CASES; k++) {
        if (!sweep_takes_thinned(5))
            continue;
        const struct layout_case *c = &cases[k / 6];
        const clv_machine *machine = k % 3 ? slow : NULL;
        bool forward = k % 3 == 2;
        clv_program *programs[2];
        for (int o = 0; o < 2; o++)
            programs[o] = forward ? compile_forward(machine, c, shape, o) : compile_block_for(machine, c, shape, o);
        if (forward)
            must_be_cut(programs[1], c, are_cut[k / 6]);
        assert_true(agree(programs, transports[k / 3 % 2]));
    }
    clv_machine_free(slow);
}

/* ---- what cannot be cut ---- */

/* Rows that ranks have not as many of, or that the step itself moves: nothing is cut, or along what else there is. */
static void test_the_same_bits_of_odd_rows(void **state)
{
    static const struct {
        struct layout_case layout;
        int64_t shape[3];
        bool cut;
    } odd[] = {{{"data=2,model=2", "megatron-sp"}, {13, 7, 24}, false},
               {{"model=2", "megatron-sp"}, {1, 72, 24}, true},
               {{"model=3", "megatron-sp"}, {1, 201, 24}, true},
               {{"model=5", "megatron-sp"}, {1, 245, 42}, true},
               {{"data=2,model=2", "megatron-sp"}, {2, 136, 24}, true},
               {{"model=2", "megatron-sp"}, {1, 65, 24}, false},
               {{"model=3", "megatron"}, {1, 67, 24}, true},
               {{"model=5", "megatron-sp"}, {7, 33, 42}, true},
               {{"data=3,model=2", "megatron"}, {3, 40, 24}, true}};
    static const char *const transports[] = {"threads", "mailbox"};
    clv_machine *slow = must_slow_links();
    for (size_t k = 0; k < 2 * sizeof odd / sizeof *odd; k++) {
        if (!sweep_takes_thinned(5))
            continue;
        const struct layout_case *c = &odd[k / 2].layout;
        const int64_t *shape = odd[k / 2].shape;
        clv_program *programs[2];
        for (int o = 0; o < 2; o++)
            programs[o] = k % 2 ? compile_forward(slow, c, shape, o) : compile_block_for(slow, c, shape, o);
        if (k % 2)
            must_be_cut(programs[1], c, odd[k / 2].cut);
        assert_true(agree(programs, transports[k / 2 % 2]));
    }
    clv_machine_free(slow);
}

/* Strips go from process to process, and, where these have several ranks, are taken inside them, too. */
static void test_the_same_bits_of_strips_between_processes(void **state)
{
    static const struct layout_case layouts[] = {{"model=2", "megatron-sp"}, {"model=4", "megatron-sp"}};
    const int64_t shape[3] = {1, 256, 24};
    clv_machine *slow = must_slow_links();
    for (int k = 0; k < 4; k++) {
        clv_program *programs[2];
        for (int o = 0; o < 2; o++)
            programs[o] = k % 2 ? compile_forward(slow, &layouts[k / 2], shape, o)
                                : compile_block_for(slow, &layouts[k / 2], shape, o);
        assert_true(has_strips(programs[1]));
        assert_true(agree(programs, launched_job() ? NULL : "threads"));
    }
    clv_machine_free(slow);
}

/* Strips are as many as ranks, and parts: there is a bound to the instructions that ops become. */
static void test_strips_of_many_ranks(void **state)
{
    static const struct {
        struct layout_case layout;
        bool cut;
    } many[] = {{{"model=16", "megatron-sp"}, true}, {{"model=33", "megatron-sp"}, false}};
    clv_machine *slow = must_slow_links();
    for (int k = 0; k < 2; k++) {
        clv_program *program = compile_forward(slow, &many[k].layout, (int64_t[]){1, 16 * 33 * 8, 24}, true);
        int most = 0;
        assert_int_equal(has_strips(program), many[k].cut);
        for (int i = 0; i < program->n_instructions; i++)
            most = program->instructions[i].n_chunks > most ? (int)program->instructions[i].n_chunks : most;
        if (most != (many[k].cut ? 64 : 0))
            fail_msg("%s: %d parts of an op", many[k].layout.mesh, most);
        clv_program_free(program);
    }
    clv_machine_free(slow);
}

/* ---- over hosts ---- */

/* An all_to_all inside hosts, a gather across them and one inside them, one behind the other, with the product behind
 * all: parts of each run beside those of the others. */
static void test_the_same_bits_over_hosts(void **state)
{
    static const struct layout_case c = {"model=4", "megatron-sp"};
    clv_machine *slow = must_slow_network();
    clv_program *programs[2];
    for (int o = 0; o < 2; o++) {
        int parts = 0;
        programs[o] = compile_forward(slow, &c, (int64_t[]){8, 12, 24}, o);
        for (int s = 0; s < programs[o]->n_steps; s++)
            parts += programs[o]->instructions[programs[o]->steps[s]].step->kind == CLV_STEP_ALL_GATHER;
        assert_int_equal(wholes_of_kind(programs[o], "all_gather", false), 4);
        assert_int_equal(parts, o ? 8 : 4);
    }
    assert_true(agree(programs, "threads"));
    clv_machine_free(slow);
}

/* A sum inside hosts first, which slices the batch, one across, and a gather: all three in parts. */
static void test_the_same_bits_of_sums_over_hosts(void **state)
{
    static const struct layout_case c = {"model=4", "megatron"};
    static const char *const kinds[] = {"reduce_scatter", "all_reduce", "all_gather"};
    clv_machine *slow = must_slow_network();
    clv_program *programs[2];
    for (int o = 0; o < 2; o++)
        programs[o] = compile_forward(slow, &c, (int64_t[]){8, 12, 24}, o);
    for (int kind = 0; kind < 3; kind++) {
        int all;
        hidden_of(&all, programs[1], kinds[kind], false);
        assert_int_equal(wholes_of_kind(programs[1], kinds[kind], false), 2);
        assert_true(all > 2);
    }
    assert_true(has_strips(programs[1]));
    assert_true(agree(programs, "threads"));
    clv_machine_free(slow);
}

/* ---- products of what is cut ---- */

/* A product of two that are gathered, whose rows are its result's rows, and its columns: both may be cut, and it along
 * one of them. How many: 1: they are the same. */
static clv_program *compile_gram(int how_many, const clv_machine *machine, bool overlap)
{
    static const char *const layouts[] = {"_,a", "_,_"};
    const int64_t shape[2] = {48, 20}, weight[2] = {20, 16};
    clv_error err = {0};
    clv_layout layout[2];
    clv_graph *graph = must_graph("a=2");
    clv_value x = clv_scale(graph, clv_input(graph, "x", CLV_F32, 2, shape, NULL), 2), y[2];
    for (int l = 0; l < 2; l++)
        must(clv_layout_parse(&layout[l], layouts[l], clv_graph_mesh(graph), 2, &err), &err);
    for (int k = 0; k < how_many; k++) {
        clv_value w = clv_state(graph, k ? "w1" : "w0", CLV_F32, 2, weight, NULL, (clv_init){CLV_INIT_NORMAL, 1});
        y[k] = clv_constrain(graph, clv_einsum(graph, "mk,kn->mn", x, w), &layout[0]);
        y[k] = clv_constrain(graph, y[k], &layout[1]);
    }
    clv_output(graph, "d0", clv_einsum(graph, "mk,nk->mn", y[0], y[how_many - 1]), NULL);
    return compile(graph, machine, overlap);
}

static void test_the_same_bits_of_products_of_what_is_cut(void **state)
{
    clv_machine *slow = must_slow_links();
    for (int how_many = 1; how_many <= 2; how_many++) {
        clv_program *programs[2] = {compile_gram(how_many, slow, false), compile_gram(how_many, slow, true)};
        for (int o = 0; o < 2; o++)
            assert_int_equal(is_cut(programs[o]), o);
        assert_true(agree(programs, "threads"));
    }
    clv_machine_free(slow);
}

/* ---- random chains of products ---- */

typedef struct draw {
    uint64_t state;
} draw;

static int64_t pick(draw *d, int64_t n)
{
    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(d->state >> 33) % n;
}

static clv_value in_layout(clv_graph *graph, clv_value x, const clv_mesh *mesh, const char *text)
{
    clv_error err = {0};
    clv_layout layout;
    must(clv_layout_parse(&layout, text, mesh, 3, &err), &err);
    return clv_constrain(graph, x, &layout);
}

/* Products of x, and sums of two, each in a layout of its own. Of one sequence: as long as ranks can have parts of. */
static clv_program *compile_chain(uint64_t seed, bool one, const clv_machine *machine, bool overlap)
{
    static const char *const meshes[] = {"a=2", "a=3", "a=2,b=2", "a=5"};
    static const char *const over_a[] = {"_,a,_", "_,_,a", "a,_,_", "_,_,_"}, *const over_both[] = {"a,b,_", "a,_,b",
                                                                                                    "_,a,b",
                                                                                                    "_,(a,b),_"};
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    draw d = {seed};
    for (int i = 0; i < 4; i++)
        pick(&d, 2);
    int64_t m = pick(&d, 4), shape[3] = {1 + pick(&d, 9), 1 + pick(&d, 40), 2 + pick(&d, 20)};
    must(clv_mesh_parse(&mesh, meshes[m], &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    if (one) {
        shape[0] = 1;
        shape[1] = clv_mesh_rank_count(&mesh) * (30 + pick(&d, 60));
    }
    clv_value x = clv_input(graph, "x", CLV_F32, 3, shape, NULL);
    for (int k = 0; k < 5; k++) {
        clv_value made[2];
        const char *layout = m == 2 && pick(&d, 2) ? over_both[pick(&d, 4)] : over_a[pick(&d, 4)];
        int64_t n_made = 1 + pick(&d, 2), weight[2] = {shape[2], 2 + pick(&d, 20)};
        for (int64_t j = 0; j < n_made; j++) {
            char name[16];
            snprintf(name, sizeof name, "w%d.%d", k, (int)j);
            clv_value w = clv_state(graph, name, CLV_F32, 2, weight, NULL, (clv_init){CLV_INIT_NORMAL, 1});
            made[j] = clv_einsum(graph, "bsm,mn->bsn", x, w);
        }
        x = in_layout(graph, n_made == 2 ? clv_add(graph, made[0], made[1]) : made[0], &mesh, layout);
        shape[2] = weight[1];
    }
    clv_output(graph, "d0", x, NULL);
    return compile(graph, machine, overlap);
}

/* One chain in `one_in` has its steps cut, at least. */
static void expect_chains(uint64_t chains, bool one, bool (*is)(const clv_program *), int one_in)
{
    static const char *const transports[] = {"threads", "mailbox"};
    clv_machine *slow = must_slow_links();
    int n = 0;
    chains /= sweep_is_thin() ? 5 : 1;
    for (uint64_t seed = 0; seed < chains; seed++) {
        clv_program *programs[2] = {compile_chain(seed, one, slow, false), compile_chain(seed, one, slow, true)};
        assert_false(is(programs[0]));
        n += is(programs[1]);
        if (!agree(programs, transports[seed % 2]))
            fail_msg("chain %d: other bits", (int)seed);
    }
    if (n * one_in < (int)chains)
        fail_msg("steps of only %d programs were cut", n);
    clv_machine_free(slow);
}

static void test_the_same_bits_of_random_chains(void **state)
{
    expect_chains(120, false, is_cut, 4);
}

static void test_the_same_bits_of_chains_of_one_sequence(void **state)
{
    expect_chains(60, true, has_strips, 2);
}

/* ---- where results are not finite ---- */

/* A product of rows that are gathered: in strips, if it overlaps. */
static clv_program *compile_gather(int64_t rows, int64_t cols, const clv_machine *machine, bool overlap)
{
    const int64_t shape[3] = {1, rows, cols}, weight[2] = {cols, 20};
    clv_graph *graph = must_graph("a=2");
    const clv_mesh *mesh = clv_graph_mesh(graph);
    clv_value x = clv_input(graph, "x", CLV_F32, 3, shape, NULL);
    x = in_layout(graph, clv_scale(graph, in_layout(graph, x, mesh, "_,a,_"), 2), mesh, "_,_,_");
    clv_value w = clv_state(graph, "w", CLV_F32, 2, weight, NULL, (clv_init){CLV_INIT_NORMAL, 1e30});
    clv_output(graph, "d0", clv_einsum(graph, "bsm,mn->bsn", x, w), NULL);
    return compile(graph, machine, overlap);
}

static void test_where_a_part_is_not_finite(void **state)
{
    enum { ROWS = 96, COLS = 8, AT = 70 };
    static float x[ROWS * COLS], y[ROWS * 20];
    const clv_input_binding input = {"x", x};
    const clv_output_binding output = {"d0", y};
    clv_machine *slow = must_slow_links();
    for (int i = 0; i < COLS; i++)
        x[AT * COLS + i] = 1e30F;
    for (int o = 0; o < 2; o++) {
        clv_error err = {0};
        clv_program *program = compile_gather(ROWS, COLS, slow, o);
        assert_int_equal(has_strips(program), o);
        clv_session *session = new_session(program, "threads");
        assert_int_equal(clv_session_run(session, program, &input, 1, &output, 1, &err), CLV_ENONFINITE);
        if (!strstr(err.message, "at [0,70,0]"))
            fail_msg("%s", err.message);
        clv_session_free(session);
        clv_program_free(program);
    }
    clv_machine_free(slow);
}

/* ---- what moves, and what hides ---- */

static int by_bytes(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The bytes of all collectives, sorted; the parts of one that was cut count as one. */
static int bytes_of(double *out, const clv_program *program)
{
    double of_parts[ROOM] = {0};
    int parts_of[ROOM] = {0}, n = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_error err = {0};
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        assert_true(c.completes_at >= c.instruction);
        int whole = clv_program_owning_buffer(program, program->instructions[c.instruction].out[0]);
        if (c.n_chunks == 0)
            out[n++] = c.bytes;
        of_parts[whole] += c.bytes;
        if (c.n_chunks > 0 && ++parts_of[whole] == c.n_chunks)
            out[n++] = of_parts[whole];
    }
    qsort(out, (size_t)n, sizeof *out, by_bytes);
    return n;
}

static void test_the_same_collectives(void **state)
{
    const int64_t large[3] = {6, 512, 510};
    for (int k = 0; k < 2 * CASES; k++) {
        double before[256], after[256];
        const int64_t *shape = k % 2 ? large : (int64_t[]){B, S, M};
        clv_program *plain = compile_block(&cases[k / 2], shape, false),
                    *program = compile_block(&cases[k / 2], shape, true);
        int n = bytes_of(before, plain);
        assert_int_equal(bytes_of(after, program), n);
        for (int i = 0; i < n; i++)
            assert_true(fabs(before[i] - after[i]) <= 1e-6 * before[i]);
        assert_int_equal(wholes_of(program), plain->n_instructions);
        clv_program_free(plain);
        clv_program_free(program);
    }
}

static void test_what_hides(void **state)
{
    const int64_t shape[3] = {6, 512, 510};
    int all;
    clv_program *sp = compile_block(&cases[0], shape, true), *dp = compile_block(&cases[2], shape, true),
                *fsdp = compile_block(&cases[5], shape, true);
    /* sequence parallelism: gradients of activations move while gradients of weights are made */
    int hidden = hidden_of(&all, sp, "reduce_scatter", true);
    assert_true(hidden >= 1 && wholes_of_kind(sp, "reduce_scatter", true) == 2);
    assert_true(hidden_of(&all, sp, "all_gather", true) >= 1);
    /* data parallelism: most gradients are summed while others are made */
    hidden = hidden_of(&all, dp, "all_reduce", true);
    assert_true(all >= 10 && hidden >= all / 2);
    /* weights are gathered ahead of their use */
    hidden = hidden_of(&all, fsdp, "all_gather", false);
    assert_true(all >= 4 && hidden >= all / 2);
    clv_program_free(sp);
    clv_program_free(dp);
    clv_program_free(fsdp);
}

/* Steps chunked with the products that they feed or follow: all chunks but one overlap with a product. */
static void test_parts_beside_their_products(void **state)
{
    static const struct {
        struct layout_case layout;
        int64_t shape[3];
        const char *kinds[2];
    } cut[] = {{{"model=2", "megatron-sp"}, {6, 512, 510}, {"all_gather", "reduce_scatter"}},
               {{"model=3", "megatron-sp"}, {5, 511, 510}, {"all_gather", "reduce_scatter"}},
               {{"data=2,model=2", "megatron-sp"}, {8, 300, 510}, {"all_gather", "reduce_scatter"}},
               {{"model=2", "megatron"}, {1, 2048, 510}, {"all_reduce", "all_reduce"}},
               {{"model=2", "megatron-sp"}, {1, 4096, 510}, {"all_gather", "reduce_scatter"}},
               {{"model=3", "megatron-sp"}, {1, 3072, 510}, {"all_gather", "reduce_scatter"}},
               {{"model=5", "megatron"}, {2, 1024, 510}, {"all_reduce", "all_reduce"}}};
    clv_machine *cores = must_overlapping_cores();
    for (size_t k = 0; k < sizeof cut / sizeof *cut; k++) {
        clv_program *program = compile_forward(cores, &cut[k].layout, cut[k].shape, true);
        for (int kind = 0; kind < 2; kind++) {
            int all, hidden = hidden_of(&all, program, cut[k].kinds[kind], false);
            int wholes = wholes_of_kind(program, cut[k].kinds[kind], false);
            if (wholes == 0 || all <= wholes || hidden < all - wholes)
                fail_msg("%s %s: of %d %ss in %d parts %d are hidden", cut[k].layout.mesh, cut[k].layout.rules, wholes,
                         cut[k].kinds[kind], all, hidden);
        }
        clv_program_free(program);
    }
    clv_machine_free(cores);
}

/* Inside a host the ranks that wait move the bytes: nothing is split there, by default and as the profile says. */
static void test_whole_where_ranks_move_bytes(void **state)
{
    static const struct layout_case c = {"model=4", "megatron-sp"};
    static const char *const overlaps[] = {"all", "network", "none"};
    const int64_t shape[3] = {6, 512, 510};
    for (int k = 0; k < 6; k++) {
        char profile[512];
        const int ranks = k < 3 ? 4 : 2; /* on a host: with 2 the sums go over the network */
        snprintf(profile, sizeof profile,
                 "{\"name\": \"h\", \"ranks_per_host\": %d, \"hosts\": 2, " SLOW_RANKS ", \"overlap\": \"%s\","
                 "\"host\": {\"alpha_s\": 1e-9, \"bytes_per_s\": 2e6}, \"network\": {\"alpha_s\": 1e-9,"
                 " \"bytes_per_s\": 2e6}}",
                 ranks, overlaps[k % 3]);
        clv_machine *machine = must_machine(profile);
        clv_program *program = compile_forward(machine, &c, shape, true);
        clv_prediction p = {.size = sizeof p};
        must(clv_program_predict(program, machine, &p, NULL), NULL);
        must_be_cut(program, &c, k % 3 == 0 || k == 4);
        assert_true((p.overlapped > 0) == (k % 3 == 0 || k == 4));
        clv_program_free(program);
        clv_machine_free(machine);
    }
    clv_program *program = compile_forward(NULL, &c, shape, true);
    must_be_cut(program, &c, false);
    clv_program_free(program);
}

/* The chunks of a sum go on, through the residual's addition and the norm, to the gather behind them. */
static void test_chunks_that_pass_through(void **state)
{
    static const struct layout_case c = {"model=2", "megatron-sp"};
    static const char *const between[] = {"combine", "moments", "normalize"};
    const int64_t shapes[][3] = {{6, 512, 510}, {1, 4096, 510}};
    clv_machine *slow = must_slow_links();
    for (int k = 0; k < 2; k++) {
        clv_program *program = compile_pass(slow, &c, shapes[k], true, true);
        for (int n = 0; n < 3; n++) {
            int split = 0;
            for (int i = 0; i < program->n_instructions; i++) {
                const clv_instruction *instruction = &program->instructions[i];
                split +=
                    instruction->op && instruction->n_chunks > 1 && strcmp(instruction->op->def->name, between[n]) == 0;
            }
            if (split < 2)
                fail_msg("%s is whole between a sum and a gather", between[n]);
        }
        int beside = 0;
        for (int s = 0; s < clv_program_collective_count(program); s++) {
            clv_collective collective = {.size = sizeof collective};
            must(clv_program_collective(program, s, &collective, NULL), NULL);
            assert_true((collective.completes_at > collective.instruction) == (collective.beside != NULL));
            beside += collective.beside && strstr(collective.beside, "dot_general") != NULL;
        }
        assert_true(beside >= 2);
        clv_program_free(program);
        const int64_t small_shapes[][3] = {{B, S, M}, {1, 136, M}};
        clv_program *programs[] = {compile_pass(slow, &c, small_shapes[k], false, true),
                                   compile_pass(slow, &c, small_shapes[k], true, true)};
        assert_true(is_cut(programs[1]));
        assert_true(agree(programs, k ? "threads" : "mailbox"));
    }
    clv_machine_free(slow);
}

/* What hides is what the prediction is shorter by; memory grows little: by parts, and by attention's workspace where it
 * falls on the peak that they make. */
static void test_what_it_brings_and_costs(void **state)
{
    const int64_t shape[3] = {4, 512, 510};
    clv_machine *cores = must_overlapping_cores();
    for (int k = 0; k < CASES; k++) {
        clv_error err = {0};
        clv_program *plain = compile_block_for(cores, &cases[k], shape, false),
                    *program = compile_block_for(cores, &cases[k], shape, true);
        clv_prediction p = {.size = sizeof p}, q = {.size = sizeof q};
        must(clv_program_predict(plain, cores, &p, &err), &err);
        must(clv_program_predict(program, cores, &q, &err), &err);
        if (p.overlapped != 0 || !(q.overlapped > 0))
            fail_msg("%s %s: %g %g", cases[k].mesh, cases[k].rules, p.overlapped, q.overlapped);
        double one_by_one = 0;
        for (int i = 0; i < program->n_instructions; i++)
            one_by_one += clv_program_predict_instruction(program, cores, i);
        assert_true(fabs(q.seconds + q.overlapped - one_by_one) < 1e-9 * one_by_one);
        assert_true(q.seconds < p.seconds);
        assert_true((double)program->region_bytes < 1.35 * (double)plain->region_bytes); /* of one block */
        clv_program_free(plain);
        clv_program_free(program);
    }
    clv_machine_free(cores);
}

/* ---- steps are under way at once ---- */

static const clv_transport *spied;
static _Thread_local int under_way;
static _Atomic int most_under_way;

static clv_status spy_start(clv_prepared_collective *plan, void *staging, clv_error *err)
{
    under_way++;
    if (under_way > most_under_way)
        most_under_way = under_way;
    return spied->start(plan, staging, err);
}

static clv_status spy_wait(clv_prepared_collective *plan, clv_wait what, clv_error *err)
{
    under_way -= what == CLV_WAIT_INPUT_REUSABLE;
    return spied->wait(plan, what, err);
}

static int most_at_once(bool overlap)
{
    static results ignored;
    clv_error err = {0};
    clv_program *program = small(&cases[3], overlap);
    clv_session *session = new_session(program, "threads");
    must(clv_session_load(session, program, &err), &err);
    spied = session->transport;
    clv_transport spy = *spied;
    spy.start = spy_start;
    spy.wait = spy_wait;
    session->loaded[0]->transport = &spy;
    most_under_way = 0;
    run(&ignored, session, program);
    session->loaded[0]->transport = spied;
    clv_session_free(session);
    clv_program_free(program);
    return most_under_way;
}

static void test_steps_of_two_groups_at_once(void **state)
{
    assert_int_equal(most_at_once(false), 1);
    assert_true(most_at_once(true) >= 2);
}

/* ---- who is late ---- */

enum { DEADLINE_MS = 300, LATE_MS = 450 };
static int late, late_at; /* the rank, and its step */
static _Thread_local int starts;

static clv_status late_start(clv_prepared_collective *plan, void *staging, clv_error *err)
{
    bool mine = plan->comm->rank == late;
    if (mine && starts++ == late_at)
        usleep(LATE_MS * 1000);
    return spied->start(plan, staging, err);
}

/* Of four ranks with steps of two groups under way the one that is late is named, whoever waits for whom. */
static void test_who_is_late(void **state)
{
    static const char *const transports[] = {"threads", "mailbox"};
    static results ignored;
    for (int k = 0; k < 12; k++) {
        clv_error err = {0};
        clv_session *session;
        clv_program *program = small(&cases[3], true);
        const clv_session_options options = {
            .size = sizeof options, .timeout_ms = DEADLINE_MS, .transport = transports[k / 8]};
        must(clv_session_new(&session, clv_program_mesh(program), &options, &err), &err);
        must(clv_session_load(session, program, &err), &err);
        spied = session->transport;
        clv_transport spy = *spied;
        spy.start = late_start;
        session->loaded[0]->transport = &spy;
        late = k % 4;
        late_at = k / 4 % 2 ? 9 : 5;
        assert_int_equal(try_to_run(&ignored, session, program, &err), CLV_ETIMEOUT);
        if (err.rank != late)
            fail_msg("rank %d is late: '%s' blames rank %d", late, err.message, err.rank);
        session->loaded[0]->transport = spied;
        clv_session_free(session);
        clv_program_free(program);
    }
}

/* ---- how much hides is measured ---- */

enum { ELEMS = 1 << 16, LATE_IN_NAP_MS = 120, LONG_NAP_MS = 400 };

static int nap_ms[2][2]; /* of op layers.L, on ranks */

/* Its operand, after a nap. */
static clv_status nap_run(const clv_call *call, clv_error *err)
{
    usleep((useconds_t)nap_ms[strstr(call->op->name, "layers.1") != NULL][clv_call_rank(call)] * 1000);
    memcpy(call->out[0].data, call->in[0].data, (size_t)clv_view_elems(&call->out[0]) * sizeof(float));
    return CLV_OK;
}

static const clv_op_def nap = {
    .name = "nap", .min_in = 1, .max_in = 1, .n_out = 1, .shape = same_shape, .rule = by_elements, .run = nap_run};

/* What layers.0 makes of x is gathered while layers.1 makes something else of it. */
static clv_program *two_layers(const clv_op_def *def, int64_t elems, bool overlap)
{
    clv_error err = {0};
    clv_program *program;
    clv_graph *graph = must_graph("x=2");
    clv_layout cut = clv_graph_layout(graph, 1, "x"), whole = clv_layout_replicated(1);
    clv_value in = clv_input(graph, "x", CLV_F32, 1, &elems, &cut), made[2];
    for (int l = 0; l < 2; l++) {
        clv_graph_push_scope(graph, "layers.%d", l);
        made[l] = clv_graph_emit_one(graph, def, NULL, &in, 1);
        clv_graph_pop_scope(graph);
    }
    clv_output(graph, "y", clv_scale(graph, clv_constrain(graph, made[0], &whole), 2), &whole);
    clv_output(graph, "z", made[1], &cut);
    const clv_compile_options options = {.size = sizeof options, .overlap = overlap};
    must(clv_compile(&program, graph, &options, &err), &err);
    assert_int_equal(program->instructions[program->steps[0]].n_overlapped, overlap);
    clv_graph_free(graph);
    return program;
}

/* Of a run whose rank 1 is so late, and whose ops beside the step take so long; seconds, of all ranks here. */
static clv_session_stats nap_and_measure(const char *transport, int late_ms, int beside_ms, bool overlap)
{
    static float x[ELEMS], y[ELEMS];
    clv_error err = {0};
    clv_session *session;
    clv_session_stats stats = {.size = sizeof stats};
    clv_program *program = two_layers(&nap, ELEMS, overlap);
    const clv_session_options options = {
        .size = sizeof options, .no_pinning = 1, .trace = 1, .transport = transport, .job = launched_job()};
    const clv_input_binding input = {"x", x};
    const clv_output_binding output = {"y", y};
    must(clv_session_new(&session, clv_program_mesh(program), &options, &err), &err);
    for (int warm = 0; warm < 2; warm++) {
        must(clv_session_take_stats(session, NULL, &err), &err);
        nap_ms[0][1] = warm ? late_ms : 0;
        nap_ms[1][0] = nap_ms[1][1] = warm ? beside_ms : 0;
        x[1] = (float)warm;
        must(clv_session_run(session, program, &input, 1, &output, 1, &err), &err);
        assert_true(y[1] == (float)(2 * warm));
    }
    must(clv_session_take_stats(session, &stats, &err), &err);
    stats.overlapped_seconds *= session->n_local_ranks;
    stats.comm_seconds *= session->n_local_ranks;
    clv_session_free(session);
    clv_program_free(program);
    return stats;
}

/* What rank 0 waits for hides until rank 1 has come, and is no longer than what runs meanwhile. The bounds leave room
 * for others that want the cores. */
static void expect_hidden(const char *transport, bool waits)
{
    const char *name = transport ? transport : "mpi";
    const double late_s = 1e-3 * LATE_IN_NAP_MS, long_s = 1e-3 * LONG_NAP_MS;
    clv_session_stats some = nap_and_measure(transport, LATE_IN_NAP_MS, LONG_NAP_MS, true),
                      none = nap_and_measure(transport, LATE_IN_NAP_MS, LONG_NAP_MS, false),
                      short_ops = nap_and_measure(transport, LATE_IN_NAP_MS, 0, true),
                      together = nap_and_measure(transport, 0, LONG_NAP_MS, true);
    if (none.overlapped_seconds != 0)
        fail_msg("%s: %g s hid of steps that wait", name, none.overlapped_seconds);
    if (waits && !(some.overlapped_seconds > 0.4 * late_s && some.overlapped_seconds < 0.9 * long_s))
        fail_msg("%s: %g s hid while rank 1 was %g s late", name, some.overlapped_seconds, late_s);
    if (waits && !(none.comm_seconds > 0.4 * late_s && short_ops.comm_seconds > 0.4 * late_s))
        fail_msg("%s: %g s, %g s did not hide", name, none.comm_seconds, short_ops.comm_seconds);
    if (!(short_ops.overlapped_seconds < 0.8 * late_s))
        fail_msg("%s: %g s hid beside nothing", name, short_ops.overlapped_seconds);
    if (!(together.overlapped_seconds < 0.5 * long_s))
        fail_msg("%s: %g s hid of a step for which nobody waits", name, together.overlapped_seconds);
}

static void test_what_hid(void **state)
{
    if (launched_job()) {
        expect_hidden(NULL, clv_job_process_index(launched_job()) == 0);
        return;
    }
    expect_hidden("threads", true);
    expect_hidden("mailbox", true);
}

/* ---- what is noticed ---- */

static void refused(const clv_program *program, const char *part)
{
    clv_error err = {0};
    assert_int_equal(clv_program_verify(program, &err), CLV_EINVAL);
    if (!strstr(err.message, part))
        fail_msg("'%s' lacks '%s'", err.message, part);
}

static void test_programs_that_touch_what_moves(void **state)
{
    clv_program *program = small(&cases[0], true);
    int i = 0;
    while (program->instructions[i].n_overlapped == 0 || !program->instructions[i + 1].op ||
           !program->instructions[i + 1].n_in)
        i++;
    clv_instruction *step = &program->instructions[i], *next = step + 1;
    const clv_instruction kept = *step, kept_next = *next;
    step->n_overlapped = program->n_instructions - i;
    refused(program, "overlaps with");
    *step = kept;
    next->out[0] = step->in[0];
    refused(program, "while a collective uses it");
    *next = kept_next;
    next->in[0] = step->out[0];
    refused(program, "while a collective writes it");
    *next = kept_next;
    next->n_overlapped = next->group < 0;
    if (next->n_overlapped)
        refused(program, "overlaps with");
    *next = kept_next;
    clv_program_free(program);
}

/* Two steps that are under way at once, as if they were of one group. */
static void test_steps_of_one_group(void **state)
{
    int found = 0;
    for (int c = 0; c < CASES; c++) {
        clv_program *program = small(&cases[c], true);
        for (int i = 0; i < program->n_instructions; i++)
            for (int k = i + 1; program->instructions[i].n_overlapped > 0 && k <= clv_program_completes_at(program, i);
                 k++) {
                int *group = &program->instructions[k].group, kept = *group;
                if (kept < 0)
                    continue;
                *group = program->instructions[i].group;
                refused(program, "with another in flight");
                *group = kept;
                found++;
            }
        clv_program_free(program);
    }
    assert_true(found > 0);
}

static float *operand; /* of the step */

/* The fault that the session has to see is a race, between ranks: the thread sanitizer is not to report it. */
__attribute__((no_sanitize("thread"))) static void write_what_moves(void)
{
    *operand = -1;
}

/* Of twice its operand; layers.0 makes what moves, and layers.1, which runs meanwhile, writes it. */
static clv_status wrong_run(const clv_call *call, clv_error *err)
{
    for (int64_t i = 0; i < clv_view_elems(&call->out[0]); i++)
        ((float *)call->out[0].data)[i] = 2 * ((const float *)call->in[0].data)[i];
    if (call->in[0].lo[0] == 0 && strstr(call->op->name, "layers.0"))
        operand = call->out[0].data;
    if (call->in[0].lo[0] == 0 && strstr(call->op->name, "layers.1"))
        write_what_moves();
    return CLV_OK;
}

static void test_a_session_notices(void **state)
{
    static const clv_op_def wrong = {.name = "wrong",
                                     .min_in = 1,
                                     .max_in = 1,
                                     .n_out = 1,
                                     .shape = same_shape,
                                     .rule = by_elements,
                                     .run = wrong_run};
    static float x[8], y[8], z[8];
    clv_error err = {0};
    clv_program *program = two_layers(&wrong, 8, true);
    clv_session *session = new_session(program, "threads");
    clv_input_binding input = {"x", x};
    clv_output_binding outputs[] = {{"y", y}, {"z", z}};
    assert_int_equal(clv_session_run(session, program, &input, 1, outputs, 2, &err), CLV_ECHECK);
    if (!strstr(err.message, "layers.1.wrong: it changed the result of layers.0.wrong, which it does not write"))
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_bits),
        cmocka_unit_test(test_the_same_bits_of_odd_rows),
        cmocka_unit_test(test_the_same_bits_of_strips_between_processes),
        cmocka_unit_test(test_strips_of_many_ranks),
        cmocka_unit_test(test_the_same_bits_over_hosts),
        cmocka_unit_test(test_the_same_bits_of_sums_over_hosts),
        cmocka_unit_test(test_the_same_bits_of_products_of_what_is_cut),
        cmocka_unit_test(test_the_same_bits_of_random_chains),
        cmocka_unit_test(test_the_same_bits_of_chains_of_one_sequence),
        cmocka_unit_test(test_where_a_part_is_not_finite),
        cmocka_unit_test(test_the_same_collectives),
        cmocka_unit_test(test_what_hides),
        cmocka_unit_test(test_parts_beside_their_products),
        cmocka_unit_test(test_whole_where_ranks_move_bytes),
        cmocka_unit_test(test_chunks_that_pass_through),
        cmocka_unit_test(test_what_it_brings_and_costs),
        cmocka_unit_test(test_steps_of_two_groups_at_once),
        cmocka_unit_test(test_who_is_late),
        cmocka_unit_test(test_what_hid),
        cmocka_unit_test(test_programs_that_touch_what_moves),
        cmocka_unit_test(test_steps_of_one_group),
        cmocka_unit_test(test_a_session_notices),
    };
    const struct CMUnitTest launched[] = {cmocka_unit_test(test_the_same_bits_of_strips_between_processes),
                                          cmocka_unit_test(test_what_hid)};
    return launched_job() ? cmocka_run_group_tests(launched, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
