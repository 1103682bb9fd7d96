/* family_registry.c - model families by config.json's model_type: the built-in ones and those a program registered.
 * The list of registered ones only grows, at its head, so readers need no lock.
 */
#include "models/families/family_registry.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Adding a family to the library: a file that defines one, a line here. */
static const clv_model_family *const families[] = {
    &clv_family_llama, &clv_family_mistral, &clv_family_qwen2,     &clv_family_gpt2,      &clv_family_esm,
    &clv_family_bert,  &clv_family_mixtral, &clv_family_qwen2_moe, &clv_family_qwen3_moe, &clv_family_deepseek_v3};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

typedef struct registered {
    const clv_model_family *family;
    struct registered *next;
} registered;

static _Atomic(registered *) newest;

static const clv_model_family *find(const registered *list, const char *model_type)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i]->model_type, model_type) == 0)
            return families[i];
    for (; list; list = list->next)
        if (strcmp(list->family->model_type, model_type) == 0)
            return list->family;
    return NULL;
}

const clv_model_family *clv_families_find(const char *model_type)
{
    return find(atomic_load(&newest), model_type);
}

void clv_families_list(clv_text *out)
{
    for (int i = 0; i < N_FAMILIES; i++)
        clv_text_add(out, "%s%s", i > 0 ? ", " : "", families[i]->model_type);
    for (const registered *r = atomic_load(&newest); r; r = r->next)
        clv_text_add(out, ", %s", r->family->model_type);
    clv_text_finish(out);
}

clv_status clv_families_add(const clv_model_family *family, clv_error *err)
{
    registered *added = malloc(sizeof *added);
    if (!added)
        return clv_fail_memory(err, "a family", sizeof *added);
    *added = (registered){.family = family, .next = atomic_load(&newest)};
    do { /* another thread may have added one since */
        if (find(added->next, family->model_type)) {
            free(added);
            return clv_fail(err, CLV_EEXIST, "a family of model_type \"%.64s\" is known already", family->model_type);
        }
    } while (!atomic_compare_exchange_weak(&newest, &added->next, added));
    return CLV_OK;
}
