/** @file nn.h - transformer layers, named as in Megatron-LM. Layers contain no collectives: each adds ops to the graph
 * and states the layouts of its weights and activations; the compiler inserts the collectives.
 *
 * Megatron's conjugate operators appear by themselves: f (identity forward, all-reduce backward) and f* (all-reduce
 * forward, identity backward) at the borders of a tensor-parallel region; with sequence parallelism g (all-gather
 * forward, reduce-scatter backward) and g* (reduce-scatter forward, all-gather backward).
 *
 * Every layer takes logical axis rules (rules.h) that say how it is split; NULL: not split. Any number of ranks and any
 * size is allowed: parts may be uneven. Activations are [B,S,M], or have other leading dimensions ([N,M], [M]): the
 * first is the batch, the last before M is the sequence. Weights have the dtype of the activations. Parameters are
 * state, and their names begin with the graph's scope: push a scope for each layer (clv_graph_push_scope).
 *
 * Errors are recorded in the graph, as by every builder (graph.h). Only one thread may build a graph.
 */
#ifndef CLEAVE_NN_H
#define CLEAVE_NN_H

#include "cleave/graph.h"
#include "cleave/rules.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Returns the rules of a preset for the graph's mesh (clv_axis_rules_preset); records errors in the graph. */
CLV_API clv_axis_rules clv_graph_axis_rules(clv_graph *graph, const char *preset);
/** Returns the layout of a tensor whose dimensions have these names; rules NULL: replicated. */
CLV_API clv_layout clv_named_layout(clv_graph *graph, const clv_axis_rules *rules, int rank,
                                    const clv_logical_axis *names);
/** Returns the layout of activations between layers: [batch, ..., seq, embed]. */
CLV_API clv_layout clv_residual_layout(clv_graph *graph, const clv_axis_rules *rules, int rank);

/** Adds an input [batch, ..., seq, embed] in clv_residual_layout, ready for a layer. */
CLV_API clv_value clv_residual_input(clv_graph *graph, const char *name, clv_dtype dtype, int rank,
                                     const int64_t *shape, const clv_axis_rules *rules);

/** Zero-initialised: no bias, weights of zeros. */
typedef struct clv_linear_options {
    size_t size;               /**< sizeof the struct, or 0 */
    const char *name;          /**< name of the state "<name>.weight" and "<name>.bias"; NULL: "linear" */
    bool bias;                 /**< adds a bias, initialised to 0 */
    bool gather_output;        /**< column-parallel: the output is gathered, whole on every rank */
    bool input_is_parallel;    /**< row-parallel: the input is already split over features */
    clv_init init;             /**< initial weights. Set it: zero-initialised, the weights are 0 */
    clv_logical_axis features; /**< logical axis of the split features; CLV_UNNAMED: CLV_MLP */
} clv_linear_options;

/** y = x W + b, with W [M,F] = [embed_kernel, mlp] split by columns (F). x enters through f, or through g with sequence
 *  parallelism. y [...,F] is split over F; with gather_output it is whole. */
CLV_API clv_value clv_column_parallel_linear(clv_graph *graph, clv_value x, int64_t features,
                                             const clv_axis_rules *rules, const clv_linear_options *options);

/** y = x W + b, with W [F,M] = [mlp, embed_kernel] split by rows (F). The partial sums are all-reduced (f*) or, with
 *  sequence parallelism, reduce-scattered over S (g*). The bias is added once, after the reduction. */
CLV_API clv_value clv_row_parallel_linear(clv_graph *graph, clv_value x, int64_t features, const clv_axis_rules *rules,
                                          const clv_linear_options *options);

/** Looks up ids [...] in a table [V,M] = [vocab, embed_kernel] split over V -> [...,M] in the residual layout. State
 *  "<name>.weight". */
CLV_API clv_value clv_vocab_parallel_embedding(clv_graph *graph, clv_value ids, int64_t vocabulary, int64_t width,
                                               clv_dtype dtype, const clv_axis_rules *rules, const char *name,
                                               clv_init init);

