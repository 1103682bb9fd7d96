/* tokenized_sequences.c - clv_sequences: reads FASTA, JSON lines or text and tokenizes; rejects, skips or truncates
 * long ones.
 */
#include "infer/forward/tokenized_sequences.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/versioned_structs.h"
#include "io/files/text_file.h"
#include "io/json/json.h"
#include "models/model.h"
#include "tokens/data/fasta.h"

enum { FILE_LIMIT = 1 << 30 };

static void free_list(clv_sequence *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        free(list[i].name);
        free(list[i].text);
        free(list[i].ids);
    }
    free(list);
}

void clv_sequences_reset(clv_sequences *s)
{
    free_list(s->item, s->n);
    free_list(s->left_out, s->n_skipped);
    *s = (clv_sequences){0};
}

/* ---- reading ---- */

static clv_status add(clv_sequences *s, const char *name, size_t name_size, size_t text_size, clv_error *err)
{
    if ((s->n & (s->n - 1)) == 0) { /* full: room is a power of two */
        clv_sequence *grown = realloc(s->item, (size_t)(s->n ? 2 * s->n : 1) * sizeof *grown);
        if (!grown)
            return clv_fail_memory(err, "sequences", (size_t)s->n * sizeof *grown);
        s->item = grown;
    }
    s->item[s->n] = (clv_sequence){.name = strndup(name, name_size), .text = calloc(text_size + 1, 1)};
    s->n++;
    return s->item[s->n - 1].name && s->item[s->n - 1].text ? CLV_OK : clv_fail_memory(err, "a sequence", text_size);
}

/* One whose name is its number, from 1. */
static clv_status add_numbered(clv_sequences *s, const char *text, size_t size, clv_error *err)
{
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)s->n + 1);
    CLV_TRY(add(s, number, strlen(number), size, err));
    memcpy(s->item[s->n - 1].text, text, size);
    return CLV_OK;
}

/* Of a line of JSON its "text". */
static clv_status add_json(clv_sequences *s, const char *line, size_t size, clv_error *err)
{
    json_t *object = NULL;
    const char *text;
    if (strspn(line, " \t\r\n") >= size)
        return CLV_OK;
    CLV_TRY(clv_json_parse(&object, line, size, CLV_JSON_KEYS_LAST_WINS, "the line", err));
    clv_status status = clv_json_get_string(&text, object, "text", CLV_JSON_REQUIRED, "the line", err);
    if (status == CLV_OK)
        status = add_numbered(s, text, strlen(text), err);
    json_decref(object);
    return status;
}

static clv_status read_lines(clv_sequences *s, char *text, size_t size, bool json, const char *path, clv_error *err)
{
    char *end = text + size;
    int64_t number = 1;
    for (char *line = text; line < end; number++) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        clv_error why = {0};
        stop = stop ? stop : end;
        size_t length = (size_t)(stop - line);
        clv_status status = json ? add_json(s, line, length, &why) : add_numbered(s, line, length, &why);
        if (status != CLV_OK)
            return clv_fail(err, status == CLV_EFORMAT ? CLV_EINVAL : status, "%s:%lld: %s", path, (long long)number,
                            why.message);
        line = stop + 1;
    }
    return CLV_OK;
}

static clv_status read_fasta(clv_sequences *s, char *text, size_t size, const char *path, clv_error *err)
{
    clv_fasta_reader f = clv_fasta_reader_new(text, size);
    clv_fasta_record r;
    for (;;) {
        clv_error why = {0};
        clv_status status = clv_fasta_reader_next(&r, &f, &why);
        if (status != CLV_OK)
            return clv_fail(err, status, "%s:%lld: %s", path, (long long)f.line, why.message);
        if (!r.name)
            return CLV_OK;
        CLV_TRY(add(s, r.name, r.name_size, r.size, err));
        memcpy(s->item[s->n - 1].text, r.residues, r.size);
    }
}

/* ---- what fits ---- */

