/* mlir_module.c - finds functions, ops and attributes of parsed StableHLO text by name, and reports failures with their
 * place. */
#include <stdarg.h>
#include <string.h>

#include "base/error.h"
#include "base/text/c_locale.h"
#include "interop/mlir.h"
#include "interop/torch/torch.h"

clv_status mlir_fail(const mlir_module *module, mlir_place at, clv_error *err, clv_status code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    clv_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (at.node)
        return clv_fail(err, code, "%s: %.200s: %s", module->file, at.node, text);
    return clv_fail(err, code, "%s:%d:%d: %s", module->file, at.line, at.column, text);
}

void mlir_free(mlir_module *module)
{
    if (!module)
        return;
    torch_close(module->archive);
    clv_arena_free(module->arena);
}

const mlir_function *mlir_find_function(const mlir_module *module, const char *name)
{
    for (int i = 0; i < module->n_functions; i++)
        if (strcmp(module->functions[i].name, name) == 0)
            return &module->functions[i];
    return NULL;
}

const mlir_attr *mlir_find_attr(const mlir_attr *attrs, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (strcmp(attrs[i].key, key) == 0)
            return &attrs[i];
    return NULL;
}
