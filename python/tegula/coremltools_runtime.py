"""Gives an installed coremltools a runtime on systems that have no Core ML framework.

    import tegula.coremltools_runtime
    import coremltools as ct
    ct.models.MLModel("model.mlpackage").predict({...})

coremltools predicts through an extension module that exists on macOS only; where it is absent this module stands in for
it, before or after coremltools was imported. Where the real one is there, nothing is changed unless install(force=True)
is called. coremltools also asks for the version of macOS before it makes states: in its modules for models, and only
there, the answer becomes 26.
"""
import atexit
import importlib
import os
import shutil
import sys
import tempfile
import types
from typing import Any, Dict, List, Optional

import numpy as np

from . import _convert
from ._native import TegulaError
from ._program import Program, State

_MODULE = "coremltools.libcoremlpython"
_MACOS = (26, 0)
_NEWEST_SPECIFICATION = 10


class _State:
    def __init__(self, state: State) -> None:
        self.state = state

    def read_state(self, name: str) -> np.ndarray:
        value = self.state.read(name)
        return value.astype(np.float32) if value.dtype == np.float16 else value

    def write_state(self, name: str, value: np.ndarray) -> None:
        self.state.write(name, value)


class _MLModelAssetProxy:
    def __init__(self, path: str) -> None:
        self.path = path


class _MLModelProxy:
    def __init__(self, path: str, compute_units: str, function_name: Optional[str] = "", hints: Optional[dict] = None,
                 asset: Optional[_MLModelAssetProxy] = None) -> None:
        self._path = str(path) if path else asset.path
        self._program = Program(self._path)
        name = function_name or self._program.default_function
        self._program.prepare(name)  # fails with the names there are
        self._function = self._program.functions[name]

    def predict(self, data: Dict[str, Any], state: Optional[_State] = None) -> Dict[str, Any]:
        inputs = {key: _convert.input_value(value) for key, value in data.items()}
        try:
            result = self._program.predict(inputs, self._function.name, state.state if state is not None else None)
        except TegulaError as error:
            raise _convert.core_ml_error(self._function, inputs, error) from None
        return _convert.outputs(self._function, result)

    def batchPredict(self, batch: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        return [self.predict(item) for item in batch]

    def newState(self) -> _State:
        return _State(State(self._program))

    def get_compiled_model_path(self) -> str:
        return self.compileModel(self._path)

    def get_load_duration_in_nano_seconds(self) -> Optional[int]:
        return None

    def get_last_predict_duration_in_nano_seconds(self) -> Optional[int]:
        return None

    @staticmethod
    def compileModel(path: str) -> str:
        """A copy of the package with a name that ends in .mlmodelc: there is nothing to compile, and what a folder
        holds is seen from its content."""
        folder = tempfile.mkdtemp(prefix="tegula-")
        compiled = os.path.join(folder, os.path.splitext(os.path.basename(path.rstrip("/")))[0] + ".mlmodelc")
        shutil.copytree(path, compiled)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return compiled

    @staticmethod
    def maximum_supported_specification_version() -> int:
        return _NEWEST_SPECIFICATION

    @staticmethod
    def auto_set_specification_version(spec: Any) -> Any:
        return spec

    @staticmethod
    def create_model_asset_from_path(path: str) -> Any:
        from coremltools.models.model import MLModelAsset
        return MLModelAsset(_MLModelAssetProxy(path))

    @staticmethod
    def _absent(*arguments: Any, **named: Any) -> Any:
        raise RuntimeError("compute plans, model structures and compute devices need Apple's own Core ML framework")

    create_model_asset_from_memory = get_available_compute_devices = get_all_compute_devices = _absent
    get_compute_plan = get_model_structure = _absent


class _Absent:
    def __init__(self, *arguments: Any, **named: Any) -> None:
        _MLModelProxy._absent()


def _make_module() -> types.ModuleType:
    module = types.ModuleType(_MODULE, __doc__)
    module._MLModelProxy, module._MLModelAssetProxy, module._State = _MLModelProxy, _MLModelAssetProxy, _State
    for name in ("_MLComputePlanProxy", "_MLCPUComputeDeviceProxy", "_MLGPUComputeDeviceProxy",
                 "_MLNeuralEngineComputeDeviceProxy", "_MLModelStructureProgramOperationProxy",
                 "_MLModelStructureNeuralNetworkLayerProxy"):
        setattr(module, name, type(name, (_Absent,), {}))
    return module


def _has_framework() -> bool:
    try:
        importlib.import_module(_MODULE)
        return True
    except ImportError:
        return False


def install(force: bool = False) -> bool:
    """Puts the runtime into coremltools; False where Apple's own is there and was left alone."""
    before = sys.modules.get(_MODULE)
    ours = getattr(before, "_MLModelProxy", None) is _MLModelProxy
    if not ours and not force and sys.platform == "darwin" and _has_framework():
        return False
    module = before if ours else _make_module()
    sys.modules[_MODULE] = module
    coremltools = importlib.import_module("coremltools")
    coremltools.libcoremlpython = module
    for name in ("models.model", "models._compiled_model", "models.utils", "models.compute_plan",
                 "models.compute_device"):
        try:
            target = importlib.import_module("coremltools." + name)
        except ImportError:
            continue
        for attribute in ("_MLModelProxy", "_MLModelAssetProxy"):
            if hasattr(target, attribute):
                setattr(target, attribute, getattr(module, attribute))
        if sys.platform != "darwin" and hasattr(target, "_macos_version"):
            target._macos_version = lambda: _MACOS
        if sys.platform != "darwin" and hasattr(target, "_is_macos") and name == "models.model":
            target._is_macos = lambda: True
    return True


installed = install()
