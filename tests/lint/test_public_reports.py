"""Small cases from public bug reports that are about configuration files, each with its right answer."""

from __future__ import annotations

from typing import Any

import pytest

from gradwire.lint.finding import Finding
from gradwire.targets.job import LaunchFacts, Versions
from tests.lint.linting import codes, lint
from tests.lint.pairs_accelerate import FILE_ONLY, TRAINER, ZERO2, ac, fsdp, plugin
from tests.lint.pairs_deepspeed import ABSENT, ds, warmup


def _found(job: dict[str, Any], code: str) -> Finding:
    return next(finding for finding in lint(**job) if finding.code == code)


def test_256_samples_do_not_divide_over_7_ranks_of_2() -> None:
    """OpenRLHF/OpenRLHF#346."""
    job = ds(train_batch_size=256, gradient_accumulation_steps=ABSENT) | {"facts": LaunchFacts(num_processes=7)}
    finding = _found(job, "DS603")
    assert finding.severity == "error"
    assert "252 or 266" in finding.fix
    assert finding.url == "https://github.com/OpenRLHF/OpenRLHF/issues/346"


def test_a_triple_says_at_which_world_size_it_is_valid() -> None:
    """bigcode-project/starcoder#41, deepspeedai/DeepSpeed#3228: 256 = 4 x 8 x 8."""
    finding = _found(ds(train_batch_size=256, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=8), "DS604")
    assert "valid at 8 data-parallel ranks only" in finding.effect
    assert finding.url == "https://github.com/deepspeedai/DeepSpeed/issues/3228"
    assert finding.severity == "note"


def test_one_batch_size_alone_is_split_over_the_ranks() -> None:
    """deepspeedai/DeepSpeed#17: 32 on 4 ranks is fine, 100 on 8 is not."""
    alone = ds(train_micro_batch_size_per_gpu=ABSENT, gradient_accumulation_steps=ABSENT, train_batch_size=32)
    assert "DS603" not in codes(lint(**alone, facts=LaunchFacts(num_processes=4)))
    alone["deepspeed"]["train_batch_size"] = 100
    assert "DS603" in codes(lint(**alone, facts=LaunchFacts(num_processes=8)))


def test_accumulation_of_the_trainer_and_of_the_file_must_agree() -> None:
    """yuvalkirstain/PickScore#18, huggingface/accelerate#3369, huggingface/accelerate#1970."""
    file = ds(ZERO2, gradient_accumulation_steps=16)
    assert _found(file | {"trainer": TRAINER | {"gradient_accumulation_steps": 1}}, "TR101").severity == "error"
    without = ds(ZERO2, gradient_accumulation_steps=ABSENT)
    lost = _found(without | {"trainer": TRAINER | {"gradient_accumulation_steps": 16}}, "TR102")
    assert "gradients are not accumulated" in lost.effect
    assert lost.url == "https://github.com/huggingface/accelerate/issues/1970"


def test_accumulation_in_the_accelerate_file_without_deepspeed_is_refused() -> None:
    """starVLA/starVLA#86: a count that does not reach the Accelerator has no effect."""
    finding = _found(ac(gradient_accumulation_steps="2"), "AC101")
    assert "Accelerator()" in finding.fix


def test_a_batch_of_8_is_not_split_over_3_processes() -> None:
    """huggingface/accelerate#358."""
    arguments = {"per_device_train_batch_size": 8, "accelerator_config": {"split_batches": True}}
    finding = _found({"trainer": arguments, "facts": LaunchFacts(num_processes=3)}, "TR204")
    assert "9" in finding.fix


def test_a_schedule_is_counted_in_optimizer_steps() -> None:
    """deepspeedai/DeepSpeed#633."""
    finding = _found(ds(scheduler=warmup("WarmupCosineLR", total_num_steps=5)), "DS504")
    assert "optimizer steps" in finding.fix
    assert finding.url == "https://github.com/deepspeedai/DeepSpeed/issues/633"


