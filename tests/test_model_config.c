/* test_model_config.c - config.json of each family, in the spellings of transformers 4 and 5: what is read, what is
 * refused by name, and that what is written is read again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/file.h"
#include "io/json/json.h"
#include "models/config/model_config.h"
#include "temp_folder.h"
#include "unit_test.h"

/* ---- all families ---- */

static clv_status read_text(clv_model_config *c, const char *text, clv_error *err)
{
    assert_int_equal(clv_file_write(in_folder("config.json"), text, strlen(text), NULL), CLV_OK);
    return clv_model_config_read(c, in_folder("config.json"), err);
}

typedef struct bad_config {
    const char *key; /* the message names it */
    const char *text;
} bad_config;

static void all_refused(const bad_config *cases, size_t n)
{
    clv_model_config untouched = {.hidden = 77}, c = untouched;

    for (size_t i = 0; i < n; i++) {
        clv_error err = {0};
        clv_status status = read_text(&c, cases[i].text, &err);
        if (status != CLV_EFORMAT && status != CLV_EUNSUPPORTED)
            fail_msg("%s: %s", cases[i].text, clv_status_name(status));
        if (strstr(err.message, cases[i].key) == NULL)
            fail_msg("'%s' does not name %s", err.message, cases[i].key);
        assert_memory_equal(&c, &untouched, sizeof c);
    }
}

static void must_read(clv_model_config *c, const char *text)
{
    clv_error err = {0};

    if (read_text(c, text, &err) != CLV_OK)
        fail_msg("%s: %s", text, err.message);
}

/* What is written is read again. */
static void round_trip(const clv_model_config *model)
{
    clv_model_config c = {0};

    assert_int_equal(clv_model_config_write(model, CLV_F32, in_folder("config.json"), NULL), CLV_OK);
    assert_int_equal(clv_model_config_read(&c, in_folder("config.json"), NULL), CLV_OK);
    assert_memory_equal(&c, model, sizeof c);
}

/* ---- llama ---- */

#define SIZES                                                                                                          \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"intermediate_size\":96,\"vocab_size\":256,"
#define GOOD SIZES "\"num_attention_heads\":8"

static void test_llama_spellings(void **state)
{
    clv_model_config c = {0};

    assert_int_equal(read_text(&c, "{" GOOD "}", NULL), CLV_OK);
    assert_int_equal(c.head_dim, 8);
    assert_int_equal(c.kv_heads, 8);
    assert_true(c.rope.theta == 10000 && c.norm_eps == 1e-6);
    assert_int_equal(c.bos, -1);
    assert_int_equal(c.n_eos, 0);
    assert_int_equal(read_text(&c,
                               "{" GOOD ",\"rope_theta\":500000.0,\"rope_scaling\":null,\"torch_dtype\":"
                               "\"bfloat16\",\"eos_token_id\":[1,2],\"num_key_value_heads\":2,\"head_dim\":16,"
                               "\"auto_map\":{\"AutoModel\":\"x.py\"},\"unknown\":[{}]}",
                               NULL),
                     CLV_OK);
    assert_true(c.rope.theta == 500000);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos[1], 2);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(read_text(&c,
                               "{" GOOD ",\"rope_parameters\":{\"rope_theta\":2e6,\"rope_type\":\"default\"},"
                               "\"dtype\":\"float32\",\"eos_token_id\":3}",
                               NULL),
                     CLV_OK);
    assert_true(c.rope.theta == 2e6);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 3);
    assert_int_equal(clv_model_config_read(&c, folder, NULL), CLV_OK);
}

