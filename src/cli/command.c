/* command.c - sub-command dispatch: the row type of a command table, lookup by name, and printing --help. */
#include "cli/command.h"

#include <unistd.h>

#include "cli/job/job_processes.h"
#include "cli/output/terminal.h"
#include "cli/output/word_wrap.h"
#include "cli/parser/did_you_mean.h"

static void print_commands(FILE *to, const char *path, const struct clv_command *of)
{
    fprintf(to, "Usage: %s COMMAND [OPTION...]\n\nCommands:\n", path);
    for (const struct clv_command *c = of->commands; c->name != NULL; c++)
        clv_print_wrapped(to, c->summary, strlen(c->summary), fprintf(to, "  %-12s", c->name), 15, CLV_TERMINAL_WIDTH);
    fprintf(to, "\n");
    clv_print_help(to, of->help);
    fprintf(to, "\nSee '%s COMMAND --help' for the options of a command.\n", path);
}

static int unknown_command(const struct clv_command *commands, const char *path, const char *name)
{
    const char *names[64];
    int n = 0;

    for (const struct clv_command *c = commands; c->name != NULL && n < 64; c++)
        names[n++] = c->name;

    const char *nearest = clv_did_you_mean(name, names, n);
    char valid[512] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(valid);
        snprintf(valid + used, sizeof valid - used, " %s", names[i]);
    }
    if (nearest != NULL)
        clv_log("%s: unknown command '%s'; did you mean '%s'? Valid:%s", path, name, nearest, valid);
    else
        clv_log("%s: unknown command '%s'. Valid:%s", path, name, valid);
    return CLV_EXIT_USAGE;
}

static bool asks_for_help(const char *name)
{
    return strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
}

static const struct clv_command *find_command(const struct clv_command *of, const char *name)
{
    for (const struct clv_command *c = of->commands; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

/* An option, or a path: "-m", "runs/first", an existing folder. */
static bool begins_a_run(const char *word)
{
    return !asks_for_help(word) && (word[0] == '-' || strchr(word, '/') != NULL || access(word, F_OK) == 0);
}

/* Whether the arguments name a sub-command, or ask for one; a row with `run` runs unless one is named. */
static bool wants_commands(const struct clv_command *c, int argc, char **argv)
{
    return c->commands != NULL &&
           (c->run == NULL || argc < 3 || find_command(c, argv[2]) != NULL || !begins_a_run(argv[2]));
}

bool clv_command_parse(clv_invocation *run, const clv_option *options, int n_options)
{
    int code = clv_options_parse(options, n_options, run->argc, run->argv);
    run->code = code == CLV_OPTIONS_RUN ? CLV_EXIT_OK : code;
    return code == CLV_OPTIONS_RUN;
}

int clv_command_invoke(clv_command_fn *command, int argc, char **argv)
{
    clv_invocation run = {.name = argv[0], .argc = argc, .argv = argv};
    clv_error err = {0};
    if (command(&run, &err) != CLV_OK) {
        clv_table_free(run.table);
        return clv_command_print_error(run.name, &err);
    }
    int code = run.table ? clv_table_finish(run.table, &run.format) : CLV_EXIT_OK;
    return code == CLV_EXIT_OK ? run.code : code;
}

static int run_command(const struct clv_command *c, int argc, char **argv)
{
    char path[96];

    snprintf(path, sizeof path, "%s %s", argv[0], c->name);
    argv[1] = path;
    if (wants_commands(c, argc, argv))
        return clv_command_dispatch(c, argc - 1, argv + 1);
    if (clv_options_wants_help(argc - 1, argv + 1)) {
        char line[512];
        snprintf(line, sizeof line, "%s: %s.", path, c->summary);
        clv_print_wrapped(stdout, line, strlen(line), 0, 0, CLV_TERMINAL_WIDTH);
        printf("\n");
        clv_print_help(stdout, c->help);
        printf("\n");
    }
    if (!c->runs_in_job && !clv_processes_is_first())
        return CLV_EXIT_OK;
    clv_processes_allow_several(c->runs_in_job);
    return clv_command_invoke(c->run, argc - 1, argv + 1);
}

/* --version and -V are the command version. */
static const char *alias_of(const char *name)
{
    return strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 ? "version" : name;
}

/* help NAME...: what the --help of the last one prints; argv[1] is "help". */
static int help_on(const struct clv_command *of, int argc, char **argv)
{
    static char help[] = "--help";

    if (argc == 2 || (argc == 3 && strcmp(argv[2], "all") == 0)) {
        print_commands(stdout, argv[0], of);
        return CLV_EXIT_OK;
    }
    const struct clv_command *c = find_command(of, argv[2]);
    if (c == NULL)
        return unknown_command(of->commands, argv[0], argv[2]);
    bool all = argc == 4 && strcmp(argv[3], "all") == 0;
    if (c->commands == NULL && argc > 3 && !all) {
        clv_log("%s help %s: unexpected argument '%s'; valid: a command, or a command and 'all'", argv[0], argv[2],
                argv[3]);
        return CLV_EXIT_USAGE;
    }
    argv[1] = argv[2];
    argv[2] = help;
    return run_command(c, argc, argv);
}

int clv_command_dispatch(const struct clv_command *of, int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stderr, argv[0], of);
        return CLV_EXIT_USAGE;
    }
    if (asks_for_help(argv[1]))
        return help_on(of, argc, argv);
    const struct clv_command *c = find_command(of, alias_of(argv[1]));
    return c != NULL ? run_command(c, argc, argv) : unknown_command(of->commands, argv[0], argv[1]);
}
