/* text_file.c - text input: a file, pipe or stdin; gunzips, drops the BOM, normalizes line ends, detects the format. */
#include "io/files/text_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files/file_kind.h"
#include "io/files/gzip_reader.h"
#include "io/files/text_format.h"

enum { BEGINNING = 1 << 16 };

struct clv_text_file {
    char *name;
    clv_gzip_reader *in;
    bool lines;
    clv_text_format form;
    bool behind_return;    /* the last byte was "\r", which is read as "\n" */
    clv_json_array array;  /* how far it is */
    size_t begin, end;     /* of what is read ahead and not handed on */
    char ahead[BEGINNING]; /* the beginning */
};

/* ---- bytes ---- */

/* A pipe is waited for; what is no file of bytes is refused. */
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

/* Bytes as they are, after decompression; fewer than `size` at the end alone. */
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

/* Line ends of all kinds become "\n". Returns how many bytes are left. */
static size_t normalize_newlines(clv_text_file *f, char *text, size_t size)
{
    size_t to = 0;
    for (size_t i = 0; i < size; i++) {
        bool second = text[i] == '\n' && f->behind_return;
        f->behind_return = text[i] == '\r';
        if (!second)
            text[to++] = f->behind_return ? '\n' : text[i];
    }
    return to;
}

clv_status clv_text_file_read(clv_text_file *f, char *out, size_t size, size_t *n, clv_error *err)
{
    for (*n = 0; *n < size;) {
        size_t got, kept, wanted = size - *n;
        CLV_TRY(read_decoded(f, out + *n, wanted, &got, err));
        kept = f->lines ? normalize_newlines(f, out + *n, got) : got;
        if (f->form == CLV_TEXT_JSON_ARRAY)
            CLV_TRY(clv_json_array_to_lines(&f->array, out + *n, kept, got < wanted, f->name, err));
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

/* What a file begins with that is handled, or may stand in a text, is not refused. */
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
    f->form = clv_text_format_detect(f->ahead + f->begin, f->end - f->begin, path);
    f->lines = f->form == CLV_TEXT_JSON_LINES || f->form == CLV_TEXT_JSON_ARRAY || f->form == CLV_TEXT_FASTA;
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
    return f->form;
}

const char *clv_text_file_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

clv_status clv_text_file_check(const clv_text_file *f, clv_error *err)
{
    static const char valid[] = "valid: text, lines of JSON, FASTA";
    if (f->form == CLV_TEXT_TABLE)
        return clv_fail(err, CLV_EINVAL,
                        "%s: is a table by its name; %s: write its texts as lines of JSON, {\"text\": \"...\"}",
                        f->name, valid);
    if (f->form == CLV_TEXT_BINARY)
        return clv_fail(err, CLV_EINVAL, "%s: a byte of it is 0: neither text nor a token file; %s", f->name, valid);
    return CLV_OK;
}

void clv_text_file_set_raw(clv_text_file *f, bool lines)
{
    f->form = CLV_TEXT_PLAIN;
    f->lines = lines;
}

int64_t clv_text_file_position(const clv_text_file *f)
{
    return clv_gzip_reader_position(f->in);
}
