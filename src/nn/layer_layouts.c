/* layer_layouts.c - layouts of layers' weights and activations; entry to and exit from tensor-parallel regions. */
#include "nn/layer_layouts.h"

#include <stdio.h>
#include <string.h>

#include "tensor/gcd.h"
#include "graph/graph.h"
#include "nn/stored_weight.h"
#include "tensor/quant_block.h"

clv_axis_rules clv_graph_axis_rules(clv_graph *graph, const char *preset)
{
    clv_axis_rules rules = {0};
    if (clv_graph_ok(graph))
        clv_axis_rules_preset(&rules, preset, &graph->mesh, &graph->error);
    return rules;
}

const char *clv_nn_parameter_name(clv_graph *graph, const char *name, const char *part)
{
    const char *full = clv_arena_format(graph->arena, "%s.%s", name, part);
    if (!full)
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name of a parameter");
    return full ? full : name;
}

/* Replaces the split of dimension d. */
static void set_dim(clv_graph *graph, clv_layout *layout, int d, const clv_subaxis *axes, int n, int64_t alignment)
{
    if (clv_graph_ok(graph))
        clv_layout_set_dim(layout, &graph->mesh, d, axes, n, n > 0 ? alignment : 1, &graph->error);
}

void clv_nn_align_dim(clv_graph *graph, clv_layout *layout, int d, int64_t alignment)
{
    const clv_subaxis *axes;
    clv_subaxis copy[CLV_MAX_SUBAXES];
    int n = clv_layout_axes(&axes, layout, d);
    memcpy(copy, axes, (size_t)n * sizeof *copy);
    set_dim(graph, layout, d, copy, n, alignment);
}

/* Splits MLP dimensions at quantization blocks, in all tensors alike, where quantized products sum over them. */
static void align_ffn_to_quant_blocks(clv_graph *graph, clv_layout *layout, const clv_logical_axis *names)
{
    if (!graph->quant || !graph->quant->ffn_split_at_blocks)
        return;
    for (int d = 0; names && d < layout->rank; d++)
        if (clv_logical_axis_equal(names[d], CLV_MLP) && layout->alignment[d] == 1) {
            clv_nn_align_dim(graph, layout, d, CLV_QUANT_BLOCK);
        }
}

clv_layout clv_named_layout(clv_graph *graph, const clv_axis_rules *rules, int rank, const clv_logical_axis *names)
{
    clv_layout layout = clv_layout_replicated(rank);
    if (!clv_graph_require(graph, names || !rules, __func__, "names") ||
        clv_axis_rules_layout(&layout, rules, &graph->mesh, rank, names, &graph->error) != CLV_OK)
        return layout;
    for (int d = 0; names && d < rank; d++)
        if (names[d])
            clv_graph_record_logical_axis(graph, names[d]);
    align_ffn_to_quant_blocks(graph, &layout, names);
    for (int r = 0; rules && r < rules->n; r++)
        if (!clv_logical_axis_is_builtin(rules->rule[r].name))
            clv_graph_record_axis_rule(graph, rules->name, r, rules->rule[r].name);
    return layout;
}

/* Copies the split of a dimension. */
static void copy_dim(clv_graph *graph, clv_layout *to, int d, const clv_layout *from, int from_d)
{
    const clv_subaxis *axes;
    int n = clv_layout_axes(&axes, from, from_d);
    set_dim(graph, to, d, axes, n, from->alignment[from_d]);
}

/* Merges dimensions 0 and 1, batch and sequence, into one that is split by the axes of both. */
static clv_layout merge_rows(clv_graph *graph, const clv_layout *from)
{
    clv_layout layout = clv_layout_replicated(from->rank - 1);
    const clv_subaxis *batch, *seq;
    clv_subaxis both[CLV_MAX_SUBAXES];
    int n = clv_layout_axes(&batch, from, 0), n_seq = clv_layout_axes(&seq, from, 1);
    memcpy(both, batch, (size_t)n * sizeof *both);
    memcpy(both + n, seq, (size_t)n_seq * sizeof *both);
    set_dim(graph, &layout, 0, both, n + n_seq, 1);
    for (int d = 1; d < layout.rank; d++)
        copy_dim(graph, &layout, d, from, d + 1);
    return layout;
}

