/* family_registry.h - model families by config.json's model_type: the built-in ones and those a program registered. */
#pragma once

#include "models/families/model_family.h"
#include "tensor/parse_print.h"

/* By config.json's model_type; NULL when there is none. */
const clv_model_family *clv_families_find(const char *model_type);
/* Their model_types: "llama, mistral, ...". */
void clv_families_list(clv_text *out);
/* Adds one, which must live as long as the process. CLV_EEXIST when there is one of its model_type. */
clv_status clv_families_add(const clv_model_family *family, clv_error *err);
