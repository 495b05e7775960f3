#!/usr/bin/env python3
"""PyTorch training a small GPT-2 on packed documents: tokens per second, CPU ms per token.

    python3 -m venv /tmp/torch-venv
    /tmp/torch-venv/bin/pip install torch numpy
    /tmp/torch-venv/bin/python bench/train-rivals.py [--rows FILE.json] [--compile]

4 layers, 256 channels, 4 heads, rows of 512 tokens, 4 rows per step, vocabulary 8192, float. A
step is forward, backward and fused AdamW on rows with document attention, restarting positions
and targets inside documents. Attention is done in the two ways that PyTorch offers on a CPU:

    loop   scaled_dot_product_attention once per document, causal
    mask   scaled_dot_product_attention once per batch, with a block-diagonal mask

Without --rows, document lengths are log-normal of mean 200 (sigma 1, so the median is 121) from a
fixed seed, laid end to end and cut where a row ends. FILE.json is a list of rows, each the list
of its boundaries ([[0, 130, 512], ...]), so that another program can be measured on the same rows:
4 of them are a step, and the steps go round. Ids are random; speed does not depend on them.

A pass over all steps warms up (and compiles). Then the variants take turns, so that a machine
that slows down slows them all, and the median of the steps is printed. Tokens are those before a
row's last boundary; CPU time is that of the process, in which PyTorch's threads wait by spinning:
on a machine that does other work as well, both figures are worthless.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

N_LAYERS, N_CHANNELS, N_HEADS = 4, 256, 4
SEQ_LEN, ROWS_PER_STEP, VOCAB_SIZE = 512, 4, 8192
MEAN_LENGTH, SIGMA = 200, 1.0
SEED = 1
NO_TARGET = -100

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def generated_rows(n_rows: int) -> list[list[int]]:
    """Boundaries of full rows of log-normal documents."""
    random = np.random.default_rng(SEED)
    rows, row = [], [0]
    mu = math.log(MEAN_LENGTH) - SIGMA**2 / 2
    while len(rows) < n_rows:
        left = max(1, round(random.lognormal(mu, SIGMA)))
        while left > 0 and len(rows) < n_rows:
            end = min(row[-1] + left, SEQ_LEN)
            left -= end - row[-1]
            row.append(end)
            if end == SEQ_LEN:
                rows.append(row)
                row = [0]
    return rows


@dataclass(frozen=True)
class Batch:
    """The rows of a step: boundaries, and [rows][tokens] of ids, positions and targets."""

    rows: list[list[int]]
    ids: Tensor
    positions: Tensor
    targets: Tensor

    @property
    def n_tokens(self) -> int:
        return sum(row[-1] for row in self.rows)


def make_batch(rows: list[list[int]]) -> Batch:
    ids = torch.randint(VOCAB_SIZE, (len(rows), SEQ_LEN))
    positions = torch.zeros_like(ids)
    targets = torch.full_like(ids, NO_TARGET)
    for r, row in enumerate(rows):
        for begin, end in zip(row, row[1:], strict=False):
            positions[r, begin:end] = torch.arange(end - begin)
            targets[r, begin : end - 1] = ids[r, begin + 1 : end]
    return Batch(rows, ids, positions, targets)


def loop_attention(batch: Batch) -> Attention:
    """One causal call per document. Padding attends to nothing and gives zero."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = []
        for r, row in enumerate(batch.rows):
            parts = [
                functional.scaled_dot_product_attention(
                    *(x[r : r + 1, :, begin:end] for x in (q, k, v)), is_causal=True
                )
                for begin, end in zip(row, row[1:], strict=False)
            ]
            if row[-1] < SEQ_LEN:
                parts.append(torch.zeros_like(q[r : r + 1, :, row[-1] :]))
            rows.append(torch.cat(parts, dim=2))
        return torch.cat(rows)

    return attend


