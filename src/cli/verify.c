/* verify.c - cleave verify: the same input on several meshes; every result of every op of the forward pass, and every gradient,
 * against those of the first. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/program.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/mesh_option.h"
#include "cli/model_option.h"
#include "cli/options.h"
#include "cli/results.h"
#include "cli/table.h"
#include "cli/verify_against.h"
#include "graph/graph.h"

enum { DEGREE_TEXT = 32 };

typedef struct verify_args {
    const char *model, *rules, *against;
    clv_sizes degrees;
    clv_strings meshes;
    char one_rank[CLV_MESH_TEXT]; /* the measure of a mesh that was given alone */
    int64_t batch, seq, seed;
    double tolerance;
    bool json;
} verify_args;

static int parse(verify_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "-m, --model",
         .kind = CLV_OPTION_STRING,
         .out = &a->model,
         .value = "DIR",
         .required = true,
         .help = "checkpoint: a folder with config.json and safetensors"},
        {.names = "--tp",
         .kind = CLV_OPTION_INTS,
         .out = &a->degrees,
         .min = 1,
         .max = CLV_MAX_RANKS,
         .value = "LIST",
         .not_beside = "--mesh",
         .help = "degrees (1,2,3,4); one alone is compared with 1"},
        {.names = "--mesh",
         .kind = CLV_OPTION_STRINGS,
         .out = &a->meshes,
         .value = "AXES",
         .help = "meshes instead of degrees; may be given again; one alone is compared with one rank"},
        {.names = "--rules", .kind = CLV_OPTION_STRING, .out = &a->rules, .value = "RULES", .help = "as for plan"},
        {.names = "--against",
         .kind = CLV_OPTION_STRING,
         .out = &a->against,
         .value = "FILE",
         .help = "compare with these results instead: safetensors as forward writes them, ids among them"},
        {.names = "--batch",
         .kind = CLV_OPTION_INT,
         .out = &a->batch,
         .min = 1,
         .max = 1 << 16,
         .value = "B",
         .not_beside = "--against",
         .help = "sequences of random ids (2)"},
        {.names = "--seq",
         .kind = CLV_OPTION_INT,
         .out = &a->seq,
         .min = 1,
         .max = 1 << 20,
         .value = "S",
         .not_beside = "--against",
         .help = "tokens a sequence (16)"},
        {.names = "-s, --seed",
         .kind = CLV_OPTION_INT,
         .out = &a->seed,
         .min = 0,
         .max = INT64_MAX,
         .value = "N",
         .not_beside = "--against",
         .help = "of the ids (1)"},
        {.names = "--tolerance",
         .kind = CLV_OPTION_REAL,
         .out = &a->tolerance,
         .real_min = 1e-12,
         .real_max = 1,
         .value = "T",
         .help = "relative to a tensor's largest element, or a thousandth of all of its kind (2e-5)"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .help = "print JSON"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* ---- one mesh ---- */

/* What a mesh gave: tensors in f32, in the order of the graph. */
typedef struct outcome {
    int n, n_forward;
    clv_binding *output;
    clv_type *type;
    char (*name)[300];
} outcome;

static void free_outcome(outcome *o)
{
    for (int i = 0; o->output && i < o->n; i++)
        free(o->output[i].data);
    free(o->output);
    free(o->type);
    free(o->name);
    *o = (outcome){0};
}

static clv_status add_tensor(outcome *o, clv_graph *graph, clv_value value, const char *name, clv_error *err)
{
    int i = o->n++;
    snprintf(o->name[i], sizeof o->name[0], "%s", name);
    o->type[i] = clv_graph_type(graph, value);
    size_t bytes = (size_t)clv_type_elems(&o->type[i]) * sizeof(float);
    o->output[i] = (clv_binding){o->name[i], malloc(bytes + 1)};
    if (!o->output[i].data)
        return clv_fail_memory(err, name, bytes);
    clv_output(graph, name, clv_cast(graph, value, CLV_F32), NULL);
    return CLV_OK;
}

/* The results of the forward pass, each once: "layers.3.mlp.dot_general #41". */
static clv_status add_forward(outcome *o, clv_graph *graph, int n_ops, clv_error *err)
{
    for (int i = 0; i < n_ops; i++) {
        const clv_op op = graph->ops[i];
        for (int r = 0; r < op.n_out; r++) {
            char name[300];
            snprintf(name, sizeof name, "%.250s #%d%s", op.name, i, r ? " (second)" : "");
            if (clv_dtype_is_float(graph->values[op.out[r]].type.dtype) && r < 2)
                CLV_TRY(add_tensor(o, graph, (clv_value){op.out[r]}, name, err));
        }
    }
    o->n_forward = o->n;
    return CLV_OK;
}

static clv_status add_gradients(outcome *o, clv_graph *graph, clv_value loss, clv_error *err)
{
    int n = clv_parameters(graph, NULL, 0);
    clv_value *wrt = clv_arena_alloc(graph->arena, (size_t)n + 1, sizeof *wrt);
    clv_value *d = clv_arena_alloc(graph->arena, (size_t)n + 1, sizeof *d);
    if (!wrt || !d)
        return clv_fail_memory(err, "gradients", (size_t)n * sizeof *wrt);
    clv_parameters(graph, wrt, n);
    clv_gradients(graph, loss, CLV_NONE, wrt, n, d);
    for (int i = 0; i < n && clv_graph_ok(graph); i++) {
        char name[300];
        snprintf(name, sizeof name, "gradient of %.250s", clv_value_name(graph, wrt[i]));
        CLV_TRY(add_tensor(o, graph, d[i], name, err));
    }
    return CLV_OK;
}

static clv_status make_room(outcome *o, const clv_graph *graph, clv_error *err)
{
    size_t n = 2 * (size_t)graph->n_ops + (size_t)graph->n_values + 1;
    o->output = calloc(n, sizeof *o->output);
    o->type = calloc(n, sizeof *o->type);
    o->name = calloc(n, sizeof *o->name);
    return o->output && o->type && o->name ? CLV_OK : clv_fail_memory(err, "results", n * sizeof *o->name);
}

static clv_status build(outcome *o, clv_graph *graph, const clv_model *model, const clv_model_info *info,
                        const verify_args *a, clv_error *err)
{
    clv_model_graph how = {.size = sizeof how, .batch = a->batch, .seq = a->seq};
    clv_value hidden = CLV_NONE, logits = clv_model_forward(graph, model, &how, &hidden), loss;
    if (info->headless) {
        loss = clv_reduce(graph, CLV_MEAN, clv_mul(graph, hidden, hidden), (int[]){0, 1, 2}, 3, false);
    } else {
        static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
        clv_layout layout = clv_named_layout(graph, clv_model_rules(model), 2, names);
        clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){a->batch, a->seq}, &layout);
        loss = clv_vocab_parallel_cross_entropy(graph, logits, labels, CLV_IGNORED_LABEL);
    }
    CLV_TRY(clv_graph_status(graph, err));
    int n_ops = graph->n_ops;
    CLV_TRY(make_room(o, graph, err));
    CLV_TRY(add_forward(o, graph, n_ops, err));
    CLV_TRY(add_gradients(o, graph, loss, err));
    return clv_graph_status(graph, err);
}

