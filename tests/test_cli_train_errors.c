/* test_cli_train_errors.c - what train is told that cannot be: one line that names it, exit code 2, and nothing has
 * changed on disk. */
#include <stdio.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cli_run.h"
#include "must.h"
#include "unit_test.h"

/* All names below {d}/in, and what files hold. */
static void list(const char *name)
{
    cli_shell("cd {d}/in && { find . ; find . -type f -exec cksum {} + ; } | sort >{d}/%s", name);
}

/* names: what the line has in it. */
static void refused(const char *names, const char *command)
{
    static char out[CLI_OUTPUT];
    list("before");
    int code = cli_run(out, "%s", command);
    const char *end = strchr(out, '\n');
    if (code != 2 || !end || end[1] != '\0' || !strstr(out, names))
        fail_msg("%s\nexited with %d, expected 2 and one line with '%s':\n%s", command, code, names, out);
    list("after");
    cli_shell("cmp {d}/before {d}/after");
}

static void test_values(void **state)
{
    static const char *const bad[] = {
        "--accumulate 0",
        "--accumulate -1",
        "--accumulate 3",
        "--batch 0",
        "--batch -1",
        "--batch 1.5",
        "--lr 0",
        "--lr -1",
        "--lr nan",
        "--lr inf",
        "--clip -1",
        "--clip nan",
        "--betas 1,2",
        "--betas 0.9",
        "--betas -1,0.9",
        "--betas nan,0.9",
        "--betas 0.9,1",
        "--warmup -1",
        "--keep-last 0",
        "--keep-last -1",
        "--keep-every -1",
        "--mask-rate 0",
        "--mask-rate 2",
        "--eps 0",
        "--eps -1",
        "--eps nan",
        "--hidden-dropout 1",
        "--hidden-dropout -1",
        "--lora-rank 0",
        "--lora-rank -1",
        "--seed -1",
        "--eval-every -1",
        "--eval-every 1",
        "--steps 0",
        "--steps -1",
        "--save-every -1",
        "--weight-decay -1",
        "--weight-decay nan",
        "--momentum 1",
        "--momentum -1",
        "--min-lr -1",
        "--min-lr 1",
        "--seq 0",
        "--seq -1",
        "--layers 0",
        "--hidden 0",
        "--hidden 15",
        "--heads 0",
        "--heads 3",
        "--kv-heads -1",
        "--kv-heads 3",
        "--ffn -1",
        "-tp 0",
        "-tp -1",
        "--threads 0",
        "--dtype f8",
        "--schedule none",
        "--optimizer none",
        "--on-nan none",
        "--recompute some",
        "--trace 0:1",
        "--grad-reduce-dtype f8",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char command[256], option[64];
        snprintf(option, sizeof option, "%.*s", (int)strcspn(bad[i], " "), bad[i]);
        snprintf(command, sizeof command, "train --text {d}/in/text --out {d}/in/out %s", bad[i]);
        refused(option, command);
    }
    refused("--warmup 5 is more than --steps 1", "train --text {d}/in/text --out {d}/in/out --steps 1 --warmup 5");
    refused("--lora-rank", "train --text {d}/in/text --out {d}/in/out --lora-rank 4"); /* without a model */
    refused("axis 'data' needs a size of at least 1", "train --text {d}/in/text --out {d}/in/out --mesh data=0");
}

#define SMALL " --layers 1 --hidden 16 --heads 2 --seq 8 --batch 2 --steps 2 "

