/* test_generate_text.c - texts that a model writes: the same one by one and side by side, as a stream and at the end.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/generate.h"
#include "infer/generation/prefill_chunk.h"
#include "must.h"
#include "sweep.h"
#include "unit_test.h"

static char folder[] = "/tmp/cleave_test_XXXXXX";
static clv_model *model; /* of bytes, with the weights that its seed gives */

static int set_up(void **state)
{
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_hidden_layers\": 2,"
                                 "\"num_attention_heads\": 4, \"intermediate_size\": 64, \"vocab_size\": 256,"
                                 "\"max_position_embeddings\": 64, \"eos_token_id\": 255}";
    char path[64];
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    if (!f || fputs(config, f) < 0 || fclose(f) != 0)
        return -1;
    return clv_model_open(&model, folder, &(clv_model_options){.config_only = 1}, NULL) == CLV_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    char path[64];
    clv_model_close(model);
    snprintf(path, sizeof path, "%s/config.json", folder);
    return remove(path) || rmdir(folder);
}

static void expect(clv_status got, clv_status want, clv_error *err, const char *part)
{
    if (got != want || !strstr(err->message, part))
        fail_msg("expected %s with '%s', got %s: '%s'", clv_status_name(want), part, clv_status_name(got),
                 err->message);
    *err = (clv_error){0};
}

static clv_generator *new_generator(void)
{
    clv_error err = {0};
    clv_generator *g;
    must(clv_generator_new(&g, model, NULL, &err), &err);
    return g;
}

static clv_generation *generate(clv_generator *g, const char *const *prompts, int64_t n,
                                const clv_generate_options *options)
{
    clv_error err = {0};
    clv_generation *texts;
    must(clv_generate(&texts, g, prompts, n, options, &err), &err);
    return texts;
}

static const char *const three[] = {"a", "a longer one, of some tokens", "the"};
static const clv_sampling sampling = {.temperature = 1, .seed = 8};

/* What is written does not depend on what is written beside it, nor on a generator that has grown. */
static void test_side_by_side(void **state)
{
    clv_generator *g = new_generator(), *wide = new_generator();
    clv_generation *one =
        generate(g, three, 3, &(clv_generate_options){.sampling = &sampling, .max_tokens = 6, .batch = 1});
    clv_generation *all = generate(wide, three, 3, &(clv_generate_options){.sampling = &sampling, .max_tokens = 6});
    clv_generation *grown = generate(g, three, 3, &(clv_generate_options){.sampling = &sampling, .max_tokens = 12});
    for (int i = 0; i < 3; i++) {
        size_t size, longer;
        const char *text = clv_generation_text(one, i, &size);
        assert_string_equal(text, clv_generation_text(all, i, NULL));
        assert_int_equal(strlen(text), size);
        assert_memory_equal(clv_generation_text(grown, i, &longer), text, size);
        assert_true(longer >= size);
        assert_int_equal(clv_generation_prompt_tokens(one, i), strlen(three[i]));
        assert_int_equal(clv_generation_sampled_tokens(all, i), 6);
        assert_int_equal(clv_generation_finish_reason(all, i), CLV_FINISH_LENGTH);
    }
    assert_true(clv_generation_seconds(one).prompt > 0);
    clv_generation_free(one);
    clv_generation_free(all);
    clv_generation_free(grown);
    clv_generator_free(g);
    clv_generator_free(wide);
}

/* The text of greedy tokens, drawn one by one. */
static void test_same_as_tokens(void **state)
{
    clv_error err = {0};
    clv_generator *g = new_generator(), *by_hand = new_generator();
    const clv_tokenizer *t;
    char text[9] = "";
    int64_t *ids, n, token;
    must(clv_model_tokenizer(&t, model, &err), &err);
    must(clv_tokenizer_encode(t, "abc", 3, true, &ids, &n, &err), &err);
    must(clv_generator_feed(by_hand, 0, ids, n, &err), &err);
    for (int i = 0; i < 8; i++) {
        must(clv_generator_run(by_hand, &err), &err);
        must(clv_generator_sample(by_hand, 0, NULL, &token, &err), &err);
        text[i] = (char)token;
        must(clv_generator_feed(by_hand, 0, &token, 1, &err), &err);
    }
    free(ids);
    clv_generation *texts = generate(g, (const char *const[]){"abc"}, 1, &(clv_generate_options){.max_tokens = 8});
    assert_memory_equal(clv_generation_text(texts, 0, NULL), text, 9);
    clv_generation_free(texts);
    clv_generator_free(g);
    clv_generator_free(by_hand);
}

