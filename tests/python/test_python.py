#!/usr/bin/env python3
"""The Python package, checked as its users see it: MLModel, states, images, errors, and the runtime for coremltools.

Prints TAP. TEGULA_BUILD has libtegula.so (default: build/). NumPy is needed; what needs Pillow or coremltools is skipped
with a line where they are not installed. COREMLTOOLS_PYTHON names a Python that has coremltools, for the comparison
of signatures and the runtime test."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TEGULA_BUILD", ROOT / "build"))
os.environ.setdefault("TEGULA_LIBRARY", str(BUILD / "libtegula.so"))
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "cli")]

try:
    import numpy as np
except ImportError:
    print("1..1\nok 1 - python # SKIP NumPy is not installed")
    sys.exit(0)

import packages  # noqa: E402
import tegula as ct  # noqa: E402
from tegula._convert import core_ml_error  # noqa: E402
from tegula._program import Program  # noqa: E402

try:
    from PIL import Image
except ImportError:
    Image = None

TESTS, PATHS = [], {}


class Skip(Exception):
    pass


def test(function):
    TESTS.append(function)
    return function


def expect(condition, what="condition"):
    if not condition:
        raise AssertionError(what)


def raises(kind, function, *parts):
    try:
        function()
    except kind as error:
        text = str(error)
        for part in parts:
            expect(part in text, f"{text!r} lacks {part!r}")
        return text
    raise AssertionError(f"expected {kind.__name__}, nothing was raised")


def model(name, **options):
    return ct.models.MLModel(PATHS[name], **options)


ROW = np.array([[1, 2, 3, 4]], np.float32)


@test
def _():
    """a state grows with each call, is read and written, and two of them are apart"""
    m = model("accumulate")
    first, second = m.make_state(), m.make_state()
    out = m.predict({"x": ROW}, first)
    expect(out["y"].dtype == np.float32 and out["y"].shape == (1, 4), "fp16 outputs widen")
    m.predict({"x": ROW}, state=first)
    expect(np.array_equal(first.read_state("sum"), 2 * ROW) and first.read_state("sum").dtype == np.float32)
    expect(not second.read_state("sum").any(), "another state stays zero")
    first.write_state("sum", 10 * ROW)
    expect(np.array_equal(m.predict({"x": ROW}, first)["y"], 11 * ROW))


@test
def _():
    """functions share a state; the default one runs when none is named"""
    add, twice = model("accumulate"), model("accumulate", function_name="twice")
    expect(add.function_name == "add" and twice.function_name == "twice")
    program = Program(PATHS["accumulate"])
    from tegula._program import State
    state = State(program)
    program.predict({"x": ROW}, None, state)
    expect(np.array_equal(program.predict({"x": ROW}, "twice", state)["y"], 3 * ROW))
    raises(ValueError, lambda: model("accumulate", function_name="main"), "function_name main not found in the model.")
    raises(ValueError, lambda: model("shapes", function_name="other"), 'must be "main"')


@test
def _():
    """a stateful model without its state says what to do; the state of another model is refused"""
    m, other = model("accumulate"), model("accumulate")
    text = raises(RuntimeError, lambda: m.predict({"x": ROW}), "'sum'", "make_state()")
    expect("\n" not in text)
    raises(RuntimeError, lambda: m.predict({"x": ROW}, other.make_state()), "made from this model")
    raises(TypeError, lambda: m.predict({"x": ROW}, 3), "state")
    state = m.make_state()
    raises(RuntimeError, lambda: state.read_state("nope"), "'sum'", "'nope'")
    raises(RuntimeError, lambda: state.write_state("sum", ROW[0]), "1x4")
    raises(TypeError, lambda: state.read_state(3), "a name must be a string", "int")
    raises(TypeError, lambda: state.write_state(None, ROW), "a name must be a string", "NoneType")
    raises(RuntimeError, lambda: m.predict({"x": ROW[:, :2]}, state), "1x4", "1x2")
    expect(not state.read_state("sum").any(), "a failed call changes no state")


@test
def _():
    """inputs: any kind of number, lists, scalars, strides, byte order; outputs in their declared type"""
    m = model("shapes")
    base = {"ranged": [[1, 2]], "a": (1, 2), "b": np.array([3, 4], np.int64), "one": 1.5, "count": np.float32(41)}
    out = m.predict(base)
    expect(list(out) == ["same", "sum", "next"] and out["next"].dtype == np.int32 and out["next"].tolist() == [42])
    expect(out["sum"].tolist() == [5.75, 7.75], "the default of an optional input counts")
    expect(m.predict({**base, "extra": [1]})["sum"].tolist() == [6.5, 8.5])
    for dtype in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">f4", "?"):
        got = m.predict({**base, "a": np.array([1, 0], dtype)})["sum"]
        expect(got.tolist() == [5.75, 5.75], f"{dtype}: {got}")
    strided = np.arange(8, dtype=np.float32).reshape(2, 4).T[::2]
    expect(np.array_equal(m.predict({**base, "ranged": strided})["same"], strided))
    nan = m.predict({**base, "ranged": [[np.nan, np.inf]]})["same"]
    expect(np.isnan(nan[0, 0]) and np.isinf(nan[0, 1]))
    held = np.ones((4, 2), np.float32)
    result = m.predict({**base, "ranged": held})["same"]
    held[:] = 7
    expect(np.array_equal(result, np.ones((4, 2))), "outputs are copies")


@test
def _():
    """inputs: names, ranks, ranges, enumerated shapes and their combination are checked in clear words"""
    m = model("shapes")
    base = {"ranged": np.ones((1, 2)), "a": [1, 2], "b": [1, 2], "one": [1], "count": [1]}
    raises(KeyError, lambda: m.predict({**base, "z": 1}), "z", "does not match any of the model input name(s)")
    raises(RuntimeError, lambda: m.predict({k: v for k, v in base.items() if k != "one"}), "'one'")
    raises(RuntimeError, lambda: m.predict({**base, "ranged": np.ones((5, 2))}), "(1 to 4)x2", "5x2")
    raises(RuntimeError, lambda: m.predict({**base, "ranged": np.ones((2,))}), "'ranged'", "found 2")
    raises(RuntimeError, lambda: m.predict({**base, "a": [1, 2, 3]}), "'a'", "2, 4", "found 3")
    raises(RuntimeError, lambda: m.predict({**base, "a": [1, 2, 3, 4]}), "one index")
    expect(m.predict({**base, "a": [1] * 4, "b": [1] * 4})["sum"].shape == (4,))
    raises(RuntimeError, lambda: m.predict({**base, "count": [3e9]}), "'count'", "int32")
    raises(RuntimeError, lambda: m.predict({**base, "count": [np.nan]}), "'count'", "nan")
    raises(TypeError, lambda: m.predict({**base, "a": np.array(["x", "y"])}), "'a'")
    raises(TypeError, lambda: m.predict({**base, "a": np.array([1j, 2])}), "'a'")
    raises(RuntimeError, lambda: m.predict({**base, "a": "1 2"}), "'a'", "expected an array, found a string")
    raises(TypeError, lambda: m.predict(3), "dict or list of dict")
    raises(TypeError, lambda: m.predict([3]), "only dictionaries")
    expect([o["next"][0] for o in m.predict([base, {**base, "count": [5]}])] == [2, 6], "batches")


@test
def _():
    """in coremltools' runtime errors begin with Core ML's words, which programs look for"""
    program = Program(PATHS["shapes"])
    base = {"ranged": np.ones((1, 2)), "a": np.ones(2), "b": np.ones(2), "one": np.ones(1), "count": np.ones(1)}

    def text(**inputs):
        try:
            program.predict({**base, **inputs})
        except ct.TegulaError as error:
            found = core_ml_error(program.functions["main"], {**base, **inputs}, error)
            expect(found.status == error.status and str(found).endswith(str(error)))
            return str(found)
        raise AssertionError("nothing was raised")

    ranged = text(ranged=np.ones((5, 2)))
    expect(ranged.startswith("Size (5) of dimension (0) is not in allowed range (1..4): cannot predict: "), ranged)
    listed = text(a=np.ones(3))
    expect(listed.startswith("MultiArray Shape (3) was not in enumerated set of allowed shapes: cannot "), listed)
    rank = text(ranged=np.ones(2))
    expect(rank.startswith("cannot predict: "), rank)
    ran = core_ml_error(program.functions["main"], base, ct.TegulaError("cannot run op: x", "format"))
    expect(str(ran) == "Unable to compute the prediction using ML Program: cannot run op: x", str(ran))


@test
def _():
    """a classifier gives a label and a dictionary"""
    out = model("classifier").predict({"x": [0.25, 0.5, 0.125]})
    expect(out == {"label": "dog", "label_probs": {"cat": 0.25, "dog": 0.5, "caf\u00e9": 0.125}}, str(out))
    out = model("int_classifier").predict({"x": [0.25, 0.5, 0.75]})
    expect(out == {"label": 9, "label_probs": {7: 0.25, 8: 0.5, 9: 0.75}}, str(out))


def pixels():
    rgb = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 14
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3) * 50
    return rgb, grey


@test
def _():
    """images as arrays: RGB in and out, also where the model says BGR"""
    rgb, grey = pixels()
    out = Program(PATHS["images"]).predict({"in_rgb": rgb, "in_bgr": rgb, "in_gray": grey, "in_gray16": grey / 8})
    expect(np.array_equal(out["out_rgb"], rgb) and np.array_equal(out["out_bgr"], rgb))
    expect(np.array_equal(out["first_plane"], rgb[:, :, 2]), "the first plane of BGR is blue")
    expect(np.array_equal(out["out_gray"], grey) and out["out_gray"].dtype == np.uint8)
    expect(np.array_equal(out["out_gray16"], (grey / 8).astype(np.float32)))
    small = {"in_rgb": rgb[:1], "in_bgr": rgb, "in_gray": grey, "in_gray16": grey}
    raises(RuntimeError, lambda: Program(PATHS["images"]).predict(small), "in_rgb", "2x3", "1x3x3")
    raises(RuntimeError, lambda: Program(PATHS["images"]).predict({**small, "in_rgb": grey}), "HxWx3")


@test
def _():
    """images of uint8 tensors; an image of int32 is an error"""
    program = Program(PATHS["byte_images"])
    grey = np.array([[0, 1, 2], [253, 254, 255]], np.uint8)
    colour = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    out = program.predict({"in_gray": grey, "in_bgr": colour})
    expect(out["out_gray"].dtype == np.uint8 and np.array_equal(out["out_gray"], grey.T), str(out))
    expect(np.array_equal(out["out_bgr"], colour.transpose(1, 0, 2)), str(out))
    out = program.predict({"in_gray": np.array([[-1, 0.6, 300], [1.4, np.nan, 7]]), "in_bgr": colour})
    expect(np.array_equal(out["out_gray"], np.array([[0, 1, 255], [1, 0, 7]]).T), str(out))
    raises(RuntimeError, lambda: Program(PATHS["int_image"]).predict({"x": grey}), "'x'", "floats or uint8, found int32")


@test
def _():
    """images as PIL images: modes as coremltools wants them, RGBA out"""
    if Image is None:
        raise Skip("Pillow is not installed")
    rgb, grey = pixels()
    given = {"in_rgb": Image.fromarray(rgb), "in_bgr": Image.fromarray(rgb), "in_gray": Image.fromarray(grey),
             "in_gray16": Image.fromarray(grey.astype(np.float32))}
    out = model("images").predict(given)
    expect(out["out_rgb"].mode == "RGBA" and out["out_gray"].mode == "L" and out["out_gray16"].mode == "F")
    expect(np.array_equal(np.asarray(out["out_bgr"])[:, :, :3], rgb))
    raises(TypeError, lambda: model("images").predict({**given, "in_rgb": given["in_gray"]}), "mode=='RGB'")
    raises(TypeError, lambda: model("images").predict({**given, "in_rgb": 3}), "PIL.Image.Image")


@test
def _():
    """what a model says of itself"""
    m = model("accumulate")
    expect((m.short_description, m.author, m.license, m.version) == ("Sums up.", "somebody", "none", "3"))
    expect(m.user_defined_metadata == {"key": "value"} and m.compute_unit is ct.ComputeUnit.ALL)
    expect(list(m.input_description) == ["x"] and m.input_description["x"] == "about x" and len(m.output_description) == 1)
    expect("y" in m.output_description and repr(m.output_description) == "Features(y)")
    raises(KeyError, lambda: m.input_description["y"], "No feature with name y.")
    f = model("shapes").input_description.feature("ranged")
    expect(f.ranges == ((1, 4), (2, 2)) and f.shape == (2, 2) and f.dtype == np.float32)
    expect(m.state_description.feature("sum").dtype == np.float16)
    expect("CoreML8" in repr(m) and m._program.minimum_systems.startswith("iOS 18"))


@test
def _():
    """models that cannot be opened or run say so the way coremltools does"""
    raises(FileNotFoundError, lambda: ct.models.MLModel("/nonexistent.mlpackage"))
    raises(TypeError, lambda: ct.models.MLModel(3), "Expected model to be")
    raises(TypeError, lambda: model("shapes", compute_units="ALL"), '"compute_units" parameter must be of type')
    hints = {"reshapeFrequency": ct.ReshapeFrequency.Frequent, "allowLowPrecisionAccumulationOnGPU": True}
    expect(model("shapes", optimization_hints=hints).optimization_hints == hints)
    raises(TypeError, lambda: model("shapes", optimization_hints=[1]), "must be a dictionary or None")
    raises(ValueError, lambda: model("shapes", optimization_hints={"fast": 1}), "Unrecognized key", "fast")
    raises(TypeError, lambda: model("shapes", optimization_hints={"specializationStrategy": 1}),
           "coremltools.SpecializationStrategy")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        broken = model("unknown_op")
    expect(len(seen) == 1 and seen[0].category is RuntimeWarning and "no_such_op" in str(seen[0].message))
    raises(RuntimeError, lambda: broken.predict({"x": ROW}), "no_such_op")
    lazy = model("accumulate", skip_model_load=True)
    raises(RuntimeError, lambda: lazy.predict({"x": ROW}), "skip_model_load")
    expect(list(lazy.input_description) == ["x"])
    raises(RuntimeError, lambda: Program(PATHS["accumulate"], target="iOS17"), "iOS17", "iOS 18", "several functions")
    raises(RuntimeError, lambda: Program(PATHS["accumulate"], target="Windows"), "Windows")
    expect(Program(PATHS["accumulate"], target="macos15.1").functions)
    raises(RuntimeError, lambda: ct.models.CompiledMLModel(PATHS["unknown_op"]), "no_such_op")
    compiled = ct.models.CompiledMLModel(PATHS["accumulate"], function_name="twice")
    expect(np.array_equal(compiled.predict({"x": ROW}, compiled.make_state())["y"], 2 * ROW))


@test
def _():
    """save copies the package; a specification object with its class is taken too"""
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "copy")
        model("shapes").save(target)
        expect(ct.models.MLModel(target + ".mlpackage").output_description["next"] == "about next")
        raises(Exception, lambda: model("shapes").save(target + ".mlmodel"), "extension must be .mlpackage")

    class Specification:
        def SerializeToString(self):
            return packages.MODELS["shapes"]()

    m = ct.models.MLModel(Specification())
    path = m.package_path
    expect(os.path.isdir(path) and list(m.output_description) == ["same", "sum", "next"])
    del m
    expect(not os.path.exists(path), "its temporary package is removed with it")


@test
def _():
    """threads predict side by side with states of their own"""
    m, results = model("accumulate"), {}

    def work(k):
        state = m.make_state()
        for _ in range(50):
            results[k] = m.predict({"x": ROW * k}, state)["y"]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(all(np.array_equal(results[k], 50 * k * ROW) for k in range(1, 5)), str(results))


@test
def _():
    """emulate-fp16 rounds at each op"""
    exact = Program(PATHS["overflow"]).predict({"x": ROW / 4096})
    rough = Program(PATHS["overflow"], mode="emulate-fp16").predict({"x": ROW / 4096})
    expect(np.allclose(exact["y"], rough["y"], rtol=1e-3))
    raises(ValueError, lambda: Program(PATHS["overflow"], mode="fast"), "exact, emulate-fp16")


@test
def _():
    """Ctrl-C ends a prediction within a second and is a KeyboardInterrupt; what any handler raises comes out"""
    endless = Program(PATHS["endless"])

    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    rings = []
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for number, kind, after in ((signal.SIGINT, KeyboardInterrupt, signal.default_int_handler), (signal.SIGALRM, Alarm, ring)):
            signal.signal(number, after)  # a shell starts what it puts in the background with SIGINT ignored
            threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
            start = time.monotonic()
            try:
                endless.predict({"x": np.array([1], np.int32)})
                expect(False, "an end")
            except kind:
                expect(0.2 < time.monotonic() - start < 1.3, f"{time.monotonic() - start} s")
            expect(signal.getsignal(number) == after, "the handler is back")
        signal.signal(signal.SIGALRM, lambda *_: rings.append(1) or len(rings) > 1 and ring())
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.3)
        try:
            endless.predict({"x": np.array([1], np.int32)})
        except Alarm:
            expect(len(rings) == 2, "a handler that raises nothing does not end the work")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    expect(Program(PATHS["accumulate"]).functions, "the library goes on")


@test
def _():
    """the library is the one that was named; a wrong name is an ImportError that says where was looked"""
    expect(ct.library_path() == os.environ["TEGULA_LIBRARY"] and ct.__version__.count(".") == 2)
    environment = dict(os.environ, TEGULA_LIBRARY="/nonexistent.so", PYTHONPATH=str(ROOT / "python"))
    done = subprocess.run([sys.executable, "-c", "import tegula"], env=environment, capture_output=True, text=True)
    expect(done.returncode == 1 and "ImportError: cannot load libtegula" in done.stderr, done.stderr)


def coremltools_python():
    for python in (os.environ.get("COREMLTOOLS_PYTHON"), sys.executable):
        if python and subprocess.run([python, "-c", "import coremltools"], capture_output=True).returncode == 0:
            return python
    raise Skip("coremltools is not installed; COREMLTOOLS_PYTHON may name a Python that has it")


RUNTIME = """
import sys, inspect, warnings
import numpy as np
import tegula as ours, tegula.coremltools_runtime as runtime
import coremltools as theirs
assert runtime.installed
m = theirs.models.MLModel(sys.argv[1])
state = m.make_state()
x = np.ones((1, 4), np.float32)
assert m.predict({"x": x}, state)["y"].tolist() == [[1, 1, 1, 1]]
state.write_state("sum", x * 5)
assert m.predict({"x": x}, state)["y"].tolist() == [[6, 6, 6, 6]]
assert state.read_state("sum").tolist() == [[6, 6, 6, 6]]
assert m.get_spec().specificationVersion == 9
c = theirs.models.CompiledMLModel(m.get_compiled_model_path(), theirs.ComputeUnit.CPU_ONLY, "twice")
assert c.predict({"x": x}, c.make_state())["y"].tolist() == [[2, 2, 2, 2]]
try:
    m.predict({"x": x})
    raise AssertionError("a stateful model needs its state")
