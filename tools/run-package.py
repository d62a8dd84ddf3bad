#!/usr/bin/env python3
"""The logits of a package that `tegula convert` wrote, by NumPy alone.

    tools/run-package.py PACKAGE.mlpackage --ids 1,2,3 [-o OUT.npy] [--half] [--chunk N]

A second opinion: it reads the protobuf and the weight file with code of its own and computes op by op, in double
precision, or with every half-typed result rounded to half (--half). It knows the ops that the two profiles write and no
others. Portable: function main, called with chunks of N ids. ANE: prepare and prefill for whole chunks of its own size,
then prepare and decode. Prints the logits of the last id, or writes them as [1, V].
"""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np

MIL = {1: "bool", 2: "str", 10: "f2", 11: "f4", 12: "f8", 21: "i1", 22: "i2", 23: "i4", 24: "i8", 31: "u1", 32: "u2",
       33: "u4", 34: "u8", 25: "int4", 35: "uint4", 36: "uint2", 37: "uint1", 38: "uint6", 39: "uint3"}
BITS = {"int4": 4, "uint4": 4, "uint2": 2, "uint1": 1, "uint6": 6, "uint3": 3}


# ---- protobuf ----

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def message(data):
    """{field: [values]}; bytes stay bytes."""
    fields, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            n, at = varint(data, at)
            value, at = bytes(data[at:at + n]), at + n
        else:
            n = 8 if kind == 1 else 4
            value, at = bytes(data[at:at + n]), at + n
        fields.setdefault(key >> 3, []).append(value)
    return fields


def one(fields, number, default=b""):
    return fields.get(number, [default])[-1]


def text(data):
    return data.decode()


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def packed(data):
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(signed(value))
    return values


# ---- types and values ----

def read_type(data):
    """(dtype, dims, is_state)"""
    fields = message(data)
    if 5 in fields:
        dtype, dims, _ = read_type(one(message(one(fields, 5)), 1))
        return dtype, dims, True
    tensor = message(one(fields, 1))
    dims = []
    for dimension in tensor.get(3, []):
        d = message(dimension)
        dims.append(one(message(one(d, 1)), 1, 0) if 1 in d else -1)
    return MIL[one(tensor, 1)], dims, False


def unpack(raw, dtype, count):
    if dtype not in BITS:
        return np.frombuffer(raw, "<" + dtype, count)
    width = BITS[dtype]
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")[:count * width].reshape(count, width)
    values = np.zeros(count, np.int8)
    for bit in range(width):
        values |= (bits[:, bit] << bit).view(np.int8)
    if dtype == "int4":
        values = np.where(values > 7, values - 16, values)
    return values


def read_value(data, weights):
    fields = message(data)
    dtype, dims, _ = read_type(one(fields, 2))
    count = int(np.prod(dims)) if dims else 1
    if 5 in fields:
        offset = one(message(one(fields, 5)), 2, 0)
        sentinel, _, n_bytes, place = struct.unpack_from("<IIQQ", weights, offset)
        assert sentinel == 0xDEADBEEF
        array = unpack(weights[place:place + n_bytes], dtype, count)
    else:
        tensor = message(one(message(one(fields, 3)), 1))
        (field, content), = tensor.items()
        inner = message(content[-1])
        if field == 4:
            return text(one(inner, 1))
        raw = one(inner, 1)
        if field in (2, 5):
            array = np.array(packed(raw), np.int64)
        elif field == 3:
            array = np.frombuffer(raw, np.uint8).astype(bool)
        else:
            array = unpack(raw, {1: "f4", 6: "f8"}.get(field, dtype), count)
    return np.array(array).reshape(dims)


# ---- programs ----

class Package:
    def __init__(self, path):
        root = pathlib.Path(path)
        manifest = json.loads((root / "Manifest.json").read_text())
        items = manifest["itemInfoEntries"]
        model = root / "Data" / items[manifest["rootModelIdentifier"]]["path"]
        file = model.parent / "weights" / "weight.bin"
        self.weights = np.memmap(file, np.uint8, "r") if file.exists() else b""
        spec = message(model.read_bytes())
        program = message(one(spec, 502))
        self.functions = {}
        for entry in program[2]:
            pair = message(entry)
            self.functions[text(one(pair, 1))] = Function(message(one(pair, 2)), self.weights)


