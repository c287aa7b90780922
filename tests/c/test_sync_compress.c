/* test_sync_compress.c - the encodings of gradients: exact bytes, error feedback, values that are not finite, hostile
 * bytes, and the same bits on every machine (a digest that x86-64 and ARM must both give). */
#include "check.h"
#include "sync/codec/compress.h"
#include "sync/codec/compress_size.h"

#include <math.h>
#include <stdlib.h>

static uint64_t state = 20261120;

static float uniform(void) { /* in [-1, 1) */ return (float)(int32_t)(check_random(&state) >> 32) * 0x1p-31f; }

static float *gradients(size_t count) { /* of very different magnitudes, as in a real network */
    float *values = malloc(count * sizeof *values + 1);
    for (size_t i = 0; i < count; i++) {
        float value = uniform();
        values[i] = ldexpf(value, (int)(check_random(&state) % 24) - 20);
    }
    return values;
}

static void vector(int encoding, double ratio, const float *values, uint64_t count, const char *hex) {
    unsigned char bytes[512];
    char text[1025] = "";
    float back[64];
    size_t size = ln_sync_encode(encoding, ratio, values, NULL, count, bytes);
    for (size_t i = 0; i < size; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    CHECK_TEXT(text, hex);
    CHECK_INT(ln_sync_decode(encoding, bytes, size, back, count), LN_SYNC_DECODED);
    CHECK(ln_sync_encoded_fits(encoding, count, size));
}

/* Written by hand according to compress.h. */
static void test_vectors(void) {
    const float values[] = {1.0f, -2.5f, 0.0f, 65519.0f, 1e-7f, -0.0f, 3.140625f, 1e30f};
    vector(LN_SYNC_PLAIN, 1, values, 2, "0000803f000020c0");
    vector(LN_SYNC_F16, 1, values, 8, "003c00c10000ff7b020000804842ff7b");
    vector(LN_SYNC_BF16, 1, values, 8,
           "803f20c000008047d7330080494"
           "0"
           "4a71");
    const float small[] = {127.0f, -63.5f, 0.5f, 1.5f, -127.0f};
    vector(LN_SYNC_I8, 1, small, 5,
           "0000803f"
           "7fc0000281"); /* ties round to even */
    /* The values -2.5 and 3.140625 are kept, 2 of 8: k = 2, the first gap is 1 (index 1), the second is 6 - 1 - 1 =
     * 4. */
    const float few[] = {1.0f, -2.5f, 0.0f, 1.0f, 1e-7f, -0.0f, 3.140625f, 2.0f};
    vector(LN_SYNC_TOPK, 0.25, few, 8,
           "020104"
           "20c04940");
    vector(LN_SYNC_TOPK, 0.001, few, 8,
           "0106"
           "4940");
    vector(LN_SYNC_TOPK, 1, few, 0, "00");
    const float equal[] = {1, -1, 1, -1}; /* of equal values the first is kept */
    vector(LN_SYNC_TOPK, 0.5, equal, 4,
           "020000"
           "803f80bf");
    /* means -2 (bits 1 and 3) and 2 */
    const float signs[] = {1, -3, 2, -1, 3};
    vector(LN_SYNC_ONEBIT, 1, signs, 5,
           "000000c0"
           "00000040"
           "0a000000");
}

static void test_sizes(void) {
    CHECK_INT(ln_sync_encoded_bound(LN_SYNC_I8, 256, 1), 260);
    CHECK_INT(ln_sync_encoded_bound(LN_SYNC_I8, 257, 1), 265);
    CHECK_INT(ln_sync_encoded_bound(LN_SYNC_ONEBIT, 1024, 1), 136);
    CHECK_INT(ln_sync_encoded_bound(LN_SYNC_ONEBIT, 1025, 1), 148);
    CHECK(ln_sync_encoded_bound(LN_SYNC_TOPK, 100, 0) == SIZE_MAX);
    CHECK(ln_sync_encoded_bound(LN_SYNC_TOPK, 100, 1.5) == SIZE_MAX);
    CHECK(ln_sync_encoded_bound(LN_SYNC_TOPK, 100, NAN) == SIZE_MAX);
    CHECK(ln_sync_encoded_bound(LN_SYNC_ENCODINGS, 100, 1) == SIZE_MAX);
    CHECK(ln_sync_encoded_bound(LN_SYNC_PLAIN, UINT64_MAX, 1) == SIZE_MAX);
    CHECK(!ln_sync_encoded_fits(LN_SYNC_F16, 10, 19));
    CHECK(!ln_sync_encoded_fits(-1, 10, 40));
    CHECK_INT(ln_sync_decode(77, "", 0, NULL, 0), LN_SYNC_BAD_ENCODING);
}

/* Every f16 and bf16 value is reproduced. Every f32 value becomes the nearest f16 or bf16 value (ties to even); the
 * test finds it from both neighbours with the C library's arithmetic. */
static void test_halves(void) {
    static float all[65536];
    static unsigned char bytes[131072];
    for (int encoding = LN_SYNC_F16; encoding <= LN_SYNC_BF16; encoding++) {
        for (int i = 0; i < 65536; i++) {
            uint16_t half = (uint16_t)i;
            memcpy(bytes + 2 * i, &half, 2);
        }
        CHECK_INT(ln_sync_decode(encoding, bytes, sizeof bytes, all, 65536), LN_SYNC_DECODED);
        ln_sync_encode(encoding, 1, all, NULL, 65536, bytes);
        int wrong = 0, greatest = encoding == LN_SYNC_F16 ? 0x7bff : 0x7f7f;
        for (int i = 0; i < 65536; i++) {
            uint16_t half;
            memcpy(&half, bytes + 2 * i, 2);
            if (half != i && !(isnan(all[i]) && (half & 0x7fff) == (encoding == LN_SYNC_F16 ? 0x7e00 : 0x7fc0)))
                wrong++;
        }
        CHECK_INT(wrong, 0);
        for (int i = 0; i < greatest; i++) { /* just below, at and just above the middle of two neighbours */
            float middle = (float)(((double)all[i] + (double)all[i + 1]) / 2);
            float three[3] = {nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)}, got[3];
            ln_sync_encode(encoding, 1, three, NULL, 3, bytes);
            ln_sync_decode(encoding, bytes, 6, got, 3);
            wrong += got[0] != all[i] || got[1] != all[i + (i & 1)] || got[2] != all[i + 1];
        }
        CHECK_INT(wrong, 0);
    }
}

