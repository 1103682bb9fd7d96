#include "program/cost.h"

const clv_cost_model clv_cost_default = {
    .alpha_s = 5e-6, .bytes_per_s = 8e9, .flops_per_s = 150e9, .memory_bytes_per_s = 10e9};
