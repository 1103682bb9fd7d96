/** @file tokenizer.h - encodes text to token ids and decodes them, by Hugging Face's tokenizer.json.
 *
 * Supported: the models BPE (byte-level or with byte fallback), WordPiece, Unigram and WordLevel, and nearly all
 * normalizers, pre-tokenizers, post-processors and decoders (docs/models.md has the list); Split and Replace accept any
 * Oniguruma regular expression that PCRE2 can run. Other components and expressions are refused by name. A folder
 * without tokenizer.json may hold the vocab.txt of BERT or ESM-2. Results equal those of the `tokenizers` library (of
 * transformers for vocab.txt). Invalid UTF-8 reads as U+FFFD, as in Python.
 *
 * A tokenizer is immutable: threads may share it.
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

/** Encodes and decodes text. */
typedef struct clv_tokenizer clv_tokenizer;

/** Opens a tokenizer.json, a vocab.txt, or a folder with one of them. Free with clv_tokenizer_free.
 *  @return CLV_EFORMAT, CLV_EUNSUPPORTED (naming the component); CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_open(clv_tokenizer **out, const char *path, clv_error *err);
/** Creates a byte tokenizer: ids 0 to 255 are the bytes of the text. Free with clv_tokenizer_free.
 *  @return CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_new_bytes(clv_tokenizer **out, clv_error *err);
/** Does nothing for NULL. */
CLV_API void clv_tokenizer_free(clv_tokenizer *tokenizer);

/** Vocabulary: one more than the largest id. */
CLV_API int64_t clv_tokenizer_vocab_size(const clv_tokenizer *tokenizer);

/** Whether an id has a token; ids below the largest may have none. */
CLV_API bool clv_tokenizer_has_id(const clv_tokenizer *tokenizer, int64_t id);

/** Encodes `size` bytes of text (NULL if size is 0) to *n ids; free() them. special: with the special tokens of the
 *  template, such as a beginning-of-text token.
 *  @return CLV_EINVAL for a character without a token in a vocabulary without an unknown token; CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_encode(const clv_tokenizer *tokenizer, const char *text, size_t size, bool special,
                                        int64_t **ids, int64_t *n, clv_error *err);

/** Decodes n >= 0 ids to *size bytes of UTF-8 (a byte tokenizer: to those bytes) and a zero byte; free() them. Special
 *  tokens and ids without a token are left out; a model may have more ids than its tokenizer.
 *  @return CLV_EINVAL for an id below 0 or above 2^32 - 1; CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_decode(const clv_tokenizer *tokenizer, const int64_t *ids, int64_t n, char **text,
                                        size_t *size, clv_error *err);

/** Writes the kind of tokenizer in a folder, supported or not, as snprintf does: "BPE (tokenizer.json)", "vocab.txt",
 *  "tokenizer.model", "vocab.json" or "none". @return CLV_EFORMAT, CLV_EIO, CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_kind(char *out, size_t size, const char *folder, clv_error *err);

/** Writes the files of a byte tokenizer into a folder: tokenizer.json, and tokenizer_config.json for transformers'
 *  AutoTokenizer.
 *  @return CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_write_bytes(const char *folder, clv_error *err);
/** Copies the tokenizer files that a Hugging Face folder has (tokenizer.json, vocab.json, merges.txt, vocab.txt,
 *  tokenizer.model ...), chat_template.jinja and generation_config.json to another folder, replacing files there.
 *  @return CLV_EIO, CLV_ENOTFOUND if a folder does not exist, CLV_ENOMEM */
CLV_API clv_status clv_tokenizer_copy(const char *from, const char *to, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
