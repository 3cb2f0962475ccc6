"""The server's settings on the command line: options take precedence over the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddock.errors import Invalid

if TYPE_CHECKING:
    from paddock.settings import Settings


def load_settings(**options: Any) -> Settings:
    """Options are named like their environment variables; None means not given."""
    from pydantic import ValidationError

    from paddock.settings import Settings

    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        raise Invalid(f"The configuration is invalid. {describe(error)}") from error


def describe(error: ValueError) -> str:
    """The errors in one line, without the values, which may be secrets."""
    from pydantic import ValidationError

    from paddock.models.wording import wording

    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: {wording(problem)}".lstrip(": ") for problem in error.errors()
    )
