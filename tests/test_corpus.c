/* test_corpus.c - texts as token files: the ids of documents are the tokenizer's, pieces and threads change nothing,
 * answers alone are learned, and what is wrong is named and leaves no file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/corpus.h"
#include "io/files/file.h"
#include "golden_tokenizer.h"
#include "must.h"
#include "temp_folder.h"
#include "sweep.h"
#include "tokens/data/corpus_pipeline.h"
#include "tokens/data/token_file.h"
#include "unit_test.h"

static void write_text(const char *name, const char *text)
{
    assert_int_equal(clv_file_write(in_folder("%s", name), text, strlen(text), NULL), CLV_OK);
}

/* Tokenizes files of the folder into one of it. */
static clv_corpus_info tokenize(const char *out, const char *one, const char *two, const clv_corpus_options *o)
{
    clv_error err = {0};
    clv_corpus_info info = {.size = sizeof info};
    const char *const paths[] = {in_folder("%s", one), two ? in_folder("%s", two) : NULL};
    must(clv_corpus_tokenize(&info, in_folder("%s", out), paths, two ? 2 : 1, o, &err), &err);
    return info;
}

/* That a token file holds these ids. */
static void expect_ids(const char *name, const int64_t *want, int64_t n)
{
    clv_token_file f;
    clv_error err = {0};
    must(clv_token_file_open(&f, in_folder("%s", name), 0, &err), &err);
    int32_t *ids = malloc((size_t)f.header.count * sizeof *ids);
    assert_non_null(ids);
    if (f.header.count != n)
        fail_msg("%s: %lld ids, not %lld", name, (long long)f.header.count, (long long)n);
    must(clv_token_file_read(&f, 0, n, ids, &err), &err);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] != want[i])
            fail_msg("%s: id %lld is %d, not %lld", name, (long long)i, ids[i], (long long)want[i]);
    free(ids);
    clv_token_file_close(&f);
}

static void test_bytes(void **state)
{
    static const int64_t want[] = {'a', 'b', 0, 'c', 0xc3, 0xa9, '\n', 0};
    static const int64_t of_lines[] = {'x', 0, 'y', '\n', 0, 0};
    write_text("a.txt", "ab");
    write_text("b", "cé\n");
    clv_corpus_info info = tokenize("out", "a.txt", "b", NULL);
    assert_true(info.documents == 2 && info.tokens == 8 && info.loss_tokens == 8 && info.bytes == 6 &&
                info.vocab == 256 && info.end_id == 0);
    expect_ids("out", want, 8);
    write_text("l.jsonl", "{\"text\": \"x\"}\n\n  \r\n{\"id\": [1], \"text\": \"y\\n\"}\r\n{\"text\": \"\"}");
    info = tokenize("out", "l.jsonl", NULL, NULL);
    assert_true(info.documents == 3 && info.tokens == 6);
    expect_ids("out", of_lines, 6);
    static const int64_t odd[] = {'a', 0, 'b', 0xef, 0xbf, 0xbd, 0};
    write_text("l.jsonl", "{\"text\": 1, \"n\": [NaN, 1e400, 18446744073709551615], \"text\": \"a\\u0000b\\ud83d\"}\n");
    tokenize("out", "l.jsonl", NULL, NULL);
    expect_ids("out", odd, 7);
    write_text("l.ndjson", "{\"body\": \"x\", \"text\": 1}");
    tokenize("out", "l.ndjson", NULL, &(clv_corpus_options){.field = "body", .end_token = ""});
    expect_ids("out", of_lines, 1);
}

