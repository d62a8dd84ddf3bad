"""tiny_models: the recipes of the tiny random models, and what turns a recipe into files.

A recipe says which configuration (a Hugging Face config.json), which tokenizer, which seed. Weights come from
SHAKE-256 of "seed/tensor name", so the same bytes appear on every machine and only a few models have to be kept in
the repository: `Model.write_dir` makes a directory of safetensors, `Model.write_gguf` a GGUF file, `Model.quantized`
a GGUF file of block-quantized weights. Matrices are rounded to bfloat16 (float16 for some), so that a 2-byte directory and an F32
GGUF of one recipe hold the same model and share one golden file.

Scales are chosen so that each feature shows in the logits: unit-size activations, peaked attention, norm weights
between 0.7 and 1.3, biases of half a unit, softcaps and windows small enough to bite.

Only the standard library and numpy are needed here; make_tiny_models.py adds the reference values.
"""
import hashlib
import json
import math
import os
import struct

import numpy as np

import tiny_gguf as tg
import tiny_tok

ARCH = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "smollm3": "SmolLM3ForCausalLM",
        "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma2": "Gemma2ForCausalLM",
        "gemma3_text": "Gemma3ForCausalLM", "phi3": "Phi3ForCausalLM", "gemma": "GemmaForCausalLM",
        "granite": "GraniteForCausalLM", "granitemoehybrid": "GraniteMoeHybridForCausalLM", "olmo2": "Olmo2ForCausalLM",
        "olmo3": "Olmo3ForCausalLM", "exaone4": "Exaone4ForCausalLM", "ernie4_5": "Ernie4_5ForCausalLM",
        "seed_oss": "SeedOssForCausalLM", "glm": "GlmForCausalLM", "glm4": "Glm4ForCausalLM",
        "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM"}


