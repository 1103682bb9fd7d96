/* machine_profile.c - reads and writes hardware profiles as JSON, and finds the built-in ones. */
#include "program/cost/machine.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "ops/builtin_ops.h"
#include "program/reshard_step.h"
#include "program/shipped_machines.h"

enum { FILE_LIMIT = 4 << 20 };

/* ---- reading ---- */

/* A key of a profile, and where its number goes in a clv_machine. */
typedef struct profile_key {
    const char *name;
    bool in_software;         /* an entry of "software" may replace it */
    size_t number;            /* its offset; 0: it has no number */
    double lo, hi, otherwise; /* of the number. NAN: it is required */
} profile_key;

#define OTHER(key, replaced)                                                                                           \
    {                                                                                                                  \
        .name = #key, .in_software = replaced                                                                          \
    }
#define NUMBER(key, replaced, least, most, default_)                                                                   \
    {                                                                                                                  \
        .name = #key, .in_software = replaced, .number = offsetof(clv_machine, key), .lo = least, .hi = most,          \
        .otherwise = default_                                                                                          \
    }

static const profile_key keys[] = {
    OTHER(name, false),
    OTHER(source, true),
    OTHER(ranks_per_host, false),
    OTHER(hosts, false),
    OTHER(host, false),
    OTHER(network, false),
    OTHER(flops_per_s, true),
    NUMBER(efficiency, true, 1e-3, 1, 1),
    NUMBER(k_half, true, 0, 1e6, 0),
    NUMBER(traffic_factor, true, 1e-3, 1e3, 1),
    NUMBER(memory_bytes, false, 1e-12, 1e30, NAN),
    NUMBER(memory_bytes_per_s, true, 1e-12, 1e30, NAN),
    NUMBER(instruction_s, true, 0, 1, 0),
    OTHER(op_efficiency, true),
    OTHER(op_traffic, true),
    OTHER(overlap, true),
    OTHER(collectives, true),
    OTHER(selective, true),
    OTHER(dispatch, true),
    OTHER(stage_messages, true),
    OTHER(expert_bias_bytes, true),
    OTHER(ops, true),
    OTHER(ops_alone, false),
    OTHER(ops_network, false),
    OTHER(software, false),
    OTHER(published, true),
    OTHER(fitted, true),
    NUMBER(attention_start_s, true, 0, 1, 0),
    NUMBER(expert_rows_bytes_per_s, true, 0, 1e15, 0),
    NUMBER(ring_efficiency, true, 1e-3, 1, 0),
    NUMBER(logit_bytes, true, 0, 64, 0),
    NUMBER(split_logit_bytes, true, 0, 64, -1), /* as logit_bytes */
    NUMBER(score_bytes, true, 0, 64, 0),
    NUMBER(gradient_bytes, true, 0, 8, 0),
    NUMBER(operand_bytes, true, 0, 8, 0),
    NUMBER(gathered_weight_bytes, true, 0, 8, 0),
    NUMBER(state_bytes, true, 0, 64, 0),
    NUMBER(fragmentation, true, 0, 1, 0),
    NUMBER(offload_bytes_per_s, false, 0, 1e15, 0),
};

enum { KEYS = sizeof keys / sizeof *keys };

static double *number_of(clv_machine *p, const profile_key *key)
{
    return (double *)((char *)p + key->number);
}

/* Names in a message. */
typedef struct name_list {
    char text[1024];
} name_list;

static void add_name(name_list *list, const char *name)
{
    size_t used = strlen(list->text);
    snprintf(list->text + used, sizeof list->text - used, "%s%s", used ? ", " : "", name);
}

static clv_status check_keys(const json_t *document, const char *const *valid, size_t n, const char *where,
                             clv_error *err)
{
    const char *key;
    json_t *value;
    name_list names = {""};
    CLV_TRY(clv_json_check_object(document, where, err));
    for (size_t i = 0; i < n; i++)
        add_name(&names, valid[i]);
    json_object_foreach((json_t *)document, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < n; i++)
            known = known || strcmp(key, valid[i]) == 0;
        if (!known)
            return clv_fail(err, CLV_EFORMAT, "%s: unknown key \"%s\"; valid: %s", where, key, names.text);
    }
    return CLV_OK;
}

