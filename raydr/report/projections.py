"""Projections of a run's maps for display: alignment, and principal axes of 3-D maps."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry.procrustes import Similarity, procrustes, turn
from raydr.runfolder.reading import RunFolder

MARGIN = 0.03  # of the map's extent, so that no point touches the frame
BOUNDARY = "#8b929c"
"""Colour of the boundary of the Poincaré disk, visible on a white and on a dark page."""


def onto(run: RunFolder, moving: Float64Array, fixed: Float64Array) -> Similarity:
    """Return the transformation that aligns one map with another, row by row; in the disk it has no shift or scale."""
    return turn(moving, fixed) if run.in_disk else procrustes(moving, fixed)


def panels(run: RunFolder, later: Float64Array | None = None) -> dict[str, Float64Array]:
    """Return the maps (rows, 2 or 3) of a run by panel, the central one aligned with the federated one.

    Positions of ``later`` rows (later, 2 or 3) are appended to the federated map, and NaN to the other. In 3-D the axes
    are the principal axes of the federated map, and each map is centred in its cube. In the Poincaré disk or ball,
    maps are not shifted or scaled, since absolute positions have a meaning there.
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
    """Return the pairs of axes to show: one for a 2-D map, three for a 3-D map."""
    return ((0, 1),) if run.dimensions == 2 else ((0, 1), (0, 2), (1, 2))


def in_plane(run: RunFolder, points: Float64Array) -> Float64Array:
    """Project a map of the run to (rows, 2); in 3-D, on the federated map's two axes of largest spread."""
    if run.dimensions == 2:
        return points
    seen: Float64Array = (points @ principal_axes(run.federated))[:, :2]
    return seen


def principal_axes(points: Float64Array) -> Float64Array:
    """Return the principal axes of points (rows, 3) as columns, by decreasing spread: a rotation or reflection.

    Each axis points to the side that extends farther, so the same map is always drawn the same way.
    """
    centred = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1]
    along = centred @ axes
    signs = np.where(along.max(axis=0) >= -along.min(axis=0), 1.0, -1.0)
    directed: Float64Array = axes * signs
    return directed


def frame(points: Float64Array, *, in_disk: bool) -> tuple[tuple[float, float], ...]:
    """Return a range for each axis around points (rows, 2 or 3), all of the same length.

    NaN rows are ignored. In the disk the range covers the whole disk, from -1 to 1.
    """
    if in_disk:
        half = (1.0 + 2 * MARGIN) * max(1.0, float(np.nanmax(np.abs(points))))
        return ((-half, half),) * int(points.shape[1])
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    half = max(float((high - low).max()) * (0.5 + MARGIN), 1e-9)
    return tuple((float(middle - half), float(middle + half)) for middle in (low + high) / 2.0)
