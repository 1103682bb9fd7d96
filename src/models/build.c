/* build.c - graphs of models: what their families share, and what is made of them: training steps and inference. */
#include <math.h>
#include <string.h>

#include "graph/graph.h"
#include "models/family.h"
#include "nn/layouts.h"

static const clv_init weight_init = {CLV_INIT_NORMAL, 0.02};

/* ---- parts ---- */

clv_value clv_model_embedding(clv_graph *graph, const clv_model_config *model, const clv_model_build *build,
                              clv_value ids)
{
    return clv_vocab_parallel_embedding(graph, ids, model->vocab, model->hidden, build->dtype, &build->rules, "embed",
                                        weight_init);
}

/* Weights that add to the residual stream start smaller, by the root of their number (Radford et al. 2019). */
static clv_block_options block_of(const clv_model_config *model, const clv_model_build *build,
                                  const clv_model_inputs *in, clv_block_form form)
{
    clv_block_options o = clv_block_defaults(form, model->heads, model->kv_heads, model->ffn);
    clv_init into_residual = {CLV_INIT_NORMAL, 0.02 / sqrt(2.0 * (double)model->layers)};
    o.eps = model->norm_eps;
    o.attention.head_dim = model->head_dim;
    o.attention.bias = model->qkv_bias;
    o.attention.output_bias = model->output_bias;
    o.attention.rope = model->rope;
    o.attention.bidirectional = model->bidirectional;
    o.attention.mask = in->mask;
    o.attention.context = build->context;
    o.attention.offset = in->offset;
    o.mlp.activation = model->activation;
    o.mlp.bias = model->mlp_bias;
    o.attention.output_init = o.mlp.output_init = into_residual;
    return o;
}

clv_value clv_model_blocks(clv_graph *graph, const clv_model_config *model, const clv_model_build *build,
                           const clv_model_inputs *in, clv_value x, clv_block_form form)
{
    clv_block_options block = block_of(model, build, in, form);
    for (int64_t layer = 0; layer < model->layers; layer++) {
        block.attention.window = clv_model_config_window(model, layer);
        clv_graph_push(graph, "layers.%lld", (long long)layer);
        x = clv_transformer_block(graph, x, &build->rules, &block);
        clv_graph_pop(graph);
    }
    return x;
}

clv_value clv_model_logits(clv_graph *graph, const clv_model_config *model, const clv_model_build *build, clv_value x,
                           clv_value table)
{
    clv_linear_options linear = {.name = "lm_head", .init = weight_init, .features = CLV_VOCAB};
    return model->tie_word_embeddings ? clv_vocab_parallel_logits(graph, x, table, &build->rules)
                                      : clv_column_parallel_linear(graph, x, model->vocab, &build->rules, &linear);
}

/* The dense product has no split of its own: activations keep the layout that they have between layers. */
clv_value clv_model_masked_lm_head(clv_graph *graph, const clv_model_config *model, const clv_model_build *build,
                                   clv_value x, clv_value table)
{
    clv_linear_options dense = {.name = "dense", .bias = true, .init = weight_init, .features = CLV_EMBED};
    clv_graph_push(graph, "lm_head");
    x = clv_column_parallel_linear(graph, x, model->hidden, &build->rules, &dense);
    x = clv_map(graph, model->activation, x);
    x = clv_parallel_layer_norm(graph, x, &build->rules, "norm", model->norm_eps, true);
    clv_value bias = clv_nn_parameter(graph, &build->rules, "bias", build->dtype, 1, &model->vocab,
                                      (clv_logical_axis[]){CLV_VOCAB}, NULL, (clv_init){CLV_INIT_ZEROS, 0});
    clv_graph_pop(graph);
    return clv_add(graph, clv_model_logits(graph, model, build, x, table), bias);
}

/* ---- whole models ---- */

/* ids, labels, mask: rows are not split over the sequence, as they are small. */
static clv_value token_input(clv_graph *graph, const char *name, clv_dtype dtype, const clv_model_build *build)
{
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
    clv_layout layout = clv_named_layout(graph, &build->rules, 2, names);
    clv_value input = clv_input(graph, name, dtype, 2, (int64_t[]){build->batch, build->seq}, &layout);
    clv_nn_say_activation(graph, input, &build->rules, NULL, 0, NULL);
    return input;
}

/* One position for the whole batch, or one for each of its rows. */
static clv_value offset_input(clv_graph *graph, const clv_model_build *build)
{
    clv_layout layout = clv_named_layout(graph, &build->rules, 1, (clv_logical_axis[]){CLV_BATCH});
    return build->batch == 1 ? clv_input(graph, "offset", CLV_I32, 0, NULL, NULL)
                             : clv_input(graph, "offset", CLV_I32, 1, &build->batch, &layout);
}

