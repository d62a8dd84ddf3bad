"""MLModel, CompiledMLModel and MLState with the interface of coremltools.models.

What differs from coremltools on macOS: everything runs on this machine's CPU whatever `compute_units` says; a model
that is no ML program is an error when it is opened; `get_spec` needs coremltools to be installed, the descriptions do
not. Image inputs may also be NumPy arrays.
"""
import json
import os
import shutil
import tempfile
import time
import uuid
import warnings
import weakref
from typing import Any, Dict, Iterator, List, Optional, Union

import numpy as np

from .. import _convert
from .._native import TegulaError
from .._program import Function, Program, State, to_numpy
from .._units import ComputeUnit, check as _check_units, check_hints


class _FeatureDescription:
    """The features of one side of a model: names to descriptions."""

    def __init__(self, features):
        self._features = {feature.name: feature for feature in features}

    def __repr__(self) -> str:
        return f"Features({','.join(self._features)})"

    def __len__(self) -> int:
        return len(self._features)

    def __getitem__(self, key: str) -> str:
        if key not in self._features:
            raise KeyError("No feature with name %s." % key)
        return self._features[key].description

    def __contains__(self, key: str) -> bool:
        return key in self._features

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def feature(self, key: str):
        """Everything known of a feature: type, dtype, shape, ranges, default."""
        return self._features[key]


class MLState:
    """What a stateful model keeps between predictions, as made by make_state()."""

    def __init__(self, proxy: State) -> None:
        self.__proxy__ = proxy

    def read_state(self, name: str) -> np.ndarray:
        value = self.__proxy__.read(name)
        return value.astype(np.float32) if value.dtype == np.float16 else value

    def write_state(self, name: str, value: np.ndarray) -> None:
        self.__proxy__.write(name, value)


def _write_package(spec, weights_dir: Optional[str]) -> str:
    """A package in a temporary folder for a specification in memory."""
    path = os.path.join(tempfile.mkdtemp(prefix="tegula-"), "model.mlpackage")
    inner = os.path.join(path, "Data", "com.apple.CoreML")
    os.makedirs(inner)
    with open(os.path.join(inner, "model.mlmodel"), "wb") as file:
        file.write(spec.SerializeToString())
    entries, root = {}, str(uuid.uuid4()).upper()
    names = {root: ("model.mlmodel", "CoreML Model Specification")}
    if weights_dir:
        shutil.copytree(weights_dir, os.path.join(inner, "weights"))
        names[str(uuid.uuid4()).upper()] = ("weights", "CoreML Model Weights")
    for identifier, (name, description) in names.items():
        entries[identifier] = {"author": "com.apple.CoreML", "description": description, "name": name,
                               "path": "com.apple.CoreML/" + name}
    with open(os.path.join(path, "Manifest.json"), "w", encoding="utf-8") as file:
        json.dump({"fileFormatVersion": "1.0.0", "itemInfoEntries": entries, "rootModelIdentifier": root}, file)
    return path


class _Predictor:
    """What MLModel and CompiledMLModel share: a program, a function of it, predictions."""

    _program: Optional[Program]
    _load_error: Optional[Exception]

    def _open(self, path: str, function_name: Optional[str], prepare: bool) -> None:
        start = time.perf_counter_ns()
        self._program = Program(path)
        functions = self._program.functions
        if function_name is not None and function_name not in functions:
            if len(functions) == 1:
                raise ValueError('function_name must be "main" for non multifunction model')
            raise ValueError(f"function_name {function_name} not found in the model.")
        self._function: Function = functions[function_name or self._program.default_function]
        self._load_error = None
        self._load_ns, self._predict_ns = None, None
        if not prepare:
            self._load_error = RuntimeError("This model was made with skip_model_load=True. Cannot make predictions.")
            return
        try:
            self._program.prepare(self._function.name)
            self._load_ns = time.perf_counter_ns() - start
        except TegulaError as error:
            self._load_error = error

    def _verify(self, data: Dict[str, Any]) -> None:
        names = {feature.name: feature for feature in self._function.inputs}
        for key, value in data.items():
            if key not in names:
                raise KeyError(f'Provided key "{key}", in the input dict, does not match any of the model input name(s), '
                               f"which are: {set(names)}")
            feature = names[key]
            if feature.type != "imageType" or isinstance(value, np.ndarray):
                continue
            if not _convert.is_image(value):
                raise TypeError(f"Image input, '{key}' must be of type PIL.Image.Image in the input dict")
            problem = _convert.image_mode_error(feature, value)
            if problem:
                raise TypeError(problem)

    def _predict_one(self, data: Dict[str, Any], state: Optional[MLState]) -> Dict[str, Any]:
        self._verify(data)
        inputs = {key: _convert.input_value(value) for key, value in data.items()}
        start = time.perf_counter_ns()
        result = self._program.predict(inputs, self._function.name, state.__proxy__ if state is not None else None)
        self._predict_ns = time.perf_counter_ns() - start
        return _convert.outputs(self._function, result)

    def predict(self, data: Union[Dict[str, Any], List[Dict[str, Any]]],
                state: Optional[MLState] = None) -> Union[Dict[str, Any], List[Dict[str, Any]]]:
        """Outputs by name. `data` holds every input by name: arrays, lists, numbers, tensors, PIL images; or it is a
        list of such dictionaries. A stateful model takes the state of make_state() with each call."""
        if type(data) not in (list, dict):
            raise TypeError(f'"data" parameter must be either a dict or list of dict, but got {type(data)}.')
        if isinstance(data, list) and not all(type(item) is dict for item in data):
            raise TypeError('"data" list must contain only dictionaries')
        if state is not None and not isinstance(getattr(state, "__proxy__", None), State):
            raise TypeError(f'"state" parameter must be a state of make_state(), but got {type(state)}.')
        if self._load_error is not None:
            raise self._load_error
        if isinstance(data, dict):
            return self._predict_one(data, state)
        assert state is None, "State can only be used for unbatched predictions"
        return [self._predict_one(item, None) for item in data]

    def make_state(self) -> MLState:
        """A new state, all zeros, for predict()."""
        if self._load_error is not None:
            raise self._load_error
        return MLState(State(self._program))


