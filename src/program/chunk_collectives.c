/* chunk_collectives.c - splits collectives and adjacent matmuls into row chunks that overlap (decomposed matmul).
 *
 * In: a program, and for how long ranks would wait for each collective. Out: the program with some collectives split
 * into n chunks, together with the matmuls before them (additions, norms and casts may lie between) and after them, and
 * with what lies between split instructions, so that chunks pass from one to the next. Then link and compute work at
 * once, except for the first and last chunk; latency grows n-fold. The best n by predicted time is used, if it beats
 * the whole. The scheduler decides whether all splits together pay. Collectives that do not run beside ops stay whole.
 *
 * A chunk is some rows of the outermost dimension that has more than one index on a rank, if all ranks have equally
 * many. So chunks are contiguous in their buffer, and an op that treats rows alike (clv_op_traits.is_rowwise) computes
 * each as in the whole, bit for bit; a matmul does if its library rounds a row alike among any 17 or more
 * (kernels/cpu/gemm/gemm.h). Other instructions use the whole buffer.
 *
 * A collective along that very dimension (the sequence of a batch of one is gathered, or reduced) has n times as many
 * rows on one side: n blocks, each split like the rows of the other side. A collective takes the k-th chunks of all
 * blocks at once, an op one chunk at a time.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "program/program.h"

enum {
    MAX_CHUNKS = 8,
    MAX_BUFFER_CHUNKS = 64, /* chunks of a buffer over all blocks: so many instructions does an op become */
    MIN_ROWS = 17,          /* of a matmul: fewer are slow, and kernels for few rows round differently */
    MAX_GROUP = 24,         /* instructions that are split together */
    MAX_AFTER = 4,          /* instructions after a collective: steps and casts, and a matmul */
    MAX_BETWEEN = 6         /* additions and casts between a matmul and its collective */
};

/* Chunk k of each block has rows [lo[k], lo[k + 1]) of a rank. */
typedef struct rows {
    int n;
    int64_t lo[MAX_CHUNKS + 1];
} rows;

/* Instructions and buffers that are split alike. */
typedef struct chunk_group {
    int n_instructions, n_buffers;
    int instruction[MAX_GROUP];
    uint32_t operands[MAX_GROUP]; /* of each, bit k: operand k has the rows */
    int buffer[MAX_GROUP * (CLV_MAX_IN + CLV_MAX_OUT)];
    int64_t n_rows;    /* of a block of a rank: the smallest of all buffers */
    int max_blocks;    /* of a buffer */
    const rows *known; /* the chunks of buffers that are split already; NULL: none is */
} chunk_group;

typedef struct chunker {
    const clv_program *program;
    clv_arena *arena;
    const double *exposed;
    clv_cost_model model;
    int *writer;              /* [n_buffers] -1: none */
    int *first_reader, *next; /* [n_buffers], [n_instructions * CLV_MAX_IN] lists of readers, in order; -1: the end */
    const rows **of_buffer;   /* [n_buffers] NULL: not split */
    const rows **of_instruction;
    uint32_t *operands; /* [n_instructions] of split ones, as in chunk_group */
} chunker;

/* ---- what can be split ---- */

/* The dimension of the rows: the first with more than one index on a rank; -1: none. */
static int outermost(const clv_buffer *buffer)
{
    clv_type local = clv_largest_shard_type(&buffer->type, &buffer->layout);
    for (int d = 0; d < local.rank; d++)
        if (local.shape[d] != 1)
            return d;
    return -1;
}

/* Rows of a rank in dimension d; 0: not equal on all ranks. */
static int64_t rows_of(const clv_buffer *buffer, int d)
{
    int64_t blocks = clv_layout_block_count(&buffer->layout, d);
    bool even = buffer->layout.alignment[d] == 1 && buffer->type.shape[d] % blocks == 0;
    return even ? buffer->type.shape[d] / blocks : 0;
}

