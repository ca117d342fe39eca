"""Audit of a run: repeat it with a transcript, attack what the server saw, and write the result."""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.attacks import ATTACKS, Side, View
from raydr.attacks.scoring import Truth, judged
from raydr.attacks.verdicts import Audit
from raydr.data import load
from raydr.data.provenance import sha256_of_file
from raydr.data.sampling import stream
from raydr.errors import DataError, ScenarioError, did_you_mean
from raydr.files import write_whole
from raydr.journal import Event, Journal, Listener, Progress, unheard
from raydr.memory import lacking_memory, size
from raydr.report import write_report
from raydr.runfolder import read_run, records
from raydr.runfolder.manifest import seal
from raydr.runfolder.records import is_incomplete
from raydr.scenarios.afterwards.repetition import Repetition, repeated
from raydr.scenarios.running.client_data import ClientData, read_table
from raydr.scenarios.running.site_policies import policies_of
from raydr.scenarios.schema.audit import AuditSettings
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario
from raydr.sparse_rows import AnyRows, SparseRows
from raydr.threads import one_blas_thread

_LOGGER = logging.getLogger(__name__)

MOST_CANDIDATES = 2000
"""Maximum number of members, and of others, in membership attacks: 2 false alarms are then one in a thousand."""
_SHARE = 5
"""The server knows one in this many rows of the run if the source has no other rows."""
_SHOWN = 12  # features of an example that is not an image: those with the largest variance
_KNOWN = (0, 1, 5, 20)
_UNKNOWN = 200  # records that an informed adversary does not know, or a tenth if there are few


def audit(
    folder: Path,
    settings: AuditSettings | None = None,
    *,
    public: Path | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
    report: bool = True,
) -> Path:
    """Attack the run of a folder, write ``audit.json``, write the report again, and return the folder.

    Parameters
    ----------
    folder : Path
        A complete run folder.
    settings : AuditSettings, optional
        Attacks and side knowledge. Default: those of the run's scenario.
    public : Path, optional
        A file of similar rows, with the columns of the run.
    data_dir : Path, optional
        Folder of built-in data sets.
    listener : callable
        Receives :mod:`raydr.journal` events.
    report : bool
        Whether to write the report again.

    Raises
    ------
    OutputError, ScenarioError, DataError, RunError
        If the run cannot be repeated bit for bit (:func:`raydr.scenarios.afterwards.repetition.repeated`).
    """
    folder = folder.expanduser().absolute()
    # The repetition has the stages of the run, so it is timed as one stage.
    journal = Journal(listener)
    with journal.stage("audit: the run once more"):
        repetition = repeated(folder, data_dir, lambda event: _moved(journal, event))
    settings = settings or repetition.scenario.audit or AuditSettings()
    with journal.stage("audit: side knowledge"):
        case = _case(repetition, settings, public, data_dir)
    found = audited(repetition, case, settings, journal)
    content = json.dumps(asdict(found), indent=1, allow_nan=False) + "\n"
    write_whole(folder / records.AUDIT, content.encode(), "make room there, and audit again")
    seal(folder, records.AUDIT)
    if report:
        write_report(folder)
    return folder


def _moved(journal: Journal, event: Event) -> None:
    """Pass on only the progress of the repetition."""
    if isinstance(event, Progress):
        journal.progress(event.done, event.total)


def audit_settings(folder: Path, attacks: Sequence[str], public_rows: int | None) -> AuditSettings:
    """Return the audit settings of a run's scenario, with overrides from the command line.

    Raises
    ------
    ScenarioError
        If an attack does not exist.
    """
    if is_incomplete(folder) or not (folder / records.SCENARIO).is_file():
        read_run(folder)  # raises an error with the reason
    settings = read(folder / records.SCENARIO).audit or AuditSettings()
    unknown = [name for name in attacks if name not in ATTACKS]
    if unknown:
        raise ScenarioError(
            f"There is no attack {unknown[0]!r}{did_you_mean(unknown[0], ATTACKS)}: choose one of {', '.join(ATTACKS)}."
        )
    changed: dict[str, Any] = {"attacks": tuple(attacks)} if attacks else {}
    if public_rows is not None:
        changed["public_rows"] = public_rows
    return settings.model_copy(update=changed)


@dataclass(frozen=True)
class Case:
    """Input of attacks (view and side knowledge), and the truth that scores them."""

    view: View
    side: Side
    truth: Truth


