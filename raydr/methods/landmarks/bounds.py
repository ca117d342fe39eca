"""What P1 proves of its landmarks: each theorem as printed, and where that fails, as it should read.

What they bound is in :mod:`raydr.methods.landmarks.measured`. Gaussian kernel ``k(x, y) = exp(-gamma |x - y|^2)``
throughout, rows as rows (the paper has columns); K_XY is its matrix between X and Y. "MMD" is the squared one of (9),
which is an unbiased estimate and can be negative. In short:

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
    """Of one matrix, or bounds on them; kernels have no unit."""

    spectral: float
    frobenius: float


# --- Lemma 1: noise on the data -------------------------------------------------------------------------------------


def noise_reach(features: int, t: float) -> float:
    """xi_m: with probability ``1 - exp(-t)`` a standard normal vector of m features is no longer.

    Printed as ``sqrt(m + sqrt(2 m t) + 2t)`` in Theorem 3 and Lemma 1, and as ``sqrt(m + 2 sqrt(m t) + 2t)`` in the
    proof. The second is taken: it is Laurent & Massart's (2000, lemma 1). The first is false: its tail beyond the mean
    is sqrt(t) standard deviations, past which a normal variable, which chi-squared is near for large m, has more than
    ``exp(-t)``.
    """
    return math.sqrt(features + 2.0 * math.sqrt(features * t) + 2.0 * t)


def lemma_1(
    rows: int, features: int, gamma: float, deviation: float, diameter: float, failure: float
) -> float:
    """Lemma 1 as its proof has it: Frobenius norm of ``K_X'X' - K_XX`` where X' is X with Gaussian noise.

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
    """Lemma 1 (24): ``sqrt(2) n gamma (...)``, where the proof's last line takes 2 for the square of 2.

    False: with all rows alike, small gamma and many features it is passed almost surely. Parameters as for
    :func:`lemma_1`.
    """
    proven = lemma_1(rows, features, gamma, deviation, diameter, failure)
    return proven / math.sqrt(2.0 * (1.0 - 1.0 / rows))


# --- Theorem 1: convergence -----------------------------------------------------------------------------------------


def theorem_1(
    drop: float, rounds: int, local_steps: int, lipschitz: Float64Array, weights: Float64Array, zeta: float
) -> float:
    """Theorem 1 (17), as printed: mean squared Frobenius norm of a step of Algorithm 1, a squared distance.

    With Q = 1 it is true, but :func:`descent` is the same without its second term and with half of the first. With
    Q > 1 the second term divides by ``1 - 3 (Q - 1)^2 (rho_L + max L_p^2 / L^2)``, which is at most -5, since both
    ratios are at least 1: the proof divides an inequality by a negative number, and what is printed can be negative
    itself, while what it bounds is not.

    Parameters
    ----------
    drop : float
        ``F(Y^0) - F(Y^S)``.
    rounds, local_steps : int
        S and Q.
    lipschitz, weights : (clients,)
        L_p, 1 / squared distance, and omega_p, which add up to 1. The step must be ``1 / L``, L the mean of L_p.
    zeta : float
        No two clients' gradients differ by more, in Frobenius norm; 1 / distance. :func:`zeta` holds for any data.
    """
    mean = float(weights @ lipschitz)
    spread = float(weights @ lipschitz**2) / mean**2
    second = 12.0 * spread * zeta**2 * (local_steps + 1) * (2 * local_steps + 1)
    denominator = 1.0 - 3.0 * (local_steps - 1) ** 2 * (spread + float(lipschitz.max()) ** 2 / mean**2)
    return 4.0 * drop / (rounds * local_steps * mean) + second / (mean**2 * denominator)


def descent(drop: float, rounds: int, lipschitz: float) -> float:
    """What Theorem 1 can say for Q = 1, ``2 / (S L) (F(Y^0) - F(Y^S))``: gradient descent on F, whose clients agree.

    A step of length 1 / L lowers F by at least L / 2 times its squared length.
    """
    return 2.0 * drop / (rounds * lipschitz)


