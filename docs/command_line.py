"""A Sphinx directive that writes the reference of the command line from the Typer application
itself.
"""

from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from bigfs.flows.cli.app import app as application


class CommandLine(SphinxDirective):
    """``{command-line}`` becomes a section per command: its help, usage, arguments and options."""

    def run(self) -> list[nodes.Node]:
        """Build the sections, in every build: the page depends on the program and not on its own
        file.
        """
        self.env.note_reread()
        group = typer.main.get_command(application)
        commands = group.commands  # type: ignore[attr-defined]  # a Typer application with several commands is a group
        return [self.section(name, commands[name]) for name in sorted(commands)]

    def section(self, name: str, command: Any) -> nodes.section:
        """Build the section of one command."""
        section = nodes.section(ids=[f"bigfs-{name}"], names=[f"bigfs-{name}"])
        section += nodes.title(text=f"bigfs {name}")
        self.state.nested_parse(
            StringList(list(lines_of(name, command)), source=f"bigfs {name}"), 0, section
        )
        return section


def lines_of(name: str, command: Any) -> Iterator[str]:
    """Yield the lines of Markdown that document one command."""
    context = typer.Context(command, info_name=f"bigfs {name}")
    arguments = " ".join(p.name.upper() for p in command.params if p.param_type_name != "option")
    yield from [
        (command.help or "").strip(),
        "",
        "```",
        " ".join(f"bigfs {name} {arguments} [OPTIONS]".split()),
        "```",
        "",
        "```",
        command.epilog.replace("\\[", "[").replace("Examples:\n", ""),
        "```",
        "",
    ]
    for parameter in command.params:
        option = parameter.param_type_name == "option"
        default = parameter.get_default(context, call=False) if option else None
        shown = "" if default in (None, False, True) else f" Default: `{default}`."
        help_text = (getattr(parameter, "help", None) or "").strip().rstrip(".")
        names = parameter.opts if option else [parameter.name.upper()]
        yield from [
            ", ".join(f"`{text}`" for text in names),
            f": {help_text[:1].upper()}{help_text[1:]}.{shown}",
            "",
        ]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