clv_layout clv_nn_activation_layout(clv_graph *graph, const clv_axis_rules *rules, int rows, int n,
                                    const clv_logical_axis *names)
{
    clv_logical_axis all[CLV_MAX_RANK + 1] = {CLV_UNNAMED};
    int leading = rows == 1 ? 2 : rows;
    if (leading > 0) {
        all[leading - 1] = CLV_SEQ;
        all[0] = CLV_BATCH;
    }
    for (int i = 0; i < n; i++)
        all[leading + i] = names[i];
    clv_layout layout = clv_named_layout(graph, rules, leading + n, all);
    return rows == 1 ? merge_rows(graph, &layout) : layout;
}

clv_layout clv_residual_layout(clv_graph *graph, const clv_axis_rules *rules, int rank)
{
    clv_logical_axis width = CLV_EMBED;
    return rank < 1 ? clv_layout_replicated(rank) : clv_nn_activation_layout(graph, rules, rank - 1, 1, &width);
}

/* ---- heads ---- */

void clv_nn_shard_query_heads(clv_graph *graph, clv_layout *layout, int d, int64_t heads, int64_t kv_heads)
{
    clv_nn_align_dim(graph, layout, d, clv_layout_block_count(layout, d) <= kv_heads ? heads / kv_heads : 1);
}

void clv_nn_shard_kv_heads(clv_graph *graph, clv_layout *layout, int d, int64_t heads, int64_t kv_heads)
{
    const clv_subaxis *axes;
    int n = clv_layout_axes(&axes, layout, d), n_sub = 0;
    clv_subaxis sub[CLV_MAX_SUBAXES];
    if (heads == kv_heads || clv_layout_block_count(layout, d) <= kv_heads)
        return;
    for (int64_t left = kv_heads; n_sub < n; n_sub++) {
        sub[n_sub] = axes[n_sub];
        sub[n_sub].size = (int32_t)clv_gcd(axes[n_sub].size, left);
        left /= sub[n_sub].size;
        if (sub[n_sub].size < axes[n_sub].size) {
            n_sub++;
            break;
        }
    }
    set_dim(graph, layout, d, sub, n_sub, 1);
}

void clv_nn_append_dim(clv_graph *graph, clv_nn_shape *to, int64_t extent, clv_logical_axis name,
                       const clv_layout *from, int d, int64_t divisor)
{
    const clv_subaxis *axes;
    int n = from ? clv_layout_axes(&axes, from, d) : 0;
    to->shape[to->rank] = extent;
    to->names[to->rank] = name;
    if (n > 0)
        set_dim(graph, &to->layout, to->rank, axes, n,
                from->alignment[d] % divisor == 0 ? from->alignment[d] / divisor : 1);
    to->rank++;
}

/* ---- annotations ---- */

