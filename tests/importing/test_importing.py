"""What becomes of each kind of key: carried, made explicit, kept, idle or refused."""

from __future__ import annotations

from typing import Any

import pytest

from gradwire.errors import CannotImport, UsageError
from gradwire.importing.engine import import_job
from gradwire.targets.job import LaunchFacts
from gradwire.targets.tree import walk
from tests.importing.importing import SOUND, import_, job

ZERO2_YAML = """
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 8
deepspeed_config:
  zero_stage: 2
  gradient_accumulation_steps: 4
"""
PAIR_YAML = """
distributed_type: DEEPSPEED
num_processes: 4
deepspeed_config: {deepspeed_config_file: ds.json, zero3_init_flag: false}
"""


def _with(**changes: Any) -> dict[str, Any]:
    return {**SOUND, **changes}


def test_a_deepspeed_file_becomes_a_recipe() -> None:
    recipe, entries, _ = import_(job(SOUND))
    training = recipe.training
    assert recipe.parallelism.data.strategy == "zero2"
    assert (training.batch_size_per_gpu, training.gradient_accumulation, training.num_gpus) == (4, 2, 2)
    assert (training.precision, training.optimizer, training.gradient_clip) == ("bf16-mixed", "AdamW", 1.0)
    assert (training.learning_rate, training.weight_decay) == (3e-4, 0.1)
    assert entries["optimizer.params.lr"].into == "training.learning_rate"
    assert (entries["gradient_clipping"].file, entries["gradient_clipping"].line) == ("ds.json", 4)


def test_a_hidden_default_is_written_out() -> None:
    """DeepSpeed clips at 1.0, does not overlap at stage 2, and reduces in buckets of half a billion elements."""
    config = {name: value for name, value in SOUND.items() if name != "gradient_clipping"}
    recipe, entries, text = import_(job(config))
    assert recipe.training.gradient_clip == 1.0
    assert entries["gradient_clipping"].outcome == "explicit"
    zero = recipe.backends.deepspeed["zero_optimization"]
    assert (zero["overlap_comm"], zero["reduce_bucket_size"]) == (False, 500_000_000)
    assert entries["zero_optimization.overlap_comm"].outcome == "explicit"
    assert "overlap_comm: false" in text


def test_clipping_that_is_off_stays_off() -> None:
    for off in (0, -1.0):
        recipe, _, _ = import_(job(_with(gradient_clipping=off)))
        assert recipe.training.gradient_clip is None


def test_adam_is_what_deepspeed_makes_of_it() -> None:
    """deepspeedai/DeepSpeed#668: Adam decays as AdamW does unless adam_w_mode is false."""
    params = {"lr": 1e-3, "weight_decay": 0.1}
    decoupled, entries, _ = import_(job(_with(optimizer={"type": "Adam", "params": params})))
    assert decoupled.training.optimizer == "AdamW"
    assert "as AdamW does" in str(entries["optimizer.type"].note)
    params["adam_w_mode"] = False
    coupled, _, _ = import_(job(_with(optimizer={"type": "Adam", "params": params})))
    assert coupled.training.optimizer == "Adam"


def test_the_adam_of_torch_decays_where_nothing_says_so() -> None:
    """With torch_adam, DeepSpeed's Adam is torch.optim.AdamW, whose weight decay is 0.01; its own has none."""
    for params, decay in (({"torch_adam": True}, 0.01), ({}, 0.0), ({"torch_adam": True, "adam_w_mode": False}, 0.0)):
        optimizer = {"type": "Adam", "params": {"lr": 1e-3, **params}}
        recipe, _, _ = import_(job(_with(optimizer=optimizer)))
        assert recipe.training.weight_decay == decay


def test_a_second_partition_larger_than_the_world_is_the_world() -> None:
    zero = {"stage": 3, "zero_hpz_partition_size": 8}
    recipe, _, _ = import_(job(_with(zero_optimization=zero)))
    assert recipe.parallelism.data.zero.secondary_partition_size == 8


