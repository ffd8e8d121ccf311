"""Say which torch build pip will take under the constraints, and roughly how large it is, before it is fetched.

Run by the virtual environment's Python, from the repository's root: `python tools/torch_build.py constraints.txt`.
Only pip's own settings decide what is found; nothing is installed.
"""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

from pip._vendor.packaging.requirements import Requirement

CPU_SIZE = "about 0.2 GB to download, 0.8 GB on disk"
CUDA_SIZE = "about 3 GB to download with its CUDA libraries, 7 GB on disk"


def describe(version: str, requires: list[str], url: str) -> str:
    """One sentence about the build whose metadata says `requires` and whose file is at `url`."""
    parsed = [Requirement(text) for text in requires]
    needed = [one.name for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]
    cuda = any(name.startswith(("nvidia-", "cuda-")) for name in needed)
    path = Path(unquote(urlparse(url).path)) if url.startswith("file:") else None
    exact = f"; the wheel itself is {path.stat().st_size / 1e9:.2f} GB" if path is not None and path.is_file() else ""
    return f"torch {version}: {'CUDA' if cuda else 'CPU'} build, {CUDA_SIZE if cuda else CPU_SIZE}{exact}"


def main(constraints: str) -> None:
    """Print the sentence for the torch that is there already, or for the one that pip would take."""
    wanted = Requirement(next(line for line in Path(constraints).read_text().splitlines() if line.startswith("torch")))
    try:
        present = metadata.version("torch")
    except metadata.PackageNotFoundError:
        present = ""
    if present and wanted.specifier.contains(present):
        print(f"torch {present} is installed already")
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed"]
    report = subprocess.run([*command, "--report", "-", str(wanted)], check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(report.stdout)["install"][0]
    about = found["metadata"]
    print(describe(about["version"], about.get("requires_dist", []), found["download_info"]["url"]))
    print("For another build, point pip's own settings (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS) at it.")


if __name__ == "__main__":
    main(sys.argv[1])
