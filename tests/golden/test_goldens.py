#!/usr/bin/env python3
"""test_goldens: two real models against values that other people's software computed for them.

The values stand in ../shared/data/goldens beside the checkout, the models (SmolLM2-135M-Instruct Q4_1 and Gemma3-270M
Q4_K_M) in env TEGULA_MODELS, in the cache (env TEGULA_CACHE, default ~/.cache/tegula), or on the package index. What is
absent is skipped. Every line carries the figure that it judged. Everything runs in `--mode exact`; the bounds are those
of a float32 engine against a float32 reference of the same weights.

This script judges SmolLM2; test_goldens_gemma3.py runs it for Gemma3, so that each stays within a test's time.

  test_goldens.py [MODEL …] [PART …]      models: smollm2 gemma3; parts: tokens chat logits hidden greedy perplexity
"""
import json
import os
import shutil
import sys

from common import GOLDENS, Result, Tap, Work, gap, np, real_model, run, run_json

LOGIT_ABS, LOGIT_REL, HIDDEN_REL = 5e-3, 1e-4, 1e-4
TOP_ABS, LSE_ABS = 5e-3, 5e-3
MARGIN = 1e-2          # a greedy step may differ only where the reference's two best are closer than this
PERPLEXITY_REL = 1e-3


class Golden:
    def __init__(self, tap, work, name, model):
        self.tap, self.work, self.name, self.model = tap, work, name, model
        self.prompts = self.load("prompts.json")["prompts"]

    def path(self, file):
        return os.path.join(GOLDENS, self.name, file)

    def load(self, file):
        with open(self.path(file), encoding="utf-8") as f:
            return json.load(f)

    def ok(self, good, text, detail=""):
        return self.tap.ok(good, "%s: %s" % (self.name, text), detail)


