#include "model_golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "cleave/generate.h"
#include "models/weights/model_weights.h"
#include "models/weights/parameter_map.h"
#include "golden_path.h"
#include "must.h"
#include "sweep.h"
#include "unit_test.h"

enum { MAX_PARAMETERS = 64, MAX_INPUTS = 4, IGNORED = -100, GREEDY = 40 };

struct golden {
    char name[64];
    clv_model_config model;
    int64_t batch, seq;
    int32_t *ids, *labels;
    int32_t *token_types; /* NULL: all are 0 */
    uint8_t *mask;        /* NULL: nothing is padding */
    float *logits; /* NULL: the model has no head, and its loss is the mean of the squares of its hidden states */
    float *hidden, loss;
    float bf16_rms; /* distance of the reference's bf16 logits from its f32 */
    int64_t n_prompt;
    int32_t *prompt, *greedy; /* [n_prompt], [GREEDY] tokens after it; NULL for encoders */
    clv_model_weights *weights;
    clv_weights *gradients; /* named as the weights they belong to */
};

/* ---- the reference ---- */

/* All of a tensor, in a buffer of its own; NULL when the file has none. */
static void *values_of(const clv_safetensors *file, const char *name, clv_dtype dtype, clv_safetensor *info)
{
    clv_error err = {0};
    const clv_safetensor *tensor;
    if (clv_safetensors_find(&tensor, file, name, NULL) != CLV_OK)
        return NULL;
    clv_type type = {.rank = tensor->rank};
    memcpy(type.shape, tensor->shape, sizeof type.shape);
    void *values = malloc((size_t)clv_type_elems(&type) * clv_dtype_size(dtype));
    must(clv_safetensors_read(tensor, NULL, dtype, values, &err), &err);
    if (info)
        *info = *tensor;
    return values;
}

/* A decoder's labels are its ids shifted by one; the last of a row has none. */
static void shift_labels(golden *g)
{
    int64_t n = g->batch * g->seq;
    g->labels = malloc((size_t)n * sizeof *g->labels);
    for (int64_t i = 0; i < n; i++)
        g->labels[i] = i % g->seq == g->seq - 1 ? IGNORED : g->ids[i + 1];
}

static void read_values(golden *g, const char *path)
{
    clv_error err = {0};
    clv_safetensors *file;
    clv_safetensor ids;
    must(clv_safetensors_open(&file, path, &err), &err);
    g->ids = values_of(file, "ids", CLV_I32, &ids);
    g->batch = ids.shape[0];
    g->seq = ids.shape[1];
    g->mask = values_of(file, "mask", CLV_U8, NULL);
    g->labels = values_of(file, "labels", CLV_I32, NULL);
    g->logits = values_of(file, "logits", CLV_F32, NULL);
    g->hidden = values_of(file, "hidden", CLV_F32, NULL);
    g->token_types = values_of(file, "token_types", CLV_I32, NULL);
    g->prompt = values_of(file, "greedy.prompt", CLV_I32, &ids);
    g->n_prompt = g->prompt ? ids.shape[1] : 0;
    g->greedy = values_of(file, "greedy.tokens", CLV_I32, NULL);
    float *loss = values_of(file, "loss", CLV_F32, NULL), *rms = values_of(file, "bf16.rms", CLV_F32, NULL);
    assert_true(g->ids && g->hidden && loss && (g->logits != NULL) == !g->model.headless && (rms || !g->logits));
    g->loss = *loss;
    g->bf16_rms = rms ? *rms : 0;
    free(loss);
    free(rms);
    if (!g->labels)
        shift_labels(g);
    clv_safetensors_close(file);
}

golden *golden_open(const char *name)
{
    clv_error err = {0};
    golden *g = calloc(1, sizeof *g);
    snprintf(g->name, sizeof g->name, "%s", name);
    must(clv_model_config_read(&g->model, golden_path("%s", name), &err), &err);
    read_values(g, golden_path("%s_golden/values.safetensors", name));
    must(clv_weights_open(&g->gradients, golden_path("%s_golden", name), &err), &err);
    must(clv_model_weights_open(&g->weights, &g->model, golden_path("%s", name), NULL, &err), &err);
    g->model = g->weights->config;
    return g;
}

void golden_close(golden *g)
{
    free(g->ids);
    free(g->labels);
    free(g->mask);
    free(g->token_types);
    free(g->logits);
    free(g->hidden);
    free(g->prompt);
    free(g->greedy);
    clv_weights_close(g->gradients);
    clv_model_weights_close(g->weights);
    free(g);
}

