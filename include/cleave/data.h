/** @file data.h - token ids in files as training data, and token files.
 *
 *   clv_data_open(&data, paths, 1, &(clv_data_options){.size = sizeof options, .seq = 1024}, &err);
 *   clv_data_batch(data, step, B, 0, B, ids, labels, &err);     rows of step 0, 1, ...: for clv_trainer_step
 *   clv_prefetch_new(&ahead, my_batch, data, B * S, 0, step, &err);   the same, made while the step before it runs
 *
 * A **token file** holds the ids of a corpus, little-endian, in a row; it is mapped into memory, and may hold more than
 * 2^31. Behind a header of 64 bytes (docs/data.md) NumPy reads it, too: np.memmap(path, "<u2", "r", 64).
 *
 * **Order.** Files are joined in the order given and cut into sequences of S + 1 ids that overlap by one: sequence i is
 * ids [i S, i S + S], of which the last S are the labels of the first S. In each epoch every sequence is a row once, in
 * an order that is a permutation of its own: row r of step k is row k B + r of all epochs, whoever makes it. So batches
 * are a function of (seed, step, B, row) alone: each rank makes the rows that it needs, a run that goes on at a step
 * goes on as it would have, and the mesh does not matter.
 *
 * **Masks.** What encoders (BERT, ESM-2) learn is not the next id but the ids that are masked: with options.masking a
 * sequence is S ids, none of which two sequences share, and labels are of its own ids, at the places chosen: about 15 %
 * of those that are not special, of which 80 % stand there as the mask token, 10 % as any other, 10 % as they are. This
 * depends on (seed, row, position) alone, the row numbered as above: so masks are others in each epoch, and the same
 * on every mesh. Labels that a file of rows has are used as they are.
 *
 * **Documents as rows.** With options.padded each document is a row of its own: one that is longer than the row is cut
 * to a window, chosen by (seed, row), in_order the first one; what is left of a row is padding.
 *
 * What is open is immutable: threads may share it.
 */
#ifndef CLEAVE_DATA_H
#define CLEAVE_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "cleave/corpus.h"
#include "cleave/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading ---- */

/** Sequences of token ids. */
typedef struct clv_data clv_data;

enum { CLV_MAX_SPECIAL_IDS = 16 };

/** What is masked, and by what: clv_model_masking fills it. A plain value. */
typedef struct clv_mlm_masking {
    size_t size;  /**< sizeof the struct; 0: as its first version had it */
    double rate;  /**< the share of tokens that are chosen, above 0, at most 1; 0: 0.15 */
    int64_t mask; /**< the mask token's id; -1: there is none, so that data must have labels of its own */
    const clv_tokenizer *tokenizer; /**< its special tokens, and ids that it does not have, are never chosen and never
                                         put in another's place; borrowed for the call; NULL: there is none */
    int64_t n_special;              /**< nor are these: how many */
    int64_t special[CLV_MAX_SPECIAL_IDS];
} clv_mlm_masking;

/** Zero-initialised = defaults. */
typedef struct clv_data_options {
    size_t size;                      /**< sizeof the struct; 0: as its first version had it */
    int64_t seq;                      /**< S, ids of a row; 0: of a file of rows its own, else 256 */
    int64_t vocab;                    /**< every id is below; 0: below what the files say */
    uint64_t seed;                    /**< of the order of sequences */
    const clv_corpus_options *corpus; /**< how files of texts are tokenized; NULL: a byte a token */
    int texts;                        /**< nonzero: all files are texts, whatever their names */
    int in_order; /**< nonzero: row i of all epochs is sequence i mod their number, without a permutation */
    const clv_mlm_masking *masking; /**< copied; NULL: each id's label is the next one */
    int64_t padded;                 /**< nonzero: each document of token files and texts is a row of its own; below 0:
                                     only where all files are FASTA */
    int64_t pad;                    /**< the id that stands where a row is padding */
} clv_data_options;

/** Whether a file is text (or lines of JSON, or FASTA), which is tokenized: neither a token file nor safetensors, by
 *  its first bytes or the names .bin and .safetensors. A pipe, and "-", are text. */
CLV_API int clv_data_is_text(const char *path);

/** Opens token files, and files of texts, which are read and tokenized as corpus.h says and stay in memory; or one
 *  safetensors file of rows: integers `ids` [N,S], and, where they are given, `labels` [N,S], what the model is to say
 *  at each position (-100: nothing); without them each id's label is the next one, and the last has none, or what is
 *  masked; and `mask` [N,S], 1 = a token, 0 = padding, which has no label but those given.
 *  All is read once: ids are compared with the vocabulary, a token file with its checksum. Free with clv_data_close.
 *  @return CLV_EINVAL for no file, a file without an id, fewer ids than one sequence needs, a seq that is not that of
 *          the rows, or an id that is not in the vocabulary, naming file and position; CLV_EFORMAT for what is none of
 *          these files, or damaged; CLV_EUNSUPPORTED for another version; CLV_ENOTFOUND, CLV_EIO, CLV_ENOMEM */
