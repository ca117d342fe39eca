"""The process of a command: signals, exit status and error messages.

Exit status:

- 0 if the run is complete.
- 2 if the command line, scenario, data or folder cannot be used.
- 3 if the run failed, or standard output did not accept a result.
- 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
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
from raydr.portable import VARIABLES, NotPortableError
from raydr.signals import ENDING
from raydr.threads import share_cores

_INTERRUPTED = 128 + signal.SIGINT


def main(work: Callable[[], int]) -> NoReturn:
    """Run ``work`` and end the process with the exit status that it returns.

    If the work raises NotPortableError, the process starts its command again with the variables of a portable run.
    """
    ending = _Ending()
    code = _INTERRUPTED
    try:
        ending.install(ending)
        sys.unraisablehook = ending.insist
        share_cores()
        if sys.stderr is None:  # the caller closed it, and libraries write to it while they are imported
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        # Hide warnings of libraries from users of the command. -W and PYTHONWARNINGS show them again.
        logging.getLogger().addHandler(logging.NullHandler())
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        try:
            code = work()
        except NotPortableError:
            _start_again()
        # The work is done: a signal would only interrupt Python's own shutdown.
        ending.install(lambda number, frame: os._exit(code))
    except KeyboardInterrupt:  # between two statements; nothing to clean up
        pass
    if code == _INTERRUPTED:
        _leave(128 + ending.number)
    sys.exit(code)


def _start_again() -> NoReturn:
    """Replace this process by the same command with the variables of a portable run. It has done no work yet."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | VARIABLES)


def _leave(code: int) -> NoReturn:
    """End at once after an interruption. The cleanup is already done.

    Python's own shutdown can crash in Ray's threads (status -11) if the interruption came while Ray started. It
    returns status -2 if code from a string was interrupted, which every dataclass runs.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def status(command: Callable[[], object]) -> int:
    """Run a command, print an error as one paragraph on standard error, and return the exit status.

    Raises
    ------
    NotPortableError
        If the command needs a process with other environment variables: see :func:`main`.
    """
    try:
        command()
        return 0
    except NotPortableError:
        raise
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
        # The reader closed the pipe. Without this, Python would report it again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except MemoryError as error:
        return _say(
            f"out of memory{f' ({error})' if str(error) else ''}: use fewer rows, or a machine with more memory."
            " `raydr plan` estimates what a run needs.",
            3,
            error,
        )
    except Exception as error:
        interruption = _interruption_behind(error)
        if interruption is not None:
            return _interrupted(interruption)
        traceback.print_exc()
        return _say("this is a bug in raydr. Please report it with the lines above.", 3, error)


class _Ending:
    """Signal handler that raises KeyboardInterrupt at the first signal to end.

    Ray passes a KeyboardInterrupt through unchanged. Further signals are ignored, because they would interrupt the
    cleanup, which takes a second or two. A signal that was ignored at the start, as with ``nohup``, stays ignored.
    """

    def __init__(self) -> None:
        self.number: int = signal.SIGINT
        self._heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        self._raised: KeyboardInterrupt | None = None
        self._others = sys.unraisablehook

    def install(self, handler: Callable[[int, FrameType | None], object]) -> None:
        """Set ``handler`` for all signals that are not ignored."""
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
        """Send the signal again if Python dropped the exception in a finaliser, weak reference callback or fork hook.

        Otherwise the process would not end, and all further signals would be ignored.
        """
        if self._raised is None or dropped.exc_value is not self._raised:
            self._others(dropped)
            return
        self._raised = None
        for number in self._heeded:
            signal.signal(number, self)
        # From another thread, so that it arrives after the callback.
        again = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, self.number))
        again.daemon = True
        again.start()


def _say(text: str, code: int, error: BaseException | None = None) -> int:
    """Print a paragraph with the notes of the error, such as how to continue."""
    paragraph = " ".join([f"raydr: {text}", *getattr(error, "__notes__", [])])
    try:
        from raydr.front.console import print_paragraph
    except Exception:  # an interrupted import leaves incomplete modules
        print(paragraph, file=sys.stderr)
    else:
        print_paragraph(paragraph)
    return code


def _interrupted(error: BaseException) -> int:
    kept = getattr(error, "__notes__", [])
    return _say("interrupted." if kept else "interrupted; nothing was kept of this run.", _INTERRUPTED, error)


def _interruption_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the KeyboardInterrupt that became another error; None without one.

    Python wraps it in class bodies. pydantic keeps only its name and signal, if it comes while a schema is built.
    """
    cause = error.__cause__
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    if cause is None and type(error).__name__ == "SchemaError" and "KeyboardInterrupt: " in str(error):
        return KeyboardInterrupt()
    return cause


def _usage(error: click.ClickException) -> str:
    """Return a command line error in one line, with the command that shows the help."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    # click's own hints end in question marks, with and without parentheses
    message = re.sub(
        r"\. \(?(Did you mean [^?]*\?)\)?", r". \1", " ".join(error.format_message().split())
    ).rstrip(".")
    if message.startswith("Got unexpected extra") and context and _takes_pattern(context.command):
        message += ". The shell expands a pattern for several files: put it in quotes, such as 'data/*.csv'"
    if message.endswith("?"):
        return f"{message} See `{context.command_path if context else 'raydr'} --help`."
    return f"{message}. See `{context.command_path if context else 'raydr'} --help`."


def _takes_pattern(command: click.Command) -> bool:
    """Return whether the command's argument may be a pattern for several files."""
    return any(each.name == "data" and each.type == click.STRING for each in command.params)
