/* model_graph.c - builds a model's graph: embedding, blocks, head, loss, gradient accumulation, inference outputs. */
#include <math.h>

#include "models/adapters/lora_parameters.h"
#include "models/families/model_family.h"
#include "models/weights/weight_storage.h"
#include "nn/layer_layouts.h"
#include "nn/router_losses.h"
#include "ops/builtin_ops.h"

static const clv_init weight_init = {CLV_INIT_NORMAL, 0.02};
static const uint32_t attention_key = 2;         /* of a layer's: the block folds in 0 and 1 */
static const uint32_t dropout_keys = 0x64726f70; /* "drop": apart from the keys of weights, which have the seed, too */

static const uint32_t adapter_keys = 0x6c6f7261; /* "lora" */

/* Every microbatch has its own masks. */
static clv_key key_of_dropout(const clv_model_build_options *build, uint32_t kind)
{
    return clv_key_fold_in(clv_key_fold_in(clv_key_seed(build->dropout_seed), kind), (uint32_t)build->micro);
}

/* ---- parts ---- */

clv_value clv_model_embedding(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                              clv_value ids)
{
    return clv_vocab_parallel_embedding(graph, ids, model->vocab, model->hidden, build->dtype, &build->rules, "embed",
                                        weight_init);
}

/* Weights that add to the residual stream start smaller, by the root of their number (Radford et al. 2019). */
static clv_block_options block_of(const clv_model_config *model, const clv_model_build_options *build,
                                  const clv_model_inputs *in, clv_block_form form)
{
    clv_block_options o = clv_block_defaults(form, model->heads, model->kv_heads, model->ffn);
    clv_init into_residual = {CLV_INIT_NORMAL, 0.02 / sqrt(2.0 * (double)model->layers)};
    o.eps = model->norm_eps;
    o.attention.head_dim = model->head_dim;
    o.attention.bias = model->qkv_bias;
    o.attention.output_bias = model->output_bias;
    o.attention.qk_norm = model->qk_norm ? model->norm_eps : 0;
    o.attention.rope = model->rope;
    o.attention.bidirectional = model->bidirectional;
    o.attention.mask = in->mask;
    o.attention.context = build->context;
    o.attention.offset = in->offset;
    o.mlp.activation = model->activation;
    o.mlp.bias = model->mlp_bias;
    o.attention.output_init = o.mlp.output_init = into_residual;
    o.dropout = build->dropout;
    o.attention.dropout = build->attention_dropout;
    o.dropout_step = o.attention.dropout_step = build->step;
    return o;
}

static clv_latent_attention_options latent_attention_of(const clv_model_config *model, const clv_block_options *block)
{
    const clv_self_attention_options *o = &block->attention;
    return (clv_latent_attention_options){.size = sizeof(clv_latent_attention_options),
                                          .heads = model->heads,
                                          .q_rank = model->q_rank,
                                          .kv_rank = model->kv_rank,
                                          .plain_dim = model->plain_dim,
                                          .rotary_dim = model->rotary_dim,
                                          .value_dim = model->value_dim,
                                          .rope = model->rope,
                                          .rotary_scale = clv_config_rotary_scale(model),
                                          .scale = clv_config_score_scale(model),
                                          .bias = model->qkv_bias,
                                          .mask = o->mask,
                                          .context = o->context,
                                          .offset = o->offset,
                                          .init = o->init,
                                          .output_init = o->output_init,
                                          .dropout = o->dropout,
                                          .dropout_step = o->dropout_step};
}

/* Only training drops rows: what a model says does not depend on what else is in its batch. */
static clv_experts_options experts_of(const clv_model_config *model, const clv_model_build_options *build)
{
    const clv_init into_residual = {CLV_INIT_NORMAL, 0.02 / sqrt(2.0 * (double)model->layers)};
    return (clv_experts_options){.experts = model->experts,
                                 .top_k = model->top_k,
                                 .ffn = model->expert_ffn,
                                 .activation = model->activation,
                                 .normalised = model->normalised_choice,
                                 .shared_ffn = model->shared_ffn,
                                 .shared_gate = model->shared_ffn > 0 && !model->sigmoid_router,
                                 .sigmoid = model->sigmoid_router,
                                 .balance_bias = model->sigmoid_router,
                                 .weight_scale = model->weight_scale,
                                 .groups = model->groups,
                                 .top_groups = model->top_groups,
                                 .init = weight_init,
                                 .output_init = into_residual,
                                 .capacity_factor = clv_valid(build->step) ? model->capacity_factor : 0};
}

