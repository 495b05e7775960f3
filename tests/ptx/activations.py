"""Activations in double precision."""

import numpy as np

RELU, GELU, SILU = 1, 2, 3  # bd_activation


def activated(activation: int, x):
    """Returns f(x) and f'(x) in double."""
    x = x.astype(np.float64)
    if activation == RELU:
        return np.maximum(x, 0), (x > 0).astype(np.float64)
    if activation == SILU:
        sigmoid = 1 / (1 + np.exp(-x))
        return x * sigmoid, sigmoid + x * sigmoid * (1 - sigmoid)
    factor = np.sqrt(2 / np.pi)
    t = np.tanh(factor * (x + 0.044715 * x**3))
    slope = factor * (1 + 3 * 0.044715 * x**2)
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * slope
