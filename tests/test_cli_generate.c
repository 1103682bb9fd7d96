/* test_cli_generate.c - generate by what a model's folder says, with vocabularies that differ from the tokenizer's, and
 * from standard input. The model is one whose logits are the same behind any text: those of ids 6 (which has no token)
 * and 1 ("b") are the largest. */
#include <stdlib.h>
#include <string.h>

#include "cli_run.h"
#include "model_folder.h"

enum { WIDTH = 8, ROWS = 8 };
static const float logits[ROWS] = {0, 3, -1, 0, -2, -3, 3.5f, -1};

/* Ones, and zeros in what layers add: the head sees ones. */
static float *values(void *arg, const clv_model_config *c, const clv_parameter *p)
{
    const int64_t n = clv_parameter_elems(p);
    const bool zeros = p->layer >= 0 && p->rank > 1, head = strcmp(p->name, "lm_head.weight") == 0;
    float *w = malloc((size_t)n * sizeof *w);
    for (int64_t i = 0; i < n; i++)
        w[i] = head ? logits[i % c->vocab] / WIDTH : zeros ? 0.0F : 1.0F; /* [M,V] */
    return w;
}

static void write_tokenizer(const char *folder, const char *added)
{
    cli_shell("cat > {d}/%s/tokenizer.json <<'E'\n"
              "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [%s], "
              "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"post_processor\": null, "
              "\"decoder\": null, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", "
              "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"u\": 4}}}\nE",
              folder, added);
}

static int set_up(void **state)
{
    static const clv_model_config llama = {.family = &clv_family_llama,
                                           .hidden = WIDTH,
                                           .layers = 1,
                                           .heads = 2,
                                           .kv_heads = 2,
                                           .head_dim = 4,
                                           .ffn = 8,
                                           .vocab = ROWS,
                                           .max_positions = 64,
                                           .norm_eps = 1e-5,
                                           .activation = CLV_SILU,
                                           .rope.theta = 10000,
                                           .bos = -1,
                                           .pad = -1,
                                           .mask = -1,
                                           .n_eos = 1,
                                           .eos = {3}};
    char path[256];
    snprintf(path, sizeof path, "%s/padded", cli_folder());
    write_model_folder(path, &llama, values, NULL);
    write_tokenizer("padded", "");
    cli_shell("cp -r {d}/padded {d}/added");
    write_tokenizer("added", "{\"id\": 8, \"content\": \"<sep>\", \"single_word\": false, \"lstrip\": false, "
                             "\"rstrip\": false, \"normalized\": false, \"special\": false}");
    return 0;
}

static void says(const char *generation)
{
    cli_shell("cat > {d}/padded/generation_config.json <<'E'\n%s\nE", generation);
}

/* What the command prints on stdout, and on stderr. */
static void expect_both(const char *out, const char *talk, const char *arguments)
{
    char got[CLI_OUTPUT];
    assert_int_equal(cli_run(got, "%s 2>{d}/talk", arguments), 0);
    if (!strstr(got, out))
        fail_msg("%s prints '%s', not '%s'", arguments, got, out);
    assert_int_equal(cli_run(got, "tokenize -m {d}/padded -p a 2>/dev/null; cat {d}/talk"), 0);
    if (talk[0] ? !strstr(got, talk) : strstr(got, "note:") != NULL)
        fail_msg("%s says '%s', not '%s'", arguments, got, talk);
}

#define RUN "generate -m {d}/padded -t 1 -tp 1 "

/* ---- what the folder says ---- */

