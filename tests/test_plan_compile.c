/* test_plan_compile.c - plans as a program makes them: what they default to, the graphs that they are of, and what is
 * refused, by the name of the field or mode that is at fault. */
#include <stdlib.h>
#include <string.h>

#include "cleave/plan.h"
#include "golden_path.h"
#include "must.h"
#include "unit_test.h"

static clv_error err;

static clv_program *plan(const clv_plan_options *how)
{
    clv_program *program = NULL;
    must(clv_plan_compile(&program, how, &err), &err);
    assert_non_null(program);
    return program;
}

static clv_memory memory_of(clv_program *program)
{
    clv_memory memory = {.size = sizeof memory};
    must(clv_program_memory(program, &memory, &err), &err);
    return memory;
}

/* The type of the input, state or output of that name. */
static clv_type type_of(const clv_program *program, const char *name)
{
    clv_program_tensor t = {.size = sizeof t};
    for (int i = 0; clv_program_tensor_at(program, i, &t, NULL) == CLV_OK && t.name; i++)
        if (strcmp(t.name, name) == 0)
            return t.type;
    fail_msg("no %s", name);
    return (clv_type){0};
}

static bool has(const clv_program *program, const char *name)
{
    clv_program_tensor t = {.size = sizeof t};
    for (int i = 0; clv_program_tensor_at(program, i, &t, NULL) == CLV_OK && t.name; i++)
        if (strcmp(t.name, name) == 0)
            return true;
    return false;
}

static void assert_shape(const clv_program *program, const char *name, int rank, const int64_t *shape)
{
    clv_type type = type_of(program, name);
    assert_int_equal(type.rank, rank);
    for (int d = 0; d < rank; d++)
        assert_int_equal(type.shape[d], shape[d]);
}
#define SHAPE(program, name, ...)                                                                                      \
    assert_shape(program, name, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

/* ---- what is planned ---- */

/* What is not given is as the header says. */
static void test_blocks(void **state)
{
    clv_program *p = plan(&(clv_plan_options){.block = CLV_PLAN_BLOCK_GPT});
    SHAPE(p, "x", CLV_PLAN_BATCH, CLV_PLAN_SEQ, CLV_PLAN_HIDDEN);
    SHAPE(p, "attention.q.weight", 256, 8, 32);
    SHAPE(p, "attention.kv.weight", 256, 2, 8, 32);
    SHAPE(p, "mlp.up.weight", 256, 1024);
    assert_int_equal(clv_mesh_rank_count(clv_program_mesh(p)), 1);
    assert_true(!has(p, "dy") && !has(p, "d.x") && !has(p, "attention.q.bias") && !has(p, "attention.norm.bias"));
    assert_int_equal(clv_program_decision_count(p), 0);
    clv_program_free(p);

    p = plan(&(clv_plan_options){.size = sizeof(clv_plan_options),
                                 .block = CLV_PLAN_BLOCK_LLAMA,
                                 .mode = CLV_PLAN_MODE_GRAD,
                                 .batch = 3,
                                 .seq = 5,
                                 .hidden = 24,
                                 .heads = 6,
                                 .kv_heads = 2,
                                 .ffn = 10,
                                 .bias = true,
                                 .dtype = CLV_BF16,
                                 .compile.keep_decisions = true,
                                 .compile.explain = "mlp"});
    SHAPE(p, "d.x", 3, 5, 24);
    SHAPE(p, "dy", 3, 5, 24);
    SHAPE(p, "d.attention.kv.weight", 24, 2, 2, 4);
    SHAPE(p, "mlp.gate_up.bias", 2, 10);
    assert_int_equal(type_of(p, "x").dtype, CLV_BF16);
    assert_true(clv_program_decision_count(p) > 0 && clv_program_candidate_count(p) > 0);
    clv_program_free(p);

    p = plan(&(clv_plan_options){.block = CLV_PLAN_BLOCK_FFN, .ffn = 7});
    SHAPE(p, "up.weight", 256, 7);
    assert_false(has(p, "q.weight"));
    clv_program_free(p);
    p = plan(&(clv_plan_options){.block = CLV_PLAN_BLOCK_ATTENTION, .kv_heads = 4});
    SHAPE(p, "kv.weight", 256, 2, 4, 32);
    assert_false(has(p, "up.weight"));
    clv_program_free(p);
    p = plan(&(clv_plan_options){
        .size = sizeof(clv_plan_options), .block = CLV_PLAN_BLOCK_ATTENTION, .heads = 7, .head_dim = 12});
    SHAPE(p, "q.weight", 256, 7, 12);
    SHAPE(p, "o.weight", 7, 12, 256);
    clv_program_free(p);
}

/* A training step keeps optimizer state, generation a cache; an encoder has none. */
static void test_models(void **state)
{
    static const struct {
        const char *model;
        clv_plan_mode mode;
        int64_t rows;
        bool optimizer, cache;
    } cases[] = {{"llama", CLV_PLAN_MODE_DEFAULT, 6, true, false},
                 {"llama", CLV_PLAN_MODE_TRAIN, 6, true, false},
                 {"llama", CLV_PLAN_MODE_PREFILL, 6, false, true},
                 {"llama/config.json", CLV_PLAN_MODE_DECODE, 1, false, true},
                 {"esm", CLV_PLAN_MODE_PREFILL, 6, false, false}};
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "data=2,model=3", &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_program *p = plan(&(clv_plan_options){
            .model = golden_path("%s", cases[i].model), .mode = cases[i].mode, .batch = 4, .seq = 6, .mesh = &mesh});
        clv_memory memory = memory_of(p);
        SHAPE(p, "ids", 4, cases[i].rows);
        assert_true(memory.parameters > 0);
        assert_int_equal(memory.optimizer > 0, cases[i].optimizer);
        assert_int_equal(memory.cache > 0, cases[i].cache);
        if (cases[i].cache) /* the last token's alone */
            assert_int_equal(type_of(p, "logits").shape[1], 1);
        clv_program_free(p);
    }
}

