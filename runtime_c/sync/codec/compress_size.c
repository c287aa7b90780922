/* compress_size.c - how many bytes an encoding takes, before anything is encoded or received. */
#include "sync/codec/compress_size.h"

#include "sync/codec/compress_codec.h"

uint64_t ln_sync_topk_kept(uint64_t count, double ratio) {
    uint64_t kept = (uint64_t)(ratio * (double)count);
    if (kept > count) kept = count;
    return kept == 0 && count > 0 ? 1 : kept;
}

size_t ln_sync_encoded_bound(int encoding, uint64_t count, double ratio) {
    uint64_t blocks = count / LN_SYNC_I8_BLOCK + (count % LN_SYNC_I8_BLOCK != 0);
    uint64_t kept;
    if (count > SIZE_MAX / 8) return SIZE_MAX;
    switch (encoding) {
    case LN_SYNC_PLAIN: return (size_t)count * 4;
    case LN_SYNC_F16:
    case LN_SYNC_BF16: return (size_t)count * 2;
    case LN_SYNC_I8: return (size_t)(count + 4 * blocks);
    case LN_SYNC_TOPK:
        if (!(ratio > 0.0 && ratio <= 1.0)) return SIZE_MAX;
        /* A gap of 128 or more takes a second byte, a gap of 16384 or more a third byte, and so on. The sum of all gaps
         * is less than `count`. */
        kept = ln_sync_topk_kept(count, ratio);
        return (size_t)(10 + 3 * kept + (count / 127 < 9 * kept ? count / 127 : 9 * kept));
    case LN_SYNC_ONEBIT:
        blocks = count / LN_SYNC_ONEBIT_BLOCK + (count % LN_SYNC_ONEBIT_BLOCK != 0);
        return (size_t)(8 * blocks + (count / 32 + (count % 32 != 0)) * 4);
    default: return SIZE_MAX;
    }
}

bool ln_sync_encoded_fits(int encoding, uint64_t count, uint64_t bytes) {
    size_t bound = ln_sync_encoded_bound(encoding, count, 1.0);
    if (bound == SIZE_MAX) return false;
    return encoding == LN_SYNC_TOPK ? bytes > 0 && bytes <= bound : bytes == bound;
}
