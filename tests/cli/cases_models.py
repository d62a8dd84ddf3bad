"""Cases with language models in packages, in every form that exporters give them; compare; pipelines."""

import json
import os
import pathlib
import shutil
import tempfile

import lm_packages
import pipelines
from cases_programs import Files, npy, read_npz
from harness import ROOT, expect, expect_done, expect_equal, expect_error, read_npy, run, test

FOLDER = tempfile.TemporaryDirectory()
TINY = ROOT / "tests" / "data" / "tiny"
IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6]
LIST = ",".join(map(str, IDS))
FORMS = ("any", "pair", "both", "fixed", "stateless", "stateless_fixed", "parts", "parts_enumerated", "parts_ranged")


class Lazy(dict):
    """Folder of packages by kind, written at the first question."""

    def __missing__(self, kind):
        folder = pathlib.Path(FOLDER.name) / kind
        folder.mkdir()
        lm = lm_packages.Lm(gated=kind == "gated")
        self[kind] = pipelines.write_all(folder) if kind == "pipelines" else (lm, lm_packages.write_all(folder, lm))
        return self[kind]


MODELS = Lazy()


def logits(path, *options, ids=LIST):
    with Files() as files:
        result = run("logits", path, "--ids", ids, "-o", files.path("o.npy"), "--mode", "exact", *options)
        expect_done(result)
        (rows, width), values = read_npy(files.path("o.npy"))
    return [values[i * width:(i + 1) * width] for i in range(rows)]


def expect_near(found, wanted, bound, what):
    expect_equal((len(found), len(found[0])), (len(wanted), len(wanted[0])), what)
    gap = max(abs(a - b) for x, y in zip(found, wanted) for a, b in zip(x, y))
    expect(gap <= bound, f"{what}: {gap} apart, at most {bound} wanted")


def check_forms(kind, bound):
    lm, paths = MODELS[kind]
    halves, whole = lm.logits(IDS), lm.logits(IDS, rounded=float)
    for form in FORMS:
        # What is never written to a state is never rounded, unless a cache of half precision stands for it.
        wanted = whole if form.startswith("stateless") and kind == "plain" else halves
        for options in ((), ("--chunk", 5), ("--chunk", 1)):
            expect_near(logits(paths[form], *options), wanted, bound, f"{form} {options}")
        expect_near(logits(paths[form], "--last"), wanted[-1:], bound, f"{form}, the last row")


@test()
def _():
    """a language model that nothing recognises runs op by op, in every form of package"""
    check_forms("plain", 2e-5)
    text = run("inspect", MODELS["plain"][1]["any"], "--plan").errors
    expect("op by op" in text, text)


@test()
def _():
    """the same forms of one that is recognised"""
    check_forms("gated", 2e-5)
    expect_done(run("inspect", MODELS["gated"][1]["parts"], "--plan"))


@test()
def _():
    """inspect of parts: what a package gets, for the functions that run them all, by the folder or its tegula.json"""
    parts = MODELS["gated"][1]["parts"]
    for path in (parts, os.path.join(parts, "tegula.json")):
        text = run("inspect", path).text
        for words in ("minimum systems", "function decode (default)", "function prefill", "language model, 100 % of", "state   kv"):
            expect(words in text, f"{path}: {words}: {text}")
    expect("raised decode: " in run("inspect", parts, "--ops").text, "--ops")
    expect("is understood" in run("inspect", parts, "--why-not", "matmul").text, "--why-not")
    expect("states," in run("inspect", parts, "--states").text, "--states")
    document = json.loads(run("inspect", parts, "--json").out)
    expect_equal([m["is_model"] for m in document["language_models"]][0], True, "--json")
    expect_error(run("inspect", parts, "--target", "iOS17"), 1, "iOS17")


@test()
def _():
    """parts give the logits of the whole bit for bit, recognised or not"""
    for kind in ("plain", "gated"):
        paths = MODELS[kind][1]
        expect_equal(logits(paths["parts"]), logits(paths["both"]), kind)
        expect_equal(logits(os.path.join(paths["parts"], "tegula.json")), logits(paths["both"]), "by the file's name")


