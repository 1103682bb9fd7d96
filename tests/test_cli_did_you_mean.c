/* test_cli_did_you_mean.c - requests that are nearly right: what was meant is done where that is plain, and asked for
 * where it is not; and a file that is not there, in every command. */
#include <stdio.h>
#include <string.h>

#include "cli_run.h"
#include "unit_test.h"

typedef struct request {
    const char *arguments, *says;
} request;

static void expect_each(int code, const request *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cli_expect(code, rows[i].says, "%s", rows[i].arguments);
}

#define EXPECT_EACH(code, rows) expect_each(code, rows, sizeof(rows) / sizeof *(rows))

/* ---- arguments without an option ---- */

static void test_names_left_out(void **state)
{
    static const request done[] = {
        {"info {g}/llama", "model_type       llama"},
        {"info --json {g}/llama", "\"model_type\": \"llama\""},
        {"plan {g}/llama -tp 2 --seq 8", "ranks"},
        {"explain {g}/llama -tp 2 --seq 8 --op layers.0.mlp.down --most 1", "layers.0.mlp.down"},
        {"generate {d}/bytes -p ab -n 1 --temp 0", "ab"},
        {"score {d}/bytes {d}/text", "perplexity"},
        {"score {d}/text -m {d}/bytes", "perplexity"},
        {"score --input {d}/text {d}/bytes", "perplexity"},
        {"tokenize {g}/tokenizer/llama3 -p a", "\n"},
        {"data {d}/text {d}/more --out {d}/a.bin --json", "\"documents\": 2"},
        {"data --json --out {d}/a.bin -- {d}/text", "\"documents\": 1"},
        {"bench {d}/bytes -p 4 -n 2 -r 1", "pp4"},
        {"info --help", "(required; the name may be omitted)"},
    };
    static const request asked[] = {
        {"info {g}/llama {g}/gpt2", "/gpt2' (see 'cleave info --help')"},
        {"info -m {g}/llama {g}/gpt2", "unexpected argument '"},
        {"generate -m {d}/bytes words", "unexpected argument 'words'; did you mean -p 'words'"},
        {"generate -m {d}/bytes -p Once upon a time", "; quote a text of several words: -p 'Once upon'"},
        {"generate -m {d}/bytes --prompt=Once upon", "; quote a text of several words: --prompt 'Once upon'"},
        {"tokenize {d}/bytes words", "did you mean -p 'words'"},
        {"train corpus.bin", "did you mean --data 'corpus.bin'"},
        {"verify {d}/bytes golden.safetensors", "did you mean --against 'golden.safetensors'"},
        {"bench runs/nowhere -p 4", "cleave bench: -m runs/nowhere: no such file or folder; a model of the Hub is "},
        {"bench nowhere", "unknown command 'nowhere'. Valid: "},
        {"bench gemm 512", "unexpected argument '512' (see 'cleave bench gemm --help')"},
        {"generate {d}/nowhere -p a", "-m "},
    };
    EXPECT_EACH(0, done);
    EXPECT_EACH(2, asked);
}

static void test_missing_options(void **state)
{
    static const request rows[] = {
        {"score -m {d}/bytes", "cleave score: missing: --input FILE (see 'cleave score --help')\n"},
        {"score", "missing: -m DIR, --input FILE ("},
        {"data", "missing: --input FILE..., --out FILE ("},
        {"trace", "missing: FILE ("},
        {"einsum", "missing: EQUATION, "},
    };
    EXPECT_EACH(2, rows);
}

/* ---- values ---- */

static void test_meshes_of_sizes(void **state)
{
    static const request rows[] = {
        {"plan --block gpt --mesh 2x4", "--mesh 2x4: axes have names; did you mean data=2,model=4?\n"},
        {"plan --block gpt --mesh 2,4", "did you mean data=2,model=4?\n"},
        {"verify -m {g}/llama --mesh 2X1", "did you mean data=2,model=1?\n"},
        {"reshard --shape 8 --mesh 8 --from x --to _", "--mesh 8: axes have names; did you mean model=8?\n"},
        {"einsum ik,kj-\\>ij --shape i=2,k=2,j=2 --in _,_ --in _,_ --out _,_ --mesh 2x2",
         "did you mean data=2,model=2"},
        {"generate -m {d}/bytes -p a --mesh 2x2x2", "--mesh 2x2x2: axes have names and sizes, e.g. data=2,model=4\n"},
        {"bench forward -m {d}/bytes --mesh 2d", "axes have names and sizes"},
    };
    EXPECT_EACH(2, rows);
}

