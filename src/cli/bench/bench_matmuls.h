/* bench_matmuls.h - matmul baseline: reruns only the matrix products of a program, alternating with whole runs, to
 * time the rest.
 */
#pragma once

#include "cleave/session.h"
#include "cli/output/table.h"

typedef struct clv_bench_matmuls clv_bench_matmuls;

/* For at most `runs` runs. Free with clv_bench_matmuls_free. */
clv_status clv_bench_matmuls_new(clv_bench_matmuls **out, const clv_program *program, int64_t runs, clv_error *err);
void clv_bench_matmuls_free(clv_bench_matmuls *p);

/* After a run of the program in a session that times instructions: runs its matrix products alone. Takes the session's
 * stats; *run receives those of the first run. */
clv_status clv_bench_matmuls_run(clv_bench_matmuls *p, clv_session *session, clv_session_stats *run, clv_error *err);

/* products_ms and step_over_products (medians over the runs), and a list "products": {"batch", "m", "n", "k", "calls",
 * "ms", "alone_ms", "gflops"} by shape, of a run; ms in it, alone_ms and the rate alone. */
void clv_bench_matmuls_add(clv_table *t, clv_bench_matmuls *p);
