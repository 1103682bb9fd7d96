/* test_checkpoint_background.c - checkpoints that are written while steps go on: they are what those are that the
 * training waits for, byte for byte, and change nothing of it; a failure is told later, and nothing is left of it. */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"
#include "trained_model.h"
#include "temp_folder.h"
#include "runtime/multi_process/multi_process.h"
#include "train/trainer_state.h"
#include "unit_test.h"

enum { BATCH = 2, SEQ = 8, STEPS = 8, COMMAND = 1024 };

static const clv_model_info sizes = {.hidden = 24,
                                     .layers = 1,
                                     .heads = 6,
                                     .kv_heads = 3,
                                     .ffn = 30,
                                     .vocab = 50,
                                     .max_positions = 16,
                                     .bos = -1,
                                     .pad = -1,
                                     .mask = -1};
static const clv_lr_schedule schedule = {.peak = 0.01, .floor = 0.001, .warmup = 1, .steps = STEPS};

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...)
{
    char command[COMMAND];
    va_list args;
    int n = snprintf(command, sizeof command, "cd %s && ", folder);
    va_start(args, format);
    vsnprintf(command + n, sizeof command - (size_t)n, format, args);
    va_end(args);
    return system(command);
}

/* ---- trainers ---- */

typedef struct how {
    const char *mesh, *rules; /* NULL: one rank */
    clv_dtype dtype;
    clv_optimizer optimizer;
} how;

static const how hows[] = {{0},
                           {.mesh = "model=3"},
                           {.mesh = "data=2,model=2", .rules = "fsdp+megatron-sp"},
                           {.mesh = "data=3", .rules = "zero1"},
                           {.mesh = "data=2,model=2", .rules = "megatron", .dtype = CLV_BF16},
                           {.mesh = "model=5", .optimizer = CLV_OPTIMIZER_SGD}};
enum { HOWS = sizeof hows / sizeof hows[0] };

static trained begin(const how *h)
{
    trained t = {.tokens = BATCH * SEQ};
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    must(clv_mesh_parse(&mesh, h->mesh ? h->mesh : "model=1", &err), &err);
    must(clv_axis_rules_preset(&rules, h->rules ? h->rules : "megatron", &mesh, &err), &err);
    const clv_update_options update = {.size = sizeof update, .optimizer = h->optimizer};
    clv_model_options options = {.size = sizeof options, .mesh = &mesh, .rules = &rules, .dtype = h->dtype};
    clv_trainer_options training = {
        .size = sizeof training, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .seed = 3, .update = &update};
    must(clv_model_new(&t.model, &sizes, &options, &err), &err);
    must(clv_trainer_new(&t.trainer, t.model, &training, &err), &err);
    return t;
}

static clv_status save(const trained *t, const char *to, bool background, clv_error *err)
{
    const clv_trainer_checkpoint_options options = {.size = sizeof options, .background = background};
    return clv_trainer_checkpoint(t->trainer, to, &options, err);
}

/* ---- a latch that the writer waits at ---- */

typedef struct latch {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool open;
    int waited; /* writers that came */
} latch;

static latch door = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wait_at(void *arg)
{
    latch *l = arg;
    pthread_mutex_lock(&l->mutex);
    l->waited++;
    while (!l->open)
        pthread_cond_wait(&l->changed, &l->mutex);
    pthread_mutex_unlock(&l->mutex);
}

static void set(latch *l, bool open)
{
    pthread_mutex_lock(&l->mutex);
    l->open = open;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
}

/* Nothing is written before the latch opens. */
static void hold(const trained *t)
{
    set(&door, false);
    t->trainer->on_checkpoint_write = wait_at;
    t->trainer->on_checkpoint_write_arg = &door;
}

/* ---- the same ---- */

