"""The machine code that nvcc makes of the CUDA kernels, beside FlashAttention-2's, without a GPU.

    scripts/setup --cuda                                  once, for cuobjdump and nvdisasm
    python3 bench/sass [--arch 80 90 100 120] [--length 2048] [--flash-attention [LIBRARY]] [--json]

Compiles the attention kernels and reads their machine code. For each kernel and architecture:

    regs, spill    registers of a thread; bytes that it stores to and loads from its stack for
                   want of registers (of FlashAttention-2: the size of the stack)
    in loop        spilling instructions inside the main loop
    shared, blocks shared memory of a block in KiB; blocks that an SM holds, of how many warps

and of the main loop, for a tile of 64×64 pairs of query and key, by all warps together:

    slots, hmma    instructions issued, and how many of them are products on tensor cores
    ex2, KiB       exponentials, and traffic of shared memory

The loop without a mask counts. An `other loop` is one with a mask, or with a part of a tile's
products only: its figures are for as many HMMA as a whole tile has. Ratios are to the kernels
that FlashAttention 2.5.6 chooses on the same device, all kernels of a backward added up. Its
figures are recorded in flash.py; --flash-attention measures them again, from
LIBRARY (xformers' _C_flashattention.so) or from a wheel that it downloads (220 MB, kept in
~/.cache/bindery/bench-flash-attention).

Then the roofline, for documents of --length tokens; roofline.py says what it leaves out.
--source measures the kernels of another checkout.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path

import flash
from attention import Measured, MeasureError, measure
from devices import (
    DEVICES,
    FLOAT_TFLOPS,
    MEMORIES,
    MMA_SYNC_SHARE,
    SPEEDS,
    Device,
    blocks_per_sm,
)
from launch import LaunchError
from roofline import PASSES, attention_bounds, undescribed
from tools import HERE, ToolError

OPERATIONS = [("forward", 64), ("forward", 128), ("backward", 64), ("backward", 128)]


def cache_folder() -> Path:
    """Returns the folder that scripts/environment uses."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BINDERY_DEPS") or Path(cache) / "bindery")


# ---- Measuring ------------------------------------------------------------------------------


@dataclasses.dataclass
class Results:
    ours: dict[int, list[Measured]]  # by architecture
    flash: dict[int, list[Measured]]


def measure_flash(option: str | None, architectures: list[int], folder: Path) -> dict:
    there = [a for a in architectures if a in flash.ARCHITECTURES]
    if option is None:
        return {a: flash.recorded(a) for a in there}
    if option:
        library = Path(option).read_bytes()
    else:
        library = flash.fetch_library(cache_folder() / "bench-flash-attention")
    return {a: flash.measure_library(library, a, folder) for a in there}


def measure_all(options: argparse.Namespace) -> Results:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = {a: measure(options.source.resolve(), a, folder) for a in options.arch}
        return Results(ours, measure_flash(options.flash_attention, options.arch, folder))


def of_operation(kernels: list[Measured], operation: str, head_size: int) -> list[Measured]:
    return [m for m in kernels if (m.operation, m.head_size) == (operation, head_size)]


def preferred(kernels: list[Measured]) -> list[Measured]:
    """Returns those of FlashAttention-2's kernels that it chooses on A100 and H100."""
    return [m for m, i in zip(kernels, flash.INSTANCES) if i.preferred]


def ratio(ours: list[Measured], theirs: list[Measured], operation: str, head_size: int) -> dict:
    """Returns the issue slots for a tile, summed over the operation's kernels."""
    slots = [
        sum(m.main.issue_slots for m in of_operation(kernels, operation, head_size))
        for kernels in (ours, theirs)
    ]
    return {
        "operation": operation,
        "head_size": head_size,
        "issue_slots": slots[0],
        "flash_attention_issue_slots": slots[1],
        "ratio": slots[0] / slots[1],
    }


def blocks_on(device: Device, m: Measured) -> int:
    return blocks_per_sm(device, m.resources.registers, m.threads, m.shared_bytes)


def device_of(architecture: int) -> Device:
    return next(device for device in DEVICES if device.architecture == architecture)


# ---- As tables ------------------------------------------------------------------------------


def print_kernel(m: Measured, device: Device) -> None:
    r = m.resources
    spill = f"{r.stack_bytes}"
    if r.spill_store_bytes is not None:
        spill = f"{r.spill_store_bytes}/{r.spill_load_bytes}"
    for i, loop in enumerate(m.loops):
        of_kernel = f"{r.registers:>4} {spill:>7}" if i == 0 else " " * 12
        of_block = ""
        if i == 0:
            of_block = (
                f"{m.shared_bytes / 1024:.0f} {blocks_on(device, m):>3} x {m.threads // 32}"
            )
        print(
            f"{m.name if i == 0 else '  other loop':<34} {m.head_size:>4} {of_kernel} "
            f"{loop.n_spills:>7} {of_block:>12} {loop.issue_slots:>7.0f} {loop.hmma:>6.0f} "
            f"{loop.issue_slots / loop.hmma:>6.2f} {loop.exponentials:>5.0f} "
            f"{loop.shared_bytes / 1024:>5.0f}"
        )


