/* plot_series.c - downsampled series of one metric over steps. */
#include "cli/output/plot_series.h"

#include <math.h>

static void append(clv_series_point *p, double mean, int64_t n)
{
    p->n += n;
    if (n > 0)
        p->mean += (mean - p->mean) * ((double)n / (double)p->n);
}

/* Of two neighbours one, so that there is room for as many again. */
static void halve(clv_series *s)
{
    for (int i = 0; i < s->n / 2; i++) {
        const clv_series_point a = s->of[2 * i], b = s->of[2 * i + 1];
        s->of[i] = a;
        s->of[i].last = b.last;
        append(&s->of[i], b.mean, b.n);
    }
    s->n /= 2;
    s->each *= 2;
    s->in_last = s->each;
}

void clv_series_add(clv_series *s, double step, double value)
{
    bool is_number = isfinite(value);
    if (!is_number && s->sparse)
        return;
    if (s->each == 0)
        s->each = s->in_last = 1;
    if (s->in_last == s->each && s->n == CLV_SERIES_POINTS)
        halve(s);
    if (s->n == 0 || s->in_last == s->each) {
        s->of[s->n++] = (clv_series_point){.first = step};
        s->in_last = 0;
    }
    clv_series_point *p = &s->of[s->n - 1];
    s->in_last++;
    p->last = step;
    if (is_number)
        append(p, value, 1);
}

bool clv_series_min_max(double *least, double *most, const clv_series *s)
{
    *least = INFINITY;
    *most = -INFINITY;
    for (int i = 0; i < s->n; i++) {
        if (s->of[i].n == 0)
            continue;
        *least = fmin(*least, s->of[i].mean);
        *most = fmax(*most, s->of[i].mean);
    }
    return *most >= *least;
}
