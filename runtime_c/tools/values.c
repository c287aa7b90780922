/* values.c - prints the values of a tensor as text or as JSON, and JSON texts and numbers.
 * JSON has no NaN and no infinity, so both become null. */
#include "values.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void tool_json_characters(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
}

void tool_json_text(const char *text, size_t length) {
    putchar('"');
    tool_json_characters(text, length);
    putchar('"');
}

void tool_json_entry(const char *key, const char *text) {
    printf("\"%s\": ", key);
    tool_json_text(text ? text : "", text ? strlen(text) : 0);
}

void tool_json_number(double value, int digits) {
    if (isfinite(value))
        printf("%.*g", digits, value);
    else
        fputs("null", stdout);
}

static double half(uint16_t bits) {
    const uint32_t shifted = (uint32_t)(bits & 0x7fff) << 13;
    float small; /* the number times 2^-112, also if it is subnormal */
    memcpy(&small, &shifted, sizeof small);
    double size = (double)small * 0x1p112;
    if ((bits & 0x7c00) == 0x7c00) size = bits & 1023 ? (double)NAN : (double)INFINITY;
    return bits >> 15 ? -size : size;
}

/* One element. Integers of 64 bits are kept in `whole`, because a double does not hold all of them. */
typedef struct element {
    double number;
    long long whole;
    unsigned long long positive; /* of u64 */
} element;

static element element_at(const linnet_tensor_info *info, const void *data, long long i) {
    const unsigned char *at = (const unsigned char *)data + (size_t)i * linnet_dtype_size(info->dtype);
    element e = {0, 0, 0};
    int64_t wide = 0;
    if (info->bits == 4) {
        const int code = ((const unsigned char *)data)[i / 2] >> (i % 2 ? 4 : 0) & 15;
        e.whole = info->dtype == LINNET_I4 ? (code ^ 8) - 8 : code;
        e.number = (double)e.whole;
        return e;
    }
    switch (info->dtype) {
#define TOOL_TAKE(dtype, type, field)                                                                                  \
    case dtype: {                                                                                                      \
        type v;                                                                                                        \
        memcpy(&v, at, sizeof v);                                                                                      \
        field;                                                                                                         \
        break;                                                                                                         \
    }
        TOOL_TAKE(LINNET_F32, float, e.number = (double)v)
        TOOL_TAKE(LINNET_F64, double, e.number = v)
        TOOL_TAKE(LINNET_F16, uint16_t, e.number = half(v))
        TOOL_TAKE(LINNET_I8, int8_t, wide = v)
        TOOL_TAKE(LINNET_I16, int16_t, wide = v)
        TOOL_TAKE(LINNET_I32, int32_t, wide = v)
        TOOL_TAKE(LINNET_I64, int64_t, wide = v)
        TOOL_TAKE(LINNET_U16, uint16_t, wide = v)
        TOOL_TAKE(LINNET_U32, uint32_t, wide = v)
        TOOL_TAKE(LINNET_U64, uint64_t, e.positive = v)
#undef TOOL_TAKE
    case LINNET_BF16: {
        uint16_t high;
        float v;
        memcpy(&high, at, sizeof high);
        const uint32_t bits = (uint32_t)high << 16;
        memcpy(&v, &bits, sizeof v);
        e.number = (double)v;
        break;
    }
    default: wide = *at; /* u8 and bool */
    }
    if (info->dtype == LINNET_U64)
        e.number = (double)e.positive;
    else if (wide)
        e.number = (double)wide;
    e.whole = wide;
    return e;
}

static bool is_float(int dtype) {
    return dtype == LINNET_F32 || dtype == LINNET_F64 || dtype == LINNET_F16 || dtype == LINNET_BF16;
}

static void print_element(const linnet_tensor_info *info, const void *data, long long i, bool json) {
    const element e = element_at(info, data, i);
    if (is_float(info->dtype) && json)
        tool_json_number(e.number, info->dtype == LINNET_F64 ? 17 : 9);
    else if (is_float(info->dtype))
        printf("%.6g", e.number);
    else if (info->dtype == LINNET_BOOL)
        fputs(e.whole ? "true" : "false", stdout);
    else if (info->dtype == LINNET_U64)
        printf("%llu", e.positive);
    else
        printf("%lld", e.whole);
}

long long tool_count(const linnet_tensor_info *info) {
    long long n = 1;
    for (int i = 0; i < info->rank; i++) n *= info->shape[i];
    return n;
}

bool tool_range(const linnet_tensor_info *info, const void *data, double *least, double *mean, double *most) {
    const long long n = tool_count(info);
    double sum = 0;
    for (long long i = 0; i < n; i++) {
        const double v = element_at(info, data, i).number;
        if (i == 0) *least = *most = v;
        if (v < *least || isnan(v)) *least = v; /* a NaN stays: no number is less than it */
        if (v > *most || isnan(v)) *most = v;
        sum += v;
    }
    *mean = n ? sum / (double)n : 0;
    return n > 0;
}

void tool_print_values(const linnet_tensor_info *info, const void *data, long long most, bool json) {
    const long long n = tool_count(info);
    for (long long i = 0; i < n && i < most; i++) {
        if (i) fputs(json ? ", " : " ", stdout);
        print_element(info, data, i, json);
    }
    if (n > most && !json) fputs(" ...", stdout);
}
