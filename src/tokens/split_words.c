/* split_words.c - pre-tokenizers that look at one character at a time: BertPreTokenizer, Whitespace, WhitespaceSplit,
 * Punctuation, Digits. */
#include <string.h>

#include "base/error.h"
#include "tokens/character.h"
#include "tokens/tokenizer_parts.h"
#include "base/utf8.h"

/* What a cut does with the characters it is made at. */
typedef enum behavior { ISOLATED, REMOVED, CONTIGUOUS, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT } behavior;

static bool cuts(behavior how, bool here, bool before)
{
    switch (how) {
    case CONTIGUOUS:
        return here != before;
    case MERGED_WITH_PREVIOUS:
        return before;
    case MERGED_WITH_NEXT:
        return here;
    default:
        return here || before;
    }
}

/* Cuts at characters of the classes. */
static clv_status split_at(clv_pieces *out, unsigned classes, behavior how, const clv_piece *piece, clv_error *err)
{
    clv_text_span text = piece->text;
    size_t begin = 0;
    bool before = false;
    for (size_t at = 0, n; at < text.size; at += n) {
        bool here = (clv_character_classes(clv_utf8_decode(&n, text.text + at, text.size - at)) & classes) != 0;
        if (at > 0 && cuts(how, here, before)) {
            if (!(how == REMOVED && before))
                CLV_TRY(clv_pieces_add(out, piece, begin, at, err));
            begin = at;
        }
        before = here;
    }
    return how == REMOVED && before ? CLV_OK : clv_pieces_add(out, piece, begin, text.size, err);
}

/* ---- Punctuation ---- */

static clv_status read_punctuation(void **out, const clv_token_reader *r, const json_t *json)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *name = names[0];
    CLV_TRY(clv_reader_options(out, r, sizeof(behavior)));
    if (json_object_get(json, "behavior"))
        CLV_TRY(clv_json_string(&name, json, "behavior", CLV_JSON_REQUIRED, r->where, r->err));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) {
            *(behavior *)*out = (behavior)i;
            return CLV_OK;
        }
    return clv_reader_unsupported(r, "the behavior", name,
                                  "Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext");
}

static clv_status run_punctuation(clv_pieces *out, const void *options, const clv_piece *piece, clv_error *err)
{
    return split_at(out, CLV_IS_PUNCTUATION, *(const behavior *)options, piece, err);
}

const clv_component clv_split_punctuation = {.type = "Punctuation", .read = read_punctuation, .split = run_punctuation};

/* ---- Digits ---- */

static clv_status read_digits(void **out, const clv_token_reader *r, const json_t *json)
{
    bool individual = false;
    CLV_TRY(clv_reader_options(out, r, sizeof(behavior)));
    CLV_TRY(clv_json_bool(&individual, json, "individual_digits", CLV_JSON_REQUIRED, r->where, r->err));
    *(behavior *)*out = individual ? ISOLATED : CONTIGUOUS;
    return CLV_OK;
}

static clv_status run_digits(clv_pieces *out, const void *options, const clv_piece *piece, clv_error *err)
{
    return split_at(out, CLV_IS_DIGIT, *(const behavior *)options, piece, err);
}

const clv_component clv_split_digits = {.type = "Digits", .read = read_digits, .split = run_digits};

/* ---- WhitespaceSplit ---- */

static clv_status run_whitespace_alone(clv_pieces *out, const void *options, const clv_piece *piece, clv_error *err)
{
    (void)options;
    return split_at(out, CLV_IS_SPACE, REMOVED, piece, err);
}

const clv_component clv_split_whitespace_alone = {.type = "WhitespaceSplit", .split = run_whitespace_alone};

/* ---- Whitespace and BertPreTokenizer: runs of one kind ---- */

enum { SPACE = 0, WORD, OTHER, ALONE };

static int kind_for_whitespace(unsigned classes)
{
    return classes & CLV_IS_WORD ? WORD : classes & CLV_IS_SPACE ? SPACE : OTHER;
}

static int kind_for_bert(unsigned classes)
{
    return classes & CLV_IS_SPACE ? SPACE : classes & CLV_IS_PUNCTUATION ? ALONE : WORD;
}

static clv_status split_runs(clv_pieces *out, int (*kind_of)(unsigned classes), const clv_piece *piece, clv_error *err)
{
    clv_text_span text = piece->text;
    size_t begin = 0;
    int before = SPACE;
    for (size_t at = 0, n; at < text.size; at += n) {
        int kind = kind_of(clv_character_classes(clv_utf8_decode(&n, text.text + at, text.size - at)));
        if (kind != before || kind == ALONE) {
            if (before != SPACE)
                CLV_TRY(clv_pieces_add(out, piece, begin, at, err));
            begin = at;
        }
        before = kind;
    }
    return before != SPACE ? clv_pieces_add(out, piece, begin, text.size, err) : CLV_OK;
}

static clv_status run_whitespace(clv_pieces *out, const void *options, const clv_piece *piece, clv_error *err)
{
    (void)options;
    return split_runs(out, kind_for_whitespace, piece, err);
}

static clv_status run_bert(clv_pieces *out, const void *options, const clv_piece *piece, clv_error *err)
{
    (void)options;
    return split_runs(out, kind_for_bert, piece, err);
}

const clv_component clv_split_whitespace = {.type = "Whitespace", .split = run_whitespace};
const clv_component clv_split_bert = {.type = "BertPreTokenizer", .split = run_bert};
