/* random_ops.c - generators of random ops, one small function each: `a` is a float at hand. */
#include <stdio.h>
#include <string.h>

#include "ops/builtin_ops.h"
#include "random_source.h"

/* ---- products ---- */

/* Letters of a product while it is put together. */
typedef struct letters {
    char a[CLV_MAX_RANK + 1], b[CLV_MAX_RANK + 1], out[CLV_MAX_RANK + 1];
    int n_a, n_b, n_out, n_letters;
    int64_t b_shape[CLV_MAX_RANK], out_elems;
    char name[26];
} letters;

static letters no_letters(random_maker *m)
{
    letters l = {.out_elems = 1};
    int order[26];
    for (int i = 0; i < 26; i++)
        order[i] = i;
    random_shuffle(m, order, 26);
    for (int i = 0; i < 26; i++)
        l.name[i] = (char)((i % 2 ? 'a' : 'A') + order[i]);
    return l;
}

static void put_out(letters *l, char letter, int64_t size)
{
    l->out[l->n_out++] = letter;
    l->out_elems *= size > 0 ? size : 1;
}

static void put_b(letters *l, char letter, int64_t size)
{
    l->b_shape[l->n_b] = size;
    l->b[l->n_b++] = letter;
}

static void shuffle_b(random_maker *m, letters *l)
{
    letters from = *l;
    int order[CLV_MAX_RANK];
    for (int i = 0; i < l->n_b; i++)
        order[i] = i;
    random_shuffle(m, order, l->n_b);
    for (int i = 0; i < l->n_b; i++) {
        l->b[i] = from.b[order[i]];
        l->b_shape[i] = from.b_shape[order[i]];
    }
}

static void shuffle_out(random_maker *m, letters *l)
{
    for (int i = l->n_out - 1; i > 0; i--) {
        int64_t j = random_pick(m, i + 1);
        char kept = l->out[i];
        l->out[i] = l->out[j];
        l->out[j] = kept;
    }
}

/* The operands in either order. */
static clv_value multiply(random_maker *m, const letters *l, clv_value a, clv_value b)
{
    char text[4 * CLV_MAX_RANK];
    bool turned = random_chance(m, 2);
    snprintf(text, sizeof text, "%.*s,%.*s->%.*s", turned ? l->n_b : l->n_a, turned ? l->b : l->a,
             turned ? l->n_a : l->n_b, turned ? l->a : l->b, l->n_out, l->out);
    clv_value product = clv_einsum(m->graph, text, turned ? b : a, turned ? a : b);
    return clv_scale(m->graph, product, 0.4);
}

/* Each dimension of a is contracted, batch or its own; b has some more. */
static clv_value product(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    letters l = no_letters(m);
    for (int d = 0; d < type.rank; d++) {
        char letter = l.name[l.n_letters++];
        int64_t role = random_pick(m, 3);
        l.a[l.n_a++] = letter;
        if (role > 0) /* contracted or batch */
            put_b(&l, letter, type.shape[d]);
        if (role != 1)
            put_out(&l, letter, type.shape[d]);
    }
    for (int64_t more = random_pick(m, 4); more > 0 && l.n_b < CLV_MAX_RANK && l.n_out < CLV_MAX_RANK; more--) {
        int64_t size = random_size(m);
        if (l.out_elems * size > 2 * RANDOM_ELEMS)
            continue;
        char letter = l.name[l.n_letters++];
        put_b(&l, letter, size);
        put_out(&l, letter, size);
    }
    shuffle_b(m, &l);
    shuffle_out(m, &l);
    return multiply(m, &l, a, random_operand(m, type.dtype, l.n_b, l.b_shape));
}

/* Of two values at hand: dimensions of one size are mostly the same letter. */
static clv_value product_of_two(random_maker *m, clv_value a)
{
    clv_value b = random_any(m);
    clv_type ta = random_type(m, a), tb = random_type(m, b);
    letters l = no_letters(m);
    bool used[CLV_MAX_RANK] = {false};
    for (int d = 0; d < tb.rank; d++) {
        int same = -1;
        for (int i = 0; i < ta.rank; i++)
            same = !used[i] && ta.shape[i] == tb.shape[d] && (same < 0 || random_chance(m, 2)) ? i : same;
        if (same >= 0)
            used[same] = true;
        l.b[l.n_b++] = (char)(same >= 0 ? 'a' + same : 'n' + d);
    }
    for (int i = 0; i < ta.rank; i++) {
        l.a[l.n_a++] = (char)('a' + i);
        if (!used[i] || random_chance(m, 3))
            put_out(&l, (char)('a' + i), ta.shape[i]);
    }
    for (int d = 0; d < tb.rank && l.n_out <= CLV_MAX_RANK; d++)
        if (l.b[d] >= 'n') {
            if (l.n_out == CLV_MAX_RANK || l.out_elems * tb.shape[d] > 4 * RANDOM_ELEMS)
                return CLV_NONE;
            put_out(&l, l.b[d], tb.shape[d]);
        }
    shuffle_out(m, &l);
    return multiply(m, &l, a, ta.dtype == tb.dtype ? b : clv_cast(m->graph, b, ta.dtype));
}

