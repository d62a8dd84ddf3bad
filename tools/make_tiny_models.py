#!/usr/bin/env python3
"""make_tiny_models: reference values for the tiny models, from other people's software.

    python tools/make_tiny_models.py [--only NAME,…] [--check]

Writes tests/data/tiny: one GGUF and one directory per architecture (tiny_models.KEPT), a GGUF of mixed block types,
and golden/NAME.npz + golden/index.json for every recipe and every block type. Needs torch, transformers 4.57.6,
tokenizers, gguf and numpy; the tests themselves need numpy only.

Truth is transformers' float32 eager attention on one thread. Stated beside it: how far a float64 run of the same model
is away, and how far the logits move when a feature of the recipe is switched off (below 1e-2 the recipe would not test
the feature, and this script stops). Every GGUF file is read back by the gguf package, block types are decoded by it,
and where transformers can open the GGUF itself its logits are compared as well.

A golden keeps, for sequences of 1, 7, 40 and 150 ids: the full row of logits at ROWS, and eight random projections of
every row, which see an error anywhere at a hundredth of the size.
"""
import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_models as tm

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "data", "tiny")
LENGTHS = (1, 7, 40, 150)
ROWS = {1: [0], 7: [0, 6], 40: [15, 17, 39], 150: [16, 63, 64, 149]}
HIDDEN_ROWS = [0, 7, 17, 31, 39]
TEXTS = ["", "The keeper of the roof", " the  tiles\n\nin the evening.\n", "12345 678, it's 9!", "café 日本語 😀 naïve",
         "a\tb\r\n  c   ", "x" * 40, "then the rain takes the water\n\n\nto the sea", "\u00a0\u2581\u2003end", "don't WON'T I'll"]
CHAT = [[{"role": "user", "content": "How many tiles?"}],
        [{"role": "user", "content": " Count them. "}, {"role": "assistant", "content": "12"},
         {"role": "user", "content": "Again."}]]

