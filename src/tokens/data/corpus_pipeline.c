/* corpus_pipeline.c - multi-threaded tokenization of text files: workers encode chunks in parallel, output stays in
 * file order. Each thread takes the next piece, encodes it, and waits for its turn to hand the ids on: so what comes
 * out, and which failure is told, is the same with any number of them.
 */
#include "tokens/data/corpus_pipeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/hardware/cpu_count.h"
#include "base/threads/thread.h"
#include "base/threads/wait.h"
#include "base/versioned_structs.h"
#include "cleave/data.h"
#include "tokens/tokenizer/tokenizer_components.h"

enum { MAX_THREADS = 256 };

typedef struct corpus_run {
    const clv_corpus_encoder *form;
    clv_corpus_sink *sink;
    void *arg;
    clv_corpus_info info;
    int64_t read, total; /* bytes of all files, as they lie on the disk, as far as they are known */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    clv_corpus_reader cursor;
    int64_t taken, given; /* pieces */
    int working;          /* threads */
    bool at_end;          /* no piece is taken any more */
    clv_status status;    /* of the first piece that failed, in their order */
    clv_error err;
} corpus_run;

/* The next piece and its number; with the lock. A piece that cannot be read is one, too, and fails in its turn. */
static bool take(corpus_run *r, clv_corpus_chunk *piece, int64_t *number, clv_status *status, clv_error *err)
{
    if (r->at_end)
        return false;
    *status = clv_cancel_requested(r->form->options.cancel) ? clv_fail(err, CLV_ECANCELLED, "tokenizing was cancelled")
                                                            : clv_corpus_reader_next(piece, &r->cursor, err);
    r->at_end = *status != CLV_OK || !piece->text;
    if (*status == CLV_OK && !piece->text)
        return false;
    *number = r->taken++;
    return true;
}

/* Hands on what became of a piece, when all before it are; with the lock. */
static void emit_in_order(corpus_run *r, const clv_corpus_chunk *piece, int64_t number, const clv_corpus_ids *ids,
                          clv_status status, clv_error *err)
{
    while (r->given < number)
        pthread_cond_wait(&r->moved, &r->lock);
    if (r->status == CLV_OK && status == CLV_OK)
        status = r->sink(r->arg, ids, err);
    if (r->status == CLV_OK && status != CLV_OK) {
        r->status = status;
        r->err = *err;
        r->at_end = true;
    }
    r->read += piece->read;
    r->info.bytes += (int64_t)piece->size;
    r->info.skipped_lines += ids->skipped_lines;
    r->info.records += ids->records;
    r->info.documents += ids->documents;
    r->info.tokens += ids->n;
    r->info.loss_tokens += ids->n_loss_tokens;
    r->given++;
    pthread_cond_broadcast(&r->moved);
}

static void *work(void *arg)
{
    corpus_run *r = arg;
    clv_corpus_ids ids = {0};
    clv_corpus_chunk piece;
    int64_t number;
    clv_status status;
    clv_error err;
    pthread_mutex_lock(&r->lock);
    while (piece = (clv_corpus_chunk){0}, err = (clv_error){0}, take(r, &piece, &number, &status, &err)) {
        pthread_mutex_unlock(&r->lock);
        ids.n = ids.documents = ids.n_loss_tokens = ids.skipped_lines = ids.records = 0;
        if (status == CLV_OK)
            status = clv_corpus_encoder_encode(&ids, r->form, &piece, &err);
        pthread_mutex_lock(&r->lock);
        emit_in_order(r, &piece, number, &ids, status, &err);
        free(piece.text);
    }
    r->working--;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
    clv_corpus_ids_free(&ids);
    return NULL;
}

static void report_progress(const clv_corpus_options *o, int64_t done, int64_t total)
{
    if (o->progress && total > 0)
        o->progress(o->progress_arg, done < total ? done : total, total);
}

/* Tells the caller how far it is until all threads have ended. */
static void wait_and_report_progress(corpus_run *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->working > 0) {
        pthread_cond_wait(&r->moved, &r->lock);
        int64_t done = r->read;
        pthread_mutex_unlock(&r->lock);
        report_progress(&r->form->options, done, r->total);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    report_progress(&r->form->options, r->total, r->total);
}

static clv_status run_threads(corpus_run *r, clv_error *err)
{
    int wanted = r->form->options.threads ? r->form->options.threads : clv_usable_cpus(), n = 0;
    pthread_t threads[MAX_THREADS];
    wanted = wanted < MAX_THREADS ? wanted : MAX_THREADS;
    r->working = wanted;
    while (n < wanted && clv_thread_start(&threads[n], NULL, work, r) == 0)
        n++;
    pthread_mutex_lock(&r->lock);
    r->working -= wanted - n;
    pthread_mutex_unlock(&r->lock);
    if (n > 0)
        wait_and_report_progress(r);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    if (n == 0)
        return clv_fail(err, CLV_ENOMEM, "no thread can be started");
    if (r->status != CLV_OK && err)
        *err = r->err;
    return r->status;
}

