/* option_parser.c - argv parser driven by a table of options: types, ranges, files, conflicts, --help, did-you-mean. */
#include "cli/parser/option_parser.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "cli/job/job_processes.h"
#include "cli/job/option_consistency.h"
#include "cli/output/exit_code.h"
#include "cli/output/messages.h"
#include "cli/output/terminal.h"
#include "cli/output/word_wrap.h"
#include "cli/parser/did_you_mean.h"
#include "cli/parser/output_path.h"

enum { NAME_SIZE = CLV_OPTION_NAME_SIZE, MAX_NAMES = 128 };

typedef struct parser {
    const clv_option *options;
    int n;
    const char *command;
    int argc;
    char **argv;
    int next;   /* the argument to read */
    bool ended; /* a "--" was read */
    int n_bare; /* arguments without an option, which are kept at the begin of argv */
    bool seen[CLV_MAX_OPTIONS];
    char given[CLV_MAX_OPTIONS][NAME_SIZE]; /* the name by which it was given; "": not given */
} parser;

/* ---- names ---- */

static const char *bare(const char *name)
{
    return name + strspn(name, "-");
}

bool clv_option_next_name(const char **cursor, char name[NAME_SIZE])
{
    const char *p = *cursor + strspn(*cursor, ", ");
    size_t length = strcspn(p, ", ");

    if (length == 0 || length >= NAME_SIZE)
        return false;
    memcpy(name, p, length);
    name[length] = '\0';
    *cursor = p + length;
    return true;
}

static bool is_positional(const clv_option *o)
{
    return o->names[0] != '-';
}

bool clv_option_takes_value(const clv_option *o)
{
    return o->kind != CLV_OPTION_FLAG && o->kind != CLV_OPTION_SET;
}

/* Whether the first `length` bytes of `arg` are one of the option's names, with one dash or two. */
static bool has_name(const clv_option *o, const char *arg, size_t length)
{
    const char *cursor = o->names;
    size_t dashes = strspn(arg, "-");
    char name[NAME_SIZE];

    if (is_positional(o) || dashes == 0 || dashes > 2 || dashes > length)
        return false;
    while (clv_option_next_name(&cursor, name))
        if (strlen(bare(name)) == length - dashes && strncmp(bare(name), arg + dashes, length - dashes) == 0)
            return true;
    return false;
}

const clv_option *clv_option_find(const clv_option *options, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (has_name(&options[i], name, strlen(name)))
            return &options[i];
    return NULL;
}

/* The option that the first `length` bytes of `arg` name; -1: none. */
static int find_name(const parser *p, const char *arg, size_t length)
{
    for (int i = 0; i < p->n; i++)
        if (has_name(&p->options[i], arg, length))
            return i;
    return -1;
}

static int find(const parser *p, const char *arg)
{
    return find_name(p, arg, strcspn(arg, "="));
}

/* Whether an argument of one dash is a slip away from a long name: `-promt` is no `-p romt`. */
static bool is_close_to_long_name(const parser *p, const char *arg)
{
    size_t letters = strlen(bare(arg));
    int most = letters < 4 ? 0 : letters == 4 ? 1 : 2; /* two letters that changed places are two edits */

    for (int i = 0; i < p->n; i++) {
        const char *cursor = p->options[i].names;
        char name[NAME_SIZE];
        while (!is_positional(&p->options[i]) && clv_option_next_name(&cursor, name))
            if (name[1] == '-' && clv_edit_distance(bare(arg), bare(name)) <= most)
                return true;
    }
    return false;
}

/* Whether text attached to an option's name can be its value: `-tpp` is not -tp. */
static bool can_be_value(const clv_option *o, const char *text)
{
    bool is_text = o->kind == CLV_OPTION_STRING || o->kind == CLV_OPTION_STRINGS || o->kind == CLV_OPTION_FILES ||
                   o->kind == CLV_OPTION_CHOICE || o->kind == CLV_OPTION_ENUM;

    return clv_option_takes_value(o) && (is_text || strchr("+-.0123456789", text[0]) != NULL);
}

