/* llama_config.c - see llama_config.h. */
#include "models/llama_config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "io/file.h"
#include "io/json.h"

/* Far beyond any model, small enough that products of two stay within int64_t. */
enum { MAX_LAYERS = 10000, MAX_HEADS = 1 << 16, MAX_WIDTH = 1 << 24, MAX_VOCAB = 1 << 24, MAX_POSITIONS = 1 << 26 };
enum { CONFIG_LIMIT = 1 << 20 };

static clv_status unsupported(const char *where, const char *key, const char *value, const char *valid, clv_error *err)
{
    return clv_fail(err, CLV_EUNSUPPORTED, "%s: \"%s\": %.64s is not supported yet (supported: %s)", where, key, value,
                    valid);
}

static clv_status check_architectures(const json_t *o, const char *where, clv_error *err)
{
    const json_t *list = json_object_get(o, "architectures");

    if (list == NULL || json_is_null(list))
        return CLV_OK;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name == NULL || strcmp(name, "LlamaForCausalLM") != 0)
            return unsupported(where, "architectures", name != NULL ? name : "?", "LlamaForCausalLM", err);
    }
    if (json_array_size(list) == 0)
        return clv_fail(err, CLV_EFORMAT, "%s: \"architectures\" must be a list of names", where);
    return CLV_OK;
}

/* An optional string that must be one of the words; `words` ends in NULL. */
static clv_status check_word(const json_t *o, const char *key, const char *const *words, const char *where,
                             clv_error *err)
{
    const char *text = NULL;

    CLV_TRY(clv_json_string(&text, o, key, CLV_JSON_OPTIONAL, where, err));
    if (text == NULL)
        return CLV_OK;
    for (const char *const *word = words; *word != NULL; word++)
        if (strcmp(*word, text) == 0)
            return CLV_OK;
    return unsupported(where, key, text, words[0], err);
}

static clv_status check_off(const json_t *o, const char *key, const char *where, clv_error *err)
{
    bool on = false;

    CLV_TRY(clv_json_bool(&on, o, key, CLV_JSON_OPTIONAL, where, err));
    return on ? unsupported(where, key, "true", "false", err) : CLV_OK;
}

/* All that changes what the model computes and that this library does not do. */
static clv_status check_kind(const json_t *o, const char *where, clv_error *err)
{
    static const char *const dtypes[] = {"float32", "bfloat16", "float16", "float64", NULL};
    static const char *const activations[] = {"silu", "swish", NULL};
    const char *type = NULL;

    CLV_TRY(clv_json_string(&type, o, "model_type", CLV_JSON_REQUIRED, where, err));
    if (strcmp(type, "llama") != 0)
        return unsupported(where, "model_type", type, "llama", err);
    CLV_TRY(check_architectures(o, where, err));
    CLV_TRY(check_word(o, "hidden_act", activations, where, err));
    CLV_TRY(check_word(o, "torch_dtype", dtypes, where, err));
    CLV_TRY(check_word(o, "dtype", dtypes, where, err));
    CLV_TRY(check_off(o, "attention_bias", where, err));
    CLV_TRY(check_off(o, "mlp_bias", where, err));
    if (json_object_get(o, "quantization_config") != NULL && !json_is_null(json_object_get(o, "quantization_config")))
        return unsupported(where, "quantization_config", "quantised weights", "none", err);
    return CLV_OK;
}

/* One of the objects that describe rotary embedding: its kind (under either name), and its theta where it has one. */
static clv_status read_rope(clv_llama_config *c, const json_t *o, const char *key, const char *where, clv_error *err)
{
    static const char *const kinds[] = {"default", NULL};
    const json_t *rope = json_object_get(o, key);
    double share = 1;

    if (rope == NULL || json_is_null(rope))
        return CLV_OK;
    if (!json_is_object(rope))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be an object", where, key);
    CLV_TRY(check_word(rope, "rope_type", kinds, where, err));
    CLV_TRY(check_word(rope, "type", kinds, where, err));
    CLV_TRY(clv_json_real(&share, rope, "partial_rotary_factor", CLV_JSON_OPTIONAL, 0, 1, where, err));
    if (share != 1)
        return unsupported(where, "partial_rotary_factor", "less than 1", "1", err);
    return clv_json_real(&c->rope_theta, rope, "rope_theta", CLV_JSON_OPTIONAL, 1e-3, 1e12, where, err);
}

