/* test_tokenizer_errors.c - what no tokenizer is made of: each message names the file, the field and the reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleave/tokenizer.h"
#include "unit_test.h"

static void write_text(const char *path, const char *text, size_t size)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    fclose(file);
}

static const char *in_build(char *out, size_t size, const char *name)
{
    const char *root = getenv("CLV_BUILD_DIR");
    assert_non_null(root);
    snprintf(out, size, "%s/%s", root, name);
    return out;
}

/* ---- tokenizer.json ---- */

#define FILE_NAME "test_tokenizer_errors.json"

static const char whole[] =
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<u>\",\"special\":true,\"lstrip\":false,\"rstrip\":false,"
    "\"single_word\":false,\"normalized\":false}],\"normalizer\":null,\"pre_tokenizer\":null,"
    "\"post_processor\":null,\"decoder\":null,"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"<u>\":0,\"a\":1,\"b\":2,\"ab\":3},\"merges\":[\"a b\"]}}";

static void open_text(const char *text, size_t size, clv_status status, const char *message)
{
    char path[4096];
    clv_error err = {0};
    clv_tokenizer *t;
    write_text(in_build(path, sizeof path, FILE_NAME), text, size);
    clv_status got = clv_tokenizer_open(&t, path, &err);
    bool named = status == CLV_OK || (strstr(err.message, FILE_NAME) && strstr(err.message, message));
    if (got != status || !named)
        fail_msg("%.300s: status %d, '%s', expected %d, '%s'", text, (int)got, err.message, (int)status, message);
    if (got == CLV_OK)
        clv_tokenizer_free(t);
    remove(path);
}

/* `whole` with a piece of it replaced. */
static void refused(const char *piece, const char *by, clv_status status, const char *message)
{
    char text[4096];
    const char *at = strstr(whole, piece);
    assert_non_null(at);
    int size = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, by, at + strlen(piece));
    assert_in_range(size, 1, sizeof text - 1);
    open_text(text, (size_t)size, status, message);
}

static void normalizer(const char *json, clv_status status, const char *message)
{
    char by[2048];
    snprintf(by, sizeof by, "\"normalizer\":%s", json);
    refused("\"normalizer\":null", by, status, message);
}

static void pre_tokenizer(const char *json, clv_status status, const char *message)
{
    char by[2048];
    snprintf(by, sizeof by, "\"pre_tokenizer\":%s", json);
    refused("\"pre_tokenizer\":null", by, status, message);
}

static void post_processor(const char *json, clv_status status, const char *message)
{
    char by[2048];
    snprintf(by, sizeof by, "\"post_processor\":%s", json);
    refused("\"post_processor\":null", by, status, message);
}

static void decoder(const char *json, clv_status status, const char *message)
{
    char by[2048];
    snprintf(by, sizeof by, "\"decoder\":%s", json);
    refused("\"decoder\":null", by, status, message);
}

static void model(const char *json, clv_status status, const char *message)
{
    char by[2048];
    snprintf(by, sizeof by, "\"model\":%s}", json);
    refused(strstr(whole, "\"model\":"), by, status, message);
}

static void test_file(void **state)
{
    char *deep = malloc(30001);
    assert_non_null(deep);
    open_text(whole, strlen(whole), CLV_OK, "");
    for (size_t size = 0; size < strlen(whole); size++)
        open_text(whole, size, CLV_EFORMAT, "not JSON");
    memset(deep, '[', 10000);
    memset(deep + 10000, ']', 10000);
    open_text(deep, 20000, CLV_EFORMAT, "nested too deep");
    free(deep);
    open_text("[]", 2, CLV_EFORMAT, "not a JSON object");
    open_text("{}", 2, CLV_EFORMAT, "\"model\" must be an object");
    open_text("{\"model\":{}}", 12, CLV_EUNSUPPORTED, "the model '' is not supported");
    refused("\"normalizer\":null", "\"version\":\"2.0\"", CLV_EUNSUPPORTED, "the version '2.0'");
    refused("\"normalizer\":null", "\"truncation\":7", CLV_EFORMAT, "\"truncation\" must be an object or null");
    refused("\"type\":\"BPE\",", "", CLV_EUNSUPPORTED,
            "the model '' is not supported; valid: BPE, WordPiece, WordLevel, Unigram");
    refused("\"BPE\"", "\"Other\"", CLV_EUNSUPPORTED, "the model 'Other' is not supported; valid: BPE, ");
}