/** x [B,S,M] + table[offset + s], with a table [positions,M] = [_, embed_kernel]. State "<name>.weight".
 *  @param offset  i32 [] or [B]: position of the first row; CLV_NONE: 0 */
CLV_API clv_value clv_learned_positions(clv_graph *graph, clv_value x, clv_value offset, int64_t positions,
                                        const clv_axis_rules *rules, const char *name, clv_init init);

/** Logits of a model with tied embeddings: x [...,M] times the transposed embedding table [V,M] -> [...,V], split over
 *  V. */
CLV_API clv_value clv_vocab_parallel_logits(clv_graph *graph, clv_value x, clv_value table,
                                            const clv_axis_rules *rules);

/** Softmax cross-entropy, averaged over the labels that are not `ignored`. logits [...,V] may be split over V. Returns
 *  an f32 scalar (f64 for f64 logits). */
CLV_API clv_value clv_vocab_parallel_cross_entropy(clv_graph *graph, clv_value logits, clv_value labels,
                                                   int64_t ignored);

/** RMSNorm over the last dimension. State "<name>.weight", initialised to 1. */
CLV_API clv_value clv_parallel_rms_norm(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name,
                                        double eps);
/** LayerNorm over the last dimension. State "<name>.weight", initialised to 1, and with bias "<name>.bias". */
CLV_API clv_value clv_parallel_layer_norm(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name,
                                          double eps, bool bias);

/** ffn and activation are required; the rest may be 0. */
typedef struct clv_mlp_options {
    int64_t ffn;                /**< F, the feed-forward width */
    clv_unary_kind activation;  /**< any; gated: a kind of clv_gated */
    bool gated;                 /**< down(act(gate(x)) * up(x)), with "gate_up.weight" [M,2,F] */
    bool bias;                  /**< adds "up.bias" [F] (gated: "gate_up.bias" [2,F]) and "down.bias" [M] */
    clv_init init, output_init; /**< initial up (and gate) weights, and down weights */
    int64_t reserved[4];        /**< must be 0; for later options */
} clv_mlp_options;
/** MLP, x [...,M] -> [...,M]: column-parallel "up" (or "gate_up"), activation, row-parallel "down". */
CLV_API clv_value clv_parallel_mlp(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                   const clv_mlp_options *options);

/** experts, top_k, ffn and activation are required; the rest may be 0. */
typedef struct clv_experts_options {
    size_t size;                /**< sizeof the struct, or 0 */
    int64_t experts, top_k;     /**< E, and how many of them a row chooses, 1 to E */
    int64_t ffn;                /**< F, the width of an expert */
    clv_unary_kind activation;  /**< a kind of clv_gated */
    bool normalised;            /**< weights of the chosen experts add up to 1 (clv_router_options) */
    int64_t shared_ffn;         /**< width of an expert that every row has ("shared.gate_up.weight", ...); 0: none */
    bool shared_gate;           /**< it is scaled by sigmoid(x "shared_gate.weight" [M,1]) */
    clv_init init, output_init; /**< initial router, gate and up weights, and down weights */
    clv_value mask;         /**< u8 [...], of rows: 0 takes no place of an expert (with a capacity); CLV_NONE: all do */
    double capacity_factor; /**< f: an expert has places for ceil(f K S / E) rows of a sequence, and others are
                                     dropped (Megatron's --moe-expert-capacity-factor); 0: no limit, none is dropped */
    bool sigmoid;           /**< scores, and logits in f32, as DeepSeek-V3's router: clv_router_options */
    bool balance_bias;      /**< adds "router.bias" f32 [E] (f64 for f64), which only chooses; no gradient trains it */
    double weight_scale;    /**< factor of the weights of the chosen experts; 0: 1 */
    int64_t groups, top_groups; /**< clv_router_options */
} clv_experts_options;
/** Mixture of experts, x [...,M] -> [...,M]: the gated MLPs of the experts that a router chooses for each row. State
 *  "router.weight" [M,E] = [embed_kernel, _], "experts.gate_up.weight" [E,M,2,F] = [expert, embed_kernel, _, mlp] and
 *  "experts.down.weight" [E,F,M] = [expert, mlp, embed_kernel]. Rows are gathered over the axes of expert (and of mlp,
 *  with sequence parallelism), every rank adds what its experts contribute, and the sums are reduced; or rows are sent
 *  to the ranks of their experts alone, where that is faster (clv_compile_options.expert_rank_capacity_factor). With a
 *  capacity factor rows go to the places of their experts by an all-to-all over the axes of expert, or by an all-gather
 *  and a reduce-scatter, whichever is cheaper. */
