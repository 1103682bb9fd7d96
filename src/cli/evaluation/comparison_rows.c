/* comparison_rows.c - table rows of comparisons with a tolerance, and the --allow-nonfinite option. */
#include "cli/evaluation/comparison_rows.h"

#include <stdio.h>
#include <string.h>

bool clv_comparison_add_row(clv_table *t, const char *mesh, const clv_comparison *found)
{
    bool same = found->diverges[0] == '\0';
    clv_table_row(t);
    clv_table_text(t, "mesh", mesh);
    clv_table_int(t, "tensors", found->tensors);
    clv_table_real(t, "largest_error", found->largest_error);
    clv_table_text(t, "first_divergence", same ? "none" : found->diverges);
    clv_table_text(t, "element", same ? "none" : found->element);
    return same;
}

void clv_suggest_allow_nonfinite(clv_error *err)
{
    size_t used = strlen(err->message);
    if (err->code == CLV_ENONFINITE)
        snprintf(err->message + used, sizeof err->message - used, "; --allow-nonfinite goes on all the same");
}
