/* forward_run.c - see forward_run.h. */
#include "cli/forward_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/wait.h"
#include "cleave/program.h"
#include "cli/open_weights.h"
#include "cli/options.h"
#include "cli/results.h"
#include "io/safetensors.h"
#include "models/parameters.h"

enum { IGNORED = -100 };

/* What goes in, and the model. */
typedef struct batch {
    clv_model model;
    int64_t rows, columns; /* B, S */
    int32_t *ids, *labels;
    int32_t *token_types; /* NULL: none were given */
    uint8_t *mask;        /* NULL: none was given */
    clv_dtype dtype;
} batch;

/* ---- the batch ---- */

/* An int64 tensor [B,S] of the file, the caller's to free. The first one says what B and S are. */
static clv_status read_rows(int64_t **out, batch *b, const clv_safetensors *file, const char *name, const char *where,
                            clv_error *err)
{
    const clv_safetensor *tensor;
    CLV_TRY(clv_safetensors_find(&tensor, file, name, err));
    if (b->rows == 0 && tensor->rank == 2) {
        b->rows = tensor->shape[0];
        b->columns = tensor->shape[1];
    }
    bool fits = tensor->rank == 2 && tensor->shape[0] == b->rows && tensor->shape[1] == b->columns && b->rows > 0 &&
                b->columns > 0;
    if (!fits || !tensor->readable || (tensor->dtype != CLV_I64 && tensor->dtype != CLV_I32 && tensor->dtype != CLV_U8))
        return clv_fail(err, CLV_ESHAPE, "%s: %s must be integers [B,S], B and S at least 1", where, name);
    *out = calloc((size_t)(b->rows * b->columns), sizeof **out);
    if (!*out)
        return clv_fail_memory(err, name, (size_t)(b->rows * b->columns) * sizeof **out);
    return clv_safetensors_read(tensor, NULL, CLV_I64, *out, err);
}

static clv_status take_ids(batch *b, const int64_t *ids, const char *where, clv_error *err)
{
    for (int64_t i = 0; i < b->rows * b->columns; i++) {
        if (ids[i] < 0 || ids[i] >= b->model.vocab)
            return clv_fail(err, CLV_EINVAL, "%s: id %lld at [%lld,%lld]; the vocabulary is 0 to %lld", where,
                            (long long)ids[i], (long long)(i / b->columns), (long long)(i % b->columns),
                            (long long)b->model.vocab - 1);
        b->ids[i] = (int32_t)ids[i];
    }
    return CLV_OK;
}

static clv_status take_token_types(batch *b, const int64_t *types, const char *where, clv_error *err)
{
    int64_t n = b->rows * b->columns;
    b->token_types = malloc((size_t)n * sizeof *b->token_types);
    if (!b->token_types)
        return clv_fail_memory(err, "token types", (size_t)n * sizeof *b->token_types);
    for (int64_t i = 0; i < n; i++) {
        if (types[i] < 0 || types[i] >= b->model.token_types)
            return clv_fail(err, CLV_EINVAL, "%s: token type %lld at [%lld,%lld]; the model has %lld", where,
                            (long long)types[i], (long long)(i / b->columns), (long long)(i % b->columns),
                            (long long)b->model.token_types);
        b->token_types[i] = (int32_t)types[i];
    }
    return CLV_OK;
}

/* Each token's label is the next one; none behind the last, and none that is padding or follows it. */
static void make_labels(batch *b)
{
    for (int64_t i = 0; i < b->rows * b->columns; i++) {
        bool last = i % b->columns == b->columns - 1;
        bool padded = b->mask && (!b->mask[i] || (!last && !b->mask[i + 1]));
        b->labels[i] = last || padded ? IGNORED : b->ids[i + 1];
    }
}