static void test_ids(void **state)
{
    refused("\"b\":2", "\"b\":-1", CLV_EFORMAT, "the id of 'b' must be 0 to");
    refused("\"b\":2", "\"b\":4294967296", CLV_EFORMAT, "the id of 'b' must be 0 to");
    refused("\"b\":2", "\"b\":1.5", CLV_EFORMAT, "the id of 'b' must be 0 to");
    refused("\"b\":2", "\"b\":2000", CLV_EFORMAT, "id 2000 is too large for the number of tokens; valid: up to");
    refused("\"b\":2", "\"b\":1", CLV_EFORMAT, "have one id (1)");
    refused("\"b\":2", "\"b\":4,\"b\":1", CLV_EFORMAT, "have one id (1)"); /* the last of equal keys */
    refused("{\"<u>\":0,\"a\":1,\"b\":2,\"ab\":3}", "{}", CLV_EFORMAT, "merge 1");
    refused("{\"<u>\":0,\"a\":1,\"b\":2,\"ab\":3}", "[]", CLV_EFORMAT, "\"vocab\" must be an object");
    open_text("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", 47, CLV_EFORMAT, "the vocabulary is empty");
}

static void test_bpe(void **state)
{
    refused("\"a b\"", "\"a\"", CLV_EFORMAT, "the model BPE: merge 1 is not \"a b\" or [\"a\", \"b\"]");
    refused("\"a b\"", "\"a b b\"", CLV_EFORMAT, "merge 1 is not");
    refused("\"a b\"", "[\"a\"]", CLV_EFORMAT, "merge 1 is not");
    refused("\"a b\"", "[\"a\",\"b\",\"b\"]", CLV_EFORMAT, "merge 1 is not");
    refused("\"a b\"", "[\"a\",2]", CLV_EFORMAT, "merge 1 is not");
    refused("\"a b\"", "7", CLV_EFORMAT, "merge 1 is not");
    refused("[\"a b\"]", "7", CLV_EFORMAT, "\"merges\" must be a list");
    refused("\"a b\"", "\"a c\"", CLV_EFORMAT, "merge 1 has a token that is not in the vocabulary: 'a' 'c'");
    refused("\"a b\"", "\"b a\"", CLV_EFORMAT, "merge 1 has a token that is not in the vocabulary: 'b' 'a'");
    refused("\"a b\"", "[\"a\",\"b\"]", CLV_OK, "");
    refused("\"merges\":[\"a b\"]", "\"continuing_subword_prefix\":\"a\",\"merges\":[\"a ab\"]", CLV_OK, "");
    refused("\"merges\"", "\"continuing_subword_prefix\":\"longer than the part\",\"merges\"", CLV_OK, "");
    refused("\"merges\"", "\"end_of_word_suffix\":7,\"merges\"", CLV_EFORMAT,
            "\"end_of_word_suffix\" must be a string");
    refused("\"merges\"", "\"dropout\":0.0,\"merges\"", CLV_OK, "");
    refused("\"merges\"", "\"dropout\":0.1,\"merges\"", CLV_EUNSUPPORTED, "the option 'dropout'");
    refused("\"merges\"", "\"unk_token\":\"<x>\",\"merges\"", CLV_EFORMAT,
            "\"unk_token\" is '<x>', which is not in the vocabulary");
    refused("\"merges\"", "\"byte_fallback\":1,\"merges\"", CLV_EFORMAT, "\"byte_fallback\" must be true or false");
    refused("\"merges\"", "\"unk_token\":7,\"merges\"", CLV_EFORMAT, "\"unk_token\" must be a string");
}

