#!/usr/bin/env python3
"""test_packages: language models that come as Core ML packages, against recorded answers of their own programs.

../shared/data/stateful-tiny holds packages in three exporters' styles with every weight encoding, and for each the calls
(two prompt chunks, then single tokens) and outputs of an independent interpreter in float32. The whole sequence goes
through `tegula logits`, whole and in chunks of 5, in exact mode.

Bound, in any logit: 5e-3, the tolerance that the packages' own README names.

  test_packages.py [NAME …]
"""
import glob
import json
import os
import shutil
import sys

from common import ROOT, Tap, Work, np, run

EVALUATED = 1e-2  # outputs are rounded to fp16
EACH_WAY = ("tiny_anemll_lut6", "tiny_apple_int4", "tiny_article_onehot_none", "tinygemma_anemll_int8")
FOLDER = os.path.join(ROOT, "..", "shared", "data", "stateful-tiny")
BOUND = 5e-3


def ids_of(golden, prefix):
    key = [k for k in golden.files if k in (prefix + "in_input_ids", prefix + "in_inputIds")][0]
    return [int(i) for i in golden[key].reshape(-1)]


def logits_of(golden, prefix):
    """[rows, V]: the parts of a head side by side; None where the call has hidden states."""
    keys = [k for k in golden.files if k.startswith(prefix + "out_logits")]
    keys.sort(key=lambda k: (len(k), k))
    if not keys:
        return None
    whole = np.concatenate([golden[k] for k in keys], -1)
    return whole.reshape(-1, whole.shape[-1])


def calls_of(golden):
    """All ids, and for each call with logits the position after it and its rows."""
    ids, calls, n = [], [], 0
    while "c%02d_function" % n in golden.files:
        prefix = "c%02d_" % n
        ids += ids_of(golden, prefix)
        rows = logits_of(golden, prefix)
        if rows is not None:
            calls.append((len(ids), rows))
        n += 1
    return ids, calls


def worst_gap(got, calls):
    return max(float(np.abs(got[end - len(rows):end] - rows).max()) for end, rows in calls)


def check(tap, work, package, golden, name):
    ids, calls = calls_of(golden)
    for chunk in (256, 5):
        out = work.file("out.npy")
        r = run("logits", package, "--ids", work.ids(ids), "-o", out, "--mode", "exact", "--chunk", chunk)
        if r.code != 0:
            tap.ok(False, "%s, chunks of %d" % (name, chunk), r.describe())
            continue
        gap = worst_gap(np.load(out), calls)
        tap.ok(gap <= BOUND, "%s, chunks of %d: %d calls within %.1e, worst %.1e" % (name, chunk, len(calls), BOUND, gap))


def check_evaluated(tap, work, package, golden, name):
    """The program's own ops, as for a package that is not recognised."""
    copy = work.file(name + ".mlpackage")
    shutil.copytree(package, copy, copy_function=shutil.copyfile)
    os.chmod(copy, 0o755)
    with open(os.path.join(copy, "tegula.json"), "w") as f:
        json.dump({"format": 1, "evaluate": True}, f)
    ids, calls = calls_of(golden)
    for chunk in (256, 5):
        out = work.file("out.npy")
        r = run("logits", copy, "--ids", work.ids(ids), "-o", out, "--chunk", chunk)
        gap = worst_gap(np.load(out), calls) if r.code == 0 else np.inf
        tap.ok(gap <= EVALUATED, "%s, op by op, chunks of %d: within %.1e, worst %.1e" % (name, chunk, EVALUATED, gap), r.describe())


def check_fast(tap, work, package, golden, name):
    """Integer activations: not the numbers of the program, but nearly its choices."""
    ids, calls = calls_of(golden)
    out = work.file("out.npy")
    r = run("logits", package, "--ids", work.ids(ids), "-o", out, "--mode", "fast")
    if r.code != 0:
        tap.ok(False, "%s, fast" % name, r.describe())
        return
    got = np.load(out)
    rms = np.sqrt(np.mean([np.mean((got[end - len(rows):end] - rows) ** 2) for end, rows in calls]))
    scale = np.sqrt(np.mean([np.mean(rows ** 2) for _, rows in calls]))
    tap.ok(rms < 0.05 * scale, "%s, fast: differs by %.1f %% of the logits' size" % (name, 100 * rms / scale))


def check_inspect(tap, package, name):
    """Every op is raised; the composites are as many as two layers have; the contract names every input."""
    r = run("inspect", package, "--json", "--ops")
    if r.code != 0:
        tap.ok(False, "%s, inspect" % name, r.describe())
        return
    document = json.loads(r.out)
    models = [m for m in document["language_models"] if m["is_model"]]
    wrong = len(models) != 1
    for m in models:
        wrong |= m["n_understood"] != m["n_ops"] or m["reason"] is not None
        kinds = [line.split(" = ")[-1].split("(")[0] for line in m["ops"]]
        wanted = {"embedding": 1, "rope": 4, "attention": 2, "kv_append": 2, "glu": 2, "lm_head": 1}
        wrong |= any(kinds.count(k) != n for k, n in wanted.items()) or kinds.count("rms_norm") < 5
        function = [f for f in document["functions"] if f["name"] == m["function"]][0]
        lines = "\n".join(m["contract"])
        wrong |= any("input      %s: " % i["name"] not in lines for i in function["inputs"])
        wrong |= "token ids" not in lines or "writes     slots P" not in lines or "output     logits" not in lines
    tap.ok(not wrong, "%s, inspect: all is raised, the contract is whole" % name, r.describe())


def check_text(tap, package):
    """Without a tokenizer ids work (above), and text is refused with the way out."""
    r = run("tokenize", package, "-p", "hello")
    tap.ok(r.clean_error() and "tokenizer" in r.text() and "--tokenizer" in r.text(), "text without a tokenizer",
           r.describe())


def main(wanted):
    tap = Tap()
    packages = sorted(glob.glob(os.path.join(FOLDER, "*.mlpackage")))
    names = [os.path.basename(p)[:-len(".mlpackage")] for p in packages]
    if not packages:
        tap.skip("packages", "no ../shared/data/stateful-tiny beside the checkout")
    with Work() as work:
        for package, name in zip(packages, names):
            if wanted and name not in wanted:
                continue
            golden = np.load(os.path.join(FOLDER, name + ".golden.npz"))
            check(tap, work, package, golden, name)
            if name in EACH_WAY:
                check_evaluated(tap, work, package, golden, name)
            check_inspect(tap, package, name)
            if name in ("tiny_apple_int8", "tiny_article_int4"):
                check_fast(tap, work, package, golden, name)
        if packages:
            check_text(tap, packages[0])
    return tap.done()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
