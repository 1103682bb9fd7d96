/* command_tokenize.c - the `cleave tokenize` command: text to token ids and back. */
#include <errno.h>

#include "cleave/tokenizer.h"
#include "cli/command.h"
#include "cli/input/prompts.h"
#include "cli/options/model_options.h"

typedef struct tokenize_args {
    const char *model, *prompt;
    bool plain, decode, json;
} tokenize_args;

static bool parse(tokenize_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model, "PATH", "tokenizer.json, or its folder"),
        CLV_OPT_STRING("-p, --prompt", &a->prompt, "TEXT", "the text, with --decode the ids (standard input)",
                       .positional = CLV_POSITIONAL_SUGGESTED),
        CLV_OPT_FLAG("--no-special", &a->plain, "without the special tokens of the template",
                     .conflicts_with = "--decode"),
        CLV_OPT_FLAG("--decode", &a->decode, "token ids, separated by spaces or commas, to text"),
        CLV_JSON_OPTION(&a->json, "--decode", "print a JSON list of ids"),
    };
    return CLV_PARSE(run, options);
}

/* -p, or all of standard input; the caller frees. */
static clv_status read_text(char **out, size_t *size, const char *given, const char *command, clv_error *err)
{
    if (!given)
        return clv_standard_input_read(out, size, 1, command, err);
    *out = strdup(given);
    *size = strlen(given);
    return *out ? CLV_OK : clv_fail_memory(err, "the text", *size);
}

static clv_status encode(const tokenize_args *a, const clv_tokenizer *t, const char *text, size_t size, clv_error *err)
{
    int64_t *ids, n;
    CLV_TRY(clv_tokenizer_encode(t, text, size, !a->plain, &ids, &n, err));
    printf(a->json ? "[" : "");
    for (int64_t i = 0; i < n; i++)
        printf("%s%lld", i == 0 ? "" : a->json ? ", " : " ", (long long)ids[i]);
    printf(a->json ? "]\n" : "\n");
    free(ids);
    return CLV_OK;
}

static clv_status read_ids(int64_t *ids, int64_t *n, char *text, clv_error *err)
{
    for (char *at = strtok(text, " ,\t\r\n[]"); at; at = strtok(NULL, " ,\t\r\n[]")) {
        char *end;
        errno = 0;
        ids[*n] = strtoll(at, &end, 10);
        if (*end != '\0' || errno != 0)
            return clv_fail(err, CLV_EINVAL, "'%.40s' is no token id; valid: whole numbers", at);
        ++*n;
    }
    return CLV_OK;
}

/* Of ids that have no token: the first, and how many others. */
static void note_unknown(const clv_tokenizer *t, const int64_t *ids, int64_t n, const char *command)
{
    int64_t first = -1, unknown = 0;
    for (int64_t i = 0; i < n; i++)
        if (!clv_tokenizer_has_id(t, ids[i]) && unknown++ == 0)
            first = ids[i];
    if (unknown > 0)
        clv_log("%s: note: %lld of the ids %s as nothing: %s%lld", command, (long long)unknown,
                unknown == 1 ? "has no token, and reads" : "have no token, and read",
                unknown == 1 ? "" : "the first is ", (long long)first);
}

static clv_status decode(const clv_tokenizer *t, char *text, size_t size, const char *command, clv_error *err)
{
    int64_t *ids = malloc((size / 2 + 1) * sizeof *ids), n = 0;
    char *out = NULL;
    size_t length = 0;
    clv_status status = ids ? read_ids(ids, &n, text, err) : clv_fail_memory(err, "token ids", size);
    if (status == CLV_OK)
        status = clv_tokenizer_decode(t, ids, n, &out, &length, err);
    if (status == CLV_OK) {
        clv_untrusted_text shown = {0};
        clv_print_untrusted(&shown, out, length);
        clv_print_untrusted_end(&shown);
        putchar('\n');
        fflush(stdout);
        note_unknown(t, ids, n, command);
    }
    free(out);
    free(ids);
    return status;
}

clv_status command_tokenize(clv_invocation *run, clv_error *err)
{
    tokenize_args a = {0};
    clv_tokenizer *t;
    char *text = NULL;
    size_t size;
    if (!parse(&a, run))
        return CLV_OK;
    CLV_TRY(clv_tokenizer_open(&t, a.model, err));
    clv_status status = read_text(&text, &size, a.prompt, run->name, err);
    if (status == CLV_OK)
        status = a.decode ? decode(t, text, size, run->name, err) : encode(&a, t, text, size, err);
    free(text);
    clv_tokenizer_free(t);
    return status;
}
