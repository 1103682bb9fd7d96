/* test_cli_plan_estimate.c - cleave plan of stages, context and experts: what it prints and refuses, and that commands
 * which run refuse such meshes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli_run.h"

#define STAGES "plan -m {g}/llama --mesh pipe=2,data=2 --batch 8 --seq 16 "

/* What no program runs says so, on the first screen and in JSON; commands that run refuse it by the axis's name. */
static void test_planned_not_run(void **state)
{
    (void)state;
    cli_expect(0, "pipeline: 2 stages, 1f1b, 4 microbatches", STAGES "--accumulate 4");
    cli_expect(0, "pipeline bubble", STAGES "--accumulate 4");
    cli_expect(0, "take turns with one microbatch; valid for all at work: --accumulate 2", STAGES);
    cli_expect(0, "\"pipeline\": {", STAGES "--json");
    cli_expect(0, "\"planned_not_run\": {", STAGES "--virtual-stages 2 --json");
    cli_expect(2, "one run of layers each", STAGES "--schedule interleaved");
    cli_expect(0, "pipeline: 2 stages, interleaved, 8 microbatches, virtual stages 2",
               "plan -m {g}/qwen2_moe_step --mesh pipe=2 --batch 8 --seq 16 --accumulate 8 --virtual-stages 2");
    cli_expect(0, "\"schedule\": \"zero-bubble\"", STAGES "--schedule zero-bubble --json");
    cli_expect(0, "\"schedule\": \"zero-bubble\"", STAGES "--accumulate 4 --schedule auto --json");
    cli_expect(0, "planned, not run: 2 stages, zero-bubble", STAGES "--virtual-stages 2 --schedule zero-bubble");
    cli_expect(0, "pipeline: 2 stages\n", "plan -m {g}/llama --mesh pipe=2 --prefill --batch 2 --seq 16");
    cli_expect(0, "pipeline: 2 stages\n", "plan -m {g}/llama --mesh pipe=2 --decode --batch 2 --seq 16");
    cli_expect(2, "a block has no layers for an axis pipe", "plan --block llama --mesh pipe=2 --hidden 64 --heads 4");
    cli_expect(0, "pipeline: 2 stages, 1f1b, 4 microbatches",
               "plan -m {g}/llama --mesh pipe=2,context=2 --batch 8 --seq 16 --accumulate 4");
    cli_expect(0, "context exchange", "plan -m {g}/llama --mesh data=2,context=2 --batch 8 --seq 16");
    cli_expect(2, "splits the experts of a mixture, and this model has none",
               "plan -m {g}/llama --mesh expert=2 --batch 8 --seq 16");
    /* in one line, however they are asked for */
    static const char *const asked[][3] = {
        {"plan", "", ""},
        {"plan", "data=2,", ""},
        {"plan", "data=2,", "--search"},
        {"plan", "", "--search"},
        {"plan", "", "--collectives"},
        {"plan", "", "--decode"},
        {"explain", "", ""},
        {"plan", "", "--dtype bf16 --hardware h200 --software torch-compile"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        for (int stages = 3; stages <= 40; stages += 37)
            cli_expect(2, stages == 3 ? "axis 'pipe' of 3 stages for 2 layers; valid: 1 to 2\n" : " of 40 stages for 2",
                       "%s -m {g}/llama --mesh %spipe=%d --batch 80 --seq 16 %s", asked[i][0], asked[i][1], stages,
                       asked[i][2]);
    cli_expect(2, "axis 'pipe' of 2 stages, each of 3 virtual ones, for 2 layers; valid: 1 to 2 virtual stages\n",
               "plan -m {g}/llama --mesh pipe=2 --virtual-stages 3 --batch 8 --seq 16");
    cli_expect(0, "pipeline: 2 stages", "plan -m {g}/llama --mesh pipe=2,context=3 --batch 8 --seq 16");
    cli_expect(2, "valid: with an axis pipe", "plan -m {g}/llama --schedule gpipe --batch 8 --seq 16");
    cli_expect(0, "\"offload_seconds\":",
               "plan -m {g}/llama --batch 8 --seq 16 --offload-layers 1 --hardware gb200-nvl72 --json");
    cli_expect(2, "without stages", STAGES "--offload-layers 1");
    cli_expect(0, "from stage 0 to stage 1, for", STAGES "--accumulate 2 --collectives");
    cli_expect(0, "context_parallel", "plan -m {g}/llama --mesh context=2 --batch 8 --seq 16 --collectives");
    cli_expect(0, "kv_cache", "plan -m {g}/llama --mesh context=2 --prefill --batch 2 --seq 16"); /* more than a part */
    cli_expect(2, "--stages has no effect with --search", "plan -m {g}/llama --search --devices 4 --stages 1,1");
    cli_expect(1, "--memory-limit allows", STAGES "--memory-limit 1");
    cli_expect(0, "over 2 ranks, in 2 stages by zero-bubble",
               "train --text {g}/scores/text.txt --hidden 16 --layers 2 --heads 2 --seq 8 --batch 4 --steps 1 "
               "--mesh pipe=2,data=1 --accumulate 2 --pipeline-schedule zero-bubble --out {d}/stages");
    cli_expect(2, "axis 'pipe' of 2 stages for 1 layers",
               "train --text {g}/scores/text.txt --hidden 16 --layers 1 --heads 2 --seq 8 --batch 4 --steps 1 "
               "--mesh pipe=2,data=1 --out {d}/more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planned_not_run)};
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