/* The same ids on every mesh: each token's label is the one after it. */
static void make_ids(int32_t *ids, int32_t *labels, const clv_model_info *model, const verify_args *a)
{
    int64_t n = a->batch * a->seq;
    uint64_t state = (uint64_t)a->seed * 2 + 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % (uint64_t)model->vocab);
    }
    for (int64_t i = 0; i < n; i++)
        labels[i] = i % a->seq == a->seq - 1 ? CLV_IGNORED_LABEL : ids[i + 1];
}

static clv_status run_program(outcome *o, clv_graph *graph, const clv_model *model, const clv_model_info *info,
                              const verify_args *a, bool find_nonfinite, clv_error *err)
{
    clv_program *program = NULL;
    clv_session *session = NULL;
    int32_t *ids = calloc((size_t)(a->batch * a->seq), sizeof *ids);
    int32_t *labels = malloc((size_t)(a->batch * a->seq) * sizeof *labels);
    clv_status status = ids && labels ? CLV_OK : clv_fail_memory(err, "ids", (size_t)(a->batch * a->seq) * sizeof *ids);
    if (status == CLV_OK)
        status = clv_compile(&program, graph, NULL, err);
    clv_session_options options = {
        .source = clv_model_source, .source_arg = (void *)model, .check = 1, .find_nonfinite = find_nonfinite};
    if (status == CLV_OK)
        status = clv_session_new(&session, clv_graph_mesh(graph), &options, err);
    if (status == CLV_OK) {
        make_ids(ids, labels, info, a);
        clv_binding inputs[] = {{"ids", ids}, {"labels", labels}};
        status = clv_session_run(session, program, inputs, info->headless ? 1 : 2, o->output, o->n, err);
    }
    clv_session_free(session);
    clv_program_free(program);
    free(ids);
    free(labels);
    return status;
}

