/* mlir_parse.c - parser of StableHLO text: module, functions, statements in pretty and in generic form.
 *
 * A statement is read alike whatever its op: what comes before its ':' is operands (%0), attributes (key = value, a
 * word, [..], <..>), a symbol and groups in parentheses; what follows are types, regions and a location.
 */
#include <stdlib.h>
#include <string.h>

#include "interop/mlir_parser.h"

enum { CHAINS = 1 << 12 };

/* ---- names of values ---- */

static uint32_t slot_of(const char *text, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash % CHAINS;
}

static clv_status define(int *first, mlir_parser *p, const char *text, size_t length, int count, clv_error *err)
{
    uint32_t slot = slot_of(text, length);
    if (p->module->n_values > (1 << 28))
        return mlir_fail(p->module, p->lexer.token.at, err, CLV_ELIMIT, "more than 2^28 values");
    MLIR_GROW(p, p->names, p->name_capacity, p->n_names);
    p->names[p->n_names] = (mlir_name){text, length, p->module->n_values, count, p->chains[slot], slot};
    p->chains[slot] = p->n_names++;
    *first = p->module->n_values;
    p->module->n_values += count;
    return CLV_OK;
}

static void end_scope(mlir_parser *p, int from)
{
    while (p->n_names > from) {
        const mlir_name *last = &p->names[--p->n_names];
        p->chains[last->slot] = last->next;
    }
}

/* The current token is %x or %x#i. */
static clv_status use(int *id, mlir_parser *p, clv_error *err)
{
    const mlir_token *t = &p->lexer.token;
    if (t->kind != MLIR_TOKEN_VALUE)
        return mlir_unexpected(p, "a value", err);
    for (int i = p->chains[slot_of(t->text, t->length)]; i >= 0; i = p->names[i].next) {
        const mlir_name *name = &p->names[i];
        if (name->length != t->length || memcmp(name->text, t->text, t->length) != 0)
            continue;
        int part = t->number < 0 ? 0 : t->number;
        if (part >= name->count)
            return mlir_fail(p->module, t->at, err, CLV_ESYNTAX, "%%%.*s has %d parts", (int)t->length, t->text,
                             name->count);
        *id = name->first + part;
        return mlir_lexer_advance(&p->lexer, err);
    }
    return mlir_fail(p->module, t->at, err, CLV_ESYNTAX, "there is no value %%%.*s", (int)t->length, t->text);
}

/* ---- a statement ---- */

/* A statement while it is read. */
typedef struct statement {
    mlir_op op;
    int operand_capacity, attr_capacity, region_capacity;
    int inits[64], n_inits; /* of a reduce: they come after the operands */
    mlir_region args;       /* arguments that are written before their region */
    int arg_capacity;
    int others[64], n_others; /* the second argument of each pair of a reducer */
    mlir_type other_types[64];
    const char *arg_names[256]; /* of a while, before they are defined */
    size_t arg_lengths[256];
    int n_arg_names;
} statement;

static clv_status read_region(mlir_region *region, mlir_parser *p, clv_error *err);

static clv_status add_operand(statement *s, mlir_parser *p, clv_error *err)
{
    int id;
    CLV_TRY(use(&id, p, err));
    MLIR_GROW(p, s->op.operands, s->operand_capacity, s->op.n_operands);
    s->op.operands[s->op.n_operands++] = id;
    return CLV_OK;
}

static clv_status add_attr(statement *s, mlir_parser *p, const mlir_attr *attr, clv_error *err)
{
    MLIR_GROW(p, s->op.attrs, s->attr_capacity, s->op.n_attrs);
    s->op.attrs[s->op.n_attrs++] = *attr;
    return CLV_OK;
}

