/* text_file.c - text input: a file, pipe or stdin; gunzips, drops the BOM, normalizes line ends, detects the format. */
#include "io/files/text_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files/file_kind.h"
#include "io/files/gzip_reader.h"

/* ---- format by name ---- */

/* Whether a path, without ".gz", ends with one of these, ignoring case. */
static bool has_extension(const char *path, const char *const *ends)
{
    size_t size = strlen(path);
    if (size > 3 && strcasecmp(path + size - 3, ".gz") == 0)
        size -= 3;
    for (; *ends; ends++) {
        size_t n = strlen(*ends);
        if (size > n && strncasecmp(path + size - n, *ends, n) == 0)
            return true;
    }
    return false;
}

/* ---- format by content ---- */

static const char *skip_whitespace(const char *at, const char *end)
{
    while (at < end && *at != '\0' && strchr(" \t\r\n", *at))
        at++;
    return at;
}

static const char *line_end(const char *at, const char *end)
{
    while (at < end && *at != '\n' && *at != '\r')
        at++;
    return at;
}

/* An object, or an array of them. */
static bool is_json(char *first, const char *text, const char *end)
{
    const char *at = skip_whitespace(text, end), *next = at < end ? skip_whitespace(at + 1, end) : end;
    *first = at < end ? *at : '\0';
    return next < end && ((*first == '{' && (*next == '"' || *next == '}')) || (*first == '[' && *next == '{'));
}

/* Whether most lines, and at least two, are objects: the first line may be broken, or a comment. */
static bool is_json_lines(const char *text, const char *end)
{
    int64_t lines = 0, objects = 0;
    for (const char *at = skip_whitespace(text, end), *stop; at < end; at = skip_whitespace(stop, end)) {
        const char *next = skip_whitespace(at + 1, end);
        stop = line_end(at, end);
        lines++;
        objects += *at == '{' && next < stop && *next == '"' && (stop == end || stop[-1] == '}');
    }
    return objects >= 2 && 2 * objects > lines;
}

/* Whether the line after one with '>' is prose, as in a quotation: it begins with a letter beyond ASCII, or has blanks
 * between other than groups of capitals. */
static bool is_prose(const char *at, const char *end)
{
    bool blank = false, other = false;
    if (at < end && (unsigned char)*at >= 0x80)
        return true;
    while (end > at && end[-1] == ' ')
        end--;
    for (; at < end; at++) {
        blank = blank || *at == ' ';
        other = other || !(*at == ' ' || *at == '-' || *at == '.' || *at == '*' || (*at >= 'A' && *at <= 'Z'));
    }
    return blank && other;
}

/* A line with '>', possibly after comments, and not followed by prose. */
static bool is_fasta(const char *text, const char *end)
{
    const char *at = skip_whitespace(text, end);
    while (at < end && *at == ';')
        at = skip_whitespace(line_end(at, end), end);
    if (at == end || *at != '>' || (end - at > 1 && at[1] == '>')) /* ">>" begins quotations and Python examples */
        return false;
    while (at < end && (*at == '>' || *at == ';'))
        at = skip_whitespace(line_end(at, end), end);
    return !is_prose(at, line_end(at, end));
}

/* Detects the format by the first `size` bytes of the text, else by the path. */
static clv_text_format detect_by_content(const char *text, size_t size, const char *path)
{
    static const char *const tables[] = {".csv", ".tsv", ".xls", ".xlsx", NULL};
    static const char *const json[] = {".jsonl", ".ndjson", ".json", NULL};
    static const char *const fasta[] = {".fasta", ".fa",  ".faa", ".fas", ".fsa", ".fna",
                                        ".a3m",   ".a2m", ".afa", ".pep", NULL};
    const char *end = text + size;
    char first;
    bool is = is_json(&first, text, end);
    if (memchr(text, '\0', size))
        return CLV_TEXT_BINARY;
    if (has_extension(path, tables))
        return CLV_TEXT_TABLE;
    if (is || has_extension(path, json) || is_json_lines(text, end))
        return is && first == '[' ? CLV_TEXT_JSON_ARRAY : CLV_TEXT_JSON_LINES;
    return is_fasta(text, end) || has_extension(path, fasta) ? CLV_TEXT_FASTA : CLV_TEXT_PLAIN;
}

/* ---- arrays ---- */

