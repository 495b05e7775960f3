"""A test of the tests: a fault is planted in a copy of a CUDA source, the copy takes the place
of the original in the module or program that the tests run, and the test that should find the
fault must fail, for the expected reason.

    python tests/cuda/planted_faults_test.py plain|address|thread BUILD SOURCE [FAULT...]

The build is one without sanitizers, with AddressSanitizer or with ThreadSanitizer. Each fault
is planted in the builds where it can be found. ThreadSanitizer is slow, so faults that the build
without sanitizers finds as well are planted there only with BINDERY_TEST_LONG; then every single
barrier is removed, too. The tests cuda_operations and cuda_attention show that the original sources
pass; here one source takes the same way without a fault.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

LONG = bool(os.environ.get("BINDERY_TEST_LONG"))
TIMEOUT_S = 300

MODULE = "tests/cuda/libbindery_cuda_emulated.so"
PROGRAM = "tests/cuda/cuda_{}_test"

# Messages of a test that has found the fault.
WRONG_VALUE = r"ERROR: .* is \S+, not |difference at offset"
WRONG_SUM = r"ERROR: batch \d+: sum \d+ is "
OTHER_BITS = r"ERROR: .*: another run gave other bits"
NOT_A_NUMBER = r"ERROR: .* is -?nan, not "
RACE = r"WARNING: ThreadSanitizer: data race"
FORBIDDEN_MEMORY = r"ERROR: AddressSanitizer: "
SPOILED_PADDING = r"ERROR: .* of token \d+, which is padding, is "
REFUSED_MATRIX = r"emulation: cublasLt\w+: matrix [ABCD] "
REFUSED_RANK = r"ERROR: cannot join the ranks: invalid usage"
OPEN_GROUP = r"emulation: ncclComm\w+: in a group that was not ended"


@dataclass(frozen=True)
class Fault:
    """`old`, which occurs once in kernels/cuda/`file`, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    case: str  # a case of the test program
    seen_by: dict[str, str]  # build: the expected message
    unit: str = ""  # the unit to compile, if `file` is a header
    program: str = "operations"  # the test; "attention" contains the kernels itself

    @property
    def source(self) -> str:
        return self.unit or self.file