class Function:
    """Weights are decoded for the op that asks for them and values dropped after their last use: a model of some hundred
    million weights then fits into the memory of any machine."""

    def __init__(self, fields, weights):
        self.inputs = {}
        for item in fields.get(1, []):
            named = message(item)
            self.inputs[text(one(named, 1))] = read_type(one(named, 2))
        opset = one(fields, 2)
        blocks = {one(message(b), 1): one(message(b), 2) for b in fields[3]}
        block = message(blocks[opset])
        self.outputs = [text(name) for name in block.get(2, [])]
        self.ops, self.weights = [], {}
        for operation in block.get(3, []):
            kind, inputs, outputs = self.read_op(message(operation), weights)
            if kind == "const" or kind.startswith("constexpr_"):
                for place, (name, dtype) in enumerate(outputs):
                    self.weights[name] = kind, inputs, dtype, place
            else:
                self.ops.append((kind, inputs, outputs))
        last = {}
        for at, (_, inputs, _) in enumerate(self.ops):
            last.update((name, at) for bindings in inputs.values() for name in bindings if isinstance(name, str))
        self.ended = [[] for _ in self.ops]
        for name in last.keys() - set(self.outputs):
            self.ended[last[name]].append(name)

    @staticmethod
    def read_op(op, weights):
        outputs = []
        for item in op.get(3, []):
            named = message(item)
            outputs.append((text(one(named, 1)), read_type(one(named, 2))[0]))
        attributes = {text(one(message(a), 1)): one(message(a), 2) for a in op.get(5, [])}
        if one(op, 1) == b"const":
            return "const", lambda: read_value(attributes["val"], weights), outputs
        inputs = {}
        for item in op.get(2, []):
            pair = message(item)
            bindings = []
            for binding in message(one(pair, 2)).get(1, []):
                b = message(binding)
                bindings.append(text(b[1][-1]) if 1 in b else read_value(b[2][-1], weights))
            inputs[text(one(pair, 1))] = bindings
        return text(one(op, 1)), inputs, outputs

    def weight(self, name, half):
        kind, inputs, dtype, place = self.weights[name]
        if kind == "const":
            return inputs()
        args = {key: self.weight(b, half) if isinstance(b, str) else b for key, (b,) in inputs.items()}
        result = OPS[kind](args)
        return rounded(result[place] if isinstance(result, tuple) else result, dtype, half)

    def arguments(self, inputs, values, half):
        args = {}
        for key, bindings in inputs.items():
            found = [(values[b] if b in values else self.weight(b, half)) if isinstance(b, str) else b for b in bindings]
            args[key] = found if key == "values" else found[0]
        return args

    def run(self, given, states, half):
        values = dict(given)
        for (kind, inputs, outputs), ended in zip(self.ops, self.ended):
            if kind == "write_state":
                states[inputs["input"][0]] = values[inputs["data"][0]]
            elif kind == "read_state":
                values[outputs[0][0]] = states[inputs["input"][0]]
            else:
                result = OPS[kind](self.arguments(inputs, values, half))
                values[outputs[0][0]] = rounded(result, outputs[0][1], half)
            for name in ended:
                values.pop(name, None)
        return [values[name] if name in values else self.weight(name, half) for name in self.outputs]


def rounded(result, dtype, half):
    if dtype in ("f2", "f4") and half:
        with np.errstate(over="ignore"):
            return np.asarray(result).astype(dtype).astype(np.float64)
    return np.asarray(result)


# ---- ops ----

def wide(x):
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def whole(x):
    return [int(v) for v in np.atleast_1d(x)]


def slices(a, shape):
    n = len(shape)
    masks = {k: whole(a[k]) if k in a else [0] * n for k in ("begin_mask", "end_mask", "squeeze_mask")}
    stride = whole(a["stride"]) if "stride" in a else [1] * n
    index = []
    for i, (begin, end) in enumerate(zip(whole(a["begin"]), whole(a["end"]))):
        if masks["squeeze_mask"][i]:
            index.append(begin)
        else:
            index.append(slice(None if masks["begin_mask"][i] else begin, None if masks["end_mask"][i] else end,
                               stride[i]))
    return tuple(index)


def slice_by_size(a):
    x = a["x"]
    index = []
    for axis, (begin, size) in enumerate(zip(whole(a["begin"]), whole(a["size"]))):
        begin += x.shape[axis] if begin < 0 else 0
        index.append(slice(begin, None if size == -1 else begin + size))
    return x[tuple(index)]


def slice_update(a):
    x = a["x"].copy()
    x[slices(a, x.shape)] = a["update"]
    return x