def test_buckets_that_nothing_reads_are_idle() -> None:
    config = _with(zero_optimization={"stage": 1, "reduce_bucket_size": 10**6}, data_types={"grad_accum_dtype": "fp32"})
    recipe, entries, _ = import_(job(config))
    assert entries["zero_optimization.reduce_bucket_size"].outcome == "idle"
    assert "zero_optimization" not in recipe.backends.deepspeed or "reduce_bucket_size" not in str(
        recipe.backends.deepspeed
    )


def test_optimizer_parameters_may_be_null() -> None:
    recipe, _, _ = import_(job(_with(optimizer={"type": "AdamW", "params": None})))
    assert (recipe.training.learning_rate, recipe.training.weight_decay) == (1e-3, 0.0)


def test_what_a_recipe_has_no_word_for_is_kept_for_the_backend() -> None:
    zero = {"stage": 2, "round_robin_gradients": True, "reduce_bucket_size": 2e8}
    recipe, entries, _ = import_(job(_with(zero_optimization=zero, wall_clock_breakdown=True, steps_per_print=50)))
    kept = recipe.backends.deepspeed
    assert kept["wall_clock_breakdown"] is True and kept["steps_per_print"] == 50
    assert kept["zero_optimization"]["round_robin_gradients"] is True
    # A count that is written as a real number is the whole number that DeepSpeed makes of it.
    assert kept["zero_optimization"]["reduce_bucket_size"] == 200_000_000
    assert entries["zero_optimization.round_robin_gradients"].outcome == "kept"


def test_what_the_program_ignores_is_left_out_with_the_reason() -> None:
    zero = {"stage": 2, "sub_group_size": 10**8, "offload_param": {"device": "cpu"}}
    recipe, entries, _ = import_(job(_with(zero_optimization=zero, gradient_clipp1ng=3, pipeline={"stages": 4})))
    assert "offload_param" not in recipe.backends.deepspeed["zero_optimization"]
    for path, reason in (
        ("gradient_clipp1ng", "did you mean gradient_clipping?"),
        ("pipeline.stages", "argument of PipelineModule"),
        ("zero_optimization.sub_group_size", "it acts at stage 3, and this is stage 2"),
        ("zero_optimization.offload_param.device", "it acts at stage 3, and this is stage 2"),
    ):
        assert entries[path].outcome == "idle" and reason in str(entries[path].note), path


