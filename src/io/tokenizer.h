/* tokenizer.h - text to token ids and back, as Hugging Face's tokenizer.json describes it.
 *
 * Supported: BPE, with byte fallback or byte-level; normalizers Prepend and Replace (of a string); pre-tokenizers Metaspace, and
 * ByteLevel by its own pattern or a Split's; template post-processing; decoders Replace, ByteFallback, Fuse, Strip,
 * Metaspace, ByteLevel; sequences of these; added and special tokens. That is the kind of GPT-2, Llama 2 and 3, Mistral. Any
 * other component is refused by name.
 * Results equal those of the `tokenizers` library, bytes that are not UTF-8 being read as U+FFFD as Python does.
 */
#ifndef CLEAVE_IO_TOKENIZER_H
#define CLEAVE_IO_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_tokenizer clv_tokenizer;

/* A tokenizer.json, or the folder that holds one. Free with clv_tokenizer_free. Immutable: threads may share it.
 * @return CLV_EFORMAT, CLV_EUNSUPPORTED (naming the component); CLV_ENOTFOUND, CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
clv_status clv_tokenizer_open(clv_tokenizer **out, const char *path, clv_error *err);
void clv_tokenizer_free(clv_tokenizer *tokenizer);
/* One more than the largest id. */
int64_t clv_tokenizer_size(const clv_tokenizer *tokenizer);

/* Ids of a text; `special` adds what the template does (a beginning-of-text token). *ids [*n] is the caller's to free. */
clv_status clv_tokenizer_encode(const clv_tokenizer *tokenizer, const char *text, size_t size, bool special,
                                int64_t **ids, int64_t *n, clv_error *err);

/* Text of ids, UTF-8, a zero byte behind; special tokens are left out. *text is the caller's to free.
 * @return CLV_EINVAL for an id that there is not */
clv_status clv_tokenizer_decode(const clv_tokenizer *tokenizer, const int64_t *ids, int64_t n, char **text,
                                size_t *size, clv_error *err);

#endif
