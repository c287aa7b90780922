/* flatbuffer.c - the checked flatbuffer reader: tables, vtables, vectors, strings.
 * To compare an offset with a bound, the reader subtracts from the bound, so no sum can overflow. */
#include "base/flatbuffer.h"

#include <string.h>

static void fail(ln_fb *fb, const char *problem, size_t where) {
    if (!fb->problem) {
        fb->problem = problem;
        fb->where = where;
    }
}

static uint64_t read_bytes(const uint8_t *p, int width) {
    uint64_t value = 0;
    for (int i = width; i-- > 0;) value = value << 8 | p[i];
    return value;
}

static bool inside(const ln_fb *fb, size_t at, size_t size) { return size <= fb->size && at <= fb->size - size; }

static bool spend(ln_fb *fb, uint64_t bytes, size_t where) {
    if (bytes > fb->budget) {
        fb->budget = 0;
        fail(fb, "the same bytes are referenced too many times", where);
        return false;
    }
    fb->budget -= bytes;
    return true;
}

/* Follows the unsigned 32-bit offset at `at`. Returns 0 on failure. */
static size_t follow(ln_fb *fb, size_t at) {
    uint64_t offset;
    if (!inside(fb, at, 4)) {
        fail(fb, "an offset is outside the structure", at);
        return 0;
    }
    offset = read_bytes(fb->data + at, 4);
    if (offset == 0 || offset >= fb->size - at) {
        fail(fb, "an offset points outside the structure", at);
        return 0;
    }
    return at + (size_t)offset;
}

static ln_fb_table open_table(ln_fb *fb, size_t at) {
    ln_fb_table table = {fb, 0, 0, 0, 0};
    int64_t vtable;
    uint64_t vtable_size, table_size;
    if (fb->problem) return table;
    if (at % 4 != 0 || !inside(fb, at, 4)) {
        fail(fb, "a table is misaligned or outside the structure", at);
        return table;
    }
    vtable = (int64_t)at - (int32_t)(uint32_t)read_bytes(fb->data + at, 4);
    if (vtable < 0 || vtable % 2 != 0 || !inside(fb, (size_t)vtable, 4)) {
        fail(fb, "a vtable is misaligned or outside the structure", at);
        return table;
    }
    vtable_size = read_bytes(fb->data + vtable, 2);
    table_size = read_bytes(fb->data + vtable + 2, 2);
    if (vtable_size < 4 || vtable_size % 2 != 0 || !inside(fb, (size_t)vtable, (size_t)vtable_size) || table_size < 4 ||
        !inside(fb, at, (size_t)table_size)) {
        fail(fb, "a table or its vtable runs past the end of the structure", at);
        return table;
    }
    if (!spend(fb, table_size, at)) return table;
    table.at = at;
    table.vtable = (size_t)vtable;
    table.slots = (size_t)(vtable_size - 4) / 2;
    table.size = (size_t)table_size;
    return table;
}

/* Returns the offset of a field of `width` bytes; 0 if the field is absent or invalid. */
static size_t field(const ln_fb_table *table, int slot, size_t width) {
    size_t offset, at;
    if (table->at == 0 || table->fb->problem || (size_t)slot >= table->slots) return 0;
    offset = (size_t)read_bytes(table->fb->data + table->vtable + 4 + 2 * (size_t)slot, 2);
    if (offset == 0) return 0;
    if (offset < 4 || offset > table->size || width > table->size - offset) {
        fail(table->fb, "a field is outside its table", table->at);
        return 0;
    }
    at = table->at + offset;
    if (at % width != 0) {
        fail(table->fb, "a field is misaligned", at);
        return 0;
    }
    return at;
}

ln_fb_table ln_fb_root(ln_fb *fb, const void *data, size_t size, const char *identifier) {
    ln_fb_table none = {fb, 0, 0, 0, 0};
    size_t at;
    fb->data = data;
    fb->size = size;
    fb->budget = 4 * (uint64_t)size + 4096; /* strings and quantization may be shared, within this limit */
    fb->problem = NULL;
    fb->where = 0;
    if (size < 8 || size > INT32_MAX) {
        fail(fb, "the structure is smaller than 8 bytes or larger than 2 GiB", 0);
        return none;
    }
    if (identifier && memcmp(fb->data + 4, identifier, 4) != 0) {
        fail(fb, "the file identifier of the structure is wrong", 4);
        return none;
    }
    at = follow(fb, 0);
    return fb->problem ? none : open_table(fb, at);
}

bool ln_fb_has(const ln_fb_table *table, int slot) { return field(table, slot, 1) != 0; }

int64_t ln_fb_signed(const ln_fb_table *table, int slot, int width, int64_t absent) {
    size_t at = field(table, slot, (size_t)width);
    uint64_t value, sign;
    if (!at) return absent;
    value = read_bytes(table->fb->data + at, width);
    sign = (uint64_t)1 << (8 * width - 1);
    value = (value ^ sign) - sign; /* sign extension */
    return value > INT64_MAX ? -(int64_t)~value - 1 : (int64_t)value;
}

