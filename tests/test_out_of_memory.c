/* test_out_of_memory.c - every allocation fails once: each call then says so (or does without), and leaves nothing
 * behind. The allocator is wrapped at link time (tests/CMakeLists.txt); what libraries allocate inside themselves is
 * not. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "cleave/data.h"
#include "cleave/nn.h"
#include "cleave/op.h"
#include "cleave/session.h"
#include "cleave/generate.h"
#include "golden_path.h"
#include "io/files/atomic_folder.h"
#include "cleave/tokenizer.h"
#include "io/checkpoint/weights.h"
#include "models/weights/model_weights.h"
#include "models/config/model_config.h"
#include "train/trainer.h"
#include "elementwise_op.h"
#include "unit_test.h"

/* ---- the allocator ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
void __wrap_free(void *p);

enum { SLOTS = 1 << 18 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *slots[SLOTS]; /* live objects: open addressing; a freed one leaves a mark */
static char freed;
static int64_t live;
static int64_t countdown = -1; /* allocations until one fails; -1: none does */
static bool failed;

static bool fails(void)
{
    bool now = false;
    pthread_mutex_lock(&lock);
    if (countdown >= 0 && countdown-- == 0)
        now = failed = true;
    pthread_mutex_unlock(&lock);
    return now;
}

static void *note(void *p)
{
    pthread_mutex_lock(&lock);
    for (size_t at = (uintptr_t)p / 16 % SLOTS; p; at = (at + 1) % SLOTS)
        if (!slots[at] || slots[at] == &freed) {
            slots[at] = p;
            live++;
            break;
        }
    pthread_mutex_unlock(&lock);
    return p;
}