static int count(const clv_program *program, const char *kind)
{
    clv_collective c = {.size = sizeof c};
    int n = 0;
    for (int i = 0; clv_program_collective(program, i, &c, NULL) == CLV_OK; i++)
        n += strcmp(c.kind, kind) == 0;
    return n;
}

/* sp is the preset of that name; what was gathered is gathered again. */
static void test_rules(void **state)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_plan_options how = {.block = CLV_PLAN_BLOCK_GPT, .mesh = &mesh, .mode = CLV_PLAN_MODE_GRAD};
    must(clv_mesh_parse(&mesh, "model=4", &err), &err);
    must(clv_axis_rules_preset(&rules, "megatron-sp", &mesh, &err), &err);
    clv_program *none = plan(&how);
    how.sp = true;
    clv_program *sp = plan(&how);
    how.compile.reshard_after_forward = CLV_RESHARD_ALL;
    clv_program *again = plan(&how);
    how.sp = false;
    how.compile.reshard_after_forward = CLV_RESHARD_WEIGHTS;
    how.rules = &rules;
    clv_program *stated = plan(&how);
    assert_int_equal(count(none, "reduce_scatter"), 0);
    assert_true(count(sp, "reduce_scatter") > 0);
    assert_int_equal(clv_program_collective_count(sp), clv_program_collective_count(stated));
    assert_int_equal(memory_of(sp).total, memory_of(stated).total);
    assert_true(count(again, "all_gather") > count(sp, "all_gather"));
    clv_program_free(none);
    clv_program_free(sp);
    clv_program_free(again);
    clv_program_free(stated);
    how = (clv_plan_options){.block = CLV_PLAN_BLOCK_GPT, .compile.max_implicit_bytes = 1};
    clv_program_free(plan(&how));
}

/* ---- refusals ---- */