@test()
def _():
    """sessions of a program that runs op by op: perplexity by windows, bench, the context's end"""
    lm, paths = MODELS["plain"]
    import math
    rows, nll = lm.logits(IDS), 0
    for row, following in zip(rows, IDS[1:]):
        nll += math.log(sum(math.exp(x) for x in row)) - row[following]
    for form in ("any", "pair", "fixed", "parts"):
        result = run("perplexity", paths[form], "--ids", LIST, "--json", "--tokenizer", TINY / "llama.gguf")
        expect_done(result)
        document = json.loads(result.out)
        expect(abs(document["nll_sum"] - nll) < 1e-4, f"{form}: {document} {nll}")
        windows = run("perplexity", paths[form], "--ids", LIST, "--ctx", 12, "--stride", 4, "--json", "--tokenizer",
                      TINY / "llama.gguf")
        expect_done(windows)
        expect_equal(json.loads(windows.out)["tokens"], len(IDS) - 1, "tokens of windows")
        result = run("bench", paths[form], "--pp", 8, "--tg", 2, "--reps", 1, "--format", "json")
        expect_done(result)
    expect_error(run("logits", paths["any"], "--ids", ",".join(["1"] * 25), "-o", "-", "--last"), 1, "context full", "24")
    expect_error(run("logits", paths["stateless"], "--ids", ",".join(["1"] * 25), "-o", "-", "--last"), 1, "context full")
    expect_error(run("logits", paths["fixed"], "--ids", ",".join(["1"] * 24), "-o", "-", "--ctx", 30), 1, "30", "24")
    expect_error(run("logits", paths["any"], "--ids", "1,32", "-o", "-"), 1, "32")


@test()
def _():
    """run: a package that runs op by op continues a text as the model does that it was made from"""
    package = pathlib.Path(FOLDER.name) / "llama.mlpackage"
    expect_done(run("convert", TINY / "llama.gguf", "-o", package, "--weights", "f16"))
    options = ("-p", "hello world", "-n", 12, "--temp", 0, "--ignore-eos", "--json", "--mode", "exact")
    wanted = json.loads(run("run", package, *options).out)
    (package / "tegula.json").write_text('{"format": 1, "evaluate": true}')
    found = run("run", package, *options)
    expect_done(found)
    document = json.loads(found.out)
    expect_equal((document["text"], document["tokens"]), (wanted["text"], wanted["tokens"]), "text")
    expect_equal(document["overflow_op"], None, "overflow")
    result = run("run", package, "-p", "hello world", "-n", 4, "--temp", 0, "--mode", "emulate-fp16", "--json")
    expect_equal(json.loads(result.out)["options"]["mode"], "emulate-fp16", result.errors)


# ---- tegula.json ----


def with_manifest(name, text, form="any"):
    """A copy of a package with this tegula.json in it."""
    path = pathlib.Path(FOLDER.name) / f"{name}.mlpackage"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(MODELS["plain"][1][form], path)
    (path / "tegula.json").write_text(text if isinstance(text, str) else json.dumps({"format": 1, **text}))
    return str(path)


@test()
def _():
    """tegula.json: contract, functions, context, tokenizer and evaluate are obeyed"""
    lm, paths = MODELS["plain"]
    wanted = lm.logits(IDS)
    path = with_manifest("contract", {"contract": {"inputs": {"input_ids": "tokens", "causal_mask": "mask",
                                                              "current_pos": "position"}, "outputs": {"logits": "logits"}},
                                      "context": 22, "chunk": 3, "tokenizer": str(TINY / "llama.gguf")})
    expect_near(logits(path), wanted, 2e-5, "contract")
    expect_error(run("logits", path, "--ids", ",".join(["1"] * 23), "-o", "-"), 1, "context full", "22")
    expect_done(run("tokenize", path, "-p", "hello"))
    path = with_manifest("decode", {"functions": {"decode": "infer"}}, "pair")
    expect_near(logits(path), wanted, 2e-5, "decode alone")
    path = with_manifest("overwrites", {"overwrites": True}, "both")
    expect_near(logits(path), wanted, 2e-5, "padding that stays in the cache is never seen")
    expect_near(logits(path, "--last"), wanted[-1:], 2e-5, "and again")
    gated, paths = MODELS["gated"]
    copy = pathlib.Path(FOLDER.name) / "evaluate.mlpackage"
    shutil.copytree(paths["any"], copy)
    (copy / "tegula.json").write_text('{"format": 1, "evaluate": true}')
    expect("op by op" in run("inspect", copy, "--plan").errors, "evaluate")
    expect_near(logits(copy), gated.logits(IDS), 1e-4, "evaluate")
    beside = pathlib.Path(FOLDER.name) / "beside"
    beside.mkdir()
    shutil.copytree(paths["any"], beside / "m.mlpackage")
    (beside / "tegula.json").write_text('{"format": 1, "context": 20}')
    expect_error(run("logits", beside / "m.mlpackage", "--ids", LIST, "-o", "-"), 1, "20")


