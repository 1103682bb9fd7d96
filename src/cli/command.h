/* command.h - sub-command dispatch: the row type of a command table, lookup by name, and printing --help. Data goes
 * to stdout, talk to stderr.
 */
#ifndef CLEAVE_CLI_COMMAND_H
#define CLEAVE_CLI_COMMAND_H

#include <stdbool.h>

#include "cli/output/exit_code.h"

/* A row of a command table; the last row has name NULL. */
struct clv_command {
    const char *name;    /* "reshard" */
    const char *summary; /* one line, no full stop */
    const char *help;    /* what the command does, ending in an example; its paragraphs are filled */
    /* Runs it: argv[0] is the full name ("cleave bench gemm"), for messages. Returns the exit code. `--help` reaches
     * it too, after the frame has printed `help`: clv_options_parse then lists the options. */
    int (*run)(int argc, char **argv);
    /* Sub-commands, instead of run; with it run is what options or a path alone mean ("cleave bench -m DIR"). */
    const struct clv_command *commands;
    bool runs_in_job; /* that several processes may have (job_processes.h); of another command the first does all */
};

/* Runs what argv names of a row with sub-commands: argv[0] is the path so far, argv[1] one's name. Handles --help. */
int clv_command_dispatch(const struct clv_command *of, int argc, char **argv);

extern const struct clv_command clv_root_command;     /* command_table.c: all */
extern const struct clv_command clv_bench_commands[]; /* bench_table.c */
int bench_allreduce(int argc, char **argv);
int bench_block(int argc, char **argv);
int bench_forward(int argc, char **argv);
int bench_generate(int argc, char **argv);
int bench_llama_table(int argc, char **argv);
int bench_profile(int argc, char **argv);
int bench_gemm(int argc, char **argv);
int command_data(int argc, char **argv);
int command_einsum(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_embed(int argc, char **argv);
int command_score(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_flight(int argc, char **argv);
int command_forward(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_info(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_reshard(int argc, char **argv);
int command_shard(int argc, char **argv);
int command_trace(int argc, char **argv);
int command_plot(int argc, char **argv);
int command_train(int argc, char **argv);
int command_version(int argc, char **argv);

#endif
