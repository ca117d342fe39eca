"""Events of work in another process. These tests start no Ray."""

from __future__ import annotations

import pytest

from raydr.actors import streaming
from raydr.journal import Event, Listener, Progress, StageStarted


def test_progress_is_reported_ten_times_a_second_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(streaming.time, "monotonic", lambda: now)

    def work(listener: Listener) -> str:
        nonlocal now
        listener(StageStarted("embedding"))
        for done in range(101):
            listener(Progress("embedding", done, 100))
            now += 0.01
        listener(StageStarted("metrics"))
        return "done"

    events: list[Event | streaming.Returned[str]] = list(streaming.streamed(work))
    assert events[0] == StageStarted("embedding")
    assert events[-2:] == [StageStarted("metrics"), streaming.Returned("done")]
    done = [event.done for event in events if isinstance(event, Progress)]
    assert (done[0], done[-1]) == (0, 100)
    assert 10 <= len(done) <= 12
