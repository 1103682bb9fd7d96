/* option_parser.h - argv parser driven by a table of options: types, ranges, files, conflicts, --help, did-you-mean.
 *
 *   struct { bool json; int64_t ranks; const char *mesh; } a = {.ranks = 1};
 *   const clv_option options[] = {
 *       {.names = "-tp, --tensor-parallel-size", .kind = CLV_OPTION_INT, .out = &a.ranks, .min = 1, .max = 4096,
 *        .value = "N", .help = "ranks that split each layer"},
 *       {.names = "--mesh", .kind = CLV_OPTION_STRING, .out = &a.mesh, .value = "AXES", .help = "data=2,model=4"},
 *       {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a.json, .help = "print JSON"},
 *   };
 *   int code = clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
 *   if (code != CLV_OPTIONS_RUN)
 *       return code;
 *
 * Accepted: `--name value` and `--name=value`; a name may be written with one dash or two, and a value stand right
 * behind a name that the table writes with one: `-n5`. Behind `--` there are no options. A value may start with a dash
 * unless it is itself an option's name. Only flags and lists may be given again. Defaults are what *out holds
 * before. A file that an option reads is there, and is not what another one writes to, under any name; and what is
 * written can be made where it is to be. An option that would have no effect is refused: its row says beside which
 * (conflicts_with), or the command finds out.
 *
 * An argument without an option before it is the value of a row without dashes; then of the first row whose name may be
 * left out (bare), and whose name was not given. What is left over is refused, with the options that it may have been
 * meant for.
 */
#ifndef CLEAVE_CLI_PARSER_OPTION_PARSER_H
#define CLEAVE_CLI_PARSER_OPTION_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum clv_option_kind {
    CLV_OPTION_FLAG,    /* bool: true when present */
    CLV_OPTION_INT,     /* int64_t within [min, max]; any when both are 0 */
    CLV_OPTION_REAL,    /* double within [real_min, real_max], finite; any when both are 0 */
    CLV_OPTION_STRING,  /* const char *, into argv */
    CLV_OPTION_CHOICE,  /* const char *, one of the words of `value`, "f32|bf16" */
    CLV_OPTION_STRINGS, /* clv_strings: one value each time the option is given */
    CLV_OPTION_FILES,   /* clv_strings: one or more values, up to the next option; "-" alone is one */
    CLV_OPTION_SIZE,    /* int64_t, positive: "1.5GiB"; K or KiB, M, G, T = 2^10, 2^20, ..., KB, MB, ... = 10^3, ... */
    CLV_OPTION_SIZES,   /* clv_sizes: some of them, "4K,16MiB,1G" */
    CLV_OPTION_INTS     /* clv_sizes: some integers within [min, max], "1,2,4" */
} clv_option_kind;

enum { CLV_STRINGS_MAX = 256, CLV_SIZES_MAX = 64 };

typedef struct clv_strings {
    int n;
    const char *item[CLV_STRINGS_MAX]; /* into argv */
} clv_strings;

typedef struct clv_sizes {
    int n;
    int64_t item[CLV_SIZES_MAX];
} clv_sizes;

/* What a command does with the file or folder that a value names. */
typedef enum clv_option_use {
    CLV_OPTION_NO_FILE,
    CLV_OPTION_INPUT,
    CLV_OPTION_INPUT_OR_NAME, /* a file, or something that is known by this name */
    CLV_OPTION_OUTPUT_FILE,   /* a file */
    CLV_OPTION_OUTPUT_FOLDER  /* a folder */
} clv_option_use;

/* What an option is to an argument that no option's name stands before. */
typedef enum clv_option_positional {
    CLV_POSITIONAL_NO,
    CLV_POSITIONAL_ACCEPTED, /* that is its value, where it has none by name */
    CLV_POSITIONAL_SUGGESTED /* that was probably meant, and is asked for */
} clv_option_positional;

typedef struct clv_option {
    const char *names; /* "-n, --n-predict": any of them; without a dash ("EQUATION") it is the next bare argument */
    clv_option_kind kind;
    void *out;
    int64_t min, max;
    double real_min, real_max;
    const char *value; /* what help calls the value: "N", "DIR"; a CHOICE's words */
    const char *help;
    bool required;
    bool advanced;      /* of a long list: only `--help all` tells of it */
    bool host_local;    /* processes of a job may have it each their own, or compare it themselves */
    clv_option_use use; /* of a STRING, STRINGS or FILES */
    const char *suffix; /* ".svg": of what it writes; a name that ends in another one is refused */
    clv_option_positional bare;
    /* What is added when a file that it reads is not there: "; ...", or "". NULL: nothing. */
    void (*missing_hint)(char *out, size_t size, const char *value);
    const char
        *conflicts_with; /* "--dot, --show": those that leave it nothing to say; given with one of them it is refused */
} clv_option;

/* clv_options_parse's answer for "go on"; other values are the exit code to return. */
enum { CLV_OPTIONS_RUN = -1 };

/* Fills the options from argv[1..]; argv[0] is the command's full name. Returns CLV_OPTIONS_RUN; or 0 after --help,
 * having listed the options on stdout; or 2 after a one-line message on stderr that says what is valid; or 1 where what
 * is to be written has no place. */
int clv_options_parse(const clv_option *options, int n_options, int argc, char **argv);

/* Copies the name that *cursor, at first an option's names, stands at, and moves on; false at the end. */
enum { CLV_OPTION_NAME_SIZE = 64, CLV_MAX_OPTIONS = 96 /* a command */ };
bool clv_option_next_name(const char **cursor, char name[CLV_OPTION_NAME_SIZE]);

/* Whether --help or -h is among the arguments, before a `--`. */
bool clv_options_wants_help(int argc, char *const *argv);
/* Of a long list --help shows the options that are wanted mostly; `--help all` all. */
enum { CLV_OPTIONS_SHORT_HELP = 16 };

#endif
