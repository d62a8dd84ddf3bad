#!/usr/bin/env python3
"""test_tiny: every architecture and every weight type against independent values, and what broken files get.

Tiny random models (tools/tiny_models.py) in both forms, directory and GGUF; the truth is transformers' float32 (see
tools/make_tiny_models.py). `--mode exact` must agree within 1e-3 in any logit and 1e-4 in relative L2 over all rows;
a float32 engine is usually a hundred times closer. Broken files must give one line of error and exit code 1.

  test_tiny.py [PART …]      parts: logits families forms quant tokens chat hidden telling errors truncation
"""
import json
import os
import random
import shutil
import sys

from common import TINY, Result, Tap, Work, gap, index, np, run, tiny_ids, tiny_projection

import tiny_gguf as tg
import tiny_models as tm

ABS, REL = 1e-3, 1e-4
LENGTHS = (1, 7, 40, 150)

# recipes whose GGUF form says less than the directory: (reason). The directory is still tested.
GGUF_SILENT = {"qwen2-window": "GGUF files have no key for a window on some layers of qwen2",
               "gemma3-scalar": "GGUF files have no key for query_pre_attn_scalar"}
# recipes that a GGUF reader may refuse with a clear error, but must not run wrongly
MAY_REFUSE = {"mistral": "a window in a file of architecture llama"}


class Tiny:
    def __init__(self, tap, work):
        self.tap, self.work, self.index = tap, work, index()
        self.models = {}

    def model(self, name):
        if name not in self.models:
            self.models[name] = tm.Model(name)
        return self.models[name]

    def golden(self, name):
        return np.load(os.path.join(TINY, "golden", name + ".npz"))

    def directory(self, name):
        path = self.work.file(name)
        if not os.path.exists(path):
            self.model(name).write_dir(path)
        return path

    def gguf(self, name):
        path = self.work.file(name + ".gguf")
        if not os.path.exists(path):
            self.model(name).gguf().save(path)
        return path

    def compare(self, path, golden, vocab, lengths=LENGTHS, ctx=None, options=()):
        """(worst absolute, worst relative L2) over all sequences, or the Result of a run that failed."""
        worst_abs = worst_rel = 0.0
        z, p = self.golden(golden), tiny_projection(vocab)
        for n in lengths:
            more = ("--ctx", ctx[str(n)]) if ctx else ()
            x = self.work.logits(path, tiny_ids(n, vocab), *more, *options)
            if isinstance(x, Result):
                return x
            if x.shape != (n, vocab):
                return Result(0, b"", b"logits have shape %s, expected %s" % (str(x.shape).encode(),
                                                                             str((n, vocab)).encode()))
            a, r = gap(x[self.index["ids"][str(n)]["rows"]], z["rows%d" % n])
            # every row: eight random sums of its logits; an error of e in all logits moves a sum by e * sqrt(V)
            pa, pr = gap(x.astype(np.float64) @ p, z["probe%d" % n])
            worst_abs, worst_rel = max(worst_abs, a, pa / np.sqrt(vocab)), max(worst_rel, r, pr)
        return worst_abs, worst_rel

    def check(self, what, *args, **more):
        got = self.compare(*args, **more)
        if isinstance(got, Result):
            return self.tap.ok(False, what, got.describe())
        return self.tap.ok(got[0] <= ABS and got[1] <= REL, "%s: max abs %.2g, rel L2 %.2g" % (what, *got))


def part_logits(t):
    for name, entry in t.index["models"].items():
        t.check("logits %s (directory)" % name, t.directory(name), name, entry["vocab"], ctx=entry.get("ctx"))
        what = "logits %s (GGUF F32)" % name
        if name in GGUF_SILENT:
            t.tap.skip(what, GGUF_SILENT[name])
            continue
        if name in MAY_REFUSE:
            r = t.work.logits(t.gguf(name), [1])
            if isinstance(r, Result) and r.clean_error():
                t.tap.skip(what, "refused: %s" % r.text())
                continue
        t.check(what, t.gguf(name), name, entry["vocab"], ctx=entry.get("ctx"))


