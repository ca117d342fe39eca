"""Total privacy cost of a sweep's trials: every start of a trial is a separate release."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from raydr.actors.capacity import Capacity, Machine
from raydr.errors import DataError, ScenarioError
from raydr.plain import short_number
from raydr.privacy.composition import Composition, RunCost, composed
from raydr.runfolder import records
from raydr.runfolder.manifest import require_unchanged
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.schema.privacy import PrivacySettings
from raydr.scenarios.schema.scenario import Scenario
from raydr.tune.schema import Sweep
from raydr.tune.trials import Trial

_ANY_MACHINE = Capacity((Machine("any", 1, 2**40),))
_UNKNOWN = RunCost(None, 0.0, 1.0, None, None)


@dataclass
class SweepBudget:
    """The privacy budget of a sweep.

    Attributes
    ----------
    folder : Path
        The sweep folder. Its ``starts.txt`` has a line for each start of a trial, written before the trial runs.
    delta : float
        Delta of the total: the base's ``privacy.delta``.
    most : float or None
        ``epsilon_max`` of the sweep; None for no bound.
    data_dir : Path or None
        Folder of built-in data sets.
    """

    folder: Path
    delta: float
    most: float | None
    data_dir: Path | None
    _planned: dict[str, RunCost] = field(default_factory=dict)

    @classmethod
    def of(cls, sweep: Sweep, folder: Path, data_dir: Path | None) -> SweepBudget:
        """Return the budget of a sweep in its folder."""
        privacy = sweep.scenario.get("privacy") or {}
        delta = privacy.get("delta", PrivacySettings.model_fields["delta"].default)
        return cls(folder, delta, sweep.epsilon_max, data_dir)

    def start(self, trial: Trial) -> None:
        """Record the start of a trial before it runs."""
        with (self.folder / records.STARTS).open("a", encoding="utf-8") as file:
            file.write(f"{trial.name}\n")

    def require(self, trials: Iterable[Trial], trial_of: Callable[[str], Trial]) -> None:
        """Raise if trials would exceed the sweep's ``epsilon_max``.

        Parameters
        ----------
        trials : iterable of Trial
            The trials that are about to run.
        trial_of : callable
            Returns the trial of a name, for trials that were started before.

        Raises
        ------
        ScenarioError
            If the total would exceed ``epsilon_max``, or a trial has no epsilon.
        """
        if self.most is None:
            return
        costs = [cost for cost, _ in self._spent(trial_of)]
        for trial in trials:
            cost = self._plan(trial.scenario)
            if cost.epsilon is None:
                raise ScenarioError(
                    f"epsilon_max bounds the total cost of all trials, but trial {trial.name} has no epsilon; `raydr"
                    " plan` of its scenario says why. Add noise to everything that it sends, or leave out epsilon_max."
                )
            costs.append(cost)
        total = composed(costs, self.delta)
        if total.epsilon is None or total.epsilon > self.most * (1.0 + 1e-9):
            cost_words = "no epsilon" if total.epsilon is None else f"epsilon {total.epsilon:.4g}"
            raise ScenarioError(
                f"{total.runs} runs on the same rows would have {cost_words} in total at delta"
                f" {short_number(self.delta)}, but epsilon_max of the sweep is {self.most:g}. Give each trial more"
                " noise, run fewer trials, or raise epsilon_max."
            )

    def total(self, trial_of: Callable[[str], Trial]) -> Composition | None:
        """Return the total cost of all starts; None if no start has noise with a claim."""
        spent = list(self._spent(trial_of))
        if not any(cost.accounted for cost, _ in spent):
            return None
        return composed(
            [cost for cost, _ in spent], self.delta, unfinished=sum(not finished for _, finished in spent)
        )

    def _spent(self, trial_of: Callable[[str], Trial]) -> Iterator[tuple[RunCost, bool]]:
        """Yield the cost of each start, and whether it finished; an unfinished one counts as if it had finished."""
        finished = set[str]()
        path = self.folder / records.STARTS
        names = path.read_text(encoding="utf-8").split() if path.exists() else []
        for name in reversed(names):
            run = self.folder / records.TRIAL_FOLDERS / name
            ended = run.exists() and name not in finished
            finished.add(name)
            yield (_cost_of(run) if run.exists() else self._plan(trial_of(name).scenario)), ended

    def _plan(self, scenario: Scenario) -> RunCost:
        """Return the planned cost of a run; a run that is refused before any request costs nothing."""
        known = scenario.model_dump_json(exclude={"name"})
        if known not in self._planned:
            try:
                planned = plan_of_scenario(scenario, capacity=_ANY_MACHINE, data_dir=self.data_dir).privacy
                cost = (
                    _UNKNOWN
                    if planned is None
                    else RunCost(
                        planned.epsilon,
                        planned.accounted or 0.0,
                        planned.delta,
                        planned.unit,
                        planned.relation,
                    )
                )
            except (ScenarioError, DataError):
                cost = RunCost(0.0, 0.0, self.delta, None, None)
            self._planned[known] = cost
        return self._planned[known]


def _cost_of(run: Path) -> RunCost:
    require_unchanged(run, records.PRIVACY)
    cost = json.loads((run / records.PRIVACY).read_bytes())
    return RunCost(cost["epsilon"], cost["epsilon_accounted"], cost["delta"], cost["unit"], cost["relation"])
