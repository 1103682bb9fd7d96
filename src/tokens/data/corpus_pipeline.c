/* corpus_pipeline.c - multi-threaded tokenization of text files: workers encode chunks in parallel, output stays in
 * file order. Each thread reads the next chunk, encodes it, and waits for its turn to emit the ids, so that the
 * output, and which failure is reported, do not depend on the number of threads.
 */
#include "tokens/data/corpus_pipeline.h"

#include <pthread.h>
#include <sys/stat.h>

#include "base/hardware/resource_limits.h"
#include "base/threads/thread.h"
#include "cleave/data.h"
#include "tokens/tokenizer/tokenizer_components.h"

enum { MAX_THREADS = 256 };

typedef struct corpus_run {
    const clv_corpus_encoder *encoder;
    clv_corpus_sink *sink;
    void *arg;
    clv_corpus_info info;
    int64_t read, total; /* bytes on disk, of regular files */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    clv_corpus_reader reader;
    int64_t n_taken, n_emitted; /* number of chunks */
    int n_running;              /* number of threads */
    bool at_end;                /* no further chunk is read */
    clv_status status;          /* of the first chunk that failed, in file order */
    clv_error err;
} corpus_run;

/* Reads the next chunk; with the lock. A chunk that cannot be read is emitted as a failure in its turn. */
static bool take_chunk(corpus_run *r, clv_corpus_chunk *chunk, int64_t *number, clv_status *status, clv_error *err)
{
    if (r->at_end)
        return false;
    *status = clv_cancel_requested(r->encoder->options.cancel)
                  ? clv_fail(err, CLV_ECANCELLED, "tokenizing was cancelled")
                  : clv_corpus_reader_next(chunk, &r->reader, err);
    r->at_end = *status != CLV_OK || !chunk->text;
    if (*status == CLV_OK && !chunk->text)
        return false;
    *number = r->n_taken++;
    return true;
}

/* Emits the result of a chunk after all chunks before it; with the lock. */
static void emit_in_order(corpus_run *r, const clv_corpus_chunk *chunk, int64_t number, const clv_corpus_ids *ids,
                          clv_status status, clv_error *err)
{
    while (r->n_emitted < number)
        pthread_cond_wait(&r->changed, &r->lock);
    if (r->status == CLV_OK && status == CLV_OK)
        status = r->sink(r->arg, ids, err);
    if (r->status == CLV_OK && status != CLV_OK) {
        r->status = status;
        r->err = *err;
        r->at_end = true;
    }
    r->read += chunk->read;
    r->info.bytes += (int64_t)chunk->size;
    r->info.skipped_lines += ids->skipped_lines;
    r->info.records += ids->records;
    r->info.documents += ids->documents;
    r->info.tokens += ids->n;
    r->info.loss_tokens += ids->n_loss_tokens;
    r->n_emitted++;
    pthread_cond_broadcast(&r->changed);
}

static void *work(void *arg)
{
    corpus_run *r = arg;
    clv_corpus_ids ids = {0};
    clv_corpus_chunk chunk;
    int64_t number;
    clv_status status;
    clv_error err;
    pthread_mutex_lock(&r->lock);
    while (chunk = (clv_corpus_chunk){0}, err = (clv_error){0}, take_chunk(r, &chunk, &number, &status, &err)) {
        pthread_mutex_unlock(&r->lock);
        ids.n = ids.documents = ids.n_loss_tokens = ids.skipped_lines = ids.records = 0;
        if (status == CLV_OK)
            status = clv_corpus_encoder_encode(&ids, r->encoder, &chunk, &err);
        pthread_mutex_lock(&r->lock);
        emit_in_order(r, &chunk, number, &ids, status, &err);
        free(chunk.text);
    }
    r->n_running--;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    clv_corpus_ids_free(&ids);
    return NULL;
}

static void report_progress(const clv_corpus_options *o, int64_t done, int64_t total)
{
    if (o->progress && total > 0)
        o->progress(o->progress_arg, done < total ? done : total, total);
}

/* Reports progress to the caller until all threads have ended. */
static void wait_and_report_progress(corpus_run *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->n_running > 0) {
        pthread_cond_wait(&r->changed, &r->lock);
        int64_t done = r->read;
        pthread_mutex_unlock(&r->lock);
        report_progress(&r->encoder->options, done, r->total);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    report_progress(&r->encoder->options, r->total, r->total);
}

