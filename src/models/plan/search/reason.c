/* reason.c - the sentence that says why a candidate of a plan search lost to another one. */
#include "models/plan/search/reason.h"

#include <stdio.h>

#include "cleave/text.h"

/* Short: a terminal has some 45 columns for the sentence. */
static const char *const parts[CLV_TIME_COUNT] = {
    [CLV_TIME_PRODUCTS] = "matmuls, attention",
    [CLV_TIME_RECOMPUTED] = "recomputation",
    [CLV_TIME_OTHER_OPS] = "elementwise, copies",
    [CLV_TIME_WEIGHTS] = "weight gathers in hosts",
    [CLV_TIME_WEIGHTS_FAR] = "weight gathers, network",
    [CLV_TIME_GRADIENTS] = "gradient sums in hosts",
    [CLV_TIME_GRADIENTS_FAR] = "gradient sums, network",
    [CLV_TIME_ACTIVATIONS] = "TP collectives in hosts",
    [CLV_TIME_ACTIVATIONS_FAR] = "TP collectives, network",
};

/* Exposed seconds of a part. */
static double exposed(const clv_price *price, int part)
{
    double all = price->communication + price->overlapped;
    double share = part >= CLV_TIME_WEIGHTS && all > 0 ? price->communication / all : 1;
    return price->part[part] * share;
}

static void compare_memory(char out[CLV_SEARCH_REASON], const clv_price *price, const clv_price *best)
{
    char bytes[CLV_QUANTITY_TEXT];
    double more = price->memory - best->memory;
    clv_print_bytes(bytes, sizeof bytes, more < 0 ? -more : more);
    snprintf(out, CLV_SEARCH_REASON, more == 0 ? "as fast, in as much memory" : "as fast, with %s %s", bytes,
             more < 0 ? "less memory" : "more memory");
}

void clv_search_reason(char out[CLV_SEARCH_REASON], const clv_price *price, int64_t sequences, const clv_price *best,
                       int64_t best_sequences)
{
    const double scale = (double)best_sequences / (double)sequences;
    const double slower = price->seconds * scale / best->seconds - 1;
    char seconds[CLV_QUANTITY_TEXT];
    int most = 0;
    double growth = -1;
    for (int i = 0; i < CLV_TIME_COUNT; i++) {
        double more = exposed(price, i) * scale - exposed(best, i);
        most = more > growth ? i : most;
        growth = more > growth ? more : growth;
    }
    if (slower < 5e-4) {
        compare_memory(out, price, best);
        return;
    }
    clv_print_seconds(seconds, sizeof seconds, growth);
    snprintf(out, CLV_SEARCH_REASON, "%.*f %% slower%s: +%s %s", slower < 0.1, 100 * slower,
             sequences == best_sequences ? "" : " a sequence", seconds, parts[most]);
}
