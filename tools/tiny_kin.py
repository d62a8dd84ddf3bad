"""tiny_kin: families that transformers has no class for, beside a model of it that computes the same.

A small random Llama, Qwen 2, Granite, StableLM or Mistral is written under the names, the layout and the keys of
XVERSE, Baichuan, Qwen 1, InternLM 2, EXAONE 3, MiniCPM, Orion and Ministral 3, as a directory, as a GGUF, or both, and
the program's logits are compared with the model's own (tiny_families.compare). Only Ministral 3's first context is
looked at: beyond it no session goes. Needs torch and transformers 4.57.

  tiny_kin.py PROGRAM [NAME ...]
"""
import json
import os
import sys
import tempfile

import numpy as np

import tiny_families as tf
import tiny_gguf as tg
import tiny_models as tm
import tiny_tok

TOK = tiny_tok.make("smollm", tf.VOCAB)
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
             max_position_embeddings=192, rms_norm_eps=1e-5, vocab_size=tf.VOCAB, bos_token_id=TOK.bos,
             eos_token_id=TOK.eos, pad_token_id=None)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 192, "mscale": 1.0,
        "mscale_all_dim": 1.0}
INTERNLM2 = [("self_attn.o_proj", "attention.wo"), ("mlp.gate_proj", "feed_forward.w1"),
             ("mlp.up_proj", "feed_forward.w3"), ("mlp.down_proj", "feed_forward.w2"),
             ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm"),
             ("embed_tokens", "tok_embeddings"), ("lm_head", "output")]
EXAONE = [("self_attn.", "attn.attention."), ("o_proj", "out_proj"), ("mlp.gate_proj", "mlp.c_fc_0"),
          ("mlp.up_proj", "mlp.c_fc_1"), ("mlp.down_proj", "mlp.c_proj"), ("input_layernorm", "ln_1"),
          ("post_attention_layernorm", "ln_2"), ("model.layers", "transformer.h"),
          ("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f")]
MISTRAL_GGUF = [("attention.key_length", tg.U32, 16), ("attention.value_length", tg.U32, 16),
                ("rope.dimension_count", tg.U32, 16), ("rope.freq_base", tg.F32, 1e6),
                ("rope.scaling.type", tg.STR, "yarn"), ("rope.scaling.factor", tg.F32, 4.0),
                ("rope.scaling.original_context_length", tg.U32, 192),
                ("rope.scaling.yarn_log_multiplier", tg.F32, 1.0), ("attention.temperature_scale", tg.F32, 0.1)]


def reference(name, kind, without=(), **more):
    """The model of transformers, with weights that follow from the name."""
    import torch
    import transformers
    sizes = {k: v for k, v in dict(SIZES, **more).items() if k not in without}
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**sizes),
                                                          attn_implementation="eager")
    for label, p in model.named_parameters():
        u = tm.uniform("%s/%s" % (name, label), tuple(p.shape))
        if p.ndim == 1:
            v = 0.3 * u + 1 if label.endswith("weight") else 0.5 * u
        elif "embed" in label:
            v = 1.5 * u
        else:
            v = (1.6 if "q_proj" in label or "k_proj" in label else 1.0) * np.sqrt(3.0 / p.shape[-1]) * u
        p.data.copy_(torch.from_numpy(tm.round_to("bf16", v.astype(np.float32))))
    return model.float().eval()


def weights(model):
    return {k: p.detach().numpy() for k, p in model.named_parameters()}


def renamed(tensors, rules):
    out = {}
    for name, w in tensors.items():
        for old, new in rules:
            name = name.replace(old, new)
        out[name] = w
    return out


def grouped(tensors):
    """q, k and v of each KV head together in wqkv, as InternLM 2 has them."""
    out = {}
    for name, w in tensors.items():
        if "q_proj" in name:
            parts = [tensors[name.replace("q_proj", p)].reshape(2, -1, 8, 32) for p in ("q_proj", "k_proj", "v_proj")]
            out[name.replace("self_attn.q_proj", "attention.wqkv")] = np.concatenate(parts, 1).reshape(-1, 32)
        elif "k_proj" not in name and "v_proj" not in name:
            out[name] = w
    return out


def write_dir(path, config, tensors):
    os.makedirs(path)
    tm.dump(path, "config.json", config)
    tm.write_safetensors(os.path.join(path, "model.safetensors"), {k: ("f32", w) for k, w in tensors.items()})
    tm.dump(path, "tokenizer.json", TOK.hf)
    tm.dump(path, "tokenizer_config.json", TOK.config)


