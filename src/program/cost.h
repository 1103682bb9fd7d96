/* cost.h - the one cost model: seconds of a collective step (alpha-beta) and of an op (roofline) on one rank.
 *
 * The planner of layouts and the reshard planner choose by it: ratios count. What a program takes on a machine is predict.h's,
 * by that machine's rates.
 */
#ifndef CLEAVE_PROGRAM_COST_H
#define CLEAVE_PROGRAM_COST_H

typedef struct clv_cost_model {
    double alpha_s;            /* seconds a collective takes before its first byte */
    double bytes_per_s;        /* bytes a rank receives a second */
    double flops_per_s;        /* of one rank */
    double memory_bytes_per_s; /* memory traffic of one rank */
} clv_cost_model;

/* Ranks as cores of one machine: 5 us, 4 GB/s, 100 GF/s, 20 GB/s of memory. Only the ratios matter to choices; a byte
 * received counts as five of local traffic, as it is read, combined and written, and on a network costs more. */
#define CLV_DEFAULT_ALPHA_S            5e-6
#define CLV_DEFAULT_BYTES_PER_S        4e9
#define CLV_DEFAULT_FLOPS_PER_S        100e9
#define CLV_DEFAULT_MEMORY_BYTES_PER_S 20e9
extern const clv_cost_model clv_cost_default;

static inline double clv_cost_step(const clv_cost_model *model, double bytes, int moves)
{
    return model->alpha_s * moves + bytes / model->bytes_per_s;
}

static inline double clv_cost_compute(const clv_cost_model *model, double flops, double bytes)
{
    double compute = flops / model->flops_per_s, traffic = bytes / model->memory_bytes_per_s;
    return compute > traffic ? compute : traffic;
}

/* What a plan of layout changes is chosen by: seconds; NULL: bytes. */
static inline double clv_cost_score(const clv_cost_model *model, double bytes, int moves)
{
    return model ? clv_cost_step(model, bytes, moves) : bytes;
}

/* < 0: a is less. Sums of the same terms in another order differ in the last bits, and are equal: rounding never decides. */
static inline int clv_cost_order(double a, double b)
{
    double slack = 1e-9 * (a > b ? a : b);
    return a < b - slack ? -1 : a > b + slack;
}

#endif
