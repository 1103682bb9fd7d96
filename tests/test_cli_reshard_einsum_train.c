/* test_cli_reshard_einsum_train.c - reshard, einsum, train, generate and bench block through the built binary: the
 * oracle table of changes of layout run on rank threads, a checkpoint trained and read back at every degree, and bad
 * requests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli_run.h"
#include "unit_test.h"

static int run(char out[CLI_OUTPUT], const char *arguments)
{
    return cli_run(out, "%s", arguments);
}

static void expect(const char *arguments, int code, const char *part)
{
    static char out[CLI_OUTPUT];
    int got = run(out, arguments);
    if (got != code || !strstr(out, part))
        fail_msg("cleave %s\nexited with %d, expected %d with '%s':\n%s", arguments, got, code, part, out);
}

/* ---- changes of layout ---- */

static void test_reshard_oracle(void **state)
{
    static const struct {
        const char *mesh, *shape, *from, *to, *says;
    } rows[] = {
        {"x=2,y=4", "64x64", "_,_", "x,y", "\"bytes\": 0, \"lower_bound\": 0"},
        {"x=2,y=4", "64x64", "x,_", "_,_", "\"bytes\": 8192, \"lower_bound\": 8192"},
        {"x=2,y=4", "64x64", "x,y", "_,_", "\"bytes\": 14336, \"lower_bound\": 14336"},
        {"x=2,y=4", "64x64", "(x,y),_", "x,_", "\"bytes\": 6144, \"lower_bound\": 6144"},
        {"x=2,y=4", "64x64", "(y,x),_", "x,_", "\"bytes\": 8192, \"lower_bound\": 8192"},
        {"x=2,y=4", "64x64", "x,_", "_,x", "\"bytes\": 4096, \"lower_bound\": 4096"},
        {"x=2,y=4", "64x64", "(x,y),_", "_,(x,y)", "\"bytes\": 1792, \"lower_bound\": 1792"},
        {"x=2,y=4", "64x64", "(x,y),_", "x,y", "\"bytes\": 1536, \"lower_bound\": 1536"},
        {"x=2,y=4", "64x64", "x,y", "y,x", "\"bytes\": 2048, \"lower_bound\": 2048"},
        {"x=2,y=2,z=2", "64x64", "x,z", "z,x", "\"bytes\": 4096, \"lower_bound\": 4096"},
        {"x=2,y=2,z=2", "64x64", "x,_", "z,_", "\"bytes\": 8192, \"lower_bound\": 8192"},
        {"x=2,y=2,z=2", "64x64", "x,_", "_,z", "\"bytes\": 4096, \"lower_bound\": 4096"},
        {"x=2,y=2,z=2", "64x64", "_,x", "(x,z),_", "\"bytes\": 2048, \"lower_bound\": 2048"},
        {"x=4,y=2", "16x16x16", "y,_,x", "_,(x,y),_", "\"bytes\": 1792, \"lower_bound\": 1792"},
        {"x=2,y=4", "64x64", "x,_ + sum{y}", "x,_", "\"bytes\": 12288, \"lower_bound\": null"},
        {"x=2,y=4", "64x64", "x,_ + sum{y}", "(x,y),_", "\"bytes\": 6144, \"lower_bound\": null"},
        {"x=2,y=4", "64x64", "_,_ + sum{x,y}", "_,_", "\"bytes\": 28672, \"lower_bound\": null"},
        {"x=2,y=4", "64x64", "_,_ + sum{x,y}", "x,_", "\"bytes\": 20480, \"lower_bound\": null"},
        {"x=2,y=4", "64x64", "_,_ + sum{x}", "(y,x),_", "\"bytes\": 2048, \"lower_bound\": null"},
        {"x=2,y=4,z=2", "64x64", "x,_ + sum{y}", "x,_", "\"bytes\": 10240, \"lower_bound\": null"},
        /* uneven, empty shards, maxima, to partial */
        {"x=3,y=5", "7x4", "(x,y),_", "_,(y,x)", "\"checked\": true"},
        {"x=3", "5x2", "_,_ + max{x}", "_,x", "\"checked\": true"},
        {"x=2,y=3", "7", "x", "_ + sum{y}", "\"checked\": true"},
        {"model=8", "12x4", "model*2,_", "_,model:(2)2", "\"checked\": true"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[512];
        snprintf(line, sizeof line, "reshard --shape %s --mesh %s --from '%s' --to '%s' --run --json 2>&2",
                 rows[i].shape, rows[i].mesh, rows[i].from, rows[i].to);
        expect(line, 0, rows[i].says);
        expect(line, 0, "\"checked\": true");
    }
    expect("reshard --shape 64x64 --dtype bf16 --mesh x=2,y=4 --from '_,_ + sum{x,y}' --to 'x,_' --run --json", 0,
           "\"bytes\": 10240");
}

/* A plan does not visit ranks: these would take minutes. */
static void test_plans_of_many_ranks(void **state)
{
    expect("reshard --shape 2147483659x100000007 --mesh x=2147483647 --from x,_ --to _,x", 0, "all_to_all");
    expect("reshard --shape 640000000x3 --mesh x=2000000000 --from 'x*64,_' --to x,_", 0, "exchange");
    expect("einsum 'ab,bc->ac' --shape a=1000003,b=999983,c=777777 --mesh x=44711,y=44701 --in x,y --in y,x --out x,y",
           0, "reduce_scatter");
}

static void test_reshard_refusals(void **state)
{
    expect("reshard --shape 64x64 --mesh x=2 --from 'x,q' --to '_,_'", 2, "    ^");
    expect("reshard --shape 64x64 --mesh x=2 --from 'x,x' --to '_,_'", 2, "used twice");
    expect("reshard --shape 64x64 --mesh x=2 --from 'x' --to '_,_'", 2, "--from");
    expect("reshard --shape 64y --mesh x=2 --from '_' --to '_'", 2, "joined by x");
    expect("reshard --shape 64 --mesh x=0 --from '_' --to '_'", 2, "x");
    expect("reshard --shape 64 --mesh x=2 --from 'x*3' --to '_'", 2, "");
    expect("reshard --shape 64 --mesh x=2 --from '_'", 2, "--to");
    expect("reshard --shape 64 --dtype f99 --mesh x=2 --from '_' --to '_'", 2, "f32");
}

static void test_einsum(void **state)
{
    /* outer dimensions split: nothing moves */
    expect("einsum 'ik,kj->ij' --shape i=64,k=32,j=48 --mesh X=2,Y=2 --in 'X,_' --in '_,Y' --out 'X,Y' --run --json", 0,
           "\"bytes\": 0, \"lower_bound\": null, \"checked\": true");
    /* contracted axes match, and operands larger than the result: partial sums, reduced */
    expect(
        "einsum 'ik,kj->ij' --shape i=8,k=512,j=8 --mesh X=2 --in '_,X' --in 'X,_' --out '_,_' --run --json", 0,
        "{\"steps\": [{\"op\": \"dot_general\", \"axes\": [\"X\"], \"bytes\": 0, \"cause\": \"the product itself\"}, "
        "{\"op\": \"all_reduce\", \"axes\": [\"X\"], \"bytes\": 256, \"cause\": \"output c is stated as whole on every "
        "rank\"}], \"bytes\": 256");
    /* the same into a split result: reduce_scatter, half the bytes */
    expect("einsum 'ik,kj->ij' --shape i=8,k=512,j=8 --mesh X=2 --in '_,X' --in 'X,_' --out 'X,_' --run --json", 0,
           "reduce_scatter\", \"axes\": [\"X\"], \"bytes\": 128");
    expect("einsum 'bik,bkj->bij' --shape b=3,i=5,k=7,j=4 --mesh X=2,Y=3 --in 'X,_,Y' --in '_,Y,X' --out '_,Y,_' --run "
           "--json",
           0, "\"checked\": true");
    expect("einsum 'i,i->' --shape i=9 --mesh X=4 --in X --in _ --out '' --run --json", 0, "\"checked\": true");
    expect("einsum 'ik,kj->ij' --shape i=5,k=6,j=7 --mesh X=3 --dtype bf16 --in 'X,_' --in '_,X' --out '_,_' --run", 0,
           "checked");
    /* uneven cuts: extents of 1 and of 0 on some ranks only, where an operand is packed */
    expect("einsum 'abcd,pcqba->pqd' --shape a=3,b=3,c=4,d=5,p=4,q=9 --mesh y=5,z=3 --in '_,_,_,_' --in 'z,_,y,_,_' "
           "--out 'z,y,_' --dtype f64 --run",
           0, "checked");
    expect("einsum 'bqkgd,bkgqt->btkd' --shape b=16,q=64,k=1,g=64,d=64,t=3 --mesh x=2 --in '_,_,_,_,_' --in "
           "'_,_,_,_,x' --out '_,x,_,_' --run",
           0, "checked");
}

/* Why each step, and what else there was: dimensions by their letters, prices by bytes. */
static void test_einsum_explain(void **state)
{
    const char *product = "einsum 'ik,kj->ij' --shape i=512,k=64,j=1024 --mesh X=4 --in '_,X' --in '_,_' --out '_,_'";
    char command[512];
    snprintf(command, sizeof command, "%s --explain --json", product);
    expect(command, 0, "input a is stated as split by k over X; input b is stated as whole on every rank");
    expect(command, 0, "\"split\": \"nothing (every rank does all of it)\", \"bytes\": 98304");
    expect(command, 0, "\"verdict\": \"chosen\"");
    expect(command, 0, "\"why\": \"cost: 1.4 MiB more moved");
    expect(command, 0, "\"considered\": 4, \"listed\": 4}");
    snprintf(command, sizeof command, "%s --explain", product);
    expect(command, 0, "i over X");
    expect(product, 0, "all_gather   X     96.0 KiB (98304)\n");
}

static void test_einsum_refusals(void **state)
{
    expect("einsum 'ik;kj->ij' --shape i=1,k=1,j=1 --mesh X=2 --in '_,_' --in '_,_' --out '_,_'", 2, "ik,kj->ij");
    expect("einsum 'ik,kj->ij' --shape i=1,k=1 --mesh X=2 --in '_,_' --in '_,_' --out '_,_'", 2, "no size for 'j'");
    expect("einsum 'ik,kj->ij' --shape i=1,k=1,j=1 --mesh X=2 --in '_,_' --out '_,_'", 2, "give it twice");
    expect("einsum 'ik,kj->ij' --shape i=1,k=1,j=1 --mesh X=2 --in '_,_' --in '_,Z' --out '_,_'", 2, "second");
    expect("einsum 'ik,kj->ij' --shape i=1,k=1,j=1,i=2 --mesh X=2 --in '_,_' --in '_,_' --out '_,_'", 2,
           "'i' has two sizes");
    expect("einsum 'ik,kj->ij' --shape i=8,k=8,j=8,z=3 --mesh X=2 --in X,_ --in _,_ --out X,_", 2,
           "--shape has a size for 'z', which 'ik,kj->ij' lacks");
    expect("einsum 'ik,kj->ij' --shape i=1,k=1,j=1 --mesh ' ' --in '_,_' --in '_,_' --out '_,_'", 2, "--mesh is empty");
    expect("reshard --shape 4 --mesh '' --from _ --to _", 2, "--mesh is empty");
    expect("plan --block gpt --mesh=", 2, "--mesh is empty");
    expect("einsum 'ii,kj->ij' --shape i=1,k=1,j=1 --mesh X=2 --in '_,_' --in '_,_' --out '_,_'", 2, "twice");
}

/* ---- training and generating ---- */

static void test_train_and_generate(void **state)
{
    static char first[CLI_OUTPUT], other[CLI_OUTPUT];
    expect(
        "train --text {d}/text --out {d}/one --layers 2 --hidden 40 --heads 5 --ffn 50 --seq 24 --batch 3 --steps 12",
        0, "checkpoint");
    expect(
        "train --text {d}/text --out {d}/two --layers 2 --hidden 40 --heads 5 --ffn 50 --seq 24 --batch 3 --steps 12 "
        "-tp 2 --sp --json",
        0, "\"overlapped_share\": 0.0,");
    /* the same overlapped with ops, which hide some of it */
    assert_int_equal(run(first, "train --text {d}/text --out {d}/beside --layers 2 --hidden 40 --heads 5 --ffn 50 "
                                "--seq 24 --batch 3 --steps 12 -tp 2 --sp --overlap --json --hardware h100-nvlink-ib"),
                     0);
    assert_non_null(strstr(first, "\"comm_share\": "));
    assert_non_null(strstr(first, "\"overlapped_share\": "));
    assert_null(strstr(first, "\"overlapped_share\": 0.0,"));
    assert_non_null(strstr(first, "\"predicted_overlapped_share\": "));
    cli_shell("cmp {d}/two/model.safetensors {d}/beside/model.safetensors");
    expect("train --text {d}/text --out {d}/mesh --layers 1 --hidden 24 --heads 6 --kv-heads 2 --seq 16 --batch 5 "
           "--steps 2 --mesh data=2,model=3",
           0, "all_reduce");
    assert_int_equal(run(first, "generate -m {d}/one -p 'the layout' -n 24 --temp 0 2>&2"), 0);
    for (int tp = 2; tp <= 7; tp++) {
        char line[256];
        snprintf(line, sizeof line, "generate -m {d}/one -p 'the layout' -n 24 --temp 0 -tp %d 2>&2", tp);
        assert_int_equal(run(other, line), 0);
        assert_string_equal(first, other);
    }
    assert_int_equal(run(other, "generate -m {d}/two -p 'the layout' -n 24 --temp 0 2>&2"), 0);
    expect("generate -m {d}/one -p 'x' -n 8 --temp 1 --top-k 5 --top-p 0.9 -s 3 -tp 2 --dtype bf16", 0, "tokens/s");
    expect("generate -m {d}/one -p \"$(printf '\\377\\001')\" -n 2", 0, "tokens/s");
}

static void test_train_refusals(void **state)
{
    expect("train --text {d}/text --out {d} --steps 1", 2, "exists already");
    expect("train --text {d}/nothing --out {d}/x --steps 1", 2, "nothing");
    expect("train --text {d}/empty --out {d}/x --steps 1", 2, "empty");
    expect("train --text {d}/short --out {d}/x --steps 1", 2, "");
    expect("train --text {d}/text --out {d}/x --heads 7 --hidden 40", 2, "");
    expect("train --text {d}/text --out {d}/x --heads 6 --kv-heads 4 --hidden 36", 2, "");
    expect("train --text {d}/text --out {d}/x --steps 0", 2, "--steps");
    expect("train --text {d}/text --out {d}/x -tp 2 --mesh model=2", 2, "cannot be combined with --mesh");
    expect("train --text {d}/text --out {d}/no/such/folder --steps 1 --seq 8", 2, "No such file");
    expect("train --out {d}/x", 2, "--text");
}

/* A folder whose name just fits, so that the files in it cannot be named: nothing may be written under names cut short.
 */
static void test_too_long_paths(void **state)
{
    enum { MOST = 4095 - 9 }; /* with "/metrics." as long as a path may be */
    char path[MOST + 1], line[MOST + 256];
    size_t n = (size_t)snprintf(path, sizeof path, "%s", cli_folder());
    while (n + 200 < MOST) {
        n += (size_t)snprintf(path + n, sizeof path - n, "/%0100d", 0);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    snprintf(path + n, sizeof path - n, "/%0*d", (int)(MOST - n - 1), 1);
    assert_int_equal(strlen(path), MOST);
    snprintf(line, sizeof line, "train --text {d}/text --out %s --layers 1 --hidden 8 --heads 1 --seq 8 --steps 1",
             path);
    expect(line, 1, "File name too long");
    path[n] = '\0';
    assert_int_equal(rmdir(path), 0); /* nothing is left in it */
}

/* What it does when nothing is said: the sizes that its help names. */
static void test_bench_gemm_defaults(void **state)
{
    cli_expect(0, "\"m\": 1024, \"n\": 1024, \"k\": 1024, \"dtype\": \"f32\", \"threads\": 1, \"median_ms\": ",
               "bench gemm --json");
    const char *const help[] = {"rows of A and C (1024)",         "columns of B and C (1024)",
                                "columns of A, rows of B (1024)", "of all three matrices (f32)",
                                "threads of the rank (1)",        "timed runs (20)"};
    for (size_t i = 0; i < sizeof help / sizeof help[0]; i++)
        cli_expect(0, help[i], "bench gemm --help");
    cli_expect(0, "\"m\": 5, \"n\": 6, \"k\": 7, \"dtype\": \"bf16\"",
               "bench gemm --m 5 --n 6 --k 7 --dtype bf16 --trans-a --trans-b --repeat 2 --json");
    cli_expect(0, "\"dtype\": \"bf16\", \"c_dtype\": \"f32\", \"accumulate\": true",
               "bench gemm --m 5 --n 6 --k 7 --dtype bf16 --c-dtype f32 --accumulate --repeat 2 --json");
    cli_expect(0, "\"c_dtype\": \"f32\"", "bench gemm --m 5 --n 6 --k 70 --dtype f16 --c-dtype f32 --repeat 2 --json");
    cli_expect(2, "f32", "bench gemm --m 5 --n 6 --k 7 --dtype bf16 --c-dtype f64");
}

static void test_generate_refusals(void **state)
{
    expect("generate -m {d}/nothing -p x", 2, "nothing");
    expect("generate -m {d}/one -p ''", 2, "empty");
    expect("generate -m {d}/one -p x --temp -1", 2, "--temp");
    expect("generate -m {d}/one -p xyz -c 2 -n 5", 2, "a prompt of 3 tokens; the context holds 2");
    expect("generate -m {d}/one -p x -c 3 -n 50", 0, "the context is full");
    expect("generate -m {d}/one -n 5", 2, "-f FILE");
    expect("generate -m {d}/one -p x -f {d}/text -n 5", 2, "-f FILE");
    expect("generate -m {d}/one -p x --stop '' -n 5", 2, "--stop");
    expect("generate -m {d}/one -p x --min-p 2 -n 5", 2, "--min-p");
    expect("generate -m {d}/broken -p x", 1, "model.safetensors");
}

/* The last number after "loss": in the metrics of a run. */
static double last_loss(const char *run)
{
    char path[4096], line[512];
    double loss = -1;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", cli_folder(), run);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strstr(line, "\"loss\":"))
            loss = atof(strstr(line, "\"loss\":") + 7);
    fclose(f);
    return loss;
}