/* The last row of each sequence. */
static clv_value last_row(clv_graph *graph, clv_value x)
{
    clv_type type = clv_graph_type(graph, x);
    int64_t begin[3] = {0, type.shape[1] - 1, 0};
    return type.shape[1] > 1 ? clv_slice(graph, x, begin, type.shape) : x;
}

clv_value clv_build_forward(clv_graph *graph, const clv_model_config *model, const clv_model_build *build,
                            clv_value *hidden)
{
    if (hidden)
        *hidden = CLV_NONE;
    if (build->context && model->bidirectional)
        return clv_graph_fail(graph, CLV_EUNSUPPORTED,
                              "a KV cache for a model of the family %s, whose attention is not causal",
                              model->family->model_type);
    clv_model_inputs in = {.ids = token_input(graph, "ids", CLV_I32, build)};
    if (build->token_types)
        in.token_types = token_input(graph, "token_types", CLV_I32, build);
    if (build->padding_mask)
        in.mask = token_input(graph, "mask", CLV_U8, build);
    if (build->context)
        in.offset = offset_input(graph, build);
    clv_value x = model->family->hidden(graph, model, build, &in);
    if (build->last_logits && clv_valid(x))
        x = last_row(graph, x);
    if (hidden)
        *hidden = x;
    if (model->headless)
        return CLV_NONE;
    clv_value table = CLV_NONE;
    clv_parameters(graph, &table, 1);
    return model->family->head(graph, model, build, x, table);
}

/* Gains and biases are not decayed; biases of heads have several dimensions. */
static bool decays(const clv_graph *graph, clv_value parameter)
{
    const char *part = strrchr(clv_value_name(graph, parameter), '.');
    return clv_graph_type(graph, parameter).rank > 1 && (!part || strcmp(part, ".bias") != 0);
}

static void update(clv_graph *graph, const clv_model_build *build, clv_value parameter, clv_value gradient,
                   clv_value lr, clv_value step, const clv_adamw_options *adamw)
{
    clv_adamw_options o = *adamw;
    clv_layout held = clv_value_layout(graph, parameter), moments;
    clv_type type = clv_graph_type(graph, parameter);
    if (!decays(graph, parameter))
        o.weight_decay = 0;
    if (build->rules.n_optimizer > 0 && clv_graph_ok(graph) &&
        clv_axis_rules_optimizer_layout(&moments, &build->rules, &graph->mesh, &held, type.shape, &graph->error) ==
            CLV_OK)
        o.state_layout = &moments;
    clv_adamw(graph, parameter, gradient, lr, step, &o);
}

void clv_build_train_step(clv_graph *graph, const clv_model_config *model, const clv_model_build *build,
                          const clv_adamw_options *adamw)
{
    if (model->headless) {
        clv_graph_fail(graph, CLV_EUNSUPPORTED, "a training step of a %s, which has no head; that of %s is needed",
                       model->family->bare, model->family->architecture);
        return;
    }
    clv_value logits = clv_build_forward(graph, model, build, NULL);
    clv_value labels = token_input(graph, "labels", CLV_I32, build);
    clv_value lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL);
    clv_value step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);
    clv_value loss = clv_vocab_parallel_cross_entropy(graph, logits, labels, CLV_IGNORED_LABEL);
    int n = clv_parameters(graph, NULL, 0);
    clv_value *parameters = clv_arena_alloc(graph->arena, (size_t)n + 1, sizeof *parameters);
    clv_value *gradients = clv_arena_alloc(graph->arena, (size_t)n + 1, sizeof *gradients);
    if (!parameters || !gradients) {
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for %d gradients", n);
        return;
    }
    clv_parameters(graph, parameters, n);
    clv_gradients(graph, loss, CLV_NONE, parameters, n, gradients);
    for (int i = 0; i < n; i++)
        update(graph, build, parameters[i], gradients[i], lr, step, adamw);
    clv_layout scalar = clv_layout_replicated(0);
    clv_output(graph, "loss", loss, &scalar);
}

void clv_build_inference(clv_graph *graph, const clv_model_config *model, const clv_model_build *build)
{
    clv_value hidden = CLV_NONE, logits = clv_build_forward(graph, model, build, &hidden);
    clv_layout whole = clv_layout_replicated(3);
    clv_output(graph, model->headless ? "hidden.last" : "logits", model->headless ? hidden : logits, &whole);
}
