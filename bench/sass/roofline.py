"""Upper bounds on the speed of the attention kernels' main loops, and of other kernels, on a GPU.

Attention is measured for documents of one length, in operations on allowed pairs: pairs that a
mask removes and scores that are computed twice do not count. Each bound is the speed that would be
reached if only one resource took time, without a pause: tensor cores, issue slots, exponentials,
bytes of shared memory (no bank conflict, no word read by two lanes at once), bytes of device
memory (every tensor once, the rest from the L2 cache). Tiles with a mask are assumed to cost as
much as the others. The lowest bound limits the speed; a measurement on a device will be below it.

All other kernels make one pass over memory: their bound is the bandwidth.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from attention import NEEDED_PRODUCTS, ROLES, TILE, Measured
from devices import Speed

# ---- Attention ------------------------------------------------------------------------------


def allowed_pairs(length: int) -> int:
    return length * (length + 1) // 2


def visited_tiles(kernel: Measured, length: int) -> float:
    """Counts tiles of 64×64 for one document and head: each block's columns up to the diagonal."""
    pairs = 0
    for first in range(0, length, kernel.rows):
        reach = min(first + kernel.rows, length)
        pairs += kernel.rows * -(-reach // kernel.columns) * kernel.columns
    return pairs / TILE**2


def attention_bounds(kernels: list[Measured], speed: Speed, length: int) -> dict[str, float]:
    """Returns TFLOP/s by limiting resource for the kernels of one operation, the lowest first."""
    clocks = speed.n_sms * speed.clock_hz
    seconds = dict.fromkeys(
        ["products", "issue", "exponentials", "shared memory", "memory"], 0.0
    )
    for kernel in kernels:
        tiles, loop = visited_tiles(kernel, length), kernel.main
        seconds["products"] += tiles * loop.hmma / speed.products / clocks
        seconds["issue"] += tiles * loop.issue_slots / speed.issue / clocks
        seconds["exponentials"] += tiles * loop.exponentials / speed.exponentials / clocks
        seconds["shared memory"] += tiles * loop.shared_bytes / speed.shared_bytes / clocks
        n_bytes = kernel.tensors * length * kernel.head_size * 2
        seconds["memory"] += n_bytes / speed.memory_bytes
    needed = NEEDED_PRODUCTS[kernels[0].operation] * 2 * kernels[0].head_size
    operations = needed * allowed_pairs(length)
    bounds = {name: operations / time / 1e12 for name, time in seconds.items()}
    return dict(sorted(bounds.items(), key=lambda bound: bound[1]))


# ---- Kernels that pass over memory ----------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    source: str
    kernels: str  # their names, or those of the steps that a common kernel takes
    element: str
    n_bf16: int  # bf16 numbers that are read or written for an element
    n_floats: int  # floats, or integers of that size
    what: str

    @property
    def n_bytes(self) -> int:
        return 2 * self.n_bf16 + 4 * self.n_floats


PASSES = [
    Pass("operations/activation.cu", "forward_step", "value", 2, 0, "x; out"),
    Pass("operations/activation.cu", "backward_step", "value", 3, 0, "x, d_out; d_x"),
    Pass("operations/activation.cu", "add_step", "value", 3, 0, "a, b; out"),
    Pass("operations/layer_norm.cu", "layer_norm_forward_kernel", "value", 2, 0, "x; out"),
    Pass("operations/layer_norm.cu", "layer_norm_input_kernel", "value", 4, 0, "x, d_out, d_x; d_x"),
    Pass("operations/layer_norm.cu", "layer_norm_partials_kernel", "value", 2, 0, "x, d_out"),
    Pass("operations/linear.cu", "bias_partials_kernel", "value", 1, 0, "d_out"),
    Pass("operations/cross_entropy.cu", "cross_entropy_kernel", "logit", 3, 0, "logits twice; gradient"),
    Pass("operations/embedding.cu", "embedding_forward_kernel", "value", 3, 0, "word, place; out"),
    Pass("operations/embedding.cu", "add_token_rows_kernel", "value", 1, 2, "d_out, table; table"),
    Pass("operations/embedding.cu", "add_position_rows_kernel", "value", 1, 0, "d_out"),
    Pass(
        "operations/embedding.cu",
        "count_ids_kernel fill_buckets_kernel order_buckets_kernel",
        "token",
        0,
        6,
        "ids, counts, starts, places",
    ),
    Pass("operations/embedding.cu", "place_buckets_kernel", "word", 0, 2, "count; start"),
    Pass("attention/attention_backward.cu", "rows_kernel", "value", 2, 1, "out, d_out; sums cleared"),
    Pass("attention/attention_float.cu", "deltas_kernel", "value", 0, 2, "out, d_out in float"),
    Pass("operations/optimizer.cu", "adamw_step", "parameter", 1, 7, "gradient, three; three, rounded"),
    Pass("operations/optimizer.cu", "squares_kernel", "gradient", 0, 1, "x"),
]
# These have no element worth counting: they read boundaries, sums of chunks or padding only.
SMALL = {
    "plan_kernel",
    "clear_padding_kernel",
    "attention_clear_padding_kernel",
    "add_parts_kernel",
}
# attention_float.cu's.
FLOAT_ATTENTION = {"float_forward_kernel", "key_gradient_kernel", "query_gradient_kernel"}


def undescribed(root: Path) -> list[str]:
    """Returns kernels that are in no table here, and entries of PASSES without a kernel."""
    described = {(p.source, name) for p in PASSES for name in p.kernels.split()}
    known = {name for _, name in described} | SMALL | FLOAT_ATTENTION | set(ROLES)
    found, gone = [], set(described)
    folder = root / "kernels/cuda"
    for path in sorted(folder.rglob("*.cu")):
        file = path.relative_to(folder).as_posix()
        text = path.read_text(encoding="utf-8")
        gone -= {
            (source, name)
            for source, name in described
            if source == file and re.search(rf"\b{name}\b", text)
        }
        kernels = re.findall(r"__global__ void(?: __launch_bounds__\(\w+\))?\s+(\w+)\(", text)
        found += [f"{file}: {name}" for name in kernels if name not in known]
    return found + [f"{source}: {name} (gone)" for source, name in sorted(gone)]
