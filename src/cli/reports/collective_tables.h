/* collective_tables.h - tables of a program's collectives: by kind, by layer, or one by one with their explanations.
 * Slices and masks, which move nothing, are left out.
 */
#pragma once

#include "cleave/program.h"
#include "cli/output/table.h"

/* By kind and axes: {"collectives_per_step": [{"op","axes","count","bytes"}]}. */
clv_table *clv_collective_table_by_kind(const clv_program *program);
/* machine NULL: the default one.
 * By layer, those of repeated layers together: {"collectives":
 * [{"op","kind","axes","pass","count","bytes","seconds","purpose","cause"}]}. */
clv_table *clv_collective_table_by_layer(const clv_program *program, const clv_machine *machine);
/* One by one: {"collectives":
 * [{"op","layer","tensor","kind","axes","bytes","seconds","overlapped","part","pass","purpose","implicit","reason",
 * "statement","rules","from","to","cause"}]}: the sentence, and its parts for programs; hidden: it runs beside ops;
 * part: "2/4", where it was cut into four. */
clv_table *clv_collective_table_one_by_one(const clv_program *program, const clv_machine *machine);
/* Adds the list "purposes" of those that the program has, in the order of the enum:
 * [{"purpose","collectives","bytes","seconds","overlapped_seconds"}]; seconds: exposed. */
void clv_collectives_add_purposes(clv_table *t, const clv_prediction_parts *parts);
/* Of all of them. */
double clv_collectives_total_bytes(const clv_program *program);

/* Of the seconds that collectives take, the part that hides behind ops; seen: what does not. */
double clv_overlapped_fraction(double overlapped, double exposed);
