/* test_cli_lora.c - adapters by the commands: trained beside a folder's weights, saved apart or merged, gone on from on
 * other meshes, planned for, and refused where they do not belong. */
#include <stdio.h>

#include "cli_run.h"
#include "unit_test.h"

#define ON(model)                                                                                                      \
    "train -m {g}/" model " --data {d}/" model ".safetensors --no-shuffle --batch 2 --lr 1e-3 --schedule constant "    \
    "--weight-decay 0.1 --decay-all --eps 1e-8 --betas 0.9,0.95 --clip 1"

static int set_up(void **state)
{
    static const char *const models[] = {"llama", "gpt2", "llama_bias"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_golden", models[i]);
        cli_shell("cp %s {d}/%s.safetensors", cli_ids(name), models[i]);
    }
    return 0;
}

/* The losses of runs of as many steps, within a relative 1e-5. */
static void assert_alike(const char *a, const char *b)
{
    for (int i = 0; i < 2; i++)
        cli_shell("sed 's/.*\"loss\":\\([^,]*\\),.*/\\1/' {d}/%s/metrics.jsonl >{d}/losses%d", i ? b : a, i);
    cli_shell("paste {d}/losses0 {d}/losses1 | awk 'NF != 2 {exit 1} {d = $1 / $2 - 1; if (!(d * d < 1e-10)) exit 1}'");
}

/* PEFT's first numbers (tests/golden/lora.h), and what is saved is what was trained. */
static void test_goes_on(void **state)
{
    cli_expect(0, "", ON("llama") " --lora {g}/llama_lora --steps 4 -tp 2 --out {d}/merged");
    cli_expect(0, "",
               ON("llama") " --lora {g}/llama_lora --steps 4 --mesh data=2 --rules fsdp --lora-save adapter "
                           "--out {d}/apart");
    cli_shell("grep -q '\"step\":0,\"loss\":4.3087' {d}/merged/metrics.jsonl");
    assert_alike("merged", "apart");
    cli_shell("test -e {d}/apart/adapter_model.safetensors -a ! -e {d}/apart/model.safetensors");
    cli_shell("test -e {d}/merged/model.safetensors -a ! -e {d}/merged/adapter_config.json");
    cli_expect(0, "", "train -m {d}/merged --data {d}/llama.safetensors --no-shuffle --batch 2 --steps 1 --out {d}/m1");
    cli_expect(0, "", "train -m {d}/apart --data {d}/llama.safetensors --no-shuffle --batch 2 --steps 1 --out {d}/a1");
    assert_alike("m1", "a1");
    cli_expect(0, "model.safetensors", "merge {d}/apart --out {d}/whole");
    cli_shell("cmp {g}/llama/config.json {d}/whole/config.json && test ! -e {d}/whole/adapter_config.json");
    cli_expect(0, "", "train -m {d}/whole --data {d}/llama.safetensors --no-shuffle --batch 2 --steps 1 --out {d}/w1");
    assert_alike("w1", "a1");
    cli_expect(2, "exists already", "merge {d}/apart --out {d}/whole");
    cli_expect(0, "", "verify -m {d}/merged --tp 1,2");
    cli_expect(0, "", "verify -m {d}/apart --tp 1,3");
}

