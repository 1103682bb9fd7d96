/* results.h - results of runs, as f32: how far two are apart, and what is said of one that is NaN or infinite. */
#ifndef CLEAVE_CLI_RESULTS_H
#define CLEAVE_CLI_RESULTS_H

#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

/* The largest magnitude among the finite ones of n; 0 when there is none. */
double clv_results_largest(const float *x, int64_t n);

/* Where two tensors differ most. */
typedef struct clv_difference {
    double error; /* relative to the largest of `want`, or the floor; infinite where either is NaN or infinite */
    int64_t at;   /* -1: nowhere */
} clv_difference;

/* Of n elements in rows of `per_row`, those whose mask [n / per_row] is 0 aside; mask NULL: none. */
clv_difference clv_results_difference(const float *got, const float *want, int64_t n, double floor, const float *mask,
                                      int64_t per_row);

/* "[1,0,7] is nan, not 0.25"; of one that is alike in both, and so is found for not being finite: "[1,0,7] is not
 * finite: -inf on both sides", or without the sides where `got` is `want`. */
void clv_results_print_difference(char *out, size_t size, int rank, const int64_t *shape, const float *got,
                                  const float *want, int64_t at);

/* What is said of an element that is off, and where what is not finite begins. */
enum { CLV_ELEMENT_TEXT = 1024 };
/* Adds "; it begins at rank 1, ..." to what is said of an element; NULL or "": nothing. */
void clv_results_add_beginning(char element[CLV_ELEMENT_TEXT], const char *begins);

/* Adds to the message of a CLV_ENONFINITE that --allow-nonfinite goes on. */
void clv_results_offer(clv_error *err);

/* The option of commands that refuse such results. */
#define CLV_RESULTS_OPTION(field)                                                                                      \
    {                                                                                                                  \
        .names = "--allow-nonfinite", .kind = CLV_OPTION_FLAG, .out = (field),                                         \
        .help = "go on when a result is NaN or infinite; else that is an error, and nothing is written"                \
    }

#endif
