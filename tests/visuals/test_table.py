"""A table has every number, with its unit, in the same words for a notebook and a terminal."""

import pytest

from tinydist import visuals

ROWS = {"stage 1": {"at rest": 120e6, "time": 2e-3, "sent": "2 S"}, "a <b>": {"at rest": 3e9, "more": 5}}


def test_columns_are_aligned():
    table = visuals.table(ROWS, unit={"at rest": "bytes", "time": "seconds", "more": "ranks"})
    assert repr(table).splitlines() == [
        "          at rest      time   sent      more",
        "stage 1    120 MB   2.00 ms    2 S          ",
        "a <b>     3.00 GB                    5 ranks",
    ]


def test_a_unit_for_all():
    assert repr(visuals.table({"a": {"x": 0.5, "y": 1234}}, unit="GB")).split() == [
        "x",
        "y",
        "a",
        "0.50",
        "GB",
        "1,234",
        "GB",
    ]


def test_what_a_notebook_shows_is_no_html_of_ours():
    html = visuals.table(ROWS)._repr_html_()
    assert "a &lt;b&gt;" in html and "<b>" not in html.replace("<tbody>", "")
    assert html.count("<tr>") == 3 and html.count("<td>") == 8


@pytest.mark.parametrize("rows", [{}, {"a": 1}, {"a": {}}, {"a": {"x": None}}])
def test_what_is_no_table(rows):
    with pytest.raises(ValueError, match=r"^table: rows must be a dict, row -> \{column: number or text\}, got "):
        visuals.table(rows)


MIB = 2**20
MEASURED = {MIB // 2: 1e-3, MIB: 2e-3, 3 * MIB: 4e-3, 2**40: 1.0}


def test_what_ran_has_a_column_of_its_own():
    table = visuals.beside(MEASURED, {"same": MEASURED}, [MIB], ran={MIB: "Ring"})
    assert table.columns == ["ran", "measured", "same"] and table.cells[0][0] == "Ring"


def test_models_beside_measurements_and_the_worst_of_all_rows():
    half, more = ({n: factor * s for n, s in MEASURED.items()} for factor in (0.5, 1.25))
    more[3 * MIB] = 1e-3
    table = visuals.beside(MEASURED, {"half": half, "more": more}, [MIB // 2, MIB, 2**40])
    assert [line.split("  ")[0] for line in repr(table).splitlines()[1:]] == [
        "512 KiB",
        "1 MiB",
        "1,024 GiB",
        "worst of 4",
    ]
    assert [row[1:] for row in table.cells] == [["-50%", "+25%"]] * 3 + [["-50%", "-75%"]]
    assert table.cells[0][0] == "1.00 ms"


def test_each_model_has_all_sizes():
    with pytest.raises(
        ValueError, match=r"^beside: sizes must be in measured and in each model, 'a' or measured lacks"
    ):
        visuals.beside(MEASURED, {"a": {MIB: 1.0}}, [MIB])
