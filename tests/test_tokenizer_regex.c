/* test_tokenizer_regex.c - regular expressions, Unigram and Precompiled: what no tokenizer is made of, and texts
 * that one has no ids for. Each message names the file, the component, the pattern and the reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/tokenizer.h"
#include "unit_test.h"

#define FILE_NAME "test_tokenizer_regex.json"
#define UNIGRAM   "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<u>\",0],[\"a\",-1.5]]}"

/* NULL when it is refused; `status` and `message` are what must be said. */
static clv_tokenizer *opened(const char *json, clv_status status, const char *message)
{
    char path[4096];
    const char *root = getenv("CLV_BUILD_DIR");
    clv_error err = {0};
    clv_tokenizer *t = NULL;
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/" FILE_NAME, root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(json, file);
    fclose(file);
    clv_status got = clv_tokenizer_open(&t, path, &err);
    if (got != status || (got != CLV_OK && !(strstr(err.message, FILE_NAME ": ") && strstr(err.message, message))))
        fail_msg("%.300s: status %d, '%s', expected %d, '%s'", json, (int)got, err.message, (int)status, message);
    remove(path);
    return t;
}

static void opens(const char *json, clv_status status, const char *message)
{
    clv_tokenizer_free(opened(json, status, message));
}

/* Inserts one part into a file. */
static void part(const char *format, const char *with, clv_status status, const char *message)
{
    char json[4096];
    int n = snprintf(json, sizeof json, format, with);
    assert_in_range(n, 1, sizeof json - 1);
    opens(json, status, message);
}

/* ---- patterns ---- */

/* A pattern as JSON has it. */
static void split(const char *pattern, clv_status status, const char *message)
{
    part("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\","
         "\"invert\":false}," UNIGRAM "}",
         pattern, status, message);
}

static void test_patterns(void **state)
{
    static const struct {
        const char *pattern, *message;
        clv_status status;
    } rows[] = {
        {"(a", "the pre-tokenizer Split: the pattern '(a': a group without its ')' at byte 3", CLV_EFORMAT},
        {"a)", "a ')' too many at byte 2", CLV_EFORMAT},
        {"[a", "a class without its ']' at byte 3", CLV_EFORMAT},
        {"*a", "nothing to repeat at byte 1", CLV_EFORMAT},
        {"a|+", "nothing to repeat at byte 3", CLV_EFORMAT},
        {"[z-a]", "a range that ends before it begins", CLV_EFORMAT},
        {"\\\\", "'\\' at the end", CLV_EFORMAT},
        {"\\\\p{L", "a property without its '}'", CLV_EFORMAT},
        {"(?#a", "a comment without its ')'", CLV_EFORMAT},
        {"\\\\x{d800}", "an escape without the code of a character", CLV_EFORMAT},
        {"(?<=a+)b", "lookbehind assertion", CLV_EFORMAT},
        {"a{3,1}", "the pattern 'a{3,1}': numbers out of order in {} quantifier, at byte ", CLV_EFORMAT},
        {"\\\\sa{3,1}", "', which it is to PCRE2", CLV_EFORMAT},
        {"(a)\\\\2", "reference to non-existent subpattern", CLV_EFORMAT},
        {"\\\\p{Nope}", "the property 'Nope' at byte 4 is not supported", CLV_EUNSUPPORTED},
        {"[[:nope:]]", "the class 'nope' at byte 4 is not supported", CLV_EUNSUPPORTED},
        {"[a-\\\\d]", "the range 'a-' at byte 2 is not supported", CLV_EUNSUPPORTED},
        {"(?~a)", "the group '(?~a' at byte 1 is not supported", CLV_EUNSUPPORTED},
        {"\\\\X", "the escape '\\X' at byte 1 is not supported", CLV_EUNSUPPORTED},
        {"\\\\xff", "the byte '\\xf' at byte 1 is not supported", CLV_EUNSUPPORTED},
        {"(?i)grass", "ignoring the case of 's' at byte 9 is not supported", CLV_EUNSUPPORTED},
        {"(?i:[^\\\\p{Lu}])", "ignoring case, the class '\\p{Lu}' at byte 7 is not supported", CLV_EUNSUPPORTED},
        {"(?i:\xc3\x9f)", "ignoring the case of '\xc3\x9f' at byte 5 is not supported", CLV_EUNSUPPORTED},
        {"(a+)+$|\\\\p{Han}{,2}", "", CLV_OK},
    };
    char deep[600] = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        split(rows[i].pattern, rows[i].status, rows[i].message);
    for (int i = 0; i < 180; i++)
        strcat(deep, i < 90 ? "(a" : ")");
    split(deep, CLV_OK, "");
    for (int i = 0; i < 60; i++)
        strcat(deep, i < 30 ? "([" : "])");
    split(deep + 60, CLV_EFORMAT, "");
    memset(deep, '(', 200);
    split(deep, CLV_EFORMAT, "brackets nested too deep");
    memset(deep, '[', 200);
    split(deep, CLV_EFORMAT, "too deep");
}

