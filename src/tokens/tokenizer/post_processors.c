/* post_processors.c - TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel: special tokens before and
 * after a text.
 */
#include <string.h>

#include "base/error.h"
#include "tokens/tokenizer/tokenizer_components.h"

/* An id that a processor names, at place `at` of a list. */
static clv_status insert(clv_special_ids *ids, int at, const clv_component_reader *r, const json_t *id)
{
    const clv_tokenizer *t = r->t;
    int64_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    if (value < 0 || value >= t->size || !t->token[value].text)
        return clv_fail(r->err, CLV_EFORMAT, "%s: names a token of an id (%lld) that there is not; valid: 0 to %lld",
                        r->where, (long long)value, (long long)t->size - 1);
    if (ids->n == CLV_MAX_TEMPLATE)
        return clv_fail(r->err, CLV_ELIMIT, "%s: more than %d tokens", r->where, CLV_MAX_TEMPLATE);
    memmove(&ids->id[at + 1], &ids->id[at], (size_t)(ids->n - at) * sizeof ids->id[0]);
    ids->id[at] = value;
    ids->n++;
    return CLV_OK;
}

/* ---- TemplateProcessing ---- */

static clv_status special_ids(const json_t **ids, const clv_component_reader *r, const json_t *json,
                              const json_t *special)
{
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *token = json_object_get(json_object_get(json, "special_tokens"), name);
    const json_t *names = json_object_get(token, "tokens");
    *ids = json_object_get(token, "ids");
    if (!token)
        return clv_fail(r->err, CLV_EFORMAT, "%s: '%s' is not among its special_tokens", r->where, name);
    bool listed = json_array_size(*ids) > 0 && json_array_size(names) == json_array_size(*ids);
    for (size_t i = 0; i < json_array_size(names); i++)
        listed = listed && json_is_string(json_array_get(names, i));
    return listed ? CLV_OK
                  : clv_fail(r->err, CLV_EFORMAT, "%s: '%s' must have as many \"ids\" as \"tokens\", one at least",
                             r->where, name);
}

/* A list of {"Sequence": {"id": "A", "type_id": 0}} and {"SpecialToken": ...}. */
static clv_status check_items(const clv_component_reader *r, const json_t *json, const char *key)
{
    const json_t *list = json_object_get(json, key);
    if (!json_is_array(list))
        return clv_fail(r->err, CLV_EFORMAT, "%s: \"%s\" must be a list", r->where, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *special = json_object_get(item, "SpecialToken");
        const json_t *piece = special ? special : json_object_get(item, "Sequence");
        if (!json_is_string(json_object_get(piece, "id")) || !json_is_integer(json_object_get(piece, "type_id")))
            return clv_fail(r->err, CLV_EFORMAT,
                            "%s: \"%s\", item %zu must be a Sequence or a SpecialToken with \"id\" and \"type_id\"",
                            r->where, key, i + 1);
    }
    return CLV_OK;
}

/* Processors in a sequence go around each other, so what this one puts before the text goes in front. */
static clv_status read_template(const clv_component_reader *r, const json_t *json)
{
    const json_t *single = json_object_get(json, "single"), *ids;
    clv_special_ids *before = &r->t->before, *after = &r->t->after;
    int in_front = 0, texts = 0;
    CLV_TRY(check_items(r, json, "single"));
    CLV_TRY(check_items(r, json, "pair"));
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
        const char *sequence = json_string_value(json_object_get(json_object_get(item, "Sequence"), "id"));
        if (!special && strcmp(sequence, "A") != 0)
            return clv_component_fail_unsupported(r, "in \"single\", the sequence", sequence, "A");
        texts += !special;
        if (!special)
            continue;
        CLV_TRY(special_ids(&ids, r, json, special));
        for (size_t k = 0; k < json_array_size(ids); k++)
            CLV_TRY(texts ? insert(after, after->n, r, json_array_get(ids, k))
                          : insert(before, in_front++, r, json_array_get(ids, k)));
    }
    if (texts != 1)
        return clv_fail(r->err, CLV_EUNSUPPORTED, "%s: \"single\" has the text %d times; valid: once", r->where, texts);
    return CLV_OK;
}

const clv_post_processor clv_post_processor_template = {"TemplateProcessing", read_template};

/* ---- BertProcessing and RobertaProcessing: cls, the text, sep ---- */

/* The id of a ["token", id]. */
static clv_status pair_id(const json_t **id, const clv_component_reader *r, const json_t *json, const char *key)
{
    const json_t *pair = json_object_get(json, key);
    *id = json_array_get(pair, 1);
    if (json_array_size(pair) == 2 && json_is_string(json_array_get(pair, 0)) && json_is_integer(*id))
        return CLV_OK;
    return clv_fail(r->err, CLV_EFORMAT, "%s: \"%s\" must be [\"token\", id]", r->where, key);
}

static clv_status read_bert(const clv_component_reader *r, const json_t *json)
{
    const json_t *before, *after;
    CLV_TRY(pair_id(&before, r, json, "cls"));
    CLV_TRY(pair_id(&after, r, json, "sep"));
    CLV_TRY(insert(&r->t->before, 0, r, before));
    return insert(&r->t->after, r->t->after.n, r, after);
}

static clv_status read_roberta(const clv_component_reader *r, const json_t *json)
{
    bool of_offsets;
    CLV_TRY(clv_json_get_bool(&of_offsets, json, "trim_offsets", CLV_JSON_REQUIRED, r->where, r->err));
    CLV_TRY(clv_json_get_bool(&of_offsets, json, "add_prefix_space", CLV_JSON_REQUIRED, r->where, r->err));
    return read_bert(r, json);
}

const clv_post_processor clv_post_processor_bert = {"BertProcessing", read_bert};
const clv_post_processor clv_post_processor_roberta = {"RobertaProcessing", read_roberta};

/* ---- ByteLevel: of offsets alone ---- */

static clv_status read_byte_level(const clv_component_reader *r, const json_t *json)
{
    void *ignored;
    return clv_component_read_options(&ignored, &clv_pre_tokenizer_byte_level, r, json);
}

const clv_post_processor clv_post_processor_byte_level = {"ByteLevel", read_byte_level};