static void test_llama_refused(void **state)
{
    static const bad_config cases[] = {
        {"object", "[]"},
        {"model_type", "{\"hidden_size\":64}"},
        {"supported: llama, mistral, qwen2, gpt2, esm", "{\"model_type\":\"mamba\"}"},
        {"architectures", "{" GOOD ",\"architectures\":[\"GPT2LMHeadModel\"]}"},
        {"architectures", "{" GOOD ",\"architectures\":\"LlamaForCausalLM\"}"},
        {"num_attention_heads", "{" SIZES "\"num_attention_heads\":0}"},
        {"num_attention_heads", "{" SIZES "\"x\":0}"},
        {"hidden_size", "{" SIZES "\"num_attention_heads\":7}"},
        {"head_dim", "{" SIZES "\"num_attention_heads\":64}"},
        {"head_dim", "{" GOOD ",\"head_dim\":7}"},
        {"num_key_value_heads", "{" GOOD ",\"num_key_value_heads\":0}"},
        {"num_key_value_heads", "{" GOOD ",\"num_key_value_heads\":16}"},
        {"num_key_value_heads", "{" GOOD ",\"num_key_value_heads\":3}"},
        {"num_hidden_layers", "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":-1}"},
        {"num_hidden_layers", "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":1000000}"},
        {"num_hidden_layers", "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2.0}"},
        {"vocab_size", "{" GOOD ",\"head_dim\":8,\"vocab_size\":0}"},
        {"max_position_embeddings", "{" GOOD ",\"max_position_embeddings\":9000000000000}"},
        {"rms_norm_eps", "{" GOOD ",\"rms_norm_eps\":0}"},
        {"rms_norm_eps", "{" GOOD ",\"rms_norm_eps\":-1e-5}"},
        {"\"rms_norm_eps\" must be a finite number", "{" GOOD ",\"rms_norm_eps\":NaN}"},
        {"\"rms_norm_eps\" must be a finite number", "{" GOOD ",\"rms_norm_eps\":1e400}"},
        {"\"vocab_size\" is 1e+30, valid are integers from 1 to", "{" GOOD ",\"vocab_size\":1e30}"},
        {"rope_theta", "{" GOOD ",\"rope_theta\":0}"},
        {"rope_theta", "{" GOOD ",\"rope_parameters\":{\"rope_theta\":-1}}"},
        {"rope_type", "{" GOOD ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8}}"},
        {"supported: default, linear, llama3", "{" GOOD ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":8}}"},
        {"low_freq_factor", "{" GOOD ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}"},
        {"original_max_position_embeddings", "{" GOOD ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                                             "\"low_freq_factor\":1,\"high_freq_factor\":4}}"},
        {"must be below", "{" GOOD ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
                          "\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}"},
        {"\"factor\"", "{" GOOD ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}"},
        {"partial_rotary_factor", "{" GOOD ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}"},
        {"partial_rotary_factor", "{" GOOD ",\"partial_rotary_factor\":0.5}"},
        {"full_attention", "{" GOOD ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6}}}"},
        {"rope_scaling", "{" GOOD ",\"rope_scaling\":\"linear\"}"},
        {"\"type\" of \"rope_scaling\" is null", "{" GOOD ",\"rope_scaling\":{\"type\":null,\"factor\":2}}"},
        {"\"rope_theta\" of \"rope_parameters\" is null", "{" GOOD ",\"rope_parameters\":{\"rope_theta\":null}}"},
        {"must be equal",
         "{" GOOD ",\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"rope_type\":\"llama3\","
         "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":8192}}"},
        {"hidden_act", "{" GOOD ",\"hidden_act\":\"gelu_new\"}"},
        {"torch_dtype", "{" GOOD ",\"torch_dtype\":\"float8\"}"},
        {"dtype", "{" GOOD ",\"dtype\":\"int4\"}"},
        {"quantization_config", "{" GOOD ",\"quantization_config\":{}}"},
        {"attention_bias", "{" GOOD ",\"attention_bias\":\"yes\"}"},
        {"mlp_bias", "{" GOOD ",\"mlp_bias\":1}"},
        {"tie_word_embeddings", "{" GOOD ",\"tie_word_embeddings\":1}"},
        {"bos_token_id", "{" GOOD ",\"bos_token_id\":-2}"},
        {"bos_token_id", "{" GOOD ",\"bos_token_id\":2147483648}"},
        {"eos_token_id", "{" GOOD ",\"eos_token_id\":[0,\"1\"]}"},
    };
    all_refused(cases, sizeof cases / sizeof cases[0]);
}

