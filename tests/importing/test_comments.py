"""Comments stay with the keys that they belong to."""

from __future__ import annotations

from tests.importing.importing import import_, job

HJSON = """\
# For the big machine.
# Ask before you change it.

{
  # fits into 80 GB
  "train_micro_batch_size_per_gpu": 4,
  gradient_accumulation_steps: 8  // fewer were too noisy
  "gradient_clipping": 1.0, /* as in
     the paper */
  "zero_optimization": { # sharded
    "stage": 2,
    # of elements
    "round_robin_gradients": true
  },
  "bf16": {"enabled": true},  # "quoted" #twice
  # nobody reads this
  "colour": "crimson # no comment"
}
"""


def test_comments_of_carried_and_kept_keys_stay() -> None:
    _, _, text = import_(job(HJSON))
    assert "\n# For the big machine.\n# Ask before you change it.\n" in text
    assert "  # fits into 80 GB\n  batch_size_per_gpu: 4\n" in text
    assert "  gradient_accumulation: 8  # fewer were too noisy\n" in text
    assert "  gradient_clip: 1.0  # as in; the paper\n" in text
    assert "    # sharded\n    strategy: zero2\n" in text
    assert "      # of elements\n      round_robin_gradients: true\n" in text
    assert '  precision: bf16-mixed  # "quoted" #twice\n' in text
    assert "crimson" not in text and "nobody reads this" not in text


def test_comments_of_yaml_stay() -> None:
    yaml = (
        "distributed_type: MULTI_GPU  # one machine\n# eight of them\nnum_processes: 8\n"
        "mixed_precision: bf16   # '#'\ngpu_ids: '0,1,2,3,4,5,6,7'  # all\n"
    )
    _, _, text = import_(job(accelerate=yaml))
    assert "strategy: ddp  # one machine\n" in text
    assert "  # eight of them\n  num_gpus: 8\n" in text
    assert "precision: bf16-mixed  # '#'\n" in text
    assert 'gpu_ids: "0,1,2,3,4,5,6,7"  # all\n' in text


def test_a_comment_cannot_break_the_recipe() -> None:
    odd = HJSON.replace("fewer were too noisy", "bell \x07, line\u2028end, \ud83d\ude00: {[")
    recipe, _, text = import_(job(odd.encode("utf-16", "surrogatepass").decode("utf-16")))
    assert recipe.training.gradient_accumulation == 8
    assert "bell  , line end" in text


def test_strict_json_has_none() -> None:
    _, _, text = import_(job('{"train_micro_batch_size_per_gpu": 1, "colour": "# crimson"}'))
    assert "crimson" not in text
