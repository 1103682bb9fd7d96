/* normalization_forms.c - Unicode NFC, NFD, NFKC, NFKD normalization (UAX 15) and the normalizers of those names.
 * Characters that the `tokenizers` library's older tables do not know (CLV_IS_UNNORMALIZED) stand as they are. The
 * marks of a letter are sorted here: utf8proc's own way takes time quadratic in their number, which text may choose.
 */
#include "tokens/unicode/normalization_forms.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/error.h"
#include "tokens/unicode/character_classes.h"
#include "tokens/tokenizer/tokenizer_components.h"
#include "base/text/utf8.h"

typedef struct characters {
    size_t n, capacity;
    struct marked {
        utf8proc_int32_t character;
        int16_t order; /* the combining class; UNTOUCHED: not to be touched */
    } * item;
} characters;

enum { UNTOUCHED = -1, LONGEST_DECOMPOSITION = 32 };

static clv_status reserve(characters *all, size_t more, clv_error *err)
{
    if (all->n + more <= all->capacity)
        return CLV_OK;
    size_t capacity = 2 * (all->n + more);
    struct marked *grown = realloc(all->item, capacity * sizeof *grown);
    if (!grown)
        return clv_fail_memory(err, "a text", capacity * sizeof *grown);
    all->item = grown;
    all->capacity = capacity;
    return CLV_OK;
}

/* Adds a character's parts. */
static clv_status decompose(characters *all, uint32_t character, bool compatible, clv_error *err)
{
    utf8proc_int32_t part[LONGEST_DECOMPOSITION];
    int boundary = 0;
    unsigned options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? (unsigned)UTF8PROC_COMPAT : 0);
    CLV_TRY(reserve(all, LONGEST_DECOMPOSITION, err));
    if (clv_character_classes(character) & CLV_IS_UNNORMALIZED) {
        all->item[all->n++] = (struct marked){(utf8proc_int32_t)character, UNTOUCHED};
        return CLV_OK;
    }
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)character, part, LONGEST_DECOMPOSITION,
                                                 (utf8proc_option_t)options, &boundary);
    for (utf8proc_ssize_t i = 0; i < n && i < LONGEST_DECOMPOSITION; i++)
        all->item[all->n++] = (struct marked){part[i], (int16_t)utf8proc_get_property(part[i])->combining_class};
    return CLV_OK;
}

/* Merges two sorted halves, keeping the order of equals. */
static void merge_sort(struct marked *item, size_t n, struct marked *room)
{
    size_t half = n / 2, a = 0, b = half;
    if (n < 2)
        return;
    merge_sort(item, half, room);
    merge_sort(item + half, n - half, room);
    memcpy(room, item, n * sizeof *item);
    for (size_t i = 0; i < n; i++)
        item[i] = b >= n || (a < half && room[a].order <= room[b].order) ? room[a++] : room[b++];
}

/* Each run of marks by their combining classes. */
static clv_status order_marks(characters *all, clv_error *err)
{
    struct marked *room = malloc((all->n + 1) * sizeof *room);
    if (!room)
        return clv_fail_memory(err, "a text", all->n * sizeof *room);
    for (size_t begin = 0, end; begin < all->n; begin = end + 1) {
        for (end = begin; end < all->n && all->item[end].order > 0; end++)
            continue;
        merge_sort(all->item + begin, end - begin, room);
    }
    free(room);
    return CLV_OK;
}

/* Puts together what composes between characters that are not ours; room is for all of them. */
static void compose(characters *all, utf8proc_int32_t *room)
{
    size_t made = 0;
    for (size_t begin = 0, end; begin < all->n; begin = end) {
        for (end = begin; end < all->n && all->item[end].order != UNTOUCHED; end++)
            room[end - begin] = all->item[end].character;
        utf8proc_ssize_t n = utf8proc_normalize_utf32(room, (utf8proc_ssize_t)(end - begin),
                                                      (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        for (utf8proc_ssize_t i = 0; i < n; i++)
            all->item[made++].character = room[i];
        if (end < all->n)
            all->item[made++].character = all->item[end++].character;
    }
    all->n = made;
}

static clv_status normalize_all(characters *all, clv_normalization_form form, clv_text_span text, clv_error *err)
{
    for (size_t at = 0, n; at < text.size; at += n)
        CLV_TRY(decompose(all, clv_utf8_decode(&n, text.text + at, text.size - at), form.compatible, err));
    CLV_TRY(order_marks(all, err));
    if (!form.composed)
        return CLV_OK;
    utf8proc_int32_t *room = malloc((all->n + 1) * sizeof *room);
    if (!room)
        return clv_fail_memory(err, "a text", all->n * sizeof *room);
    compose(all, room);
    free(room);
    return CLV_OK;
}

static bool is_ascii(clv_text_span text)
{
    for (size_t i = 0; i < text.size; i++)
        if ((unsigned char)text.text[i] >= 0x80)
            return false;
    return true;
}

clv_status clv_unicode_normalize(clv_text_buffer *out, clv_normalization_form form, clv_text_span text, clv_error *err)
{
    characters all = {0};
    if (is_ascii(text))
        return clv_text_buffer_append(out, text.text, text.size, err);
    clv_status status = normalize_all(&all, form, text, err);
    for (size_t i = 0; status == CLV_OK && i < all.n; i++)
        status = clv_text_buffer_append_character(out, (uint32_t)all.item[i].character, err);
    free(all.item);
    return status;
}

/* ---- as normalizers ---- */

static clv_status run_form(clv_text_buffer *out, const void *options, clv_text_span text, clv_error *err)
{
    return clv_unicode_normalize(out, *(const clv_normalization_form *)options, text, err);
}

#define FORM(name, ...)                                                                                                \
    {                                                                                                                  \
        .type = (name), .fixed_options = &(const clv_normalization_form){__VA_ARGS__}, .normalize = run_form           \
    }
const clv_tokenizer_component clv_normalizer_nfc = FORM("NFC", .composed = true);
const clv_tokenizer_component clv_normalizer_nfd = FORM("NFD", 0);
const clv_tokenizer_component clv_normalizer_nfkc = FORM("NFKC", .compatible = true, .composed = true);
const clv_tokenizer_component clv_normalizer_nfkd = FORM("NFKD", .compatible = true);
