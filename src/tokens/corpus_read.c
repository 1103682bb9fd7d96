#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "io/file.h"
#include "tokens/corpus.h"
#include "tokens/fasta.h"

enum { LINES_PIECE = 1 << 20, MOST = 1 << 30, GROW = 1 << 20, COUNT = 1 << 16 };

clv_corpus_kind clv_corpus_kind_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".ndjson") == 0))
        return CLV_CORPUS_LINES;
    return clv_fasta_is(path) ? CLV_CORPUS_FASTA : CLV_CORPUS_TEXT;
}

static clv_status open_next(clv_corpus_cursor *c, clv_error *err)
{
    const char *path = c->paths[c->i];
    CLV_TRY(clv_file_open(&c->fd, &c->size, path, err));
    c->i++;
    c->offset = 0;
    c->kind = clv_corpus_kind_of(path);
    return c->size > 0 ? CLV_OK : clv_fail(err, CLV_EINVAL, "%s: empty, there is nothing to learn", path);
}

/* Whether a piece may end before text[at]: behind a line; before a record; of a text behind a line that has something,
 * before one that does. */
static bool may_end(const char *text, size_t at, clv_corpus_kind kind)
{
    if (text[at - 1] != '\n')
        return false;
    if (kind == CLV_CORPUS_FASTA)
        return text[at] == '>';
    return kind == CLV_CORPUS_LINES ||
           (at >= 2 && !isspace((unsigned char)text[at - 2]) && !isspace((unsigned char)text[at]));
}

/* Reads on from the cursor until a piece may end, or the file does. */
static clv_status read_piece(clv_corpus_piece *p, const clv_corpus_cursor *c, clv_error *err)
{
    size_t least = c->kind == CLV_CORPUS_TEXT ? CLV_CORPUS_PIECE : LINES_PIECE, at = least, there = 0;
    uint64_t rest = c->size - c->offset;
    for (;;) {
        size_t room = rest < there + least ? (size_t)rest : there + least;
        if (room > MOST)
            return clv_fail(err, CLV_ELIMIT, "%s: no %s ends in the %d bytes from %llu on", p->path,
                            c->kind == CLV_CORPUS_FASTA ? "record" : "line", MOST, (unsigned long long)c->offset);
        char *grown = realloc(p->text, room + 1);
        if (!grown)
            return clv_fail_memory(err, p->path, room + 1);
        p->text = grown;
        CLV_TRY(clv_file_read_at(c->fd, p->text + there, room - there, c->offset + there, p->path, err));
        there = room;
        while (at < there && !may_end(p->text, at, c->kind))
            at++;
        if (at < there || there == rest)
            break;
        least = GROW > there ? GROW : there; /* twice as much */
    }
    p->size = at < there ? at : there;
    p->text[p->size] = '\0';
    return CLV_OK;
}

clv_status clv_corpus_next(clv_corpus_piece *out, clv_corpus_cursor *c, clv_error *err)
{
    *out = (clv_corpus_piece){0};
    if (c->fd < 0 && c->i == c->n)
        return CLV_OK;
    if (c->fd < 0)
        CLV_TRY(open_next(c, err));
    clv_corpus_piece p = {.path = c->paths[c->i - 1], .kind = c->kind, .first = c->offset == 0, .offset = c->offset};
    clv_status status = read_piece(&p, c, err);
    if (status != CLV_OK) {
        free(p.text);
        return status;
    }
    c->offset += p.size;
    p.last = c->offset == c->size;
    if (p.last)
        clv_corpus_close(c);
    *out = p;
    return CLV_OK;
}

void clv_corpus_close(clv_corpus_cursor *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

int64_t clv_corpus_line(const char *path, uint64_t offset)
{
    char bytes[COUNT];
    uint64_t size;
    int64_t line = 1;
    int fd;
    if (clv_file_open(&fd, &size, path, NULL) != CLV_OK)
        return 0;
    for (uint64_t at = 0; at < offset && line > 0;) {
        size_t n = offset - at < COUNT ? (size_t)(offset - at) : COUNT;
        if (clv_file_read_at(fd, bytes, n, at, path, NULL) != CLV_OK)
            line = 0;
        for (size_t i = 0; i < n && line > 0; i++)
            line += bytes[i] == '\n';
        at += n;
    }
    close(fd);
    return line;
}
