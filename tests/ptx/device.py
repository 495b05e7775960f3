"""A device for one operation of kernels/cuda: the operation's own host code decides what to launch,
and PTX of an architecture runs.

To test another operation: name its source in toolchain.EXECUTED, declare its arguments as a
ctypes structure, and write an OperationCase, see operation_case.py."""

import ctypes
import functools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from machine import Launch, Program, Settings
from memory import Memory
from ptx_text import parse_module

LAUNCH_HOOK = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint),
    ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip
FILL_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
executed: set[tuple[int, str]] = set()  # (architecture, kernel), by all devices


class Error(ctypes.Structure):  # common/base/error.h
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 512)]


class Queue(ctypes.Structure):  # kernels/cuda/runtime/queue.h
    _fields_ = [
        ("stream", ctypes.c_void_p), ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_size_t), ("blas", ctypes.c_void_p),
    ]  # fmt: skip


class Boundaries(ctypes.Structure):  # kernels/boundaries.h
    _fields_ = [
        ("n_rows", ctypes.c_int64), ("seq_len", ctypes.c_int64),
        ("offsets", ctypes.c_void_p), ("values", ctypes.c_void_p),
    ]  # fmt: skip


@dataclass
class Fill:
    """A fill of device memory with a byte, by the host."""

    address: int
    value: int
    n_bytes: int


@functools.cache
def load_operations(folder: Path) -> ctypes.CDLL:
    """Loads lazily: an operation may refer to missing functions, as long as no test calls them."""
    program = ctypes.CDLL(None)
    program.dlopen.restype = ctypes.c_void_p
    path = str(folder / "operations.so")
    handle = program.dlopen(path.encode(), os.RTLD_LAZY)
    if not handle:
        raise OSError(f"cannot load {path}")
    return ctypes.CDLL(path, handle=handle)


@functools.cache
def ptx_text(folder: Path, source: str, architecture: int) -> str:
    return (folder / f"{source}.sm_{architecture}.ptx").read_text()


def no_change(text: str) -> str:
    return text


@functools.lru_cache(maxsize=32)  # changed texts are not worth keeping
def programs_of(text: str) -> dict[str, Program]:
    return {name: Program(kernel) for name, kernel in parse_module(text).items()}


def with_inline_assembly(folder: Path, architecture: int, sources: tuple[str]) -> set[str]:
    """Returns the names of the kernels with inline assembly, for which testing the source is not
    enough."""
    programs = [
        program for source in sources
        for program in programs_of(ptx_text(folder, source, architecture)).values()
    ]  # fmt: skip
    return {p.kernel.name for p in programs if p.kernel.has_inline_assembly}


class Device:
    def __init__(self, folder: Path, architecture: int, settings: Settings,
                 sources: tuple[str], change=no_change):  # fmt: skip
        """Knows the kernels of the sources. `change` is applied to each text first."""
        self.operations = load_operations(folder)
        self.programs = {}
        for source in sources:
            self.programs |= programs_of(change(ptx_text(folder, source, architecture)))
        self.architecture, self.settings = architecture, settings
        self.memory = Memory()

    def run(self, operation: str, arguments: ctypes.Structure, scratch_byte=None) -> None:
        """Calls bd_cuda_OPERATION with exactly the scratch memory that it asks for, filled with
        `scratch_byte` if that is given. A step inside of another operation has no such function: it
        needs none."""
        ask = getattr(self.operations, f"bd_cuda_{operation}_scratch", None)
        scratch_bytes = 0
        if ask:
            ask.restype = ctypes.c_size_t
            scratch_bytes = ask(ctypes.byref(arguments))
        scratch = self.memory.allocate(scratch_bytes)
        if scratch_byte is not None:
            self.memory.fill(scratch, scratch_byte, scratch_bytes)
        for work in self.record(operation, arguments, scratch, scratch_bytes):
            if isinstance(work, Fill):
                self.memory.fill(work.address, work.value, work.n_bytes)
                continue
            executed.add((self.architecture, work.kernel))
            self.programs[work.kernel].run(work, self.memory, self.settings)

    def record(self, operation, arguments, scratch: int, scratch_bytes: int) -> list:
        """Returns what the operation asks the device to do."""
        recorded, failures = [], []

        def note(name, grid, block, shared_bytes, values):
            try:
                sizes = [p.size for p in self.programs[name.decode()].kernel.parameters]
                parameters = [ctypes.string_at(values[i], n) for i, n in enumerate(sizes)]
                recorded.append(Launch(name.decode(), tuple(grid[:3]), tuple(block[:3]),
                                       shared_bytes, parameters))
            except Exception as error:  # it could not pass through C
                failures.append(error)

        hooks = LAUNCH_HOOK(note), FILL_HOOK(lambda *fill: recorded.append(Fill(*fill)))
        self.operations.bd_set_hooks(*hooks)
        error, queue = Error(), Queue(None, scratch, scratch_bytes, None)
        call = getattr(self.operations, f"bd_cuda_{operation}")
        status = call(ctypes.byref(arguments), ctypes.byref(queue), ctypes.byref(error))
        if failures:
            raise failures[0]
        if status != 0:
            raise RuntimeError(error.message.decode())
        return recorded

    def read(self, address: int, shape, kind) -> np.ndarray:
        return self.memory.read(address, int(np.prod(shape)), kind).reshape(shape)