def test_what_a_recipe_cannot_say_is_refused_by_name_all_at_once() -> None:
    config = _with(optimizer={"type": "Lamb", "params": {"lr": 1e-3}}, gradient_allreduce_op="sum")
    with pytest.raises(CannotImport) as refused:
        import_job(job(config))
    assert refused.value.exit_code == 3
    named = [text.split(" = ")[0].split(" ") for text in refused.value.refused_keys]
    assert [path for _, path in named] == ["optimizer.type", "gradient_allreduce_op"]
    assert all(place.startswith("ds.json:") for place, _ in named)
    recipe, entries, _ = import_(job(config), allow_lossy=True)
    assert recipe.training.optimizer == "AdamW"
    assert entries["gradient_allreduce_op"].outcome == "refused"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"zero_optimization": {"stage": 2, "overlap_com": True}}, "zero_optimization.overlap_com"),
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage"),
        ({"amp": {"enabled": False}}, "amp: Apex AMP was removed in DeepSpeed 0.19.8"),
        (
            {"zero_optimization": {"stage": 3, "prefetch_bucket_size": 5, "stage3_prefetch_bucket_size": 6}},
            "zero_optimization.prefetch_bucket_size: it is another name",
        ),
        ({"train_batch_size": 7}, "train_batch_size: DeepSpeed refuses to start"),
        ({"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}}, "optimizer.params.max_grad_norm"),
        ({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_max_lr": 1e-4}}}, "takes no parameter"),
        ({"optimizer": {"type": "Lion", "params": {"lr": 1e-4, "use_triton": True}}}, "takes no parameter"),
    ],
)
def test_a_file_that_deepspeed_refuses_is_not_imported(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as refused:
        import_job(job(_with(**changes)))
    assert refused.value.exit_code == 2
    assert named in str(refused.value) and "ds.json:" in str(refused.value)


@pytest.mark.parametrize("value", ["2020-01-01", "2001-12-14t21:59:43.10-05:00", "!!binary aGk="])
def test_a_value_that_only_yaml_has_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="num_processes"):
        import_job(job(accelerate=f"distributed_type: MULTI_GPU\nnum_processes: {value}\n"))


def test_pure_bf16_is_told_from_mixed() -> None:
    pure = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    recipe, _, _ = import_(job(_with(bf16=pure)))
    assert recipe.training.precision == "bf16-true"


def test_half_precision_without_zero_is_refused() -> None:
    """A recipe's fp16-mixed is torch's autocast there: https://github.com/deepspeedai/DeepSpeed/issues/5151."""
    config = _with(zero_optimization={"stage": 0}, bf16={"enabled": False}, fp16={"enabled": True})
    with pytest.raises(CannotImport, match=r"fp16\.enabled = True"):
        import_job(job(config))
    recipe, _, _ = import_(job(config), allow_lossy=True)
    assert recipe.training.precision == "fp16-mixed"


def test_autos_are_filled_from_the_trainers_arguments() -> None:
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "train_batch_size": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "betas": "auto"}},
    }
    trainer = {
        "per_device_train_batch_size": 3,
        "gradient_accumulation_steps": 5,
        "learning_rate": 1e-4,
        "adam_beta2": 0.95,
        "bf16": True,
        "max_grad_norm": 0.5,
        "gradient_checkpointing": True,
        "output_dir": "out",
    }
    facts = LaunchFacts(num_processes=4, hidden_size=64)
    recipe, entries, _ = import_(job(config, trainer=trainer, facts=facts))
    training = recipe.training
    assert (training.batch_size_per_gpu, training.gradient_accumulation, training.num_gpus) == (3, 5, 4)
    assert (training.learning_rate, training.betas, training.gradient_clip) == (1e-4, [0.9, 0.95], 0.5)
    assert training.precision == "bf16-mixed" and training.gradient_checkpointing
    assert recipe.backends.deepspeed["zero_optimization"]["reduce_bucket_size"] == 64 * 64
    assert recipe.backends.deepspeed["zero_optimization"]["stage3_prefetch_bucket_size"] == int(0.9 * 64 * 64)
    assert entries["output_dir"].outcome == "idle"
    assert entries["per_device_train_batch_size"].outcome == "carried"


def test_what_is_not_known_is_assumed_and_listed() -> None:
    config = _with(train_micro_batch_size_per_gpu="auto", gradient_accumulation_steps="auto")
    imported = import_job(job(config, facts=LaunchFacts()))
    assumed = {each.path: each for each in imported.assumptions}
    assert assumed["training.batch_size_per_gpu"].value == 8
    assert "--trainer-arguments" in assumed["training.batch_size_per_gpu"].why
    assert "--num-processes" in assumed["training.num_gpus"].why
    assert "model" in assumed and "training.seed" in assumed


def test_the_only_world_size_that_fits_is_taken() -> None:
    recipe, entries, _ = import_(job(_with(train_batch_size=64), facts=LaunchFacts()))
    assert recipe.training.num_gpus == 8
    assert entries["train_batch_size"].into == "training.num_gpus"


def test_the_words_for_lowering_name_the_device_that_the_files_leave_open() -> None:
    """So that they come to the same on a machine without it, where pinned memory and fp16 would be refused."""
    assert import_job(job(SOUND)).lower_options == ("--backend", "deepspeed", "--device", "cuda")


