/* router_kernel.h - the router of a mixture of experts: the best experts of each row and their weights, and its
 * gradient.
 *
 *   s[e] = softmax(logits)[e], or sigmoid(logits[e]);  ids: the top_k experts of largest s[e] + bias[e], largest first,
 *          of equal ones the first;  w[j] = scale * s[ids[j]] / (normalised ? sum_j s[ids[j]] : 1)
 *
 * Groups:   experts are divided into `groups` of neighbours. If top_groups is less, a row may only choose experts of
 *           the groups whose two largest s + bias have the largest sums (DeepSeek-AI 2024, arXiv:2412.19437).
 * Numerics: f64, rounded once. softmax without a bias is chosen by logits, which order experts as their scores do. NaN
 *           fills a row's weights; its ids are distinct and in range all the same.
 * Sharding: rows.
 */
#pragma once

#include <stdbool.h>

#include "cleave/dtype.h"

enum { CLV_ROUTER_MAX_EXPERTS = 2048 /* their scores are on the stack */ };

typedef struct clv_router_args {
    int64_t rows, experts, top_k; /* 1 <= top_k <= experts <= CLV_ROUTER_MAX_EXPERTS                      */
    int64_t groups, top_groups;   /* groups divides experts; 1 <= top_groups <= groups, of which top_k are */
    bool sigmoid, normalised;
    double scale;
    clv_dtype dtype;         /* of logits                   */
    clv_dtype weights_dtype; /* of bias and weights         */
    const void *logits;      /* [rows, experts]             */
    const void *bias;        /* [experts]; NULL: none       */
} clv_router_args;

/* weights, ids [rows, top_k]. */
void clv_router_forward(const clv_router_args *args, void *weights, int32_t *ids);

/* d_logits [rows, experts] of d_weights [rows, top_k], with the ids of the forward pass; args->bias is not read. */
void clv_router_backward(const clv_router_args *args, void *d_logits, const void *d_weights, const int32_t *ids);
