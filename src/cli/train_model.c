#include "cli/train_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

clv_status clv_start_option_open(clv_model **out, const clv_start_option *o, const clv_model_options *options,
                                 clv_error *err)
{
    clv_model_options how = *options;
    clv_model *model;
    const char *path = o->model ? o->model : o->config;
    if (!path)
        return CLV_OK;
    how.config_only = o->config != NULL;
    CLV_TRY(clv_model_open(&model, path, &how, err));
    clv_status status = clv_model_compare(model, err);
    if (status == CLV_OK)
        *out = model;
    else
        clv_model_close(model);
    return status;
}

/* ---- the tokenizer's files ---- */

static clv_status copy_stream(FILE *from, FILE *to, const char *path, clv_error *err)
{
    char block[1 << 16];
    size_t n;
    while ((n = fread(block, 1, sizeof block, from)) > 0)
        if (fwrite(block, 1, n, to) != n)
            break;
    if (ferror(from) || ferror(to) || fflush(to) != 0)
        return clv_fail(err, CLV_EIO, "%s: cannot write: %s", path, strerror(errno));
    return CLV_OK;
}

static clv_status copy_file(const char *source, const char *path, clv_error *err)
{
    FILE *from = fopen(source, "rb");
    if (!from)
        return errno == ENOENT ? CLV_OK : clv_fail(err, CLV_EIO, "%s: cannot open: %s", source, strerror(errno));
    FILE *to = fopen(path, "wb");
    clv_status status =
        to ? copy_stream(from, to, path, err) : clv_fail(err, CLV_EIO, "%s: cannot make: %s", path, strerror(errno));
    fclose(from);
    if (to && fclose(to) != 0 && status == CLV_OK)
        status = clv_fail(err, CLV_EIO, "%s: cannot write: %s", path, strerror(errno));
    return status;
}

clv_status clv_start_copy_tokenizer(const char *from, const char *to, clv_error *err)
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
    clv_status status = CLV_OK;
    for (size_t i = 0; status == CLV_OK && i < sizeof names / sizeof names[0]; i++) {
        char *source = NULL, *path = NULL;
        if (asprintf(&source, "%s/%s", from, names[i]) < 0)
            source = NULL;
        if (asprintf(&path, "%s/%s", to, names[i]) < 0)
            path = NULL;
        status = source && path ? copy_file(source, path, err)
                                : clv_fail(err, CLV_ENOMEM, "out of memory for the path of %s", names[i]);
        free(source);
        free(path);
    }
    return status;
}