/* ---- elementwise ---- */

/* Where a function would leave the range of ordinary numbers its argument is brought back. */
static clv_value map(random_maker *m, clv_value a)
{
    clv_unary_kind kind = (clv_unary_kind)(CLV_EXP + random_pick(m, CLV_NEG - CLV_EXP + 1));
    clv_type type = random_type(m, a);
    if (kind == CLV_EXP)
        a = clv_unary(m->graph, CLV_TANH, a);
    if (kind == CLV_LOG || kind == CLV_RSQRT)
        a = clv_add(m->graph, clv_mul(m->graph, a, a), clv_fill(m->graph, type.dtype, 0, NULL, 0.5));
    return clv_unary(m->graph, kind, a);
}

/* A type that broadcasts with `type`: fewer dimensions, ones among them. */
static clv_type broadcast_type(random_maker *m, clv_type type)
{
    if (random_chance(m, 2))
        return type;
    int fewer = type.rank > 0 ? (int)random_pick(m, type.rank + 1) : 0;
    type.rank -= fewer;
    memmove(type.shape, type.shape + fewer, (size_t)type.rank * sizeof *type.shape);
    for (int d = 0; d < type.rank; d++)
        type.shape[d] = random_chance(m, 4) ? 1 : type.shape[d];
    return type;
}

static clv_value broadcast_operand(random_maker *m, clv_type type)
{
    type = broadcast_type(m, type);
    return random_operand(m, type.dtype, type.rank, type.shape);
}

static clv_value combine(random_maker *m, clv_value a)
{
    clv_binary_kind kind = (clv_binary_kind)(CLV_ADD + random_pick(m, CLV_MINIMUM - CLV_ADD + 1));
    clv_type type = random_type(m, a);
    clv_value b = broadcast_operand(m, type);
    if (kind == CLV_DIV)
        b = clv_add(m->graph, clv_mul(m->graph, b, b), clv_fill(m->graph, type.dtype, 0, NULL, 0.5));
    return kind != CLV_DIV && random_chance(m, 2) ? clv_binary(m->graph, kind, b, a) : clv_binary(m->graph, kind, a, b);
}

static clv_value where(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a), of_condition = broadcast_type(m, type);
    clv_value condition =
        random_new(m, random_chance(m, 2) ? CLV_U8 : CLV_BOOL, of_condition.rank, of_condition.shape, RANDOM_BIT, 0);
    clv_value b = broadcast_operand(m, type);
    return random_chance(m, 2) ? clv_where(m->graph, condition, a, b) : clv_where(m->graph, condition, b, a);
}

static clv_value cast(random_maker *m, clv_value a)
{
    clv_dtype dtype = random_float(m);
    bool narrow = dtype == CLV_F16; /* overflows soon */
    return clv_cast(m->graph, narrow ? clv_unary(m->graph, CLV_TANH, a) : a, dtype);
}

static clv_value scale(random_maker *m, clv_value a)
{
    return clv_scale(m->graph, a, (double)(random_pick(m, 7) - 3) / 4);
}

/* Each row's largest element by ones, the others by zeros. */
static clv_value largest(random_maker *m, clv_value a)
{
    int last = random_type(m, a).rank - 1;
    if (last < 0 || random_type(m, a).shape[last] == 0)
        return CLV_NONE;
    return clv_equal(m->graph, a, clv_reduce(m->graph, CLV_MAX, a, &last, 1, true));
}

static clv_value bias_gelu(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    if (type.rank == 0)
        return CLV_NONE;
    clv_value bias = random_operand(m, type.dtype, 1, &type.shape[type.rank - 1]);
    return clv_bias_gelu(m->graph, a, bias, random_chance(m, 2) ? CLV_GELU : CLV_GELU_TANH);
}

static clv_value gated(random_maker *m, clv_value a)
{
    static const clv_unary_kind kinds[] = {CLV_SILU, CLV_GELU, CLV_GELU_TANH, CLV_RELU};
    clv_type type = random_type(m, a);
    if (type.rank == 0 || type.rank == CLV_MAX_RANK)
        return CLV_NONE;
    type.shape[type.rank] = type.shape[type.rank - 1];
    type.shape[type.rank++ - 1] = 2;
    return clv_gated(m->graph, random_operand(m, type.dtype, type.rank, type.shape), kinds[random_pick(m, 4)]);
}

static clv_value dropout(random_maker *m, clv_value a)
{
    clv_value step = random_chance(m, 2) ? random_new(m, CLV_I32, 0, NULL, RANDOM_STEP, 0) : CLV_NONE;
    if (random_type(m, a).rank > 1)
        m->graph->zigzag = random_pick(m, 4);
    const clv_value out = clv_dropout(m->graph, a, 0.25, clv_key_seed((uint64_t)m->slot), step);
    m->graph->zigzag = 0;
    return out;
}