/* The option of one dash that `arg` begins with, its value behind it: `-n5`; -1: none. The longest name counts. */
static int find_attached(const parser *p, const char *arg, size_t *length)
{
    int found = -1;

    if (arg[1] == '-' || is_close_to_long_name(p, arg))
        return -1;
    for (int i = 0; i < p->n; i++) {
        const char *cursor = p->options[i].names;
        char name[NAME_SIZE];
        while (clv_option_next_name(&cursor, name)) {
            size_t n = strlen(name);
            bool begins = name[0] == '-' && name[1] != '-' && strncmp(arg, name, n) == 0;
            if (begins && can_be_value(&p->options[i], arg + n) && (found < 0 || n > *length)) {
                found = i;
                *length = n;
            }
        }
    }
    return found;
}

/* ---- complaints ---- */

static int usage_error(const parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int usage_error(const parser *p, const char *format, ...)
{
    char what[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    clv_log("%s: %s", p->command, what);
    clv_command_record_failure(CLV_EINVAL, what);
    return CLV_EXIT_USAGE;
}

/* Whether a text has a word, as it is or in the plural. */
static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = text; (at = strcasestr(at, word)) != NULL; at += n)
        if ((at == text || !isalpha((unsigned char)at[-1])) && !isalpha((unsigned char)at[n + (at[n] == 's')]) &&
            at[n] != '=')
            return true;
    return false;
}

/* Whether a long name begins with a word of several, or ends with it: "--trace" of --trace-out. */
static bool has_part(const char *name, const char *word)
{
    size_t n = strlen(word), length = strlen(bare(name));

    if (n >= length)
        return false;
    const char *end = bare(name) + length - n;
    return (strncmp(bare(name), word, n) == 0 && bare(name)[n] == '-') || (end[-1] == '-' && strcmp(end, word) == 0);
}

/* The option that was probably meant: a name of which it is a part, or nearly the same, else one whose help speaks of
 * the word; "" where there is none. */
static void find_suggestion(const parser *p, const char *given, char meant[NAME_SIZE])
{
    char text[MAX_NAMES][NAME_SIZE];
    const char *names[MAX_NAMES] = {"--help"};
    int n = 1;

    for (int i = 0; i < p->n; i++) {
        const char *cursor = p->options[i].names;
        while (!is_positional(&p->options[i]) && n < MAX_NAMES && clv_option_next_name(&cursor, text[n])) {
            names[n] = text[n];
            n++;
        }
    }
    const char *nearest = NULL;
    for (int i = 0; i < n && nearest == NULL && strlen(bare(given)) >= 4; i++)
        nearest = has_part(names[i], bare(given)) ? names[i] : NULL;
    if (nearest == NULL)
        nearest = clv_did_you_mean(given, names, n);
    snprintf(meant, NAME_SIZE, "%s", nearest != NULL ? nearest : "");
    for (int i = 0; i < p->n && meant[0] == '\0' && strlen(bare(given)) >= 4; i++) {
        const char *cursor = p->options[i].names;
        if (is_positional(&p->options[i]) || !has_word(p->options[i].help, bare(given)))
            continue;
        while (clv_option_next_name(&cursor, meant)) /* the last name is the long one */
            ;
    }
}

static int unknown_option(const parser *p, const char *arg)
{
    char given[NAME_SIZE], meant[NAME_SIZE] = "";

    snprintf(given, sizeof given, "%.*s", (int)strcspn(arg, "="), arg);
    find_suggestion(p, given, meant);
    return usage_error(p, "unknown option '%s'%s%s%s Valid: see '%s --help'", given,
                       meant[0] ? "; did you mean '" : ".", meant, meant[0] ? "'?" : "", p->command);
}

/* ---- values ---- */

static int set_int(const parser *p, const clv_option *o, const char *name, const char *text)
{
    char *end;
    bool any = o->min == 0 && o->max == 0;

    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || (!any && (v < o->min || v > o->max))) {
        if (any)
            return usage_error(p, "%s takes an integer, not '%s'", name, text);
        return usage_error(p, "%s takes an integer from %lld to %lld, not '%s'", name, (long long)o->min,
                           (long long)o->max, text);
    }
    *(int64_t *)o->out = v;
    return CLV_OPTIONS_RUN;
}

