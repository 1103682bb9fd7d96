/* imported_run.c - programs of others (-m FILE): reading, compiling for the mesh of the options, running on
 * values of a file.
 */
#include "cli/evaluation/imported_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cli/output/exit_code.h"
#include "cli/output/messages.h"
#include "cli/timing/clock.h"

/* The program is what is asked for: what it has that is not supported makes the request wrong. */
static clv_status as_usage(clv_status status, const clv_error *why, clv_error *err)
{
    if (status == CLV_EUNSUPPORTED || status == CLV_EFORMAT || status == CLV_ENOTFOUND)
        return clv_fail(err, CLV_EINVAL, "%s", why->message);
    if (status != CLV_OK && err)
        *err = *why;
    return status;
}

clv_status clv_imported_read(clv_import **out, const char *path, const char *layouts, clv_error *err)
{
    clv_error why = {0};
    clv_import *program;
    CLV_TRY(as_usage(clv_import_read(&program, path, &why), &why, err));
    clv_status status = layouts ? as_usage(clv_import_layouts(program, layouts, &why), &why, err) : CLV_OK;
    if (status == CLV_OK)
        *out = program;
    else
        clv_import_free(program);
    return status;
}

clv_status clv_imported_mesh(clv_mesh *out, const clv_mesh_option *option, const clv_import *program, clv_error *err)
{
    char text[64];
    if (option->rules || option->sp)
        return clv_fail(err, CLV_EINVAL,
                        "--rules has no effect on a program: its shardings are those of its text, or of --layouts");
    if (option->text)
        return clv_mesh_option_parse(out, option->text, err);
    if (option->tp <= 1 && clv_import_mesh(program, out))
        return CLV_OK;
    snprintf(text, sizeof text, "model=%lld", (long long)(option->tp > 0 ? option->tp : 1));
    return clv_mesh_parse(out, text, err);
}

clv_status clv_imported_graph(clv_graph **out, clv_import *program, const clv_mesh *mesh, const clv_import_options *how,
                              clv_error *err)
{
    clv_graph *graph;
    clv_error why = {0};
    CLV_TRY(clv_graph_new(&graph, mesh, err));
    clv_status status = as_usage(clv_import_stablehlo(graph, program, how, &why), &why, err);
    if (status == CLV_OK)
        *out = graph;
    else
        clv_graph_free(graph);
    return status;
}

clv_status clv_imported_compile(clv_program **out, clv_import *program, const clv_mesh *mesh,
                                const clv_compile_options *options, const clv_import_options *how, clv_error *err)
{
    clv_graph *graph;
    CLV_TRY(clv_imported_graph(&graph, program, mesh, how, err));
    clv_status status = clv_compile(out, graph, options, err);
    clv_graph_free(graph);
    return status;
}

const char *clv_options_of_run_program(const char *path, const char **what)
{
    *what = "a program of others";
    return clv_import_is_program(path)
               ? "--inputs, --against, --out, --grad, --allow-nonfinite, --no-patterns, --layouts, --mesh, -tp, --tp, "
                 "--threads, --comm, --comm-timeout, --flight-recorder, --overlap, --check, --comm-dtype, --hardware, "
                 "--seed, --tolerance, --json, --wide"
               : NULL;
}

/* ---- notes ---- */

static bool splits(const clv_layout *layout, const char *axis, const clv_mesh *mesh)
{
    for (int d = 0; d <= layout->rank; d++) {
        const clv_subaxis *subs;
        for (int i = 0, n = clv_layout_axes(&subs, layout, d); i < n; i++)
            if (strcmp(mesh->axis[subs[i].axis].name, axis) == 0)
                return true;
    }
    return false;
}

/* Whether a tensor is split over the axis, or moved; *most: the largest dimension of inputs and results. */
static bool uses_axis(int64_t *most, const clv_program *compiled, const char *axis)
{
    const clv_mesh *mesh = clv_program_mesh(compiled);
    clv_program_tensor t = {.size = sizeof t};
    clv_collective c = {.size = sizeof c};
    bool uses = false;
    *most = 0;
    for (int i = 0; clv_program_tensor_at(compiled, i, &t, NULL) == CLV_OK && t.name; i++) {
        uses = uses || splits(&t.layout, axis, mesh);
        for (int d = 0; d < t.type.rank; d++)
            *most = t.type.shape[d] > *most ? t.type.shape[d] : *most;
    }
    for (int i = 0; !uses && i < clv_program_collective_count(compiled); i++)
        uses = clv_program_collective(compiled, i, &c, NULL) == CLV_OK &&
               (splits(&c.from, axis, mesh) || splits(&c.to, axis, mesh));
    return uses;
}

