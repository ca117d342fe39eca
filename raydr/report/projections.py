"""How the maps of a run are shown: turned onto each other, along principal axes in 3-D, in their disk as they are."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry.procrustes import Similarity, procrustes, turn
from raydr.runfolder.reading import RunFolder

MARGIN = 0.03  # of the map's extent, so that no point touches the frame
BOUNDARY = "#8b929c"
"""Colour of the circle that bounds the Poincaré disk: it shows on a white and on a dark page."""


def onto(run: RunFolder, moving: Float64Array, fixed: Float64Array) -> Similarity:
    """What brings a map of the run's kind nearest to another, row by row, and leaves a disk where it is."""
    return turn(moving, fixed) if run.in_disk else procrustes(moving, fixed)


def panels(run: RunFolder, later: Float64Array | None = None) -> dict[str, Float64Array]:
    """Maps of a run by the identifier of their panel, (rows, 2 or 3), the central one turned onto the federated.

    Places of ``later`` rows (later, 2 or 3) follow on the federated map; on the other there are none, NaN. In 3-D the
    axes are the principal ones of the federated map, and a map lies in the middle of its cube. In the Poincaré disk (or
    ball) nothing is moved or scaled: places have a meaning there.
    """
    maps = {"federated": run.federated}
    if run.central is not None:
        maps["central"] = onto(run, run.central, run.federated)(run.central)
    if later is not None:
        nowhere = np.full_like(later, np.nan)
        maps = {
            panel: np.concatenate([points, later if panel == "federated" else nowhere])
            for panel, points in maps.items()
        }
    if run.dimensions == 2:
        return maps
    axes = principal_axes(run.federated)
    turned = {panel: points @ axes for panel, points in maps.items()}
    if run.in_disk:
        return turned
    return {
        panel: points - (np.nanmin(points, axis=0) + np.nanmax(points, axis=0)) / 2
        for panel, points in turned.items()
    }


def pairs_of_axes(run: RunFolder) -> tuple[tuple[int, int], ...]:
    """Pairs of axes that show a map: one of a map in the plane, three of a map in 3-D."""
    return ((0, 1),) if run.dimensions == 2 else ((0, 1), (0, 2), (1, 2))


def in_plane(run: RunFolder, points: Float64Array) -> Float64Array:
    """A map of the run's as (rows, 2): in 3-D, what the two axes of the federated map's largest spread show."""
    if run.dimensions == 2:
        return points
    seen: Float64Array = (points @ principal_axes(run.federated))[:, :2]
    return seen


def principal_axes(points: Float64Array) -> Float64Array:
    """Directions of the largest, second and third spread of points (rows, 3), as columns: a rotation or reflection.

    Each direction points to the side that reaches farther, so that the same map is always drawn the same way.
    """
    centred = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1]
    along = centred @ axes
    signs = np.where(along.max(axis=0) >= -along.min(axis=0), 1.0, -1.0)
    directed: Float64Array = axes * signs
    return directed


def frame(points: Float64Array, *, in_disk: bool) -> tuple[tuple[float, float], ...]:
    """Range of each axis around points (rows, 2 or 3), all of one length: a square panel then has equal scales.

    Rows that are nowhere, NaN, count for nothing. In the disk it is the disk's, from -1 to 1.
    """
    if in_disk:
        half = (1.0 + 2 * MARGIN) * max(1.0, float(np.nanmax(np.abs(points))))
        return ((-half, half),) * int(points.shape[1])
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    half = max(float((high - low).max()) * (0.5 + MARGIN), 1e-9)
    return tuple((float(middle - half), float(middle + half)) for middle in (low + high) / 2.0)
