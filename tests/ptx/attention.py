"""Attention in bf16: batches of documents, the operations on a device, and two references: the
same in double, and in bf16 as a plain program would compute it."""

import ctypes
from dataclasses import dataclass

import numpy as np

from conversions import from_bf16, to_bf16
from device import Boundaries, Device
from documents import Documents
from tensors import BF16

SOURCES = ("attention_plan", "attention_forward", "attention_backward")
COMMON = [
    ("boundaries", Boundaries),
    ("type", ctypes.c_int),
    *[(name, ctypes.c_int64) for name in
      ("n_heads", "n_kv_heads", "head_size", "q_stride", "kv_stride", "window")],
    ("scale", ctypes.c_float),
    *[(name, ctypes.c_void_p) for name in ("q", "k", "v")],
]  # fmt: skip


class ForwardArguments(ctypes.Structure):  # kernels/attention.h
    _fields_ = COMMON + [(name, ctypes.c_void_p) for name in ("out", "lse")]


class BackwardArguments(ctypes.Structure):
    _fields_ = COMMON + [
        (name, ctypes.c_void_p) for name in ("out", "lse", "d_out", "d_q", "d_k", "d_v")
    ]


@dataclass(frozen=True)
class Shape:
    n_heads: int
    n_kv_heads: int
    head_size: int
    together: bool  # q, k and v are columns of one array, or else arrays with unused columns


class Batch(Documents):
    """Inputs as float arrays [token][head][head_size] of bf16 values; NaN in padding."""

    def __init__(self, rng, shape: Shape, seq_len: int, rows: list[list[int]], window: int = 0):
        super().__init__(seq_len, rows)
        self.shape, self.window = shape, window
        self.scale = float(np.float32(1 / np.sqrt(shape.head_size)))

        def tensor(n_heads: int, largest: float) -> np.ndarray:
            values = rng.uniform(-largest, largest, (self.n_tokens, n_heads, shape.head_size))
            values = from_bf16(to_bf16(values))
            values[self.padding] = np.nan
            return values

        self.q = tensor(shape.n_heads, 2.0)
        self.k, self.v = (tensor(shape.n_kv_heads, 2.0) for _ in range(2))
        self.d_out = tensor(shape.n_heads, 1.0)


# ---- On the device ---------------------------------------------------------------------------

UNUSED_COLUMNS = 8


class Tensors:
    """q, k and v or their gradients in a device's memory, in the layout of the shape."""

    def __init__(self, batch: Batch, device: Device, q=None, k=None, v=None):
        shape, self.device = batch.shape, device
        widths = [n * shape.head_size for n in (shape.n_heads, *[shape.n_kv_heads] * 2)]
        n = batch.n_tokens
        if shape.together:
            self.strides = [sum(widths)] * 3
            first = device.memory.allocate(2 * n * sum(widths))
            self.addresses = [first, first + 2 * widths[0], first + 2 * (widths[0] + widths[1])]
        else:
            self.strides = [width + UNUSED_COLUMNS for width in widths]
            self.addresses = [device.memory.allocate(2 * n * stride) for stride in self.strides]
        self.widths, self.n_tokens = widths, n
        for address, stride, values in zip(self.addresses, self.strides, (q, k, v)):
            for t in range(n if values is not None else 0):
                device.memory.write(address + 2 * t * stride, to_bf16(values[t]))

    def read(self, head_size: int) -> list[np.ndarray]:
        """Returns bits [token][head][head_size]."""
        tensors = []
        for address, stride, width in zip(self.addresses, self.strides, self.widths):
            tokens = [
                self.device.memory.read(address + 2 * t * stride, width, np.uint16)
                for t in range(self.n_tokens)
            ]
            tensors.append(np.stack(tokens).reshape(self.n_tokens, -1, head_size))
        return tensors

    def unused_is_untouched(self) -> bool:
        places = ((a + 2 * t * s + 2 * w, s - w)
                  for a, s, w in zip(self.addresses, self.strides, self.widths)
                  for t in range(self.n_tokens))  # fmt: skip
        if self.strides[0] != self.widths[0] + UNUSED_COLUMNS:
            return True  # there are no unused columns
        read = self.device.memory.read
        return all((read(at, n, np.uint16) == 0xFFFF).all() for at, n in places)


