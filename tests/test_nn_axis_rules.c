/* test_nn_axis_rules.c - every layer under every preset and under random rules gives one rank's outputs and gradients,
 * and rules that make no sense are refused. CLV_SEED and CLV_CASES choose other random rules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/program.h"
#include "cleave/session.h"
#include "models/config/model_config.h"
#include "must.h"
#include "nn_layer_cases.h"
#include "sweep.h"
#include "unit_test.h"

/* ---- layouts by rule ---- */

static void layout_is(const char *mesh_text, const char *rules_text, int rank, const clv_logical_axis *names,
                      const char *expected)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_layout layout;
    char text[CLV_LAYOUT_TEXT];
    assert_int_equal(clv_mesh_parse(&mesh, mesh_text, &err), CLV_OK);
    if (clv_axis_rules_parse(&rules, rules_text, strlen(rules_text), &mesh, "rules", &err) != CLV_OK)
        fail_msg("%s", err.message);
    assert_int_equal(clv_axis_rules_layout(&layout, &rules, &mesh, rank, names, &err), CLV_OK);
    clv_layout_print(text, sizeof text, &layout, &mesh);
    assert_string_equal(text, expected);
}

static void test_first_match_wins(void **state)
{
    static const clv_logical_axis product[] = {CLV_BATCH, CLV_SEQ, CLV_HEADS}, row[] = {CLV_BATCH, CLV_SEQ, CLV_EMBED};
    const char *sp = "{\"rules\": [[\"batch\",\"a\"],[\"heads\",\"b\"],[\"seq\",\"b\"]]}";
    layout_is("a=2,b=3", sp, 3, product, "a,_,b");
    layout_is("a=2,b=3", sp, 3, row, "a,b,_");
    /* The later rule is a fallback, unless the earlier says none. */
    layout_is("a=2,b=3", "{\"rules\":[[\"seq\",\"a\"],[\"batch\",\"a\"],[\"batch\",\"b\"]]}", 3, row, "b,a,_");
    layout_is("a=2,b=3", "{\"rules\":[[\"batch\",null],[\"batch\",\"b\"]]}", 3, row, "_,_,_");
    /* All axes of a rule, or none. */
    layout_is("a=2,b=3", "{\"rules\":[[\"seq\",\"a\"],[\"batch\",[\"a\",\"b\"]]]}", 3, row, "_,a,_");
    layout_is("a=2,b=3", "{ // comment\n \"rules\": /* [ */ [[\"embed\",[\"b\",\"a\"]]]}", 3, row, "_,_,(b,a)");
}

static void test_optimizer_layout(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_layout parameter, moments;
    char text[CLV_LAYOUT_TEXT];
    assert_int_equal(clv_mesh_parse(&mesh, "data=4,model=2", &err), CLV_OK);
    assert_int_equal(clv_axis_rules_preset(&rules, "zero1", &mesh, &err), CLV_OK);
    assert_int_equal(clv_layout_parse(&parameter, "_,model", &mesh, 2, &err), CLV_OK);
    assert_int_equal(clv_axis_rules_optimizer_layout(&moments, &rules, &mesh, &parameter, (int64_t[]){8, 12}, &err),
                     CLV_OK);
    clv_layout_print(text, sizeof text, &moments, &mesh);
    assert_string_equal(text, "data,model");
    assert_int_equal(clv_axis_rules_optimizer_layout(&moments, &rules, &mesh, &parameter, (int64_t[]){8, 20}, &err),
                     CLV_OK);
    clv_layout_print(text, sizeof text, &moments, &mesh);
    assert_string_equal(text, "_,(model,data)");
    /* one element goes to one of the ranks, none stays as it is */
    for (int64_t size = 0; size < 2; size++) {
        parameter = clv_layout_replicated(1);
        assert_int_equal(clv_axis_rules_optimizer_layout(&moments, &rules, &mesh, &parameter, &size, &err), CLV_OK);
        clv_layout_print(text, sizeof text, &moments, &mesh);
        assert_string_equal(text, size ? "data" : "_");
    }
}

/* ---- refusals ---- */