/* Of a profile, or of an entry of its "software". */
static clv_status check_profile_keys(const json_t *document, bool is_software, const char *where, clv_error *err)
{
    const char *valid[KEYS];
    size_t n = 0;
    for (int k = 0; k < KEYS; k++)
        if (!is_software || keys[k].in_software)
            valid[n++] = keys[k].name;
    return check_keys(document, valid, n, where, err);
}

static clv_status positive(double *out, const json_t *object, const char *key, clv_json_need need, const char *where,
                           clv_error *err)
{
    return clv_json_get_real(out, object, key, need, 1e-12, 1e30, where, err);
}

/* Whether so many edits make one name the other. */
static bool is_near(const char *a, const char *b, int edits)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    if (!*a || !*b)
        return (int)(strlen(a) + strlen(b)) <= edits;
    return edits > 0 &&
           (is_near(a + 1, b + 1, edits - 1) || is_near(a + 1, b, edits - 1) || is_near(a, b + 1, edits - 1));
}

/* A name that is nearly one of the library's is a slip; any other one may be an op of the caller's own. */
static clv_status check_op(const char *op, const char *where, clv_error *err)
{
    enum { SHORT = 6, EDITS = 2 };
#define OP_NAME(name)                         #name,
#define STEP_NAME(code, name, reduces, moves) name,
    static const char *const builtin[] = {CLV_BUILTIN_OPS(OP_NAME) CLV_STEP_TABLE(STEP_NAME)};
#undef OP_NAME
#undef STEP_NAME
    const char *near = NULL;
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin; i++) {
        if (strcmp(op, builtin[i]) == 0)
            return CLV_OK;
        if (strlen(builtin[i]) >= SHORT && is_near(op, builtin[i], EDITS))
            near = builtin[i];
    }
    return near ? clv_fail(err, CLV_EFORMAT, "%s: no op is named \"%.64s\"; did you mean \"%s\"?", where, op, near)
                : CLV_OK;
}

static clv_status read_points(clv_rate *rate, const json_t *list, const char *what, const char *where, clv_error *err)
{
    size_t n = json_array_size(list);
    if (n < 1 || n > CLV_MAX_RATE_POINTS)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be a list of 1 to %d pairs %s", where, rate->op,
                        CLV_MAX_RATE_POINTS, what);
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(list, i);
        double work = json_number_value(json_array_get(pair, 0)), value = json_number_value(json_array_get(pair, 1));
        if (json_array_size(pair) != 2 || !(work > 0) || !(value > 0) || (i > 0 && !(work > rate->work[i - 1])))
            return clv_fail(err, CLV_EFORMAT, "%s: \"%s\": pair %zu must be %s, both above 0, the first growing", where,
                            rate->op, i + 1, what);
        rate->work[i] = work;
        rate->rate[i] = value;
    }
    rate->n = (int)n;
    return CLV_OK;
}

/* What of a link a rank gets, by ranks that use it at once: at most all, and no more for more ranks. */
static clv_status read_share(clv_rate *out, const json_t *link, const char *where, clv_error *err)
{
    const json_t *share = json_object_get(link, "share");
    *out = (clv_rate){.op = "share"};
    if (!share)
        return CLV_OK;
    CLV_TRY(read_points(out, share, "[ranks, share]", where, err));
    for (int i = 0; i < out->n; i++)
        if (out->rate[i] > (i > 0 ? out->rate[i - 1] : 1))
            return clv_fail(err, CLV_EFORMAT, "%s: \"share\": pair %d has share %g; valid: at most %g", where, i + 1,
                            out->rate[i], i > 0 ? out->rate[i - 1] : 1);
    return CLV_OK;
}

static clv_status read_link(clv_machine_link *out, clv_rate *share, const json_t *document, const char *key,
                            const char *where, clv_error *err)
{
    static const char *const link_keys[] = {"alpha_s", "bytes_per_s", "share"};
    char inside[320];
    const json_t *link = json_object_get(document, key);
    snprintf(inside, sizeof inside, "%.255s: \"%s\"", where, key);
    if (!link)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" is missing", where, key);
    CLV_TRY(check_keys(link, link_keys, sizeof link_keys / sizeof *link_keys, inside, err));
    CLV_TRY(positive(&out->alpha_s, link, "alpha_s", CLV_JSON_REQUIRED, inside, err));
    CLV_TRY(read_share(share, link, inside, err));
    return positive(&out->bytes_per_s, link, "bytes_per_s", CLV_JSON_REQUIRED, inside, err);
}

