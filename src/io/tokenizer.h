/* tokenizer.h - text to token ids and back, as Hugging Face's tokenizer.json describes it.
 *
 * Supported: the models BPE (with byte fallback or byte-level), WordPiece and WordLevel; of normalizers, pre-tokenizers,
 * post-processors and decoders those in the tables of tokenizer_json.c: what GPT-2, Llama 2 and 3, Mistral, Qwen2, RoBERTa and BERT
 * use. Any other component is refused by name, and a Split's pattern that is not one of the known ones.
 * A folder without tokenizer.json may hold BERT's or ESM-2's vocab.txt.
 * Results equal those of the `tokenizers` library (of transformers for vocab.txt), bytes that are not UTF-8 being read as U+FFFD as
 * Python does.
 */
#ifndef CLEAVE_IO_TOKENIZER_H
#define CLEAVE_IO_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_tokenizer clv_tokenizer;

/* The file that describes a folder's tokenizer, tokenizer.json or else vocab.txt, the caller's to free; NULL: there is none. */
clv_status clv_tokenizer_find(char **out, const char *folder, clv_error *err);

/* A tokenizer.json, or the folder that holds one, or a vocab.txt. Free with clv_tokenizer_free. Immutable: threads may share it.
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

/* Writes the tokenizer of models whose tokens are the 256 bytes: tokenizer.json, and the tokenizer_config.json with which
 * transformers' AutoTokenizer loads it. Both give a text's UTF-8 bytes as ids. */
clv_status clv_tokenizer_write_bytes(const char *folder, clv_error *err);

#endif
