/* sequence_options.c - options of commands that read sequences, and warnings about truncated, skipped or duplicate
 * ones.
 */
#include "cli/input/sequence_options.h"

#include <stdlib.h>
#include <string.h>

#include "cli/output/messages.h"

/* Says which were cut, if there are any. */
static void report_cut(const clv_sequences *s, const char *command, long long all)
{
    clv_sequence_info one = {.size = sizeof one};
    long long cuts = 0;
    for (int64_t i = 0; clv_sequences_at(s, i, &one, NULL) == CLV_OK; i++)
        cuts += one.untruncated_tokens > one.tokens;
    if (cuts > 0)
        clv_log("%s: note: %lld of %lld were cut to %lld tokens:", command, cuts, all,
                (long long)clv_sequences_max_tokens(s));
    for (int64_t i = 0; clv_sequences_at(s, i, &one, NULL) == CLV_OK; i++)
        if (one.untruncated_tokens > one.tokens)
            clv_log("  %s: %lld tokens", one.name, (long long)one.untruncated_tokens);
}

/* ---- names ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char **sorted_names(const clv_sequences *s, int64_t *n)
{
    clv_sequence_info one = {.size = sizeof one};
    int64_t fit = clv_sequences_count(s), left = clv_sequences_skipped_count(s);
    const char **names = malloc((size_t)(fit + left + 1) * sizeof *names);
    *n = 0;
    for (int64_t i = 0; names && i < fit && clv_sequences_at(s, i, &one, NULL) == CLV_OK; i++)
        names[(*n)++] = one.name;
    for (int64_t i = 0; names && i < left && clv_sequences_skipped_at(s, i, &one, NULL) == CLV_OK; i++)
        names[(*n)++] = one.name;
    if (names)
        qsort(names, (size_t)*n, sizeof *names, by_name);
    return names;
}

/* Rows are identified by the names of their records: two of one name, or of none, are likely a mistake. */
static void note_names(const clv_sequences *s, const char *command)
{
    int64_t n, unnamed = 0, again = 0, first = -1;
    const char **names = clv_sequences_is_fasta(s) ? sorted_names(s, &n) : NULL;
    for (int64_t i = 0; names && i < n; i++) {
        bool same = i > 0 && strcmp(names[i], names[i - 1]) == 0;
        unnamed += names[i][0] == '\0';
        again += same && names[i][0] != '\0';
        first = first < 0 && same && names[i][0] != '\0' ? i : first;
    }
    if (again > 0)
        clv_log("%s: note: %lld record%s the name of an earlier one, the first is '%s'", command, (long long)again,
                again == 1 ? " has" : "s have", names[first]);
    if (unnamed > 0)
        clv_log("%s: note: %lld record%s no name behind '>'", command, (long long)unnamed,
                unnamed == 1 ? " has" : "s have");
    free(names);
}

bool clv_sequences_print_warnings(const clv_sequences *s, const char *command)
{
    clv_sequence_info one = {.size = sizeof one};
    long long left = clv_sequences_skipped_count(s), all = clv_sequences_count(s) + left;
    note_names(s, command);
    report_cut(s, command, all);
    if (left > 0)
        clv_log("%s: %lld of %lld do not fit and were left out (the model takes 1 to %lld tokens; --truncate cuts to "
                "that):",
                command, left, all, (long long)clv_sequences_max_tokens(s));
    for (int64_t i = 0; clv_sequences_skipped_at(s, i, &one, NULL) == CLV_OK; i++)
        clv_log("  %s: %lld tokens%s", one.name, (long long)one.tokens,
                one.tokens > 0 && one.content_tokens == 0 ? ", none of them its own" : "");
    return left == 0;
}