FAULTS = [
    Fault(
        "removed_barrier",
        "operations/columns.cuh",
        "staging[threadIdx.x] = sums;\n    __syncthreads();\n",
        "staging[threadIdx.x] = sums;\n",
        "layer_norm_agrees",
        {"thread": RACE, "plain": WRONG_VALUE, "address": WRONG_VALUE},
        unit="operations/layer_norm.cu",
    ),
    Fault(
        "unsynchronised_refill",
        "attention/attention_backward.cu",
        "__syncthreads();  // nobody needs q any more\n",
        "\n",
        "bf16_agrees_on_small_rows",
        {"thread": RACE},
        program="attention",
    ),
    Fault(
        "plain_store_between_blocks",
        "operations/optimizer.cu",
        "parts[blockIdx.x] = sum;",
        "parts[0] = sum;",
        "sum_of_squares_agrees",
        {"thread": RACE, "plain": WRONG_VALUE},
    ),
    Fault(
        "one_past_the_end",
        "operations/columns.cuh",
        "int w = 0; w < kWarpsPerBlock",
        "int w = 0; w <= kWarpsPerBlock",
        "layer_norm_agrees",
        {"address": FORBIDDEN_MEMORY, "plain": NOT_A_NUMBER},
        unit="operations/layer_norm.cu",
    ),
    Fault(
        "one_past_the_end_of_a_tensor",
        "operations/optimizer.cu",
        "i < last;",
        "i <= last;",
        "sum_of_squares_agrees",
        {"plain": NOT_A_NUMBER},
    ),
    Fault(
        "mask_without_document_start",
        "attention/attention_plan.cu",
        "b.values[i], b.values[i + 1],",
        "0, b.values[i + 1],",
        "bf16_agrees_on_small_rows",
        {"plain": WRONG_VALUE},
        program="attention",
    ),
    Fault(
        "window_with_a_key_too_many",
        "attention/attention_forward.cu",
        "n * 8 + e <= last - window",
        "n * 8 + e < last - window",
        "agrees_with_windows",
        {"plain": WRONG_VALUE},
        program="attention",
    ),
    Fault(
        "window_with_a_key_too_many_backward",
        "attention/attention_backward.cu",
        "back >= window",
        "back > window",
        "agrees_with_windows",
        {"plain": WRONG_VALUE},
        program="attention",
    ),
    Fault(
        "window_of_one_tile_forgotten",
        "attention/attention_backward.cu",
        "MASK == ON_DIAGONAL && window < kTile",
        "false",
        "agrees_with_windows",
        {"plain": WRONG_VALUE},
        program="attention",
    ),
    Fault(
        "window_visited_one_tile_short",
        "attention/attention_plan.cuh",
        "max(0, query - work.window + 1)",
        "max(0, query - work.window + 2)",
        "agrees_with_windows",
        {"plain": WRONG_VALUE},
        unit="attention/attention_float.cu",
        program="attention",
    ),
    Fault(
        "shift_by_a_score_that_nobody_has",
        "attention/attention_float.cu",
        "new_top == -INFINITY ? 0.0f : new_top",
        "new_top",
        "agrees_with_windows",
        {"plain": NOT_A_NUMBER},
        program="attention",
    ),
    Fault(
        "swapped_leading_dimension",
        "runtime/gemm.cu",
        "bd_stride(stride, rows)",
        "bd_stride(stride, columns)",
        "linear_agrees",
        {"plain": REFUSED_MATRIX},
    ),
    Fault(
        "missing_event",
        "runtime/transfer.cu",
        "return record(buffer->copied, transfer->computing, err);",
        "return BD_OK;",
        "copies_keep_every_byte",
        {"plain": WRONG_VALUE},
    ),
    Fault(
        "batch_not_waited_for",
        "runtime/transfer.cu",
        "return wait_on_stream(transfer->computing, transfer->slots[slot].sent, err);",
        "return BD_OK;",
        "batches_arrive_one_ahead",
        {"plain": WRONG_SUM},
        program="transfer_slots",
    ),
    Fault(
        "batch_overwritten_while_it_is_read",
        "runtime/transfer.cu",
        "BD_TRY(wait_on_stream(transfer->copying, slot->left, err));",
        "",
        "batches_arrive_one_ahead",
        {"plain": WRONG_SUM},
        program="transfer_slots",
    ),
    Fault(
        "copies_not_waited_for",
        "attention/attention_forward.cu",
        "cp_async_wait<0>();\n    __syncthreads();  // k has arrived",
        "cp_async_wait<1>();\n    __syncthreads();  // k has arrived",
        "bf16_agrees_on_small_rows",
        {"plain": NOT_A_NUMBER},
        program="attention",
    ),
    Fault(
        "padding_cleared_one_token_late",
        "operations/linear.cu",
        "token_is_used(boundaries, token))",
        "(token > 0 && token_is_used(boundaries, token - 1)))",
        "linear_agrees",
        {"plain": SPOILED_PADDING},
    ),
    Fault(
        "order_of_a_sum_left_to_the_schedule",
        "operations/embedding.cu",
        "b.ordered[b.start[id] + rank] = token;",
        "b.ordered[place + 0 * rank] = token;",
        "embedding_agrees",
        {"plain": f"{WRONG_VALUE}|{OTHER_BITS}"},
    ),
    Fault(
        "removed_barrier_in_attention",
        "attention/attention_forward.cu",
        "__syncthreads();  // k has arrived",
        "// k has arrived",
        "bf16_agrees_on_small_rows",
        {"thread": RACE},
        program="attention",
    ),
    Fault(
        "removed_barrier_between_works",
        "attention/attention_plan.cuh",
        "{\n    __syncthreads();\n    if (threadIdx.x == 0) {",
        "{\n    if (threadIdx.x == 0) {",
        "float_agrees_on_small_rows",
        {"thread": RACE},
        unit="attention/attention_float.cu",
        program="attention",
    ),
    Fault(
        "removed_barrier_of_a_warp",
        "attention/attention_common.cuh",
        "__syncwarp();\n#pragma unroll\n    for (int i = 0; i < 16 * kChunks",
        "#pragma unroll\n    for (int i = 0; i < 16 * kChunks",
        "bf16_agrees_on_small_rows",
        {"thread": RACE},
        unit="attention/attention_forward.cu",
        program="attention",
    ),
    Fault(
        "removed_barrier_in_cross_entropy",
        "operations/cross_entropy.cu",
        "__syncthreads();",
        "",
        "cross_entropy_agrees",
        {"thread": RACE, "plain": NOT_A_NUMBER},
    ),
    Fault(
        "bit_of_the_token_instead_of_its_target",
        "operations/cross_entropy.cu",
        "!token_is_trained(a.mask, bits, segment.t + 1)",
        "!token_is_trained(a.mask, bits, segment.t)",
        "cross_entropy_agrees_with_masks",
        {"plain": WRONG_VALUE},
    ),
    Fault(
        "targets_of_the_next_document_counted",
        "operations/loss_mask.cuh",
        "if (last < 8 * i + 8)",
        "if (false)",
        "cross_entropy_agrees_with_masks",
        {"plain": WRONG_VALUE},
        unit="operations/cross_entropy.cu",
    ),
    Fault(
        "plain_count",
        "operations/embedding.cu",
        "atomicAdd(&b.count[token_id(a.ids, a.id_bytes, token)], 1)",
        "b.count[token_id(a.ids, a.id_bytes, token)] += 1",
        "embedding_agrees",
        {"thread": RACE},
    ),
    Fault(
        "partial_sums_in_one_place",
        "operations/columns.cuh",
        "partials[blockIdx.x * n_columns + column]",
        "partials[column]",
        "layer_norm_agrees",
        {"thread": RACE, "plain": WRONG_VALUE},
        unit="operations/layer_norm.cu",
    ),
    Fault(
        "gain_with_the_rstd_of_the_first_vector",
        "operations/rms_norm.cu",
        "a.rstd + c / a.n_channels;",
        "a.rstd;",
        "rms_norm_agrees",
        {"plain": WRONG_VALUE},
    ),
    Fault(
        "chunk_left_out",
        "operations/attention_cached.cu",
        "last = position / kKeysPerChunk;",
        "last = (position - 1) / kKeysPerChunk;",
        "attention_cached_agrees",
        {"plain": WRONG_VALUE},
        program="decoding",
    ),
    Fault(
        "unsynchronised_columns",
        "operations/linear_by_token.cu",
        "staging[threadIdx.x] = sums[s];\n        __syncthreads();\n",
        "staging[threadIdx.x] = sums[s];\n",
        "linear_by_token_agrees",
        {"thread": RACE, "plain": WRONG_VALUE},
        program="decoding",
    ),
    Fault(
        "position_in_the_row",
        "operations/rotary.cu",
        "uint64_t(position_of(segment, a.past))",
        "uint64_t(segment.t)",
        "rotary_agrees",
        {"plain": WRONG_VALUE},
    ),
    Fault(
        "query_row_past_the_end",
        "attention/attention_backward.cu",
        "if (threadIdx.x < kTile)\n        put_row(tiles.rows, row);",
        "if (threadIdx.x <= kTile)\n        put_row(tiles.rows, row);",
        "bf16_agrees_on_small_rows",
        {"address": FORBIDDEN_MEMORY},
        program="attention",
    ),
    Fault(
        "rest_of_a_sum_forgotten",
        "runtime/collectives.cu",
        "code == ncclSuccess ? sum_for(",
        "code != ncclSuccess ? sum_for(",
        "slices_become_sums",
        {"plain": WRONG_VALUE},
        program="collectives",
    ),
    Fault(
        "rest_of_a_sum_for_the_first_rank",
        "runtime/collectives.cu",
        "x, size * n_ranks, bounds[n_ranks], n_ranks - 1)",
        "x, size * n_ranks, bounds[n_ranks], 0)",
        "slices_become_sums",
        {"plain": WRONG_VALUE},
        program="collectives",
    ),
    Fault(
        "unequal_slices_taken_for_equal",
        "runtime/collectives.cu",
        "if (bounds[r + 1] - bounds[r] != size)",
        "if (false)",
        "slices_become_sums",
        {"plain": WRONG_VALUE},
        program="collectives",
    ),
    Fault(
        "gathered_from_the_wrong_slice",
        "runtime/collectives.cu",
        "x + rank * size, x,",
        "x, x,",
        "slices_reach_every_rank",
        {"plain": r"emulation: ncclAllGather: rank \d receives where it sends from"},
        program="collectives",
    ),
    Fault(
        "rank_on_the_device_of_another",
        "backend.cu",
        "BD_TRY(enter_device(cuda_of(backend), err));\n    return bd_cuda_open_collectives(",
        "return bd_cuda_open_collectives(",
        "slices_become_sums",
        {"plain": REFUSED_RANK},
        program="collectives",
    ),
    Fault(
        "group_left_open_by_a_failure",
        "runtime/collectives.cu",
        "= ncclGroupEnd();  // in any case: groups nest",
        "= code == ncclSuccess ? ncclGroupEnd() : code;",
        "failures_of_nccl_are_reported",
        {"plain": OPEN_GROUP},
        program="collectives",
    ),
]