static clv_status read_flops(clv_machine *p, const json_t *document, const char *where, clv_error *err)
{
    char inside[320];
    const json_t *flops = json_object_get(document, "flops_per_s");
    snprintf(inside, sizeof inside, "%.255s: \"flops_per_s\"", where);
    if (!flops)
        return clv_fail(err, CLV_EFORMAT, "%s: \"flops_per_s\" is missing", where);
    CLV_TRY(clv_json_check_object(flops, inside, err));
    for (void *at = json_object_iter((json_t *)flops); at; at = json_object_iter_next((json_t *)flops, at)) {
        clv_error why = {0};
        clv_dtype unused;
        if (clv_dtype_parse(&unused, json_object_iter_key(at), &why) != CLV_OK)
            return clv_fail(err, CLV_EFORMAT, "%s: %s", inside, why.message);
    }
    CLV_TRY(positive(&p->flops_per_s[CLV_F32], flops, "f32", CLV_JSON_REQUIRED, inside, err));
    for (int d = 0; d < CLV_DTYPE_COUNT; d++) {
        p->flops_per_s[d] = p->flops_per_s[CLV_F32];
        CLV_TRY(positive(&p->flops_per_s[d], flops, clv_dtype_name((clv_dtype)d), CLV_JSON_OPTIONAL, inside, err));
    }
    return CLV_OK;
}

static clv_status read_rates(clv_rates *out, const json_t *ops, const char *where, clv_error *err)
{
    const char *op, *dtype;
    json_t *by_dtype, *list;
    if (ops)
        CLV_TRY(clv_json_check_object(ops, where, err));
    json_object_foreach((json_t *)ops, op, by_dtype)
    {
        CLV_TRY(check_op(op, where, err));
        json_object_foreach(by_dtype, dtype, list)
        {
            if (strlen(op) >= CLV_MACHINE_NAME)
                return clv_fail(err, CLV_EFORMAT, "%s: \"%.40s...\" is no op; names have at most %d bytes", where, op,
                                CLV_MACHINE_NAME - 1);
            clv_rate *rate = clv_rates_add(out);
            if (!rate && out->n == CLV_MAX_RATES)
                return clv_fail(err, CLV_ELIMIT, "%s: more than %d measurements", where, CLV_MAX_RATES);
            if (!rate)
                return clv_fail_memory(err, where, CLV_MAX_RATES * sizeof *rate);
            snprintf(rate->op, sizeof rate->op, "%s", op);
            if (clv_dtype_parse(&rate->dtype, dtype, NULL) != CLV_OK)
                return clv_fail(err, CLV_EFORMAT, "%s: \"%s\": dtype '%.40s' is unknown", where, op, dtype);
            CLV_TRY(read_points(rate, list, "[work, rate]", where, err));
        }
    }
    return CLV_OK;
}

static clv_status read_factors(clv_op_factors *out, const json_t *document, const char *key, double most,
                               const char *where, clv_error *err)
{
    const json_t *factors = json_object_get(document, key);
    char inside[320];
    const char *op;
    json_t *value;
    snprintf(inside, sizeof inside, "%.255s: \"%s\"", where, key);
    if (factors)
        CLV_TRY(clv_json_check_object(factors, inside, err));
    json_object_foreach((json_t *)factors, op, value)
    {
        if (out->n == CLV_MAX_OP_FACTORS || strlen(op) >= CLV_MACHINE_NAME)
            return clv_fail(err, CLV_ELIMIT, "%s: valid: at most %d ops, whose names have at most %d bytes", inside,
                            CLV_MAX_OP_FACTORS, CLV_MACHINE_NAME - 1);
        CLV_TRY(check_op(op, inside, err));
        memcpy(out->item[out->n].op, op, strlen(op) + 1);
        CLV_TRY(
            clv_json_get_real(&out->item[out->n++].factor, factors, op, CLV_JSON_REQUIRED, 1e-3, most, inside, err));
    }
    return CLV_OK;
}

