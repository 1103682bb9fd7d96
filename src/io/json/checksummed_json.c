/* checksummed_json.c - checksummed JSON documents: the first key is the checksum of all that follows; read, write,
 * verify.
 */
#include "io/json/checksummed_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files/file.h"

static const char opening[] = "{\"checksum\":\"";
/* The opening, the digits, and what the checksum is of. */
enum { SUM_AT = sizeof opening - 1, REST_AT = SUM_AT + CLV_CHECKSUM_SIZE - 1 };

static clv_status write_text(const char *path, const char *rest, size_t limit, clv_error *err)
{
    size_t size = REST_AT + strlen(rest) + 2;
    CLV_FREED char *text = malloc(size + 1);
    char sum[CLV_CHECKSUM_SIZE];

    if (text == NULL)
        return clv_fail_memory(err, path, size);
    /* rest begins with the brace that the opening has */
    snprintf(text + REST_AT, size + 1 - REST_AT, "\",%s\n", rest + 1);
    clv_checksum_of(sum, text + REST_AT, strlen(text + REST_AT));
    memcpy(text, opening, SUM_AT);
    memcpy(text + SUM_AT, sum, CLV_CHECKSUM_SIZE - 1);
    size = REST_AT + strlen(text + REST_AT);
    return size > limit
               ? clv_fail(err, CLV_ELIMIT, "%s: %zu bytes, at most %zu are valid: fewer ranks", path, size, limit)
               : clv_file_write(path, text, size, err);
}

clv_status clv_checksummed_json_write(const char *path, const json_t *document, size_t limit, clv_error *err)
{
    CLV_FREED char *rest = document != NULL ? json_dumps(document, JSON_COMPACT) : NULL;
    return rest != NULL ? write_text(path, rest, limit, err) : clv_fail(err, CLV_ENOMEM, "out of memory for %s", path);
}

clv_status clv_checksummed_json_verify(const char *text, size_t size, const char *path, clv_error *err)
{
    char sum[CLV_CHECKSUM_SIZE];

    if (size < REST_AT || memcmp(text, opening, SUM_AT) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: does not begin with a checksum: not a manifest, or damaged", path);
    clv_checksum_of(sum, text + REST_AT, size - REST_AT);
    if (memcmp(text + SUM_AT, sum, CLV_CHECKSUM_SIZE - 1) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: the checksum is %.32s, the content's is %s: damaged, or edited", path,
                        text + SUM_AT, sum);
    return CLV_OK;
}

clv_status clv_checksummed_json_read(json_t **out, const char *path, size_t limit, clv_error *err)
{
    CLV_FREED char *text = NULL;
    size_t size = 0;

    CLV_TRY(clv_file_read(&text, &size, path, limit, err));
    CLV_TRY(clv_checksummed_json_verify(text, size, path, err));
    return clv_json_parse(out, text, size, CLV_JSON_KEYS_UNIQUE, path, err);
}

clv_status clv_checksummed_json_check_version(const json_t *o, const char *valid, int valid_version, const char *path,
                                              clv_error *err)
{
    const char *format = NULL;
    int64_t version = 0;

    CLV_TRY(clv_json_get_string(&format, o, "format", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_json_get_int(&version, o, "version", CLV_JSON_REQUIRED, 0, INT32_MAX, path, err));
    if (strcmp(format, valid) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: \"format\" is \"%.64s\", valid is \"%s\"", path, format, valid);
    if (version != valid_version)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: \"version\" is %lld, valid is %d", path, (long long)version,
                        valid_version);
    return CLV_OK;
}

clv_status clv_checksummed_json_get_checksum(char out[CLV_CHECKSUM_SIZE], const json_t *o, const char *key,
                                             const char *where, clv_error *err)
{
    const char *text = NULL;

    CLV_TRY(clv_json_get_string(&text, o, key, CLV_JSON_REQUIRED, where, err));
    if (strspn(text, "0123456789abcdef") != CLV_CHECKSUM_SIZE - 1 || strlen(text) != CLV_CHECKSUM_SIZE - 1)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be 32 digits of 0-9a-f", where, key);
    memcpy(out, text, CLV_CHECKSUM_SIZE);
    return CLV_OK;
}
