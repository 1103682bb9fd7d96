/* test_plan_search.c - searches of plans: the best is that of brute force, estimates are those of whole programs,
 * and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleave/plan_search.h"
#include "models/plan/plan_price.h"
#include "h100_machine.h"
#include "must.h"
#include "sweep.h"

static clv_error err;

/* A machine of write_machines. */
#define OPEN(out, file) clv_machine_open(out, in_folder(file), NULL, &err)

/* ---- models, machines ---- */

typedef struct sizes {
    int hidden, ffn, layers, heads, kv_heads, vocab;
} sizes;

static const sizes small = {64, 128, 2, 4, 2, 256}, deep = {256, 512, 5, 8, 4, 1024},
                   llama_70b = {8192, 28672, 80, 64, 8, 128256};

/* The config.json of a Llama. */
static const char *write_model(const sizes *s)
{
    const char *path = in_folder("llama_%d.json", s->layers);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": %d, "
            "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
            "\"num_key_value_heads\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 8192, "
            "\"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}",
            s->hidden, s->ffn, s->layers, s->heads, s->kv_heads, s->vocab);
    fclose(f);
    return path;
}

static clv_plan_options base_of(const sizes *s, clv_plan_mode mode, int64_t batch, int64_t seq)
{
    return (clv_plan_options){.size = sizeof(clv_plan_options),
                              .model = write_model(s),
                              .mode = mode,
                              .batch = batch,
                              .seq = seq,
                              .dtype = CLV_BF16,
                              .compile.machine = h100};
}

static clv_plan_search *search(const clv_plan_search_options *how)
{
    clv_plan_search *found = NULL;
    must(clv_plan_search_run(&found, how, &err), &err);
    assert_true(clv_plan_search_count(found) > 0);
    return found;
}

static clv_plan_candidate candidate_at(const clv_plan_search *found, int i)
{
    clv_plan_candidate c = {.size = sizeof c};
    must(clv_plan_search_at(found, i, &c, &err), &err);
    return c;
}

/* Stages and context, which brute force leaves out: test_plan_search_axes.c. */
static bool has_planned_axes(const clv_mesh *mesh)
{
    bool found = false;
    for (int a = 0; a < mesh->n_axes; a++)
        found |= strcmp(mesh->axis[a].name, "pipe") == 0 || strcmp(mesh->axis[a].name, "context") == 0;
    return found;
}

static clv_plan_candidate first_without_stages(const clv_plan_search *found)
{
    int i = 0;
    while (has_planned_axes(candidate_at(found, i).mesh))
        i++;
    return candidate_at(found, i);
}

static void assert_close(double a, double b, double tolerance)
{
    if (fabs(a - b) > tolerance * fabs(b))
        fail_msg("%.12g, not %.12g", a, b);
}

/* ---- brute force ---- */

enum { MOST_LAYOUTS = 64, MOST_OPTIONS = 64 };

/* A mesh with a preset, and what each of its options needs. */
typedef struct brute_layout {
    clv_mesh mesh;
    const char *preset;
    int n;
    double memory[MOST_OPTIONS], seconds[MOST_OPTIONS];
} brute_layout;

typedef struct brute {
    const clv_plan_options *base;
    int n;
    brute_layout layout[MOST_LAYOUTS];
} brute;

static void try_options(brute *b, brute_layout *layout, const clv_axis_rules *rules, int64_t accumulate,
                        clv_recompute recompute, clv_reshard_after_forward reshard)
{
    clv_plan_options o = *b->base;
    clv_program *program;
    clv_memory memory = {.size = sizeof memory};
    clv_prediction predicted = {.size = sizeof predicted};
    o.mesh = &layout->mesh;
    o.rules = rules;
    o.accumulate = accumulate;
    o.compile.recompute = recompute;
    o.compile.reshard_after_forward = reshard;
    must(clv_plan_compile(&program, &o, &err), &err);
    must(clv_program_memory(program, &memory, &err), &err);
    must(clv_program_predict(program, o.compile.machine, &predicted, &err), &err);
    clv_program_free(program);
    assert_true(layout->n < MOST_OPTIONS);
    layout->memory[layout->n] = (double)memory.total;
    layout->seconds[layout->n++] = predicted.seconds;
}

