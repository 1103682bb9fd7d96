/* verify_against.c - compares a model's results on a mesh with a reference file of another framework. */
#include "cli/evaluation/verify_against.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/checkpoint.h"
#include "cli/evaluation/comparison_rows.h"
#include "cli/evaluation/forward_run.h"

static bool has_gradients(const clv_checkpoint *file)
{
    clv_tensor_info t = {.size = sizeof t};
    for (int64_t i = 0; clv_checkpoint_tensor(file, i, &t, NULL) == CLV_OK; i++)
        if (strncmp(t.name, "grad.", strlen("grad.")) == 0)
            return true;
    return false;
}

/* Runs into a file of the temporary folder, and opens it. */
static clv_status run(clv_checkpoint **out, const clv_forward_request *given, const char *command, clv_error *err)
{
    const char *folder = getenv("TMPDIR");
    char *path = NULL;
    clv_forward_request job = *given;
    if (asprintf(&path, "%s/cleave-verify-%ld.safetensors", folder ? folder : "/tmp", (long)getpid()) < 0)
        return clv_fail_memory(err, "a file name", 0);
    job.out = path;
    clv_status status = clv_forward_run(&job, command, err);
    if (status == CLV_OK)
        status = clv_checkpoint_open(out, path, NULL, err);
    unlink(path);
    free(path);
    return status;
}

/* Says of an element that is not finite where that begins. */
static void add_beginning(clv_comparison *found, const char *begins)
{
    size_t used = strlen(found->element);
    if (isinf(found->error) && begins[0] != '\0')
        snprintf(found->element + used, sizeof found->element - used, "; it begins at %s", begins);
}

clv_status clv_verify_against(clv_table *table, bool *same, clv_model_option *model, const char *file, double tolerance,
                              const char *command, clv_error *err)
{
    clv_checkpoint *got = NULL, *want;
    clv_comparison found = {.size = sizeof found};
    char begins[CLV_FIRST_NONFINITE_SIZE] = "";
    clv_forward_request job = {
        .begins = begins, .model = model, .ids = file, .allow_other_tensors = true, .allow_nonfinite = true};
    CLV_TRY(clv_checkpoint_open(&want, file, NULL, err));
    job.gradients = has_gradients(want);
    clv_status status = run(&got, &job, command, err);
    if (status == CLV_OK)
        status = clv_evaluation_compare_files(&found, got, want, tolerance, err);
    if (status == CLV_OK) {
        add_beginning(&found, begins);
        *same = clv_comparison_add_row(table, model->mesh.text, &found) && *same;
    }
    clv_checkpoint_close(got);
    clv_checkpoint_close(want);
    return status;
}