/* The state of converting an array; initially zeros. */
typedef struct json_array {
    int64_t depth;
    bool begun, ended, quoted, escaped;
    bool element, separated; /* an element has begun; a comma precedes it */
} json_array;

static clv_status array_error(const char *where, const char *why, clv_error *err)
{
    return clv_fail(err, CLV_EFORMAT, "%s: a JSON array %s", where, why);
}

/* Converts a byte outside of strings; commas and brackets of the array itself become line ends and blanks. */
static clv_status step(json_array *a, char *c, const char *where, clv_error *err)
{
    bool blank = *c == ' ' || *c == '\t' || *c == '\n', closes = *c == ']' || *c == '}';
    bool own = a->depth == 1 && (*c == ',' || *c == ']');
    if (blank) {
        *c = ' ';
        return CLV_OK;
    }
    if (a->ended)
        return array_error(where, "has data after its end", err);
    if (own && !a->element && (*c == ',' || a->separated))
        return array_error(where, "lacks an element before or after a comma", err);
    a->depth += *c == '[' || *c == '{' ? 1 : closes ? -1 : 0;
    a->ended = a->depth == 0;
    a->quoted = *c == '"';
    a->element = !own && a->begun;
    a->separated = own || (a->separated && a->element);
    if (own || !a->begun)
        *c = *c == ',' ? '\n' : ' ';
    a->begun = true;
    return CLV_OK;
}

/* Converts the next part of an array in place, so that each element is on a line of its own. last: no part follows.
 * @return CLV_EFORMAT if it is not an array, an element is missing, or something follows it */
static clv_status array_to_lines(json_array *a, char *text, size_t size, bool last, const char *where, clv_error *err)
{
    for (size_t i = 0; i < size; i++) {
        if (!a->quoted) {
            CLV_TRY(step(a, &text[i], where, err));
        } else if (a->escaped) {
            a->escaped = false;
        } else {
            a->escaped = text[i] == '\\';
            a->quoted = text[i] != '"';
            if (text[i] == '\n')
                return array_error(where, "has the end of a line in a string", err);
        }
    }
    return last && !a->ended ? array_error(where, "does not end", err) : CLV_OK;
}

/* ---- the file ---- */

enum { BEGINNING = 1 << 16 };

struct clv_text_file {
    char *name;
    clv_gzip_reader *in;
    bool lines; /* normalize line ends */
    clv_text_format format;
    bool after_return;     /* the last byte was "\r", which is read as "\n" */
    json_array array;      /* state of its conversion */
    size_t begin, end;     /* the part of `ahead` that was not returned yet */
    char ahead[BEGINNING]; /* the first bytes, read to detect the format */
};

/* ---- bytes ---- */

/* Waits for a pipe; refuses folders. */
static clv_status open_fd(int *out, const char *path, const char *name, clv_error *err)
{
    struct stat info;
    int fd = strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return clv_fail_errno(err, "open", name);
    if (fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
        close(fd);
        return clv_fail(err, CLV_EFORMAT, "%s: a folder; valid: a file, a pipe, - for standard input", name);
    }
    *out = fd;
    return CLV_OK;
}

/* Reads decompressed bytes; fewer than `size` only at the end. */
static clv_status read_decoded(clv_text_file *f, char *out, size_t size, size_t *n, clv_error *err)
{
    size_t ahead = f->end - f->begin < size ? f->end - f->begin : size;
    memcpy(out, f->ahead + f->begin, ahead);
    f->begin += ahead;
    CLV_TRY(clv_gzip_reader_read(f->in, out + ahead, size - ahead, n, err));
    *n += ahead;
    return CLV_OK;
}

/* ---- text ---- */

/* Converts all line ends to "\n" in place. Returns the new size. */
static size_t normalize_newlines(clv_text_file *f, char *text, size_t size)
{
    size_t to = 0;
    for (size_t i = 0; i < size; i++) {
        bool second = text[i] == '\n' && f->after_return;
        f->after_return = text[i] == '\r';
        if (!second)
            text[to++] = f->after_return ? '\n' : text[i];
    }
    return to;
}

clv_status clv_text_file_read(clv_text_file *f, char *out, size_t size, size_t *n, clv_error *err)
{
    for (*n = 0; *n < size;) {
        size_t got, kept, wanted = size - *n;
        CLV_TRY(read_decoded(f, out + *n, wanted, &got, err));
        kept = f->lines ? normalize_newlines(f, out + *n, got) : got;
        if (f->format == CLV_TEXT_JSON_ARRAY)
            CLV_TRY(array_to_lines(&f->array, out + *n, kept, got < wanted, f->name, err));
        *n += kept;
        if (got < wanted)
            break;
    }
    return CLV_OK;
}