static void test_refused(void **state)
{
    static const struct {
        const char *rules, *message;
    } cases[] = {
        {"{\"rules\":[[\"batch\",\"c\"]]}", "rules: rule 1: the mesh has no axis 'c'; valid: a, b"},
        {"{\"rules\":[[\"two words\",\"a\"]]}", "rules: rule 1: 'two words' is not a valid logical axis name; valid: 1 "
                                                "to 63 letters, digits, '_', '-' and '.', a "
                                                "letter first"},
        {"{\"rules\":[[7,\"a\"]]}", "rules: rule 1: the name of a logical axis is a string, as \"heads\""},
        {"{\"rules\":[[\"batch\",[\"a\",\"a\"]]]}", "rules: rule 1: axis 'a' twice; each splits a tensor once"},
        {"{\"rules\":[[\"layers\",[\"a\",\"b\"]]]}",
         "rules: rule 1: 'layers' over 2 axes; valid: one axis, of pipeline stages, or null"},
        {"{\"rules\":[[\"batch\"]]}", "rules: rule 1: a rule is a pair, [\"heads\", \"model\"] or [\"seq\", null]"},
        {"{\"rules\":[[\"batch\",7]]}", "rules: rule 1: a mesh axis is a string"},
        {"{\"rules\":7}", "rules: \"rules\" must be a list of at most 32 pairs"},
        {"{\"rule\":[]}", "rules: unknown key \"rule\"; valid: rules, optimizer, mesh, accumulate, recompute, "
                          "reshard_after_forward, hosts, ranks_per_host, schedule, no_sync, virtual_stages, stages"},
        {"{\"rules\":[[\"layers\",\"a\"]],\"stages\":[2,0]}",
         "rules: \"virtual_stages\" must be a number from 1 to 256, and \"stages\" a list of at most as many numbers "
         "of "
         "layers, from 1"},
        {"{\"rules\":[[\"layers\",\"a\"]],\"stages\":[2,1,1]}",
         "rules: layers of 3 stages for 2 of axis 'a'; valid: a number for each"},
        {"{\"rules\":[],\"virtual_stages\":2}",
         "rules: layers of stages, or virtual stages, without an axis of stages; valid: a mesh with an axis pipe, or "
         "rules with [\"layers\", AXIS]"},
        {"[]", "rules: not a JSON object"},
    };
    clv_error err;
    clv_mesh mesh;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_axis_rules rules;
        err = (clv_error){0};
        assert_int_equal(clv_mesh_parse(&mesh, "a=2,b=3", &err), CLV_OK);
        assert_int_not_equal(clv_axis_rules_parse(&rules, cases[i].rules, strlen(cases[i].rules), &mesh, "rules", &err),
                             CLV_OK);
        assert_string_equal(err.message, cases[i].message);
    }
}

/* ---- names of one's own ---- */

static const int64_t of_experts[3] = {6, 8, 10};

/* A weight of experts and its product, as a layer of one's own would have it. */
static clv_graph *experts(const clv_mesh *mesh, const clv_axis_rules *rules, const char *first)
{
    clv_graph *graph;
    assert_int_equal(clv_graph_new(&graph, mesh, NULL), CLV_OK);
    clv_layout layout = clv_named_layout(graph, rules, 3, (clv_logical_axis[]){first, CLV_EMBED_KERNEL, CLV_MLP});
    clv_value w = clv_state(graph, "w", CLV_F32, 3, of_experts, &layout, (clv_init){CLV_INIT_NORMAL, 1});
    clv_output(graph, "y", clv_reduce(graph, CLV_SUM, w, (int[]){1}, 1, false), NULL);
    return graph;
}

