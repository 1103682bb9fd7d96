/** @file corpus.h - texts as token files: a corpus is tokenized once, and learned from (data.h) as often as one likes.
 *
 *   clv_corpus_options options = {.size = sizeof options, .tokenizer = tokenizer};
 *   clv_corpus_tokenize(&result, "corpus.bin", paths, n, &options, &err);
 *
 * **Files** may be pipes, "-" (standard input), and compressed by gzip. What they are, their first bytes say, and their
 * names where those do not.
 *
 * **Documents.** A file is one document; of lines of JSON each is one, an object with its text (or, where chat is set,
 * its turns), and of an array of objects each element; of FASTA each record is one, its residues in upper case without
 * what is blank and without a stop ("*") at their end, and one without residues is none. A document's ids are what the
 * tokenizer's template puts before a text, those of the text, what the template puts behind it, and the id that ends a
 * document. A file of text of more than 4 MiB is encoded in pieces that end with a line that has text, before one that
 * does: for nearly every tokenizer the ids are those of the whole; one that puts a space before a text puts it before
 * each piece.
 *
 * The ids do not depend on the number of threads. Bytes that are not UTF-8 are read as tokenizer.h says.
 */
#ifndef CLEAVE_CORPUS_H
#define CLEAVE_CORPUS_H

#include "cleave/cancel.h"
#include "cleave/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Zero-initialised = defaults. */
typedef struct clv_corpus_options {
    size_t size;                    /**< sizeof the struct; 0: as its first version had it */
    const clv_tokenizer *tokenizer; /**< borrowed for the call; NULL: a byte a token */
    const char *field; /**< of a line: the key of its text, or of its turns; NULL: "text", of a chat "messages" */
    int chat;         /**< nonzero: a line has turns, a list of objects with "role" and "content"; of all ids only those
                            of the answers are learned: what is in place of {content} and behind it where the role is
                            "assistant" */
    const char *turn; /**< how a turn is written; NULL: "<|im_start|>{role}\n{content}<|im_end|>\n" */
    const char *end; /**< the text of the token that ends a document; "": none; NULL: of bytes a zero, else the first of
                            "</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "[SEP]" that the tokenizer has */
    int plain;       /**< nonzero: without what the template adds */
    int threads;     /**< 0: as many as there are cores */
    clv_progress_callback *progress; /**< of bytes, on the caller's thread; NULL: nobody asks */
    void *progress_arg;
    const clv_cancel *cancel; /**< NULL: nobody cancels; else CLV_ECANCELLED once it is requested */
    int skip_bad_lines; /**< nonzero: lines of JSON that are not as they ought to be are passed over and counted */
} clv_corpus_options;

/** What was tokenized. */
typedef struct clv_corpus_info {
    size_t size;       /**< the caller's: sizeof the struct, or 0 */
    int64_t bytes;     /**< of text */
    int64_t documents; /**< as above */
    int64_t tokens;    /**< ids */
    int64_t learned;   /**< of these: all, but in a chat */
    int64_t vocab;     /**< of the tokenizer */
    int64_t end;       /**< the id that ends a document; -1: none */
    int64_t skipped;   /**< lines that were passed over */
    int64_t records;   /**< documents that are records of FASTA */
} clv_corpus_info;

/** Tokenizes files, in the order given, into a token file, which appears whole or not at all. *result, unless NULL, is
 *  filled; its `size` the caller has set.
 *  @return CLV_EINVAL for no file, an empty one, a line that is not as it ought to be or has a letter that no protein
 *          has (file and number are named), no document at all, an `end` that is no token, or a turn without {content};
 *          CLV_ELIMIT for a line, or a record, of more than 1 GiB; CLV_ENOTFOUND, CLV_EFORMAT (what is no text),
 *          CLV_EIO; CLV_ECANCELLED; CLV_ENOMEM */
CLV_API clv_status clv_corpus_tokenize(clv_corpus_info *result, const char *out, const char *const *paths, int n,
                                       const clv_corpus_options *options, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
