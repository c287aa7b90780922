"""Changes a file's bytes without knowledge of its format: flips bits, writes extreme words, truncates, splices.
mutate_onnx.py and mutate_tflite.py change single fields and get deeper; this one finds faults in the parsing of bytes."""

from __future__ import annotations

import random
import struct

WORDS = (0, 1, -1, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 0x10000, 2**31 - 1, -(2**31), 2**24, 5, 13, 32)


def mutated(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Makes one to six changes; `other` is a file of the same format, from which parts are taken."""
    if rng.random() < 0.01:
        return bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 8, 16, 64])))
    data = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        if not data:
            break
        at = rng.randrange(len(data))
        kind = rng.randrange(9)
        if kind <= 1:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[at] = rng.randrange(256)
        elif kind == 3 and len(data) >= 4:
            struct.pack_into("<i", data, min(at & ~3, len(data) - 4), rng.choice(WORDS))
        elif kind == 4 and len(data) >= 8:
            struct.pack_into("<q", data, min(at & ~7, len(data) - 8), rng.choice((*WORDS, 2**40, 2**62, -(2**63))))
        elif kind == 5 and rng.random() < 0.4:
            del data[at:]
        elif kind == 6:
            del data[at : at + rng.choice([1, 2, 4, 8, 64])]
        elif kind == 7:
            start = rng.randrange(len(data))
            data[at:at] = data[start : start + rng.choice([1, 4, 16, 64])]
        elif kind == 8 and other:
            start = rng.randrange(len(other))
            part = other[start : start + rng.choice([4, 16, 64, 256])]
            data[at : at + (len(part) if rng.random() < 0.5 else 0)] = part
    return bytes(data)