static clv_status add_arg(mlir_region *region, int *capacity, mlir_parser *p, const char *text, size_t length,
                          const mlir_type *type, clv_error *err)
{
    int id, types = *capacity;
    CLV_TRY(define(&id, p, text, length, 1, err));
    MLIR_GROW(p, region->arg_types, types, region->n_args);
    MLIR_GROW(p, region->args, *capacity, region->n_args);
    region->arg_types[region->n_args] = *type;
    region->args[region->n_args++] = id;
    return CLV_OK;
}

/* "%arg: type loc(...)" of a region, whose name is the current token. */
static clv_status read_arg(mlir_region *region, int *capacity, mlir_parser *p, clv_error *err)
{
    const mlir_loc *loc;
    mlir_token name = p->lexer.token;
    mlir_type type;
    if (name.kind != MLIR_TOKEN_VALUE)
        return mlir_unexpected(p, "an argument", err);
    MLIR_ADVANCE(p);
    CLV_TRY(mlir_expect(p, ":", err));
    CLV_TRY(mlir_read_type(&type, p, err));
    CLV_TRY(mlir_read_loc(&loc, p, err));
    return add_arg(region, capacity, p, name.text, name.length, &type, err);
}

static clv_status too_many(const mlir_parser *p, clv_error *err)
{
    return mlir_fail(p->module, p->lexer.token.at, err, CLV_ELIMIT, "too many operands of one op");
}

/* key = value, or a word alone */
static clv_status read_word_item(statement *s, mlir_parser *p, clv_error *err)
{
    mlir_attr word = {.kind = MLIR_WORD, .key = "", .at = p->lexer.token.at};
    bool equals, dense = mlir_lexer_is(&p->lexer, "dense") || mlir_lexer_is(&p->lexer, "dense_resource") ||
                         mlir_lexer_is(&p->lexer, "array");
    if (dense) {
        CLV_TRY(mlir_read_attr(&word, p, false, err));
        return add_attr(s, p, &word, err);
    }
    CLV_TRY(mlir_copy(&word.text, p, p->lexer.token.text, p->lexer.token.length, err));
    MLIR_ADVANCE(p);
    CLV_TRY(mlir_accept(&equals, p, "=", err));
    if (equals) {
        const char *key = word.text;
        CLV_TRY(mlir_read_attr(&word, p, false, err));
        word.key = key;
    }
    return add_attr(s, p, &word, err);
}

/* One of a group: %a, %a init: %b, %arg = %a, %arg: type, key = value. */
static clv_status read_group_item(statement *s, mlir_parser *p, int index, bool reducer, clv_error *err)
{
    mlir_lexer before = p->lexer;
    mlir_token name = p->lexer.token;
    if (name.kind == MLIR_TOKEN_WORD)
        return read_word_item(s, p, err);
    if (name.kind != MLIR_TOKEN_VALUE)
        return mlir_unexpected(p, "a value", err);
    MLIR_ADVANCE(p);
    if (mlir_lexer_is(&p->lexer, "=")) {
        if (s->n_arg_names == (int)(sizeof s->arg_names / sizeof *s->arg_names))
            return too_many(p, err);
        s->arg_names[s->n_arg_names] = name.text;
        s->arg_lengths[s->n_arg_names++] = name.length;
        MLIR_ADVANCE(p);
        return add_operand(s, p, err);
    }
    bool is_arg = mlir_lexer_is(&p->lexer, ":");
    p->lexer = before;
    if (is_arg && reducer && index == 1) {
        mlir_region one = {0};
        int room = 0;
        if (s->n_others == (int)(sizeof s->others / sizeof *s->others))
            return too_many(p, err);
        CLV_TRY(read_arg(&one, &room, p, err));
        s->other_types[s->n_others] = one.arg_types[0];
        s->others[s->n_others++] = one.args[0];
        return CLV_OK;
    }
    if (is_arg)
        return read_arg(&s->args, &s->arg_capacity, p, err);
    CLV_TRY(add_operand(s, p, err));
    if (!mlir_lexer_is(&p->lexer, "init"))
        return CLV_OK;
    MLIR_ADVANCE(p);
    CLV_TRY(mlir_expect(p, ":", err));
    if (s->n_inits == (int)(sizeof s->inits / sizeof *s->inits))
        return too_many(p, err);
    return use(&s->inits[s->n_inits++], p, err);
}

