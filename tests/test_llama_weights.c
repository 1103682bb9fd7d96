/* test_llama_weights.c - config.json, and the map between Hugging Face's tensors and ours: every parameter and every
 * kind of box, through a file, against the formula of the map; and a real model when it is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/file.h"
#include "io/json.h"
#include "models/llama_config.h"
#include "models/llama_weights.h"

static char folder[] = "/tmp/cleave-test-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char line[128];

    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

/* ---- config.json ---- */

#define SIZES                                                                                                          \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"intermediate_size\":96,\"vocab_size\":256,"
#define GOOD SIZES "\"num_attention_heads\":8"

static clv_status read_text(clv_llama_config *c, const char *text, clv_error *err)
{
    assert_int_equal(clv_file_write(path_of("config.json"), text, strlen(text), NULL), CLV_OK);
    return clv_llama_config_read(c, path_of("config.json"), err);
}

static void test_config_spellings(void **state)
{
    clv_llama_config c = {0};

    (void)state;
    assert_int_equal(read_text(&c, "{" GOOD "}", NULL), CLV_OK);
    assert_int_equal(c.head_dim, 8);
    assert_int_equal(c.kv_heads, 8);
    assert_true(c.rope_theta == 10000 && c.rms_eps == 1e-6);
    assert_int_equal(c.bos, -1);
    assert_int_equal(c.n_eos, 0);
    assert_int_equal(read_text(&c,
                               "{" GOOD ",\"rope_theta\":500000.0,\"rope_scaling\":null,\"torch_dtype\":"
                               "\"bfloat16\",\"eos_token_id\":[1,2],\"num_key_value_heads\":2,\"head_dim\":16,"
                               "\"auto_map\":{\"AutoModel\":\"x.py\"},\"unknown\":[{}]}",
                               NULL),
                     CLV_OK);
    assert_true(c.rope_theta == 500000);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos[1], 2);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(read_text(&c,
                               "{" GOOD ",\"rope_parameters\":{\"rope_theta\":2e6,\"rope_type\":\"default\"},"
                               "\"dtype\":\"float32\",\"eos_token_id\":3}",
                               NULL),
                     CLV_OK);
    assert_true(c.rope_theta == 2e6);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 3);
    assert_int_equal(clv_llama_config_read(&c, folder, NULL), CLV_OK);
}

static void test_config_refused(void **state)
{
    static const struct {
        const char *key, *text;
    } cases[] = {
        {"object", "[]"},
        {"duplicate", "{" GOOD ",\"hidden_size\":64}"},
        {"model_type", "{\"hidden_size\":64}"},
        {"model_type", "{\"model_type\":\"gpt2\"}"},
        {"architectures", "{" GOOD ",\"architectures\":[\"GPT2LMHeadModel\"]}"},
        {"architectures", "{" GOOD ",\"architectures\":[]}"},
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
        {"not JSON", "{" GOOD ",\"rms_norm_eps\":NaN}"},
        {"not JSON", "{" GOOD ",\"rms_norm_eps\":1e400}"},
        {"rope_theta", "{" GOOD ",\"rope_theta\":0}"},
        {"rope_theta", "{" GOOD ",\"rope_parameters\":{\"rope_theta\":-1}}"},
        {"rope_type", "{" GOOD ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}"},
        {"\"type\"", "{" GOOD ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}"},
        {"partial_rotary_factor", "{" GOOD ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}"},
        {"hidden_act", "{" GOOD ",\"hidden_act\":\"gelu_new\"}"},
        {"torch_dtype", "{" GOOD ",\"torch_dtype\":\"float8\"}"},
        {"dtype", "{" GOOD ",\"dtype\":\"int4\"}"},
        {"quantization_config", "{" GOOD ",\"quantization_config\":{}}"},
        {"attention_bias", "{" GOOD ",\"attention_bias\":true}"},
        {"mlp_bias", "{" GOOD ",\"mlp_bias\":true}"},
        {"tie_word_embeddings", "{" GOOD ",\"tie_word_embeddings\":1}"},
        {"bos_token_id", "{" GOOD ",\"bos_token_id\":256}"},
        {"eos_token_id", "{" GOOD ",\"eos_token_id\":[0,256]}"},
    };
    clv_llama_config untouched = {.hidden = 77}, c = untouched;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_error err = {0};
        clv_status status = read_text(&c, cases[i].text, &err);
        if (status != CLV_EFORMAT && status != CLV_EUNSUPPORTED)
            fail_msg("%s: %s", cases[i].text, clv_status_name(status));
        if (strstr(err.message, cases[i].key) == NULL)
            fail_msg("'%s' does not name %s", err.message, cases[i].key);
        assert_memory_equal(&c, &untouched, sizeof c);
    }
}

