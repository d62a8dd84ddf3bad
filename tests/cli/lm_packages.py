"""A small language model as Core ML packages in the forms that exporters give it, and what it computes.

Two layers, one attention head each. With a tanh in the middle it is a language model that nothing recognises, so it runs
op by op; gated (silu(u) * u instead) it is recognised. `Lm.logits` is the same model in Python, in double precision but
for the cache, which holds fp16."""
import json
import math
import pathlib
import random
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from mil_writer import (Function, Op, State, Tensor, Value, Weights, array, const, description, feature,  # noqa: E402
                        functions_description, model, program_proto, scalar, state, vector, write_package)

V, D, S, LAYERS, CHUNK = 32, 16, 24, 2, 8
F = "fp32"


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


class Lm:
    """The weights of one model; rows of matrices are outputs."""

    def __init__(self, seed=1, gated=False):
        r = random.Random(seed)
        self.gated = gated
        matrix = lambda rows, columns: [[half(r.gauss(0, 0.3)) for _ in range(columns)] for _ in range(rows)]
        self.table, self.head = matrix(V, D), matrix(V, D)
        self.layers = [{name: matrix(D, D) for name in ("q", "k", "v", "o", "up", "down")} for _ in range(LAYERS)]

    def act(self, x):
        return x * x / (1 + math.exp(-x)) if self.gated else math.tanh(x)

    def logits(self, ids, rounded=half):
        """[len(ids)][V]"""
        times = lambda m, x: [sum(a * b for a, b in zip(row, x)) for row in m]
        caches, out = [([], []) for _ in self.layers], []
        for token in ids:
            x = self.table[token]
            for layer, (keys, values) in zip(self.layers, caches):
                keys.append([rounded(a) for a in times(layer["k"], x)])
                values.append([rounded(a) for a in times(layer["v"], x)])
                q = times(layer["q"], x)
                scores = [0.25 * sum(a * b for a, b in zip(q, key)) for key in keys]
                weights = [math.exp(s - max(scores)) for s in scores]
                seen = [sum(w * v[i] for w, v in zip(weights, values)) / sum(weights) for i in range(D)]
                x = [a + b for a, b in zip(x, times(layer["o"], seen))]
                x = [a + b for a, b in zip(x, times(layer["down"], [self.act(a) for a in times(layer["up"], x)]))]
            out.append(times(self.head, x))
        return out