def zeta(landmarks: int, gamma: float) -> float:
    """How far, in Frobenius norm, two clients' gradients can differ, whatever their data.

    The landmark term is the same for both; the rest is what replacing the only record of a client would do.
    """
    return 2.0 * gradient_sensitivity(1, landmarks, gamma)


# --- Theorem 2: Nystrom from sampled columns ------------------------------------------------------------------------


def theorem_2(kernel: Float64Array, sampled: int, rank: int) -> Norms:
    """Theorem 2 with the factor n that its Frobenius norm lacks: error of rank-k Nystrom from c sampled columns.

    ``|H - H_k|_2 + 2 n rho / sqrt(c)`` and ``|H - H_k|_F + n rho (64 k / c)^(1/4)``, rho the largest diagonal entry.
    By Drineas & Mahoney (2005) on average over samples; for a single sample, which may miss a whole cluster, false.
    It says nothing of learnt landmarks, which are no columns of H.

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
    """Theorem 2 (20) as printed; its Frobenius norm is false on average too, of clusters more than a sample meets."""
    rho = float(kernel.diagonal().max())
    frobenius = _beyond_rank(kernel, rank).frobenius + rho * (64.0 * rank / sampled) ** 0.25
    return Norms(theorem_2(kernel, sampled, rank).spectral, frobenius)


def _beyond_rank(kernel: Float64Array, rank: int) -> Norms:
    """Norms of H - H_k."""
    rest = np.abs(np.sort(np.linalg.eigvalsh(kernel))[::-1][rank:])
    return Norms(float(rest.max(initial=0.0)), float(np.sqrt((rest**2).sum())))


# --- Theorems 3 and 5: Nystrom from learnt landmarks ----------------------------------------------------------------


def theorem_5(rows: Float64Array, landmarks: Float64Array, gamma: float, rank: int) -> Norms:
    """Theorem 5, as printed: error of ``C W_k^+ C^T`` against K_XX, where ``C = K_XY`` and ``W = K_YY``.

    ``Cond(K_a) (|MMD| / (n_x + n_y) + 1) + 2 n_x``, and with ``sqrt(n_x + n_y - k)`` before Cond and
    ``2 k^(1/4) n_x sqrt(1 + n_y / n_x)`` behind it; K_a is the kernel of landmarks and rows together. True, and empty.
    For ``0 <= C W_k^+ C^T <= K_XX`` as quadratic forms, so the error is at most that of an estimate of zero, n_x, and
    what is printed is above 2 n_x. The proof takes MMD for ``1' K_a 1`` with signs, which it is not: its terms are
    means, those are sums. That costs nothing, since the smallest eigenvalue of K_a is at most 1, the mean of all; but
    it means that MMD could be left out, and that the theorem is no reason to lower it. It also loses a 2 before
    n_y / n_x. :func:`certificate` says something.

    Returns
    -------
    norms : Norms
        Infinite where K_a is singular to double precision, as it is where rows repeat.
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
    """Theorem 3: :func:`theorem_5` of rows with noise, plus what the noise does to the kernel, by Lemma 1.

    As true and as empty: the estimate from noisy rows is itself at most n_x, and so is K_XX. ``noisy`` are X' = X + E,
    and ``perturbation`` is :func:`lemma_1_printed`, or :func:`lemma_1`.
    """
    without = theorem_5(noisy, landmarks, gamma, rank)
    return Norms(without.spectral + perturbation, without.frobenius + perturbation)


def certificate(rows: Float64Array, landmarks: Float64Array, gamma: float, rank: int) -> float:
    """Ours: ``n_x - trace(C W_k^+ C^T)`` bounds the error of the landmarks' kernel in both norms.

    K_XX minus the estimate has no negative eigenvalue, so none exceeds their sum; and the diagonal of K_XX is 1. The
    server can compute it from what it was sent.
    """
    return max(0.0, len(rows) - float((landmark_features(rows, landmarks, gamma, rank) ** 2).sum()))


def landmark_features(rows: Float64Array, landmarks: Float64Array, gamma: float, rank: int) -> Float64Array:
    """``C V_k L_k^(-1/2)`` (rows, rank), where W = V L V^T: its products with itself are ``C W_k^+ C^T``."""
    values, vectors = np.linalg.eigh(gaussian_kernel(landmarks, landmarks, gamma))
    chosen = slice(len(landmarks) - rank, None)
    return np.asarray(gaussian_kernel(rows, landmarks, gamma) @ vectors[:, chosen] / np.sqrt(values[chosen]))


