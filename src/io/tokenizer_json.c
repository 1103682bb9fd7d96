/* tokenizer_json.c - reading tokenizer.json. Components are looked up in tables by their "type"; what is not there is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/byte_level.h"
#include "io/tokenizer_parts.h"

typedef struct reader {
    clv_tokenizer *t;
    const char *where;
    clv_error *err;
} reader;

static clv_status keep(clv_token_text *out, const reader *r, const json_t *value)
{
    if (!json_is_string(value))
        return clv_fail(r->err, CLV_EFORMAT, "%s: a string was expected", r->where);
    out->size = json_string_length(value);
    out->text = clv_arena_copy(r->t->arena, json_string_value(value), out->size + 1);
    return out->text ? CLV_OK : clv_fail_memory(r->err, r->where, out->size);
}

static const char *type_of(const json_t *component)
{
    const char *type = json_string_value(json_object_get(component, "type"));
    return type ? type : "";
}

static clv_status unsupported(const reader *r, const char *part, const char *type, const char *valid)
{
    return clv_fail(r->err, CLV_EUNSUPPORTED, "%s: %s '%s' is not supported; valid: %s", r->where, part, type, valid);
}

/* ---- normalizer and decoder: lists of steps on text ---- */

typedef clv_status (*step_reader)(clv_text_step *out, const reader *r, const json_t *component);

static clv_status read_prepend(clv_text_step *out, const reader *r, const json_t *component)
{
    out->kind = CLV_TEXT_PREPEND;
    return keep(&out->a, r, json_object_get(component, "prepend"));
}

static clv_status read_replace(clv_text_step *out, const reader *r, const json_t *component)
{
    const json_t *pattern = json_object_get(json_object_get(component, "pattern"), "String");
    out->kind = CLV_TEXT_REPLACE;
    if (!pattern)
        return unsupported(r, "the pattern of", "Replace", "a String");
    CLV_TRY(keep(&out->a, r, pattern));
    if (out->a.size == 0)
        return clv_fail(r->err, CLV_EFORMAT, "%s: Replace of an empty string", r->where);
    return keep(&out->b, r, json_object_get(component, "content"));
}

static clv_status read_bytes(clv_text_step *out, const reader *r, const json_t *component)
{
    (void)r, (void)component;
    out->kind = CLV_TEXT_BYTES;
    return CLV_OK;
}

static clv_status read_fuse(clv_text_step *out, const reader *r, const json_t *component)
{
    (void)r, (void)component;
    out->kind = CLV_TEXT_FUSE;
    return CLV_OK;
}

static clv_status read_strip(clv_text_step *out, const reader *r, const json_t *component)
{
    out->kind = CLV_TEXT_STRIP;
    CLV_TRY(keep(&out->a, r, json_object_get(component, "content")));
    CLV_TRY(clv_json_int(&out->start, component, "start", CLV_JSON_REQUIRED, 0, 1 << 20, r->where, r->err));
    return clv_json_int(&out->stop, component, "stop", CLV_JSON_REQUIRED, 0, 1 << 20, r->where, r->err);
}

static clv_status read_prepend_scheme(const char **out, const reader *r, const json_t *component)
{
    bool add = true;
    *out = NULL;
    CLV_TRY(clv_json_string(out, component, "prepend_scheme", CLV_JSON_OPTIONAL, r->where, r->err));
    CLV_TRY(clv_json_bool(&add, component, "add_prefix_space", CLV_JSON_OPTIONAL, r->where, r->err));
    if (!*out)
        *out = add ? "always" : "never";
    return CLV_OK;
}

static clv_status read_metaspace_decoder(clv_text_step *out, const reader *r, const json_t *component)
{
    const char *scheme;
    out->kind = CLV_TEXT_METASPACE;
    CLV_TRY(read_prepend_scheme(&scheme, r, component));
    out->strips_first_space = strcmp(scheme, "never") != 0;
    return keep(&out->a, r, json_object_get(component, "replacement"));
}

static clv_status read_byte_level_decoder(clv_text_step *out, const reader *r, const json_t *component)
{
    (void)r, (void)component;
    out->kind = CLV_TEXT_BYTE_LEVEL;
    return CLV_OK;
}