class MLModel(_Predictor):
    """A model to predict with: the path of a .mlpackage or .mlmodelc, or a specification with its weights_dir."""

    def __init__(self, model: Any, is_temp_package: bool = False, mil_program: Any = None,
                 skip_model_load: bool = False, compute_units: ComputeUnit = ComputeUnit.ALL,
                 weights_dir: Optional[str] = None, function_name: Optional[str] = None,
                 optimization_hints: Optional[dict] = None) -> None:
        self.compute_unit = _check_units(compute_units)
        self.optimization_hints = check_hints(optimization_hints)
        if hasattr(model, "SerializeToString"):
            path, is_temp_package = _write_package(model, weights_dir), True
            folder = os.path.dirname(path)
        elif isinstance(model, (str, os.PathLike)):
            path = os.path.abspath(os.path.expanduser(os.path.expandvars(os.fspath(model))))
            folder = path
        else:
            raise TypeError("Expected model to be a .mlmodel file, .mlpackage file or a Model_pb2 object")
        if is_temp_package:
            self._cleanup = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        if not os.path.exists(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        self.is_package, self.is_temp_package, self.package_path = os.path.isdir(path), is_temp_package, path
        self._mil_program = mil_program
        self._open(path, function_name, not skip_model_load)
        if isinstance(self._load_error, TegulaError):
            warnings.warn("You will not be able to run predict() on this Core ML model. Underlying exception message "
                          f"was: {self._load_error}", RuntimeWarning, stacklevel=2)
        self.function_name = function_name
        if function_name is None and len(self._program.functions) > 1:
            self.function_name = self._program.default_function

    def __repr__(self) -> str:
        function = self._function
        lines = [f"MLModel({self.package_path}, function {function.name}, {function.opset})"]
        for title, features in (("input", function.inputs), ("output", function.outputs), ("state", function.states)):
            lines += [f"  {title} {f.name}: {f.type}"
                      + (f" {f.dtype} {list(f.shape) if f.shape is not None else '?'}" if f.dtype is not None else "")
                      for f in features]
        return "\n".join(lines)

    @property
    def input_description(self) -> _FeatureDescription:
        return _FeatureDescription(self._function.inputs)

    @property
    def output_description(self) -> _FeatureDescription:
        return _FeatureDescription(self._function.outputs)

    @property
    def state_description(self) -> _FeatureDescription:
        return _FeatureDescription(self._function.states)

    @property
    def short_description(self) -> str:
        return self._program.description

    @property
    def author(self) -> str:
        return self._program.author

    @property
    def license(self) -> str:
        return self._program.license

    @property
    def version(self) -> str:
        return self._program.version

    @property
    def user_defined_metadata(self) -> Dict[str, str]:
        return dict(self._program.metadata)

    @property
    def weights_dir(self) -> Optional[str]:
        for folder in (os.path.join(self.package_path, "Data", "com.apple.CoreML", "weights"),
                       os.path.join(self.package_path, "weights")):
            if os.path.isdir(folder):
                return folder
        return None

    @property
    def load_duration_in_nano_seconds(self) -> Optional[int]:
        return self._load_ns

    @property
    def last_predict_duration_in_nano_seconds(self) -> Optional[int]:
        return self._predict_ns

    def get_spec(self):
        """The protobuf specification; needs coremltools, whose classes it is made of."""
        try:
            from coremltools.models.utils import load_spec
        except ImportError as error:
            raise RuntimeError("get_spec() needs coremltools, which is not installed; input_description, "
                               "output_description and state_description say what the model takes and gives") from error
        return load_spec(self.package_path)

    def save(self, save_path: str) -> None:
        """Copies the package; the extension .mlpackage is added where there is none."""
        save_path = os.path.expanduser(save_path)
        _, extension = os.path.splitext(save_path)
        wanted = os.path.splitext(self.package_path)[1]
        if not extension:
            save_path += wanted
        elif extension != wanted:
            raise Exception(f"For an ML Program, extension must be {wanted} (not {extension})")
        if os.path.exists(save_path):
            shutil.rmtree(save_path)
        shutil.copytree(self.package_path, save_path)

    def get_compiled_model_path(self) -> str:
        """The path of a model that runs without being read again: here the package itself."""
        return self.package_path


class CompiledMLModel(_Predictor):
    """A model that was compiled before (.mlmodelc); packages are taken as well."""

    def __init__(self, path: str, compute_units: ComputeUnit = ComputeUnit.ALL, function_name: Optional[str] = None,
                 optimization_hints: Optional[dict] = None, asset: Any = None) -> None:
        if not isinstance(path, str):
            raise TypeError('The "path" parameter must be of type "str".')
        if asset is not None:
            raise TypeError('The "asset" parameter must be None: Tegula opens models by path.')
        try:
            self.compute_unit = _check_units(compute_units)
        except TypeError:
            raise TypeError('The "compute_units" parameter must be of type: "coremltools.ComputeUnit".') from None
        self.function_name = function_name or ""
        self.optimization_hints = check_hints(optimization_hints)
        self._open(os.path.expanduser(path), function_name or None, True)
        if self._load_error is not None:
            raise self._load_error


__all__ = ["CompiledMLModel", "MLModel", "MLState", "to_numpy"]
