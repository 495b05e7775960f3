"""Instructions that move data between registers and memory, and within memory."""

import numpy as np

from memory import SHARED_BASE
from operands import (
    KINDS,
    UNSIGNED,
    address_reader,
    computes,
    instruction,
    parts_of,
    reader,
    writer,
)
from ptx_text import PtxError

SPACE = r"(?:\.(global|shared|param)(?:::cta)?)?"
# Modifiers of order and caches change nothing here: there is one memory without delay.
ORDER = r"(?:\.(?:weak|volatile|relaxed|acquire|release|acq_rel)(?:\.(?:cta|gpu|sys))?)?"
CACHES = r"(?:\.(?:ca|cg|cs|lu|cv|wb|wt))?(?:\.L1::\w+)?(?:\.L2::\w+)?"
TYPE = r"([busf](?:8|16|32|64))"


def blocks_of(w, t):
    return w.block if t is None else w.block[t]


@instruction(r"cvta(\.to)?\.(global|shared)\.u64")
def convert_address(code, kernel, to, space):
    distance = np.uint64(SHARED_BASE if space == "shared" else 0)
    if to:
        return computes(code, kernel, "u64", ["u64"], lambda x: x - distance)
    return computes(code, kernel, "u64", ["u64"], lambda x: x + distance)


@instruction(r"ld" + ORDER + SPACE + r"(?:\.nc)?" + CACHES + r"(?:\.v([248]))?\." + TYPE)
def load(code, kernel, space, n, kind):
    n, dtype = int(n or 1), np.dtype(KINDS[kind])
    writes = [writer(o, kind) for o in parts_of(code.operands[0], n)]
    address = address_reader(code.operands[1], kernel)
    size = dtype.itemsize

    def run(w, t):
        places = w.memory.places(space, address(w, t), blocks_of(w, t), size * n)
        for i, write in enumerate(writes):
            write(w, t, w.memory.load(places + i * size, size).view(dtype))

    return run


@instruction(r"st" + ORDER + SPACE + CACHES + r"(?:\.v([248]))?\." + TYPE)
def store(code, kernel, space, n, kind):
    n, size = int(n or 1), np.dtype(KINDS[kind]).itemsize
    reads = [reader(o, f"b{8 * size}" if kind[0] == "f" else kind, kernel)
             for o in parts_of(code.operands[1], n)]
    address = address_reader(code.operands[0], kernel)
    if space == "param":
        raise PtxError("parameters cannot be written")

    def run(w, t):
        places = w.memory.places(space, address(w, t), blocks_of(w, t), size * n)
        for i, read in enumerate(reads):
            w.memory.store(places + i * size, size, read(w, t).view(UNSIGNED[size]))

    return run


@instruction(r"membar\.(?:cta|gl|sys)|fence\.(?:sc|acq_rel)\.(?:cta|gpu|sys)|nanosleep\.u32")
def nothing(code, kernel):
    return lambda w, t: None


ATOMS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "exch": lambda old, new: new,
}  # fmt: skip


@instruction(r"(atom|red)" + ORDER + SPACE + r"\.(add|min|max|and|or|exch)\.([busf](?:32|64))")
def atomic(code, kernel, name, space, change, kind):
    """Executes one thread after the other."""
    dtype = np.dtype(KINDS[kind])
    operands = list(code.operands)
    write = writer(operands.pop(0), kind) if name == "atom" else None
    address, read = address_reader(operands[0], kernel), reader(operands[1], kind, kernel)
    size = dtype.itemsize

    def run(w, t):
        n = w.n if t is None else len(t)
        places = w.memory.places(space, address(w, t), blocks_of(w, t), size)
        places, values = np.broadcast_to(places, n), np.broadcast_to(read(w, t), n)
        old = np.empty(n, dtype)
        for i in range(n):
            old[i] = w.memory.load(places[i], size).view(dtype)
            new = ATOMS[change](old[i], values[i])
            w.memory.store(places[i], size, dtype.type(new).view(UNSIGNED[size]))
        if write:
            write(w, t, old)

    return run


# ---- Asynchronous copies ---------------------------------------------------------------------


class PendingCopies:
    """The copies that cp.async has begun and nobody has waited for. Each thread counts its
    groups."""

    def __init__(self, threads):
        self.threads = threads
        self.groups = np.zeros(threads.n, np.int64)  # groups that each thread has committed
        self.begun = []  # arguments of land(), for each instruction

    def begin(self, t, source, destination, n_bytes, size: int) -> None:
        copy = (t, self.groups[t], source, destination, n_bytes, size)
        if self.threads.settings.copies_land_late:
            self.begun.append(copy)
        else:
            self.land(*copy)

    def wait(self, t, n_left: int, committed_only: bool) -> None:
        """Lets all but the newest n_left groups of threads t land."""
        limit = np.full(self.threads.n, -1)
        limit[t] = self.groups[t] - n_left if committed_only else self.groups[t] + 1
        begun, self.begun = self.begun, []
        for copy in begun:
            lands = copy[1] < limit[copy[0]]
            if lands.any():
                self.land(*[part[lands] for part in copy[:5]], copy[5])
            if not lands.all():
                self.begun.append((*[part[~lands] for part in copy[:5]], copy[5]))

    def land(self, t, group, source, destination, n_bytes, size: int) -> None:
        w = self.threads
        reads = n_bytes > 0
        if reads.any() and (n_bytes[reads] != size).any():
            raise PtxError("only whole copies and zeros are known")
        places = w.memory.places("global", source[reads], w.block[t[reads]], size)
        for i in range(0, size, 4):
            words = np.zeros(len(t), np.uint32)
            words[reads] = w.memory.load(places + i, 4)
            w.memory.store(destination + i, 4, words)


@instruction(r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.L2::\d+B)?")
def begin_copy(code, kernel):
    destination, source = (address_reader(o, kernel) for o in code.operands[:2])
    sizes = [reader(o, "u32", kernel) for o in code.operands[2:]]
    if not 1 <= len(sizes) <= 2:
        raise PtxError("a copy has three or four operands")
    size = int(sizes[0](None, None))
    if size not in (4, 8, 16):
        raise PtxError(f"a copy of {size} bytes")

    def run(w, t):
        threads = w.every if t is None else t
        to = w.memory.places("shared", destination(w, t), w.block[threads], size)
        n_bytes = np.broadcast_to(sizes[-1](w, t), threads.shape)
        w.copies.begin(threads, source(w, t), to, n_bytes, size)

    return run


@instruction(r"cp\.async\.commit_group")
def commit_copies(code, kernel):
    def run(w, t):
        w.copies.groups[w.every if t is None else t] += 1

    return run


@instruction(r"cp\.async\.wait_(group|all)")
def wait_for_copies(code, kernel, which):
    n_left = int(reader(code.operands[0], "u32", kernel)(None, None)) if which == "group" else 0
    return lambda w, t: w.copies.wait(w.every if t is None else t, n_left, which == "group")