def audited(repetition: Repetition, case: Case, settings: AuditSettings, journal: Journal) -> Audit:
    """Run all attacks, or those that the settings name, and return the verdicts."""
    counts = Counter({entry.kind: entry.count for entry in repetition.run.ledger if entry.direction == "up"})
    columns = _columns(repetition)
    image = picture(columns)
    verdicts = []
    for name in settings.attacks if settings.attacks is not None else tuple(ATTACKS):
        with journal.stage(f"audit: {name}"), one_blas_thread():
            verdicts += judged(ATTACKS[name], case.view, case.side, case.truth, counts.__getitem__)
    hidden = any(site.least_count > 1 for site in policies_of(repetition.client_data))
    if hidden:  # an example is a single record
        verdicts = [replace(verdict, examples=()) for verdict in verdicts]
    return Audit(
        raydr=version("raydr"),
        scenario=sha256_of_file(repetition.run.path / records.SCENARIO),
        public=case.side.origin or "none",
        shown=() if image or hidden else tuple(columns[column] for column in case.truth.shown),
        image=image,
        verdicts=tuple(verdicts),
    )


def _case(repetition: Repetition, settings: AuditSettings, file: Path | None, data_dir: Path | None) -> Case:
    """Return view, side knowledge and truth of a repetition."""
    scenario, client_data, served = repetition.scenario, repetition.client_data, repetition.served
    order = np.argsort(client_data.client_of_row, kind="stable")
    prepared = served.prepared
    rows = _dense(
        prepared.applied(
            client_data.pooled(), client_data.client_of_row, client_data.kept_classes, client_data.targets
        )
    )[order]
    sizes = np.bincount(client_data.client_of_row, minlength=len(client_data.names))
    keyed = scenario.privacy.isometry_key
    width = 0 if client_data.target is None else client_data.target.width
    own = None
    if client_data.public is not None and not keyed:
        own = prepared.applied(client_data.public, targets=client_data.public_targets)
    view = View(
        transcript=repetition.transcript,
        sizes=tuple(int(size) for size in sizes),
        embedding=served.outcome.embedding if served.outcome.published else served.outcome.embedding[:0],
        public=own,
        scaled=scenario.data.scale != "none" and not keyed,
        delta=scenario.privacy.delta,
        keyed=keyed,
        secure=scenario.privacy.secure_aggregation,
        colluding=scenario.privacy.colluding,
        replay=repetition.replay,
        label_columns=np.arange(rows.shape[1] - width, rows.shape[1]),
    )
    apart, targets = rows_apart(scenario, client_data, data_dir)
    shuffled = stream(scenario.seed, "audit").permutation(len(apart))
    targets = None if targets is None else targets[shuffled]
    # Not adjusted for a site: the server does not know one. With labels, which rows of the run have too.
    apart = prepared.applied(apart[shuffled], targets=targets)
    others, apart = _candidates(apart, len(rows))
    side = _side(repetition, settings, rows, own, apart, file)
    members = _drawn(scenario, "audit members", len(rows), len(others), side.spared)
    candidates = np.concatenate([rows[members], others]) if len(others) else rows[:0]
    inside = np.arange(len(candidates)) < len(members)
    mixed = stream(scenario.seed, "audit candidates").permutation(len(candidates))
    side = replace(side, candidates=candidates[mixed])
    names = [str(client_data.ids[row]) for row in order]
    classes = np.zeros(0, np.int64)
    if client_data.labels is not None:
        classes = np.unique(client_data.labels[order], return_inverse=True)[1].astype(np.int64)
        side = replace(side, classes=classes[side.known])
    columns = _columns(repetition)
    return Case(
        view,
        side,
        Truth(
            rows=rows,
            names=names,
            members=inside[mixed],
            shown=_shown(rows, columns),
            classes=classes,
            columns=tuple(columns),
        ),
    )


def _columns(repetition: Repetition) -> tuple[str, ...]:
    """Return the names of the features of prepared rows, and of the label's block if it has one."""
    client_data = repetition.client_data
    prepared, names = repetition.served.prepared, client_data.feature_names
    names = prepared.transformation.names(names) if prepared.cells is None else prepared.cells.names(names)
    label = repetition.scenario.data.label or "label"
    return names if client_data.target is None else (*names, *client_data.target.names(label))


def _dense(rows: AnyRows) -> FloatArray:
    """Return dense rows, and warn if they were sparse; raise DataError if the free memory is too small for them."""
    if not isinstance(rows, SparseRows):
        return rows
    lacking = lacking_memory(rows.dense_bytes)
    if lacking is not None:
        raise DataError(
            f"The run's table is stored sparse, and an audit compares with dense rows: {lacking}. Audit a run of fewer"
            " rows (data.rows) or columns (data.features)."
        )
    _LOGGER.warning("the audit makes the run's sparse table dense: %s", size(rows.dense_bytes))
    return rows[:]