/* Every number of microbatches and option of a mesh with a preset. */
static void try_layout(brute *b, const char *text, const char *preset, int64_t rows)
{
    bool trains = b->base->mode == CLV_PLAN_MODE_TRAIN;
    clv_axis_rules rules;
    assert_true(b->n < MOST_LAYOUTS);
    brute_layout *layout = &b->layout[b->n];
    *layout = (brute_layout){.preset = preset};
    must(clv_mesh_parse(&layout->mesh, text, &err), &err);
    if (clv_axis_rules_preset(&rules, preset, &layout->mesh, NULL) != CLV_OK)
        return;
    b->n++;
    for (int64_t n = 1; n <= (trains ? b->base->batch / rows : 1); n++)
        for (int v = 0; v < (trains ? 9 : 1) && b->base->batch / rows % n == 0; v++)
            try_options(b, layout, &rules, n, (clv_recompute)(v / 3), (clv_reshard_after_forward)(v % 3));
}

/* Every mesh of 4 ranks with the axes of the presets, in every order. */
static void try_four_ranks(brute *b)
{
    static const struct {
        const char *text;
        int64_t rows;
    } meshes[] = {{"data=4", 4},         {"model=4", 1}, {"data=2,model=2", 2},
                  {"model=2,data=2", 2}, {"X=2,Y=2", 2}, {"Y=2,X=2", 2}};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int i = 0; clv_axis_rules_preset_name(i); i++)
            try_layout(b, meshes[m].text, clv_axis_rules_preset_name(i), meshes[m].rows);
}

/* The seconds of the fastest options of a layout that fit; infinity: nothing fits. */
static double at_best(const brute_layout *layout, double memory_limit)
{
    double seconds = (double)INFINITY;
    for (int i = 0; i < layout->n; i++)
        seconds = layout->memory[i] <= memory_limit ? fmin(seconds, layout->seconds[i]) : seconds;
    return seconds;
}

static double memory_of_fastest(const brute *all)
{
    double memory = 0, seconds = (double)INFINITY;
    for (int k = 0; k < all->n; k++)
        for (int i = 0; i < all->layout[k].n; i++)
            if (all->layout[k].seconds[i] < seconds) {
                seconds = all->layout[k].seconds[i];
                memory = all->layout[k].memory[i];
            }
    return memory;
}

/* Two axes of two ranks each: only their order differs. */
static bool is_reordered(const brute_layout *a, const brute_layout *b)
{
    return strcmp(a->preset, b->preset) == 0 && a->mesh.n_axes == 2 && b->mesh.n_axes == 2 &&
           strcmp(a->mesh.axis[0].name, b->mesh.axis[1].name) == 0;
}

/* The first is the best of all, and each ranked layout is reported at its best. */
static void check_with_limit(const brute *all, const clv_plan_options *base, double limit)
{
    const clv_plan_search_options how = {.size = sizeof how,
                                         .base = base,
                                         .devices = 4,
                                         .memory_limit = limit,
                                         .ranks_per_host = 2,
                                         .most = 1000,
                                         .runnable = true};
    clv_plan_search *found = NULL;
    double best = (double)INFINITY;
    for (int k = 0; k < all->n; k++)
        best = fmin(best, at_best(&all->layout[k], limit));
    const clv_status status = clv_plan_search_run(&found, &how, &err);
    assert_true(status == CLV_OK || (status == CLV_ELIMIT && isinf(best)));
    if (!isinf(best))
        assert_close(first_without_stages(found).seconds, best, 1e-6);
    for (int i = 0; i < clv_plan_search_count(found); i++) {
        const clv_plan_candidate c = candidate_at(found, i);
        int k = 0;
        if (has_planned_axes(c.mesh))
            continue;
        while (k < all->n &&
               !(clv_mesh_equal(c.mesh, &all->layout[k].mesh) && strcmp(c.rules->name, all->layout[k].preset) == 0))
            k++;
        assert_true(k < all->n && c.memory <= limit && c.fits);
        assert_close(c.seconds, at_best(&all->layout[k], limit), 1e-6);
        for (int j = 0; j < all->n; j++) /* nor is the other order of its axes faster */
            assert_true(!is_reordered(&all->layout[j], &all->layout[k]) ||
                        c.seconds <= at_best(&all->layout[j], limit) * 1.000001);
    }
    clv_plan_search_free(found);
}