/* ---- chunks ---- */

static void test_chunk_power(void **state)
{
    static const struct {
        int64_t rest, shortest, room;
        int power;
    } cases[] = {
        {0, 9, 64, -1},     {1, 1, 64, 0},      {2, 2, 64, 1},      {512, 512, 512, 9},  {600, 600, 4096, 9},
        {3, 3, 64, 2},      {5, 5, 8, 3},       {5, 5, 7, 2},       {5, 5, 0, 2},        {17, 17, 64, 5},
        {33, 33, 64, 5},    {40, 40, 64, 5},    {41, 41, 64, 6},    {41, 41, 63, 5},     {41, 41, 0, 5},
        {96, 96, 512, 6},   {97, 97, 512, 7},   {8, 40, 0, 3},      {9, 40, 0, 4},       {9, 12, 0, 3},
        {9, 12, 64, 4},     {11, 14, 16, 4},    {192, 192, 512, 7}, {193, 193, 512, 8},  {384, 384, 512, 8},
        {385, 385, 512, 9}, {385, 385, 511, 8}, {513, 513, 600, 9}, {520, 520, 1024, 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (clv_prefill_chunk_log2_or_negative(cases[i].rest, cases[i].shortest, cases[i].room) != cases[i].power)
            fail_msg("%lld tokens of %lld, room %lld: a chunk of 2^%d", (long long)cases[i].rest,
                     (long long)cases[i].shortest, (long long)cases[i].room,
                     clv_prefill_chunk_log2_or_negative(cases[i].rest, cases[i].shortest, cases[i].room));
}

/* Logits after `first` tokens, `n` in all, and two more, into got [3,V]; in chunks, or one by one. */
static void logits_after(float *got, const clv_model *of, int64_t first, int64_t n, int64_t context, bool one_by_one)
{
    clv_error err = {0};
    clv_generator *g;
    int64_t ids[64];
    const int64_t ends[] = {first, n, n + 2};
    for (int64_t i = 0; i < 64; i++)
        ids[i] = (7 * i + 3) % 250;
    must(clv_generator_new(
             &g, of, &(clv_generator_options){.size = sizeof(clv_generator_options), .batch = 1, .context = context},
             &err),
         &err);
    for (int64_t part = 0, at = 0; part < 3; part++) {
        const int64_t step = one_by_one || part == 2 ? 1 : ends[part] - at;
        for (; at < ends[part]; at += step) {
            must(clv_generator_feed(g, 0, ids + at, step, &err), &err);
            must(clv_generator_run(g, &err), &err);
        }
        memcpy(got + part * 256, clv_generator_logits(g, 0), 256 * sizeof *got);
    }
    clv_generator_free(g);
}

static void expect_chunks(const clv_model *of, const char *mesh, int64_t first, int64_t n, int64_t context)
{
    float want[3 * 256], got[3 * 256];
    logits_after(want, of, first, n, context, true);
    logits_after(got, of, first, n, context, false);
    for (int i = 0; i < 3 * 256; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-4f))
            fail_msg("%s, %lld and then %lld tokens of %lld: element %d of the logits is %g, one by one %g", mesh,
                     (long long)first, (long long)n, (long long)context, i, got[i], want[i]);
}

/* A prompt of any length has the logits of its last token, and what follows is not moved by what stood behind it, with
 * room for that and without. */
static void test_chunks(void **state)
{
    static const char *const meshes[] = {"model=1", "model=3", "data=2,model=2"};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        clv_error err = {0};
        clv_mesh mesh;
        clv_model *of;
        must(clv_mesh_parse(&mesh, meshes[m], &err), &err);
        must(clv_model_open(&of, folder,
                            &(clv_model_options){.size = sizeof(clv_model_options), .mesh = &mesh, .config_only = 1},
                            &err),
             &err);
        for (int64_t n = 2; n <= 62; n += m == 0 && n < 20 ? 1 : 12)
            for (int64_t first = 1; first < n; first = 2 * first + 1) {
                if (sweep_takes_thinned(5))
                    expect_chunks(of, meshes[m], first, n, n + 2);
                if (sweep_takes_thinned(5))
                    expect_chunks(of, meshes[m], first, n, 64);
            }
        clv_model_close(of);
    }
}

/* ---- streams ---- */

typedef struct stream {
    char text[3][512];
    int calls, lasts, cancel_after;
} stream;

