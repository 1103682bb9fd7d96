/* layouts.h - the layouts that a plan search considers: meshes of so many ranks, with the presets that fit them, as
 * programs run, and with stages, context and experts, as they are planned.
 */
#ifndef CLEAVE_MODELS_PLAN_SEARCH_LAYOUTS_H
#define CLEAVE_MODELS_PLAN_SEARCH_LAYOUTS_H

#include "models/plan/axes/moe_config.h"
#include "models/plan/plan_price.h"

typedef struct clv_plan_search_layout {
    clv_mesh mesh;
    clv_axis_rules rules; /* of one that does not run the name alone */
    int64_t rows;         /* ranks that the batch is split over */
    bool runs;            /* by a schedule that runs */
    bool planned;         /* priced by clv_estimate_price; the next ones are of these */
    int64_t stages, context, expert, model;
    double state; /* bytes of a rank's parameters and optimizer at least */
} clv_plan_search_layout;

typedef struct clv_plan_search_space {
    const clv_plan_options *base;
    clv_price_shape shape;
    int64_t devices, batch;
    clv_moe_config moe;     /* of a model with experts; else all 0 */
    double parameters;      /* of the model; 0: a block */
    const char *rules;      /* a preset; NULL: each */
    bool programs, planned; /* which kinds are searched */
    bool runnable;          /* of planned ones those that run alone */
    bool both_axis_orders;  /* ranks are on several hosts */
    bool trains, generates;
} clv_plan_search_space;

/* Layouts that are being listed. */
typedef struct clv_layout_list {
    int n, capacity;
    clv_plan_search_layout *item;
    clv_error refused; /* why the first preset did not fit a mesh */
} clv_layout_list;

clv_status clv_layout_list_append(clv_layout_list *list, const clv_plan_search_layout *layout, clv_error *err);
/* Adds meshes with stages, context or experts. */
clv_status clv_layout_list_add_planned(clv_layout_list *list, const clv_plan_search_space *space, clv_error *err);

/* Lists them; free(*out). @return CLV_EINVAL if there is none, with the reason */
clv_status clv_plan_search_space_list(clv_plan_search_layout **out, int *n, const clv_plan_search_space *space,
                                      clv_error *err);

#endif
