#!/usr/bin/env python3
"""Writes the seed corpora of the ML program fuzz targets: tests/fuzz/corpus/mil_spec, mil_text, mil_blob.

The models of tests/data/mil, whole and in parts, and small oddities; the fuzzer does the rest. Running it again writes
the same bytes. Usage: tools/make_fuzz_corpus_mil.py [ROOT]
"""
import pathlib
import struct
import sys

from make_mil_packages import MODELS
from mil_writer import (Block, Function, Op, State, Tensor, Value, Weights, array, coremldata, data, description, feature,
                        image, model, program_proto, program_text, scalar, uint, vector)


def with_weights(weights, rest):
    b = weights[0].bytes() if weights else b""
    return struct.pack("<H", len(b)) + b + (rest.encode() if isinstance(rest, str) else rest)


def one_op(op, opset="CoreML7"):
    return Function("main", opset, [("x", Tensor("fp32", 2))], [op], ["y"])


def small():
    """name -> (version, description, functions, weights)"""
    io = description([feature("x", array("fp32", (2,)))], [feature("y", array("fp32", (2,)))])
    out = [("y", Tensor("fp32", 2))]
    w = Weights()
    blob = w.value("uint3", (11,), [1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3])
    shared = w.value("fp16", (2,), [0.5, 1.5])
    nested = Op("cond", out, {"pred": scalar("bool", True)}, blocks=[Block([Op("relu", [("a", Tensor("fp32", 2))], {"x": "x"})], ["a"]),
                                                                   Block([], ["x"])])
    images = description([feature("x", image(2, 3, "gray16"))], [])
    return {
        "relu": (8, io, [one_op(Op("relu", out, {"x": "x"}))], []),
        "blobs": (9, io, [one_op(Op("op", out, {"a": blob, "b": [shared, "x", shared]}, name=""), "CoreML8")], [w]),
        "nested": (8, io, [one_op(nested)], []),
        "image": (7, images, [Function("main", "CoreML6", [("x", Tensor("fp16", 1, 1, 3, 2))], [], ["x"])], []),
        "state": (10, description([], [], []), [Function("main", "CoreML9", [], [Op("op", [], {"v": vector("int64", [-1])})], [])], []),
        "ranges": (8, description([feature("x", array("fp32", ranges=[(0, -1)]), True)], []),
                   [Function("main", "CoreML7", [("x", Tensor("fp32", None))], [], [])], []),
        "bad_state": (9, description([], []), [Function("main", "CoreML8", [("s", State(Tensor("fp16", 2)))], [
            Op("write_state", [], {"input": "s", "data": Value(Tensor("fp16", 1), [1.0])})], [])], []),
    }


def seeds():
    spec, text, blob = {}, {}, {}
    every = {name: make()[:4] for name, make in MODELS.items()}
    every.update(small())
    for name, (version, d, functions, weights) in every.items():
        spec[name] = with_weights(weights, model(version, d, program_proto(functions)))
        for old in (True, False):
            text[f"{name}_{'old' if old else 'new'}"] = with_weights(weights, program_text(functions, old))
        if weights:
            blob[name] = weights[0].bytes()
        if name in MODELS:
            blob[f"{name}_description"] = coremldata(version, d, len(functions))
    spec["pipeline"] = with_weights([], uint(1, 7) + data(202, data(1, data(500, b"")) + data(1, data(502, b""))))
    y, z = feature("y", array("fp16", (2,))), feature("z", array("fp16", (2,)))
    half = Tensor("fp16", 2)
    second = Function("main", "CoreML8", [("y", half)], [Op("relu", [("z", half)], {"x": "y"})], ["z"])
    models = data(1, spec["relu"][2:]) + data(1, model(9, description([y], [z]), program_proto([second])))
    spec["joined"] = with_weights([], uint(1, 9) + data(2, description([feature("x", array("fp32", (2,)))], [z])) + data(202, models))
    spec["network"] = with_weights([], uint(1, 4) + data(500, b"\x0a\x00"))
    text["numbers"] = with_weights([], "program(1.3){func f<ios18>(){o(a=tensor<fp32,[3]>([0x1.8p-3,-inf,1.5e3]),b=list<int32,?>"
                                       "([0x7f,-1]),c=dict<string,bool>({{\"k\\\"\",true}}),d=(),e=tuple<fp16>((fp16(nan))));}->();}")
    return {"mil_spec": spec, "mil_text": text, "mil_blob": blob}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    for topic, files in seeds().items():
        folder = root / "tests/fuzz/corpus" / topic
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
