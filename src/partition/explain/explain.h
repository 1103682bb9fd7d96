/* explain.h - explanations: names of dimensions, why a value is resharded, which strategies were considered. */
#pragma once

#include "partition/partitioner.h"
#include "tensor/parse_print.h"

/* ---- dimension_names.c ---- */

/* Fills p->factor_names for the current op. */
void clv_explain_name_factors(clv_partitioner *p, const clv_op *op, const clv_rule *rule);
/* Names the dimensions of the op's results by them. */
void clv_explain_name_results(clv_partitioner *p, const clv_op *op, const clv_rule *rule);
/* Names the dimensions of a value by its annotation, else like those of `like` (0: none). */
void clv_explain_name_dims(clv_partitioner *p, int value, int like);

/* ---- explain_reshards.c: sentences, appended to t ---- */

/* "heads"; "batch over data, heads over model". Of the current op. */
void clv_explain_factor(clv_text *t, const clv_partitioner *p, const clv_op *op, const clv_rule *rule, int f);
void clv_explain_split(clv_text *t, const clv_partitioner *p, const clv_op *op, const clv_rule *rule,
                       const clv_strategy *strategy);
/* "the residual stream", "input x", "mlp.up.weight", "the result of mlp.dot_general", "the gradient of mlp.up.bias". */
void clv_explain_value(clv_text *t, const clv_partitioner *p, int value);
/* "result", "gradient of mlp.down.weight": what the op computes. */
void clv_explain_purpose(clv_text *t, const clv_partitioner *p, const clv_op *op);
/* Why an op has its strategy: the stated layouts that its axes come from. */
void clv_explain_choice(clv_text *t, const clv_partitioner *p, const clv_strategy_problem *problem,
                        const clv_strategy *strategy);
/* Why a value takes a step; of a constraint without a step, what it states. */
clv_status clv_explain_step(clv_reshard_explanation *out, const clv_partitioner *p, const clv_reshard_reason *why,
                            const clv_reshard_step *step, int value, clv_error *err);

/* ---- collective_purpose.c ---- */

/* Bit a: mesh axis a splits the experts of a weight. Of graph inputs, which are made and named. */
uint32_t clv_explain_find_expert_axes(const clv_partitioner *p);
/* Bit a: some value stays in place over mesh axis a (clv_keep_stationary): weights, and heads. */
uint32_t clv_explain_find_stationary_axes(const clv_graph *graph);
/* What a step of a reshard is for. */
clv_collective_purpose clv_explain_collective_purpose(const clv_partitioner *p, const clv_reshard_reason *why,
                                                      const clv_reshard_step *step, int value);

/* ---- explain_candidates.c ---- */

/* Whether clv_compile_options.explain names the op. */
bool clv_explain_is_requested(const clv_partitioner *p, const clv_op *op);
/* Records what a constraint states as its only candidate; the table's rows from first_row on are its reshard. */
clv_status clv_explain_constraint(clv_partitioner *p, const clv_op *op, const clv_reshard_reason *why, int first_row,
                                  clv_error *err);
/* Records the op's candidate strategies with their costs. */
clv_status clv_explain_candidates(clv_partitioner *p, const clv_strategy_problem *problem, const clv_strategy *chosen,
                                  clv_error *err);
/* Fills the decision of an op's row. */
clv_status clv_explain_decision(clv_sharding_row *row, clv_partitioner *p, const clv_strategy_problem *problem,
                                clv_error *err);