static clv_status read_group(statement *s, mlir_parser *p, bool reducer, clv_error *err)
{
    bool done;
    CLV_TRY(mlir_expect(p, "(", err));
    CLV_TRY(mlir_accept(&done, p, ")", err));
    for (int i = 0; !done; i++) {
        CLV_TRY(read_group_item(s, p, i, reducer, err));
        CLV_TRY(mlir_end_item(&done, p, ")", err));
    }
    return CLV_OK;
}

/* Takes the arguments that were written before a region into it. */
static clv_status add_region(statement *s, mlir_parser *p, clv_error *err)
{
    MLIR_GROW(p, s->op.regions, s->region_capacity, s->op.n_regions);
    mlir_region *region = &s->op.regions[s->op.n_regions];
    *region = s->args;
    CLV_TRY(read_region(region, p, err));
    s->op.n_regions++;
    return CLV_OK;
}

static clv_status read_pretty_item(statement *s, mlir_parser *p, clv_error *err)
{
    mlir_attr attr;
    switch (p->lexer.token.kind) {
    case MLIR_TOKEN_VALUE:
        return add_operand(s, p, err);
    case MLIR_TOKEN_SYMBOL:
        CLV_TRY(mlir_copy(&s->op.symbol, p, p->lexer.token.text, p->lexer.token.length, err));
        return mlir_lexer_advance(&p->lexer, err);
    case MLIR_TOKEN_WORD:
        return read_word_item(s, p, err);
    default:
        break;
    }
    if (mlir_lexer_is(&p->lexer, "("))
        return read_group(s, p, false, err);
    bool manual = strcmp(s->op.name, "sdy.manual_computation") == 0; /* its region may have no arguments: () { */
    if (mlir_lexer_is(&p->lexer, "{") &&
        (s->args.n_args > 0 || (manual && mlir_find_attr(s->op.attrs, s->op.n_attrs, "manual_axes"))))
        return add_region(s, p, err);
    if (mlir_lexer_is(&p->lexer, "{")) {
        CLV_TRY(mlir_read_attrs(&attr, p, "{", "}", err));
        return mlir_append_attrs(&s->op.attrs, &s->op.n_attrs, &s->attr_capacity, p, &attr, err);
    }
    CLV_TRY(mlir_read_attr(&attr, p, false, err));
    return add_attr(s, p, &attr, err);
}

static clv_status read_pretty(statement *s, mlir_parser *p, clv_error *err)
{
    bool mark;
    while (!mlir_lexer_is(&p->lexer, ":") && !mlir_lexer_is(&p->lexer, "loc") && !mlir_lexer_is(&p->lexer, "}")) {
        if (p->lexer.token.kind == MLIR_TOKEN_END)
            return mlir_unexpected(p, "the rest of an op", err);
        CLV_TRY(mlir_accept(&mark, p, ",", err));
        if (!mark)
            CLV_TRY(mlir_accept(&mark, p, "=", err)); /* sdy.mesh @mesh = <...> */
        if (!mark)
            CLV_TRY(read_pretty_item(s, p, err));
        if (strcmp(s->op.name, "sdy.mesh") == 0 && s->op.n_attrs > 0 && !mlir_lexer_is(&p->lexer, "{"))
            break; /* nothing else says where it ends */
    }
    for (int i = 0; i < s->n_inits; i++) {
        MLIR_GROW(p, s->op.operands, s->operand_capacity, s->op.n_operands);
        s->op.operands[s->op.n_operands++] = s->inits[i];
    }
    return CLV_OK;
}

