/* option_parser.h - argv parser driven by a table of options: types, ranges, files, conflicts, --help, did-you-mean.
 *
 *   struct { bool json; int64_t ranks; clv_dtype dtype; } a = {.ranks = 1};
 *   const clv_option options[] = {
 *       CLV_OPT_INT("-tp, --tensor-parallel-size", &a.ranks, 1, 4096, "N", "ranks that split each layer"),
 *       CLV_OPT_ENUM("--dtype", &a.dtype, "f32|bf16", clv_dtype_name, "of weights (f32)", .advanced = true),
 *       CLV_OPT_FLAG("--json", &a.json, "print JSON"),
 *   };
 *   int code = clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
 *   if (code != CLV_OPTIONS_RUN)
 *       return code;
 *
 * Accepts `--name value` and `--name=value`, with one dash or two, and a value attached to a name of one dash: `-n5`.
 * `--` ends the options. A value may begin with a dash unless it is an option's name. Only flags and lists may be
 * repeated. The default is the value of *out before parsing. Checked after parsing: input files exist, outputs can be
 * created and are no input under another name, and no option conflicts with another one.
 *
 * An argument without an option is the value of the next row without dashes, else of the first row with
 * CLV_POSITIONAL_ACCEPTED that was not given by name. Any other one is an error, which suggests the options of
 * CLV_POSITIONAL_SUGGESTED.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum clv_option_kind {
    CLV_OPTION_FLAG,    /* bool: true when present */
    CLV_OPTION_SET,     /* an enum: set to `min` when present */
    CLV_OPTION_INT,     /* int64_t within [min, max]; any when both are 0 */
    CLV_OPTION_REAL,    /* double within [real_min, real_max], finite; any when both are 0 */
    CLV_OPTION_STRING,  /* const char *, into argv */
    CLV_OPTION_CHOICE,  /* const char *, one of the words of `value`, "f32|bf16" */
    CLV_OPTION_ENUM,    /* an enum: one of the words of `value`, by name_of; without that the words are 0, 1, ... */
    CLV_OPTION_STRINGS, /* clv_strings: one value each time the option is given */
    CLV_OPTION_FILES,   /* clv_strings: one or more values, up to the next option; "-" alone is one */
    CLV_OPTION_SIZE,    /* int64_t, positive: "1.5GiB"; K or KiB, M, G, T = 2^10, 2^20, ..., KB, MB, ... = 10^3, ... */
    CLV_OPTION_SIZES,   /* clv_sizes: several sizes, "4K,16MiB,1G" */
    CLV_OPTION_INTS     /* clv_sizes: several integers within [min, max], "1,2,4" */
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

/* What the command does with the file or folder that a value names. */
typedef enum clv_option_use {
    CLV_OPTION_NO_FILE,
    CLV_OPTION_INPUT,
    CLV_OPTION_INPUT_OR_NAME, /* a file, or a built-in name */
    CLV_OPTION_OUTPUT_FILE,
    CLV_OPTION_OUTPUT_FOLDER
} clv_option_use;

/* Whether an argument without an option's name is this option's value. */
typedef enum clv_option_positional {
    CLV_POSITIONAL_NO,
    CLV_POSITIONAL_ACCEPTED, /* yes, unless the option was given by name */
    CLV_POSITIONAL_SUGGESTED /* no, but the error suggests the option */
} clv_option_positional;

typedef struct clv_option {
    const char *names; /* "-n, --n-predict": synonyms; without a dash ("EQUATION"): a positional argument */
    clv_option_kind kind;
    void *out;
    int64_t min, max;
    double real_min, real_max;
    const char *value;                /* placeholder of the value in --help: "N", "DIR"; words of a CHOICE or ENUM */
    const char *(*name_of)(unsigned); /* ENUM: name of an enumerator, as clv_dtype_name; or NULL */
    const char *help;
    bool required;
    bool advanced;      /* shown by `--help all` only */
    bool host_local;    /* may differ between the processes of a job; not compared */
    bool *given;        /* set to true where the option is given, even its default; NULL: nobody asks */
    clv_option_use use; /* of a STRING, STRINGS or FILES */
    const char *suffix; /* ".svg": of an output file; a name with another suffix is an error */
    clv_option_positional positional;
    /* Writes what to add to the error when an input file does not exist, "; ...". NULL: nothing. */
    void (*missing_hint)(char *out, size_t size, const char *value);
    const char *conflicts_with; /* "--dot, --show": options that this one cannot be combined with */
    /* The options that have an effect beside this value, and *what it is; NULL: all have. */
    const char *(*allows)(const char *value, const char **what);
} clv_option;

