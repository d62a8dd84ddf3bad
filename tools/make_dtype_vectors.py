#!/usr/bin/env python3
"""Writes tests/data/dtype_vectors.bin: random blocks of every element type and what the `gguf` package decodes from them.

Needs numpy and gguf; the tests need only the file. Layout, little-endian, one record per type up to the end of file:
  name       8 bytes, NUL-padded
  n_elements u32
  n_bytes    u32
  n_bytes    encoded blocks
  n_elements float32 values
Every byte is random; a third of the f16 scale fields are replaced by zero, subnormals, largest values and infinities.
Usage: make_dtype_vectors.py [OUTPUT]
"""
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

# name: offsets of f16 fields in a block
BLOCK_TYPES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "F16": [0], "BF16": [],
}
PLAIN_TYPES = {"F32": "<f4", "F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "<u1"}
ODD_HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x3C00]


def blocks_of(name, rng):
    elements, n_bytes = GGML_QUANT_SIZES[Type[name]]
    n = 5 if elements == 256 else 12 if elements == 32 else 256
    blocks = rng.integers(0, 256, (n, n_bytes), dtype=np.uint8)
    for offset in BLOCK_TYPES[name]:
        for i in range(n):
            half = rng.choice(ODD_HALVES) if i % 3 == 2 else np.float16(rng.normal() * 0.05).view(np.uint16)
            blocks[i, offset : offset + 2] = [int(half) & 255, int(half) >> 8]
    if name == "MXFP4":
        blocks[:8, 0] = [0, 1, 2, 127, 128, 253, 254, 255]
    return blocks, n * elements


def main():
    rng = np.random.default_rng(20)
    with open(sys.argv[1] if len(sys.argv) > 1 else "tests/data/dtype_vectors.bin", "wb") as out:

        def record(name, data, values):
            out.write(struct.pack("<8sII", name.encode(), len(values), len(data)))
            out.write(data + values.astype("<f4").tobytes())

        for name in BLOCK_TYPES:
            blocks, n_elements = blocks_of(name, rng)
            with np.errstate(all="ignore"):
                values = dequantize(blocks.reshape(-1), Type[name]).astype(np.float32).reshape(-1)
            assert len(values) == n_elements
            record(name, blocks.tobytes(), values)
        for name, numpy_type in PLAIN_TYPES.items():
            data = rng.bytes(64 * np.dtype(numpy_type).itemsize)
            with np.errstate(all="ignore"):
                record(name, data, np.frombuffer(data, numpy_type).astype(np.float32))


main()
