/* verify_against.c - see verify_against.h. */
#include "cli/verify_against.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/checkpoint.h"
#include "cli/forward_run.h"
#include "cli/results.h"

static const char gradient[] = "grad.";

/* A tensor of a file. */
typedef struct tensor {
    const clv_checkpoint *file;
    int64_t i;
    clv_tensor_info info;
} tensor;

static clv_status take(tensor *out, const clv_checkpoint *file, int64_t i, clv_error *err)
{
    *out = (tensor){.file = file, .i = i, .info = {.size = sizeof out->info}};
    return clv_checkpoint_tensor(file, i, &out->info, err);
}

/* What the model was given, which forward writes beside its results. */
static bool is_given(const tensor *t)
{
    static const char *const names[] = {"ids", "mask", "token_types"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(t->info.name, names[i]) == 0)
            return true;
    return false;
}

static bool is_gradient(const tensor *t)
{
    return strncmp(t->info.name, gradient, sizeof gradient - 1) == 0;
}

/* All of a tensor in f32, the caller's to free. */
static clv_status read_values(float **out, int64_t *n, const tensor *t, clv_error *err)
{
    *n = 1;
    for (int d = 0; d < t->info.rank; d++)
        *n *= t->info.shape[d];
    *out = malloc((size_t)*n * sizeof **out + 1);
    if (!*out)
        return clv_fail_memory(err, t->info.name, (size_t)*n * sizeof **out);
    clv_status status = clv_checkpoint_read(t->file, t->i, NULL, CLV_F32, *out, err);
    if (status != CLV_OK) {
        free(*out);
        *out = NULL;
    }
    return status;
}

static clv_status largest_gradient(double *out, const clv_checkpoint *file, clv_error *err)
{
    *out = 0;
    for (int64_t i = 0; i < clv_checkpoint_count(file); i++) {
        tensor t;
        float *values;
        int64_t n;
        CLV_TRY(take(&t, file, i, err));
        if (!is_gradient(&t))
            continue;
        CLV_TRY(read_values(&values, &n, &t, err));
        *out = fmax(*out, clv_results_largest(values, n));
        free(values);
    }
    return CLV_OK;
}

/* What is compared with what. */
typedef struct comparison {
    const clv_checkpoint *got, *want;
    float *mask; /* [rows] 0: padding, whose results are nobody's business; NULL: none */
    int64_t rows;
} comparison;

/* How far a tensor is off, and what its worst element is. */
typedef struct finding {
    double error;
    char element[CLV_ELEMENT_TEXT];
} finding;

static clv_status compare_tensor(finding *out, const comparison *c, const tensor *got, const tensor *want, double floor,
                                 clv_error *err)
{
    float *x, *y;
    int64_t n, m;
    bool by_row = c->mask && !is_gradient(got) && got->info.rank == 3;
    const clv_tensor_info *ours = &got->info, *theirs = &want->info;
    if (ours->rank != theirs->rank || memcmp(ours->shape, theirs->shape, (size_t)ours->rank * sizeof *ours->shape) != 0)
        return clv_fail(err, CLV_ESHAPE, "%s has another shape in the file than the model gives it", theirs->name);
    CLV_TRY(read_values(&x, &n, got, err));
    clv_status status = read_values(&y, &m, want, err);
    if (status != CLV_OK) {
        free(x);
        return status;
    }
    clv_difference worst = clv_results_difference(x, y, n, floor, by_row ? c->mask : NULL, by_row ? n / c->rows : n);
    out->error = worst.error;
    if (worst.at >= 0)
        clv_results_print_difference(out->element, sizeof out->element, ours->rank, ours->shape, x, y, worst.at);
    free(x);
    free(y);
    return CLV_OK;
}

/* begins: where our own results cease to be finite, if they do. */
static clv_status compare(clv_table *t, bool *same, const comparison *c, const char *mesh, double tolerance,
                          const char *begins, clv_error *err)
{
    double worst = 0, of_gradients;
    const char *diverges = NULL;
    finding first = {0};
    int64_t n = 0;
    CLV_TRY(largest_gradient(&of_gradients, c->want, err));
    for (int64_t i = 0; i < clv_checkpoint_count(c->got); i++) {
        tensor ours, theirs;
        finding f = {0};
        int64_t at;
        CLV_TRY(take(&ours, c->got, i, err));
        if (is_given(&ours) || clv_checkpoint_find(&at, c->want, ours.info.name, NULL) != CLV_OK)
            continue;
        CLV_TRY(take(&theirs, c->want, at, err));
        CLV_TRY(compare_tensor(&f, c, &ours, &theirs, is_gradient(&ours) ? 1e-3 * of_gradients : 0, err));
        worst = fmax(worst, f.error);
        if (f.error > tolerance && !diverges) {
            diverges = ours.info.name;
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

static bool has_gradients(const clv_checkpoint *file)
{
    tensor t;
    for (int64_t i = 0; i < clv_checkpoint_count(file); i++)
        if (take(&t, file, i, NULL) == CLV_OK && is_gradient(&t))
            return true;
    return false;
}

static clv_status read_mask(comparison *c, const clv_checkpoint *file, clv_error *err)
{
    tensor t;
    int64_t i;
    if (clv_checkpoint_find(&i, file, "mask", NULL) != CLV_OK)
        return CLV_OK;
    CLV_TRY(take(&t, file, i, err));
    return read_values(&c->mask, &c->rows, &t, err);
}

/* Runs into a file of the temporary folder, and opens it. */
static clv_status run(clv_checkpoint **out, const clv_forward_job *given, const char *command, clv_error *err)
{
    const char *folder = getenv("TMPDIR");
    char *path = NULL;
    clv_forward_job job = *given;
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

clv_status clv_verify_against(clv_table *table, bool *same, const char *model, const char *file, const char *mesh,
                              const char *rules, double tolerance, const char *command, clv_error *err)
{
    clv_checkpoint *got = NULL, *want;
    comparison c = {0};
    clv_model_option option = CLV_MODEL_DEFAULTS;
    option.path = model;
    option.mesh.text = mesh;
    option.mesh.rules = rules;
    option.run.check = true;
    char begins[CLV_BEGINS_TEXT] = "";
    clv_forward_job job = {
        .begins = begins, .model = &option, .ids = file, .among_results = true, .allow_nonfinite = true};
    CLV_TRY(clv_checkpoint_open(&want, file, NULL, err));
    job.gradients = has_gradients(want);
    clv_status status = run(&got, &job, command, err);
    if (status == CLV_OK)
        status = read_mask(&c, want, err);
    c.got = got;
    c.want = want;
    if (status == CLV_OK)
        status = compare(table, same, &c, mesh, tolerance, begins, err);
    free(c.mask);
    clv_checkpoint_close(got);
    clv_checkpoint_close(want);
    return status;
}