static void test_size_and_depth(void **state)
{
    size_t size = (1 << 20) + 1;
    char *text = malloc(size + 1);
    clv_model_config c;

    memset(text, ' ', size);
    memcpy(text, "{" GOOD "}", strlen("{" GOOD "}"));
    text[size] = '\0';
    assert_int_equal(read_text(&c, text, NULL), CLV_ELIMIT);
    text[size - 1] = '\0';
    assert_int_equal(read_text(&c, text, NULL), CLV_OK);
    memset(text, '[', size - 1);
    assert_int_equal(read_text(&c, text, NULL), CLV_EFORMAT);
    free(text);
}

/* Ids that no text can have begin and end none. */
static void test_tokens_beyond(void **state)
{
    clv_model_config c;
    must_read(&c, "{" GOOD ",\"bos_token_id\":256,\"eos_token_id\":256}");
    assert_true(c.bos == -1 && c.n_eos == 0);
    must_read(&c, "{" GOOD ",\"bos_token_id\":255,\"eos_token_id\":[256,-1,3,50256,255]}");
    assert_true(c.bos == 255 && c.n_eos == 2 && c.eos[0] == 3 && c.eos[1] == 255);
}

static void test_llama_round_trip(void **state)
{
    clv_model_config c = {0};

    must_read(&c, "{" GOOD ",\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11]}"); /* more than clv_model_info has */
    assert_true(c.n_eos == 12 && c.eos[11] == 11);
    round_trip(&c);
    must_read(&c, "{" GOOD ",\"eos_token_id\":[1,2],\"bos_token_id\":3,\"rope_theta\":5e5}");
    assert_false(c.qkv_bias || c.output_bias || c.mlp_bias);
    round_trip(&c);
    must_read(&c, "{" GOOD ",\"attention_bias\":true}");
    assert_true(c.qkv_bias && c.output_bias && !c.mlp_bias);
    round_trip(&c);
    must_read(&c, "{" GOOD ",\"attention_bias\":false,\"mlp_bias\":true}");
    assert_true(!c.qkv_bias && !c.output_bias && c.mlp_bias);
    round_trip(&c);
    must_read(&c, "{" GOOD ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}");
    assert_true(c.rope.factor == 2.5 && c.rope.high_frequency == 0);
    round_trip(&c);
    must_read(&c, "{" GOOD ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":5e5,\"factor\":8,"
                  "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}");
    assert_true(c.rope.theta == 5e5 && c.rope.factor == 8 && c.rope.original_positions == 8192);
    round_trip(&c);
    must_read(&c, "{" GOOD ",\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"rope_type\":\"llama3\","
                  "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}}");
    assert_int_equal(c.rope.original_positions, 4096);
    round_trip(&c);
    must_read(&c, "{" GOOD ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"rope_theta\":5e5,"
                  "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":3,\"rope_theta\":7}}");
    assert_true(c.rope.factor == 2 && c.rope.theta == 5e5); /* as in transformers, the old key counts */
    must_read(&c, "{" GOOD ",\"rope_scaling\":{},\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":3}}");
    assert_true(c.rope.factor == 3);
    c.kv_heads = 5;
    assert_int_equal(clv_model_config_write(&c, CLV_F32, in_folder("config.json"), NULL), CLV_EINVAL);
}

/* ---- mistral, qwen2 ---- */

#define FORM                                                                                                           \
    "\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"num_key_value_heads\":8,"                  \
    "\"intermediate_size\":96,\"vocab_size\":256"
#define MISTRAL "\"model_type\":\"mistral\"," FORM
#define QWEN2   "\"model_type\":\"qwen2\"," FORM

#define MIXED "[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]"

#define HEADS                                                                                                          \
    "\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":32,\"intermediate_size\":96,\"vocab_size\":"   \
    "256"

/* The default of num_key_value_heads is a number of their own; null is as many as query heads. */
static void test_kv_heads(void **state)
{
    clv_model_config c = {0};

    must_read(&c, "{\"model_type\":\"mistral\"," HEADS "}");
    assert_int_equal(c.kv_heads, 8);
    must_read(&c, "{\"model_type\":\"mistral\"," HEADS ",\"num_key_value_heads\":null}");
    assert_int_equal(c.kv_heads, 32);
}

