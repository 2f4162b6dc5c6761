"""Lists the top-level keys of the targets' configuration files, for the versions that Gradwire was checked against."""

from __future__ import annotations

# accelerate 1.15.0, ClusterConfig.
ACCELERATE_KEYS = frozenset(
    [
        "command_file",
        "commands",
        "compute_environment",
        "debug",
        "deepspeed_config",
        "distributed_type",
        "downcast_bf16",
        "dynamo_config",
        "enable_cpu_affinity",
        "fp8_config",
        "fsdp_config",
        "gpu_ids",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "main_training_function",
        "megatron_lm_config",
        "mixed_precision",
        "mpirun_config",
        "num_machines",
        "num_processes",
        "parallelism_config",
        "rdzv_backend",
        "same_network",
        "tpu_env",
        "tpu_name",
        "tpu_use_cluster",
        "tpu_use_sudo",
        "tpu_vm",
        "tpu_zone",
        "use_cpu",
    ]
)

# deepspeed 0.19.8: every key that some module reads from the top level; unknown ones it ignores without a word.
DEEPSPEED_KEYS = frozenset(
    [
        "activation_checkpointing",
        "aio",
        "autotuning",
        "bf16",
        "bfloat16",
        "checkpoint",
        "comms_logger",
        "communication_data_type",
        "comet",
        "compile",
        "csv_monitor",
        "data_efficiency",
        "data_types",
        "dataloader_drop_last",
        "datastates_ckpt",
        "disable_allgather",
        "disable_python_gc",
        "dump_state",
        "expert_parallel",
        "flops_profiler",
        "fp16",
        "gradient_accumulation_steps",
        "gradient_allreduce_op",
        "gradient_clipping",
        "gradient_predivide_factor",
        "hybrid_engine",
        "log_level",
        "managed_gradient_accumulation",
        "memory_breakdown",
        "optimizer",
        "pipeline",
        "prescale_gradients",
        "scheduler",
        "seq_parallel_communication_data_type",
        "sequence_parallel_size",
        "steps_per_print",
        "tensor_parallel",
        "tensorboard",
        "timers",
        "torch_autocast",
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "use_data_before_expert_parallelism",
        "vocabulary_size",
        "wall_clock_breakdown",
        "wandb",
        "weight_quantization",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
        "zero_optimization",
    ]
)

# accelerate 1.15.0: keys below a section are not checked by its loader. Those of FSDP 1 do nothing, or fail, under 2;
# beside a DeepSpeed file the other keys of deepspeed_config are refused when the plugin starts.
ACCELERATE_KEYS_BELOW = {
    "fsdp_config": frozenset(
        [
            "fsdp_activation_checkpointing",
            "fsdp_activation_checkpointing_offload",
            "fsdp_auto_wrap_policy",
            "fsdp_cpu_ram_efficient_loading",
            "fsdp_min_num_params",
            "fsdp_offload_params",
            "fsdp_reshard_after_forward",
            "fsdp_state_dict_type",
            "fsdp_transformer_layer_cls_to_wrap",
            "fsdp_version",
        ]
    ),
    "deepspeed_config": frozenset(
        [
            "deepspeed_config_file",
            "deepspeed_moe_layer_cls_names",
            "deepspeed_multinode_launcher",
            "zero3_init_flag",
        ]
    ),
}