static void test_folder(void **state)
{
    /* the file overrides the eos of config.json */
    says("{\"eos_token_id\": [6, 7]}");
    expect_both("\"tokens\": 1}", "cleave generate: note: generation_config.json sets eos_token_id [6, 7]\n",
                RUN "-p a --temp 0 -n 5 --json");
    says("{\"max_new_tokens\": 4}");
    expect_both("\"tokens\": 4}", "sets max_new_tokens 4, eos_token_id none\n", RUN "-p a --temp 0 --json");
    expect_both("\"tokens\": 7}", "sets eos_token_id none\n", RUN "-p a --temp 0 --json -n 7");
    says("{\"max_length\": 6}");
    expect_both("\"tokens\": 4}", "sets max_length 6", RUN "-p 'a b' --temp 0 --json");
    /* greedy by the folder, and not by options */
    says("{\"do_sample\": false, \"temperature\": 50.0, \"eos_token_id\": 7}");
    expect_both("a\n", "sets do_sample false, temperature 50.0, eos_token_id 7\n", RUN "-p a -n 20");
    expect_both("b", "sets eos_token_id 7\n", RUN "-p a -n 20 --temp 1");
    says("{\"do_sample\": true, \"top_k\": 1}");
    expect_both("a\n", "sets do_sample true, top_k 1, eos_token_id none\n", RUN "-p a -n 20");
    expect_both("b", "sets do_sample true, eos_token_id none\n", RUN "-p a -n 20 --top-k 2");
    says("{\"do_sample\": true, \"top_p\": 0}");
    expect_both("a\n", "sets do_sample true, top_p 0, top_k 50 by default, eos_token_id none\n", RUN "-p a -n 20");
    /* the penalty makes b the next one, and then another */
    says("{\"repetition_penalty\": 2.0}");
    expect_both("a b\n", "sets do_sample false by default, repetition_penalty 2.0", RUN "-p a -n 4");
    expect_both("a\n", "sets do_sample false by default, eos_token_id none\n", RUN "-p a -n 4 --repeat-penalty 1");
    says("{\"stop_strings\": \"b\", \"do_sample\": true}");
    expect_both("\"text\": \" \"", "sets do_sample true, stop_strings \"b\"", RUN "-p a -n 50 --top-k 2 --json -s 3");
    says("{\"num_beams\": 4, \"bad_words_ids\": [[1]], \"min_p\": 0.0}");
    expect_both("a\n",
                "generation_config.json sets do_sample false by default, min_p 0.0, eos_token_id none; not supported: "
                "bad_words_ids [[1]], num_beams 4\n",
                RUN "-p a -n 4");
    says("{\"do_sample\": true, \"top_k\": -3}");
    cli_expect(1, "generation_config.json: \"top_k\" is -3, valid are 0 to", RUN "-p a");
    /* not requested elsewhere */
    cli_expect(0, "perplexity", "score -m {d}/padded --input {d}/padded/tokenizer.json -t 1");
    cli_shell("rm {d}/padded/generation_config.json");
    expect_both("\"tokens\": 4}", "", RUN "-p a --temp 0 --json -n 4");
}

/* Side by side, on ranks, and by the folder: the same texts. */
static void test_meshes(void **state)
{
    static const char *const ways[] = {"-tp 1", "-tp 2", "-tp 3", "-tp 2 -b 1", "--mesh data=2,model=2"};
    char want[CLI_OUTPUT], got[CLI_OUTPUT];
    says("{\"do_sample\": true, \"temperature\": 1.5, \"top_k\": 3, \"top_p\": 0.9, \"min_p\": 0.01, "
         "\"repetition_penalty\": 1.2, \"eos_token_id\": [2, 7]}");
    cli_shell("printf 'a\\nb c\\nd d d\\n' > {d}/prompts");
    assert_int_equal(cli_run(want, "generate -m {d}/padded -f {d}/prompts -n 20 --json %s 2>/dev/null", ways[0]), 0);
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        assert_int_equal(cli_run(got, "generate -m {d}/padded -f {d}/prompts -n 20 --json %s 2>/dev/null", ways[i]), 0);
        assert_string_equal(got, want);
    }
    assert_int_equal(cli_run(got, "generate -m {d}/padded -f {d}/prompts -n 20 --json --temp 1.5 --top-k 3 --top-p 0.9 "
                                  "--min-p 0.01 --repeat-penalty 1.2 2>/dev/null"),
                     0);
    assert_string_equal(got, want);
    cli_shell("rm {d}/padded/generation_config.json");
}

/* ---- vocabularies ---- */

static void test_padded(void **state)
{
    expect_both("\"prompt\": \"a\", \"text\": \"\", \"prompt_tokens\": 1, \"tokens\": 9}, {\"prompt\": \"b c\", "
                "\"text\": \"\", \"prompt_tokens\": 2, \"tokens\": 9}",
                "", RUN "-f {d}/prompts -n 9 --temp 0 --json");
    expect_both(" b b b b", "", RUN "-p a -n 40 --temp 1 --top-k 2");
    expect_both("b c\n", "note: 2 of the ids have no token, and read as nothing: the first is 6\n",
                "tokenize -m {d}/padded -p '1 6 2 99999' --decode");
    cli_expect(2, "-1 is no token id; valid: 0 to 4294967295", "tokenize -m {d}/padded -p -1 --decode");
}

