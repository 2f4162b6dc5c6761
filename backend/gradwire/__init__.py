"""Gradwire: one recipe for distributed training, lowered to Accelerate, DeepSpeed or plain torch, and measured.

The public names load when they are first used, so that `import gradwire` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # a type checker takes it for True; importing typing for it would cost more than this module
if TYPE_CHECKING:
    from gradwire.measure.efficiency import scaling_efficiency
    from gradwire.measure.meter import ThroughputMeter
    from gradwire.measure.mfu import model_flops_utilization
    from gradwire.recipe.model_flops import model_flops_per_token

__version__: str

__all__ = [
    "ThroughputMeter",
    "__version__",
    "model_flops_per_token",
    "model_flops_utilization",
    "scaling_efficiency",
]


# Hidden from a type checker, which would take every name for one of ours.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        value: object
        match name:
            case "scaling_efficiency":
                from gradwire.measure.efficiency import scaling_efficiency as value
            case "model_flops_per_token":
                from gradwire.recipe.model_flops import model_flops_per_token as value
            case "model_flops_utilization":
                from gradwire.measure.mfu import model_flops_utilization as value
            case "ThroughputMeter":
                from gradwire.measure.meter import ThroughputMeter as value
            case "__version__":
                from importlib.metadata import version

                value = version("gradwire")
            case _:
                raise AttributeError(f"module 'gradwire' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