/* A session that starts from the golden model's weights. */
static clv_session *new_session(const golden *g, const clv_mesh *mesh)
{
    clv_error err = {0};
    clv_session *session;
    clv_session_options options = {.source = clv_model_weights_source, .source_arg = g->weights, .check = 1};
    must(clv_session_new(&session, mesh, &options, &err), &err);
    return session;
}

/* ---- comparing ---- */

static double largest(const float *values, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(values[i]));
    return most;
}

static void compare(const char *where, const char *what, const float *got, const float *want, int64_t n, double layer)
{
    double tolerance = 2e-5 * fmax(largest(want, n), 1e-3 * layer);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance))
            fail_msg("%s, %s, element %lld: %.9g, expected %.9g (tolerance %.2g)", where, what, (long long)i, got[i],
                     want[i], tolerance);
}

/* [B,S,width]. Rows of padding are not compared: a query without keys is undefined. */
static void compare_rows(const golden *g, const char *what, const char *where, const float *got, const float *want,
                         int64_t width)
{
    int64_t rows = g->batch * g->seq;
    double tolerance = 2e-5 * largest(want, rows * width);
    for (int64_t i = 0; i < rows * width; i++)
        if ((!g->mask || g->mask[i / width]) && !(fabs((double)got[i] - want[i]) <= tolerance))
            fail_msg("%s, %s, element %lld: %.9g, expected %.9g (tolerance %.2g)", where, what, (long long)i, got[i],
                     want[i], tolerance);
}

/* "layers.1" of "layers.1.mlp.down.weight": gradients are compared with the largest of their layer. */
static bool same_layer(const char *a, const char *b)
{
    size_t n = strncmp(a, "layers.", 7) == 0 ? strcspn(a + 7, ".") + 7 : 0;
    return n > 0 && strncmp(a, b, n + 1) == 0;
}

static void compare_gradients(const char *where, const golden *g, const char *const *names, float *const *got, int n)
{
    clv_error err = {0};
    float *want[MAX_PARAMETERS];
    int64_t elems[MAX_PARAMETERS];
    for (int i = 0; i < n; i++) {
        clv_parameter parameter;
        must(clv_model_parameter_find(&parameter, &g->model, names[i], &err), &err);
        elems[i] = clv_parameter_elems(&parameter);
        want[i] = malloc((size_t)elems[i] * sizeof *want[i]);
        must(clv_model_read_parameter(g->gradients, &g->model, names[i], NULL, CLV_F32, want[i], &err), &err);
    }
    for (int i = 0; i < n; i++) {
        double layer = 0;
        for (int j = 0; j < n; j++)
            if (same_layer(names[i], names[j]))
                layer = fmax(layer, largest(want[j], elems[j]));
        compare(where, names[i], got[i], want[i], elems[i], layer);
    }
    for (int i = 0; i < n; i++)
        free(want[i]);
}

/* ---- running ---- */

/* The model with everything that is compared as an output. */
typedef struct built {
    clv_graph *graph;
    int n, n_outputs; /* parameters; those, hidden, loss and logits */
    const char *names[MAX_PARAMETERS];
    char outputs_named[MAX_PARAMETERS][16];
    float *gradients[MAX_PARAMETERS], *logits, *hidden, loss;
    clv_output_binding outputs[MAX_PARAMETERS + 3];
} built;

static float *output(clv_graph *graph, const char *name, clv_value value, clv_output_binding *binding)
{
    clv_type type = clv_graph_type(graph, value);
    float *room = malloc((size_t)clv_type_elems(&type) * sizeof *room);
    clv_output(graph, name, value, NULL);
    *binding = (clv_output_binding){name, room};
    return room;
}

static clv_value loss_of(clv_graph *graph, const golden *g, clv_value logits, clv_value hidden)
{
    if (!g->logits)
        return clv_reduce(graph, CLV_MEAN, clv_mul(graph, hidden, hidden), (int[]){0, 1, 2}, 3, false);
    clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){g->batch, g->seq}, NULL);
    return clv_vocab_parallel_cross_entropy(graph, logits, labels, IGNORED);
}