/* Its tokens, and which of them are its own: those that stand there without the tokenizer's additions. */
static clv_status encode_one(clv_sequence *s, const clv_tokenizer *tokenizer, clv_error *err)
{
    int64_t *ids;
    CLV_TRY(clv_tokenizer_encode(tokenizer, s->text, strlen(s->text), true, &s->ids, &s->n, err));
    s->whole = s->n;
    CLV_TRY(clv_tokenizer_encode(tokenizer, s->text, strlen(s->text), false, &ids, &s->own, err));
    while (s->own > 0 && s->first + s->own < s->n && memcmp(s->ids + s->first, ids, (size_t)s->own * sizeof *ids) != 0)
        s->first++;
    free(ids);
    return CLV_OK;
}

/* Takes own tokens off the end until `most` are left, if there are as many. */
static void cut(clv_sequence *s, int64_t most)
{
    int64_t added = s->n - s->own, behind = added - s->first, kept = most - added;
    if (kept < 1)
        return;
    memmove(s->ids + s->first + kept, s->ids + s->first + s->own, (size_t)behind * sizeof *s->ids);
    s->n = most;
    s->own = kept;
}

static bool fits(const clv_sequences *all, const clv_sequence *s)
{
    return s->n >= 1 && s->n <= all->most && s->own >= all->min_content_tokens;
}

/* What is said of a sequence behind its number of tokens. */
static const char *of_its_own(const clv_sequence *s)
{
    return s->n > 0 && s->own == 0 ? ", none of them its own" : "";
}

/* Keeps what fits in item, moves the others to left_out. */
static clv_status leave_out(clv_sequences *s, clv_error *err)
{
    int64_t n = 0;
    size_t all = (size_t)s->n;
    s->left_out = all <= PTRDIFF_MAX / sizeof *s->left_out ? calloc(all, sizeof *s->left_out) : NULL;
    if (!s->left_out)
        return clv_fail_memory(err, "sequences", all * sizeof *s->left_out);
    for (int64_t i = 0; i < s->n; i++) {
        *(fits(s, &s->item[i]) ? &s->item[n++] : &s->left_out[s->n_skipped++]) = s->item[i];
    }
    s->n = n;
    return CLV_OK;
}

static clv_status encode(clv_sequences *all, const char *path, const clv_tokenizer *tokenizer, clv_too_long how,
                         clv_error *err)
{
    for (int64_t i = 0; i < all->n; i++) {
        clv_sequence *s = &all->item[i];
        CLV_TRY(encode_one(s, tokenizer, err));
        if (how == CLV_TOO_LONG_ERROR && !fits(all, s))
            return clv_fail(err, CLV_EINVAL, "%s: %.64s: %lld tokens; the model takes 1 to %lld%s", path, s->name,
                            (long long)s->n, (long long)all->most, of_its_own(s));
        if (how == CLV_TOO_LONG_TRUNCATE && s->n > all->most)
            cut(s, all->most);
    }
    return leave_out(all, err);
}

static clv_status check_options(const clv_sequences_options *o, clv_error *err)
{
    if (o->too_long == CLV_TOO_LONG_ERROR || o->too_long == CLV_TOO_LONG_SKIP || o->too_long == CLV_TOO_LONG_TRUNCATE)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "too_long %d of sequences; valid: those of clv_too_long", (int)o->too_long);
}

/* A text that is used as strings holds no zero byte. */
static clv_status check_zeros(const char *text, size_t size, const char *path, clv_error *err)
{
    const char *zero = memchr(text, '\0', size);
    return zero ? clv_fail(err, CLV_EINVAL, "%s: byte %lld is 0; a text holds none", path, (long long)(zero - text))
                : CLV_OK;
}

