"""The backend of the recorded conformance cases: load, predict, make_state, read_state, write_state.

It hands each call to the program run_case beside it (RUN_CASE names the binary), with arrays as .npy files; all that is
done here is what an API does at the edge: inputs take the declared type, scalars come and go as shape (1,), images
become planes and planes images.
"""
import os
import shutil
import subprocess
import tempfile

import numpy as np

RUN_CASE = os.environ.get("RUN_CASE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_case"))
MODE = os.environ.get("RUN_CASE_MODE", "exact")
KINDS = ["array", "image", "state", "int64", "double", "string", "dict_int64", "dict_string", "other"]
RGB, BGR, GRAY, GRAY_FP16 = range(4)
FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
INTS = {"int8": np.int8, "int32": np.int32, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16}


def call(*arguments):
    p = subprocess.run([RUN_CASE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if p.returncode:
        message = p.stderr.decode("utf-8", "replace").strip() or "run_case ended with status %d" % p.returncode
        raise RuntimeError(message)
    return p.stdout.decode("utf-8").splitlines()


class Feature:
    def __init__(self, fields):
        (self.name, kind, self.dtype, optional, colour, width, height, has_default, default, shape,
         enumerated) = fields
        self.kind = KINDS[int(kind)]
        self.optional, self.has_default = optional == "1", has_default == "1"
        self.colour, self.width, self.height = int(colour), int(width), int(height)
        self.default = float(default)
        dims = [tuple(int(x) for x in d.split(":")) for d in shape.split(",")] if shape else []
        self.has_shape = bool(shape)
        self.shape = [d[0] for d in dims]
        self.ranges = [d[1:] for d in dims]
        self.enumerated = [tuple(int(x) for x in s.split(",")) for s in enumerated.split(";")] if enumerated else []


class Model:
    def __init__(self, path, function):
        self.path, self.function = path, function
        self.vars, self.inputs, self.outputs, self.states = {}, {}, {}, {}
        for line in call("describe", path, *([function] if function else [])):
            what, *fields = line.split("\t")
            if what == "var":
                name, dtype, dims = fields
                self.vars[name] = dtype, [int(d) for d in dims.split(",")] if dims else []
            else:
                feature = Feature(fields)
                {"input": self.inputs, "output": self.outputs, "state": self.states}[what][feature.name] = feature


class State:
    def __init__(self, model):
        self.model, self.values = model, {}


def load(path, function, compute_units):
    return Model(path, function)


def make_state(model):
    return State(model)


def read_state(state, name):
    feature = state.model.states[name]
    value = state.values.get(name)
    return np.zeros(feature.shape, np.float32) if value is None else value


def write_state(state, name, value):
    dtype = state.model.states[name].dtype
    state.values[name] = np.ascontiguousarray(hold(value, dtype))


def hold(array, dtype):
    """The array rounded to the declared type, in the type that holds it."""
    array = np.asarray(array)
    if dtype in FLOATS:
        return array.astype(FLOATS[dtype]).astype(np.float32)
    if dtype == "bool":
        return array.astype(np.bool_)
    return array.astype(INTS[dtype]).astype(np.int32)


def image_in(array, feature):
    array = np.asarray(array)
    if array.ndim == 2:
        return array[None, None].astype(np.float32)
    planes = array.transpose(2, 0, 1)[None].astype(np.float32)
    return planes[:, ::-1] if feature.colour == BGR else planes


def image_out(array, feature):
    planes = np.asarray(array).reshape(array.shape[-3:])
    if feature.colour in (GRAY, GRAY_FP16):
        plane = planes[0]
        return plane.astype(np.float32) if feature.colour == GRAY_FP16 else to_bytes(plane)
    return to_bytes(planes[::-1] if feature.colour == BGR else planes).transpose(1, 2, 0)


def to_bytes(array):
    return np.clip(np.rint(array), 0, 255).astype(np.uint8)


def check_shape(feature, shape):
    if feature.enumerated:
        fits = tuple(shape) in feature.enumerated
    else:
        fits = len(shape) == len(feature.ranges) and all(
            low <= n and (high < 0 or n <= high) for n, (low, high) in zip(shape, feature.ranges))
    if feature.has_shape and not fits:
        raise RuntimeError("input %s: shape %s is not one that the model takes" % (feature.name, tuple(shape)))


def prepare(model, name, inputs):
    feature = model.inputs[name]
    dtype, dims = model.vars[name]
    if name not in inputs:
        if not feature.optional:
            raise RuntimeError("input %s is missing" % name)
        return hold(np.full(feature.shape, feature.default if feature.has_default else 0.0), dtype)
    if feature.kind == "image":
        return hold(image_in(inputs[name], feature), dtype)
    array = np.asarray(inputs[name])
    if not dims and array.shape == (1,):
        array = array.reshape(())
    else:
        check_shape(feature, array.shape)
    return hold(array, dtype)


def finish(array, feature):
    if feature.kind == "image":
        return image_out(array, feature)
    if array.ndim == 0:
        array = array.reshape((1,))
    return array.astype(FLOATS.get(feature.dtype) or INTS.get(feature.dtype, np.int32))


def predict(model, inputs, state=None):
    unknown = set(inputs) - set(model.inputs)
    if unknown:
        raise RuntimeError("the model has no input %s" % sorted(unknown)[0])
    if model.states and state is None:
        raise RuntimeError("the model has states: pass the object that make_state gives")
    folder = tempfile.mkdtemp(prefix="case-")
    try:
        for name in model.inputs:
            np.save(os.path.join(folder, "in.%s.npy" % name), prepare(model, name, inputs))
        for name, value in (state.values if state else {}).items():
            np.save(os.path.join(folder, "state.%s.npy" % name), value)
        lines = call("run", model.path, model.function, folder, MODE)
        out = {}
        for line in lines:
            what, name, *fields = line.split("\t")
            key = int if model.outputs[name].kind in ("int64", "dict_int64") else str
            if what == "text":
                out[name] = key(fields[0])
            else:
                out.setdefault(name, {})[key(fields[0])] = float(fields[1])
        for name, feature in model.outputs.items():
            path = os.path.join(folder, "out.%s.npy" % name)
            if os.path.exists(path):
                out[name] = finish(np.load(path), feature)
        for name in model.states:
            state.values[name] = np.load(os.path.join(folder, "state.%s.npy" % name))
        return out
    finally:
        shutil.rmtree(folder, ignore_errors=True)
