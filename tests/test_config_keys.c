/* test_config_keys.c - every key that transformers and PEFT know in config.json and adapter_config.json is known here
 * (tests/golden/check_config_keys.py lists them), and each value of one that would change a forward pass is refused by
 * name or read, as transformers' results say. */
#include <stdio.h>
#include <string.h>

#include "golden_path.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "models/adapters/peft_config.h"
#include "models/config/config_keys.h"
#include "models/config/model_config.h"
#include "models/families/family_registry.h"
#include "temp_folder.h"
#include "unit_test.h"

static json_t *list;

static int read_list(void **state)
{
    clv_error err = {0};
    if (make_folder(state) != 0)
        return -1;
    if (clv_json_load(&list, golden_path("config_keys.json"), 1 << 20, &err) == CLV_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return -1;
}

static int drop_list(void **state)
{
    json_decref(list);
    return remove_folder(state);
}

static const char *const families[] = {"llama", "mistral", "qwen2",     "gpt2",     "esm",
                                       "bert",  "mixtral", "qwen2_moe", "qwen3_moe"};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

static void knows_all(const char *family, const char *list_name)
{
    const json_t *keys = json_object_get(list, list_name), *key;
    size_t i;
    assert_true(json_array_size(keys) > 20);
    json_array_foreach(keys, i, key)
    {
        if (!clv_config_json_knows_key(clv_families_find(family), json_string_value(key)))
            fail_msg("%s: \"%s\" is not known", family, json_string_value(key));
    }
}

static void test_config_keys(void **state)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        knows_all(families[f], "every family");
        knows_all(families[f], families[f]);
        assert_false(clv_config_json_knows_key(clv_families_find(families[f]), "logit_scale"));
    }
    assert_true(clv_config_json_knows_key(clv_families_find("qwen2"), "max_window_layers"));
    assert_false(clv_config_json_knows_key(clv_families_find("llama"), "max_window_layers"));
}

static void test_adapter_keys(void **state)
{
    const json_t *keys = json_object_get(list, "LORA"), *key;
    size_t i;
    assert_true(json_array_size(keys) > 30);
    json_array_foreach(keys, i, key)
    {
        if (!clv_peft_config_knows_key(json_string_value(key)))
            fail_msg("\"%s\" is not known", json_string_value(key));
    }
    assert_false(clv_peft_config_knows_key("enable_lora"));
}

/* ---- values ---- */

static clv_status read_with(clv_model_config *c, const char *family, const char *more, clv_error *err)
{
    static const char form[] = "\"hidden_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                               "\"num_key_value_heads\":2,\"intermediate_size\":32,\"vocab_size\":41,"
                               "\"max_position_embeddings\":64";
    char text[2048];
    bool is_gpt2 = strcmp(family, "gpt2") == 0, is_esm = strcmp(family, "esm") == 0;
    bool is_windowed = strcmp(family, "mistral") == 0;
    const char *sizes =
        is_gpt2 ? "\"n_embd\":24,\"n_layer\":2,\"n_head\":4,\"n_positions\":64,\"vocab_size\":41" : form;
    json_t *base, *own;
    snprintf(text, sizeof text, "{\"model_type\":\"%s\",%s%s}", family, sizes,
             is_esm        ? ",\"position_embedding_type\":\"rotary\""
             : is_windowed ? ",\"sliding_window\":null"
                           : "");
    base = json_loads(text, 0, NULL);
    snprintf(text, sizeof text, "{%s}", more);
    own = json_loads(text, 0, NULL);
    assert_non_null(base);
    assert_non_null(own);
    assert_int_equal(json_object_update(base, own), 0);
    assert_int_equal(json_dump_file(base, in_folder("config.json"), 0), 0);
    json_decref(base);
    json_decref(own);
    return clv_model_config_read(c, in_folder("config.json"), err);
}

