/* test_cli_embed_score.c - embed and score against transformers' values (tests/golden/make_scores.py), at several
 * degrees and batch sizes; and what they refuse. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit_test.h"

#include <jansson.h>

#include "cli_run.h"
#include "io/checkpoint/safetensors.h"

static char out[CLI_OUTPUT];

/* ---- embed ---- */

static float *values(const char *path, const char *name, int64_t *n)
{
    clv_error err = {0};
    clv_safetensors *file;
    const clv_safetensor *t = NULL;
    if (clv_safetensors_open(&file, path, &err) != CLV_OK || clv_safetensors_find(&t, file, name, &err) != CLV_OK)
        fail_msg("%s", err.message);
    *n = 1;
    for (int d = 0; d < t->rank; d++)
        *n *= t->shape[d];
    float *x = malloc((size_t)*n * sizeof *x);
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_F32, x, NULL), CLV_OK);
    clv_safetensors_close(file);
    return x;
}

static void same(const char *got_path, const char *got_name, const char *want_path, const char *want_name)
{
    int64_t n, m;
    float *got = values(got_path, got_name, &n), *want = values(want_path, want_name, &m), most = 0;
    assert_int_equal(n, m);
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 2e-5f * most))
            fail_msg("%s, element %lld: %.9g, expected %.9g", want_name, (long long)i, got[i], want[i]);
    free(got);
    free(want);
}

static void embed(const char *model, const char *input, const char *prefix)
{
    static const char *const pools[] = {"mean", "cls", "last"};
    static const char *const how[] = {"", "-tp 2 --batch-tokens 1", "-tp 3 --sp --batch-tokens 40",
                                      "--mesh X=2,Y=2 --rules gspmd-2d"};
    char got[512], want[512], name[64];
    snprintf(want, sizeof want, "%s/scores/embeddings.safetensors", cli_golden());
    for (int p = 0; p < 3; p++)
        for (int h = 0; h < 4; h++) {
            snprintf(got, sizeof got, "%s/%s%d%d", cli_folder(), prefix, p, h);
            cli_expect(0, "sequences in", "embed -m {d}/%s --input {g}/scores/%s --pool %s --out %s %s", model, input,
                       pools[p], got, how[h]);
            snprintf(name, sizeof name, "%s%s", prefix, pools[p]);
            same(got, "embeddings", want, name);
        }
}

static void test_embed_proteins(void **state)
{
    cli_shell("mkdir {d}/esm && cp {g}/esm/* {g}/tokenizer/esm_vocab/vocab.txt {d}/esm");
    embed("esm", "proteins.fasta", "protein.");
}

static void test_embed_sentences(void **state)
{
    cli_shell("mkdir {d}/bert && cp {g}/bert_bare/* {g}/scores/vocab.txt {d}/bert");
    embed("bert", "sentences.txt", "sentence.");
}

/* Without pooling, the first rows are what "cls" keeps. */
static void test_embed_all(void **state)
{
    int64_t n, m;
    char path[512];
    cli_expect(0, "sequences", "embed -m {d}/esm --input {g}/scores/proteins.fasta --pool none --out {d}/all");
    cli_expect(0, "sequences", "embed -m {d}/esm --input {g}/scores/proteins.fasta --pool cls --out {d}/cls");
    snprintf(path, sizeof path, "%s/cls", cli_folder());
    float *cls = values(path, "embeddings", &n);
    snprintf(path, sizeof path, "%s/all", cli_folder());
    for (int i = 0; i < 4; i++) {
        static const int tokens[] = {18, 23, 5, 44};
        char name[32];
        snprintf(name, sizeof name, "hidden.%d", i);
        float *all = values(path, name, &m);
        assert_int_equal(m, tokens[i] * n / 4);
        assert_memory_equal(all, cls + i * n / 4, (size_t)(n / 4) * sizeof *all);
        free(all);
    }
    free(cls);
}

