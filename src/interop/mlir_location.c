/* mlir_location.c - loc(...): reads locations, and finds the line of Python that made an op. */
#include <stdlib.h>
#include <string.h>

#include "interop/mlir_parser.h"

static clv_status read_location(const mlir_loc **out, mlir_parser *p, clv_error *err);

static clv_status read_number(int *out, mlir_parser *p, clv_error *err)
{
    const char *text;
    if (p->lexer.token.kind != MLIR_TOKEN_NUMBER)
        return mlir_unexpected(p, "a number", err);
    CLV_TRY(mlir_copy(&text, p, p->lexer.token.text, p->lexer.token.length, err));
    *out = (int)strtol(text, NULL, 10);
    return mlir_lexer_advance(&p->lexer, err);
}

/* "file":3:20 to :30, or "name"(child) */
static clv_status read_named(mlir_loc *loc, mlir_parser *p, clv_error *err)
{
    const char *text;
    int number;
    bool more;
    CLV_TRY(mlir_copy(&text, p, p->lexer.token.text, p->lexer.token.length, err));
    MLIR_ADVANCE(p);
    if (mlir_lexer_is(&p->lexer, ":")) {
        loc->file = text;
        MLIR_ADVANCE(p);
        CLV_TRY(read_number(&loc->line, p, err));
        while (mlir_lexer_is(&p->lexer, ":") || mlir_lexer_is(&p->lexer, "to")) {
            MLIR_ADVANCE(p);
            if (p->lexer.token.kind == MLIR_TOKEN_NUMBER)
                CLV_TRY(read_number(&number, p, err));
        }
        return CLV_OK;
    }
    loc->name = text;
    CLV_TRY(mlir_accept(&more, p, "(", err));
    if (!more)
        return CLV_OK;
    CLV_TRY(read_location(&loc->child, p, err));
    return mlir_expect(p, ")", err);
}

/* callsite(callee at caller) */
static clv_status read_callsite(mlir_loc *loc, mlir_parser *p, clv_error *err)
{
    const mlir_loc *caller;
    MLIR_ADVANCE(p);
    CLV_TRY(mlir_expect(p, "(", err));
    CLV_TRY(read_location(&loc->child, p, err));
    CLV_TRY(mlir_expect(p, "at", err));
    CLV_TRY(read_location(&caller, p, err));
    if (!mlir_loc_file(p->module, loc->child, NULL) && !loc->child->alias)
        loc->child = caller;
    return mlir_expect(p, ")", err);
}

/* fused[a, b], fused<...>[a, b] */
static clv_status read_fused(mlir_loc *loc, mlir_parser *p, clv_error *err)
{
    const char *raw;
    size_t length;
    bool done;
    MLIR_ADVANCE(p);
    if (mlir_lexer_is(&p->lexer, "<"))
        CLV_TRY(mlir_lexer_raw(&raw, &length, &p->lexer, err));
    CLV_TRY(mlir_expect(p, "[", err));
    CLV_TRY(mlir_accept(&done, p, "]", err));
    while (!done) {
        const mlir_loc *one;
        CLV_TRY(read_location(&one, p, err));
        loc->child = loc->child ? loc->child : one;
        CLV_TRY(mlir_end_item(&done, p, "]", err));
    }
    return CLV_OK;
}

static clv_status read_location(const mlir_loc **out, mlir_parser *p, clv_error *err)
{
    mlir_loc *loc = clv_arena_alloc(p->module->arena, 1, sizeof *loc);
    if (!loc)
        return clv_fail_memory(err, "a location", sizeof *loc);
    CLV_TRY(mlir_enter(p, err));
    if (p->lexer.token.kind == MLIR_TOKEN_STRING)
        CLV_TRY(read_named(loc, p, err));
    else if (p->lexer.token.kind == MLIR_TOKEN_ALIAS) {
        CLV_TRY(mlir_copy(&loc->alias, p, p->lexer.token.text, p->lexer.token.length, err));
        MLIR_ADVANCE(p);
    } else if (mlir_lexer_is(&p->lexer, "callsite"))
        CLV_TRY(read_callsite(loc, p, err));
    else if (mlir_lexer_is(&p->lexer, "fused"))
        CLV_TRY(read_fused(loc, p, err));
    else
        CLV_TRY(mlir_expect(p, "unknown", err));
    p->depth--;
    *out = loc;
    return CLV_OK;
}

clv_status mlir_read_loc(const mlir_loc **out, mlir_parser *p, clv_error *err)
{
    if (!mlir_lexer_is(&p->lexer, "loc"))
        return CLV_OK;
    MLIR_ADVANCE(p);
    CLV_TRY(mlir_expect(p, "(", err));
    CLV_TRY(read_location(out, p, err));
    return mlir_expect(p, ")", err);
}

/* What an alias stands for: #loc12 is usually the 12th. NULL: nothing. */
static const mlir_loc *follow(const mlir_module *m, const mlir_loc *loc)
{
    int low = 0, high = m->n_locs;
    while (low < high) {
        int at = (low + high) / 2, order = strcmp(m->locs[at]->alias, loc->alias);
        if (order == 0)
            return m->locs[at]->child;
        if (order < 0)
            low = at + 1;
        else
            high = at;
    }
    return NULL;
}

const char *mlir_loc_file(const mlir_module *m, const mlir_loc *loc, int *line)
{
    for (int depth = 0; loc && depth < 4 * MLIR_DEPTH; depth++) {
        if (loc->file) {
            const char *slash = strrchr(loc->file, '/');
            if (line)
                *line = loc->line;
            return slash ? slash + 1 : loc->file;
        }
        loc = loc->alias ? follow(m, loc) : loc->child;
    }
    return NULL;
}

const char *mlir_loc_name(const mlir_module *m, const mlir_loc *loc)
{
    for (int depth = 0; loc && depth < MLIR_DEPTH; depth++) {
        if (loc->name)
            return loc->name;
        loc = loc->alias ? follow(m, loc) : loc->child;
    }
    return NULL;
}