static void refused(const clv_plan_options *how, clv_status status, const char *message)
{
    clv_program *program = NULL;
    err = (clv_error){0};
    if (clv_plan_compile(&program, how, &err) != status || strncmp(err.message, message, strlen(message)) != 0)
        fail_msg("'%s', expected '%s'", err.message, message);
    assert_null(program);
}
#define REFUSED(status, message, ...) refused(&(clv_plan_options){__VA_ARGS__}, status, message)
#define INVALID(message, ...)         REFUSED(CLV_EINVAL, message, __VA_ARGS__)

static void test_block_names(void **state)
{
    for (clv_plan_block block = CLV_PLAN_BLOCK_FFN; block <= CLV_PLAN_BLOCK_LLAMA; block++) {
        clv_plan_block read = CLV_PLAN_BLOCK_NONE;
        assert_int_equal(clv_plan_block_parse(&read, clv_plan_block_name(block), &err), CLV_OK);
        assert_int_equal(read, block);
    }
    assert_string_equal(clv_plan_block_name((clv_plan_block)-1), "unknown");
    for (int i = 0; i < 2; i++) {
        clv_plan_block kept = CLV_PLAN_BLOCK_GPT;
        err = (clv_error){0};
        assert_int_equal(clv_plan_block_parse(&kept, i ? "none" : "gptx", &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "valid: ffn, attention, gpt, llama"));
        assert_int_equal(kept, CLV_PLAN_BLOCK_GPT);
    }
}

static void test_refused(void **state)
{
    const char *llama = "nowhere"; /* nothing is read before these are found */
    INVALID("give either a model, by its folder or config.json, or a block: ffn, attention, gpt, llama", .batch = 2);
    INVALID("give either a model", .model = llama, .block = CLV_PLAN_BLOCK_GPT);
    INVALID("block 9, mode 0; valid: ", .block = (clv_plan_block)9);
    INVALID("block 3, mode -1; valid: ", .block = CLV_PLAN_BLOCK_GPT, .mode = (clv_plan_mode)-1);
    INVALID("train, prefill and decode are for models", .block = CLV_PLAN_BLOCK_GPT, .mode = CLV_PLAN_MODE_TRAIN);
    INVALID("train, prefill and decode are for models", .block = CLV_PLAN_BLOCK_FFN, .mode = CLV_PLAN_MODE_DECODE);
    INVALID("forward and grad are for blocks", .model = llama, .mode = CLV_PLAN_MODE_FORWARD);
    INVALID("forward and grad are for blocks", .model = llama, .mode = CLV_PLAN_MODE_GRAD);
    INVALID("kv_heads is for the blocks attention, gpt, llama; ffn has no use for it", .block = CLV_PLAN_BLOCK_FFN,
            .kv_heads = 3);
    INVALID("heads is for the blocks attention, gpt, llama; ffn", .block = CLV_PLAN_BLOCK_FFN, .heads = 8);
    INVALID("ffn is for the blocks ffn, gpt, llama; attention", .block = CLV_PLAN_BLOCK_ATTENTION, .ffn = 9);
    INVALID("hidden is for a block (ffn, attention, gpt, llama); a model is as its config.json", .model = llama,
            .hidden = 2);
    INVALID("bias is for a block (", .model = llama, .bias = true);
    INVALID("head_dim is for the blocks attention, gpt, llama; ffn", .size = sizeof(clv_plan_options),
            .block = CLV_PLAN_BLOCK_FFN, .head_dim = 8);
    REFUSED(CLV_ESHAPE, "attention: width 256 is not a multiple of 7 heads; set head_dim",
            .block = CLV_PLAN_BLOCK_ATTENTION, .heads = 7);
    INVALID("hidden is -1; valid: 0 (its default) to 16777216", .block = CLV_PLAN_BLOCK_GPT, .hidden = -1);
    INVALID("ffn is 9223372036854775807; valid: 0 (its default) to ", .block = CLV_PLAN_BLOCK_FFN, .ffn = INT64_MAX);
    INVALID("batch is -8;", .model = llama, .batch = -8);
    INVALID("seq is 1073741825;", .model = llama, .seq = (1 << 30) + 1);
    INVALID("max_implicit_bytes is -1;", .model = llama, .compile.max_implicit_bytes = -1);
    INVALID("reshard_after_forward is for a backward pass", .block = CLV_PLAN_BLOCK_GPT,
            .compile.reshard_after_forward = CLV_RESHARD_ALL);
    INVALID("recompute is for a backward pass", .block = CLV_PLAN_BLOCK_GPT, .compile.recompute = CLV_RECOMPUTE_FULL,
            .size = sizeof(clv_plan_options));
    INVALID("reshard_after_forward is for a backward pass", .model = llama, .mode = CLV_PLAN_MODE_PREFILL,
            .compile.reshard_after_forward = CLV_RESHARD_ALL);
    INVALID("reshard_after_forward is for a backward pass", .model = llama, .mode = CLV_PLAN_MODE_DECODE,
            .compile.reshard_after_forward = CLV_RESHARD_ALL);
    REFUSED(CLV_EDTYPE, "a plan of dtype i32; valid: ", .block = CLV_PLAN_BLOCK_GPT, .dtype = CLV_I32);
    REFUSED(CLV_ENOTFOUND, "nowhere: cannot open", .model = llama);
    assert_int_equal(clv_plan_compile(NULL, &(clv_plan_options){.block = CLV_PLAN_BLOCK_GPT}, &err), CLV_EINVAL);
    assert_int_equal(clv_plan_compile(&(clv_program *){NULL}, NULL, &err), CLV_EINVAL);
}