/* Documents as the tokenizer has them, what its template adds among them; and what ends one, once. */
static void test_templates(void **state)
{
    static const char *const names[] = {"gpt2", "llama3", "bert", "roberta", "esm_vocab", "metaspace"};
    static const char *const texts[] = {"Once upon a time, 12 ", "a"};
    write_text("t.jsonl", "{\"text\": \"Once upon a time, 12 \"}\n{\"text\": \"a\"}\n");
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        for (int plain = 0; plain < 2; plain++) {
            clv_tokenizer *t = golden_tokenizer(names[k]);
            int64_t want[200], n = 0;
            clv_corpus_info info =
                tokenize(names[k], "t.jsonl", NULL, &(clv_corpus_options){.tokenizer = t, .no_special = plain});
            assert_int_equal(info.vocab, clv_tokenizer_vocab_size(t));
            for (int d = 0; d < 2; d++) {
                int64_t *ids, one;
                assert_int_equal(clv_tokenizer_encode(t, texts[d], strlen(texts[d]), !plain, &ids, &one, NULL), CLV_OK);
                memcpy(want + n, ids, (size_t)one * sizeof *ids);
                n += one;
                free(ids);
                if (info.end_id >= 0 && want[n - 1] != info.end_id)
                    want[n++] = info.end_id;
            }
            expect_ids(names[k], want, n);
            clv_tokenizer_free(t);
        }
}

/* What ends a document is one token; a word that the tokenizer does not know is none. */
static void test_ends(void **state)
{
    clv_tokenizer *t = golden_tokenizer("bert");
    clv_corpus_info info;
    int64_t *ids, n;
    write_text("a.txt", "a b");
    info = tokenize("out", "a.txt", NULL, &(clv_corpus_options){.tokenizer = t});
    assert_int_equal(clv_tokenizer_encode(t, "[SEP]", 5, false, &ids, &n, NULL), CLV_OK);
    assert_true(n == 1 && info.end_id == ids[0]);
    free(ids);
    info = tokenize("out", "a.txt", NULL, &(clv_corpus_options){.tokenizer = t, .end_token = ""});
    assert_int_equal(info.end_id, -1);
    const char *path = in_folder("a.txt");
    clv_error err = {0};
    static const char *const none[] = {"two words", "qqqqqqqzzz"};
    for (int i = 0; i < 2; i++) {
        clv_corpus_options o = {.tokenizer = t, .end_token = none[i]};
        assert_int_equal(clv_corpus_tokenize(NULL, in_folder("never"), &path, 1, &o, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "is not a token of the tokenizer"));
    }
    clv_tokenizer_free(t);
}

/* Words, numbers and line ends of all kinds, more than two pieces of them, or than one. */
static char *long_text(size_t *size)
{
    static const char *const words[] = {"the ", "Layout", "\n",       "\n\n", " of", " 12345",
                                        "\t",   " \n",    "\xc3\xa9", ".",    "\n  "};
    size_t room = (size_t)CLV_CORPUS_CHUNK_BYTES * 5 / (sweep_is_thin() ? 4 : 2), n = 0;
    char *text = malloc(room + 1);
    uint32_t random = 1;
    assert_non_null(text);
    while (n + 8 < room) {
        const char *word = words[((random = random * 1664525 + 1013904223) >> 16) % 11];
        n += (size_t)sprintf(text + n, "%s", word);
    }
    *size = n;
    return text;
}

/* Pieces of a text are its own ids, and threads change no byte of the file. */
static void test_pieces_and_threads(void **state)
{
    static const int threads[] = {1, 3, 7};
    const int ways = sweep_is_thin() ? 2 : 3, documents = sweep_is_thin() ? 30000 : 60000;
    clv_tokenizer *t = golden_tokenizer("gpt2");
    size_t size, sizes[3];
    char *text = long_text(&size), *files[3];
    int64_t *want, n;
    assert_int_equal(clv_file_write_without_fsync(in_folder("long"), text, size, NULL), CLV_OK);
    FILE *lines = fopen(in_folder("long.jsonl"), "w");
    assert_non_null(lines);
    for (int i = 0; i < documents; i++)
        fprintf(lines, "{\"text\": \"line %d of many, that is not short at all\"}\n", i);
    assert_int_equal(fclose(lines), 0);
    for (int i = 0; i < ways; i++) {
        clv_corpus_options o = {.tokenizer = t, .end_token = "", .threads = threads[i]};
        assert_int_equal(tokenize("out", "long.jsonl", "long", &o).documents, documents + 1);
        assert_int_equal(clv_file_read(&files[i], &sizes[i], in_folder("out"), 1 << 30, NULL), CLV_OK);
        assert_int_equal(sizes[i], sizes[0]);
        assert_memory_equal(files[i], files[0], sizes[0]);
        if (i > 0)
            free(files[i]);
    }
    free(files[0]);
    tokenize("out", "long", NULL, &(clv_corpus_options){.tokenizer = t, .end_token = ""});
    assert_int_equal(clv_tokenizer_encode(t, text, size, false, &want, &n, NULL), CLV_OK);
    expect_ids("out", want, n);
    free(want);
    free(text);
    clv_tokenizer_free(t);
}

