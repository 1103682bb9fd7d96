/* tokenizer.c - encoding and decoding by the components of a tokenizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "io/byte_level.h"
#include "io/file.h"
#include "io/tokenizer_parts.h"
#include "io/utf8.h"

enum { FILE_LIMIT = 256 << 20 };

clv_status clv_tokenizer_open(clv_tokenizer **out, const char *path, clv_error *err)
{
    struct stat info;
    json_t *document = NULL;
    char *file = stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? clv_path_join(path, "tokenizer.json") : NULL;
    const char *where = file ? file : path;
    clv_tokenizer *t = calloc(1, sizeof *t);
    if (t)
        t->arena = clv_arena_new();
    clv_status status = t && t->arena ? CLV_OK : clv_fail_memory(err, "a tokenizer", sizeof *t);
    if (status == CLV_OK)
        status = clv_json_load(&document, where, FILE_LIMIT, err);
    if (status == CLV_OK)
        status = clv_tokenizer_from_json(t, document, where, err);
    json_decref(document);
    free(file);
    if (status != CLV_OK) {
        clv_tokenizer_free(t);
        return status;
    }
    *out = t;
    return CLV_OK;
}

void clv_tokenizer_free(clv_tokenizer *t)
{
    if (!t)
        return;
    clv_pattern_free(t->byte_level.pattern);
    clv_arena_free(t->arena);
    free(t);
}

int64_t clv_tokenizer_size(const clv_tokenizer *t)
{
    return t->size;
}

/* ---- text that grows ---- */

typedef struct buffer {
    char *text;
    size_t size, capacity;
} buffer;

static clv_status append(buffer *b, const char *text, size_t size, clv_error *err)
{
    if (b->size + size + 1 > b->capacity) {
        size_t capacity = 2 * (b->size + size) + 64;
        char *grown = realloc(b->text, capacity);
        if (!grown)
            return clv_fail_memory(err, "a text", capacity);
        b->text = grown;
        b->capacity = capacity;
    }
    if (size > 0)
        memcpy(b->text + b->size, text, size);
    b->size += size;
    b->text[b->size] = '\0';
    return CLV_OK;
}

static bool starts_with(const char *text, size_t size, const clv_token_text *what)
{
    return size >= what->size && memcmp(text, what->text, what->size) == 0;
}

/* Appends text with every a replaced by b. */
static clv_status append_replaced(buffer *b, const char *text, size_t size, const clv_token_text *from,
                                  const clv_token_text *to, clv_error *err)
{
    for (size_t at = 0; at < size;) {
        bool found = starts_with(text + at, size - at, from);
        CLV_TRY(found ? append(b, to->text, to->size, err) : append(b, text + at, 1, err));
        at += found ? from->size : 1;
    }
    return CLV_OK;
}

/* ---- encoding ---- */

static clv_status normalize(buffer *out, const clv_tokenizer *t, const char *text, size_t size, clv_error *err)
{
    CLV_TRY(append(out, text, size, err));
    for (int i = 0; i < t->normalizer.n && out->size > 0; i++) {
        const clv_text_step *step = &t->normalizer.step[i];
        buffer next = {0};
        clv_status status = step->kind == CLV_TEXT_PREPEND ? append(&next, step->a.text, step->a.size, err) : CLV_OK;
        if (status == CLV_OK)
            status = step->kind == CLV_TEXT_PREPEND
                         ? append(&next, out->text, out->size, err)
                         : append_replaced(&next, out->text, out->size, &step->a, &step->b, err);
        free(out->text);
        *out = next;
        CLV_TRY(status);
    }
    return CLV_OK;
}

/* Spaces become the replacement, and one is put before the text where the scheme says so. */
static clv_status apply_metaspace(buffer *out, const clv_metaspace *m, const buffer *text, bool first, clv_error *err)
{
    static const clv_token_text space = {" ", 1};
    bool prepend = m->prepend == CLV_PREPEND_ALWAYS || (m->prepend == CLV_PREPEND_FIRST && first);
    bool has = text->size > 0 && (text->text[0] == ' ' || starts_with(text->text, text->size, &m->replacement));
    if (prepend && !has)
        CLV_TRY(append(out, m->replacement.text, m->replacement.size, err));
    return append_replaced(out, text->text, text->size, &space, &m->replacement, err);
}