/* What the graph of loss_of and the model take. */
static int bind_inputs(clv_input_binding *inputs, const golden *g)
{
    int n = 0;
    inputs[n++] = (clv_input_binding){"ids", g->ids};
    if (g->logits)
        inputs[n++] = (clv_input_binding){"labels", g->labels};
    if (g->mask)
        inputs[n++] = (clv_input_binding){"mask", g->mask};
    if (g->token_types)
        inputs[n++] = (clv_input_binding){"token_types", g->token_types};
    return n;
}

static void build(built *b, const golden *g, const clv_mesh *mesh, const char *rules)
{
    clv_error err = {0};
    clv_value hidden, parameters[MAX_PARAMETERS], gradients[MAX_PARAMETERS];
    must(clv_graph_new(&b->graph, mesh, &err), &err);
    clv_model_build_options how = {.batch = g->batch,
                                   .seq = g->seq,
                                   .rules = clv_graph_axis_rules(b->graph, rules),
                                   .padding_mask = g->mask,
                                   .token_types = g->token_types};
    clv_value logits = clv_build_forward(b->graph, &g->model, &how, &hidden);
    clv_value loss = loss_of(b->graph, g, logits, hidden);
    b->n = clv_graph_parameters(b->graph, parameters, MAX_PARAMETERS);
    clv_gradients(b->graph, loss, CLV_NONE, parameters, b->n, gradients);
    must(clv_graph_status(b->graph, &err), &err);
    for (int i = 0; i < b->n; i++) {
        b->names[i] = clv_value_name(b->graph, parameters[i]);
        snprintf(b->outputs_named[i], sizeof b->outputs_named[i], "d%d", i);
        b->gradients[i] = output(b->graph, b->outputs_named[i], gradients[i], &b->outputs[i]);
    }
    b->hidden = output(b->graph, "hidden", hidden, &b->outputs[b->n]);
    clv_output(b->graph, "loss", loss, NULL);
    b->outputs[b->n + 1] = (clv_output_binding){"loss", &b->loss};
    b->n_outputs = b->n + 2;
    if (g->logits)
        b->logits = output(b->graph, "logits", logits, &b->outputs[b->n_outputs++]);
}

static void free_built(built *b)
{
    for (int i = 0; i < b->n; i++)
        free(b->gradients[i]);
    free(b->logits);
    free(b->hidden);
    clv_graph_free(b->graph);
}

static void run(built *b, const golden *g, const clv_mesh *mesh)
{
    clv_error err = {0};
    clv_program *program;
    clv_session *session;
    static int turn; /* both ways of placing buffers */
    const clv_compile_options options = {.greedy_by_size_limit = turn % 2 ? -1 : 0,
                                         .expert_rank_capacity_factor = turn % 2 ? 0 : 1e3}; /* rows are dispatched */
    turn++;
    must(clv_compile(&program, b->graph, &options, &err), &err);
    session = new_session(g, mesh);
    clv_input_binding inputs[MAX_INPUTS];
    int n_inputs = bind_inputs(inputs, g);
    must(clv_session_run(session, program, inputs, n_inputs, b->outputs, b->n_outputs, &err), &err);
    clv_session_free(session);
    clv_program_free(program);
}

void golden_run_on(const golden *g, const char *mesh_text, const char *rules)
{
    clv_error err = {0};
    clv_mesh mesh;
    built b = {0};
    char where[128];
    snprintf(where, sizeof where, "%s on %s by %s", g->name, mesh_text, rules);
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    build(&b, g, &mesh, rules);
    assert_int_equal(b.n, clv_model_parameter_count(&g->model));
    run(&b, g, &mesh);
    if (g->logits)
        compare_rows(g, "logits", where, b.logits, g->logits, g->model.vocab);
    compare_rows(g, "hidden", where, b.hidden, g->hidden, g->model.hidden);
    compare(where, "loss", &b.loss, &g->loss, 1, 0);
    compare_gradients(where, g, b.names, b.gradients, b.n);
    free_built(&b);
}

typedef struct ruled_mesh {
    const char *mesh, *rules;
} ruled_mesh;

/* Meshes with an axis of experts. */
static const ruled_mesh expert_meshes[] = {
    {"data=1,expert=2", "dp"},        {"data=1,expert=3", "dp"},
    {"expert=4,model=1", "megatron"}, {"data=2,expert=2", "dp"},
    {"expert=2,model=2", "megatron"}, {"model=2,expert=3", "megatron-sp"},
    {"data=2,expert=2", "fsdp"},      {"data=2,expert=2,model=2", "fsdp+megatron-sp"},
    {"context=2,expert=2", "fsdp"},   {"context=3,expert=2,model=2", "megatron-sp"},
};