def reshape(a):
    x, shape = a["x"], whole(a["shape"])
    shape = [x.shape[i + x.ndim - len(shape)] if s == 0 else s for i, s in enumerate(shape)]
    return x.reshape(shape)


def expand_dims(a):
    return np.expand_dims(a["x"], tuple(whole(a["axes"])))


def squeeze(a):
    return np.squeeze(a["x"], tuple(whole(a["axes"])) if "axes" in a else None)


def matmul(a):
    x, y = wide(a["x"]), wide(a["y"])
    x = np.swapaxes(x, -1, -2) if np.any(a.get("transpose_x", False)) else x
    y = np.swapaxes(y, -1, -2) if np.any(a.get("transpose_y", False)) else y
    return x @ y


def conv(a):
    x, weight = wide(a["x"]), wide(a["weight"])
    assert weight.shape[2:] == (1,) * (weight.ndim - 2) and int(np.prod(a.get("groups", 1))) == 1
    y = np.einsum("nc...,oc->no...", x, weight.reshape(weight.shape[:2]))
    return y + wide(a["bias"]).reshape((1, -1) + (1,) * (y.ndim - 2)) if "bias" in a else y


def linear(a):
    y = wide(a["x"]) @ wide(a["weight"]).T
    return y + wide(a["bias"]) if "bias" in a else y


def softmax(a):
    x = wide(a["x"])
    axis = int(a.get("axis", -1))
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(a):
    x = wide(a["x"])
    axes = tuple(whole(a["axes"]))
    mean = x.mean(axes, keepdims=True)
    y = (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + float(a["epsilon"]))
    return y * wide(a.get("gamma", 1.0)) + wide(a.get("beta", 0.0))


