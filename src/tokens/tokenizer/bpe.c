/* bpe.c - byte-pair encoding model: merges a word's symbols in rank order with a heap (Sennrich et al. 2016,
 * arXiv:1508.07909), as the `tokenizers` library does.
 */
#include "tokens/tokenizer/tokenizer_components.h"

/* Ids and ranks fit 32 bits: tokenizer_json.c bounds ids, the file size bounds merges. */
typedef struct merge {
    int32_t left, right; /* ids; left < 0: empty */
    int32_t rank, id;    /* of the merged token */
} merge;

typedef struct bpe {
    const clv_vocab *vocab;
    int64_t n_slots;
    merge *merge; /* by (left, right), open addressing */
    clv_byte_fallback_ids byte;
    clv_text_span prefix, suffix; /* of characters after the first; of the last one; size 0: none */
    bool byte_fallback, fuse_unknown, ignore_merges;
    int32_t unknown; /* id; -1: unknown characters are left out */
} bpe;

/* Merge of two ids, or the empty slot for it. */
static merge *merge_slot(const bpe *model, int32_t left, int32_t right)
{
    uint64_t mask = (uint64_t)model->n_slots - 1;
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    for (uint64_t at = (hash >> 32) & mask;; at = (at + 1) & mask) {
        merge *m = &model->merge[at];
        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

/* ---- merging ---- */

/* A symbol of a pre-token; id -1: merged into its left neighbor. */
typedef struct symbol {
    int64_t previous, next; /* -1: none */
    int32_t id;
} symbol;

/* A possible merge; lower ranks first, then from left to right. */
typedef struct candidate {
    int64_t at;
    int32_t rank, left, right, merged;
} candidate;

typedef struct work {
    int64_t n, n_heap;
    bool unknown; /* an unknown token is pending, to be added before the next known character */
    symbol *symbol;
    candidate *heap; /* at most 3 a symbol */
} work;

static bool before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(work *w, candidate c)
{
    int64_t i = w->n_heap++;
    for (; i > 0 && before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static candidate pop(work *w)
{
    candidate top = w->heap[0], last = w->heap[--w->n_heap];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child + 1 < w->n_heap && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (child >= w->n_heap || !before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

static void push_candidate(work *w, const bpe *model, int64_t at)
{
    int64_t next = at >= 0 ? w->symbol[at].next : -1;
    if (next < 0)
        return;
    const merge *m = merge_slot(model, w->symbol[at].id, w->symbol[next].id);
    if (m->left >= 0)
        push(w, (candidate){at, m->rank, m->left, m->right, m->id});
}

static void merge_symbols(work *w, const bpe *model)
{
    for (int64_t i = 0; i + 1 < w->n; i++)
        push_candidate(w, model, i);
    while (w->n_heap > 0) {
        candidate c = pop(w);
        symbol *left = &w->symbol[c.at];
        int64_t next = left->next;
        if (left->id != c.left || next < 0 || w->symbol[next].id != c.right)
            continue; /* stale: one of them was merged */
        left->id = c.merged;
        left->next = w->symbol[next].next;
        w->symbol[next].id = -1;
        if (left->next >= 0)
            w->symbol[left->next].previous = c.at;
        push_candidate(w, model, left->previous);
        push_candidate(w, model, c.at);
    }
}

/* ---- encoding ---- */

static void add_symbol(work *w, int32_t id)
{
    w->symbol[w->n] = (symbol){.id = id, .previous = w->n - 1, .next = -1};
    if (w->n > 0)
        w->symbol[w->n - 1].next = w->n;
    w->n++;
}

static void add_unknown(work *w, const bpe *model)
{
    if (w->unknown)
        add_symbol(w, model->unknown);
    w->unknown = false;
}

/* Adds a character's id, or the ids of its bytes, or the unknown id (once for a run if fused). As in the `tokenizers`
 * library, a pending unknown id stays pending while bytes are added. */
static void add_character(work *w, const bpe *model, clv_text_span c)
{
    int32_t id = (int32_t)clv_vocab_find(model->vocab, c);
    if (id >= 0) {
        add_unknown(w, model);
        add_symbol(w, id);
    } else if (model->byte_fallback && clv_byte_fallback_ids_cover(&model->byte, c)) {
        for (size_t i = 0; i < c.size; i++)
            add_symbol(w, (int32_t)model->byte.id[(unsigned char)c.text[i]]);
    } else if (model->unknown >= 0) {
        if (!model->fuse_unknown)
            add_unknown(w, model);
        w->unknown = true;
    }
}

/* Adds the characters of a pre-token, with prefix and suffix. */
static clv_status add_characters(work *w, const bpe *model, clv_text_span pre_token, clv_error *err)
{
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer marked = {0};
    for (size_t at = 0, n; at < pre_token.size; at += n) {
        n = clv_utf8_length(pre_token.text + at, pre_token.size - at);
        clv_text_span character = clv_text_span_of(pre_token.text + at, n);
        size_t prefix = at > 0 ? model->prefix.size : 0, suffix = at + n == pre_token.size ? model->suffix.size : 0;
        if (prefix + suffix > 0) {
            marked.size = 0;
            CLV_TRY(clv_text_buffer_append(&marked, model->prefix.text, prefix, err));
            CLV_TRY(clv_text_buffer_append(&marked, character.text, n, err));
            CLV_TRY(clv_text_buffer_append(&marked, model->suffix.text, suffix, err));
            character = clv_text_buffer_span(&marked);
        }
        add_character(w, model, character);
    }
    add_unknown(w, model);
    return CLV_OK;
}

/* In time n log n. */
static clv_status encode(const void *data, clv_text_span pre_token, clv_token_ids *out, clv_error *err)
{
    const bpe *model = data;
    size_t size =
        pre_token.size + model->prefix.size * pre_token.size + model->suffix.size; /* symbols, if all are bytes */
    int64_t whole = model->ignore_merges ? clv_vocab_find(model->vocab, pre_token) : -1;
    if (whole >= 0)
        return clv_token_ids_append(out, whole, err);
    work w = {.symbol = malloc((size + 1) * sizeof *w.symbol), .heap = malloc(3 * (size + 1) * sizeof *w.heap)};
    clv_status status = w.symbol && w.heap ? CLV_OK : clv_fail_memory(err, "a text", (size + 1) * sizeof *w.symbol);
    if (status == CLV_OK)
        status = add_characters(&w, model, pre_token, err);
    if (status == CLV_OK)
        merge_symbols(&w, model);
    for (int64_t i = 0; status == CLV_OK && w.n > 0 && i >= 0; i = w.symbol[i].next)
        status = clv_token_ids_append(out, w.symbol[i].id, err);
    free(w.symbol);
    free(w.heap);
    return status;
}

/* ---- reading ---- */

/* "a b", or ["a", "b"]. */
static clv_status merge_halves(clv_text_span out[2], const clv_component_reader *r, const json_t *pair, size_t number)
{
    const char *text = json_string_value(pair), *space = text ? strchr(text, ' ') : NULL;
    if (space && !strchr(space + 1, ' ')) {
        out[0] = clv_text_span_of(text, (size_t)(space - text));
        out[1] = clv_text_span_of(space + 1, json_string_length(pair) - (size_t)(space + 1 - text));
        return CLV_OK;
    }
    bool pairs = json_array_size(pair) == 2;
    for (size_t i = 0; i < 2 && pairs; i++) {
        const json_t *half = json_array_get(pair, i);
        pairs = json_is_string(half);
        out[i] = clv_text_span_of(json_string_value(half), json_string_length(half));
    }
    if (!pairs)
        return clv_component_fail(r, "merge %zu is not \"a b\" or [\"a\", \"b\"]", number);
    return CLV_OK;
}

static clv_status add_merge(bpe *model, const clv_component_reader *r, const clv_text_span half[2], size_t number)
{
    CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer joined = {0};
    size_t prefix = model->prefix.size < half[1].size ? model->prefix.size : half[1].size;
    CLV_TRY(clv_text_buffer_append(&joined, half[0].text, half[0].size, r->err));
    CLV_TRY(clv_text_buffer_append(&joined, half[1].text + prefix, half[1].size - prefix, r->err));
    int64_t made = clv_vocab_find(model->vocab, clv_text_buffer_span(&joined));
    int32_t left = (int32_t)clv_vocab_find(model->vocab, half[0]);
    int32_t right = (int32_t)clv_vocab_find(model->vocab, half[1]);
    if (left < 0 || right < 0 || made < 0)
        return clv_component_fail(r, "merge %zu has a token that is not in the vocabulary: '%.*s' '%.*s'", number,
                                  clv_text_span_shown(half[0], 40), half[0].text, clv_text_span_shown(half[1], 40),
                                  half[1].text);
    *merge_slot(model, left, right) = (merge){left, right, (int32_t)number - 1, (int32_t)made};
    return CLV_OK;
}

static clv_status read_merges(bpe *model, const clv_component_reader *r, const json_t *merges)
{
    size_t n = json_array_size(merges);
    if (!json_is_array(merges))
        return clv_component_fail(r, "\"merges\" must be a list");
    model->n_slots = clv_hash_table_slots((int64_t)n);
    model->merge = clv_arena_alloc(r->t->arena, (size_t)model->n_slots, sizeof *model->merge);
    if (!model->merge)
        return clv_fail_memory(r->err, "merges", (size_t)model->n_slots * sizeof *model->merge);
    for (int64_t i = 0; i < model->n_slots; i++)
        model->merge[i].left = -1;
    for (size_t i = 0; i < n; i++) {
        clv_text_span half[2];
        CLV_TRY(merge_halves(half, r, json_array_get(merges, i), i + 1));
        CLV_TRY(add_merge(model, r, half, i + 1));
    }
    return CLV_OK;
}

/* Dropout would make ids random. */
static clv_status refuse_dropout(const clv_component_reader *r, const json_t *json)
{
    const json_t *dropout = json_object_get(json, "dropout");
    bool none = !dropout || json_is_null(dropout) || (json_is_number(dropout) && json_number_value(dropout) == 0);
    return none ? CLV_OK : clv_component_fail_unsupported(r, "the option", "dropout", "null, 0");
}

/* An optional text. */
static clv_status read_affix(clv_text_span *out, const clv_component_reader *r, const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return !value || json_is_null(value) ? CLV_OK : clv_component_read_string(out, r, json, key);
}

static clv_status read(void *data, const clv_component_reader *r, const json_t *json)
{
    const json_t *unknown = json_object_get(json, "unk_token");
    int64_t unknown_id = -1;
    bpe *model = data;
    CLV_TRY(refuse_dropout(r, json));
    model->vocab = &r->t->vocab;
    CLV_TRY(clv_json_get_bool(&model->byte_fallback, json, "byte_fallback", CLV_JSON_OPTIONAL, r->where, r->err));
    CLV_TRY(clv_json_get_bool(&model->fuse_unknown, json, "fuse_unk", CLV_JSON_OPTIONAL, r->where, r->err));
    CLV_TRY(clv_json_get_bool(&model->ignore_merges, json, "ignore_merges", CLV_JSON_OPTIONAL, r->where, r->err));
    if (unknown && !json_is_null(unknown))
        CLV_TRY(clv_component_read_token_id(&unknown_id, r, json, "unk_token"));
    model->unknown = (int32_t)unknown_id;
    clv_byte_fallback_ids_find(&model->byte, model->vocab);
    CLV_TRY(read_affix(&model->prefix, r, json, "continuing_subword_prefix"));
    CLV_TRY(read_affix(&model->suffix, r, json, "end_of_word_suffix"));
    return read_merges(model, r, json_object_get(json, "merges"));
}

const clv_token_model clv_token_model_bpe = {.type = "BPE", .size = sizeof(bpe), .read = read, .encode = encode};
