/* tokenizer.c - encodes text and decodes ids: added tokens, normalizer, pre-tokenizer, model, post-processor,
 * decoder.
 */
#include "base/memory/grow.h"
#include "tokens/tokenizer/tokenizer_components.h"
#include "tokens/unicode/character_classes.h"

void clv_tokenizer_free(clv_tokenizer *t)
{
    if (!t)
        return;
    clv_regex_free(t->regexes);
    clv_arena_free(t->arena);
    free(t);
}

int64_t clv_tokenizer_vocab_size(const clv_tokenizer *t)
{
    return t ? t->size : 0;
}

bool clv_tokenizer_has_id(const clv_tokenizer *t, int64_t id)
{
    return t && id >= 0 && id < t->size && (t->bytes || t->token[id].text != NULL);
}

clv_status clv_tokenizer_fail_id_out_of_range(const clv_tokenizer *t, int64_t id, int64_t vocab, const char *where,
                                              clv_error *err)
{
    const clv_text_span none = {"", 0}, *token = clv_tokenizer_has_id(t, id) && !t->bytes ? &t->token[id] : &none;
    bool named = token->size > 0;
    return clv_fail(
        err, CLV_EINVAL,
        "%s: the token %s%.*s%s%lld%s is beyond the model's vocab_size of %lld: it has no row for it; valid: "
        "a text without it",
        where, named ? "'" : "", token->size < 64 ? (int)token->size : 64, token->text, named ? "' (id " : "",
        (long long)id, named ? ")" : "", (long long)vocab);
}

/* ---- pre-tokens ---- */

clv_status clv_pre_tokens_end(clv_pre_tokens *pre_tokens, bool first, clv_error *err)
{
    size_t begin = pre_tokens->n > 0 ? pre_tokens->pre_token[pre_tokens->n - 1].end : 0;
    if (pre_tokens->text.size == begin)
        return CLV_OK;
    CLV_TRY(clv_grow(&pre_tokens->pre_token, &pre_tokens->capacity, pre_tokens->n + 1, sizeof *pre_tokens->pre_token,
                     "pre-tokens", err));
    pre_tokens->pre_token[pre_tokens->n++] = (struct clv_pre_token_end){pre_tokens->text.size, first};
    return CLV_OK;
}

clv_status clv_pre_tokens_add(clv_pre_tokens *pre_tokens, const clv_pre_token *of, size_t begin, size_t end,
                              clv_error *err)
{
    CLV_TRY(clv_text_buffer_append(&pre_tokens->text, of->text.text + begin, end - begin, err));
    return clv_pre_tokens_end(pre_tokens, of->first && begin == 0, err);
}

static clv_pre_token pre_token_at(const clv_pre_tokens *pre_tokens, int64_t i)
{
    size_t begin = i > 0 ? pre_tokens->pre_token[i - 1].end : 0;
    return (clv_pre_token){clv_text_span_of(pre_tokens->text.text + begin, pre_tokens->pre_token[i].end - begin),
                           pre_tokens->pre_token[i].first};
}

static void free_pre_tokens(clv_pre_tokens *pre_tokens)
{
    clv_text_buffer_free(&pre_tokens->text);
    free(pre_tokens->pre_token);
    *pre_tokens = (clv_pre_tokens){0};
}

/* ---- encoding ---- */

clv_status clv_tokenizer_normalize(clv_text_buffer *out, const clv_tokenizer *t, clv_text_span text, clv_error *err)
{
    CLV_TRY(clv_text_buffer_append(out, text.text, text.size, err));
    for (int i = 0; i < t->normalizer.n && out->size > 0; i++) {
        const struct clv_sequence_step *step = &t->normalizer.step[i];
        clv_text_buffer next = {0};
        clv_status status = step->component->normalize(&next, step->options, clv_text_buffer_span(out), err);
        clv_text_buffer_free(out);
        *out = next;
        CLV_TRY(status);
    }
    return CLV_OK;
}

static clv_status apply_pre_tokenizer(clv_pre_tokens *pre_tokens, const struct clv_sequence_step *step, clv_error *err)
{
    clv_pre_tokens next = {0};
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < pre_tokens->n; i++) {
        clv_pre_token pre_token = pre_token_at(pre_tokens, i);
        status = step->component->split(&next, step->options, &pre_token, err);
    }
    free_pre_tokens(pre_tokens);
    *pre_tokens = next;
    return status;
}