static void test_pattern_fields(void **state)
{
    static const char splits[] = "{\"pre_tokenizer\":{\"type\":\"Split\",%s,\"invert\":false}," UNIGRAM "}",
                      replaces[] = "{\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",%s}," UNIGRAM "}";
    static const char must_be[] = "\"pattern\" must be {\"Regex\": ...} or {\"String\": ...}";
    part(splits, "\"pattern\":{\"String\":\".\"},\"behavior\":\"MergedWithNext\"", CLV_OK, "");
    part(splits, "\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"", CLV_OK, "");
    part(splits, "\"pattern\":{\"Other\":\".\"},\"behavior\":\"Isolated\"", CLV_EFORMAT, must_be);
    part(splits, "\"pattern\":\".\",\"behavior\":\"Isolated\"", CLV_EFORMAT, must_be);
    part(splits, "\"pattern\":{\"String\":\".\",\"Regex\":\".\"},\"behavior\":\"Isolated\"", CLV_EFORMAT, must_be);
    part(splits, "\"pattern\":{\"Regex\":7},\"behavior\":\"Isolated\"", CLV_EFORMAT, "\"Regex\" must be a string");
    part(splits, "\"pattern\":{\"Regex\":\".\"},\"behavior\":\"Gone\"", CLV_EUNSUPPORTED,
         "the pre-tokenizer Split: the behavior 'Gone' is not supported; valid: Isolated, Removed, Contiguous, ");
    part(replaces, "\"pattern\":{\"Regex\":\" {2,}\"}", CLV_OK, "");
    part(replaces, "\"pattern\":{\"String\":\"\"}", CLV_OK, "");
    part(replaces, "\"pattern\":{\"Regex\":\"(a\"}", CLV_EFORMAT,
         "the normalizer Replace: the pattern '(a': a group without its ')'");
    part(replaces, "\"pattern\":7", CLV_EFORMAT, must_be);
}

/* ---- Unigram ---- */

static void test_unigram(void **state)
{
    static const char models[] = "{\"model\":{\"type\":\"Unigram\",%s}}";
    part(models, "\"unk_id\":0,\"vocab\":[[\"<u>\",0],[\"a\",-1.5],[\"a\",-2]]", CLV_OK, "");
    part(models, "\"unk_id\":null,\"vocab\":[[\"a\",0.0]]", CLV_OK, "");
    part(models, "\"unk_id\":2,\"vocab\":[[\"<u>\",0],[\"a\",-1]]", CLV_EFORMAT, "the model Unigram: \"unk_id\" is 2");
    part(models, "\"unk_id\":-1,\"vocab\":[[\"<u>\",0]]", CLV_EFORMAT, "\"unk_id\" is -1");
    part(models, "\"vocab\":[[\"<u>\",0],[\"a\"]]", CLV_EFORMAT, "item 2 of \"vocab\" is not [\"token\", score]");
    part(models, "\"vocab\":[[\"<u>\",\"0\"]]", CLV_EFORMAT, "item 1 of \"vocab\"");
    part(models, "\"vocab\":[[7,0]]", CLV_EFORMAT, "item 1 of \"vocab\"");
    part(models, "\"vocab\":[{}]", CLV_EFORMAT, "item 1 of \"vocab\"");
    part(models, "\"vocab\":{\"<u>\":0}", CLV_EFORMAT, "the model's \"vocab\" must be a list");
    part(models, "\"vocab\":[]", CLV_EFORMAT, "the vocabulary is empty");
    part(models, "\"byte_fallback\":1,\"vocab\":[[\"<u>\",0]]", CLV_EFORMAT, "\"byte_fallback\" must be true or false");
}

/* Of two paths of equal score a token of the vocabulary is taken, not an unknown one; a better unknown one wins. An
 * unknown token has the lowest score, -1, less 10. */
