"""The GPU that CUDA would use, as nvidia-smi describes it; or why there is none."""

import os
import re
import shutil
import subprocess

OLDEST_CAPABILITY = 8.0  # bf16 tensor cores and cp.async
OUR_TOOLKIT = "13.0"  # the version that scripts/setup --cuda installs if there is none
# Dense bf16 with sums in float, TFLOP/s; the first match counts. From NVIDIA's data sheets,
# halved where those count sparsity, and for GeForce from the white papers on its architectures,
# both as quoted by others. --peak-tflops overrides the value.
PEAKS = {
    r"\bA100\b": 312,
    r"\bA40\b": 149.7,
    r"\bA10\b": 125,
    r"\bA6000\b": 154.8,
    r"\bH100 PCIe": 756,
    r"\bH100 NVL": 835,
    r"\bH[12]00\b(?! NVL)": 989,
    r"\bB200\b": 2250,
    r"\bL40S\b": 362,
    r"\bL4\b": 121,
    r"\bRTX 3090$": 71,
    r"\bRTX 4090$": 165,
    r"\bRTX 5090$": 209.5,
}


class NoGpu(Exception):
    """There is no usable GPU; the message says why and what helps."""


def ask_nvidia_smi(*arguments: str) -> str:
    command = ["nvidia-smi", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except OSError:
        why = "no nvidia-smi: install NVIDIA's driver (a container needs --gpus all)"
        raise NoGpu(why) from None
    except subprocess.TimeoutExpired:
        raise NoGpu("no answer from nvidia-smi: the driver hangs; restart the machine") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it says nothing"]
        raise NoGpu(f"no driver or no device: nvidia-smi fails: {said[0]}")
    return done.stdout


def toolkit_version() -> str | None:
    """Returns the version of the nvcc that scripts/build uses, found by scripts/environment."""
    for nvcc in filter(None, (os.environ.get("CUDACXX"), "nvcc", "/usr/local/cuda/bin/nvcc")):
        if shutil.which(nvcc):
            said = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
            found = re.search(r"release ([\d.]+)", said)
            return found.group(1) if found else None
    return OUR_TOOLKIT


def find_gpu() -> dict[str, object]:
    """Returns the device that CUDA calls 0 when it counts as nvidia-smi does. Raises NoGpu."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if visible in ("", "-1"):
        raise NoGpu("no device: CUDA_VISIBLE_DEVICES hides them all")
    fields = ("name", "compute_cap", "driver_version", "memory.total")
    question = (f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    listed = ask_nvidia_smi(*question, "-i", visible).splitlines()
    answers = [line.split(", ") for line in listed if line.count(", ") == len(fields) - 1]
    if not answers:
        raise NoGpu(f"no device: nvidia-smi lists none: {' '.join(listed) or 'nothing at all'}")
    name, capability, driver, memory = answers[0]
    if float(capability) < OLDEST_CAPABILITY:
        raise NoGpu(
            f"{name} is too old: it has compute capability {capability}, "
            f"{OLDEST_CAPABILITY} is needed"
        )
    found = re.search(r"CUDA[\w ]* Version: *([\d.]+)", ask_nvidia_smi())
    cuda, toolkit = found.group(1) if found else None, toolkit_version()
    # Any driver of a major version works, see check_driver() in kernels/cuda/runtime/backend.cu.
    if cuda and toolkit and int(cuda.split(".")[0]) < int(toolkit.split(".")[0]):
        raise NoGpu(
            f"driver {driver} is too old: it knows CUDA {cuda}, the toolkit is {toolkit}; "
            "install a newer driver, or a toolkit of the driver's version (12.8 at least)"
        )
    return {
        "name": name,
        "compute_capability": capability,
        "driver": driver,
        "cuda": cuda,
        "toolkit": toolkit,
        "memory_mib": int(memory) if memory.isdigit() else None,
    }


def peak_tflops(name: str) -> float | None:
    return next((peak for pattern, peak in PEAKS.items() if re.search(pattern, name)), None)