CLV_EXPERIMENTAL clv_value clv_parallel_experts(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                                const clv_experts_options *options);

/** Load-balancing loss of n routers of E experts (Fedus et al. 2021, arXiv:2101.03961; transformers'
 *  load_balancing_loss_func): E * sum_e f[e] p[e], a scalar f32 (f64 for f64), where f[e] is the share of all rows that
 *  chose expert e, and p[e] the mean of the softmax of its logits. Even loads give top_k.
 *  @param logits, ids  [n] of each router: [...,E] and [...,top_k] (clv_router)
 *  @param mask         u8 [...], 1 for rows that count; CLV_NONE: all */
CLV_EXPERIMENTAL clv_value clv_load_balancing_loss(clv_graph *graph, const clv_value *logits, const clv_value *ids,
                                                   int n, clv_value mask);
/** z-loss of a router (Zoph et al. 2022, arXiv:2202.08906; Megatron-LM's moe_z_loss): the mean over rows of
 *  (log sum_e exp logits[e])^2, a scalar f32 (f64 for f64). */
CLV_EXPERIMENTAL clv_value clv_router_z_loss(clv_graph *graph, clv_value logits);

/** heads is required; the rest may be 0. */
typedef struct clv_self_attention_options {
    int64_t heads, kv_heads;    /**< kv_heads must divide heads; 0: equal to heads */
    int64_t head_dim;           /**< 0: M / heads, without remainder */
    bool bidirectional;         /**< false: causal */
    clv_rope_options rope;      /**< theta 0: no rotary embedding */
    int64_t window;             /**< > 0: a query sees its own position and the window - 1 before it; 0: all */
    bool bias;                  /**< adds "q.bias" and "kv.bias" */
    bool output_bias;           /**< adds "o.bias" */
    clv_value mask;             /**< u8 [B,S], with context [B,context]; 1 = attend; CLV_NONE: attend to all */
    int64_t context;            /**< > 0: keeps keys and values in a KV cache, state "cache" [B,context,2,K,D]; with
                                     its positions over P ranks [P B,ceil(context / P),2,K,D] */
    clv_value offset;           /**< with context: i32 [] or [B], position of the first row of x; else CLV_NONE */
    clv_init init, output_init; /**< initial q and kv weights, and o weights */
    double dropout;             /**< dropout probability of attention weights (clv_attention_options); 0: none */
    clv_key dropout_key;
    clv_value dropout_step; /**< i32 scalar, or CLV_NONE */
    double qk_norm;         /**< > 0: RMSNorm of each query and key head with this eps, before the rotary embedding;
                                 adds "q_norm.weight" and "k_norm.weight" [D] */
    int64_t reserved[4];    /**< must be 0; for later options */
} clv_self_attention_options;
/** Self-attention, x [B,S,M] -> [B,S,M]. State "q.weight" [M,H,D], "kv.weight" [M,2,K,D], "o.weight" [H,D,M]. Heads are
 *  split. If there are more ranks than KV heads, KV heads are split gcd(ranks, kv_heads) ways and replicated over the
 *  remaining ranks. */
CLV_API clv_value clv_parallel_attention(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                         const clv_self_attention_options *options);