clv_status clv_text_file_read_all(clv_text_file *f, char **out, size_t *size, size_t limit, clv_error *err)
{
    char *text = NULL;
    size_t room = BEGINNING, n = 0, got;
    clv_status status;
    do {
        room *= 2;
        char *grown = realloc(text, room + 1);
        status = grown ? CLV_OK : clv_fail_memory(err, f->name, room + 1);
        text = grown ? grown : text;
        if (status == CLV_OK)
            status = clv_text_file_read(f, text + n, room - n, &got, err);
        n += status == CLV_OK ? got : 0;
        if (status == CLV_OK && n > limit)
            status = clv_fail(err, CLV_ELIMIT, "%s: more than the %zu bytes that are read", f->name, limit);
    } while (status == CLV_OK && n == room);
    if (status != CLV_OK) {
        free(text);
        return status;
    }
    text[n] = '\0';
    *out = text;
    *size = n;
    return CLV_OK;
}

/* ---- opening ---- */

/* Refuses known kinds of files, except those that may be text. */
static clv_status reject_non_text(const clv_text_file *f, clv_error *err)
{
    clv_file_kind kind = clv_file_kind_of(f->ahead, f->end);
    if (kind == CLV_FILE_OTHER || kind == CLV_FILE_EMPTY || kind == CLV_FILE_HTML || kind == CLV_FILE_SERVER_ERROR)
        return CLV_OK;
    return clv_file_kind_refuse(f->ahead, f->end, "text; valid: text, lines of JSON, FASTA, also compressed by gzip",
                                f->name, err);
}

static clv_status detect_format(clv_text_file *f, const char *path, clv_error *err)
{
    static const char mark[] = "\xef\xbb\xbf";
    int fd;
    CLV_TRY(open_fd(&fd, path, f->name, err));
    CLV_TRY(clv_gzip_reader_open(&f->in, fd, f->name, err));
    CLV_TRY(clv_gzip_reader_read(f->in, f->ahead, sizeof f->ahead, &f->end, err));
    CLV_TRY(reject_non_text(f, err));
    f->begin = f->end >= 3 && memcmp(f->ahead, mark, 3) == 0 ? 3 : 0;
    f->format = detect_by_content(f->ahead + f->begin, f->end - f->begin, path);
    f->lines = f->format == CLV_TEXT_JSON_LINES || f->format == CLV_TEXT_JSON_ARRAY || f->format == CLV_TEXT_FASTA;
    return CLV_OK;
}

clv_status clv_text_file_open(clv_text_file **out, const char *path, clv_error *err)
{
    clv_text_file *f = calloc(1, sizeof *f);
    if (!f)
        return clv_fail_memory(err, path, sizeof *f);
    f->name = strdup(clv_text_file_name(path));
    clv_status status = f->name ? detect_format(f, path, err) : clv_fail_memory(err, path, strlen(path));
    if (status == CLV_OK)
        *out = f;
    else
        clv_text_file_close(f);
    return status;
}

void clv_text_file_close(clv_text_file *f)
{
    if (!f)
        return;
    clv_gzip_reader_close(f->in);
    free(f->name);
    free(f);
}

/* ---- what it is ---- */

clv_text_format clv_text_file_format(const clv_text_file *f)
{
    return f->format;
}

const char *clv_text_file_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

clv_status clv_text_file_check(const clv_text_file *f, clv_error *err)
{
    static const char valid[] = "valid: text, lines of JSON, FASTA";
    if (f->format == CLV_TEXT_TABLE)
        return clv_fail(err, CLV_EINVAL,
                        "%s: is a table by its name; %s: write its texts as lines of JSON, {\"text\": \"...\"}",
                        f->name, valid);
    if (f->format == CLV_TEXT_BINARY)
        return clv_fail(err, CLV_EINVAL, "%s: has a zero byte: neither text nor a token file; %s", f->name, valid);
    return CLV_OK;
}

void clv_text_file_set_raw(clv_text_file *f, bool lines)
{
    f->format = CLV_TEXT_PLAIN;
    f->lines = lines;
}

int64_t clv_text_file_position(const clv_text_file *f)
{
    return clv_gzip_reader_position(f->in);
}
