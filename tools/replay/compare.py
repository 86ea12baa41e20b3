"""Whether two answers are bitwise the same; where they first differ; whether a card's tolerance covers it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from affidavit.libs import canonicaljson
from affidavit.libs.canonicaljson import Json
from affidavit.libs.models import ModelCard

CONFIDENCE_ONE = 10_000  # confidences are integers of 1/10000

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Difference:
    """One value that is not the same."""

    place: Place  # members and 0-based positions, from the document down
    recorded: Json
    replayed: Json

    def text(self) -> str:
        """For people: `page 1, line 3, text: "then" recorded, "now" replayed` (positions from 1)."""
        words: list[str] = []
        for part in self.place:
            if isinstance(part, str):
                words.append(part)
            else:
                words[-1] = f"{words[-1].removesuffix('s')} {part + 1}"
        where = ", ".join(words) or "the whole answer"
        return f"{where}: {_short(self.recorded)} recorded, {_short(self.replayed)} replayed"


def differences(recorded: bytes, replayed: bytes) -> Iterator[Difference]:
    """Every difference of two document results, page by page; a page's place is its number in the document, less 1."""
    then, now = canonicaljson.loads(recorded), canonicaljson.loads(replayed)
    for found in _walk((), then, now):
        match found.place, then:
            case ("pages", int(position), *rest), {"pages": [*pages]}:
                page = pages[position]
                number = page["page"] if isinstance(page, dict) else position + 1
                place = ("pages", number - 1 if isinstance(number, int) else position, *rest)
                yield Difference(place, found.recorded, found.replayed)
            case _:
                yield found


def within(found: Iterable[Difference], tolerance: float) -> bool:
    """Whether all that differs are confidences, none by more than `tolerance` (of 1). Text and geometry must be equal."""
    return all(
        difference.place[-1:] == ("confidence",)
        and isinstance(difference.recorded, int)
        and isinstance(difference.replayed, int)
        and abs(difference.recorded - difference.replayed) <= tolerance * CONFIDENCE_ONE
        for difference in found
    )


def tolerance_of(cards: Iterable[ModelCard]) -> float:
    """The largest tolerance that the cards of a bundle's models grant; 0 where all promise the same bits."""
    said = [card.determinism.partition("tolerance: ")[2] for card in cards]
    return max((float(text) for text in said if text), default=0.0)


def _walk(place: Place, recorded: Json, replayed: Json) -> Iterator[Difference]:
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for name in sorted(recorded.keys() | replayed.keys()):
            yield from _walk((*place, name), recorded.get(name), replayed.get(name))
    elif isinstance(recorded, list) and isinstance(replayed, list):
        for index, (then, now) in enumerate(zip(recorded, replayed, strict=False)):
            yield from _walk((*place, index), then, now)
        if len(recorded) != len(replayed):
            yield Difference((*place, "count"), len(recorded), len(replayed))
    elif recorded != replayed or type(recorded) is not type(replayed):
        yield Difference(place, recorded, replayed)


def _short(value: Json) -> str:
    text = canonicaljson.dumps(value).decode()
    return text if len(text) <= 60 else text[:59] + "…"
