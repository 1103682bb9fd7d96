/* post_processors.c - the special tokens around a text: TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel. */
#include <string.h>

#include "base/error.h"
#include "io/tokenizer_parts.h"

/* An id that a processor names, at place `at` of a list. */
static clv_status insert(clv_special_ids *ids, int at, const clv_token_reader *r, const json_t *id)
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

static clv_status special_ids(const json_t **ids, const clv_token_reader *r, const json_t *json, const json_t *special)
{
    const char *name = NULL;
    CLV_TRY(clv_json_string(&name, special, "id", CLV_JSON_REQUIRED, r->where, r->err));
    *ids = json_object_get(json_object_get(json_object_get(json, "special_tokens"), name), "ids");
    if (json_array_size(*ids) == 0)
        return clv_fail(r->err, CLV_EFORMAT, "%s: '%s' is not among its special_tokens", r->where, name);
    return CLV_OK;
}

/* Processors in a sequence go around each other, so what this one puts before the text goes in front. */
static clv_status read_template(const clv_token_reader *r, const json_t *json)
{
    const json_t *single = json_object_get(json, "single"), *ids;
    clv_special_ids *before = &r->t->before, *after = &r->t->after;
    int in_front = 0, texts = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
        const char *sequence = json_string_value(json_object_get(json_object_get(item, "Sequence"), "id"));
        if (!special && (!sequence || strcmp(sequence, "A") != 0))
            return clv_reader_unsupported(r, "in \"single\", the sequence", sequence ? sequence : "", "A");
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

const clv_post_processor clv_process_template = {"TemplateProcessing", read_template};

/* ---- BertProcessing and RobertaProcessing: cls, the text, sep ---- */

static clv_status read_pair(const clv_token_reader *r, const json_t *json)
{
    CLV_TRY(insert(&r->t->before, 0, r, json_array_get(json_object_get(json, "cls"), 1)));
    return insert(&r->t->after, r->t->after.n, r, json_array_get(json_object_get(json, "sep"), 1));
}

const clv_post_processor clv_process_bert = {"BertProcessing", read_pair};
const clv_post_processor clv_process_roberta = {"RobertaProcessing", read_pair};

/* ---- ByteLevel: of offsets alone ---- */

static clv_status read_nothing(const clv_token_reader *r, const json_t *json)
{
    (void)r, (void)json;
    return CLV_OK;
}

const clv_post_processor clv_process_byte_level = {"ByteLevel", read_nothing};
