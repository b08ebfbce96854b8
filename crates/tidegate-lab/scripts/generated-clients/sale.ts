// Buys, pays, refunds and reads an order of voucher 1, with the types that openapi-typescript has generated.
// The arguments are the URL of the gate and the user.
import createClient from "openapi-fetch";
import type { components, paths } from "./gate.js";

declare const process: { argv: string[]; exitCode?: number };

type Event = components["schemas"]["Event"];

const VOUCHER = "1";
const [, , url, user] = process.argv;
const gate = createClient<paths>({ baseUrl: url });

function same(actual: unknown, expected: unknown): void {
  const [is, should] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (is !== should) throw new Error(`${is} instead of ${should}`);
}

const before = await gate.GET("/vouchers/{voucherId}", { params: { path: { voucherId: VOUCHER } } });
same(before.data?.state, "on_sale");
const wanted = { voucherId: VOUCHER, userId: user, quantity: 2 };
const checked = await gate.POST("/orders/check", { body: wanted });
same(checked.data?.outcome, "would_be_admitted");

const key = { header: { "Idempotency-Key": `typescript-${user}` } };
const order = await gate.POST("/orders", { body: wanted, params: key });
const orderId = order.data?.orderId ?? "none";
same(order.data?.outcome, "admitted");
const again = await gate.POST("/orders", { body: wanted, params: key });
same(again.data, { orderId, outcome: "admitted_before" });
const second = await gate.POST("/orders", { body: wanted });
same([second.response.status, second.error?.type], [409, "/problems/second-order"]);

async function report(event: Event["event"], ref: string, payment?: string): Promise<string | undefined> {
  const body: Event = { event, ref, payment, voucherId: VOUCHER, userId: user };
  const params = { path: { orderId }, header: { Prefer: "wait=30" } };
  const answer = await gate.POST("/orders/{orderId}/events", { params, body });
  return answer.data?.outcome;
}

async function shown() {
  const params = { path: { orderId }, query: { voucherId: VOUCHER } };
  return (await gate.GET("/orders/{orderId}", { params })).data;
}

same(await report("paid", `pay-${user}`), "applied");
same(await report("paid", `pay-${user}-again`), "refund_due");
same((await shown())?.refundsDue.map((due) => due.ref), [`pay-${user}-again`]);
const refund: Event = {
  event: "refunded",
  orderId,
  voucherId: VOUCHER,
  userId: user,
  ref: `refund-${user}-again`,
  payment: `pay-${user}-again`,
};
const answers = await gate.POST("/events", { body: [refund] });
same(answers.data?.map((answer) => [answer.line, answer.status, answer.outcome]), [[1, 202, "accepted"]]);
same(await report("refunding", `refund-${user}`, `pay-${user}`), "applied");
same(await report("refunded", `refund-${user}`, `pay-${user}`), "applied");

const progress = await shown();
same([progress?.state, progress?.quantity, progress?.refundsDue], ["refunded", 2, []]);
const events = progress?.events.map((event) => event.event);
same(events, ["paid", "paid", "refunded", "refunding", "refunded"]);
const query = { voucherId: VOUCHER, userId: user };
const listed = await gate.GET("/orders", { params: { query } });
same(listed.data?.orders.map((it) => it.orderId), [orderId]);
