/* config_readers.c - parsers for config.json fields that families share: sizes, activation, RoPE scaling, special
 * tokens.
 */
#include "models/config/config_readers.h"

#include <math.h>
#include <string.h>

#include "models/families/model_family.h"
#include "tensor/parse_print.h"

enum { LIST_SIZE = 256 };

clv_status clv_config_fail_unsupported(const char *where, const char *key, const char *value, const char *valid,
                                       clv_error *err)
{
    return clv_fail(err, CLV_EUNSUPPORTED, "%s: \"%s\": %.64s is not supported yet (supported: %s)", where, key, value,
                    valid);
}

clv_status clv_config_read_sizes(const clv_config_size *sizes, size_t n, const json_t *o, const char *where,
                                 clv_error *err)
{
    for (size_t i = 0; i < n; i++)
        CLV_TRY(clv_json_get_int(sizes[i].out, o, sizes[i].key, sizes[i].need, 1, sizes[i].max, where, err));
    return CLV_OK;
}

clv_status clv_config_set_head_dim(clv_model_config *model, const char *hidden, const char *heads, const char *where,
                                   clv_error *err)
{
    if (model->hidden % model->heads != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" %lld is not a multiple of \"%s\" %lld", where, hidden,
                        (long long)model->hidden, heads, (long long)model->heads);
    model->head_dim = model->hidden / model->heads;
    return CLV_OK;
}

clv_status clv_config_check_choice(const json_t *o, const char *key, const char *const *words, const char *where,
                                   clv_error *err)
{
    const char *text = NULL;
    char valid[LIST_SIZE];
    clv_text list = {.out = valid, .size = sizeof valid};

    CLV_TRY(clv_json_get_string(&text, o, key, CLV_JSON_OPTIONAL, where, err));
    if (text == NULL)
        return CLV_OK;
    for (const char *const *word = words; *word != NULL; word++) {
        if (strcmp(*word, text) == 0)
            return CLV_OK;
        clv_text_add(&list, "%s%s", word == words ? "" : ", ", *word);
    }
    clv_text_finish(&list);
    return clv_config_fail_unsupported(where, key, text, valid, err);
}

/* Names of one kind differ in the last bits only. The first of a kind is written. */
static const struct {
    const char *name;
    clv_unary_kind kind;
} activations[] = {
    {"gelu", CLV_GELU},
    {"gelu_python", CLV_GELU},
    {"gelu_new", CLV_GELU_TANH},
    {"gelu_pytorch_tanh", CLV_GELU_TANH},
    {"gelu_python_tanh", CLV_GELU_TANH},
    {"gelu_fast", CLV_GELU_TANH},
    {"gelu_accurate", CLV_GELU_TANH},
    {"relu", CLV_RELU},
    {"silu", CLV_SILU},
    {"swish", CLV_SILU},
    {"tanh", CLV_TANH},
};

clv_status clv_config_read_activation(clv_unary_kind *out, const json_t *o, const char *key, const char *where,
                                      clv_error *err)
{
    const char *name = NULL;

    CLV_TRY(clv_json_get_string(&name, o, key, CLV_JSON_OPTIONAL, where, err));
    if (name == NULL)
        return CLV_OK;
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (strcmp(activations[i].name, name) == 0) {
            *out = activations[i].kind;
            return CLV_OK;
        }
    return clv_config_fail_unsupported(where, key, name,
                                       "gelu, gelu_python, gelu_new, gelu_pytorch_tanh, gelu_python_tanh, gelu_fast, "
                                       "gelu_accurate, relu, silu, swish, tanh",
                                       err);
}

const char *clv_config_activation_name(clv_unary_kind kind)
{
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (activations[i].kind == kind)
            return activations[i].name;
    return NULL;
}