/* By what the model is. */
static void test_refused_models(void **state)
{
    clv_mesh context;
    must(clv_mesh_parse(&context, "context=2", &err), &err); /* learned positions are as many as before */
    INVALID("seq 65; the model takes 1 to 64 positions", .model = golden_path("llama"), .seq = 65);
    INVALID("seq 49; the model takes 1 to 48 positions", .model = golden_path("gpt2"), .mesh = &context, .seq = 49);
    INVALID("decode: esm attends both ways and generates nothing; valid: train, prefill", .model = golden_path("esm"),
            .mode = CLV_PLAN_MODE_DECODE, .seq = 6);
}

static void test_refused_meshes(void **state)
{
    clv_mesh mesh, damaged, many;
    clv_axis_rules rules;
    must(clv_mesh_parse(&mesh, "model=2", &err), &err);
    must(clv_mesh_parse(&many, "model=100001", &err), &err);
    must(clv_axis_rules_preset(&rules, "megatron", &mesh, &err), &err);
    damaged = mesh;
    damaged.n_axes = 99;
    REFUSED(CLV_ELIMIT, "100001 ranks; valid: at most 100000", .block = CLV_PLAN_BLOCK_GPT, .mesh = &many);
    REFUSED(CLV_ELIMIT, "mesh: 99 axes", .block = CLV_PLAN_BLOCK_GPT, .mesh = &damaged);
    REFUSED(CLV_EAXIS, "the rules 'megatron-sp' do not fit", .block = CLV_PLAN_BLOCK_GPT, .sp = true);
    INVALID("sp cannot be combined with rules", .block = CLV_PLAN_BLOCK_GPT, .mesh = &mesh, .rules = &rules,
            .sp = true);
    INVALID("sp: a sequence that is generated stays whole", .model = golden_path("llama"), .seq = 6, .mesh = &mesh,
            .sp = true, .mode = CLV_PLAN_MODE_DECODE);
    INVALID("sp: a sequence that is generated stays whole", .model = golden_path("llama"), .seq = 6, .mesh = &mesh,
            .sp = true, .mode = CLV_PLAN_MODE_PREFILL);
    clv_program_free(plan(&(clv_plan_options){
        .model = golden_path("esm"), .mode = CLV_PLAN_MODE_PREFILL, .seq = 6, .mesh = &mesh, .sp = true}));
}