static clv_status read_published(clv_machine *p, const json_t *document, const char *where, clv_error *err)
{
    static const char *const valid[] = {"runs", "error", "dtype", "rules"};
    const json_t *published = json_object_get(document, "published");
    const char *dtype = "bf16", *rules = "";
    clv_error why = {0};
    char inside[320];
    snprintf(inside, sizeof inside, "%.255s: \"published\"", where);
    if (!published)
        return CLV_OK;
    CLV_TRY(check_keys(published, valid, sizeof valid / sizeof *valid, inside, err));
    CLV_TRY(clv_json_get_string(&dtype, published, "dtype", CLV_JSON_OPTIONAL, inside, err));
    CLV_TRY(clv_json_get_string(&rules, published, "rules", CLV_JSON_OPTIONAL, inside, err));
    if (clv_dtype_parse(&p->published_dtype, dtype, &why) != CLV_OK)
        return clv_fail(err, CLV_EFORMAT, "%s: %s", inside, why.message);
    snprintf(p->published_rules, sizeof p->published_rules, "%s", rules);
    CLV_TRY(clv_json_get_int(&p->published_runs, published, "runs", CLV_JSON_REQUIRED, 1, 1 << 20, inside, err));
    return clv_json_get_real(&p->published_error, published, "error", CLV_JSON_REQUIRED, 0, 10, inside, err);
}

static clv_status read_numbers(clv_machine *p, const json_t *document, const char *where, clv_error *err)
{
    for (int k = 0; k < KEYS; k++) {
        const profile_key *key = &keys[k];
        if (key->number == 0)
            continue;
        const bool required = isnan(key->otherwise);
        *number_of(p, key) = required ? 0 : key->otherwise;
        CLV_TRY(clv_json_get_real(number_of(p, key), document, key->name,
                                  required ? CLV_JSON_REQUIRED : CLV_JSON_OPTIONAL, key->lo, key->hi, where, err));
    }
    p->split_logit_bytes = p->split_logit_bytes < 0 ? p->logit_bytes : p->split_logit_bytes;
    return CLV_OK;
}

/* Of a key with a few values, which one: the first if it is absent. */
static clv_status read_choice(int *out, const json_t *document, const char *key, const char *const *values, int n,
                              const char *where, clv_error *err)
{
    const char *value = values[0];
    name_list names = {""};
    CLV_TRY(clv_json_get_string(&value, document, key, CLV_JSON_OPTIONAL, where, err));
    for (*out = 0; *out < n; (*out)++) {
        if (strcmp(value, values[*out]) == 0)
            return CLV_OK;
        add_name(&names, values[*out]);
    }
    return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" is \"%.64s\"; valid: %s", where, key, value, names.text);
}

static const char *const overlaps[] = {"all", "network", "weights", "none"}, /* clv_machine_overlap */
    *const collectives[] = {"ranks", "root"};
static const char *const selectives[] = {"cheap", "alternate"}, *const dispatches[] = {"tokens", "copies"};
static const char *const messages[] = {"freed", "kept"};

static clv_status read_choices(clv_machine *p, const json_t *document, const char *where, clv_error *err)
{
    int overlap, collective, selective, dispatch, message;
    CLV_TRY(read_choice(&overlap, document, "overlap", overlaps, 4, where, err));
    CLV_TRY(read_choice(&collective, document, "collectives", collectives, 2, where, err));
    CLV_TRY(read_choice(&selective, document, "selective", selectives, 2, where, err));
    CLV_TRY(read_choice(&dispatch, document, "dispatch", dispatches, 2, where, err));
    CLV_TRY(read_choice(&message, document, "stage_messages", messages, 2, where, err));
    p->overlap = (clv_machine_overlap)overlap;
    p->through_root = collective == 1;
    p->recomputes_matmuls = selective == 1;
    p->dispatches_copies = dispatch == 1;
    p->keeps_messages = message == 1;
    return CLV_OK;
}

