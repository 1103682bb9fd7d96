/* llama.c - Llama's graph (Touvron et al. 2023, arXiv:2302.13971; Hugging Face LlamaForCausalLM). */
#include "models/llama.h"

#include <math.h>
#include <string.h>

#include "graph/graph.h"

static clv_block_options block_of(const clv_llama_config *config, const clv_llama_build *build, clv_value offset)
{
    clv_block_options o = clv_block_defaults(CLV_BLOCK_LLAMA, config->heads, config->kv_heads, config->ffn);
    clv_init into_residual = {CLV_INIT_NORMAL, 0.02 / sqrt(2.0 * (double)config->layers)};
    o.eps = config->rms_eps;
    o.attention.head_dim = config->head_dim;
    o.attention.rope_theta = config->rope_theta;
    o.attention.context = build->context;
    o.attention.offset = offset;
    o.attention.output_init = o.mlp.output_init = into_residual;
    return o;
}

/* The last row of each sequence. */
static clv_value last_row(clv_graph *graph, clv_value x)
{
    clv_type type = clv_graph_type(graph, x);
    int64_t begin[3] = {0, type.shape[1] - 1, 0};
    return type.shape[1] > 1 ? clv_slice(graph, x, begin, type.shape) : x;
}

/* Logits split over the vocabulary; tied models multiply by the embedding's own table. */
static clv_value head(clv_graph *graph, clv_value x, clv_value table, const clv_llama_config *config,
                      const clv_axis_rules *rules)
{
    clv_linear_options linear = {.name = "lm_head", .init = {CLV_INIT_NORMAL, 0.02}, .features = CLV_VOCAB};
    return config->tie_word_embeddings ? clv_vocab_parallel_logits(graph, x, table, rules)
                                       : clv_column_parallel_linear(graph, x, config->vocab, rules, &linear);
}

/* ids, or labels: rows are not split over the sequence, as they are small. */
static clv_value token_input(clv_graph *graph, const char *name, const clv_llama_build *build)
{
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
    clv_layout layout = clv_named_layout(graph, &build->rules, 2, names);
    return clv_input(graph, name, CLV_I32, 2, (int64_t[]){build->batch, build->seq}, &layout);
}

clv_value clv_llama_forward(clv_graph *graph, const clv_llama_config *config, const clv_llama_build *build)
{
    clv_value ids = token_input(graph, "ids", build);
    clv_value offset = build->context ? clv_input(graph, "offset", CLV_I32, 0, NULL, NULL) : CLV_NONE;
    clv_value x = clv_vocab_parallel_embedding(graph, ids, config->vocab, config->hidden, build->dtype, &build->rules,
                                               "embed", (clv_init){CLV_INIT_NORMAL, 0.02});
    clv_value table;
    clv_parameters(graph, &table, 1);
    clv_block_options block = block_of(config, build, offset);
    for (int64_t layer = 0; layer < config->layers; layer++) {
        clv_graph_push(graph, "layers.%lld", (long long)layer);
        x = clv_transformer_block(graph, x, &build->rules, &block);
        clv_graph_pop(graph);
    }
    x = clv_parallel_rms_norm(graph, x, &build->rules, "final_norm", config->rms_eps);
    if (build->last_logits)
        x = last_row(graph, x);
    return head(graph, x, table, config, &build->rules);
}

void clv_llama_train_step(clv_graph *graph, const clv_llama_config *config, const clv_llama_build *build,
                          const clv_llama_train_options *options)
{
    clv_value logits = clv_llama_forward(graph, config, build);
    clv_value labels = token_input(graph, "labels", build);
    clv_value lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL);
    clv_value step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);
    clv_value loss = clv_vocab_parallel_cross_entropy(graph, logits, labels, -100);
    int n = clv_parameters(graph, NULL, 0);
    clv_value *parameters = clv_arena_alloc(graph->arena, (size_t)n + 1, sizeof *parameters);
    clv_value *gradients = clv_arena_alloc(graph->arena, (size_t)n + 1, sizeof *gradients);
    if (!parameters || !gradients) {
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for %d gradients", n);
        return;
    }
    clv_parameters(graph, parameters, n);
    clv_gradients(graph, loss, CLV_NONE, parameters, n, gradients);
    for (int i = 0; i < n; i++) {
        clv_adamw_options o = options->adamw;
        if (clv_graph_type(graph, parameters[i]).rank < 2)
            o.weight_decay = 0;
        clv_layout held = clv_value_layout(graph, parameters[i]), moments;
        clv_type type = clv_graph_type(graph, parameters[i]);
        if (clv_graph_ok(graph) &&
            clv_axis_rules_optimizer_layout(&moments, &build->rules, &graph->mesh, &held, type.shape, &graph->error) ==
                CLV_OK &&
            build->rules.n_optimizer > 0)
            o.state_layout = &moments;
        clv_adamw(graph, parameters[i], gradients[i], lr, step, &o);
    }
    clv_layout scalar = clv_layout_replicated(0);
    clv_output(graph, "loss", loss, &scalar);
}

void clv_llama_inference(clv_graph *graph, const clv_llama_config *config, const clv_llama_build *build)
{
    clv_value logits = clv_llama_forward(graph, config, build);
    clv_layout whole = clv_layout_replicated(3);
    clv_output(graph, "logits", logits, &whole);
}
