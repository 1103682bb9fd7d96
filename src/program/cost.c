#include "program/cost.h"

const clv_cost_model clv_cost_default = {
    .alpha_s = 5e-6, .bytes_per_s = 4e9, .flops_per_s = 100e9, .memory_bytes_per_s = 20e9};
