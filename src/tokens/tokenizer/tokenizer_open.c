/* tokenizer_open.c - opens a tokenizer: finds and loads tokenizer.json or vocab.txt; the built-in byte tokenizer. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "io/files/file.h"
#include "tokens/tokenizer/tokenizer_components.h"

enum { FILE_LIMIT = 256 << 20 };

clv_status clv_tokenizer_find_file(char **out, const char *folder, clv_error *err)
{
    CLV_TRY(clv_path_find(out, folder, "tokenizer.json", err));
    return *out ? CLV_OK : clv_path_find(out, folder, "vocab.txt", err);
}

/* *where: the file that was read, the caller's to free. */
static clv_status load(json_t **document, char **where, const char *path, clv_error *err)
{
    struct stat info;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (!folder) {
        *where = strdup(path);
        return *where ? clv_json_load(document, path, FILE_LIMIT, err) : clv_fail_memory(err, path, strlen(path));
    }
    CLV_TRY(clv_tokenizer_find_file(where, path, err));
    if (!*where)
        return clv_fail(err, CLV_ENOTFOUND, "%s holds no tokenizer.json and no vocab.txt", path);
    size_t n = strlen(*where);
    return strcmp(*where + n - 4, ".txt") == 0 ? clv_tokenizer_json_from_vocab_txt(document, path, *where, err)
                                               : clv_json_load(document, *where, FILE_LIMIT, err);
}

static clv_status make(clv_tokenizer **out, clv_error *err)
{
    clv_tokenizer *t = calloc(1, sizeof *t);
    if (t)
        t->arena = clv_arena_new();
    if (t && t->arena) {
        *out = t;
        return CLV_OK;
    }
    free(t);
    return clv_fail_memory(err, "a tokenizer", sizeof *t);
}

/* A file that is no tokenizer may be another one of a model's folder. */
static clv_status explain(clv_status status, const char *path, const char *where, const clv_error *why, clv_error *err)
{
    bool given = where && strcmp(path, where) == 0;
    return clv_fail(err, status, "%s%s", why->message,
                    given && status == CLV_EFORMAT ? "; give the model's folder, or its tokenizer.json" : "");
}

clv_status clv_tokenizer_open(clv_tokenizer **out, const char *path, clv_error *err)
{
    json_t *document = NULL;
    char *where = NULL;
    clv_error why = {0};
    clv_tokenizer *t = NULL;
    CLV_TRY(clv_require(out && path, "clv_tokenizer_open", "out and a path", err));
    clv_status status = make(&t, &why);
    if (status == CLV_OK)
        status = load(&document, &where, path, &why);
    if (status == CLV_OK)
        status = clv_tokenizer_from_json(t, document, where, &why);
    if (status != CLV_OK)
        status = explain(status, path, where, &why, err);
    json_decref(document);
    free(where);
    if (status != CLV_OK) {
        clv_tokenizer_free(t);
        return status;
    }
    *out = t;
    return CLV_OK;
}

clv_status clv_tokenizer_new_bytes(clv_tokenizer **out, clv_error *err)
{
    enum { BYTES = 256 };
    clv_tokenizer *t = NULL;
    CLV_TRY(clv_require(out != NULL, "clv_tokenizer_new_bytes", "out", err));
    CLV_TRY(make(&t, err));
    t->bytes = true;
    t->size = BYTES;
    *out = t;
    return CLV_OK;
}
