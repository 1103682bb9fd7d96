/* latent_attention.c - tensor-parallel multi-head latent attention (MLA): queries, keys and values of all heads are
 * products of latents, small vectors of a position, and the heads share one rotary key.
 *
 *   queries   q = norm(x q_down) q, or x q         [B,S,H,N+P]: N that are not rotated, P that are
 *   latents   (c, p) = x kv_down, c normed, p rotated      [B,S,P+R], held as (p, c)
 *   keys      (p, c kv's first N), values  c kv's last V    of each head
 *
 * Heads are split. Latents are computed on the rows that a rank has between layers, and gathered with these; no axis of
 * heads splits them. They are the KV cache, [B,context,1,P+R], the same on every rank of these axes, and split over
 * positions as any (nn/kv_cache.c).
 *
 * With a cache, keys and values are made of all of it, of a rank's positions, or not at all ("absorbed"): q's first N
 * times kv's part of keys is a query of a latent, and attention's sum of latents times kv's part of values is that of
 * values. The cheaper by multiplications is built: a step of one row is absorbed, a long prompt is not, nor latents
 * that are wider than heads of attention may be. Absorbed products take the whole kv, zeros beside the query and a part
 * of the result, for a part of the weight would be copied.
 *
 * Source: DeepSeek-AI 2024, arXiv:2405.04434, section 2.1, appendix C.
 */
#include <math.h>
#include <string.h>

#include "graph/graph.h"
#include "kernels/cpu/attention_kernel.h"
#include "nn/kv_cache.h"
#include "nn/stored_weight.h"

typedef struct latent_sizes {
    int64_t batch, rows, width; /* of x */
    int64_t keys;               /* rows of x, or of each part of the cache */
    int64_t heads, latent, plain, rotary, value;
} latent_sizes;

static clv_value part(clv_graph *graph, clv_value x, int64_t begin, int64_t end)
{
    const clv_type type = clv_graph_type(graph, x);
    int64_t from[CLV_MAX_RANK] = {0}, to[CLV_MAX_RANK];
    if (type.rank < 1)
        return CLV_NONE;
    memcpy(to, type.shape, sizeof to);
    from[type.rank - 1] = begin;
    to[type.rank - 1] = end;
    return clv_slice(graph, x, from, to);
}

/* x times a weight [M,n], plus a bias: rows as between layers, features whole. */
static clv_value down(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name, int64_t features,
                      const char *bias, clv_init init, const char *what)
{
    static const clv_logical_axis names[] = {CLV_EMBED_KERNEL, CLV_UNNAMED};
    const clv_type type = clv_graph_type(graph, x);
    const int64_t shape[] = {type.shape[2], features};
    const clv_weight_spec spec = {name, type.dtype, 2, 1, shape, names, NULL, init, 0};
    const clv_stored_weight weight = clv_nn_stored_weight(graph, rules, &spec);
    const clv_layout rows = clv_nn_activation_layout(graph, rules, 2, 1, names + 1);
    clv_value y = clv_nn_stored_weight_product(graph, x, rules, &weight, "bs", "m", "mr", "r");
    y = clv_nn_constrain(graph, y, &rows, rules, what, 1, names + 1);
    return bias ? clv_nn_add_bias(graph, y, rules, bias, 1, shape + 1, names + 1, NULL) : y;
}

static clv_value latent_norm(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name, double eps)
{
    const clv_type type = clv_graph_type(graph, x);
    const clv_value gain = clv_nn_parameter(graph, rules, name, type.dtype, 1, &type.shape[2],
                                            (clv_logical_axis[]){CLV_UNNAMED}, NULL, (clv_init){CLV_INIT_ONES, 0});
    return clv_rms_norm(graph, x, gain, eps);
}

