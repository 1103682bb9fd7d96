/* forward.c - cleave forward: a model's outputs and gradients for given ids, as a file: to compare with any other
 * system. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/forward_run.h"
#include "cli/model_option.h"
#include "cli/options.h"
#include "cli/output_option.h"
#include "cli/processes.h"
#include "cli/results.h"
#include "cli/stops.h"
#include "cli/trace_option.h"

typedef struct forward_args {
    clv_forward_job job;
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
         .use = CLV_OPTION_READS,
         .bare = CLV_BARE_TAKEN,
         .help = "safetensors with ids [B,S] and, optionally, mask (1, and 0 = padding) and token_types, integers; "
                 "nothing else"},
        CLV_OUT_OPTION(
            &a->job.out, "FILE", NULL, CLV_OPTION_WRITES, true,
            "safetensors for hidden.last [B,S,M], logits [B,S,V] and, of decoders given two tokens, loss [1], all "
            "f32; "
            "and ids, mask, token_types as they were given"),
        {.names = "--grad",
         .kind = CLV_OPTION_FLAG,
         .out = &a->job.gradients,
         .help = "also grad.<name> of the loss for every tensor of the checkpoint, in its shape"},
        CLV_RESULTS_OPTION(&a->job.allow_nonfinite),
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
    a.job.out = clv_processes_out(a.job.out);
    a.job.seconds = &seconds;
    if (clv_forward_run(&a.job, argv[0], &err) != CLV_OK)
        return clv_command_report(argv[0], &err);
    fprintf(stderr, "ran in %.3f s%s\n", seconds, clv_stops_note());
    return CLV_EXIT_OK;
}
