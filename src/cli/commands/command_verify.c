/* command_verify.c - the `cleave verify` command: runs one input on several meshes and compares every op result and
 * gradient with the first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/evaluate.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/evaluation/comparison_rows.h"
#include "cli/evaluation/verify_against.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/options/output_options.h"
#include "cli/options/run_options.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"

enum { DEGREE_TEXT = 32 };

typedef struct verify_args {
    const char *model, *rules, *comm_dtype, *hardware, *against;
    const char *flight;
    clv_sizes degrees;
    clv_strings meshes;
    char one_rank[CLV_MESH_TEXT]; /* the measure of a mesh that was given alone */
    int64_t batch, seq, seed;
    double tolerance;
    clv_table_format form;
} verify_args;

static int parse(verify_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model, "DIR", "checkpoint: a folder with config.json and safetensors"),
        {.names = "--tp",
         .kind = CLV_OPTION_INTS,
         .out = &a->degrees,
         .min = 1,
         .max = CLV_PLAN_MAX_RANKS,
         .value = "LIST",
         .conflicts_with = "--mesh",
         .help = "degrees (1,2,3,4); one alone is compared with 1"},
        CLV_MESH_ROW(CLV_OPTION_STRINGS, &a->meshes, false,
                     "meshes instead of degrees; may be given again; one alone is compared with one rank"),
        CLV_RULES_ROW(&a->rules, "as for plan"),
        CLV_COMM_DTYPE_OPTION(&a->comm_dtype, NULL),
        CLV_COST_MODEL_OPTION(&a->hardware),
        {.names = "--against",
         .kind = CLV_OPTION_STRING,
         .out = &a->against,
         .value = "FILE",
         .use = CLV_OPTION_INPUT,
         .bare = CLV_POSITIONAL_SUGGESTED,
         .help = "compare with these results instead: safetensors as forward writes them, ids among them"},
        {.names = "--batch",
         .kind = CLV_OPTION_INT,
         .out = &a->batch,
         .min = 1,
         .max = 1 << 16,
         .value = "B",
         .conflicts_with = "--against",
         .help = "sequences of random ids (2)"},
        {.names = "--seq",
         .kind = CLV_OPTION_INT,
         .out = &a->seq,
         .min = 1,
         .max = 1 << 20,
         .value = "S",
         .conflicts_with = "--against",
         .help = "tokens a sequence (16)"},
        CLV_SEED_OPTION(&a->seed, "--against", "of the ids (1)"),
        {.names = "--tolerance",
         .kind = CLV_OPTION_REAL,
         .out = &a->tolerance,
         .real_min = 1e-12,
         .real_max = 1,
         .value = "T",
         .help = "relative to a tensor's largest element, or a thousandth of all of its kind (2e-5; with --comm-dtype "
                 "f16 4e-3, bf16 3e-2, q8 0.1)"},
        CLV_FLIGHT_OPTION(&a->flight),
        CLV_FORMAT_OPTIONS(&a->form, "", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* ---- one mesh ---- */

/* The same ids on every mesh: each token's label is the one after it. */
static void make_ids(int32_t *ids, int32_t *labels, int64_t vocab, const verify_args *a)
{
    int64_t n = a->batch * a->seq;
    uint64_t state = (uint64_t)a->seed * 2 + 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % (uint64_t)vocab);
    }
    for (int64_t i = 0; i < n; i++)
        labels[i] = i % a->seq == a->seq - 1 ? CLV_IGNORE_INDEX : ids[i + 1];
}

/* A model on a mesh and what came of it. */
typedef struct outcome {
    clv_model *model;
    int32_t *ids, *labels;
    clv_evaluation *results;
} outcome;

static void free_outcome(outcome *o)
{
    clv_evaluation_free(o->results);
    clv_model_close(o->model);
    free(o->ids);
    free(o->labels);
    *o = (outcome){0};
}

/* Every result of every op, and every gradient. */
static clv_status run_mesh(outcome *o, const verify_args *a, clv_error *err)
{
    clv_model_info info = {.size = sizeof info};
    CLV_TRY(clv_model_get_info(o->model, &info, err));
    size_t n = (size_t)(a->batch * a->seq);
    o->ids = calloc(n, sizeof *o->ids);
    o->labels = calloc(n, sizeof *o->labels);
    if (!o->ids || !o->labels)
        return clv_fail_memory(err, "ids", n * sizeof *o->ids);
    make_ids(o->ids, o->labels, info.vocab, a);
    const clv_evaluate_options what = {.size = sizeof what,
                                       .batch = a->batch,
                                       .seq = a->seq,
                                       .ids = o->ids,
                                       .labels = info.headless ? NULL : o->labels,
                                       .gradients = 1,
                                       .each_op = 1,
                                       .allow_nonfinite = 1,
                                       .find_nonfinite = 1};
    return clv_evaluate(&o->results, o->model, &what, err);
}

