"""Small Core ML packages for the tests of what users touch, written anew for each run by tools/mil_writer.py.

Each is the least program that shows one rule: states, images, shapes, defaults, labels, endless loops. What they compute
needs no more than element-wise ops, so a failure here is one of the interface and not of an op."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from mil_writer import (Block, Dict, Function, List, Op, State, Tensor, Value, array, description, feature,  # noqa: E402
                        functions_description, image, model, program_proto, scalar, state, vector, write_package)

ROW = Tensor("fp16", 1, 4)


def accumulate():
    """Functions add (the default) and twice share the state `sum`: it grows by x, or by 2 x; y is its new value."""
    def function(name, factor):
        ops = [Op("mul", [("scaled", ROW)], {"x": "x", "y": scalar("fp16", factor)}),
               Op("read_state", [("before", ROW)], {"input": "sum"}),
               Op("add", [("after", ROW)], {"x": "before", "y": "scaled"}),
               Op("write_state", [], {"input": "sum", "data": "after"}),
               Op("read_state", [("y", ROW)], {"input": "sum"})]
        return Function(name, "CoreML8", [("x", ROW), ("sum", State(ROW))], ops, ["y"])

    def interface(name):
        return (name, [feature("x", array("fp16", (1, 4)))], [feature("y", array("fp16", (1, 4)))],
                [feature("sum", state("fp16", (1, 4)))])

    d = functions_description([interface("add"), interface("twice")], "add",
                              {"description": "Sums up.", "author": "somebody", "license": "none", "version": "3",
                               "user": {"key": "value"}})
    return model(9, d, program_proto([function("add", 1.0), function("twice", 2.0)]))


def single(version, opset, inputs, outputs, ops, names, metadata=None, predicted=None):
    """inputs, outputs: (name, tensor type, feature type[, optional])"""
    main = Function("main", opset, [(n, t) for n, t, *_ in inputs], ops, names)
    d = description([feature(n, f, bool(o)) for n, _, f, *o in inputs], [feature(n, f) for n, f in outputs],
                    predicted=predicted, metadata=metadata)
    return model(version, d, program_proto([main]))


def images():
    """Each image goes out as it came in, but for `half`, which is divided by two."""
    colours = (("rgb", 3), ("bgr", 3), ("gray", 1), ("gray16", 1))
    inputs = [(f"in_{c}", Tensor("fp32", 1, n, 2, 3), image(3, 2, c)) for c, n in colours]
    outputs = [(f"out_{c}", image(3, 2, c)) for c, _ in colours] + [("first_plane", array("fp32", (2, 3)))]
    ops = [Op("mul", [(f"out_{c}", Tensor("fp32", 1, n, 2, 3))], {"x": f"in_{c}", "y": scalar("fp32", 1.0)})
           for c, n in colours]
    ops += [Op("slice_by_index", [("first_plane", Tensor("fp32", 2, 3))],
               {"x": "in_bgr", "begin": vector("int32", [0, 0, 0, 0]), "end": vector("int32", [1, 1, 2, 3]),
                "squeeze_mask": Value(Tensor("bool", 4), [True, True, False, False])})]
    return single(7, "CoreML6", inputs, outputs, ops, [n for n, _ in outputs])


def byte_images():
    """A grey image of bytes and a colour one go out with rows and columns exchanged."""
    ops = [Op("transpose", [(f"out_{c}", Tensor("uint8", 1, n, 3, 2))],
              {"x": f"in_{c}", "perm": vector("int32", [0, 1, 3, 2])}) for c, n in (("gray", 1), ("bgr", 3))]
    inputs = [(f"in_{c}", Tensor("uint8", 1, n, 2, 3), image(3, 2, c)) for c, n in (("gray", 1), ("bgr", 3))]
    return single(8, "CoreML7", inputs, [(f"out_{c}", image(2, 3, c)) for c in ("gray", "bgr")], ops, ["out_gray", "out_bgr"])


def int_image():
    return single(8, "CoreML7", [("x", Tensor("int32", 1, 1, 2, 3), image(3, 2, "gray"))],
                  [("y", array("int32", (1, 1, 2, 3)))],
                  [Op("identity", [("y", Tensor("int32", 1, 1, 2, 3))], {"x": "x"})], ["y"])


def shapes():
    """A range, two inputs with enumerated shapes, one with a default, a scalar, an int32; all but the range add up."""
    f = "fp32"
    inputs = [("ranged", Tensor(f, None, 2), array(f, (2, 2), ranges=[(1, 4), (2, 2)])),
              ("a", Tensor(f, None), array(f, (2,), enumerated=[(2,), (4,)])),
              ("b", Tensor(f, None), array(f, (2,), enumerated=[(2,), (4,)])),
              ("extra", Tensor(f, 1), array(f, (1,), default=0.25), True),
              ("one", Tensor(f, 1), array(f, (1,))),
              ("count", Tensor("int32", 1), array("int32", (1,)))]
    ops = [Op("mul", [("same", Tensor(f, None, 2))], {"x": "ranged", "y": scalar(f, 1.0)}),
           Op("add", [("ab", Tensor(f, None))], {"x": "a", "y": "b"}),
           Op("add", [("abe", Tensor(f, None))], {"x": "ab", "y": "extra"}),
           Op("add", [("sum", Tensor(f, None))], {"x": "abe", "y": "one"}),
           Op("add", [("next", Tensor("int32", 1))], {"x": "count", "y": scalar("int32", 1)})]
    outputs = [("same", array(f)), ("sum", array(f)), ("next", array("int32", (1,)))]
    return single(9, "CoreML8", inputs, outputs, ops, [n for n, _ in outputs])


def classifier(kind="string"):
    """Three labels and the probabilities that come in."""
    label = Tensor(kind)
    names = ["cat", "dog", "caf\u00e9"] if kind == "string" else [7, 8, 9]
    labels = Value(List(label, 3), [scalar(kind, name) for name in names])
    ops = [Op("classify", [("label", label), ("label_probs", Dict(label, Tensor("fp64")))],
              {"probabilities": "x", "classes": labels})]
    kinds = (b"\x1a\x00", b"\x32\x02\x12\x00") if kind == "string" else (b"\x0a\x00", b"\x32\x02\x0a\x00")
    return single(7, "CoreML6", [("x", Tensor("fp32", 3), array("fp32", (3,)))],
                  [("label", kinds[0]), ("label_probs", kinds[1])], ops, ["label", "label_probs"],
                  predicted=("label", "label_probs"))


def endless():
    i = Tensor("int32", 1)
    test = Block([Op("equal", [("more", Tensor("bool", 1))], {"x": "n", "y": "n"}),
                  Op("squeeze", [("again", Tensor("bool"))], {"x": "more", "axes": vector("int32", [0])})], ["again"], [("n", i)])
    body = Block([Op("add", [("next", i)], {"x": "n", "y": scalar("int32", 1)})], ["next"], [("n", i)])
    ops = [Op("while_loop", [("y", i)], {"loop_vars": ["x"]}, blocks=[test, body])]
    return single(7, "CoreML6", [("x", i, array("int32", (1,)))], [("y", array("int32", (1,)))], ops, ["y"])


def unknown_op():
    return single(7, "CoreML6", [("x", ROW, array("fp16", (1, 4)))], [("y", array("fp16", (1, 4)))],
                  [Op("no_such_op", [("y", ROW)], {"x": "x"})], ["y"])


def overflow():
    """x * 60000 in fp16."""
    ops = [Op("mul", [("y", ROW)], {"x": "x", "y": scalar("fp16", 60000.0)}, name="big")]
    return single(7, "CoreML6", [("x", ROW, array("fp16", (1, 4)))], [("y", array("fp16", (1, 4)))], ops, ["y"])


MODELS = {"accumulate": accumulate, "images": images, "byte_images": byte_images, "int_image": int_image,
          "shapes": shapes, "classifier": classifier, "int_classifier": lambda: classifier("int64"), "endless": endless,
          "unknown_op": unknown_op, "overflow": overflow}


def write_all(folder):
    """Writes FOLDER/NAME.mlpackage of every model and returns their paths by name."""
    paths = {}
    for name, make in MODELS.items():
        paths[name] = str(pathlib.Path(folder) / f"{name}.mlpackage")
        write_package(paths[name], make(), [])
    return paths
