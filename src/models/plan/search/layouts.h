/* layouts.h - the layouts that a plan search considers: meshes of so many ranks, with the presets that fit them.
 */
#ifndef CLEAVE_MODELS_PLAN_SEARCH_LAYOUTS_H
#define CLEAVE_MODELS_PLAN_SEARCH_LAYOUTS_H

#include "models/plan/plan_price.h"

typedef struct clv_search_layout {
    clv_mesh mesh;
    clv_axis_rules rules;
    int64_t rows; /* ranks that the batch is split over */
} clv_search_layout;

typedef struct clv_search_space {
    const clv_plan_options *base;
    clv_price_shape shape;
    int64_t devices, batch;
    const char *rules;     /* a preset; NULL: each */
    bool both_axis_orders; /* ranks are on several hosts */
    bool trains, generates;
} clv_search_space;

/* Lists them; free(*out). @return CLV_EINVAL if there is none, with the reason */
clv_status clv_search_layouts_list(clv_search_layout **out, int *n, const clv_search_space *space, clv_error *err);

#endif
