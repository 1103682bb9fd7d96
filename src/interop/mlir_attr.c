/* mlir_attr.c - parses attributes and types of StableHLO text. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "interop/mlir_parser.h"

/* ---- types ---- */

/* The dtype that holds the values; unsigned ones are held in i64. */
static const struct {
    const char *name;
    clv_dtype dtype;
    int unsigned_bits;
} dtypes[] = {{"f32", CLV_F32, 0},   {"bf16", CLV_BF16, 0}, {"f16", CLV_F16, 0}, {"f64", CLV_F64, 0},
              {"i32", CLV_I32, 0},   {"i64", CLV_I64, 0},   {"i1", CLV_BOOL, 0}, {"ui8", CLV_U8, 0},
              {"ui32", CLV_I64, 32}, {"ui64", CLV_I64, 64}};

static bool find_dtype(mlir_type *out, const char *text, size_t length)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strlen(dtypes[i].name) == length && memcmp(dtypes[i].name, text, length) == 0) {
            out->tensor.dtype = dtypes[i].dtype;
            out->unsigned_bits = dtypes[i].unsigned_bits;
            return true;
        }
    return false;
}

/* "2x3xf32" into the type, or why not. */
static const char *read_tensor(mlir_type *type, const char *text)
{
    clv_type *out = &type->tensor;
    for (; isdigit((unsigned char)*text) || *text == '?'; out->rank++) {
        char *end;
        if (*text == '?')
            return "a dynamic dimension; lower the program for concrete shapes";
        if (out->rank == CLV_MAX_RANK)
            return "more than 8 dimensions";
        out->shape[out->rank] = strtoll(text, &end, 10);
        if (*end != 'x')
            return "no shape and dtype";
        text = end + 1;
    }
    clv_error why;
    if (!find_dtype(type, text, strlen(text)))
        return "a dtype that is not supported; valid: f32, bf16, f16, f64, i32, i64, i1, ui8, ui32, ui64";
    return clv_shape_check(out->shape, out->rank, out->dtype, &why) == CLV_OK ? NULL : "more than 2^60 bytes";
}

clv_status mlir_read_type(mlir_type *out, mlir_parser *p, clv_error *err)
{
    bool tensor = mlir_lexer_is(&p->lexer, "tensor");
    const char *shape = NULL, *raw;
    size_t length;
    *out = (mlir_type){.at = p->lexer.token.at};
    if (mlir_lexer_is(&p->lexer, "!"))
        MLIR_ADVANCE(p);
    if (p->lexer.token.kind != MLIR_TOKEN_WORD)
        return mlir_unexpected(p, "a type", err);
    const char *text = p->lexer.token.text, *end = text + p->lexer.token.length;
    MLIR_ADVANCE(p);
    if (mlir_lexer_is(&p->lexer, "<")) {
        CLV_TRY(mlir_lexer_raw(&raw, &length, &p->lexer, err));
        CLV_TRY(mlir_copy(&shape, p, raw, length, err));
        end = raw + length + 1;
    } else if (tensor)
        return mlir_unexpected(p, "'<' of a tensor", err);
    CLV_TRY(mlir_copy(&out->text, p, text, (size_t)(end - text), err));
    out->fault = tensor ? read_tensor(out, shape) : "no tensor";
    if (!tensor && find_dtype(out, out->text, strlen(out->text)))
        out->fault = NULL; /* of a number: "1 : i32" */
    return CLV_OK;
}

/* ---- attributes ---- */

static clv_status read_list(mlir_attr *out, mlir_parser *p, const char *close, clv_error *err);

static clv_status set_text(mlir_attr *out, mlir_parser *p, mlir_attr_kind kind, clv_error *err)
{
    out->kind = kind;
    out->length = p->lexer.token.length;
    CLV_TRY(mlir_copy(&out->text, p, p->lexer.token.text, out->length, err));
    return mlir_lexer_advance(&p->lexer, err);
}

static clv_status read_number(mlir_attr *out, mlir_parser *p, bool typed, clv_error *err)
{
    bool has_type;
    mlir_type type;
    CLV_TRY(set_text(out, p, MLIR_INT, err));
    out->number = strtoll(out->text, NULL, 0);
    if (strpbrk(out->text, ".") || (strpbrk(out->text, "eE") && !strpbrk(out->text, "xX")))
        out->kind = MLIR_REAL;
    if (!typed)
        return CLV_OK;
    CLV_TRY(mlir_accept(&has_type, p, ":", err));
    return has_type ? mlir_read_type(&type, p, err) : CLV_OK;
}