static void test_tokenize(void **state)
{
    static char ids[CLI_OUTPUT];
    char arguments[8192], model[2048];
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(model, sizeof model, "%s/tests/golden/tokenizer/llama3", source ? source : ".");
    snprintf(arguments, sizeof arguments, "tokenize -m %s -p 'the layout of it' --json", model);
    assert_int_equal(run(ids, arguments), 0);
    assert_memory_equal(ids, "[0, ", 4); /* the template's first token */
    ids[strlen(ids) - 1] = '\0';
    snprintf(arguments, sizeof arguments, "tokenize -m %s -p '%.2000s' --decode", model, ids);
    expect(arguments, 0, "the layout of it\n");
    snprintf(arguments, sizeof arguments, "tokenize -m %s -p '1 x' --decode", model);
    expect(arguments, 2, "'x' is no token id; valid: whole numbers");
    snprintf(arguments, sizeof arguments, "tokenize -m %s -p '99999' --decode", model);
    expect(arguments, 0, "\ncleave tokenize: note: 1 of the ids has no token, and reads as nothing: 99999");
    snprintf(arguments, sizeof arguments, "tokenize -m %s -p '-1' --decode", model);
    expect(arguments, 2, "-1 is no token id; valid: 0 to 4294967295");
    expect("tokenize -m {d}/nothing -p x", 2, "nothing");
    /* what cannot be read is not an empty text */
    cli_expect(1, "standard input: a folder; valid: a file, a pipe", "tokenize -m {g}/tokenizer/llama3 < {d}");
    cli_expect(1, "standard input: cannot open: Bad file", "tokenize -m {g}/tokenizer/llama3 <&-");
    cli_expect(2, "-p TEXT and -f FILE are both given", "generate -m {g}/llama -p a -f {g}/llama/config.json");
}

