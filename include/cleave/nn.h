/** @file nn.h - layers under Megatron-LM's names. They hold no collectives: each builds ops and states the layouts of
 * its weights and activations, and the partitioner finds f, f*, g and g* from those.
 *
 * Every layer takes the rules (rules.h) that say how it is split; NULL: not at all. Any number of ranks, any size:
 * uneven parts are legal. Activations are [B,S,M] (or [N,M], or [M]: any leading dimensions; the batch is the first,
 * the sequence the last of them). Weights take the dtype of the activations. Parameters are state named by the graph's
 * scope: push a scope a layer (clv_graph_push_scope).
 *
 * A failure is recorded in the graph, as by every builder (graph.h); one thread builds a graph.
 */
#ifndef CLEAVE_NN_H
#define CLEAVE_NN_H

#include "cleave/graph.h"
#include "cleave/rules.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A preset's rules for the graph's mesh (clv_axis_rules_preset); a failure is recorded in the graph. */
CLV_API clv_axis_rules clv_graph_axis_rules(clv_graph *graph, const char *preset);
/** The layout of a tensor of this graph whose dimensions have these names; rules NULL: replicated. */
CLV_API clv_layout clv_named_layout(clv_graph *graph, const clv_axis_rules *rules, int rank,
                                    const clv_logical_axis *names);
/** The layout of activations between layers: [batch, ..., seq, embed]. */
CLV_API clv_layout clv_residual_layout(clv_graph *graph, const clv_axis_rules *rules, int rank);

/** An input [batch, ..., seq, embed] laid out so, as a layer takes it; a failure is recorded in the graph. */
CLV_API clv_value clv_residual_input(clv_graph *graph, const char *name, clv_dtype dtype, int rank,
                                     const int64_t *shape, const clv_axis_rules *rules);

/** Zero-initialised: no bias, weights of zeros. */
typedef struct clv_linear_options {
    size_t size;      /**< sizeof the struct; 0: as its first version had it */
    const char *name; /**< state "<name>.weight" and "<name>.bias"; NULL: "linear" */
    bool bias;
    bool gather_output;        /**< column-parallel: the output is whole on every rank */
    bool input_is_parallel;    /**< row-parallel: the input is split over features already */
    clv_init init;             /**< zero-initialised is zeros: state one */
    clv_logical_axis features; /**< the name of the split features: CLV_UNNAMED means CLV_HIDDEN */
} clv_linear_options;

/** y = x W + b, W [M,F] split by columns (F). Identity forward, all-reduce backward for x (f), or with sequence
 *  parallelism all-gather and reduce-scatter (g). W is [embed_kernel, hidden]. y [...,F] is split over F, or whole with
 *  gather_output. */
CLV_API clv_value clv_column_parallel_linear(clv_graph *graph, clv_value x, int64_t features,
                                             const clv_axis_rules *rules, const clv_linear_options *options);

/** y = x W + b, W [F,M] split by rows (F): partial sums, all-reduced (f*) or reduce-scattered over S (g*). The bias is
 *  added once, after the reduction. */
CLV_API clv_value clv_row_parallel_linear(clv_graph *graph, clv_value x, int64_t features, const clv_axis_rules *rules,
                                          const clv_linear_options *options);

/** Rows of a table [V,M], [vocab, embed_kernel], split over V, state "<name>.weight"; ids [...] -> [...,M] in the
 *  residual layout. */
CLV_API clv_value clv_vocab_parallel_embedding(clv_graph *graph, clv_value ids, int64_t vocabulary, int64_t width,
                                               clv_dtype dtype, const clv_axis_rules *rules, const char *name,
                                               clv_init init);

/** x [B,S,M] + table[offset + s], table [positions,M], [_, embed_kernel], state "<name>.weight". offset: i32 [] or [B],
 *  the position of the first row, or CLV_NONE: 0. */
CLV_API clv_value clv_learned_positions(clv_graph *graph, clv_value x, clv_value offset, int64_t positions,
                                        const clv_axis_rules *rules, const char *name, clv_init init);

/** Logits x [...,M] table' -> [...,V] of a model whose output projection is its embedding's table [V,M]; split over V.
 *  */
CLV_API clv_value clv_vocab_parallel_logits(clv_graph *graph, clv_value x, clv_value table,
                                            const clv_axis_rules *rules);

/** Mean over labels != ignored of the softmax cross-entropy; logits [...,V] may be split over V. Scalar f32 (f64). */
CLV_API clv_value clv_vocab_parallel_cross_entropy(clv_graph *graph, clv_value logits, clv_value labels,
                                                   int64_t ignored);

