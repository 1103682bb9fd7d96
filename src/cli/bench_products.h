/* bench_products.h - the products of a program alone: those very ones, on all ranks at once, in pairs with whole runs.
 */
#ifndef CLEAVE_CLI_BENCH_PRODUCTS_H
#define CLEAVE_CLI_BENCH_PRODUCTS_H

#include "cleave/session.h"
#include "cli/table.h"

typedef struct clv_bench_products clv_bench_products;

/* For so many runs at most; free with clv_bench_products_free. */
clv_status clv_bench_products_new(clv_bench_products **out, const clv_program *program, int64_t runs, clv_error *err);
void clv_bench_products_free(clv_bench_products *p);

/* Behind a run of the program, whose stats were not taken yet, in a session that times instructions: the same products
 * once more, alone. Takes the session's stats; `run` receives those of the run. */
clv_status clv_bench_products_run(clv_bench_products *p, clv_session *session, clv_session_stats *run, clv_error *err);

/* products_ms and step_over_products (medians over the runs), and a list "products": {"batch", "m", "n", "k", "calls",
 * "ms", "alone_ms", "gflops"} by shape, of a run; ms in it, alone_ms and the rate alone. */
void clv_bench_products_add(clv_table *t, clv_bench_products *p);

#endif
