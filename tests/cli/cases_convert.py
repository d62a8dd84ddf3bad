"""Cases of `tegula convert`: models of each kind become packages that answer as they do, by our own executor and by an
independent NumPy program; what cannot be converted is one sentence and leaves nothing behind."""

import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from harness import LONG, PROGRAM, ROOT, Skip, expect, expect_done, expect_equal, expect_error, read_npy, run, test

TINY = ROOT / "tests" / "data" / "tiny"
FOLDER = tempfile.TemporaryDirectory()
IDS = "1,5,9,44,123,7,7,99,3,250,61,12,8,90,33,2,18,19,77,101"


def place(name):
    return os.path.join(FOLDER.name, name)


def convert(source, name, *options):
    result = run("convert", source, "-o", place(name), "--force", *options)
    expect_done(result)
    return result


def logits(model, *options):
    file = place("logits.npy")
    expect_done(run("logits", model, "--ids", IDS, "--last", "--mode", "exact", "-o", file, *options))
    return read_npy(file)[1]


def distance(a, b):
    return max(abs(x - y) for x, y in zip(a, b)) / max(abs(x) for x in a)


def numpy_logits(package, *options):
    """By tools/run-package.py; skips where there is no NumPy."""
    if subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode:
        raise Skip("no numpy")
    file = place("numpy.npy")
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "run-package.py"), package, "--ids", IDS, "-o", file,
                           *options],
                          capture_output=True, text=True, timeout=LONG)
    expect_equal(done.returncode, 0, done.stderr[-400:])
    return read_npy(file)[1]


@test()
def portable_packages():
    """convert: packages of every tiny model give the logits of their source"""
    for family in sorted(p.name for p in TINY.iterdir() if (p / "config.json").exists()):
        convert(TINY / family, "a.mlpackage")
        expect(distance(logits(TINY / family), logits(place("a.mlpackage"))) < 0.02, f"{family}: logits differ")


@test()
def gguf_packages():
    """convert: a GGUF's package has its tokenizer: the same ids and text"""
    convert(TINY / "llama.gguf", "g.mlpackage", "--weights", "int8")
    text = "The café: 3 < 4\n"
    for options in ((), ("--special",), ("--bos", "on")):
        ids = [run("tokenize", m, "-p", text, *options) for m in (TINY / "llama.gguf", place("g.mlpackage"))]
        expect_done(ids[1])
        expect_equal(ids[1].out, ids[0].out, f"ids {options}")
    expect_done(run("run", place("g.mlpackage"), "-p", "Once", "-n", "4", "--temp", "0"))


@test()
def safetensors_tokenizer():
    """convert: a directory's tokenizer, options and template go along"""
    convert(TINY / "llama", "t.mlpackage")
    ids = [run("tokenize", m, "-p", "Once upon a time") for m in (TINY / "llama", place("t.mlpackage"))]
    expect_equal(ids[1].out, ids[0].out, "ids")
    items = json.loads(pathlib.Path(place("t.mlpackage"), "Manifest.json").read_text())["itemInfoEntries"].values()
    names = {i["name"] for i in items}
    expect({"tokenizer.json", "generation_config.json", "weights", "model.mlmodel"} <= names, names)


@test()
def second_opinion():
    """convert: NumPy computes the same logits from the files alone, for both profiles and all encodings"""
    ane = ("--profile", "ane", "--chunk", "32", "--ctx", "128", "--ignore-rules")
    rows = (("f16",), ("int8",), ("int4/16", "--fit"), ("lut4", "--fit"), ("lut6/tensor",), ("int8", *ane),
            ("lut4", "--fit", "--softmax", "online", "--kv-tile", "64", *ane),
            ("f16", "--softmax", "split", "--kv-tile", "32", *ane), ("f16", "--kv-tile", "1", *ane))
    for weights, *options in rows:
        convert(TINY / "llama", "n.mlpackage", "--weights", weights, *options)
        ours, theirs = logits(place("n.mlpackage")), numpy_logits(place("n.mlpackage"))
        expect(distance(theirs, ours) < 0.02, f"{weights} {options}: {distance(theirs, ours)}")