CLV_API clv_status clv_data_open(clv_data **out, const char *const *paths, int n, const clv_data_options *options,
                                 clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_data_close(clv_data *data);

/** What is open. */
typedef struct clv_data_info {
    size_t size;       /**< the caller's: sizeof the struct, or 0 */
    int64_t tokens;    /**< ids of all files */
    int64_t sequences; /**< of an epoch */
    int64_t seq;       /**< S */
    int64_t vocab;     /**< every id is below: the options', or the largest that a file says */
    int64_t end;       /**< the id behind each document, as all files say; -1: none, or they differ */
    uint64_t checksum; /**< a number that other ids would hardly have, the same everywhere: by which a run that goes on
                            is known to be of the same data */
    int64_t padded;    /**< nonzero: rows may have padding, which clv_data_batch_padded tells */
    int64_t skipped;   /**< lines of JSON that were passed over (clv_corpus_options.skip_bad_lines) */
} clv_data_info;

/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for NULL */
CLV_API clv_status clv_data_get_info(const clv_data *data, clv_data_info *out, clv_error *err);

/** Fills rows [first, first + rows) of the batch of `step`, which has `batch` rows: ids[r][0..S) and labels[r][0..S), a
 *  label of -100 counting for nothing.
 *  @return CLV_EINVAL for a step or first below 0, rows or a batch below 1, or rows that the batch does not have;
 *          CLV_EIO for a page that is gone, where the program's handler of SIGBUS says so */
CLV_API clv_status clv_data_batch(const clv_data *data, int64_t step, int64_t batch, int64_t first, int64_t rows,
                                  int32_t *ids, int32_t *labels, clv_error *err);
/** The same, with mask[r][0..S): 1 = a token, 0 = padding; NULL: nobody asks. @return clv_data_batch's */
CLV_API clv_status clv_data_batch_padded(const clv_data *data, int64_t step, int64_t batch, int64_t first, int64_t rows,
                                         int32_t *ids, int32_t *labels, uint8_t *mask, clv_error *err);

/* ---- ahead of their use ---- */

/** Fills the rows of the batch of a step, as clv_data_batch_padded does; mask is NULL where nobody asks. */
typedef clv_status clv_batch_source(void *arg, int64_t step, int32_t *ids, int32_t *labels, uint8_t *mask,
                                    clv_error *err);

/** Makes batches on a thread of its own: that of the next step while this one's is used. */
typedef struct clv_prefetch clv_prefetch;

/** The thread begins with the batch of `step`. Two batches of `tokens` ids (rows x S) are kept; padded: with masks.
 *  source and arg are borrowed until clv_prefetch_free, which stops the thread.
 *  @return CLV_EINVAL for no source, tokens below 1 or above 2^31 - 1, or a step below 0; CLV_ENOMEM, of a
 *  thread, too */
CLV_API clv_status clv_prefetch_new(clv_prefetch **out, clv_batch_source *source, void *arg, int64_t tokens, int padded,
                                    int64_t step, clv_error *err);
/** The batch of the next step, for which it waits, and begins with the one after it. What the pointers name is borrowed
 *  until the next call; mask may be NULL. By one thread at a time.
 *  @return what the source said of this step, from then on always; CLV_EINVAL */
CLV_API clv_status clv_prefetch_next(clv_prefetch *prefetch, const int32_t **ids, const int32_t **labels,
                                     const uint8_t **mask, clv_error *err);
/** Waits for the batch that is being made. NULL is a no-op. */
CLV_API void clv_prefetch_free(clv_prefetch *prefetch);

/* ---- writing a token file ---- */

/** A token file in the making: whatever happens before it is committed, what stood at its path stays as it was. */
typedef struct clv_token_writer clv_token_writer;

/** vocab is needed; `end` is often -1. */
typedef struct clv_token_writer_options {
    size_t size;   /**< sizeof the struct; 0: as its first version had it */
    int64_t vocab; /**< every id is below, 1 to 2^31 - 1; up to 65536 an id takes two bytes, beyond four */
    int64_t end;   /**< the id behind each document, for readers to know; -1: there is none */
    int masked;    /**< nonzero: it says of each id whether it is learned */
} clv_token_writer_options;

/** Begins a file, on a name of its own beside `path`. End with clv_token_writer_commit or clv_token_writer_abort.
 *  @return CLV_EINVAL for options out of range, or where no file can be; CLV_ENOTFOUND, CLV_EIO, CLV_ENOMEM */
CLV_API clv_status clv_token_writer_create(clv_token_writer **out, const char *path,
                                           const clv_token_writer_options *options, clv_error *err);
/** Appends n ids. learned: [n] of a masked file, nonzero where the id is one that is learned; NULL: all are. A failure
 *  is final.
 *  @return CLV_EINVAL for an id that is not in the vocabulary, naming its position; CLV_EIO, CLV_ENOMEM */
CLV_API clv_status clv_token_writer_add(clv_token_writer *writer, const int32_t *ids, const uint8_t *learned, int64_t n,
                                        clv_error *err);
/** Puts the finished file in its place and frees the writer, whether it succeeds or not. @return CLV_EINVAL for a file
 *  without an id; CLV_EIO */
CLV_API clv_status clv_token_writer_commit(clv_token_writer *writer, clv_error *err);
/** Gives up: removes what was written and frees the writer. NULL is a no-op. */
CLV_API void clv_token_writer_abort(clv_token_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