clv_value clv_model_blocks(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                           const clv_model_inputs *in, clv_value x, clv_block_form form)
{
    clv_block_options block = block_of(model, build, in, form);
    clv_experts_options experts = experts_of(model, build);
    clv_latent_attention_options latent = latent_attention_of(model, &block);
    block.latent_attention = model->kv_rank > 0 ? &latent : NULL;
    experts.mask = in->row_mask;
    clv_key key = key_of_dropout(build, dropout_keys);
    x = clv_dropout(graph, x, build->dropout, key, build->step);
    for (int64_t layer = 0; layer < model->layers; layer++) {
        block.attention.window = clv_model_config_window(model, layer);
        block.experts = clv_model_config_has_experts(model, layer) ? &experts : NULL;
        block.dropout_key = clv_key_fold_in(key, (uint32_t)layer);
        block.attention.dropout_key = clv_key_fold_in(block.dropout_key, attention_key);
        latent.dropout_key = block.attention.dropout_key;
        clv_nn_set_stage_of_layer(graph, &build->rules, layer, model->layers);
        clv_graph_push_scope(graph, "layers.%lld", (long long)layer);
        x = clv_transformer_block(graph, x, &build->rules, &block);
        clv_graph_pop_scope(graph);
    }
    return x;
}

/* Logits by the quantized copy of the embedding table. */
static clv_value quantized_logits(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                                  clv_value x, clv_value table)
{
    static const clv_logical_axis names[] = {CLV_EMBED_KERNEL, CLV_VOCAB};
    const int64_t shape[] = {model->hidden, model->vocab};
    const clv_weight_spec spec = {clv_value_name(graph, table), build->dtype, 2, 1, shape, names, NULL, weight_init, 0};
    const char *outer = graph->scope; /* the name is full */
    graph->scope = "";
    clv_stored_weight held = clv_nn_stored_weight(graph, &build->rules, &spec);
    graph->scope = outer;
    return clv_nn_stored_weight_product(graph, clv_nn_enter_parallel_region(graph, x, &build->rules, CLV_VOCAB),
                                        &build->rules, &held, NULL, "m", "mv", "v");
}

clv_value clv_model_logits(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                           clv_value x, clv_value table)
{
    clv_linear_options linear = {.name = "lm_head", .init = weight_init, .features = CLV_VOCAB};
    if (model->tie_word_embeddings && clv_nn_is_weight_quantized(graph, model->hidden))
        return quantized_logits(graph, model, build, x, table);
    return model->tie_word_embeddings ? clv_vocab_parallel_logits(graph, x, table, &build->rules)
                                      : clv_column_parallel_linear(graph, x, model->vocab, &build->rules, &linear);
}

/* The dense product has no split of its own: activations keep the layout that they have between layers. */
clv_value clv_model_masked_lm_head(clv_graph *graph, const clv_model_config *model,
                                   const clv_model_build_options *build, clv_value x, clv_value table)
{
    clv_linear_options dense = {.name = "dense", .bias = true, .init = weight_init, .features = CLV_EMBED};
    clv_graph_push_scope(graph, "lm_head");
    x = clv_column_parallel_linear(graph, x, model->hidden, &build->rules, &dense);
    x = clv_unary(graph, model->activation, x);
    x = clv_parallel_layer_norm(graph, x, &build->rules, "norm", model->norm_eps, true);
    clv_value bias = clv_nn_parameter(graph, &build->rules, "bias", build->dtype, 1, &model->vocab,
                                      (clv_logical_axis[]){CLV_VOCAB}, NULL, (clv_init){CLV_INIT_ZEROS, 0});
    clv_graph_pop_scope(graph);
    return clv_add(graph, clv_model_logits(graph, model, build, x, table), bias);
}

/* ---- whole models ---- */

