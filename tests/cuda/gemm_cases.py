"""The texts of kernels_gpu/cuda/gemm.inc for tests and benchmarks that have no linnet: what kernels_gpu/cuda/gemm.c defines,
with stores that only convert. Each case is one kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CUDA = ROOT / "kernels_gpu" / "cuda"
COMMON = ROOT / "kernels_gpu" / "common"

PRELUDE = """#define LG_AXIS_0 x
#define LG_AXIS_1 y
#define LG_AXIS_2 z
typedef signed char ln_i8; typedef unsigned char ln_u8; typedef short ln_i16; typedef unsigned short ln_u16;
typedef int ln_i32; typedef unsigned ln_u32; typedef long long ln_i64; typedef unsigned long long ln_u64;
static __device__ __forceinline__ ln_u32 ln_bits(float v) { union { float f; ln_u32 u; } b; b.f = v; return b.u; }
static __device__ __forceinline__ ln_u16 ln_f32_to_bf16(float v) {
    const ln_u32 u = ln_bits(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (ln_u16)(u >> 16 | 64);
    return (ln_u16)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
#ifdef __CUDACC__
static __device__ __forceinline__ float ln_f16_to_f32(ln_u16 h) {
    float f;
    asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"(h));
    return f;
}
static __device__ __forceinline__ ln_u16 ln_f32_to_f16(float f) {
    ln_u16 h;
    asm("cvt.rn.f16.f32 %0,%1;" : "=h"(h) : "f"(f));
    return h;
}
#else
static float ln_f16_to_f32(ln_u16 v) { return lg_cpu_f16_to_f32(v); }
static ln_u16 ln_f32_to_f16(float v) { return lg_cpu_f32_to_f16(v); }
#endif
"""

KINDS = {"f32": 0, "f16": 1, "bf16": 2, "tf32": 3, "s8": 4, "u8s8": 5, "s8u8": 6, "u8": 7}
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8s8": 1, "s8u8": 1, "u8": 1}
LOADS = {"chunks": 0, "words": 1, "gather": 2}


@dataclass(frozen=True)
class Tile:
    """How a block divides its work."""

    tm: int
    tn: int
    tk: int
    warps_m: int
    warps_n: int
    stages: int
    math: int  # 0: multiply-adds; 1: mma; 2: wgmma; 3: wgmma that the copy engine feeds
    blocks: int = 1

    @property
    def threads(self) -> int:
        return self.warps_m * self.warps_n * 32 + 128 * (self.math == 3)

    @property
    def name(self) -> str:
        way = ("ffma", "mma", "wgmma", "tma")[self.math]
        return f"{way}_{self.tm}x{self.tn}x{self.tk}_{self.warps_m}{self.warps_n}_{self.stages}"

    def shared(self, cluster: bool) -> int:
        if self.math == 3:
            return self.stages * (self.tm + self.tn) * self.tk + 8 * 16 * 40 * 4 + 16 * self.stages + 1024
        wn, slab = self.tn // self.warps_n, 8 if self.math == 0 else 16
        ring = self.stages * (self.tm + self.tn) * self.tk
        stage = self.tm * (self.tn + 8) * 4 if cluster else self.threads // 32 * slab * (wn + 8) * 4
        return max(ring, stage) + (1024 if self.math == 2 else 0)


@dataclass(frozen=True)
class Case:
    """One kernel: dtypes, tile, loads."""

    dtype: str
    tile: Tile
    a_load: str = "chunks"
    b_load: str = "chunks"
    conv: bool = False
    split: int = 1
    cluster: bool = False
    first: bool = False  # channels of y come first
    fill: bool = False
    zeros: bool = False  # zero points of weights
    raw: bool = True  # integers: y is the 32-bit sum; else the low 8 bits
    sum_only: bool = False

    @property
    def name(self) -> str:
        parts = [self.dtype, self.tile.name, self.a_load[0] + self.b_load[0]]
        parts += ["conv"] * self.conv + [f"split{self.split}"] * (self.split > 1) + ["cluster"] * self.cluster
        parts += ["first"] * self.first + ["fill"] * self.fill + ["zeros"] * self.zeros + ["sum"] * self.sum_only
        return "_".join(parts)

    @property
    def kernel(self) -> str:
        return "lg_gemm_sum" if self.sum_only else "lg_gemm_tma" if self.tile.math == 3 else "lg_gemm"

    @property
    def adding(self) -> Case:
        """The kernel that adds the parts."""
        return replace(self, sum_only=True)


def _operand(name: str, word: str, ctype: str) -> str:
    text = f"#define {name}_T {ctype}\n#define {name}_GET(p,i) LG_GET_{word}(p,i)\n"
    return text + f"#define {name}_PUT(p,i,v) LG_PUT_{word}(p,i,v)\n"


def source(case: Case) -> str:
    """The text of the case, behind the prelude and the dialect. Numbers: lg_n0 the table's place, lg_n1 the place of the
    zero points of columns, lg_n2 that of their terms, lg_n3 X_ZERO."""
    tile = case.tile
    floats = case.dtype in ("f32", "tf32", "f16", "bf16")
    words = {
        "f32": "f32",
        "tf32": "f32",
        "f16": "f16",
        "bf16": "bf16",
        "s8": "i8",
        "u8": "u8",
        "u8s8": "u8",
        "s8u8": "i8",
    }
    types = {"f32": "float", "f16": "ln_u16", "bf16": "ln_u16", "i8": "ln_i8", "u8": "ln_u8", "i32": "ln_i32"}
    x_word = words[case.dtype]
    w_word = {"u8s8": "i8", "s8u8": "u8"}.get(case.dtype, x_word)
    y_word = x_word if floats else "i32"
    out = _operand("X", x_word, types[x_word]) + _operand("W", w_word, types[w_word])
    out += _operand("B", x_word if floats else "i32", types[x_word if floats else "i32"])
    out += _operand("Y", y_word, types[y_word])
    numbers = {
        "FLOATS": int(floats), "BIAS": 1, "WIDE": 0, "KIND": KINDS[case.dtype], "SIZE": BYTES[case.dtype],
        "TM": tile.tm, "TN": tile.tn, "TK": tile.tk, "WARPS_M": tile.warps_m, "WARPS_N": tile.warps_n,
        "STAGES": tile.stages, "MATH": min(tile.math, 2), "BLOCKS": tile.blocks, "A_LOAD": LOADS[case.a_load],
        "B_LOAD": LOADS[case.b_load], "CONV": int(case.conv), "SPLIT": case.split, "CLUSTER": int(case.cluster),
        "FILL": int(case.fill), "ROW_SUMS": int(case.zeros),
    }  # fmt: skip
    out += "".join(f"#define {name} {value}\n" for name, value in numbers.items())
    out += "#define LG_EXTRAS ,const int lg_n0,const int lg_n1,const int lg_n2,const int lg_n3,LG_GLOBAL const char *lg_packed\n"
    out += "#define TABLE lg_n0\n#define X_ZERO " + ("0" if floats else "lg_n3") + "\n"
    out += (
        "#define W_ZERO(c) ((LG_GLOBAL const int *)(lg_packed+lg_n1))[c]\n" if case.zeros else "#define W_ZERO(c) 0\n"
    )
    out += "#define COLUMN_TERM(c) " + ("0" if floats else "((LG_GLOBAL const int *)(lg_packed+lg_n2))[c]") + "\n"
    out += (
        "#define A_OFFSET(z) ((z)*m*depth)\n#define B_BASE b\n#define B_OFFSET(z) ((z)*n*depth)\n#define CHANNEL(z) 0\n"
    )
    if case.conv:
        out = out.replace("((z)*m*depth)", "0").replace("((z)*n*depth)", "0")
    out += "#define BIAS_AT(c) (c)\n"
    if case.first:
        out += "#define PLACE(z,row) ((row)/pixels*n*pixels+(row)%pixels)\n#define Y_STEP pixels\n"
    else:
        out += "#define PLACE(z,row) (((z)*m+(row))*n)\n#define Y_STEP 1\n"
    out += f"#define LG_STORE(value,at,channel) LG_PUT_{y_word}(y,at,value)\n"
    out += (COMMON / "product.inc").read_text() + (CUDA / "mma.inc").read_text()
    if tile.math >= 2 and not case.sum_only:
        out += (CUDA / "wgmma.inc").read_text()
    out += (CUDA / "gemm_parts.inc").read_text()
    return out + (CUDA / f"{case.kernel.removeprefix('lg_')}.inc").read_text()


def text(case: Case) -> str:
    """The whole text that a compiler gets."""
    return PRELUDE + (CUDA / "dialect.inc").read_text() + source(case)


M128 = Tile(128, 128, 64, 2, 4, 4, 1)
M128W = Tile(128, 128, 64, 2, 2, 4, 1, 2)
M64 = Tile(64, 64, 64, 2, 2, 4, 1, 4)
M64N128 = Tile(64, 128, 64, 2, 2, 4, 1, 3)
M128N64 = Tile(128, 64, 64, 2, 2, 4, 1, 3)
M32 = Tile(32, 64, 128, 2, 2, 3, 1, 4)
M64N32 = Tile(64, 32, 128, 4, 1, 3, 1, 4)
G128 = Tile(128, 128, 128, 8, 1, 4, 2)
G256 = Tile(128, 256, 128, 8, 1, 4, 2)
G64N128 = Tile(64, 128, 128, 4, 1, 4, 2)
G64 = Tile(64, 64, 128, 4, 1, 4, 2, 2)
G128N64 = Tile(128, 64, 128, 8, 1, 4, 2)
T256 = Tile(128, 256, 128, 8, 1, 4, 3)
T128 = Tile(128, 128, 128, 8, 1, 6, 3)
F128 = Tile(128, 128, 64, 2, 4, 3, 0, 2)
F64 = Tile(64, 64, 64, 1, 2, 4, 0, 3)
F32 = Tile(64, 32, 64, 1, 1, 4, 0, 4)
