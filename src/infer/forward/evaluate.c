/* evaluate.c - clv_evaluate: one forward (and backward) pass whose hidden states, logits, loss and gradients are kept
 * as tensors.
 */
#include <stdio.h>

#include "base/threads/wait.h"
#include "base/memory/grow.h"
#include "graph/graph.h"
#include "infer/forward/evaluate.h"
#include "models/model.h"
#include "models/weights/parameter_map.h"
#include "runtime/diagnostics/trace_recorder.h"
#include "tensor/box_runs.h"

/* ---- the program and its results ---- */

static clv_status add_result(clv_evaluation *e, clv_graph *graph, const char *name, clv_value value, clv_error *err)
{
    CLV_TRY(clv_graph_status(graph, err));
    const clv_type type = clv_graph_type(graph, value);
    CLV_TRY(clv_grow(&e->result, &e->capacity, e->n + 1, sizeof *e->result, "results", err));
    clv_evaluation_result *r = &e->result[e->n];
    *r = (clv_evaluation_result){.rank = type.rank ? type.rank : 1, .shape = {1}};
    memcpy(r->shape, type.shape, (size_t)type.rank * sizeof *type.shape);
    r->elems = clv_shape_elems(r->rank, r->shape);
    r->data = malloc((size_t)r->elems * sizeof *r->data + 1);
    if (!r->data)
        return clv_fail_memory(err, name, (size_t)r->elems * sizeof *r->data);
    snprintf(r->name, sizeof r->name, "%s", name);
    e->n++;
    clv_output(graph, name, clv_cast(graph, value, CLV_F32), NULL);
    return clv_graph_status(graph, err);
}

static clv_status add_ops(clv_evaluation *e, clv_graph *graph, int n_ops, clv_error *err)
{
    for (int i = 0; i < n_ops; i++) {
        const clv_op op = graph->ops[i];
        for (int r = 0; r < op.n_out && r < 2; r++) {
            char name[CLV_RESULT_NAME_SIZE];
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
        char name[CLV_RESULT_NAME_SIZE];
        snprintf(name, sizeof name, "d.%.290s", clv_value_name(graph, wrt[i]));
        CLV_TRY(add_result(e, graph, name, d[i], err));
    }
    return CLV_OK;
}

static clv_status add_gradients(clv_evaluation *e, clv_graph *graph, clv_value loss, clv_error *err)
{
    int n = clv_graph_parameters(graph, NULL, 0);
    CLV_FREED clv_value *wrt = calloc((size_t)n + 1, sizeof *wrt), *d = calloc((size_t)n + 1, sizeof *d);
    if (!wrt || !d)
        return clv_fail_memory(err, "gradients", (size_t)n * sizeof *wrt);
    clv_graph_parameters(graph, wrt, n);
    clv_gradients(graph, loss, CLV_NONE, wrt, n, d);
    return add_each_gradient(e, graph, wrt, d, n, err);
}

static clv_value loss_of(clv_graph *graph, const clv_evaluation *e, clv_value logits, clv_value hidden)
{
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
    if (!e->options.labels)
        return clv_reduce(graph, CLV_MEAN, clv_mul(graph, hidden, hidden), (int[]){0, 1, 2}, 3, false);
    clv_layout layout = clv_named_layout(graph, &e->model->rules, 2, names);
    clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){e->options.batch, e->options.seq}, &layout);
    return clv_vocab_parallel_cross_entropy(graph, logits, labels, CLV_IGNORE_INDEX);
}

static clv_status build(clv_evaluation *e, clv_graph *graph, clv_error *err)
{
    clv_value hidden = CLV_NONE, loss = CLV_NONE;
    clv_model_graph_options how = {.batch = e->options.batch,
                                   .seq = e->options.seq,
                                   .padding_mask = e->options.mask != NULL,
                                   .token_types = e->options.token_types != NULL};
    clv_value logits = clv_model_forward(graph, e->model, &how, &hidden);
    if (e->options.labels || e->options.gradients)
        loss = loss_of(graph, e, logits, hidden);
    if (e->options.each_op)
        CLV_TRY(add_ops(e, graph, graph->n_ops, err));
    CLV_TRY(add_result(e, graph, "hidden.last", hidden, err));
    if (!e->model->config.headless)
        CLV_TRY(add_result(e, graph, "logits", logits, err));
    if (e->options.labels)
        CLV_TRY(add_result(e, graph, "loss", loss, err));
    e->n_forward = e->n;
    return e->options.gradients ? add_gradients(e, graph, loss, err) : CLV_OK;
}