/* The input [N,B,S] of all microbatches: ids, labels, mask. They are small, so the sequence is not sharded. */
static clv_value step_input(clv_graph *graph, const char *name, clv_dtype dtype, const clv_model_build_options *build)
{
    static const clv_logical_axis names[] = {CLV_UNNAMED, CLV_BATCH, CLV_UNNAMED};
    clv_value known = clv_graph_ok(graph) ? clv_graph_find_input_or_state_in_scope(graph, name) : CLV_NONE;
    if (clv_valid(known))
        return known;
    clv_layout layout = clv_named_layout(graph, &build->rules, 3, names);
    return clv_input(graph, name, dtype, 3, (int64_t[]){build->n_microbatches, build->batch, build->seq}, &layout);
}

/* The rows [B,S] of one microbatch. */
static clv_value microbatch_input(clv_graph *graph, const char *name, clv_dtype dtype,
                                  const clv_model_build_options *build)
{
    const int64_t begin[] = {build->micro, 0, 0}, end[] = {build->micro + 1, build->batch, build->seq};
    clv_value whole = step_input(graph, name, dtype, build);
    return clv_reshape(graph, clv_slice(graph, whole, begin, end), 2, (int64_t[]){build->batch, build->seq});
}

/* [B,S] in the order of positions. */
static clv_value token_input(clv_graph *graph, const char *name, clv_dtype dtype, const clv_model_build_options *build)
{
    if (build->n_microbatches > 0)
        return microbatch_input(graph, name, dtype, build);
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
    clv_layout layout = clv_named_layout(graph, &build->rules, 2, names);
    clv_value input = clv_input(graph, name, dtype, 2, (int64_t[]){build->batch, build->seq}, &layout);
    clv_nn_annotate_activation(graph, input, &build->rules, NULL, 0, NULL);
    return input;
}

static clv_value row_input(clv_graph *graph, const char *name, clv_dtype dtype, const clv_model_build_options *build)
{
    return clv_tokens_in_row_order(graph, token_input(graph, name, dtype, build));
}

/* Start position of each sequence; a scalar for one sequence. */
static clv_value offset_input(clv_graph *graph, const clv_model_build_options *build)
{
    clv_layout layout = clv_named_layout(graph, &build->rules, 1, (clv_logical_axis[]){CLV_BATCH});
    return build->batch == 1 ? clv_input(graph, "offset", CLV_I32, 0, NULL, NULL)
                             : clv_input(graph, "offset", CLV_I32, 1, &build->batch, &layout);
}

/* The last row of each sequence, or the row of one sequence that the input "last" names. */
static clv_value last_row(clv_graph *graph, const clv_model_build_options *build, clv_value x)
{
    clv_type type = clv_graph_type(graph, x);
    if (build->last_input) {
        clv_value last = clv_input(graph, "last", CLV_I32, 1, (int64_t[]){1}, NULL);
        clv_value rows = clv_reshape(graph, x, 2, type.shape + 1);
        return clv_reshape(graph, clv_embedding(graph, rows, last), 3, (int64_t[]){1, 1, type.shape[2]});
    }
    int64_t begin[3] = {0, type.shape[1] - 1, 0};
    return type.shape[1] > 1 ? clv_slice(graph, x, begin, type.shape) : x;
}

/* x, if it is [B,rows,width]: a registered family may have made another shape. */
static clv_value checked(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                         clv_value x, const char *what, int64_t rows, int64_t width)
{
    const clv_type wanted = {.dtype = build->dtype, .rank = 3, .shape = {build->batch, rows, width}};
    const clv_type got = clv_graph_type(graph, x);
    char has[CLV_TYPE_TEXT] = "nothing", wants[CLV_TYPE_TEXT];
    if (!clv_graph_ok(graph))
        return CLV_NONE;
    if (clv_valid(x) && clv_type_equal(&got, &wanted))
        return x;
    if (clv_valid(x))
        clv_type_print(has, sizeof has, &got);
    clv_type_print(wants, sizeof wants, &wanted);
    return clv_graph_fail(graph, got.dtype == wanted.dtype ? CLV_ESHAPE : CLV_EDTYPE,
                          "family %s: its graph makes %s of %s; %s is needed", model->family->model_type, what, has,
                          wants);
}