/* ---- what would make it smaller ---- */

static int64_t total_of(const clv_plan_options *how)
{
    clv_program *p = plan(how);
    int64_t total = memory_of(p).total;
    clv_program_free(p);
    return total;
}

/* Each suggestion, made by hand, takes what is said of it. */
static void check_remedy(const clv_plan_options *how, const clv_plan_suggestion *suggestion)
{
    clv_plan_options o = *how;
    clv_mesh mesh;
    clv_axis_rules rules;
    if (strcmp(suggestion->option, "mesh") == 0) {
        must(clv_mesh_parse(&mesh, suggestion->value, &err), &err);
        o.mesh = &mesh;
    } else if (strcmp(suggestion->option, "rules") == 0) {
        must(clv_axis_rules_preset(&rules, suggestion->value, o.mesh, &err), &err);
        o.rules = &rules;
        o.sp = false;
    } else if (strcmp(suggestion->option, "batch") == 0) {
        o.batch = strtol(suggestion->value, NULL, 10);
    } else if (strcmp(suggestion->option, "dtype") == 0) {
        must(clv_dtype_parse(&o.dtype, suggestion->value, &err), &err);
    } else if (strcmp(suggestion->option, "recompute") == 0) {
        clv_recompute mode;
        must(clv_recompute_parse(&mode, suggestion->value, &err), &err);
        o.compile.recompute = mode;
        o.size = sizeof o;
    } else {
        assert_string_equal(suggestion->option, "reshard_after_forward");
        assert_string_equal(suggestion->value, "");
        o.compile.reshard_after_forward = CLV_RESHARD_ALL;
    }
    assert_true(suggestion->memory->total == total_of(&o));
    assert_true(suggestion->memory->total < total_of(how));
    assert_null(suggestion->memory->peak);
}

static int count_of(const clv_plan_suggestions *suggestions, const char *option)
{
    int n = 0;
    for (int i = 0; i < clv_plan_suggestion_count(suggestions); i++) {
        clv_plan_suggestion suggestion = {.size = sizeof suggestion};
        must(clv_plan_suggestion_at(suggestions, i, &suggestion, &err), &err);
        n += strcmp(suggestion.option, option) == 0;
    }
    return n;
}

static void test_remedies(void **state)
{
    clv_mesh mesh;
    clv_plan_suggestions *suggestions;
    must(clv_mesh_parse(&mesh, "data=2,model=2", &err), &err);
    const clv_plan_options how = {.size = sizeof how,
                                  .model = golden_path("llama"),
                                  .mesh = &mesh,
                                  .batch = 4,
                                  .seq = 16,
                                  .compile.explain = "mlp"};
    must(clv_plan_find_suggestions(&suggestions, &how, &err), &err);
    int64_t last = 0;
    for (int i = 0; i < clv_plan_suggestion_count(suggestions); i++) {
        clv_plan_suggestion suggestion = {.size = sizeof suggestion};
        must(clv_plan_suggestion_at(suggestions, i, &suggestion, &err), &err);
        check_remedy(&how, &suggestion);
        assert_true(suggestion.memory->total >= last);
        last = suggestion.memory->total;
    }
    assert_int_equal(count_of(suggestions, "mesh"), 2);
    assert_int_equal(count_of(suggestions, "batch"), 1);
    assert_int_equal(count_of(suggestions, "dtype"),
                     0); /* parameters are kept in f32, too, and that of a small model shows */
    assert_true(count_of(suggestions, "rules") >= 2);
    clv_plan_suggestion none = {.size = sizeof none};
    assert_int_equal(clv_plan_suggestion_at(suggestions, -1, &none, NULL), CLV_EINVAL);
    assert_int_equal(clv_plan_suggestion_at(suggestions, clv_plan_suggestion_count(suggestions), &none, NULL),
                     CLV_EINVAL);
    clv_plan_suggestions_free(suggestions);

    const clv_plan_options wide = {.block = CLV_PLAN_BLOCK_GPT, .mode = CLV_PLAN_MODE_GRAD, .seq = 512, .mesh = &mesh};
    must(clv_plan_find_suggestions(&suggestions, &wide, &err), &err);
    for (int i = 0; i < clv_plan_suggestion_count(suggestions); i++) {
        clv_plan_suggestion suggestion = {.size = sizeof suggestion};
        must(clv_plan_suggestion_at(suggestions, i, &suggestion, &err), &err);
        check_remedy(&wide, &suggestion);
    }
    assert_int_equal(count_of(suggestions, "dtype"), 1);
    clv_plan_suggestions_free(suggestions);

    const clv_plan_options small = {.block = CLV_PLAN_BLOCK_FFN, .batch = 1, .dtype = CLV_BF16}; /* on one rank */
    must(clv_plan_find_suggestions(&suggestions, &small, &err), &err);
    assert_int_equal(clv_plan_suggestion_count(suggestions), 0);
    clv_plan_suggestions_free(suggestions);
    assert_int_equal(clv_plan_find_suggestions(&suggestions, &(clv_plan_options){.batch = 1}, NULL), CLV_EINVAL);
}