def test_an_accelerate_file_with_deepspeed_settings() -> None:
    imported = import_job(job(accelerate=ZERO2_YAML))
    recipe, entries, _ = import_(job(accelerate=ZERO2_YAML))
    assert imported.lower_options == ("--backend", "accelerate")
    assert recipe.parallelism.data.strategy == "zero2"
    assert (recipe.training.num_gpus, recipe.training.gradient_accumulation) == (8, 4)
    assert (recipe.training.precision, recipe.training.device) == ("bf16-mixed", "cuda")
    # Accelerate's prepare() writes 1.0 where the file says nothing.
    assert recipe.training.gradient_clip == 1.0
    assert entries["deepspeed_config.zero_stage"].into == "parallelism.data.strategy"
    assert entries["mixed_precision"].into == "training.precision"


@pytest.mark.parametrize(("backend", "name"), [("te", "transformer-engine"), ("AO", "torchao")])
def test_fp8_is_told_by_what_runs_it(backend: str, name: str) -> None:
    yaml = "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: fp8\n"
    recipe, _, _ = import_(job(accelerate=f"{yaml}fp8_config: {{fp8_backend: {backend}}}\n"))
    assert (recipe.training.precision, recipe.training.fp8) == ("bf16-mixed", name)
    with pytest.raises(CannotImport, match="mixed_precision = 'fp8'"):
        import_job(job(accelerate=yaml))


def test_a_number_in_the_place_of_a_name_is_taken_under_a_key_without_its_prefix() -> None:
    text = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  {}sharding_strategy: 2\n"
    recipes = [import_(job(accelerate=text.format(prefix)))[0] for prefix in ("fsdp_", "")]
    assert recipes[0] == recipes[1] and recipes[0].parallelism.data.fsdp.reshard_after_forward is False


@pytest.mark.parametrize("word", ["true", "false", "no"])
def test_what_a_tpu_alone_reads_keeps_nothing_from_being_imported(word: str) -> None:
    _, entries, _ = import_(job(accelerate=f"distributed_type: MULTI_GPU\nnum_processes: 2\ndowncast_bf16: {word}\n"))
    assert entries["downcast_bf16"].outcome == "idle"


def test_a_section_sets_arguments_of_the_launcher_that_it_does_not_know() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  num_processes: 4\nnum_processes: 2\n"
    recipe, entries, _ = import_(job(accelerate=text))
    assert recipe.training.num_gpus == 4
    assert entries["deepspeed_config.num_processes"].into == "training.num_gpus"
    assert entries["num_processes"].outcome == "idle"


def test_the_micro_batch_is_in_the_global_one_that_is_filled_in() -> None:
    sizes = {"train_batch_size": "auto", "gradient_accumulation_steps": 32}
    files = {key: value for key, value in SOUND.items() if key != "train_micro_batch_size_per_gpu"} | sizes
    arguments = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 32, "bf16": True}
    recipe, _, _ = import_(job(files, trainer=arguments | {"learning_rate": 3e-4, "weight_decay": 0.1}))
    assert (recipe.training.batch_size_per_gpu, recipe.training.gradient_accumulation) == (3, 32)


def test_a_warm_up_that_deepspeed_does_not_know_is_taken_for_the_logarithmic_one() -> None:
    params = {"warmup_num_steps": 10, "warmup_max_lr": 3e-4, "warmup_type": "cosine"}
    _, entries, _ = import_(job(SOUND | {"scheduler": {"type": "WarmupLR", "params": params}}))
    assert "taken for 'log'" in (entries["scheduler.params.warmup_type"].note or "")


def test_autocast_beside_zero_is_refused_for_what_it_is() -> None:
    """Not for what keeps 16-bit weights from stage 0."""
    autocast = {"enabled": True, "dtype": "bfloat16"}
    with pytest.raises(CannotImport) as error:
        import_(job(SOUND | {"bf16": {"enabled": False}, "torch_autocast": autocast}))
    assert "torch_autocast" in str(error.value) and "without ZeRO" not in str(error.value)