@test()
def _():
    """tegula.json: every wrong field is named"""
    for text, parts in (
            ("[]", ["object"]), ("{", ["tegula.json"]), ({"context": 0}, ["context", "whole number"]),
            ({"context": "many"}, ["context", "a string"]), ({"chunk": 1.5}, ["chunk", "a number"]),
            ({"evaluate": 1}, ["evaluate", "true or false"]), ({"overwrites": None}, ["overwrites", "null"]),
            ({"conext": 5}, ["conext", "context"]), ('{"context": 5}', ["format", "none"]),
            ('{"format": 2}', ["format", "expected 1"]), ({"tokenizer": ""}, ["tokenizer", "string"]),
            ({"functions": []}, ["functions", "object"]), ({"functions": {"decod": "x"}}, ["functions.decod", "decode"]),
            ({"functions": {"decode": 1}}, ["functions.decode", "whole number"]),
            ({"functions": {"decode": "none"}}, ["function", "none"]),
            ({"contract": []}, ["contract", "object"]), ({"contract": {"input": {}}}, ["contract.input", "inputs"]),
            ({"contract": {"inputs": []}}, ["inputs", "names and roles"]),
            ({"contract": {"inputs": {"input_ids": "token"}}}, ["contract.inputs.input_ids", "positions", "token;"]),
            ({"contract": {"outputs": {"logits": "mask"}}}, ["contract.outputs.logits", "hidden", "mask;"]),
            ({"contract": {"inputs": {"causal_mask": "tokens"}}}, ["causal_mask", "input_ids", "twice"]),
            ({"contract": {"inputs": {"input_ids": "mask"}}}, ["token ids", "none"]),
            ({"contract": {"outputs": {"logits": "ignored"}}}, ["logits", "none"]),
            ({"parts": []}, ["parts", "array"]), ({"parts": [1]}, ["parts[0]", "whole number"]),
            ({"parts": [{"file": "x"}]}, ["parts[0].file", "path"]), ({"parts": [{}]}, ["parts[0].path", "none"]),
            ({"parts": ["absent.mlpackage"]}, ["absent.mlpackage"]), ({"tokenizer": "absent.json"}, ["absent.json"])):
        expect_error(run("logits", with_manifest("wrong", text), "--ids", "1", "-o", "-"), 1, *parts)


@test()
def _():
    """tegula.json: parts that do not fit together"""
    parts = pathlib.Path(MODELS["plain"][1]["parts"])
    folder = pathlib.Path(FOLDER.name) / "wrong_parts"
    folder.mkdir()
    for fields, words in (({"parts": [f"{parts}/ffn_1.mlpackage", f"{parts}/embeddings.mlpackage"]}, ["ffn_1", "before it"]),
                          ({"parts": [f"{parts}/embeddings.mlpackage"]}, ["logits", "none"]),
                          ({"parts": [{"path": f"{parts}/embeddings.mlpackage", "functions": {"decode": "main"}}]},
                           ["parts[0].functions", "'main'"]),
                          ({"context": 5}, ["parts", "none"]),
                          ({"parts": [f"{parts}/embeddings.mlpackage", f"{MODELS['pipelines']['chain']}"]}, ["'x'"])):
        lm_packages.write_manifest(folder, **fields)
        expect_error(run("logits", folder, "--ids", "1", "-o", "-"), 1, *words)
    expect_error(run("logits", parts / "ffn_1.mlpackage", "--ids", "1", "-o", "-"), 1, "hidden_states", "part of a model")


# ---- compare ----


