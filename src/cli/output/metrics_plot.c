/* metrics_plot.c - SVG plot of metrics.jsonl of training runs: loss and tokens per second over steps. */
#include "cli/output/metrics_plot.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WIDTH = 900, LEFT = 78, RIGHT = 24, TICKS = 6, NAME = 64 };

/* ---- series of a metric ---- */

enum { SERIES_POINTS = 1024 };

/* A few neighbouring values of a metric; null and values that are not finite are gaps. */
typedef struct series_point {
    double first, last; /* the steps */
    double mean;
    int64_t n; /* values; 0: a gap */
} series_point;

typedef struct metric_series {
    const char *key;
    bool sparse;  /* steps without the metric are no gaps */
    int64_t each; /* values a point, a power of 2; 0: no value yet */
    int64_t in_last;
    int n;
    series_point of[SERIES_POINTS];
} metric_series;

static void append(series_point *p, double mean, int64_t n)
{
    p->n += n;
    if (n > 0)
        p->mean += (mean - p->mean) * ((double)n / (double)p->n);
}

/* Merges neighbours in pairs, which frees half of the points. */
static void halve(metric_series *s)
{
    for (int i = 0; i < s->n / 2; i++) {
        const series_point a = s->of[2 * i], b = s->of[2 * i + 1];
        s->of[i] = a;
        s->of[i].last = b.last;
        append(&s->of[i], b.mean, b.n);
    }
    s->n /= 2;
    s->each *= 2;
    s->in_last = s->each;
}

/* Steps must increase. */
static void add_to_series(metric_series *s, double step, double value)
{
    bool is_number = isfinite(value);
    if (!is_number && s->sparse)
        return;
    if (s->each == 0)
        s->each = s->in_last = 1;
    if (s->in_last == s->each && s->n == SERIES_POINTS)
        halve(s);
    if (s->n == 0 || s->in_last == s->each) {
        s->of[s->n++] = (series_point){.first = step};
        s->in_last = 0;
    }
    series_point *p = &s->of[s->n - 1];
    s->in_last++;
    p->last = step;
    if (is_number)
        append(p, value, 1);
}

/* The range of the means; false: there are none. */
static bool series_min_max(double *least, double *most, const metric_series *s)
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

/* ---- what lines say ---- */

/* The number after "key":; NAN: none. */
static double field(const char *line, const char *key)
{
    char name[NAME];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = strstr(line, name);
    char *end;
    if (!at)
        return NAN;
    at += strlen(name);
    double value = strtod(at, &end);
    return end > at ? value : NAN;
}

/* *last: its last step; -1: it has none. */
static clv_status read_metrics(double *last, metric_series *const *series, int n, const char *path, clv_error *err)
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return clv_fail(err, errno == ENOENT ? CLV_ENOTFOUND : CLV_EIO, "%s: cannot open: %s", path, strerror(errno));
    *last = -1;
    while (getline(&line, &room, file) > 0) {
        double step = field(line, "step");
        if (!(step > *last) || step > 1e15) /* no run writes these */
            continue;
        *last = step;
        for (int i = 0; i < n; i++)
            add_to_series(series[i], step, field(line, series[i]->key));
    }
    bool bad = ferror(file) != 0;
    free(line);
    fclose(file);
    return bad ? clv_fail(err, CLV_EIO, "%s: cannot read it", path) : CLV_OK;
}

/* ---- axes ---- */

/* An axis: values in [low, high] at pixels [from, to]. */
typedef struct scale {
    double low, high, from, to;
    bool log;
} scale;

static double place(const scale *s, double value)
{
    double low = s->log ? log10(s->low) : s->low, high = s->log ? log10(s->high) : s->high;
    double at = s->log ? log10(value) : value;
    return s->from + (s->to - s->from) * (at - low) / (high - low);
}