static clv_status read_expert_bias(clv_machine *p, const json_t *document, const char *where, clv_error *err)
{
    static const char *const valid[] = {"forward", "recomputed", "backward"};
    double *const out[] = {&p->expert_bias.forward, &p->expert_bias.recomputed, &p->expert_bias.backward};
    const json_t *bytes = json_object_get(document, "expert_bias_bytes");
    char inside[320];
    snprintf(inside, sizeof inside, "%.255s: \"expert_bias_bytes\"", where);
    if (!bytes)
        return CLV_OK;
    CLV_TRY(check_keys(bytes, valid, sizeof valid / sizeof *valid, inside, err));
    for (int i = 0; i < 3; i++)
        CLV_TRY(clv_json_get_real(out[i], bytes, valid[i], CLV_JSON_REQUIRED, 0, 1e3, inside, err));
    return CLV_OK;
}

static clv_status from_json(clv_machine *p, const json_t *document, const char *where, clv_error *err)
{
    const char *name = NULL;
    CLV_TRY(check_profile_keys(document, false, where, err));
    CLV_TRY(clv_json_get_string(&name, document, "name", CLV_JSON_REQUIRED, where, err));
    if (!*name)
        return clv_fail(err, CLV_EFORMAT, "%s: \"name\" is empty; valid: 1 to %zu bytes", where, sizeof p->name - 1);
    if (strlen(name) >= sizeof p->name)
        return clv_fail(err, CLV_EFORMAT, "%s: \"name\" has %zu bytes; valid: at most %zu", where, strlen(name),
                        sizeof p->name - 1);
    memcpy(p->name, name, strlen(name) + 1);
    CLV_TRY(
        clv_json_get_int(&p->ranks_per_host, document, "ranks_per_host", CLV_JSON_REQUIRED, 1, 1 << 20, where, err));
    CLV_TRY(clv_json_get_int(&p->hosts, document, "hosts", CLV_JSON_OPTIONAL, 0, 1 << 20, where, err));
    CLV_TRY(read_numbers(p, document, where, err));
    CLV_TRY(read_choices(p, document, where, err));
    CLV_TRY(read_expert_bias(p, document, where, err));
    CLV_TRY(read_published(p, document, where, err));
    CLV_TRY(read_flops(p, document, where, err));
    CLV_TRY(read_link(&p->host, &p->host_share, document, "host", where, err));
    p->network = p->host;
    p->network_share = p->host_share;
    if (p->hosts != 1)
        CLV_TRY(read_link(&p->network, &p->network_share, document, "network", where, err));
    CLV_TRY(read_factors(&p->op_efficiency, document, "op_efficiency", 1, where, err));
    CLV_TRY(read_factors(&p->op_traffic, document, "op_traffic", 1e3, where, err));
    CLV_TRY(read_rates(&p->rates_shared, json_object_get(document, "ops"), where, err));
    CLV_TRY(read_rates(&p->rates_alone, json_object_get(document, "ops_alone"), where, err));
    return read_rates(&p->rates_network, json_object_get(document, "ops_network"), where, err);
}

/* ---- software ---- */

static clv_status check_software(const json_t *entry, const char *name, const char *where, clv_error *err)
{
    char inside[320];
    snprintf(inside, sizeof inside, "%.200s: \"software\": \"%.64s\"", where, name);
    if (strlen(name) >= CLV_MACHINE_NAME)
        return clv_fail(err, CLV_EFORMAT, "%s: the name has %zu bytes; valid: at most %d", inside, strlen(name),
                        CLV_MACHINE_NAME - 1);
    return check_profile_keys(entry, true, inside, err);
}

/* Replaces the document's keys by those of the software; NULL: the default, nothing is replaced. */
static clv_status apply_software(clv_machine *p, json_t *document, const char *name, const char *where, clv_error *err)
{
    json_t *all = json_object_get(document, "software"), *entry;
    const char *key;
    char inside[320];
    snprintf(inside, sizeof inside, "%.255s: \"software\"", where);
    if (all)
        CLV_TRY(clv_json_check_object(all, inside, err));
    name_list names = {""};
    json_object_foreach(all, key, entry)
    {
        CLV_TRY(check_software(entry, key, where, err));
        add_name(&names, key);
    }
    memcpy(p->all_software, names.text, sizeof p->all_software);
    if (!name)
        return CLV_OK;
    entry = json_object_get(all, name);
    if (!entry)
        return clv_fail(err, CLV_ENOTFOUND, "%s: no software \"%.64s\"; valid: %s", where, name,
                        names.text[0] ? names.text : "none, the profile lists no software");
    snprintf(p->software, sizeof p->software, "%s", name);
    return json_object_update_recursive(document, entry) == 0 ? CLV_OK : clv_fail_memory(err, where, sizeof *p);
}