static void test_config_size_and_depth(void **state)
{
    size_t size = (1 << 20) + 1;
    char *text = malloc(size + 1);
    clv_llama_config c;

    (void)state;
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

static const clv_llama_config small = {.hidden = 12,
                                       .layers = 2,
                                       .heads = 6,
                                       .kv_heads = 3,
                                       .head_dim = 4,
                                       .ffn = 10,
                                       .vocab = 17,
                                       .max_positions = 32,
                                       .rms_eps = 1e-5,
                                       .rope_theta = 10000,
                                       .bos = -1,
                                       .eos = {-1}};

static void test_config_round_trip(void **state)
{
    clv_llama_config c = {0}, bad = small;

    (void)state;
    assert_int_equal(clv_llama_config_write(&small, path_of("config.json"), NULL), CLV_OK);
    assert_int_equal(clv_llama_config_read(&c, path_of("config.json"), NULL), CLV_OK);
    assert_memory_equal(&c, &small, sizeof c);
    bad.kv_heads = 4;
    assert_int_equal(clv_llama_config_write(&bad, path_of("config.json"), NULL), CLV_EINVAL);
}

/* ---- parameters ---- */

/* A value that tells parameters and elements apart. */
static float value_of(int64_t parameter, int64_t element)
{
    return (float)(parameter * 1000 + element);
}

static float *whole_values(const clv_llama_parameter *p, int64_t index)
{
    int64_t n = 1;

    for (int d = 0; d < p->rank; d++)
        n *= p->shape[d];
    float *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        values[i] = value_of(index, i);
    return values;
}

static void cut_out(float *out, const float *whole, const clv_llama_parameter *p, const clv_shard *box)
{
    int64_t at[CLV_MAX_RANK];
    int64_t n = clv_shard_elems(box);

    memcpy(at, box->lo, sizeof at);
    for (int64_t i = 0; i < n; i++) {
        int64_t flat = 0;
        for (int d = 0; d < p->rank; d++)
            flat = flat * p->shape[d] + at[d];
        out[i] = whole[flat];
        for (int d = p->rank - 1; d >= 0 && ++at[d] == box->hi[d]; d--)
            at[d] = box->lo[d];
    }
}

/* Box number `code`: in every dimension one of whole, first part, last part, empty. */
static clv_shard box_number(const clv_llama_parameter *p, int code)
{
    clv_shard box = {.rank = p->rank};

    for (int d = 0; d < p->rank; d++, code /= 4) {
        int64_t half = (p->shape[d] + 1) / 3 + (p->shape[d] == 2);
        box.lo[d] = code % 4 == 2 || code % 4 == 3 ? half : 0;
        box.hi[d] = code % 4 == 1 || code % 4 == 3 ? half : p->shape[d];
    }
    return box;
}

/* Writes the model in two boxes a parameter, cut along its last dimension. */
static void put_model(const clv_llama_config *c)
{
    clv_safetensors_writer *w = NULL;

    assert_int_equal(clv_llama_create_weights(&w, c, path_of("model.safetensors"), NULL), CLV_OK);
    for (int64_t i = 0; i < clv_llama_parameter_count(c); i++) {
        clv_llama_parameter p = clv_llama_parameter_at(c, i);
        clv_shard left = {.rank = p.rank}, right;
        memcpy(left.hi, p.shape, sizeof left.hi);
        float *whole = whole_values(&p, i), *part = malloc((size_t)clv_shard_elems(&left) * sizeof *part);
        right = left;
        left.hi[p.rank - 1] = right.lo[p.rank - 1] = p.shape[p.rank - 1] / 3;
        cut_out(part, whole, &p, &right);
        assert_int_equal(clv_llama_write_parameter(w, c, p.name, &right, part, NULL), CLV_OK);
        cut_out(part, whole, &p, &left);
        assert_int_equal(clv_llama_write_parameter(w, c, p.name, &left, part, NULL), CLV_OK);
        free(whole);
        free(part);
    }
    assert_int_equal(clv_safetensors_commit(w, NULL), CLV_OK);
}

static void check_boxes(const clv_weights *w, const clv_llama_config *c, const clv_llama_parameter *p,
                        const float *whole, int64_t elem_bytes)
{
    float *out = NULL;
    int codes = 1 << 2 * p->rank;

    for (int code = 0; code < codes; code++) {
        clv_shard box = box_number(p, code);
        int64_t n = clv_shard_elems(&box);
        float *expected = malloc((size_t)(n + 1) * sizeof *expected);
        out = realloc(out, (size_t)(n + 1) * sizeof *out);
        out[n] = 42;
        cut_out(expected, whole, p, &box);
        uint64_t before = clv_weights_bytes_read(w);
        assert_int_equal(clv_llama_read_parameter(w, c, p->name, &box, out, NULL), CLV_OK);
        assert_int_equal(clv_weights_bytes_read(w) - before, n * elem_bytes);
        if (memcmp(out, expected, (size_t)n * sizeof *out) != 0 || out[n] != 42)
            fail_msg("%s: box %d differs", p->name, code);
        free(expected);
    }
    free(out);
}

static void check_model(const clv_llama_config *c)
{
    clv_weights *w = NULL;
    clv_error err = {0};

    put_model(c);
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    if (clv_llama_check_weights(w, c, &err) != CLV_OK)
        fail_msg("%s", err.message);
    for (int64_t i = 0; i < clv_llama_parameter_count(c); i++) {
        clv_llama_parameter p = clv_llama_parameter_at(c, i);
        float *whole = whole_values(&p, i);
        check_boxes(w, c, &p, whole, sizeof(float));
        free(whole);
    }
    clv_weights_close(w);
}

static void test_round_trip(void **state)
{
    clv_llama_config tied = small;

    (void)state;
    tied.tie_word_embeddings = true;
    check_model(&tied);
    assert_int_equal(clv_llama_parameter_count(&small), clv_llama_parameter_count(&tied) + 1);
    check_model(&small);
}

/* Products of more than a MiB are moved in several strips. */
static void test_strips(void **state)
{
    clv_llama_config wide = small;

    (void)state;
    wide.layers = 1;
    wide.hidden = 520;
    wide.vocab = 1100;
    check_model(&wide);
}

/* Element by element, the formula of the map's packed row: kv[m,1,k,d] = v_proj[k*D+d, m]. */
static void test_formula(void **state)
{
    clv_weights *w = NULL;
    const clv_safetensor *t = NULL;
    float theirs[12 * 12], ours[12 * 2 * 12];

    (void)state;
    put_model(&small);
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    assert_int_equal(clv_weights_find(&t, w, "model.layers.1.self_attn.v_proj.weight", NULL), CLV_OK);
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_F32, theirs, NULL), CLV_OK);
    assert_int_equal(clv_llama_read_parameter(w, &small, "layers.1.attention.kv.weight", NULL, ours, NULL), CLV_OK);
    for (int m = 0; m < 12; m++)
        for (int kd = 0; kd < 12; kd++)
            assert_true(ours[(m * 2 + 1) * 12 + kd] == theirs[kd * 12 + m]);
    clv_weights_close(w);
}