def part_forms(t):
    """The kept files, and unusual but valid ways to store the same model."""
    for name in tm.KEPT:
        vocab = t.index["models"][name]["vocab"]
        kind = tm.KEPT_AS.get(name, "F32")
        t.check("kept %s.gguf (%s)" % (name, kind), os.path.join(TINY, name + ".gguf"), name, vocab)
        t.check("kept %s/" % name, os.path.join(TINY, name), name, vocab)
    vocab, m = t.index["models"]["llama"]["vocab"], t.model("llama")
    for what, g in (("GGUF version 2", m.gguf(version=2)), ("GGUF alignment 64", m.gguf(alignment=64)),
                    ("GGUF alignment 256", m.gguf(alignment=256)), ("GGUF BF16", m.gguf("BF16"))):
        path = t.work.file("form.gguf")
        g.save(path)
        t.check(what, path, "llama", vocab, (7, 40))
    m.gguf().key("general.custom.note", tg.STR, "not about the maths").save(path)
    t.check("GGUF with an unknown general key", path, "llama", vocab, (7,))
    g = m.gguf()
    g.tensors.reverse()
    g.keys.reverse()
    g.save(path)
    t.check("GGUF with keys and tensors in reverse order", path, "llama", vocab, (7,))
    parts = m.gguf().save_split(t.work.file("split"), 3)
    t.check("GGUF split in 3", parts[0], "llama", vocab, (7, 40))
    t.model("llama-f16").gguf("F16").save(path)
    t.check("GGUF F16", path, "llama-f16", vocab, (7, 40))
    for shards in (1, 2, 5):
        folder = t.work.file("shards%d" % shards)
        m.write_dir(folder, shards)
        t.check("directory of %d shard%s" % (shards, "s" * (shards > 1)), folder, "llama", vocab, (7, 40))
    for n in (7, 40):
        x = t.work.logits(os.path.join(TINY, "llama.gguf"), tiny_ids(n, vocab))
        y = t.work.logits(os.path.join(TINY, "llama.gguf"), tiny_ids(n, vocab), "--last")
        bad = isinstance(x, Result) or isinstance(y, Result)
        t.tap.ok(not bad and y.shape[0] == 1 and np.array_equal(x[-1], y[-1]), "--last is the last row of %d" % n)


def part_quant(t):
    for kind, entry in t.index["quants"].items():
        path = t.work.file("quant.gguf")
        if kind == "mixed":
            path = os.path.join(TINY, "llama-mixed.gguf")
        else:
            t.model("wide").quantized(kind).save(path)
        t.check("logits llama %s" % kind, path, "quant-" + kind, entry["vocab"], (7, 40))


def tokenize(path, text, *options):
    r = run("tokenize", path, *options, stdin=text.encode())
    if r.code != 0:
        return r
    return [int(x) for x in r.out.split()]


def part_tokens(t):
    modes = (("ids", ("--special", "--bos", "auto")), ("special", ("--special", "--bos", "off")),
             ("plain", ("--bos", "off")))
    for kind, entry in t.index["tokenizers"].items():
        for form, path in (("directory", t.directory(entry["model"])), ("GGUF", t.gguf(entry["model"]))):
            good = total = 0
            wrong = []
            for row in entry["rows"]:
                for field, options in modes:
                    if form == "GGUF" and kind.startswith("phi3") and "<" in row["text"] and field != "plain":
                        continue    # GGUF files do not say that a control token swallows the space behind it
                    got = tokenize(path, row["text"], *options)
                    total += 1
                    good += got == row[field]
                    if got != row[field]:
                        wrong.append("%s %r: expected %s, found %s" % (field, row["text"], row[field], got.describe() if
                                                                       isinstance(got, Result) else got))
            t.tap.ok(not wrong, "ids of %s (%s): %d of %d" % (kind, form, good, total), "\n".join(wrong))
            decode(t, kind, form, path, entry["rows"])


