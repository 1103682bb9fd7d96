#include "partition/bound.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/check.h"

/* What a choice does to a tensor, besides cutting one of its dimensions. */
enum {
    CUTS_NOTHING = -1, /* the tensor is the same on all coordinates */
    CUTS_UNKNOWN = -2, /* it depends on other atoms: a factor that spills */
    MAKES_PARTIAL = -3 /* a result that a split sums */
};

/* ---- what is fixed for a space ---- */

static bool contains(clv_subaxis sub, clv_subaxis atom)
{
    return atom.axis == sub.axis && atom.pre % sub.pre == 0 &&
           ((int64_t)sub.pre * sub.size) % ((int64_t)atom.pre * atom.size) == 0;
}

static void read_layout(clv_bound_layout *out, const clv_layout *layout, const clv_type *type, const clv_space *space)
{
    memset(out, 0, sizeof *out);
    memset(out->dim, CUTS_NOTHING, sizeof out->dim);
    out->blocks = 1;
    for (int d = 0; d <= layout->rank; d++) {
        const clv_subaxis *axes;
        int n = clv_layout_axes(&axes, layout, d);
        for (int i = 0; i < n; i++)
            for (int a = 0; a < space->n_atoms; a++) {
                if (d == layout->rank && contains(axes[i], space->atom[a]))
                    out->partial |= 1u << a;
                else if (d < layout->rank && clv_subaxis_overlap(axes[i], space->atom[a]))
                    out->dim[a] = (int8_t)(contains(axes[i], space->atom[a]) ? d : CUTS_UNKNOWN);
            }
        if (d == layout->rank)
            continue;
        int64_t blocks = clv_layout_blocks(layout, d);
        out->blocks *= (double)blocks;
        out->even |= (uint32_t)(type->shape[d] / layout->granule[d] % blocks == 0) << d;
    }
}

/* Where a factor may leave atoms to the one that it spills to, both dimensions count. */
static int dim_of_choice(const clv_rule *rule, const clv_dim_factors *dims, int rank, int choice)
{
    if (choice < 0)
        return CUTS_NOTHING;
    int d = clv_split_dim_of(dims, rank, choice), spill = rule->factor[choice].spill;
    return spill < 0 || clv_split_dim_of(dims, rank, spill) == d ? d : CUTS_UNKNOWN;
}

static bool passes_through(const clv_problem *p, int i)
{
    return p->rule.passes_max || (p->rule.linear >> i & 1u);
}

static void read_choices(clv_bound_term *term, const clv_space *space, const clv_dim_factors *dims, int rank)
{
    const clv_rule *rule = &space->problem->rule;
    for (int c = CLV_CHOICE_PARTIAL; c < rule->n_factors; c++) {
        int d = dim_of_choice(rule, dims, rank, c);
        bool sums = term->result && (c == CLV_CHOICE_PARTIAL || (c >= 0 && d == CUTS_NOTHING));
        term->cuts[c + 2] = (int8_t)(sums ? MAKES_PARTIAL : d);
    }
    for (int a = 0; a < space->n_atoms; a++)
        for (int i = 0; i < space->n_choices[a]; i++) {
            int c = space->choice[a][i], d = term->cuts[c + 2];
            term->may_cut |= (uint32_t)(d >= 0 || d == CUTS_UNKNOWN) << a;
            term->may_pass |= (uint32_t)(c == CLV_CHOICE_PARTIAL) << a;
        }
}

clv_status clv_bound_make(clv_bound *out, const clv_space *space, clv_error *err)
{
    const clv_problem *p = space->problem;
    size_t n = 0;
    memset(out, 0, sizeof *out);
    out->space = space;
    out->ranks = (double)clv_mesh_ranks(p->mesh);
    for (int i = 0; i < p->op->n_in; i++)
        n += (size_t)p->n_available[i];
    out->layouts = malloc((n + CLV_MAX_OUT) * sizeof *out->layouts);
    if (!out->layouts)
        return clv_fail_memory(err, "bounds of a search", (n + CLV_MAX_OUT) * sizeof *out->layouts);
    n = 0;
    for (int i = 0; i < p->op->n_in; i++) {
        if (p->op->in[i] == 0)
            continue;
        clv_bound_term *term = &out->term[out->n_terms++];
        *term = (clv_bound_term){.bytes = clv_type_bytes(&p->in[i]), .fan_in = 1, .first = (int)n};
        read_choices(term, space, p->rule.in[i], p->in[i].rank);
        if (!passes_through(p, i))
            term->may_pass = 0;
        for (; term->n < p->n_available[i]; term->n++)
            read_layout(&out->layouts[n++], &p->available[i][term->n], &p->in[i], space);
    }
    for (int o = 0; o < p->op->n_out; o++) {
        clv_bound_term *term = &out->term[out->n_terms++];
        *term = (clv_bound_term){.result = true,
                                 .bytes = clv_type_bytes(&p->out[o]),
                                 .fan_in = p->fan_in[o],
                                 .first = (int)n,
                                 .n = p->wanted[o]};
        read_choices(term, space, p->rule.out[o], p->out[o].rank);
        if (p->wanted[o])
            read_layout(&out->layouts[n++], &p->target[o], &p->out[o], space);
    }
    return CLV_OK;
}

void clv_bound_free(clv_bound *bound)
{
    free(bound->layouts);
}

/* ---- bytes ---- */

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* What the atoms say of a change of layout: sizes of those that ... */
typedef struct tally {
    double cut;     /* cut the layout that is to be had, or may */
    double lost;    /* cut only the layout that is at hand */
    double moved;   /* cut another dimension than before: the largest */
    double reduced; /* leave by a reduction */
    double kept;    /* stay partial, or could */
} tally;