/* "name"(operands) <{ attributes }> ({ regions }) { attributes } */
static clv_status read_generic(statement *s, mlir_parser *p, clv_error *err)
{
    mlir_attr attrs;
    bool more, region;
    CLV_TRY(read_group(s, p, false, err));
    CLV_TRY(mlir_accept(&more, p, "<", err));
    if (more) {
        CLV_TRY(mlir_read_attrs(&attrs, p, "{", "}", err));
        CLV_TRY(mlir_append_attrs(&s->op.attrs, &s->op.n_attrs, &s->attr_capacity, p, &attrs, err));
        CLV_TRY(mlir_expect(p, ">", err));
    }
    CLV_TRY(mlir_accept(&region, p, "(", err));
    while (region) {
        CLV_TRY(add_region(s, p, err));
        CLV_TRY(mlir_accept(&region, p, ",", err));
        if (!region)
            CLV_TRY(mlir_expect(p, ")", err));
    }
    if (!mlir_lexer_is(&p->lexer, "{"))
        return CLV_OK;
    CLV_TRY(mlir_read_attrs(&attrs, p, "{", "}", err));
    return mlir_append_attrs(&s->op.attrs, &s->op.n_attrs, &s->attr_capacity, p, &attrs, err);
}

/* Types up to the end of a list; in parentheses, or as many as there are commas. */
static clv_status read_types(mlir_type **types, int *n, mlir_parser *p, clv_error *err)
{
    int capacity = 0;
    bool group, more;
    *types = NULL;
    *n = 0;
    CLV_TRY(mlir_accept(&group, p, "(", err));
    if (group)
        CLV_TRY(mlir_accept(&more, p, ")", err));
    for (more = !(group && more); more;) {
        MLIR_GROW(p, *types, capacity, *n);
        CLV_TRY(mlir_read_type(&(*types)[*n], p, err));
        (*n)++;
        CLV_TRY(mlir_accept(&more, p, ",", err));
    }
    return group && *n > 0 ? mlir_expect(p, ")", err) : CLV_OK;
}

/* The types after ':': "(operands) -> results", or a list; one type stands for all results, and the last one of several
 * for a single result. */
static clv_status read_signature(statement *s, mlir_parser *p, clv_error *err)
{
    mlir_type *types;
    int n, wanted = s->op.n_results;
    mlir_place at = p->lexer.token.at;
    bool arrow = false;
    CLV_TRY(read_types(&types, &n, p, err));
    if (p->lexer.token.kind == MLIR_TOKEN_ARROW) {
        MLIR_ADVANCE(p);
        CLV_TRY(read_types(&types, &n, p, err));
        arrow = true;
    }
    if (wanted == 0)
        return CLV_OK;
    if (n == 0 || (n != wanted && (arrow || (n > 1 && wanted > 1))))
        return mlir_fail(p->module, at, err, CLV_ESYNTAX, "%d types of %d results", n, wanted);
    s->op.result_types = clv_arena_alloc(p->module->arena, (size_t)wanted, sizeof *types);
    if (!s->op.result_types)
        return clv_fail_memory(err, "types", (size_t)wanted * sizeof *types);
    for (int i = 0; i < wanted; i++)
        s->op.result_types[i] = types[n == wanted ? i : n - 1];
    return CLV_OK;
}

/* The arguments of a while have the types of its results. */
static clv_status define_loop_args(statement *s, mlir_parser *p, clv_error *err)
{
    for (int i = 0; i < s->n_arg_names; i++) {
        if (i >= s->op.n_results)
            return mlir_fail(p->module, s->op.at, err, CLV_ESYNTAX, "%d arguments, but %d results", s->n_arg_names,
                             s->op.n_results);
        CLV_TRY(
            add_arg(&s->args, &s->arg_capacity, p, s->arg_names[i], s->arg_lengths[i], &s->op.result_types[i], err));
    }
    return CLV_OK;
}

