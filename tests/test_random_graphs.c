/* test_random_graphs.c - random graphs on random meshes in random layouts, forward and gradient, over several runs,
 * against the same graph on one rank. CLV_CASES runs that many seeds, CLV_FIRST begins at another; CLV_SEED runs one
 * case (as a failure prints it) and shrinks it when it fails; CLV_PRINT shows its graph. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/graph.h"
#include "mpi_test_job.h"
#include "random_graph_run.h"
#include "sweep.h"
#include "unit_test.h"

enum { CASES = 220, THIN_CASES = 50, SECONDS = 120, MOST_OPS = 256 };

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void must_pass(const random_spec *spec, random_result result)
{
    if (!result.failed)
        return;
    char text[RANDOM_SPEC_TEXT];
    random_spec_print(text, spec);
    fprintf(stderr, "CLV_SEED=%s %s\nin short:\n", text, result.message);
    if (launched_job()) /* shrinking takes processes of one's own */
        fail_msg("%s", result.message);
    random_spec small = random_shrink(spec, &result, SECONDS);
    random_report(stderr, &small, &result);
    fail_msg("%s", result.message);
}

/* The case in hand, for a crash. */
static char running[RANDOM_SPEC_TEXT + 32];
static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
enum { N_CRASHES = sizeof crashes / sizeof crashes[0] };
static struct sigaction before[N_CRASHES];

/* Names the case, and leaves the rest to whom it was before (a sanitizer's report): the fault comes again. */
static void name_case(int signal)
{
    if (write(STDERR_FILENO, running, strlen(running)) > 0)
        for (int i = 0; i < N_CRASHES; i++)
            if (crashes[i] == signal)
                sigaction(signal, &before[i], NULL);
}

static uint32_t run_here(const random_spec *spec)
{
    char text[RANDOM_SPEC_TEXT];
    random_spec_print(text, spec);
    snprintf(running, sizeof running, "CLV_SEED=%s crashes\n", text);
    const random_result result = random_run(spec);
    must_pass(spec, result);
    return result.ways;
}

static void test_random_graphs(void **state)
{
    random_spec spec = {0};
    const char *one = getenv("CLV_SEED");
    uint64_t first = setting("CLV_FIRST", 0), n = setting("CLV_CASES", sweep_is_thin() ? THIN_CASES : CASES);
    if (one) {
        assert_true(random_spec_parse(&spec, one));
        if (getenv("CLV_PRINT"))
            random_report(stdout, &spec, &(random_result){.message = ""});
        must_pass(&spec, random_run_apart(&spec, SECONDS));
    }
    for (int i = 0; i < N_CRASHES; i++)
        sigaction(crashes[i], &(struct sigaction){.sa_handler = name_case}, &before[i]);
    int cases[RANDOM_WAYS] = {0};
    for (spec.seed = first; !one && spec.seed < first + n; spec.seed++) {
        const uint32_t ways = run_here(&spec);
        for (int w = 0; w < RANDOM_WAYS; w++)
            cases[w] += ways >> w & 1;
    }
    for (int w = 0; w < RANDOM_WAYS && !one && first == 0 && n == CASES; w++)
        if (cases[w] < 5)
            fail_msg("%d cases of %d have the way %d of random_graph_run.h", cases[w], CASES, w);
}

/* Every op of the table is in some of the graphs that are run where the sweep is not thin, with its rule and its
 * gradient: a new one must get there. */
static void test_every_op_is_made(void **state)
{
    bool made[MOST_OPS] = {false};
    int n = 0, missing = 0;
    const clv_op_def *ops[MOST_OPS];
    for (const clv_op_def *def = clv_op_next(NULL); def; def = clv_op_next(def)) {
        assert_true(n < MOST_OPS);
        ops[n++] = def;
    }
    for (random_spec spec = {0}; spec.seed < CASES; spec.seed++) {
        random_graph g;
        random_graph_build(&g, &spec, 0);
        for (int o = 0; o < g.graph->n_ops; o++)
            for (int i = 0; i < n; i++)
                made[i] = made[i] || ops[i] == g.graph->ops[o].def;
        random_graph_free(&g);
    }
    for (int i = 0; i < n; i++)
        if (!made[i]) {
            print_error("%s is never made\n", ops[i]->name);
            missing++;
        }
    assert_int_equal(missing, 0);
}

/* Seeds that soaks found: where rounding alone made more than it was known to (672 addends, nearly equal, that all
 * round the same way; attention's gradient where a row sees one key, of terms of 100 that cancel); where oneDNN
 * stopped; a ring of one stage's attention to what all stages have. */
static void test_found_by_soaks(void **state)
{
    enum { AS_THEY_WERE = RANDOM_MAXIMA | RANDOM_BLOCKS | RANDOM_NAMED };
    static const random_spec specs[] = {{.seed = 3316108911, .without = AS_THEY_WERE},
                                        {.seed = 3316141300, .without = AS_THEY_WERE},
                                        {.seed = 573118783, .without = AS_THEY_WERE},
                                        {.seed = 41379}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        run_here(&specs[i]);
}

/* What rounding may do is less than what one addend does that is lost, or there twice: but for those next to nothing,
 * and in one graph of thirty, which magnifies rounding as much (of 60 graphs 48 notice each addend, 2 next to none). */
static void test_notices_an_addend(void **state)
{
    random_keenness all = {0};
    for (uint64_t seed = 0; seed < 60; seed++) {
        random_keenness keen = random_keen(&(random_spec){.seed = seed}, 20);
        all.other += keen.other;
        all.noticed += keen.noticed;
    }
    if (!(all.other > 100 && 100 * all.noticed >= 93 * all.other))
        fail_msg("%d of %d spoilt sums were noticed", all.noticed, all.other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_op_is_made), cmocka_unit_test(test_random_graphs),
                                       cmocka_unit_test(test_found_by_soaks), cmocka_unit_test(test_notices_an_addend)};
    const struct CMUnitTest graphs[] = {cmocka_unit_test(test_random_graphs)};
    if (launched_job() || sweep_is_thin()) /* the others tell the same by each transport, device and sanitizer */
        return cmocka_run_group_tests(graphs, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
