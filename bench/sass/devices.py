"""The resources of GPUs, from NVIDIA's data sheets and the CUDA programming guide."""

from dataclasses import dataclass

KIB = 1024
REGISTERS = 64 * KIB  # registers of an SM
RESERVED_BYTES = KIB  # shared memory of each block that the driver uses


@dataclass(frozen=True)
class Device:
    name: str
    architecture: int
    shared_bytes: int  # shared memory of an SM
    threads: int  # threads that an SM holds
    blocks: int  # blocks that an SM holds


@dataclass(frozen=True)
class Speed:
    """Dense throughput at the boost clock, in warp instructions per clock of one SM."""

    n_sms: int
    clock_hz: float
    products: float  # HMMA m16n8k16
    memory_bytes: float  # per second
    issue: float = 4.0
    exponentials: float = 0.5  # MUFU: 16 lanes per clock
    shared_bytes: float = 128.0  # per clock


A100 = Device("A100", 80, 164 * KIB, 2048, 32)
H100 = Device("H100", 90, 228 * KIB, 2048, 32)
B200 = Device("B200", 100, 228 * KIB, 2048, 32)
RTX = Device("RTX 50", 120, 100 * KIB, 1536, 24)
DEVICES = [A100, H100, B200, RTX]

# An HMMA m16n8k16 is 4096 operations: 312 TFLOP/s are one in two clocks on each of A100's SMs.
# H100's 989 TFLOP/s are for wgmma; by mma.sync others have measured 60 to 65 % of them.
MMA_SYNC_SHARE = 0.62
SPEEDS = {
    "A100": Speed(108, 1.41e9, 0.5, 2.0e12),
    "H100": Speed(132, 1.83e9, 1.0 * MMA_SYNC_SHARE, 3.35e12),
}
FLOAT_TFLOPS = {"A100": 19.5, "H100": 66.9}
# Bytes per second.
MEMORIES = {"A100 40 GB": 1.555e12, "A100 80 GB": 2.0e12, "H100": 3.35e12}


def blocks_per_sm(device: Device, registers: int, threads: int, shared_bytes: int) -> int:
    """Registers come in units of 256 for a warp, shared memory in 128 bytes for a block."""
    warps = -(-threads // 32)
    for_warp = -(-registers * 32 // 256) * 256
    for_block = -(-(shared_bytes + RESERVED_BYTES) // 128) * 128
    # A warp's registers come from one of the four quarters of the SM.
    warps_by_registers = 4 * (REGISTERS // 4 // for_warp) if for_warp else device.threads // 32
    return min(
        warps_by_registers // warps,
        device.shared_bytes // for_block,
        device.threads // (warps * 32),
        device.blocks,
    )