static clv_status compile(clv_evaluation *e, clv_error *err)
{
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, &e->model->mesh, err));
    clv_status status = build(e, graph, err);
    if (status == CLV_OK)
        status = clv_model_compile(&e->program, e->model, graph, err);
    clv_graph_free(graph);
    return status;
}

/* ---- results ---- */

/* Index of the first element of result i that is NaN or infinite, padding excluded; -1: none. */
static int64_t first_nonfinite(const clv_evaluation *e, int i)
{
    const clv_evaluation_result *r = &e->result[i];
    const int64_t rows = e->options.batch * e->options.seq;
    if (!e->options.mask || i < e->n_ops || i >= e->n_forward || r->rank != 3)
        return clv_dtype_first_nonfinite(CLV_F32, r->data, r->elems);
    for (int64_t row = 0, width = r->elems / rows; row < rows; row++) {
        int64_t at = e->options.mask[row] ? clv_dtype_first_nonfinite(CLV_F32, r->data + row * width, width) : -1;
        if (at >= 0)
            return row * width + at;
    }
    return -1;
}

/* ---- running ---- */

static clv_status run_once(clv_evaluation *e, bool find_nonfinite, clv_error *err)
{
    clv_session *session;
    const clv_evaluate_options *g = &e->options;
    clv_input_binding inputs[4] = {{"ids", g->ids}};
    int n = 1;
    if (g->labels)
        inputs[n++] = (clv_input_binding){"labels", g->labels};
    if (g->token_types)
        inputs[n++] = (clv_input_binding){"token_types", g->token_types};
    if (g->mask)
        inputs[n++] = (clv_input_binding){"mask", g->mask};
    clv_output_binding *outputs = calloc((size_t)e->n + 1, sizeof *outputs);
    if (!outputs)
        return clv_fail_memory(err, "results", (size_t)e->n * sizeof *outputs);
    for (int i = 0; i < e->n; i++)
        outputs[i] = (clv_output_binding){e->result[i].name, e->result[i].data};
    clv_status status = clv_model_open_session(&session, e->model, find_nonfinite, err);
    if (status != CLV_OK) {
        free(outputs);
        return status;
    }
    status = clv_session_load(session, e->program, err);
    bool traced = status == CLV_OK && g->trace && !find_nonfinite;
    if (traced)
        status = clv_trace_begin(session, err);
    double start = clv_now_seconds();
    if (status == CLV_OK)
        status = clv_session_run(session, e->program, inputs, n, outputs, e->n, err);
    e->seconds = clv_now_seconds() - start;
    if (traced)
        status = clv_trace_end_after(session, g->trace, status, err);
    clv_session_free(session);
    free(outputs);
    return status;
}

static clv_status fail_nonfinite(clv_evaluation *e, int i, int64_t at, clv_error *err)
{
    const clv_evaluation_result *r = &e->result[i];
    char index[128], element[512];
    double value = (double)r->data[at];
    clv_index_print(index, sizeof index, r->rank, r->shape, at);
    snprintf(element, sizeof element, "%s%s%s", i < e->n_forward ? "" : "gradient ", r->name, index);
    run_once(e, true, &e->origin);
    return clv_model_fail_nonfinite(element, value, &e->origin, err);
}

/* Fails for non-finite results unless they are allowed; a second run finds their origin. */
static clv_status check_finite(clv_evaluation *e, clv_error *err)
{
    double seconds = e->seconds;
    for (int i = 0; (!e->options.allow_nonfinite || e->options.find_nonfinite) && i < e->n; i++) {
        int64_t at = first_nonfinite(e, i);
        if (at < 0)
            continue;
        if (!e->options.allow_nonfinite)
            return fail_nonfinite(e, i, at, err);
        run_once(e, true, &e->origin);
        e->seconds = seconds;
        return CLV_OK;
    }
    return CLV_OK;
}

