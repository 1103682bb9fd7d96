/* test_find_rules.c - rules by search (`--rules auto`): never predicted slower than a preset or than rules that split
 * nothing, equal to brute force on a small space, Pope et al.'s inference layouts where they pay, memory limits, and
 * what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/plan.h"
#include "must.h"
#include "sweep.h"
#include "temp_folder.h"

static clv_error err;

/* ---- what is planned ---- */

/* Small models of each family, with KV heads that are fewer where the family has that. */
static const char *const families[] = {
    ("\"model_type\":\"llama\",\"hidden_size\":256,\"num_hidden_layers\":3,\"intermediate_size\":512,"
     "\"vocab_size\":1024,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"max_position_embeddings\":512,"
     "\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false"),
    ("\"model_type\":\"qwen2\",\"hidden_size\":256,\"num_hidden_layers\":3,\"intermediate_size\":512,"
     "\"vocab_size\":1000,\"num_attention_heads\":8,\"num_key_value_heads\":4,\"max_position_embeddings\":512,"
     "\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\""),
    "\"model_type\":\"gpt2\",\"n_embd\":192,\"n_layer\":3,\"n_head\":6,\"vocab_size\":500,\"n_positions\":512",
    ("\"model_type\":\"bert\",\"hidden_size\":128,\"num_hidden_layers\":3,\"intermediate_size\":512,"
     "\"vocab_size\":256,\"num_attention_heads\":4,\"max_position_embeddings\":512,\"type_vocab_size\":2"),
};
enum { FAMILIES = sizeof families / sizeof *families };

static const char *const meshes[] = {"data=4",  "model=4",        "data=2,model=4", "data=8,model=3",
                                     "X=2,Y=4", "model=2,data=4", "a=2,b=3,c=2"};
static const char *const profiles[] = {"", "h100-nvlink-ib", "tpu-v4", "cpu-10gbe"};
static const clv_plan_mode modes[] = {CLV_PLAN_MODE_TRAIN, CLV_PLAN_MODE_PREFILL, CLV_PLAN_MODE_DECODE};
enum {
    MESHES = sizeof meshes / sizeof *meshes,
    PROFILES = sizeof profiles / sizeof *profiles,
    MODES = sizeof modes / sizeof *modes
};

static const char *write_config(int family)
{
    const char *path = in_folder("family_%d.json", family);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{%s}", families[family]);
    fclose(f);
    return path;
}

static clv_machine *open_machine(const char *profile)
{
    clv_machine *machine = NULL;
    if (profile[0])
        must(clv_machine_open(&machine, profile, NULL, &err), &err);
    return machine;
}

/* Seconds, and bytes of a rank, with these rules; infinity: they do not compile. */
static double predict(double *memory, const clv_plan_options *plan, const clv_axis_rules *rules)
{
    clv_plan_options o = *plan;
    clv_program *program;
    clv_memory needed = {.size = sizeof needed};
    clv_prediction predicted = {.size = sizeof predicted};
    o.rules = rules;
    if (clv_plan_compile(&program, &o, NULL) != CLV_OK)
        return (double)INFINITY;
    must(clv_program_predict(program, o.compile.machine, &predicted, &err), &err);
    must(clv_program_memory_on(program, o.compile.machine, &needed, &err), &err);
    clv_program_free(program);
    *memory = (double)needed.total;
    return predicted.seconds;
}

static clv_found_rules find(const clv_plan_options *plan, int64_t memory_limit)
{
    clv_found_rules found = {.size = sizeof found};
    must(clv_plan_find_rules(&found, plan, memory_limit, &err), &err);
    return found;
}

static clv_plan_options block_of(clv_plan_block block, clv_plan_mode mode, const clv_mesh *mesh,
                                 const clv_machine *machine)
{
    return (clv_plan_options){
        .size = sizeof(clv_plan_options), .block = block, .mode = mode, .mesh = mesh, .compile.machine = machine};
}

/* ---- never slower ---- */

/* Rounding of sums. */
static const double tolerance = 1e-9;

/* Of all presets that fit the mesh and the memory, and of rules that split nothing. */
static void check_never_slower(const clv_plan_options *plan, double memory_limit, const char *what)
{
    clv_found_rules found = find(plan, isfinite(memory_limit) ? (int64_t)memory_limit : 0);
    double memory, seconds = predict(&memory, plan, &found.rules);
    assert_true(fabs(seconds - found.seconds) <= tolerance * seconds);
    assert_true(found.fits == (memory <= memory_limit));
    clv_axis_rules rules = {0};
    for (int i = -1; i < 0 || clv_axis_rules_preset_name(i); i++) {
        if (i >= 0 && clv_axis_rules_preset(&rules, clv_axis_rules_preset_name(i), plan->mesh, NULL) != CLV_OK)
            continue;
        double its = predict(&memory, plan, &rules);
        if (isfinite(its) && memory <= memory_limit && !(found.fits && seconds <= its * (1 + tolerance)))
            fail_msg("%s: found %s, %g s (fits: %d); %s takes %g s", what, found.like, seconds, found.fits,
                     i < 0 ? "nothing split" : clv_axis_rules_preset_name(i), its);
    }
}

