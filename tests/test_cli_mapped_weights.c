/* test_cli_mapped_weights.c - a model's weights under a map: a file that is cut while it is read is an error, and
 * tensors that the model has no use for are noted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/options/model_options.c"
#include "unit_test.h"

#include "models/model.h"
#include "models/weights/parameter_map.h"
#include "runtime/session/rank_threads.h"
#include "temp_folder.h"

static void copy_model(const char *name)
{
    char command[4096];
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(command, sizeof command, "cp '%s/tests/golden/%s/'* %s", source ? source : ".", name, folder);
    assert_int_equal(system(command), 0);
}

/* What each rank does: read every tensor. */
static clv_status read_all(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    const clv_model *model = arg;
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < clv_model_parameter_count(&model->config); i++) {
        clv_parameter p = clv_model_parameter_at(&model->config, i);
        clv_type type = {.dtype = CLV_F32, .rank = p.rank};
        clv_shard box = {.rank = p.rank};
        int known = 0;
        memcpy(type.shape, p.shape, sizeof type.shape);
        memcpy(box.hi, p.shape, sizeof box.hi);
        float *out = malloc((size_t)clv_shard_elems(&box) * sizeof *out);
        status = clv_model_state_source(arg, p.name, &type, &box, out, &known, err);
        if (status == CLV_OK && !known)
            status = CLV_ENOTFOUND;
        free(out);
    }
    return status;
}

static clv_status read_on_ranks(const clv_model *model, clv_error *err)
{
    clv_rank_threads *team = NULL;
    assert_int_equal(clv_rank_threads_new(&team, 2, NULL, NULL), CLV_OK);
    clv_status status = clv_rank_threads_run(team, read_all, (void *)model, err);
    assert_int_equal(clv_rank_threads_free(team, NULL), CLV_OK);
    return status;
}

/* Rank threads read mapped files, and one that ends before it should is a failure that names it. */
static void test_cut_while_mapped(void **state)
{
    char path[512];
    clv_model *model;
    clv_model_option option = {0};
    clv_error err = {0};
    copy_model("llama");
    option.path = folder;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(clv_model_option_open(&model, &option, NULL), CLV_OK);
    assert_int_equal(read_on_ranks(model, NULL), CLV_OK);
    assert_int_equal(truncate(path, 4096), 0);
    for (int i = 0; i < 2; i++, err = (clv_error){0}) { /* twice: the handler serves again */
        assert_int_equal(read_on_ranks(model, &err), CLV_EIO);
        assert_non_null(strstr(err.message, path));
        assert_non_null(strstr(err.message, "cut while open"));
    }
    clv_model_close(model);
}

/* Anywhere else a lost page ends the program, which says so. */
static void test_lost_elsewhere(void **state)
{
    char path[512], said[256] = "";
    int status;
    snprintf(path, sizeof path, "%s/stderr", folder);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen(path, "w", stderr))
            _exit(99);
        handle_lost_pages();
        raise(SIGBUS);
        _exit(98);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), CLV_EXIT_FAILED);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(said, 1, sizeof said - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(said, "SIGBUS"));
}

/* An untied checkpoint with a tied config: the two tables differ, so it stays untied, and no tensor is unused. */
static void test_not_tied(void **state)
{
    clv_model_weights *weights;
    clv_model_config model;
    clv_warnings warnings = {0};
    copy_model("llama");
    assert_int_equal(clv_model_config_read(&model, folder, NULL), CLV_OK);
    model.tie_word_embeddings = true;
    assert_int_equal(
        clv_model_weights_open(&weights, &model, folder, &(clv_model_weights_options){.warnings = &warnings}, NULL),
        CLV_OK);
    assert_int_equal(weights->inventory.n_extra, 0);
    assert_false(weights->config.tie_word_embeddings);
    assert_int_equal(warnings.n, 1);
    assert_non_null(strstr(warnings.text[0], "they are not tied"));
    clv_warnings_free(&warnings);
    clv_model_weights_close(weights);
}

/* All missing tensors are listed at once: an untied model from a folder with tied weights, two layers more. */
static void test_reshard_volume(void **state)
{
    clv_model_weights *weights;
    clv_model_config model;
    clv_error err = {0};
    copy_model("llama");
    assert_int_equal(clv_model_config_read(&model, folder, NULL), CLV_OK);
    model.layers += 2;
    assert_int_equal(clv_model_weights_open(&weights, &model, folder, NULL, &err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "and 17 more are missing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_while_mapped),
        cmocka_unit_test(test_lost_elsewhere),
        cmocka_unit_test(test_not_tied),
        cmocka_unit_test(test_reshard_volume),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
