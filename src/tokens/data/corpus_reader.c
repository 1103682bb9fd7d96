/* corpus_reader.c - reads text files in chunks that end at document or line boundaries. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokens/data/corpus_pipeline.h"

enum { MIN_LINES_CHUNK = 1 << 20, LARGEST_CHUNK = 1 << 30, READ_AHEAD = 1 << 20 };

static clv_status open_next(clv_corpus_reader *c, clv_error *err)
{
    CLV_TRY(clv_text_file_open(&c->file, c->paths[c->i++], err));
    c->line = 1;
    c->ahead_size = 0;
    c->reported = 0;
    c->first = true;
    c->format = clv_text_file_format(c->file);
    CLV_TRY(clv_text_file_check(c->file, err));
    if (c->chat && c->format != CLV_TEXT_JSON_LINES && c->format != CLV_TEXT_JSON_ARRAY)
        return clv_fail(err, CLV_EINVAL, "%s: chats must be JSON lines; valid: a .jsonl file",
                        clv_text_file_name(c->paths[c->i - 1]));
    return CLV_OK;
}

/* Whether a chunk may end before text[at]: at the end of a line; of FASTA before a record; of plain text between two
 * lines that are not blank. */
static bool may_end(const char *text, size_t at, clv_text_format format)
{
    if (text[at - 1] != '\n')
        return false;
    if (format == CLV_TEXT_FASTA)
        return text[at] == '>';
    return format != CLV_TEXT_PLAIN ||
           (at >= 2 && !isspace((unsigned char)text[at - 2]) && !isspace((unsigned char)text[at]));
}

/* Keeps text[at] to text[size] for the next chunk. */
static clv_status keep(clv_corpus_reader *c, const char *text, size_t at, size_t size, clv_error *err)
{
    char *rest = malloc(size - at + 1);
    if (!rest)
        return clv_fail_memory(err, "a chunk of text", size - at);
    memcpy(rest, text + at, size - at);
    free(c->ahead);
    c->ahead = rest;
    c->ahead_size = size - at;
    return CLV_OK;
}

/* Reads until a chunk may end, or the file ends. */
static clv_status read_chunk(clv_corpus_chunk *p, clv_corpus_reader *c, clv_error *err)
{
    size_t least = c->format == CLV_TEXT_PLAIN ? CLV_CORPUS_CHUNK_BYTES : MIN_LINES_CHUNK, at = least,
           n = c->ahead_size;
    size_t capacity = (least > n ? least : n) + READ_AHEAD, got;
    p->text = malloc(capacity + 1);
    if (!p->text)
        return clv_fail_memory(err, p->path, capacity);
    memcpy(p->text, c->ahead ? c->ahead : "", n);
    c->ahead_size = 0;
    for (;;) {
        CLV_TRY(clv_text_file_read(c->file, p->text + n, capacity - n, &got, err));
        p->last = got < capacity - n;
        n += got;
        while (at < n && !may_end(p->text, at, c->format))
            at++;
        if (at < n || p->last)
            break;
        capacity *= 2;
        char *grown = capacity <= LARGEST_CHUNK ? realloc(p->text, capacity + 1) : NULL;
        if (capacity > LARGEST_CHUNK)
            return clv_fail(err, CLV_ELIMIT, "%s:%lld: the %s is longer than %d bytes", p->path, (long long)p->line,
                            c->format == CLV_TEXT_FASTA ? "record" : "line", LARGEST_CHUNK);
        if (!grown)
            return clv_fail_memory(err, p->path, capacity);
        p->text = grown;
    }
    p->size = at < n ? at : n;
    p->last = p->last && at >= n;
    CLV_TRY(p->last ? CLV_OK : keep(c, p->text, p->size, n, err));
    p->text[p->size] = '\0';
    return CLV_OK;
}

static int64_t count_lines(const char *text, size_t size)
{
    int64_t lines = 0;
    for (const char *at = text; (at = memchr(at, '\n', size - (size_t)(at - text))); at++)
        lines++;
    return lines;
}

static clv_status next_chunk(clv_corpus_chunk *p, clv_corpus_reader *c, clv_error *err)
{
    CLV_TRY(read_chunk(p, c, err));
    c->first = false;
    c->line += count_lines(p->text, p->size);
    p->read = clv_text_file_position(c->file) - c->reported;
    c->reported += p->read;
    if (p->first && p->last && p->size == 0)
        return clv_fail(err, CLV_EINVAL, "%s: empty, there is nothing to learn", p->path);
    if (p->last)
        clv_corpus_reader_close(c);
    return CLV_OK;
}

clv_status clv_corpus_reader_next(clv_corpus_chunk *out, clv_corpus_reader *c, clv_error *err)
{
    *out = (clv_corpus_chunk){0};
    if (!c->file && c->i == c->n)
        return CLV_OK;
    if (!c->file)
        CLV_TRY(open_next(c, err));
    clv_corpus_chunk p = {
        .path = clv_text_file_name(c->paths[c->i - 1]), .format = c->format, .first = c->first, .line = c->line};
    clv_status status = next_chunk(&p, c, err);
    if (status == CLV_OK)
        *out = p;
    else
        free(p.text);
    return status;
}

void clv_corpus_reader_close(clv_corpus_reader *c)
{
    clv_text_file_close(c->file);
    free(c->ahead);
    c->file = NULL;
    c->ahead = NULL;
}
