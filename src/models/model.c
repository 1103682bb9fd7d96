/* model.c - clv_model: opens a Hugging Face folder (config, weights, adapters), answers questions about it, adds its
 * forward pass or training step to a caller's graph.
 */
#include "models/model.h"

#include <math.h>
#include <sys/stat.h>

#include "base/threads/wait.h"
#include "io/files/file.h"
#include "io/files/atomic_folder.h"
#include "tokens/tokenizer/tokenizer_components.h"
#include "models/adapters/lora_parameters.h"
#include "models/adapters/peft_folder.h"
#include "models/weights/prepacked_weights.h"
#include "models/weights/parameter_map.h"
#include "models/weights/weight_layouts.h"
#include "models/weights/quantized_weights.h"
#include "models/weights/weight_storage.h"
#include "nn/axis_rules.h"
#include "partition/partitioner.h"
#include "program/cost/machine.h"
#include "runtime/session/rank_threads.h"

/* ---- opening ---- */

static clv_status make(clv_model **out, const char *path, clv_error *err)
{
    clv_model *m = calloc(1, sizeof *m);
    if (m) {
        m->path = strdup(path);
        m->cache = calloc(1, sizeof *m->cache);
    }
    if (m && m->path && m->cache && pthread_mutex_init(&m->cache->lock, NULL) == 0) {
        *out = m;
        return CLV_OK;
    }
    if (m) {
        free(m->path);
        free(m->cache);
    }
    free(m);
    return clv_fail_memory(err, "a model", sizeof *m);
}

/* A model with weights is given by its folder. */
static clv_status check_folder(const char *path, clv_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0 || S_ISDIR(info.st_mode))
        return CLV_OK;
    const char *name = strrchr(path, '/');
    if (!S_ISREG(info.st_mode))
        return clv_fail(err, CLV_EFORMAT, "%s is neither a file nor a folder; give the folder of a model", path);
    CLV_TRY(clv_fail_if_program(path, err));
    return clv_fail(err, CLV_EFORMAT, "%s is a file; give the folder of the model: %.*s", path,
                    name > path ? (int)(name - path) : 1,
                    name > path ? path
                    : name      ? "/"
                                : ".");
}

/* Checks and copies the options. */
static clv_status take(clv_model *m, const clv_model_options *o, clv_error *err)
{
    if (!clv_dtype_is_float(o->dtype))
        return clv_fail(err, CLV_EDTYPE, "a model of dtype %s; valid: f32, bf16, f64, f16", clv_dtype_name(o->dtype));
    if (o->threads_per_rank < 0 || o->threads_per_rank > CLV_MAX_THREADS_PER_RANK)
        return clv_fail(err, o->threads_per_rank < 0 ? CLV_EINVAL : CLV_ELIMIT,
                        "threads_per_rank is %d; valid: 0 (which is 1) to %d", o->threads_per_rank,
                        CLV_MAX_THREADS_PER_RANK);
    CLV_TRY(clv_compile_options_check(&o->compile, "a model", err));
    if (o->timeout_ms < 0)
        return clv_fail(err, CLV_EINVAL, "timeout_ms is %lld; valid: 0 (which is %d) and above",
                        (long long)o->timeout_ms, CLV_DEFAULT_TIMEOUT_MS);
    m->timeout_ms = o->timeout_ms;
    m->dtype = o->dtype;
    m->threads_per_rank = o->threads_per_rank;
    m->check = o->check;
    m->f32_gradients = o->f32_gradients;
    m->cancel = o->cancel;
    m->job = o->job;
    m->flight = o->flight;
    CLV_TRY(clv_machine_copy(&m->machine, o->compile.machine, err));
    m->compile = o->compile;
    m->compile.size = sizeof m->compile;
    m->compile.machine = m->machine;
    if (o->mesh)
        m->mesh = *o->mesh;
    CLV_TRY(clv_mesh_check(&m->mesh, err));
    if (o->rules)
        m->rules = *o->rules;
    else
        CLV_TRY(clv_axis_rules_preset(&m->rules, NULL, &m->mesh, err));
    return clv_axis_rules_check(&m->rules, &m->mesh, err);
}

