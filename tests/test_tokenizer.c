/* test_tokenizer.c - tokenizers against the `tokenizers` library (tests/golden/make_tokenizer.py), UTF-8, and a real
 * model's greedy text at several degrees; patterns with code of their own against PCRE2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit_test.h"
#include <jansson.h>

#include "base/text/utf8.h"
#include "cleave/rng.h"
#include "infer/generation/streaming_detokenizer.h"
#include "tokens/pre_tokenizers/pattern_fast_paths.h"
#include "tokens/regex/regex.h"

static const char *path_of(char *out, size_t size, const char *variable, const char *name)
{
    const char *root = getenv(variable);
    assert_non_null(root);
    snprintf(out, size, "%s/%s", root, name);
    return out;
}

/* ---- goldens ---- */

static void check_case(const clv_tokenizer *t, const char *name, const json_t *row)
{
    const json_t *text = json_object_get(row, "text"), *want = json_object_get(row, "ids");
    const json_t *decoded = json_object_get(row, "decoded");
    clv_error err = {0};
    int64_t *ids, n;
    char *back;
    size_t size;
    if (clv_tokenizer_encode(t, json_string_value(text), json_string_length(text), true, &ids, &n, &err) != CLV_OK)
        fail_msg("%s: %s", name, err.message);
    bool same = n == (int64_t)json_array_size(want);
    for (int64_t i = 0; same && i < n; i++)
        same = ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    if (!same)
        fail_msg("%s: '%s' has other ids", name, json_string_value(text));
    if (clv_tokenizer_decode(t, ids, n, &back, &size, &err) != CLV_OK)
        fail_msg("%s: %s", name, err.message);
    if (size != json_string_length(decoded) || memcmp(back, json_string_value(decoded), size) != 0)
        fail_msg("%s: '%s' decodes to '%s', expected '%s'", name, json_string_value(text), back,
                 json_string_value(decoded));
    free(back);
    free(ids);
}

static void test_goldens(void **state)
{
    static const char *const names[] = {"metaspace",     "normalizer",
                                        "always",        "gpt2",
                                        "gpt2_prefix",   "llama3",
                                        "qwen2",         "roberta",
                                        "bert",          "bert_cased",
                                        "words",         "words_split",
                                        "bert_vocab",    "bert_vocab_cased",
                                        "esm_vocab",     "esm_vocab_clean",
                                        "tekken",        "cl100k",
                                        "deepseek3",     "deepseek_coder",
                                        "falcon",        "t5",
                                        "unigram_bytes", "first_bpe",
                                        "letters",       "ties"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char folder[2048], file[4096], name[64];
        clv_error err = {0};
        clv_tokenizer *t;
        snprintf(name, sizeof name, "tests/golden/tokenizer/%s", names[i]);
        path_of(folder, sizeof folder, "CLV_SOURCE_DIR", name);
        snprintf(file, sizeof file, "%s/cases.json", folder);
        if (clv_tokenizer_open(&t, folder, &err) != CLV_OK)
            fail_msg("%s", err.message);
        json_t *cases = json_load_file(file, JSON_ALLOW_NUL, NULL);
        assert_true(json_array_size(cases) > 90);
        for (size_t c = 0; c < json_array_size(cases); c++)
            check_case(t, names[i], json_array_get(cases, c));
        json_decref(cases);
        assert_int_equal(clv_tokenizer_decode(t, (int64_t[]){-1}, 1, &(char *){NULL}, &(size_t){0}, &err), CLV_EINVAL);
        clv_tokenizer_free(t);
    }
}

/* ---- UTF-8 ---- */

static void repairs_to(const char *text, size_t size, const char *want)
{
    size_t n;
    char *out = clv_utf8_repair(&n, text, size);
    assert_non_null(out);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(out, want, n);
    free(out);
}

#define BAD "\xef\xbf\xbd"

/* As Python's bytes.decode("utf-8", "replace"). */
static void test_utf8(void **state)
{
    repairs_to("a\x80z", 3, "a" BAD "z");
    repairs_to("\xe2\x82", 2, BAD);
    repairs_to("\xe2\x82\xac", 3, "\xe2\x82\xac");
    repairs_to("\xe2(\xa1", 3, BAD "(" BAD);
    repairs_to("\xed\xa0\x80", 3, BAD BAD BAD); /* a surrogate */
    repairs_to("\xf0\x9f\x99", 3, BAD);
    repairs_to("\xf0\x9f\x99\x82", 4, "\xf0\x9f\x99\x82");
    repairs_to("\xc0\xaf", 2, BAD BAD);                 /* overlong */
    repairs_to("\xf4\x90\x80\x80", 4, BAD BAD BAD BAD); /* above U+10FFFF */
    assert_true(clv_utf8_valid("\xc3\xa9", 2));
    assert_false(clv_utf8_valid("\xc3", 1));
    assert_true(clv_utf8_ends_inside_character("a\xf0\x9f\x99", 4));
    assert_false(clv_utf8_ends_inside_character("a\xf0\x9f\x99\x82", 5));
    assert_false(clv_utf8_ends_inside_character("a\x80", 2));
}

