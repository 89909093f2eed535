// Look at the matrix page in a browser: node matrix.mjs FOLDER_OF_MODULES CHROMIUM PAGE. Prints what it found as JSON.
import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
import {join} from "node:path";

const [, , folder, chromium, file] = process.argv;
const require = createRequire(join(folder, "index.js"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const SIZES = {wide: {width: 1440, height: 900}, narrow: {width: 390, height: 844, isMobile: true, hasTouch: true}};
const MODEL = "zai/glm-4.7", OTHER = "anthropic/claude-haiku-5-5";
const VIEWS = {list: "", model: `#model=${MODEL}`, comparison: `#compare=${MODEL},${OTHER}`, chinese: "#lang=zh"};

const browser = await puppeteer.launch({executablePath: chromium, headless: true, args: ["--no-sandbox"]});
async function open(hash, size, scheme) {
  const page = await browser.newPage();
  const errors = [], requests = [];
  page.on("pageerror", error => errors.push(String(error)));
  page.on("request", request => { if (!/^(data|blob):/.test(request.url())) requests.push(request.url()); });
  await page.setBypassCSP(true); // axe is a script of ours, not of the page
  await page.setViewport(SIZES[size]);
  await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: scheme}]);
  await page.goto(`file://${file}${hash}`);
  const view = hash.startsWith("#model") ? "#model h1" : hash.startsWith("#compare") ? "#comparison h1" : "#rows tr";
  await page.waitForSelector(view, {visible: true});
  return {page, errors, requests};
}

async function look(name, hash, size, scheme) {
  const {page, errors, requests} = await open(hash, size, scheme);
  if (name === "list") {
    await page.evaluate(() => {
      [...document.querySelectorAll("#rows [data-pick]")].slice(0, 2).forEach(box => box.click());
      document.querySelector("#can").open = true;
    });
  }
  // A thousand rows of one kind take minutes: the first 40 stand for all.
  await page.waitForFunction(() => document.querySelectorAll("#rows tr").length !== 60);
  await page.evaluate(() => document.querySelectorAll("#rows tr:nth-child(n+41)").forEach(row => row.remove()));
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run(document, {resultTypes: ["violations"]}));
  const violations = found.violations.map(one => `${one.id}: ${one.nodes.map(node => node.target).join(", ")}`);
  await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length);
  const sizes = await page.evaluate(() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    overflow: document.documentElement.scrollWidth - innerWidth,
  }));
  await page.close();
  return {name, size, scheme, violations, errors, requests, ...sizes};
}

const looks = [];
for (const scheme of ["light", "dark"]) {
  for (const size of ["wide", "narrow"]) {
    for (const [name, hash] of Object.entries(VIEWS)) looks.push(await look(name, hash, size, scheme));
  }
}

// ── the place of things ──
const box = (page, selector) => page.$eval(selector, element => {
  const {left, right, top, bottom} = element.getBoundingClientRect();
  return {left, right, top, bottom};
});
const wide = await open("", "wide", "light");
const narrow = await open("", "narrow", "light");
const place = {
  table: await box(wide.page, "#models"),
  price: await box(narrow.page, "#rows tr:has([data-c=input][data-side]) [data-c=reply]"),
};
await narrow.page.close();

// ── the keyboard alone ──
const page = wide.page, keys = {};
const text = selector => page.$eval(selector, element => element.textContent);
const focus = () => page.evaluate(() => document.activeElement.closest("tr")?.querySelector("th a").textContent ?? document.activeElement.id);
await page.keyboard.press("Tab");
keys.first = await page.evaluate(() => document.activeElement.className);
await page.keyboard.press("/");
keys.search = await focus();
await page.keyboard.type("glm-4.7");
await page.waitForFunction(() => location.hash.includes("glm-4.7"));
keys.count = await text("#count");
keys.rows = await page.$$eval("#rows th a", links => links.map(link => link.textContent));
await page.keyboard.press("ArrowDown");
keys.row = await focus();
await page.keyboard.press("c");
await page.keyboard.press("ArrowDown");
await page.keyboard.press("c");
keys.picked = await page.$$eval("#picked li span", names => names.map(name => name.textContent));
keys.outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
await page.keyboard.press("Enter");
await page.waitForSelector("#model h1", {visible: true});
keys.opened = await page.evaluate(() => [location.hash, document.title, document.activeElement.id]);
keys.links = await page.$$eval("#model .source a", links => links.map(link => link.protocol));
await page.keyboard.press("Escape");
await page.waitForSelector("#rows tr", {visible: true});
keys.back = [await focus(), await page.evaluate(() => location.hash)];
await page.focus("#compare");
await page.keyboard.press("Enter");
await page.waitForSelector("#comparison h1", {visible: true});
keys.compared = await page.$$eval("#comparison thead th > a:first-child", names => names.map(name => name.textContent));
await page.keyboard.press("Escape");
await page.waitForSelector("#rows tr", {visible: true});

// ── four at most ──
await page.goto(`file://${file}`);
await page.waitForSelector("#rows tr", {visible: true});
await page.evaluate(() => [...document.querySelectorAll("#rows [data-pick]")].slice(0, 5).forEach(box => box.click()));
const most = await page.evaluate(() => [document.querySelectorAll("#picked li").length, document.querySelectorAll("#rows :checked").length]);

// ── an explanation on hover ──
await page.hover("#rows .words span[data-says]");
const tip = await page.$eval("#tip", element => [element.hidden, element.textContent]);

// ── a deep link into the list ──
await page.goto("about:blank");
await page.goto(`file://${file}#vendor=zai&can=images,tools&sort=input`);
await page.waitForSelector("#rows tr", {visible: true});
const deep = await page.evaluate(() => ({
  vendors: [...new Set([...document.querySelectorAll("#rows small")].map(element => element.textContent))],
  reads: [...document.querySelectorAll("#rows [data-c=Reads]")].every(cell => cell.textContent.includes("images")),
  sort: document.querySelector("[aria-sort]").dataset.c,
}));
await browser.close();
console.log(JSON.stringify({looks, place, keys, most, tip, deep}));