/** heads, kv_rank, the dims and rope are required; the rest may be 0. */
typedef struct clv_latent_attention_options {
    size_t size;                /**< sizeof the struct, or 0 */
    int64_t heads;              /**< H */
    int64_t q_rank;             /**< width of the latent of queries; 0: queries are products of x */
    int64_t kv_rank;            /**< R, width of the latent of keys and values */
    int64_t plain_dim;          /**< N, elements of a query or key that are not rotated */
    int64_t rotary_dim;         /**< P, those that are, even; keys of all heads share them */
    int64_t value_dim;          /**< V, elements of a value */
    double eps;                 /**< of the norms of latents; 0: 1e-6 */
    clv_rope_options rope;      /**< of the P elements */
    double rotary_scale;        /**< factor of the rotated part of scores (YaRN's); 0: 1 */
    double scale;               /**< factor of scores; 0: 1 / sqrt(N + P) */
    bool bias;                  /**< adds "q_down.bias", "kv_down.bias" and "o.bias" */
    clv_value mask;             /**< u8 [B,S], with context [B,context]; 1 = attend; CLV_NONE: attend to all */
    int64_t context;            /**< > 0: keeps latents and rotated keys, state "cache" [B,context,1,P+R] */
    clv_value offset;           /**< with context: i32 [] or [B], position of the first row of x; else CLV_NONE */
    clv_init init, output_init; /**< initial weights, and o weights */
    double dropout;             /**< dropout probability of attention weights; 0: none */
    clv_key dropout_key;
    clv_value dropout_step; /**< i32 scalar, or CLV_NONE */
} clv_latent_attention_options;
/** Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434), causal, x [B,S,M] -> [B,S,M]. State
 *  "q_down.weight" [M,q_rank], "q_norm.weight", "q.weight" [q_rank or M,H,N+P], "kv_down.weight" [M,R+P],
 *  "kv_norm.weight" [R], "kv.weight" [R,H,N+V], "o.weight" [H,V,M]. Heads are split, latents are not. With a cache, few
 *  rows attend to the latents themselves, and for many rows keys and values are made of them, whichever multiplies
 *  less. */
CLV_EXPERIMENTAL clv_value clv_parallel_latent_attention(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                                         const clv_latent_attention_options *options);

/** Kind of transformer block: pre-norm or post-norm, kind of norm and MLP. */
typedef enum clv_block_form { CLV_BLOCK_LLAMA, CLV_BLOCK_GPT, CLV_BLOCK_BERT } clv_block_form;
/** Begin with clv_block_defaults. */
typedef struct clv_block_options {
    clv_block_form
        form;       /**< LLAMA: pre-RMSNorm, gated MLP; GPT: pre-LayerNorm, plain MLP; BERT: post-LayerNorm, plain */
    double eps;     /**< 0: 1e-5 */
    bool norm_bias; /**< GPT, BERT: LayerNorms have a bias */
    double dropout; /**< dropout probability after attention and after the MLP; 0: none */
    clv_key dropout_key;
    clv_value dropout_step; /**< i32 scalar, or CLV_NONE */
    clv_self_attention_options attention;
    clv_mlp_options mlp;
    const clv_experts_options *experts; /**< a mixture of experts in the place of the MLP; NULL: none */
    const clv_latent_attention_options *latent_attention; /**< in the place of `attention`; NULL: none */
    int64_t reserved[6];                                  /**< must be 0; for later options */
} clv_block_options;
/** Returns default options: normal(0.02) weights, eps 1e-5; LLAMA: rotary embedding, SiLU, no biases; GPT: tanh GELU;
 *  BERT: GELU, bidirectional; both with biases. */
CLV_API clv_block_options clv_block_defaults(clv_block_form form, int64_t heads, int64_t kv_heads, int64_t ffn);
/** Transformer block. LLAMA and GPT are pre-norm: x + attention(norm(x)), then x + mlp(norm(x)). BERT is post-norm:
 *  norm(x + attention(x)), then norm(x + mlp(x)). The names of its state begin with "attention." and "mlp."; its norms
 *  are "attention.norm.weight" and "mlp.norm.weight". */
CLV_API clv_value clv_transformer_block(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                        const clv_block_options *options);

#ifdef __cplusplus
}
#endif
#endif
