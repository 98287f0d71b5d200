"""Keeps pydantic, with which typer converts every value, out of commands that do not need it: it takes 0.1 s."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, cast


class QuickConversion:
    """The conversion of a parameter: of nothing where the value has its type already."""

    def __init__(self, parameter: Any) -> None:
        self._convert = parameter.get_runtime_param
        described = parameter.type_descriptor
        self._is_text = described.annotation is str and described.parameter_info.parser is None

    def coerce(self, value: Any, **context: Any) -> Any:
        """Return the value as the command takes it. A default, or an option that is not given, stays as it is."""
        needs_none = self._is_text or isinstance(value, Enum) or not isinstance(value, str | list | tuple)
        return cast("Any", value) if needs_none else self._convert().coerce(value, **context)


def quick(parameters: Sequence[Any]) -> Sequence[Any]:
    """Let parameters import pydantic only if one needs it. Return them."""
    for parameter in parameters:
        if hasattr(parameter, "get_runtime_param") and "get_runtime_param" not in vars(parameter):
            conversion = QuickConversion(parameter)
            parameter.get_runtime_param = partial(_itself, conversion)
    return parameters


def convert_quickly(command: Any) -> None:
    """Let the parameters of a command, or of a group of commands, convert their values so."""
    parameters_of = command.get_params
    command.get_params = partial(_quick_parameters, parameters_of)
    for inner in getattr(command, "commands", {}).values():
        convert_quickly(inner)


def _quick_parameters(parameters_of: Callable[[Any], Sequence[Any]], context: Any) -> Sequence[Any]:
    return quick(parameters_of(context))


def _itself(conversion: QuickConversion) -> QuickConversion:
    return conversion