/* Written when five more steps are done, and the notes are others. */
static void test_same(void **state)
{
    for (int i = 0; i < HOWS; i++) {
        double waited[STEPS], went[STEPS];
        clv_error err = {0};
        trained t = begin(&hows[i]);
        train(&t, 3, waited);
        must(clv_trainer_set_metadata(t.trainer, "data", "of step 3", &err), &err);
        must(save(&t, in_folder("waited-%d", i), false, &err), &err);
        assert_int_equal(clv_trainer_checkpoint_in_progress(t.trainer), -1);
        train(&t, STEPS, waited);
        end(&t);
        t = begin(&hows[i]);
        hold(&t);
        train(&t, 3, went);
        must(clv_trainer_set_metadata(t.trainer, "data", "of step 3", &err), &err);
        must(save(&t, in_folder("went-%d", i), true, &err), &err);
        must(clv_trainer_set_metadata(t.trainer, "data", "of another", &err), &err);
        for (int step = 4; step <= STEPS; step++) {
            train(&t, step, went);
            must(clv_trainer_checkpoint_poll(t.trainer, &err), &err);
            assert_int_equal(clv_trainer_checkpoint_in_progress(t.trainer), 3);
        }
        assert_true(shell("ls went-%d | grep -v tmp", i) != 0); /* it is not there */
        set(&door, true);
        must(clv_trainer_checkpoint_finish(t.trainer, &err), &err);
        assert_int_equal(clv_trainer_checkpoint_in_progress(t.trainer), -1);
        assert_int_equal(shell("diff -r waited-%d went-%d", i, i), 0);
        assert_memory_equal(went, waited, sizeof waited);
        end(&t);
    }
}

/* What plan says that the copy takes. */
static void test_bytes(void **state)
{
    for (int i = 0; i < HOWS; i++) {
        clv_error err = {0};
        clv_memory memory = {.size = sizeof memory};
        clv_session *copy;
        trained t = begin(&hows[i]);
        must(clv_program_memory(clv_trainer_program(t.trainer), &memory, &err), &err);
        must(clv_session_snapshot(&copy, clv_trainer_session(t.trainer), clv_trainer_state_is_saved, t.trainer, &err),
             &err);
        assert_int_equal(clv_session_rank_bytes(copy), memory.checkpoint_copy);
        assert_int_equal(memory.checkpoint_copy, memory.parameters + memory.optimizer);
        clv_session_free(copy);
        end(&t);
    }
}

/* ---- the next one, and the end ---- */

static void test_one_at_a_time(void **state)
{
    double losses[STEPS];
    clv_error err = {0};
    clv_resumed did = {.size = sizeof did};
    trained t = begin(&hows[1]);
    for (int step = 1; step <= 4; step++) {
        train(&t, step, losses);
        must(save(&t, in_folder("each"), true, &err), &err);
        assert_int_equal(clv_trainer_checkpoint_in_progress(t.trainer), step);
    }
    must(save(&t, in_folder("each"), true, &err), &err); /* waits for it, and finds it there */
    assert_int_equal(clv_trainer_checkpoint_in_progress(t.trainer), -1);
    assert_int_equal(shell("[ \"$(ls each | tr '\\n' ' ')\" = 'latest step-00000003 step-00000004 ' ]"), 0);
    train(&t, 5, losses);
    must(save(&t, in_folder("each"), true, &err), &err);
    must(clv_trainer_resume(t.trainer, in_folder("each"), &did, &err), &err);
    assert_int_equal(did.steps, 5);
    train(&t, 6, losses);
    must(save(&t, in_folder("each"), true, &err), &err);
    end(&t); /* waits, too */
    assert_int_equal(shell("[ \"$(ls each | tr '\\n' ' ')\" = 'latest step-00000005 step-00000006 ' ]"), 0);
    t = begin(&hows[0]);
    must(clv_trainer_resume(t.trainer, in_folder("each"), &did, &err), &err);
    assert_true(did.steps == 6 && did.damaged == 0);
    end(&t);
}