/* Rounding alone tells meshes apart; asked for less than rounding, it names a tensor. */
static void test_verify(void **state)
{
    char arguments[4096];
    const char *source = getenv("CLV_SOURCE_DIR");
    source = source ? source : ".";
    snprintf(arguments, sizeof arguments, "verify -m %s/tests/golden/llama --tp 1,2,3,5 --seq 7 2>&2", source);
    expect(arguments, 0, "model=5");
    snprintf(arguments, sizeof arguments,
             "verify -m %s/tests/golden/gpt2 --mesh X=1,Y=1 --mesh X=2,Y=3 --rules gspmd-2d --seq 7 --json 2>&2",
             source);
    expect(arguments, 0, "\"first_divergence\": \"none\"");
    snprintf(arguments, sizeof arguments, "verify -m %s/tests/golden/llama --tp 1,2 --tolerance 1e-12 --seq 7 2>&2",
             source);
    expect(arguments, 1, "#");
    snprintf(arguments, sizeof arguments, "verify -m %s/tests/golden/llama --seq 100000", source);
    expect(arguments, 2, "the model takes 2 to");
    snprintf(arguments, sizeof arguments, "verify -m %s/tests/golden/bert_bare --tp 1,3 --seq 7 2>&2", source);
    expect(arguments, 0, "model=3");
}

