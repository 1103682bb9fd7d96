/* human_units.c - human-readable units: prints bytes ("16.3 MiB"), seconds ("103 us") and counts ("633 M"). */
#include "cleave/text.h"

#include <math.h>
#include <stdio.h>

#include "base/text/c_locale.h"

typedef struct unit {
    const char *name;
    double size;
} unit;

/* Returns the largest unit that is at most the value, rounded (times `rounding`); else the smallest. */
static const unit *choose_unit(const unit *units, int n, double value, double rounding)
{
    int i = n - 1;
    while (i > 0 && !(fabs(value) >= units[i].size * rounding))
        i--;
    return &units[i];
}

int clv_print_bytes(char *out, size_t size, double bytes)
{
    static const unit units[] = {{"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                                 {"TiB", 0x1p40}, {"PiB", 0x1p50}, {"EiB", 0x1p60}};
    /* 1023.95 KiB and more would print as 1024.0 KiB. */
    const unit *u = choose_unit(units, sizeof units / sizeof *units, bytes, bytes < 1024 ? 1 : 1 - 0.05 / 1024);
    return clv_snprintf(out, size, u->size == 1 ? "%.0f %s" : "%.1f %s", bytes / u->size, u->name);
}

int clv_print_bytes_exactly(char *out, size_t size, double bytes)
{
    char text[CLV_QUANTITY_TEXT];
    clv_print_bytes(text, sizeof text, bytes);
    if (fabs(bytes) < 1024)
        return clv_snprintf(out, size, "%s", text);
    return clv_snprintf(out, size, "%s (%.0f)", text, bytes);
}

static int print_three_digits(char *out, size_t size, double value, const unit *units, int n)
{
    const unit *u = choose_unit(units, n, value, 0.9995);
    double scaled = value / u->size;
    int decimals = fabs(scaled) < 9.995 ? 2 : fabs(scaled) < 99.95 ? 1 : 0;
    return clv_snprintf(out, size, "%.*f%s%s", value == 0 ? 0 : decimals, scaled, *u->name ? " " : "", u->name);
}

int clv_print_seconds(char *out, size_t size, double seconds)
{
    static const unit units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    if (seconds == 0)
        return snprintf(out, size, "0 s");
    return print_three_digits(out, size, seconds, units, sizeof units / sizeof *units);
}

int clv_print_count(char *out, size_t size, double count)
{
    static const unit units[] = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18}};
    return print_three_digits(out, size, count, units, sizeof units / sizeof *units);
}