/* 1, 2 or 5 times a power of ten, so that about so many fit. */
static double nice_step(double extent, int ticks)
{
    double raw = extent / ticks, power = pow(10, floor(log10(raw)));
    double times = raw / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

/* Widens the range to whole ticks; an empty range gets some extent. */
static void widen(scale *s)
{
    if (!(s->high > s->low)) {
        double some = fabs(s->low) > 0 ? 0.1 * fabs(s->low) : 1;
        s->low -= s->log ? 0.5 * s->low : some;
        s->high += some;
    }
    if (s->log)
        return;
    double step = nice_step(s->high - s->low, TICKS);
    s->low = step * floor(s->low / step + 1e-9);
    s->high = step * ceil(s->high / step - 1e-9);
}

/* Prints a tick: 0.05, 250, 12k, 3M. */
static void print_tick(char out[NAME], double value, double step)
{
    enum { MOST_DIGITS = 6 };
    static const struct {
        double unit;
        const char *letter;
    } units[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    int digits = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    if (fabs(value) < step / 1e6)
        value = 0;
    if (digits > MOST_DIGITS || fabs(value) >= 1e13) {
        snprintf(out, NAME, "%.4g", value);
        return;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (fabs(value) >= units[i].unit && step >= units[i].unit / 10) {
            snprintf(out, NAME, "%.10g%s", value / units[i].unit, units[i].letter);
            return;
        }
    snprintf(out, NAME, "%.*f", digits, value);
}

static void draw_tick(FILE *svg, const scale *x, const scale *y, bool is_x, double value, const char *text)
{
    if (is_x)
        fprintf(svg,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                place(x, value), place(x, value), y->from, y->to, place(x, value), y->from + 18, text);
    else
        fprintf(svg,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                x->from, x->to, place(y, value), place(y, value), x->from - 8, place(y, value) + 4, text);
}

static void draw_ticks(FILE *svg, const scale *x, const scale *y, bool is_x)
{
    const scale *s = is_x ? x : y;
    char text[NAME];
    double step = nice_step(s->high - s->low, TICKS);
    if (is_x && step < 1)
        step = 1; /* steps are whole */
    if (!s->log) {
        for (double k = ceil(s->low / step - 1e-9); k * step <= s->high + 1e-9 * step; k++) {
            print_tick(text, k * step, step);
            draw_tick(svg, x, y, is_x, k * step, text);
        }
        return;
    }
    static const double times[] = {1, 2, 5};
    int n = s->high / s->low > 1000 ? 1 : 3;
    for (double power = pow(10, floor(log10(s->low))); power <= s->high; power *= 10)
        for (int i = 0; i < n; i++)
            if (power * times[i] >= s->low && power * times[i] <= s->high) {
                snprintf(text, sizeof text, "%.10g", power * times[i]);
                draw_tick(svg, x, y, is_x, power * times[i], text);
            }
}

/* ---- lines ---- */

static double middle(const series_point *p)
{
    return 0.5 * (p->first + p->last);
}

static void draw_dot(FILE *svg, const series_point *p, const scale *x, const scale *y, const char *cls)
{
    fprintf(svg, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", cls, place(x, middle(p)),
            place(y, p->mean));
}

/* Draws a line through means, broken at gaps; single points, and few points, are dots. */
static void draw_line(FILE *svg, const metric_series *s, const scale *x, const scale *y, const char *cls)
{
    enum { FEW = 64 };
    for (int i = 0, first; i < s->n; i++) {
        for (first = i; i < s->n && s->of[i].n > 0;)
            i++;
        if (i - first > 1) {
            fprintf(svg, "<polyline class=\"%s\" points=\"", cls);
            for (int k = first; k < i; k++)
                fprintf(svg, "%s%.1f,%.1f", k > first ? " " : "", place(x, middle(&s->of[k])), place(y, s->of[k].mean));
            fprintf(svg, "\"/>\n");
        }
        for (int k = first; k < i && (i - first == 1 || (s->sparse && s->n <= FEW)); k++)
            draw_dot(svg, &s->of[k], x, y, cls);
    }
}

/* The series of a run, in the order of `keys`. */
enum { LOSS, VAL, RATE, SERIES };

typedef struct curve {
    const metric_series *series;
    char cls[16];
    const char *name; /* NULL: no label */
} curve;

typedef struct panel {
    const char *title;
    double top, bottom;
    bool from_zero;
    int n;
    curve of[2 * CLV_PLOT_RUNS];
} panel;

/* The label of a curve: "run3", "run3 val" of several runs; else the metric. */
static void add_curve(panel *p, const metric_series *series, const char *alone, int run, bool dashed, const char *name)
{
    curve *c = &p->of[p->n++];
    *c = (curve){.series = series, .name = name};
    if (run < 0)
        snprintf(c->cls, sizeof c->cls, "%s", alone);
    else
        snprintf(c->cls, sizeof c->cls, "run%d%s", run, dashed ? " val" : "");
}

static void add_curves(panel *losses, panel *rates, const metric_series *all, const char *const *names, int n)
{
    bool several = n > 1;
    for (int r = 0; r < n; r++) {
        const metric_series *of = all + (ptrdiff_t)SERIES * r;
        int run = several ? r : -1;
        add_curve(losses, &of[LOSS], "train", run, false, several ? names[r] : "training");
        add_curve(losses, &of[VAL], "val", run, true, several ? NULL : "validation");
        add_curve(rates, &of[RATE], "rate", run, false, NULL);
    }
}

/* Escapes text for XML, which has no control characters. */
static void print_escaped(FILE *svg, const char *text)
{
    for (const char *c = text; *c; c++) {
        const char *is = *c == '&' ? "&amp;" : *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : NULL;
        if (is)
            fputs(is, svg);
        else
            fputc((unsigned char)*c < ' ' ? '?' : *c, svg);
    }
}

static void find_scale(scale *y, const panel *p)
{
    double least, most;
    *y = (scale){.low = INFINITY, .high = -INFINITY, .from = p->bottom, .to = p->top};
    for (int i = 0; i < p->n; i++)
        if (series_min_max(&least, &most, p->of[i].series)) {
            y->low = fmin(y->low, least);
            y->high = fmax(y->high, most);
        }
    if (!(y->high >= y->low)) { /* no values */
        y->low = 0;
        y->high = 1;
    }
    y->log = !p->from_zero && y->low > 0 && y->high / y->low > 20;
    if (p->from_zero)
        y->low = fmin(0, y->low);
    widen(y);
}

static void draw_panel(FILE *svg, const panel *p, const scale *x)
{
    scale y;
    find_scale(&y, p);
    draw_ticks(svg, x, &y, true);
    draw_ticks(svg, x, &y, false);
    fprintf(svg, "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", x->from, y.to,
            x->to - x->from, y.from - y.to);
    fprintf(svg, "<text x=\"%.1f\" y=\"%.1f\" class=\"title\">%s%s</text>\n", x->from, y.to - 8, p->title,
            y.log ? " (log)" : "");
    for (int i = 0, n_labels = 0; i < p->n; i++) {
        if (p->of[i].series->n == 0)
            continue;
        draw_line(svg, p->of[i].series, x, &y, p->of[i].cls);
        if (!p->of[i].name)
            continue;
        fprintf(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" class=\"%s key\">", x->to - 8,
                y.to + 16 + 16 * n_labels++, p->of[i].cls);
        print_escaped(svg, p->of[i].name);
        fprintf(svg, "</text>\n");
    }
}

/* The axis of steps of all runs. */
static void find_steps(scale *x, const panel *losses)
{
    x->low = INFINITY;
    x->high = -INFINITY;
    for (int i = 0; i < losses->n; i++) {
        const metric_series *s = losses->of[i].series;
        x->low = s->n > 0 ? fmin(x->low, s->of[0].first) : x->low;
        x->high = s->n > 0 ? fmax(x->high, s->of[s->n - 1].last) : x->high;
    }
    if (!(x->high >= x->low)) /* no steps */
        x->low = x->high = 0;
    if (!(x->high > x->low))
        x->high = x->low + 1;
}

static void draw_style(FILE *svg, int n)
{
    static const char *const colours[CLV_PLOT_RUNS] = {"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e",
                                                       "#9467bd", "#8c564b", "#e377c2", "#17becf"};
    static const char *const alone[SERIES] = {"train", "val", "rate"};
    fprintf(svg, "<style>text{font:12px sans-serif;fill:#333}.title{font-weight:bold}.grid{stroke:#e4e4e4}"
                 ".frame{fill:none;stroke:#888}polyline{fill:none;stroke-width:1.5}");
    if (n > 1)
        fprintf(svg, "polyline.val{stroke-dasharray:5 3}");
    for (int k = 0; k < (n > 1 ? n : SERIES); k++) {
        char cls[16];
        if (n > 1)
            snprintf(cls, sizeof cls, "run%d", k);
        else
            snprintf(cls, sizeof cls, "%s", alone[k]);
        fprintf(svg, "polyline.%s{stroke:%s}circle.%s,.key.%s{fill:%s}", cls, colours[k], cls, cls, colours[k]);
    }
    fprintf(svg, "</style>\n");
}

static void draw(FILE *svg, const metric_series *all, const char *const *names, int n)
{
    enum { HEIGHT = 620 };
    scale x = {.from = LEFT, .to = WIDTH - RIGHT};
    panel losses = {.title = "loss, nats a token", .top = 34, .bottom = 360},
          rates = {.title = "tokens a second", .top = 420, .bottom = 570, .from_zero = true};
    add_curves(&losses, &rates, all, names, n);
    find_steps(&x, &losses);
    fprintf(svg,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n"
            "<title>losses and tokens a second over steps</title>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_style(svg, n);
    fprintf(svg, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, HEIGHT);
    draw_panel(svg, &losses, &x);
    draw_panel(svg, &rates, &x);
    fprintf(svg, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">step</text>\n</svg>\n", 0.5 * (x.from + x.to),
            HEIGHT - 8);
}

/* ---- the file ---- */

static clv_status fail_write(const char *path, clv_error *err)
{
    return clv_fail(err, errno == ENOENT ? CLV_ENOTFOUND : CLV_EIO, "%s: cannot write: %s", path, strerror(errno));
}

/* Writes a temporary file and renames it; a device or pipe is written directly. */
static clv_status write_text(const char *path, const char *text, size_t size, clv_error *err)
{
    struct stat is;
    char *temporary = NULL;
    bool direct = lstat(path, &is) == 0 && !S_ISREG(is.st_mode);
    if (!direct && asprintf(&temporary, "%s.tmp-%ld", path, (long)getpid()) < 0)
        return clv_fail_memory(err, "the name of a file", strlen(path));
    FILE *file = fopen(direct ? path : temporary, "we");
    bool written = file && fwrite(text, 1, size, file) == size;
    written = file && fclose(file) == 0 && written;
    if (written && !direct)
        written = rename(temporary, path) == 0;
    clv_status status = written ? CLV_OK : fail_write(path, err);
    if (!written && !direct)
        (void)unlink(temporary);
    free(temporary);
    return status;
}

static clv_status draw_to(const char *out, const metric_series *all, const char *const *names, int n, clv_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *svg = open_memstream(&text, &size);
    if (!svg)
        return clv_fail_memory(err, "a plot", 0);
    draw(svg, all, names, n);
    bool whole = fclose(svg) == 0;
    clv_status status = whole ? write_text(out, text, size, err) : clv_fail_memory(err, "a plot", size);
    free(text);
    return status;
}

clv_status clv_plot_check(const char *metrics, clv_error *err)
{
    double last;
    CLV_TRY(read_metrics(&last, NULL, 0, metrics, err));
    return last >= 0
               ? CLV_OK
               : clv_fail(err, CLV_EINVAL, "%s: has no line of a step; valid: the metrics.jsonl of a run", metrics);
}

clv_status clv_plot_metrics(const char *const *metrics, int n, const char *out, clv_error *err)
{
    double last;
    static const char *const keys[SERIES] = {"loss", "val_loss", "tokens_per_s"};
    if (n < 1 || n > CLV_PLOT_RUNS)
        return clv_fail(err, CLV_EINVAL, "%d runs in a picture; valid: 1 to %d", n, CLV_PLOT_RUNS);
    metric_series *all = calloc((size_t)n * SERIES, sizeof *all);
    clv_status status = all ? CLV_OK : clv_fail_memory(err, "a plot", (size_t)n * SERIES * sizeof *all);
    for (int r = 0; status == CLV_OK && r < n; r++) {
        metric_series *of = all + (ptrdiff_t)SERIES * r, *const series[SERIES] = {of, of + 1, of + 2};
        for (int k = 0; k < SERIES; k++) {
            of[k].key = keys[k];
            of[k].sparse = k == VAL;
        }
        status = read_metrics(&last, series, SERIES, metrics[r], err);
    }
    if (status == CLV_OK)
        status = draw_to(out, all, metrics, n, err);
    free(all);
    return status;
}
