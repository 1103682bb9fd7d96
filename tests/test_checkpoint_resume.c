/* test_checkpoint_resume.c - checkpoints of trainers: what goes on from one makes the losses of the run that was never
 * broken, bit for bit on the same mesh; what is damaged is named and passed over; what is of another model is refused.
 */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleave/train.h"
#include "must.h"
#include "trained_model.h"
#include "temp_folder.h"
#include "unit_test.h"

enum { BATCH = 2, SEQ = 8, STEPS = 8, PATH = 512 };

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

/* The folder's path below the temporary folder; valid for a few calls. */
static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char command[2 * PATH];
    va_list args;
    int n = snprintf(command, sizeof command, "cd %s && ", folder);
    va_start(args, format);
    vsnprintf(command + n, sizeof command - (size_t)n, format, args);
    va_end(args);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

/* ---- trainers ---- */

typedef struct how {
    const char *mesh, *rules; /* NULL: one rank */
    clv_dtype dtype;
} how;

static trained begin(const how *h)
{
    trained t = {.tokens = BATCH * SEQ};
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    must(clv_mesh_parse(&mesh, h->mesh ? h->mesh : "model=1", &err), &err);
    must(clv_axis_rules_preset(&rules, h->rules ? h->rules : "megatron", &mesh, &err), &err);
    clv_model_options options = {.size = sizeof options, .mesh = &mesh, .rules = &rules, .dtype = h->dtype};
    clv_trainer_options training = {
        .size = sizeof training, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .seed = 3};
    must(clv_model_new(&t.model, &sizes, &options, &err), &err);
    must(clv_trainer_new(&t.trainer, t.model, &training, &err), &err);
    return t;
}

static void save(const trained *t, const char *to, int keep)
{
    clv_error err = {0};
    clv_trainer_checkpoint_options options = {.size = sizeof options, .keep = keep};
    must(clv_trainer_checkpoint(t->trainer, to, &options, &err), &err);
}

static clv_resumed resume(const trained *t, const char *from)
{
    clv_error err = {0};
    clv_resumed did = {.size = sizeof did};
    must(clv_trainer_resume(t->trainer, from, &did, &err), &err);
    return did;
}

/* ---- the same losses ---- */

static const how hows[] = {{0},
                           {.mesh = "model=3"},
                           {.mesh = "data=2,model=2", .rules = "fsdp+megatron-sp"},
                           {.mesh = "data=3", .rules = "zero1"},
                           {.mesh = "data=2,model=2", .rules = "megatron", .dtype = CLV_BF16},
                           {.mesh = "model=5"}};
enum { HOWS = sizeof hows / sizeof hows[0] };

static void test_same_mesh(void **state)
{
    for (int i = 0; i < HOWS; i++) {
        double unbroken[STEPS], broken[STEPS];
        const char *to = in_folder("same-%d", i);
        trained t = begin(&hows[i]);
        train(&t, STEPS, unbroken);
        must(clv_trainer_save(t.trainer, in_folder("whole-%d", i), NULL), NULL);
        end(&t);
        t = begin(&hows[i]);
        train(&t, 3, broken);
        save(&t, to, 0);
        train(&t, STEPS, broken); /* saving changes nothing */
        assert_memory_equal(broken, unbroken, sizeof unbroken);
        end(&t);
        t = begin(&hows[i]);
        memset(broken + 3, 0, sizeof broken - 3 * sizeof *broken);
        clv_resumed did = resume(&t, to);
        assert_true(did.found && did.steps == 3 && did.damaged == 0);
        assert_int_equal(clv_trainer_steps_done(t.trainer), 3);
        train(&t, STEPS, broken);
        assert_memory_equal(broken, unbroken, sizeof unbroken);
        must(clv_trainer_save(t.trainer, in_folder("resumed-%d", i), NULL), NULL);
        shell("cmp whole-%d/model.safetensors resumed-%d/model.safetensors", i, i);
        end(&t);
    }
}

/* From every mesh to every other: what is read is what was written, and losses differ by how sums are cut. */
static void test_other_mesh(void **state)
{
    double begun[STEPS], whole[STEPS];
    trained t = begin(&hows[1]);
    train(&t, 3, begun);
    save(&t, in_folder("other"), 0);
    train(&t, STEPS, whole);
    end(&t);
    for (int i = 0; i < HOWS; i++) {
        double losses[STEPS];
        if (hows[i].dtype != CLV_F32)
            continue;
        t = begin(&hows[i]);
        assert_int_equal(resume(&t, in_folder("other")).steps, 3);
        save(&t, in_folder("again-%d", i), 0);
        shell("cmp other/step-00000003/model.safetensors again-%d/step-00000003/model.safetensors", i);
        train(&t, STEPS, losses);
        for (int k = 3; k < STEPS; k++)
            assert_true(fabs(losses[k] - whole[k]) <= 1e-5 * fabs(whole[k]));
        end(&t);
    }
}

