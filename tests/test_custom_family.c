/* test_custom_family.c - families that a program states: one that is Llama under other names, equal to the library's
 * bit for bit on every mesh; one without attention, with keys of its own; and what is refused. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/evaluate.h"
#include "cleave/family.h"
#include "cleave/forward.h"
#include "cleave/generate.h"
#include "cleave/train.h"
#include "golden_path.h"
#include "must.h"
#include "temp_folder.h"
#include "unit_test.h"

enum { B = 2, S = 5, TOKENS = 6 };

static const int32_t ids[B * S] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
static clv_error err;

#define AT(field) offsetof(clv_family_model, field)

/* ---- a Llama under other names ---- */

static clv_value twin_hidden(clv_graph *graph, const clv_family_model *m, const clv_family_graph_options *b)
{
    clv_block_options block = clv_block_defaults(CLV_BLOCK_LLAMA, m->heads, m->kv_heads, m->ffn);
    const clv_init normal = {CLV_INIT_NORMAL, 0.02};
    block.eps = m->norm_eps;
    block.attention.head_dim = m->head_dim;
    block.attention.rope.theta = m->rope_theta;
    block.attention.context = b->context;
    block.attention.offset = b->offset;
    block.attention.mask = b->mask;
    clv_value x = clv_vocab_parallel_embedding(graph, b->ids, m->vocab, m->hidden, b->dtype, b->rules, "embed", normal);
    for (int64_t i = 0; i < m->layers; i++) {
        clv_graph_push_scope(graph, "layers.%lld", (long long)i);
        x = clv_transformer_block(graph, x, b->rules, &block);
        clv_graph_pop_scope(graph);
    }
    return clv_parallel_rms_norm(graph, x, b->rules, "final_norm", m->norm_eps);
}

static int untied(const clv_family_model *m)
{
    return !m->tied_embeddings;
}

