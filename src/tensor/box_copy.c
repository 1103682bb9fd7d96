/* box_copy.c - box copy: memcpy of the longest runs that are contiguous in both shards. */
#include "tensor/box_copy.h"

#include <string.h>

bool clv_shard_equal(const clv_shard *a, const clv_shard *b)
{
    size_t bytes = (size_t)a->rank * sizeof *a->lo;
    return memcmp(a->lo, b->lo, bytes) == 0 && memcmp(a->hi, b->hi, bytes) == 0;
}

/* The runs of a box: `count` elements each, contiguous in both buffers; outer dimensions have strides in elements.
 * Adjacent dimensions with matching strides in both buffers are merged, so that there are as few runs as possible. */
typedef struct runs {
    int n;         /* outer dimensions, innermost first */
    int64_t count; /* elements a run */
    int64_t size[CLV_MAX_RANK], out_stride[CLV_MAX_RANK], in_stride[CLV_MAX_RANK];
    int64_t out_at, in_at; /* offsets of the first run */
} runs;

static runs intersect_runs(const clv_shard *out, const clv_shard *in, const clv_shard *box)
{
    runs r = {.count = 1};
    int64_t out_stride = 1, in_stride = 1;
    bool merging = true; /* the dimensions so far are one run */
    for (int d = box->rank - 1; d >= 0; d--) {
        int64_t size = box->hi[d] - box->lo[d];
        r.out_at += (box->lo[d] - out->lo[d]) * out_stride;
        r.in_at += (box->lo[d] - in->lo[d]) * in_stride;
        int last = r.n - 1;
        if (merging && out_stride == r.count && in_stride == r.count)
            r.count *= size;
        else if (size != 1) {
            merging = false;
            if (last >= 0 && out_stride == r.size[last] * r.out_stride[last] &&
                in_stride == r.size[last] * r.in_stride[last])
                r.size[last] *= size;
            else {
                r.size[r.n] = size;
                r.out_stride[r.n] = out_stride;
                r.in_stride[r.n++] = in_stride;
            }
        }
        out_stride *= out->hi[d] - out->lo[d];
        in_stride *= in->hi[d] - in->lo[d];
    }
    return r;
}

/* Moves to the next run; false after the last. index holds the position in each outer dimension, zero at first. */
static bool next_run(const runs *r, int64_t *index, int64_t *out_at, int64_t *in_at)
{
    for (int i = 0; i < r->n; i++) {
        *out_at += r->out_stride[i];
        *in_at += r->in_stride[i];
        if (++index[i] < r->size[i])
            return true;
        *out_at -= r->size[i] * r->out_stride[i];
        *in_at -= r->size[i] * r->in_stride[i];
        index[i] = 0;
    }
    return false;
}

/* Short runs are common (a column block of one or two elements); a fixed-size memcpy is one move. */
static void copy_runs(const runs *r, char *out, const char *in, size_t elem_size)
{
    int64_t index[CLV_MAX_RANK] = {0}, out_at = r->out_at, in_at = r->in_at, size = (int64_t)elem_size;
    size_t bytes = (size_t)r->count * elem_size;
#define COPY_ALL(n)                                                                                                    \
    do                                                                                                                 \
        memcpy(out + out_at * size, in + in_at * size, n);                                                             \
    while (next_run(r, index, &out_at, &in_at))
    if (bytes == 4)
        COPY_ALL(4);
    else if (bytes == 8)
        COPY_ALL(8);
    else
        COPY_ALL(bytes);
#undef COPY_ALL
}

void clv_box_copy(void *out, const clv_shard *out_shard, const void *in, const clv_shard *in_shard,
                  const clv_shard *box, size_t elem_size)
{
    if (clv_shard_elems(box) == 0)
        return;
    runs r = intersect_runs(out_shard, in_shard, box);
    copy_runs(&r, out, in, elem_size);
}

void clv_box_reduce(void *out, const clv_shard *out_shard, const void *const *in, int n, const clv_shard *in_shard,
                    const clv_shard *box, clv_dtype dtype, clv_reduction reduction)
{
    int64_t index[CLV_MAX_RANK] = {0}, size = (int64_t)clv_dtype_size(dtype);
    if (clv_shard_elems(box) == 0)
        return;
    runs r = intersect_runs(out_shard, in_shard, box);
    int64_t out_at = r.out_at, in_at = r.in_at;
    do
        clv_values_reduce((char *)out + out_at * size, in, n, in_at, r.count, dtype, reduction);
    while (next_run(&r, index, &out_at, &in_at));
}
