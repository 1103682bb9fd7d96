/* command_verify.c - the `cleave verify` command: runs one input on several meshes and compares every op result and
 * gradient with the first.
 */
#include <math.h>
#include <unistd.h>

#include "cleave/evaluate.h"
#include "cli/command.h"
#include "cli/evaluation/forward_run.h"
#include "cli/evaluation/imported_run.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/options/run_options.h"

enum { DEGREE_TEXT = 32 };

typedef struct verify_args {
    clv_model_option model; /* without a mesh */
    const char *against, *inputs;
    clv_sizes degrees;
    clv_strings meshes;
    char one_rank[CLV_MESH_TEXT]; /* the measure of a mesh that was given alone */
    int64_t batch, seq, seed;
    double tolerance;
    bool gradients;
} verify_args;

static bool parse(verify_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OR_PROGRAM_OPTION(&a->model.path),
        CLV_NO_PATTERNS_OPTION(&a->model.no_patterns),
        CLV_OPT_VALUE(INTS, "--tp", &a->degrees, "LIST",
                      "degrees to compare (1,2,3,4); a single one is compared with 1", .min = 1,
                      .max = CLV_PLAN_MAX_RANKS, .conflicts_with = "--mesh"),
        CLV_MESH_ROW(STRINGS, &a->meshes, false,
                     "meshes instead of degrees; may be repeated; a single one is compared with one rank"),
        CLV_RULES_ROW(&a->model.mesh.rules, "how layers are split, as in plan"),
        CLV_LAYOUTS_OPTION(&a->model.mesh, "--rules"),
        CLV_OPT_FLAG("--grad", &a->gradients, "of a program: also the gradients of its loss"),
        CLV_COMM_DTYPE_OPTION(&a->model.options.compile),
        CLV_COST_MODEL_OPTION(&a->model.hardware),
        CLV_OPT_INPUT("--against", &a->against, "FILE",
                      "compare with this file instead: safetensors in the format of forward, with ids",
                      .positional = CLV_POSITIONAL_SUGGESTED),
        CLV_OPT_INPUT("--inputs", &a->inputs, "FILE",
                      "a program's arguments by name (random; with --against those of its file)"),
        CLV_OPT_INT("--batch", &a->batch, 1, 1 << 16, "B", "sequences of random ids (2)",
                    .conflicts_with = "--against"),
        CLV_OPT_INT("--seq", &a->seq, 1, 1 << 20, "S", "tokens a sequence (16)", .conflicts_with = "--against"),
        CLV_SEED_OPTION(&a->seed, "--against", "seed of the ids (1)"),
        CLV_OPT_REAL("--tolerance", &a->tolerance, 1e-12, 1, "T",
                     "tolerance, relative to the largest element of a tensor, or 1/1000 of that of all tensors of its "
                     "kind (2e-5; with --comm-dtype f16 4e-3, bf16 3e-2, q8 0.1)"),
        CLV_FLIGHT_OPTION(&a->model.comm.flight),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
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
    clv_model_option option = a->model;
    clv_mesh read = {0};
    (void)clv_mesh_parse(&read, mesh, NULL);
    option.every_process_runs_all = clv_mesh_rank_count(&read) < clv_processes_count();
    option.mesh.text = mesh;
    option.workload = (clv_plan_options){.batch = a->batch, .seq = a->seq};
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

/* Adds the row of a mesh; whether all is within the tolerance. */
static bool add_row(clv_table *t, const char *mesh, const clv_comparison *found)
{
    bool same = found->diverges[0] == '\0';
    clv_table_begin_row(t);
    clv_table_text(t, "mesh", mesh);
    clv_table_int(t, "tensors", found->tensors);
    clv_table_real(t, "largest_error", found->largest_error);
    clv_table_text(t, "first_divergence", same ? "none" : found->diverges);
    clv_table_text(t, "element", same ? "none" : found->element);
    return same;
}

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
        *same = add_row(t, mesh, &found) && *same;
    if (status == CLV_OK && !first->results)
        *first = own;
    else
        free_outcome(&own);
    return status;
}

/* ---- --against ---- */

static bool has_gradients(const clv_checkpoint *file)
{
    clv_tensor_info t = {.size = sizeof t};
    for (int64_t i = 0; clv_checkpoint_tensor(file, i, &t, NULL) == CLV_OK; i++)
        if (strncmp(t.name, "grad.", strlen("grad.")) == 0)
            return true;
    return false;
}

/* Runs into a file of the temporary folder, and opens it. */
static clv_status run_to_file(clv_checkpoint **out, const clv_forward_request *given, const char *command,
                              clv_error *err)
{
    const char *folder = getenv("TMPDIR");
    char *path = NULL;
    clv_forward_request job = *given;
    if (asprintf(&path, "%s/cleave-verify-%ld.safetensors", folder ? folder : "/tmp", (long)getpid()) < 0)
        return clv_fail_memory(err, "a file name", 0);
    job.out = path;
    clv_status status = clv_forward_run(&job, command, err);
    if (status == CLV_OK)
        status = clv_checkpoint_open(out, path, NULL, err);
    unlink(path);
    free(path);
    return status;
}

