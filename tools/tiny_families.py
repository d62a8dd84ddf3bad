#!/usr/bin/env python3
"""tiny_families: tiny random models of the LayerNorm families, as transformers itself saves them, and their GGUF form.

    python tools/tiny_families.py PROGRAM [NAME …]     compares `PROGRAM logits` with transformers, prints the differences
    python tools/tiny_families.py --write [NAME …]     writes tests/data/tiny of the families in KEPT

A recipe names a configuration class and its values. The model is made by transformers, its parameters are replaced by
values from SHAKE-256 (unit-size activations, peaked attention, norm weights between 0.7 and 1.3), and save_pretrained
writes it, so names, fusions and transpositions of the directory are those of real checkpoints. The GGUF form is written
from the same state with the names and row orders that llama.cpp's converter gives such models. Needs torch,
transformers 4.57 and numpy. Differences above 3e-5 end the run with exit code 1.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_gguf as tg
import tiny_models as tm
import tiny_tok

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "data", "tiny")
KEPT = ["gpt2", "gptneox", "cohere2"]
LENGTHS = (1, 7, 40, 150)
LIMIT = 3e-5
VOCAB = 272
GPT = dict(n_embd=24, n_layer=2, n_head=3, n_positions=192)
DENSE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=192)
GQA = dict(DENSE, num_key_value_heads=2)
FALCON = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
COHERE = dict(GQA, intermediate_size=48, logit_scale=0.25)
LOCAL = ["sliding_attention"] * 3 + ["full_attention"]

# name: (configuration, GGUF architecture or None, values)
RECIPES = {
    "gpt2": ("GPT2Config", "gpt2", GPT),
    "gpt2-inner": ("GPT2Config", None, dict(GPT, n_inner=48, activation_function="gelu", scale_attn_weights=True)),
    "gptneox": ("GPTNeoXConfig", "gptneox", dict(DENSE, hidden_size=24, num_attention_heads=3, intermediate_size=48,
                                                 rotary_pct=0.5)),
    "gptneox-serial": ("GPTNeoXConfig", "gptneox", dict(DENSE, intermediate_size=48, rotary_pct=0.5,
                                                        use_parallel_residual=False)),
    "phi": ("PhiConfig", "phi2", dict(DENSE, intermediate_size=128, partial_rotary_factor=0.5)),
    "starcoder": ("GPTBigCodeConfig", "starcoder", GPT),
    "starcoder-mha": ("GPTBigCodeConfig", None, dict(GPT, multi_query=False)),
    "starcoder2": ("Starcoder2Config", "starcoder2", dict(GQA, intermediate_size=48)),
    "starcoder2-window": ("Starcoder2Config", None, dict(GQA, intermediate_size=48, sliding_window=16)),
    "stablelm": ("StableLmConfig", "stablelm", dict(GQA, intermediate_size=48, partial_rotary_factor=0.5)),
    "stablelm-bias": ("StableLmConfig", "stablelm", dict(GQA, intermediate_size=48, use_qkv_bias=True,
                                                         partial_rotary_factor=0.5)),
    "stablelm-parallel": ("StableLmConfig", "stablelm", dict(GQA, intermediate_size=48, partial_rotary_factor=0.5,
                                                             use_parallel_residual=True)),
    "falcon-7b": ("FalconConfig", "falcon", FALCON),
    "falcon-40b": ("FalconConfig", "falcon", dict(FALCON, new_decoder_architecture=True, num_kv_heads=2)),
    "falcon-serial": ("FalconConfig", None, dict(FALCON, parallel_attn=False, multi_query=False, bias=True)),
    "cohere": ("CohereConfig", "command-r", COHERE),
    "cohere2": ("Cohere2Config", "cohere2", dict(COHERE, hidden_size=24, num_attention_heads=2, num_key_value_heads=1,
                                                 intermediate_size=32, num_hidden_layers=4, sliding_window=16,
                                                 layer_types=LOCAL, head_dim=12)),
    "nemotron": ("NemotronConfig", "nemotron", dict(GQA, intermediate_size=64, head_dim=8)),
    "olmo": ("OlmoConfig", "olmo", dict(GQA, intermediate_size=48)),
    "gptj": ("GPTJConfig", None, dict(GPT, rotary_dim=4)),
    "gpt_neo": ("GPTNeoConfig", None, dict(hidden_size=32, num_layers=2, num_heads=4, max_position_embeddings=192,
                                           window_size=16, attention_types=[[["global", "local"], 1]])),
    "opt": ("OPTConfig", None, dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
                                    word_embed_proj_dim=32, max_position_embeddings=192)),
    "arcee": ("ArceeConfig", "arcee", dict(GQA, intermediate_size=64)),
    "helium": ("HeliumConfig", None, dict(GQA, intermediate_size=48, head_dim=8)),
}

# end of a tensor's name inside a layer -> GGUF's
NAMES = {"ln_1": "attn_norm", "ln_2": "ffn_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "ln_attn": "attn_norm_2", "ln_mlp": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
         "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "query_key_value": "attn_qkv", "attention.dense": "attn_output",
         "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attention.dense": "attn_output"}
TOP = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "embed_in": "token_embd",
       "final_layer_norm": "output_norm", "embed_out": "output", "embed_tokens": "token_embd",
       "final_layernorm": "output_norm", "norm": "output_norm", "lm_head": "output", "word_embeddings": "token_embd"}


def make(name):
    """The transformers model with its final parameters."""
    import torch
    import transformers
    kind, _, values = RECIPES[name]
    tok = tiny_tok.make("smollm", VOCAB)
    config = getattr(transformers, kind)(vocab_size=VOCAB, bos_token_id=tok.bos, eos_token_id=tok.eos,
                                         pad_token_id=None if kind != "OPTConfig" else 1, **values)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    for label, p in model.named_parameters():
        u = tm.uniform("%s/%s" % (name, label), tuple(p.shape))
        if p.ndim == 1 and label.endswith("weight"):
            v = 0.3 * u + (0.0 if kind == "NemotronConfig" else 1.0)
        elif p.ndim == 1:
            v = 0.5 * u
        elif "embed" in label or "wte" in label or "wpe" in label:
            v = 1.5 * u
        else:
            fan = p.shape[0] if kind == "GPT2Config" else p.shape[-1]
            # scores of GPT-Neo are not scaled: peaks of 1.6 would make float32 itself the largest difference
            peak = 0.8 if kind == "GPTNeoConfig" else 1.6 if any(k in label for k in ("q_proj", "k_proj", "c_attn", "query_key")) else 1.0
            v = peak * np.sqrt(3.0 / fan) * u
        p.data.copy_(torch.from_numpy(tm.round_to("bf16", v.astype(np.float32))))
    return model, tok


def write_dir(model, tok, path):
    model.save_pretrained(path)
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(path, extra)):
            os.remove(os.path.join(path, extra))
    tm.dump(path, "tokenizer.json", tok.hf)
    tm.dump(path, "tokenizer_config.json", tok.config)


def ungroup(w, groups, per_group, width):
    """Rows of q, k, v of each KV head together -> all of q, then k, then v."""
    r = w.reshape((groups, per_group + 2, width) + w.shape[1:])
    return np.concatenate([r[:, :-2].reshape((-1,) + w.shape[1:]), r[:, -2].reshape((-1,) + w.shape[1:]),
                           r[:, -1].reshape((-1,) + w.shape[1:])])


def gguf_weight(arch, c, label, w):
    """(GGUF name, array) of one parameter."""
    inner, suffix = label.rsplit(".", 1)
    parts = inner.split(".")
    layer = next((p for p in parts if p.isdigit()), None)
    heads = getattr(c, "num_attention_heads", None) or c.n_head
    if layer is None:
        name = TOP[parts[-1]]
        if arch == "nemotron" and name == "output_norm" and suffix == "weight":
            w = w + np.float32(1)
        return "%s.%s" % (name, suffix), w
    rest = inner.split("." + layer + ".", 1)[1]
    name = NAMES.get(rest) or NAMES[".".join(rest.split(".")[-1:])]
    if arch == "gpt2" and w.ndim == 2:
        w = np.ascontiguousarray(w.T)
    if arch == "gptneox" and name == "attn_qkv":
        w = ungroup(w, heads, 1, c.hidden_size // heads)
    if arch == "falcon" and name == "attn_qkv":
        kv = c.num_kv_heads if c.new_decoder_architecture else 1
        w = ungroup(w, kv, heads // kv, c.hidden_size // heads)
    if arch == "nemotron" and "norm" in name and suffix == "weight":
        w = w + np.float32(1)
    if arch in ("olmo", "arcee") and name in ("attn_q", "attn_k"):
        w = tm.interleave(w, heads if name == "attn_q" else c.num_key_value_heads)
    return "blk.%s.%s.%s" % (layer, name, suffix), w


def write_gguf(name, model, tok, path, kind="F32"):
    _, arch, _ = RECIPES[name]
    c, g = model.config, tg.Gguf()
    get = lambda *names: next((getattr(c, n) for n in names if getattr(c, n, None) is not None), None)
    width, heads = get("hidden_size", "n_embd"), get("num_attention_heads", "n_head")
    g.key("general.architecture", tg.STR, arch)
    g.key("general.name", tg.STR, "tiny " + name)
    u32 = {"context_length": get("n_positions", "max_position_embeddings"), "embedding_length": width,
           "block_count": get("num_hidden_layers", "n_layer"), "attention.head_count": heads,
           "feed_forward_length": get("intermediate_size", "n_inner", "ffn_hidden_size") or 4 * width}
    kv = {"starcoder": 1, "phi2": heads, "falcon": c.num_kv_heads if arch == "falcon" and c.new_decoder_architecture
          else 1, "gpt2": None, "gptneox": None}.get(arch, get("num_key_value_heads"))
    if kv:
        u32["attention.head_count_kv"] = kv
    rotary = get("partial_rotary_factor", "rotary_pct")
    if arch in ("gptneox", "phi2", "stablelm", "nemotron"):
        u32["rope.dimension_count"] = int(rotary * (width // heads))
    if arch in ("command-r", "cohere2", "nemotron"):
        g.key(arch + ".rope.scaling.type", tg.STR, "none")
    if arch == "cohere2":
        u32.update({"rope.dimension_count": width // heads, "attention.sliding_window": c.sliding_window,
                    "vocab_size": VOCAB})
    for key, value in u32.items():
        g.key("%s.%s" % (arch, key), tg.U32, value)
    eps = get("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps") or 1e-5
    g.key(arch + (".attention.layer_norm_rms_epsilon" if arch == "arcee" else ".attention.layer_norm_epsilon"), tg.F32, eps)
    if arch in ("gptneox", "stablelm"):
        g.key(arch + ".use_parallel_residual", tg.BOOL, c.use_parallel_residual)
    if arch in ("starcoder2", "command-r", "cohere2", "olmo", "arcee", "nemotron"):
        g.key(arch + ".rope.freq_base", tg.F32, c.rope_theta)
    if arch in ("command-r", "cohere2"):
        g.key(arch + ".logit_scale", tg.F32, c.logit_scale)
    if arch == "falcon":
        g.key(arch + ".tensor_data_layout", tg.STR, "jploski")
    tok.gguf(g)
    tied = c.tie_word_embeddings
    for label, p in model.named_parameters():
        if tied and label in ("lm_head.weight", "embed_out.weight"):
            continue
        gguf, w = gguf_weight(arch, c, label, p.detach().numpy())
        g.tensor(gguf, w, kind if w.ndim == 2 else "F32")
    g.tensors.sort(key=lambda t: t[0] == "output.weight")
    g.save(path)


def ids_of(n):
    return [int(x) % VOCAB for x in np.frombuffer(tm.stream("ids/%d" % n, 2 * n), "<u2")]


def truth(model, n):
    import torch
    with torch.no_grad():
        return model(torch.tensor([ids_of(n)]), use_cache=False).logits[0].numpy()


def run(program, path, n, *more):
    """The program's logits, or its message."""
    with tempfile.TemporaryDirectory() as tmp:
        ids, out = os.path.join(tmp, "ids.txt"), os.path.join(tmp, "x.npy")
        with open(ids, "w") as f:
            f.write(" ".join(map(str, ids_of(n))))
        r = subprocess.run([program, "logits", path, "--ids", ids, "--output", out, "--ctx", "192", *more],
                           capture_output=True, text=True)
        return np.load(out) if r.returncode == 0 else r.stderr.strip()


