"""FlashAttention-2's own attention kernels, bf16, causal, variable length, in the same measure.

They are in the library `_C_flashattention.so` of the wheel xformers 0.0.25, which was built
from FlashAttention 2.5.6 for sm_80 and sm_90. RECORDED holds their measured figures; the option
--flash-attention measures them again, which needs 220 MB from the Python index.
"""

import re
import struct
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from attention import LoopCost, Measured, costs_of
from listing import parse
from tools import Resources, ToolError, run

WHEEL = "xformers==0.0.25"
LIBRARY = "xformers/_C_flashattention.so"
ARCHITECTURES = [80, 90]
CUBIN = b"\x7fELF\x02\x01\x013"  # ELF of 64 bits, little endian, for CUDA
EM_CUDA = 190
PRODUCTS = {"forward": 2, "backward": 5}
# Numbers of [tokens][D] tensors in bf16 that are read or written. Backward: out and d_out for
# delta; q, k, v, d_out, dk and dv; dq in float, which is added to and then read; dq.
TENSORS = {"forward": 4, "backward": 2 + 6 + 4 + 1}


@dataclass(frozen=True)
class Instance:
    """One of the kernels that FlashAttention-2 chooses from, by head size and shared memory."""

    operation: str
    head_size: int
    queries: int  # queries that a block holds (forward) or processes in turn (backward)
    keys: int
    warps: int
    shared_kib: int  # dynamic shared memory
    preferred: bool  # chosen where a block may have 144 KiB of shared memory: A100, H100

    @property
    def name(self) -> str:
        return f"FlashAttention-2 {self.operation} {self.queries}x{self.keys}"

    @property
    def pattern(self) -> str:
        """A pattern of the mangled name: no dropout, causal, no window, no ALiBi, any lengths."""
        kernel, flags = (
            ("flash_fwd_kernel", "ELb0ELb1ELb0ELb0ELb0ELb1ELb0EE")
            if self.operation == "forward"
            else ("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "ELb0ELb1ELb0ELb0ELb0ELb1EE")
        )
        shape = f"ILi{self.head_size}ELi{self.queries}ELi{self.keys}ELi{self.warps}E"
        return rf"^_Z\d+{kernel}I\d+Flash_\w+_kernel_traits{shape}\w*bfloat16_t\w*E{flags}v"


INSTANCES = [
    Instance("forward", 64, 128, 128, 4, 48, True),
    Instance("forward", 128, 128, 64, 4, 64, True),
    Instance("forward", 128, 64, 64, 4, 48, False),
    Instance("backward", 64, 128, 128, 8, 144, True),
    Instance("backward", 64, 64, 128, 8, 72, False),
    Instance("backward", 128, 64, 128, 8, 144, True),
    Instance("backward", 128, 64, 64, 8, 80, False),
]


def measured(
    instance: Instance, architecture: int, resources: Resources, loops: list[LoopCost]
) -> Measured:
    # A block holds queries in the forward pass and keys in the backward pass.
    rows, columns = instance.queries, instance.keys
    if instance.operation == "backward":
        rows, columns = columns, rows
    return Measured(
        name=instance.name,
        architecture=architecture,
        operation=instance.operation,
        head_size=instance.head_size,
        resources=resources,
        threads=32 * instance.warps,
        shared_bytes=instance.shared_kib * 1024,
        rows=rows,
        columns=columns,
        tensors=TENSORS[instance.operation],
        loops=loops,
    )


# ---- Recorded -------------------------------------------------------------------------------

# In the order of INSTANCES: registers and bytes of stack; then for one tile of the main loop issue
# slots, HMMA, exponentials, bytes of shared memory, and spilling instructions.
RECORDED = {
    80: [
        (255, 248, 1157, 256, 132, 45056, 56),
        (255, 216, 1810, 512, 136, 98304, 14),
        (180, 0, 1924, 512, 136, 180224, 0),
        (255, 64, 2606, 640, 128, 172032, 10),
        (252, 0, 2728, 640, 128, 188416, 0),
        (255, 48, 3932, 1280, 128, 327680, 7),
        (255, 16, 4576, 1280, 128, 376832, 0),
    ],
    90: [
        (255, 232, 1157, 256, 132, 45056, 38),
        (255, 208, 1802, 512, 136, 98304, 12),
        (192, 0, 1940, 512, 136, 180224, 0),
        (255, 16, 2530, 640, 128, 172032, 0),
        (255, 8, 2640, 640, 128, 188416, 0),
        (255, 0, 3888, 1280, 128, 327680, 0),
        (255, 0, 4472, 1280, 128, 376832, 0),
    ],
}


def recorded(architecture: int) -> list[Measured]:
    return [
        measured(instance, architecture, Resources(registers, stack), [LoopCost(*loop)])
        for instance, (registers, stack, *loop) in zip(INSTANCES, RECORDED[architecture])
    ]


# ---- From the library -----------------------------------------------------------------------


def fetch_library(folder: Path) -> bytes:
    """Returns the library of the wheel, which is kept in `folder`."""
    wheels = list(folder.glob("xformers-*.whl"))
    if not wheels:
        folder.mkdir(parents=True, exist_ok=True)
        print(f"downloading {WHEEL} into {folder}", file=sys.stderr)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--only-binary=:all:",
                "--python-version=3.11",
                "--platform=manylinux2014_x86_64",
                "--dest",
                str(folder),
                WHEEL,
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise ToolError(f"pip could not download {WHEEL}:\n{done.stderr.strip()}")
        wheels = list(folder.glob("xformers-*.whl"))
    with zipfile.ZipFile(wheels[0]) as wheel:
        return wheel.read(LIBRARY)


def images_of(library: bytes, architecture: int) -> list[bytes]:
    """Returns the ELF files for this architecture; they lie in the library uncompressed."""
    images = []
    for found in re.finditer(re.escape(CUBIN), library):
        start = found.start()
        machine = struct.unpack_from("<H", library, start + 18)[0]
        programs, sections, flags = struct.unpack_from("<QQI", library, start + 32)
        n_programs, _, n_sections = struct.unpack_from("<HHH", library, start + 56)
        if machine == EM_CUDA and flags & 0xFF == architecture:
            size = max(sections + 64 * n_sections, programs + 56 * n_programs)
            images.append(library[start : start + size])
    return images


def attributes_of(listing: str, name: str) -> dict[str, int]:
    """By kernel, from nvdisasm: cuobjdump cannot read the code of CUDA 12.1 for sm_90."""
    pattern = rf"EIATTR_{name}\n.*?index@\((\S+)\)\n\s+/\*\w+\*/\s+\.word\s+0x(\w+)"
    return {kernel: int(n, 16) for kernel, n in re.findall(pattern, listing, re.DOTALL)}


def measure_library(library: bytes, architecture: int, folder: Path) -> list[Measured]:
    found = {}
    for image in images_of(library, architecture):
        names = {name.decode() for name in re.findall(rb"\.text\.(\w+)", image)}
        here = {i: name for i in INSTANCES for name in names if re.search(i.pattern, name)}
        if not here:
            continue
        binary = folder / "flash_attention.cubin"
        binary.write_bytes(image)
        listing = run("nvdisasm", binary).stdout
        code = parse(listing)
        registers = attributes_of(listing, "REGCOUNT")
        stack = attributes_of(listing, "FRAME_SIZE")
        for instance, name in here.items():
            loops = costs_of(code[name], PRODUCTS[instance.operation], instance.head_size)
            resources = Resources(registers=registers[name], stack_bytes=stack[name])
            found[instance] = measured(instance, architecture, resources, loops)
    missing = [instance.name for instance in INSTANCES if instance not in found]
    if missing:
        raise ToolError(f"the library has no {missing[0]} for sm_{architecture}")
    return [found[instance] for instance in INSTANCES]
