"""Writing Core ML packages: convert() from any model, quantize() from a package.

The structs stand in full, for each begins with its size and the library reads what is there. Strings that options point
to are kept alive by the call that made them.
"""
import ctypes
from ctypes import CFUNCTYPE, POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p
from dataclasses import dataclass, field
from os import PathLike
from typing import Callable, Iterable, List, Mapping, Optional, Sequence, Union

from ._native import Error, Text, check, lib

Path = Union[str, "PathLike[str]"]
Progress = Callable[[int, int], Optional[bool]]
_PROGRESS = CFUNCTYPE(c_bool, c_void_p, c_uint64, c_uint64)
_ERR = POINTER(Error)


class _Weight(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("rows", c_uint64), ("columns", c_uint64), ("encoding", ctypes.c_char * 64),
                ("source_bytes", c_uint64), ("bytes", c_uint64), ("bits_per_weight", c_double),
                ("relative_error", c_double), ("worst_row_error", c_double), ("worst_row", c_uint64),
                ("exact", c_bool)]


class _PackageWeight(ctypes.Structure):
    _fields_ = [("weight", _Weight), ("op", c_char_p), ("embedding", c_bool), ("head", c_bool),
                ("calibrated", c_bool), ("left_alone", c_char_p)]


_ON_WEIGHT = CFUNCTYPE(None, c_void_p, POINTER(_Weight))
_ON_PACKAGE_WEIGHT = CFUNCTYPE(None, c_void_p, POINTER(_PackageWeight))


class _ConvertOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("allocator", c_void_p), ("profile", c_char_p), ("softmax", c_char_p),
                ("weights", c_char_p), ("embedding", c_char_p), ("head", c_char_p), ("fit_groups", c_bool),
                ("calibration", c_void_p), ("context_tokens", c_uint32), ("chunk_tokens", c_uint32),
                ("kv_tile_tokens", c_uint32), ("buckets", POINTER(c_uint32)), ("n_buckets", c_size_t),
                ("ignore_rules", c_bool), ("target", c_char_p), ("n_parts", c_uint32), ("tokenizer_path", c_char_p),
                ("replace", c_bool), ("n_threads", c_uint32), ("memory_budget_bytes", c_size_t),
                ("progress", _PROGRESS), ("progress_ctx", c_void_p), ("on_weight", _ON_WEIGHT),
                ("on_weight_ctx", c_void_p), ("patterns", POINTER(c_char_p)), ("n_patterns", c_size_t),
                ("part_bytes", c_uint64), ("enumerated_shapes", c_bool)]


class _QuantizeOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("allocator", c_void_p), ("weights", c_char_p), ("embedding", c_char_p),
                ("head", c_char_p), ("patterns", POINTER(c_char_p)), ("n_patterns", c_size_t),
                ("threshold_elements", c_uint64), ("fit_groups", c_bool), ("calibration", c_void_p),
                ("replace", c_bool), ("n_threads", c_uint32), ("memory_budget_bytes", c_size_t),
                ("progress", _PROGRESS), ("progress_ctx", c_void_p), ("on_weight", _ON_PACKAGE_WEIGHT),
                ("on_weight_ctx", c_void_p), ("again", c_bool)]


class _Report(ctypes.Structure):
    _fields_ = [("source_bytes", c_uint64), ("weights_bytes", c_uint64), ("shared_bytes", c_uint64),
                ("spec_bytes", c_uint64), ("n_weights", c_uint32), ("n_packages", c_uint32),
                ("predicted_kl", c_double)]


_FUNCTIONS = {
    "teg_convert_options_default": (None, [POINTER(_ConvertOptions)]),
    "teg_convert": (c_int, [c_char_p, c_char_p, POINTER(_ConvertOptions), POINTER(_Report), _ERR]),
    "teg_convert_explain": (c_int, [c_char_p, POINTER(_ConvertOptions), POINTER(Text), _ERR]),
    "teg_quantize_options_default": (None, [POINTER(_QuantizeOptions)]),
    "teg_quantize_package": (c_int, [c_char_p, c_char_p, POINTER(_QuantizeOptions), POINTER(_Report), _ERR]),
    "teg_calibrate": (c_int, [c_void_p, POINTER(c_int32), c_size_t, c_void_p, POINTER(c_void_p), _ERR]),
    "teg_calibration_free": (None, [c_void_p]),
}
for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments


