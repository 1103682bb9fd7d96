/* sequences.c - see sequences.h. */
#include "cli/sequences.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"
#include "cli/say.h"
#include "io/file.h"

enum { FILE_LIMIT = 1 << 30, MIN_SEQ = 16 };

const char clv_residues[] = "ACDEFGHIKLMNPQRSTVWYXBZUO.-";

static void free_list(clv_sequence *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        free(list[i].name);
        free(list[i].text);
        free(list[i].ids);
    }
    free(list);
}

void clv_sequences_free(clv_sequences *s)
{
    free_list(s->item, s->n);
    free_list(s->left_out, s->n_left_out);
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

static clv_status read_lines(clv_sequences *s, char *text, size_t size, clv_error *err)
{
    char *end = text + size;
    for (char *line = text; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line)), number[32];
        stop = stop ? stop : end;
        size_t length = (size_t)(stop - line);
        length -= length > 0 && line[length - 1] == '\r';
        snprintf(number, sizeof number, "%lld", (long long)s->n + 1);
        CLV_TRY(add(s, number, strlen(number), length, err));
        memcpy(s->item[s->n - 1].text, line, length);
        line = stop + 1;
    }
    return CLV_OK;
}

/* Appends the residues of a line, in upper case (lower case marks repeats); blanks are nothing. */
static clv_status add_residues(clv_sequence *to, size_t *used, const char *line, size_t length, const char *path,
                               clv_error *err)
{
    for (size_t i = 0; i < length; i++) {
        char c = (char)toupper((unsigned char)line[i]);
        if (isspace((unsigned char)c))
            continue;
        if (c == '\0' || !strchr(clv_residues, c))
            return clv_fail(err, CLV_EINVAL, "%s: %.64s: '%c' is no residue; valid: %s", path, to->name,
                            isprint((unsigned char)c) ? c : '?', clv_residues);
        to->text[(*used)++] = c;
    }
    return CLV_OK;
}

static clv_status read_fasta(clv_sequences *s, const char *text, size_t size, const char *path, clv_error *err)
{
    const char *end = text + size;
    size_t used = 0;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        if (*line == '>') {
            size_t name = strcspn(line + 1, " \t\r\n");
            const char *next = memchr(stop, '>', (size_t)(end - stop)); /* no later than where the record ends */
            CLV_TRY(add(s, line + 1, name, (size_t)((next ? next : end) - stop), err));
            used = 0;
        } else if (s->n == 0) {
            return clv_fail(err, CLV_EINVAL, "%s: no FASTA: the first line must begin with '>'", path);
        } else {
            CLV_TRY(add_residues(&s->item[s->n - 1], &used, line, (size_t)(stop - line), path, err));
        }
        line = stop + 1;
    }
    return CLV_OK;
}

static bool is_fasta(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".fasta") == 0 || strcmp(dot, ".fa") == 0 || strcmp(dot, ".faa") == 0);
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
    return s->n >= 1 && s->n <= all->most && s->own >= all->least_own;
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
        *(fits(s, &s->item[i]) ? &s->item[n++] : &s->left_out[s->n_left_out++]) = s->item[i];
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
        if (how == CLV_TOO_LONG_REFUSED && !fits(all, s))
            return clv_fail(err, CLV_EINVAL, "%s: %.64s: %lld tokens; the model takes 1 to %lld%s", path, s->name,
                            (long long)s->n, (long long)all->most, of_its_own(s));
        if (how == CLV_TOO_LONG_CUT && s->n > all->most)
            cut(s, all->most);
    }
    return leave_out(all, err);
}

clv_status clv_sequences_read(clv_sequences *out, const char *path, const clv_tokenizer *tokenizer,
                              const clv_model_info *model, clv_too_long how, int64_t least_own, clv_error *err)
{
    char *text;
    size_t size;
    *out = (clv_sequences){.fasta = is_fasta(path), .most = model->max_positions, .least_own = least_own};
    CLV_TRY(clv_file_read_text(&text, &size, path, FILE_LIMIT, err));
    clv_status status = out->fasta ? read_fasta(out, text, size, path, err) : read_lines(out, text, size, err);
    free(text);
    if (status == CLV_OK && out->n == 0)
        status = clv_fail(err, CLV_EINVAL, "%s: no sequence in it", path);
    if (status == CLV_OK)
        status = encode(out, path, tokenizer, how, err);
    if (status != CLV_OK)
        clv_sequences_free(out);
    return status;
}

