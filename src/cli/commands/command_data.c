/* command_data.c - the `cleave data` command: tokenizes text, JSON lines or FASTA into a token file. */
#include "cleave/corpus.h"
#include "cli/command.h"
#include "cli/input/sequence_options.h"
#include "cli/options/model_options.h"
#include "cli/output/progress.h"
#include "cli/timing/clock.h"

typedef struct data_args {
    clv_strings input;
    const char *model, *out, *field, *turn, *end;
    int64_t threads;
    bool chat, skip_bad_lines, plain;
} data_args;

static bool parse(data_args *a, clv_invocation *run)
{
    enum { MOST_THREADS = 256 };
    const clv_option options[] = {
        CLV_OPT_VALUE(FILES, "--input", &a->input, "FILE...",
                      "text (a document a file), JSON lines or array, or FASTA (a document a line or record); also "
                      "gzipped, or from a pipe (-: standard input); the format is detected",
                      .use = CLV_OPTION_INPUT, .required = true, .positional = CLV_POSITIONAL_ACCEPTED),
        CLV_OUT_OPTION(&a->out, "FILE", FILE, "the token file", .required = true),
        CLV_MODEL_ROW(&a->model, "PATH", NO, "tokenizer.json, or its folder (bytes are tokens)"),
        CLV_OPT_STRING("--field", &a->field, "KEY",
                       "key of the text in a JSON line (text), with --chat of the turns (messages)"),
        CLV_OPT_FLAG("--chat", &a->chat,
                     "JSON lines hold turns, objects with role and content; only assistant turns are trained on"),
        CLV_SKIP_BAD_LINES_OPTION(&a->skip_bad_lines),
        CLV_OPT_STRING("--turn", &a->turn, "TEXT",
                       "template of a turn of --chat, with {role} before {content} "
                       "($'<|im_start|>{role}\\n{content}<|im_end|>\\n')"),
        CLV_OPT_STRING("--end", &a->end, "TOKEN",
                       "token after each document; '': none (</s>, <|endoftext|>, <|end_of_text|>, <eos> or [SEP] of "
                       "the tokenizer; of bytes 0)"),
        CLV_OPT_FLAG("--no-special", &a->plain, "without the special tokens of the tokenizer's template"),
        CLV_OPT_INT("--threads", &a->threads, 0, MOST_THREADS, "N",
                    "threads; 0: all cores (0); the output does not depend on it"),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

static clv_status tokenize(clv_corpus_info *info, const data_args *a, clv_error *err)
{
    clv_tokenizer *tokenizer = NULL;
    clv_counted_progress bar = {.what = "data", .note = "MiB", .shift = 20};
    clv_corpus_options options = {.size = sizeof options,
                                  .field = a->field,
                                  .chat = a->chat,
                                  .turn_template = a->turn,
                                  .end_token = a->end,
                                  .no_special = a->plain,
                                  .skip_bad_lines = a->skip_bad_lines,
                                  .threads = (int)a->threads,
                                  .progress = clv_counted_progress_show,
                                  .progress_arg = &bar};
    if (a->model)
        CLV_TRY(clv_tokenizer_open(&tokenizer, a->model, err));
    options.tokenizer = tokenizer;
    clv_status status = clv_corpus_tokenize(info, a->out, a->input.item, a->input.n, &options, err);
    clv_counted_progress_end(&bar);
    clv_tokenizer_free(tokenizer);
    return status;
}

static void report(clv_table *t, const data_args *a, const clv_corpus_info *info, double seconds)
{
    clv_table_text(t, "file", a->out);
    clv_table_int(t, "documents", info->documents);
    clv_table_int(t, "tokens", info->tokens);
    clv_table_int(t, "loss_tokens", info->loss_tokens);
    clv_table_int(t, "skipped", info->skipped_lines);
    clv_table_int(t, "vocab", info->vocab);
    if (info->end_id >= 0)
        clv_table_int(t, "end", info->end_id);
    else
        clv_table_null(t, "end");
    clv_table_bytes(t, "bytes", (double)info->bytes);
    clv_table_seconds(t, "seconds", seconds);
}

clv_status command_data(clv_invocation *run, clv_error *err)
{
    data_args a = {0};
    clv_corpus_info info = {.size = sizeof info};
    if (!parse(&a, run))
        return CLV_OK;
    if (a.turn && !a.chat)
        return clv_fail(err, CLV_EINVAL, "--turn has no effect without --chat");
    double begin = clv_clock_seconds();
    CLV_TRY(tokenize(&info, &a, err));
    run->table = clv_table_new(NULL);
    report(run->table, &a, &info, clv_clock_seconds() - begin);
    return CLV_OK;
}
