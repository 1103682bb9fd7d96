#include "nn_layer_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/session.h"
#include "graph_interpreter.h"
#include "models/config/model_config.h"
#include "program/program.h"
#include "unit_test.h"

enum { B = NN_BATCH, S = NN_SEQ, MAX_TENSORS = 48, MAX_INPUTS = 3, IGNORED = -100, MASK_TOKEN = 74 };

/* ---- the layers ---- */

static const clv_init init = {CLV_INIT_NORMAL, 0.3};

static clv_value linears(clv_graph *graph, clv_value x, const clv_axis_rules *rules, bool gather)
{
    clv_linear_options up = {.name = "up", .bias = true, .gather_output = gather, .init = init};
    clv_linear_options down = {.name = "down", .bias = true, .input_is_parallel = !gather, .init = init};
    return clv_row_parallel_linear(graph, clv_column_parallel_linear(graph, x, 35, rules, &up), 13, rules, &down);
}

static clv_value linear(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return linears(graph, x, rules, false);
}

static clv_value linear_gathered(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return linears(graph, x, rules, true);
}

static clv_value mlp(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_unary_kind activation, bool gated)
{
    clv_mlp_options o = {
        .ffn = 50, .activation = activation, .gated = gated, .bias = !gated, .init = init, .output_init = init};
    return clv_parallel_mlp(graph, x, rules, &o);
}

static clv_value mlp_gelu(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return mlp(graph, x, rules, CLV_GELU, false);
}

static clv_value mlp_tanh(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return mlp(graph, x, rules, CLV_TANH, false);
}

static clv_value mlp_silu(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return mlp(graph, x, rules, CLV_SILU, true);
}

static clv_value norms(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    clv_layout layout = clv_residual_layout(graph, rules, 3);
    x = clv_constrain(graph, x, &layout);
    return clv_parallel_rms_norm(graph, clv_parallel_layer_norm(graph, x, rules, "layer", 1e-5, true), rules, "rms",
                                 1e-6);
}

static clv_value attention(clv_graph *graph, clv_value x, const clv_axis_rules *rules, int64_t heads, int64_t kv_heads,
                           bool bidirectional)
{
    clv_self_attention_options o = {.heads = heads,
                                    .kv_heads = kv_heads,
                                    .bidirectional = bidirectional,
                                    .rope.theta = 1e4,
                                    .bias = true,
                                    .output_bias = true,
                                    .init = init,
                                    .output_init = init};
    return clv_parallel_attention(graph, x, rules, &o);
}

static clv_value attention_5(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return attention(graph, x, rules, 5, 5, true);
}

static clv_value attention_6_2(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return attention(graph, x, rules, 6, 2, false);
}

static clv_value attention_6_1(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return attention(graph, x, rules, 6, 1, false);
}

static clv_value block(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_block_form form)
{
    clv_block_options o = clv_block_defaults(form, 6, 2, 50);
    o.attention.init = o.attention.output_init = o.mlp.init = o.mlp.output_init = init;
    o.dropout = 0.25;
    o.dropout_key = clv_key_seed(7);
    return clv_transformer_block(graph, x, rules, &o);
}

static clv_value block_llama(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return block(graph, x, rules, CLV_BLOCK_LLAMA);
}

static clv_value block_gpt(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return block(graph, x, rules, CLV_BLOCK_GPT);
}

/* A whole model with its loss; the vocabulary is split. */
static clv_value loss_of(clv_graph *graph, const clv_model_config *model, const clv_axis_rules *rules, clv_dtype dtype,
                         bool padded)
{
    clv_model_build_options build = {.batch = B, .seq = S, .rules = *rules, .dtype = dtype, .padding_mask = padded};
    clv_value logits = clv_build_forward(graph, model, &build, NULL);
    clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){B, S}, NULL);
    return clv_vocab_parallel_cross_entropy(graph, logits, labels, IGNORED);
}

static clv_value llama(clv_graph *graph, const clv_axis_rules *rules, clv_dtype dtype, bool tied)
{
    clv_model_config model = {.family = &clv_family_llama,
                              .hidden = 24,
                              .layers = 1,
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = 4,
                              .ffn = 50,
                              .vocab = 257,
                              .max_positions = 64,
                              .norm_eps = 1e-5,
                              .activation = CLV_SILU,
                              .qkv_bias = tied,
                              .output_bias = tied,
                              .mlp_bias = tied,
                              .rope.theta = 1e4,
                              .tie_word_embeddings = tied};
    return loss_of(graph, &model, rules, dtype, false);
}

