"""Recipes: Python functions that return a config. `path.py:function` names one, `path.py` that of the file's name."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from stepwell.cli.settings import apply_settings
from stepwell.config import Config
from stepwell.errors import ConfigError, StepwellError

C = TypeVar("C", bound=Config)


def load_recipe(name: str, settings: list[str], expected: type[C]) -> C:
    """The config that the recipe returns, with `--set`'s changes, checked again as a whole."""
    path_text, _, function_name = name.partition(":")
    path = Path(path_text)
    if not path.is_file():
        raise ConfigError(f"recipe {name!r}: there is no file {path_text}; expected PATH.py or PATH.py:FUNCTION")
    if path.suffix != ".py":
        raise ConfigError(f"recipe {name!r}: found {path.name}, expected a Python file")
    with _blamed_on(path):
        module = _import_file(path.resolve())
    function = _find_function(module, path, function_name or path.stem, chosen=bool(function_name))
    with _blamed_on(path):
        config = function()
    if not isinstance(config, expected):
        raise ConfigError(
            f"recipe {path}:{function.__name__}: it returned a {type(config).__name__}, expected a {expected.__name__}"
        )
    return apply_settings(config, settings)


def _import_file(path: Path) -> ModuleType:
    """The file as a module; one that lies in a package keeps its name there, so that it can import its neighbours."""
    parts, root = [path.stem], path.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    name = ".".join(parts)
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == path:
        return known
    if len(parts) > 1:
        importlib.import_module(".".join(parts[:-1]))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: Python cannot import it")
    module = importlib.util.module_from_spec(spec)
    if known is None:  # a module of Python's own that has the name stays what it is for everyone else
        sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if known is None:
            del sys.modules[name]
        raise
    return module


def _find_function(module: ModuleType, path: Path, name: str, *, chosen: bool) -> Callable[[], Any]:
    own = {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    }
    names = ", ".join(own) if own else "none"
    if name not in own:
        close = get_close_matches(name, list(own), n=1, cutoff=0.0)
        hint = f"; the closest is {close[0]!r}" if close and chosen else ""
        how = "" if chosen else f"; name one: {path}:FUNCTION"
        raise ConfigError(f"{path} has no function {name!r}{hint}; its functions: {names}{how}")
    function: Callable[[], Any] = own[name]
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise ConfigError(f"{path}:{name} needs arguments ({', '.join(needed)}); a recipe is called without any")
    return function


class _blamed_on:
    """Turns whatever a recipe's own code raises into one line that says where."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None or not isinstance(error, Exception) or isinstance(error, StepwellError):
            return
        lines = [frame.lineno for frame in traceback.extract_tb(trace) if Path(frame.filename).name == self._path.name]
        line = error.lineno if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
        where = f"{self._path}, line {line}" if line else str(self._path)
        raise ConfigError(f"{where}: {type(error).__name__}: {error}") from error
