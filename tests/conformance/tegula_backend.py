"""The backend of coremltools' tests, recorded or run in place, over the Python package: load, predict, make_state, read_state,
write_state.

Values go as the package takes them; only images stay arrays, because the cases were recorded as such.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

from tegula._convert import core_ml_error  # noqa: E402
from tegula._native import TegulaError  # noqa: E402
from tegula._program import Program, State  # noqa: E402

MODE = os.environ.get("TEGULA_MODE", "exact")


class Handle:
    def __init__(self, path, function_name):
        self.program = Program(path, mode=MODE)
        self.function = function_name or self.program.default_function
        self.program.prepare(self.function)


def load(package_path, function_name="", compute_units="ALL"):
    return Handle(package_path, function_name)


def predict(handle, inputs, state=None):
    try:
        return handle.program.predict(inputs, handle.function, state)
    except TegulaError as error:
        raise core_ml_error(handle.program.functions[handle.function], inputs, error) from None


def make_state(handle):
    return State(handle.program)


def read_state(state, name):
    return state.read(name)


def write_state(state, name, value):
    state.write(name, value)