/* Encodes normalized text between added tokens. */
static clv_status encode_plain(const clv_tokenizer *t, const clv_pre_token *pre_token, clv_token_ids *ids,
                               clv_error *err)
{
    CLV_CLEANUP(free_pre_tokens) clv_pre_tokens pre_tokens = {0};
    CLV_TRY(clv_pre_tokens_add(&pre_tokens, pre_token, 0, pre_token->text.size, err));
    for (int i = 0; i < t->pre_tokenizer.n; i++)
        CLV_TRY(apply_pre_tokenizer(&pre_tokens, &t->pre_tokenizer.step[i], err));
    for (int64_t i = 0; i < pre_tokens.n; i++)
        CLV_TRY(t->model->encode(t->model_data, pre_token_at(&pre_tokens, i).text, ids, err));
    return CLV_OK;
}

/* ---- added tokens ---- */

static unsigned classes_before(clv_text_span text, size_t at)
{
    size_t n, begin = at;
    if (at == 0)
        return 0;
    do
        begin--;
    while (begin > 0 && ((unsigned char)text.text[begin] & 0xc0) == 0x80);
    return clv_character_classes(clv_utf8_decode(&n, text.text + begin, text.size - begin));
}

static unsigned classes_behind(clv_text_span text, size_t at, size_t *n)
{
    *n = 0;
    return at < text.size ? clv_character_classes(clv_utf8_decode(n, text.text + at, text.size - at)) : 0;
}

/* Extends a match [*begin, *end) by white space for lstrip (not before `from`) and rstrip. False: no match, as it is
 * not a single word, or white space that the token before has taken. */
static bool match_added_token(const clv_added_token *added, clv_text_span text, size_t from, size_t *begin, size_t *end)
{
    size_t n;
    if (added->single_word && ((classes_before(text, *begin) | classes_behind(text, *end, &n)) & CLV_IS_WORD) != 0)
        return false;
    while (added->lstrip && *begin > from && (classes_before(text, *begin) & CLV_IS_SPACE))
        do
            --*begin;
        while (((unsigned char)text.text[*begin] & 0xc0) == 0x80);
    if (added->lstrip && *begin < from)
        *begin = from;
    while (added->rstrip && (classes_behind(text, *end, &n) & CLV_IS_SPACE))
        *end += n;
    return *begin < *end;
}

typedef clv_status (*encoder)(const clv_tokenizer *t, const clv_pre_token *pre_token, clv_token_ids *ids,
                              clv_error *err);

/* Splits off the tokens of a trie, leftmost longest first; `between` encodes the text between them. */
static clv_status split_at_added_tokens(const clv_tokenizer *t, const clv_trie *trie, const clv_pre_token *pre_token,
                                        encoder between, clv_token_ids *ids, clv_error *err)
{
    clv_text_span text = pre_token->text;
    size_t from = 0;
    for (size_t at = 0; at < text.size;) {
        int64_t which = -1;
        size_t n = clv_trie_longest_match(&which, trie, 0, clv_text_span_of(text.text + at, text.size - at));
        size_t begin = at, end = at + n;
        at = n > 0 ? end : at + 1;
        if (n == 0 || !match_added_token(&t->added[which], text, from, &begin, &end))
            continue;
        clv_pre_token rest = {clv_text_span_of(text.text + from, begin - from), pre_token->first && from == 0};
        if (begin > from)
            CLV_TRY(between(t, &rest, ids, err));
        CLV_TRY(clv_token_ids_append(ids, t->added[which].id, err));
        from = end;
    }
    clv_pre_token rest = {clv_text_span_of(text.text + from, text.size - from), pre_token->first && from == 0};
    return from < text.size ? between(t, &rest, ids, err) : CLV_OK;
}

static clv_status encode_raw(const clv_tokenizer *t, const clv_pre_token *pre_token, clv_token_ids *ids, clv_error *err)
{
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer normal = {0};
    CLV_TRY(clv_tokenizer_normalize(&normal, t, pre_token->text, err));
    clv_pre_token normalized = {clv_text_buffer_span(&normal), pre_token->first};
    if (normal.size > 0)
        CLV_TRY(split_at_added_tokens(t, &t->normalized, &normalized, encode_plain, ids, err));
    return CLV_OK;
}

static clv_status add_special(clv_token_ids *ids, const clv_special_ids *special, clv_error *err)
{
    for (int i = 0; i < special->n; i++)
        CLV_TRY(clv_token_ids_append(ids, special->id[i], err));
    return CLV_OK;
}

static clv_status encode_bytes(const char *text, size_t size, int64_t **ids, int64_t *n, clv_error *err)
{
    int64_t *bytes = size < PTRDIFF_MAX / sizeof *bytes ? malloc((size + 1) * sizeof *bytes) : NULL;
    if (!bytes)
        return clv_fail_memory(err, "token ids", size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)text[i];
    *ids = bytes;
    *n = (int64_t)size;
    return CLV_OK;
}

