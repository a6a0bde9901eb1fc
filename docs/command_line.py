"""A Sphinx directive that writes the reference of the command line from the Typer application itself."""

from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from bigfs.cli import app as application


class CommandLine(SphinxDirective):
    """``.. command-line::`` becomes a section per command: its help, usage, arguments and options."""

    def run(self) -> list[nodes.Node]:
        """Build the sections."""
        group = typer.main.get_command(application)
        commands = group.commands  # type: ignore[attr-defined]  # a Typer application with several commands is a group
        return [self.section(name, commands[name]) for name in sorted(commands)]

    def section(self, name: str, command: Any) -> nodes.section:
        """Build the section of one command."""
        section = nodes.section(ids=[f"bigfs-{name}"], names=[f"bigfs-{name}"])
        section += nodes.title(text=f"bigfs {name}")
        self.state.nested_parse(StringList(list(lines_of(name, command)), source=f"bigfs {name}"), 0, section)
        return section


def lines_of(name: str, command: Any) -> Iterator[str]:
    """Yield the lines of reStructuredText that document one command."""
    context = typer.Context(command, info_name=f"bigfs {name}")
    usage = " ".join(piece for parameter in command.params for piece in _usage(parameter))
    yield from [(command.help or "").strip(), "", "::", "", f"   bigfs {name} {usage} [OPTIONS]".replace("  ", " "), ""]
    for parameter in command.params:
        term = f"``{'``, ``'.join(parameter.opts)}``" if parameter.param_type_name == "option" else f"``{parameter.name.upper()}``"
        default = parameter.get_default(context, call=False)
        shown = "" if default in (None, False, True) or parameter.param_type_name != "option" else f" Default: ``{default}``."
        description = (getattr(parameter, "help", None) or "").strip().rstrip(".")
        yield from [term, f"   {description[:1].upper()}{description[1:]}.{shown}".replace("   .", "   "), ""]


def _usage(parameter: Any) -> list[str]:
    return [] if parameter.param_type_name == "option" else [parameter.name.upper()]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
