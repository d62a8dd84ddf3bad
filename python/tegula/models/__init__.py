"""Models as coremltools.models has them."""
from . import model
from .model import CompiledMLModel, MLModel, MLState

__all__ = ["CompiledMLModel", "MLModel", "MLState", "model"]