/* Pieces begin at each replacement. */
static clv_status encode_pieces(const clv_tokenizer *t, const buffer *text, clv_ids *ids, clv_error *err)
{
    size_t begin = 0;
    for (size_t at = 1; t->metaspace.split && at < text->size; at++)
        if (starts_with(text->text + at, text->size - at, &t->metaspace.replacement)) {
            CLV_TRY(clv_bpe_encode(&t->bpe, text->text + begin, at - begin, ids, err));
            begin = at;
        }
    return clv_bpe_encode(&t->bpe, text->text + begin, text->size - begin, ids, err);
}

static clv_status spell_bytes(buffer *out, const char *text, size_t size, clv_error *err)
{
    for (size_t i = 0; i < size; i++) {
        char character[2];
        size_t n = clv_byte_character(character, (unsigned char)text[i]);
        CLV_TRY(append(out, character, n, err));
    }
    return CLV_OK;
}

static clv_status encode_byte_level(const clv_tokenizer *t, const buffer *text, clv_ids *ids, clv_error *err)
{
    buffer whole = {0}, piece = {0};
    bool prefix = t->byte_level.prefix_space && text->size > 0 && text->text[0] != ' ';
    clv_status status = prefix ? append(&whole, " ", 1, err) : CLV_OK;
    if (status == CLV_OK)
        status = append(&whole, text->text, text->size, err);
    for (size_t begin = 0; status == CLV_OK && begin < whole.size;) {
        size_t end = whole.size;
        piece.size = 0;
        if (t->byte_level.pattern)
            status = clv_pattern_piece(&end, t->byte_level.pattern, whole.text, whole.size, begin, err);
        if (status == CLV_OK)
            status = spell_bytes(&piece, whole.text + begin, end - begin, err);
        if (status == CLV_OK)
            status = clv_bpe_encode(&t->bpe, piece.text, piece.size, ids, err);
        begin = end;
    }
    free(whole.text);
    free(piece.text);
    return status;
}

/* Text between added tokens. first: it begins the whole text. */
static clv_status encode_plain(const clv_tokenizer *t, const char *text, size_t size, bool first, clv_ids *ids,
                               clv_error *err)
{
    buffer normal = {0}, marked = {0};
    if (size == 0)
        return CLV_OK;
    clv_status status = normalize(&normal, t, text, size, err);
    if (status == CLV_OK && t->byte_level.present)
        status = encode_byte_level(t, &normal, ids, err);
    else if (status == CLV_OK && !t->metaspace.present)
        status = clv_bpe_encode(&t->bpe, normal.text, normal.size, ids, err);
    else if (status == CLV_OK && (status = apply_metaspace(&marked, &t->metaspace, &normal, first, err)) == CLV_OK)
        status = encode_pieces(t, &marked, ids, err);
    free(normal.text);
    free(marked.text);
    return status;
}

static const clv_added_token *added_at(const clv_tokenizer *t, const char *text, size_t size)
{
    for (int i = 0; i < t->n_added; i++)
        if (t->added[i].text.size > 0 && starts_with(text, size, &t->added[i].text))
            return &t->added[i];
    return NULL;
}

static clv_status encode_all(const clv_tokenizer *t, const char *text, size_t size, clv_ids *ids, clv_error *err)
{
    size_t begin = 0;
    for (size_t at = 0; at < size;) {
        const clv_added_token *added = added_at(t, text + at, size - at);
        if (!added) {
            at++;
            continue;
        }
        CLV_TRY(encode_plain(t, text + begin, at - begin, begin == 0, ids, err));
        CLV_TRY(clv_ids_add(ids, added->id, err));
        begin = at += added->text.size;
    }
    return encode_plain(t, text + begin, size - begin, begin == 0, ids, err);
}