static const struct {
    const char *type;
    bool normalizes, decodes;
    step_reader read;
} step_types[] = {
    {"Prepend", true, false, read_prepend},
    {"Replace", true, true, read_replace},
    {"ByteFallback", false, true, read_bytes},
    {"Fuse", false, true, read_fuse},
    {"Strip", false, true, read_strip},
    {"Metaspace", false, true, read_metaspace_decoder},
    {"ByteLevel", false, true, read_byte_level_decoder},
};

static clv_status add_step(clv_text_steps *steps, const reader *r, const json_t *component, bool decoder)
{
    const char *type = type_of(component);
    for (size_t i = 0; i < sizeof step_types / sizeof step_types[0]; i++) {
        if (strcmp(step_types[i].type, type) != 0 || !(decoder ? step_types[i].decodes : step_types[i].normalizes))
            continue;
        if (steps->n == CLV_MAX_TOKENIZER_STEPS)
            return clv_fail(r->err, CLV_ELIMIT, "%s: more than %d steps", r->where, CLV_MAX_TOKENIZER_STEPS);
        return step_types[i].read(&steps->step[steps->n++], r, component);
    }
    return decoder ? unsupported(r, "the decoder", type,
                                 "Replace, ByteFallback, Fuse, Strip, Metaspace, ByteLevel, Sequence")
                   : unsupported(r, "the normalizer", type, "Prepend, Replace, Sequence");
}

static clv_status read_steps(clv_text_steps *steps, const reader *r, const json_t *component, bool decoder)
{
    if (!component || json_is_null(component))
        return CLV_OK;
    if (strcmp(type_of(component), "Sequence") != 0)
        return add_step(steps, r, component, decoder);
    const json_t *list = json_object_get(component, decoder ? "decoders" : "normalizers");
    for (size_t i = 0; i < json_array_size(list); i++)
        CLV_TRY(add_step(steps, r, json_array_get(list, i), decoder));
    return CLV_OK;
}

/* ---- pre-tokenizer ---- */

static clv_status read_metaspace(clv_tokenizer *t, const reader *r, const json_t *component)
{
    const char *scheme;
    clv_metaspace *out = &t->metaspace;
    out->present = out->split = true;
    CLV_TRY(read_prepend_scheme(&scheme, r, component));
    out->prepend = strcmp(scheme, "always") == 0  ? CLV_PREPEND_ALWAYS
                   : strcmp(scheme, "first") == 0 ? CLV_PREPEND_FIRST
                                                  : CLV_PREPEND_NEVER;
    CLV_TRY(clv_json_bool(&out->split, component, "split", CLV_JSON_OPTIONAL, r->where, r->err));
    return keep(&out->replacement, r, json_object_get(component, "replacement"));
}

static clv_status set_pattern(clv_tokenizer *t, const reader *r, const char *expression, size_t size)
{
    if (t->byte_level.pattern)
        return unsupported(r, "a pre-tokenizer with", "two patterns", "one Split, or ByteLevel's own");
    return clv_pattern_new(&t->byte_level.pattern, expression, size, r->err);
}

static clv_status read_split(clv_tokenizer *t, const reader *r, const json_t *component)
{
    const json_t *regex = json_object_get(json_object_get(component, "pattern"), "Regex");
    const char *behavior = json_string_value(json_object_get(component, "behavior"));
    if (!json_is_string(regex))
        return unsupported(r, "the pattern of", "Split", "a Regex");
    if (!behavior || strcmp(behavior, "Isolated") != 0 || json_is_true(json_object_get(component, "invert")))
        return unsupported(r, "the behavior of Split", behavior ? behavior : "", "Isolated, not inverted");
    return set_pattern(t, r, json_string_value(regex), json_string_length(regex));
}

static clv_status read_byte_level(clv_tokenizer *t, const reader *r, const json_t *component)
{
    bool own_pattern = true;
    t->byte_level.present = t->byte_level.prefix_space = true;
    CLV_TRY(clv_json_bool(&own_pattern, component, "use_regex", CLV_JSON_OPTIONAL, r->where, r->err));
    CLV_TRY(
        clv_json_bool(&t->byte_level.prefix_space, component, "add_prefix_space", CLV_JSON_OPTIONAL, r->where, r->err));
    return own_pattern ? set_pattern(t, r, clv_gpt2_pattern, strlen(clv_gpt2_pattern)) : CLV_OK;
}