int64_t ln_fb_unsigned(const ln_fb_table *table, int slot, int width, int64_t absent) {
    size_t at = field(table, slot, (size_t)width);
    uint64_t value;
    if (!at) return absent;
    value = read_bytes(table->fb->data + at, width);
    if (value > INT64_MAX) {
        fail(table->fb, "an unsigned number is 2^63 or more", at);
        return absent;
    }
    return (int64_t)value;
}

double ln_fb_double(const ln_fb_table *table, int slot, double absent) {
    size_t at = field(table, slot, 8);
    uint64_t bits;
    double value;
    if (!at) return absent;
    bits = read_bytes(table->fb->data + at, 8);
    memcpy(&value, &bits, sizeof value);
    return value;
}

ln_fb_table ln_fb_get_table(const ln_fb_table *table, int slot) {
    ln_fb_table none = {table->fb, 0, 0, 0, 0};
    size_t at = field(table, slot, 4);
    if (at) at = follow(table->fb, at);
    return at ? open_table(table->fb, at) : none;
}

static ln_fb_vector open_vector(ln_fb *fb, size_t at, size_t element_size) {
    ln_fb_vector vector = {fb, NULL, 0, 0};
    uint64_t count;
    if (at % 4 != 0 || !inside(fb, at, 4)) {
        fail(fb, "a vector is misaligned or outside the structure", at);
        return vector;
    }
    count = read_bytes(fb->data + at, 4);
    if (count > (fb->size - at - 4) / element_size) {
        fail(fb, "a vector runs past the end of the structure", at);
        return vector;
    }
    if (count && (at + 4) % element_size != 0) {
        fail(fb, "the elements of a vector are misaligned", at);
        return vector;
    }
    if (!spend(fb, 4 + count * element_size, at)) return vector;
    vector.at = at + 4;
    vector.data = fb->data + vector.at;
    vector.count = (uint32_t)count;
    return vector;
}

ln_fb_vector ln_fb_get_vector(const ln_fb_table *table, int slot, size_t element_size) {
    ln_fb_vector none = {table->fb, NULL, 0, 0};
    size_t at = field(table, slot, 4);
    if (at) at = follow(table->fb, at);
    return at ? open_vector(table->fb, at, element_size) : none;
}

bool ln_is_text(const void *text, size_t n) {
    const uint8_t *s = text;
    size_t i = 0;
    while (i < n) {
        uint8_t c = s[i], low = 0x80, high = 0xbf;
        size_t more;
        if (c == 0) return false;
        if (c < 0x80) {
            i++;
            continue;
        }
        more = c >= 0xc2 && c <= 0xdf ? 1 : (c & 0xf0) == 0xe0 ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : 0;
        if (more == 0 || more > n - i - 1) return false;
        if (c == 0xe0)
            low = 0xa0;
        else if (c == 0xed)
            high = 0x9f;
        else if (c == 0xf0)
            low = 0x90;
        else if (c == 0xf4)
            high = 0x8f;
        for (size_t k = 1; k <= more; k++, low = 0x80, high = 0xbf)
            if (s[i + k] < low || s[i + k] > high) return false;
        i += more + 1;
    }
    return true;
}

static const char *open_string(ln_fb *fb, size_t at) {
    ln_fb_vector vector = open_vector(fb, at, 1);
    const char *text = vector.data;
    if (!text) return "";
    if (vector.at + vector.count >= fb->size || text[vector.count] != 0 || !ln_is_text(vector.data, vector.count)) {
        fail(fb, "a string is not NUL-terminated UTF-8", at);
        return "";
    }
    return text;
}

const char *ln_fb_string(const ln_fb_table *table, int slot) {
    size_t at = field(table, slot, 4);
    if (at) at = follow(table->fb, at);
    return at ? open_string(table->fb, at) : "";
}

/* Follows element i of a vector of offsets. Returns 0 on failure. */
static size_t element(const ln_fb_vector *vector, uint32_t i) {
    if (!vector->data || vector->fb->problem || i >= vector->count) return 0;
    return follow(vector->fb, vector->at + 4 * (size_t)i);
}

ln_fb_table ln_fb_table_at(const ln_fb_vector *vector, uint32_t i) {
    ln_fb_table none = {vector->fb, 0, 0, 0, 0};
    size_t at = element(vector, i);
    if (!at && !vector->fb->problem) fail(vector->fb, "an element of a vector is missing", vector->at);
    return at ? open_table(vector->fb, at) : none;
}

const char *ln_fb_string_at(const ln_fb_vector *vector, uint32_t i) {
    size_t at = element(vector, i);
    return at ? open_string(vector->fb, at) : "";
}
