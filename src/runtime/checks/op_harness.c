/* op_harness.c - runs one op kernel by itself, with guard bytes and poisoned results, and verifies its writes. */
#include "runtime/checks/op_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/device.h"
#include "runtime/checks/guard_bytes.h"

enum { ALIGN = 64 };

clv_view clv_op_harness_view(const clv_type *type)
{
    clv_view view = {.dtype = type->dtype, .rank = type->rank};
    memcpy(view.shape, type->shape, sizeof view.shape);
    memcpy(view.global, type->shape, sizeof view.global);
    return view;
}

/* ---- global indices ---- */

int64_t clv_op_harness_global_index(const clv_view *view, int64_t i)
{
    int64_t index = 0, stride = 1;
    for (int d = view->rank - 1; d >= 0; d--) {
        index += (view->lo[d] + i % view->shape[d]) * stride;
        i /= view->shape[d];
        stride *= view->global[d];
    }
    return index;
}

const char *clv_op_harness_print_index(char out[CLV_OP_HARNESS_INDEX_TEXT], const clv_view *view, int64_t i)
{
    int64_t at[CLV_MAX_RANK];
    int n = snprintf(out, CLV_OP_HARNESS_INDEX_TEXT, "[");
    for (int d = view->rank - 1; d >= 0; d--) {
        at[d] = i % view->global[d];
        i /= view->global[d];
    }
    for (int d = 0; d < view->rank; d++)
        n += snprintf(out + n, (size_t)(CLV_OP_HARNESS_INDEX_TEXT - n), "%s%lld", d ? "," : "", (long long)at[d]);
    snprintf(out + n, (size_t)(CLV_OP_HARNESS_INDEX_TEXT - n), "]");
    return out;
}

/* ---- memory ---- */

static int64_t room_after(const clv_view *view)
{
    clv_view whole = *view;
    memcpy(whole.shape, view->global, sizeof whole.shape);
    return (int64_t)clv_view_byte_size(&whole) + CLV_GUARD_BYTES;
}

static void *alloc_guarded(int64_t bytes, int64_t after)
{
    char *base = NULL;
    int64_t all = CLV_GUARD_BYTES + bytes + after;
    if (posix_memalign((void **)&base, ALIGN, (size_t)all) != 0)
        return NULL;
    clv_guard_bytes_fill(base, all);
    return base + CLV_GUARD_BYTES;
}

static void free_guarded(void *data)
{
    if (data)
        free((char *)data - CLV_GUARD_BYTES);
}

clv_status clv_op_harness_alloc(clv_view *view, const void *copied, clv_error *err)
{
    int64_t bytes = (int64_t)clv_view_byte_size(view), after = room_after(view), elems = clv_view_elems(view);
    size_t size = clv_dtype_size(view->dtype);
    view->data = alloc_guarded(bytes, after);
    if (!view->data)
        return clv_fail_memory(err, "a tensor of an op check", (size_t)(bytes + after));
    for (int64_t i = 0; copied && i < elems; i++)
        memcpy((char *)view->data + (size_t)i * size,
               (const char *)copied + (size_t)clv_op_harness_global_index(view, i) * size, size);
    return CLV_OK;
}

void clv_op_harness_free(clv_view *view)
{
    free_guarded(view->data);
    view->data = NULL;
}

clv_status clv_op_harness_alloc_all(clv_op_harness *part, const clv_op_harness *whole, clv_error *err)
{
    for (int i = 0; i < CLV_MAX_IN; i++)
        part->in[i].data = NULL;
    for (int o = 0; o < CLV_MAX_OUT; o++)
        part->out[o].data = NULL;
    for (int i = 0; i < part->op->n_in; i++)
        if (whole->in[i].data)
            CLV_TRY(clv_op_harness_alloc(&part->in[i], whole->in[i].data, err));
    for (int o = 0; o < part->op->n_out; o++)
        CLV_TRY(clv_op_harness_alloc(&part->out[o], NULL, err));
    return CLV_OK;
}

void clv_op_harness_free_all(clv_op_harness *harness)
{
    for (int o = 0; o < harness->op->n_out; o++)
        if (harness->aliases[o])
            harness->out[o].data = NULL;
        else
            clv_op_harness_free(&harness->out[o]);
    for (int i = 0; i < harness->op->n_in; i++)
        clv_op_harness_free(&harness->in[i]);
}

/* Fills the memory before and after `bytes`, and unless `kept` these bytes too, with another pattern than the guard's:
 * a large number in every float dtype. */
static void poison(void *data, int64_t bytes, int64_t after, bool kept)
{
    enum { OTHER = 0x4b };
    char *p = data;
    memset(p - CLV_GUARD_BYTES, OTHER, CLV_GUARD_BYTES);
    memset(p + bytes, OTHER, (size_t)after);
    if (!kept)
        memset(p, OTHER, (size_t)bytes);
}