/* Entries of "software" are read with the profile, though another one is in use. */
static clv_status check_values(const json_t *document, const char *where, clv_error *err)
{
    const char *name;
    json_t *entry;
    clv_status status = CLV_OK;
    json_object_foreach(json_object_get(document, "software"), name, entry)
    {
        char inside[320];
        clv_machine *unused = calloc(1, sizeof *unused);
        json_t *changed = json_deep_copy(document);
        snprintf(inside, sizeof inside, "%.200s: \"software\": \"%.64s\"", where, name);
        status = unused && changed && json_object_update_recursive(changed, entry) == 0
                     ? from_json(unused, changed, inside, err)
                     : clv_fail_memory(err, inside, sizeof *unused);
        json_decref(changed);
        clv_machine_free(unused);
        if (status != CLV_OK)
            break;
    }
    return status;
}

static clv_status parse_profile(clv_machine **out, const char *json, size_t size, const char *software,
                                const char *where, clv_error *err)
{
    json_t *document;
    clv_machine *m = calloc(1, sizeof *m);
    if (!m)
        return clv_fail_memory(err, where, sizeof *m);
    clv_status status = clv_json_parse(&document, json, size, CLV_JSON_KEYS_UNIQUE, where, err);
    if (status == CLV_OK) {
        status = clv_json_check_object(document, where, err);
        if (status == CLV_OK)
            status = apply_software(m, document, software, where, err);
        if (status == CLV_OK)
            status = from_json(m, document, where, err);
        if (status == CLV_OK)
            status = check_values(document, where, err);
        json_decref(document);
    }
    if (status == CLV_OK)
        *out = m;
    else
        clv_machine_free(m);
    return status;
}

clv_status clv_machine_parse(clv_machine **out, const char *json, size_t size, const char *where, clv_error *err)
{
    CLV_TRY(clv_require(out && json && where, __func__, "out, the text and its name", err));
    return parse_profile(out, json, size, NULL, where, err);
}

static clv_status read_profile(clv_machine **out, const char *path, const char *software, clv_error *err)
{
    char *text;
    size_t size;
    CLV_TRY(clv_file_read(&text, &size, path, FILE_LIMIT, err));
    clv_status status = parse_profile(out, text, size, software, path, err);
    free(text);
    return status;
}

/* ---- those that the library has ---- */

static const struct shipped {
    const char *name;
    const char *const *lines; /* then NULL */
} shipped[] = {CLV_SHIPPED_MACHINES};

enum { SHIPPED = sizeof shipped / sizeof shipped[0] };

const char *clv_machine_builtin_name(int i)
{
    return i >= 0 && i < SHIPPED ? shipped[i].name : NULL;
}

static clv_status refuse_name(const char *profile, clv_error *err)
{
    name_list names = {""};
    for (int i = 0; i < SHIPPED; i++)
        add_name(&names, shipped[i].name);
    return clv_fail(err, CLV_ENOTFOUND, "%s: no such file; valid: a profile that `cleave bench profile` wrote, %s",
                    profile, names.text);
}

static clv_status parse_shipped(clv_machine **out, const struct shipped *from, const char *software, clv_error *err)
{
    size_t size = 1;
    for (int i = 0; from->lines[i]; i++)
        size += strlen(from->lines[i]);
    char *text = malloc(size), *end = text;
    if (!text)
        return clv_fail_memory(err, "a profile", size);
    for (int i = 0; from->lines[i]; i++)
        end = stpcpy(end, from->lines[i]);
    clv_status status = parse_profile(out, text, size - 1, software, from->name, err);
    free(text);
    return status;
}

