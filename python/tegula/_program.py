"""Programs and states as Python objects over the library's handles; NumPy in and out.

Nothing of the caller is kept after a call: inputs are read during it, outputs are copies. A program may be used from
several threads; a state by one at a time, which its lock sees to.
"""
import ctypes
import dataclasses
import os
import signal
import threading
from ctypes import byref
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from . import _native as native
from ._native import lib

_ELEMENT_OF = {np.dtype(name): index for index, name in enumerate(native.ELEMENTS)}
_TYPE_NAMES = ("multiArrayType", "imageType", "stateType", "int64Type", "doubleType", "stringType", "dictionaryType",
               "dictionaryType", "otherType")
_COLOURS = ("RGB", "BGR", "GRAYSCALE", "GRAYSCALE_FLOAT16")


def _text(raw: Optional[bytes]) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _name(name: Any) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"a name must be a string, found {type(name).__name__}")
    return name.encode()


@dataclasses.dataclass(frozen=True)
class Feature:
    """What a function takes, gives or keeps. `shape` is None where it is known only at run time; `ranges` has the
    smallest and largest size of each dimension, the largest None where there is no limit."""
    name: str
    description: str
    type: str
    dtype: Optional[np.dtype]
    shape: Optional[Tuple[int, ...]]
    ranges: Tuple[Tuple[int, Optional[int]], ...]
    enumerated: Tuple[Tuple[int, ...], ...]
    optional: bool
    default: Optional[float]
    colour: Optional[str]


def _feature(raw: native.Feature) -> Feature:
    rank, is_image = raw.rank, raw.kind == native.IMAGE
    entry_rank = 2 if is_image else rank
    has_type = raw.kind in (native.ARRAY, native.IMAGE, native.STATE)
    return Feature(
        name=_text(raw.name), description=_text(raw.description), type=_TYPE_NAMES[raw.kind],
        dtype=np.dtype(native.ELEMENTS[raw.element]) if has_type else None,
        shape=tuple(raw.shape[:rank]) if raw.has_shape else None,
        ranges=tuple((low, None if high < 0 else high) for low, high in zip(raw.lower[:rank], raw.upper[:rank])),
        enumerated=tuple(tuple(raw.enumerated[i][:entry_rank]) for i in range(raw.n_enumerated)),
        optional=raw.optional, default=raw.default_value if raw.has_default else None,
        colour=_COLOURS[raw.colour] if is_image else None)


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    opset: str
    inputs: Tuple[Feature, ...]
    outputs: Tuple[Feature, ...]
    states: Tuple[Feature, ...]
    predicted_feature: str
    predicted_probabilities: str