/* A weight [in,H,out] and its product with x [B,S,in]. */
static clv_stored_weight up_weight(clv_graph *graph, const clv_axis_rules *rules, const char *name, clv_dtype dtype,
                                   int64_t in, int64_t heads, int64_t out, clv_init init)
{
    static const clv_logical_axis names[] = {CLV_EMBED_KERNEL, CLV_HEADS, CLV_HEAD_DIM};
    const int64_t shape[] = {in, heads, out};
    const clv_weight_spec spec = {name, dtype, 3, 1, shape, names, NULL, init, 0};
    return clv_nn_stored_weight(graph, rules, &spec);
}

/* cache: of whose rows x is; NULL: x is of rows of the layer. */
static clv_value up(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_stored_weight *weight,
                    const clv_cache *cache, const char *what)
{
    static const clv_logical_axis cached[] = {CLV_BATCH, CLV_CACHE_SEQ, CLV_HEADS, CLV_HEAD_DIM}, *names = cached + 2;
    const clv_layout split = cache && cache->parts > 1 ? clv_nn_cache_layout(graph, cache, 4, cached)
                                                       : clv_nn_activation_layout(graph, rules, 2, 2, names);
    clv_value y = clv_nn_stored_weight_product(graph, x, rules, weight, "bs", "m", "mhd", "hd");
    clv_nn_pin_heads(graph, y, rules, 2, CLV_HEADS);
    y = clv_nn_constrain(graph, y, &split, rules, what, 2, names);
    return clv_nn_pin_heads(graph, y, rules, 2, CLV_HEADS);
}

/* The parts of queries that are rotated, and rotated, and the others. */
static void queries(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_latent_attention_options *o,
                    clv_value *rotary, clv_value *plain)
{
    const clv_dtype dtype = clv_graph_type(graph, x).dtype;
    int64_t in = clv_graph_type(graph, x).shape[2];
    if (o->q_rank > 0) {
        x = down(graph, x, rules, "q_down.weight", o->q_rank, o->bias ? "q_down.bias" : NULL, o->init,
                 "the latent of queries");
        x = latent_norm(graph, x, rules, "q_norm.weight", o->eps);
        in = o->q_rank;
    }
    x = clv_nn_enter_parallel_region(graph, x, rules, CLV_HEADS);
    const clv_stored_weight weight =
        up_weight(graph, rules, "q.weight", dtype, in, o->heads, o->plain_dim + o->rotary_dim, o->init);
    const clv_value q = up(graph, x, rules, &weight, NULL, "the query tensor");
    *plain = part(graph, q, 0, o->plain_dim);
    *rotary = clv_rope(graph, part(graph, q, o->plain_dim, o->plain_dim + o->rotary_dim), o->offset, &o->rope);
}

/* [B,S,P+R], rows as in a tensor that is split by heads. */
static clv_value latents(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                         const clv_latent_attention_options *o, const latent_sizes *s)
{
    const clv_value both = down(graph, x, rules, "kv_down.weight", s->latent + s->rotary,
                                o->bias ? "kv_down.bias" : NULL, o->init, "the latent of keys and values");
    const clv_value c = latent_norm(graph, part(graph, both, 0, s->latent), rules, "kv_norm.weight", o->eps);
    clv_value key = part(graph, both, s->latent, s->latent + s->rotary);
    key = clv_reshape(graph, key, 4, (int64_t[]){s->batch, s->rows, 1, s->rotary});
    key = clv_rope(graph, key, o->offset, &o->rope);
    key = o->rotary_scale != 1 ? clv_scale(graph, key, o->rotary_scale) : key;
    key = clv_reshape(graph, key, 3, (int64_t[]){s->batch, s->rows, s->rotary});
    const clv_value parts[] = {key, c};
    return clv_nn_enter_rows(graph, clv_concat(graph, parts, 2, 2), rules, (clv_logical_axis[]){CLV_HEADS, CLV_UNNAMED},
                             "the latent of keys and values");
}

