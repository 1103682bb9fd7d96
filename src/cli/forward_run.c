/* forward_run.c - see forward_run.h. */
#include "cli/forward_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "cleave/program.h"
#include "cleave/status.h"
#include "cli/ids_file.h"
#include "cli/options.h"
#include "cli/results.h"
#include "io/safetensors.h"
#include "models/opened.h"
#include "models/parameters.h"

/* What goes in, and the model. */
typedef struct batch {
    const clv_model *opened;
    const clv_model_config *model;
    clv_ids in;
} batch;

/* ---- the program ---- */

static bool is_decoder(const clv_model_config *model)
{
    return !model->bidirectional && !model->headless;
}

/* The next token's, if any token has one. */
static bool has_loss(const batch *b)
{
    bool labelled = false;
    for (int64_t i = 0; i < b->in.rows * b->in.columns && !labelled; i++)
        labelled = b->in.labels[i] != CLV_IDS_IGNORED;
    return labelled && is_decoder(b->model);
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

static clv_status compile(clv_program **out, const batch *b, const clv_forward_job *a, clv_error *err)
{
    clv_graph *graph;
    clv_value hidden = CLV_NONE;
    clv_model_graph how = {.size = sizeof how,
                           .batch = b->in.rows,
                           .seq = b->in.columns,
                           .padding_mask = b->in.mask != NULL,
                           .token_types = b->in.token_types != NULL};
    CLV_TRY(clv_graph_new(&graph, clv_model_mesh(b->opened), err));
    clv_value logits = clv_model_forward(graph, b->opened, &how, &hidden);
    if (!b->model->headless)
        clv_output(graph, "logits", clv_cast(graph, logits, CLV_F32), NULL);
    clv_output(graph, "hidden.last", clv_cast(graph, hidden, CLV_F32), NULL);
    if (has_loss(b)) {
        static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
        clv_layout layout = clv_named_layout(graph, clv_model_rules(b->opened), 2, names);
        clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){b->in.rows, b->in.columns}, &layout);
        clv_value loss = clv_vocab_parallel_cross_entropy(graph, logits, labels, CLV_IDS_IGNORED);
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
    int64_t n = clv_model_parameter_count(b->model);
    r->output = calloc((size_t)n + 4, sizeof *r->output);
    r->spec = calloc((size_t)n + 4, sizeof *r->spec);
    r->name = calloc((size_t)n + 4, sizeof *r->name);
    if (!r->output || !r->spec || !r->name)
        return clv_fail_memory(err, "results", (size_t)n * sizeof *r->name);
    CLV_TRY(add_result(r, "hidden.last", 3, (int64_t[]){b->in.rows, b->in.columns, b->model->hidden}, err));
    if (!b->model->headless)
        CLV_TRY(add_result(r, "logits", 3, (int64_t[]){b->in.rows, b->in.columns, b->model->vocab}, err));
    if (has_loss(b))
        CLV_TRY(add_result(r, "loss", 1, (int64_t[]){1}, err));
    r->n_forward = r->n;
    for (int64_t i = 0; a->gradients && i < n; i++) {
        char name[300];
        clv_parameter p = clv_model_parameter_at(b->model, i);
        snprintf(name, sizeof name, "d.%s", p.name);
        CLV_TRY(add_result(r, name, p.rank, p.shape, err));
    }
    return CLV_OK;
}

/* What the results are of: with it the file is a measure for others (verify --against). */
typedef struct given {
    int n;
    clv_tensor_spec spec[3];
    const void *data[3];
} given;

static void add_given(given *g, const char *name, clv_dtype dtype, const void *data, const clv_ids *in)
{
    if (!data)
        return;
    g->spec[g->n] = (clv_tensor_spec){.name = name, .dtype = dtype, .rank = 2, .shape = {in->rows, in->columns}};
    g->data[g->n++] = data;
}

static given given_of(const clv_ids *in)
{
    given g = {0};
    add_given(&g, "ids", CLV_I32, in->ids, in);
    add_given(&g, "token_types", CLV_I32, in->token_types, in);
    add_given(&g, "mask", CLV_U8, in->mask, in);
    return g;
}

static clv_status write_results(const results *r, const batch *b, const clv_forward_job *a, clv_error *err)
{
    enum { MOST = 6 };
    clv_safetensors_writer *writer;
    clv_tensor_spec spec[MOST];
    given g = given_of(&b->in);
    int64_t first = a->gradients ? clv_model_tensor_count(b->model) : 0;
    int n = r->n_forward + g.n;
    memcpy(spec, r->spec, (size_t)r->n_forward * sizeof *spec);
    memcpy(spec + r->n_forward, g.spec, (size_t)g.n * sizeof *spec);
    CLV_TRY(a->gradients ? clv_model_create_tensors(&writer, b->model, a->out, "grad.", spec, n, err)
                         : clv_safetensors_create(&writer, a->out, spec, n, err));
    clv_status status = CLV_OK;
    for (int i = 0; status == CLV_OK && i < n; i++)
        status = clv_safetensors_write(writer, first + i, NULL,
                                       i < r->n_forward ? r->output[i].data : g.data[i - r->n_forward], err);
    for (int i = r->n_forward; status == CLV_OK && i < r->n; i++)
        status = clv_model_write_parameter(writer, b->model, r->name[i] + 2, NULL, r->output[i].data, err);
    if (status == CLV_OK)
        return clv_safetensors_commit(writer, err);
    clv_safetensors_abandon(writer);
    return status;
}

