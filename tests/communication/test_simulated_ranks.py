"""What methods promise about one bucket at any number of ranks: nothing is lost, rounding keeps within its bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradwire.train.communication.alternating import AlternatingPowerSGD
from gradwire.train.communication.cast import Cast
from gradwire.train.communication.int8 import Int8
from gradwire.train.communication.interface import Method
from gradwire.train.communication.layout import Layout, layout_of
from gradwire.train.communication.low_rank import LowRankOptions
from gradwire.train.communication.powersgd import PowerSGD
from gradwire.train.communication.topk import TopK
from tests.communication.simulated import average

ODD: list[Tensor] = [
    torch.empty(()),
    torch.empty(1, 40),
    torch.empty(40, 1),
    torch.empty(0, 5),
    torch.empty(5, 0),
    torch.empty(0),
    torch.empty(9, 4, 3),
    torch.empty(16, 8, 3, 3),
    torch.empty(16, 8, 3, 3).to(memory_format=torch.channels_last),
    torch.empty(30, 20),
    torch.empty(30, 20),
]
BLOCK = 32


def low_rank(*, unused: bool) -> LowRankOptions:
    return LowRankOptions(
        matrix_approximation_rank=2,
        min_compression_rate=1.0,
        error_feedback=True,
        warm_start=True,
        start_step=0,
        wire_dtype=None,
        unused=unused,
    )


WITH_ERRORS: dict[str, Callable[[bool], Method]] = {
    "powersgd": lambda unused: PowerSGD(low_rank(unused=unused)),
    "powersgd-alternating": lambda unused: AlternatingPowerSGD(low_rank(unused=unused)),
    "topk": lambda unused: TopK(fraction=0.05, error_feedback=True, unused=unused),
    "int8": lambda unused: Int8(block_size=BLOCK, error_feedback=True, unused=unused),
}


def odd_layout() -> Layout:
    return layout_of([f"p{number}" for number in range(len(ODD))], ODD)


def errors_of(method: Method, layout: Layout) -> Tensor:
    table = method.local_state()["errors"]
    return torch.cat([table[name].double() for name in layout.names])


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("name", WITH_ERRORS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_average_and_error_are_the_gradient(name: str, ranks: int, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(ranks)
    layout, unused = odd_layout(), ranks % 2 == 0
    methods = [WITH_ERRORS[name](unused) for _ in range(ranks)]
    before = torch.zeros(layout.numel, dtype=torch.float64)
    for step in range(5):
        gradients = [torch.randn(layout.numel, dtype=dtype) for _ in range(ranks)]
        slot = layout.slots[step]
        if unused:
            for gradient in gradients[step % ranks :]:
                gradient[slot.offset : slot.end] = 0
        result = average(methods, gradients, layout, step)
        after = torch.stack([errors_of(method, layout) for method in methods]).mean(0)
        exact = torch.stack([gradient.double() for gradient in gradients]).mean(0)
        lost = (exact + before - result.double() - after).abs().max() / before.abs().max().clamp(min=1)
        assert lost < tolerance, step
        before = after


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(("dtype", "unit"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)])
def test_cast_keeps_within_its_bound(ranks: int, dtype: torch.dtype, unit: float) -> None:
    gradients = [torch.randn(1001) for _ in range(ranks)]
    result = average([Cast(dtype) for _ in range(ranks)], gradients, layout_of(["m"], [gradients[0]]), 0)
    exact = torch.stack(gradients).double()
    assert ((result - exact.mean(0)).abs() <= unit * (2 + unit) * exact.abs().mean(0) + 1e-6).all()


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_int8_keeps_within_its_bound(ranks: int) -> None:
    gradients = [torch.randn(20 * BLOCK * ranks) for _ in range(ranks)]
    methods = [Int8(block_size=BLOCK, error_feedback=False, unused=False) for _ in range(ranks)]
    result = average(methods, gradients, layout_of(["m"], [gradients[0]]), 0)
    exact = torch.stack(gradients).double()

    def half_scale(values: Tensor) -> Tensor:
        return values.abs().view(-1, BLOCK).amax(1).div(254).repeat_interleave(BLOCK)

    first = torch.stack([half_scale(each) for each in exact]).mean(0)
    # What is rounded the second time is off by at most as much as the first time.
    second = half_scale(exact.mean(0)) + first.view(-1, BLOCK).amax(1).div(127).repeat_interleave(BLOCK)
    assert ((result - exact.mean(0)).abs() <= (first + second) * 1.0001).all()


@pytest.mark.parametrize("name", WITH_ERRORS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_shows_on_every_rank_and_is_forgotten(name: str, value: float) -> None:
    layout = odd_layout()
    methods = [WITH_ERRORS[name](False) for _ in range(3)]
    for step in range(4):
        gradients = [torch.randn(layout.numel) for _ in range(3)]
        if step == 2:
            gradients[1][layout.slots[7].offset] = value
        assert bool(torch.isfinite(average(methods, gradients, layout, step)).all()) == (step != 2), step


def test_a_factor_that_overflows_is_forgotten() -> None:
    # fp16 gradients: the second factor, as long as the matrix is large, does not fit although the first does.
    layout = layout_of(["m"], [torch.empty(60, 40)])
    methods = [PowerSGD(low_rank(unused=False)) for _ in range(2)]
    found = []
    for step in range(4):
        scale = 60_000 if step == 1 else 1
        gradients = [torch.full((2400,), 1.0, dtype=torch.float16) * scale for _ in range(2)]
        found.append(bool(torch.isfinite(average(methods, gradients, layout, step)).all()))
    assert found == [True, False, True, True]