void clv_imported_note_mesh(const clv_program *compiled)
{
    const clv_mesh *mesh = clv_program_mesh(compiled);
    for (int a = 0; a < mesh->n_axes; a++) {
        const char *name = mesh->axis[a].name;
        int64_t most, ranks = mesh->axis[a].size;
        if (ranks == 1)
            continue;
        if (!uses_axis(&most, compiled, name))
            clv_log("note: nothing is split over %s: its %lld ranks all do the same; --layouts FILE, or shardings in "
                    "JAX, say what they share",
                    name, (long long)ranks);
        else if (most < ranks)
            clv_log("note: %s has %lld ranks, and no input or result has more than %lld elements in a dimension: ranks "
                    "have nothing to do",
                    name, (long long)ranks, (long long)most);
    }
}

void clv_imported_note_faults(const clv_import *program)
{
    clv_import_fault_info fault = {.size = sizeof fault};
    int n = 0;
    for (; clv_import_fault(program, n, &fault, NULL) == CLV_OK && fault.kind; n++)
        if (n < 3)
            clv_log("note: %s over %s: %s: %s%s", fault.kind, fault.axes, fault.tensor, fault.text,
                    fault.output ? "; cleave verify measures whether devices differ" : "");
    if (n > 3)
        clv_log("note: cleave import lists %d more of them", n - 3);
}

/* ---- values ---- */

/* Inputs, with the parameters that the file has in place of the program's, and outputs, with memory. */
static clv_status list_tensors(clv_imported_run *run, const clv_checkpoint *file, clv_error *err)
{
    clv_program_tensor t = {.size = sizeof t};
    int64_t at;
    int n = 0;
    while (clv_program_tensor_at(run->compiled, n, &t, NULL) == CLV_OK && t.name)
        n++;
    run->in = calloc((size_t)n + 1, sizeof *run->in);
    run->out = calloc((size_t)n + 1, sizeof *run->out);
    if (!run->in || !run->out)
        return clv_fail_memory(err, "inputs", (size_t)n * sizeof *run->in);
    for (int i = 0; i < n; i++) {
        (void)clv_program_tensor_at(run->compiled, i, &t, NULL);
        bool is_state = t.kind == CLV_NAMED_STATE;
        if (is_state && (!file || clv_checkpoint_find(&at, file, t.name, NULL) != CLV_OK))
            continue;
        size_t bytes = (size_t)clv_type_elems(&t.type) * clv_dtype_size(t.type.dtype);
        clv_imported_tensor made = {t.name, t.type, calloc(bytes + 1, 1), is_state};
        if (!made.data)
            return clv_fail_memory(err, t.name, bytes);
        if (t.kind == CLV_NAMED_OUTPUT)
            run->out[run->n_out++] = made;
        else
            run->in[run->n_in++] = made;
    }
    return CLV_OK;
}

/* A box (NULL: all) of tensor i of a file, which must have this shape. */
static clv_status read_box(void *out, const clv_checkpoint *file, int64_t i, const clv_type *type, const clv_shard *box,
                           clv_error *err)
{
    char want[CLV_TYPE_TEXT];
    clv_tensor_info info = {.size = sizeof info};
    CLV_TRY(clv_checkpoint_tensor(file, i, &info, err));
    bool fits = info.rank == type->rank;
    for (int d = 0; fits && d < info.rank; d++)
        fits = info.shape[d] == type->shape[d];
    clv_type_print(want, sizeof want, type);
    if (!fits)
        return clv_fail(err, CLV_ESHAPE, "%s does not have the shape that it has in the program: %s", info.name, want);
    if (clv_dtype_is_float(info.dtype) != clv_dtype_is_float(type->dtype))
        return clv_fail(err, CLV_EDTYPE, "%s is %s in the file; the program has %s", info.name,
                        clv_dtype_name(info.dtype), want);
    return clv_checkpoint_read(file, i, box, type->dtype, out, err);
}

static clv_status read_input(clv_imported_tensor *to, const clv_checkpoint *file, const char *path, clv_error *err)
{
    int64_t i;
    if (clv_checkpoint_find(&i, file, to->name, NULL) != CLV_OK)
        return clv_fail(err, CLV_EINVAL,
                        "%s has no tensor %s, an input of the program; --inputs FILE names the file that has them",
                        path, to->name);
    return read_box(to->data, file, i, &to->type, NULL, err);
}

