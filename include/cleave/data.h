/** @file data.h - training data: batches of token ids from token files, texts or safetensors files of rows.
 *
 *   clv_data_open(&data, paths, 1, &(clv_data_options){.size = sizeof options, .seq = 1024}, &err);
 *   clv_data_batch(data, step, B, 0, B, ids, labels, NULL, &err);   for clv_trainer_step
 *   clv_prefetch_new(&prefetch, my_batch, data, B * S, 0, step, &err);   the same, prepared during the step before
 *
 * A batch is a function of (seed, step, B, row) alone: each rank makes the rows it needs, the mesh does not matter, and
 * a resumed run continues with the sequences that would have come next. docs/data.md describes the order of sequences,
 * MLM masking and the format of token files. An open clv_data is immutable: threads may share it.
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

/** Masked-language-model masking; clv_model_mlm_masking fills it. Of the tokens that are not special, `rate` are chosen
 *  and get labels; of these 80 % become the mask token, 10 % a random token, 10 % stay. A plain value. */
typedef struct clv_mlm_masking {
    size_t size;     /**< sizeof the struct, or 0 */
    double rate;     /**< share of tokens that are chosen, above 0, at most 1; 0: 0.15 */
    int64_t mask_id; /**< id of the mask token; -1: none, which only data with labels of their own accept */
    const clv_tokenizer *tokenizer; /**< its special tokens and the ids that it does not have are special; borrowed for
                                         the call; NULL: none */
    int64_t n_special;              /**< number of special_ids */
    int64_t special_ids[CLV_MAX_SPECIAL_IDS]; /**< further special ids: never chosen, never the random token */
} clv_mlm_masking;

/** Zero means the default. */
typedef struct clv_data_options {
    size_t size;                      /**< sizeof the struct, or 0 */
    int64_t seq;                      /**< S, ids a row; 0: that of a file of rows, else 256 */
    int64_t vocab;                    /**< vocabulary: every id must be below; 0: as the files say */
    uint64_t seed;                    /**< of the shuffle, of crops and of masking */
    const clv_corpus_options *corpus; /**< how texts are tokenized; NULL: a byte a token */
    int treat_as_text;                /**< nonzero: all files are texts, whatever their names */
    int sequential;                   /**< nonzero: sequences in file order, not shuffled */
    const clv_mlm_masking *masking;   /**< copied; NULL: each id's label is the next id */
    int64_t one_document_per_row;     /**< nonzero: each document is a row, cropped or padded to S; below 0: only if all
                                           files are FASTA */
    int64_t pad_id;                   /**< id of padding */
} clv_data_options;

/** Whether clv_data_open tokenizes this file: it is text, JSON lines or FASTA, not a token file or safetensors, by its
 *  first bytes or the names .bin and .safetensors. A pipe and "-" are text. */
CLV_API int clv_data_is_text(const char *path);

/** Opens token files and texts, in any mix (texts are tokenized into memory), or one safetensors file of rows: integers
 *  `ids` [N,S]; optional `labels` [N,S], where -100 is ignored; optional `mask` [N,S], 1 = token, 0 = padding. Without
 *  `labels` each id's label is the next id of its row, or what masking makes.
 *  All files are read once: ids are compared with the vocabulary, token files with their checksum. Free with
 *  clv_data_close.
 *  @return CLV_EINVAL for no file, a file without an id, fewer ids than a sequence, a seq that is not that of the rows,
 *          or an id outside of the vocabulary, naming file and position; CLV_EFORMAT for another format or a damaged
 *          file; CLV_EUNSUPPORTED for another version; CLV_ENOTFOUND, CLV_EIO, CLV_ENOMEM */
CLV_API clv_status clv_data_open(clv_data **out, const char *const *paths, int n, const clv_data_options *options,
                                 clv_error *err);
/** Does nothing for NULL. */
CLV_API void clv_data_close(clv_data *data);

/** Counts and properties of open data. */
typedef struct clv_data_info {
    size_t size;           /**< set by the caller: sizeof the struct, or 0 */
    int64_t tokens;        /**< ids of all files */
    int64_t sequences;     /**< rows of an epoch */
    int64_t seq;           /**< S */
    int64_t vocab;         /**< vocabulary of the options, else the largest of the files */
    int64_t end_id;        /**< id that ends each document, if all files agree; else -1 */
    uint64_t checksum;     /**< XXH3 of all ids and labels, to detect other data on resume */
    int64_t has_padding;   /**< nonzero: rows may have padding; clv_data_batch gives the mask */
    int64_t skipped_lines; /**< invalid lines of JSON that clv_corpus_options.skip_bad_lines skipped */
} clv_data_info;

