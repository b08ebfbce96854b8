// Drives five pages of the shop in Chromium: node pages.mjs CHROMIUM SHOP FOLDER_OF_MODULES. Writes what each page
// shows as lines of JSON. Reads the lines `buy` and `act`, before which the pages wait.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [executablePath, shop, modules] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)("playwright-core");
const commands = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (page, told) => console.log(JSON.stringify({ page, ...told }));
const patience = { timeout: 120_000 };

const until = (page, name, value) => page.waitForSelector(`body[data-${name}="${value}"]`, patience);
const click = (page, id) => page.click(`#${id}:not([disabled])`, patience);

const acts = [
  async (page) => {
    await click(page, "pay");
    await until(page, "state", "paid");
  },
  async (page) => {
    await click(page, "pay");
    await until(page, "state", "paid");
    await page.reload(); // The page finds its order again.
    await click(page, "refund");
    await until(page, "state", "refunded");
  },
  async (page) => {
    await click(page, "expire");
    await until(page, "state", "expired");
  },
  async (page) => {
    await until(page, "state", "expired");
    await click(page, "late");
    await until(page, "state", "refunded");
  },
];

async function open(at) {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.on("pageerror", (error) => say(at, { error: `${error}` }));
  await page.goto(shop);
  await page.waitForSelector("#buy:not([hidden])", patience);
  const cookie = (await context.cookies()).find((cookie) => cookie.name === "user");
  say(at, { user: cookie.value.split(".")[0] });
  return page;
}

async function buy(page, at) {
  await page.dblclick("#buy", patience);
  await page.waitForSelector("body:not([data-order=''])", patience);
  say(at, { order: await page.getAttribute("body", "data-order") });
}

async function missTheSale(page, at) {
  await until(page, "sale", "sold_out");
  say(at, { is_refused: true });
}

async function act(page, at) {
  if (acts[at]) await acts[at](page);
  say(at, { state: (await page.getAttribute("body", "data-state")) || null, is_done: true });
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const pages = await Promise.all([0, 1, 2, 3, 4].map(open));
await commands.next();
await Promise.all(pages.map((page, at) => (acts[at] ? buy : missTheSale)(page, at)));
await commands.next();
await Promise.all(pages.map(act));
await browser.close();
