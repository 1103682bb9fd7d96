/** @file sequences.h - tokenized texts and proteins, from a file or from memory, for embed.h and score.h.
 *
 * A sequence longer than the model's maximum is an error, or is skipped or truncated. Sequences are immutable and
 * thread-safe.
 */
#ifndef CLEAVE_SEQUENCES_H
#define CLEAVE_SEQUENCES_H

#include "cleave/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What to do with a sequence that does not fit. */
typedef enum clv_too_long {
    CLV_TOO_LONG_ERROR,   /**< fail, naming it */
    CLV_TOO_LONG_SKIP,    /**< leave it out */
    CLV_TOO_LONG_TRUNCATE /**< drop its last content tokens and keep the tokenizer's special tokens; skip it if no
                               content token would be left */
} clv_too_long;

/** Zero-initialised = defaults. */
typedef struct clv_sequences_options {
    size_t size;                /**< sizeof the struct, or 0 */
    clv_too_long too_long;      /**< what to do with a sequence that does not fit */
    int64_t min_content_tokens; /**< sequences with fewer content tokens do not fit either. Special tokens that the
                                     tokenizer adds do not count */
} clv_sequences_options;

/** Tokenized sequences. */
typedef struct clv_sequences clv_sequences;

/** Reads a file of FASTA, JSON lines (their "text") or lines of text, and tokenizes each record with the model's
 *  tokenizer, special tokens (`<cls>`, `<eos>`) included. clv_text_read says which files can be read. The format
 *  follows from the first bytes, else from the name. Residues become upper case. Empty records and lines count as
 *  sequences. options may be NULL. Free with clv_sequences_free.
 *  @return CLV_EINVAL naming the record or line: a letter that is no residue, or a sequence that does not fit; also for
 *          a file without sequences (but not if all are skipped); errors of clv_model_tokenizer and clv_text_read */
CLV_EXPERIMENTAL clv_status clv_sequences_read(clv_sequences **out, const clv_model *model, const char *path,
                                               const clv_sequences_options *options, clv_error *err);
/** Tokenizes n >= 1 texts. names may be NULL: "1", "2", ... Free with clv_sequences_free.
 *  @return as clv_sequences_read, without the errors of reading a file */
CLV_EXPERIMENTAL clv_status clv_sequences_from_texts(clv_sequences **out, const clv_model *model,
                                                     const char *const *texts, const char *const *names, int64_t n,
                                                     const clv_sequences_options *options, clv_error *err);
/** NULL is a no-op. */
CLV_EXPERIMENTAL void clv_sequences_free(clv_sequences *sequences);

/** A sequence. Strings live with the clv_sequences. */
typedef struct clv_sequence_info {
    size_t size;                /**< set by the caller: sizeof the struct, or 0 */
    const char *name;           /**< first word of a FASTA record; number of a line, from 1 */
    const char *text;           /**< the line, or the residues */
    int64_t tokens;             /**< number of tokens, special tokens included */
    int64_t content_tokens;     /**< number of tokens without special tokens */
    int64_t untruncated_tokens; /**< number of tokens before truncation */
} clv_sequence_info;

/** Number of sequences that fit; they keep their order. */
CLV_EXPERIMENTAL int64_t clv_sequences_count(const clv_sequences *sequences);
/** Number of sequences that were skipped; they keep their order. */
CLV_EXPERIMENTAL int64_t clv_sequences_skipped_count(const clv_sequences *sequences);
/** Fills *out with sequence i; the caller has set `size`. @return CLV_EINVAL for an invalid i */
CLV_EXPERIMENTAL clv_status clv_sequences_at(const clv_sequences *sequences, int64_t i, clv_sequence_info *out,
                                             clv_error *err);
/** Fills *out with skipped sequence i; the caller has set `size`. @return CLV_EINVAL for an invalid i */
CLV_EXPERIMENTAL clv_status clv_sequences_skipped_at(const clv_sequences *sequences, int64_t i, clv_sequence_info *out,
                                                     clv_error *err);
/** Nonzero if the sequences were read as FASTA. */
CLV_EXPERIMENTAL int clv_sequences_is_fasta(const clv_sequences *sequences);
/** The most tokens that fit. */
CLV_EXPERIMENTAL int64_t clv_sequences_max_tokens(const clv_sequences *sequences);

/** Reads a whole text file of at most 1 GiB. *out is NUL-terminated; the caller frees it. The file may be a pipe, "-"
 *  (standard input), or compressed by gzip. A byte order mark is removed. raw 0: CRLF and CR become "\n", and a zero
 *  byte is CLV_EINVAL; nonzero: bytes are kept as they are.
 *  @return CLV_ENOTFOUND; CLV_EFORMAT naming the kind of a file that is not text; CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_text_read(char **out, size_t *size, const char *path, int raw, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
