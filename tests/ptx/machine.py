"""Runs a launch: many threads at once, each register an array with one value per thread.

Threads at the same instruction execute it together. If threads are at different instructions,
those at the lowest go first, so that they meet again where a branch's sides join. An instruction
for a whole warp keeps the lanes that come first waiting for the others. A loop that only reads
memory ends when another thread writes: after each turn its threads pause until something has been
written.

The order of warps must not matter, so it is a choice (ORDERS): all warps in step; or one after
the other, each as far as the next barrier, first to last or last to first. Copies by cp.async land
at once, or as late as allowed: when their thread waits for them."""

import functools
from dataclasses import dataclass

import numpy as np

import instructions
from memory import Memory
from ptx_text import Kernel, PtxError, place_variables

WARP = 32
ORDERS = ("in step", "forward", "reverse")
RUNNING, WAITING_FOR_LANES, AT_BARRIER, LOOKING, DONE = range(5)
MAX_STEPS = 50_000_000
NOWHERE = 1 << 60


@dataclass
class Launch:
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    parameters: list[bytes]


@dataclass(frozen=True)
class Settings:
    order: str = "in step"
    copies_land_late: bool = True
    blocks_at_once: int = 16


class Program:
    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        place_variables(kernel.shared)

    @functools.cached_property
    def steps(self) -> list:
        """Decodes all instructions: an unknown one is refused even if it is never executed."""
        return [instructions.decode(code, self.kernel) for code in self.kernel.code]

    def shared_variables(self, dynamic_bytes: int) -> list[tuple[int, int]]:
        return [(v.offset, v.size or dynamic_bytes) for v in self.kernel.shared]

    def parameter_bytes(self, parameters: list[bytes]) -> np.ndarray:
        declared = self.kernel.parameters
        if [len(p) for p in parameters] != [v.size for v in declared]:
            raise PtxError(f"{self.kernel.name}: not the sizes of its parameters")
        memory = bytearray(max((v.offset + v.size for v in declared), default=0))
        for variable, value in zip(declared, parameters):
            memory[variable.offset : variable.offset + variable.size] = value
        return np.frombuffer(bytes(memory), np.uint8)

    def run(self, launch: Launch, memory: Memory, settings: Settings) -> None:
        grid = np.arange(int(np.prod(launch.grid)))
        parameters = self.parameter_bytes(launch.parameters)
        for first in range(0, len(grid), settings.blocks_at_once):
            blocks = grid[first : first + settings.blocks_at_once]
            shared = self.shared_variables(launch.shared_bytes)
            memory.open_windows(parameters, len(blocks), shared)
            with np.errstate(all="ignore"):
                Threads(self, launch, blocks, memory, settings).run()