static clv_value model_gpt2(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    clv_model_config model = {.family = &clv_family_gpt2,
                              .hidden = 15,
                              .layers = 1,
                              .heads = 5,
                              .kv_heads = 5,
                              .head_dim = 3,
                              .ffn = 33,
                              .vocab = 257,
                              .max_positions = 10,
                              .norm_eps = 1e-5,
                              .activation = CLV_GELU_TANH,
                              .qkv_bias = true,
                              .output_bias = true,
                              .mlp_bias = true,
                              .tie_word_embeddings = true};
    return loss_of(graph, &model, rules, dtype, false);
}

static clv_value model_esm(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    clv_model_config model = {.family = &clv_family_esm,
                              .hidden = 20,
                              .layers = 1,
                              .heads = 5,
                              .kv_heads = 5,
                              .head_dim = 4,
                              .ffn = 33,
                              .vocab = 257,
                              .max_positions = 64,
                              .norm_eps = 1e-5,
                              .activation = CLV_GELU,
                              .qkv_bias = true,
                              .output_bias = true,
                              .mlp_bias = true,
                              .rope.theta = 1e4,
                              .bidirectional = true,
                              .tie_word_embeddings = true,
                              .embedding_norm = true,
                              .token_dropout = true,
                              .mask = MASK_TOKEN};
    return loss_of(graph, &model, rules, dtype, true);
}

static clv_value model_untied(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return llama(graph, rules, dtype, false);
}

static clv_value model_tied(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_dtype dtype)
{
    return llama(graph, rules, dtype, true);
}

const nn_layer nn_layers[] = {
    {"linear", linear, 11, 0},
    {"linear_gathered", linear_gathered, 11, 0},
    {"mlp_gelu", mlp_gelu, 12, 0},
    {"mlp_tanh", mlp_tanh, 12, 0},
    {"mlp_wide", mlp_gelu, 512, 0}, /* past the size up to which every rank reduces the whole itself */
    {"mlp_silu", mlp_silu, 12, 0},
    {"norms", norms, 13, 0},
    {"attention_5", attention_5, 40, 0},
    {"attention_6_2", attention_6_2, 96, 0},
    {"attention_6_1", attention_6_1, 24, 0},
    {"block_llama", block_llama, 24, 0},
    {"block_gpt", block_gpt, 96, 0},
    {"model", model_untied, 0, 257},
    {"model_tied", model_tied, 0, 257},
    {"model_gpt2", model_gpt2, 0, 257},
    {"model_esm", model_esm, 0, 257},
};
const int n_nn_layers = sizeof nn_layers / sizeof nn_layers[0];

/* ---- a graph with everything that is compared as an output ---- */

typedef struct built {
    clv_graph *graph;
    clv_value x;
    int n; /* tensors compared: the result, the gradient of x, those of the parameters */
    clv_value tensor[MAX_TENSORS];
    int n_parameters;
    clv_value parameter[MAX_TENSORS];
} built;

/* On an axis pipe a layer is on stage 1, and what it takes and makes on stage 0, so that it goes there and back, and
 * gradients do: no layer here has several to go over stages. Those of whole models are in test_pipeline.c. */
static clv_value build_on_stage(clv_graph *graph, const nn_layer *l, clv_value x, const clv_axis_rules *given,
                                clv_dtype dtype)
{
    const clv_axis_rules rules = clv_axis_rules_without(given, CLV_LAYERS);
    clv_graph_set_stage(graph, "pipe", 0);
    x = clv_valid(x) ? clv_scale(graph, x, 1) : x;
    clv_graph_set_stage(graph, "pipe", 1);
    clv_value y = l->build(graph, x, &rules, dtype);
    clv_graph_set_stage(graph, "pipe", 0);
    y = clv_scale(graph, y, 1);
    clv_graph_set_stage(graph, "pipe", -1);
    return y;
}

