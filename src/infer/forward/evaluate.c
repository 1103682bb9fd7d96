/* evaluate.c - clv_evaluate: one forward (and backward) pass whose hidden states, logits, loss and gradients are kept
 * as tensors.
 */
#include "cleave/evaluate.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/threads/wait.h"
#include "base/versioned_structs.h"
#include "graph/graph.h"
#include "infer/forward/evaluate.h"
#include "io/checkpoint/safetensors.h"
#include "models/model.h"
#include "models/weights/parameter_map.h"
#include "runtime/diagnostics/trace_recorder.h"

enum { NAME = 300 };

struct clv_evaluation {
    const clv_model *model;
    clv_evaluate_options given;
    clv_program *program;
    /* results, bound by name: those of ops; hidden.last, logits, loss; the gradients in the order of parameters */
    int n, n_ops, n_forward, room;
    clv_output_binding *output;
    clv_tensor_spec *spec;
    char (*name)[NAME];
    double seconds;
    clv_error why; /* where what is not finite begins */
};

static int64_t elems_of(const clv_tensor_spec *spec)
{
    int64_t n = 1;
    for (int d = 0; d < spec->rank; d++)
        n *= spec->shape[d];
    return n;
}

/* ---- the program and its results ---- */

static clv_status make_room(clv_evaluation *e, int n, clv_error *err)
{
    if (n <= e->room)
        return CLV_OK;
    int room = 2 * n;
    clv_output_binding *output = realloc(e->output, (size_t)room * sizeof *output);
    e->output = output ? output : e->output;
    clv_tensor_spec *spec = realloc(e->spec, (size_t)room * sizeof *spec);
    e->spec = spec ? spec : e->spec;
    char(*name)[NAME] = realloc(e->name, (size_t)room * sizeof *name);
    e->name = name ? name : e->name;
    if (!output || !spec || !name)
        return clv_fail_memory(err, "results", (size_t)room * sizeof *name);
    e->room = room;
    return CLV_OK;
}

/* Names move as there come more of them: what points to them is set once all are there. */
static clv_status add_result(clv_evaluation *e, clv_graph *graph, const char *name, clv_value value, clv_error *err)
{
    CLV_TRY(clv_graph_status(graph, err));
    clv_type type = clv_graph_type(graph, value);
    CLV_TRY(make_room(e, e->n + 1, err));
    int i = e->n;
    snprintf(e->name[i], sizeof e->name[0], "%s", name);
    e->spec[i] = (clv_tensor_spec){.dtype = CLV_F32, .rank = type.rank ? type.rank : 1, .shape = {1}};
    memcpy(e->spec[i].shape, type.shape, (size_t)type.rank * sizeof *type.shape);
    size_t bytes = (size_t)elems_of(&e->spec[i]) * sizeof(float);
    e->output[i] = (clv_output_binding){NULL, malloc(bytes + 1)};
    if (!e->output[i].data)
        return clv_fail_memory(err, name, bytes);
    e->n++;
    clv_output(graph, name, clv_cast(graph, value, CLV_F32), NULL);
    return clv_graph_status(graph, err);
}

static clv_status add_ops(clv_evaluation *e, clv_graph *graph, int n_ops, clv_error *err)
{
    for (int i = 0; i < n_ops; i++) {
        const clv_op op = graph->ops[i];
        for (int r = 0; r < op.n_out && r < 2; r++) {
            char name[NAME];
            snprintf(name, sizeof name, "%.250s #%d%s", op.name, i, r ? " (second)" : "");
            if (clv_dtype_is_float(graph->values[op.out[r]].type.dtype))
                CLV_TRY(add_result(e, graph, name, (clv_value){op.out[r]}, err));
        }
    }
    e->n_ops = e->n;
    return CLV_OK;
}

static clv_status add_each_gradient(clv_evaluation *e, clv_graph *graph, const clv_value *wrt, const clv_value *d,
                                    int n, clv_error *err)
{
    for (int i = 0; i < n; i++) {
        char name[NAME];
        snprintf(name, sizeof name, "d.%.290s", clv_value_name(graph, wrt[i]));
        CLV_TRY(add_result(e, graph, name, d[i], err));
    }
    return CLV_OK;
}

