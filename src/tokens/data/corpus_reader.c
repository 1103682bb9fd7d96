/* corpus_reader.c - reads text files in chunks that end at document or line boundaries. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokens/data/corpus_pipeline.h"

enum { LINES_CHUNK = 1 << 20, MOST = 1 << 30, GROW = 1 << 20 };

static clv_status open_next(clv_corpus_reader *c, clv_error *err)
{
    CLV_TRY(clv_text_file_open(&c->file, c->paths[c->i++], err));
    c->line = 1;
    c->ahead_size = 0;
    c->at = 0;
    c->first = true;
    c->form = clv_text_file_format(c->file);
    CLV_TRY(clv_text_file_check(c->file, err));
    if (c->chat && c->form != CLV_TEXT_JSON_LINES && c->form != CLV_TEXT_JSON_ARRAY)
        return clv_fail(err, CLV_EINVAL, "%s: chats are lines of JSON; valid: a .jsonl file",
                        clv_text_file_name(c->paths[c->i - 1]));
    return CLV_OK;
}

/* Whether a piece may end before text[at]: behind a line; before a record; of a text behind a line that has something,
 * before one that does. */
static bool may_end(const char *text, size_t at, clv_text_format form)
{
    if (text[at - 1] != '\n')
        return false;
    if (form == CLV_TEXT_FASTA)
        return text[at] == '>';
    return form != CLV_TEXT_PLAIN ||
           (at >= 2 && !isspace((unsigned char)text[at - 2]) && !isspace((unsigned char)text[at]));
}

/* Keeps what is read behind text[at] for the next piece. */
static clv_status keep(clv_corpus_reader *c, const char *text, size_t at, size_t size, clv_error *err)
{
    char *kept = malloc(size - at + 1);
    if (!kept)
        return clv_fail_memory(err, "a piece of text", size - at);
    memcpy(kept, text + at, size - at);
    free(c->ahead);
    c->ahead = kept;
    c->ahead_size = size - at;
    return CLV_OK;
}

/* Reads on from the cursor until a piece may end, or the file does. */
static clv_status read_chunk(clv_corpus_chunk *p, clv_corpus_reader *c, clv_error *err)
{
    size_t least = c->form == CLV_TEXT_PLAIN ? CLV_CORPUS_CHUNK_BYTES : LINES_CHUNK, at = least, n = c->ahead_size;
    size_t room = (least > n ? least : n) + GROW, got;
    p->text = malloc(room + 1);
    if (!p->text)
        return clv_fail_memory(err, p->path, room);
    memcpy(p->text, c->ahead ? c->ahead : "", n);
    c->ahead_size = 0;
    for (;;) {
        CLV_TRY(clv_text_file_read(c->file, p->text + n, room - n, &got, err));
        p->last = got < room - n;
        n += got;
        while (at < n && !may_end(p->text, at, c->form))
            at++;
        if (at < n || p->last)
            break;
        room *= 2;
        char *grown = room <= MOST ? realloc(p->text, room + 1) : NULL;
        if (room > MOST)
            return clv_fail(err, CLV_ELIMIT, "%s:%lld: no %s ends in the %d bytes from here on", p->path,
                            (long long)p->line, c->form == CLV_TEXT_FASTA ? "record" : "line", MOST);
        if (!grown)
            return clv_fail_memory(err, p->path, room);
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

/* The next piece of the file that is open. */
static clv_status next_chunk(clv_corpus_chunk *p, clv_corpus_reader *c, clv_error *err)
{
    CLV_TRY(read_chunk(p, c, err));
    c->first = false;
    c->line += count_lines(p->text, p->size);
    p->read = clv_text_file_position(c->file) - c->at;
    c->at += p->read;
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
        .path = clv_text_file_name(c->paths[c->i - 1]), .form = c->form, .first = c->first, .line = c->line};
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