/* The state of a parameter under a scope, with a suffix after the parameter's name. */
static clv_value parameter_in(clv_graph *graph, const char *scope, const clv_parameter *parameter, const char *ending)
{
    const char *name = clv_arena_format(graph->arena, "%s%s%s", scope, parameter->name, ending);
    return name ? clv_graph_find_input_or_state(graph, name)
                : clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name '%s'", parameter->name);
}

/* Every parameter of the family's table must be a state of its shape: as that it is loaded and saved. (Quantized and
 * prepacked ones are checked by their readers.) */
static void check_parameters(clv_graph *graph, const clv_model_config *model, const char *scope, clv_quant quant,
                             bool packs)
{
    for (int64_t i = 0; clv_graph_ok(graph) && i < clv_model_parameter_count(model); i++) {
        const clv_parameter parameter = clv_model_parameter_at(model, i);
        if (!clv_parameter_storage_of(model, &parameter, quant).floats ||
            (packs && clv_valid(parameter_in(graph, scope, &parameter, CLV_PACKED))))
            continue;
        const clv_value state = parameter_in(graph, scope, &parameter, "");
        const clv_type got = clv_graph_type(graph, state);
        clv_type wanted = {.dtype = got.dtype, .rank = parameter.rank};
        char has[CLV_TYPE_TEXT], wants[CLV_TYPE_TEXT];
        memcpy(wanted.shape, parameter.shape, sizeof wanted.shape);
        clv_type_print(has, sizeof has, &got);
        clv_type_print(wants, sizeof wants, &wanted);
        if (!clv_valid(state))
            clv_graph_fail(graph, CLV_ENOTFOUND,
                           "family %s: its table has the parameter '%s', and its graph makes no state of that name",
                           model->family->model_type, parameter.name);
        else if (!clv_type_equal(&got, &wanted))
            clv_graph_fail(graph, CLV_ESHAPE, "family %s: the state '%s' is %s; its table says %s",
                           model->family->model_type, parameter.name, has, wants);
    }
}

static bool is_parameter(const clv_graph *graph, int value)
{
    const clv_value_info *info = &graph->values[value];
    return info->source == CLV_FROM_STATE && info->role == CLV_ROLE_PARAMETER;
}

/* The graph must have no other parameters from value `from` on: they would be trained, and never saved. */
static void check_no_other_parameters(clv_graph *graph, const clv_model_config *model, const clv_adapters *adapters,
                                      const char *scope, int from, clv_quant quant)
{
    int64_t n = 0, known = adapters ? clv_model_parameter_count(&adapters->config) : 0;
    for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
        const clv_parameter parameter = clv_model_parameter_at(model, i);
        const clv_parameter_storage storage = clv_parameter_storage_of(model, &parameter, quant);
        known += storage.floats + 2 * storage.blocks; /* integers and scales */
    }
    for (int v = from; v < graph->n_values; v++)
        n += is_parameter(graph, v);
    for (int v = from; clv_graph_ok(graph) && v < graph->n_values && n > known; v++) {
        clv_parameter found;
        const char *name = graph->values[v].name;
        if (is_parameter(graph, v) && (strncmp(name, scope, strlen(scope)) != 0 ||
                                       (clv_model_parameter_find(&found, model, name + strlen(scope), NULL) != CLV_OK &&
                                        !clv_adapters_has_parameter(adapters, name + strlen(scope)))))
            clv_graph_fail(graph, CLV_ENOTFOUND,
                           "family %s: its graph makes the parameter '%s', and its table has none of that name",
                           model->family->model_type, name);
    }
}

static clv_value head_of(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                         clv_value x, const char *scope)
{
    const clv_parameter embedding = clv_model_parameter_at(model, 0);
    clv_value table = clv_graph_ok(graph) ? parameter_in(graph, scope, &embedding, "") : CLV_NONE;
    if (!clv_valid(table)) /* check_parameters reports it */
        return CLV_NONE;
    clv_value logits = model->family->head(graph, model, build, x, table);
    return checked(graph, model, build, logits, "logits", clv_graph_type(graph, x).shape[1], model->vocab);
}

/* The adapters of the weights under a scope. */
typedef struct scoped_adapters {
    const clv_adapters *adapters;
    const char *scope;
} scoped_adapters;