def decode(t, kind, form, path, rows):
    wrong = []
    for row in rows:
        r = run("tokenize", path, "--decode", stdin=" ".join(map(str, row["plain"])).encode())
        want = [row["text"].encode()]
        if kind.startswith(("llama2", "phi3")):
            want.append(b" " + want[0])         # the space that tokenizing put in front may come back
        if kind[:6] in ("llama2", "phi3-3", "gemma-"):
            want = [w.replace("\u2581".encode(), b" ") for w in want]
        if r.code != 0 or r.out not in want:
            wrong.append("%r: expected %r, found %r %s" % (row["plain"], want[0], r.out, r.text()))
    t.tap.ok(not wrong, "text of ids of %s (%s): %d of %d" % (kind, form, len(rows) - len(wrong), len(rows)),
             "\n".join(wrong))


def part_chat(t):
    for kind, entry in t.index["tokenizers"].items():
        for form, path in (("directory", t.directory(entry["model"])), ("GGUF", t.gguf(entry["model"]))):
            wrong = []
            for row in entry["chat"]:
                more = ("--add-generation-prompt",) if row["add_generation_prompt"] else ()
                r = run("template", path, *more, stdin=json.dumps(row["messages"]).encode())
                if r.code != 0 or r.out != row["text"].encode():
                    wrong.append("expected %r, found %r; %s" % (row["text"], r.out.decode("utf-8", "replace"), r.text()))
            t.tap.ok(not wrong, "chat of %s (%s): %d of %d" % (kind, form, len(entry["chat"]) - len(wrong),
                                                              len(entry["chat"])), "\n".join(wrong))


def part_hidden(t):
    for name in tm.KEPT:
        for form, path in (("directory", os.path.join(TINY, name)), ("GGUF", os.path.join(TINY, name + ".gguf"))):
            hidden(t, "layers of %s (%s)" % (name, form), name, path)


def hidden(t, what, name, path):
    """Rows of the embedding, of every block's output and of the final norm for 40 ids."""
    folder = t.work.file("layers")
    shutil.rmtree(folder, ignore_errors=True)
    x = t.work.logits(path, tiny_ids(40, t.index["models"][name]["vocab"]), "--layers", folder)
    if isinstance(x, Result):
        return t.tap.ok(False, what, x.describe())
    z, wrong, worst = t.golden(name), [], 0.0
    for key in z.files:
        if not key.startswith("hidden_"):
            continue
        path = os.path.join(folder, key[7:] + ".npy")
        if not os.path.exists(path):
            wrong.append("no %s; there are %s" % (key[7:], sorted(os.listdir(folder))[:20]))
            continue
        rel = gap(np.load(path)[t.index["hidden_rows"]], z[key])[1]
        worst = max(worst, rel)
        if rel > REL:
            wrong.append("%s: rel L2 %.3g" % (key[7:], rel))
    return t.tap.ok(not wrong, "%s: worst rel L2 %.2g" % (what, worst), "\n".join(wrong))


# ---- what must fail ------------------------------------------------------------------------------------------------
def resize(name, dims):
    def f(g):
        i = next(i for i, x in enumerate(g.tensors) if x[0] == name)
        n, _, kind, raw = g.tensors[i]
        g.tensors[i] = (n, dims, kind, raw)
    return f


def retype(name, kind):
    def f(g):
        i = next(i for i, x in enumerate(g.tensors) if x[0] == name)
        n, dims, _, raw = g.tensors[i]
        g.tensors[i] = (n, dims, kind, raw)
    return f