/* ---- running ---- */

size_t clv_op_harness_workspace_bytes(const clv_op_harness *harness)
{
    clv_op_harness planned = *harness;
    for (int i = 0; i < CLV_MAX_IN; i++)
        planned.in[i].data = NULL;
    for (int o = 0; o < CLV_MAX_OUT; o++)
        planned.out[o].data = NULL;
    const clv_op_def *def = harness->op->def;
    return def->workspace ? def->workspace(harness->op, planned.in, planned.out) : 0;
}

/* Which guard bytes around `bytes` were overwritten, for messages; NULL: none. *at: offset of the first such byte. */
static const char *broken(int64_t *at, const void *data, int64_t bytes, int64_t after)
{
    const char *p = data;
    if ((*at = clv_guard_bytes_first_overwritten(p + bytes, after)) >= 0) {
        *at += bytes;
        return "behind the end of";
    }
    *at = clv_guard_bytes_first_overwritten(p - CLV_GUARD_BYTES, CLV_GUARD_BYTES) - CLV_GUARD_BYTES;
    return *at >= -CLV_GUARD_BYTES ? "before" : NULL;
}

/* "f32[2,10] of [6,10]" */
static const char *view_text(char *out, size_t size, const clv_view *view)
{
    clv_type part = {.dtype = view->dtype, .rank = view->rank}, whole = part;
    char a[CLV_TYPE_TEXT], b[CLV_TYPE_TEXT];
    memcpy(part.shape, view->shape, sizeof part.shape);
    memcpy(whole.shape, view->global, sizeof whole.shape);
    clv_type_print(a, sizeof a, &part);
    clv_type_print(b, sizeof b, &whole);
    bool is_whole = clv_type_equal(&part, &whole);
    snprintf(out, size, "%s%s%s", a, is_whole ? "" : " of ", is_whole ? "" : strchr(b, '['));
    return out;
}

static clv_status check_guards(const clv_op_harness *harness, const clv_view *view, const char *what, int i,
                               const char *how, clv_error *err)
{
    char text[2 * CLV_TYPE_TEXT + 8];
    int64_t at;
    const char *where = broken(&at, view->data, (int64_t)clv_view_byte_size(view), room_after(view));
    if (!where)
        return CLV_OK;
    return clv_fail_at(err, CLV_ECHECK, -1, harness->op->name,
                       "%s: the kernel wrote %s %s %d, which is %s, at byte %lld; valid: this shard's elements only, "
                       "as many as view.shape says",
                       how, where, what, i, view_text(text, sizeof text, view), (long long)at);
}

static clv_status check_bools(const clv_op_harness *harness, int o, const char *how, clv_error *err)
{
    const clv_view *view = &harness->out[o];
    const unsigned char *at = view->data;
    char index[CLV_OP_HARNESS_INDEX_TEXT];
    for (int64_t i = 0; view->dtype == CLV_BOOL && i < clv_view_elems(view); i++)
        if (at[i] > 1)
            return clv_fail_at(err, CLV_ECHECK, -1, harness->op->name,
                               "%s: element %s of result %d, which is bool, is %d; valid: 0 and 1", how,
                               clv_op_harness_print_index(index, view, clv_op_harness_global_index(view, i)), o, at[i]);
    return CLV_OK;
}

static clv_status check_result(const clv_op_harness *harness, int o, const char *how, clv_error *err)
{
    const clv_view *view = &harness->out[o];
    char index[CLV_OP_HARNESS_INDEX_TEXT], text[2 * CLV_TYPE_TEXT + 8];
    CLV_TRY(check_guards(harness, view, "result", o, how, err));
    int64_t i =
        harness->aliases[o] ? -1 : clv_guard_bytes_first_unwritten(view->dtype, view->data, clv_view_elems(view));
    if (i < 0)
        return check_bools(harness, o, how, err);
    return clv_fail_at(err, CLV_ECHECK, -1, harness->op->name,
                       "%s: the kernel left element %s of result %d, which is %s, unwritten; valid: every element is "
                       "written",
                       how, clv_op_harness_print_index(index, view, clv_op_harness_global_index(view, i)), o,
                       view_text(text, sizeof text, view));
}

static bool is_overwritten_in_place(const clv_op_harness *harness, int i)
{
    bool any = false;
    for (int o = 0; o < harness->op->n_out; o++)
        any = any || harness->aliases[o] == 1 + i;
    return any;
}

static uint64_t operand_sum(const clv_view *view)
{
    return view->data ? clv_guard_bytes_checksum(view->data, (int64_t)clv_view_byte_size(view)) : 0;
}

