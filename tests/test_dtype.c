/* Element types: names, rounding, conversion. */
#include <math.h>
#include <string.h>

#include "cleave/dtype.h"
#include "tensor/float16.h"
#include "unit_test.h"

static void names_and_sizes(void **state)
{
    clv_dtype d = CLV_F32;
    clv_error err = {0};
    for (int i = 0; i < CLV_DTYPE_COUNT; i++) {
        assert_int_equal(clv_dtype_parse(&d, clv_dtype_name((clv_dtype)i), NULL), CLV_OK);
        assert_int_equal(d, i);
        assert_int_equal(clv_dtype_is_float((clv_dtype)i), i <= CLV_F16);
    }
    assert_int_equal(clv_dtype_parse(&d, "BF16", NULL), CLV_OK);
    assert_int_equal(d, CLV_BF16);
    assert_int_equal(clv_dtype_size(CLV_BF16), 2);
    assert_int_equal(clv_dtype_size(CLV_BOOL), 1);
    assert_int_equal(clv_dtype_parse(&d, "f8", &err), CLV_EDTYPE);
    assert_string_equal(err.message, "unknown dtype 'f8'; valid: f32 bf16 f64 f16 i32 i64 u8 bool");
    assert_int_equal(d, CLV_BF16);
}

/* Every 16-bit value survives the way through f32; NaN stays NaN. */
static void halves_round_trip(void **state)
{
    for (uint32_t b = 0; b < 65536; b++) {
        float x = clv_f32_of_bf16((uint16_t)b), y = clv_f32_of_f16((uint16_t)b);
        if (isnan(x))
            assert_true(isnan(clv_f32_of_bf16(clv_bf16_of_f32(x))));
        else
            assert_int_equal(clv_bf16_of_f32(x), b);
        if (isnan(y))
            assert_true(isnan(clv_f32_of_f16(clv_f16_of_f32(y))));
        else
            assert_int_equal(clv_f16_of_f32(y), b);
    }
}

/* Between two neighbours, the middle goes to the even one and everything else to the nearer one: from f64 too, where
 * rounding through f32 would be wrong just beside the middle. */
static void halves_round_to_nearest_even(void **state)
{
    for (uint32_t b = 0; b + 1 < 0x7f80; b += 7) {
        double lo = clv_f32_of_bf16((uint16_t)b), hi = clv_f32_of_bf16((uint16_t)(b + 1)), middle = (lo + hi) / 2;
        uint16_t out[3];
        clv_dtype_store(CLV_BF16, out, 0, middle);
        clv_dtype_store(CLV_BF16, out, 1, nextafter(middle, hi));
        clv_dtype_store(CLV_BF16, out, 2, -nextafter(middle, lo));
        assert_int_equal(out[0], b + (b & 1));
        assert_int_equal(out[1], b + 1);
        assert_int_equal(out[2], b | 0x8000);
    }
    for (uint32_t b = 0; b + 1 < 0x7c00; b++) {
        double lo = clv_f32_of_f16((uint16_t)b), hi = clv_f32_of_f16((uint16_t)(b + 1)), middle = (lo + hi) / 2;
        uint16_t out[3];
        if (b + 1 == 0x7c00)
            break;
        clv_dtype_store(CLV_F16, out, 0, middle);
        clv_dtype_store(CLV_F16, out, 1, nextafter(middle, hi));
        clv_dtype_store(CLV_F16, out, 2, -nextafter(middle, lo));
        assert_int_equal(out[0], b + (b & 1));
        assert_int_equal(out[1], b + 1);
        assert_int_equal(out[2], b | 0x8000);
    }
    assert_int_equal(clv_f16_of_f32(65519.996f), 0x7bff);
    assert_int_equal(clv_f16_of_f32(65520.0f), 0x7c00);
    assert_int_equal(clv_f16_of_f32(-1e30f), 0xfc00);
    assert_int_equal(clv_f16_of_f32(0x1p-25f), 0);
    assert_int_equal(clv_f16_of_f32(0x1.8p-25f), 1);
    assert_int_equal(clv_bf16_of_f32(3.4e38f), 0x7f80);
    uint16_t huge;
    clv_dtype_store(CLV_BF16, &huge, 0, 1e300);
    assert_int_equal(huge, 0x7f80);
}

static void converts(void **state)
{
    const float in[6] = {1.5f, -2.75f, 0.0f, 300.0f, NAN, -INFINITY};
    int32_t i32[6];
    uint8_t u8[6], truth[6];
    int64_t big[2] = {((int64_t)1 << 60) + 1, -5}, back[2];
    clv_dtype_convert(CLV_I32, i32, CLV_F32, in, 6);
    clv_dtype_convert(CLV_U8, u8, CLV_F32, in, 6);
    clv_dtype_convert(CLV_BOOL, truth, CLV_F32, in, 6);
    assert_memory_equal(i32, ((int32_t[]){1, -2, 0, 300, 0, INT32_MIN}), sizeof i32);
    assert_memory_equal(u8, ((uint8_t[]){1, 0, 0, 255, 0, 0}), sizeof u8);
    assert_memory_equal(truth, ((uint8_t[]){1, 1, 0, 1, 1, 1}), sizeof truth);
    clv_dtype_convert(CLV_I64, back, CLV_I64, big, 2);
    assert_memory_equal(back, big, sizeof big);
    clv_dtype_convert(CLV_I32, i32, CLV_I64, big, 2); /* wraps, exactly */
    assert_int_equal(i32[0], 1);
    assert_int_equal(i32[1], -5);
    clv_dtype_convert(CLV_I64, big, CLV_F64, (double[]){1e19, -1e19}, 2);
    assert_true(big[0] == INT64_MAX && big[1] == INT64_MIN);
}

/* Unaligned buffers take the plain path and give the same bits. */
static void converts_unaligned(void **state)
{
    float in[9];
    uint16_t aligned[9];
    char raw[9 * 4 + 3], out[9 * 2 + 1];
    for (int i = 0; i < 9; i++)
        in[i] = (float)(i + 1) / 3;
    memcpy(raw + 3, in, sizeof in);
    clv_dtype_convert(CLV_BF16, aligned, CLV_F32, in, 9);
    clv_dtype_convert(CLV_BF16, out + 1, CLV_F32, raw + 3, 9);
    assert_memory_equal(out + 1, aligned, sizeof aligned);
    assert_true(clv_dtype_load(CLV_BF16, out + 1, 2) == 1.0);
    clv_dtype_convert(CLV_F32, in, CLV_BF16, aligned, 9);
    assert_true(in[2] == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(halves_round_trip),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(converts),
        cmocka_unit_test(converts_unaligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