except RuntimeError as error:
    assert "make_state" in str(error), error
assert ours.models.MLModel(sys.argv[1], compute_units=theirs.ComputeUnit.CPU_ONLY).get_spec() == m.get_spec()
pairs = [(theirs.models.MLModel, ours.models.MLModel, ("__init__", "predict", "make_state", "get_spec", "save",
          "get_compiled_model_path")), (theirs.models.CompiledMLModel, ours.models.CompiledMLModel, ("__init__",
          "predict", "make_state")), (theirs.models.model.MLState, ours.models.MLState, ("__init__", "read_state",
          "write_state"))]
for a, b, names in pairs:
    for name in names:
        one = [(p.name, p.default if not hasattr(p.default, "name") else p.default.name, p.kind)
               for p in inspect.signature(getattr(a, name)).parameters.values()]
        two = [(p.name, p.default if not hasattr(p.default, "name") else p.default.name, p.kind)
               for p in inspect.signature(getattr(b, name)).parameters.values()]
        assert one == two, (name, one, two)
assert [u.name for u in theirs.ComputeUnit] == [u.name for u in ours.ComputeUnit]
print("good")
"""


@test
def _():
    """coremltools_runtime: coremltools' own classes predict, and our signatures are theirs"""
    python = coremltools_python()
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([python, "-W", "ignore", "-c", RUNTIME, PATHS["accumulate"]], env=environment,
                          capture_output=True, text=True)
    expect(done.stdout.endswith("good\n"), done.stderr[-800:])


