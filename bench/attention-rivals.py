#!/usr/bin/env python3
"""PyTorch's attention on packed documents, on the same rows as ours.

    build-cuda/bench/bench_attention --backend-module build-cuda/libbindery_cuda.so \\
        --precision bf16 --json > ours.json
    python3 bench/attention-rivals.py ours.json        # with a torch that has CUDA

On a CPU (--device cpu) bench/attention runs it beside ours. Every method that this machine has is
measured; for the others the reason is printed:

    varlen      torch.nn.attention.varlen (PyTorch 2.10 and newer; 16 bits only)
    flash-attn  flash_attn_varlen_func of the package flash-attn (16 bits only)
    flex        flex_attention, compiled, under a block mask made beforehand
    loop        scaled_dot_product_attention once per document, causal; on a CPU
    mask        scaled_dot_product_attention under a mask of all pairs, rows up to 4096 tokens

A pass is measured as ours is: as many calls as fill a twentieth of a second between two
synchronisations, and the median of nine such runs. TFLOP/s count only the allowed pairs, 2
products forward and 5 backward. On a CPU, CPU time is that of all threads of the process. Before
a method is measured, its result for the first document must equal the one for that document alone.
"""

import argparse
import inspect
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

N_RUNS = 9
RUN_SECONDS, LONG_SECONDS = 0.05, 1.0  # a long run is measured once
LONGEST_MASK = 4096
# The compared numbers are below 0.5; in bf16 both sides round at 2e-3.
TOLERANCE = 1e-2
SHAPE = ("mix", "seq_len", "head_size")
GIVEN = ("mix", "seq_len", "rows", "heads", "head_size", "documents", "pairs")
DTYPES = {"float": torch.float32, "bf16": torch.bfloat16}

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]  # [rows][tokens][heads][size] each


class Missing(Exception):
    """Raised when a method is not installed or cannot do this case; the message says why."""


class Case:
    """Boundaries and tensors of one of the measured cases."""

    def __init__(self, given: dict, dtype: torch.dtype, device: str) -> None:
        self.given, self.dtype, self.device = given, dtype, device
        self.rows, self.seq_len = given["rows"], given["seq_len"]
        shape = (self.rows, self.seq_len, given["heads"], given["head_size"])
        torch.manual_seed(1)
        self.q, self.k, self.v, self.d_out = (
            (torch.rand(shape, device=device) - 0.5).to(dtype) for _ in range(4)
        )
        for x in (self.q, self.k, self.v):
            x.requires_grad_()

    def cumulative(self) -> tuple[Tensor, int]:
        """Returns the boundaries of all rows as one sequence, and the longest document."""
        bounds, longest = [0], 0
        for r, row in enumerate(self.given["boundaries"]):
            bounds += [r * self.seq_len + bound for bound in row[1:]]
            longest = max(longest, *(b - a for a, b in zip(row, row[1:], strict=False)))
        return torch.tensor(bounds, dtype=torch.int32, device=self.device), longest

    def documents(self) -> Tensor:
        """Returns the number of each token's document, [rows][tokens]."""
        index = torch.arange(self.seq_len, device=self.device)
        rows = [torch.tensor(row, device=self.device) for row in self.given["boundaries"]]
        return torch.stack([torch.searchsorted(row, index, right=True) for row in rows])


# ---- The rivals: each takes a case and returns its attention, or says why not --------------


def on_tokens(attend: Callable[..., Tensor], case: Case, **causal: object) -> Attention:
    """Adapts functions that take [tokens][heads][size] and the boundaries, without rows."""
    if case.dtype == torch.float32:
        raise Missing("takes 16 bits only")
    cumulative, longest = case.cumulative()
    bounds = (cumulative, cumulative, longest, longest)

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(*(x.flatten(0, 1) for x in (q, k, v)), *bounds, **causal).view(q.shape)

    return attention


def varlen(case: Case) -> Attention:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        raise Missing(f"not in PyTorch {torch.__version__}; 2.10 has it") from None
    older = "is_causal" in inspect.signature(varlen_attn).parameters
    causal = {"is_causal": True} if older else {"window_size": (-1, 0)}
    return on_tokens(varlen_attn, case, **causal)


def flash_attn(case: Case) -> Attention:
    try:
        from flash_attn import flash_attn_varlen_func
    except ImportError:
        raise Missing("the package flash-attn is not installed") from None
    return on_tokens(flash_attn_varlen_func, case, causal=True)