static void test_word_models(void **state)
{
    model("{\"type\":\"WordPiece\",\"vocab\":{\"<u>\":0}}", CLV_EFORMAT,
          "the model WordPiece: \"unk_token\" is missing");
    model("{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"<u>\":0}}", CLV_EFORMAT,
          "\"unk_token\" is '[UNK]', which is not in the vocabulary");
    model("{\"type\":\"WordPiece\",\"unk_token\":\"<u>\",\"vocab\":{\"<u>\":0}}", CLV_EFORMAT,
          "\"continuing_subword_prefix\" must be a string");
    model("{\"type\":\"WordPiece\",\"unk_token\":\"<u>\",\"continuing_subword_prefix\":\"##\","
          "\"max_input_chars_per_word\":-1,\"vocab\":{\"<u>\":0}}",
          CLV_EFORMAT, "\"max_input_chars_per_word\" is -1");
    model("{\"type\":\"WordPiece\",\"unk_token\":\"<u>\",\"continuing_subword_prefix\":\"##\","
          "\"max_input_chars_per_word\":9223372036854775807,\"vocab\":{\"<u>\":0}}",
          CLV_OK, "");
    model("{\"type\":\"WordLevel\",\"vocab\":{\"<u>\":0}}", CLV_EFORMAT,
          "the model WordLevel: \"unk_token\" is missing");
    model("{\"type\":\"WordLevel\",\"unk_token\":\"x\",\"vocab\":{\"<u>\":0}}", CLV_EFORMAT,
          "\"unk_token\" is 'x', which is not in the vocabulary");
}

static void test_added(void **state)
{
    refused("\"id\":0", "\"id\":-1", CLV_EFORMAT, "\"id\" is -1");
    refused("\"id\":0", "\"id\":1.5", CLV_EFORMAT, "\"id\" is 1.5, valid are integers from 0 to");
    refused("\"id\":0", "\"id\":4294967296", CLV_EFORMAT, "\"id\" is 4294967296");
    refused("\"id\":0,", "", CLV_EFORMAT, "\"id\" is missing");
    refused("\"id\":0", "\"id\":1", CLV_EFORMAT, "the added token 1: '<u>' has the id 1, but 0 in the vocabulary");
    refused("\"id\":0,\"content\":\"<u>\"", "\"id\":1,\"content\":\"<v>\"", CLV_EFORMAT,
            "'a' and '<v>' have one id (1)");
    refused("\"<u>\",\"special\"", "\"\",\"special\"", CLV_EFORMAT, "the added token 1: \"content\" is empty");
    refused("\"content\":\"<u>\",", "", CLV_EFORMAT, "\"content\" must be a string");
    refused("\"special\":true", "\"special\":1", CLV_EFORMAT, "\"special\" must be true or false");
    refused("\"lstrip\":false", "\"lstrip\":null", CLV_EFORMAT, "\"lstrip\" must be true or false");
    refused("\"rstrip\":false,", "", CLV_EFORMAT, "\"rstrip\" is missing");
    refused("\"normalized\":false}",
            "\"normalized\":false},{\"id\":0,\"content\":\"<u>\",\"special\":true,\"lstrip\":false,\"rstrip\":false,"
            "\"single_word\":false,\"normalized\":false}",
            CLV_EFORMAT, "two added tokens are '<u>'");
    refused("\"normalized\":false}],\"normalizer\":null",
            "\"normalized\":true}],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"<u>\"},"
            "\"content\":\"\"}",
            CLV_EFORMAT, "an added token is empty when normalized");
    refused("\"added_tokens\":[", "\"added_tokens\":7,\"more\":[", CLV_EFORMAT, "\"added_tokens\" must be a list");
}

static void test_normalizer(void **state)
{
    static const char unknown[] = "the normalizer 'Other' is not supported; valid: Prepend, Replace, Strip, "
                                  "Lowercase, NFC, NFD, NFKC, NFKD, BertNormalizer, StripAccents, Nmt, Precompiled, "
                                  "ByteLevel, Sequence";
    normalizer("{\"type\":\"Other\"}", CLV_EUNSUPPORTED, unknown);
    normalizer("7", CLV_EUNSUPPORTED, "the normalizer ''");
    normalizer("{\"type\":\"Sequence\"}", CLV_EFORMAT, "the normalizer Sequence: \"normalizers\" must be a list");
    normalizer("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Other\"}]}", CLV_EUNSUPPORTED, unknown);
    normalizer("{\"type\":\"Prepend\"}", CLV_EFORMAT, "the normalizer Prepend: \"prepend\" must be a string");
    normalizer("{\"type\":\"Strip\",\"strip_left\":true}", CLV_EFORMAT, "\"strip_right\" is missing");
    normalizer("{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}", CLV_EFORMAT, "\"content\" must be a string");
    normalizer("{\"type\":\"BertNormalizer\",\"handle_chinese_chars\":true,\"lowercase\":true}", CLV_EFORMAT,
               "the normalizer BertNormalizer: \"clean_text\" is missing");
    normalizer("{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"lowercase\":true,"
               "\"strip_accents\":\"no\"}",
               CLV_EFORMAT, "\"strip_accents\" must be true or false");
    normalizer("{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"lowercase\":true,"
               "\"strip_accents\":null}",
               CLV_OK, "");
}