static const clv_family_key twin_keys[] = {
    {"width", CLV_KEY_INT, AT(hidden), 1, 0},
    {"depth", CLV_KEY_INT, AT(layers), 1, 0},
    {"queries", CLV_KEY_INT, AT(heads), 1, 0},
    {"keys", CLV_KEY_INT, AT(kv_heads), 0, 0},
    {"inner", CLV_KEY_INT, AT(ffn), 0, 0},
    {"vocab_size", CLV_KEY_INT, AT(vocab), 1, 0},
    {"positions", CLV_KEY_INT, AT(max_positions), 0, 0},
    {"eps", CLV_KEY_REAL, AT(norm_eps), 0, 1e-5},
    {"theta", CLV_KEY_REAL, AT(rope_theta), 0, 10000},
};
static const clv_family_parameter twin_parameters[] = {
    {"embed.weight", "model.embed_tokens.weight", CLV_PARAMETER_AS_IS, "", .out = "VM"},
    {"layers.%.attention.norm.weight", "model.layers.%.input_layernorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.attention.q.weight", "model.layers.%.self_attn.q_proj.weight", CLV_PARAMETER_LINEAR, "M", .out = "HD"},
    {"layers.%.attention.kv.weight", "model.layers.%.self_attn.k_proj.weight", CLV_PARAMETER_LINEAR, "M", .out = "KD",
     .second_tensor = "model.layers.%.self_attn.v_proj.weight"},
    {"layers.%.attention.o.weight", "model.layers.%.self_attn.o_proj.weight", CLV_PARAMETER_LINEAR, "HD", .out = "M"},
    {"layers.%.mlp.norm.weight", "model.layers.%.post_attention_layernorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.gate_up.weight", "model.layers.%.mlp.gate_proj.weight", CLV_PARAMETER_LINEAR, "M", .out = "F",
     .second_tensor = "model.layers.%.mlp.up_proj.weight"},
    {"layers.%.mlp.down.weight", "model.layers.%.mlp.down_proj.weight", CLV_PARAMETER_LINEAR, "F", .out = "M"},
    {"final_norm.weight", "model.norm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"lm_head.weight", "lm_head.weight", CLV_PARAMETER_LINEAR, "M", .out = "V", .when = untied},
};
static const clv_family twin = {.size = sizeof twin,
                                .model_type = "twin",
                                .architecture = "TwinForCausalLM",
                                .bare = "TwinModel",
                                .base = "model.",
                                .keys = twin_keys,
                                .n_keys = sizeof twin_keys / sizeof *twin_keys,
                                .parameters = twin_parameters,
                                .n_parameters = sizeof twin_parameters / sizeof *twin_parameters,
                                .hidden = twin_hidden};

/* ---- without attention: each layer's MLP is applied "repeats" times ---- */

static clv_status bag_complete(clv_family_model *m, clv_error *why)
{
    if (m->number[0] == 96) { /* an encoder that leaves the rest to the library */
        m->bidirectional = 1;
        m->activation = 0;
        m->number[0] = 1;
    }
    if (m->number[0] == 97)
        return (clv_status)99;
    if (m->number[0] == 98)
        return CLV_ELIMIT;
    if (m->number[0] == 99)
        m->norm_eps = NAN;
    else if (m->number[0] == 100)
        m->activation = (clv_unary_kind)9999;
    else if (m->number[0] > 3)
        return clv_fail(why, CLV_EFORMAT, "bag: \"repeats\" is %lld; valid: 1 to 3", (long long)m->number[0]);
    return CLV_OK;
}

static clv_family_model last_built; /* what bag_hidden was given */

static clv_value bag_hidden(clv_graph *graph, const clv_family_model *m, const clv_family_graph_options *b)
{
    const clv_init normal = {CLV_INIT_NORMAL, 0.2};
    const int64_t shape[] = {m->hidden, m->ffn};
    last_built = *m;
    clv_value x = clv_vocab_parallel_embedding(graph, b->ids, m->vocab, m->hidden, b->dtype, b->rules, "embed", normal);
    clv_layout cut = clv_named_layout(graph, b->rules, 2, (clv_logical_axis[]){CLV_EMBED_KERNEL, CLV_MLP});
    for (int64_t i = 0; i < m->layers; i++) {
        clv_graph_push_scope(graph, "layers.%lld", (long long)i);
        clv_value w = clv_state(graph, "w", b->dtype, 2, shape, &cut, normal);
        for (int64_t k = 0; k < m->number[0]; k++) {
            clv_value y = clv_unary(graph, m->activation, clv_einsum(graph, "bsm,mf->bsf", x, w));
            x = clv_add(graph, x, clv_scale(graph, clv_einsum(graph, "bsf,mf->bsm", y, w), m->real[0]));
        }
        clv_graph_pop_scope(graph);
    }
    return clv_parallel_rms_norm(graph, x, b->rules, "norm", 1e-5);
}

static const clv_family_key bag_keys[] = {
    {"width", CLV_KEY_INT, AT(hidden), 1, 0},
    {"depth", CLV_KEY_INT, AT(layers), 1, 0},
    {"vocab_size", CLV_KEY_INT, AT(vocab), 1, 0},
    {"repeats", CLV_KEY_INT, AT(number[0]), 0, 1},
    {"strength", CLV_KEY_REAL, AT(real[0]), 0, 0.5},
    {"tied", CLV_KEY_FLAG, AT(tied_embeddings), 0, 1},
    {"act", CLV_KEY_ACTIVATION, AT(activation), 0, CLV_TANH},
};
static const clv_family_parameter bag_parameters[] = {
    {"embed.weight", "table", CLV_PARAMETER_AS_IS, "", .out = "VM"},
    {"layers.%.w", "blocks.%.w", CLV_PARAMETER_CONV1D, "M", .out = "F"},
    {"norm.weight", "gain", CLV_PARAMETER_AS_IS, "", .out = "M"},
};
static const clv_family bag = {.model_type = "bag",
                               .architecture = "BagForCausalLM",
                               .bare = "BagModel",
                               .keys = bag_keys,
                               .n_keys = sizeof bag_keys / sizeof *bag_keys,
                               .parameters = bag_parameters,
                               .n_parameters = sizeof bag_parameters / sizeof *bag_parameters,
                               .complete = bag_complete,
                               .hidden = bag_hidden};

/* ---- folders and models ---- */

static void write_config(const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "mkdir -p %s", in_folder("%s", name));
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/config.json", in_folder("%s", name));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static const char twin_config[] =
    "{\"model_type\": \"twin\", \"architectures\": [\"TwinForCausalLM\"], \"width\": 24, \"depth\": 2, \"queries\": 6,"
    " \"keys\": 2, \"inner\": 40, \"vocab_size\": 37, \"positions\": 64, \"bos_token_id\": 1, \"eos_token_id\": 2}";
static const char bag_config[] =
    "{\"model_type\": \"bag\", \"width\": 8, \"depth\": 2, \"vocab_size\": 20, \"repeats\": 2, \"act\": \"relu\"}";

static clv_model *open_on(const char *path, int tp, int config_only)
{
    char text[32];
    clv_mesh mesh;
    clv_model *model;
    snprintf(text, sizeof text, "model=%d", tp);
    must(clv_mesh_parse(&mesh, text, &err), &err);
    must(clv_model_open(&model, path, &(clv_model_options){.mesh = &mesh, .config_only = config_only}, &err), &err);
    return model;
}

static int set_up(void **state)
{
    char command[4500];
    if (!mkdtemp(folder) || clv_model_register_family(&twin, &err) != CLV_OK ||
        clv_model_register_family(&bag, &err) != CLV_OK)
        return -1;
    write_config("twin", twin_config);
    write_config("bag", bag_config);
    snprintf(command, sizeof command, "cp '%s/model.safetensors' %s", golden_path("llama"), in_folder("twin"));
    return system(command);
}

/* ---- tests ---- */

/* Logits of a batch; the caller's. */
static float *logits_of(const char *path, int tp, int64_t *n)
{
    clv_model *model = open_on(path, tp, 0);
    clv_evaluation *e;
    must(clv_evaluate(&e, model, &(clv_evaluate_options){.batch = B, .seq = S, .ids = ids}, &err), &err);
    clv_evaluation_tensor t = {.size = sizeof t};
    must(clv_evaluation_at(e, 1, &t, &err), &err);
    assert_string_equal(t.name, "logits");
    *n = t.shape[0] * t.shape[1] * t.shape[2];
    float *copy = malloc((size_t)*n * sizeof *copy);
    memcpy(copy, t.data, (size_t)*n * sizeof *copy);
    clv_evaluation_free(e);
    clv_model_close(model);
    return copy;
}

static void write_tokens(const char *path, int tp, int64_t *out)
{
    clv_model *model = open_on(path, tp, 0);
    clv_generator *g;
    int64_t token = 1;
    must(clv_generator_new(&g, model, NULL, &err), &err);
    for (int i = 0; i < TOKENS; i++) {
        must(clv_generator_feed(g, 0, &token, 1, &err), &err);
        must(clv_generator_run(g, &err), &err);
        must(clv_generator_sample(g, 0, NULL, &token, &err), &err);
        out[i] = token;
    }
    clv_generator_free(g);
    clv_model_close(model);
}

static void test_equals_llama(void **state)
{
    for (int tp = 1; tp <= 3; tp++) {
        int64_t n, m, ours[TOKENS], theirs[TOKENS];
        float *a = logits_of(golden_path("llama"), tp, &n), *b = logits_of(in_folder("twin"), tp, &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
        free(a);
        free(b);
        write_tokens(golden_path("llama"), tp, theirs);
        write_tokens(in_folder("twin"), tp, ours);
        assert_memory_equal(ours, theirs, sizeof ours);
    }
}

static void test_describes_itself(void **state)
{
    clv_model *model = open_on(in_folder("bag"), 1, 1);
    clv_model_info info = {.size = sizeof info};
    must(clv_model_get_info(model, &info, &err), &err);
    assert_string_equal(info.family, "bag");
    assert_true(info.hidden == 8 && info.layers == 2 && info.ffn == 32 && info.heads == 1 && info.vocab == 20);
    assert_true(info.max_positions == 2048 && info.tied_embeddings && !info.rotary && !info.headless);
    assert_int_equal(info.parameters, 20 * 8 + 2 * 8 * 32 + 8);
    clv_model_close(model);
}

/* Trained, saved and opened again; the loss is the same on every mesh. */
/* Its layers are its own business. */
static void test_dropout_refused(void **state)
{
    const clv_lr_schedule schedule = {.peak = 0.01, .steps = 2};
    clv_trainer_options options = {.size = sizeof options, .batch = 2, .seq = 4, .schedule = &schedule, .dropout = 0.1};
    clv_model *model = open_on(in_folder("twin"), 1, 0);
    clv_trainer *trainer;
    for (int i = 0; i < 2; i++) {
        clv_error why = {0};
        assert_int_equal(clv_trainer_new(&trainer, model, &options, &why), CLV_EUNSUPPORTED);
        assert_non_null(strstr(why.message, "dropout for the registered family twin"));
        options.dropout = 0;
        options.attention_dropout = 0.1;
    }
    clv_model_close(model);
}

static void test_trains_and_saves(void **state)
{
    const clv_lr_schedule schedule = {.peak = 0.01, .steps = 4};
    const clv_trainer_options options = {.batch = B, .seq = S, .schedule = &schedule, .seed = 5};
    double first = 0;
    for (int tp = 1; tp <= 3; tp++) {
        clv_model *model = open_on(in_folder("bag"), tp, 1), *saved;
        clv_trainer *t;
        clv_train_step step = {.size = sizeof step};
        must(clv_trainer_new(&t, model, &options, &err), &err);
        for (int i = 0; i < 4; i++)
            must(clv_trainer_step(t, ids, ids, NULL, &step, &err), &err);
        first = tp == 1 ? step.loss : first;
        assert_true(step.loss > 0 && step.loss < 3.5 && !(step.loss - first > 1e-4) && !(first - step.loss > 1e-4));
        clv_memory memory = {.size = sizeof memory};
        must(clv_program_memory(clv_trainer_program(t), &memory, &err), &err);
        assert_true(memory.parameters > 0 && memory.optimizer >= 2 * memory.parameters);
        must(clv_trainer_save(t, in_folder("saved"), &err), &err);
        clv_trainer_free(t);
        clv_model_close(model);
        saved = open_on(in_folder("saved"), tp, 0);
        clv_model_info info = {.size = sizeof info};
        must(clv_model_get_info(saved, &info, &err), &err);
        assert_true(info.tied_embeddings && strcmp(info.family, "bag") == 0);
        clv_model_close(saved);
        int64_t n, m;
        float *one = logits_of(in_folder("saved"), 1, &n), *many = logits_of(in_folder("saved"), tp, &m);
        for (int64_t i = 0; i < n; i++)
            assert_true(one[i] - many[i] <= 1e-4f && many[i] - one[i] <= 1e-4f);
        free(one);
        free(many);
    }
    char command[160];
    snprintf(command, sizeof command,
             "cd %s && grep -q '\"repeats\": 2' config.json && grep -q '\"act\": \"relu\"' config.json",
             in_folder("saved"));
    assert_int_equal(system(command), 0);
}

static void refuse_config(const char *text, clv_status code, const char *message)
{
    clv_model *model;
    clv_error why = {0};
    write_config("bad", text);
    assert_int_equal(clv_model_open(&model, in_folder("bad"), &(clv_model_options){.config_only = 1}, &why), code);
    if (!strstr(why.message, message))
        fail_msg("'%s' has no '%s'", why.message, message);
}

static void test_configs_refused(void **state)
{
    refuse_config("{\"model_type\": \"bag\", \"depth\": 2, \"vocab_size\": 20}", CLV_EFORMAT, "width");
    refuse_config("{\"model_type\": \"bag\", \"width\": 8, \"depth\": 2, \"vocab_size\": 20, \"repeats\": 4}",
                  CLV_EFORMAT, "valid: 1 to 3");
    static const struct {
        const char *repeats;
        clv_status code;
        const char *message;
    } completed[] = {{"97", CLV_EINVAL, "family bag: its complete() returned 99, which is no status"},
                     {"98", CLV_ELIMIT, "family bag: a documented limit"},
                     {"99", CLV_EFORMAT, "family bag: norm_eps is nan, rope_theta 0; valid: finite"},
                     {"100", CLV_EFORMAT, "family bag: \"act\" has no name for the activation 9999"}};
    for (size_t i = 0; i < sizeof completed / sizeof *completed; i++) {
        char text[128];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"bag\", \"width\": 8, \"depth\": 2, \"vocab_size\": 20, \"repeats\": %s}",
                 completed[i].repeats);
        refuse_config(text, completed[i].code, completed[i].message);
    }
    refuse_config("{\"model_type\": \"bag\", \"width\": 67108865, \"depth\": 2, \"vocab_size\": 20}", CLV_EFORMAT,
                  "67108864");
    refuse_config(
        "{\"model_type\": \"bag\", \"width\": 8, \"depth\": 2, \"vocab_size\": 20, \"repeats\": 9007199254740993}",
        CLV_EFORMAT, "9007199254740992");
    refuse_config("{\"model_type\": \"bag\", \"width\": -8, \"depth\": 2, \"vocab_size\": 20}", CLV_EFORMAT, "width");
    refuse_config("{\"model_type\": \"bag\", \"width\": 8, \"depth\": 2, \"vocab_size\": 20, \"strength\": true}",
                  CLV_EFORMAT, "strength");
    refuse_config("{\"model_type\": \"bags\", \"width\": 8}", CLV_EUNSUPPORTED, "supported: llama, ");
    refuse_config("{\"model_type\": \"bags\", \"width\": 8}", CLV_EUNSUPPORTED, ", bag, twin)");
    refuse_config("{\"model_type\": \"bag\", \"architectures\": [\"Other\"], \"width\": 8}", CLV_EUNSUPPORTED,
                  "BagForCausalLM, BagModel");
}

/* Fields that no key sets have the defaults of family.h. */
static void test_defaults(void **state)
{
    clv_error why = {0};
    clv_model *model;
    clv_generator *generator;
    clv_graph *graph;
    (void)state;
    write_config("encoder",
                 "{\"model_type\": \"bag\", \"width\": 8, \"depth\": 2, \"vocab_size\": 20, \"repeats\": 96}");
    must(clv_model_open(&model, in_folder("encoder"), &(clv_model_options){.config_only = 1}, &why), &why);
    must(clv_graph_new(&graph, clv_model_mesh(model), &why), &why);
    clv_model_inference(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 4});
    must(clv_graph_status(graph, &why), &why);
    const clv_family_model *m = &last_built;
    assert_true(m->heads == 1 && m->kv_heads == 1 && m->head_dim == 8 && m->ffn == 32 && m->max_positions == 2048);
    assert_true(m->activation == CLV_SILU && m->bidirectional && m->tied_embeddings && m->rope_theta == 0);
    assert_int_equal(clv_generator_new(&generator, model, NULL, &why), CLV_EUNSUPPORTED);
    clv_graph_free(graph);
    clv_model_close(model);
}

