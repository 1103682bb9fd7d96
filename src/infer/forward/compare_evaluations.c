/* compare_evaluations.c - compares the tensors of two evaluations or files against a tolerance; reports the worst
 * element.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/c_locale.h"
#include "infer/forward/evaluate.h"

/* A result of either side. */
typedef struct result {
    const char *kind, *name; /* kind: "gradient of " or "", a prefix of the name in messages */
    bool is_gradient;
    int rank;
    const int64_t *shape;
    const float *data;
    float *owned; /* the data, if it must be freed; else NULL */
} result;

/* Properties of the reference. */
typedef struct reference {
    double tolerance, largest_gradient;
    const uint8_t *mask; /* [rows] 0: padding; NULL: no padding */
    int64_t rows;
} reference;

/* The largest difference of two tensors, and its element; -1: none. */
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

/* The largest magnitude of its finite elements; 0 if there are none. */
static double largest_of(const result *r)
{
    double most = 0;
    int64_t n = elems_of(r);
    for (int64_t i = 0; i < n; i++)
        most = isfinite(r->data[i]) ? fmax(most, fabs((double)r->data[i])) : most;
    return most;
}

static bool is_per_token(const result *r)
{
    return strcmp(r->name, "hidden.last") == 0 || strcmp(r->name, "logits") == 0;
}

static difference worst_of(const result *got, const result *want, const reference *m)
{
    difference worst = {.at = -1};
    double scale = fmax(largest_of(want), want->is_gradient ? 1e-3 * m->largest_gradient : 0);
    int64_t n = elems_of(want);
    bool masked = m->mask && is_per_token(want);
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

/* "[1,0,7] is nan, not 0.25"; for equal elements "[1,0,7] is not finite: -inf on both sides". */
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
    return clv_fail(err, CLV_ESHAPE, "%s%.300s is %s in the results, and %s is expected", want->kind, want->name,
                    print_shape(is, got), print_shape(ought, want));
}

/* A per-token result has a row for each element of the mask. */
static clv_status check_mask(const result *want, const reference *m, clv_error *err)
{
    char type[CLV_TYPE_TEXT];
    int64_t rows = 1;
    if (!m->mask || !is_per_token(want))
        return CLV_OK;
    for (int d = 0; d < want->rank - 1; d++)
        rows *= want->shape[d];
    if (want->rank > 0 && rows == m->rows)
        return CLV_OK;
    return clv_fail(err, CLV_ESHAPE, "the mask has %lld tokens, and %s is %s; valid: a row for each token",
                    (long long)m->rows, want->name, print_shape(type, want));
}

static clv_status compare(clv_comparison *c, const result *got, const result *want, const reference *m, clv_error *err)
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

static result result_at(const clv_evaluation *e, int i)
{
    const clv_evaluation_result *r = &e->result[i];
    const bool is_gradient = i >= e->n_forward;
    return (result){.kind = is_gradient ? "gradient of " : "",
                    .name = r->name + (is_gradient ? strlen("d.") : 0),
                    .is_gradient = is_gradient,
                    .rank = r->rank,
                    .shape = r->shape,
                    .data = r->data};
}

static clv_status compare_all(clv_comparison *c, const clv_evaluation *got, const clv_evaluation *want, reference *m,
                              clv_error *err)
{
    for (int i = want->n_forward; i < want->n; i++) {
        result r = result_at(want, i);
        m->largest_gradient = fmax(m->largest_gradient, largest_of(&r));
    }
    for (int i = 0; i < want->n; i++) {
        result ours = result_at(got, i), theirs = result_at(want, i);
        if (strcmp(ours.name, theirs.name) != 0)
            return clv_fail(err, CLV_EINVAL, "result %d is %s, and %s is expected", i, ours.name, theirs.name);
        CLV_TRY(compare(c, &ours, &theirs, m, err));
    }
    return CLV_OK;
}

clv_status clv_evaluation_compare(clv_comparison *out, const clv_evaluation *got, const clv_evaluation *want,
                                  double tolerance, clv_error *err)
{
    clv_comparison c = {0};
    reference m = {.tolerance = tolerance};
    CLV_TRY(clv_require(out && got && want, __func__, "out and two evaluations", err));
    CLV_TRY(check_tolerance(tolerance, __func__, err));
    if (got->n != want->n)
        return clv_fail(err, CLV_EINVAL, "%s: %d results, and %d expected", __func__, got->n, want->n);
    m.mask = want->options.mask;
    m.rows = want->options.batch * want->options.seq;
    CLV_TRY(compare_all(&c, got, want, &m, err));
    size_t used = strlen(c.element);
    if (isinf(c.error) && clv_evaluation_nonfinite_origin(got))
        snprintf(c.element + used, sizeof c.element - used, "; it begins at %s", clv_evaluation_nonfinite_origin(got));
    return clv_struct_copy_out(out, sizeof c, sizeof c, &c, __func__, err);
}