/* Only answers, with their end tokens, are labels. */
static void test_chats(void **state)
{
    static const char want[] = "[user]hi![assistant]yo!\0[assistant]b\0![system]s!",
                      learned[] = "....................####...........###...........";
    write_text(
        "c.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": \"yo\"}]}\n"
        "{\"messages\": [{\"content\": \"b\\u0000\", \"role\": \"assistant\"}, {\"role\": \"system\", \"content\": "
        "\"s\"}]}\n");
    clv_corpus_info info =
        tokenize("out", "c.jsonl", NULL, &(clv_corpus_options){.chat = 1, .turn_template = "[{role}]{content}!"});
    char got[64], mask[64];
    int32_t ids[64], labels[64];
    clv_token_file f;
    clv_error err = {0};
    must(clv_token_file_open(&f, in_folder("out"), 0, &err), &err);
    int n = 0, count = (int)f.header.count;
    must(clv_token_file_read(&f, 0, count, ids, &err), &err);
    memcpy(labels, ids, sizeof labels);
    must(clv_token_file_apply_loss_mask(&f, 0, count, labels, &err), &err);
    for (int i = 0; i < count; i++) {
        got[i] = (char)ids[i];
        mask[i] = labels[i] == CLV_IGNORE_INDEX ? '.' : '#';
        n += labels[i] != CLV_IGNORE_INDEX;
    }
    clv_token_file_close(&f);
    assert_int_equal(info.loss_tokens, n);
    assert_int_equal(info.documents, 2);
    assert_int_equal(count, sizeof want); /* with the zero at its end */
    assert_memory_equal(got, want, sizeof want);
    assert_memory_equal(mask, learned, sizeof want - 1);
}

/* What a line added before it failed is taken back, and the others are as if it were not there. */
static void test_bad_lines(void **state)
{
    static const char good[] = "{\"messages\": [{\"role\": \"assistant\", \"content\": \"yes\"}]}\n",
                      half[] =
                          "{\"messages\": [{\"role\": \"assistant\", \"content\": \"no\"}, {\"role\": \"user\"}]}\n";
    clv_corpus_options o = {.size = sizeof o, .chat = 1, .skip_bad_lines = 1};
    char lines[512], *one, *two;
    size_t n, m;
    snprintf(lines, sizeof lines, "%s%s{\n[]\n%s", good, half, good);
    write_text("bad.jsonl", lines);
    snprintf(lines, sizeof lines, "%s%s", good, good);
    write_text("fine.jsonl", lines);
    clv_corpus_info info = tokenize("one", "bad.jsonl", NULL, &o), fine = tokenize("two", "fine.jsonl", NULL, &o);
    assert_true(info.skipped_lines == 3 && fine.skipped_lines == 0 && info.documents == 2 &&
                info.loss_tokens == fine.loss_tokens);
    assert_int_equal(clv_file_read(&one, &n, in_folder("one"), 10000, NULL), CLV_OK);
    assert_int_equal(clv_file_read(&two, &m, in_folder("two"), 10000, NULL), CLV_OK);
    assert_int_equal(n, m);
    assert_memory_equal(one, two, n);
    free(one);
    free(two);
}