static int set_real(const parser *p, const clv_option *o, const char *name, const char *text)
{
    char *end;
    bool any = o->real_min == 0 && o->real_max == 0;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(v) || (!any && !(v >= o->real_min && v <= o->real_max))) {
        if (any)
            return usage_error(p, "%s takes a number, not '%s'", name, text);
        return usage_error(p, "%s takes a number from %g to %g, not '%s'", name, o->real_min, o->real_max, text);
    }
    *(double *)o->out = v;
    return CLV_OPTIONS_RUN;
}

/* "" is not a file: it likely comes from an unset shell variable. */
static int check_file_name(const parser *p, const clv_option *o, const char *name, const char *text)
{
    if (o->use == CLV_OPTION_NO_FILE || text[0] != '\0')
        return CLV_OPTIONS_RUN;
    return usage_error(p, "%s is empty; valid: the name of a file or folder", name);
}

static int set_string(const parser *p, const clv_option *o, const char *name, const char *text)
{
    *(const char **)o->out = text;
    return check_file_name(p, o, name, text);
}

/* The enumerator of word `index` of an ENUM's words. */
static unsigned enumerator_of(const clv_option *o, unsigned index, const char *word)
{
    unsigned value = 0;
    if (!o->name_of)
        return index;
    while (value < 64 && strcmp(o->name_of(value), word) != 0)
        value++;
    return value;
}

static int set_choice(const parser *p, const clv_option *o, const char *name, const char *text)
{
    size_t length = strlen(text);
    unsigned index = 0;

    for (const char *word = o->value; *word != '\0'; word += strspn(word, "|"), index++) {
        size_t n = strcspn(word, "|");
        if (n == length && strncmp(word, text, n) == 0) {
            if (o->kind == CLV_OPTION_CHOICE)
                return set_string(p, o, name, text);
            *(unsigned *)o->out = enumerator_of(o, index, text);
            return CLV_OPTIONS_RUN;
        }
        word += n;
    }
    return usage_error(p, "%s takes %s, not '%s'", name, o->value, text);
}

static int set_strings(const parser *p, const clv_option *o, const char *name, const char *text)
{
    clv_strings *list = o->out;

    if (list->n == CLV_STRINGS_MAX)
        return usage_error(p, "%s is given too often; valid: at most %d times", name, CLV_STRINGS_MAX);
    list->item[list->n++] = text;
    return check_file_name(p, o, name, text);
}

/* Reads a unit at *text, in letters of either case, and moves past it: B; K, M, G, T and KiB, ... are powers of 1024,
 * KB, ... of 1000, as GNU's programs have it. */
static int64_t read_unit(const char **text)
{
    static const char units[] = "KMGT";
    const char *at = *text + strspn(*text, " ");
    const char *unit = *at != '\0' ? strchr(units, toupper((unsigned char)*at)) : NULL;
    int64_t base = 1024, size = 1;

    if (unit != NULL && strncasecmp(++at, "iB", 2) == 0)
        at += 2;
    else if (toupper((unsigned char)*at) == 'B') {
        at++;
        base = 1000;
    } else if (unit == NULL)
        return 1;
    for (const char *u = units; unit != NULL && u <= unit; u++)
        size *= base;
    *text = at;
    return size;
}

/* Reads "16K", "16 GB" or "1.5GiB" at *text and moves past it; false unless it is positive, and fits. */
static bool read_size(const char **text, int64_t *out)
{
    char *end;

    if (!isdigit((unsigned char)**text))
        return false;
    errno = 0;
    long long whole = strtoll(*text, &end, 10);
    double part = 0;
    if (*end == '.' && isdigit((unsigned char)end[1])) {
        size_t digits = strspn(end + 1, "0123456789");
        for (size_t i = digits; i > 0; i--)
            part = (part + (end[i] - '0')) / 10;
        end += digits + 1;
    }
    *text = end;
    int64_t unit = read_unit(text);
    if (errno != 0 || whole > (INT64_MAX - unit) / unit)
        return false;
    *out = (int64_t)whole * unit + (int64_t)(part * (double)unit);
    return *out > 0;
}