/* "cond {...} do {...}", "reducer(...) (...) {...}" */
static clv_status read_regions(statement *s, mlir_parser *p, clv_error *err)
{
    bool found;
    CLV_TRY(define_loop_args(s, p, err));
    for (int i = 0; i < 2; i++) {
        CLV_TRY(mlir_accept(&found, p, i ? "do" : "cond", err));
        if (found)
            CLV_TRY(add_region(s, p, err));
    }
    CLV_TRY(mlir_accept(&found, p, "reducer", err));
    if (!found)
        return CLV_OK;
    while (mlir_lexer_is(&p->lexer, "("))
        CLV_TRY(read_group(s, p, true, err));
    for (int i = 0; i < s->n_others; i++) {
        int types = s->arg_capacity;
        MLIR_GROW(p, s->args.arg_types, types, s->args.n_args);
        MLIR_GROW(p, s->args.args, s->arg_capacity, s->args.n_args);
        s->args.arg_types[s->args.n_args] = s->other_types[i];
        s->args.args[s->args.n_args++] = s->others[i];
    }
    return add_region(s, p, err);
}

/* The names of results: "%0:2 =", "%a, %b =". */
static clv_status read_result_names(mlir_token names[8], int counts[8], int *n, mlir_parser *p, clv_error *err)
{
    bool more = p->lexer.token.kind == MLIR_TOKEN_VALUE, colon;
    for (*n = 0; more; (*n)++) {
        if (*n == 8 || p->lexer.token.kind != MLIR_TOKEN_VALUE)
            return mlir_unexpected(p, "'=' after results", err);
        names[*n] = p->lexer.token;
        counts[*n] = 1;
        MLIR_ADVANCE(p);
        CLV_TRY(mlir_accept(&colon, p, ":", err));
        if (colon) {
            const char *number;
            CLV_TRY(mlir_copy(&number, p, p->lexer.token.text, p->lexer.token.length, err));
            counts[*n] = p->lexer.token.kind == MLIR_TOKEN_NUMBER ? (int)strtol(number, NULL, 10) : 0;
            if (counts[*n] < 1 || counts[*n] > 1 << 16)
                return mlir_unexpected(p, "a number of results", err);
            MLIR_ADVANCE(p);
        }
        CLV_TRY(mlir_accept(&more, p, ",", err));
    }
    return *n > 0 ? mlir_expect(p, "=", err) : CLV_OK;
}

static clv_status read_statement(mlir_op *out, mlir_parser *p, clv_error *err)
{
    statement s = {0};
    mlir_token names[8];
    int counts[8], n, scope = p->n_names;
    CLV_TRY(read_result_names(names, counts, &n, p, err));
    for (int i = 0; i < n; i++)
        s.op.n_results += counts[i];
    s.op.at = p->lexer.token.at;
    bool generic = p->lexer.token.kind == MLIR_TOKEN_STRING, colon;
    if (!generic && p->lexer.token.kind != MLIR_TOKEN_WORD)
        return mlir_unexpected(p, "an op", err);
    CLV_TRY(mlir_copy(&s.op.name, p, p->lexer.token.text, p->lexer.token.length, err));
    MLIR_ADVANCE(p);
    CLV_TRY((generic ? read_generic : read_pretty)(&s, p, err));
    CLV_TRY(mlir_accept(&colon, p, ":", err));
    if (colon)
        CLV_TRY(read_signature(&s, p, err));
    else if (s.op.n_results > 0)
        return mlir_unexpected(p, "':' and the types of the op", err);
    CLV_TRY(read_regions(&s, p, err));
    CLV_TRY(mlir_read_loc(&s.op.loc, p, err));
    end_scope(p, scope);
    for (int i = 0, first; i < n; i++) {
        CLV_TRY(define(&first, p, names[i].text, names[i].length, counts[i], err));
        s.op.first_result = i == 0 ? first : s.op.first_result;
    }
    *out = s.op;
    return CLV_OK;
}