U32, F32, STR, ARR = tg.U32, tg.F32, tg.STR, tg.ARR
# (name, change of a Gguf, a word that the message must contain)
BROKEN = [
    ("missing tensor", lambda g: g.drop_tensor("blk.1.ffn_up.weight"), "blk.1.ffn_up.weight"),
    ("missing embedding", lambda g: g.drop_tensor("token_embd.weight"), "token_embd.weight"),
    ("missing norm", lambda g: g.drop_tensor("output_norm.weight"), "output_norm.weight"),
    ("transposed tensor", resize("blk.0.attn_k.weight", (32, 64)), "blk.0.attn_k.weight"),
    ("tensor of half the rows", resize("blk.0.attn_q.weight", (64, 32)), "blk.0.attn_q.weight"),
    ("norm of two dimensions", resize("blk.0.attn_norm.weight", (32, 2)), "blk.0.attn_norm.weight"),
    ("tensor of five dimensions", resize("output_norm.weight", (4, 2, 2, 2, 2)), ""),
    ("tensor with a zero dimension", resize("blk.0.attn_q.weight", (64, 0)), "blk.0.attn_q.weight"),
    ("dimensions whose product overflows", resize("blk.0.attn_q.weight", (1 << 33, 1 << 33)), "blk.0.attn_q.weight"),
    ("tensor of an unknown type", retype("blk.0.attn_q.weight", 4242), "blk.0.attn_q.weight"),
    ("tensor of a removed type", retype("blk.0.attn_q.weight", 31), "blk.0.attn_q.weight"),
    ("row that is no whole block", lambda g: g.raw("extra", (33, 1), 2, bytes(64)), ""),
    ("two tensors of one name", lambda g: g.tensors.append(g.tensors[3]), "blk.0.attn_v.weight"),
    ("block_count as text", lambda g: g.key("llama.block_count", STR, "two"), "block_count"),
    ("four and a half heads", lambda g: g.key("llama.attention.head_count", F32, 4.5), "head_count"),
    ("head_count as truth", lambda g: g.key("llama.attention.head_count", tg.BOOL, True), "head_count"),
    ("negative block_count", lambda g: g.key("llama.block_count", tg.I32, -2), "block_count"),
    ("head counts of three layers for two", lambda g: g.key("llama.attention.head_count", (ARR, U32), [4, 4, 4]), ""),
    ("another head count in each layer", lambda g: g.key("llama.attention.head_count", (ARR, U32), [4, 2]), "head"),
    ("epsilon as text", lambda g: g.key("llama.attention.layer_norm_rms_epsilon", STR, "1e-5"), "epsilon"),
    ("tokens as numbers", lambda g: g.key("tokenizer.ggml.tokens", (ARR, U32), [1, 2, 3]), "tokens"),
    ("no architecture", lambda g: g.drop_key("general.architecture"), "general.architecture"),
    ("architecture as a number", lambda g: g.key("general.architecture", U32, 7), "general.architecture"),
    ("unknown architecture", lambda g: g.key("general.architecture", STR, "klingon"), "klingon"),
    ("no block_count", lambda g: g.drop_key("llama.block_count"), "block_count"),
    ("zero layers", lambda g: g.key("llama.block_count", U32, 0), ""),
    ("a million layers", lambda g: g.key("llama.block_count", U32, 1000000), ""),
    ("zero heads", lambda g: g.key("llama.attention.head_count", U32, 0), "head"),
    ("zero KV heads", lambda g: g.key("llama.attention.head_count_kv", U32, 0), "head"),
    ("heads not divisible by KV heads", lambda g: g.key("llama.attention.head_count_kv", U32, 3), "head"),
    ("width not divisible by heads", lambda g: g.key("llama.attention.head_count", U32, 5), "head"),
    ("zero width", lambda g: g.key("llama.embedding_length", U32, 0), ""),
    ("width of 2^31", lambda g: g.key("llama.embedding_length", U32, 1 << 31), ""),
    ("FFN width that the tensors do not have", lambda g: g.key("llama.feed_forward_length", U32, 128), "ffn_"),
    ("odd rope dimensions", lambda g: g.key("llama.rope.dimension_count", U32, 15), ""),
    ("rope dimensions above the head width", lambda g: g.key("llama.rope.dimension_count", U32, 64), ""),
    ("epsilon that is not a number", lambda g: g.key("llama.attention.layer_norm_rms_epsilon", F32, float("nan")), ""),
    ("rope base of zero", lambda g: g.key("llama.rope.freq_base", F32, 0.0), ""),
    ("unknown rope scaling", lambda g: g.key("llama.rope.scaling.type", STR, "banana"), "banana"),
    ("rope scaling factor of zero", lambda g: g.key("llama.rope.scaling.type", STR, "linear")
     .key("llama.rope.scaling.factor", F32, 0.0), ""),
    ("experts", lambda g: g.key("llama.expert_count", U32, 8), "expert_count"),
    ("unknown key of the architecture", lambda g: g.key("llama.residual_scale", F32, 0.5), "residual_scale"),
    ("tensor of another architecture", lambda g: g.raw("blk.0.attn_q_norm.weight", (16,), "F32", bytes(64)),
     "attn_q_norm"),
    ("rope_freqs of the wrong length", lambda g: g.raw("rope_freqs.weight", (5,), "F32", bytes(20)), "rope_freqs"),
    ("alignment of zero", lambda g: g.key("general.alignment", U32, 0), "alignment"),
    ("alignment of 24", lambda g: g.key("general.alignment", U32, 24), "alignment"),
    ("version 1", lambda g: setattr(g, "version", 1), "version"),
    ("version 9", lambda g: setattr(g, "version", 9), "version"),
]

