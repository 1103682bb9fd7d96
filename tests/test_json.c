/* test_json.c - JSON is read as Python's json reads it (tests/golden/make_json.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_path.h"
#include "io/json/json.h"
#include "unit_test.h"

enum { LINE = 1 << 16 };

/* ---- values as make_json.py shows them ---- */

static void show_bytes(FILE *out, const char *text, size_t size)
{
    fputc('s', out);
    for (size_t i = 0; i < size; i++)
        fprintf(out, "%02x", (unsigned)(unsigned char)text[i]);
}

static void show(FILE *out, const json_t *value);

static void show_members(FILE *out, json_t *object)
{
    const char *key;
    size_t size;
    json_t *value;
    fputc('{', out);
    json_object_keylen_foreach(object, key, size, value)
    {
        show_bytes(out, key, size);
        show(out, value);
        fputc(',', out);
    }
    fputc('}', out);
}

static void show_real(FILE *out, double real)
{
    uint64_t bits;
    memcpy(&bits, &real, sizeof bits);
    fprintf(out, "r%016llx", (unsigned long long)bits);
}

static void show(FILE *out, const json_t *value)
{
    json_t *stand_in = json_pack("{s:n}", "a number that is not finite");
    if (json_equal(value, stand_in)) {
        fputc('x', out);
    } else if (json_is_object(value)) {
        show_members(out, (json_t *)value);
    } else if (json_is_array(value)) {
        fputc('[', out);
        for (size_t i = 0; i < json_array_size(value); i++) {
            show(out, json_array_get(value, i));
            fputc(',', out);
        }
        fputc(']', out);
    } else if (json_is_string(value)) {
        show_bytes(out, json_string_value(value), json_string_length(value));
    } else if (json_is_integer(value)) {
        fprintf(out, "i%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        show_real(out, json_real_value(value));
    } else {
        fputc(json_is_null(value) ? 'n' : json_is_true(value) ? 't' : 'f', out);
    }
    json_decref(stand_in);
}

/* The value of a text, or "-"; the caller frees. */
static char *shown(const char *text, size_t size)
{
    char *out = NULL;
    size_t length;
    clv_error err = {0};
    json_t *value = NULL;
    FILE *stream = open_memstream(&out, &length);
    assert_non_null(stream);
    if (clv_json_parse(&value, text, size, CLV_JSON_KEYS_LAST_WINS, "text", &err) == CLV_OK) {
        show(stream, value);
    } else {
        assert_int_equal(err.code, CLV_EFORMAT);
        assert_non_null(strstr(err.message, "text: "));
        fputc('-', stream);
    }
    json_decref(value);
    fclose(stream);
    return out;
}

static size_t from_hex(char *out, const char *hex)
{
    size_t n = 0;
    for (unsigned byte; sscanf(hex + 2 * n, "%2x", &byte) == 1 && hex[2 * n] != ' '; n++)
        out[n] = (char)byte;
    return n;
}

static void test_golden(void **state)
{
    static char line[LINE];
    FILE *file = fopen(golden_path("json_texts.txt"), "r");
    int cases = 0, wrong = 0;
    assert_non_null(file);
    for (; fgets(line, sizeof line, file); cases++) {
        char *want = strchr(line, ' ') + 1, *text = malloc(LINE);
        line[strcspn(line, "\n")] = '\0';
        size_t size = line[0] == ' ' ? 0 : from_hex(text, line);
        char *exact = realloc(text, size ? size : 1), *got = shown(exact, size); /* of its size, for the sanitizer */
        if (strcmp(got, want) != 0) {
            print_error("%.*s: %s, Python: %s\n", (int)size, exact, got, want);
            wrong++;
        }
        free(got);
        free(exact);
    }
    fclose(file);
    assert_true(cases > 600);
    assert_int_equal(wrong, 0);
}

/* Python's own limit is about as far. */
static void test_deep(void **state)
{
    static const char *const open[] = {"[", "{\"a\":", "[{\"a\":"}, *const close[] = {"]", "}", "}]"};
    for (size_t k = 0; k < sizeof open / sizeof open[0]; k++)
        for (int levels = 400; levels <= 400000; levels *= 1000) {
            size_t n = strlen(open[k]), m = strlen(close[k]), size = (size_t)levels * (n + m) + 1;
            char *text = malloc(size);
            for (int i = 0; i < levels; i++) {
                memcpy(text + (size_t)i * n, open[k], n);
                memcpy(text + (size_t)levels * n + 1 + (size_t)i * m, close[k], m);
            }
            text[(size_t)levels * n] = '1';
            char *got = shown(text, size), *cut = shown(text, size - 1);
            assert_true((strcmp(got, "-") != 0) == (levels == 400));
            assert_string_equal(cut, "-");
            free(got);
            free(cut);
            free(text);
        }
}

/* ---- what a key that is needed may hold ---- */

static json_t *read(const char *text)
{
    json_t *value = NULL;
    assert_int_equal(clv_json_parse(&value, text, strlen(text), CLV_JSON_KEYS_LAST_WINS, "x.json", NULL), CLV_OK);
    return value;
}

static void test_not_held(void **state)
{
    json_t *o =
        read("{\"i\":1e30,\"big\":1000000000000000019884624838656,\"n\":NaN,\"over\":1e400,\"s\":\"a\\u0000b\"}");
    int64_t i = 7;
    double r = 7;
    const char *s;
    size_t size;
    clv_error err;
    err = (clv_error){0};
    assert_int_equal(clv_json_get_int(&i, o, "i", CLV_JSON_OPTIONAL, 0, 9, "x.json", &err), CLV_EFORMAT);
    assert_string_equal(err.message, "x.json: \"i\" is 1e+30, valid are integers from 0 to 9");
    err = (clv_error){0};
    assert_int_equal(clv_json_get_int(&i, o, "big", CLV_JSON_OPTIONAL, 0, 9, "x.json", &err), CLV_EFORMAT);
    assert_string_equal(err.message, "x.json: \"big\" is 1e+30, valid are integers from 0 to 9");
    err = (clv_error){0};
    assert_int_equal(clv_json_get_real(&r, o, "n", CLV_JSON_OPTIONAL, 0, 9, "x.json", &err), CLV_EFORMAT);
    assert_string_equal(err.message, "x.json: \"n\" must be a finite number");
    assert_int_equal(clv_json_get_int(&i, o, "n", CLV_JSON_OPTIONAL, 0, 9, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_real(&r, o, "over", CLV_JSON_OPTIONAL, 0, 9, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_real(&r, o, "big", CLV_JSON_OPTIONAL, 0, 1e31, "x.json", NULL), CLV_OK);
    assert_true(r == 1e30 && i == 7);
    err = (clv_error){0};
    assert_int_equal(clv_json_get_string(&s, o, "s", CLV_JSON_OPTIONAL, "x.json", &err), CLV_EFORMAT);
    assert_string_equal(err.message, "x.json: \"s\" holds the character U+0000");
    assert_int_equal(clv_json_get_bytes(&s, &size, o, "s", "x.json", NULL), CLV_OK);
    assert_int_equal(size, 3);
    assert_memory_equal(s, "a\0b", 3);
    json_decref(o);
}

static void refused(const char *text, clv_json_keys keys, const char *message)
{
    json_t *value = NULL;
    clv_error err = {0};
    assert_int_equal(clv_json_parse(&value, text, strlen(text), keys, "x.json", &err), CLV_EFORMAT);
    assert_string_equal(err.message, message);
}

static void test_messages(void **state)
{
    refused("{\"a\":1,\n\"a\":2}", CLV_JSON_KEYS_UNIQUE, "x.json: not JSON: a duplicate key (line 2, column 4)");
    refused("{\"a\\u0000\":1}", CLV_JSON_KEYS_UNIQUE,
            "x.json: not JSON: the character U+0000 in a key (line 1, column 11)");
    refused("{\"a\":1", CLV_JSON_KEYS_LAST_WINS, "x.json: not JSON: it ends too early (line 1, column 7)");
    refused("{\"a\":1}\n]", CLV_JSON_KEYS_LAST_WINS, "x.json: not JSON: more after the value (line 2, column 1)");
    refused("\xff", CLV_JSON_KEYS_LAST_WINS, "x.json: not JSON: not UTF-8 (line 1, column 1)");
    refused("[1,\nhello]", CLV_JSON_KEYS_LAST_WINS, "x.json: not JSON: no value (line 2, column 1)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_not_held),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