/* The rest of a file of text, which is closed. strings: it holds no zero byte. */
static clv_status read_rest(char **out, size_t *size, clv_text_file *file, const char *path, bool strings,
                            clv_error *err)
{
    char *text = NULL;
    clv_status status = clv_text_file_read_all(file, &text, size, FILE_LIMIT, err);
    if (status == CLV_OK && strings)
        status = check_zeros(text, *size, clv_text_file_name(path), err);
    if (status == CLV_OK)
        *out = text;
    else
        free(text);
    clv_text_file_close(file);
    return status;
}

/* What sequences are read of: plain text is lines of it. */
static clv_status read_sequences(char **out, size_t *size, clv_text_format *form, const char *path, clv_error *err)
{
    clv_text_file *file;
    CLV_TRY(clv_text_file_open(&file, path, err));
    *form = clv_text_file_format(file);
    if (*form == CLV_TEXT_TABLE && clv_text_file_check(file, err) != CLV_OK) {
        clv_text_file_close(file);
        return CLV_EINVAL;
    }
    if (*form == CLV_TEXT_PLAIN)
        clv_text_file_set_raw(file, true);
    return read_rest(out, size, file, path, true, err);
}

clv_status clv_sequences_load(clv_sequences *out, const char *path, const clv_tokenizer *tokenizer, int64_t most,
                              const clv_sequences_options *options, clv_error *err)
{
    char *text;
    size_t size;
    clv_text_format form;
    *out = (clv_sequences){.most = most, .min_content_tokens = options->min_content_tokens};
    CLV_TRY(check_options(options, err));
    CLV_TRY(read_sequences(&text, &size, &form, path, err));
    out->fasta = form == CLV_TEXT_FASTA;
    path = clv_text_file_name(path);
    bool json = form == CLV_TEXT_JSON_LINES || form == CLV_TEXT_JSON_ARRAY;
    clv_status status =
        out->fasta ? read_fasta(out, text, size, path, err) : read_lines(out, text, size, json, path, err);
    free(text);
    if (status == CLV_OK && out->n == 0)
        status = clv_fail(err, CLV_EINVAL, "%s: no sequence in it", path);
    if (status == CLV_OK)
        status = encode(out, path, tokenizer, options->too_long, err);
    if (status != CLV_OK)
        clv_sequences_reset(out);
    return status;
}

static clv_status take_texts(clv_sequences *out, const char *const *texts, const char *const *names, int64_t n,
                             clv_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)i + 1);
        const char *name = names ? names[i] : number;
        CLV_TRY(clv_require(texts[i] && name, "clv_sequences_from_texts", "n texts, and n names or none", err));
        CLV_TRY(add(out, name, strlen(name), strlen(texts[i]), err));
        memcpy(out->item[out->n - 1].text, texts[i], strlen(texts[i]));
    }
    return CLV_OK;
}

/* What both ways of making them begin with. */
static clv_status begin(clv_sequences **out, const clv_tokenizer **tokenizer, clv_sequences_options *taken,
                        const clv_model *model, const clv_sequences_options *options, const char *call, clv_error *err)
{
    CLV_TRY(clv_options_copy_in(taken, sizeof *taken, sizeof *taken, options, call, err));
    CLV_TRY(check_options(taken, err));
    CLV_TRY(clv_model_tokenizer(tokenizer, model, err));
    *out = calloc(1, sizeof **out);
    return *out ? CLV_OK : clv_fail_memory(err, "sequences", sizeof **out);
}

/* That the model has a row for each token of those that are kept. */
static clv_status check_tokens(const clv_sequences *s, const clv_model *model, const clv_tokenizer *tokenizer,
                               const char *path, clv_error *err)
{
    char where[256];
    for (int64_t i = 0; i < s->n; i++) {
        snprintf(where, sizeof where, "%.150s: %.64s", path, s->item[i].name);
        CLV_TRY(clv_model_check_tokens(model, tokenizer, s->item[i].ids, s->item[i].n, where, err));
    }
    return CLV_OK;
}

