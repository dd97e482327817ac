"""Each bit of a number has a box, and each format a row."""

import pytest
from visuals.drawn import assert_can_be_read, written

from tinydist import visuals
from tinydist.precision import FORMATS, encode_bits


@pytest.mark.parametrize("number", [1.1, 2.0**-50, 2.0**130, -0.1])
def test_bits_and_value_of_each_format(number, capsys):
    numbers = {name: encode_bits(number, format) for name, format in FORMATS.items()}
    figure = visuals.bit_fields(numbers)
    said = written(figure)
    bits = sum(format.bits for format in FORMATS.values())
    assert sum(each in ("0", "1") for each in said) == bits
    for name, encoded in numbers.items():
        assert name in said and f"= {encoded.value:.5g}" in said
    assert capsys.readouterr().out.startswith(f"fp32 {numbers['fp32'].value:.5g}; tf32")
    assert_can_be_read(figure)
