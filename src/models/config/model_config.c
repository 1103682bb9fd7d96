/* model_config.c - reads, validates and writes config.json; bounds checks of token ids and labels. */
#include "models/config/model_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "cleave/import.h"
#include "io/files/file.h"
#include "models/config/config_readers.h"
#include "models/config/config_keys.h"
#include "models/families/family_registry.h"
#include "tensor/parse_print.h"

enum { CONFIG_LIMIT = 1 << 20, LIST_SIZE = 256 };

const char *clv_model_config_model_type(const clv_model_config *model)
{
    return model->family->model_type;
}

/* ---- reading ---- */

static clv_status find_family(const clv_model_family **out, const json_t *o, const char *where, clv_error *err)
{
    const char *type = NULL;
    char names[LIST_SIZE];
    clv_text known = {.out = names, .size = sizeof names};

    CLV_TRY(clv_json_get_string(&type, o, "model_type", CLV_JSON_REQUIRED, where, err));
    *out = clv_families_find(type);
    if (*out != NULL)
        return CLV_OK;
    clv_families_list(&known);
    return clv_config_fail_unsupported(where, "model_type", type, names, err);
}

static clv_status read_architectures(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    const clv_model_family *family = c->family;
    const json_t *list = json_object_get(o, "architectures");

    if (list == NULL || json_is_null(list))
        return CLV_OK;
    if (!json_is_array(list))
        return clv_fail(err, CLV_EFORMAT, "%s: \"architectures\" must be a list of names", where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        bool whole = name != NULL && (strcmp(name, family->architecture) == 0 ||
                                      (family->like != NULL && strcmp(name, family->like) == 0));
        c->headless = name != NULL && strcmp(name, family->bare) == 0;
        if (!whole && !c->headless) {
            char known[LIST_SIZE];
            snprintf(known, sizeof known, "%s%s%s, %s", family->architecture, family->like ? ", " : "",
                     family->like ? family->like : "", family->bare);
            return clv_config_fail_unsupported(where, "architectures", name != NULL ? name : "?", known, err);
        }
    }
    return CLV_OK;
}

/* Weights are read in the dtype that they have, so the key need but be a dtype: torch's name, which "torch." may
 * precede. "dtype" counts before "torch_dtype", as in transformers. */
static clv_status check_dtype(const json_t *o, const char *where, clv_error *err)
{
    static const char *const names[] = {"auto", "float32", "float", "bfloat16", "float16", "half", "float64", "double"};
    static const char before[] = "torch.";
    const char *text = NULL, *key = "dtype";

    CLV_TRY(clv_json_get_string(&text, o, key, CLV_JSON_OPTIONAL, where, err));
    if (text == NULL) {
        key = "torch_dtype";
        CLV_TRY(clv_json_get_string(&text, o, key, CLV_JSON_OPTIONAL, where, err));
    }
    if (text == NULL)
        return CLV_OK;
    const char *name = strncmp(text, before, strlen(before)) == 0 ? text + strlen(before) : text;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return CLV_OK;
    return clv_config_fail_unsupported(where, key, text,
                                       "float32 or float, bfloat16, float16 or half, float64 or double, each also with "
                                       "\"torch.\" before it; auto",
                                       err);
}

/* What holds for every family. */
static clv_status check_common(const clv_model_family *family, const json_t *o, const char *where, clv_error *err)
{
    const json_t *quantization = json_object_get(o, "quantization_config");

    CLV_TRY(clv_config_json_check_keys(family, o, where, err));
    CLV_TRY(check_dtype(o, where, err));
    if (quantization != NULL && !json_is_null(quantization))
        return clv_config_fail_unsupported(where, "quantization_config", "quantised weights", "none", err);
    return CLV_OK;
}