/* Meshes with pipeline stages; the models have 2 layers or more. */
static const ruled_mesh stage_meshes[] = {
    {"pipe=2,model=1", "megatron"},
    {"pipe=2,model=3", "megatron-sp"},
    {"data=2,pipe=2", "fsdp"},
    {"model=2,pipe=2", "megatron"},
};

/* Meshes whose ranks share sequences: heads for all of them, for some, or fewer than ranks; even parts and uneven. */
static const ruled_mesh context_meshes[] = {
    {"context=2", "dp"},    {"context=3,model=2", "megatron-sp"}, {"data=2,context=2", "fsdp"},
    {"context=8", "zero1"}, {"pipe=2,context=3", "fsdp"},
};

/* Their number for a model: 0 without experts. */
static size_t expert_mesh_count(const golden *g)
{
    return g->model.experts > 0 ? sizeof expert_meshes / sizeof *expert_meshes : 0;
}

void golden_run(const char *name)
{
    static const int degrees[] = {1, 2, 3, 4, 8};
    golden *g = golden_open(name);
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        char mesh[16];
        snprintf(mesh, sizeof mesh, "model=%d", degrees[i]);
        if (sweep_takes_thinned(3))
            golden_run_on(g, mesh, "megatron");
        if (sweep_takes_thinned(3))
            golden_run_on(g, mesh, "megatron-sp");
    }
    if (sweep_takes_thinned(3))
        golden_run_on(g, "X=2,Y=2", "gspmd-2d");
    for (size_t i = 0; i < sizeof stage_meshes / sizeof *stage_meshes; i++)
        if (g->model.layers > 1 && sweep_takes_thinned(2))
            golden_run_on(g, stage_meshes[i].mesh, stage_meshes[i].rules);
    for (size_t i = 0; i < sizeof context_meshes / sizeof *context_meshes; i++)
        if ((g->model.layers > 1 || context_meshes[i].mesh[0] != 'p') && sweep_takes_thinned(2))
            golden_run_on(g, context_meshes[i].mesh, context_meshes[i].rules);
    for (size_t i = 0; i < expert_mesh_count(g); i++)
        golden_run_on(g, expert_meshes[i].mesh, expert_meshes[i].rules);
    golden_close(g);
}

/* ---- bf16 ---- */