/* Names the first tensor that is not finite. */
static void add_first_nonfinite(clv_comparison *found, const char *first)
{
    size_t used = strlen(found->element);
    if (isinf(found->error) && first[0] != '\0')
        snprintf(found->element + used, sizeof found->element - used, "; it begins at %s", first);
}

/* Compares with the tensors of a.against; gradients when the file has some. */
static clv_status verify_against(clv_table *t, bool *same, clv_model_option *model, const verify_args *a,
                                 const char *command, clv_error *err)
{
    clv_checkpoint *got = NULL, *want;
    clv_comparison found = {.size = sizeof found};
    char first[CLV_FIRST_NONFINITE_SIZE] = "";
    clv_forward_request job = {.first_nonfinite = first,
                               .model = model,
                               .ids = a->against,
                               .allow_other_tensors = true,
                               .allow_nonfinite = true};
    CLV_TRY(clv_checkpoint_open(&want, a->against, NULL, err));
    job.gradients = has_gradients(want);
    clv_status status = run_to_file(&got, &job, command, err);
    if (status == CLV_OK)
        status = clv_evaluation_compare_files(&found, got, want, a->tolerance, err);
    if (status == CLV_OK) {
        add_first_nonfinite(&found, first);
        *same = add_row(t, model->mesh.text, &found) && *same;
    }
    clv_checkpoint_close(got);
    clv_checkpoint_close(want);
    return status;
}

/* ---- programs ---- */

/* Runs a program on a mesh and adds its row: beside the file of --against, or beside the first mesh, every op. */
static clv_status verify_program(clv_table *t, bool *same, clv_imported_run *first, const char *mesh, bool last,
                                 const verify_args *a, clv_error *err)
{
    clv_imported_run own;
    clv_model_option option = on_mesh(a, mesh);
    clv_comparison found;
    const char *inputs = a->inputs ? a->inputs : a->against;
    const clv_import_options what = {.size = sizeof what,
                                     .each_op = !a->against,
                                     .differences = !a->against,
                                     .gradients_of = a->gradients ? "" : NULL,
                                     .no_patterns = option.no_patterns};
    clv_status status = clv_imported_run_execute(&own, &option, inputs, (uint64_t)a->seed, &what, 1, err);
    if (status == CLV_OK)
        status = clv_imported_compare(&found, &own,
                                      a->against   ? NULL
                                      : first->out ? first
                                                   : &own,
                                      a->against, a->tolerance, err);
    if (status == CLV_OK)
        *same = add_row(t, mesh, &found) && *same;
    if (status == CLV_OK && last)
        clv_imported_note_mesh(own.compiled);
    if (status == CLV_OK && !first->out)
        *first = own;
    else
        clv_imported_run_free(&own);
    return status;
}

/* ---- meshes ---- */

/* Allows for rounding, of sums in another order and of the wire dtype. */
static double default_tolerance(clv_comm_dtype comm_dtype)
{
    static const double tolerance[] = {
        [CLV_COMM_F32] = 2e-5, [CLV_COMM_F16] = 4e-3, [CLV_COMM_BF16] = 3e-2, [CLV_COMM_Q8] = 0.1};
    return tolerance[comm_dtype];
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
            status = verify_against(t, same, &option, a, command, err);
            continue;
        }
        status = verify_mesh(t, same, &first, mesh, a, command, err);
    }
    free_outcome(&first);
    return status;
}

static clv_status verify_programs(const verify_args *a, const char *command, bool *same, clv_table *t, clv_error *err)
{
    clv_imported_run first = {0};
    clv_status status = CLV_OK;
    *same = true;
    for (int i = 0; status == CLV_OK && i < count_meshes(a); i++) {
        char degree[DEGREE_TEXT];
        const char *mesh = mesh_at(degree, a, i);
        clv_mesh read;
        if (clv_mesh_parse(&read, mesh, NULL) == CLV_OK)
            clv_mesh_option_warn_oversubscribed(&read, command);
        status = verify_program(t, same, &first, mesh, i == count_meshes(a) - 1, a, err);
    }
    if (status == CLV_OK && clv_imported_add_faults(t, &first, a->tolerance))
        *same = false;
    clv_imported_run_free(&first);
    return status;
}

clv_status command_verify(clv_invocation *run, clv_error *err)
{
    verify_args a = {.model.options.check = true, .degrees = {4, {1, 2, 3, 4}}, .batch = 2, .seq = 16, .seed = 1};
    bool same = true;
    if (!parse(&a, run))
        return CLV_OK;
    if (a.tolerance == 0)
        a.tolerance = default_tolerance(a.model.options.compile.comm_dtype);
    CLV_TRY(find_measure(&a, err));
    const bool imported = clv_import_is_program(a.model.path);
    if (a.gradients && !imported)
        return clv_fail(err, CLV_EINVAL, "--grad is for programs; of a model gradients are always compared");
    run->table = clv_table_new("meshes");
    clv_status status = imported ? verify_programs(&a, run->name, &same, run->table, err)
                                 : verify(&a, run->name, &same, run->table, err);
    run->code = same ? CLV_EXIT_OK : CLV_EXIT_FAILED;
    return status;
}