static void test_pre_tokenizer(void **state)
{
    char many[512] = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Whitespace\"}";
    pre_tokenizer("{\"type\":\"UnicodeScripts\"}", CLV_EUNSUPPORTED,
                  "the pre-tokenizer 'UnicodeScripts' is not supported; valid: Metaspace, ByteLevel, Split, "
                  "BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation, Digits, "
                  "CharDelimiterSplit, FixedLength, Sequence");
    pre_tokenizer("{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false}", CLV_EFORMAT,
                  "the pre-tokenizer Split:");
    pre_tokenizer("{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}", CLV_EFORMAT,
                  "\"delimiter\" must be one character");
    pre_tokenizer("{\"type\":\"FixedLength\",\"length\":0}", CLV_EFORMAT, "\"length\" is 0");
    pre_tokenizer("{\"type\":\"Punctuation\",\"behavior\":\"Gone\"}", CLV_EUNSUPPORTED,
                  "the pre-tokenizer Punctuation: the behavior 'Gone'");
    pre_tokenizer("{\"type\":\"Digits\"}", CLV_EFORMAT, "\"individual_digits\" is missing");
    pre_tokenizer("{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", CLV_EFORMAT, "\"trim_offsets\" is missing");
    pre_tokenizer("{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":null}",
                  CLV_EFORMAT, "\"use_regex\" must be true or false");
    pre_tokenizer("{\"type\":\"Sequence\",\"pretokenizers\":[null]}", CLV_EUNSUPPORTED,
                  "the pre-tokenizer 'null' is not supported");
    pre_tokenizer("{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", CLV_EFORMAT,
                  "\"replacement\" must be one character");
    pre_tokenizer("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}", CLV_EUNSUPPORTED,
                  "the prepend_scheme 'last'");
    pre_tokenizer(
        "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\",\"add_prefix_space\":false}",
        CLV_EFORMAT, "\"add_prefix_space\" is false");
    refused("\"normalizer\":null,\"pre_tokenizer\":null",
            "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
            "\"prepend_scheme\":\"first\"}",
            CLV_EUNSUPPORTED, "after a normalizer, the prepend_scheme 'first'");
    for (int i = 0; i < 16; i++)
        strcat(many, ",{\"type\":\"Whitespace\"}");
    strcat(many, "]}");
    pre_tokenizer(many, CLV_ELIMIT, "the pre-tokenizer has more than 16 steps");
}

static void test_post_processor(void **state)
{
    char many[2048] = "{\"type\":\"Sequence\",\"processors\":[";
    for (int i = 0; i < 17; i++) {
        strcat(many, i > 0 ? "," : "");
        strcat(many, "{\"type\":\"BertProcessing\",\"cls\":[\"<u>\",0],\"sep\":[\"<u>\",0]}");
    }
    strcat(many, "]}");
    post_processor("{\"type\":\"Other\"}", CLV_EUNSUPPORTED, "the post-processor 'Other' is not supported; valid:");
    post_processor("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                   "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{},\"pair\":[]}",
                   CLV_EFORMAT, "the post-processor TemplateProcessing: '<s>' is not among its special_tokens");
    post_processor("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                   "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{\"ids\":[9],\"tokens\":["
                   "\"<s>\"]}},\"pair\":[]}",
                   CLV_EFORMAT, "names a token of the unknown id 9; valid: 0 to 3");
    post_processor(
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}],\"pair\":[]}",
        CLV_EUNSUPPORTED, "the sequence 'B'");
    post_processor(
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{\"ids\":[0],\"tokens\":[]}},"
        "\"pair\":[]}",
        CLV_EFORMAT, "'<s>' must have as many \"ids\" as \"tokens\", one at least");
    post_processor("{\"type\":\"TemplateProcessing\",\"pair\":[]}", CLV_EFORMAT, "\"single\" must be a list");
    post_processor("{\"type\":\"TemplateProcessing\",\"single\":[]}", CLV_EFORMAT, "\"pair\" must be a list");
    post_processor("{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}],\"pair\":[]}",
                   CLV_EFORMAT, "\"single\", item 1 must be a Sequence or a SpecialToken with \"id\" and \"type_id\"");
    post_processor("{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[]}", CLV_EUNSUPPORTED,
                   "has the text 0 times; valid: once");
    post_processor("{\"type\":\"RobertaProcessing\",\"cls\":[\"<u>\",0],\"sep\":[\"<s>\",7],\"trim_offsets\":true,"
                   "\"add_prefix_space\":true}",
                   CLV_EFORMAT, "the post-processor RobertaProcessing: names a token of the unknown id 7");
    post_processor("{\"type\":\"RobertaProcessing\",\"cls\":[\"<u>\",0],\"sep\":[\"<u>\",0]}", CLV_EFORMAT,
                   "\"trim_offsets\" is missing");
    post_processor(many, CLV_ELIMIT, "the post-processor BertProcessing: more than 16 tokens");
    post_processor("{\"type\":\"BertProcessing\"}", CLV_EFORMAT, "\"cls\" must be [\"token\", id]");
    post_processor("{\"type\":\"ByteLevel\"}", CLV_EFORMAT, "\"add_prefix_space\" is missing");
    post_processor("{\"type\":\"Sequence\",\"processors\":[null]}", CLV_EUNSUPPORTED, "the post-processor 'null'");
    post_processor("{\"type\":\"Sequence\",\"processors\":7}", CLV_EFORMAT, "\"processors\" must be a list");
}

