/* test_flatbuffer.c - the flatbuffer reader on valid structures and on every way to corrupt one.
 * Then changes each single byte of a valid structure and reads the whole structure: no access may be outside it
 * (sanitizers check this). */
#include "check.h"
#include "writer.h"

#include "base/flatbuffer.h"

/* Root: 0 u8, 1 i32, 2 f64, 3 string, 4 ints, 5 tables (each: 0 i16), 6 table, 7 u64, 8 absent. */
typedef struct sample {
    written root, child;
    size_t text, ints, tables;
} sample;

static sample make(writer *w) {
    static const int64_t ints[3] = {-1, 1, INT64_MAX};
    const double real = 2.5;
    uint64_t bits;
    sample s;
    writer_begin(w);
    s.root = writer_table(w, "148444480");
    writer_point(w, 64, s.root.at);
    writer_put(w, s.root.slots[0], 200, 1);
    writer_put(w, s.root.slots[1], (uint64_t)-77, 4);
    memcpy(&bits, &real, 8);
    writer_put(w, s.root.slots[2], bits, 8);
    writer_put(w, s.root.slots[7], 99, 8);
    s.text = writer_string(w, "gr\xc3\xbc\xc3\x9f");
    writer_point(w, s.root.slots[3], s.text);
    s.ints = writer_vector(w, ints, 3, 8, 8);
    writer_point(w, s.root.slots[4], s.ints);
    s.tables = writer_offsets(w, 2);
    writer_point(w, s.root.slots[5], s.tables);
    s.child = writer_table(w, "2");
    writer_put(w, s.child.slots[0], (uint64_t)-5, 2);
    writer_point(w, s.tables + 4, s.child.at);
    writer_point(w, s.tables + 8, s.child.at);
    writer_point(w, s.root.slots[6], s.child.at);
    return s;
}

/* Reads everything, as model.c would, and returns the problem. Sums what it reads, so that no read is optimized
 * away. */
static const char *read_all(const writer *w, uint64_t *sum) {
    ln_fb fb;
    ln_fb_table root = ln_fb_root(&fb, w->bytes + 64, w->used - 64, "LNT1"), child;
    ln_fb_vector ints, tables;
    uint64_t total = (uint64_t)ln_fb_unsigned(&root, 0, 1, 1) + (uint64_t)ln_fb_signed(&root, 1, 4, 1);
    total += ln_fb_double(&root, 2, 0) > 0;
    total += strlen(ln_fb_string(&root, 3)) + (uint64_t)ln_fb_unsigned(&root, 7, 8, 0);
    total += (uint64_t)ln_fb_signed(&root, 8, 8, 1000);
    ints = ln_fb_get_vector(&root, 4, 8);
    for (uint32_t i = 0; i < ints.count; i++) {
        int64_t value;
        memcpy(&value, (const char *)ints.data + 8 * (size_t)i, 8);
        total ^= (uint64_t)value;
    }
    tables = ln_fb_get_vector(&root, 5, 4);
    for (uint32_t i = 0; i < tables.count; i++) {
        child = ln_fb_table_at(&tables, i);
        total += (uint64_t)ln_fb_signed(&child, 0, 2, 0);
    }
    child = ln_fb_get_table(&root, 6);
    total += (uint64_t)ln_fb_signed(&child, 0, 2, 0);
    *sum = total;
    return fb.problem;
}

static void good(void) {
    static writer w;
    sample s = make(&w);
    ln_fb fb;
    ln_fb_table root, child;
    ln_fb_vector v;
    root = ln_fb_root(&fb, w.bytes + 64, w.used - 64, "LNT1");
    CHECK(fb.problem == NULL);
    CHECK_INT(ln_fb_unsigned(&root, 0, 1, 0), 200);
    CHECK_INT(ln_fb_signed(&root, 0, 1, 0), -56);
    CHECK_INT(ln_fb_signed(&root, 1, 4, 0), -77);
    CHECK_INT(ln_fb_unsigned(&root, 1, 4, 0), 4294967219LL);
    CHECK(ln_fb_double(&root, 2, 0) == 2.5);
    CHECK_TEXT(ln_fb_string(&root, 3), "gr\xc3\xbc\xc3\x9f");
    v = ln_fb_get_vector(&root, 4, 8);
    CHECK_INT(v.count, 3);
    CHECK_INT(((const int64_t *)v.data)[2], INT64_MAX);
    v = ln_fb_get_vector(&root, 5, 4);
    child = ln_fb_table_at(&v, 1);
    CHECK_INT(ln_fb_signed(&child, 0, 2, 0), -5);
    CHECK(ln_fb_has(&root, 0) && !ln_fb_has(&root, 8) && !ln_fb_has(&root, 1000));
    CHECK_INT(ln_fb_signed(&root, 8, 8, 1234), 1234);
    CHECK_TEXT(ln_fb_string(&root, 8), "");
    CHECK(ln_fb_get_vector(&root, 8, 4).data == NULL);
    CHECK(ln_fb_get_table(&root, 8).at == 0);
    CHECK(fb.problem == NULL);
    CHECK(ln_fb_root(&fb, w.bytes + 64, w.used - 64, "XXXX").at == 0 && fb.problem);
    CHECK(ln_fb_root(&fb, w.bytes + 64, 7, NULL).at == 0 && fb.problem);
    (void)s;
}

static void bad(size_t at, uint64_t value, int width, const char *what) {
    static writer w;
    uint64_t sum;
    const char *problem;
    make(&w);
    writer_put(&w, at, value, width);
    problem = read_all(&w, &sum);
    CHECK(problem != NULL);
    if (problem && !strstr(problem, what)) {
        printf("expected a problem with \"%s\"\n", what);
        CHECK_TEXT(problem, what);
    }
}