/* ---- reductions, rows ---- */

static clv_value reduce(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    int dims[CLV_MAX_RANK], n = 0;
    bool empty = false;
    for (int d = 0; d < type.rank; d++)
        if (random_chance(m, 2) || (d == type.rank - 1 && n == 0)) {
            dims[n++] = d;
            empty = empty || type.shape[d] == 0;
        }
    if (n == 0)
        return CLV_NONE;
    clv_reduce_kind kind = empty ? CLV_SUM : (clv_reduce_kind)(CLV_SUM + random_pick(m, CLV_MEAN - CLV_SUM + 1));
    clv_value sum = clv_reduce(m->graph, kind, a, dims, n, random_chance(m, 2));
    return kind == CLV_SUM ? clv_scale(m->graph, sum, 0.4) : sum;
}

static clv_value softmax(random_maker *m, clv_value a)
{
    return random_type(m, a).rank == 0 ? CLV_NONE : clv_softmax(m->graph, a);
}

static clv_value norm(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    if (type.rank == 0 || type.shape[type.rank - 1] == 0)
        return CLV_NONE;
    const int64_t *width = &type.shape[type.rank - 1];
    clv_value gain = random_operand(m, type.dtype, 1, width);
    if (random_chance(m, 2))
        return clv_rms_norm(m->graph, a, gain, 0.1);
    return clv_layer_norm(m->graph, a, gain, random_chance(m, 3) ? CLV_NONE : random_operand(m, type.dtype, 1, width),
                          0.1);
}

static clv_value cross_entropy(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    if (type.rank == 0 || type.shape[type.rank - 1] == 0)
        return CLV_NONE;
    clv_value labels = random_new(m, random_chance(m, 3) ? CLV_I64 : CLV_I32, type.rank - 1, type.shape, RANDOM_LABEL,
                                  type.shape[type.rank - 1]);
    clv_value losses = clv_cross_entropy(m->graph, a, labels, RANDOM_IGNORED);
    clv_dtype dtype = random_type(m, losses).dtype;
    if (random_chance(m, 2))
        return losses;
    clv_value count = clv_count_labels(m->graph, labels, RANDOM_IGNORED, dtype);
    return clv_div(m->graph, losses, clv_add(m->graph, count, clv_fill(m->graph, dtype, 0, NULL, 1)));
}

/* ---- moved elements ---- */

/* Neighbours are multiplied together, some are split, ones are put between. */
static clv_value reshape(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    int64_t shape[CLV_MAX_RANK];
    int n = 0;
    for (int d = 0; d < type.rank; d++) {
        int64_t size = type.shape[d];
        int left = type.rank - d; /* dimensions that are still to be placed need room */
        if (n > 0 && random_chance(m, 3)) {
            shape[n - 1] *= size;
        } else if (size > 1 && n + left < CLV_MAX_RANK && random_chance(m, 2)) {
            int64_t minor = random_divisor(m, size);
            shape[n++] = size / minor;
            shape[n++] = minor;
        } else {
            shape[n++] = size;
        }
    }
    if (n < CLV_MAX_RANK && random_chance(m, 4))
        shape[n++] = 1;
    return clv_reshape(m->graph, a, n, shape);
}

static clv_value transpose(random_maker *m, clv_value a)
{
    int rank = random_type(m, a).rank, order[CLV_MAX_RANK];
    for (int d = 0; d < rank; d++)
        order[d] = d;
    random_shuffle(m, order, rank);
    return clv_transpose(m->graph, a, order);
}

static clv_value slice(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    int64_t low[CLV_MAX_RANK], high[CLV_MAX_RANK];
    for (int d = 0; d < type.rank; d++) {
        bool cut = random_chance(m, 2);
        low[d] = cut ? random_pick(m, type.shape[d] + 1) : 0;
        high[d] = cut ? low[d] + random_pick(m, type.shape[d] - low[d] + 1) : type.shape[d];
        if (low[d] == high[d] && !random_chance(m, 8)) { /* seldom nothing */
            low[d] = 0;
            high[d] = type.shape[d];
        }
    }
    return clv_slice(m->graph, a, low, high);
}

static clv_value pad(random_maker *m, clv_value a)
{
    int rank = random_type(m, a).rank;
    int64_t before[CLV_MAX_RANK], after[CLV_MAX_RANK];
    for (int d = 0; d < rank; d++) {
        before[d] = random_chance(m, 2) ? random_pick(m, 3) : 0;
        after[d] = random_chance(m, 2) ? random_pick(m, 3) : 0;
    }
    return clv_pad(m->graph, a, before, after);
}

static clv_value concat(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    enum { MOST = 20 };
    clv_value part[MOST] = {a};
    int n = 2 + (int)random_pick(m, random_chance(m, 3) ? MOST - 1 : 2), dim;
    if (type.rank == 0)
        return CLV_NONE;
    dim = (int)random_pick(m, type.rank);
    for (int i = 1; i < n; i++) {
        type.shape[dim] = random_size(m);
        part[i] = random_operand(m, type.dtype, type.rank, type.shape);
    }
    part[0] = part[random_pick(m, n)]; /* the first is seldom special; one may stand twice */
    return clv_concat(m->graph, part, n, dim);
}