def to_numpy(value: Any) -> np.ndarray:
    """Lists, numbers, NumPy arrays, tensors of torch and TensorFlow."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if hasattr(value, "numpy") and callable(value.numpy):
        return np.asarray(value.numpy())
    return np.asarray(value)


def _fill(slot: native.FeatureValue, name: str, value: Any) -> Any:
    """Fills one value; what is returned must stay alive until the call is over."""
    slot.name = _name(name)
    if isinstance(value, str):
        slot.kind, slot.string = native.STRING, value.encode()
        return value
    array = to_numpy(value)
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    if array.dtype not in _ELEMENT_OF:
        swapped = array.dtype.newbyteorder("=")
        if swapped not in _ELEMENT_OF:
            raise TypeError(f"value for '{name}' must be an array of numbers, found {array.dtype}")
        array = array.astype(swapped)
    if array.ndim > native.MAX_RANK:
        raise ValueError(f"value for '{name}' must have at most {native.MAX_RANK} dimensions, found {array.ndim}")
    shape = array.shape
    array = np.ascontiguousarray(array)
    slot.kind, slot.element, slot.rank = native.ARRAY, _ELEMENT_OF[array.dtype], len(shape)
    for d, n in enumerate(shape):
        slot.dims[d] = n
    slot.data = array.ctypes.data
    return array


def _dictionary(value: native.FeatureValue) -> Dict[Any, float]:
    if value.kind == native.DICT_INT64:
        return {value.integer_keys[i]: value.entry_values[i] for i in range(value.n_entries)}
    return {_text(value.string_keys[i]): value.entry_values[i] for i in range(value.n_entries)}


def _value(value: native.FeatureValue) -> Any:
    if value.kind in (native.DICT_INT64, native.DICT_STRING):
        return _dictionary(value)
    if value.kind == native.INT64:
        return value.integer
    if value.kind == native.DOUBLE:
        return value.real
    if value.kind == native.STRING:
        return _text(value.string)
    shape, dtype = tuple(value.dims[:value.rank]), np.dtype(native.ELEMENTS[value.element])
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if n_bytes == 0:
        return np.empty(shape, dtype)
    # A view of the library's memory, then one copy of it: string_at would make two.
    view = np.frombuffer((ctypes.c_uint8 * n_bytes).from_address(value.data), dtype=dtype)
    return view.reshape(shape).copy()


class State:
    """What the stateful functions of one program keep between predictions."""

    def __init__(self, program: "Program"):
        self.program, self.handle, self.lock = program, ctypes.c_void_p(), threading.Lock()
        error = native.Error()
        native.check(lib.teg_state_new(program.handle, byref(self.handle), byref(error)), error)

    def __del__(self):
        if getattr(self, "handle", None):
            lib.teg_state_free(self.handle)
            self.handle = None

    def names(self) -> List[str]:
        return [_text(lib.teg_state_name(self.handle, i)) for i in range(lib.teg_state_count(self.handle))]

    def read(self, name: str) -> np.ndarray:
        values, error = ctypes.c_void_p(), native.Error()
        with self.lock:
            native.check(lib.teg_state_read(self.handle, _name(name), byref(values), byref(error)), error)
        try:
            return _value(lib.teg_values_at(values, 0).contents)
        finally:
            lib.teg_values_free(values)

    def write(self, name: str, value: Any) -> None:
        slot, error = native.FeatureValue(), native.Error()
        held = _fill(slot, name, value)
        with self.lock:
            native.check(lib.teg_state_write(self.handle, byref(slot), byref(error)), error)
        del held


_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
            if hasattr(signal, name)]


class _Signals:
    """Lets signal handlers run while the library works.

    Python runs them between bytecodes of the main thread, so the library calls back there now and then. What a handler
    raises (Ctrl-C: KeyboardInterrupt) would be lost in the callback: it is kept, ends the work and is raised after it."""

    def __init__(self):
        self.caught, self.before = None, {}
        is_main = threading.current_thread() is threading.main_thread()
        self.callback = native.CHECK(self._check) if is_main else native.CHECK()
        self.is_main = is_main

    def _check(self, _):
        return self.caught is None

    def _keep(self, number, frame):
        try:
            self.before[number](number, frame)
        except BaseException as error:
            self.caught = error

    def __enter__(self):
        if self.is_main:
            self.before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
            for number in self.before:
                signal.signal(number, self._keep)
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            if signal.getsignal(number) == self._keep:  # the handler may have put another in its place
                signal.signal(number, handler)


class Program:
    """An open package. `mode` is "exact" or "emulate-fp16"."""

    MODES = {"exact": 0, "emulate-fp16": 1}

    def __init__(self, path: str, mode: str = "exact", n_threads: int = 0, target: Optional[str] = None):
        self.handle, self.path = ctypes.c_void_p(), str(path)
        options, error = native.ProgramOptions(), native.Error()
        lib.teg_program_options_default(byref(options))
        if mode not in self.MODES:
            raise ValueError(f"mode must be one of {', '.join(self.MODES)}, found {mode!r}")
        options.mode, options.n_threads = self.MODES[mode], n_threads
        options.target = target.encode() if target else None
        native.check(lib.teg_program_open(os.fsencode(path), byref(options), byref(self.handle), byref(error)), error)
        info = lib.teg_program_info(self.handle).contents
        self.format, self.spec_version = _text(info.format), info.spec_version
        self.default_function = _text(info.default_function)
        self.author, self.license, self.version = _text(info.author), _text(info.license), _text(info.version)
        self.description = _text(info.description)
        self.metadata = dict(self._metadata(i) for i in range(info.n_metadata))
        self.functions = {f.name: f for f in (self._function(i) for i in range(info.n_functions))}
        self.requirements = tuple(self._requirement(i) for i in range(info.n_requirements))
        self.minimum_systems = _text(lib.teg_program_minimum_systems(self.handle))

    def __del__(self):
        if getattr(self, "handle", None):
            lib.teg_program_free(self.handle)
            self.handle = None

    def _metadata(self, index):
        key, value = ctypes.c_char_p(), ctypes.c_char_p()
        lib.teg_program_metadata(self.handle, index, byref(key), byref(value))
        return _text(key.value), _text(value.value)

    def _requirement(self, index):
        raw = native.Requirement()
        lib.teg_program_requirement(self.handle, index, byref(raw))
        return {"feature": _text(raw.feature), "function": _text(raw.function), "where": _text(raw.where),
                "spec_version": raw.spec_version, "systems": _text(raw.systems)}

    def _features(self, function, role, n):
        raw = native.Feature()
        features = []
        for i in range(n):
            lib.teg_program_feature(self.handle, function, role, i, byref(raw))
            features.append(_feature(raw))
        return tuple(features)

    def _function(self, index):
        raw = native.Function()
        lib.teg_program_function(self.handle, index, byref(raw))
        return Function(_text(raw.name), _text(raw.opset), self._features(index, native.INPUT, raw.n_inputs),
                        self._features(index, native.OUTPUT, raw.n_outputs),
                        self._features(index, native.STATE_ROLE, raw.n_states), _text(raw.predicted_feature),
                        _text(raw.predicted_probabilities))

    def prepare(self, function: Optional[str] = None) -> None:
        """Makes a function ready, so that what cannot run is known now."""
        error = native.Error()
        native.check(lib.teg_program_prepare(self.handle, function.encode() if function else None, byref(error)), error)

    def dump(self, function: Optional[str] = None) -> str:
        """The ops of a function, a line each."""
        text, error = native.Text(), native.Error()
        native.check(lib.teg_program_dump(self.handle, function.encode() if function else None, byref(text),
                                          byref(error)), error)
        try:
            return ctypes.string_at(text.bytes, text.n_bytes).decode("utf-8", "replace")
        finally:
            lib.teg_text_free(byref(text))

    def predict(self, inputs: Dict[str, Any], function: Optional[str] = None,
                state: Optional[State] = None) -> Dict[str, Any]:
        """Outputs by name, in the declared types. Images are arrays: u8 [H, W, 3], u8 [H, W] or f32 [H, W]."""
        slots, error = (native.FeatureValue * max(1, len(inputs)))(), native.Error()
        held = [_fill(slot, name, value) for slot, (name, value) in zip(slots, inputs.items())]
        options, values = native.PredictOptions(), ctypes.c_void_p()
        lib.teg_predict_options_default(byref(options))
        options.function = function.encode() if function else None
        options.state = state.handle if state else None
        signals = _Signals()
        options.check = signals.callback
        with state.lock if state else threading.Lock(), signals:
            status = lib.teg_program_predict(self.handle, slots, len(inputs), byref(options), byref(values),
                                             byref(error))
        del held
        if signals.caught is not None:
            lib.teg_values_free(values)
            raise signals.caught
        native.check(status, error)
        try:
            return {_text(item.name): _value(item) for item in
                    (lib.teg_values_at(values, i).contents for i in range(lib.teg_values_count(values)))}
        finally:
            lib.teg_values_free(values)