static void refuse(const clv_family *family, clv_status code, const char *message)
{
    clv_error why = {0};
    assert_int_equal(clv_model_register_family(family, &why), code);
    if (!strstr(why.message, message))
        fail_msg("'%s' has no '%s'", why.message, message);
}

static void refuse_parameter(clv_family_parameter second, const char *message)
{
    clv_family_parameter rows[] = {bag_parameters[0], second, bag_parameters[1]};
    clv_family f = bag;
    f.model_type = "other";
    f.parameters = rows;
    f.n_parameters = 3;
    refuse(&f, CLV_EINVAL, message);
}

static void test_families_refused(void **state)
{
    clv_family f = bag;
    refuse(NULL, CLV_EINVAL, "a family must not be NULL");
    refuse(&bag, CLV_EEXIST, "\"bag\" is known already");
    f.model_type = "llama";
    refuse(&f, CLV_EEXIST, "\"llama\" is known already");
    f.model_type = "";
    refuse(&f, CLV_EINVAL, "are needed");
    f.model_type = "other";
    f.size = 3;
    refuse(&f, CLV_EINVAL, "a struct whose size is 3");
    f.size = 0;
    f.hidden = NULL;
    refuse(&f, CLV_EINVAL, "hidden are needed");
    f.hidden = bag_hidden;
    f.n_keys = 0;
    refuse(&f, CLV_EINVAL, "no keys");
    f.n_keys = 1;
    f.keys = &(clv_family_key){"width", CLV_KEY_INT, AT(reserved), 1, 0};
    refuse(&f, CLV_EINVAL, "key 0 is no field");
    f.keys = &(clv_family_key){"width", (clv_family_key_type)9, AT(hidden), 1, 0};
    refuse(&f, CLV_EINVAL, "key 0 is of an unknown type");
    refuse_parameter((clv_family_parameter){"x", "y", CLV_PARAMETER_AS_IS, "", .out = "Q"}, "dimensions");
    refuse_parameter((clv_family_parameter){"x", "y", CLV_PARAMETER_AS_IS, "", .out = "VVVVVVVV"}, "dimensions");
    refuse_parameter((clv_family_parameter){"x", NULL, CLV_PARAMETER_AS_IS, "", .out = "V"}, "a name that is missing");
    refuse_parameter((clv_family_parameter){"x", "y.%", CLV_PARAMETER_AS_IS, "", .out = "V"}, "the layer's mark");
    refuse_parameter((clv_family_parameter){"x", "y", CLV_PARAMETER_AS_IS, "", .out = "V", .second_tensor = "z"},
                     "a second tensor");
    refuse_parameter(
        (clv_family_parameter){"x", "y", CLV_PARAMETER_CONV1D, "M", .out = "V", .of = 2, .first = 1, .take = 2},
        "parts that");
    refuse_parameter(
        (clv_family_parameter){"x", "y", CLV_PARAMETER_CONV1D, "M", .out = "V", .of = 2, .first = 1, .take = 1},
        "whose first part");
    refuse_parameter((clv_family_parameter){"x", "y", CLV_PARAMETER_AS_IS, "M", .out = "V", .take = 1}, "not fused");
    clv_family_parameter apart[] = {bag_parameters[1], bag_parameters[0], bag_parameters[1]};
    f = bag;
    f.model_type = "other";
    f.parameters = apart;
    refuse(&f, CLV_EINVAL, "apart from the others");
}

