/* moe_config.c - reads config.json of a mixture of experts, and counts its parameters. */
#include "models/plan/axes/moe_config.h"

#include <string.h>

#include "base/error.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "models/config/config_readers.h"
#include "models/config/model_config.h"
#include "models/families/experts_common.h"

enum { CONFIG_LIMIT = 1 << 20, MOST_EXPERTS = 1 << 16 };

/* What families name differently. */
typedef struct moe_family {
    const char *name;
    const char *experts, *expert_ffn;
    bool latent, qk_norm;
    bool runs; /* a family of models/families */
} moe_family;

static const moe_family families[] = {
    {"mixtral", "num_local_experts", "intermediate_size", false, false, true},
    {"qwen2_moe", "num_experts", "moe_intermediate_size", false, false, true},
    {"qwen3_moe", "num_experts", "moe_intermediate_size", false, true, true},
    {"gpt_oss", "num_local_experts", "intermediate_size", false, false, false},
    {"deepseek_v3", "n_routed_experts", "moe_intermediate_size", true, false, true},
    {"kimi_k2", "n_routed_experts", "moe_intermediate_size", true, false, false},
};
enum { FAMILIES = sizeof families / sizeof *families };

static const moe_family *find_family(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    return NULL;
}

/* ---- reading ---- */

