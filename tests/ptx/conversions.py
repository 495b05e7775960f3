"""Instructions that convert between types, bf16 among them."""

import numpy as np

from operands import KINDS, computes, instruction


def to_bf16(x):
    """Returns the bits of float32 values rounded to the nearest bf16, ties to even."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    odd = bits >> np.uint32(16) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded.astype(np.uint16))


def from_bf16(bits):
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


@instruction(r"cvt\.rn\.bf16x2\.f32")
def convert_pair(code, kernel):
    """The first operand becomes the upper half."""

    def pack(high, low):
        return to_bf16(high).astype(np.uint32) << np.uint32(16) | to_bf16(low).astype(np.uint32)

    return computes(code, kernel, "bf16x2", ["f32", "f32"], pack)


@instruction(r"cvt\.rn\.bf16\.f32")
def convert_to_bf16(code, kernel):
    return computes(code, kernel, "bf16", ["f32"], to_bf16)


@instruction(r"cvt\.f32\.bf16")
def convert_from_bf16(code, kernel):
    return computes(code, kernel, "f32", ["bf16"], from_bf16)


@instruction(r"cvt\.([us](?:8|16|32|64))\.([us](?:8|16|32|64))")
def convert_integer(code, kernel, result, kind):
    return computes(code, kernel, result, [kind], lambda x: x.astype(KINDS[result]))


@instruction(r"cvt\.rn\.(f32|f64)\.([us](?:8|16|32|64))")
def convert_to_float(code, kernel, result, kind):
    return computes(code, kernel, result, [kind], lambda x: x.astype(KINDS[result]))


@instruction(r"cvt(?:\.rn)?\.(f32|f64)\.(f32|f64)")
def convert_float(code, kernel, result, kind):
    return computes(code, kernel, result, [kind], lambda x: x.astype(KINDS[result]))


@instruction(r"cvt\.sat\.f32\.f32")
def saturate(code, kernel):
    zero, one = np.float32(0), np.float32(1)
    inside = lambda x: np.where(x > 0, np.minimum(x, one), zero)  # noqa: E731
    return computes(code, kernel, "f32", ["f32"], inside)


ROUNDINGS = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@instruction(r"cvt\.(rni|rzi|rmi|rpi)\.([us](?:32|64)|f32|f64)\.(f32|f64)")
def round_float(code, kernel, rounding, result, kind):
    dtype, whole = np.dtype(KINDS[result]), ROUNDINGS[rounding]
    if dtype.kind == "f":
        return computes(code, kernel, result, [kind], lambda x: whole(x).astype(dtype))
    limits = np.iinfo(dtype)

    def convert(x):
        rounded = np.where(np.isnan(x), 0, whole(x.astype(np.float64)))
        low, high = rounded <= limits.min, rounded >= limits.max
        result = np.array(np.where(low | high, 0, rounded).astype(dtype))
        result[low], result[high] = limits.min, limits.max
        return result

    return computes(code, kernel, result, [kind], convert)