TINY = str(ROOT / "tests" / "data" / "tiny" / "llama.gguf")


@test
def _():
    """LanguageModel: ids in, logits out, the same in one call or many; text in, text out"""
    m = ct.LanguageModel(TINY, mode="exact", chunk=4, threads=1)
    expect(m.logits is None and m.tokens == [] and m.info["vocab_tokens"] > 0 and m.context > 0)
    ids = [5, 6, 7, 8, 9, 10]
    rows = m.prefill(ids, all_logits=True)
    expect(rows.shape == (6, m.info["vocab_tokens"]) and m.tokens == ids)
    m.rewind(2)
    expect(m.logits is None and m.tokens == ids[:2])
    expect(np.array_equal(m.prefill(np.array(ids[2:5])), rows[4]) and np.array_equal(m.decode(ids[5]), rows[5]))
    other = m.fork()
    greedy = m.generate(max_tokens=3)
    expect(greedy and greedy[0] == int(rows[5].argmax()) and other.tokens == ids, "a fork is a session of its own")
    expect(other.generate(max_tokens=3) == greedy, "the same tokens give the same text")
    del m
    expect(other.decode(5).shape == rows[5].shape, "a fork keeps the model")
    text = ct.LanguageModel(TINY, mode="exact")
    expect(text.detokenize(text.tokenize("Hello there", bos=False)).strip() == "Hello there")
    expect(isinstance(text.generate("Hello", max_tokens=4, temperature=0.7, seed=1), str))


