/** @file sequences.h - texts and proteins as tokens of a model, for embed.h and score.h: given, or of a file.
 *
 * A sequence that does not fit the model's positions is refused, left out, or cut. Sequences are immutable once read:
 * threads may share them.
 */
#ifndef CLEAVE_SEQUENCES_H
#define CLEAVE_SEQUENCES_H

#include "cleave/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What becomes of a sequence that does not fit. */
typedef enum clv_too_long {
    CLV_TOO_LONG_ERROR, /**< an error that names it */
    CLV_TOO_LONG_SKIP,
    CLV_TOO_LONG_TRUNCATE /**< its last own tokens go, what the tokenizer adds stays; left out where that is too much,
                             too */
} clv_too_long;

/** Zero-initialised = defaults. */
typedef struct clv_sequences_options {
    size_t size;           /**< sizeof the struct; 0: as its first version had it */
    clv_too_long too_long; /**< as it says */
    int64_t
        min_content_tokens; /**< own tokens that a sequence must have to fit, beside those that the tokenizer adds */
} clv_sequences_options;

/** Sequences as tokens of a model. */
typedef struct clv_sequences clv_sequences;

/** Reads FASTA, lines of JSON (their "text"), or lines of text, and encodes them by the model's tokenizer, with what it
 *  adds (`<cls>`, `<eos>`). The file is read as by clv_text_read; what it is, its first bytes say, and its name where
 *  those do not. Residues become upper case. An empty record or line of text is one like others. options may be NULL.
 *  Free with clv_sequences_free.
 *  @return CLV_EINVAL naming the record or line: a letter that no protein has, or refused; or when the file has none
 *          (that all are left out is no error); clv_model_tokenizer's; those of clv_text_read */
CLV_API clv_status clv_sequences_read(clv_sequences **out, const clv_model *model, const char *path,
                                      const clv_sequences_options *options, clv_error *err);
/** The same of n >= 1 texts. names may be NULL: "1", "2", ... Free with clv_sequences_free.
 *  @return CLV_EINVAL for fewer; those of clv_sequences_read but what reading a file returns */
CLV_API clv_status clv_sequences_from_texts(clv_sequences **out, const clv_model *model, const char *const *texts,
                                            const char *const *names, int64_t n, const clv_sequences_options *options,
                                            clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_sequences_free(clv_sequences *sequences);

/** A sequence; texts live with the sequences. */
typedef struct clv_sequence_info {
    size_t size;      /**< the caller's: sizeof the struct, or 0 */
    const char *name; /**< of a FASTA record, its first word; of a line, its number from 1 */
    const char *text; /**< the line, or the residues */
    int64_t tokens;   /**< that are used */
    int64_t own;      /**< of these, its own */
    int64_t whole;    /**< tokens before it was cut; `tokens` where it was not */
} clv_sequence_info;

/** Those that fit, numbered from 0 in the order given, and those that were left out, in theirs. */
CLV_API int64_t clv_sequences_count(const clv_sequences *sequences);
/** See clv_sequences_count. */
CLV_API int64_t clv_sequences_skipped_count(const clv_sequences *sequences);
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for one that there is not */
CLV_API clv_status clv_sequences_at(const clv_sequences *sequences, int64_t i, clv_sequence_info *out, clv_error *err);
/** The same of one that was left out. @return CLV_EINVAL for one that there is not */
CLV_API clv_status clv_sequences_skipped_at(const clv_sequences *sequences, int64_t i, clv_sequence_info *out,
                                            clv_error *err);
/** Whether they were read as FASTA. */
CLV_API int clv_sequences_is_fasta(const clv_sequences *sequences);
/** The most tokens that fit. */
CLV_API int64_t clv_sequences_max_tokens(const clv_sequences *sequences);

/** All of a file of text of at most 1 GiB, with a zero byte behind, the caller's to free(). The file may be a pipe, "-"
 *  (standard input), and compressed by gzip; a byte order mark before the text is left out. zeros 0: for lines that are
 *  used as strings: all three ends of lines become "\n", and a zero byte is CLV_EINVAL.
 *  @return CLV_ENOTFOUND, CLV_EFORMAT (a folder, or what is no text, by what it is), CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_API clv_status clv_text_read(char **out, size_t *size, const char *path, int zeros, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