static void test_never_slower_than_presets(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int m = 0; m < MESHES; m++)
            for (int p = 0; p < PROFILES; p++)
                for (int k = 0; k < MODES; k++) {
                    const bool encoder = strstr(families[f], "bert") != NULL;
                    if (!sweep_takes() || (encoder && modes[k] == CLV_PLAN_MODE_DECODE))
                        continue;
                    clv_mesh mesh;
                    char what[256];
                    double memory = 0;
                    const clv_axis_rules nothing = {0};
                    must(clv_mesh_parse(&mesh, meshes[m], &err), &err);
                    clv_machine *machine = open_machine(profiles[p]);
                    const clv_plan_options plan = {.size = sizeof plan,
                                                   .model = write_config(f),
                                                   .mode = modes[k],
                                                   .mesh = &mesh,
                                                   .batch = 24,
                                                   .seq = 128,
                                                   .accumulate = modes[k] == CLV_PLAN_MODE_TRAIN && m % 2 ? 2 : 0,
                                                   .compile.machine = machine};
                    snprintf(what, sizeof what, "family %d, %s, '%s', mode %d", f, meshes[m], profiles[p],
                             (int)modes[k]);
                    predict(&memory, &plan, &nothing);
                    check_never_slower(&plan, p % 2 ? 0.4 * memory : (double)INFINITY, what);
                    clv_machine_free(machine);
                }
}

/* ---- brute force ---- */

/* All sets of axes for the names that a feed-forward block has. */
static void test_equal_to_brute_force(void **state)
{
    (void)state;
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_MLP, CLV_SEQ, CLV_EMBED_KERNEL, CLV_EMBED};
    enum { NAMES = 5, AXES = 2, ALL = 1 << (NAMES * AXES) };
    static const char *const shapes[] = {"x=2,y=4", "x=8,y=2", "x=3,y=2"};
    int checked = 0;
    for (int c = 0; c < 12; c++) {
        clv_mesh mesh;
        if (!sweep_takes())
            continue;
        must(clv_mesh_parse(&mesh, shapes[c % 3], &err), &err);
        clv_machine *machine = open_machine(profiles[c % PROFILES]);
        clv_plan_options plan =
            block_of(CLV_PLAN_BLOCK_FFN, c % 2 ? CLV_PLAN_MODE_GRAD : CLV_PLAN_MODE_FORWARD, &mesh, machine);
        plan.batch = c < 6 ? 2 : 64;
        plan.seq = c < 6 ? 1 : 32;
        plan.hidden = 512;
        double least = (double)INFINITY, memory;
        for (int mask = 0; mask < ALL; mask++) {
            clv_axis_rules rules = {0};
            for (int n = 0; n < NAMES; n++) {
                static const char *const axes[] = {"", "x", "y", "x,y"};
                must(clv_axis_rules_add(&rules, names[n], axes[mask >> AXES * n & 3], &mesh, &err), &err);
            }
            least = fmin(least, predict(&memory, &plan, &rules));
        }
        const clv_found_rules found = find(&plan, 0);
        if (!(found.seconds <= least * (1 + tolerance)))
            fail_msg("case %d: found %s, %g s; brute force %g s", c, found.like, found.seconds, least);
        clv_machine_free(machine);
        checked++;
    }
    assert_true(checked > 0);
}

/* ---- inference of a PaLM-like block ---- */

static const char *axes_of(const clv_found_rules *found, const char *name)
{
    for (int i = 0; i < found->n_rules; i++)
        if (strcmp(found->rule[i].name, name) == 0)
            return found->rule[i].axes;
    fail_msg("no rule for %s", name);
    return "";
}

/* Pope et al. 2022 (arXiv:2211.05102), section 3.2, on 8x8 TPU v4: for few tokens
 * weights stay, split over their feed-forward width by all ranks (1-D); for more over both their dimensions (2-D),
 * which moves activations over one axis at a time; for many weights are gathered, and activations stay. */
static void test_inference_layouts_by_batch(void **state)
{
    (void)state;
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "x=8,y=8", &err), &err);
    clv_machine *machine = open_machine("tpu-v4");
    clv_plan_options plan = block_of(CLV_PLAN_BLOCK_FFN, CLV_PLAN_MODE_FORWARD, &mesh, machine);
    plan.hidden = 18432;
    plan.ffn = 4 * plan.hidden;
    plan.dtype = CLV_BF16;
    plan.seq = 1;
    /* whole weights are 5.4 GB: with the activations of many tokens they do not fit */
    const int64_t most = (int64_t)6e9;

    plan.batch = 8;
    clv_found_rules found = find(&plan, most);
    assert_string_equal(axes_of(&found, "mlp"), "x,y");
    assert_string_equal(axes_of(&found, "batch"), "");

    plan.batch = 512;
    found = find(&plan, most);
    const char *width = axes_of(&found, "embed_kernel"), *ffn = axes_of(&found, "mlp");
    assert_true(strlen(width) == 1 && strlen(ffn) == 1 && width[0] != ffn[0]);
    assert_string_equal(axes_of(&found, "embed"), width);
    assert_string_equal(axes_of(&found, "batch"), "");

    plan.batch = 1 << 20;
    found = find(&plan, most);
    assert_string_equal(axes_of(&found, "batch"), "x,y");
    assert_string_equal(axes_of(&found, "embed_kernel"), "x,y");
    assert_string_equal(axes_of(&found, "mlp"), "");
    assert_true(found.fits);
    clv_machine_free(machine);
}

