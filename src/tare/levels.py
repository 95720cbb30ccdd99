"""What can be asked for, a row a factor; and what was asked for: texts that are read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from tare.errors import UsageError

T = TypeVar("T")


@dataclass(eq=False)
class Factor(Generic[T]):
    """One factor of a workload: an attribute of its `Levels`, where it is what its level means.

    Attributes:
        parse: text of a level -> the level as the workload wants it; raises UsageError.
        show: the level as every table prints it, so that `100us` and `0.1 ms` are one level.
        choices: the allowed levels, where they can be listed.
        named: whether a file may give a mapping, of which the levels are the names.
        unit: of the level as the workload wants it, where that is a number: one of `units.COLUMNS`.
        name: in experiment files: the attribute's, without an underscore behind it.
    """

    parse: Callable[[object], T]
    show: Callable[[T], str]
    default: str
    help: str
    choices: tuple[str, ...] | None = None
    examples: tuple[str, ...] = ()
    name: str = ""
    named: bool = False
    unit: str | None = None

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = attribute.rstrip("_")

    @overload
    def __get__(self, levels: None, owner: type) -> Factor[T]: ...
    @overload
    def __get__(self, levels: Levels, owner: type) -> T: ...
    def __get__(self, levels: Levels | None, owner: type) -> Factor[T] | T:
        return self if levels is None else levels.read(self)

    def level(self, written: object) -> str:
        """The canonical text of a level; the one form that records and tables hold."""
        return self.show(self.parse(written))


class Levels(Mapping[str, str]):
    """Factor -> canonical level, in the workload's order; factors that do not apply are absent.

    A workload's subclass has an attribute for each of its factors: the level parsed, the default's
    where the factor is absent.
    """

    rows: ClassVar[Mapping[str, Factor[Any]]] = {}

    def __init_subclass__(cls) -> None:
        """Collect the rows in the order in which they stand, what is inherited behind them."""
        own = {row.name: row for row in vars(cls).values() if isinstance(row, Factor)}
        cls.rows = own | {name: row for name, row in cls.rows.items() if name not in own}

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)
        self._read: dict[Factor[Any], Any] = {}

    def read(self, row: Factor[T]) -> T:
        """The level of a row, parsed when it is first asked for."""
        if row not in self._read:
            self._read[row] = row.parse(self.get(row.name, row.default))
        found: T = self._read[row]
        return found

    def but(self, **changed: str) -> Self:
        """The same with other levels."""
        return type(self)({**self, **changed})

    def without(self, *factors: str) -> tuple[tuple[str, str], ...]:
        """The texts but for some factors, as a key."""
        return tuple((k, v) for k, v in self.items() if k not in factors)

    @classmethod
    def defaults(cls) -> Self:
        """Every factor at its default."""
        return cls({row.name: row.level(row.default) for row in cls.rows.values()})

    def __getitem__(self, factor: str) -> str:
        """The text of a level."""
        return self._texts[factor]

    def __iter__(self) -> Iterator[str]:
        """In the workload's order."""
        return iter(self._texts)

    def __len__(self) -> int:
        """How many factors apply."""
        return len(self._texts)

    def __repr__(self) -> str:
        """As a mapping."""
        return repr(self._texts)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """An object of texts; the validation's context says of which workload, where one does."""

        def typed(found: Mapping[str, str], info: ValidationInfo) -> Levels:
            kinds: Mapping[type[Levels], type[Levels]] = info.context or {}
            return found if isinstance(found, cls) else kinds.get(cls, cls)(found)

        mapping = core_schema.dict_schema(core_schema.str_schema(), core_schema.str_schema())
        return core_schema.with_info_after_validator_function(
            typed,
            core_schema.union_schema([core_schema.is_instance_schema(cls), mapping]),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )


class Settings(Levels):
    """Settings that every session of an experiment shares, likewise: requests, warm-up, timeout."""


def choice(choices: tuple[str, ...], default: str, help: str) -> Factor[str]:
    """A factor whose levels are words."""
    return among({word: word for word in choices}, default, help)


def among(choices: Mapping[str, T], default: str, help: str) -> Factor[T]:
    """A factor whose levels are the names of something."""

    def parse(written: object) -> T:
        if not isinstance(written, str) or written not in choices:
            raise UsageError(f"{written!r} is not one of {', '.join(choices)}")
        return choices[written]

    def show(chosen: T) -> str:
        return next(name for name, one in choices.items() if one is chosen)

    return Factor(parse, show, default, help, tuple(choices))
