/* command_forward.c - the `cleave forward` command: writes a model's outputs and gradients for given token ids to a
 * file.
 */
#include <stdio.h>

#include "cli/command.h"
#include "cli/evaluation/comparison_rows.h"
#include "cli/evaluation/forward_run.h"
#include "cli/job/job_processes.h"
#include "cli/options/model_options.h"
#include "cli/options/output_options.h"
#include "cli/options/trace_option.h"
#include "cli/parser/option_parser.h"
#include "cli/timing/suspensions.h"

typedef struct forward_args {
    clv_forward_request job;
    clv_model_option model;
} forward_args;

static int parse(forward_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "checkpoint: a folder with config.json and safetensors"),
        {.names = "--ids",
         .kind = CLV_OPTION_STRING,
         .out = &a->job.ids,
         .value = "FILE",
         .required = true,
         .use = CLV_OPTION_INPUT,
         .bare = CLV_POSITIONAL_ACCEPTED,
         .help = "safetensors with ids [B,S] and, optionally, mask (1, and 0 = padding) and token_types, integers; "
                 "nothing else"},
        CLV_OUT_OPTION(
            &a->job.out, "FILE", NULL, CLV_OPTION_OUTPUT_FILE, true,
            "safetensors for hidden.last [B,S,M], logits [B,S,V] and, of decoders given two tokens, loss [1], all "
            "f32; "
            "and ids, mask, token_types as they were given"),
        {.names = "--grad",
         .kind = CLV_OPTION_FLAG,
         .out = &a->job.gradients,
         .help = "also grad.<name> of the loss for every tensor of the checkpoint, in its shape"},
        CLV_ALLOW_NONFINITE_OPTION(&a->job.allow_nonfinite),
        CLV_TRACE_OUT_OPTION(&a->job.trace_out, NULL, "write a trace of the run there, for cleave trace"),
        CLV_MODEL_RUN_OPTIONS(&a->model),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

int command_forward(int argc, char **argv)
{
    forward_args a = {.model = CLV_MODEL_DEFAULTS};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    double seconds;
    a.job.model = &a.model;
    a.job.out = clv_processes_output_path(a.job.out);
    a.job.seconds = &seconds;
    if (clv_forward_run(&a.job, argv[0], &err) != CLV_OK)
        return clv_command_print_error(argv[0], &err);
    fprintf(stderr, "ran in %.3f s%s\n", seconds, clv_suspensions_note());
    return CLV_EXIT_OK;
}