static void test_names_of_ones_own(void **state)
{
    static const char text[] = "{\"rules\":[[\"experts\",\"a\"],[\"mlp\",\"b\"]]}";
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules = {0}, read;
    clv_program *program;
    layout_is("a=2,b=3", text, 3, (clv_logical_axis[]){"experts", CLV_EMBED_KERNEL, CLV_MLP}, "a,_,b");
    layout_is("a=2,b=3", text, 3, (clv_logical_axis[]){"expert", CLV_UNNAMED, "experts"}, "_,_,a");
    assert_int_equal(clv_mesh_parse(&mesh, "a=2,b=3", &err), CLV_OK);
    assert_int_equal(clv_axis_rules_add(&rules, "experts", "a", &mesh, &err), CLV_OK);
    assert_int_equal(clv_axis_rules_add(&rules, CLV_MLP, "b", &mesh, &err), CLV_OK);
    assert_int_equal(clv_axis_rules_add(&rules, CLV_SEQ, "", &mesh, &err), CLV_OK);
    assert_int_equal(clv_axis_rules_add(&rules, CLV_BATCH, "b,a", &mesh, &err), CLV_OK);
    assert_true(rules.n == 4 && rules.rule[2].n_axes == 0 && rules.rule[3].axis[0] == 1 && rules.rule[3].axis[1] == 0);
    assert_int_equal(clv_axis_rules_parse(&read, text, strlen(text), &mesh, "own.json", &err), CLV_OK);
    assert_memory_equal(&read.rule[0], &rules.rule[0], sizeof read.rule[0]);
    clv_graph *graph = experts(&mesh, &read, "experts");
    assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_OK);
    clv_program_free(program);
    clv_graph_free(graph);

    /* a name that no tensor has is misspelt, in the file or in the layer */
    graph = experts(&mesh, &read, "expert");
    assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_EINVAL);
    assert_string_equal(err.message, "own.json: rule 1: no tensor has the logical axis 'experts'; valid: expert, "
                                     "embed_kernel, mlp");
    clv_graph_free(graph);
    assert_int_equal(clv_axis_rules_without(&read, "experts").n, 1);
    assert_int_equal(clv_axis_rules_without(&read, CLV_UNNAMED).n, 2);
}

/* Weights of a linear layer over features of any name stay where they are. */
static void test_features_of_any_name(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules = {0};
    clv_program *program;
    assert_int_equal(clv_mesh_parse(&mesh, "m=2", &err), CLV_OK);
    assert_int_equal(clv_axis_rules_add(&rules, "mine", "m", &mesh, &err), CLV_OK);
    clv_graph *graph;
    assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
    clv_value x = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){2, 3, 8}, NULL);
    clv_linear_options up = {.name = "up", .features = "mine", .init = {CLV_INIT_NORMAL, 1}},
                       down = {
                           .name = "down", .features = "mine", .input_is_parallel = true, .init = {CLV_INIT_NORMAL, 1}};
    clv_value y =
        clv_row_parallel_linear(graph, clv_column_parallel_linear(graph, x, 10, &rules, &up), 8, &rules, &down);
    clv_output(graph, "y", y, NULL);
    if (clv_compile(&program, graph, NULL, &err) != CLV_OK)
        fail_msg("%s", err.message);
    assert_int_equal(clv_program_collective_count(program), 1); /* Megatron's */
    clv_program_free(program);
    clv_graph_free(graph);
}

static void test_bad_names(void **state)
{
    static const char long_name[] = "a234567890123456789012345678901234567890123456789012345678901234";
    static const struct {
        const char *name, *axes, *message;
    } cases[] = {
        {"", "a", "'' is not a valid logical axis name"},
        {"_", "a", "'_' is not a valid logical axis name"},
        {"7up", "a", "'7up' is not a valid logical axis name"},
        {"a b", "a", "'a b' is not a valid logical axis name"},
        {long_name, "a", "1 to 63 letters"},
        {"mine", "c", "the mesh has no axis 'c'; valid: a, b"},
        {"mine", "a,,b", "the mesh has no axis ''"},
        {"mine", "a,a", "axis 'a' twice"},
        {"layers", "a,b", "'layers' over 2 axes"},
    };
    clv_mesh mesh;
    clv_axis_rules rules = {0};
    assert_int_equal(clv_mesh_parse(&mesh, "a=2,b=3", NULL), CLV_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_error err = {0};
        assert_int_not_equal(clv_axis_rules_add(&rules, cases[i].name, cases[i].axes, &mesh, &err), CLV_OK);
        if (!strstr(err.message, cases[i].message))
            fail_msg("'%s'; expected '%s'", err.message, cases[i].message);
        assert_int_equal(rules.n, 0);
    }
    assert_int_equal(clv_axis_rules_add(&rules, long_name + 1, "a", &mesh, NULL), CLV_EINVAL);
    char longest[64];
    memcpy(longest, long_name, 63);
    longest[63] = '\0';
    for (int n = 0; n < CLV_MAX_RULES; n++)
        assert_int_equal(clv_axis_rules_add(&rules, longest, "a", &mesh, NULL), CLV_OK);
    assert_string_equal(rules.rule[31].name, longest);
    assert_int_equal(clv_axis_rules_add(&rules, longest, "a", &mesh, NULL), CLV_ELIMIT);
    clv_graph *graph;
    clv_error err = {0};
    assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
    clv_named_layout(graph, &rules, 1, (clv_logical_axis[]){"no name"});
    assert_int_equal(clv_graph_status(graph, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "'no name' is not a valid logical axis name"));
    clv_graph_free(graph);
}

