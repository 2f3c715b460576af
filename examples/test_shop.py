"""Tests of examples/shop.py and examples/orders.yaml, without a database: `pytest examples/test_shop.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from examples.shop import charge, pack

from cograil import Retry
from cograil.testing import Context, Timeout, run_workflow

ORDERS = Path(__file__).parent / "orders.yaml"


def test_charge():
    ctx = Context()
    answer = asyncio.run(charge(ctx, order_id=7, amount=9.5))
    assert answer == {"receipt": "7-9.50", "key": ctx.idempotency_key}
    assert ctx.progresses[-1].message == "asking the bank"
    assert ctx.logged[0].fields == {"order": 7}


def test_pack():
    assert pack(order_id=7, receipt="r") == {"parcel": "order 7, receipt r"}


def test_an_order():
    job = run_workflow(ORDERS, {"order_id": 7})
    assert job.status == "completed"
    assert job.output("pack") == {"parcel": "order 7, receipt 7-9.99"}


def test_the_bank_is_slow():
    job = run_workflow(
        ORDERS, {"order_id": 7}, handlers={"charge": [Retry("busy"), Timeout(), {"receipt": "r"}]}
    )
    assert job.path == ["pay", "pack"]
    assert job.nodes["pay"].attempt == 3
