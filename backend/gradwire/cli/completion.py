"""`gradwire completion`: print a shell completion script."""

from __future__ import annotations

import argparse

from gradwire.cli.options import add_json
from gradwire.cli.output import say, say_json
from gradwire.cli.suggest import did_you_mean
from gradwire.errors import UsageError

DESCRIPTION = """\
Print a script that teaches your shell the verbs, options and presets; write it
to where the shell looks, and start a new shell."""
EXAMPLES = """\
  gradwire completion bash > ~/.local/share/bash-completion/completions/gradwire
  gradwire completion zsh  > "${fpath[1]}/_gradwire"
  gradwire completion fish > ~/.config/fish/completions/gradwire.fish"""

_WANTED = ("bash", "zsh", "fish", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SHELL."""
    parser.add_argument("shell", metavar="SHELL", help="bash, zsh, fish or tcsh")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the script of one shell, which is all of the result; --json wraps it as {"shell", "script"}."""
    import shtab

    from gradwire.cli.parser import VERBS, build_parser

    shells = [shell for shell in _WANTED if shell in shtab.SUPPORTED_SHELLS]
    if arguments.shell not in shells:
        suggestion = did_you_mean(arguments.shell, shells)
        raise UsageError(f"no completion for {arguments.shell!r}{suggestion}; there is {', '.join(shells)}")
    parser, _ = build_parser(list(VERBS), for_completion=True)
    script = str(shtab.complete(parser, shell=arguments.shell)).rstrip("\n")
    if arguments.json:
        say_json({"shell": arguments.shell, "script": script})
    else:
        say(script)
    return 0