/* Number of blocks of n_rows rows on a rank; 0: not equal on all ranks, or too many. */
static int blocks_of(const clv_buffer *buffer, int64_t n_rows)
{
    int d = outermost(buffer);
    int64_t n = d < 0 ? 0 : rows_of(buffer, d);
    return n % n_rows == 0 && n / n_rows <= MAX_BUFFER_CHUNKS ? (int)(n / n_rows) : 0;
}

static bool has_buffer(const chunk_group *t, int b)
{
    for (int k = 0; k < t->n_buffers; k++)
        if (t->buffer[k] == b)
            return true;
    return false;
}

/* Adds buffer b, if it can be split along d and has so many blocks. */
static bool add_buffer(chunk_group *t, const chunker *c, int b, int d, int blocks)
{
    const clv_buffer *buffer = &c->program->buffers[b];
    const rows *chunks = c->of_buffer[b];
    if (d != outermost(buffer) || blocks < 1 || blocks_of(buffer, t->n_rows) != blocks || d == buffer->type.rank - 1 ||
        buffer->kind != CLV_BUFFER_TEMP || buffer->shares_with >= 0 || buffer->ring_shift > 0 ||
        (chunks && chunks->lo[chunks->n] != t->n_rows) || (t->known && chunks && chunks != t->known))
        return false;
    t->known = chunks ? chunks : t->known;
    t->max_blocks = blocks > t->max_blocks ? blocks : t->max_blocks;
    if (!has_buffer(t, b))
        t->buffer[t->n_buffers++] = b;
    return true;
}

/* The dimension that consists of the factor alone; -1: none. */
static int dim_of(const clv_dim_factors *dims, int rank, int factor)
{
    for (int d = 0; d < rank; d++)
        if (dims[d].n == 1 && dims[d].factor[0] == factor)
            return d;
    return -1;
}

/* The factor that dimension d of buffer b, an operand or result, consists of; -1: none. */
static int factor_of(const clv_rule *rule, const clv_instruction *instruction, int b, int d)
{
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] == b)
            return rule->in[k][d].n == 1 ? rule->in[k][d].factor[0] : -1;
    for (int o = 0; o < instruction->n_out; o++)
        if (instruction->out[o] == b)
            return rule->out[o][d].n == 1 ? rule->out[o][d].factor[0] : -1;
    return -1;
}

static void find_rule(clv_rule *rule, const clv_program *program, const clv_instruction *instruction)
{
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            in[k] = program->buffers[instruction->in[k]].type;
    for (int o = 0; o < instruction->n_out; o++)
        out[o] = program->buffers[instruction->out[o]].type;
    *rule = (clv_rule){0};
    instruction->op->def->rule(instruction->op, in, out, rule);
}

/* Adds the operands and results of an op that must be split with buffer b; *operands: those that have the rows. */
static bool add_op(chunk_group *t, uint32_t *operands, const chunker *c, int i, int b)
{
    const clv_instruction *instruction = &c->program->instructions[i];
    const clv_buffer *buffers = c->program->buffers;
    int d = outermost(&buffers[b]);
    clv_rule rule;
    if (!clv_op_traits_of(instruction->op)->is_rowwise || d < 0)
        return false;
    find_rule(&rule, c->program, instruction);
    int factor = factor_of(&rule, instruction, b, d), blocks = blocks_of(&buffers[b], t->n_rows);
    bool can = factor >= 0 && !rule.factor[factor].whole && rule.factor[factor].overflow < 0;
    for (int k = 0; can && k < instruction->n_in; k++) {
        int in = instruction->in[k], at = in < 0 ? -1 : dim_of(rule.in[k], buffers[in].type.rank, factor);
        can = at < 0 || add_buffer(t, c, in, at, blocks);
        *operands |= (uint32_t)(at >= 0) << k;
    }
    for (int o = 0; can && o < instruction->n_out; o++) {
        int out = instruction->out[o], at = dim_of(rule.out[o], buffers[out].type.rank, factor);
        can = at >= 0 && add_buffer(t, c, out, at, blocks);
    }
    return can;
}