clv_status clv_machine_open(clv_machine **out, const char *profile, const char *software, clv_error *err)
{
    CLV_TRY(clv_require(out && profile, __func__, "out and the profile", err));
    bool is_absent = access(profile, F_OK) != 0 && errno == ENOENT;
    for (int i = 0; is_absent && i < SHIPPED; i++)
        if (strcmp(shipped[i].name, profile) == 0)
            return parse_shipped(out, &shipped[i], software, err);
    return is_absent ? refuse_name(profile, err) : read_profile(out, profile, software, err);
}

/* ---- writing ---- */

static json_t *points_json(const clv_rate *rate)
{
    json_t *list = json_array();
    for (int k = 0; k < rate->n; k++)
        json_array_append_new(list, json_pack("[f, f]", rate->work[k], rate->rate[k]));
    return list;
}

static json_t *link_json(const clv_machine_link *link, const clv_rate *share)
{
    json_t *out = json_pack("{s:f, s:f}", "alpha_s", link->alpha_s, "bytes_per_s", link->bytes_per_s);
    if (share->n > 0)
        json_object_set_new(out, "share", points_json(share));
    return out;
}

static json_t *rates_json(const clv_rates *rates)
{
    json_t *ops = json_object();
    for (int i = 0; i < rates->n; i++) {
        const clv_rate *r = &rates->item[i];
        json_t *by_dtype = json_object_get(ops, r->op);
        if (!by_dtype) {
            by_dtype = json_object();
            json_object_set_new(ops, r->op, by_dtype);
        }
        json_object_set_new(by_dtype, clv_dtype_name(r->dtype), points_json(r));
    }
    return ops;
}

static json_t *factors_json(const clv_op_factors *factors)
{
    json_t *ops = json_object();
    for (int i = 0; i < factors->n; i++)
        json_object_set_new(ops, factors->item[i].op, json_real(factors->item[i].factor));
    return ops;
}

clv_status clv_machine_write(const clv_machine *p, const char *path, clv_error *err)
{
    CLV_TRY(clv_require(p && path, __func__, "the machine and the path", err));
    json_t *flops = json_object();
    for (int d = 0; d < CLV_DTYPE_COUNT; d++)
        if (p->flops_per_s[d] != p->flops_per_s[CLV_F32] || d == CLV_F32)
            json_object_set_new(flops, clv_dtype_name((clv_dtype)d), json_real(p->flops_per_s[d]));
    json_t *document =
        json_pack("{s:s, s:I, s:I, s:o, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "name", p->name,
                  "ranks_per_host", (json_int_t)p->ranks_per_host, "hosts", (json_int_t)p->hosts, "flops_per_s", flops,
                  "overlap", overlaps[p->overlap], "collectives", collectives[p->through_root], "selective",
                  selectives[p->recomputes_matmuls], "dispatch", dispatches[p->dispatches_copies], "stage_messages",
                  messages[p->keeps_messages], "op_efficiency", factors_json(&p->op_efficiency), "op_traffic",
                  factors_json(&p->op_traffic), "host", link_json(&p->host, &p->host_share), "ops",
                  rates_json(&p->rates_shared), "ops_alone", rates_json(&p->rates_alone));
    clv_machine numbers = *p;
    for (int k = 0; document && k < KEYS; k++)
        if (keys[k].number && *number_of(&numbers, &keys[k]) != keys[k].otherwise)
            json_object_set_new(document, keys[k].name, json_real(*number_of(&numbers, &keys[k])));
    const clv_expert_bias *bias = &p->expert_bias;
    if (document && bias->forward + bias->recomputed + bias->backward > 0)
        json_object_set_new(document, "expert_bias_bytes",
                            json_pack("{s:f, s:f, s:f}", "forward", bias->forward, "recomputed", bias->recomputed,
                                      "backward", bias->backward));
    if (document && p->hosts != 1) {
        json_object_set_new(document, "network", link_json(&p->network, &p->network_share));
        json_object_set_new(document, "ops_network", rates_json(&p->rates_network));
    }
    char *text = document ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(5)) : NULL;
    json_decref(document);
    if (!text)
        return clv_fail_memory(err, path, sizeof *p);
    clv_status status = clv_file_write(path, text, strlen(text), err);
    free(text);
    return status;
}