static clv_value constrain(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    clv_layout layout = random_layout(m, &type);
    return clv_constrain(m->graph, a, &layout);
}

/* a + iota, along the last dimension and perhaps from an offset a row of the batch. */
static clv_value iota(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    if (type.rank == 0)
        return CLV_NONE;
    bool by_row = type.rank == 2 && random_chance(m, 2);
    clv_value offset =
        by_row || random_chance(m, 2) ? random_new(m, CLV_I32, by_row ? 1 : 0, type.shape, RANDOM_OFFSET, 5) : CLV_NONE;
    clv_value place = clv_cast(m->graph, clv_iota(m->graph, type.shape[type.rank - 1], offset), type.dtype);
    return clv_add(m->graph, a, clv_scale(m->graph, place, 0.1));
}

/* ---- transformers ---- */

static clv_value embedding(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    int64_t shape[3] = {random_size(m), random_size(m), random_size(m)};
    int rank = (int)random_pick(m, 4);
    type.rank = 2;
    type.shape[0] = type.shape[0] > 0 && random_chance(m, 2) ? type.shape[0] : 1 + random_pick(m, 12);
    type.shape[1] = 1 + random_pick(m, 8);
    clv_value ids = random_new(m, random_chance(m, 3) ? CLV_I64 : CLV_I32, rank, shape, RANDOM_INDEX, type.shape[0]);
    return clv_embedding(m->graph, random_operand(m, type.dtype, 2, type.shape), ids);
}

/* An offset: none, one, or one a row of the batch. */
static clv_value offset(random_maker *m, int64_t batch, int64_t most)
{
    int64_t how = random_pick(m, 3);
    return how == 0 ? CLV_NONE : random_new(m, CLV_I32, how == 2, &batch, RANDOM_OFFSET, most);
}

clv_value random_attention(random_maker *m, clv_value a)
{
    clv_dtype dtype = random_type(m, a).dtype;
    int64_t batch = 1 + random_pick(m, 3), queries = 1 + random_pick(m, 7), keys = 1 + random_pick(m, 7);
    int64_t kv_heads = 1 + random_pick(m, 4), groups = 1 + random_pick(m, 4), dim = 2 * (1 + random_pick(m, 3));
    if (random_chance(m, 3))
        keys = queries;
    clv_value q = random_operand(m, dtype, 4, (int64_t[]){batch, queries, kv_heads * groups, dim});
    const int64_t values = random_chance(m, 3) ? 1 + random_pick(m, 7) : 0; /* of a width of their own */
    clv_value kv = values
                       ? random_operand(m, dtype, 4,
                                        (int64_t[]){batch, keys, kv_heads,
                                                    dim + values - random_pick(m, 1 + (dim < values ? dim : values))})
                       : random_operand(m, dtype, 5, (int64_t[]){batch, keys, 2, kv_heads, dim});
    clv_attention_options options = {.size = sizeof options,
                                     .value_dim = values,
                                     .causal = random_chance(m, 2),
                                     .scale = random_chance(m, 2) ? 0.7 : 0,
                                     .mask = CLV_NONE,
                                     .offset = CLV_NONE,
                                     .window = random_chance(m, 3) ? 1 + random_pick(m, 4) : 0};
    if (random_chance(m, 3))
        options.mask =
            random_new(m, random_chance(m, 2) ? CLV_U8 : CLV_BOOL, 2, (int64_t[]){batch, keys}, RANDOM_BIT, 0);
    const int64_t ranks = random_ranks(m, "context");
    if (ranks > 1) { /* as in training, with queries of their own or not */
        options.window = 0;
        options.causal = options.causal && keys == queries;
    } else if (options.causal || options.window) {
        options.offset = offset(m, batch, keys);
    }
    if (random_chance(m, 4)) {
        options.dropout = 0.25;
        options.dropout_key = clv_key_seed((uint64_t)m->slot);
        options.dropout_step = random_chance(m, 2) ? random_new(m, CLV_I32, 0, NULL, RANDOM_STEP, 0) : CLV_NONE;
    }
    if (keys == queries && !clv_valid(options.offset) && (random_chance(m, 2) || ranks > 1))
        m->graph->zigzag = ranks > 1 ? ranks : 1 + random_pick(m, 4);
    q = random_over(m, q, 1, "context");
    kv = random_over(m, kv, 1, "context");
    const clv_value out = clv_attention(m->graph, q, kv, &options);
    m->graph->zigzag = 0;
    return random_over(m, out, 1, "context");
}

