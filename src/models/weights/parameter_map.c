/* parameter_map.c - maps parameters to Hugging Face tensors (names, transposes, fused QKV); reads and writes shards
 * of them.
 *
 * A linear layer's tensor in the file is [out, in]. In the view that separates the parameter's dimensions, q_proj is
 * [H,D,M]. A box [in..., (part), out...] of the parameter is the box [out..., in...] of that view, moved in strips and
 * transposed. Tensors of the other forms have the parameter's order.
 */
#include "models/weights/parameter_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/transpose_kernel.h"
#include "models/families/model_family.h"
#include "tensor/box_runs.h"

enum {
    STRIP_BYTES = 1 << 20,
    ROWS_TRANSPOSED = 16 /* rows at a time */,
    PREFIXED_NAME_SIZE = CLV_TENSOR_NAME_SIZE + 32
};

static const char head_name[] = "lm_head.weight"; /* of an output projection that is not tied */

bool clv_config_has_own_lm_head(const clv_model_config *model)
{
    return !model->tie_word_embeddings && !model->headless;
}

bool clv_model_is_tied(const clv_model_config *model)
{
    return model->tie_word_embeddings && !model->headless;
}

bool clv_model_has_head(const clv_model_config *model)
{
    return !model->headless;
}

bool clv_model_has_qkv_bias(const clv_model_config *model)
{
    return model->qkv_bias;
}

bool clv_model_has_output_bias(const clv_model_config *model)
{
    return model->output_bias;
}

bool clv_model_has_mlp_bias(const clv_model_config *model)
{
    return model->mlp_bias;
}

bool clv_model_has_qk_norm(const clv_model_config *model)
{
    return model->qk_norm;
}

bool clv_model_has_shared_expert(const clv_model_config *model)
{
    return model->shared_ffn > 0;
}

/* Parts of the parameter; several are a dimension between in and out. */
static int parts_of(const clv_parameter_row *row)
{
    return row->second_tensor ? 2 : row->take > 1 ? row->take : 1;
}

/* Tensors that store it, or each of its experts: one for each part, or one for all. */
static int tensors_of(const clv_parameter_row *row)
{
    return row->second_tensor ? 2 : 1;
}

/* Whether an earlier row has the same tensor. */
static bool shares_tensor(const clv_parameter_row *row)
{
    return row->first > 0;
}

clv_family_model clv_family_model_from_config(const clv_model_config *c)
{
    clv_family_model m = {.hidden = c->hidden,
                          .layers = c->layers,
                          .heads = c->heads,
                          .kv_heads = c->kv_heads,
                          .head_dim = c->head_dim,
                          .ffn = c->ffn,
                          .vocab = c->vocab,
                          .max_positions = c->max_positions,
                          .norm_eps = c->norm_eps,
                          .rope_theta = c->rope.theta,
                          .activation = c->activation,
                          .bidirectional = c->bidirectional,
                          .headless = c->headless,
                          .tied_embeddings = c->tie_word_embeddings};
    memcpy(m.number, c->number, sizeof m.number);
    memcpy(m.real, c->real, sizeof m.real);
    return m;
}

static bool is_of_model(const clv_parameter_row *row, const clv_model_config *c)
{
    if (row->stated != NULL) {
        clv_family_model model = clv_family_model_from_config(c);
        return row->stated(&model) != 0;
    }
    return row->when == NULL || row->when(c);
}

static bool is_of_kind(const clv_parameter_row *row, const clv_model_config *c, int64_t layer)
{
    return row->layers == CLV_ALL_LAYERS ||
           (row->layers == CLV_EXPERT_LAYERS) == clv_model_config_has_experts(c, layer);
}

/* Whether layer `layer` of the model has the row of layers. */
static bool is_in_layer(const clv_parameter_row *row, const clv_model_config *c, int64_t layer)
{
    return is_of_kind(row, c, layer) && is_of_model(row, c);
}

bool clv_parameter_row_is_present(const clv_parameter_row *row, const clv_model_config *c)
{
    int64_t layer = 0;
    while (layer < c->layers && !is_of_kind(row, c, layer))
        layer++;
    return layer < c->layers && is_of_model(row, c);
}

static bool is_of_layer(const clv_parameter_row *row)
{
    return strchr(row->name, '%') != NULL;
}

static int64_t extent(const clv_model_config *c, char letter)
{
    const struct {
        char letter;
        int64_t size;
    } sizes[] = {{'V', c->vocab},
                 {'M', c->hidden},
                 {'H', c->heads},
                 {'K', c->kv_heads},
                 {'D', c->head_dim},
                 {'F', c->ffn},
                 {'P', c->max_positions},
                 {'T', c->token_types},
                 {'R', c->adapter_rank},
                 {'E', c->experts},
                 {'X', c->expert_ffn},
                 {'S', c->shared_ffn},
                 {'q', c->q_rank},
                 {'l', c->kv_rank},
                 {'j', c->kv_rank + c->rotary_dim},
                 {'k', c->plain_dim + c->rotary_dim},
                 {'v', c->value_dim},
                 {'w', c->plain_dim + c->value_dim},
                 {'1', 1}};
    int i = 0;

    while (sizes[i].letter != letter)
        i++;
    return sizes[i].size;
}