/* One mesh alone is no comparison: it is measured by one rank, which has no other measure. */
static void test_verify_alone(void **state)
{
    cli_expect(0, "\"mesh\": \"model=1\"", "verify -m {g}/llama --tp 3 --seq 5 --json");
    cli_expect(0, "\"mesh\": \"model=3\"", "verify -m {g}/llama --tp 3,3 --seq 5 --json");
    cli_expect(1, "\"first_divergence\": \"layers.", "verify -m {g}/llama --tp 3 --seq 5 --tolerance 1e-12 --json");
    cli_expect(0, "\"mesh\": \"X=1,Y=1\"", "verify -m {g}/llama --mesh X=2,Y=2 --rules gspmd-2d --seq 5 --json");
    cli_expect(2, "nothing to be compared with", "verify -m {g}/llama --tp 1");
    cli_expect(2, "nothing to be compared with", "verify -m {g}/llama --tp 1,1");
    cli_expect(2, "nothing to be compared with", "verify -m {g}/llama --mesh X=1,Y=1 --rules gspmd-2d");
}

static void test_verify_degrees(void **state)
{
    static const char *const wrong[] = {"1,,2", "0",  "'1 2'", "1K", "-1",
                                        "1,",   ",1", "''",    "+1", "9999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cli_expect(2, "integers from 1 to 100000 such as 1,2,4, not '", "verify -m {g}/llama --tp=%s", wrong[i]);
}

/* Against what transformers gave, and against another model's. */
static void test_verify_against(void **state)
{
    static const char *const models[] = {"llama", "gpt2", "esm", "bert", "qwen2_window"};
    char arguments[4096];
    const char *source = getenv("CLV_SOURCE_DIR");
    source = source ? source : ".";
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        snprintf(arguments, sizeof arguments,
                 "verify -m %s/tests/golden/%s --tp 1,2,3 --against %s/tests/golden/%s_golden/values.safetensors 2>&2",
                 source, models[i], source, models[i]);
        expect(arguments, 0, "model=3");
    }
    snprintf(arguments, sizeof arguments,
             "verify -m %s/tests/golden/llama --tp 2 --against %s/tests/golden/llama_bias_golden/values.safetensors "
             "--json 2>&2",
             source, source);
    expect(arguments, 1, "\"first_divergence\": \"lo");
    snprintf(arguments, sizeof arguments,
             "verify -m %s/tests/golden/llama --tp 1 --against %s/tests/golden/llama/model.safetensors", source,
             source);
    expect(arguments, 1, "no tensor named \"ids\"");
}

