"""Arithmetic instructions: every thread uses only its own registers."""

import operator

import numpy as np

from operands import KINDS, UNSIGNED, computes, instruction, parts_of, reader, writer
from ptx_text import PtxError

INTEGER = r"([us](?:16|32|64))"
FLOAT = r"(f32|f64)"
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def flushed(values):
    """Replaces subnormal values by zeros of their sign, for .ftz."""
    tiny = np.finfo(np.float32).tiny
    return np.where(np.abs(values) < tiny, np.copysign(np.float32(0), values), values)


def with_ftz(ftz: str | None, function):
    if not ftz:
        return function
    return lambda *values: flushed(function(*[flushed(v) for v in values]))


# ---- Sums and products -----------------------------------------------------------------------

SUMS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


@instruction(r"(add|sub)\." + INTEGER)
def integer_sum(code, kernel, name, kind):
    return computes(code, kernel, kind, [kind] * 2, SUMS[name])


@instruction(r"(add|sub|mul)(?:\.rn)?(\.ftz)?\." + FLOAT)
def float_sum(code, kernel, name, ftz, kind):
    return computes(code, kernel, kind, [kind] * 2, with_ftz(ftz, SUMS[name]))


@instruction(r"(mul|mad)\.(lo|hi|wide)\." + INTEGER)
def integer_product(code, kernel, name, part, kind):
    result = WIDER[kind] if part == "wide" else kind
    wide = KINDS[result]
    if part == "hi":
        product = upper_half(kind)
    else:
        product = lambda x, y: x.astype(wide) * y.astype(wide)  # noqa: E731
    if name == "mul":
        return computes(code, kernel, result, [kind] * 2, product)
    kinds = [kind] * 2 + [result]
    return computes(code, kernel, result, kinds, lambda x, y, z: product(x, y) + z)


def upper_half(kind: str):
    bits = int(kind[1:])
    narrow, wide = KINDS[kind], KINDS[WIDER[kind]] if bits < 64 else object
    shift = bits if wide is object else wide(bits)
    return lambda x, y: np.asarray((x.astype(wide) * y.astype(wide)) >> shift).astype(narrow)


@instruction(r"fma\.(rn|rm)(\.ftz)?\." + FLOAT)
def fused_product(code, kernel, rounding, ftz, kind):
    """The product of two floats is exact in double and the sum nearly so. For doubles the product
    is rounded, but no test here depends on it."""

    def fma(x, y, z):
        exact = np.multiply(x, y, dtype=np.float64) + z
        nearest = exact.astype(KINDS[kind])
        if rounding == "rm":
            nearest = np.where(nearest > exact, np.nextafter(nearest, -np.inf), nearest)
        return nearest.astype(KINDS[kind])

    if rounding == "rm" and kind == "f64":
        raise PtxError("unknown rounding of double")
    return computes(code, kernel, kind, [kind] * 3, with_ftz(ftz, fma))


@instruction(r"(div|rem)\." + INTEGER)
def integer_quotient(code, kernel, name, kind):
    def divide(x, y):
        if np.any(y == 0):
            raise PtxError("division by zero")
        if kind[0] == "u":
            return x // y if name == "div" else x % y
        # PTX rounds towards zero, Python down.
        rest = np.fmod(x, y)
        return (x - rest) // y if name == "div" else rest

    return computes(code, kernel, kind, [kind] * 2, divide)


@instruction(r"div(?:\.rn|\.approx|\.full)?(\.ftz)?\." + FLOAT)
def float_quotient(code, kernel, ftz, kind):
    return computes(code, kernel, kind, [kind] * 2, with_ftz(ftz, operator.truediv))


@instruction(r"(min|max)\." + INTEGER)
def integer_extreme(code, kernel, name, kind):
    function = np.minimum if name == "min" else np.maximum
    return computes(code, kernel, kind, [kind] * 2, function)


@instruction(r"(min|max)(\.ftz)?(\.NaN)?\." + FLOAT)
def float_extreme(code, kernel, name, ftz, nan, kind):
    functions = (np.minimum, np.maximum) if nan else (np.fmin, np.fmax)
    function = with_ftz(ftz, functions[name == "max"])
    if len(code.operands) == 4:  # sum of three values
        return computes(
            code, kernel, kind, [kind] * 3, lambda x, y, z: function(function(x, y), z)
        )
    return computes(code, kernel, kind, [kind] * 2, function)


