#include "cli/train_data.h"

#include <stdlib.h>
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

static bool ends_with_one_of(const char *path, const char *const *ends, size_t n)
{
    const char *dot = strrchr(path, '.');
    for (size_t k = 0; dot && k < n; k++)
        if (strcmp(dot, ends[k]) == 0)
            return true;
    return false;
}

static bool is_protein(const char *path)
{
    static const char *const ends[] = {".fasta", ".fa", ".faa"};
    return ends_with_one_of(path, ends, sizeof ends / sizeof ends[0]);
}

static bool is_text(const char *path)
{
    static const char *const ends[] = {".txt", ".jsonl", ".ndjson"};
    return is_protein(path) || ends_with_one_of(path, ends, sizeof ends / sizeof ends[0]);
}

static int count(const clv_strings *files, bool (*is)(const char *path))
{
    int n = 0;
    for (int i = 0; i < files->n; i++)
        n += is(files->item[i]);
    return n;
}

/* What files are opened for. */
typedef struct purpose {
    const clv_data_option *option;
    const clv_model *model; /* NULL: none yet */
    bool has_folder;        /* of the model: there may be a tokenizer in it */
    clv_model_info info;    /* of zeros then */
} purpose;

static const char *rows_of(const clv_strings *files, const clv_data_option *o)
{
    bool proteins = count(files, is_protein) == files->n;
    return o->rows ? o->rows : proteins ? "padded" : "packed";
}

/* Masks where the model sees what follows; its padding. */
static clv_status take_model(clv_data_options *options, clv_masking *masking, const purpose *p,
                             const clv_tokenizer *tokenizer, clv_error *err)
{
    options->vocab = p->info.vocab;
    options->pad = p->model && p->info.pad >= 0 ? p->info.pad : 0;
    if (!p->info.bidirectional)
        return CLV_OK;
    CLV_TRY(clv_model_masking(masking, p->model, tokenizer, err));
    masking->rate = p->option->mask_rate;
    options->masking = masking;
    return CLV_OK;
}

/* Files as options say; texts among them by the tokenizer, which is not looked for where nobody asks. */
static clv_status open_files(clv_data **out, const clv_strings *files, const purpose *p, clv_data_options *options,
                             clv_error *err)
{
    const clv_data_option *o = p->option;
    clv_tokenizer *given = NULL;
    const clv_tokenizer *tokenizer = NULL;
    clv_masking masking = {.size = sizeof masking};
    bool texts = count(files, is_text) > 0;
    if (o->tokenizer)
        CLV_TRY(clv_tokenizer_open(&given, o->tokenizer, err));
    clv_status status = texts && !given && p->has_folder ? clv_model_tokenizer(&tokenizer, p->model, err) : CLV_OK;
    tokenizer = given ? given : tokenizer;
    clv_corpus_options corpus = {.size = sizeof corpus, .tokenizer = tokenizer, .field = o->field, .chat = o->chat};
    options->corpus = &corpus;
    options->padded = strcmp(rows_of(files, o), "padded") == 0;
    if (status == CLV_OK)
        status = take_model(options, &masking, p, tokenizer, err);
    if (status == CLV_OK)
        status = clv_data_open(out, files->item, files->n, options, err);
    clv_tokenizer_free(given);
    return status;
}

static clv_status open_ids(clv_train_data *d, const purpose *p, int64_t seq, clv_error *err)
{
    enum { PERCENT = 15 };
    const clv_data_option *o = p->option;
    clv_data_info info = {.size = sizeof info};
    clv_data_options options = {.size = sizeof options, .seq = seq, .seed = d->seed, .in_order = o->no_shuffle};
    CLV_TRY(open_files(&d->ids, &o->files, p, &options, err));
    CLV_TRY(clv_data_describe(d->ids, &info, err));
    d->seq = info.seq;
    d->tokens = info.tokens;
    d->checksum = info.checksum;
    d->vocab = info.vocab;
    d->end = info.end;
    d->padded = info.padded;
    d->rows = rows_of(&o->files, o);
    if (p->info.bidirectional)
        d->mask_rate = o->mask_rate > 0 ? o->mask_rate : 0.01 * PERCENT;
    return CLV_OK;
}

