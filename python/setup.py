"""The one thing that pyproject.toml cannot say: a wheel that holds the library is for one platform and any Python 3."""
import pathlib

from setuptools import setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel

FOLDER = pathlib.Path(__file__).resolve().parent / "tegula"
HAS_LIBRARY = any((FOLDER / name).exists() for name in ("libtegula.so", "libtegula.dylib"))


class PlatformWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not HAS_LIBRARY

    def get_tag(self):
        _, _, platform = super().get_tag()
        return ("py3", "none", platform if HAS_LIBRARY else "any")


setup(cmdclass={"bdist_wheel": PlatformWheel})