def check_model(g):
    import hashlib
    h = hashlib.sha256()
    with open(g.model, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    want = g.load("prompts.json")["meta"]["gguf_sha256"]
    return g.ok(h.hexdigest() == want, "the file is the one that the values belong to", "sha256 %s, expected %s"
                % (h.hexdigest(), want))


def count(g, what, cases):
    """cases: (label, wanted, got); one line with how many agree."""
    wrong = ["%s: expected %s, found %s" % (label, want, got.describe() if isinstance(got, Result) else got)
             for label, want, got in cases if want != got]
    g.ok(not wrong, "%s: %d of %d equal" % (what, len(cases) - len(wrong), len(cases)), "\n".join(wrong))


def encode(g, data, *options):
    r = run("tokenize", g.model, "--bos", "off", *options, stdin=data)
    return [int(x) for x in r.out.split()] if r.code == 0 else r


def decode(g, ids):
    r = run("tokenize", g.model, "--decode", stdin=" ".join(map(str, ids)).encode())
    return r.out if r.code == 0 else r


def part_tokens(g):
    t = g.load("tokenizer.json")
    rows = t["rows"]
    count(g, "ids, control tokens parsed", [(repr(r["text"]), r["ids"], encode(g, bytes.fromhex(r["hex"]), "--special"))
                                            for r in rows])
    count(g, "ids, control tokens as text", [(repr(r["text"]), r["ids_noparse"], encode(g, bytes.fromhex(r["hex"])))
                                             for r in rows])
    count(g, "ids of invalid UTF-8", [(r["hex"], r["ids_replace"], encode(g, bytes.fromhex(r["hex"]), "--special"))
                                      for r in t["invalid_utf8"]])
    count(g, "bytes of ids", [(str(r["ids"]), r["decoded"].encode(), decode(g, r["ids"])) for r in rows])
    same = sum(r["decoded"] == r["text"] for r in rows)
    g.ok(True, "text survives encoding and decoding in %d of %d rows of the reference" % (same, len(rows)))


def part_chat(g):
    chat = g.load("chat.json")
    template = g.work.file("template.jinja")
    with open(template, "w", encoding="utf-8") as f:
        f.write(chat["template"])
    own = chat["template_source"] == "gguf"
    for what, more in [("own template", ())] * own + [("--template FILE", ("--template", template))]:
        cases = []
        for row in chat["rows"]:
            add = ("--add-generation-prompt",) if row["add_generation_prompt"] else ()
            r = run("template", g.model, *more, *add, stdin=json.dumps(row["messages"]).encode())
            cases.append((str(row["messages"])[:60], row["text"].encode(), r.out if r.code == 0 else r))
        count(g, "chat text, %s" % what, cases)
    count(g, "chat ids", [(repr(r["text"][:40]), r["ids"], encode(g, r["text"].encode(), "--special"))
                          for r in chat["rows"]])


def part_logits(g):
    for p in g.prompts:
        n = len(p["ids"])
        x = g.work.logits(g.model, p["ids"], "--last")
        if isinstance(x, Result):
            g.ok(False, "logits of %s (%d tokens)" % (p["name"], n), x.describe())
            continue
        v = x[-1].astype(np.float64)
        top = p["top20"]
        g.ok(int(v.argmax()) == top[0][0], "top-1 of %s (%d tokens): %d" % (p["name"], n, int(v.argmax())),
             "expected %d" % top[0][0])
        a = max(abs(v[i] - w) for i, w in top)
        lse = float(v.max() + np.log(np.exp(v - v.max()).sum()))
        g.ok(a <= TOP_ABS, "top-20 of %s: max abs %.2g" % (p["name"], a))
        g.ok(abs(lse - p["logsumexp"]) <= LSE_ABS, "logsumexp of %s: off by %.2g" % (p["name"], abs(lse - p["logsumexp"])))
        full = g.path("logits_%s.npy" % p["name"])
        if os.path.exists(full):
            a, r = gap(v, np.load(full))
            g.ok(a <= LOGIT_ABS and r <= LOGIT_REL, "logits of %s (%d tokens): max abs %.2g, rel L2 %.2g"
                 % (p["name"], n, a, r))


def part_hidden(g):
    z = np.load(g.path("hidden16.npz"))
    folder = g.work.file("layers")
    shutil.rmtree(folder, ignore_errors=True)
    x = g.work.logits(g.model, z["ids"].tolist(), "--layers", folder)
    if isinstance(x, Result):
        return g.ok(False, "layers", x.describe())
    worst = ("", 0.0)
    names = ["embed"] + sorted(k for k in z.files if k.startswith("layer")) + ["final_norm"]
    for name in names:
        path = os.path.join(folder, name + ".npy")
        if not os.path.exists(path):
            g.ok(False, "layer %s" % name, "no such file; there are %s" % sorted(os.listdir(folder))[:12])
            continue
        r = gap(np.load(path), z[name])[1]
        if r > HIDDEN_REL:
            g.ok(False, "layer %s: rel L2 %.2g" % (name, r))
        worst = max(worst, (name, r), key=lambda w: w[1])
    g.ok(worst[1] <= HIDDEN_REL, "%d layers: worst rel L2 %.2g (%s)" % (len(names), worst[1], worst[0]))
    a, r = gap(x[-1], z["logits_last"])
    g.ok(a <= LOGIT_ABS and r <= LOGIT_REL, "logits of 16 tokens: max abs %.2g, rel L2 %.2g" % (a, r))
    same = int((x.argmax(-1) == z["logits_argmax"]).sum())
    a = float(np.abs(x.max(-1) - z["logits_max"]).max())
    g.ok(same == len(x) and a <= LOGIT_ABS, "best token of each of 16 rows: %d equal, value off by %.2g" % (same, a))


def part_greedy(g):
    for p in g.prompts:
        want, margin = p["greedy"], p["greedy_margin"]
        source = prompt_file(g, p)
        special = ("--special",) if p["parse_special"] else ()
        got, r = run_json("run", g.model, "-f", source, "--raw", "--mode", "exact", "--temp", "0", "--ignore-eos", "-n",
                          len(want), *special)
        what = "greedy text of %s (%d tokens)" % (p["name"], len(p["ids"]))
        if got is None:
            g.ok(False, what, r.describe())
            continue
        if got["prompt_tokens"] != len(p["ids"]):
            g.ok(False, what, "the prompt has %d tokens, expected %d" % (got["prompt_tokens"], len(p["ids"])))
            continue
        same = next((i for i, (a, b) in enumerate(zip(got["tokens"], want)) if a != b), min(len(want), len(got["tokens"])))
        if same == len(want):
            g.ok(True, "%s: %d of %d equal" % (what, same, len(want)))
        else:
            near = len(got["tokens"]) > same and margin[same] < MARGIN
            g.ok(near, "%s: equal to step %d, where the margin is %.2g" % (what, same, margin[same]),
                 "expected %s, found %s" % (want[same:same + 4], got["tokens"][same:same + 4]))


def prompt_file(g, p):
    """The prompt as a file: of text where the text gives these ids, else decoded from the ids (cut texts)."""
    path = g.work.file("prompt.txt")
    text = decode(g, [i for i in p["ids"] if i != 2 or g.name != "gemma3"])
    data = p["text"].encode() if isinstance(text, Result) else text
    with open(path, "wb") as f:
        f.write(data)
    return path


def part_perplexity(g):
    nll = np.load(g.path("nll.npz"))
    for p in g.prompts:
        if "ppl" not in p:
            continue
        got, r = run_json("perplexity", g.model, "--mode", "exact", "--ids", g.work.ids(p["ids"]))
        what = "perplexity of %s" % p["name"]
        if got is None:
            g.ok(False, what, r.describe())
            continue
        want = float(np.exp(nll[p["name"]].astype(np.float64).mean()))
        off = abs(got["perplexity"] / p["ppl"] - 1)
        g.ok(off <= PERPLEXITY_REL and got["tokens"] == p["nll_count"] and abs(want / p["ppl"] - 1) < 1e-6,
             "%s: %.6f, reference %.6f, off by %.2g over %d tokens" % (what, got["perplexity"], p["ppl"], off,
                                                                      got["tokens"]))


PARTS = {"tokens": part_tokens, "chat": part_chat, "logits": part_logits, "hidden": part_hidden,
         "greedy": part_greedy, "perplexity": part_perplexity}
MODELS = ("smollm2", "gemma3")


def main(words, default_models=("smollm2",)):
    unknown = [w for w in words if w not in PARTS and w not in MODELS]
    if unknown:
        sys.exit("test_goldens: unknown word %s; there are: %s" % (unknown[0], " ".join(MODELS + tuple(PARTS))))
    parts = [w for w in words if w in PARTS] or list(PARTS)
    models = [w for w in words if w in MODELS] or default_models
    tap = Tap()
    with Work() as work:
        for name in models:
            if not os.path.isdir(os.path.join(GOLDENS, name)):
                tap.skip(name, "no reference values at %s" % os.path.join(GOLDENS, name))
                continue
            model = real_model(name)
            if not model:
                tap.skip(name, "the model is not here and cannot be fetched: put %s.gguf into TEGULA_MODELS" % name)
                continue
            g = Golden(tap, work, name, model)
            if check_model(g):
                for part in parts:
                    PARTS[part](g)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
