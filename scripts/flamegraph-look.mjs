// See flamegraph-look.sh.
import assert from "node:assert/strict";
import puppeteer from "puppeteer-core";

const [svg, out, query] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await browser.newPage();
const wrong = [];
page.on("pageerror", e => wrong.push(String(e)));
page.on("console", m => wrong.push(m.text()));
page.on("request", r => r.url().startsWith("file:") || wrong.push("request for " + r.url()));
const picture = name => page.screenshot({ path: `${out}/${name}.png` });
const text = selector => page.$eval(selector, e => e.textContent);
const light = scheme => page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
// Boxes that are shown, in pixels.
const boxes = () => page.$$eval("#frames > g", groups => groups.map(g => {
	const r = g.querySelector("rect").getBoundingClientRect();
	const title = g.querySelector("title").textContent, share = title.match(/, ([\d.]+) % of the zoomed part\)$/);
	return { title: title.replace(share?.[0], ")"), share: share?.[1], label: g.querySelector("text")?.textContent ?? "",
		x: r.x, y: r.y, width: r.width, hit: g.classList.contains("hit") };
}).filter(b => b.width > 0));

// The details are a title, but for what does not fit of a long name.
const tells = (details, title) => {
	const amount = s => s.slice(s.lastIndexOf(" (")).replace(/, [\d.]+ % of the zoomed part/, "");
	return amount(details) === amount(title) && title.replace("\n", " in ").startsWith(details.slice(0, details.lastIndexOf(" (")).replace(/…$/, ""));
};

await page.setViewport({ width: 1400, height: 800 });
await light("light");
const begin = Date.now();
await page.goto("file://" + svg);
const before = await boxes();
console.log(`${before.length} boxes, loaded in ${Date.now() - begin} ms`);
assert.equal(Math.round(before[0].width), 1400, "the graph fills the window");
assert.ok(before[0].y > 0 && before[0].y < 800, "the bottom is in view");
const summary = await text("#details");
await picture("1-initial");

const narrow = before.filter(b => b.y > 70 && b.width < 1400 * .6).sort((a, b) => b.width - a.width)[0];
await page.mouse.move(narrow.x + narrow.width / 2, narrow.y + 8);
assert.ok(tells(await text("#details"), narrow.title));
await page.mouse.click(narrow.x + narrow.width / 2, narrow.y + 8);
const zoomed = await boxes();
assert.equal(Math.round(zoomed.find(b => b.title === narrow.title && b.y === narrow.y).width), 1400);
assert.ok(zoomed.every(b => b.x >= -1 && b.x + b.width <= 1401));
const inner = zoomed.filter(b => b.y !== narrow.y && b.width < 1399 && b.width > 20)[0];
if (inner) { // a share of the zoomed part, in its tooltip and for a search
	await page.mouse.move(inner.x + inner.width / 2, inner.y + 8);
	const told = (await boxes()).find(b => b.x === inner.x && b.y === inner.y).share;
	assert.ok(Math.abs(told - inner.width / 14) < .1, `${told} ${inner.width}`);
	await page.keyboard.type("/" + query);
	assert.match(await page.$$eval("#head text", all => all.at(-1).textContent), /^matched [\d.]+ % of the zoomed part$/);
	await picture("2-zoomed-searched");
	await page.keyboard.press("Escape");
}
await picture("2-zoomed");
await page.click("#reset");
assert.deepEqual((await boxes()).map(b => b.title), before.map(b => b.title));
assert.equal(await text("#details"), summary);

await page.mouse.move(5, 58); // off all boxes
await page.keyboard.down("Control");
await page.keyboard.press("f");
await page.keyboard.up("Control");
await page.keyboard.type(query);
const found = await boxes();
assert.ok(found.some(b => b.hit));
for (const b of found) {
	const name = b.title.slice(0, b.title.lastIndexOf(" ("));
	assert.equal(b.hit, b !== found[0] && new RegExp(query, /\p{Lu}/u.test(query) ? "m" : "im").test(name), b.title);
}
console.log(await page.$$eval("#head text", all => all.at(-1).textContent), "by", query);
await picture("3-searched");
await page.keyboard.press("Escape");
assert.ok((await boxes()).every(b => !b.hit));
await page.keyboard.type("/((");
assert.ok((await boxes()).every(b => b.hit === b.title.includes("((")), "no regexp: text");
await page.keyboard.press("Escape");

const up = before[1].y > before[0].y ? "ArrowDown" : "ArrowUp"; // where the callees are
for (const key of [up, up, "ArrowRight", "ArrowLeft", up]) await page.keyboard.press(key);
const current = await text("#details");
await page.keyboard.press("Enter");
await picture("4-keyboard");
assert.equal(Math.round((await boxes()).find(b => tells(current, b.title)).width), 1400);
await page.keyboard.press("Escape");
assert.equal(await text("#details"), summary);

await light("dark");
await picture("5-dark");
await page.setViewport({ width: 600, height: 500 });
await page.waitForFunction(() => document.documentElement.getBoundingClientRect().width === 600);
assert.ok(await page.$eval("#details", e => e.getBoundingClientRect().right) <= 600, "the summary ends in …");
await picture("5-dark-narrow");
await light("light");
await picture("5-narrow");
await page.setJavaScriptEnabled(false);
await page.setViewport({ width: 1400, height: before[0].y > 0 ? 1300 : 800 });
await light("light");
await page.goto("file://" + svg);
await picture("6-without-script");
assert.deepEqual(wrong, []);
await browser.close();
