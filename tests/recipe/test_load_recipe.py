"""Precedence, origins, overrides, and the files that cannot be a recipe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradwire.errors import InvalidRecipe, UsageError
from gradwire.recipe import Override, check_device, load_recipe, parse_set
from gradwire.recipe.yaml_text import MAX_DEPTH


def write(folder: Path, text: str, name: str = "recipe.yaml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def message_of(reference: str, *settings: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_recipe(reference, overrides=[parse_set(setting) for setting in settings])
    return str(caught.value)


def test_command_line_beats_file_beats_preset_beats_default(tmp_path: Path) -> None:
    path = write(tmp_path, "extends: cpu/ddp\ntraining:\n  seed: 5\n  max_steps: 40\n")
    loaded = load_recipe(path, overrides=[parse_set("training.max_steps=50")])
    training, origins = loaded.recipe.training, loaded.origins
    assert (training.max_steps, origins["training.max_steps"].layer) == (50, "command line")
    assert (training.seed, origins["training.seed"].layer) == (5, "file")
    assert (training.learning_rate, origins["training.learning_rate"].layer) == (2e-3, "preset")
    assert (training.momentum, origins["training.momentum"].layer) == (0.0, "default")


def test_origin_says_source_line_and_column(tmp_path: Path) -> None:
    path = write(tmp_path, "extends: cpu/ddp\ntraining:\n  seed: 5\n")
    origins = load_recipe(path, overrides=[parse_set("training.max_steps=50")]).origins
    assert (origins["training.seed"].source, origins["training.seed"].line, origins["training.seed"].column) == (
        path,
        3,
        9,
    )
    assert origins["training.max_steps"].source == "--set training.max_steps=50"
    assert origins["training.max_steps"].line is None
    assert origins["training.learning_rate"].source == "preset cpu/ddp"
    assert origins["training.momentum"].source == "schema default"


def test_every_leaf_has_an_origin() -> None:
    origins = load_recipe("cpu/pipeline").origins
    assert {"extends", "model.family", "parallelism.pipeline.chunks", "training.betas", "backends.deepspeed"} <= set(
        origins
    )
    assert "parallelism.pipeline" not in origins


def test_the_name_is_the_presets_or_the_files(tmp_path: Path) -> None:
    assert load_recipe("cpu/ddp").name == "cpu/ddp"
    assert load_recipe(write(tmp_path, "extends: cpu/ddp\n", "mine.yaml")).name == "mine"


def test_a_later_override_wins() -> None:
    overrides = [parse_set("training.seed=1"), parse_set("training.seed=2")]
    assert load_recipe("cpu/ddp", overrides=overrides).recipe.training.seed == 2


def test_override_values_are_yaml() -> None:
    overrides = [
        parse_set("training.learning_rate=3e-4"),
        parse_set("training.betas=[0.9, 0.95]"),
        parse_set("training.gradient_clip=null"),
        parse_set("model={layers: 2, sequence_length: 64}"),
        parse_set("summary=a = b: c".replace(": ", ":")),
    ]
    recipe = load_recipe("cpu/ddp", overrides=overrides).recipe
    assert recipe.training.learning_rate == 3e-4
    assert recipe.training.betas == [0.9, 0.95]
    assert recipe.training.gradient_clip is None
    assert recipe.model is not None
    assert (recipe.model.layers, recipe.model.hidden_size) == (2, 64)
    assert recipe.summary == "a = b:c"


def test_unknown_key_of_an_override_names_the_option() -> None:
    text = message_of("cpu/ddp", "training.maxsteps=5", "overlap.bucket_cap_mb=1")
    assert "--set training.maxsteps=5 training.maxsteps: unknown key (did you mean max_steps?)" in text
    assert "--set overlap.bucket_cap_mb=1 overlap: unknown key (overlap belongs under communication)" in text


def test_wrong_value_of_an_override_names_the_option() -> None:
    assert message_of("cpu/ddp", "training.max_steps=many").startswith(
        "--set training.max_steps=many training.max_steps:"
    )


def test_syntax_error_in_an_override_names_the_option() -> None:
    assert message_of("cpu/ddp", "training.betas=[0.9").startswith("--set training.betas=[0.9: ")


def test_option_with_its_own_name_is_named() -> None:
    with pytest.raises(InvalidRecipe, match=r"^--num-gpus 0 training\.num_gpus: 0 is too small; at least 1$"):
        load_recipe("cpu/ddp", overrides=[Override(path="training.num_gpus", text="0", option="--num-gpus")])


def test_rules_see_the_final_number_of_processes() -> None:
    overrides = [
        parse_set("parallelism.pipeline.stages=4"),
        Override(path="training.num_gpus", text="3", option="--num-gpus"),
    ]
    with pytest.raises(InvalidRecipe, match=r"4 stages do not divide 3 processes.*nearest num_gpus: 4"):
        load_recipe("cpu/pipeline", overrides=overrides)


def test_extends_is_not_overridden() -> None:
    assert "cannot be overridden" in message_of("cpu/ddp", "extends=zero1")


@pytest.mark.parametrize("argument", ["", "seed", "=5", "training..seed=5", ".seed=5", "training.=5", "a.\udcff=5"])
def test_malformed_set_is_refused(argument: str) -> None:
    with pytest.raises(UsageError, match="write KEY=VALUE"):
        parse_set(argument)


def test_missing_file_and_folder_and_unknown_preset(tmp_path: Path) -> None:
    assert "no such file" in message_of(str(tmp_path / "none.yaml"))
    assert "is a folder" in message_of(str(tmp_path))
    assert "did you mean cpu/ddp?" in message_of("cpu/dpd")
    assert "'..'" in message_of("../cpu/ddp")
    assert "is a group of presets" in message_of("cpu")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "extends: cpu/ddp\n")
    Path(path).chmod(0)
    assert "no permission" in message_of(path)


def test_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    assert "larger than 256 KiB" in message_of(str(path))


def test_endless_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in ("/dev/zero", str(tmp_path / "pipe.yaml")):
        assert "is not a regular file" in message_of(path)
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(2**30)
    assert "larger than 256 KiB" in message_of(str(tmp_path / "large.yaml"))


@pytest.mark.parametrize("opening", ["[", "{", "- ", "{a: ", "[{"])
def test_bottomless_nesting_is_refused(tmp_path: Path, opening: str) -> None:
    path = write(tmp_path, "a: " * (opening != "- ") + opening * 60_000)
    assert f"nested deeper than {MAX_DEPTH} levels" in message_of(path)


def test_a_circle_of_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "extends: two.yaml\n", "one.yaml")
    write(tmp_path, "extends: one.yaml\n", "two.yaml")
    assert "goes in a circle" in message_of(str(tmp_path / "one.yaml"))


def test_a_long_chain_is_refused(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path, f"extends: r{number + 1}.yaml\n", f"r{number}.yaml")
    assert "a chain of more than 16 recipes" in message_of(str(tmp_path / "r0.yaml"))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("summary: secret\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    path = write(tmp_path / "inner", "extends: link.yaml\n")
    assert "outside the recipe's own folder" in message_of(path)


def test_the_beginning_of_presets_names_leads_to_all_of_them() -> None:
    assert "did you mean h100-8-overlap or h100-8-powersgd?" in message_of("h100-8")


def test_names_that_no_file_can_have_are_refused(tmp_path: Path) -> None:
    long = "x" * 5000
    assert "neither a preset nor a file" in message_of(long)
    assert "cannot be read" in message_of(f"{long}.yaml")
    assert "no such file beside" in message_of(write(tmp_path, f"extends: {long}.yaml\n"))


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "b.yaml")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "a.yaml")
    assert "cannot be read" in message_of(str(tmp_path / "a.yaml"))
    assert "no such file beside" in message_of(write(tmp_path, "extends: a.yaml\n"))


def test_faults_of_an_extended_file_name_that_file(tmp_path: Path) -> None:
    write(tmp_path, "training:\n  sed: 1\n", "base.yaml")
    text = message_of(write(tmp_path, "extends: base.yaml\ntraining:\n  max_step: 3\n"))
    assert f"{tmp_path}/base.yaml:2:3 training.sed: unknown key (did you mean seed?)" in text
    assert f"{tmp_path}/recipe.yaml:3:3 training.max_step: unknown key (did you mean max_steps?)" in text


def test_a_rule_points_at_the_value_written_last() -> None:
    text = message_of("cpu/powersgd", "training.max_steps=2")
    assert "--set training.max_steps=2 training.max_steps: PowerSGD starts at step 2" in text


def test_device_rules_wait_for_the_device(tmp_path: Path) -> None:
    path = write(tmp_path, "training:\n  precision: fp16-mixed\n")
    loaded = load_recipe(path)
    check_device(loaded, "cuda")
    with pytest.raises(InvalidRecipe, match=r"recipe.yaml:2:14 training.precision: fp16-mixed does not train on cpu"):
        check_device(loaded, "cpu")
    with pytest.raises(InvalidRecipe, match="fp16-mixed does not train on cpu"):
        load_recipe(path, overrides=[parse_set("training.device=cpu")])


def test_scripted_overrides_of_the_tiny_preset_are_valid() -> None:
    for settings in (
        ["communication.compression.method=powersgd"],
        ["communication.overlap.bucket_cap_mb=50"],
        ["communication.compression.method=fp16", "training.max_steps=5"],
        ["training.seed=1", "training.max_steps=10"],
    ):
        load_recipe("cpu/ddp", overrides=[parse_set(setting) for setting in settings])
    load_recipe("cpu/powersgd", overrides=[parse_set("communication.compression.method=none")])
