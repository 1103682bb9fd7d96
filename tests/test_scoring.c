/* test_scoring.c - vectors and likelihoods of texts and proteins, against what the forwarder gives; and what is
 * refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/embed.h"
#include "cleave/score.h"
#include "must.h"
#include "temp_folder.h"
#include "unit_test.h"

static clv_model *decoder, *encoder; /* of bytes, of residues; with the weights that a seed gives */

static int make_models(const char *golden)
{
    static const char config[] =
        "{\\\"model_type\\\": \\\"llama\\\", \\\"hidden_size\\\": 32, \\\"num_hidden_layers\\\": 2, "
        "\\\"num_attention_heads\\\": 4, \\\"intermediate_size\\\": 64, \\\"vocab_size\\\": 256, "
        "\\\"max_position_embeddings\\\": 16}";
    char command[9000];
    snprintf(command, sizeof command,
             "cd %s && mkdir bytes esm && printf \"%s\" > bytes/config.json && cp '%s/tokenizer/esm_vocab/vocab.txt' "
             "esm/ && "
             "sed 's/\"vocab_size\": [0-9]*/\"vocab_size\": 33/' '%s/esm/config.json' > esm/config.json",
             folder, config, golden, golden);
    return system(command);
}

static int set_up(void **state)
{
    char golden[4096], path[64];
    const char *source = getenv("CLV_SOURCE_DIR");
    clv_error err = {0};
    snprintf(golden, sizeof golden, "%s/tests/golden", source ? source : ".");
    if (!mkdtemp(folder) || make_models(golden) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/bytes", folder);
    clv_model_options options = {.size = sizeof options, .config_only = 1, .check = 1};
    if (clv_model_open(&decoder, path, &options, &err) != CLV_OK)
        return -1;
    snprintf(path, sizeof path, "%s/esm", folder);
    return clv_model_open(&encoder, path, &options, &err) == CLV_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    clv_model_close(decoder);
    clv_model_close(encoder);
    return remove_folder(state);
}

static clv_forwarder *new_forwarder(const clv_model *model, clv_forward_result result)
{
    clv_error err = {0};
    clv_forwarder *f;
    must(clv_forwarder_new(&f, model, &(clv_forwarder_options){.result = result}, &err), &err);
    return f;
}

static clv_sequences *sequences_of(const clv_model *model, const char *const *texts, int64_t n, clv_too_long how)
{
    clv_error err = {0};
    clv_sequences *s;
    must(clv_sequences_from_texts(&s, model, texts, NULL, n,
                                  &(clv_sequences_options){.too_long = how, .min_content_tokens = 1}, &err),
         &err);
    return s;
}

/* ---- sequences ---- */

static const char *const texts[] = {"short", "as long as the positions that there are", "", "abc"};

static void test_what_fits(void **state)
{
    clv_error err = {0};
    clv_sequence_info info = {.size = sizeof info};
    clv_sequences *s = sequences_of(decoder, texts, 4, CLV_TOO_LONG_SKIP);
    assert_int_equal(clv_sequences_count(s), 2);
    assert_int_equal(clv_sequences_skipped_count(s), 2);
    assert_int_equal(clv_sequences_max_tokens(s), 16);
    assert_false(clv_sequences_is_fasta(s));
    must(clv_sequences_at(s, 1, &info, &err), &err);
    assert_string_equal(info.name, "4");
    assert_string_equal(info.text, "abc");
    assert_true(info.tokens == 3 && info.content_tokens == 3 && info.untruncated_tokens == 3);
    must(clv_sequences_skipped_at(s, 0, &info, &err), &err);
    assert_string_equal(info.name, "2");
    clv_sequences_free(s);
    s = sequences_of(decoder, texts, 2, CLV_TOO_LONG_TRUNCATE);
    must(clv_sequences_at(s, 1, &info, &err), &err);
    assert_true(info.tokens == 16 && info.content_tokens == 16 && info.untruncated_tokens == (int64_t)strlen(texts[1]));
    clv_sequences_free(s);
    assert_int_equal(clv_sequences_from_texts(&s, decoder, texts, NULL, 2, NULL, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "2: 39 tokens; the model takes 1 to 16"));
}

/* Special tokens are not the protein's own. */
static void test_proteins(void **state)
{
    char path[64];
    clv_error err = {0};
    clv_sequence_info info = {.size = sizeof info};
    clv_sequences *s;
    snprintf(path, sizeof path, "%s/two.fasta", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("\xef\xbb\xbf>one first\nMKT\naya\n>two\nGG\n", f);
    assert_int_equal(fclose(f), 0);
    must(clv_sequences_read(&s, encoder, path, NULL, &err), &err);
    assert_true(clv_sequences_is_fasta(s));
    must(clv_sequences_at(s, 0, &info, &err), &err);
    assert_string_equal(info.name, "one");
    assert_string_equal(info.text, "MKTAYA");
    assert_true(info.tokens == 8 && info.content_tokens == 6);
    clv_sequences_free(s);
    assert_int_equal(clv_sequences_read(&s, encoder, "/nowhere.fasta", NULL, NULL), CLV_ENOTFOUND);
}

/* Lines end in all three ways; of lines of JSON "text" is the sequence; the file may be compressed. */
static void test_files(void **state)
{
    static const struct {
        const char *name, *bytes, *texts[3];
    } files[] = {
        {"a", "ab\r\ncd\ref", {"ab", "cd", "ef"}},
        {"a.txt", ">ab\ncd\r>ef\n", {"CD", "", NULL}},
        {"a.pep", ";\n>ab\rm*\n", {"M", NULL, NULL}},
        {"a.txt", "{\"text\": \"ab\", \"n\": NaN}\n\n{\"text\": \"\"}\n", {"ab", "", NULL}},
        {"a.json", "[{\"text\": \"ab\"},\r\n {\"text\":\r\"cd\"}]", {"ab", "cd", NULL}},
    };
    static const char *const wrong[][3] = {
        {"a.csv", "text\nab\n", "a.csv: is a table by its name"},
        {"a.jsonl", "{\"text\": \"ab\"}\n{\"text\": 1}\n", "a.jsonl:2: the line: \"text\" must be a string"},
        {"a.jsonl", "{\"text\": \"a\\u0000\"}\n", "a.jsonl:1: the line: \"text\" holds the character U+0000"},
        {"a", "PAR1", "a: is a Parquet table"},
        {"a", ">a\nMK\nJ\n", "a:3: a: 'J' is no residue"},
    };
    char path[64], command[256];
    clv_error err = {0};
    clv_sequence_info info = {.size = sizeof info};
    clv_sequences *s;
    for (size_t i = 0; i < 2 * sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i / 2].name);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(files[i / 2].bytes, f);
        assert_int_equal(fclose(f), 0);
        snprintf(command, sizeof command, "gzip -c '%s' >'%s/z' && mv '%s/z' '%s'", path, folder, folder, path);
        assert_true(i % 2 == 0 || system(command) == 0);
        must(clv_sequences_read(&s, decoder, path, &(clv_sequences_options){.too_long = CLV_TOO_LONG_SKIP}, &err),
             &err);
        int64_t fit = 0;
        for (int k = 0; k < 3 && files[i / 2].texts[k]; k++)
            if (files[i / 2].texts[k][0] != '\0') {
                must(clv_sequences_at(s, fit++, &info, &err), &err);
                assert_string_equal(info.text, files[i / 2].texts[k]);
            }
        assert_int_equal(clv_sequences_count(s), fit);
        clv_sequences_free(s);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, wrong[i][0]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(wrong[i][1], f);
        assert_int_equal(fclose(f), 0);
        err = (clv_error){0};
        assert_true(clv_sequences_read(&s, decoder, path, NULL, &err) != CLV_OK);
        if (!strstr(err.message, wrong[i][2]))
            fail_msg("%s", err.message);
    }
}