/* Records are documents: residues of several lines in upper case, nothing for a record without any. */
static void test_fasta(void **state)
{
    static const int64_t want[] = {'M', 'K', 'V', 'A', 0, 'W', '.', '-', 0};
    static const int64_t of_esm[] = {0, 20, 15, 7, 5, 2, 0, 22, 29, 30, 2};
    clv_tokenizer *t = golden_tokenizer("esm_vocab");
    write_text("p.fasta", "\xef\xbb\xbf>one of several\r\nMK\r\n\n v\ta\n>none\n\n>two>\nW.-");
    assert_int_equal(tokenize("out", "p.fasta", NULL, NULL).documents, 2);
    expect_ids("out", want, 9);
    clv_corpus_info info = tokenize("out", "p.fasta", NULL, &(clv_corpus_options){.tokenizer = t});
    assert_int_equal(info.end_id, 2); /* <eos>, which the template puts there already */
    expect_ids("out", of_esm, 11);
    write_text("p.faa", ">x\nM\n");
    assert_int_equal(tokenize("out", "p.faa", "p.fasta", NULL).documents, 3);
    clv_tokenizer_free(t);
}

/* Several chunks, with any number of threads; an error in a later one names the line of the file. */
static void test_fasta_pieces(void **state)
{
    enum { RECORDS = 20000, WRONG = 17000 };
    const char *path = in_folder("many.fa");
    FILE *f = fopen(path, "w");
    clv_error err = {0};
    assert_non_null(f);
    for (int i = 0; i < RECORDS; i++)
        fprintf(f, ">%d > of many\n%.*s\nMKV%s\n", i, 40 + i % 50,
                "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKR"
                "QTLGQHDFSA",
                i == WRONG ? "*L" : "");
    assert_int_equal(fclose(f), 0);
    for (int threads = 1; threads < 6; threads += 2) {
        clv_corpus_options o = {.threads = threads};
        assert_int_equal(clv_corpus_tokenize(NULL, in_folder("never"), &path, 1, &o, &err), CLV_EINVAL);
        if (!strstr(err.message, "many.fa:51003: 17000: '*' is no residue"))
            fail_msg("%s", err.message);
    }
    char *text;
    size_t size;
    assert_int_equal(clv_file_read(&text, &size, path, 1 << 30, NULL), CLV_OK);
    *(char *)memchr(text, '*', size) = ' ';
    assert_int_equal(clv_file_write_without_fsync(path, text, size, NULL), CLV_OK);
    free(text);
    clv_corpus_info one = tokenize("one", "many.fa", NULL, &(clv_corpus_options){.threads = 1});
    clv_corpus_info three = tokenize("three", "many.fa", NULL, &(clv_corpus_options){.threads = 3});
    assert_true(one.documents == RECORDS && three.documents == RECORDS && one.tokens == three.tokens);
}

static void expect_refused(const char *name, const char *text, const clv_corpus_options *o, clv_status status,
                           const char *says)
{
    clv_error err = {0};
    const char *const paths[] = {in_folder("good.jsonl"), in_folder("%s", name)};
    if (text)
        write_text(name, text);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(clv_corpus_tokenize(NULL, in_folder("never"), paths + i, 2 - i, o, &err), status);
        if (!strstr(err.message, says))
            fail_msg("'%s' lacks '%s'", err.message, says);
    }
    assert_int_not_equal(access(in_folder("never"), F_OK), 0);
}