static clv_status run_threads(corpus_run *r, clv_error *err)
{
    int n_wanted = r->encoder->options.threads ? r->encoder->options.threads : clv_usable_cpus(), n = 0;
    pthread_t threads[MAX_THREADS];
    n_wanted = n_wanted < MAX_THREADS ? n_wanted : MAX_THREADS;
    r->n_running = n_wanted;
    while (n < n_wanted && clv_thread_start(&threads[n], NULL, work, r) == 0)
        n++;
    pthread_mutex_lock(&r->lock);
    r->n_running -= n_wanted - n;
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

/* Adds up the sizes of the files; fails early for a missing file. */
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
    return n > 0 ? CLV_OK : clv_fail(err, CLV_EINVAL, "no text file: at least one is needed");
}

clv_status clv_corpus_tokenize_parallel(clv_corpus_info *result, const clv_corpus_encoder *encoder,
                                        const char *const *paths, int n, clv_corpus_sink *sink, void *arg,
                                        clv_error *err)
{
    corpus_run r = {.encoder = encoder,
                    .sink = sink,
                    .arg = arg,
                    .reader = {.paths = paths, .n = n, .chat = encoder->options.chat},
                    .info = {.vocab = encoder->vocab, .end_id = encoder->end_id}};
    CLV_TRY(add_sizes(&r, paths, n, err));
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.changed, NULL);
    clv_status status = run_threads(&r, err);
    clv_corpus_reader_close(&r.reader);
    pthread_cond_destroy(&r.changed);
    pthread_mutex_destroy(&r.lock);
    if (status == CLV_OK && r.info.documents == 0)
        return clv_fail(err, CLV_EINVAL, "%s%s: holds no document", paths[0], n > 1 ? " and others" : "");
    if (status == CLV_OK && r.info.loss_tokens == 0)
        return clv_fail(err, CLV_EINVAL, "%s%s: holds no turn of an \"assistant\", there is nothing to learn", paths[0],
                        n > 1 ? " and others" : "");
    *result = r.info;
    return status;
}

/* ---- output to a token file ---- */

/* A clv_corpus_sink. */
static clv_status write_ids(void *arg, const clv_corpus_ids *ids, clv_error *err)
{
    return clv_token_writer_add(arg, ids->id, ids->loss_mask, ids->n, err);
}

static clv_status tokenize(clv_corpus_info *info, const char *out, const char *const *paths, int n,
                           const clv_corpus_encoder *encoder, clv_error *err)
{
    clv_token_writer *writer;
    clv_token_writer_options options = {.size = sizeof options,
                                        .vocab = encoder->vocab,
                                        .end_id = encoder->end_id,
                                        .has_loss_mask = encoder->options.chat};
    CLV_TRY(clv_token_writer_create(&writer, out, &options, err));
    clv_status status = clv_corpus_tokenize_parallel(info, encoder, paths, n, write_ids, writer, err);
    if (status == CLV_OK)
        return clv_token_writer_commit(writer, err);
    clv_token_writer_abort(writer);
    return status;
}

/* Writes ids that a model has an embedding row for. */
typedef struct model_ids {
    clv_token_writer *writer;
    const clv_corpus_encoder *encoder;
    int64_t vocab; /* 0: any */
    const char *path;
} model_ids;

/* A clv_corpus_sink. */
static clv_status write_model_ids(void *arg, const clv_corpus_ids *ids, clv_error *err)
{
    const model_ids *to = arg;
    for (int64_t i = 0; to->vocab > 0 && i < ids->n; i++)
        if (ids->id[i] >= to->vocab)
            return clv_tokenizer_fail_id_out_of_range(to->encoder->tokenizer, ids->id[i], to->vocab, to->path, err);
    return write_ids(to->writer, ids, err);
}

clv_status clv_corpus_tokenize_to_memory(clv_token_file *out, clv_corpus_info *info, const clv_corpus_encoder *encoder,
                                         const char *path, int64_t vocab, clv_error *err)
{
    clv_token_writer *writer;
    clv_token_writer_options options = {.size = sizeof options,
                                        .vocab = encoder->vocab,
                                        .end_id = encoder->end_id,
                                        .has_loss_mask = encoder->options.chat};
    uint8_t *image;
    uint64_t size;
    CLV_TRY(clv_token_writer_create_memory(&writer, path, &options, err));
    model_ids to = {writer, encoder, vocab, path};
    clv_status status = clv_corpus_tokenize_parallel(info, encoder, &path, 1, write_model_ids, &to, err);
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
    clv_corpus_encoder encoder;
    clv_corpus_info info = {0};
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    CLV_TRY(clv_corpus_encoder_open(&encoder, options, err));
    clv_status status = tokenize(&info, out, paths, n, &encoder, err);
    clv_corpus_encoder_close(&encoder);
    CLV_TRY(status);
    return result ? clv_struct_copy_out(result, sizeof info, sizeof info, &info, __func__, err) : CLV_OK;
}
