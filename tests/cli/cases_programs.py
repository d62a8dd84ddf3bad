"""Cases with Core ML packages: predict and inspect, the .npy, .npz and .png files that they read and write."""

import io
import json
import os
import signal
import struct
import subprocess
import tempfile
import time
import zipfile
import zlib

import packages
from harness import PROGRAM, expect, expect_done, expect_equal, expect_error, run, test

FOLDER = tempfile.TemporaryDirectory()
PATHS = packages.write_all(FOLDER.name)
CODES = {"<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", "|u1": "B", "|i1": "b", "<f2": "e", ">f4": ">f", "|b1": "?"}


def npy(values, shape, descr="<f4", version=1, order="False"):
    head = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({''.join(f'{n},' for n in shape)}), }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    size = struct.pack("<H", len(head)) if version == 1 else struct.pack("<I", len(head))
    form = CODES.get(descr, "f")
    return (b"\x93NUMPY" + bytes([version, 0]) + size + head
            + b"".join(struct.pack(form if form[0] == ">" else "<" + form, v) for v in values))


def npz(arrays, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in arrays.items():
            archive.writestr(name + ".npy", data)
    return file.getvalue()


def read_npy(data):
    """(descr, shape, values) of what tegula writes."""
    expect_equal(data[:8], b"\x93NUMPY\x01\x00", "npy magic")
    n = struct.unpack("<H", data[8:10])[0]
    expect_equal((10 + n) % 64, 0, "npy header alignment")
    head = eval(data[10:10 + n], {})  # our own output, a literal
    body, width = data[10 + n:], int(head["descr"][2:])
    if head["descr"][1] == "S":
        return head["descr"], head["shape"], [body[i:i + width].rstrip(b"\0").decode() for i in range(0, len(body), width)]
    values = [v[0] for v in struct.iter_unpack("<" + CODES[head["descr"]], body)]
    return head["descr"], head["shape"], values


def read_npz(path):
    with zipfile.ZipFile(path) as archive:
        expect_equal(archive.testzip(), None, "check sums")
        return {name[:-4]: read_npy(archive.read(name)) for name in archive.namelist()}


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, depth, colour, rows, palette=b"", interlace=0):
    """rows: bytes of each row, its filter byte in front"""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + (chunk(b"PLTE", palette) if palette else b"")
            + chunk(b"tEXt", b"Comment\0x") + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b""))