static int set_size(const parser *p, const clv_option *o, const char *name, const char *text)
{
    const char *at = text;
    int64_t size;

    if (!read_size(&at, &size) || *at != '\0')
        return usage_error(p, "%s takes a size such as 4096, 16K, 24GiB, 16GB, not '%s'", name, text);
    *(int64_t *)o->out = size;
    return CLV_OPTIONS_RUN;
}

static int set_sizes(const parser *p, const clv_option *o, const char *name, const char *text)
{
    clv_sizes list = {0};
    const char *at = text;

    do {
        if (list.n == CLV_SIZES_MAX || !read_size(&at, &list.item[list.n++]) || (*at != ',' && *at != '\0'))
            return usage_error(p, "%s takes up to %d sizes such as 4096,16K,64M,1G, not '%s'", name, CLV_SIZES_MAX,
                               text);
    } while (*at++ == ',');
    *(clv_sizes *)o->out = list;
    return CLV_OPTIONS_RUN;
}

static int set_ints(const parser *p, const clv_option *o, const char *name, const char *text)
{
    clv_sizes list = {0};
    const char *at = text;

    do {
        char *end = NULL;
        errno = 0;
        long long v = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : -1;
        if (list.n == CLV_SIZES_MAX || end == NULL || errno != 0 || v < o->min || v > o->max ||
            (*end != ',' && *end != '\0'))
            return usage_error(p, "%s takes up to %d integers from %lld to %lld such as 1,2,4, not '%s'", name,
                               CLV_SIZES_MAX, (long long)o->min, (long long)o->max, text);
        list.item[list.n++] = v;
        at = end;
    } while (*at++ == ',');
    *(clv_sizes *)o->out = list;
    return CLV_OPTIONS_RUN;
}

static int (*const set_value[])(const parser *, const clv_option *, const char *, const char *) = {
    [CLV_OPTION_INT] = set_int,       [CLV_OPTION_REAL] = set_real,       [CLV_OPTION_STRING] = set_string,
    [CLV_OPTION_CHOICE] = set_choice, [CLV_OPTION_STRINGS] = set_strings, [CLV_OPTION_FILES] = set_strings,
    [CLV_OPTION_SIZE] = set_size,     [CLV_OPTION_SIZES] = set_sizes,     [CLV_OPTION_INTS] = set_ints,
    [CLV_OPTION_ENUM] = set_choice,
};

/* Whether a second value would replace the first. */
static bool holds_one(const clv_option *o)
{
    return clv_option_takes_value(o) && o->kind != CLV_OPTION_STRINGS && o->kind != CLV_OPTION_FILES;
}

/* Whether the next argument can be a value: anything but an option's own name. */
static bool value_follows(const parser *p)
{
    return p->next < p->argc && find(p, p->argv[p->next]) < 0;
}

/* value NULL: the next argument. */
static int read_named(parser *p, const clv_option *o, const char *name, const char *value)
{
    int code;

    if (!clv_option_takes_value(o)) {
        if (value != NULL)
            return usage_error(p, "%s takes no value", name);
        if (o->kind == CLV_OPTION_SET)
            *(unsigned *)o->out = (unsigned)o->min;
        else
            *(bool *)o->out = true;
        return CLV_OPTIONS_RUN;
    }
    if (value == NULL && !value_follows(p))
        return usage_error(p, "%s needs a value: %s %s", name, name, o->value);
    code = set_value[o->kind](p, o, name, value != NULL ? value : p->argv[p->next++]);
    while (o->kind == CLV_OPTION_FILES && code == CLV_OPTIONS_RUN && p->next < p->argc &&
           (p->argv[p->next][0] != '-' || p->argv[p->next][1] == '\0'))
        code = set_value[o->kind](p, o, name, p->argv[p->next++]);
    return code;
}

/* Keeps an argument without an option until all options are read. */
static int read_positional(parser *p, char *arg)
{
    for (int i = 0; i < p->n; i++)
        if (is_positional(&p->options[i]) && (!p->seen[i] || p->options[i].kind == CLV_OPTION_STRINGS)) {
            p->seen[i] = true;
            return set_value[p->options[i].kind](p, &p->options[i], p->options[i].names, arg);
        }
    p->argv[1 + p->n_bare++] = arg;
    return CLV_OPTIONS_RUN;
}