/* One side must be a single block: then two members exchange one box. */
static bool add_step(chunk_group *t, const chunker *c, int i)
{
    int in = c->program->instructions[i].in[0], out = c->program->instructions[i].out[0];
    const clv_buffer *buffers = c->program->buffers;
    if (c->program->instructions[i].experts > 0) /* which rows move is not known */
        return false;
    int d = outermost(&buffers[in]), before = blocks_of(&buffers[in], t->n_rows),
        behind = blocks_of(&buffers[out], t->n_rows);
    return (before == 1 || behind == 1) && add_buffer(t, c, in, d, before) && add_buffer(t, c, out, d, behind);
}

/* Rows of a block of step i; less than 2: it cannot be split. */
static int64_t rows_of_step(const chunker *c, int i)
{
    const clv_instruction *instruction = &c->program->instructions[i];
    int64_t least = INT64_MAX;
    for (int k = 0; k < 2; k++) {
        int b = k ? instruction->out[0] : instruction->in[0], d = outermost(&c->program->buffers[b]);
        int64_t n = d < 0 ? 0 : rows_of(&c->program->buffers[b], d);
        least = n < least ? n : least;
    }
    return least;
}

/* Adds instruction i, which reads or writes buffer b; false, without a change, if it cannot be split. */
static bool add(chunk_group *t, const chunker *c, int i, int b)
{
    chunk_group before = *t;
    for (int k = 0; k < t->n_instructions; k++)
        if (t->instruction[k] == i)
            return true;
    bool is_op = c->program->instructions[i].op != NULL;
    uint32_t operands = is_op ? 0 : 1;
    bool fits = t->n_instructions < MAX_GROUP && (!c->of_instruction[i] || c->of_instruction[i] == c->of_buffer[b]);
    if (fits && (is_op ? add_op(t, &operands, c, i, b) : add_step(t, c, i))) {
        t->operands[t->n_instructions] = operands;
        t->instruction[t->n_instructions++] = i;
        return true;
    }
    *t = before;
    return false;
}

static bool is_product(const chunker *c, int i)
{
    const clv_op *op = c->program->instructions[i].op;
    return op && op->def->counts_flops;
}

/* The split operand that was made last; -1: none. */
static int made_last(const chunk_group *t, const chunker *c, int i)
{
    const clv_instruction *instruction = &c->program->instructions[i];
    int last = -1;
    for (int k = 0; k < instruction->n_in; k++)
        if (has_buffer(t, instruction->in[k]) && (last < 0 || c->writer[instruction->in[k]] > c->writer[last]))
            last = instruction->in[k];
    return last;
}

/* Adds the instructions that make buffer b: back to the matmul, and on to what is split already, whose chunks then feed
 * those of this group one by one. */
static void add_producers(chunk_group *t, const chunker *c, int b)
{
    chunk_group reached = *t;
    for (int between = 0; between <= MAX_BETWEEN && b >= 0 && c->writer[b] >= 0; between++) {
        int i = c->writer[b];
        bool is_split = c->of_instruction[i] != NULL, adds = c->program->instructions[i].op && add(t, c, i, b);
        if (is_split ? has_buffer(t, b) : adds && is_product(c, i))
            reached = *t;
        if (is_split || !adds)
            break;
        b = made_last(t, c, i);
    }
    *t = reached;
}