/* ---- the order of axes ---- */

static double seconds_of(const clv_plan_options *how)
{
    clv_prediction predicted = {.size = sizeof predicted};
    clv_program *program = plan(how);
    must(clv_program_predict(program, how->compile.machine, &predicted, &err), &err);
    clv_program_free(program);
    return predicted.seconds;
}

/* The order that is found for a mesh, under rules where any are given, in which it takes the time that is said. */
static double check_order(const char *given, const char *rules, const clv_machine *machine, const char *wanted)
{
    clv_mesh mesh, found;
    clv_axis_rules split;
    char text[CLV_MESH_TEXT];
    double seconds;
    clv_plan_options how = {.size = sizeof how,
                            .block = CLV_PLAN_BLOCK_GPT,
                            .mode = CLV_PLAN_MODE_GRAD,
                            .batch = 32,
                            .seq = 512,
                            .hidden = 512,
                            .mesh = &mesh,
                            .rules = rules ? &split : NULL,
                            .compile.machine = machine};
    must(clv_mesh_parse(&mesh, given, &err), &err);
    if (rules)
        must(clv_axis_rules_parse(&split, rules, strlen(rules), &mesh, "rules", &err), &err);
    must(clv_plan_find_axis_order(&found, &seconds, &how, &err), &err);
    clv_mesh_print(text, sizeof text, &found);
    assert_string_equal(text, wanted);
    double before = seconds_of(&how);
    if (rules)
        must(clv_axis_rules_parse(&split, rules, strlen(rules), &found, "rules", &err), &err);
    how.mesh = &found;
    assert_true(seconds == seconds_of(&how));
    return seconds / before;
}

/* What moves most stays inside hosts of eight. */
static void test_order(void **state)
{
    static const char two[] = "{\"rules\": [[\"batch\", \"data\"], [\"heads\", \"model\"], [\"mlp\", \"model\"]],"
                              " \"optimizer\": [\"data\"]}",
                      five[] = "{\"rules\": [[\"batch\", [\"b\", \"c\"]], [\"heads\", \"t\"], [\"mlp\", \"t\"]]}";
    clv_machine *hosts;
    (void)state;
    must(clv_machine_open(&hosts, "h100-nvlink-ib", NULL, &err), &err);
    assert_true(check_order("model=8,data=2", NULL, hosts, "data=2,model=8") < 0.99);
    assert_true(check_order("data=2,model=8", NULL, hosts, "data=2,model=8") == 1);
    assert_true(check_order("model=4,data=2", NULL, hosts, "model=4,data=2") == 1); /* of one host */
    assert_true(check_order("model=8,data=2", NULL, NULL, "model=8,data=2") == 1);
    assert_true(check_order("model=8,data=4", two, hosts, "data=4,model=8") < 0.99);
    assert_true(check_order("b=2,t=8,c=1,d=1,e=1", five, hosts, "b=2,t=8,c=1,d=1,e=1") == 1);
    assert_true(check_order("t=8,b=2,c=1,d=1,e=1", five, hosts, "b=2,c=1,d=1,e=1,t=8") < 0.99);
    clv_machine_free(hosts);
}

