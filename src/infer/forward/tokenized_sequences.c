/* tokenized_sequences.c - clv_sequences: reads FASTA, JSON lines or text and tokenizes; rejects, skips or truncates
 * long ones.
 */
#include "infer/forward/tokenized_sequences.h"

#include <stdio.h>

#include "base/memory/grow.h"
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
    free_list(s->skipped, s->n_skipped);
    *s = (clv_sequences){0};
}

/* ---- reading ---- */

/* name NULL: the number of the sequence, from 1. */
static clv_status add(clv_sequences *s, const char *name, size_t name_size, const char *text, size_t text_size,
                      clv_error *err)
{
    char number[32];
    CLV_TRY(clv_grow(&s->item, &s->capacity, s->n + 1, sizeof *s->item, "sequences", err));
    if (!name)
        name_size = (size_t)snprintf(number, sizeof number, "%lld", (long long)s->n + 1);
    clv_sequence *added = &s->item[s->n++];
    *added = (clv_sequence){.name = strndup(name ? name : number, name_size), .text = calloc(text_size + 1, 1)};
    if (!added->name || !added->text)
        return clv_fail_memory(err, "a sequence", text_size);
    memcpy(added->text, text, text_size);
    return CLV_OK;
}

/* Adds the "text" of a line of JSON. */
static clv_status add_json(clv_sequences *s, const char *line, size_t size, clv_error *err)
{
    json_auto_t *object = NULL;
    const char *text;
    if (strspn(line, " \t\r\n") >= size)
        return CLV_OK;
    CLV_TRY(clv_json_parse(&object, line, size, CLV_JSON_KEYS_LAST_WINS, "the line", err));
    CLV_TRY(clv_json_get_string(&text, object, "text", CLV_JSON_REQUIRED, "the line", err));
    return add(s, NULL, 0, text, strlen(text), err);
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
        clv_status status = json ? add_json(s, line, length, &why) : add(s, NULL, 0, line, length, &why);
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
        CLV_TRY(add(s, r.name, r.name_size, r.residues, r.size, err));
    }
}

/* ---- tokenizing ---- */

/* Finds the content tokens: encoded without special tokens, they are a part of those with special tokens. */
static clv_status encode_one(clv_sequence *s, const clv_tokenizer *tokenizer, clv_error *err)
{
    int64_t *ids;
    CLV_TRY(clv_tokenizer_encode(tokenizer, s->text, strlen(s->text), true, &s->ids, &s->n, err));
    s->n_untruncated = s->n;
    CLV_TRY(clv_tokenizer_encode(tokenizer, s->text, strlen(s->text), false, &ids, &s->n_content, err));
    while (s->n_content > 0 && s->content_begin + s->n_content < s->n &&
           memcmp(s->ids + s->content_begin, ids, (size_t)s->n_content * sizeof *ids) != 0)
        s->content_begin++;
    free(ids);
    return CLV_OK;
}

/* Drops the last content tokens of a sequence longer than `most`, if at least one remains. */
static void truncate_content(clv_sequence *s, int64_t most)
{
    int64_t added = s->n - s->n_content, behind = added - s->content_begin, kept = most - added;
    if (kept < 1)
        return;
    memmove(s->ids + s->content_begin + kept, s->ids + s->content_begin + s->n_content,
            (size_t)behind * sizeof *s->ids);
    s->n = most;
    s->n_content = kept;
}

static bool fits(const clv_sequences *all, const clv_sequence *s)
{
    return s->n >= 1 && s->n <= all->max_tokens && s->n_content >= all->min_content_tokens;
}

static const char *content_note(const clv_sequence *s)
{
    return s->n > 0 && s->n_content == 0 ? ", none of them its own" : "";
}

/* Moves the sequences that do not fit to `skipped`. */
static clv_status skip_unfit(clv_sequences *s, clv_error *err)
{
    int64_t n = 0;
    size_t all = (size_t)s->n;
    s->skipped = all <= PTRDIFF_MAX / sizeof *s->skipped ? calloc(all, sizeof *s->skipped) : NULL;
    if (!s->skipped)
        return clv_fail_memory(err, "sequences", all * sizeof *s->skipped);
    for (int64_t i = 0; i < s->n; i++) {
        *(fits(s, &s->item[i]) ? &s->item[n++] : &s->skipped[s->n_skipped++]) = s->item[i];
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
                            (long long)s->n, (long long)all->max_tokens, content_note(s));
        if (how == CLV_TOO_LONG_TRUNCATE && s->n > all->max_tokens)
            truncate_content(s, all->max_tokens);
    }
    return skip_unfit(all, err);
}

static clv_status check_options(const clv_sequences_options *o, clv_error *err)
{
    if (o->too_long == CLV_TOO_LONG_ERROR || o->too_long == CLV_TOO_LONG_SKIP || o->too_long == CLV_TOO_LONG_TRUNCATE)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "too_long %d of sequences; valid: those of clv_too_long", (int)o->too_long);
}

static clv_status check_zeros(const char *text, size_t size, const char *path, clv_error *err)
{
    const char *zero = memchr(text, '\0', size);
    return zero ? clv_fail(err, CLV_EINVAL, "%s: byte %lld is 0; a text holds none", path, (long long)(zero - text))
                : CLV_OK;
}

