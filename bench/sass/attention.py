"""The attention kernels' main loops, measured by what a 64×64 tile of (query, key) pairs costs.

A tile's cost is that of all warps together. A product of a tile (scores, say, or the weighted
sum of values) is 64·64·D multiplications, 2·D instructions HMMA m16n8k16; how many tiles a turn
of a loop covers follows from the number of its HMMA, however the loop is unrolled or shared out
to warps.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from launch import Launch, launches_of
from listing import Code, Instruction
from loops import Loop, main_loops
from tools import Binary, Resources, compile_kernels, demangle

TILE = 64
HMMA_SHAPE = ".16816."
SHARED_MEMORY = {"LDSM", "LDS", "STS", "STSM", "LDGSTS"}


@dataclass(frozen=True)
class Role:
    """The part that a kernel has in an operation."""

    operation: str
    products: int  # products for one tile
    rows: str  # rows that a block holds, as an expression of the source
    columns: str  # columns that a block processes in one turn
    tensors: int  # number of [tokens][D] tensors that it reads or writes


FOLDER = "kernels/cuda/attention"
SOURCES = [f"{FOLDER}/attention_forward.cu", f"{FOLDER}/attention_backward.cu"]
ROLES = {
    "forward_kernel": Role("forward", 2, "kQueries<D>", "kTileRows", 4),
    # Also reads out and d_out for delta; d_q in float is cleared, added to and read.
    "backward_kernel": Role("backward", 5, "kTile", "kTile", 15),
}
# Scores, dP, and one each for the gradients of q, k and v.
NEEDED_PRODUCTS = {"forward": 2, "backward": 5}


class MeasureError(Exception):
    pass


@dataclass(frozen=True)
class LoopCost:
    """The cost of one main loop for one tile."""

    issue_slots: float
    hmma: float
    exponentials: float
    shared_bytes: float
    n_spills: int  # instructions of the loop, executed in every turn or not


@dataclass(frozen=True)
class Measured:
    name: str
    architecture: int
    operation: str
    head_size: int
    resources: Resources
    threads: int
    shared_bytes: int  # static and dynamic shared memory
    rows: int
    columns: int
    tensors: int
    loops: list[LoopCost] = field(default_factory=list)

    @property
    def main(self) -> LoopCost:
        return self.loops[0]


def shared_bytes_of(instruction: Instruction) -> int:
    """Returns the bytes that a whole warp moves, if no two lanes share a word."""
    if instruction.name not in SHARED_MEMORY or instruction.predicate == "!PT":
        return 0
    parts = instruction.opcode.split(".")
    if instruction.name in {"LDSM", "STSM"}:
        return 128 * int(parts[-1] if parts[-1] in {"2", "4"} else 1)
    if "128" in parts:
        return 512
    return 256 if "64" in parts else 128


def cost_of(loop: Loop, products: int, head_size: int) -> LoopCost:
    hmma = [i for i in loop.turn if i.name == "HMMA"]
    if other := next((i for i in hmma if HMMA_SHAPE not in i.opcode), None):
        raise MeasureError(f"{other}: of another shape than m16n8k16")
    tiles = len(hmma) / (products * 2 * head_size)
    return LoopCost(
        issue_slots=len(loop.turn) / tiles,
        hmma=len(hmma) / tiles,
        exponentials=loop.counts["MUFU"] / tiles,
        shared_bytes=sum(map(shared_bytes_of, loop.turn)) / tiles,
        n_spills=len(loop.spills),
    )


def costs_of(code: Code, products: int, head_size: int) -> list[LoopCost]:
    """Returns the costs of all main loops, the one without a mask first."""
    loops = main_loops(code)
    if not loops:
        raise MeasureError(f"{code.name}: no loop with HMMA")
    return [cost_of(loop, products, head_size) for loop in loops]


def measure(root: Path, architecture: int, folder: Path) -> list[Measured]:
    """Measures all kernels that have products; `folder` is for the compiler's output."""
    found = []
    for source in SOURCES:
        binary = compile_kernels(root, source, architecture, folder)
        names = {
            name: mangled
            for mangled, name in zip(binary.code, demangle(list(binary.code)))
            if any(i.name == "HMMA" for i in binary.code[mangled].instructions)
        }
        launches = launches_of(root, source, {name: sides_of(name) for name in names})
        found += [
            measure_kernel(name, binary, mangled, launches[name])
            for name, mangled in names.items()
        ]
    return sorted(found, key=lambda m: (m.head_size, list(ROLES).index(m.name.split("<")[0])))


def role_of(name: str) -> tuple[Role, int]:
    """Returns the kernel's role and its head size."""
    kernel, head_size = re.fullmatch(r"(\w+)<(\d+)>", name).groups()
    if kernel not in ROLES:
        raise MeasureError(f"{kernel} is not in the table ROLES")
    return ROLES[kernel], int(head_size)


def sides_of(name: str) -> tuple[str, str]:
    role, head_size = role_of(name)
    return tuple(side.replace("<D>", f"<{head_size}>") for side in (role.rows, role.columns))


def measure_kernel(name: str, binary: Binary, mangled: str, launch: Launch) -> Measured:
    role, head_size = role_of(name)
    resources = binary.resources[mangled]
    return Measured(
        name=name,
        architecture=binary.architecture,
        operation=role.operation,
        head_size=head_size,
        resources=resources,
        threads=launch.threads,
        shared_bytes=resources.static_bytes + launch.dynamic_bytes,
        rows=launch.rows,
        columns=launch.columns,
        tensors=role.tensors,
        loops=costs_of(binary.code[mangled], role.products, head_size),
    )