bool clv_sequences_report(const clv_sequences *s, const char *command)
{
    long long all = s->n + s->n_left_out, cuts = 0;
    for (int64_t i = 0; i < s->n; i++)
        cuts += s->item[i].whole > s->item[i].n;
    if (cuts > 0)
        clv_say("%s: note: %lld of %lld were cut to %lld tokens:", command, cuts, all, (long long)s->most);
    for (int64_t i = 0; i < s->n; i++)
        if (s->item[i].whole > s->item[i].n)
            clv_say("  %s: %lld tokens", s->item[i].name, (long long)s->item[i].whole);
    if (s->n_left_out > 0)
        clv_say("%s: %lld of %lld do not fit and were left out (the model takes 1 to %lld tokens; --truncate cuts to "
                "that):",
                command, (long long)s->n_left_out, all, (long long)s->most);
    for (int64_t i = 0; i < s->n_left_out; i++)
        clv_say("  %s: %lld tokens%s", s->left_out[i].name, (long long)s->left_out[i].n, of_its_own(&s->left_out[i]));
    return s->n_left_out == 0;
}

/* ---- batches ---- */

typedef struct by_length {
    int64_t n, index;
} by_length;

static int longest_first(const void *a, const void *b)
{
    const by_length *x = a, *y = b;
    int longer = (x->n < y->n) - (x->n > y->n);
    return longer ? longer : (x->index > y->index) - (x->index < y->index);
}

clv_status clv_batches_begin(clv_batches *out, const clv_sequences *all, int64_t tokens, int64_t most, clv_error *err)
{
    by_length *lengths = calloc((size_t)all->n + 1, sizeof *lengths);
    *out = (clv_batches){.all = all, .tokens = tokens, .most = most};
    int64_t room = tokens > most ? tokens : most;
    out->order = calloc((size_t)all->n + 1, sizeof *out->order);
    out->batch.index = calloc((size_t)room, sizeof *out->batch.index);
    out->batch.ids = calloc((size_t)room, sizeof *out->batch.ids);
    out->batch.mask = calloc((size_t)room, 1);
    if (!lengths || !out->order || !out->batch.index || !out->batch.ids || !out->batch.mask) {
        free(lengths);
        clv_batches_end(out);
        return clv_fail_memory(err, "batches", (size_t)room * sizeof *out->batch.ids);
    }
    for (int64_t i = 0; i < all->n; i++)
        lengths[i] = (by_length){all->item[i].n, i};
    qsort(lengths, (size_t)all->n, sizeof *lengths, longest_first);
    for (int64_t i = 0; i < all->n; i++)
        out->order[i] = lengths[i].index;
    free(lengths);
    return CLV_OK;
}

/* Few shapes, little padding: eight lengths between a power of two and the next. */
static int64_t padded(int64_t n, int64_t most)
{
    int64_t step = 1;
    while (16 * step < n)
        step *= 2;
    n = (n + step - 1) / step * step;
    n = n < MIN_SEQ ? MIN_SEQ : n;
    return n < most ? n : most;
}

bool clv_batches_next(clv_batches *b, int64_t pad)
{
    clv_batch *batch = &b->batch;
    if (b->next == b->all->n)
        return false;
    batch->seq = padded(b->all->item[b->order[b->next]].n, b->most);
    batch->rows = b->tokens / batch->seq > 0 ? b->tokens / batch->seq : 1;
    batch->rows = batch->rows < b->all->n ? batch->rows : b->all->n;
    for (int64_t r = 0; r < batch->rows; r++) {
        bool here = b->next < b->all->n && padded(b->all->item[b->order[b->next]].n, b->most) == batch->seq;
        batch->index[r] = here ? b->order[b->next++] : -1;
        const clv_sequence *s = &b->all->item[here ? batch->index[r] : batch->index[0]];
        for (int64_t i = 0; i < batch->seq; i++) {
            batch->ids[r * batch->seq + i] = (int32_t)(i < s->n ? s->ids[i] : pad);
            batch->mask[r * batch->seq + i] = i < s->n;
        }
    }
    return true;
}

void clv_batches_end(clv_batches *b)
{
    free(b->order);
    free(b->batch.index);
    free(b->batch.ids);
    free(b->batch.mask);
    *b = (clv_batches){0};
}