static clv_status read_pre_tokenizer(clv_tokenizer *t, const reader *r, const json_t *component)
{
    static const struct {
        const char *type;
        clv_status (*read)(clv_tokenizer *t, const reader *r, const json_t *component);
    } types[] = {{"Metaspace", read_metaspace}, {"Split", read_split}, {"ByteLevel", read_byte_level}};
    const char *type = type_of(component);
    if (!component || json_is_null(component))
        return CLV_OK;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].type, type) == 0)
            return types[i].read(t, r, component);
    if (strcmp(type, "Sequence") != 0)
        return unsupported(r, "the pre-tokenizer", type, "Metaspace, Split, ByteLevel, Sequence");
    const json_t *list = json_object_get(component, "pretokenizers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(type_of(json_array_get(list, i)), "Sequence") == 0)
            return unsupported(r, "a Sequence in", "a Sequence", "Metaspace, Split, ByteLevel");
        CLV_TRY(read_pre_tokenizer(t, r, json_array_get(list, i)));
    }
    return CLV_OK;
}

/* Splits and byte-level spelling go together, and without Metaspace. */
static clv_status check_pre_tokenizer(const clv_tokenizer *t, const reader *r)
{
    if (t->byte_level.pattern && !t->byte_level.present)
        return unsupported(r, "the pre-tokenizer", "Split without ByteLevel", "Split and ByteLevel in a Sequence");
    if (t->byte_level.present && t->metaspace.present)
        return unsupported(r, "the pre-tokenizer", "Metaspace with ByteLevel", "either");
    return CLV_OK;
}

/* ---- template ---- */

static clv_status add_special(clv_tokenizer *t, const reader *r, const json_t *processor, const json_t *special,
                              bool after)
{
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *ids =
        json_object_get(json_object_get(json_object_get(processor, "special_tokens"), name ? name : ""), "ids");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int *n = after ? &t->n_after : &t->n_before;
        if (*n == CLV_MAX_TEMPLATE)
            return clv_fail(r->err, CLV_ELIMIT, "%s: the template has more than %d tokens", r->where, CLV_MAX_TEMPLATE);
        (after ? t->after : t->before)[(*n)++] = json_integer_value(json_array_get(ids, i));
    }
    return CLV_OK;
}

static clv_status read_template(clv_tokenizer *t, const reader *r, const json_t *processor)
{
    bool after = false;
    if (!processor || json_is_null(processor))
        return CLV_OK;
    if (strcmp(type_of(processor), "ByteLevel") == 0) /* of offsets alone */
        return CLV_OK;
    if (strcmp(type_of(processor), "Sequence") == 0) {
        const json_t *list = json_object_get(processor, "processors");
        for (size_t i = 0; i < json_array_size(list); i++) {
            if (strcmp(type_of(json_array_get(list, i)), "Sequence") == 0)
                return unsupported(r, "a Sequence in", "a Sequence", "TemplateProcessing, ByteLevel");
            CLV_TRY(read_template(t, r, json_array_get(list, i)));
        }
        return CLV_OK;
    }
    if (strcmp(type_of(processor), "TemplateProcessing") != 0)
        return unsupported(r, "the post-processor", type_of(processor), "TemplateProcessing, ByteLevel, Sequence");
    const json_t *single = json_object_get(processor, "single");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
        if (special)
            CLV_TRY(add_special(t, r, processor, special, after));
        else
            after = true;
    }
    return CLV_OK;
}

/* ---- vocabulary and merges ---- */

enum { LARGEST_ID = 1 << 24 };