@test
def _():
    """LanguageModel: packed weights from a folder; what is wrong with it is a warning"""
    mixed = str(ROOT / "tests" / "data" / "tiny" / "llama-mixed.gguf")
    with tempfile.TemporaryDirectory() as folder:
        plain = ct.LanguageModel(mixed, mode="fast").prefill([1, 2, 3])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                expect(np.array_equal(ct.LanguageModel(mixed, mode="fast", pack_cache=folder).prefill([1, 2, 3]), plain))
        file = next(pathlib.Path(folder).iterdir())
        file.write_bytes(file.read_bytes()[:-1])
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            again = ct.LanguageModel(mixed, mode="fast", pack_cache=folder).prefill([1, 2, 3])
        expect(np.array_equal(again, plain) and "pack cache" in str(seen[0].message))


@test
def _():
    """LanguageModel: errors are the library's sentences, and leave the session as it was"""
    m = ct.LanguageModel(TINY, context=8)
    raises(ValueError, lambda: ct.LanguageModel(TINY, mode="quick"), "mode", "quick")
    raises(ct.TegulaError, lambda: ct.LanguageModel("/nowhere.gguf"), "/nowhere.gguf")
    raises(ct.TegulaError, lambda: m.prefill([10 ** 6]), "token 0")
    raises(ct.TegulaError, lambda: m.prefill([5] * 9), "context full")
    raises(ct.TegulaError, lambda: m.generate(), "give a prompt")
    expect(m.tokens == [] and m.prefill([5]).ndim == 1)


