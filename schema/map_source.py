"""The texts of the emitter of map programs (runtime_c/map/map_source.c), for schema/generate.py.
Expressions come from runtime_c/map/map_table.h, functions from where the interpreters have them, so the results cannot differ."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

RUNTIME = Path(__file__).resolve().parent.parent / "runtime_c"
REGISTERS = {"f": 1, "d": 4, "i": 7, "l": 8}  # numbers of linnet_dtype
# Functions that are not in math.h: {file: {name there: name in the emitted text}}.
OTHERS = {
    "base/types.c": {
        "ln_f16_to_f32": "", "ln_f32_to_f16": "", "ln_bf16_to_f32": "", "ln_f32_to_bf16": "", "clamp": "ln_clamp_l",
        "round_to_odd": "ln_d_to_odd", "integer_to_odd": "ln_l_to_odd", "truncate_to_u64": "ln_d_to_u64",
    },
    "simd/simd_scalar.h": {"ln_scalar_clamp": "ln_clamp_i"},
    "kernel/common/requant.h": {"ln_fixed_multiply_wide": ""},
}  # fmt: skip
WORDS = {
    **{f"{sign}int{bits}_t": f"ln_{sign or 'i'}{bits}" for sign in ("u", "") for bits in (8, 16, 32, 64)},
    "INFINITY": "ln_inf", "NAN": "ln_nan", "LN_TRIG_LIMIT": "1048576.0f", "INT32_MAX": "2147483647",
    "half": "halved", "INT32_MIN": "(-2147483647-1)", "INT64_MAX": "0x7fffffffffffffff", "INT64_MIN": "(-0x7fffffffffffffff-1)",
    "UINT64_MAX": "0xffffffffffffffffu", "float_of_bits": "ln_from_bits_f", "bits_of_float": "ln_bits_f",
    "ln_clamp_i32": "ln_clamp_l",
    **{theirs: ours for names in OTHERS.values() for theirs, ours in names.items() if ours},
}  # fmt: skip
# Functions of f32 for which a target may have its own: linnet computes them in f64.
OWN = (
    "log", "log1p", "expm1", "sinh", "cosh", "asinh", "acosh", "atanh", "pow", "sin", "cos", "tan",
    "asin", "acos", "atan", "atan2",
)  # fmt: skip
# Words that occur often, the longest first. In the texts a byte of CODES is one of them, bytes 1 and 2 are the operands of a
# row, and byte 128 + i is the name of function i. Words may contain shorter words.
SHORT = (
    "(ln_i32 a,ln_i32 b){", "(ln_i64 a,ln_i64 b){", "9223372036854775808", "1.5707963267948966", ";return x==x?y:0;}",
    "return(ln_u16)", "5539944105574", ";p=p*v+-0x1.", "(double x){", "92233720368", "96326794896", ";p=p*r+0x1.",
    ";p=p*v+0x1.", "(float x){", "8388608.0f", "multiplier", "(ln_i32)(", ");return ", "*quadrant", "214748364",
    "magnitude", "(double)", "(ln_i64)", "(ln_u32)", "(ln_u64)", "exponent", "f;p=p*u+", "f;q=q*z+", "mantissa", "negative",
    "(float)", "double ", "ln_i32 ", "ln_u32 ", "product", "return ", "ln_inf", "double", "ffffff", "float ", "ln_i32",
    "ln_i64", "ln_u64", "return", "55555", ";p=p*", "bool ", "right", "scale", "shift", "value", "0000", "0x1.", "bits",
    "half", "high", "(x)", ");}", ".0f", "if(", "ln_", ");", "){", ".0", "0x", "55", ";}", "==", ">>", "ff", "ig", "p-",
)  # fmt: skip
FIRST_FUNCTION, MOST_FUNCTIONS = 128, 110
CODES = [*range(3, 10), *range(11, 32), *range(ord("A"), ord("Z") + 1), *range(FIRST_FUNCTION + MOST_FUNCTIONS, 256)]
_HEAD = re.compile(r"^(?:static )?(?:inline )?((?:float|double|bool|u?int\d+_t) (\w+)\([^)]*\)) \{", re.MULTILINE)
_ROW = re.compile(r"^(?:RARE_)?(UNARY|BINARY|TRIG)\((\w+), (\w+), (\w+)(?:, (.*))?\)$", re.MULTILINE)
_IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*")


def compact(text: str) -> str:
    """Without comments and spaces that C does not need, and with the names of the emitted text."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).replace("static const ", "const ")
    text = _IDENTIFIER.sub(lambda word: WORDS.get(word.group(), word.group()), text)
    return re.sub(r"(?<=[^\w-]) | (?=[^\w-])|(?<=[^-]) (?=-)|(?<=-) (?=[^-])", "", re.sub(r"\s+", " ", text)).strip()


