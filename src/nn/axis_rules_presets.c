/* axis_rules_presets.c - table of preset axis rules: dp, fsdp, megatron, megatron-sp, gspmd-2d, zero1. */
#include "nn/axis_rules_presets.h"

#define MEGATRON                                                                                                       \
    {CLV_BATCH, "data"}, {CLV_HEADS, "model"}, {CLV_KV_HEADS, "model"}, {CLV_HIDDEN, "model"},                         \
    {                                                                                                                  \
        CLV_VOCAB, "model"                                                                                             \
    }

const clv_preset clv_default_preset = {.name = "megatron", .rule = {MEGATRON}};

const clv_preset clv_presets[] = {
    {.name = "dp", .needs = {"data"}, .rule = {{CLV_BATCH, "data"}}},
    {.name = "fsdp", .needs = {"data"}, .rule = {{CLV_BATCH, "data"}, {CLV_EMBED_KERNEL, "data"}}},
    {.name = "megatron", .needs = {"model"}, .rule = {MEGATRON}},
    {.name = "megatron-sp", .needs = {"model"}, .rule = {MEGATRON, {CLV_SEQ, "model"}}},
    {.name = "fsdp+megatron-sp",
     .needs = {"data", "model"},
     .rule = {MEGATRON, {CLV_SEQ, "model"}, {CLV_EMBED_KERNEL, "data"}}},
    {.name = "gspmd-2d",
     .needs = {"X", "Y"},
     .rule = {{CLV_BATCH, "X"},
              {CLV_HIDDEN, "Y"},
              {CLV_HEADS, "Y"},
              {CLV_KV_HEADS, "Y"},
              {CLV_VOCAB, "Y"},
              {CLV_EMBED_KERNEL, "X"},
              {CLV_EMBED, "Y"}}},
    {.name = "zero1", .needs = {"data"}, .rule = {MEGATRON}, .splits_optimizer = true},
};
const int clv_n_presets = sizeof clv_presets / sizeof clv_presets[0];