@test
def _():
    """LanguageModel: a package that keeps its keys in states"""
    folder = ROOT.parent / "shared" / "data" / "stateful-tiny"
    package = folder / "tiny_apple_none.mlpackage"
    if not package.exists():
        raise Skip("no ../shared/data/stateful-tiny")
    golden = np.load(folder / "tiny_apple_none.golden.npz")
    m = ct.LanguageModel(package, mode="exact")
    rows = m.prefill(golden["c00_in_inputIds"], all_logits=True)
    wanted = golden[next(k for k in golden.files if k.startswith("c00_out_"))].reshape(rows.shape)
    expect(np.abs(rows - wanted).max() < 0.02, f"logits differ by {np.abs(rows - wanted).max()}")


@test
def _():
    """convert: a package that answers as its source; rules, explanation, progress, what is refused"""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "a.mlpackage")
        calls = []
        report = ct.convert(TINY, out, weights="int8", rules={"*ffn_down*": "lut6/tensor"}, skip=["*attn_q*"],
                            context=64, chunk=16, threads=1, progress=lambda done, total: calls.append((done, total)))
        encodings = {w.name: w.encoding for w in report.weights}
        expect(any(e == "f16" for n, e in encodings.items() if "attn_q" in n), encodings)
        expect(all(e.startswith("lut6") for n, e in encodings.items() if "ffn_down" in n), encodings)
        expect(report.packages == 1 and report.weights_bytes > 0 and 0 < report.predicted_kl < 1, report)
        expect(calls and calls[-1][0] == calls[-1][1] > 0, calls)
        ids = [5, 6, 7, 8]
        one, two = (ct.LanguageModel(m, mode="exact").prefill(ids) for m in (TINY, out))
        expect(np.abs(one - two).max() < 0.1 * np.abs(one).max(), np.abs(one - two).max())
        raises(ct.TegulaError, lambda: ct.convert(TINY, out), "found one")
        raises(TypeError, lambda: ct.convert(TINY), "output")
        raises(TypeError, lambda: ct.convert(TINY, out, skip="abc"), "a list of patterns")
        raises(ct.TegulaError, lambda: ct.convert(TINY, out, overwrite=True, weights="int5"), "weights", "int5")
        raises(ct.TegulaError, lambda: ct.convert(TINY, out, overwrite=True, progress=lambda *_: False), "interrupted")
        raises(ZeroDivisionError, lambda: ct.convert(TINY, out, overwrite=True, progress=lambda *_: 1 // 0))
        expect(ct.LanguageModel(out, mode="exact").prefill(ids).shape == one.shape, "the package is gone")
        expect("AT02" in ct.convert(TINY, profile="ane", explain=True, context=64, kv_tile=32, ignore_rules=True))
        calibrated = ct.convert(TINY, out, overwrite=True, weights="lut4/tensor", calibrate="Hello there, hello. " * 20)
        expect(calibrated.predicted_kl > 0)


@test
def _():
    """quantize: a package again in another encoding; what was left alone says why"""
    with tempfile.TemporaryDirectory() as folder:
        first, second = pathlib.Path(folder, "a.mlpackage"), pathlib.Path(folder, "b.mlpackage")
        ct.convert(TINY, first, context=64)
        report = ct.quantize(first, second, weights="uint8", skip=["*attn_q*"])
        expect(any(w.encoding.startswith("uint8") and not w.left_alone for w in report.weights), report.weights)
        expect(any(w.left_alone == "skipped by a pattern" for w in report.weights), report.weights)
        raises(ct.TegulaError, lambda: ct.quantize(second, first, overwrite=True, skip=["*attn_q*"]), "again")
        again = ct.quantize(second, first, weights="f16", again=True, overwrite=True)
        expect(any(w.encoding == "f16" for w in again.weights), again.weights)


def main():
    failed = 0
    print(f"1..{len(TESTS)}")
    with tempfile.TemporaryDirectory() as folder:
        PATHS.update(packages.write_all(folder))
        for number, function in enumerate(TESTS, 1):
            try:
                function()
                print(f"ok {number} - python: {function.__doc__}", flush=True)
            except Skip as reason:
                print(f"ok {number} - python: {function.__doc__} # SKIP {reason}", flush=True)
            except Exception as problem:
                failed += 1
                print(f"not ok {number} - python: {function.__doc__}\n# {type(problem).__name__}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