def run_attention(batch: Batch, device: Device, backward: bool = True) -> dict[str, np.ndarray]:
    """Runs forward, then backward from its results; returns bits of bf16 except for lse."""
    shape, memory = batch.shape, device.memory
    inputs = Tensors(batch, device, batch.q, batch.k, batch.v)
    gradients = Tensors(batch, device)
    out_shape = (batch.n_tokens, shape.n_heads, shape.head_size)
    out = memory.allocate(2 * int(np.prod(out_shape)))
    lse = memory.allocate(4 * batch.n_tokens * shape.n_heads)
    d_out = memory.put(to_bf16(batch.d_out))
    common = (batch.put(device), BF16.number, shape.n_heads, shape.n_kv_heads, shape.head_size,
              inputs.strides[0], inputs.strides[1], batch.window, batch.scale, *inputs.addresses)
    device.run("attention_bf16_forward", ForwardArguments(*common, out, lse))
    results = {
        "out": device.read(out, out_shape, np.uint16),
        "lse": device.read(lse, out_shape[:2], np.float32),
    }
    if backward:
        arguments = BackwardArguments(*common, out, lse, d_out, *gradients.addresses)
        device.run("attention_bf16_backward", arguments)
        results |= dict(zip(("d_q", "d_k", "d_v"), gradients.read(shape.head_size)))
    if not (memory.gaps_are_untouched() and gradients.unused_is_untouched()):
        raise AssertionError("something besides the results was written")
    return results


# ---- The reference ---------------------------------------------------------------------------


def reference(batch: Batch, plain: bool) -> dict[str, np.ndarray]:
    """In double; or (plain) in float, rounding to bf16 what a program has to store for the next
    product: probabilities, their gradients, results."""
    kind = np.float32 if plain else np.float64
    narrow = (lambda x: from_bf16(to_bf16(x))) if plain else (lambda x: x)
    group = batch.shape.n_heads // batch.shape.n_kv_heads
    q, k, v, d_out = (np.asarray(x, kind) for x in (batch.q, batch.k, batch.v, batch.d_out))
    results = {"out": np.zeros_like(q), "lse": np.zeros(q.shape[:2], kind)}
    results |= {f"d_{name}": np.zeros_like(x) for name, x in zip("qkv", (q, k, v))}
    scale = kind(batch.scale)
    for begin, end in batch.spans():
        visible = np.tri(end - begin, dtype=bool)
        if batch.window > 0:
            visible &= ~np.tri(end - begin, k=-batch.window, dtype=bool)
        for h in range(batch.shape.n_heads):
            g, here = h // group, slice(begin, end)
            scores = np.where(visible, scale * (q[here, h] @ k[here, g].T), -np.inf)
            top = scores.max(axis=1, keepdims=True)
            weights = np.exp(scores - top)
            total = weights.sum(axis=1, keepdims=True)
            results["lse"][here, h] = (top + np.log(total))[:, 0]
            out = narrow(narrow(weights) @ v[here, g] / total)
            results["out"][here, h] = out
            p = weights / total
            delta = (d_out[here, h] * out).sum(axis=1, keepdims=True)
            d_scores = narrow(p * (d_out[here, h] @ v[here, g].T - delta))
            results["d_q"][here, h] = scale * (d_scores @ k[here, g])
            results["d_k"][here, g] += scale * (d_scores.T @ q[here, h])
            results["d_v"][here, g] += narrow(p).T @ d_out[here, h]
    for name in ("d_q", "d_k", "d_v"):
        results[name] = narrow(results[name])
    return results


def disagreements(batch: Batch, got: dict[str, np.ndarray]) -> list[str]:
    """Lists what is wrong with results of run_attention(). Each may differ by at most twice the
    plain program's error (or by the error of float sums where that is 0), lse by the error of float
    sums, and padding must be exactly 0."""
    exact, plain = reference(batch, False), reference(batch, True)
    wrong = []
    for name, bits in got.items():
        values = bits if name == "lse" else from_bf16(bits)
        largest = max(np.abs(exact[name]).max(), 1.0)
        error = np.abs(plain[name] - exact[name]).max()
        allowed = 5e-6 * largest if name == "lse" else 2.0 * error + 1e-6 * largest
        # A comparison with NaN is false, so NaN counts as wrong.
        bad = ~(np.abs(values - exact[name]) <= allowed)
        if bad.any():
            at = np.unravel_index(np.flatnonzero(bad)[0], bad.shape)
            wrong.append(f"{name}{[int(i) for i in at]} and {bad.sum() - 1} others: "
                         f"{values[at]:.6g}, not {exact[name][at]:.6g} within {allowed:.3g}")
        if (bits[batch.padding] != 0).any():
            wrong.append(f"{name} is not 0 in padding")
    return wrong
