/* json_parse.c - JSON parser: accepts what Python's json accepts (NaN, big integers, lone surrogates), builds jansson
 * values. jansson's own parser refuses integers beyond 64 bits, NaN, numbers beyond the range of a double and lone
 * surrogates.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/utf8.h"
#include "base/text/c_locale.h"
#include "io/files/file_kind.h"
#include "io/json/json.h"

typedef struct reader {
    const char *text, *at, *end; /* a zero byte follows the end */
    char *decoded;               /* buffer for the longest string */
    bool unique;                 /* equal keys in an object are an error */
    int depth;
    const char *fault; /* the error at `at`; NULL after a failure: out of memory */
} reader;

static json_t *read_value(reader *r);

static json_t *wrong(reader *r, const char *fault)
{
    r->fault = fault;
    return NULL;
}

static void skip_whitespace(reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at != '\0')
        r->at++;
}

static bool accept(reader *r, const char *word)
{
    size_t size = strlen(word);
    bool is = (size_t)(r->end - r->at) >= size && memcmp(r->at, word, size) == 0;
    r->at += is ? size : 0;
    return is;
}

/* ---- strings ---- */

/* Returns the value of four hexadecimal digits; -1: there are none. */
static int32_t hex(const char *at, const char *end)
{
    int32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = at + i < end && at[i] != '\0' ? strchr(digits, at[i] | 0x20) : NULL;
        if (!digit || (at[i] < '0'))
            return -1;
        unit = unit * 16 + (int32_t)(digit - digits);
    }
    return unit;
}

/* Decodes \uXXXX from behind the u; a surrogate pair is one character, a lone surrogate is U+FFFD. */
static bool read_unit(reader *r, char **to)
{
    int32_t unit = hex(r->at, r->end), low;
    if (unit < 0)
        return false;
    r->at += 4;
    bool half = unit >= 0xd800 && unit <= 0xdfff;
    if (half && unit <= 0xdbff && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u' &&
        (low = hex(r->at + 2, r->end)) >= 0xdc00 && low <= 0xdfff) {
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        r->at += 6;
        half = false;
    }
    *to += clv_utf8_encode(*to, half ? 0xfffd : (uint32_t)unit);
    return true;
}

