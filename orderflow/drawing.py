"""A checked definition as a drawing: Mermaid text, or SVG. Approvals and compensations are part of it."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

from orderflow.domain.definition import ApprovalPolicy, Definition, OnFailure, Step

CHARACTER_WIDTH, LINE_HEIGHT, PADDING = 8, 18, 10
COLUMN_GAP, ROW_GAP, TITLE_HEIGHT = 30, 46, 40

_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933}.title{font-size:16px;font-weight:600}.id{font-weight:600}"
    ".box{fill:#f5f7fa;stroke:#52606d}.approval,.review{fill:#9c4a00}.undo{fill:#0b5cad}.edge{fill:none;stroke:#52606d}"
)


class Note(NamedTuple):
    """One line about a step; `kind` is `id`, `activity`, `approval`, `review`, `route`, `rule` or `undo`."""

    kind: str
    text: str


def mermaid(definition: Definition) -> str:
    """The definition as a Mermaid flowchart: an approval stands before its step, a compensation hangs on its own."""
    lines = ["---", f"title: {_label(f'{definition.name} {definition.version}')}", "---", "flowchart TD"]
    for step in definition.steps:
        lines += [f"  {line}" for line in _mermaid_lines(step)]
    return "\n".join(lines) + "\n"


def _mermaid_lines(step: Step) -> Iterator[str]:
    notes = [note for note in _notes(step) if note.kind not in ("approval", "undo")]
    yield f"step_{step.id}[{_label(step.id, *(note.text for note in notes))}]"
    entry = f"step_{step.id}"
    if step.approval is not None:
        entry = f"approval_{step.id}"
        yield f"{entry}{{{{{_label('approval', _asked(step.approval))}}}}}"
        yield f"{entry} --> step_{step.id}"
    for dependency in step.depends_on:
        yield f"step_{dependency} --> {entry}"
    if step.compensation is not None:
        yield f"step_{step.id} -. undo .-> undo_{step.id}([{_label(step.compensation.activity)}])"


def _label(*lines: str) -> str:
    return '"' + "<br/>".join(escape(line, quote=False).replace('"', "#quot;") for line in lines) + '"'


def _notes(step: Step) -> Iterator[Note]:
    yield Note("activity", step.activity)
    if step.approval is not None:
        yield Note("approval", f"approval: {_asked(step.approval)}")
    for decision, route in sorted((step.routes or {}).items()):
        yield Note("route", f"{decision}: {route}")
    if step.review is not None:
        yield Note("review", f"review: {_asked(step.review)}")
    if step.deadline is not None:
        yield Note("rule", f"deadline: {step.deadline}")
    if step.on_failure is OnFailure.CONTINUE:
        yield Note("rule", "if it fails: continue")
    if step.compensation is not None:
        yield Note("undo", f"undo: {step.compensation.activity}")


def _asked(policy: ApprovalPolicy) -> str:
    return f"{policy.approvers} × {policy.role} within {policy.expires_in}"


class _Slot(NamedTuple):
    """A place in a row: of the step `id` itself, or of the edge to it from `via` that passes through the row."""

    row: int
    id: str
    via: str = ""


class _Place(NamedTuple):
    """Where a slot is drawn: the middle of its upper side, its size, and where its row ends."""

    x: float
    y: float
    width: float
    height: float
    foot: float


def svg(definition: Definition) -> str:
    """The definition as an SVG document: rows from first to last, one box a step; text is escaped."""
    depths = _depths(definition)
    rows = _rows(definition, depths)
    places, width, height = _places(definition, rows)
    title = escape(f"{definition.name} {definition.version}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<title>{title}</title><style>{_STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#52606d"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="{PADDING}" y="26">{title}</text>',
        *_edges(definition, depths, places),
        *(_box(step, places[_Slot(depths[step.id], step.id)]) for step in definition.steps),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _depths(definition: Definition) -> dict[str, int]:
    """How many steps at least come before each step: the row in which it is drawn."""
    depths: dict[str, int] = {}
    while batch := definition.ready(depths, ()):
        depths |= {step.id: max((depths[needed] + 1 for needed in step.depends_on), default=0) for step in batch}
    return depths


def _way(step: Step, needed: str, depths: Mapping[str, int]) -> list[_Slot]:
    """The slots that the edge from `needed` to `step` visits. It has one in each row between, so no box hides it."""
    between = [_Slot(row, step.id, needed) for row in range(depths[needed] + 1, depths[step.id])]
    return [_Slot(depths[needed], needed), *between, _Slot(depths[step.id], step.id)]


def _rows(definition: Definition, depths: Mapping[str, int]) -> list[list[_Slot]]:
    """The slots of each row, each as near as its place in line allows to what it follows from."""
    rows: list[list[_Slot]] = [[] for _ in range(max(depths.values()) + 1)]
    before: dict[_Slot, list[_Slot]] = {}
    for step in definition.steps:
        rows[depths[step.id]].append(_Slot(depths[step.id], step.id))
        for way in (_way(step, needed, depths) for needed in step.depends_on):
            for earlier, later in pairwise(way):
                before.setdefault(later, []).append(earlier)
            for slot in way[1:-1]:
                rows[slot.row].append(slot)
    centred: dict[_Slot, float] = {}
    for row in rows:
        row.sort(key=lambda slot: mean([centred[earlier] for earlier in before.get(slot, [])] or [0]))
        centred |= {slot: number - (len(row) - 1) / 2 for number, slot in enumerate(row)}
    return rows


def _places(definition: Definition, rows: Sequence[Sequence[_Slot]]) -> tuple[dict[_Slot, _Place], int, int]:
    box_width = (
        max(CHARACTER_WIDTH * len(line.text) for step in definition.steps for line in _lines(step)) + 2 * PADDING
    )
    column = box_width + COLUMN_GAP
    width = max(map(len, rows)) * column + COLUMN_GAP
    places: dict[_Slot, _Place] = {}
    top = TITLE_HEIGHT
    for row in rows:
        heights = {slot: _height(definition.step(slot.id)) for slot in row if not slot.via}
        deepest = max(heights.values())
        for number, slot in enumerate(row):
            x = width / 2 + (number - (len(row) - 1) / 2) * column
            places[slot] = _Place(x, top, box_width, heights.get(slot, 0), top + deepest)
        top += deepest + ROW_GAP
    return places, width, top - ROW_GAP + COLUMN_GAP


def _lines(step: Step) -> list[Note]:
    return [Note("id", step.id), *_notes(step)]


def _height(step: Step) -> int:
    return LINE_HEIGHT * len(_lines(step)) + 2 * PADDING


def _edges(definition: Definition, depths: Mapping[str, int], places: Mapping[_Slot, _Place]) -> Iterator[str]:
    for step in definition.steps:
        for needed in step.depends_on:
            stops = [places[slot] for slot in _way(step, needed, depths)]
            yield f'<path class="edge" marker-end="url(#arrow)" d="{_curve(stops)}"/>'


def _curve(stops: Sequence[_Place]) -> str:
    """Straight down through each row, bending only between rows, where no box is."""
    path = f"M{stops[0].x:g} {stops[0].y:g}"
    for before, after in pairwise(stops):
        bend = (before.foot + after.y) / 2
        path += f"L{before.x:g} {before.foot:g}C{before.x:g} {bend:g} {after.x:g} {bend:g} {after.x:g} {after.y:g}"
    return path


def _box(step: Step, place: _Place) -> str:
    left, top = place.x - place.width / 2, place.y
    texts = "".join(
        f'<text class="{note.kind}" x="{left + PADDING:g}" y="{top + PADDING + LINE_HEIGHT * (number + 0.75):g}">'
        f"{escape(note.text)}</text>"
        for number, note in enumerate(_lines(step))
    )
    box = f'<rect class="box" x="{left:g}" y="{top:g}" width="{place.width:g}" height="{place.height:g}" rx="6"/>'
    return f"<g>{box}{texts}</g>"