/* Sequences as those that are learned: of --text a byte a token, too. What is masked of them is always the same. */
static clv_status open_val(clv_train_data *d, const purpose *p, clv_error *err)
{
    const clv_data_option *o = p->option;
    clv_data_info info = {.size = sizeof info};
    clv_data_options options = {.size = sizeof options, .seq = d->seq, .texts = d->text != NULL, .in_order = 1};
    if (o->val.n == 0)
        return o->eval_every > 0 ? clv_fail(err, CLV_EINVAL, "--eval-every says nothing without --val") : CLV_OK;
    CLV_TRY(open_files(&d->val, &o->val, p, &options, err));
    CLV_TRY(clv_data_describe(d->val, &info, err));
    d->val_sequences = info.sequences;
    d->val_tokens = info.tokens;
    d->val_checksum = info.checksum;
    d->padded = d->padded || info.padded;
    return CLV_OK;
}

/* Bytes are tokens of decoders of bytes alone; masks are of encoders. */
static clv_status check_option(const purpose *p, clv_error *err)
{
    const clv_data_option *o = p->option;
    const clv_model_info *info = &p->info;
    if (o->text.n == 0 && o->files.n == 0)
        return clv_fail(err, CLV_EINVAL, "--text or --data is missing");
    if (o->text.n > 0 && info->bidirectional)
        return clv_fail(err, CLV_EINVAL,
                        "--text: the next byte is learned, and the family %s learns what is masked; valid: --data",
                        info->family);
    if (o->text.n > 0 && p->model && info->vocab != BYTES)
        return clv_fail(err, CLV_EINVAL,
                        "--text is learned a byte a token, and the model has a vocabulary of %lld; valid: --data",
                        (long long)info->vocab);
    if (o->mask_rate > 0 && !info->bidirectional)
        return clv_fail(err, CLV_EINVAL, "--mask-rate: the family %s learns the next token; valid for esm and bert",
                        p->model ? info->family : "llama");
    return CLV_OK;
}

clv_status clv_train_data_open(clv_train_data *out, const clv_data_option *option, const clv_model *model,
                               bool has_folder, int64_t seq, uint64_t seed, clv_error *err)
{
    clv_train_data data = {.seq = seq ? seq : USUAL_SEQ, .seed = seed, .rows = "packed"};
    purpose p = {.option = option, .model = model, .has_folder = has_folder, .info = {.size = sizeof p.info}};
    if (model)
        CLV_TRY(clv_model_describe(model, &p.info, err));
    CLV_TRY(check_option(&p, err));
    clv_status status = option->text.n > 0 ? open_text(&data, &option->text, err) : open_ids(&data, &p, seq, err);
    if (status == CLV_OK)
        status = open_val(&data, &p, err);
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

clv_status clv_train_batch_make(clv_train_batch *out, const clv_train_data *d, int64_t batch, clv_error *err)
{
    size_t n = (size_t)(batch * d->seq);
    out->ids = malloc(n * sizeof *out->ids);
    out->labels = malloc(n * sizeof *out->labels);
    out->mask = d->padded ? malloc(n) : NULL;
    return out->ids && out->labels && (out->mask || !d->padded) ? CLV_OK
                                                                : clv_fail_memory(err, "a batch", n * sizeof *out->ids);
}

void clv_train_batch_free(clv_train_batch *batch)
{
    free(batch->ids);
    free(batch->labels);
    free(batch->mask);
    *batch = (clv_train_batch){0};
}

clv_status clv_train_data_batch(const clv_train_data *d, int64_t step, int64_t batch, const clv_train_batch *out,
                                clv_error *err)
{
    if (!d->text)
        return clv_data_batch_padded(d->ids, step, batch, 0, batch, out->ids, out->labels, out->mask, err);
    if (out->mask)
        memset(out->mask, 1, (size_t)(batch * d->seq));
    return clv_text_data_batch(d->text, d->seed, step, 0, batch, d->seq, out->ids, out->labels, err);
}

const char *clv_train_data_option(const clv_train_data *d)
{
    return d->text ? "--text" : "--data";
}

const char *clv_train_data_unit(const clv_train_data *d)
{
    return d->text ? "bytes" : "tokens";
}
