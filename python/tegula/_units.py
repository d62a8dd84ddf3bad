"""The compute units and hints that coremltools knows. Tegula runs everything on the CPU; the choice is checked, accepted
and kept."""
import enum
from typing import Any, Optional


class ComputeUnit(enum.Enum):
    ALL = 1
    CPU_AND_GPU = 2
    CPU_ONLY = 3
    CPU_AND_NE = 4


def check(units):
    """The member for `units`: ours, or the member of coremltools' own enum that has the same name."""
    if isinstance(units, ComputeUnit):
        return units
    if isinstance(units, enum.Enum) and units.name in ComputeUnit.__members__:
        return ComputeUnit[units.name]
    raise TypeError('"compute_units" parameter must be of type: coremltools.ComputeUnit')


class ReshapeFrequency(enum.Enum):
    Frequent = 1
    Infrequent = 2


class SpecializationStrategy(enum.Enum):
    Default = 1
    FastPrediction = 2


_HINTS = {"allowLowPrecisionAccumulationOnGPU": bool, "reshapeFrequency": ReshapeFrequency,
          "specializationStrategy": SpecializationStrategy}


def _is_hint(value: Any, kind: type) -> bool:
    """A member of coremltools' own enum of that name will do."""
    names = getattr(kind, "__members__", {})
    return isinstance(value, kind) or (isinstance(value, enum.Enum) and type(value).__name__ == kind.__name__
                                       and value.name in names)


def check_hints(hints: Optional[dict]) -> Optional[dict]:
    """A copy of `hints`, with coremltools' errors for what it would refuse."""
    if hints is None:
        return None
    if not isinstance(hints, dict):
        raise TypeError('"optimization_hint_input" must be a dictionary or None')
    for key, value in hints.items():
        if key not in _HINTS:
            raise ValueError(f"Unrecognized key in optimization_hint dictionary: {key}")
        if not _is_hint(value, _HINTS[key]):
            kind = "bool" if _HINTS[key] is bool else f"coremltools.{_HINTS[key].__name__}"
            raise TypeError(f'"{key}" value of "optimization_hint_input" dictionary must be of type {kind}')
    return dict(hints)
