// Reads results until the user's order of voucher 1 is refunded, with the types that openapi-typescript has generated.
// The arguments are the URL of the gate and the user.
import createClient from "openapi-fetch";
import type { paths } from "./gate.js";

declare const process: { argv: string[] };

const [, , url, user] = process.argv;
const gate = createClient<paths>({ baseUrl: url });
const states = new Set<string>();
const deadline = Date.now() + 60_000;
let after: string | undefined;
while (!states.has("refunded") && Date.now() < deadline) {
  const page = await gate.GET("/results", { params: { query: { after, wait: 5 } } });
  // A string is a stream of server-sent events, for which this program does not ask.
  if (typeof page.data !== "object") throw new Error(JSON.stringify(page.error));
  page.data.results.filter((result) => result.userId === user).forEach((result) => states.add(result.state));
  after = page.data.cursor;
}
for (const state of ["confirmed", "paid", "refund_due", "refunding", "refunded"]) {
  if (!states.has(state)) throw new Error(`no result ${state}: ${[...states].join(", ")}`);
}
