"""tegula.h for ctypes: the structs, the functions, and errors as exceptions.

The library is looked for in TEGULA_LIBRARY, beside this package, in the build directory of a checkout that this file
lies in, and where the system looks for libraries; the first that exists is taken. ctypes was preferred to an extension
module because nothing must be compiled where the package is installed; each call releases the GIL.
"""
import ctypes
import ctypes.util
import os
import pathlib
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

MAX_RANK = 8
OK, ERR_ARGUMENT, ERR_MEMORY, ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED, ERR_CONTEXT_FULL, ERR_INTERRUPTED = range(8)
ARRAY, IMAGE, STATE, INT64, DOUBLE, STRING, DICT_INT64, DICT_STRING, OTHER = range(9)
INPUT, OUTPUT, STATE_ROLE = range(3)
RGB, BGR, GRAY, GRAY_F16 = range(4)
ELEMENTS = ("float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
            "bool")


class TegulaError(RuntimeError):
    """A failure of the library: one sentence that says what, where, what was expected and found. `status` is its
    kind as a word."""

    def __init__(self, message, status=""):
        super().__init__(message)
        self.status = status


class Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("offset", c_uint64), ("message", ctypes.c_char * 480)]


class Text(ctypes.Structure):
    _fields_ = [("bytes", c_void_p), ("n_bytes", c_size_t)]


class ProgramOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("allocator", c_void_p), ("mode", c_int), ("n_threads", c_uint32),
                ("max_bytes", c_uint64), ("max_loop_iterations", c_uint64), ("seed", c_uint64), ("target", c_char_p)]


class ProgramInfo(ctypes.Structure):
    _fields_ = [("format", c_char_p), ("spec_version", c_uint32), ("default_function", c_char_p), ("author", c_char_p),
                ("license", c_char_p), ("version", c_char_p), ("description", c_char_p), ("n_functions", c_size_t),
                ("n_metadata", c_size_t), ("n_weights", c_size_t), ("n_requirements", c_size_t),
                ("weights_bytes", c_uint64)]


class Function(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("opset", c_char_p), ("spec_version", c_uint32), ("n_inputs", c_size_t),
                ("n_outputs", c_size_t), ("n_states", c_size_t), ("n_ops", c_size_t), ("predicted_feature", c_char_p),
                ("predicted_probabilities", c_char_p)]


Dims = c_int64 * MAX_RANK


class Feature(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("description", c_char_p), ("kind", c_int), ("element", c_int),
                ("optional", c_bool), ("has_default", c_bool), ("default_value", c_double), ("has_shape", c_bool),
                ("rank", c_uint32), ("shape", Dims), ("lower", Dims), ("upper", Dims), ("enumerated", POINTER(Dims)),
                ("n_enumerated", c_size_t), ("colour", c_int)]


class FeatureValue(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int), ("element", c_int), ("rank", c_uint32),
                ("dims", c_uint64 * MAX_RANK), ("data", c_void_p), ("integer", c_int64), ("real", c_double),
                ("string", c_char_p), ("n_entries", c_size_t), ("integer_keys", POINTER(c_int64)),
                ("string_keys", POINTER(c_char_p)), ("entry_values", POINTER(c_double))]


CHECK = ctypes.CFUNCTYPE(c_bool, c_void_p)


class PredictOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("function", c_char_p), ("state", c_void_p), ("stop", POINTER(c_bool)),
                ("check", CHECK), ("check_ctx", c_void_p)]


class Requirement(ctypes.Structure):
    _fields_ = [("feature", c_char_p), ("function", c_char_p), ("where", c_char_p), ("spec_version", c_uint32),
                ("systems", c_char_p)]


class PredictReport(ctypes.Structure):
    _fields_ = [("overflow_op", c_char_p), ("peak_bytes", c_uint64), ("n_ops", c_uint64)]


_ERR = POINTER(Error)
FUNCTIONS = {  # name: (result, arguments)
    "teg_version": (c_char_p, []),
    "teg_status_name": (c_char_p, [c_int]),
    "teg_text_free": (None, [POINTER(Text)]),
    "teg_program_options_default": (None, [POINTER(ProgramOptions)]),
    "teg_program_open": (c_int, [c_char_p, POINTER(ProgramOptions), POINTER(c_void_p), _ERR]),
    "teg_program_free": (None, [c_void_p]),
    "teg_program_prepare": (c_int, [c_void_p, c_char_p, _ERR]),
    "teg_program_info": (POINTER(ProgramInfo), [c_void_p]),
    "teg_program_metadata": (c_int, [c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_char_p)]),
    "teg_program_function": (c_int, [c_void_p, c_size_t, POINTER(Function)]),
    "teg_program_dump": (c_int, [c_void_p, c_char_p, POINTER(Text), _ERR]),
    "teg_program_feature": (c_int, [c_void_p, c_size_t, c_int, c_size_t, POINTER(Feature)]),
    "teg_program_requirement": (c_int, [c_void_p, c_size_t, POINTER(Requirement)]),
    "teg_program_minimum_systems": (c_char_p, [c_void_p]),
    "teg_values_count": (c_size_t, [c_void_p]),
    "teg_values_at": (POINTER(FeatureValue), [c_void_p, c_size_t]),
    "teg_values_report": (None, [c_void_p, POINTER(PredictReport)]),
    "teg_values_free": (None, [c_void_p]),
    "teg_state_new": (c_int, [c_void_p, POINTER(c_void_p), _ERR]),
    "teg_state_free": (None, [c_void_p]),
    "teg_state_count": (c_size_t, [c_void_p]),
    "teg_state_name": (c_char_p, [c_void_p, c_size_t]),
    "teg_state_read": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), _ERR]),
    "teg_state_write": (c_int, [c_void_p, POINTER(FeatureValue), _ERR]),
    "teg_predict_options_default": (None, [POINTER(PredictOptions)]),
    "teg_program_predict": (c_int, [c_void_p, POINTER(FeatureValue), c_size_t, POINTER(PredictOptions),
                                    POINTER(c_void_p), _ERR]),
}


def _candidates():
    given = os.environ.get("TEGULA_LIBRARY")
    if given:  # a wish that cannot be met must not be replaced silently
        yield given
        return
    here = pathlib.Path(__file__).resolve().parent
    for folder in (here, here.parent.parent / "build"):
        for name in ("libtegula.so", "libtegula.so.0", "libtegula.dylib"):
            if (folder / name).exists():
                yield str(folder / name)
    found = ctypes.util.find_library("tegula")
    if found:
        yield found
    yield "libtegula.so.0"


def _load():
    problems = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            for name, (result, arguments) in FUNCTIONS.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            return library, path
        except (OSError, AttributeError) as error:
            problems.append(f"{path}: {error}")
    raise ImportError("cannot load libtegula: expected it in TEGULA_LIBRARY, beside the package or on the system, "
                      "found: " + "; ".join(problems))


lib, _path = _load()


def library_path() -> str:
    """The file of the library that is in use."""
    return _path


def version() -> str:
    return lib.teg_version().decode()


def check(status, error):
    """Turns a failure into an exception: MemoryError, KeyboardInterrupt or TegulaError (a RuntimeError)."""
    if status == OK:
        return
    message = error.message.decode("utf-8", "replace")
    if status == ERR_MEMORY:
        raise MemoryError(message)
    raise TegulaError(message, lib.teg_status_name(status).decode())