/* ---- results ---- */

static void test_result_is_described(void **state)
{
    (void)state;
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "data=2,model=4", &err), &err);
    clv_plan_options plan = block_of(CLV_PLAN_BLOCK_GPT, CLV_PLAN_MODE_GRAD, &mesh, NULL);
    const clv_found_rules a = find(&plan, 0), b = find(&plan, 0);
    assert_memory_equal(&a.rules, &b.rules, sizeof a.rules);
    assert_string_equal(a.rules.name, "auto");
    assert_true(a.priced == b.priced && a.n_rules == 7); /* no vocabulary, no optimizer */
    assert_true(a.preset[0] && a.preset_seconds >= a.seconds && a.next[0] && a.next_seconds >= a.seconds);
    for (int i = 0; i < a.n_rules; i++)
        assert_true(!(a.rule[i].instead_seconds < a.seconds) && strcmp(a.rule[i].axes, a.rule[i].instead) != 0);
    /* a program with these rules says by whom its layouts are */
    plan.rules = &a.rules;
    clv_program *program;
    must(clv_plan_compile(&program, &plan, &err), &err);
    bool said = false;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        said = said || (c.rules && strcmp(c.rules, "auto") == 0);
    }
    assert_true(said);
    clv_program_free(program);
}

/* The number of candidates is bounded, and layers and ranks add none. */
static void test_number_of_candidates(void **state)
{
    (void)state;
    static const char *const at[] = {"data=4,model=2", "data=16,model=4"};
    for (int i = 0; i < 2; i++) {
        clv_mesh mesh;
        must(clv_mesh_parse(&mesh, at[i], &err), &err);
        const clv_plan_options plan = {
            .size = sizeof plan, .model = write_config(0), .mesh = &mesh, .batch = 64, .seq = 128};
        const clv_found_rules found = find(&plan, 0);
        if (found.priced > 100)
            fail_msg("%s: %d candidates", at[i], found.priced);
    }
}

static void test_nothing_to_split(void **state)
{
    (void)state;
    const clv_plan_options plan = block_of(CLV_PLAN_BLOCK_GPT, CLV_PLAN_MODE_FORWARD, NULL, NULL);
    const clv_found_rules found = find(&plan, 0);
    assert_true(found.rules.n == 0 && found.priced == 1 && found.fits);
    assert_string_equal(found.next, "");
    assert_string_equal(found.preset, "");
}

static void test_memory_that_nothing_fits(void **state)
{
    (void)state;
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "data=2,model=4", &err), &err);
    clv_plan_options plan = block_of(CLV_PLAN_BLOCK_GPT, CLV_PLAN_MODE_GRAD, &mesh, NULL);
    const clv_found_rules found = find(&plan, 1000);
    const clv_axis_rules nothing = {0};
    double memory;
    predict(&memory, &plan, &nothing);
    assert_true(!found.fits && found.memory < memory);
}

static void test_refusals(void **state)
{
    (void)state;
    clv_mesh mesh;
    clv_axis_rules rules = {0};
    must(clv_mesh_parse(&mesh, "data=2,model=4", &err), &err);
    const clv_plan_options plan = block_of(CLV_PLAN_BLOCK_GPT, CLV_PLAN_MODE_GRAD, &mesh, NULL);
    clv_plan_options wrong[] = {plan, plan, plan, plan};
    wrong[0].rules = &rules;
    wrong[1].sp = true;
    wrong[2].heads = 7;
    for (int i = 0; i < 4; i++) {
        clv_found_rules found = {.size = sizeof found, .priced = -1};
        assert_int_equal(clv_plan_find_rules(&found, &wrong[i], i == 3 ? -1 : 0, &err),
                         i == 2 ? CLV_ESHAPE : CLV_EINVAL);
        assert_int_equal(found.priced, -1);
    }
    assert_int_equal(clv_plan_find_rules(NULL, &plan, 0, &err), CLV_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_slower_than_presets),  cmocka_unit_test(test_equal_to_brute_force),
        cmocka_unit_test(test_inference_layouts_by_batch), cmocka_unit_test(test_result_is_described),
        cmocka_unit_test(test_number_of_candidates),       cmocka_unit_test(test_nothing_to_split),
        cmocka_unit_test(test_memory_that_nothing_fits),   cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
