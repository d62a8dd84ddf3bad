"""Cases of `tegula quantize`: packages of every exporter at hand get other weights and still answer as they did; tables
stay; what cannot be quantized is one sentence and leaves nothing behind."""

import json
import os
import pathlib
import resource
import tempfile

from harness import ROOT, Skip, expect, expect_done, expect_equal, expect_error, read_npy, run, test

TINY = ROOT / "tests" / "data" / "tiny"
SHARED = ROOT.parent / "shared" / "data"
FOLDER = tempfile.TemporaryDirectory()
IDS = "1,5,9,44,123,7,7,99,3,250,61,12,8,90,33,2,18,19,77,101"


def place(name):
    return os.path.join(FOLDER.name, name)


def source():
    path = place("source.mlpackage")
    if not os.path.exists(path):
        expect_done(run("convert", TINY / "llama.gguf", "-o", path, "--weights", "f16"))
    return path


def quantize(package, name, *options):
    result = run("quantize", package, "-o", place(name), "--force", "--json", *options)
    expect_done(result)
    return json.loads(result.out)


def logits(model):
    file = place("logits.npy")
    expect_done(run("logits", model, "--ids", IDS, "--last", "--mode", "exact", "-o", file))
    return read_npy(file)[1]


def distance(a, b):
    return max(abs(x - y) for x, y in zip(a, b)) / max(abs(x) for x in a)


@test()
def rules():
    """quantize: each kind of encoding answers nearly as the source; the report adds up"""
    dense = logits(source())
    for options, most, bits in ((("--weights", "int8"), 0.05, 9), (("--weights", "lut8"), 0.05, 12),
                                (("--weights", "int4", "--group-size", "16", "--fit"), 0.5, 7),
                                (("--weights", "lut4/8", "--fit"), 0.5, 9), (("--weights", "lut6/tensor"), 0.2, 8)):
        report = quantize(source(), "q.mlpackage", *options)
        found = distance(dense, logits(place("q.mlpackage")))
        expect(found < most, f"{options}: logits differ by {found}")
        expect(report["bits_per_weight"] < bits, f"{options}: {report['bits_per_weight']} bits")
        expect(all(w["relative_error"] < 0.2 for w in report["weights"]), options)
        expect_equal(sum(w["bytes"] for w in report["weights"]), report["bytes"], "bytes")
        reasons = {w["reason"] for w in report["left_alone"]}
        known = {"a table that turns other values: RoPE", "not used as a weight", "not above the threshold"}
        expect(reasons <= known, reasons)


@test()
def ends():
    """quantize: embedding and head have int8 where weights have less, or what is asked for"""
    report = quantize(source(), "q.mlpackage", "--weights", "lut4/tensor", "--threshold", "0")
    for w in report["weights"]:
        expect_equal(w["encoding"], "lut4/tensor" if w["role"] == "weight" else "int8/channel", w["name"])
    expect(any("embedding" in w["role"] for w in report["weights"]), "no embedding")
    expect(any("head" in w["role"] for w in report["weights"]), "no head")
    report = quantize(source(), "q.mlpackage", "--embedding", "uint8/tensor,asym", "--head", "lut8/tensor")
    expect({"uint8/tensor,asym", "lut8/tensor"} & {w["encoding"] for w in report["weights"]}, report["weights"])


@test()
def patterns():
    """quantize: rules and skips by name and op"""
    report = quantize(source(), "q.mlpackage", "--rule", "*ffn_down*=lut6/tensor", "--skip", "*attn_q*", "--rule",
                      "op:gather=uint8")
    encodings = {w["name"]: w["encoding"] for w in report["weights"]}
    expect(all(e == "lut6/tensor" for n, e in encodings.items() if "ffn_down" in n), encodings)
    expect(not any("attn_q_" in n for n in encodings), encodings)
    expect(any(w["reason"] == "skipped by a pattern" for w in report["left_alone"]), report["left_alone"])


@test()
def pruned():
    """quantize: sparse weights, by share and by n:m"""
    for options in (("--sparsity", "0.25"), ("--n-m", "2:4"), ("--weights", "lut4/tensor", "--n-m", "3:4")):
        report = quantize(source(), "q.mlpackage", *options)
        expect(any("," in w["encoding"] for w in report["weights"]), report["weights"])
        expect_done(run("inspect", place("q.mlpackage"), "--ops"))
        logits_are_numbers = all(x == x for x in logits_by_program("q.mlpackage"))
        expect(logits_are_numbers, options)


def logits_by_program(name):
    file = place("p.npy")
    result = run("logits", place(name), "--ids", IDS, "--last", "--mode", "exact", "-o", file)
    return read_npy(file)[1] if result.code == 0 else [0.0]


