/* plot_series.h - downsampled series of one metric over steps. */
#ifndef CLEAVE_CLI_OUTPUT_PLOT_SERIES_H
#define CLEAVE_CLI_OUTPUT_PLOT_SERIES_H

#include <stdbool.h>
#include <stdint.h>

enum { CLV_SERIES_POINTS = 1024 };

/* Of one field of all lines. What is no number (null, not finite) is a gap. */
typedef struct clv_series_point {
    double first, last; /* steps that are put together */
    double mean;
    int64_t n; /* numbers; 0: a gap */
} clv_series_point;

typedef struct clv_series {
    const char *key;
    bool sparse;  /* steps without it are no gaps */
    int64_t each; /* values of a point, a power of 2; 0: nothing came yet */
    int64_t in_last;
    int n;
    clv_series_point of[CLV_SERIES_POINTS];
} clv_series;

/* Steps grow. */
void clv_series_add(clv_series *series, double step, double value);

/* Between what the means of points lie; false: there are none. */
bool clv_series_min_max(double *least, double *most, const clv_series *series);

#endif