static clv_status take_mask(batch *b, const int64_t *mask, const char *where, clv_error *err)
{
    int64_t n = b->rows * b->columns;
    b->mask = malloc((size_t)n);
    if (!b->mask)
        return clv_fail_memory(err, "a mask", (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        if (mask[i] != 0 && mask[i] != 1)
            return clv_fail(err, CLV_EINVAL, "%s: mask is %lld at [%lld,%lld]; valid: 1, and 0 for padding", where,
                            (long long)mask[i], (long long)(i / b->columns), (long long)(i % b->columns));
        b->mask[i] = mask[i] == 1;
    }
    return CLV_OK;
}

/* A tensor that nothing reads is likely one whose name is wrong. */
static clv_status check_names(const clv_safetensors *file, const clv_forward_job *a, clv_error *err)
{
    static const char *const known[] = {"ids", "mask", "token_types"};
    enum { KNOWN = sizeof known / sizeof *known };
    for (int64_t i = 0; !a->among_results && i < clv_safetensors_count(file); i++) {
        const char *name = clv_safetensors_at(file, i)->name;
        int k = 0;
        while (k < KNOWN && strcmp(name, known[k]) != 0)
            k++;
        if (k < KNOWN)
            continue;
        const char *nearest = clv_nearest(name, known, KNOWN);
        return clv_fail(err, CLV_EINVAL, "%s: unknown tensor '%.128s'%s%s%s; valid: ids, mask, token_types", a->ids,
                        name, nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    return CLV_OK;
}

static clv_status read_batch(batch *b, const clv_forward_job *a, clv_error *err)
{
    clv_safetensors *file;
    int64_t *ids = NULL, *mask = NULL, *types = NULL;
    const clv_safetensor *found;
    CLV_TRY(clv_safetensors_open(&file, a->ids, err));
    clv_status status = check_names(file, a, err);
    if (status == CLV_OK)
        status = read_rows(&ids, b, file, "ids", a->ids, err);
    if (status == CLV_OK && clv_safetensors_find(&found, file, "mask", NULL) == CLV_OK)
        status = read_rows(&mask, b, file, "mask", a->ids, err);
    if (status == CLV_OK && clv_safetensors_find(&found, file, "token_types", NULL) == CLV_OK)
        status = read_rows(&types, b, file, "token_types", a->ids, err);
    if (status == CLV_OK && types)
        status = take_token_types(b, types, a->ids, err);
    if (status == CLV_OK && mask)
        status = take_mask(b, mask, a->ids, err);
    size_t n = (size_t)(b->rows * b->columns) + 1;
    if (status == CLV_OK) {
        b->ids = calloc(n, sizeof *b->ids);
        b->labels = malloc(n * sizeof *b->labels);
        if (!b->ids || !b->labels)
            status = clv_fail_memory(err, "a batch", n * sizeof *b->ids);
    }
    if (status == CLV_OK)
        status = take_ids(b, ids, a->ids, err);
    if (status == CLV_OK)
        make_labels(b);
    free(ids);
    free(mask);
    free(types);
    clv_safetensors_close(file);
    return status;
}

/* ---- the program ---- */

/* The next token's. */
static bool has_loss(const clv_model *model)
{
    return !model->bidirectional && !model->headless;
}

static void add_gradients(clv_graph *graph, clv_value loss)
{
    int n = clv_parameters(graph, NULL, 0);
    clv_value *wrt = calloc((size_t)n + 1, sizeof *wrt), *d = calloc((size_t)n + 1, sizeof *d);
    if (wrt && d) {
        clv_parameters(graph, wrt, n);
        clv_gradients(graph, loss, CLV_NONE, wrt, n, d);
        for (int i = 0; i < n; i++) {
            char name[300];
            snprintf(name, sizeof name, "d.%s", clv_value_name(graph, wrt[i]));
            clv_output(graph, name, clv_cast(graph, d[i], CLV_F32), NULL);
        }
    }
    free(wrt);
    free(d);
}

static clv_status compile(clv_program **out, const batch *b, const clv_forward_job *a, const clv_mesh *mesh,
                          clv_error *err)
{
    clv_graph *graph;
    clv_value hidden = CLV_NONE;
    clv_model_build build = {.batch = b->rows,
                             .seq = b->columns,
                             .dtype = b->dtype,
                             .padding_mask = b->mask != NULL,
                             .token_types = b->token_types != NULL};
    CLV_TRY(clv_mesh_option_rules(&build.rules, a->mesh, mesh, err));
    CLV_TRY(clv_graph_new(&graph, mesh, err));
    clv_value logits = clv_model_forward(graph, &b->model, &build, &hidden);
    if (!b->model.headless)
        clv_output(graph, "logits", clv_cast(graph, logits, CLV_F32), NULL);
    clv_output(graph, "hidden.last", clv_cast(graph, hidden, CLV_F32), NULL);
    if (has_loss(&b->model)) {
        static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
        clv_layout layout = clv_named_layout(graph, &build.rules, 2, names);
        clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){b->rows, b->columns}, &layout);
        clv_value loss = clv_vocab_parallel_cross_entropy(graph, logits, labels, IGNORED);
        clv_output(graph, "loss", loss, NULL);
        if (a->gradients)
            add_gradients(graph, loss);
    }
    clv_status status = clv_compile(out, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}

/* ---- results ---- */

/* A run's outputs, bound by name: hidden.last, logits, loss, then the gradients in the order of parameters. */
typedef struct results {
    int n, n_forward;
    clv_binding *output;
    clv_tensor_spec *spec;
    char (*name)[300];
} results;

static void free_results(results *r)
{
    for (int i = 0; r->output && i < r->n; i++)
        free(r->output[i].data);
    free(r->output);
    free(r->spec);
    free(r->name);
}

static int64_t elems_of(const clv_tensor_spec *spec)
{
    int64_t n = 1;
    for (int d = 0; d < spec->rank; d++)
        n *= spec->shape[d];
    return n;
}

static clv_status add_result(results *r, const char *name, int rank, const int64_t *shape, clv_error *err)
{
    int i = r->n++;
    snprintf(r->name[i], sizeof r->name[0], "%s", name);
    r->spec[i] = (clv_tensor_spec){.name = r->name[i], .dtype = CLV_F32, .rank = rank};
    memcpy(r->spec[i].shape, shape, (size_t)rank * sizeof *shape);
    size_t bytes = (size_t)elems_of(&r->spec[i]) * sizeof(float);
    r->output[i] = (clv_binding){r->name[i], malloc(bytes + 1)};
    return r->output[i].data ? CLV_OK : clv_fail_memory(err, name, bytes);
}

static clv_status make_results(results *r, const batch *b, const clv_forward_job *a, clv_error *err)
{
    int64_t n = clv_model_parameter_count(&b->model);
    r->output = calloc((size_t)n + 4, sizeof *r->output);
    r->spec = calloc((size_t)n + 4, sizeof *r->spec);
    r->name = calloc((size_t)n + 4, sizeof *r->name);
    if (!r->output || !r->spec || !r->name)
        return clv_fail_memory(err, "results", (size_t)n * sizeof *r->name);
    CLV_TRY(add_result(r, "hidden.last", 3, (int64_t[]){b->rows, b->columns, b->model.hidden}, err));
    if (!b->model.headless)
        CLV_TRY(add_result(r, "logits", 3, (int64_t[]){b->rows, b->columns, b->model.vocab}, err));
    if (has_loss(&b->model))
        CLV_TRY(add_result(r, "loss", 1, (int64_t[]){1}, err));
    r->n_forward = r->n;
    for (int64_t i = 0; a->gradients && i < n; i++) {
        char name[300];
        clv_parameter p = clv_model_parameter_at(&b->model, i);
        snprintf(name, sizeof name, "d.%s", p.name);
        CLV_TRY(add_result(r, name, p.rank, p.shape, err));
    }
    return CLV_OK;
}

static clv_status write_results(const results *r, const batch *b, const clv_forward_job *a, clv_error *err)
{
    clv_safetensors_writer *writer;
    int64_t first = a->gradients ? clv_model_tensor_count(&b->model) : 0;
    CLV_TRY(a->gradients ? clv_model_create_tensors(&writer, &b->model, a->out, "grad.", r->spec, r->n_forward, err)
                         : clv_safetensors_create(&writer, a->out, r->spec, r->n_forward, err));
    clv_status status = CLV_OK;
    for (int i = 0; status == CLV_OK && i < r->n_forward; i++)
        status = clv_safetensors_write(writer, first + i, NULL, r->output[i].data, err);
    for (int i = r->n_forward; status == CLV_OK && i < r->n; i++)
        status = clv_model_write_parameter(writer, &b->model, r->name[i] + 2, NULL, r->output[i].data, err);
    if (status == CLV_OK)
        return clv_safetensors_commit(writer, err);
    clv_safetensors_abandon(writer);
    return status;
}

/* The first element of result i that is NaN or infinite; what stands at padding is nobody's business. -1: none. */
static int64_t first_nonfinite(const results *r, const batch *b, int i)
{
    const float *x = r->output[i].data;
    int64_t n = elems_of(&r->spec[i]), rows = b->rows * b->columns;
    if (!b->mask || i >= r->n_forward || r->spec[i].rank != 3)
        return clv_dtype_first_nonfinite(CLV_F32, x, n);
    for (int64_t row = 0, width = n / rows; row < rows; row++) {
        int64_t at = b->mask[row] ? clv_dtype_first_nonfinite(CLV_F32, x + row * width, width) : -1;
        if (at >= 0)
            return row * width + at;
    }
    return -1;
}

/* ---- running ---- */

/* What a run is made of. */
typedef struct machine {
    clv_mesh mesh;
    clv_program *program;
    clv_checkpoint *weights;
} machine;

static clv_status run_once(results *r, const batch *b, const clv_forward_job *a, const machine *m, bool find_nonfinite,
                           clv_error *err)
{
    clv_session *session;
    clv_session_options options = {.threads_per_rank = (int)a->threads,
                                   .source = clv_checkpoint_source,
                                   .source_arg = m->weights,
                                   .check = a->check,
                                   .find_nonfinite = find_nonfinite};
    clv_binding inputs[4] = {{"ids", b->ids}};
    int n = 1;
    if (has_loss(&b->model))
        inputs[n++] = (clv_binding){"labels", b->labels};
    if (b->token_types)
        inputs[n++] = (clv_binding){"token_types", b->token_types};
    if (b->mask)
        inputs[n++] = (clv_binding){"mask", b->mask};
    CLV_TRY(clv_session_new(&session, &m->mesh, &options, err));
    clv_status status = clv_session_load(session, m->program, err);
    double start = clv_now_seconds();
    if (status == CLV_OK)
        status = clv_session_run(session, m->program, inputs, n, r->output, r->n, err);
    if (a->seconds)
        *a->seconds = clv_now_seconds() - start;
    clv_session_free(session);
    return status;
}

/* Results that are not finite are an error; a second run finds out where they begin. */
static clv_status check_finite(results *r, const batch *b, const clv_forward_job *a, const machine *m, clv_error *err)
{
    for (int i = 0; !a->allow_nonfinite && i < r->n; i++) {
        char index[128], element[512];
        clv_error why = {0};
        int64_t at = first_nonfinite(r, b, i);
        if (at < 0)
            continue;
        double value = (double)((float *)r->output[i].data)[at];
        clv_results_print_index(index, sizeof index, r->spec[i].rank, r->spec[i].shape, at);
        snprintf(element, sizeof element, "%s%s%s", i < r->n_forward ? "" : "gradient ", r->name[i], index);
        run_once(r, b, a, m, true, &why);
        return clv_results_refuse(element, value, &why, err);
    }
    return CLV_OK;
}

static clv_status run(batch *b, const clv_forward_job *a, const char *command, clv_error *err)
{
    machine m = {0};
    results r = {0};
    CLV_TRY(clv_mesh_option_resolve(&m.mesh, a->mesh, command, err));
    CLV_TRY(compile(&m.program, b, a, &m.mesh, err));
    clv_status status = clv_open_weights(&m.weights, &b->model, a->model, command, err);
    if (status == CLV_OK)
        status = make_results(&r, b, a, err);
    if (status == CLV_OK)
        status = run_once(&r, b, a, &m, false, err);
    if (status == CLV_OK)
        status = check_finite(&r, b, a, &m, err);
    if (status == CLV_OK)
        status = write_results(&r, b, a, err);
    free_results(&r);
    clv_checkpoint_close(m.weights);
    clv_program_free(m.program);
    return status;
}

static clv_status check(const batch *b, const clv_forward_job *a, clv_error *err)
{
    if (b->columns > b->model.max_positions)
        return clv_fail(err, CLV_EINVAL, "%s: %lld tokens a sequence; the model takes 1 to %lld", a->ids,
                        (long long)b->columns, (long long)b->model.max_positions);
    if (a->gradients && !has_loss(&b->model))
        return clv_fail(err, CLV_EINVAL, "--grad: %s has no next-token loss; valid for decoders",
                        clv_model_type(&b->model));
    return CLV_OK;
}

clv_status clv_forward_run(const clv_forward_job *job, const char *command, clv_error *err)
{
    batch b = {0};
    clv_status status = clv_dtype_parse(&b.dtype, job->dtype, err);
    if (status == CLV_OK)
        status = clv_model_read(&b.model, job->model, err);
    if (status == CLV_OK)
        status = read_batch(&b, job, err);
    if (status == CLV_OK)
        status = check(&b, job, err);
    if (status == CLV_OK)
        status = run(&b, job, command, err);
    free(b.ids);
    free(b.labels);
    free(b.token_types);
    free(b.mask);
    return status;
}
