/* machine.h - hardware description (struct clv_machine): links, peaks and measured rates. Public functions and the
 * format of profiles are in include/cleave/machine.h.
 */
#pragma once

#include "cleave/layout.h"
#include "cleave/machine.h"

enum { CLV_MACHINE_NAME = 64, CLV_MAX_RATES = 256, CLV_MAX_RATE_POINTS = 16, CLV_MAX_OP_FACTORS = 16 };

typedef struct clv_rate {
    char op[CLV_MACHINE_NAME];
    clv_dtype dtype;
    int n;
    double work[CLV_MAX_RATE_POINTS], rate[CLV_MAX_RATE_POINTS];
} clv_rate;

typedef struct clv_rates {
    int n;
    clv_rate *item; /* [CLV_MAX_RATES]; NULL if n is 0 */
} clv_rates;

/* Factors of ops by name. */
typedef struct clv_op_factors {
    int n;
    struct {
        char op[CLV_MACHINE_NAME];
        double factor;
    } item[CLV_MAX_OP_FACTORS];
} clv_op_factors;

/* Bytes that biases of experts and clamps of their gates move beside this library's, an element of experts' rows. */
typedef struct clv_expert_bias {
    double forward, recomputed, backward; /* recomputed: with the activations, if these are */
} clv_expert_bias;

/* Which collectives run while ops run: the values of "overlap". */
typedef enum clv_machine_overlap {
    CLV_OVERLAP_ALL,
    CLV_OVERLAP_NETWORK, /* those across hosts: inside one the ranks that wait move the bytes */
    CLV_OVERLAP_WEIGHTS, /* gathers of weights and reductions of gradients */
    CLV_OVERLAP_NONE
} clv_machine_overlap;

struct clv_machine {
    char name[CLV_MACHINE_NAME];
    int64_t ranks_per_host, hosts;
    double memory_bytes, memory_bytes_per_s;
    /* what the software reaches */
    char software[CLV_MACHINE_NAME]; /* "": the profile's default */
    char all_software[512];          /* entries of "software", "pytorch, maxtext" */
    double efficiency, k_half, traffic_factor, instruction_s;
    clv_op_factors op_efficiency, op_traffic;                          /* instead of efficiency and traffic_factor */
    double logit_bytes, split_logit_bytes, score_bytes, fragmentation; /* memory beside the program */
    double attention_start_s;       /* of an instruction of attention; 0: instruction_s */
    double expert_rows_bytes_per_s; /* of kernels that sort rows of experts or add their biases; 0: as others */
    double ring_efficiency; /* rate of attention to other ranks' blocks, over that to a rank's own; 0: no such ring */
    clv_expert_bias expert_bias;
    bool dispatches_copies;               /* a token goes to each of its experts, not to each rank with experts of it */
    double offload_bytes_per_s;           /* to the host's memory, and from it; 0: not known */
    bool recomputes_matmuls;              /* with selective recomputation: every second one of a block */
    double gradient_bytes, operand_bytes; /* of elements that the software keeps in another dtype; 0: in the same one */
    double gathered_weight_bytes;         /* the same of weights that stay gathered */
    double state_bytes;                   /* of a parameter that is updated, with its optimizer; 0: this library's */
    bool keeps_messages; /* a stage has buffers for the messages of all microbatches, the last one joins their logits */
    int64_t published_runs;
    double published_error;
    clv_dtype published_dtype;
    char published_rules[96];
    clv_machine_overlap overlap;
    bool through_root; /* of each collective: one rank of a group receives and sends everything */
    double flops_per_s[CLV_DTYPE_COUNT];
    clv_machine_link host, network;
    clv_rate host_share, network_share; /* part of bytes_per_s by ranks that use the link at once; n 0: all of it */
    clv_rates rates_shared, rates_alone;
    clv_rates rates_network; /* of collectives that cross hosts */
};

/* The machine itself; the default one for NULL. */
const clv_machine *clv_machine_or_default(const clv_machine *machine);

/* Whether the software runs a collective while ops run. of_weights: it gathers weights or reduces gradients. */
bool clv_machine_may_overlap(const clv_machine *machine, bool of_weights, bool across_hosts);

/* Copies a machine; NULL for NULL. Free with clv_machine_free. */
clv_status clv_machine_copy(clv_machine **out, const clv_machine *machine, clv_error *err);

/* Adds a rate; NULL beyond CLV_MAX_RATES, or out of memory. */
clv_rate *clv_rates_add(clv_rates *rates);
/* The measured rates of an op or collective; NULL: not measured. */
const clv_rate *clv_rates_find(const clv_rates *rates, const char *op, clv_dtype dtype);
/* The factor of an op; `otherwise` if it has none. */
double clv_op_factor(const clv_op_factors *factors, const char *op, double otherwise);
/* The rate at an amount of work, interpolated. */
double clv_rate_at(const clv_rate *rate, double work);