/* Reads the rest of a file and closes it. strings: zero bytes are an error. */
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

/* Reads a file of sequences, and detects its format. */
static clv_status read_sequences(char **out, size_t *size, clv_text_format *format, const char *path, clv_error *err)
{
    clv_text_file *file;
    CLV_TRY(clv_text_file_open(&file, path, err));
    *format = clv_text_file_format(file);
    if (*format == CLV_TEXT_TABLE && clv_text_file_check(file, err) != CLV_OK) {
        clv_text_file_close(file);
        return CLV_EINVAL;
    }
    if (*format == CLV_TEXT_PLAIN)
        clv_text_file_set_raw(file, true);
    return read_rest(out, size, file, path, true, err);
}

clv_status clv_sequences_load(clv_sequences *out, const char *path, const clv_tokenizer *tokenizer, int64_t most,
                              const clv_sequences_options *options, clv_error *err)
{
    CLV_FREED char *text = NULL;
    size_t size;
    clv_text_format format;
    *out = (clv_sequences){.max_tokens = most, .min_content_tokens = options->min_content_tokens};
    CLV_TRY(check_options(options, err));
    CLV_TRY(read_sequences(&text, &size, &format, path, err));
    out->fasta = format == CLV_TEXT_FASTA;
    path = clv_text_file_name(path);
    bool json = format == CLV_TEXT_JSON_LINES || format == CLV_TEXT_JSON_ARRAY;
    clv_status status =
        out->fasta ? read_fasta(out, text, size, path, err) : read_lines(out, text, size, json, path, err);
    if (status == CLV_OK && out->n == 0)
        status = clv_fail(err, CLV_EINVAL, "%s: no sequence in it", path);
    if (status == CLV_OK)
        status = encode(out, path, tokenizer, options->too_long, err);
    if (status != CLV_OK)
        clv_sequences_reset(out);
    return status;
}

static clv_status add_texts(clv_sequences *out, const char *const *texts, const char *const *names, int64_t n,
                            clv_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        CLV_TRY(clv_require(texts[i] && (!names || names[i]), "clv_sequences_from_texts",
                            "n texts, and n names or none", err));
        CLV_TRY(add(out, names ? names[i] : NULL, names ? strlen(names[i]) : 0, texts[i], strlen(texts[i]), err));
    }
    return CLV_OK;
}

static clv_status begin(clv_sequences **out, const clv_tokenizer **tokenizer, clv_sequences_options *taken,
                        const clv_model *model, const clv_sequences_options *options, const char *call, clv_error *err)
{
    CLV_TRY(clv_options_copy_in(taken, sizeof *taken, sizeof *taken, options, call, err));
    CLV_TRY(check_options(taken, err));
    CLV_TRY(clv_model_tokenizer(tokenizer, model, err));
    *out = calloc(1, sizeof **out);
    return *out ? CLV_OK : clv_fail_memory(err, "sequences", sizeof **out);
}

/* Every token of the sequences that fit must be in the vocabulary. */
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
    clv_sequences_options o;
    const clv_tokenizer *tokenizer;
    clv_sequences *s;
    CLV_TRY(clv_require(out && model && path, __func__, "out, a model and a path", err));
    CLV_TRY(begin(&s, &tokenizer, &o, model, options, __func__, err));
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
    clv_sequences_options o;
    const clv_tokenizer *tokenizer;
    clv_sequences *s;
    CLV_TRY(clv_require(out && model && texts, __func__, "out, a model, and texts", err));
    CLV_TRY(clv_require_count(n, 1, __func__, "texts", err));
    CLV_TRY(begin(&s, &tokenizer, &o, model, options, __func__, err));
    s->max_tokens = model->config.max_positions;
    s->min_content_tokens = o.min_content_tokens;
    clv_status status = add_texts(s, texts, names, n, err);
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

/* ---- access ---- */

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
    return s ? s->max_tokens : 0;
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
    clv_sequence_info info = {.name = s->name,
                              .text = s->text,
                              .tokens = s->n,
                              .content_tokens = s->n_content,
                              .untruncated_tokens = s->n_untruncated};
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, call, err);
}

clv_status clv_sequences_at(const clv_sequences *s, int64_t i, clv_sequence_info *out, clv_error *err)
{
    return describe(out, s ? s->item : NULL, clv_sequences_count(s), i, __func__, err);
}

clv_status clv_sequences_skipped_at(const clv_sequences *s, int64_t i, clv_sequence_info *out, clv_error *err)
{
    return describe(out, s ? s->skipped : NULL, clv_sequences_skipped_count(s), i, __func__, err);
}

clv_status clv_text_read(char **out, size_t *size, const char *path, int raw, clv_error *err)
{
    CLV_TRY(clv_require(out && size && path, __func__, "out, where its size goes, and a path", err));
    clv_text_file *file;
    CLV_TRY(clv_text_file_open(&file, path, err));
    clv_text_file_set_raw(file, !raw);
    return read_rest(out, size, file, path, !raw, err);
}
