/* gemm_tiles.c - chooses the tile of a product and how many blocks share a sum (kernels_gpu/cuda/gemm.h). */
#include "kernels_gpu/cuda/gemm_tiles.h"

/* If several tiles cost the same, the first one is taken. */
static const lg_tile tiles[] = {
    {128, 256, 128, 8, 1, 4, LG_BY_COPIES, 1}, {128, 128, 128, 8, 1, 6, LG_BY_COPIES, 1},
    {128, 256, 128, 8, 1, 4, LG_BY_GROUPS, 1}, {128, 128, 128, 8, 1, 4, LG_BY_GROUPS, 1},
    {128, 64, 128, 8, 1, 4, LG_BY_GROUPS, 2},  {64, 128, 128, 4, 1, 4, LG_BY_GROUPS, 2},
    {64, 64, 128, 4, 1, 4, LG_BY_GROUPS, 3},   {128, 128, 64, 2, 2, 4, LG_BY_WARPS, 2},
    {64, 128, 64, 2, 2, 4, LG_BY_WARPS, 3},    {128, 64, 64, 2, 2, 4, LG_BY_WARPS, 3},
    {64, 64, 64, 2, 2, 4, LG_BY_WARPS, 4},     {32, 64, 128, 2, 2, 3, LG_BY_WARPS, 4},
    {64, 32, 128, 4, 1, 3, LG_BY_WARPS, 4},    {128, 128, 64, 2, 4, 3, LG_BY_ADDING, 2},
    {64, 64, 64, 1, 2, 4, LG_BY_ADDING, 3},    {64, 32, 64, 1, 1, 4, LG_BY_ADDING, 4},
};

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

size_t lg_gemm_shared(const lg_tile *t, bool cluster) {
    if (t->math == LG_BY_COPIES) return (size_t)(t->stages * ((t->tm + t->tn) * t->tk + 16) + 8 * 16 * 40 * 4 + 1024);
    const int wn = t->tn / t->warps_n, slab = t->math == LG_BY_ADDING ? 8 : 16;
    const int ring = t->stages * (t->tm + t->tn) * t->tk;
    const int stage = (cluster ? t->tm * (t->tn + 8) : t->warps_m * t->warps_n * slab * (wn + 8)) * 4;
    return (size_t)((ring > stage ? ring : stage) + (t->math == LG_BY_GROUPS ? 1024 : 0));
}

/* Returns the modelled cycles of a multiprocessor, which runs several blocks at a time. `rates` are products per cycle
 * (bytes of A times columns of B), and 25 is the bytes that it loads per cycle. The numbers are fitted to the
 * convolutions of ResNet-50 with 1 and 32 images at four dtypes on an H200. The chosen tiles take 3 to 7 % more time
 * than the best tiles. */
static double cost_of(const lg_gemm *g, const lg_machine *machine, const lg_tile *t, int split, bool cluster) {
    static const double rates[] = {490, 940, 1250, 1450};
    /* tf32 is slower, because operands are rounded first. Of the tiles of multiply-adds, 64x64 has the best ratio of
     * registers and loads. */
    double slower = g->kind == LG_KIND_TF32 ? 0.73 : 1;
    if (t->math == LG_BY_ADDING && (t->tm != 64 || t->tn != 64)) slower = 0.88;
    const double deep = (double)g->depth * g->size, steps = up(up((int64_t)deep, t->tk), split);
    const double blocks = (double)(up(g->m, t->tm) * up(g->n, t->tn) * g->z) * split;
    double resident = (double)(machine->shared_bytes + 1024) / (double)(lg_gemm_shared(t, cluster) + 1024);
    if (resident > t->blocks) resident = t->blocks;
    if (resident < 1) resident = 1;
    if (resident > blocks / machine->units) resident = blocks > machine->units ? blocks / machine->units : 1;
    const double gathers = (g->a_load == LG_LOAD_CHUNKS ? 1 : 4) * t->tm +
                           (g->b_load == LG_LOAD_CHUNKS || g->b_load == LG_LOAD_TURNED ? 1 : 4) * t->tn;
    const double computing = (double)t->tm * t->tn * t->tk / (rates[t->math] * slower);
    const double loading = gathers * t->tk / 25;
    /* The latency of a load is divided among the steps that are loaded ahead. */
    const double waiting = 1800.0 / (t->stages - 1);
    double step = resident * (computing > loading ? computing : loading);
    if (step < waiting) step = waiting;
    /* The last wave is not full, but each of its blocks gets a larger share of the machine. */
    double waves = blocks / (machine->units * resident);
    const double part = waves - (double)(int64_t)waves;
    waves = waves <= 1 ? 1 : waves + (part > 0 ? 0.5 * (1 - part) : 0);
    const double ends = 1650 + 0.5 * t->tm * t->tn + (split == 1 ? 0 : cluster ? 2700 : 8000);
    return waves * (step * steps + ends);
}

static bool fits(const lg_gemm *g, const lg_machine *machine, const lg_tile *t, int split, bool cluster) {
    if (t->math == LG_BY_COPIES && (machine->compute != 90 || !g->dense || g->row_sums || split > 1)) return false;
    if (g->b_load == LG_LOAD_TURNED && t->math != LG_BY_WARPS) return false;
    if ((g->kind == 0) != (t->math == LG_BY_ADDING)) return false;
    if (t->math == LG_BY_GROUPS && (machine->compute != 90 || g->row_sums)) return false;
    if (lg_gemm_shared(t, cluster) > machine->shared_bytes) return false;
    const int64_t steps = up(g->depth * g->size, t->tk);
    if (g->kind == LG_KIND_TF32 && t->math >= LG_BY_GROUPS && !g->packs && !g->turns)
        return false; /* these tiles need a rounded B, and only packing or gemm_turn.inc rounds it */
    if (split > 1 && (steps < 2 * split || up(steps, split) * (split - 1) >= steps))
        return false; /* every part must have steps */
    if (split > 1 && g->z * split > 65535) return false;
    /* With more blocks, the machine is full without splitting, and such splits were not measured. */
    if (split > 1 && up(g->m, t->tm) * up(g->n, t->tn) * g->z * split > 4 * machine->units) return false;
    return split == 1 || !cluster || t->tm * t->tn <= 128 * 64;
}

bool lg_gemm_choose(lg_gemm *g, const lg_machine *machine) {
    double best = -1;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i)
        for (int split = 1; split <= 8; split *= 2) {
            const bool cluster = split > 1 && machine->compute == 90;
            if (!fits(g, machine, &tiles[i], split, cluster)) continue;
            const double cost = cost_of(g, machine, &tiles[i], split, cluster);
            if (best >= 0 && cost >= best) continue;
            best = cost;
            g->tile = tiles[i], g->split = split, g->cluster = cluster;
        }
    return best >= 0;
}
