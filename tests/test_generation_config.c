/* test_generation_config.c - what a model's folder says of generating: which file counts, what ends a text, how tokens
 * are chosen, what is not supported, what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/generate.h"
#include "must.h"
#include "unit_test.h"

enum { TOKENS = 12 };
static char folder[] = "/tmp/cleave_test_XXXXXX";
static clv_error err;

static void write_file(const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = text ? fopen(path, "w") : NULL;
    if (text)
        assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
    else
        (void)remove(path);
}

/* A model of bytes, whose weights are those of its seed, with more keys of config.json; generation NULL: no file. */
static clv_model *open_model(const char *keys, const char *generation)
{
    char config[4096];
    clv_model *model;
    snprintf(config, sizeof config,
             "{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
             "\"intermediate_size\": 64, \"vocab_size\": 256, \"max_position_embeddings\": 64%s}",
             keys);
    write_file("config.json", config);
    write_file("generation_config.json", generation);
    must(clv_model_open(&model, folder, &(clv_model_options){.config_only = 1}, &err), &err);
    return model;
}

static int set_up(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    write_file("config.json", NULL);
    write_file("generation_config.json", NULL);
    return remove(folder);
}

typedef struct text {
    char bytes[80];
    int64_t tokens;
    clv_finish_reason finish;
} text;

/* What follows "abc", by options which may be NULL. */
static text text_of(const char *keys, const char *generation, const clv_generate_options *options)
{
    text t = {0};
    size_t size;
    clv_generator *g;
    clv_generation *made;
    clv_model *model = open_model(keys, generation);
    must(clv_generator_new(&g, model, NULL, &err), &err);
    must(clv_generate(&made, g, (const char *const[]){"x", "abc"}, 2, options, &err), &err);
    const char *found = clv_generation_text(made, 1, &size);
    assert_true(size < sizeof t.bytes);
    memcpy(t.bytes, found, size);
    t.tokens = clv_generation_sampled_tokens(made, 1);
    t.finish = clv_generation_finish_reason(made, 1);
    clv_generation_free(made);
    clv_generator_free(g);
    clv_model_close(model);
    return t;
}

static const clv_sampling greedy = {.size = sizeof greedy};
static const clv_generate_options some = {.sampling = &greedy, .max_tokens = TOKENS};

/* The first token that is none before it, and where it stands; what is made of it ends a text there. */
static int end_of(const text *whole)
{
    for (int i = 3; i < TOKENS; i++)
        if (!memchr(whole->bytes, whole->bytes[i], (size_t)i))
            return i;
    fail_msg("no token is new");
    return 0;
}

static void test_ends(void **state)
{
    const text whole = text_of("", NULL, &some);
    const int at = end_of(&whole), id = (unsigned char)whole.bytes[at];
    const struct {
        const char *config, *generation; /* %d: the token */
        bool ends;
    } cases[] = {
        {"", "{\"eos_token_id\": %d}", true},
        {"", "{\"eos_token_id\": [%d]}", true},
        {"", "{\"eos_token_id\": %d.0}", true},
        {"", "{\"eos_token_id\": [300, -1, 5000000000, %d]}", true},
        {", \"eos_token_id\": 300", "{\"eos_token_id\": %d}", true},
        {", \"eos_token_id\": %d", NULL, true},
        {", \"eos_token_id\": [257, %d]", NULL, true},
        {", \"eos_token_id\": %d", "{}", false},
        {", \"eos_token_id\": %d", "{\"eos_token_id\": null}", false},
        {", \"eos_token_id\": %d", "{\"eos_token_id\": []}", false},
        {", \"eos_token_id\": %d", "{\"eos_token_id\": 300, \"_from_model_config\": true}", false},
    };
    assert_int_equal(whole.finish, CLV_FINISH_LENGTH);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[128], generation[128];
        snprintf(config, sizeof config, cases[i].config, id);
        if (cases[i].generation)
            snprintf(generation, sizeof generation, cases[i].generation, id);
        const text t = text_of(config, cases[i].generation ? generation : NULL, &some);
        if (t.finish != (cases[i].ends ? CLV_FINISH_EOS : CLV_FINISH_LENGTH) ||
            t.tokens != (cases[i].ends ? at + 1 : TOKENS) || strncmp(t.bytes, whole.bytes, (size_t)at) != 0)
            fail_msg("case %zu, config.json '%s': %lld tokens", i, config, (long long)t.tokens);
    }
}

/* A list of many, of both files. */
static void test_many_ends(void **state)
{
    const text whole = text_of("", NULL, &some);
    const int at = end_of(&whole), id = (unsigned char)whole.bytes[at];
    char list[2048], object[2100];
    size_t n = 0;
    n += (size_t)snprintf(list, sizeof list, "\"eos_token_id\": [");
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%d, ", 256 + i);
    snprintf(list + n, sizeof list - n, "%d]", id);
    snprintf(object, sizeof object, "{%s}", list);
    assert_int_equal(text_of("", object, &some).tokens, at + 1);
    snprintf(object, sizeof object, ", %s", list);
    assert_int_equal(text_of(object, NULL, &some).tokens, at + 1);
}