static clv_value by_tables(random_maker *m, clv_value a)
{
    const int64_t pairs = 1 + random_pick(m, 3);
    int64_t shape[3] = {1 + random_pick(m, 4), 1 + random_pick(m, 5), 2 * pairs},
            table[3] = {random_chance(m, 2) ? 1 : shape[0], shape[1], random_chance(m, 2) ? pairs : 2 * pairs};
    clv_dtype dtype = random_type(m, a).dtype == CLV_F64 ? CLV_F64 : CLV_F32;
    clv_value x = random_operand(m, random_type(m, a).dtype, 3, shape), cos = random_operand(m, dtype, 3, table),
              sin = random_operand(m, dtype, 3, table);
    return clv_rotate(m->graph, x, cos, sin, random_chance(m, 2));
}

static clv_value rope(random_maker *m, clv_value a)
{
    int64_t shape[5] = {1 + random_pick(m, 3), 1 + random_pick(m, 7), 2, 1 + random_pick(m, 5),
                        2 * (1 + random_pick(m, 3))};
    bool packed = random_chance(m, 2);
    if (random_chance(m, 2))
        return by_tables(m, a);
    if (!packed)
        memmove(shape + 2, shape + 3, 2 * sizeof *shape);
    clv_rope_options options = {.theta = 100,
                                .dims = random_chance(m, 2) ? 2 : 0,
                                .interleaved = random_chance(m, 2),
                                .factor = random_chance(m, 3) ? 2 : 0};
    clv_value x = random_operand(m, random_type(m, a).dtype, packed ? 5 : 4, shape), from = offset(m, shape[0], 9);
    if (!clv_valid(from))
        m->graph->zigzag = random_pick(m, 4);
    const clv_value out = clv_rope(m->graph, x, from, &options);
    m->graph->zigzag = 0;
    return out;
}

static clv_value cache_update(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    if (type.rank < 2 || type.shape[1] == 0)
        return CLV_NONE;
    int64_t most = type.shape[1];
    type.shape[1] = 1 + random_pick(m, most);
    clv_value rows = random_operand(m, type.dtype, type.rank, type.shape);
    bool by_row = random_chance(m, 2);
    clv_value from = random_new(m, CLV_I32, by_row, type.shape, RANDOM_OFFSET, most - type.shape[1]);
    return clv_cache_update(m->graph, a, rows, from);
}

/* In f64, where nothing is rounded as integers: what ranks' sums differ by would be another integer. */
static clv_value quant_dot(random_maker *m, clv_value a)
{
    enum { BLOCK = 32 };
    clv_quant quant = random_chance(m, 2) ? CLV_QUANT_Q8 : CLV_QUANT_Q4;
    int64_t bytes = quant == CLV_QUANT_Q8 ? BLOCK : BLOCK / 2;
    int64_t rows = random_size(m), out = 1 + random_pick(m, 6), in = 1 + random_pick(m, 3), blocks = random_size(m) % 4;
    int n_in = 1 + (int)random_pick(m, 2);
    int64_t x_shape[] = {rows, in, BLOCK * blocks}, w_shape[] = {out, in, blocks, bytes};
    if (n_in == 1) {
        x_shape[1] = x_shape[2];
        w_shape[1] = blocks;
        w_shape[2] = bytes;
    }
    clv_value x = random_operand(m, CLV_F64, 1 + n_in, x_shape);
    clv_value ints = random_new(m, CLV_U8, 2 + n_in, w_shape, RANDOM_INDEX, 256);
    clv_value scales = random_new(m, CLV_F16, 1 + n_in, w_shape, RANDOM_REAL, 0);
    clv_value y = clv_quantized_dot(m->graph, quant, clv_cast(m->graph, x, CLV_F64), ints, scales, n_in);
    return clv_cast(m->graph, clv_scale(m->graph, y, quant == CLV_QUANT_Q8 ? 0.004 : 0.1), random_type(m, a).dtype);
}

/* Likewise, in f64; each row chooses two experts, or of one that is not there none. */
static clv_value quant_experts(random_maker *m, clv_value a)
{
    enum { BLOCK = 32, TOP = 2 };
    const clv_quant quant = random_chance(m, 2) ? CLV_QUANT_Q8 : CLV_QUANT_Q4;
    const int64_t bytes = quant == CLV_QUANT_Q8 ? BLOCK : BLOCK / 2, rows[] = {random_size(m), 1 + random_pick(m, 4)};
    const int64_t n = 1 + random_pick(m, 6), in = 1 + random_pick(m, 2), blocks = 1 + random_pick(m, 3);
    const int64_t up_shape[] = {n, 2, BLOCK * blocks, in, bytes}, down_shape[] = {n, BLOCK * in, blocks, bytes};
    const clv_value x = random_operand(m, CLV_F64, 3, (int64_t[]){rows[0], rows[1], BLOCK * in});
    const clv_value ids = random_new(m, CLV_I32, 3, (int64_t[]){rows[0], rows[1], TOP}, RANDOM_INDEX, n + 1);
    const clv_value weights = random_new(m, CLV_F64, 3, (int64_t[]){rows[0], rows[1], TOP}, RANDOM_REAL, 0);
    const clv_value up[] = {random_new(m, CLV_U8, 5, up_shape, RANDOM_INDEX, 256),
                            random_new(m, CLV_F16, 4, up_shape, RANDOM_REAL, 0)},
                    down[] = {random_new(m, CLV_U8, 4, down_shape, RANDOM_INDEX, 256),
                              random_new(m, CLV_F16, 3, down_shape, RANDOM_REAL, 0)};
    const clv_value y =
        clv_quantized_experts(m->graph, quant, clv_cast(m->graph, x, CLV_F64), ids, weights, up, down, CLV_RELU);
    return clv_cast(m->graph, clv_scale(m->graph, y, quant == CLV_QUANT_Q8 ? 1e-7 : 1e-4), random_type(m, a).dtype);
}