class Files:
    """Names of files in a temporary folder that hold what was given."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def put(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)


def shape_inputs(files, **other):
    """The -i options of model shapes; other replaces inputs by files."""
    arrays = {"ranged": npy([1, 2], (1, 2)), "a": npy([1, 2], (2,)), "b": npy([3, 4], (2,), "<f8"),
              "one": npy([1.5], (1,)), "count": npy([41], (1,), "<i8"), **other}
    return [part for name, data in arrays.items() for part in ("-i", f"{name}={files.put(name + '.npy', data)}")]


# ---- predict ----


@test()
def _():
    """predict: a summary on stdout, every output on one line"""
    with Files() as files:
        result = run("predict", PATHS["shapes"], *shape_inputs(files))
        expect_done(result)
        lines = result.text.splitlines()
        expect_equal([line.split()[:2] for line in lines], [["same", "float32"], ["sum", "float32"], ["next", "int32"]], "lines")
        expect("[2]  min 5.75 mean 6.75 max 7.75  first 5.75 7.75" in lines[1], lines[1])
        expect_equal(result.errors, "", "standard error")


@test()
def _():
    """predict -o: an archive with the declared types; -i takes an archive, stored or compressed"""
    with Files() as files:
        arrays = {"ranged": npy([1, 2, 3, 4], (2, 2), ">f4"), "a": npy([1, 0], (2,), "|b1"), "b": npy([3, 4], (2,), "<f2"),
                  "one": npy([1.5], (1,), version=2), "count": npy([-3], (), "|i1")}
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            given, out = files.put("in.npz", npz(arrays, method)), files.path("out.npz")
            result = run("predict", PATHS["shapes"], "-i", given, "-o", out)
            expect_done(result)
            expect_equal(result.out, b"", "standard output")
            expect_equal(read_npz(out), {"same": ("<f4", (2, 2), [1, 2, 3, 4]), "sum": ("<f4", (2,), [5.75, 5.75]),
                                         "next": ("<i4", (1,), [-2])}, "outputs")
        turned = npy([1, 3, 2, 4], (2, 2), order="True")
        result = run("predict", PATHS["shapes"], *shape_inputs(files, ranged=turned), "-o", out)
        expect_done(result)
        expect_equal(read_npz(out)["same"][2], [1, 2, 3, 4], "Fortran order")


@test()
def _():
    """predict --state: zeros at first, then what the last call left; --repeat does not change it"""
    with Files() as files:
        x, state, out = files.put("x.npy", npy([1, 2, 3, 4], (1, 4))), files.path("s.npz"), files.path("o.npz")
        for n in (1, 2):
            expect_done(run("predict", PATHS["accumulate"], "-i", f"x={x}", "--state", state, "-o", out, "--repeat", 5))
            expect_equal(read_npz(out), {"y": ("<f2", (1, 4), [n, 2 * n, 3 * n, 4 * n])}, "output")
            expect_equal(read_npz(state), {"sum": ("<f2", (1, 4), [n, 2 * n, 3 * n, 4 * n])}, "state")
        expect_done(run("predict", PATHS["accumulate"], "--function", "twice", "-i", f"x={x}", "--state", state, "-o", out))
        expect_equal(read_npz(out)["y"][2], [4, 8, 12, 16], "the other function")
        expect_error(run("predict", PATHS["accumulate"], "-i", f"x={x}"), 1, "'sum'", "--state")
        expect_error(run("predict", PATHS["accumulate"], "--function", "nope", "-i", f"x={x}"), 1, "add, twice", "'nope'")
        before = open(state, "rb").read()
        bad = files.put("bad.npy", npy([1, 2], (1, 2)))
        expect_error(run("predict", PATHS["accumulate"], "-i", f"x={bad}", "--state", state), 1, "1x4", "1x2")
        expect_equal(open(state, "rb").read(), before, "the state after a failure")
        wrong = files.put("wrong.npz", npz({"other": npy([1], (1,))}))
        expect_error(run("predict", PATHS["accumulate"], "-i", f"x={x}", "--state", wrong), 1, "'other'", "'sum'")
        unused = files.path("unused.npz")
        expect_error(run("predict", PATHS["overflow"], "-i", f"x={x}", "--state", unused), 1, "--state", "leave --state out")
        expect(not os.path.exists(unused), "a state of nothing was written")


@test()
def _():
    """predict --json and --repeat: one document, timing on stderr"""
    with Files() as files:
        result = run("predict", PATHS["shapes"], *shape_inputs(files), "--json", "--repeat", 3)
        expect_done(result)
        document = json.loads(result.out)
        expect_equal([o["name"] for o in document["outputs"]], ["same", "sum", "next"], "names")
        expect_equal(document["outputs"][1]["first"], [5.75, 7.75], "values")
        expect_equal(document["timing"]["runs"], 3, "runs")
        timing = document["timing"]
        expect(0 < timing["min_ms"] <= timing["median_ms"] <= timing["max_ms"], str(timing))
        expect("3 runs: median " in result.errors, result.errors)


@test()
def _():
    """predict: classifiers, as text, JSON and archive"""
    with Files() as files:
        x, out = files.put("x.npy", npy([0.25, 0.5, 0.125], (3,))), files.path("o.npz")
        for model, labels in (("classifier", ["cat", "dog", "caf\u00e9"]), ("int_classifier", [7, 8, 9])):
            text = run("predict", PATHS[model], "-i", f"x={x}").text
            expect(str(labels[1]) in text.splitlines()[0] and f"{labels[1]} = 0.5, {labels[0]} = 0.25" in text, text)
            document = json.loads(run("predict", PATHS[model], "-i", f"x={x}", "--json").out)
            expect_equal(document["outputs"][0]["value"], labels[1], "label")
            expect_equal(document["outputs"][1]["value"], dict(zip(map(str, labels), [0.25, 0.5, 0.125])), "dictionary")
            expect_done(run("predict", PATHS[model], "-i", f"x={x}", "-o", out))
            arrays = read_npz(out)
            expect_equal(arrays["label"][2], [labels[1]], "label")
            expect_equal((arrays["label_probs.keys"][2], arrays["label_probs.values"][2]), (labels, [0.25, 0.5, 0.125]), "arrays")


@test()
def _():
    """predict: PNG images of every colour type, depth and filter"""
    rgb = [bytes([10, 20, 30, 40, 50, 60, 70, 80, 90]), bytes([1, 2, 3, 4, 5, 6, 7, 8, 9])]
    plain = list(rgb[0] + rgb[1])
    grey = bytes([0, 85, 170])

    def filtered(kind):
        rows, above = [], bytes(9)
        for row in rgb:
            out = []
            for i, v in enumerate(row):
                left, up, corner = (row[i - 3] if i > 2 else 0), above[i], (above[i - 3] if i > 2 else 0)
                p = left + up - corner
                near = min((left, up, corner), key=lambda q: abs(p - q))
                out.append(v - (0, left, up, (left + up) // 2, near)[kind] & 255)
            rows.append(bytes([kind]) + bytes(out))
            above = row
        return rows

    colour = [png(3, 2, 8, 2, filtered(kind)) for kind in range(5)]
    colour.append(png(3, 2, 8, 6, [b"\0" + b"".join(row[i:i + 3] + b"\x07" for i in (0, 3, 6)) for row in rgb]))
    colour.append(png(3, 2, 16, 2, [b"\0" + b"".join(bytes([v, 255]) for v in row) for row in rgb]))
    colour.append(png(3, 2, 8, 3, [b"\0\0\1\2", b"\0\3\4\5"], rgb[0] + rgb[1]))
    colour.append(png(3, 2, 4, 3, [b"\0\x01\x20", b"\0\x34\x50"], rgb[0] + rgb[1]))
    greys = [png(3, 2, 8, 0, [b"\0" + grey] * 2), png(3, 2, 2, 0, [b"\0" + bytes([0b00011000])] * 2),
             png(3, 2, 16, 0, [b"\0\0\0\x55\0\xaa\0"] * 2), png(3, 2, 8, 4, [b"\0\0\x09\x55\x09\xaa\x09"] * 2)]
    with Files() as files:
        out, soft = files.path("o.npz"), files.put("g16.npy", npy([0.5] * 6, (2, 3)))
        for i in range(max(len(colour), len(greys))):
            c, g = files.put("c.png", colour[i % len(colour)]), files.put("g.png", greys[i % len(greys)])
            expect_done(run("predict", PATHS["images"], "-i", f"in_rgb={c}", "-i", f"in_bgr={c}", "-i", f"in_gray={g}",
                            "-i", f"in_gray16={soft}", "-o", out))
            arrays = read_npz(out)
            expect_equal(arrays["out_rgb"], ("|u1", (2, 3, 3), plain), f"colour {i}")
            expect_equal(arrays["out_bgr"], ("|u1", (2, 3, 3), plain), f"colour {i} as BGR")
            expect_equal(arrays["out_gray"], ("|u1", (2, 3), list(grey) * 2), f"grey {i}")
            expect_equal(arrays["out_gray16"], ("<f4", (2, 3), [0.5] * 6), "fp16 grey")
        g, c = files.put("g.png", greys[0]), files.put("c.png", colour[0])
        rest = ("-i", f"in_bgr={c}", "-i", f"in_gray16={soft}")
        expect_error(run("predict", PATHS["images"], "-i", f"in_rgb={g}", "-i", f"in_gray={g}", *rest), 1, "in_rgb", "HxWx3")
        expect_error(run("predict", PATHS["images"], "-i", f"in_rgb={c}", "-i", f"in_gray={c}", *rest), 1, "in_gray", "HxW")
        small = files.put("s.png", png(3, 1, 8, 2, [b"\0" + rgb[0]]))
        expect_error(run("predict", PATHS["images"], "-i", f"in_rgb={small}", "-i", f"in_gray={g}", *rest), 1, "in_rgb",
                     "height x width 2x3, found 1x3x3; resize the image")
        batch = files.put("b.npy", npy(plain, (1, 2, 3, 3), "|u1"))
        expect_error(run("predict", PATHS["images"], "-i", f"in_rgb={batch}", "-i", f"in_gray={g}", *rest), 1, "in_rgb",
                     "1x2x3x3; pass one image without a batch")


@test()
def _():
    """predict: damaged arrays, archives and images are one error each"""
    good = npy([1, 2, 3, 4], (1, 4))
    arrays = {
        "empty": b"", "magic": b"x" + good[1:], "version": good[:6] + b"\x09" + good[7:], "cut": good[:-1],
        "long": good + b"0", "type": npy([1], (1,), "<U4"), "object": npy([1], (1,), "|O"), "complex": npy([1], (1,), "<c8"),
        "rank": npy([], (0,) * 9), "huge": good[:10] + good[10:].replace(b"(1,4,)", b"(99999999999999999999,)"),
        "minus": good.replace(b"(1,4,)", b"(-1,4)"), "header": good[:8] + b"\xff\xff" + good[10:],
        "no shape": good.replace(b"shape", b"shope"),
    }
    with Files() as files:
        for name, data in arrays.items():
            path = files.put("x.npy", data)
            expect_error(run("predict", PATHS["overflow"], "-i", f"x={path}"), 1, "cannot read array", path, "expected")
        result = run("predict", PATHS["overflow"], "-i", "x=" + files.put("x.npy", arrays["complex"]))
        expect_error(result, 1, "found '<c8'; write it")
        for data, kind in ((b"\xff\xd8\xff\xe0 JFIF", "a JPEG image"), (b"GIF89a", "a GIF image"), (b"RIFF....WEBP", "a WebP image"),
                           (b"PK\3\4....", "an archive"), (b"plain text", "other bytes"), (b"", "other bytes")):
            path = files.put("x.jpg", data)
            expect_error(run("predict", PATHS["overflow"], "-i", f"x={path}"), 1, path, "a .npy or .png file", f"found {kind}")
        archive = npz({"x": good}, zipfile.ZIP_DEFLATED)
        directory = archive.index(b"PK\1\2")
        damaged = {
            "empty": b"", "no end": archive[:-22], "sum": archive[:directory + 16] + b"\0" + archive[directory + 17:],
            "method": archive[:directory + 10] + b"\x0c" + archive[directory + 11:],
            "offset": archive[:directory + 42] + b"\xff\xff\xff\x7f" + archive[directory + 46:],
            "bomb": archive[:directory + 24] + b"\xf0\xff\xff\xff" + archive[directory + 28:],
            "entry": archive[:directory] + b"QK" + archive[directory + 2:],
            "data": archive[:40] + b"\xff" * 8 + archive[48:],
        }
        for name, data in damaged.items():
            expect_error(run("predict", PATHS["overflow"], "-i", files.put("x.npz", data)), 1, "cannot read array", "x.npz")
        for cut in range(0, len(archive), 7):
            expect_error(run("predict", PATHS["overflow"], "-i", files.put("x.npz", archive[:cut])), 1, "x.npz")
        image = png(3, 2, 8, 2, [b"\0" + bytes(9)] * 2)
        pictures = {"cut": image[:-13], "sum": image[:20] + b"\x01" + image[21:], "chunk": image[:8] + b"\xff" + image[9:],
                    "interlaced": png(3, 2, 8, 2, [b"\0" + bytes(9)] * 2, interlace=1), "depth": png(3, 2, 3, 2, [b""]),
                    "size": png(0, 2, 8, 2, [b""]), "few": png(3, 2, 8, 2, [b"\0"]), "filter": png(3, 1, 8, 2, [b"\5" + bytes(9)]),
                    "palette": png(3, 1, 8, 3, [b"\0\0\1\2"], b"\1\2\3"), "bomb": png(1 << 20, 1 << 20, 8, 2, [b""]),
                    "much": png(3, 1, 8, 2, [b"\0" + bytes(90)])}
        for name, data in pictures.items():
            path = files.put("x.png", data)
            expect_error(run("predict", PATHS["images"], "-i", f"in_rgb={path}"), 1, "cannot read image", path)


@test()
def _():
    """predict: usage errors and files that are not there"""
    with Files() as files:
        x = files.put("x.npy", npy([1], (1,)))
        expect_error(run("predict"), 2, "PACKAGE")
        expect_error(run("predict", PATHS["overflow"], "-i", x), 2, "NAME=FILE.npy")
        expect_error(run("predict", PATHS["overflow"], "-i", f"={x}"), 2, "NAME=FILE.npy")
        expect_error(run("predict", PATHS["overflow"], "-i", "x="), 2, "NAME=FILE.npy")
        expect_error(run("predict", PATHS["overflow"], "-i", "x=" + files.put("a.npz", npz({}))), 2, "archive")
        expect_error(run("predict", PATHS["overflow"], "-i", "x=/nonexistent.npy"), 1, "/nonexistent.npy")
        expect_error(run("predict", PATHS["overflow"], "-i", f"x={x}", "-i", f"x={x}"), 1, "'x'", "twice")
        expect_error(run("predict", PATHS["overflow"], "-i", f"z={x}"), 1, "'z'", "'x'")
        expect_error(run("predict", PATHS["overflow"]), 1, "'x'", "found none")
        expect_error(run("predict", PATHS["overflow"], "--repeat", 0), 2, "--repeat")
        expect_error(run("predict", PATHS["overflow"], "--mode", "fast"), 2, "exact or emulate-fp16")
        expect_error(run("predict", PATHS["unknown_op"]), 1, "no_such_op")
        expect_error(run("predict", "/nonexistent.mlpackage"), 1, "/nonexistent.mlpackage")
        expect_error(run("predict", PATHS["accumulate"], "--target", "iOS17"), 1, "iOS17", "iOS 18", "several functions")
        expect_error(run("predict", PATHS["accumulate"], "--target", "Windows"), 1, "Windows", "iOS18")
        expect_error(run("predict", PATHS["accumulate"], "--target", "iOS14"), 1, "iOS 15")


@test()
def _():
    """predict --mode emulate-fp16 names the op that overflowed first"""
    with Files() as files:
        x = files.put("x.npy", npy([1, 2, 0, -3], (1, 4)))
        rough = run("predict", PATHS["overflow"], "-i", f"x={x}", "--mode", "emulate-fp16")
        expect_done(rough)
        expect("op big" in rough.errors and " 60000 inf 0 -inf" in rough.text, rough.errors + rough.text)
        document = json.loads(run("predict", PATHS["overflow"], "-i", f"x={x}", "--mode", "emulate-fp16", "--json").out)
        expect_equal(document["overflow_op"], "big", "overflow_op")
        expect_equal(document["outputs"][0]["first"][1], None, "an infinity in JSON")


@test()
def _():
    """predict: Ctrl-C ends a loop without end, exit code 130"""
    with Files() as files:
        x = files.put("x.npy", npy([1], (1,), "<i4"))
        process = subprocess.Popen([PROGRAM, "predict", PATHS["endless"], "-i", f"x={x}"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        expect_equal((process.returncode, out, err), (130, b"", b""), "interrupted")


# ---- inspect ----


@test()
def _():
    """inspect: a package's facts, functions, states, metadata, ops and reasons"""
    facts = run("inspect", PATHS["accumulate"])
    expect_done(facts)
    for part in ("minimum systems     iOS 18, macOS 15", "Xcode 16", "function add (default): CoreML8, 5 ops", "Sums up.",
                 "needs iOS 18", "several functions", "states, function add, at sum", "state   sum"):
        expect(part in facts.text, f"{facts.text!r} lacks {part!r}")
    expect_equal(run("inspect", PATHS["accumulate"], "--metadata").text, "key = value\n", "--metadata")
    states = run("inspect", PATHS["accumulate"], "--states").text
    expect(states.startswith("sum ") and states.endswith("1 states, 8 bytes\n"), states)
    ops = run("inspect", PATHS["accumulate"], "--ops").text
    expect("func add<CoreML8>" in ops and "func twice<CoreML8>" in ops and "read_state(" in ops, ops)
    functions = run("inspect", PATHS["shapes"], "--functions").text
    expect("ranged" in functions and "[2 (1 to 4), 2]" in functions and "one of 2, 4" in functions, functions)
    expect("optional, default 0.25" in functions, functions)
    expect("image BGR [2, 3, 3]" in run("inspect", PATHS["images"], "--functions").text, "images")
    expect_equal(run("inspect", PATHS["shapes"], "--weights").text, "0 weights, 0 bytes\n", "--weights")
    expect("minimum systems     iOS 16" in run("inspect", PATHS["unknown_op"]).text, "a program that cannot run is shown")