/* ---- the folder ---- */

static void test_folder(void **state)
{
    clv_error err = {0};
    double losses[STEPS];
    trained t = begin(&hows[1]);
    clv_resumed none = resume(&t, in_folder("nothing"));
    assert_true(!none.found && none.steps == 0 && clv_trainer_steps_done(t.trainer) == 0);
    must(clv_trainer_set_metadata(t.trainer, "data", "a", &err), &err);
    must(clv_trainer_set_metadata(t.trainer, "data", "b \xc3\xa9", &err), &err);
    assert_null(clv_trainer_get_metadata(t.trainer, "other"));
    for (int i = 1; i <= 5; i++) {
        train(&t, i, losses);
        save(&t, in_folder("kept"), i < 4 ? 0 : 3);
    }
    shell("[ \"$(ls kept | tr '\\n' ' ')\" = 'latest step-00000003 step-00000004 step-00000005 ' ]");
    shell("[ \"$(cat kept/latest)\" = step-00000005 ]");
    /* left by what was killed, and what is not ours */
    shell("mkdir -p kept/step-00000006.tmp-0/optimizer kept/mine kept/step-1 && touch "
          "kept/step-00000006.tmp-0/optimizer/rank");
    train(&t, 6, losses);
    save(&t, in_folder("kept"), 1);
    shell("[ \"$(ls kept | tr '\\n' ' ')\" = 'latest mine step-00000006 step-1 ' ]");
    end(&t);
    t = begin(&hows[0]);
    assert_int_equal(resume(&t, in_folder("kept")).steps, 6);
    assert_string_equal(clv_trainer_get_metadata(t.trainer, "data"), "b \xc3\xa9");
    save(&t, in_folder("kept"), 0); /* it is there */
    end(&t);
}

/* Those of every third step stay, however many are newer. */
static void test_keep_every(void **state)
{
    double losses[STEPS];
    const clv_trainer_checkpoint_options options = {.size = sizeof options, .keep = 1, .keep_every = 3};
    trained t = begin(&hows[0]);
    for (int i = 1; i <= STEPS; i++) {
        train(&t, i, losses);
        must(clv_trainer_checkpoint(t.trainer, in_folder("every"), &options, NULL), NULL);
    }
    shell("[ \"$(ls every | tr '\\n' ' ')\" = 'latest step-00000003 step-00000006 step-00000008 ' ]");
    end(&t);
}

/* A folder of another run: what is there stays, and what is saved is what goes on. */
static void test_another_run(void **state)
{
    double losses[STEPS];
    clv_error err = {0};
    trained t = begin(&hows[0]);
    for (int i = 5; i <= 6; i++) {
        train(&t, i, losses);
        save(&t, in_folder("theirs"), 0);
    }
    end(&t);
    t = begin(&hows[0]);
    train(&t, 2, losses);
    assert_int_equal(clv_trainer_checkpoint(t.trainer, in_folder("theirs"), NULL, &err), CLV_EEXIST);
    assert_non_null(strstr(err.message, "step-00000006"));
    shell("[ \"$(ls theirs | tr '\\n' ' ')\" = 'latest step-00000005 step-00000006 ' ]");
    shell("[ \"$(cat theirs/latest)\" = step-00000006 ]");
    save(&t, in_folder("ours"), 0);
    assert_int_equal(resume(&t, in_folder("theirs")).steps, 6);
    train(&t, 7, losses);
    save(&t, in_folder("theirs"), 0);
    end(&t);
}

/* The same folder by another name; one that is gone; one of as many steps, which stays until the new one is whole. */
static void test_same_step(void **state)
{
    double losses[STEPS];
    struct rlimit limit;
    trained t = begin(&hows[0]);
    train(&t, 2, losses);
    save(&t, in_folder("twice"), 0);
    shell("stat -c %%i twice/step-00000002 >number");
    save(&t, in_folder("twice/"), 0);
    shell("stat -c %%i twice/step-00000002 | cmp number");
    shell("mv twice twice-before");
    save(&t, in_folder("twice"), 0);
    shell("test -d twice/step-00000002");
    end(&t);
    t = begin(&hows[0]);
    train(&t, 2, losses);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 16, .rlim_max = limit.rlim_max});
    clv_status status = clv_trainer_checkpoint(t.trainer, in_folder("twice"), NULL, NULL);
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(status, CLV_EIO);
    shell("test -e twice/step-00000002/trainer.json");
    shell("touch twice/step-00000002/theirs");
    save(&t, in_folder("twice"), 0);
    shell("[ \"$(ls twice | tr '\\n' ' ')\" = 'latest step-00000002 ' ] && test ! -e twice/step-00000002/theirs");
    end(&t);
}

