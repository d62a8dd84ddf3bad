#!/usr/bin/env python3
"""Apple's open-source tools as a judge of packages that Tegula wrote.

    tools/check-package.py PACKAGE.mlpackage... | -

Needs coremltools (pip install coremltools==9.0); without it prints a skip line and succeeds. For each package:
the folder (ModelPackage.isValid), the program (loaded op by op, every declared type compared with the inferred one),
its validity, a round trip of each function through all passes of the converter, the weights that the compression tools
find in it, and what those tools do not look at: that description and functions agree on names, types, shapes and the default. Prints TAP;
with - for packages that are named on standard input, line by line, each judged at once.
"""
import contextlib
import io
import logging
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
try:
    with contextlib.redirect_stderr(io.StringIO()):
        import coremltools as ct
        from coremltools.converters.mil.frontend.milproto import load as milproto
        from coremltools.libmodelpackage import ModelPackage
except ImportError as error:
    print(f"1..0 # SKIP coremltools is not here ({error})")
    sys.exit(0)

ARRAY_TYPES = {65568: 11, 65600: 12, 131104: 23, 65552: 10, 131080: 21}  # of features, as MIL's DataType
TARGETS = {6: "iOS15", 7: "iOS16", 8: "iOS17", 9: "iOS18", 10: "iOS26"}


def require(condition, message):
    if not condition:
        raise AssertionError(message)


def array_of(feature):
    kind = feature.type.WhichOneof("Type")
    if kind == "stateType":
        return feature.type.stateType.arrayType
    return feature.type.multiArrayType if kind == "multiArrayType" else None


def tensor_of(value_type):
    if value_type.WhichOneof("type") == "stateType":
        value_type = value_type.stateType.wrappedType
    return value_type.tensorType


def check_array(name, feature, value_type):
    array, tensor = array_of(feature), tensor_of(value_type)
    is_state = value_type.WhichOneof("type") == "stateType"
    require((feature.type.WhichOneof("Type") == "stateType") == is_state, f"{name}: a state on one side only")
    if array is None:
        return
    require(ARRAY_TYPES[array.dataType] == tensor.dataType, f"{name}: element types differ")
    dims = [d.constant.size if d.WhichOneof("dimension") == "constant" else None for d in tensor.dimensions]
    if not array.shape:
        return
    if not dims:
        dims = [1]  # a scalar
    require(len(dims) == len(array.shape), f"{name}: ranks differ")
    flexible = array.WhichOneof("ShapeFlexibility")
    for axis, (size, declared) in enumerate(zip(dims, array.shape)):
        require(size is None or size == declared, f"{name}: dimension {axis} is {size} and {declared}")
        require(size is not None or flexible, f"{name}: dimension {axis} is open, the description fixes it")


def features_of(description, function):
    if not description.functions:
        return description
    found = [f for f in description.functions if f.name == function]
    require(len(found) == 1, f"function {function}: described {len(found)} times")
    return found[0]


def check_description(spec):
    description, program = spec.description, spec.mlProgram
    if description.functions:
        require(description.defaultFunctionName in program.functions, "the default function does not exist")
        require(len(description.functions) == len(program.functions), "functions and descriptions differ in number")
        require(not description.input and not description.output and not description.state, "both forms are used")
    for name, function in program.functions.items():
        features = features_of(description, name)
        inputs = {i.name: i.type for i in function.inputs}
        described = {f.name: f for f in list(features.input) + list(features.state)}
        require(inputs.keys() == described.keys(), f"{name}: inputs {sorted(inputs)} and {sorted(described)}")
        for key, value_type in inputs.items():
            check_array(f"{name}.{key}", described[key], value_type)
        block = function.block_specializations[function.opset]
        types = {o.name: o.type for op in block.operations for o in op.outputs}
        require([f.name for f in features.output] == list(block.outputs), f"{name}: outputs differ")
        for feature in features.output:
            check_array(f"{name}.{feature.name}", feature, types[feature.name])


def alone(spec, function):
    """The specification with one function only, as `main`: the converter wants one function of this name."""
    single = type(spec)()
    single.CopyFrom(spec)
    functions = single.mlProgram.functions
    for name in spec.mlProgram.functions:
        del functions[name]
    functions["main"].CopyFrom(spec.mlProgram.functions[function])
    return single


def check_round_trip(spec, weights):
    """Each function through all passes of the converter, and what the compression tools find in the result."""
    version, n_weights = spec.specificationVersion, 0
    for function in sorted(spec.mlProgram.functions):
        program = milproto.load(alone(spec, function), specification_version=version, file_weights_dir=weights)
        model = ct.convert(program, source="milinternal", convert_to="mlprogram", skip_model_load=True,
                           minimum_deployment_target=getattr(ct.target, TARGETS[version]))
        n_weights += len(ct.optimize.coreml.get_weights_metadata(model, weight_threshold=2048))
    return n_weights


def check(path):
    require(ModelPackage.isValid(path), "the folder is not a valid package")
    model = ct.models.MLModel(path, skip_model_load=True)
    spec = model.get_spec()
    check_description(spec)
    program = milproto.load(spec, specification_version=spec.specificationVersion, file_weights_dir=model.weights_dir)
    program.validate()
    del program
    n_weights = check_round_trip(spec, model.weights_dir)
    functions = " ".join(sorted(spec.mlProgram.functions))
    return f"spec {spec.specificationVersion}, functions {functions}, {n_weights} weights"


def judge(number, path):
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            text = check(path)
        print(f"ok {number} - {path} # {text}", flush=True)
        return True
    except Exception as error:  # whatever they raise is a verdict
        words = " ".join(str(error).split())[:500]
        print(f"not ok {number} - {path} # {type(error).__name__}: {words}", flush=True)
        return False


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    paths = (line.rstrip("\n") for line in sys.stdin) if arguments == ["-"] else arguments
    n = failures = 0
    for n, path in enumerate(paths, 1):
        failures += not judge(n, path)
    print(f"1..{n}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