/* clv_graph_lora.find, of scoped_adapters. */
static bool find_adapter(clv_lora_adapter *out, clv_graph *graph, const char *weight, const void *arg)
{
    const scoped_adapters *s = arg;
    clv_parameter a, b;
    size_t length = strlen(s->scope);
    if (strncmp(weight, s->scope, length) != 0 || !clv_adapters_find(out, &a, &b, s->adapters, weight + length))
        return false;
    out->a = clv_arena_format(graph->arena, "%s%s", s->scope, a.name);
    out->b = clv_arena_format(graph->arena, "%s%s", s->scope, b.name);
    if (!out->a || !out->b)
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name '%s'", a.name);
    return clv_graph_ok(graph);
}

/* Begins to record the routers of a training step, for their loss, their balance and the rows that they drop. */
static void record_routers(clv_graph_routers *routers, clv_graph *graph, const clv_model_config *model,
                           const clv_model_build_options *build)
{
    *routers = (clv_graph_routers){.balances = build->balances_routers};
    if (model->experts == 0 || !clv_valid(build->step))
        return;
    graph->routers = routers;
    if (!model->adds_router_loss && !routers->balances)
        return;
    clv_value **lists[] = {&routers->logits, &routers->ids, &routers->bias, &routers->load};
    bool all = true;
    routers->room = (int)model->layers;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        *lists[i] = clv_arena_alloc(graph->arena, (size_t)model->layers, sizeof(clv_value));
        all = all && *lists[i];
    }
    if (!all)
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the routers of %lld layers", (long long)model->layers);
}

/* From inputs to hidden states *x, and to logits. */
static clv_value build_layers(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                              const clv_model_inputs *in, clv_value *x)
{
    const char *scope = graph->scope;
    const scoped_adapters scoped = {build->adapters, scope};
    clv_graph_lora adapters = {.find = find_adapter, .arg = &scoped};
    if (build->adapters && clv_valid(build->step)) {
        adapters.dropout = build->adapters->dropout;
        adapters.dropout_key = key_of_dropout(build, adapter_keys);
        adapters.dropout_step = build->step;
    }
    const clv_graph_quantization quant = clv_model_graph_quant(model, build->quant);
    graph->adapters = build->adapters ? &adapters : NULL;
    graph->quant = build->quant != CLV_QUANT_NONE ? &quant : NULL;
    graph->prepacks_weights = build->packs;
    clv_nn_set_stage_of_layer(graph, &build->rules, 0, model->layers); /* embeddings are with the first layer */
    *x = checked(graph, model, build, model->family->hidden(graph, model, build, in), "hidden states", build->seq,
                 model->hidden);
    if (build->last_logits && clv_valid(*x))
        *x = last_row(graph, build, *x);
    if (clv_graph_ok(graph) && graph->stage_axis > 0 &&
        graph->stage != (int)graph->mesh.axis[graph->stage_axis - 1].size)
        clv_graph_fail(graph, CLV_EUNSUPPORTED,
                       "pipeline stages: the last ops of family %s are not on the last stage; valid: an axis for its "
                       "layers if it states their stages (clv_graph_set_stage)",
                       model->family->model_type);
    clv_value logits = model->headless ? CLV_NONE : head_of(graph, model, build, *x, scope);
    clv_graph_set_stage(graph, NULL, -1); /* losses are where logits are */
    graph->adapters = NULL;
    graph->quant = NULL;
    graph->prepacks_weights = false;
    return logits;
}

/* What the routers of a training step add: to its loss, and the choices that found no place; CLV_NONE: nothing. */
typedef struct router_results {
    clv_value loss, dropped;
    int n; /* routers to be balanced */
    clv_value *bias, *load;
} router_results;

static void balance_routers(clv_graph *graph, const router_results *routers, double rate, clv_value finite)
{
    graph->in_update = true;
    for (int i = 0; i < routers->n && clv_graph_ok(graph); i++)
        clv_nn_balance_router(graph, routers->bias[i], routers->load[i], rate, finite);
    graph->in_update = false;
}