/* The original context may also be a key of the model's own, which transformers 5 prefers and 4 does not read. */
static clv_status read_original_positions(clv_rope_options *rope, const json_t *model, const json_t *o,
                                          const char *where, clv_error *err)
{
    static const char original[] = "original_max_position_embeddings";
    int64_t outer = 0;

    CLV_TRY(clv_json_get_int(&outer, model, original, CLV_JSON_OPTIONAL, 1, CLV_MAX_POSITIONS, where, err));
    rope->original_positions = outer;
    CLV_TRY(clv_json_get_int(&rope->original_positions, o, original, outer ? CLV_JSON_OPTIONAL : CLV_JSON_REQUIRED, 1,
                             CLV_MAX_POSITIONS, where, err));
    if (outer && outer != rope->original_positions)
        return clv_fail(err, CLV_EFORMAT,
                        "%s: \"%s\" is %lld, and %lld in the scaling of rotary embedding; they must be equal", where,
                        original, (long long)outer, (long long)rope->original_positions);
    return CLV_OK;
}

/* Llama 3's scaling: all of it is stated. */
static clv_status read_llama3(clv_rope_options *rope, const json_t *model, const json_t *o, const char *where,
                              clv_error *err)
{
    CLV_TRY(clv_json_get_real(&rope->low_frequency, o, "low_freq_factor", CLV_JSON_REQUIRED, 1e-6, 1e6, where, err));
    CLV_TRY(clv_json_get_real(&rope->high_frequency, o, "high_freq_factor", CLV_JSON_REQUIRED, 1e-6, 1e6, where, err));
    CLV_TRY(read_original_positions(rope, model, o, where, err));
    if (rope->low_frequency >= rope->high_frequency)
        return clv_fail(err, CLV_EFORMAT, "%s: \"low_freq_factor\" %g must be below \"high_freq_factor\" %g", where,
                        rope->low_frequency, rope->high_frequency);
    return CLV_OK;
}

/* YaRN's, as transformers' _compute_yarn_parameters. */
static clv_status read_yarn(clv_model_config *c, const json_t *model, const json_t *o, const char *where,
                            clv_error *err)
{
    clv_rope_options *rope = &c->rope;
    bool truncate = true;

    rope->yarn = true;
    CLV_TRY(clv_json_get_real(&rope->high_frequency, o, "beta_fast", CLV_JSON_OPTIONAL, 0, 1e6, where, err));
    CLV_TRY(clv_json_get_real(&rope->low_frequency, o, "beta_slow", CLV_JSON_OPTIONAL, 0, 1e6, where, err));
    rope->high_frequency = rope->high_frequency > 0 ? rope->high_frequency : 32;
    rope->low_frequency = rope->low_frequency > 0 ? rope->low_frequency : 1;
    CLV_TRY(clv_json_get_bool(&truncate, o, "truncate", CLV_JSON_OPTIONAL, where, err));
    rope->yarn_exact = !truncate;
    CLV_TRY(clv_json_get_real(&c->yarn.mscale, o, "mscale", CLV_JSON_OPTIONAL, 0, 1e3, where, err));
    CLV_TRY(
        clv_json_get_real(&c->yarn.attention_factor, o, "attention_factor", CLV_JSON_OPTIONAL, 1e-6, 1e6, where, err));
    CLV_TRY(read_original_positions(rope, model, o, where, err));
    if (!(rope->low_frequency < rope->high_frequency))
        return clv_fail(err, CLV_EFORMAT, "%s: \"beta_slow\" %g must be below \"beta_fast\" %g", where,
                        rope->low_frequency, rope->high_frequency);
    return CLV_OK;
}

/* yarn_get_mscale of transformers. */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

double clv_config_rotary_scale(const clv_model_config *c)
{
    const double factor = c->rope.factor, all = c->yarn.mscale_all_dim;
    double amplitude = c->yarn.attention_factor;
    if (!c->rope.yarn)
        return 1;
    if (amplitude == 0)
        amplitude = c->yarn.mscale > 0 && all > 0 ? yarn_mscale(factor, c->yarn.mscale) / yarn_mscale(factor, all)
                                                  : yarn_mscale(factor, 1);
    return amplitude * amplitude;
}

double clv_config_score_scale(const clv_model_config *c)
{
    const double scale = c->yarn.mscale_all_dim > 0 ? yarn_mscale(c->rope.factor, c->yarn.mscale_all_dim) : 1;
    return scale * scale / sqrt((double)(c->plain_dim + c->rotary_dim));
}

