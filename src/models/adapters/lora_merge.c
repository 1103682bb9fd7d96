/* lora_merge.c - merges LoRA adapters into a weight shard when it is saved: W + scale * A B. */
#include <stdlib.h>

#include "base/error.h"
#include "models/adapters/lora_parameters.h"
#include "runtime/multi_process/multi_process.h"

/* A box of a weight [in, (parts), out], and what of its adapter falls into it. */
typedef struct merge {
    clv_lora_adapter its;
    int64_t in, parts, out; /* elements of the box; parts 1: there is no such dimension */
    clv_shard a_box, b_box;
    float *a, *b, *row, *was; /* [in, (parts), R], [R, (parts), out], [out], [out] */
    void *scratch;            /* in any dtype */
} merge;

static void append(clv_shard *to, int64_t lo, int64_t hi)
{
    to->lo[to->rank] = lo;
    to->hi[to->rank++] = hi;
}

static int64_t append_range(clv_shard *to, const clv_shard *from, int d, int end)
{
    int64_t elems = 1;
    for (; d < end; d++) {
        append(to, from->lo[d], from->hi[d]);
        elems *= from->hi[d] - from->lo[d];
    }
    return elems;
}

static void cut(merge *m, const clv_shard *box, int n_in)
{
    const clv_lora_adapter *its = &m->its;
    bool has_parts = its->parts > 0;
    m->in = append_range(&m->a_box, box, 0, n_in);
    m->parts = has_parts ? box->hi[n_in] - box->lo[n_in] : 1;
    if (its->a_has_parts)
        append_range(&m->a_box, box, n_in, n_in + 1);
    append(&m->a_box, 0, its->rank);
    append(&m->b_box, 0, its->rank);
    if (has_parts && its->part < 0)
        append_range(&m->b_box, box, n_in, n_in + 1);
    m->out = append_range(&m->b_box, box, n_in + has_parts, box->rank);
}

static clv_status read_factor(float **out, merge *m, const clv_session *session, const char *name, const clv_shard *box,
                              clv_dtype dtype, clv_error *err)
{
    int64_t elems = clv_shard_elems(box);
    *out = malloc((size_t)elems * sizeof **out + 1);
    m->scratch = malloc((size_t)elems * sizeof(double) + 1);
    if (!*out || !m->scratch)
        return clv_fail_memory(err, name, (size_t)elems * sizeof(double));
    clv_status status = clv_session_read_local(session, name, box, m->scratch, err);
    if (status == CLV_OK)
        clv_dtype_convert(CLV_F32, *out, dtype, m->scratch, elems);
    free(m->scratch);
    m->scratch = NULL;
    return status;
}

/* Sums are made whole before they meet the weight, which is larger. */
static void add(char *weight, clv_dtype dtype, const merge *m, int64_t first_part)
{
    const clv_lora_adapter *its = &m->its;
    int64_t a_parts = its->a_has_parts ? m->parts : 1, b_parts = its->part < 0 ? m->parts : 1;
    for (int64_t i = 0; i < m->in; i++)
        for (int64_t p = 0; p < m->parts; p++) {
            const float *a = m->a + (i * a_parts + (its->a_has_parts ? p : 0)) * its->rank;
            char *w = weight + (size_t)((i * m->parts + p) * m->out) * clv_dtype_size(dtype);
            if (its->part >= 0 && first_part + p != its->part)
                continue;
            for (int64_t k = 0; k < m->out; k++)
                m->row[k] = 0;
            for (int64_t r = 0; r < its->rank; r++) {
                const float *b = m->b + (r * b_parts + (its->part < 0 ? p : 0)) * m->out;
                for (int64_t k = 0; k < m->out; k++)
                    m->row[k] += a[r] * b[k];
            }
            clv_dtype_convert(CLV_F32, m->was, dtype, w, m->out);
            for (int64_t k = 0; k < m->out; k++) {
                m->row[k] *= (float)its->scale;
                m->row[k] += m->was[k];
            }
            clv_dtype_convert(dtype, w, CLV_F32, m->row, m->out);
        }
}

clv_status clv_lora_merge(void *weight, clv_dtype to, const clv_shard *box, const clv_adapters *adapters,
                          const char *name, const clv_session *session, clv_dtype dtype, clv_error *err)
{
    merge m = {0};
    clv_parameter a, b;
    if (!adapters || !clv_adapters_find(&m.its, &a, &b, adapters, name))
        return CLV_OK;
    cut(&m, box, a.rank - m.its.a_has_parts - 1);
    m.row = malloc((size_t)m.out * sizeof *m.row + 1);
    m.was = malloc((size_t)m.out * sizeof *m.was + 1);
    clv_status status = m.row && m.was ? CLV_OK : clv_fail_memory(err, name, (size_t)m.out * sizeof *m.row);
    if (status == CLV_OK)
        status = read_factor(&m.a, &m, session, a.name, &m.a_box, dtype, err);
    if (status == CLV_OK)
        status = read_factor(&m.b, &m, session, b.name, &m.b_box, dtype, err);
    if (status == CLV_OK)
        add(weight, to, &m, m.its.parts > 0 ? box->lo[a.rank - m.its.a_has_parts - 1] : 0);
    free(m.a);
    free(m.b);
    free(m.row);
    free(m.was);
    free(m.scratch);
    return status;
}
