"""nvcc, cuobjdump and nvdisasm: from a source of kernels/cuda to its machine code.

The tools are those that scripts/environment finds; `scripts/setup --cuda` installs them.
"""

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from listing import Code, parse

HERE = Path(__file__).resolve().parents[2]
# The flags of kernels/cuda/CMakeLists.txt; device code depends on nothing else.
FLAGS = ["-std=c++17", "-DNDEBUG", "-D_GNU_SOURCE", "--expt-relaxed-constexpr"]
ENTRY = re.compile(r"Compiling entry function '(\S+)'")
SPILLED = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
USED = re.compile(r"Used (\d+) registers")
STATIC = re.compile(r"(\d+) bytes smem")


class ToolError(Exception):
    pass


@dataclass
class Resources:
    registers: int = 0
    stack_bytes: int = 0
    # Reported by the compiler for the whole kernel; None if the library was compiled by others.
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    static_bytes: int = 0  # shared memory, without the driver's 1 KiB


@dataclass
class Binary:
    """The result of compiling one source, by mangled name of the kernel."""

    architecture: int
    resources: dict[str, Resources]
    code: dict[str, Code]


@cache
def find_tool(name: str) -> str:
    finder = "find_nvcc" if name == "nvcc" else f"find_cuda_tool {name}"
    script = f'. "$0" && {finder}'
    environment = HERE / "scripts" / "environment"
    found = subprocess.run(
        ["bash", "-c", script, str(environment)], capture_output=True, text=True
    )
    if found.returncode != 0:
        raise ToolError(f"no {name}: run scripts/setup --cuda")
    return found.stdout.strip().splitlines()[0]


def run(tool: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [find_tool(tool), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ToolError(f"{tool} failed:\n{done.stderr.strip() or done.stdout.strip()}")
    return done


def demangle(names: list[str]) -> list[str]:
    """Returns short names: forward_kernel<64>."""
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True)
    plain = done.stdout.splitlines()
    return [re.sub(r"^(?:void )?([\w:]+(?:<[^()]*>)?)\(.*", r"\1", name) for name in plain]


def resources_from_compiler(said: str) -> dict[str, Resources]:
    """Reads the output of `ptxas -v`."""
    kernels: dict[str, Resources] = {}
    current = Resources()
    for line in said.splitlines():
        if found := ENTRY.search(line):
            current = kernels.setdefault(found[1], Resources())
        elif found := SPILLED.search(line):
            stack, stores, loads = map(int, found.groups())
            current.stack_bytes = stack
            current.spill_store_bytes, current.spill_load_bytes = stores, loads
        elif found := USED.search(line):
            current.registers = int(found[1])
            current.static_bytes = int(shared[1]) if (shared := STATIC.search(line)) else 0
    return kernels


def registers_from_binary(binary: Path) -> dict[str, int]:
    said = run("cuobjdump", "--dump-resource-usage", binary).stdout
    return {name: int(n) for name, n in re.findall(r"Function (\S+):\s+REG:(\d+)", said)}


def compile_kernels(
    root: Path, source: str, architecture: int, folder: Path, *flags: str
) -> Binary:
    binary = folder / f"{Path(source).stem}.sm_{architecture}.cubin"
    said = run(
        "nvcc",
        "-cubin",
        f"-arch=sm_{architecture}",
        *FLAGS,
        *flags,
        f"-I{root}",
        "-Xptxas=-v",
        root / source,
        "-o",
        binary,
    )
    resources = resources_from_compiler(said.stderr)
    if registers_from_binary(binary) != {name: r.registers for name, r in resources.items()}:
        raise ToolError(f"{source}: ptxas and cuobjdump disagree about registers")
    return Binary(
        architecture, resources, parse(run("nvdisasm", "--print-code", binary).stdout)
    )
