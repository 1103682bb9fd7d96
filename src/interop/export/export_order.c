/* export_order.c - sorts, cumulative folds and dropout as StableHLO. */
#include <math.h>

#include "ops/builtin_ops.h"
#include "interop/export/exporter.h"

/* ---- sort: stable, -0 as 0, NaN above all numbers, as jnp.sort has it ---- */

static void put_key(exporter *ex, char name, const char *element, clv_dtype dtype)
{
    char nan[EXPORT_NUMBER];
    fprintf(ex->to,
            "      %%%c0 = stablehlo.compare EQ, %%%c, %%zero, FLOAT : (%s, %s) -> tensor<i1>\n"
            "      %%%c1 = stablehlo.select %%%c0, %%zero, %%%c : tensor<i1>, %s\n"
            "      %%%c2 = stablehlo.compare NE, %%%c, %%%c, FLOAT : (%s, %s) -> tensor<i1>\n"
            "      %%%c3 = stablehlo.constant dense<%s> : %s\n"
            "      %%%c4 = stablehlo.select %%%c2, %%%c3, %%%c1 : tensor<i1>, %s\n",
            name, name, element, element, name, name, name, element, name, name, name, element, element, name,
            export_print_number(nan, dtype, NAN), element, name, name, name, name, element);
}

void export_sorted(exporter *ex, exported given, int dim, bool descending, exported out[2])
{
    const clv_dtype dtype = given.type.dtype;
    const bool is_float = clv_dtype_is_float(dtype);
    clv_type types[] = {given.type, given.type};
    types[1].dtype = CLV_I32;
    const clv_type scalar = {.dtype = dtype};
    const export_text element = export_type(&scalar), x = export_type(&types[0]), i = export_type(&types[1]);
    const exported count = export_iota(ex, types[1], dim);
    const int id = ex->n++;
    fprintf(ex->to,
            "    %%%d:2 = \"stablehlo.sort\"(%%%d, %%%d) <{dimension = %d : i64, is_stable = true}> ({\n"
            "    ^bb0(%%a: %s, %%b: %s, %%c: tensor<i32>, %%d: tensor<i32>):\n",
            id, given.id, count.id, dim, element.text, element.text);
    if (is_float) {
        fprintf(ex->to, "      %%zero = stablehlo.constant dense<0.0> : %s\n", element.text);
        put_key(ex, 'a', element.text, dtype);
        put_key(ex, 'b', element.text, dtype);
    }
    fprintf(ex->to,
            "      %%less = stablehlo.compare %s, %%a%s, %%b%s, %s : (%s, %s) -> tensor<i1>\n"
            "      stablehlo.return %%less : tensor<i1>\n    }) : (%s, %s) -> (%s, %s) loc(\"%s\")\n",
            descending ? "GT" : "LT", is_float ? "4" : "", is_float ? "4" : "",
            is_float                               ? "TOTALORDER"
            : dtype == CLV_BOOL || dtype == CLV_U8 ? "UNSIGNED"
                                                   : "SIGNED",
            element.text, element.text, x.text, i.text, x.text, i.text, ex->place);
    for (int o = 0; o < 2; o++)
        out[o] = export_line(ex, types[o], "stablehlo.reshape %%%d#%d : (%s) -> %s", id, o, o ? i.text : x.text,
                             o ? i.text : x.text);
}

static void sort(exporter *ex, const exported *in, exported *out)
{
    export_sorted(ex, in[0], (int)export_whole(ex, "dim", 0), export_whole(ex, "descending", 0), out);
}

/* ---- cumulative: windows of all that is before, or behind ---- */

