/* training_data.c - training data of `cleave train`: its options, tokenizing text or opening token files, and
 * batches.
 */
#include "cli/train/training_data.h"

#include <stdlib.h>
#include <string.h>

static bool has_texts(const clv_strings *files)
{
    for (int i = 0; i < files->n; i++)
        if (clv_data_is_text(files->item[i]))
            return true;
    return false;
}

/* The model that files are opened for. */
typedef struct purpose {
    const clv_data_option *option;
    const clv_model *model; /* NULL: created later */
    bool has_folder;        /* of the model, which may hold a tokenizer */
    clv_model_info info;    /* zeros without a model */
} purpose;

/* Sets masking, for an encoder, and the padding id. */
static clv_status take_model(clv_data_options *options, clv_mlm_masking *masking, const purpose *p,
                             const clv_tokenizer *tokenizer, clv_error *err)
{
    options->vocab = p->info.vocab;
    options->pad_id = p->model && p->info.pad >= 0 ? p->info.pad : 0;
    if (!p->info.bidirectional)
        return CLV_OK;
    CLV_TRY(clv_model_mlm_masking(masking, p->model, tokenizer, err));
    masking->rate = p->option->mask_rate;
    options->masking = masking;
    return CLV_OK;
}

/* Opens files; the tokenizer only if there is text. *bytes: there is no tokenizer, and bytes are tokens. */
static clv_status open_files(clv_data **out, bool *bytes, const clv_strings *files, const purpose *p,
                             clv_data_options *options, clv_error *err)
{
    const clv_data_option *o = p->option;
    clv_tokenizer *given = NULL;
    const clv_tokenizer *tokenizer = NULL;
    clv_mlm_masking masking = {.size = sizeof masking};
    bool texts = has_texts(files);
    if (o->tokenizer)
        CLV_TRY(clv_tokenizer_open(&given, o->tokenizer, err));
    clv_status status = texts && !given && p->has_folder ? clv_model_tokenizer(&tokenizer, p->model, err) : CLV_OK;
    tokenizer = given ? given : tokenizer;
    *bytes = texts && !tokenizer;
    clv_corpus_options corpus = {.size = sizeof corpus,
                                 .tokenizer = tokenizer,
                                 .field = o->field,
                                 .chat = o->chat,
                                 .skip_bad_lines = o->skip_bad_lines};
    options->corpus = &corpus;
    options->one_document_per_row = o->rows ? strcmp(o->rows, "padded") == 0 : -1;
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
    clv_data_options options = {.size = sizeof options, .seq = seq, .seed = d->seed, .sequential = o->no_shuffle};
    CLV_TRY(open_files(&d->ids, &d->bytes, &o->files, p, &options, err));
    CLV_TRY(clv_data_get_info(d->ids, &info, err));
    d->seq = info.seq;
    d->tokens = info.tokens;
    d->checksum = info.checksum;
    d->vocab = info.vocab;
    d->eos_id = info.end_id;
    d->padded = info.has_padding;
    d->skipped = info.skipped_lines;
    d->rows = info.has_padding ? "padded" : "packed";
    if (p->info.bidirectional)
        d->mask_rate = o->mask_rate > 0 ? o->mask_rate : 0.01 * PERCENT;
    return CLV_OK;
}

/* In order, and with the same masks at every validation. */
static clv_status open_val(clv_train_data *d, const purpose *p, clv_error *err)
{
    const clv_data_option *o = p->option;
    clv_data_info info = {.size = sizeof info};
    clv_data_options options = {.size = sizeof options, .seq = d->seq, .sequential = 1};
    bool bytes;
    if (o->val.n == 0)
        return o->eval_every > 0 ? clv_fail(err, CLV_EINVAL, "--eval-every has no effect without --val") : CLV_OK;
    CLV_TRY(open_files(&d->val, &bytes, &o->val, p, &options, err));
    CLV_TRY(clv_data_get_info(d->val, &info, err));
    d->val_sequences = info.sequences;
    d->val_tokens = info.tokens;
    d->val_checksum = info.checksum;
    d->skipped += info.skipped_lines;
    d->padded = d->padded || info.has_padding;
    return CLV_OK;
}