clv_status clv_tokenizer_encode(const clv_tokenizer *t, const char *text, size_t size, bool special, int64_t **ids,
                                int64_t *n, clv_error *err)
{
    clv_ids all = {0};
    char *valid = NULL;
    size_t valid_size = 0;
    clv_status status = clv_utf8_repair(&valid, &valid_size, text, size, err);
    for (int i = 0; status == CLV_OK && special && i < t->n_before; i++)
        status = clv_ids_add(&all, t->before[i], err);
    if (status == CLV_OK)
        status = encode_all(t, valid, valid_size, &all, err);
    for (int i = 0; status == CLV_OK && special && i < t->n_after; i++)
        status = clv_ids_add(&all, t->after[i], err);
    free(valid);
    if (status != CLV_OK) {
        free(all.id);
        return status;
    }
    *ids = all.id;
    *n = all.n;
    return CLV_OK;
}

/* ---- decoding ---- */

/* The byte of "<0x41>"; -1 for other tokens. */
static int byte_of(const clv_token_text *token)
{
    unsigned value;
    char end;
    bool shaped = token->size == 6 && memcmp(token->text, "<0x", 3) == 0;
    return shaped && sscanf(token->text + 3, "%2X%c", &value, &end) == 2 && end == '>' ? (int)value : -1;
}

/* The texts of tokens, in the making. */
typedef struct texts {
    int64_t n;
    buffer *item; /* [n] */
} texts;

/* Runs of bytes become one text: what they spell, or U+FFFD for each of them when that is not UTF-8. */
static clv_status join_bytes(texts *all, clv_error *err)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < all->n;) {
        buffer run = {0};
        int64_t end = i;
        for (; end < all->n; end++) {
            int byte = byte_of(&(clv_token_text){all->item[end].text, all->item[end].size});
            char c = (char)byte;
            if (byte < 0)
                break;
            clv_status status = append(&run, &c, 1, err);
            if (status != CLV_OK) {
                free(run.text);
                return status;
            }
        }
        if (end == i) {
            buffer same = all->item[i];
            all->item[i++] = (buffer){0};
            all->item[kept++] = same;
            continue;
        }
        clv_status status = CLV_OK;
        if (!clv_utf8_valid(run.text, run.size)) {
            run.size = 0;
            for (int64_t k = i; status == CLV_OK && k < end; k++)
                status = append(&run, "\xef\xbf\xbd", 3, err);
        }
        for (int64_t k = i; k < end; k++) {
            free(all->item[k].text);
            all->item[k] = (buffer){0};
        }
        all->item[kept++] = run;
        CLV_TRY(status);
        i = end;
    }
    all->n = kept;
    return CLV_OK;
}

static clv_status fuse(texts *all, clv_error *err)
{
    for (int64_t i = 1; i < all->n; i++) {
        CLV_TRY(append(&all->item[0], all->item[i].text, all->item[i].size, err));
        free(all->item[i].text);
        all->item[i] = (buffer){0};
    }
    all->n = all->n > 0 ? 1 : 0;
    return CLV_OK;
}

static void strip(buffer *b, const clv_text_step *step)
{
    int64_t n = 0;
    size_t from = 0;
    if (b->size == 0)
        return;
    while (n < step->start && step->a.size > 0 && starts_with(b->text + from, b->size - from, &step->a)) {
        from += step->a.size;
        n++;
    }
    memmove(b->text, b->text + from, b->size - from);
    b->size -= from;
    for (n = 0; n < step->stop && b->size >= step->a.size && step->a.size > 0 &&
                memcmp(b->text + b->size - step->a.size, step->a.text, step->a.size) == 0;
         n++)
        b->size -= step->a.size;
    b->text[b->size] = '\0';
}

