/* compare_evaluations.c - compares the tensors of two evaluations or files against a tolerance; reports the worst
 * element.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/c_locale.h"
#include "base/versioned_structs.h"
#include "infer/forward/evaluate.h"

/* A result of either side. */
typedef struct result {
    const char *kind, *name; /* "gradient of " or "", which stands before the name */
    bool is_gradient;
    int rank;
    const int64_t *shape;
    const float *data;
    float *own; /* data that is the result's to free, or NULL */
} result;

/* What results are measured by. */
typedef struct measure {
    double tolerance, largest_gradient;
    float *mask; /* [rows] 0: padding; NULL: none */
    int64_t rows;
} measure;

/* Where two tensors differ most; at -1: nowhere. */
typedef struct difference {
    double error;
    int64_t at;
} difference;

static int64_t elems_of(const result *r)
{
    int64_t n = 1;
    for (int d = 0; d < r->rank; d++)
        n *= r->shape[d];
    return n;
}

/* Among the finite ones; 0 when there is none. */
static double largest_of(const result *r)
{
    double most = 0;
    int64_t n = elems_of(r);
    for (int64_t i = 0; i < n; i++)
        most = isfinite(r->data[i]) ? fmax(most, fabs((double)r->data[i])) : most;
    return most;
}

static bool has_row_a_token(const result *r)
{
    return strcmp(r->name, "hidden.last") == 0 || strcmp(r->name, "logits") == 0;
}

static difference worst_of(const result *got, const result *want, const measure *m)
{
    difference worst = {.at = -1};
    double scale = fmax(largest_of(want), want->is_gradient ? 1e-3 * m->largest_gradient : 0);
    int64_t n = elems_of(want);
    bool masked = m->mask && has_row_a_token(want);
    for (int64_t i = 0; i < n; i++) {
        if (masked && m->mask[i / want->shape[want->rank - 1]] == 0)
            continue;
        double off = fabs((double)got->data[i] - (double)want->data[i]) / (scale > 0 ? scale : 1);
        if (!isfinite(off))
            return (difference){INFINITY, i};
        if (off > worst.error)
            worst = (difference){off, i};
    }
    return worst;
}

/* Of one that is alike in both, and so is found for not being finite: "[1,0,7] is not finite: -inf on both sides". */
static void print_element(char *out, size_t size, const result *got, const result *want, int64_t at)
{
    char index[256];
    double x = (double)got->data[at], y = (double)want->data[at];
    clv_index_print(index, sizeof index, want->rank, want->shape, at);
    if (x == y || (isnan(x) && isnan(y)))
        clv_snprintf(out, size, "%s is not finite: %g%s", index, x, got->data == want->data ? "" : " on both sides");
    else
        clv_snprintf(out, size, "%s is %.9g, not %.9g", index, x, y);
}

/* "[2,4,37]" */
static const char *print_shape(char out[CLV_TYPE_TEXT], const result *r)
{
    clv_type type = {.dtype = CLV_F32, .rank = r->rank};
    memcpy(type.shape, r->shape, (size_t)r->rank * sizeof *r->shape);
    clv_type_print(out, CLV_TYPE_TEXT, &type);
    return strchr(out, '[');
}

static clv_status fail_shape(const result *got, const result *want, clv_error *err)
{
    char is[CLV_TYPE_TEXT], ought[CLV_TYPE_TEXT];
    return clv_fail(err, CLV_ESHAPE, "%s%.300s is %s in the results, and ought to be %s", want->kind, want->name,
                    print_shape(is, got), print_shape(ought, want));
}

/* A row for each token that the mask tells of. */
static clv_status check_mask(const result *want, const measure *m, clv_error *err)
{
    char type[CLV_TYPE_TEXT];
    int64_t rows = 1;
    if (!m->mask || !has_row_a_token(want))
        return CLV_OK;
    for (int d = 0; d < want->rank - 1; d++)
        rows *= want->shape[d];
    if (want->rank > 0 && rows == m->rows)
        return CLV_OK;
    return clv_fail(err, CLV_ESHAPE, "the mask is of %lld tokens, and %s is %s; valid: a row for each token",
                    (long long)m->rows, want->name, print_shape(type, want));
}