def compare(program, what, path, model):
    """Prints one line; true where exact mode agrees, chunks and threads change nothing, and fast mode is finite."""
    worst = 0.0
    for n in LENGTHS:
        x = run(program, path, n, "--mode", "exact")
        if isinstance(x, str):
            print("%-28s %s" % (what, x))
            return False
        worst = max(worst, float(np.abs(x - truth(model, n)).max()))
    y = run(program, path, LENGTHS[-1], "--mode", "exact", "--chunk", "7", "--threads", "2")
    fast = run(program, path, LENGTHS[-1], "--mode", "fast")
    same = not isinstance(y, str) and np.array_equal(x, y)
    finite = not isinstance(fast, str) and bool(np.isfinite(fast).all())
    good = worst <= LIMIT and same and finite
    print("%-28s max abs %.2g of deviation %.2g%s%s%s" % (what, worst, float(x.std()), "" if same else ", CHUNKS DIFFER",
                                                       "" if finite else ", FAST NOT FINITE", "" if good else "  WRONG"))
    return good


def check(program, names):
    bad = 0
    for name in names:
        model, tok = make(name)
        with tempfile.TemporaryDirectory() as tmp:
            folder, file = os.path.join(tmp, name), os.path.join(tmp, name + ".gguf")
            write_dir(model, tok, folder)
            bad += not compare(program, name + " (directory)", folder, model)
            if RECIPES[name][1]:
                write_gguf(name, model, tok, file)
                bad += not compare(program, name + " (GGUF)", file, model)
    return bad


def main():
    import torch
    import transformers
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    args = sys.argv[1:]
    if not args:
        raise SystemExit(__doc__)
    names = args[1:] or list(RECIPES)
    if args[0] != "--write":
        sys.exit(check(args[0], names) > 0)
    for name in args[1:] or KEPT:
        model, tok = make(name)
        write_gguf(name, model, tok, os.path.join(OUT, name + ".gguf"), "BF16")
        np.savez_compressed(os.path.join(OUT, "golden", name + ".npz"),
                            **{"rows%d" % n: truth(model, n)[-4:] for n in LENGTHS})
        write_dir(model.bfloat16(), tok, os.path.join(OUT, name))    # last: RoPE frequencies are rounded too


if __name__ == "__main__":
    main()