static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", cli_folder(), name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_embed_refused(void **state)
{
    static const char *const bad[][3] = {
        {"empty.fasta", "", "no sequence"},
        {"letter.fasta", ">a\nMKV\n>b\nMJ*\n", "b: 'J' is no residue; valid: ACDEFGHIKLMNPQRSTVWYXBZUO.-"},
        {"within.fasta", ">a\nMK>V\n", "'>' is no residue"},
        {"head.fasta", "MKV\n", "must begin with '>'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(bad[i][0], bad[i][1]);
        cli_expect(2, bad[i][2], "embed -m {d}/esm --input {d}/%s --out {d}/none", bad[i][0]);
    }
    cli_shell("printf 'MKV\\nM\\0KV\\n' >{d}/zero.txt");
    cli_expect(2, "zero.txt: byte 5 is 0; a text holds none", "embed -m {d}/esm --input {d}/zero.txt --out {d}/none");
    cli_expect(2, "absent", "embed -m {d}/esm --input {d}/absent.fasta --out {d}/none");
    cli_expect(1, "tokenizer.json or vocab.txt", "embed -m {g}/esm --input {g}/scores/proteins.fasta --out {d}/none");
    cli_shell("test ! -e {d}/none");
}

/* ---- embed: identities, and what does not fit ---- */

/* The names in a file's metadata, and in its table of bytes, are those of a JSON array. */
static void named(const char *file_name, const char *names)
{
    char path[512], *header;
    size_t size;
    clv_safetensors *file = NULL;
    const clv_safetensor *t = NULL;
    json_t *want = json_loads(names, 0, NULL), *name;
    size_t i;
    snprintf(path, sizeof path, "%s/%s", cli_folder(), file_name);
    assert_int_equal(clv_safetensors_open(&file, path, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_header(&header, &size, file, NULL), CLV_OK);
    json_t *root = json_loadb(header, size, 0, NULL);
    const char *note = json_string_value(json_object_get(json_object_get(root, "__metadata__"), "ids"));
    assert_non_null(note);
    json_t *got = json_loads(note, 0, NULL);
    if (!json_equal(got, want))
        fail_msg("%s: ids are %s, not %s", file_name, note, names);
    assert_int_equal(clv_safetensors_find(&t, file, "ids", NULL), CLV_OK);
    assert_int_equal(t->dtype, CLV_U8);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[0], json_array_size(want));
    size_t width = (size_t)t->shape[1];
    char *bytes = calloc((size_t)t->shape[0] * width + 1, 1);
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_U8, bytes, NULL), CLV_OK);
    json_array_foreach(want, i, name)
    {
        const char *text = json_string_value(name);
        bool exact = !strstr(text, "\xef\xbf\xbd"); /* what was no UTF-8 is so in the table alone */
        if (exact && (strlen(text) > width || strncmp(bytes + i * width, text, width) != 0))
            fail_msg("%s: id %zu is %.*s, not %s", file_name, i, (int)width, bytes + i * width, text);
    }
    free(bytes);
    json_decref(want);
    json_decref(got);
    json_decref(root);
    free(header);
    clv_safetensors_close(file);
}

static void test_embed_names(void **state)
{
    cli_expect(0, "", "embed -m {d}/esm --input {g}/scores/proteins.fasta --out {d}/e");
    named("e", "[\"one\",\"two\",\"three\",\"four\"]");
    cli_expect(0, "", "embed -m {d}/esm --input {g}/scores/proteins.fasta --out {d}/e --pool none --batch-tokens 1");
    named("e", "[\"one\",\"two\",\"three\",\"four\"]");
    cli_expect(0, "", "embed -m {d}/bert --input {g}/scores/sentences.txt --out {d}/e");
    named("e", "[\"1\",\"2\",\"3\",\"4\"]");
    write_file("names.fasta", ">sp|P1|\"A\\ first\nMKV\n>\nMK\n>\303\244\377\033b\nMKVA\n>sp|P1|\"A\\\nM\n");
    cli_expect(0, "", "embed -m {d}/esm --input {d}/names.fasta --out {d}/e");
    named("e", "[\"sp|P1|\\\"A\\\\\",\"\",\"\303\244\357\277\275\\u001bb\",\"sp|P1|\\\"A\\\\\"]");
}

/* The same rows of two files of vectors. */
static void same_row(const char *a, int64_t row_a, const char *b, int64_t row_b)
{
    char path[512];
    int64_t n, m, width = 20; /* of the model */
    snprintf(path, sizeof path, "%s/%s", cli_folder(), a);
    float *x = values(path, "embeddings", &n);
    snprintf(path, sizeof path, "%s/%s", cli_folder(), b);
    float *y = values(path, "embeddings", &m);
    assert_true(row_a < n / width && row_b < m / width && n % width == 0);
    for (int64_t d = 0; d < width; d++)
        assert_true(fabsf(x[row_a * width + d] - y[row_b * width + d]) <= 1e-5f);
    free(x);
    free(y);
}