clv_status clv_sequences_read(clv_sequences **out, const clv_model *model, const char *path,
                              const clv_sequences_options *options, clv_error *err)
{
    static const char call[] = "clv_sequences_read";
    clv_sequences_options o;
    const clv_tokenizer *tokenizer;
    clv_sequences *s;
    CLV_TRY(clv_require(out && model && path, call, "out, a model and a path", err));
    CLV_TRY(begin(&s, &tokenizer, &o, model, options, call, err));
    clv_status status = clv_sequences_load(s, path, tokenizer, model->config.max_positions, &o, err);
    if (status == CLV_OK)
        status = check_tokens(s, model, tokenizer, path, err);
    if (status == CLV_OK)
        *out = s;
    else
        clv_sequences_free(s);
    return status;
}

clv_status clv_sequences_from_texts(clv_sequences **out, const clv_model *model, const char *const *texts,
                                    const char *const *names, int64_t n, const clv_sequences_options *options,
                                    clv_error *err)
{
    static const char call[] = "clv_sequences_from_texts";
    clv_sequences_options o;
    const clv_tokenizer *tokenizer;
    clv_sequences *s;
    CLV_TRY(clv_require(out && model && texts, call, "out, a model, and texts", err));
    CLV_TRY(clv_require_count(n, 1, call, "texts", err));
    CLV_TRY(begin(&s, &tokenizer, &o, model, options, call, err));
    s->most = model->config.max_positions;
    s->min_content_tokens = o.min_content_tokens;
    clv_status status = take_texts(s, texts, names, n, err);
    if (status == CLV_OK)
        status = encode(s, "texts", tokenizer, o.too_long, err);
    if (status == CLV_OK)
        status = check_tokens(s, model, tokenizer, "texts", err);
    if (status == CLV_OK)
        *out = s;
    else
        clv_sequences_free(s);
    return status;
}

void clv_sequences_free(clv_sequences *s)
{
    if (!s)
        return;
    clv_sequences_reset(s);
    free(s);
}

/* ---- what they are ---- */

int64_t clv_sequences_count(const clv_sequences *s)
{
    return s ? s->n : 0;
}

int64_t clv_sequences_skipped_count(const clv_sequences *s)
{
    return s ? s->n_skipped : 0;
}

int64_t clv_sequences_max_tokens(const clv_sequences *s)
{
    return s ? s->most : 0;
}

int clv_sequences_is_fasta(const clv_sequences *s)
{
    return s && s->fasta;
}

static clv_status describe(clv_sequence_info *out, const clv_sequence *list, int64_t n, int64_t i, const char *call,
                           clv_error *err)
{
    CLV_TRY(clv_require(out != NULL, call, "out", err));
    if (i < 0 || i >= n)
        return clv_fail(err, CLV_EINVAL, "%s: sequence %lld of %lld", call, (long long)i, (long long)n);
    const clv_sequence *s = &list[i];
    clv_sequence_info info = {.name = s->name, .text = s->text, .tokens = s->n, .own = s->own, .whole = s->whole};
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, call, err);
}

clv_status clv_sequences_at(const clv_sequences *s, int64_t i, clv_sequence_info *out, clv_error *err)
{
    return describe(out, s ? s->item : NULL, clv_sequences_count(s), i, "clv_sequences_at", err);
}

clv_status clv_sequences_skipped_at(const clv_sequences *s, int64_t i, clv_sequence_info *out, clv_error *err)
{
    return describe(out, s ? s->left_out : NULL, clv_sequences_skipped_count(s), i, "clv_sequences_skipped_at", err);
}

clv_status clv_text_read(char **out, size_t *size, const char *path, int zeros, clv_error *err)
{
    CLV_TRY(clv_require(out && size && path, "clv_text_read", "out, where its size goes, and a path", err));
    clv_text_file *file;
    CLV_TRY(clv_text_file_open(&file, path, err));
    clv_text_file_set_raw(file, !zeros);
    return read_rest(out, size, file, path, !zeros, err);
}
