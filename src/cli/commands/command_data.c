/* command_data.c - the `cleave data` command: tokenizes text, JSON lines or FASTA into a token file. */
#include <stdio.h>

#include "cleave/corpus.h"
#include "cli/command.h"
#include "cli/options/model_options.h"
#include "cli/options/output_options.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"
#include "cli/timing/clock.h"

typedef struct data_args {
    clv_strings input;
    const char *model, *out, *field, *turn, *end;
    int64_t threads;
    bool chat, skip_bad_lines, plain;
    clv_table_format form;
} data_args;

static int parse(data_args *a, int argc, char **argv)
{
    enum { MOST_THREADS = 256 };
    const clv_option options[] = {
        {.names = "--input",
         .kind = CLV_OPTION_FILES,
         .out = &a->input,
         .value = "FILE...",
         .use = CLV_OPTION_INPUT,
         .bare = CLV_POSITIONAL_ACCEPTED,
         .required = true,
         .help =
             "texts, a document each; of lines of JSON (or an array) a document each, of FASTA a record; also gzipped, "
             "or from a pipe (- is standard input); told by what they hold"},
        CLV_OUT_OPTION(&a->out, "FILE", NULL, CLV_OPTION_OUTPUT_FILE, true, "the token file"),
        CLV_MODEL_ROW(&a->model, "PATH", false, CLV_POSITIONAL_NO,
                      "tokenizer.json, or the folder that holds it; else a byte is a token"),
        {.names = "--field",
         .kind = CLV_OPTION_STRING,
         .out = &a->field,
         .value = "KEY",
         .help = "of a line of JSON: its text (text), with --chat its turns (messages)"},
        {.names = "--chat",
         .kind = CLV_OPTION_FLAG,
         .out = &a->chat,
         .help = "lines have turns, objects with role and content; only what an assistant says is learned"},
        {.names = "--skip-bad-lines",
         .kind = CLV_OPTION_FLAG,
         .out = &a->skip_bad_lines,
         .help = "lines of JSON that are not as they ought to be are passed over and counted; else the first ends it"},
        {.names = "--turn",
         .kind = CLV_OPTION_STRING,
         .out = &a->turn,
         .value = "TEXT",
         .help = "how a turn of --chat is written, with {role} before {content} "
                 "($'<|im_start|>{role}\\n{content}<|im_end|>\\n')"},
        {.names = "--end",
         .kind = CLV_OPTION_STRING,
         .out = &a->end,
         .value = "TOKEN",
         .help = "what is put behind each document; '': nothing (</s>, <|endoftext|>, <|end_of_text|>, <eos> or [SEP], "
                 "if the tokenizer has it; of bytes a zero)"},
        {.names = "--no-special",
         .kind = CLV_OPTION_FLAG,
         .out = &a->plain,
         .help = "without the tokens that the tokenizer's template adds"},
        {.names = "--threads",
         .kind = CLV_OPTION_INT,
         .out = &a->threads,
         .min = 0,
         .max = MOST_THREADS,
         .value = "N",
         .help = "0: as many as there are cores (0); the file does not depend on it"},
        CLV_FORMAT_OPTIONS(&a->form, "", "print JSON"),
    };
    int code = clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
    if (code == CLV_OPTIONS_RUN && a->turn && !a->chat) {
        clv_error err = {0};
        clv_fail(&err, CLV_EINVAL, "--turn says nothing without --chat");
        return clv_command_print_error(argv[0], &err);
    }
    return code;
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

static int report(const data_args *a, const clv_corpus_info *info, double seconds)
{
    clv_table *t = clv_table_new(NULL);
    clv_table_text(t, "file", a->out);
    clv_table_int(t, "documents", info->documents);
    clv_table_int(t, "tokens", info->tokens);
    clv_table_int(t, "learned", info->loss_tokens);
    clv_table_int(t, "skipped", info->skipped_lines);
    clv_table_int(t, "vocab", info->vocab);
    if (info->end_id >= 0)
        clv_table_int(t, "end", info->end_id);
    else
        clv_table_null(t, "end");
    clv_table_bytes(t, "bytes", (double)info->bytes);
    clv_table_seconds(t, "seconds", seconds);
    return clv_table_finish(t, &a->form);
}

int command_data(int argc, char **argv)
{
    data_args a = {0};
    clv_error err = {0};
    clv_corpus_info info = {.size = sizeof info};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    int64_t begin = clv_clock_ns();
    if (tokenize(&info, &a, &err) != CLV_OK)
        return clv_command_print_error(argv[0], &err);
    return report(&a, &info, 1e-9 * (double)(clv_clock_ns() - begin));
}