def numerical_rank(landmarks: Float64Array, gamma: float, tolerance: float = 1e-10) -> int:
    """Eigenvalues of K_YY above this part of the largest: the most that a pseudo-inverse in doubles can use."""
    values = np.linalg.eigvalsh(gaussian_kernel(landmarks, landmarks, gamma))
    return int((values > tolerance * values[-1]).sum())


def _discrepancy(rows: Float64Array, landmarks: Float64Array, gamma: float) -> float:
    """(9)."""
    across = float(gaussian_kernel(rows, landmarks, gamma).mean())
    return row_term(rows, gamma) - 2.0 * across + row_term(landmarks, gamma)


# --- Theorem 4: privacy of noise on the data ------------------------------------------------------------------------


def theorem_4_printed(radius: float, epsilon: float) -> float:
    """Smallest delta for which Theorem 4, as printed, promises (epsilon, delta): ``delta >= 2 c tau / epsilon``.

    False: the deviation of the noise does not occur in it. For rows short enough, without noise, it promises a small
    delta where that of no noise is 1. ``radius`` is tau, the longest row; ``c^2 = 2 log(1.25 / delta)``.
    """
    low, high = 1e-300, 1.25
    for _ in range(200):
        middle = math.sqrt(low * high)
        enough = middle >= 2.0 * math.sqrt(2.0 * math.log(1.25 / middle)) * radius / epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high


def theorem_4(radius: float, epsilon: float, delta: float) -> float:
    """Theorem 4 as it must be meant: deviation of Gaussian noise ``sigma >= c Delta / epsilon`` with Delta = 2 tau.

    ``c^2 = 2 log(1.25 / delta)``, so by Dwork & Roth (2014, theorem 3.22) for epsilon below 1; for large epsilon it
    is false, since the noise that is needed falls no faster than ``1 / sqrt(epsilon)`` (Balle & Wang 2018).
    """
    return math.sqrt(2.0 * math.log(1.25 / delta)) * 2.0 * radius / epsilon


# --- Theorem 6: privacy of noise on the gradient --------------------------------------------------------------------


@dataclass(frozen=True)
class Extents:
    """What Theorem 6 asks of the data, all of them distances.

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
    """Sensitivity Delta of one gradient of a client with so many rows, as appendix E derives it; 1 / distance.

    ``8 sqrt(n_y) gamma tau_X / (n_p n_y) (1 + 2 gamma (tau_X + tau_Y) (tau_X + Upsilon))``, when one record is
    replaced. True where the extents hold for every record that could be; :func:`gradient_sensitivity
    <raydr.methods.landmarks.kernel.gradient_sensitivity>` asks nothing of the data and is smaller.
    """
    tau = extents.row
    rest = 1.0 + 2.0 * gamma * (tau + extents.landmarks) * (tau + extents.between)
    return 8.0 * gamma * tau / (rows * math.sqrt(landmarks)) * rest


def theorem_6_printed(rows: int, landmarks: int, gamma: float, extents: Extents) -> float:
    """Delta as the main text prints it: without gamma, and so in another unit than a gradient's.

    Too large where gamma is below 1, and false where it is large: the same data in smaller units break it.
    """
    return theorem_6(rows, landmarks, gamma, extents) / gamma


def theorem_6_deviation(sensitivity: float, rounds: int, epsilon: float, delta: float) -> float:
    """Deviation of the noise of S rounds, ``sqrt(8 S Delta^2 log(e + epsilon / delta)) / epsilon``.

    S adaptive rounds of Gaussian noise are one of sensitivity ``sqrt(S) Delta``, so that of
    ``sigma / (sqrt(S) Delta)`` tells what it is worth: more than enough up to an epsilon of dozens. "For any epsilon"
    is false: the privacy loss itself grows past epsilon.
    """
    return math.sqrt(8.0 * rounds * math.log(math.e + epsilon / delta)) * sensitivity / epsilon
