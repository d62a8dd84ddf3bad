"""Core ML models from a description in Python: protobuf, MIL text in both dialects, weight files, packages.

Standard library only and independent of the readers in src/: it is what they are tested against. One description gives
both forms, so that a package and its compiled counterpart must read the same.
"""
import json
import pathlib
import struct

NUMBERS = {"bool": 1, "string": 2, "fp16": 10, "fp32": 11, "fp64": 12, "bf16": 13, "int8": 21, "int16": 22, "int32": 23,
           "int64": 24, "int4": 25, "uint8": 31, "uint16": 32, "uint32": 33, "uint64": 34, "uint4": 35, "uint2": 36,
           "uint1": 37, "uint6": 38, "uint3": 39}
CODES = {"fp16": 1, "fp32": 2, "uint8": 3, "int8": 4, "int16": 6, "uint16": 7, "int4": 8, "uint1": 9, "uint2": 10,
         "uint4": 11, "uint3": 12, "uint6": 13, "int32": 14, "uint32": 15}
BITS = {"int4": 4, "uint4": 4, "uint1": 1, "uint2": 2, "uint3": 3, "uint6": 6}
PACK = {"fp16": "e", "fp32": "f", "fp64": "d", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
        "uint32": "I", "int64": "q", "uint64": "Q"}
FIELDS = {"fp32": 1, "int32": 2, "int16": 2, "uint16": 2, "bool": 3, "string": 4, "int64": 5, "uint64": 5, "fp64": 6}
ARRAY_TYPES = {"fp16": 65552, "fp32": 65568, "fp64": 65600, "int32": 131104, "int8": 131080}
TAGS = {"CoreML5": "ios15", "CoreML6": "ios16", "CoreML7": "ios17", "CoreML8": "ios18", "CoreML9": "ios26"}


# ---- protobuf ----

def varint(v):
    v &= (1 << 64) - 1
    out = b""
    while v >= 128:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def uint(number, v):
    return varint(number << 3) + varint(v)


def data(number, b):
    b = b.encode() if isinstance(b, str) else b
    return varint(number << 3 | 2) + varint(len(b)) + b


