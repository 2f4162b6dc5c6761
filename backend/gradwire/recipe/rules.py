"""Step four: the table of rules that no schema can say, for a recipe that fits its schema."""

from __future__ import annotations

from collections.abc import Callable

from gradwire.documents.recipe_schema import Recipe
from gradwire.recipe import (
    communication_rules,
    compile_rules,
    device_rules,
    model_rules,
    number_format_rules,
    schedule_rules,
    sharding_rules,
    size_rules,
)
from gradwire.recipe.broken import Broken, Device

RULES: tuple[Callable[[Recipe], Broken | None], ...] = (
    size_rules.global_batch_is_the_product,
    size_rules.stages_per_rank_fit_the_schedule,
    size_rules.stages_fill_the_ranks,
    size_rules.stages_divide_processes,
    size_rules.chunks_fill_the_stages,
    size_rules.chunks_divide_the_batch,
    size_rules.chunks_come_in_rounds,
    size_rules.layers_fill_the_stages,
    communication_rules.torchs_powersgd_starts_late_enough,
    communication_rules.powersgd_starts_before_the_end,
    communication_rules.powersgd_rank_compresses,
    communication_rules.local_sgd_synchronises_before_the_end,
    communication_rules.local_sgd_scales_no_loss,
    communication_rules.auto_buckets_send_gradients,
    communication_rules.alternating_powersgd_starts_warm,
    communication_rules.topk_sends_less_than_everything,
    communication_rules.compression_needs_whole_gradients,
    communication_rules.compression_has_no_pipeline,
    communication_rules.overlap_settings_are_read,
    compile_rules.compiled_graphs_are_cut_at_whole_buckets,
    communication_rules.first_bucket_is_no_larger,
    communication_rules.auto_buckets_have_no_pipeline,
    communication_rules.static_graph_finds_unused_itself,
    communication_rules.static_graph_has_no_pipeline,
    communication_rules.zero_has_no_pipeline,
    *sharding_rules.SHARDING_RULES,
    communication_rules.zero_bubble_has_no_fsdp,
    compile_rules.zero_bubble_has_no_compile,
    compile_rules.options_need_compile,
    compile_rules.modes_are_inductors,
    compile_rules.whole_graphs_gather_nothing,
    model_rules.heads_divide_the_width,
    model_rules.rotary_heads_are_even,
    model_rules.key_value_heads_divide_the_heads,
    model_rules.key_value_heads_are_llamas,
    model_rules.tied_embeddings_share_a_stage,
    model_rules.flash_attention_has_16_bits,
    model_rules.reentrant_needs_checkpointing,
    model_rules.reentrant_has_no_pipeline,
    model_rules.fp16_has_no_pipeline,
    model_rules.reentrant_runs_once_per_parameter,
    model_rules.optimizer_reads_its_options,
    model_rules.fp8_computes_beside_bf16,
    schedule_rules.warmup_ends_before_the_decay,
    schedule_rules.constant_rate_has_no_decay,
    number_format_rules.compression_decides_what_travels,
    number_format_rules.fp16_range_needs_scaled_gradients,
    number_format_rules.accumulation_is_not_narrower,
    number_format_rules.labels_fit_the_sequence,
)

DEVICE_RULES: tuple[Callable[[Recipe, Device], Broken | None], ...] = (
    device_rules.fp16_needs_a_gpu,
    device_rules.torchs_powersgd_on_gloo_has_one_bucket,
    device_rules.torchs_powersgd_on_gloo_uses_every_parameter,
    device_rules.pinned_memory_is_for_a_gpu,
    device_rules.fp8_needs_a_gpu,
    compile_rules.cuda_graphs_need_a_gpu,
)


def broken_rules(recipe: Recipe) -> list[Broken]:
    """Return every rule that `recipe` breaks, whatever device it runs on."""
    return [broken for rule in RULES if (broken := rule(recipe))]


def broken_device_rules(recipe: Recipe, device: Device) -> list[Broken]:
    """Return every rule that `recipe` breaks on `device`."""
    return [broken for rule in DEVICE_RULES if (broken := rule(recipe, device))]
