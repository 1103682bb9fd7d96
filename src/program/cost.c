#include "program/cost.h"

const clv_cost_model clv_cost_default = {.alpha_s = CLV_DEFAULT_ALPHA_S,
                                         .bytes_per_s = CLV_DEFAULT_BYTES_PER_S,
                                         .flops_per_s = CLV_DEFAULT_FLOPS_PER_S,
                                         .memory_bytes_per_s = CLV_DEFAULT_MEMORY_BYTES_PER_S};
