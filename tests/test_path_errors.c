/* test_path_errors.c - paths that cannot be read or written: each function that takes one returns what its header says,
 * with a message that names the path.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "byte_model.h"
#include "cleave/cleave.h"
#include "must.h"
#include "sweep.h"
#include "temp_folder.h"

static clv_error err;
static clv_model *model; /* of the folder "model" */
static clv_trainer *trainer;
static clv_session *session; /* with its weights */
static clv_evaluation *evaluation;

/* What a call makes, if it does not fail; then it must not be modified. */
static void *made = &err;
#define MADE(type) ((type **)&made)

/* ---- reading ---- */

static clv_status read_checkpoint(const char *path)
{
    return clv_checkpoint_open(MADE(clv_checkpoint), path, NULL, &err);
}
static clv_status read_corpus(const char *path)
{
    return clv_corpus_tokenize(NULL, in_folder("out.bin"), &path, 1, NULL, &err);
}
static clv_status read_data(const char *path)
{
    return clv_data_open(MADE(clv_data), &path, 1, &(clv_data_options){0}, &err);
}
static clv_status read_flight(const char *path)
{
    return clv_flight_read(MADE(clv_flight_report), &path, 1, &err);
}
static clv_status read_machine(const char *path)
{
    return clv_machine_open(MADE(clv_machine), path, NULL, &err);
}
static clv_status read_model(const char *path)
{
    return clv_model_open(MADE(clv_model), path, NULL, &err);
}
static clv_status read_plan(const char *path)
{
    return clv_plan_compile(MADE(clv_program), &(clv_plan_options){.model = path}, &err);
}
static clv_status read_rules(const char *path)
{
    clv_axis_rules out;
    return clv_axis_rules_read(&out, path, clv_model_mesh(model), &err);
}
static clv_status read_sequences(const char *path)
{
    return clv_sequences_read(MADE(clv_sequences), model, path, NULL, &err);
}
static clv_status read_text(const char *path)
{
    size_t size;
    return clv_text_read(MADE(char), &size, path, 1, &err);
}
static clv_status read_tokenizer(const char *path)
{
    return clv_tokenizer_open(MADE(clv_tokenizer), path, &err);
}
static clv_status read_tokenizer_kind(const char *path)
{
    char out[64];
    return clv_tokenizer_kind(out, sizeof out, path, &err);
}
static clv_status read_trace(const char *path)
{
    return clv_trace_read(MADE(clv_trace_report), path, &err);
}
static clv_status read_merge(const char *path)
{
    return clv_checkpoint_merge(path, in_folder("merged"), NULL, &err);
}
static clv_status read_copy(const char *path)
{
    return clv_tokenizer_copy(path, folder, &err);
}
static clv_status read_resume(const char *path)
{
    return clv_trainer_resume(trainer, path, NULL, &err);
}

/* ---- writing ---- */

static clv_status write_checkpoint(const char *path)
{
    clv_checkpoint_writer *out;
    CLV_TRY(clv_checkpoint_create(&out, path, &err));
    clv_status status = clv_checkpoint_add_tensor(out, "x", CLV_F32, 1, (int64_t[]){1}, &err);
    if (status == CLV_OK)
        status = clv_checkpoint_write(out, 0, NULL, &(float){1}, &err);
    clv_status last = clv_checkpoint_commit(out, &err);
    return status != CLV_OK ? status : last;
}
static clv_status write_tokens(const char *path)
{
    clv_token_writer *out;
    CLV_TRY(clv_token_writer_create(&out, path, &(clv_token_writer_options){.vocab = 4}, &err));
    clv_status status = clv_token_writer_add(out, (int32_t[]){1, 2, 3}, NULL, 3, &err);
    clv_status last = clv_token_writer_commit(out, &err);
    return status != CLV_OK ? status : last;
}
static clv_status write_corpus(const char *path)
{
    const char *text = in_folder("text");
    return clv_corpus_tokenize(NULL, path, &text, 1, NULL, &err);
}
static clv_status write_evaluation(const char *path)
{
    return clv_evaluation_write(evaluation, path, &err);
}
static clv_status write_flight(const char *path)
{
    return clv_flight_write(session, path, &err);
}
static clv_status write_machine(const char *path)
{
    clv_machine *machine;
    must(clv_machine_open(&machine, "tpu-v2-8", NULL, &err), &err);
    clv_status status = clv_machine_write(machine, path, &err);
    clv_machine_free(machine);
    return status;
}
static clv_status write_trace(const char *path)
{
    must(clv_trace_begin(session, &err), &err);
    return clv_trace_end(session, &(clv_trace_options){.path = path}, &err);
}
static clv_status write_bytes(const char *path)
{
    return clv_tokenizer_write_bytes(path, &err);
}
static clv_status write_copy(const char *path)
{
    return clv_tokenizer_copy(in_folder("model"), path, &err);
}
static clv_status write_model(const char *path)
{
    return clv_model_save(model, session, path, &err);
}
static clv_status write_trained(const char *path)
{
    return clv_trainer_save(trainer, path, &err);
}
static clv_status write_step(const char *path)
{
    return clv_trainer_checkpoint(trainer, path, NULL, &err);
}
static clv_status write_shards(const char *path)
{
    return clv_checkpoint_shard(model, path, NULL, &err);
}
static clv_status write_merged(const char *path)
{
    return clv_checkpoint_merge(in_folder("shards"), path, NULL, &err);
}

