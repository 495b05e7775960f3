"""What nvcc makes of kernels/cuda: PTX for each architecture, and a library of the host's side
of the operations over launch_recorder.cpp. Run as a program, it compiles both:

    toolchain.py SOURCE-TREE FOLDER SOURCE.cu...
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ptx_text import parse_module

LONG = os.environ.get("BINDERY_TEST_LONG") == "1"
ARCHITECTURES = (80, 90, 100, 120) if LONG else (80, 100)
# The sources whose operations the tests call. No kernel of another may have inline assembly.
EXECUTED = ("attention_plan", "attention_forward", "attention_backward", "optimizer")
# Those of kernels/cuda/CMakeLists.txt, and lines of the source for messages. NDEBUG as in every
# preset that a kernel is released by.
FLAGS = ("-std=c++17", "--expt-relaxed-constexpr", "-D_GNU_SOURCE", "-DNDEBUG", "-lineinfo")
REMEDY = "there is no nvcc: install a CUDA toolkit, or run scripts/setup --cuda"


def find_nvcc(root: Path) -> str:
    """By the rule of the scripts, which is also that of the build."""
    rule = '. "$0/scripts/environment" && find_nvcc'
    found = subprocess.run(["bash", "-c", rule, str(root)], capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(f"failed: {REMEDY}")
    return found.stdout.split("\n")[0]


def run(command: list) -> None:
    """nvcc finds its own parts by PATH."""
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, "PATH": path},
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        words = " ".join(str(word) for word in command)
        sys.exit(f"failed: {words}\n{done.stdout}{done.stderr}")


def commands(nvcc: str, root: Path, folder: Path, sources: list[Path]) -> list[list]:
    common = [nvcc, *FLAGS, f"-I{root}"]
    every = []
    for source in sources:
        # One architecture tells whether a source has inline assembly.
        for architecture in ARCHITECTURES if source.stem in EXECUTED else ARCHITECTURES[:1]:
            to = folder / f"{source.stem}.sm_{architecture}.ptx"
            every.append([*common, "-ptx", f"-arch=compute_{architecture}", "-o", to, source])
    executed = [source for source in sources if source.stem in EXECUTED]
    for source in [*executed, root / "tests/ptx/launch_recorder.cpp", root / "common/error.c"]:
        every.append([
            *common, "-c", "-Xcompiler=-fPIC", "-gencode=arch=compute_80,code=compute_80",
            "-o", folder / f"{source.stem}.o", source,
        ])  # fmt: skip
    return every


def check_others(folder: Path) -> None:
    for path in sorted(folder.glob(f"*.sm_{ARCHITECTURES[0]}.ptx")):
        source = path.name.split(".")[0]
        kernels = {} if source in EXECUTED else parse_module(path.read_text())
        for kernel in kernels.values():
            if kernel.has_inline_assembly:
                sys.exit(
                    f"failed: {kernel.name} of {source}.cu has inline assembly, and its PTX is "
                    "not executed: name the source in EXECUTED and test it"
                )


def compile_all(root: Path, folder: Path, sources: list[Path]) -> None:
    nvcc = find_nvcc(root)
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("*.ptx", "*.o", "*.so"):
        for old in folder.glob(pattern):
            old.unlink()
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(run, commands(nvcc, root, folder, sources)):
            pass
    objects = sorted(folder.glob("*.o"))
    run([nvcc, "-shared", "-cudart=none", "-o", folder / "operations.so", *objects])
    check_others(folder)


if __name__ == "__main__":
    compile_all(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
