/* test_cli_data.c - texts to token files, and train on those: the same losses on every mesh and after a break, and what
 * is refused. */
#include <stdio.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cleave/data.h"
#include "cli_run.h"
#include "must.h"
#include "unit_test.h"

enum { N = 1000, VOCAB = 300 };

#define SMALL "train --layers 1 --hidden 16 --heads 2 --ffn 32 --lr 0.01 --warmup 0"

static const char *in(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", cli_folder(), name);
    return path;
}

/* Ids that one can learn: 0, 7, 14, ... modulo a number. */
static void write_ids(const char *name, int64_t vocab, int n)
{
    clv_error err = {0};
    clv_token_writer *w;
    clv_token_writer_options o = {.size = sizeof o, .vocab = vocab, .end_id = 5};
    must(clv_token_writer_create(&w, in(name), &o, &err), &err);
    for (int32_t i = 0; i < n; i++)
        must(clv_token_writer_add(w, &(int32_t){i * 7 % 211}, NULL, 1, &err), &err);
    must(clv_token_writer_commit(w, &err), &err);
}

static void write_rows(void)
{
    clv_error err = {0};
    clv_checkpoint_writer *w;
    int64_t rows[4][6];
    for (int i = 0; i < 24; i++)
        rows[i / 6][i % 6] = i * 3;
    must(clv_checkpoint_create(&w, in("rows.safetensors"), &err), &err);
    must(clv_checkpoint_add_tensor(w, "ids", CLV_I64, 2, (const int64_t[]){4, 6}, &err), &err);
    must(clv_checkpoint_write(w, 0, NULL, rows, &err), &err);
    must(clv_checkpoint_commit(w, &err), &err);
}

static int make_files(void **state)
{
    write_ids("ids.bin", VOCAB, N);
    write_ids("short.bin", VOCAB, 16);
    write_rows();
    return 0;
}

/* The losses of a run, in a file of their own. */
static void losses_of(const char *run)
{
    cli_shell("grep -o '\"loss\":[0-9.]*' {d}/%s/metrics.jsonl > {d}/%s.losses", run, run);
}

/* Bit for bit where the mesh is the same, by rounding on another. */
static void test_meshes_and_resume(void **state)
{
    cli_expect(0, "", SMALL " --data {d}/ids.bin --seq 16 --batch 3 --steps 30 --out {d}/whole");
    losses_of("whole");
    cli_shell("test $(wc -l < {d}/whole.losses) = 30");
    cli_shell("awk -F: 'NR == 1 {first = $2} END {exit !($2 < first - 1)}' {d}/whole.losses");
    cli_shell("grep -q '\"vocab_size\": *%d' {d}/whole/config.json", VOCAB);
    cli_shell("grep -q '\"eos_token_id\": *5' {d}/whole/config.json");
    cli_shell("test ! -e {d}/whole/tokenizer.json");
    static const char *const meshes[] = {"-tp 2", "--mesh data=2", "--mesh data=3,model=2"};
    for (int i = 0; i < 3; i++) {
        cli_shell("rm -rf {d}/other");
        cli_expect(0, "", SMALL " --data {d}/ids.bin --seq 16 --batch 3 --steps 30 --out {d}/other %s", meshes[i]);
        losses_of("other");
        cli_shell("paste -d: {d}/whole.losses {d}/other.losses | awk -F: '{d = $2 - $4; if (!(d * d < 1e-8)) exit 1}'");
    }
    cli_expect(0, "",
               SMALL
               " --data {d}/ids.bin --seq 16 --batch 3 --steps 30 --save-every 13 --keep-last 3 --out {d}/broken");
    cli_shell(
        "cd {d}/broken && rm -r checkpoints/step-00000026 checkpoints/step-00000030 model.safetensors config.json "
        "&& mv metrics.jsonl metrics.unfinished.jsonl");
    cli_expect(0, "resuming after step 13",
               SMALL " --data {d}/ids.bin --seq 16 --batch 3 --steps 30 --resume --out {d}/broken");
    losses_of("broken");
    cli_shell("cmp {d}/whole.losses {d}/broken.losses");
    cli_expect(2, "--data is",
               SMALL " --data {d}/ids.bin {d}/ids.bin --seq 16 --batch 3 --steps 40 --resume --out {d}/broken");
    cli_expect(2, "--no-shuffle is given; the run in",
               SMALL " --data {d}/ids.bin --no-shuffle --seq 16 --batch 3 --steps 40 --resume --out {d}/broken");
}

