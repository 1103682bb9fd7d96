/* test_human_units.c - bytes, seconds and counts as text. */

#include "cleave/text.h"
#include "unit_test.h"

typedef int printer(char *out, size_t size, double value);

static void expect(printer *print, double value, const char *text)
{
    char out[CLV_QUANTITY_TEXT], cut[4];
    int n = print(out, sizeof out, value);
    assert_string_equal(out, text);
    assert_int_equal(n, print(cut, sizeof cut, value));
    assert_int_equal(n, print(NULL, 0, value));
}

static void test_bytes(void **state)
{
    expect(clv_print_bytes, 0, "0 B");
    expect(clv_print_bytes, 1023, "1023 B");
    expect(clv_print_bytes, 1024, "1.0 KiB");
    expect(clv_print_bytes, 17039616, "16.3 MiB");
    expect(clv_print_bytes, 1048575, "1.0 MiB");
    expect(clv_print_bytes, 0x1.8p40, "1.5 TiB");
    expect(clv_print_bytes, 0x1p63, "8.0 EiB");
    expect(clv_print_bytes, -2048, "-2.0 KiB");
    expect(clv_print_bytes_exactly, 512, "512 B");
    expect(clv_print_bytes_exactly, 17039616, "16.3 MiB (17039616)");
}

static void test_seconds(void **state)
{
    expect(clv_print_seconds, 0, "0 s");
    expect(clv_print_seconds, 8.072e-6, "8.07 us");
    expect(clv_print_seconds, 103.304e-6, "103 us");
    expect(clv_print_seconds, 999.7e-6, "1.00 ms");
    expect(clv_print_seconds, 3.8712, "3.87 s");
    expect(clv_print_seconds, 75.0, "75.0 s");
    expect(clv_print_seconds, 4000, "4000 s");
    expect(clv_print_seconds, 2e-12, "0.00 ns");
}

static void test_counts(void **state)
{
    expect(clv_print_count, 0, "0");
    expect(clv_print_count, 999, "999");
    expect(clv_print_count, 6.3334e8, "633 M");
    expect(clv_print_count, 2.3e9, "2.30 G");
    expect(clv_print_count, 6.3e13, "63.0 T");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