static clv_status replace(buffer *b, const clv_token_text *from, const clv_token_text *to, clv_error *err)
{
    buffer next = {0};
    clv_status status = append_replaced(&next, b->text, b->size, from, to, err);
    free(b->text);
    *b = next;
    return status;
}

/* All texts as one: the bytes that their characters stand for, what is not UTF-8 among them as U+FFFD. */
static clv_status join_byte_level(texts *all, clv_error *err)
{
    buffer bytes = {0};
    char *valid;
    size_t size;
    CLV_TRY(fuse(all, err));
    if (all->n == 0)
        return CLV_OK;
    clv_status status = append(&bytes, "", 0, err);
    for (size_t at = 0, n; status == CLV_OK && at < all->item[0].size; at += n) {
        n = clv_utf8_length(all->item[0].text + at, all->item[0].size - at);
        int byte = clv_character_byte(all->item[0].text + at, n);
        char c = (char)byte;
        status = byte >= 0 ? append(&bytes, &c, 1, err) : append(&bytes, all->item[0].text + at, n, err);
    }
    if (status == CLV_OK)
        status = clv_utf8_repair(&valid, &size, bytes.text, bytes.size, err);
    free(bytes.text);
    CLV_TRY(status);
    free(all->item[0].text);
    all->item[0] = (buffer){.text = valid, .size = size, .capacity = size + 1};
    return CLV_OK;
}

static clv_status decode_step(texts *all, const clv_text_step *step, clv_error *err)
{
    static const clv_token_text space = {" ", 1};
    if (step->kind == CLV_TEXT_BYTES)
        return join_bytes(all, err);
    if (step->kind == CLV_TEXT_FUSE)
        return fuse(all, err);
    if (step->kind == CLV_TEXT_BYTE_LEVEL)
        return join_byte_level(all, err);
    for (int64_t i = 0; i < all->n; i++) {
        buffer *b = &all->item[i];
        if (step->kind == CLV_TEXT_STRIP)
            strip(b, step);
        else
            CLV_TRY(replace(b, &step->a, step->kind == CLV_TEXT_REPLACE ? &step->b : &space, err));
        if (step->kind == CLV_TEXT_METASPACE && step->strips_first_space && i == 0)
            strip(b, &(clv_text_step){.a = space, .start = 1});
    }
    return CLV_OK;
}

static clv_status token_texts(texts *all, const clv_tokenizer *t, const int64_t *ids, int64_t n, clv_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->size || !t->token[ids[i]].text)
            return clv_fail(err, CLV_EINVAL, "there is no token %lld; valid: 0 to %lld", (long long)ids[i],
                            (long long)t->size - 1);
        if (!t->special[ids[i]])
            CLV_TRY(append(&all->item[all->n++], t->token[ids[i]].text, t->token[ids[i]].size, err));
    }
    return CLV_OK;
}

clv_status clv_tokenizer_decode(const clv_tokenizer *t, const int64_t *ids, int64_t n, char **text, size_t *size,
                                clv_error *err)
{
    buffer out = {0};
    texts all = {.item = calloc((size_t)n + 1, sizeof *all.item)};
    clv_status status =
        all.item ? append(&out, "", 0, err) : clv_fail_memory(err, "a text", (size_t)n * sizeof *all.item);
    if (status == CLV_OK)
        status = token_texts(&all, t, ids, n, err);
    for (int i = 0; status == CLV_OK && i < t->decoder.n; i++)
        status = decode_step(&all, &t->decoder.step[i], err);
    for (int64_t i = 0; status == CLV_OK && i < all.n; i++) {
        if (i > 0 && t->decoder.n == 0) /* without a decoder, tokens are words */
            status = append(&out, " ", 1, err);
        if (status == CLV_OK)
            status = append(&out, all.item[i].text, all.item[i].size, err);
    }
    for (int64_t i = 0; all.item && i <= n; i++)
        free(all.item[i].text);
    free(all.item);
    if (status != CLV_OK) {
        free(out.text);
        return status;
    }
    *text = out.text;
    *size = out.size;
    return CLV_OK;
}