def test_a_scheduler_in_the_file_replaces_that_of_the_trainer() -> None:
    """axolotl-ai-cloud/axolotl#909."""
    file = ds(ZERO2, scheduler=warmup("WarmupDecayLR", total_num_steps="auto", warmup_max_lr="auto"))
    finding = _found(file | {"trainer": TRAINER | {"lr_scheduler_type": "constant_with_warmup"}}, "TR103")
    assert finding.severity == "error"
    assert "the JSON wins" in finding.effect
    assert finding.url == "https://github.com/axolotl-ai-cloud/axolotl/issues/909"


def test_an_optimizer_without_a_scheduler_is_no_fault() -> None:
    """huggingface/transformers#24359, deepspeedai/DeepSpeedExamples#600: refused by old versions only."""
    optimizer = {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}
    assert codes(lint(**ds(ZERO2, optimizer=optimizer)), "error", "warning") == []


def test_a_typo_at_the_top_level_is_an_error_with_a_suggestion() -> None:
    """deepspeedai/DeepSpeed#653, #774, #1809."""
    finding = _found(ds(gradient_clipp1ng=1), "DS101")
    assert finding.severity == "error"
    assert "did you mean gradient_clipping?" in finding.message
    assert finding.url == "https://github.com/deepspeedai/DeepSpeed/issues/653"


def test_autos_that_the_trainer_fills_at_stage_3_only() -> None:
    """huggingface/transformers#16495."""
    keys = {
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
    }
    below = [each for each in lint(**ds({"stage": 2, **keys})) if each.code == "DS301"]
    assert [each.path.split(".")[1] for each in below] == [
        "stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold",
    ]
    assert {each.url for each in below} == {"https://github.com/huggingface/transformers/issues/16495"}
    assert "DS301" not in codes(lint(**ds({"stage": 3, **keys})))


def test_an_auto_that_needs_a_hidden_size_says_so() -> None:
    """huggingface/transformers#22176, #21342."""
    finding = _found(ds({"stage": 2, "reduce_bucket_size": "auto"}), "DS304")
    assert "hidden_size" in finding.message
    assert finding.url == "https://github.com/huggingface/transformers/issues/22176"


def test_adam_with_a_weight_decay_is_adamw() -> None:
    """deepspeedai/DeepSpeed#668, #5214."""
    finding = _found(ds(optimizer={"type": "Adam", "params": {"lr": 1e-3, "weight_decay": 0.01}}), "DS407")
    assert "adam_w_mode" in finding.fix
    assert finding.url == "https://github.com/deepspeedai/DeepSpeed/issues/668"
    true_adam = {"type": "Adam", "params": {"lr": 1e-3, "weight_decay": 0.01, "adam_w_mode": False}}
    assert "DS407" not in codes(lint(**ds(optimizer=true_adam)))


def test_clipping_that_nobody_wrote() -> None:
    """huggingface/transformers#37566, deepspeedai/DeepSpeed#7220: the default changed with 0.19.3."""
    silent = ds(gradient_clipping=ABSENT)
    assert "clips at 1.0" in _found(silent, "DS409").effect
    assert "does not clip" in _found(silent | {"versions": Versions(deepspeed="0.18.9")}, "DS411").effect


@pytest.mark.parametrize("other", ["fp16", "bf16"])
def test_two_precisions_are_found_before_the_launch(other: str) -> None:
    """huggingface/transformers#39849, shibing624/MedicalGPT#288."""
    wanted = "bf16" if other == "fp16" else "fp16"
    finding = _found(ds(ZERO2, **{other: {"enabled": True}}) | {"facts": LaunchFacts(mixed_precision=wanted)}, "PR102")
    assert "refuses to start" in finding.effect
    mirrored = _found(
        ds(ZERO2, **{wanted: {"enabled": False}}) | {"facts": LaunchFacts(mixed_precision=wanted)}, "PR102"
    )
    assert "fp32" in mirrored.effect


def test_parameters_are_not_offloaded_below_stage_3() -> None:
    """wenet-e2e/wenet#2499."""
    finding = _found(ds({"stage": 2, "offload_param": {"device": "cpu"}}), "DS202")
    assert finding.severity == "error"
    assert "nothing is offloaded" in finding.effect
    assert finding.url == "https://github.com/wenet-e2e/wenet/issues/2499"
    assert _found(plugin("zero_stage: 2\noffload_param_device: cpu"), "AC303").severity == "error"


