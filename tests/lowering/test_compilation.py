"""What tells each backend to compile: one place on each, with every option of torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gradwire.errors import CannotImport, CannotLower
from gradwire.importing.engine import import_job
from gradwire.plan import Backend
from tests.importing.importing import import_, job
from tests.lowering.drawing import STRATEGY, lowered

ON = {"training.compile": True}
EVERYTHING = {
    **ON,
    "training.compile_mode": "max-autotune-no-cudagraphs",
    "training.compile_dynamic": True,
    "training.compile_regional": False,
}
FULL = {"training.compile_fullgraph": True}
VARIABLES = {
    "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
    "ACCELERATE_DYNAMO_MODE": "max-autotune-no-cudagraphs",
    "ACCELERATE_DYNAMO_USE_DYNAMIC": "True",
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
    "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "False",
}


def outcomes(backend: Backend, values: dict[str, Any], program: tuple[str, ...] | None = None) -> dict[str, str]:
    fields = lowered(backend, values, program=program).report.fields
    return {each.path: f"{each.outcome} {each.carrier}" for each in fields if "compile" in each.path}


def test_accelerate_launch_is_told_in_its_file() -> None:
    document = yaml.safe_load(lowered("accelerate", EVERYTHING).files["accelerate.yaml"])
    assert document["dynamo_config"] == {
        "dynamo_backend": "INDUCTOR",
        "dynamo_mode": "max-autotune-no-cudagraphs",
        "dynamo_use_dynamic": True,
        "dynamo_use_fullgraph": False,
        "dynamo_use_regional_compilation": False,
    }
    assert "dynamo_config" not in yaml.safe_load(lowered("accelerate").files["accelerate.yaml"])


def test_under_zero_the_environment_tells_accelerate_since_its_launcher_does_not() -> None:
    artifact = lowered("accelerate", {**EVERYTHING, STRATEGY: "zero2"})
    assert "dynamo_config" not in yaml.safe_load(artifact.files["accelerate.yaml"])
    assert artifact.environment.items() >= VARIABLES.items()


def test_the_trainer_has_arguments_for_two_of_them_and_the_environment_for_the_others() -> None:
    environment = lowered("trainer", EVERYTHING).environment
    told = {name: value for name, value in environment.items() if "DYNAMO" in name}
    assert told == {name: value for name, value in VARIABLES.items() if "USE" in name}
    found = outcomes("trainer", EVERYTHING, ("train.py",))
    assert found["training.compile_mode"] == "exact training_arguments.json torch_compile_mode"
    assert found["training.compile_dynamic"] == "exact ACCELERATE_DYNAMO_USE_DYNAMIC in the environment"


def test_shapes_that_torch_settles_itself_are_beyond_accelerates_file() -> None:
    found = outcomes("accelerate", ON, ("train.py",))
    assert found["training.compile_dynamic"] == "emulated gradwire.accelerate.from_recipe"
    assert (
        "accelerate.yaml"
        in outcomes("accelerate", {**ON, "training.compile_dynamic": False})["training.compile_dynamic"]
    )


def test_fp32_products_that_accelerate_would_round_are_told_of() -> None:
    for backend in ("accelerate", "trainer"):
        fields = {each.path: each for each in lowered(backend, ON, program=("train.py",)).report.fields}
        assert "TF32" in str(fields["training.precision"].note)


@pytest.mark.parametrize(
    ("backend", "values"),
    [
        ("accelerate", {"training.compile_regional": False}),
        ("accelerate", {STRATEGY: "zero2"}),
        ("trainer", {"training.compile_regional": False}),
        ("deepspeed", {"training.compile_regional": False}),
        ("deepspeed", {STRATEGY: "fsdp"}),
        ("native", {STRATEGY: "zero1", "training.compile_regional": False}),
    ],
)
def test_a_whole_graph_is_refused_where_torch_cannot_make_one(backend: Backend, values: dict[str, Any]) -> None:
    with pytest.raises(CannotLower, match=r"compile_fullgraph: .*; nearest: false"):
        lowered(backend, {**ON, **FULL, **values})
    assert lowered(backend, {**ON, **FULL}).files
    assert lowered(backend, {**ON, **FULL, **values}, allow_lossy=True).files


def test_deepcompile_needs_a_model_that_deepspeed_compiles_as_one() -> None:
    section = {"backends.deepspeed": {"compile": {"deepcompile": True}}, STRATEGY: "zero3"}
    for values in (section, {**section, **ON}):
        with pytest.raises(CannotLower, match=r"engine\.compile\(\) reads it"):
            lowered("deepspeed", values)
    assert lowered("deepspeed", {**section, **ON, "training.compile_regional": False}).files


YAML = """
distributed_type: MULTI_GPU
num_processes: 2
dynamo_config:
"""


def test_a_whole_dynamo_config_is_carried() -> None:
    text = "  dynamo_backend: INDUCTOR\n  dynamo_mode: max-autotune\n  dynamo_use_fullgraph: true\n"
    recipe, entries, _ = import_(job(accelerate=YAML + text + "  dynamo_use_regional_compilation: true\n"))
    training = recipe.training
    assert (training.compile, training.compile_backend, training.compile_mode) == (True, "inductor", "max-autotune")
    assert (training.compile_fullgraph, training.compile_regional) == (True, True)
    # Accelerate's launcher says false where the file says nothing, and torch would otherwise settle it itself.
    assert training.compile_dynamic is False
    assert entries["dynamo_config.dynamo_use_dynamic"].outcome == "explicit"
    assert not recipe.backends.accelerate


def test_what_a_compiler_ignores_is_idle_and_another_compiler_refused() -> None:
    text = "  backend: EAGER\n  mode: max-autotune\n"
    recipe, entries, _ = import_(job(accelerate=YAML + text))
    assert (recipe.training.compile_backend, recipe.training.compile_mode) == ("eager", "default")
    assert entries["dynamo_config.dynamo_mode"].outcome == "idle"
    _, entries, _ = import_(job(accelerate=YAML + "  dynamo_backend: 'NO'\n  dynamo_use_fullgraph: true\n"))
    assert entries["dynamo_config.dynamo_use_fullgraph"].outcome == "idle"
    with pytest.raises(CannotImport, match="a recipe compiles with inductor, cudagraphs, aot_eager, eager"):
        import_job(job(accelerate=YAML + "  dynamo_backend: TVM\n"))


def test_a_mode_alone_has_the_trainer_compile_the_model_as_one() -> None:
    recipe, _, _ = import_(job(trainer={"torch_compile_mode": "reduce-overhead", "max_steps": 3}))
    training = recipe.training
    assert (training.compile, training.compile_mode, training.compile_regional) == (True, "reduce-overhead", False)


def test_deepcompile_says_that_the_script_compiles() -> None:
    config = {"train_batch_size": 2, "zero_optimization": {"stage": 3}, "compile": {"deepcompile": True}}
    recipe, _, _ = import_(job(config))
    assert (recipe.training.compile, recipe.training.compile_regional) == (True, False)
    assert recipe.backends.deepspeed["compile"] == {"deepcompile": True}