static void test_places(void **state)
{
    refused("in/none: ", "train --text {d}/in/none" SMALL "--out {d}/in/out");
    refused("in/none: ", "train --data {d}/in/none" SMALL "--out {d}/in/out");
    refused("in/none: ", "train --text {d}/in/text --val {d}/in/none" SMALL "--out {d}/in/out");
    refused("in/none: ", "train -m {d}/in/none --data {d}/in/ids --seq 8 --out {d}/in/out");
    refused("in/none: ", "train --config {d}/in/none --data {d}/in/ids --seq 8 --out {d}/in/out");
    refused("in/none: ", "train -m {g}/llama --lora {d}/in/none --data {d}/in/ids --seq 8 --out {d}/in/out");
    refused("no such file", "train --text {d}/in/text --hardware {d}/in/none" SMALL "--out {d}/in/out");
    refused("in/none/x: cannot create", "train --text {d}/in/text" SMALL "--out {d}/in/none/x");
    refused("in/text/x: cannot create", "train --text {d}/in/text" SMALL "--out {d}/in/text/x");
    refused("in/none/p.svg: cannot create",
            "train --text {d}/in/text" SMALL "--out {d}/in/out --plot {d}/in/none/p.svg");
    refused("is no folder", "train --text {d}/in/text" SMALL "--out {d}/in/ids");
    refused("name another file", "train --text {d}/in/text" SMALL "--out {d}/in/text");
    refused("cannot create", "train --text {d}/in/text" SMALL "--out /proc/cleave");
}

/* Where it is, and what it is. */
static void test_dataset(void **state)
{
    refused("in/short: 4 tokens", "train --text {d}/in/short" SMALL "--out {d}/in/out");
    refused("in/text: 1001 tokens", "train --text {d}/in/text --val {d}/in/text --seq 2000 --out {d}/in/out");
    refused("in/ids: 1001 tokens", "train --data {d}/in/ids --seq 4000 --out {d}/in/out");
    refused("in/ids: id 48 at 0; the vocabulary is 0 to 36",
            "train -m {g}/llama --data {d}/in/ids --seq 8 --out {d}/in/out");
    refused("in/over.safetensors: ids is 37 at [1,2]; the vocabulary is 0 to 36",
            "train -m {g}/llama --data {d}/in/over.safetensors --batch 2 --out {d}/in/out");
    refused("its vocabulary of 37 is not that of bytes (256)",
            "train -m {g}/llama --text {d}/in/text --seq 8 --out {d}/in/out");
}

static void test_other_models(void **state)
{
    cli_expect(0, "", "train --text {d}/in/text" SMALL "--save-every 2 --out {d}/in/run");
    refused("the model has layers 1, this one 2",
            "train --text {d}/in/text --layers 2 --hidden 16 --heads 2 --seq 8 --batch 2 --steps 2 --resume --out "
            "{d}/in/run");
    refused("the model has hidden 16, this one 32",
            "train --text {d}/in/text --layers 1 --hidden 32 --heads 2 --seq 8 --batch 2 --steps 2 --resume --out "
            "{d}/in/run");
    refused("trained by adamw; this run trains by sgd",
            "train --text {d}/in/text" SMALL "--optimizer sgd --resume --out {d}/in/run");
    refused("--batch is 4",
            "train --text {d}/in/text --layers 1 --hidden 16 --heads 2 --seq 8 --batch 4 --steps 2 --resume --out "
            "{d}/in/run");
    refused("--resume goes on with it", "train --text {d}/in/text" SMALL "--out {d}/in/run");
}

static int set_up(void **state)
{
    static int64_t ids[2][9] = {{1}, {1, 2, 37}};
    static char path[512];
    clv_error err = {0};
    cli_shell("mkdir {d}/in && yes 0123456789 | tr -d '\\n' | head -c 1000 >{d}/in/text && printf abc >{d}/in/short");
    cli_expect(0, "", "data --input {d}/in/text --out {d}/in/ids");
    snprintf(path, sizeof path, "%s/in/over.safetensors", cli_folder());
    clv_checkpoint_writer *writer;
    must(clv_checkpoint_create(&writer, path, &err), &err);
    must(clv_checkpoint_add_tensor(writer, "ids", CLV_I64, 2, (int64_t[]){2, 9}, &err), &err);
    must(clv_checkpoint_write(writer, 0, NULL, ids, &err), &err);
    must(clv_checkpoint_commit(writer, &err), &err);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_dataset), cmocka_unit_test(test_other_models)};
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