static int read_argument(parser *p)
{
    char *arg = p->argv[p->next++], *value;
    size_t length = strcspn(arg, "=");
    int i;

    if (p->ended || arg[0] != '-' || arg[1] == '\0')
        return read_positional(p, arg);
    if (strcmp(arg, "--") == 0) {
        p->ended = true;
        return CLV_OPTIONS_RUN;
    }
    i = find_name(p, arg, length);
    value = arg[length] == '=' ? arg + length + 1 : NULL;
    if (i < 0) {
        i = find_attached(p, arg, &length);
        value = arg + length;
    }
    if (i < 0)
        return unknown_option(p, arg);
    snprintf(p->given[i], NAME_SIZE, "%.*s", (int)length, arg);
    if (p->seen[i] && holds_one(&p->options[i]))
        return usage_error(p, "%s is given twice; it takes one value", p->given[i]);
    p->seen[i] = true;
    if (p->options[i].given)
        *p->options[i].given = true;
    return read_named(p, &p->options[i], p->given[i], value);
}

/* ---- arguments without an option ---- */

/* The first of an option's names. */
static const char *first_name(const clv_option *o, char name[NAME_SIZE])
{
    const char *cursor = o->names;
    return clv_option_next_name(&cursor, name) ? name : "";
}

/* Suggests what an argument is for: options that it can be a value of, or a text that it is a word of. */
static int refuse_positional(const parser *p, const char *arg)
{
    char meant[512] = "", name[NAME_SIZE];
    size_t used = 0;

    for (int i = 0; i < p->n; i++) {
        const clv_option *o = &p->options[i];
        if (o->positional != CLV_POSITIONAL_SUGGESTED || used >= sizeof meant)
            continue;
        if (!p->seen[i])
            used += (size_t)snprintf(meant + used, sizeof meant - used, "%s%s '%s'",
                                     used > 0 ? " or " : "; did you mean ", first_name(o, name), arg);
        else if (o->kind == CLV_OPTION_STRING && o->use == CLV_OPTION_NO_FILE)
            used += (size_t)snprintf(meant + used, sizeof meant - used, "; quote a text of several words: %s '%s %s'",
                                     p->given[i], *(const char **)o->out, arg);
    }
    return usage_error(p, "unexpected argument '%s'%s (see '%s --help')", arg, meant, p->command);
}

/* The option that an argument without a name is for; -1: none. An option of several files takes all of them. */
static int find_positional(const parser *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->options[i].positional == CLV_POSITIONAL_ACCEPTED && !p->seen[i])
            return i;
    return -1;
}

static int place_positional(parser *p)
{
    int code = CLV_OPTIONS_RUN;

    for (int k = 1, i = -1; k <= p->n_bare && code == CLV_OPTIONS_RUN; k++) {
        if (i < 0 || p->options[i].kind != CLV_OPTION_FILES)
            i = find_positional(p);
        if (i < 0)
            return refuse_positional(p, p->argv[k]);
        p->seen[i] = true;
        first_name(&p->options[i], p->given[i]);
        code = set_value[p->options[i].kind](p, &p->options[i], p->given[i], p->argv[k]);
    }
    return code;
}

/* "--ids or --inputs": all names of an option but its short one. */
static const char *long_names(const clv_option *o, char out[3 * NAME_SIZE])
{
    char name[NAME_SIZE];
    const char *cursor = o->names;
    size_t used = (size_t)snprintf(out, NAME_SIZE, "%s", first_name(o, name));
    while (clv_option_next_name(&cursor, name) && used < 2 * NAME_SIZE)
        if (strncmp(name, "--", 2) == 0 && strncmp(out, "--", 2) == 0 && strcmp(name, out) != 0)
            used += (size_t)snprintf(out + used, 3 * NAME_SIZE - used, " or %s", name);
    return out;
}