# recipe -> what to switch off, each as changes to config.json, or a function of the state dict
OFF = {"llama": {"rope": dict(rope_theta=1e12)},
       "llama-linear": {"rope_scaling": dict(rope_scaling=None)},
       "llama-llama3": {"rope_scaling": dict(rope_scaling=None)},
       "llama-yarn": {"rope_scaling": dict(rope_scaling=None),
                      "attention_factor": dict(rope_scaling=dict(tm.YARN, attention_factor=1.0)),
                      "as linear": dict(rope_scaling={"rope_type": "linear", "factor": 4.0})},
       "mistral": {"sliding_window": dict(sliding_window=None), "window + 1": dict(sliding_window=17)},
       "mistral-yarn": {"rope_scaling": dict(rope_scaling=None), "beta": dict(rope_scaling=tm.YARN)},
       "smollm3": {"no_rope_layers": dict(no_rope_layers=[1, 1, 1, 1])},
       "qwen2-yarn": {"rope_scaling": dict(rope_scaling=None)},
       "qwen2-window": {"use_sliding_window": dict(use_sliding_window=False)},
       "gemma2": {"attn softcap": dict(attn_logit_softcapping=None), "final softcap": dict(final_logit_softcapping=None),
                  "window": dict(sliding_window=4096), "window + 1": dict(sliding_window=17)},
       "gemma3": {"window": dict(sliding_window=4096), "linear": dict(rope_scaling=None),
                  "local theta": dict(rope_local_base_freq=1e6), "global theta": dict(rope_theta=1e4),
                  "layer_types": dict(layer_types=["sliding_attention"] * 7)},
       "gemma3-scalar": {"scalar": dict(query_pre_attn_scalar=16)},
       "granite": {k: {k: 1.0} for k in ("embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                         "logits_scaling")},
       "olmo3": {"window": dict(sliding_window=4096), "rope_scaling": dict(rope_scaling=None),
                 "layer_types": dict(layer_types=["sliding_attention"] * 4)},
       "exaone4-hybrid": {"window": dict(sliding_window=4096),
                          "layer_types": dict(layer_types=["sliding_attention"] * 4)},
       "glm": {"partial": dict(partial_rotary_factor=1.0)}, "hunyuan": {"alpha": dict(rope_scaling=None)},
       "granite-4": {"rope": dict(position_embedding_type=None)},
       "phi3": {"window": dict(sliding_window=None)},
       "phi3-longrope": {"rope_scaling": dict(rope_scaling=None)}}
ZERO = {"llama-bias": [".q_proj.bias", ".k_proj.bias", ".v_proj.bias", ".o_proj.bias"],
        "llama-mlpbias": ["gate_proj.bias", "up_proj.bias", "down_proj.bias"],
        "qwen2": [".q_proj.bias", ".k_proj.bias", ".v_proj.bias"], "qwen3": [".q_norm.weight", ".k_norm.weight"],
        "gemma3": [".q_norm.weight", ".k_norm.weight", "post_attention_layernorm.weight",
                   "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight", "input_layernorm.weight"],
        "olmo2": [".q_norm.weight", ".k_norm.weight", "post_attention_layernorm.weight",
                  "post_feedforward_layernorm.weight"], "glm": [".q_proj.bias"], "seed_oss": [".k_proj.bias", ".v_proj.bias"],
        "hunyuan": ["query_layernorm.weight", "key_layernorm.weight"],
        "gemma2": ["post_attention_layernorm.weight", "post_feedforward_layernorm.weight"]}


def ids_of(n, vocab):
    return [int(x) % vocab for x in np.frombuffer(tm.stream("ids/%d" % n, 2 * n), "<u2")]


def projection(vocab):
    bits = np.unpackbits(np.frombuffer(tm.stream("projection", vocab), np.uint8)).reshape(vocab, 8)
    return bits.astype(np.float64) * 2.0 - 1.0


def load(folder, changes=None, zero=(), dtype=torch.float32):
    config = AutoConfig.from_pretrained(folder)
    if changes:
        raw = json.load(open(os.path.join(folder, "config.json")))
        raw.update(changes)
        config = type(config).from_dict(raw)
    m = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager")
    for name, p in m.named_parameters():
        if any(name.endswith(z) for z in zero):
            p.data.fill_(1.0 if name.endswith("norm.weight") and "gemma" not in config.model_type else 0.0)
    return m.to(dtype).eval()


@torch.no_grad()
def logits(m, ids):
    return m(torch.tensor([ids]), use_cache=False).logits[0].double().numpy()


@torch.no_grad()
def hidden(m, ids):
    caps, hooks = {}, []

    def cap(name):
        def f(_, __, out):
            caps[name] = (out[0] if isinstance(out, tuple) else out)[0].float().numpy()[HIDDEN_ROWS].copy()
        return f
    # the model's view of the embedding: what enters block 0 (gemma scales after the lookup)
    hooks.append(m.model.layers[0].register_forward_pre_hook(
        lambda _, a, k: caps.update(embed=(a[0] if a else k["hidden_states"])[0].float().numpy()[HIDDEN_ROWS].copy()),
        with_kwargs=True))
    for i, layer in enumerate(m.model.layers):
        hooks.append(layer.register_forward_hook(cap("layer%02d" % i)))
    hooks.append(m.model.norm.register_forward_hook(cap("final_norm")))
    logits(m, ids)
    for h in hooks:
        h.remove()
    return caps


def golden(m, vocab, lengths=LENGTHS):
    out, p, seqs = {}, projection(vocab), {}
    for n in lengths:
        ids = ids_of(n, vocab)
        x = logits(m, ids)
        out["rows%d" % n] = x[ROWS[n]].astype(np.float32)
        out["probe%d" % n] = (x @ p).astype(np.float32)
        seqs[n] = x
    return out, seqs


def f64_gap(folder, seqs, vocab, m=None):
    m = (m or load(folder)).double()
    return max(float(np.abs(logits(m, ids_of(n, vocab)) - x).max()) for n, x in seqs.items())


def feature_gaps(name, folder, base, vocab):
    gaps, ids = {}, ids_of(150, vocab)
    for what, changes in OFF.get(name, {}).items():
        gaps[what] = float(np.abs(logits(load(folder, changes), ids) - base).max())
    for z in ZERO.get(name, ()):
        gaps["without *" + z] = float(np.abs(logits(load(folder, zero=[z]), ids) - base).max())
    weak = {k: v for k, v in gaps.items() if v < 1e-2}
    if weak:
        raise SystemExit("%s: features that do not show in the logits: %s" % (name, weak))
    return gaps


def tokenizer_rows(folder, model):
    t = AutoTokenizer.from_pretrained(folder)
    fast = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    fast.encode_special_tokens = False
    special = [x for x, k in zip(model.tok.tokens, model.tok.types) if k == 3]
    texts = TEXTS + ["a%sb %s\n" % (special[0], special[-1]), "%s%s x" % (special[-1], special[-1])]
    rows = []
    for s in texts:
        fast.encode_special_tokens = True
        plain = fast.encode(s, add_special_tokens=False).ids
        fast.encode_special_tokens = False
        ids = fast.encode(s, add_special_tokens=True).ids
        if t(s)["input_ids"] != ids:
            raise SystemExit("%s: %r: tokenizers and transformers disagree" % (folder, s))
        rows.append({"text": s, "ids": ids, "plain": plain,
                     "special": fast.encode(s, add_special_tokens=False).ids})
    chat = [{"messages": c, "add_generation_prompt": g,
             "text": t.apply_chat_template(c, tokenize=False, add_generation_prompt=g)} for c in CHAT for g in (False, True)]
    return rows, chat


def check_gguf(path, model):
    """The gguf package must see every tensor and find the values that were meant."""
    want = dict(pair for hf in model.weights for pair in model.gguf_weights(hf))
    r = GGUFReader(path)
    got = {t.name: dequantize(t.data, t.tensor_type).reshape(tuple(reversed([int(d) for d in t.shape]))) for t in r.tensors}
    for name, w in want.items():
        if not np.array_equal(np.asarray(got[name], np.float32), w):
            raise SystemExit("%s: %s differs" % (path, name))


def gguf_gap(path, folder, base, vocab):
    """transformers' own reading of the GGUF's tensors against the directory's logits, or why it cannot read them.

    The configuration is the directory's: transformers does not read softcaps, windows or scalings from GGUF keys."""
    try:
        m = AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path),
                                                 config=AutoConfig.from_pretrained(folder),
                                                 dtype=torch.float32, attn_implementation="eager")
    except Exception as e:
        return "not read by transformers: %s" % (str(e).splitlines() or [type(e).__name__])[0][:90]
    return float(np.abs(logits(m.eval(), ids_of(40, vocab)) - base).max())