/* What there is to read; a file that is not there is found before anything is done. */
static clv_status add_sizes(corpus_run *r, const char *const *paths, int n, clv_error *err)
{
    for (int i = 0; i < n; i++) {
        struct stat info;
        if (!paths || !paths[i])
            return clv_require(0, "clv_corpus_tokenize", "n paths", err);
        if (strcmp(paths[i], "-") == 0)
            continue;
        if (stat(paths[i], &info) != 0)
            return clv_fail_errno(err, "open", paths[i]);
        r->total += S_ISREG(info.st_mode) ? (int64_t)info.st_size : 0;
    }
    return n > 0 ? CLV_OK : clv_fail(err, CLV_EINVAL, "no file of texts: at least one is needed");
}

clv_status clv_corpus_tokenize_parallel(clv_corpus_info *result, const clv_corpus_encoder *form,
                                        const char *const *paths, int n, clv_corpus_sink *sink, void *arg,
                                        clv_error *err)
{
    corpus_run r = {.form = form,
                    .sink = sink,
                    .arg = arg,
                    .cursor = {.paths = paths, .n = n, .chat = form->options.chat},
                    .info = {.vocab = form->vocab, .end_id = form->end_id}};
    CLV_TRY(add_sizes(&r, paths, n, err));
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.moved, NULL);
    clv_status status = run_threads(&r, err);
    clv_corpus_reader_close(&r.cursor);
    pthread_cond_destroy(&r.moved);
    pthread_mutex_destroy(&r.lock);
    if (status == CLV_OK && r.info.documents == 0)
        return clv_fail(err, CLV_EINVAL, "%s%s: holds no document", paths[0], n > 1 ? " and others" : "");
    if (status == CLV_OK && r.info.loss_tokens == 0)
        return clv_fail(err, CLV_EINVAL, "%s%s: holds no turn of an \"assistant\", there is nothing to learn", paths[0],
                        n > 1 ? " and others" : "");
    *result = r.info;
    return status;
}

/* ---- into a token file ---- */

/* A clv_corpus_sink. */
static clv_status write_ids(void *arg, const clv_corpus_ids *ids, clv_error *err)
{
    return clv_token_writer_add(arg, ids->id, ids->loss_mask, ids->n, err);
}

static clv_status tokenize(clv_corpus_info *info, const char *out, const char *const *paths, int n,
                           const clv_corpus_encoder *form, clv_error *err)
{
    clv_token_writer *writer;
    clv_token_writer_options options = {
        .size = sizeof options, .vocab = form->vocab, .end_id = form->end_id, .has_loss_mask = form->options.chat};
    CLV_TRY(clv_token_writer_create(&writer, out, &options, err));
    clv_status status = clv_corpus_tokenize_parallel(info, form, paths, n, write_ids, writer, err);
    if (status == CLV_OK)
        return clv_token_writer_commit(writer, err);
    clv_token_writer_abort(writer);
    return status;
}

/* Ids for a model: those that it has a row for. */
typedef struct model_ids {
    clv_token_writer *writer;
    const clv_corpus_encoder *form;
    int64_t vocab; /* 0: any */
    const char *path;
} model_ids;

/* A clv_corpus_sink. */
static clv_status write_model_ids(void *arg, const clv_corpus_ids *ids, clv_error *err)
{
    const model_ids *to = arg;
    for (int64_t i = 0; to->vocab > 0 && i < ids->n; i++)
        if (ids->id[i] >= to->vocab)
            return clv_tokenizer_fail_id_out_of_range(to->form->tokenizer, ids->id[i], to->vocab, to->path, err);
    return write_ids(to->writer, ids, err);
}

clv_status clv_corpus_tokenize_to_memory(clv_token_file *out, clv_corpus_info *info, const clv_corpus_encoder *form,
                                         const char *path, int64_t vocab, clv_error *err)
{
    clv_token_writer *writer;
    clv_token_writer_options options = {
        .size = sizeof options, .vocab = form->vocab, .end_id = form->end_id, .has_loss_mask = form->options.chat};
    uint8_t *image;
    uint64_t size;
    CLV_TRY(clv_token_writer_create_memory(&writer, path, &options, err));
    model_ids to = {writer, form, vocab, path};
    clv_status status = clv_corpus_tokenize_parallel(info, form, &path, 1, write_model_ids, &to, err);
    if (status != CLV_OK) {
        clv_token_writer_abort(writer);
        return status;
    }
    CLV_TRY(clv_token_writer_finish_memory(writer, &image, &size, err));
    return clv_token_file_open_memory(out, path, image, size, vocab, err);
}

clv_status clv_corpus_tokenize(clv_corpus_info *result, const char *out, const char *const *paths, int n,
                               const clv_corpus_options *options, clv_error *err)
{
    static const char call[] = "clv_corpus_tokenize";
    clv_corpus_encoder form;
    clv_corpus_info info = {0};
    CLV_TRY(clv_require(out != NULL, call, "out", err));
    CLV_TRY(clv_corpus_encoder_open(&form, options, err));
    clv_status status = tokenize(&info, out, paths, n, &form, err);
    clv_corpus_encoder_close(&form);
    CLV_TRY(status);
    return result ? clv_struct_copy_out(result, sizeof info, offsetof(clv_corpus_info, skipped_lines), &info, call, err)
                  : CLV_OK;
}