/* ---- patterns with code of their own ---- */

enum { LAST_CHARACTER = 0x10ffff, TEXTS = 3000, LONGEST = 40 };

static clv_text_span span_of(const char *text)
{
    return clv_text_span_of(text, strlen(text));
}

static clv_regex *compiled(const char *expression)
{
    clv_error err = {0};
    clv_regex *regex = NULL;
    if (clv_regex_compile(&regex, span_of(expression), false, "here", &err) != CLV_OK)
        fail_msg("%s", err.message);
    return regex;
}

/* All characters that PCRE2's Unicode has assigned; returns how many. */
static size_t assigned_characters(uint32_t *out)
{
    clv_regex *unassigned = compiled("\\p{Cn}");
    size_t n = 0;
    for (uint32_t c = 0; c <= LAST_CHARACTER; c++) {
        char bytes[4];
        bool found;
        if (c >= 0xd800 && c < 0xe000)
            continue;
        clv_regex_iterator walk = {.regex = unassigned, .text = clv_text_span_of(bytes, clv_utf8_encode(bytes, c))};
        assert_int_equal(clv_regex_iterator_next(&found, &walk, NULL), CLV_OK);
        clv_regex_iterator_free(&walk);
        if (!found)
            out[n++] = c;
    }
    clv_regex_free(unassigned);
    return n;
}

/* Text `which`: characters that patterns tell apart, and any. */
static size_t random_text(char *out, const uint32_t *all, size_t n, uint64_t which)
{
    static const char usual[] = "  \n\r\t'sStTrReEvVlLmMdD09aZ_-.!";
    uint32_t drawn[LONGEST + 1];
    size_t size = 0;
    clv_random_bits(drawn, clv_key_seed(7), which * (LONGEST + 1), LONGEST + 1);
    for (uint32_t i = 0; i < drawn[LONGEST] % LONGEST; i++) {
        uint32_t c = drawn[i] % 4 ? (unsigned char)usual[drawn[i] / 4 % (sizeof usual - 1)] : all[drawn[i] / 4 % n];
        size += clv_utf8_encode(out + size, c);
    }
    return size;
}

static void matches_as(const clv_pattern_fast_path *known, const clv_regex *regex, clv_text_span text)
{
    clv_regex_iterator walk = {.regex = regex, .text = text};
    bool found;
    size_t at = 0;
    for (; at < text.size; at = walk.end) {
        assert_int_equal(clv_regex_iterator_next(&found, &walk, NULL), CLV_OK);
        if (!found || walk.begin != at || walk.end != known->end(text, at))
            fail_msg("'%.*s' at %zu", (int)text.size, text.text, at);
    }
    assert_int_equal(clv_regex_iterator_next(&found, &walk, NULL), CLV_OK);
    assert_false(found);
    clv_regex_iterator_free(&walk);
}

static void test_known_patterns(void **state)
{
#define HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    const char *const expressions[] = {clv_gpt2_pattern.expression, HEAD "\\p{N}{1,3}" TAIL, HEAD "\\p{N}" TAIL};
    uint32_t *all = malloc((LAST_CHARACTER + 1) * sizeof *all);
    char text[4 * LONGEST];
    assert_non_null(all);
    size_t n = assigned_characters(all);
    assert_true(n > 280000);
    for (int i = 0; i < 3; i++) {
        const clv_pattern_fast_path *known = clv_pattern_fast_path_find(span_of(expressions[i]));
        clv_regex *regex = compiled(expressions[i]);
        assert_non_null(known);
        for (uint64_t t = 0; t < TEXTS; t++)
            matches_as(known, regex, clv_text_span_of(text, random_text(text, all, n, t)));
        clv_regex_free(regex);
    }
    free(all);
}

