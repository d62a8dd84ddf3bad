#!/usr/bin/env python3
"""Writes the seed corpora of the format fuzz targets: tests/fuzz/corpus/gguf and tests/fuzz/corpus/safetensors.

Seeds are small files, good and nearly good, that between them reach every branch of the readers; the fuzzer does the
rest. Running it again writes the same bytes. Usage: tools/make_fuzz_corpus_format.py [ROOT]
"""
import json
import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, v):
    return string(v) if kind == STRING else struct.pack("<" + PACK[kind], v)


def pair(key, kind, v):
    return string(key) + struct.pack("<I", kind) + value(kind, v)


def array(key, kind, items):
    head = string(key) + struct.pack("<IIQ", ARRAY, kind, len(items))
    return head + b"".join(value(kind, v) for v in items)


def tensor(name, dims, kind, offset):
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(pairs, tensors=(), n_data=0, version=3, alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + bytes(i % 251 for i in range(n_data))


def gguf_seeds():
    every = [pair(f"k{kind}", kind, "text" if kind == STRING else 1) for kind in (*PACK, STRING)]
    arrays = [array(f"a{kind}", kind, ["x", "", "yz"] if kind == STRING else [1, 0, 1]) for kind in (*PACK, STRING)]
    two = [tensor("w", [8, 2], 0, 0), tensor("v", [32], 2, 64)]
    split = [pair("split.no", U16, 0), pair("split.count", U16, 2), pair("split.tensors.count", I32, 1)]
    return {
        "empty": gguf([]),
        "scalars": gguf(every),
        "arrays": gguf(arrays),
        "tensors": gguf([], two, 82),
        "tensors_v2": gguf([], two, 82, version=2),
        "aligned": gguf([pair("general.alignment", U32, 64)], two, 82, alignment=64),
        "quantized": gguf([], [tensor("q4k", [256, 2], 12, 0), tensor("q6k", [256], 14, 288)], 498),
        "rank4": gguf([], [tensor("w", [1, 2, 1, 2], 1, 0)], 8),
        "overlap": gguf([], [tensor("a", [16], 0, 0), tensor("b", [8], 0, 32)], 64),
        "duplicate": gguf([pair("k", U8, 1), pair("k", U8, 2)], [tensor("w", [1], 24, 0)], 1),
        "nested": gguf([string("k") + struct.pack("<IIQIQ", ARRAY, ARRAY, 1, U8, 0)]),
        "split": gguf(split, [tensor("w", [1], 24, 0)], 1),
        "withdrawn": gguf([], [tensor("w", [256], 31, 0)], 144),
        "huge_counts": b"GGUF" + struct.pack("<IQQ", 3, 1 << 32, 1 << 60),
        "huge_string": gguf([struct.pack("<Q", 1 << 63)]),
    }


def safetensors(header, n_data=0):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(i % 251 for i in range(n_data))


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    config = {"model_type": "llama", "n": 1, "x": 1.5, "b": True, "z": None, "ints": [1, 2], "reals": [1, 0.5],
              "bools": [True], "strings": ["a", "\u00e9"], "mixed": [1, "a"], "empty": [], "o": {"p": {"q": []}}}
    return {
        "empty": safetensors({}),
        "two": safetensors({"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 2], 0, 16),
                            "b": entry("BF16", [3], 16, 22)}, 22),
        "scalar": safetensors({"s": entry("I64", [], 0, 8), "z": entry("F16", [0], 8, 8)}, 8),
        "overlap": safetensors({"a": entry("I8", [4], 0, 4), "b": entry("I8", [4], 2, 6)}, 6),
        "hole": safetensors({"a": entry("I8", [2], 0, 2), "b": entry("I8", [2], 4, 6)}, 6),
        "other_type": safetensors({"a": entry("F8_E4M3", [4], 0, 4)}, 4),
        "rank9": safetensors({"a": entry("I8", [1] * 9, 0, 1)}, 1),
        "large_dims": safetensors({"a": entry("F64", [1 << 62, 4], 0, 8)}, 8),
        "not_object": safetensors(b"[1]"),
        "duplicate": safetensors(b'{"a":{},"a":{}}'),
        "deep": safetensors(b'{"a":' + b"[" * 70 + b"]" * 70 + b"}"),
        "huge_length": struct.pack("<Q", 1 << 63) + b"{}",
        "config": json.dumps(config).encode(),
        "config_escapes": b'{"\\u0041\\n":"\\ud83d\\ude00","big":9223372036854775807,"e":-1e-300}',
    }


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    for name, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds())):
        folder = root / "tests" / "fuzz" / "corpus" / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed, data in seeds.items():
            (folder / seed).write_bytes(data)


if __name__ == "__main__":
    main()