/* ---- how tokens are chosen ---- */

static void expect_sampling(const char *keys, const char *generation, const clv_sampling *want)
{
    clv_model *model = open_model(keys, generation);
    clv_generation_config c = {.size = sizeof c};
    must(clv_model_generation_config(model, &c, &err), &err);
    assert_int_equal(c.sampling != NULL, want != NULL);
    if (want && (c.sampling->temperature != want->temperature || c.sampling->top_k != want->top_k ||
                 c.sampling->top_p != want->top_p || c.sampling->min_p != want->min_p ||
                 c.sampling->repetition_penalty != want->repetition_penalty))
        fail_msg("%s: temperature %g, top_k %lld, top_p %g, min_p %g, penalty %g", generation ? generation : keys,
                 c.sampling->temperature, (long long)c.sampling->top_k, c.sampling->top_p, c.sampling->min_p,
                 c.sampling->repetition_penalty);
    assert_string_equal(c.file, generation ? "generation_config.json" : "config.json");
    clv_model_close(model);
}

static void test_sampling(void **state)
{
    static const clv_sampling greedy_with[] = {
        {.top_k = 50, .top_p = 1}, {.top_k = 50, .top_p = 0.8}, {.top_k = 50, .top_p = 1, .repetition_penalty = 1.5}};
    expect_sampling("", NULL, NULL);
    expect_sampling("", "{}", NULL);
    expect_sampling("", "{\"eos_token_id\": 3, \"do_sample\": null}", NULL);
    expect_sampling("", "{\"do_sample\": true}", &(clv_sampling){.temperature = 1, .top_k = 50, .top_p = 1});
    expect_sampling("", "{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 0, \"top_p\": 0.9, \"min_p\": 0.1}",
                    &(clv_sampling){.temperature = 0.6, .top_p = 0.9, .min_p = 0.1});
    expect_sampling("", "{\"do_sample\": true, \"temperature\": 2, \"top_k\": null, \"top_p\": 0}",
                    &(clv_sampling){.temperature = 2, .top_k = 50, .top_p = 1e-300});
    expect_sampling("", "{\"do_sample\": true, \"temperature\": 0}", &greedy_with[0]);
    expect_sampling("", "{\"do_sample\": false}", &greedy_with[0]);
    expect_sampling("", "{\"temperature\": 0.6, \"top_p\": 0.8}", &greedy_with[1]);
    expect_sampling("", "{\"top_k\": -1, \"temperature\": -2, \"top_p\": 0.8}", &greedy_with[0]); /* nobody asks */
    expect_sampling("", "{\"repetition_penalty\": 1.5}", &greedy_with[2]);
    expect_sampling(", \"do_sample\": true, \"top_k\": 7", NULL,
                    &(clv_sampling){.temperature = 1, .top_k = 7, .top_p = 1});
    expect_sampling(", \"do_sample\": true, \"top_k\": 7", "{}", NULL);
}

/* The folder's are defaults of clv_generate; options win, and zeros are greedy. */
static void test_defaults(void **state)
{
    static const char sampled[] = "{\"do_sample\": true, \"temperature\": 3.0, \"top_k\": 0}";
    const clv_sampling same = {.temperature = 3, .top_p = 1};
    const clv_generate_options open = {.max_tokens = TOKENS}, given = {.sampling = &same, .max_tokens = TOKENS};
    const text whole = text_of("", NULL, &some), drawn = text_of("", NULL, &given);
    assert_string_not_equal(drawn.bytes, whole.bytes);
    assert_string_equal(text_of("", NULL, &open).bytes, whole.bytes);
    assert_string_equal(text_of("", sampled, &open).bytes, drawn.bytes);
    assert_string_equal(text_of("", sampled, &some).bytes, whole.bytes);
    assert_string_equal(text_of("", "{\"temperature\": 3.0}", &open).bytes, whole.bytes);
    assert_string_equal(text_of("", "{\"temperature\": 3.0}", &given).bytes, drawn.bytes);
    const clv_sampling penalised = {.repetition_penalty = 1.9};
    const clv_generate_options less = {.sampling = &penalised, .max_tokens = TOKENS};
    assert_string_equal(text_of("", "{\"repetition_penalty\": 1.9}", &open).bytes, text_of("", NULL, &less).bytes);
}

