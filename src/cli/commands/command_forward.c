/* command_forward.c - the `cleave forward` command: writes a model's outputs and gradients for given token ids to a
 * file.
 */
#include "cli/command.h"
#include "cli/evaluation/forward_run.h"
#include "cli/evaluation/imported_run.h"
#include "cli/job/job_processes.h"
#include "cli/options/model_options.h"
#include "cli/timing/suspensions.h"

typedef struct forward_args {
    clv_forward_request job;
    clv_model_option model;
} forward_args;

static bool parse(forward_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OR_PROGRAM_OPTION(&a->model.path),
        CLV_OPT_INPUT(
            "--ids, --inputs", &a->job.ids, "FILE",
            "safetensors with integers ids [B,S] and, optionally, mask (0: padding) and token_types; of a program its "
            "arguments by name",
            .required = true, .positional = CLV_POSITIONAL_ACCEPTED),
        CLV_OUT_OPTION(&a->job.out, "FILE", FILE,
                       "output safetensors: hidden.last [B,S,M], logits [B,S,V] and, for decoders and two tokens or "
                       "more, loss [1], all f32; of a program its results by name; and the inputs",
                       .required = true),
        CLV_OPT_FLAG(
            "--grad", &a->job.gradients,
            "also grad.<name>, the gradient of the loss, for every tensor of the checkpoint, or parameter of a "
            "program"),
        CLV_ALLOW_NONFINITE_OPTION(&a->job.allow_nonfinite),
        CLV_TRACE_OUT_OPTION(&a->job.trace_out, NULL, "write a trace of the run to FILE, for cleave trace"),
        CLV_NO_PATTERNS_OPTION(&a->model.no_patterns),
        CLV_MODEL_RUN_OPTIONS(&a->model),
        CLV_LAYOUTS_OPTION(&a->model.mesh, "--rules"),
    };
    return CLV_PARSE(run, options);
}

/* The results of a program, which stand for all that a model's options ask for. */
static clv_status run_program(forward_args *a, double *seconds, clv_error *err)
{
    clv_imported_run run;
    const clv_import_options what = {
        .size = sizeof what, .gradients_of = a->job.gradients ? "" : NULL, .no_patterns = a->model.no_patterns};
    if (a->job.trace_out)
        return clv_fail(err, CLV_EINVAL, "--trace-out has no effect on a program: it has its results");
    clv_status status = clv_imported_run_execute(&run, &a->model, a->job.ids, 0, &what, 1, err);
    if (status == CLV_OK && !a->job.allow_nonfinite)
        status = clv_imported_check_finite(&run, err);
    clv_suggest_allow_nonfinite(err);
    if (status == CLV_OK)
        status = clv_imported_write(&run, a->job.out, err);
    if (status == CLV_OK)
        clv_imported_note_mesh(run.compiled);
    *seconds = run.seconds ? run.seconds[0] : 0;
    clv_imported_run_free(&run);
    return status;
}

clv_status command_forward(clv_invocation *run, clv_error *err)
{
    forward_args a = {0};
    double seconds;
    if (!parse(&a, run))
        return CLV_OK;
    a.job.model = &a.model;
    a.job.out = clv_processes_output_path(a.job.out);
    a.job.seconds = &seconds;
    if (clv_import_is_program(a.model.path))
        CLV_TRY(run_program(&a, &seconds, err));
    else
        CLV_TRY(clv_forward_run(&a.job, run->name, err));
    fprintf(stderr, "ran in %.3f s%s\n", seconds, clv_suspensions_note());
    return CLV_OK;
}