static clv_status encode_text(clv_token_ids *all, const clv_tokenizer *t, const char *text, size_t size, bool special,
                              clv_error *err)
{
    clv_pre_token whole = {.first = true};
    char *valid = clv_utf8_repair(&whole.text.size, text, size);
    clv_status status = valid ? CLV_OK : clv_fail_memory(err, "a text", size);
    whole.text.text = valid;
    if (status == CLV_OK && special)
        status = add_special(all, &t->before, err);
    if (status == CLV_OK)
        status = split_at_added_tokens(t, &t->raw, &whole, encode_raw, all, err);
    if (status == CLV_OK && special)
        status = add_special(all, &t->after, err);
    free(valid);
    return status;
}

clv_status clv_tokenizer_encode(const clv_tokenizer *t, const char *text, size_t size, bool special, int64_t **ids,
                                int64_t *n, clv_error *err)
{
    clv_token_ids all = {0};
    CLV_TRY(clv_require(t && (text || size == 0) && ids && n, __func__,
                        "a tokenizer, a text, and where ids and their number go", err));
    text = text ? text : "";
    if (t->bytes)
        return encode_bytes(text, size, ids, n, err);
    clv_status status = encode_text(&all, t, text, size, special, err);
    if (status != CLV_OK) {
        free(all.id);
        return status;
    }
    *ids = all.id;
    *n = all.n;
    return CLV_OK;
}

/* ---- decoding ---- */

/* Ids of `tokenizers` are u32. */
static clv_status check_id(int64_t id, clv_error *err)
{
    return id >= 0 && id <= UINT32_MAX ? CLV_OK
                                       : clv_fail(err, CLV_EINVAL, "%lld is no token id; valid: 0 to %lld",
                                                  (long long)id, (long long)UINT32_MAX);
}

static clv_status collect_token_texts(clv_token_texts *all, const clv_tokenizer *t, const int64_t *ids, int64_t n,
                                      clv_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        CLV_TRY(check_id(ids[i], err));
        if (clv_tokenizer_has_id(t, ids[i]) && !t->special[ids[i]])
            CLV_TRY(clv_text_buffer_append(&all->item[all->n++], t->token[ids[i]].text, t->token[ids[i]].size, err));
    }
    return CLV_OK;
}

/* words: with spaces between, as without a decoder. */
static clv_status join(clv_text_buffer *out, const clv_token_texts *all, bool words, clv_error *err)
{
    CLV_TRY(clv_text_buffer_append(out, "", 0, err));
    for (int64_t i = 0; i < all->n; i++) {
        if (i > 0 && words)
            CLV_TRY(clv_text_buffer_append(out, " ", 1, err));
        CLV_TRY(clv_text_buffer_append(out, all->item[i].text, all->item[i].size, err));
    }
    return CLV_OK;
}

static clv_status decode_bytes(const int64_t *ids, int64_t n, char **text, size_t *size, clv_error *err)
{
    char *bytes = malloc((size_t)n + 1);
    if (!bytes)
        return clv_fail_memory(err, "a text", (size_t)n);
    clv_status status = CLV_OK;
    size_t length = 0;
    for (int64_t i = 0; status == CLV_OK && i < n; i++) {
        status = check_id(ids[i], err);
        if (ids[i] <= UINT8_MAX)
            bytes[length++] = (char)ids[i];
    }
    if (status != CLV_OK) {
        free(bytes);
        return status;
    }
    bytes[length] = '\0';
    *text = bytes;
    *size = length;
    return CLV_OK;
}

clv_status clv_tokenizer_decode(const clv_tokenizer *t, const int64_t *ids, int64_t n, char **text, size_t *size,
                                clv_error *err)
{
    clv_text_buffer out = {0};
    CLV_TRY(clv_require_count(n, 0, __func__, "ids", err));
    CLV_TRY(clv_require(t && (ids || n == 0) && text && size, __func__,
                        "a tokenizer, n ids, and where the text and its size go", err));
    if (t->bytes)
        return decode_bytes(ids, n, text, size, err);
    clv_token_texts all = {.item = calloc((size_t)n + 1, sizeof *all.item)};
    clv_status status = all.item ? collect_token_texts(&all, t, ids, n, err)
                                 : clv_fail_memory(err, "a text", (size_t)n * sizeof *all.item);
    for (int i = 0; status == CLV_OK && i < t->decoder.n; i++)
        status = t->decoder.step[i].component->decode(&all, t->decoder.step[i].options, err);
    if (status == CLV_OK)
        status = join(&out, &all, t->decoder.n == 0, err);
    for (int64_t i = 0; all.item && i <= n; i++)
        clv_text_buffer_free(&all.item[i]);
    free(all.item);
    if (status != CLV_OK) {
        clv_text_buffer_free(&out);
        return status;
    }
    *text = out.text;
    *size = out.size;
    return CLV_OK;
}