/* ---- damage ---- */

static const char *damaged_file;
static long damaged_size;

/* Files of step 5, of which `what` is left. */
static void expect_passed_over(const char *what)
{
    double losses[STEPS];
    clv_resumed did = {.size = sizeof did};
    clv_error err = {0};
    trained t = begin(&hows[1]);
    clv_status status = clv_trainer_resume(t.trainer, in_folder("torn"), &did, &err);
    if (status != CLV_OK || !did.found || did.steps != 3 || did.damaged != 1)
        fail_msg("%s: %s %s: %d found, %lld steps, %d damaged", damaged_file, what, err.message, did.found,
                 (long long)did.steps, did.damaged);
    const char *name = strrchr(damaged_file, '/') + 1;
    if (!strstr(did.damage.message, name) && !strstr(did.damage.message, "step-00000005"))
        fail_msg("%s, %s: %s", damaged_file, what, did.damage.message);
    train(&t, 4, losses);
    shell("test -d torn/step-00000005.damaged && test ! -e torn/step-00000005");
    end(&t);
}

static void test_damage(void **state)
{
    char path[2 * PATH];
    double losses[STEPS];
    trained t = begin(&hows[1]);
    train(&t, 3, losses);
    save(&t, in_folder("good"), 0);
    train(&t, 5, losses);
    save(&t, in_folder("good"), 0);
    end(&t);
    shell("(cd good/step-00000005 && find . -type f) >files");
    FILE *files = fopen(in_folder("files"), "r");
    assert_non_null(files);
    unsigned seed = 17;
    int n = 0;
    while (fgets(path, sizeof path, files)) {
        path[strcspn(path, "\n")] = '\0';
        damaged_file = path;
        shell("stat -c %%s good/step-00000005/%s >size", path);
        FILE *size = fopen(in_folder("size"), "r");
        assert_true(size && fscanf(size, "%ld", &damaged_size) == 1);
        fclose(size);
        shell("rm -rf torn && cp -r good torn && rm torn/step-00000005/%s", path);
        expect_passed_over("missing");
        shell("rm -rf torn && cp -r good torn && truncate -s %ld torn/step-00000005/%s", damaged_size / 2, path);
        expect_passed_over("cut");
        for (int k = 0; k < 3; k++) {
            long at = k == 0 ? damaged_size - 1 : (long)(rand_r(&seed) % (unsigned)damaged_size);
            shell("rm -rf torn && cp -r good torn");
            int fd = open(in_folder("torn/step-00000005/%s", path), O_RDWR);
            char byte = 0;
            assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
            byte = (char)(byte ^ (1 << rand_r(&seed) % 8));
            assert_true(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
            expect_passed_over("changed");
        }
        n++;
    }
    fclose(files);
    assert_int_equal(n, 7); /* config.json, trainer.json, model.safetensors, cleave.json, three of ranks */
    clv_error err = {0};
    shell("rm -rf torn && cp -r good torn && rm torn/*/trainer.json");
    t = begin(&hows[1]);
    assert_int_equal(clv_trainer_resume(t.trainer, in_folder("torn"), NULL, &err), CLV_EFORMAT);
    assert_non_null(strstr(err.message, "none of its 2 checkpoints can be used; the newest: "));
    end(&t);
}

/* What cannot be set aside stays, and the training goes on, and saves, until a checkpoint takes its place. */
static void test_not_set_aside(void **state)
{
    double losses[STEPS];
    trained t = begin(&hows[1]);
    for (int i = 2; i <= 4; i += 2) {
        train(&t, i, losses);
        save(&t, in_folder("stays"), 0);
    }
    end(&t);
    shell("truncate -s 10 stays/step-00000004/config.json && touch stays/step-00000004.damaged");
    t = begin(&hows[1]);
    clv_resumed did = resume(&t, in_folder("stays"));
    assert_true(did.found && did.steps == 2 && did.damaged == 1);
    assert_non_null(strstr(did.damage.message, "it could not be renamed: "));
    for (int i = 3; i <= 4; i++) {
        train(&t, i, losses);
        save(&t, in_folder("stays"), 1);
    }
    end(&t);
    t = begin(&hows[1]);
    assert_int_equal(resume(&t, in_folder("stays")).steps, 4);
    end(&t);
}

/* Without descriptors to read it with, a whole checkpoint is not damaged: the failure is returned. */
static void test_passing_failure(void **state)
{
    double losses[STEPS];
    struct rlimit limit;
    int failures = 0;
    trained t = begin(&hows[1]);
    for (int i = 2; i <= 3; i++) {
        train(&t, i, losses);
        save(&t, in_folder("passing"), 0);
    }
    end(&t);
    getrlimit(RLIMIT_NOFILE, &limit);
    int first = open("/dev/null", O_RDONLY);
    assert_true(first >= 0 && close(first) == 0);
    for (int more = 1; more < 12; more++) {
        clv_resumed did = {.size = sizeof did};
        t = begin(&hows[1]);
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = (rlim_t)(first + more), .rlim_max = limit.rlim_max});
        clv_status status = clv_trainer_resume(t.trainer, in_folder("passing"), &did, NULL);
        setrlimit(RLIMIT_NOFILE, &limit);
        end(&t);
        assert_true(status == CLV_EIO || (status == CLV_OK && did.steps == 3 && did.damaged == 0));
        failures += status != CLV_OK;
        shell("[ \"$(ls passing | tr '\\n' ' ')\" = 'latest step-00000002 step-00000003 ' ]");
    }
    assert_true(failures >= 2 && failures < 11);
}

