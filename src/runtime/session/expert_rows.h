/* expert_rows.h - dispatch_rows and combine_rows on a rank: which rows go where, by the choices of experts.
 *
 * All ranks of a group have the choices of all its rows, so each counts for itself what it sends and receives before
 * any row moves; the transport moves spans of these sizes (clv_transfer.sends). A dispatch copies the rows that a rank
 * sends into messages, and receives in place, packed; a combine sends from there, and sums what it received row by row.
 *
 * Overflow: all ranks of the group count the rows of all of them, and fail alike if one has no room for its own:
 *           CLV_ELIMIT, with the rank, its rows, its room and the factor that would do.
 */
#pragma once

#include "runtime/session/executor.h"

typedef struct clv_expert_rows_step clv_expert_rows_step;

/* Prepares instruction i of a loaded program with views on a rank, and *prepared, the collective that it uses. */
clv_status clv_expert_rows_prepare(clv_expert_rows_step **out, clv_prepared_collective **prepared,
                                   const clv_loaded_program *loaded, clv_comm *comm, int rank, int i, int64_t *staging,
                                   clv_error *err);
/* NULL is a no-op. */
void clv_expert_rows_free(clv_expert_rows_step *step);

/* Before the collective starts: counts rows, and fills messages. */
clv_status clv_expert_rows_begin(clv_expert_rows_step *step, clv_error *err);
/* When it has ended: completes the result. */
clv_status clv_expert_rows_end(clv_expert_rows_step *step, clv_error *err);