/* Meshes of up to eight ranks, by every preset, train to one rank's losses; greedy text is the same on any of them. */
static void test_meshes(void **state)
{
    static const char *const layouts[] = {"-tp 1",
                                          "--mesh X=2,Y=2 --rules gspmd-2d",
                                          "--mesh X=4,Y=2 --rules gspmd-2d",
                                          "--mesh X=2,Y=4 --rules gspmd-2d",
                                          "--mesh data=2,model=2",
                                          "--mesh data=2,model=3 --rules fsdp+megatron-sp",
                                          "--mesh data=3 --rules fsdp",
                                          "--mesh data=2,model=2 --rules zero1"};
    static char out[CLI_OUTPUT], first[CLI_OUTPUT];
    double alone = 0;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char arguments[512], run_name[32];
        snprintf(run_name, sizeof run_name, "mesh%zu", i);
        snprintf(arguments, sizeof arguments,
                 "train --text {d}/text --layers 2 --hidden 40 --heads 5 --seq 24 --batch 6 --steps 6 %s --out {d}/%s",
                 layouts[i], run_name);
        expect(arguments, 0, "checkpoint");
        double loss = last_loss(run_name);
        alone = i == 0 ? loss : alone;
        if (!(loss > 0 && loss - alone < 2e-5 && alone - loss < 2e-5))
            fail_msg("%s: loss %.6f, one rank's is %.6f", layouts[i], loss, alone);
        if (strstr(layouts[i], "zero1"))
            continue;
        snprintf(arguments, sizeof arguments, "generate -m {d}/mesh0 -p 'the lay' -n 16 --temp 0 %s 2>&2", layouts[i]);
        assert_int_equal(run(i == 0 ? first : out, arguments), 0);
        if (i > 0)
            assert_string_equal(out, first);
    }
    expect("train --text {d}/text --out {d}/y --steps 1 --mesh X=2,Y=2", 2, "presets that fit: gspmd-2d");
    expect("train --text {d}/text --out {d}/y --steps 1 -tp 2 --rules gspmd-2d", 2, "megatron");
}

