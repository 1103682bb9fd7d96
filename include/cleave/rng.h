/** @file rng.h - random numbers: JAX's threefry-2x32 generator, and parameter initializers. In its partitionable form
 * element i of a random tensor depends only on the key and on i, so each rank generates only its own shard, and the
 * values are the same on every mesh.
 *
 * Source: Salmon et al. 2011 (Random123), threefry-2x32 with 20 rounds; jax._src.prng and jax._src.random of
 * jax 0.10 with jax_threefry_partitionable=True (its default) and x64 off. Values are bit-equal to JAX's for bits and
 * uniform, within 4 ulp for normal and truncated normal (jax on CPU; XLA contracts u*(b-a)+a and the polynomial of
 * erf_inv, so fmaf is used here explicitly).
 *
 * There is no state: all functions are thread-safe.
 */
#ifndef CLEAVE_RNG_H
#define CLEAVE_RNG_H

#include <stdint.h>

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A random key. A plain value. */
typedef struct clv_key {
    uint32_t word[2];
} clv_key;

/** Returns jax.random.key(seed) with x64 off: key [0, seed modulo 2^32]. */
CLV_EXPERIMENTAL clv_key clv_key_seed(uint64_t seed);
/** Returns jax.random.fold_in(key, data). */
CLV_EXPERIMENTAL clv_key clv_key_fold_in(clv_key key, uint32_t data);
/** Returns key i of jax.random.split(key, n); in the partitionable form it does not depend on n. */
CLV_EXPERIMENTAL clv_key clv_key_split(clv_key key, uint64_t i);

/** Computes one threefry-2x32 block of the counter (c0, c1). */
CLV_EXPERIMENTAL void clv_threefry(clv_key key, uint32_t c0, uint32_t c1, uint32_t out[2]);

/* Each writes `count` elements of a random tensor: those whose flat row-major indices in the whole tensor begin at
 * `first`. */

/** jax.random.bits(key, shape, uint32). */
CLV_EXPERIMENTAL void clv_random_bits(uint32_t *out, clv_key key, uint64_t first, int64_t count);
/** jax.random.uniform(key, shape, f32, lo, hi): [lo, hi). */
CLV_EXPERIMENTAL void clv_random_uniform(float *out, clv_key key, uint64_t first, int64_t count, float lo, float hi);
/** jax.random.normal(key, shape, f32). */
CLV_EXPERIMENTAL void clv_random_normal(float *out, clv_key key, uint64_t first, int64_t count);
/** jax.random.truncated_normal(key, lo, hi, shape, f32). */
CLV_EXPERIMENTAL void clv_random_truncated_normal(float *out, clv_key key, uint64_t first, int64_t count, float lo,
                                                  float hi);

/** Initial values of a parameter. Element i of the whole tensor depends only on (key, i). */
typedef enum clv_init_kind {
    CLV_INIT_ZEROS,
    CLV_INIT_ONES,
    CLV_INIT_NORMAL,       /**< normal * scale */
    CLV_INIT_LECUN_NORMAL, /**< flax/jax lecun_normal: truncated normal in [-2, 2], times
                                sqrt(1/fan_in)/.87962566103423978; scale holds fan_in */
    CLV_INIT_UNIFORM       /**< uniform in [-scale, scale) */
} clv_init_kind;

/** A parameter initializer. A plain value. */
typedef struct clv_init {
    clv_init_kind kind;
    double scale; /**< as the kind says; 0 means 1 */
} clv_init;

/** Writes elements [first, first + count) of a tensor with this initializer; NaN if init.kind is not in the enum. */
CLV_EXPERIMENTAL void clv_init_fill(float *out, clv_init init, clv_key key, uint64_t first, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