static clv_status read_raw(mlir_attr *out, mlir_parser *p, clv_error *err)
{
    const char *raw;
    out->kind = MLIR_RAW;
    CLV_TRY(mlir_lexer_raw(&raw, &out->length, &p->lexer, err));
    return mlir_copy(&out->text, p, raw, out->length, err);
}

/* #stablehlo.gather<offset_dims = [1], ...> is a list with keys; others are kept as text. */
static clv_status read_alias(mlir_attr *out, mlir_parser *p, clv_error *err)
{
    CLV_TRY(set_text(out, p, MLIR_WORD, err));
    if (!mlir_lexer_is(&p->lexer, "<"))
        return CLV_OK;
    bool keys = strcmp(out->text, "#stablehlo.gather") == 0 || strcmp(out->text, "#stablehlo.scatter") == 0 ||
                strcmp(out->text, "#stablehlo.dot") == 0;
    if (!keys)
        return read_raw(out, p, err);
    return mlir_read_attrs(out, p, "<", ">", err);
}

/* dense<...> : type, array<i64: 1, 2>, tensor<...>, true, a word */
static clv_status read_word(mlir_attr *out, mlir_parser *p, bool typed, clv_error *err)
{
    bool dense = mlir_lexer_is(&p->lexer, "dense") || mlir_lexer_is(&p->lexer, "dense_resource");
    bool elided = mlir_lexer_is(&p->lexer, "dense_resource"), array = mlir_lexer_is(&p->lexer, "array"), colon;
    if (mlir_lexer_is(&p->lexer, "tensor")) {
        mlir_type type;
        CLV_TRY(mlir_read_type(&type, p, err));
        *out = (mlir_attr){.kind = MLIR_WORD, .key = "", .text = type.text, .length = strlen(type.text), .at = type.at};
        return CLV_OK;
    }
    if (mlir_lexer_is(&p->lexer, "true") || mlir_lexer_is(&p->lexer, "false")) {
        out->kind = MLIR_INT;
        out->number = mlir_lexer_is(&p->lexer, "true");
        return mlir_lexer_advance(&p->lexer, err);
    }
    CLV_TRY(set_text(out, p, MLIR_WORD, err));
    if (dense && mlir_lexer_is(&p->lexer, "<")) {
        CLV_TRY(read_raw(out, p, err));
        out->kind = MLIR_DENSE;
        out->number = elided;
        if (!typed)
            return CLV_OK;
        CLV_TRY(mlir_accept(&colon, p, ":", err));
        return colon ? mlir_read_type(&out->type, p, err) : CLV_OK;
    }
    if (!array || !mlir_lexer_is(&p->lexer, "<"))
        return mlir_lexer_is(&p->lexer, "<") ? read_raw(out, p, err) : CLV_OK;
    MLIR_ADVANCE(p);
    MLIR_ADVANCE(p); /* the dtype */
    CLV_TRY(mlir_accept(&colon, p, ":", err));
    return read_list(out, p, ">", err);
}

static clv_status read_value(mlir_attr *out, mlir_parser *p, bool typed, clv_error *err)
{
    switch (p->lexer.token.kind) {
    case MLIR_TOKEN_NUMBER:
        return read_number(out, p, typed, err);
    case MLIR_TOKEN_STRING:
        return set_text(out, p, MLIR_STRING, err);
    case MLIR_TOKEN_SYMBOL:
        return set_text(out, p, MLIR_SYMBOL, err);
    case MLIR_TOKEN_ALIAS:
        return read_alias(out, p, err);
    case MLIR_TOKEN_WORD:
        return read_word(out, p, typed, err);
    default:
        break;
    }
    if (mlir_lexer_is(&p->lexer, "<"))
        return read_raw(out, p, err);
    if (mlir_lexer_is(&p->lexer, "?"))
        return set_text(out, p, MLIR_WORD, err);
    if (mlir_lexer_is(&p->lexer, "{"))
        return mlir_read_attrs(out, p, "{", "}", err);
    if (!mlir_lexer_is(&p->lexer, "["))
        return mlir_unexpected(p, "the value of an attribute", err);
    MLIR_ADVANCE(p);
    return read_list(out, p, "]", err);
}

