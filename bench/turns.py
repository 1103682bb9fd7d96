"""What comparisons share: cores that are pinned, sides that take turns, and the statistics of it.

A side does the same work each turn and says what it took: a Command is started anew, a Server stays and waits between
its turns (bench/peers/*.py). Its turn gives numbers by the name of a series; of several repetitions their median.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

Numbers = dict[str, float]


def cores(n: int) -> list[int]:
    """The first n that this process may use; fewer where it has fewer."""
    return sorted(os.sched_getaffinity(0))[:n]


def pinned(command: Iterable[object], on: list[int]) -> list[str]:
    return ["taskset", "-c", ",".join(map(str, on)), *map(str, command)]


def environment(on: list[int]) -> dict[str, str]:
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    root["PYTHONPATH"] = os.pathsep.join([str(here(".")), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, **root, "OMP_NUM_THREADS": str(len(on)), "TOKENIZERS_PARALLELISM": "false"}


class Command:
    """A program that is started for each turn; `read` finds the numbers in what it prints."""

    def __init__(
        self,
        command: Iterable[object],
        on: list[int],
        read: Callable[[str], Numbers],
        cwd: pathlib.Path | None = None,
    ) -> None:
        self.command, self.read, self.env, self.cwd = pinned(command, on), read, environment(on), cwd

    def turn(self) -> Numbers:
        done = subprocess.run(self.command, capture_output=True, text=True, env=self.env, cwd=self.cwd)
        if done.returncode != 0:
            raise RuntimeError((done.stderr or done.stdout).strip()[-400:])
        return self.read(done.stdout + done.stderr)

    def stop(self) -> None:
        pass


class Watched(Command):
    """One that is ended as soon as what it printed is enough, for it would go on: `read` finds nothing before."""

    def turn(self) -> Numbers:
        command = ["stdbuf", "-oL", *self.command]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=self.env, cwd=self.cwd) as process:  # fmt: skip
            said, found = "", {}
            for line in process.stdout or []:
                said += line
                found = self.read(said)
                if found:
                    break
            process.kill()
        if not found:
            raise RuntimeError(said.strip()[-400:])
        return found


class Server:
    """A program that is warm from its first line on, "ready", and answers each line with one of JSON."""

    def __init__(self, command: Iterable[object], on: list[int]) -> None:
        self.command = pinned(command, on)
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment(on))  # fmt: skip
        self.answer()

    def answer(self) -> str:
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        if line:
            return line
        raise RuntimeError(self.process.stderr.read().strip()[-400:])  # type: ignore[union-attr]

    def turn(self) -> Numbers:
        self.process.stdin.write("go\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]
        return json.loads(self.answer())

    def stop(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()  # type: ignore[union-attr]


Side = Command | Server


def alternate(
    makers: dict[str, Callable[[], Side]], rounds: int, most_s: float
) -> tuple[dict[str, list[float | None]], dict[str, str]]:
    """Numbers of each series, one a round; and what is wrong with sides that failed. A round begins with another side
    than the one before. Ends early where another round would take more than most_s altogether."""
    began, series, faults = time.monotonic(), {}, {}
    sides: dict[str, Side] = {}
    try:
        for name, make in makers.items():
            try:
                sides[name] = make()
            except (RuntimeError, OSError) as why:
                faults[name] = str(why)
        first_round = time.monotonic()
        for k in range(rounds):
            names = list(sides)
            turn = k % len(names) if names else 0
            for name in names[turn:] + names[:turn]:
                try:
                    numbers = sides[name].turn()
                except (RuntimeError, OSError, ValueError, KeyError) as why:
                    faults[name] = str(why)
                    sides.pop(name).stop()
                    continue
                for of, number in numbers.items():
                    series.setdefault(of, [None] * k).append(number)
            for numbers_of in series.values():
                numbers_of += [None] * (k + 1 - len(numbers_of))
            now = time.monotonic()
            if now + (now - first_round) / (k + 1) > began + most_s:
                break
    finally:
        for side in sides.values():
            side.stop()
    return series, faults


def busy_seconds() -> tuple[float, float, float]:
    """Of all cores, since they started: in programs, taken by the host of this virtual machine; and of the programs
    that this one started and that have ended, with itself."""
    mine = sum(os.times()[:4])
    if not os.path.exists("/proc/stat"):
        return 0, 0, mine
    user, nice, system, _, _, irq, soft, stolen, *_ = map(int, open("/proc/stat").readline().split()[1:])
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + soft) / tick, stolen / tick, mine


class Others:
    """How many cores others used meanwhile, on average: programs of this machine, and its host."""

    def __init__(self) -> None:
        self.began, self.before = time.monotonic(), busy_seconds()

    def cores(self) -> float:
        all_of_them, stolen, mine = (b - a for a, b in zip(self.before, busy_seconds(), strict=True))
        return max(0.0, all_of_them - mine + stolen) / (time.monotonic() - self.began)


# ---- statistics ----


def quartiles(numbers: Iterable[float | None]) -> tuple[float, float, float] | None:
    """Median in the middle; None of nothing."""
    known = sorted(x for x in numbers if x is not None)
    if not known:
        return None
    low, middle, high = statistics.quantiles(known, n=4, method="inclusive") if len(known) > 1 else 3 * known
    return low, middle, high


def ratios(over: list[float | None], under: list[float | None]) -> list[float]:
    """Of the pairs of a round."""
    return [a / b for a, b in zip(over, under, strict=False) if a is not None and b]


# ---- a server's own side ----


def serve(measure: Callable[[], Numbers]) -> None:
    """Of a peer that is warm: says so, and measures for each line that comes."""
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(measure()), flush=True)


def median_ms(work: Callable[[], object], times: int) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return 1e3 * statistics.median(took)


def here(name: str) -> pathlib.Path:
    return pathlib.Path(__file__).resolve().parent / name
