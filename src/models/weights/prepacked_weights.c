/* prepacked_weights.c - loads weights prepacked into GEMM panels for decoding, and decides when that is faster. */
#include "models/weights/prepacked_weights.h"

#include "comm/job/mpi_job.h"
#include "kernels/cpu/cpu_tuning.h"
#include "models/families/model_family.h"
#include "tensor/box_runs.h"

static _Atomic int set_for_test = -1;

void clv_model_set_prepacked_for_test(int packs)
{
    set_for_test = packs;
}

bool clv_model_uses_prepacked(const clv_model *m)
{
    const int set = set_for_test;
    return (set < 0 ? clv_cpu_tuning()->prepack_weights : set > 0) && m->path[0] != '\0' &&
           (!m->job || clv_job_cpus_are_alike(m->job)) && m->compile.comm_dtype == CLV_COMM_F32 &&
           m->quant == CLV_QUANT_NONE && !m->config.family->is_custom;
}

/* Packs a box of the state, [(parts,) out..., out / 16, in..., 16], in strips of the parameter, [in..., (parts,)
 * out...], that are contiguous in its file. */
typedef struct packing {
    const clv_state_read_request *read;
    clv_shard box; /* of the parameter */
    int n_in;      /* dimensions of `in` */
    int64_t in;    /* elements of these in the box */
    char *strip;   /* capacity: STRIP_BYTES, or a panel */
} packing;

enum { STRIP_BYTES = 128 << 10 /* fits the second-level cache while it is packed */ };

static int64_t extent(const clv_shard *box, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= box->hi[d] - box->lo[d];
    return n;
}

/* Packs a part of the box: rows from first_in on, columns from panel `panel` on. */
static clv_status pack_part(const packing *p, const clv_shard *part, int64_t first_in, int64_t panel, clv_error *err)
{
    const int64_t in = extent(part, 0, p->n_in), columns = extent(part, p->n_in, part->rank);
    const size_t size = clv_dtype_size(p->read->type->dtype), row = CLV_PANEL_COLUMNS * size;
    const char *from = p->strip;
    CLV_TRY(clv_model_read_parameter(p->read->model->weights->files, &p->read->model->config, p->read->parameter.name,
                                     part, p->read->type->dtype, p->strip, err));
    for (int64_t i = 0; i < in; i++)
        for (int64_t j = 0; j < columns / CLV_PANEL_COLUMNS; j++, from += row)
            memcpy((char *)p->read->out + (size_t)((panel + j) * p->in + first_in + i) * row, from, row);
    return CLV_OK;
}

/* Units of a strip, of n units of `each` elements. */
static int64_t strip_length(const packing *p, int64_t n, int64_t each)
{
    int64_t fit = each > 0 ? STRIP_BYTES / (int64_t)clv_dtype_size(p->read->type->dtype) / each : n;
    return fit < 1 ? 1 : fit < n ? fit : n;
}

/* For a file with [in, out]: strips of rows. */
static clv_status pack_rows(packing *p, clv_error *err)
{
    const int64_t n = p->box.hi[0] - p->box.lo[0], each = n > 0 ? extent(&p->box, 0, p->box.rank) / n : 0;
    const int64_t strip = strip_length(p, n, each), inner = extent(&p->box, 1, p->n_in);
    for (int64_t i = 0; i < n; i += strip) {
        clv_shard part = p->box;
        part.lo[0] += i;
        part.hi[0] = i + strip < n ? part.lo[0] + strip : part.hi[0];
        CLV_TRY(pack_part(p, &part, i * inner, 0, err));
    }
    return CLV_OK;
}

/* For a file with [out, in]: strips of panels of the last dimension, for each index of the dimensions before. */
static clv_status pack_columns(packing *p, clv_error *err)
{
    const int last = p->box.rank - 1;
    const int64_t panels = (p->box.hi[last] - p->box.lo[last]) / CLV_PANEL_COLUMNS,
                  before = extent(&p->box, p->n_in, last);
    const int64_t strip = strip_length(p, panels, p->in * CLV_PANEL_COLUMNS);
    for (int64_t o = 0; o < before; o++) {
        clv_shard part = p->box;
        int64_t rest = o;
        for (int d = last - 1; d >= p->n_in; d--) {
            const int64_t n = p->box.hi[d] - p->box.lo[d];
            part.lo[d] = p->box.lo[d] + rest % n;
            part.hi[d] = part.lo[d] + 1;
            rest /= n;
        }
        for (int64_t j = 0; j < panels; j += strip) {
            part.lo[last] = p->box.lo[last] + j * CLV_PANEL_COLUMNS;
            part.hi[last] = j + strip < panels ? part.lo[last] + strip * CLV_PANEL_COLUMNS : p->box.hi[last];
            CLV_TRY(pack_part(p, &part, 0, o * panels + j, err));
        }
    }
    return CLV_OK;
}

static clv_status read_packed(packing *p, clv_error *err)
{
    const bool by_rows = p->read->parameter.row->form != CLV_PARAMETER_LINEAR;
    const int64_t n = extent(&p->box, 0, p->box.rank), rows = p->box.hi[0] - p->box.lo[0];
    if (n == 0)
        return CLV_OK;
    const int64_t least = by_rows ? n / rows : p->in * CLV_PANEL_COLUMNS;
    const size_t bytes = (size_t)least * clv_dtype_size(p->read->type->dtype) + STRIP_BYTES;
    p->strip = malloc(bytes);
    if (!p->strip)
        return clv_fail_memory(err, p->read->parameter.name, bytes);
    clv_status status = by_rows ? pack_rows(p, err) : pack_columns(p, err);
    free(p->strip);
    return status;
}

bool clv_state_is_prepacked(const clv_state_read_request *r)
{
    const clv_parameter *p = &r->parameter;
    const clv_type *type = r->type;
    const int n_in = (int)strlen(p->row->in), n_out = p->rank - n_in;
    bool is = r->model->weights && !r->model->config.family->is_custom && n_in > 0 && n_out > 0 &&
              type->rank == p->rank + 1 && type->shape[p->rank] == CLV_PANEL_COLUMNS &&
              (type->dtype == CLV_F32 || type->dtype == CLV_BF16 || type->dtype == CLV_F16);
    for (int d = 0; is && d < p->rank; d++)
        is = type->shape[d] * (d == n_out - 1 ? CLV_PANEL_COLUMNS : 1) == p->shape[d < n_out ? n_in + d : d - n_out];
    return is;
}

clv_status clv_read_prepacked(const clv_state_read_request *r, clv_error *err)
{
    const clv_parameter *p = &r->parameter;
    const clv_shard *box = r->box;
    const int n_in = (int)strlen(p->row->in), n_out = p->rank - n_in;
    if (!clv_box_within(box, r->type->rank, r->type->shape) || extent(box, p->rank, p->rank + 1) != CLV_PANEL_COLUMNS)
        return clv_fail(err, CLV_ESHAPE, "%.200s: the box is not within the state, or parts its panels", r->name);
    packing to = {.read = r, .box = {.rank = p->rank}, .n_in = n_in};
    for (int d = 0; d < p->rank; d++) {
        const int ours = d < n_out ? n_in + d : d - n_out, by = d == n_out - 1 ? CLV_PANEL_COLUMNS : 1;
        to.box.lo[ours] = box->lo[d] * by;
        to.box.hi[ours] = box->hi[d] * by;
    }
    to.in = extent(&to.box, 0, n_in);
    return read_packed(&to, err);
}