/* ---- graphs that are not what the family says ---- */

typedef enum wrong {
    LONGER,
    SHORTER,
    OTHER_DTYPE,
    NO_HIDDEN,
    NO_STATE,
    OTHER_STATE,
    WIDER,
    NO_LOGITS,
    MORE,
    RIGHT
} wrong;
static wrong wrongs; /* what the family "wrong" does */

static clv_value wrong_hidden(clv_graph *graph, const clv_family_model *m, const clv_family_graph_options *b)
{
    const clv_init normal = {CLV_INIT_NORMAL, 0.2};
    clv_value x = clv_vocab_parallel_embedding(graph, b->ids, m->vocab, m->hidden, b->dtype, b->rules, "embed", normal);
    if (wrongs != NO_STATE)
        clv_state(graph, "gain", b->dtype, 1, (int64_t[]){wrongs == OTHER_STATE ? 7 : m->hidden}, NULL, normal);
    if (wrongs == MORE)
        clv_state(graph, "more", b->dtype, 1, (int64_t[]){3}, NULL, normal);
    if (wrongs == LONGER || wrongs == SHORTER)
        return clv_fill(graph, b->dtype, 3, (int64_t[]){b->batch, wrongs == LONGER ? 1000 * b->seq : 1, m->hidden}, 1);
    return wrongs == NO_HIDDEN ? CLV_NONE : wrongs == OTHER_DTYPE ? clv_cast(graph, x, CLV_F64) : x;
}