/* Appends the sizes of letters to a shape; returns the new rank. */
static int append(int64_t *shape, int rank, const clv_model_config *c, const char *letters)
{
    for (; *letters != '\0'; letters++)
        shape[rank++] = extent(c, *letters);
    return rank;
}

int64_t clv_model_dims_elems(const clv_model_config *c, const char *letters)
{
    int64_t sizes[CLV_MAX_RANK];

    return clv_shape_elems(append(sizes, 0, c, letters), sizes);
}

/* ---- names ---- */

/* Replaces the mark, % or #, by a number. */
static void fill_in(char *name, size_t size, const char *pattern, char what, int64_t number)
{
    const char *mark = strchr(pattern, what);

    if (mark == NULL)
        snprintf(name, size, "%s", pattern);
    else
        snprintf(name, size, "%.*s%lld%s", (int)(mark - pattern), pattern, (long long)number, mark + 1);
}

static void fill_name(char *name, size_t size, const char *pattern, int64_t layer)
{
    fill_in(name, size, pattern, '%', layer);
}

clv_parameter clv_parameter_of_row(const clv_model_config *c, const clv_parameter_row *row, int64_t layer)
{
    clv_parameter p = {.row = row, .layer = layer};

    fill_name(p.name, sizeof p.name, row->name, layer);
    p.rank = append(p.shape, 0, c, row->by_expert ? "E" : "");
    p.rank = append(p.shape, p.rank, c, row->in);
    if (parts_of(row) > 1)
        p.shape[p.rank++] = parts_of(row);
    p.rank = append(p.shape, p.rank, c, row->out);
    return p;
}

int64_t clv_model_parameter_count(const clv_model_config *c)
{
    int64_t n = 0, layers[] = {[CLV_ALL_LAYERS] = c->layers, [CLV_DENSE_LAYERS] = 0, [CLV_EXPERT_LAYERS] = 0};

    for (int64_t layer = 0; layer < c->layers; layer++)
        layers[clv_model_config_has_experts(c, layer) ? CLV_EXPERT_LAYERS : CLV_DENSE_LAYERS]++;
    for (const clv_parameter_row *row = c->family->parameters; row->name != NULL; row++)
        if (is_of_model(row, c))
            n += is_of_layer(row) ? layers[row->layers] : 1;
    return n;
}

/* Skips the rows of layers from `row` on; n[1] and n[0] count those of a layer with experts, and without. */
static const clv_parameter_row *layer_rows(int64_t n[2], const clv_model_config *c, const clv_parameter_row *row)
{
    n[0] = n[1] = 0;
    for (; row->name != NULL && is_of_layer(row); row++)
        if (is_of_model(row, c)) {
            n[0] += row->layers != CLV_EXPERT_LAYERS;
            n[1] += row->layers != CLV_DENSE_LAYERS;
        }
    return row;
}

static const clv_parameter_row *nth_in_layer(const clv_model_config *c, const clv_parameter_row *row, int64_t layer,
                                             int64_t n)
{
    while (!is_in_layer(row, c, layer) || n-- > 0)
        row++;
    return row;
}

clv_parameter clv_model_parameter_at(const clv_model_config *c, int64_t i)
{
    const clv_parameter_row *row = c->family->parameters;

    for (;; row++) {
        int64_t n[2];
        const clv_parameter_row *end = layer_rows(n, c, row);
        const int64_t skipped = n[0] == n[1] && n[0] > 0 ? (i / n[0] < c->layers ? i / n[0] : c->layers) : 0;
        i -= skipped * n[0];
        for (int64_t layer = skipped; layer < c->layers; layer++) {
            const int64_t here = n[clv_model_config_has_experts(c, layer)];
            if (i < here)
                return clv_parameter_of_row(c, nth_in_layer(c, row, layer, i), layer);
            i -= here;
        }
        row = end;
        if (is_of_model(row, c) && i-- == 0)
            return clv_parameter_of_row(c, row, -1);
    }
}

int64_t clv_parameter_elems(const clv_parameter *parameter)
{
    return clv_shape_elems(parameter->rank, parameter->shape);
}

/* The layer in a name, at the place of the row's %; 0: none. */
static int64_t layer_in(const clv_parameter_row *row, const char *name)
{
    const char *mark = strchr(row->name, '%');
    size_t before = mark != NULL ? (size_t)(mark - row->name) : 0;

    return mark != NULL && strlen(name) > before ? strtoll(name + before, NULL, 10) : 0;
}

clv_status clv_model_parameter_find(clv_parameter *out, const clv_model_config *c, const char *name, clv_error *err)
{
    for (const clv_parameter_row *row = c->family->parameters; row->name != NULL; row++) {
        int64_t layer = is_of_layer(row) ? layer_in(row, name) : -1;
        clv_parameter p = clv_parameter_of_row(c, row, layer);
        bool in_range = !is_of_layer(row) || (layer >= 0 && layer < c->layers);
        if (in_range && is_in_layer(row, c, layer) && strcmp(p.name, name) == 0) {
            *out = p;
            return CLV_OK;
        }
    }
    return clv_fail(err, CLV_ENOTFOUND, "the model has no parameter \"%.64s\" (%lld layers, %s embeddings)", name,
                    (long long)c->layers, c->tie_word_embeddings ? "tied" : "untied");
}