static void test_bench_block(void **state)
{
    expect("bench block --hidden 32 --layers 2 --heads 4 --ffn 64 --gated --batch 2 --seq 16 -tp 2 --train --json "
           "--iterations 2",
           0, "\"overlapped_ms\": 0.0, \"overlapped_share\": 0.0,");
    expect("bench block --hidden 32 --layers 2 --heads 4 --ffn 64 --batch 2 --seq 16 -tp 2 --overlap --iterations 1 "
           "--hardware h100-nvlink-ib",
           0, "predicted_overlapped_share");
    expect("bench block --hidden 30 --layers 1 --heads 3 --ffn 64 --batch 2 --seq 16 -tp 2 --sp --dtype bf16 "
           "--iterations 2",
           0, "gflops");
    expect("bench block --hidden 32 --layers 1 --heads 4 --ffn 64 --batch 2 --seq 16 -tp 2 --program", 0,
           "all_reduce{");
    expect("bench block --hidden 30 --heads 4 --iterations 1", 2, "multiple of 4 heads");
}

/* What a step waits for, and what it can take at the least. */
static void test_bench_block_parts(void **state)
{
    static const char *const says[] = {"\"ops\": [{\"op\": \"",
                                       "\"op\": \"all_reduce\", \"calls\": 4.0, \"ms\": ",
                                       "\"op\": \"dot_general\", \"calls\": ",
                                       "\"waiting_ms\": ",
                                       "\"stealing_ms\": ",
                                       "\"step_over_products\": ",
                                       "{\"batch\": 1, \"m\": 32, \"n\": 32, \"k\": 32, \"calls\": "};
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++)
        expect("bench block --hidden 32 --layers 1 --heads 4 --ffn 64 --batch 2 --seq 16 -tp 2 --train --products "
               "--json --iterations 2",
               0, says[i]);
    expect("bench block --hidden 32 --layers 1 --program --products", 2, "--products");
    expect("bench block --hidden 32 --layers 1 --heads 4 --ffn 64 --seq 8 --iterations 1 --trace-out {d}/t.json", 0,
           "dot_general");
    expect("trace {d}/t.json --json", 0, "\"ops\": [{\"op\": ");
}