# Keys of the llama family that change the maths: honoured or refused, never ignored.
TELLING = [("attn_logit_softcapping", F32, 3.0), ("final_logit_softcapping", F32, 2.0), ("logit_scale", F32, 0.5),
           ("embedding_scale", F32, 2.0), ("residual_scale", F32, 0.5), ("attention.scale", F32, 0.5),
           ("attention.sliding_window", U32, 16), ("attention.causal", tg.BOOL, False), ("expert_count", U32, 8),
           ("attention.clamp_kqv", F32, 0.1), ("attention.max_alibi_bias", F32, 8.0), ("attention.key_length", U32, 8),
           ("use_parallel_residual", tg.BOOL, True), ("rope.dimension_count", U32, 8), ("rope.freq_base", F32, 5e5),
           ("rope.scale_linear", F32, 4.0), ("rope.dimension_sections", (ARR, tg.I32), [4, 2, 2, 0]),
           ("attention.layer_norm_epsilon", F32, 0.5), ("attention.layer_norm_rms_epsilon", F32, 0.5)]


def part_telling(t):
    good = os.path.join(TINY, "llama.gguf")
    base, path = t.work.logits(good, tiny_ids(40, 296)), t.work.file("telling.gguf")
    for key, kind, value in TELLING:
        tg.load(good).key("llama." + key, kind, value).save(path)
        x = t.work.logits(path, tiny_ids(40, 296))
        if isinstance(x, Result):
            t.tap.ok(x.clean_error(), "llama.%s is refused" % key, x.describe())
        else:
            t.tap.ok(gap(x, base)[0] > 1e-2, "llama.%s is honoured: logits move by %.2g" % (key, gap(x, base)[0]))


def expect_error(t, what, path, word="", ids=(1, 2), *options):
    r = t.work.logits(path, ids, *options)
    if not isinstance(r, Result):
        return t.tap.ok(False, "error: " + what, "it ran")
    good = r.clean_error() and word.lower() in r.text().lower()
    return t.tap.ok(good, "error: %s" % what, r.describe() + ("; expected the word %r" % word if word else ""))


def part_errors(t):
    path = t.work.file("broken.gguf")
    for what, change, word in BROKEN:
        g = tg.load(os.path.join(TINY, "llama.gguf"))
        change(g)
        g.save(path)
        expect_error(t, what, path, word)
    good = os.path.join(TINY, "llama.gguf")
    expect_error(t, "id outside the vocabulary", good, "296", (1, 296))
    expect_error(t, "negative id", good, "", (1, -1))
    g = tg.load(good)
    g.key("tokenizer.ggml.tokens", (ARR, STR), g.get("tokenizer.ggml.tokens") + ["x%d" % i for i in range(9)])
    g.key("tokenizer.ggml.token_type", (ARR, tg.I32), [1] * 305).save(path)
    expect_error(t, "id of a token without an embedding", path, "", (1, 300))
    expect_error(t, "more ids than the context", good, "", range(40), "--ctx", "16")
    for what, data, word in (("empty file", b"", ""), ("four bytes", b"GGUF", ""), ("zeros", bytes(4096), ""),
                             ("text", b"hello world\n" * 9, ""),
                             ("2^60 tensors", b"GGUF\3\0\0\0" + b"\0\0\0\0\0\0\0\x10" + b"\1\0\0\0\0\0\0\0", ""),
                             ("2^60 keys", b"GGUF\3\0\0\0" + b"\1\0\0\0\0\0\0\0" + b"\0\0\0\0\0\0\0\x10", "")):
        with open(path, "wb") as f:
            f.write(data)
        expect_error(t, "GGUF of " + what, path, word)
    expect_error(t, "no such file", t.work.file("nowhere.gguf"), "nowhere")
    split_errors(t)
    directory_errors(t)