static clv_value build_forward(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                               clv_value *hidden, router_results *of_routers)
{
    clv_graph_routers routers;
    if (hidden)
        *hidden = CLV_NONE;
    *of_routers = (router_results){.loss = CLV_NONE};
    if (build->context && model->bidirectional)
        return clv_graph_fail(graph, CLV_EUNSUPPORTED,
                              "a KV cache for a model of the family %s, whose attention is not causal",
                              model->family->model_type);
    clv_model_inputs in = {.ids = row_input(graph, "ids", CLV_I32, build)};
    if (build->token_types)
        in.token_types = row_input(graph, "token_types", CLV_I32, build);
    if (build->padding_mask) {
        in.mask = token_input(graph, "mask", CLV_U8, build);
        in.row_mask = clv_tokens_in_row_order(graph, in.mask);
    }
    if (build->context)
        in.offset = offset_input(graph, build);
    const char *scope = graph->scope;
    int from = graph->n_values;
    record_routers(&routers, graph, model, build);
    clv_value x, logits = build_layers(graph, model, build, &in, &x);
    graph->routers = NULL;
    if (routers.balances)
        *of_routers = (router_results){.n = routers.n, .bias = routers.bias, .load = routers.load};
    if (routers.n > 0 && model->adds_router_loss)
        of_routers->loss =
            clv_scale(graph, clv_load_balancing_loss(graph, routers.logits, routers.ids, routers.n, in.row_mask),
                      model->router_loss_factor);
    of_routers->dropped = routers.dropped;
    check_parameters(graph, model, scope, build->quant, build->packs);
    if (build->adapters)
        check_parameters(graph, &build->adapters->config, scope, CLV_QUANT_NONE, false);
    check_no_other_parameters(graph, model, build->adapters, scope, from, build->quant);
    if (hidden && clv_graph_ok(graph))
        *hidden = x;
    return clv_graph_ok(graph) ? logits : CLV_NONE;
}

clv_value clv_build_forward(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                            clv_value *hidden)
{
    router_results of_routers;
    return build_forward(graph, model, build, hidden, &of_routers);
}

/* The loss is f32 also for a model in f64. */
static void output_loss(clv_graph *graph, clv_value loss, clv_value dropped)
{
    const clv_layout scalar = clv_layout_replicated(0);
    clv_output(graph, "loss", clv_cast(graph, loss, CLV_F32), &scalar);
    if (clv_valid(dropped))
        clv_output(graph, "dropped", dropped, &scalar);
}

/* Forward and backward passes of the microbatches, one after the other. Gradients are those of the summed losses
 * divided by the number of labels of the whole batch, and of the mean of what routers add. With FSDP and ZeRO each is
 * reduce-scattered where it is made, and its shard accumulated; others, and all with no_sync, are accumulated as
 * partial sums over the data axes and reduced once, after the last microbatch. */
static void gradient_accumulation_step(clv_graph *graph, const clv_model_config *model,
                                       const clv_model_build_options *whole, const clv_update_options *how)
{
    clv_model_build_options build = *whole;
    clv_value sum = CLV_NONE, share = CLV_NONE, count = CLV_NONE, dropped = CLV_NONE;
    clv_trainable trained = {0};
    router_results balanced = {0};
    build.n_microbatches = how->accumulate;
    build.batch = whole->batch / how->accumulate;
    for (build.micro = 0; build.micro < build.n_microbatches && clv_graph_ok(graph); build.micro++) {
        graph->microbatch = (int)build.micro + 1;
        router_results of_routers;
        clv_value logits = build_forward(graph, model, &build, NULL, &of_routers);
        clv_value labels = row_input(graph, "labels", CLV_I32, &build);
        clv_value rows = clv_cross_entropy(graph, logits, labels, CLV_IGNORE_INDEX);
        clv_value loss = clv_reduce(graph, CLV_SUM, rows, (int[]){0, 1}, 2, false);
        if (build.micro == 0) {
            const clv_dtype dtype = clv_graph_type(graph, loss).dtype;
            trained = clv_build_trainable(graph, &build);
            count = clv_count_labels(graph, step_input(graph, "labels", CLV_I32, &build), CLV_IGNORE_INDEX, dtype);
            share = clv_div(graph, clv_fill(graph, dtype, 0, NULL, 1), count);
        }
        if (clv_valid(of_routers.loss)) {
            of_routers.loss = clv_scale(graph, of_routers.loss, 1.0 / (double)build.n_microbatches);
            loss = clv_add(graph, loss, clv_mul(graph, of_routers.loss, count));
        }
        for (int i = 0; i < of_routers.n && build.micro > 0; i++)
            of_routers.load[i] = clv_add(graph, balanced.load[i], of_routers.load[i]);
        balanced = of_routers;
        if (clv_valid(of_routers.dropped))
            dropped = clv_valid(dropped) ? clv_add(graph, dropped, of_routers.dropped) : of_routers.dropped;
        clv_gradients_accumulate(graph, loss, share, trained.parameters, trained.n,
                                 how->no_sync ? NULL : trained.shards, build.f32_gradients, trained.gradients);
        sum = build.micro == 0 ? loss : clv_add(graph, sum, loss);
        graph->reuses_state = true;
    }
    graph->reuses_state = false;
    graph->microbatch = 0;
    trained.has_gradients = true;
    clv_value mean = clv_div(graph, sum, count);
    const clv_value scale = clv_build_updates(graph, whole, &trained, mean, how, true);
    balance_routers(graph, &balanced, how->router_bias_update_rate, scale);
    output_loss(graph, mean, dropped);
}