/* The cache with the rows written to it. */
static clv_cache update_cache(clv_graph *graph, clv_value rows, const clv_axis_rules *rules,
                              const clv_latent_attention_options *o, const latent_sizes *s)
{
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_CACHE_SEQ, CLV_UNNAMED, CLV_UNNAMED};
    rows = clv_reshape(graph, rows, 4, (int64_t[]){s->batch, s->rows, 1, s->latent + s->rotary});
    return clv_nn_write_cache(graph, rows, names, o->offset, o->context, rules, o->heads, o->heads);
}

/* Whether attention to latents takes fewer multiplications than making keys and values of all of them. */
static bool absorbs(const latent_sizes *s)
{
    const double up = (double)(s->latent * (s->plain + s->value)), pairs = (double)s->rows * (double)s->keys;
    if (s->latent + s->rotary > CLV_ATTENTION_MAX_DIM)
        return false;
    const double absorbed = 2 * (double)s->rows * up + pairs * (double)(2 * s->latent + s->rotary);
    return absorbed < (double)s->keys * up + pairs * (double)(s->plain + s->rotary + s->value);
}

static clv_value joined_heads(clv_graph *graph, const clv_axis_rules *rules, clv_value first, clv_value second)
{
    const clv_value parts[] = {first, second};
    return clv_nn_pin_heads(graph, clv_concat(graph, parts, 2, 3), rules, 2, CLV_HEADS);
}

/* held [B,S,P+R]: of rows, or (cache not NULL) of all of the cache. */
static clv_value expanded(clv_graph *graph, clv_value rotary, clv_value plain, clv_value held,
                          const clv_axis_rules *rules, const clv_stored_weight *weight, const clv_cache *cache,
                          const clv_attention_options *how, const latent_sizes *s)
{
    const int64_t shape[] = {clv_graph_type(graph, held).shape[0], s->keys, s->heads, s->rotary};
    clv_value key =
        clv_reshape(graph, part(graph, held, 0, s->rotary), 4, (int64_t[]){shape[0], shape[1], 1, shape[3]});
    key = clv_nn_pin_heads(graph, clv_broadcast(graph, key, shape), rules, 2, CLV_HEADS);
    const clv_value c = part(graph, held, s->rotary, s->rotary + s->latent);
    const clv_value kv = joined_heads(graph, rules, key, up(graph, c, rules, weight, cache, "the key/value tensor"));
    const clv_value q = joined_heads(graph, rules, rotary, plain);
    clv_attention_options options = *how;
    options.value_dim = s->value;
    return cache ? clv_nn_attend_to_cache(graph, cache, q, kv, &options) : clv_attention(graph, q, kv, &options);
}

static clv_value absorbed(clv_graph *graph, clv_value rotary, clv_value plain, const clv_cache *cache,
                          const clv_axis_rules *rules, clv_value weight, const clv_attention_options *how,
                          const latent_sizes *s)
{
    const int64_t zeros[4] = {0}, behind[4] = {0, 0, 0, s->value};
    clv_value q = clv_einsum(graph, "bshx,rhx->bshr", clv_pad(graph, plain, zeros, behind), weight);
    q = joined_heads(graph, rules, rotary, clv_nn_pin_heads(graph, q, rules, 2, CLV_HEADS));
    clv_attention_options options = *how;
    options.value_dim = s->latent;
    clv_value y = clv_nn_attend_to_cache(graph, cache, q, cache->rows, &options);
    y = clv_nn_pin_heads(graph, y, rules, 2, CLV_HEADS);
    y = clv_nn_pin_heads(graph, clv_einsum(graph, "bshr,rhx->bshx", y, weight), rules, 2, CLV_HEADS);
    return part(graph, y, s->plain, s->plain + s->value);
}