/* Names all missing options. */
static int check_required(const parser *p)
{
    char missing[512] = "", name[3 * NAME_SIZE];
    size_t used = 0;

    for (int i = 0; i < p->n && used < sizeof missing; i++) {
        const clv_option *o = &p->options[i];
        if (o->required && !p->seen[i])
            used +=
                (size_t)snprintf(missing + used, sizeof missing - used, "%s%s%s%s", used > 0 ? ", " : "",
                                 long_names(o, name), is_positional(o) ? "" : " ", is_positional(o) ? "" : o->value);
    }
    return used > 0 ? usage_error(p, "missing: %s (see '%s --help')", missing, p->command) : CLV_OPTIONS_RUN;
}

/* ---- files ---- */

/* The values of an option that names files, one after the other; NULL: no more. */
static const char *file_of(const parser *p, int i, int k)
{
    const clv_option *o = &p->options[i];

    if (!p->seen[i])
        return NULL;
    if (o->kind == CLV_OPTION_STRING)
        return k == 0 ? *(const char **)o->out : NULL;
    const clv_strings *list = o->out;
    return k < list->n ? list->item[k] : NULL;
}

static int check_files(const parser *p, int writes, int reads)
{
    const char *out = file_of(p, writes, 0), *in;

    for (int k = 0; out != NULL && (in = file_of(p, reads, k)) != NULL; k++)
        if (clv_is_same_file(out, in))
            return usage_error(p, "%s %s is also the input of %s; name another file", p->options[writes].names, out,
                               p->options[reads].names);
    return CLV_OPTIONS_RUN;
}

static bool is_input(const clv_option *o)
{
    return o->use == CLV_OPTION_INPUT || o->use == CLV_OPTION_INPUT_OR_NAME;
}

/* Checks inputs before the work, as any other value. Files that cannot be examined are left to the command. */
static int check_present(const parser *p, int i)
{
    const clv_option *o = &p->options[i];
    const char *path;
    struct stat info;

    for (int k = 0; (path = file_of(p, i, k)) != NULL; k++) {
        char more[512] = "";
        if (strcmp(path, "-") == 0 || stat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR))
            continue;
        if (o->missing_hint != NULL)
            o->missing_hint(more, sizeof more, path);
        return usage_error(p, "%s%s%s: no such file or folder%s", is_positional(o) ? "" : p->given[i],
                           is_positional(o) ? "" : " ", path, more);
    }
    return CLV_OPTIONS_RUN;
}

static int check_all_present(const parser *p)
{
    int code = CLV_OPTIONS_RUN;

    for (int i = 0; i < p->n && code == CLV_OPTIONS_RUN; i++)
        if (p->options[i].use == CLV_OPTION_INPUT)
            code = check_present(p, i);
    return code;
}

static bool is_output(const clv_option *o)
{
    return o->use == CLV_OPTION_OUTPUT_FILE || o->use == CLV_OPTION_OUTPUT_FOLDER;
}

static int check_all_files(const parser *p)
{
    for (int w = 0; w < p->n; w++)
        for (int r = 0; is_output(&p->options[w]) && r < p->n; r++) {
            int code = is_input(&p->options[r]) ? check_files(p, w, r) : CLV_OPTIONS_RUN;
            if (code != CLV_OPTIONS_RUN)
                return code;
        }
    return CLV_OPTIONS_RUN;
}

/* Processes are joined as soon as their arguments are read, which are to be alike, as what files hold is: places may
 * differ. */
static int join_processes(const parser *p)
{
    clv_error err = {0};
    int how = find(p, "--comm"), timeout = find(p, "--comm-timeout");
    const clv_comm_option comm = {.how = how >= 0 ? *(const char **)p->options[how].out : NULL,
                                  .timeout_seconds = timeout >= 0 ? *(double *)p->options[timeout].out : 0};

    clv_status status = clv_processes_join_job(&comm, &err);
    if (status == CLV_OK)
        status = clv_options_check_consistent(p->command, p->options, p->n, &err);
    return status == CLV_OK ? CLV_OPTIONS_RUN : clv_command_print_error(p->command, &err);
}