/* shape: a digit a layer, 1 for those with a window. */
static void windows_are(const clv_model_config *c, int64_t window, const char *shape)
{
    assert_int_equal(c->window, window);
    for (int64_t i = 0; i < c->layers; i++)
        assert_int_equal(clv_model_config_window(c, i), shape[i] == '1' ? window : 0);
}

/* More layers than a byte of the mask has bits, none like the one four or eight before. */
static void test_windows_of_many_layers(void **state)
{
    static const char shape[] = "11010010110100111";
    char text[2048];
    clv_model_config c = {0};
    size_t n = (size_t)snprintf(text, sizeof text,
                                "{\"model_type\":\"mistral\",\"hidden_size\":64,\"num_hidden_layers\":%d,"
                                "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":96,"
                                "\"vocab_size\":256,\"sliding_window\":7,\"layer_types\":[",
                                (int)strlen(shape));
    for (int i = 0; shape[i]; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%s_attention\"", i ? "," : "",
                              shape[i] == '1' ? "sliding" : "full");
    snprintf(text + n, sizeof text - n, "]}");
    must_read(&c, text);
    windows_are(&c, 7, shape);
    round_trip(&c);
}

static void test_windows(void **state)
{
    static const bad_config cases[] = {
        {"sliding_window", "{" MISTRAL ",\"sliding_window\":0}"},
        {"layer_types", "{" QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\"]}"},
        {"must be a list of 4 names", "{" QWEN2 ",\"layer_types\":\"full_attention\"}"},
        {"without \"sliding_window\"", "{" QWEN2 ",\"layer_types\":" MIXED "}"},
        {"without \"sliding_window\"", "{" MISTRAL ",\"sliding_window\":null,\"layer_types\":" MIXED "}"},
        {"not a name", "{" MISTRAL ",\"layer_types\":[1,1,1,1]}"},
        {"max_window_layers", "{" QWEN2 ",\"max_window_layers\":-1}"},
        {"chunked_attention", "{" MISTRAL ",\"layer_types\":[\"chunked_attention\",1,1,1]}"},
    };
    clv_model_config c = {0};

    must_read(&c, "{" MISTRAL "}");
    windows_are(&c, 4096, "1111");
    assert_false(c.qkv_bias);
    round_trip(&c);
    must_read(&c, "{" MISTRAL ",\"sliding_window\":null}");
    windows_are(&c, 0, "0000");
    round_trip(&c);
    must_read(&c, "{" QWEN2 ",\"sliding_window\":7}");
    windows_are(&c, 0, "0000");
    assert_true(c.qkv_bias && !c.output_bias && !c.mlp_bias);
    round_trip(&c);
    must_read(&c, "{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":7,\"max_window_layers\":3}");
    windows_are(&c, 7, "0001");
    round_trip(&c);
    must_read(&c, "{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":null,\"max_window_layers\":3}");
    windows_are(&c, 0, "0000");
    must_read(&c, "{" QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":4}");
    windows_are(&c, 0, "0000");
    must_read(&c, "{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":7,\"max_window_layers\":3,"
                  "\"layer_types\":" MIXED "}");
    windows_are(&c, 7, "1010");
    round_trip(&c);
    must_read(&c, "{" MISTRAL ",\"layer_types\":" MIXED "}");
    windows_are(&c, 4096, "1010");
    round_trip(&c);
    all_refused(cases, sizeof cases / sizeof cases[0]);
}

/* ---- gpt2 ---- */

#define GPT2_SIZES "\"model_type\":\"gpt2\",\"n_embd\":60,\"n_layer\":2,\"vocab_size\":256,"
#define GPT2       GPT2_SIZES "\"n_head\":5"