#define RESIDUES_62 "ACDEFGHIKLMNPQRSTVWYACDEFGHIKLMNPQRSTVWYACDEFGHIKLMNPQRSTVWYAC"

/* A record that does not fit is left out and listed, and the others are done; cut, it is what its beginning alone is.
 */
static void test_embed_too_long(void **state)
{
    write_file("mixed.fasta", ">a\nMKVA\n>long\n" RESIDUES_62 "GATTACA\n>b\nGATTACA\n>\033[2J\n" RESIDUES_62 "G\n");
    write_file("fits.fasta", ">a\nMKVA\n>long\n" RESIDUES_62 "\n>b\nGATTACA\n");
    cli_expect(0, "3 sequences", "embed -m {d}/esm --input {d}/fits.fasta --out {d}/fits");
    cli_expect(1,
               "2 of 4 do not fit and were left out (the model takes 1 to 64 tokens; --truncate cuts to that):\n"
               "  long: 71 tokens\n  \\x1b[2J: 65 tokens\n",
               "embed -m {d}/esm --input {d}/mixed.fasta --out {d}/mixed");
    named("mixed", "[\"a\",\"b\"]");
    same_row("mixed", 0, "fits", 0);
    same_row("mixed", 1, "fits", 2);
    cli_expect(1, "left out", "embed -m {d}/esm --input {d}/mixed.fasta --out {d}/mixed --pool none");
    named("mixed", "[\"a\",\"b\"]");
    cli_expect(0, "2 of 4 were cut to 64 tokens:\n  long: 71 tokens\n",
               "embed -m {d}/esm --input {d}/mixed.fasta --out {d}/cut --truncate --batch-tokens 1");
    named("cut", "[\"a\",\"long\",\"b\",\"\\u001b[2J\"]");
    same_row("cut", 1, "fits", 1);
    same_row("cut", 2, "fits", 2);
    same_row("cut", 3, "fits", 1);
    write_file("all_long.fasta", ">a\n" RESIDUES_62 "A\n>b\n" RESIDUES_62 "G\n");
    static const char *const pools[] = {"embeddings", "ids"};
    for (int p = 0; p < 2; p++) { /* none fits: a file without rows */
        int64_t n;
        char path[512];
        cli_expect(1,
                   "2 of 2 do not fit and were left out (the model takes 1 to 64 tokens; --truncate cuts to that):\n"
                   "  a: 65 tokens\n  b: 65 tokens\n",
                   "embed -m {d}/esm --input {d}/all_long.fasta --out {d}/none %s", p ? "--pool none" : "");
        named("none", "[]");
        snprintf(path, sizeof path, "%s/none", cli_folder());
        free(values(path, pools[p], &n));
        assert_int_equal(n, 0);
    }
    cli_expect(0, "2 of 2 were cut", "embed -m {d}/esm --input {d}/all_long.fasta --out {d}/none --truncate");
    cli_shell("rm {d}/none");
}

/* Nothing is a record, too: of two tokens where the tokenizer puts <cls> and <eos> around it, of none where it adds
 * none. */
static void test_embed_empty(void **state)
{
    write_file("empty_record.fasta", ">a\n>b\nMKVA\n>c\n\n>d\n");
    cli_expect(0, "4 sequences", "embed -m {d}/esm --input {d}/empty_record.fasta --out {d}/e --batch-tokens 1");
    named("e", "[\"a\",\"b\",\"c\",\"d\"]");
    same_row("e", 0, "e", 2);
    same_row("e", 0, "e", 3);
    same_row("e", 1, "fits", 0);
    write_file("empty_line.txt", "one two\n\nthree\n\r\n");
    cli_shell("mkdir {d}/words && cp {g}/llama/* {g}/scores/tokenizer.json {d}/words");
    for (int i = 0; i < 2; i++)
        cli_expect(1,
                   "2 of 4 do not fit and were left out (the model takes 1 to 64 tokens; --truncate cuts to that):\n"
                   "  2: 0 tokens\n  4: 0 tokens\n",
                   "embed -m {d}/words --input {d}/empty_line.txt --out {d}/e %s", i ? "--truncate" : "");
    named("e", "[\"1\",\"3\"]");
}