@test()
def calibrated():
    """quantize --calibrate: every product of the model has statistics, and other weights come out"""
    text = place("text.txt")
    pathlib.Path(text).write_text("The quick brown fox jumps over the lazy dog. " * 40, encoding="utf-8")
    plain = quantize(source(), "a.mlpackage", "--weights", "lut4/tensor", "--threshold", "0")
    report = quantize(source(), "b.mlpackage", "--weights", "lut4/tensor", "--threshold", "0", "--calibrate", text,
                      "--check")
    expect(not any(w["calibrated"] for w in plain["weights"]), "calibrated without a text")
    expect(all(w["calibrated"] for w in report["weights"] if w["op"] == "linear"), report["weights"])
    weights = [pathlib.Path(place(n), "Data/com.apple.CoreML/weights/weight.bin").read_bytes()
               for n in ("a.mlpackage", "b.mlpackage")]
    expect(weights[0] != weights[1], "the text changed nothing")
    expect(report["check"]["kl_mean"] >= 0 and report["check"]["tokens"] > 0, report["check"])


@test()
def other_exporters():
    """quantize: packages of other exporters, one function or several"""
    found = [p for p in sorted((SHARED / "stateful-tiny").glob("*_none.mlpackage"))] if SHARED.exists() else []
    if not found:
        raise Skip("no packages beside the checkout")
    for package in found:
        report = quantize(package, "o.mlpackage", "--weights", "int8", "--threshold", "256")
        expect(report["weights"], f"{package.name}: no weights")
        expect(all(w["relative_error"] < 0.03 for w in report["weights"]), package.name)
        a, b = run("logits", package, "--ids", IDS, "--last", "--mode", "exact", "--json"), run(
            "logits", place("o.mlpackage"), "--ids", IDS, "--last", "--mode", "exact", "--json")
        expect_equal(b.code, a.code, f"{package.name}: {b.err}")
        if a.code == 0:
            x, y = dict(json.loads(a.out)["top"]), dict(json.loads(b.out)["top"])
            close = [abs(x[i] - y[i]) for i in x if i in y]
            expect(close and max(close) < 0.1 * max(abs(v) for v in x.values()), f"{package.name}: logits differ")


@test()
def same_bytes():
    """quantize: threads and memory change nothing"""
    files = []
    for name, options in (("s1.mlpackage", ("--threads", "1")), ("s2.mlpackage", ("--threads", "3", "--memory", "1"))):
        quantize(source(), name, "--weights", "int4/16", "--fit", *options)
        files.append(pathlib.Path(place(name), "Data/com.apple.CoreML/weights/weight.bin").read_bytes())
    expect(files[0] == files[1], "weights differ")


def encoded():
    path = place("encoded.mlpackage")
    if not os.path.exists(path):
        expect_done(run("convert", TINY / "llama.gguf", "-o", path, "--weights", "lut6/tensor"))
    return path


@test()
def again():
    """quantize --again: encoded weights get another encoding, or are decoded; nothing of the old one is left"""
    before = logits(encoded())
    for rule, most in (("f16", 0.002), ("int8", 0.05), ("int4/16", 0.5)):
        report = quantize(encoded(), "again.mlpackage", "--weights", rule, "--again", "--fit", "--threshold", "0")
        expect(report["weights"] and all(w["encoding"].startswith(rule[:4]) or "int8" in w["encoding"]
                                         for w in report["weights"]), report["weights"])
        ops = run("inspect", place("again.mlpackage"), "--ops").text
        expect("constexpr_lut_to_dense" not in ops, f"{rule}: the palette is still there")
        found = distance(before, logits(place("again.mlpackage")))
        expect(found < most, f"{rule}: logits differ by {found}")
    quantize(source(), "pruned.mlpackage", "--weights", "lut4/tensor,2:4")
    before = logits(place("pruned.mlpackage"))
    quantize(place("pruned.mlpackage"), "again.mlpackage", "--weights", "f16", "--again")
    expect(distance(before, logits(place("again.mlpackage"))) < 0.002, "a pruned weight decodes to something else")


@test()
def before_ios_18():
    """quantize: programs of iOS 15 to 17 get the forms that these systems have; others are refused by name"""
    toys = [p for p in (SHARED / "coreml-public" / "crepe-tiny.mlpackage",) if p.exists()]
    if not toys:
        raise Skip("no packages beside the checkout")
    for package in toys:
        old = json.loads(run("inspect", package, "--json").out)
        for rule in ("int8", "uint8/tensor,asym", "lut8", "lut4/tensor", "f16,sparse=0.5", "f16,2:4"):
            report = quantize(package, "old.mlpackage", "--weights", rule)
            expect(report["weights"], f"{package.name}: no weights")
            new = json.loads(run("inspect", place("old.mlpackage"), "--json").out)
            expect(new["spec_version"] <= max(old["spec_version"], 7), f"{rule}: {new['spec_version']}")
        for rule, words in (("int4", "scales of 4 bits"), ("lut4", "a palette for each group"),
                            ("int8/8", "scales by blocks"), ("lut3/tensor", "a palette of 8 entries"),
                            ("int8,2:4", "a pruned weight"), ("lut4/tensor,v2", "several values"),
                            ("int8,float", "offsets in fp16")):
            result = run("quantize", package, "-o", place("no.mlpackage"), "--weights", rule)
            expect_equal(result.code, 1, f"{rule}: {result.err}")
            expect(words.encode() in result.err and b"iOS 18" in result.err, f"{rule}: {result.err}")
        report = quantize(package, "old.mlpackage", "--weights", "lut4", "--fit")
        expect(any(w["encoding"].startswith("lut4/tensor") for w in report["weights"]), report["weights"])


