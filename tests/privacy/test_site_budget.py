"""A site's budget over all runs: exact composition, no overspending at once, and a record that shows changes."""

import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from raydr.errors import OutputError, RunError
from raydr.privacy.accounting import BudgetError, Charge, epsilon_of, gaussian_delta, gaussian_multiplier
from raydr.privacy.site_budget import Allowance, SiteBudget, SiteRelease, squares_of


def release(name="first", multiplier=4.0, **changed):
    values = {
        "release": name,
        "run": "run-1",
        "asked_by": "somebody@here",
        "kind": "CellSums",
        "what": "sums of cells",
        "mechanism": "Gaussian noise",
        "deviation": 2.0 * multiplier,
        "sensitivity": 2.0,
    }
    return SiteRelease(**values | changed)


def budget(tmp_path, epsilon=None, **changed):
    return SiteBudget(tmp_path / "budget.sqlite", Allowance(epsilon=epsilon, **changed), "north")


def test_runs_compose_as_the_accountant_composes_them(tmp_path):
    charged = budget(tmp_path)
    multipliers = {"a": 4.0, "b": 7.5, "c": 5.0}
    for name, multiplier in multipliers.items():
        assert charged.charge(release(name, multiplier, run=f"run-{name}"))
    exact = epsilon_of(
        {Charge(kind=name, deviation=value, sensitivity=1.0): 1 for name, value in multipliers.items()}, 1e-5
    )
    assert budget(tmp_path).spent() == pytest.approx(exact, rel=1e-9)
    assert [stored.release.run for stored in charged.releases()] == ["run-a", "run-b", "run-c"]


def test_the_same_release_costs_nothing_again(tmp_path):
    """A resumed run, or one repeated with the same secret file, sends the same bytes."""
    assert budget(tmp_path).charge(release())
    spent = budget(tmp_path).spent()
    assert not budget(tmp_path).charge(release(run="run-2"))
    assert budget(tmp_path).spent() == spent
    assert not budget(tmp_path).charge(release("constant", sensitivity=0.0)), "no record moves it"
    assert len(budget(tmp_path).releases()) == 1


def test_a_release_beyond_the_budget_is_refused_and_not_charged(tmp_path):
    limited = budget(tmp_path, epsilon=1.3)
    limited.charge(release("a"))
    before = limited.spent()
    with pytest.raises(BudgetError, match=r"so far cost epsilon 0\.92\d+ .*and with this one 1\.3"):
        limited.charge(release("b"))
    assert limited.spent() == before
    assert limited.charge(release("small", 40.0)), "a smaller release still fits"
    with pytest.raises(BudgetError, match="with this one inf"):
        limited.charge(release("bare", deviation=0.0, sensitivity=math.inf))


def test_a_release_without_a_guarantee_is_recorded_if_there_is_no_limit(tmp_path):
    charged = budget(tmp_path)
    assert charged.charge(release("bare", deviation=0.0, sensitivity=math.inf))
    assert charged.spent() == math.inf
    assert budget(tmp_path).releases()[0].release.multiplier == 0.0


def test_what_is_left_is_what_one_more_run_may_cost(tmp_path):
    limited = budget(tmp_path, epsilon=2.0)
    limited.charge(release("a"))
    left = limited.allowance.left(squares_of(each.release for each in limited.releases()))
    charge = Charge(kind="run", deviation=gaussian_multiplier(left, 1e-5), sensitivity=1.0)
    assert limited.spent({charge: 1}) == pytest.approx(2.0, rel=1e-6)
    assert budget(tmp_path).allowance.left({}) is None


def test_a_first_release_that_is_refused_leaves_a_usable_record(tmp_path):
    limited = budget(tmp_path, epsilon=0.5)
    with pytest.raises(BudgetError):
        limited.charge(release("too much", 1.0))
    assert budget(tmp_path, epsilon=0.5).charge(release("small", 40.0))