def pack_bits(values, width):
    total = sum((v & ((1 << width) - 1)) << (i * width) for i, v in enumerate(values))
    return total.to_bytes((len(values) * width + 7) // 8, "little")


def payload(dtype, values):
    """The bytes of a tensor as a weight file has them."""
    if dtype in BITS:
        return pack_bits(values, BITS[dtype])
    return struct.pack(f"<{len(values)}{PACK[dtype]}", *values)


# ---- types: each knows both of its forms ----

class Tensor:
    def __init__(self, dtype, *dims):
        self.dtype, self.dims = dtype, dims

    def count(self):
        n = 1
        for d in self.dims:
            n *= d
        return n

    def proto(self):
        dims = b"".join(data(3, data(2, b"") if d is None else data(1, uint(1, d) if d else b"")) for d in self.dims)
        return data(1, uint(1, NUMBERS[self.dtype]) + uint(2, len(self.dims)) + dims)

    def text(self, old):
        if not self.dims and not old:
            return self.dtype
        return f"tensor<{self.dtype}, [{', '.join('?' if d is None else str(d) for d in self.dims)}]>"


class State:
    def __init__(self, inner):
        self.inner = inner

    def proto(self):
        return data(5, data(1, self.inner.proto()))

    def text(self, old):
        return f"state<{self.inner.text(old)}>"


class List:
    def __init__(self, inner, length=None):
        self.inner, self.length = inner, length

    def proto(self):
        length = data(2, b"") if self.length is None else data(1, uint(1, self.length))
        return data(2, data(1, self.inner.proto()) + data(2, length))

    def text(self, old):
        return f"list<{self.inner.text(old)}, {'?' if self.length is None else self.length}>"


class Dict:
    def __init__(self, key, value):
        self.key, self.value = key, value

    def proto(self):
        return data(4, data(1, self.key.proto()) + data(2, self.value.proto()))

    def text(self, old):
        return f"dict<{self.key.text(old)}, {self.value.text(old)}>"


# ---- values ----

def number_text(dtype, v):
    if dtype == "string":
        return '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if dtype == "bool":
        return "true" if v else "false"
    if dtype in ("fp16", "fp32", "fp64"):
        text = float(v).hex().replace(".0000000000000p", "p")
        mantissa, _, exponent = text.partition("p")
        return (mantissa.rstrip("0") if "." in mantissa else mantissa) + ("p" + exponent if exponent else "")
    return str(v)


def nested(dims, items):
    if not dims:
        return items[0]
    step = len(items) // dims[0] if dims[0] else 0
    return "[" + ", ".join(nested(dims[1:], items[i * step:(i + 1) * step]) for i in range(dims[0])) + "]"


class Value:
    """Inline: a list of numbers, row-major, or items of a list. blob: (file name, offset)."""

    def __init__(self, type_, values=None, blob=None):
        self.type, self.values, self.blob = type_, values, blob

    def proto(self):
        head = data(2, self.type.proto())
        if self.blob:
            return head + data(5, data(1, "@model_path/" + self.blob[0]) + uint(2, self.blob[1]))
        if isinstance(self.type, List):
            return head + data(3, data(3, b"".join(data(1, v.proto()) for v in self.values)))
        return head + data(3, data(1, self.tensor()))

    def tensor(self):
        dtype = self.type.dtype
        field = FIELDS.get(dtype, 7)
        if dtype == "string":
            return data(4, b"".join(data(1, v) for v in self.values))
        if field == 7:
            return data(7, data(1, payload(dtype, self.values)))
        if field in (2, 3, 5):
            packed = b"".join(varint(int(v)) for v in self.values)
        else:
            packed = payload(dtype, self.values)
        return data(field, data(1, packed) if packed else b"")

    def text(self, old):
        return f"{self.type.text(old)}({self.body(old)})"

    def body(self, old):
        if self.blob:
            path, offset = Value(Tensor("string"), ["@model_path/" + self.blob[0]]), Value(Tensor("uint64"), [self.blob[1]])
            return f"BLOBFILE(path = {path.text(old)}, offset = {offset.text(old)})"
        if isinstance(self.type, List):
            return "(" + ", ".join(v.body(old) for v in self.values) + ")"
        return nested(self.type.dims, [number_text(self.type.dtype, v) for v in self.values])


def scalar(dtype, v):
    return Value(Tensor(dtype), [v])


def vector(dtype, values):
    return Value(Tensor(dtype, len(values)), values)


# ---- programs ----

class Op:
    """args: name -> variable name, Value, or a list of both. attrs: name -> Value (const, and constexpr up to CoreML7)."""

    def __init__(self, type_, outputs=(), args=None, attrs=None, blocks=(), name=None):
        self.type, self.outputs, self.args, self.attrs, self.blocks = type_, outputs, args or {}, attrs or {}, blocks
        self.name = name if name is not None else outputs[0][0] if outputs else type_

    def proto(self):
        out = data(1, self.type)
        for key, arg in self.args.items():
            bindings = arg if isinstance(arg, list) else [arg]
            inner = b"".join(data(1, data(2, b.proto()) if isinstance(b, Value) else data(1, b)) for b in bindings)
            out += data(2, data(1, key) + data(2, inner))
        out += b"".join(data(3, named(n, t)) for n, t in self.outputs) + b"".join(data(4, b.proto()) for b in self.blocks)
        attrs = {"name": scalar("string", self.name), **self.attrs}
        return out + b"".join(data(5, data(1, k) + data(2, v.proto())) for k, v in attrs.items())

    def text(self, old, indent):
        left = ", ".join(f"{t.text(old)} {n}" for n, t in self.outputs)
        show = lambda b: b.text(old) if isinstance(b, Value) else b
        args = ", ".join(f"{k} = " + ("(" + ", ".join(map(show, v)) + ")" if isinstance(v, list) else show(v))
                         for k, v in sorted(self.args.items()))
        attrs = {**self.attrs, "name": scalar("string", self.name)}
        right = ", ".join(f"{k} = {v.text(old)}" for k, v in sorted(attrs.items()))
        blocks = "".join("\n" + b.text(old, indent + 4) for b in self.blocks)
        return " " * indent + f"{left + ' = ' if left else ''}{self.type}({args})[{right}]{blocks};\n"


def named(name, type_):
    return data(1, name) + data(2, type_.proto())


class Block:
    def __init__(self, ops, outputs, inputs=()):
        self.ops, self.outputs, self.inputs = ops, outputs, inputs

    def proto(self):
        return (b"".join(data(1, named(n, t)) for n, t in self.inputs) + b"".join(data(2, o) for o in self.outputs)
                + b"".join(data(3, o.proto()) for o in self.ops))

    def text(self, old, indent):
        inputs = ", ".join(f"{t.text(old)} {n}" for n, t in self.inputs)
        return (" " * indent + f"({inputs}) {{\n" + "".join(o.text(old, indent + 4) for o in self.ops) + " " * indent
                + f"}} -> ({', '.join(self.outputs)})")


class Function:
    def __init__(self, name, opset, inputs, ops, outputs):
        self.name, self.opset, self.inputs, self.block = name, opset, inputs, Block(ops, outputs)

    def proto(self):
        block = data(1, self.opset) + data(2, self.block.proto())
        return b"".join(data(1, named(n, t)) for n, t in self.inputs) + data(2, self.opset) + data(3, block)

    def text(self, old):
        inputs = ", ".join(f"{t.text(old)} {n}" for n, t in sorted(self.inputs, key=lambda i: i[0]))
        ops = "".join(o.text(old, 12) for o in self.block.ops)
        return (f"    func {self.name}<{TAGS[self.opset]}>({inputs}) {{\n{ops}        }} -> "
                f"({', '.join(self.block.outputs)});\n")


def const(name, value):
    return Op("const", [(name, value.type)], attrs={"val": value})


def program_proto(functions):
    return uint(1, 1) + b"".join(data(2, data(1, f.name) + data(2, f.proto())) for f in functions)


def program_text(functions, old):
    info = Tensor("string").text(old)
    return (f"program({'1.0' if old else '1.3'})\n[buildInfo = dict<{info}, {info}>({{{{\"coremlc-version\", \"] (\"}}}})]\n{{\n"
            + "".join(f.text(old) for f in functions) + "}")


# ---- descriptions ----

def array(dtype, shape=(), ranges=None, enumerated=None, default=None):
    out = b"".join(uint(1, d) for d in shape) + uint(2, ARRAY_TYPES[dtype])
    if enumerated:
        out += data(21, b"".join(data(1, data(1, b"".join(map(varint, s)))) for s in enumerated))
    if ranges:
        out += data(31, b"".join(data(1, uint(1, low) + uint(2, high)) for low, high in ranges))
    if default is not None:
        out += varint(51 << 3 | 5) + struct.pack("<f", default)
    return data(5, out)


def image(width, height, colour):
    return data(4, uint(1, width) + uint(2, height) + uint(3, {"gray": 10, "rgb": 20, "bgr": 30, "gray16": 40}[colour]))


def state(dtype, shape):
    inner = array(dtype, shape)
    return data(8, data(1, inner[len(inner) - array_length(inner):]))


def array_length(field):
    """Bytes of the message in a field written by data()."""
    size, shift, at = 0, 0, 1
    while True:
        size |= (field[at] & 127) << shift
        shift += 7
        at += 1
        if field[at - 1] < 128:
            return size


def feature(name, type_, optional=False):
    return data(1, name) + data(2, f"about {name}") + data(3, type_ + (uint(1000, 1) if optional else b""))


def description(inputs, outputs, states=(), predicted=None, metadata=None):
    out = b"".join(data(1, f) for f in inputs) + b"".join(data(10, f) for f in outputs)
    out += b"".join(data(13, f) for f in states)
    if predicted:
        out += data(11, predicted[0]) + data(12, predicted[1])
    return out + (metadata_field(metadata) if metadata else b"")


def functions_description(functions, default, metadata=None):
    """functions: (name, inputs, outputs, states)"""
    out = b""
    for name, inputs, outputs, states in functions:
        out += data(20, data(1, name) + b"".join(data(2, f) for f in inputs) + b"".join(data(3, f) for f in outputs)
                    + b"".join(data(6, f) for f in states))
    return out + data(21, default) + (metadata_field(metadata) if metadata else b"")


def metadata_field(m):
    user = b"".join(data(100, data(1, k) + data(2, v)) for k, v in m.get("user", {}).items())
    keys = (("description", 1), ("version", 2), ("author", 3), ("license", 4))
    return data(100, b"".join(data(n, m[k]) for k, n in keys if k in m) + user)


def model(version, description_, program):
    return uint(1, version) + data(2, description_) + data(502, program)


# ---- files ----

class Weights:
    def __init__(self, name="weights/weight.bin"):
        self.name, self.records, self.n = name, b"", 0

    def add(self, dtype, values, reserved=0):
        """reserved: what stands in the words that old writers left as they were."""
        b = payload(dtype, values)
        padding = len(b) * 8 - len(values) * BITS[dtype] if dtype in BITS else reserved
        self.records += bytes(-len(self.records) % 64)
        offset = 64 + len(self.records)
        self.records += struct.pack("<IIQQQ4Q", 0xDEADBEEF, CODES[dtype], len(b), offset + 64, padding, *[reserved] * 4) + b
        self.n += 1
        return self.name, offset

    def value(self, dtype, dims, values, reserved=0):
        return Value(Tensor(dtype, *dims), blob=self.add(dtype, values, reserved))

    def bytes(self):
        return struct.pack("<II7Q", self.n, 2, *[0] * 7) + self.records


def coremldata(version, description_, n_functions=1):
    head = struct.pack("<II", 502, 5) + bytes(20) + struct.pack("<Q", 7) + b"generic" + struct.pack("<I", version)
    return head + bytes(0x4B - len(head)) + struct.pack("<Q", len(description_)) + description_ + (
        struct.pack("<I", 502) + bytes(12)) * n_functions


def manifest(entries, root, version="1.0.0"):
    """entries: id -> (path, name, author)"""
    items = {i: {"path": p, "name": n, "author": a, "description": "text"} for i, (p, n, a) in entries.items()}
    return json.dumps({"fileFormatVersion": version, "itemInfoEntries": items, "rootModelIdentifier": root}, indent=4,
                      sort_keys=True) + "\n"


def write_package(folder, spec, weights, model_name="model.mlmodel"):
    folder = pathlib.Path(folder)
    inner = folder / "Data/com.apple.CoreML"
    inner.mkdir(parents=True, exist_ok=True)
    entries = {"11111111-0000-4000-8000-000000000001": (f"com.apple.CoreML/{model_name}", model_name, "com.apple.CoreML")}
    if weights:
        entries["11111111-0000-4000-8000-000000000002"] = ("com.apple.CoreML/weights", "weights", "com.apple.CoreML")
    (folder / "Manifest.json").write_text(manifest(entries, "11111111-0000-4000-8000-000000000001"))
    (inner / model_name).write_bytes(spec)
    write_weights(inner, weights)


def write_compiled(folder, text, data_, weights):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.mil").write_text(text)
    (folder / "coremldata.bin").write_bytes(data_)
    write_weights(folder, weights)


def write_weights(folder, weights):
    for w in weights:
        path = folder / w.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(w.bytes())
