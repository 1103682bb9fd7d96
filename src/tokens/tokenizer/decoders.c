/* decoders.c - ByteFallback, Fuse, Strip, WordPiece, BPEDecoder and CTC decoders (tokens back to text). */
#include "tokens/tokenizer/tokenizer_components.h"

void clv_token_texts_free(clv_token_texts *all)
{
    for (int64_t i = 0; i < all->n; i++)
        clv_text_buffer_free(&all->item[i]);
    all->n = 0;
}

/* ---- ByteFallback ---- */

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Byte of "<0x41>"; -1 for other tokens. "<0x+1>" is 1, as in the `tokenizers` library. */
static int byte_of(clv_text_span token)
{
    if (token.size != 6 || memcmp(token.text, "<0x", 3) != 0 || token.text[5] != '>')
        return -1;
    int high = token.text[3] == '+' ? 0 : hex_digit(token.text[3]), low = hex_digit(token.text[4]);
    return high >= 0 && low >= 0 ? 16 * high + low : -1;
}

/* Appends the run of byte tokens [begin, *end) as bytes. */
static clv_status byte_run(clv_text_buffer *run, int64_t *end, const clv_token_texts *all, int64_t begin,
                           clv_error *err)
{
    *end = begin;
    for (int byte; *end < all->n && (byte = byte_of(clv_text_buffer_span(&all->item[*end]))) >= 0; ++*end) {
        char c = (char)byte;
        CLV_TRY(clv_text_buffer_append(run, &c, 1, err));
    }
    return CLV_OK;
}

/* Replaces tokens [begin, end) by one text at *kept, or by a U+FFFD each if the bytes are not UTF-8. */
static clv_status put_run(clv_token_texts *all, int64_t *kept, int64_t begin, int64_t end, clv_text_buffer *run,
                          clv_error *err)
{
    bool valid = clv_utf8_valid(run->text, run->size);
    for (int64_t i = begin; i < end; i++)
        clv_text_buffer_free(&all->item[i]);
    if (valid) {
        all->item[(*kept)++] = *run;
        *run = (clv_text_buffer){0};
        return CLV_OK;
    }
    for (int64_t i = begin; i < end; i++)
        CLV_TRY(clv_text_buffer_append_character(&all->item[(*kept)++], 0xfffd, err));
    return CLV_OK;
}

static clv_status decode_byte_fallback(clv_token_texts *all, const void *options, clv_error *err)
{
    int64_t kept = 0;
    for (int64_t i = 0, end; i < all->n; i = end) {
        CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer run = {0};
        CLV_TRY(byte_run(&run, &end, all, i, err));
        if (end > i) {
            CLV_TRY(put_run(all, &kept, i, end, &run, err));
            continue;
        }
        clv_text_buffer same = all->item[end];
        all->item[end++] = (clv_text_buffer){0};
        all->item[kept++] = same;
    }
    all->n = kept;
    return CLV_OK;
}

const clv_tokenizer_component clv_decoder_byte_fallback = {.type = "ByteFallback", .decode = decode_byte_fallback};

/* ---- Fuse ---- */

/* Joins all texts. */
static clv_status fuse(clv_token_texts *all, clv_error *err)
{
    for (int64_t i = 1; i < all->n; i++) {
        CLV_TRY(clv_text_buffer_append(&all->item[0], all->item[i].text, all->item[i].size, err));
        clv_text_buffer_free(&all->item[i]);
    }
    all->n = all->n > 0 ? 1 : 0;
    return CLV_OK;
}

static clv_status decode_fuse(clv_token_texts *all, const void *options, clv_error *err)
{
    return fuse(all, err);
}

const clv_tokenizer_component clv_decoder_fuse = {.type = "Fuse", .decode = decode_fuse};

/* ---- Strip ---- */

typedef struct strip_options {
    clv_text_span what;
    int64_t start, stop; /* maximal number to strip at each end */
} strip_options;

static clv_status read_strip(void *options, const clv_component_reader *r, const json_t *json)
{
    strip_options *o = options;
    CLV_TRY(clv_json_get_int(&o->start, json, "start", CLV_JSON_REQUIRED, 0, 1 << 20, r->where, r->err));
    return clv_json_get_int(&o->stop, json, "stop", CLV_JSON_REQUIRED, 0, 1 << 20, r->where, r->err);
}

static void strip(clv_text_buffer *b, const strip_options *o)
{
    size_t from = 0, n = o->what.size;
    for (int64_t i = 0;
         i < o->start && clv_text_span_starts_with(clv_text_span_of(b->text + from, b->size - from), o->what); i++)
        from += n;
    for (int64_t i = 0; i < o->stop && b->size - from >= n && memcmp(b->text + b->size - n, o->what.text, n) == 0; i++)
        b->size -= n;
    memmove(b->text, b->text + from, b->size - from);
    b->size -= from;
    b->text[b->size] = '\0';
}

static clv_status decode_strip(clv_token_texts *all, const void *options, clv_error *err)
{
    for (int64_t i = 0; i < all->n; i++)
        if (all->item[i].size > 0)
            strip(&all->item[i], options);
    return CLV_OK;
}

