#!/usr/bin/env python3
"""Writes tests/data/mil: three small models, each as a package and compiled, that between them use every part of the
formats that the readers know. Running it again writes the same bytes. Usage: tools/make_mil_packages.py [ROOT]

  old     CoreML6: constexpr parameters as attributes, garbage in the reserved words of the weight file, an fp16 output,
          an image, an optional input with a default; compiled in the old dialect
  cache   CoreML8: functions chunk and step, a state, int4 blocks, 1 to 6 bit palettes and values, two weight files,
          enumerated shapes in two inputs, a model file of another name
  flow    CoreML7: cond, while_loop, lists, a classifier with string labels, a range of shapes, every inline element
          type, awkward strings, a scalar output
"""
import pathlib
import sys

from mil_writer import (Block, Dict, Function, List, Op, State, Tensor, Value, Weights, array, const, coremldata,
                        description, feature, functions_description, image, model, program_proto, program_text, scalar,
                        state, vector, write_compiled, write_package)

GARBAGE = 5104411984  # a heap pointer, as seen in real files


def old():
    w = Weights()
    quantized = Op("constexpr_affine_dequantize", [("weight", Tensor("fp16", 2, 3))], attrs={
        "quantized_data": w.value("int8", (2, 3), [1, -2, 3, -4, 5, -6], GARBAGE),
        "scale": Value(Tensor("fp16", 2), [0.5, 0.25]), "zero_point": vector("int8", [0, 1]), "axis": scalar("int32", 0)})
    palette = Op("constexpr_lut_to_dense", [("bias", Tensor("fp16", 2))], attrs={
        "indices": vector("uint8", [0b0010]), "lut": vector("fp16", [0.0, 1.0, -1.5, 65504.0]), "shape": vector("uint32", [2])})
    ops = [quantized, palette,
           const("keep", scalar("bool", False)), const("half", scalar("fp16", 0.5)),
           Op("reduce_mean", [("mean", Tensor("fp32", 1, 3))], {"x": "picture", "axes": vector("int32", [2, 3]), "keep_dims": "keep"}),
           const("to", scalar("string", "fp16")),
           Op("cast", [("mean_half", Tensor("fp16", 1, 3))], {"x": "mean", "dtype": "to"}, name="cast_3"),
           Op("add", [("sum", Tensor("fp16", 1, 3))], {"x": "mean_half", "y": "extra"}),
           Op("mul", [("scaled", Tensor("fp16", 1, 3))], {"x": "sum", "y": "half"}),
           Op("linear", [("y", Tensor("fp16", 1, 2))], {"x": "scaled", "weight": "weight", "bias": "bias"})]
    main = Function("main", "CoreML6", [("picture", Tensor("fp32", 1, 3, 4, 5)), ("extra", Tensor("fp16", 1, 3))], ops, ["y"])
    d = description([feature("picture", image(5, 4, "bgr")), feature("extra", array("fp16", (1, 3), default=0.25), True)],
                    [feature("y", array("fp16", (1, 2)))],
                    metadata={"description": "A small model.", "version": "2", "author": "somebody", "license": "none",
                              "user": {"com.github.apple.coremltools.version": "9.0", "empty": ""}})
    return 7, d, [main], [w], True, "model.mlmodel"


def cache():
    w, other = Weights(), Weights("weights/more/other.bin")
    cache_type = Tensor("fp16", 1, 2, 8)
    data_ = w.value("int4", (2, 4), [-8, 7, -1, 3, 5, 0, 1, 2])
    scale = w.value("fp16", (2, 2), [0.5, 0.25, 2.0, 1.0])
    luts = [("uint1", 2), ("uint2", 4), ("uint3", 8), ("uint4", 16), ("uint6", 64)]

    def function(name, n):
        ops = [Op("constexpr_blockwise_shift_scale", [("weight", Tensor("fp16", 2, 4))], {"data": data_, "scale": scale})]
        for dtype, size in luts:
            ops.append(Op("constexpr_lut_to_dense", [(f"table_{dtype}", Tensor("fp16", 11))], {
                "indices": other.value(dtype, (11,), [i * 7 % size for i in range(11)]),
                "lut": Value(Tensor("fp16", 1, size, 1), [i / 2 for i in range(size)])}))
        end = n + 1
        ops += [Op("linear", [("new", Tensor("fp16", n, 2))], {"x": "x", "weight": "weight"}),
                Op("reshape", [("update", Tensor("fp16", 1, 2, n))], {"x": "new", "shape": vector("int32", [1, 2, n])}),
                Op("read_state", [("past", cache_type)], {"input": "kv"}),
                Op("slice_update", [("all", cache_type)], {"x": "past", "update": "update", "begin": vector("int32", [0, 0, 1]),
                                                           "end": vector("int32", [1, 2, end])}),
                Op("write_state", [], {"input": "kv", "data": "all"}, name="write"),
                Op("read_state", [("now", cache_type)], {"input": "kv"}),
                Op("add", [("y", cache_type)], {"x": "now", "y": "offset"})]
        return Function(name, "CoreML8", [("kv", State(cache_type)), ("x", Tensor("fp16", n, 4)), ("offset", Tensor("fp16", None))],
                        ops, ["y"])

    def interface(name, n):
        return (name, [feature("x", array("fp16", (n, 4), enumerated=[(n, 4)])),
                       feature("offset", array("fp16", (8,), enumerated=[(8,), (1,)]))],
                [feature("y", array("fp16"))], [feature("kv", state("fp16", (1, 2, 8)))])

    d = functions_description([interface("step", 1), interface("chunk", 4)], "step")
    return 9, d, [function("step", 1), function("chunk", 4)], [w, other], False, "another.mlmodel"


