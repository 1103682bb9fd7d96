/* json_input.h - reading the examples' requests: numbers and matrices from a JSON object on stdin. */
#ifndef CLEAVE_EXAMPLES_JSON_INPUT_H
#define CLEAVE_EXAMPLES_JSON_INPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct example_error {
    char text[256];
} example_error;

static inline json_t *example_read(example_error *why)
{
    json_error_t error;
    json_t *root = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(root))
        return root;
    if (ferror(stdin))
        snprintf(why->text, sizeof why->text, "stdin cannot be read");
    else if (root)
        snprintf(why->text, sizeof why->text, "stdin is JSON, but no object; valid: {\"tp\": 2, ...}");
    else
        snprintf(why->text, sizeof why->text, "stdin is not JSON: line %d: %.160s", error.line, error.text);
    json_decref(root);
    return NULL;
}

/* A whole number in [lo, hi]; 3.0 counts as one. */
static inline bool example_integer(int64_t *out, const json_t *root, const char *key, int64_t lo, int64_t hi,
                                   example_error *why)
{
    const json_t *value = json_object_get(root, key);
    double real = json_is_real(value) ? json_real_value(value) : 0;
    bool fits = real >= (double)lo && real <= (double)hi;
    bool whole = json_is_integer(value) || (json_is_real(value) && fits && real == (double)(int64_t)real);
    int64_t number = json_is_integer(value) ? json_integer_value(value) : whole ? (int64_t)real : 0;
    if (!whole || number < lo || number > hi) {
        snprintf(why->text, sizeof why->text, "\"%s\" must be a whole number from %lld to %lld", key, (long long)lo,
                 (long long)hi);
        return false;
    }
    *out = number;
    return true;
}

/* A list of lists of numbers, all of one length; the caller frees *out. */
static inline bool example_matrix(double **out, int64_t *rows, int64_t *cols, const json_t *root, const char *key,
                                  example_error *why)
{
    const json_t *list = json_object_get(root, key);
    size_t n = json_array_size(list), m = json_array_size(json_array_get(list, 0));
    bool ok = json_is_array(list) && n > 0 && m > 0;
    double *values = ok ? malloc(n * m * sizeof *values) : NULL;
    for (size_t i = 0; ok && values && i < n; i++) {
        const json_t *row = json_array_get(list, i);
        ok = json_is_array(row) && json_array_size(row) == m;
        for (size_t j = 0; ok && j < m; j++) {
            ok = json_is_number(json_array_get(row, j));
            values[i * m + j] = json_number_value(json_array_get(row, j));
        }
    }
    if (!ok || !values) {
        snprintf(why->text, sizeof why->text,
                 "\"%s\" must be a list of rows of numbers, at least 1 by 1, all rows of "
                 "one length",
                 key);
        free(values);
        return false;
    }
    *out = values;
    *rows = (int64_t)n;
    *cols = (int64_t)m;
    return true;
}

#endif
