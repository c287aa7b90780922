/* reduce_i32.inc.c - sums of i32, which wrap around. Included by reduce.inc.c.
 * Integer products with zero points that are known only in a run need the sums of rows and columns of their factors. */

/* Sums `width` neighbouring results. Without columns, width is 1, and the innermost reduced dim may have any stride. */
static void LN_SIMD_NAME(reduce_i32)(const ln_reduce_plan *p, const int32_t *x, int64_t width, int32_t *y) {
    int64_t at[LN_MAX_RANK] = {0};
    const int last = p->reduced - 1;
    const int64_t rows = p->reduced_dims[last], step = p->reduced_x[last];
    int32_t sums[LN_REDUCE_COLUMNS] = {0}, lanes[VF_WIDTH];
    vi acc = vi_zero();
    for (int64_t done = 0; done < p->count; done += rows) {
        int64_t r = 0;
        if (!p->columns && step == 1)
            for (; r + VF_WIDTH <= rows; r += VF_WIDTH) acc = vi_add(acc, vi_load(x + r));
        for (; r < rows; r++) {
            const int32_t *row = x + r * step;
            int64_t i = 0;
            for (; i + VF_WIDTH <= width; i += VF_WIDTH)
                vi_store(sums + i, vi_add(vi_load(sums + i), vi_load(row + i)));
            for (; i < width; i++) sums[i] = (int32_t)((uint32_t)sums[i] + (uint32_t)row[i]);
        }
        x += LN_SIMD_NAME(reduce_next)(p, last, at, 0);
    }
    vi_store(lanes, acc);
    for (int i = 0; i < VF_WIDTH; i++) sums[0] = (int32_t)((uint32_t)sums[0] + (uint32_t)lanes[i]);
    for (int64_t i = 0; i < width; i++) y[i * p->inner_y] = sums[i];
}
