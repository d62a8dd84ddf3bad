"""Language models: a GGUF file, a folder of safetensors, a Core ML package; text or token ids in, NumPy logits out.

A model holds the weights and one session; `fork()` gives another one with the same tokens. Options are passed as the
first fields of the library's structs (each starts with its own size), so a longer struct in a newer library is no harm.
"""
import ctypes
import threading
import warnings
from ctypes import POINTER, byref, c_bool, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Iterator, List, Optional, Sequence, Union

import numpy as np

from ._native import Error, TegulaError, Text, check, lib

MODES = ("auto", "exact", "fast", "emulate-fp16")
_TOKENIZE_SPECIAL, _TOKENIZE_BOS = 1, 2
_ERR = POINTER(Error)


_ON_WARNING = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class _ModelOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("allocator", c_void_p), ("mode", c_int), ("vocab_only", c_bool),
                ("tokenizer_path", c_char_p), ("progress", c_void_p), ("progress_ctx", c_void_p), ("target", c_char_p),
                ("pack_cache_dir", c_char_p), ("on_warning", _ON_WARNING), ("on_warning_ctx", c_void_p)]


class _SessionOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("n_threads", c_uint32), ("chunk_tokens", c_uint32), ("context_tokens", c_uint32)]


_ON_LOGITS = ctypes.CFUNCTYPE(c_bool, c_void_p, c_size_t, c_size_t, POINTER(c_float))


class _PrefillOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("progress", c_void_p), ("progress_ctx", c_void_p), ("on_logits", _ON_LOGITS)]


class _SamplerOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("temperature", c_float), ("top_k", c_uint32), ("top_p", c_float),
                ("min_p", c_float), ("repeat_penalty", c_float), ("frequency_penalty", c_float),
                ("presence_penalty", c_float), ("repeat_last_n", c_uint32), ("seed", c_uint64)]


class _ModelInfo(ctypes.Structure):
    _fields_ = [("format", c_char_p), ("architecture", c_char_p), ("name", c_char_p), ("mode", c_char_p),
                ("vocab_tokens", c_int32), ("n_layers", c_uint32), ("n_heads", c_uint32), ("n_kv_heads", c_uint32),
                ("head_width", c_uint32), ("width", c_uint32), ("ffn_width", c_uint32), ("context_tokens", c_uint32),
                ("n_parameters", c_uint64), ("weights_bytes", c_uint64)]


_FUNCTIONS = {
    "teg_model_open": (c_int, [c_char_p, POINTER(_ModelOptions), POINTER(c_void_p), _ERR]),
    "teg_model_free": (None, [c_void_p]),
    "teg_model_info": (POINTER(_ModelInfo), [c_void_p]),
    "teg_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, ctypes.c_uint, POINTER(c_int32), c_size_t,
                             POINTER(c_size_t), _ERR]),
    "teg_detokenize": (c_int, [c_void_p, POINTER(c_int32), c_size_t, POINTER(Text), _ERR]),
    "teg_token_is_end": (c_bool, [c_void_p, c_int32]),
    "teg_session_new": (c_int, [c_void_p, POINTER(_SessionOptions), POINTER(c_void_p), _ERR]),
    "teg_session_free": (None, [c_void_p]),
    "teg_session_prefill": (c_int, [c_void_p, POINTER(c_int32), c_size_t, POINTER(_PrefillOptions), _ERR]),
    "teg_session_logits": (POINTER(c_float), [c_void_p]),
    "teg_session_length": (c_size_t, [c_void_p]),
    "teg_session_tokens": (POINTER(c_int32), [c_void_p]),
    "teg_session_context": (c_size_t, [c_void_p]),
    "teg_session_rewind": (c_int, [c_void_p, c_size_t, _ERR]),
    "teg_session_fork": (c_int, [c_void_p, POINTER(c_void_p), _ERR]),
    "teg_sampler_options_default": (None, [POINTER(_SamplerOptions)]),
    "teg_sampler_new": (c_int, [c_void_p, POINTER(_SamplerOptions), POINTER(c_void_p), _ERR]),
    "teg_sampler_accept": (None, [c_void_p, c_int32]),
    "teg_sampler_pick": (c_int32, [c_void_p, POINTER(c_float)]),
    "teg_sampler_free": (None, [c_void_p]),
}
for _name, (_result, _arguments) in _FUNCTIONS.items():
    getattr(lib, _name).restype, getattr(lib, _name).argtypes = _result, _arguments

