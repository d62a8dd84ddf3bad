#!/usr/bin/env python3
"""Packages as people export them, from small random models of transformers, each with the logits that torch computes.

    make_export_packages.py OUT [NAME ...]

Needs torch, transformers and coremltools; tests/data/exports was made with 2.7, 4.57 and 9.0.

NAME.golden is int32 T and V, int32 [T] ids, float32 [T, V] logits. tests/unit/test_exports.c reads both. What is made
here are the interfaces that have no sample of their own: no states, caches as inputs and outputs, sizes that are
fixed, rotations of a part of each head, and what older models have: layer norms, learned positions, feed-forward parts
without a gate, Q, K and V of each head side by side, tables looked up along an axis, masks that are cut from buffers.
"""
import pathlib
import shutil
import sys

import coremltools as ct
import numpy as np
import torch
import transformers
from transformers.cache_utils import Cache

V, D, LAYERS, HEADS, KV, FF, CONTEXT, N = 64, 32, 2, 4, 2, 48, 32, 24
HEAD = D // HEADS
LOWEST = -65504.0
SIZES = dict(vocab_size=V, hidden_size=D, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV,
             intermediate_size=FF, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1,
             eos_token_id=2, pad_token_id=0)
CONFIGS = {"llama": lambda: transformers.LlamaConfig(**SIZES),
           "phi4": lambda: transformers.Phi3Config(**SIZES, partial_rotary_factor=0.75),
           "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=HEAD),
           "gpt2": lambda: transformers.GPT2Config(vocab_size=V, n_positions=64, n_embd=D, n_layer=LAYERS,
                                                   n_head=HEADS),
           "gpt_neox": lambda: transformers.GPTNeoXConfig(
               rotary_pct=0.5, **{key: value for key, value in SIZES.items() if key != "num_key_value_heads"}),
           "gptj": lambda: transformers.GPTJConfig(vocab_size=V, n_positions=64, n_embd=D, n_layer=LAYERS,
                                                   n_head=HEADS, rotary_dim=4),
           "gpt_neo": lambda: transformers.GPTNeoConfig(
               vocab_size=V, max_position_embeddings=64, hidden_size=D, num_layers=LAYERS, num_heads=HEADS,
               window_size=8, attention_types=[[["global", "local"], 1]])}
EAGER = ("gptj", "gpt_neo")  # these have no other attention


def random_model(architecture):
    torch.manual_seed(1)
    attention = "eager" if architecture in EAGER else "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[architecture](), attn_implementation=attention)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 1:
                p.add_(noise * 0.1)
            else:
                p.copy_(noise * (0.5 if "embed" in name else p.shape[-1] ** -0.5))
    return model.eval().float()


class CallerCache(Cache):
    """What `update` does is given; everything else that transformers asks for."""

    def __init__(self, update, n_slots):
        self.layers, self._update, self._n_slots = [], update, n_slots

    is_sliding, is_compileable = [False] * LAYERS, False

    def get_seq_length(self, layer_idx=0):
        return 0

    def get_mask_sizes(self, cache_position, layer_idx):
        return self._n_slots, 0

    def get_max_cache_shape(self, layer_idx=0):
        return None

    def update(self, keys, values, layer_idx, cache_kwargs=None):
        return self._update(keys, values, layer_idx)