static clv_value wrong_head(clv_graph *graph, const clv_family_model *m, const clv_family_graph_options *b,
                            clv_value hidden, clv_value table)
{
    clv_type type = clv_graph_type(graph, table);
    assert_true(type.rank == 2 && type.shape[0] == m->vocab && type.shape[1] == m->hidden);
    if (wrongs == NO_LOGITS)
        return CLV_NONE;
    clv_value logits = clv_einsum(graph, "bsm,vm->bsv", hidden, table);
    return wrongs == WIDER ? clv_concat(graph, (clv_value[]){logits, logits}, 2, 2) : clv_cast(graph, logits, b->dtype);
}

static clv_status forward_wrong(wrong how, clv_forward_result result, float *out, clv_error *why)
{
    static const uint8_t mask[4] = {1, 1, 1, 1};
    const clv_forwarder_options options = {.result = result};
    clv_model *model = open_on(in_folder("wrong"), 2, 1);
    clv_forwarder *f;
    wrongs = how;
    *why = (clv_error){0};
    must(clv_forwarder_new(&f, model, &options, &err), &err);
    clv_status status =
        clv_forwarder_run(f, &(clv_forward_batch){.batch = 2, .seq = 2, .ids = ids, .mask = mask}, out, why);
    clv_forwarder_free(f);
    clv_model_close(model);
    return status;
}