/* "type" is the old name of "rope_type". Latent attention, which has rotated elements beside others, takes yarn, too.
 */
static clv_status read_scaling(clv_model_config *c, const json_t *model, const json_t *o, bool scaled,
                               const char *where, clv_error *err)
{
    static const char known[] = "default, linear, llama3", known_of_latents[] = "default, linear, llama3, yarn";
    const bool latent = c->kv_rank > 0;
    clv_rope_options *rope = &c->rope;
    const char *kind = NULL;

    CLV_TRY(clv_json_get_string(&kind, o, "type", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_get_string(&kind, o, "rope_type", CLV_JSON_OPTIONAL, where, err));
    if (kind == NULL || strcmp(kind, "default") == 0)
        return CLV_OK;
    const bool llama3 = strcmp(kind, "llama3") == 0, yarn = latent && strcmp(kind, "yarn") == 0;
    if (!scaled || (!llama3 && !yarn && strcmp(kind, "linear") != 0))
        return clv_config_fail_unsupported(where, "rope_type", kind,
                                           !scaled  ? "default"
                                           : latent ? known_of_latents
                                                    : known,
                                           err);
    CLV_TRY(clv_json_get_real(&rope->factor, o, "factor", CLV_JSON_REQUIRED, 1e-6, 1e6, where, err));
    if (latent)
        CLV_TRY(clv_json_get_real(&c->yarn.mscale_all_dim, o, "mscale_all_dim", CLV_JSON_OPTIONAL, 0, 1e3, where, err));
    return llama3 ? read_llama3(rope, model, o, where, err) : yarn ? read_yarn(c, model, o, where, err) : CLV_OK;
}

/* Heads are rotated whole. */
static clv_status check_share(const json_t *o, const char *where, clv_error *err)
{
    double share = 1;

    CLV_TRY(clv_json_get_real(&share, o, "partial_rotary_factor", CLV_JSON_OPTIONAL, 0, 1, where, err));
    if (share != 1)
        return clv_config_fail_unsupported(where, "partial_rotary_factor", "less than 1", "1", err);
    return CLV_OK;
}

/* The object that describes rotary embedding: its scaling, and its theta where it has one. */
static clv_status read_rope(clv_model_config *c, const json_t *model, const char *key, bool scaled, const char *where,
                            clv_error *err)
{
    static const char *const needed[] = {"type", "rope_type", "rope_theta"};
    json_t *o = json_object_get(model, key), *value;
    const char *name;

    if (o == NULL || json_is_null(o))
        return CLV_OK;
    if (!json_is_object(o))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be an object", where, key);
    json_object_foreach(o, name, value)
    {
        if (json_is_object(value))
            return clv_config_fail_unsupported(where, key, name, "one for layers of all kinds", err);
    }
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (json_is_null(json_object_get(o, needed[i]))) /* no other key, and no default, stands in for it */
            return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" of \"%s\" is null; valid: a value, or no such key", where,
                            needed[i], key);
    CLV_TRY(read_scaling(c, model, o, scaled, where, err));
    CLV_TRY(check_share(o, where, err));
    return clv_json_get_real(&c->rope.theta, o, "rope_theta", CLV_JSON_OPTIONAL, 1e-3, 1e12, where, err);
}

clv_status clv_config_read_rope(clv_model_config *c, const json_t *o, bool scaled, const char *where, clv_error *err)
{
    json_t *old = json_object_get(o, "rope_scaling");
    bool empty = old == NULL || json_is_null(old) || (json_is_object(old) && json_object_size(old) == 0);

    c->rope.theta = c->rope.theta > 0 ? c->rope.theta : 10000;
    CLV_TRY(clv_json_get_real(&c->rope.theta, o, "rope_theta", CLV_JSON_OPTIONAL, 1e-3, 1e12, where, err));
    CLV_TRY(check_share(o, where, err));
    return read_rope(c, o, empty ? "rope_parameters" : "rope_scaling", scaled, where, err);
}