def print_architecture(architecture: int, results: Results) -> None:
    device = device_of(architecture)
    columns = "   D regs   spill in loop shared blocks   slots   hmma  /hmma   ex2   KiB"
    print(f"\n{f'sm_{architecture}, {device.name}':<34} {columns}")
    ours, theirs = results.ours[architecture], results.flash.get(architecture, [])
    for m in [*ours, *theirs]:
        print_kernel(m, device)
    for operation in OPERATIONS if theirs else []:
        r = ratio(ours, preferred(theirs), *operation)
        slots = f"{r['issue_slots']:.0f} / {r['flash_attention_issue_slots']:.0f}"
        title = f"{r['operation']} D={r['head_size']}"
        print(f"slots by FlashAttention-2's, {title}: {slots} = {r['ratio']:.3f}")


def print_roofline(results: Results, length: int) -> None:
    print(f"\nRoofline, documents of {length} tokens: TFLOP/s on allowed pairs, by limiting resource")
    share = f"{MMA_SYNC_SHARE:.0%} of 989 TFLOP/s"
    print(f"(H100: products at {share}, which is about what mma.sync reaches there)")
    columns = ["products", "issue", "exponentials", "shared memory", "memory"]
    print(f"{'':<34} {'D':>4} " + " ".join(f"{c:>13}" for c in columns) + "  bound by")
    for line in roofline(results, length):
        bounds = line["bounds"]
        title = f"{line['device']} {line['operation']}, {line['kernels']}"
        figures = " ".join(f"{bounds[c]:>13.0f}" for c in columns)
        print(f"{title:<34} {line['head_size']:>4} {figures}  {line['bound_by']}")


def roofline(results: Results, length: int) -> list[dict]:
    lines = []
    for name, speed in SPEEDS.items():
        architecture = next(d.architecture for d in DEVICES if d.name == name)
        for operation, head_size in OPERATIONS if architecture in results.ours else []:
            of_whom = {"ours": results.ours[architecture]}
            of_whom["FlashAttention-2"] = preferred(results.flash[architecture])
            for whose, kernels in of_whom.items():
                chosen = of_operation(kernels, operation, head_size)
                bounds = attention_bounds(chosen, speed, length)
                lines.append(
                    {
                        "device": name,
                        "operation": operation,
                        "head_size": head_size,
                        "kernels": whose,
                        "bounds": bounds,
                        "bound_by": next(iter(bounds)),
                    }
                )
    return lines


def print_passes(source: Path) -> None:
    print("\nKernels that make one pass over memory: bounds by bandwidth, in 10^9 elements per second")
    print(f"{'':<58} {'bytes':>5} {'of':<10}" + "".join(f"{name:>12}" for name in MEMORIES))
    for p in PASSES:
        title = f"{p.source}: {p.kernels.split()[0]}" + (" ..." if " " in p.kernels else "")
        rates = "".join(
            f"{bandwidth / p.n_bytes / 1e9:>12.0f}" for bandwidth in MEMORIES.values()
        )
        print(f"{title:<58} {p.n_bytes:>5.0f} {p.element:<10}{rates}  {p.what}")
    limits = ", ".join(f"{limit} on {device}" for device, limit in FLOAT_TFLOPS.items())
    print(f"attention_float.cu: without tensor cores, at most {limits} TFLOP/s by FFMA")
    for name in undescribed(source):
        print(f"not described: {name}")


# ---- The program ----------------------------------------------------------------------------


def as_json(results: Results, options: argparse.Namespace) -> dict:
    def kernels(measured: dict[int, list[Measured]]) -> list[dict]:
        return [
            dataclasses.asdict(m) | {"blocks_per_sm": blocks_on(device_of(architecture), m)}
            for architecture, all_of_it in measured.items()
            for m in all_of_it
        ]

    return {
        "kernels": kernels(results.ours),
        "flash_attention": kernels(results.flash),
        "flash_attention_is_recorded": options.flash_attention is None,
        "ratios": [
            {"architecture": a} | ratio(results.ours[a], preferred(theirs), *operation)
            for a, theirs in results.flash.items()
            for operation in OPERATIONS
        ],
        "length": options.length,
        "roofline": roofline(results, options.length),
        "passes": [dataclasses.asdict(p) | {"n_bytes": p.n_bytes} for p in PASSES],
        "not_described": undescribed(options.source),
    }


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [device.architecture for device in DEVICES]
    parser.add_argument("--arch", type=int, nargs="+", choices=known, default=known)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--flash-attention", nargs="?", const="", metavar="LIBRARY")
    parser.add_argument("--source", type=Path, default=HERE)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    try:
        results = measure_all(options)
    except (ToolError, LaunchError, MeasureError, OSError) as error:
        print(f"sass: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(as_json(results, options), indent=2))
        return 0
    for architecture in options.arch:
        print_architecture(architecture, results)
    print_roofline(results, options.length)
    print_passes(options.source)
    return 0


if __name__ == "__main__":
    sys.exit(main())