static void test_text_read(void **state)
{
    char path[64], *text;
    size_t size;
    snprintf(path, sizeof path, "%s/zero", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite("a\0b", 1, 3, f), 3);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(clv_text_read(&text, &size, path, 0, NULL), CLV_EINVAL);
    assert_int_equal(clv_text_read(&text, &size, path, 1, NULL), CLV_OK);
    assert_int_equal(size, 3);
    free(text);
    assert_int_equal(clv_text_read(NULL, &size, path, 1, NULL), CLV_EINVAL);
    assert_int_equal(clv_text_read(&text, NULL, path, 1, NULL), CLV_EINVAL);
    assert_int_equal(clv_text_read(&text, &size, NULL, 1, NULL), CLV_EINVAL);
}

/* ---- vectors ---- */

typedef struct vectors {
    int64_t n_rows[4];
    float first[4][32]; /* of the first row */
    float *all;         /* of sequence 0, where it is asked for */
    int calls, fail_at;
} vectors;

static clv_status take(void *arg, int64_t i, const float *rows, int64_t n_rows, int64_t width, clv_error *err)
{
    vectors *v = arg;
    assert_in_range(i, 0, 3);
    assert_int_equal(width, 32);
    if (++v->calls == v->fail_at)
        return clv_fail(err, CLV_EIO, "enough");
    v->n_rows[i] = n_rows;
    memcpy(v->first[i], rows, sizeof v->first[i]);
    if (i == 0 && v->all)
        memcpy(v->all, rows, (size_t)(n_rows * width) * sizeof *rows);
    return CLV_OK;
}