static void forget(void *p)
{
    pthread_mutex_lock(&lock);
    for (size_t at = (uintptr_t)p / 16 % SLOTS; p && slots[at]; at = (at + 1) % SLOTS)
        if (slots[at] == p) {
            slots[at] = &freed;
            live--;
            break;
        }
    pthread_mutex_unlock(&lock);
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : note(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : note(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (fails())
        return NULL;
    forget(old);
    return note(__real_realloc(old, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : note(__real_aligned_alloc(alignment, size));
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    int code = fails() ? ENOMEM : __real_posix_memalign(out, alignment, size);
    if (code == 0)
        note(*out);
    return code;
}

void __wrap_free(void *p)
{
    forget(p);
    __real_free(p);
}

/* ---- what is tried ---- */

static clv_status build(clv_program **out, clv_error *err)
{
    clv_mesh mesh;
    clv_graph *graph;
    clv_status status = clv_mesh_parse(&mesh, "model=2", err);
    if (status == CLV_OK)
        status = clv_graph_new(&graph, &mesh, err);
    if (status != CLV_OK)
        return status;
    clv_axis_rules rules = clv_graph_axis_rules(graph, "megatron-sp");
    clv_value x = clv_state(graph, "x", CLV_F32, 3, (int64_t[]){2, 4, 8}, NULL, (clv_init){CLV_INIT_NORMAL, 1});
    clv_block_options o = clv_block_defaults(CLV_BLOCK_LLAMA, 2, 2, 12);
    clv_value y = clv_transformer_block(graph, x, &rules, &o), wrt[32], d[32];
    int n = clv_graph_parameters(graph, wrt, 32);
    clv_value lr = clv_fill(graph, CLV_F32, 0, NULL, 0.1),
              step = clv_cast(graph, clv_fill(graph, CLV_F32, 0, NULL, 1), CLV_I32);
    clv_gradients(graph, y, y, wrt, n, d);
    for (int i = 0; i < n; i++)
        clv_adamw(graph, wrt[i], d[i], lr, step, NULL);
    clv_output(graph, "y", y, NULL);
    status = clv_compile(out, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}

static clv_status compile_only(clv_error *err)
{
    clv_program *program;
    clv_status status = build(&program, err);
    if (status == CLV_OK)
        clv_program_free(program);
    return status;
}

static clv_program *ready;

static clv_status run_with(const clv_session_options *options, clv_error *err)
{
    static float y[2 * 4 * 8];
    clv_session *session;
    clv_output_binding output = {"y", y};
    clv_status status = clv_session_new(&session, clv_program_mesh(ready), options, err);
    if (status != CLV_OK)
        return status;
    status = clv_session_load(session, ready, err);
    if (status == CLV_OK)
        status = clv_session_run(session, ready, NULL, 0, &output, 1, err);
    if (status == CLV_OK)
        status = clv_session_read(session, "x", NULL, y, err);
    clv_session_free(session);
    return status;
}

static clv_status run_session(clv_error *err)
{
    return run_with(NULL, err);
}

static clv_status run_watched(clv_error *err)
{
    return run_with(&(clv_session_options){.check = 1, .find_nonfinite = 1}, err);
}

static clv_status run_by_messages(clv_error *err)
{
    return run_with(&(clv_session_options){.transport = "mailbox"}, err);
}

static clv_status parse_rules(clv_error *err)
{
    static const char text[] = "{\"rules\": [[\"batch\", \"data\"]] /* one */}";
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_status status = clv_mesh_parse(&mesh, "data=2", err);
    return status == CLV_OK ? clv_axis_rules_parse(&rules, text, sizeof text - 1, &mesh, "rules", err) : status;
}

static clv_status open_weights(clv_error *err)
{
    const char *folder = golden_path("llama");
    clv_model_config model;
    clv_weights *weights;
    clv_status status = clv_model_config_read(&model, folder, err);
    if (status == CLV_OK)
        status = clv_weights_open(&weights, folder, err);
    if (status == CLV_OK)
        clv_weights_close(weights);
    return status;
}

static const char *tokenizer; /* of the sources */

static clv_status use_tokenizer(clv_error *err)
{
    static const char text[] = "A test, <m> \xc3\x89t\xc3\xa9 e\xcc\x81\xcc\xa3 \xe6\x97\xa5 MKT ab\xff";
    char path[4096], *back = NULL;
    clv_tokenizer *t;
    int64_t *ids = NULL, n;
    size_t size;
    snprintf(path, sizeof path, "%s/tests/%s", getenv("CLV_SOURCE_DIR"), tokenizer);
    CLV_TRY(clv_tokenizer_open(&t, path, err));
    clv_status status = clv_tokenizer_encode(t, text, sizeof text - 1, true, &ids, &n, err);
    if (status == CLV_OK)
        status = clv_tokenizer_decode(t, ids, n, &back, &size, err);
    free(ids);
    free(back);
    clv_tokenizer_free(t);
    return status;
}

/* ---- proteins as rows of which some tokens are masked ---- */

static clv_tokenizer *of_proteins;

static clv_status open_proteins(clv_error *err)
{
    char path[4096];
    const char *paths[] = {path};
    int32_t ids[16], labels[16];
    uint8_t mask[16];
    clv_data *data;
    const clv_corpus_options corpus = {.size = sizeof corpus, .tokenizer = of_proteins, .threads = 1};
    const clv_mlm_masking masking = {.size = sizeof masking, .mask_id = 32, .tokenizer = of_proteins};
    const clv_data_options options = {.size = sizeof options,
                                      .seq = 16,
                                      .corpus = &corpus,
                                      .masking = &masking,
                                      .one_document_per_row = 1,
                                      .pad_id = 1};
    snprintf(path, sizeof path, "%s/tests/golden/scores/proteins.fasta", getenv("CLV_SOURCE_DIR"));
    CLV_TRY(clv_data_open(&data, paths, 1, &options, err));
    clv_status status = clv_data_batch(data, 0, 1, 0, 1, ids, labels, mask, err);
    clv_data_close(data);
    return status;
}

/* ---- a checkpoint from one form to another ---- */

static char folder[] = "/tmp/cleave_memory_XXXXXX";

/* Cuts every tensor's first dimension. */
static clv_status shard_into(const char *to, const clv_weights *weights, clv_error *err)
{
    clv_sharded_write_options options = {.rules = "none"};
    clv_tensor_placement placements[64];
    CLV_TRY(clv_mesh_parse(&options.mesh, "model=2", err));
    for (int64_t i = 0; i < clv_weights_count(weights); i++) {
        clv_subaxis axis = clv_mesh_whole_axis(&options.mesh, 0);
        placements[i] = clv_placement_on_first_rank(clv_weights_at(weights, i));
        CLV_TRY(clv_layout_set_dim(&placements[i].layout, &options.mesh, 0, &axis, 1, 1, err));
    }
    options.placements = placements;
    return clv_weights_shard(weights, to, &options, err);
}

static clv_status shard(clv_error *err)
{
    clv_weights *weights;
    clv_atomic_folder made;
    char to[64];
    snprintf(to, sizeof to, "%s/sharded", folder);
    CLV_TRY(clv_weights_open(&weights, golden_path("gpt2_untied"), err));
    clv_status status = clv_atomic_folder_open(&made, to, err);
    if (status == CLV_OK) {
        status = shard_into(made.temporary, weights, err);
        clv_atomic_folder_abort(&made, err);
    }
    clv_weights_close(weights);
    return status;
}

/* For the checkpoint at "sharded". */
static clv_status merge(clv_error *err)
{
    clv_weights *weights;
    clv_atomic_folder made;
    char from[64], to[64];
    snprintf(from, sizeof from, "%s/sharded", folder);
    snprintf(to, sizeof to, "%s/merged", folder);
    CLV_TRY(clv_weights_open(&weights, from, err));
    clv_status status = clv_atomic_folder_open(&made, to, err);
    if (status == CLV_OK) {
        status = clv_weights_merge(weights, made.temporary, NULL, NULL, err);
        clv_atomic_folder_abort(&made, err);
    }
    clv_weights_close(weights);
    return status;
}

/* ---- each allocation in turn ---- */

static int64_t stride = 1; /* from one allocation that fails to the next: more where a call makes thousands */

static void every_allocation(clv_status (*what)(clv_error *err), const char *name)
{
    int refused = 0;
    clv_error err = {0};
    assert_int_equal(what(&err), CLV_OK); /* once in peace: libraries keep what they make at first use */
    for (int64_t n = 0;; n += stride) {
        err = (clv_error){0};
        failed = false;
        int64_t before = live;
        countdown = n;
        clv_status status = what(&err);
        countdown = -1;
        if (status != CLV_OK && status != CLV_ENOMEM)
            fail_msg("%s, allocation %lld: status %d, %s", name, (long long)n, (int)status, err.message);
        if (status == CLV_ENOMEM && !strstr(err.message, "memory"))
            fail_msg("%s, allocation %lld: the message is '%s'", name, (long long)n, err.message);
        if (live != before)
            fail_msg("%s, allocation %lld: %lld objects are left", name, (long long)n, (long long)(live - before));
        if (!failed)
            break;
        refused += status == CLV_ENOMEM;
    }
    assert_true(refused > 0);
}

static void test_compile(void **state)
{
    every_allocation(compile_only, "compile");
}

/* ---- an op that is held to what it says: y = x ---- */

static void same_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
    clv_rule_multilinear(rule, 1);
    clv_rule_keeps_partial_max(rule);
}

static void same_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    d_in[0] = clv_scale(graph, d_out[0], 1);
}

static size_t same_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return (size_t)clv_view_elems(&in[0]) * sizeof(float);
}

static clv_status same_run(const clv_call *call, clv_error *err)
{
    size_t bytes = (size_t)clv_view_elems(&call->in[0]) * sizeof(float);
    memcpy(call->workspace, call->in[0].data, bytes);
    memcpy(call->out[0].data, call->workspace, bytes);
    return CLV_OK;
}

static clv_status check_op(clv_error *err)
{
    static const clv_op_def same = {.name = "test.same",
                                    .min_in = 1,
                                    .max_in = 1,
                                    .n_out = 1,
                                    .in_place = {1},
                                    .shape = same_shape,
                                    .rule = same_rule,
                                    .gradient = same_gradient,
                                    .workspace = same_workspace,
                                    .run = same_run};
    const clv_type x = {.dtype = CLV_F32, .rank = 1, .shape = {3}};
    return clv_op_check(&same, NULL, &x, 1, NULL, NULL, err);
}

static void test_op(void **state)
{
    every_allocation(check_op, "an op that is tried");
}

static void test_session(void **state)
{
    clv_error err = {0};
    assert_int_equal(build(&ready, &err), CLV_OK);
    every_allocation(run_session, "session");
    every_allocation(run_watched, "session that checks");
    every_allocation(run_by_messages, "session by messages");
    clv_program_free(ready);
}

/* A run of a loaded program asks for no memory. */
static void test_run(void **state)
{
    clv_error err = {0};
    float y[2 * 4 * 8];
    clv_output_binding output = {"y", y};
    clv_session *session;
    (void)state;
    assert_int_equal(build(&ready, &err), CLV_OK);
    assert_int_equal(clv_session_new(&session, clv_program_mesh(ready), NULL, &err), CLV_OK);
    assert_int_equal(clv_session_load(session, ready, &err), CLV_OK);
    countdown = 0;
    clv_status status = clv_session_run(session, ready, NULL, 0, &output, 1, &err);
    const bool has_allocated = countdown != 0;
    countdown = -1;
    assert_int_equal(status, CLV_OK);
    assert_false(has_allocated);
    clv_session_free(session);
    clv_program_free(ready);
}

static void test_files(void **state)
{
    every_allocation(parse_rules, "rules");
    every_allocation(open_weights, "weights");
}

static void test_tokenizers(void **state)
{
    static const char *const names[] = {"fuzz/corpus/tokenizer/bert",    "fuzz/corpus/tokenizer/words",
                                        "fuzz/corpus/tokenizer/accents", "fuzz/corpus/tokenizer/qwen2",
                                        "fuzz/corpus/tokenizer/roberta", "fuzz/corpus/tokenizer/small",
                                        "golden/tokenizer/esm_vocab",    "golden/tokenizer/bert_vocab_cased"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tokenizer = names[i];
        every_allocation(use_tokenizer, tokenizer);
    }
}

static void test_dataset(void **state)
{
    char path[4096];
    clv_error err = {0};
    snprintf(path, sizeof path, "%s/tests/golden/tokenizer/esm_vocab", getenv("CLV_SOURCE_DIR"));
    assert_int_equal(clv_tokenizer_open(&of_proteins, path, &err), CLV_OK);
    every_allocation(open_proteins, "proteins");
    clv_tokenizer_free(of_proteins);
}

static void test_checkpoints(void **state)
{
    clv_error err = {0};
    clv_weights *weights;
    char to[64], line[128];
    assert_non_null(mkdtemp(folder));
    snprintf(to, sizeof to, "%s/sharded", folder);
    every_allocation(shard, "shard");
    assert_int_equal(clv_weights_open(&weights, golden_path("gpt2_untied"), &err), CLV_OK);
    assert_int_equal(mkdir(to, 0700), 0);
    assert_int_equal(shard_into(to, weights, &err), CLV_OK);
    clv_weights_close(weights);
    every_allocation(merge, "merge");
    snprintf(line, sizeof line, "! ls %s | grep -v '^sharded$' && rm -r %s", folder, folder);
    assert_int_equal(system(line), 0);
}

/* A trainer saves, and goes on; all of it or nothing is there. */
static clv_trainer *saved_trainer, *resumed_trainer;
static const char *saved_folder;

static clv_status save_and_resume(clv_error *err)
{
    const int32_t ids[2] = {1, 2};
    clv_status status = clv_trainer_step(saved_trainer, ids, ids, NULL, NULL, err);
    if (status == CLV_OK)
        status = clv_trainer_set_metadata(saved_trainer, "key", "text", err);
    if (status == CLV_OK)
        status = clv_trainer_checkpoint(saved_trainer, saved_folder, NULL, err);
    if (status == CLV_OK)
        status = clv_trainer_resume(resumed_trainer, saved_folder, NULL, err);
    json_object_clear(saved_trainer->metadata);
    json_object_clear(resumed_trainer->metadata);
    return status;
}

/* Where a copy cannot be had, it is saved all the same. */
static clv_status save_beside(clv_error *err)
{
    const clv_trainer_checkpoint_options options = {.size = sizeof options, .background = 1};
    const int32_t ids[2] = {1, 2};
    clv_status status = clv_trainer_step(saved_trainer, ids, ids, NULL, NULL, err);
    if (status == CLV_OK)
        status = clv_trainer_checkpoint(saved_trainer, saved_folder, &options, err);
    clv_status ended = clv_trainer_checkpoint_finish(saved_trainer, status == CLV_OK ? err : NULL);
    return status == CLV_OK ? ended : status;
}

static void test_trainer(void **state)
{
    static const clv_lr_schedule schedule = {.peak = 1e-5, .floor = 1e-5, .steps = 1000};
    clv_error err = {0};
    clv_model *model;
    clv_mesh mesh;
    clv_model_info small = {
        .hidden = 4, .layers = 1, .heads = 2, .ffn = 4, .vocab = 8, .bos = -1, .pad = -1, .mask = -1};
    char to[64], line[160];
    assert_int_equal(clv_mesh_parse(&mesh, "model=2", &err), CLV_OK);
    clv_model_options options = {.size = sizeof options, .mesh = &mesh};
    assert_int_equal(clv_model_new(&model, &small, &options, &err), CLV_OK);
    clv_trainer_options training = {.batch = 1, .seq = 2, .schedule = &schedule};
    assert_int_equal(clv_trainer_new(&saved_trainer, model, &training, &err), CLV_OK);
    assert_int_equal(clv_trainer_new(&resumed_trainer, model, &training, &err), CLV_OK);
    char in_memory[] = "/dev/shm/cleave_memory_XXXXXX", on_disk[] = "/tmp/cleave_memory_XXXXXX";
    const char *made = mkdtemp(in_memory) ? in_memory : mkdtemp(on_disk);
    assert_non_null(made);
    snprintf(to, sizeof to, "%s/saved", made);
    saved_folder = to;
    stride = 11;
    every_allocation(save_and_resume, "a training's checkpoint");
    every_allocation(save_beside, "a checkpoint beside training");
    stride = 1;
    clv_trainer_free(saved_trainer);
    clv_trainer_free(resumed_trainer);
    clv_model_close(model);
    snprintf(line, sizeof line, "! ls %s | grep -v '^step-[0-9]*$' | grep -v '^latest$' && rm -r %s", to, made);
    assert_int_equal(system(line), 0);
}

/* What is refused when it is half made leaves nothing, either. */
static void test_refused(void **state)
{
    clv_error err = {0};
    clv_model_info info = {.size = sizeof info};
    clv_model *model;
    clv_trainer *trainer;
    clv_generator *generator;
    assert_int_equal(clv_model_open(&model, golden_path("gpt2_untied"), NULL, &err), CLV_OK);
    assert_int_equal(clv_model_get_info(model, &info, &err), CLV_OK);
    int64_t before = live;
    clv_trainer_options training = {.batch = 1, .seq = info.max_positions + 1};
    assert_int_equal(clv_trainer_new(&trainer, model, &training, &err), CLV_EINVAL);
    assert_int_equal(live, before);
    clv_generator_options generation = {.context = info.max_positions + 1};
    err = (clv_error){0};
    assert_int_equal(clv_generator_new(&generator, model, &generation, &err), CLV_EINVAL);
    assert_int_equal(live, before);
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compile),     cmocka_unit_test(test_op),
                                       cmocka_unit_test(test_session),     cmocka_unit_test(test_run),
                                       cmocka_unit_test(test_files),       cmocka_unit_test(test_tokenizers),
                                       cmocka_unit_test(test_checkpoints), cmocka_unit_test(test_trainer),
                                       cmocka_unit_test(test_refused),     cmocka_unit_test(test_dataset)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
