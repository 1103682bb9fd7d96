/* test_cli_train_mlm.c - train on what is masked: proteins with masks that are the same on every mesh and after a
 * break, validation by masks that stay, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli_run.h"
#include "unit_test.h"

#define ESM "train -m {d}/esm --lr 0.01 --warmup 0 --seq 24 --batch 3"

static int make_files(void **state)
{
    cli_shell("mkdir {d}/esm && cp {g}/esm/* {g}/tokenizer/esm_vocab/vocab.txt {d}/esm");
    cli_shell("for i in $(seq 40); do echo \">p$i of many\"; echo MKTAYIAKQRQISFVKSHFSRQ | cut -c 1-$((i %% 20 + 2)); "
              "echo lleeRLGLIEVQAPILSRVGD | cut -c $((i %% 7 + 1))-; done >{d}/p.fasta; echo '>none' >>{d}/p.fasta");
    return 0;
}

/* ---- proteins ---- */

static void losses_of(const char *run)
{
    cli_shell("sed 's/.*\"loss\":\\([^,]*\\),.*/\\1/' {d}/%s/metrics.jsonl >{d}/%s.losses", run, run);
}

static void test_meshes_and_resume(void **state)
{
    static const char *const meshes[] = {"-tp 2", "-tp 2 --sp", "--mesh data=2", "--mesh data=3 --rules fsdp"};
    cli_expect(0, "", ESM " --data {d}/p.fasta --steps 30 --out {d}/whole");
    losses_of("whole");
    cli_shell("awk '{n++; if (n <= 3) first += $1; if (n > 27) last += $1} END {exit !(n == 30 && last < first - 1)}' "
              "{d}/whole.losses");
    cli_shell("cmp {d}/esm/vocab.txt {d}/whole/vocab.txt");
    for (int i = 0; i < 4; i++) {
        cli_shell("rm -rf {d}/other");
        cli_expect(0, "", ESM " --data {d}/p.fasta --steps 30 --out {d}/other %s", meshes[i]);
        losses_of("other");
        cli_shell("paste {d}/whole.losses {d}/other.losses | awk '{d = $1 - $2; if (!(d * d < 1e-7)) exit 1}'");
    }
    cli_expect(0, "", ESM " --data {d}/p.fasta --steps 30 --save-every 13 --keep-last 3 --out {d}/broken");
    cli_shell(
        "cd {d}/broken && rm -r checkpoints/step-00000026 checkpoints/step-00000030 model.safetensors config.json "
        "&& mv metrics.jsonl metrics.unfinished.jsonl");
    cli_expect(0, "resuming after step 13", ESM " --data {d}/p.fasta --steps 30 --resume --out {d}/broken");
    losses_of("broken");
    cli_shell("cmp {d}/whole.losses {d}/broken.losses && cmp {d}/whole/model.safetensors {d}/broken/model.safetensors");
    cli_expect(2, "--mask-rate is 0.3; the run in",
               ESM " --data {d}/p.fasta --steps 40 --mask-rate 0.3 --resume --out {d}/broken");
    cli_expect(2, "--rows is packed; the run in",
               ESM " --data {d}/p.fasta --steps 40 --rows packed --resume --out {d}/broken");
}

/* A token file of the same proteins is the same data, a document a row; packed it is another. */
static void test_token_file(void **state)
{
    cli_expect(0, "\"documents\": 40", "data --input {d}/p.fasta -m {d}/esm --out {d}/p.bin --json");
    cli_expect(0, "", ESM " --data {d}/p.bin --rows padded --steps 30 --out {d}/of_tokens");
    losses_of("of_tokens");
    cli_shell("cmp {d}/whole.losses {d}/of_tokens.losses");
    cli_expect(0, "", ESM " --data {d}/p.bin --steps 30 --out {d}/packed");
    cli_expect(0, "", ESM " --data {d}/p.fasta --rows packed --steps 30 --out {d}/as_it_is");
    losses_of("packed");
    losses_of("as_it_is");
    cli_shell("cmp {d}/packed.losses {d}/as_it_is.losses && ! cmp -s {d}/packed.losses {d}/whole.losses");
    cli_expect(0, "",
               "train --data {d}/p.fasta --tokenizer {d}/esm --layers 1 --hidden 16 --heads 2 --ffn 32 --seq 24 "
               "--batch 3 --steps 3 --out {d}/decoder"); /* which learns the next residue */
}