/* ---- score ---- */

static json_t *expected(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/scores/scores.json", cli_golden());
    json_t *all = json_load_file(path, 0, NULL);
    assert_non_null(all);
    return all;
}

/* What --json prints, after notes on stderr were sent away. */
static json_t *rows_of(const char *arguments)
{
    assert_int_equal(cli_run(out, "%s --json 2>&2", arguments), 0);
    json_t *root = json_loads(out, 0, NULL);
    assert_non_null(root);
    json_t *rows = json_incref(json_object_get(root, "scores"));
    json_decref(root);
    return rows;
}

static void near(const json_t *row, const char *key, double want)
{
    double got = json_number_value(json_object_get(row, key));
    if (!(fabs(got - want) <= 2e-5 * fmax(fabs(want), 1)))
        fail_msg("%s: %.9g, expected %.9g", key, got, want);
}

static void test_pseudo_perplexity(void **state)
{
    static const char *const how[] = {"", "-tp 2 --batch-tokens 1", "-tp 3 --sp --batch-tokens 50"};
    json_t *all = expected(), *want = json_object_get(all, "pseudo_perplexity");
    for (int h = 0; h < 3; h++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "score -m {d}/esm --input {g}/scores/proteins.fasta %s", how[h]);
        json_t *rows = rows_of(arguments);
        assert_int_equal(json_array_size(rows), json_array_size(want));
        for (size_t i = 0; i < json_array_size(rows); i++)
            near(json_array_get(rows, i), "pseudo_perplexity", json_real_value(json_array_get(want, i)));
        assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 1), "name")), "two");
        json_decref(rows);
    }
    json_decref(all);
}

static void test_mutations(void **state)
{
    static const char *const how[] = {"", "-tp 2 --batch-tokens 1", "-tp 3"};
    json_t *all = expected(), *want = json_object_get(all, "mutations"), *score;
    const char *name;
    char list[256] = "", arguments[1024];
    json_object_foreach(want, name, score)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? "," : "", name);
    for (int h = 0; h < 3; h++) {
        size_t i = 0;
        snprintf(arguments, sizeof arguments, "score -m {d}/esm --input {g}/scores/wild.fasta --mutations %s %s", list,
                 how[h]);
        json_t *rows = rows_of(arguments);
        json_object_foreach(want, name, score)
        {
            const json_t *row = json_array_get(rows, i++);
            assert_string_equal(json_string_value(json_object_get(row, "mutation")), name);
            near(row, "score", json_number_value(score));
        }
        json_decref(rows);
    }
    json_decref(all);
}

static void test_perplexity(void **state)
{
    static const char *const how[] = {"", "-tp 2 --batch-tokens 1", "-tp 3 --sp --batch-tokens 25"};
    json_t *all = expected();
    cli_shell("mkdir {d}/llama && cp {g}/llama/* {g}/scores/tokenizer.json {d}/llama");
    for (int h = 0; h < 3; h++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "score -m {d}/llama --input {g}/scores/text.txt -c 12 --stride 5 %s",
                 how[h]);
        json_t *rows = rows_of(arguments);
        near(json_array_get(rows, 0), "perplexity", json_real_value(json_object_get(all, "perplexity")));
        near(json_array_get(rows, 0), "tokens", 40);
        json_decref(rows);
    }
    cli_expect(0, "perplexity", "score -m {d}/llama --input {g}/scores/text.txt");
    json_decref(all);
}

