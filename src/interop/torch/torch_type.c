/* torch_type.c - types and unions of torch.export's JSON. */
#include "base/text/c_locale.h"
#include "interop/torch/torch.h"

/* ScalarType of the schema. */
static const struct {
    int code;
    clv_dtype dtype;
} dtypes[] = {{1, CLV_U8},  {4, CLV_I32}, {5, CLV_I64},   {6, CLV_F16},
              {7, CLV_F32}, {8, CLV_F64}, {12, CLV_BOOL}, {13, CLV_BF16}};

static const char *const names[] = {"unknown", "uint8",   "int8",      "int16",     "int32",      "int64", "float16",
                                    "float32", "float64", "complex32", "complex64", "complex128", "bool",  "bfloat16"};

const char *torch_string(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

const json_t *torch_union(const json_t *object, const char **kind)
{
    void *member = json_object_iter((json_t *)object);
    *kind = member ? json_object_iter_key(member) : "";
    return member ? json_object_iter_value(member) : NULL;
}

bool torch_int(int64_t *out, const json_t *sym_int)
{
    const json_t *n = json_is_object(sym_int) ? json_object_get(sym_int, "as_int") : sym_int;
    *out = json_integer_value(n);
    return json_is_integer(n);
}

static const char *read_dtype(clv_arena *arena, clv_dtype *out, const json_t *code)
{
    int64_t n = json_integer_value(code);
    for (size_t i = 0; json_is_integer(code) && i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].code == n) {
            *out = dtypes[i].dtype;
            return NULL;
        }
    bool known = n >= 0 && n < (int64_t)(sizeof names / sizeof *names);
    return clv_arena_format(arena,
                            "the dtype %s is not supported; those that are: float32, bfloat16, float16, "
                            "float64, int32, int64, uint8, bool",
                            known ? names[n] : "of this code");
}

static const char *read_shape(clv_arena *arena, clv_type *out, const json_t *sizes)
{
    if (!json_is_array(sizes) || json_array_size(sizes) > CLV_MAX_RANK)
        return clv_arena_format(arena, "%d dimensions; there may be %d", (int)json_array_size(sizes), CLV_MAX_RANK);
    for (out->rank = 0; out->rank < (int)json_array_size(sizes); out->rank++) {
        const json_t *size = json_array_get(sizes, (size_t)out->rank);
        const char *symbol = torch_string(json_object_get(size, "as_expr"), "expr_str");
        if (!torch_int(&out->shape[out->rank], size) || out->shape[out->rank] < 0)
            return clv_arena_format(arena, "a dynamic dimension (%.60s); export it with fixed shapes",
                                    symbol ? symbol : "of no size");
    }
    return clv_type_elems(out) >= INT64_C(1) << 57 ? "too many elements" : NULL;
}

const mlir_type *torch_type(clv_arena *arena, const json_t *meta, mlir_place at)
{
    char text[CLV_TYPE_TEXT];
    mlir_type *type = clv_arena_alloc(arena, 1, sizeof *type);
    if (!type)
        return NULL;
    type->at = at;
    type->text = "no tensor";
    if (!json_is_object(meta)) {
        type->fault = "its type is not stated";
        return type;
    }
    type->fault = read_dtype(arena, &type->tensor.dtype, json_object_get(meta, "dtype"));
    type->fault = type->fault ? type->fault : read_shape(arena, &type->tensor, json_object_get(meta, "sizes"));
    if (type->fault) {
        type->tensor = (clv_type){.dtype = CLV_F32};
        type->text = "a tensor";
        return type;
    }
    clv_type_print(text, sizeof text, &type->tensor);
    type->text = clv_arena_string(arena, text);
    return type->text ? type : NULL;
}