static void test_lengths(void **state)
{
    const clv_generate_options none = {.max_tokens = -1}, all = {.max_tokens = INT64_MAX};
    assert_int_equal(text_of("", "{\"max_new_tokens\": 5}", NULL).tokens, 5);
    assert_int_equal(text_of("", "{\"max_length\": 9}", NULL).tokens, 6);
    assert_int_equal(text_of("", "{\"max_length\": 9, \"max_new_tokens\": 8}", NULL).tokens, 8);
    assert_int_equal(text_of(", \"max_length\": 9", NULL, NULL).tokens, 6);
    assert_int_equal(text_of("", "{\"max_length\": 9}", &some).tokens, TOKENS);
    assert_int_equal(text_of("", "{\"max_length\": 9}", &none).tokens, 0);
    assert_int_equal(text_of("", "{\"max_length\": 9}", &all).tokens, 62);
    assert_int_equal(text_of("", "{\"max_length\": 900}", NULL).finish, CLV_FINISH_CONTEXT);
    clv_generator *g;
    clv_generation *made;
    clv_model *model = open_model("", "{\"max_length\": 3}");
    must(clv_generator_new(&g, model, NULL, &err), &err);
    assert_int_equal(clv_generate(&made, g, (const char *const[]){"a", "abc"}, 2, NULL, &err), CLV_ELIMIT);
    assert_non_null(strstr(err.message, "prompt 2 has 3 tokens, and generation_config.json says max_length 3"));
    err = (clv_error){0};
    clv_generator_free(g);
    clv_model_close(model);
}

static void test_stops(void **state)
{
    const text whole = text_of("", NULL, &some);
    const clv_generate_options other = {
        .sampling = &greedy, .max_tokens = TOKENS, .stops = (const char *const[]){"no such text"}, .n_stops = 1};
    int at = 0;
    while (at < TOKENS && (whole.bytes[at] <= 0 || memchr(whole.bytes, whole.bytes[at], (size_t)at)))
        at++; /* one that is a character */
    assert_in_range(at, 0, TOKENS - 1);
    for (int list = 0; list < 2; list++) {
        char generation[64];
        snprintf(generation, sizeof generation,
                 list ? "{\"stop_strings\": [\"\\u%04x\", \"no such text\"]}" : "{\"stop_strings\": \"\\u%04x\"}",
                 whole.bytes[at]);
        const text t = text_of("", generation, &some);
        assert_int_equal(t.finish, CLV_FINISH_STOP);
        assert_int_equal(t.tokens, at + 1);
        assert_int_equal(text_of("", generation, &other).finish, CLV_FINISH_LENGTH);
    }
}

/* ---- what is said ---- */

static void expect_words(const char *const *words, int64_t n, const char *want)
{
    char all[4096] = "";
    for (int64_t i = 0; i < n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? "; " : "", words[i]);
    assert_string_equal(all, want);
}

static void expect_said(const char *keys, const char *generation, const char *values, const char *unsupported)
{
    clv_model *model = open_model(keys, generation);
    clv_generation_config c = {.size = sizeof c};
    must(clv_model_generation_config(model, &c, &err), &err);
    expect_words(c.values, c.n_values, values);
    expect_words(c.unsupported, c.n_unsupported, unsupported);
    clv_model_close(model);
}

static void test_said(void **state)
{
    expect_said("", NULL, "", "");
    expect_said(", \"eos_token_id\": 3", NULL, "", "");
    expect_said(", \"eos_token_id\": 3", "{}", "eos_token_id none", "");
    expect_said("", "{\"bos_token_id\": 1, \"transformers_version\": \"5.0\", \"use_cache\": false}", "", "");
    expect_said("",
                "{\"eos_token_id\": [3, 4], \"temperature\": 0.6, \"do_sample\": true, \"max_new_tokens\": 3, "
                "\"stop_strings\": [\"a\"]}",
                "do_sample true; temperature 0.6; top_k 50 by default; max_new_tokens 3; stop_strings [\"a\"]; "
                "eos_token_id [3, 4]",
                "");
    expect_said(", \"num_beams\": 3, \"top_p\": 0.5", NULL, "do_sample false by default; top_p 0.5", "num_beams 3");
    expect_said(
        "",
        "{\"no_repeat_ngram_size\": 0, \"encoder_no_repeat_ngram_size\": 0, \"encoder_repetition_penalty\": 1.0, "
        "\"typical_p\": 1.0, \"epsilon_cutoff\": 0.0, \"eta_cutoff\": 0, \"bad_words_ids\": null, "
        "\"suppress_tokens\": [], \"begin_suppress_tokens\": null, \"min_length\": 0, \"min_new_tokens\": null, "
        "\"num_beams\": 1, \"num_beam_groups\": 1, \"num_return_sequences\": 1, \"guidance_scale\": 1.0, "
        "\"penalty_alpha\": 0.0, \"token_healing\": false, \"sequence_bias\": {}, \"length_penalty\": 2.0}",
        "", "");
    expect_said(
        "",
        "{\"no_repeat_ngram_size\": 3, \"encoder_repetition_penalty\": 0.5, \"typical_p\": 0.9, "
        "\"epsilon_cutoff\": 0.1, \"bad_words_ids\": [[1, 2]], \"suppress_tokens\": [5], "
        "\"forced_bos_token_id\": 0, \"min_length\": 4, \"guidance_scale\": 1.5, \"token_healing\": true, "
        "\"top_h\": 1.0, \"watermarking_config\": {\"bias\": 2.5}}",
        "",
        "guidance_scale 1.5; encoder_repetition_penalty 0.5; no_repeat_ngram_size 3; bad_words_ids [[1, 2]]; "
        "min_length 4; forced_bos_token_id 0; suppress_tokens [5]; top_h 1.0; typical_p 0.9; epsilon_cutoff 0.1; "
        "watermarking_config {\"bias\": 2.5}; token_healing true");
}