/* Weights in blocks: the perplexity without them, and how far off it is. */
static void test_change_of_perplexity(void **state)
{
    static const char *const how[] = {"--quant q8", "--quant q4 -tp 2"};
    double most[] = {0.2, 2};
    cli_shell("for i in 1 2 3 4 5 6 7 8; do cat {g}/scores/text.txt; done > {d}/long_text");
    cli_expect(0, "",
               "train --text {d}/long_text --layers 1 --hidden 32 --heads 1 --ffn 64 --seq 16 --batch 2 --steps 8 "
               "--lr 0.02 --out {d}/blocks");
    json_t *plain = rows_of("score -m {d}/blocks --input {g}/scores/text.txt -c 16");
    double before = json_real_value(json_object_get(json_array_get(plain, 0), "perplexity"));
    assert_null(json_object_get(json_array_get(plain, 0), "change_percent"));
    for (int h = 0; h < 2; h++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "score -m {d}/blocks --input {g}/scores/text.txt -c 16 %s", how[h]);
        json_t *rows = rows_of(arguments), *row = json_array_get(rows, 0);
        double after = json_real_value(json_object_get(row, "perplexity"));
        double change = json_real_value(json_object_get(row, "change_percent"));
        double unquantised = json_real_value(json_object_get(row, "unquantised")); /* on that mesh */
        near(row, "unquantised", before);
        assert_true(after != before && fabs(change) > 0 && fabs(change) < most[h]);
        assert_true(fabs(change - 100 * (after / unquantised - 1)) < 1e-6 * fmax(1, fabs(change)));
        json_decref(rows);
    }
    json_decref(plain);
}

/* Scores of mutations by blocks: those of floats beside them, how far they moved, and whether their order stayed. */
static void test_change_of_mutations(void **state)
{
    static const char *const list = "A4G,K2R,K2R:T3V,T3V";
    char arguments[512];
    cli_shell("sed 's/hidden_size\": 20/hidden_size\": 64/; s/_size\": 33,/_size\": 64,/; s/_heads\": 5/_heads\": 2/' "
              "{g}/esm/config.json > {d}/wide.json"); /* intermediate_size has a comma behind, vocab_size none */
    cli_expect(0, "",
               "train --config {d}/wide.json --tokenizer {g}/tokenizer/esm_vocab --data {g}/scores/proteins.fasta "
               "--seq 24 --batch 4 --steps 30 --lr 0.02 --out {d}/wide_esm");
    cli_shell("cp {g}/tokenizer/esm_vocab/vocab.txt {d}/wide_esm");
    snprintf(arguments, sizeof arguments, "score -m {d}/wide_esm --input {g}/scores/wild.fasta --mutations %s", list);
    json_t *plain = rows_of(arguments);
    snprintf(arguments, sizeof arguments,
             "score -m {d}/wide_esm --input {g}/scores/wild.fasta --mutations %s --quant q4 -tp 2", list);
    json_t *rows = rows_of(arguments);
    double moved = 0;
    for (size_t i = 0; i < 4; i++) {
        const json_t *row = json_array_get(rows, i), *before = json_array_get(plain, i);
        assert_null(json_object_get(before, "change"));
        double score = json_real_value(json_object_get(row, "score"));
        double change = json_real_value(json_object_get(row, "change"));
        near(row, "unquantised", json_real_value(json_object_get(before, "score")));
        assert_true(change != 0 && fabs(score - json_real_value(json_object_get(row, "unquantised")) - change) < 1e-6);
        moved += fabs(change) / 4;
    }
    static char text[CLI_OUTPUT];
    assert_int_equal(cli_run(text, "%s --json 2>/dev/null", arguments), 0);
    json_t *all = json_loads(text, 0, NULL);
    assert_true(fabs(json_real_value(json_object_get(all, "mean_abs_change")) - moved) < 1e-6);
    double alike = json_real_value(json_object_get(all, "spearman"));
    assert_true(alike > 0.3 && alike <= 1);
    json_decref(all);
    json_decref(rows);
    json_decref(plain);
    cli_expect(0, "unquantised,change\nA4G,",
               "score -m {d}/wide_esm --input {g}/scores/wild.fasta --mutations A4G --quant q8 --csv");
}

/* A folder in blocks has no floats to compare with; it says what it holds, and takes no other kind. */
static void test_stored_blocks(void **state)
{
    cli_expect(0, "tensors", "shard -m {d}/blocks -tp 3 --quant q8 --out {d}/stored");
    cli_expect(0, "quant            q8", "info -m {d}/stored");
    for (int tp = 1; tp <= 3; tp++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "score -m {d}/stored --input {g}/scores/text.txt -c 16 -tp %d", tp);
        json_t *got = rows_of(arguments);
        snprintf(arguments, sizeof arguments, "score -m {d}/blocks --quant q8 --input {g}/scores/text.txt -c 16 -tp %d",
                 tp);
        json_t *want = rows_of(arguments);
        const json_t *row = json_array_get(got, 0), *of = json_array_get(want, 0);
        assert_true(json_real_value(json_object_get(row, "nll")) == json_real_value(json_object_get(of, "nll")));
        assert_null(json_object_get(row, "change_percent"));
        json_decref(got);
        json_decref(want);
    }
    cli_expect(2, "its weights are in q8 already", "score -m {d}/stored --input {g}/scores/text.txt --quant q4");
    cli_expect(1, "/stored: neither weights in q8 nor", "plan -m {d}/stored --train");
    cli_expect(1, "gradients of weights in q8", "verify -m {d}/stored --tp 1,2 --seq 5");
    cli_expect(1, "/stored: neither weights in q8 nor",
               "train -m {d}/stored --text {g}/scores/text.txt --seq 8 --steps 1 --out {d}/no");
    cli_expect(0, "", "train --config {d}/stored --text {g}/scores/text.txt --seq 8 --steps 1 --out {d}/anew");
}