def split_errors(t):
    parts = t.model("llama").gguf().save_split(t.work.file("cut"), 3)
    os.remove(parts[1])
    expect_error(t, "split set without its second part", parts[0], "00002-of-00003")
    t.model("qwen2").gguf().save_split(t.work.file("other"), 3)
    shutil.copy(t.work.file("other-00002-of-00003.gguf"), parts[1])
    expect_error(t, "split set with a part of another model", parts[0])


def edit_json(path, change):
    with open(path, encoding="utf-8") as f:
        v = json.load(f)
    change(v)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(v, f)


def directory_errors(t):
    def config(**changes):                      # None: without the key
        def change(c):
            for k, v in changes.items():
                c.pop(k, None)
                if v is not None:
                    c[k] = v
        return lambda folder: edit_json(os.path.join(folder, "config.json"), change)

    def write(name, data):
        def f(folder):
            with open(os.path.join(folder, name), "wb") as h:
                h.write(data)
        return f

    def remove(name):
        return lambda folder: os.remove(os.path.join(folder, name))

    def safetensors_header(text, data):
        return write(shard, len(text).to_bytes(8, "little") + text + data)

    shard = "model-00002-of-00003.safetensors"
    cases = [
        ("no config.json", remove("config.json"), "config.json"),
        ("config.json that is no JSON", write("config.json", b"{ not json"), "config.json"),
        ("config.json that is a list", write("config.json", b"[]"), "config.json"),
        ("config.json nested 100,000 deep", write("config.json", b"[" * 100000), "config.json"),
        ("missing shard", remove(shard), shard),
        ("missing index and whole file", remove("model.safetensors.index.json"), ""),
        ("index that names no file", write("model.safetensors.index.json", b'{"weight_map":{}}'), ""),
        ("index that climbs out of the folder", write("model.safetensors.index.json",
                                                     b'{"weight_map":{"a":"../../x.safetensors"}}'), ""),
        ("unknown model_type", config(model_type="klingon", architectures=["KlingonForCausalLM"]), "klingon"),
        ("no hidden_size", config(hidden_size=None), "hidden_size"),
        ("hidden_size as text", config(hidden_size="64"), "hidden_size"),
        ("hidden_size of another model", config(hidden_size=128), ""),
        ("negative layers", config(num_hidden_layers=-2), "num_hidden_layers"),
        ("half a layer", config(num_hidden_layers=1.5), "num_hidden_layers"),
        ("three KV heads", config(num_key_value_heads=3), "head"),
        ("unknown rope type", config(rope_scaling={"rope_type": "banana", "factor": 2.0}), "banana"),
        ("unknown activation", config(hidden_act="relu"), "relu"),
        ("quantized elsewhere", config(quantization_config={"quant_method": "gptq", "bits": 4}), "quantization_config"),
        ("experts", config(num_local_experts=8), "num_local_experts"),
        ("empty shard", write(shard, b""), shard),
        ("shard with a header of 2^63 bytes", write(shard, b"\0\0\0\0\0\0\0\x80{}"), shard),
        ("shard with a broken header", safetensors_header(b'{"a":1,}', b""), shard),
        ("shard with a tensor beyond its end", safetensors_header(
            b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', bytes(8)), shard),
        ("shard with a size that is not the shape's", safetensors_header(
            b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,12]}}', bytes(16)), shard),
    ]
    for what, change, word in cases:
        folder = t.work.file("broken")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(TINY, "llama"), folder)
        change(folder)
        expect_error(t, "directory: " + what, folder, word)


