"""The compute units that coremltools knows. Tegula runs everything on the CPU; the choice is accepted and kept."""
import enum


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