static void test_decoder(void **state)
{
    decoder("{\"type\":\"Other\"}", CLV_EUNSUPPORTED,
            "the decoder 'Other' is not supported; valid: Replace, ByteFallback, Fuse, Strip, Metaspace, ByteLevel, "
            "WordPiece, BPEDecoder, CTC, Sequence");
    decoder("{\"type\":\"CTC\"}", CLV_EFORMAT, "the decoder CTC: \"pad_token\" must be a string");
    decoder("{\"type\":\"CTC\",\"pad_token\":\"\",\"word_delimiter_token\":\"|\",\"cleanup\":true}", CLV_EFORMAT,
            "\"pad_token\" is an empty string");
    decoder("{\"type\":\"BPEDecoder\",\"suffix\":\"\"}", CLV_EFORMAT, "\"suffix\" is an empty string");
    decoder("{\"type\":\"Strip\",\"content\":\"\",\"start\":1,\"stop\":0}", CLV_EFORMAT,
            "\"content\" must be one character");
    decoder("{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}", CLV_EFORMAT, "\"start\" is -1");
    decoder("{\"type\":\"WordPiece\",\"prefix\":\"##\"}", CLV_EFORMAT, "the decoder WordPiece: \"cleanup\" is missing");
}

/* "<0x-1>" and the like are words as they stand, not bytes. */
static void test_literals(void **state)
{
    static const char text[] =
        "{\"decoder\":{\"type\":\"ByteFallback\"},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"<0xZZ>\","
        "\"vocab\":{\"<0xZZ>\":0,\"<0x-1>\":1,\"<0x 1>\":2,\"<0x4>\":3,\"<0x41>\":4}}}";
    char path[4096], *out;
    size_t size;
    clv_tokenizer *t;
    write_text(in_build(path, sizeof path, FILE_NAME), text, strlen(text));
    assert_int_equal(clv_tokenizer_open(&t, path, NULL), CLV_OK);
    assert_int_equal(clv_tokenizer_decode(t, (int64_t[]){0, 1, 2, 3, 4}, 5, &out, &size, NULL), CLV_OK);
    assert_string_equal(out, "<0xZZ><0x-1><0x 1><0x4>A");
    free(out);
    clv_tokenizer_free(t);
    remove(path);
}

/* ---- vocab.txt ---- */

static void vocab(const char *lines, size_t size, const char *config, const char *settings, clv_status status,
                  const char *message)
{
    static const char *const names[] = {"vocab.txt", "config.json", "tokenizer_config.json"};
    char folder[2048], path[3][4096];
    clv_error err = {0};
    clv_tokenizer *t;
    in_build(folder, sizeof folder, "test_tokenizer_vocab");
    mkdir(folder, 0777);
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
    write_text(path[0], lines, size);
    write_text(path[1], config, strlen(config));
    write_text(path[2], settings, strlen(settings));
    clv_status got = clv_tokenizer_open(&t, folder, &err);
    if (got != status || (status != CLV_OK && !strstr(err.message, message)))
        fail_msg("%s: status %d, '%s', expected %d, '%s'", lines, (int)got, err.message, (int)status, message);
    if (got == CLV_OK)
        clv_tokenizer_free(t);
    for (int i = 0; i < 3; i++)
        remove(path[i]);
    rmdir(folder);
}