static clv_status set_lora(clv_model *m, const clv_lora_options *given, clv_error *err)
{
    clv_lora_options lora;
    if (!given)
        return CLV_OK;
    CLV_TRY(clv_options_copy_in(&lora, sizeof lora, sizeof lora, given, "clv_lora_options", err));
    if (lora.folder && (lora.rank || lora.alpha != 0 || lora.targets || lora.dropout != 0))
        return clv_fail(
            err, CLV_EINVAL,
            "%s: the folder sets rank, alpha, targets and dropout of its adapters; valid: none of these options",
            lora.folder);
    if (lora.folder)
        return clv_peft_open_adapters(m, lora.folder, err);
    return clv_adapters_new(&m->adapters, &m->config, &lora, false, err);
}

clv_status clv_quant_resolve(clv_quant *how, const char *path, clv_quant stored, clv_error *err)
{
    if (*how == CLV_QUANT_NONE)
        *how = stored;
    if (stored == CLV_QUANT_NONE || stored == *how)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "%s: its weights are in %s already, and %s cannot be made of them; valid: %s",
                    path, clv_quant_name(stored), clv_quant_name(*how), clv_quant_name(stored));
}

static clv_status warn_unquantized(clv_model *m, clv_error *err)
{
    clv_parameter first;
    const int64_t n = clv_model_find_unquantized(&m->config, &first);
    return n == 0 ? CLV_OK
                  : clv_warnings_add(&m->warnings, err,
                                     "%lld weight%s %s, whose rows are no multiple of 32 elements: %s%s", (long long)n,
                                     n == 1 ? "" : "s", n == 1 ? "stays as it is" : "stay as they are",
                                     n == 1 ? "" : "the first is ", first.name);
}

static clv_status set_quant(clv_model *m, clv_quant quant, clv_error *err)
{
    const clv_quant stored = m->weights ? clv_stored_quant_detect(m->weights->files, &m->config) : CLV_QUANT_NONE;
    if ((unsigned)quant >= CLV_QUANT_COUNT)
        return clv_fail(err, CLV_EINVAL, "quant is %d; valid: a clv_quant", (int)quant);
    m->quant = quant;
    CLV_TRY(clv_quant_resolve(&m->quant, m->path, stored, err));
    if (m->quant == CLV_QUANT_NONE)
        return CLV_OK;
    CLV_TRY(clv_quant_check_model(&m->config, m->quant, err));
    return warn_unquantized(m, err);
}

static clv_status open_parts(clv_model *m, const clv_model_options *o, clv_error *err)
{
    if (!o->config_only)
        CLV_TRY(check_folder(m->path, err));
    if (!clv_folder_has(m->path, "config.json"))
        CLV_TRY(clv_weights_check_format(m->path, err));
    CLV_TRY(clv_model_config_read(&m->config, m->path, err));
    CLV_TRY(take(m, o, err));
    if (!o->config_only) {
        CLV_TRY(clv_model_weights_open(&m->weights, &m->config, m->path,
                                       &(clv_model_weights_options){.map = o->map, .warnings = &m->warnings}, err));
        m->config = m->weights->config;
    }
    CLV_TRY(set_lora(m, o->lora, err));
    CLV_TRY(set_quant(m, o->quant, err));
    clv_model_balance_stages(m);
    return CLV_OK;
}