/* Only the first process writes outputs: those of the others cannot conflict. */
static clv_status check_place(const char *path, clv_option_use use, clv_error *err)
{
    bool folder = use == CLV_OPTION_OUTPUT_FOLDER;
    return clv_output_path_check(folder ? path : clv_processes_output_path(path), folder, err);
}

/* Rejects an output name with the suffix of another kind of file. */
static int check_suffix(const parser *p, int i)
{
    const clv_option *o = &p->options[i];
    const char *path = o->suffix != NULL && p->seen[i] ? *(const char **)o->out : "", *name = strrchr(path, '/');
    const char *dot = strrchr(name != NULL ? name : path, '.');

    if (dot == NULL || strcasecmp(dot, o->suffix) == 0 || dot[1] == '\0')
        return CLV_OPTIONS_RUN;
    for (const char *c = dot + 1; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c))
            return CLV_OPTIONS_RUN;
    return usage_error(p, "%s %s: the output is %s; valid: a name with that suffix", p->given[i], path, o->suffix);
}

/* Checks outputs before the work, default ones too. */
static int check_places(const parser *p)
{
    clv_error err = {0};

    for (int w = 0; w < p->n; w++) {
        int code = check_suffix(p, w);
        if (code != CLV_OPTIONS_RUN)
            return code;
        const char *path = is_output(&p->options[w]) ? *(const char **)p->options[w].out : NULL;
        clv_status status = path != NULL ? check_place(path, p->options[w].use, &err) : CLV_OK;
        if (status == CLV_ENOTFOUND || status == CLV_EIO) /* the value of the option is wrong */
            err.code = CLV_EINVAL;
        if (status != CLV_OK)
            return clv_command_print_error(p->command, &err);
    }
    return CLV_OPTIONS_RUN;
}

/* ---- conflicting options ---- */

static int check_conflicts(const parser *p, int i)
{
    const char *cursor = p->options[i].conflicts_with;
    char other[NAME_SIZE];

    while (cursor != NULL && clv_option_next_name(&cursor, other)) {
        int k = find(p, other);
        if (k >= 0 && p->given[k][0] != '\0')
            return usage_error(p, "%s cannot be combined with %s", p->given[i], p->given[k]);
    }
    return CLV_OPTIONS_RUN;
}

/* Those names of a list that the command has. */
static void list_own(const parser *p, const char *list, char *out, size_t size)
{
    char name[NAME_SIZE];

    out[0] = '\0';
    for (const char *cursor = list; clv_option_next_name(&cursor, name);)
        if (find(p, name) >= 0)
            snprintf(out + strlen(out), size - strlen(out), "%s%s", out[0] ? ", " : "", name);
}

/* Options without an effect beside the value of option i. */
static int check_allowed(const parser *p, int i)
{
    char own[1024];
    const char *what = NULL;
    const char *list = p->options[i].allows ? p->options[i].allows(*(const char **)p->options[i].out, &what) : NULL;

    for (int k = 0; list && k < p->n; k++) {
        const char *cursor = list;
        char name[NAME_SIZE];
        bool allowed = p->given[k][0] == '\0' || k == i;
        while (!allowed && clv_option_next_name(&cursor, name))
            allowed = find(p, name) == k;
        if (!allowed) {
            list_own(p, list, own, sizeof own);
            return usage_error(p, "%s has no effect on %s; valid beside it: %s", p->given[k], what, own);
        }
    }
    return CLV_OPTIONS_RUN;
}

static int check_all_conflicts(const parser *p)
{
    int code = CLV_OPTIONS_RUN;

    for (int i = 0; i < p->n && code == CLV_OPTIONS_RUN; i++)
        if (p->given[i][0] != '\0')
            code = check_conflicts(p, i);
    for (int i = 0; i < p->n && code == CLV_OPTIONS_RUN; i++)
        if (p->given[i][0] != '\0')
            code = check_allowed(p, i);
    return code;
}

/* ---- help ---- */

/* The index of --help or -h among the arguments before a `--`; 0: none. */
static int find_help(int argc, char *const *argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return i;
    return 0;
}

bool clv_options_wants_help(int argc, char *const *argv)
{
    return find_help(argc, argv) > 0;
}