static void test_csv(void **state)
{
    cli_expect(0, "mutation,score\nA4G,0.8097", "score -m {d}/esm --input {g}/scores/wild.fasta --mutations A4G --csv");
    cli_expect(0, "mutation,score\nK2R:T3V,0.651",
               "score -m {d}/esm --input {g}/scores/wild.fasta --mutations K2R:T3V --csv");
}

/* Sequences that do not fit are left out of scores as they are of vectors. */
static void test_score_too_long(void **state)
{
    cli_expect(1, "name,tokens,nll,pseudo_perplexity\na,4,", "score -m {d}/esm --input {d}/mixed.fasta --csv 2>&2");
    cli_expect(1, "\nb,7,", "score -m {d}/esm --input {d}/mixed.fasta --csv 2>&2");
    cli_expect(1, "2 of 4 do not fit and were left out", "score -m {d}/esm --input {d}/mixed.fasta");
    cli_expect(0, "\nlong,62,", "score -m {d}/esm --input {d}/mixed.fasta --csv --truncate 2>&2");
    assert_int_equal(cli_run(out, "score -m {d}/esm --input {d}/fits.fasta --csv 2>&2"), 0);
    char *row = strstr(out, "\nlong,");
    assert_non_null(row);
    *strchr(row + 1, '\n') = '\0';
    cli_expect(0, row, "score -m {d}/esm --input {d}/mixed.fasta --csv --truncate 2>&2");
    cli_expect(1, "2 of 2 do not fit", "score -m {d}/esm --input {d}/all_long.fasta");
    assert_int_equal(cli_run(out, "score -m {d}/esm --input {d}/all_long.fasta --json 2>{d}/said"), 1);
    assert_string_equal(out, "{\"scores\": []}\n");
    cli_expect(1,
               "3 of 4 do not fit and were left out (the model takes 1 to 64 tokens; --truncate cuts to that):\n"
               "  a: 2 tokens, none of them its own\n",
               "score -m {d}/esm --input {d}/empty_record.fasta");
    write_file("none.fasta", ">a\n");
    cli_expect(2, "none of them its own", "score -m {d}/esm --input {d}/none.fasta --mutations A1C");
    write_file("long_only.fasta", ">long\n" RESIDUES_62 "GATTACA\n");
    cli_expect(2, "long: 71 tokens", "score -m {d}/esm --input {d}/long_only.fasta --mutations A1C");
}

static void test_score_refused(void **state)
{
    cli_expect(2, "mutations need the whole protein",
               "score -m {d}/esm --input {g}/scores/wild.fasta --mutations A4G --truncate");
    cli_expect(2, "a decoder takes a text by windows (-c)",
               "score -m {d}/llama --input {g}/scores/text.txt --truncate");
    cli_expect(2, "residue 4 is A", "score -m {d}/esm --input {g}/scores/wild.fasta --mutations G4A");
    cli_expect(2, "residues 1 to 16", "score -m {d}/esm --input {g}/scores/wild.fasta --mutations A99G");
    cli_expect(2, "A4G and A4K exchange one residue",
               "score -m {d}/esm --input {g}/scores/wild.fasta --mutations K2R,A4G:K2R:A4K");
    cli_expect(2, "A24G", "score -m {d}/esm --input {g}/scores/wild.fasta --mutations A4");
    cli_expect(2, "A24G", "score -m {d}/esm --input {g}/scores/wild.fasta --mutations A4G,,K2R");
    cli_expect(2, "A24G", "score -m {d}/esm --input {g}/scores/wild.fasta --mutations J4G");
    cli_expect(2, "A24G", "score -m {d}/esm --input {g}/scores/wild.fasta --mutations A+4G");
    cli_expect(2, "one record", "score -m {d}/esm --input {g}/scores/proteins.fasta --mutations M1K");
    cli_expect(2, "decoder", "score -m {d}/llama --input {g}/scores/wild.fasta --mutations M1K");
    cli_expect(1, "no head", "score -m {d}/bert --input {g}/scores/sentences.txt");
    cli_expect(2, "-c 100", "score -m {d}/llama --input {g}/scores/text.txt -c 100");
    cli_expect(2, "--stride 12", "score -m {d}/llama --input {g}/scores/text.txt -c 12 --stride 12");
    write_file("one.txt", "t1");
    cli_expect(2, "two or more", "score -m {d}/llama --input {d}/one.txt");
}