@instruction(r"(neg|abs)(\.ftz)?\.(s16|s32|s64|f32|f64)")
def sign(code, kernel, name, ftz, kind):
    function = np.negative if name == "neg" else np.abs
    return computes(code, kernel, kind, [kind], with_ftz(ftz, function))


FUNCTIONS = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda x: x.dtype.type(1) / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "tanh": np.tanh,
}


@instruction(r"(ex2|lg2|rcp|sqrt|rsqrt|tanh)(?:\.approx|\.rn)(\.ftz)?\." + FLOAT)
def float_function(code, kernel, name, ftz, kind):
    """Approximations are exact here: tolerances must allow for those of a device."""
    return computes(code, kernel, kind, [kind], with_ftz(ftz, FUNCTIONS[name]))


@instruction(r"copysign\." + FLOAT)
def copied_sign(code, kernel, kind):
    return computes(code, kernel, kind, [kind] * 2, lambda x, y: np.copysign(y, x))


# ---- Bits ------------------------------------------------------------------------------------

LOGIC = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


@instruction(r"(and|or|xor)\.(pred|b16|b32|b64)")
def logic(code, kernel, name, kind):
    return computes(code, kernel, kind, [kind] * 2, LOGIC[name])


@instruction(r"not\.(pred|b16|b32|b64)")
def complement(code, kernel, kind):
    return computes(code, kernel, kind, [kind], np.invert)


@instruction(r"(shl|shr)\.([bus](?:16|32|64))")
def shift(code, kernel, name, kind):
    """A shift by all bits or more leaves 0, or the sign."""
    dtype = np.dtype(KINDS[kind])
    bits = 8 * dtype.itemsize

    def shifted(x, n):
        inside = np.minimum(n, bits - 1).astype(dtype)
        y = x << inside if name == "shl" else x >> inside
        if name == "shr" and kind[0] == "s":
            return y
        return np.where(n < bits, y, dtype.type(0))

    return computes(code, kernel, kind, [kind, "u32"], shifted)


@instruction(r"shf\.([lr])\.(wrap|clamp)\.b32")
def funnel_shift(code, kernel, direction, mode):
    def shifted(low, high, n):
        n = (n & np.uint32(31) if mode == "wrap" else np.minimum(n, 32)).astype(np.uint64)
        pair = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        left = direction == "l"
        return (pair << n >> np.uint64(32) if left else pair >> n).astype(np.uint32)

    return computes(code, kernel, "b32", ["b32", "b32", "u32"], shifted)


@instruction(r"lop3\.b32")
def three_way_logic(code, kernel):
    def combine(x, y, z, table):
        result = np.uint32(0)
        for row in range(8):
            if int(table) >> row & 1:
                picked = [v if row >> bit & 1 else ~v for v, bit in ((x, 2), (y, 1), (z, 0))]
                result = result | (picked[0] & picked[1] & picked[2])
        return result

    return computes(code, kernel, "b32", ["b32"] * 3 + ["u32"], combine)


@instruction(r"prmt\.b32")
def permuted_bytes(code, kernel):
    def permute(low, high, choice):
        pair = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        result = np.uint32(0)
        for i in range(4):
            pick = choice >> np.uint32(4 * i) & np.uint32(15)
            shift = np.uint64(8) * (pick & np.uint32(7)).astype(np.uint64)
            byte = pair >> shift & np.uint64(255)
            sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
            byte = np.where(pick & np.uint32(8), sign, byte)
            result = result | byte.astype(np.uint32) << np.uint32(8 * i)
        return result

    return computes(code, kernel, "b32", ["b32"] * 3, permute)


def field_mask(dtype, length):
    """Returns `length` ones."""
    bits = 8 * np.dtype(dtype).itemsize
    ones = (dtype(1) << np.minimum(length, bits - 1).astype(dtype)) - dtype(1)
    return np.where(length < bits, ones, ~dtype(0))


@instruction(r"bfi\.(b32|b64)")
def inserted_field(code, kernel, kind):
    dtype = KINDS[kind]

    def insert(x, y, begin, length):
        begin, length = begin & np.uint32(255), length & np.uint32(255)
        shift = np.minimum(begin, 8 * np.dtype(dtype).itemsize - 1).astype(dtype)
        mask = np.where(begin < 8 * np.dtype(dtype).itemsize, field_mask(dtype, length), 0)
        mask = mask.astype(dtype) << shift
        return (x << shift) & mask | y & ~mask

    return computes(code, kernel, kind, [kind, kind, "u32", "u32"], insert)