# Built in the same way as a fault, but every test must pass.
NO_FAULT = Fault(
    "no_fault", "operations/optimizer.cu", "i < last;", "i < last;", "sum_of_squares_agrees", {}
)


# The tests of a file's barriers: the unit to compile, the case that runs it, and its program.
BARRIERS = {
    "attention/attention_backward.cu": ("", "bf16_agrees_on_small_rows", "attention"),
    "attention/attention_common.cuh": (
        "attention/attention_backward.cu", "bf16_agrees_on_small_rows", "attention"),
    "attention/attention_float.cu": ("", "float_agrees_on_small_rows", "attention"),
    "attention/attention_forward.cu": ("", "bf16_agrees_on_small_rows", "attention"),
    "attention/attention_plan.cu": ("", "float_agrees_on_small_rows", "attention"),
    "attention/attention_plan.cuh": (
        "attention/attention_float.cu", "float_agrees_on_small_rows", "attention"),
    "operations/attention_cached.cu": ("", "attention_cached_agrees", "decoding"),
    "operations/columns.cuh": ("operations/layer_norm.cu", "layer_norm_agrees", "operations"),
    "operations/cross_entropy.cu": ("", "cross_entropy_agrees", "operations"),
    "operations/linear_by_token.cu": ("", "linear_by_token_agrees", "decoding"),
    "operations/rotary.cu": ("", "rotary_agrees", "operations"),
    "operations/squares.cuh": ("operations/optimizer.cu", "sum_of_squares_agrees", "operations"),
}