def _candidates(apart: FloatArray, rows: int) -> tuple[FloatArray, FloatArray]:
    """Split rows outside the run into candidates of membership attacks and the rest."""
    count = min(MOST_CANDIDATES, len(apart) // 3, rows)
    return apart[:count], apart[count:]


def _side(
    repetition: Repetition,
    settings: AuditSettings,
    rows: FloatArray,
    own: FloatArray | None,
    apart: FloatArray,
    file: Path | None,
) -> Side:
    """Return the public rows and the records that the server knows."""
    scenario, client_data, prepared = repetition.scenario, repetition.client_data, repetition.served.prepared
    spared = np.zeros(0, np.int64)
    wanted = settings.public_rows
    if file is not None:
        table = load(path=file, layout=client_data.layout, for_map=False)
        given = prepared.applied(table.rows)[:wanted]
        origin = f"{len(given):,} rows of {file.name}"
    else:
        given = np.concatenate([apart[:0] if own is None else own.astype(apart.dtype), apart])[:wanted]
        held = 0 if own is None else min(len(own), len(given))
        kinds = [
            f"{held:,} rows from the run" if held else "",
            f"{len(given) - held:,} rows of the source that are not mapped" if len(given) > held else "",
        ]
        origin = " and ".join(filter(None, kinds))
    if not len(given) and wanted:
        spared = _drawn(scenario, "audit split", len(rows), min(wanted, len(rows) // _SHARE), spared)
        given = rows[spared]
        origin = (
            f"{len(given):,} rows of the run, because the source has no others. The server does not know which records"
            " they are, and they are not scored"
        )
    counts = settings.known_records
    if counts is None:
        counts = tuple(sorted({*_KNOWN, rows.shape[1] + 1}))
        counts = tuple(count for count in counts if count <= len(rows) // 2)
    # In the order in which the server learns them: an informed adversary knows half, or all but a few.
    known = _drawn(scenario, "audit known records", len(rows), len(rows), spared)
    informed = (len(known) // 2, len(known) - min(_UNKNOWN, len(known) // 10)) if len(known) >= 20 else ()
    known = known[: max((*counts, *informed), default=0)]
    counts = tuple(count for count in counts if count <= len(known))
    return Side(
        public=given,
        origin=origin,
        known=known,
        values=rows[known],
        counts=counts,
        seed=scenario.seed,
        spared=spared,
        informed=informed,
    )


def rows_apart(
    scenario: Scenario, client_data: ClientData, data_dir: Path | None
) -> tuple[FloatArray, Float64Array | None]:
    """Return the table's rows that are neither mapped nor public, as read; none if clients have their own files.

    Rows equal to a row of the run are left out too, because they are not outside it. If labels steer, return the rows'
    labels as numbers too.
    """
    if scenario.clients.sites or scenario.data.graph is not None:
        return np.zeros((0, client_data.features)), None
    table = read_table(scenario, data_dir)
    used = {row.tobytes() for row in client_data.pooled()}
    if client_data.public is not None:
        used |= {row.tobytes() for row in client_data.public.astype(table.rows.dtype)}
    fresh = np.array([row.tobytes() not in used for row in table.rows], np.bool_)
    target = client_data.target
    targets = None if target is None else target.of(table.labels, table.label_names)[fresh]
    return np.asarray(table.rows[fresh]), targets


def picture(names: Sequence[str]) -> tuple[int, int, int] | None:
    """Return height, width and channels if rows are square images with numbered columns; otherwise None.

    >>> picture([f"x{pixel}" for pixel in range(784)])
    (28, 28, 1)
    """
    kinds = {re.sub(r"[\d_]+", "", name) for name in names}
    for channels in (1, 3):
        side = math.isqrt(len(names) // channels)
        if len(kinds) == 1 and side >= 8 and side * side * channels == len(names):
            return side, side, channels
    return None


def _shown(rows: FloatArray, names: Sequence[str]) -> Int64Array:
    """Return the features that examples show."""
    if picture(names) is not None:
        return np.arange(len(names))
    deviations = rows.std(axis=0, dtype=np.float64)
    return np.sort(np.argsort(-deviations, kind="stable")[:_SHOWN])


def _drawn(scenario: Scenario, purpose: str, rows: int, count: int, spared: Int64Array) -> Int64Array:
    """Draw ``count`` record numbers, none of them in ``spared``."""
    among = np.setdiff1d(np.arange(rows), spared)
    return stream(scenario.seed, purpose).permutation(among)[:count]