def with_heads_first(attend: Attention) -> Attention:
    """Adapts functions that take [rows][heads][tokens][size]."""
    return lambda q, k, v: attend(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def flex(case: Case) -> Attention:
    try:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    except ImportError:
        raise Missing(f"not in PyTorch {torch.__version__}; 2.5 has it") from None
    if case.device != "cuda":
        raise Missing("is made for a GPU")
    documents = case.documents()

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (documents[row, query] == documents[row, key]) & (key <= query)

    tokens = case.seq_len
    blocks = create_block_mask(visible, case.rows, None, tokens, tokens, device=case.device)
    compiled = torch.compile(flex_attention, dynamic=False)
    return with_heads_first(lambda q, k, v: compiled(q, k, v, block_mask=blocks))


def loop(case: Case) -> Attention:
    if case.device != "cpu":
        raise Missing("a GPU has quicker ways")
    lengths = [[b - a for a, b in zip(row, row[1:], strict=False)]
               for row in case.given["boundaries"]]

    # split() is used because its gradient is one cat(); each slice's would be a whole row of zeros.
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = []
        for row_lengths, *row in zip(lengths, *(x.split(1) for x in (q, k, v)), strict=True):
            documents = zip(*(x.split(row_lengths, dim=2) for x in row), strict=True)
            parts = [
                functional.scaled_dot_product_attention(*document, is_causal=True)
                for document in documents
            ]
            rows.append(torch.cat(parts, dim=2))
        return torch.cat(rows)

    return with_heads_first(attend)


def mask(case: Case) -> Attention:
    if case.seq_len > LONGEST_MASK:
        raise Missing(f"rows longer than {LONGEST_MASK} tokens need too large a mask")
    documents, index = case.documents(), torch.arange(case.seq_len, device=case.device)
    same = documents[:, None, :, None] == documents[:, None, None, :]
    visible = same & (index[None, :] <= index[:, None])
    return with_heads_first(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    )


RIVALS = {
    "varlen": varlen,
    "flash-attn": flash_attn,
    "flex": flex,
    "loop": loop,
    "mask": mask,
}

# ---- Measuring ------------------------------------------------------------------------------


def check(case: Case, out: Tensor) -> None:
    """Refuses a method whose result differs from ours."""
    end = case.given["boundaries"][0][1]
    alone = with_heads_first(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    )(*(x[:1, :end].detach() for x in (case.q, case.k, case.v)))
    difference = (out[:1, :end].detach() - alone).abs().max().item()
    if not difference <= TOLERANCE:
        raise Missing(f"its first document differs by {difference:.2g} from the same one alone")


@dataclass(frozen=True)
class Time:
    """Returns the median milliseconds of one call."""

    wall: float
    cpu: float


def time_of(call: Callable[[], object], device: str) -> Time:
    def run(n_calls: int) -> Time:
        if device == "cuda":
            torch.cuda.synchronize()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(n_calls):
            call()
        if device == "cuda":
            torch.cuda.synchronize()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return Time(1e3 * wall / n_calls, 1e3 * cpu / n_calls)

    run(1)
    n_calls = 1
    while (one := run(n_calls)).wall * n_calls < 1e3 * RUN_SECONDS:
        n_calls *= 2
    is_long = one.wall * n_calls > 1e3 * LONG_SECONDS
    runs = [one] if is_long else [run(n_calls) for _ in range(N_RUNS)]
    return Time(*(statistics.median(getattr(one, what) for one in runs)
                  for what in ("wall", "cpu")))


def measure(case: Case, attention: Attention) -> dict:
    q, k, v = case.q, case.k, case.v
    out = attention(q, k, v)
    check(case, out)

    def backward_pass() -> object:
        return torch.autograd.grad(out, (q, k, v), case.d_out, retain_graph=True)

    forward = time_of(lambda: attention(q, k, v), case.device)
    backward = time_of(backward_pass, case.device)
    given = {key: case.given[key] for key in GIVEN}
    gflop = 2e-9 * given["pairs"] * given["heads"] * given["head_size"]
    cpu_ms = {"forward_cpu_ms": forward.cpu, "backward_cpu_ms": backward.cpu}
    return {
        **given,
        "forward_ms": forward.wall,
        "backward_ms": backward.wall,
        **(cpu_ms if case.device == "cpu" else {}),
        "forward_tflops": 2 * gflop / forward.wall,
        "backward_tflops": 5 * gflop / backward.wall,
        "both_tflops": 7 * gflop / (forward.wall + backward.wall),
    }


def measure_rival(name: str, ours: dict, device: str) -> tuple[list[dict], str | None]:
    """Returns what was measured, and the reasons why the rest was not."""
    cases, missing = [], None
    for given in ours["cases"]:
        try:
            torch.compiler.reset()  # every case is compiled for its own shapes
            case = Case(given, DTYPES[ours["precision"]], device)
            cases.append(measure(case, RIVALS[name](case)))
        except Missing as reason:
            missing = str(reason)
        except Exception as error:  # no memory, another signature: the other rivals go on
            missing = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return cases, missing


def print_table(ours: dict, rivals: list[dict], missing: dict[str, str]) -> None:
    print(f"{'mix':7} {'T':>6} {'head':>5} {'program':>11} {'ms forward':>11} {'backward':>9}"
          f" {'TFLOP/s forward':>16} {'backward':>9} {'both':>6}")
    for given in ours["cases"]:
        rows = [("bindery", given)]
        for rival in rivals:
            same = [c for c in rival["cases"] if all(c[key] == given[key] for key in SHAPE)]
            rows += [(rival["program"], case) for case in same]
        for program, c in rows:
            print(f"{c['mix']:7} {c['seq_len']:6} {c['head_size']:5} {program:>11}"
                  f" {c['forward_ms']:11.3f} {c['backward_ms']:9.3f}"
                  f" {c['forward_tflops']:16.1f} {c['backward_tflops']:9.1f}"
                  f" {c['both_tflops']:6.1f}")
    for name, why in missing.items():
        print(f"{name}: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure PyTorch's attention on our rows.")
    add = parser.add_argument
    add("ours", type=Path, metavar="FILE", help="what bench_attention --json printed")
    add("--device", default="cuda", choices=["cuda", "cpu"], help="[default: cuda]")
    add("--threads", type=int, default=2, help="on a CPU [default: 2]")
    add("--rivals", default=",".join(RIVALS), help="[default: all]")
    add("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"PyTorch {torch.__version__} finds no CUDA device")
    ours = json.loads(arguments.ours.read_text(encoding="utf-8"))
    rivals, missing = [], {}
    for name in arguments.rivals.split(","):
        cases, why = measure_rival(name, ours, arguments.device)
        if cases:
            rivals.append({"program": name, "cases": cases})
        if why:
            missing[name] = why
    if arguments.json:
        print(json.dumps({"torch": torch.__version__, "rivals": rivals, "missing": missing}))
    else:
        print_table(ours, rivals, missing)


if __name__ == "__main__":
    main()
