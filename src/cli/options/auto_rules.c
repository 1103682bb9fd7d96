/* auto_rules.c - reports the rules that `--rules auto` found: a line of text, an object of a table, a rules file. */
#include "cli/options/auto_rules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cleave/text.h"

/* How much more another one takes, in percent. */
static double more_percent(const clv_found_rules *f, double seconds)
{
    return 100 * (seconds / f->seconds - 1);
}

void clv_auto_rules_print(char *out, size_t size, const clv_found_rules *f)
{
    char preset[128] = "", next[CLV_FOUND_RULES_TEXT + 64] = "";
    out[0] = '\0';
    if (f->priced == 0)
        return;
    if (f->preset[0])
        snprintf(preset, sizeof preset, "; %s +%.1f %%", f->preset, more_percent(f, f->preset_seconds));
    if (f->next[0])
        snprintf(next, sizeof next, "; next %s: +%.1f %%", f->next, more_percent(f, f->next_seconds));
    snprintf(out, size, "found: %s%s%s (%d priced)", f->like, preset, next, f->priced);
}

void clv_auto_rules_add(clv_table *t, const clv_found_rules *f)
{
    char text[CLV_FOUND_RULES_TEXT + 64], seconds[CLV_QUANTITY_TEXT];
    if (f->priced == 0)
        return;
    clv_table_begin_object(t, "found");
    clv_table_text(t, "like", f->like);
    clv_table_int(t, "priced", f->priced);
    clv_table_text(t, "preset", f->preset[0] ? f->preset : "none");
    if (f->preset[0])
        clv_table_seconds(t, "preset_seconds", f->preset_seconds);
    clv_table_text(t, "next", f->next[0] ? f->next : "none");
    if (f->next[0])
        clv_table_seconds(t, "next_seconds", f->next_seconds);
    for (int i = 0; i < f->n_rules; i++) {
        const clv_found_rule *rule = &f->rule[i];
        snprintf(text, sizeof text, "%s", rule->axes[0] ? rule->axes : "none");
        if (isfinite(rule->instead_seconds)) {
            clv_print_seconds(seconds, sizeof seconds, rule->instead_seconds);
            snprintf(text, sizeof text, "%s; %s: %s", rule->axes[0] ? rule->axes : "none",
                     rule->instead[0] ? rule->instead : "none", seconds);
        }
        clv_table_text(t, rule->name, text);
    }
}

clv_status clv_auto_rules_save(const clv_plan_option *o, const char *path, clv_error *err)
{
    const clv_saved_plan plan = {.size = sizeof plan,
                                 .mesh = o->mesh.mesh,
                                 .rules = o->mesh.axis_rules,
                                 .accumulate = o->plan.accumulate,
                                 .recompute = o->plan.compile.recompute,
                                 .reshard_after_forward = o->plan.compile.reshard_after_forward};
    return clv_saved_plan_write(&plan, path, err);
}
