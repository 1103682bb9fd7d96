/* rule_places.h - axis rules as sets of mesh axes, one for each name: what a search for rules varies. */
#ifndef CLEAVE_MODELS_PLAN_RULE_PLACES_H
#define CLEAVE_MODELS_PLAN_RULE_PLACES_H

#include "cleave/rules.h"

/* Where an axis may be: a logical axis, or the optimizer. In the order of the rules: where a tensor has two of them,
 * the first one takes the axis. */
typedef enum clv_rule_place {
    CLV_PLACE_BATCH,
    CLV_PLACE_HEADS,
    CLV_PLACE_KV_HEADS,
    CLV_PLACE_MLP,
    CLV_PLACE_VOCAB,
    CLV_PLACE_SEQ,
    CLV_PLACE_EMBED_KERNEL,
    CLV_PLACE_EMBED,
    CLV_PLACE_OPTIMIZER,
    CLV_PLACE_COUNT
} clv_rule_place;

/* "batch", ..., "optimizer". */
const char *clv_rule_place_name(clv_rule_place place);

/* Bit a of a place: mesh axis a splits it. Axes of a place are in the mesh's order. */
typedef struct clv_rule_places {
    uint16_t axes[CLV_PLACE_COUNT];
} clv_rule_places;

/* A use of one mesh axis that the field has a name for, by the places that the axis splits. */
typedef struct clv_axis_role {
    const char *name;
    unsigned places;         /* bit p: clv_rule_place p */
    bool is_outer, is_inner; /* a start of the search: of all axes but the last, of the last */
} clv_axis_role;

/* Role i; NULL past the last. The first splits nothing. */
const clv_axis_role *clv_axis_role_at(int i);

bool clv_rule_places_equal(const clv_rule_places *a, const clv_rule_places *b);
/* The places that mesh axis `axis` splits, as clv_axis_role.places; and setting them. */
unsigned clv_rule_places_of_axis(const clv_rule_places *places, int axis);
void clv_rule_places_set_axis(clv_rule_places *places, int axis, unsigned of);

/* The rules, with the name "auto". */
void clv_rule_places_to_rules(clv_axis_rules *out, const clv_rule_places *places);
/* The places of a preset's rules, which have these names in an equivalent order. */
void clv_rule_places_from_rules(clv_rule_places *out, const clv_axis_rules *preset);
/* Prints the axes of a place, "data,model", as snprintf does. */
void clv_rule_places_print(char *out, size_t size, const clv_rule_places *places, clv_rule_place place,
                           const clv_mesh *mesh);

/* Writes "data as fsdp; model as megatron-sp without vocab". useful: bit p, place p has an effect. */
void clv_rule_places_describe(char *out, size_t size, const clv_rule_places *places, unsigned useful,
                              const clv_mesh *mesh);

#endif