/* A child of fork has no thread to wait for, and leaves the files to its parent. */
static void test_fork(void **state)
{
    double losses[STEPS];
    clv_error err = {0};
    int code = -1;
    trained t = begin(&hows[0]);
    hold(&t);
    train(&t, 1, losses);
    must(save(&t, in_folder("forked"), true, &err), &err);
    pid_t child = fork();
    if (child == 0) {
        clv_trainer_free(t.trainer);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    set(&door, true);
    must(clv_trainer_checkpoint_finish(t.trainer, &err), &err);
    assert_int_equal(shell("ls forked/step-00000001/trainer.json"), 0);
    end(&t);
}

/* ---- no memory ---- */

static int64_t most_available = -1;

int64_t __real_clv_available_memory(void);
int64_t __wrap_clv_available_memory(void);
int64_t __wrap_clv_available_memory(void)
{
    int64_t is = __real_clv_available_memory();
    return most_available >= 0 ? most_available : is;
}

/* Without it for the copy it is written at once. */
static void test_no_memory(void **state)
{
    double losses[STEPS];
    clv_error err = {0};
    trained t = begin(&hows[1]);
    clv_memory memory = {.size = sizeof memory};
    must(clv_program_memory(clv_trainer_program(t.trainer), &memory, &err), &err);
    assert_true(__real_clv_available_memory() > 3 * memory.checkpoint_copy);
    train(&t, 1, losses);
    most_available = 2 * memory.checkpoint_copy; /* not for three ranks */
    must(save(&t, in_folder("tight"), true, &err), &err);
    assert_int_equal(clv_trainer_checkpoint_in_progress(t.trainer), -1);
    assert_int_equal(shell("ls tight/step-00000001/trainer.json"), 0);
    most_available = 3 * memory.checkpoint_copy;
    train(&t, 2, losses);
    must(save(&t, in_folder("tight"), true, &err), &err);
    assert_int_equal(clv_trainer_checkpoint_in_progress(t.trainer), 2);
    most_available = -1;
    end(&t);
}

/* ---- a failure ---- */

/* A failure in the background is reported by the call that finds it; steps go on, and the next checkpoint is written.
 * */
static void test_full(void **state)
{
    struct rlimit limit;
    double losses[STEPS];
    clv_error err = {0};
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    trained t = begin(&hows[1]);
    hold(&t);
    train(&t, 2, losses);
    must(save(&t, in_folder("full"), true, &err), &err);
    train(&t, 4, losses);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 2000, .rlim_max = limit.rlim_max});
    set(&door, true);
    clv_status status = clv_trainer_checkpoint_finish(t.trainer, &err);
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(status, CLV_EIO);
    assert_non_null(strstr(err.message, "full/step-00000002/"));
    assert_int_equal(shell("[ -z \"$(ls full)\" ]"), 0);
    err = (clv_error){0};
    must(clv_trainer_checkpoint_finish(t.trainer, &err), &err); /* it was reported */
    must(save(&t, in_folder("full"), true, &err), &err);
    train(&t, STEPS, losses);
    must(clv_trainer_checkpoint_finish(t.trainer, &err), &err);
    assert_int_equal(shell("[ \"$(ls full | tr '\\n' ' ')\" = 'latest step-00000004 ' ]"), 0);
    end(&t);
}

static void test_refused(void **state)
{
    clv_error err = {0};
    trained t = begin(&hows[0]);
    must(clv_trainer_checkpoint_poll(t.trainer, &err), &err); /* there is none */
    must(clv_trainer_checkpoint_finish(t.trainer, &err), &err);
    assert_int_equal(clv_trainer_checkpoint_poll(NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_checkpoint_finish(NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_checkpoint_in_progress(NULL), -1);
    assert_int_equal(save(&t, in_folder("no/where"), true, NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_trainer_checkpoint_in_progress(t.trainer), -1);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),      cmocka_unit_test(test_bytes), cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_fork),      cmocka_unit_test(test_full),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
