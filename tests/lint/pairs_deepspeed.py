"""For each rule about a DeepSpeed file: one that has the fault, and the same file without it."""

from __future__ import annotations

from typing import Any

from gradwire.targets.job import LaunchFacts, Versions

Job = dict[str, Any]


def ds(zero: Any = None, **keys: Any) -> Job:
    """A job of one DeepSpeed file that is valid but for what is given."""
    base: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
    }
    config = base | ({"zero_optimization": zero} if zero is not None else {}) | keys
    return {"deepspeed": {key: value for key, value in config.items() if value is not ABSENT}}


ABSENT = object()
ADAMW = {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}


def optimizer(kind: str | None, **params: Any) -> dict[str, Any]:
    """An optimizer section."""
    return ({} if kind is None else {"type": kind}) | {"params": params}


def warmup(kind: str = "WarmupLR", **params: Any) -> dict[str, Any]:
    """A scheduler section with a linear warm-up."""
    return {"type": kind, "params": {"warmup_type": "linear", "warmup_num_steps": 10} | params}


PAIRS: dict[str, tuple[Job, Job]] = {
    "DS101": (ds(gradient_clipp1ng=1), ds(gradient_clipping=1)),
    "DS102": (ds({"stage": 2, "overlap_com": True}), ds({"stage": 2, "overlap_comm": True})),
    "DS103": (ds(amp={"enabled": False}), ds(fp16={"enabled": True})),
    "DS104": (ds({"stage": 2, "cpu_offload": True}), ds({"stage": 2, "offload_optimizer": {"device": "cpu"}})),
    "DS105": (ds({"stage": 2, "reduce_bucket_size": 0.5}), ds({"stage": 2, "reduce_bucket_size": 5e8})),
    "DS106": (ds({"stage": "2"}), ds({"stage": 2})),
    "DS107": (ds(pipeline={"stages": 4}), ds(pipeline={"activation_checkpoint_interval": 1})),
    "DS108": (ds(True), ds({"stage": 1})),
    "DS109": (
        ds({"stage": 3, "prefetch_bucket_size": 5, "stage3_prefetch_bucket_size": 6}),
        ds({"stage": 3, "prefetch_bucket_size": 5, "stage3_prefetch_bucket_size": "auto"}),
    ),
    "DS201": (ds({"stage": 2, "stage3_max_live_parameters": 5}), ds({"stage": 3, "stage3_max_live_parameters": 5})),
    "DS202": (
        ds({"stage": 2, "offload_param": {"device": "cpu"}}),
        ds({"stage": 3, "offload_param": {"device": "cpu"}}),
    ),
    "DS203": (
        ds({"stage": 0, "offload_optimizer": {"device": "cpu"}}),
        ds({"stage": 1, "offload_optimizer": {"device": "cpu"}}),
    ),
    "DS204": (
        ds({"stage": 3, "offload_param": {"device": "nvme"}}),
        ds({"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/d"}}),
    ),
    "DS205": (
        ds({"stage": 3, "offload_param": {"device": "cpu", "buffer_count": 6}}),
        ds({"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/d", "buffer_count": 6}}),
    ),
    "DS206": (
        ds(aio={"block_size": 1024}),
        ds({"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/d"}}, aio={"block_size": 1024}),
    ),
    "DS207": (ds(aio={"use_gds": True}), ds(aio={"use_gds": False})),
    "DS208": (
        ds(activation_checkpointing={"cpu_checkpointing": True}),
        ds(activation_checkpointing={"cpu_checkpointing": False}),
    ),
    "DS209": (
        ds({"stage": 3, "zero_hpz_partition_size": 3}) | {"facts": LaunchFacts(num_processes=8)},
        ds({"stage": 3, "zero_hpz_partition_size": 4}) | {"facts": LaunchFacts(num_processes=8)},
    ),
    "DS210": (
        ds({"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}),
        ds({"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}),
    ),
    "DS211": (
        ds({"stage": 2}, prescale_gradients=True),
        ds({"stage": 2, "reduce_scatter": False}, prescale_gradients=True),
    ),
    "DS212": (
        ds(data_efficiency={"data_sampling": {"dynamic_batching": {"enabled": True}}}),
        ds(data_efficiency={"data_sampling": {"dynamic_batching": {"enabled": True, "max_tokens": 64}}}),
    ),
    "DS213": (
        ds({"stage": 2, "compute_grad_norm": False}),
        ds({"stage": 2, "compute_grad_norm": False}, gradient_clipping=0),
    ),
    "DS214": (
        ds(
            {"stage": 1, "reduce_bucket_size": 1000000},
            bf16={"enabled": True},
            data_types={"grad_accum_dtype": "fp32"},
        ),
        ds({"stage": 1, "reduce_bucket_size": 1000000}, bf16={"enabled": True}),
    ),
    "DS215": (
        ds(tensor_parallel={"autotp_size": 3}) | {"facts": LaunchFacts(num_processes=8)},
        ds(tensor_parallel={"autotp_size": 2}) | {"facts": LaunchFacts(num_processes=8)},
    ),
    "DS216": (ds({"stage": 3}, compile={"deepcompile": True}), ds({"stage": 3}, compile={"deepcompile": False})),
    "DS301": (
        ds({"stage": 3, "stage3_max_live_parameters": "auto"}),
        ds({"stage": 3, "stage3_prefetch_bucket_size": "auto"}),
    ),
    "DS302": (ds(steps_per_print="auto"), ds(steps_per_print=10)),
    "DS303": (ds(gradient_clipping="auto"), ds(gradient_clipping=0.5)),
    "DS304": (ds({"stage": 2, "reduce_bucket_size": "auto"}), ds({"stage": 2, "reduce_bucket_size": 1000000})),
    "DS401": (ds(optimizer=optimizer("OneBitAdam", lr=1e-3)), ds(optimizer=ADAMW)),
    "DS402": (ds(optimizer=optimizer(None, lr=1e-3)), ds(optimizer=ADAMW)),
    "DS403": (ds(optimizer=optimizer("AdamW", lr=1e-3, max_grad_norm=1.0)), ds(optimizer=ADAMW)),
    "DS404": (
        ds(optimizer=optimizer("AdamW", lr=1e-3, beta=0.9)),
        ds(optimizer=optimizer("AdamW", lr=1e-3, betas=[0.9, 0.95])),
    ),
    "DS405": (
        ds(optimizer=optimizer("AdamW", amsgrad=True)),
        ds(optimizer=optimizer("AdamW", amsgrad=True, torch_adam=True)),
    ),
    "DS406": (
        ds({"stage": 1}, optimizer=optimizer("SGD", lr=0.1)),
        ds({"stage": 1}, optimizer=optimizer("SGD", lr=0.1), zero_allow_untested_optimizer=True),
    ),
    "DS407": (ds(optimizer=optimizer("Adam", weight_decay=0.01)), ds(optimizer=optimizer("Adam", weight_decay=0))),
    "DS408": (ds(optimizer=optimizer("AdamW", lr=1e-4)), ds(optimizer=ADAMW)),
    "DS409": (ds(gradient_clipping=ABSENT), ds(gradient_clipping=0)),
    "DS410": (ds(gradient_clipping=-1), ds(gradient_clipping=0)),
    "DS411": (
        ds(gradient_clipping=ABSENT) | {"versions": Versions(deepspeed="0.19.2")},
        ds(gradient_clipping=ABSENT) | {"versions": Versions(deepspeed="0.19.3")},
    ),
    "DS412": (
        ds(optimizer=optimizer("AdamW", lr=1e-4, torch_adam=True, weight_decay=-0.1)),
        ds(optimizer=optimizer("AdamW", lr=1e-4, torch_adam=True, weight_decay=0.1)),
    ),
    "DS413": (
        ds(optimizer=optimizer("SGD", lr=0.1, nesterov=True)),
        ds(optimizer=optimizer("SGD", lr=0.1, nesterov=True, momentum=0.9)),
    ),
    "DS414": (ds(optimizer=optimizer("LBFGS", lr=1.0)), ds(optimizer=optimizer("RMSprop", lr=1.0))),
    "DS415": (ds(steps_per_print=0), ds(steps_per_print=10)),
    "DS501": (ds(scheduler={"type": "WarmupLr", "params": {}}), ds(scheduler=warmup("WarmupLR"))),
    "DS502": (
        ds(scheduler=warmup("WarmupDecayLR", warmup_max_lr=1e-4)),
        ds(scheduler=warmup("WarmupDecayLR", warmup_max_lr=1e-4, total_num_steps=20)),
    ),
    "DS503": (ds(scheduler=warmup(warmup_num_steps=0)), ds(scheduler=warmup(warmup_num_steps=1))),
    "DS504": (
        ds(scheduler=warmup("WarmupCosineLR", total_num_steps=5)),
        ds(scheduler=warmup("WarmupCosineLR", total_num_steps=50)),
    ),
    "DS505": (ds(scheduler={"type": "WarmupLR", "params": {}}), ds(scheduler=warmup())),
    "DS506": (
        ds(optimizer=ADAMW, scheduler=warmup("WarmupDecayLR", total_num_steps=20)),
        ds(optimizer=ADAMW, scheduler=warmup("WarmupDecayLR", total_num_steps=20, warmup_max_lr=1e-4)),
    ),
    "DS507": (
        ds(optimizer=ADAMW, scheduler=warmup(warmup_max_lr=1e-2)),
        ds(optimizer=ADAMW, scheduler=warmup(warmup_max_lr=1e-4)),
    ),
    "DS508": (
        ds({"stage": 1}, scheduler={"type": "CosineAnnealingLR", "params": {"T_max": 10}}),
        ds(scheduler={"type": "CosineAnnealingLR", "params": {"T_max": 10}}),
    ),
    "DS601": (ds(train_micro_batch_size_per_gpu=ABSENT), ds()),
    "DS602": (
        ds(train_batch_size=256, train_micro_batch_size_per_gpu=18),
        ds(train_batch_size=252, train_micro_batch_size_per_gpu=18),
    ),
    "DS603": (
        ds(train_batch_size=100, train_micro_batch_size_per_gpu=ABSENT) | {"facts": LaunchFacts(num_processes=8)},
        ds(train_batch_size=104, train_micro_batch_size_per_gpu=ABSENT) | {"facts": LaunchFacts(num_processes=8)},
    ),
    "DS604": (ds(train_batch_size=64), ds(train_batch_size=64) | {"facts": LaunchFacts(num_processes=32)}),
    "DS605": (ds(gradient_accumulation_steps=ABSENT), ds(gradient_accumulation_steps=2)),
    "DS606": (ds(gradient_accumulation_steps=0), ds(gradient_accumulation_steps=1)),
    "DS607": (
        ds(gradient_accumulation_steps=4) | {"facts": LaunchFacts(program="lightning")},
        ds(gradient_accumulation_steps=4),
    ),
    "DS701": (ds(fp16={"enabled": True}, bf16={"enabled": True}), ds(fp16={"enabled": True}, bf16={"enabled": False})),
    "DS702": (ds(bfloat16={"enabled": True}), ds(bf16={"enabled": True})),
    "DS703": (
        ds(fp16={"enabled": False, "auto_cast": True}, bf16={"enabled": True}),
        ds(fp16={"enabled": True, "auto_cast": True}),
    ),
    "DS704": (
        ds(fp16={"enabled": True, "min_loss_scale": 0}),
        ds(fp16={"enabled": True, "min_loss_scale": 0, "loss_scale": 128}),
    ),
    "DS705": (ds(fp16={"enabled": True, "loss_scale": 1.0}), ds(fp16={"enabled": True, "loss_scale": 0})),
    "DS801": (ds({"stage": 2, "reduce_bucket_size": 25}), ds({"stage": 2, "reduce_bucket_size": 13107200})),
    "DS802": (ds({"stage": 2}), ds({"stage": 2, "overlap_comm": False})),
}