static void test_refused(void **state)
{
    static const struct {
        const char *generation, *says;
    } cases[] = {
        {"", "generation_config.json: is an empty file, not JSON"},
        {"{", "generation_config.json: not JSON"},
        {"[]", "generation_config.json: not a JSON object"},
        {"{\"eos_token_id\": \"3\"}", "\"eos_token_id\" must be a token's id, or a list of ids"},
        {"{\"eos_token_id\": [3, null]}", "\"eos_token_id\" must be a token's id, or a list of ids"},
        {"{\"eos_token_id\": 1.5}", "\"eos_token_id\" must be a token's id, or a list of ids"},
        {"{\"eos_token_id\": true}", "\"eos_token_id\" must be a token's id, or a list of ids"},
        {"{\"do_sample\": \"true\"}", "\"do_sample\" must be true or false"},
        {"{\"do_sample\": true, \"temperature\": -0.1}", "\"temperature\" is -0.1; valid: 0 (greedy) and above"},
        {"{\"do_sample\": true, \"temperature\": \"1\"}", "\"temperature\" must be a number"},
        {"{\"do_sample\": true, \"top_k\": -1}", "\"top_k\" is -1, valid are 0 to"},
        {"{\"do_sample\": true, \"top_k\": 2.5}", "\"top_k\" is 2.5, valid are integers from 0 to"},
        {"{\"do_sample\": true, \"top_p\": 1.1}", "\"top_p\" is 1.1; valid: 0 (the likeliest alone) to 1 (all)"},
        {"{\"do_sample\": true, \"min_p\": -1}", "\"min_p\" is -1; valid: 0 (all) to 1"},
        {"{\"repetition_penalty\": 0}", "\"repetition_penalty\" is 0; valid: above 0; 1 is none"},
        {"{\"repetition_penalty\": -2}", "\"repetition_penalty\" is -2; valid: above 0; 1 is none"},
        {"{\"max_new_tokens\": 0}", "\"max_new_tokens\" is 0, valid are 1 to"},
        {"{\"max_length\": \"9\"}", "\"max_length\" must be an integer"},
        {"{\"stop_strings\": [\"\"]}", "\"stop_strings\" must be a text of at least one byte, or a list of such"},
        {"{\"stop_strings\": 3}", "\"stop_strings\" must be a text of at least one byte, or a list of such"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_model *model = open_model("", cases[i].generation);
        clv_generation_config c = {.size = sizeof c};
        clv_status status = clv_model_generation_config(model, &c, &err);
        if (status != CLV_EFORMAT || !strstr(err.message, cases[i].says))
            fail_msg("%s: %s: %s", cases[i].generation, clv_status_name(status), err.message);
        err = (clv_error){0};
        clv_model_close(model);
    }
    clv_generation_config c = {.size = sizeof c};
    assert_int_equal(clv_model_generation_config(NULL, &c, NULL), CLV_EINVAL);
}

/* A model of none has the ends that it was given. */
static void test_new_model(void **state)
{
    const clv_model_info sizes = {.size = sizeof sizes,
                                  .hidden = 8,
                                  .layers = 1,
                                  .heads = 1,
                                  .ffn = 8,
                                  .vocab = 9,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1,
                                  .n_eos = 2,
                                  .eos = {4, 5}};
    clv_generation_config c = {.size = sizeof c};
    clv_model *model;
    must(clv_model_new(&model, &sizes, NULL, &err), &err);
    must(clv_model_generation_config(model, &c, &err), &err);
    assert_null(c.file);
    assert_null(c.sampling);
    assert_true(c.n_eos == 2 && c.eos[0] == 4 && c.eos[1] == 5);
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),     cmocka_unit_test(test_many_ends), cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_lengths),   cmocka_unit_test(test_stops),
        cmocka_unit_test(test_said),     cmocka_unit_test(test_refused),   cmocka_unit_test(test_new_model),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