bool clv_model_find_parameter_with_suffix(clv_parameter *out, const clv_model_config *c, const char *name,
                                          const char *ending)
{
    char own[CLV_PARAMETER_NAME_SIZE];
    size_t n = strlen(name), m = strlen(ending);

    if (n < m || n - m >= sizeof own || strcmp(name + n - m, ending) != 0)
        return false;
    memcpy(own, name, n - m);
    own[n - m] = '\0';
    return clv_model_parameter_find(out, c, own, NULL) == CLV_OK;
}

static void tensor_name(char name[CLV_TENSOR_NAME_SIZE], const clv_parameter *p, int tensor)
{
    const int each = tensors_of(p->row);
    char pattern[CLV_TENSOR_NAME_SIZE];

    fill_name(pattern, sizeof pattern, clv_parameter_row_tensor(p->row, tensor % each), p->layer);
    fill_in(name, CLV_TENSOR_NAME_SIZE, pattern, '#', tensor / each);
}

/* TensorFlow's names of norms, in old checkpoints and in some that transformers 5 writes. */
static const struct {
    const char *now, *old;
} endings[] = {{"", ""}, {"Norm.weight", "Norm.gamma"}, {"Norm.bias", "Norm.beta"}};
enum { N_ENDINGS = sizeof endings / sizeof endings[0] };

/* Replaces the ending of a name; false if it has another ending. */
static bool respell(char out[CLV_TENSOR_NAME_SIZE], const char *name, const char *from, const char *to)
{
    size_t length = strlen(name), ending = strlen(from);

    if (length < ending || strcmp(name + length - ending, from) != 0)
        return false;
    snprintf(out, CLV_TENSOR_NAME_SIZE, "%.*s%s", (int)(length - ending), name, to);
    return true;
}

const clv_safetensor *clv_model_find_by_alias(const clv_weights *w, const clv_model_config *c, const char *name)
{
    size_t base = strlen(c->family->base);
    bool has_base = strncmp(name, c->family->base, base) == 0;
    const clv_safetensor *found;

    for (int i = 0; i < N_ENDINGS; i++)
        for (int bare = 0; bare <= has_base; bare++) {
            char spelled[CLV_TENSOR_NAME_SIZE];
            if (respell(spelled, name + (bare ? base : 0), endings[i].now, endings[i].old) &&
                clv_weights_find(&found, w, spelled, NULL) == CLV_OK)
                return found;
        }
    return NULL;
}

/* The other tensor name of a tied parameter; NULL: none. *counts: that tensor is used if both exist. The embedding
 * table may also be stored as the output projection. If two rows have one parameter name, the later row's tensor is
 * used. */
static const char *other_name(bool *counts, const clv_model_config *c, const char *name)
{
    const clv_parameter_row *rows = c->family->parameters, *row = rows;

    while (row->name != NULL && (is_of_layer(row) || strcmp(row->tensor, name) != 0))
        row++;
    if (row->name == NULL)
        return NULL;
    const char *ours = row == rows && clv_model_is_tied(c) ? head_name : row->name;
    for (const clv_parameter_row *other = rows; other->name != NULL; other++)
        if (other != row && strcmp(other->name, ours) == 0) {
            *counts = row != rows && other > row;
            return other->tensor;
        }
    return NULL;
}

clv_status clv_model_find_tensor(const clv_safetensor **out, const clv_weights *w, const clv_model_config *c,
                                 const char *name, clv_error *err)
{
    bool counts = false;
    const char *other = other_name(&counts, c, name);
    const clv_safetensor *found = other != NULL && counts ? clv_model_find_by_alias(w, c, other) : NULL;

    if (found == NULL)
        found = clv_model_find_by_alias(w, c, name);
    if (found == NULL && other != NULL)
        found = clv_model_find_by_alias(w, c, other);
    if (found == NULL)
        return clv_weights_find(out, w, name, err);
    *out = found;
    return CLV_OK;
}

/* Whether the name matches the pattern, with numbers for % and #. */
static bool fits(int64_t *layer, const char *pattern, const char *name)
{
    *layer = -1;
    for (;;) {
        const size_t n = strcspn(pattern, "%#");
        char *end;
        if (pattern[n] == '\0')
            return strcmp(pattern, name) == 0;
        if (strncmp(pattern, name, n) != 0 || name[n] < '0' || name[n] > '9')
            return false;
        const int64_t number = strtoll(name + n, &end, 10);
        *layer = pattern[n] == '%' ? number : *layer;
        pattern += n + 1;
        name = end;
    }
}

/* Of a layer beyond the model's: whether it has the row at all. */
static bool is_in_layer_of_file(const clv_parameter_row *row, const clv_model_config *c, int64_t layer)
{
    return layer >= 0 && layer < c->layers ? is_in_layer(row, c, layer) : clv_parameter_row_is_present(row, c);
}

static bool is_tensor(int64_t *layer, const clv_model_config *c, const char *name)
{
    for (const clv_parameter_row *row = c->family->parameters; row->name != NULL; row++)
        for (int k = 0; k < 2 && clv_parameter_row_tensor(row, k) != NULL; k++)
            if (fits(layer, clv_parameter_row_tensor(row, k), name) && is_in_layer_of_file(row, c, *layer))
                return true;
    return false;
}