static json_t *yarn_to_json(const clv_model_config *c)
{
    const clv_rope_options *rope = &c->rope;
    json_t *o = json_pack("{s:f, s:s, s:f, s:f, s:f, s:I, s:b}", "rope_theta", rope->theta, "rope_type", "yarn",
                          "factor", rope->factor, "beta_slow", rope->low_frequency, "beta_fast", rope->high_frequency,
                          "original_max_position_embeddings", (json_int_t)rope->original_positions, "truncate",
                          !rope->yarn_exact);
    if (o && c->yarn.mscale > 0)
        json_object_set_new(o, "mscale", json_real(c->yarn.mscale));
    if (o && c->yarn.attention_factor > 0)
        json_object_set_new(o, "attention_factor", json_real(c->yarn.attention_factor));
    return o;
}

static json_t *scaling_to_json(const clv_rope_options *rope)
{
    if (rope->factor == 0)
        return json_pack("{s:f, s:s}", "rope_theta", rope->theta, "rope_type", "default");
    if (rope->high_frequency == 0)
        return json_pack("{s:f, s:s, s:f}", "rope_theta", rope->theta, "rope_type", "linear", "factor", rope->factor);
    return json_pack("{s:f, s:s, s:f, s:f, s:f, s:I}", "rope_theta", rope->theta, "rope_type", "llama3", "factor",
                     rope->factor, "low_freq_factor", rope->low_frequency, "high_freq_factor", rope->high_frequency,
                     "original_max_position_embeddings", (json_int_t)rope->original_positions);
}

json_t *clv_config_rope_to_json(const clv_model_config *c)
{
    json_t *o = c->rope.yarn ? yarn_to_json(c) : scaling_to_json(&c->rope);
    if (o && c->yarn.mscale_all_dim > 0)
        json_object_set_new(o, "mscale_all_dim", json_real(c->yarn.mscale_all_dim));
    return o;
}

/* No text begins or ends with what it cannot have: transformers keeps GPT-2's own ids in the config of any smaller
 * vocabulary. */
static int64_t token_in(const clv_model_config *c, int64_t id)
{
    return id >= 0 && id < c->vocab ? id : -1;
}

static clv_status read_token(int64_t *token, const clv_model_config *c, const json_t *o, const char *key,
                             const char *where, clv_error *err)
{
    CLV_TRY(clv_json_get_int(token, o, key, CLV_JSON_OPTIONAL, -1, INT32_MAX, where, err));
    *token = token_in(c, *token);
    return CLV_OK;
}

static clv_status read_ends(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    int n = 0;
    CLV_TRY(clv_json_get_ints(c->eos, &n, CLV_CONFIG_EOS, o, "eos_token_id", CLV_JSON_OPTIONAL, INT32_MIN, INT32_MAX,
                              where, err));
    c->n_eos = 0;
    for (int i = 0; i < n; i++)
        if (token_in(c, c->eos[i]) >= 0)
            c->eos[c->n_eos++] = c->eos[i];
    return CLV_OK;
}

clv_status clv_config_read_special_tokens(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    /* transformers gives it to the embedding, which must have such a row; not GPT-2's */
    int64_t most_pad = c->family->allows_pad_outside_vocab ? INT32_MAX : c->vocab - 1;
    CLV_TRY(read_token(&c->bos, c, o, "bos_token_id", where, err));
    CLV_TRY(clv_json_get_int(&c->pad, o, "pad_token_id", CLV_JSON_OPTIONAL, -1, most_pad, where, err));
    c->pad = token_in(c, c->pad);
    if (json_is_array(json_object_get(o, "eos_token_id")))
        return read_ends(c, o, where, err);
    c->eos[0] = -1;
    CLV_TRY(read_token(&c->eos[0], c, o, "eos_token_id", where, err));
    c->n_eos = c->eos[0] >= 0;
    return CLV_OK;
}

json_t *clv_config_token_to_json(int64_t token)
{
    return token >= 0 ? json_integer(token) : json_null();
}

json_t *clv_config_eos_to_json(const clv_model_config *c)
{
    json_t *list;

    if (c->n_eos <= 1)
        return c->n_eos == 1 ? json_integer(c->eos[0]) : json_null();
    list = json_array();
    for (int i = 0; i < c->n_eos; i++)
        json_array_append_new(list, json_integer(c->eos[i]));
    return list;
}