class Base(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def run(self, ids, mask, positions, cache=None):
        kept = {"use_cache": False}
        if cache is not None:  # an empty cache is false
            kept = dict(past_key_values=cache, use_cache=True, cache_position=positions[0])
        return self.model(input_ids=ids, attention_mask=mask, position_ids=positions, **kept).logits


class Whole(Base):
    def forward(self, inputIds, causalMask):
        return self.run(inputIds, causalMask, torch.arange(inputIds.shape[-1])[None])


class Fixed(Base):
    def forward(self, input_ids):
        n = input_ids.shape[-1]
        mask = torch.triu(torch.full((n, n), LOWEST), diagonal=1)[None, None]
        return self.run(input_ids, mask, torch.arange(n)[None])


class Keep(Base):
    def forward(self, input_ids, attention_mask):
        n = input_ids.shape[-1]
        causal = torch.triu(torch.full((n, n), LOWEST), diagonal=1)[None, None]
        padding = (1.0 - attention_mask[:, None, None, :].float()) * LOWEST
        return self.run(input_ids, causal + padding, torch.arange(n)[None])


class Counted(Base):
    def forward(self, input_ids, attention_mask):
        n = input_ids.shape[-1]
        positions = (attention_mask.long().cumsum(-1) - 1).clamp(min=0).masked_fill(attention_mask == 0, 1)
        causal = torch.triu(torch.full((n, n), LOWEST), diagonal=1)[None, None]
        padding = (1.0 - attention_mask[:, None, None, :].float()) * LOWEST
        return self.run(input_ids, torch.clamp(causal + padding, min=LOWEST), positions)


class Stateful(Base):
    def __init__(self, model):
        super().__init__(model)
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(LAYERS, KV, CONTEXT, HEAD))

    def forward(self, input_ids, position_ids):
        n, first = input_ids.shape[-1], position_ids[0, 0]
        seen = torch.arange(CONTEXT)[None, :] <= position_ids[0][:, None]
        mask = ((1.0 - seen.to(torch.float32)) * LOWEST)[None, None]

        outer = self

        def update(keys, values, i):
            outer.k_cache[i:i + 1, :, first:first + n, :] = keys
            outer.v_cache[i:i + 1, :, first:first + n, :] = values
            return outer.k_cache[i:i + 1], outer.v_cache[i:i + 1]

        return self.run(input_ids, mask, position_ids, CallerCache(update, CONTEXT))


class Growing(Base):
    def forward(self, input_ids, causal_mask, past_keys, past_values):
        before, n, new = past_keys.shape[-2], input_ids.shape[-1], ([], [])

        def update(k, v, i):
            new[0].append(torch.cat([past_keys[i], k], dim=2))
            new[1].append(torch.cat([past_values[i], v], dim=2))
            return new[0][-1], new[1][-1]

        positions = torch.arange(before, before + n)[None]
        logits = self.run(input_ids, causal_mask, positions, CallerCache(update, before + n))
        return logits, torch.stack(new[0]), torch.stack(new[1])


class Kept(Base):
    def forward(self, input_ids, position_ids, causal_mask, update_mask, k_cache, v_cache):
        new = ([], [])

        def update(k, v, i):
            new[0].append(k_cache[i:i + 1] * (1 - update_mask) + k * update_mask)
            new[1].append(v_cache[i:i + 1] * (1 - update_mask) + v * update_mask)
            return new[0][-1], new[1][-1]

        logits = self.run(input_ids, causal_mask, position_ids, CallerCache(update, CONTEXT))
        return logits, torch.cat(new[0]), torch.cat(new[1])


class Scattered(Base):
    def forward(self, input_ids, position_ids, causal_mask, past_key_0, past_value_0, past_key_1, past_value_1):
        kept, n = [[past_key_0, past_key_1], [past_value_0, past_value_1]], input_ids.shape[1]
        where = position_ids[0].long()[None, None, :, None].expand(1, KV, n, HEAD)

        def update(k, v, i):
            for cache, new in zip(kept, (k, v)):
                cache[i] = torch.scatter(cache[i], 2, where, new)
            return kept[0][i], kept[1][i]

        logits = self.run(input_ids, causal_mask, position_ids, CallerCache(update, CONTEXT))
        return logits, kept[0][0], kept[1][0], kept[0][1], kept[1][1]


def tensor(name, shape, dtype=np.float16):
    return ct.TensorType(name, shape=shape, dtype=dtype)