@test()
def judged_by_coremltools():
    """convert: coremltools accepts the packages; TEGULA_COREMLTOOLS_PYTHON names a Python that has it"""
    ane = ("--profile", "ane", "--chunk", "32", "--ctx", "128", "--ignore-rules", "--buckets", "64")
    made = []
    for i, options in enumerate((("--weights", "f16"), ("--weights", "int4/16", "--fit"), ("--weights", "lut4", "--fit"),
                                 ("--weights", "int8", *ane))):
        convert(TINY / "llama", f"c{i}.mlpackage", *options)
        made.append(place(f"c{i}.mlpackage"))
    python = os.environ.get("TEGULA_COREMLTOOLS_PYTHON", sys.executable)
    done = subprocess.run([python, str(ROOT / "tools" / "check-package.py"), *made], capture_output=True, text=True)
    if "# SKIP" in done.stdout:
        raise Skip("no coremltools")
    expect_equal(done.returncode, 0, done.stdout + done.stderr[-300:])


@test()
def report():
    """convert --json: shapes, sizes and errors of each weight, and the measured check"""
    result = convert(TINY / "llama", "r.mlpackage", "--weights", "int4/16", "--fit", "--check", "--json", "--ctx", "64")
    document = json.loads(result.out)
    expect_equal(document["packages"], 1, "packages")
    weights = {w["name"]: w for w in document["weights"]}
    expect(len(weights) >= 15, len(weights))
    for w in weights.values():
        expect(0 < w["relative_error"] < 0.2 and 4 < w["bits_per_weight"] < 9, w)
    check = document["check"]
    expect(check["tokens"] > 10 and 0 < check["kl_mean"] < 1 and check["perplexity_package"] > 1, check)
    size = os.path.getsize(place("r.mlpackage/Data/com.apple.CoreML/weights/weight.bin"))
    expect(document["weights_bytes"] <= size < document["weights_bytes"] + 128 * 200, size)


@test()
def repeated():
    """convert: the same model gives the same bytes, on one thread or several"""
    convert(TINY / "llama.gguf", "one.mlpackage", "--weights", "lut4", "--fit", "--threads", "1")
    convert(TINY / "llama.gguf", "two.mlpackage", "--weights", "lut4", "--fit", "--threads", "3", "--memory", "1")
    for root, _, files in os.walk(place("one.mlpackage")):
        for name in files:
            path = pathlib.Path(root, name)
            other = pathlib.Path(str(path).replace("one.mlpackage", "two.mlpackage"))
            expect_equal(path.read_bytes(), other.read_bytes(), name)


@test()
def packages_again():
    """convert: a recognised package gets other sizes, and keeps its tokenizer"""
    convert(TINY / "llama", "p.mlpackage", "--ctx", "128")
    convert(place("p.mlpackage"), "q.mlpackage", "--ctx", "64", "--chunk", "16", "--kv-tile", "32")
    expect(distance(logits(place("p.mlpackage")), logits(place("q.mlpackage"))) < 0.02, "logits differ")
    expect_done(run("tokenize", place("q.mlpackage"), "-p", "Once"))


@test()
def packages_with_one_matrix():
    """convert: a package whose embedding is its head goes to the other profile and back"""
    ane = ("--profile", "ane", "--chunk", "32", "--ctx", "128", "--ignore-rules")
    convert(TINY / "granite", "p.mlpackage", "--ctx", "128")
    for weights in ("f16", "int8", "keep"):
        convert(place("p.mlpackage"), "q.mlpackage", "--weights", weights, *ane)
        convert(place("q.mlpackage"), "r.mlpackage", "--weights", "keep")
        for name in ("q.mlpackage", "r.mlpackage"):
            expect(distance(logits(TINY / "granite"), logits(place(name))) < 0.02, f"{weights} {name}: logits differ")


