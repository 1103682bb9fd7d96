/* tokenizer_components.h - components of a tokenizer and the interfaces they implement: normalizer, pre-tokenizer,
 * model, decoder.
 *
 * A component is a row of one of the tables of tokenizer_json.c: its "type", its options, its function.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/utf8.h"
#include "cleave/tokenizer.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "tokens/regex/regex.h"
#include "tokens/tokenizer/text_buffer.h"
#include "tokens/tokenizer/vocab.h"

enum { CLV_MAX_TOKENIZER_STEPS = 16, CLV_MAX_TEMPLATE = 16 };

/* Context of reading a component. */
typedef struct clv_component_reader {
    clv_tokenizer *t;
    const char *where; /* file and component, for messages */
    clv_error *err;
} clv_component_reader;

/* A text split into pre-tokens. */
typedef struct clv_pre_tokens {
    clv_text_buffer text;
    int64_t n, capacity;
    struct clv_pre_token_end {
        size_t end;
        bool first; /* the pre-token starts the text */
    } * pre_token;
} clv_pre_tokens;

typedef struct clv_pre_token {
    clv_text_span text;
    bool first;
} clv_pre_token;

/* Makes the text that was appended to pre_tokens->text since the last call a pre-token, unless it is empty. */
clv_status clv_pre_tokens_end(clv_pre_tokens *pre_tokens, bool first, clv_error *err);
/* Adds [begin, end) of a pre-token as a pre-token. */
clv_status clv_pre_tokens_add(clv_pre_tokens *pre_tokens, const clv_pre_token *of, size_t begin, size_t end,
                              clv_error *err);

/* Texts of tokens during decoding. */
typedef struct clv_token_texts {
    int64_t n;
    clv_text_buffer *item; /* [n], capacity at least 1 */
} clv_token_texts;

/* Frees all texts. */
void clv_token_texts_free(clv_token_texts *all);

/* A required field of a component's JSON, which is read into its options. */
typedef struct clv_component_field {
    const char *key;
    enum { CLV_FIELD_BOOL, CLV_FIELD_STRING, CLV_FIELD_NONEMPTY_STRING, CLV_FIELD_CHARACTER } kind;
    size_t offset; /* in the options; a bool or a clv_text_span */
} clv_component_field;

/* A normalizer, pre-tokenizer, decoder or post-processor: one of the last three functions is set, or none. */
typedef struct clv_tokenizer_component {
    const char *type;
    size_t options_size;           /* allocated in the arena, zeroed; 0: options are fixed_options */
    clv_component_field fields[3]; /* read first; key NULL: none */
    clv_status (*read)(void *options, const clv_component_reader *r, const json_t *json); /* then this; may be NULL */
    const void *fixed_options;
    clv_status (*normalize)(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err);
    clv_status (*split)(clv_pre_tokens *out, const void *options, const clv_pre_token *pre_token, clv_error *err);
    clv_status (*decode)(clv_token_texts *all, const void *options, clv_error *err);
} clv_tokenizer_component;

extern const clv_tokenizer_component clv_normalizer_prepend, clv_normalizer_replace, clv_normalizer_strip,
    clv_normalizer_lowercase, clv_normalizer_nfc, clv_normalizer_nfd, clv_normalizer_nfkc, clv_normalizer_nfkd,
    clv_normalizer_strip_accents, clv_normalizer_bert, clv_normalizer_nmt, clv_normalizer_precompiled,
    clv_normalizer_byte_level;
extern const clv_tokenizer_component clv_pre_tokenizer_metaspace, clv_pre_tokenizer_byte_level,
    clv_pre_tokenizer_by_pattern, clv_pre_tokenizer_bert, clv_pre_tokenizer_whitespace,
    clv_pre_tokenizer_whitespace_alone, clv_pre_tokenizer_punctuation, clv_pre_tokenizer_digits,
    clv_pre_tokenizer_delimiter, clv_pre_tokenizer_length;
extern const clv_tokenizer_component clv_decoder_replace, clv_decoder_byte_fallback, clv_decoder_fuse,
    clv_decoder_strip, clv_decoder_metaspace, clv_decoder_byte_level, clv_decoder_word_piece, clv_decoder_bpe,
    clv_decoder_ctc;

/* A model: encodes a pre-token, which is not empty and valid UTF-8, in time n log n in its length. */
typedef struct clv_token_model {
    const char *type;
    bool vocab_is_list; /* of [text, score], by id */
    size_t size;        /* of the model's data, allocated in the arena, zeroed */
    clv_status (*read)(void *model, const clv_component_reader *r, const json_t *json);
    clv_status (*encode)(const void *model, clv_text_span pre_token, clv_token_ids *out, clv_error *err);
} clv_token_model;