/* llama-bench's table, also without the name of a command. */
static void test_bench_model(void **state)
{
    static const char *const commands[] = {"bench", "bench model"};
    for (int i = 0; i < 2; i++) {
        cli_expect(0, "| llama ", "%s -m {g}/llama -p 8 -n 4 -r 2 -tp 2", commands[i]);
        cli_expect(0, "|       2 |             tg4 |", "%s -m {g}/llama -p 8 -n 4 -r 2 -tp 2 --wide", commands[i]);
        cli_expect(0, "| threads | test | ", "%s -m {g}/llama -p 8 -n 4 -r 2 -tp 2", commands[i]);
        cli_expect(0, "\"test\": \"pp8\", \"avg_ts\": ", "%s -m {g}/llama -p 8 -n 0 -r 1 -o json", commands[i]);
        cli_expect(0, "\"test\": \"pp8\", \"avg_ts\": ", "%s -m {g}/llama -p 8 -n 0 -r 1 --json", commands[i]);
        cli_expect(2, "--json cannot be combined with -o", "%s -m {g}/llama -p 8 --json -o csv", commands[i]);
        cli_expect(0, "model,size,params,backend,threads,test,avg_ts,stddev_ts,median_ts",
                   "%s -m {g}/llama -p 0 -n 4 -r 1 -b 2 -o csv", commands[i]);
        cli_expect(1, "multiple of 32", "%s -m {g}/llama -p 8 -n 4 -r 1 --quant q8", commands[i]);
        cli_expect(2, "nothing to test", "%s -m {g}/llama -p 0 -n 0", commands[i]);
        cli_expect(2, "-m", "%s -p 8", commands[i]);
    }
    cli_expect(2, "unknown option '--nonsense'", "bench --nonsense");
    cli_expect(0, "first_token_s", "bench generate -m {g}/llama -p 8 -n 2 -r 1");
    cli_expect(0, "\"op\": \"attention\", \"calls\"", "bench generate -m {g}/llama -p 8 -n 2 -r 1 --ops --json");
}

static void test_bench_forward(void **state)
{
    cli_expect(0, "\"median_ms\": ", "bench forward -m {g}/esm --batch 2 --seq 9 -tp 2 --iterations 2 --json");
    cli_expect(0, "\"median_ms\": ", "bench forward -m {g}/esm --batch 2 --seq 9 -tp 2 --sp --iterations 2 --json");
    cli_expect(2, "1 to 48", "bench forward -m {g}/gpt2 --seq 100000 --iterations 1");
}

static void test_bench_allreduce(void **state)
{
    expect("bench allreduce -tp 3 --bytes 16,100K --json", 0, "{\"bytes\": 102400, \"median_us\": ");
    expect("bench allreduce --bytes 3", 2, "at least 4");
    expect("bench allreduce -tp 1", 2, "-tp");
}

static void write_file(const char *name, const char *content, int times)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", cli_folder(), name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < times; i++)
        fputs(content, f);
    fclose(f);
}

static int set_up(void **state)
{
    write_file("text", "the layout of a tensor says where each part lives on the mesh; a partial one adds up. ", 40);
    write_file("empty", "", 1);
    write_file("short", "short", 1);
    return 0;
}