def removed_barriers(source: Path) -> list[Fault]:
    """Returns a fault for every barrier in kernels/cuda."""
    faults = []
    folder = source / "kernels/cuda"
    for path in sorted(folder.rglob("*.cu*")):
        file = path.relative_to(folder).as_posix()
        text = path.read_text(encoding="utf-8")
        # A barrier that only lets a warp converge orders no memory, so its absence is not visible.
        for match in re.finditer(r"__sync(threads|warp)\(\);(?!.*the whole warp's)", text):
            begin = match.start()
            while text.count(text[begin:match.end()]) > 1:
                begin -= 1
            line = text.count("\n", 0, match.start()) + 1
            if file not in BARRIERS:
                sys.exit(f"kernels/cuda/{file} has barriers, but no case in BARRIERS")
            unit, case, name = BARRIERS[file]
            faults.append(Fault(
                f"{file}:{line}", file, text[begin:match.end()],
                text[begin:match.start()], case, {"thread": RACE}, unit,
                program=name,
            ))
    return faults


class Build:
    """A build folder of Ninja, whose commands are used again."""

    def __init__(self, kind: str, folder: str, source: str) -> None:
        self.kind = kind
        self.folder = Path(folder)
        self.source = Path(source)

    def commands(self, target: str) -> list[list[str]]:
        """Returns the commands that make the target; the last one links it."""
        listed = subprocess.run(
            ["ninja", "-t", "commands", target],
            cwd=self.folder, check=True, capture_output=True, text=True,
        ).stdout
        return [shlex.split(line.removeprefix(": && ").removesuffix(" && :"))
                for line in listed.splitlines()]

    def run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise Missed(f"does not compile:\n{done.stderr[-3000:]}")


class Missed(Exception):
    """A fault that cannot be planted, or that no test has found."""


def planted(fault: Fault, source: Path, overlay: Path) -> Path:
    """Writes the source with the fault into the overlay; returns the unit to compile."""
    inside = Path("kernels/cuda")
    text = (source / inside / fault.file).read_text(encoding="utf-8")
    n = text.count(fault.old)
    if n != 1:
        raise Missed(f"the fault no longer applies: kernels/cuda/{fault.file} has {n} times, "
                     f"not once,\n{fault.old}")
    changed = overlay / inside / fault.file
    changed.parent.mkdir(parents=True)
    changed.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return source / inside / fault.unit if fault.unit else changed


