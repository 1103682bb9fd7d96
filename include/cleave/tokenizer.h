/** @file tokenizer.h - text to token ids and back, as Hugging Face's tokenizer.json describes it.
 *
 * Supported: the models BPE (with byte fallback or byte-level), WordPiece, Unigram and WordLevel, and nearly all
 * normalizers, pre-tokenizers, post-processors and decoders (docs/models.md has the list); Split and Replace by any
 * regular expression, read as Oniguruma reads it and run by PCRE2. Any other component is refused by name, and an
 * expression by what is wrong with it. A folder without tokenizer.json may hold BERT's or ESM-2's vocab.txt. Results
 * equal those of the `tokenizers` library (of transformers for vocab.txt); bytes that are not UTF-8 read as U+FFFD, as
 * Python reads them.
 *
 * A tokenizer is immutable: threads may share it. What calls hand out is the caller's, who frees it with free().
 */
#ifndef CLEAVE_TOKENIZER_H
#define CLEAVE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Texts to ids and back. */
typedef struct clv_tokenizer clv_tokenizer;

/** A tokenizer.json, or the folder that holds one, or a vocab.txt. Free with clv_tokenizer_free.
 *  @return CLV_EFORMAT, CLV_EUNSUPPORTED (naming the component); CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_open(clv_tokenizer **out, const char *path, clv_error *err);
/** The tokenizer of models whose tokens are the 256 bytes: any text, and ids 0 to 255. Free with clv_tokenizer_free.
 *  @return CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_new_bytes(clv_tokenizer **out, clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_tokenizer_free(clv_tokenizer *tokenizer);

/** One more than the largest id. */
CLV_API int64_t clv_tokenizer_vocab_size(const clv_tokenizer *tokenizer);

/** Whether an id has a token: there may be gaps below the largest. */
CLV_API bool clv_tokenizer_has_id(const clv_tokenizer *tokenizer, int64_t id);

/** Ids of a text of `size` bytes (text may be NULL where size is 0); `special` adds what the template does (a
 *  beginning-of-text token). *ids has *n elements, the caller's to free().
 *  @return CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_encode(const clv_tokenizer *tokenizer, const char *text, size_t size, bool special,
                                        int64_t **ids, int64_t *n, clv_error *err);

/** Text of n >= 0 ids, *size bytes of UTF-8 with a zero byte behind; special tokens are left out, and ids that have no
 *  token, which a model may have beyond its tokenizer's. (Of the bytes' tokenizer: the bytes as they are.) The caller's
 *  to free().
 *  @return CLV_EINVAL for an id below 0 or above 2^32 - 1; CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_decode(const clv_tokenizer *tokenizer, const int64_t *ids, int64_t n, char **text,
                                        size_t *size, clv_error *err);

/** What a folder holds by way of a tokenizer, supported or not, written as snprintf does: "BPE (tokenizer.json)" in its
 *  own word, "vocab.txt", "tokenizer.model", "vocab.json" or "none". @return CLV_EFORMAT, CLV_EIO, CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_kind(char *out, size_t size, const char *folder, clv_error *err);

/** Writes the tokenizer of the 256 bytes into a folder: tokenizer.json, and the tokenizer_config.json with which
 *  transformers' AutoTokenizer loads it.
 *  @return CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_write_bytes(const char *folder, clv_error *err);
/** Copies a tokenizer from one folder of the Hub to another: those of its files that are there, whatever its form
 *  (tokenizer.json, vocab.json and merges.txt, vocab.txt, tokenizer.model ...), and how text is made with it
 *  (chat_template.jinja, generation_config.json). What stands under these names is replaced.
 *  @return CLV_EIO, CLV_ENOTFOUND for a folder that is not there, CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_copy(const char *from, const char *to, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
