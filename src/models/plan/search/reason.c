/* reason.c - the sentence that says why a candidate of a plan search lost to another one. */
#include "models/plan/search/reason.h"

#include <stdbool.h>
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
    [CLV_TIME_BUBBLE] = "pipeline bubble",
    [CLV_TIME_SENDS] = "sends between stages",
    [CLV_TIME_CONTEXT] = "context exchange",
    [CLV_TIME_EXPERTS] = "expert all-to-alls",
};

/* Exposed seconds of a part. */
static double exposed(const clv_price *price, int part)
{
    double all = price->communication + price->overlapped;
    double share = part >= CLV_TIME_WEIGHTS && all > 0 ? price->communication / all : 1;
    return price->part[part] * share;
}

/* Whether it is one of two: in hosts, and over the network. */
static bool is_pair(int part)
{
    return part >= CLV_TIME_WEIGHTS && part <= CLV_TIME_ACTIVATIONS_FAR;
}

/* The part that grew most, and by how much: of a pair the sum, as estimates know one of both alone. */
static int find_growth(double *growth, const clv_price *price, double scale, const clv_price *best)
{
    int most = 0;
    *growth = -1;
    for (int i = 0; i < CLV_TIME_COUNT; i += is_pair(i) ? 2 : 1) {
        const double here = exposed(price, i) * scale - exposed(best, i);
        const double far = is_pair(i) ? exposed(price, i + 1) * scale - exposed(best, i + 1) : 0;
        if (here + far <= *growth)
            continue;
        *growth = here + far;
        most = far > here ? i + 1 : i;
    }
    return most;
}

/* "; bubble -120 ms" where it is a hundredth of the best's seconds. */
static void add_bubble(char *out, size_t size, const clv_price *price, double scale, const clv_price *best)
{
    const double more = price->part[CLV_TIME_BUBBLE] * scale - best->part[CLV_TIME_BUBBLE];
    char seconds[CLV_QUANTITY_TEXT];
    clv_print_seconds(seconds, sizeof seconds, more < 0 ? -more : more);
    if (more > best->seconds / 100 || -more > best->seconds / 100)
        snprintf(out, size, "; bubble %c%s", more < 0 ? '-' : '+', seconds);
}

/* "; memory -2.1 GiB" where it differs by a tenth. */
static void add_memory(char *out, size_t size, const clv_price *price, const clv_price *best)
{
    const double more = price->memory - best->memory;
    char bytes[CLV_QUANTITY_TEXT];
    clv_print_bytes(bytes, sizeof bytes, more < 0 ? -more : more);
    if (more > best->memory / 10 || -more > best->memory / 10)
        snprintf(out, size, "; memory %c%s", more < 0 ? '-' : '+', bytes);
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
    char seconds[CLV_QUANTITY_TEXT], bubble[64] = "", memory[64] = "";
    double growth;
    const int most = find_growth(&growth, price, scale, best);
    if (slower < 5e-4) {
        compare_memory(out, price, best);
        return;
    }
    clv_print_seconds(seconds, sizeof seconds, growth);
    if (most != CLV_TIME_BUBBLE)
        add_bubble(bubble, sizeof bubble, price, scale, best);
    add_memory(memory, sizeof memory, price, best);
    snprintf(out, CLV_SEARCH_REASON, "%.*f %% slower%s: +%s %s%s%s", slower < 0.1, 100 * slower,
             sequences == best_sequences ? "" : " a sequence", seconds, parts[most], bubble, memory);
}