static void test_activations(void **state)
{
    static const struct {
        const char *name;
        clv_unary_kind kind;
    } cases[] = {{"gelu", CLV_GELU},           {"gelu_new", CLV_GELU_TANH}, {"gelu_pytorch_tanh", CLV_GELU_TANH},
                 {"gelu_fast", CLV_GELU_TANH}, {"relu", CLV_RELU},          {"silu", CLV_SILU},
                 {"swish", CLV_SILU},          {"tanh", CLV_TANH}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        clv_model_config c = {0};
        snprintf(text, sizeof text, "{%s,\"activation_function\":\"%s\"}", GPT2, cases[i].name);
        must_read(&c, text);
        assert_int_equal(c.activation, cases[i].kind);
    }
}

/* As transformers 4 wrote the published model's, and as 5 writes a random one's. */
static void test_gpt2_spellings(void **state)
{
    clv_model_config c = {0};

    must_read(&c, "{" GPT2 "}");
    assert_string_equal(clv_model_config_model_type(&c), "gpt2");
    assert_int_equal(c.ffn, 240);
    assert_int_equal(c.head_dim, 12);
    assert_int_equal(c.kv_heads, 5);
    assert_int_equal(c.max_positions, 1024);
    assert_true(c.norm_eps == 1e-5 && c.rope.theta == 0);
    assert_true(c.tie_word_embeddings && !c.bidirectional);
    assert_int_equal(c.activation, CLV_GELU_TANH);
    must_read(&c, "{" GPT2 ",\"activation_function\":\"gelu_new\",\"architectures\":[\"GPT2LMHeadModel\"],"
                  "\"attn_pdrop\":0.1,\"bos_token_id\":250,\"eos_token_id\":250,\"initializer_range\":0.02,"
                  "\"layer_norm_epsilon\":1e-06,\"n_ctx\":1024,\"n_positions\":512,\"resid_pdrop\":0.1,"
                  "\"task_specific_params\":{\"text-generation\":{\"do_sample\":true}}}");
    assert_int_equal(c.eos[0], 250);
    assert_int_equal(c.max_positions, 512);
    assert_true(c.norm_eps == 1e-6);
    must_read(&c, "{" GPT2 ",\"activation_function\":\"relu\",\"add_cross_attention\":false,\"dtype\":\"float32\","
                  "\"n_inner\":null,\"pad_token_id\":null,\"reorder_and_upcast_attn\":false,"
                  "\"scale_attn_by_inverse_layer_idx\":false,\"scale_attn_weights\":true,"
                  "\"tie_word_embeddings\":false,\"transformers_version\":\"5.23.0\"}");
    assert_int_equal(c.activation, CLV_RELU);
    assert_int_equal(c.ffn, 240);
    assert_false(c.tie_word_embeddings);
    must_read(&c, "{" GPT2 ",\"activation_function\":\"gelu\",\"n_inner\":99}");
    assert_int_equal(c.activation, CLV_GELU);
    assert_int_equal(c.ffn, 99);
    round_trip(&c);
}

static void test_gpt2_refused(void **state)
{
    static const bad_config cases[] = {
        {"n_head", "{" GPT2_SIZES "\"x\":0}"},
        {"n_head", "{" GPT2_SIZES "\"n_head\":0}"},
        {"\"n_embd\" 60 is not a multiple of \"n_head\" 7", "{" GPT2_SIZES "\"n_head\":7}"},
        {"n_embd", "{\"model_type\":\"gpt2\",\"n_layer\":2}"},
        {"hidden_size", "{" GPT2 ",\"hidden_size\":64}"},
        {"n_inner", "{" GPT2 ",\"n_inner\":0}"},
        {"n_positions", "{" GPT2 ",\"n_positions\":-1}"},
        {"architectures", "{" GPT2 ",\"architectures\":[\"GPT2DoubleHeadsModel\"]}"},
        {"activation_function", "{" GPT2 ",\"activation_function\":\"quick_gelu\"}"},
        {"layer_norm_epsilon", "{" GPT2 ",\"layer_norm_epsilon\":0}"},
        {"scale_attn_weights", "{" GPT2 ",\"scale_attn_weights\":false}"},
        {"scale_attn_by_inverse_layer_idx", "{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}"},
        {"reorder_and_upcast_attn", "{" GPT2 ",\"reorder_and_upcast_attn\":true}"},
        {"add_cross_attention", "{" GPT2 ",\"add_cross_attention\":true}"},
        {"quantization_config", "{" GPT2 ",\"quantization_config\":{}}"},
        {"tie_word_embeddings", "{" GPT2 ",\"tie_word_embeddings\":\"yes\"}"},
        {"pad_token_id", "{" GPT2 ",\"pad_token_id\":-2}"},
    };

    all_refused(cases, sizeof cases / sizeof cases[0]);
}