static clv_status read_eos(clv_llama_config *c, const json_t *o, const char *where, clv_error *err)
{
    if (json_is_array(json_object_get(o, "eos_token_id")))
        return clv_json_ints(c->eos, &c->n_eos, CLV_MAX_EOS, o, "eos_token_id", CLV_JSON_OPTIONAL, 0, c->vocab - 1,
                             where, err);
    c->eos[0] = -1;
    CLV_TRY(clv_json_int(&c->eos[0], o, "eos_token_id", CLV_JSON_OPTIONAL, -1, c->vocab - 1, where, err));
    c->n_eos = c->eos[0] >= 0;
    return CLV_OK;
}

static clv_status read_sizes(clv_llama_config *c, const json_t *o, const char *where, clv_error *err)
{
    const struct {
        const char *key;
        int64_t *out;
        int64_t max;
    } sizes[] = {
        {"hidden_size", &c->hidden, MAX_WIDTH},        {"num_hidden_layers", &c->layers, MAX_LAYERS},
        {"num_attention_heads", &c->heads, MAX_HEADS}, {"intermediate_size", &c->ffn, MAX_WIDTH},
        {"vocab_size", &c->vocab, MAX_VOCAB},
    };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        CLV_TRY(clv_json_int(sizes[i].out, o, sizes[i].key, CLV_JSON_REQUIRED, 1, sizes[i].max, where, err));
    c->kv_heads = c->heads;
    c->max_positions = 2048; /* transformers' default */
    CLV_TRY(clv_json_int(&c->kv_heads, o, "num_key_value_heads", CLV_JSON_OPTIONAL, 1, MAX_HEADS, where, err));
    CLV_TRY(clv_json_int(&c->head_dim, o, "head_dim", CLV_JSON_OPTIONAL, 1, MAX_WIDTH, where, err));
    CLV_TRY(
        clv_json_int(&c->max_positions, o, "max_position_embeddings", CLV_JSON_OPTIONAL, 1, MAX_POSITIONS, where, err));
    if (c->head_dim == 0 && c->hidden % c->heads != 0)
        return clv_fail(err, CLV_EFORMAT,
                        "%s: \"hidden_size\" %lld is not a multiple of \"num_attention_heads\" %lld, and there is no "
                        "\"head_dim\"",
                        where, (long long)c->hidden, (long long)c->heads);
    if (c->head_dim == 0)
        c->head_dim = c->hidden / c->heads;
    return CLV_OK;
}

/* What holds between the sizes; `code` tells a bad file from a bad request. */
static clv_status check_sizes(const clv_llama_config *c, clv_status code, const char *where, clv_error *err)
{
    const int64_t sizes[] = {c->hidden,   c->layers, c->heads, c->kv_heads,
                             c->head_dim, c->ffn,    c->vocab, c->max_positions};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] < 1 || sizes[i] > MAX_POSITIONS)
            return clv_fail(err, code, "%s: sizes of a model must be 1 to %d, not %lld", where, MAX_POSITIONS,
                            (long long)sizes[i]);
    if (c->kv_heads > c->heads || c->heads % c->kv_heads != 0)
        return clv_fail(err, code, "%s: \"num_key_value_heads\" %lld must divide \"num_attention_heads\" %lld", where,
                        (long long)c->kv_heads, (long long)c->heads);
    if (c->head_dim % 2 != 0)
        return clv_fail(err, code, "%s: \"head_dim\" %lld must be even: rotary embedding turns pairs", where,
                        (long long)c->head_dim);
    return CLV_OK;
}

clv_status clv_llama_config_check(const clv_llama_config *c, const char *where, clv_error *err)
{
    return check_sizes(c, CLV_EINVAL, where, err);
}

