"""Monthly prices of volumes."""

import pytest

from esrally_ebs.cost import monthly_price, regions
from esrally_ebs.model import VolumeSpec

MIB, GIB = 1024**2, 1024**3
GP2 = VolumeSpec(name="gp2", type="gp2", size_bytes=100 * GIB)
GP3 = VolumeSpec(name="gp3", type="gp3", size_bytes=100 * GIB, iops=3000, throughput_bytes_per_s=128 * MIB)


def test_the_two_tokyo_prices_of_the_2021_article_come_out_to_the_cent() -> None:
    for spec, usd in ((GP2, 12.00), (GP3, 9.744)):  # 100 * 0.12; 100 * 0.096 + 3 * 0.048
        price = monthly_price(spec, "ap-northeast-1")
        assert price is not None
        assert price.usd == pytest.approx(usd)


def test_only_what_exceeds_what_is_included_is_paid_for() -> None:
    spec = VolumeSpec(name="a", type="gp3", size_bytes=10 * GIB, iops=4000)
    price = monthly_price(spec, "us-east-1")
    assert price is not None
    assert price.parts == pytest.approx({"storage": 0.8, "iops": 5.0})  # 10 * 0.08; 1000 * 0.005


def test_a_price_says_of_when_it_is_and_where_it_is_from() -> None:
    for region in regions():
        price = monthly_price(GP3, region)
        assert price is not None
        assert price.dated.startswith("202")
        assert price.source


def test_what_the_list_does_not_have_has_no_price() -> None:
    assert monthly_price(GP2, "eu-north-1") is None
    assert monthly_price(VolumeSpec(name="a", type="st1", size_bytes=500 * GIB), "us-east-1") is None