def sha(model):
    h = hashlib.sha256()
    for name, w in model.weights.items():
        h.update(name.encode() + w.tobytes())
    return h.hexdigest()


def recipe(name, tmp):
    model = tm.Model(name)
    vocab = model.config["vocab_size"]
    folder = model.write_dir(os.path.join(tmp, name))
    m = load(folder)
    out, seqs = golden(m, vocab)
    if name in tm.KEPT:
        out.update(("hidden_" + k, v) for k, v in hidden(m, ids_of(40, vocab)).items())
    np.savez_compressed(os.path.join(OUT, "golden", name + ".npz"), **out)
    path = os.path.join(tmp, name + ".gguf")
    model.gguf().save(path)
    check_gguf(path, model)
    rows, chat = tokenizer_rows(folder, model)
    entry = {"vocab": vocab, "sha256": sha(model), "f64_gap": f64_gap(folder, seqs, vocab),
             "logits_deviation": float(seqs[150].std()), "features": feature_gaps(name, folder, seqs[150], vocab),
             "gguf_in_transformers": gguf_gap(path, folder, seqs[40], vocab), "tokenizer": model.recipe["tok"]}
    if name == "phi3-longrope":
        entry["ctx"] = {str(n): 64 if n <= 64 else 512 for n in LENGTHS}
    print(name, json.dumps({k: v for k, v in entry.items() if k not in ("sha256", "ctx")}), flush=True)
    return entry, {"%s-%d" % (model.recipe["tok"], vocab): {"model": name, "rows": rows, "chat": chat}}