/* Adds readers of buffer b that end in matmuls or further steps (a gather over hosts is two); casts may lie between. */
static bool add_consumers(chunk_group *t, const chunker *c, int b, int between)
{
    bool any = false;
    for (int r = c->first_reader[b]; r >= 0; r = c->next[r]) {
        int i = r / CLV_MAX_IN;
        const clv_instruction *instruction = &c->program->instructions[i];
        chunk_group before = *t;
        if ((!instruction->op && instruction->group < 0) || !add(t, c, i, b))
            continue;
        bool continues = between > 0 && instruction->n_in == 1;
        bool is = continues && add_consumers(t, c, instruction->out[0], between - 1);
        is = is || is_product(c, i) || !instruction->op;
        any = any || is;
        if (!is)
            *t = before;
    }
    return any;
}

/* ---- number of chunks ---- */

/* Smallest nonzero extent of dimension d on a rank. */
static int64_t least_extent(const clv_buffer *buffer, const clv_type *local, int d)
{
    int64_t n = buffer->type.shape[d], most = local->shape[d];
    return most > 0 ? n - (n - 1) / most * most : 0;
}

/* Rows of a matrix in one row of a buffer, minimum over ranks. */
static int64_t rows_in_one(const clv_buffer *buffer)
{
    clv_type local = clv_largest_shard_type(&buffer->type, &buffer->layout);
    int64_t in_one = 1;
    for (int d = outermost(buffer) + 1; d < local.rank - 1; d++)
        in_one *= least_extent(buffer, &local, d);
    return in_one;
}

/* The minimum of rows_in_one over all operands and results of matmuls. */
static int64_t least_rows(const chunk_group *t, const chunker *c)
{
    int64_t least = INT64_MAX;
    for (int k = 0; k < t->n_instructions; k++) {
        const clv_instruction *instruction = &c->program->instructions[t->instruction[k]];
        for (int o = 0; is_product(c, t->instruction[k]) && o < instruction->n_in + 1; o++) {
            int b = o < instruction->n_in ? instruction->in[o] : instruction->out[0];
            int64_t in_one = has_buffer(t, b) ? rows_in_one(&c->program->buffers[b]) : least;
            least = in_one < least ? in_one : least;
        }
    }
    return least;
}

static rows equal_chunks(int64_t n_rows, int n)
{
    rows out = {.n = n};
    for (int k = 0; k <= n; k++)
        out.lo[k] = n_rows * k / n;
    return out;
}

static bool has_min_rows(const rows *chunks, int64_t in_one)
{
    for (int k = 0; k < chunks->n; k++)
        if ((chunks->lo[k + 1] - chunks->lo[k]) * in_one < MIN_ROWS)
            return false;
    return true;
}

static int64_t split_bytes(const chunk_group *t, const clv_program *program, const int *buffers, int n)
{
    int64_t bytes = 0;
    for (int k = 0; k < n; k++)
        if (has_buffer(t, buffers[k]))
            bytes += clv_largest_shard_bytes(&program->buffers[buffers[k]].type, &program->buffers[buffers[k]].layout);
    return bytes;
}

/* Seconds of one of n chunks of an instruction; operands that are not split are read for every chunk. */
static double chunk_seconds(const chunk_group *t, const chunker *c, int i, int n)
{
    const clv_program *program = c->program;
    const clv_instruction *instruction = &program->instructions[i];
    if (!instruction->op) {
        const clv_reshard_step *step = instruction->step;
        clv_step_route route = clv_cost_route(&c->model, step->kind, step->axes, step->n_axes);
        clv_dtype dtype = program->buffers[instruction->out[0]].type.dtype;
        return clv_cost_step(&c->model, step->kind, dtype, step->bytes / n, route).seconds;
    }
    clv_work_rates rates;
    clv_cost_work_rates(&rates, &c->model, instruction->op->def, clv_instruction_dtype(program, i));
    clv_op_work work = clv_instruction_work(program, i);
    int64_t chunks = split_bytes(t, program, instruction->in, instruction->n_in) +
                     split_bytes(t, program, instruction->out, instruction->n_out);
    int strips = n > 1 ? blocks_of(&program->buffers[instruction->out[0]], t->n_rows) : 1, all = n * strips;
    work.flops /= all;
    work.bytes -= fmin(work.bytes, (double)chunks) * (all - 1) / all;
    return strips * clv_cost_work_seconds(&rates, work);
}

