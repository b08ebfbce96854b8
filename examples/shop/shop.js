"use strict";

const element = (id) => document.getElementById(id);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const SALES = {
  on_sale: "On sale", not_begun: "The sale has not begun", paused: "The sale is paused", busy: "The shop is busy",
  sold_out: "Sold out", over: "The sale is over", delisted: "The sale is over",
};
const ORDERS = {
  waiting: "Your order is on its way", confirmed: "A voucher is reserved for you: please pay", paid: "Paid. Thank you!",
  expired: "You did not pay in time, so the voucher is on sale again", cancelled: "Your order was cancelled",
  refunding: "You get your money back", refunded: "You have your money back", refused: "You got no voucher",
};
const HAS_ENDED = ["expired", "cancelled", "refunded", "refused", "released"]; // the user may buy again

let sale = {}; // the voucher, as the gate shows it
let order = null; // the order of this user, as the gate shows it
let events = null; // the changes of this order
let isWorking = false; // a request is on its way
let isLeft = false; // the user lets the order expire

function show() {
  const state = order?.state;
  const place = order?.estimate?.ahead, seconds = order?.estimate?.expectedS;
  document.body.dataset.sale = sale.state ?? "";
  document.body.dataset.state = state ?? "";
  document.body.dataset.order = order?.orderId ?? "";
  element("sale").textContent = `${SALES[sale.state] ?? ""}, ${sale.unitsLeft ?? "?"} left`;
  element("order").textContent = (ORDERS[state] ?? state ?? "") +
    (state === "waiting" && place != null ? `; orders before yours: ${place}` : "") +
    (state === "waiting" && seconds != null ? `, about ${seconds} s` : "");
  const buttons = {
    buy: (!order || HAS_ENDED.includes(state)) && sale.state === "on_sale",
    pay: state === "confirmed" && !isLeft,
    expire: state === "confirmed" && !isLeft,
    late: state === "expired" && !order.refundsDue.length,
    refund: state === "paid",
  };
  for (const [id, isShown] of Object.entries(buttons)) {
    element(id).hidden = !isShown;
    element(id).disabled = isWorking;
  }
}

async function ask(path, options) {
  try {
    const answer = await fetch(path, options);
    return [answer.status, await answer.json()];
  } catch {
    return [503, { title: "The shop does not answer" }];
  }
}

// A payment provider repeats its call until the answer is 200. The gate knows a repeated call by its ref.
async function insist(action) {
  const { orderId } = order;
  let status;
  do {
    if (status) await pause(500);
    [status] = await ask(`orders/${orderId}/${action}`, { method: "POST" });
  } while (status >= 500 || status === 202);
  follow(order);
}

async function buy() {
  // The same key until there is an answer, so that a lost answer costs no second order.
  sessionStorage.orderKey ??= crypto.randomUUID();
  const headers = { "Idempotency-Key": sessionStorage.orderKey };
  const [status, told] = await ask("orders", { method: "POST", headers });
  if (status < 500) sessionStorage.removeItem("orderKey");
  isLeft = false;
  if (status === 202) follow({ orderId: told.orderId, state: "waiting", refundsDue: [] });
  else {
    element("message").textContent = told.title;
    await resume();
  }
}

// An order that the user placed before, perhaps in another window.
async function resume() {
  const [status, told] = await ask("orders");
  if (status !== 200) setTimeout(resume, 1000);
  else if (told.orders.length) follow(told.orders[0]);
}

function follow(started) {
  events?.close();
  order = started;
  show();
  const source = new EventSource(`orders/${order.orderId}/events`);
  events = source;
  source.onmessage = (message) => {
    order = JSON.parse(message.data);
    if (HAS_ENDED.includes(order.state) && !order.refundsDue.length) source.close();
    show();
  };
  source.onerror = async () => {
    // The browser reconnects by itself, except after an answer other than 200.
    if (source.readyState !== EventSource.CLOSED) return;
    await pause(1000);
    if (events === source) follow(order);
  };
}

function onClick(id, act) {
  element(id).addEventListener("click", async () => {
    if (isWorking) return;
    isWorking = true;
    element("message").textContent = "";
    show();
    await act();
    isWorking = false;
    show();
  });
}

onClick("buy", buy);
onClick("pay", () => insist("pay"));
onClick("late", () => insist("pay"));
onClick("refund", () => insist("refund"));
onClick("expire", () => { isLeft = true; });

async function watchSale() {
  for (;;) {
    const [status, told] = await ask("voucher");
    if (status === 200) sale = told;
    show();
    await pause(1000);
  }
}

resume();
watchSale();