static clv_status largest_id(int64_t *out, const reader *r, const json_t *vocab, const json_t *added)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > LARGEST_ID)
            return clv_fail(r->err, CLV_EFORMAT, "%s: the id of '%.60s' must be 0 to %d", r->where, key, LARGEST_ID);
        *out = json_integer_value(value) > *out ? json_integer_value(value) : *out;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        int64_t id = -1;
        CLV_TRY(clv_json_int(&id, json_array_get(added, i), "id", CLV_JSON_REQUIRED, 0, LARGEST_ID, r->where, r->err));
        *out = id > *out ? id : *out;
    }
    /* Ids are dense in practice: nothing is allocated by the size of one that is not. */
    int64_t most = 2 * (int64_t)(json_object_size(vocab) + json_array_size(added)) + 1024;
    if (*out > most)
        return clv_fail(r->err, CLV_EFORMAT, "%s: an id of %lld among so few tokens; valid: up to %lld", r->where,
                        (long long)*out, (long long)most);
    return CLV_OK;
}

static clv_status read_vocab(clv_tokenizer *t, const reader *r, const json_t *vocab)
{
    const char *key;
    json_t *value;
    CLV_TRY(clv_vocab_reserve(&t->bpe.vocab, t->arena, (int64_t)json_object_size(vocab), r->err));
    json_object_foreach((json_t *)vocab, key, value)
    {
        size_t size = strlen(key);
        const char *text = clv_arena_copy(t->arena, key, size + 1);
        int64_t id = json_integer_value(value);
        if (!text)
            return clv_fail_memory(r->err, "a vocabulary", size);
        *clv_vocab_slot(&t->bpe.vocab, text, size) = (struct clv_vocab_entry){text, size, id};
        t->bpe.vocab.n++;
        t->token[id] = (clv_token_text){text, size};
    }
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        t->bpe.byte_id[b] = clv_vocab_find(&t->bpe.vocab, name, strlen(name));
    }
    return CLV_OK;
}

/* "a b", or ["a", "b"]. */
static clv_status merge_texts(clv_token_text out[2], const reader *r, const json_t *merge)
{
    const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
    if (space) {
        out[0] = (clv_token_text){text, (size_t)(space - text)};
        out[1] = (clv_token_text){space + 1, json_string_length(merge) - (size_t)(space + 1 - text)};
        return CLV_OK;
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *half = json_array_get(merge, i);
        out[i] = (clv_token_text){json_string_value(half), json_string_length(half)};
    }
    if (!out[0].text || !out[1].text)
        return clv_fail(r->err, CLV_EFORMAT, "%s: a merge is \"a b\" or [\"a\", \"b\"]", r->where);
    return CLV_OK;
}

static clv_status read_merges(clv_tokenizer *t, const reader *r, const json_t *merges)
{
    size_t n = json_array_size(merges);
    CLV_TRY(clv_bpe_reserve_merges(&t->bpe, t->arena, (int64_t)n, r->err));
    for (size_t i = 0; i < n; i++) {
        clv_token_text half[2];
        CLV_TRY(merge_texts(half, r, json_array_get(merges, i)));
        size_t size = half[0].size + half[1].size;
        char *joined = malloc(size + 1);
        if (!joined)
            return clv_fail_memory(r->err, "a merge", size);
        memcpy(joined, half[0].text, half[0].size);
        memcpy(joined + half[0].size, half[1].text, half[1].size);
        int64_t left = clv_vocab_find(&t->bpe.vocab, half[0].text, half[0].size);
        int64_t right = clv_vocab_find(&t->bpe.vocab, half[1].text, half[1].size);
        int64_t made = clv_vocab_find(&t->bpe.vocab, joined, size);
        free(joined);
        if (left < 0 || right < 0 || made < 0)
            return clv_fail(r->err, CLV_EFORMAT, "%s: merge %zu is of tokens that the vocabulary lacks", r->where,
                            i + 1);
        *clv_bpe_merge_slot(&t->bpe, left, right) = (clv_merge){left, right, (int64_t)i, made};
    }
    return CLV_OK;
}