@test()
def parts():
    """convert --split: a folder of packages, their join and the tokenizer"""
    shutil.rmtree(place("parts"), ignore_errors=True)
    convert(TINY / "llama", "parts", "--split", "2", "--profile", "ane", "--chunk", "32", "--ctx", "128",
            "--ignore-rules")
    names = sorted(os.listdir(place("parts")))
    expect({"part-1.mlpackage", "part-2.mlpackage", "tegula.json", "tokenizer.json"} <= set(names), names)
    joined = json.loads(pathlib.Path(place("parts/tegula.json")).read_text())
    expect_equal([p["path"] for p in joined["parts"]], ["part-1.mlpackage", "part-2.mlpackage"], "parts")
    expect(distance(logits(TINY / "llama"), logits(place("parts"))) < 0.02, "logits differ")
    expect_equal(run("tokenize", place("parts"), "-p", "Once").out, run("tokenize", TINY / "llama", "-p", "Once").out,
                 "ids")


@test()
def explained():
    """convert --explain: choices and rules, and nothing is written"""
    result = run("convert", TINY / "llama", "--explain", "--profile", "ane", "--ignore-rules")
    expect_done(result)
    expect("SH" in result.text and len(result.text.splitlines()) > 3, result.text)


@test()
def refused():
    """convert: wrong options and models are one sentence each, and leave nothing"""
    empty = place("empty")
    os.makedirs(empty, exist_ok=True)
    out = os.path.join(empty, "x.mlpackage")
    llama = TINY / "llama"
    rows = (
        ((llama,), 2, "--output"),
        ((llama, "-o", out + ".zip"), 1, "ends in .mlpackage"),
        ((llama, "-o", out, "--weights", "int5"), 1, "weights", "expected keep, f16", "'int5'"),
        ((llama, "-o", out, "--weights", "int4/48"), 1, "expected", "divide"),
        ((llama, "-o", out, "--weights", "int4/32", "--group-size", "16"), 2, "--group-size", "keep one"),
        ((llama, "-o", out, "--granularity", "tensor", "--group-size", "16"), 2, "--group-size"),
        ((llama, "-o", out, "--target", "iOS17"), 1, "expected iOS18", "iOS17", "read_state", "CoreML8"),
        ((llama, "-o", out, "--target", "watchOS10"), 1, "watchOS11", "found watchOS10"),
        ((llama, "-o", out, "--rule", "blk"), 1, "cannot convert: pattern 1: expected NAME=RULE", "found 'blk'"),
        ((llama, "-o", out, "--weights", "keep/32"), 1, "weights", "expected keep"),
        ((llama, "-o", os.path.join(empty, "x"), "--profile", "ane", "--part-size", "100"), 1, "rule", "in one part"),
        ((llama, "-o", out, "--shapes", "some"), 2, "range or enumerated"),
        ((llama, "-o", out, "--target", "Windows"), 1, "target", "Windows"),
        ((llama, "-o", out, "--ctx", "1M"), 1, "ctx", "expected at most", "1048576"),
        ((llama, "-o", out, "--profile", "mps"), 2, "portable or ane", "mps"),
        ((llama, "-o", out, "--split", "2"), 1, "a folder for the parts"),
        ((llama, "-o", empty, "--split", "2", "--force"), 1, "expected no file or folder of that name"),
        ((llama, "-o", os.path.join(empty, "x"), "--split", "2", "--profile", "portable"), 1, "parts", "profile ane"),
        ((llama, "-o", os.path.join(empty, "x"), "--part-size", "1G"), 1, "parts", "profile ane"),
        ((llama, "-o", out, "--profile", "ane", "--chunk", "1", "--ignore-rules"), 1, "expected 2 to the context"),
        ((llama, "-o", out, "--profile", "ane", "--chunk", "30"), 1, "rule SH"),
        ((llama, "-o", place("nowhere/x.mlpackage")), 1, "No such file"),
        ((place("nothing"), "-o", out), 1, "nothing"),
        ((llama, "-o", out, "--rule", "blk.*=int8", "--skip", "none*"), 1, "pattern 1", "found none for 'blk.*=int8'"),
        ((llama, "-o", os.path.join(empty, "x"), "--rule", "op:conv=int8", "--profile", "ane", "--split", "2",
          "--ignore-rules"), 1, "pattern 1", "found none for 'op:conv=int8'"),
        ((llama, "-o", out, "--profile", "ane", "--shapes", "enumerated"), 1, "shapes", "one shape each"),
        ((llama, "-o", out, "--check-file", "/dev/null"), 1, "cannot check", "at least 2 tokens"),
        ((llama, "-o", out, "--calibrate", "/dev/null", "--weights", "int8"), 1, "cannot calibrate", "found none"),
    )
    for arguments, code, *words in rows:
        expect_error(run("convert", *arguments), code, *words)
        expect_equal(os.listdir(empty), [], f"left by {arguments}")