def part_truncation(t):
    """Cut at 200 random places, and 200 copies with a few random bytes: an error or, for flipped bytes, a run."""
    rng = random.Random(20261130)
    with open(os.path.join(TINY, "llama.gguf"), "rb") as f:
        data = f.read()
    path = t.work.file("cut.gguf")
    header = len(data) - sum(len(x[3]) for x in tg.load(os.path.join(TINY, "llama.gguf")).tensors)
    cuts = sorted([rng.randrange(header) for _ in range(100)] + [rng.randrange(len(data)) for _ in range(98)]
                  + [header, len(data) - 1])
    bad = []
    for cut in cuts:
        with open(path, "wb") as f:
            f.write(data[:cut])
        r = run("logits", path, "--mode", "exact", "--ids", "1,2", "-o", t.work.file("x.npy"), timeout=20)
        if not r.clean_error():
            bad.append("cut at %d: %s" % (cut, r.describe()))
    t.tap.ok(not bad, "truncated at %d places: %d clean errors" % (len(cuts), len(cuts) - len(bad)), "\n".join(bad))
    bad, ran = [], 0
    for i in range(200):
        b = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            b[rng.randrange(header if rng.random() < 0.9 else len(b))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF,
                                                                                  rng.randrange(256)))
        with open(path, "wb") as f:
            f.write(b)
        r = run("logits", path, "--mode", "exact", "--ids", "1,2", "-o", t.work.file("x.npy"), timeout=20)
        ran += r.code == 0
        if r.code != 0 and not r.clean_error():
            bad.append("copy %d: %s" % (i, r.describe()))
    t.tap.ok(not bad, "200 copies with damaged bytes: %d ran, %d clean errors" % (ran, 200 - ran - len(bad)),
             "\n".join(bad))


def part_families(t):
    """The kept models of LayerNorm families (tools/tiny_families.py): the last rows of each length, and the chunk."""
    for name in ("gpt2", "gptneox", "cohere2"):
        z, vocab = t.golden(name), 272
        for form, path in (("directory", os.path.join(TINY, name)), ("GGUF", os.path.join(TINY, name + ".gguf"))):
            worst, wrong = 0.0, []
            for n in LENGTHS:
                x = t.work.logits(path, tiny_ids(n, vocab))
                if isinstance(x, Result):
                    wrong.append(x.describe())
                    continue
                worst = max(worst, gap(x[-4:], z["rows%d" % n])[0])
            y = t.work.logits(path, tiny_ids(LENGTHS[-1], vocab), "--chunk", "7", "--threads", "2")
            if not wrong and (isinstance(y, Result) or not np.array_equal(x, y)):
                wrong.append("chunks of 7 tokens give other logits")
            t.tap.ok(not wrong and worst <= 3e-5, "logits %s (%s): max abs %.2g" % (name, form, worst), "\n".join(wrong))
        package = t.work.file(name + ".mlpackage")
        r = run("convert", path, "-o", package, "--weights", "f16")
        x = t.work.logits(package, tiny_ids(LENGTHS[-1], vocab)) if r.code == 0 else r
        if isinstance(x, Result):
            t.tap.ok(False, "converted %s" % name, x.describe())
            continue
        worst = gap(x[-4:], z["rows%d" % LENGTHS[-1]])[0]
        t.tap.ok(worst <= 2e-2, "logits of converted %s: max abs %.2g" % (name, worst))


PARTS = {"logits": part_logits, "families": part_families, "forms": part_forms, "quant": part_quant, "tokens": part_tokens, "chat": part_chat,
         "hidden": part_hidden, "telling": part_telling, "errors": part_errors, "truncation": part_truncation}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [w for w in wanted if w not in PARTS]
    if unknown:
        sys.exit("test_tiny: unknown part %s; there are: %s" % (unknown[0], " ".join(PARTS)))
    tap = Tap()
    with Work() as work:
        t = Tiny(tap, work)
        for w in wanted:
            PARTS[w](t)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
