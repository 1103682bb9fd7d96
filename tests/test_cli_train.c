/* test_cli_train.c - train and its folder: a run that is stopped leaves its metrics and does not block the next one, a
 * folder that is not ours is not touched, a full disk is found first, and the losses that are reported are those of the
 * steps. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli_run.h"
#include "unit_test.h"

static const char small[] = "train --text {d}/text --layers 1 --hidden 16 --heads 2 --ffn 32 --seq 16 --batch 1";

/* The path of a folder's file. Good until the next call. */
static const char *path_of(const char *folder, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", cli_folder(), folder, name);
    return path;
}

static int lines_of(const char *folder, const char *name)
{
    return cli_lines(path_of(folder, name));
}

/* The "loss" of the last of its lines, each of which has one. */
static double last_loss(const char *folder, const char *name)
{
    char line[512];
    double loss = 0;
    FILE *f = fopen(path_of(folder, name), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "\"loss\":");
        assert_non_null(at);
        loss = strtod(at + 7, NULL);
    }
    fclose(f);
    return loss;
}

/* Runs steps in a folder; its summary goes to {d}/summary. */
static pid_t start(const char *folder, const char *steps)
{
    char text[256], out[256], program[512], text_out[256];
    const char *build = getenv("CLV_BUILD_DIR");
    snprintf(program, sizeof program, "%s/cleave", build ? build : "build");
    snprintf(text, sizeof text, "%s/text", cli_folder());
    snprintf(out, sizeof out, "%s/%s", cli_folder(), folder);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    snprintf(text_out, sizeof text_out, "%s/summary", cli_folder());
    if (!freopen("/dev/null", "w", stderr) || !freopen(text_out, "w", stdout))
        _exit(126);
    execl(program, program, "train", "--text", text, "--out", out, "--layers", "1", "--hidden", "16", "--heads", "2",
          "--ffn", "32", "--seq", "16", "--batch", "1", "--steps", steps, "--json", (char *)NULL);
    _exit(127);
}