def mask_attention(batch: Batch) -> Attention:
    """One call under a mask [rows][1][tokens][tokens]. Padding is a document of its own."""
    index = torch.arange(SEQ_LEN)
    segment = torch.stack(
        [torch.searchsorted(torch.tensor(row), index, right=True) for row in batch.rows]
    )
    visible = (segment[:, :, None] == segment[:, None, :]) & (index[None, :] <= index[:, None])
    mask = visible[:, None]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return attend


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(N_CHANNELS)
        self.qkv = nn.Linear(N_CHANNELS, 3 * N_CHANNELS)
        self.proj = nn.Linear(N_CHANNELS, N_CHANNELS)
        self.ln_2 = nn.LayerNorm(N_CHANNELS)
        self.fc_1 = nn.Linear(N_CHANNELS, 4 * N_CHANNELS)
        self.fc_2 = nn.Linear(4 * N_CHANNELS, N_CHANNELS)

    def forward(self, x: Tensor, attend: Attention) -> Tensor:
        n_rows, n_tokens, _ = x.shape
        qkv = self.qkv(self.ln_1(x)).view(n_rows, n_tokens, 3, N_HEADS, -1)
        y = attend(*qkv.permute(2, 0, 3, 1, 4).unbind())
        x = x + self.proj(y.transpose(1, 2).reshape(n_rows, n_tokens, N_CHANNELS))
        return x + self.fc_2(functional.gelu(self.fc_1(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """Gives the mean loss over a batch's targets."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB_SIZE, N_CHANNELS)
        self.positions = nn.Embedding(SEQ_LEN, N_CHANNELS)
        self.blocks = nn.ModuleList(Block() for _ in range(N_LAYERS))
        self.ln_f = nn.LayerNorm(N_CHANNELS)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, batch: Batch, attend: Attention) -> Tensor:
        x = self.tokens(batch.ids) + self.positions(batch.positions)
        for block in self.blocks:
            x = block(x, attend)
        logits = functional.linear(self.ln_f(x), self.tokens.weight)
        return functional.cross_entropy(
            logits.flatten(0, 1), batch.targets.flatten(), ignore_index=NO_TARGET
        )


class Trainer:
    """One variant, with a model and an optimizer of its own, and what its steps cost."""

    def __init__(
        self, name: str, attention: Callable[[Batch], Attention], batches: list[Batch]
    ) -> None:
        torch.manual_seed(SEED)
        self.name = name
        self.batches = batches
        self.attends = [attention(batch) for batch in batches]
        self.model = Gpt2()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.wall_per_token: list[float] = []
        self.cpu_per_token: list[float] = []

    def compile(self) -> None:
        self.name += ", compiled"
        self.model.compile(dynamic=False)

    def step(self, i: int) -> float:
        """Trains on batch i and returns its loss."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(self.batches[i], self.attends[i])
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def measure(self, i: int) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.step(i)
        n_tokens = self.batches[i].n_tokens
        self.wall_per_token.append((time.perf_counter() - wall) / n_tokens)
        self.cpu_per_token.append((time.process_time() - cpu) / n_tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure PyTorch on packed documents.")
    parser.add_argument("--rows", type=Path, metavar="FILE.json", help="boundaries of the rows")
    parser.add_argument("--steps", type=int, default=20, help="steps to measure [default: 20]")
    parser.add_argument("--threads", type=int, default=2, help="threads [default: 2]")
    parser.add_argument("--compile", action="store_true", help="the compiled variants as well")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(SEED)
    rows = (
        json.loads(arguments.rows.read_text(encoding="utf-8"))
        if arguments.rows
        else generated_rows(ROWS_PER_STEP)
    )
    if not rows or len(rows) % ROWS_PER_STEP:
        parser.error(f"{len(rows)} rows; steps take {ROWS_PER_STEP}")
    if any(row[0] != 0 or row[-1] > SEQ_LEN or row != sorted(set(row)) for row in rows):
        parser.error(f"boundaries must rise from 0 to at most {SEQ_LEN}")
    batches = [
        make_batch(rows[r : r + ROWS_PER_STEP]) for r in range(0, len(rows), ROWS_PER_STEP)
    ]
    n_segments = sum(len(row) - 1 for row in rows)
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads; {len(rows)} rows,", end=" ")
    print(f"{n_segments} segments, {sum(batch.n_tokens for batch in batches)} tokens")

    variants = {"loop": loop_attention, "mask": mask_attention}
    trainers = [Trainer(name, attention, batches) for name, attention in variants.items()]
    if arguments.compile:
        torch._dynamo.config.recompile_limit = len(batches) * len(variants)
        for name, attention in variants.items():
            trainers.append(Trainer(name, attention, batches))
            trainers[-1].compile()
    for trainer in trainers:
        losses = [trainer.step(i) for i in range(len(batches))]
        print(f"{trainer.name}: loss of the first step {losses[0]:.5f}")
    for step in range(arguments.steps):
        for trainer in trainers:
            trainer.measure(step % len(batches))

    print(f"\n{'variant':16} {'tokens/s':>10} {'CPU ms/token':>14}")
    for trainer in trainers:
        speed = 1 / statistics.median(trainer.wall_per_token)
        cpu_ms = 1000 * statistics.median(trainer.cpu_per_token)
        print(f"{trainer.name:16} {speed:10,.0f} {cpu_ms:14.3f}")


if __name__ == "__main__":
    main()
