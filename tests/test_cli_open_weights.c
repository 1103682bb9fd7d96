/* test_cli_open_weights.c - weights under a map: a file that is cut while it is read is an error, and tensors that the
 * model has no use for are noted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "cli/open_weights.c"

#include "models/parameters.h"

static char folder[] = "/tmp/cleave_test_XXXXXX";

static void copy_model(const char *name)
{
    char command[4096];
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(command, sizeof command, "cp '%s/tests/golden/%s/'* %s", source ? source : ".", name, folder);
    assert_int_equal(system(command), 0);
}

static void read_all(clv_checkpoint *weights, const clv_model *model)
{
    for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
        clv_parameter p = clv_model_parameter_at(model, i);
        clv_type type = {.dtype = CLV_F32, .rank = p.rank};
        clv_shard box = {.rank = p.rank};
        memcpy(type.shape, p.shape, sizeof type.shape);
        memcpy(box.hi, p.shape, sizeof box.hi);
        float *out = malloc((size_t)clv_shard_elems(&box) * sizeof *out);
        int known;
        assert_int_equal(clv_checkpoint_source(weights, p.name, &type, &box, out, &known, NULL), CLV_OK);
        assert_true(known);
        free(out);
    }
}

/* What the child does: open, lose the file's end, read. Standard error goes to a file. */
static void read_cut_file(bool cut)
{
    char path[512];
    clv_model model;
    clv_checkpoint *weights;
    snprintf(path, sizeof path, "%s/stderr", folder);
    if (!freopen(path, "w", stderr) || clv_model_read(&model, folder, NULL) != CLV_OK ||
        clv_open_weights(&weights, &model, folder, "cleave test", NULL) != CLV_OK)
        _exit(99);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (cut && truncate(path, 4096) != 0)
        _exit(98);
    read_all(weights, &model);
    clv_checkpoint_close(weights);
    fclose(stderr);
    _exit(0);
}

static int run_child(char *said, size_t size, bool cut)
{
    char path[512];
    int status;
    pid_t child = fork();
    if (child == 0)
        read_cut_file(cut);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    snprintf(path, sizeof path, "%s/stderr", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    said[fread(said, 1, size - 1, f)] = '\0';
    fclose(f);
    return WEXITSTATUS(status);
}

static void test_cut_while_mapped(void **state)
{
    char said[1024];
    (void)state;
    copy_model("llama");
    assert_int_equal(run_child(said, sizeof said, false), 0);
    assert_string_equal(said, "");
    assert_int_equal(run_child(said, sizeof said, true), CLV_EXIT_FAILED);
    assert_non_null(strstr(said, "cleave test: "));
    assert_non_null(strstr(said, folder));
    assert_non_null(strstr(said, "cut while open"));
}

/* An untied checkpoint read as a tied model: its output projection is left over. */
static void test_extra(void **state)
{
    clv_checkpoint *weights;
    clv_model model;
    const char *first;
    (void)state;
    copy_model("llama");
    assert_int_equal(clv_model_read(&model, folder, NULL), CLV_OK);
    model.tie_word_embeddings = true;
    assert_int_equal(clv_checkpoint_open(&weights, &model, folder, NULL, NULL), CLV_OK);
    assert_int_equal(clv_checkpoint_extra(weights, &first), 1);
    assert_string_equal(first, "lm_head.weight");
    clv_checkpoint_close(weights);
}

/* All that is missing is told at once: an untied model from a folder with tied weights, two layers more. */
static void test_missing(void **state)
{
    clv_checkpoint *weights;
    clv_model model;
    clv_error err = {0};
    (void)state;
    copy_model("llama");
    assert_int_equal(clv_model_read(&model, folder, NULL), CLV_OK);
    model.layers += 2;
    assert_int_equal(clv_checkpoint_open(&weights, &model, folder, NULL, &err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "and 17 more are missing"));
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[512];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_while_mapped),
        cmocka_unit_test(test_extra),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