/* Where parameters are from: the file of the inputs, or the program. */
typedef struct state_values {
    const clv_checkpoint *file; /* NULL: none */
    clv_import *program;
} state_values;

static clv_status read_state(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                             int *known, clv_error *err)
{
    const state_values *from = arg;
    int64_t i;
    if (!from->file || clv_checkpoint_find(&i, from->file, name, NULL) != CLV_OK)
        return clv_import_state_source(from->program, name, type, box, out, known, err);
    *known = 1;
    return read_box(out, from->file, i, type, box, err);
}

static bool is_of_program(const clv_imported_run *run, const char *name)
{
    clv_import_argument_or_result_info info = {.size = sizeof info};
    for (int i = 0; clv_import_argument_or_result(run->program, i, &info, NULL) == CLV_OK && info.name; i++)
        if (strcmp(info.name, name) == 0)
            return true;
    return strncmp(name, "grad.", strlen("grad.")) == 0;
}

/* Names the first tensor of a file that the program does not have: a misspelt parameter would not be taken. */
static void note_unused(const clv_imported_run *run, const clv_checkpoint *file, const char *path)
{
    clv_tensor_info info = {.size = sizeof info};
    for (int64_t i = 0; i < clv_checkpoint_tensor_count(file); i++)
        if (clv_checkpoint_tensor(file, i, &info, NULL) == CLV_OK && !is_of_program(run, info.name)) {
            clv_log("note: %s: the program has no tensor %s; cleave import lists what it has", path, info.name);
            return;
        }
}

static clv_status read_inputs(clv_imported_run *run, const clv_checkpoint *file, const char *path, clv_error *err)
{
    note_unused(run, file, path);
    for (int i = 0; i < run->n_in; i++)
        CLV_TRY(read_input(&run->in[i], file, path, err));
    return CLV_OK;
}

static void make_inputs(clv_imported_run *run, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    for (int i = 0; i < run->n_in; i++) {
        const clv_imported_tensor *t = &run->in[i];
        for (int64_t e = 0; e < clv_type_elems(&t->type); e++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            double unit = (double)(state >> 40) * 0x1p-24;
            clv_dtype_store(t->type.dtype, t->data, e,
                            clv_dtype_is_float(t->type.dtype) ? 2 * unit - 1
                            : unit < 0.5                      ? 0
                                                              : 1);
        }
    }
}

/* ---- running ---- */

typedef struct bound {
    clv_session *session;
    const clv_program *program;
    int n_in, n_out;
    clv_input_binding *inputs;
    clv_output_binding *outputs;
} bound;

static clv_status time_run(void *arg, int64_t i, double *seconds, clv_error *err)
{
    const bound *b = arg;
    double start = clv_clock_seconds();
    CLV_TRY(clv_session_run(b->session, b->program, b->inputs, b->n_in, b->outputs, b->n_out, err));
    *seconds = clv_clock_seconds() - start;
    return CLV_OK;
}

static clv_status run_session(clv_imported_run *run, clv_session *session, int64_t timed, clv_error *err)
{
    enum { WARM_UPS = 2 };
    bound b = {.session = session,
               .program = run->compiled,
               .n_out = run->n_out,
               .inputs = calloc((size_t)run->n_in + 1, sizeof *b.inputs),
               .outputs = calloc((size_t)run->n_out + 1, sizeof *b.outputs)};
    clv_status status = b.inputs && b.outputs ? CLV_OK : clv_fail_memory(err, "bindings", 0);
    for (int i = 0; status == CLV_OK && i < run->n_in; i++)
        if (!run->in[i].is_state)
            b.inputs[b.n_in++] = (clv_input_binding){run->in[i].name, run->in[i].data};
    for (int i = 0; status == CLV_OK && i < run->n_out; i++)
        b.outputs[i] = (clv_output_binding){run->out[i].name, run->out[i].data};
    if (status == CLV_OK)
        status = clv_session_load(session, run->compiled, err);
    if (status == CLV_OK)
        status = clv_times_measure(&run->seconds, timed > 1 ? WARM_UPS : 0, timed, time_run, &b, err);
    free(b.inputs);
    free(b.outputs);
    return status;
}