class Builder:
    """Ops of one function for calls of n tokens (None: any number), with the weights in one file."""

    def __init__(self, lm, weights, n, stateless=False):
        self.lm, self.weights, self.n, self.stateless, self.ops = lm, weights, n, stateless, []

    def op(self, type_, name, dims, made=F, **args):
        self.ops.append(Op(type_, [(name, Tensor(made, *dims))] if name else [], args, name=name or type_))
        return name

    def matrix(self, name, rows):
        flat = [x for row in rows for x in row]
        self.ops.append(const(name, self.weights.value(F, (len(rows), len(rows[0])), flat)))
        return name

    def linear(self, name, x, rows, dims=None):
        return self.op("linear", name, dims or (1, self.n, len(rows)), x=x, weight=self.matrix(f"{name}_weight", rows),
                       bias=vector(F, [0.0] * len(rows)))

    def embed(self):
        self.op("gather", "x0", (1, self.n, D), x=self.matrix("table", self.lm.table), indices="input_ids",
                axis=scalar("int32", 0), validate_indices=scalar("bool", False))
        return "x0"

    def vector4(self, name, *parts):
        """A constant but for the variables among the parts."""
        values = [p if isinstance(p, str) else vector("int32", [p]) for p in parts]
        return self.op("concat", name, (4,), "int32", values=values, axis=scalar("int32", 0), interleave=scalar("bool", False))

    def update(self, name, row, data):
        """Row `row` of the state at the positions of the call; returns all of the row."""
        before, at = f"{name}_before", [f"{name}_begin", f"{name}_end"]
        whole = (2 * LAYERS, 1, S, D)
        self.op("read_state", before, whole, "fp16", input="kv")
        self.op("cast", f"{name}_half", (1, 1, self.n, D), "fp16", x=data, dtype=scalar("string", "fp16"))
        self.vector4(at[0], row, 0, "current_pos", 0)
        self.vector4(at[1], row + 1, 1, "end_pos", D)
        self.op("slice_update", f"{name}_after", whole, "fp16", x=before, update=f"{name}_half", begin=at[0], end=at[1])
        self.op("write_state", None, (), input="kv", data=f"{name}_after")
        self.op("read_state", f"{name}_now", whole, "fp16", input="kv")
        self.op("slice_by_index", f"{name}_all", (1, 1, S, D), "fp16", x=f"{name}_now",
                begin=vector("int32", [row, 0, 0, 0]), end=vector("int32", [row + 1, 1, S, D]))
        return self.op("cast", f"{name}_single", (1, 1, S, D), x=f"{name}_all", dtype=scalar("string", F))

    def rounded(self, name, data):
        self.op("cast", f"{name}_half", (1, 1, self.n, D), "fp16", x=data, dtype=scalar("string", "fp16"))
        return self.op("cast", f"{name}_single", (1, 1, self.n, D), x=f"{name}_half", dtype=scalar("string", F))

    def end_pos(self):
        if not self.stateless:
            self.op("shape", "shape", (2,), "int32", x="input_ids") if self.n is None else None
            count = vector("int32", [self.n]) if self.n else self.op(
                "slice_by_index", "count", (1,), "int32", x="shape", begin=vector("int32", [1]), end=vector("int32", [2]))
            self.op("add", "end_pos", (1,), "int32", x="current_pos", y=count)

    def layer(self, i, x):
        layer, at, n = self.lm.layers[i], f"layers_{i}_", self.n
        row = (1, n, D)
        parts = {}
        for name in "qkv":
            self.linear(at + name, x, layer[name])
            parts[name] = self.op("expand_dims", at + name + "4", (1, 1, n, D), x=at + name, axes=vector("int32", [0]))
        if self.stateless:
            keys, values = self.rounded(at + "keys", parts["k"]), self.rounded(at + "values", parts["v"])
        else:
            keys, values = self.update(at + "keys", 2 * i, parts["k"]), self.update(at + "values", 2 * i + 1, parts["v"])
        slots = n if self.stateless else S
        self.op("matmul", at + "products", (1, 1, n, slots), x=parts["q"], y=keys, transpose_x=scalar("bool", False),
                transpose_y=scalar("bool", True))
        self.op("mul", at + "scores", (1, 1, n, slots), x=at + "products", y=scalar(F, 0.25))
        self.op("add", at + "masked", (1, 1, n, slots), x=at + "scores", y="causal_mask")
        self.op("softmax", at + "shares", (1, 1, n, slots), x=at + "masked", axis=scalar("int32", -1))
        self.op("matmul", at + "seen4", (1, 1, n, D), x=at + "shares", y=values, transpose_x=scalar("bool", False),
                transpose_y=scalar("bool", False))
        self.op("squeeze", at + "seen", row, x=at + "seen4", axes=vector("int32", [0]))
        self.linear(at + "o", at + "seen", layer["o"])
        self.op("add", at + "x", row, x=x, y=at + "o")
        self.linear(at + "up", at + "x", layer["up"])
        if self.lm.gated:
            self.op("silu", at + "silu", row, x=at + "up")
            self.op("mul", at + "act", row, x=at + "silu", y=at + "up")
        else:
            self.op("tanh", at + "act", row, x=at + "up")
        self.linear(at + "down", at + "act", layer["down"])
        return self.op("add", at + "out", row, x=at + "x", y=at + "down")

    def logits(self, x, name="logits", rows=None):
        return self.linear(name, x, rows or self.lm.head)


MASK = "causal_mask"


