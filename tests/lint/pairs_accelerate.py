"""For each rule about an Accelerate file, a pair of files or any text: a job that has the fault, and one without it."""

from __future__ import annotations

from typing import Any

from gradwire.targets.job import LaunchFacts, Versions
from tests.lint.pairs_deepspeed import ABSENT, ds

Job = dict[str, Any]


def ac(kind: str = "MULTI_GPU", more: str = "", *, processes: str | None = "8", **keys: str) -> Job:
    """A job of one Accelerate file that is valid but for what is given."""
    lines = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": f"'{kind}'",
        "num_processes": processes,
        **keys,
    }
    return {"accelerate": "".join(f"{key}: {value}\n" for key, value in lines.items() if value is not None) + more}


def plugin(text: str, kind: str = "DEEPSPEED", section: str = "deepspeed_config") -> Job:
    """A job with a section of its own."""
    return ac(kind, f"{section}:\n" + "".join(f"  {line}\n" for line in text.splitlines()), mixed_precision="bf16")


def fsdp(text: str) -> Job:
    """A job with an FSDP section."""
    return plugin(text, "FSDP", "fsdp_config")


SAGEMAKER = "compute_environment: AMAZON_SAGEMAKER\nec2_instance_type: ml.p3.2xlarge\niam_role_name: role\n"
FILE_ONLY = ac("DEEPSPEED", "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero3_init_flag: false\n")
FLAGGED = ac("DEEPSPEED", "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero3_init_flag: true\n")
ZERO2 = {"stage": 2, "overlap_comm": True}
TRAINER = {"per_device_train_batch_size": 2, "learning_rate": 1e-4, "max_grad_norm": 1.0, "bf16": True}