static clv_status run_mesh(outcome *o, const clv_model *model, const verify_args *a, bool find_nonfinite,
                           clv_error *err)
{
    clv_model_info info = {.size = sizeof info};
    clv_graph *graph;
    CLV_TRY(clv_model_describe(model, &info, err));
    CLV_TRY(clv_graph_new(&graph, clv_model_mesh(model), err));
    clv_status status = build(o, graph, model, &info, a, err);
    if (status == CLV_OK)
        status = run_program(o, graph, model, &info, a, find_nonfinite, err);
    clv_graph_free(graph);
    return status;
}

/* The model on a mesh; the first one that is opened notes what the model does not use. */
static clv_status open_mesh(clv_model **out, const verify_args *a, const char *mesh, bool first, const char *command,
                            clv_error *err)
{
    clv_model_option option = CLV_MODEL_DEFAULTS;
    clv_model_info info = {.size = sizeof info};
    clv_model *model;
    option.path = a->model;
    option.mesh.text = mesh;
    option.mesh.rules = a->rules;
    CLV_TRY(clv_model_option_open(&model, &option, command, err));
    clv_status status = clv_model_describe(model, &info, err);
    int64_t least = info.headless ? 1 : 2; /* a loss is of a token that follows another one */
    if (status == CLV_OK && !a->against && (a->seq < least || a->seq > info.max_positions))
        status = clv_fail(err, CLV_EINVAL, "--seq %lld; the model takes %lld to %lld", (long long)a->seq,
                          (long long)least, (long long)info.max_positions);
    if (status != CLV_OK) {
        clv_model_close(model);
        return status;
    }
    if (first)
        clv_note_unused_tensors(model, a->model, command);
    *out = model;
    return CLV_OK;
}

/* ---- comparing ---- */

/* The largest error of a mesh; the first tensor beyond the tolerance, its error, and the worst element of it. */
typedef struct finding {
    double worst, error;
    const char *diverges; /* NULL: none */
    char element[CLV_ELEMENT_TEXT];
} finding;

/* NaN and infinity are beyond any tolerance, on the first mesh, too. */
static finding compare(const outcome *first, const outcome *o, double tolerance)
{
    double of_gradients = 0;
    finding found = {.element = "none"};
    for (int i = first->n_forward; i < first->n; i++)
        of_gradients = fmax(of_gradients, clv_results_largest(first->output[i].data, clv_type_elems(&first->type[i])));
    for (int i = 0; i < first->n; i++) {
        const float *got = o->output[i].data, *want = first->output[i].data;
        const clv_type *type = &first->type[i];
        int64_t n = clv_type_elems(type);
        clv_difference d =
            clv_results_difference(got, want, n, i < first->n_forward ? 0 : 1e-3 * of_gradients, NULL, n);
        found.worst = fmax(found.worst, d.error);
        if (d.error > tolerance && !found.diverges) {
            found.diverges = first->name[i];
            found.error = d.error;
            clv_results_print_difference(found.element, sizeof found.element, type->rank, type->shape, got, want, d.at);
        }
    }
    return found;
}

static void add_row(clv_table *t, const char *mesh, int tensors, const finding *found)
{
    clv_table_row(t);
    clv_table_text(t, "mesh", mesh);
    clv_table_int(t, "tensors", tensors);
    clv_table_real(t, "largest_error", found->worst);
    clv_table_text(t, "first_divergence", found->diverges ? found->diverges : "none");
    clv_table_text(t, "element", found->element);
}