/* Over many steps, the sum of all decoded values equals the sum of all inputs, except for the current residual. */
static void test_feedback(void) {
    const double steps_left[LN_SYNC_ENCODINGS] = {0, 0.001, 0.01, 0.2, 10, 30};
    const size_t counts[] = {1, 5, 31, 33, 255, 257, 1024, 1500, 5000};
    for (int encoding = 0; encoding < LN_SYNC_ENCODINGS; encoding++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            size_t n = counts[c], bound = ln_sync_encoded_bound(encoding, n, 0.05);
            float *values = gradients(n), *residual = calloc(n, 4), *sum = calloc(n, 4), *once = malloc(n * 4);
            double *in = calloc(n, sizeof *in), all = 0, off = 0;
            unsigned char *bytes = malloc(bound);
            for (int step = 0; step < 60; step++) {
                for (size_t i = 0; i < n; i++) {
                    float value = values[i] * (1 + uniform());
                    once[i] = value;
                    in[i] += value;
                    all += fabs(value);
                }
                size_t size = ln_sync_encode(encoding, 0.05, once, residual, n, bytes);
                CHECK(encoding == LN_SYNC_TOPK ? size <= bound : size == bound);
                CHECK(ln_sync_encoded_fits(encoding, n, size));
                float *add = calloc(n, 4);
                CHECK_INT(ln_sync_decode(encoding, bytes, size, once, n), LN_SYNC_DECODED);
                CHECK_INT(ln_sync_decode_add(encoding, bytes, size, 1, add, n), LN_SYNC_DECODED);
                for (size_t i = 0; i < n; i++) CHECK(once[i] == add[i]);
                CHECK_INT(ln_sync_decode_add(encoding, bytes, size, 1, sum, n), LN_SYNC_DECODED);
                free(add);
            }
            for (size_t i = 0; i < n; i++) off += fabs((double)sum[i] + residual[i] - in[i]);
            CHECK(off <= 1e-5 * all);
            /* The residual stays bounded by the values of a fixed number of steps, however many steps there are. */
            double left = 0;
            for (size_t i = 0; i < n; i++) left += fabs(residual[i]);
            CHECK(left <= steps_left[encoding] * all / 60);
            free(values), free(residual), free(sum), free(once), free(in), free(bytes);
        }
}