/* With limits, in parts of what the fastest of all needs. */
static void check_against_brute_force(const clv_plan_options *given, const double *parts, int n_parts)
{
    clv_plan_options base = *given, as_priced = *given;
    clv_machine *eight_a_host, *two_a_host;
    static brute all;
    if (!sweep_takes_thinned(5))
        return;
    must(OPEN(&eight_a_host, "eight_a_host.json"), &err);
    must(OPEN(&two_a_host, "two_a_host.json"), &err);
    base.compile.machine = eight_a_host;
    as_priced.compile.machine = two_a_host;
    all = (brute){.base = &as_priced};
    try_four_ranks(&all);
    for (int i = 0; i < n_parts; i++)
        check_with_limit(&all, &base, parts[i] * memory_of_fastest(&all));
    clv_machine_free(two_a_host);
    clv_machine_free(eight_a_host);
}

/* Without a limit that matters, and with limits that rule out more and more. */
static void test_brute_force(void **state)
{
    (void)state;
    const double parts[] = {2, 1, 0.9, 0.8};
    clv_plan_options base = base_of(&deep, CLV_PLAN_MODE_PREFILL, 8, 128);
    check_against_brute_force(&base, parts + 1, 1);
    base = base_of(&deep, CLV_PLAN_MODE_DECODE, 16, 128);
    check_against_brute_force(&base, parts + 2, 1);
    base = base_of(&small, CLV_PLAN_MODE_TRAIN, 4, 64);
    check_against_brute_force(&base, parts, 3);
    base = base_of(&deep, CLV_PLAN_MODE_TRAIN, 4, 8); /* few tokens: weights are what moves */
    check_against_brute_force(&base, parts + 1, 3);
    if (!sweep_is_whole())
        return;
    base = base_of(&deep, CLV_PLAN_MODE_TRAIN, 4, 128);
    check_against_brute_force(&base, parts, 4);
}

static double memory_of_first(const clv_plan_search_options *how)
{
    clv_plan_search *found = search(how);
    const double memory = candidate_at(found, 0).memory;
    clv_plan_search_free(found);
    return memory;
}

static void compare_with_exhaustive(const clv_plan_search_options *options)
{
    clv_plan_search_options how = *options;
    clv_plan_search *some = search(&how);
    how.exhaustive = true;
    how.threads = 1;
    clv_plan_search *all = search(&how);
    assert_true(clv_plan_search_priced_count(some) < clv_plan_search_priced_count(all));
    assert_int_equal(clv_plan_search_count(some), clv_plan_search_count(all));
    for (int i = 0; i < clv_plan_search_count(all); i++) {
        const clv_plan_candidate a = candidate_at(some, i), b = candidate_at(all, i);
        assert_string_equal(a.rules->name, b.rules->name);
        assert_true(clv_mesh_equal(a.mesh, b.mesh));
        assert_close(a.seconds, b.seconds, 0);
        assert_close(a.memory, b.memory, 0);
    }
    clv_plan_search_free(some);
    clv_plan_search_free(all);
}

/* What is not priced would not have been first, whatever number of microbatches fits. */
static void test_exhaustive(void **state)
{
    (void)state;
    static const double parts[] = {0.8, 0.6, 0.4};
    clv_plan_options base = base_of(&deep, CLV_PLAN_MODE_TRAIN, 16, 512);
    base.compile.recompute = CLV_RECOMPUTE_SELECTIVE;
    base.compile.reshard_after_forward = true;
    clv_plan_search_options how = {.size = sizeof how, .base = &base, .devices = 2, .runnable = true};
    double memory = memory_of_first(&how);
    for (int i = 0; i < 3; i++) {
        how.memory_limit = parts[i] * memory;
        if (sweep_takes_turn(1, 3, i))
            compare_with_exhaustive(&how);
    }
    if (sweep_is_thin())
        return;
    base = base_of(&deep, CLV_PLAN_MODE_TRAIN, 6, 512);
    how = (clv_plan_search_options){.base = &base, .devices = 6, .ranks_per_host = 3, .runnable = true};
    how.keep_recompute = !sweep_is_whole();
    how.memory_limit = 0.6 * memory_of_first(&how);
    compare_with_exhaustive(&how);
}

/* ---- estimates ---- */