/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for NULL */
CLV_API clv_status clv_data_get_info(const clv_data *data, clv_data_info *out, clv_error *err);

/** Fills rows [first, first + rows) of the batch of `step`, which has `batch` rows: ids[r][0..S), labels[r][0..S) (-100
 *  is ignored) and, unless NULL, mask[r][0..S) (1 = token, 0 = padding).
 *  @return CLV_EINVAL for a step or first below 0, rows or batch below 1, or rows outside of the batch; CLV_EIO for a
 *          page of a mapped file that cannot be read, if clv_handle_sigbus is installed */
CLV_API clv_status clv_data_batch(const clv_data *data, int64_t step, int64_t batch, int64_t first, int64_t rows,
                                  int32_t *ids, int32_t *labels, uint8_t *mask, clv_error *err);

/* ---- prefetching ---- */

/** A callback that fills the batch of a step; mask is NULL unless the prefetch has masks. */
typedef clv_status clv_batch_source(void *arg, int64_t step, int32_t *ids, int32_t *labels, uint8_t *mask,
                                    clv_error *err);

/** A thread that prepares the next batch while the current one is used. */
typedef struct clv_prefetch clv_prefetch;

/** Starts on the batch of `step`. Allocates two batches of `tokens` ids (rows x S), with masks if has_mask is nonzero.
 *  source and arg are borrowed until clv_prefetch_free.
 *  @return CLV_EINVAL for no source, tokens below 1 or above 2^31 - 1, or a step below 0; CLV_ENOMEM */
CLV_API clv_status clv_prefetch_new(clv_prefetch **out, clv_batch_source *source, void *arg, int64_t tokens,
                                    int has_mask, int64_t step, clv_error *err);
/** Waits for the next batch, returns it and starts on the one after. The arrays are borrowed until the next call; mask
 *  may be NULL. For one thread at a time. @return the source's error, from then on always; CLV_EINVAL */
CLV_API clv_status clv_prefetch_next(clv_prefetch *prefetch, const int32_t **ids, const int32_t **labels,
                                     const uint8_t **mask, clv_error *err);
/** Waits for the batch in preparation and stops the thread. Does nothing for NULL. */
CLV_API void clv_prefetch_free(clv_prefetch *prefetch);

/* ---- writing a token file ---- */

/** Writer of a token file. The file appears when it is committed; until then the path keeps what it had. */
typedef struct clv_token_writer clv_token_writer;

/** vocab is required. */
typedef struct clv_token_writer_options {
    size_t size;       /**< sizeof the struct, or 0 */
    int64_t vocab;     /**< vocabulary, 1 to 2^31 - 1: every id is below; up to 65536 ids take 2 bytes, else 4 */
    int64_t end_id;    /**< id that ends each document, for readers; -1: none */
    int has_loss_mask; /**< nonzero: the file stores a loss mask, one bit an id */
} clv_token_writer_options;

/** Starts a file under a temporary name. End with clv_token_writer_commit or clv_token_writer_abort.
 *  @return CLV_EINVAL for options out of range or a path where no file can be; CLV_ENOTFOUND, CLV_EIO, CLV_ENOMEM */
CLV_API clv_status clv_token_writer_create(clv_token_writer **out, const char *path,
                                           const clv_token_writer_options *options, clv_error *err);
/** Appends n ids. loss_mask: [n], nonzero = the id is a label, only with has_loss_mask; NULL: all are labels. No
 *  further call but clv_token_writer_abort may follow a failure.
 *  @return CLV_EINVAL for an id outside of the vocabulary, naming its position; CLV_EIO, CLV_ENOMEM */
CLV_API clv_status clv_token_writer_add(clv_token_writer *writer, const int32_t *ids, const uint8_t *loss_mask,
                                        int64_t n, clv_error *err);
/** Finishes the file, moves it to its path and frees the writer, also after a failure. @return CLV_EINVAL for a file
 *  without an id; CLV_EIO */
CLV_API clv_status clv_token_writer_commit(clv_token_writer *writer, clv_error *err);
/** Removes the temporary file and frees the writer. Does nothing for NULL. */
CLV_API void clv_token_writer_abort(clv_token_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
