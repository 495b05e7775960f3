"""The memory of a launch: one array of bytes, parts of which are allocated.

The test allocates global memory, with a gap after each allocation. Each running block has a window
of shared memory, and the launch's parameters lie in another window. Addresses of the three spaces
(and generic ones) become indices into the array; an access that is misaligned or outside an
allocation is an error. Memory is not 0 at first: all bytes are 0xff, which is NaN in every
floating-point format."""

import numpy as np

from ptx_text import PtxError

GLOBAL_BASE = 0x7F4000000000
SHARED_BASE = 0x7F2000000000  # generic addresses of a block's shared memory
WINDOW = 1 << 24  # more than the shared memory of any block
GAP = 512  # larger than any access
POISON = 0xFF
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Memory:
    def __init__(self, global_bytes: int = 1 << 22):
        self.global_bytes = global_bytes
        self.used = GAP
        self.bytes = np.full(global_bytes, POISON, np.uint8)
        self.allocated = np.zeros(global_bytes, bool)
        self.words = {}
        self.n_stores = 0

    # ---- Global memory, used by the test

    def allocate(self, n_bytes: int, shift: int = 0) -> int:
        """Returns the address of n_bytes of poison, `shift` bytes after a multiple of 256."""
        begin = -(-self.used // 256) * 256 + shift
        self.used = begin + n_bytes + GAP
        if self.used > self.global_bytes:
            raise MemoryError(f"the test asks for more than {self.global_bytes} bytes")
        self.allocated[begin : begin + n_bytes] = True
        return GLOBAL_BASE + begin

    def allocate_rows(self, n: int, row_bytes: int, stride_bytes: int, shift: int) -> int:
        """The same for n rows. The gaps between rows are not allocated."""
        address = self.allocate(n * stride_bytes, shift)
        begin = address - GLOBAL_BASE
        rows = self.allocated[begin : begin + n * stride_bytes].reshape(n, stride_bytes)
        rows[:, row_bytes:] = False
        return address

    def put(self, array: np.ndarray) -> int:
        """Returns the address of a copy."""
        address = self.allocate(array.nbytes)
        self.write(address, array)
        return address

    def write(self, address: int, array: np.ndarray) -> None:
        begin = address - GLOBAL_BASE
        self.bytes[begin : begin + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)

    def fill(self, address: int, value: int, n_bytes: int) -> None:
        begin = address - GLOBAL_BASE
        if not self.allocated[begin : begin + n_bytes].all():
            raise PtxError(f"a fill of {n_bytes} bytes at {address:#x}: not allocated")
        self.bytes[begin : begin + n_bytes] = value

    def read(self, address: int, n: int, kind: type) -> np.ndarray:
        begin = address - GLOBAL_BASE
        n_bytes = n * np.dtype(kind).itemsize
        return self.bytes[begin : begin + n_bytes].view(kind).copy()

    def gaps_are_untouched(self) -> bool:
        end = self.global_bytes
        return bool((self.bytes[:end][~self.allocated[:end]] == POISON).all())

    # ---- Windows, used by the machine

    def open_windows(self, parameters: np.ndarray, n_blocks: int, variables: list) -> None:
        """`variables` are the (offset, size) of a block's shared memory."""
        end = max((offset + size for offset, size in variables), default=0)
        self.stride = -(-(end + GAP) // 1024) * 1024
        self.parameters_at = self.global_bytes
        n_parameters = -(-(len(parameters) + GAP) // 1024) * 1024
        self.shared_at = self.parameters_at + n_parameters
        total = self.shared_at + n_blocks * self.stride
        windows = np.full(total - self.global_bytes, POISON, np.uint8)
        windows[: len(parameters)] = parameters
        permitted = np.zeros(self.stride, bool)
        for offset, size in variables:
            permitted[offset : offset + size] = True
        of_parameters = np.zeros(n_parameters, bool)
        of_parameters[: len(parameters)] = True
        self.bytes = np.concatenate([self.bytes[: self.global_bytes], windows])
        self.allocated = np.concatenate(
            [self.allocated[: self.global_bytes], of_parameters, np.tile(permitted, n_blocks)]
        )
        self.words = {size: self.bytes.view(word) for size, word in WORDS.items()}

    def places(self, space: str, address, blocks, size: int):
        """Returns the indices of `size` bytes at each address (int64), for threads of `blocks`."""
        if space == "param":
            offset, base, end = address, self.parameters_at, self.shared_at - self.parameters_at
        elif space == "shared":
            offset, base, end = address, self.shared_at + blocks * self.stride, self.stride
        elif space == "global":
            offset, base, end = address - GLOBAL_BASE, 0, self.global_bytes
        else:
            shared = (address >= SHARED_BASE) & (address < SHARED_BASE + WINDOW)
            offset = address - np.where(shared, SHARED_BASE, GLOBAL_BASE)
            base = np.where(shared, self.shared_at + blocks * self.stride, 0)
            end = np.where(shared, self.stride, self.global_bytes)
        inside = (offset >= 0) & (offset <= end - size)
        places = np.where(inside, offset, 0) + base
        good = inside & self.allocated[places] & self.allocated[places + (size - 1)]
        if not good.all():
            first = np.atleast_1d(address)[np.flatnonzero(~np.atleast_1d(good))[0]]
            where = f"{space or 'generic'} {int(first):#x}"
            raise PtxError(f"{size} bytes at {where} are not allocated")
        if (offset & (size - 1)).any():
            raise PtxError(f"an address is not a multiple of {size}")
        return places

    def load(self, places, size: int):
        return self.words[size][places >> (size.bit_length() - 1)]

    def store(self, places, size: int, values) -> None:
        self.words[size][places >> (size.bit_length() - 1)] = values
        self.n_stores += 1