static void test_names(void **state)
{
    static const char *const absent[] = {"",
                                         "layers.2.attention.q.weight",
                                         "layers.-1.attention.q.weight",
                                         "layers.0.",
                                         "layers.0.attention.qq",
                                         "layers.00.attention.q.weight",
                                         "lm_head",
                                         "embed.x",
                                         "layers"};
    clv_llama_config tied = small;
    clv_llama_parameter p;

    (void)state;
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        assert_int_equal(clv_llama_parameter_find(&p, &small, absent[i], NULL), CLV_ENOTFOUND);
    for (int64_t i = 0; i < clv_llama_parameter_count(&small); i++) {
        assert_int_equal(clv_llama_parameter_find(&p, &small, clv_llama_parameter_at(&small, i).name, NULL), CLV_OK);
        assert_string_equal(p.name, clv_llama_parameter_at(&small, i).name);
    }
    tied.tie_word_embeddings = true;
    assert_int_equal(clv_llama_parameter_find(&p, &tied, "lm_head.weight", NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_llama_parameter_find(&p, &small, "layers.1.attention.kv.weight", NULL), CLV_OK);
    assert_int_equal(p.rank, 4);
    assert_int_equal(p.shape[1], 2);
    assert_int_equal(p.shape[2], 3);
}

/* A config that does not fit its weights is named before anything is read. */
static void test_mismatch(void **state)
{
    clv_weights *w = NULL;
    clv_error err = {0};
    clv_llama_config c = small;

    (void)state;
    put_model(&small);
    assert_int_equal(clv_weights_open(&w, folder, NULL), CLV_OK);
    c.layers = 3;
    assert_int_equal(clv_llama_check_weights(w, &c, NULL), CLV_ENOTFOUND);
    c.layers = 1;
    assert_int_equal(clv_llama_check_weights(w, &c, NULL), CLV_EFORMAT);
    c = small;
    c.vocab = 18;
    assert_int_equal(clv_llama_check_weights(w, &c, &err), CLV_EFORMAT);
    assert_non_null(strstr(err.message, "[17,12]"));
    assert_non_null(strstr(err.message, "[18,12]"));
    c = small;
    c.heads = 3;
    assert_int_equal(clv_llama_check_weights(w, &c, NULL), CLV_EFORMAT);
    clv_weights_close(w);
}

/* A published model: every parameter, whole and in boxes. */
static void test_stories(void **state)
{
    const char *shared = getenv("CLV_SHARED");
    char path[512];
    clv_llama_config c = {0};
    clv_weights *w = NULL;
    clv_error err = {0};

    (void)state;
    snprintf(path, sizeof path, "%s/models/stories260K", shared != NULL ? shared : "../shared");
    if (access(path, R_OK) != 0) {
        print_message("%s is absent: skipped\n", path);
        skip();
    }
    assert_int_equal(clv_llama_config_read(&c, path, NULL), CLV_OK);
    assert_int_equal(c.kv_heads, 4);
    assert_true(c.tie_word_embeddings);
    assert_int_equal(clv_weights_open(&w, path, NULL), CLV_OK);
    if (clv_llama_check_weights(w, &c, &err) != CLV_OK)
        fail_msg("%s", err.message);
    int64_t total = 0;
    for (int64_t i = 0; i < clv_llama_parameter_count(&c); i++) {
        clv_llama_parameter p = clv_llama_parameter_at(&c, i);
        clv_shard whole = {.rank = p.rank};
        memcpy(whole.hi, p.shape, sizeof whole.hi);
        float *values = malloc((size_t)clv_shard_elems(&whole) * sizeof *values);
        assert_int_equal(clv_llama_read_parameter(w, &c, p.name, NULL, values, NULL), CLV_OK);
        total += clv_shard_elems(&whole);
        check_boxes(w, &c, &p, values, sizeof(float));
        free(values);
    }
    assert_int_equal(total, 260032); /* with kv_heads 4, tied: the model's own count */
    clv_weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_spellings),
        cmocka_unit_test(test_config_refused),
        cmocka_unit_test(test_config_size_and_depth),
        cmocka_unit_test(test_config_round_trip),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_strips),
        cmocka_unit_test(test_formula),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_stories),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