/* Weights in panels: in f32, for there are none of f64. */
static clv_value packed_dot(random_maker *m, clv_value a)
{
    enum { PANEL = 16 };
    int64_t rows = random_size(m), heads = 1 + random_pick(m, 3), panels = 1 + random_pick(m, 4),
            in = 1 + random_pick(m, 3);
    int n_in = 1 + (int)random_pick(m, 2);
    int64_t x_shape[] = {rows, in, random_size(m)}, w_shape[] = {heads, panels, in, x_shape[2], PANEL};
    if (n_in == 1)
        w_shape[3] = PANEL;
    clv_value x = random_operand(m, CLV_F32, 1 + n_in, x_shape);
    clv_value weights = random_operand(m, CLV_F32, 3 + n_in, w_shape);
    clv_value y =
        clv_prepacked_dot(m->graph, clv_cast(m->graph, x, CLV_F32), clv_cast(m->graph, weights, CLV_F32), n_in);
    return clv_cast(m->graph, clv_scale(m->graph, y, 0.25), random_type(m, a).dtype);
}

/* Rows of their own logits: where two are equal but for rounding, another mesh might choose another expert. */
clv_value random_experts(random_maker *m, clv_value a)
{
    const clv_dtype dtype = random_type(m, a).dtype;
    const int64_t n = 1 + random_pick(m, 6), rows[] = {random_size(m), 1 + random_pick(m, 4)};
    const int64_t width = 1 + random_pick(m, 5), ffn = 1 + random_pick(m, 6), groups = random_divisor(m, n);
    clv_router_options how = {.top_groups = 1 + random_pick(m, groups), .groups = groups};
    clv_value weights, ids, logits = random_new(m, CLV_F64, 3, (int64_t[]){rows[0], rows[1], n}, RANDOM_REAL, 0);
    how.top_k = 1 + random_pick(m, n / groups * how.top_groups);
    how.sigmoid = random_chance(m, 2);
    how.normalised = random_chance(m, 2);
    clv_router(m->graph, logits, &how, &weights, &ids);
    clv_value x = random_operand(m, dtype, 3, (int64_t[]){rows[0], rows[1], width});
    clv_value gate_up = random_operand(m, dtype, 4, (int64_t[]){n, width, 2, ffn});
    clv_value down = random_operand(m, dtype, 3, (int64_t[]){n, ffn, width});
    weights = clv_cast(m->graph, weights, dtype == CLV_F64 ? CLV_F64 : CLV_F32);
    x = random_over(m, x, 0, "expert");
    gate_up = random_over(m, gate_up, 0, "expert");
    down = random_over(m, down, 0, "expert");
    clv_value y = clv_experts(m->graph, x, ids, weights, gate_up, down, random_chance(m, 2) ? CLV_SILU : CLV_GELU);
    if (ffn % 2)
        return y;
    clv_value places = clv_expert_places(m->graph, ids, n, 1 + width % 3);
    clv_value placed = clv_expert_dispatch(m->graph, y, places, n, 1 + width % 3);
    return clv_add(m->graph, y, clv_expert_combine(m->graph, placed, places, weights));
}

/* Weights that are held for products alone. */
static clv_value held_dot(random_maker *m, clv_value a)
{
    switch (random_pick(m, 4)) {
    case 0:
        return quant_experts(m, a);
    case 1:
        return quant_dot(m, a);
    default:
        return packed_dot(m, a);
    }
}

/* ---- of imported programs ---- */