static void test_refused(void **state)
{
    const clv_corpus_options chat = {.chat = 1}, turn = {.turn_template = "{role}"}, threads = {.threads = -1};
    const clv_corpus_options field = {.field = "body"};
    static const clv_corpus_options none;
    clv_error err = {0};
    write_text("good.jsonl", "{\"text\": \"x\", \"body\": \"x\", \"messages\": [{\"role\": \"assistant\", "
                             "\"content\": \"x\"}]}\n");
    expect_refused("bad.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"b\"\n", &none, CLV_EINVAL, "bad.jsonl:3: ");
    expect_refused("bad.jsonl", "[1]", &none, CLV_EINVAL, "bad.jsonl:1: the line: not a JSON object");
    expect_refused("bad.jsonl", "\n{\"text\": 1}", &none, CLV_EINVAL,
                   "bad.jsonl:2: the line: \"text\" must be a string");
    expect_refused("bad.jsonl", "{\"text\": \"\xff\"}", &none, CLV_EINVAL, "bad.jsonl:1: ");
    expect_refused("bad.jsonl", "{\"text\": \"a\"}", &field, CLV_EINVAL, "bad.jsonl:1: the line: \"body\" is missing");
    expect_refused("bad.jsonl", "{\"messages\": []}", &chat, CLV_EINVAL, "bad.jsonl:1: \"messages\" must be a list");
    expect_refused("bad.jsonl", "{\"messages\": [{\"role\": \"user\"}]}", &chat, CLV_EINVAL, "a turn: \"content\" is");
    expect_refused("bad.fasta", "MKV\n>a\n", &none, CLV_EINVAL, "bad.fasta:1: no FASTA: the first line must begin");
    expect_refused("bad.fa", ">a\n\nMK\nM>K\n", &none, CLV_EINVAL, "bad.fa:4: a: '>' is no residue; valid: ACDEF");
    expect_refused("bad.fasta", ">a\nMKV\n", &chat, CLV_EINVAL, "bad.fasta: chats must be JSON lines");
    expect_refused("bad.txt", "text", &chat, CLV_EINVAL, "bad.txt: chats must be JSON lines");
    expect_refused("bad.txt", "", &none, CLV_EINVAL, "bad.txt: empty");
    expect_refused("bad.txt", "text", &turn, CLV_EINVAL, "has no {content}");
    expect_refused("bad.txt", "text", &threads, CLV_EINVAL, "-1 threads");
    expect_refused("nowhere", NULL, &none, CLV_ENOTFOUND, "nowhere");
    write_text("good.jsonl", "\n\n");
    expect_refused("bad.jsonl", "\n \n", &none, CLV_EINVAL, "holds no document");
    expect_refused("bad.fasta", ">a\n>b\n\n", &none, CLV_EINVAL, "holds no document");
    expect_refused("bad.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}", &chat, CLV_EINVAL,
                   "holds no turn of an \"assistant\"");
    assert_int_equal(clv_corpus_tokenize(NULL, in_folder("never"), NULL, 0, NULL, &err), CLV_EINVAL);
    assert_int_equal(clv_corpus_tokenize(NULL, NULL, NULL, 0, NULL, &err), CLV_EINVAL);
    assert_int_equal(clv_corpus_tokenize(NULL, in_folder("never"), NULL, 1, NULL, &err), CLV_EINVAL);
}

/* The first failure in the order of the files is reported, with any number of threads; cancellation works. */
static void test_first_failure(void **state)
{
    clv_cancel cancel = {0};
    clv_error err = {0};
    FILE *lines = fopen(in_folder("many.jsonl"), "w");
    assert_non_null(lines);
    for (int i = 1; i <= 120000; i++)
        fprintf(lines, i % 50000 == 0 ? "{\"text\": %d}\n" : "{\"text\": \"line %d of many, that is not short\"}\n", i);
    assert_int_equal(fclose(lines), 0);
    const char *path = in_folder("many.jsonl");
    for (int threads = 1; threads < 6; threads++) {
        clv_corpus_options o = {.threads = threads};
        assert_int_equal(clv_corpus_tokenize(NULL, in_folder("never"), &path, 1, &o, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "many.jsonl:50000: "));
    }
    clv_cancel_request(&cancel);
    clv_corpus_options o = {.cancel = &cancel};
    assert_int_equal(clv_corpus_tokenize(NULL, in_folder("never"), &path, 1, &o, &err), CLV_ECANCELLED);
    assert_int_not_equal(access(in_folder("never"), F_OK), 0);
}

static void count_progress(void *arg, int64_t done, int64_t total)
{
    int64_t *last = arg;
    assert_true(done >= *last && done <= total);
    *last = done;
}

static void test_progress(void **state)
{
    int64_t last = 0;
    write_text("a.txt", "ab");
    tokenize("out", "a.txt", NULL, &(clv_corpus_options){.progress = count_progress, .progress_arg = &last});
    assert_int_equal(last, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),        cmocka_unit_test(test_templates),          cmocka_unit_test(test_ends),
        cmocka_unit_test(test_chats),        cmocka_unit_test(test_pieces_and_threads), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_progress),     cmocka_unit_test(test_first_failure),      cmocka_unit_test(test_fasta),
        cmocka_unit_test(test_fasta_pieces), cmocka_unit_test(test_bad_lines),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
