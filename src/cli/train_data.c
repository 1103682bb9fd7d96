#include "cli/train_data.h"

#include <string.h>

enum { USUAL_SEQ = 256, BYTES = 256 };

static clv_status open_text(clv_train_data *d, const clv_strings *files, clv_error *err)
{
    CLV_TRY(clv_text_data_open(&d->text, files->item, files->n, d->seq, err));
    d->tokens = clv_text_data_size(d->text);
    d->checksum = clv_text_data_checksum(d->text);
    d->vocab = BYTES;
    d->end = -1;
    return CLV_OK;
}

static bool are_texts(const clv_strings *files)
{
    static const char *const ends[] = {".txt", ".jsonl", ".ndjson"};
    for (int i = 0; i < files->n; i++) {
        const char *dot = strrchr(files->item[i], '.');
        for (size_t k = 0; dot && k < sizeof ends / sizeof ends[0]; k++)
            if (strcmp(dot, ends[k]) == 0)
                return true;
    }
    return false;
}

/* Files as options say; texts among them by the tokenizer, which is not looked for where there are none. */
static clv_status open_files(clv_data **out, const clv_strings *files, const clv_data_option *o,
                             clv_data_options *options, clv_error *err)
{
    clv_tokenizer *tokenizer = NULL;
    if (o->tokenizer && are_texts(files))
        CLV_TRY(clv_tokenizer_open(&tokenizer, o->tokenizer, err));
    clv_corpus_options corpus = {.size = sizeof corpus, .tokenizer = tokenizer, .field = o->field, .chat = o->chat};
    options->corpus = &corpus;
    clv_status status = clv_data_open(out, files->item, files->n, options, err);
    options->corpus = NULL;
    clv_tokenizer_free(tokenizer);
    return status;
}

static clv_status open_ids(clv_train_data *d, const clv_data_option *o, int64_t seq, int64_t vocab, clv_error *err)
{
    clv_data_info info = {.size = sizeof info};
    clv_data_options options = {
        .size = sizeof options, .seq = seq, .vocab = vocab, .seed = d->seed, .in_order = o->no_shuffle};
    CLV_TRY(open_files(&d->ids, &o->files, o, &options, err));
    CLV_TRY(clv_data_describe(d->ids, &info, err));
    d->seq = info.seq;
    d->tokens = info.tokens;
    d->checksum = info.checksum;
    d->vocab = info.vocab;
    d->end = info.end;
    return CLV_OK;
}

/* Sequences as those that are learned: of --text a byte a token, too. */
static clv_status open_val(clv_train_data *d, const clv_data_option *o, clv_error *err)
{
    clv_data_info info = {.size = sizeof info};
    clv_data_options options = {
        .size = sizeof options, .seq = d->seq, .vocab = d->vocab, .texts = d->text != NULL, .in_order = 1};
    if (o->val.n == 0)
        return o->eval_every > 0 ? clv_fail(err, CLV_EINVAL, "--eval-every says nothing without --val") : CLV_OK;
    CLV_TRY(open_files(&d->val, &o->val, o, &options, err));
    CLV_TRY(clv_data_describe(d->val, &info, err));
    d->val_sequences = info.sequences;
    d->val_tokens = info.tokens;
    d->val_checksum = info.checksum;
    return CLV_OK;
}

clv_status clv_train_data_open(clv_train_data *out, const clv_data_option *option, int64_t seq, int64_t vocab,
                               uint64_t seed, clv_error *err)
{
    clv_train_data data = {.seq = seq ? seq : USUAL_SEQ, .seed = seed};
    if (option->text.n == 0 && option->files.n == 0)
        return clv_fail(err, CLV_EINVAL, "--text or --data is missing");
    clv_status status =
        option->text.n > 0 ? open_text(&data, &option->text, err) : open_ids(&data, option, seq, vocab, err);
    if (status == CLV_OK)
        status = open_val(&data, option, err);
    if (status == CLV_OK)
        *out = data;
    else
        clv_train_data_close(&data);
    return status;
}

void clv_train_data_close(clv_train_data *d)
{
    clv_text_data_close(d->text);
    clv_data_close(d->ids);
    clv_data_close(d->val);
    *d = (clv_train_data){0};
}

clv_status clv_train_data_batch(const clv_train_data *d, int64_t step, int64_t batch, int32_t *ids, int32_t *labels,
                                clv_error *err)
{
    return d->text ? clv_text_data_batch(d->text, d->seed, step, 0, batch, d->seq, ids, labels, err)
                   : clv_data_batch(d->ids, step, batch, 0, batch, ids, labels, err);
}

const char *clv_train_data_option(const clv_train_data *d)
{
    return d->text ? "--text" : "--data";
}

const char *clv_train_data_unit(const clv_train_data *d)
{
    return d->text ? "bytes" : "tokens";
}
