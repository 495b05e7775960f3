"""Compiles kernels/cuda with nvcc: PTX for each architecture, and a library of the operations' host
code with launch_recorder.cpp. As a program:

    toolchain.py SOURCE-TREE FOLDER SOURCE.cu...
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ptx_text import parse_module

LONG = os.environ.get("BINDERY_TEST_LONG") == "1"
ARCHITECTURES = (80, 90, 100, 120) if LONG else (80, 90, 100)
# The sources whose operations the tests call. No kernel of any other may have inline assembly.
EXECUTED = (
    "activation", "attention_backward", "attention_cached", "attention_forward", "attention_plan",
    "cross_entropy", "embedding", "gated_activation", "layer_norm", "linear", "linear_by_token",
    "muon", "optimizer", "rms_norm", "rotary",
)  # fmt: skip
# The operations' host code is linked with these.
STAND_INS = ("tests/ptx/launch_recorder.cpp", "tests/ptx/no_gemm.cpp", "common/base/error.c")
# Those of kernels/cuda/CMakeLists.txt, and source lines for messages. NDEBUG as in every preset
# for releases.
FLAGS = ("-std=c++17", "--expt-relaxed-constexpr", "-D_GNU_SOURCE", "-DNDEBUG", "-lineinfo")
REMEDY = "there is no {}: install a CUDA toolkit with it, or run scripts/setup --cuda"


def find(root: Path, what: str) -> str:
    """Returns the path of nvcc or nccl, by the rule of the scripts and of the build."""
    rule = f'. "$0/scripts/environment" && find_{what}'
    found = subprocess.run(["bash", "-c", rule, str(root)], capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(f"failed: {REMEDY.format(what)}")
    return found.stdout.split("\n")[0]


def run(command: list) -> None:
    """nvcc finds its own tools by PATH."""
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, "PATH": path},
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        words = " ".join(str(word) for word in command)
        sys.exit(f"failed: {words}\n{done.stdout}{done.stderr}")


class Compiler:
    """Calls nvcc, several times in parallel."""

    def __init__(self, root: Path, folder: Path):
        self.nvcc, self.folder = find(root, "nvcc"), folder
        nccl = f"-isystem={find(root, 'nccl')}/include"
        self.common = [self.nvcc, *FLAGS, f"-I{root}", nccl]

    def run(self, commands: list[list]) -> None:
        with ThreadPoolExecutor(2) as pool:
            for _ in pool.map(run, commands):
                pass

    def ptx_of(self, source: Path, architecture: int) -> Path:
        return self.folder / f"{source.stem}.sm_{architecture}.ptx"

    def to_ptx(self, source: Path, architecture: int) -> list:
        to = self.ptx_of(source, architecture)
        return [*self.common, "-ptx", f"-arch=compute_{architecture}", "-o", to, source]

    def to_object(self, source: Path, *more: object) -> list:
        return [
            *self.common, "-c", "-Xcompiler=-fPIC", *more,
            "-o", self.folder / f"{source.stem}.o", source,
        ]  # fmt: skip

    def to_object_and_ptx(self, source: Path, kept: Path) -> list:
        """Compiles for all architectures at once, which takes two thirds of the time. The PTX is
        the same; nvcc keeps it in the folder `kept`."""
        each = [f"-gencode=arch=compute_{a},code=compute_{a}" for a in ARCHITECTURES]
        return self.to_object(source, *each, "--keep", "--keep-dir", kept)

    def take_ptx(self, source: Path, kept: Path) -> None:
        for architecture in ARCHITECTURES:
            found = kept / f"{source.stem}.compute_{architecture}.ptx"
            shutil.move(found, self.ptx_of(source, architecture))

    def link(self) -> None:
        objects = sorted(self.folder.glob("*.o"))
        library = self.folder / "operations.so"
        run([self.nvcc, "-shared", "-cudart=none", "-o", library, *objects])


def check_others(compiler: Compiler, sources: list[Path]) -> None:
    """No kernel of these sources may have inline assembly. A source without kernels has none on any
    architecture."""
    first, *rest = ARCHITECTURES
    compiler.run([compiler.to_ptx(source, first) for source in sources])
    with_kernels = [s for s in sources if ".entry" in compiler.ptx_of(s, first).read_text()]
    compiler.run([compiler.to_ptx(source, a) for source in with_kernels for a in rest])
    for source, architecture in itertools.product(with_kernels, ARCHITECTURES):
        text = compiler.ptx_of(source, architecture).read_text()
        for kernel in parse_module(text).values():
            if kernel.has_inline_assembly:
                sys.exit(
                    f"failed: {kernel.name} of {source.name} has inline assembly for "
                    f"sm_{architecture}, and its PTX is not executed: name the source in "
                    "EXECUTED and test it"
                )


def compile_all(root: Path, folder: Path, sources: list[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("*.ptx", "*.o", "*.so"):
        for old in folder.glob(pattern):
            old.unlink()
    executed = [source for source in sources if source.stem in EXECUTED]
    compiler = Compiler(root, folder)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        kept = Path(name)
        compiler.run(
            [compiler.to_object_and_ptx(source, kept) for source in executed]
            + [compiler.to_object(root / name) for name in STAND_INS]
        )
        for source in executed:
            compiler.take_ptx(source, kept)
    compiler.link()
    check_others(compiler, [source for source in sources if source.stem not in EXECUTED])


if __name__ == "__main__":
    compile_all(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
