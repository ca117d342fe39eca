"""Landmarks drawn from the mixture of the cells, for few rows among many clients.

Noise then allows only a dozen cells, and clients are too small for close neighbours of their own. A record's place is
coarse, because it is one of a dozen. Rows drawn from the mixture of the cells fill the space between them. They follow
from released sums alone, so they cost no privacy. No drawn landmark is a record or a mean of records.

A draw is a cell's centre plus normal noise, with ``_SHRUNK`` of the variance within cells along the axes of the frame,
and of the mean variance of the other directions. Cells are drawn in proportion to their noisy counts. *Measured*,
change of kNN accuracy and trustworthiness by draws and close own neighbours
(:mod:`raydr.methods.private_map.placing`), epsilon 1, the same
noisy sums, means of three seeds:

    data, clients        rows of a client   part 1            part 0.2
    heart disease, 10                  92   -0.051 +0.097     -0.021 +0.090
    breast cancer, 10                  57   +0.119 +0.146     +0.101 +0.140
    German credit, 10                 100   -0.013 +0.043     +0.011 +0.053
    digits, 10                        180   -0.006 +0.024     +0.031 +0.023
    breast cancer, 4                  142   +0.027 +0.044     +0.064 +0.047
    German credit, 4                  250   -0.047 +0.050     -0.036 +0.037
    digits, 4                         449   -0.068 +0.005     -0.035 +0.008
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from raydr.arrays import Float64Array
from raydr.methods.private_map.frame import FrameAxes
from raydr.methods.private_map.messages import Frame
from raydr.methods.private_map.settings import PrivateMapSettings
from raydr.threads import one_blas_thread

_FEW_CELLS, _FEW_ROWS = 40, 200
"""Number of cells, and rows of a client on average, from which on nothing is drawn."""
_MOST_DRAWN = 1000
_SHRUNK = 0.2
_LEAST_VARIANCE = 0.05
"""Least variance within cells along an axis, as a part of the least variance along the axes."""


def drawn_landmarks(settings: PrivateMapSettings, cells: int, rows: int, clients: int) -> int:
    """Return the number of landmarks to draw, or 0 for none.

    It follows from public numbers: the ``cells`` that noise allows, and the rows and clients of the run. A number of
    cells in the settings is used as it is.
    """
    few = settings.cells is None and cells < _FEW_CELLS and rows < _FEW_ROWS * clients
    return min(rows, _MOST_DRAWN) if few else 0


def draws_around(
    axes: FrameAxes, centres: Float64Array, counts: Float64Array, drawn: int, stream: np.random.Generator
) -> tuple[Frame, Float64Array, Float64Array]:
    """Draw landmarks from the mixture of the cells, in a frame of all directions.

    Parameters
    ----------
    axes : FrameAxes
        The frame of the cells and the variances along its axes.
    centres : (cells, axes) float64
        Centres of the cells in the frame.
    counts : (cells,) float64
        Their noisy counts, positive.
    drawn : int
        Number of landmarks.
    stream : numpy.random.Generator
        The run's stream for draws.

    Returns
    -------
    frame : Frame
        All directions, the axes of the cells first.
    landmarks : (drawn, sums) float64
        Coordinates in this frame.
    counts : (drawn,) float64
        Equal parts of the counts of all cells.
    """
    known, size = len(axes.variances), len(axes.frame.mean)
    part = counts / counts.sum()
    apart = centres - part @ centres
    with one_blas_thread():
        within, directions = np.linalg.eigh(np.diag(axes.variances) - (apart.T * part) @ apart)
        others = np.linalg.svd(axes.frame.axes)[0][:, known:]
        within = np.maximum(within, _LEAST_VARIANCE * axes.variances.min())
        near = (np.sqrt(_SHRUNK * within) * stream.standard_normal((drawn, known))) @ directions.T
    rest = max(axes.total - float(axes.variances.sum()), 0.0) / max(size - known, 1)
    beyond = np.sqrt(_SHRUNK * rest) * stream.standard_normal((drawn, size - known))
    landmarks = np.hstack([centres[stream.choice(len(centres), drawn, p=part)] + near, beyond])
    frame = replace(axes.frame, axes=np.ascontiguousarray(np.hstack([axes.frame.axes, others])))
    return frame, landmarks, np.full(drawn, counts.sum() / drawn)