clv_status clv_imported_run_execute(clv_imported_run *out, clv_model_option *o, const char *values, uint64_t seed,
                                    const clv_import_options *what, int64_t timed, clv_error *err)
{
    clv_mesh mesh;
    clv_session *session;
    clv_checkpoint *file = NULL;
    state_values state;
    clv_session_options how = {.size = sizeof how,
                               .threads_per_rank = (int)o->threads,
                               .timeout_ms = clv_comm_option_timeout_ms(&o->comm),
                               .check = o->options.check,
                               .source = read_state,
                               .source_arg = &state};
    *out = (clv_imported_run){0};
    CLV_TRY(clv_imported_read(&out->program, o->path, o->mesh.layouts, err));
    CLV_TRY(clv_imported_mesh(&mesh, &o->mesh, out->program, err));
    if (!o->every_process_runs_all)
        CLV_TRY(clv_processes_job_of_mesh(&how.job, &o->comm, &mesh, err));
    CLV_TRY(clv_hardware_option_open(&o->machine, o->hardware, NULL, err));
    o->options.compile.machine = o->machine;
    clv_status status = clv_imported_compile(&out->compiled, out->program, &mesh, &o->options.compile, what, err);
    clv_machine_free(o->machine);
    CLV_TRY(status);
    if (values)
        CLV_TRY(clv_checkpoint_open(&file, values, NULL, err));
    state = (state_values){file, out->program};
    status = list_tensors(out, file, err);
    if (status == CLV_OK && file)
        status = read_inputs(out, file, values, err);
    else if (status == CLV_OK)
        make_inputs(out, seed);
    if (status == CLV_OK)
        status = clv_session_new(&session, &mesh, &how, err);
    if (status == CLV_OK) {
        status = run_session(out, session, timed, err);
        clv_session_free(session);
    }
    clv_checkpoint_close(file);
    return status;
}

void clv_imported_run_free(clv_imported_run *run)
{
    for (int i = 0; i < run->n_in; i++)
        free(run->in[i].data);
    for (int i = 0; i < run->n_out; i++)
        free(run->out[i].data);
    free(run->seconds);
    free(run->in);
    free(run->out);
    clv_program_free(run->compiled);
    clv_import_free(run->program);
    *run = (clv_imported_run){0};
}

clv_status clv_imported_check_finite(const clv_imported_run *run, clv_error *err)
{
    for (int i = 0; i < run->n_out; i++) {
        const clv_imported_tensor *t = &run->out[i];
        char index[128];
        int64_t at = clv_dtype_first_nonfinite(t->type.dtype, t->data, clv_type_elems(&t->type));
        if (at < 0)
            continue;
        clv_index_print(index, sizeof index, t->type.rank, t->type.shape, at);
        return clv_fail(err, CLV_ENONFINITE, "%s%s is %g", t->name, index, clv_dtype_load(t->type.dtype, t->data, at));
    }
    return CLV_OK;
}

/* ---- comparing ---- */

/* The largest element, NaN aside. */
static double largest(const clv_imported_tensor *t)
{
    double most = 0;
    for (int64_t i = 0; i < clv_type_elems(&t->type); i++)
        most = fmax(most, fabs(clv_dtype_load(t->type.dtype, t->data, i)));
    return most;
}

/* One tensor; `least` of what errors are relative to. */
static void compare_one(clv_comparison *c, const clv_imported_tensor *got, const clv_imported_tensor *want,
                        double least, double tolerance)
{
    double scale = fmax(fmax(largest(want), least), 1e-300), worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < clv_type_elems(&got->type); i++) {
        double a = clv_dtype_load(got->type.dtype, got->data, i), b = clv_dtype_load(want->type.dtype, want->data, i);
        bool same = a == b || (isnan(a) && isnan(b)); /* masks of -inf are as they should be */
        double error = same ? 0 : fabs(a - b) / scale;
        if (!(error <= worst)) {
            worst = isnan(error) ? INFINITY : error;
            at = i;
        }
    }
    c->tensors++;
    c->largest_error = fmax(c->largest_error, worst);
    if (worst <= tolerance || c->diverges[0])
        return;
    char index[128];
    clv_index_print(index, sizeof index, got->type.rank, got->type.shape, at);
    snprintf(c->diverges, sizeof c->diverges, "%s", got->name);
    snprintf(c->element, sizeof c->element, "%s is %.9g, not %.9g", index,
             clv_dtype_load(got->type.dtype, got->data, at), clv_dtype_load(want->type.dtype, want->data, at));
    c->error = worst;
}

static const clv_imported_tensor *find_output(const clv_imported_run *run, const char *name)
{
    for (int i = 0; i < run->n_out; i++)
        if (strcmp(run->out[i].name, name) == 0)
            return &run->out[i];
    return NULL;
}