def interfaces():
    """name: architecture, class, inputs, example, states, more outputs, target, precision"""
    some, all_ = ct.RangeDim(1, 16, 1), ct.RangeDim(1, CONTEXT, 1)
    past, ids, zeros = ct.RangeDim(0, CONTEXT, 1), torch.int32, torch.zeros
    half, full = ct.precision.FLOAT16, ct.precision.FLOAT32
    open_cache, cache = (LAYERS, 1, KV, past, HEAD), (LAYERS, KV, CONTEXT, HEAD)
    whole = ([tensor("inputIds", (1, all_), np.int32), tensor("causalMask", (1, 1, all_, all_))],
             (zeros(1, 8, dtype=ids), zeros(1, 1, 8, 8)))
    states = [ct.StateType(wrapped_type=ct.TensorType(shape=cache, dtype=np.float16), name=n)
              for n in ("k_cache", "v_cache")]
    yield "whole", "llama", Whole, *whole, None, [], ct.target.iOS16, half
    yield ("whole_fixed", "llama", Fixed, [tensor("input_ids", (1, N), np.int32)], (zeros(1, N, dtype=ids),), None, [],
           ct.target.iOS17, full)
    yield ("keep", "qwen3", Keep, [tensor(n, (1, all_), np.int32) for n in ("input_ids", "attention_mask")],
           (zeros(1, 8, dtype=ids), torch.ones(1, 8, dtype=ids)), None, [], ct.target.iOS16, half)
    yield ("counted", "llama", Counted, [tensor(n, (1, all_), np.int32) for n in ("input_ids", "attention_mask")],
           (zeros(1, 8, dtype=ids), torch.ones(1, 8, dtype=ids)), None, [], ct.target.iOS17, half)
    yield ("partial", "phi4", Stateful, [tensor(n, (1, some), np.int32) for n in ("input_ids", "position_ids")],
           (zeros(1, 8, dtype=ids), torch.arange(8, dtype=ids)[None]), states, [], ct.target.iOS18, half)
    yield ("growing", "llama", Growing,
           [tensor("input_ids", (1, some), np.int32), tensor("causal_mask", (1, 1, some, ct.RangeDim(1, CONTEXT, 2))),
            tensor("past_keys", open_cache), tensor("past_values", open_cache)],
           (zeros(1, 2, dtype=ids), zeros(1, 1, 2, 5), zeros(LAYERS, 1, KV, 3, HEAD), zeros(LAYERS, 1, KV, 3, HEAD)),
           None, ["present_keys", "present_values"], ct.target.iOS16, half)
    yield ("kept", "llama", Kept,
           [tensor("input_ids", (1, 1), np.int32), tensor("position_ids", (1, 1), np.int32),
            tensor("causal_mask", (1, 1, 1, CONTEXT)), tensor("update_mask", (1, 1, CONTEXT, 1)),
            tensor("k_cache", cache), tensor("v_cache", cache)],
           (zeros(1, 1, dtype=ids), zeros(1, 1, dtype=ids), zeros(1, 1, 1, CONTEXT), zeros(1, 1, CONTEXT, 1),
            zeros(cache), zeros(cache)), None, ["k_cache_out", "v_cache_out"], ct.target.iOS17, half)
    layers = [f"{kind}_{i}" for i in range(LAYERS) for kind in ("key", "value")]
    yield ("scattered", "llama", Scattered,
           [tensor("input_ids", (1, 4), np.int32), tensor("position_ids", (1, 4), np.int32),
            tensor("causal_mask", (1, 1, 4, CONTEXT))] + [tensor(f"past_{n}", (1, KV, CONTEXT, HEAD)) for n in layers],
           (zeros(1, 4, dtype=ids), torch.arange(4, dtype=ids)[None], zeros(1, 1, 4, CONTEXT),
            *(zeros(1, KV, CONTEXT, HEAD) for _ in layers)),
           None, [f"present_{n}" for n in layers], ct.target.iOS16, half)
    for name, architecture in (("layer_norm", "gpt2"), ("joint", "gpt_neox"), ("looked_up", "gptj"),
                               ("buffered", "gpt_neo")):
        yield name, architecture, Whole, *whole, None, [], ct.target.iOS16, half


def main(out, only):
    out.mkdir(parents=True, exist_ok=True)
    ids = np.random.RandomState(3).randint(3, V, N).astype(np.int32)
    for name, architecture, kind, inputs, example, states, more, target, precision in interfaces():
        if only and name not in only:
            continue
        model = random_model(architecture)
        with torch.no_grad():
            logits = model(torch.tensor(ids[None].astype(np.int64))).logits[0].numpy()
            traced = torch.jit.trace(kind(model).eval(), example, check_trace=False)
        dtype = np.float32 if precision == ct.precision.FLOAT32 else np.float16
        outputs = [ct.TensorType(name=n, dtype=dtype) for n in ["logits"] + more]
        package = ct.convert(traced, inputs=inputs, outputs=outputs,
                             minimum_deployment_target=target, compute_precision=precision, skip_model_load=True,
                             compute_units=ct.ComputeUnit.CPU_ONLY, **({"states": states} if states else {}))
        shutil.rmtree(out / f"{name}.mlpackage", ignore_errors=True)
        package.save(str(out / f"{name}.mlpackage"))
        with open(out / f"{name}.golden", "wb") as file:
            np.array(logits.shape, np.int32).tofile(file)
            ids.tofile(file)
            logits.astype(np.float32).tofile(file)
        print(name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