static int on_text(void *arg, int64_t prompt, const char *text, size_t size, int last)
{
    stream *s = arg;
    assert_in_range(prompt, 0, 2);
    assert_int_equal(text[size], '\0');
    assert_true(size > 0 || last);
    strcat(s->text[prompt], text);
    s->lasts += last != 0;
    return ++s->calls == s->cancel_after;
}

static void test_stream(void **state)
{
    stream s = {0}, echoed = {0};
    clv_generator *g = new_generator();
    clv_generate_options o = {.sampling = &sampling, .max_tokens = 5, .on_text = on_text, .on_text_arg = &s};
    clv_generation *texts = generate(g, three, 3, &o);
    o.echo = 1;
    o.on_text_arg = &echoed;
    clv_generation_free(generate(g, three, 3, &o));
    for (int i = 0; i < 3; i++) {
        assert_string_equal(s.text[i], clv_generation_text(texts, i, NULL));
        assert_memory_equal(echoed.text[i], three[i], strlen(three[i]));
        assert_string_equal(echoed.text[i] + strlen(three[i]), s.text[i]);
    }
    assert_int_equal(s.lasts, 3);
    assert_int_equal(echoed.lasts, 3);
    clv_generation_free(texts);
    /* no token at all: the prompt alone */
    echoed = (stream){0};
    o.max_tokens = -1;
    texts = generate(g, three, 3, &o);
    assert_string_equal(echoed.text[1], three[1]);
    assert_string_equal(clv_generation_text(texts, 1, NULL), "");
    assert_int_equal(echoed.lasts, 3);
    clv_generation_free(texts);
    clv_generator_free(g);
}

static void test_cancel(void **state)
{
    stream s = {.cancel_after = 2};
    clv_generator *g = new_generator();
    clv_generation *texts = generate(
        g, three, 3, &(clv_generate_options){.max_tokens = 20, .batch = 2, .on_text = on_text, .on_text_arg = &s});
    assert_int_equal(s.calls, 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(clv_generation_finish_reason(texts, i), CLV_FINISH_CANCELLED);
        assert_string_equal(clv_generation_text(texts, i, NULL), s.text[i]);
    }
    assert_int_equal(clv_generation_sampled_tokens(texts, 0), 0); /* the shortest would have come in a second batch */
    clv_generation_free(texts);
    texts = generate(g, three, 1, &(clv_generate_options){.max_tokens = 2}); /* and the generator goes on */
    assert_int_equal(clv_generation_sampled_tokens(texts, 0), 2);
    clv_generation_free(texts);
    clv_generator_free(g);
}

/* What is written is not changed from where it is shown: calls that would are refused, and the text is the same. */
static int call_back(void *arg, int64_t prompt, const char *text, size_t size, int last)
{
    clv_generator *g = arg;
    clv_error err = {0};
    clv_generation *inner = NULL;
    clv_session_stats stats = {.size = sizeof stats};
    int64_t token = 1;
    expect(clv_generate(&inner, g, three, 1, NULL, &err), CLV_EINVAL, &err, "whose on_text this is called from");
    assert_null(inner);
    expect(clv_generator_feed(g, 0, &token, 1, &err), CLV_EINVAL, &err, "clv_generator_feed: the generator is in use");
    expect(clv_generator_run(g, &err), CLV_EINVAL, &err, "another generator");
    expect(clv_generator_find_nonfinite(g, &err), CLV_EINVAL, &err, "another generator");
    expect(clv_generator_sample(g, 0, NULL, &token, &err), CLV_EINVAL, &err, "another generator");
    expect(clv_generator_take_stats(g, &stats, &err), CLV_EINVAL, &err, "another generator");
    clv_generator_reset(g);
    return 0;
}

static void test_called_back(void **state)
{
    clv_generator *g = new_generator();
    clv_generate_options o = {.sampling = &sampling, .max_tokens = 12};
    clv_generation *alone = generate(g, three, 3, &o);
    o.on_text = call_back;
    o.on_text_arg = g;
    clv_generation *texts = generate(g, three, 3, &o), *after = generate(g, three, 1, NULL);
    for (int i = 0; i < 3; i++)
        assert_string_equal(clv_generation_text(texts, i, NULL), clv_generation_text(alone, i, NULL));
    clv_generation_free(alone);
    clv_generation_free(texts);
    clv_generation_free(after);
    clv_generator_free(g);
}

/* ---- where texts end ---- */

