"""Imports pydantic, which takes 0.1 s, only in commands that need it. typer converts every value with it."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, cast


class LazyConversion:
    """The conversion of a parameter. It does nothing for a value that already has its type."""

    def __init__(self, parameter: Any) -> None:
        self._convert = parameter.get_runtime_param
        described = parameter.type_descriptor
        self._is_text = described.annotation is str and described.parameter_info.parser is None

    def coerce(self, value: Any, **context: Any) -> Any:
        """Return the value as the command takes it. A default, or an option that is not given, stays as it is."""
        needs_none = self._is_text or isinstance(value, Enum) or not isinstance(value, str | list | tuple)
        return cast("Any", value) if needs_none else self._convert().coerce(value, **context)


def with_lazy_conversion(parameters: Sequence[Any]) -> Sequence[Any]:
    """Give each parameter a lazy conversion, and return the parameters."""
    for parameter in parameters:
        if hasattr(parameter, "get_runtime_param") and "get_runtime_param" not in vars(parameter):
            conversion = LazyConversion(parameter)
            parameter.get_runtime_param = partial(_itself, conversion)
    return parameters


def convert_lazily(command: Any) -> None:
    """Give each parameter of a command a lazy conversion."""
    command.get_params = partial(_lazy_parameters, command.get_params)


def _lazy_parameters(parameters_of: Callable[[Any], Sequence[Any]], context: Any) -> Sequence[Any]:
    return with_lazy_conversion(parameters_of(context))


def _itself(conversion: LazyConversion) -> LazyConversion:
    return conversion