/* A checkpoint with truncated weights. */
static void write_text(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", cli_folder(), name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Prompts side by side give what each gives alone, in their order, however many share a batch; sampled ones too. */
static void test_batches(void **state)
{
    static const char *const prompts[] = {"the layout of a tensor", "a", "each rank holds", "of the mesh, by rules",
                                          "xy"};
    enum { N = sizeof prompts / sizeof *prompts };
    static char whole[CLI_OUTPUT], other[CLI_OUTPUT], alone[CLI_OUTPUT];
    char lines[512] = "";
    expect("train --text {d}/text --out {d}/b --layers 2 --hidden 40 --heads 5 --ffn 50 --seq 48 --batch 3 --steps 12",
           0, "checkpoint");
    for (int i = 0; i < N; i++)
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s%s", i > 0 ? "\n" : "", prompts[i]);
    write_text("prompts", lines);
    assert_int_equal(run(whole, "generate -m {d}/b -f {d}/prompts -n 20 --temp 0 -b 3 2>&2"), 0);
    const char *at = whole;
    for (int i = 0; i < N; i++) {
        char line[256];
        snprintf(line, sizeof line, "generate -m {d}/b -p '%s' -n 20 --temp 0 2>&2", prompts[i]);
        assert_int_equal(run(alone, line), 0);
        assert_memory_equal(at, alone, strlen(alone));
        at += strlen(alone);
    }
    assert_int_equal(*at, '\0');
    assert_int_equal(run(other, "generate -m {d}/b -f {d}/prompts -n 20 --temp 0 -b 5 -tp 3 2>&2"), 0);
    assert_string_equal(other, whole);
    assert_int_equal(run(whole, "generate -m {d}/b -f {d}/prompts -n 20 --temp 1 --min-p 0.01 -s 3 -b 1 2>&2"), 0);
    assert_int_equal(run(other, "generate -m {d}/b -f {d}/prompts -n 20 --temp 1 --min-p 0.01 -s 3 -b 4 -tp 2 2>&2"),
                     0);
    assert_string_equal(other, whole);
    assert_int_equal(run(other, "generate -m {d}/b -f {d}/prompts -n 20 --temp 0 --repeat-penalty 1.5 2>&2"), 0);
    assert_string_not_equal(other, whole);
    expect("generate -m {d}/b -f {d}/prompts -n 3 --temp 0 --json 2>&2", 0, "\"prompt\": \"a\", \"text\": \"");
    expect("generate -m {d}/b -f {d}/prompts -n 3 --temp 0 -c 8", 2, "a prompt of 22 tokens; the context holds 8");
}

/* A text ends before --stop, wherever that begins in it. */
static void test_stop(void **state)
{
    static char whole[CLI_OUTPUT], cut[CLI_OUTPUT];
    char line[256], stop[4];
    assert_int_equal(run(whole, "generate -m {d}/b -p ab -n 20 --temp 0 2>&2"), 0);
    snprintf(stop, sizeof stop, "%.3s", whole + 8);
    assert_true(strlen(whole) > 12 && !strpbrk(stop, "'\n"));
    snprintf(line, sizeof line, "generate -m {d}/b -p ab -n 20 --temp 0 --stop '%s' --stop 'no such text' 2>&2", stop);
    assert_int_equal(run(cut, line), 0);
    *strstr(whole + 2, stop) = '\0';
    cut[strlen(cut) - 1] = '\0';
    assert_string_equal(cut, whole);
}

static void test_corrupt_checkpoint(void **state)
{
    char line[4096];
    snprintf(line, sizeof line,
             "mkdir -p %s/broken && cp %s/one/config.json %s/broken/ && head -c 3000 %s/one/model.safetensors > "
             "%s/broken/model.safetensors",
             cli_folder(), cli_folder(), cli_folder(), cli_folder(), cli_folder());
    assert_int_equal(system(line), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshard_oracle),
        cmocka_unit_test(test_reshard_refusals),
        cmocka_unit_test(test_plans_of_many_ranks),
        cmocka_unit_test(test_einsum),
        cmocka_unit_test(test_einsum_explain),
        cmocka_unit_test(test_einsum_refusals),
        cmocka_unit_test(test_train_and_generate),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_corrupt_checkpoint),
        cmocka_unit_test(test_train_refusals),
        cmocka_unit_test(test_too_long_paths),
        cmocka_unit_test(test_bench_gemm_defaults),
        cmocka_unit_test(test_generate_refusals),
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_verify_alone),
        cmocka_unit_test(test_verify_degrees),
        cmocka_unit_test(test_verify_against),
        cmocka_unit_test(test_bench_block),
        cmocka_unit_test(test_bench_block_parts),
        cmocka_unit_test(test_bench_model),
        cmocka_unit_test(test_bench_forward),
        cmocka_unit_test(test_bench_allreduce),
    };
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