@dataclass
class Weight:
    """What became of one weight. `encoding` is a rule, "kept", or "" with the reason in `left_alone`; errors are
    |w - w'| / |w| of the whole and of its worst row."""
    name: str
    rows: int
    columns: int
    encoding: str
    source_bytes: int
    bytes: int
    bits_per_weight: float
    relative_error: float
    worst_row_error: float
    worst_row: int
    exact: bool
    left_alone: str = ""


@dataclass
class Report:
    """Sizes of what was written, the divergence that its errors let expect (nats a token), a row for each weight."""
    source_bytes: int
    weights_bytes: int
    shared_bytes: int
    spec_bytes: int
    packages: int
    predicted_kl: float
    weights: List[Weight] = field(default_factory=list)


def _text(value: Optional[object]) -> Optional[bytes]:
    return None if value is None else str(value).encode()


def _weight(row: _Weight, left_alone: Optional[bytes] = None) -> Weight:
    reason = (left_alone or b"").decode()
    return Weight(row.name.decode("utf-8", "replace"), row.rows, row.columns, row.encoding.decode(), row.source_bytes,
                  row.bytes, row.bits_per_weight, row.relative_error, row.worst_row_error, row.worst_row, row.exact,
                  reason)


def _report(report: _Report, weights: List[Weight]) -> Report:
    return Report(report.source_bytes, report.weights_bytes, report.shared_bytes, report.spec_bytes,
                  report.n_packages, report.predicted_kl, weights)


def _patterns(rules: Mapping[str, str], skip: Iterable[str]):
    texts = [f"{pattern}={rule}".encode() for pattern, rule in rules.items()]
    texts += [f"{pattern}=skip".encode() for pattern in skip]
    return (c_char_p * len(texts))(*texts), len(texts)


def _progress(function: Optional[Progress], raised: List[BaseException]):
    """An exception ends the work and is raised by the caller; False ends it too."""
    def tell(_, done, total):
        try:
            return function(done, total) is not False
        except BaseException as error:  # noqa: B902 - must not pass through C
            raised.append(error)
            return False
    return _PROGRESS(tell if function else 0)


def _finish(status: int, error: Error, raised: List[BaseException]) -> None:
    if raised:
        raise raised[0]
    check(status, error)


class _Calibration:
    """Which columns a text uses; freed with the object."""

    def __init__(self, model: Path, text: Optional[str], tokenizer: Optional[Path], threads: int):
        self.pointer = c_void_p()
        if text is None:
            return
        from ._language import LanguageModel
        opened = LanguageModel(model, mode="exact", tokenizer=tokenizer, threads=threads)
        ids = opened.tokenize(text)
        error = Error()
        status = lib.teg_calibrate(opened._model.pointer, (c_int32 * len(ids))(*ids), len(ids), None,
                                   byref(self.pointer), byref(error))
        check(status, error)

    def __del__(self):
        lib.teg_calibration_free(self.pointer)