def test_runs_at_once_do_not_overspend(tmp_path):
    """40 releases from 8 threads, each with its own connection, where the budget allows exactly 10."""
    ten = epsilon_of({Charge(kind="CellSums", deviation=20.0, sensitivity=1.0): 10}, 1e-5)

    def attempt(number):
        try:
            return budget(tmp_path, epsilon=ten).charge(release(f"release {number}", 20.0))
        except BudgetError:
            return False

    with ThreadPoolExecutor(8) as threads:
        made = sum(threads.map(attempt, range(40)))
    assert made == 10
    assert budget(tmp_path).spent() <= ten * (1 + 1e-9)


@pytest.mark.parametrize(("relation", "factor"), [("zero-out", 1.0), ("replace-one", 2.0)])
def test_a_budget_of_another_relation_never_understates(tmp_path, relation, factor):
    """To replace a record removes one and adds one: twice the sensitivity of zero-out."""
    stated = budget(tmp_path, relation=relation)
    stated.charge(release("zero-out", 4.0))
    epsilon = stated.spent()
    assert gaussian_delta(4.0 / factor, epsilon) == pytest.approx(1e-5, rel=1e-3)
    stated.charge(release("replace-one", 4.0, relation="replace-one"))
    together = 1.0 / math.sqrt(factor**2 / 16 + 1 / 16)
    assert gaussian_delta(together, stated.spent()) == pytest.approx(1e-5, rel=1e-3)


def alter(tmp_path, statement, *values):
    with sqlite3.connect(tmp_path / "budget.sqlite") as database:
        assert database.execute(statement, values).rowcount
    database.close()


CHANGES = {
    "a weaker charge": "UPDATE releases SET content = replace(content, '8.0', '800.0') WHERE number = 2",
    "a release removed": "DELETE FROM releases WHERE number = 2",
    "the first removed": "DELETE FROM releases WHERE number = 1",
    "signatures exchanged": "UPDATE releases SET signature = (SELECT signature FROM releases WHERE number = 1)"
    " WHERE number = 2",
    "another number": "UPDATE releases SET number = 9 WHERE number = 3",
    "no signature": "UPDATE releases SET signature = '' WHERE number = 3",
    "another key": "UPDATE site SET key = '" + "11" * 32 + "'",
}


@pytest.mark.parametrize("statement", CHANGES.values(), ids=CHANGES)
def test_a_changed_record_is_found(tmp_path, statement):
    for name in "abc":
        budget(tmp_path).charge(release(name))
    alter(tmp_path, statement)
    with pytest.raises(RunError, match=r"not as north signed it|not the key that signed|signed it"):
        budget(tmp_path).releases()
    with pytest.raises(RunError):
        budget(tmp_path).charge(release("d"))


def test_a_record_that_changes_under_a_run_is_found(tmp_path):
    running = budget(tmp_path)
    running.charge(release("a"))
    running.charge(release("b"))
    alter(tmp_path, "DELETE FROM releases WHERE number = 2")
    with pytest.raises(RunError, match="release 2 is not as north signed it"):
        running.charge(release("c"))


def test_a_removed_record_is_not_a_new_budget(tmp_path):
    budget(tmp_path).charge(release())
    (tmp_path / "budget.sqlite").unlink()
    with pytest.raises(RunError, match="the record was removed"):
        budget(tmp_path).charge(release("b"))


def test_a_lost_key_stops_releases(tmp_path):
    budget(tmp_path).charge(release())
    key = tmp_path / "budget.key"
    assert key.stat().st_mode & 0o077 == 0
    key.unlink()
    with pytest.raises(RunError, match=r"budget\.key.*cannot be read"):
        budget(tmp_path).charge(release("b"))
    assert len(budget(tmp_path).releases()) == 1, "others can still check it"


def test_a_file_that_is_no_record_is_named(tmp_path):
    (tmp_path / "budget.sqlite").write_text("age,site\n40,north\n" * 100)
    with pytest.raises(OutputError, match=r"budget\.sqlite.*north.*not a database"):
        budget(tmp_path).charge(release())
