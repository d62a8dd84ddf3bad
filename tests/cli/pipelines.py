"""Pipelines of ML programs, written anew for each run: what goes on by name, what is converted, what is refused."""
import pathlib

import packages  # noqa: F401  (puts tools/ on the path)
from mil_writer import (Function, Op, State, Tensor, Weights, array, const, data, description, feature, image, model,
                        program_proto, scalar, state, uint, write_package)

ROW, HALF = Tensor("fp32", 1, 4), Tensor("fp16", 1, 4)
F32, F16 = array("fp32", (1, 4)), array("fp16", (1, 4))


def part(version, opset, inputs, outputs, ops):
    """inputs, outputs: (name, tensor type, feature type)"""
    main = Function("main", opset, [(n, t) for n, t, _ in inputs], ops, [n for n, _, _ in outputs])
    d = description([feature(n, f) for n, _, f in inputs], [feature(n, f) for n, _, f in outputs])
    return model(version, d, program_proto([main]))


def pipeline(version, parts, inputs, outputs, field=202, predicted=None):
    content = b"".join(data(1, p) for p in parts) + b"".join(data(2, f"model{i}") for i in range(len(parts)))
    d = description([feature(*i) for i in inputs], [feature(*o) for o in outputs], predicted=predicted)
    return uint(1, version) + data(2, d) + data(field, content if field == 202 else data(1, content))


def chain():
    """y = 2 x in single precision; z = y + x + w in half precision, w from a weight file; out come z and y. The models
    have two opsets."""
    first, second = Weights("weights/0-weight.bin"), Weights("weights/1-weight.bin")
    factor = const("factor", first.value("fp32", (1, 4), [2.0] * 4))
    offset = const("offset", second.value("fp16", (1, 4), [0.5, 1.5, 2.5, 3.5]))
    double = part(6, "CoreML5", [("x", ROW, F32)], [("y", ROW, F32)], [factor, Op("mul", [("y", ROW)], {"x": "x", "y": "factor"})])
    add = part(7, "CoreML6", [("x", ROW, F32), ("y", HALF, F16)], [("z", HALF, F16)],
               [offset, Op("cast", [("half", HALF)], {"x": "x", "dtype": scalar("string", "fp16")}),
                Op("add", [("sum", HALF)], {"x": "half", "y": "y"}), Op("add", [("z", HALF)], {"x": "sum", "y": "offset"})])
    return pipeline(7, [double, add], [("x", F32)], [("z", F16), ("y", F32)]), [first, second]


def classifier():
    """Twice the probabilities, then the labels of packages.classifier."""
    three = Tensor("fp32", 3)
    double = part(7, "CoreML6", [("p", three, array("fp32", (3,)))], [("x", three, array("fp32", (3,)))],
                  [Op("mul", [("x", three)], {"x": "p", "y": scalar("fp32", 2.0)})])
    kinds = (b"\x1a\x00", b"\x32\x02\x12\x00")
    return pipeline(7, [double, packages.classifier()], [("p", array("fp32", (3,)))],
                    [("label", kinds[0]), ("label_probs", kinds[1])], 200, ("label", "label_probs")), []


def foreign():
    return pipeline(7, [uint(1, 7) + data(2, b"") + data(303, b""), uint(1, 7)], [("x", F32)], [("y", F32)]), []


def images(between="rgb", then="rgb"):
    """An image times 1.5, to the next model as an image (or, between None, as an array), there times 0.01."""
    pixels = Tensor("fp32", 1, 3, 2, 3)
    plain = array("fp32", (1, 3, 2, 3))
    made, read = (image(3, 2, colour) if colour else plain for colour in (between, then))
    times = lambda x, kind, y, out, factor: part(
        7, "CoreML6", [(x, pixels, kind)], [(y, pixels, out)],
        [Op("mul", [(y, pixels)], {"x": x, "y": scalar("fp32", factor)})])
    return pipeline(7, [times("a", image(3, 2, "rgb"), "b", made, 1.5), times("b", read, "c", plain, 0.01)],
                    [("a", image(3, 2, "rgb"))], [("c", plain)]), []


def states():
    """Two models count what goes through them, in states of one name; the pipeline's description names one, or none."""
    row, kept = Tensor("fp16", 1, 2), state("fp16", (1, 2))
    f16 = array("fp16", (1, 2))
    count = lambda x, y: model(9, description([feature(x, f16)], [feature(y, f16)], [feature("sum", kept)]), program_proto(
        [Function("main", "CoreML8", [(x, row), ("sum", State(row))], [
            Op("read_state", [("before", row)], {"input": "sum"}), Op("add", [(y, row)], {"x": "before", "y": x}),
            Op("write_state", [], {"input": "sum", "data": y})], [y])]))
    return pipeline(9, [count("x", "h"), count("h", "y")], [("x", f16)], [("y", f16)]), []


def nothing():
    double = part(7, "CoreML6", [("x", ROW, F32)], [("y", ROW, F32)], [Op("mul", [("y", ROW)], {"x": "x", "y": scalar("fp32", 2.0)})])
    return pipeline(7, [double], [("x", F32)], [("z", F32)]), []


def mismatch():
    """y has another rank for the second model."""
    double = part(7, "CoreML6", [("x", ROW, F32)], [("y", ROW, F32)], [Op("mul", [("y", ROW)], {"x": "x", "y": scalar("fp32", 2.0)})])
    flat = Tensor("fp32", 4)
    add = part(7, "CoreML6", [("y", flat, array("fp32", (4,)))], [("z", flat, array("fp32", (4,)))],
               [Op("mul", [("z", flat)], {"x": "y", "y": scalar("fp32", 2.0)})])
    return pipeline(7, [double, add], [("x", F32)], [("z", array("fp32", (4,)))]), []


MODELS = {"chain": chain, "classifier": classifier, "foreign": foreign, "images": images,
          "turned": lambda: images("bgr"), "half_image": lambda: images(None), "states": states, "nothing": nothing,
          "mismatch": mismatch}


def write_all(folder):
    paths = {}
    for name, make in MODELS.items():
        paths[name] = str(pathlib.Path(folder) / f"{name}_pipeline.mlpackage")
        write_package(paths[name], *make())
    return paths
