"""The layers of Stepwell. A module or C++ file may use its own folder and lower layers, nothing else."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

LAYERS = [  # lowest first; names on one line are siblings and never import each other
    {"errors"},
    {"config", "jagged", "telemetry"},
    {"rows"},
    {"native", "kernels"},
    {"data", "store", "parallel", "graph"},
    {"embedding"},
    {"models", "checkpoint"},
    {"train", "serve"},
    {"deploy"},
    {"report"},
    {"cli"},
]
CORE_LAYERS = [  # the same for native/; "stepwell" is native/include/stepwell, the public headers
    {"stepwell"},
    {"util"},
    {"io", "rows", "text"},
    {"dram", "ssd"},
    {"sparse"},
    {"bindings"},
]
TEST_FOLDER = "tests"  # native/tests: what the core's tests share; it may use everything, and only tests may use it
LONGEST_FILE = 500
HEAVY = {  # imported by the one module that uses it, never by `import stepwell`
    "confluent_kafka",
    "fsspec",
    "grpc",
    "httptools",
    "msgspec",
    "prometheus_client",
    "pyarrow",
    "ray",
    "rich",
    "safetensors",
    "tensorboard",
    "torch",
    "triton",
    "uvloop",
}

HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
CORE_HEIGHT = {name: height for height, names in enumerate(CORE_LAYERS) for name in names}
ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "stepwell"
NATIVE = ROOT / "native"


def found(*folders: str, suffixes: set[str]) -> list[Path]:
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in paths if path.suffix in suffixes and path.is_file())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


MODULES = [path for path in found("src/stepwell", suffixes={".py", ".pyi"}) if path != PACKAGE / "__init__.py"]
CORE = found("native", suffixes={".h", ".cc", ".inc"})
SOURCES = found(
    "src", "native", "tests", "benchmarks", "recipes", "tools", suffixes={".py", ".pyi", ".h", ".cc", ".inc"}
)


def imported_modules(source: str) -> list[str]:
    """Every module named by an import statement, in-function ones included; `from stepwell import x` is stepwell.x."""
    modules = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write absolute imports"
            names = [alias.name for alias in node.names]
            modules += [f"stepwell.{name}" for name in names] if node.module == "stepwell" else [node.module or ""]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    return modules


def check_imports(here: str, source: str) -> None:
    assert here in HEIGHT, f"{here} is in no layer: enter it in LAYERS"
    for module in imported_modules(source):
        assert module != "stepwell", "import the module that holds the name, not the package's root"
        if module.startswith("stepwell."):
            there = module.split(".")[1]
            if there == "__version__" and here == "cli":
                continue
            assert there in HEIGHT, f"{here} imports stepwell.{there}, which is in no layer"
            assert there == here or HEIGHT[there] < HEIGHT[here], f"{here} imports {there}"


def check_includes(here: str, is_test: bool, source: str) -> None:
    assert here in CORE_HEIGHT or here == TEST_FOLDER, f"native/{here} is in no layer: enter it in CORE_LAYERS"
    for opening, target in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', source, flags=re.MULTILINE):
        there = target.split("/")[0]
        assert there not in {"torch", "ATen", "c10", "cuda"} and "cuda_runtime" not in target, f"{target} ties the core"
        if opening == '"':
            assert "/" in target, f'write "{here}/{target}": paths start at native/ or native/include/'
            if there == TEST_FOLDER:
                assert is_test or here == TEST_FOLDER, f"{here} includes {target}, which is for tests"
                continue
            assert there in CORE_HEIGHT, f"{here} includes {target}, which is in no layer"
            lower = here in {TEST_FOLDER, there} or CORE_HEIGHT[there] < CORE_HEIGHT[here]
            assert lower, f"{here} includes {target}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    check_imports(path.relative_to(PACKAGE).parts[0].split(".")[0], path.read_text())


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_includes_point_down(path: Path) -> None:
    parts = path.relative_to(NATIVE).parts
    here = parts[1] if parts[0] == "include" else parts[0]
    check_includes(here, path.stem.endswith("_test"), path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_file_is_short(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= LONGEST_FILE, f"{lines} lines: split it by noun"


def test_import_stepwell_is_light() -> None:
    program = "import sys; import stepwell; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert HEAVY.isdisjoint(run.stdout.split())


def test_public_names_exist() -> None:  # ruff keeps them sorted (RUF022)
    import stepwell

    assert [name for name in stepwell.__all__ if not hasattr(stepwell, name)] == []


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("rows", "from stepwell.store import TieredStore"),  # upward
        ("store", "import stepwell.data.files"),  # sideways
        ("store", "def late():\n    from stepwell import train"),  # inside a function
        ("store", "from . import tiered"),  # relative
        ("store", "import stepwell"),  # the root
        ("store", "from stepwell import __version__"),
        ("helpers", "import numpy"),  # unlisted
        ("cli", "import stepwell.helpers"),
    ],
)
def test_the_import_check_fails_where_it_should(here: str, source: str) -> None:
    with pytest.raises(AssertionError):
        check_imports(here, source)


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("util", '#include "dram/table.h"'),  # upward
        ("ssd", '#include "dram/table.h"'),  # sideways
        ("stepwell", '#include "util/hash.h"'),
        ("dram", '#include "table.h"'),  # where from?
        ("dram", '#include "tests/check.h"'),
        ("bindings", "#include <torch/extension.h>"),
        ("misc", "#include <vector>"),  # unlisted
    ],
)
def test_the_include_check_fails_where_it_should(here: str, source: str) -> None:
    with pytest.raises(AssertionError):
        check_includes(here, False, source)


def test_the_checks_pass_what_points_down() -> None:
    check_imports(
        "cli", "import numpy\nfrom stepwell import __version__\nfrom stepwell.store.tiered import TieredStore"
    )
    check_includes("dram", True, '#include "stepwell/status.h"\n#include "tests/check.h"\n#include <vector>')
