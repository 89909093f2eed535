"""Read the rows of a table by the description of its export. Nothing of a column that has no use is kept."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from cnllm.bills.exports import Export, Kind, columns_of, matches, plain_text
from cnllm.bills.files import TableFile
from cnllm.bills.times import Period, period_of
from cnllm.config import redact
from cnllm.errors import CnllmError
from cnllm.types.checks import plural

__all__ = ["BillLine", "BillTable", "find_table"]

_HEADER_LINES = 20  # at most, to the one with the columns
_DELIMITERS = ",\t;"
_MOST_FIELD = 1 << 20  # characters
_MOST_DIGITS = 60
_NUMBER = re.compile(r"[+-]?(?:[1-9]\d{0,2}(?:,\d{3})+|\d+|(?=\.\d))(?:\.\d*)?(?:e[+-]?\d{1,2})?")
_UNCLEAR = re.compile(r"[^,.]*,\d{3}\D*")
"""A number whose comma separates thousands, or stands for the point: both are usual in a table with semicolons."""
_CURRENCY_SIGN = re.compile(r"^(?:us|cn|hk)?[$¥€£₹]\s*|\s*(?:元|[$¥€£₹])$")
_KEY = re.compile(r"\b(?:sk|pk|ak|rk|key)[-_][\w*-]{8,}|\bAIza[\w-]{20,}|\bBearer\s+\S+", re.IGNORECASE)
_CURRENCY = re.compile(r"[A-Z]{3}")
_YUAN = {"rmb": "CNY", "元": "CNY", "人民币": "CNY"}
_NOTHING = ("", "-", "--", "n/a", "null", "none")
_MILLION = 1_000_000


class BillLine(Struct, frozen=True):
    """A row of a bill. `model` is None where the row is for all models, and `kind` where it is for no kind of token.

    `rate` is the price of a million tokens. `tier` are words for a price that is not the usual one. `unknown` is the
    word or the unit of a count that the export does not describe.
    """

    period: Period
    model: str | None
    id: str | None
    kind: Kind | None
    counts: Mapping[Kind, Decimal]
    currency: str | None
    amount: Decimal | None
    list_amount: Decimal | None
    rate: Decimal | None
    tier: tuple[str, ...]
    unknown: str | None


class BillTable:
    """A table of a known export. `undated` and `foreign` count rows that are left out: totals, and other products."""

    def __init__(self, file: TableFile, name: str, export: Export, encoding: str, skip: int, delimiter: str) -> None:
        self.file = file
        self.name = name
        self.export = export
        self.undated = 0
        self.foreign = 0
        self.kind_of = lru_cache(maxsize=1024)(export.kind_of)
        self.label_of = lru_cache(maxsize=1024)(lambda model: _label(export, model))
        self._encoding = encoding
        self._skip = skip
        self.delimiter = delimiter

    def lines(self) -> Iterator[BillLine]:
        """Yield the rows. Raises `CnllmError` with the line and the column of a value that cannot be read."""
        csv.field_size_limit(_MOST_FIELD)
        reader = csv.reader(islice(self.file.lines(self._encoding), self._skip, None), delimiter=self.delimiter)
        columns = _Columns(next(reader))
        try:
            for fields in reader:
                if any(fields):
                    row = _BillRow(self, columns, fields, reader.line_num + self._skip)
                    if (line := row.read()) is not None:
                        yield line
        except csv.Error as error:
            place = f"{self.file.name}: line {reader.line_num + self._skip}"
            raise CnllmError(f"{place}: not valid CSV: {error}", hint="export the bill again") from error


def find_table(file: TableFile, encoding: str, exports: Mapping[str, Export]) -> BillTable | None:
    """Return the table with the export whose columns it has, the most of them; None where no export fits."""
    for number, line in enumerate(islice(file.lines(encoding), _HEADER_LINES)):
        for delimiter in _DELIMITERS:
            try:
                header = next(csv.reader([line], delimiter=delimiter), [])
            except csv.Error:
                continue
            columns = _Columns(header)
            fitting = [(name, export) for name, export in exports.items() if columns.has(export.header)]
            if fitting:
                name, export = max(fitting, key=lambda found: len(found[1].header))
                return BillTable(file, name, export, encoding, number, delimiter)
    return None


class _Columns:
    """The places of columns by name."""

    def __init__(self, header: list[str]) -> None:
        self.count = len(header)
        self._header = header
        self._places: dict[str, int] = {}
        for place, name in enumerate(header):
            self._places.setdefault(plain_text(name.removeprefix("\ufeff")), place)
        self._found: dict[str, int | None] = {}

    def has(self, names: list[str]) -> bool:
        """Whether there is each of these columns."""
        return all(self.place(name) is not None for name in names)

    def name(self, name: str) -> str:
        """Return the name that the header has for a column."""
        place = self.place(name)
        return name if place is None else self._header[place].strip()

    def place(self, name: str) -> int | None:
        """Return the place of a column; None where there is none."""
        if name not in self._found:
            places = (self._places.get(column) for column in columns_of(name))
            self._found[name] = next((place for place in places if place is not None), None)
        return self._found[name]


class _BillRow:
    def __init__(self, table: BillTable, columns: _Columns, fields: list[str], number: int) -> None:
        self._table = table
        self._columns = columns
        self._fields = fields
        self._number = number

    def read(self) -> BillLine | None:
        export = self._table.export
        if any(self._fields[self._columns.count :]):
            place = f"{self._table.file.name}: line {self._number}"
            fields, columns = len(self._fields), self._columns.count  # there are more fields: at least two
            fault = f"{fields} fields, but the header has {columns} column{plural(columns)}"
            raise CnllmError(f"{place}: {fault}", hint="quote a field with a comma, or export the bill again")
        if any(not _matches(self._text(column), tuple(globs)) for column, globs in export.only.items()):
            self._table.foreign += 1
            return None
        time, end = self._text(export.time), self._text(export.end)
        try:
            period = period_of(time, end, export.range, export.zone)
        except (ValueError, OverflowError, OSError) as error:
            raise self._fault(export.time, "no time that can be read") from error
        if period is None:
            self._table.undated += 1
            return None
        model, word, tier = self._names(export)
        kind = None if word is None else self._table.kind_of(word)
        counts, unknown = self._counts(export, kind, word)
        amount, currency = self._amount(export)
        return BillLine(
            period=period,
            model=model,
            id=self._text(export.id) or None,
            kind=kind,
            counts=counts,
            currency=currency,
            amount=amount,
            list_amount=self._number_of(export.list_amount),
            rate=self._rate(export),
            tier=tuple(hide_keys(word) for word in tier if word and not _matches(word, tuple(export.usual))),
            unknown=None if unknown is None else hide_keys(unknown),
        )

    def _names(self, export: Export) -> tuple[str | None, str | None, list[str]]:
        """Return the model, the word for the kind of token and the words for a tier."""
        model = self._text(export.model) if export.model is not None else None
        kind = self._text(export.kind) if export.kind is not None else None
        tier = [self._text(column) for column in export.tier]
        for column, pattern in export.pattern.items():
            text = self._text(column)
            if match := re.fullmatch(pattern, text):
                groups = match.groupdict()
                model, kind = groups.get("model") or model, groups.get("kind") or kind
                tier.append((groups.get("tier") or "").strip())
            elif text:
                model = model or text
        return (None if not model else self._table.label_of(model)), kind, tier

    def _counts(self, export: Export, kind: Kind | None, word: str | None) -> tuple[dict[Kind, Decimal], str | None]:
        """Return the counts, and the word or the unit of one that the export does not describe."""
        counts: dict[Kind, Decimal] = {}
        for name, column in export.counts.items():
            if (number := self._number_of(column)) is not None:
                counts[name] = number
        number = self._number_of(export.count)
        if not number or not word:
            return counts, None
        if kind is None:
            return counts, word
        if export.unit is None or self._columns.place(export.unit) is None:
            counts[kind] = number
            return counts, None
        unit = plain_text(self._text(export.unit))
        factor = next((size for name, size in export.units.items() if plain_text(name) == unit), None)
        if factor is None:
            return counts, unit
        counts[kind] = number * factor
        return counts, None

    def _amount(self, export: Export) -> tuple[Decimal | None, str | None]:
        numbers = [number for column in export.amount if (number := self._number_of(column)) is not None]
        word = plain_text(self._text(export.currency_column)) if export.currency_column is not None else ""
        currency = _YUAN.get(word, word.upper()) or export.currency
        if not numbers:
            return None, currency
        if currency is None or not _CURRENCY.fullmatch(currency):
            raise self._fault(export.currency_column or "", "no currency, such as USD")
        return sum(numbers, Decimal(0)), currency

    def _rate(self, export: Export) -> Decimal | None:
        rate = self._number_of(export.rate)
        return None if rate is None else rate * _MILLION / export.rate_for

    def _text(self, column: str | None) -> str:
        place = None if column is None else self._columns.place(column)
        return self._fields[place].strip() if place is not None and place < len(self._fields) else ""

    def _number_of(self, column: str | None) -> Decimal | None:
        """Return the number of a column; None where it has none."""
        text = self._text(column)
        if self._table.delimiter == ";" and _UNCLEAR.fullmatch(text):
            raise self._fault(column or "", "a comma that may stand for the point")
        try:
            return _number(text)
        except ValueError:
            raise self._fault(column or "", "no number") from None

    def _fault(self, column: str, fault: str) -> CnllmError:
        """Return the error for a value, which it does not repeat: it may be a key."""
        place = f"{self._table.file.name}: line {self._number}"
        return CnllmError(
            f"{place}: column {self._columns.name(column)}: {fault}", hint="export the bill again, or correct the line"
        )


@lru_cache(maxsize=1024)
def _matches(text: str, globs: tuple[str, ...]) -> bool:
    return matches(text, [*globs])


def _label(export: Export, model: str) -> str:
    """Return the name of a model or of another product."""
    return hide_keys(next((name for glob, name in export.models.items() if matches(model, [glob])), model))


def hide_keys(text: str) -> str:
    """Return a text that will be shown, without what has the form of a key."""
    return _KEY.sub(redact.MARK, text)


def _number(text: str) -> Decimal | None:
    """Return a number with or without separators of thousands and a sign of money; None for an empty cell."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text).replace("−", "-")
    plain = plain.strip().lower()
    if plain in _NOTHING:
        return None
    plain = _CURRENCY_SIGN.sub("", plain)
    if plain.startswith("-"):
        plain = "-" + _CURRENCY_SIGN.sub("", plain[1:])
    if len(plain) > _MOST_DIGITS or not _NUMBER.fullmatch(plain):
        raise ValueError
    number = Decimal(plain.replace(",", ""))
    if number and abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError
    return number