@test()
def _():
    """inspect: why a function is no language model"""
    facts = run("inspect", PATHS["accumulate"])
    expect("no language model: add: " in facts.text, facts.text)
    ops = run("inspect", PATHS["accumulate"], "--ops").text
    expect("raised add: 0 of " in ops and "no language model: twice: " in ops, ops)
    why = run("inspect", PATHS["accumulate"], "--why-not", "add")
    expect_done(why)
    expect("function add\n" in why.text or "function add: " in why.text, why.text)
    nothing = run("inspect", PATHS["accumulate"], "--why-not", "no_such_op")
    expect("function add\nno op has 'no_such_op' in its name or type\n" in nothing.text, nothing.text)
    document = json.loads(run("inspect", PATHS["accumulate"], "--json", "--why-not", "add").out)
    expect_equal(sorted(document["why_not"]), ["add", "twice"], "functions")
    expect_equal([m["is_model"] for m in document["language_models"]], [False, False], "models")
    expect(all(m["reason"] and m["contract"] == [] for m in document["language_models"]), "reasons")
    expect_error(run("inspect", PATHS["accumulate"], "--why-not", "add", "--plan"), 2, "--why-not", "without --plan")


@test()
def _():
    """inspect --json of a package"""
    result = run("inspect", PATHS["accumulate"], "--json", "--states", "--ops", "--metadata", "--weights")
    expect_done(result)
    document = json.loads(result.out)
    expect_equal(document["default_function"], "add", "default")
    expect_equal([f["name"] for f in document["functions"]], ["add", "twice"], "functions")
    expect_equal(document["functions"][0]["inputs"][0]["shape"], [1, 4], "shape")
    expect_equal(document["states"], [{"name": "sum", "dtype": "float16", "shape": [1, 4], "bytes": 8}], "states")
    expect_equal((document["metadata"], document["weights"]), ({"key": "value"}, []), "metadata")
    expect(any(r["feature"] == "states" and r["spec_version"] == 9 for r in document["requirements"]), "requirements")
    expect(any("write_state" in line for line in document["ops"]), "ops")


@test()
def _():
    """inspect: packages that are none, options that do not fit"""
    expect_error(run("inspect", PATHS["accumulate"], "--plan"), 1, "language model", "predict")
    expect_error(run("inspect", PATHS["accumulate"], "--plan", "--states"), 2, "--states", "without --plan")
    expect_error(run("inspect", PATHS["accumulate"], "--target", "iOS16"), 1, "iOS16", "iOS 18")
    expect_done(run("inspect", PATHS["accumulate"], "--target", "macOS15"))
    expect_error(run("inspect", "/nonexistent.mlpackage"), 1, "/nonexistent.mlpackage")
    with tempfile.TemporaryDirectory(suffix=".mlpackage") as folder:
        expect_error(run("inspect", folder), 1, "Manifest.json")
