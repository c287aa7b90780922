/* test_requant.c - the three requantization modes against vectors of an independent model (requant_vectors.py), and the
 * fixed-point helpers against values computed by hand from the definitions of gemmlowp and TensorFlow Lite. */
#include "compare.h"

#include "kernel/common/requant.h"

#include "requant_vectors.h"

static void check(const char *what, long long expected, long long got) {
    comparisons++;
    if (expected != got) {
        fprintf(stderr, "FAIL %s: expected %lld, got %lld\n", what, expected, got);
        failures++;
    }
}

static void vectors(void) {
    for (size_t i = 0; i < sizeof requant_vectors / sizeof requant_vectors[0]; i++) {
        const struct requant_vector *v = &requant_vectors[i];
        float sx = (float)v->sx, sw = (float)v->sw, sy = (float)v->sy;
        ln_quant qx = {.scheme = LN_QUANT_TENSOR, .count = 1, .scale = &sx}, qw = qx, qy = qx;
        qw.scale = &sw, qy.scale = &sy, qy.zero = &v->zero;
        ln_tensor x = TENSOR(v->wide ? LINNET_I16 : LINNET_I8, LN_LAYOUT_DENSE, 1, 1),
                  w = TENSOR(LINNET_I8, LN_LAYOUT_DENSE, 1, 1);
        ln_tensor y = TENSOR(v->dtype, LN_LAYOUT_DENSE, 1, 1);
        x.quant = &qx, w.quant = &qw, y.quant = &qy;
        ln_memory memory;
        ln_pool pool;
        ln_memory_init(&memory, NULL);
        ln_pool_init(&pool, &memory);
        ln_call call = {.plan = &pool};
        ln_requant r;
        char name[48];
        snprintf(name, sizeof name, "vector %d, mode %d%s", (int)i, v->mode, v->wide ? " wide" : "");
        int64_t stored = 0;
        if (ln_requant_prepare(&call, &x, &w, 0, &y, 1, v->mode, &r) == LINNET_OK) {
            ln_requant_store(&r, 0, v->sum, &stored, 0);
            stored = ln_load_i64(&stored, v->dtype, 0);
        } else {
            failures++;
        }
        check(name, v->stored, stored);
        ln_pool_free(&pool);
    }
}

static void fixed_point(double real, bool single, int32_t fixed, int32_t shift) {
    int32_t got_fixed, got_shift;
    ln_fixed_point(real, single, &got_fixed, &got_shift);
    check("fixed", fixed, got_fixed);
    check("shift", shift, got_shift);
}

int main(void) {
    vectors();
    fixed_point(1.0, false, 1 << 30, 1);
    fixed_point(0.5, false, 1 << 30, 0);
    fixed_point(0.75, true, 3 << 29, 0);
    fixed_point(0.0, false, 0, 0);
    fixed_point(1e-12, false, 0, 0);
    fixed_point(1 - 1e-12, false, 1 << 30, 1); /* the mantissa rounds up to 2^31 */
    fixed_point(4294967296.0, true, INT32_MAX, 30);
    check("doubling high multiply saturates", INT32_MAX, ln_doubling_high_multiply(INT32_MIN, INT32_MIN));
    check("half times three", 2, ln_doubling_high_multiply(3, 1 << 30));
    check("half times minus three", -1, ln_doubling_high_multiply(-3, 1 << 30));
    check("shift: ties away, positive", 2, ln_rounding_shift_right(3, 1));
    check("shift: ties away, negative", -2, ln_rounding_shift_right(-3, 1));
    check("single: ties up, negative", -1, ln_fixed_multiply_single(-3, 1 << 30, 0));
    check("wide: a 16-bit multiplier", 16384, ln_fixed_multiply_wide(32768, 1 << 30, 0));
    check("round_clamp: ties to even", 2 + 3, ln_round_clamp(2.5f, 3, -128, 127));
    check("round_clamp: infinite", -128, ln_round_clamp(-INFINITY, 3, -128, 127));
    return report("requant");
}
