/* command.h - sub-command dispatch: the row type of a command table, lookup by name, and printing --help; and what
 * every command includes. Data goes to stdout, talk to stderr.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"
#include "cli/options/output_options.h"
#include "cli/output/exit_code.h"
#include "cli/output/messages.h"
#include "cli/output/table.h"

/* One run of a command. */
typedef struct clv_invocation {
    const char *name; /* "cleave bench gemm", for messages */
    int argc;
    char **argv; /* argv[0] is the name */
    clv_table_format format;
    clv_table *table; /* the result, printed when the command returns CLV_OK; NULL: none */
    int code;         /* the exit code when the command returns CLV_OK */
} clv_invocation;

/* @return a failure, which is printed, and gives the exit code */
typedef clv_status clv_command_fn(clv_invocation *run, clv_error *err);

/* Parses the options of the command. False: the command must return CLV_OK; --help was printed, or an error. */
bool clv_command_parse(clv_invocation *run, const clv_option *options, int n_options);
#define CLV_PARSE(run, options) clv_command_parse(run, options, (int)(sizeof(options) / sizeof(options)[0]))

/* Runs a command: prints its table or its error. Returns the exit code. */
int clv_command_invoke(clv_command_fn *command, int argc, char **argv);

/* A row of a command table; the last row has name NULL. */
struct clv_command {
    const char *name;    /* "reshard" */
    const char *summary; /* one line, no full stop */
    const char *help;    /* what the command does, ending in an example; its paragraphs are filled */
    /* Runs it. `--help` reaches it too, after `help` was printed: clv_command_parse then lists the options. */
    clv_command_fn *run;
    /* Sub-commands, instead of run. With both, run is for options or a path alone ("cleave bench -m DIR"). */
    const struct clv_command *commands;
    bool
        runs_in_job; /* the processes of a job share the work (job_processes.h); else the first process does it alone */
};

/* Runs the sub-command that argv[1] names; argv[0] is the path so far. Handles --help. */
int clv_command_dispatch(const struct clv_command *of, int argc, char **argv);

extern const struct clv_command clv_root_command;     /* command_table.c */
extern const struct clv_command clv_bench_commands[]; /* bench_table.c */

clv_command_fn bench_allreduce, bench_block, bench_forward, bench_generate, bench_llama_table, bench_profile,
    bench_program, bench_search, bench_gemm, command_data, command_einsum, command_generate, command_embed,
    command_score, command_explain, command_export, command_flight, command_forward, command_import, command_verify,
    command_tokenize, command_info, command_merge, command_plan, command_reshard, command_shard, command_trace,
    command_plot, command_train, command_version;
