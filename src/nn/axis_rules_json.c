/* axis_rules_json.c - reads logical axis rules from JSON with comments, a text or a file. (--rules FILE of the command
 * may hold a mesh and options, too: models/plan/saved_plan.c.) */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/rules.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "nn/axis_rules.h"

enum { FILE_LIMIT = 1 << 20 };

/* value: one axis, a list of axes, or null. */
static clv_status parse_axes(int *out, int *n, const json_t *value, const clv_mesh *mesh, clv_error *err)
{
    *n = 0;
    if (json_is_null(value))
        return CLV_OK;
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count > CLV_MAX_RULE_AXES)
        return clv_fail(err, CLV_ELIMIT, "%zu axes; valid: at most %d", count, CLV_MAX_RULE_AXES);
    for (size_t i = 0; i < count; i++) {
        const json_t *axis = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(axis))
            return clv_fail(err, CLV_EFORMAT, "a mesh axis is a string");
        CLV_TRY(clv_axis_rules_append_axis(out, n, mesh, json_string_value(axis), (int)json_string_length(axis), err));
    }
    return CLV_OK;
}

static clv_status parse_rule(clv_axis_rules *rules, const json_t *pair, const clv_mesh *mesh, clv_error *err)
{
    int axis[CLV_MAX_RULE_AXES], n;
    if (!json_is_array(pair) || json_array_size(pair) != 2)
        return clv_fail(err, CLV_EFORMAT, "a rule is a pair, [\"heads\", \"model\"] or [\"seq\", null]");
    const char *name = json_string_value(json_array_get(pair, 0));
    if (!name)
        return clv_fail(err, CLV_EFORMAT, "the name of a logical axis is a string, as \"heads\"");
    CLV_TRY(parse_axes(axis, &n, json_array_get(pair, 1), mesh, err));
    return clv_axis_rules_append(rules, name, axis, n, err);
}

/* "virtual_stages": N and "stages": [8, 8, 9, 7]. */
static clv_status parse_stages(clv_axis_rules *rules, const json_t *document, const clv_mesh *mesh, const char *where,
                               clv_error *err)
{
    const json_t *runs = json_object_get(document, "virtual_stages"), *list = json_object_get(document, "stages");
    int layers[CLV_MAX_VIRTUAL_STAGES] = {0};
    const size_t n = json_array_size(list);
    bool valid = (!runs || json_is_integer(runs)) && (!list || json_is_array(list)) && n <= CLV_MAX_VIRTUAL_STAGES;
    for (size_t i = 0; valid && i < n; i++) {
        const json_int_t given = json_integer_value(json_array_get(list, i));
        valid = given >= 1 && given <= INT_MAX;
        layers[i] = valid ? (int)given : 0;
    }
    const json_int_t of_stage = runs ? json_integer_value(runs) : 1;
    if (!valid || of_stage < 1 || of_stage > CLV_MAX_VIRTUAL_STAGES)
        return clv_fail(
            err, CLV_EFORMAT,
            "%s: \"virtual_stages\" must be a number from 1 to %d, and \"stages\" a list of at most as many "
            "numbers of layers, from 1",
            where, CLV_MAX_VIRTUAL_STAGES);
    clv_error why = {0};
    if ((runs || list) && clv_axis_rules_set_stages(rules, mesh, (int)of_stage, layers, (int)n, &why) != CLV_OK)
        return clv_fail(err, why.code, "%s: %s", where, why.message);
    return CLV_OK;
}

/* The other keys are of clv_saved_plan. */
static bool is_known_key(const char *key)
{
    static const char *const keys[] = {
        "rules", "optimizer",      "mesh",     "accumulate", "recompute",      "reshard_after_forward",
        "hosts", "ranks_per_host", "schedule", "no_sync",    "virtual_stages", "stages"};
    bool known = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        known = known || strcmp(key, keys[i]) == 0;
    return known;
}

static clv_status parse_document(clv_axis_rules *rules, const json_t *document, const clv_mesh *mesh, const char *where,
                                 clv_error *err)
{
    const char *key;
    json_t *value;
    clv_error why = {0};
    CLV_TRY(clv_json_check_object(document, where, err));
    const json_t *list = json_object_get(document, "rules"), *optimizer = json_object_get(document, "optimizer");
    json_object_foreach((json_t *)document, key, value)
    {
        if (!is_known_key(key))
            return clv_fail(err, CLV_EFORMAT,
                            "%s: unknown key \"%s\"; valid: rules, optimizer, mesh, accumulate, recompute, "
                            "reshard_after_forward, hosts, ranks_per_host, schedule, no_sync, virtual_stages, stages",
                            where, key);
    }
    if (!json_is_array(list))
        return clv_fail(err, CLV_EFORMAT, "%s: \"rules\" must be a list of at most %d pairs", where, CLV_MAX_RULES);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (parse_rule(rules, json_array_get(list, i), mesh, &why) != CLV_OK)
            return clv_fail(err, why.code, "%s: rule %zu: %s", where, i + 1, why.message);
    if (optimizer && parse_axes(rules->optimizer, &rules->n_optimizer, optimizer, mesh, &why) != CLV_OK)
        return clv_fail(err, why.code, "%s: %s", where, why.message);
    return parse_stages(rules, document, mesh, where, err);
}

clv_status clv_axis_rules_parse(clv_axis_rules *out, const char *json, size_t size, const clv_mesh *mesh,
                                const char *where, clv_error *err)
{
    CLV_TRY(clv_require(out && json && mesh && where, __func__, "out, a text, a mesh and where", err));
    clv_axis_rules rules = {0};
    json_t *document;
    char *text = malloc(size + 1);
    if (!text)
        return clv_fail_memory(err, where, size);
    memcpy(text, json, size);
    clv_json_blank_comments(text, size);
    clv_status status = clv_json_parse(&document, text, size, CLV_JSON_KEYS_UNIQUE, where, err);
    free(text);
    CLV_TRY(status);
    const char *folder = strrchr(where, '/');
    snprintf(rules.name, sizeof rules.name, "%s", folder ? folder + 1 : where);
    status = parse_document(&rules, document, mesh, where, err);
    json_decref(document);
    if (status == CLV_OK)
        *out = rules;
    return status;
}

clv_status clv_axis_rules_read(clv_axis_rules *out, const char *path, const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_require(out && path && mesh, __func__, "out, a path and a mesh", err));
    CLV_FREED char *text = NULL;
    size_t size;
    CLV_TRY(clv_file_read(&text, &size, path, FILE_LIMIT, err));
    return clv_axis_rules_parse(out, text, size, mesh, path, err);
}
