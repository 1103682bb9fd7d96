/* verify_against.c - see verify_against.h. */
#include "cli/verify_against.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/status.h"
#include "cli/forward_run.h"
#include "cli/results.h"
#include "io/safetensors.h"

static const char gradient[] = "grad.";

static bool is_gradient(const clv_safetensor *tensor)
{
    return strncmp(tensor->name, gradient, sizeof gradient - 1) == 0;
}

/* All of a tensor in f32, the caller's to free. */
static clv_status read_values(float **out, int64_t *n, const clv_safetensor *tensor, clv_error *err)
{
    *n = 1;
    for (int d = 0; d < tensor->rank; d++)
        *n *= tensor->shape[d];
    *out = malloc((size_t)*n * sizeof **out + 1);
    if (!*out)
        return clv_fail_memory(err, tensor->name, (size_t)*n * sizeof **out);
    clv_status status = clv_safetensors_read(tensor, NULL, CLV_F32, *out, err);
    if (status != CLV_OK) {
        free(*out);
        *out = NULL;
    }
    return status;
}

static clv_status largest_gradient(double *out, const clv_safetensors *file, clv_error *err)
{
    *out = 0;
    for (int64_t i = 0; i < clv_safetensors_count(file); i++) {
        const clv_safetensor *tensor = clv_safetensors_at(file, i);
        float *values;
        int64_t n;
        if (!is_gradient(tensor))
            continue;
        CLV_TRY(read_values(&values, &n, tensor, err));
        *out = fmax(*out, clv_results_largest(values, n));
        free(values);
    }
    return CLV_OK;
}

/* What is compared with what. */
typedef struct comparison {
    const clv_safetensors *got, *want;
    float *mask; /* [rows] 0: padding, whose results are nobody's business; NULL: none */
    int64_t rows;
} comparison;

/* How far a tensor is off, and what its worst element is. */
typedef struct finding {
    double error;
    char element[CLV_ELEMENT_TEXT];
} finding;

static clv_status compare_tensor(finding *out, const comparison *c, const clv_safetensor *got,
                                 const clv_safetensor *want, double floor, clv_error *err)
{
    float *x, *y;
    int64_t n, m;
    bool by_row = c->mask && !is_gradient(got) && got->rank == 3;
    if (got->rank != want->rank || memcmp(got->shape, want->shape, (size_t)got->rank * sizeof *got->shape) != 0)
        return clv_fail(err, CLV_ESHAPE, "%s has another shape in the file than the model gives it", want->name);
    CLV_TRY(read_values(&x, &n, got, err));
    clv_status status = read_values(&y, &m, want, err);
    if (status != CLV_OK) {
        free(x);
        return status;
    }
    clv_difference worst = clv_results_difference(x, y, n, floor, by_row ? c->mask : NULL, by_row ? n / c->rows : n);
    out->error = worst.error;
    if (worst.at >= 0)
        clv_results_print_difference(out->element, sizeof out->element, got->rank, got->shape, x, y, worst.at);
    free(x);
    free(y);
    return CLV_OK;
}

/* begins: where our own results cease to be finite, if they do. */
static clv_status compare(clv_table *t, bool *same, const comparison *c, const char *mesh, double tolerance,
                          const clv_error *begins, clv_error *err)
{
    double worst = 0, of_gradients;
    const char *diverges = NULL;
    finding first = {0};
    int64_t n = 0;
    CLV_TRY(largest_gradient(&of_gradients, c->want, err));
    for (int64_t i = 0; i < clv_safetensors_count(c->got); i++) {
        const clv_safetensor *ours = clv_safetensors_at(c->got, i), *theirs;
        finding f = {0};
        if (clv_safetensors_find(&theirs, c->want, ours->name, NULL) != CLV_OK)
            continue;
        CLV_TRY(compare_tensor(&f, c, ours, theirs, is_gradient(ours) ? 1e-3 * of_gradients : 0, err));
        worst = fmax(worst, f.error);
        if (f.error > tolerance && !diverges) {
            diverges = ours->name;
            first = f;
        }
        n++;
    }
    if (n == 0)
        return clv_fail(err, CLV_EINVAL,
                        "--against: no result to compare; valid: logits, hidden.last, loss, grad.<name>");
    if (isinf(first.error))
        clv_results_add_beginning(first.element, begins);
    clv_table_row(t);
    clv_table_text(t, "mesh", mesh);
    clv_table_int(t, "tensors", n);
    clv_table_real(t, "largest_error", worst);
    clv_table_text(t, "first_divergence", diverges ? diverges : "none");
    clv_table_text(t, "element", diverges ? first.element : "none");
    *same = *same && !diverges;
    return CLV_OK;
}

static bool has_gradients(const clv_safetensors *file)
{
    for (int64_t i = 0; i < clv_safetensors_count(file); i++)
        if (is_gradient(clv_safetensors_at(file, i)))
            return true;
    return false;
}

/* Runs into a file of the temporary folder, and opens it. */
static clv_status run(clv_safetensors **out, const clv_forward_job *given, const char *command, clv_error *err)
{
    const char *folder = getenv("TMPDIR");
    char *path = NULL;
    clv_forward_job job = *given;
    if (asprintf(&path, "%s/cleave-verify-%ld.safetensors", folder ? folder : "/tmp", (long)getpid()) < 0)
        return clv_fail_memory(err, "a file name", 0);
    job.out = path;
    clv_status status = clv_forward_run(&job, command, err);
    if (status == CLV_OK)
        status = clv_safetensors_open(out, path, err);
    unlink(path);
    free(path);
    return status;
}

clv_status clv_verify_against(clv_table *table, bool *same, const char *model, const char *file, const char *mesh,
                              const char *rules, double tolerance, const char *command, clv_error *err)
{
    clv_safetensors *got = NULL, *want;
    const clv_safetensor *mask;
    comparison c = {0};
    clv_model_option option = CLV_MODEL_DEFAULTS;
    option.path = model;
    option.mesh.text = mesh;
    option.mesh.rules = rules;
    option.run.check = true;
    clv_error begins = {0};
    clv_forward_job job = {
        .why = &begins, .model = &option, .ids = file, .among_results = true, .allow_nonfinite = true};
    CLV_TRY(clv_safetensors_open(&want, file, err));
    job.gradients = has_gradients(want);
    clv_status status = run(&got, &job, command, err);
    if (status == CLV_OK && clv_safetensors_find(&mask, want, "mask", NULL) == CLV_OK)
        status = read_values(&c.mask, &c.rows, mask, err);
    c.got = got;
    c.want = want;
    if (status == CLV_OK)
        status = compare(table, same, &c, mesh, tolerance, &begins, err);
    free(c.mask);
    clv_safetensors_close(got);
    clv_safetensors_close(want);
    return status;
}