static clv_status read_model(clv_tokenizer *t, const reader *r, const json_t *model)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    const char *unknown = NULL;
    if (strcmp(type_of(model), "BPE") != 0)
        return unsupported(r, "the model", type_of(model), "BPE");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const json_t *value = json_object_get(model, refused[i]);
        bool nothing = !value || json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0);
        if (!nothing)
            return unsupported(r, "BPE with", refused[i], "null");
    }
    CLV_TRY(clv_json_bool(&t->bpe.byte_fallback, model, "byte_fallback", CLV_JSON_OPTIONAL, r->where, r->err));
    CLV_TRY(clv_json_bool(&t->bpe.fuse_unknown, model, "fuse_unk", CLV_JSON_OPTIONAL, r->where, r->err));
    CLV_TRY(clv_json_bool(&t->bpe.ignore_merges, model, "ignore_merges", CLV_JSON_OPTIONAL, r->where, r->err));
    CLV_TRY(clv_json_string(&unknown, model, "unk_token", CLV_JSON_OPTIONAL, r->where, r->err));
    CLV_TRY(read_vocab(t, r, json_object_get(model, "vocab")));
    CLV_TRY(read_merges(t, r, json_object_get(model, "merges")));
    t->bpe.unknown = unknown ? clv_vocab_find(&t->bpe.vocab, unknown, strlen(unknown)) : -1;
    return CLV_OK;
}

/* ---- added tokens ---- */

static int by_falling_size(const void *a, const void *b)
{
    const clv_added_token *x = a, *y = b;
    return x->text.size != y->text.size ? (x->text.size < y->text.size ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

static clv_status read_added(clv_tokenizer *t, const reader *r, const json_t *list)
{
    static const char *const refused[] = {"single_word", "lstrip", "rstrip", "normalized"};
    size_t n = json_array_size(list);
    t->added = clv_arena_alloc(t->arena, n + 1, sizeof *t->added);
    if (!t->added)
        return clv_fail_memory(r->err, "added tokens", n * sizeof *t->added);
    for (size_t i = 0; i < n; i++) {
        const json_t *token = json_array_get(list, i);
        clv_added_token *added = &t->added[t->n_added++];
        bool special = false;
        CLV_TRY(keep(&added->text, r, json_object_get(token, "content")));
        CLV_TRY(clv_json_int(&added->id, token, "id", CLV_JSON_REQUIRED, 0, t->size - 1, r->where, r->err));
        CLV_TRY(clv_json_bool(&special, token, "special", CLV_JSON_OPTIONAL, r->where, r->err));
        for (size_t k = 0; k < sizeof refused / sizeof refused[0]; k++) {
            bool set = false;
            CLV_TRY(clv_json_bool(&set, token, refused[k], CLV_JSON_OPTIONAL, r->where, r->err));
            bool same = strcmp(refused[k], "normalized") == 0 && t->normalizer.n == 0;
            if (set && !same && added->text.size > 0)
                return unsupported(r, "an added token that is", refused[k], "false");
        }
        t->token[added->id] = added->text;
        t->special[added->id] = special;
    }
    qsort(t->added, (size_t)t->n_added, sizeof *t->added, by_falling_size);
    return CLV_OK;
}

clv_status clv_tokenizer_from_json(clv_tokenizer *t, const json_t *document, const char *where, clv_error *err)
{
    reader r = {.t = t, .where = where, .err = err};
    CLV_TRY(clv_json_check_object(document, where, err));
    const json_t *model = json_object_get(document, "model"), *added = json_object_get(document, "added_tokens");
    int64_t largest = -1;
    CLV_TRY(largest_id(&largest, &r, json_object_get(model, "vocab"), added));
    if (largest < 0)
        return clv_fail(err, CLV_EFORMAT, "%s: the vocabulary is empty", where);
    t->size = largest + 1;
    t->token = clv_arena_alloc(t->arena, (size_t)t->size, sizeof *t->token);
    t->special = clv_arena_alloc(t->arena, (size_t)t->size, sizeof *t->special);
    if (!t->token || !t->special)
        return clv_fail_memory(err, where, (size_t)t->size * sizeof *t->token);
    CLV_TRY(read_model(t, &r, model));
    CLV_TRY(read_steps(&t->normalizer, &r, json_object_get(document, "normalizer"), false));
    CLV_TRY(read_added(t, &r, added));
    CLV_TRY(read_pre_tokenizer(t, &r, json_object_get(document, "pre_tokenizer")));
    CLV_TRY(check_pre_tokenizer(t, &r));
    CLV_TRY(read_template(t, &r, json_object_get(document, "post_processor")));
    return read_steps(&t->decoder, &r, json_object_get(document, "decoder"), true);
}