@instruction(r"bfe\.(u32|u64)")
def extracted_field(code, kernel, kind):
    dtype = KINDS[kind]

    def extract(x, begin, length):
        begin, length = begin & np.uint32(255), length & np.uint32(255)
        bits = 8 * np.dtype(dtype).itemsize
        moved = np.where(begin < bits, x >> np.minimum(begin, bits - 1).astype(dtype), 0)
        return moved.astype(dtype) & field_mask(dtype, length)

    return computes(code, kernel, kind, [kind, "u32", "u32"], extract)


@instruction(r"popc\.(b32|b64)")
def counted_bits(code, kernel, kind):
    count = lambda x: np.bitwise_count(x).astype(np.uint32)  # noqa: E731
    return computes(code, kernel, "u32", [kind], count)


@instruction(r"clz\.b32")
def leading_zeros(code, kernel):
    # The exponent of a double that holds the value exactly.
    count = lambda x: (32 - np.frexp(x.astype(np.float64))[1]).astype(np.uint32)  # noqa: E731
    return computes(code, kernel, "u32", ["b32"], count)


# ---- Comparing and choosing ------------------------------------------------------------------

COMPARE = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "lo": operator.lt, "ls": operator.le,
    "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
UNORDERED = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}


def comparison(name: str, kind: str):
    if name in ("num", "nan"):
        return lambda x, y: (np.isnan(x) | np.isnan(y)) == (name == "nan")
    if name == "ne" and kind[0] == "f":  # false if one is NaN
        return lambda x, y: (x < y) | (x > y)
    if name == "neu":
        return operator.ne
    if name == "equ":
        return lambda x, y: ~((x < y) | (x > y))
    if name in UNORDERED:
        opposite = COMPARE[UNORDERED[name]]
        return lambda x, y: ~opposite(x, y)
    return COMPARE[name]


@instruction(
    r"setp\.(eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan)"
    r"(?:\.(and|or|xor))?(\.ftz)?\.([busf](?:16|32|64))"
)
def set_predicate(code, kernel, name, combine, ftz, kind):
    compare = comparison(name, kind)
    if ftz:
        inner = compare
        compare = lambda x, y: inner(flushed(x), flushed(y))  # noqa: E731
    if not combine:
        return computes(code, kernel, "pred", [kind] * 2, compare)
    both = LOGIC[combine]
    return computes(
        code, kernel, "pred", [kind] * 2 + ["pred"], lambda x, y, p: both(compare(x, y), p)
    )


@instruction(r"selp\.([busf](?:16|32|64))")
def choice(code, kernel, kind):
    write = writer(code.operands[0], kind)
    yes, no, condition = (
        reader(o, k, kernel) for o, k in zip(code.operands[1:], (kind, kind, "pred"))
    )
    return lambda w, t: write(w, t, np.where(condition(w, t), yes(w, t), no(w, t)))


# ---- Copies ----------------------------------------------------------------------------------


@instruction(r"mov\.(pred|[busf](?:16|32|64))")
def move(code, kernel, kind):
    to, source = code.operands
    n_to, n_from = len(getattr(to, "parts", "1")), len(getattr(source, "parts", "1"))
    if n_to == n_from == 1:
        return computes(code, kernel, kind, [kind], lambda x: x)
    n = max(n_to, n_from)
    size = np.dtype(KINDS[kind]).itemsize
    whole, part = f"b{8 * size}", f"b{8 * size // n}"
    step = 8 * size // n
    if n_to == 1:  # several registers become one
        reads = [reader(o, part, kernel) for o in parts_of(source, n)]
        write = writer(to, whole)
        wide = UNSIGNED[size]

        def pack(w, t):
            pieces = [r(w, t).astype(wide) << wide(step * i) for i, r in enumerate(reads)]
            write(w, t, np.bitwise_or.reduce(np.broadcast_arrays(*pieces)))

        return pack
    read = reader(source, whole, kernel)
    writes = [writer(o, part) for o in parts_of(to, n)]
    narrow = KINDS[part]

    def unpack(w, t):
        value = read(w, t)
        for i, write in enumerate(writes):
            write(w, t, (value >> value.dtype.type(step * i)).astype(narrow))

    return unpack
