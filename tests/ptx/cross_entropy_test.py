"""nvcc's PTX of the loss's kernels, executed and compared with double precision:

    cross_entropy_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from documents import Documents
from operation_case import BOUNDARIES, TYPE, Case, OperationCase, integers, main, pointers
from tensors import BF16, FEW_ROUNDINGS, FLOAT, LONG_SUMS, Tensor

SCALE = float(np.float32(1 / 37))


class LossMask(ctypes.Structure):  # kernels/loss_mask.h
    _fields_ = pointers("bits offsets")


class Arguments(ctypes.Structure):  # kernels/cross_entropy.h
    _fields_ = [
        BOUNDARIES, ("mask", LossMask), TYPE, *pointers("ids"), ("id_bytes", ctypes.c_int32),
        *integers("n_vocabulary stride"), ("want_gradient", ctypes.c_int32),
        ("per_document", ctypes.c_int32), ("gradient_scale", ctypes.c_float), ("z_loss", ctypes.c_float), *pointers("logits losses"),
    ]  # fmt: skip


@dataclass(frozen=True)
class Shape:
    n_vocabulary: int
    stride: int = 0
    id_bytes: int = 2
    n_rows: int = 3
    seq_len: int = 4
    want_gradient: bool = True
    z_loss: float = 0.0
    masked: bool = False
    per_document: bool = False


def targets_of(documents: Documents, ids: np.ndarray, trained: np.ndarray) -> np.ndarray:
    """Returns the target of each token; -1 if it has none."""
    targets = np.full(documents.n_tokens, -1)
    for begin, end in documents.spans():
        following = slice(begin + 1, end)
        targets[begin : end - 1] = np.where(trained[following], ids[following].astype(int), -1)
    return targets


def weights_of(documents: Documents, targets: np.ndarray) -> np.ndarray:
    """Returns 1 / (targets of its document) for each token."""
    weights = np.ones(documents.n_tokens)
    for begin, end in documents.spans():
        weights[begin:end] = 1 / max(1, (targets[begin:end] >= 0).sum())
    return weights


def random_mask(case: Case, documents: Documents) -> tuple[np.ndarray, LossMask]:
    """Returns which tokens are trained, and the mask: rows follow each other from bit 5 on, with
    random bits around them; the second row has no mask."""
    first, n_rows = 5, len(documents.rows)
    bits = case.rng.integers(0, 2, -(-(first + documents.n_tokens) // 8) * 8).astype(np.uint8)
    trained = bits[first : first + documents.n_tokens].astype(bool)
    offsets = first + np.arange(n_rows) * documents.seq_len
    if n_rows > 1:
        offsets[1] = -1
        trained[documents.seq_len : 2 * documents.seq_len] = True
    memory = case.device.memory
    packed = np.packbits(bits, bitorder="little")
    return trained, LossMask(memory.put(packed), memory.put(offsets.astype(np.int64)))


def reference(logits: np.ndarray, targets: np.ndarray, z_loss: float, weights: np.ndarray):
    """Returns losses and gradients in double; 0 without a target."""
    has, x = targets >= 0, logits.astype(np.float64)
    losses, gradients = np.zeros(len(x)), np.zeros(x.shape)
    e = np.exp(x[has] - x[has].max(axis=1, keepdims=True))
    p, at = e / e.sum(axis=1, keepdims=True), (np.arange(has.sum()), targets[has])
    lse = np.log(e.sum(axis=1)) + x[has].max(axis=1)
    losses[has] = weights[has] * (lse - x[has][at])
    one_hot = np.zeros(p.shape)
    one_hot[at] = 1.0
    gradients[has] = weights[has, None] * SCALE * (p * (1 + 2 * z_loss * lse[:, None]) - one_hot)
    return losses, gradients


class CrossEntropyTest(OperationCase):
    sources = ("cross_entropy",)

    def run_loss(self, case: Case, s: Shape) -> None:
        documents = case.documents(s.n_rows, s.seq_len)
        n = documents.n_tokens
        ids = case.ids(n, s.n_vocabulary, s.id_bytes)
        trained, mask = np.ones(n, bool), LossMask()
        if s.masked:
            trained, mask = random_mask(case, documents)
        targets = targets_of(documents, ids, trained)
        weights = weights_of(documents, targets) if s.per_document else np.ones(n)
        x = case.numbers(n, s.n_vocabulary, scale=8.0)
        x[np.arange(n), targets] = case.numbers(1, n)[0]
        x[:: 3, s.n_vocabulary // 2] -= 60.0
        x = case.kind.rounded(x)
        x[targets < 0] = np.nan
        logits, losses = case.tensor(x, s.stride), Tensor(case.device, FLOAT, n, 1)
        case.device.run("cross_entropy", Arguments(
            documents.put(case.device), mask, case.kind.number, case.device.memory.put(ids),
            s.id_bytes, s.n_vocabulary, s.stride, s.want_gradient, s.per_document, SCALE,
            s.z_loss, logits.address, losses.address))
        exact, gradients = reference(x, targets, s.z_loss, weights)
        got = losses.read()[:, 0]
        np.testing.assert_allclose(got, exact, LONG_SUMS, LONG_SUMS)
        self.assertTrue((got[targets < 0] == 0).all())
        if s.want_gradient:
            # The rounding error of a large argument of exp becomes a relative error.
            tolerance = 3 * LONG_SUMS * np.abs(gradients) + FEW_ROUNDINGS * SCALE
            self.assert_right(logits, gradients, tolerance, targets < 0)
        else:
            np.testing.assert_array_equal(logits.read(), x)

    def test_agrees(self):
        for shape in (
            Shape(1), Shape(31), Shape(33, stride=40, id_bytes=4), Shape(64),
            Shape(65, stride=67, n_rows=1), Shape(65, stride=72, want_gradient=False),
            Shape(2100, stride=2104, n_rows=1, seq_len=2), Shape(300, n_rows=1),
        ):  # fmt: skip
            self.check(self.run_loss, BF16, shape)
        self.check(self.run_loss, BF16, Shape(70, stride=72, n_rows=1), misaligned=True)
        # As many packs, or single values, for each thread as are unrolled, and more: with one row,
        # and with several rows and padding.
        for n_rows in (1, 3):
            self.check(self.run_loss, BF16, Shape(1301, n_rows=n_rows, seq_len=2))
            for misaligned in (False, True):
                shape = Shape(10300, stride=10304, n_rows=n_rows, seq_len=2)
                self.check(self.run_loss, BF16, shape, misaligned=misaligned)
        self.check(self.run_loss, BF16, Shape(300, n_rows=1, z_loss=2.0**-7))
        self.check(self.run_loss, FLOAT, Shape(33, stride=36))

    def test_masks_choose_the_targets(self):
        """Also in documents whose bits are more bytes than a warp has lanes."""
        for per_document in (False, True):
            for shape in (
                Shape(33, n_rows=3, seq_len=7, masked=True, per_document=per_document),
                Shape(64, n_rows=4, seq_len=9, masked=True, per_document=per_document),
            ):
                self.check(self.run_loss, BF16, shape)
            self.check(self.run_loss, FLOAT, Shape(33, n_rows=2, seq_len=9, masked=True,
                                                   per_document=per_document))  # fmt: skip
        self.check(self.run_loss, BF16, Shape(2, n_rows=1, seq_len=300, masked=True,
                                              per_document=True))  # fmt: skip
        self.check(self.run_loss, BF16, Shape(33, n_rows=2, seq_len=9, per_document=True))


if __name__ == "__main__":
    main()
