/* metrics_plot.h - SVG plot of metrics.jsonl of training runs: loss and tokens per second over steps. */
#pragma once

#include "cleave/status.h"

enum { CLV_PLOT_RUNS = 8 /* at most, each in a colour of its own */ };

/* Draws what the lines of n files say to `out`, an SVG; nothing is drawn where a line is null or absent. Of several
 * runs each has its colour and its file's name, and validation is dashed.
 * @return CLV_EINVAL for n; CLV_ENOTFOUND, CLV_EIO naming the file; CLV_ENOMEM */
clv_status clv_plot_metrics(const char *const *metrics, int n, const char *out, clv_error *err);

/* CLV_EINVAL for what no run has written: there is no line of a step; else as clv_plot_metrics. */
clv_status clv_plot_check(const char *metrics, clv_error *err);
