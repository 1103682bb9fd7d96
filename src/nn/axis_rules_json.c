/* axis_rules_json.c - reads logical axis rules from JSON text or a file. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/rules.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "nn/logical_axis.h"
#include "tensor/parse_print.h"

enum { FILE_LIMIT = 1 << 20 };

static clv_status mesh_axis(int *out, const json_t *value, const clv_mesh *mesh, const char *where, clv_error *err)
{
    char names[CLV_MESH_TEXT];
    if (!json_is_string(value))
        return clv_fail(err, CLV_EFORMAT, "%s: a mesh axis is a string", where);
    *out = clv_mesh_find_name(mesh, json_string_value(value), (int)json_string_length(value));
    if (*out >= 0)
        return CLV_OK;
    clv_mesh_names(names, sizeof names, mesh);
    return clv_fail(err, CLV_EAXIS, "%s: the mesh has no axis '%s'; valid: %s", where, json_string_value(value), names);
}

/* One axis, a list of them, or null. */
static clv_status mesh_axes(int *out, int *n, const json_t *value, const clv_mesh *mesh, const char *where,
                            clv_error *err)
{
    *n = 0;
    if (json_is_null(value))
        return CLV_OK;
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count > CLV_MAX_RULE_AXES)
        return clv_fail(err, CLV_ELIMIT, "%s: %zu axes; valid: at most %d", where, count, CLV_MAX_RULE_AXES);
    for (size_t i = 0; i < count; i++) {
        CLV_TRY(mesh_axis(&out[i], json_is_array(value) ? json_array_get(value, i) : value, mesh, where, err));
        for (size_t k = 0; k < i; k++)
            if (out[k] == out[i])
                return clv_fail(err, CLV_EAXIS, "%s: axis '%s' twice; each splits a tensor once", where,
                                mesh->axis[out[i]].name);
        *n += 1;
    }
    return CLV_OK;
}

static clv_status one_rule(clv_axis_rules *rules, const json_t *pair, const clv_mesh *mesh, const char *where,
                           clv_error *err)
{
    int axis[CLV_MAX_RULE_AXES], n;
    clv_error why = {0};
    if (!json_is_array(pair) || json_array_size(pair) != 2)
        return clv_fail(err, CLV_EFORMAT, "%s: a rule is a pair, [\"heads\", \"model\"] or [\"seq\", null]", where);
    const char *name = json_string_value(json_array_get(pair, 0));
    if (!name)
        return clv_fail(err, CLV_EFORMAT, "%s: the name of a logical axis is a string, as \"heads\"", where);
    CLV_TRY(mesh_axes(axis, &n, json_array_get(pair, 1), mesh, where, err));
    if (clv_axis_rules_append(rules, name, axis, n, &why) != CLV_OK)
        return clv_fail(err, why.code, "%s: %s", where, why.message);
    return CLV_OK;
}

static clv_status check_keys(const json_t *document, const char *where, clv_error *err)
{
    const char *key;
    json_t *value;
    CLV_TRY(clv_json_check_object(document, where, err));
    json_object_foreach((json_t *)document, key,
                        value) if (strcmp(key, "rules") != 0 &&
                                   strcmp(key, "optimizer") !=
                                       0) return clv_fail(err, CLV_EFORMAT,
                                                          "%s: unknown key \"%s\"; valid: rules, optimizer", where,
                                                          key);
    return CLV_OK;
}

static clv_status from_json(clv_axis_rules *rules, const json_t *document, const clv_mesh *mesh, const char *where,
                            clv_error *err)
{
    CLV_TRY(check_keys(document, where, err));
    const json_t *list = json_object_get(document, "rules"), *optimizer = json_object_get(document, "optimizer");
    if (!json_is_array(list) || json_array_size(list) > CLV_MAX_RULES)
        return clv_fail(err, CLV_EFORMAT, "%s: \"rules\" must be a list of at most %d pairs", where, CLV_MAX_RULES);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char rule[300];
        snprintf(rule, sizeof rule, "%.255s: rule %zu", where, i + 1);
        CLV_TRY(one_rule(rules, json_array_get(list, i), mesh, rule, err));
    }
    if (optimizer)
        CLV_TRY(mesh_axes(rules->optimizer, &rules->n_optimizer, optimizer, mesh, where, err));
    return CLV_OK;
}

clv_status clv_axis_rules_parse(clv_axis_rules *out, const char *json, size_t size, const clv_mesh *mesh,
                                const char *where, clv_error *err)
{
    CLV_TRY(clv_require(out && json && mesh && where, "clv_axis_rules_parse", "out, a text, a mesh and where", err));
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
    status = from_json(&rules, document, mesh, where, err);
    json_decref(document);
    if (status == CLV_OK)
        *out = rules;
    return status;
}

clv_status clv_axis_rules_read(clv_axis_rules *out, const char *path, const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_require(out && path && mesh, "clv_axis_rules_read", "out, a path and a mesh", err));
    char *text;
    size_t size;
    CLV_TRY(clv_file_read(&text, &size, path, FILE_LIMIT, err));
    clv_status status = clv_axis_rules_parse(out, text, size, mesh, path, err);
    free(text);
    return status;
}
