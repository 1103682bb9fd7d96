/* test_reduce_gradients_early.c - gradients of which ranks keep a share are reduced where they are made: at any time
 * those of one layer are whole, whatever the number of layers. */

#include "cleave/train.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

/* Of rows enough that products are split by them, and their gradients are sums over ranks. */
enum { M = 64, F = 128, BATCH = 4, SEQ = 256, LAYER_BYTES = 4 * (4 * M * M + 3 * M * F) };

static clv_error err;

typedef struct way {
    const char *mesh, *rules;
    clv_model_options how;
} way;

static const way ways[] = {
    {.mesh = "data=4", .rules = "zero1"},
    {.mesh = "data=4", .rules = "fsdp"},
    {.mesh = "data=4", .rules = "fsdp", .how = {.compile.reshard_after_forward = CLV_RESHARD_ALL}},
    {.mesh = "data=4", .rules = "fsdp", .how = {.dtype = CLV_BF16, .f32_gradients = 1}},
    {.mesh = "data=4", .rules = "fsdp", .how = {.compile.recompute = CLV_RECOMPUTE_FULL}},
    {.mesh = "data=4", .rules = "fsdp", .how = {.compile.overlap = 1}},
    {.mesh = "data=2,model=2", .rules = "fsdp+megatron-sp"}};

static clv_trainer *make(clv_model **model, const way *w, int layers)
{
    const clv_model_info sizes = {
        .size = sizeof sizes, .hidden = M, .layers = layers, .heads = 4, .ffn = F, .vocab = 32, .max_positions = SEQ};
    const clv_lr_schedule schedule = {.peak = 0.01, .steps = 1};
    const clv_update_options update = {.size = sizeof update, .clip = 1};
    const clv_trainer_options options = {
        .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .update = &update};
    clv_model_options how = w->how;
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_trainer *trainer;
    must(clv_mesh_parse(&mesh, w->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, w->rules, &mesh, &err), &err);
    how.size = sizeof how;
    how.mesh = &mesh;
    how.rules = &rules;
    must(clv_model_new(model, &sizes, &how, &err), &err);
    must(clv_trainer_new(&trainer, *model, &options, &err), &err);
    return trainer;
}

/* The most bytes of parameters' gradients that a rank has at a time which it has not reduced yet. */
static int64_t most_whole(const clv_program *program)
{
    int64_t most = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        int64_t live = 0;
        for (int b = 0; b < program->n_buffers; b++) {
            const clv_buffer *buffer = &program->buffers[b];
            if (buffer->is_gradient && buffer->shares_with < 0 && clv_layout_is_partial(&buffer->layout) &&
                buffer->type.rank > 1 && buffer->first <= i && i <= buffer->last)
                live += buffer->bytes;
        }
        most = live > most ? live : most;
    }
    return most;
}

static void test_a_layer_at_a_time(void **state)
{
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        int64_t whole[2];
        for (int more = 0; more < 2; more++) {
            clv_model *model;
            clv_trainer *trainer = make(&model, &ways[k], 3 + 3 * more);
            whole[more] = most_whole(clv_trainer_program(trainer));
            clv_trainer_free(trainer);
            clv_model_close(model);
        }
        if (!(whole[0] > 0 && whole[0] < LAYER_BYTES && whole[1] == whole[0]))
            fail_msg("%s by %s, way %zu: of 3 layers %lld bytes are not reduced at once, of 6 %lld; a layer has %d",
                     ways[k].mesh, ways[k].rules, k, (long long)whole[0], (long long)whole[1], LAYER_BYTES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_layer_at_a_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
