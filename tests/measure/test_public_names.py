"""What `import gradwire` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gradwire
from gradwire.measure.efficiency import scaling_efficiency
from gradwire.measure.meter import ThroughputMeter
from gradwire.measure.mfu import model_flops_utilization
from gradwire.recipe.model_flops import model_flops_per_token


def test_the_public_names_are_those_of_the_modules() -> None:
    assert gradwire.scaling_efficiency is scaling_efficiency
    assert gradwire.ThroughputMeter is ThroughputMeter
    assert gradwire.__version__[0].isdigit()
    assert gradwire.model_flops_per_token is model_flops_per_token
    assert gradwire.model_flops_utilization is model_flops_utilization
    assert dir(gradwire) == [
        "ThroughputMeter",
        "__version__",
        "model_flops_per_token",
        "model_flops_utilization",
        "scaling_efficiency",
    ]


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'gradwire' has no attribute 'throughput'"):
        gradwire.throughput  # type: ignore[attr-defined]  # noqa: B018


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_else() -> None:
    assert loaded_by("import gradwire") <= {"__future__", "gradwire"}


def test_the_meter_runs_without_torch_and_without_a_validator() -> None:
    loaded = loaded_by(
        "from gradwire import ThroughputMeter, model_flops_per_token, model_flops_utilization, scaling_efficiency"
    )
    assert not loaded & {"torch", "numpy", "jsonschema", "rich", "matplotlib"}