static void test_graphs_refused(void **state)
{
    static const clv_family_parameter rows[] = {{"embed.weight", "table", CLV_PARAMETER_AS_IS, "", .out = "VM"},
                                                {"gain", "gain", CLV_PARAMETER_AS_IS, "", .out = "M"}};
    clv_family f = bag;
    static const struct {
        wrong how;
        clv_forward_result result;
        clv_status code;
        const char *text;
    } cases[] = {
        {LONGER, CLV_FORWARD_HIDDEN, CLV_ESHAPE,
         "family wrong: its graph makes hidden states of f32[2,2000,8]; f32[2,2,8] is needed"},
        {SHORTER, CLV_FORWARD_LOGITS, CLV_ESHAPE, "its graph makes hidden states of f32[2,1,8]; f32[2,2,8] is needed"},
        {OTHER_DTYPE, CLV_FORWARD_HIDDEN, CLV_EDTYPE,
         "its graph makes hidden states of f64[2,2,8]; f32[2,2,8] is needed"},
        {NO_HIDDEN, CLV_FORWARD_HIDDEN, CLV_ESHAPE, "hidden states of nothing; f32[2,2,8] is needed"},
        {NO_STATE, CLV_FORWARD_HIDDEN, CLV_ENOTFOUND, "the parameter 'gain', and its graph makes no state"},
        {OTHER_STATE, CLV_FORWARD_HIDDEN, CLV_ESHAPE, "the state 'gain' is f32[7]; its table says f32[8]"},
        {WIDER, CLV_FORWARD_LOGITS, CLV_ESHAPE, "logits of f32[2,2,12]; f32[2,2,6] is needed"},
        {NO_LOGITS, CLV_FORWARD_LOGITS, CLV_ESHAPE, "logits of nothing; f32[2,2,6] is needed"},
        {MORE, CLV_FORWARD_HIDDEN, CLV_ENOTFOUND, "the parameter 'more', and its table has none of that name"},
        {RIGHT, CLV_FORWARD_HIDDEN, CLV_OK, ""},
        {RIGHT, CLV_FORWARD_LOGITS, CLV_OK, ""},
    };
    clv_error why;
    f.model_type = "wrong";
    f.hidden = wrong_hidden;
    f.head = wrong_head;
    f.parameters = rows;
    f.n_parameters = 2;
    must(clv_model_register_family(&f, &err), &err);
    write_config("wrong", "{\"model_type\": \"wrong\", \"width\": 8, \"depth\": 1, \"vocab_size\": 6}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float out[2 * 2 * 8]; /* what forward.h asks for */
        assert_int_equal(forward_wrong(cases[i].how, cases[i].result, out, &why), cases[i].code);
        if (!strstr(why.message, cases[i].text))
            fail_msg("'%s' has no '%s'", why.message, cases[i].text);
    }
}

