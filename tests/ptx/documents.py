"""Documents in rows, in the form of kernels/boundaries.h."""

import numpy as np

from device import Boundaries, Device


def random_rows(rng, n_rows: int, seq_len: int) -> list[list[int]]:
    """Returns the boundaries of each row: documents of one token and more, some rows with
    padding."""
    rows = []
    for _ in range(n_rows):
        used = seq_len if rng.random() < 0.4 else int(rng.integers(1, seq_len + 1))
        bounds = [0]
        while bounds[-1] < used:
            longest = used - bounds[-1] if rng.random() < 0.5 else min(3, used - bounds[-1])
            bounds.append(bounds[-1] + int(rng.integers(1, longest + 1)))
        rows.append(bounds)
    return rows


class Documents:
    def __init__(self, seq_len: int, rows: list[list[int]]):
        self.seq_len, self.rows = seq_len, rows
        self.n_tokens = len(rows) * seq_len
        self.padding = np.ones(self.n_tokens, bool)
        for begin, end in self.spans():
            self.padding[begin:end] = False

    def spans(self):
        """Yields (first token, token after the last) of each document, in the batch."""
        for r, bounds in enumerate(self.rows):
            for begin, end in zip(bounds, bounds[1:]):
                yield r * self.seq_len + begin, r * self.seq_len + end

    def positions(self, past=None) -> np.ndarray:
        """Returns the position of each token in its document, of which `past` tokens (None: none)
        precede each segment; 0 in padding."""
        result = np.zeros(self.n_tokens, np.int64)
        for segment, (begin, end) in enumerate(self.spans()):
            result[begin:end] = np.arange(end - begin) + (0 if past is None else past[segment])
        return result

    def random_past(self, rng, most: int) -> np.ndarray:
        return rng.integers(0, most + 1, len(list(self.spans()))).astype(np.int32)

    def put(self, device: Device) -> Boundaries:
        """Puts them as a slice of a shard's boundaries: other rows come before."""
        before = [0, 1, 5]
        values = np.array(before + [b for bounds in self.rows for b in bounds], np.int32)
        offsets = len(before) + np.cumsum([0] + [len(bounds) for bounds in self.rows])
        memory = device.memory
        return Boundaries(len(self.rows), self.seq_len, memory.put(offsets.astype(np.int32)),
                          memory.put(values))
