/* plot.h - the lines of metrics of a run as a picture: losses, and tokens a second, over steps. */
#ifndef CLEAVE_CLI_PLOT_H
#define CLEAVE_CLI_PLOT_H

#include "cleave/status.h"

/* Draws what the lines of `metrics` say to `out`, an SVG; nothing is drawn where a line is null or absent.
 * @return CLV_ENOTFOUND, CLV_EIO naming the file; CLV_ENOMEM */
clv_status clv_plot_metrics(const char *metrics, const char *out, clv_error *err);

#endif