/* NaN and infinity arrive unchanged and do not stay in the residual. */
static void test_not_finite(void) {
    const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int encoding = 0; encoding < LN_SYNC_ENCODINGS; encoding++)
        for (int kind = 0; kind < 3; kind++) {
            enum { N = 3000 };
            float values[N], residual[N], out[N];
            unsigned char bytes[4 * N];
            for (int i = 0; i < N; i++) values[i] = uniform(), residual[i] = uniform() * 0.01f;
            for (int i = 1100; i < 1130; i++) values[i] = odd[kind];
            size_t size = ln_sync_encode(encoding, 0.005, values, residual, N, bytes); /* k = 15 < 30 */
            CHECK_INT(ln_sync_decode(encoding, bytes, size, out, N), LN_SYNC_DECODED);
            CHECK(!isfinite(out[1100]));
            CHECK(isfinite(out[100]) && isfinite(out[2999])); /* values in other blocks */
            for (int i = 0; i < N; i++) CHECK(isfinite(residual[i]));
            for (int i = 1100; i < 1130; i++) CHECK(residual[i] == 0);
            if (encoding != LN_SYNC_I8 && encoding != LN_SYNC_ONEBIT)
                CHECK(kind == 0 ? isnan(out[1100]) : out[1100] == odd[kind]);
            for (int i = 0; i < N; i++) values[i] = 0;
            size = ln_sync_encode(encoding, 0.005, values, residual, N, bytes);
            CHECK_INT(ln_sync_decode(encoding, bytes, size, out, N), LN_SYNC_DECODED);
            for (int i = 0; i < N; i++) CHECK(isfinite(out[i])); /* nothing is left in the residual */
        }
}

/* Values at the limits of f32: no finite value becomes infinite or NaN. */
static void test_extremes(void) {
    const float ends[] = {3.4028235e38f, -3.4028235e38f, 1.17549435e-38f, 1e-45f, -1e-45f, 0, 1e-37f, 3e38f};
    for (int encoding = 0; encoding < LN_SYNC_ENCODINGS; encoding++)
        for (int i = 0; i < 8; i++) {
            float value[40], residual[40] = {0}, out[40];
            unsigned char bytes[200];
            for (int j = 0; j < 40; j++) value[j] = j == 3 ? ends[i] : 0;
            size_t size = ln_sync_encode(encoding, 0.1, value, residual, 40, bytes);
            CHECK_INT(ln_sync_decode(encoding, bytes, size, out, 40), LN_SYNC_DECODED);
            for (int j = 0; j < 40; j++) CHECK(isfinite(out[j]) && isfinite(residual[j]));
            if (encoding != LN_SYNC_F16) CHECK(fabsf(out[3] + residual[3] - value[3]) <= 1e-6f * fabsf(value[3]));
        }
}