/* The name that explanations print for a dimension: "sequence", "KV heads"; NULL: none. */
static const char *dim_name(clv_logical_axis name)
{
    static const struct {
        clv_logical_axis axis;
        const char *name;
    } names[] = {{CLV_SEQ, "sequence"},
                 {CLV_CACHE_SEQ, "cached positions"},
                 {CLV_EMBED, "width"},
                 {CLV_EMBED_KERNEL, "width"},
                 {CLV_MLP, "ffn"},
                 {CLV_KV_HEADS, "KV heads"},
                 {CLV_HEAD_DIM, "head size"},
                 {CLV_VOCAB, "vocabulary"},
                 {CLV_EXPERT, "experts"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (clv_logical_axis_equal(name, names[i].axis))
            return names[i].name;
    return name;
}

void clv_nn_annotate(clv_graph *graph, clv_value value, const clv_axis_rules *rules, const char *what,
                     const clv_logical_axis *names)
{
    clv_value_annotation origin = {.what = what, .rules = rules && rules->name[0] ? rules->name : NULL};
    clv_type type = clv_graph_type(graph, value);
    const char *pair = "keys and values"; /* an unnamed dimension of size 2 holds these, or gate and up */
    for (int d = 0; d < type.rank; d++)
        pair = clv_logical_axis_equal(names[d], CLV_MLP) ? "gate and up" : pair;
    for (int d = 0; d < type.rank; d++)
        origin.dim[d] = !names[d] && type.shape[d] == 2 ? pair : dim_name(names[d]);
    clv_graph_annotate(graph, value, &origin);
}

void clv_nn_annotate_activation(clv_graph *graph, clv_value value, const clv_axis_rules *rules, const char *what, int n,
                                const clv_logical_axis *names)
{
    clv_logical_axis all[CLV_MAX_RANK] = {CLV_UNNAMED};
    int rows = clv_graph_type(graph, value).rank - n;
    if (rows > 1)
        all[rows - 1] = CLV_SEQ;
    if (rows > 0)
        all[0] = CLV_BATCH;
    for (int i = 0; i < n && rows >= 0; i++)
        all[rows + i] = names[i];
    clv_nn_annotate(graph, value, rules, what, all);
}

clv_value clv_residual_input(clv_graph *graph, const char *name, clv_dtype dtype, int rank, const int64_t *shape,
                             const clv_axis_rules *rules)
{
    if (!clv_graph_require(graph, name && shape && rank >= 1, __func__, "a name and a shape of 1 dimension or more"))
        return CLV_NONE;
    clv_layout layout = clv_residual_layout(graph, rules, rank);
    clv_value input = clv_input(graph, name, dtype, rank, shape, &layout);
    if (clv_valid(input))
        clv_nn_annotate_activation(graph, input, rules, NULL, 1, (clv_logical_axis[]){CLV_EMBED});
    return input;
}

clv_value clv_nn_constrain(clv_graph *graph, clv_value x, const clv_layout *layout, const clv_axis_rules *rules,
                           const char *what, int n, const clv_logical_axis *names)
{
    clv_value stated = clv_constrain(graph, x, layout);
    clv_nn_annotate_activation(graph, stated, rules, what, n, names);
    return stated;
}

/* ---- weights ---- */

bool clv_nn_is_tensor_parallel_axis(clv_logical_axis name)
{
    return name && (!clv_logical_axis_is_builtin(name) || clv_logical_axis_equal(name, CLV_MLP) ||
                    clv_logical_axis_equal(name, CLV_HEADS) || clv_logical_axis_equal(name, CLV_KV_HEADS) ||
                    clv_logical_axis_equal(name, CLV_VOCAB));
}

void clv_nn_keep_stationary(clv_graph *graph, clv_value state, const clv_layout *layout, const clv_logical_axis *names)
{
    for (int d = 0; d < layout->rank; d++) {
        const clv_subaxis *axes;
        int n = clv_nn_is_tensor_parallel_axis(names[d]) ? clv_layout_axes(&axes, layout, d) : 0;
        for (int i = 0; i < n; i++)
            clv_keep_stationary(graph, state, graph->mesh.axis[axes[i].axis].name);
    }
}

clv_value clv_nn_pin_heads(clv_graph *graph, clv_value x, const clv_axis_rules *rules, int d, clv_logical_axis name)
{
    clv_logical_axis names[CLV_MAX_RANK] = {CLV_UNNAMED};
    names[d] = name;
    clv_layout layout = clv_named_layout(graph, rules, clv_graph_type(graph, x).rank, names);
    clv_nn_keep_stationary(graph, x, &layout, names);
    return x;
}

clv_value clv_nn_parameter(clv_graph *graph, const clv_axis_rules *rules, const char *name, clv_dtype dtype, int rank,
                           const int64_t *shape, const clv_logical_axis *names, const clv_layout *layout, clv_init init)
{
    clv_layout by_name = clv_named_layout(graph, rules, rank, names);
    clv_value made = clv_state(graph, name, dtype, rank, shape, layout ? layout : &by_name, init);
    clv_nn_annotate(graph, made, rules, NULL, names);
    return made;
}

clv_value clv_nn_weight(clv_graph *graph, const clv_axis_rules *rules, const char *name, clv_dtype dtype, int rank,
                        const int64_t *shape, const clv_logical_axis *names, const clv_layout *layout, clv_init init)
{
    clv_layout by_name = clv_named_layout(graph, rules, rank, names);
    clv_value weight = clv_nn_parameter(graph, rules, name, dtype, rank, shape, names, layout, init);
    clv_nn_keep_stationary(graph, weight, &by_name, names);
    return weight;
}

clv_value clv_nn_add_bias(clv_graph *graph, clv_value y, const clv_axis_rules *rules, const char *name, int rank,
                          const int64_t *shape, const clv_logical_axis *names, const clv_layout *layout)
{
    const clv_init zeros = {CLV_INIT_ZEROS, 0};
    clv_dtype dtype = clv_graph_type(graph, y).dtype;
    return clv_add(graph, y, clv_nn_parameter(graph, rules, name, dtype, rank, shape, names, layout, zeros));
}

/* ---- activations ---- */

/* Whether features and the weight's contracted dimension are split alike: the product then contracts in place, and its
 * result is a partial sum. */
static bool is_split_like_weight(clv_graph *graph, const clv_axis_rules *rules, clv_logical_axis out,
                                 const clv_layout *features, int d)
{
    clv_layout kernel = clv_named_layout(graph, rules, 2, (clv_logical_axis[]){CLV_EMBED_KERNEL, out});
    const clv_subaxis *a, *b;
    int n = clv_layout_axes(&a, features, d), n_kernel = clv_layout_axes(&b, &kernel, 0);
    return n > 0 && n == n_kernel && memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

clv_value clv_nn_enter_parallel_region(clv_graph *graph, clv_value x, const clv_axis_rules *rules, clv_logical_axis out)
{
    int last = clv_graph_type(graph, x).rank - 1;
    if (last < 0)
        return x;
    clv_layout inside = clv_nn_activation_layout(graph, rules, last, 1, &out);
    clv_layout outside = clv_residual_layout(graph, rules, last + 1);
    set_dim(graph, &inside, last, NULL, 0, 1);
    if (is_split_like_weight(graph, rules, out, &outside, last)) {
        const clv_subaxis *axes;
        int n = clv_layout_axes(&axes, &outside, last), free_axes = 0;
        while (free_axes < n && !clv_layout_uses_subaxis(&inside, axes[free_axes]))
            free_axes++;
        if (free_axes == n)
            copy_dim(graph, &inside, last, &outside, last);
    }
    const char *what = clv_logical_axis_equal(out, CLV_HEADS)   ? "the input of attention"
                       : clv_logical_axis_equal(out, CLV_MLP)   ? "the input of the MLP"
                       : clv_logical_axis_equal(out, CLV_VOCAB) ? "the input of the logits"
                                                                : "the input of the product";
    return clv_nn_constrain(graph, x, &inside, rules, what, 1, (clv_logical_axis[]){CLV_EMBED});
}

clv_value clv_nn_enter_experts(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *what)
{
    static const clv_logical_axis names[] = {CLV_EXPERT, CLV_MLP};
    return clv_nn_enter_rows(graph, x, rules, names, what);
}

clv_value clv_nn_enter_rows(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_logical_axis names[2],
                            const char *what)
{
    const int rows = clv_graph_type(graph, x).rank - 1;
    if (rows < 0)
        return x;
    clv_layout split = clv_nn_activation_layout(graph, rules, rows, 2, names), inside = clv_layout_replicated(rows + 1);
    for (int d = 0; d < rows; d++)
        copy_dim(graph, &inside, d, &split, d);
    return clv_nn_constrain(graph, x, &inside, rules, what, 1, (clv_logical_axis[]){CLV_UNNAMED});
}

clv_value clv_nn_leave_parallel_region(clv_graph *graph, clv_value x, const clv_axis_rules *rules)
{
    int rank = clv_graph_type(graph, x).rank;
    clv_layout layout = clv_residual_layout(graph, rules, rank);
    return clv_nn_constrain(graph, x, &layout, rules, "the residual stream", rank > 0, (clv_logical_axis[]){CLV_EMBED});
}

clv_value clv_nn_product(clv_graph *graph, clv_value x, clv_value weight, const char *in, const char *kernel,
                         const char *out)
{
    int rows = clv_graph_type(graph, x).rank - (int)strlen(in);
    char leading[CLV_MAX_RANK + 1] = "", subscripts[64];
    if (rows < 0)
        return clv_graph_fail(graph, CLV_ESHAPE, "%slinear: the input has fewer dimensions than its weight needs",
                              graph->scope);
    for (int d = 0; d < rows; d++)
        leading[d] = (char)('A' + d);
    snprintf(subscripts, sizeof subscripts, "%s%s,%s->%s%s", leading, in, kernel, leading, out);
    return clv_einsum(graph, subscripts, x, weight);
}