/* GNU's units, in either case: KB is 1000, K and KiB are 1024. */
static void test_sizes(void **state)
{
    static const struct {
        const char *given, *bytes;
    } rows[] = {{"16GB", "16000000000"},
                {"16gb", "16000000000"},
                {"'16 GB'", "16000000000"},
                {"16G", "17179869184"},
                {"16g", "17179869184"},
                {"16GiB", "17179869184"},
                {"16gib", "17179869184"},
                {"512MB", "512000000"},
                {"512m", "536870912"},
                {"4000000kB", "4000000000"},
                {"1.5GiB", "1610612736"},
                {"1.5GB", "1500000000"},
                {"1TB", "1000000000000"},
                {"0.5T", "549755813888"},
                {"123456789", "123456789"},
                {"123456789B", "123456789"},
                {"1.25e", NULL},
                {"GB", NULL},
                {"16GBB", NULL},
                {"16Gi", NULL},
                {"-1G", NULL},
                {"0GB", NULL},
                {"9000000T", NULL},
                {"99999999999999999999", NULL},
                {"1.G", NULL},
                {"0x10", NULL},
                {"'16G '", NULL}};
    char says[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(says, sizeof says, rows[i].bytes ? "\"limit\": %s," : "--memory-limit takes a size such as 4096",
                 rows[i].bytes);
        cli_expect(rows[i].bytes ? 0 : 2, says, "plan --block gpt --json --memory-limit %s", rows[i].given);
    }
    cli_expect(0, "\"bytes\": 2000", "bench allreduce --bytes 1k,2KB,1KiB --json -tp 2");
    cli_expect(2, "--bytes takes up to", "bench allreduce --bytes 1k,2Q -tp 2");
}

/* ---- names ---- */

static void test_parts_of_names(void **state)
{
    static const request rows[] = {
        {"generate --trace t.json", "unknown option '--trace'; did you mean '--trace-out'?"},
        {"bench block --trace=t.json", "did you mean '--trace-out'?"},
        {"plan --limit 1G", "did you mean '--memory-limit'?"},
        {"plan --memory 1G", "did you mean '--memory-limit'?"},
        {"train --flight x", "did you mean '--flight-recorder'?"},
    };
    EXPECT_EACH(2, rows);
}

/* Models are named on the command line as they are on the Hub. */
static void test_models_of_the_hub(void **state)
{
    static const request rows[] = {
        {"info -m meta-llama/Llama-3-8B",
         "cleave info: -m meta-llama/Llama-3-8B: no such file or folder; a model of the "
         "Hub is fetched first, into a folder: hf download meta-llama/Llama-3-8B "
         "--local-dir Llama-3-8B\n"},
        {"generate -p a gpt2", "hf download gpt2 --local-dir gpt2\n"},
        {"train -m facebook/esm2_t6_8M_UR50D --text {d}/text --out {d}/no", "hf download facebook/"},
        {"merge who/adapters --out {d}/no", "hf download who/adapters --local-dir adapters\n"},
        {"info -m {d}/nowhere", "/nowhere: no such file or folder\n"},
        {"info -m ./nowhere", "-m ./nowhere: no such file or folder\n"},
        {"info -m who/is/it", "-m who/is/it: no such file or folder\n"},
        {"info -m nowhere/", "-m nowhere/: no such file or folder\n"},
    };
    EXPECT_EACH(2, rows);
    cli_start_by("cd /;"); /* where a folder of that name is, it was meant */
    cli_expect(2, "-m dev/nowhere: no such file or folder\n", "info -m dev/nowhere");
    cli_start_by(NULL);
}

/* ---- files ---- */