/* The first element of result i that is NaN or infinite; what stands at padding is nobody's business. -1: none. */
static int64_t first_nonfinite(const results *r, const batch *b, int i)
{
    const float *x = r->output[i].data;
    int64_t n = elems_of(&r->spec[i]), rows = b->in.rows * b->in.columns;
    if (!b->in.mask || i >= r->n_forward || r->spec[i].rank != 3)
        return clv_dtype_first_nonfinite(CLV_F32, x, n);
    for (int64_t row = 0, width = n / rows; row < rows; row++) {
        int64_t at = b->in.mask[row] ? clv_dtype_first_nonfinite(CLV_F32, x + row * width, width) : -1;
        if (at >= 0)
            return row * width + at;
    }
    return -1;
}

/* ---- running ---- */

static clv_status run_once(results *r, const batch *b, const clv_forward_job *a, const clv_program *program,
                           bool find_nonfinite, clv_error *err)
{
    clv_session *session;
    clv_session_options options = clv_model_session_options(b->opened);
    options.find_nonfinite = find_nonfinite;
    clv_binding inputs[4] = {{"ids", b->in.ids}};
    int n = 1;
    if (has_loss(b))
        inputs[n++] = (clv_binding){"labels", b->in.labels};
    if (b->in.token_types)
        inputs[n++] = (clv_binding){"token_types", b->in.token_types};
    if (b->in.mask)
        inputs[n++] = (clv_binding){"mask", b->in.mask};
    CLV_TRY(clv_session_new(&session, clv_model_mesh(b->opened), &options, err));
    clv_status status = clv_session_load(session, program, err);
    double start = clv_now_seconds();
    if (status == CLV_OK)
        status = clv_session_run(session, program, inputs, n, r->output, r->n, err);
    if (a->seconds)
        *a->seconds = clv_now_seconds() - start;
    clv_session_free(session);
    return status;
}

/* Results that are not finite are an error, unless they are allowed; a second run finds out where they begin. */
static clv_status check_finite(results *r, const batch *b, const clv_forward_job *a, const clv_program *program,
                               clv_error *err)
{
    for (int i = 0; (!a->allow_nonfinite || a->why) && i < r->n; i++) {
        char index[128], element[512];
        clv_error why = {0};
        int64_t at = first_nonfinite(r, b, i);
        if (at < 0)
            continue;
        if (a->allow_nonfinite) {
            run_once(r, b, a, program, true, a->why);
            return CLV_OK;
        }
        double value = (double)((float *)r->output[i].data)[at];
        clv_results_print_index(index, sizeof index, r->spec[i].rank, r->spec[i].shape, at);
        snprintf(element, sizeof element, "%s%s%s", i < r->n_forward ? "" : "gradient ", r->name[i], index);
        run_once(r, b, a, program, true, &why);
        return clv_results_refuse(element, value, &why, err);
    }
    return CLV_OK;
}

static clv_status run(const batch *b, const clv_forward_job *a, clv_error *err)
{
    clv_program *program = NULL;
    results r = {0};
    CLV_TRY(compile(&program, b, a, err));
    clv_status status = make_results(&r, b, a, err);
    if (status == CLV_OK)
        status = run_once(&r, b, a, program, false, err);
    if (status == CLV_OK)
        status = check_finite(&r, b, a, program, err);
    if (status == CLV_OK)
        status = write_results(&r, b, a, err);
    free_results(&r);
    clv_program_free(program);
    return status;
}

static clv_status check(const batch *b, const clv_forward_job *a, clv_error *err)
{
    if (b->in.columns > b->model->max_positions)
        return clv_fail(err, CLV_EINVAL, "%s: %lld tokens a sequence; the model takes 1 to %lld", a->ids,
                        (long long)b->in.columns, (long long)b->model->max_positions);
    if (a->gradients && !is_decoder(b->model))
        return clv_fail(err, CLV_EINVAL, "--grad: %s has no next-token loss; valid for decoders",
                        clv_model_config_type(b->model));
    if (a->gradients && !has_loss(b))
        return clv_fail(err, CLV_EINVAL,
                        "--grad: %s: no token follows another one, so there is no loss; give two tokens", a->ids);
    return CLV_OK;
}

clv_status clv_forward_run(const clv_forward_job *job, const char *command, clv_error *err)
{
    clv_model *model;
    clv_model_info info = {.size = sizeof info};
    CLV_TRY(clv_model_option_open(&model, job->model, command, err));
    batch b = {.opened = model, .model = &model->config};
    clv_status status = clv_model_describe(model, &info, err);
    if (status == CLV_OK)
        status = clv_ids_read(&b.in, job->ids, &info, job->among_results, err);
    if (status == CLV_OK)
        status = check(&b, job, err);
    if (status == CLV_OK)
        clv_note_unused_tensors(model, job->model->path, command);
    if (status == CLV_OK)
        status = run(&b, job, err);
    clv_ids_free(&b.in);
    clv_model_close(model);
    return status;
}