bool clv_model_canonical_tensor_name(char name[CLV_TENSOR_NAME_SIZE], int64_t *layer, const clv_model_config *c,
                                     const char *spelled)
{
    char now[CLV_TENSOR_NAME_SIZE];

    for (int i = 0; i < N_ENDINGS; i++)
        for (int bare = 0; bare < 2 && respell(now, spelled, endings[i].old, endings[i].now); bare++) {
            int length = snprintf(name, CLV_TENSOR_NAME_SIZE, "%s%s", bare ? c->family->base : "", now);
            if (length < CLV_TENSOR_NAME_SIZE && is_tensor(layer, c, name))
                return true;
        }
    return false;
}

void clv_model_find_tied_tensors(const clv_safetensor *out[2], const clv_weights *w, const clv_model_config *c)
{
    bool counts;
    const char *table = c->family->parameters->tensor, *head = other_name(&counts, c, table);

    out[0] = clv_model_find_by_alias(w, c, table);
    out[1] = head != NULL ? clv_model_find_by_alias(w, c, head) : NULL;
}

/* ---- rotary frequencies ---- */

bool clv_model_inv_freq_name_candidate(char name[CLV_TENSOR_NAME_SIZE], const clv_model_config *c, int64_t candidate)
{
    const char *pattern = c->family->frequencies;
    const char *mark = pattern != NULL ? strchr(pattern, '%') : NULL;

    if (pattern == NULL || candidate > c->layers + 1)
        return false;
    if (candidate < c->layers)
        fill_name(name, CLV_TENSOR_NAME_SIZE, pattern, candidate);
    else if (candidate == c->layers)
        snprintf(name, CLV_TENSOR_NAME_SIZE, "%.*s*%s", (int)(mark - pattern), pattern, mark + 1);
    else
        snprintf(name, CLV_TENSOR_NAME_SIZE, "%s", c->family->shared_frequencies);
    return true;
}

const clv_safetensor *clv_model_find_inv_freq(const clv_weights *w, const clv_model_config *c, int64_t candidate)
{
    char name[CLV_TENSOR_NAME_SIZE];

    return clv_model_inv_freq_name_candidate(name, c, candidate) ? clv_model_find_by_alias(w, c, name) : NULL;
}

/* The shape of the tensor: `out` and `in` are one dimension each, in the order of the form. */
static int tensor_shape(int64_t *shape, const clv_model_config *c, const clv_parameter_row *row)
{
    int64_t out = clv_model_dims_elems(c, row->out) * (row->of > 0 ? row->of : 1);
    bool linear = row->form == CLV_PARAMETER_LINEAR;

    if (row->form == CLV_PARAMETER_AS_IS)
        return append(shape, 0, c, row->out);
    if (row->in[0] == '\0') {
        shape[0] = out;
        return 1;
    }
    shape[0] = linear ? out : clv_model_dims_elems(c, row->in);
    shape[1] = linear ? clv_model_dims_elems(c, row->in) : out;
    return 2;
}

/* ---- tensors ---- */

/* The number of tensors that the row adds to a file, if the model has it. */
static int tensor_count(const clv_model_config *c, const clv_parameter_row *row)
{
    return shares_tensor(row) ? 0 : tensors_of(row) * (row->by_expert ? (int)extent(c, 'E') : 1);
}

int clv_parameter_tensor_count(const clv_model_config *c, const clv_parameter *p)
{
    return tensor_count(c, p->row);
}

clv_model_tensor clv_parameter_tensor(const clv_model_config *c, const clv_parameter *p, int i)
{
    clv_model_tensor tensor = {.parameter = *p};

    tensor_name(tensor.name, p, i);
    tensor.rank = tensor_shape(tensor.shape, c, p->row);
    return tensor;
}

/* The view of a row's tensor that separates the parameter's dimensions: [(of,) out..., in...] of a linear form, else
 * [in..., (of,) out...]. ours[d]: the parameter's dimension, or that of an expert's part of it; -1: the parts of a
 * fused tensor. Returns the rank. */
static int view_of(int64_t *view, int *ours, const clv_model_config *c, const clv_parameter_row *row)
{
    const bool linear = row->form == CLV_PARAMETER_LINEAR;
    const int n_in = (int)strlen(row->in), out = n_in + (parts_of(row) > 1);
    const char *const letters[] = {linear ? row->out : row->in, linear ? row->in : row->out};
    const int first[] = {linear ? out : 0, linear ? 0 : out};
    int rank = 0;

    for (int half = 0; half < 2; half++) {
        if (row->of > 0 && half == !linear) {
            view[rank] = row->of;
            ours[rank++] = -1;
        }
        for (int d = 0; letters[half][d] != '\0'; d++) {
            view[rank] = extent(c, letters[half][d]);
            ours[rank++] = first[half] + d;
        }
    }
    return rank;
}

int clv_model_tensor_view(int64_t *view, int *ours, const clv_model_config *c, const clv_model_tensor *tensor)
{
    const int rank = view_of(view, ours, c, tensor->parameter.row);

    for (int d = 0; d < rank && tensor->parameter.row->by_expert; d++)
        ours[d]++;
    return rank;
}

/* ---- moving boxes ---- */