/* Every option of every command that reads: what is not there is said, with its option, exit 2, and nothing is made. */
static void test_absent_files(void **state)
{
    static const char *const rows[] = {
        "data --input {d}/absent --out {d}/made",
        "data --input {d}/text {d}/absent --out {d}/made",
        "data --input {d}/text -m {d}/absent --out {d}/made",
        "embed -m {d}/absent --input {d}/text --out {d}/made",
        "embed -m {d}/bytes --input {d}/absent --out {d}/made",
        "explain -m {d}/absent",
        "explain --block gpt --rules {d}/absent",
        "explain --block gpt --hardware {d}/absent",
        "flight {d}/absent",
        "flight {d}/text {d}/absent",
        "forward -m {d}/absent --ids {d}/text --out {d}/made",
        "forward -m {d}/bytes --ids {d}/absent --out {d}/made",
        "generate -m {d}/absent -p a",
        "generate -m {d}/bytes -f {d}/absent",
        "generate -m {d}/bytes -p a --rules {d}/absent",
        "generate -m {d}/bytes -p a --hardware {d}/absent",
        "info -m {d}/absent",
        "merge {d}/absent --out {d}/made",
        "plan -m {d}/absent",
        "plan --block gpt --rules {d}/absent",
        "plan --block gpt --hardware {d}/absent",
        "plot {d}/absent --out {d}/made.svg",
        "score -m {d}/absent --input {d}/text",
        "score -m {d}/bytes --input {d}/absent",
        "score -m {d}/bytes --input {d}/text/below",
        "shard -m {d}/absent --out {d}/made",
        "shard -m {d}/bytes --rules {d}/absent --out {d}/made",
        "tokenize -m {d}/absent -p a",
        "trace {d}/absent",
        "train --text {d}/absent --out {d}/made",
        "train --text {d}/text {d}/absent --out {d}/made",
        "train --data {d}/absent --out {d}/made",
        "train --data {d}/text --tokenizer {d}/absent --out {d}/made",
        "train --text {d}/text --val {d}/absent --out {d}/made",
        "train --text {d}/text --config {d}/absent --out {d}/made",
        "train --text {d}/text -m {d}/absent --out {d}/made",
        "train --text {d}/text -m {d}/bytes --lora {d}/absent --out {d}/made",
        "train --text {d}/text --rules {d}/absent --out {d}/made",
        "train --text {d}/text --hardware {d}/absent --out {d}/made",
        "verify -m {d}/absent",
        "verify -m {d}/bytes --against {d}/absent",
        "verify -m {d}/bytes --rules {d}/absent",
        "bench -m {d}/absent",
        "bench forward -m {d}/absent",
        "bench generate -m {d}/absent",
        "bench block --rules {d}/absent",
        "bench block --hardware {d}/absent",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cli_expect(2, strstr(rows[i], "below") ? "/below: no such file" : "/absent", "%s", rows[i]);
    cli_shell("! ls {d} | grep made");
}

/* A file for another command. */
static void test_kinds_of_files(void **state)
{
    static const request rows[] = {
        {"trace {d}/run/metrics.jsonl", "/run/metrics.jsonl: is the metrics of a run; 'cleave plot /"},
        {"trace {d}/run.flight", "/run.flight: is what a flight recorder left; 'cleave flight "},
        {"plot {d}/run.json --out {d}/a.svg", "/run.json: is a trace; 'cleave trace "},
        {"plot {d}/run.flight --out {d}/a.svg", "is what a flight recorder left"},
        {"flight {d}/run.json", "/run.json: is a trace; 'cleave trace "},
        {"flight {d}/run/metrics.jsonl", "is the metrics of a run; 'cleave plot "},
    };
    cli_expect(0, "",
               "train --text {d}/text --layers 1 --hidden 16 --heads 2 --seq 8 --batch 2 --steps 2 --out {d}/run "
               "--trace {d}/run.json --flight-recorder {d}/run.flight");
    EXPECT_EACH(2, rows);
    cli_expect(0, "attention", "trace {d}/run.json");
    cli_expect(0, "rank", "flight {d}/run.flight");
    cli_expect(0, "/a.svg: 1 run\n", "plot {d}/run/metrics.jsonl --out {d}/a.svg");
    cli_expect(0, "/a.SVG: 2 runs\n", "plot {d}/run/metrics.jsonl {d}/run/metrics.jsonl --out {d}/a.SVG");
    cli_expect(0, "/dev/null: 1 run\n", "plot {d}/run/metrics.jsonl --out /dev/null");
    cli_expect(2, "/a.png: the output is .svg; valid: a name with that suffix\n",
               "plot {d}/run/metrics.jsonl --out {d}/a.png");
    cli_expect(2, "/a.pdf: the output is .svg", "train --text {d}/text --out {d}/no --plot {d}/a.pdf");
    cli_shell("test ! -e {d}/a.png && test ! -e {d}/a.pdf && test ! -e {d}/no");
}

static int set_up(void **state)
{
    cli_shell("for i in 1 2 3 4 5 6 7 8; do echo 'once upon a time a tensor was split'; done >{d}/text");
    cli_shell("cp {d}/text {d}/more");
    cli_expect(0, "",
               "train --text {d}/text --layers 1 --hidden 16 --heads 2 --seq 8 --batch 1 --steps 1 --out {d}/bytes");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_left_out),  cmocka_unit_test(test_missing_options),
        cmocka_unit_test(test_meshes_of_sizes), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_parts_of_names),  cmocka_unit_test(test_models_of_the_hub),
        cmocka_unit_test(test_absent_files),    cmocka_unit_test(test_kinds_of_files),
    };
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