def write_gguf(path, arch, model, keys=(), norm="layer_norm_rms_epsilon", pairs=True, ffn=48, fused=False):
    c, g, parts = model.config, tg.Gguf(), {}
    g.key("general.architecture", tg.STR, arch)
    for key, value in (("context_length", c.max_position_embeddings), ("embedding_length", 32), ("block_count", 2),
                       ("attention.head_count", 4), ("attention.head_count_kv", c.num_key_value_heads),
                       ("feed_forward_length", ffn)):
        g.key("%s.%s" % (arch, key), tg.U32, value)
    g.key("%s.attention.%s" % (arch, norm), tg.F32, 1e-5)
    for key, kind, value in keys:
        g.key("%s.%s" % (arch, key), kind, value)
    TOK.gguf(g)
    for label, w in weights(model).items():
        name, w = tf.gguf_weight(arch, c, label, w)
        end = name.split(".", 2)[-1]
        if pairs and end.startswith(("attn_q.", "attn_k.")):
            w = tm.interleave(w, 4 if "attn_q" in end else c.num_key_value_heads)
        if fused and end.startswith(("attn_q.", "attn_k.", "attn_v.")):
            whole = name.replace("attn_" + end[5], "attn_qkv")
            parts.setdefault(whole, []).append(w)
            if len(parts[whole]) < 3:
                continue
            name, w = whole, np.concatenate(parts[whole])
        g.tensor(name, w, "F32")
    g.tensors.sort(key=lambda t: t[0] == "output.weight")
    g.save(path)


def models():
    """name -> (model, config.json and tensors or None, arguments of write_gguf or None)."""
    base = dict(SIZES, hidden_act="silu", tie_word_embeddings=False)
    m = reference("xverse", "LlamaConfig")
    yield "xverse", m, (dict(base, model_type="xverse"), weights(m)), {}
    yield "baichuan", m, None, {}
    m = reference("qwen", "Qwen2Config", num_key_value_heads=4)
    yield "qwen", m, None, dict(pairs=False, ffn=96, fused=True)
    m = reference("internlm2", "LlamaConfig")
    yield "internlm2", m, (dict(base, model_type="internlm2", bias=False, rope_scaling={"type": "dynamic", "factor": 2.0}),
                           renamed(grouped(weights(m)), INTERNLM2)), None
    m = reference("exaone", "LlamaConfig", rope_scaling=LLAMA3)
    config = dict(base, model_type="exaone", activation_function="silu", num_layers=2, layer_norm_epsilon=1e-5,
                  head_dim=8, rope_scaling=LLAMA3)
    for key in ("hidden_act", "num_hidden_layers", "rms_norm_eps"):
        del config[key]
    yield "exaone", m, (config, renamed(weights(m), EXAONE)), None
    m = reference("minicpm", "GraniteConfig", embedding_multiplier=12.0, residual_multiplier=1.4 / 2 ** 0.5,
                  logits_scaling=2.0, attention_multiplier=8 ** -0.5, tie_word_embeddings=True)
    config = dict(base, model_type="minicpm", scale_emb=12, scale_depth=1.4, dim_model_base=16)
    del config["tie_word_embeddings"]
    yield "minicpm", m, (config, weights(m)), None
    m = reference("orion", "StableLmConfig", ("rms_norm_eps",), layer_norm_eps=1e-5, partial_rotary_factor=1.0,
                  use_parallel_residual=False)
    yield "orion", m, (dict(base, model_type="orion"), weights(m)), dict(norm="layer_norm_epsilon", pairs=False)
    m = reference("mistral3", "MistralConfig", head_dim=16, sliding_window=None, rope_scaling=YARN, rope_theta=1e6,
                  max_position_embeddings=768)
    text = dict(base, model_type="ministral3", head_dim=16, max_position_embeddings=768, sliding_window=None,
                rope_parameters=dict(YARN, rope_theta=1e6, llama_4_scaling_beta=0.1))
    yield "mistral3", m, ({"model_type": "mistral3", "text_config": text, "tie_word_embeddings": True,
                           "vision_config": {"model_type": "pixtral"}, "spatial_merge_size": 2},
                          {"language_model." + k: w for k, w in weights(m).items()}), dict(keys=MISTRAL_GGUF)


def main():
    if len(sys.argv) < 2:
        print(__doc__.rsplit("\n\n", 1)[1])
        return 2
    import torch
    torch.set_num_threads(1)
    program, wanted, bad = sys.argv[1], sys.argv[2:], 0
    for name, model, directory, gguf in models():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as tmp:
            if directory:
                write_dir(os.path.join(tmp, name), *directory)
                bad += not tf.compare(program, name + " (directory)", os.path.join(tmp, name), model)
            if gguf is not None:
                write_gguf(os.path.join(tmp, name + ".gguf"), name, model, **gguf)
                bad += not tf.compare(program, name + " (GGUF)", os.path.join(tmp, name + ".gguf"), model)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
