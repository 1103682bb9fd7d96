/* context.c - prices what ranks exchange for attention where they share a sequence (context parallelism). */
#include "models/plan/axes/context.h"

#include <math.h>

static const char *const names[] = {"none", "ring", "all-gather", "all-to-all"};

const char *clv_context_exchange_name(clv_context_exchange exchange)
{
    return (unsigned)exchange < sizeof names / sizeof *names ? names[exchange] : "unknown";
}

/* Bytes of its own keys and values. */
static double block_bytes(const clv_context_layer *l)
{
    return l->tokens * 2 * (double)(l->kv_heads * l->head_dim * l->element_bytes);
}

/* Each block after the first adds to results in f32: they are read twice and written, and backward so are the gradients
 * of queries, keys and values. */
static double ring_ops(const clv_context_layer *l, double passes)
{
    const double queries = (double)(l->heads * l->head_dim), keys = 2 * (double)(l->kv_heads * l->head_dim);
    return (double)(l->ranks - 1) * l->tokens * 12 * ((passes + 1) * queries + keys) / l->memory_bytes_per_s;
}

/* Liu et al. 2023 (arXiv:2310.01889). The backward pass passes gradients of keys and values on, too. */
static clv_context_cost ring(const clv_context_layer *l)
{
    const double blocks = (double)(l->ranks - 1), passes = l->recomputes ? 2 : 1;
    const double block = l->link.alpha_s + block_bytes(l) / l->link.bytes_per_s, share = 1 / (double)l->ranks;
    const double forward = fmax(0, block - l->forward * share) * blocks;
    const double backward = fmax(0, 2 * block - l->backward * share) * blocks;
    const double exposed = passes * forward + backward;
    return (clv_context_cost){CLV_CONTEXT_RING, exposed, (passes + 2) * block * blocks - exposed, ring_ops(l, passes)};
}

/* As Llama 3 was trained. The backward pass gathers them again, and scatters the sums of their gradients. */
static clv_context_cost all_gather(const clv_context_layer *l)
{
    const double gathered = l->link.alpha_s + block_bytes(l) * (double)(l->ranks - 1) / l->link.bytes_per_s;
    return (clv_context_cost){CLV_CONTEXT_ALL_GATHER, (l->recomputes ? 4 : 3) * gathered, 0, 0};
}

/* Jacobs et al. 2023 (arXiv:2309.14509): queries, keys and values go, the result comes back. */
static clv_context_cost all_to_all(const clv_context_layer *l)
{
    const double bytes = l->tokens * 2 * (double)((l->heads + l->kv_heads) * l->head_dim * l->element_bytes);
    const double once = 2 * l->link.alpha_s + bytes * (1 - 1 / (double)l->ranks) / l->link.bytes_per_s;
    return (clv_context_cost){CLV_CONTEXT_ALL_TO_ALL, (l->recomputes ? 3 : 2) * once, 0, 0};
}

clv_context_cost clv_context_cheapest(const clv_context_layer *l)
{
    clv_context_cost best = {0};
    if (l->ranks == 1)
        return best;
    if (l->ring_efficiency > 0) {
        best = ring(l);
        best.ops += (1 / l->ring_efficiency - 1) * (l->forward + l->backward) * (1 - 1 / (double)l->ranks);
        return best;
    }
    const clv_context_cost others[] = {all_gather(l), all_to_all(l)};
    best = ring(l);
    for (int i = 0; i < 2; i++)
        if ((i == 0 || l->kv_heads % l->ranks == 0) && others[i].exposed < best.exposed + best.ops)
            best = others[i];
    return best;
}
