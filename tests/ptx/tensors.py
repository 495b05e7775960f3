"""Tensors of float or bf16 in a device's memory, and checks of their values."""

from dataclasses import dataclass

import numpy as np

from conversions import from_bf16, to_bf16
from device import Device

# Error of float arithmetic, relative to the values that a result is computed from.
FEW_ROUNDINGS = 1e-6
LONG_SUMS = 4e-6


@dataclass(frozen=True)
class Kind:
    name: str
    number: int  # bd_type
    size: int

    def bits(self, values) -> np.ndarray:
        values = np.asarray(values, np.float32)
        return to_bf16(values) if self == BF16 else values

    def values(self, bits: np.ndarray) -> np.ndarray:
        return from_bf16(bits) if self == BF16 else bits

    def rounded(self, values) -> np.ndarray:
        """Returns the nearest float values that a tensor can hold."""
        return self.values(self.bits(values))


FLOAT = Kind("float", 0, 4)
BF16 = Kind("bf16", 1, 2)


class Tensor:
    """n rows of `width` values, `stride` values apart (None: without gaps), at an address that is
    aligned for packs or `misaligned`. Nothing may access the gaps between the rows."""

    def __init__(self, device: Device, kind: Kind, n: int, width: int, stride=None,
                 misaligned: bool = False):  # fmt: skip
        self.device, self.kind, self.n, self.width = device, kind, n, width
        self.stride = (stride or width) * kind.size
        shift = kind.size if misaligned else 0
        self.address = device.memory.allocate_rows(n, width * kind.size, self.stride, shift)

    def fill(self, values: np.ndarray) -> "Tensor":
        for row, bits in enumerate(self.kind.bits(values).reshape(self.n, self.width)):
            self.device.memory.write(self.address + row * self.stride, bits)
        return self

    def read(self) -> np.ndarray:
        dtype = np.uint16 if self.kind == BF16 else np.float32
        read = self.device.memory.read
        rows = [read(self.address + r * self.stride, self.width, dtype) for r in range(self.n)]
        return self.kind.values(np.stack(rows))

    def errors(self, exact: np.ndarray, tolerance, zeros=None) -> list[str]:
        """Lists what is wrong. Each value must be the rounding of a number within `tolerance` of
        the exact one, and the rows that `zeros` names must be exactly 0."""
        got, exact = self.read(), np.asarray(exact, np.float64).reshape(self.n, self.width)
        tolerance = np.broadcast_to(tolerance, exact.shape)
        if self.kind == BF16:
            low, high = (BF16.rounded(exact + side * tolerance) for side in (-1, 1))
        else:
            low, high = exact - tolerance, exact + tolerance
        if zeros is not None:
            low, high = (np.where(zeros[:, None], 0.0, bound) for bound in (low, high))
        bad = ~((low <= got) & (got <= high))  # also true for NaN
        return [f"[{r}][{c}] is {got[r, c]:.9g}, not {exact[r, c]:.9g}"
                for r, c in np.argwhere(bad)[:3]]  # fmt: skip