static clv_status read_object(clv_llama_config *c, const json_t *o, const char *where, clv_error *err)
{
    CLV_TRY(clv_json_check_object(o, where, err));
    CLV_TRY(check_kind(o, where, err));
    CLV_TRY(read_sizes(c, o, where, err));
    c->rms_eps = 1e-6;
    c->rope_theta = 10000;
    c->bos = -1;
    CLV_TRY(clv_json_real(&c->rms_eps, o, "rms_norm_eps", CLV_JSON_OPTIONAL, 1e-30, 1, where, err));
    CLV_TRY(clv_json_real(&c->rope_theta, o, "rope_theta", CLV_JSON_OPTIONAL, 1e-3, 1e12, where, err));
    CLV_TRY(read_rope(c, o, "rope_scaling", where, err));
    CLV_TRY(read_rope(c, o, "rope_parameters", where, err));
    CLV_TRY(clv_json_bool(&c->tie_word_embeddings, o, "tie_word_embeddings", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_int(&c->bos, o, "bos_token_id", CLV_JSON_OPTIONAL, -1, c->vocab - 1, where, err));
    CLV_TRY(read_eos(c, o, where, err));
    return check_sizes(c, CLV_EFORMAT, where, err);
}

static clv_status read_file(clv_llama_config *out, const char *path, clv_error *err)
{
    clv_llama_config config = {0};
    json_t *document = NULL;
    clv_status status;

    CLV_TRY(clv_json_load(&document, path, CONFIG_LIMIT, err));
    status = read_object(&config, document, path, err);
    json_decref(document);
    if (status == CLV_OK)
        *out = config;
    return status;
}

clv_status clv_llama_config_read(clv_llama_config *out, const char *path, clv_error *err)
{
    struct stat info;
    clv_status status;
    char *file;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return read_file(out, path, err);
    file = clv_path_join(path, "config.json");
    if (file == NULL)
        return clv_fail_memory(err, path, strlen(path));
    status = read_file(out, file, err);
    free(file);
    return status;
}

/* ---- writing ---- */

static json_t *eos_of(const clv_llama_config *c)
{
    json_t *list;

    if (c->n_eos <= 1)
        return c->n_eos == 1 ? json_integer(c->eos[0]) : json_null();
    list = json_array();
    for (int i = 0; i < c->n_eos; i++)
        json_array_append_new(list, json_integer(c->eos[i]));
    return list;
}

/* Both spellings of what transformers 5 renamed, so that 4 and 5 read the same model. */
static json_t *object_of(const clv_llama_config *c)
{
    return json_pack("{s:[s], s:s, s:s, s:s, s:s, s:b, s:b, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f,"
                     " s:{s:f, s:s}, s:b, s:o, s:o}",
                     "architectures", "LlamaForCausalLM", "model_type", "llama", "torch_dtype", "float32", "dtype",
                     "float32", "hidden_act", "silu", "attention_bias", 0, "mlp_bias", 0, "attention_dropout", 0.0,
                     "hidden_size", (json_int_t)c->hidden, "num_hidden_layers", (json_int_t)c->layers,
                     "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads,
                     "head_dim", (json_int_t)c->head_dim, "intermediate_size", (json_int_t)c->ffn, "vocab_size",
                     (json_int_t)c->vocab, "max_position_embeddings", (json_int_t)c->max_positions, "rms_norm_eps",
                     c->rms_eps, "rope_theta", c->rope_theta, "rope_parameters", "rope_theta", c->rope_theta,
                     "rope_type", "default", "tie_word_embeddings", (int)c->tie_word_embeddings, "bos_token_id",
                     c->bos >= 0 ? json_integer(c->bos) : json_null(), "eos_token_id", eos_of(c));
}

clv_status clv_llama_config_write(const clv_llama_config *config, const char *path, clv_error *err)
{
    json_t *document;
    char *text;
    clv_status status;

    CLV_TRY(clv_llama_config_check(config, path, err));
    document = object_of(config);
    text = document != NULL ? json_dumps(document, JSON_INDENT(2)) : NULL;
    json_decref(document);
    if (text == NULL)
        return clv_fail_memory(err, path, CONFIG_LIMIT);
    status = clv_file_write(path, text, strlen(text), err);
    free(text);
    return status;
}
