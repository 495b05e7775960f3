"""A kernel's main loops: the innermost loops that have tensor-core instructions (HMMA).

In such a loop, code that only some turns need (a mask, for example) lies beside the main path. A
turn is therefore the path that contains the most instructions that multiply, exponentiate or move
data and, among such paths, the fewest other instructions.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from listing import Block, Code, Instruction, blocks_of

SPILLS = {"STL", "LDL"}
WORK = set(
    "HMMA MUFU SHFL BAR LDSM LDS STS STSM LDG STG LDGSTS LDGDEPBAR RED REDG ATOM ATOMG".split()
)


@dataclass(frozen=True)
class Loop:
    blocks: list[Block]  # in the order of addresses
    turn: list[Instruction]

    @property
    def counts(self) -> Counter[str]:
        return Counter(instruction.name for instruction in self.turn)

    @property
    def spills(self) -> list[Instruction]:
        """Counts instructions anywhere in the loop, executed in every turn or not."""
        return [i for block in self.blocks for i in block.instructions if i.name in SPILLS]


def main_loops(code: Code) -> list[Loop]:
    """Sorts by instructions per HMMA, the lowest first: a loop without a mask."""
    blocks = blocks_of(code)
    loops = [Loop(loop, turn_of(loop)) for loop in innermost(blocks, blocks)]
    return sorted(loops, key=lambda loop: len(loop.turn) / max(1, loop.counts["HMMA"]))


def has_products(blocks: Iterable[Block]) -> bool:
    return any(i.name == "HMMA" for block in blocks for i in block.instructions)


def innermost(inside: list[Block], kernel: list[Block]) -> list[list[Block]]:
    """Returns the loops of `inside` that have products and contain no other loop with products."""
    found = []
    for loop in cycles(inside):
        if has_products(loop):
            entries = entries_of(loop, kernel)
            found += innermost([b for b in loop if b not in entries], kernel) or [loop]
    return found


def entries_of(loop: list[Block], kernel: list[Block]) -> set[Block]:
    """Returns the blocks where control enters the loop: without them only inner loops are left."""
    members = set(loop)
    reached = {after for b in kernel if b not in members for after in b.successors}
    return (reached | {kernel[0]}) & members


def finished(blocks: list[Block]) -> list[Block]:
    """Returns the blocks in the order in which a depth-first search finishes them."""
    inside, seen, order = set(blocks), set(), []
    for root in blocks:
        todo = [] if root in seen else [(root, iter(root.successors))]
        seen.add(root)
        while todo:
            block, rest = todo[-1]
            ahead = next((b for b in rest if b in inside and b not in seen), None)
            if ahead is None:
                order.append(block)
                todo.pop()
            else:
                seen.add(ahead)
                todo.append((ahead, iter(ahead.successors)))
    return order


def cycles(blocks: list[Block]) -> list[list[Block]]:
    """Returns the strongly connected components (Kosaraju)."""
    before: dict[Block, list[Block]] = {block: [] for block in blocks}
    for block in blocks:
        for after in block.successors:
            if after in before:
                before[after].append(block)
    left, found = set(blocks), []
    for root in reversed(finished(blocks)):
        if root not in left:
            continue
        members, todo = set(), [root]
        while todo:
            block = todo.pop()
            if block in left:
                left.remove(block)
                members.add(block)
                todo += before[block]
        if len(members) > 1 or root in root.successors:
            found.append([b for b in blocks if b in members])
    return found


def turn_of(loop: list[Block]) -> list[Instruction]:
    """Returns the path from the loop's first block back to it (above). Inner loops count once."""
    first = loop[0]
    # For the best path from a block: its work, minus its other instructions, and the next block.
    best: dict[Block, tuple[int, int, Block | None]] = {}
    for block in finished(loop):
        work = sum(i.name in WORK for i in block.instructions)
        ways = [
            (0, 0, None) if after is first else (*best[after][:2], after)
            for after in block.successors
            if after is first or after in best
        ]
        if ways:
            chosen = max(ways, key=lambda way: way[:2])
            rest = len(block.instructions) - work
            best[block] = (work + chosen[0], chosen[1] - rest, chosen[2])
    turn, block = [], first
    while block is not None:
        turn += block.instructions
        block = best[block][2]
    return turn