/* Seconds of the group in n chunks: link and compute work at once, except for one chunk of the other. */
static double seconds_of(const chunk_group *t, const chunker *c, int n)
{
    double moves = 0, works = 0;
    for (int k = 0; k < t->n_instructions; k++) {
        double seconds = chunk_seconds(t, c, t->instruction[k], n);
        *(c->program->instructions[t->instruction[k]].op ? &works : &moves) += seconds;
    }
    return fmax(n * moves + works, n * works + moves);
}

/* The best chunks; false: none are better than the whole. */
static bool choose(rows *best, const chunk_group *t, const chunker *c)
{
    int64_t in_one = least_rows(t, c);
    int fewest = t->known ? t->known->n : 2, most = t->known ? t->known->n : MAX_CHUNKS;
    double least = seconds_of(t, c, 1);
    bool found = false;
    for (int n = fewest; n <= most && n * t->max_blocks <= MAX_BUFFER_CHUNKS; n++) {
        rows chunks = t->known ? *t->known : equal_chunks(t->n_rows, n);
        double seconds = seconds_of(t, c, n);
        if (seconds < least && has_min_rows(&chunks, in_one)) {
            *best = chunks;
            least = seconds;
            found = true;
        }
    }
    return found;
}

/* ---- the split program ---- */

static clv_status apply_chunks(const chunk_group *t, const chunker *c, bool *any, clv_error *err)
{
    rows best;
    if (t->n_instructions < 2 || !choose(&best, t, c))
        return CLV_OK;
    const rows *kept = t->known ? t->known : clv_arena_copy(c->arena, &best, sizeof best);
    if (!kept)
        return clv_fail_memory(err, "chunks of a program", sizeof best);
    for (int k = 0; k < t->n_instructions; k++) {
        c->of_instruction[t->instruction[k]] = kept;
        c->operands[t->instruction[k]] = t->operands[k];
    }
    for (int k = 0; k < t->n_buffers; k++)
        c->of_buffer[t->buffer[k]] = kept;
    *any = true;
    return CLV_OK;
}

static clv_status choose_all_chunks(const chunker *c, bool *any, clv_error *err)
{
    for (int s = 0; s < c->program->n_steps; s++) {
        int i = c->program->steps[s];
        const clv_instruction *instruction = &c->program->instructions[i];
        chunk_group t = {.n_rows = rows_of_step(c, i)};
        if (c->exposed[i] <= 0 || t.n_rows < 2 || instruction->group < 0 ||
            !clv_instruction_may_overlap(&c->model, instruction) || !add(&t, c, i, instruction->in[0]))
            continue;
        add_producers(&t, c, instruction->in[0]);
        add_consumers(&t, c, instruction->out[0], MAX_AFTER);
        CLV_TRY(apply_chunks(&t, c, any, err));
    }
    return CLV_OK;
}

static void make_buffer(clv_program *out, int whole, int d, int64_t n_rows, int64_t first_row)
{
    clv_buffer *part = &out->buffers[out->n_buffers++];
    *part = out->buffers[whole];
    part->type.shape[d] = n_rows * clv_layout_block_count(&part->layout, d);
    part->shares_with = whole;
    part->n_chunks = part->first_chunk = part->n_blocks = part->chunk_dim = 0;
    part->is_chunk = true;
    part->first_row = first_row;
}

