"""Replaces tool names in descriptions and answers: they use the catalogue's names, but the model knows LangChain's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paddock.client.answers import ToolInfo


@dataclass(frozen=True)
class Naming:
    names: dict[str, str]
    """LangChain names by catalogue names, where they differ."""

    @classmethod
    def of(cls, catalogue: Iterable[ToolInfo]) -> Naming:
        return cls({info.name: info.langchain_name for info in catalogue if info.name != info.langchain_name})

    def sentence(self, text: str) -> str:
        """Rename tools in text written by Paddock: a description, an error."""
        return self._name.sub(lambda found: self.names[found[0]], text)

    def schema(self, schema: Any, *, names: bool = False) -> Any:
        """The schema with tools renamed in its descriptions. ``names``: its keys are names of arguments."""
        if isinstance(schema, list):
            return [self.schema(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        return {
            word: self.sentence(value)
            if word == "description" and isinstance(value, str) and not names
            else self.schema(value, names=word in ("properties", "$defs") and not names)
            for word, value in schema.items()
        }

    def answer(self, text: str) -> str:
        """Rename tools in an answer: only in the lines that Paddock adds (``[still running …]``, ``… more``)."""
        return self._hint.sub(lambda line: self.sentence(line[0]), text)

    @cached_property
    def _name(self) -> re.Pattern[str]:
        return re.compile(rf"\b(?:{self._any})\b")

    @cached_property
    def _hint(self) -> re.Pattern[str]:
        return re.compile(rf"^(?:\[|… ).*\b(?:with|next) (?:{self._any})\b.*$", re.MULTILINE)

    @property
    def _any(self) -> str:
        return "|".join(map(re.escape, self.names)) or r"(?!)"