def convert(source: Path, output: Optional[Path] = None, *, profile: str = "portable", weights: str = "f16",
            embedding: Optional[str] = None, head: Optional[str] = None, rules: Mapping[str, str] = {},
            skip: Iterable[str] = (), fit: bool = False, calibrate: Optional[str] = None, context: int = 0,
            chunk: int = 0, kv_tile: int = 0, softmax: str = "two-pass", buckets: Sequence[int] = (),
            enumerated_shapes: bool = False, target: str = "iOS18", parts: int = 1, part_bytes: int = 0, ignore_rules: bool = False,
            tokenizer: Optional[Path] = None, overwrite: bool = False, threads: int = 0, memory: int = 0,
            progress: Optional[Progress] = None, explain: bool = False) -> Union[Report, str]:
    """Writes a language model as the Core ML package `output`; what `tegula convert` does, with the same options.

    source: whatever LanguageModel takes. weights, embedding, head: rules such as "int4/32", "lut4", "keep". rules: from
    name patterns to rules; skip: patterns that stay f16. calibrate: a text that the model will see the like of. progress:
    called with bytes done and in all; False ends the work. explain: returns the choices of the profile and the rules of
    the device behind them instead, and writes nothing.
    """
    if output is None and not explain:
        raise TypeError("convert() needs output, the package to write, or explain=True")
    if isinstance(skip, str):
        raise TypeError(f"skip: expected a list of patterns, found the text {skip!r}")
    options, error, report, raised = _ConvertOptions(size=ctypes.sizeof(_ConvertOptions)), Error(), _Report(), []
    lib.teg_convert_options_default(byref(options))
    options.size = ctypes.sizeof(_ConvertOptions)
    rows: List[Weight] = []
    calibration = _Calibration(source, None if explain else calibrate, tokenizer, threads)
    for name, value in (("profile", profile), ("softmax", softmax), ("weights", weights), ("embedding", embedding),
                        ("head", head), ("target", target), ("tokenizer_path", tokenizer)):
        setattr(options, name, _text(value))
    options.fit_groups, options.ignore_rules, options.replace = fit, ignore_rules, overwrite
    options.context_tokens, options.chunk_tokens, options.kv_tile_tokens = context, chunk, kv_tile
    options.buckets, options.n_buckets = (c_uint32 * len(buckets))(*buckets), len(buckets)
    options.n_parts, options.part_bytes, options.n_threads = parts, part_bytes, threads
    options.memory_budget_bytes, options.enumerated_shapes = memory, enumerated_shapes
    options.calibration = calibration.pointer
    options.patterns, options.n_patterns = _patterns(rules, skip)
    options.progress = _progress(progress, raised)
    options.on_weight = _ON_WEIGHT(lambda _, row: rows.append(_weight(row.contents)))
    if explain:
        text = Text()
        check(lib.teg_convert_explain(_text(source), byref(options), byref(text), byref(error)), error)
        try:
            return ctypes.string_at(text.bytes, text.n_bytes).decode()
        finally:
            lib.teg_text_free(byref(text))
    status = lib.teg_convert(_text(source), _text(output), byref(options), byref(report), byref(error))
    _finish(status, error, raised)
    return _report(report, rows)


def quantize(source: Path, output: Path, *, weights: str = "int8", embedding: Optional[str] = None,
             head: Optional[str] = None, rules: Mapping[str, str] = {}, skip: Iterable[str] = (), threshold: int = 2048,
             fit: bool = False, again: bool = False, calibrate: Optional[str] = None, tokenizer: Optional[Path] = None,
             overwrite: bool = False, threads: int = 0, memory: int = 0,
             progress: Optional[Progress] = None) -> Report:
    """Writes the Core ML package `source` again with its weights in another encoding; what `tegula quantize` does.

    Any ML program will do, language model or not (calibrate needs one). rules: from name patterns, or "op:TYPE", to
    rules; skip: patterns that stay as they are. again: weights that are encoded already too.
    """
    if isinstance(skip, str):
        raise TypeError(f"skip: expected a list of patterns, found the text {skip!r}")
    options, error, report, raised = _QuantizeOptions(size=ctypes.sizeof(_QuantizeOptions)), Error(), _Report(), []
    lib.teg_quantize_options_default(byref(options))
    options.size = ctypes.sizeof(_QuantizeOptions)
    rows: List[Weight] = []
    calibration = _Calibration(source, calibrate, tokenizer, threads)
    options.weights, options.embedding, options.head = _text(weights), _text(embedding), _text(head)
    options.threshold_elements, options.fit_groups, options.again = threshold, fit, again
    options.replace, options.n_threads, options.memory_budget_bytes = overwrite, threads, memory
    options.calibration = calibration.pointer
    options.patterns, options.n_patterns = _patterns(rules, skip)
    options.progress = _progress(progress, raised)
    options.on_weight = _ON_PACKAGE_WEIGHT(
        lambda _, row: rows.append(_weight(row.contents.weight, row.contents.left_alone)))
    status = lib.teg_quantize_package(_text(source), _text(output), byref(options), byref(report), byref(error))
    _finish(status, error, raised)
    return _report(report, rows)