def compile_command(command: list[str], unit: Path, overlay: Path, output: Path) -> list[str]:
    """Returns the command for the object, for another unit and with the overlay's headers first."""
    kept, arguments = [command[0], f"-I{overlay}"], iter(command[1:])
    for argument in arguments:
        if argument in ("-MT", "-MF", "-o", "-c"):
            next(arguments)
        elif argument != "-MD":
            kept.append(argument)
    return [*kept, "-o", str(output), "-c", str(unit)]


def link_command(command: list[str], old: str, new: Path, output: Path) -> list[str]:
    """Returns the command with the new object instead of the old one, or before all libraries: then
    the linker does not take the old object from its library."""
    changed = [str(new) if argument == old else argument for argument in command]
    changed[changed.index("-o") + 1] = str(output)
    if old not in command:
        first = next(i for i, a in enumerate(changed) if a.endswith(".a"))
        changed.insert(first, str(new))
    return changed


def build_with(fault: Fault, build: Build, folder: Path) -> Path:
    """Makes the module or test program with the fault in it."""
    overlay = folder / "overlay"
    unit = planted(fault, build.source, overlay)
    commands = build.commands(
        PROGRAM.format("attention") if fault.program == "attention" else MODULE)
    original = str(build.source / "kernels/cuda" / fault.source)
    compiles = [c for c in commands if "-c" in c and c[c.index("-c") + 1] == original]
    if len(compiles) != 1:
        raise Missed(f"{len(compiles)} commands compile {original}")
    new, output = folder / "fault.o", folder / "with_fault"
    build.run(compile_command(compiles[0], unit, overlay, new))
    old = compiles[0][compiles[0].index("-o") + 1]
    build.run(link_command(commands[-1], old, new, output))
    return output


def test_output(fault: Fault, build: Build, made: Path) -> tuple[bool, str]:
    """Returns whether the test passes, and its output."""
    command = [made, fault.case]
    if fault.program != "attention":
        command = [build.folder / PROGRAM.format(fault.program), "emulated", made, fault.case]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=TIMEOUT_S)
    text = done.stdout.decode(errors="replace")
    if not re.search(r"^\[ RUN +\] " + fault.case, text, re.MULTILINE):
        raise Missed(f"there is no case {fault.case}")
    return done.returncode == 0, text


def check(fault: Fault, build: Build) -> None:
    """Raises Missed unless the fault is found as expected."""
    with tempfile.TemporaryDirectory(prefix="planted_faults_") as name:
        made = build_with(fault, build, Path(name))
        passed, text = test_output(fault, build, made)
    if fault is NO_FAULT:
        if not passed:
            raise Missed(f"without a fault {fault.case} fails:\n{text[-3000:]}")
        return
    if passed:
        raise Missed(f"{fault.case} passes with the fault")
    if not re.search(fault.seen_by[build.kind], text, re.MULTILINE):
        raise Missed(f"{fault.case} fails, but does not say '{fault.seen_by[build.kind]}':\n"
                     f"{text[-3000:]}")


def chosen(build: Build, names: list[str]) -> list[Fault]:
    every = LONG or bool(names)
    faults = [fault for fault in FAULTS if build.kind in fault.seen_by]
    if not every and build.kind == "thread":
        faults = [fault for fault in faults if "plain" not in fault.seen_by]
    if build.kind == "thread" and every:
        faults += removed_barriers(build.source)
    faults.insert(0, NO_FAULT)
    return [fault for fault in faults if not names or fault.name in names]


def main() -> int:
    if len(sys.argv) < 4 or sys.argv[1] not in ("plain", "address", "thread"):
        print(__doc__, file=sys.stderr)
        return 2
    build = Build(*sys.argv[1:4])
    failures = 0
    for fault in chosen(build, sys.argv[4:]):
        try:
            check(fault, build)
            print(f"{fault.name}: {'passes' if fault is NO_FAULT else 'seen'}", flush=True)
        except (Missed, subprocess.TimeoutExpired) as problem:
            failures += 1
            print(f"{fault.name}: FAILED: {problem}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
