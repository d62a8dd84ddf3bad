"""tiny_gguf: writes, reads and re-writes small GGUF files with the standard library and numpy.

A Gguf object is a list of (key, type, value) and a list of (name, dims, ggml type, bytes). `save` writes it as one
file (version 2 or 3, any alignment) or as a split set; `load` reads one file back. Tests change an object between the
two to make broken or unusual files, so `save` writes whatever it is given and checks nothing.

Layout (little-endian): "GGUF", u32 version, u64 tensors, u64 keys; per key: string name, u32 type, value; per tensor:
string name, u32 n_dims, u64 dims (contiguous one first), u32 type, u64 offset; padding; data, each tensor aligned.

The `gguf` package is not used here, so that the tests need numpy only and so that the generator can use that package
as a second opinion on every file written.
"""
import struct

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
SCALAR = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q", I64: "<q",
          F64: "<d"}

# ggml type: (number, elements in a block, bytes in a block)
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
         "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110),
         "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ4_NL": (20, 32, 18),
         "IQ4_XS": (23, 256, 136), "BF16": (30, 1, 2), "MXFP4": (39, 32, 17)}
BY_NUMBER = {v[0]: k for k, v in TYPES.items()}


def _string(s):
    b = s if isinstance(s, bytes) else s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def _value(kind, v):
    if kind == STR:
        return _string(v)
    if isinstance(kind, tuple):
        item, n = kind[1], len(v)
        return struct.pack("<IQ", item, n) + b"".join(_value(item, x) for x in v)
    return struct.pack(SCALAR[kind], v)


class Gguf:
    def __init__(self, version=3, alignment=32):
        self.version, self.alignment = version, alignment
        self.keys, self.tensors = [], []

    # keys -------------------------------------------------------------------------------------------------------
    def key(self, name, kind, value):
        """Sets a key; kind is a scalar type, STR, or (ARR, item type)."""
        for i, (n, _, _) in enumerate(self.keys):
            if n == name:
                self.keys[i] = (name, kind, value)
                return self
        self.keys.append((name, kind, value))
        return self

    def drop_key(self, name):
        self.keys = [k for k in self.keys if k[0] != name]
        return self

    def get(self, name, default=None):
        return next((v for n, _, v in self.keys if n == name), default)

    # tensors ----------------------------------------------------------------------------------------------------
    def tensor(self, name, array, kind="F32"):
        """Adds a float array [rows, columns] in a plain type, or raw bytes with add_raw."""
        a = np.ascontiguousarray(array, np.float32)
        if kind == "F32":
            raw = a.tobytes()
        elif kind == "F16":
            raw = a.astype(np.float16).tobytes()
        elif kind == "BF16":
            raw = to_bf16(a).tobytes()
        else:
            raise ValueError(kind)
        return self.raw(name, tuple(reversed(a.shape)), kind, raw)

    def raw(self, name, dims, kind, data):
        self.tensors.append((name, tuple(dims), kind, bytes(data)))
        return self

    def drop_tensor(self, name):
        self.tensors = [t for t in self.tensors if t[0] != name]
        return self

    # files ------------------------------------------------------------------------------------------------------
    def _bytes(self, keys, tensors):
        out = [b"GGUF", struct.pack("<IQQ", self.version, len(tensors), len(keys))]
        for name, kind, value in keys:
            out += [_string(name), struct.pack("<I", ARR if isinstance(kind, tuple) else kind), _value(kind, value)]
        offset, data = 0, []
        for name, dims, kind, raw in tensors:
            number = kind if isinstance(kind, int) else TYPES[kind][0]
            out += [_string(name), struct.pack("<I", len(dims)), struct.pack("<%dQ" % len(dims), *dims),
                    struct.pack("<IQ", number, offset)]
            padded = raw + bytes(-len(raw) % self.alignment)
            data.append(padded)
            offset += len(padded)
        head = b"".join(out)
        return head + bytes(-len(head) % self.alignment) + b"".join(data)

    def save(self, path):
        keys = list(self.keys)
        if self.alignment != 32 and self.get("general.alignment") is None:
            keys.append(("general.alignment", U32, self.alignment))
        with open(path, "wb") as f:
            f.write(self._bytes(keys, self.tensors))

    def save_split(self, stem, parts):
        """Writes STEM-00001-of-0000N.gguf …; part 1 carries all keys. Returns the paths."""
        n, paths = len(self.tensors), []
        for p in range(parts):
            keys = [] if p else list(self.keys)
            keys += [("split.no", U16, p), ("split.count", U16, parts), ("split.tensors.count", I32, n)]
            path = "%s-%05d-of-%05d.gguf" % (stem, p + 1, parts)
            with open(path, "wb") as f:
                f.write(self._bytes(keys, self.tensors[n * p // parts:n * (p + 1) // parts]))
            paths.append(path)
        return paths


def load(path):
    data = open(path, "rb").read()
    at = 0

    def take(fmt):
        nonlocal at
        v = struct.unpack_from(fmt, data, at)
        at += struct.calcsize(fmt)
        return v[0] if len(v) == 1 else v

    def string():
        nonlocal at
        n = take("<Q")
        s = data[at:at + n]
        at += n
        return s.decode("utf-8", "surrogateescape")

    def value(kind):
        if kind == STR:
            return STR, string()
        if kind == ARR:
            item, n = take("<IQ")
            return (ARR, item), [value(item)[1] for _ in range(n)]
        return kind, take(SCALAR[kind])

    if data[:4] != b"GGUF":
        raise ValueError("%s is not a GGUF file" % path)
    at = 4
    g = Gguf(version=take("<I"))
    n_tensors, n_keys = take("<QQ")
    for _ in range(n_keys):
        name = string()
        kind, v = value(take("<I"))
        g.keys.append((name, kind, v))
    g.alignment = g.get("general.alignment", 32)
    infos = []
    for _ in range(n_tensors):
        name = string()
        nd = take("<I")
        dims = tuple(take("<Q") for _ in range(nd))
        infos.append((name, dims) + take("<IQ"))
    base = at + (-at % g.alignment)
    for name, dims, number, offset in infos:
        kind = BY_NUMBER[number]
        _, per, size = TYPES[kind]
        n = int(np.prod(dims, dtype=np.int64)) // per * size
        g.tensors.append((name, dims, kind, data[base + offset:base + offset + n]))
    return g


def to_bf16(a):
    """float32 array -> uint16 array, round to nearest even."""
    u = np.ascontiguousarray(a, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(u):
    return (np.asarray(u, np.uint16).astype(np.uint32) << 16).view(np.float32)
