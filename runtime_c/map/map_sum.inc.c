/* map_sum.inc.c - the sum of two tensors of 8-bit integers (ln_map_sum) with NEON, 16 elements at a time. */

/* Returns x times 2^LN_MAP_SUM_SHIFT. `high` chooses the last four of the eight elements. */
static ALWAYS_INLINE int32x4_t sum_widened(int16x8_t x, const bool high) {
    return high ? vshll_high_n_s16(x, LN_MAP_SUM_SHIFT) : vshll_n_s16(vget_low_s16(x), LN_MAP_SUM_SHIFT);
}

/* ln_map_fixed_multiply with a shift to the right of at least 1; see `scaled` of gemm_store__neon.c. */
static ALWAYS_INLINE int32x4_t sum_scaled(int32x4_t x, int32x4_t multiplier, int32x4_t left) {
    x = vqrdmulhq_s32(x, multiplier);
    return vrshlq_s32(vsraq_n_s32(x, x, 31), left);
}

/* The same eight elements of both operands, without zero points, times their factors / 2^LN_MAP_SUM_SHIFT. Every step
 * saturates, which changes nothing because the limits are applied afterwards and |zero| < 2^8. */
static ALWAYS_INLINE int16x8_t sum_eight(int16x8_t halved, int16x8_t scaled, const int32x4_t *constants) {
    int32x4_t low = sum_scaled(sum_widened(scaled, false), constants[0], constants[1]);
    int32x4_t high = sum_scaled(sum_widened(scaled, true), constants[0], constants[1]);
    low = sum_scaled(vaddq_s32(low, sum_widened(halved, false)), constants[2], constants[3]);
    high = sum_scaled(vaddq_s32(high, sum_widened(halved, true)), constants[2], constants[3]);
    return vqmovn_high_s32(vqmovn_s32(low), high);
}

/* Returns 16 elements of a sum. */
static ALWAYS_INLINE uint8x16_t sum_sixteen(const ln_map_sum *s, const uint8_t *halved, const uint8_t *scaled) {
    const ln_map_term *const a = &s->halved, *const b = &s->scaled;
    const int16_t a_factor = (int16_t)(a->factor >> LN_MAP_SUM_SHIFT);
    const int16_t b_factor = (int16_t)(b->factor >> LN_MAP_SUM_SHIFT);
    const int32x4_t constants[4] = {vdupq_n_s32(b->multiplier), vdupq_n_s32(-b->right), vdupq_n_s32(s->multiplier),
                                    vdupq_n_s32(-s->right)};
    const int8x16_t a_zero = vdupq_n_s8((int8_t)a->zero), b_zero = vdupq_n_s8((int8_t)b->zero);
    const uint8x16_t turn = vdupq_n_u8((uint8_t)s->turn);
    const int16x8_t zero = vdupq_n_s16((int16_t)(s->zero - s->turn));
    const int8x16_t least = vdupq_n_s8((int8_t)(s->low - s->turn)), most = vdupq_n_s8((int8_t)(s->high - s->turn));
    const int8x16_t va = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(halved), turn));
    const int8x16_t vb = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(scaled), turn));
    const int16x8_t low = sum_eight(vmulq_n_s16(vsubl_s8(vget_low_s8(va), vget_low_s8(a_zero)), a_factor),
                                    vmulq_n_s16(vsubl_s8(vget_low_s8(vb), vget_low_s8(b_zero)), b_factor), constants);
    const int16x8_t high = sum_eight(vmulq_n_s16(vsubl_high_s8(va, a_zero), a_factor),
                                     vmulq_n_s16(vsubl_high_s8(vb, b_zero), b_factor), constants);
    const int8x16_t v = vqmovn_high_s16(vqmovn_s16(vqaddq_s16(low, zero)), vqaddq_s16(high, zero));
    return veorq_u8(vreinterpretq_u8_s8(vminq_s8(vmaxq_s8(v, least), most)), turn);
}

static void map_sum(const ln_map_sum *sum, const uint8_t *halved, const uint8_t *scaled, uint8_t *y, int64_t n) {
    const ln_map_sum s = *sum; /* a copy, so that the compiler knows that no store changes it */
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) vst1q_u8(y + i, sum_sixteen(&s, halved + i, scaled + i));
    if (i == n) return;
    uint8_t a[16] = {0}, b[16] = {0};
    memcpy(a, halved + i, (size_t)(n - i)), memcpy(b, scaled + i, (size_t)(n - i));
    vst1q_u8(a, sum_sixteen(&s, a, b));
    memcpy(y + i, a, (size_t)(n - i));
}