/* Rows. The last arguments are the help text and, after it, further fields: "help", .advanced = true. */
#define CLV_OPT(kind_, names_, out_, ...)                                                                              \
    {                                                                                                                  \
        .names = names_, .kind = CLV_OPTION_##kind_, .out = out_, .help = __VA_ARGS__                                  \
    }
#define CLV_OPT_FLAG(names_, out_, ...) CLV_OPT(FLAG, names_, out_, __VA_ARGS__)
#define CLV_OPT_SET(names_, out_, enumerator_, ...)                                                                    \
    {                                                                                                                  \
        .names = names_, .kind = CLV_OPTION_SET, .out = out_, .min = (int)(enumerator_), .help = __VA_ARGS__           \
    }
#define CLV_OPT_INT(names_, out_, min_, max_, value_, ...)                                                             \
    {                                                                                                                  \
        .names = names_, .kind = CLV_OPTION_INT, .out = out_, .min = min_, .max = max_, .value = value_,               \
        .help = __VA_ARGS__                                                                                            \
    }
#define CLV_OPT_REAL(names_, out_, min_, max_, value_, ...)                                                            \
    {                                                                                                                  \
        .names = names_, .kind = CLV_OPTION_REAL, .out = out_, .real_min = min_, .real_max = max_, .value = value_,    \
        .help = __VA_ARGS__                                                                                            \
    }
#define CLV_OPT_ENUM(names_, out_, words_, name_of_, ...)                                                              \
    {                                                                                                                  \
        .names = names_, .kind = CLV_OPTION_ENUM, .out = out_, .value = words_, .name_of = name_of_,                   \
        .help = __VA_ARGS__                                                                                            \
    }
/* Of a STRING, CHOICE, STRINGS, FILES, SIZE, SIZES or INTS: kind, names, out, placeholder or words. */
#define CLV_OPT_VALUE(kind_, names_, out_, value_, ...)                                                                \
    {                                                                                                                  \
        .names = names_, .kind = CLV_OPTION_##kind_, .out = out_, .value = value_, .help = __VA_ARGS__                 \
    }
#define CLV_OPT_STRING(names_, out_, value_, ...) CLV_OPT_VALUE(STRING, names_, out_, value_, __VA_ARGS__)
#define CLV_OPT_CHOICE(names_, out_, words_, ...) CLV_OPT_VALUE(CHOICE, names_, out_, words_, __VA_ARGS__)
/* The value names a file or folder, which the command reads. */
#define CLV_OPT_INPUT(names_, out_, value_, ...)                                                                       \
    {                                                                                                                  \
        .names = names_, .kind = CLV_OPTION_STRING, .out = out_, .value = value_, .use = CLV_OPTION_INPUT,             \
        .help = __VA_ARGS__                                                                                            \
    }

/* Returned by clv_options_parse when the command should run; any other value is the exit code to return. */
enum { CLV_OPTIONS_RUN = -1 };

/* Fills the options from argv[1..]; argv[0] is the command's full name. Returns CLV_OPTIONS_RUN; 0 after --help, which
 * lists the options on stdout; 2 after a one-line error on stderr; 1 when an output cannot be created. */
int clv_options_parse(const clv_option *options, int n_options, int argc, char **argv);

/* False for a FLAG and a SET. */
bool clv_option_takes_value(const clv_option *option);
/* The option of that name, "--dtype"; NULL: none. */
const clv_option *clv_option_find(const clv_option *options, int n, const char *name);

enum { CLV_OPTION_NAME_SIZE = 64, CLV_MAX_OPTIONS = 96 /* a command */ };
/* Copies the name at *cursor, which begins as an option's `names`, and moves on; false at the end. */
bool clv_option_next_name(const char **cursor, char name[CLV_OPTION_NAME_SIZE]);

/* Whether --help or -h is among the arguments, before a `--`. */
bool clv_options_wants_help(int argc, char *const *argv);
/* Up to so many options --help shows all; of more, those that are not `advanced`. */
enum { CLV_OPTIONS_SHORT_HELP = 16 };