static void test_as_many_rules_as_fit(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    assert_int_equal(clv_mesh_parse(&mesh, "a=2,b=3", &err), CLV_OK);
    for (int n = CLV_MAX_RULES; n <= CLV_MAX_RULES + 1; n++) {
        char text[1024] = "{\"rules\":[";
        clv_axis_rules rules;
        for (int i = 0; i < n; i++)
            strcat(text, i ? ",[\"batch\",\"a\"]" : "[\"batch\",\"a\"]");
        strcat(text, "]}");
        assert_int_equal(clv_axis_rules_parse(&rules, text, strlen(text), &mesh, "rules", &err),
                         n == CLV_MAX_RULES ? CLV_OK : CLV_ELIMIT);
        assert_true(n > CLV_MAX_RULES || rules.n == n);
    }
}

static void preset_is_refused(const char *preset, const char *mesh_text, const char *message)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    assert_int_equal(clv_mesh_parse(&mesh, mesh_text, &err), CLV_OK);
    assert_int_not_equal(clv_axis_rules_preset(&rules, preset, &mesh, &err), CLV_OK);
    assert_string_equal(err.message, message);
}

/* Ranks of an axis of experts have data of their own, and ranks of context a part of it. */
static void test_experts_and_context_alone(void **state)
{
    static const char *const names[] = {"dp", "fsdp", "zero1"}, *const meshes[] = {"expert=4", "context=4"};
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    for (int i = 0; i < 6; i++) {
        must(clv_mesh_parse(&mesh, meshes[i % 2], &err), &err);
        must(clv_axis_rules_preset(&rules, names[i / 2], &mesh, &err), &err);
    }
    must(clv_mesh_parse(&mesh, "expert=4,model=2", &err), &err);
    must(clv_axis_rules_preset(&rules, "fsdp+megatron-sp", &mesh, &err), &err);
}

static void test_presets_that_do_not_fit(void **state)
{
    preset_is_refused(NULL, "X=2,Y=2",
                      "the default rules do not fit the mesh 'X=2,Y=2' (axes X, Y); presets that fit: gspmd-2d");
    preset_is_refused(
        "megatron", "data=2",
        "the rules 'megatron' do not fit the mesh 'data=2' (axes data); presets that fit: dp, fsdp, zero1");
    preset_is_refused("dp", "data=2,rows=2",
                      "the rules 'dp' do not fit the mesh 'data=2,rows=2' (axes data, rows); no preset fits: write a "
                      "rules file, or use the axis names of presets: pipe, expert, data, context, model, X, Y");
    preset_is_refused("megatorn", "model=2",
                      "no preset is called 'megatorn'; valid: dp, fsdp, megatron, megatron-sp, fsdp+megatron-sp, "
                      "gspmd-2d, zero1, zero1+megatron-sp, or a rules file");
}

/* ---- every layer by every preset ---- */

/* An axis expert is refused by graphs without experts; test_expert_rows.c and test_moe_golden.c have it. */
static void test_presets(void **state)
{
    static const struct {
        const char *rules, *mesh;
    } cases[] = {
        {"dp", "data=3"},
        {"fsdp", "data=2"},
        {"fsdp", "data=5"},
        {"fsdp+megatron-sp", "data=2,model=3"},
        {"fsdp+megatron-sp", "data=3,model=2"},
        {"gspmd-2d", "X=2,Y=2"},
        {"gspmd-2d", "X=2,Y=3"},
        {"gspmd-2d", "X=1,Y=4"},
        {"gspmd-2d", "Y=2,X=3"},
        {"dp", "context=3"},
        {"fsdp", "data=2,context=2"},
        {"megatron-sp", "context=2,model=3"},
        {"megatron", "model=2,context=4"},
        {"zero1", "pipe=2,data=2,model=2"},
        {"zero1+megatron-sp", "data=2,pipe=2,model=3"},
        {"megatron", "pipe=2,context=3,model=2"},
        {"fsdp", "pipe=2,data=3"},
        {"fsdp+megatron-sp", "pipe=2,data=2,context=2,model=2"},
    };
    for (int i = 0; i < n_nn_layers; i++) {
        nn_make_reference(&nn_layers[i]);
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
            nn_run_on(&nn_layers[i], cases[c].mesh, cases[c].rules);
        nn_free_reference();
    }
}

