"""The folder of a watched command: what its ranks write goes in, steps.jsonl and measurement.json come out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gradwire.documents.measurement_schema import Measurement
from gradwire.errors import UsageError
from gradwire.launch.job import MEASUREMENT_FILE
from gradwire.measure.hardware import hardware
from gradwire.measure.measurement import write_measurement
from gradwire.measure.rank_log import FOLDER, SUFFIX, RankLog, RankReader, RankStart
from gradwire.measure.steps import STEPS_FILE, StepWriter
from gradwire.measure.watched import finished_steps, missing_ranks, one_run, watched_measurement
from gradwire.measure.watched_utilization import GivenFigures
from gradwire.trackers.interface import Trackers, check_trackers, open_trackers
from gradwire.trackers.names import step_figures


class Watched:
    """Reads what the ranks of one command write into `folder`, which it empties of an earlier run's results.

    Each finished step goes to `trackers` as well; `given` is what the person says of the model and the device. Raises
    UsageError where the folder cannot be written, and what `check_trackers` raises: later the command runs, and what
    cannot be read or written any more is only said.
    """

    def __init__(self, folder: Path, *, trackers: Sequence[str] = (), given: GivenFigures | None = None) -> None:
        check_trackers(trackers)
        self._folder = folder
        self._given = given or GivenFigures()
        self._tracker_names = trackers
        self._trackers = Trackers({}, say=sys.stderr.write)
        self.ranks = folder / FOLDER
        try:
            self.ranks.mkdir(parents=True, exist_ok=True)
            for left in (folder / MEASUREMENT_FILE, folder / STEPS_FILE, *self.ranks.glob(f"*{SUFFIX}")):
                left.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be written: {error.strerror or error}") from error
        self._reader = RankReader(self.ranks)
        self._steps: StepWriter | None = None
        self._starts: list[RankStart] = []
        self._written = 0
        self._fault: str | None = None

    def look(self) -> None:
        """Append the steps that all ranks have finished to steps.jsonl; those of the last start, if they began anew."""
        if self._fault is not None:
            return
        try:
            self._append()
        except (UsageError, OSError, msgspec.DecodeError) as error:
            # A disk that is full, say. Nothing is appended to what may end within a line.
            self._fault = self._in_words(error)
            sys.stderr.write(f"gradwire measure: no more steps are written down: {self._fault}\n")

    def _append(self) -> None:
        logs, _ = one_run(self._reader.read())
        if missing_ranks(logs) is not None:
            return
        starts = [log.start for log in logs]
        if self._steps is not None and starts != self._starts:
            self._steps.close()
            self._steps, self._written = StepWriter(self._folder / STEPS_FILE), 0
        self._starts = starts
        for step in finished_steps(logs, after=self._written):
            if self._steps is None:
                if not self._is_first_to_write():
                    return
                self._steps = StepWriter(self._folder / STEPS_FILE)
                self._trackers = self._open_trackers(logs[0].start)
            self._steps.write(step)
            self._trackers.log(step_figures(step, world_size=logs[0].start.world_size), step.step)
            self._written = step.step

    def end(self) -> tuple[Measurement | None, str | None]:
        """Write and return the measurement after the command's end; None, with the reason, where there is none.

        What the ranks wrote is kept beside it.
        """
        self.look()
        try:
            return self._end()
        except (UsageError, OSError, msgspec.DecodeError) as error:
            return None, self._in_words(error)
        finally:
            self._trackers.close()

    def _in_words(self, error: Exception) -> str:
        match error:
            case msgspec.DecodeError():
                return f"{self.ranks}: not what ranks write: {error}"
            case OSError():
                return f"{self.ranks}: cannot be read: {error.strerror or error}"
            case _:
                return str(error)

    def _is_first_to_write(self) -> bool:
        """Return whether this is the machine, of those that share the folder, which writes the steps down."""
        try:
            (self._folder / STEPS_FILE).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _open_trackers(self, start: RankStart) -> Trackers:
        settings = {"script": start.script, "world_size": start.world_size, "library": start.library}
        return open_trackers(
            self._tracker_names, folder=self._folder, run_name=self._folder.resolve().name, settings=settings
        )

    def _end(self) -> tuple[Measurement | None, str | None]:
        logs, notes = one_run(self._reader.read())
        why = missing_ranks(logs)
        if why is not None:
            # Not removed with something in it.
            with suppress(OSError):
                self.ranks.rmdir()
            return None, why
        return _written(self._folder, logs, notes, self._given), None


def put_together(folder: Path, given: GivenFigures) -> tuple[Measurement | None, str | None]:
    """Write steps.jsonl and the measurement of what the ranks of a killed `gradwire measure` left in `folder`.

    Returns the measurement; None, with the reason, where there is none. The machine is taken to be this one. Raises
    UsageError where the folder cannot be read or written, or holds something else.
    """
    ranks = folder / FOLDER
    try:
        logs, notes = one_run(RankReader(ranks).read())
    except msgspec.DecodeError as error:
        raise UsageError(f"{ranks}: not what ranks write: {error}") from error
    except OSError as error:
        raise UsageError(f"{ranks}: cannot be read: {error.strerror or error}") from error
    why = missing_ranks(logs)
    if why is not None:
        return None, why
    with StepWriter(folder / STEPS_FILE) as steps:
        for step in finished_steps(logs, after=0):
            steps.write(step)
    return _written(folder, logs, ["put together from what its ranks wrote down", *notes], given), None


def _written(folder: Path, logs: Sequence[RankLog], notes: Sequence[str], given: GivenFigures) -> Measurement:
    machine = hardware(logs[0].start.device_name)
    measurement = watched_measurement(logs, hardware=machine, notes=notes, given=given)
    write_measurement(folder / MEASUREMENT_FILE, measurement)
    return measurement