static void test_malformed(void) {
    float out[40], before[40];
    for (int i = 0; i < 40; i++) out[i] = before[i] = (float)i;
    struct {
        int encoding, expect;
        size_t size;
        const char *bytes;
    } cases[] = {
        {LN_SYNC_TOPK, LN_SYNC_BAD_LENGTH, 0, ""},
        {LN_SYNC_TOPK, LN_SYNC_BAD_INDEX, 1, "\x80"},                         /* truncated varint */
        {LN_SYNC_TOPK, LN_SYNC_BAD_INDEX, 2, "\x80\x00"},                     /* longer than needed */
        {LN_SYNC_TOPK, LN_SYNC_BAD_INDEX, 4, "\x29\x00\x00\x00"},             /* 41 of 40 */
        {LN_SYNC_TOPK, LN_SYNC_BAD_LENGTH, 3, "\x01\x00\x00"},                /* half a value */
        {LN_SYNC_TOPK, LN_SYNC_BAD_INDEX, 4, "\x01\x28\x80\x3f"},             /* index 40 of 40 */
        {LN_SYNC_TOPK, LN_SYNC_BAD_INDEX, 7, "\x02\x27\x00\x80\x3f\x80\x3f"}, /* 39, then 40 */
        {LN_SYNC_TOPK, LN_SYNC_BAD_LENGTH, 5, "\x01\x00\x80\x3f\x00"},        /* a byte too many */
        {LN_SYNC_TOPK, LN_SYNC_BAD_INDEX, 13, "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00"},
        {LN_SYNC_TOPK, LN_SYNC_BAD_INDEX, 13, "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00\x00"},
        {LN_SYNC_F16, LN_SYNC_BAD_LENGTH, 79, ""},
        {LN_SYNC_PLAIN, LN_SYNC_BAD_LENGTH, 161, ""},
        {99, LN_SYNC_BAD_ENCODING, 1, "\0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *exact = malloc(cases[i].size + 1); /* exact size, so that reading beyond it is detected */
        memcpy(exact + 1, cases[i].bytes, cases[i].encoding == LN_SYNC_TOPK ? cases[i].size : 0);
        CHECK_INT(ln_sync_decode(cases[i].encoding, exact + 1, cases[i].size, out, 40), cases[i].expect);
        CHECK_INT(ln_sync_decode_add(cases[i].encoding, exact + 1, cases[i].size, 1, out, 40), cases[i].expect);
        CHECK(strlen(ln_sync_decoding_text(cases[i].expect)) > 10);
        free(exact);
    }
    const uint32_t scales[] = {0x7f800000, 0xbf800000, 0x7fc00001, 0xffc00000, 0x80000000};
    for (size_t i = 0; i < 5; i++) {
        unsigned char i8[44] = {0}, onebit[16] = {0};
        memcpy(i8, &scales[i], 4);
        CHECK_INT(ln_sync_decode(LN_SYNC_I8, i8, sizeof i8, out, 40), LN_SYNC_BAD_SCALE);
        memcpy(onebit + 4, &scales[i], 4); /* the value that replaces the positive values */
        CHECK_INT(ln_sync_decode(LN_SYNC_ONEBIT, onebit, 16, out, 40), LN_SYNC_BAD_SCALE);
    }
    unsigned char positive[16] = {0, 0, 0x80, 0x3f};
    CHECK_INT(ln_sync_decode(LN_SYNC_ONEBIT, positive, 16, out, 40), LN_SYNC_BAD_SCALE);
    CHECK(memcmp(out, before, sizeof out) == 0); /* none of these messages changed the output */
}

/* Messages with random changes, in memory of exactly their size, are refused or decoded completely. */
static void test_fuzz(int rounds) {
    for (int round = 0; round < rounds * 2000; round++) {
        int encoding = (int)(check_random(&state) % LN_SYNC_ENCODINGS);
        uint64_t count = check_random(&state) % 2100;
        size_t bound = ln_sync_encoded_bound(encoding, count, 0.3);
        float *values = gradients(count), *out = malloc(count * 4 + 1);
        unsigned char *bytes = malloc(bound + 1), *exact;
        size_t size = ln_sync_encode(encoding, 0.3, values, NULL, count, bytes);
        for (uint64_t flips = check_random(&state) % 6; flips > 0 && size > 0; flips--) {
            /* the first bytes hold lengths, scales and gaps */
            uint64_t at = check_random(&state) % (check_random(&state) & 1 ? size : size < 20 ? size : 20);
            bytes[at] = (unsigned char)(check_random(&state) >> 20);
        }
        if (check_random(&state) % 4 == 0 && size > 0) size -= check_random(&state) % (size < 12 ? size : 12);
        exact = malloc(size + 1);
        memcpy(exact + 1, bytes, size); /* misaligned too */
        for (uint64_t i = 0; i < count; i++) out[i] = 42;
        int got = ln_sync_decode(encoding, exact + 1, size, out, count);
        CHECK(got >= LN_SYNC_DECODED && got <= LN_SYNC_BAD_SCALE);
        if (got != LN_SYNC_DECODED)
            for (uint64_t i = 0; i < count; i++) CHECK(out[i] == 42);
        CHECK_INT(ln_sync_decode_add(encoding, exact + 1, size, 0.5f, out, count), got);
        free(values), free(out), free(bytes), free(exact);
    }
}

static uint64_t digest(uint64_t hash, const void *data, size_t size) { /* FNV-1a */
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
    return hash;
}

/* One digest over the messages, residuals and sums of ten steps: the same on every machine and with every compiler. */
static void test_same_bits(void) {
    static const uint64_t expected[LN_SYNC_ENCODINGS] = {0x51708adf0cbcb116, 0xdf6ef093a508fd01, 0x2f036ea94d79efa0,
                                                         0x80c7e1e76736c534, 0x4704bd61aa79038c, 0x4fc6ebc66431b7fb};
    for (int encoding = 0; encoding < LN_SYNC_ENCODINGS; encoding++) {
        enum { N = 20011 };
        static float residual[N], sum[N];
        static unsigned char bytes[4 * N];
        uint64_t hash = 0xcbf29ce484222325ull;
        memset(residual, 0, sizeof residual);
        memset(sum, 0, sizeof sum);
        state = 5;
        for (int step = 0; step < 10; step++) {
            float *values = gradients(N);
            size_t size = ln_sync_encode(encoding, 0.01, values, residual, N, bytes);
            CHECK_INT(ln_sync_decode_add(encoding, bytes, size, 0.125f, sum, N), LN_SYNC_DECODED);
            hash = digest(hash, bytes, size);
            free(values);
        }
        hash = digest(digest(hash, residual, sizeof residual), sum, sizeof sum);
        if (hash != expected[encoding])
            printf("%s: digest 0x%016llx\n", ln_sync_encoding_name(encoding), (unsigned long long)hash);
        CHECK(hash == expected[encoding]);
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    test_vectors();
    test_sizes();
    test_halves();
    test_feedback();
    test_not_finite();
    test_extremes();
    test_malformed();
    test_fuzz(rounds);
    test_same_bits();
    return check_end("test_sync_compress");
}