/* State that is split over an axis of rules goes with it. */
static void test_order_of_state(void **state)
{
    static const char text[] = "{\"rules\": [[\"batch\", \"data\"], [\"mlp\", \"model\"]], \"optimizer\": [\"data\"]}";
    clv_machine *hosts;
    clv_mesh mesh, found;
    clv_axis_rules rules;
    double seconds;
    clv_plan_options how = {
        .size = sizeof how, .model = golden_path("llama"), .batch = 8, .seq = 64, .mesh = &mesh, .rules = &rules};
    (void)state;
    must(clv_machine_open(&hosts, "h100-nvlink-ib", NULL, &err), &err);
    how.compile.machine = hosts;
    must(clv_mesh_parse(&mesh, "data=8,model=2", &err), &err);
    must(clv_axis_rules_parse(&rules, text, strlen(text), &mesh, "rules", &err), &err);
    must(clv_plan_find_axis_order(&found, &seconds, &how, &err), &err);
    double given = seconds_of(&how);
    bool moved = strcmp(found.axis[0].name, "data") != 0;
    must(clv_axis_rules_parse(&rules, text, strlen(text), &found, "rules", &err), &err);
    how.mesh = &found;
    assert_true(moved && seconds == seconds_of(&how) && seconds < given);
    /* but an order that does not fit is left out */
    clv_machine *small;
    char profile[1024];
    snprintf(profile, sizeof profile,
             "{\"name\":\"small\",\"ranks_per_host\":8,\"memory_bytes\":1,\"memory_bytes_per_s\":1e12,"
             "\"flops_per_s\":{\"f32\":1e14},\"instruction_s\":1e-6,\"host\":{\"alpha_s\":1e-6,\"bytes_per_s\":4e11},"
             "\"network\":{\"alpha_s\":1e-5,\"bytes_per_s\":4e10}}");
    must(clv_machine_parse(&small, profile, strlen(profile), "small", &err), &err);
    how.mesh = &mesh;
    how.compile.machine = small;
    must(clv_axis_rules_parse(&rules, text, strlen(text), &mesh, "rules", &err), &err);
    must(clv_plan_find_axis_order(&found, &seconds, &how, &err), &err);
    assert_true(clv_mesh_equal(&found, &mesh));
    clv_machine_free(small);
    clv_machine_free(hosts);
}

/* Structs of other versions of the header. */
static void test_sizes_of_the_struct(void **state)
{
    struct {
        clv_plan_options known;
        int64_t later;
    } grown = {.known = {.size = sizeof grown, .block = CLV_PLAN_BLOCK_FFN}};
    clv_program_free(plan(&grown.known));
    grown.later = 1;
    refused(&grown.known, CLV_EUNSUPPORTED, "clv_plan_compile: an option that this version of the library does not");
    INVALID("clv_plan_compile: a struct whose size is 3", .size = 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),         cmocka_unit_test(test_models),
        cmocka_unit_test(test_rules),          cmocka_unit_test(test_block_names),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_refused_models),
        cmocka_unit_test(test_refused_meshes), cmocka_unit_test(test_sizes_of_the_struct),
        cmocka_unit_test(test_remedies),       cmocka_unit_test(test_order),
        cmocka_unit_test(test_order_of_state),
    };
    return cmocka_run_group_tests_name("plan_api", tests, NULL, NULL);
}
