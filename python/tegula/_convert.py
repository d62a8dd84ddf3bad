"""Values as coremltools' binding to Core ML takes and gives them: images as PIL images, float16 outputs as float32; errors
with the words that programs look for.

Shared by tegula.models and tegula.coremltools_runtime, so both give the same answers.
"""
from typing import Any, Dict

import numpy as np

from ._native import TegulaError

_MODES = {"RGB": "RGB", "BGR": "RGB", "GRAYSCALE": "L", "GRAYSCALE_FLOAT16": "F"}


def _pil():
    try:
        from PIL import Image
    except ImportError:
        return None
    return Image


def is_image(value: Any) -> bool:
    pil = _pil()
    return pil is not None and isinstance(value, pil.Image)


def image_mode_error(feature, value) -> str:
    """The sentence for a PIL image of the wrong mode, or ''."""
    wanted = _MODES[feature.colour]
    if value.mode == wanted:
        return ""
    colour = "RGB/BGR" if wanted == "RGB" else feature.colour
    return f"{colour} image input, '{feature.name}', must be of type PIL.Image.Image with mode=='{wanted}'"


def image_to_array(value) -> np.ndarray:
    return np.asarray(value)


def input_value(value: Any) -> Any:
    return image_to_array(value) if is_image(value) else value


def _output_image(feature, array):
    pil = _pil()
    if pil is None:
        return array
    if feature.colour in ("RGB", "BGR"):
        alpha = np.full(array.shape[:2] + (1,), 255, np.uint8)
        return pil.fromarray(np.ascontiguousarray(np.concatenate([array, alpha], axis=2)), "RGBA")
    return pil.fromarray(array, "L" if feature.colour == "GRAYSCALE" else "F")


def output_value(feature, value: Any) -> Any:
    if feature.type == "imageType":
        return _output_image(feature, value)
    if isinstance(value, np.ndarray) and value.dtype == np.float16:
        return value.astype(np.float32)
    return value


def outputs(function, values: Dict[str, Any]) -> Dict[str, Any]:
    return {feature.name: output_value(feature, values[feature.name]) for feature in function.outputs}


def _shape_phrase(feature, shape) -> str:
    """What Core ML says of a shape that the feature does not allow, or ''."""
    if feature.type != "multiArrayType" or len(shape) != len(feature.ranges):
        return ""
    if feature.enumerated:
        listed = " x ".join(map(str, shape))
        return "" if shape in feature.enumerated else \
            f"MultiArray Shape ({listed}) was not in enumerated set of allowed shapes"
    for axis, (size, (low, high)) in enumerate(zip(shape, feature.ranges)):
        if size < low or (high is not None and size > high):
            return f"Size ({size}) of dimension ({axis}) is not in allowed range ({low}..{-1 if high is None else high})"
    return ""


def core_ml_error(function, inputs: Dict[str, Any], error: TegulaError) -> TegulaError:
    """The error of a prediction as Core ML would begin it, then our own sentence: code that was written for Core ML
    matches its text."""
    shapes = (_shape_phrase(feature, np.shape(inputs[feature.name])) for feature in function.inputs if feature.name in inputs)
    phrase = next(filter(None, shapes), "")
    if not phrase and str(error).startswith("cannot run op"):
        phrase = "Unable to compute the prediction using ML Program"
    return TegulaError(f"{phrase}: {error}", error.status) if phrase else error