/* ---- random rules ---- */

static unsigned long long random_state;

static int below(int n)
{
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((random_state >> 33) % (unsigned)n);
}

static int number(const char *name, int fallback)
{
    const char *text = getenv(name);
    return text ? atoi(text) : fallback;
}

static int cases_of_each(void)
{
    return number("CLV_CASES", sweep_is_thin() ? 2 : 6);
}

static void random_rules(char *out, size_t size, const char *const *axes, int n_axes)
{
    size_t at = (size_t)snprintf(out, size, "{\"rules\":[");
    int n = 1 + below(9);
    for (int r = 0; r < n; r++) {
        static const clv_logical_axis names[] = {CLV_BATCH, CLV_SEQ,      CLV_EMBED,    CLV_EMBED_KERNEL, CLV_MLP,
                                                 CLV_HEADS, CLV_KV_HEADS, CLV_HEAD_DIM, CLV_VOCAB};
        const char *name = names[below(sizeof names / sizeof *names)];
        const char *axis = axes[below(n_axes)], *other = axes[below(n_axes)];
        at += (size_t)snprintf(out + at, size - at, "%s[\"%s\",", r ? "," : "", name);
        if (below(8) == 0)
            at += (size_t)snprintf(out + at, size - at, "null]");
        else if (below(4) == 0 && other != axis)
            at += (size_t)snprintf(out + at, size - at, "[\"%s\",\"%s\"]]", axis, other);
        else
            at += (size_t)snprintf(out + at, size - at, "\"%s\"]", axis);
    }
    at += (size_t)snprintf(out + at, size - at, "]");
    if (below(2) == 0)
        at += (size_t)snprintf(out + at, size - at, ",\"optimizer\":\"%s\"", axes[below(n_axes)]);
    snprintf(out + at, size - at, "}");
}

static void test_random_rules(void **state)
{
    static const char *const meshes[] = {"a=2", "a=2,b=2", "a=3,b=2", "a=2,b=2,c=2", "a=4,b=2", "a=5"};
    static const int n_axes[] = {1, 2, 2, 3, 2, 1};
    static const char *const axes[] = {"a", "b", "c"};
    const int cases = cases_of_each();
    random_state = (unsigned long long)number("CLV_SEED", 1);
    for (int i = 0; i < n_nn_layers; i++) {
        nn_make_reference(&nn_layers[i]);
        for (int c = 0; c < cases; c++) {
            char rules[1024];
            int mesh = below(6);
            random_rules(rules, sizeof rules, axes, n_axes[mesh]);
            if (getenv("CLV_PRINT"))
                print_message("%s on %s by %s\n", nn_layers[i].name, meshes[mesh], rules);
            nn_run_on(&nn_layers[i], meshes[mesh], rules);
        }
        nn_free_reference();
    }
}

/* ---- whole training steps ---- */

enum { B = 3, S = 5, STEPS = 3 };