static clv_program *bf16_program(const golden *g, const clv_mesh *mesh)
{
    clv_error err = {0};
    clv_graph *graph;
    clv_program *program;
    must(clv_graph_new(&graph, mesh, &err), &err);
    clv_model_build_options how = {.batch = g->batch,
                                   .seq = g->seq,
                                   .rules = clv_graph_axis_rules(graph, "megatron-sp"),
                                   .dtype = CLV_BF16,
                                   .padding_mask = g->mask,
                                   .token_types = g->token_types};
    clv_value logits = clv_build_forward(graph, &g->model, &how, NULL);
    clv_output(graph, "logits", clv_cast(graph, logits, CLV_F32), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

/* The root of the mean square of the logits' errors, padding apart. */
static double distance(const golden *g, const float *logits)
{
    double sum = 0;
    int64_t vocab = g->model.vocab, n = 0;
    for (int64_t i = 0; i < g->batch * g->seq * vocab; i++) {
        if (g->mask && !g->mask[i / vocab])
            continue;
        sum += ((double)logits[i] - g->logits[i]) * ((double)logits[i] - g->logits[i]);
        n++;
    }
    return sqrt(sum / (double)n);
}

void golden_bf16(const char *name)
{
    static const char *const meshes[] = {"model=1", "model=2", "model=3"};
    golden *g = golden_open(name);
    float *logits = malloc((size_t)(g->batch * g->seq * g->model.vocab) * sizeof *logits);
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        clv_error err = {0};
        clv_mesh mesh;
        must(clv_mesh_parse(&mesh, meshes[i], &err), &err);
        clv_program *program = bf16_program(g, &mesh);
        clv_session *session = new_session(g, &mesh);
        clv_input_binding inputs[MAX_INPUTS] = {{"ids", g->ids}};
        clv_output_binding outputs[] = {{"logits", logits}};
        int n = 1;
        if (g->mask)
            inputs[n++] = (clv_input_binding){"mask", g->mask};
        if (g->token_types)
            inputs[n++] = (clv_input_binding){"token_types", g->token_types};
        must(clv_session_run(session, program, inputs, n, outputs, 1, &err), &err);
        double off = distance(g, logits);
        if (!(off > 0 && off <= 1.5 * g->bf16_rms))
            fail_msg("%s on %s: bf16 is %.3g off, the reference's %.3g", name, meshes[i], off, g->bf16_rms);
        clv_session_free(session);
        clv_program_free(program);
    }
    free(logits);
    golden_close(g);
}

/* ---- greedy ---- */

static void greedy_on(const golden *g, const char *mesh_text)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_model *model;
    clv_generator *generator;
    int64_t prompt[16], token;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_model_open(&model, golden_path("%s", g->name), &(clv_model_options){.mesh = &mesh, .check = 1}, &err),
         &err);
    clv_generator_options options = {.context = g->n_prompt + GREEDY};
    must(clv_generator_new(&generator, model, &options, &err), &err);
    for (int64_t i = 0; i < g->n_prompt; i++)
        prompt[i] = g->prompt[i];
    must(clv_generator_feed(generator, 0, prompt, g->n_prompt, &err), &err);
    for (int i = 0; i < GREEDY; i++) {
        must(clv_generator_run(generator, &err), &err);
        must(clv_generator_sample(generator, 0, &(clv_sampling){0}, &token, &err), &err);
        if (token != g->greedy[i])
            fail_msg("%s on %s: token %d is %lld, not %d", g->name, mesh_text, i, (long long)token, g->greedy[i]);
        clv_session_stats stats = {.size = sizeof stats};
        must(clv_generator_take_stats(generator, &stats, &err), &err);
        if (i == 0) /* a prompt is not read token by token */
            assert_in_range(stats.runs, 1, 2);
        if (i + 1 < GREEDY)
            must(clv_generator_feed(generator, 0, &token, 1, &err), &err);
    }
    assert_int_equal(clv_generator_remaining_context(generator, 0), 1);
    assert_int_equal(clv_generator_feed(generator, 0, prompt, 2, &err), CLV_ELIMIT);
    must(clv_generator_feed(generator, 0, prompt, 1, &err), &err);
    clv_generator_free(generator);
    clv_model_close(model);
}

void golden_greedy(const char *name)
{
    static const char *const meshes[] = {"model=1",   "model=2",   "model=3",           "model=4",         "model=8",
                                         "context=2", "context=5", "context=3,model=2", "pipe=2,context=4"};
    golden *g = golden_open(name);
    assert_non_null(g->greedy);
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++)
        if (sweep_takes_thinned(3))
            greedy_on(g, meshes[i]);
    if (g->model.experts > 0) {
        greedy_on(g, "expert=3");
        greedy_on(g, "expert=2,model=2");
    }
    golden_close(g);
}

/* ---- decoding ---- */

enum { AT_ONCE = 4 };

static clv_program *decoder(const golden *g, const clv_mesh *mesh, int64_t seq)
{
    clv_error err = {0};
    clv_graph *graph;
    clv_program *program;
    must(clv_graph_new(&graph, mesh, &err), &err);
    clv_model_build_options how = {.batch = g->batch,
                                   .seq = seq,
                                   .rules = clv_graph_axis_rules(graph, "megatron"),
                                   .context = g->seq,
                                   .last_logits = true};
    clv_build_inference(graph, &g->model, &how);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

/* Rows [at, at + n) of each sequence. */
static void feed(const golden *g, clv_session *session, clv_program *program, int64_t at, int64_t n, const char *where)
{
    clv_error err = {0};
    int64_t vocab = g->model.vocab;
    int32_t *ids = malloc((size_t)(g->batch * n) * sizeof *ids);
    int32_t *offset = malloc((size_t)g->batch * sizeof *offset);
    float *got = malloc((size_t)(g->batch * vocab) * sizeof *got);
    for (int64_t b = 0; b < g->batch; b++)
        offset[b] = (int32_t)at;
    for (int64_t i = 0; i < g->batch * n; i++)
        ids[i] = g->ids[i / n * g->seq + at + i % n];
    clv_input_binding inputs[] = {{"ids", ids}, {"offset", offset}};
    clv_output_binding outputs[] = {{"logits", got}};
    must(clv_session_run(session, program, inputs, 2, outputs, 1, &err), &err);
    for (int64_t b = 0; b < g->batch; b++)
        compare(where, "a decoded row", got + b * vocab, g->logits + (b * g->seq + at + n - 1) * vocab, vocab, 0);
    free(ids);
    free(offset);
    free(got);
}

static void decode_on(const golden *g, const char *mesh_text)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    clv_program *first = decoder(g, &mesh, AT_ONCE), *next = decoder(g, &mesh, 1);
    session = new_session(g, &mesh);
    feed(g, session, first, 0, AT_ONCE, mesh_text);
    for (int64_t at = AT_ONCE; at < g->seq; at++)
        feed(g, session, next, at, 1, mesh_text);
    clv_session_free(session);
    clv_program_free(first);
    clv_program_free(next);
}