/* Makes the chunks of buffer b in order of memory, then the strided ones. */
static void make_chunks_of(clv_program *out, int b, const rows *chunks)
{
    clv_buffer *whole = &out->buffers[b];
    int64_t n_rows = chunks->lo[chunks->n];
    whole->first_chunk = out->n_buffers;
    whole->chunk_dim = outermost(whole);
    whole->n_blocks = blocks_of(whole, n_rows);
    whole->n_chunks = whole->n_blocks * chunks->n;
    for (int k = 0; k < whole->n_chunks; k++) {
        int strip = k % chunks->n;
        make_buffer(out, b, whole->chunk_dim, chunks->lo[strip + 1] - chunks->lo[strip],
                    k / chunks->n * n_rows + chunks->lo[strip]);
    }
    for (int k = 0; whole->n_blocks > 1 && k < chunks->n; k++)
        make_buffer(out, b, whole->chunk_dim, (chunks->lo[k + 1] - chunks->lo[k]) * whole->n_blocks, 0);
}

static clv_status make_chunk_buffers(clv_program *out, const chunker *c, clv_error *err)
{
    int n = c->program->n_buffers;
    for (int b = 0; b < c->program->n_buffers; b++) {
        const rows *chunks = c->of_buffer[b];
        n += chunks ? chunks->n * (1 + blocks_of(&c->program->buffers[b], chunks->lo[chunks->n])) : 0;
    }
    out->buffers = clv_arena_alloc(out->arena, (size_t)n, sizeof *out->buffers);
    out->buffer_capacity = n;
    if (!out->buffers)
        return clv_fail_memory(err, "chunks of buffers", (size_t)n * sizeof *out->buffers);
    memcpy(out->buffers, c->program->buffers, (size_t)out->n_buffers * sizeof *out->buffers);
    for (int b = 0; b < c->program->n_buffers; b++)
        if (c->of_buffer[b])
            make_chunks_of(out, b, c->of_buffer[b]);
    return CLV_OK;
}

/* Number of instructions that one becomes. */
static int chunks_of(const clv_program *out, const clv_instruction *instruction, const rows *chunks)
{
    return instruction->op ? out->buffers[instruction->out[0]].n_chunks : chunks->n;
}

/* The chunk of buffer b for the k-th instruction: ops go through the blocks of a chunk, and then on to the next. */
static int chunk_of(const clv_program *program, int b, int k, bool is_op)
{
    if (b < 0 || program->buffers[b].n_chunks == 0)
        return b;
    const clv_buffer *buffer = &program->buffers[b];
    int n = buffer->n_chunks / buffer->n_blocks;
    if (is_op)
        return buffer->first_chunk + k % buffer->n_blocks * n + k / buffer->n_blocks;
    return buffer->first_chunk + k + (buffer->n_blocks > 1 ? buffer->n_chunks : 0);
}

/* The k-th instruction of a split one. A step has its share of the bytes; an op the whole workspace. */
static clv_status make_chunk(clv_instruction *part, clv_program *out, const rows *chunks, uint32_t operands, int k,
                             clv_error *err)
{
    part->chunk = k;
    part->n_chunks = chunks_of(out, part, chunks);
    for (int o = 0; o < part->n_in; o++)
        if (operands >> o & 1)
            part->in[o] = chunk_of(out, part->in[o], k, part->op);
    for (int o = 0; o < part->n_out; o++)
        part->out[o] = chunk_of(out, part->out[o], k, part->op);
    if (part->op)
        return CLV_OK;
    clv_reshard_step *step = clv_arena_copy(out->arena, part->step, sizeof *step);
    if (!step)
        return clv_fail_memory(err, "a chunk of a step", sizeof *step);
    step->bytes *= (double)(chunks->lo[k + 1] - chunks->lo[k]) / (double)chunks->lo[chunks->n];
    part->step = step;
    return CLV_OK;
}

