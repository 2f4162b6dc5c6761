"""Wrong figures of public reports come out right through the names that `import gradwire` offers."""

from __future__ import annotations

import pytest

from gradwire import ThroughputMeter, model_flops_per_token, model_flops_utilization
from gradwire.errors import UsageError

A100 = "NVIDIA A100-SXM4-80GB"
# In binary fractions, so that every expectation is an equality.
MICRO_STEP_SECONDS = 0.25


class Clock:
    """Stands still until it is told how long something took."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_tokens_of_a_step_are_those_of_every_micro_step_over_the_whole_steps_time() -> None:
    """karpathy/nanochat#177: one micro-step's tokens over the step's time, too low by the accumulation."""
    clock = Clock()
    meter = ThroughputMeter(clock=clock)
    meter.start()
    tokens = 0
    for _ in range(8):
        clock.now += MICRO_STEP_SECONDS
        tokens += 4 * 2048
    meter.step(samples=8 * 4, tokens=tokens)
    assert meter.tokens_per_second == 4 * 2048 / MICRO_STEP_SECONDS
    assert meter.samples_per_second == 4 / MICRO_STEP_SECONDS


def test_only_labels_that_train_count_over_all_micro_steps() -> None:
    """axolotl-ai-cloud/axolotl#3688: the last micro-batch's tokens stood for those of all eight."""
    clock = Clock()
    meter = ThroughputMeter(clock=clock)
    labels = [[-100] * masked + [1] * (16 - masked) for masked in (0, 3, 16, 1, 9, 0, 7, 12)]
    meter.start()
    clock.now += 2.0
    meter.step(samples=8, tokens=sum(label != -100 for row in labels for label in row))
    assert meter.timed_tokens == 8 * 16 - (0 + 3 + 16 + 1 + 9 + 0 + 7 + 12)
    assert meter.tokens_per_second == 80 / 2.0


@pytest.mark.parametrize("seconds", [0.001953125, 0.25, 3.0])
def test_a_step_of_known_length_is_that_long_in_seconds(seconds: float) -> None:
    """deepspeedai/DeepSpeed#2090: milliseconds that were read as seconds, a thousand times too long."""
    clock = Clock()
    meter = ThroughputMeter(clock=clock)
    meter.start()
    clock.now += seconds
    meter.step(samples=1, tokens=1)
    assert meter.step_seconds == (seconds,)


def test_a_step_lasts_as_long_as_all_its_micro_steps() -> None:
    """deepspeedai/DeepSpeed PR #2888: with accumulation, the step's time was one micro-step's."""
    clock = Clock()
    meter = ThroughputMeter(clock=clock)
    meter.start()
    for accumulation in (1, 4):
        clock.now += accumulation * MICRO_STEP_SECONDS
        meter.step(samples=accumulation, tokens=accumulation)
    assert meter.step_seconds == (0.25, 1.0)


def test_flops_per_token_stay_what_they_are_however_often_they_are_counted() -> None:
    """deepspeedai/DeepSpeed#2292: a profiler that was started again counted its earlier steps once more."""
    counts = {model_flops_per_token(1_000_000, layers=4, hidden_size=128, sequence_length=256) for _ in range(100)}
    assert counts == {6 * 1_000_000 + 12 * 4 * 128 * 256}


def test_both_attention_products_count_and_a_causal_mask_halves_them() -> None:
    """pytorch/torchtitan PR #4366 counted one of the two, #341 all of what a causal mask leaves out."""
    sizes = {"layers": 32, "hidden_size": 4096, "sequence_length": 16384}
    whole = model_flops_per_token(0, **sizes)
    assert whole == 12 * 32 * 4096 * 16384 == 2 * (6 * 32 * 4096 * 16384)
    assert model_flops_per_token(0, **sizes, causal=True) == whole // 2


def test_embeddings_are_in_or_out_as_one_says() -> None:
    sizes = {"layers": 1, "hidden_size": 8, "sequence_length": 16}
    with_tables = model_flops_per_token(10_000, **sizes)
    assert with_tables - model_flops_per_token(10_000, **sizes, embedding_parameters=4_000) == 6 * 4_000
    with pytest.raises(UsageError, match="embedding_parameters are 5, more than all 4"):
        model_flops_per_token(4, **sizes, embedding_parameters=5)
    with pytest.raises(UsageError, match="layers is -1, below 0"):
        model_flops_per_token(4, layers=-1, hidden_size=8, sequence_length=16)


def test_more_than_the_peak_is_an_error_in_the_inputs_and_never_a_number() -> None:
    """pytorch/torchtitan#341, Megatron-LM#831: 189 TFLOP/s, counted twice, on a chip that can do 312."""
    per_token = 1e9
    half_counted = model_flops_utilization(per_token, 189e12 / per_token, device_name=A100)
    assert half_counted.mfu == pytest.approx(189 / 312)
    found = model_flops_utilization(2 * per_token, 189e12 / per_token, device_name=A100)
    assert found.mfu is None
    assert found.reason is not None
    assert found.reason.startswith("the inputs are wrong: 121% of the device's peak cannot be")


def test_an_unknown_device_has_no_share_and_a_peak_of_ones_own_does() -> None:
    assert model_flops_utilization(1e9, 1e3, device_name="NVIDIA Future").mfu is None
    assert model_flops_utilization(1e9, 1e3, device_name="Tesla T4").reason == (
        "'Tesla T4' has no matrix unit for bf16-mixed"
    )
    assert model_flops_utilization(1e9, 1e3, peak=4e12) == (0.25, None)
    for wrong in ({}, {"peak": 1.0, "device_name": A100}, {"peak": 0.0}, {"peak": float("nan")}):
        with pytest.raises(UsageError):
            model_flops_utilization(1e9, 1e3, **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tokens_per_second must be a finite number"):
        model_flops_utilization(1e9, float("inf"), peak=1.0)


def test_a_clock_that_waits_for_the_device_sees_the_work_and_not_the_queueing() -> None:
    """1ytic/warp-rnnt#9: 1.76 ms without waiting for the device, 15.82 ms with."""

    class Device:
        """Takes work at once and is through with it later."""

        def __init__(self) -> None:
            self.host, self.busy_until = 0.0, 0.0

        def queue(self, seconds: float) -> None:
            self.host += 0.00176
            self.busy_until = max(self.host, self.busy_until) + seconds

        def synchronised(self) -> float:
            self.host = max(self.host, self.busy_until)
            return self.host

    device = Device()
    meter = ThroughputMeter(clock=device.synchronised)
    hasty = Device()
    wrong = ThroughputMeter(clock=lambda: hasty.host)
    for one, on in ((meter, device), (wrong, hasty)):
        one.start()
        on.queue(0.01406)
        one.step(samples=1, tokens=1)
    assert meter.step_seconds[0] == pytest.approx(0.01582)
    assert wrong.step_seconds[0] == pytest.approx(0.00176)