def gelu(a):
    x = wide(a["x"])
    if a["mode"] == "TANH_APPROXIMATION":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
    from math import erf
    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def blocks(part, shape):
    """One element of `part` for each of the whole."""
    for axis, size in enumerate(shape):
        part = np.repeat(part, size // part.shape[axis], axis)
    return part


def blockwise(a):
    data = a["data"].astype(np.float64)
    scale = blocks(wide(a["scale"]), data.shape)
    offset = blocks(a["offset"].astype(np.float64), data.shape) if "offset" in a else 0
    return scale * (data - offset)


def lut(a):
    indices, table = a["indices"].view(np.uint8), wide(a["lut"])
    groups, width = table.shape[:-2], table.shape[-1]
    place = np.ogrid[tuple(slice(0, n) for n in indices.shape)]
    group = tuple(place[i] * g // indices.shape[i] for i, g in enumerate(groups))
    found = table[group + (indices,)]
    if width == 1:
        return found[..., 0]
    axis = int(a["vector_axis"])
    found = np.moveaxis(found, -1, axis + 1)
    shape = list(indices.shape)
    shape[axis] *= width
    return found.reshape(shape)


def sparse(a):
    out = np.zeros(a["mask"].shape)
    out[a["mask"].astype(bool)] = wide(a["nonzero_data"])
    return out


def sparse_of(decode, mask, data):
    """The op's dense form where the mask is set: codes of pruned places are 0 and not looked at."""
    def run(a):
        chosen = a[mask].astype(bool)
        codes = np.zeros(chosen.shape, a[data].dtype)
        codes[chosen] = a[data]
        return a[mask], decode({**a, "data": codes, "indices": codes})[chosen]
    return run


def cast(a):
    kind = {"fp16": "f8", "fp32": "f8", "int32": "i8", "bool": "?"}.get(a["dtype"], "i8")
    return np.asarray(a["x"]).astype(kind)


def binary(function):
    return lambda a: function(wide(a["x"]), wide(a["y"]))


def unary(function):
    return lambda a: function(wide(a["x"]))


def log_sum_exp(x, axis, keepdims):
    highest = x.max(axis, keepdims=True)
    total = np.log(np.exp(x - highest).sum(axis, keepdims=True)) + highest
    return total if keepdims else np.squeeze(total, axis)


def reduce_by(function):
    return lambda a: function(wide(a["x"]), axis=tuple(whole(a["axes"])) if "axes" in a else None,
                              keepdims=bool(a.get("keep_dims", False)))


OPS = {
    "add": binary(np.add), "sub": binary(np.subtract), "mul": binary(np.multiply), "real_div": binary(np.divide),
    "maximum": binary(np.maximum), "minimum": binary(np.minimum), "pow": binary(np.power),
    "floor_div": binary(np.floor_divide), "equal": binary(np.equal), "less": binary(np.less),
    "less_equal": binary(np.less_equal), "greater": binary(np.greater), "greater_equal": binary(np.greater_equal),
    "logical_and": binary(np.logical_and), "logical_or": binary(np.logical_or),
    "tanh": unary(np.tanh), "exp": unary(np.exp), "sqrt": unary(np.sqrt), "cos": unary(np.cos), "sin": unary(np.sin),
    "silu": unary(lambda x: x / (1 + np.exp(-x))), "sigmoid": unary(lambda x: 1 / (1 + np.exp(-x))),
    "identity": lambda a: a["x"], "gelu": gelu, "softmax": softmax, "layer_norm": layer_norm, "linear": linear,
    "rsqrt": lambda a: 1 / np.sqrt(wide(a["x"]) + float(a["epsilon"])),
    "matmul": matmul, "conv": conv, "reduce_max": reduce_by(np.max), "reduce_sum": reduce_by(np.sum),
    "reduce_mean": reduce_by(np.mean), "reduce_log_sum_exp": reduce_by(log_sum_exp),
    "reshape": reshape, "expand_dims": expand_dims, "squeeze": squeeze,
    "transpose": lambda a: np.transpose(a["x"], whole(a["perm"])),
    "concat": lambda a: np.concatenate(a["values"], int(a["axis"])),
    "slice_by_index": lambda a: a["x"][slices(a, a["x"].shape)], "slice_by_size": slice_by_size,
    "slice_update": slice_update, "cast": cast, "shape": lambda a: np.array(a["x"].shape),
    "gather": lambda a: np.take(a["x"], a["indices"], int(a["axis"])),
    "select": lambda a: np.where(a["cond"], wide(a["a"]), wide(a["b"])),
    "einsum": lambda a: np.einsum(a["equation"].replace(" ", ""), *[wide(v) for v in a["values"]]),
    "range_1d": lambda a: np.arange(int(a["start"]), int(a["end"]), int(a["step"])),
    "tile": lambda a: np.tile(a["x"], whole(a["reps"])),
    "constexpr_blockwise_shift_scale": blockwise, "constexpr_lut_to_dense": lut, "constexpr_sparse_to_dense": sparse,
    "constexpr_sparse_blockwise_shift_scale": sparse_of(blockwise, "data_mask", "nonzero_data"),
    "constexpr_lut_to_sparse": sparse_of(lut, "indices_mask", "indices_nonzero_data"),
}


# ---- models ----

def new_states(package):
    return {name: np.zeros(dims) for f in package.functions.values()
            for name, (_, dims, is_state) in f.inputs.items() if is_state}


def run_portable(package, ids, chunk, half):
    states, out = new_states(package), None
    for begin in range(0, len(ids), chunk):
        part = ids[begin:begin + chunk]
        given = {"input_ids": np.array([part]), "position_ids": np.arange(begin, begin + len(part))[None]}
        out = package.functions["main"].run(given, states, half)
    return out[0].reshape(-1)


def run_fixed(package, ids, half):
    """Whole chunks by prefill, a padded one for what is left but the last id, which goes through decode."""
    states = new_states(package)
    prepare, prefill, decode = (package.functions[n] for n in ("prepare", "prefill", "decode"))
    chunk = prefill.inputs["hidden"][1][1]
    at = 0
    while at < len(ids):
        is_last = at == len(ids) - 1
        rows = 1 if is_last else chunk
        real = ids[at:at + 1] if is_last else ids[at:min(at + chunk, len(ids) - 1)]
        padding = rows - len(real)
        given = {"input_ids": np.array([real + [0] * padding]),
                 "position_ids": np.array([list(range(at, at + len(real))) + [-1] * padding])}
        made = dict(zip(prepare.outputs, prepare.run(given, states, half)))
        made["position"] = np.array([at])
        out = (decode if is_last else prefill).run(made, states, half)
        at += len(real)
    return np.concatenate([o.reshape(-1) for o in out])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("package")
    parser.add_argument("--ids", required=True)
    parser.add_argument("--chunk", type=int, default=16)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    package = Package(args.package)
    ids = [int(i) for i in args.ids.split(",")]
    if "main" in package.functions:
        logits = run_portable(package, ids, args.chunk, args.half)
    else:
        logits = run_fixed(package, ids, args.half)
    if args.output:
        np.save(args.output, logits.astype(np.float32)[None])
    else:
        print(" ".join(f"{v:.6g}" for v in logits))
    return 0


if __name__ == "__main__":
    sys.exit(main())