class Threads:
    """All threads of some blocks. `t` selects those that execute an instruction: their numbers in
    rising order, or None for all. Arrays in registers are never changed, only replaced."""

    def __init__(self, program, launch, blocks, memory, settings):
        per_block = int(np.prod(launch.block))
        self.program, self.memory, self.settings = program, memory, settings
        self.n = len(blocks) * per_block
        self.every = np.arange(self.n)
        self.block = self.every // per_block
        in_block = self.every % per_block
        self.lane = in_block % WARP
        self.warp = in_block // WARP
        # Warps are counted over all blocks; a block's last one may be short.
        self.warp_of_all = self.block * -(-per_block // WARP) + self.warp
        self.special = {"%laneid": self.lane, "%warpid": self.warp}
        at, where = blocks[self.block], in_block
        for axis, size, count in zip("xyz", launch.block, launch.grid):
            self.special[f"%tid.{axis}"], where = where % size, where // size
            self.special[f"%ctaid.{axis}"], at = at % count, at // count
            self.special[f"%ntid.{axis}"] = np.full(self.n, size)
            self.special[f"%nctaid.{axis}"] = np.full(self.n, count)
        bits = np.uint64(1) << self.lane.astype(np.uint64)
        low = bits - np.uint64(1)
        masks = {"eq": bits, "lt": low, "le": low | bits, "gt": ~(low | bits), "ge": ~low}
        for name, mask in masks.items():
            self.special[f"%lanemask_{name}"] = mask & np.uint64(0xFFFFFFFF)
        self.special = {name: v.astype(np.uint32) for name, v in self.special.items()}
        self.registers = [None] * len(program.kernel.register_sizes)
        self.pc = np.zeros(self.n, np.int64)
        self.state = np.full(self.n, RUNNING)
        self.barrier = np.full(self.n, -1)  # number of the barrier at which the thread waits
        self.barrier_threads = np.zeros(self.n, np.int64)  # how many it waits for; 0: all
        self.copies = instructions.PendingCopies(self)
        self.steps_left = MAX_STEPS

    # ---- Which threads run

    def run(self) -> None:
        groups = [self.every]
        if self.settings.order != "in step":
            groups = [np.flatnonzero(self.warp == w) for w in range(self.warp.max() + 1)]
        if self.settings.order == "reverse":
            groups.reverse()
        while not (self.state == DONE).all():
            n_stores = self.memory.n_stores
            for group in groups:
                self.run_group(group)
            # Threads that have read in this round may have read before the store.
            look_again = (self.state == LOOKING) & (self.memory.n_stores > n_stores)
            self.state[look_again] = RUNNING
            if not self.open_barriers() and not look_again.any():
                raise PtxError(f"{self.where_all_wait()}: threads wait for others for ever")

    def run_group(self, group: np.ndarray) -> None:
        """Runs the group until none of its threads can continue."""
        while True:
            running = group[self.state[group] == RUNNING]
            if not len(running):
                return
            at = self.pc[running]
            low = at.min()
            later = at[at > low]
            limit = int(later.min()) if len(later) else NOWHERE
            self.run_from(int(low), running[at == low], limit)

    def run_from(self, pc: int, threads: np.ndarray, limit: int) -> None:
        """Runs threads at one instruction until they diverge, stop or come to `limit`."""
        steps = self.program.steps
        t = None if len(threads) == self.n else threads
        whole = self.are_whole_warps(threads)
        while pc < limit:
            self.steps_left -= 1
            if pc >= len(steps) or self.steps_left < 0:
                raise PtxError(f"{self.program.kernel.name} does not end")
            step = steps[pc]
            try:
                if step.members and not whole:
                    return self.run_with_warps(step, pc, threads)
                if step.is_control:
                    pc = step.run(self, threads, pc)
                    if pc is None:
                        return
                else:
                    step.run(self, t)
                    pc += 1
            except (PtxError, ValueError, IndexError, KeyError) as error:
                raise PtxError(f"{step.code.place}: {step.code.text}: {error}") from error
        self.pc[threads] = pc

    def are_whole_warps(self, threads: np.ndarray) -> bool:
        if len(threads) % WARP:
            return False
        return bool((self.lane[threads].reshape(-1, WARP) == np.arange(WARP)).all())

    def run_with_warps(self, step, pc: int, threads: np.ndarray) -> None:
        """Executes an instruction for several lanes of a warp: where all lanes have come they
        execute it, the others wait."""
        waiting = (self.state == WAITING_FOR_LANES) & (self.pc == pc)
        waiting[threads] = True
        threads = np.flatnonzero(waiting)
        bits = np.uint32(1) << self.lane.astype(np.uint32)
        present, alive = np.zeros((2, self.warp_of_all[-1] + 1), np.uint32)
        np.bitwise_or.at(present, self.warp_of_all[threads], bits[threads])
        living = np.flatnonzero(self.state != DONE)
        np.bitwise_or.at(alive, self.warp_of_all[living], bits[living])
        missing = (alive & ~present)[self.warp_of_all[threads]] & step.members(self, threads)
        ready = threads[missing == 0]
        self.pc[threads] = pc
        self.state[threads] = WAITING_FOR_LANES
        if len(ready):
            step.run(self, ready)
            self.pc[ready] = pc + 1
            self.state[ready] = RUNNING

    def stop(self, threads: np.ndarray) -> None:
        self.state[threads] = DONE

    def wait_for_a_store(self, threads: np.ndarray) -> None:
        self.state[threads] = LOOKING

    def wait_at_barrier(self, threads: np.ndarray, number, n_threads=0) -> None:
        """n_threads is the number of threads that open the barrier; 0: all of the block."""
        self.state[threads] = AT_BARRIER
        self.barrier[threads] = number
        self.barrier_threads[threads] = n_threads

    def open_barriers(self) -> bool:
        """Releases the threads whose barrier is complete. Returns False if there are none."""
        opened = False
        for block in np.unique(self.block[self.state == AT_BARRIER]):
            of_block = self.block == block
            for number in np.unique(self.barrier[of_block & (self.state == AT_BARRIER)]):
                there = of_block & (self.state == AT_BARRIER) & (self.barrier == number)
                wanted = self.barrier_threads[there].max() or (
                    of_block & (self.state != DONE)
                ).sum()
                if there.sum() == wanted:
                    self.state[there] = RUNNING
                    opened = True
        return opened or bool((self.state == DONE).all())

    def where_all_wait(self) -> str:
        waiting = np.unique(self.pc[self.state != DONE])
        return "; ".join(f"{self.program.kernel.code[p].place}" for p in waiting[:3])
