/* command.h - the frame of the command line: a table of commands, one line each; one file a command.
 *
 * Exit codes: 0 done; 1 the work failed (I/O, memory, a peer, a check that found a difference); 2 the request was
 * wrong (unknown flag, bad value, shapes that do not fit). Data goes to stdout, talk to stderr.
 */
#ifndef CLEAVE_CLI_COMMAND_H
#define CLEAVE_CLI_COMMAND_H

#include "cleave/status.h"

enum { CLV_EXIT_OK = 0, CLV_EXIT_FAILED = 1, CLV_EXIT_USAGE = 2 };

/* A row of a command table; the last row has name NULL. */
struct clv_command {
    const char *name;    /* "reshard" */
    const char *summary; /* one line, no full stop */
    const char *help;    /* what the command does, ending in an example; its paragraphs are filled */
    /* Runs it: argv[0] is the full name ("cleave bench gemm"), for messages. Returns the exit code. `--help` reaches
     * it too, after the frame has printed `help`: clv_options_parse then lists the options. */
    int (*run)(int argc, char **argv);
    const struct clv_command *commands; /* sub-commands, instead of run */
};

/* Runs what argv names of a row with sub-commands: argv[0] is the path so far, argv[1] one's name. Handles --help. */
int clv_command_dispatch(const struct clv_command *of, int argc, char **argv);

/* A file that says what to do (rules, a machine's profile) is part of the usage: what is wrong with it (that it is not
 * there, or no file, its form, what it asks for, the names in it) is CLV_EINVAL, naming the option. Files that are
 * worked on (models, texts, ids) are not: what is wrong with them fails the work. `status` and `why` as the call that
 * read it left them. */
clv_status clv_command_as_usage(const char *option, clv_status status, const clv_error *why, clv_error *err);

/* Prints "cleave train: message" on stderr; returns the exit code that the status calls for. */
int clv_command_report(const char *command, const clv_error *err);

extern const struct clv_command clv_cleave;           /* commands.c: all */
extern const struct clv_command clv_bench_commands[]; /* bench.c */
int bench_allreduce(int argc, char **argv);
int bench_block(int argc, char **argv);
int bench_generate(int argc, char **argv);
int bench_profile(int argc, char **argv);
int bench_gemm(int argc, char **argv);
int command_einsum(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_embed(int argc, char **argv);
int command_score(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_forward(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_info(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_reshard(int argc, char **argv);
int command_shard(int argc, char **argv);
int command_train(int argc, char **argv);
int command_version(int argc, char **argv);

#endif