static void test_vocab(void **state)
{
    static const char bert[] = "{\"model_type\":\"bert\"}", esm[] = "{\"model_type\":\"esm\"}";
    static const char bert_lines[] = "[PAD]\n[UNK]\r\n[CLS]\n[SEP]\n[MASK]\na";
    static const char esm_lines[] = "<cls>\n<pad>\n<eos>\n<unk>\n L \n<mask>\n";
    vocab(bert_lines, strlen(bert_lines), bert, "{}", CLV_OK, "");
    vocab(esm_lines, strlen(esm_lines), esm, "{}", CLV_OK, "");
    vocab(bert_lines, strlen(bert_lines), esm, "{\"tokenizer_class\":\"BertTokenizerFast\"}", CLV_OK, "");
    vocab(bert_lines, strlen(bert_lines), "{\"model_type\":\"gpt2\"}", "{}", CLV_EUNSUPPORTED,
          "vocab.txt: the kind of vocabulary is not known by tokenizer_config.json's tokenizer_class ('') nor by "
          "config.json's "
          "model_type ('gpt2'); valid: BertTokenizer, EsmTokenizer; bert, esm");
    vocab(bert_lines, strlen(bert_lines), bert, "{\"tokenizer_class\":\"X\"}", CLV_EUNSUPPORTED, "('X')");
    vocab(bert_lines, strlen(bert_lines), bert, "[]", CLV_EFORMAT, "tokenizer_config.json: not a JSON object");
    vocab(bert_lines, strlen(bert_lines), "{", "{}", CLV_EFORMAT, "config.json: not JSON");
    vocab(bert_lines, strlen(bert_lines), bert, "{\"do_lower_case\":1}", CLV_EFORMAT,
          "tokenizer_config.json: \"do_lower_case\" must be true or false");
    vocab(bert_lines, strlen(bert_lines), bert, "{\"unk_token\":7}", CLV_EFORMAT, "\"unk_token\" must be a string");
    vocab(bert_lines, strlen(bert_lines), bert, "{\"unk_token\":{\"content\":\"<u>\"}}", CLV_EFORMAT,
          "lacks the token '<u>' (\"unk_token\")");
    vocab(esm_lines, strlen(esm_lines) - 7, esm, "{}", CLV_EFORMAT, "lacks the token '<mask>'");
    vocab("", 0, esm, "{}", CLV_EFORMAT, "vocab.txt: is an empty file, not a vocabulary");
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 93\n";
    vocab(pointer, strlen(pointer), esm, "{}", CLV_EFORMAT, "vocab.txt: is a Git LFS pointer, not a vocabulary");
    vocab("a\n\nb\n", 5, bert, "{}", CLV_EFORMAT, "vocab.txt: line 2 is empty");
    vocab("a\nb\na\n", 6, bert, "{}", CLV_EFORMAT, "line 3 is a token of an earlier line: 'a'");
    vocab("a\n\xff\n", 4, bert, "{}", CLV_EFORMAT, "line 2 is not UTF-8 text");
    vocab("a\nb\0c\n", 6, esm, "{}", CLV_EFORMAT, "line 2 is not UTF-8 text");
}

static void test_nothing_there(void **state)
{
    char folder[2048];
    clv_error err = {0};
    clv_tokenizer *t;
    in_build(folder, sizeof folder, "test_tokenizer_nothing");
    mkdir(folder, 0777);
    assert_int_equal(clv_tokenizer_open(&t, folder, &err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "holds no tokenizer.json and no vocab.txt"));
    rmdir(folder);
    err = (clv_error){0};
    assert_int_equal(clv_tokenizer_open(&t, folder, &err), CLV_ENOTFOUND);
    clv_tokenizer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_file),          cmocka_unit_test(test_ids),
                                       cmocka_unit_test(test_bpe),           cmocka_unit_test(test_word_models),
                                       cmocka_unit_test(test_added),         cmocka_unit_test(test_normalizer),
                                       cmocka_unit_test(test_pre_tokenizer), cmocka_unit_test(test_post_processor),
                                       cmocka_unit_test(test_decoder),       cmocka_unit_test(test_literals),
                                       cmocka_unit_test(test_vocab),         cmocka_unit_test(test_nothing_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