static clv_status check_option(const purpose *p, clv_error *err)
{
    const clv_data_option *o = p->option;
    const clv_model_info *info = &p->info;
    if (o->files.n == 0)
        return clv_fail(err, CLV_EINVAL, "--data (or --text, the same) is missing");
    if (o->mask_rate > 0 && !info->bidirectional)
        return clv_fail(err, CLV_EINVAL, "--mask-rate: the family %s learns the next token; valid for esm and bert",
                        p->model ? info->family : "llama");
    return CLV_OK;
}

clv_status clv_train_data_open(clv_train_data *out, const clv_data_option *option, const clv_model *model,
                               bool has_folder, int64_t seq, uint64_t seed, clv_error *err)
{
    clv_train_data data = {.seq = seq ? seq : CLV_TRAIN_DATA_SEQ, .seed = seed, .rows = "packed"};
    purpose p = {.option = option, .model = model, .has_folder = has_folder, .info = {.size = sizeof p.info}};
    if (model)
        CLV_TRY(clv_model_get_info(model, &p.info, err));
    CLV_TRY(check_option(&p, err));
    clv_status status = open_ids(&data, &p, seq, err);
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
    clv_data_close(d->ids);
    clv_data_close(d->val);
    *d = (clv_train_data){0};
}

clv_status clv_train_batch_alloc(clv_train_batch *out, const clv_train_data *d, int64_t batch, clv_error *err)
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

clv_status clv_train_data_fill_batch(const clv_train_data *d, int64_t step, int64_t batch, const clv_train_batch *out,
                                     clv_error *err)
{
    return clv_data_batch(d->ids, step, batch, 0, batch, out->ids, out->labels, out->mask, err);
}

/* ---- validation ---- */

/* Rows after the last sequence are copies of the first row, without labels. */
static clv_status read_batch(const clv_train_data *d, int64_t first, int64_t batch, const clv_train_batch *b,
                             clv_error *err)
{
    size_t seq = (size_t)d->seq;
    int64_t rows = d->val_sequences - first < batch ? d->val_sequences - first : batch;
    CLV_TRY(clv_data_batch(d->val, 0, d->val_sequences, first, rows, b->ids, b->labels, b->mask, err));
    for (int64_t r = rows; r < batch; r++) {
        memcpy(b->ids + r * d->seq, b->ids, seq * sizeof *b->ids);
        if (b->mask)
            memcpy(b->mask + r * d->seq, b->mask, seq);
        for (int64_t s = 0; s < d->seq; s++)
            b->labels[r * d->seq + s] = CLV_IGNORE_INDEX;
    }
    return CLV_OK;
}

static int64_t count_labels(const int32_t *labels, int64_t n)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < n; i++)
        counted += labels[i] != CLV_IGNORE_INDEX;
    return counted;
}

clv_status clv_train_validate(double *loss, const clv_train_data *data, clv_trainer *trainer, int64_t batch,
                              const clv_train_batch *b, clv_error *err)
{
    double sum = 0;
    int64_t counted = 0;
    for (int64_t first = 0; first < data->val_sequences; first += batch) {
        double mean = 0;
        CLV_TRY(read_batch(data, first, batch, b, err));
        int64_t n_labels = count_labels(b->labels, batch * data->seq);
        if (n_labels == 0)
            continue;
        CLV_TRY(clv_trainer_loss(trainer, b->ids, b->labels, b->mask, &mean, err));
        sum += mean * (double)n_labels;
        counted += n_labels;
    }
    if (counted == 0)
        return clv_fail(err, CLV_EINVAL, "--val: the data has no labels to predict");
    *loss = sum / (double)counted;
    return CLV_OK;
}