/* ---- no room ---- */

/* A failed save leaves nothing, and the training goes on. */
static void test_full(void **state)
{
    struct rlimit limit;
    double losses[STEPS];
    clv_error err = {0};
    trained t = begin(&hows[1]);
    train(&t, 3, losses);
    save(&t, in_folder("full"), 0);
    train(&t, 4, losses);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    struct stat largest;
    assert_int_equal(stat(in_folder("full/step-00000003/model.safetensors"), &largest), 0);
    rlim_t most = (rlim_t)largest.st_size, part = most / 16;
    for (rlim_t bytes = 0; bytes < most; bytes += part) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = bytes, .rlim_max = limit.rlim_max});
        err = (clv_error){0};
        clv_status status = clv_trainer_checkpoint(t.trainer, in_folder("full"), NULL, &err);
        setrlimit(RLIMIT_FSIZE, &limit);
        assert_int_equal(status, CLV_EIO);
        assert_non_null(strstr(err.message, "full/step-00000004"));
        shell("[ \"$(ls full | tr '\\n' ' ')\" = 'latest step-00000003 ' ]");
    }
    save(&t, in_folder("full"), 0);
    train(&t, STEPS, losses);
    end(&t);
}

/* ---- refused ---- */

static void test_refused(void **state)
{
    clv_error err = {0};
    double losses[STEPS];
    clv_model_info other = sizes;
    clv_model *model;
    clv_trainer *trainer;
    clv_trainer_options training = {.batch = BATCH, .seq = SEQ, .schedule = &schedule};
    trained t = begin(&hows[0]);
    assert_int_equal(clv_trainer_checkpoint(NULL, folder, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_checkpoint(t.trainer, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_resume(NULL, folder, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_resume(t.trainer, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_set_metadata(NULL, "a", "b", NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_set_metadata(t.trainer, NULL, "b", NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_set_metadata(t.trainer, "a", "\xff", NULL), CLV_EINVAL);
    assert_null(clv_trainer_get_metadata(NULL, "a"));
    assert_int_equal(clv_trainer_steps_done(NULL), -1);
    clv_trainer_checkpoint_options options = {.keep = -1};
    assert_int_equal(clv_trainer_checkpoint(t.trainer, folder, &options, NULL), CLV_EINVAL);
    options = (clv_trainer_checkpoint_options){.size = sizeof options, .keep_every = -1};
    assert_int_equal(clv_trainer_checkpoint(t.trainer, folder, &options, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_checkpoint(t.trainer, in_folder("no/where"), NULL, &err), CLV_ENOTFOUND);
    train(&t, 1, losses);
    save(&t, in_folder("small"), 0);
    end(&t);
    other.hidden = 36;
    err = (clv_error){0};
    must(clv_model_new(&model, &other, NULL, &err), &err);
    must(clv_trainer_new(&trainer, model, &training, &err), &err);
    assert_int_equal(clv_trainer_resume(trainer, in_folder("small"), NULL, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "the model has hidden 24, this one 36"));
    shell("test -d small/step-00000001");
    clv_trainer_free(trainer);
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_mesh),     cmocka_unit_test(test_other_mesh),      cmocka_unit_test(test_folder),
        cmocka_unit_test(test_another_run),   cmocka_unit_test(test_same_step),       cmocka_unit_test(test_damage),
        cmocka_unit_test(test_not_set_aside), cmocka_unit_test(test_passing_failure), cmocka_unit_test(test_full),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_keep_every)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