static void test_embed(void **state)
{
    clv_error err = {0};
    const char *const three[] = {"abcde", "x", "four"};
    float states[5 * 32];
    vectors none = {.all = states}, mean = {0}, last = {0}, cls = {0};
    clv_sequences *s = sequences_of(decoder, three, 3, CLV_TOO_LONG_ERROR);
    clv_forwarder *f = new_forwarder(decoder, CLV_FORWARD_HIDDEN);
    must(clv_embed(f, s, &(clv_embed_options){.pooling = CLV_POOL_NONE, .batch_tokens = 1}, take, &none, &err), &err);
    must(clv_embed(f, s, NULL, take, &mean, &err), &err);
    must(clv_embed(f, s, &(clv_embed_options){.pooling = CLV_POOL_LAST}, take, &last, &err), &err);
    must(clv_embed(f, s, &(clv_embed_options){.pooling = CLV_POOL_CLS}, take, &cls, &err), &err);
    assert_true(none.n_rows[0] == 5 && none.n_rows[1] == 1 && none.n_rows[2] == 4 && mean.n_rows[0] == 1);
    for (int d = 0; d < 32; d++) {
        double sum = 0;
        for (int t = 0; t < 5; t++)
            sum += states[t * 32 + d];
        assert_true(fabs(sum / 5 - mean.first[0][d]) < 1e-5);
        assert_true(fabsf(states[4 * 32 + d] - last.first[0][d]) < 1e-5F);
        assert_true(fabsf(states[d] - cls.first[0][d]) < 1e-5F);
    }
    vectors failing = {.fail_at = 2};
    assert_int_equal(clv_embed(f, s, NULL, take, &failing, &err), CLV_EIO);
    assert_int_equal(failing.calls, 2);
    clv_forwarder *wrong = new_forwarder(decoder, CLV_FORWARD_NLL);
    assert_int_equal(clv_embed(wrong, s, NULL, take, &mean, NULL), CLV_EINVAL);
    assert_int_equal(clv_embed(NULL, s, NULL, take, &mean, NULL), CLV_EINVAL);
    assert_int_equal(clv_embed(f, NULL, NULL, take, &mean, NULL), CLV_EINVAL);
    assert_int_equal(clv_embed(f, s, NULL, NULL, &mean, NULL), CLV_EINVAL);
    assert_int_equal(clv_embed(f, s, &(clv_embed_options){.pooling = 9}, take, &mean, NULL), CLV_EINVAL);
    assert_int_equal(clv_embed(f, s, &(clv_embed_options){.batch_tokens = -1}, take, &mean, NULL), CLV_EINVAL);
    clv_forwarder_free(wrong);
    clv_forwarder_free(f);
    clv_sequences_free(s);
}

/* ---- likelihoods ---- */

static void count(void *arg, int64_t done, int64_t total)
{
    assert_true(done <= total);
    ++*(int *)arg;
}

/* One window: the sum of the losses that the forwarder gives. Windows of any size score every token but the first once.
 */
