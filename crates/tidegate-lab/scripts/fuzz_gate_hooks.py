"""Makes of the fuzzer's orders such as callers send: most name no order id, and say what a limit counts by.

Nothing that the document forbids becomes allowed by this, nor the other way round.
"""

import json

import schemathesis

# The id that the fuzzer takes nearly always: every order would be the one of before.
FAVOURITE = "1"
PHONES = 4
# The seconds for which a request may wait for results, which do not come: no worker is there.
WAITS = {str(seconds) for seconds in range(1, 61)}


@schemathesis.hook
def map_body(context, body):
    path = context.operation.path
    if not isinstance(body, dict) or path not in ("/orders", "/orders/check"):
        return body
    changed = dict(body)
    # A check must not name an order.
    if path == "/orders" and changed.get("orderId") == FAVOURITE:
        del changed["orderId"]
    subjects = changed.get("subjects", {})
    if isinstance(subjects, dict) and len(subjects) < 8:
        phone = len(json.dumps(body)) % PHONES
        changed["subjects"] = {"phone": f"p{phone}", **subjects}
    return changed


@schemathesis.hook
def before_call(context, case, kwargs):
    if str((case.query or {}).get("wait")) in WAITS:
        case.query["wait"] = 0
