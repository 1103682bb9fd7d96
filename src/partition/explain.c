/* explain.c - why a value changes layout, by the statements behind it, and what was considered for an op. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "partition/candidates.h"
#include "partition/partitioner.h"
#include "tensor/text.h"

/* The name of a value: of the state or input, else of the op that makes it. */
const char *clv_partition_value_name(const clv_partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    return info->source == CLV_FROM_OP ? p->graph->ops[info->op].name : info->name;
}

/* The statement that a value has its layout from: the nearest constraint, state or input on the way to its largest operands. */
static int statement_of(const clv_partitioner *p, int value)
{
    const clv_graph *graph = p->graph;
    for (int hops = 0; hops < 64 && graph->values[value].source == CLV_FROM_OP; hops++) {
        const clv_op *op = &graph->ops[graph->values[value].op];
        int64_t most = -1;
        if (op->def->constraint || op->n_in == 0)
            break;
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] > 0 && clv_type_elems(&graph->values[op->in[i]].type) > most) {
                most = clv_type_elems(&graph->values[op->in[i]].type);
                value = op->in[i];
            }
    }
    return value;
}

static const char *layout_text(char *out, size_t size, const clv_partitioner *p, int value)
{
    const clv_placement *at = &p->placements[value];
    clv_layout_print(out, size, clv_partition_layout_of(p, at->buffer[0]), &p->graph->mesh);
    return out;
}

/* The operand that is not moved, where the op has one: its statement is the other half of the conflict. */
static int other_operand(const clv_op *op, int moved)
{
    for (int i = 0; i < op->n_in; i++)
        if (i != moved && op->in[i] > 0)
            return op->in[i];
    return 0;
}

const char *clv_partition_describe(const clv_partitioner *p, const clv_reason *why, int value)
{
    char split[512], mine[CLV_LAYOUT_TEXT], theirs[CLV_LAYOUT_TEXT];
    if (why->cause)
        return why->cause;
    clv_strategy_print(split, sizeof split, why->strategy, &p->graph->mesh);
    int statement = statement_of(p, value), other = other_operand(why->reader, why->operand);
    if (other == 0)
        return clv_arena_format(p->program->arena, "the op is split %s; %s states %s", split,
                                clv_partition_value_name(p, statement), layout_text(mine, sizeof mine, p, statement));
    int second = statement_of(p, other);
    return clv_arena_format(p->program->arena, "the op is split %s; %s states %s, %s states %s", split,
                            clv_partition_value_name(p, statement), layout_text(mine, sizeof mine, p, statement),
                            clv_partition_value_name(p, second), layout_text(theirs, sizeof theirs, p, second));
}

/* Whether nobody asked for the step: an op's operand moves, and it is no weight that rules leave to be gathered. */
bool clv_partition_is_implicit(const clv_partitioner *p, const clv_reason *why, const clv_reshard_step *step, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    if (why->cause || !clv_step_moves(step->kind))
        return false;
    bool weight = info->source == CLV_FROM_STATE && info->role == CLV_ROLE_PARAMETER;
    for (int a = 0; weight && a < step->n_axes; a++)
        weight = !(info->kept >> step->axes[a].axis & 1);
    return !weight;
}

clv_status clv_partition_refuse_implicit(const clv_partitioner *p, const clv_instruction *step, clv_error *err)
{
    return clv_fail(
        err, CLV_ELIMIT,
        "%s: a %s of %s moves %.0f bytes that nobody asked for (at most %lld are allowed): %s; state one of "
        "the two layouts like the other, or constrain %s where it is cheap",
        step->name, clv_step_name(step->step->kind), step->tensor, step->step->bytes,
        (long long)p->options->max_implicit_bytes, step->cause, step->tensor);
}

static bool is_named(const char *name, const char *wanted)
{
    size_t n = strlen(wanted);
    return strncmp(name, wanted, n) == 0 && (name[n] == '\0' || name[n] == '.');
}

bool clv_partition_is_explained(const clv_partitioner *p, const clv_op *op)
{
    const char *wanted = p->options->explain;
    if (!wanted)
        return false;
    bool found = is_named(op->name, wanted);
    for (int i = 0; i < op->n_in; i++)
        found = found || (op->in[i] > 0 && p->graph->values[op->in[i]].source == CLV_FROM_STATE &&
                          is_named(p->graph->values[op->in[i]].name, wanted));
    return found;
}

/* Whose candidates are noted. */
typedef struct listener {
    clv_partitioner *p;
    const clv_op *op;
    const char *name;
    const clv_strategy *chosen;
} listener;

static const char *layouts_text(const listener *l, const clv_strategy *s)
{
    char all[4 * CLV_LAYOUT_TEXT], layout[CLV_LAYOUT_TEXT];
    clv_text text = {.out = all, .size = sizeof all};
    for (int i = 0; i < l->op->n_in; i++) {
        if (l->op->in[i] == 0)
            continue;
        clv_layout_print(layout, sizeof layout, &s->in[i], &l->p->graph->mesh);
        clv_text_add(&text, "%s{%s}", text.length ? ", " : "", layout);
    }
    for (int o = 0; o < l->op->n_out; o++) {
        clv_layout_print(layout, sizeof layout, &s->out[o], &l->p->graph->mesh);
        clv_text_add(&text, "%s{%s}", o ? ", " : " -> ", layout);
    }
    clv_text_end(&text);
    return clv_arena_string(l->p->program->arena, all);
}

static clv_status note_candidate(void *arg, const clv_strategy *s, const clv_refusal *refusal, clv_error *err)
{
    listener *l = arg;
    clv_program *program = l->p->program;
    char split[512];
    if (refusal->kind != CLV_REFUSED_NOT)
        return CLV_OK;
    clv_strategy_print(split, sizeof split, s, &l->p->graph->mesh);
    clv_considered made = {.op = l->name,
                           .split = clv_arena_string(program->arena, split),
                           .layouts = layouts_text(l, s),
                           .bytes = s->bytes,
                           .seconds = s->seconds,
                           .work_seconds = s->work_seconds,
                           .chosen = s->n_atoms == l->chosen->n_atoms &&
                                     memcmp(s->choice, l->chosen->choice, (size_t)s->n_atoms) == 0};
    if (!made.split || !made.layouts ||
        clv_arena_grow(program->arena, &program->candidates, &program->candidate_capacity, program->n_candidates,
                       sizeof made) != 0)
        return clv_fail_memory(err, "candidates", sizeof made);
    program->candidates[program->n_candidates++] = made;
    return CLV_OK;
}

static int by_price(const void *a, const void *b)
{
    const clv_considered *x = a, *y = b;
    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

clv_status clv_partition_explain_op(clv_partitioner *p, const clv_op *op, const clv_problem *problem,
                                    const clv_strategy *chosen, const char *name, clv_error *err)
{
    listener l = {.p = p, .op = op, .name = name, .chosen = chosen};
    int first = p->program->n_candidates;
    CLV_TRY(clv_candidates_visit(problem, chosen, note_candidate, &l, err));
    qsort(p->program->candidates + first, (size_t)(p->program->n_candidates - first), sizeof(clv_considered), by_price);
    return CLV_OK;
}
