/* test_cli_train_golden.c - train by the flags that say what torch's trainings were made with (golden/make_train.py):
 * metrics.jsonl has their losses and norms, whatever the mesh, the parts of a step, and what is made again. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cli_run.h"
#include "golden/train.h"
#include "golden_training.h"
#include "must.h"
#include "sweep.h"
#include "unit_test.h"

enum { TRAININGS = sizeof trainings / sizeof trainings[0] };

static const struct {
    int batches; /* as many times the file's rows: row i of a batch is row i mod those */
    const char *options;
} ways[] = {
    {1, "-tp 2"},
    {1, "-tp 1"},
    {1, "-tp 2 --sp"},
    {1, "-tp 3"},
    {1, "-tp 3 --sp"},
    {1, "--mesh data=2"},
    {1, "--mesh data=2 --rules fsdp"},
    {1, "--mesh data=2,model=2"},
    {1, "--mesh data=2,model=2 --rules fsdp+megatron-sp --recompute full"},
    {4, "-tp 2 --sp --accumulate 4"},
    {1, "-tp 2 --recompute selective"},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* `ids`, `labels` and `mask` of a training as --data takes them; the next tokens of decoders follow from their ids. */
static void write_rows(const golden_batch *b, bool causal)
{
    static const char *const names[] = {"ids", "labels", "mask"};
    int32_t mask[GOLDEN_IDS];
    const int32_t *const values[] = {b->ids, b->labels, mask};
    const int64_t n = causal ? 1 : b->padded ? 3 : 2;
    char path[512];
    clv_error err = {0};
    clv_checkpoint_writer *to;
    snprintf(path, sizeof path, "%s/ids.safetensors", cli_folder());
    for (int i = 0; i < GOLDEN_IDS; i++)
        mask[i] = b->mask[i];
    must(clv_checkpoint_create(&to, path, &err), &err);
    for (int64_t i = 0; i < n; i++)
        must(clv_checkpoint_add_tensor(to, names[i], CLV_I32, 2, (const int64_t[]){b->rows, b->seq}, &err), &err);
    for (int64_t i = 0; i < n; i++)
        must(clv_checkpoint_write(to, i, NULL, values[i], &err), &err);
    must(clv_checkpoint_commit(to, &err), &err);
}

static void assert_metrics(int training, const char *options, double rate, int batches)
{
    char path[512], line[1024];
    snprintf(path, sizeof path, "%s/run/metrics.jsonl", cli_folder());
    FILE *lines = fopen(path, "r");
    assert_non_null(lines);
    int dropped = 0;
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        int step = -1;
        double loss = NAN, norm = NAN, lr = NAN, want = trainings[training].loss[i],
               want_norm = trainings[training].norm[i];
        assert_non_null(fgets(line, sizeof line, lines));
        assert_int_equal(
            sscanf(line, "{\"step\":%d,\"loss\":%lf,\"grad_norm\":%lf,\"lr\":%lf,", &step, &loss, &norm, &lr), 4);
        assert_int_equal(step, i);
        if (!(fabs(loss - want) <= 1e-4 * want && fabs(norm - want_norm) <= 1e-4 * want_norm))
            fail_msg("%s by %s, %s, step %d: loss %.9g, norm %.9g; torch's are %.9g, %.9g", trainings[training].model,
                     trainings[training].optimizer, options, i, loss, norm, want, want_norm);
        assert_true(fabs(lr - rate) <= 1e-6 * rate);
        const char *of_step = strstr(line, ",\"dropped\":");
        dropped += of_step ? atoi(of_step + strlen(",\"dropped\":")) : 0;
    }
    assert_int_equal(dropped, trainings[training].dropped * batches);
    assert_null(fgets(line, sizeof line, lines));
    fclose(lines);
}

static void train(int training, int way)
{
    static const char *const optimizers[] = {"--lr 1e-3 --betas 0.9,0.95 --eps 1e-8", "--optimizer sgd --lr 1e-3",
                                             "--optimizer lion --lr 1e-4"};
    golden_batch b;
    clv_error err = {0};
    clv_optimizer optimizer;
    must(clv_optimizer_parse(&optimizer, trainings[training].optimizer, &err), &err);
    golden_batch_read(&b, trainings[training].model, trainings[training].task);
    write_rows(&b, strcmp(trainings[training].task, "causal") == 0);
    const bool limited = trainings[training].capacity > 0;
    cli_shell("cp -r {g}/%s {d}/model", trainings[training].model);
    if (limited)
        cli_shell("sed -i '0,/{/s//{\"moe_expert_capacity_factor\": %g,/' {d}/model/config.json",
                  trainings[training].capacity);
    cli_expect(
        0, "",
        "train -m {d}/model --data {d}/ids.safetensors --no-shuffle --batch %d --steps 20 %s --weight-decay 0.1 "
        "--decay-all --clip 1.0 --schedule constant --dtype f32 %s --moe-router-bias-update-rate %g --out {d}/run",
        ways[way].batches * (int)b.rows, optimizers[optimizer], ways[way].options, trainings[training].bias_rate);
    assert_metrics(training, ways[way].options, golden_rate(optimizer), ways[way].batches);
    cli_shell("rm -r {d}/run {d}/ids.safetensors {d}/model");
}

/* Each training the first way; of AdamW's a sweep. */
static void test_torch(void **state)
{
    for (int t = 0; t < TRAININGS; t++)
        for (int w = 0; w < WAYS; w++)
            if (w == 0 || (strcmp(trainings[t].optimizer, "adamw") == 0 && sweep_takes()))
                train(t, w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_torch)};
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
