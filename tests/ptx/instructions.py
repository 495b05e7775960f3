"""Decodes instructions. An opcode is known if its whole text, with every modifier, matches a
pattern of the table; anything else is refused."""

import functools
import re

import numpy as np

import arithmetic  # noqa: F401  these fill the table
import conversions  # noqa: F401
import data_movement
import warp_instructions  # noqa: F401
from operands import DECODERS, Step, instruction, reader
from ptx_text import Immediate, Instruction, Kernel, Name, PtxError

PendingCopies = data_movement.PendingCopies


def decode(code: Instruction, kernel: Kernel) -> Step:
    for pattern, decoder in DECODERS:
        if match := pattern.fullmatch(code.opcode):
            try:
                decoded = decoder(code, kernel, *match.groups())
            except (PtxError, IndexError, KeyError) as error:
                raise PtxError(f"{code.place}: {code.text}: {error}") from error
            step = decoded if isinstance(decoded, Step) else Step(code, decoded)
            return guarded(step, kernel)
    raise PtxError(f"{code.place}: unknown instruction: {code.text}")


def guarded(step: Step, kernel: Kernel) -> Step:
    code = step.code
    if code.guard is None or step.is_control:
        return step
    if step.members:
        raise PtxError(f"{code.place}: {code.text}: an instruction of the warp has a condition")
    condition, inner = reader(code.guard, "pred", kernel), step.run

    def run(w, t):
        holds = condition(w, t)
        if holds.all():
            inner(w, t)
        elif holds.any():
            inner(w, np.flatnonzero(holds) if t is None else t[holds])

    return Step(code, run)


# ---- Control ---------------------------------------------------------------------------------


LOOK = re.compile(r"ld\.(?:volatile|relaxed|acquire)\b.*")
CHANGE = re.compile(r"(?:st|atom|red|bar|barrier|cp|ret|exit)\b.*")


def only_looks(loop: list[Instruction]) -> bool:
    """Tells whether a loop only waits for what other threads write."""
    opcodes = [code.opcode for code in loop]
    return any(map(LOOK.fullmatch, opcodes)) and not any(map(CHANGE.fullmatch, opcodes))


@instruction(r"bra(?:\.uni)?")
def branch(code, kernel):
    if not isinstance(code.operands[0], Name) or code.operands[0].text not in kernel.labels:
        raise PtxError("unknown label")
    target = kernel.labels[code.operands[0].text]
    condition = reader(code.guard or Immediate(1), "pred", kernel)
    looks = functools.cache(lambda pc: only_looks(kernel.code[target : pc + 1]))

    def run(w, threads, pc):
        jumps = condition(w, threads)
        if not jumps.any():
            return pc + 1
        if jumps.all() and not looks(pc):
            return target
        jumps = np.broadcast_to(jumps, threads.shape)
        w.pc[threads] = np.where(jumps, target, pc + 1)
        if looks(pc):
            w.wait_for_a_store(threads[jumps])
        return None

    return Step(code, run, is_control=True)


@instruction(r"ret|exit")
def leave(code, kernel):
    condition = reader(code.guard or Immediate(1), "pred", kernel)

    def run(w, threads, pc):
        leaving = np.broadcast_to(condition(w, threads), threads.shape)
        w.pc[threads] = pc + 1
        w.stop(threads[leaving])

    return Step(code, run, is_control=True)


@instruction(r"bar(?:rier)?(?:\.cta)?\.sync(?:\.aligned)?")
def barrier(code, kernel):
    if code.guard is not None:
        raise PtxError("a barrier has a condition")
    numbers = [reader(o, "u32", kernel) for o in code.operands]

    def run(w, threads, pc):
        w.pc[threads] = pc + 1
        w.wait_at_barrier(threads, *[read(w, threads) for read in numbers])

    return Step(code, run, is_control=True)