/* Large programs are packed less well, unless they are packed by size, too. */
static void check_estimate(const clv_plan_options *options, const char *mesh_text, const char *preset)
{
    bool packed_by_size = options->compile.greedy_by_size_limit > 0, overlap = options->compile.overlap;
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_plan_options o = *options;
    clv_price estimate, whole;
    clv_price_shape shape;
    bool exact;
    if (!sweep_takes_thinned(5))
        return;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, preset, &mesh, &err), &err);
    o.mesh = &mesh;
    o.rules = &rules;
    must(clv_price_shape_compute(&shape, &o, &err), &err);
    must(clv_price_estimate(&estimate, &exact, &o, &shape, &err), &err);
    must(clv_price_whole(&whole, &o, &err), &err);
    assert_false(exact);
    assert_close(estimate.seconds, whole.seconds, overlap ? 0.05 : 1e-5);
    assert_true(estimate.memory > whole.memory * (overlap ? 0.7 : packed_by_size ? 0.998 : 0.9));
    assert_true(estimate.memory < whole.memory * (overlap ? 1.02 : 1.002));
    if (overlap)
        return;
    assert_close(estimate.communication, whole.communication, 1e-5);
    assert_close(estimate.model_seconds, whole.model_seconds, 1e-5);
    for (int i = 0; i < CLV_TIME_COUNT; i++)
        assert_true(fabs(estimate.part[i] - whole.part[i]) < 1e-5 * whole.seconds);
    must(clv_price_refine(&estimate, &o, &shape, &err), &err);
    assert_close(estimate.memory, whole.memory, 1e-3);
    double parts = 0;
    for (int i = 0; i < CLV_TIME_COUNT; i++)
        parts += whole.part[i];
    assert_close(parts, whole.seconds, 1e-9);
}

/* Two and three layers, four and five microbatches say what all of them do. */
static void test_estimates(void **state)
{
    (void)state;
    static const struct {
        const char *mesh, *preset;
    } layouts[] = {{"data=8", "dp"},
                   {"data=8", "fsdp"},
                   {"data=2,model=4", "zero1"},
                   {"data=2,model=4", "megatron-sp"},
                   {"model=8", "megatron"},
                   {"data=4,model=2", "fsdp+megatron-sp"},
                   {"X=4,Y=2", "gspmd-2d"}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        for (int v = 0; v < 12; v += 1 + v % 2) {
            clv_plan_options o = base_of(&deep, CLV_PLAN_MODE_TRAIN, 64, 256);
            o.compile.recompute = (clv_recompute)(v / 2 % 3);
            o.compile.reshard_after_forward = (clv_reshard_after_forward)(v % 3);
            o.accumulate = v < 6 ? 1 : 8;
            o.compile.greedy_by_size_limit = v % 4 < 2 ? INT32_MAX : 0;
            check_estimate(&o, layouts[i].mesh, layouts[i].preset);
            o.compile.overlap = true;
            check_estimate(&o, layouts[i].mesh, layouts[i].preset);
        }
        for (clv_plan_mode mode = CLV_PLAN_MODE_PREFILL; mode <= CLV_PLAN_MODE_DECODE; mode++) {
            clv_plan_options o = base_of(&deep, mode, 64, 256);
            o.accumulate = 1;
            check_estimate(&o, layouts[i].mesh, layouts[i].preset);
        }
    }
    clv_plan_options o = base_of(&llama_70b, CLV_PLAN_MODE_TRAIN, 512, 8192);
    o.compile.recompute = CLV_RECOMPUTE_FULL;
    o.accumulate = 8;
    check_estimate(&o, "data=8,model=8", "fsdp+megatron-sp");
}

/* ---- what is reported ---- */

/* A rank's memory is that of the plan, with what the machine's software holds besides. */
static void test_software(void **state)
{
    (void)state;
    clv_machine *machine;
    clv_program *program;
    clv_memory memory = {.size = sizeof memory};
    must(clv_machine_open(&machine, "h100-nvlink-ib", "pytorch", &err), &err);
    clv_plan_options o = base_of(&small, CLV_PLAN_MODE_TRAIN, 8, 64);
    o.compile.machine = machine;
    clv_plan_search *found = search(&(clv_plan_search_options){.base = &o, .devices = 2, .runnable = true});
    const clv_plan_candidate first = candidate_at(found, 0);
    o.mesh = first.mesh;
    o.rules = first.rules;
    o.accumulate = first.accumulate;
    o.compile.recompute = first.recompute;
    o.compile.reshard_after_forward = first.reshard_after_forward;
    must(clv_plan_compile(&program, &o, &err), &err);
    must(clv_program_memory_on(program, machine, &memory, &err), &err);
    assert_true(memory.software > 0);
    assert_close(first.memory, (double)memory.total, 1e-9);
    clv_program_free(program);
    clv_plan_search_free(found);
    clv_machine_free(machine);
}