/* A graph that has parameters of its own before the model's, under a scope. */
static void test_among_others(void **state)
{
    clv_model *model = open_on(in_folder("wrong"), 2, 1);
    clv_graph *graph = must_graph("model=2");
    clv_value hidden;
    wrongs = RIGHT;
    clv_state(graph, "mine", CLV_F32, 1, (int64_t[]){3}, NULL, (clv_init){0});
    clv_graph_push_scope(graph, "tower");
    clv_value logits = clv_model_forward(graph, model, &(clv_model_graph_options){.batch = 2, .seq = 2}, &hidden);
    clv_graph_pop_scope(graph);
    must(clv_graph_status(graph, &err), &err);
    assert_true(clv_graph_type(graph, logits).shape[2] == 6 && clv_graph_type(graph, hidden).shape[2] == 8);
    clv_graph_free(graph);
    clv_model_close(model);
}

/* What is saved passes through memory of the widest dtype. */
static void test_saves_f64(void **state)
{
    const clv_lr_schedule schedule = {.peak = 0.01, .steps = 1};
    const clv_trainer_options options = {.batch = B, .seq = S, .schedule = &schedule, .seed = 5};
    clv_model *model, *saved;
    clv_trainer *t;
    clv_train_step step = {.size = sizeof step};
    must(clv_model_open(&model, in_folder("bag"), &(clv_model_options){.dtype = CLV_F64, .config_only = 1}, &err),
         &err);
    must(clv_trainer_new(&t, model, &options, &err), &err);
    must(clv_trainer_step(t, ids, ids, NULL, &step, &err), &err);
    double loss = step.loss;
    must(clv_trainer_save(t, in_folder("wide"), &err), &err);
    clv_trainer_free(t);
    clv_model_close(model);
    must(clv_model_open(&model, in_folder("bag"), &(clv_model_options){.config_only = 1}, &err), &err);
    must(clv_trainer_new(&t, model, &options, &err), &err);
    must(clv_trainer_step(t, ids, ids, NULL, &step, &err), &err);
    assert_true(fabs(step.loss - loss) < 1e-4);
    clv_trainer_free(t);
    clv_model_close(model);
    saved = open_on(in_folder("wide"), 1, 0);
    clv_model_close(saved);
}