static clv_status compare(clv_comparison *c, const result *got, const result *want, const measure *m, clv_error *err)
{
    if (got->rank != want->rank || memcmp(got->shape, want->shape, (size_t)got->rank * sizeof *got->shape) != 0)
        return fail_shape(got, want, err);
    CLV_TRY(check_mask(want, m, err));
    difference d = worst_of(got, want, m);
    c->tensors++;
    c->largest_error = fmax(c->largest_error, d.error);
    if (!(d.error > m->tolerance) || c->diverges[0] != '\0')
        return CLV_OK;
    snprintf(c->diverges, sizeof c->diverges, "%s%.300s", want->kind, want->name);
    c->error = d.error;
    print_element(c->element, sizeof c->element, got, want, d.at);
    return CLV_OK;
}

static clv_status check_tolerance(double tolerance, const char *call, clv_error *err)
{
    if (!(tolerance >= 0) || !isfinite(tolerance))
        return clv_fail(err, CLV_EINVAL, "%s: tolerance %g; valid: 0 or more", call, tolerance);
    return CLV_OK;
}

/* ---- two evaluations ---- */

/* `at` is what the result's name and shape are kept in. */
static result take_result(clv_evaluation_tensor *at, const clv_evaluation *of, int i)
{
    *at = (clv_evaluation_tensor){.size = sizeof *at};
    clv_evaluation_at(of, i, at, NULL);
    return (result){.kind = at->is_gradient ? "gradient of " : "",
                    .name = at->name + (at->is_gradient ? strlen("d.") : 0),
                    .is_gradient = at->is_gradient,
                    .rank = at->rank,
                    .shape = at->shape,
                    .data = at->data};
}

static clv_status copy_mask(measure *m, const clv_evaluation *of, clv_error *err)
{
    const clv_evaluate_options *given = clv_evaluation_get_options(of);
    if (!given->mask)
        return CLV_OK;
    m->rows = given->batch * given->seq;
    m->mask = malloc((size_t)m->rows * sizeof *m->mask);
    if (!m->mask)
        return clv_fail_memory(err, "a mask", (size_t)m->rows * sizeof *m->mask);
    for (int64_t i = 0; i < m->rows; i++)
        m->mask[i] = given->mask[i];
    return CLV_OK;
}

static clv_status compare_all(clv_comparison *c, const clv_evaluation *got, const clv_evaluation *want, measure *m,
                              clv_error *err)
{
    clv_evaluation_tensor of_got, of_want;
    int n = clv_evaluation_count(want);
    for (int i = 0; i < n; i++) {
        result r = take_result(&of_want, want, i);
        m->largest_gradient = r.is_gradient ? fmax(m->largest_gradient, largest_of(&r)) : m->largest_gradient;
    }
    for (int i = 0; i < n; i++) {
        result ours = take_result(&of_got, got, i), theirs = take_result(&of_want, want, i);
        if (strcmp(ours.name, theirs.name) != 0)
            return clv_fail(err, CLV_EINVAL, "result %d is %s, and %s is what it ought to be", i, ours.name,
                            theirs.name);
        CLV_TRY(compare(c, &ours, &theirs, m, err));
    }
    return CLV_OK;
}

clv_status clv_evaluation_compare(clv_comparison *out, const clv_evaluation *got, const clv_evaluation *want,
                                  double tolerance, clv_error *err)
{
    static const char call[] = "clv_evaluation_compare";
    clv_comparison c = {0};
    measure m = {.tolerance = tolerance};
    CLV_TRY(clv_require(out && got && want, call, "out and two evaluations", err));
    CLV_TRY(check_tolerance(tolerance, call, err));
    if (clv_evaluation_count(got) != clv_evaluation_count(want))
        return clv_fail(err, CLV_EINVAL, "%s: %d results, and %d that they ought to be", call,
                        clv_evaluation_count(got), clv_evaluation_count(want));
    CLV_TRY(copy_mask(&m, want, err));
    clv_status status = compare_all(&c, got, want, &m, err);
    free(m.mask);
    CLV_TRY(status);
    size_t used = strlen(c.element);
    if (isinf(c.error) && clv_evaluation_nonfinite_origin(got))
        snprintf(c.element + used, sizeof c.element - used, "; it begins at %s", clv_evaluation_nonfinite_origin(got));
    return clv_struct_copy_out(out, sizeof c, sizeof c, &c, call, err);
}