/* Ranked best first, with what each lost by; the front falls in memory as it rises in seconds. */
static void test_result(void **state)
{
    (void)state;
    const clv_plan_options base = base_of(&llama_70b, CLV_PLAN_MODE_PREFILL, 8, 4096);
    clv_plan_search *found = search(&(clv_plan_search_options){.base = &base, .devices = 16});
    const clv_plan_candidate first = candidate_at(found, 0);
    assert_string_equal(first.why, "");
    assert_true(first.front == 1 && first.fits && first.mfu > 0.1 && first.mfu < 1);
    assert_close(first.tokens_per_s, 8 * 4096 / first.seconds, 1e-9);
    bool over_network = false;
    for (int i = 1; i < clv_plan_search_count(found); i++) {
        const clv_plan_candidate c = candidate_at(found, i);
        assert_true(c.tokens_per_s <= candidate_at(found, i - 1).tokens_per_s * (1 + 1e-6));
        assert_true(strlen(c.why) > 10);
        over_network |= strstr(c.why, ", network") != NULL;
    }
    assert_true(over_network);
    assert_true(clv_plan_search_count(found) <= CLV_PLAN_SEARCH_MOST);
    double least = (double)INFINITY, fastest = 0;
    for (int i = 0; i < clv_plan_search_front_count(found); i++) {
        clv_plan_candidate c = {.size = sizeof c};
        must(clv_plan_search_front_at(found, i, &c, &err), &err);
        assert_true(c.front == i + 1 && c.fits && c.memory < least && c.seconds >= fastest * (1 - 1e-6));
        least = c.memory;
        fastest = c.seconds;
    }
    fastest = (double)INFINITY;
    for (int i = 0; i < clv_plan_search_priced_count(found); i++) {
        clv_plan_candidate c = {.size = sizeof c};
        must(clv_plan_search_priced_at(found, i, &c, &err), &err);
        fastest = c.fits && c.seconds < fastest ? c.seconds : fastest;
    }
    assert_close(fastest, candidate_at(found, 0).seconds, 1e-4);
    clv_plan_candidate none = {.size = sizeof none};
    assert_int_equal(clv_plan_search_priced_at(found, clv_plan_search_priced_count(found), &none, &err), CLV_EINVAL);
    assert_int_equal(clv_plan_search_priced_at(found, -1, &none, &err), CLV_EINVAL);
    assert_int_equal(clv_plan_search_at(found, clv_plan_search_count(found), &none, &err), CLV_EINVAL);
    assert_int_equal(clv_plan_search_front_at(found, -1, &none, &err), CLV_EINVAL);
    clv_plan_search_free(found);
    assert_int_equal(
        clv_plan_search_count(NULL) + clv_plan_search_front_count(NULL) + clv_plan_search_priced_count(NULL), 0);
    clv_plan_search_free(NULL);
}

/* Each layout once: those that fit, then the others with what they need. */
static void test_every_layout(void **state)
{
    (void)state;
    const clv_plan_options base = base_of(&deep, CLV_PLAN_MODE_TRAIN, 8, 128);
    clv_plan_search_options how = {.base = &base, .devices = 4, .every_layout = true, .ranks_per_host = 2};
    clv_plan_search *all = search(&how);
    const int n = clv_plan_search_count(all);
    how.memory_limit = candidate_at(all, 0).memory * 0.7;
    clv_plan_search *found = search(&how);
    int fit = 0;
    assert_int_equal(clv_plan_search_count(found), n);
    for (int i = 0; i < n; i++) {
        const clv_plan_candidate c = candidate_at(found, i);
        fit += c.fits;
        assert_true(c.fits == (i < fit) && c.fits == (c.memory <= how.memory_limit));
        assert_true(c.fits || strstr(c.why, " too much"));
        assert_true(c.mesh->axis[0].name[0] != 'm' || c.mesh->n_axes == 1);
    }
    assert_true(fit > 0 && fit < n);
    clv_plan_search_free(all);
    clv_plan_search_free(found);
}