/* "[1] x [0]", "[b, f]x[o, i]->[b, f]": lists as one pair. */
static clv_status read_pair(mlir_attr *out, mlir_parser *p, clv_error *err)
{
    mlir_attr first = *out;
    int capacity = 0;
    *out = (mlir_attr){.kind = MLIR_PAIR, .key = "", .at = first.at};
    MLIR_GROW(p, out->items, capacity, 0);
    out->items[out->n++] = first;
    while (mlir_lexer_is(&p->lexer, "x") || p->lexer.token.kind == MLIR_TOKEN_ARROW) {
        MLIR_ADVANCE(p);
        MLIR_GROW(p, out->items, capacity, out->n);
        out->items[out->n] = (mlir_attr){.key = "", .at = p->lexer.token.at};
        CLV_TRY(mlir_expect(p, "[", err));
        CLV_TRY(read_list(&out->items[out->n++], p, "]", err));
    }
    return CLV_OK;
}

clv_status mlir_read_attr(mlir_attr *out, mlir_parser *p, bool typed, clv_error *err)
{
    *out = (mlir_attr){.key = "", .at = p->lexer.token.at};
    CLV_TRY(mlir_enter(p, err));
    CLV_TRY(read_value(out, p, typed, err));
    if (out->kind == MLIR_LIST && mlir_lexer_is(&p->lexer, "x"))
        CLV_TRY(read_pair(out, p, err));
    p->depth--;
    return CLV_OK;
}

/* Items up to `close`, after the opening mark. "0:4:2" of a slice is a list of its own. */
static clv_status read_list(mlir_attr *out, mlir_parser *p, const char *close, clv_error *err)
{
    int capacity = 0;
    bool more;
    out->kind = MLIR_LIST;
    CLV_TRY(mlir_accept(&more, p, close, err));
    while (!more) {
        MLIR_GROW(p, out->items, capacity, out->n);
        mlir_attr *item = &out->items[out->n++];
        CLV_TRY(mlir_read_attr(item, p, false, err));
        if (mlir_lexer_is(&p->lexer, ":")) {
            mlir_attr range = {.kind = MLIR_LIST, .key = "", .at = item->at};
            int room = 0;
            MLIR_GROW(p, range.items, room, 0);
            range.items[range.n++] = *item;
            while (mlir_lexer_is(&p->lexer, ":")) {
                MLIR_ADVANCE(p);
                MLIR_GROW(p, range.items, room, range.n);
                CLV_TRY(mlir_read_attr(&range.items[range.n++], p, false, err));
            }
            *item = range;
        }
        CLV_TRY(mlir_end_item(&more, p, close, err));
    }
    return CLV_OK;
}

/* One of { key = value, key, "value" }. */
static clv_status read_keyed(mlir_attr *out, mlir_parser *p, clv_error *err)
{
    bool named = p->lexer.token.kind == MLIR_TOKEN_WORD || p->lexer.token.kind == MLIR_TOKEN_STRING, equals;
    if (!named)
        return mlir_read_attr(out, p, true, err);
    mlir_place at = p->lexer.token.at;
    mlir_attr key = {.key = "", .at = at};
    bool string = p->lexer.token.kind == MLIR_TOKEN_STRING;
    CLV_TRY(set_text(&key, p, string ? MLIR_STRING : MLIR_UNIT, err));
    CLV_TRY(mlir_accept(&equals, p, "=", err));
    *out = key;
    if (equals)
        CLV_TRY(mlir_read_attr(out, p, true, err));
    if (equals || !string)
        out->key = key.text;
    out->at = at;
    return CLV_OK;
}

clv_status mlir_read_attrs(mlir_attr *out, mlir_parser *p, const char *open, const char *close, clv_error *err)
{
    int capacity = 0;
    bool done;
    *out = (mlir_attr){.kind = MLIR_LIST, .key = "", .at = p->lexer.token.at};
    CLV_TRY(mlir_enter(p, err));
    CLV_TRY(mlir_expect(p, open, err));
    CLV_TRY(mlir_accept(&done, p, close, err));
    while (!done) {
        MLIR_GROW(p, out->items, capacity, out->n);
        CLV_TRY(read_keyed(&out->items[out->n], p, err));
        out->n++;
        CLV_TRY(mlir_end_item(&done, p, close, err));
    }
    p->depth--;
    return CLV_OK;
}

clv_status mlir_append_attrs(mlir_attr **attrs, int *n, int *capacity, mlir_parser *p, const mlir_attr *list,
                             clv_error *err)
{
    for (int i = 0; i < list->n; i++) {
        MLIR_GROW(p, *attrs, *capacity, *n);
        (*attrs)[(*n)++] = list->items[i];
    }
    return CLV_OK;
}