const clv_tokenizer_component clv_decoder_strip = {
    .type = "Strip",
    .options_size = sizeof(strip_options),
    .fields = {{"content", CLV_FIELD_CHARACTER, offsetof(strip_options, what)}},
    .read = read_strip,
    .decode = decode_strip};

/* ---- WordPiece ---- */

typedef struct word_piece_options {
    clv_text_span prefix;
    bool cleanup;
} word_piece_options;

/* Replaces each `from` in a text by `to`. */
static clv_status replace(clv_text_buffer *text, clv_text_span from, const char *to, clv_error *err)
{
    clv_text_buffer next = {0};
    clv_status status =
        clv_text_buffer_append_replaced(&next, clv_text_buffer_span(text), from, clv_text_span_of(to, strlen(to)), err);
    clv_text_buffer_free(text);
    *text = next;
    return status;
}

/* Removes spaces before punctuation and contractions, rule by rule. */
static clv_status clean_up(clv_text_buffer *text, clv_error *err)
{
    static const char *const rules[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!memchr(text->text, ' ', text->size))
            return CLV_OK;
        CLV_TRY(replace(text, clv_text_span_of(rules[i][0], strlen(rules[i][0])), rules[i][1], err));
    }
    return CLV_OK;
}

/* Puts a space before each token without the prefix, and removes the prefix. */
static clv_status decode_word_piece(clv_token_texts *all, const void *options, clv_error *err)
{
    const word_piece_options *o = options;
    for (int64_t i = 0; i < all->n; i++) {
        clv_text_buffer next = {0}, *item = &all->item[i];
        clv_text_span text = clv_text_buffer_span(item);
        bool inner = i > 0 && clv_text_span_starts_with(text, o->prefix);
        size_t skipped = inner ? o->prefix.size : 0;
        clv_status status = i > 0 && !inner ? clv_text_buffer_append(&next, " ", 1, err) : CLV_OK;
        if (status == CLV_OK)
            status = clv_text_buffer_append(&next, text.text + skipped, text.size - skipped, err);
        if (status == CLV_OK && o->cleanup)
            status = clean_up(&next, err);
        clv_text_buffer_free(item);
        *item = next;
        CLV_TRY(status);
    }
    return CLV_OK;
}

const clv_tokenizer_component clv_decoder_word_piece = {
    .type = "WordPiece",
    .options_size = sizeof(word_piece_options),
    .fields = {{"prefix", CLV_FIELD_STRING, offsetof(word_piece_options, prefix)},
               {"cleanup", CLV_FIELD_BOOL, offsetof(word_piece_options, cleanup)}},
    .decode = decode_word_piece};

/* ---- BPEDecoder ---- */

/* Replaces the end-of-word suffix by a space, except in the last token. */
static clv_status decode_bpe(clv_token_texts *all, const void *options, clv_error *err)
{
    for (int64_t i = 0; i < all->n; i++)
        CLV_TRY(replace(&all->item[i], *(const clv_text_span *)options, i + 1 < all->n ? " " : "", err));
    return CLV_OK;
}

const clv_tokenizer_component clv_decoder_bpe = {.type = "BPEDecoder",
                                                 .options_size = sizeof(clv_text_span),
                                                 .fields = {{"suffix", CLV_FIELD_NONEMPTY_STRING, 0}},
                                                 .decode = decode_bpe};

/* ---- CTC ---- */

typedef struct ctc_options {
    clv_text_span pad, delimiter;
    bool cleanup;
} ctc_options;

/* Keeps the first of each run of equal texts or, if `empty`, the texts that are not empty. */
static void drop(clv_token_texts *all, bool empty)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < all->n; i++) {
        clv_text_buffer text = all->item[i], *last = kept > 0 ? &all->item[kept - 1] : NULL;
        bool repeated =
            last && last->size == text.size && (text.size == 0 || memcmp(last->text, text.text, text.size) == 0);
        all->item[i] = (clv_text_buffer){0};
        if (empty ? text.size == 0 : repeated)
            clv_text_buffer_free(&text);
        else
            all->item[kept++] = text;
    }
    all->n = kept;
}

static clv_status decode_ctc(clv_token_texts *all, const void *options, clv_error *err)
{
    const ctc_options *o = options;
    drop(all, false);
    for (int64_t i = 0; i < all->n; i++) {
        clv_text_buffer *item = &all->item[i];
        CLV_TRY(replace(item, o->pad, "", err));
        if (o->cleanup)
            CLV_TRY(clean_up(item, err));
        if (o->cleanup)
            CLV_TRY(replace(item, o->delimiter, " ", err));
    }
    drop(all, true);
    return CLV_OK;
}

const clv_tokenizer_component clv_decoder_ctc = {
    .type = "CTC",
    .options_size = sizeof(ctc_options),
    .fields = {{"pad_token", CLV_FIELD_NONEMPTY_STRING, offsetof(ctc_options, pad)},
               {"word_delimiter_token", CLV_FIELD_NONEMPTY_STRING, offsetof(ctc_options, delimiter)},
               {"cleanup", CLV_FIELD_BOOL, offsetof(ctc_options, cleanup)}},
    .decode = decode_ctc};
