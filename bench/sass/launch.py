"""How a source's kernels are launched: threads and shared memory of a block, and its tiles.

The compiler is asked: the source is compiled for the host, as in tests/emulation, with a macro
LAUNCH that puts these numbers into the name of a function.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools import find_tool

PROBE = """
#define BINDERY_DEVICE_EMULATION "tests/emulation/cuda_emulation.h"
#include "kernels/cuda/runtime/gpu.cuh"
#undef LAUNCH
template <auto KERNEL, int THREADS, int BYTES> __attribute__((used)) static void launched() {{}}
#define LAUNCH(kernel, grid, block, shared, stream, ...) \\
    (void)(grid), launched<kernel, int(dim3(block).x), int(shared)>()
template <auto KERNEL, int ROWS, int COLUMNS> __attribute__((used)) static void covered() {{}}
#include "{source}"
"""
FOUND = re.compile(r"void (launched|covered)<.*?\b(\w+<\d+>)\(.*\), (\d+), (\d+)>")


class LaunchError(Exception):
    pass


@dataclass(frozen=True)
class Launch:
    threads: int
    dynamic_bytes: int
    rows: int  # rows that a block holds
    columns: int  # columns that it processes in one turn


def launches_of(
    root: Path, source: str, sides: dict[str, tuple[str, str]]
) -> dict[str, Launch]:
    """Returns the launches of kernels such as forward_kernel<64>; `sides` has C++ expressions."""
    probe = PROBE.format(source=source)
    for kernel, (rows, columns) in sides.items():
        probe += f"template void covered<&{kernel}, {rows}, {columns}>();\n"
    found: dict[str, dict[str, tuple[int, int]]] = {"launched": {}, "covered": {}}
    for what, kernel, first, second in FOUND.findall(names_in(root, probe)):
        found[what][kernel] = int(first), int(second)
    missing = [k for k in sides if k not in found["launched"] or k not in found["covered"]]
    if missing:
        raise LaunchError(f"{source}: cannot tell how {missing[0]} is launched")
    return {k: Launch(*found["launched"][k], *found["covered"][k]) for k in sides}


def names_in(root: Path, probe: str) -> str:
    """Returns the names of all functions that the probe is compiled to."""
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "probe.o"
        headers = Path(find_tool("nvcc")).resolve().parent.parent / "include"
        source = Path(folder) / "probe.cpp"
        source.write_text(probe, encoding="utf-8")
        command = ["c++", "-std=c++17", "-D_GNU_SOURCE", "-w", f"-I{root}", f"-I{headers}"]
        command += ["-c", str(source), "-o", str(code)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise LaunchError(f"the host compiler fails:\n{done.stderr.strip()}")
        return subprocess.run(["nm", "-C", code], capture_output=True, text=True).stdout