def flow():
    b, i, f = Tensor("bool"), Tensor("int32"), Tensor("fp32")
    row = Tensor("fp32", 1, 2)
    body = Block([Op("add", [("next", i)], {"x": "n", "y": scalar("int32", 1)}),
                  Op("list_write", [("written", List(row))], {"ls": "rows", "index": "n", "value": "first"})],
                 ["next", "written"], [("n", i), ("rows", List(row))])
    test = Block([Op("less", [("more", b)], {"x": "n", "y": scalar("int32", 3)})], ["more"], [("n", i), ("rows", List(row))])
    inline = [Op("identity", [(f"kept_{d}", Tensor(d, n))], {"x": Value(Tensor(d, n), v)}) for d, n, v in (
        ("fp16", 2, [0.1, -0.0]), ("fp32", 3, [1e-40, float("inf"), -1.5]), ("fp64", 1, [0.1]), ("int8", 2, [-128, 127]),
        ("int16", 2, [-32768, 5]), ("int64", 2, [-2**63, 2**63 - 1]), ("uint8", 2, [0, 255]), ("uint16", 1, [65535]),
        ("uint32", 1, [2**32 - 1]), ("uint64", 1, [2**64 - 1]), ("uint4", 3, [15, 1, 8]), ("int4", 3, [-8, 7, -1]),
        ("bool", 3, [True, False, True]), ("string", 3, ["", 'a "b" \\ c', "\u00e9"]), ("int32", 0, []))]
    labels = Value(List(Tensor("string"), 2), [scalar("string", "cat"), scalar("string", "dog")])
    ops = inline + [
        Op("slice_by_index", [("first", row)], {"x": "x", "begin": vector("int32", [0, 0]), "end": vector("int32", [1, 2])}),
        Op("make_list", [("empty", List(row))], {"init_length": scalar("int32", 3), "dynamic_length": scalar("bool", True),
                                                 "elem_shape": [scalar("int32", 1), scalar("int32", 2)],
                                                 "dtype": scalar("string", "fp32")}),
        Op("while_loop", [("count", i), ("filled", List(row))], {"loop_vars": [scalar("int32", 0), "empty"]}, blocks=[test, body]),
        Op("reduce_sum", [("total", f)], {"x": "first"}),
        Op("greater", [("positive", b)], {"x": "total", "y": scalar("fp32", 0.0)}),
        Op("cond", [("chosen", row)], {"pred": "positive"}, blocks=[
            Block([Op("mul", [("doubled", row)], {"x": "first", "y": scalar("fp32", 2.0)})], ["doubled"]),
            Block([], ["first"])]),
        Op("classify", [("label", Tensor("string")), ("label_probs", Dict(Tensor("string"), Tensor("fp64")))],
           {"probabilities": "chosen", "classes": labels})]
    main = Function("main", "CoreML7", [("x", Tensor("fp32", None, 2))], ops, ["label", "label_probs", "count", "total"])
    d = description([feature("x", array("fp32", (4, 2), ranges=[(1, 16), (2, 2)]))],
                    [feature("label", b"\x1a\x00"), feature("label_probs", b"\x32\x02\x12\x00"), feature("count", array("int32")),
                     feature("total", array("fp32", (1,)))], predicted=("label", "label_probs"))
    return 8, d, [main], [], False, "model.mlmodel"


MODELS = {"old": old, "cache": cache, "flow": flow}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    for name, make in MODELS.items():
        version, d, functions, weights, is_old, file = make()
        folder = root / "tests/data/mil"
        write_package(folder / f"{name}.mlpackage", model(version, d, program_proto(functions)), weights, file)
        write_compiled(folder / f"{name}.mlmodelc", program_text(functions, is_old), coremldata(version, d, len(functions)),
                       weights)


if __name__ == "__main__":
    main()