/* What holds between the sizes; `code` tells a bad file from a bad request. */
static clv_status check_sizes(const clv_model_config *c, clv_status code, const char *where, clv_error *err)
{
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {
        {"hidden", c->hidden},     {"layers", c->layers}, {"heads", c->heads}, {"kv_heads", c->kv_heads},
        {"head_dim", c->head_dim}, {"ffn", c->ffn},       {"vocab", c->vocab}, {"max_positions", c->max_positions}};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].size < 1 || sizes[i].size > CLV_MAX_POSITIONS)
            return clv_fail(err, code, "%s: sizes of a model must be 1 to %d, not %lld (%s)", where, CLV_MAX_POSITIONS,
                            (long long)sizes[i].size, sizes[i].name);
    if (c->kv_heads > c->heads || c->heads % c->kv_heads != 0)
        return clv_fail(err, code, "%s: \"num_key_value_heads\" %lld must divide \"num_attention_heads\" %lld", where,
                        (long long)c->kv_heads, (long long)c->heads);
    if (c->top_k > c->experts)
        return clv_fail(err, code, "%s: \"num_experts_per_tok\" %lld is more than the %lld experts", where,
                        (long long)c->top_k, (long long)c->experts);
    if (c->rope.theta > 0 && c->head_dim % 2 != 0)
        return clv_fail(err, code, "%s: \"head_dim\" %lld must be even: rotary embedding turns pairs", where,
                        (long long)c->head_dim);
    return CLV_OK;
}

clv_status clv_model_config_check(const clv_model_config *c, const char *where, clv_error *err)
{
    return check_sizes(c, CLV_EINVAL, where, err);
}

clv_status clv_model_config_check_ids(const clv_model_config *model, const int32_t *ids, int64_t batch, int64_t seq,
                                      clv_error *err)
{
    for (int64_t i = 0; i < batch * seq; i++)
        if (ids[i] < 0 || ids[i] >= model->vocab)
            return clv_fail(err, CLV_EINVAL, "token %lld of sequence %lld is %d; the vocabulary is 0 to %lld",
                            (long long)(i % seq), (long long)(i / seq), (int)ids[i], (long long)model->vocab - 1);
    return CLV_OK;
}

clv_status clv_model_config_check_labels(const clv_model_config *model, const int32_t *labels, int64_t batch,
                                         int64_t seq, int64_t *counted, clv_error *err)
{
    int64_t n = 0;
    for (int64_t i = 0; i < batch * seq; i++) {
        if (labels[i] == CLV_IGNORE_INDEX)
            continue;
        if (labels[i] < 0 || labels[i] >= model->vocab)
            return clv_fail(err, CLV_EINVAL,
                            "label %lld of sequence %lld is %d; valid: 0 to %lld, or %d, which counts for nothing",
                            (long long)(i % seq), (long long)(i / seq), (int)labels[i], (long long)model->vocab - 1,
                            CLV_IGNORE_INDEX);
        n++;
    }
    if (counted)
        *counted = n;
    else if (n == 0)
        return clv_fail(err, CLV_EINVAL, "no label counts: all are %d, and a loss is the mean over those that count",
                        CLV_IGNORE_INDEX);
    return CLV_OK;
}

static clv_status read_object(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    CLV_TRY(clv_json_check_object(o, where, err));
    CLV_TRY(find_family(&c->family, o, where, err));
    CLV_TRY(read_architectures(c, o, where, err));
    CLV_TRY(check_common(c->family, o, where, err));
    c->bos = c->pad = c->mask = -1;
    CLV_TRY(c->family->read(c, o, where, err));
    CLV_TRY(clv_config_read_special_tokens(c, o, where, err));
    return check_sizes(c, CLV_EFORMAT, where, err);
}

static clv_status read_file(clv_model_config *out, const char *path, clv_error *err)
{
    clv_model_config model = {0};
    json_t *document = NULL;
    clv_status status;

    CLV_TRY(clv_json_load(&document, path, CONFIG_LIMIT, err));
    status = read_object(&model, document, path, err);
    json_decref(document);
    if (status == CLV_OK)
        *out = model;
    return status;
}