static void test_score_text(void **state)
{
    clv_error err = {0};
    clv_score whole = {.size = sizeof whole}, windows = {0};
    clv_forwarder *f = new_forwarder(decoder, CLV_FORWARD_NLL);
    int32_t ids[6] = {'a', 'b', 'c', 'd', 'e', 'f'}, labels[6] = {'b', 'c', 'd', 'e', 'f', CLV_IGNORE_INDEX};
    uint8_t mask[6] = {1, 1, 1, 1, 1, 1};
    float nll[6];
    int calls = 0;
    must(clv_forwarder_run(f, &(clv_forward_batch){.batch = 1, .seq = 6, .ids = ids, .mask = mask, .labels = labels},
                           nll, &err),
         &err);
    must(clv_score_text(&whole, f, "abcdef", 6, NULL, &err), &err);
    double sum = 0;
    for (int i = 0; i < 5; i++)
        sum += nll[i];
    assert_int_equal(whole.tokens, 5);
    assert_true(fabs(whole.nll - sum) < 1e-4);
    clv_score_options o = {.context = 4, .stride = 1, .progress = count, .progress_arg = &calls};
    must(clv_score_text(&windows, f, "abcdefghijklmnopqrstuvwxyz", 26, &o, &err), &err);
    assert_int_equal(windows.tokens, 25);
    assert_true(windows.nll > 0 && calls > 0);
    assert_int_equal(clv_score_text(NULL, f, "ab", 2, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_text(&whole, NULL, "ab", 2, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_text(&whole, f, NULL, 2, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_text(&whole, f, "ab", 2, &(clv_score_options){.context = 1}, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_text(&whole, f, "ab", 2, &(clv_score_options){.context = 17}, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_text(&whole, f, "ab", 2, &(clv_score_options){.context = 4, .stride = 4}, NULL),
                     CLV_EINVAL);
    assert_int_equal(clv_score_text(&whole, f, "ab", 2, &(clv_score_options){.batch_tokens = -1}, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_text(&whole, f, "a", 1, &(clv_score_options){.name = "it"}, &err), CLV_EINVAL);
    assert_string_equal(err.message, "it: 1 tokens; a perplexity needs two or more");
    clv_forwarder_free(f);
}

static void test_score_masked(void **state)
{
    clv_error err = {0};
    const char *const proteins[] = {"MKTAYIAK", "GG"};
    clv_score one = {0}, many = {0};
    clv_sequences *s = sequences_of(encoder, proteins, 2, CLV_TOO_LONG_ERROR);
    clv_forwarder *f = new_forwarder(encoder, CLV_FORWARD_NLL), *logits = new_forwarder(encoder, CLV_FORWARD_LOGITS);
    must(clv_score_masked(&one, f, s, 0, &(clv_score_options){.batch_tokens = 1}, &err), &err);
    must(clv_score_masked(&many, f, s, 0, NULL, &err), &err);
    assert_int_equal(one.tokens, 8);
    assert_true(one.nll > 0 && fabs(one.nll - many.nll) < 1e-4 * one.nll);
    assert_int_equal(clv_score_masked(NULL, f, s, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_masked(&one, NULL, s, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_masked(&one, logits, s, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_masked(&one, f, NULL, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_masked(&one, f, s, 2, NULL, NULL), CLV_EINVAL);
    /* a decoder has no mask token */
    clv_sequences *of_bytes = sequences_of(decoder, proteins, 1, CLV_TOO_LONG_ERROR);
    clv_forwarder *causal = new_forwarder(decoder, CLV_FORWARD_NLL);
    assert_int_equal(clv_score_masked(&one, causal, of_bytes, 0, NULL, NULL), CLV_EUNSUPPORTED);
    clv_forwarder_free(causal);
    clv_sequences_free(of_bytes);
    clv_forwarder_free(f);
    clv_forwarder_free(logits);
    clv_sequences_free(s);
}

/* A change and its way back cancel out where nothing else changes; two places add up. */
static void test_score_mutations(void **state)
{
    clv_error err = {0};
    const char *const proteins[] = {"MKTAYIAK"};
    clv_mutation_scores *scores;
    clv_sequences *s = sequences_of(encoder, proteins, 1, CLV_TOO_LONG_ERROR);
    clv_forwarder *f = new_forwarder(encoder, CLV_FORWARD_LOGITS), *nll = new_forwarder(encoder, CLV_FORWARD_NLL);
    must(clv_score_mutations(&scores, f, s, 0, "K2R,A4G,K2R:A4G,K2K", NULL, &err), &err);
    assert_int_equal(clv_mutation_scores_count(scores), 4);
    assert_string_equal(clv_mutation_scores_name(scores, 2), "K2R:A4G");
    double both = clv_mutation_scores_score(scores, 0) + clv_mutation_scores_score(scores, 1);
    assert_true(fabs(clv_mutation_scores_score(scores, 2) - both) < 1e-5);
    assert_true(clv_mutation_scores_score(scores, 0) != 0 && clv_mutation_scores_score(scores, 3) == 0);
    assert_null(clv_mutation_scores_name(scores, 4));
    assert_null(clv_mutation_scores_name(NULL, 0));
    assert_true(clv_mutation_scores_score(scores, -1) == 0);
    clv_mutation_scores_free(scores);
    clv_mutation_scores_free(NULL);
    assert_int_equal(clv_score_mutations(&scores, f, s, 0, "K3R", NULL, &err), CLV_EINVAL);
    assert_string_equal(err.message, "mutations: K3R: residue 3 is T");
    clv_sequences *masked = sequences_of(encoder, (const char *[]){"MK<mask>"}, 1, CLV_TOO_LONG_ERROR);
    assert_int_equal(clv_score_mutations(&scores, f, masked, 0, "K2R", NULL, NULL), CLV_EUNSUPPORTED);
    clv_sequences_free(masked);
    assert_int_equal(clv_score_mutations(NULL, f, s, 0, "K2R", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_mutations(&scores, NULL, s, 0, "K2R", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_mutations(&scores, nll, s, 0, "K2R", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_mutations(&scores, f, s, 1, "K2R", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_score_mutations(&scores, f, s, 0, NULL, NULL, NULL), CLV_EINVAL);
    clv_forwarder_free(f);
    clv_forwarder_free(nll);
    clv_sequences_free(s);
}

static void test_refused(void **state)
{
    clv_sequences *s;
    const char *const hole[] = {"a", NULL};
    clv_sequence_info info = {.size = sizeof info};
    assert_int_equal(clv_sequences_from_texts(NULL, decoder, texts, NULL, 1, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_from_texts(&s, NULL, texts, NULL, 1, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_from_texts(&s, decoder, NULL, NULL, 1, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_from_texts(&s, decoder, texts, NULL, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_from_texts(&s, decoder, hole, NULL, 2, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_from_texts(&s, decoder, texts, hole, 2, NULL, NULL), CLV_EINVAL);
    assert_int_equal(
        clv_sequences_from_texts(&s, decoder, texts, NULL, 1, &(clv_sequences_options){.too_long = 9}, NULL),
        CLV_EINVAL);
    assert_int_equal(clv_sequences_read(NULL, decoder, "x", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_read(&s, NULL, "x", NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_read(&s, decoder, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_at(NULL, 0, &info, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_skipped_at(NULL, 0, &info, NULL), CLV_EINVAL);
    s = sequences_of(decoder, texts, 1, CLV_TOO_LONG_ERROR);
    assert_int_equal(clv_sequences_at(s, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_sequences_at(s, -1, &info, NULL), CLV_EINVAL);
    clv_sequences_free(s);
    clv_sequences_free(NULL);
    assert_int_equal(clv_sequences_count(NULL), 0);
    assert_int_equal(clv_sequences_skipped_count(NULL), 0);
    assert_int_equal(clv_sequences_max_tokens(NULL), 0);
    assert_false(clv_sequences_is_fasta(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits),    cmocka_unit_test(test_proteins),        cmocka_unit_test(test_files),
        cmocka_unit_test(test_text_read),    cmocka_unit_test(test_embed),           cmocka_unit_test(test_score_text),
        cmocka_unit_test(test_score_masked), cmocka_unit_test(test_score_mutations), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