static void lies(void) {
    static writer w;
    sample s = make(&w);
    size_t vtable = s.root.at - (w.bytes[s.root.at] | (size_t)w.bytes[s.root.at + 1] << 8);
    bad(64, 0, 4, "offset");
    bad(64, 0x7fffffff, 4, "offset");
    bad(64, 0xffffffff, 4, "offset");
    bad(64, s.root.at - 64 + 1, 4, "misaligned");
    bad(s.root.at, 0x7fffffff, 4, "vtable");
    bad(s.root.at, 0x80000000u, 4, "vtable");
    bad(s.root.at, s.root.at - vtable + 1, 4, "vtable");
    bad(vtable, 3, 2, "vtable");
    bad(vtable, 0xfffe, 2, "past the end");
    bad(vtable + 2, 0xffff, 2, "past the end");
    bad(vtable + 2, 8, 2, "outside its table");
    bad(vtable + 4 + 2, 0xfff0, 2, "outside its table");
    bad(vtable + 4 + 2, 3, 2, "outside its table");
    bad(vtable + 4 + 2, 10, 2, "misaligned");
    /* The i32 and the f64 at the table's last bytes begin inside the table and end outside. */
    const size_t table_size = w.bytes[vtable + 2] | (size_t)w.bytes[vtable + 3] << 8;
    bad(vtable + 4 + 2, table_size, 2, "outside its table");
    bad(vtable + 4 + 4, table_size - 4, 2, "outside its table");
    bad(vtable + 4 + 4, table_size - 1, 2, "outside its table");
    bad(s.root.slots[3], 0xfffffff0u, 4, "outside");
    bad(s.text, 0xffffffffu, 4, "past the end");
    bad(s.text, 4, 4, "UTF-8");         /* truncated inside a character, without NUL */
    bad(s.text + 4 + 2, 0, 1, "UTF-8"); /* NUL inside */
    bad(s.text + 4 + 2, 0xff, 1, "UTF-8");
    bad(s.text + 4 + 2, 0xc0, 1, "UTF-8");
    bad(s.ints, 0x10000000, 4, "past the end");                    /* this number times 8 would overflow 32 bits */
    bad(s.ints, (w.used - s.ints - 4) / 8 + 1, 4, "past the end"); /* this many elements of one byte would fit */
    bad(s.root.slots[4], s.ints + 12 - s.root.slots[4], 4, "misaligned");
    bad(s.tables + 4, 2, 4, "misaligned");
    bad(s.tables + 8, 0, 4, "offset");
    bad(s.root.slots[7] + 7, 0x80, 1, "2^63");
}

/* Texts must be what Python decodes: no surrogates, nothing above U+10FFFF, no overlong encodings. */
static void texts(void) {
    static const struct {
        const char *text;
        int good;
    } cases[] = {
        {"", 1},
        {"a", 1},
        {"\xc2\x80", 1},
        {"\xc1\xbf", 0},
        {"\xdf\xbf", 1},
        {"\xe0\xa0\x80", 1},
        {"\xe0\x9f\xbf", 0},
        {"\xed\x9f\xbf", 1},
        {"\xed\xa0\x80", 0},
        {"\xee\x80\x80", 1},
        {"\xf0\x90\x80\x80", 1},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf4\x8f\xbf\xbf", 1},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\x80", 0},
        {"\xc2", 0},
        {"\xe2\x82", 0},
        {"a\xff", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_INT(ln_is_text(cases[i].text, strlen(cases[i].text)), cases[i].good);
    CHECK(!ln_is_text("a\0b", 3));
}

static void shared(void) {
    /* A vector of n offsets to the same large table: the reader must give up instead of reading the table n times. */
    static writer w;
    written root, child;
    size_t tables;
    ln_fb fb;
    ln_fb_table r;
    ln_fb_vector v;
    uint32_t i;
    writer_begin(&w);
    root = writer_table(&w, "4");
    writer_point(&w, 64, root.at);
    tables = writer_offsets(&w, 4000);
    writer_point(&w, root.slots[0], tables);
    child = writer_table(&w, "8888888888888888");
    for (i = 0; i < 4000; i++) writer_point(&w, tables + 4 + 4 * (size_t)i, child.at);
    r = ln_fb_root(&fb, w.bytes + 64, w.used - 64, "LNT1");
    v = ln_fb_get_vector(&r, 0, 4);
    for (i = 0; i < v.count && !fb.problem; i++) ln_fb_table_at(&v, i);
    CHECK(fb.problem != NULL && strstr(fb.problem, "too many times"));
    CHECK(i > 100 && i < 4000);
}

static void every_byte(void) {
    static writer w, changed;
    uint64_t sum, refused = 0;
    make(&w);
    CHECK(read_all(&w, &sum) == NULL);
    for (size_t size = 0; size < w.used - 64; size++) { /* truncated structures, each in memory of exactly its size */
        void *exact = malloc(size ? size : 1);
        ln_fb fb;
        ln_fb_table root;
        memcpy(exact, w.bytes + 64, size);
        root = ln_fb_root(&fb, exact, size, "LNT1");
        ln_fb_string(&root, 3);
        ln_fb_get_vector(&root, 4, 8);
        free(exact);
    }
    for (size_t at = 64; at < w.used; at++)
        for (int value = 0; value < 256; value++) {
            memcpy(&changed, &w, sizeof w);
            changed.bytes[at] = (unsigned char)value;
            refused += read_all(&changed, &sum) != NULL;
        }
    CHECK(refused > 1000);
}

int main(void) {
    good();
    lies();
    texts();
    shared();
    every_byte();
    return check_end("test_flatbuffer");
}
