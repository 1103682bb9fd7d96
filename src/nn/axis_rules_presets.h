/* axis_rules_presets.h - preset axis rules: rule lists by name, and the mesh axes that each needs. Heads, hidden and
 * vocabulary come before the sequence: between products they take the model axis, elsewhere the sequence does.
 */
#ifndef CLEAVE_NN_AXIS_RULES_PRESETS_H
#define CLEAVE_NN_AXIS_RULES_PRESETS_H

#include "cleave/rules.h"

enum { CLV_PRESET_RULES = 8, CLV_PRESET_NEEDS = 2 };

typedef struct clv_preset {
    const char *name;
    const char *needs[CLV_PRESET_NEEDS]; /* axes that the mesh must have; others are used where it has them */
    struct {
        clv_logical_axis name;
        const char *axis;
    } rule[CLV_PRESET_RULES];
    bool splits_optimizer; /* over "data" */
} clv_preset;

extern const clv_preset clv_default_preset;
extern const clv_preset clv_presets[];
extern const int clv_n_presets;

#endif
