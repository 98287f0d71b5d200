"""Options that several commands share, as one parameter of each command."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Protocol


class OptionGroup(Protocol):
    """A group of options, and the one argument that a command gets for them."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """The options, as parameters with typer's annotations."""
        ...

    def collect(self, values: dict[str, Any]) -> Any:
        """Return the argument of the command for these values."""
        ...


def option(name: str, annotation: Any, default: Any = None) -> Parameter:
    """Return a parameter of a group."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_options(**groups: OptionGroup) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces each named parameter of a command by the options of its group."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(**values: Any) -> None:
            for name, group in groups.items():
                values[name] = group.collect({found.name: values.pop(found.name) for found in group.parameters})
            function(**values)

        written = signature(function)
        own_parameters = [found for name, found in written.parameters.items() if name not in groups]
        parameters = [found.replace(kind=Parameter.KEYWORD_ONLY) for found in own_parameters]
        parameters += [found for group in groups.values() for found in group.parameters]
        command.__signature__ = written.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
        return command

    return decorate
