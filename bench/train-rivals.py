#!/usr/bin/env python3
"""PyTorch training GPT-2 or Llama on packed documents: tokens per second, CPU ms per token.

    bench/train                                             runs it beside ours
    python3 bench/train-rivals.py [--rows FILE.json] [--compile]     with a torch, alone

By default GPT-2 with 4 layers, 256 channels, 4 heads, rows of 512 tokens, 4 rows per step,
vocabulary 8192; float. With --kv-heads it is Llama: RMS norms by PyTorch's own function, rotary
positions by elementwise operations, with cosines and sines that are made once for each batch and
not timed, grouped heads by repeating keys and values (repeat_interleave), and a gated feed-forward
block. A step is forward, backward and fused AdamW on rows with document attention, restarting
positions and targets inside documents. Attention is done in the two ways that PyTorch offers on a
CPU:

    loop   scaled_dot_product_attention once per document, causal
    mask   scaled_dot_product_attention once per batch, with a block-diagonal mask

Without --rows, document lengths are log-normal of mean 200 (sigma 1, so the median is 121) from a
fixed seed, laid end to end and cut where a row ends. FILE.json is a list of rows, each the list
of its boundaries ([[0, 130, 512], ...]), so that another program can be measured on the same rows:
--batch of them are a step, and the steps go round. Ids are random; speed does not depend on them.

A pass over all steps warms up (and compiles). Then the variants take turns, so that a machine
that slows down slows them all, and the median of the steps is printed. Tokens are those before a
row's last boundary; CPU time is that of the process, in which PyTorch's threads wait by spinning:
on a machine that does other work as well, both figures are worthless.

With --turns another program says when: one JSON object is printed after the warm-up (`torch`,
`first_losses` by variant), and one after each line of standard input (`seconds`: of each variant
CPU and wall seconds of each of the --steps steps, per token).
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

MEAN_LENGTH, SIGMA = 200, 1.0
SEED = 1
NO_TARGET = -100

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Sizes:
    layers: int
    channels: int
    heads: int
    seq_len: int
    batch: int
    vocabulary: int
    kv_heads: int  # 0: GPT-2
    feed_forward: int


def generated_rows(n_rows: int, seq_len: int) -> list[list[int]]:
    """Returns the boundaries of full rows of log-normal documents."""
    random = np.random.default_rng(SEED)
    rows, row = [], [0]
    mu = math.log(MEAN_LENGTH) - SIGMA**2 / 2
    while len(rows) < n_rows:
        left = max(1, round(random.lognormal(mu, SIGMA)))
        while left > 0 and len(rows) < n_rows:
            end = min(row[-1] + left, seq_len)
            left -= end - row[-1]
            row.append(end)
            if end == seq_len:
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


def make_batch(rows: list[list[int]], sizes: Sizes) -> Batch:
    ids = torch.randint(sizes.vocabulary, (len(rows), sizes.seq_len))
    positions = torch.zeros_like(ids)
    targets = torch.full_like(ids, NO_TARGET)
    for r, row in enumerate(rows):
        for begin, end in zip(row, row[1:], strict=False):
            positions[r, begin:end] = torch.arange(end - begin)
            targets[r, begin : end - 1] = ids[r, begin + 1 : end]
    return Batch(rows, ids, positions, targets)


def loop_attention(batch: Batch) -> Attention:
    """Makes one causal call per document. Padding attends to nothing and gives zero."""

    lengths = [[b - a for a, b in zip(row, row[1:], strict=False)] for row in batch.rows]
    seq_len = batch.ids.shape[1]

    # split() is used because its gradient is one cat(); each slice's would be a whole row of zeros.
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = []
        for row_lengths, *row in zip(lengths, *(x.split(1) for x in (q, k, v)), strict=True):
            padding = seq_len - sum(row_lengths)
            *documents, rest = zip(
                *(x.split([*row_lengths, padding], dim=2) for x in row), strict=True
            )
            parts = [
                functional.scaled_dot_product_attention(*document, is_causal=True)
                for document in documents
            ]
            rows.append(torch.cat([*parts, torch.zeros_like(rest[0])], dim=2))
        return torch.cat(rows)

    return attend


def mask_attention(batch: Batch) -> Attention:
    """Makes one call under a mask [rows][1][tokens][tokens]. Padding is one more document."""
    index = torch.arange(batch.ids.shape[1])
    segment = torch.stack(
        [torch.searchsorted(torch.tensor(row), index, right=True) for row in batch.rows]
    )
    visible = (segment[:, :, None] == segment[:, None, :]) & (index[None, :] <= index[:, None])
    mask = visible[:, None]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return attend


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        channels = sizes.channels
        self.n_heads = sizes.heads
        self.ln_1 = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.ln_2 = nn.LayerNorm(channels)
        self.fc_1 = nn.Linear(channels, sizes.feed_forward)
        self.fc_2 = nn.Linear(sizes.feed_forward, channels)

    def forward(self, x: Tensor, attend: Attention) -> Tensor:
        n_rows, n_tokens, n_channels = x.shape
        qkv = self.qkv(self.ln_1(x)).view(n_rows, n_tokens, 3, self.n_heads, -1)
        y = attend(*qkv.permute(2, 0, 3, 1, 4).unbind())
        x = x + self.proj(y.transpose(1, 2).reshape(n_rows, n_tokens, n_channels))
        return x + self.fc_2(functional.gelu(self.fc_1(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """Returns the mean loss over a batch's targets."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.channels)
        self.positions = nn.Embedding(sizes.seq_len, sizes.channels)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.channels)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def prepare(self, batch: Batch) -> None:
        """Makes what depends on a batch alone. GPT-2 needs nothing."""

    def forward(self, batch: Batch, attend: Attention) -> Tensor:
        x = self.tokens(batch.ids) + self.positions(batch.positions)
        for block in self.blocks:
            x = block(x, attend)
        logits = functional.linear(self.ln_f(x), self.tokens.weight)
        return functional.cross_entropy(
            logits.flatten(0, 1), batch.targets.flatten(), ignore_index=NO_TARGET
        )