/* What the base states is kept. */
static void test_stated(void **state)
{
    (void)state;
    clv_mesh mesh;
    clv_plan_options base = base_of(&deep, CLV_PLAN_MODE_TRAIN, 16, 64);
    must(clv_mesh_parse(&mesh, "data=2,model=4", &err), &err);
    base.mesh = &mesh;
    base.accumulate = 4;
    base.compile.recompute = CLV_RECOMPUTE_SELECTIVE;
    base.compile.reshard_after_forward = CLV_RESHARD_ALL;
    clv_plan_search *found = search(&(clv_plan_search_options){.base = &base});
    assert_int_equal(clv_plan_search_priced_count(found), clv_plan_search_count(found));
    for (int i = 0; i < clv_plan_search_count(found); i++) {
        const clv_plan_candidate c = candidate_at(found, i);
        assert_true(clv_mesh_equal(c.mesh, &mesh) && c.accumulate == 4 && c.reshard_after_forward == CLV_RESHARD_ALL);
        assert_int_equal(c.recompute, CLV_RECOMPUTE_SELECTIVE);
    }
    clv_plan_search_free(found);
    found = search(&(clv_plan_search_options){.base = &base, .rules = "zero1"});
    assert_int_equal(clv_plan_search_count(found), 1);
    assert_string_equal(candidate_at(found, 0).rules->name, "zero1");
    clv_plan_search_free(found);
}

/* The most tokens/s whose step is within the limit. */
static void test_latency(void **state)
{
    (void)state;
    clv_plan_options base = base_of(&llama_70b, CLV_PLAN_MODE_DECODE, 0, 2048);
    clv_plan_search_options how = {.base = &base, .devices = 8, .latency_limit = 0.02};
    clv_plan_search *found = search(&how);
    how.exhaustive = true;
    clv_plan_search *all = search(&how);
    const clv_plan_candidate c = candidate_at(found, 0);
    assert_true(c.seconds <= 0.02 && c.batch > 1);
    assert_close(c.tokens_per_s, candidate_at(all, 0).tokens_per_s, 1e-9);
    clv_plan_search_free(found);
    clv_plan_search_free(all);
}

/* A prime number of devices has two meshes. */
static void test_prime(void **state)
{
    (void)state;
    const clv_plan_options base = base_of(&deep, CLV_PLAN_MODE_TRAIN, 14, 64);
    clv_plan_search *found = search(&(clv_plan_search_options){.base = &base, .devices = 7, .runnable = true});
    for (int i = 0; i < clv_plan_search_count(found); i++)
        assert_int_equal(candidate_at(found, i).mesh->n_axes, 1);
    clv_plan_search_free(found);
    found = search(&(clv_plan_search_options){.base = &base, .devices = 1});
    assert_int_equal(clv_plan_search_count(found), 1);
    clv_plan_search_free(found);
}

static void test_block(void **state)
{
    (void)state;
    const clv_plan_options base = {.size = sizeof base, .block = CLV_PLAN_BLOCK_GPT, .mode = CLV_PLAN_MODE_GRAD};
    clv_plan_search *found = search(&(clv_plan_search_options){.base = &base, .devices = 4});
    assert_true(clv_plan_search_count(found) > 4);
    assert_true(isinf(clv_plan_search_memory_limit(found)));
    clv_plan_search_free(found);
    /* of one block recomputing needs more memory than keeping does */
    clv_plan_search_options how = {.base = &base, .devices = 4, .memory_limit = 8 << 20};
    found = search(&how);
    how.exhaustive = true;
    clv_plan_search *all = search(&how);
    assert_int_equal(clv_plan_search_count(found), clv_plan_search_count(all));
    clv_plan_search_free(found);
    clv_plan_search_free(all);
}

/* ---- saved plans ---- */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void refuses_file(const char *text, clv_status status, const char *words)
{
    clv_saved_plan plan = {.size = sizeof plan};
    const char *path = in_folder("refused.json");
    write_text(path, text);
    err = (clv_error){0};
    assert_int_equal(clv_saved_plan_read(&plan, path, NULL, &err), status);
    if (!strstr(err.message, words))
        fail_msg("%s", err.message);
}