/* What is masked of it stays, whatever the step: where nothing is learned, nothing changes. */
static void test_val(void **state)
{
    cli_expect(
        0, "val_perplexity",
        "train -m {d}/esm --lr 1e-9 --seq 24 --batch 7 --data {d}/p.fasta --val {d}/p.fasta --eval-every 1 --steps "
        "4 --out {d}/val");
    cli_shell(
        "sed 's/.*\"val_loss\":\\([^,]*\\),.*/\\1/' {d}/val/metrics.jsonl | "
        "awk 'NR == 1 {first = $1} {d = $1 - first; if (!(d * d < 1e-9)) exit 1} END {exit !(NR == 4 && first > 1)}'");
    losses_of("val");
    cli_shell("test $(sort -u {d}/val.losses | wc -l) = 4");
    cli_expect(0, "", ESM " --data {d}/p.fasta --steps 30 --val {d}/p.bin --eval-every 10 --out {d}/looked_at");
    losses_of("looked_at");
    cli_shell("cmp {d}/whole.losses {d}/looked_at.losses");
}

/* Masks that choose nothing end nothing. */
static void test_nothing_chosen(void **state)
{
    cli_expect(0, "no label counts, and nothing changes",
               "train -m {d}/esm --seq 24 --batch 1 --data {d}/p.fasta --mask-rate 0.02 --steps 12 --out {d}/rare");
    cli_shell("grep -q '\"loss\":null' {d}/rare/metrics.jsonl && grep -q '\"loss\":[0-9]' {d}/rare/metrics.jsonl");
}

static void test_refused(void **state)
{
    static const struct {
        int code;
        const char *says, *options;
    } wrong[] = {
        {2, "bad.fasta:4: b: '*' is no residue", "-m {d}/esm --data {d}/bad.fasta"},
        {2, "none.fasta: holds no document", "-m {d}/esm --data {d}/none.fasta"},
        {2, "none.fasta: holds no document", "-m {d}/esm --data {d}/p.fasta --val {d}/none.fasta"},
        {2, "--mask-rate: the family llama learns the next token", "-m {g}/llama --data {d}/p.bin --mask-rate 0.2"},
        {2, "--mask-rate: the family llama learns the next token", "--data {d}/p.bin --mask-rate 0.2"},
        {2, "--mask-rate", "-m {d}/esm --data {d}/p.bin --mask-rate 1.5"},
        {2, "--mask-rate", "-m {d}/esm --data {d}/p.bin --mask-rate 0"},
        {2, "--rows", "-m {d}/esm --data {d}/p.bin --rows loose"},
        {2, "esm has no tokenizer.json", "-m {g}/esm --data {d}/p.fasta"},
        {2, "has a mask token, and the data has no labels", "-m {g}/bert --data {d}/p.bin"},
        {2, "does not say which id ends a document", "-m {d}/esm --data {d}/endless.bin --rows padded"},
    };
    cli_shell("printf '>a\\nMKV\\n>b\\nMK*V\\n' >{d}/bad.fasta; echo '>a' >{d}/none.fasta; "
              "gzip -c {d}/p.fasta >{d}/p.fasta.gz");
    cli_expect(0, "", "data --input {d}/p.fasta -m {d}/esm --no-special --end '' --out {d}/endless.bin");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char options[512];
        snprintf(options, sizeof options, "train %s --seq 8 --batch 2 --steps 1 --out {d}/never", wrong[i].options);
        cli_expect(wrong[i].code, wrong[i].says, "%s", options);
        cli_shell("test ! -e {d}/never");
    }
}

/* Proteins of nature, where this checkout has them. */
static void test_real_proteins(void **state)
{
    char file[4096], command[8192];
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(file, sizeof file, "%s/../shared/data/some_proteins.fasta", source ? source : ".");
    if (access(file, R_OK) != 0)
        skip();
    snprintf(command, sizeof command,
             "train -m {d}/esm --lr 0.01 --data %s --val %s --seq 60 --batch 4 --steps 40 -tp 2 --out {d}/real --json",
             file, file);
    cli_expect(0, "\"val_perplexity\"", "%s", command);
    cli_shell("sed -n 's/.*\"val_loss\":\\([^,]*\\),.*/\\1/p' {d}/real/metrics.jsonl | awk '{exit !($1 < 3)}'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes_and_resume),
        cmocka_unit_test(test_token_file),
        cmocka_unit_test(test_val),
        cmocka_unit_test(test_nothing_chosen),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_real_proteins),
    };
    return cmocka_run_group_tests(tests, make_files, cli_remove_folder);
}