enum { HELP_AT = 27 };

/* Prints "-n, --n-predict N"; in short help only the first of names that do not fit before the help text. */
static void put_names(char *left, size_t size, const clv_option *o, bool all)
{
    bool alone = !clv_option_takes_value(o) || is_positional(o);
    int names = (int)strlen(o->names), first = (int)strcspn(o->names, ",");

    if (!all && names + (alone ? 0 : 1 + (int)strlen(o->value)) > HELP_AT - 4)
        names = first;
    snprintf(left, size, "%.*s%s%s", names, o->names, alone ? "" : " ", alone ? "" : o->value);
}

/* "help (required); conflicts with --dot, --show" */
static void put_help(char *text, size_t size, const clv_option *o, bool all)
{
    const char *cursor = o->conflicts_with;
    char name[NAME_SIZE];
    const char *bare = o->positional == CLV_POSITIONAL_ACCEPTED ? "the name may be omitted" : "";
    const char *required = o->required ? "required" : "";
    size_t used = (size_t)snprintf(text, size, "%s%s%s%s%s%s", o->help, *required || *bare ? " (" : "", required,
                                   *required && *bare ? "; " : "", bare, *required || *bare ? ")" : "");

    for (const char *before = "; conflicts with "; all && cursor != NULL && used < size; before = ", ") {
        if (!clv_option_next_name(&cursor, name))
            break;
        used += (size_t)snprintf(text + used, size - used, "%s%s", before, name);
    }
}

static void print_option(const char *left, const char *help)
{
    int at = printf("  %-*s", HELP_AT - 3, left);

    if (strlen(left) > HELP_AT - 4) { /* no room before the help text */
        putchar('\n');
        at = 0;
    }
    clv_print_wrapped(stdout, help, strlen(help), at, HELP_AT, CLV_TERMINAL_WIDTH);
}

/* Prints the names of options that were not shown. */
static void print_rare(const parser *p)
{
    char text[4096];
    size_t used = (size_t)snprintf(text, sizeof text, "More options ('%s --help all' describes them):", p->command);

    for (int i = 0; i < p->n; i++)
        if (p->options[i].advanced && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, " %.*s", (int)strcspn(p->options[i].names, ","),
                                     p->options[i].names);
    putchar('\n');
    clv_print_wrapped(stdout, text, strlen(text), 0, 0, CLV_TERMINAL_WIDTH);
}

static int print_options(const parser *p)
{
    int help = find_help(p->argc, p->argv);
    bool all = p->n <= CLV_OPTIONS_SHORT_HELP || (help + 1 < p->argc && strcmp(p->argv[help + 1], "all") == 0),
         more = false;

    printf("Options:\n");
    for (int i = 0; i < p->n; i++) {
        const clv_option *o = &p->options[i];
        char left[128], text[1024];
        put_names(left, sizeof left, o, all);
        put_help(text, sizeof text, o, all);
        if (all || !o->advanced)
            print_option(left, text);
        more |= !all && o->advanced;
    }
    print_option("-h, --help [all]", more ? "print this, or all" : "print this");
    if (more)
        print_rare(p);
    return 0;
}

int clv_options_parse(const clv_option *options, int n_options, int argc, char **argv)
{
    parser p = {.options = options, .n = n_options, .command = argv[0], .argc = argc, .argv = argv, .next = 1};

    if (clv_options_wants_help(argc, argv))
        return print_options(&p);
    while (p.next < argc) {
        int code = read_argument(&p);
        if (code != CLV_OPTIONS_RUN)
            return code;
    }
    int code = place_positional(&p);
    if (code == CLV_OPTIONS_RUN)
        code = check_required(&p);
    if (code == CLV_OPTIONS_RUN)
        code = check_all_conflicts(&p);
    if (code == CLV_OPTIONS_RUN)
        code = join_processes(&p);
    if (code == CLV_OPTIONS_RUN)
        code = check_all_files(&p);
    if (code == CLV_OPTIONS_RUN)
        code = check_places(&p);
    return code == CLV_OPTIONS_RUN ? check_all_present(&p) : code;
}