static clv_status check(const clv_evaluation *e, clv_error *err)
{
    const clv_evaluate_options *g = &e->options;
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

clv_status clv_evaluate(clv_evaluation **out, const clv_model *model, const clv_evaluate_options *options,
                        clv_error *err)
{
    clv_evaluate_options taken;
    CLV_TRY(clv_require(out && model && options, __func__, "out, a model and options", err));
    CLV_TRY(clv_options_copy_in(&taken, sizeof taken, sizeof taken, options, __func__, err));
    clv_evaluation *e = calloc(1, sizeof *e);
    if (!e)
        return clv_fail_memory(err, "results", sizeof *e);
    e->model = model;
    e->options = taken;
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
    for (int i = 0; i < e->n; i++)
        free(e->result[i].data);
    free(e->result);
    clv_program_free(e->program);
    free(e);
}

int clv_evaluation_count(const clv_evaluation *e)
{
    return e ? e->n : 0;
}

clv_status clv_evaluation_at(const clv_evaluation *e, int i, clv_evaluation_tensor *out, clv_error *err)
{
    CLV_TRY(clv_require(e && out, __func__, "an evaluation and out", err));
    if (i < 0 || i >= e->n)
        return clv_fail(err, CLV_EINVAL, "%s: result %d of %d", __func__, i, e->n);
    const clv_evaluation_result *r = &e->result[i];
    clv_evaluation_tensor t = {.name = r->name, .rank = r->rank, .data = r->data, .is_gradient = i >= e->n_forward};
    memcpy(t.shape, r->shape, sizeof t.shape);
    return clv_struct_copy_out(out, sizeof t, sizeof t, &t, __func__, err);
}

double clv_evaluation_seconds(const clv_evaluation *e)
{
    return e ? e->seconds : 0;
}

const char *clv_evaluation_nonfinite_origin(const clv_evaluation *e)
{
    return e && e->origin.code == CLV_ENONFINITE ? e->origin.message : NULL;
}

/* ---- the file ---- */

/* The tensors of the file that are no gradients: inputs, and results except those of ops. */
typedef struct file_tensors {
    int n;
    clv_tensor_spec spec[6];
    const void *data[6];
} file_tensors;

static void add_tensor(file_tensors *f, const char *name, clv_dtype dtype, int rank, const int64_t *shape,
                       const void *data)
{
    if (!data)
        return;
    f->spec[f->n] = (clv_tensor_spec){.name = name, .dtype = dtype, .rank = rank};
    memcpy(f->spec[f->n].shape, shape, (size_t)rank * sizeof *shape);
    f->data[f->n++] = data;
}

clv_status clv_evaluation_write(const clv_evaluation *e, const char *path, clv_error *err)
{
    CLV_TRY(clv_require(e && path, __func__, "an evaluation and a path", err));
    const clv_evaluate_options *o = &e->options;
    if (o->gradients && e->model->adapters)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s: gradients of adapters are those of no tensor of the checkpoint; valid: results alone, or "
                        "gradients of the model without adapters",
                        path);
    const clv_model_config *config = &e->model->config;
    const int64_t shape[] = {o->batch, o->seq}, first = o->gradients ? clv_model_tensor_count(config) : 0;
    clv_safetensors_writer *writer;
    file_tensors f = {0};
    for (int i = e->n_ops; i < e->n_forward; i++)
        add_tensor(&f, e->result[i].name, CLV_F32, e->result[i].rank, e->result[i].shape, e->result[i].data);
    add_tensor(&f, "ids", CLV_I32, 2, shape, o->ids);
    add_tensor(&f, "token_types", CLV_I32, 2, shape, o->token_types);
    add_tensor(&f, "mask", CLV_U8, 2, shape, o->mask);
    CLV_TRY(o->gradients ? clv_model_create_tensors(&writer, config, path, "grad.", f.spec, f.n, err)
                         : clv_safetensors_create(&writer, path, f.spec, f.n, err));
    clv_status status = CLV_OK;
    for (int i = 0; status == CLV_OK && i < f.n; i++)
        status = clv_safetensors_write(writer, first + i, NULL, f.data[i], err);
    for (int i = e->n_forward; status == CLV_OK && i < e->n; i++)
        status = clv_model_write_parameter(writer, config, e->result[i].name + strlen("d."), NULL, CLV_F32,
                                           e->result[i].data, err);
    if (status == CLV_OK)
        return clv_safetensors_commit(writer, err);
    clv_safetensors_abort(writer);
    return status;
}
