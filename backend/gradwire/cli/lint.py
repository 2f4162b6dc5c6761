"""`gradwire lint`: what the libraries will really do with the configuration files that people already have."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire.cli.options import positive_integer
from gradwire.cli.output import note, say, say_json
from gradwire.errors import UsageError

if TYPE_CHECKING:
    from gradwire.lint import Checked

DESCRIPTION = """\
Check DeepSpeed JSON (strict or hjson), Accelerate YAML or JSON, and the
Trainer's arguments: what the libraries will ignore, override, default, round,
refuse or misread. A DeepSpeed file that another one names is checked with it;
one file of each kind is taken for one job. Loads no torch.

Ends with 2 where a file has an error, else 0."""
EXAMPLES = """\
  gradwire lint ds_config.json
  gradwire lint accelerate.yaml ds_config.json --num-processes 8
  gradwire lint ds_config.json --trainer-arguments args.json
  gradwire lint --diff configs/*.json      # show the safe fixes, write nothing
  gradwire lint --format sarif configs/*.json > lint.sarif"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE..., the facts of the launch, and the form of the answer."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="configuration files; a folder's files are not searched"
    )
    facts = parser.add_argument_group("what is known about the launch")
    facts.add_argument("--num-processes", metavar="N", type=positive_integer, help="processes over all machines")
    facts.add_argument("--num-machines", metavar="N", type=positive_integer, help="machines")
    facts.add_argument("--mixed-precision", choices=("no", "fp16", "bf16", "fp8"), help="as given to accelerate launch")
    facts.add_argument("--model-class", metavar="NAME", help="class of the model, such as BertForMaskedLM")
    facts.add_argument("--program", choices=("lightning",), help="what runs the loop, where it has rules of its own")
    facts.add_argument("--trainer-arguments", metavar="FILE", help="the Trainer's arguments as JSON")
    parser.add_argument(
        "--kind", choices=("deepspeed", "accelerate", "trainer"), help="what every FILE is; absent: look"
    )
    parser.add_argument(
        "--separately", action="store_true", help="take no two files for one job unless one names the other"
    )
    parser.add_argument("--deepspeed-version", metavar="V", type=_version, help="the DeepSpeed that will read them")
    parser.add_argument("--accelerate-version", metavar="V", type=_version, help="the Accelerate that will read them")
    parser.add_argument("--fix", action="store_true", help="apply the safe fixes and show them; comments stay")
    parser.add_argument("--diff", action="store_true", help="show the safe fixes and write nothing")
    parser.add_argument("--strict", action="store_true", help="end with 2 at warnings too")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument(
        "--format", choices=("text", "json", "sarif", "github"), default="text", help="form of the answer"
    )
    answer.add_argument("--json", action="store_true", help="as --format json")


def run(arguments: argparse.Namespace) -> int:
    """Check the files; return 2 where one has an error (with --strict: or a warning), else 0."""
    checked = _check(arguments)
    if arguments.fix or arguments.diff:
        checked = _fix(arguments, checked)
    _report(arguments, checked)
    stopping = ("error", "warning") if arguments.strict else ("error",)
    return UsageError.exit_code if any(finding.severity in stopping for finding in checked.findings) else 0


def _check(arguments: argparse.Namespace) -> Checked:
    from gradwire.lint import LaunchFacts, Versions, lint_files

    given = {"deepspeed": arguments.deepspeed_version, "accelerate": arguments.accelerate_version}
    return lint_files(
        [Path(name) for name in dict.fromkeys(arguments.files)],
        facts=LaunchFacts(
            num_processes=arguments.num_processes,
            num_machines=arguments.num_machines,
            mixed_precision=arguments.mixed_precision,
            model_class=arguments.model_class,
            program=arguments.program,
        ),
        versions=Versions(**{name: version for name, version in given.items() if version}),
        trainer_arguments=Path(arguments.trainer_arguments) if arguments.trainer_arguments else None,
        kind=arguments.kind,
        together=not arguments.separately,
    )


def _fix(arguments: argparse.Namespace, checked: Checked) -> Checked:
    from gradwire.lint.fixing import fix_texts, write_fixed

    given = {str(Path(name)) for name in arguments.files}
    fixed = [each for each in fix_texts(checked.findings, checked.texts) if each.source in given]
    for each in fixed:
        if not arguments.diff:
            write_fixed(each)
        (say if arguments.format == "text" and not arguments.json else note)(each.diff().rstrip("\n"))
    if arguments.diff or not fixed:
        return checked
    note(f"fixed {sum(len(each.codes) for each in fixed)} findings in {len(fixed)} files; what is left:")
    return _check(arguments)


def _report(arguments: argparse.Namespace, checked: Checked) -> None:
    findings = checked.findings
    match "json" if arguments.json else arguments.format:
        case "json":
            say_json({"findings": [finding.as_json() for finding in findings]})
        case "sarif":
            from importlib.metadata import version

            from gradwire.lint.reports.sarif import as_sarif

            say_json(as_sarif(findings, version=version("gradwire")))
        case "github":
            from gradwire.lint.reports.github import as_github

            if findings:
                say(as_github(findings))
        case _:
            from gradwire.lint.reports.text import as_text, summary

            if findings:
                say(as_text(findings))
            note(summary(findings, len(set(arguments.files))))


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a version, for example 0.19.8")
    return text