static clv_status add_gradients(clv_evaluation *e, clv_graph *graph, clv_value loss, clv_error *err)
{
    int n = clv_graph_parameters(graph, NULL, 0);
    clv_value *wrt = calloc((size_t)n + 1, sizeof *wrt), *d = calloc((size_t)n + 1, sizeof *d);
    clv_status status = wrt && d ? CLV_OK : clv_fail_memory(err, "gradients", (size_t)n * sizeof *wrt);
    if (status == CLV_OK) {
        clv_graph_parameters(graph, wrt, n);
        clv_gradients(graph, loss, CLV_NONE, wrt, n, d);
        status = add_each_gradient(e, graph, wrt, d, n, err);
    }
    free(wrt);
    free(d);
    return status;
}

static clv_value loss_of(clv_graph *graph, const clv_evaluation *e, clv_value logits, clv_value hidden)
{
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
    if (!e->given.labels)
        return clv_reduce(graph, CLV_MEAN, clv_mul(graph, hidden, hidden), (int[]){0, 1, 2}, 3, false);
    clv_layout layout = clv_named_layout(graph, &e->model->rules, 2, names);
    clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){e->given.batch, e->given.seq}, &layout);
    return clv_vocab_parallel_cross_entropy(graph, logits, labels, CLV_IGNORE_INDEX);
}

static clv_status build(clv_evaluation *e, clv_graph *graph, clv_error *err)
{
    clv_value hidden = CLV_NONE, loss = CLV_NONE;
    clv_model_graph_options how = {.batch = e->given.batch,
                                   .seq = e->given.seq,
                                   .padding_mask = e->given.mask != NULL,
                                   .token_types = e->given.token_types != NULL};
    clv_value logits = clv_model_forward(graph, e->model, &how, &hidden);
    if (e->given.labels || e->given.gradients)
        loss = loss_of(graph, e, logits, hidden);
    if (e->given.each_op)
        CLV_TRY(add_ops(e, graph, graph->n_ops, err));
    CLV_TRY(add_result(e, graph, "hidden.last", hidden, err));
    if (!e->model->config.headless)
        CLV_TRY(add_result(e, graph, "logits", logits, err));
    if (e->given.labels)
        CLV_TRY(add_result(e, graph, "loss", loss, err));
    e->n_forward = e->n;
    return e->given.gradients ? add_gradients(e, graph, loss, err) : CLV_OK;
}

static clv_status compile(clv_evaluation *e, clv_error *err)
{
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, &e->model->mesh, err));
    clv_status status = build(e, graph, err);
    for (int i = 0; i < e->n; i++)
        e->output[i].name = e->spec[i].name = e->name[i];
    if (status == CLV_OK)
        status = clv_model_compile(&e->program, e->model, graph, err);
    clv_graph_free(graph);
    return status;
}

/* ---- results ---- */

/* The first element of result i that is NaN or infinite; what stands at padding is nobody's business. -1: none. */
static int64_t first_nonfinite(const clv_evaluation *e, int i)
{
    const float *x = e->output[i].data;
    int64_t n = elems_of(&e->spec[i]), rows = e->given.batch * e->given.seq;
    if (!e->given.mask || i < e->n_ops || i >= e->n_forward || e->spec[i].rank != 3)
        return clv_dtype_first_nonfinite(CLV_F32, x, n);
    for (int64_t row = 0, width = n / rows; row < rows; row++) {
        int64_t at = e->given.mask[row] ? clv_dtype_first_nonfinite(CLV_F32, x + row * width, width) : -1;
        if (at >= 0)
            return row * width + at;
    }
    return -1;
}

/* ---- running ---- */