/* While partial over n ranks each element is on n of them at least; reducing and what follows cost the least when no axis
 * holds copies besides. */
static double least_bytes(const tally *t, double bytes, double ranks)
{
    double share = bytes / t->cut, least = share - share / (t->lost * t->moved), part = bytes / ranks * t->kept;
    if (t->reduced > 1)
        least = most(least, part * (t->reduced - 1) + most(0, share - part));
    return least;
}

static double operand_bytes(const clv_bound *b, const clv_bound_term *term, const clv_bound_layout *at,
                            const int8_t *choice, int n)
{
    tally t = {1, 1, 1, 1, 1};
    for (int a = 0; a < b->space->n_atoms; a++) {
        double size = b->space->atom[a].size;
        bool decided = a < n, partial = at->partial >> a & 1u;
        int to = decided ? term->cuts[choice[a] + 2] : term->may_cut >> a & 1u ? CUTS_UNKNOWN : CUTS_NOTHING;
        if (to == CUTS_NOTHING)
            t.lost *= at->dim[a] >= 0 ? size : 1;
        else
            t.cut *= size;
        if (to >= 0 && at->dim[a] >= 0 && at->dim[a] != to && (at->even >> at->dim[a] & 1u))
            t.moved = most(t.moved, size);
        bool passes = (term->may_pass >> a & 1u) && (!decided || choice[a] == CLV_CHOICE_PARTIAL);
        if (partial && !passes)
            t.reduced *= size;
        if (partial && passes && decided)
            t.kept *= size;
    }
    return least_bytes(&t, term->bytes, b->ranks);
}

/* `to`: where the result is wanted; NULL: as it comes, but reduced. */
static double result_bytes(const clv_bound *b, const clv_bound_term *term, const clv_bound_layout *to,
                           const int8_t *choice, int n)
{
    tally t = {to ? to->blocks : 1, 1, 1, 1, 1};
    for (int a = 0; a < b->space->n_atoms; a++) {
        double size = b->space->atom[a].size;
        int from = a < n ? term->cuts[choice[a] + 2] : CUTS_UNKNOWN;
        if (!to && (from >= 0 || (from == CUTS_UNKNOWN && (term->may_cut >> a & 1u))))
            t.cut *= size;
        if (to && from >= 0 && to->dim[a] == CUTS_NOTHING)
            t.lost *= size;
        if (to && from >= 0 && to->dim[a] >= 0 && to->dim[a] != from && (to->even >> to->dim[a] & 1u))
            t.moved = most(t.moved, size);
        if (from == MAKES_PARTIAL)
            *(to && (to->partial >> a & 1u) ? &t.kept : &t.reduced) *= size;
    }
    return least_bytes(&t, term->bytes, b->ranks) / term->fan_in;
}

clv_price clv_bound_changes(const clv_bound *b, const int8_t *choice, int n, int first)
{
    clv_price price = {0};
    for (int i = first; i < b->n_terms; i++) {
        const clv_bound_term *term = &b->term[i];
        const clv_bound_layout *layouts = b->layouts + term->first;
        double least = 0;
        if (term->result)
            least = result_bytes(b, term, term->n > 0 ? layouts : NULL, choice, n);
        for (int k = 0; !term->result && k < term->n; k++) {
            double bytes = operand_bytes(b, term, &layouts[k], choice, n);
            least = k == 0 || bytes < least ? bytes : least;
            if (least == 0)
                break;
        }
        price.bytes += least;
        price.moves += least > 0;
    }
    price.seconds = clv_cost_step(b->space->problem->cost, price.bytes, price.moves);
    return price;
}

/* ---- work ---- */

/* The smallest that the largest shard of a tensor can be, when only the decided atoms split. */
static clv_type local_type(const clv_type *type, const clv_dim_factors *dims, const clv_rule *rule,
                           const int64_t *blocks)
{
    clv_type local = *type;
    for (int d = 0; d < type->rank; d++) {
        int64_t cuts = 1;
        for (int j = 0; j < dims[d].n; j++) {
            int f = dims[d].factor[j];
            cuts *= blocks[f];
            for (int g = 0; g < rule->n_factors; g++) /* what another factor leaves to this one */
                if (rule->factor[g].spill == f && clv_split_dim_of(dims, type->rank, g) != d)
                    cuts *= blocks[g];
        }
        local.shape[d] = (type->shape[d] + cuts - 1) / cuts;
    }
    return local;
}

clv_price clv_bound_work(const clv_bound *b, const int8_t *choice, int n)
{
    const clv_problem *p = b->space->problem;
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    int64_t blocks[CLV_MAX_FACTORS];
    double left = 1;
    for (int f = 0; f < CLV_MAX_FACTORS; f++)
        blocks[f] = 1;
    for (int a = 0; a < b->space->n_atoms; a++) {
        if (a >= n)
            left *= b->space->atom[a].size;
        else if (choice[a] >= 0)
            blocks[choice[a]] *= b->space->atom[a].size;
    }
    for (int i = 0; i < p->op->n_in; i++)
        if (p->op->in[i] > 0)
            in[i] = local_type(&p->in[i], p->rule.in[i], &p->rule, blocks);
    for (int o = 0; o < p->op->n_out; o++)
        out[o] = local_type(&p->out[o], p->rule.out[o], &p->rule, blocks);
    double seconds = clv_strategy_work(p, in, out) / left;
    return (clv_price){.seconds = seconds, .work_seconds = seconds};
}
