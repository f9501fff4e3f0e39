import re
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given

from orderflow.domain.definition import Definition
from orderflow.drawing import mermaid, svg
from tests.definitions import SHIPPED, graph, load, shipped
from tests.unit.test_definition_graph import Edges, acyclic

SVG = "{http://www.w3.org/2000/svg}"
DEFINITION = load(SHIPPED)


def test_mermaid_shows_steps_edges_approval_and_compensation() -> None:
    """The approval stands before its step, the undo hangs on it."""
    lines = {line.strip() for line in mermaid(DEFINITION).splitlines()}
    assert lines >= {
        'title: "order 1.0.0"',
        "flowchart TD",
        'step_notify["notify<br/>notify_customer<br/>deadline: PT1H"]',
        'approval_charge{{"approval<br/>1 × finance within P1D"}}',
        "step_risk_check --> approval_charge",
        "approval_charge --> step_charge",
        'step_charge -. undo .-> undo_charge(["refund_payment"])',
        "step_charge --> step_notify",
    }
    assert "default: manual_review" in mermaid(DEFINITION)
    assert "review: 1 × finance within P1D" in mermaid(DEFINITION)


def test_svg_shows_the_same() -> None:
    """Every step with its activity, approval, routes, deadline and undo is a text in the drawing."""
    texts = {text.text for text in drawn(DEFINITION).iter(f"{SVG}text")}
    assert texts >= {
        *("order 1.0.0", "charge", "charge_payment", "approval: 1 × finance within P1D", "undo: refund_payment"),
        *("default: manual_review", "review: 1 × finance within P1D", "deadline: PT1H"),
    }


def test_a_step_that_may_fail_says_so() -> None:
    """`continue` is a decision that a reader of the drawing must see."""
    definition = load(shipped({"$.steps[4].on_failure": "continue"}))
    assert "if it fails: continue" in mermaid(definition)
    assert "if it fails: continue" in svg(definition)


def test_text_is_escaped() -> None:
    """A name that could end a label or a tag is drawn as text, even if no model let it through."""
    step = DEFINITION.steps[0].model_copy(update={"activity": '"]<script>'})
    definition = DEFINITION.model_copy(update={"steps": (step,)})
    assert mermaid(definition).splitlines()[-1] == '  step_validate["validate<br/>#quot;]&lt;script&gt;"]'
    assert '"]<script>' in {text.text for text in drawn(definition).iter(f"{SVG}text")}


def drawn(definition: Definition) -> ElementTree.Element:
    """The SVG, parsed: it must be well-formed XML."""
    return ElementTree.fromstring(svg(definition))


@given(acyclic(max_size=12))
def test_no_box_covers_another_and_no_edge_runs_through_one(edges: Edges) -> None:
    """Whatever the graph: one box a step, one edge a dependency, all of it inside the drawing and readable."""
    drawing = drawn(load(graph(edges)))
    width, height = float(drawing.attrib["width"]), float(drawing.attrib["height"])
    boxes = [rectangle(box) for box in drawing.iter(f"{SVG}rect") if box.get("class") == "box"]
    paths = [path.attrib["d"] for path in drawing.iter(f"{SVG}path") if path.get("class") == "edge"]
    assert len(boxes) == len(edges)
    assert len(paths) == sum(map(len, edges.values()))
    assert all(left >= 0 and right <= width and top >= 0 and bottom <= height for left, top, right, bottom in boxes)
    for number, one in enumerate(boxes):
        assert not any(overlap(one, other) for other in boxes[number + 1 :])
    for path in paths:
        for part in parts(path)[1:]:
            assert not any(overlap(part, box) for box in boxes)


def test_steps_stand_below_what_they_follow_from() -> None:
    """Listed the other way round, they are still drawn without their edges crossing."""
    definition = load(graph({"a": [], "b": [], "after_b": ["b"], "after_a": ["a"]}))
    titles = {text.text: float(text.attrib["x"]) for text in drawn(definition).iter(f"{SVG}text")}
    assert titles["after_a"] < titles["after_b"]


def rectangle(box: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right, bottom."""
    left, top, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
    return left, top, left + width, top + height


def overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    """Whether two rectangles share more than an edge."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def parts(path: str) -> list[tuple[float, float, float, float]]:
    """The rectangle round each line and bend of an edge. The first lies behind the box that the edge comes from."""
    points = [(*map(float, point.split()),) for point in re.split("[MLC]", path)[1:]]
    return [(min(a, c), b, max(a, c), d) for (a, b), (c, d) in pairwise(point[-2:] for point in points)]
