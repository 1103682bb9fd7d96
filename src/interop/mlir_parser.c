/* mlir_parser.c - what the files of the parser share: expecting tokens, copying text, counting levels. */
#include "interop/mlir_parser.h"

#include <string.h>

#include "base/text/c_locale.h"

clv_status mlir_unexpected(const mlir_parser *p, const char *needed, clv_error *err)
{
    const mlir_token *t = &p->lexer.token;
    if (t->kind == MLIR_TOKEN_END)
        return mlir_fail(p->module, t->at, err, CLV_ESYNTAX, "the text ends where %s is needed", needed);
    return mlir_fail(p->module, t->at, err, CLV_ESYNTAX, "'%.*s' where %s is needed",
                     (int)(t->length < 40 ? t->length : 40), t->text, needed);
}

clv_status mlir_expect(mlir_parser *p, const char *mark, clv_error *err)
{
    char needed[24];
    clv_snprintf(needed, sizeof needed, "'%s'", mark);
    if (!mlir_lexer_is(&p->lexer, mark))
        return mlir_unexpected(p, needed, err);
    return mlir_lexer_advance(&p->lexer, err);
}

clv_status mlir_accept(bool *found, mlir_parser *p, const char *mark, clv_error *err)
{
    *found = mlir_lexer_is(&p->lexer, mark);
    return *found ? mlir_lexer_advance(&p->lexer, err) : CLV_OK;
}

clv_status mlir_end_item(bool *done, mlir_parser *p, const char *close, clv_error *err)
{
    CLV_TRY(mlir_accept(done, p, close, err));
    return *done ? CLV_OK : mlir_expect(p, ",", err);
}

clv_status mlir_copy(const char **out, mlir_parser *p, const char *text, size_t length, clv_error *err)
{
    char *copy = clv_arena_alloc(p->module->arena, length + 1, 1);
    if (!copy)
        return clv_fail_memory(err, "a program", length);
    memcpy(copy, text, length);
    *out = copy;
    return CLV_OK;
}

clv_status mlir_enter(mlir_parser *p, clv_error *err)
{
    if (++p->depth > MLIR_DEPTH)
        return mlir_fail(p->module, p->lexer.token.at, err, CLV_ELIMIT, "more than %d levels of nesting", MLIR_DEPTH);
    return CLV_OK;
}