/* ---- two files ---- */

static bool is_gradient(const char *name)
{
    return strncmp(name, "grad.", 5) == 0;
}

static bool is_input(const char *name)
{
    return strcmp(name, "ids") == 0 || strcmp(name, "mask") == 0 || strcmp(name, "token_types") == 0;
}

/* Reads tensor i. *at holds its name and shape. */
static clv_status read_result(result *out, clv_tensor_info *at, const clv_checkpoint *file, int64_t i, clv_error *err)
{
    *at = (clv_tensor_info){.size = sizeof *at};
    CLV_TRY(clv_checkpoint_tensor(file, i, at, err));
    result r = {
        .kind = "", .name = at->name, .is_gradient = is_gradient(at->name), .rank = at->rank, .shape = at->shape};
    size_t bytes = (size_t)elems_of(&r) * sizeof(float);
    r.data = r.owned = malloc(bytes + 1);
    if (!r.owned)
        return clv_fail_memory(err, at->name, bytes);
    clv_status status = clv_checkpoint_read(file, i, NULL, CLV_F32, r.owned, err);
    if (status != CLV_OK) {
        free(r.owned);
        return status;
    }
    *out = r;
    return CLV_OK;
}

static clv_status read_reference(reference *m, const clv_checkpoint *want, clv_error *err)
{
    clv_tensor_info at = {.size = sizeof at};
    result r;
    int64_t index;
    for (int64_t i = 0; i < clv_checkpoint_tensor_count(want); i++) {
        CLV_TRY(clv_checkpoint_tensor(want, i, &at, err));
        if (!is_gradient(at.name))
            continue;
        CLV_TRY(read_result(&r, &at, want, i, err));
        m->largest_gradient = fmax(m->largest_gradient, largest_of(&r));
        free(r.owned);
    }
    if (clv_checkpoint_find(&index, want, "mask", NULL) != CLV_OK)
        return CLV_OK;
    CLV_TRY(read_result(&r, &at, want, index, err));
    m->rows = elems_of(&r);
    uint8_t *mask = malloc((size_t)m->rows + 1);
    for (int64_t k = 0; mask && k < m->rows; k++)
        mask[k] = r.owned[k] != 0;
    free(r.owned);
    m->mask = mask;
    return mask ? CLV_OK : clv_fail_memory(err, "a mask", (size_t)m->rows);
}

/* Compares tensor i if it is a result, and both files have it. */
static clv_status compare_in_files(clv_comparison *c, const clv_checkpoint *got, int64_t i, const clv_checkpoint *want,
                                   const reference *m, clv_error *err)
{
    clv_tensor_info of_got = {.size = sizeof of_got}, of_want;
    result ours, theirs;
    int64_t there;
    CLV_TRY(clv_checkpoint_tensor(got, i, &of_got, err));
    if (is_input(of_got.name) || clv_checkpoint_find(&there, want, of_got.name, NULL) != CLV_OK)
        return CLV_OK;
    CLV_TRY(read_result(&ours, &of_got, got, i, err));
    clv_status status = read_result(&theirs, &of_want, want, there, err);
    if (status == CLV_OK) {
        status = compare(c, &ours, &theirs, m, err);
        free(theirs.owned);
    }
    free(ours.owned);
    return status;
}

clv_status clv_evaluation_compare_files(clv_comparison *out, const clv_checkpoint *got, const clv_checkpoint *want,
                                        double tolerance, clv_error *err)
{
    clv_comparison c = {0};
    reference m = {.tolerance = tolerance};
    CLV_TRY(clv_require(out && got && want, __func__, "out and two files", err));
    CLV_TRY(check_tolerance(tolerance, __func__, err));
    CLV_TRY(read_reference(&m, want, err));
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < clv_checkpoint_tensor_count(got); i++)
        status = compare_in_files(&c, got, i, want, &m, err);
    free((void *)m.mask);
    CLV_TRY(status);
    if (c.tensors == 0)
        return clv_fail(err, CLV_EINVAL, "no result to compare; valid: logits, hidden.last, loss, grad.<name>");
    return clv_struct_copy_out(out, sizeof c, sizeof c, &c, __func__, err);
}