/* ---- two files ---- */

static bool is_gradient(const char *name)
{
    return strncmp(name, "grad.", 5) == 0;
}

/* What forward was given, which it writes beside its results. */
static bool is_given(const char *name)
{
    return strcmp(name, "ids") == 0 || strcmp(name, "mask") == 0 || strcmp(name, "token_types") == 0;
}

/* Reads all of tensor i; `at` is what its name and shape are kept in. */
static clv_status read_result(result *out, clv_tensor_info *at, const clv_checkpoint *file, int64_t i, clv_error *err)
{
    *at = (clv_tensor_info){.size = sizeof *at};
    CLV_TRY(clv_checkpoint_tensor(file, i, at, err));
    result r = {
        .kind = "", .name = at->name, .is_gradient = is_gradient(at->name), .rank = at->rank, .shape = at->shape};
    size_t bytes = (size_t)elems_of(&r) * sizeof(float);
    r.data = r.own = malloc(bytes + 1);
    if (!r.own)
        return clv_fail_memory(err, at->name, bytes);
    clv_status status = clv_checkpoint_read(file, i, NULL, CLV_F32, r.own, err);
    if (status != CLV_OK) {
        free(r.own);
        return status;
    }
    *out = r;
    return CLV_OK;
}

static clv_status read_measure(measure *m, const clv_checkpoint *want, clv_error *err)
{
    clv_tensor_info at = {.size = sizeof at};
    result r;
    int64_t mask;
    for (int64_t i = 0; i < clv_checkpoint_tensor_count(want); i++) {
        CLV_TRY(clv_checkpoint_tensor(want, i, &at, err));
        if (!is_gradient(at.name))
            continue;
        CLV_TRY(read_result(&r, &at, want, i, err));
        m->largest_gradient = fmax(m->largest_gradient, largest_of(&r));
        free(r.own);
    }
    if (clv_checkpoint_find(&mask, want, "mask", NULL) != CLV_OK)
        return CLV_OK;
    CLV_TRY(read_result(&r, &at, want, mask, err));
    m->mask = r.own;
    m->rows = elems_of(&r);
    return CLV_OK;
}

/* Compares tensor i, if both have it and it is a result. */
static clv_status compare_in_files(clv_comparison *c, const clv_checkpoint *got, int64_t i, const clv_checkpoint *want,
                                   const measure *m, clv_error *err)
{
    clv_tensor_info of_got = {.size = sizeof of_got}, of_want;
    result ours, theirs;
    int64_t there;
    CLV_TRY(clv_checkpoint_tensor(got, i, &of_got, err));
    if (is_given(of_got.name) || clv_checkpoint_find(&there, want, of_got.name, NULL) != CLV_OK)
        return CLV_OK;
    CLV_TRY(read_result(&ours, &of_got, got, i, err));
    clv_status status = read_result(&theirs, &of_want, want, there, err);
    if (status == CLV_OK) {
        status = compare(c, &ours, &theirs, m, err);
        free(theirs.own);
    }
    free(ours.own);
    return status;
}

clv_status clv_evaluation_compare_files(clv_comparison *out, const clv_checkpoint *got, const clv_checkpoint *want,
                                        double tolerance, clv_error *err)
{
    static const char call[] = "clv_evaluation_compare_files";
    clv_comparison c = {0};
    measure m = {.tolerance = tolerance};
    CLV_TRY(clv_require(out && got && want, call, "out and two files", err));
    CLV_TRY(check_tolerance(tolerance, call, err));
    CLV_TRY(read_measure(&m, want, err));
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < clv_checkpoint_tensor_count(got); i++)
        status = compare_in_files(&c, got, i, want, &m, err);
    free(m.mask);
    CLV_TRY(status);
    if (c.tensors == 0)
        return clv_fail(err, CLV_EINVAL, "no result to compare; valid: logits, hidden.last, loss, grad.<name>");
    return clv_struct_copy_out(out, sizeof c, sizeof c, &c, call, err);
}