Tokens = Union[str, Sequence[int], np.ndarray]


class _Handle:
    """Something of the library's, how it is freed, and what must live until then."""

    def __init__(self, pointer, free, owner=None):
        self.pointer, self._free, self._owner = pointer, free, owner

    def __del__(self):
        self._free(self.pointer)


def _call(name, *arguments):
    error = Error()
    check(getattr(lib, name)(*arguments, byref(error)), error)


def _ids(tokens):
    ids = np.ascontiguousarray(tokens, dtype=np.int32).reshape(-1)
    return ids, ids.ctypes.data_as(POINTER(c_int32))


class LanguageModel:
    """A language model and the tokens it has read.

    path: a .gguf file, a directory with config.json and *.safetensors, a .mlpackage or .mlmodelc, a folder with
    tegula.json. mode: "auto", "exact", "fast" or "emulate-fp16". context: most tokens (0: the model's own). chunk:
    prompt tokens for each pass. threads: 0 for all CPUs. pack_cache: a folder that keeps packed weights, so that the
    next start is quicker; what goes wrong with it is a warning. One thread at a time; several models share nothing.
    """

    def __init__(self, path, mode: str = "auto", tokenizer=None, context: int = 0, chunk: int = 256, threads: int = 0,
                 pack_cache=None):
        if mode not in MODES:
            raise ValueError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}")
        options = _ModelOptions(size=ctypes.sizeof(_ModelOptions), mode=MODES.index(mode),
                                tokenizer_path=None if tokenizer is None else str(tokenizer).encode(),
                                pack_cache_dir=None if pack_cache is None else str(pack_cache).encode())
        sentences = []
        options.on_warning = _ON_WARNING(lambda _, sentence: sentences.append(sentence.decode(errors="replace")))
        pointer = c_void_p()
        _call("teg_model_open", str(path).encode(), byref(options), byref(pointer))
        for sentence in sentences:
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)
        self._model = _Handle(pointer, lib.teg_model_free)
        wishes = _SessionOptions(ctypes.sizeof(_SessionOptions), threads, chunk, context)
        session = c_void_p()
        _call("teg_session_new", pointer, byref(wishes), byref(session))
        self._session = _Handle(session, lib.teg_session_free, self._model)
        self._lock = threading.Lock()

    @property
    def info(self) -> dict:
        """Facts: format, architecture, mode, vocab_tokens, n_layers, …"""
        struct = lib.teg_model_info(self._model.pointer).contents
        values = ((name, getattr(struct, name)) for name, _ in _ModelInfo._fields_)
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in values}

    # ---- text ----

    def tokenize(self, text: str, bos: bool = True, special: bool = False) -> List[int]:
        """Ids of a text; with bos a BOS where the model's own rules add one; special: "<eos>" and the like are ids."""
        data = text.encode()
        flags = (_TOKENIZE_BOS if bos else 0) | (_TOKENIZE_SPECIAL if special else 0)
        n = c_size_t()
        _call("teg_tokenize", self._model.pointer, data, len(data), flags, None, 0, byref(n))
        ids = (c_int32 * n.value)()
        _call("teg_tokenize", self._model.pointer, data, len(data), flags, ids, n.value, byref(n))
        return list(ids)

    def detokenize(self, ids: Sequence[int]) -> str:
        array, pointer = _ids(ids)
        text = Text()
        _call("teg_detokenize", self._model.pointer, pointer, len(array), byref(text))
        try:
            return ctypes.string_at(text.bytes, text.n_bytes).decode("utf-8", "replace")
        finally:
            lib.teg_text_free(byref(text))

    # ---- the session ----

    @property
    def tokens(self) -> List[int]:
        """What the model has read so far."""
        n = lib.teg_session_length(self._session.pointer)
        return lib.teg_session_tokens(self._session.pointer)[:n] if n else []

    @property
    def context(self) -> int:
        return lib.teg_session_context(self._session.pointer)

    def prefill(self, tokens: Tokens, all_logits: bool = False) -> np.ndarray:
        """Appends a text or ids. float32 [V], the logits of the last token; with all_logits [T, V], of each new one."""
        ids, pointer = _ids(self.tokenize(tokens) if isinstance(tokens, str) else tokens)
        rows = np.empty((len(ids), self.info["vocab_tokens"]), np.float32) if all_logits else None

        def take(_, first, n, data):
            rows[first:first + n] = np.ctypeslib.as_array(data, (n, rows.shape[1]))
            return True

        options = _PrefillOptions(size=ctypes.sizeof(_PrefillOptions), on_logits=_ON_LOGITS(take if all_logits else 0))
        with self._lock:
            _call("teg_session_prefill", self._session.pointer, pointer, len(ids), byref(options))
        return rows if all_logits else self.logits

    def decode(self, token: int) -> np.ndarray:
        """Appends one token; float32 [V], the logits behind it."""
        return self.prefill([token])

    @property
    def logits(self) -> Optional[np.ndarray]:
        """float32 [V] of the last token; None before the first and after a rewind."""
        data = lib.teg_session_logits(self._session.pointer)
        return np.ctypeslib.as_array(data, (self.info["vocab_tokens"],)).copy() if data else None

    def rewind(self, n_tokens: int = 0) -> None:
        """Forgets all tokens but the first n_tokens."""
        with self._lock:
            _call("teg_session_rewind", self._session.pointer, n_tokens)

    def fork(self) -> "LanguageModel":
        """Another session with the same tokens; the weights are shared."""
        other = object.__new__(LanguageModel)
        session = c_void_p()
        with self._lock:
            _call("teg_session_fork", self._session.pointer, byref(session))
        other._model, other._lock = self._model, threading.Lock()
        other._session = _Handle(session, lib.teg_session_free, self._model)
        return other

    # ---- text out ----

    def stream(self, prompt: Tokens = (), max_tokens: int = 128, temperature: float = 0.0, top_k: int = 40,
               top_p: float = 0.95, min_p: float = 0.05, repeat_penalty: float = 1.0, seed: int = 0) -> Iterator[int]:
        """Ids one after the other, until an end token (which is not given) or max_tokens; temperature 0: the likeliest."""
        options = _SamplerOptions(ctypes.sizeof(_SamplerOptions), temperature, top_k, top_p, min_p, repeat_penalty, 0,
                                  0, 64, seed)
        pointer = c_void_p()
        _call("teg_sampler_new", self._model.pointer, byref(options), byref(pointer))
        sampler = _Handle(pointer, lib.teg_sampler_free, self._model)
        if len(prompt):
            self.prefill(prompt)
        for token in self.tokens:
            lib.teg_sampler_accept(pointer, token)
        for i in range(max_tokens):
            data = lib.teg_session_logits(self._session.pointer)
            if not data:
                raise TegulaError("cannot generate: session: expected tokens to go on from, found none; give a prompt")
            token = lib.teg_sampler_pick(sampler.pointer, data)
            if lib.teg_token_is_end(self._model.pointer, token):
                return
            yield token
            if i + 1 < max_tokens:
                self.decode(token)

    def generate(self, prompt: Tokens = (), **options) -> Union[str, List[int]]:
        """What follows the prompt: text for a text, ids for ids. Options as in stream()."""
        ids = list(self.stream(prompt, **options))
        return self.detokenize(ids) if isinstance(prompt, str) else ids