/* ---- esm ---- */

#define ESM_SIZES                                                                                                      \
    "\"model_type\":\"esm\",\"hidden_size\":60,\"num_hidden_layers\":2,\"intermediate_size\":96,\"vocab_size\":33,"
#define ESM_UNPLACED ESM_SIZES "\"num_attention_heads\":5"
#define ESM          ESM_UNPLACED ",\"position_embedding_type\":\"rotary\""

/* As transformers 4 wrote ESM-2's, and as 5 writes a random one's. */
static void test_esm_spellings(void **state)
{
    clv_model_config c = {0};

    must_read(&c, "{" ESM "}");
    assert_string_equal(clv_model_config_model_type(&c), "esm");
    assert_true(c.norm_eps == 1e-12 && c.rope.theta == 10000);
    assert_true(c.bidirectional && c.tie_word_embeddings && !c.token_dropout && !c.embedding_norm);
    assert_int_equal(c.activation, CLV_GELU);
    assert_int_equal(c.head_dim, 12);
    assert_int_equal(c.mask, -1);
    must_read(&c, "{" ESM ",\"architectures\":[\"EsmForMaskedLM\"],\"attention_probs_dropout_prob\":0.0,"
                  "\"classifier_dropout\":null,\"emb_layer_norm_before\":false,\"esmfold_config\":null,"
                  "\"hidden_act\":\"gelu\",\"is_folding_model\":false,\"layer_norm_eps\":1e-05,\"mask_token_id\":32,"
                  "\"max_position_embeddings\":1026,\"pad_token_id\":1,\"token_dropout\":true,"
                  "\"torch_dtype\":\"float32\",\"vocab_list\":null}");
    assert_true(c.norm_eps == 1e-5 && c.token_dropout && !c.embedding_norm);
    assert_int_equal(c.mask, 32);
    assert_int_equal(c.pad, 1);
    assert_int_equal(c.max_positions, 1026);
    must_read(&c, "{" ESM ",\"add_cross_attention\":false,\"bos_token_id\":null,\"dtype\":\"float32\","
                  "\"emb_layer_norm_before\":true,\"eos_token_id\":2,\"is_decoder\":false,\"mask_token_id\":null,"
                  "\"rope_theta\":500.0,\"tie_word_embeddings\":true,\"token_dropout\":null}");
    assert_true(c.embedding_norm && !c.token_dropout && c.rope.theta == 500);
    assert_int_equal(c.eos[0], 2);
    round_trip(&c);
}

static void test_esm_refused(void **state)
{
    static const bad_config cases[] = {
        {"position_embedding_type", "{" ESM_UNPLACED "}"},
        {"position_embedding_type", "{" ESM_UNPLACED ",\"position_embedding_type\":null}"},
        {"position_embedding_type", "{" ESM_UNPLACED ",\"position_embedding_type\":\"absolute\"}"},
        {"num_attention_heads", "{" ESM_SIZES "\"num_attention_heads\":7,\"position_embedding_type\":\"rotary\"}"},
        {"must be even", "{" ESM_SIZES "\"num_attention_heads\":20,\"position_embedding_type\":\"rotary\"}"},
        {"architectures", "{" ESM ",\"architectures\":[\"EsmForProteinFolding\"]}"},
        {"is_folding_model", "{" ESM ",\"is_folding_model\":true}"},
        {"is_decoder", "{" ESM ",\"is_decoder\":true}"},
        {"hidden_act", "{" ESM ",\"hidden_act\":\"relu\"}"},
        {"mask_token_id", "{" ESM ",\"token_dropout\":true}"},
        {"mask_token_id", "{" ESM ",\"token_dropout\":true,\"mask_token_id\":33}"},
        {"token_dropout", "{" ESM ",\"token_dropout\":1}"},
        {"emb_layer_norm_before", "{" ESM ",\"emb_layer_norm_before\":\"no\"}"},
        {"layer_norm_eps", "{" ESM ",\"layer_norm_eps\":-1}"},
        {"tie_word_embeddings", "{" ESM ",\"tie_word_embeddings\":0}"},
        {"rope_type", "{" ESM ",\"rope_parameters\":{\"rope_type\":\"yarn\"}}"},
    };

    all_refused(cases, sizeof cases / sizeof cases[0]);
}

