"""Tegula: Core ML ML programs on any machine.

`import tegula as ct` stands in for `import coremltools as ct` where a program only loads models and predicts: the
names, the order of the arguments and the types of errors are the same. `tegula.LanguageModel` runs language models of
every format that the library reads. See docs/PYTHON.md.
"""
from ._native import TegulaError, library_path, version
from ._units import ComputeUnit, ReshapeFrequency, SpecializationStrategy
from ._language import LanguageModel
from ._packages import convert, quantize
from . import models

__version__ = version()
__all__ = ["ComputeUnit", "LanguageModel", "ReshapeFrequency", "SpecializationStrategy", "TegulaError", "convert",
           "library_path", "models", "quantize", "version"]