def _config(kind, D, L, H, G, F, **more):
    c = {"architectures": [ARCH[kind]], "model_type": kind, "hidden_size": D, "num_hidden_layers": L,
         "num_attention_heads": H, "num_key_value_heads": G, "intermediate_size": F, "hidden_act": "silu",
         "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
         "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True, "transformers_version": "4.57.6"}
    if kind.startswith("gemma"):
        del c["hidden_act"]
        c.update(hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6)
    c.update(more)
    return c


LLAMA = dict(D=64, L=2, H=4, G=2, F=96)
LONG = [1.0 + 0.75 * i for i in range(8)]
SHORT = [1.0 + 0.05 * i for i in range(8)]
GRANITE = dict(embedding_multiplier=6.0, attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=4.0,
               attention_bias=False)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
RECIPES = {}


def _recipe(name, kind, tok="llama3", n_vocab=296, seed=None, dtype="bf16", head=1.0, gguf=None, **config):
    RECIPES[name] = dict(kind=kind, tok=tok, n_vocab=n_vocab, seed=seed or name, dtype=dtype, head=head, gguf=gguf,
                         config=config)


# The models that stand in tests/data/tiny as files.
_recipe("llama", "llama", **LLAMA)
_recipe("qwen2", "qwen2", "qwen2", D=64, L=2, H=4, G=1, F=96, tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_theta=1000000.0, use_sliding_window=False, sliding_window=64, max_window_layers=2)
_recipe("qwen3", "qwen3", "qwen2", D=32, L=2, H=4, G=2, F=96, head_dim=32, tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_theta=1000000.0, attention_bias=False, use_sliding_window=False, sliding_window=None, max_window_layers=2)
_recipe("gemma2", "gemma2", "gemma", 384, D=32, L=4, H=4, G=2, F=64, head_dim=16, tie_word_embeddings=True,
        query_pre_attn_scalar=16, sliding_window=16, attn_logit_softcapping=3.0, final_logit_softcapping=6.0)
_recipe("gemma3", "gemma3_text", "gemma", 384, D=32, L=7, H=4, G=1, F=64, head_dim=16, tie_word_embeddings=True,
        query_pre_attn_scalar=16, sliding_window=16, rope_theta=1000000.0, rope_local_base_freq=10000.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        layer_types=["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(7)])
_recipe("phi3", "phi3", "phi3", 384, dtype="f16", D=64, L=2, H=4, G=2, F=96, sliding_window=48,
        original_max_position_embeddings=512, pad_token_id=None)
_recipe("smollm3", "smollm3", D=32, L=4, H=4, G=2, F=96, tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_theta=5000000.0, no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4, use_sliding_window=False,
        sliding_window=None, pad_token_id=None)

_recipe("granite", "granite", D=32, L=2, H=4, G=2, F=64, tie_word_embeddings=True, **GRANITE)
_recipe("olmo2", "olmo2", "qwen2", D=32, L=2, H=4, G=4, F=64, attention_bias=False, rope_theta=500000.0)

# Variants: written when a test wants them.
_recipe("llama-tied", "llama", "smollm", tie_word_embeddings=True, **LLAMA)
_recipe("llama-bias", "llama", attention_bias=True, mlp_bias=False, **LLAMA)
_recipe("llama-mlpbias", "llama", attention_bias=True, mlp_bias=True, **LLAMA)
_recipe("llama-linear", "llama", seed="llama", rope_scaling={"rope_type": "linear", "factor": 4.0}, **LLAMA)
_recipe("llama-llama3", "llama", seed="llama", rope_theta=500000.0, rope_scaling={
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64}, **LLAMA)
_recipe("llama-yarn", "llama", seed="llama", max_position_embeddings=256, rope_scaling=YARN, **LLAMA)
_recipe("llama-headdim", "llama", "llama2", 384, head_dim=32, D=64, L=2, H=3, G=1, F=96)
_recipe("llama-f16", "llama", dtype="f16", **LLAMA)
_recipe("llama-f32", "llama", dtype="f32", **LLAMA)
_recipe("llama-mha", "llama", D=96, L=1, H=6, G=6, F=160, tie_word_embeddings=True)
_recipe("mistral", "mistral", "llama2", 384, sliding_window=16, **LLAMA)
_recipe("mistral-yarn", "mistral", "llama2", 384, seed="mistral", sliding_window=None, head_dim=16,
        max_position_embeddings=256, rope_scaling=dict(YARN, beta_fast=16.0, beta_slow=2.0), **LLAMA)
_recipe("qwen2-yarn", "qwen2", "qwen2", seed="qwen2", D=64, L=2, H=4, G=1, F=96, tie_word_embeddings=True,
        rms_norm_eps=1e-6, rope_theta=1000000.0, max_position_embeddings=256, rope_scaling=YARN,
        use_sliding_window=False, sliding_window=64, max_window_layers=2)
_recipe("qwen2-window", "qwen2", "qwen2", seed="qwen2", D=64, L=2, H=4, G=1, F=96, tie_word_embeddings=True,
        rms_norm_eps=1e-6, rope_theta=1000000.0, use_sliding_window=True, sliding_window=16, max_window_layers=1)
_recipe("qwen3-untied", "qwen3", "qwen2", D=64, L=2, H=2, G=1, F=96, head_dim=64, rms_norm_eps=1e-6,
        rope_theta=1000000.0, attention_bias=False, use_sliding_window=False, sliding_window=None, max_window_layers=2)
_recipe("gemma3-plain", "gemma3_text", "gemma", 384, seed="gemma3", D=32, L=7, H=4, G=1, F=64, head_dim=16,
        tie_word_embeddings=True, query_pre_attn_scalar=16, sliding_window=16, rope_theta=1000000.0,
        rope_local_base_freq=10000.0,
        layer_types=["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(7)])
_recipe("gemma3-scalar", "gemma3_text", "gemma", 384, seed="gemma3", D=32, L=7, H=4, G=1, F=64, head_dim=16,
        tie_word_embeddings=True, query_pre_attn_scalar=8, sliding_window=16, rope_theta=1000000.0,
        rope_local_base_freq=10000.0,
        layer_types=["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(7)])
_recipe("phi3-longrope", "phi3", "phi3", 384, seed="phi3", dtype="f16", D=64, L=2, H=4, G=2, F=96,
        sliding_window=None, original_max_position_embeddings=64, pad_token_id=None,
        rope_scaling={"type": "longrope", "long_factor": LONG, "short_factor": SHORT})
_recipe("wide", "llama", D=256, L=1, H=4, G=2, F=256)    # the shape of the quantized files
_recipe("wide-tied", "llama", D=256, L=1, H=4, G=2, F=256, tie_word_embeddings=True)

_recipe("gemma", "gemma", "gemma", 384, D=32, L=2, H=4, G=1, F=64, head_dim=16, tie_word_embeddings=True,
        hidden_act="gelu_pytorch_tanh", hidden_activation=None)
_recipe("granite-4", "granitemoehybrid", D=32, L=2, H=4, G=2, F=64, tie_word_embeddings=True, num_local_experts=0,
        num_experts_per_tok=0, shared_intermediate_size=96, mamba_n_heads=4, mamba_d_head=16, position_embedding_type="rope",
        layer_types=["attention"] * 2, **GRANITE)
_recipe("granite-nope", "granitemoehybrid", seed="granite-4", D=32, L=2, H=4, G=2, F=64, tie_word_embeddings=True,
        num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=96, mamba_n_heads=4, mamba_d_head=16, position_embedding_type="nope",
        layer_types=["attention"] * 2, **GRANITE)
_recipe("minicpm", "granite", gguf="minicpm", D=32, L=2, H=4, G=4, F=64, embedding_multiplier=12.0,
        residual_multiplier=1.4 / math.sqrt(2), logits_scaling=0.125, attention_multiplier=8 ** -0.5)
_recipe("olmo3", "olmo3", D=32, L=4, H=4, G=4, F=64, sliding_window=16, rope_scaling=YARN, max_position_embeddings=256,
        layer_types=["sliding_attention"] * 3 + ["full_attention"])
_recipe("exaone4", "exaone4", D=32, L=2, H=4, G=2, F=64, head_dim=16, sliding_window=None, tie_word_embeddings=True,
        sliding_window_pattern=None, layer_types=["full_attention"] * 2)
_recipe("exaone4-hybrid", "exaone4", D=32, L=4, H=4, G=2, F=64, sliding_window=16, sliding_window_pattern="LLLG",
        layer_types=["sliding_attention"] * 3 + ["full_attention"])
_recipe("exaone", "llama", seed="llama-llama3", gguf="exaone", **dict(LLAMA, rope_theta=500000.0, rope_scaling={
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64}))
_recipe("internlm2", "llama", "llama2", 384, gguf="internlm2", D=48, L=2, H=6, G=2, F=80)
_recipe("ernie4_5", "ernie4_5", "llama2", 384, D=32, L=2, H=4, G=1, F=64, head_dim=16, tie_word_embeddings=True,
        use_bias=False, rope_theta=500000.0)
_recipe("seed_oss", "seed_oss", D=32, L=2, H=4, G=2, F=64, head_dim=16, attention_bias=True, attention_out_bias=False,
        mlp_bias=False, residual_dropout=0.1)
_recipe("glm", "glm", "qwen2", D=32, L=2, H=4, G=2, F=64, head_dim=16, partial_rotary_factor=0.5, attention_bias=True,
        pad_token_id=None)
_recipe("glm4", "glm4", "qwen2", D=32, L=2, H=4, G=2, F=64, head_dim=16, partial_rotary_factor=0.5,
        attention_bias=False, pad_token_id=None)
_recipe("hunyuan", "hunyuan_v1_dense", "qwen2", D=32, L=2, H=4, G=2, F=64, head_dim=16, tie_word_embeddings=True,
        attention_bias=False, pad_token_id=None, rope_scaling={"type": "dynamic", "alpha": 50.0, "factor": 1.0})
_recipe("llama-dynamic", "llama", seed="llama", rope_scaling={"rope_type": "dynamic", "factor": 4.0}, **LLAMA)

KEPT_AS = {"phi3": "F16", "qwen2": "BF16", "gemma3": "BF16", "smollm3": "BF16"}      # the others are F32
KEPT = ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "granite", "olmo2"]
QUANTS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
MIXED = {"attn_q": "Q4_K", "attn_k": "Q5_K", "attn_v": "Q6_K", "attn_output": "Q3_K", "ffn_gate": "Q2_K",
         "ffn_up": "IQ4_XS", "ffn_down": "Q4_1", "token_embd": "Q6_K"}

# GGUF: Hugging Face's name of a tensor inside a layer -> ours; gemma's four norms differ.
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}
POST_NAMES = dict(NAMES, post_attention_layernorm="post_attention_norm", pre_feedforward_layernorm="ffn_norm",
                  post_feedforward_layernorm="post_ffw_norm")
OTHER_NAMES = {kind: POST_NAMES for kind in ("gemma2", "gemma3_text", "olmo2", "olmo3", "exaone4")}
OTHER_NAMES["seed_oss"] = POST_NAMES
OTHER_NAMES["glm4"] = dict(NAMES, post_self_attn_layernorm="post_attention_norm", post_mlp_layernorm="post_ffw_norm")
OTHER_NAMES["hunyuan_v1_dense"] = dict(NAMES, **{"self_attn.query_layernorm": "attn_q_norm",
                                                 "self_attn.key_layernorm": "attn_k_norm"})
# the norms of a layer that are as wide as the model; the others have the first two
NORMS = {kind: ["post_attention_layernorm", "post_feedforward_layernorm"] for kind in ("olmo2", "olmo3", "exaone4")}
NORMS["gemma2"] = NORMS["gemma3_text"] = ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                                          "post_feedforward_layernorm"]
NORMS["glm4"] = ["input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"]
INTERLEAVED = ("llama", "smollm3", "granite", "internlm2", "minicpm")      # by GGUF's converter


def stream(label, n_bytes):
    return hashlib.shake_256(label.encode()).digest(n_bytes)


def uniform(label, shape):
    """float32 in [-1, 1), exact multiples of 2^-15."""
    n = int(np.prod(shape))
    u = np.frombuffer(stream(label, 2 * n), "<u2").astype(np.int32) - 32768
    return (u.astype(np.float32) / np.float32(32768)).reshape(shape)


def round_to(dtype, a):
    if dtype == "bf16":
        return tg.from_bf16(tg.to_bf16(a))
    return a.astype(np.float16).astype(np.float32) if dtype == "f16" else a


class Model:
    def __init__(self, name):
        r = RECIPES[name]
        self.name, self.recipe, self.kind = name, r, r["kind"]
        self.tok = tiny_tok.make(r["tok"], r["n_vocab"])
        self.config = _config(r["kind"], **r["config"])
        self.config.update(vocab_size=r["n_vocab"], bos_token_id=self.tok.bos, eos_token_id=self.tok.eos,
                           dtype={"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[r["dtype"]])
        self.gemma = self.kind.startswith("gemma")
        c = self.config
        self.head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        self.weights = self._weights()

    def _shapes(self):
        """(name, shape) of every tensor, Hugging Face names without 'model.'."""
        c, k = self.config, self.head_dim
        D, F, V = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
        q, g = c["num_attention_heads"] * k, c["num_key_value_heads"] * k
        yield "embed_tokens.weight", (V, D)
        for i in range(c["num_hidden_layers"]):
            p = "layers.%d." % i
            if self.kind == "phi3":
                yield p + "self_attn.qkv_proj.weight", (q + 2 * g, D)
            else:
                for n, rows in (("q", q), ("k", g), ("v", g)):
                    yield p + "self_attn.%s_proj.weight" % n, (rows, D)
                    if c.get("attention_bias") or self.kind == "qwen2":
                        yield p + "self_attn.%s_proj.bias" % n, (rows,)
            yield p + "self_attn.o_proj.weight", (D, q)
            if c.get("attention_bias") and self.kind not in ("glm", "glm4", "seed_oss"):
                yield p + "self_attn.o_proj.bias", (D,)
            for kinds, n, shapes in ((("qwen3", "gemma3_text", "exaone4"), "%s_norm", (k, k)),
                                     (("olmo2", "olmo3"), "%s_norm", (q, g)),
                                     (("hunyuan_v1_dense",), "%s_layernorm", (k, k))):
                if self.kind in kinds:
                    short = n == "%s_norm"
                    yield p + "self_attn." + n % ("q" if short else "query") + ".weight", (shapes[0],)
                    yield p + "self_attn." + n % ("k" if short else "key") + ".weight", (shapes[1],)
            if self.kind == "granitemoehybrid":
                S = c["shared_intermediate_size"]
                yield p + "shared_mlp.input_linear.weight", (2 * S, D)
                yield p + "shared_mlp.output_linear.weight", (D, S)
            up = [("gate_up", 2 * F)] if self.kind in ("phi3", "glm", "glm4") else [("gate", F), ("up", F)]
            if self.kind == "granitemoehybrid":
                up = []
            for n, rows, cols in [(n, rows, D) for n, rows in up] + [("down", D, F)] * bool(up):
                yield p + "mlp.%s_proj.weight" % n, (rows, cols)
                if c.get("mlp_bias"):
                    yield p + "mlp.%s_proj.bias" % n, (rows,)
            for n in NORMS.get(self.kind, ["input_layernorm", "post_attention_layernorm"]):
                yield p + n + ".weight", (D,)
        yield "norm.weight", (D,)
        if not c["tie_word_embeddings"]:
            yield "lm_head.weight", (V, D)

    def _scale(self, name, shape):
        if name == "embed_tokens.weight":
            tied = self.config["tie_word_embeddings"]
            return 3.0 / math.sqrt(shape[1]) if tied and not self.gemma else 1.7 if not self.gemma else \
                4.0 / math.sqrt(shape[1])
        peak = 1.6 if "q_proj" in name or "k_proj" in name or "qkv" in name else 1.0
        return peak * math.sqrt(3.0 / shape[-1])

    def _weights(self):
        out = {}
        for name, shape in self._shapes():
            u = uniform("%s/%s" % (self.recipe["seed"], name), shape)
            if name.endswith("norm.weight"):
                v = np.float32(0.3) * u + np.float32(0.0 if self.gemma else 1.0)
            elif name.endswith(".bias"):
                v = np.float32(0.5) * u
            else:
                v = np.float32(self._scale(name, shape)) * u
            full = name if name == "lm_head.weight" else "model." + name
            out[full] = round_to(self.recipe["dtype"], v.astype(np.float32))
        return out

    # a directory ------------------------------------------------------------------------------------------------
    def write_dir(self, path, shards=1):
        os.makedirs(path, exist_ok=True)
        dump(path, "config.json", self.config)
        dump(path, "tokenizer.json", self.tok.hf)
        dump(path, "tokenizer_config.json", self.tok.config)
        names = list(self.weights)
        parts = [names[len(names) * s // shards:len(names) * (s + 1) // shards] for s in range(shards)]
        files = ["model.safetensors"] if shards == 1 else ["model-%05d-of-%05d.safetensors" % (s + 1, shards)
                                                           for s in range(shards)]
        for file, part in zip(files, parts):
            write_safetensors(os.path.join(path, file), {n: (self.recipe["dtype"], self.weights[n]) for n in part})
        if shards > 1:
            size = {"bf16": 2, "f16": 2, "f32": 4}[self.recipe["dtype"]]
            dump(path, "model.safetensors.index.json", {
                "metadata": {"total_size": sum(size * w.size for w in self.weights.values())},
                "weight_map": {n: f for f, part in zip(files, parts) for n in part}})
        return path

    # a GGUF file ------------------------------------------------------------------------------------------------
    def gguf_arch(self):
        return self.recipe["gguf"] or {"mistral": "llama", "gemma3_text": "gemma3", "granitemoehybrid": "granite",
                                       "olmo3": "olmo2", "glm": "chatglm", "hunyuan_v1_dense": "hunyuan-dense"
                                       }.get(self.kind, self.kind)

    def gguf_keys(self, g):
        c, a = self.config, self.gguf_arch()
        U32, F32, STR = tg.U32, tg.F32, tg.STR
        g.key("general.architecture", STR, a)
        g.key("general.name", STR, "tiny " + self.name)
        for key, field in (("context_length", "max_position_embeddings"), ("embedding_length", "hidden_size"),
                           ("block_count", "num_hidden_layers"), ("feed_forward_length", "intermediate_size"),
                           ("attention.head_count", "num_attention_heads"),
                           ("attention.head_count_kv", "num_key_value_heads"), ("vocab_size", "vocab_size")):
            g.key("%s.%s" % (a, key), U32, c[field])
        g.key(a + ".attention.layer_norm_rms_epsilon", F32, c["rms_norm_eps"])
        if a != "gemma2":                       # files of gemma 2 rely on the default
            g.key(a + ".rope.freq_base", F32, c["rope_theta"] * self._alpha())
        if self.gemma or "head_dim" in c:
            g.key(a + ".attention.key_length", U32, self.head_dim)
            g.key(a + ".attention.value_length", U32, self.head_dim)
        if a in ("llama", "phi3", "smollm3", "glm4", "chatglm", "internlm2", "minicpm"):
            g.key(a + ".rope.dimension_count", U32, int(self.head_dim * c.get("partial_rotary_factor", 1)))
        self._granite_keys(g, a)
        if self.kind in ("olmo3", "exaone4") and c["sliding_window"]:
            g.key(a + ".attention.sliding_window", U32, c["sliding_window"])
            g.key(a + ".attention.sliding_window_pattern", (tg.ARR, tg.BOOL),
                  [t == "sliding_attention" for t in c["layer_types"]])
        if a in ("gemma2", "gemma3", "phi3") or self.kind == "mistral" and c.get("sliding_window"):
            g.key(a + ".attention.sliding_window", U32, c["sliding_window"] or 0)
        if a == "gemma2":
            g.key(a + ".attn_logit_softcapping", F32, c["attn_logit_softcapping"])
            g.key(a + ".final_logit_softcapping", F32, c["final_logit_softcapping"])
        self._rope_keys(g, a)
        g.key("general.file_type", U32, 0)

    def _alpha(self):
        alpha, d = (self.config.get("rope_scaling") or {}).get("alpha", 1.0), self.head_dim
        return alpha ** (d / (d - 2))

    def _granite_keys(self, g, a):
        c = self.config
        if "logits_scaling" not in c or self.name == "minicpm":     # whose files rely on the defaults
            return
        for key, field in (("attention.scale", "attention_multiplier"), ("embedding_scale", "embedding_multiplier"),
                           ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling")):
            g.key("%s.%s" % (a, key), tg.F32, c[field])
        if self.kind == "granitemoehybrid":     # what the converter leaves behind of layers that are not there
            g.key(a + ".expert_shared_feed_forward_length", tg.U32, c["shared_intermediate_size"])
            g.key(a + ".expert_count", tg.U32, 0)
            g.key(a + ".ssm.state_size", tg.U32, 128)
            g.key(a + ".attention.head_count_kv", (tg.ARR, tg.U32), [c["num_key_value_heads"]] * c["num_hidden_layers"])
            g.key(a + ".rope.scaling.finetuned", tg.BOOL, c["position_embedding_type"] == "rope")

    def _rope_keys(self, g, a):
        c, s = self.config, self.config.get("rope_scaling")
        if a == "phi3":
            orig = c["original_max_position_embeddings"]
            g.key(a + ".rope.scaling.original_context_length", tg.U32, orig)
            if s:
                ratio = c["max_position_embeddings"] / orig
                g.key(a + ".rope.scaling.attn_factor", tg.F32, math.sqrt(1 + math.log(ratio) / math.log(orig)))
        kind = (s or {}).get("rope_type")
        if kind in ("linear", "yarn"):
            g.key(a + ".rope.scaling.type", tg.STR, kind)
            g.key(a + ".rope.scaling.factor", tg.F32, s["factor"])
        if kind == "yarn":
            g.key(a + ".rope.scaling.original_context_length", tg.U32, s["original_max_position_embeddings"])
            for f in ("beta_fast", "beta_slow"):
                if f in s:
                    g.key(a + ".rope.scaling.yarn_" + f, tg.F32, s[f])

    def rope_tensors(self):
        """(name, factors): frequencies are divided by these."""
        s = self.config.get("rope_scaling") or {}
        if s.get("rope_type") == "llama3":
            yield "rope_freqs.weight", np.array(llama3_factors(self.config["rope_theta"], self.head_dim, s), np.float32)
        if "long_factor" in s:
            yield "rope_factors_long.weight", np.array(s["long_factor"], np.float32)
            yield "rope_factors_short.weight", np.array(s["short_factor"], np.float32)

    def gguf_weight(self, hf):
        """(GGUF name, array) of one tensor: renamed, heads interleaved for llama, 1 added to gemma's norms."""
        c, w = self.config, self.weights[hf]
        top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
               "lm_head.weight": "output.weight"}
        if self.gemma and hf.endswith("norm.weight"):
            w = w + np.float32(1.0)
        if hf in top:
            return top[hf], w
        _, _, layer, rest = hf.split(".", 3)
        inner, suffix = rest.rsplit(".", 1)
        if self.gguf_arch() in INTERLEAVED:
            for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
                if part in inner:
                    w = interleave(w, c[heads])
        return "blk.%s.%s.%s" % (layer, OTHER_NAMES.get(self.kind, NAMES)[inner], suffix), w

    def gguf_weights(self, hf):
        """As gguf_weight, for tensors that become two as well."""
        if "shared_mlp" not in hf:
            return [self.gguf_weight(hf)]
        layer, w = hf.split(".")[2], self.weights[hf]
        if "output_linear" in hf:
            return [("blk.%s.ffn_down.weight" % layer, w)]
        half = len(w) // 2
        return [("blk.%s.ffn_gate.weight" % layer, w[:half]), ("blk.%s.ffn_up.weight" % layer, w[half:])]

    def gguf(self, kind="F32", version=3, alignment=32):
        g = tg.Gguf(version, alignment)
        self.gguf_keys(g)
        self.tok.gguf(g)
        for name, factors in self.rope_tensors():
            g.tensor(name, factors)
        for hf in self.weights:
            for name, w in self.gguf_weights(hf):
                g.tensor(name, w, kind if w.ndim == 2 else "F32")
        return g

    def quantized(self, kinds, encode=None):
        """A GGUF whose matrices are stored as the type kinds[role]; encode(name, type, array) gives their bytes."""
        g = tg.Gguf()
        self.gguf_keys(g)
        self.tok.gguf(g)
        for hf in self.weights:
            name, w = self.gguf_weight(hf)
            if w.ndim == 1:
                g.tensor(name, w)
                continue
            kind = kinds[name.split(".")[-2]] if isinstance(kinds, dict) else kinds
            sigma = math.sqrt(float(np.mean(np.square(w, dtype=np.float64))))
            raw = (encode or random_blocks)(name, kind, w.size, sigma)
            g.raw(name, tuple(reversed(w.shape)), kind, raw)
        return g


def interleave(w, heads):
    """Rows of each head from halves (0..K/2, K/2..K) to pairs, as GGUF files of the llama family store them."""
    rows = w.shape[0] // heads
    return np.ascontiguousarray(w.reshape(heads, 2, rows // 2, -1).swapaxes(1, 2).reshape(w.shape))


def llama3_factors(theta, dim, s):
    out = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * theta ** (i / dim)
        orig, low, high = s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
        if wavelength < orig / high:
            out.append(1.0)
        elif wavelength > orig / low:
            out.append(s["factor"])
        else:
            t = (orig / wavelength - low) / (high - low)
            out.append(1.0 / ((1.0 - t) / s["factor"] + t))
    return out


# where the scale of a block stands: (byte, per-unit deviation of the quantized values) as float16 fields
HALF_FIELDS = {"Q4_0": [(0, 4.6)], "Q4_1": [(0, 4.6), (2, -7.5)], "Q5_0": [(0, 9.2)], "Q5_1": [(0, 9.2), (2, -15.5)],
               "Q8_0": [(0, 74.0)], "Q2_K": [(80, 14.0), (82, None)], "Q3_K": [(108, 40.0)],
               "Q4_K": [(0, 260.0), (2, None)], "Q5_K": [(0, 525.0), (2, None)], "Q6_K": [(208, 1360.0)],
               "IQ4_NL": [(0, 66.0)], "IQ4_XS": [(0, 1220.0)]}


def random_blocks(label, kind, n, sigma):
    """Random valid blocks of a type whose values have a deviation of about sigma: every bit of every field is used."""
    _, per, size = tg.TYPES[kind]
    b = np.frombuffer(stream("blocks/%s/%s" % (kind, label), n // per * size), np.uint8).reshape(-1, size).copy()
    vary = uniform("scales/%s/%s" % (kind, label), (len(b),)) * np.float32(0.3) + np.float32(1.0)
    if kind == "MXFP4":                         # one power of two per block
        b[:, 0] = 127 + round(math.log2(sigma / 4.2)) + (b[:, 0] & 1)
        return b.tobytes()
    fields = HALF_FIELDS[kind]
    d = (vary * np.float32(sigma / fields[0][1])).astype(np.float16)
    b[:, fields[0][0]:fields[0][0] + 2] = d.view(np.uint8).reshape(-1, 2)
    if len(fields) == 2:
        at, middle = fields[1]
        # Q4_1, Q5_1: the minimum puts the middle at 0. K-quants: dmin such that scale and minimum cancel on average
        ratio = {"Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5}.get(kind, middle)
        m = (d.astype(np.float32) * np.float32(ratio)).astype(np.float16)
        b[:, at:at + 2] = m.view(np.uint8).reshape(-1, 2)
    return b.tobytes()


def write_safetensors(path, tensors):
    """tensors: name -> ("bf16" | "f16" | "f32", float32 array)."""
    head, data, at = {}, [], 0
    for name, (dtype, a) in tensors.items():
        raw = {"bf16": tg.to_bf16, "f16": lambda x: x.astype(np.float16), "f32": lambda x: x}[dtype](a).tobytes()
        head[name] = {"dtype": dtype.upper(), "shape": list(a.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(dict({"__metadata__": {"format": "pt"}}, **head), separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def dump(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