/* Families are named, by words; "all" are those of the list. */
static bool is_among(const char *names, const char *family)
{
    const size_t n = strlen(family);
    bool is = strcmp(names, "all") == 0;
    for (const char *at = names; !is && (at = strstr(at, family)) != NULL; at += n)
        is = (at == names || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0');
    return is;
}

/* What must be refused, by the key's name. */
static void test_refused(void **state)
{
    static const struct {
        const char *families, *key, *text;
    } cases[] = {
        {"llama mistral qwen2 gpt2", "\"is_causal\": false", "\"is_causal\":false"},
        {"esm bert", "\"is_causal\": true", "\"is_causal\":true"},
        {"esm bert", "\"is_decoder\": true", "\"is_decoder\":true"},
        {"all", "is_encoder_decoder", "\"is_encoder_decoder\":true"},
        {"all", "must be true or false", "\"is_encoder_decoder\":1"},
        {"all", "add_cross_attention", "\"add_cross_attention\":true"},
        {"all", "\"per_layer_config\": {\"0\":{\"rms_norm_eps\":0.5}}",
         "\"per_layer_config\":{\"0\":{\"rms_norm_eps\":0.5}}"},
        {"all", "pruned_heads", "\"pruned_heads\":{\"0\":[1]}"},
        {"all", "configuration_files", "\"configuration_files\":[\"config.4.0.0.json\"]"},
        {"all", "transformers_weights", "\"transformers_weights\":\"other.safetensors\""},
        {"all", "quantization_config", "\"quantization_config\":{\"quant_method\":\"fp8\"}"},
        {"all", "compression_config", "\"compression_config\":{\"format\":\"dense\"}"},
        {"all", "\"quantization\"", "\"quantization\":{\"bits\":4}"},
        {"all", "architectures", "\"architectures\":[\"LlamaForSequenceClassification\"]"},
        {"all", "\"tie_word_embeddings\" is null", "\"tie_word_embeddings\":null"},
        {"llama mistral qwen2 esm bert", "pad_token_id", "\"pad_token_id\":41"},
        {"all", "must be a list", "\"architectures\":\"x\""},
        {"llama gpt2", "\"sliding_window\": 3", "\"sliding_window\":3"},
        {"llama gpt2", "layer_types", "\"layer_types\":[\"full_attention\",\"sliding_attention\"]"},
        {"mistral qwen2", "layer_types", "\"layer_types\":[\"full_attention\",\"linear_attention\"]"},
        {"llama mistral qwen2 gpt2", "attention_chunk_size", "\"attention_chunk_size\":3"},
        {"llama mistral qwen2 gpt2", "kv_sharing_modes", "\"kv_sharing_modes\":[\"reuse\",\"reuse\"]"},
        {"llama mistral qwen2 esm", "\"rope_theta\" is null", "\"rope_theta\":null"},
        {"llama mistral qwen2 esm", "partial_rotary_factor", "\"partial_rotary_factor\":0.5"},
        {"llama mistral qwen2", "supported: default, linear, llama3", "\"rope_scaling\":{\"rope_type\":\"yarn\"}"},
        {"llama mistral qwen2", "supported: default, linear, llama3",
         "\"rope_parameters\":{\"rope_type\":\"longrope\"}"},
        {"esm", "\"rope_theta\" is 10000, and 500", "\"rope_parameters\":{\"rope_theta\":500.0}"},
        {"esm", "\"head_dim\" 8", "\"head_dim\":8"},
        {"esm bert", "position_embedding_type", "\"position_embedding_type\":\"relative_key\""},
        {"esm", "is_folding_model", "\"is_folding_model\":true"},
        {"llama mistral qwen2", "supported: silu, swish", "\"hidden_act\":\"relu\""},
        {"llama mistral qwen2 bert esm", "\"hidden_act\" is null", "\"hidden_act\":null"},
        {"gpt2", "\"activation_function\" is null", "\"activation_function\":null"},
        {"llama mistral qwen2", "\"rms_norm_eps\" is null", "\"rms_norm_eps\":null"},
        {"esm bert", "\"layer_norm_eps\" is null", "\"layer_norm_eps\":null"},
        {"gpt2", "\"layer_norm_epsilon\" is null", "\"layer_norm_epsilon\":null"},
        {"gpt2", "\"scale_attn_weights\" is null", "\"scale_attn_weights\":null"},
        {"gpt2", "scale_attn_by_inverse_layer_idx", "\"scale_attn_by_inverse_layer_idx\":true"},
        {"qwen2", "\"max_window_layers\" is null", "\"max_window_layers\":null"},
        {"mixtral qwen3_moe", "layer_types", "\"layer_types\":[\"full_attention\"]"},
        {"mixtral qwen2_moe qwen3_moe", "valid: 1 to", "\"num_experts_per_tok\":2000"},
        {"mixtral qwen2_moe qwen3_moe", "moe_expert_capacity_factor", "\"moe_expert_capacity_factor\":-1"},
        {"mixtral qwen2_moe qwen3_moe", "num_experts_per_tok", "\"num_experts_per_tok\":0"},
        {"mixtral qwen2_moe qwen3_moe", "\"num_experts_per_tok\" is null", "\"num_experts_per_tok\":null"},
        {"mixtral qwen3_moe", "num_local_experts", "\"num_local_experts\":4000"},
        {"mixtral", "router_jitter_noise", "\"router_jitter_noise\":0.1"},
        {"qwen2_moe qwen3_moe", "mlp_only_layers", "\"mlp_only_layers\":1"},
        {"qwen2_moe qwen3_moe", "mlp_only_layers", "\"mlp_only_layers\":[0,\"1\"]"},
        {"qwen2_moe qwen3_moe", "mlp_only_layers", "\"mlp_only_layers\":[-1]"},
        {"qwen2_moe qwen3_moe", "decoder_sparse_step", "\"decoder_sparse_step\":0"},
        {"qwen2_moe qwen3_moe", "use_sliding_window", "\"use_sliding_window\":true"},
        {"mixtral qwen2_moe qwen3_moe", "partial_rotary_factor", "\"partial_rotary_factor\":0.5"},
        {"all", "\"torch_dtype\": bf16", "\"torch_dtype\":\"bf16\""},
        {"all", "\"torch_dtype\": Float32", "\"torch_dtype\":\"Float32\""},
        {"all", "float32 or float, bfloat16, float16 or half, float64 or double", "\"dtype\":\"int8\""},
        {"all", "\"dtype\": bf16", "\"dtype\":\"bf16\",\"torch_dtype\":\"float32\""},
        {"all", "torch_dtype", "\"torch_dtype\":32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int f = 0; f < N_FAMILIES; f++) {
            clv_model_config c;
            clv_error err = {0};
            if (!is_among(cases[i].families, families[f]))
                continue;
            clv_status status = read_with(&c, families[f], cases[i].text, &err);
            if (status != CLV_EUNSUPPORTED && status != CLV_EFORMAT)
                fail_msg("%s, %s: %s", families[f], cases[i].text, clv_status_name(status));
            if (strstr(err.message, cases[i].key) == NULL)
                fail_msg("%s, %s: '%s' does not say %s", families[f], cases[i].text, err.message, cases[i].key);
        }
}

/* What changes nothing: the model is as without the key. */
static void test_ignored(void **state)
{
    static const struct {
        const char *families, *text;
    } cases[] = {
        {"all", "\"torch_dtype\":\"auto\""},
        {"all", "\"torch_dtype\":\"torch.bfloat16\",\"dtype\":null"},
        {"all", "\"torch_dtype\":\"half\""},
        {"all", "\"torch_dtype\":\"float\""},
        {"all", "\"dtype\":\"double\""},
        {"all", "\"dtype\":\"torch.float64\""},
        {"all", "\"dtype\":\"float16\",\"torch_dtype\":\"int8\""}, /* "dtype" counts */
        {"all", "\"use_cache\":false,\"initializer_range\":0.5,\"attention_dropout\":0.5,\"num_labels\":7"},
        {"all", "\"id2label\":{\"0\":\"a\"},\"problem_type\":\"regression\",\"chunk_size_feed_forward\":2"},
        {"all", "\"is_encoder_decoder\":null,\"per_layer_config\":{},\"pruned_heads\":{},\"architectures\":null"},
        {"all", "\"temperature\":0.5,\"num_beams\":4,\"output_hidden_states\":true,\"unheard_of\":[1]"},
        {"all", "\"quantization_config\":null,\"is_causal\":null,\"sliding_window\":null,\"layer_types\":null"},
        {"llama", "\"pretraining_tp\":2,\"attention_bias\":null,\"sliding_window\":64,\"is_causal\":true"},
        {"llama mistral qwen2", "\"layer_types\":[\"full_attention\",\"attention\"],\"sliding_window\":null"},
        {"llama mistral qwen2",
         "\"rope_theta\":10000,\"rope_parameters\":{},\"rope_scaling\":null,\"hidden_act\":\"swish\""},
        {"llama mistral qwen2", "\"head_dim\":null,\"partial_rotary_factor\":1.0,\"is_decoder\":true"},
        {"mistral qwen2", "\"attention_bias\":true,\"mlp_bias\":true"},
        {"qwen2_moe qwen3_moe", "\"max_window_layers\":1,\"sliding_window\":3,\"mlp_only_layers\":null"},
        {"qwen2_moe qwen3_moe", "\"mlp_only_layers\":[700]"}, /* transformers asks whether a layer is listed */
        {"gpt2", "\"n_inner\":null,\"n_ctx\":8,\"resid_pdrop\":0.5,\"summary_type\":\"mean\",\"hidden_size\":24"},
        {"gpt2 bert", "\"rope_theta\":5,\"rope_scaling\":{\"rope_type\":\"yarn\"},\"head_dim\":9,\"hidden_size\":24"},
        {"esm bert", "\"sliding_window\":3,\"layer_types\":[\"sliding_attention\",\"full_attention\"]"},
        {"esm bert", "\"is_decoder\":null,\"attention_chunk_size\":3,\"embedding_size\":8,\"is_causal\":false"},
        {"esm", "\"head_dim\":6,\"rope_theta\":10000.0,\"vocab_list\":[\"a\"],\"esmfold_config\":{\"trunk\":{}}"},
        {"bert", "\"classifier_dropout\":0.3,\"pooler_type\":\"first_token_transform\",\"hidden_act\":\"gelu_python\""},
        {"all", "\"architectures\":[]"},
        {"llama", "\"architectures\":[\"LLaMAForCausalLM\"]"},
        {"gpt2", "\"pad_token_id\":50257"}, /* of a vocabulary that was not resized */
        {"gpt2", "\"activation_function\":\"gelu_accurate\""},
        {"gpt2", "\"activation_function\":\"gelu_python_tanh\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int f = 0; f < N_FAMILIES; f++) {
            clv_model_config c = {0}, plain = {0};
            clv_error err = {0};
            if (!is_among(cases[i].families, families[f]))
                continue;
            if (read_with(&plain, families[f], "", &err) != CLV_OK ||
                read_with(&c, families[f], cases[i].text, &err) != CLV_OK)
                fail_msg("%s, %s: %s", families[f], cases[i].text, err.message);
            if (memcmp(&c, &plain, sizeof c) != 0)
                fail_msg("%s, %s: another model", families[f], cases[i].text);
        }
}

/* GPT-2's sizes under the names of the other families. */
static void test_aliases(void **state)
{
    static const char text[] = "{\"model_type\":\"gpt2\",\"hidden_size\":24,\"num_hidden_layers\":3,"
                               "\"num_attention_heads\":4,\"max_position_embeddings\":8,\"vocab_size\":41}";
    clv_model_config c;
    assert_int_equal(clv_file_write(in_folder("config.json"), text, strlen(text), NULL), CLV_OK);
    assert_int_equal(clv_model_config_read(&c, in_folder("config.json"), NULL), CLV_OK);
    assert_true(c.hidden == 24 && c.layers == 3 && c.heads == 4 && c.max_positions == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_config_keys), cmocka_unit_test(test_adapter_keys),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_ignored),
                                       cmocka_unit_test(test_aliases)};
    return cmocka_run_group_tests(tests, read_list, drop_list);
}
