/* tokenizer_json.c - parses tokenizer.json: component tables, vocabulary, added tokens. Components are looked up in
 * tables by their "type"; what is not there is refused.
 */
#include <stdio.h>

#include "tokens/tokenizer/tokenizer_components.h"

/* ---- tables ---- */

static const clv_tokenizer_component *const normalizers[] = {&clv_normalizer_prepend,    &clv_normalizer_replace,
                                                             &clv_normalizer_strip,      &clv_normalizer_lowercase,
                                                             &clv_normalizer_nfc,        &clv_normalizer_nfd,
                                                             &clv_normalizer_nfkc,       &clv_normalizer_nfkd,
                                                             &clv_normalizer_bert,       &clv_normalizer_strip_accents,
                                                             &clv_normalizer_nmt,        &clv_normalizer_precompiled,
                                                             &clv_normalizer_byte_level, NULL};
static const clv_tokenizer_component *const pre_tokenizers[] = {&clv_pre_tokenizer_metaspace,
                                                                &clv_pre_tokenizer_byte_level,
                                                                &clv_pre_tokenizer_by_pattern,
                                                                &clv_pre_tokenizer_bert,
                                                                &clv_pre_tokenizer_whitespace,
                                                                &clv_pre_tokenizer_whitespace_alone,
                                                                &clv_pre_tokenizer_punctuation,
                                                                &clv_pre_tokenizer_digits,
                                                                &clv_pre_tokenizer_delimiter,
                                                                &clv_pre_tokenizer_length,
                                                                NULL};
static const clv_tokenizer_component *const decoders[] = {
    &clv_decoder_replace,    &clv_decoder_byte_fallback, &clv_decoder_fuse, &clv_decoder_strip, &clv_decoder_metaspace,
    &clv_decoder_byte_level, &clv_decoder_word_piece,    &clv_decoder_bpe,  &clv_decoder_ctc,   NULL};
static const clv_token_model *const models[] = {&clv_token_model_bpe, &clv_token_model_word_piece,
                                                &clv_token_model_word_level, &clv_token_model_unigram};
static const clv_tokenizer_component *const post_processors[] = {&clv_post_processor_template, &clv_post_processor_bert,
                                                                 &clv_post_processor_roberta,
                                                                 &clv_post_processor_byte_level, NULL};

/* Reader of a component, which its messages name. */
static clv_status component_reader(clv_component_reader *out, const clv_component_reader *r, const char *part,
                                   const char *type)
{
    *out = *r;
    out->where = clv_arena_format(r->t->arena, "%s: the %s %s", r->where, part, type);
    return out->where ? CLV_OK : clv_fail_memory(r->err, r->where, strlen(type));
}

/* ---- normalizer, pre-tokenizer, decoder, post-processor ---- */

typedef struct part {
    const char *name, *sequence; /* of the part; key of the list in its Sequence */
    const clv_tokenizer_component *const *table;
} part;

static clv_status unknown_type(const clv_component_reader *r, const part *p, const char *type)
{
    char valid[512] = "";
    for (size_t i = 0; p->table[i]; i++) {
        strncat(valid, p->table[i]->type, sizeof valid - strlen(valid) - 1);
        strncat(valid, ", ", sizeof valid - strlen(valid) - 1);
    }
    strncat(valid, "Sequence", sizeof valid - strlen(valid) - 1);
    char what[64];
    snprintf(what, sizeof what, "the %s", p->name);
    return clv_component_fail_unsupported(r, what, type, valid);
}

static clv_status add_step(clv_component_sequence *steps, const clv_component_reader *r, const part *p,
                           const json_t *json)
{
    const char *type = clv_tokenizer_component_type(json);
    clv_component_reader mine;
    size_t i = 0;
    while (p->table[i] && strcmp(p->table[i]->type, type) != 0)
        i++;
    if (!p->table[i])
        return unknown_type(r, p, type);
    struct clv_sequence_step discarded, *step = &discarded;
    if (steps && steps->n == CLV_MAX_TOKENIZER_STEPS)
        return clv_fail(r->err, CLV_ELIMIT, "%s: the %s has more than %d steps", r->where, p->name,
                        CLV_MAX_TOKENIZER_STEPS);
    if (steps)
        step = &steps->step[steps->n++];
    step->component = p->table[i];
    step->options = (void *)p->table[i]->fixed_options;
    CLV_TRY(component_reader(&mine, r, p->name, type));
    return clv_component_read_options(&step->options, step->component, &mine, json);
}

