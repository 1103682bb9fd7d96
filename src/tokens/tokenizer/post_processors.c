/* post_processors.c - adds special tokens before and after a text: TemplateProcessing, BertProcessing,
 * RobertaProcessing, ByteLevel. */
#include "tokens/tokenizer/tokenizer_components.h"

/* Inserts an id that a processor names at index `at` of a list. */
static clv_status insert(clv_special_ids *ids, int at, const clv_component_reader *r, const json_t *id)
{
    const clv_tokenizer *t = r->t;
    int64_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    if (value < 0 || value >= t->size || !t->token[value].text)
        return clv_component_fail(r, "names a token of the unknown id %lld; valid: 0 to %lld", (long long)value,
                                  (long long)t->size - 1);
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
        return clv_component_fail(r, "'%s' is not among its special_tokens", name);
    bool listed = json_array_size(*ids) > 0 && json_array_size(names) == json_array_size(*ids);
    for (size_t i = 0; i < json_array_size(names); i++)
        listed = listed && json_is_string(json_array_get(names, i));
    return listed ? CLV_OK : clv_component_fail(r, "'%s' must have as many \"ids\" as \"tokens\", one at least", name);
}

/* A list of {"Sequence": {"id": "A", "type_id": 0}} and {"SpecialToken": ...}. */
static clv_status check_items(const clv_component_reader *r, const json_t *json, const char *key)
{
    const json_t *list = json_object_get(json, key);
    if (!json_is_array(list))
        return clv_component_fail(r, "\"%s\" must be a list", key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *special = json_object_get(item, "SpecialToken");
        const json_t *body = special ? special : json_object_get(item, "Sequence");
        if (!json_is_string(json_object_get(body, "id")) || !json_is_integer(json_object_get(body, "type_id")))
            return clv_component_fail(
                r, "\"%s\", item %zu must be a Sequence or a SpecialToken with \"id\" and \"type_id\"", key, i + 1);
    }
    return CLV_OK;
}

/* Processors of a sequence wrap each other: a later one inserts its prefix in front. */
static clv_status read_template(void *options, const clv_component_reader *r, const json_t *json)
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

const clv_tokenizer_component clv_post_processor_template = {.type = "TemplateProcessing", .read = read_template};

/* ---- BertProcessing and RobertaProcessing: cls, the text, sep ---- */

/* The id of a ["token", id]. */
static clv_status pair_id(const json_t **id, const clv_component_reader *r, const json_t *json, const char *key)
{
    const json_t *pair = json_object_get(json, key);
    *id = json_array_get(pair, 1);
    if (json_array_size(pair) == 2 && json_is_string(json_array_get(pair, 0)) && json_is_integer(*id))
        return CLV_OK;
    return clv_component_fail(r, "\"%s\" must be [\"token\", id]", key);
}

static clv_status read_bert(void *options, const clv_component_reader *r, const json_t *json)
{
    const json_t *before, *after;
    CLV_TRY(pair_id(&before, r, json, "cls"));
    CLV_TRY(pair_id(&after, r, json, "sep"));
    CLV_TRY(insert(&r->t->before, 0, r, before));
    return insert(&r->t->after, r->t->after.n, r, after);
}

typedef struct roberta_options {
    bool trim_offsets, prefix_space; /* without effect on ids */
} roberta_options;

const clv_tokenizer_component clv_post_processor_bert = {.type = "BertProcessing", .read = read_bert};
const clv_tokenizer_component clv_post_processor_roberta = {
    .type = "RobertaProcessing",
    .options_size = sizeof(roberta_options),
    .fields = {{"trim_offsets", CLV_FIELD_BOOL, offsetof(roberta_options, trim_offsets)},
               {"add_prefix_space", CLV_FIELD_BOOL, offsetof(roberta_options, prefix_space)}},
    .read = read_bert};