static void test_ends(void **state)
{
    clv_generator *g = new_generator(), *small;
    clv_error err = {0};
    clv_generation *texts = generate(g, three, 1, &(clv_generate_options){.sampling = &sampling, .max_tokens = 12});
    char whole[64] = "", stop[3] = "";
    strncpy(whole, clv_generation_text(texts, 0, NULL), sizeof whole - 1);
    assert_true(strlen(whole) > 6);
    memcpy(stop, whole + 4, 2);
    clv_generation_free(texts);
    const char *const stops[] = {"never\x01", stop};
    texts = generate(g, three, 1,
                     &(clv_generate_options){.sampling = &sampling, .max_tokens = 12, .stops = stops, .n_stops = 2});
    assert_int_equal(clv_generation_finish_reason(texts, 0), CLV_FINISH_STOP);
    assert_int_equal(strlen(clv_generation_text(texts, 0, NULL)), strstr(whole, stop) - whole);
    clv_generation_free(texts);
    must(clv_generator_new(&small, model, &(clv_generator_options){.context = 8}, &err), &err);
    texts = generate(small, three, 1, &(clv_generate_options){.sampling = &sampling});
    assert_int_equal(clv_generation_finish_reason(texts, 0), CLV_FINISH_CONTEXT);
    assert_int_equal(clv_generation_sampled_tokens(texts, 0), 8);
    clv_generation_free(texts);
    assert_int_equal(clv_generate(&texts, small, &three[1], 1, NULL, &err), CLV_ELIMIT);
    clv_generator_free(small);
    texts = generate(g, three, 1, &(clv_generate_options){.sampling = &sampling, .context = 8}); /* it had more */
    assert_int_equal(clv_generation_finish_reason(texts, 0), CLV_FINISH_CONTEXT);
    assert_int_equal(clv_generation_sampled_tokens(texts, 0), 8);
    clv_generation_free(texts);
    clv_generator_free(g);
}

/* ---- misuse ---- */

static void test_refused(void **state)
{
    clv_generator *g = new_generator();
    clv_generation *texts;
    clv_error err = {0};
    const char *const none[] = {"a", NULL}, *const empty[] = {"a", ""};
    assert_int_equal(clv_generate(NULL, g, three, 3, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_generate(&texts, NULL, three, 3, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_generate(&texts, g, NULL, 3, NULL, NULL), CLV_EINVAL);
    expect(clv_generate(&texts, g, three, 0, NULL, &err), CLV_EINVAL, &err, "0 prompts; valid: 1 and above");
    expect(clv_generator_feed(g, 0, NULL, -3, &err), CLV_EINVAL, &err, "-3 ids; valid: 0 and above");
    expect(clv_generator_run(g, &err), CLV_EINVAL, &err, "the generator was not fed");
    assert_int_equal(clv_generate(&texts, g, none, 2, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_generate(&texts, g, empty, 2, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_generate(&texts, g, three, 3, &(clv_generate_options){.n_stops = 1}, NULL), CLV_EINVAL);
    assert_int_equal(clv_generate(&texts, g, three, 3, &(clv_generate_options){.n_stops = 1, .stops = &empty[1]}, NULL),
                     CLV_EINVAL);
    assert_int_equal(clv_generate(&texts, g, three, 3, &(clv_generate_options){.size = 4}, NULL), CLV_EINVAL);
    assert_int_equal(
        clv_generate(&texts, g, three, 3, &(clv_generate_options){.sampling = &(clv_sampling){.top_p = 2}}, NULL),
        CLV_EINVAL);
    assert_int_equal(clv_generate(&texts, g, three, 3, &(clv_generate_options){.context = 65}, NULL), CLV_EINVAL);
    texts = generate(g, three, 3, &(clv_generate_options){.max_tokens = 1});
    assert_null(clv_generation_text(texts, 3, NULL));
    assert_null(clv_generation_text(NULL, 0, NULL));
    assert_int_equal(clv_generation_finish_reason(texts, -1), CLV_FINISH_CANCELLED);
    assert_int_equal(clv_generation_prompt_tokens(NULL, 0), 0);
    assert_int_equal(clv_generation_sampled_tokens(texts, 3), 0);
    assert_true(clv_generation_seconds(NULL).prompt == 0);
    clv_generation_free(texts);
    clv_generation_free(NULL);
    clv_generator_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_side_by_side), cmocka_unit_test(test_same_as_tokens), cmocka_unit_test(test_chunk_power),
        cmocka_unit_test(test_chunks),       cmocka_unit_test(test_stream),         cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_called_back),  cmocka_unit_test(test_ends),           cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
