/* llama_weights.c - see llama_weights.h.
 *
 * A product's tensor in the file is [out, in]; seen with its dimensions apart, q_proj is [H,D,M]. A box of ours
 * [in..., (part), out...] is the box [out..., in...] of that view, read in strips and transposed.
 */
#include "models/llama_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/box.h"

enum { STRIP_BYTES = 1 << 20, TENSOR_NAME_SIZE = 96, SHAPE_TEXT = 192, TILE = 16 };

/* A row of the map. `in` and `out` are letters of dimensions; a row with no `in` is stored as it is. */
typedef struct map_row {
    const char *name;      /* ours, within its layer */
    const char *theirs[2]; /* the second is NULL unless two tensors are packed, between in and out */
    const char *in, *out;
} map_row;

static const map_row map[] = {
    {"embed.weight", {"model.embed_tokens.weight", NULL}, "", "VM"},
    {"attention.norm.weight", {"input_layernorm.weight", NULL}, "", "M"},
    {"attention.q.weight", {"self_attn.q_proj.weight", NULL}, "M", "HD"},
    {"attention.kv.weight", {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}, "M", "KD"},
    {"attention.o.weight", {"self_attn.o_proj.weight", NULL}, "HD", "M"},
    {"mlp.norm.weight", {"post_attention_layernorm.weight", NULL}, "", "M"},
    {"mlp.gate_up.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}, "M", "F"},
    {"mlp.down.weight", {"mlp.down_proj.weight", NULL}, "F", "M"},
    {"final_norm.weight", {"model.norm.weight", NULL}, "", "M"},
    {"lm_head.weight", {"lm_head.weight", NULL}, "M", "V"},
};
enum { FIRST_OF_LAYER = 1, END_OF_LAYER = 8, ROWS_OF_LAYER = END_OF_LAYER - FIRST_OF_LAYER };

static int parts_of(const map_row *row)
{
    return row->theirs[1] != NULL ? 2 : 1;
}

static int64_t extent(const clv_llama_config *c, char letter)
{
    const struct {
        char letter;
        int64_t size;
    } sizes[] = {{'V', c->vocab},    {'M', c->hidden},   {'H', c->heads},
                 {'K', c->kv_heads}, {'D', c->head_dim}, {'F', c->ffn}};
    int i = 0;

    while (sizes[i].letter != letter)
        i++;
    return sizes[i].size;
}

/* Appends the sizes of letters to a shape; returns the new rank. */
static int append(int64_t *shape, int rank, const clv_llama_config *c, const char *letters)
{
    for (; *letters != '\0'; letters++)
        shape[rank++] = extent(c, *letters);
    return rank;
}

/* ---- names ---- */

int64_t clv_llama_parameter_count(const clv_llama_config *c)
{
    return FIRST_OF_LAYER + c->layers * ROWS_OF_LAYER + (c->tie_word_embeddings ? 1 : 2);
}

clv_llama_parameter clv_llama_parameter_at(const clv_llama_config *c, int64_t i)
{
    clv_llama_parameter p = {.layer = -1};
    int64_t in_layers = i - FIRST_OF_LAYER;

    if (in_layers >= 0 && in_layers < c->layers * ROWS_OF_LAYER) {
        p.layer = in_layers / ROWS_OF_LAYER;
        p.row = FIRST_OF_LAYER + (int)(in_layers % ROWS_OF_LAYER);
        snprintf(p.name, sizeof p.name, "layers.%lld.%s", (long long)p.layer, map[p.row].name);
    } else {
        p.row = in_layers < 0 ? 0 : END_OF_LAYER + (int)(in_layers - c->layers * ROWS_OF_LAYER);
        snprintf(p.name, sizeof p.name, "%s", map[p.row].name);
    }
    p.rank = append(p.shape, 0, c, map[p.row].in);
    if (parts_of(&map[p.row]) == 2)
        p.shape[p.rank++] = 2;
    p.rank = append(p.shape, p.rank, c, map[p.row].out);
    return p;
}

clv_status clv_llama_parameter_find(clv_llama_parameter *out, const clv_llama_config *c, const char *name,
                                    clv_error *err)
{
    for (int64_t i = 0; i < clv_llama_parameter_count(c); i++) {
        clv_llama_parameter p = clv_llama_parameter_at(c, i);
        if (strcmp(p.name, name) == 0) {
            *out = p;
            return CLV_OK;
        }
    }
    return clv_fail(err, CLV_ENOTFOUND, "the model has no parameter \"%.64s\" (%lld layers, %s embeddings)", name,
                    (long long)c->layers, c->tie_word_embeddings ? "tied" : "untied");
}

static void their_name(char name[TENSOR_NAME_SIZE], const clv_llama_parameter *p, int part)
{
    if (p->layer >= 0)
        snprintf(name, TENSOR_NAME_SIZE, "model.layers.%lld.%s", (long long)p->layer, map[p->row].theirs[part]);
    else
        snprintf(name, TENSOR_NAME_SIZE, "%s", map[p->row].theirs[part]);
}

/* Their shape: one dimension for all of `out`, one for all of `in`; as it is where nothing is transposed. */
static int their_shape(int64_t *shape, const clv_llama_config *c, const map_row *row)
{
    int64_t sizes[CLV_MAX_RANK];

    if (row->in[0] == '\0')
        return append(shape, 0, c, row->out);
    shape[0] = clv_box_elems(append(sizes, 0, c, row->out), sizes);
    shape[1] = clv_box_elems(append(sizes, 0, c, row->in), sizes);
    return 2;
}

/* ---- checking ---- */

static void shape_text(char text[SHAPE_TEXT], int rank, const int64_t *shape)
{
    size_t used = 0;

    text[0] = '\0';
    for (int d = 0; d < rank; d++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%lld", d > 0 ? "," : "", (long long)shape[d]);
}

static clv_status check_tensor(const clv_weights *w, const clv_llama_config *c, const clv_llama_parameter *p, int part,
                               clv_error *err)
{
    char name[TENSOR_NAME_SIZE];
    int64_t shape[CLV_MAX_RANK];
    int rank = their_shape(shape, c, &map[p->row]);
    const clv_safetensor *t = NULL;

    their_name(name, p, part);
    CLV_TRY(clv_weights_find(&t, w, name, err));
    if (!t->readable || !clv_dtype_is_float(t->dtype))
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: dtype %s is not supported", name, t->dtype_name);
    if (t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0)
        return CLV_OK;
    char has[SHAPE_TEXT], wants[SHAPE_TEXT];
    shape_text(has, t->rank, t->shape);
    shape_text(wants, rank, shape);
    return clv_fail(err, CLV_EFORMAT, "%s: has the shape [%s], config.json calls for [%s]", name, has, wants);
}

clv_status clv_llama_check_weights(const clv_weights *w, const clv_llama_config *c, clv_error *err)
{
    const clv_llama_parameter next = {.row = FIRST_OF_LAYER, .layer = c->layers};
    char name[TENSOR_NAME_SIZE];

    for (int64_t i = 0; i < clv_llama_parameter_count(c); i++) {
        clv_llama_parameter p = clv_llama_parameter_at(c, i);
        for (int part = 0; part < parts_of(&map[p.row]); part++)
            CLV_TRY(check_tensor(w, c, &p, part, err));
    }
    their_name(name, &next, 0);
    if (clv_weights_has(w, name))
        return clv_fail(err, CLV_EFORMAT, "%s exists, but config.json calls for %lld layers", name,
                        (long long)c->layers);
    return CLV_OK;
}

/* ---- moving boxes ---- */

/* One part of a box on its way: the view [out..., in...] of their tensor, and where its elements lie in ours. */
typedef struct transfer {
    int rank, n_out; /* dimensions of the view; those that come from `out` */
    int64_t view[CLV_MAX_RANK];
    clv_shard box;
    int64_t in_elems, out_elems; /* of the box */
    int64_t stride;              /* in ours, from one `in` index to the next */
    int64_t first;               /* in ours, of this part's first element */
    int64_t strip;               /* indices of the view's first dimension moved at a time */
} transfer;

static bool has_part(const clv_shard *box, const map_row *row, int part)
{
    int at = (int)strlen(row->in);

    return parts_of(row) == 1 || (part >= box->lo[at] && part < box->hi[at]);
}

static transfer plan(const clv_llama_config *c, const map_row *row, const clv_shard *box, int part)
{
    int n_in = (int)strlen(row->in), skip = parts_of(row) == 2, n_parts = 1;
    transfer t = {.n_out = (int)strlen(row->out), .in_elems = 1, .out_elems = 1};

    t.rank = append(t.view, append(t.view, 0, c, row->out), c, row->in);
    t.box.rank = t.rank;
    for (int d = 0; d < t.rank; d++) {
        int ours = d < t.n_out ? n_in + skip + d : d - t.n_out;
        t.box.lo[d] = box->lo[ours];
        t.box.hi[d] = box->hi[ours];
        *(d < t.n_out ? &t.out_elems : &t.in_elems) *= box->hi[ours] - box->lo[ours];
    }
    if (skip) {
        n_parts = (int)(box->hi[n_in] - box->lo[n_in]);
        t.first = (part - box->lo[n_in]) * t.out_elems;
    }
    t.stride = n_parts * t.out_elems;
    int64_t rows = t.box.hi[0] - t.box.lo[0];
    int64_t row_bytes = rows > 0 ? t.in_elems * t.out_elems / rows * (int64_t)sizeof(float) : 1;
    t.strip = row_bytes > 0 && STRIP_BYTES / row_bytes > 0 ? STRIP_BYTES / row_bytes : 1;
    return t;
}

/* to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < cols; in tiles, for the cache. */
static void transpose(float *to, int64_t to_stride, const float *from, int64_t from_stride, int64_t rows, int64_t cols)
{
    for (int64_t i0 = 0; i0 < rows; i0 += TILE) {
        int64_t i1 = i0 + TILE < rows ? i0 + TILE : rows;
        for (int64_t j = 0; j < cols; j++)
            for (int64_t i = i0; i < i1; i++)
                to[j * to_stride + i] = from[i * from_stride + j];
    }
}

/* The next strip of the transfer's box, and how many `out` elements come before it; false at the end. */
static bool next_strip(clv_shard *strip, int64_t *before, const transfer *t, int64_t *at)
{
    int64_t rows = t->box.hi[0] - t->box.lo[0];

    if (*at >= rows || t->in_elems == 0 || t->out_elems == 0)
        return false;
    *strip = t->box;
    strip->lo[0] = t->box.lo[0] + *at;
    if (*at + t->strip < rows)
        strip->hi[0] = strip->lo[0] + t->strip;
    *before = *at * (t->out_elems / rows);
    *at += t->strip;
    return true;
}

static clv_status read_part(const clv_safetensor *tensor, const transfer *t, float *out, float *buffer, clv_error *err)
{
    clv_shard strip;
    int64_t at = 0, before = 0;

    while (next_strip(&strip, &before, t, &at)) {
        CLV_TRY(clv_safetensors_read_as(tensor, t->rank, t->view, &strip, CLV_F32, buffer, err));
        transpose(out + t->first + before, t->stride, buffer, t->in_elems, clv_shard_elems(&strip) / t->in_elems,
                  t->in_elems);
    }
    return CLV_OK;
}

static clv_status write_part(clv_safetensors_writer *w, int64_t index, const transfer *t, const float *data,
                             float *buffer, clv_error *err)
{
    clv_shard strip;
    int64_t at = 0, before = 0;

    while (next_strip(&strip, &before, t, &at)) {
        int64_t n_out = clv_shard_elems(&strip) / t->in_elems;
        transpose(buffer, t->in_elems, data + t->first + before, t->stride, t->in_elems, n_out);
        CLV_TRY(clv_safetensors_write_as(w, index, t->rank, t->view, &strip, buffer, err));
    }
    return CLV_OK;
}

/* A buffer for the largest strip of a box of this row. */
static float *strip_buffer(const clv_llama_config *c, const map_row *row, const clv_shard *box)
{
    transfer t = plan(c, row, box, 0);
    int64_t rows = t.box.hi[0] - t.box.lo[0];
    int64_t row_elems = rows > 0 ? t.in_elems * t.out_elems / rows : 0;

    return malloc((size_t)((t.strip < rows ? t.strip : rows) * row_elems + 1) * sizeof(float));
}

static clv_status check_box(const clv_llama_parameter *p, const clv_shard *box, clv_error *err)
{
    if (!clv_box_within(box, p->rank, p->shape))
        return clv_fail(err, CLV_ESHAPE, "%s: the box is not within the parameter", p->name);
    return CLV_OK;
}

static clv_status read_parts(const clv_weights *w, const clv_llama_config *c, const clv_llama_parameter *p,
                             const clv_shard *box, float *out, float *buffer, clv_error *err)
{
    const map_row *row = &map[p->row];

    for (int part = 0; part < parts_of(row); part++) {
        char name[TENSOR_NAME_SIZE];
        const clv_safetensor *tensor = NULL;
        if (!has_part(box, row, part))
            continue;
        their_name(name, p, part);
        CLV_TRY(clv_weights_find(&tensor, w, name, err));
        if (row->in[0] == '\0')
            return clv_safetensors_read_as(tensor, p->rank, p->shape, box, CLV_F32, out, err);
        transfer t = plan(c, row, box, part);
        CLV_TRY(read_part(tensor, &t, out, buffer, err));
    }
    return CLV_OK;
}

clv_status clv_llama_read_parameter(const clv_weights *w, const clv_llama_config *c, const char *name,
                                    const clv_shard *box, float *out, clv_error *err)
{
    clv_llama_parameter p = {0};
    clv_status status;
    float *buffer;

    CLV_TRY(clv_llama_parameter_find(&p, c, name, err));
    clv_shard whole = clv_box_whole(p.rank, p.shape);
    if (box == NULL)
        box = &whole;
    CLV_TRY(check_box(&p, box, err));
    buffer = strip_buffer(c, &map[p.row], box);
    if (buffer == NULL)
        return clv_fail_memory(err, name, STRIP_BYTES);
    status = read_parts(w, c, &p, box, out, buffer, err);
    free(buffer);
    return status;
}

/* ---- writing ---- */

/* The place of a parameter's first tensor in the file: tensors stand in the order of parameters. */
static int64_t tensor_index(const clv_llama_config *c, const clv_llama_parameter *p)
{
    int64_t before = 0, of_layer = 0;

    for (int row = FIRST_OF_LAYER; row < END_OF_LAYER; row++) {
        of_layer += parts_of(&map[row]);
        before += row < p->row ? parts_of(&map[row]) : 0;
    }
    if (p->layer >= 0)
        return 1 + p->layer * of_layer + before;
    return p->row == 0 ? 0 : 1 + c->layers * of_layer + (p->row - END_OF_LAYER);
}

static clv_status write_parts(clv_safetensors_writer *w, const clv_llama_config *c, const clv_llama_parameter *p,
                              const clv_shard *box, const float *data, float *buffer, clv_error *err)
{
    const map_row *row = &map[p->row];
    int64_t index = tensor_index(c, p);

    if (row->in[0] == '\0')
        return clv_safetensors_write_as(w, index, p->rank, p->shape, box, data, err);
    for (int part = 0; part < parts_of(row); part++) {
        if (!has_part(box, row, part))
            continue;
        transfer t = plan(c, row, box, part);
        CLV_TRY(write_part(w, index + part, &t, data, buffer, err));
    }
    return CLV_OK;
}

clv_status clv_llama_write_parameter(clv_safetensors_writer *w, const clv_llama_config *c, const char *name,
                                     const clv_shard *box, const float *data, clv_error *err)
{
    clv_llama_parameter p = {0};
    clv_status status;
    float *buffer;

    CLV_TRY(clv_llama_parameter_find(&p, c, name, err));
    clv_shard whole = clv_box_whole(p.rank, p.shape);
    if (box == NULL)
        box = &whole;
    CLV_TRY(check_box(&p, box, err));
    buffer = strip_buffer(c, &map[p.row], box);
    if (buffer == NULL)
        return clv_fail_memory(err, name, STRIP_BYTES);
    status = write_parts(w, c, &p, box, data, buffer, err);
    free(buffer);
    return status;
}

clv_status clv_llama_create_weights(clv_safetensors_writer **out, const clv_llama_config *c, const char *path,
                                    clv_error *err)
{
    int64_t n_parameters = clv_llama_parameter_count(c), n = 0;
    clv_tensor_spec *specs = calloc((size_t)n_parameters * 2, sizeof *specs);
    char(*names)[TENSOR_NAME_SIZE] = calloc((size_t)n_parameters * 2, sizeof *names);
    clv_status status;

    if (specs == NULL || names == NULL) {
        free(specs);
        free(names);
        return clv_fail_memory(err, path, (size_t)n_parameters * 2 * sizeof *specs);
    }
    for (int64_t i = 0; i < n_parameters; i++) {
        clv_llama_parameter p = clv_llama_parameter_at(c, i);
        for (int part = 0; part < parts_of(&map[p.row]); part++, n++) {
            their_name(names[n], &p, part);
            specs[n] = (clv_tensor_spec){.name = names[n], .dtype = CLV_F32};
            specs[n].rank = their_shape(specs[n].shape, c, &map[p.row]);
        }
    }
    status = clv_safetensors_create(out, path, specs, n, err);
    free(specs);
    free(names);
    return status;
}
