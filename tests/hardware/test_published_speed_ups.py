"""Published steps in 8 and in 4 bits: what follows from them is what their sources say too."""

from tinydist.hardware import DEVICES
from tinydist.hardware.products import RATES
from tinydist.hardware.published_speed_ups import DENSE_PEAKS, FOUR_BITS, SPEED_UPS, SPEED_UPS_70B


def test_eight_bits_make_a_step_faster_and_never_by_as_much_as_its_products():
    for run in SPEED_UPS:
        assert 1 < run.factor < RATES["H100"].fp8


def test_a_larger_model_gains_more_by_each_recipe():
    small = {recipe: max(run.factor for run in SPEED_UPS if recipe in run.recipe) for recipe in ("row", "MXFP8")}
    assert all(run.least > small[word] for run in SPEED_UPS_70B for word in small if word in run.recipe)
    assert all(run.least <= run.most for run in SPEED_UPS_70B)


def test_what_data_sheets_promise_of_four_bits():
    """Three times as much as of 8 bits on a GB300, twice on a B200; the library's devices say the same."""
    promised = {run.gpus.split(" x ")[1]: round(run.promised, 1) for run in FOUR_BITS if run.against != "bf16"}
    assert promised == {"B200": 2.0, "GB200": 2.0, "B300": 2.8, "GB300": 3.0}
    assert all(run.factor < run.promised for run in FOUR_BITS)
    for name in ("B200", "GB200"):
        rates = [rate / 1e12 for rate in (DEVICES[name].peak[each] for each in ("bfloat16", "float8", "nvfp4"))]
        assert rates == [*DENSE_PEAKS[name].values()]


def test_four_bits_gain_less_over_eight_than_the_data_sheet_says():
    """The source of the row against bf16 says 1.68 itself."""
    assert [round(run.factor, 2) for run in FOUR_BITS if run.against == "bf16"] == [1.68]
    factors = [run.factor for run in FOUR_BITS if run.against != "bf16"]
    assert 0.87 < min(factors) < 1 and 1.4 < max(factors) < 1.5