static clv_value batch_loss(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                            router_results *of_routers)
{
    clv_value logits = build_forward(graph, model, build, NULL, of_routers);
    clv_value labels = row_input(graph, "labels", CLV_I32, build);
    return clv_vocab_parallel_cross_entropy(graph, logits, labels, CLV_IGNORE_INDEX);
}

static void whole_batch_step(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                             const clv_update_options *how, bool output_grad_norm)
{
    router_results of_routers;
    clv_value loss = batch_loss(graph, model, build, &of_routers);
    loss = clv_valid(of_routers.loss) ? clv_add(graph, loss, of_routers.loss) : loss;
    clv_trainable trained = clv_build_trainable(graph, build);
    const clv_value scale = clv_build_updates(graph, build, &trained, loss, how, output_grad_norm);
    balance_routers(graph, &of_routers, how->router_bias_update_rate, scale);
    output_loss(graph, loss, of_routers.dropped);
}

/* The ranks that share a sequence in causal attention, if its rows may lie in zig-zag order: which rows find no place
 * at an expert with a capacity depends on their order, and ops of a registered family may go by it. */
static int64_t zigzag_ranks(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build)
{
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_SEQ, CLV_HEADS, CLV_HEAD_DIM};
    const clv_layout queries = clv_named_layout(graph, &build->rules, 4, names);
    const int64_t ranks = clv_graph_ok(graph) ? clv_layout_block_count(&queries, 1) : 1;
    const bool any_order =
        !model->bidirectional && !model->family->is_custom && (model->experts == 0 || model->capacity_factor == 0);
    return ranks > 1 && any_order ? ranks : 0;
}

void clv_build_train_step(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *given,
                          const clv_update_options *how, bool output_grad_norm)
{
    clv_model_build_options build = *given;
    if (model->headless)
        clv_graph_fail(graph, CLV_EUNSUPPORTED, "%s has no head, which a training step needs; valid: %s",
                       model->family->bare, model->family->architecture);
    build.balances_routers = how->router_bias_update_rate > 0;
    build.step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);
    if (!clv_graph_ok(graph))
        return;
    graph->zigzag = zigzag_ranks(graph, model, &build);
    if (how->accumulate > 1)
        gradient_accumulation_step(graph, model, &build, how);
    else
        whole_batch_step(graph, model, &build, how, output_grad_norm);
    graph->zigzag = 0;
}

void clv_build_loss(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build)
{
    router_results of_routers;
    graph->zigzag = zigzag_ranks(graph, model, build);
    output_loss(graph, batch_loss(graph, model, build, &of_routers), CLV_NONE);
    graph->zigzag = 0;
}

void clv_build_inference(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build)
{
    clv_value hidden = CLV_NONE, logits = clv_build_forward(graph, model, build, &hidden);
    clv_layout layout = clv_layout_replicated(3);
    if (build->split_logits && !model->headless)
        layout = clv_named_layout(graph, &build->rules, 3, (clv_logical_axis[]){CLV_BATCH, CLV_UNNAMED, CLV_VOCAB});
    clv_output(graph, model->headless ? "hidden.last" : "logits", model->headless ? hidden : logits, &layout);
}