void golden_decode(const char *name)
{
    static const char *const meshes[] = {"model=1",
                                         "model=2",
                                         "model=3",
                                         "model=4",
                                         "context=2,model=1",
                                         "context=3,model=2",
                                         "data=2,context=3,model=1"};
    golden *g = golden_open(name);
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++)
        if (sweep_takes_thinned(3))
            decode_on(g, meshes[i]);
    if (g->model.experts > 0)
        decode_on(g, "expert=2,model=2");
    golden_close(g);
}

/* ---- training ---- */

static float *state_of(const clv_session *session, const clv_parameter *parameter)
{
    clv_error err = {0};
    float *values = malloc((size_t)clv_parameter_elems(parameter) * sizeof *values);
    must(clv_session_read(session, parameter->name, NULL, values, &err), &err);
    return values;
}

/* With rate 0.5 and decay 2 the first step leaves of a decayed weight the step alone, 0.5 at most. */
static void check_update(const clv_parameter *p, const float *before, const float *after)
{
    bool decays = strstr(p->name, "norm") == NULL && strstr(p->name, "bias") == NULL;
    for (int64_t i = 0; i < clv_parameter_elems(p); i++)
        if (!(fabs(after[i] - (decays ? 0 : before[i])) <= 0.5001))
            fail_msg("%s, element %lld: %g became %g", p->name, (long long)i, before[i], after[i]);
}

static void step(const golden *g, clv_session *session, clv_program *program)
{
    clv_error err = {0};
    float lr = 0.5f, loss, *before[MAX_PARAMETERS];
    int32_t number = 1;
    int64_t n = clv_model_parameter_count(&g->model);
    for (int64_t i = 0; i < n; i++) {
        clv_parameter p = clv_model_parameter_at(&g->model, i);
        before[i] = state_of(session, &p);
    }
    clv_output_binding outputs[] = {{"loss", &loss}};
    clv_input_binding inputs[] = {
        {"ids", g->ids}, {"labels", g->labels}, {"lr", &lr}, {"step", &number}, {"mask", g->mask}};
    must(clv_session_run(session, program, inputs, g->mask ? 5 : 4, outputs, 1, &err), &err);
    compare(g->name, "the loss of a step", &loss, &g->loss, 1, 0);
    for (int64_t i = 0; i < n; i++) {
        clv_parameter p = clv_model_parameter_at(&g->model, i);
        float *after = state_of(session, &p);
        check_update(&p, before[i], after);
        free(before[i]);
        free(after);
    }
}

static void train_on(const golden *g, const char *mesh_text, const char *rules)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    clv_session *session;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_model_build_options how = {
        .batch = g->batch, .seq = g->seq, .rules = clv_graph_axis_rules(graph, rules), .padding_mask = g->mask};
    clv_build_train_step(graph, &g->model, &how,
                         &(clv_update_options){.adamw = &(clv_adamw_options){.weight_decay = 2}}, false);
    must(clv_compile(&program, graph, NULL, &err), &err);
    session = new_session(g, &mesh);
    must(clv_session_load(session, program, &err), &err);
    step(g, session, program);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

void golden_train(const char *name)
{
    golden *g = golden_open(name);
    train_on(g, "model=2", "megatron-sp");
    train_on(g, "data=2", "fsdp");
    train_on(g, "data=2,model=2", "zero1");
    train_on(g, "X=2,Y=2", "gspmd-2d");
    if (g->model.experts > 0) {
        train_on(g, "data=2,expert=2", "fsdp");
        train_on(g, "data=2,expert=2,model=2", "zero1+megatron-sp");
    }
    golden_close(g);
}
