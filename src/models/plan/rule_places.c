/* rule_places.c - axis rules as sets of mesh axes: conversions, and their description in the field's words. */
#include "models/plan/rule_places.h"

#include <stdio.h>
#include <string.h>

#include "cleave/text.h"
#include "tensor/parse_print.h"

static const char *const names[CLV_PLACE_COUNT] = {[CLV_PLACE_BATCH] = CLV_BATCH,
                                                   [CLV_PLACE_HEADS] = CLV_HEADS,
                                                   [CLV_PLACE_KV_HEADS] = CLV_KV_HEADS,
                                                   [CLV_PLACE_MLP] = CLV_MLP,
                                                   [CLV_PLACE_VOCAB] = CLV_VOCAB,
                                                   [CLV_PLACE_SEQ] = CLV_SEQ,
                                                   [CLV_PLACE_EMBED_KERNEL] = CLV_EMBED_KERNEL,
                                                   [CLV_PLACE_EMBED] = CLV_EMBED,
                                                   [CLV_PLACE_OPTIMIZER] = "optimizer"};

const char *clv_rule_place_name(clv_rule_place place)
{
    return names[place];
}

/* ---- roles ---- */

#define BATCH  (1U << CLV_PLACE_BATCH)
#define SEQ    (1U << CLV_PLACE_SEQ)
#define EMBED  (1U << CLV_PLACE_EMBED)
#define KERNEL (1U << CLV_PLACE_EMBED_KERNEL)
#define TENSOR (1U << CLV_PLACE_HEADS | 1U << CLV_PLACE_KV_HEADS | 1U << CLV_PLACE_MLP | 1U << CLV_PLACE_VOCAB)

static const clv_axis_role roles[] = {
    {.name = "replicas"},
    {.name = "dp", .places = BATCH, .is_outer = true},
    {.name = "fsdp", .places = BATCH | KERNEL, .is_outer = true},
    {.name = "zero1", .places = BATCH | 1U << CLV_PLACE_OPTIMIZER},
    {.name = "megatron", .places = TENSOR, .is_inner = true},
    {.name = "megatron-sp", .places = TENSOR | SEQ, .is_inner = true},
    /* Pope et al. 2022, arXiv:2211.05102: alone 1-D weight-stationary; beside the one below 2-D. */
    {.name = "gspmd-2d's Y", .places = TENSOR | EMBED},
    {.name = "weight-stationary over width", .places = KERNEL | EMBED, .is_outer = true},
};
enum { N_ROLES = sizeof roles / sizeof *roles };

const clv_axis_role *clv_axis_role_at(int i)
{
    return i < N_ROLES ? &roles[i] : NULL;
}

/* ---- sets of axes ---- */

bool clv_rule_places_equal(const clv_rule_places *a, const clv_rule_places *b)
{
    return memcmp(a->axes, b->axes, sizeof a->axes) == 0;
}

unsigned clv_rule_places_of_axis(const clv_rule_places *places, int axis)
{
    unsigned of = 0;
    for (int p = 0; p < CLV_PLACE_COUNT; p++)
        of |= (unsigned)(places->axes[p] >> axis & 1) << p;
    return of;
}

void clv_rule_places_set_axis(clv_rule_places *places, int axis, unsigned of)
{
    for (int p = 0; p < CLV_PLACE_COUNT; p++)
        places->axes[p] = (uint16_t)((places->axes[p] & ~(1U << axis)) | (of >> p & 1) << axis);
}

static int list_axes(int *out, uint16_t axes)
{
    int n = 0;
    for (int a = 0; a < CLV_MAX_AXES; a++)
        if (axes >> a & 1)
            out[n++] = a;
    return n;
}

void clv_rule_places_to_rules(clv_axis_rules *out, const clv_rule_places *places)
{
    *out = (clv_axis_rules){.name = "auto"};
    for (int p = 0; p < CLV_PLACE_OPTIMIZER; p++) {
        clv_axis_rule *rule = &out->rule[out->n];
        rule->n_axes = list_axes(rule->axis, places->axes[p]);
        snprintf(rule->name, sizeof rule->name, "%s", names[p]);
        out->n += rule->n_axes > 0;
    }
    out->n_optimizer = list_axes(out->optimizer, places->axes[CLV_PLACE_OPTIMIZER]);
}

static uint16_t set_of(const int *axis, int n)
{
    unsigned set = 0;
    for (int i = 0; i < n; i++)
        set |= 1U << axis[i];
    return (uint16_t)set;
}

void clv_rule_places_from_rules(clv_rule_places *out, const clv_axis_rules *preset)
{
    *out = (clv_rule_places){0};
    for (int r = 0; r < preset->n; r++)
        for (int p = 0; p < CLV_PLACE_OPTIMIZER; p++)
            if (strcmp(preset->rule[r].name, names[p]) == 0)
                out->axes[p] = set_of(preset->rule[r].axis, preset->rule[r].n_axes);
    out->axes[CLV_PLACE_OPTIMIZER] = set_of(preset->optimizer, preset->n_optimizer);
}

void clv_rule_places_print(char *out, size_t size, const clv_rule_places *places, clv_rule_place place,
                           const clv_mesh *mesh)
{
    clv_text text = {.out = out, .size = size};
    clv_text_add(&text, "%s", "");
    for (int a = 0; a < mesh->n_axes; a++)
        if (places->axes[place] >> a & 1)
            clv_text_add(&text, "%s%s", text.length ? "," : "", mesh->axis[a].name);
    clv_text_finish(&text);
}

/* ---- in words ---- */

static int count_bits(unsigned set)
{
    int n = 0;
    for (; set; set &= set - 1)
        n++;
    return n;
}

static void add_places(clv_text *text, const char *before, unsigned places)
{
    for (int p = 0, n = 0; p < CLV_PLACE_COUNT; p++)
        if (places >> p & 1)
            clv_text_add(text, "%s%s", n++ ? ", " : before, names[p]);
}

static const clv_axis_role *nearest_role(unsigned places, unsigned useful)
{
    const clv_axis_role *nearest = &roles[0];
    for (int i = 1; i < N_ROLES; i++)
        if (count_bits((roles[i].places ^ places) & useful) < count_bits((nearest->places ^ places) & useful))
            nearest = &roles[i];
    return nearest;
}

void clv_rule_places_describe(char *out, size_t size, const clv_rule_places *places, unsigned useful,
                              const clv_mesh *mesh)
{
    clv_text text = {.out = out, .size = size};
    for (int a = 0; a < mesh->n_axes; a++) {
        const unsigned of = clv_rule_places_of_axis(places, a);
        const clv_axis_role *role = nearest_role(of, useful);
        clv_text_add(&text, "%s%s as %s", a ? "; " : "", mesh->axis[a].name, role->name);
        add_places(&text, " with ", of & ~role->places);
        add_places(&text, " without ", role->places & useful & ~of);
    }
    clv_text_finish(&text);
}
