/* component_reader.c - parses option fields of tokenizer.json components, with their error messages. */
#include <stdarg.h>
#include <stdio.h>

#include "tokens/tokenizer/tokenizer_components.h"

clv_status clv_component_fail(const clv_component_reader *r, const char *format, ...)
{
    char message[sizeof r->err->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return clv_fail(r->err, CLV_EFORMAT, "%s: %s", r->where, message);
}

clv_status clv_component_copy_text(clv_text_span *out, const clv_component_reader *r, const char *text, size_t size)
{
    *out = clv_text_span_of(clv_arena_copy(r->t->arena, text ? text : "", size + 1), size);
    return out->text ? CLV_OK : clv_fail_memory(r->err, r->where, size);
}

clv_status clv_component_read_string(clv_text_span *out, const clv_component_reader *r, const json_t *object,
                                     const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return clv_component_fail(r, "\"%s\" must be a string", key);
    return clv_component_copy_text(out, r, json_string_value(value), json_string_length(value));
}

clv_status clv_component_read_character(clv_text_span *out, const clv_component_reader *r, const json_t *json,
                                        const char *key)
{
    CLV_TRY(clv_component_read_string(out, r, json, key));
    if (out->size == 0 || clv_utf8_character(out->text, out->size) != out->size)
        return clv_component_fail(r, "\"%s\" must be one character", key);
    return CLV_OK;
}

clv_status clv_component_read_pattern(clv_text_span *text, bool *literal, const clv_component_reader *r,
                                      const json_t *json)
{
    const json_t *pattern = json_object_get(json, "pattern");
    *literal = json_object_get(pattern, "String") != NULL;
    if (json_object_size(pattern) != 1 || !(*literal || json_object_get(pattern, "Regex")))
        return clv_component_fail(r, "\"pattern\" must be {\"Regex\": ...} or {\"String\": ...}");
    return clv_component_read_string(text, r, pattern, *literal ? "String" : "Regex");
}

clv_status clv_component_read_bool(bool *out, const clv_component_reader *r, const json_t *json, const char *key)
{
    /* unlike other optional values, a flag must not be null */
    clv_json_need need = json_object_get(json, key) ? CLV_JSON_REQUIRED : CLV_JSON_OPTIONAL;
    return clv_json_get_bool(out, json, key, need, r->where, r->err);
}

static clv_status read_field(char *options, const clv_component_field *f, const clv_component_reader *r,
                             const json_t *json)
{
    void *out = options + f->offset;
    if (f->kind == CLV_FIELD_BOOL)
        return clv_json_get_bool(out, json, f->key, CLV_JSON_REQUIRED, r->where, r->err);
    if (f->kind == CLV_FIELD_CHARACTER)
        return clv_component_read_character(out, r, json, f->key);
    CLV_TRY(clv_component_read_string(out, r, json, f->key));
    if (f->kind == CLV_FIELD_NONEMPTY_STRING && ((const clv_text_span *)out)->size == 0)
        return clv_component_fail(r, "\"%s\" is an empty string", f->key);
    return CLV_OK;
}

clv_status clv_component_read_options(void **out, const clv_tokenizer_component *c, const clv_component_reader *r,
                                      const json_t *json)
{
    if (c->options_size > 0 && !(*out = clv_arena_alloc(r->t->arena, 1, c->options_size)))
        return clv_fail_memory(r->err, r->where, c->options_size);
    for (size_t i = 0; i < sizeof c->fields / sizeof c->fields[0] && c->fields[i].key; i++)
        CLV_TRY(read_field(*out, &c->fields[i], r, json));
    return c->read ? c->read(*out, r, json) : CLV_OK;
}

clv_status clv_component_fail_unsupported(const clv_component_reader *r, const char *what, const char *name,
                                          const char *valid)
{
    return clv_fail(r->err, CLV_EUNSUPPORTED, "%s: %s '%.100s' is not supported; valid: %s", r->where, what, name,
                    valid);
}

const char *clv_tokenizer_component_type(const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    return type ? type : "";
}

clv_status clv_component_read_token_id(int64_t *id, const clv_component_reader *r, const json_t *json, const char *key)
{
    const char *name = NULL;
    CLV_TRY(clv_json_get_string(&name, json, key, CLV_JSON_REQUIRED, r->where, r->err));
    *id = clv_vocab_find(&r->t->vocab, clv_text_span_of(name, strlen(name)));
    if (*id < 0)
        return clv_component_fail(r, "\"%s\" is '%.60s', which is not in the vocabulary", key, name);
    return CLV_OK;
}
