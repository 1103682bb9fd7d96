/* op_cases.h - what the tests of ops share: small graphs, tolerances by dtype, and refusals. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph_interpreter.h"
#include "unit_test.h"

enum { SEED = 20240607 };

#define DIMS(...)                                                                                                      \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static inline clv_graph *new_graph(void)
{
    clv_mesh mesh;
    clv_graph *graph = NULL;
    assert_int_equal(clv_mesh_parse(&mesh, "x=2", NULL), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
    return graph;
}

static inline clv_value input(clv_graph *graph, const char *name, clv_dtype dtype, int rank, const int64_t *shape)
{
    return clv_input(graph, name, dtype, rank, shape, NULL);
}

static inline clv_value scalar(clv_graph *graph, const char *name, clv_dtype dtype)
{
    return clv_input(graph, name, dtype, 0, NULL, NULL);
}

/* |got - want| <= tol * max(1, |want|), element by element. */
static inline void assert_close(graph_eval *eval, clv_value value, const double *want, int64_t n, double tol)
{
    for (int64_t i = 0; i < n; i++) {
        double got = graph_eval_get(eval, value, i);
        if (!(fabs(got - want[i]) <= tol * fmax(1, fabs(want[i]))))
            fail_msg("value %d, element %lld: %.12g, expected %.12g", value.id, (long long)i, got, want[i]);
    }
}

/* Rounding of one result of the dtype, with room for sums of tens of terms. */
static inline double tolerance(clv_dtype dtype)
{
    return dtype == CLV_F64 ? 1e-13 : dtype == CLV_F32 ? 4e-6 : dtype == CLV_F16 ? 4e-3 : 3e-2;
}

static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16, CLV_F16};
enum { DTYPES = 4 };

/* The graph fails with `code` and a message that holds `text`. */
static inline void assert_refused(clv_graph *graph, clv_status code, const char *text)
{
    clv_error err = {0};
    clv_status status = clv_graph_status(graph, &err);
    if (status != code || !strstr(err.message, text))
        fail_msg("expected %s with '%s', got %s: '%s'", clv_status_name(code), text, clv_status_name(status),
                 err.message);
    clv_graph_free(graph);
}

static inline void copy_out(double *to, graph_eval *eval, clv_value value, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = graph_eval_get(eval, value, i);
}