/* Nested Sequences are flattened; the JSON reader bounds their depth. steps NULL: only read (post-processors). */
static clv_status read_steps(clv_component_sequence *steps, const clv_component_reader *r, const part *p,
                             const json_t *json)
{
    if (!json || json_is_null(json))
        return CLV_OK;
    if (strcmp(clv_tokenizer_component_type(json), "Sequence") != 0)
        return add_step(steps, r, p, json);
    const json_t *list = json_object_get(json, p->sequence);
    if (!json_is_array(list))
        return clv_component_fail(r, "the %s Sequence: \"%s\" must be a list", p->name, p->sequence);
    for (size_t i = 0; i < json_array_size(list); i++)
        CLV_TRY(json_is_null(json_array_get(list, i)) ? unknown_type(r, p, "null")
                                                      : read_steps(steps, r, p, json_array_get(list, i)));
    return CLV_OK;
}

/* ---- vocabulary ---- */

enum { LARGEST_ID = 1 << 24 };

/* Text i, which has id i, of a list of [text, score]. */
static clv_status listed_text(clv_text_span *out, const clv_component_reader *r, const json_t *vocab, size_t i)
{
    const json_t *pair = json_array_get(vocab, i), *text = json_array_get(pair, 0);
    if (json_array_size(pair) != 2 || !json_is_string(text) || !json_is_number(json_array_get(pair, 1)))
        return clv_component_fail(r, "item %zu of \"vocab\" is not [\"token\", score]", i + 1);
    return clv_component_copy_text(out, r, json_string_value(text), json_string_length(text));
}

static clv_status largest_id(int64_t *out, const clv_component_reader *r, const json_t *vocab, const json_t *added)
{
    const char *key;
    json_t *value;
    *out = (int64_t)json_array_size(vocab) - 1; /* -1 for an object */
    if (*out > LARGEST_ID)
        return clv_component_fail(r, "more tokens than %d", LARGEST_ID);
    json_object_foreach((json_t *)vocab, key, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > LARGEST_ID)
            return clv_component_fail(r, "the id of '%.60s' must be 0 to %d", key, LARGEST_ID);
        *out = json_integer_value(value) > *out ? json_integer_value(value) : *out;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        int64_t id = -1;
        CLV_TRY(
            clv_json_get_int(&id, json_array_get(added, i), "id", CLV_JSON_REQUIRED, 0, LARGEST_ID, r->where, r->err));
        *out = id > *out ? id : *out;
    }
    /* Ids are dense in practice; the largest one must not decide how much is allocated. */
    int64_t n = (int64_t)(json_object_size(vocab) + json_array_size(vocab) + json_array_size(added));
    if (*out > 2 * n + 1024)
        return clv_component_fail(r, "id %lld is too large for the number of tokens; valid: up to %lld",
                                  (long long)*out, (long long)(2 * n + 1024));
    return CLV_OK;
}

/* Sets the text of an id, which must be unique. */
static clv_status set_token_text(const clv_component_reader *r, int64_t id, clv_text_span text)
{
    clv_text_span *known = &r->t->token[id];
    if (known->text && (known->size != text.size || memcmp(known->text, text.text, text.size) != 0))
        return clv_component_fail(r, "'%.60s' and '%.60s' have one id (%lld)", known->text, text.text, (long long)id);
    *known = text;
    return CLV_OK;
}

static clv_status add_text(const clv_component_reader *r, clv_text_span text, int64_t id)
{
    *clv_vocab_slot(&r->t->vocab, text) = (struct clv_vocab_entry){text, id};
    r->t->vocab.n++;
    return set_token_text(r, id, text);
}