/* ---- NaN ---- */

/* A copy of a model in the temporary folder in which a tensor begins with NaN. */
static void make_broken(const char *model, const char *tensor)
{
    char path[512];
    const uint32_t nan_bits = 0x7fc00000;
    clv_safetensors *file = NULL;
    const clv_safetensor *t = NULL;
    cli_shell("cp -r {d}/%s {d}/%s_nan", model, model);
    snprintf(path, sizeof path, "%s/%s_nan/model.safetensors", cli_folder(), model);
    assert_int_equal(clv_safetensors_open(&file, path, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_find(&t, file, tensor, NULL), CLV_OK);
    long at = (long)t->begin;
    clv_safetensors_close(file);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&nan_bits, sizeof nan_bits, 1, f), 1);
    fclose(f);
}

/* What is not finite is an error that names the text, and the tensor where it begins; and leaves no file. */
static void test_nonfinite_propagation(void **state)
{
    make_broken("esm", "esm.encoder.emb_layer_norm_after.weight");
    make_broken("llama", "model.norm.weight");
    cli_expect(1, "four: the hidden state of token 0 is nan; it begins at rank ",
               "embed -m {d}/esm_nan --input {g}/scores/proteins.fasta --out {d}/never -tp 2");
    cli_expect(1, "which this op reads; --allow-nonfinite continues",
               "embed -m {d}/esm_nan --input {g}/scores/proteins.fasta --out {d}/never --pool none");
    cli_shell("! ls {d} | grep never");
    cli_expect(0, "sequences in",
               "embed -m {d}/esm_nan --input {g}/scores/proteins.fasta --out {d}/allowed --allow-nonfinite");
    cli_shell("rm {d}/allowed");
    cli_expect(1, "one: the loss of token 1 is nan; it begins at rank 0",
               "score -m {d}/esm_nan --input {g}/scores/proteins.fasta");
    cli_expect(1, "wild: a logit of token 0 is nan",
               "score -m {d}/esm_nan --input {g}/scores/wild.fasta --mutations A4G");
    cli_expect(1, "the loss of token 1 is nan; it begins at rank 0, normalize: state 'final_norm.weight' is nan",
               "score -m {d}/llama_nan --input {g}/scores/text.txt -c 12 --stride 5");
    cli_expect(0, "perplexity", "score -m {d}/llama_nan --input {g}/scores/text.txt --allow-nonfinite");
    cli_expect(1, "the logit of token 0 is nan; it begins at rank 0, normalize: state 'final_norm.weight' is nan",
               "generate -m {d}/llama_nan -p 't1 t2' -n 3");
    cli_expect(1, "the logit of token 0 is nan; it begins at rank ", "generate -m {d}/llama_nan -p 't1 t2' -n 3 -tp 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed_proteins),
        cmocka_unit_test(test_embed_sentences),
        cmocka_unit_test(test_embed_all),
        cmocka_unit_test(test_embed_refused),
        cmocka_unit_test(test_embed_names),
        cmocka_unit_test(test_embed_too_long),
        cmocka_unit_test(test_embed_empty),
        cmocka_unit_test(test_pseudo_perplexity),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_perplexity),
        cmocka_unit_test(test_change_of_perplexity),
        cmocka_unit_test(test_change_of_mutations),
        cmocka_unit_test(test_stored_blocks),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_score_too_long),
        cmocka_unit_test(test_score_refused),
        cmocka_unit_test(test_nonfinite_propagation),
    };
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