def test_who_recomputes_activations_is_said() -> None:
    text = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_activation_checkpointing: true}\n"
    recipe, entries, _ = import_(job(accelerate=text))
    assert recipe.training.gradient_checkpointing
    assert "itself" in str(entries["fsdp_config.fsdp_activation_checkpointing"].note)


def test_a_pair_of_files_is_one_job() -> None:
    recipe, entries, _ = import_(job(_with(zero_optimization={"stage": 3}), accelerate=PAIR_YAML))
    assert (recipe.parallelism.data.strategy, recipe.training.num_gpus) == ("zero3", 4)
    assert recipe.training.optimizer == "AdamW"
    assert recipe.backends.accelerate["deepspeed_config"] == {"zero3_init_flag": False}
    assert entries["deepspeed_config.zero3_init_flag"].outcome == "kept"


def test_a_pair_that_leaves_to_the_trainer_what_it_alone_fills_is_for_a_trainer() -> None:
    text = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {deepspeed_config_file: ds.json}\n"
    optimizer = {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")}
    recipe, entries, _ = import_(job(SOUND | {"optimizer": optimizer}, accelerate=text))
    assert (recipe.training.learning_rate, recipe.training.betas) == (5e-5, [0.9, 0.999])
    assert "Trainer" in (entries["optimizer.params.lr"].note or "")


def test_files_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(UsageError, match=r"is not read: accelerate\.yaml starts distributed_type MULTI_GPU"):
        import_job(job(SOUND, accelerate="distributed_type: MULTI_GPU\nnum_processes: 2\n"))
    with pytest.raises(UsageError, match=r"deepspeed_config_file: it names ds\.json, which is not beside it"):
        import_job(job(accelerate=PAIR_YAML))


def test_several_machines_are_said_when_the_recipe_is_lowered() -> None:
    yaml = "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 16\nmain_process_ip: 10.0.0.1\n"
    imported = import_job(job(accelerate=yaml + "main_process_port: 1234\nmachine_rank: 1\n"))
    assert imported.lower_options == ("--backend", "accelerate", "--num-nodes", "2", "--rdzv", "10.0.0.1:1234")
    entries = {entry.path: entry for entry in imported.entries}
    assert entries["main_process_ip"].into == "--rdzv"
    assert entries["machine_rank"].into == "--node-rank"


def test_every_written_key_has_one_entry() -> None:
    one = job(_with(zero_optimization={"stage": 2, "sub_group_size": 5}, comment="x"), accelerate=PAIR_YAML)
    entries = [(entry.file, entry.line, entry.column) for entry in import_job(one).entries if entry.file]
    written = [
        (document.source, *document.place(member.start))
        for document in (one.deepspeed, one.accelerate)
        if document is not None
        for _, member in walk(document.root)
        if not member.node.members
    ]
    assert sorted(entries) == sorted(written)


def test_a_schedule_that_accelerate_cannot_keep_comes_as_the_nearest_one() -> None:
    late = {"total_num_steps": 100, "warmup_num_steps": 10, "warmup_type": "linear", "warmup_max_lr": 2e-4}
    one = job(_with(scheduler={"type": "WarmupDecayLR", "params": late}), accelerate=PAIR_YAML)
    with pytest.raises(CannotImport, match=r"the nearest.*scheduler\.type: linear.*warmup_steps: 10"):
        import_job(one)
    recipe, entries, _ = import_(one, allow_lossy=True)
    schedule = recipe.training.scheduler
    assert (schedule.type, schedule.warmup_steps, schedule.total_steps) == ("linear", 10, 100)
    assert recipe.training.learning_rate == 2e-4
    assert entries["scheduler.type"].outcome == "refused"