/* Of threads that state one family at once, one succeeds; others state theirs meanwhile. */
static void *state_families(void *arg)
{
    static char names[8][16];
    int i = (int)(intptr_t)arg, made = 0;
    clv_family f = bag;
    snprintf(names[i], sizeof names[i], "bag%d", i);
    f.model_type = names[i];
    assert_int_equal(clv_model_register_family(&f, NULL), CLV_OK);
    f.model_type = "shared";
    made = clv_model_register_family(&f, NULL) == CLV_OK;
    return (void *)(intptr_t)made;
}

static void test_threads(void **state)
{
    pthread_t threads[8];
    int made = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, state_families, (void *)(intptr_t)i), 0);
    for (int i = 0; i < 8; i++) {
        void *one;
        assert_int_equal(pthread_join(threads[i], &one), 0);
        made += (int)(intptr_t)one;
    }
    assert_int_equal(made, 1);
    for (int i = 0; i < 8; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"model_type\": \"bag%d\", \"width\": 8, \"depth\": 1, \"vocab_size\": 9}", i);
        write_config("many", text);
        clv_model_close(open_on(in_folder("many"), 1, 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_llama),     cmocka_unit_test(test_describes_itself),
        cmocka_unit_test(test_dropout_refused),  cmocka_unit_test(test_trains_and_saves),
        cmocka_unit_test(test_configs_refused),  cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_families_refused), cmocka_unit_test(test_graphs_refused),
        cmocka_unit_test(test_among_others),     cmocka_unit_test(test_saves_f64),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, set_up, remove_folder);
}