static void cumulative(exporter *ex, const exported *in, exported *out)
{
    static const struct {
        clv_fold_kind kind;
        const char *name;
        double first;
    } kinds[] = {{CLV_FOLD_SUM, "add", 0},
                 {CLV_FOLD_PRODUCT, "multiply", 1},
                 {CLV_FOLD_MAX, "maximum", -INFINITY},
                 {CLV_FOLD_MIN, "minimum", INFINITY}};
    const int dim = (int)export_whole(ex, "dim", 0), rank = in[0].type.rank;
    const int64_t kind = export_whole(ex, "kind", 0), rest = in[0].type.shape[dim] - 1;
    const bool reverse = export_whole(ex, "reverse", 0), is_float = clv_dtype_is_float(in[0].type.dtype);
    char window[CLV_MAX_RANK * 24] = "", padding[CLV_MAX_RANK * 32] = "";
    int row = 0, used = 0, padded = 0;
    while (row < 3 && kinds[row].kind != (clv_fold_kind)kind)
        row++;
    if (rest < 0 || (row > 1 && !is_float)) {
        ex->fault = "of no elements, or an extreme of whole numbers,";
        return;
    }
    const exported x = is_float ? export_math(ex, in[0]) : in[0],
                   first = export_number(ex, x.type.dtype, kinds[row].first);
    for (int d = 0; d < rank; d++) {
        used += snprintf(window + used, sizeof window - (size_t)used, "%s%lld", d ? ", " : "",
                         (long long)(d == dim ? rest + 1 : 1));
        padded += snprintf(padding + padded, sizeof padding - (size_t)padded, "%s[%lld, %lld]", d ? ", " : "",
                           (long long)(d == dim && !reverse ? rest : 0), (long long)(d == dim && reverse ? rest : 0));
    }
    const export_text element = export_type(&first.type), type = export_type(&x.type);
    out[0] = export_cast(
        ex,
        export_line(ex, x.type,
                    "\"stablehlo.reduce_window\"(%%%d, %%%d) <{padding = dense<[%s]> : tensor<%dx2xi64>, "
                    "window_dimensions = array<i64: %s>}> ({\n    ^bb0(%%a: %s, %%b: %s):\n"
                    "      %%c = stablehlo.%s %%a, %%b : %s\n      stablehlo.return %%c : %s\n    }) : (%s, %s) -> %s",
                    x.id, first.id, padding, rank, window, element.text, element.text, kinds[row].name, element.text,
                    element.text, type.text, element.text, type.text),
        in[0].type.dtype);
}

/* ---- dropout: threefry-2x32 in numbers of 64 bits, of which the lower 32 are kept ---- */

static exported low_word(exporter *ex, exported x)
{
    return export_with(ex, "and", x, UINT32_MAX);
}

static exported rotated(exporter *ex, exported x, int by)
{
    return export_binary(ex, "or", low_word(ex, export_with(ex, "shift_left", x, by)),
                         export_with(ex, "shift_right_logical", x, 32 - by));
}

/* Salmon et al. 2011; base/rng.c. */
static void threefry(exporter *ex, const exported key[2], exported word[2])
{
    static const int rotation[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const exported subkey[] = {key[0], key[1],
                               export_with(ex, "xor", export_binary(ex, "xor", key[0], key[1]), 0x1BD11BDA)};
    for (int i = 0; i < 2; i++)
        word[i] = low_word(ex, export_binary(ex, "add", word[i], subkey[i]));
    for (int group = 0; group < 5; group++) {
        for (int round = 0; round < 4; round++) {
            word[0] = low_word(ex, export_binary(ex, "add", word[0], word[1]));
            word[1] = export_binary(ex, "xor", rotated(ex, word[1], rotation[group % 2][round]), word[0]);
        }
        word[0] = low_word(ex, export_binary(ex, "add", word[0], subkey[(group + 1) % 3]));
        exported added = export_with(ex, "add", export_binary(ex, "add", word[1], subkey[(group + 2) % 3]), group + 1);
        word[1] = low_word(ex, added);
    }
}

static void dropout(exporter *ex, const exported *in, exported *out)
{
    const clv_type type = in[0].type;
    const clv_key given = export_key(ex, "key");
    const exported x = export_math(ex, in[0]);
    const double share = 1 - export_real(ex, "p"), keep = x.type.dtype == CLV_F32 ? (double)(float)share : share;
    const clv_type flat = {.dtype = CLV_I64, .rank = 1, .shape = {clv_type_elems(&type)}};
    exported key[] = {export_number(ex, CLV_I64, given.word[0]), export_number(ex, CLV_I64, given.word[1])};
    if (ex->op->n_in > 1 && export_given(&in[1])) {
        exported folded[] = {export_number(ex, CLV_I64, 0), low_word(ex, export_cast(ex, in[1], CLV_I64))};
        threefry(ex, key, folded);
        memcpy(key, folded, sizeof key);
    }
    const exported index = export_iota(ex, flat, 0);
    exported word[] = {export_with(ex, "shift_right_logical", index, 32), low_word(ex, index)};
    threefry(ex, key, word);
    exported bits = export_with(ex, "shift_right_logical", export_binary(ex, "xor", word[0], word[1]), 9);
    exported uniform = export_with(ex, "multiply", export_cast(ex, bits, CLV_F32), 0x1p-23);
    exported kept = export_compare(ex, "LT", uniform, export_number(ex, CLV_F32, (double)(float)share));
    kept = export_reshape(ex, kept, type.rank, type.shape);
    exported zero = export_number(ex, x.type.dtype, 0);
    out[0] = export_cast(ex, export_select(ex, kept, export_with(ex, "divide", x, keep), zero), type.dtype);
}

const export_row export_order_rows[] = {
    {&clv_op_sort, sort}, {&clv_op_cumulative, cumulative}, {&clv_op_dropout, dropout}, {0}};