/* A token that the model has no row for does no harm where no text has it. */
static void test_added(void **state)
{
    static const char refused[] =
        "the token '<sep>' (id 8) is beyond the model's vocab_size of 8: it has no row for it";
    cli_shell("printf 'a b\\nc <sep> d\\n' > {d}/sep.txt; printf 'a b\\nc d\\n' > {d}/plain.txt; "
              "printf '{\"text\": \"a <sep> b\"}\\n' > {d}/sep.jsonl");
    cli_expect(0, "a b", "generate -m {d}/added -p 'a b' -n 3");
    cli_expect(2, refused, "generate -m {d}/added -p 'a <sep> b' -n 3");
    cli_expect(2, "prompt 2: the token '<sep>'", "generate -m {d}/added -f {d}/sep.txt -n 3");
    cli_expect(0, "", "embed -m {d}/added --input {d}/plain.txt --out {d}/plain.safetensors");
    cli_expect(2, refused, "embed -m {d}/added --input {d}/sep.txt --out {d}/sep.safetensors");
    cli_expect(0, "perplexity", "score -m {d}/added --input {d}/plain.txt");
    cli_expect(2, refused, "score -m {d}/added --input {d}/sep.txt");
    cli_expect(0, "", "train -m {d}/added --data {d}/plain.txt --seq 2 --batch 1 --steps 1 --out {d}/trained");
    cli_expect(2, refused, "train -m {d}/added --data {d}/sep.txt --seq 2 --batch 1 --steps 1 --out {d}/none");
    cli_expect(2, refused, "train -m {d}/added --data {d}/sep.jsonl --seq 2 --batch 1 --steps 1 --out {d}/none");
    cli_expect(0, "8\n", "tokenize -m {d}/added -p '<sep>'");
}

/* ---- standard input ---- */

static void expect_piped(const char *text, const char *want, const char *arguments)
{
    char got[CLI_OUTPUT];
    cli_shell("printf '%s' > {d}/piped", text);
    assert_int_equal(cli_run(got, "%s <{d}/piped 2>{d}/talk", arguments), 0);
    if (!strstr(got, want))
        fail_msg("'%s' into %s prints '%s', not '%s'", text, arguments, got, want);
}

static void test_standard_input(void **state)
{
    static const char one[] = RUN "-p - -n 0 --json", lines[] = RUN "-f - -n 0 --json",
                      file[] = RUN "-f {d}/piped -n 0 --json";
    expect_piped("a b\\n", "\"prompt\": \"a b\", ", one);
    expect_piped("a b", "\"prompt\": \"a b\", ", one);
    expect_piped("a\\r\\nb\\r\\n", "\"prompt\": \"a\\r\\nb\", ", one);
    expect_piped("\\357\\273\\277a\\n\\n", "\"prompt\": \"a\\n\", ", one);
    expect_piped("\\357\\273\\277a\\n\\nb c\\r\\n", "{\"texts\": [{\"prompt\": \"a\", ", lines);
    expect_piped("\\357\\273\\277a\\n\\nb c\\r\\n", "{\"prompt\": \"\", \"text\": \"\"", lines);
    expect_piped("\\357\\273\\277a\\n\\nb c\\r\\n", "{\"prompt\": \"b c\", ", lines);
    expect_piped("a\\rb\\r", "{\"texts\": [{\"prompt\": \"a\", ", lines);
    expect_piped("a\\rb\\r", "{\"prompt\": \"b\", ", file);
    expect_piped("\\357\\273\\277a\\n", "{\"texts\": [{\"prompt\": \"a\", ", file);
    expect_piped("a\\n\\357\\273\\277b\\n",
                 "{\"prompt\": \"\xef\xbb\xbf"
                 "b\", ",
                 file); /* no mark there */
    cli_expect(2, "standard input: the prompt is empty", RUN "-p - </dev/null");
    cli_expect(2, "standard input: no prompt; one a line is needed", RUN "-f - </dev/null");
    cli_expect(1, "standard input: a folder; valid: a file, a pipe", RUN "-p - <.");
    cli_shell("printf 'a\\0b' > {d}/piped");
    cli_expect(2, "standard input: byte 1 is 0; a prompt has no zero bytes", RUN "-p - <{d}/piped");
    cli_expect(2, "unexpected argument 'once'; did you mean -p 'once' (", RUN "once upon");
    cli_expect(2, "unexpected argument 'upon'; quote a text of several words: -p 'once upon'", RUN "-p once upon");
}

/* A command that waits for input says so. */
static void test_terminal(void **state)
{
    char got[CLI_OUTPUT];
    if (system("script -qec true /dev/null >/dev/null 2>&1 </dev/null") != 0)
        skip();
    static const char *const commands[] = {"tokenize -m padded", "generate -m padded -p - -n 0"};
    for (int i = 0; i < 2; i++) {
        cli_shell(
            "cd {d} && printf 'a\\n\\004\\004' | script -qec \"$CLV_BUILD_DIR/cleave %s\" /dev/null > {d}/seen || true",
            commands[i]);
        assert_int_equal(cli_run(got, "tokenize -m {d}/padded -p a >/dev/null; cat {d}/seen"), 0);
        assert_non_null(strstr(got, ": waiting for text on standard input; Ctrl-D at the begin of a line ends it"));
    }
    assert_int_equal(cli_run(got, "tokenize -m {d}/padded"), 0); /* no terminal, no word */
    assert_null(strstr(got, "waiting"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder), cmocka_unit_test(test_meshes),         cmocka_unit_test(test_padded),
        cmocka_unit_test(test_added),  cmocka_unit_test(test_standard_input), cmocka_unit_test(test_terminal),
    };
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
