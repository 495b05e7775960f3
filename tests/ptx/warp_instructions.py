"""Instructions that the lanes of a warp execute together: shuffles, votes, matrices.

The PTX ISA's figures of the fragments of mma.m16n8k16 and ldmatrix define which lane holds which
element of a matrix."""

import numpy as np

from conversions import from_bf16
from operands import SINK, Step, address_reader, instruction, parts_of, reader, writer
from ptx_text import PtxError, Vector

WARP = 32
ALL_LANES = np.uint32(0xFFFFFFFF)


def members_by(operand, kernel):
    read = reader(operand, "u32", kernel)
    return lambda w, threads: np.broadcast_to(read(w, threads), threads.shape)


def all_lanes(w, threads):
    return np.full(len(threads), ALL_LANES)


def need_whole_warps(n: int) -> None:
    if n % WARP:
        raise PtxError("a lane of the warp has left")


@instruction(r"bar\.warp\.sync")
def meet(code, kernel):
    return Step(code, lambda w, t: None, members=members_by(code.operands[0], kernel))


# ---- Shuffles and votes ----------------------------------------------------------------------


def source_lane(mode: str, lane, b, c):
    """Returns the lane to read and whether it is in range, as the ISA describes shfl."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    first = lane & segment
    last = first | (clamp & ~segment)
    source = {
        "up": lane - b,
        "down": lane + b,
        "bfly": lane ^ b,
        "idx": first | (b & ~segment),
    }[mode]
    valid = source >= last if mode == "up" else source <= last
    return np.where(valid, source, lane), valid


@instruction(r"shfl\.sync\.(up|down|bfly|idx)\.b32")
def shuffle(code, kernel, mode):
    result, *sources = code.operands
    results = parts_of(result, 2) if isinstance(result, Vector) else [result, SINK]
    write, write_valid = writer(results[0], "b32"), writer(results[1], "pred")
    read, *controls = (reader(o, "b32", kernel) for o in sources[:3])

    def run(w, t):
        threads = w.every if t is None else t
        lane = w.lane[threads].astype(np.int64)
        b, c = (np.asarray(control(w, t)).astype(np.int64) for control in controls)
        source, valid = source_lane(mode, lane, b, c)
        there = np.zeros(w.n, bool)
        there[threads] = True
        source = threads - lane + source
        if not there[source].all():
            raise PtxError("a lane is read that is not there")
        values = np.zeros(w.n, np.uint32)
        values[threads] = read(w, t)
        write(w, t, values[source])
        write_valid(w, t, valid)

    return Step(code, run, members=members_by(sources[3], kernel))


@instruction(r"vote\.sync\.(ballot\.b32|any\.pred|all\.pred)")
def vote(code, kernel, kind):
    write = writer(code.operands[0], kind.split(".")[1])
    condition = reader(code.operands[1], "pred", kernel)
    members = members_by(code.operands[2], kernel)

    def run(w, t):
        threads = w.every if t is None else t
        warps = w.warp_of_all[threads]
        holds = np.broadcast_to(condition(w, t), threads.shape)
        bits = np.uint32(1) << w.lane[threads].astype(np.uint32)
        ballot = np.zeros(warps.max() + 1, np.uint32)
        np.bitwise_or.at(ballot, warps, np.where(holds, bits, np.uint32(0)))
        asked = members(w, threads)
        votes = ballot[warps] & asked
        answers = {"ballot.b32": votes, "any.pred": votes != 0, "all.pred": votes == asked}
        write(w, t, answers[kind])

    return Step(code, run, members=members)


# ---- Matrices --------------------------------------------------------------------------------


@instruction(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(?:::cta)?\.b16")
def load_matrices(code, kernel, n, trans):
    n = int(n)
    writes = [writer(o, "b32") for o in parts_of(code.operands[0], n)]
    address = address_reader(code.operands[1], kernel)

    def run(w, t):
        threads = w.every if t is None else t
        need_whole_warps(len(threads))
        # Lane l gives the address of row l % 8 of matrix l / 8.
        rows = np.broadcast_to(address(w, t), threads.shape).reshape(-1, WARP)[:, : 8 * n]
        blocks = w.block[threads].reshape(-1, WARP)[:, : 8 * n]
        places = w.memory.places("shared", rows, blocks, 16)
        words = w.memory.load(places[..., None] + np.arange(0, 16, 4), 4)
        if trans:
            values = words.view(np.uint16).reshape(-1, n, 8, 8).swapaxes(2, 3)
            words = np.ascontiguousarray(values).view(np.uint32)
        # Lane l receives elements 2 * (l % 4) and the next one of row l / 4.
        words = words.reshape(-1, n, WARP)
        for i, write in enumerate(writes):
            write(w, t, words[:, i].reshape(-1))

    return Step(code, run, members=all_lanes)


def pairs(registers) -> np.ndarray:
    """Returns [register][warp][row or column of the lane][lane's place in it][element], as
    float."""
    halves = np.concatenate(registers).view(np.uint16)
    return from_bf16(halves).reshape(len(registers), -1, 8, 4, 2)


@instruction(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32")
def multiply_matrices(code, kernel):
    d, a, b, c = (parts_of(o, n) for o, n in zip(code.operands, (4, 4, 2, 4)))
    writes = [writer(o, "f32") for o in d]
    a, b = ([reader(o, "b32", kernel) for o in part] for part in (a, b))
    c = [reader(o, "f32", kernel) for o in c]

    def run(w, t):
        n = w.n if t is None else len(t)
        need_whole_warps(n)
        # Registers 0 … 3 of a: rows g, g + 8 and again, then columns 8 and up.
        left = pairs([r(w, t) for r in a]).reshape(2, 2, -1, 8, 4, 2)
        left = left.transpose(2, 1, 3, 0, 4, 5).reshape(-1, 16, 16)
        # Registers 0 and 1 of b: column g, then rows 8 and up.
        right = pairs([r(w, t) for r in b]).transpose(1, 0, 3, 4, 2).reshape(-1, 16, 8)
        products = np.matmul(left, right)  # [warp][row][column]
        products = products.reshape(-1, 2, WARP, 2)  # [warp][half][lane][element]
        for i, write in enumerate(writes):
            # A lane's elements: row g, columns 2q and 2q + 1, then the same of row g + 8.
            write(w, t, products[:, i // 2, :, i % 2].reshape(-1) + c[i](w, t))

    return Step(code, run, members=all_lanes)
