/* auto_rules.h - reports the rules that `--rules auto` found: a line of text, an object of a table, a rules file. */
#ifndef CLEAVE_CLI_OPTIONS_FOUND_RULES_H
#define CLEAVE_CLI_OPTIONS_FOUND_RULES_H

#include "cli/options/plan_target_options.h"
#include "cli/output/table.h"

enum { CLV_FOUND_RULES_LINE = 1024 };

/* Writes "found: data as fsdp; model as megatron-sp; 3.1 % faster than megatron-sp; next ...", "" for no search. */
void clv_auto_rules_print(char *out, size_t size, const clv_found_rules *found);
/* Adds the object "found": in the presets' words, the runner-up, and each name with its axes, and what the best other
 * axes would cost. Nothing for no search. */
void clv_auto_rules_add(clv_table *table, const clv_found_rules *found);
/* Writes the rules with the plan's mesh and options, for --rules FILE. */
clv_status clv_auto_rules_save(const clv_plan_option *option, const char *path, clv_error *err);

#endif