static clv_status read_vocab(const clv_component_reader *r, const json_t *vocab)
{
    clv_tokenizer *t = r->t;
    const char *key;
    size_t size;
    json_t *value;
    CLV_TRY(
        clv_vocab_reserve(&t->vocab, t->arena, (int64_t)(json_object_size(vocab) + json_array_size(vocab)), r->err));
    json_object_keylen_foreach((json_t *)vocab, key, size, value)
    {
        clv_text_span text;
        CLV_TRY(clv_component_copy_text(&text, r, key, size));
        CLV_TRY(add_text(r, text, json_integer_value(value)));
    }
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        clv_text_span text;
        CLV_TRY(listed_text(&text, r, vocab, i));
        CLV_TRY(add_text(r, text, (int64_t)i));
    }
    return CLV_OK;
}

/* Allocates the tables by id. */
static clv_status reserve_ids(const clv_component_reader *r, const json_t *vocab, const json_t *added)
{
    clv_tokenizer *t = r->t;
    int64_t largest = -1;
    if (r->t->model->vocab_is_list ? !json_is_array(vocab) : !json_is_object(vocab))
        return clv_component_fail(r, "the model's \"vocab\" must be %s",
                                  r->t->model->vocab_is_list ? "a list" : "an object");
    if (added && !json_is_array(added))
        return clv_component_fail(r, "\"added_tokens\" must be a list");
    CLV_TRY(largest_id(&largest, r, vocab, added));
    if (largest < 0)
        return clv_component_fail(r, "the vocabulary is empty");
    t->size = largest + 1;
    t->token = clv_arena_alloc(t->arena, (size_t)t->size, sizeof *t->token);
    t->special = clv_arena_alloc(t->arena, (size_t)t->size, sizeof *t->special);
    return t->token && t->special ? CLV_OK : clv_fail_memory(r->err, r->where, (size_t)t->size * sizeof *t->token);
}

static clv_status find_model(const clv_component_reader *r, const json_t *json)
{
    const char *type = clv_tokenizer_component_type(json);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(models[i]->type, type) == 0) {
            r->t->model = models[i];
            return CLV_OK;
        }
    return clv_component_fail_unsupported(r, "the model", type, "BPE, WordPiece, WordLevel, Unigram");
}

static clv_status read_model(const clv_component_reader *r, const json_t *json, const json_t *added)
{
    clv_component_reader mine;
    CLV_TRY(find_model(r, json));
    CLV_TRY(reserve_ids(r, json_object_get(json, "vocab"), added));
    CLV_TRY(component_reader(&mine, r, "model", r->t->model->type));
    CLV_TRY(read_vocab(&mine, json_object_get(json, "vocab")));
    clv_tokenizer *t = r->t;
    t->model_data = clv_arena_alloc(t->arena, 1, t->model->size);
    return t->model_data ? t->model->read(t->model_data, &mine, json)
                         : clv_fail_memory(r->err, r->where, t->model->size);
}

/* ---- added tokens ---- */

static clv_status read_added_token(clv_added_token *out, const clv_component_reader *r, const json_t *json)
{
    const clv_tokenizer *t = r->t;
    const struct {
        const char *key;
        bool *set;
    } flags[] = {{"special", &out->special},
                 {"single_word", &out->single_word},
                 {"lstrip", &out->lstrip},
                 {"rstrip", &out->rstrip},
                 {"normalized", &out->normalized}};
    CLV_TRY(clv_component_read_string(&out->text, r, json, "content"));
    CLV_TRY(clv_json_get_int(&out->id, json, "id", CLV_JSON_REQUIRED, 0, t->size - 1, r->where, r->err));
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        CLV_TRY(clv_json_get_bool(flags[i].set, json, flags[i].key, CLV_JSON_REQUIRED, r->where, r->err));
    if (out->text.size == 0)
        return clv_component_fail(r, "\"content\" is empty");
    int64_t known = clv_vocab_find(&t->vocab, out->text);
    if (known >= 0 && known != out->id)
        return clv_component_fail(r, "'%.60s' has the id %lld, but %lld in the vocabulary", out->text.text,
                                  (long long)out->id, (long long)known);
    return set_token_text(r, out->id, out->text);
}

/* Added tokens that are matched in normalized text are normalized, also for decoding. */
static clv_status normalize_added(clv_added_token *added, const clv_component_reader *r)
{
    clv_text_buffer text = {0};
    clv_status status = clv_tokenizer_normalize(&text, r->t, added->text, r->err);
    bool same =
        text.size == added->text.size && (text.size == 0 || memcmp(text.text, added->text.text, text.size) == 0);
    if (status == CLV_OK && !same) {
        status = clv_component_copy_text(&added->text, r, text.text, text.size);
        added->special = false;
        r->t->token[added->id] = added->text;
    }
    clv_text_buffer_free(&text);
    if (status == CLV_OK && added->text.size == 0)
        return clv_component_fail(r, "an added token is empty when normalized");
    return status;
}