/* The results that a file has; its inputs are none of them. */
static clv_status compare_file(clv_comparison *c, const clv_imported_run *got, const char *path, double tolerance,
                               clv_error *err)
{
    clv_checkpoint *file;
    int64_t at;
    CLV_TRY(clv_checkpoint_open(&file, path, NULL, err));
    clv_status status = CLV_OK;
    double least = 0;
    for (int i = 0; i < got->n_out; i++)
        least = fmax(least, 1e-3 * largest(&got->out[i]));
    for (int i = 0; status == CLV_OK && i < got->n_out; i++) {
        clv_imported_tensor want = got->out[i];
        if (clv_checkpoint_find(&at, file, want.name, NULL) != CLV_OK)
            continue;
        want.data = calloc((size_t)clv_type_elems(&want.type) + 1, clv_dtype_size(want.type.dtype));
        status = want.data ? read_input(&want, file, path, err) : clv_fail_memory(err, want.name, 0);
        if (status == CLV_OK)
            compare_one(c, &got->out[i], &want, least, tolerance);
        free(want.data);
    }
    clv_checkpoint_close(file);
    if (status == CLV_OK && c->tensors == 0)
        return clv_fail(err, CLV_EINVAL, "%s has no result of the program, such as %s", path,
                        got->n_out > 0 ? got->out[0].name : "result");
    return status;
}

clv_status clv_imported_compare(clv_comparison *out, const clv_imported_run *got, const clv_imported_run *want,
                                const char *file, double tolerance, clv_error *err)
{
    double least = 0;
    *out = (clv_comparison){.size = sizeof *out};
    if (!want)
        return compare_file(out, got, file, tolerance, err);
    for (int i = 0; i < want->n_out; i++) {
        double most = largest(&want->out[i]);
        least = isfinite(most) ? fmax(least, 1e-3 * fmin(most, 1)) : least;
    }
    for (int i = 0; i < got->n_out; i++) {
        const clv_imported_tensor *other = find_output(want, got->out[i].name);
        if (other)
            compare_one(out, &got->out[i], other, least, tolerance);
    }
    return CLV_OK;
}

/* How far devices differ, of the largest element of the tensor; 1 if it was not measured. */
static double difference_of(const clv_imported_run *run, const clv_import_fault_info *fault)
{
    const clv_imported_tensor *gap = fault->output ? find_output(run, fault->output) : NULL,
                              *result = find_output(run, fault->tensor);
    return gap ? largest(gap) / fmax(result ? largest(result) : 1, 1e-30) : 1;
}

bool clv_imported_add_faults(clv_table *t, const clv_imported_run *run, double tolerance)
{
    clv_import_fault_info fault = {.size = sizeof fault};
    int n = 0;
    for (int i = 0; clv_import_fault(run->program, i, &fault, NULL) == CLV_OK && fault.kind; i++) {
        double gap = run->out ? difference_of(run, &fault) : 1;
        if (gap <= tolerance)
            continue; /* alike after all */
        if (n++ == 0) {
            clv_table_begin_list(t, "faults");
            clv_table_wrapped_column(t, "why");
        }
        clv_table_begin_row(t);
        clv_table_text(t, "fault", fault.kind);
        clv_table_text(t, "tensor", fault.tensor);
        clv_table_text(t, "axes", fault.axes);
        if (run->out && fault.output)
            clv_table_real(t, "devices_differ", gap);
        else
            clv_table_null(t, "devices_differ");
        clv_table_int(t, "line", fault.line);
        clv_table_text(t, "why", fault.text);
    }
    return n > 0;
}

/* Results, then inputs. */
static const clv_imported_tensor *tensor_at(const clv_imported_run *run, int i)
{
    return i < run->n_out ? &run->out[i] : &run->in[i - run->n_out];
}

clv_status clv_imported_write(const clv_imported_run *run, const char *path, clv_error *err)
{
    clv_checkpoint_writer *writer;
    clv_status status = CLV_OK;
    const int n = run->n_out + run->n_in;
    CLV_TRY(clv_checkpoint_create(&writer, path, err));
    for (int i = 0; status == CLV_OK && i < n; i++) {
        const clv_imported_tensor *t = tensor_at(run, i);
        status = clv_checkpoint_add_tensor(writer, t->name, t->type.dtype, t->type.rank, t->type.shape, err);
    }
    for (int i = 0; status == CLV_OK && i < n; i++)
        status = clv_checkpoint_write(writer, i, NULL, tensor_at(run, i)->data, err);
    if (status == CLV_OK)
        return clv_checkpoint_commit(writer, err);
    clv_checkpoint_abandon(writer);
    return status;
}
