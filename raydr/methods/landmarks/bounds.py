"""Theorems of P1 on landmarks: each as printed and, if that is false, corrected.

:mod:`raydr.methods.landmarks.measured` computes the bounded quantities. The kernel is ``k(x, y) = exp(-gamma |x -
y|^2)``. Records are rows (columns in the paper). K_XY is the kernel matrix between X and Y. "MMD" is the squared MMD of
(9), an unbiased estimate that can be negative. Summary:

========== ============================================================================================================
Lemma 1    false as printed: sqrt(2) too small (:func:`lemma_1_printed`), and one printing of xi is too small as well
Theorem 1  true for Q = 1, but loose; for Q > 1 its second term is negative, and it is false (:func:`theorem_1`)
Theorem 2  true on average over samples, not "for any sample"; the Frobenius norm lacks a factor n
Theorem 3  true, and empty: above 2 n_x, where an estimate of zero is wrong by n_x at most (:func:`theorem_5`)
Theorem 4  false as printed, where no noise at all is asked for; as it must be meant, false for large epsilon
Theorem 5  as Theorem 3
Theorem 6  Delta of appendix E is true; that of the main text lacks gamma, and is false for large gamma; the variance
           is too small for very large epsilon
========== ============================================================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.methods.landmarks.kernel import gaussian_kernel, gradient_sensitivity, row_term


@dataclass(frozen=True)
class Norms:
    """Norms of one matrix, or bounds on them; kernels have no unit."""

    spectral: float
    frobenius: float


# --- Lemma 1: noise on the data -------------------------------------------------------------------------------------


def noise_reach(features: int, t: float) -> float:
    """Return xi_m: with probability ``1 - exp(-t)`` a standard normal vector of m features is not longer.

    P1 prints ``sqrt(m + sqrt(2 m t) + 2t)`` in Theorem 3 and Lemma 1, and ``sqrt(m + 2 sqrt(m t) + 2t)`` in
    the proof. This function uses the second, which is Laurent & Massart's (2000, lemma 1). The first is
    false: it is sqrt(t) standard deviations above the mean. For large m chi-squared is close to normal, and a
    normal variable exceeds that with more than ``exp(-t)`` probability.
    """
    return math.sqrt(features + 2.0 * math.sqrt(features * t) + 2.0 * t)


def lemma_1(
    rows: int, features: int, gamma: float, deviation: float, diameter: float, failure: float
) -> float:
    """Return Lemma 1 as proved: Frobenius norm of ``K_X'X' - K_XX``, where X' is X with Gaussian noise.

    ``2 sqrt(n (n - 1)) gamma (sigma^2 xi^2 + sqrt(2) D sigma xi)``: each of the n (n - 1) entries off the diagonal
    changes by at most ``gamma (2 sigma^2 xi^2 + 2 D sqrt(2) sigma xi)``.

    Parameters
    ----------
    rows, features : int
        n and m of X.
    gamma : float
        Kernel bandwidth, 1 / squared distance.
    deviation : float
        sigma of each entry of the noise, a distance.
    diameter : float
        D, the largest distance between two rows.
    failure : float
        Probability, over the noise, with which the bound may fail; ``t = log(n (n - 1) / failure)``.
    """
    pairs = rows * (rows - 1)
    reach = deviation * noise_reach(features, math.log(pairs / failure))
    return 2.0 * math.sqrt(pairs) * gamma * (reach**2 + math.sqrt(2.0) * diameter * reach)


def lemma_1_printed(
    rows: int, features: int, gamma: float, deviation: float, diameter: float, failure: float
) -> float:
    """Return Lemma 1 (24) as printed: ``sqrt(2) n gamma (...)``; the proof's last line uses 2 as the square of 2.

    It is false: with equal rows, small gamma and many features the error almost surely exceeds it. Parameters
    as for :func:`lemma_1`.
    """
    proven = lemma_1(rows, features, gamma, deviation, diameter, failure)
    return proven / math.sqrt(2.0 * (1.0 - 1.0 / rows))


# --- Theorem 1: convergence -----------------------------------------------------------------------------------------


def theorem_1(
    drop: float, rounds: int, local_steps: int, lipschitz: Float64Array, weights: Float64Array, zeta: float
) -> float:
    """Return Theorem 1 (17) as printed: mean squared Frobenius norm of a step of Algorithm 1, a squared distance.

    For Q = 1 it is true, but :func:`descent` is tighter: no second term, and half of the first. For Q > 1 the second
    term is divided by ``1 - 3 (Q - 1)^2 (rho_L + max L_p^2 / L^2)``. It is at most -5, because both ratios are at least
    1. The proof divides an inequality by this negative number. The printed bound can be negative, but the quantity that
    it bounds cannot.

    Parameters
    ----------
    drop : float
        ``F(Y^0) - F(Y^S)``.
    rounds, local_steps : int
        S and Q.
    lipschitz, weights : (clients,)
        L_p, 1 / squared distance, and omega_p, which sum to 1. The step must be ``1 / L``, L the mean of L_p.
    zeta : float
        Largest Frobenius norm of the difference of two clients' gradients; 1 / distance. :func:`zeta` holds
        for any data.
    """
    mean = float(weights @ lipschitz)
    spread = float(weights @ lipschitz**2) / mean**2
    second = 12.0 * spread * zeta**2 * (local_steps + 1) * (2 * local_steps + 1)
    denominator = 1.0 - 3.0 * (local_steps - 1) ** 2 * (spread + float(lipschitz.max()) ** 2 / mean**2)
    return 4.0 * drop / (rounds * local_steps * mean) + second / (mean**2 * denominator)


def descent(drop: float, rounds: int, lipschitz: float) -> float:
    """Return the bound for Q = 1, ``2 / (S L) (F(Y^0) - F(Y^S))``: gradient descent on F.

    A step of length 1 / L lowers F by at least L / 2 times its squared length.
    """
    return 2.0 * drop / (rounds * lipschitz)


def zeta(landmarks: int, gamma: float) -> float:
    """Return the largest Frobenius norm of the difference of two clients' gradients, for any data.

    The landmark term is equal for both. The rest is the effect of replacing the only record of a client.
    """
    return 2.0 * gradient_sensitivity(1, landmarks, gamma)


# --- Theorem 2: Nystrom from sampled columns ------------------------------------------------------------------------


def theorem_2(kernel: Float64Array, sampled: int, rank: int) -> Norms:
    """Return Theorem 2, corrected by a factor n in the Frobenius norm: error of rank-k Nystrom from c columns.

    ``|H - H_k|_2 + 2 n rho / sqrt(c)`` and ``|H - H_k|_F + n rho (64 k / c)^(1/4)``, rho the largest diagonal
    entry. It holds on average over samples (Drineas & Mahoney 2005). For a single sample, which may miss a
    whole cluster, it is false. It does not apply to learnt landmarks, which are not columns of H.

    Parameters
    ----------
    kernel : (rows, rows)
        H, positive semi-definite.
    sampled, rank : int
        c and k.
    """
    size = kernel.shape[0] * float(kernel.diagonal().max())
    rest = _beyond_rank(kernel, rank)
    return Norms(
        rest.spectral + 2.0 * size / math.sqrt(sampled),
        rest.frobenius + size * (64.0 * rank / sampled) ** 0.25,
    )


def theorem_2_printed(kernel: Float64Array, sampled: int, rank: int) -> Norms:
    """Return Theorem 2 (20) as printed.

    Its Frobenius norm is false even on average, if there are more clusters than a sample meets.
    """
    rho = float(kernel.diagonal().max())
    frobenius = _beyond_rank(kernel, rank).frobenius + rho * (64.0 * rank / sampled) ** 0.25
    return Norms(theorem_2(kernel, sampled, rank).spectral, frobenius)


def _beyond_rank(kernel: Float64Array, rank: int) -> Norms:
    """Return the norms of H - H_k."""
    rest = np.abs(np.sort(np.linalg.eigvalsh(kernel))[::-1][rank:])
    return Norms(float(rest.max(initial=0.0)), float(np.sqrt((rest**2).sum())))


# --- Theorems 3 and 5: Nystrom from learnt landmarks ----------------------------------------------------------------


def theorem_5(rows: Float64Array, landmarks: Float64Array, gamma: float, rank: int) -> Norms:
    """Return Theorem 5 as printed: error of ``C W_k^+ C^T`` against K_XX, where ``C = K_XY`` and ``W = K_YY``.

    ``Cond(K_a) (|MMD| / (n_x + n_y) + 1) + 2 n_x``, and with ``sqrt(n_x + n_y - k)`` before Cond and ``2 k^(1/4) n_x
    sqrt(1 + n_y / n_x)`` after it. K_a is the kernel of landmarks and rows together. The theorem is true, but vacuous:
    ``0 <= C W_k^+ C^T <= K_XX`` as quadratic forms, so the error is at most that of an estimate of zero, n_x. The bound
    exceeds 2 n_x. The proof treats MMD as ``1' K_a 1`` with signs, but the terms of MMD are means, not sums. The bound
    holds anyway, because the smallest eigenvalue of K_a is at most 1, the mean of all. So MMD could be left out, and
    the theorem is not a reason to lower it. The proof also loses a 2 before n_y / n_x. :func:`certificate` is a useful
    bound.

    Returns
    -------
    norms : Norms
        Infinite if K_a is singular to double precision, for instance if rows repeat.
    """
    n_x, n_y = len(rows), len(landmarks)
    both = np.concatenate([landmarks, rows])
    values = np.linalg.eigvalsh(gaussian_kernel(both, both, gamma))
    rounding = np.finfo(np.float64).eps * len(both) * values[-1]
    condition = float(values[-1] / values[0]) if values[0] > rounding else math.inf
    first = condition * (abs(_discrepancy(rows, landmarks, gamma)) / (n_x + n_y) + 1.0)
    return Norms(
        first + 2.0 * n_x,
        math.sqrt(n_x + n_y - rank) * first + 2.0 * rank**0.25 * n_x * math.sqrt(1.0 + n_y / n_x),
    )


def theorem_3(
    noisy: Float64Array, landmarks: Float64Array, gamma: float, rank: int, perturbation: float
) -> Norms:
    """Return Theorem 3: :func:`theorem_5` for rows with noise, plus the change of the kernel by noise (Lemma 1).

    It is true, but vacuous: the estimate from noisy rows is itself at most n_x, and so is K_XX. ``noisy`` is
    X' = X + E, and ``perturbation`` is :func:`lemma_1_printed` or :func:`lemma_1`.
    """
    without = theorem_5(noisy, landmarks, gamma, rank)
    return Norms(without.spectral + perturbation, without.frobenius + perturbation)


def certificate(rows: Float64Array, landmarks: Float64Array, gamma: float, rank: int) -> float:
    """Return ``n_x - trace(C W_k^+ C^T)``, raydr's bound on the error of the landmarks' kernel in both norms.

    K_XX minus the estimate has no negative eigenvalue, so no eigenvalue exceeds their sum, and the diagonal
    of K_XX is 1. The server can compute the bound from the messages that it received.
    """
    return max(0.0, len(rows) - float((landmark_features(rows, landmarks, gamma, rank) ** 2).sum()))


def landmark_features(rows: Float64Array, landmarks: Float64Array, gamma: float, rank: int) -> Float64Array:
    """Return F = ``C V_k L_k^(-1/2)`` (rows, rank), where W = V L V^T, so that ``F F^T = C W_k^+ C^T``."""
    values, vectors = np.linalg.eigh(gaussian_kernel(landmarks, landmarks, gamma))
    chosen = slice(len(landmarks) - rank, None)
    return np.asarray(gaussian_kernel(rows, landmarks, gamma) @ vectors[:, chosen] / np.sqrt(values[chosen]))


def numerical_rank(landmarks: Float64Array, gamma: float, tolerance: float = 1e-10) -> int:
    """Count the eigenvalues of K_YY above ``tolerance`` times the largest, which a float64 pseudo-inverse can use."""
    values = np.linalg.eigvalsh(gaussian_kernel(landmarks, landmarks, gamma))
    return int((values > tolerance * values[-1]).sum())


def _discrepancy(rows: Float64Array, landmarks: Float64Array, gamma: float) -> float:
    """Return the objective (9)."""
    across = float(gaussian_kernel(rows, landmarks, gamma).mean())
    return row_term(rows, gamma) - 2.0 * across + row_term(landmarks, gamma)


# --- Theorem 4: privacy of noise on the data ------------------------------------------------------------------------


def theorem_4_printed(radius: float, epsilon: float) -> float:
    """Return the smallest delta of Theorem 4 as printed, ``delta >= 2 c tau / epsilon``, for an epsilon.

    It is false, because it does not contain the deviation of the noise. For short rows without noise it
    claims a small delta, where the true one is 1. ``radius`` is tau, the longest row; ``c^2 = 2 log(1.25 /
    delta)``.
    """
    low, high = 1e-300, 1.25
    for _ in range(200):
        middle = math.sqrt(low * high)
        enough = middle >= 2.0 * math.sqrt(2.0 * math.log(1.25 / middle)) * radius / epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high


def theorem_4(radius: float, epsilon: float, delta: float) -> float:
    """Return Theorem 4 as intended: deviation of Gaussian noise ``sigma >= c Delta / epsilon`` with Delta = 2 tau.

    ``c^2 = 2 log(1.25 / delta)``, by Dwork & Roth (2014, theorem 3.22) for epsilon below 1. For large epsilon
    it is false, because the necessary noise falls no faster than ``1 / sqrt(epsilon)`` (Balle & Wang 2018).
    """
    return math.sqrt(2.0 * math.log(1.25 / delta)) * 2.0 * radius / epsilon


# --- Theorem 6: privacy of noise on the gradient --------------------------------------------------------------------


@dataclass(frozen=True)
class Extents:
    """Quantities of the data in Theorem 6, all of them distances.

    Attributes
    ----------
    row : float
        tau_X, the longest row.
    landmarks : float
        tau_Y, the spectral norm of the landmarks' matrix.
    between : float
        Upsilon, the largest distance between a row and a landmark.
    """

    row: float
    landmarks: float
    between: float


def theorem_6(rows: int, landmarks: int, gamma: float, extents: Extents) -> float:
    """Return the sensitivity Delta of one client gradient, as derived in appendix E; 1 / distance.

    ``8 sqrt(n_y) gamma tau_X / (n_p n_y) (1 + 2 gamma (tau_X + tau_Y) (tau_X + Upsilon))``, when one record
    is replaced. It is true if the extents hold for every possible record. :func:`gradient_sensitivity
    <raydr.methods.landmarks.kernel.gradient_sensitivity>` assumes nothing about the data and is smaller.
    """
    tau = extents.row
    rest = 1.0 + 2.0 * gamma * (tau + extents.landmarks) * (tau + extents.between)
    return 8.0 * gamma * tau / (rows * math.sqrt(landmarks)) * rest


def theorem_6_printed(rows: int, landmarks: int, gamma: float, extents: Extents) -> float:
    """Return Delta as printed in the main text: without gamma, so in a unit other than a gradient's.

    It is too large for gamma below 1, and false for large gamma: the same data in smaller units break it.
    """
    return theorem_6(rows, landmarks, gamma, extents) / gamma


def theorem_6_deviation(sensitivity: float, rounds: int, epsilon: float, delta: float) -> float:
    """Return the deviation of the noise of S rounds, ``sqrt(8 S Delta^2 log(e + epsilon / delta)) / epsilon``.

    S adaptive rounds of Gaussian noise equal one round of sensitivity ``sqrt(S) Delta``, so the privacy
    follows from ``sigma / (sqrt(S) Delta)``. It is more than enough up to an epsilon of dozens. "For any
    epsilon" is false, because the privacy loss then exceeds epsilon.
    """
    return math.sqrt(8.0 * rounds * math.log(math.e + epsilon / delta)) * sensitivity / epsilon