def functions() -> dict[str, str]:
    """{name: text} of every function that an expression may call; each is after those that it calls."""
    found: dict[str, str] = {}
    for file in ("simd/math.h", *OTHERS):
        text = (RUNTIME / file).read_text()
        for head in _HEAD.finditer(text):
            name, end = head[2], head.end()
            if file in OTHERS and name not in OTHERS[file]:
                continue
            while text[head.end() - 1 : end].count("{") != text[head.end() - 1 : end].count("}"):
                end += 1
            found[WORDS.get(name, name)] = compact(f"{head[1]}{text[head.end() - 1 : end]}")
    return found


def rows(opcodes: dict[str, dict[str, Any]]) -> list[tuple[int, int, str]]:
    """(opcode, register type, expression) of every line of map_table.h; the operands are bytes 1 and 2."""
    made = []
    for kind, opcode, second, _, expression in _ROW.findall((RUNTIME / "map" / "map_table.h").read_text()):
        text = f"{second}(a)" if kind == "TRIG" else expression
        # Both sides of an "or" are computed: with a branch, GPUs would not load the operands of several elements at once.
        text = re.sub(r"^([^?]*)\|\|([^?]*)\?", r"((\1)|(\2))?", text)
        text = re.sub(r"\b[ab]\b", lambda word: "\1" if word.group() == "a" else "\2", compact(text))
        made.append((opcodes[opcode.lower()]["id"], REGISTERS["f" if kind == "TRIG" else second], text))
    return made


def _literal(text: str) -> str:
    """A C string of the text."""
    return '"' + "".join(c if 31 < ord(c) < 127 and c not in '"\\' else f"\\{ord(c):03o}" for c in text) + '\\0"'


def map_source(opcodes: dict[str, dict[str, Any]], note: str) -> str:
    """runtime_c/generated/map_source.inc."""
    called, lines = functions(), rows(opcodes)
    numbers = {name: chr(FIRST_FUNCTION + i) for i, name in enumerate(called)}
    if len(called) > MOST_FUNCTIONS:
        raise SystemExit(
            f"schema/map_source.py: there are bytes for at most {MOST_FUNCTIONS} functions, got {len(called)}"
        )

    def short(text: str, longest: int = 99) -> str:
        text = re.sub(r"\bln_\w+", lambda word: numbers.get(word.group(), word.group()), text)
        if re.search(r"[A-Z]", text):
            raise SystemExit(f"schema/map_source.py: capitals are codes, so a text must not contain them: {text}")
        for code, word in zip(CODES, SHORT, strict=True):
            if len(word) <= longest:
                text = text.replace(word, chr(code))
        return text

    out = [
        f"/* {note} */",
        "/* Texts for map/map_source.c, shortened as schema/map_source.py says: words, names of functions without their ln_,",
        " * functions (the first byte is 1 if the target may use its own), and rows: opcode, register type, expression. */",
        "static const char source_words[] =",
        *[f"    {_literal(short(word, len(word) - 1))}" for word in SHORT],
        "    ;",
        "static const char source_names[] =",
        *[f"    {_literal(name.removeprefix('ln_'))}" for name in called],
        "    ;",
        "static const char source_functions[] =",
    ]
    for name, text in called.items():
        own = name.removeprefix("ln_").removesuffix("_f") in OWN and name.endswith("_f")
        out.append(f"    {_literal(chr(1) * own + short(text))}")
    out += ["    ;", "static const char source_rows[] ="]
    out += [f"    {_literal(chr(opcode) + chr(kind) + short(text))}" for opcode, kind, text in lines]
    return "\n".join([*out, "    ;", ""])