/** Norms with their parameters "<name>.weight" (ones) and, for clv_parallel_layer_norm with bias, "<name>.bias". */
CLV_API clv_value clv_parallel_rms_norm(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name,
                                        double eps);
/** See clv_parallel_rms_norm. */
CLV_API clv_value clv_parallel_layer_norm(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name,
                                          double eps, bool bias);

/** ffn is needed; the rest may be zeros. */
typedef struct clv_mlp_options {
    int64_t ffn;               /**< F */
    clv_unary_kind activation; /**< CLV_GELU, CLV_GELU_TANH, CLV_SILU, CLV_RELU, CLV_TANH */
    bool gated;                /**< down(act(gate(x)) * up(x)), state "gate_up" [M,2,F]; not with CLV_TANH */
    bool bias;                 /**< on both products: state "up.bias" [F] ("gate_up.bias" [2,F]), "down.bias" [M] */
    clv_init init, output_init;
    int64_t reserved[4]; /**< zeros: the struct keeps its size */
} clv_mlp_options;
/** x [...,M] -> [...,M]: column-parallel "up" (or "gate_up"), activation, row-parallel "down". */
CLV_API clv_value clv_parallel_mlp(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                   const clv_mlp_options *options);

/** heads is needed; the rest may be zeros. */
typedef struct clv_self_attention_options {
    int64_t heads, kv_heads; /**< kv_heads 0: heads; it divides heads */
    int64_t head_dim;        /**< 0: M / heads, which must divide */
    bool bidirectional;      /**< not causal */
    clv_rope_options rope;   /**< theta 0: no rotary embedding */
    int64_t window;          /**< > 0: a query sees the keys at its own place and the window - 1 before it; 0: all */
    bool bias;               /**< on q and kv */
    bool output_bias;        /**< on o */
    clv_value mask;          /**< u8 [B,S], 1 = attend; CLV_NONE: none */
    int64_t context;         /**< > 0: keys and values are kept in state "cache" [B,context,2,K,D] */
    clv_value offset;        /**< with context: i32 [] or [B], the position of the first row of x; else CLV_NONE */
    clv_init init, output_init;
    double dropout; /**< of the softmax's values, as in clv_attention_options; 0: none */
    clv_key dropout_key;
    clv_value dropout_step; /**< i32 scalar, or CLV_NONE */
    int64_t reserved[5];    /**< zeros: the struct keeps its size */
} clv_self_attention_options;
/** x [B,S,M] -> [B,S,M]. State "q.weight" [M,H,D], "kv.weight" [M,2,K,D], "o.weight" [H,D,M]. Heads are split; with
 *  more ranks than KV heads the KV heads are replicated over the rest (gcd(ranks, kv_heads) ways split). */
CLV_API clv_value clv_parallel_attention(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                         const clv_self_attention_options *options);

/** Where norms stand, and what the MLP is. */
typedef enum clv_block_form { CLV_BLOCK_LLAMA, CLV_BLOCK_GPT, CLV_BLOCK_BERT } clv_block_form;
/** Begin with clv_block_defaults. */
typedef struct clv_block_options {
    clv_block_form form; /**< LLAMA: RMSNorm, gated MLP; GPT: LayerNorm, plain MLP; BERT: the same, norms behind */
    double eps;          /**< 0: 1e-5 */
    bool norm_bias;      /**< GPT, BERT: LayerNorms have a bias */
    double dropout;      /**< after attention and MLP; 0: none */
    clv_key dropout_key;
    clv_value dropout_step; /**< i32 scalar, or CLV_NONE */
    clv_self_attention_options attention;
    clv_mlp_options mlp;
    int64_t reserved[8]; /**< zeros: the struct keeps its size */
} clv_block_options;
/** Defaults for a width: heads given, F = 4M (Llama: gated), normal(0.02) weights, eps 1e-5. */
CLV_API clv_block_options clv_block_defaults(clv_block_form form, int64_t heads, int64_t kv_heads, int64_t ffn);
/** Transformer block. LLAMA and GPT are pre-norm: x + attention(norm(x)), then x + mlp(norm(x)); BERT is post-norm:
 *  norm(x + attention(x)), then norm(x + mlp(x)), bidirectional by default. State "attention.norm.weight",
 *  "mlp.norm.weight", and those of its parts under "attention." and "mlp.". */
CLV_API clv_value clv_transformer_block(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                        const clv_block_options *options);

#ifdef __cplusplus
}
#endif
#endif