/* A box of a parameter in the view of its tensor. */
typedef struct window {
    int rank;
    int64_t view[CLV_MAX_RANK];
    clv_shard box;
} window;

/* Parts [lo, hi) of the box. */
static window window_of(const clv_model_config *c, const clv_parameter_row *row, const clv_shard *box, int64_t lo,
                        int64_t hi)
{
    int ours[CLV_MAX_RANK];
    window win = {.rank = view_of(win.view, ours, c, row)};

    win.box.rank = win.rank;
    for (int d = 0; d < win.rank; d++) {
        win.box.lo[d] = ours[d] < 0 ? row->first + lo : box->lo[ours[d]];
        win.box.hi[d] = ours[d] < 0 ? row->first + hi : box->hi[ours[d]];
    }
    return win;
}

/* A box whose tensor has the parameter's order. */
static window window_in_order(const clv_model_config *c, const clv_parameter_row *row, const clv_shard *box)
{
    const size_t n_in = strlen(row->in);
    const bool parts = parts_of(row) > 1;

    return window_of(c, row, box, parts ? box->lo[n_in] : 0, parts ? box->hi[n_in] : 1);
}

/* One part of a box of a linear form, moved in strips and transposed. */
typedef struct transfer {
    window win;
    int64_t in_elems, out_elems; /* of the box */
    int64_t stride;              /* in the parameter's box, from one `in` index to the next */
    int64_t first;               /* in the parameter's box, the part's first element */
    int64_t strip;               /* indices of the view's first dimension (after `of`) per strip */
} transfer;

static bool has_part(const clv_shard *box, const clv_parameter_row *row, int part)
{
    int at = (int)strlen(row->in);

    return parts_of(row) == 1 || (part >= box->lo[at] && part < box->hi[at]);
}

static transfer plan(const clv_model_config *c, const clv_parameter_row *row, const clv_shard *box, int part)
{
    const int n_in = (int)strlen(row->in), parts = parts_of(row) > 1;
    transfer t = {.win = window_of(c, row, box, part, part + 1), .in_elems = 1, .out_elems = 1};

    for (int d = 0; d < n_in; d++)
        t.in_elems *= box->hi[d] - box->lo[d];
    for (int d = n_in + parts; d < box->rank; d++)
        t.out_elems *= box->hi[d] - box->lo[d];
    t.first = parts ? (part - box->lo[n_in]) * t.out_elems : 0;
    t.stride = (parts ? box->hi[n_in] - box->lo[n_in] : 1) * t.out_elems;
    int64_t rows = t.win.box.hi[0] - t.win.box.lo[0];
    int64_t row_bytes = rows > 0 ? t.in_elems * t.out_elems / rows * (int64_t)sizeof(float) : 1;
    t.strip = row_bytes > 0 && STRIP_BYTES / row_bytes > 0 ? STRIP_BYTES / row_bytes : 1;
    return t;
}

/* The next strip of the transfer's box; *before: the number of `out` elements before it. False at the end. */
static bool next_strip(clv_shard *strip, int64_t *before, const transfer *t, int64_t *at)
{
    int64_t rows = t->win.box.hi[0] - t->win.box.lo[0];

    if (*at >= rows || t->in_elems == 0 || t->out_elems == 0)
        return false;
    *strip = t->win.box;
    strip->lo[0] = t->win.box.lo[0] + *at;
    if (*at + t->strip < rows)
        strip->hi[0] = strip->lo[0] + t->strip;
    *before = *at * (t->out_elems / rows);
    *at += t->strip;
    return true;
}

/* A strip of a box, on its way between its tensor and the parameter. */
typedef struct strip_move {
    const clv_model_config *config;
    const clv_parameter *parameter;
    const clv_weights *weights;     /* reads from these, */
    clv_safetensors_writer *writer; /* or writes to this */
    clv_dtype dtype;
    char *out;        /* reading: the parameter's box; NULL: rows go to `take` */
    const char *data; /* writing: the parameter's box */
    clv_rows_callback *take;
    void *take_arg;
    void *buffer; /* of the largest strip */
} strip_move;

static clv_status read_strip(const strip_move *m, const clv_safetensor *tensor, const transfer *t,
                             const clv_shard *strip, int64_t before, int64_t row, clv_error *err)
{
    const size_t elem = clv_dtype_size(m->dtype);
    const int64_t n_out = clv_shard_elems(strip) / t->in_elems;

    CLV_TRY(clv_safetensors_read_as(tensor, t->win.rank, t->win.view, strip, m->dtype, m->buffer, err));
    if (m->out != NULL)
        clv_transpose_matrix(elem, m->out + (size_t)(t->first + before) * elem, t->stride, m->buffer, t->in_elems,
                             t->in_elems, n_out);
    else
        m->take(m->take_arg, row + before, n_out, m->buffer);
    return CLV_OK;
}

static clv_status write_strip(const strip_move *m, int64_t index, const transfer *t, const clv_shard *strip,
                              int64_t before, clv_error *err)
{
    const size_t elem = clv_dtype_size(m->dtype);
    const int64_t n_out = clv_shard_elems(strip) / t->in_elems;

    clv_transpose_matrix(elem, m->buffer, t->in_elems, m->data + (size_t)(t->first + before) * elem, t->stride, n_out,
                         t->in_elems);
    return clv_safetensors_write_as(m->writer, index, t->win.rank, t->win.view, strip, m->buffer, err);
}

