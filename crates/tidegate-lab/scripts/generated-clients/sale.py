"""Buys, pays, refunds and reads an order of voucher 1, with the client that openapi-python-client has generated.

The arguments are the URL of the gate and the user.
"""

import importlib.util
import sys
import time

from gate_client import Client
from gate_client.api.default import (
    check_order,
    get_order,
    get_voucher,
    list_orders,
    place_order,
    report_event,
    report_events,
)
from gate_client.models import (
    Admitted,
    Event,
    EventReport,
    OrderList,
    Problem,
    Progress,
    ReportedKind,
    Voucher,
    VoucherOrder,
)

VOUCHER = "1"
url, user = sys.argv[1:]
gate = Client(base_url=url, timeout=60)


def expect(answer, kind):
    assert isinstance(answer, kind), answer
    return answer


def report(event, ref, **members):
    body = Event(event=event, voucher_id=VOUCHER, user_id=user, ref=ref, **members)
    answer = report_event.sync(order.order_id, client=gate, body=body, prefer="wait=30")
    return expect(answer, EventReport).outcome


def shown():
    return expect(get_order.sync(order.order_id, client=gate, voucher_id=VOUCHER), Progress)


before = expect(get_voucher.sync(VOUCHER, client=gate), Voucher)
assert (before.voucher_id, before.state) == (VOUCHER, "on_sale"), before
wanted = VoucherOrder(voucher_id=VOUCHER, user_id=user, quantity=2)
assert check_order.sync(client=gate, body=wanted).outcome == "would_be_admitted"

order = expect(place_order.sync(client=gate, body=wanted, idempotency_key=f"python-{user}"), Admitted)
again = expect(place_order.sync(client=gate, body=wanted, idempotency_key=f"python-{user}"), Admitted)
assert (again.order_id, again.outcome) == (order.order_id, "admitted_before"), again
second = expect(place_order.sync(client=gate, body=wanted), Problem)
assert second.type_ == "/problems/second-order", second

assert report(ReportedKind.PAID, f"pay-{user}") == "applied"
assert report(ReportedKind.PAID, f"pay-{user}-again") == "refund_due"
assert [due.ref for due in shown().refunds_due] == [f"pay-{user}-again"]
line = Event(
    event=ReportedKind.REFUNDED,
    order_id=order.order_id,
    voucher_id=VOUCHER,
    user_id=user,
    ref=f"refund-{user}-again",
    payment=f"pay-{user}-again",
)
answers = report_events.sync(client=gate, body=[line])
assert [(answer.line, answer.status, answer.outcome) for answer in answers] == [(1, 202, "accepted")], answers
assert report(ReportedKind.REFUNDING, f"refund-{user}", payment=f"pay-{user}") == "applied"
assert report(ReportedKind.REFUNDED, f"refund-{user}", payment=f"pay-{user}") == "applied"

progress = shown()
assert (progress.state, progress.quantity, progress.refunds_due) == ("refunded", 2, []), progress
assert [event.event for event in progress.events] == ["paid", "paid", "refunded", "refunding", "refunded"], progress
listed = expect(list_orders.sync(client=gate, voucher_id=VOUCHER, user_id=user), OrderList)
assert [it.order_id for it in listed.orders] == [order.order_id], listed

if importlib.util.find_spec("gate_client.api.default.list_results"):
    from gate_client.api.default import list_results

    states, after, deadline = [], None, time.monotonic() + 60
    while "refunded" not in states and time.monotonic() < deadline:
        page = list_results.sync(client=gate, wait=5, **({"after": after} if after else {}))
        states += [result.state for result in page.results if result.order_id == order.order_id]
        after = page.cursor
    assert {"confirmed", "paid", "refund_due", "refunding", "refunded"} <= set(states), states