/* ---- bert ---- */

#define BERT_SIZES                                                                                                     \
    "\"model_type\":\"bert\",\"hidden_size\":60,\"num_hidden_layers\":2,\"intermediate_size\":96,\"vocab_size\":256,"
#define BERT BERT_SIZES "\"num_attention_heads\":5"

static void test_bert_spellings(void **state)
{
    clv_model_config c = {0};

    must_read(&c, "{" BERT "}");
    assert_true(c.bidirectional && c.qkv_bias && c.output_bias && c.mlp_bias && c.tie_word_embeddings && !c.headless);
    assert_true(c.max_positions == 512 && c.token_types == 2 && c.norm_eps == 1e-12 && c.activation == CLV_GELU);
    round_trip(&c);
    must_read(&c, "{" BERT ",\"architectures\":[\"BertModel\"],\"hidden_act\":\"relu\",\"type_vocab_size\":3}");
    assert_true(c.headless && c.token_types == 3 && c.activation == CLV_RELU);
    round_trip(&c);
    must_read(&c, "{" BERT ",\"architectures\":[\"BertForPreTraining\"],\"position_embedding_type\":\"absolute\"}");
    assert_false(c.headless);
    must_read(&c, "{" GOOD ",\"architectures\":[\"LlamaModel\"]}");
    assert_true(c.headless);
    round_trip(&c);
}

static void test_bert_refused(void **state)
{
    static const bad_config cases[] = {
        {"BertForMaskedLM, BertForPreTraining, BertModel",
         "{" BERT ",\"architectures\":[\"BertForQuestionAnswering\"]}"},
        {"position_embedding_type", "{" BERT ",\"position_embedding_type\":\"relative_key\"}"},
        {"is_decoder", "{" BERT ",\"is_decoder\":true}"},
        {"add_cross_attention", "{" BERT ",\"add_cross_attention\":true}"},
        {"tie_word_embeddings", "{" BERT ",\"tie_word_embeddings\":0}"},
        {"type_vocab_size", "{" BERT ",\"type_vocab_size\":0}"},
        {"hidden_act", "{" BERT ",\"hidden_act\":\"mish\"}"},
        {"hidden_size", "{" BERT_SIZES "\"num_attention_heads\":7}"},
        {"layer_norm_eps", "{" BERT ",\"layer_norm_eps\":0}"},
        {"vocab_size", "{\"model_type\":\"bert\",\"hidden_size\":60,\"num_hidden_layers\":2,\"num_attention_heads\":5,"
                       "\"intermediate_size\":96}"},
        {"pad_token_id", "{" BERT ",\"pad_token_id\":256}"},
    };

    all_refused(cases, sizeof cases / sizeof cases[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_spellings),
        cmocka_unit_test(test_llama_refused),
        cmocka_unit_test(test_tokens_beyond),
        cmocka_unit_test(test_llama_round_trip),
        cmocka_unit_test(test_size_and_depth),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_gpt2_spellings),
        cmocka_unit_test(test_gpt2_refused),
        cmocka_unit_test(test_esm_spellings),
        cmocka_unit_test(test_esm_refused),
        cmocka_unit_test(test_windows_of_many_layers),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_kv_heads),
        cmocka_unit_test(test_bert_spellings),
        cmocka_unit_test(test_bert_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