static clv_status make_instructions(clv_program *out, const chunker *c, clv_error *err)
{
    const clv_program *program = c->program;
    size_t n = 0;
    for (int i = 0; i < program->n_instructions; i++)
        n += c->of_instruction[i] ? (size_t)chunks_of(out, &program->instructions[i], c->of_instruction[i]) : 1;
    int *first_of = clv_arena_alloc(c->arena, n, sizeof *first_of);
    out->instructions = clv_arena_alloc(out->arena, n, sizeof *out->instructions);
    out->steps = clv_arena_alloc(out->arena, (size_t)program->n_steps * MAX_CHUNKS + 1, sizeof *out->steps);
    out->decisions = clv_arena_alloc(out->arena, (size_t)program->n_decisions + 1, sizeof *out->decisions);
    if (!first_of || !out->instructions || !out->steps || !out->decisions)
        return clv_fail_memory(err, "chunks of a program", n * sizeof *out->instructions);
    out->n_instructions = out->n_steps = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        const rows *chunks = c->of_instruction[i];
        first_of[i] = out->n_instructions;
        int n_pieces = chunks ? chunks_of(out, &program->instructions[i], chunks) : 1;
        for (int k = 0; k < n_pieces; k++) {
            clv_instruction *made = &out->instructions[out->n_instructions];
            *made = program->instructions[i];
            if (chunks)
                CLV_TRY(make_chunk(made, out, chunks, c->operands[i], k, err));
            if (!made->op)
                out->steps[out->n_steps++] = out->n_instructions;
            out->n_instructions++;
        }
    }
    for (int r = 0; r < program->n_decisions; r++) {
        out->decisions[r] = program->decisions[r];
        out->decisions[r].instruction = first_of[program->decisions[r].instruction];
    }
    return CLV_OK;
}

/* ---- writers and readers ---- */

static void find_users(chunker *c)
{
    for (int b = 0; b < c->program->n_buffers; b++)
        c->writer[b] = c->first_reader[b] = -1;
    for (int i = c->program->n_instructions - 1; i >= 0; i--) {
        const clv_instruction *instruction = &c->program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++)
            if (instruction->in[k] >= 0) {
                c->next[i * CLV_MAX_IN + k] = c->first_reader[instruction->in[k]];
                c->first_reader[instruction->in[k]] = i * CLV_MAX_IN + k;
            }
        for (int o = 0; o < instruction->n_out; o++)
            c->writer[instruction->out[o]] = i;
    }
}

static clv_status chunk_program(clv_program *out, bool *any, chunker *c, clv_error *err)
{
    size_t n_buffers = (size_t)c->program->n_buffers + 1, n = (size_t)c->program->n_instructions + 1;
    c->writer = clv_arena_alloc(c->arena, n_buffers, sizeof *c->writer);
    c->first_reader = clv_arena_alloc(c->arena, n_buffers, sizeof *c->first_reader);
    c->next = clv_arena_alloc(c->arena, n * CLV_MAX_IN, sizeof *c->next);
    c->of_buffer = clv_arena_alloc(c->arena, n_buffers, sizeof *c->of_buffer);
    c->of_instruction = clv_arena_alloc(c->arena, n, sizeof *c->of_instruction);
    c->operands = clv_arena_alloc(c->arena, n, sizeof *c->operands);
    if (!c->writer || !c->first_reader || !c->next || !c->of_buffer || !c->of_instruction || !c->operands)
        return clv_fail_memory(err, "chunks of a program", n * sizeof *c->next);
    find_users(c);
    CLV_TRY(choose_all_chunks(c, any, err));
    if (!*any)
        return CLV_OK;
    CLV_TRY(make_chunk_buffers(out, c, err));
    return make_instructions(out, c, err);
}

clv_status clv_program_chunk_collectives(clv_program *out, bool *chunks, const clv_program *program,
                                         const double *exposed, const clv_machine *machine, clv_error *err)
{
    chunker c = {.program = program, .exposed = exposed, .arena = clv_arena_new()};
    if (!c.arena)
        return clv_fail_memory(err, "chunks of a program", sizeof c);
    clv_cost_model_make(&c.model, &program->mesh, machine);
    *out = *program;
    *chunks = false;
    clv_status status = chunk_program(out, chunks, &c, err);
    clv_arena_free(c.arena);
    return status;
}