/* { ^bb0(%a: type): ops }. Blocks after the first one, which branches would need, are refused. */
static clv_status read_region(mlir_region *region, mlir_parser *p, clv_error *err)
{
    int capacity = 0, args = 0, scope = p->n_names;
    bool done;
    CLV_TRY(mlir_enter(p, err));
    CLV_TRY(mlir_expect(p, "{", err));
    if (p->lexer.token.kind == MLIR_TOKEN_BLOCK) {
        MLIR_ADVANCE(p);
        CLV_TRY(mlir_accept(&done, p, "(", err));
        while (done && !mlir_lexer_is(&p->lexer, ")")) {
            CLV_TRY(read_arg(region, &args, p, err));
            if (!mlir_lexer_is(&p->lexer, ")"))
                CLV_TRY(mlir_expect(p, ",", err));
        }
        if (done)
            MLIR_ADVANCE(p);
        CLV_TRY(mlir_expect(p, ":", err));
    }
    CLV_TRY(mlir_accept(&done, p, "}", err));
    while (!done) {
        MLIR_GROW(p, region->ops, capacity, region->n_ops);
        CLV_TRY(read_statement(&region->ops[region->n_ops], p, err));
        region->n_ops++;
        CLV_TRY(mlir_accept(&done, p, "}", err));
    }
    end_scope(p, scope);
    p->depth--;
    return CLV_OK;
}

/* ---- functions, meshes, the module ---- */

/* "%arg0: type {attributes} loc(...)" of a function, or "type {attributes}" of its results. */
static clv_status read_port(mlir_port *port, mlir_token *name, mlir_parser *p, clv_error *err)
{
    mlir_attr attrs;
    if (name) {
        *name = p->lexer.token;
        if (name->kind != MLIR_TOKEN_VALUE)
            return mlir_unexpected(p, "an argument", err);
        CLV_TRY(mlir_copy(&port->name, p, name->text, name->length, err));
        MLIR_ADVANCE(p);
        CLV_TRY(mlir_expect(p, ":", err));
    }
    CLV_TRY(mlir_read_type(&port->type, p, err));
    if (mlir_lexer_is(&p->lexer, "{")) {
        CLV_TRY(mlir_read_attrs(&attrs, p, "{", "}", err));
        port->attrs = attrs.items;
        port->n_attrs = attrs.n;
    }
    return mlir_read_loc(&port->loc, p, err);
}

static clv_status read_args(mlir_function *f, mlir_parser *p, clv_error *err)
{
    int capacity = 0, room = 0;
    bool done;
    mlir_token name;
    CLV_TRY(mlir_expect(p, "(", err));
    CLV_TRY(mlir_accept(&done, p, ")", err));
    while (!done) {
        MLIR_GROW(p, f->args, capacity, f->n_args);
        mlir_port *port = &f->args[f->n_args++];
        CLV_TRY(read_port(port, &name, p, err));
        CLV_TRY(add_arg(&f->body, &room, p, name.text, name.length, &port->type, err));
        CLV_TRY(mlir_end_item(&done, p, ")", err));
    }
    return CLV_OK;
}

static clv_status read_results(mlir_function *f, mlir_parser *p, clv_error *err)
{
    int capacity = 0;
    bool group, done = p->lexer.token.kind != MLIR_TOKEN_ARROW;
    if (done)
        return CLV_OK;
    MLIR_ADVANCE(p);
    CLV_TRY(mlir_accept(&group, p, "(", err));
    if (!group) {
        MLIR_GROW(p, f->results, capacity, 0);
        f->n_results = 1;
        return mlir_read_type(&f->results[0].type, p, err);
    }
    CLV_TRY(mlir_accept(&done, p, ")", err));
    while (!done) {
        MLIR_GROW(p, f->results, capacity, f->n_results);
        CLV_TRY(read_port(&f->results[f->n_results++], NULL, p, err));
        CLV_TRY(mlir_end_item(&done, p, ")", err));
    }
    return CLV_OK;
}