extern const clv_token_model clv_token_model_bpe, clv_token_model_word_piece, clv_token_model_word_level,
    clv_token_model_unigram;

/* Post-processors add special tokens before and after a text: `read` fills clv_tokenizer.before and after. */
extern const clv_tokenizer_component clv_post_processor_template, clv_post_processor_bert, clv_post_processor_roberta,
    clv_post_processor_byte_level;

typedef struct clv_component_sequence {
    int n;
    struct clv_sequence_step {
        const clv_tokenizer_component *component;
        void *options;
    } step[CLV_MAX_TOKENIZER_STEPS];
} clv_component_sequence;

/* A token that is split off before pre-tokenization. */
typedef struct clv_added_token {
    clv_text_span text;
    int64_t id;
    bool special;
    bool single_word;    /* matches only between non-word characters */
    bool lstrip, rstrip; /* includes the white space on this side */
    bool normalized;     /* matched in normalized text */
} clv_added_token;

typedef struct clv_special_ids {
    int n;
    int64_t id[CLV_MAX_TEMPLATE];
} clv_special_ids;

struct clv_tokenizer {
    clv_arena *arena;
    int64_t size;         /* vocabulary: largest id + 1 */
    clv_text_span *token; /* [size] text by id; text NULL: no token */
    bool *special;        /* [size] */
    int64_t n_added;
    clv_added_token *added;
    clv_trie raw, normalized; /* added tokens; values are their indices */
    clv_component_sequence normalizer, pre_tokenizer, decoder;
    clv_special_ids before, after; /* prefix and suffix of a text */
    clv_vocab vocab;               /* of the model */
    const clv_token_model *model;
    void *model_data;
    clv_regex *regexes; /* list, used by components */
    bool bytes;         /* byte tokenizer: only `size` is set */
};

/* ---- reading component options ---- */

/* Copies a text into the arena; NULL: an empty one. */
clv_status clv_component_copy_text(clv_text_span *out, const clv_component_reader *r, const char *text, size_t size);
/* Reads a string into the arena. */
clv_status clv_component_read_string(clv_text_span *out, const clv_component_reader *r, const json_t *object,
                                     const char *key);
/* Reads an optional boolean. */
clv_status clv_component_read_bool(bool *out, const clv_component_reader *r, const json_t *json, const char *key);
/* Reads a string of one character into the arena. */
clv_status clv_component_read_character(clv_text_span *out, const clv_component_reader *r, const json_t *json,
                                        const char *key);
/* Reads "pattern", {"Regex": text} or {"String": text} (*literal), into the arena. */
clv_status clv_component_read_pattern(clv_text_span *text, bool *literal, const clv_component_reader *r,
                                      const json_t *json);
/* Allocates a component's options and reads its fields into them. */
clv_status clv_component_read_options(void **out, const clv_tokenizer_component *component,
                                      const clv_component_reader *r, const json_t *json);
/* Fails with CLV_EFORMAT: "where: " and the message. */
clv_status clv_component_fail(const clv_component_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* CLV_EUNSUPPORTED: "where: what 'name' is not supported; valid: ..." */
clv_status clv_component_fail_unsupported(const clv_component_reader *r, const char *what, const char *name,
                                          const char *valid);
/* The "type" of a component, or "". */
const char *clv_tokenizer_component_type(const json_t *json);
/* Reads a token by `key` and looks up its id, which must exist. */
clv_status clv_component_read_token_id(int64_t *id, const clv_component_reader *r, const json_t *json, const char *key);

/* GPT-2's bytes_to_unicode: the printable character that stands for a byte. */
uint32_t clv_byte_to_unicode(unsigned char byte);

/* Applies all normalizers; *out must be empty, and the caller frees it. */
clv_status clv_tokenizer_normalize(clv_text_buffer *out, const clv_tokenizer *t, clv_text_span text, clv_error *err);

/* path: a folder's tokenizer.json, else its vocab.txt; false: it has neither. */
bool clv_tokenizer_find_file(char path[CLV_PATH_SIZE], const char *folder);
/* Fails with CLV_EINVAL: an id in the text `where` is not below the model's `vocab`. tokenizer, for the token's text,
 * may be NULL. */
clv_status clv_tokenizer_fail_id_out_of_range(const clv_tokenizer *tokenizer, int64_t id, int64_t vocab,
                                              const char *where, clv_error *err);
/* Fills a tokenizer that has only its arena from a parsed tokenizer.json. */
clv_status clv_tokenizer_from_json(clv_tokenizer *t, const json_t *document, const char *where, clv_error *err);
/* Builds the tokenizer.json equivalent to a folder's vocab.txt; release it with json_decref. */
clv_status clv_tokenizer_json_from_vocab_txt(json_t **document, const char *folder, const char *where, clv_error *err);