static clv_status run_once(clv_evaluation *e, bool find_nonfinite, clv_error *err)
{
    clv_session *session;
    clv_session_options options = clv_model_session_options(e->model);
    const clv_evaluate_options *g = &e->given;
    options.find_nonfinite = find_nonfinite;
    clv_input_binding inputs[4] = {{"ids", g->ids}};
    int n = 1;
    if (g->labels)
        inputs[n++] = (clv_input_binding){"labels", g->labels};
    if (g->token_types)
        inputs[n++] = (clv_input_binding){"token_types", g->token_types};
    if (g->mask)
        inputs[n++] = (clv_input_binding){"mask", g->mask};
    CLV_TRY(clv_session_new(&session, &e->model->mesh, &options, err));
    clv_status status = clv_session_load(session, e->program, err);
    bool traced = status == CLV_OK && g->trace && !find_nonfinite;
    if (traced)
        status = clv_trace_begin(session, err);
    double start = clv_now_seconds();
    if (status == CLV_OK)
        status = clv_session_run(session, e->program, inputs, n, e->output, e->n, err);
    e->seconds = clv_now_seconds() - start;
    if (traced)
        status = clv_trace_end_after(session, g->trace, status, err);
    clv_session_free(session);
    return status;
}

static clv_status refuse(clv_evaluation *e, int i, int64_t at, clv_error *err)
{
    char index[128], element[512];
    double value = (double)((float *)e->output[i].data)[at];
    clv_index_print(index, sizeof index, e->spec[i].rank, e->spec[i].shape, at);
    snprintf(element, sizeof element, "%s%s%s", i < e->n_forward ? "" : "gradient ", e->name[i], index);
    if (run_once(e, true, &e->why) != CLV_ENONFINITE)
        return clv_fail(err, CLV_ENONFINITE, "%s is %g", element, value);
    return clv_fail(err, CLV_ENONFINITE, "%s is %g; it begins at %.320s", element, value, e->why.message);
}

/* Results that are not finite are an error, unless they are allowed; a second run finds out where they begin. */
static clv_status check_finite(clv_evaluation *e, clv_error *err)
{
    double seconds = e->seconds;
    for (int i = 0; (!e->given.allow_nonfinite || e->given.find_nonfinite) && i < e->n; i++) {
        int64_t at = first_nonfinite(e, i);
        if (at < 0)
            continue;
        if (!e->given.allow_nonfinite)
            return refuse(e, i, at, err);
        run_once(e, true, &e->why);
        e->seconds = seconds;
        return CLV_OK;
    }
    return CLV_OK;
}

static clv_status check(const clv_evaluation *e, clv_error *err)
{
    const clv_evaluate_options *g = &e->given;
    const clv_model_config *model = &e->model->config;
    CLV_TRY(clv_require(g->ids != NULL, "clv_evaluate", "ids", err));
    if (g->batch < 1 || g->seq < 1 || g->seq > model->max_positions)
        return clv_fail(err, CLV_EINVAL, "%lld sequences of %lld tokens; the model takes 1 to %lld",
                        (long long)g->batch, (long long)g->seq, (long long)model->max_positions);
    if (g->labels && model->headless)
        return clv_fail(err, CLV_EUNSUPPORTED, "this %s has no head, and so no loss",
                        clv_model_config_model_type(model));
    if (g->gradients && e->model->quant != CLV_QUANT_NONE)
        return clv_fail(err, CLV_EUNSUPPORTED, "gradients of weights in %s; valid: of floats",
                        clv_quant_name(e->model->quant));
    if (g->gradients && !g->labels && !model->headless)
        return clv_fail(err, CLV_EINVAL, "gradients are of a loss; give labels");
    CLV_TRY(clv_model_config_check_ids(model, g->ids, g->batch, g->seq, err));
    return g->labels ? clv_model_config_check_labels(model, g->labels, g->batch, g->seq, NULL, err) : CLV_OK;
}

clv_status clv_evaluate(clv_evaluation **out, const clv_model *model, const clv_evaluate_options *what, clv_error *err)
{
    static const char call[] = "clv_evaluate";
    clv_evaluate_options given;
    CLV_TRY(clv_require(out && model && what, call, "out, a model, and what to run", err));
    CLV_TRY(clv_options_copy_in(&given, sizeof given, offsetof(clv_evaluate_options, trace), what, call, err));
    clv_evaluation *e = calloc(1, sizeof *e);
    if (!e)
        return clv_fail_memory(err, "results", sizeof *e);
    e->model = model;
    e->given = given;
    clv_status status = check(e, err);
    if (status == CLV_OK)
        status = compile(e, err);
    if (status == CLV_OK)
        status = run_once(e, false, err);
    if (status == CLV_OK)
        status = check_finite(e, err);
    if (status != CLV_OK) {
        clv_evaluation_free(e);
        return status;
    }
    *out = e;
    return CLV_OK;
}