@test()
def _():
    """compare: a model with itself, in two formats, op by op and as a plan"""
    plain, gated = MODELS["plain"][1], MODELS["gated"][1]
    same = json.loads(run("compare", plain["any"], plain["any"], "--ids", LIST, "--layers", "--json").out)
    expect_equal((same["logits"]["max_abs"], same["kl"]["max"], same["top1_agreement"], same["tokens"]), (0, 0, 1, 21), "same")
    expect_equal(same["layers"]["first_that_differs"], None, "no difference")
    expect(same["layers"]["in_both"] > 30, "ops by name")
    formats = json.loads(run("compare", TINY / "llama.gguf", TINY / "llama", "--ids", "1,2,3,4,5", "--layers", "--json",
                             "--mode", "exact").out)
    expect(formats["logits"]["max_abs"] < 1e-4 and formats["layers"]["in_both"] == 4, str(formats))
    expect(abs(formats["a"]["perplexity"] - formats["b"]["perplexity"]) < 1e-2, str(formats))
    copy = with_manifest("other_op", {"evaluate": True})
    both = json.loads(run("compare", gated["any"], gated["pair"], "--ids", LIST, "--layers", "--json").out)
    expect(both["logits"]["max_abs"] < 1e-4, str(both["logits"]))
    expect_equal([v["name"] for v in both["layers"]["values"]], ["embed", "layer00", "layer01"], "layers of packages")
    text = run("compare", copy, gated["any"], "--ids", LIST, "--layers").text
    expect("no name is known in both" in text or "in both" in text, text)


@test()
def _():
    """compare: the first op that differs is named, and the numbers are those of another way"""
    lm, paths = MODELS["plain"]
    other = lm_packages.Lm()
    other.layers[1]["up"][3][5] += 0.5
    folder = pathlib.Path(FOLDER.name) / "other"
    folder.mkdir()
    path = lm_packages.Package(other).add("main", lm_packages.ALL, None).write(folder / "m.mlpackage")
    document = json.loads(run("compare", paths["any"], path, "--ids", LIST, "--layers", "--json").out)
    expect_equal(document["layers"]["first_that_differs"], "layers_1_up", "the op")
    a, b = lm.logits(IDS), other.logits(IDS)
    gaps = [abs(x - y) for p, q in zip(a, b) for x, y in zip(p, q)]
    expect(abs(document["logits"]["max_abs"] - max(gaps)) < 1e-4, str(document["logits"]))
    expect(abs(document["logits"]["mean_abs"] - sum(gaps) / len(gaps)) < 1e-4, str(document["logits"]))
    import math
    softmax = lambda row: [math.exp(x) / sum(map(math.exp, row)) for x in row]
    kl = [sum(p * math.log(p / q) for p, q in zip(softmax(x), softmax(y))) for x, y in zip(a, b)]
    expect(abs(document["kl"]["mean"] - sum(kl) / len(kl)) < 1e-4, f"{document['kl']} {sum(kl) / len(kl)}")
    text = run("compare", paths["any"], path, "--ids", LIST, "--layers").text
    expect("first that differs layers_1_up" in text, text)


@test()
def _():
    """compare: what cannot be compared is said"""
    paths = MODELS["plain"][1]
    expect_error(run("compare", paths["any"]), 2, "A B")
    expect_error(run("compare", paths["any"], TINY / "llama.gguf", "--ids", "1"), 1, "vocabular", "32")
    expect_error(run("compare", paths["any"], paths["pair"], "--ids", ""), 1)
    expect_error(run("compare", paths["any"], paths["pair"], "--ids", "1", "-p", "x"), 2, "--ids")
    expect_error(run("compare", paths["any"], paths["pair"], "--ids", "1", "--target", "iOS17"), 1, "iOS17", "states")


# ---- targets and half precision ----


@test()
def _():
    """--target: packages that need a newer system are refused by every command that opens a model"""
    for kind, form in (("plain", "any"), ("gated", "any"), ("gated", "parts")):
        path = MODELS[kind][1][form]
        for command in (("run", "-p", "x"), ("logits", "--ids", "1", "-o", "-"), ("perplexity", "--ids", "1,2"),
                        ("bench", "--pp", "4")):
            expect_error(run(command[0], path, *command[1:], "--target", "iOS17"), 1, "iOS17", "iOS 18")
        expect_done(run("logits", path, "--ids", "1", "--json", "--target", "iOS18"))
        expect_error(run("logits", path, "--ids", "1", "--json", "--target", "Amiga"), 1, "Amiga")
    expect_done(run("logits", MODELS["plain"][1]["stateless"], "--ids", "1", "--json", "--target", "macOS15"))