/* Every preset comes back as it was; a mesh that is given goes before the file's. */
static void test_saved(void **state)
{
    (void)state;
    clv_saved_plan plan = {.size = sizeof plan, .accumulate = 3, .recompute = CLV_RECOMPUTE_SELECTIVE},
                   back = {.size = sizeof back};
    clv_mesh other;
    const char *path = in_folder("saved.json");
    for (int i = 0; clv_axis_rules_preset_name(i); i++) {
        bool xy = strcmp(clv_axis_rules_preset_name(i), "gspmd-2d") == 0;
        must(clv_mesh_parse(&plan.mesh, xy ? "X=2,Y=3" : "pipe=2,data=2,model=3", &err), &err);
        if (clv_axis_rules_preset(&plan.rules, clv_axis_rules_preset_name(i), &plan.mesh, NULL) != CLV_OK)
            continue;
        if (!xy)
            must(clv_axis_rules_set_stages(&plan.rules, &plan.mesh, 2, (int[]){3, 1, 2, 1}, 4, &err), &err);
        must(clv_saved_plan_write(&plan, path, &err), &err);
        must(clv_saved_plan_read(&back, path, NULL, &err), &err);
        assert_true(back.has_mesh && clv_mesh_equal(&back.mesh, &plan.mesh) && back.accumulate == 3);
        assert_int_equal(back.recompute, plan.recompute);
        assert_int_equal(back.rules.n, plan.rules.n);
        assert_memory_equal(back.rules.rule, plan.rules.rule, sizeof back.rules.rule);
        assert_int_equal(back.rules.n_optimizer, plan.rules.n_optimizer);
        assert_int_equal(back.rules.virtual_stages, plan.rules.virtual_stages);
        assert_int_equal(back.rules.n_stage_layers, plan.rules.n_stage_layers);
        assert_memory_equal(back.rules.stage_layers, plan.rules.stage_layers, sizeof back.rules.stage_layers);
    }
    must(clv_mesh_parse(&plan.mesh, "data=2", &err), &err);
    err = (clv_error){0};
    assert_int_equal(clv_saved_plan_write(&plan, path, &err), CLV_EAXIS);
    plan.rules.n = -1;
    err = (clv_error){0};
    assert_int_equal(clv_saved_plan_write(&plan, path, &err), CLV_EINVAL);
    plan.rules = (clv_axis_rules){0};
    err = (clv_error){0};
    assert_int_equal(clv_saved_plan_write(&plan, in_folder("none/saved.json"), &err), CLV_ENOTFOUND);
    err = (clv_error){0};
    assert_int_equal(clv_saved_plan_read(&back, in_folder("none.json"), NULL, &err), CLV_ENOTFOUND);
    write_text(path, "{\"rules\": [[\"batch\", \"a\"]]} // no mesh");
    must(clv_mesh_parse(&other, "a=5", &err), &err);
    must(clv_saved_plan_read(&back, path, &other, &err), &err);
    assert_true(!back.has_mesh && back.accumulate == 1 && clv_mesh_equal(&back.mesh, &other));
    refuses_file("{\"rules\": [[\"batch\", \"a\"]]}", CLV_EAXIS, "no axis 'a'");
    refuses_file("{\"mesh\": \"a=0\", \"rules\": []}", CLV_EFORMAT, "refused.json: ");
    refuses_file("{\"recompute\": \"some\", \"rules\": []}", CLV_EFORMAT, "refused.json: ");
    refuses_file("{\"accumulate\": 0, \"rules\": []}", CLV_EFORMAT, "\"accumulate\"");
    refuses_file("[]", CLV_EFORMAT, "not a JSON object");
}

/* ---- what is refused ---- */

static void refuses(const clv_plan_search_options *how, clv_status status, const char *words)
{
    clv_plan_search *found = NULL;
    err = (clv_error){0};
    assert_int_equal(clv_plan_search_run(&found, how, &err), status);
    assert_null(found);
    if (!strstr(err.message, words) || strchr(err.message, '\n'))
        fail_msg("%s", err.message);
}