/* Runs a mesh and adds its row; where a result is not finite, a second run says on which rank that begins, and by which op. */
static clv_status verify_model(clv_table *t, bool *same, outcome *o, const outcome *first, const char *mesh,
                               const clv_model *model, const verify_args *a, clv_error *err)
{
    clv_error begins = {0};
    CLV_TRY(run_mesh(o, model, a, false, err));
    finding found = compare(first, o, a->tolerance);
    if (found.diverges && isinf(found.error)) {
        outcome again = {0};
        run_mesh(&again, model, a, true, &begins);
        free_outcome(&again);
        clv_results_add_beginning(found.element, begins.code == CLV_ENONFINITE ? begins.message : NULL);
    }
    add_row(t, mesh, first->n, &found);
    *same = *same && !found.diverges;
    return CLV_OK;
}

static clv_status verify_mesh(clv_table *t, bool *same, outcome *o, const outcome *first, const char *mesh,
                              const verify_args *a, const char *command, clv_error *err)
{
    clv_model *model;
    CLV_TRY(open_mesh(&model, a, mesh, o == first, command, err));
    clv_status status = verify_model(t, same, o, first, mesh, model, a, err);
    clv_model_close(model);
    return status;
}

static int count_meshes(const verify_args *a)
{
    return a->meshes.n ? a->meshes.n : a->degrees.n;
}

/* Mesh i as it was given, or in `degree` the mesh of the degree that was. */
static const char *mesh_at(char degree[DEGREE_TEXT], const verify_args *a, int i)
{
    if (a->meshes.n)
        return a->meshes.item[i];
    snprintf(degree, DEGREE_TEXT, "model=%lld", (long long)a->degrees.item[i]);
    return degree;
}

/* A mesh is compared with another one: one alone with a single rank. */
static clv_status find_measure(verify_args *a, clv_error *err)
{
    char first[DEGREE_TEXT], other[DEGREE_TEXT];
    clv_mesh mesh;
    bool differ = false;
    for (int i = 1; i < count_meshes(a); i++)
        differ |= strcmp(mesh_at(other, a, i), mesh_at(first, a, 0)) != 0;
    if (a->against || differ)
        return CLV_OK;
    CLV_TRY(clv_mesh_option_parse(&mesh, mesh_at(first, a, 0), err));
    if (clv_mesh_ranks(&mesh) == 1)
        return clv_fail(
            err, CLV_EINVAL,
            "one rank alone has nothing to be compared with; give degrees such as --tp 1,2,3, another --mesh, or "
            "--against FILE");
    if (!a->meshes.n) {
        a->degrees = (clv_sizes){2, {1, a->degrees.item[0]}};
        return CLV_OK;
    }
    for (int i = 0; i < mesh.n_axes; i++)
        mesh.axis[i].size = 1;
    clv_mesh_print(a->one_rank, sizeof a->one_rank, &mesh);
    a->meshes = (clv_strings){2, {a->one_rank, a->meshes.item[0]}};
    return CLV_OK;
}

static clv_status verify(const verify_args *a, const char *command, bool *same, clv_table *t, clv_error *err)
{
    outcome first = {0};
    clv_status status = CLV_OK;
    *same = true;
    for (int i = 0; status == CLV_OK && i < count_meshes(a); i++) {
        char degree[DEGREE_TEXT];
        outcome o = {0};
        const char *mesh = mesh_at(degree, a, i);
        if (a->against) {
            status = clv_verify_against(t, same, a->model, a->against, mesh, a->rules, a->tolerance, command, err);
            continue;
        }
        status = verify_mesh(t, same, i == 0 ? &first : &o, &first, mesh, a, command, err);
        free_outcome(&o);
    }
    free_outcome(&first);
    return status;
}

int command_verify(int argc, char **argv)
{
    verify_args a = {.degrees = {4, {1, 2, 3, 4}}, .batch = 2, .seq = 16, .seed = 1, .tolerance = 2e-5};
    clv_error err = {0};
    bool same = true;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    if (find_measure(&a, &err) != CLV_OK)
        return clv_command_report(argv[0], &err);
    clv_table *t = clv_table_new("meshes");
    clv_status status = verify(&a, argv[0], &same, t, &err);
    if (status != CLV_OK) {
        clv_table_free(t);
        return clv_command_report(argv[0], &err);
    }
    code = clv_table_finish(t, a.json);
    return code == CLV_EXIT_OK && !same ? CLV_EXIT_FAILED : code;
}