@test()
def _():
    """--mode emulate-fp16: every op rounds; the first overflow is named with its layer"""
    path = MODELS["plain"][1]["any"]
    result = run("logits", path, "--ids", LIST, "--json", "--mode", "emulate-fp16")
    expect_done(result)
    expect_equal(result.errors, "", "no overflow")
    huge = lm_packages.Lm()
    huge.layers[1]["v"] = [[x * 60000 for x in row] for row in huge.layers[1]["v"]]
    folder = pathlib.Path(FOLDER.name) / "huge"
    folder.mkdir()
    path = lm_packages.Package(huge).add("main", lm_packages.ALL, None).write(folder / "m.mlpackage")
    result = run("logits", path, "--ids", LIST, "--json", "--mode", "emulate-fp16")
    expect_done(result)
    expect("first fp16 overflow: op layers_1_values_half (layer 1)" in result.errors, result.errors)
    expect_done(run("logits", TINY / "llama.gguf", "--ids", "1,2,3", "--json", "--mode", "emulate-fp16"))
    document = json.loads(run("compare", TINY / "llama.gguf", TINY / "llama.gguf", "--ids", "1,2,3,4", "--mode", "exact",
                              "--mode-b", "emulate-fp16", "--json").out)
    expect(0 < document["logits"]["relative_rms"] < 1e-2, str(document["logits"]))


# ---- pipelines ----


@test()
def _():
    """pipelines of ML programs predict: features go on by name, types are converted, opsets stay apart"""
    paths = MODELS["pipelines"]
    with Files() as files:
        x, out = files.put("x.npy", npy([1, 2, 3, 4.25], (1, 4))), files.path("o.npz")
        expect_done(run("predict", paths["chain"], "-i", f"x={x}", "-o", out))
        expect_equal(read_npz(out), {"z": ("<f2", (1, 4), [3.5, 7.5, 11.5, 16.25]), "y": ("<f4", (1, 4), [2, 4, 6, 8.5])}, "chain")
        text = run("inspect", paths["chain"]).text
        expect("input   x" in text and "output  z" in text and "hidden" not in text, text)
        p = files.put("p.npy", npy([0.125, 0.25, 0.0625], (3,)))
        document = json.loads(run("predict", paths["classifier"], "-i", f"p={p}", "--json").out)
        expect_equal([o["value"] for o in document["outputs"]], ["dog", {"cat": 0.25, "dog": 0.5, "caf\u00e9": 0.125}], "labels")
        for name, words in (("foreign", ["a neural network regressor", "model 1"]), ("half_image", ["'b'", "models 1 and 2"]),
                            ("nothing", ["'z'", "none"]), ("mismatch", ["'y'", "type and shape"])):
            expect_error(run("predict", paths[name], "-i", f"x={x}"), 1, *words)


@test()
def _():
    """an image between two models of a pipeline is bytes, in the order of channels that each side has"""
    pixels = [10, 31, 52, 73, 94, 115, 136, 157, 178, 199, 220, 241, 5, 7, 9, 11, 13, 255]
    with Files() as files:
        a, out = files.put("a.npy", npy(pixels, (2, 3, 3), "|u1")), files.path("o.npz")
        for name, channels in (("images", (0, 1, 2)), ("turned", (2, 1, 0))):
            expect_done(run("predict", MODELS["pipelines"][name], "-i", f"a={a}", "-o", out))
            values = [round(min(255, 1.5 * pixels[3 * i + c])) / 100 for c in channels for i in range(6)]
            found = read_npz(out)["c"][2]
            expect(max(abs(x - y) for x, y in zip(found, values)) < 1e-5, f"{name}: {found}, not {values}")


@test()
def _():
    """states of a pipeline that its description does not name are those of its models, each its own"""
    path = MODELS["pipelines"]["states"]
    expect("state   sum" in run("inspect", path).text and "state   sum.2" in run("inspect", path).text, "inspect")
    with Files() as files:
        x, kept, out = files.put("x.npy", npy([1, 2], (1, 2))), files.path("s.npz"), files.path("o.npz")
        expect_error(run("predict", path, "-i", f"x={x}"), 1, "'sum', 'sum.2'")
        for n in (1, 3, 6):
            expect_done(run("predict", path, "-i", f"x={x}", "--state", kept, "-o", out))
            expect_equal(read_npz(out)["y"][2], [n, 2 * n], "sum of sums")