/* ---- the paths ---- */

static void put(const char *path, const char *text, off_t size)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(truncate(path, size), 0); /* longer: a hole, which takes no space */
}

static void expect(clv_status got, clv_status want, const char *call, const char *path)
{
    if (got != CLV_OK && made != &err)
        fail_msg("%s of %s: on failure what is to be made is modified", call, path);
    if (got != want || (want != CLV_OK && !strstr(err.message, path)))
        fail_msg("%s of %s: %s, not %s: '%s'", call, path, clv_status_name(got), clv_status_name(want), err.message);
    err = (clv_error){0};
}

typedef clv_status path_call(const char *path);

/* What each returns for a path that is not there, for one through a file, and for a file of `limit` bytes and one more
 * (0: it has none, or takes a folder). */
static void test_reading(void **state)
{
    static const struct {
        const char *name;
        path_call *call;
        clv_status absent, through;
        int64_t limit;
    } rows[] = {
        {"clv_checkpoint_open", read_checkpoint, CLV_ENOTFOUND, CLV_EIO, 0},
        {"clv_corpus_tokenize", read_corpus, CLV_ENOTFOUND, CLV_EIO, 0},
        {"clv_data_open", read_data, CLV_ENOTFOUND, CLV_EIO, 0},
        {"clv_flight_read", read_flight, CLV_ENOTFOUND, CLV_EIO, 256 << 20},
        {"clv_machine_open", read_machine, CLV_ENOTFOUND, CLV_EIO, 4 << 20},
        {"clv_model_open", read_model, CLV_ENOTFOUND, CLV_EIO, 0},
        {"clv_plan_compile", read_plan, CLV_ENOTFOUND, CLV_EIO, 1 << 20},
        {"clv_axis_rules_read", read_rules, CLV_ENOTFOUND, CLV_EIO, 1 << 20},
        {"clv_sequences_read", read_sequences, CLV_ENOTFOUND, CLV_EIO, 0},
        {"clv_text_read", read_text, CLV_ENOTFOUND, CLV_EIO, 0},
        {"clv_tokenizer_open", read_tokenizer, CLV_ENOTFOUND, CLV_EIO, 256 << 20},
        {"clv_trace_read", read_trace, CLV_ENOTFOUND, CLV_EIO, 1 << 30},
        {"clv_tokenizer_copy", read_copy, CLV_ENOTFOUND, CLV_EIO, 0},
        {"clv_checkpoint_merge", read_merge, CLV_ENOTFOUND, CLV_ENOTFOUND, 0},
        {"clv_trainer_resume", read_resume, CLV_OK, CLV_EIO, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *absent = in_folder("absent"), *through = in_folder("file/x"), *large = in_folder("large");
        expect(rows[i].call(absent), rows[i].absent, rows[i].name, absent);
        expect(rows[i].call(through), rows[i].through, rows[i].name, through);
        if (rows[i].limit > 0) {
            put(large, "{", rows[i].limit + 1);
            expect(rows[i].call(large), CLV_ELIMIT, rows[i].name, large);
            put(large, "{", rows[i].limit < 8 << 20 ? rows[i].limit : 2);
            expect(rows[i].call(large), CLV_EFORMAT, rows[i].name, large);
        }
    }
    if (sweep_is_whole()) { /* it is read */
        const char *large = in_folder("large");
        put(large, "{", (1 << 30) + 1);
        expect(read_text(large), CLV_ELIMIT, "clv_text_read", large);
        remove(large);
    }
}

/* What each returns for a path in a folder that is not there, through a file, and for a folder (CLV_OK: it fills
 * it), and for what takes nothing that is written. */
static void test_writing(void **state)
{
    static const struct {
        const char *name;
        path_call *call;
        clv_status absent, through, in_a_folder, full;
    } rows[] = {
        {"clv_checkpoint_create", write_checkpoint, CLV_ENOTFOUND, CLV_EIO, CLV_EINVAL, CLV_EIO},
        {"clv_token_writer_create", write_tokens, CLV_ENOTFOUND, CLV_EIO, CLV_EINVAL, CLV_EIO},
        {"clv_corpus_tokenize", write_corpus, CLV_ENOTFOUND, CLV_EIO, CLV_EINVAL, CLV_EIO},
        {"clv_evaluation_write", write_evaluation, CLV_ENOTFOUND, CLV_EIO, CLV_EINVAL, CLV_EIO},
        {"clv_flight_write", write_flight, CLV_ENOTFOUND, CLV_EIO, CLV_EINVAL, CLV_EIO},
        {"clv_machine_write", write_machine, CLV_ENOTFOUND, CLV_EIO, CLV_EINVAL, CLV_EIO},
        {"clv_trace_end", write_trace, CLV_ENOTFOUND, CLV_EIO, CLV_EINVAL, CLV_EIO},
        {"clv_tokenizer_write_bytes", write_bytes, CLV_ENOTFOUND, CLV_EIO, CLV_OK, CLV_EIO},
        {"clv_tokenizer_copy", write_copy, CLV_ENOTFOUND, CLV_EIO, CLV_OK, CLV_EIO},
        {"clv_model_save", write_model, CLV_EIO, CLV_EIO, CLV_OK, CLV_EIO},
        {"clv_trainer_save", write_trained, CLV_EIO, CLV_EIO, CLV_OK, CLV_EIO},
        {"clv_trainer_checkpoint", write_step, CLV_ENOTFOUND, CLV_EIO, CLV_OK, CLV_EIO},
        {"clv_checkpoint_shard", write_shards, CLV_ENOTFOUND, CLV_EIO, CLV_EINVAL, CLV_EINVAL},
        {"clv_checkpoint_merge", write_merged, CLV_ENOTFOUND, CLV_EIO, CLV_EINVAL, CLV_EINVAL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *absent = in_folder("absent/x"), *through = in_folder("file/x");
        expect(rows[i].call(absent), rows[i].absent, rows[i].name, absent);
        expect(rows[i].call(through), rows[i].through, rows[i].name, through);
        expect(rows[i].call(folder), rows[i].in_a_folder, rows[i].name, folder);
        expect(rows[i].call("/dev/full"), rows[i].full, rows[i].name, "/dev/full");
    }
}

/* ---- files of a model's folder ---- */

static clv_model *opened; /* of the folder "copy", before its file is spoilt */

static clv_status use_generation_config(const char *path)
{
    (void)path;
    return clv_model_generation_config(opened, &(clv_generation_config){0}, &err);
}
static clv_status use_tokenizer(const char *path)
{
    const clv_tokenizer *out;
    (void)path;
    return clv_model_tokenizer(&out, opened, &err);
}
static clv_status use_masking(const char *path)
{
    (void)path;
    return clv_model_mlm_masking(&(clv_mlm_masking){0}, opened, NULL, &err);
}
static clv_status use_unknown_keys(const char *path)
{
    char out[64];
    (void)path;
    return clv_model_unknown_keys(out, sizeof out, opened, &err);
}
static clv_status use_checkpoint_quant(const char *path)
{
    clv_quant out;
    (void)path;
    return clv_model_checkpoint_quant(&out, opened, &err);
}

/* A file that is a link to itself, is larger than is read, or is a folder. */
static void test_files_of_a_model(void **state)
{
    enum { LOOP, LARGE, FOLDER };
    static const struct {
        const char *name;
        path_call *call;
        const char *file;
        int how;
        clv_status want;
    } rows[] = {
        {"clv_model_open", read_model, "config.json", LOOP, CLV_EIO},
        {"clv_model_open", read_model, "config.json", LARGE, CLV_ELIMIT},
        {"clv_model_open", read_model, "config.json", FOLDER, CLV_EFORMAT},
        {"clv_model_open", read_model, "model.safetensors", FOLDER, CLV_EFORMAT},
        {"clv_checkpoint_open", read_checkpoint, "model.safetensors", FOLDER, CLV_EFORMAT},
        {"clv_tokenizer_open", read_tokenizer, "tokenizer.json", FOLDER, CLV_EFORMAT},
        {"clv_tokenizer_kind", read_tokenizer_kind, "tokenizer.json", FOLDER, CLV_EFORMAT},
        {"clv_model_generation_config", use_generation_config, "generation_config.json", LOOP, CLV_EIO},
        {"clv_model_generation_config", use_generation_config, "generation_config.json", LARGE, CLV_ELIMIT},
        {"clv_model_tokenizer", use_tokenizer, "tokenizer.json", FOLDER, CLV_EFORMAT},
        {"clv_model_mlm_masking", use_masking, "tokenizer.json", FOLDER, CLV_EFORMAT},
        {"clv_model_unknown_keys", use_unknown_keys, "config.json", LOOP, CLV_EIO},
        {"clv_model_checkpoint_quant", use_checkpoint_quant, "model.safetensors", FOLDER, CLV_EFORMAT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *copy = in_folder("copy"), *file = in_folder("copy/%s", rows[i].file);
        char command[600];
        snprintf(command, sizeof command, "rm -rf %s; cp -r %s %s; rm -f %s", copy, in_folder("model"), copy, file);
        assert_int_equal(system(command), 0);
        assert_int_equal(symlink(in_folder("model/%s", rows[i].file), file), 0);
        must(clv_model_open(&opened, copy, &(clv_model_options){.config_only = true}, &err), &err);
        assert_int_equal(remove(file), 0);
        if (rows[i].how == LOOP)
            assert_int_equal(symlink(file, file), 0);
        else if (rows[i].how == FOLDER)
            assert_int_equal(mkdir(file, 0777), 0);
        else
            put(file, "{", (1 << 20) + 1);
        expect(rows[i].call(copy), rows[i].want, rows[i].name, rows[i].file);
        clv_model_close(opened);
    }
}

/* A checkpoint whose file is cut after it was opened. */
static void test_cut_while_open(void **state)
{
    clv_checkpoint *checkpoint;
    const char *path = in_folder("model/model.safetensors");
    float out[4096];
    (void)state;
    must(clv_checkpoint_open(&checkpoint, path, NULL, &err), &err);
    assert_int_equal(truncate(path, 16), 0);
    expect(clv_checkpoint_read(checkpoint, 0, NULL, CLV_F32, out, &err), CLV_EIO, "clv_checkpoint_read", path);
    clv_checkpoint_close(checkpoint);
}

static int set_up(void **state)
{
    const clv_evaluate_options once = {.batch = 1, .seq = 4, .ids = (int32_t[]){1, 2, 3, 4}};
    if (make_folder(state) != 0)
        return -1;
    model = byte_model(in_folder("model"));
    must(clv_trainer_new(&trainer, model, &byte_model_step, &err), &err);
    session = clv_trainer_session(trainer);
    must(clv_evaluate(&evaluation, model, &once, &err), &err);
    must(clv_checkpoint_shard(model, in_folder("shards"), NULL, &err), &err);
    put(in_folder("text"), "some text", 9);
    put(in_folder("file"), "", 0);
    return 0;
}

static int tear_down(void **state)
{
    clv_evaluation_free(evaluation);
    clv_trainer_free(trainer);
    clv_model_close(model);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_writing),
        cmocka_unit_test(test_files_of_a_model),
        cmocka_unit_test(test_cut_while_open),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