@test()
def refusals():
    """quantize: what cannot be is one sentence, and nothing is left behind"""
    out = place("bad.mlpackage")
    cases = (((TINY / "llama.gguf",), 1, "expected a .mlpackage or .mlmodelc"),
             ((source(), "--weights", "int9"), 1, "cannot quantize: weights: expected keep, f16, int8"),
             ((encoded(), "--weights", "int4"), 1, "that are encoded already; encode them anew (--again)"),
             ((source(), "--weights", "int4/7"), 1, "or let it fit"),
             ((source(), "--rule", "x"), 1, "cannot quantize: pattern 1: expected NAME=RULE"),
             ((source(), "--embedding", "x"), 1, "cannot quantize: embedding"),
             ((source(), "--skip", "*"), 1, "expected a weight that a rule applies to and changes, found none"),
             ((encoded(), "--again", "--threshold", "999999"), 1, "applies to and changes, found none"),
             ((source(), "--rule", "nothing=int8"), 1, "pattern 1: expected a weight or op that it matches, found none"),
             ((source(), "--rule", "op:gemm=int8"), 1, "found none for 'op:gemm=int8'"),
             ((source(), "--calibrate", "/dev/null"), 1, "cannot calibrate: /dev/null: expected a text"),
             ((source(), "--check-file", "/dev/null"), 1, "cannot check: the text: expected at least 2 tokens"),
             ((source(), "--check-file", place("absent")), 1, "cannot read text"),
             ((source(), "--weights", "int4/8", "--group-size", "4"), 2, "expected one grain"),
             ((source(), "--granularity", "tensor", "--group-size", "4"), 2, "--granularity block"),
             ((place("absent.mlpackage"),), 1, "absent.mlpackage"))
    for arguments, code, words in cases:
        result = run("quantize", *arguments, "-o", out)
        expect_equal(result.code, code, f"{arguments}: {result.err}")
        expect(words.encode() in result.err, f"{arguments}: {result.err}")
        expect(not os.path.exists(out), f"{arguments}: something was left")
    result = run("quantize", source(), "-o", place("bad.txt"))
    expect(b"ends in .mlpackage" in result.err, result.err)
    result = run("quantize", source())
    expect_equal(result.code, 2, result.err)
    expect_done(run("quantize", source(), "-o", out))
    result = run("quantize", source(), "-o", out)
    expect(b"found one; remove it" in result.err, result.err)


@test()
def parts():
    """quantize: a model in parts is a folder of parts again, the rest of the folder as it is, whole or not there"""
    parts, small = place("parts"), place("small")
    expect_done(run("convert", TINY / "llama", "-o", parts, "--profile", "ane", "--split", "2", "--chunk", "32", "--ctx",
                    "128", "--ignore-rules"))
    os.symlink("nowhere", os.path.join(parts, "dead"))
    report = quantize(parts, "small", "--weights", "int8")
    expect_equal(len(report["weights"]), 12, "weights above the threshold")
    expect(sum(w["bytes"] for w in report["weights"]) == report["bytes"] < report["source_bytes"], report["bytes"])
    expect_equal(sorted(os.listdir(small)), sorted(n for n in os.listdir(parts) if n != "dead"), "files")
    for name in ("tegula.json", "tokenizer.json"):
        expect_equal(pathlib.Path(small, name).read_bytes(), pathlib.Path(parts, name).read_bytes(), name)
    expect(0 < distance(logits(parts), logits(small)) < 0.05, "logits differ")
    quantize(os.path.join(small, "tegula.json"), "back", "--weights", "f16", "--again")
    expect(distance(logits(small), logits(place("back"))) < 0.002, "decoded to something else")
    quantize(parts, "small", "--weights", "lut4/8", "--fit")  # --force: replaces
    rows = (((small, "-o", place("other")), "found none in 2 parts", "--again"),
            ((parts, "-o", small), "found one", "--force"),
            ((parts, "-o", place("x.mlpackage")), "without .mlpackage"),
            ((parts, "-o", place("nowhere/x")), "make folder", "No such file"),
            ((parts, "-o", FOLDER.name, "--force"), "one that holds parts"))
    for arguments, *words in rows:
        expect_error(run("quantize", *arguments), 1, *words)
    manifest = pathlib.Path(small, "tegula.json")
    for text, words in (('"path": "part-1.mlpackage"', ('"path": "../parts/part-1.mlpackage"', "parts[0]", "same folder")),
                        ('"tokenizer": "', ('"tokenizer": "../parts/', "tokenizer", "same folder"))):
        manifest.write_text(pathlib.Path(parts, "tegula.json").read_text().replace(text, words[0]))
        expect_error(run("quantize", small, "-o", place("other"), "--again"), 1, *words[1:])

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    expect_error(run("quantize", parts, "-o", place("other"), preexec_fn=limit), 1, "File too large")
    left = [n for n in os.listdir(FOLDER.name) if ".tmp" in n or n == "other"]
    expect_equal(left, [], "left")