static clv_model_option on_mesh(const verify_args *a, const char *mesh)
{
    clv_model_option option = CLV_MODEL_DEFAULTS;
    clv_mesh read = {0};
    (void)clv_mesh_parse(&read, mesh, NULL);
    option.run.every_process_runs_all = clv_mesh_rank_count(&read) < clv_processes_count();
    option.path = a->model;
    option.mesh.text = mesh;
    option.mesh.rules = a->rules;
    option.comm_dtype = a->comm_dtype;
    option.hardware = a->hardware;
    option.run.check = true;
    option.run.comm.flight = a->flight;
    return option;
}

/* The model on a mesh; the first one that is opened notes what the model does not use. */
static clv_status open_mesh(clv_model **out, const verify_args *a, const char *mesh, bool first, const char *command,
                            clv_error *err)
{
    clv_model_option option = on_mesh(a, mesh);
    clv_model_info info = {.size = sizeof info};
    clv_model *model;
    CLV_TRY(clv_model_option_open(&model, &option, err));
    clv_status status = clv_model_get_info(model, &info, err);
    int64_t least = info.headless ? 1 : 2; /* a loss is of a token that follows another one */
    if (status == CLV_OK && !a->against && (a->seq < least || a->seq > info.max_positions))
        status = clv_fail(err, CLV_EINVAL, "--seq %lld; the model takes %lld to %lld", (long long)a->seq,
                          (long long)least, (long long)info.max_positions);
    if (status != CLV_OK) {
        clv_model_close(model);
        return status;
    }
    if (first)
        clv_model_option_warnings(model, &option, command);
    else
        clv_mesh_option_warn_oversubscribed(clv_model_mesh(model), command);
    *out = model;
    return CLV_OK;
}

/* ---- comparing ---- */

/* Runs a mesh and adds its row; the first one is compared with itself. */
static clv_status verify_mesh(clv_table *t, bool *same, outcome *first, const char *mesh, const verify_args *a,
                              const char *command, clv_error *err)
{
    outcome own = {0};
    CLV_TRY(open_mesh(&own.model, a, mesh, !first->model, command, err));
    clv_comparison found = {.size = sizeof found};
    clv_status status = run_mesh(&own, a, err);
    if (status == CLV_OK)
        status = clv_evaluation_compare(&found, own.results, first->results ? first->results : own.results,
                                        a->tolerance, err);
    if (status == CLV_OK)
        *same = clv_comparison_add_row(t, mesh, &found) && *same;
    if (status == CLV_OK && !first->results)
        *first = own;
    else
        free_outcome(&own);
    return status;
}

/* What rounding may do, of sums in another order, and of what is carried. */
static double usual_tolerance(const char *comm_dtype)
{
    static const struct {
        const char *name;
        double tolerance;
    } usual[] = {{"f16", 4e-3}, {"bf16", 3e-2}, {"q8", 0.1}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcmp(comm_dtype, usual[i].name) == 0)
            return usual[i].tolerance;
    return 2e-5;
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
    if (clv_mesh_rank_count(&mesh) == 1)
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
        const char *mesh = mesh_at(degree, a, i);
        if (a->against) {
            clv_model_option option = on_mesh(a, mesh);
            status = clv_verify_against(t, same, &option, a->against, a->tolerance, command, err);
            continue;
        }
        status = verify_mesh(t, same, &first, mesh, a, command, err);
    }
    free_outcome(&first);
    return status;
}

int command_verify(int argc, char **argv)
{
    verify_args a = {.comm_dtype = "f32", .degrees = {4, {1, 2, 3, 4}}, .batch = 2, .seq = 16, .seed = 1};
    clv_error err = {0};
    bool same = true;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    if (a.tolerance == 0)
        a.tolerance = usual_tolerance(a.comm_dtype);
    if (find_measure(&a, &err) != CLV_OK)
        return clv_command_print_error(argv[0], &err);
    clv_table *t = clv_table_new("meshes");
    clv_status status = verify(&a, argv[0], &same, t, &err);
    if (status != CLV_OK) {
        clv_table_free(t);
        return clv_command_print_error(argv[0], &err);
    }
    code = clv_table_finish(t, &a.form);
    return code == CLV_EXIT_OK && !same ? CLV_EXIT_FAILED : code;
}
