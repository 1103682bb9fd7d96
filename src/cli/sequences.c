/* sequences.c - see sequences.h. */
#include "cli/sequences.h"

#include "cli/say.h"

/* Says which were cut, if there are any. */
static void report_cut(const clv_sequences *s, const char *command, long long all)
{
    clv_sequence_info one = {.size = sizeof one};
    long long cuts = 0;
    for (int64_t i = 0; clv_sequences_at(s, i, &one, NULL) == CLV_OK; i++)
        cuts += one.whole > one.tokens;
    if (cuts > 0)
        clv_say("%s: note: %lld of %lld were cut to %lld tokens:", command, cuts, all,
                (long long)clv_sequences_most(s));
    for (int64_t i = 0; clv_sequences_at(s, i, &one, NULL) == CLV_OK; i++)
        if (one.whole > one.tokens)
            clv_say("  %s: %lld tokens", one.name, (long long)one.whole);
}

bool clv_sequences_report(const clv_sequences *s, const char *command)
{
    clv_sequence_info one = {.size = sizeof one};
    long long left = clv_sequences_left_out(s), all = clv_sequences_count(s) + left;
    report_cut(s, command, all);
    if (left > 0)
        clv_say("%s: %lld of %lld do not fit and were left out (the model takes 1 to %lld tokens; --truncate cuts to "
                "that):",
                command, left, all, (long long)clv_sequences_most(s));
    for (int64_t i = 0; clv_sequences_left_out_at(s, i, &one, NULL) == CLV_OK; i++)
        clv_say("  %s: %lld tokens%s", one.name, (long long)one.tokens,
                one.tokens > 0 && one.own == 0 ? ", none of them its own" : "");
    return left == 0;
}