/* Row i of all batches is row i mod N: with all of them in each batch, no order matters; their S is the default. */
static void test_rows(void **state)
{
    cli_expect(0, "", SMALL " --data {d}/rows.safetensors --no-shuffle --batch 4 --steps 4 --out {d}/rows");
    cli_expect(0, "", SMALL " --data {d}/rows.safetensors --seq 6 --batch 4 --steps 4 --out {d}/shuffled");
    losses_of("rows");
    losses_of("shuffled");
    cli_shell("paste -d: {d}/rows.losses {d}/shuffled.losses | awk -F: '{d = $2 - $4; if (!(d * d < 1e-8)) exit 1}'");
    cli_expect(2, "rows of 6 ids", SMALL " --data {d}/rows.safetensors --seq 7 --steps 4 --out {d}/never");
}

/* Asking how well it does changes nothing; of what is learned it is the loss of the next step, where a batch is all
 * sequences, also where the last batch of them is not full. */
static void test_val(void **state)
{
    cli_expect(0, "\"val_perplexity\"",
               SMALL " --data {d}/ids.bin --seq 16 --batch 3 --steps 30 --val {d}/ids.bin "
                     "--eval-every 7 --json --out {d}/val");
    losses_of("val");
    cli_shell("cmp {d}/whole.losses {d}/val.losses");
    cli_shell("grep -o '\"step\":[0-9]*.*val_' {d}/val/metrics.jsonl | sed 's/,.*//' | tr '\\n' ' ' | "
              "grep -q '^\"step\":6 \"step\":13 \"step\":20 \"step\":27 \"step\":29 $'");
    for (int tp = 1; tp < 3; tp++) {
        cli_shell("rm -rf {d}/fixed");
        cli_expect(0, "before: validation loss",
                   SMALL " --data {d}/rows.safetensors --no-shuffle --batch 4 --steps 5 --val {d}/rows.safetensors "
                         "--eval-every 1 -tp %d --out {d}/fixed",
                   tp);
        cli_shell("sed 's/.*\"loss\":\\([^,]*\\),.*\"val_loss\":\\([^,]*\\),.*/\\1 \\2/' {d}/fixed/metrics.jsonl | "
                  "awk 'NR > 1 {d = $1 - next_loss; if (!(d * d < 1e-9)) exit 1} {next_loss = $2} END {exit NR != 5}'");
    }
    for (int batch = 3; batch < 5; batch++)
        cli_expect(0, "before",
                   SMALL " --data {d}/ids.bin --val {d}/rows.safetensors --seq 6 --steps 1 --batch %d --json "
                         "--out {d}/of%d 2>{d}/said%d; cat {d}/said%d",
                   batch, batch, batch, batch);
    cli_shell("grep before: {d}/said3 >{d}/said; grep before: {d}/said4 | cmp - {d}/said");
    cli_shell("seq 500 >{d}/text; seq 600 700 >{d}/val_text");
    cli_expect(0, "val_loss_before",
               SMALL " --text {d}/text --val {d}/val_text --seq 16 --batch 7 --steps 2 --out {d}/t");
    cli_expect(2, "--eval-every has no effect without --val",
               SMALL " --text {d}/text --eval-every 2 --seq 16 --steps 2 --out {d}/never");
    cli_expect(2, "short.bin: 16 tokens, one sequence needs 17",
               SMALL " --data {d}/ids.bin --val {d}/short.bin --seq 16 --steps 2 --out {d}/never");
}