clv_status clv_model_open(clv_model **out, const char *path, const clv_model_options *options, clv_error *err)
{
    clv_model_options o;
    clv_lora_options there = {.size = sizeof there, .folder = path};
    clv_model *m = NULL;
    char *base = NULL;
    CLV_TRY(clv_require(out && path, __func__, "out and a path", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    if (!o.lora && clv_peft_is_adapter_folder(path)) {
        CLV_TRY(clv_peft_find_base_folder(&base, path, err));
        o.lora = &there;
    }
    clv_status status = make(&m, base ? base : path, err);
    free(base);
    CLV_TRY(status);
    status = open_parts(m, &o, err);
    if (status != CLV_OK) {
        clv_model_close(m);
        return status;
    }
    *out = m;
    return CLV_OK;
}

/* id -1: none. */
static clv_status check_token(const char *what, int64_t id, int64_t vocab, clv_error *err)
{
    if (id >= -1 && id < vocab)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "the model: %s is token %lld; valid: -1 (none), and 0 to %lld of its vocabulary",
                    what, (long long)id, (long long)vocab - 1);
}

static clv_status check_tokens(const clv_model_config *c, clv_error *err)
{
    CLV_TRY(check_token("bos", c->bos, c->vocab, err));
    CLV_TRY(check_token("pad", c->pad, c->vocab, err));
    CLV_TRY(check_token("mask", c->mask, c->vocab, err));
    for (int i = 0; i < c->n_eos; i++)
        CLV_TRY(check_token("eos", c->eos[i], c->vocab, err));
    return CLV_OK;
}

void clv_model_truncate(clv_model *model, int64_t layers, int64_t vocab)
{
    model->config.layers = layers ? layers : model->config.layers;
    model->config.vocab = vocab ? vocab : model->config.vocab;
    if (model->adapters)
        model->adapters->config.layers = model->config.layers;
}

/* Heads of one size each. */
static clv_status check_head_dim(const clv_model_info *s, clv_error *err)
{
    long long hidden = s->hidden, heads = s->heads;
    if (s->head_dim != 0 || heads < 1 || hidden % heads == 0)
        return CLV_OK;
    return clv_fail(
        err, CLV_EINVAL,
        "the model: hidden %lld is no multiple of heads %lld; valid: %lld or %lld, or a head_dim of its own", hidden,
        heads, hidden < heads ? heads : hidden / heads * heads,
        hidden < heads ? 2 * heads : (hidden / heads + 1) * heads);
}

static clv_status config_of(clv_model_config *out, const clv_model_info *s, clv_error *err)
{
    CLV_TRY(check_head_dim(s, err));
    if (s->family && strcmp(s->family, "llama") != 0)
        return clv_fail(err, CLV_EUNSUPPORTED, "a new model of the family %s; valid: llama", s->family);
    if (s->experts != 0)
        return clv_fail(err, CLV_EUNSUPPORTED, "a new model with %lld experts; valid: 0", (long long)s->experts);
    if (s->n_eos < 0 || s->n_eos > CLV_MAX_EOS)
        return clv_fail(err, CLV_EINVAL, "%d ids that end a text; valid: 0 to %d", s->n_eos, CLV_MAX_EOS);
    *out = (clv_model_config){.family = &clv_family_llama,
                              .hidden = s->hidden,
                              .layers = s->layers,
                              .heads = s->heads,
                              .kv_heads = s->kv_heads ? s->kv_heads : s->heads,
                              .head_dim = s->head_dim || s->heads == 0 ? s->head_dim : s->hidden / s->heads,
                              .ffn = s->ffn,
                              .vocab = s->vocab,
                              .max_positions = s->max_positions ? s->max_positions : 2048,
                              .tie_word_embeddings = s->tied_embeddings != 0,
                              .norm_eps = 1e-5,
                              .rope.theta = 10000,
                              .activation = CLV_SILU,
                              .bos = s->bos,
                              .pad = s->pad,
                              .mask = s->mask,
                              .n_eos = s->n_eos};
    memcpy(out->eos, s->eos, sizeof s->eos);
    CLV_TRY(clv_model_config_check(out, "the model", err));
    return check_tokens(out, err);
}

clv_status clv_model_new(clv_model **out, const clv_model_info *sizes, const clv_model_options *options, clv_error *err)
{
    clv_model_options o;
    clv_model_info info;
    clv_model *m = NULL;
    CLV_TRY(clv_require(out && sizes, __func__, "out and sizes", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    CLV_TRY(clv_options_copy_in(&info, sizeof info, sizeof info, sizes, __func__, err));
    CLV_TRY(make(&m, "", err));
    clv_status status = config_of(&m->config, &info, err);
    if (status == CLV_OK && o.quant != CLV_QUANT_NONE)
        status = clv_fail(err, CLV_EUNSUPPORTED, "quant of a new model; valid: of one that a folder holds");
    if (status == CLV_OK)
        status = take(m, &o, err);
    if (status == CLV_OK)
        status = set_lora(m, o.lora, err);
    if (status != CLV_OK) {
        clv_model_close(m);
        return status;
    }
    clv_model_balance_stages(m);
    *out = m;
    return CLV_OK;
}

void clv_model_close(clv_model *m)
{
    if (!m)
        return;
    clv_tokenizer_free(m->cache->tokenizer);
    if (m->cache->generation)
        m->cache->free_generation(m->cache->generation);
    pthread_mutex_destroy(&m->cache->lock);
    clv_warnings_free(&m->warnings);
    clv_model_weights_close(m->weights);
    clv_model_weights_close(m->adapter_weights);
    clv_adapters_free(m->adapters);
    clv_kept_scales_free(m->cache->scales);
    clv_machine_free(m->machine);
    free(m->cache);
    free(m->path);
    free(m);
}

/* ---- information ---- */

static int64_t *part_of(clv_model_part_sizes *parts, const clv_parameter *p)
{
    if (p->layer >= 0)
        return &parts->layers;
    bool embeds = strncmp(p->name, "embed", 5) == 0 || strncmp(p->name, "positions", 9) == 0;
    return embeds ? &parts->embedding : &parts->head;
}

static clv_model_part_sizes count_parts(const clv_model_config *config)
{
    clv_model_part_sizes parts = {0};
    for (int64_t i = 0; i < clv_model_parameter_count(config); i++) {
        clv_parameter p = clv_model_parameter_at(config, i);
        *part_of(&parts, &p) += clv_parameter_elems(&p);
    }
    return parts;
}

clv_status clv_model_get_info(const clv_model *m, clv_model_info *out, clv_error *err)
{
    CLV_TRY(clv_require(m && out, __func__, "a model and out", err));
    const clv_model_config *c = &m->config;
    const clv_model_part_sizes parts = count_parts(c);
    clv_model_info info = {.family = clv_model_config_model_type(c),
                           .hidden = c->hidden,
                           .layers = c->layers,
                           .heads = c->heads,
                           .kv_heads = c->kv_heads,
                           .head_dim = c->head_dim,
                           .ffn = c->ffn,
                           .vocab = c->vocab,
                           .max_positions = c->max_positions,
                           .parameters = parts.embedding + parts.layers + parts.head,
                           .token_types = c->token_types,
                           .rotary = c->rope.theta > 0,
                           .bidirectional = c->bidirectional,
                           .headless = c->headless,
                           .tied_embeddings = c->tie_word_embeddings,
                           .bos = c->bos,
                           .pad = c->pad,
                           .mask = c->mask,
                           .n_eos = c->n_eos < CLV_MAX_EOS ? c->n_eos : CLV_MAX_EOS,
                           .experts = c->experts,
                           .top_k = c->top_k,
                           .expert_ffn = c->expert_ffn,
                           .shared_ffn = c->shared_ffn};
    memcpy(info.eos, c->eos, sizeof info.eos);
    if (m->adapters) {
        const clv_model_part_sizes adapters = count_parts(&m->adapters->config);
        info.adapter_rank = m->adapters->config.adapter_rank;
        info.adapter_parameters = adapters.embedding + adapters.layers + adapters.head;
    }
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

clv_status clv_model_get_part_sizes(const clv_model *m, clv_model_part_sizes *out, clv_error *err)
{
    CLV_TRY(clv_require(m && out, __func__, "a model and out", err));
    const clv_model_part_sizes parts = count_parts(&m->config);
    return clv_struct_copy_out(out, sizeof parts, sizeof parts, &parts, __func__, err);
}

clv_status clv_model_max_rank_elems(int64_t *out, const clv_model *m, const clv_mesh *mesh, clv_error *err)
{
    clv_weight_layouts *placement;
    clv_axis_rules preset;
    CLV_TRY(clv_require(out && m, __func__, "out and a model", err));
    if (mesh)
        CLV_TRY(clv_axis_rules_preset(&preset, NULL, mesh, err));
    CLV_TRY(clv_weight_layouts_new(&placement, &m->config, mesh ? mesh : &m->mesh, mesh ? &preset : &m->rules,
                                   CLV_QUANT_NONE, err));
    clv_status status = clv_weight_layouts_max_rank_elems(out, placement, err);
    clv_weight_layouts_free(placement);
    return status;
}

const clv_mesh *clv_model_mesh(const clv_model *m)
{
    return m ? &m->mesh : NULL;
}

const char *clv_model_folder(const clv_model *m)
{
    return m ? m->path : NULL;
}

const clv_axis_rules *clv_model_rules(const clv_model *m)
{
    return m ? &m->rules : NULL;
}

clv_dtype clv_model_dtype(const clv_model *m)
{
    return m ? m->dtype : CLV_F32;
}

clv_status clv_model_unknown_keys(char *out, size_t size, const clv_model *m, clv_error *err)
{
    CLV_TRY(clv_require(m && out, __func__, "a model and out", err));
    return clv_model_config_unknown_keys(out, size, m->config.family, m->path, err);
}

const char *clv_model_warning(const clv_model *m, int i)
{
    return m && i >= 0 && i < m->warnings.n ? m->warnings.text[i] : NULL;
}

clv_quant clv_model_quant(const clv_model *m)
{
    return m ? m->quant : CLV_QUANT_NONE;
}

clv_status clv_model_checkpoint_quant(clv_quant *out, const clv_model *m, clv_error *err)
{
    clv_weights *weights;
    CLV_TRY(clv_require(out && m, __func__, "out and a model", err));
    *out = CLV_QUANT_NONE;
    if (!m->path[0] || !clv_weights_exist(m->path))
        return CLV_OK;
    CLV_TRY(clv_weights_open(&weights, m->path, err));
    *out = clv_stored_quant_detect(weights, &m->config);
    clv_weights_close(weights);
    return CLV_OK;
}

int64_t clv_model_weights_memory_bytes(const clv_model *m)
{
    return m ? clv_model_storage_bytes(&m->config, m->dtype, m->quant) : 0;
}

uint64_t clv_model_bytes_read(const clv_model *m)
{
    uint64_t bytes = m && m->weights ? clv_weights_bytes_read(m->weights->files) : 0;
    return m && m->adapter_weights ? bytes + clv_weights_bytes_read(m->adapter_weights->files) : bytes;
}

void clv_handle_sigbus(void)
{
    clv_file_handle_sigbus();
}

/* ---- tokenizer ---- */

static clv_status open_tokenizer(clv_tokenizer **out, const clv_model *m, clv_error *err)
{
    enum { BYTES = 256 };
    char path[CLV_PATH_SIZE];
    if (m->path[0] && clv_tokenizer_find_file(path, m->path))
        return clv_tokenizer_open(out, m->path, err);
    if (m->config.vocab == BYTES)
        return clv_tokenizer_new_bytes(out, err);
    return clv_fail(err, CLV_ENOTFOUND,
                    "%s has no tokenizer.json or vocab.txt, and its vocabulary of %lld is not that of bytes (256)",
                    m->path[0] ? m->path : "a model that no folder holds", (long long)m->config.vocab);
}

clv_status clv_model_tokenizer(const clv_tokenizer **out, const clv_model *m, clv_error *err)
{
    clv_status status = CLV_OK;
    CLV_TRY(clv_require(out && m, __func__, "out and a model", err));
    pthread_mutex_lock(&m->cache->lock);
    if (!m->cache->tokenizer)
        status = open_tokenizer(&m->cache->tokenizer, m, err);
    if (status == CLV_OK)
        *out = m->cache->tokenizer;
    pthread_mutex_unlock(&m->cache->lock);
    return status;
}

clv_status clv_model_check_tokens(const clv_model *m, const clv_tokenizer *t, const int64_t *ids, int64_t n,
                                  const char *where, clv_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->config.vocab)
            return clv_tokenizer_fail_id_out_of_range(t, ids[i], m->config.vocab, where, err);
    return CLV_OK;
}

/* ---- graphs and sessions ---- */

/* What private builders take for it: rules and dtype of the model, sizes and inputs of `how`. */
static clv_model_build_options build_of(const clv_model *m, const clv_model_graph_options *how)
{
    return (clv_model_build_options){.batch = how->batch,
                                     .seq = how->seq,
                                     .rules = how->context > 0 ? clv_axis_rules_without(&m->rules, CLV_SEQ) : m->rules,
                                     .dtype = m->dtype,
                                     .padding_mask = how->padding_mask != 0,
                                     .token_types = how->token_types != 0,
                                     .context = how->context,
                                     .last_logits = how->last_logits != 0,
                                     .last_input = how->last_input != 0,
                                     .split_logits = how->split_logits != 0,
                                     .dropout = how->dropout,
                                     .dropout_seed = how->dropout_seed,
                                     .attention_dropout = how->attention_dropout,
                                     .f32_gradients = m->f32_gradients,
                                     .adapters = m->adapters,
                                     .quant = m->quant,
                                     .packs = how->packed && clv_model_uses_prepacked(m)};
}

static bool check_dropout(clv_graph *graph, const char *which, double p, bool trains, const char *call)
{
    if (!(p >= 0 && p < 1) || (p > 0 && !trains))
        clv_graph_fail(graph, CLV_EINVAL, "%s: %s %g; valid: %s", call, which, p,
                       trains ? "0 <= dropout < 1" : "0, but in a training step");
    return clv_graph_ok(graph);
}

/* What the builders need; a failure is the graph's. */
static bool begin(clv_model_build_options *build, clv_graph *graph, const clv_model *m,
                  const clv_model_graph_options *given, bool trains, const char *call)
{
    clv_model_graph_options how;
    clv_error err = {0};
    if (!clv_graph_require(graph, m && given, call, "a model, and batch and seq"))
        return false;
    if (clv_options_copy_in(&how, sizeof how, sizeof how, given, call, &err) != CLV_OK)
        clv_graph_fail(graph, err.code, "%s", err.message);
    else if (!clv_mesh_equal(clv_graph_mesh(graph), &m->mesh))
        clv_graph_fail(graph, CLV_EINVAL, "%s: the graph is of another mesh than the model was opened for", call);
    else if (trains && m->quant != CLV_QUANT_NONE)
        clv_graph_fail(graph, CLV_EUNSUPPORTED,
                       "%s: neither weights in %s nor their adapters can be trained; valid: a folder of floats%s",
                       m->path, clv_quant_name(m->quant), m->weights ? ", or its config.json alone" : "");
    else if (how.token_types && m->config.token_types == 0)
        clv_graph_fail(graph, CLV_EINVAL, "%s: %s has no token types", call, clv_model_config_model_type(&m->config));
    else if (how.batch < 1 || how.seq < 1 || how.seq > m->config.max_positions || how.context < 0 ||
             how.context > m->config.max_positions)
        clv_graph_fail(graph, CLV_EINVAL,
                       "%s: batch %lld, seq %lld, context %lld; valid: 1 and above, 1 to %lld, 0 to %lld", call,
                       (long long)how.batch, (long long)how.seq, (long long)how.context,
                       (long long)m->config.max_positions, (long long)m->config.max_positions);
    else if (how.packed && trains)
        clv_graph_fail(graph, CLV_EINVAL, "%s: packed weights, which are not trained; valid: packed 0", call);
    else if (how.last_input && (!how.last_logits || how.batch != 1))
        clv_graph_fail(graph, CLV_EINVAL,
                       "%s: last_input with batch %lld and %s; valid: with a batch of 1 and last_logits", call,
                       (long long)how.batch, how.last_logits ? "last_logits" : "all logits");
    else if (check_dropout(graph, "dropout", how.dropout, trains, call) &&
             check_dropout(graph, "attention_dropout", how.attention_dropout, trains, call))
        *build = build_of(m, &how);
    return clv_graph_ok(graph);
}

clv_value clv_model_forward(clv_graph *graph, const clv_model *m, const clv_model_graph_options *how, clv_value *hidden)
{
    clv_model_build_options build;
    if (hidden)
        *hidden = CLV_NONE;
    return begin(&build, graph, m, how, false, __func__) ? clv_build_forward(graph, &m->config, &build, hidden)
                                                         : CLV_NONE;
}

void clv_model_loss(clv_graph *graph, const clv_model *m, const clv_model_graph_options *how)
{
    clv_model_build_options build;
    if (begin(&build, graph, m, how, false, __func__))
        clv_build_loss(graph, &m->config, &build);
}

void clv_model_inference(clv_graph *graph, const clv_model *m, const clv_model_graph_options *how)
{
    clv_model_build_options build;
    if (begin(&build, graph, m, how, false, __func__))
        clv_build_inference(graph, &m->config, &build);
}

void clv_model_train_step(clv_graph *graph, const clv_model *m, const clv_model_graph_options *how,
                          const clv_update_options *update)
{
    clv_model_build_options build;
    clv_update_options taken;
    clv_adamw_options adamw;
    clv_sgd_options sgd;
    clv_lion_options lion;
    if (!begin(&build, graph, m, how, true, __func__) ||
        !clv_graph_options_copy_in(graph, &taken, sizeof taken, sizeof taken, update, __func__) ||
        !clv_graph_options_copy_in(graph, &adamw, sizeof adamw, sizeof adamw, taken.adamw, __func__) ||
        !clv_graph_options_copy_in(graph, &sgd, sizeof sgd, sizeof sgd, taken.sgd, __func__) ||
        !clv_graph_options_copy_in(graph, &lion, sizeof lion, sizeof lion, taken.lion, __func__))
        return;
    if (taken.accumulate < 0 || (taken.accumulate > 1 && build.batch % taken.accumulate != 0)) {
        clv_graph_fail(graph, CLV_EINVAL, "%s: accumulate is %lld; valid: 0, or a divisor of the batch, %lld", __func__,
                       (long long)taken.accumulate, (long long)build.batch);
        return;
    }
    if (taken.no_sync && taken.accumulate <= 1) {
        clv_graph_fail(graph, CLV_EINVAL, "%s: no_sync is for gradient accumulation; valid: with accumulate > 1",
                       __func__);
        return;
    }
    if (!(taken.router_bias_update_rate >= 0 && isfinite(taken.router_bias_update_rate)) ||
        (taken.router_bias_update_rate > 0 && (!m->config.sigmoid_router || build.adapters))) {
        clv_graph_fail(graph, CLV_EINVAL,
                       "%s: router_bias_update_rate is %g; valid: 0, and above it for all weights of a model whose "
                       "routers have a bias (deepseek_v3)",
                       __func__, taken.router_bias_update_rate);
        return;
    }
    taken.adamw = &adamw;
    taken.sgd = &sgd;
    taken.lion = &lion;
    clv_build_train_step(graph, &m->config, &build, &taken, true);
}

clv_status clv_model_compile(clv_program **out, const clv_model *m, const clv_graph *graph, clv_error *err)
{
    return clv_compile(out, graph, &m->compile, err);
}

clv_session_options clv_model_session_options(const clv_model *m)
{
    return (clv_session_options){.threads_per_rank = m->threads_per_rank,
                                 .source = clv_model_state_source,
                                 .source_arg = (void *)m,
                                 .check = m->check,
                                 .timeout_ms = m->timeout_ms,
                                 .cancel = m->cancel,
                                 .job = m->job,
                                 .flight = m->flight};
}

clv_status clv_model_open_session(clv_session **out, const clv_model *m, bool find_nonfinite, clv_error *err)
{
    clv_session_options options = clv_model_session_options(m);
    options.find_nonfinite = find_nonfinite;
    return clv_session_new(out, &m->mesh, &options, err);
}

clv_status clv_model_fail_nonfinite(const char *name, double value, const clv_error *origin, clv_error *err)
{
    const bool found = origin->code == CLV_ENONFINITE;
    return clv_fail(err, CLV_ENONFINITE, "%s is %g%s%.320s", name, value, found ? "; it begins at " : "",
                    found ? origin->message : "");
}
