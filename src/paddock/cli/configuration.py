"""The server's settings, as the command line sees them: its own options first, then the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddock.errors import Invalid

if TYPE_CHECKING:
    from paddock.settings import Settings


def load_settings(**options: Any) -> Settings:
    """Options are given by the names of their environment variables; None means not given."""
    from pydantic import ValidationError

    from paddock.settings import Settings

    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        raise Invalid(f"The configuration is not right. {describe(error)}") from error


def describe(error: ValueError) -> str:
    """What is wrong, in one line, without the value itself: it may be a secret."""
    from pydantic import ValidationError

    from paddock.models.wording import wording

    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: {wording(problem)}".lstrip(": ") for problem in error.errors()
    )