PAIRS: dict[str, tuple[Job, Job]] = {
    "AC101": (ac(gradient_accumulation_steps="4"), ac(main_process_port="29501")),
    "AC102": (fsdp("fsdp_backward_prefetch_policy: BACKWARD_PRE"), fsdp("fsdp_backward_prefetch: BACKWARD_PRE")),
    "AC103": (ac(mixed_precision="no"), ac(mixed_precision="'no'")),
    "AC104": (fsdp("fsdp_min_num_params: 1e8"), fsdp("fsdp_min_num_params: 100000000")),
    "AC105": (ac("NO", processes="1", gpu_ids="0"), ac("NO", processes="1", gpu_ids="'0'")),
    "AC106": ({"accelerate": "num_processes: 2\n"}, ac()),
    "AC107": (ac(fp16="true"), ac(mixed_precision="fp16")),
    "AC201": (ac("MULTI_CPU"), ac("MULTI_GPU")),
    "AC202": (ac(processes=None), ac("NO", processes=None)),
    "AC203": (
        ac(processes="9", num_machines="2", main_process_ip="10.0.0.1"),
        ac(processes="16", num_machines="2", main_process_ip="10.0.0.1"),
    ),
    "AC204": (
        ac(num_machines="2", machine_rank="2", main_process_ip="h"),
        ac(num_machines="2", machine_rank="1", main_process_ip="h"),
    ),
    "AC205": (ac(num_machines="2"), ac(num_machines="2", main_process_ip="10.0.0.1")),
    "AC206": (ac(gpu_ids="'0,1'"), ac(gpu_ids="'0,1'", processes="2")),
    "AC207": (plugin("zero_stage: 2", "MULTI_GPU"), plugin("zero_stage: 2", "DEEPSPEED")),
    "AC208": (ac(more="fp8_config:\n  backend: TE\n"), ac(more="fp8_config:\n  backend: TE\n", mixed_precision="fp8")),
    "AC209": (
        plugin("parallelism_config_dp_shard_size: 8\nparallelism_config_cp_size: 8", "FSDP", "parallelism_config"),
        ac("FSDP", "fsdp_config: {fsdp_version: 2}\nparallelism_config:\n  parallelism_config_dp_shard_size: 8\n"),
    ),
    "AC301": (plugin("deepspeed_config_file: ds.json"), FILE_ONLY),
    "AC302": (
        plugin("zero_stage: 3\noffload_optimizer_device: nvme\noffload_optimizer_nvme_path: /d"),
        plugin("zero_stage: 3\noffload_optimizer_device: cpu"),
    ),
    "AC303": (plugin("zero_stage: 2\noffload_param_device: cpu"), plugin("zero_stage: 3\noffload_param_device: cpu")),
    "AC304": (plugin("zero_stage: 2\ngradient_clipping: 0"), plugin("zero_stage: 2\ngradient_clipping: 0.5")),
    "AC305": (plugin("gradient_clipping: 1.0"), plugin("zero_stage: 2\ngradient_clipping: 1.0")),
    "AC306": (ac(more="deepspeed_config: ds.json\n"), FILE_ONLY),
    "AC307": (
        fsdp("fsdp_version: 2\nfsdp_sharding_strategy: SHARD_GRAD_OP"),
        fsdp("fsdp_version: 1\nfsdp_sharding_strategy: SHARD_GRAD_OP"),
    ),
    "AC308": (
        fsdp("fsdp_sync_module_states: false"),
        fsdp("fsdp_sync_module_states: false\nfsdp_cpu_ram_efficient_loading: false"),
    ),
    "AC309": (
        fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\nfsdp_transformer_layer_cls_to_wrap: [GPT2Block]"),
        fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\nfsdp_transformer_layer_cls_to_wrap: GPT2Block"),
    ),
    "AC310": (FILE_ONLY, FILE_ONLY | ds(ZERO2)),
    "PR101": (FILE_ONLY | ds(), FILE_ONLY | ds({"stage": 0})),
    "PR102": (
        ds(ZERO2, fp16={"enabled": True}) | {"facts": LaunchFacts(mixed_precision="bf16")},
        ds(ZERO2, bf16={"enabled": True}) | {"facts": LaunchFacts(mixed_precision="bf16")},
    ),
    "PR103": (FILE_ONLY | ds(ZERO2, bf16={"enabled": "auto"}), FILE_ONLY | ds(ZERO2, bf16={"enabled": True})),
    "PR104": (FLAGGED | ds(ZERO2), FLAGGED | ds({"stage": 3})),
    "PR105": (ac() | ds(ZERO2), FILE_ONLY | ds(ZERO2)),
    "PR106": (plugin("zero_stage: 2") | ds(ZERO2), FILE_ONLY | ds(ZERO2)),
    "PR107": (plugin("zero_stage: 3") | ds(ZERO2), plugin("zero_stage: 2") | ds(ZERO2)),
    "RD201": (ac(more="num_processes: 4\n"), ac()),
    "RD202": ({"deepspeed": '{"train_batch_size": 8, // all ranks\n}'}, {"deepspeed": '{"train_batch_size": 8}'}),
    "RD203": ({"deepspeed": '\ufeff{"train_batch_size": 8}'}, {"deepspeed": '{"train_batch_size": 8}'}),
    "TR101": (
        ds(ZERO2, gradient_clipping=0.5) | {"trainer": TRAINER},
        ds(ZERO2, gradient_clipping="auto") | {"trainer": TRAINER},
    ),
    "TR102": (
        ds(ZERO2, gradient_clipping=ABSENT) | {"trainer": TRAINER | {"max_grad_norm": 0.3}},
        ds(ZERO2, gradient_clipping="auto") | {"trainer": TRAINER | {"max_grad_norm": 0.3}},
    ),
    "TR103": (
        ds(ZERO2, scheduler={"type": "WarmupDecayLR", "params": {}})
        | {"trainer": TRAINER | {"lr_scheduler_type": "constant_with_warmup"}},
        ds(ZERO2) | {"trainer": TRAINER | {"lr_scheduler_type": "constant_with_warmup"}},
    ),
    "TR104": (
        ds(ZERO2, optimizer={"type": "AdamW", "params": {}}) | {"trainer": TRAINER | {"optim": "adafactor"}},
        ds(ZERO2, optimizer={"type": "AdamW", "params": {}}) | {"trainer": TRAINER | {"optim": "adamw_torch"}},
    ),
    "AC210": (ac(use_cpu="true"), ac("NO", processes="1", use_cpu="true")),
    "AC211": (
        ac("DEEPSPEED", num_machines="2", main_process_ip="10.0.0.1"),
        ac(
            "DEEPSPEED",
            "deepspeed_config:\n  deepspeed_multinode_launcher: standard\n",
            num_machines="2",
            main_process_ip="10.0.0.1",
        ),
    ),
    "TR105": (
        ds(ZERO2, scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 5}}) | {"trainer": TRAINER},
        ds(ZERO2, scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 5}})
        | {"trainer": TRAINER | {"warmup_steps": 5}},
    ),
    "AC212": (
        ac(more="dynamo_config: {dynamo_backend: EAGER, dynamo_mode: max-autotune}\n"),
        ac(more="dynamo_config: {dynamo_backend: INDUCTOR, dynamo_mode: max-autotune}\n"),
    ),
    "AC213": (
        {"accelerate": SAGEMAKER + "distributed_type: 'NO'\n"},
        {"accelerate": SAGEMAKER + "distributed_type: 'NO'\n", "versions": Versions(accelerate="1.10.1")},
    ),
    "TR207": (
        {"trainer": "output_dir: o\nlearning_rate: 1e-5\n"},
        {"trainer": "output_dir: o\nlearning_rate: 1.0e-5\n"},
    ),
    "TR206": ({"trainer": {"ddp_backend": "gloo"}}, {"trainer": {"ddp_backend": "gloo", "use_cpu": True}}),
    "TR205": ({"trainer": TRAINER | {"evaluation_strategy": "no"}}, {"trainer": TRAINER | {"eval_strategy": "no"}}),
    "AC311": (
        fsdp("fsdp_transformer_layer_cls_to_wrap: GPT2Block") | {"facts": LaunchFacts(model_class="BertForMaskedLM")},
        fsdp("fsdp_transformer_layer_cls_to_wrap: BertLayer") | {"facts": LaunchFacts(model_class="BertForMaskedLM")},
    ),
    "TR201": ({"trainer": {"fsdp": "full_shard", "deepspeed": "ds.json"}}, {"trainer": {"deepspeed": "ds.json"}}),
    "TR202": ({"trainer": {"fp16": True, "bf16": True}}, {"trainer": {"fp16": False, "bf16": True}}),
    "TR203": (
        {
            "trainer": {
                "gradient_accumulation_steps": 4,
                "accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 4}},
            }
        },
        {"trainer": {"gradient_accumulation_steps": 4, "accelerator_config": {"split_batches": False}}},
    ),
    "TR204": (
        {
            "trainer": {"per_device_train_batch_size": 8, "accelerator_config": {"split_batches": True}},
            "facts": LaunchFacts(num_processes=3),
        },
        {
            "trainer": {"per_device_train_batch_size": 9, "accelerator_config": {"split_batches": True}},
            "facts": LaunchFacts(num_processes=3),
        },
    ),
}