/* Smooth functions, which rounding does not move far; comparisons are of whole numbers. */
static clv_value pointwise(random_maker *m, clv_value a)
{
    static const clv_pointwise_kind smooth[] = {CLV_SIN, CLV_COS, CLV_ABS, CLV_ERF, CLV_ERFC, CLV_LOG1P, CLV_EXPM1};
    static const clv_pointwise_kind logic[] = {CLV_LESS, CLV_LESS_EQUAL, CLV_GREATER, CLV_EQUAL, CLV_NOT_EQUAL};
    clv_type type = random_type(m, a);
    if (random_chance(m, 2)) {
        clv_pointwise_kind kind = smooth[random_pick(m, 7)];
        bool saturates = kind == CLV_ERF || kind == CLV_ERFC;
        a = kind == CLV_EXPM1 ? clv_unary(m->graph, CLV_TANH, a) : saturates ? clv_scale(m->graph, a, 0.1) : a;
        a = kind == CLV_LOG1P ? clv_mul(m->graph, a, a) : a;
        return clv_pointwise(m->graph, kind, a, CLV_NONE);
    }
    clv_type of_condition = broadcast_type(m, type);
    clv_dtype dtype = random_chance(m, 2) ? CLV_I32 : CLV_I64;
    clv_value x = random_new(m, dtype, of_condition.rank, of_condition.shape, RANDOM_INDEX, 3);
    clv_value y = random_new(m, dtype, 0, NULL, RANDOM_INDEX, 3);
    clv_value condition = clv_pointwise(m->graph, logic[random_pick(m, 5)], x, y);
    if (random_chance(m, 2))
        condition = clv_pointwise(m->graph, CLV_NOT, condition, CLV_NONE);
    return clv_where(m->graph, condition, a, clv_scale(m->graph, a, 0.5));
}

/* Elements of dimension d change places; some get zeros. */
static clv_value permute(random_maker *m, clv_value a, int d)
{
    int sources[64], n = (int)random_type(m, a).shape[d];
    if (n > 64)
        return CLV_NONE;
    for (int i = 0; i < n; i++)
        sources[i] = i;
    random_shuffle(m, sources, n);
    for (int i = 0; i < n; i++)
        sources[i] = random_chance(m, 8) ? -1 : sources[i];
    return clv_permute(m->graph, a, d, sources);
}

/* Whole numbers of sequences in zig-zag order. */
static clv_value zigzag(random_maker *m, clv_value a)
{
    const clv_value x = random_new(m, CLV_I32, 2, (int64_t[]){random_size(m), 1 + random_pick(m, 9)}, RANDOM_INDEX, 7);
    m->graph->zigzag = 1 + random_pick(m, 4);
    const clv_value out = clv_tokens_in_row_order(m->graph, x);
    m->graph->zigzag = 0;
    return clv_cast(m->graph, out, random_type(m, a).dtype);
}

/* Elements moved; the largest so far; and whole numbers in order: ties may not depend on rounding. */
static clv_value order(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    if (type.rank == 0)
        return CLV_NONE;
    int d = (int)random_pick(m, type.rank);
    int which = (int)random_pick(m, 5);
    if (which == 3)
        return zigzag(m, a);
    if (which == 2)
        return permute(m, a, d);
    if (which == 0)
        return clv_cumulative(m->graph, random_chance(m, 2) ? CLV_FOLD_MAX : CLV_FOLD_MIN, a, d, random_chance(m, 2));
    clv_value values, index, whole = random_new(m, CLV_I32, type.rank, type.shape, RANDOM_INDEX, 7);
    clv_sort(m->graph, whole, d, random_chance(m, 2), &values, &index);
    clv_value both = clv_add(m->graph, values, index);
    return clv_add(m->graph, a, clv_cast(m->graph, both, type.dtype));
}

/* Minima and products of floats, and the index of a whole number's maximum. */
static clv_value fold(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    if (type.rank == 0)
        return CLV_NONE;
    int d = (int)random_pick(m, type.rank);
    if (type.shape[d] == 0)
        return CLV_NONE;
    if (random_chance(m, 2))
        return clv_fold(m->graph, random_chance(m, 2) ? CLV_FOLD_MIN : CLV_FOLD_MAX, a, &d, 1);
    clv_value whole = random_new(m, CLV_I32, type.rank, type.shape, RANDOM_INDEX, 7);
    static const clv_fold_kind kinds[] = {CLV_FOLD_SUM, CLV_FOLD_MAX, CLV_FOLD_ARGMAX, CLV_FOLD_ARGMIN};
    clv_value folded = clv_fold(m->graph, kinds[random_pick(m, 4)], whole, &d, 1);
    return clv_scale(m->graph, clv_cast(m->graph, folded, type.dtype), 0.1);
}

static clv_value starts_of(random_maker *m, int rank, int64_t most)
{
    int64_t n = rank;
    return random_new(m, random_chance(m, 3) ? CLV_I64 : CLV_I32, 1, &n, RANDOM_OFFSET, most);
}

/* Some dimensions are cut, at starts that may be beyond the end. */
static clv_value dynamic_slice(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a);
    bool updates = random_chance(m, 2);
    if (type.rank == 0)
        return CLV_NONE;
    clv_type part = type;
    for (int d = 0; d < type.rank; d++)
        part.shape[d] = random_chance(m, 2) && type.shape[d] > 0 ? 1 + random_pick(m, type.shape[d]) : type.shape[d];
    clv_value starts = starts_of(m, type.rank, 4);
    if (!updates)
        return clv_dynamic_slice(m->graph, a, starts, part.shape);
    return clv_dynamic_update_slice(m->graph, a, random_operand(m, type.dtype, part.rank, part.shape), starts);
}