class Package:
    """Functions of one package: each a list of pieces ("embed", 0, 1, "head", ("head", k, n))."""

    def __init__(self, lm, stateless=False):
        self.lm, self.stateless, self.weights = lm, stateless, Weights()
        self.functions, self.interfaces = [], []

    def interface(self, name, inputs, outputs, sizes=None):
        n_most = S if self.stateless else CHUNK
        def ranged(dtype, dims, most):
            if None not in dims:
                return array(dtype, dims)
            if sizes:
                return array(dtype, [d or sizes[0] for d in dims], enumerated=[[d or n for d in dims] for n in sizes])
            shape = [d or 1 for d in dims]
            return array(dtype, shape, ranges=[(1, most) if d is None else (d, d) for d in dims])
        return (name, [feature(n, ranged(t.dtype, t.dims, n_most)) for n, t in inputs],
                [feature(n, array(t.dtype, () if None in t.dims else t.dims)) for n, t in outputs])

    def add(self, name, pieces, n, sizes=None):
        b = Builder(self.lm, self.weights, n, self.stateless)
        layers = [p for p in pieces if isinstance(p, int)]
        inputs, x, made = [], "hidden_states", []
        if "embed" in pieces:
            inputs.append(("input_ids", Tensor("int32", 1, n)))
            x = b.embed()
        else:
            inputs.append(("hidden_states", Tensor(F, 1, n, D)))
        if layers:
            slots = n if self.stateless else S
            inputs.append((MASK, Tensor(F, 1, 1, n, slots)))
            if not self.stateless:
                inputs.append(("current_pos", Tensor("int32", 1)))
                b.end_pos()
        for i in layers:
            x = b.layer(i, x)
        heads = [p for p in pieces if p == "head" or isinstance(p, tuple)]
        for p in heads:
            if p == "head":
                made.append((b.logits(x), Tensor(F, 1, n, V)))
            else:
                _, k, count = p
                rows = self.lm.head[k * V // count:(k + 1) * V // count]
                made.append((b.logits(x, f"logits{k + 1}", rows), Tensor(F, 1, n, len(rows))))
        if not heads:
            b.op("mul", "output_hidden_states", (1, n, D), x=x, y=scalar(F, 1.0))
            made.append(("output_hidden_states", Tensor(F, 1, n, D)))
        kv = [("kv", State(Tensor("fp16", 2 * LAYERS, 1, S, D)))] if layers and not self.stateless else []
        self.functions.append(Function(name, "CoreML8", inputs + kv, b.ops, [m for m, _ in made]))
        states = [feature("kv", state("fp16", (2 * LAYERS, 1, S, D)))] if kv else []
        self.interfaces.append((*self.interface(name, inputs, made, sizes), states))
        return self

    def write(self, path, default=None, **manifest):
        if len(self.functions) == 1:
            _, inputs, outputs, states = self.interfaces[0]
            d = description(inputs, outputs, states)
        else:
            d = functions_description(self.interfaces, default or self.functions[0].name)
        write_package(path, model(9, d, program_proto(self.functions)), [self.weights])
        if manifest:
            write_manifest(path, **manifest)
        return str(path)


def write_manifest(folder, **fields):
    path = pathlib.Path(folder) / "tegula.json"
    path.write_text(json.dumps({"format": 1, **fields}))
    return str(path)


ALL = ["embed", *range(LAYERS), "head"]


def write_all(folder, lm):
    """Paths by form: one function, pairs, one fixed size, without states, in parts."""
    folder = pathlib.Path(folder)
    body = ALL[:-1]
    split = ["embed", *range(LAYERS), *[("head", k, 4) for k in range(4)]]
    paths = {
        "any": Package(lm).add("main", ALL, None).write(folder / "any.mlpackage"),
        "pair": Package(lm).add("infer", split, 1).add("prefill", body, CHUNK).write(folder / "pair.mlpackage"),
        "both": Package(lm).add("infer", ALL, 1).add("prefill", ALL, CHUNK).write(folder / "both.mlpackage"),
        "fixed": Package(lm).add("main", ALL, CHUNK).write(folder / "fixed.mlpackage"),
        "stateless": Package(lm, True).add("main", ALL, None).write(folder / "stateless.mlpackage"),
        "stateless_fixed": Package(lm, True).add("main", ALL, S).write(folder / "stateless_fixed.mlpackage"),
    }
    parts = folder / "parts"
    parts.mkdir()
    Package(lm).add("infer", ["embed"], 1).add("prefill", ["embed"], CHUNK).write(parts / "embeddings.mlpackage")
    for i in range(LAYERS):
        Package(lm).add("infer", [i], 1).add("prefill", [i], CHUNK).write(parts / f"ffn_{i + 1}.mlpackage")
    Package(lm).add("main", [("head", 0, 2)], 1).write(parts / "head_1.mlpackage")
    Package(lm).add("main", [("head", 1, 2)], 1).write(parts / "head_2.mlpackage")
    names = ["embeddings", *[f"ffn_{i + 1}" for i in range(LAYERS)], "head_1", "head_2"]
    write_manifest(parts, parts=[f"{n}.mlpackage" for n in names])
    paths["parts"] = str(parts)
    # The same with embeddings of two sizes in one function, and a tegula.json of its own.
    Package(lm).add("main", ["embed"], None, sizes=(1, CHUNK)).write(parts / "embeddings_enumerated.mlpackage")
    Package(lm).add("main", ["embed"], None).write(parts / "embeddings_ranged.mlpackage")
    for kind in ("enumerated", "ranged"):
        (folder / kind).mkdir()
        write_manifest(folder / kind, parts=[f"../parts/{n}.mlpackage" for n in [f"embeddings_{kind}", *names[1:]]])
        paths[f"parts_{kind}"] = str(folder / kind)
    return paths