/* Texts to a token file, whatever the threads; what is learned of it; and a line that is wrong. */
static void test_made_of_texts(void **state)
{
    cli_shell("for i in $(seq 400); do echo \"{\\\"text\\\": \\\"line $i of many\\\"}\"; done >{d}/l.jsonl");
    cli_expect(0, "\"documents\": 400", "data --input {d}/l.jsonl --out {d}/l.bin --threads 1 --json");
    cli_expect(0, "", "data --input {d}/l.jsonl --out {d}/l3.bin --threads 3");
    cli_shell("cmp {d}/l.bin {d}/l3.bin");
    cli_expect(0, "", SMALL " --data {d}/l.bin --seq 16 --batch 3 --steps 2 --out {d}/of_lines");
    cli_expect(0, "\"vocab\": 420", "data --input {d}/l.jsonl -m {g}/tokenizer/gpt2 --end '' --out {d}/g.bin --json");
    cli_expect(0, "\"end\": null", "data --input {d}/l.jsonl -m {g}/tokenizer/gpt2 --end '' --out {d}/g.bin --json");
    cli_expect(0, "", "data --input {d}/l.jsonl -m {g}/tokenizer/gpt2 --out {d}/g.bin --json"); /* or as it is */
    cli_expect(0, "", SMALL " --data {d}/g.bin --seq 16 --batch 3 --steps 3 --out {d}/made");
    cli_expect(0, "",
               SMALL " --data {d}/l.jsonl --val {d}/l.jsonl --tokenizer {g}/tokenizer/gpt2 --seq 16 --batch 3 "
                     "--steps 3 --out {d}/as_it_is");
    losses_of("made");
    losses_of("as_it_is");
    cli_shell("cmp {d}/made.losses {d}/as_it_is.losses");
    cli_expect(2, "llama has no tokenizer.json",
               "train -m {g}/llama --data {d}/l.jsonl --seq 8 --batch 2 --steps 1 --out {d}/never");
    cli_expect(2, "l.jsonl:1: \"messages\"", SMALL " --data {d}/l.jsonl --chat --seq 16 --steps 3 --out {d}/never");
    cli_shell("sed 7d {d}/l.jsonl | sed '9s/.$//' >{d}/b.jsonl; cp {d}/l.bin {d}/before");
    cli_expect(2, "b.jsonl:9: ", "data --input {d}/b.jsonl --out {d}/l.bin");
    cli_shell("cmp {d}/l.bin {d}/before");
    cli_expect(0, "\"skipped\": 1", "data --input {d}/b.jsonl --skip-bad-lines --out {d}/skipped.bin --json");
    cli_shell("sed 9d {d}/b.jsonl >{d}/without.jsonl");
    cli_expect(0, "\"skipped\": 0", "data --input {d}/without.jsonl --skip-bad-lines --out {d}/without.bin --json");
    cli_shell("cmp {d}/skipped.bin {d}/without.bin");
    cli_expect(0, "note: 1 malformed JSON line was skipped",
               SMALL " --data {d}/b.jsonl --skip-bad-lines --seq 16 --steps 1 --out {d}/skipping");
    cli_expect(2, "--turn has no effect without --chat", "data --input {d}/l.jsonl --turn x --out {d}/l.bin");
    cli_expect(2, "b.jsonl", "data --input {d}/b.jsonl --out {d}/b.jsonl");
}

/* The same text is the same ids, whatever it is called, compressed or not, from a file, a pipe, or standard input. */
static void test_ways_to_read(void **state)
{
    static const char *const ways[] = {"{d}/w.txt",      "{d}/w.JSONL", "{d}/w.dat.gz",         "{d}/w.json",
                                       "- <{d}/w.JSONL", "- <{d}/w.gz", "/dev/stdin <{d}/w.gz", "{d}/w.pipe"};
    cli_shell("cd {d} && mkfifo w.pipe && for i in $(seq 3000); do echo \"{\\\"text\\\": \\\"line $i\\\"}\"; done "
              ">w.JSONL && "
              "cp w.JSONL w.txt && gzip -c w.txt >w.gz && cp w.gz w.dat.gz && "
              "{ printf '\\357\\273\\277[\\r\\n'; sed 's/$/,/' w.txt | sed '$s/,$/]/'; } >w.json");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        cli_shell("test %zu != 7 || { cat {d}/w.gz >{d}/w.pipe & }", i);
        cli_expect(0, "\"documents\": 3000", "data --out {d}/w%zu.bin --json --input %s", i, ways[i]);
        cli_shell("cmp {d}/w0.bin {d}/w%zu.bin", i);
    }
    cli_expect(0, "", SMALL " --data {d}/w0.bin --seq 16 --batch 3 --steps 2 --out {d}/way0");
    cli_expect(0, "", SMALL " --text - --seq 16 --batch 3 --steps 2 --out {d}/way1 <{d}/w.gz");
    cli_expect(0, "", SMALL " --data {d}/w.txt --seq 16 --batch 3 --steps 2 --out {d}/way2");
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "way%d", i);
        losses_of(name);
        cli_shell("cmp {d}/way0.losses {d}/way%d.losses", i);
    }
    cli_shell("cmp {d}/way1/tokenizer.json {d}/way2/tokenizer.json");
    cli_shell("echo '[{\"body\": \"\"}, {}]' >{d}/two.json");
    cli_expect(2, "two.json: element 2: the line: \"body\" is missing",
               "data --input {d}/two.json --field body --out {d}/never");
    cli_expect(1, "standard input: is a token file", "data --input - --out {d}/never <{d}/ids.bin");
}