/* func.func public @main(...) -> (...) attributes {...} { ... } loc(...) */
static clv_status read_function(mlir_parser *p, clv_error *err)
{
    mlir_attr attrs;
    const mlir_loc *loc;
    int scope = p->n_names;
    bool found;
    mlir_function f = {.at = p->lexer.token.at};
    MLIR_ADVANCE(p);
    while (p->lexer.token.kind == MLIR_TOKEN_WORD)
        MLIR_ADVANCE(p);
    if (p->lexer.token.kind != MLIR_TOKEN_SYMBOL)
        return mlir_unexpected(p, "the name of a function", err);
    CLV_TRY(mlir_copy(&f.name, p, p->lexer.token.text, p->lexer.token.length, err));
    if (mlir_find_function(p->module, f.name))
        return mlir_fail(p->module, f.at, err, CLV_ESYNTAX, "there are two functions @%s", f.name);
    MLIR_ADVANCE(p);
    CLV_TRY(read_args(&f, p, err));
    CLV_TRY(read_results(&f, p, err));
    CLV_TRY(mlir_accept(&found, p, "attributes", err));
    if (found)
        CLV_TRY(mlir_read_attrs(&attrs, p, "{", "}", err));
    CLV_TRY(read_region(&f.body, p, err));
    CLV_TRY(mlir_read_loc(&loc, p, err));
    end_scope(p, scope);
    MLIR_GROW(p, p->module->functions, p->function_capacity, p->module->n_functions);
    p->module->functions[p->module->n_functions++] = f;
    return CLV_OK;
}

/* "name"=4, of the text of a mesh; past it. NULL: no axis is there. */
static const char *read_axis(clv_mesh *mesh, const char *text)
{
    char *end;
    const char *name = strchr(text, '"'), *close = name ? strchr(name + 1, '"') : NULL;
    if (!close || close[1] != '=' || mesh->n_axes == CLV_MAX_AXES || (size_t)(close - name) > sizeof mesh->axis[0].name)
        return NULL;
    memcpy(mesh->axis[mesh->n_axes].name, name + 1, (size_t)(close - name - 1));
    mesh->axis[mesh->n_axes++].size = strtoll(close + 2, &end, 10);
    return end;
}

/* sdy.mesh @mesh = <["data"=2, "model"=4]>: a statement of its own */
static clv_status read_mesh(mlir_parser *p, clv_error *err)
{
    mlir_op op;
    mlir_mesh mesh = {.at = p->lexer.token.at};
    clv_error why = {0};
    CLV_TRY(read_statement(&op, p, err));
    const char *text = op.n_attrs > 0 && op.attrs[0].kind == MLIR_RAW ? op.attrs[0].text : NULL;
    mesh.name = op.symbol;
    while (text && strchr(text, '"'))
        text = read_axis(&mesh.mesh, text);
    if (!text || !op.symbol)
        return mlir_fail(p->module, mesh.at, err, CLV_ESYNTAX, "no mesh of axes: <[\"data\"=2, \"model\"=4]>");
    if (mesh.mesh.n_axes > 0 && clv_mesh_check(&mesh.mesh, &why) != CLV_OK)
        return mlir_fail(p->module, mesh.at, err, CLV_EUNSUPPORTED, "%s", why.message);
    MLIR_GROW(p, p->module->meshes, p->mesh_capacity, p->module->n_meshes);
    p->module->meshes[p->module->n_meshes++] = mesh;
    return CLV_OK;
}