/* A buffer for the largest strip of a box, in any dtype. */
static void *strip_buffer(const clv_model_config *c, const clv_parameter_row *row, const clv_shard *box)
{
    transfer t = plan(c, row, box, 0);
    int64_t rows = t.win.box.hi[0] - t.win.box.lo[0];
    int64_t row_elems = rows > 0 ? t.in_elems * t.out_elems / rows : 0;

    return malloc((size_t)((t.strip < rows ? t.strip : rows) * row_elems + 1) * sizeof(double));
}

static clv_status check_box(const clv_parameter *p, const clv_shard *box, clv_error *err)
{
    if (!clv_box_within(box, p->rank, p->shape))
        return clv_fail(err, CLV_ESHAPE, "%s: the box is not within the parameter", p->name);
    return CLV_OK;
}

static int64_t tensor_index(const clv_model_config *c, const clv_parameter *p);

/* Moves part `part` of a box of a linear form. first_tensor: the number of the parameter's, or the expert's, first
 * tensor; row: the box's rows before it. Returns the part's rows in *rows. */
static clv_status move_part(const strip_move *m, const clv_shard *box, int part, int first_tensor, int64_t row,
                            int64_t *rows, clv_error *err)
{
    const clv_parameter *p = m->parameter;
    const int number = first_tensor + (p->row->of > 0 ? 0 : part);
    const transfer t = plan(m->config, p->row, box, part);
    const clv_safetensor *tensor = NULL;
    char name[CLV_TENSOR_NAME_SIZE];
    clv_shard strip;
    int64_t at = 0, before = 0;

    tensor_name(name, p, number);
    if (m->writer == NULL)
        CLV_TRY(clv_model_find_tensor(&tensor, m->weights, m->config, name, err));
    while (next_strip(&strip, &before, &t, &at))
        CLV_TRY(m->writer == NULL ? read_strip(m, tensor, &t, &strip, before, row, err)
                                  : write_strip(m, tensor_index(m->config, p) + number, &t, &strip, before, err));
    *rows = t.out_elems;
    return CLV_OK;
}

/* Moves all parts of a box [in..., (part,) out...]. */
static clv_status move_parts(const strip_move *m, const clv_shard *box, int first_tensor, int64_t *row, clv_error *err)
{
    for (int part = 0; part < parts_of(m->parameter->row); part++) {
        int64_t rows = 0;
        if (has_part(box, m->parameter->row, part))
            CLV_TRY(move_part(m, box, part, first_tensor, *row, &rows, err));
        *row += rows;
    }
    return CLV_OK;
}

/* A box of a parameter by expert without its first dimension. */
static clv_shard box_of_expert(const clv_shard *box)
{
    clv_shard one = {.rank = box->rank - 1};

    memcpy(one.lo, box->lo + 1, (size_t)one.rank * sizeof *one.lo);
    memcpy(one.hi, box->hi + 1, (size_t)one.rank * sizeof *one.hi);
    return one;
}

/* Moves a box of a linear form, expert by expert and part by part: reads it, or writes it if there is a writer. */
static clv_status move_transposed(strip_move *m, const clv_shard *box, clv_error *err)
{
    const clv_parameter_row *row = m->parameter->row;
    const clv_shard one = row->by_expert ? box_of_expert(box) : *box;
    const size_t bytes = (size_t)clv_shard_elems(&one) * clv_dtype_size(m->dtype);
    const int64_t lo = row->by_expert ? box->lo[0] : 0, hi = row->by_expert ? box->hi[0] : 1;
    CLV_FREED void *buffer = m->buffer = strip_buffer(m->config, row, &one);
    int64_t rows = 0;

    if (buffer == NULL)
        return clv_fail_memory(err, m->parameter->name, STRIP_BYTES);
    for (int64_t e = lo; e < hi; e++) {
        CLV_TRY(move_parts(m, &one, (int)e * tensors_of(row), &rows, err));
        m->out = m->out ? m->out + bytes : NULL;
        m->data = m->data ? m->data + bytes : NULL;
    }
    return CLV_OK;
}

static clv_status read_in_order(const clv_weights *w, const clv_model_config *c, const clv_parameter *p,
                                const clv_shard *box, clv_dtype dtype, void *out, clv_error *err)
{
    window win = window_in_order(c, p->row, box);
    char name[CLV_TENSOR_NAME_SIZE];
    const clv_safetensor *tensor = NULL;

    tensor_name(name, p, 0);
    CLV_TRY(clv_model_find_tensor(&tensor, w, c, name, err));
    return clv_safetensors_read_as(tensor, win.rank, win.view, &win.box, dtype, out, err);
}

clv_status clv_model_read_parameter(const clv_weights *w, const clv_model_config *c, const char *name,
                                    const clv_shard *box, clv_dtype dtype, void *out, clv_error *err)
{
    clv_parameter p = {0};

    CLV_TRY(clv_model_parameter_find(&p, c, name, err));
    clv_shard whole = clv_box_whole(p.rank, p.shape);
    if (box == NULL)
        box = &whole;
    CLV_TRY(check_box(&p, box, err));
    strip_move move = {.config = c, .parameter = &p, .weights = w, .dtype = dtype, .out = out};
    return p.row->form == CLV_PARAMETER_LINEAR ? move_transposed(&move, box, err)
                                               : read_in_order(w, c, &p, box, dtype, out, err);
}

