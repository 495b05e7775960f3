"""Reading and writing: operands as functions from threads to values, and decoded instructions as
steps.

A value is a numpy array with one element for each executing thread, or a scalar that is the
same for all. Registers hold bits; the instruction's type says what they mean."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptx_text import (
    SINK,
    Address,
    FloatBits,
    Immediate,
    Instruction,
    Kernel,
    Name,
    PtxError,
    Register,
    Special,
    Vector,
)

KINDS = {
    "b8": np.uint8, "u8": np.uint8, "s8": np.int8,
    "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "bf16": np.uint16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32,
    "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64,
    "bf16x2": np.uint32, "pred": np.bool_,
}  # fmt: skip
UNSIGNED = {0: np.bool_, 1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
BITS = {0: False, 2: np.uint16(0xFFFF), 4: np.uint32(0xFFFFFFFF), 8: np.uint64(2**64 - 1)}


@dataclass
class Step:
    """A decoded instruction. run(w, t) computes; with is_control it is run(w, threads, pc) and
    returns where to continue, None if the threads have diverged. For an instruction of the warp,
    `members` gives the mask of lanes that each thread must meet there."""

    code: Instruction
    run: Callable
    is_control: bool = False
    members: Callable | None = None


# ---- Reading ---------------------------------------------------------------------------------


def read_register(w, t, register: Register):
    values = w.registers[register.number]
    if values is None:  # never written: any value
        values = np.full(w.n, BITS[register.size], UNSIGNED[register.size])
        w.registers[register.number] = values
    return values if t is None else values[t]


def reader(operand, kind: str, kernel: Kernel) -> Callable:
    """Returns read(w, t), which gives the operand's value as `kind`."""
    dtype = np.dtype(KINDS[kind])
    if isinstance(operand, Register):
        return register_reader(operand, dtype)
    if isinstance(operand, Special):
        def read_special(w, t):
            values = w.special[operand.name]
            return (values if t is None else values[t]).astype(dtype)
        return read_special
    if isinstance(operand, Immediate):
        constant = immediate(operand.value, dtype)
    elif isinstance(operand, Name):
        constant = immediate(variable_address(operand.text, kernel), dtype)
    else:
        raise PtxError(f"{operand} cannot be read as {kind}")
    return lambda w, t: constant


def register_reader(register: Register, dtype: np.dtype) -> Callable:
    if register.size == 0:
        if dtype != np.bool_:
            raise PtxError("a predicate is not a number")
        if register.negated:
            return lambda w, t: ~read_register(w, t, register)
        return lambda w, t: read_register(w, t, register)
    if dtype.itemsize > register.size or dtype == np.bool_:
        raise PtxError(f"a register of {register.size} bytes is read as {dtype}")
    if dtype.itemsize == register.size:
        return lambda w, t: read_register(w, t, register).view(dtype)
    narrow = UNSIGNED[dtype.itemsize]
    return lambda w, t: read_register(w, t, register).astype(narrow).view(dtype)


def immediate(value, dtype: np.dtype):
    if isinstance(value, FloatBits):
        float_kind = {4: np.float32, 8: np.float64}[value.size]
        number = UNSIGNED[value.size](int(value)).view(float_kind)
        if dtype.kind == "f":
            return dtype.type(number)
        if dtype.itemsize != value.size:
            raise PtxError("a constant of another size")
        return number.view(dtype)
    if dtype == np.bool_:
        return np.bool_(value != 0)
    if dtype.kind == "f":
        return dtype.type(value)
    size = dtype.itemsize
    return UNSIGNED[size](value & (2 ** (8 * size) - 1)).view(dtype)


def variable_address(name: str, kernel: Kernel) -> int:
    for variable in kernel.shared + kernel.parameters:
        if variable.name == name:
            return variable.offset
    raise PtxError(f"unknown name {name}")


def address_reader(address: Address, kernel: Kernel) -> Callable:
    if not isinstance(address, Address):
        raise PtxError("not an address")
    size = address.base.size if isinstance(address.base, Register) else 8
    read = reader(address.base, {4: "u32", 8: "u64"}[size], kernel)
    offset = np.int64(address.offset)
    return lambda w, t: read(w, t).astype(np.int64) + offset


# ---- Writing ---------------------------------------------------------------------------------


def writer(operand, kind: str) -> Callable:
    """Returns write(w, t, values) for values of `kind`, extended by sign or by zeros if needed."""
    if operand == SINK:
        return lambda w, t, values: None
    if not isinstance(operand, Register):
        raise PtxError("the result has no register")
    dtype, size, number = np.dtype(KINDS[kind]), operand.size, operand.number
    register = Register(number, size)
    if size == 0:
        if kind != "pred":
            raise PtxError("a number is not a predicate")
        return lambda w, t, values: replace(w, t, register, values)
    fits = dtype.itemsize == size if dtype.kind == "f" else dtype.itemsize <= size
    if dtype == np.bool_ or not fits:
        raise PtxError(f"{kind} does not go into a register of {size} bytes")
    bits, wide = UNSIGNED[size], SIGNED[size] if dtype.kind == "i" else UNSIGNED[size]

    def write(w, t, values):
        if values.dtype != dtype:
            raise PtxError(f"{values.dtype} where {dtype} is meant")
        if dtype.itemsize < size:
            values = values.astype(wide)
        replace(w, t, register, values.view(bits))

    return write


def replace(w, t, register: Register, values) -> None:
    if t is None:
        if np.ndim(values) == 0:
            values = np.full(w.n, values)
        w.registers[register.number] = values
    else:
        whole = read_register(w, None, register).copy()
        whole[t] = values
        w.registers[register.number] = whole


# ---- The table of instructions ---------------------------------------------------------------

DECODERS: list[tuple[re.Pattern, Callable]] = []


def instruction(pattern: str):
    """Decorates a function that decodes the instructions whose whole opcode matches. It gets the
    instruction, the kernel and the groups of the pattern, and returns a Step or a run(w, t)."""

    def register(decoder):
        DECODERS.append((re.compile(pattern), decoder))
        return decoder

    return register


def computes(code: Instruction, kernel: Kernel, result: str, kinds: list[str], function):
    """Returns a run(w, t) that writes function(values of the other operands) to the first
    operand."""
    if len(code.operands) != 1 + len(kinds):
        raise PtxError(f"{len(code.operands)} operands")
    write = writer(code.operands[0], result)
    reads = [reader(o, kind, kernel) for o, kind in zip(code.operands[1:], kinds)]
    if len(reads) == 1:
        only = reads[0]
        return lambda w, t: write(w, t, function(only(w, t)))
    if len(reads) == 2:
        left, right = reads
        return lambda w, t: write(w, t, function(left(w, t), right(w, t)))
    return lambda w, t: write(w, t, function(*[read(w, t) for read in reads]))


def parts_of(operand, n: int) -> list:
    parts = list(operand.parts) if isinstance(operand, Vector) else [operand]
    if len(parts) != n:
        raise PtxError(f"{len(parts)} registers in place of {n}")
    return parts