static clv_status fill_trie(clv_trie *trie, const clv_component_reader *r, bool normalized)
{
    clv_tokenizer *t = r->t;
    size_t bytes = 0;
    for (int64_t i = 0; i < t->n_added; i++)
        bytes += t->added[i].normalized == normalized ? t->added[i].text.size : 0;
    CLV_TRY(clv_trie_reserve(trie, t->arena, bytes, r->err));
    for (int64_t i = 0; i < t->n_added; i++) {
        if (t->added[i].normalized != normalized)
            continue;
        int64_t *value = clv_trie_add(trie, t->added[i].text);
        if (*value >= 0)
            return clv_component_fail(r, "two added tokens are '%.60s'", t->added[i].text.text);
        *value = i;
    }
    return CLV_OK;
}

static clv_status read_added(const clv_component_reader *r, const json_t *list)
{
    clv_tokenizer *t = r->t;
    clv_component_reader mine;
    size_t n = json_array_size(list);
    t->added = clv_arena_alloc(t->arena, n + 1, sizeof *t->added);
    if (!t->added)
        return clv_fail_memory(r->err, "added tokens", n * sizeof *t->added);
    for (size_t i = 0; i < n; i++) {
        char number[32];
        snprintf(number, sizeof number, "%zu", i + 1);
        clv_added_token *added = &t->added[t->n_added++];
        CLV_TRY(component_reader(&mine, r, "added token", number));
        CLV_TRY(read_added_token(added, &mine, json_array_get(list, i)));
        if (added->normalized)
            CLV_TRY(normalize_added(added, &mine));
        t->special[added->id] = added->special;
    }
    CLV_TRY(fill_trie(&t->raw, r, false));
    return fill_trie(&t->normalized, r, true);
}

/* Truncation and padding are ignored: callers make batches. */
static clv_status check_head(const clv_component_reader *r, const json_t *document)
{
    static const char *const ignored[] = {"truncation", "padding"};
    const char *version = "1.0";
    CLV_TRY(clv_json_check_object(document, r->where, r->err));
    if (json_object_get(document, "version"))
        CLV_TRY(clv_json_get_string(&version, document, "version", CLV_JSON_REQUIRED, r->where, r->err));
    if (strcmp(version, "1.0") != 0)
        return clv_component_fail_unsupported(r, "the version", version, "1.0");
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_object_get(document, ignored[i]);
        if (value && !json_is_null(value) && !json_is_object(value))
            return clv_component_fail(r, "\"%s\" must be an object or null", ignored[i]);
    }
    return json_is_object(json_object_get(document, "model")) ? CLV_OK
                                                              : clv_component_fail(r, "\"model\" must be an object");
}

clv_status clv_tokenizer_from_json(clv_tokenizer *t, const json_t *document, const char *where, clv_error *err)
{
    static const part normalizer = {"normalizer", "normalizers", normalizers},
                      pre_tokenizer = {"pre-tokenizer", "pretokenizers", pre_tokenizers},
                      decoder = {"decoder", "decoders", decoders},
                      post_processor = {"post-processor", "processors", post_processors};
    clv_component_reader r = {.t = t, .where = where, .err = err};
    CLV_TRY(check_head(&r, document));
    const json_t *model = json_object_get(document, "model"), *added = json_object_get(document, "added_tokens");
    CLV_TRY(read_model(&r, model, added));
    CLV_TRY(read_steps(&t->normalizer, &r, &normalizer, json_object_get(document, "normalizer")));
    CLV_TRY(read_added(&r, added));
    CLV_TRY(read_steps(&t->pre_tokenizer, &r, &pre_tokenizer, json_object_get(document, "pre_tokenizer")));
    CLV_TRY(read_steps(NULL, &r, &post_processor, json_object_get(document, "post_processor")));
    return read_steps(&t->decoder, &r, &decoder, json_object_get(document, "decoder"));
}
