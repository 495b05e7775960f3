"""PyTorch in a virtual environment of its own, for bench/train and bench/attention."""

import os
import subprocess
import sys
import venv
from pathlib import Path

DEPS = Path(
    os.environ.get("BINDERY_DEPS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "bindery")
)
PACKAGES = ("torch==2.15.0", "numpy==2.4.6")


def torch_python() -> Path:
    """Returns the interpreter. The first call installs several GB from the Python index."""
    folder = DEPS / "bench-torch"
    python, stamp = folder / "bin/python", folder / "stamp"
    wanted = "\n".join(PACKAGES)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing PyTorch into {folder}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary=:all:",
                        "--disable-pip-version-check", *PACKAGES], check=True)
        stamp.write_text(wanted)
    return python