/* Expressions that Oniguruma, which the library uses, and PCRE2 read differently: the first match is Oniguruma's. */
static void test_oniguruma_syntax(void **state)
{
    static const struct {
        const char *expression, *text;
        size_t begin, end;
    } cases[] = {
        {"a{1,2}+", "aaab", 0, 3}, /* an interval that is repeated, not a possessive one */
        {"a{,2}", "aaab", 0, 2},   {"a++", "aaab", 0, 3}, {"(?m).+", "a\nb", 0, 3}, {"^b", "a\nb", 2, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_regex *regex = compiled(cases[i].expression);
        clv_regex_iterator walk = {.regex = regex, .text = span_of(cases[i].text)};
        bool found;
        assert_int_equal(clv_regex_iterator_next(&found, &walk, NULL), CLV_OK);
        if (!found || walk.begin != cases[i].begin || walk.end != cases[i].end)
            fail_msg("%s: %zu to %zu", cases[i].expression, walk.begin, walk.end);
        clv_regex_iterator_free(&walk);
        clv_regex_free(regex);
    }
}

/* ---- streaming ---- */

/* A byte that was given out as a character, and is none together with the next: what follows is whole characters. */
static void test_streaming_of_bytes(void **state)
{
    const int64_t bytes[] = {97, 151, 23, 531}; /* "^", 0x94, 0x14, " ok" */
    char folder[4096], joined[64] = "";
    clv_error err = {0};
    clv_tokenizer *t;
    clv_streaming_detokenizer stream = {0};
    path_of(folder, sizeof folder, "CLV_SOURCE_DIR", "tests/golden/tokenizer/unigram_bytes");
    assert_int_equal(clv_tokenizer_open(&t, folder, &err), CLV_OK);
    for (int64_t i = 0; i < 4; i++) {
        char *piece;
        size_t size;
        assert_int_equal(clv_streaming_detokenizer_add(&stream, t, &bytes[i], 1, i == 3, &piece, &size, &err), CLV_OK);
        assert_true(clv_utf8_valid(piece, size));
        strncat(joined, piece, size);
        free(piece);
    }
    assert_string_equal(joined, "^\xef\xbf\xbd\xef\xbf\xbd ok");
    clv_streaming_detokenizer_free(&stream);
    clv_tokenizer_free(t);
}

/* A character that comes as bytes is given out whole, and all pieces make up the text. */
static void test_streaming(void **state)
{
    static const char text[] = "the \xf0\x9f\x99\x82 of \xe6\x97\xa5\xe6\x9c\xac";
    char folder[4096], joined[256] = "";
    clv_error err = {0};
    clv_tokenizer *t;
    clv_streaming_detokenizer stream = {0};
    int64_t *ids, n;
    path_of(folder, sizeof folder, "CLV_SOURCE_DIR", "tests/golden/tokenizer/normalizer");
    assert_int_equal(clv_tokenizer_open(&t, folder, &err), CLV_OK);
    assert_int_equal(clv_tokenizer_encode(t, text, strlen(text), true, &ids, &n, &err), CLV_OK);
    for (int64_t i = 0; i < n; i++) {
        char *piece;
        size_t size;
        assert_int_equal(clv_streaming_detokenizer_add(&stream, t, &ids[i], 1, i == n - 1, &piece, &size, &err),
                         CLV_OK);
        assert_true(clv_utf8_valid(piece, size));
        strncat(joined, piece, size);
        free(piece);
    }
    assert_string_equal(joined, text);
    clv_streaming_detokenizer_free(&stream);
    free(ids);
    clv_tokenizer_free(t);
}

/* ---- a real model ---- */

static void test_stories(void **state)
{
    static const char want[] =
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw "
        "a big, red ball. She wanted to play with it, but it was too high.";
    static const int degrees[] = {1, 2, 3, 4, 8};
    char model[4096], command[8192], first[4096] = "", out[4096];
    if (!getenv("CLV_SHARED") || access(path_of(model, sizeof model, "CLV_SHARED", "models/stories260K"), R_OK) != 0) {
        print_message("skipped: there is no shared/models/stories260K\n");
        skip();
    }
    for (int i = 0; i < 5; i++) {
        snprintf(command, sizeof command,
                 "%s/cleave generate --check -m %s -p 'Once upon a time' --temp 0 -n 190 -tp %d",
                 getenv("CLV_BUILD_DIR"), model, degrees[i]);
        FILE *pipe = popen(command, "r");
        size_t n = fread(out, 1, sizeof out - 1, pipe);
        out[n] = '\0';
        assert_int_equal(pclose(pipe), 0);
        assert_memory_equal(out, want, strlen(want));
        if (i > 0)
            assert_string_equal(out, first);
        strcpy(first, out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens),        cmocka_unit_test(test_utf8),
                                       cmocka_unit_test(test_known_patterns), cmocka_unit_test(test_oniguruma_syntax),
                                       cmocka_unit_test(test_streaming),      cmocka_unit_test(test_streaming_of_bytes),
                                       cmocka_unit_test(test_stories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
