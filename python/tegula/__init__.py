"""Tegula: Core ML ML programs on any machine.

`import tegula as ct` stands in for `import coremltools as ct` where a program only loads models and predicts: the
names, the order of the arguments and the types of errors are the same. See docs/PYTHON.md.
"""
from ._native import TegulaError, library_path, version
from ._units import ComputeUnit
from . import models

__version__ = version()
__all__ = ["ComputeUnit", "TegulaError", "library_path", "models", "version"]