/* Windows along one dimension, perhaps for each index of another one. */
static clv_value gather_or_scatter(random_maker *m, clv_value a)
{
    clv_type type = random_type(m, a), updates = {.dtype = type.dtype};
    clv_index_dims dims = {.index_dim = 1, .n_starts = 1};
    int64_t shape[2] = {1 + random_pick(m, 5), 1};
    if (type.rank == 0 || type.rank == CLV_MAX_RANK)
        return CLV_NONE;
    int along = (int)random_pick(m, type.rank), batch = (int)random_pick(m, type.rank);
    if (type.shape[along] == 0)
        return CLV_NONE;
    bool batched = batch != along && random_chance(m, 2);
    shape[0] = batched ? type.shape[batch] : shape[0];
    updates.shape[updates.rank++] = shape[0];
    for (int d = 0; d < type.rank; d++) {
        dims.sizes[d] = d == along ? 1 + random_pick(m, type.shape[d]) : type.shape[d];
        dims.sizes[d] = batched && d == batch ? 1 : dims.sizes[d];
        dims.batch[d] = batched && d == batch;
        dims.dropped[d] = d == along && dims.sizes[d] == 1 && random_chance(m, 2);
        if (dims.dropped[d] || dims.batch[d])
            continue;
        dims.window[updates.rank] = true;
        updates.shape[updates.rank++] = dims.sizes[d];
    }
    dims.start[0] = along;
    clv_value indices =
        random_new(m, random_chance(m, 3) ? CLV_I64 : CLV_I32, 2, shape, RANDOM_OFFSET, type.shape[along]);
    if (random_chance(m, 2))
        return random_trim(m, clv_gather(m->graph, a, indices, &dims));
    clv_value given = random_operand(m, type.dtype, updates.rank, updates.shape);
    return clv_scatter(m->graph, random_chance(m, 2) ? CLV_SCATTER_ADD : CLV_SCATTER_SET, a, indices, given, &dims);
}

/* ---- the table ---- */

typedef struct generator {
    clv_value (*make)(random_maker *m, clv_value a);
    int weight;
    bool differentiable;
} generator;

static const generator generators[] = {
    {product, 4, true},
    {product_of_two, 2, true},
    {map, 2, true},
    {combine, 3, true},
    {where, 1, true},
    {cast, 1, true},
    {scale, 1, true},
    {largest, 1, false},
    {bias_gelu, 1, true},
    {gated, 1, true},
    {dropout, 1, true},
    {reduce, 2, true},
    {softmax, 1, true},
    {norm, 1, true},
    {reshape, 3, true},
    {transpose, 1, true},
    {slice, 1, true},
    {pad, 1, true},
    {concat, 2, true},
    {constrain, 3, true},
    {iota, 1, true},
    {embedding, 1, true},
    {random_attention, 2, true},
    {rope, 1, true},
    {cross_entropy, 1, true},
    {cache_update, 2, false},
    {held_dot, 1, false},
    {pointwise, 1, false},
    {fold, 1, false},
    {order, 1, false},
    {dynamic_slice, 1, false},
    {gather_or_scatter, 2, false},
    {random_experts, 2, true},
};
enum { N_GENERATORS = sizeof generators / sizeof generators[0] };

/* NULL: one that passes no gradients, where it should. */
static const generator *choose(random_maker *m, bool differentiable)
{
    int total = 0, g = 0;
    for (int i = 0; i < N_GENERATORS; i++)
        total += generators[i].weight;
    for (int64_t at = random_pick(m, total); at >= generators[g].weight; g++)
        at -= generators[g].weight;
    return differentiable && !generators[g].differentiable ? NULL : &generators[g];
}

clv_value random_op(random_maker *m, bool differentiable)
{
    const generator *chosen = choose(m, differentiable);
    return chosen ? chosen->make(m, random_any(m)) : CLV_NONE;
}

clv_value random_op_of_maxima(random_maker *m, bool differentiable)
{
    clv_value a = random_any(m);
    clv_type type = random_type(m, a);
    int d = type.rank > 0 ? (int)random_pick(m, type.rank) : 0;
    if (type.rank == 0 || type.shape[d] == 0)
        return CLV_NONE;
    clv_layout layout = random_cut(m, &type, d);
    bool keep = random_chance(m, 2);
    a = clv_constrain(m->graph, a, &layout);
    clv_value most = clv_reduce(m->graph, CLV_MAX, a, &d, 1, keep);
    if (random_chance(m, 2)) {
        const generator *chosen = choose(m, differentiable);
        return chosen ? chosen->make(m, most) : CLV_NONE;
    }
    clv_binary_kind kind = (clv_binary_kind)(CLV_ADD + random_pick(m, CLV_MINIMUM - CLV_ADD + 1));
    clv_value other = clv_reduce(m->graph, CLV_MAX, clv_scale(m->graph, a, -0.5), &d, 1, keep);
    if (kind == CLV_DIV)
        other = clv_unary(m->graph, CLV_SIGMOID, other);
    return clv_binary(m->graph, kind, most, other);
}
