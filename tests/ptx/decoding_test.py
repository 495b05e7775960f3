"""nvcc's PTX of the kernels of generation, executed and compared with double precision:

    decoding_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from activations import GELU, activated
from documents import Documents
from operation_case import (
    BOUNDARIES, TYPE, Case, OperationCase, integers, main, pointers,
)  # fmt: skip
from tensors import BF16, FLOAT, LONG_SUMS

OUT_IN, IN_OUT = 0, 1
BLOCK = 64  # BD_CACHE_BLOCK
SCALE = 0.25


class LinearArguments(ctypes.Structure):  # kernels/linear_by_token.h
    _fields_ = [
        TYPE, *integers("n_tokens n_in n_out out_stride"), ("layout", ctypes.c_int),
        ("activation", ctypes.c_int), *pointers("x rows weight bias out"),
    ]  # fmt: skip


class AttentionArguments(ctypes.Structure):  # kernels/attention_cached.h
    _fields_ = [
        BOUNDARIES, TYPE, *integers("n_heads n_kv_heads head_size q_stride kv_stride"),
        *integers("window capacity longest"), ("scale", ctypes.c_float),
        *pointers("slots past q k v keys values out"),
    ]  # fmt: skip


@dataclass(frozen=True)
class Layer:
    n_tokens: int
    n_in: int
    n_out: int
    layout: int = OUT_IN
    gap: int = 0
    activation: int = 0


@dataclass(frozen=True)
class Heads:
    lengths: tuple[int, ...]  # new tokens of each document
    past: tuple[int, ...]
    head_size: int
    n_heads: int = 2
    n_kv_heads: int = 1
    window: int = 0


class DecodingTest(OperationCase):
    sources = ("attention_cached", "linear_by_token")

    def run_linear(self, case: Case, s: Layer) -> None:
        """The tokens are rows of x in reverse order."""
        x, bias = case.numbers(s.n_tokens, s.n_in), case.numbers(1, s.n_out)
        weight = case.numbers(s.n_out, s.n_in)
        given = weight if s.layout == OUT_IN else weight.T
        rows = np.arange(s.n_tokens, dtype=np.int32)[::-1].copy()
        out = case.room(s.n_tokens, s.n_out, s.n_out + s.gap)
        case.device.run("linear_by_token", LinearArguments(
            case.kind.number, s.n_tokens, s.n_in, s.n_out, s.n_out + s.gap, s.layout,
            s.activation, case.tensor(x).address, case.device.memory.put(rows),
            case.tensor(given).address, case.tensor(bias).address, out.address))
        exact = x[::-1].astype(np.float64) @ weight.T.astype(np.float64) + bias
        size = np.abs(x[::-1]) @ np.abs(weight.T) + np.abs(bias)
        if s.activation:
            exact = activated(s.activation, exact)[0]
        self.assert_right(out, exact, 2 * LONG_SUMS * size)

    def test_linear_layers_agree(self):
        for kind in (BF16, FLOAT):
            for layout in (OUT_IN, IN_OUT):
                for layer in (
                    Layer(1, 64, 40, layout), Layer(5, 33, 17, layout, gap=3),
                    Layer(4, 264, 33, layout), Layer(2, 31, 72, layout, activation=GELU),
                ):  # fmt: skip
                    self.check(self.run_linear, kind, layer)
                self.check(self.run_linear, kind, Layer(3, 64, 64, layout), misaligned=True)

    def run_attention(self, case: Case, s: Heads) -> None:
        """Document i lies in slot n - 1 - i of a cache that its earlier tokens filled."""
        n, group = len(s.lengths), s.n_heads // s.n_kv_heads
        bounds = [0, *map(int, np.cumsum(s.lengths))]
        longest = max(past + new for past, new in zip(s.past, s.lengths))
        capacity = -(-longest // BLOCK) * BLOCK
        width = -(-s.head_size // 16) * 16
        rows = [case.numbers(past + new, (s.n_heads + 2 * s.n_kv_heads) * s.head_size)
                for past, new in zip(s.past, s.lengths)]  # fmt: skip
        documents = [r.reshape(len(r), -1, s.head_size).astype(np.float64) for r in rows]
        shape = (n, s.n_kv_heads, capacity, width)
        keys, values = np.zeros(shape), np.zeros(shape)
        for i, (document, past) in enumerate(zip(documents, s.past)):
            heads = np.moveaxis(document[:past, s.n_heads:], 1, 0)
            keys[n - 1 - i, :, :past, : s.head_size] = heads[: s.n_kv_heads]
            values[n - 1 - i, :, :past, : s.head_size] = heads[s.n_kv_heads :]
        new = case.tensor(np.concatenate([r[past:] for r, past in zip(rows, s.past)]))
        stride, step = rows[0].shape[1], s.head_size * case.kind.size
        caches = [case.tensor(cache.reshape(-1, width)) for cache in (keys, values)]
        out, memory = case.room(bounds[-1], s.n_heads * s.head_size), case.device.memory
        case.device.run("attention_cached", AttentionArguments(
            Documents(bounds[-1], [bounds]).put(case.device), case.kind.number, s.n_heads,
            s.n_kv_heads, s.head_size, stride, stride, s.window, capacity, longest, SCALE,
            memory.put(np.arange(n, dtype=np.int32)[::-1].copy()),
            memory.put(np.array(s.past, np.int32)), new.address,
            new.address + s.n_heads * step, new.address + (s.n_heads + s.n_kv_heads) * step,
            *[cache.address for cache in caches], out.address))
        exact = np.concatenate([
            self.attended(s, document, t, group)
            for document, past in zip(documents, s.past) for t in range(past, len(document))
        ]).reshape(bounds[-1], -1)  # fmt: skip
        self.assert_right(out, exact, 2e-5)

    @staticmethod
    def attended(s: Heads, document: np.ndarray, t: int, group: int) -> np.ndarray:
        """Returns the results of the heads of token t."""
        first = max(0, t + 1 - s.window) if s.window else 0
        results = []
        for head in range(s.n_heads):
            kv = s.n_heads + head // group
            scores = SCALE * document[first : t + 1, kv] @ document[t, head]
            p = np.exp(scores - scores.max())
            results.append(p @ document[first : t + 1, kv + s.n_kv_heads] / p.sum())
        return np.stack(results)

    def test_attention_agrees(self):
        for kind in (BF16, FLOAT):
            self.check(self.run_attention, kind, Heads((1, 3), (258, 0), 64))
            self.check(self.run_attention, kind, Heads((2, 1), (5, 33), 20, 2, 2))
            self.check(self.run_attention, kind, Heads((1,), (300,), 33, 1, 1, window=50))
        self.check(self.run_attention, BF16, Heads((4,), (9,), 64), misaligned=True)


if __name__ == "__main__":
    main()