static void test_unigram_ties(void **state)
{
    static const struct {
        const char *unknown, *score; /* "unk_id"; the score of "a", before an unknown "b" */
        int64_t n, ids[2];
    } cases[] = {{"0", "10.0", 1, {2}}, {"null", "10.0", 1, {2}}, {"0", "11.0", 2, {1, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[256];
        int64_t *ids, n;
        snprintf(json, sizeof json,
                 "{\"model\":{\"type\":\"Unigram\",\"unk_id\":%s,\"vocab\":[[\"<u>\",0],[\"a\",%s],[\"ab\",-1]]}}",
                 cases[i].unknown, cases[i].score);
        clv_tokenizer *t = opened(json, CLV_OK, "");
        assert_int_equal(clv_tokenizer_encode(t, "ab", 2, true, &ids, &n, NULL), CLV_OK);
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(ids, cases[i].ids, (size_t)n * sizeof *ids);
        free(ids);
        clv_tokenizer_free(t);
    }
}

/* ---- Precompiled ---- */

static const char precompiled[] = "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":%s}," UNIGRAM "}";

static void test_precompiled(void **state)
{
    part(precompiled, "\"BAAAAAAAAAA=\"", CLV_OK, "");
    part(precompiled, "null", CLV_EFORMAT, "\"precompiled_charsmap\" must be a string");
    part(precompiled, "\"\"", CLV_EFORMAT, "is broken: a trie of 0 bytes in 0");
    part(precompiled, "\"AAAA\"", CLV_EFORMAT, "is broken: a trie of 0 bytes in 3");
    part(precompiled, "\"AAAAAA==\"", CLV_EFORMAT, "is broken: a trie of 0 bytes in 4");
    part(precompiled, "\"CAAAAAAAAAA=\"", CLV_EFORMAT, "is broken: a trie of 8 bytes in 8");
    part(precompiled, "\"////fwAAAAA=\"", CLV_EFORMAT, "is broken: a trie of 2147483647 bytes in 8");
    part(precompiled, "\"BAAAAAAAAAD/\"", CLV_EFORMAT, "its texts are not UTF-8");
    part(precompiled, "\"AAA\"", CLV_EFORMAT, "is not base64");
    part(precompiled, "\"AA=A\"", CLV_EFORMAT, "is not base64");
    part(precompiled, "\"AB==\"", CLV_EFORMAT, "is not base64");
    part(precompiled, "\"A-A=\"", CLV_EFORMAT, "is not base64");
}

/* ---- texts ---- */

static void encodes(const char *json, const char *text, clv_status status, const char *message)
{
    clv_error err = {0};
    clv_tokenizer *t = opened(json, CLV_OK, "");
    int64_t *ids = NULL, n;
    clv_status got = clv_tokenizer_encode(t, text, strlen(text), true, &ids, &n, &err);
    if (got != status || (got != CLV_OK && !strstr(err.message, message)))
        fail_msg("%.300s: status %d, '%s', expected %d, '%s'", json, (int)got, err.message, (int)status, message);
    free(ids);
    clv_tokenizer_free(t);
}

static void test_texts(void **state)
{
    static const char without[] = "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}";
    /* one unit, whose offset leads out of the trie; then "a", whose text (of two bytes) begins at 0, 3 (the end), 1, 4
     * and 2^31 - 1 */
    static const struct {
        const char *charsmap;
        clv_status status;
    } tries[] = {
        {"\"BAAAAAAEAAA=\"", CLV_EFORMAT},
        {"\"DAAAAACAAQBhDQAAAAAAAMOpAA==\"", CLV_OK},
        {"\"DAAAAACAAQBhDQAAAwAAAMOpAA==\"", CLV_OK},
        {"\"DAAAAACAAQBhDQAAAQAAAMOpAA==\"", CLV_EFORMAT},
        {"\"DAAAAACAAQBhDQAABAAAAMOpAA==\"", CLV_EFORMAT},
        {"\"DAAAAACAAQBhDQAA////f8OpAA==\"", CLV_EFORMAT},
    };
    char json[1024], text[100] = "";
    encodes(without, "aa", CLV_OK, "");
    encodes(without, "a\xc3\xa9", CLV_EINVAL, "'\xc3\xa9' is in no token, and the tokenizer's \"unk_id\" is null");
    memset(text, 'a', 75);
    text[75] = 'b';
    encodes("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+a+)+$\"},\"behavior\":\"Isolated\","
            "\"invert\":false}," UNIGRAM "}",
            text, CLV_ELIMIT, "a pattern of the tokenizer, on a text of 76 bytes, at byte 1: match limit exceeded");
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        snprintf(json, sizeof json, precompiled, tries[i].charsmap);
        encodes(json, "a", tries[i].status, "\"precompiled_charsmap\" is broken: it points outside of itself");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_patterns),    cmocka_unit_test(test_pattern_fields),
                                       cmocka_unit_test(test_unigram),     cmocka_unit_test(test_unigram_ties),
                                       cmocka_unit_test(test_precompiled), cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