def from_gguf(model, g):
    """The recipe's transformers model with the weights that the gguf package decodes from g."""
    h = tempfile.mkdtemp()
    path = os.path.join(h, "q.gguf")
    g.save(path)
    got = {}
    for t in GGUFReader(path).tensors:
        got[t.name] = dequantize(t.data, t.tensor_type).reshape(tuple(reversed([int(d) for d in t.shape])))
    state = {}
    for hf in model.weights:
        name, w = model.gguf_weight(hf)
        v = np.asarray(got[name], np.float32)
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if part in hf:                       # pairs -> halves
                n = model.config[heads]
                v = np.ascontiguousarray(v.reshape(n, -1, 2, v.shape[-1]).swapaxes(1, 2).reshape(v.shape))
        state[hf] = torch.from_numpy(np.array(v))
    folder = model.write_dir(os.path.join(h, "dir"))
    m = load(folder)
    missing, unexpected = m.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    m.tie_weights()
    shutil.rmtree(h)
    return m.eval()


def quantized(kind):
    model = tm.Model("wide-tied" if kind == "mixed" else "wide")
    vocab = model.config["vocab_size"]
    if kind == "mixed":
        g = model.quantized(tm.MIXED)
        g.save(os.path.join(OUT, "llama-mixed.gguf"))
    else:
        g = model.quantized(kind)
    m = from_gguf(model, g)
    out, seqs = golden(m, vocab, (7, 40))
    np.savez_compressed(os.path.join(OUT, "golden", "quant-%s.npz" % kind), **out)
    entry = {"vocab": vocab, "sha256": hashlib.sha256(b"".join(t[3] for t in g.tensors)).hexdigest(),
             "f64_gap": f64_gap(None, seqs, vocab, m), "logits_deviation": float(seqs[40].std())}
    print("quant", kind, json.dumps(entry), flush=True)
    return entry


def keep(name):
    model = tm.Model(name)
    model.gguf(tm.KEPT_AS.get(name, "F32")).save(os.path.join(OUT, name + ".gguf"))
    model.write_dir(os.path.join(OUT, name), shards=3 if name == "llama" else 1)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--only", default="")
    a = ap.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    os.makedirs(os.path.join(OUT, "golden"), exist_ok=True)
    index_path = os.path.join(OUT, "golden", "index.json")
    index = json.load(open(index_path)) if a.only and os.path.exists(index_path) else {}
    index.setdefault("models", {}), index.setdefault("quants", {}), index.setdefault("tokenizers", {})
    index["made_by"] = {"torch": torch.__version__, "transformers": transformers.__version__}
    index["ids"] = {str(n): {"seed": "ids/%d" % n, "rows": ROWS[n]} for n in LENGTHS}
    index["hidden_rows"] = HIDDEN_ROWS
    only = set(filter(None, a.only.split(",")))
    with tempfile.TemporaryDirectory() as tmp:
        for name in tm.RECIPES:
            if not only or name in only:
                index["models"][name], toks = recipe(name, tmp)
                for k, v in toks.items():
                    index["tokenizers"].setdefault(k, v)
        for kind in tm.QUANTS + ["mixed"]:
            if not only or kind in only:
                index["quants"][kind] = quantized(kind)
        for name in tm.KEPT:
            if not only or name in only:
                keep(name)
    with open(index_path, "w", encoding="utf-8") as f:
        f.write(json.dumps(index, ensure_ascii=True, sort_keys=True).replace('}, "', '},\n"').replace('}, {', '},\n{') + "\n")


if __name__ == "__main__":
    main()
