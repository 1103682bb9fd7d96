/* quantized_weights.c - loads weights as q8_0/q4_0 blocks: reads stored blocks, or quantizes a checkpoint's floats. */
#include "models/weights/quantized_weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cpu/gemm/gemm_quantized.h"
#include "models/families/model_family.h"
#include "models/weights/quantized_tensors.h"
#include "tensor/box_runs.h"

clv_status clv_quant_check_model(const clv_model_config *model, clv_quant how, clv_error *err)
{
    if (model->family->stated)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "weights in %s: %s is a family that a program states; valid: the library's",
                        clv_quant_name(how), clv_model_config_model_type(model));
    for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
        clv_parameter p = clv_model_parameter_at(model, i);
        if (clv_parameter_is_quantized(model, &p))
            return CLV_OK;
    }
    return clv_fail(err, CLV_EUNSUPPORTED,
                    "weights in %s: no weight has rows of a multiple of %d elements (hidden %lld, head size %lld, ffn "
                    "%lld)",
                    clv_quant_name(how), CLV_QUANT_BLOCK, (long long)model->hidden, (long long)model->head_dim,
                    (long long)model->ffn);
}

/* ---- reading ---- */

/* Scales that were made with a box's integers, and not yet asked for. */
typedef struct kept {
    struct kept *next;
    char name[CLV_PARAMETER_NAME_SIZE];
    clv_shard box; /* of scales */
    uint16_t scales[];
} kept;

struct clv_quant_reader {
    clv_quant how;
    bool stored; /* the folder's weights are blocks; else they are made of floats */
    pthread_mutex_t lock;
    kept *first;
};

clv_status clv_quant_reader_new(clv_quant_reader **out, clv_quant how, bool stored, clv_error *err)
{
    clv_quant_reader *r = calloc(1, sizeof *r);
    if (!r || pthread_mutex_init(&r->lock, NULL) != 0) {
        free(r);
        return clv_fail_memory(err, "quantised weights", sizeof *r);
    }
    r->how = how;
    r->stored = stored;
    *out = r;
    return CLV_OK;
}

void clv_quant_reader_free(clv_quant_reader *r)
{
    if (!r)
        return;
    while (r->first) {
        kept *k = r->first;
        r->first = k->next;
        free(k);
    }
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static bool same_box(const clv_shard *a, const clv_shard *b)
{
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->lo[d] == b->lo[d] && a->hi[d] == b->hi[d];
    return same;
}

/* The kept scales of a box, no more the reader's; NULL: there are none. */
static kept *take_kept(clv_quant_reader *r, const char *name, const clv_shard *box)
{
    kept *found = NULL;
    pthread_mutex_lock(&r->lock);
    for (kept **at = &r->first; *at && !found; at = found ? at : &(*at)->next)
        if (strcmp((*at)->name, name) == 0 && same_box(&(*at)->box, box)) {
            found = *at;
            *at = found->next;
        }
    pthread_mutex_unlock(&r->lock);
    return found;
}

static void keep(clv_quant_reader *r, kept *k)
{
    pthread_mutex_lock(&r->lock);
    k->next = r->first;
    r->first = k;
    pthread_mutex_unlock(&r->lock);
}

/* Where rows of floats go, quantised. */
typedef struct quantising {
    clv_quant how;
    uint8_t *ints; /* NULL: only scales are wanted */
    uint16_t *scales;
    int64_t blocks; /* a row */
} quantising;

static void quantize_rows(void *arg, int64_t row, int64_t rows, const float *x)
{
    const quantising *q = arg;
    int64_t at = row * q->blocks;
    clv_quantize(q->how, q->ints ? q->ints + at * clv_quant_block_bytes(q->how) : NULL, q->scales + at, x,
                 rows * q->blocks);
}

/* The floats' box of a box of scales. */
static clv_shard floats_box(const clv_shard *scales)
{
    clv_shard box = *scales;
    box.lo[box.rank - 1] *= CLV_QUANT_BLOCK;
    box.hi[box.rank - 1] *= CLV_QUANT_BLOCK;
    return box;
}

/* How many dimensions of `in` the parameter has, as rows have it: the table, which has none, one. */
static int in_dims(const clv_parameter *p)
{
    int n = (int)strlen(p->row->in);
    return n > 0 ? n : 1;
}

clv_status clv_quantize_parameter(clv_quant how, const clv_weights *weights, const clv_model_config *model,
                                  const clv_parameter *p, const clv_shard *box, uint8_t *ints, uint16_t *scales,
                                  clv_error *err)
{
    clv_shard floats = floats_box(box);
    quantising q = {.how = how, .ints = ints, .scales = scales, .blocks = 1};
    for (int d = box->rank - in_dims(p); d < box->rank; d++)
        q.blocks *= box->hi[d] - box->lo[d];
    return clv_model_read_rows(weights, model, p->name, &floats, quantize_rows, &q, err);
}

static clv_status read_blocks(clv_quant_reader *r, const clv_model_weights *weights, const clv_model_config *model,
                              const clv_parameter *p, const clv_shard *box, uint8_t *ints, uint16_t *scales,
                              clv_error *err)
{
    const clv_weights *files = weights->files;
    const clv_safetensor *stored;
    if (!r->stored)
        return clv_quantize_parameter(r->how, files, model, p, box, ints, scales, err);
    CLV_TRY(clv_quantized_tensor_find(&stored, files, p, r->how, err));
    return clv_quantized_tensor_read(stored, r->how, box, ints, scales, err);
}

static clv_status read_ints(clv_quant_reader *r, const clv_model_weights *weights, const clv_model_config *model,
                            const clv_parameter *p, const clv_shard *ints_box, void *out, clv_error *err)
{
    clv_shard box = *ints_box;
    box.rank--;
    size_t bytes = sizeof(kept) + (size_t)clv_shard_elems(&box) * sizeof(uint16_t);
    kept *k = malloc(bytes);
    if (!k)
        return clv_fail_memory(err, p->name, bytes);
    memcpy(k->name, p->name, sizeof k->name);
    k->box = box;
    clv_status status = read_blocks(r, weights, model, p, &box, out, k->scales, err);
    if (status == CLV_OK)
        keep(r, k);
    else
        free(k);
    return status;
}

static clv_status read_scales(clv_quant_reader *r, const clv_model_weights *weights, const clv_model_config *model,
                              const clv_parameter *p, const clv_shard *box, void *out, clv_error *err)
{
    kept *k = take_kept(r, p->name, box);
    if (!k)
        return read_blocks(r, weights, model, p, box, NULL, out, err);
    memcpy(out, k->scales, (size_t)clv_shard_elems(box) * sizeof *k->scales);
    free(k);
    return CLV_OK;
}

/* Whether the name is a parameter's with this ending, which is quantised. */
static bool find(clv_parameter *out, const clv_model_config *model, const char *name, const char *ending)
{
    return clv_model_parameter_with_suffix(out, model, name, ending) && clv_parameter_stored_as_blocks(model, out);
}

clv_status clv_quant_reader_read(clv_quant_reader *r, const clv_model_weights *weights, const clv_model_config *model,
                                 const char *name, const clv_shard *box, void *out, int *known, clv_error *err)
{
    clv_parameter p;
    bool ints = find(&p, model, name, CLV_QUANT_INTS);
    *known = ints || find(&p, model, name, CLV_QUANT_SCALES);
    if (!*known)
        return CLV_OK;
    if (!weights)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: weights in %s are made of those of a folder, and none is open",
                        name, clv_quant_name(r->how));
    return ints ? read_ints(r, weights, model, &p, box, out, err) : read_scales(r, weights, model, &p, box, out, err);
}