static void test_refused(void **state)
{
    (void)state;
    clv_machine *alone;
    clv_mesh mesh;
    clv_plan_options base = base_of(&deep, CLV_PLAN_MODE_TRAIN, 8, 64);
    refuses(&(clv_plan_search_options){.devices = 4}, CLV_EINVAL, "a base");
    refuses(&(clv_plan_search_options){.base = &base}, CLV_EINVAL, "0 devices; valid: 1 to 100000");
    refuses(&(clv_plan_search_options){.base = &base, .devices = 100001}, CLV_EINVAL, "100001 devices");
    refuses(&(clv_plan_search_options){.base = &base, .devices = 13}, CLV_EINVAL,
            "13 devices, a batch of 8 and 8 heads");
    refuses(&(clv_plan_search_options){.base = &base, .devices = 4, .rules = "zero9"}, CLV_EINVAL,
            "no preset is called 'zero9'");
    refuses(&(clv_plan_search_options){.base = &base, .devices = 4, .latency_limit = 1}, CLV_EINVAL, "latency_limit");
    refuses(&(clv_plan_search_options){.base = &base, .devices = 16, .hosts = 3, .ranks_per_host = 4}, CLV_EINVAL,
            "16 devices on 3 hosts of 4; valid: at most 12");
    refuses(&(clv_plan_search_options){.base = &base, .devices = 2, .memory_limit = 100000}, CLV_ELIMIT,
            "nothing fits 97.7 KiB a rank on 2 devices; the least is ");
    base = base_of(&llama_70b, CLV_PLAN_MODE_TRAIN, 8, 4096);
    refuses(&(clv_plan_search_options){.base = &base, .devices = 8, .memory_limit = 64e9}, CLV_ELIMIT,
            "32 devices would do");
    must(clv_mesh_parse(&mesh, "data=2,model=4", &err), &err);
    base.mesh = &mesh;
    refuses(&(clv_plan_search_options){.base = &base, .devices = 4}, CLV_EINVAL, "4 devices, and a mesh of 8");
    base.mesh = NULL;
    base.sp = true;
    refuses(&(clv_plan_search_options){.base = &base, .devices = 4}, CLV_EINVAL, "has sp");
    base.sp = false;
    must(OPEN(&alone, "alone.json"), &err);
    base.compile.machine = alone;
    refuses(&(clv_plan_search_options){.base = &base, .devices = 8}, CLV_EINVAL,
            "'alone' has one host of 4 ranks and no \"network\" link, which 8 devices need");
    clv_machine_free(alone);
}

/* ---- */

static void write_machine(const char *name, int ranks_per_host, bool alone)
{
    clv_machine_info info = {.size = sizeof info};
    must(clv_machine_get_info(h100, &info, &err), &err);
    FILE *f = fopen(in_folder("%s.json", name), "w");
    assert_non_null(f);
    fprintf(f,
            "{\"name\": \"%s\", \"ranks_per_host\": %d, \"hosts\": %d, \"memory_bytes\": 8e10, "
            "\"flops_per_s\": {\"f32\": %.17g, \"bf16\": %.17g}, \"memory_bytes_per_s\": %.17g, "
            "\"efficiency\": %.17g, \"instruction_s\": %.17g, "
            "\"host\": {\"alpha_s\": %.17g, \"bytes_per_s\": %.17g}",
            name, ranks_per_host, alone, clv_machine_flops(h100, CLV_F32), clv_machine_flops(h100, CLV_BF16),
            info.memory_bytes_per_s, info.efficiency, info.instruction_s, info.host.alpha_s, info.host.bytes_per_s);
    if (!alone)
        fprintf(f, ", \"network\": {\"alpha_s\": %.17g, \"bytes_per_s\": %.17g}", info.network.alpha_s,
                info.network.bytes_per_s);
    fprintf(f, "}");
    fclose(f);
}

/* The same links with eight and with two ranks a host, and a machine of one host. */
static void write_machines(void)
{
    write_machine("eight_a_host", 8, false);
    write_machine("two_a_host", 2, false);
    write_machine("alone", 4, true);
}

static int set_up(void **state)
{
    if (open_h100(state) != 0)
        return -1;
    write_machines();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force), cmocka_unit_test(test_exhaustive),   cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_result),      cmocka_unit_test(test_every_layout), cmocka_unit_test(test_stated),
        cmocka_unit_test(test_latency),     cmocka_unit_test(test_prime),        cmocka_unit_test(test_block),
        cmocka_unit_test(test_software),    cmocka_unit_test(test_saved),        cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, set_up, close_h100);
}
