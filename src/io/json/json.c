/* json.c - JSON access: loads untrusted JSON into jansson values; typed getters that name file and key in errors. */
#include "io/json/json.h"

#include <stdlib.h>

#include "base/error.h"
#include "io/files/file.h"

int64_t clv_json_count_members(const char *text, size_t size)
{
    int64_t members = 0, depth = 0;
    bool quoted = false;

    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth == 1)
                members++;
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == ',' && depth == 1) {
            members++;
        }
    }
    return members;
}

/* Returns the end of the comment that begins at i, or i if none does. */
static size_t comment_end(const char *text, size_t size, size_t i)
{
    if (i + 1 >= size || text[i] != '/' || (text[i + 1] != '/' && text[i + 1] != '*'))
        return i;
    bool line = text[i + 1] == '/';
    size_t end = i + 2;
    while (end < size && (line ? text[end] != '\n' : !(end > i + 3 && text[end - 2] == '*' && text[end - 1] == '/')))
        end++;
    return end;
}

void clv_json_blank_comments(char *text, size_t size)
{
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        if (quoted && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            quoted = !quoted;
        } else if (!quoted) {
            size_t end = comment_end(text, size, i);
            for (size_t k = i; k < end; k++)
                if (text[k] != '\n')
                    text[k] = ' ';
            i = end > i ? end - 1 : i;
        }
    }
}

clv_status clv_json_load(json_t **out, const char *path, size_t limit, clv_error *err)
{
    CLV_FREED char *text = NULL;
    size_t size;

    CLV_TRY(clv_file_read(&text, &size, path, limit, err));
    return clv_json_parse(out, text, size, CLV_JSON_KEYS_LAST_WINS, path, err);
}

clv_status clv_json_check_object(const json_t *object, const char *where, clv_error *err)
{
    if (!json_is_object(object))
        return clv_fail(err, CLV_EFORMAT, "%s: not a JSON object", where);
    return CLV_OK;
}

/* *out = the value, or NULL for an optional one that is absent. */
static clv_status get(const json_t **out, const json_t *object, const char *key, clv_json_need need, const char *where,
                      clv_error *err)
{
    const json_t *value;

    CLV_TRY(clv_json_check_object(object, where, err));
    value = json_object_get(object, key);
    if (value == NULL && need == CLV_JSON_REQUIRED)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" is missing", where, key);
    *out = json_is_null(value) && need == CLV_JSON_OPTIONAL ? NULL : value;
    return CLV_OK;
}

static clv_status check_int(const json_t *value, const char *key, int64_t lo, int64_t hi, const char *where,
                            clv_error *err)
{
    if (json_is_real(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" is %g, valid are integers from %lld to %lld", where, key,
                        json_real_value(value), (long long)lo, (long long)hi);
    if (!json_is_integer(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be an integer", where, key);
    if (json_integer_value(value) < lo || json_integer_value(value) > hi)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" is %lld, valid are %lld to %lld", where, key,
                        (long long)json_integer_value(value), (long long)lo, (long long)hi);
    return CLV_OK;
}

clv_status clv_json_get_int(int64_t *out, const json_t *object, const char *key, clv_json_need need, int64_t lo,
                            int64_t hi, const char *where, clv_error *err)
{
    const json_t *value = NULL;

    CLV_TRY(get(&value, object, key, need, where, err));
    if (value == NULL)
        return CLV_OK;
    CLV_TRY(check_int(value, key, lo, hi, where, err));
    *out = json_integer_value(value);
    return CLV_OK;
}

clv_status clv_json_get_real(double *out, const json_t *object, const char *key, clv_json_need need, double lo,
                             double hi, const char *where, clv_error *err)
{
    const json_t *value = NULL;

    CLV_TRY(get(&value, object, key, need, where, err));
    if (value == NULL)
        return CLV_OK;
    if (!json_is_number(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be a finite number", where, key);
    if (!(json_number_value(value) >= lo && json_number_value(value) <= hi))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" is %g, valid are %g to %g", where, key, json_number_value(value),
                        lo, hi);
    *out = json_number_value(value);
    return CLV_OK;
}

clv_status clv_json_get_bytes(const char **out, size_t *size, const json_t *object, const char *key, const char *where,
                              clv_error *err)
{
    const json_t *value = NULL;

    CLV_TRY(get(&value, object, key, CLV_JSON_REQUIRED, where, err));
    if (!json_is_string(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be a string", where, key);
    *out = json_string_value(value);
    *size = json_string_length(value);
    return CLV_OK;
}

clv_status clv_json_get_string(const char **out, const json_t *object, const char *key, clv_json_need need,
                               const char *where, clv_error *err)
{
    const json_t *value = NULL;

    CLV_TRY(get(&value, object, key, need, where, err));
    if (value == NULL)
        return CLV_OK;
    if (!json_is_string(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be a string", where, key);
    if (strlen(json_string_value(value)) < json_string_length(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" holds the character U+0000", where, key);
    *out = json_string_value(value);
    return CLV_OK;
}

clv_status clv_json_get_bool(bool *out, const json_t *object, const char *key, clv_json_need need, const char *where,
                             clv_error *err)
{
    const json_t *value = NULL;

    CLV_TRY(get(&value, object, key, need, where, err));
    if (value == NULL)
        return CLV_OK;
    if (!json_is_boolean(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be true or false", where, key);
    *out = json_is_true(value);
    return CLV_OK;
}

clv_status clv_json_get_ints(int64_t *out, int *n, int max, const json_t *object, const char *key, clv_json_need need,
                             int64_t lo, int64_t hi, const char *where, clv_error *err)
{
    const json_t *value = NULL;

    CLV_TRY(get(&value, object, key, need, where, err));
    if (value == NULL)
        return CLV_OK;
    if (!json_is_array(value))
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be a list of integers", where, key);
    if (json_array_size(value) > (size_t)max)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" has %zu elements, at most %d are supported", where, key,
                        json_array_size(value), max);
    for (size_t i = 0; i < json_array_size(value); i++)
        CLV_TRY(check_int(json_array_get(value, i), key, lo, hi, where, err));
    for (size_t i = 0; i < json_array_size(value); i++)
        out[i] = json_integer_value(json_array_get(value, i));
    *n = (int)json_array_size(value);
    return CLV_OK;
}