/* A batch without answers changes no weights, and is no failure; a run that resumes after it ends the same. */
static void test_no_label_counts(void **state)
{
    static const char run[] = SMALL " --data {d}/chat.jsonl --chat --seq 16 --batch 1 --steps 12";
    cli_shell("echo '{\"messages\": [{\"role\": \"user\", \"content\": \"%080d\"}, {\"role\": \"assistant\", "
              "\"content\": \"yes, it is so\"}]}' >{d}/chat.jsonl",
              0);
    char command[512];
    snprintf(command, sizeof command, "%s --save-every 5 --keep-last 3 --out {d}/chat", run);
    char out[CLI_OUTPUT];
    assert_int_equal(cli_run(out, "%s", command), 0);
    assert_non_null(strstr(out, "no label counts, and nothing changes"));
    assert_null(strstr(out, "was suspended during"));
    cli_shell(
        "test $(grep -c '\"loss\":null' {d}/chat/metrics.jsonl) -gt 4 && test $(wc -l < {d}/chat/metrics.jsonl) = 12");
    cli_shell(
        "sed 's/,\"lr\".*//' {d}/chat/metrics.jsonl >{d}/chat.losses; cp {d}/chat/model.safetensors {d}/chat.model");
    cli_shell("cd {d}/chat && rm -r checkpoints/step-00000010 checkpoints/step-00000012 model.safetensors config.json "
              "&& mv metrics.jsonl metrics.unfinished.jsonl");
    snprintf(command, sizeof command, "%s --resume --out {d}/chat", run);
    cli_expect(0, "resuming after step 5", "%s", command);
    cli_shell("sed 's/,\"lr\".*//' {d}/chat/metrics.jsonl | cmp - {d}/chat.losses && cmp {d}/chat/model.safetensors "
              "{d}/chat.model");
}

static void test_refused(void **state)
{
    static const struct {
        int code;
        const char *says, *options;
    } wrong[] = {
        {2, "--data (or --text, the same) is missing", ""},
        {2, "short.bin: 16 tokens, one sequence needs 17", "--data {d}/short.bin --seq 16"},
        {2, "empty", "--data {d}/empty"},
        {2, "no token file", "--data {d}/text.bin"},
        {2, "text.csv: is a table by its name", "--data {d}/text.csv"},
        {2, "text.gz: is compressed by zstd, not text", "--text {d}/text.gz"},
        {2, "raw: has a zero byte: neither text nor a token file", "--data {d}/raw"},
        {2, "nowhere", "--data {d}/nowhere"},
        {2, "damaged", "--data {d}/damaged.bin"},
        {2, "id 210 at", "--data {d}/beyond.bin"},
    };
    cli_shell(": >{d}/empty; seq 9 >{d}/text.bin; seq 9 >{d}/text.csv; printf '\\050\\265\\057\\375 ' >{d}/text.gz; "
              "printf 'a\\000b\\000' >{d}/raw; cp {d}/ids.bin {d}/damaged.bin; "
              "printf x | dd of={d}/damaged.bin bs=1 seek=500 conv=notrunc 2>/dev/null");
    cli_shell("cp {d}/ids.bin {d}/beyond.bin; printf '\\322\\000\\000\\000' | dd of={d}/beyond.bin bs=1 seek=24 "
              "conv=notrunc 2>/dev/null; head -c 24 /dev/zero | dd of={d}/beyond.bin bs=1 seek=40 conv=notrunc "
              "2>/dev/null");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char options[256];
        snprintf(options, sizeof options, SMALL " %s --steps 1 --out {d}/never", wrong[i].options);
        cli_expect(wrong[i].code, wrong[i].says, "%s", options);
        cli_shell("test ! -e {d}/never");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes_and_resume),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_val),
        cmocka_unit_test(test_made_of_texts),
        cmocka_unit_test(test_ways_to_read),
        cmocka_unit_test(test_no_label_counts),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_files, cli_remove_folder);
}