/* #loc1 = loc(...), and other aliases, which are passed over. */
static clv_status read_definition(mlir_parser *p, clv_error *err)
{
    mlir_loc *loc = clv_arena_alloc(p->module->arena, 1, sizeof *loc);
    mlir_attr other;
    if (!loc)
        return clv_fail_memory(err, "a location", sizeof *loc);
    CLV_TRY(mlir_copy(&loc->alias, p, p->lexer.token.text, p->lexer.token.length, err));
    MLIR_ADVANCE(p);
    CLV_TRY(mlir_expect(p, "=", err));
    if (!mlir_lexer_is(&p->lexer, "loc"))
        return mlir_read_attr(&other, p, true, err);
    CLV_TRY(mlir_read_loc(&loc->child, p, err));
    MLIR_GROW(p, p->module->locs, p->loc_capacity, p->module->n_locs);
    p->module->locs[p->module->n_locs++] = loc;
    return CLV_OK;
}

/* module @name attributes {...} { */
static clv_status read_module_head(mlir_parser *p, clv_error *err)
{
    mlir_attr attrs;
    bool found;
    MLIR_ADVANCE(p);
    if (p->lexer.token.kind == MLIR_TOKEN_SYMBOL)
        MLIR_ADVANCE(p);
    CLV_TRY(mlir_accept(&found, p, "attributes", err));
    if (found)
        CLV_TRY(mlir_read_attrs(&attrs, p, "{", "}", err));
    return mlir_expect(p, "{", err);
}

static clv_status read_module(mlir_parser *p, clv_error *err)
{
    const mlir_loc *loc;
    bool open = false;
    while (p->lexer.token.kind != MLIR_TOKEN_END) {
        if (p->lexer.token.kind == MLIR_TOKEN_ALIAS)
            CLV_TRY(read_definition(p, err));
        else if (mlir_lexer_is(&p->lexer, "func.func"))
            CLV_TRY(read_function(p, err));
        else if (mlir_lexer_is(&p->lexer, "sdy.mesh"))
            CLV_TRY(read_mesh(p, err));
        else if (mlir_lexer_is(&p->lexer, "module") && !open) {
            CLV_TRY(read_module_head(p, err));
            open = true;
        } else if (mlir_lexer_is(&p->lexer, "}") && open) {
            MLIR_ADVANCE(p);
            CLV_TRY(mlir_read_loc(&loc, p, err));
            open = false;
        } else
            return mlir_unexpected(p, "a function", err);
    }
    if (open)
        return mlir_unexpected(p, "'}' of the module", err);
    if (!mlir_find_function(p->module, "main"))
        return mlir_fail(p->module, p->lexer.token.at, err, CLV_ESYNTAX, "there is no function @main");
    return CLV_OK;
}

static int by_alias(const void *a, const void *b)
{
    return strcmp((*(mlir_loc *const *)a)->alias, (*(mlir_loc *const *)b)->alias);
}

clv_status mlir_parse(mlir_module **out, const char *text, size_t size, const char *file, clv_error *err)
{
    clv_arena *arena = clv_arena_new();
    mlir_module *module = arena ? clv_arena_alloc(arena, 1, sizeof *module) : NULL;
    mlir_parser p = {.module = module};
    clv_status status = module ? CLV_OK : clv_fail_memory(err, "a program", sizeof *module);
    if (status == CLV_OK) {
        module->arena = arena;
        module->file = clv_arena_string(arena, file);
        p.chains = clv_arena_alloc(arena, CHAINS, sizeof *p.chains);
        if (!module->file || !p.chains)
            status = clv_fail_memory(err, "a program", CHAINS * sizeof *p.chains);
    }
    for (int i = 0; status == CLV_OK && i < CHAINS; i++)
        p.chains[i] = -1;
    if (status == CLV_OK)
        status = mlir_lexer_start(&p.lexer, module, text, size, err);
    if (status == CLV_OK)
        status = read_module(&p, err);
    if (status != CLV_OK) {
        clv_arena_free(arena);
        return status;
    }
    if (module->n_locs > 0)
        qsort(module->locs, (size_t)module->n_locs, sizeof *module->locs, by_alias);
    *out = module;
    return CLV_OK;
}
