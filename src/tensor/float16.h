/* float16.h - bf16 and f16: conversion to and from f32, round to nearest even.
 *
 * bf16 is the upper half of an f32. f16 is IEEE 754 binary16: 5 exponent bits, subnormals below 2^-14. A NaN stays a
 * NaN (quiet). Plain integer code: the compiler vectorises the bf16 pair; no F16C is needed.
 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t clv_bits_of_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float clv_f32_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float clv_f32_of_bf16(uint16_t b)
{
    return clv_f32_of_bits((uint32_t)b << 16);
}

static inline uint16_t clv_bf16_of_f32(float x)
{
    uint32_t u = clv_bits_of_f32(x);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float clv_f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
    if (exponent == 31) /* infinity, NaN */
        return clv_f32_of_bits(sign | 0x7f800000u | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0));
    if (exponent == 0) { /* zero, subnormal: mantissa * 2^-24, exact in f32 */
        float x = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -x : x;
    }
    return clv_f32_of_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
}

static inline uint16_t clv_f16_of_f32(float x)
{
    uint32_t u = clv_bits_of_f32(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* below 2^-14: adding 0.5 leaves x's multiple of 2^-24 in the low bits, rounded */
        return (uint16_t)(sign | (clv_bits_of_f32(clv_f32_of_bits(magnitude) + 0.5f) - 0x3f000000u));
    uint32_t rounded = magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | rounded >> 13);
}

/* f64 to f32 "to odd": inexact results get an odd last bit, so that a second rounding to 16 bits is right. */
static inline float clv_f32_round_to_odd(double x)
{
    float f = (float)x;
    uint32_t u = clv_bits_of_f32(f);
    if (isnan(x) || (double)f == x)
        return f;
    if (fabs((double)f) > fabs(x))
        u--; /* towards zero; the largest finite value when it had overflowed */
    return clv_f32_of_bits(u | 1u);
}