static built build(const nn_layer *l, const char *mesh_text, const char *rules_text, clv_dtype dtype)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules = {0};
    built b = {.x = CLV_NONE};
    assert_int_equal(clv_mesh_parse(&mesh, mesh_text, &err), CLV_OK);
    assert_int_equal(clv_graph_new(&b.graph, &mesh, &err), CLV_OK);
    clv_status status = CLV_OK;
    if (rules_text)
        status = rules_text[0] == '{'
                     ? clv_axis_rules_parse(&rules, rules_text, strlen(rules_text), &mesh, "rules", &err)
                     : clv_axis_rules_preset(&rules, rules_text, &mesh, &err);
    if (status != CLV_OK)
        fail_msg("%s", err.message);
    if (l->width)
        b.x = clv_input(b.graph, "x", dtype, 3, (int64_t[]){B, S, l->width}, NULL);
    clv_value wrt[MAX_TENSORS], d[MAX_TENSORS];
    clv_value y = strstr(mesh_text, "pipe") ? build_on_stage(b.graph, l, b.x, &rules, dtype)
                                            : l->build(b.graph, b.x, &rules, dtype);
    b.n_parameters = clv_graph_parameters(b.graph, b.parameter, MAX_TENSORS - 2);
    memcpy(wrt, b.parameter, sizeof wrt);
    int n = b.n_parameters;
    if (l->width)
        wrt[n++] = b.x;
    /* Of sum(y^3)/3: a seed that varies, so that a gradient summed or scattered wrongly shows. */
    clv_value seed = l->width ? clv_mul(b.graph, y, y) : CLV_NONE;
    clv_gradients(b.graph, y, seed, wrt, n, d);
    b.tensor[b.n++] = y;
    for (int i = 0; i < n; i++)
        b.tensor[b.n++] = d[i];
    for (int i = 0; i < b.n; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        clv_output(b.graph, name, b.tensor[i], NULL);
    }
    if (clv_graph_status(b.graph, &err) != CLV_OK)
        fail_msg("%s on %s: %s", l->name, mesh_text, err.message);
    return b;
}

/* ---- values that do not depend on the mesh ---- */

static int64_t elems_of(const clv_graph *graph, clv_value value)
{
    clv_type type = clv_graph_type(graph, value);
    return clv_type_elems(&type);
}

static float *values_of(const clv_graph *graph, clv_value value, uint32_t salt)
{
    int64_t n = elems_of(graph, value);
    float *values = malloc((size_t)n * sizeof *values + 1);
    const char *name = clv_value_name(graph, value);
    for (const char *p = name; *p; p++)
        salt = salt * 31 + (uint32_t)*p;
    clv_random_normal(values, clv_key_seed(salt), 0, n);
    bool gain = strstr(name, "norm.weight") || strstr(name, "layer.weight") || strstr(name, "rms.weight");
    for (int64_t i = 0; i < n; i++)
        values[i] = gain ? 1 + 0.1f * values[i] : strcmp(name, "x") == 0 ? values[i] : 0.25f * values[i];
    return values;
}

/* What models take, at [b,s] = i; the padding mask ends each sequence at another place. */
static int32_t token_value(const char *input, int i)
{
    bool is_padding = i % S >= S - i / S;
    if (strcmp(input, "mask") == 0)
        return !is_padding;
    if (strcmp(input, "ids") == 0)
        return i * 37 % 257;
    return i % 5 == 0 || is_padding ? IGNORED : i * 91 % 257;
}

static bool is_input(const clv_graph *graph, int value)
{
    return graph->values[value].source == CLV_FROM_INPUT;
}

/* ---- the reference ---- */

static nn_tensor given[MAX_TENSORS], made[MAX_TENSORS];
static int n_given, n_made;

static nn_tensor *add(nn_tensor *list, int *count, const char *name, int64_t n)
{
    nn_tensor *t = &list[(*count)++];
    t->n = n;
    t->values = malloc((size_t)n * sizeof(double) + 1);
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

const nn_tensor *nn_reference_given(int *n)
{
    *n = n_given;
    return given;
}

const nn_tensor *nn_reference_made(int *n)
{
    *n = n_made;
    return made;
}

/* Of what tensor i of those compared is the gradient; "": the result. */
static const char *compared_name(const built *b, int i)
{
    return i == 0 ? "" : i <= b->n_parameters ? clv_value_name(b->graph, b->parameter[i - 1]) : "x";
}

void nn_make_reference(const nn_layer *l)
{
    built b = build(l, "model=1", NULL, CLV_F64);
    graph_eval *eval = graph_eval_new(b.graph, 1);
    for (int i = 0; i <= b.n_parameters; i++) {
        clv_value value = i < b.n_parameters ? b.parameter[i] : b.x;
        if (value.id == 0)
            continue;
        float *values = values_of(b.graph, value, 5);
        nn_tensor *t = add(given, &n_given, clv_value_name(b.graph, value), elems_of(b.graph, value));
        for (int64_t k = 0; k < t->n; k++) {
            graph_eval_set(eval, value, k, values[k]);
            t->values[k] = values[k];
        }
        free(values);
    }
    for (int v = 1; !l->width && v < b.graph->n_values; v++)
        for (int i = 0; is_input(b.graph, v) && i < B * S; i++)
            graph_eval_set(eval, (clv_value){v}, i, token_value(b.graph->values[v].name, i));
    graph_eval_must_run(eval, -1);
    for (int i = 0; i < b.n; i++) {
        nn_tensor *t = add(made, &n_made, compared_name(&b, i), elems_of(b.graph, b.tensor[i]));
        for (int64_t k = 0; k < t->n; k++)
            t->values[k] = graph_eval_get(eval, b.tensor[i], k);
    }
    graph_eval_free(eval);
    clv_graph_free(b.graph);
}

void nn_free_reference(void)
{
    while (n_given > 0)
        free(given[--n_given].values);
    while (n_made > 0)
        free(made[--n_made].values);
}

/* ---- comparing ---- */

static double largest(const double *values, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(values[i]));
    return most;
}

