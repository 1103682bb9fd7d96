/* tokenizer_files.c - tokenizer files of a Hugging Face folder: find and open, report the kind, copy. */
#include <stdio.h>
#include <sys/stat.h>

#include "io/files/atomic_folder.h"
#include "io/files/file.h"
#include "tokens/tokenizer/tokenizer_components.h"

enum { FILE_LIMIT = 256 << 20 };

bool clv_tokenizer_find_file(char path[CLV_PATH_SIZE], const char *folder)
{
    return clv_path_find(path, folder, "tokenizer.json") || clv_path_find(path, folder, "vocab.txt");
}

/* *where: path of the file that was read; the caller frees it. */
static clv_status load(json_t **document, char where[CLV_PATH_SIZE], const char *path, clv_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        snprintf(where, CLV_PATH_SIZE, "%s", path);
        return clv_json_load(document, path, FILE_LIMIT, err);
    }
    if (!clv_tokenizer_find_file(where, path))
        return clv_fail(err, CLV_ENOTFOUND, "%s holds no tokenizer.json and no vocab.txt", path);
    size_t n = strlen(where);
    return strcmp(where + n - 4, ".txt") == 0 ? clv_tokenizer_json_from_vocab_txt(document, path, where, err)
                                              : clv_json_load(document, where, FILE_LIMIT, err);
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

/* Adds a hint where the path was a file: it may be another file of a model's folder. */
static clv_status explain(clv_status status, const char *path, const char *where, const clv_error *why, clv_error *err)
{
    return clv_fail(
        err, status, "%s%s", why->message,
        strcmp(path, where) == 0 && status == CLV_EFORMAT ? "; give the model's folder, or its tokenizer.json" : "");
}

clv_status clv_tokenizer_open(clv_tokenizer **out, const char *path, clv_error *err)
{
    json_auto_t *document = NULL;
    char where[CLV_PATH_SIZE] = "";
    clv_error why = {0};
    clv_tokenizer *t = NULL;
    CLV_TRY(clv_require(out && path, __func__, "out and a path", err));
    clv_status status = make(&t, &why);
    if (status == CLV_OK)
        status = load(&document, where, path, &why);
    if (status == CLV_OK)
        status = clv_tokenizer_from_json(t, document, where, &why);
    if (status != CLV_OK)
        status = explain(status, path, where, &why, err);
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
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    CLV_TRY(make(&t, err));
    t->bytes = true;
    t->size = BYTES;
    *out = t;
    return CLV_OK;
}

/* The model type that tokenizer.json names: "BPE", "WordPiece", "Unigram". */
static clv_status read_kind(char *out, size_t size, const char *folder, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    json_auto_t *document = NULL;
    const char *type = NULL;
    CLV_TRY(clv_path_join(path, folder, "tokenizer.json", err));
    CLV_TRY(clv_json_load(&document, path, FILE_LIMIT, err));
    CLV_TRY(clv_json_get_string(&type, json_object_get(document, "model"), "type", CLV_JSON_OPTIONAL, path, err));
    snprintf(out, size, "%s (tokenizer.json)", type ? type : "of no stated kind");
    return CLV_OK;
}

clv_status clv_tokenizer_kind(char *out, size_t size, const char *folder, clv_error *err)
{
    static const char *const others[] = {"vocab.txt", "tokenizer.model", "vocab.json"};
    const char *kind = "none";

    CLV_TRY(clv_require(out && folder, __func__, "out and a folder", err));
    if (clv_folder_has(folder, "tokenizer.json"))
        return read_kind(out, size, folder, err);
    for (size_t i = sizeof others / sizeof others[0]; i-- > 0;)
        if (clv_folder_has(folder, others[i]))
            kind = others[i];
    snprintf(out, size, "%s", kind);
    return CLV_OK;
}

/* Filter of clv_folder_copy: files to leave out. */
static bool is_not_tokenizer_file(const void *arg, const char *name)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "tokenizer.model",
                                        "chat_template.jinja",
                                        "generation_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return false;
    return true;
}

clv_status clv_tokenizer_copy(const char *from, const char *to, clv_error *err)
{
    CLV_TRY(clv_require(from && to, __func__, "two folders", err));
    return clv_folder_copy(from, to, is_not_tokenizer_file, NULL, err);
}