/* ---- rows along `in` ---- */

/* The parameter's box [(E,) in..., (part,) out...] of a box [(E,) (part,) out..., in...]. */
static clv_shard box_of_ours(const clv_parameter *p, const clv_shard *rows)
{
    int n_in = (int)strlen(p->row->in), stacked = p->row->by_expert;
    clv_shard box = {.rank = p->rank};

    for (int d = 0; d < p->rank; d++) {
        int from = d < stacked ? d : d < stacked + n_in ? p->rank - n_in + d - stacked : d - n_in;
        box.lo[d] = rows->lo[from];
        box.hi[d] = rows->hi[from];
    }
    return box;
}

/* For a tensor [in, out]: reads the whole box, then transposes it. */
static clv_status read_rows_transposed(const clv_weights *w, const clv_model_config *c, const clv_parameter *p,
                                       const clv_shard *ours, clv_rows_callback *take, void *arg, float *buffer,
                                       clv_error *err)
{
    int n_in = (int)strlen(p->row->in);
    int64_t in = 1, elems = clv_shard_elems(ours);
    CLV_FREED float *read = malloc((size_t)(elems + 1) * sizeof *read);

    for (int d = 0; d < n_in; d++)
        in *= ours->hi[d] - ours->lo[d];
    if (read == NULL)
        return clv_fail_memory(err, p->name, (size_t)elems * sizeof *read);
    CLV_TRY(read_in_order(w, c, p, ours, CLV_F32, read, err));
    for (int64_t row = 0, rows = elems > 0 ? elems / in : 0; row < rows; row += ROWS_TRANSPOSED) {
        int64_t n = rows - row < ROWS_TRANSPOSED ? rows - row : ROWS_TRANSPOSED;
        clv_transpose_matrix(sizeof *read, buffer, in, read + row, rows, n, in);
        take(arg, row, n, buffer);
    }
    return CLV_OK;
}

/* For a tensor of the parameter's own shape. */
static clv_status read_rows_as_is(const clv_weights *w, const clv_model_config *c, const clv_parameter *p,
                                  const clv_shard *box, clv_rows_callback *take, void *arg, float *buffer,
                                  clv_error *err)
{
    int64_t rows = box->hi[0] - box->lo[0], row_elems = rows > 0 ? clv_shard_elems(box) / rows : 0;
    int64_t strip = row_elems > 0 ? STRIP_BYTES / (row_elems * (int64_t)sizeof(float)) + 1 : 1;
    clv_shard part = *box;

    for (int64_t row = 0; row_elems > 0 && row < rows; row += strip) {
        part.lo[0] = box->lo[0] + row;
        part.hi[0] = row + strip < rows ? part.lo[0] + strip : box->hi[0];
        CLV_TRY(read_in_order(w, c, p, &part, CLV_F32, buffer, err));
        take(arg, row, part.hi[0] - part.lo[0], buffer);
    }
    return CLV_OK;
}

static float *rows_buffer(const clv_parameter *p, const clv_shard *ours)
{
    int64_t row = 1, last = ours->rank - 1;

    for (int d = 0; d < (int)strlen(p->row->in); d++)
        row *= ours->hi[d] - ours->lo[d];
    row = p->row->in[0] == '\0' ? ours->hi[last] - ours->lo[last] : row;
    return malloc((size_t)(ROWS_TRANSPOSED * row) * sizeof(float) + STRIP_BYTES + sizeof(float));
}

clv_status clv_model_read_rows(const clv_weights *w, const clv_model_config *c, const char *name, const clv_shard *box,
                               clv_rows_callback *take, void *arg, clv_error *err)
{
    clv_parameter p = {0};

    CLV_TRY(clv_model_parameter_find(&p, c, name, err));
    clv_shard ours = box_of_ours(&p, box);
    CLV_TRY(check_box(&p, &ours, err));
    strip_move move = {.config = c, .parameter = &p, .weights = w, .dtype = CLV_F32, .take = take, .take_arg = arg};
    if (p.row->form == CLV_PARAMETER_LINEAR)
        return move_transposed(&move, &ours, err);
    CLV_FREED float *buffer = rows_buffer(&p, &ours);
    if (buffer == NULL)
        return clv_fail_memory(err, p.name, STRIP_BYTES);
    return p.row->in[0] != '\0' ? read_rows_transposed(w, c, &p, &ours, take, arg, buffer, err)
                                : read_rows_as_is(w, c, &p, box, take, arg, buffer, err);
}

/* ---- writing ---- */

/* The row that adds the tensor: for a later part of a fused tensor, the row of its first part. */
static const clv_parameter_row *owner_of(const clv_parameter_row *row)
{
    const char *theirs = row->tensor;

    while (shares_tensor(row) || strcmp(row->tensor, theirs) != 0)
        row--;
    return row;
}

