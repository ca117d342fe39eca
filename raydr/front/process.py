"""The process of a command: the signals that end it, its exit status, and what it says at its end.

Exit status: 0 for a whole run, 2 for a command line, scenario, data or place that cannot be used, 3 for a run that
failed or a result that standard output did not take, 130 after Ctrl-C, 143 after SIGTERM and 129 after SIGHUP.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import click

from raydr.errors import RaydrError
from raydr.signals import ENDING
from raydr.threads import share_cores

_INTERRUPTED = 128 + signal.SIGINT


def main(work: Callable[[], int]) -> NoReturn:
    """Do work that returns an exit status, and end with that."""
    ending = _Ending()
    code = _INTERRUPTED
    try:
        ending.install(ending)
        sys.unraisablehook = ending.insist
        share_cores()
        # What libraries have to say is for their users, and raydr's user is not one: -W and PYTHONWARNINGS bring it
        # back.
        logging.getLogger().addHandler(logging.NullHandler())
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        code = work()
        # All is said and done: what a signal would interrupt now is Python's own farewell.
        ending.install(lambda number, frame: os._exit(code))
    except KeyboardInterrupt:  # between two lines that have nothing to lose
        pass
    if code == _INTERRUPTED:
        _leave(128 + ending.number)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End at once after an interruption, with what there was to clean up cleaned up.

    Python's own farewell has let Ray's threads crash (status -11) after one that came while Ray started, and answers
    status -2 where code from a string was interrupted, as every dataclass runs it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def status(command: Callable[[], object]) -> int:
    """Run a command, put what went wrong in one paragraph on standard error, return the exit status."""
    try:
        command()
        return 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except RaydrError as error:
        return _say(str(error), error.exit_code, error)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _say(_usage(error), error.exit_code)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except BrokenPipeError:
        # Whoever reads our output has seen enough. Python would complain once more while it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except MemoryError as error:
        return _say(
            f"the memory of this machine does not suffice{f' ({error})' if str(error) else ''}: take fewer rows, or a"
            " machine with more. `raydr plan` says what a run needs.",
            3,
            error,
        )
    except Exception as error:
        interruption = _interruption_behind(error)
        if interruption is not None:
            return _interrupted(interruption)
        traceback.print_exc()
        return _say("this is an error of raydr's own; please report it with the lines above.", 3, error)


class _Ending:
    """Begins to end the run at the first signal that asks for it.

    Each is a KeyboardInterrupt, the one way out that Ray hands through unchanged. Further signals would only
    interrupt the cleaning up, which takes a second or two. A signal that was ignored when raydr was started, as
    ``nohup`` has it, stays ignored.
    """

    def __init__(self) -> None:
        self.number: int = signal.SIGINT
        self._heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        self._raised: KeyboardInterrupt | None = None
        self._others = sys.unraisablehook

    def install(self, handler: Callable[[int, FrameType | None], object]) -> None:
        """Have ``handler`` answer signals from now on, but for those that are ignored."""
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        self._raised = KeyboardInterrupt(number)
        raise self._raised

    def insist(self, dropped: sys.UnraisableHookArgs) -> None:
        """Ask again where Python drops what was raised: in a finaliser, a weak reference's callback, a fork's hook.

        Else nothing would end, and every further signal be ignored.
        """
        if self._raised is None or dropped.exc_value is not self._raised:
            self._others(dropped)
            return
        self._raised = None
        for number in self._heeded:
            signal.signal(number, self)
        # From another thread, so that it comes when the callback is over.
        again = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, self.number))
        again.daemon = True
        again.start()


def _say(text: str, code: int, error: BaseException | None = None) -> int:
    """Print a paragraph, with what was noted on the error, such as how to go on."""
    paragraph = " ".join([f"raydr: {text}", *getattr(error, "__notes__", [])])
    try:
        from raydr.front.console import print_paragraph
    except Exception:  # an import that was interrupted leaves modules behind that are half made
        print(paragraph, file=sys.stderr)
    else:
        print_paragraph(paragraph)
    return code


def _interrupted(error: BaseException) -> int:
    kept = getattr(error, "__notes__", [])
    return _say("interrupted." if kept else "interrupted; nothing of this run is kept.", _INTERRUPTED, error)


def _interruption_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The interruption that Python has made another error of, as it does while a class is made; None for others."""
    cause = error.__cause__
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    return cause


def _usage(error: click.ClickException) -> str:
    """A mistake in the command line in one line, with the command to ask for help."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    # click ends hints of its own in question marks, with and without brackets
    message = re.sub(
        r"\. \(?(Did you mean [^?]*\?)\)?", r". \1", " ".join(error.format_message().split())
    ).rstrip(".")
    if message.endswith("?"):
        return f"{message} See `{context.command_path if context else 'raydr'} --help`."
    return f"{message}. See `{context.command_path if context else 'raydr'} --help`."