static bool read_escape(reader *r, char **to)
{
    static const char names[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
    char name = r->at < r->end ? *r->at : '\0';
    const char *known = name != '\0' ? strchr(names, name) : NULL;
    r->at += known || name == 'u';
    if (known)
        *(*to)++ = characters[known - names];
    return known || (name == 'u' && read_unit(r, to));
}

/* Decodes the string that begins at `at` into r->decoded. */
static bool read_text(reader *r, size_t *size)
{
    char *to = r->decoded;
    for (r->at++; r->at < r->end && *r->at != '"';) {
        if ((unsigned char)*r->at < 0x20)
            return wrong(r, "a control character in a string"), false;
        if (*r->at != '\\')
            *to++ = *r->at++;
        else if (r->at++, !read_escape(r, &to))
            return wrong(r, "an invalid escape in a string"), false;
    }
    *size = (size_t)(to - r->decoded);
    return accept(r, "\"") || (wrong(r, "a string does not end"), false);
}

/* ---- numbers ---- */

static const char *digits(const char *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

/* Returns the object that represents NaN, an infinity, or a number beyond the range of a double; NULL: out of memory.
 * */
static json_t *not_finite(void)
{
    json_t *stand_in = json_object();

    if (stand_in != NULL && json_object_set_new(stand_in, "a number that is not finite", json_null()) != 0) {
        json_decref(stand_in);
        return NULL;
    }
    return stand_in;
}

/* An integer within 64 bits, else a real. jansson has no values for NaN and infinity. */
static json_t *number(const char *text, bool whole)
{
    errno = 0;
    long long integer = whole ? strtoll(text, NULL, 10) : 0;
    if (whole && errno == 0)
        return json_integer(integer);
    double real = clv_strtod(text);
    return isfinite(real) ? json_real(real) : not_finite();
}

static json_t *read_number(reader *r)
{
    const char *begin = r->at, *at = begin + (*begin == '-'), *end = *at == '0' ? at + 1 : digits(at);
    if (end == at)
        return wrong(r, "no value");
    bool whole = true;
    if (end[0] == '.' && digits(end + 1) > end + 1) {
        whole = false;
        end = digits(end + 1);
    }
    const char *power = end[0] == 'e' || end[0] == 'E' ? end + 1 + (end[1] == '-' || end[1] == '+') : NULL;
    if (power && digits(power) > power) {
        whole = false;
        end = digits(power);
    }
    r->at = end;
    return number(begin, whole);
}

/* ---- lists and objects ---- */

static bool add_member(json_t *object, const char *key, size_t size, json_t *value)
{
#if JANSSON_VERSION_HEX >= 0x020e00
    return json_object_setn_new_nocheck(object, key, size, value) == 0;
#else
    return json_object_set_new_nocheck(object, key, value) == 0;
#endif
}

/* Reads a key into allocated memory. */
static char *read_key(reader *r, const json_t *object, size_t *size)
{
    if (r->at == r->end || *r->at != '"')
        return wrong(r, "a key must be a string"), NULL;
    if (!read_text(r, size))
        return NULL;
    r->decoded[*size] = '\0';
    bool zero = strlen(r->decoded) < *size;
    if (r->unique && (zero || json_object_get(object, r->decoded)))
        return wrong(r, zero ? "the character U+0000 in a key" : "a duplicate key"), NULL;
    if (zero && JANSSON_VERSION_HEX < 0x020e00)
        return wrong(r, "the character U+0000 in a key, which takes jansson 2.14"), NULL;
    char *key = malloc(*size + 1);
    return key ? memcpy(key, r->decoded, *size + 1) : NULL;
}

static bool read_member(reader *r, json_t *object)
{
    size_t size;
    skip_whitespace(r);
    char *key = read_key(r, object, &size);
    if (!key)
        return false;
    skip_whitespace(r);
    json_t *value = accept(r, ":") ? read_value(r) : wrong(r, "':' is missing after a key");
    bool added = value && add_member(object, key, size, value);
    free(key);
    return added;
}

static bool read_element(reader *r, json_t *list)
{
    json_t *value = read_value(r);
    return value && json_array_append_new(list, value) == 0;
}

/* Reads the members or elements from behind the opening bracket to the closing one. */
static json_t *read_members(reader *r, json_t *out, bool (*read)(reader *r, json_t *out), const char *close)
{
    bool more = out != NULL;
    if (r->depth == CLV_JSON_MAX_DEPTH) {
        json_decref(out);
        return wrong(r, "nested too deep");
    }
    r->depth++;
    skip_whitespace(r);
    if (out && accept(r, close)) {
        r->depth--;
        return out;
    }
    while (more) {
        bool ok = read(r, out);
        skip_whitespace(r);
        more = ok && accept(r, ",");
        if (!ok || (!more && !accept(r, close))) {
            json_decref(out);
            return ok ? wrong(r, "',' or the end of a list or an object is missing") : NULL;
        }
    }
    r->depth--;
    return out;
}

static json_t *read_value(reader *r)
{
    size_t size;
    skip_whitespace(r);
    if (r->at < r->end && *r->at == '"')
        return read_text(r, &size) ? json_stringn_nocheck(r->decoded, size) : NULL;
    if (accept(r, "{"))
        return read_members(r, json_object(), read_member, "}");
    if (accept(r, "["))
        return read_members(r, json_array(), read_element, "]");
    if (accept(r, "null"))
        return json_null();
    if (accept(r, "true"))
        return json_true();
    if (accept(r, "false"))
        return json_false();
    if (accept(r, "NaN") || accept(r, "Infinity") || accept(r, "-Infinity"))
        return not_finite();
    return read_number(r);
}

/* ---- the document ---- */

static json_t *read_document(reader *r)
{
    static const char mark[] = "\xef\xbb\xbf"; /* a byte order mark, which editors put before UTF-8 */
    if (!clv_utf8_valid(r->text, (size_t)(r->end - r->text)))
        return wrong(r, "not UTF-8");
    accept(r, mark);
    json_t *document = read_value(r);
    skip_whitespace(r);
    if (document && r->at < r->end) {
        json_decref(document);
        return wrong(r, "more after the value");
    }
    return document;
}

static clv_status report_error(const reader *r, const char *where, clv_error *err)
{
    int line = 1;
    const char *begin = r->text;
    CLV_TRY(clv_file_kind_refuse(r->text, (size_t)(r->end - r->text), "JSON", where, err));
    for (const char *at = r->text; at < r->at; at++)
        if (*at == '\n') {
            line++;
            begin = at + 1;
        }
    return clv_fail(err, CLV_EFORMAT, "%s: not JSON: %s (line %d, column %lld)", where,
                    r->at == r->end ? "it ends too early" : r->fault, line, (long long)(r->at - begin) + 1);
}

clv_status clv_json_parse(json_t **out, const char *text, size_t size, clv_json_keys keys, const char *where,
                          clv_error *err)
{
    CLV_FREED char *copy = malloc(size + 1), *decoded = malloc(size + 1);
    reader r = {
        .text = copy, .at = copy, .end = copy + size, .decoded = decoded, .unique = keys == CLV_JSON_KEYS_UNIQUE};
    json_t *document = NULL;
    if (copy && decoded) {
        memcpy(copy, text, size);
        copy[size] = '\0';
        document = read_document(&r);
    }
    if (!document)
        return r.fault ? report_error(&r, where, err) : clv_fail_memory(err, where, size);
    *out = document;
    return CLV_OK;
}