static clv_status check_operand(const clv_op_harness *harness, int i, uint64_t before, const char *how, clv_error *err)
{
    if (!harness->in[i].data || is_overwritten_in_place(harness, i))
        return CLV_OK;
    CLV_TRY(check_guards(harness, &harness->in[i], "operand", i, how, err));
    if (operand_sum(&harness->in[i]) == before)
        return CLV_OK;
    return clv_fail_at(err, CLV_ECHECK, -1, harness->op->name,
                       "%s: the kernel wrote into operand %d; valid: results only, unless in_place gives it one's "
                       "memory",
                       how, i);
}

static clv_status check_workspace(const clv_op_harness *harness, const void *workspace, size_t bytes, const char *how,
                                  clv_error *err)
{
    int64_t at;
    const char *where = broken(&at, workspace, (int64_t)bytes, (int64_t)bytes + CLV_GUARD_BYTES);
    if (!where)
        return CLV_OK;
    return clv_fail_at(err, CLV_ECHECK, -1, harness->op->name,
                       "%s: the kernel wrote %s its workspace of %zu bytes, at byte %lld", how, where, bytes,
                       (long long)at);
}

/* threads 0: without a context, as outside of sessions. */
static clv_status run_kernel(const clv_op_harness *harness, void *workspace, int threads, const char *how,
                             clv_error *err)
{
    const struct clv_context context = {.device = &clv_device_host, .threads = threads};
    const clv_call call = {.op = harness->op,
                           .in = harness->in,
                           .out = harness->out,
                           .workspace = workspace,
                           .context = threads > 0 ? &context : NULL};
    clv_error why = {0};
    clv_status status = clv_check_callback_status(&why, harness->op->def->run(&call, &why), "the kernel");
    if (status != CLV_OK)
        return clv_fail_at(err, status, -1, harness->op->name, "%s: %s", how,
                           why.message[0] ? why.message : clv_status_text(status));
    return CLV_OK;
}

static clv_status run_between_guards(const clv_op_harness *harness, void *workspace, size_t bytes, const char *how,
                                     clv_error *err)
{
    const clv_op *op = harness->op;
    uint64_t before[CLV_MAX_IN];
    for (int i = 0; i < op->n_in; i++)
        before[i] = operand_sum(&harness->in[i]);
    CLV_TRY(run_kernel(harness, workspace, 0, how, err));
    for (int o = 0; o < op->n_out; o++)
        CLV_TRY(check_result(harness, o, how, err));
    for (int i = 0; i < op->n_in; i++)
        CLV_TRY(check_operand(harness, i, before[i], how, err));
    return check_workspace(harness, workspace, bytes, how, err);
}

static clv_status alloc_workspace(void **out, size_t *bytes, const clv_op_harness *harness, const char *how,
                                  clv_error *err)
{
    *bytes = clv_op_harness_workspace_bytes(harness);
    if (*bytes > CLV_MAX_RANK_BYTES / 4)
        return clv_fail_at(err, CLV_ECHECK, -1, harness->op->name, "%s: it needs a workspace of %zu bytes", how,
                           *bytes);
    *out = alloc_guarded((int64_t)*bytes, (int64_t)*bytes + CLV_GUARD_BYTES);
    return *out ? CLV_OK : clv_fail_memory(err, "the workspace of an op check", *bytes);
}

clv_status clv_op_harness_run(const clv_op_harness *harness, const char *how, clv_error *err)
{
    if (clv_op_constraint_of(harness->op)) {
        memcpy(harness->out[0].data, harness->in[0].data, clv_view_byte_size(&harness->in[0]));
        return CLV_OK;
    }
    size_t bytes;
    void *workspace;
    CLV_TRY(alloc_workspace(&workspace, &bytes, harness, how, err));
    clv_status status = run_between_guards(harness, workspace, bytes, how, err);
    free_guarded(workspace);
    return status;
}

clv_status clv_op_harness_run_poisoned(const clv_op_harness *harness, int threads, const char *how, clv_error *err)
{
    size_t bytes;
    void *workspace;
    CLV_TRY(alloc_workspace(&workspace, &bytes, harness, how, err));
    poison(workspace, (int64_t)bytes, (int64_t)bytes + CLV_GUARD_BYTES, false);
    for (int i = 0; i < harness->op->n_in; i++)
        if (harness->in[i].data)
            poison(harness->in[i].data, (int64_t)clv_view_byte_size(&harness->in[i]), room_after(&harness->in[i]),
                   true);
    for (int o = 0; o < harness->op->n_out; o++)
        poison(harness->out[o].data, (int64_t)clv_view_byte_size(&harness->out[o]), room_after(&harness->out[o]),
               false);
    clv_status status = run_kernel(harness, workspace, threads, how, err);
    free_guarded(workspace);
    return status;
}
