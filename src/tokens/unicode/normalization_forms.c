/* normalization_forms.c - Unicode NFC, NFD, NFKC, NFKD normalization (UAX 15) and the normalizers of those names.
 * Characters that the older tables of the `tokenizers` library do not have (CLV_IS_UNNORMALIZED) stay as they are.
 * Marks of a letter are sorted here, as utf8proc takes quadratic time.
 */
#include "tokens/unicode/normalization_forms.h"

#include <utf8proc.h>

#include "base/memory/grow.h"
#include "tokens/unicode/character_classes.h"
#include "tokens/tokenizer/tokenizer_components.h"

typedef struct characters {
    size_t n;
    int64_t capacity;
    struct marked {
        utf8proc_int32_t character;
        int16_t order; /* combining class, or UNTOUCHED */
    } * item;
} characters;

enum { UNTOUCHED = -1, LONGEST_DECOMPOSITION = 32 };

/* Adds the decomposition of a character. */
static clv_status decompose(characters *all, uint32_t character, bool compatible, clv_error *err)
{
    utf8proc_int32_t part[LONGEST_DECOMPOSITION];
    int boundary = 0;
    unsigned options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? (unsigned)UTF8PROC_COMPAT : 0);
    CLV_TRY(clv_grow(&all->item, &all->capacity, (int64_t)all->n + LONGEST_DECOMPOSITION, sizeof *all->item, "a text",
                     err));
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

/* Stable. */
static void merge_sort(struct marked *item, size_t n, struct marked *scratch)
{
    size_t half = n / 2, a = 0, b = half;
    if (n < 2)
        return;
    merge_sort(item, half, scratch);
    merge_sort(item + half, n - half, scratch);
    memcpy(scratch, item, n * sizeof *item);
    for (size_t i = 0; i < n; i++)
        item[i] = b >= n || (a < half && scratch[a].order <= scratch[b].order) ? scratch[a++] : scratch[b++];
}

/* Sorts each run of marks by combining class. */
static clv_status order_marks(characters *all, clv_error *err)
{
    struct marked *scratch = malloc((all->n + 1) * sizeof *scratch);
    if (!scratch)
        return clv_fail_memory(err, "a text", all->n * sizeof *scratch);
    for (size_t begin = 0, end; begin < all->n; begin = end + 1) {
        for (end = begin; end < all->n && all->item[end].order > 0; end++)
            continue;
        merge_sort(all->item + begin, end - begin, scratch);
    }
    free(scratch);
    return CLV_OK;
}

/* Composes the runs between untouched characters. scratch: [n] */
static void compose(characters *all, utf8proc_int32_t *scratch)
{
    size_t made = 0;
    for (size_t begin = 0, end; begin < all->n; begin = end) {
        for (end = begin; end < all->n && all->item[end].order != UNTOUCHED; end++)
            scratch[end - begin] = all->item[end].character;
        utf8proc_ssize_t n = utf8proc_normalize_utf32(scratch, (utf8proc_ssize_t)(end - begin),
                                                      (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        for (utf8proc_ssize_t i = 0; i < n; i++)
            all->item[made++].character = scratch[i];
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
    utf8proc_int32_t *scratch = malloc((all->n + 1) * sizeof *scratch);
    if (!scratch)
        return clv_fail_memory(err, "a text", all->n * sizeof *scratch);
    compose(all, scratch);
    free(scratch);
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

/* ---- normalizers ---- */

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
