"""The paper's Table 1, cell by cell."""

import pytest

from tinydist.zero.estimators import model_states

RANKS = (1, 4, 16, 64, 256, 1024)
TABLE_1 = {  # GB = 1e9 bytes, as printed, for each of RANKS (Rajbhandari et al. 2019, table 1)
    (7.5e9, 1): ("120", "52.5", "35.6", "31.4", "30.4", "30.1"),
    (7.5e9, 2): ("120", "41.3", "21.6", "16.6", "15.4", "15.1"),
    (7.5e9, 3): ("120", "30", "7.5", "1.88", "0.47", "0.12"),
    (128e9, 1): ("2048", "896", "608", "536", "518", "513"),
    (128e9, 2): ("2048", "704", "368", "284", "263", "257"),
    (128e9, 3): ("2048", "512", "128", "32", "8", "2"),
    (1e12, 1): ("16000", "7000", "4750", "4187", "4046", "4011"),
    (1e12, 2): ("16000", "5500", "2875", "2218", "2054", "2013"),
    (1e12, 3): ("16000", "4000", "1000", "250", "62.5", "15.6"),
}


@pytest.mark.parametrize("parameters, stage", TABLE_1, ids=str)
@pytest.mark.parametrize("column", range(6))
def test_the_papers_table_1(parameters, stage, column):
    """Each of the 54 cells is the formula's number, cut or rounded to the digits that are printed."""
    printed, found = TABLE_1[parameters, stage][column], model_states(parameters, stage, RANKS[column]) / 1e9
    unit = 10.0 ** -len(printed.partition(".")[2])
    assert -unit / 2 - 1e-9 <= found - float(printed) < unit
    assert sum(map(len, TABLE_1.values())) == 54


def test_figure_1():
    figures = [model_states(7.5e9, stage, 64) / 1e9 for stage in range(4)]
    assert figures == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


@pytest.mark.parametrize("stage, ranks", [(4, 1), (-1, 1), (1, 0)])
def test_no_such_stage(stage, ranks):
    with pytest.raises(ValueError, match=f"got stage {stage} and {ranks} ranks"):
        model_states(1, stage, ranks)