/* The index of a parameter's first tensor in the file, which has the order of the parameters. */
static int64_t tensor_index(const clv_model_config *c, const clv_parameter *p)
{
    const clv_parameter_row *own = owner_of(p->row);
    int64_t index = 0;

    for (int64_t i = 0;; i++) {
        const clv_parameter other = clv_model_parameter_at(c, i);
        if (other.row == own && other.layer == p->layer)
            return index;
        index += tensor_count(c, other.row);
    }
}

clv_status clv_model_write_parameter(clv_safetensors_writer *w, const clv_model_config *c, const char *name,
                                     const clv_shard *box, clv_dtype dtype, const void *data, clv_error *err)
{
    clv_parameter p = {0};

    CLV_TRY(clv_model_parameter_find(&p, c, name, err));
    clv_shard whole = clv_box_whole(p.rank, p.shape);
    if (box == NULL)
        box = &whole;
    CLV_TRY(check_box(&p, box, err));
    if (p.row->form == CLV_PARAMETER_LINEAR)
        return move_transposed(&(strip_move){.config = c, .parameter = &p, .writer = w, .dtype = dtype, .data = data},
                               box, err);
    window win = window_in_order(c, p.row, box);
    return clv_safetensors_write_as(w, tensor_index(c, &p), win.rank, win.view, &win.box, data, err);
}

/* Stored rotary frequencies are saved for every layer, so that the saved model uses them too. */
static int64_t frequencies_in_file(const clv_model_config *c)
{
    return c->rope.inv_freq != NULL && c->family->frequencies != NULL ? c->layers : 0;
}

static clv_status write_frequencies(clv_safetensors_writer *w, const clv_model_config *c, clv_error *err)
{
    int64_t first = clv_model_tensor_count(c);

    for (int64_t i = 0; i < frequencies_in_file(c); i++)
        CLV_TRY(clv_safetensors_write(w, first + i, NULL, c->rope.inv_freq, err));
    return CLV_OK;
}

/* number: id of the file that another process has created; -1: creates it. */
static clv_status begin_tensors(clv_safetensors_writer **out, const clv_model_config *c, clv_dtype dtype,
                                const char *path, int number, const char *prefix, const clv_tensor_spec *more,
                                int64_t n_more, clv_error *err)
{
    int64_t n_parameters = clv_model_parameter_count(c), n = 0;
    size_t room = (size_t)(clv_model_tensor_count(c) + c->layers + n_more) + 1;
    clv_tensor_spec *specs = calloc(room, sizeof *specs);
    char(*names)[PREFIXED_NAME_SIZE] = calloc(room, sizeof *names);
    clv_status status;

    if (specs == NULL || names == NULL) {
        free(specs);
        free(names);
        return clv_fail_memory(err, path, room * sizeof *specs);
    }
    for (int64_t i = 0; i < n_parameters; i++) {
        clv_parameter p = clv_model_parameter_at(c, i);
        for (int i_tensor = 0; i_tensor < clv_parameter_tensor_count(c, &p); i_tensor++, n++) {
            clv_model_tensor t = clv_parameter_tensor(c, &p, i_tensor);
            snprintf(names[n], sizeof names[n], "%s%s", prefix, t.name);
            specs[n] = (clv_tensor_spec){
                .name = names[n], .dtype = clv_parameter_row_file_dtype(p.row, dtype), .rank = t.rank};
            memcpy(specs[n].shape, t.shape, sizeof t.shape);
        }
    }
    for (int64_t i = 0; prefix[0] == '\0' && i < frequencies_in_file(c); i++, n++) {
        clv_model_inv_freq_name_candidate(names[n], c, i);
        specs[n] = (clv_tensor_spec){.name = names[n], .dtype = CLV_F32, .rank = 1, .shape = {c->head_dim / 2}};
    }
    for (int64_t i = 0; i < n_more; i++)
        specs[n++] = more[i];
    status = number >= 0 ? clv_safetensors_attach(out, path, specs, n, number, err)
                         : clv_safetensors_create(out, path, specs, n, err);
    free(specs);
    free(names);
    return status;
}

clv_status clv_model_create_tensors(clv_safetensors_writer **out, const clv_model_config *c, const char *path,
                                    const char *prefix, const clv_tensor_spec *more, int64_t n_more, clv_error *err)
{
    return begin_tensors(out, c, CLV_F32, path, -1, prefix, more, n_more, err);
}

clv_status clv_model_attach_weights(clv_safetensors_writer **out, const clv_model_config *c, clv_dtype dtype,
                                    const char *path, int number, clv_error *err)
{
    if (number < 0)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: several processes write a file, not a pipe or device", path);
    return begin_tensors(out, c, dtype, path, number, "", NULL, 0, err);
}

int64_t clv_model_tensor_count(const clv_model_config *c)
{
    int64_t n = 0;

    for (int64_t i = 0; i < clv_model_parameter_count(c); i++)
        n += tensor_count(c, clv_model_parameter_at(c, i).row);
    return n;
}

clv_status clv_model_create_weights(clv_safetensors_writer **out, const clv_model_config *c, clv_dtype dtype,
                                    const char *path, clv_error *err)
{
    CLV_TRY(begin_tensors(out, c, dtype, path, -1, "", NULL, 0, err));
    clv_status status = write_frequencies(*out, c, err);
    if (status != CLV_OK)
        clv_safetensors_abort(*out);
    return status;
}