/* One that is no configuration may be another file of a model's folder. */
clv_status clv_fail_if_program(const char *path, clv_error *err)
{
    return !clv_import_is_program(path)
               ? CLV_OK
               : clv_fail(err, CLV_EFORMAT,
                          "%s is a program of JAX or PyTorch, not a model; cleave's import, plan, explain, forward, "
                          "verify, bench and export take it",
                          path);
}

static clv_status read_given_file(clv_model_config *out, const char *path, clv_error *err)
{
    clv_error why = {0};
    clv_status status = read_file(out, path, &why);

    if (status == CLV_OK)
        return CLV_OK;
    if (status != CLV_EFORMAT)
        return clv_fail(err, status, "%s", why.message);
    CLV_TRY(clv_fail_if_program(path, err));
    return clv_fail(err, status, "%s; a model is given by its folder, or its config.json", why.message);
}

bool clv_is_folder(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

clv_status clv_model_config_read(clv_model_config *out, const char *path, clv_error *err)
{
    char file[CLV_PATH_SIZE];
    if (!clv_is_folder(path))
        return read_given_file(out, path, err);
    CLV_TRY(clv_path_join(file, path, "config.json", err));
    return read_file(out, file, err);
}

clv_status clv_model_config_unknown_keys(char *out, size_t size, const clv_model_family *family, const char *path,
                                         clv_error *err)
{
    clv_text text = {.out = out, .size = size};
    char file[CLV_PATH_SIZE];
    json_auto_t *document = NULL;
    const char *key;
    const json_t *value;

    if (clv_is_folder(path))
        CLV_TRY(clv_path_join(file, path, "config.json", err));
    CLV_TRY(clv_json_load(&document, clv_is_folder(path) ? file : path, CONFIG_LIMIT, err));
    json_object_foreach(document, key, value)
    {
        if (family->is_custom || clv_config_json_knows_key(family, key))
            continue;
        clv_text_add(&text, "%s", text.length > 0 ? ", " : "");
        clv_text_add_name(&text, key);
    }
    clv_text_finish(&text);
    return CLV_OK;
}

/* ---- writing ---- */

/* The family's keys and those of every family; both spellings of what transformers 5 renamed, for 4 and 5. */
static json_t *object_of(const clv_model_config *c, clv_dtype dtype)
{
    const char *torchs = dtype == CLV_BF16 ? "bfloat16" : "float32";
    json_t *own = c->family->write(c);
    json_t *common =
        json_pack("{s:[s], s:s, s:s, s:s, s:I, s:b, s:o, s:o, s:o}", "architectures",
                  c->headless ? c->family->bare : c->family->architecture, "model_type", c->family->model_type,
                  "torch_dtype", torchs, "dtype", torchs, "vocab_size", (json_int_t)c->vocab, "tie_word_embeddings",
                  (int)c->tie_word_embeddings, "bos_token_id", clv_config_token_to_json(c->bos), "pad_token_id",
                  clv_config_token_to_json(c->pad), "eos_token_id", clv_config_eos_to_json(c));

    if (own == NULL || common == NULL || json_object_update(common, own) != 0) {
        json_decref(common);
        common = NULL;
    }
    json_decref(own);
    return common;
}

char *clv_model_config_to_json(const clv_model_config *model, clv_dtype dtype)
{
    json_t *document = object_of(model, dtype);
    char *text = document != NULL ? json_dumps(document, JSON_INDENT(2)) : NULL;

    json_decref(document);
    return text;
}

clv_status clv_model_config_write(const clv_model_config *model, clv_dtype dtype, const char *path, clv_error *err)
{
    CLV_FREED char *text = NULL;

    CLV_TRY(clv_model_config_check(model, path, err));
    text = clv_model_config_to_json(model, dtype);
    if (text == NULL)
        return clv_fail_memory(err, path, CONFIG_LIMIT);
    return clv_file_write(path, text, strlen(text), err);
}