static void wait_for_lines(const char *folder, const char *name, int n)
{
    for (int i = 0; i < 6000 && lines_of(folder, name) < n; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_true(lines_of(folder, name) >= n);
}

static void kill_run(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_stopped(void **state)
{
    pid_t pid = start("run", "100000000");
    wait_for_lines("run", "metrics.unfinished.jsonl", 3);
    cli_expect(2, "another run is writing to it", "%s --steps 3 --out {d}/run", small);
    kill_run(pid);
    int first = lines_of("run", "metrics.unfinished.jsonl");
    assert_true(first >= 3);
    pid = start("run", "100000000");
    wait_for_lines("run", "metrics.unfinished-1.jsonl", first);
    wait_for_lines("run", "metrics.unfinished.jsonl", 1);
    kill_run(pid);
    assert_int_equal(lines_of("run", "metrics.unfinished-1.jsonl"), first);
    cli_shell("touch {d}/run/model.safetensors.tmp-0"); /* stopped while it wrote weights */
    cli_expect(0, "that run's metrics are in metrics.unfinished-2.jsonl", "%s --steps 3 --out {d}/run", small);
    assert_int_equal(lines_of("run", "metrics.jsonl"), 3);
    assert_int_equal(lines_of("run", "metrics.unfinished-1.jsonl"), first);
    assert_true(lines_of("run", "metrics.unfinished-2.jsonl") >= 1);
    cli_shell("test ! -e {d}/run/metrics.unfinished.jsonl && test ! -e {d}/run/model.safetensors.tmp-0");
    cli_expect(0, "", "generate -m {d}/run -p x -n 2");
    cli_expect(2, "exists already", "%s --steps 3 --out {d}/run", small);
    assert_int_equal(lines_of("run", "metrics.jsonl"), 3);
}

/* A run that fails by itself leaves what a killed one does; one that never made a step leaves nothing. */
static void test_failed(void **state)
{
    cli_expect(2, "is not a number at step",
               "train --text {d}/text --layers 1 --hidden 32 --heads 2 --seq 16 --batch 1 --steps 500 --lr 10 "
               "--weight-decay 1 "
               "--warmup 0 --out {d}/nan");
    assert_true(lines_of("nan", "metrics.unfinished.jsonl") > 0);
    cli_expect(2, "holds the checkpoints of a run", "%s --steps 2 --out {d}/nan",
               small); /* there is something to go on from */
}

static void test_others_folders(void **state)
{
    static const char *const made[] = {
        "mkdir {d}/other",
        "mkdir {d}/other && echo 1 > {d}/other/metrics.jsonl",
        "mkdir {d}/other && echo 1 > {d}/other/metrics.unfinished.jsonl && echo 2 > {d}/other/notes",
        "mkdir {d}/other && echo 1 > {d}/other/metrics.unfinished.jsonl && echo 2 > {d}/other/model.safetensors",
        "mkdir {d}/other && ln -s {d}/text {d}/other/metrics.unfinished.jsonl",
        "echo 1 > {d}/other",
        "ln -s {d}/nothing {d}/other",
    };
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        cli_shell("rm -rf {d}/other {d}/before");
        cli_shell("%s", made[i]);
        cli_shell("cp -a {d}/other {d}/before");
        cli_expect(strncmp(made[i], "ln -s", 5) == 0 ? 1 : 2, "/other: ", "%s --steps 1 --out {d}/other", small);
        cli_shell("test -L {d}/other || diff -r {d}/other {d}/before; test ! -e {d}/nothing");
    }
}

/* Before the training, not after it. */
static void test_full_disk(void **state)
{
    const char *build = getenv("CLV_BUILD_DIR");
    cli_shell("! ( ulimit -f 8; '%s/cleave' %s --steps 1000000000 --out {d}/full ) 2>{d}/said", build ? build : "build",
              small);
    cli_shell("grep -q 'no room for the checkpoint' {d}/said && test ! -e {d}/full");
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The time in which it was stopped is in no figure. One stop may fall between two steps; not all of them. */
static void test_stopped_for_a_while(void **state)
{
    char summary[512], text[4096] = "";
    int status;
    double begin = now();
    pid_t pid = start("while", "2000");
    wait_for_lines("while", "metrics.unfinished.jsonl", 3);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(kill(pid, SIGSTOP), 0);
        nanosleep(&(struct timespec){.tv_nsec = 75000000}, NULL);
        assert_int_equal(kill(pid, SIGCONT), 0);
        nanosleep(&(struct timespec){.tv_nsec = 7000000}, NULL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    double wall = now() - begin;
    snprintf(summary, sizeof summary, "%s/summary", cli_folder());
    FILE *f = fopen(summary, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    const char *at = strstr(text, "\"seconds\": ");
    assert_non_null(at);
    assert_true(strtod(at + 11, NULL) < wall - 0.55);
    cli_shell("grep -q '\"tokens_per_s\":null,\"comm_share\":null,\"overlapped_share\":null' {d}/while/metrics.jsonl");
}

static void test_losses(void **state)
{
    char out[CLI_OUTPUT];
    double last, got = 0, mean = 0;
    assert_int_equal(cli_run(out, "%s --steps 40 --lr 0.01 --out {d}/loss --json 2>&2", small), 0);
    assert_int_equal(lines_of("loss", "metrics.jsonl"), 40);
    last = last_loss("loss", "metrics.jsonl");
    const char *at = strstr(out, "\"loss\": "), *mean_at = strstr(out, "\"mean_loss\": ");
    assert_true(at && mean_at);
    got = strtod(at + 8, NULL);
    mean = strtod(mean_at + 13, NULL);
    assert_true(got - last < 1e-3 && last - got < 1e-3);
    assert_true(mean > 0 && (mean - last > 1e-3 || last - mean > 1e-3));
}

/* ---- going on from a checkpoint ---- */

static void test_resume(void **state)
{
    cli_expect(0, "holds no checkpoint; starting a new run", "%s --steps 4 --save-every 2 --resume --out {d}/on",
               small);
    cli_shell("[ \"$(ls {d}/on/checkpoints | tr '\\n' ' ')\" = 'latest step-00000002 step-00000004 ' ]");
    cli_expect(0, "", "generate -m {d}/on/checkpoints/step-00000002 -p x -n 2");
    cli_expect(2, "holds the checkpoints of a run; --resume goes on with it", "%s --steps 9 --out {d}/on", small);
    /* longer than it was meant to be */
    cli_expect(0, "--steps is 9 from here on; it was 4", "%s --steps 9 --resume --out {d}/on", small);
    assert_int_equal(lines_of("on", "metrics.jsonl"), 9);
    /* it has a checkpoint after its last step, which --save-every did not request */
    cli_expect(0, "resuming after step 9 of 9", "%s --steps 9 --resume --out {d}/on", small);
    cli_expect(2, "--steps 3; the run in", "%s --steps 3 --resume --out {d}/on", small);
    assert_int_equal(lines_of("on", "metrics.jsonl"), 9);
    /* a choice */
    cli_expect(0, "--lr is 0.01 from here on; it was 0.003", "%s --steps 9 --lr 0.01 --resume --out {d}/on", small);
    /* what makes it another run */
    cli_expect(2, "--seed is 7; the run in ", "%s --steps 9 --seed 7 --resume --out {d}/on", small);
    cli_shell("tr a b <{d}/text >{d}/other_text");
    cli_expect(2, "--data is 4",
               "train --text {d}/other_text --layers 1 --hidden 16 --heads 2 --ffn 32 --seq 16 --batch 1 "
               "--steps 9 --resume --out {d}/on");
    cli_expect(2, "hidden 16, this one 32",
               "train --text {d}/text --layers 1 --hidden 32 --heads 2 --ffn 32 --seq 16 "
               "--batch 1 --steps 9 --resume --out {d}/on");
    cli_expect(2, "--batch is 2",
               "train --text {d}/text --layers 1 --hidden 16 --heads 2 --ffn 32 --seq 16 --batch 2 "
               "--steps 9 --resume --out {d}/on");
    assert_int_equal(lines_of("on", "metrics.jsonl"), 9);
    /* what is not its own is not touched with --resume either */
    cli_shell("mkdir {d}/mine && echo 1 >{d}/mine/notes");
    cli_expect(2, "exists already", "%s --steps 3 --resume --out {d}/mine", small);
    cli_shell("mkdir {d}/empty");
    cli_expect(0, "starting a new run", "%s --steps 3 --resume --out {d}/empty", small);
}

/* Who goes on waits a while for one that is being killed. */
static void test_resume_waits(void **state)
{
    pid_t pid = start("late", "100000000");
    wait_for_lines("late", "metrics.unfinished.jsonl", 3);
    cli_shell("(sleep 0.5; kill -9 %d) &", (int)pid);
    cli_expect(0, "starting a new run", "%s --steps 2 --resume --out {d}/late", small);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A checkpoint is a model like any other, its tokenizer included. */
static void test_tokenizer_is_kept(void **state)
{
    cli_expect(0, "", "%s --steps 1 --out {d}/base", small);
    cli_expect(0, "", "train -m {d}/base --text {d}/text --seq 16 --batch 1 --steps 2 --save-every 1 --out {d}/with");
    cli_shell("cmp {d}/base/tokenizer.json {d}/with/checkpoints/step-00000001/tokenizer.json && "
              "cmp {d}/base/tokenizer_config.json {d}/with/checkpoints/step-00000002/tokenizer_config.json && "
              "! ls {d}/with/checkpoints/*/metrics.jsonl");
    cli_expect(0, "resuming after step 2 of 3",
               "train -m {d}/base --text {d}/text --seq 16 --batch 1 --steps 3 --resume --out {d}/with");
}

/* What is damaged is named, and the one before is taken. */
static void test_resume_damaged(void **state)
{
    cli_expect(0, "", "%s --steps 6 --save-every 1 --keep-every 2 --keep-last 1 --out {d}/hurt", small);
    cli_shell("[ \"$(ls {d}/hurt/checkpoints | tr '\\n' ' ')\" = "
              "'latest step-00000002 step-00000004 step-00000006 ' ]");
    cli_shell("mv {d}/hurt/metrics.jsonl {d}/before; head -c 2000 /dev/zero >>"
              "{d}/hurt/checkpoints/step-00000006/optimizer/rank-00000-of-00001.safetensors; "
              "rm {d}/hurt/checkpoints/step-00000004/model.safetensors");
    cli_expect(0, "note: 2 checkpoints are damaged", "%s --steps 6 --resume --out {d}/hurt", small);
    cli_shell("[ \"$(cut -d, -f1-3 {d}/before | tail -n 4)\" = \"$(cut -d, -f1-3 {d}/hurt/metrics.jsonl)\" ]");
    cli_shell("ls -d {d}/hurt/checkpoints/step-00000006.damaged {d}/hurt/checkpoints/step-00000004.damaged");
    cli_shell("cp -r {d}/hurt {d}/worse; rm {d}/worse/checkpoints/*/trainer.json");
    cli_expect(1, "none of its 2 checkpoints can be used", "%s --steps 6 --resume --out {d}/worse", small);
}

/* Whether the training waits for its checkpoints or not, they are the same, and so is what it comes to. */
static void test_save_wait(void **state)
{
    cli_expect(0, "", "%s -tp 2 --steps 6 --save-every 1 --keep-last 9 --out {d}/beside", small);
    cli_expect(0, "", "%s -tp 2 --steps 6 --save-every 1 --keep-last 9 --save-wait --out {d}/waits", small);
    cli_shell("cd {d} && diff -r beside/checkpoints waits/checkpoints && "
              "cmp beside/model.safetensors waits/model.safetensors && [ $(ls beside/checkpoints | wc -l) = 7 ]");
}

/* A disk that is full on the way is said, and the training goes on: there may be room at the end. */
static void test_full_on_the_way(void **state)
{
    const char *build = getenv("CLV_BUILD_DIR");
    cli_shell("bash -c \"ulimit -f 60; '%s/cleave' %s --steps 4 --save-every 2 --out {d}/tight\" 2>{d}/said",
              build ? build : "build", small);
    cli_shell("grep -q 'note: no checkpoint after step 2: .*cannot write: File too large' {d}/said && "
              "[ -e {d}/tight/model.safetensors ] && [ -z \"$(ls {d}/tight/checkpoints)\" ]");
}

/* What is wrong with how parameters are to be updated is found before anything is written. */
static void test_clip_grad_norm(void **state)
{
    static const char *const bad[][2] = {
        {"--betas 0.9", "--betas: '0.9'; valid: two numbers from 0 to below 1, e.g. 0.9,0.95"},
        {"--betas 1,0.95", "--betas: '1,0.95'"},
        {"--betas 0.9,-0.1", "--betas: '0.9,-0.1'"},
        {"--betas 0.9,0.95x", "--betas: '0.9,0.95x'"},
        {"--betas nan,0.9", "--betas: 'nan,0.9'"},
        {"--lr -1", "--lr"},
        {"--lr 0", "--lr"},
        {"--eps 0", "--eps"},
        {"--weight-decay -0.1", "--weight-decay"},
        {"--clip -1", "--clip"},
        {"--min-lr 0.1 --lr 0.01", "--min-lr 0.1 is above --lr 0.01"},
        {"--warmup 4", "--warmup 4 is more than --steps 3"},
        {"--decay-steps 1", "--decay-steps has no effect without --schedule wsd"},
        {"--schedule wsd --warmup 1 --decay-steps 3", "--decay-steps 3 is more than the 2 steps after the warm-up"},
        {"--schedule step", "cosine"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cli_expect(2, bad[i][1], "%s --steps 3 --out {d}/rates %s", small, bad[i][0]);
    cli_shell("test ! -e {d}/rates");
    cli_expect(
        0, "",
        "%s --steps 4 --schedule wsd --decay-steps 2 --lr 0.01 --min-lr 0 --betas 0,0 --eps 1 --decay-all --clip 0 "
        "--save-every 2 --out {d}/rates",
        small);
    cli_shell("[ \"$(grep -o '\"lr\":[0-9.]*' {d}/rates/metrics.jsonl | tr '\\n' ' ')\" = "
              "'\"lr\":0.01 \"lr\":0.01 \"lr\":0.01 \"lr\":0.005 ' ]");
    cli_expect(0, "--betas is 0.9,0.95 from here on; it was 0,0",
               "%s --steps 5 --schedule constant --resume --out {d}/rates", small);
}

/* From a folder, with the numbers of tests/golden/train.h; from a config.json, alike on every mesh. */
static void test_starts(void **state)
{
    char how[1024];
    snprintf(how, sizeof how,
             "--data %s --no-shuffle --batch 2 --steps 3 --lr 1e-3 --betas 0.9,0.95 --eps 1e-8 --weight-decay 0.1 "
             "--decay-all --clip 1.0 --schedule constant --warmup 0",
             cli_ids("llama_golden"));
    cli_shell("cp -r {g}/llama {d}/hub && echo '{\"model_max_length\": 64}' > {d}/hub/tokenizer_config.json");
    cli_expect(0, "", "train -m {d}/hub %s -tp 2 --out {d}/tuned", how);
    cli_shell("grep -q '\"step\":2,\"loss\":3.5238[0-9]*,\"grad_norm\":5.905[0-9]*,' {d}/tuned/metrics.jsonl && "
              "cmp {d}/hub/tokenizer_config.json {d}/tuned/tokenizer_config.json");
    cli_expect(0, "", "train -m {d}/tuned %s --out {d}/further", how);
    for (int tp = 1; tp <= 3; tp++)
        cli_expect(0, "", "train --config {g}/gpt2/config.json %s -tp %d --out {d}/new%d", how, tp, tp);
    cli_shell("for tp in 2 3; do [ \"$(grep -o '\"loss\":[0-9].[0-9]\\{4\\}' {d}/new1/metrics.jsonl)\" = "
              "\"$(grep -o '\"loss\":[0-9].[0-9]\\{4\\}' {d}/new$tp/metrics.jsonl)\" ] || exit 1; done");
    cli_expect(2, "esm has no tokenizer.json or vocab.txt", "train -m {g}/esm --text {d}/text --out {d}/none");
    cli_expect(2, "its vocabulary of 37 is not that of bytes (256)",
               "train -m {g}/llama --text {d}/text --out {d}/none");
    cli_expect(2, "--layers", "train -m {g}/llama --layers 2 %s --out {d}/none", how);
    cli_expect(2, "--config", "train -m {g}/llama --config {g}/gpt2/config.json %s --out {d}/none", how);
    cli_shell("test ! -e {d}/none");
}

/* What the backward pass makes again changes no digit of a run, and may be another in one that goes on. */
static void test_recompute_activations(void **state)
{
    static const char *const how[] = {"", "--recompute full", "--recompute-activations", "--reshard-after-forward",
                                      "--keep-gathered"};
    (void)state;
    for (int i = 0; i < 5; i++)
        cli_expect(0, "", "%s -tp 2 --sp --steps 4 %s --out {d}/again%d", small, how[i], i);
    cli_shell("for i in 0 1 2 3 4; do grep -o '.*\"lr\"' {d}/again$i/metrics.jsonl > {d}/again$i.txt || exit 1; "
              "cmp {d}/again0.txt {d}/again$i.txt || exit 1; done");
    cli_expect(2, "--recompute", "%s --recompute some --out {d}/none", small);
    cli_expect(2, "--recompute", "%s --recompute full --recompute-activations --out {d}/none", small);
    cli_expect(2, "--keep-gathered", "%s --reshard-after-forward --keep-gathered --out {d}/none", small);
    cli_shell("test ! -e {d}/none");
}

/* A step in parts is a step: the same data, a line of metrics, as many checkpoints; one may go on in other parts, whose
 * gradients are reduced at other times. */
static void test_gradient_accumulation(void **state)
{
    static const char four[] = "train --text {d}/text --layers 1 --hidden 16 --heads 2 --ffn 32 --seq 16 --batch";
    (void)state;
    static const char *const how[] = {"", "--accumulate 4", "--accumulate 4 --rules fsdp",
                                      "--accumulate 4 --rules fsdp --no-sync", "--accumulate 4 --rules zero1"};
    for (int i = 0; i < 5; i++)
        cli_expect(0, "", "%s 4 --steps 4 --mesh data=2 %s --out {d}/parts%d", four, how[i], i);
    cli_shell("for i in 0 1 2 3 4; do grep -o '\"loss\":[0-9]*\\.[0-9]\\{4\\}' {d}/parts$i/metrics.jsonl > "
              "{d}/parts$i.txt || exit 1; cmp {d}/parts0.txt {d}/parts$i.txt || exit 1; done; "
              "[ $(wc -l < {d}/parts4.txt) = 4 ]");
    cli_expect(0, "", "%s 4 --steps 2 --accumulate 4 --save-every 1 --out {d}/goes", four);
    cli_expect(0, "--accumulate is 2 from here on; it was 4",
               "%s 4 --steps 4 --gradient-accumulation-steps 2 --resume --out {d}/goes", four);
    cli_expect(0, "--no-sync is given from here on; it was not given",
               "%s 4 --steps 6 --accumulate 2 --mesh data=2 --rules fsdp --no-sync --resume --out {d}/goes", four);
    cli_expect(2, "no_sync is for gradient accumulation", "%s 4 --no-sync --out {d}/none", four);
    cli_expect(2, "--accumulate 3 does not divide --batch 4", "%s 4 --accumulate 3 --out {d}/none", four);
    cli_expect(2, "--accumulate", "%s 4 --accumulate 0 --out {d}/none", four);
    cli_shell("test ! -e {d}/none");
}

static int set_up(void **state)
{
    cli_shell(
        "for i in 1 2 3 4 5 6 7 8 9; do echo 'the layout of a tensor says where each part lives'; done > {d}/text");
    return 0;
}

/* Steps that are not finite are passed over, said and counted; or the run is saved, and goes on at another rate. */
static void test_not_finite(void **state)
{
    static const char wild[] = "train --text {d}/text --layers 1 --hidden 32 --heads 2 --seq 16 --batch 1 --steps 60 "
                               "--weight-decay 1 --warmup 0";
    cli_expect(0, "note: skipped: the ", "%s --lr 10 --on-nan skip --out {d}/skipped", wild);
    assert_int_equal(lines_of("skipped", "metrics.jsonl"), 60);
    cli_shell("tail -n 1 {d}/skipped/metrics.jsonl | grep -q '\"loss\":null.*\"skipped\":[1-9]'");
    cli_shell("head -n 1 {d}/skipped/metrics.jsonl | grep -q '\"skipped\":0'");
    cli_expect(2, "it begins at rank 0, ", "%s --lr 10 --out {d}/stopped", wild);
    cli_shell("ls {d}/stopped/checkpoints/step-*/trainer.json");
    cli_expect(0, "--on-nan is skip from here on", "%s --lr 10 --on-nan skip --resume --out {d}/stopped", wild);
    assert_int_equal(lines_of("stopped", "metrics.jsonl"), 60);
    cli_expect(2, "--on-nan", "%s --on-nan never --out {d}/never", wild);
}

/* In bf16, which what is saved says, and on in f32 and back. */
static void test_dtype(void **state)
{
    cli_expect(0, "", "%s --steps 2 --dtype bf16 --save-every 2 --out {d}/bf16", small);
    cli_shell("grep -q '\"dtype\": \"bfloat16\"' {d}/bf16/config.json");
    cli_shell("grep -q '\"dtype\": \"bfloat16\"' {d}/bf16/checkpoints/step-00000002/config.json");
    cli_expect(0, "--dtype is f32 from here on; it was bf16",
               "%s --steps 4 --dtype f32 --resume --save-every 2 --out {d}/bf16", small);
    cli_shell("grep -q '\"dtype\": \"float32\"' {d}/bf16/config.json");
    cli_expect(0, "--dtype is bf16", "%s --steps 6 --dtype bf16 --resume -tp 2 --out {d}/bf16", small);
    assert_int_equal(lines_of("bf16", "metrics.jsonl"), 6);
    cli_expect(0, "", "generate -m {d}/bf16 -p x -n 2");
    cli_expect(2, "--dtype", "%s --steps 2 --dtype f16 --out {d}/f16", small);
    cli_expect(0, "",
               "train --text {d}/text --layers 1 --hidden 16 --heads 2 --seq 16 --batch 2 --steps 2 --mesh data=2 "
               "--grad-reduce-dtype bf16 --out {d}/reduced");
    cli_expect(0, "", "%s --steps 2 --dtype bf16 --grad-reduce-dtype f32 --mesh data=2 --out {d}/summed", small);
    cli_expect(2, "cannot be combined with --comm-dtype q8",
               "%s --steps 2 --comm-dtype q8 --grad-reduce-dtype f32 --out {d}/wide", small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_others_folders),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_recompute_activations),
        cmocka_unit_test(test_gradient_accumulation),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_stopped_for_a_while),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_tokenizer_is_kept),
        cmocka_unit_test(test_resume_damaged),
        cmocka_unit_test(test_resume_waits),
        cmocka_unit_test(test_save_wait),
        cmocka_unit_test(test_full_on_the_way),
        cmocka_unit_test(test_clip_grad_norm),
        cmocka_unit_test(test_dtype),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_starts),
    };
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
