/* mlir_dense.c - parses dense literals: numbers, nested lists, and the bytes in hex that MLIR prints of large ones. */
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "base/error.h"
#include "interop/mlir.h"

typedef struct reader {
    const mlir_module *module;
    mlir_place at;
    const char *p;
    clv_dtype dtype;
    char *out;
    int64_t room, n;
} reader;

static clv_status refuse(const reader *r, clv_error *err)
{
    return mlir_fail(r->module, r->at, err, CLV_ESYNTAX, "a dense literal that does not fit its type");
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "0x3F80...": the elements as they lie in memory, little endian; all, or one. */
static clv_status read_bytes(reader *r, clv_error *err)
{
    size_t size = clv_dtype_size(r->dtype), bytes = 0;
    const char *p = r->p + 3, *end = strchr(p, '"');
    if (strncmp(r->p, "\"0x", 3) != 0 || !end || (end - p) % 2 != 0)
        return refuse(r, err);
    bytes = (size_t)(end - p) / 2;
    if (bytes != size && bytes != size * (size_t)r->room)
        return refuse(r, err);
    for (size_t i = 0; i < bytes; i++) {
        int high = hex_digit(p[2 * i]), low = hex_digit(p[2 * i + 1]);
        if (high < 0 || low < 0)
            return refuse(r, err);
        r->out[i] = (char)(high * 16 + low);
    }
    r->n = (int64_t)(bytes / size);
    return CLV_OK;
}

/* 1.5, -3, true, or the bits of a float: 0xFF800000 */
static clv_status read_element(reader *r, clv_error *err)
{
    size_t size = clv_dtype_size(r->dtype);
    char *to = r->out + (size_t)r->n * size, *end = NULL;
    if (r->n == r->room)
        return refuse(r, err);
    bool is_true = strncmp(r->p, "true", 4) == 0;
    if (is_true || strncmp(r->p, "false", 5) == 0) {
        clv_dtype_store(r->dtype, to, 0, is_true);
        r->p += is_true ? 4 : 5;
    } else if (clv_dtype_is_float(r->dtype) && r->p[0] == '0' && r->p[1] == 'x') {
        uint64_t bits = strtoull(r->p, &end, 16);
        memcpy(to, &bits, size);
    } else if (clv_dtype_is_float(r->dtype)) {
        clv_dtype_store(r->dtype, to, 0, clv_strtod(r->p));
        end = (char *)r->p + strspn(r->p, "+-.0123456789eE");
    } else {
        int64_t value = strtoll(r->p, &end, 0);
        clv_dtype_convert(r->dtype, to, CLV_I64, &value, 1);
    }
    if (end == r->p)
        return refuse(r, err);
    r->p = end ? end : r->p;
    r->n++;
    return CLV_OK;
}

clv_status mlir_dense(void *out, bool *splat, const mlir_module *module, const mlir_attr *dense, const clv_type *type,
                      clv_error *err)
{
    reader r = {module, dense->at, dense->text, type->dtype, out, clv_type_elems(type), 0};
    if (dense->number)
        return mlir_fail(module, dense->at, err, CLV_EUNSUPPORTED,
                         "a constant whose values the text does not have ('%s'); print the program with all of them",
                         dense->text);
    if (*r.p == '"')
        CLV_TRY(read_bytes(&r, err));
    else
        while (*r.p) {
            if (strchr("[], \n\t", *r.p))
                r.p++;
            else
                CLV_TRY(read_element(&r, err));
        }
    *splat = r.n == 1 && *dense->text != '[';
    if (!*splat && r.n != r.room)
        return refuse(&r, err);
    return CLV_OK;
}
