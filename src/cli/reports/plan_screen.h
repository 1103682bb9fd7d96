/* plan_screen.h - prints the first screen of `cleave plan`: what is planned, does it fit, where the time goes, what to
 * change. */
#pragma once

#include "cli/reports/plan_report.h"

/* Prints it on stdout, as wide as the terminal, in at most 23 lines of 80 columns unless names are very long: the
 * kinds of memory, and the purposes of collectives, that take least are added up. */
void clv_plan_screen_print(const clv_plan_report *report);