/* The losses of some steps of a small model: forward, backward and update. */
static void train(double losses[STEPS], const char *mesh_text, const char *rules_text)
{
    const clv_model_config model = {.family = &clv_family_llama,
                                    .hidden = 24,
                                    .layers = 2,
                                    .heads = 6,
                                    .kv_heads = 2,
                                    .head_dim = 4,
                                    .ffn = 50,
                                    .vocab = 37,
                                    .max_positions = 64,
                                    .norm_eps = 1e-5,
                                    .rope.theta = 1e4,
                                    .activation = CLV_SILU,
                                    .bos = -1,
                                    .pad = -1,
                                    .mask = -1};
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program = NULL;
    clv_session *session = NULL;
    clv_model_build_options how = {.batch = B, .seq = S, .dtype = CLV_F32};
    assert_int_equal(clv_mesh_parse(&mesh, mesh_text, &err), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
    if (rules_text)
        assert_int_equal(clv_axis_rules_parse(&how.rules, rules_text, strlen(rules_text), &mesh, "rules", &err),
                         CLV_OK);
    clv_build_train_step(graph, &model, &how, &(clv_update_options){.adamw = &(clv_adamw_options){.weight_decay = 0.1}},
                         false);
    if (clv_compile(&program, graph, NULL, &err) != CLV_OK ||
        clv_session_new(&session, &mesh, &(clv_session_options){.seed = 2, .check = 1}, &err) != CLV_OK)
        fail_msg("%s by %s: %s", mesh_text, rules_text ? rules_text : "no rules", err.message);
    int32_t ids[B * S], labels[B * S];
    for (int i = 0; i < B * S; i++) {
        ids[i] = i * 17 % 37;
        labels[i] = i % 4 == 0 ? -100 : i * 29 % 37;
    }
    for (int32_t step = 1; step <= STEPS; step++) {
        float lr = 0.01f, loss = -1;
        clv_input_binding inputs[] = {{"ids", ids}, {"labels", labels}, {"lr", &lr}, {"step", &step}};
        clv_output_binding output = {"loss", &loss};
        if (clv_session_run(session, program, inputs, 4, &output, 1, &err) != CLV_OK)
            fail_msg("%s by %s: %s", mesh_text, rules_text ? rules_text : "no rules", err.message);
        losses[step - 1] = loss;
    }
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

static void test_random_updates(void **state)
{
    static const char *const meshes[] = {"a=2", "a=2,b=2", "a=3,b=2", "a=2,b=2,c=2", "a=5"};
    static const int n_axes[] = {1, 2, 2, 3, 1};
    static const char *const axes[] = {"a", "b", "c"};
    double alone[STEPS], split[STEPS];
    random_state = (unsigned long long)number("CLV_SEED", 1) + 99;
    train(alone, "a=1", NULL);
    assert_true(alone[STEPS - 1] < alone[0]);
    for (int c = 0; c < 2 * cases_of_each(); c++) {
        char rules[1024];
        int mesh = below(5);
        random_rules(rules, sizeof rules, axes, n_axes[mesh]);
        train(split, meshes[mesh], rules);
        for (int i = 0; i < STEPS; i++)
            if (!(split[i] - alone[i] < 1e-5 && alone[i] - split[i] < 1e-5))
                fail_msg("%s by %s: loss %d is %.7f, one rank's is %.7f", meshes[mesh], rules, i, split[i], alone[i]);
    }
}

/* A norm of what has no width is refused as that; it makes no parameter of a size that is not there. */
static void test_norm_of_a_scalar(void **state)
{
    for (int layer = 0; layer < 2; layer++) {
        clv_mesh mesh;
        clv_graph *graph;
        clv_error err = {0};
        assert_int_equal(clv_mesh_parse(&mesh, "model=2", NULL), CLV_OK);
        assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
        clv_axis_rules rules = clv_graph_axis_rules(graph, NULL);
        clv_value x = clv_input(graph, "x", CLV_F32, 0, NULL, NULL);
        if (layer)
            clv_parallel_layer_norm(graph, x, &rules, "norm", 1e-5, true);
        else
            clv_parallel_rms_norm(graph, x, &rules, "norm", 1e-5);
        assert_int_equal(clv_graph_status(graph, &err), CLV_ESHAPE);
        assert_non_null(strstr(err.message, "[...,M]"));
        assert_int_equal(clv_graph_parameters(graph, NULL, 0), 0);
        clv_graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_of_a_scalar),
        cmocka_unit_test(test_as_many_rules_as_fit),
        cmocka_unit_test(test_names_of_ones_own),
        cmocka_unit_test(test_features_of_any_name),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_first_match_wins),
        cmocka_unit_test(test_optimizer_layout),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_experts_and_context_alone),
        cmocka_unit_test(test_presets_that_do_not_fit),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_random_rules),
        cmocka_unit_test(test_random_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
