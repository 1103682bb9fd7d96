/* test_plan_search_axes.c - searches of stages, context and experts: the best is that of brute force over estimates,
 * no preset is predicted to be faster, the best that runs is found, and few candidates are priced. */
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
#include "h100_machine.h"
#include "must.h"
#include "sweep.h"

static clv_error err;

/* ---- models ---- */

/* The config.json of a Llama, or with experts of a Mixtral. */
static const char *write_model(const char *name, int layers, int experts)
{
    char moe[128] = "";
    const char *path = in_folder("%s.json", name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    if (experts > 0)
        snprintf(moe, sizeof moe, ", \"num_local_experts\": %d, \"num_experts_per_tok\": 2", experts);
    fprintf(f,
            "{\"architectures\": [\"%sForCausalLM\"], \"model_type\": \"%s\", \"hidden_size\": 256, "
            "\"intermediate_size\": 512, \"num_hidden_layers\": %d, \"num_attention_heads\": 8, "
            "\"num_key_value_heads\": 4, \"vocab_size\": 1024, \"max_position_embeddings\": 8192, "
            "\"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false%s}",
            experts ? "Mixtral" : "Llama", experts ? "mixtral" : "llama", layers, moe);
    fclose(f);
    return path;
}

static clv_plan_options base_of(const char *model, int64_t batch, int64_t seq)
{
    return (clv_plan_options){.size = sizeof(clv_plan_options),
                              .model = model,
                              .mode = CLV_PLAN_MODE_TRAIN,
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

static void assert_close(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance * fabs(b)))
        fail_msg("%.12g, not %.12g", a, b);
}

/* ---- brute force ---- */

enum { MOST_ESTIMATES = 1000 };

/* All estimates there are. */
typedef struct brute {
    clv_plan_options base;
    int n;
    double memory[MOST_ESTIMATES], seconds[MOST_ESTIMATES];
} brute;

static void try_schedule(brute *b, const char *rules, clv_plan_schedule schedule, int64_t virtual_stages)
{
    clv_plan_estimate e = {.size = sizeof e};
    const clv_plan_estimate_options how = {
        .plan = &b->base, .rules = rules, .schedule = schedule, .virtual_stages = virtual_stages};
    if (clv_plan_estimate_step(&e, &how, NULL) != CLV_OK)
        return;
    assert_true(b->n < MOST_ESTIMATES);
    b->memory[b->n] = (double)e.memory.total;
    b->seconds[b->n++] = e.predicted.seconds;
}

/* Every number of microbatches, rules and schedule of a mesh; recomputation is the base's. */
static void try_mesh(brute *b, const int64_t sizes[4])
{
    static const char *const names[] = {"pipe", "data", "context", "model"};
    const bool alone = sizes[1] * sizes[2] == 1, splits = sizes[3] > 1;
    const char *const rules[] = {splits ? "fsdp+megatron-sp" : "fsdp",
                                 alone ? (splits ? "megatron-sp" : NULL) : (splits ? "zero1+megatron-sp" : "zero1")};
    clv_mesh mesh = {0};
    for (int a = 0; a < 4; a++) {
        if (sizes[a] == 1)
            continue;
        mesh.axis[mesh.n_axes].size = sizes[a];
        snprintf(mesh.axis[mesh.n_axes++].name, CLV_AXIS_NAME_SIZE, "%s", names[a]);
    }
    b->base.mesh = &mesh;
    for (int64_t n = 1; n <= b->base.batch / sizes[1]; n++) {
        b->base.no_sync = n > 1 && sizes[0] > 1;
        for (size_t r = 0; b->base.batch / sizes[1] % n == 0 && r < 2; r++) {
            b->base.accumulate = n;
            try_schedule(b, rules[r], CLV_SCHEDULE_DEFAULT, 0);
            for (int64_t v = 2; sizes[0] > 1 && v < 4; v++)
                try_schedule(b, rules[r], CLV_SCHEDULE_INTERLEAVED, v);
            if (sizes[0] > 1)
                try_schedule(b, rules[r], CLV_SCHEDULE_ZERO_BUBBLE, 0);
        }
    }
    b->base.no_sync = false;
    b->base.mesh = NULL;
    b->base.accumulate = 0;
}

static void try_all(brute *b, int64_t ranks)
{
    int64_t at[4];
    for (at[0] = 1; at[0] <= ranks; at[0] *= 2)
        for (at[3] = 1; at[0] * at[3] <= ranks; at[3] *= 2)
            for (at[2] = 1; at[0] * at[3] * at[2] <= ranks; at[2] *= 2) {
                at[1] = ranks / (at[0] * at[3] * at[2]);
                if (at[0] > 1 || at[2] > 1)
                    try_mesh(b, at);
            }
}

static int64_t axis_size(const clv_mesh *mesh, const char *name)
{
    int axis;
    return clv_mesh_find(&axis, mesh, name, NULL) == CLV_OK ? mesh->axis[axis].size : 1;
}

/* The fastest that fits of meshes with stages or context; infinity: none is reported. */
static double best_planned(const clv_plan_search *found)
{
    double seconds = (double)INFINITY;
    for (int i = 0; i < clv_plan_search_count(found); i++) {
        const clv_plan_candidate c = candidate_at(found, i);
        assert_true(c.fits);
        if (axis_size(c.mesh, "pipe") > 1 || axis_size(c.mesh, "context") > 1)
            seconds = fmin(seconds, c.seconds);
    }
    return seconds;
}

/* Returns what the first one needs. */
static double check_against_brute_force(const brute *all, double memory_limit, bool first_alone)
{
    clv_plan_search_options how = {.base = &all->base, .devices = 4, .memory_limit = memory_limit, .most = 1000};
    double seconds = (double)INFINITY;
    for (int i = 0; i < all->n; i++)
        seconds = all->memory[i] <= memory_limit ? fmin(seconds, all->seconds[i]) : seconds;
    clv_plan_search *found = search(&how);
    assert_close(best_planned(found), seconds, 1e-9);
    const double memory = candidate_at(found, 0).memory;
    if (first_alone) { /* bounds leave most of them out */
        how.most = 1;
        clv_plan_search *first = search(&how);
        assert_close(candidate_at(first, 0).seconds, candidate_at(found, 0).seconds, 1e-9);
        assert_true(clv_plan_search_priced_count(first) <= clv_plan_search_priced_count(found));
        clv_plan_search_free(first);
    }
    clv_plan_search_free(found);
    return memory;
}

/* Whatever limit rules out; a given option of the base is kept. */
static void test_brute_force(void **state)
{
    (void)state;
    static const double parts[] = {1, 0.8, 0.6};
    brute all = {.base = base_of(write_model("deep", 4, 0), 4, 512)};
    all.base.compile.recompute = CLV_RECOMPUTE_SELECTIVE;
    all.base.compile.reshard_after_forward = CLV_RESHARD_ALL;
    try_all(&all, 4);
    assert_true(all.n > 50);
    const double memory = check_against_brute_force(&all, 1e12, true);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        check_against_brute_force(&all, parts[i] * memory, sweep_takes_turn(1, 2, (int)i));
}

static void check_against_exhaustive(clv_plan_search_options *how, double *memory)
{
    how->exhaustive = false;
    clv_plan_search *some = search(how);
    how->exhaustive = true;
    clv_plan_search *all = search(how);
    assert_true(10 * clv_plan_search_priced_count(some) < 6 * clv_plan_search_priced_count(all));
    assert_int_equal(clv_plan_search_count(some), clv_plan_search_count(all));
    for (int k = 0; k < clv_plan_search_count(all); k++)
        assert_close(candidate_at(some, k).seconds, candidate_at(all, k).seconds, 1e-6);
    *memory = candidate_at(all, 0).memory;
    clv_plan_search_free(some);
    clv_plan_search_free(all);
}

/* All options: what is not priced would not have been on the list, whatever overlaps. */
static void test_exhaustive(void **state)
{
    (void)state;
    clv_plan_options base = base_of(write_model("deep", 4, 0), 4, 256);
    double memory = 0;
    clv_plan_search_options how = {
        .base = &base, .devices = 4, .keep_reshard_after_forward = true, .keep_recompute = true, .most = 4};
    check_against_exhaustive(&how, &memory);
    how.memory_limit = 0.7 * memory;
    how.keep_recompute = false;
    check_against_exhaustive(&how, &memory);
    how.memory_limit = 0;
    how.keep_recompute = true;
    base.compile.overlap = true;
    check_against_exhaustive(&how, &memory);
}

/* ---- what is reported ---- */

/* No preset on a mesh of data and model is predicted to be faster than the first one. */
static void test_presets(void **state)
{
    (void)state;
    clv_plan_options base = base_of(write_model("deep", 4, 0), 8, 256);
    clv_plan_search *found = search(&(clv_plan_search_options){.base = &base, .devices = 8});
    const clv_plan_candidate first = candidate_at(found, 0);
    int planned = 0;
    for (int64_t model = 1; model <= 8; model *= 2)
        for (int i = 0; clv_axis_rules_preset_name(i); i++) {
            clv_mesh mesh;
            clv_axis_rules rules;
            clv_program *program;
            clv_prediction predicted = {.size = sizeof predicted};
            must(clv_mesh_parse(&mesh, "data=8,model=1", &err), &err);
            mesh.axis[0].size = 8 / model;
            mesh.axis[1].size = model;
            if (clv_axis_rules_preset(&rules, clv_axis_rules_preset_name(i), &mesh, NULL) != CLV_OK)
                continue;
            base.mesh = &mesh;
            base.rules = &rules;
            must(clv_plan_compile(&program, &base, &err), &err);
            must(clv_program_predict(program, h100, &predicted, &err), &err);
            clv_program_free(program);
            assert_true(predicted.seconds >= first.seconds * (1 - 1e-6));
            planned++;
        }
    assert_true(planned > 10);
    clv_plan_search_free(found);
}

/* One that runs is listed, though others fill the list; a search of these alone finds no worse one. */
static void test_runnable(void **state)
{
    (void)state;
    const clv_plan_options base = base_of(write_model("deep", 4, 0), 8, 512);
    clv_plan_search_options how = {.base = &base, .devices = 8, .ranks_per_host = 2, .most = 2};
    clv_plan_search *found = search(&how);
    how.runnable = true;
    clv_plan_search *runs = search(&how);
    const clv_plan_candidate want = candidate_at(runs, 0);
    bool listed = false;
    for (int i = 0; i < clv_plan_search_count(found); i++) {
        const clv_plan_candidate c = candidate_at(found, i);
        listed |= c.can_run;
        assert_true(!c.can_run || c.seconds >= want.seconds * (1 - 1e-9));
    }
    assert_true(listed && clv_plan_search_count(found) <= 3);
    for (int i = 0; i < clv_plan_search_count(runs); i++) {
        const clv_plan_candidate c = candidate_at(runs, i);
        assert_true(c.can_run && c.schedule != CLV_SCHEDULE_INTERLEAVED && axis_size(c.mesh, "context") == 1);
    }
    clv_plan_search_free(runs);
    clv_plan_search_free(found);
}

/* A candidate is what clv_plan_estimate_step says of it; schedules that are given are kept. */
static void test_candidate(void **state)
{
    (void)state;
    clv_mesh mesh;
    clv_plan_options base = base_of(write_model("deep", 4, 0), 16, 256);
    must(clv_mesh_parse(&mesh, "pipe=2,data=2,model=2", &err), &err);
    base.mesh = &mesh;
    for (int v = 1; v <= 2; v++) {
        clv_plan_search *found =
            search(&(clv_plan_search_options){.base = &base,
                                              .schedule = v == 1 ? CLV_SCHEDULE_ZERO_BUBBLE : CLV_SCHEDULE_INTERLEAVED,
                                              .virtual_stages = v});
        for (int i = 0; i < clv_plan_search_count(found); i++) {
            const clv_plan_candidate c = candidate_at(found, i);
            clv_plan_options o = base;
            clv_plan_estimate e = {.size = sizeof e};
            assert_true(c.can_run && c.virtual_stages == v && clv_mesh_equal(c.mesh, &mesh));
            o.accumulate = c.accumulate;
            o.no_sync = c.no_sync;
            o.compile.recompute = c.recompute;
            o.compile.reshard_after_forward = c.reshard_after_forward;
            must(clv_plan_estimate_step(&e,
                                        &(clv_plan_estimate_options){.plan = &o,
                                                                     .rules = c.rules->name,
                                                                     .schedule = c.schedule,
                                                                     .virtual_stages = c.virtual_stages},
                                        &err),
                 &err);
            assert_close(c.seconds, e.predicted.seconds, 1e-9);
            assert_close(c.memory, (double)e.memory.total, 1e-9);
            assert_close(c.bubble_share, e.bubble / e.predicted.seconds, 1e-9);
            assert_close(c.mfu, e.predicted.model_utilisation, 1e-9);
            assert_true(c.bubble_share > 0 && (i == 0) == (c.why[0] == '\0'));
        }
        clv_plan_search_free(found);
    }
}

/* Experts: as programs where the family runs. */
static void test_experts(void **state)
{
    (void)state;
    const clv_plan_options base = base_of(write_model("moe", 4, 8), 4, 256);
    clv_plan_search *found = search(&(clv_plan_search_options){.base = &base, .devices = 4, .most = 1000});
    bool runs = false;
    for (int i = 0; i < clv_plan_search_count(found); i++) {
        const clv_plan_candidate c = candidate_at(found, i);
        int axis;
        const bool expert = clv_mesh_find(&axis, c.mesh, "expert", NULL) == CLV_OK;
        runs |= expert && c.can_run;
    }
    assert_true(runs);
    clv_plan_search_free(found);
}

/* ---- how much is priced ---- */

static const char *config(const char *name)
{
    static char path[4096];
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/data/configs/%s.json", source ? source : ".", name);
    return path;
}

/* published: a mesh that is published as best, NULL for none: what is found is as fast, and not by more than 5 %. */
static void check_count(const char *model, int64_t batch, int64_t seq, int64_t devices, int most, const char *published)
{
    clv_plan_options base = base_of(config(model), batch, seq);
    clv_plan_search *found = search(&(clv_plan_search_options){.base = &base, .devices = devices});
    const double first = candidate_at(found, 0).seconds;
    clv_mesh mesh;
    if (clv_plan_search_priced_count(found) > most)
        fail_msg("%d candidates were priced, not %d", clv_plan_search_priced_count(found), most);
    clv_plan_search_free(found);
    if (!published)
        return;
    must(clv_mesh_parse(&mesh, published, &err), &err);
    base.mesh = &mesh;
    found = search(&(clv_plan_search_options){.base = &base, .most = 1});
    const double theirs = candidate_at(found, 0).seconds;
    clv_plan_search_free(found);
    if (!(first <= theirs && theirs <= 1.05 * first))
        fail_msg("%g s were found, and %g s are published", first, theirs);
}

/* Llama-3-70B on 64 devices in 20 s, and 405B on 16,384 in 60 s, on two cores: at most so many candidates. */
static void test_count(void **state)
{
    (void)state;
    check_count("llama-3-8b", 32, 4096, 8, 500, NULL);
    if (sweep_is_whole()) {
        check_count("llama-3-70b", 512, 4096, 64, 700, NULL);
        check_count("llama-3-405b", 2048, 8192, 16384, 500, "pipe=16,data=128,model=8"); /* arXiv:2407.21783 */
    }
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
    clv_mesh mesh;
    clv_plan_options base = base_of(write_model("deep", 4, 0), 4, 256);
    refuses(&(clv_plan_search_options){.base = &base, .devices = 4, .memory_limit = 1e5}, CLV_ELIMIT,
            "nothing fits 97.7 KiB a rank on 4 devices; the least is ");
    must(clv_mesh_parse(&mesh, "pipe=4,data=2", &err), &err);
    base.mesh = &mesh;
    refuses(&(clv_plan_search_options){.base = &base, .every_layout = true}, CLV_EINVAL, "of what is estimated");
    refuses(&(clv_plan_search_options){.base = &base, .memory_limit = 1e5}, CLV_ELIMIT, "; the least is ");
    refuses(&(clv_plan_search_options){.base = &base, .virtual_stages = 5}, CLV_EINVAL,
            "4 layers on 4 stages: no schedule with 5 virtual stages; valid: at most 1");
    base.mode = CLV_PLAN_MODE_DECODE;
    refuses(&(clv_plan_search_options){.base = &base}, CLV_EINVAL, "a training step of a model");
}

int main(void)
{
    /* by a sanitizer what runs other code */
    const struct CMUnitTest few[] = {cmocka_unit_test(test_candidate), cmocka_unit_test(test_experts),
                                     cmocka_unit_test(test_refused)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_brute_force), cmocka_unit_test(test_exhaustive),
                                       cmocka_unit_test(test_presets),     cmocka_unit_test(test_runnable),
                                       cmocka_unit_test(test_candidate),   cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_count),       cmocka_unit_test(test_refused)};
    return sweep_is_thin() ? cmocka_run_group_tests(few, open_h100, close_h100)
                           : cmocka_run_group_tests(tests, open_h100, close_h100);
}