class LlamaBlock(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        channels, self.head_size = sizes.channels, sizes.channels // sizes.heads
        self.n_heads, self.n_kv_heads = sizes.heads, sizes.kv_heads
        self.norm_1 = nn.RMSNorm(channels, eps=1e-5)
        n_heads = sizes.heads + 2 * sizes.kv_heads
        self.qkv = nn.Linear(channels, n_heads * self.head_size, bias=False)
        self.proj = nn.Linear(channels, channels, bias=False)
        self.norm_2 = nn.RMSNorm(channels, eps=1e-5)
        self.gate_up = nn.Linear(channels, 2 * sizes.feed_forward, bias=False)
        self.down = nn.Linear(sizes.feed_forward, channels, bias=False)

    def forward(self, x: Tensor, attend: Attention, cos: Tensor, sin: Tensor) -> Tensor:
        n_rows, n_tokens, n_channels = x.shape
        heads = self.qkv(self.norm_1(x)).view(n_rows, n_tokens, -1, self.head_size).transpose(1, 2)
        rotated, v = heads.split([self.n_heads + self.n_kv_heads, self.n_kv_heads], dim=1)
        first, second = rotated.chunk(2, dim=-1)
        rotated = rotated * cos + torch.cat([-second, first], dim=-1) * sin
        q, k = rotated.split([self.n_heads, self.n_kv_heads], dim=1)
        group = self.n_heads // self.n_kv_heads
        y = attend(q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))
        x = x + self.proj(y.transpose(1, 2).reshape(n_rows, n_tokens, n_channels))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Llama(nn.Module):
    """Returns the mean loss over a batch's targets."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head_size = sizes.channels // sizes.heads
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.channels)
        self.blocks = nn.ModuleList(LlamaBlock(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.channels, eps=1e-5)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.angles: dict[int, tuple[Tensor, Tensor]] = {}

    def prepare(self, batch: Batch) -> None:
        frequencies = 1e5 ** (-torch.arange(0, self.head_size, 2) / self.head_size)
        angles = (batch.positions[:, None, :, None] * frequencies).repeat(1, 1, 1, 2)
        self.angles[id(batch)] = angles.cos(), angles.sin()

    def forward(self, batch: Batch, attend: Attention) -> Tensor:
        cos, sin = self.angles[id(batch)]
        x = self.tokens(batch.ids)
        for block in self.blocks:
            x = block(x, attend, cos, sin)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(
            logits.flatten(0, 1), batch.targets.flatten(), ignore_index=NO_TARGET
        )


VARIANTS = {"loop": loop_attention, "mask": mask_attention}


class Trainer:
    """One variant, with its own model and optimizer, and the cost of its steps."""

    def __init__(self, name: str, sizes: Sizes, batches: list[Batch]) -> None:
        torch.manual_seed(SEED)
        self.name = name
        self.batches = batches
        self.attends = [VARIANTS[name](batch) for batch in batches]
        self.model = Llama(sizes) if sizes.kv_heads else Gpt2(sizes)
        for batch in batches:
            self.model.prepare(batch)
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


def make_trainers(sizes: Sizes, batches: list[Batch], compiled: bool) -> list[Trainer]:
    trainers = [Trainer(name, sizes, batches) for name in VARIANTS]
    if compiled:
        torch._dynamo.config.recompile_limit = len(batches) * len(VARIANTS)
        for name in VARIANTS:
            trainers.append(Trainer(name, sizes, batches))
            trainers[-1].compile()
    return trainers


def take_turns(trainers: list[Trainer], n_steps: int, first: int) -> None:
    for step in range(first, first + n_steps):
        for trainer in trainers:
            trainer.measure(step % len(trainer.batches))


def answer_turns(trainers: list[Trainer], n_steps: int, first_losses: dict[str, float]) -> None:
    ready = {"torch": torch.__version__, "first_losses": first_losses}
    print(json.dumps(ready), flush=True)
    for turn, _ in enumerate(sys.stdin):
        begun = len(trainers[0].cpu_per_token)
        take_turns(trainers, n_steps, turn * n_steps)
        seconds = {
            trainer.name: [trainer.cpu_per_token[begun:], trainer.wall_per_token[begun:]]
            for trainer in trainers
        }
        print(json.dumps({"seconds": seconds}), flush=True)


def print_medians(trainers: list[Trainer]) -> None:
    print(f"\n{'variant':16} {'tokens/s':>10} {'CPU ms/token':>14}")
    for trainer in trainers:
        speed = 1 / statistics.median(trainer.wall_per_token)
        cpu_ms = 1000 * statistics.median(trainer.cpu_per_token)
        print(f"{trainer.name:16} {speed:10,.0f} {cpu_ms:14.3f}")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure PyTorch on packed documents.")
    add = parser.add_argument
    add("--rows", type=Path, metavar="FILE.json", help="boundaries of the rows")
    add("--layers", type=int, default=4, help="[default: 4]")
    add("--channels", type=int, default=256, help="[default: 256]")
    add("--heads", type=int, default=4, help="[default: 4]")
    add("--kv-heads", type=int, default=0, help="heads of keys, for Llama [default: GPT-2]")
    add("--feed-forward", type=int, default=0, help="[default: 4 times the channels]")
    add("--seq-len", type=int, default=512, help="tokens in a row [default: 512]")
    add("--batch", type=int, default=4, help="rows of a step [default: 4]")
    add("--vocabulary", type=int, default=8192, help="[default: 8192]")
    add("--steps", type=int, default=20, help="steps to measure [default: 20]")
    add("--threads", type=int, default=2, help="[default: 2]")
    add("--compile", action="store_true", help="the compiled variants as well")
    add("--turns", action="store_true", help="measure after each line of standard input")
    return parser


def main() -> None:
    parser = make_parser()
    given = parser.parse_args()
    sizes = Sizes(given.layers, given.channels, given.heads, given.seq_len, given.batch,
                  given.vocabulary, given.kv_heads, given.feed_forward or 4 * given.channels)
    torch.set_num_threads(given.threads)
    torch.manual_seed(SEED)
    rows = (
        json.loads(given.rows.read_text(encoding="utf-8"))
        if given.rows
        else generated_rows(sizes.batch, sizes.seq_len)
    )
    if not rows or len(rows) % sizes.batch:
        parser.error(f"{len(rows)} rows; steps take {sizes.batch}")
    if any(row[0] != 0 or row[-1] > sizes.seq_len or row != sorted(set(row)) for row in rows):
        parser.error(f"boundaries must rise from 0 to at most {sizes.seq_len}")
    batches = [
        make_batch(rows[r : r + sizes.batch], sizes) for r in range(0, len(rows), sizes.batch)
    ]
    trainers = make_trainers(sizes, batches, given.compile)
    first_losses = {}
    for trainer in trainers:
        losses = [trainer.step(i) for i in range(len(batches))]
        first_losses[trainer.name] = losses[0]
    if given.turns:
        answer_turns(trainers, given.steps, first_losses)
        return
    n_segments = sum(len(row) - 1 for row in rows)
    print(f"PyTorch {torch.__version__}, {given.threads} threads; {len(rows)} rows,", end=" ")
    print(f"{n_segments} segments, {sum(batch.n_tokens for batch in batches)} tokens")
    for name, loss in first_losses.items():
        print(f"{name}: loss of the first step {loss:.5f}")
    take_turns(trainers, given.steps, 0)
    print_medians(trainers)


if __name__ == "__main__":
    main()