static clv_status read_latent(clv_moe_config *c, const json_t *o, const char *where, clv_error *err)
{
    int64_t plain = 0, shared = 0;
    const clv_config_size sizes[] = {{"kv_lora_rank", &c->kv_rank, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
                                     {"qk_nope_head_dim", &plain, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
                                     {"qk_rope_head_dim", &c->rope_dim, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
                                     {"v_head_dim", &c->v_dim, CLV_MAX_WIDTH, CLV_JSON_REQUIRED}};
    CLV_TRY(clv_config_read_sizes(sizes, sizeof sizes / sizeof *sizes, o, where, err));
    if (!json_is_null(json_object_get(o, "q_lora_rank")))
        CLV_TRY(clv_json_get_int(&c->q_rank, o, "q_lora_rank", CLV_JSON_OPTIONAL, 1, CLV_MAX_WIDTH, where, err));
    CLV_TRY(
        clv_json_get_int(&c->dense_layers, o, "first_k_dense_replace", CLV_JSON_OPTIONAL, 0, c->layers, where, err));
    CLV_TRY(clv_json_get_int(&c->mtp_layers, o, "num_nextn_predict_layers", CLV_JSON_OPTIONAL, 0, CLV_MAX_LAYERS, where,
                             err));
    CLV_TRY(clv_json_get_int(&shared, o, "n_shared_experts", CLV_JSON_OPTIONAL, 0, MOST_EXPERTS, where, err));
    c->shared_ffn = shared * c->expert_ffn;
    c->qk_dim = plain + c->rope_dim;
    c->router_bias = true; /* e_score_correction_bias */
    return CLV_OK;
}

static clv_status count_dense_layers(clv_moe_config *c, const json_t *o, const char *where, clv_error *err)
{
    uint8_t dense[(CLV_MAX_LAYERS + 7) / 8] = {0};
    CLV_TRY(clv_qwen_read_dense_layers(dense, c->layers, o, where, err));
    for (int64_t l = 0; l < c->layers; l++)
        c->dense_layers += dense[l / 8] >> l % 8 & 1;
    return CLV_OK;
}

static clv_status read_grouped(clv_moe_config *c, const json_t *o, const char *where, clv_error *err)
{
    const bool gpt_oss = strcmp(c->family, "gpt_oss") == 0, qwen2 = strcmp(c->family, "qwen2_moe") == 0;
    CLV_TRY(clv_json_get_int(&c->qk_dim, o, "head_dim", CLV_JSON_OPTIONAL, 1, CLV_MAX_WIDTH, where, err));
    c->qk_dim = c->qk_dim ? c->qk_dim : c->hidden / c->heads;
    c->v_dim = c->rope_dim = c->qk_dim;
    if (gpt_oss)
        CLV_TRY(clv_json_get_int(&c->window, o, "sliding_window", CLV_JSON_OPTIONAL, 1, CLV_MAX_POSITIONS, where, err));
    if (qwen2)
        CLV_TRY(clv_json_get_int(&c->shared_ffn, o, "shared_expert_intermediate_size", CLV_JSON_OPTIONAL, 1,
                                 CLV_MAX_WIDTH, where, err));
    c->qkv_bias = gpt_oss || qwen2;
    c->output_bias = c->expert_bias = c->router_bias = gpt_oss;
    c->shared_gate = c->shared_ffn > 0;
    return strncmp(c->family, "qwen", 4) == 0 ? count_dense_layers(c, o, where, err) : CLV_OK;
}

static clv_status read_object(clv_moe_config *c, const json_t *o, const char *where, clv_error *err)
{
    const char *type = NULL;
    CLV_TRY(clv_json_check_object(o, where, err));
    CLV_TRY(clv_json_get_string(&type, o, "model_type", CLV_JSON_OPTIONAL, where, err));
    const moe_family *family = type ? find_family(type) : NULL;
    if (!family)
        return CLV_OK;
    const bool renamed =
        family->runs && !family->latent && !json_object_get(o, family->experts); /* as its family reads it */
    const char *experts = !renamed                                      ? family->experts
                          : strcmp(family->experts, "num_experts") == 0 ? "num_local_experts"
                                                                        : "num_experts";
    const clv_config_size sizes[] = {
        {"hidden_size", &c->hidden, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
        {"num_hidden_layers", &c->layers, CLV_MAX_LAYERS, CLV_JSON_REQUIRED},
        {"num_attention_heads", &c->heads, CLV_MAX_HEADS, CLV_JSON_REQUIRED},
        {"num_key_value_heads", &c->kv_heads, CLV_MAX_HEADS, CLV_JSON_OPTIONAL},
        {"intermediate_size", &c->ffn, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
        {"vocab_size", &c->vocab, CLV_MAX_VOCAB, CLV_JSON_REQUIRED},
        {"max_position_embeddings", &c->max_positions, CLV_MAX_POSITIONS, CLV_JSON_REQUIRED},
        {experts, &c->experts, MOST_EXPERTS, CLV_JSON_REQUIRED},
        {"num_experts_per_tok", &c->top_k, MOST_EXPERTS, CLV_JSON_REQUIRED},
        {family->expert_ffn, &c->expert_ffn, CLV_MAX_WIDTH, CLV_JSON_REQUIRED}};
    c->family = family->name;
    c->runs = family->runs;
    c->qk_norm = family->qk_norm;
    CLV_TRY(clv_config_read_sizes(sizes, sizeof sizes / sizeof *sizes, o, where, err));
    CLV_TRY(clv_json_get_bool(&c->tied, o, "tie_word_embeddings", CLV_JSON_OPTIONAL, where, err));
    c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    if (c->heads % c->kv_heads != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: \"num_key_value_heads\" %lld must divide \"num_attention_heads\" %lld",
                        where, (long long)c->kv_heads, (long long)c->heads);
    if (c->top_k > c->experts)
        return clv_fail(err, CLV_EFORMAT, "%s: \"num_experts_per_tok\" %lld of %lld experts", where,
                        (long long)c->top_k, (long long)c->experts);
    return family->latent ? read_latent(c, o, where, err) : read_grouped(c, o, where, err);
}

clv_status clv_moe_config_read(clv_moe_config *out, const char *path, clv_error *err)
{
    char file[CLV_PATH_SIZE];
    json_t *document = NULL;
    clv_moe_config config = {0};
    const char *where = path;
    if (clv_is_folder(path)) {
        CLV_TRY(clv_path_join(file, path, "config.json", err));
        where = file;
    }
    CLV_TRY(clv_json_load(&document, where, CONFIG_LIMIT, err));
    clv_status status = read_object(&config, document, where, err);
    json_decref(document);
    if (status == CLV_OK)
        *out = config;
    return status;
}

/* ---- counting ---- */

static int64_t latent_attention(const clv_moe_config *c)
{
    const int64_t queries = c->heads * c->qk_dim;
    const int64_t q = c->q_rank ? c->hidden * c->q_rank + c->q_rank + c->q_rank * queries : c->hidden * queries;
    const int64_t kv = c->hidden * (c->kv_rank + c->rope_dim) + c->kv_rank +
                       c->kv_rank * c->heads * (c->qk_dim - c->rope_dim + c->v_dim);
    return q + kv + c->heads * c->v_dim * c->hidden;
}

static int64_t grouped_attention(const clv_moe_config *c)
{
    const int64_t queries = c->heads * c->qk_dim, keys = c->kv_heads * c->qk_dim;
    const int64_t biases = (c->qkv_bias ? queries + 2 * keys : 0) + (c->output_bias ? c->hidden : 0);
    const int64_t norms = c->qk_norm ? 2 * c->qk_dim : 0, sinks = c->output_bias ? c->heads : 0;
    return 2 * c->hidden * (queries + keys) + biases + norms + sinks;
}

int64_t clv_moe_attention_parameters(const clv_moe_config *c)
{
    return (c->kv_rank ? latent_attention(c) : grouped_attention(c)) + 2 * c->hidden;
}

int64_t clv_moe_dense_parameters(const clv_moe_config *c)
{
    return clv_moe_attention_parameters(c) + 3 * c->hidden * c->ffn;
}

int64_t clv_moe_expert_parameters(const clv_moe_config *c)
{
    return 3 * c->hidden * c->expert_ffn + (c->expert_bias ? 2 * c->expert_ffn + c->hidden : 0);
}

int64_t clv_moe_common_parameters(const clv_moe_config *c)
{
    const int64_t router = c->hidden * c->experts + (c->router_bias ? c->experts : 0);
    const int64_t shared = 3 * c->hidden * c->shared_ffn + (c->shared_gate ? c->hidden : 0);
    return clv_moe_attention_parameters(c) + router + shared;
}

/* With so many experts a layer. */
static int64_t count(const clv_moe_config *c, int64_t experts)
{
    const int64_t sparse = c->layers - c->dense_layers + c->mtp_layers,
                  tables = (c->tied ? 1 : 2) * c->vocab * c->hidden;
    const int64_t mtp = c->mtp_layers * (2 * c->hidden * c->hidden + 3 * c->hidden); /* beside its layer */
    return tables + c->hidden + mtp + c->dense_layers * clv_moe_dense_parameters(c) +
           sparse * (clv_moe_common_parameters(c) + experts * clv_moe_expert_parameters(c));
}

int64_t clv_moe_parameters(const clv_moe_config *c)
{
    return count(c, c->experts);
}

int64_t clv_moe_active_parameters(const clv_moe_config *c)
{
    return count(c, c->top_k);
}
