#include "cli/plot.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/series.h"

enum { WIDTH = 900, LEFT = 78, RIGHT = 24, TICKS = 6, NAME = 64 };

/* ---- what lines say ---- */

/* The number behind "key":, NAN where there is none. */
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

static clv_status read_metrics(clv_series *const *series, int n, const char *path, clv_error *err)
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return clv_fail(err, errno == ENOENT ? CLV_ENOTFOUND : CLV_EIO, "%s: cannot open: %s", path, strerror(errno));
    for (double last = -1; getline(&line, &room, file) > 0;) {
        double step = field(line, "step");
        if (!(step > last) || step > 1e15) /* which no run writes */
            continue;
        last = step;
        for (int i = 0; i < n; i++)
            clv_series_add(series[i], step, field(line, series[i]->key));
    }
    bool bad = ferror(file) != 0;
    free(line);
    fclose(file);
    return bad ? clv_fail(err, CLV_EIO, "%s: cannot read it", path) : CLV_OK;
}

/* ---- axes ---- */

/* What a direction shows: values in [low, high] at pixels [from, to]. */
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

/* Widens to whole ticks, and what has no extent to some. */
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

/* As people write it: 0.05, 250, 12k, 3M. */
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

static double middle(const clv_series_point *p)
{
    return 0.5 * (p->first + p->last);
}

static void draw_dot(FILE *svg, const clv_series_point *p, const scale *x, const scale *y, const char *cls)
{
    fprintf(svg, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", cls, place(x, middle(p)),
            place(y, p->mean));
}

/* A line through means, apart at gaps; a point alone is a dot, and so are few. */
static void draw_line(FILE *svg, const clv_series *s, const scale *x, const scale *y, const char *cls)
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

typedef struct panel {
    const char *title;
    double top, bottom;
    bool from_zero;
    int n;
    struct {
        const clv_series *series;
        const char *cls, *name;
    } of[2];
} panel;

static void find_scale(scale *y, const panel *p)
{
    double least, most;
    *y = (scale){.low = INFINITY, .high = -INFINITY, .from = p->bottom, .to = p->top};
    for (int i = 0; i < p->n; i++)
        if (clv_series_range(&least, &most, p->of[i].series)) {
            y->low = fmin(y->low, least);
            y->high = fmax(y->high, most);
        }
    if (!(y->high >= y->low)) { /* there is nothing to see */
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
    for (int i = 0; i < p->n; i++) {
        if (p->of[i].series->n == 0)
            continue;
        draw_line(svg, p->of[i].series, x, &y, p->of[i].cls);
        if (p->n > 1)
            fprintf(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" class=\"%s key\">%s</text>\n", x->to - 8,
                    y.to + 16 + 16 * i, p->of[i].cls, p->of[i].name);
    }
}

static void draw(FILE *svg, const clv_series *loss, const clv_series *val, const clv_series *rate)
{
    enum { HEIGHT = 620 };
    scale x = {.from = LEFT, .to = WIDTH - RIGHT};
    const panel losses = {.title = "loss, nats a token",
                          .top = 34,
                          .bottom = 360,
                          .n = 2,
                          .of = {{loss, "train", "training"}, {val, "val", "validation"}}},
                rates = {.title = "tokens a second",
                         .top = 420,
                         .bottom = 570,
                         .from_zero = true,
                         .n = 1,
                         .of = {{rate, "rate", ""}}};
    x.low = loss->n > 0 ? loss->of[0].first : 0;
    x.high = loss->n > 0 ? loss->of[loss->n - 1].last : 1;
    if (!(x.high > x.low))
        x.high = x.low + 1;
    fprintf(svg,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n"
            "<title>losses and tokens a second over steps</title>\n"
            "<style>text{font:12px sans-serif;fill:#333}.title{font-weight:bold}.grid{stroke:#e4e4e4}"
            ".frame{fill:none;stroke:#888}polyline{fill:none;stroke-width:1.5}"
            "polyline.train{stroke:#1f77b4}circle.train,.key.train{fill:#1f77b4}"
            "polyline.val{stroke:#d62728}circle.val,.key.val{fill:#d62728}"
            "polyline.rate{stroke:#2ca02c}circle.rate{fill:#2ca02c}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
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

/* Beside its place first, so that nobody sees half of one; what is no plain file is written to. */
static clv_status write_text(const char *path, const char *text, size_t size, clv_error *err)
{
    struct stat is;
    char *beside = NULL;
    bool direct = lstat(path, &is) == 0 && !S_ISREG(is.st_mode);
    if (!direct && asprintf(&beside, "%s.tmp-%ld", path, (long)getpid()) < 0)
        return clv_fail_memory(err, "the name of a file", strlen(path));
    FILE *file = fopen(direct ? path : beside, "we");
    bool written = file && fwrite(text, 1, size, file) == size;
    written = file && fclose(file) == 0 && written;
    if (written && !direct)
        written = rename(beside, path) == 0;
    clv_status status = written ? CLV_OK : fail_write(path, err);
    if (!written && !direct)
        (void)unlink(beside);
    free(beside);
    return status;
}

clv_status clv_plot_metrics(const char *metrics, const char *out, clv_error *err)
{
    static const char *const keys[] = {"loss", "val_loss", "tokens_per_s"};
    enum { N = 3 };
    char *text = NULL;
    size_t size = 0;
    clv_series *all = calloc(N, sizeof *all), *const series[N] = {all, all + 1, all + 2};
    if (!all)
        return clv_fail_memory(err, "a plot", N * sizeof *all);
    for (int i = 0; i < N; i++) {
        all[i].key = keys[i];
        all[i].sparse = i == 1;
    }
    clv_status status = read_metrics(series, N, metrics, err);
    FILE *svg = status == CLV_OK ? open_memstream(&text, &size) : NULL;
    if (svg) {
        draw(svg, series[0], series[1], series[2]);
        bool whole = fclose(svg) == 0;
        status = whole ? write_text(out, text, size, err) : clv_fail_memory(err, "a plot", size);
    } else if (status == CLV_OK) {
        status = clv_fail_memory(err, "a plot", 0);
    }
    free(text);
    free(all);
    return status;
}
