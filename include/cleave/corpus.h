/** @file corpus.h - tokenizes texts into a token file, which data.h reads.
 *
 *   clv_corpus_options options = {.size = sizeof options, .tokenizer = tokenizer};
 *   clv_corpus_tokenize(&result, "corpus.bin", paths, n, &options, &err);
 *
 * Input files are text (one document), JSON lines or a JSON array (a document an object), or FASTA (a document a
 * record), detected by their first bytes, then by name; they may be pipes, "-" (standard input) and gzip. A document
 * becomes the prefix of the tokenizer's template, its ids, the suffix of the template, and the id that ends a document.
 * The result does not depend on the number of threads. docs/data.md has the details.
 */
#ifndef CLEAVE_CORPUS_H
#define CLEAVE_CORPUS_H

#include "cleave/cancel.h"
#include "cleave/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Zero means the default. */
typedef struct clv_corpus_options {
    size_t size;                    /**< sizeof the struct, or 0 */
    const clv_tokenizer *tokenizer; /**< borrowed for the call; NULL: a byte a token */
    const char *field; /**< key of a JSON object's text, or of its turns; NULL: "text", with chat "messages" */
    int chat;          /**< nonzero: JSON objects hold a chat, a list of turns with "role" and "content"; only turns of
                            the role "assistant" are labels, from {content} to the end of turn_template */
    const char *turn_template; /**< text of a turn; NULL: "<|im_start|>{role}\n{content}<|im_end|>\n" */
    const char *end_token;     /**< text of the token that ends a document; "": none; NULL: for bytes a zero, else the
                                    first of "</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "[SEP]" that exists */
    int no_special;            /**< nonzero: without the prefix and suffix of the tokenizer's template */
    int threads;               /**< 0: the number of usable CPUs */
    clv_progress_callback *progress; /**< called with bytes read, on the caller's thread; optional */
    void *progress_arg;
    const clv_cancel *cancel; /**< optional; the call returns CLV_ECANCELLED once it is requested */
    int skip_bad_lines;       /**< nonzero: skip and count invalid JSON lines; default: fail */
} clv_corpus_options;

/** Result of clv_corpus_tokenize. */
typedef struct clv_corpus_info {
    size_t size;           /**< set by the caller: sizeof the struct, or 0 */
    int64_t bytes;         /**< of text read */
    int64_t documents;     /**< number of documents */
    int64_t tokens;        /**< ids written */
    int64_t loss_tokens;   /**< ids that are labels: all, except in chats */
    int64_t vocab;         /**< vocabulary of the tokenizer */
    int64_t end_id;        /**< id that ends a document; -1: none */
    int64_t skipped_lines; /**< number of invalid lines skipped */
    int64_t records;       /**< documents that are FASTA records */
} clv_corpus_info;

/** Tokenizes files, in the given order, into a token file, which is written atomically. *result, unless NULL, is
 *  filled; the caller has set its `size`.
 *  @return CLV_EINVAL for no file, an empty file, an invalid line or a letter that is not a residue (naming file and
 *          line), no document, an unknown end_token, or a turn_template without {content}; CLV_ELIMIT for a line or
 *          record above 1 GiB; CLV_ENOTFOUND, CLV_EFORMAT (not text), CLV_EIO; CLV_ECANCELLED; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_corpus_tokenize(clv_corpus_info *result, const char *out, const char *const *paths,
                                                int n, const clv_corpus_options *options, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