def test_an_nvme_path_of_the_yaml_is_lost() -> None:
    """huggingface/accelerate pull request 1484."""
    finding = _found(plugin("zero_stage: 3\noffload_param_device: nvme\noffload_param_nvme_path: /nvme"), "AC302")
    assert '"none"' in finding.effect
    assert finding.url == "https://github.com/huggingface/accelerate/pull/1484"


def test_processes_are_counted_over_all_machines() -> None:
    """huggingface/accelerate#2521, #2818."""
    two = {"num_machines": "2", "main_process_ip": "10.0.0.1"}
    assert "AC203" not in codes(lint(**ac(processes="16", **two)))
    finding = _found(ac(processes="9", **two), "AC203")
    assert "write num_processes 10" in finding.fix
    assert finding.url == "https://github.com/huggingface/accelerate/issues/2521"


def test_machines_given_at_the_launch_count_before_the_file() -> None:
    """huggingface/accelerate#1217: check the effective number."""
    job = ac(processes="9", num_machines="1", main_process_ip="h")
    assert "AC203" not in codes(lint(**job))
    assert "AC203" in codes(lint(**job, facts=LaunchFacts(num_machines=2)))


def test_a_mesh_of_8_by_8_needs_64_processes() -> None:
    """pytorch/torchtitan#1184."""
    mesh = "parallelism_config:\n  parallelism_config_dp_shard_size: 8\n  parallelism_config_cp_size: 8\n"
    finding = _found(ac("FSDP", f"fsdp_config: {{fsdp_version: 2}}\n{mesh}"), "AC209")
    assert "needs 64 processes, and num_processes is 8" in finding.message
    assert finding.url == "https://github.com/pytorch/torchtitan/issues/1184"


def test_the_old_prefetch_key_of_both_posted_files_is_found() -> None:
    """huggingface/accelerate#1943, netease-youdao/BCEmbedding#66."""
    finding = _found(
        fsdp("fsdp_backward_prefetch_policy: BACKWARD_PRE\nfsdp_transformer_layer_cls_to_wrap: GPT2Block"), "AC102"
    )
    assert "nothing is prefetched" in finding.effect
    assert finding.edits and finding.url == "https://github.com/huggingface/accelerate/issues/1943"


@pytest.mark.parametrize(
    ("layer", "model", "found"),
    [
        ("GPT2Block", "BertModel", True),
        ("BertLayer", "XLMRobertaForSequenceClassification", True),
        ("XLMRobertaLayer", "XLMRobertaForSequenceClassification", False),
        ("GPT2Block", "GPT2LMHeadModel", False),
        ("LlamaDecoderLayer,LlamaRMSNorm", "LlamaForCausalLM", False),
    ],
)
def test_the_layers_to_wrap_are_those_of_the_model(layer: str, model: str, found: bool) -> None:
    """huggingface/accelerate#1943, netease-youdao/BCEmbedding#66: a layer class that the model has not."""
    job = fsdp(f"fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\nfsdp_transformer_layer_cls_to_wrap: {layer}") | {
        "facts": LaunchFacts(model_class=model)
    }
    assert ("AC311" in codes(lint(**job))) == found


def test_lightning_counts_micro_batches_itself() -> None:
    """Lightning-AI/pytorch-lightning#19891: it refuses the key that every other program wants."""
    file = ds(ZERO2, gradient_accumulation_steps=8)
    finding = _found(file | {"facts": LaunchFacts(program="lightning")}, "DS607")
    assert "accumulate_grad_batches" in finding.effect and finding.edits
    assert "DS607" not in codes(lint(**file))


def test_a_communication_hook_has_no_key_in_the_file() -> None:
    """huggingface/accelerate pull request 2841: hooks and their options exist in code only."""
    assert "DistributedDataParallelKwargs" in _found(ac(comm_hook="fp16"), "AC101").fix


def test_a_pair_that_agrees_has_no_error() -> None:
    assert codes(lint(**ds(ZERO2, bf16={"enabled": True}), **FILE_ONLY), "error", "warning") == []
