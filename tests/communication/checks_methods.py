"""What each method promises about one bucket, without DDP; `test_communication_methods.py` runs it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from gradwire.train.communication.alternating import AlternatingPowerSGD
from gradwire.train.communication.cast import Cast
from gradwire.train.communication.int8 import Int8
from gradwire.train.communication.interface import Bucket, Method
from gradwire.train.communication.lanes import Lanes
from gradwire.train.communication.layout import Layout, layout_of
from gradwire.train.communication.low_rank import LowRankOptions
from gradwire.train.communication.powersgd import PowerSGD
from gradwire.train.communication.topk import TopK
from tests.communication.models import everyone

SHAPES = [(6, 40), (40,), (30, 20), (20,), (30, 20), (20,), (30, 20), (8, 3, 5, 5), (7,)]
LANES: list[Lanes] = []


def lanes() -> Lanes:
    if not LANES:
        LANES.append(Lanes(dist.distributed_c10d._get_default_group(), 2, torch.get_default_device()))
    return LANES[0]


def options(**changed: object) -> LowRankOptions:
    defaults: dict[str, object] = {
        "matrix_approximation_rank": 2,
        "min_compression_rate": 1.0,
        "error_feedback": True,
        "warm_start": True,
        "start_step": 0,
        "wire_dtype": None,
        "unused": False,
    }
    return LowRankOptions(**(defaults | changed))


def fresh_layout() -> Layout:
    return layout_of([f"p{index}" for index in range(len(SHAPES))], [torch.empty(shape) for shape in SHAPES])


def average(method: Method, gradients: Tensor, layout: Layout, step: int) -> Tensor:
    flat = gradients.clone()
    with torch.no_grad():
        for work in method.average(Bucket(flat=flat, layout=layout, step=step), lanes()):
            work.wait()
    comparable = flat.nan_to_num(nan=1e9)
    assert all(torch.equal(other, comparable) for other in everyone(comparable)), "ranks differ"
    return flat


def mean_of_ranks(tensor: Tensor) -> Tensor:
    return torch.stack([other.double() for other in everyone(tensor)]).mean(0)


def errors_of(method: Method, layout: Layout) -> Tensor:
    table = method.local_state()["errors"]
    return torch.cat([table[name] for name in layout.names])


def assert_nothing_is_lost(method: Method, *, dtype: torch.dtype, tolerance: float, steps: int = 6) -> None:
    """Fail unless mean gradient + mean error before = average + mean error after, in every step."""
    layout = fresh_layout()
    before = torch.zeros(layout.numel, dtype=torch.float64)
    for step in range(steps):
        gradients = torch.randn(layout.numel, dtype=dtype)
        result = average(method, gradients, layout, step)
        after = mean_of_ranks(errors_of(method, layout))
        difference = (mean_of_ranks(gradients) + before - result.double() - after).abs().max().item()
        assert difference < tolerance, f"step {step}: {difference}"
        before = after


def low_rank_methods(**changed: object) -> Sequence[Method]:
    return PowerSGD(options(**changed)), AlternatingPowerSGD(options(**changed))


def check_low_rank_loses_nothing_in_float64() -> None:
    for method in low_rank_methods():
        assert_nothing_is_lost(method, dtype=torch.float64, tolerance=1e-13)


def check_low_rank_loses_nothing_in_float32() -> None:
    for method in low_rank_methods():
        assert_nothing_is_lost(method, dtype=torch.float32, tolerance=1e-5)


def check_low_rank_without_warm_start_loses_nothing() -> None:
    assert_nothing_is_lost(PowerSGD(options(warm_start=False)), dtype=torch.float64, tolerance=1e-13)


def check_low_rank_with_unused_parameters_loses_nothing() -> None:
    for method in low_rank_methods(unused=True):
        assert_nothing_is_lost(method, dtype=torch.float64, tolerance=1e-13)


def check_low_rank_on_a_bf16_wire_loses_only_the_rounding_of_the_sum() -> None:
    # n values rounded to 2^-8 at each of n - 1 additions, of factors whose entries stay below 64 here.
    for method in low_rank_methods(wire_dtype=torch.bfloat16):
        assert_nothing_is_lost(method, dtype=torch.float32, tolerance=64 * 2**-8 * dist.get_world_size())


def check_topk_loses_nothing() -> None:
    method = TopK(fraction=0.05, error_feedback=True, unused=False)
    assert_nothing_is_lost(method, dtype=torch.float32, tolerance=1e-5)
    method = TopK(fraction=0.05, error_feedback=True, unused=True)
    assert_nothing_is_lost(method, dtype=torch.float32, tolerance=1e-5)


def check_int8_loses_nothing() -> None:
    for unused in (False, True):
        method = Int8(block_size=32, error_feedback=True, unused=unused)
        assert_nothing_is_lost(method, dtype=torch.float32, tolerance=1e-5)


def check_before_the_start_step_the_average_is_the_plain_all_reduce() -> None:
    for method in low_rank_methods(start_step=3):
        layout = fresh_layout()
        for step in range(3):
            gradients = torch.randn(layout.numel)
            expected = gradients / dist.get_world_size()
            dist.all_reduce(expected)
            assert torch.equal(average(method, gradients, layout, step), expected)


def check_full_rank_is_the_mean() -> None:
    method = PowerSGD(options(matrix_approximation_rank=6, min_compression_rate=0.01))
    layout = layout_of(["m"], [torch.empty(6, 40)])
    gradients = torch.randn(240, dtype=torch.float64)
    difference = average(method, gradients, layout, 0) - mean_of_ranks(gradients)
    assert difference.abs().max() < 1e-12


def check_powersgd_converges_to_the_best_approximation() -> None:
    torch.manual_seed(7)
    matrix = torch.randn(30, 3, dtype=torch.float64) @ torch.randn(3, 20, dtype=torch.float64)
    matrix += 0.01 * torch.randn(30, 20, dtype=torch.float64)
    left, singular, right = torch.linalg.svd(matrix)
    best = left[:, :2] @ torch.diag(singular[:2]) @ right[:2]
    for method in low_rank_methods(error_feedback=False):
        layout = layout_of(["m"], [torch.empty(30, 20)])
        for step in range(60):
            result = average(method, matrix.flatten(), layout, step)
        assert (result.view(30, 20) - best).norm() < 1e-3 * best.norm()


def check_cast_stays_within_its_bound() -> None:
    for dtype, unit in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
        layout = fresh_layout()
        gradients = torch.randn(layout.numel)
        result = average(Cast(dtype), gradients, layout, 0)
        bound = unit * (2 + unit) * mean_of_ranks(gradients.abs()) + 1e-6
        assert ((result - mean_of_ranks(gradients)).abs() <= bound).all()


def check_int8_stays_within_its_bound() -> None:
    block = 32
    method = Int8(block_size=block, error_feedback=False, unused=False)
    layout = layout_of(["m"], [torch.empty(20 * block)])
    gradients = torch.randn(layout.numel)
    result = average(method, gradients, layout, 0)
    exact = mean_of_ranks(gradients)

    def half_scale(values: Tensor) -> Tensor:
        return values.abs().view(-1, block).amax(1).div(254).repeat_interleave(block)

    own = mean_of_ranks(half_scale(gradients))
    second = (half_scale(exact) * (1 + 1 / 127)) + own / 127
    assert ((result - exact).abs() <= (own + second) * 1.001).all()


def check_zero_gradients_stay_zero_and_recover() -> None:
    methods = [*low_rank_methods(), TopK(fraction=0.1, error_feedback=True, unused=False)]
    methods += [Int8(block_size=32, error_feedback=True, unused=False), Cast(torch.bfloat16)]
    for method in methods:
        layout = fresh_layout()
        for step in range(3):
            assert average(method, torch.zeros(layout.numel), layout, step).count_nonzero() == 0
        gradients = torch.randn(layout.numel)
        result = average(method, gradients, layout, 3)
        assert torch.isfinite(result).all() and result.norm() > 0.1 * mean_of_ranks(gradients).norm()


def check_an_overflow_shows_and_is_forgotten() -> None:
    methods = [*low_rank_methods(), TopK(fraction=0.1, error_feedback=True, unused=False)]
    methods += [Int8(block_size=32, error_feedback=True, unused=False)]
    for method in methods:
        layout = fresh_layout()
        for step in range(4):
            gradients = torch.randn(layout.numel)
            if step == 2 and dist.get_rank() == dist.get_world_size() - 1:
                gradients[5] = float("inf")
            result = average(method, gradients, layout, step)
            finite = bool(torch.isfinite(result).all())
            assert finite == (step != 2), f"{type(method).__name__} step {step}"


def check_error_of_a_parameter_that_no_rank_uses_is_kept() -> None:
    methods = [*low_rank_methods(unused=True), TopK(fraction=0.1, error_feedback=True, unused=True)]
    methods += [
        Int8(block_size=32, error_feedback=True, unused=True),
        PowerSGD(options(unused=True, wire_dtype=torch.bfloat16)),
    ]
    for method in methods:
        layout = fresh_layout()
        for step in range(3):
            average(method, torch.randn(layout.numel), layout, step)
        before = method.local_state()["errors"]
        gradients = torch.randn(layout.numel)
        for index in (2, 3):
            gradients[layout.slots[index].offset : layout.slots[index].end] = 0
        one = layout.slots[4]
        if dist.get_rank() != 0:
            gradients[one.offset : one.end] = 0
        result = average(method, gradients, layout, 3)
        after = method.local_state()["errors"]
        for name in ("p2", "p3"):
            assert torch.equal(before[name], after[name]), f"{type(method).__name__} {name}"
        unused = layout.slots[2]
        assert result[unused.offset : unused.end].count_nonzero() == 0
        assert result[one.offset : one.end].count_nonzero() > 0


def check_state_moves_with_its_parameter_when_buckets_change() -> None:
    for method in low_rank_methods():
        layout = fresh_layout()
        average(method, torch.randn(layout.numel), layout, 0)
        before = method.local_state()["errors"] | {}
        turned = layout_of([f"p{index}" for index in range(len(SHAPES))][::-1], [torch.empty(s) for s in SHAPES[::-1]])
        # A zero gradient leaves the error's projection as the average: nothing else can have entered.
        result = average(method, torch.zeros(turned.numel), turned, 1)
        after = method.local_state()["errors"]
        for slot in turned.slots:
            was = mean_of_ranks(before[slot.name])
            now = mean_of_ranks(after[slot.name]) + result[slot.offset : slot.end]
            assert (was - now).abs().max() < 1e-5


def check_bf16_gradients_are_averaged_in_float32() -> None:
    methods = [*low_rank_methods(), TopK(fraction=0.1, error_feedback=True, unused=False)]
    methods += [Int8(block_size=32, error_feedback=True, unused=False), Cast(torch.bfloat16)]
    for method in methods:
        layout = fresh_layout()
        for step in range(3):
            result = average(method, torch.randn(layout.numel).bfloat16(), layout, step)
            assert result.dtype == torch.bfloat16 and torch.isfinite(result).all()
        assert all(error.dtype == torch.float32 for error in method.local_state().get("errors", {}).values())