@test()
def existing():
    """convert: an existing package needs --force, and stays as it is where the new one fails"""
    convert(TINY / "llama", "e.mlpackage")
    before = pathlib.Path(place("e.mlpackage"), "Manifest.json").read_bytes()
    expect_error(run("convert", TINY / "phi3", "-o", place("e.mlpackage")), 1, "found one", "--force")
    expect_error(run("convert", TINY / "phi3", "-o", place("e.mlpackage"), "--force", "--weights", "int4/7"), 1,
                 "divide")
    expect_equal(pathlib.Path(place("e.mlpackage"), "Manifest.json").read_bytes(), before, "manifest")
    mine = place("mine.mlpackage")
    os.makedirs(mine)
    convert(TINY / "llama", "mine.mlpackage")  # an empty folder
    shutil.rmtree(mine)
    os.makedirs(mine)
    pathlib.Path(mine, "thesis.txt").write_text("years of work")
    expect_error(run("convert", TINY / "llama", "-o", mine, "--force"), 1, "a package to replace", "remove it yourself")
    expect_equal(os.listdir(mine), ["thesis.txt"], "a folder that is no package")


def with_tensor(source, folder, name, change):
    """A copy of a safetensors directory with other bytes in one tensor: `change` gets them and its element size."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    for file in pathlib.Path(folder).glob("*.safetensors"):
        data = bytearray(file.read_bytes())
        n = int.from_bytes(data[:8], "little")
        tensor = json.loads(data[8:8 + n]).get(name)
        if tensor:
            begin, end = (8 + n + at for at in tensor["data_offsets"])
            data[begin:end] = change(data[begin:end], {"F32": 4, "F16": 2, "BF16": 2}[tensor["dtype"]])
            os.chmod(file, 0o644)
            file.write_bytes(data)
            return
    raise AssertionError(f"no tensor {name}")


@test()
def beyond_half_floats():
    """convert: a residual stream that passes 65504, as Gemma 3's does, is written so that half floats hold it"""
    source = place("large")
    weight = "model.layers.0.post_feedforward_layernorm.weight"
    with_tensor(TINY / "gemma3", source, weight, lambda old, size: b"\x1c\x47" * (len(old) // size))  # 39936 as bf16
    for i, profile in enumerate(((), ("--profile", "ane", "--chunk", "32", "--ctx", "128", "--ignore-rules"))):
        convert(source, f"l{i}.mlpackage", *profile)
        expect(distance(logits(place(f"l{i}.mlpackage")), logits(source)) < 0.02, f"{profile}: logits differ")
        halves = numpy_logits(place(f"l{i}.mlpackage"), "--half")
        expect(distance(halves, logits(source)) < 0.1, f"{profile}: {distance(halves, logits(source))} in halves")
    again = run("convert", place("l0.mlpackage"), "--explain")
    expect("divided by 32" in run("convert", source, "--explain").text and "divided" not in again.text, again.text)


@test()
def existing_parts():
    """convert --split --force: a folder of parts is replaced whole, another folder never"""
    options = ("--split", "2", "--profile", "ane", "--chunk", "32", "--ctx", "128", "--ignore-rules")
    shutil.rmtree(place("again"), ignore_errors=True)
    convert(TINY / "llama", "again", *options)
    expect_error(run("convert", TINY / "qwen3", "-o", place("again"), *options), 1, "found one", "--force")
    pathlib.Path(place("again"), "old").write_text("x")
    convert(TINY / "qwen3", "again", *options)
    expect(not os.path.exists(place("again/old")), "the old folder is still there")
    expect(distance(logits(TINY / "qwen3"), logits(place("again"))) < 0.02, "logits differ")
    expect(not [n for n in os.listdir(FOLDER.name) if ".tmp" in n], os.listdir(FOLDER.name))


@test()
def part_sizes():
    """convert --part-size: as many parts as the limit asks for"""
    shutil.rmtree(place("small"), ignore_errors=True)
    result = convert(TINY / "llama", "small", "--part-size", "120k", "--profile", "ane", "--chunk", "32", "--ctx", "128",
                     "--ignore-rules", "--json")
    expect(json.loads(result.out)["packages"] >= 2, result.text)
    for part in pathlib.Path(place("small")).glob("*.mlpackage"):
        size = os.path.getsize(part / "Data/com.apple.CoreML/weights/weight.bin")
        expect(size < 160 << 10, f"{part.name}: {size}")
    expect(distance(logits(TINY / "llama"), logits(place("small"))) < 0.02, "logits differ")


@test()
def rules_by_name():
    """convert --rule, --skip: by tensor and by op, as quantize has them"""
    result = convert(TINY / "llama.gguf", "n.mlpackage", "--weights", "int4/16", "--fit", "--rule", "*ffn_down*=lut6",
                     "--rule", "op:gather=f16", "--skip", "blk.0.attn_q*", "--json")
    encodings = {w["name"]: w["encoding"] for w in json.loads(result.out)["weights"]}
    expect(all(e.startswith("lut6") for n, e in encodings.items() if "ffn_down" in n), encodings)
    expect_equal(encodings["blk.0.attn_q.weight"], "f16", "skipped")
    expect(encodings["token_embd.weight"].startswith("f16"), encodings)
    expect(encodings["blk.1.attn_q.weight"].startswith("int4"), encodings)


@test()
def pruned_and_vectors():
    """convert: pruned weights and palettes of vectors, in both profiles, give what NumPy gives"""
    ane = ("--profile", "ane", "--chunk", "32", "--ctx", "128", "--ignore-rules")
    for weights in ("int8,sparse=0.3", "lut4/tensor,2:4", "f16,sparse=0.3", "lut6/tensor,v2"):
        for options in ((), ane):
            convert(TINY / "llama", "v.mlpackage", "--weights", weights, *options)
            ours, theirs = logits(place("v.mlpackage")), numpy_logits(place("v.mlpackage"))
            expect(distance(theirs, ours) < 0.02, f"{weights} {options}: {distance(theirs, ours)}")


@test()
def kept():
    """convert --weights keep: a package's codes go into the new one bit for bit, in either profile"""
    ane = ("--profile", "ane", "--chunk", "32", "--ctx", "128", "--ignore-rules")
    for weights in ("int4/16", "int8", "uint4/16", "lut4/8", "lut6/tensor", "int8,asym"):
        convert(TINY / "llama", "k.mlpackage", "--weights", weights, "--fit")
        for options in (("--ctx", "96", "--chunk", "16"), ane):
            result = convert(place("k.mlpackage"), "l.mlpackage", "--weights", "keep", "--json", *options)
            rows = json.loads(result.out)["weights"]
            expect(rows and all(w["encoding"] == "kept" and w["exact"] for w in rows), f"{weights}: {rows[:2]}")
            expect(distance(logits(place("k.mlpackage")), logits(place("l.mlpackage"))) < 0.002, f"{weights} {options}")
    convert(TINY / "llama", "k.mlpackage")
    rows = json.loads(convert(place("k.mlpackage"), "l.mlpackage", "--weights", "keep", "--json").out)["weights"]
    expect(all(w["encoding"] == "f16" for w in rows), rows)


@test()
def enumerated_shapes():
    """convert --shapes enumerated: calls of 1, 2, 4, ... and the chunk, in the description"""
    convert(TINY / "llama", "s.mlpackage", "--shapes", "enumerated", "--chunk", "48", "--ctx", "128")
    inputs = json.loads(run("inspect", place("s.mlpackage"), "--json").out)
    text = json.dumps(inputs)
    for n in (1, 2, 4, 8, 16, 32, 48):
        expect(f"[1, {n}]" in text, f"{n}: {text[:400]}")
    expect("[1, 64]" not in text, text[:400])
    expect(distance(logits(TINY / "llama"), logits(place("s.mlpackage"))) < 0.02, "logits differ")


@test()
def encodings_and_profiles():
    """convert: every encoding in both profiles, twice to the same bytes, and what it answers is what was written"""
    ane = ("--profile", "ane", "--chunk", "32", "--ctx", "128", "--ignore-rules")
    for profile in ((), ane):
        for rule in ("f16", "int8", "int4/32", "int4/32,float", "lut4/16", "lut6", "lut8", "keep"):
            options = ("--weights", rule, "--fit", *profile)
            convert(TINY / "llama.gguf", "m.mlpackage", *options, "--check", "--json")
            convert(TINY / "llama.gguf", "again.mlpackage", *options)
            expect_equal(contents("again.mlpackage"), contents("m.mlpackage"), f"{options}: bytes")


def contents(name):
    root = pathlib.Path(place(name))
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(root.rglob("*")) if p.is_file()}


@test()
def killed():
    """convert, quantize: killed at any moment, they leave no target, or a whole one; TEGULA_KILLS says how often (100 takes a while)"""
    ane = ("--profile", "ane", "--chunk", "32", "--ctx", "128", "--ignore-rules")
    llama, folder, moments = str(TINY / "llama.gguf"), place("killed"), random.Random(7)
    os.makedirs(folder, exist_ok=True)
    convert(llama, "killed.mlpackage")
    rows = [("x.mlpackage", "convert", llama, "--weights", weights, "--fit", *profile)
            for weights in ("lut4", "int4", "keep") for profile in ((), ane)]
    rows += [("parts", "convert", llama, "--weights", "int4", "--fit", "--split", "2", *ane),
             ("x.mlpackage", "quantize", place("killed.mlpackage"), "--weights", "int4", "--fit")]
    n_killed = 0
    for i in range(int(os.environ.get("TEGULA_KILLS", "16"))):
        name, *command = rows[i // 2 % len(rows)]
        target = os.path.join(folder, name)
        command = [PROGRAM, *command, "-o", target, "--force"]
        begin = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        length = time.monotonic() - begin
        if i % 2:  # half of the times there is an older one, which must stay or be replaced as a whole
            shutil.rmtree(target)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(moments.random() * length)
        except subprocess.TimeoutExpired:
            process.kill()
        n_killed += process.wait() == -9
        expect(os.path.exists(target) or i % 2, f"{i}: the older package is gone")
        if os.path.exists(target):
            expect_done(run("inspect", os.path.join(target, "part-2.mlpackage") if name == "parts" else target))
            expect_done(run("logits", target, "--ids", "1,2,3", "-o", place("killed.npy")))
    expect(n_killed, "never killed in time")
    for name, *command in rows:
        expect_done(run(*command, "-o", os.path.join(folder, name), "--force"))


@test()
def full_disk():
    """convert: a full disk is an error, and nothing is left"""
    folder = place("disk")
    os.makedirs(folder, exist_ok=True)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    done = subprocess.run([PROGRAM, "convert", str(TINY / "llama"), "-o", os.path.join(folder, "x.mlpackage")],
                          capture_output=True, text=True, timeout=LONG, preexec_fn=limit)
    expect_equal(done.returncode, 1, "exit code")
    expect("File too large" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr)
    expect_equal(os.listdir(folder), [], "left")


@test()
def not_a_number():
    """convert: a weight with NaN is named, with its place"""
    source = place("nan")
    with_tensor(TINY / "llama", source, "model.layers.0.self_attn.q_proj.weight",
                lambda old, size: old[:5 * size] + b"\xff" * size + old[6 * size:])
    expect_error(run("convert", source, "-o", place("nan.mlpackage"), "--weights", "int8"), 1, "q_proj",
                 "row 0, column 5")
    expect(not os.path.exists(place("nan.mlpackage")), "a package is left")