void clv_evaluation_free(clv_evaluation *e)
{
    if (!e)
        return;
    for (int i = 0; e->output && i < e->n; i++)
        free(e->output[i].data);
    free(e->output);
    free(e->spec);
    free(e->name);
    clv_program_free(e->program);
    free(e);
}

/* ---- what came of it ---- */

const clv_evaluate_options *clv_evaluation_get_options(const clv_evaluation *e)
{
    return &e->given;
}

int clv_evaluation_count(const clv_evaluation *e)
{
    return e ? e->n : 0;
}

clv_status clv_evaluation_at(const clv_evaluation *e, int i, clv_evaluation_tensor *out, clv_error *err)
{
    static const char call[] = "clv_evaluation_at";
    CLV_TRY(clv_require(e && out, call, "an evaluation and out", err));
    if (i < 0 || i >= e->n)
        return clv_fail(err, CLV_EINVAL, "%s: result %d of %d", call, i, e->n);
    clv_evaluation_tensor t = {
        .name = e->name[i], .rank = e->spec[i].rank, .data = e->output[i].data, .is_gradient = i >= e->n_forward};
    memcpy(t.shape, e->spec[i].shape, sizeof t.shape);
    return clv_struct_copy_out(out, sizeof t, sizeof t, &t, call, err);
}

double clv_evaluation_seconds(const clv_evaluation *e)
{
    return e ? e->seconds : 0;
}

const char *clv_evaluation_nonfinite_origin(const clv_evaluation *e)
{
    return e && e->why.code == CLV_ENONFINITE ? e->why.message : NULL;
}

/* ---- the file ---- */

/* What the results are of: with it the file is a measure for others (verify --against). */
typedef struct given {
    int n;
    clv_tensor_spec spec[3];
    const void *data[3];
} given;

static void add_given(given *g, const char *name, clv_dtype dtype, const void *data, const clv_evaluate_options *of)
{
    if (!data)
        return;
    g->spec[g->n] = (clv_tensor_spec){.name = name, .dtype = dtype, .rank = 2, .shape = {of->batch, of->seq}};
    g->data[g->n++] = data;
}

static given given_of(const clv_evaluate_options *of)
{
    given g = {0};
    add_given(&g, "ids", CLV_I32, of->ids, of);
    add_given(&g, "token_types", CLV_I32, of->token_types, of);
    add_given(&g, "mask", CLV_U8, of->mask, of);
    return g;
}

clv_status clv_evaluation_write(const clv_evaluation *e, const char *path, clv_error *err)
{
    enum { MOST = 6 };
    CLV_TRY(clv_require(e && path, "clv_evaluation_write", "an evaluation and a path", err));
    if (e->given.gradients && e->model->adapters)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s: gradients of adapters are those of no tensor of the checkpoint; valid: results alone, or "
                        "gradients of the model without adapters",
                        path);
    const clv_model_config *model = &e->model->config;
    clv_safetensors_writer *writer;
    clv_tensor_spec spec[MOST];
    given g = given_of(&e->given);
    int64_t first = e->given.gradients ? clv_model_tensor_count(model) : 0;
    int own = e->n_forward - e->n_ops, n = own + g.n;
    memcpy(spec, e->spec + e->n_ops, (size_t)own * sizeof *spec);
    memcpy(spec + own, g.spec, (size_t)g.n * sizeof *spec);
    CLV_TRY(e->given.gradients ? clv_model_create_tensors(&writer, model, path, "grad.", spec, n, err)
                               : clv_safetensors_create(&writer, path, spec, n, err));
    clv_status status = CLV_OK;
    for (int i = 0; status == CLV_OK && i < n; i++)
        status = clv_safetensors_write(writer, first + i, NULL,
                                       i < own ? e->output[e->n_ops + i].data : g.data[i - own], err);
    for (int i = e->n_forward; status == CLV_OK && i < e->n; i++)
        status = clv_model_write_parameter(writer, model, e->name[i] + 2, NULL, CLV_F32, e->output[i].data, err);
    if (status == CLV_OK)
        return clv_safetensors_commit(writer, err);
    clv_safetensors_abort(writer);
    return status;
}
