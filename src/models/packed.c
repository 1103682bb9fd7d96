/* packed.c - see packed.h. */
#include "models/packed.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cpu/transpose.h"
#include "kernels/cpu/tuning.h"
#include "models/family.h"

static _Atomic int set_for_test = -1;

void clv_model_set_packs_for_test(int packs)
{
    set_for_test = packs;
}

bool clv_model_packs(const clv_model *m)
{
    const int set = set_for_test;
    return (set < 0 ? clv_tuning_here()->packs_weights : set > 0) && m->path[0] != '\0' && !m->job && !m->adapters &&
           m->quant == CLV_QUANT_NONE && !m->config.family->stated;
}

/* Where rows of floats go: columns of panels. */
typedef struct packing {
    clv_dtype dtype;
    char *out;
    char *narrow; /* CLV_PANEL rows in that dtype */
    int64_t in;   /* elements of a row */
} packing;

static void pack_rows(void *arg, int64_t row, int64_t rows, const float *x)
{
    const packing *p = arg;
    const size_t size = clv_dtype_size(p->dtype);
    for (int64_t n; rows > 0; rows -= n, row += n, x += n * p->in) {
        const int64_t lane = row % CLV_PANEL, rest = CLV_PANEL - lane;
        n = rows < rest ? rows : rest;
        char *to = p->out + (size_t)(row / CLV_PANEL * p->in * CLV_PANEL + lane) * size;
        const void *from = x;
        if (p->dtype != CLV_F32) {
            clv_dtype_convert(p->dtype, p->narrow, CLV_F32, x, n * p->in);
            from = p->narrow;
        }
        clv_transpose_matrix(size, to, CLV_PANEL, from, p->in, p->in, n);
    }
}

/* The floats' box, [(parts,) out..., in...]. */
static clv_shard floats_box(const clv_shard *packed, int last_out)
{
    clv_shard box = *packed;
    box.rank--;
    box.lo[last_out] *= CLV_PANEL;
    box.hi[last_out] *= CLV_PANEL;
    return box;
}

static clv_status read_packed(const clv_model_weights *weights, const clv_model_config *model, const clv_parameter *p,
                              clv_dtype dtype, const clv_shard *box, void *out, clv_error *err)
{
    const int n_in = (int)strlen(p->row->in), first_in = box->rank - 1 - n_in;
    packing to = {.dtype = dtype, .out = out, .in = 1};
    for (int d = first_in; d < box->rank - 1; d++)
        to.in *= box->hi[d] - box->lo[d];
    const size_t bytes = (size_t)(CLV_PANEL * to.in + 1) * clv_dtype_size(dtype);
    to.narrow = malloc(bytes);
    if (!to.narrow)
        return clv_fail_memory(err, p->name, bytes);
    const clv_shard floats = floats_box(box, first_in - 1);
    clv_status status =
        clv_model_read_rows(clv_model_weights_files(weights), model, p->name, &floats, pack_rows, &to, err);
    free(to.narrow);
    return status;
}

clv_status clv_packed_read(const clv_model_weights *weights, const clv_model_config *model, const char *name,
                           const clv_type *type, const clv_shard *box, void *out, int *known, clv_error *err)
{
    char own[CLV_PARAMETER_NAME_SIZE];
    clv_parameter p;
    const size_t n = strlen(name), m = strlen(CLV_PACKED);
    if (n < m || n - m >= sizeof own || strcmp(name + n - m, CLV_PACKED) != 0)
        return CLV_OK;
    memcpy(own, name, n - m);
    own[n - m] = '\0';
    if (clv_model_parameter_find(&p, model, own, NULL) != CLV_OK)
        return CLV_OK;
    *known = 1;
    return read_packed(weights, model, &p, type->dtype, box, out, err);
}
