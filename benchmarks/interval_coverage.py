"""How often intervals and predictions hold the truth, on throughputs made up with known efficiency and noise."""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Sequence

from gradwire.measure.efficiency import graded_efficiency
from gradwire.measure.fits import Law, Scaling, fit_laws

_NOISE = 0.02
_ROUND_NOISE = 0.05
_EFFICIENCY = 0.8
# One run in ten, slowed by a fifth: what another job on the machine does.
_DISTURBED, _SLOWED = 0.1, 0.8
_SIZE = 4


def main() -> None:
    """Print a row for each number of repeats and kind of noise, and for each law."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.interval_coverage",
        description="Make up repeats of a baseline and of a run of 80 %% efficiency, each off by 2 %% (one standard "
        "deviation), grade them, and count how often the 95 %% interval holds the 80 %%, how often the grade is "
        "another than acceptable or undecided, and how often it is undecided. Then the same for the laws' predictions "
        "at twice and four times the largest size.",
    )
    parser.add_argument("--trials", type=int, default=1000, help="comparisons made up for each row (1000)")
    parser.add_argument("--seed", type=int, default=3, help="of the made-up noise (3)")
    options = parser.parse_args()
    # Made-up noise, no secret.
    chance = random.Random(options.seed)  # noqa: S311
    for words, is_disturbed in (("even noise", False), ("one run in ten a fifth slower", True)):
        print(words)
        for repeats in (2, 3, 5, 8):
            for in_rounds in (False, True):
                print(_graded(chance, options.trials, repeats, in_rounds=in_rounds, is_disturbed=is_disturbed))
    print("predictions at 2x and 4x")
    for law, scaling, sizes, truth in _TRUTHS:
        print(_predicted(chance, options.trials // 2, law, scaling, sizes, truth))


def _graded(chance: random.Random, trials: int, repeats: int, *, in_rounds: bool, is_disturbed: bool) -> str:
    held = wrong = undecided = 0
    widths = []
    for _ in range(trials):
        # What slows the machine in a round slows both runs of it.
        paces = [math.exp(chance.gauss(0, _ROUND_NOISE)) if in_rounds else 1.0 for _ in range(repeats)]
        baseline = [pace * _noisy(chance, is_disturbed) for pace in paces]
        actual = [_SIZE * _EFFICIENCY * pace * _noisy(chance, is_disturbed) for pace in paces]
        pairs = list(zip(actual, baseline, strict=True)) if in_rounds else ()
        found = graded_efficiency(baseline, _SIZE, actual, pairs=pairs)
        if found.interval is not None:
            held += found.interval.low <= _EFFICIENCY <= found.interval.high
            widths.append(found.interval.width)
        undecided += found.grade == "undecided"
        wrong += found.grade not in ("acceptable", "undecided")
    kind = "in rounds" if in_rounds else "apart"
    return (
        f"  {repeats} repeats {kind:9}  holds {held / trials:6.1%}  wrong {wrong / trials:5.1%}  "
        f"undecided {undecided / trials:6.1%}  median width {sorted(widths)[len(widths) // 2]:5.1%}"
    )


def _noisy(chance: random.Random, is_disturbed: bool) -> float:
    slowed = _SLOWED if is_disturbed and chance.random() < _DISTURBED else 1.0
    return math.exp(chance.gauss(0, _NOISE)) * slowed


_Truth = Callable[[int], float]
_TRUTHS: tuple[tuple[Law, Scaling, Sequence[int], _Truth], ...] = (
    ("amdahl", "strong", (1, 2, 4, 8), lambda n: 1 / (0.02 + 0.98 / n)),
    ("gustafson", "weak", (1, 2, 4, 8), lambda n: 0.1 + 0.9 * n),
    ("latency-bandwidth", "weak", (1, 2, 4, 8), lambda n: n / (1 + 0.004 * (n - 1) + 0.1 * (n - 1) / n)),
    ("latency-bandwidth", "strong", (1, 2, 4, 8, 16), lambda n: 1 / (1 / n + 0.004 * (n - 1) + 0.1 * (n - 1) / n)),
)


def _predicted(
    chance: random.Random, trials: int, law: Law, scaling: Scaling, sizes: Sequence[int], truth: _Truth
) -> str:
    held = {2: 0, 4: 0}
    for _ in range(trials):
        points = [(size, truth(size) * _noisy(chance, False)) for size in sizes for _ in range(3)]
        (fit,) = [found for found in fit_laws(points, scaling) if found.law == law]
        for found in fit.predictions:
            next_run = truth(found.num_gpus) * _noisy(chance, False)
            held[found.num_gpus // sizes[-1]] += found.low <= next_run and (
                found.high is None or next_run <= found.high
            )
    shares = "  ".join(f"{factor}x {count / trials:6.1%}" for factor, count in held.items())
    return f"  {law:18} {scaling:6} from {','.join(map(str, sizes)):10}  holds {shares}"


if __name__ == "__main__":
    main()