static void compare(const nn_layer *l, const char *mesh, const char *rules, const built *b, float *const *got)
{
    double of_layer = 0;
    for (int i = 1; i < b->n; i++)
        of_layer = fmax(of_layer, largest(made[i].values, made[i].n));
    for (int i = 0; i < b->n; i++) {
        int64_t n = elems_of(b->graph, b->tensor[i]);
        const double *reference = made[i].values;
        double tolerance = 1e-5 * fmax(largest(reference, n), 1e-3 * of_layer);
        for (int64_t k = 0; k < n; k++)
            if (!(fabs(got[i][k] - reference[k]) <= tolerance))
                fail_msg("%s on %s by %s, %s%s, element %lld: %.9g, expected %.9g (tolerance %.2g)", l->name, mesh,
                         rules, i ? "gradient of " : "the result", compared_name(b, i), (long long)k, got[i][k],
                         reference[k], tolerance);
    }
}

typedef union tokens {
    int32_t wide[B * S];
    uint8_t narrow[B * S];
} tokens;

/* The inputs of a model; returns how many they are. */
static int bind_tokens(clv_input_binding *inputs, tokens *values, const clv_graph *graph)
{
    int n = 0;
    for (int v = 1; v < graph->n_values; v++) {
        if (!is_input(graph, v))
            continue;
        const char *name = graph->values[v].name;
        for (int i = 0; i < B * S; i++) {
            if (graph->values[v].type.dtype == CLV_U8)
                values[n].narrow[i] = (uint8_t)token_value(name, i);
            else
                values[n].wide[i] = token_value(name, i);
        }
        inputs[n] = (clv_input_binding){name, &values[n]};
        n++;
    }
    return n;
}

void nn_run_on(const nn_layer *l, const char *mesh_text, const char *rules_text)
{
    clv_error err = {0};
    clv_program *program = NULL;
    clv_session *session = NULL;
    built b = build(l, mesh_text, rules_text, CLV_F32);
    static int turn; /* both ways of placing buffers */
    clv_compile_options options = {.greedy_by_size_limit = turn % 2 ? -1 : 0,
                                   .expert_rank_capacity_factor = turn % 2 ? 0 : 1e3};
    turn++;
    if (clv_compile(&program, b.graph, &options, &err) != CLV_OK || clv_program_verify(program, &err) != CLV_OK ||
        clv_session_new(&session, clv_graph_mesh(b.graph), &(clv_session_options){.check = 1}, &err) != CLV_OK ||
        clv_session_load(session, program, &err) != CLV_OK)
        fail_msg("%s on %s: %s", l->name, mesh_text, err.message);
    for (int i = 0; i < b.n_parameters; i++) {
        float *values = values_of(b.graph, b.parameter[i], 5);
        assert_int_equal(clv_session_write(session, clv_value_name(b.graph, b.parameter[i]), NULL, values, &err),
                         CLV_OK);
        free(values);
    }
    float *x = l->width ? values_of(b.graph, b.x, 5) : NULL, *got[MAX_TENSORS];
    clv_input_binding inputs[MAX_INPUTS];
    clv_output_binding outputs[MAX_TENSORS];
    tokens values[MAX_INPUTS];
    int n_inputs = l->width ? 1 : bind_tokens(inputs, values, b.graph);
    if (l->width)
        inputs[0] = (clv_input_binding){"x", x};
    static char names[MAX_TENSORS][16];
    for (int i = 0; i < b.n; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        got[i] = malloc((size_t)elems_of(b.graph, b.tensor[i]) * sizeof(float) + 1);
        outputs[i] = (clv_output_binding){names[i], got[i]};
    }
    if (clv_session_run(session, program, inputs, n_inputs, outputs, b.n, &err) != CLV_OK)
        fail_msg("%s on %s: %s", l->name, mesh_text, err.message);
    compare(l, mesh_text, rules_text, &b, got);
    for (int i = 0; i < b.n; i++)
        free(got[i]);
    free(x);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(b.graph);
}
