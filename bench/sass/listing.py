"""Kernels' machine code, read from what nvdisasm prints, in basic blocks.

Warps are assumed to be converged: code that the compiler keeps for a warp whose lanes have
diverged (BRA.DIV, and the code after a BRA.CONV) is left out.
"""

import re
from dataclasses import dataclass, field

INSTRUCTION = re.compile(
    r"^\s+/\*(?P<address>[0-9a-f]{4,})\*/\s+"
    r"(?:@(?P<predicate>!?U?P\w+)\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<operands>[^;]*);"
)
LABEL = re.compile(r"^([.$\w]+):\s*$")
TARGET = re.compile(r"`\((?P<label>[^)]+)\)\s*$")
# A kernel's code is a section of its own; other sections hold data.
SECTION = re.compile(r"^\s*\.section\s+(?:\.text\.([^,\s]+))?")

ENDS = {"EXIT", "RET", "BRX", "JMX", "KILL", "BPT"}


@dataclass(frozen=True)
class Instruction:
    address: int
    predicate: str | None
    opcode: str  # with its modifiers: HMMA.16816.F32.BF16
    operands: str

    @property
    def name(self) -> str:
        return self.opcode.split(".")[0]

    @property
    def target(self) -> str | None:
        found = TARGET.search(self.operands)
        return found["label"] if found else None

    def __str__(self) -> str:
        return f"{self.address:#06x} {self.opcode} {self.operands}".strip()


@dataclass
class Code:
    """A kernel's code as it lies in memory."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # index of the next instruction


def parse(listing: str) -> dict[str, Code]:
    """Returns the kernels' code by mangled name."""
    kernels: dict[str, Code] = {}
    code = None
    for line in listing.splitlines():
        if found := SECTION.match(line):
            code = kernels.setdefault(found[1], Code(found[1])) if found[1] else None
        elif code is None:
            continue
        elif found := LABEL.match(line):
            code.labels[found[1]] = len(code.instructions)
        elif found := INSTRUCTION.match(line):
            operands = found["operands"].strip()
            code.instructions.append(
                Instruction(
                    int(found["address"], 16), found["predicate"], found["opcode"], operands
                )
            )
        elif re.match(r"^\s+/\*[0-9a-f]{4,}\*/", line):
            raise ValueError(f"{code.name}: cannot read '{line.strip()}'")
    return kernels


# ---- Blocks ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Block:
    instructions: list[Instruction] = field(default_factory=list)
    successors: list["Block"] = field(default_factory=list)


def jumps(instruction: Instruction) -> bool:
    """Tells whether control goes to a target; a call inside the kernel is a jump without return."""
    target = instruction.target or ""
    return instruction.name in {"BRA", "JMP"} or (
        instruction.name == "CALL" and target.startswith(".L")
    )


def successors(instruction: Instruction) -> tuple[str | None, bool]:
    """Returns the label that control may go to, and whether it may go to the next instruction."""
    always = instruction.predicate is None
    if not jumps(instruction):
        return None, not (always and instruction.name in ENDS)
    if ".DIV" in instruction.opcode:  # taken by divergent warps
        return None, True
    if ".CONV" in instruction.opcode:  # taken by converged warps
        return instruction.target, False
    return instruction.target, not (always and instruction.operands.startswith("`"))


def blocks_of(code: Code) -> list[Block]:
    """Returns the blocks that control can reach, by address; the first one is the entry."""
    n = len(code.instructions)
    ways = [successors(i) for i in code.instructions]
    starts = {0, *(at for at in code.labels.values() if at < n)}
    starts |= {i + 1 for i, (label, on) in enumerate(ways) if (label or not on) and i + 1 < n}
    order = sorted(starts)
    blocks = {at: Block() for at in order}
    for at, end in zip(order, [*order[1:], n]):
        block = blocks[at]
        block.instructions = code.instructions[at:end]
        label, goes_on = ways[end - 1]
        if label is not None:
            block.successors.append(blocks[code.labels[label]])
        if goes_on and end < n:
            block.successors.append(blocks[end])
    reached, todo = set(), [blocks[0]]
    while todo:
        block = todo.pop()
        if block not in reached:
            reached.add(block)
            todo += block.successors
    return [block for block in blocks.values() if block in reached]