static clv_value attend(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                        const clv_latent_attention_options *o, latent_sizes *s)
{
    const clv_attention_options how = {.size = sizeof how,
                                       .causal = true,
                                       .scale = o->scale,
                                       .mask = o->mask,
                                       .offset = CLV_NONE,
                                       .dropout = o->dropout,
                                       .dropout_key = o->dropout_key,
                                       .dropout_step = o->dropout_step};
    clv_value rotary, plain, held = latents(graph, x, rules, o, s);
    queries(graph, x, rules, o, &rotary, &plain);
    const clv_stored_weight weight = up_weight(graph, rules, "kv.weight", clv_graph_type(graph, x).dtype, s->latent,
                                               s->heads, s->plain + s->value, o->init);
    if (!o->context)
        return expanded(graph, rotary, plain, held, rules, &weight, NULL, &how, s);
    const clv_cache cache = update_cache(graph, held, rules, o, s);
    s->keys = cache.positions;
    if (clv_valid(weight.weight) && !graph->adapters && absorbs(s))
        return absorbed(graph, rotary, plain, &cache, rules, weight.weight, &how, s);
    held = clv_reshape(graph, cache.rows, 3, (int64_t[]){cache.parts * s->batch, s->keys, s->rotary + s->latent});
    return expanded(graph, rotary, plain, held, rules, &weight, &cache, &how, s);
}

static bool check(clv_graph *graph, const clv_latent_attention_options *o, const clv_type *x)
{
    if (x->rank != 3)
        clv_graph_fail(graph, CLV_ESHAPE, "%slatent attention takes [B,S,M], not %d dimensions", graph->scope, x->rank);
    else if (o->heads < 1 || o->kv_rank < 1 || o->plain_dim < 1 || o->rotary_dim < 1 || o->value_dim < 1 ||
             o->q_rank < 0)
        clv_graph_fail(graph, CLV_EINVAL,
                       "%slatent attention: %lld heads of %lld and %lld rotated elements, values of %lld, latents of "
                       "%lld and %lld; valid: 1 and above, 0 and above for the last",
                       graph->scope, (long long)o->heads, (long long)o->plain_dim, (long long)o->rotary_dim,
                       (long long)o->value_dim, (long long)o->kv_rank, (long long)o->q_rank);
    return clv_graph_ok(graph);
}

clv_value clv_parallel_latent_attention(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                        const clv_latent_attention_options *given)
{
    static const clv_logical_axis names[] = {CLV_HEADS, CLV_HEAD_DIM, CLV_EMBED_KERNEL};
    clv_latent_attention_options o;
    if (!clv_graph_require(graph, given != NULL, __func__, "options") ||
        !clv_graph_options_copy_in(graph, &o, sizeof o, sizeof o, given, __func__))
        return CLV_NONE;
    const clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || !check(graph, &o, &type))
        return CLV_NONE;
    o.eps = o.eps > 0 ? o.eps : 1e-6;
    o.rotary_scale = o.rotary_scale != 0 ? o.rotary_scale : 1;
    o.scale = o.scale != 0 ? o.scale : 1 / sqrt((double)(o.plain_dim + o.rotary_dim));
    latent_sizes s = {.batch = type.shape[0],
                      .rows = type.shape[1],
                      .width = type.shape[2],
                      .keys = type.shape[1],
                      .heads = o.heads,
                      .latent = o.kv_rank,
                      .plain = o.plain_dim,
                      .rotary = o.rotary_dim,
                      .value = o.value_dim};
    const clv_value y = clv_nn_pin_heads(graph, attend(graph, x, rules, &o, &s), rules, 2, CLV_HEADS);
    const int64_t shape[] = {o.heads, o.value_dim, s.width};
    const clv_weight_spec spec = {"o.weight", type.dtype, 3, 2, shape, names, NULL, o.output_init, 0};
    const clv_stored_weight weight = clv_nn_stored_weight(graph, rules, &spec);
    clv_value out = clv_nn_stored_weight_product(graph, y, rules, &weight, "bs", "hd", "hdm", "m");
    out = clv_nn_leave_parallel_region(graph, out, rules);
    if (!o.bias)
        return out;
    return clv_nn_add_bias(graph, out, rules, "o.bias", 1, shape + 2, (clv_logical_axis[]){CLV_EMBED}, NULL);
}