/* PEFT's own, with an output layer, of rank above a side's, and of modules that the model does not use. */
static void test_as_peft(void **state)
{
    static const struct {
        const char *folder, *says;
    } cases[] = {{"llama_lora_head", "none"},
                 {"llama_lora_wide", "none"},
                 {"bert_lora", "none"},
                 {"bert_bare_lora", "pooler.dense.lora_A"},
                 {"esm_lora", "contact_head.regression.lora_A"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cli_expect(0, cases[i].says, "verify -m {g}/%s --tp 1,2 --against {g}/%s/want.safetensors", cases[i].folder,
                   cases[i].folder);
    cli_expect(0, "", "merge {g}/llama_lora_head --out {d}/head");
    cli_expect(0, "none", "verify -m {d}/head --tp 1 --against {g}/llama_lora_head/want.safetensors");
}

/* On other meshes and after a stop they are the same. */
static void test_everywhere(void **state)
{
    cli_expect(0, "beside", ON("gpt2") " --lora-rank 3 --lora-dropout 0.2 --steps 6 --save-every 3 --out {d}/one 2>&1");
    cli_expect(0, "",
               ON("gpt2") " --lora-rank 3 --lora-dropout 0.2 --steps 6 -tp 2 --sp --lora-save adapter --out {d}/two");
    cli_expect(0, "",
               ON("gpt2") " --lora-rank 3 --lora-dropout 0.2 --steps 3 --save-every 3 --mesh data=2 --out {d}/three");
    cli_expect(0, "", ON("gpt2") " --lora-rank 3 --lora-dropout 0.2 --steps 6 --resume -tp 3 --out {d}/three");
    assert_alike("one", "two");
    assert_alike("one", "three");
    cli_shell("grep -q '\"lora_dropout\": 0.2' {d}/two/adapter_config.json");
    cli_shell("test ! -e {d}/one/checkpoints/step-00000006/model.safetensors");
}

/* What a command prints, as a file. */
static void keep(const char *name, const char *printed)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", cli_folder(), name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(printed, file);
    fclose(file);
}

/* The bytes that plan says are those of the run. */
static void test_planned(void **state)
{
    static char out[CLI_OUTPUT];
    assert_int_equal(cli_run(out, ON("llama") " --lora-rank 4 --steps 1 -tp 2 --json --out {d}/planned 2>{d}/said"), 0);
    keep("did.json", out);
    assert_int_equal(cli_run(out, "plan -m {g}/llama --train --lora-rank 4 -tp 2 --batch 2 --seq 11 --json"), 0);
    keep("plan.json", out);
    cli_shell("python3 -c \"import json; did, plan = (json.load(open('{d}/' + n)) for n in ('did.json', 'plan.json')); "
              "total = sum(c['bytes'] for c in did['collectives_per_step']); assert total > 0; "
              "assert abs(total - plan['bytes']) < 1e-6 * total, (total, plan['bytes'])\"");
}

static void test_refused(void **state)
{
    static const struct {
        const char *says, *options;
    } wrong[] = {
        {"--lora-rank takes an integer from 1", "--lora-rank 0"},
        {"--lora-rank takes an integer from 1", "--lora-rank -1"},
        {"rank of 9; valid: 1 to 8, the narrowest side of k_proj", "--lora-rank 9"},
        {"target 'wte'; valid: all-linear, q_proj", "--lora-rank 2 --lora-targets wte"},
        {"--lora-alpha has no effect without --lora-rank", "--lora-alpha 3"},
        {"--lora-dropout has no effect without --lora-rank", "--lora-dropout 0.1"},
        {"--lora-dropout takes", "--lora-rank 2 --lora-dropout 1"},
        {"--lora-targets has no effect without --lora-rank", "--lora-targets q_proj"},
        {"--lora-save has no effect without", "--lora-save adapter"},
        {"--lora-rank cannot be combined with --lora", "--lora-rank 2 --lora {g}/llama_lora"},
        {"none of the linear layers of this model", "--lora {g}/gpt2_lora"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cli_expect(2, wrong[i].says, ON("llama") " --steps 1 %s --out {d}/never", wrong[i].options);
    cli_expect(2, "with -m", "train --text {d}/llama.safetensors --lora-rank 2 --steps 1 --out {d}/never");
    cli_expect(0, "", ON("llama") " --lora-rank 2 --steps 1 --save-every 1 --lora-save adapter --out {d}/its");
    cli_expect(2, "of another model", ON("llama_bias") " --lora {d}/its --steps 1 --out {d}/never");
    cli_expect(2, "this run trains adapters of rank 3", ON("llama") " --lora-rank 3 --steps 2 --resume --out {d}/its");
    cli_expect(2, "trained adapters",
               ON("llama") " --lora-rank 2 --lora-targets q_proj --steps 2 --resume "
                           "--out {d}/its");
    cli_shell("test ! -e {d}/never");
    cli_expect(2, "cannot be combined with --block", "plan --block gpt --lora-rank 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on), cmocka_unit_test(test_as_peft), cmocka_unit_test(test_everywhere),
        cmocka_unit_test(test_planned), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
