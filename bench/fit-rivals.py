#!/usr/bin/env python3
"""Other packing programs on the document lengths of bench_fit, by CPU seconds.

    bench/fit-rivals.py build/bench/bench_fit

A rival is imported from its PyPI package; one that is not installed is named and left out. The
function used here needs PyTorch in none of them, so --no-deps avoids a download of several GB:

    python3 -m venv /tmp/rivals
    /tmp/rivals/bin/pip install numpy datasets transformers numba binpacking
    /tmp/rivals/bin/pip install --no-deps trl llamafactory axolotl
    /tmp/rivals/bin/python bench/fit-rivals.py build/bench/bench_fit

Each runs in a process of its own. Only the call is timed, after the imports (and numba's
compilation). The numbers of rows and padding tokens show whether the work was the same.
"""

import importlib.util
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from unittest.mock import MagicMock

try:
    import numpy
except ImportError:
    sys.exit("fit-rivals.py: no numpy; pip's arguments are at the top of this file")

SEQ_LEN = 2048
OURS = "log-normal-1M"  # the set that bench_fit dumps


def load_file(package, path):
    """Loads one file of an installed package without running the package's own imports."""
    found = importlib.util.find_spec(package)
    if found is None:
        raise ImportError(f"No module named '{package}'")
    file = os.path.join(found.submodule_search_locations[0], path)
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Each function prepares its input and returns the call to be timed. That call returns the number of
# rows and how many of its CPU seconds were spent on something other than packing.


def trl(lengths):
    import pyarrow
    from trl import data_utils

    offsets = numpy.concatenate(([0], numpy.cumsum(lengths))).astype(numpy.int32)
    tokens = pyarrow.array(numpy.zeros(offsets[-1], dtype=numpy.uint8))
    table = pyarrow.table({"input_ids": pyarrow.ListArray.from_arrays(offsets, tokens)})
    moving = 0.0

    def apart(function):  # TRL packs and moves tokens in one function; only packing is compared
        def timed(*args):
            nonlocal moving
            start = time.process_time()
            result = function(*args)
            moving += time.process_time() - start
            return result

        return timed

    data_utils.pc.take = apart(data_utils.pc.take)
    data_utils.pc.filter = apart(data_utils.pc.filter)
    return lambda: (len(data_utils._pack_bfd(table, SEQ_LEN, "split")), moving)


def llamafactory(lengths):
    module = load_file("llamafactory", "data/processor/processor_utils.py")
    numbers = lengths.tolist()
    return lambda: (len(module.greedy_knapsack(numbers, SEQ_LEN)), 0.0)


def axolotl(lengths):
    import numba  # noqa: F401 - if it is absent, this reports it

    # Its file imports PyTorch for a class that is not used here.
    unused = ["torch", "torch.utils", "torch.utils.data"]
    unused += ["axolotl.utils.distributed", "axolotl.utils.logging"]
    sys.modules.update((name, MagicMock()) for name in unused)
    module = load_file("axolotl", "utils/samplers/multipack.py")

    def pack(some):  # the default, groups of 100,000, takes quadratic time: minutes
        return len(module.pack_parallel(some, SEQ_LEN, 1000, SEQ_LEN, num_processes=1)), 0.0

    pack(lengths[:1000])  # the first call compiles
    return lambda: pack(lengths)


def binpacking(lengths):
    from binpacking import to_constant_volume

    numbers = lengths.tolist()
    return lambda: (len(to_constant_volume(numbers, SEQ_LEN)), 0.0)


RIVALS = [  # documents: so few that every rival ends within three minutes
    ("TRL", trl, 1_000_000, "best-fit decreasing; memory with 1-byte tokens"),
    ("LLaMA-Factory", llamafactory, 1_000_000, "greedy knapsack, quadratic"),
    ("axolotl", axolotl, 1_000_000, "first fit in groups of 1000"),
    ("binpacking", binpacking, 10_000, "best-fit decreasing, quadratic"),
]


def report(name, n, rows, padding, seconds, ours, peak_mib, note):
    rate = n / seconds
    print(
        f"{name:<14} {n:>10} {rows:>8} {padding:>10.4f} {seconds:>9.4f} {rate:>12.0f} "
        f"{ours / rate:>9.1f} {peak_mib:>9.1f}  {note}",
        flush=True,
    )


def measure(name, prepare, n, note, path, ours):
    lengths = numpy.fromfile(path, dtype=numpy.int32, count=n)
    try:
        call = prepare(lengths)
    except ImportError as error:
        print(f"{name:<14} left out: {error}; see the top of this file for pip's arguments")
        return
    n_tokens = int(lengths.sum(dtype=numpy.int64))
    start = time.process_time()
    rows, not_packing = call()
    seconds = time.process_time() - start - not_packing
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    padding = 100 * (1 - n_tokens / (rows * SEQ_LEN))
    report(name, n, rows, padding, seconds, ours, peak_mib, note)


def main():
    if len(sys.argv) != 2:
        sys.exit("Usage: fit-rivals.py BENCH_FIT (build/bench/bench_fit)")
    bench = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lengths.int32")
        subprocess.run([bench, "--dump", path], check=True)
        table = subprocess.run([bench], check=True, capture_output=True, text=True).stdout
        line = next(line for line in table.splitlines() if line.startswith(OURS))
        n, rows, _, padding, seconds, _, peak_mib = line.split()[1:]
        ours = int(n) / float(seconds)

        print(
            f"{OURS}, rows of {SEQ_LEN}\n{'package':<14} {'documents':>10} {'rows':>8} "
            f"{'padding-%':>10} {'CPU-s':>9} {'docs/CPU-s':>12} {'ours-by':>9} {'peak-MiB':>9}"
        )
        report("bindery", int(n), int(rows), float(padding), float(seconds), ours,
               float(peak_mib), "best-fit decreasing")
        for rival in RIVALS:
            child = multiprocessing.Process(target=measure, args=(*rival, path, ours))
            child.start()
            child.join()


if __name__ == "__main__":
    main()
